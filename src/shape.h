/* SPDX-License-Identifier: MIT
** shape.h -- shapes and strides: at most PLN_MAX_DIMS dimensions, 64-bit sizes, strides in elements.
** Every product of sizes is checked before it is made.
*/
#ifndef PLN_SHAPE_H
#define PLN_SHAPE_H

#include <stdbool.h>
#include <stdint.h>

#include "status.h"

#define PLN_MAX_DIMS 8

typedef struct pln_Shape {
  int ndim;
  int64_t size[PLN_MAX_DIMS];
} pln_Shape;

/* Number of elements; PLN_ESHAPE when a size is negative or n * item_size does not fit in 2^62. */
pln_Status pln_shape_numel(const pln_Shape *s, int item_size, int64_t *numel_p);
bool pln_shape_equal(const pln_Shape *a, const pln_Shape *b);
/* Row-major strides (a size-0 dimension counts as 1). */
void pln_shape_strides(int ndim, const int64_t *size, int64_t *stride);
/* Row-major without gaps, sizes of 1 apart; true for zero elements. */
bool pln_shape_is_contiguous(int ndim, const int64_t *size, const int64_t *stride);
/* NumPy's broadcasting rule; false when the shapes do not fit. */
bool pln_shape_broadcast(const pln_Shape *a, const pln_Shape *b, pln_Shape *out_p);
/* Strides for reading a (size, stride) operand at `shape`: stride 0 where it is expanded. False when it cannot be. */
bool pln_shape_expand(int ndim, const int64_t *size, const int64_t *stride, const pln_Shape *shape, int64_t *out_p);
/* Lowest and highest element offset that the view touches, both 0 for an empty view. */
void pln_shape_extent(int ndim, const int64_t *size, const int64_t *stride, int64_t *lo_p, int64_t *hi_p);
/* A size > 1 with stride 0, or strides by which two indices may meet: a view that must not be written. */
bool pln_shape_self_overlaps(int ndim, const int64_t *size, const int64_t *stride);
/* Merges neighbouring dimensions that all `n` stride sets step through alike, and drops sizes of 1. In place;
** sizes must be > 0. Returns the new ndim (0 for one element). The order of elements stays row-major. */
int pln_shape_collapse(int ndim, int64_t *size, int n, int64_t *const *strides);
/* Strides that show (size, stride) as `shape` without a copy; false when a copy is needed. */
bool pln_shape_view(int ndim, const int64_t *size, const int64_t *stride, const pln_Shape *shape, int64_t *out_p);
/* "(2, 3)" into a buffer of at least PLN_SHAPE_TEXT bytes, which it returns. */
#define PLN_SHAPE_TEXT 200
char *pln_shape_text(int ndim, const int64_t *size, char *buf);

#endif
