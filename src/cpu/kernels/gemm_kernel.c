/* SPDX-License-Identifier: MIT
** gemm_kernel.c - the matrix product's inner kernels for one instruction set.
**
** Compiled once per set with PLN_ISA = v2, v3, v4 (x86-64 levels) or base.  Here are only the vectors
** and their primitives; the kernels themselves are in gemm_tile.h.  Built without contraction: every
** fused multiply-add is named.
*/
#include "gemm_kernel.h"

#define PASTE_(a, b) a##_##b
#define PASTE(a, b) PASTE_(a, b)
#define STRING_(a) #a
#define STRING(a) STRING_(a)

#ifdef __clang__
#define UNROLL _Pragma("unroll")
#else
#define UNROLL _Pragma("GCC unroll 16")
#endif

/* Rows of a packed tile, two vectors wide: as many sums as leave registers for the operands. */
#define ROWS_6(X) X(1) X(2) X(3) X(4) X(5) X(6)
#define ROWS_12(X) ROWS_6(X) X(7) X(8) X(9) X(10) X(11) X(12)
#define ROWS_14(X) ROWS_12(X) X(13) X(14)

/* Whole vectors, at any address. */
#define V K(Vector)
#define WHOLE                                                                                      \
  typedef T V __attribute__((vector_size(W * sizeof(T))));                                         \
  typedef V K(Loose) __attribute__((aligned(sizeof(T)), may_alias));                               \
  static inline V K(zero) (void) {                                                                 \
    return (V){ 0 };                                                                               \
  }                                                                                                \
  static inline V K(load) (const T *p) {                                                           \
    return *(const K(Loose) *)p;                                                                   \
  }                                                                                                \
  static inline void K(store) (T *p, V v) {                                                        \
    *(K(Loose) *)p = v;                                                                             \
  }

/* Parts of a vector where there are no masks; the lanes beyond are zero. */
#define PARTS_BY_COPY                                                                              \
  static inline V K(load_part) (const T *p, int n) {                                               \
    V v = K(zero)();                                                                               \
    for (int l = 0; l < n; l++) v[l] = p[l];                                                       \
    return v;                                                                                      \
  }                                                                                                \
  static inline void K(store_part) (T *p, V v, int n) {                                            \
    for (int l = 0; l < n; l++) p[l] = v[l];                                                       \
  }

/* Within each 16-byte lane, rows become columns. */
#define TRANSPOSE_4(low, high, low2, high2)                                                        \
  static inline void K(transpose) (V *r) {                                                         \
    V t0 = low(r[0], r[1]), t1 = high(r[0], r[1]), t2 = low(r[2], r[3]), t3 = high(r[2], r[3]);    \
    r[0] = (V)low2(t0, t2);                                                                        \
    r[1] = (V)high2(t0, t2);                                                                       \
    r[2] = (V)low2(t1, t3);                                                                        \
    r[3] = (V)high2(t1, t3);                                                                       \
  }
#define TRANSPOSE_2(low, high)                                                                     \
  static inline void K(transpose) (V *r) {                                                         \
    V t = low(r[0], r[1]);                                                                         \
    r[1] = high(r[0], r[1]);                                                                       \
    r[0] = t;                                                                                      \
  }

/* One 16-byte lane from each of the places that the vector has lanes for. */
#define GATHER_1(load)                                                                             \
  static inline V K(gather) (const T *p0, const T *p1, const T *p2, const T *p3) {                 \
    (void)p1, (void)p2, (void)p3;                                                                  \
    return load(p0);                                                                               \
  }
#define GATHER_2(cast, insert, load)                                                               \
  static inline V K(gather) (const T *p0, const T *p1, const T *p2, const T *p3) {                 \
    (void)p2, (void)p3;                                                                            \
    return insert(cast(load(p0)), load(p1), 1);                                                    \
  }
#define GATHER_4(cast, insert, load)                                                               \
  static inline V K(gather) (const T *p0, const T *p1, const T *p2, const T *p3) {                 \
    V v = insert(cast(load(p0)), load(p1), 1);                                                     \
    return insert(insert(v, load(p2), 2), load(p3), 3);                                            \
  }

#if defined(__AVX512F__) && defined(__AVX512VL__)
#include <immintrin.h>

#define MR 14
#define ROWS ROWS_14
#define PRIMITIVES(mm, type)                                                                       \
  WHOLE                                                                                            \
  static inline V K(set) (T x) {                                                                   \
    return mm##_set1_##type(x);                                                                    \
  }                                                                                                \
  static inline V K(fma) (V a, V b, V c) {                                                         \
    return mm##_fmadd_##type(a, b, c);                                                             \
  }                                                                                                \
  static inline V K(load_part) (const T *p, int n) {                                               \
    return mm##_maskz_loadu_##type((1u << n) - 1, p);                                              \
  }                                                                                                \
  static inline void K(store_part) (T *p, V v, int n) {                                            \
    mm##_mask_storeu_##type(p, (1u << n) - 1, v);                                                  \
  }

/* Half vectors serve products of few columns: an 8 x 8 result then needs no masks. */
#define T float
#define W 8
#define K(name) PASTE(f32half, name)
PRIMITIVES(_mm256, ps)
GATHER_2(_mm256_castps128_ps256, _mm256_insertf128_ps, _mm_loadu_ps)
#define LOW2(a, b) _mm256_unpacklo_pd((__m256d)(a), (__m256d)(b))
#define HIGH2(a, b) _mm256_unpackhi_pd((__m256d)(a), (__m256d)(b))
TRANSPOSE_4(_mm256_unpacklo_ps, _mm256_unpackhi_ps, LOW2, HIGH2)
#undef LOW2
#undef HIGH2
#include "gemm_tile.h"

#define T double
#define W 4
#define K(name) PASTE(f64half, name)
PRIMITIVES(_mm256, pd)
GATHER_2(_mm256_castpd128_pd256, _mm256_insertf128_pd, _mm_loadu_pd)
TRANSPOSE_2(_mm256_unpacklo_pd, _mm256_unpackhi_pd)
#include "gemm_tile.h"

#define PACKED

#define T float
#define W 16
#define K(name) PASTE(f32, name)
PRIMITIVES(_mm512, ps)
GATHER_4(_mm512_castps128_ps512, _mm512_insertf32x4, _mm_loadu_ps)
#define LOW2(a, b) _mm512_unpacklo_pd((__m512d)(a), (__m512d)(b))
#define HIGH2(a, b) _mm512_unpackhi_pd((__m512d)(a), (__m512d)(b))
TRANSPOSE_4(_mm512_unpacklo_ps, _mm512_unpackhi_ps, LOW2, HIGH2)
#undef LOW2
#undef HIGH2
#include "gemm_tile.h"

#define T double
#define W 8
#define K(name) PASTE(f64, name)
PRIMITIVES(_mm512, pd)
GATHER_4(_mm512_castpd128_pd512, _mm512_insertf64x2, _mm_loadu_pd)
TRANSPOSE_2(_mm512_unpacklo_pd, _mm512_unpackhi_pd)
#include "gemm_tile.h"

#define HALF(T, f)                                                                                 \
  static void f##_any (const pln_Gemm *g, const T *a, const T *b, T *c) {                          \
    (g->n <= f##half_lanes ? f##half_direct : f##_direct)(g, a, b, c);                             \
  }                                                                                                \
  static f##_Direct *f##_any_block (const pln_Gemm *g, int *part_p) {                              \
    return (g->n <= f##half_lanes ? f##half_block : f##_block)(g, part_p);                         \
  }                                                                                                \
  static void f##_any_pack (int64_t rows, int64_t ld, int64_t k, const T *in, int64_t s0,          \
                            int64_t s1, T *out) {                                                  \
    (rows <= f##half_lanes ? f##half_pack : f##_pack)(rows, ld, k, in, s0, s1, out);               \
  }                                                                                                \
  static void f##_any_row (int64_t n, int64_t k, const T *a, int64_t as1, const T *b, int64_t bs1, \
                           T *c, int add) {                                                        \
    (n <= f##half_lanes ? f##half_row : f##_row)(n, k, a, as1, b, bs1, c, add);                    \
  }
HALF(float, f32)
HALF(double, f64)

#elif defined(__AVX2__) && defined(__FMA__)
#include <immintrin.h>

#define MR 6
#define ROWS ROWS_6
#define PACKED

#define PRIMITIVES(type, Int, ...)                                                                \
  WHOLE                                                                                            \
  static inline V K(set) (T x) {                                                                   \
    return _mm256_set1_##type(x);                                                                  \
  }                                                                                                \
  static inline V K(fma) (V a, V b, V c) {                                                         \
    return _mm256_fmadd_##type(a, b, c);                                                           \
  }                                                                                                \
  static const Int K(masks)[2 * W] = { __VA_ARGS__ };                                                \
  static inline __m256i K(mask) (int n) {                                                          \
    return _mm256_loadu_si256((const __m256i *)(K(masks) + W - n));                                \
  }                                                                                                \
  static inline V K(load_part) (const T *p, int n) {                                               \
    return _mm256_maskload_##type(p, K(mask)(n));                                                  \
  }                                                                                                \
  static inline void K(store_part) (T *p, V v, int n) {                                            \
    _mm256_maskstore_##type(p, K(mask)(n), v);                                                     \
  }

#define T float
#define W 8
#define K(name) PASTE(f32, name)
PRIMITIVES(ps, int32_t, -1, -1, -1, -1, -1, -1, -1, -1)
GATHER_2(_mm256_castps128_ps256, _mm256_insertf128_ps, _mm_loadu_ps)
#define LOW2(a, b) _mm256_unpacklo_pd((__m256d)(a), (__m256d)(b))
#define HIGH2(a, b) _mm256_unpackhi_pd((__m256d)(a), (__m256d)(b))
TRANSPOSE_4(_mm256_unpacklo_ps, _mm256_unpackhi_ps, LOW2, HIGH2)
#undef LOW2
#undef HIGH2
#include "gemm_tile.h"

#define T double
#define W 4
#define K(name) PASTE(f64, name)
PRIMITIVES(pd, int64_t, -1, -1, -1, -1)
GATHER_2(_mm256_castpd128_pd256, _mm256_insertf128_pd, _mm_loadu_pd)
TRANSPOSE_2(_mm256_unpacklo_pd, _mm256_unpackhi_pd)
#include "gemm_tile.h"


#else /* 16 bytes, fused where the machine has it */

#ifdef __aarch64__
#include <arm_neon.h>
#define MR 12
#define ROWS ROWS_12
#define FMA_F32(a, b, c) vfmaq_f32(c, a, b)
#define FMA_F64(a, b, c) vfmaq_f64(c, a, b)
#else
#define MR 6
#define ROWS ROWS_6
#define FMA_F32(a, b, c) ((a) * (b) + (c))
#define FMA_F64(a, b, c) ((a) * (b) + (c))
#endif

#define PACKED

#define T float
#define W 4
#define K(name) PASTE(f32, name)
WHOLE
PARTS_BY_COPY
GATHER_1(K(load))
#define LOW(a, b) __builtin_shufflevector(a, b, 0, 4, 1, 5)
#define HIGH(a, b) __builtin_shufflevector(a, b, 2, 6, 3, 7)
#define LOW2(a, b) __builtin_shufflevector(a, b, 0, 1, 4, 5)
#define HIGH2(a, b) __builtin_shufflevector(a, b, 2, 3, 6, 7)
TRANSPOSE_4(LOW, HIGH, LOW2, HIGH2)
#undef LOW
#undef HIGH
static inline V K(set) (T x) {
  return (V){ x, x, x, x };
}
static inline V K(fma) (V a, V b, V c) {
  return FMA_F32(a, b, c);
}
#include "gemm_tile.h"

#define T double
#define W 2
#define K(name) PASTE(f64, name)
WHOLE
PARTS_BY_COPY
GATHER_1(K(load))
#define LOW(a, b) __builtin_shufflevector(a, b, 0, 2)
#define HIGH(a, b) __builtin_shufflevector(a, b, 1, 3)
TRANSPOSE_2(LOW, HIGH)
static inline V K(set) (T x) {
  return (V){ x, x };
}
static inline V K(fma) (V a, V b, V c) {
  return FMA_F64(a, b, c);
}
#include "gemm_tile.h"

#endif

#ifndef HALF
#define f32_any f32_direct
#define f32_any_block f32_block
#define f32_any_pack f32_pack
#define f32_any_row f32_row
#define f64_any f64_direct
#define f64_any_block f64_block
#define f64_any_pack f64_pack
#define f64_any_row f64_row
#endif

const pln_GemmTable PASTE(pln_gemm_kernel, PLN_ISA) = {
  STRING(PLN_ISA),
  { MR, 2 * f32_lanes, f32_lanes, f32_any_block, f32_any, f32_tile, f32_any_pack, f32_any_row, f32_dot },
  { MR, 2 * f64_lanes, f64_lanes, f64_any_block, f64_any, f64_tile, f64_any_pack, f64_any_row, f64_dot },
};
