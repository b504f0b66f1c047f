/* SPDX-License-Identifier: MIT
** reduce.cu -- sum, mean, prod, any, all, norm, and max and min of everything: one number per result.
**
** f32 sums stay f32 (the tree keeps them accurate); products and norms of f32 are f64, so that they overflow only if the result does.
** Integers are i64; any and all count what is not 0.
*/
#include "reduce.h"

namespace {

enum { PLAIN, NONZERO, COUNT, SIZE, SQUARE, POWER }; /* loads */
enum { VALUE, MEAN, ANY, ALL, ROOT, ROOT_OF };       /* finishes */

__device__ __forceinline__ void load(const Reduction &r, int64_t x, int64_t first, int n, float *v) {
  load_as<float>(r, x, first, n, v, [](float e) { return e; });
}

template <class E> __device__ __forceinline__ void load_real(const Reduction &r, int64_t x, int64_t first, int n, double *v) {
  const double p = r.number;
  switch (r.load) {
    case COUNT: return load_as<E>(r, x, first, n, v, [](E e) { return e != e ? (double)e : (double)(e != 0); });
    case SIZE: return load_as<E>(r, x, first, n, v, [](E e) { return pls_fabs_f64((double)e); });
    case SQUARE: return load_as<E>(r, x, first, n, v, [](E e) { return (double)e * (double)e; });
    case POWER: return load_as<E>(r, x, first, n, v, [=](E e) { return pls_pow_f64(pls_fabs_f64((double)e), p); });
    default: return load_as<E>(r, x, first, n, v, [](E e) { return (double)e; });
  }
}

__device__ __forceinline__ void load(const Reduction &r, int64_t x, int64_t first, int n, double *v) {
  if (r.dtype == PLN_F32)
    load_real<float>(r, x, first, n, v);
  else
    load_real<double>(r, x, first, n, v);
}

template <class E> __device__ __forceinline__ void load_whole(const Reduction &r, int64_t x, int64_t first, int n, int64_t *v) {
  if (r.load == NONZERO)
    load_as<E>(r, x, first, n, v, [](E e) { return (int64_t)(e != 0); });
  else
    load_as<E>(r, x, first, n, v, [](E e) { return (int64_t)e; });
}

__device__ __forceinline__ void load(const Reduction &r, int64_t x, int64_t first, int n, int64_t *v) {
  switch (r.dtype) {
    case PLN_BOOL: return load_as<uint8_t>(r, x, first, n, v, [](uint8_t e) { return (int64_t)(e != 0); });
    case PLN_U8: return load_whole<uint8_t>(r, x, first, n, v);
    case PLN_I32: return load_whole<int32_t>(r, x, first, n, v);
    case PLN_I64: return load_whole<int64_t>(r, x, first, n, v);
    case PLN_F32: return load_as<float>(r, x, first, n, v, [](float e) { return (int64_t)(e != 0); });
    default: return load_as<double>(r, x, first, n, v, [](double e) { return (int64_t)(e != 0); });
  }
}

__device__ __forceinline__ void finish_one(const Reduction &r, float a, int64_t at) {
  ((float *)r.out[0])[at] = r.finish == MEAN ? (float)((double)a / (double)r.count) : a;
}

__device__ __forceinline__ void finish_one(const Reduction &r, double a, int64_t at) {
  double v = r.finish == MEAN ? a / (double)r.count : r.finish == ROOT ? pls_sqrt_f64(a) : r.finish == ROOT_OF ? pls_pow_f64(a, 1 / r.number) : a;
  if (r.out_dtype == PLN_F32)
    ((float *)r.out[0])[at] = (float)v;
  else
    ((double *)r.out[0])[at] = v;
}

__device__ __forceinline__ void finish_one(const Reduction &r, int64_t a, int64_t at) {
  int64_t v = r.finish == ANY ? a != 0 : r.finish == ALL ? a == r.count : a;
  switch (r.out_dtype) {
    case PLN_I32: ((int32_t *)r.out[0])[at] = (int32_t)v; break;
    case PLN_I64: ((int64_t *)r.out[0])[at] = v; break;
    default: ((uint8_t *)r.out[0])[at] = (uint8_t)v;
  }
}

template <class T, int OP> struct Plain : One<T, OP> {
  static __device__ __forceinline__ void load(const Reduction &r, int64_t, int64_t x, int64_t first, int n, T *v) { ::load(r, x, first, n, v); }
  static __device__ __forceinline__ void finish(const Reduction &r, T a, const int64_t (&at)[3]) { finish_one(r, a, at[0]); }
};

template <class T> pln_Status run(const pln_Call *c, const Reduction &r, int op) {
  switch (op) {
    case SUM: return fold<Plain<T, SUM>>(c, r);
    case PROD: return fold<Plain<T, PROD>>(c, r);
    case MAX: return fold<Plain<T, MAX>>(c, r);
    default: return fold<Plain<T, MIN>>(c, r);
  }
}

pln_Status norm(const pln_Call *c, Reduction &r) {
  const double p = r.number;
  r.load = p == 0 ? COUNT : p == 2 ? SQUARE : p == 1 || p == INFINITY || p == -INFINITY ? SIZE : POWER;
  r.finish = r.load == SQUARE ? ROOT : r.load == POWER ? ROOT_OF : VALUE;
  return run<double>(c, r, p == INFINITY ? MAX : p == -INFINITY ? MIN : SUM);
}

}  // namespace

PLC_KERNEL(reduce) {
  Reduction r = reduction_of(c);
  int op = SUM;
  switch (c->op) {
    case PLN_OP_any:
    case PLN_OP_all:
      r.load = NONZERO;
      r.finish = c->op == PLN_OP_any ? ANY : ALL;
      return run<int64_t>(c, r, SUM);
    case PLN_OP_norm: return norm(c, r);
    case PLN_OP_mean: r.finish = MEAN; break;
    case PLN_OP_prod: op = PROD; break;
    case PLN_OP_max: op = MAX; break;
    case PLN_OP_min: op = MIN; break;
  }
  if (r.dtype == PLN_F32 && op != PROD) return run<float>(c, r, op);
  return pln_dtype_is_float((pln_DType)r.dtype) ? run<double>(c, r, op) : run<int64_t>(c, r, op);
}
