/* SPDX-License-Identifier: MIT
** normalize_softmax.cu -- softmax and log_softmax along a dim, and their gradients. The largest element is subtracted first; a lane of
** nothing but -inf, or with inf or NaN in it, is NaN. Lanes are read again rather than kept: they are in the cache by then.
*/
#include "reduce_exp.h"
#include "team.h"

namespace {

__device__ __forceinline__ float log_of(float x) { return pls_log_f32(x); }
__device__ __forceinline__ double log_of(double x) { return pls_log_f64(x); }

template <class T, int G> __global__ void __launch_bounds__(PLC_THREADS) softmax_kernel(const Lanes l, bool log) {
  PLN_SHARED(double, part, [PLC_THREADS]);
  const Team<G> team(l.columns);
  EACH_LANE(team, l.lanes, lane) {
    const int64_t n = lane < l.lanes ? l.count : 0, sx = l.step[1], sy = l.step[0];
    int64_t at[6] = {};
    if (n) l.layout.find(lane, at);
    const T *x = (const T *)l.data[1] + at[1];
    T *y = (T *)l.data[0] + at[0], m = identity<T, MAX>();
    for (int64_t k = team.member; k < n; k += G) m = step<T, MAX>(m, x[k * sx]);
    m = (T)team.largest(part, (double)m);
    Total<T> terms;
    for (int64_t k = team.member; k < n; k += G) terms.add(exp_below(x[k * sx] - m));
    const T sum = (T)team.sum(part, terms.value());
    if (log) {
      const T shift = log_of(sum);
      for (int64_t k = team.member; k < n; k += G) y[k * sy] = x[k * sx] - m - shift;
    } else {
      const T scale = 1 / sum;
      for (int64_t k = team.member; k < n; k += G) y[k * sy] = exp_below(x[k * sx] - m) * scale;
    }
  }
}

/* y (g - sum of g y), or with `log` g - e^y (sum of g). */
template <class T, int G> __global__ void __launch_bounds__(PLC_THREADS) gradient_kernel(const Lanes l, bool log) {
  PLN_SHARED(double, part, [PLC_THREADS]);
  const Team<G> team(l.columns);
  EACH_LANE(team, l.lanes, lane) {
    const int64_t n = lane < l.lanes ? l.count : 0, sd = l.step[0], sg = l.step[1], sy = l.step[2];
    int64_t at[6] = {};
    if (n) l.layout.find(lane, at);
    const T *g = (const T *)l.data[1] + at[1], *y = (const T *)l.data[2] + at[2];
    T *dx = (T *)l.data[0] + at[0];
    Total<T> terms;
    for (int64_t k = team.member; k < n; k += G) terms.add(log ? g[k * sg] : g[k * sg] * y[k * sy]);
    const T sum = (T)team.sum(part, terms.value());
    for (int64_t k = team.member; k < n; k += G)
      dx[k * sd] = log ? g[k * sg] - exp_below(y[k * sy]) * sum : y[k * sy] * (g[k * sg] - sum);
  }
}

template <class T> pln_Status softmax(const pln_Call *c, bool log) {
  const Lanes l = lanes_of(c, 1);
  TEAM_LAUNCH(c, l.lanes, l.count, softmax_kernel, l, log);
  return PLN_OK;
}

template <class T> pln_Status gradient(const pln_Call *c, bool log) {
  const Lanes l = lanes_of(c, 1);
  TEAM_LAUNCH(c, l.lanes, l.count, gradient_kernel, l, log);
  return PLN_OK;
}

}  // namespace

#define RUN(fn, log) (c->arg[0].dtype == PLN_F32 ? fn<float>(c, log) : fn<double>(c, log))

PLC_KERNEL(softmax) { return RUN(softmax, false); }
PLC_KERNEL(log_softmax) { return RUN(softmax, true); }
PLC_KERNEL(softmax_backward) { return RUN(gradient, false); }
PLC_KERNEL(log_softmax_backward) { return RUN(gradient, true); }
