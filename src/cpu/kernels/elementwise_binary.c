/* SPDX-License-Identifier: MIT
** elementwise_binary.c -- kernels of the BINARY and COMPARE rows.
*/
#include "elementwise.h"

/* Operand b has a bad value where the result has its element `at`: says which element of b that is. */
static void fault(const pln_Call *c, int64_t at, int64_t value, int64_t lo, int64_t hi) {
  const pln_Arg *b = pln_call_in(c, 1);
  int64_t position = 0, weight = 1;
  for (int d = c->ndim - 1; d >= 0; d--) {
    int64_t x = at % c->size[d];
    at /= c->size[d];
    if (b->stride[d] == 0) continue; /* broadcast: not a dim of b */
    position += x * weight;
    weight *= c->size[d];
  }
  pln_call_fault(c, 1, position, value, lo, hi);
}

#define ROWS "elementwise_binary_rows.h"
#include "elementwise_each.h"

#define BROADCASTS_any 1
#define BROADCASTS_number 1
#define BROADCASTS_fraction 1
#define BROADCASTS_power 0
#define BROADCASTS_mod 0
#define KERNEL(name, rule)                                                         \
  pln_Status PLK(name)(const pln_Call *c) {                                        \
    static const plk_Vec vecs[PLN_NDTYPE] = VECS(rule, vec_##name);                \
    return plk_elementwise(c, 3, vecs[c->arg[1].dtype], BROADCASTS_##rule);          \
  }
#define BINARY(name, rule, ...) KERNEL(name, rule)
#define COMPARE(name, ...) KERNEL(name, any)
#include "../../ops/elementwise.def"
