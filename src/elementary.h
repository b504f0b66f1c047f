/* SPDX-License-Identifier: MIT
 * Elementary functions for the elementwise formulas: one C text for every device and vector width.
 * Everything here is inline, so that a formula which calls it vectorizes as a whole.
 * Invariant: the bits of a result depend on the argument only, never on lane, tail, thread or
 * instruction set; hence every fma is written out and contraction must be off (-ffp-contract=off,
 * nvcc -fmad=false). */
#ifndef PLN_ELEMENTARY_H
#define PLN_ELEMENTARY_H

#include <math.h>
#include <stdint.h>
#include <string.h>

#if defined(__CUDACC__)
#define PLN_FN static __host__ __device__ __forceinline__
#else
#define PLN_FN static inline __attribute__((always_inline, unused))
#endif

#define PLN_LIBM1(NAME) \
  PLN_FN float pls_##NAME##_f32(float x) { return NAME##f(x); } \
  PLN_FN double pls_##NAME##_f64(double x) { return NAME(x); }
PLN_LIBM1(exp) PLN_LIBM1(expm1) PLN_LIBM1(log) PLN_LIBM1(log1p) PLN_LIBM1(sin) PLN_LIBM1(cos)
PLN_LIBM1(tanh) PLN_LIBM1(erf) PLN_LIBM1(sqrt) PLN_LIBM1(floor) PLN_LIBM1(ceil) PLN_LIBM1(trunc)
PLN_LIBM1(fabs)

#define PLN_BOTH(T, S, F) \
  PLN_FN T pls_round_##S(T x) { return rint##F(x); } \
  PLN_FN T pls_rsqrt_##S(T x) { return (T)1 / sqrt##F(x); } \
  PLN_FN T pls_fma_##S(T a, T b, T c) { return fma##F(a, b, c); } \
  PLN_FN T pls_pow_##S(T x, T y) { return pow##F(x, y); } \
  PLN_FN T pls_sigmoid_##S(T x) { return (T)1 / ((T)1 + exp##F(-x)); } \
  PLN_FN T pls_softplus_##S(T x) { return (x > 0 ? x : 0) + log1p##F(exp##F(-fabs##F(x))); } \
  PLN_FN T pls_max_##S(T a, T b) { return a != a ? a : b != b ? b : a > b ? a : b; } \
  PLN_FN T pls_min_##S(T a, T b) { return a != a ? a : b != b ? b : a < b ? a : b; } \
  PLN_FN T pls_sign_##S(T x) { return x > 0 ? (T)1 : x < 0 ? (T)-1 : x; } \
  PLN_FN T pls_clamp_##S(T x, T lo, T hi) { return pls_min_##S(pls_max_##S(x, lo), hi); } \
  PLN_FN T pls_relu_##S(T x) { return x < 0 ? (T)0 : x; } \
  PLN_FN T pls_mod_##S(T x, T y) { \
    T r = fmod##F(x, y); \
    return r != 0 && (r < 0) != (y < 0) ? r + y : r; \
  }
PLN_BOTH(float, f32, f)
PLN_BOTH(double, f64, )

#endif
