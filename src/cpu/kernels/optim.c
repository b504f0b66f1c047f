/* SPDX-License-Identifier: MIT
** optim.c -- one step of an optimizer (src/ops/optim.def). All arithmetic is in double; the state is rounded once, when it is stored,
** and the step is made of what it was before that.
*/
#include "walk.h"

/* A number operand, or a tensor of one element. */
static double scalar(const pln_Call *c, int k) {
  const pln_Arg *g = pln_call_in(c, k);
  if (!g->data) return c->f[PLN_MAX_PARAMS - 1 - k];
  switch ((pln_DType)g->dtype) {
    case PLN_F32: return *(const float *)g->data;
    case PLN_F64: return *(const double *)g->data;
    case PLN_I32: return *(const int32_t *)g->data;
    case PLN_I64: return (double)*(const int64_t *)g->data;
    case PLN_U8: return *(const uint8_t *)g->data;
    default: return *(const uint8_t *)g->data != 0;
  }
}

/* Whether all tensors of arguments 0 .. nargs - 1 are read and written without gaps. */
static bool unit_strides(const pln_Call *c, int nargs) {
  for (int k = 0; k < nargs; k++)
    if (c->arg[k].stride[c->ndim - 1] != 1) return false;
  return true;
}

/* --- sgd ------------------------------------------------------------------------------------------ */

typedef struct Sgd {
  const pln_Call *c;
  double lr;
} Sgd;

#define PLN_SGD(T, S)                                                                                                     \
  static inline T sgd_##S(double p, double g, double lr) { return (T)(p - lr * g); }                                      \
  static void sgd_rows_##S(void *context, int64_t begin, int64_t end) {                                                   \
    const Sgd *q = context;                                                                                               \
    const pln_Arg *arg = q->c->arg;                                                                                       \
    const int last = q->c->ndim - 1;                                                                                      \
    const int64_t s0 = arg[0].stride[last], s1 = arg[1].stride[last], s2 = arg[2].stride[last];                           \
    const double lr = q->lr;                                                                                              \
    Walk w;                                                                                                               \
    for (walk_begin(&w, q->c, begin, end); w.run; walk_next(&w)) {                                                        \
      T *out = (T *)arg[0].data + w.offset[0];                                                                            \
      const T *p = (const T *)arg[1].data + w.offset[1], *g = (const T *)arg[2].data + w.offset[2];                       \
      if (unit_strides(q->c, 3))                                                                                          \
        _Pragma("omp simd") for (int64_t i = 0; i < w.run; i++) out[i] = sgd_##S(p[i], g[i], lr); /* out may be p */      \
      else                                                                                                                \
        for (int64_t i = 0; i < w.run; i++) out[i * s0] = sgd_##S(p[i * s1], g[i * s2], lr);                              \
    }                                                                                                                     \
  }
PLN_SGD(float, f32)
PLN_SGD(double, f64)
#undef PLN_SGD

pln_Status PLK(sgd)(const pln_Call *c) {
  Sgd q = {c, scalar(c, 2)};
  return pln_parallel_for(c, c->numel, PLN_GRAIN, c->arg[0].dtype == PLN_F32 ? sgd_rows_f32 : sgd_rows_f64, &q);
}

/* --- adamw ---------------------------------------------------------------------------------------- */

typedef struct Adamw {
  const pln_Call *c;
  double beta1, beta2, left1, left2; /* left: 1 - beta */
  double decay, rate, eps;           /* times lr, with the bias corrections */
} Adamw;

typedef struct Stepped {
  double p, m, v;
} Stepped;

static inline Stepped adamw_step(const Adamw *q, double p, double g, double m, double v) {
  Stepped s;
  s.m = q->beta1 * m + q->left1 * g;
  s.v = q->beta2 * v + q->left2 * g * g;
  s.p = p - q->decay * p - q->rate * s.m / (pls_sqrt_f64(s.v) + q->eps);
  return s;
}

/* Arguments: new p, m, v, then p, g, m, v. T is p's type, U the state's. */
#define PLN_ADAMW(T, U, S)                                                                                                \
  static inline __attribute__((always_inline)) void adamw_run_##S(const Adamw *q, const Walk *w, const int64_t *s) {      \
    const pln_Arg *arg = q->c->arg;                                                                                       \
    const Adamw k = *q;                                                                                                   \
    T *po = (T *)arg[0].data + w->offset[0];                                                                              \
    U *mo = (U *)arg[1].data + w->offset[1], *vo = (U *)arg[2].data + w->offset[2];                                       \
    const T *p = (const T *)arg[3].data + w->offset[3], *g = (const T *)arg[4].data + w->offset[4];                       \
    const U *m = (const U *)arg[5].data + w->offset[5], *v = (const U *)arg[6].data + w->offset[6];                       \
    _Pragma("omp simd") for (int64_t i = 0; i < w->run; i++) { /* results may be the operands, element by element */      \
      Stepped n = adamw_step(&k, p[i * s[3]], g[i * s[4]], m[i * s[5]], v[i * s[6]]);                                     \
      po[i * s[0]] = (T)n.p;                                                                                              \
      mo[i * s[1]] = (U)n.m;                                                                                              \
      vo[i * s[2]] = (U)n.v;                                                                                              \
    }                                                                                                                     \
  }                                                                                                                       \
  static void adamw_rows_##S(void *context, int64_t begin, int64_t end) {                                                 \
    const Adamw *q = context;                                                                                             \
    static const int64_t unit[7] = {1, 1, 1, 1, 1, 1, 1};                                                                 \
    int64_t stride[7];                                                                                                    \
    for (int k = 0; k < 7; k++) stride[k] = q->c->arg[k].stride[q->c->ndim - 1];                                          \
    Walk w;                                                                                                               \
    for (walk_begin(&w, q->c, begin, end); w.run; walk_next(&w))                                                          \
      if (unit_strides(q->c, 7))                                                                                          \
        adamw_run_##S(q, &w, unit);                                                                                       \
      else                                                                                                                \
        adamw_run_##S(q, &w, stride);                                                                                     \
  }
PLN_ADAMW(float, float, f32)
PLN_ADAMW(float, double, mixed)
PLN_ADAMW(double, double, f64)
#undef PLN_ADAMW

pln_Status PLK(adamw)(const pln_Call *c) {
  double step = scalar(c, 4), lr = scalar(c, 5), beta1 = c->f[0], beta2 = c->f[1];
  if (!(step >= 1)) {
    pln_call_fault(c, 4, 0, (int64_t)(step > -1e18 ? step : 0), 1, INT64_MAX);
    return PLN_OK;
  }
  double c1 = 1 - pls_pow_f64(beta1, step), c2 = pls_sqrt_f64(1 - pls_pow_f64(beta2, step));
  Adamw q = {c, beta1, beta2, 1 - beta1, 1 - beta2, lr * c->f[3], lr * c2 / c1, c->f[2] * c2};
  return pln_parallel_for(c, c->numel, PLN_GRAIN / 4,
                          c->arg[0].dtype == PLN_F64 ? adamw_rows_f64 : c->arg[1].dtype == PLN_F64 ? adamw_rows_mixed : adamw_rows_f32, &q);
}
