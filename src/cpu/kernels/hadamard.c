/* SPDX-License-Identifier: MIT
** hadamard.c -- the Walsh-Hadamard transform of rows (src/ops/matmul.def), in place in the row-major result.
**
** Every element is one balanced tree of sums and differences, whatever the blocking: stages work on pairs at the distance 1, 2, 4, ...
** and two stages in one pass do the same additions. Long rows are cut into blocks; stages within a block come first.
*/
#include "kernel.h"

#define PLN_BLOCK 2048 /* elements; a power of two */

#define INLINE static inline __attribute__((always_inline))

#define HADAMARD(T, S)                                                                                               \
  /* Stages of distance h and 2h for the elements [begin, end) of the first quarter of a group of 4h. */             \
  INLINE void quad_##S(T *y, int64_t h, int64_t begin, int64_t end, T scale) {                                       \
    T *restrict y0 = y, *restrict y1 = y + h, *restrict y2 = y + 2 * h, *restrict y3 = y + 3 * h;                    \
    for (int64_t j = begin; j < end; j++) {                                                                          \
      T a = y0[j] + y1[j], b = y0[j] - y1[j], c = y2[j] + y3[j], d = y2[j] - y3[j];                                  \
      y0[j] = (a + c) * scale;                                                                                       \
      y1[j] = (b + d) * scale;                                                                                       \
      y2[j] = (a - c) * scale;                                                                                       \
      y3[j] = (b - d) * scale;                                                                                       \
    }                                                                                                                \
  }                                                                                                                  \
  static inline void pair_##S(T *y, int64_t h, int64_t begin, int64_t end, T scale) {                                \
    T *restrict y0 = y, *restrict y1 = y + h;                                                                        \
    for (int64_t j = begin; j < end; j++) {                                                                          \
      T a = y0[j] + y1[j], b = y0[j] - y1[j];                                                                        \
      y0[j] = a * scale;                                                                                             \
      y1[j] = b * scale;                                                                                             \
    }                                                                                                                \
  }                                                                                                                  \
  /* The stages of distance 1 and 2, from x to y; n is a multiple of 4. */                                           \
  INLINE void first_##S(T *restrict y, const T *restrict x, int64_t xs, int64_t n, T scale) {                        \
    for (int64_t i = 0; i < n; i += 4) {                                                                             \
      T p = x[i * xs], q = x[(i + 1) * xs], r = x[(i + 2) * xs], s = x[(i + 3) * xs];                                \
      T a = p + q, b = p - q, c = r + s, d = r - s;                                                                  \
      y[i] = (a + c) * scale;                                                                                        \
      y[i + 1] = (b + d) * scale;                                                                                    \
      y[i + 2] = (a - c) * scale;                                                                                    \
      y[i + 3] = (b - d) * scale;                                                                                    \
    }                                                                                                                \
  }                                                                                                                  \
  /* All stages of n elements; the last one scales. */                                                               \
  static void block_##S(T *y, const T *x, int64_t xs, int64_t n, T scale) {                                          \
    if (n < 4) {                                                                                                     \
      T a = x[0], b = n == 1 ? 0 : x[xs];                                                                            \
      y[0] = n == 1 ? a : (a + b) * scale;                                                                           \
      if (n == 2) y[1] = (a - b) * scale;                                                                            \
      return;                                                                                                        \
    }                                                                                                                \
    if (xs == 1)                                                                                                     \
      first_##S(y, x, 1, n, n == 4 ? scale : 1);                                                                     \
    else                                                                                                             \
      first_##S(y, x, xs, n, n == 4 ? scale : 1);                                                                    \
    int64_t h = 4;                                                                                                   \
    if (n >= 16)                                                                                                     \
      for (int64_t i = 0; i < n; i += 16) quad_##S(y + i, 4, 0, 4, n == 16 ? scale : 1);                             \
    if (n >= 16) h = 16;                                                                                             \
    for (; 4 * h <= n; h *= 4)                                                                                       \
      for (int64_t i = 0; i < n; i += 4 * h) quad_##S(y + i, h, 0, h, 4 * h == n ? scale : 1);                       \
    if (2 * h == n) pair_##S(y, h, 0, h, scale);                                                                     \
  }                                                                                                                  \
  /* Blocks [begin, end) of all rows, each read from x first. */                                                     \
  static void blocks_##S(void *context, int64_t begin, int64_t end) {                                                \
    const Rows *r = context;                                                                                         \
    const int64_t len = r->len, per_row = r->n / len, xs = r->c->i[1];                                               \
    for (int64_t t = begin; t < end; t++) {                                                                          \
      T *y = (T *)r->c->arg[0].data + t * len;                                                                       \
      const T *x = (const T *)r->c->arg[1].data + row_offset(r->c, t / per_row) + t % per_row * len * xs;            \
      block_##S(y, x, xs, len, per_row == 1 ? (T)r->scale : 1);                                                      \
    }                                                                                                                \
  }                                                                                                                  \
  /* Pieces of len elements of the first quarters (halves), of all groups and rows, at distance h. */                \
  static void quads_##S(void *context, int64_t begin, int64_t end) {                                                 \
    const Rows *r = context;                                                                                         \
    const int64_t pieces = r->h / r->len;                                                                            \
    const T scale = 4 * r->h == r->n ? (T)r->scale : 1;                                                              \
    for (int64_t t = begin; t < end; t++) {                                                                          \
      int64_t at = t % pieces * r->len;                                                                              \
      quad_##S((T *)r->c->arg[0].data + t / pieces * 4 * r->h, r->h, at, at + r->len, scale);                        \
    }                                                                                                                \
  }                                                                                                                  \
  static void pairs_##S(void *context, int64_t begin, int64_t end) {                                                 \
    const Rows *r = context;                                                                                         \
    const int64_t pieces = r->h / r->len;                                                                            \
    for (int64_t t = begin; t < end; t++) {                                                                          \
      int64_t at = t % pieces * r->len;                                                                              \
      pair_##S((T *)r->c->arg[0].data + t / pieces * 2 * r->h, r->h, at, at + r->len, (T)r->scale);                  \
    }                                                                                                                \
  }

typedef struct Rows {
  const pln_Call *c;
  double scale;
  int64_t n, len; /* of a row, of a block */
  int64_t h;      /* distance of a stage above the blocks */
} Rows;

/* Element offset of row `at` of the operand. */
static int64_t row_offset(const pln_Call *c, int64_t at) {
  int64_t offset = 0;
  for (int d = c->ndim - 1; d >= 0; d--) {
    offset += at % c->size[d] * c->arg[1].stride[d];
    at /= c->size[d];
  }
  return offset;
}

HADAMARD(float, f32)
HADAMARD(double, f64)

pln_Status PLK(hadamard)(const pln_Call *c) {
  const int64_t n = c->i[0];
  const bool single = c->arg[0].dtype == PLN_F32;
  Rows r = {c, 1 / pls_sqrt_f64((double)n), n, n < PLN_BLOCK ? n : PLN_BLOCK, 0};
  const int64_t total = c->numel * n, grain = 8 * PLN_BLOCK / r.len;
  PLN_TRY(pln_parallel_for(c, total / r.len, grain, single ? blocks_f32 : blocks_f64, &r));
  for (r.h = r.len; 4 * r.h <= n; r.h *= 4)
    PLN_TRY(pln_parallel_for(c, total / r.len / 4, 4, single ? quads_f32 : quads_f64, &r));
  if (2 * r.h == n) PLN_TRY(pln_parallel_for(c, total / r.len / 2, 8, single ? pairs_f32 : pairs_f64, &r));
  return PLN_OK;
}
