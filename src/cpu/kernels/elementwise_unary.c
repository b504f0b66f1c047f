/* SPDX-License-Identifier: MIT
** elementwise_unary.c -- kernels of the UNARY, OPTIONS and TEST rows.
*/
#include "elementwise.h"

#define ROWS "elementwise_unary_rows.h"
#include "elementwise_each.h"

#define KERNEL(name, rule)                                                         \
  pln_Status PLK(name)(const pln_Call *c) {                                        \
    static const plk_Vec vecs[PLN_NDTYPE] = VECS(rule, vec_##name);                \
    return plk_elementwise(c, 2, vecs[c->arg[1].dtype], 0);                          \
  }
#define UNARY(name, rule, ...) KERNEL(name, rule)
#define OPTIONS(name, signature, params, rule, ...) KERNEL(name, rule)
#define TEST(name, ...) KERNEL(name, any)
#include "../../ops/elementwise.def"
