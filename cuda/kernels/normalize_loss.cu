/* SPDX-License-Identifier: MIT
** normalize_loss.cu -- cross entropy and its gradient. A lane is the classes of one position; losses of all lanes wait in scratch for
** the sum or mean.
**
** With m the largest of a lane's x, s the sum of e^(x - m) and a the wanted distribution, times class weights, the loss is the sum
** over c of a[c] (log s - (x[c] - m)), and its gradient (sum of a) e^(x[c] - m) / s - a[c]. For a class t, a[t] = w[t]; label smoothing e
** keeps 1 - e of a and adds e / C w[c] everywhere.
*/
#include "reduce_exp.h"
#include "team.h"

namespace {

enum { NONE, MEAN, TOTAL };
enum { IGNORED = -1, INVALID = -2 }; /* instead of a class */

struct Loss {
  Lanes l;
  int x, target, operand;  /* arguments; the target's number among operands */
  const char *weight;      /* NULL: all 1 */
  int reduction;
  bool probabilities, shares, ignores; /* shares: every class has a part in the loss */
  int64_t ignored;
  double smoothing;
  char *losses;            /* one per lane */
  double *counts;          /* what each counts in the mean */
  const double *divisor;   /* of gradients; NULL: `positions` */
  double positions;
};

__device__ __forceinline__ float log_of(float x) { return pls_log_f32(x); }
__device__ __forceinline__ double log_of(double x) { return pls_log_f64(x); }

template <class T> __device__ __forceinline__ T weight_of(const Loss &o, int64_t c) { return o.weight ? ((const T *)o.weight)[c] : (T)1; }

/* a[c] of a lane, apart from what belongs to the class itself; t is the lane's probability of c. */
template <class T> __device__ __forceinline__ T share(const Loss &o, int64_t c, T t) {
  const T even = (T)(o.smoothing / (double)o.l.count);
  return weight_of<T>(o, c) * (o.probabilities ? (T)(1 - o.smoothing) * t + even : even);
}

/* What the class itself has. */
template <class T> __device__ __forceinline__ T share_of_class(const Loss &o, int64_t c) {
  return (T)(1 - o.smoothing) * weight_of<T>(o, c - 1);
}

/* The lane's target: 1 .. classes, or why it is none. */
__device__ __forceinline__ int64_t class_of(const Loss &o, int64_t lane, int64_t at, bool reports) {
  const int64_t c = ((const int64_t *)o.l.data[o.target])[at];
  if (o.ignores && c == o.ignored) return IGNORED;
  if (c >= 1 && c <= o.l.count) return c;
  if (reports) pld_fault(o.l.site, o.operand, lane, c, 1, o.l.count);
  return INVALID;
}

/* Of a lane: its largest x and the sum of e^(x - m). */
template <class T, int G> __device__ __forceinline__ void measure(const Team<G> &team, double *part, const T *x, int64_t sx, int64_t n, T *m, T *sum) {
  T top = identity<T, MAX>();
  for (int64_t k = team.member; k < n; k += G) top = step<T, MAX>(top, x[k * sx]);
  *m = top = (T)team.largest(part, (double)top);
  Total<T> terms;
  for (int64_t k = team.member; k < n; k += G) terms.add(exp_below(x[k * sx] - top));
  *sum = (T)team.sum(part, terms.value());
}

template <class T, int G> __global__ void __launch_bounds__(PLC_THREADS) loss_kernel(const Loss o) {
  PLN_SHARED(double, part, [PLC_THREADS]);
  const Team<G> team(o.l.columns);
  EACH_LANE(team, o.l.lanes, lane) {
    const int64_t n = lane < o.l.lanes ? o.l.count : 0, sx = o.l.step[o.x], st = o.l.step[o.target];
    int64_t at[6] = {};
    if (n) o.l.layout.find(lane, at);
    const T *x = (const T *)o.l.data[o.x] + at[o.x], *t = (const T *)o.l.data[o.target] + at[o.target];
    T m, sum;
    measure<T, G>(team, part, x, sx, n, &m, &sum);
    const T log = log_of(sum);
    Total<T> terms;
    if (o.shares)
      for (int64_t k = team.member; k < n; k += G) terms.add(share<T>(o, k, o.probabilities ? t[k * st] : (T)0) * (log - (x[k * sx] - m)));
    T loss = (T)team.sum(part, terms.value()), counts = 1;
    if (team.member || !n) continue;
    if (!o.probabilities) {
      const int64_t c = class_of(o, lane, at[o.target], true);
      if (c < 0) {
        loss = c == IGNORED ? (T)0 : (T)NAN;
        counts = 0;
      } else {
        loss = share_of_class<T>(o, c) * (log - (x[(c - 1) * sx] - m)) + loss;
        counts = weight_of<T>(o, c - 1);
      }
    }
    if (o.reduction == NONE) {
      ((T *)o.l.data[0])[at[0]] = loss;
    } else {
      ((T *)o.losses)[lane] = loss;
      o.counts[lane] = (double)counts;
    }
  }
}

/* What each lane counts, for the divisor of a mean's gradient. */
template <class T> __global__ void __launch_bounds__(PLC_THREADS) count_kernel(const Loss o) {
  for (int64_t lane = pld_thread(); lane < o.l.lanes; lane += pld_threads()) {
    int64_t at[6];
    o.l.layout.find(lane, at);
    const int64_t c = class_of(o, lane, at[o.target], true);
    o.counts[lane] = c < 0 ? 0 : (double)weight_of<T>(o, c - 1);
  }
}

/* One block: the sum of the losses, or their mean, to the result; or, with `total`, the sum of the counts there. */
template <class T> __global__ void __launch_bounds__(PLC_THREADS) reduce_losses_kernel(const Loss o, double *total) {
  PLN_SHARED(double, part, [PLC_THREADS]);
  const Team<PLC_THREADS> team(false);
  double loss = 0, counts = 0;
  for (int64_t k = team.member; k < o.l.lanes; k += PLC_THREADS) {
    if (!total) loss += (double)((const T *)o.losses)[k];
    counts += o.counts[k];
  }
  loss = team.sum(part, loss);
  counts = team.sum(part, counts);
  if (team.member) return;
  if (total)
    *total = counts;
  else
    *(T *)o.l.data[0] = (T)(o.reduction == MEAN ? loss / (o.probabilities ? (double)o.l.lanes : counts) : loss);
}

template <class T, int G> __global__ void __launch_bounds__(PLC_THREADS) loss_gradient_kernel(const Loss o) {
  PLN_SHARED(double, part, [PLC_THREADS]);
  const Team<G> team(o.l.columns);
  EACH_LANE(team, o.l.lanes, lane) {
    const int64_t n = lane < o.l.lanes ? o.l.count : 0, sx = o.l.step[o.x], st = o.l.step[o.target], sd = o.l.step[0];
    int64_t at[6] = {};
    if (n) o.l.layout.find(lane, at);
    const T *x = (const T *)o.l.data[o.x] + at[o.x], *t = (const T *)o.l.data[o.target] + at[o.target];
    T *dx = (T *)o.l.data[0] + at[0], m, sum;
    measure<T, G>(team, part, x, sx, n, &m, &sum);
    Total<T> terms;
    if (o.shares)
      for (int64_t k = team.member; k < n; k += G) terms.add(share<T>(o, k, o.probabilities ? t[k * st] : (T)0));
    T mass = (T)team.sum(part, terms.value()), own = 0;
    if (!n) continue;
    const int64_t c = o.probabilities ? (int64_t)IGNORED : class_of(o, lane, at[o.target], team.member == 0);
    if (!o.probabilities && c < 0) {
      for (int64_t k = team.member; k < n; k += G) dx[k * sd] = c == IGNORED ? (T)0 : (T)NAN;
      continue;
    }
    if (!o.probabilities) {
      own = share_of_class<T>(o, c);
      mass += own;
    }
    const T g = (T)(((const T *)o.l.data[1])[at[1]] / (o.divisor ? *o.divisor : o.positions)), scale = g * mass / sum;
    for (int64_t k = team.member; k < n; k += G) {
      T v = exp_below(x[k * sx] - m) * scale;
      if (o.shares) v -= g * share<T>(o, k, o.probabilities ? t[k * st] : (T)0);
      if (k == c - 1) v -= g * own;
      dx[k * sd] = v;
    }
  }
}

Loss loss_of(const pln_Call *c, int x) {
  Loss o;
  memset(&o, 0, sizeof o);
  o.l = lanes_of(c, x);
  o.l.site = pld_site(c);
  o.x = x;
  o.target = x + 1;
  o.operand = o.target - c->nout;
  o.reduction = (int)c->i[3];
  o.probabilities = c->i[4] != 0;
  o.ignores = c->i[5] != 0;
  o.ignored = c->i[6];
  o.smoothing = c->f[0];
  o.shares = o.probabilities || o.smoothing > 0;
  if (c->i[2] & 1) o.weight = c->arg[x + 2].data;
  o.losses = c->scratch;
  if (c->scratch) o.counts = (double *)(c->scratch + c->numel * 8);
  o.positions = 1;
  return o;
}

template <class T> pln_Status loss(const pln_Call *c) {
  const Loss o = loss_of(c, 1);
  if (o.l.lanes) TEAM_LAUNCH(c, o.l.lanes, o.l.count, loss_kernel, o);
  if (o.reduction != NONE) PLD_LAUNCH(c, (reduce_losses_kernel<T>), 1, PLC_THREADS, 0, o, (double *)nullptr);
  return PLN_OK;
}

template <class T> pln_Status gradient(const pln_Call *c) {
  Loss o = loss_of(c, 2);
  if (o.reduction == MEAN && o.probabilities) {
    o.positions = (double)c->numel;
  } else if (o.reduction == MEAN) {
    double *total = (double *)c->scratch;
    PLD_LAUNCH(c, (count_kernel<T>), pld_blocks(c, o.l.lanes, PLC_THREADS), PLC_THREADS, 0, o);
    PLD_LAUNCH(c, (reduce_losses_kernel<T>), 1, PLC_THREADS, 0, o, total);
    o.divisor = total;
  }
  TEAM_LAUNCH(c, o.l.lanes, o.l.count, loss_gradient_kernel, o);
  return PLN_OK;
}

}  // namespace

PLC_KERNEL(cross_entropy) { return c->arg[0].dtype == PLN_F32 ? loss<float>(c) : loss<double>(c); }
PLC_KERNEL(cross_entropy_backward) { return c->arg[0].dtype == PLN_F32 ? gradient<float>(c) : gradient<double>(c); }
