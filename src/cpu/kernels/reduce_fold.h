/* SPDX-License-Identifier: MIT
** reduce_fold.h -- the shape of every reduction: blocks of elements become accumulators, accumulators merge pairwise, the last
** one is finished. The tree is a function of the number of elements only (C10): a range of more than PLK_BLOCK elements is split after
** the largest power of two of blocks that leaves something. Threads take subtrees; whether columns are walked side by side or a
** row at a time is a matter of strides and speed, not of bits.
*/
#ifndef PLN_CPU_REDUCE_FOLD_H
#define PLN_CPU_REDUCE_FOLD_H

#include "kernel.h"

#include <stdbool.h>

#define PLK_INLINE static inline __attribute__((always_inline, unused))

#if defined(__AVX512F__)
#define PLK_VECTOR 64
#elif defined(__AVX2__)
#define PLK_VECTOR 32
#else
#define PLK_VECTOR 16
#endif

#define PLK_LANES 16
#define PLK_RUN 256     /* elements that join a block's lanes in order */
#define PLK_BLOCK 1024  /* elements of a leaf of the tree */
#define PLK_UNIT 4096   /* elements of the smallest piece that threads share out: PLN_REDUCE_UNIT */
#define PLK_COLUMNS 128 /* results that are walked side by side */

/* PLK_TOP is a cheaper max that passes NaN over, for those who meet the NaN again. */
enum { PLK_SUM, PLK_PROD, PLK_MAX, PLK_MIN, PLK_TOP };

/* n elements as the lanes hold them, of n elements side by side: in `buffer`, or wherever the load keeps them. `with` is what the pass
** needs besides; k is the number of the row (0 for a block). */
typedef const void *(*plk_LoadFn)(void *buffer, const char *src, int64_t n, const void *with, int64_t k);

/* n rows of w elements each, a row being what meets in w results at once. */
typedef struct plk_Rows {
  const char *base;
  const int64_t *offset; /* of each row in bytes; NULL: k * stride */
  int64_t stride;        /* bytes */
  int64_t step;          /* bytes from column to column */
  int item;              /* bytes of an element */
  bool packed;           /* rows follow each other without a gap */
  plk_LoadFn load;       /* NULL: elements are what lanes hold */
  const void *with;
} plk_Rows;

PLK_INLINE void plk_gather(char *restrict dst, const char *src, int64_t step, int item, int64_t n) {
  if (item == 8)
    for (int64_t i = 0; i < n; i++) memcpy(dst + 8 * i, src + i * step, 8);
  else if (item == 4)
    for (int64_t i = 0; i < n; i++) memcpy(dst + 4 * i, src + i * step, 4);
  else
    for (int64_t i = 0; i < n; i++) dst[i] = src[i * step];
}

/* n elements from the start of row k on: in place or in `buffer` (n elements of the lanes' type); n is w, or with packed rows also a
** multiple up to PLK_LANES * PLK_COLUMNS. */
PLK_INLINE const void *plk_row(const plk_Rows *r, int64_t k, int64_t n, void *buffer) {
  const char *src = r->base + (r->offset ? r->offset[k] : k * r->stride);
  char raw[PLK_COLUMNS * 8];
  if (r->step != r->item) {
    char *dst = r->load ? raw : buffer;
    plk_gather(dst, src, r->step, r->item, n);
    src = dst;
  }
  return r->load ? r->load(buffer, src, n, r->with, k) : src;
}

#define PLK_ACC 16 /* bytes of one result's accumulator: two parts of 8; of w results all first parts, then all second ones */

typedef struct plk_Fold {
  int op;           /* of the lanes */
  uint8_t type;     /* dtype of what the lanes hold: f32, f64 or i64 */
  uint8_t dtype;    /* of the elements */
  plk_LoadFn load;
  const void *with; /* of the load */
  double number;    /* p of norm, correction of var */
  int64_t count;    /* elements of one result */
  /* n <= PLK_BLOCK elements side by side to one accumulator */
  void (*block)(const struct plk_Fold *f, const char *x, int64_t n, char *acc);
  /* the same for w results at once */
  void (*rows)(const struct plk_Fold *f, plk_Rows *rows, int64_t n, int64_t w, char *acc);
  /* a, of na elements, takes in b, of the nb elements behind them */
  void (*merge)(const struct plk_Fold *f, char *a, int64_t na, const char *b, int64_t nb, int64_t w);
  /* w results to out[], which are `stride` bytes apart */
  void (*finish)(const struct plk_Fold *f, const char *acc, int64_t w, char *const *out, const int64_t *stride);
} plk_Fold;

/* Runs a reduction as the call record (reduce.def) describes it. */
pln_Status PLK(fold)(const pln_Call *c, const plk_Fold *f);
/* The same for a sum of floats, loaded by `load` if that is not NULL. */
pln_Status PLK(fold_sum)(const pln_Call *c, plk_LoadFn load, const void *with);

/* --- loads -------------------------------------------------------------------------------------- */

/* A load that computes `expr` of x, and of `with`, for each element. */
#define PLK_LOAD(name, S, D, expr)                                                               \
  __attribute__((unused)) static const void *name(void *buffer, const char *src_, int64_t n, const void *with, int64_t k) { \
    D *restrict dst = buffer;                                                                    \
    const S *restrict src = (const void *)src_;                                                  \
    (void)with, (void)k;                                                                         \
    for (int64_t i = 0; i < n; i++) {                                                            \
      S x = src[i];                                                                              \
      dst[i] = (D)(expr);                                                                        \
    }                                                                                            \
    return dst;                                                                                  \
  }
PLK_LOAD(plk_widen_bool, uint8_t, int64_t, x != 0)
PLK_LOAD(plk_widen_u8, uint8_t, int64_t, x)
PLK_LOAD(plk_widen_i32, int32_t, int64_t, x)
PLK_LOAD(plk_widen_f32, float, double, x)

/* Integers of any dtype as i64; NULL for i64 itself and for floats. */
PLK_INLINE plk_LoadFn plk_to_i64(int dtype) {
  return dtype == PLN_BOOL ? plk_widen_bool : dtype == PLN_U8 ? plk_widen_u8 : dtype == PLN_I32 ? plk_widen_i32 : NULL;
}

/* --- spaces ------------------------------------------------------------------------------------- */

/* Elements in the left part of a range of n > PLK_BLOCK elements. */
PLK_INLINE int64_t plk_split(int64_t n) {
  int64_t h = PLK_BLOCK;
  while (h * 2 < n) h *= 2;
  return h;
}

/* Offset in elements of the index-th point, row-major, of the dims [0, ndim). */
PLK_INLINE int64_t plk_offset(int ndim, const int64_t *size, const int64_t *stride, int64_t index) {
  int64_t offset = 0;
  for (int d = ndim - 1; d > 0; d--) {
    offset += index % size[d] * stride[d];
    index /= size[d];
  }
  return ndim ? offset + index * stride[0] : 0;
}

/* Offsets in bytes of n points from index `first` on. */
static inline void plk_offsets(int ndim, const int64_t *size, const int64_t *stride, int item, int64_t first, int64_t n, int64_t *out) {
  int64_t index[PLN_MAX_DIMS], offset = 0, rest = first;
  for (int d = ndim - 1; d >= 0; d--) {
    index[d] = d ? rest % size[d] : rest;
    rest = d ? rest / size[d] : 0;
    offset += index[d] * stride[d];
  }
  for (int64_t k = 0; k < n; k++) {
    out[k] = offset * item;
    for (int d = ndim - 1; d >= 0; d--) {
      offset += stride[d];
      if (++index[d] < size[d] || d == 0) break;
      offset -= size[d] * stride[d];
      index[d] = 0;
    }
  }
}

#endif
