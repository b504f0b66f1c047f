/* SPDX-License-Identifier: MIT
** reduce.c -- prepare functions of the reductions and of cumsum. All of them come down to pln_reduce_layout: dims that are
** kept and dims that are reduced, each part collapsed.
*/
#include "reduce.h"

#include <math.h>

pln_Shape pln_reduce_shape(const pln_Tensor *x, uint32_t mask, bool keepdim) {
  pln_Shape s = {0, {0}};
  for (int d = 0; d < x->ndim; d++) {
    if (!(mask >> d & 1))
      s.size[s.ndim++] = x->shape[d];
    else if (keepdim)
      s.size[s.ndim++] = 1;
  }
  return s;
}

void pln_reduce_layout(pln_Prep *p, const pln_Tensor *x, uint32_t mask, uint32_t full) {
  pln_Call *c = &p->call;
  int nargs = c->nout + c->nin, nkept = 0, nreduced = 0, nfull = 0;
  int kept[PLN_MAX_DIMS], reduced[PLN_MAX_DIMS];
  int64_t size[PLN_MAX_DIMS], stride[PLN_MAX_ARGS][PLN_MAX_DIMS], *sets[PLN_MAX_ARGS];
  int64_t numel = 1, count = 1;
  for (int d = 0; d < x->ndim; d++)
    if (mask >> d & 1)
      count *= x->shape[d], reduced[nreduced++] = d;
    else
      numel *= x->shape[d], kept[nkept++] = d;
  c->numel = numel;
  c->i[1] = count;
  if (numel == 0) { /* for those who go on all the same: no lanes */
    p->done = 1;
    c->ndim = 1;
    c->size[0] = 0;
    c->i[0] = 1;
    for (int a = 0; a < nargs; a++) c->arg[a].stride[0] = 0;
    return;
  }
  for (int i = 0; i < nreduced; i++) size[i] = x->shape[reduced[i]];
  for (int a = 0; a < nargs; a++) {
    if (!(full >> a & 1)) continue;
    for (int i = 0; i < nreduced; i++) stride[a][i] = c->arg[a].stride[reduced[i]];
    sets[nfull++] = stride[a];
  }
  if (count == 0) {
    size[0] = 0;
    for (int i = 0; i < nfull; i++) sets[i][0] = 0;
    nreduced = 1;
  } else {
    nreduced = pln_shape_collapse(nreduced, size, nfull, sets);
  }
  int64_t *keep[PLN_MAX_ARGS] = {NULL};
  for (int i = 0; i < nkept; i++) c->size[i] = x->shape[kept[i]];
  for (int a = 0; a < nargs; a++) {
    pln_Arg *g = &c->arg[a];
    keep[a] = g->stride;
    if (g->ndim == x->ndim) /* a full operand, or a result with keepdim; kept[i] >= i */
      for (int i = 0; i < nkept; i++) g->stride[i] = g->stride[kept[i]];
  }
  nkept = pln_shape_collapse(nkept, c->size, nargs, keep);
  c->i[0] = nkept;
  for (int i = 0; i < nreduced; i++) c->size[nkept + i] = size[i];
  for (int a = 0; a < nargs; a++)
    for (int i = 0; i < nreduced; i++) c->arg[a].stride[nkept + i] = full >> a & 1 ? stride[a][i] : 0;
  c->ndim = (uint8_t)(nkept + nreduced);
  if (c->ndim == 0) { /* one element */
    c->ndim = 1;
    c->size[0] = 1;
    for (int a = 0; a < nargs; a++) c->arg[a].stride[0] = 1;
  }
}

static pln_Status partials(pln_Prep *p) {
  int64_t count = p->call.i[1];
  if (p->done || count <= PLN_REDUCE_UNIT) return PLN_OK;
  int64_t units = (count + PLN_REDUCE_UNIT - 1) / PLN_REDUCE_UNIT;
  return pln_prep_scratch(p, (size_t)(p->call.numel * units * 16));
}

static bool empty(const pln_Tensor *x, uint32_t mask) {
  for (int d = 0; d < x->ndim; d++)
    if (mask >> d & 1 && x->shape[d] == 0) return true;
  return false;
}

static pln_Status reject_empty(pln_Prep *p, const pln_Tensor *x, uint32_t mask) {
  char text[PLN_SHAPE_TEXT + 16];
  for (int d = 0; d < x->ndim; d++)
    if (!(mask >> d & 1) && x->shape[d] == 0) return PLN_OK; /* no result, so none without a value */
  if (!empty(x, mask)) return PLN_OK;
  return pln_prep_fail(p, PLN_ESHAPE, "argument 'x': a reduction of no elements (%s) has no identity", pln_tensor_text(x, text));
}

/* A reduction over `mask` from x, read as dtype `in`, to one result of dtype `out`. */
static pln_Status reduce(pln_Prep *p, uint32_t mask, bool keepdim, pln_DType in, pln_DType out) {
  pln_Tensor *x = p->a->in[0];
  pln_Shape shape = pln_reduce_shape(x, mask, keepdim);
  PLN_TRY(pln_prep_out(p, 0, out, &shape));
  PLN_TRY(pln_prep_in(p, 0, in));
  pln_reduce_layout(p, x, mask, 1u << p->call.nout);
  return partials(p);
}

/* Options dims and keepdim at `opt` and `opt_keepdim`; out is PLN_NODTYPE for x's own. */
static pln_Status over_dims(pln_Prep *p, int opt, int opt_keepdim, pln_DType out) {
  const pln_Tensor *x = p->a->in[0];
  uint32_t mask;
  PLN_TRY(pln_prep_dtype(p, x->dtype, p->op->dtypes, "x"));
  PLN_TRY(pln_prep_dims(p, opt, x->ndim, &mask));
  return reduce(p, mask, p->a->opt[opt_keepdim].i, PLN_NODTYPE, out == PLN_NODTYPE ? (pln_DType)x->dtype : out);
}

pln_Status pln_prepare_sum(pln_Prep *p) { return over_dims(p, 0, 1, (pln_DType)pln_dtypes[p->a->in[0]->dtype].sum); }
pln_Status pln_prepare_prod(pln_Prep *p) { return pln_prepare_sum(p); }
pln_Status pln_prepare_mean(pln_Prep *p) { return over_dims(p, 0, 1, PLN_NODTYPE); }
pln_Status pln_prepare_any(pln_Prep *p) { return over_dims(p, 0, 1, PLN_BOOL); }
pln_Status pln_prepare_all(pln_Prep *p) { return over_dims(p, 0, 1, PLN_BOOL); }

pln_Status pln_prepare_var(pln_Prep *p) {
  p->call.f[0] = p->a->opt[1].num;
  return over_dims(p, 0, 2, PLN_NODTYPE);
}

pln_Status pln_prepare_logsumexp(pln_Prep *p) {
  pln_Tensor *x = p->a->in[0];
  if (pln_dtype_is_float((pln_DType)x->dtype)) return over_dims(p, 0, 1, PLN_NODTYPE);
  uint32_t mask;
  PLN_TRY(pln_prep_dims(p, 0, x->ndim, &mask));
  return reduce(p, mask, p->a->opt[1].i, PLN_F32, PLN_F32);
}

pln_Status pln_prepare_norm(pln_Prep *p) {
  const pln_Tensor *x = p->a->in[0];
  double power = p->a->opt[0].num;
  if (power != power) return pln_prep_fail(p, PLN_EARG, "argument 'p': expected a number, got NaN");
  p->call.f[0] = power;
  if (power < 0 || power == INFINITY) {
    uint32_t mask;
    PLN_TRY(pln_prep_dims(p, 1, x->ndim, &mask));
    PLN_TRY(reject_empty(p, x, mask));
  }
  return over_dims(p, 1, 2, PLN_NODTYPE);
}

/* max, min with a dim: values and indices, without: the value; argmax, argmin: indices. */
static pln_Status extreme(pln_Prep *p, bool values) {
  pln_Args *a = p->a;
  pln_Tensor *x = a->in[0];
  bool along = a->opt[0].given, keepdim = a->opt[1].i;
  uint32_t mask = x->ndim ? (1u << x->ndim) - 1 : 0;
  PLN_TRY(pln_prep_dtype(p, (pln_DType)x->dtype, p->op->dtypes, "x"));
  if (along) {
    int dim;
    PLN_TRY(pln_prep_dim(p, 0, x->ndim, &dim));
    mask = pln_reduce_along(x, dim);
  }
  PLN_TRY(reject_empty(p, x, mask));
  if (!values) return reduce(p, mask, keepdim, PLN_NODTYPE, PLN_I64);
  if (!along) {
    if (a->out[1]) return pln_prep_fail(p, PLN_EARG, "argument 'out': indices are a result only with a dim");
    p->call.nout = 1;
    return reduce(p, mask, keepdim, PLN_NODTYPE, (pln_DType)x->dtype);
  }
  pln_Shape shape = pln_reduce_shape(x, mask, keepdim);
  PLN_TRY(pln_prep_out(p, 0, (pln_DType)x->dtype, &shape));
  PLN_TRY(pln_prep_out(p, 1, PLN_I64, &shape));
  PLN_TRY(pln_prep_in(p, 0, PLN_NODTYPE));
  pln_reduce_layout(p, x, mask, 1u << 2);
  return partials(p);
}

pln_Status pln_prepare_max(pln_Prep *p) { return extreme(p, true); }
pln_Status pln_prepare_min(pln_Prep *p) { return extreme(p, true); }
pln_Status pln_prepare_argmax(pln_Prep *p) { return extreme(p, false); }
pln_Status pln_prepare_argmin(pln_Prep *p) { return extreme(p, false); }

static pln_Status scan(pln_Prep *p, bool from_end) {
  pln_Tensor *x = p->a->in[0];
  int dim;
  PLN_TRY(pln_prep_dtype(p, (pln_DType)x->dtype, p->op->dtypes, "x"));
  PLN_TRY(pln_prep_dim(p, 0, x->ndim, &dim));
  pln_Shape shape = pln_tensor_shape(x);
  PLN_TRY(pln_prep_out(p, 0, (pln_DType)pln_dtypes[x->dtype].sum, &shape));
  PLN_TRY(pln_prep_in(p, 0, PLN_NODTYPE));
  p->call.i[2] = from_end;
  if (!p->done) pln_reduce_layout(p, x, pln_reduce_along(x, dim), 3);
  return PLN_OK;
}

pln_Status pln_prepare_cumsum(pln_Prep *p) { return scan(p, false); }
pln_Status pln_prepare_cumsum_reverse(pln_Prep *p) { return scan(p, true); }
