/* SPDX-License-Identifier: MIT
** elementwise.h -- how an elementwise kernel is made: a vector function per op and dtype, run over any layout by one driver.
**
** A vector function sees n elements that lie side by side; the driver feeds it rows, or blocks that it has gathered. Since every
** element goes through the same scalar function wherever it lies, all layouts give the same bits.
*/
#ifndef PLN_CPU_ELEMENTWISE_H
#define PLN_CPU_ELEMENTWISE_H

#include "../../scalar.h"
#include "kernel.h"

/* Names are pasted of dtypes, and C11's macro would make them _Bool. */
#undef bool

#define PLK_MAX_OPERANDS 4 /* result included */

/* ptr[0] is the result, ptr[1 ..] the operands. step[k] is 1, or 0 for one value (never the result, and no operand unless the
** loop says `broadcasts`). `at` is the row-major number of the first element, for faults. ptr[0] may equal any ptr[k] of step 1. */
typedef void (*plk_Vec)(char *const *ptr, const int64_t *step, int64_t n, const pln_Call *c, int64_t at);

#define PLK_INLINE static inline __attribute__((always_inline, unused))

/* Runs the vector function over the call's elements, whatever their layout. */
pln_Status PLK(elementwise_walk)(const pln_Call *c, plk_Vec vec, int broadcasts);

/* A number as an element of the dtype, at the front of the 8 bytes. */
PLK_INLINE void plk_put_number(int dtype, double v, uint64_t *element) {
  switch (dtype) {
#define CASE(ID, T, S)                                                             \
  case PLN_##ID: {                                                                 \
    T t = pls_number_##S(v);                                                       \
    memcpy(element, &t, sizeof t);                                                 \
    break;                                                                         \
  }
    PLK_EACH_DTYPE(CASE)
#undef CASE
  }
}

/* elementwise_walk for few elements side by side and numbers. */
pln_Status PLK(elementwise_numbers)(const pln_Call *c, plk_Vec vec);

/* elementwise_walk; n, the number of results and operands, is a constant, and few elements side by side are one short step. */
PLK_INLINE pln_Status plk_elementwise(const pln_Call *c, int n, plk_Vec vec, int broadcasts) {
  char *ptr[PLK_MAX_OPERANDS];
  int64_t step[PLK_MAX_OPERANDS], other = 0;
  int numbers = 0;
  if (c->ndim != 1 || c->numel > PLN_GRAIN) return PLK(elementwise_walk)(c, vec, broadcasts);
  for (int k = 0; k < n; k++) {
    ptr[k] = c->arg[k].data;
    step[k] = 1;
    if (k && !ptr[k])
      numbers = 1;
    else
      other |= c->arg[k].stride[0] ^ 1;
  }
  if (other || (numbers && !broadcasts)) return PLK(elementwise_walk)(c, vec, broadcasts);
  if (numbers) return PLK(elementwise_numbers)(c, vec);
  vec(ptr, step, c->numel, c, 0);
  return PLN_OK;
}

#endif
