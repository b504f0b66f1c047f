/* SPDX-License-Identifier: MIT
** optim.cu -- one step of an optimizer (src/ops/optim.def). All arithmetic is in double; the state is rounded once, when it is stored.
** lr and step may live in tensors, so every thread reads them; the corrections are the same few operations for all.
*/
#include "kernel.h"

namespace {

/* A number, or a tensor of one element. */
struct Scalar {
  const char *data;
  double number;
  int dtype;
};

__device__ __forceinline__ double value(const Scalar &s) {
  if (!s.data) return s.number;
  switch (s.dtype) {
    case PLN_F32: return *(const float *)s.data;
    case PLN_F64: return *(const double *)s.data;
    case PLN_I32: return *(const int32_t *)s.data;
    case PLN_I64: return (double)*(const int64_t *)s.data;
    case PLN_U8: return *(const uint8_t *)s.data;
    default: return *(const uint8_t *)s.data != 0;
  }
}

Scalar scalar(const pln_Call *c, int k) {
  const pln_Arg *g = pln_call_in(c, k);
  return {g->data, g->data ? 0 : c->f[PLN_MAX_PARAMS - 1 - k], g->dtype};
}

template <int N> struct Step {
  int64_t n;
  bool flat; /* all side by side */
  char *data[N];
  pld_Layout<N> layout;
  Scalar step, lr;
  double beta1, beta2, eps, decay;
  pld_Site site;

  __device__ __forceinline__ void find(int64_t i, int64_t (&at)[N]) const {
    if (!flat)
      layout.find(i, at);
    else
      for (int k = 0; k < N; k++) at[k] = i;
  }
};

template <int N> Step<N> step_of(const pln_Call *c) {
  Step<N> s;
  memset(&s, 0, sizeof s);
  s.n = c->numel;
  s.layout = pld_layout<N>(c, c->ndim);
  s.flat = c->ndim == 1;
  for (int k = 0; k < N; k++) {
    s.data[k] = c->arg[k].data;
    s.flat = s.flat && c->arg[k].stride[0] == 1;
  }
  return s;
}

/* Arguments: new p, then p, g. */
template <class T> __global__ void __launch_bounds__(PLC_THREADS) sgd_kernel(const Step<3> s) {
  const double lr = value(s.lr);
  for (int64_t i = pld_thread(); i < s.n; i += pld_threads()) {
    int64_t at[3];
    s.find(i, at);
    double p = ((const T *)s.data[1])[at[1]], g = ((const T *)s.data[2])[at[2]];
    ((T *)s.data[0])[at[0]] = (T)(p - lr * g);
  }
}

/* Arguments: new p, m, v, then p, g, m, v. T is p's type, U the state's. */
template <class T, class U> __global__ void __launch_bounds__(PLC_THREADS) adamw_kernel(const Step<7> s) {
  const double step = value(s.step), lr = value(s.lr);
  if (!(step >= 1)) {
    if (pld_thread() == 0) pld_fault(s.site, 4, 0, (int64_t)(step > -1e18 ? step : 0), 1, INT64_MAX);
    return;
  }
  const double c1 = 1 - pls_pow_f64(s.beta1, step), c2 = pls_sqrt_f64(1 - pls_pow_f64(s.beta2, step));
  const double left1 = 1 - s.beta1, left2 = 1 - s.beta2, decay = lr * s.decay, rate = lr * c2 / c1, eps = s.eps * c2;
  for (int64_t i = pld_thread(); i < s.n; i += pld_threads()) {
    int64_t at[7];
    s.find(i, at);
    double p = ((const T *)s.data[3])[at[3]], g = ((const T *)s.data[4])[at[4]];
    double m = s.beta1 * ((const U *)s.data[5])[at[5]] + left1 * g;
    double v = s.beta2 * ((const U *)s.data[6])[at[6]] + left2 * g * g;
    ((T *)s.data[0])[at[0]] = (T)(p - decay * p - rate * m / (pls_sqrt_f64(v) + eps));
    ((U *)s.data[1])[at[1]] = (U)m;
    ((U *)s.data[2])[at[2]] = (U)v;
  }
}

}  // namespace

PLC_KERNEL(sgd) {
  Step<3> s = step_of<3>(c);
  s.lr = scalar(c, 2);
  unsigned blocks = pld_blocks(c, s.n, PLC_THREADS);
  if (c->arg[0].dtype == PLN_F32)
    PLD_LAUNCH(c, (sgd_kernel<float>), blocks, PLC_THREADS, 0, s);
  else
    PLD_LAUNCH(c, (sgd_kernel<double>), blocks, PLC_THREADS, 0, s);
  return PLN_OK;
}

PLC_KERNEL(adamw) {
  Step<7> s = step_of<7>(c);
  s.site = pld_site(c);
  s.step = scalar(c, 4);
  s.lr = scalar(c, 5);
  s.beta1 = c->f[0];
  s.beta2 = c->f[1];
  s.eps = c->f[2];
  s.decay = c->f[3];
  unsigned blocks = pld_blocks(c, s.n, PLC_THREADS);
  if (c->arg[0].dtype == PLN_F64)
    PLD_LAUNCH(c, (adamw_kernel<double, double>), blocks, PLC_THREADS, 0, s);
  else if (c->arg[1].dtype == PLN_F64)
    PLD_LAUNCH(c, (adamw_kernel<float, double>), blocks, PLC_THREADS, 0, s);
  else
    PLD_LAUNCH(c, (adamw_kernel<float, float>), blocks, PLC_THREADS, 0, s);
  return PLN_OK;
}
