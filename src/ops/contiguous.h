/* SPDX-License-Identifier: MIT
** contiguous.h -- results for kernels that write row-major only: a destination of another layout is filled by a copy.
*/
#ifndef PLN_OPS_CONTIGUOUS_H
#define PLN_OPS_CONTIGUOUS_H

#include "../op.h"

/* pln_prep_out, but call.arg[i] is row-major. */
static inline pln_Status pln_prep_out_contiguous(pln_Prep *p, int i, pln_DType dtype, const pln_Shape *shape) {
  PLN_TRY(pln_prep_out(p, i, dtype, shape));
  pln_Tensor *dst = p->a->out[i], *t;
  if (PLN_LIKELY(dst->contiguous) || p->call.arg[i].data != dst->data) return PLN_OK; /* or a temporary already */
  PLN_TRY(pln_prep_temp(p, dtype, shape, &t));
  p->back[p->nback].from = t;
  p->back[p->nback++].to = dst;
  pln_Arg *g = &p->call.arg[i];
  g->data = t->data;
  for (int d = 0; d < t->ndim; d++) g->stride[d] = t->stride[d];
  return PLN_OK;
}

#endif
