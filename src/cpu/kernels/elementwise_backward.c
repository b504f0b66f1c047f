/* SPDX-License-Identifier: MIT
** elementwise_backward.c -- kernels of <name>_backward: the derivative formulas of the rows, one pass each.
*/
#include "elementwise.h"

#define ROWS "elementwise_backward_rows.h"
#include "elementwise_each.h"

#define KERNEL(name)                                                   \
  pln_Status PLK(name##_backward)(const pln_Call *c) {                             \
    static const plk_Vec vecs[PLN_NDTYPE] = VECS(float, vec_##name);               \
    return plk_elementwise(c, 3, vecs[c->arg[1].dtype], 0);                          \
  }
#define UNARY(name, ...) KERNEL(name)
#define OPTIONS(name, ...) KERNEL(name)
#define BINARY(name, ...)                                                          \
  pln_Status PLK(name##_backward)(const pln_Call *c) {                             \
    static const plk_Vec vecs[2][PLN_NDTYPE] = {VECS(float, vec_##name##_1), VECS(float, vec_##name##_2)}; \
    return plk_elementwise(c, 4, vecs[c->i[0]][c->arg[1].dtype], 0);                 \
  }
#include "../../ops/elementwise.def"
