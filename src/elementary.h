/* SPDX-License-Identifier: MIT
 * Elementary functions for the elementwise formulas: one C text for every device and vector width.
 * All of it is inline and branch-free, so that a loop over a formula vectorizes as a whole.
 * Invariant: the bits of a result depend on the argument only, never on lane, tail, thread or
 * instruction set. So every fma is written out, contraction must be off (-ffp-contract=off,
 * nvcc -fmad=false), and so must be flushing of subnormals. -fno-math-errno -fno-trapping-math
 * let the loops vectorize. Why not a vector library: docs/decisions/001-elementary-functions.md. */
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

/* Horner's rule from the highest coefficient down, each step one fma: PLN_P3(f32, x, c2, c1, c0). */
#define PLN_P2(S, x, a, b) pls_fma_##S(a, x, b)
#define PLN_P3(S, x, a, b, c) PLN_P2(S, x, PLN_P2(S, x, a, b), c)
#define PLN_P4(S, x, a, b, ...) PLN_P3(S, x, PLN_P2(S, x, a, b), __VA_ARGS__)
#define PLN_P5(S, x, a, b, ...) PLN_P4(S, x, PLN_P2(S, x, a, b), __VA_ARGS__)
#define PLN_P6(S, x, a, b, ...) PLN_P5(S, x, PLN_P2(S, x, a, b), __VA_ARGS__)
#define PLN_P7(S, x, a, b, ...) PLN_P6(S, x, PLN_P2(S, x, a, b), __VA_ARGS__)
#define PLN_P8(S, x, a, b, ...) PLN_P7(S, x, PLN_P2(S, x, a, b), __VA_ARGS__)
#define PLN_P9(S, x, a, b, ...) PLN_P8(S, x, PLN_P2(S, x, a, b), __VA_ARGS__)
#define PLN_P10(S, x, a, b, ...) PLN_P9(S, x, PLN_P2(S, x, a, b), __VA_ARGS__)
#define PLN_P11(S, x, a, b, ...) PLN_P10(S, x, PLN_P2(S, x, a, b), __VA_ARGS__)
#define PLN_P12(S, x, a, b, ...) PLN_P11(S, x, PLN_P2(S, x, a, b), __VA_ARGS__)

PLN_FN uint32_t pls_bits_f32(float x) { uint32_t u; memcpy(&u, &x, sizeof u); return u; }
PLN_FN uint64_t pls_bits_f64(double x) { uint64_t u; memcpy(&u, &x, sizeof u); return u; }
PLN_FN float pls_from_bits_f32(uint32_t u) { float x; memcpy(&x, &u, sizeof x); return x; }
PLN_FN double pls_from_bits_f64(uint64_t u) { double x; memcpy(&x, &u, sizeof x); return x; }

/* What needs no series, for both types: T type, S suffix, F suffix of libm's names, U unsigned of
 * T's size. max and min give NaN if either is NaN and order -0 below +0, so that they are symmetric
 * to the bit; sign, clamp and relu keep NaN; mod has the divisor's sign (floor-mod), exact before
 * the one correcting addition, and a zero result keeps the dividend's sign, as in PyTorch. */
#define PLN_ELEMENTARY_SIMPLE(T, S, F, U) \
  PLN_FN T pls_fma_##S(T a, T b, T c) { return fma##F(a, b, c); } \
  PLN_FN T pls_fabs_##S(T x) { return fabs##F(x); } \
  PLN_FN T pls_sqrt_##S(T x) { return sqrt##F(x); } \
  PLN_FN T pls_rsqrt_##S(T x) { return (T)1 / sqrt##F(x); } \
  PLN_FN T pls_floor_##S(T x) { return floor##F(x); } \
  PLN_FN T pls_ceil_##S(T x) { return ceil##F(x); } \
  PLN_FN T pls_trunc_##S(T x) { return trunc##F(x); } \
  PLN_FN T pls_round_##S(T x) { return rint##F(x); } \
  PLN_FN T pls_max_##S(T a, T b) { \
    T same = pls_from_bits_##S(pls_bits_##S(a) & pls_bits_##S(b)); \
    return a > b ? a : a < b ? b : a == b ? same : a + b; \
  } \
  PLN_FN T pls_min_##S(T a, T b) { \
    T same = pls_from_bits_##S(pls_bits_##S(a) | pls_bits_##S(b)); \
    return a < b ? a : a > b ? b : a == b ? same : a + b; \
  } \
  PLN_FN T pls_sign_##S(T x) { return x > 0 ? (T)1 : x < 0 ? (T)-1 : x + (T)0; } \
  PLN_FN T pls_clamp_##S(T x, T lo, T hi) { return pls_min_##S(pls_max_##S(x, lo), hi); } \
  PLN_FN T pls_relu_##S(T x) { return x <= 0 ? (T)0 : x; } \
  PLN_FN T pls_mod_##S(T x, T y) { \
    T r = fmod##F(x, y); \
    return ((r != 0) & ((r < 0) != (y < 0))) ? r + y : r; \
  } \
  /* |r| with the sign of x */ \
  PLN_FN T pls_with_sign_##S(T r, T x) { \
    U top = (U)1 << (8 * sizeof(U) - 1); \
    return pls_from_bits_##S((pls_bits_##S(r) & ~top) | (pls_bits_##S(x) & top)); \
  }
PLN_ELEMENTARY_SIMPLE(float, f32, f, uint32_t)
PLN_ELEMENTARY_SIMPLE(double, f64, , uint64_t)
#undef PLN_ELEMENTARY_SIMPLE

#include "elementary_f32.h"
#include "elementary_f64.h"

#endif
