/* SPDX-License-Identifier: MIT
** reduce.h -- call records that part the dims of an operand into kept and reduced ones; for reductions and for what works
** along some dims.
*/
#ifndef PLN_OPS_REDUCE_H
#define PLN_OPS_REDUCE_H

#include "../op.h"

/* Elements of one result that a partial result in scratch stands for. */
#define PLN_REDUCE_UNIT 4096

/* The shape of x with the dims of `mask` dropped, or kept as 1. */
pln_Shape pln_reduce_shape(const pln_Tensor *x, uint32_t mask, bool keepdim);

/* Fills size, ndim, numel, i[0], i[1] and all strides as reduce.def says. Results and operands are set; argument a steps through all
** of x's dims if bit a of `full` is set, else through the kept ones (with strides of 0 for the others). */
void pln_reduce_layout(pln_Prep *p, const pln_Tensor *x, uint32_t mask, uint32_t full);

/* The same along one dim (a 0-dim tensor counts as one of size 1). */
static inline uint32_t pln_reduce_along(const pln_Tensor *x, int dim) { return x->ndim ? 1u << dim : 0; }

#endif
