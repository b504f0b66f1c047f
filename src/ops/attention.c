/* SPDX-License-Identifier: MIT
** attention.c -- shapes and layout of scaled dot-product attention; attention.def says what a record holds.
*/
#include <math.h>

#include "contiguous.h"

typedef struct Attention {
  pln_Tensor *q, *k, *v, *mask;
  pln_Shape batch;
  int64_t L, S, E, D;
} Attention;

static pln_Shape head(const pln_Tensor *t) {
  pln_Shape s = pln_tensor_shape(t);
  s.ndim -= 2;
  return s;
}

/* The batch shape with further dims behind it. */
static pln_Shape with(const pln_Shape *batch, int n, int64_t a, int64_t b) {
  pln_Shape s = *batch;
  if (n > 0) s.size[s.ndim++] = a;
  if (n > 1) s.size[s.ndim++] = b;
  return s;
}

static pln_Status operand(const pln_Prep *p, const pln_Tensor *t, const pln_Tensor *q, const char *name) {
  char text[PLN_SHAPE_TEXT + 16];
  if (t->ndim < 2)
    return pln_prep_fail(p, PLN_ESHAPE, "argument '%s': at least 2 dimensions were expected, got an %s", name, pln_tensor_text(t, text));
  if (t->dtype == q->dtype) return PLN_OK;
  return pln_prep_fail(p, PLN_EDTYPE, "argument '%s': expected %s like q, got %s", name, pln_dtype_name((pln_DType)q->dtype),
                       pln_dtype_name((pln_DType)t->dtype));
}

static pln_Status wrong_shape(const pln_Prep *p, const char *name, const pln_Tensor *t, const char *rule) {
  char text[PLN_SHAPE_TEXT];
  return pln_prep_fail(p, PLN_ESHAPE, "argument '%s': %s, got shape %s", name, rule, pln_shape_text(t->ndim, t->shape, text));
}

/* Operands `first` and on: q, k, v, mask. */
static pln_Status check(pln_Prep *p, int first, Attention *x) {
  pln_Tensor **in = p->a->in + first;
  x->q = in[0], x->k = in[1], x->v = in[2], x->mask = in[3];
  PLN_TRY(pln_prep_dtype(p, (pln_DType)x->q->dtype, p->op->dtypes, "q"));
  PLN_TRY(operand(p, x->q, x->q, "q"));
  PLN_TRY(operand(p, x->k, x->q, "k"));
  PLN_TRY(operand(p, x->v, x->q, "v"));
  x->L = x->q->shape[x->q->ndim - 2], x->E = x->q->shape[x->q->ndim - 1];
  x->S = x->k->shape[x->k->ndim - 2], x->D = x->v->shape[x->v->ndim - 1];
  if (x->k->shape[x->k->ndim - 1] != x->E) return wrong_shape(p, "k", x->k, "expected q's size in the last dimension");
  if (x->v->shape[x->v->ndim - 2] != x->S) return wrong_shape(p, "v", x->v, "expected k's size in the last dimension but one");
  pln_Shape q = head(x->q), k = head(x->k), v = head(x->v), both;
  if (!pln_shape_broadcast(&q, &k, &both)) return wrong_shape(p, "k", x->k, "the dimensions before the last two do not broadcast with q's");
  if (!pln_shape_broadcast(&both, &v, &x->batch)) return wrong_shape(p, "v", x->v, "the dimensions before the last two do not broadcast with q's and k's");
  if (!x->mask) return PLN_OK;
  if (x->mask->dtype != PLN_BOOL && x->mask->dtype != PLN_U8 && x->mask->dtype != x->q->dtype)
    return pln_prep_fail(p, PLN_EDTYPE, "argument 'mask': expected bool, u8 or q's dtype %s, got %s", pln_dtype_name((pln_DType)x->q->dtype),
                         pln_dtype_name((pln_DType)x->mask->dtype));
  pln_Shape scores = with(&x->batch, 2, x->L, x->S);
  int64_t stride[PLN_MAX_DIMS];
  if (!pln_shape_expand(x->mask->ndim, x->mask->shape, x->mask->stride, &scores, stride))
    return wrong_shape(p, "mask", x->mask, "it does not broadcast to the scores (.., L, S)");
  return PLN_OK;
}

/* Argument k of the call: t seen at batch + its own `rest` dims; the strides of those go to i[at ..]. */
static void add(pln_Prep *p, const pln_Tensor *t, const pln_Shape *seen, int rest, int at) {
  pln_Call *c = &p->call;
  pln_Arg *g = &c->arg[c->nout + c->nin++];
  int64_t stride[PLN_MAX_DIMS];
  g->data = t->data;
  g->dtype = t->dtype;
  g->ndim = (uint8_t)(seen->ndim - rest);
  (void)pln_shape_expand(t->ndim, t->shape, t->stride, seen, stride);
  for (int d = 0; d < g->ndim; d++) g->stride[d] = stride[d];
  if (at >= 0)
    for (int d = 0; d < rest; d++) c->i[at + d] = stride[g->ndim + d];
}

static pln_Status lay_out(pln_Prep *p, const Attention *x, int opt) {
  pln_Call *c = &p->call;
  pln_Shape q = with(&x->batch, 2, x->L, x->E), k = with(&x->batch, 2, x->S, x->E), v = with(&x->batch, 2, x->S, x->D);
  pln_Shape scores = with(&x->batch, 2, x->L, x->S);
  const pln_Opt *causal = &p->a->opt[opt], *scale = &p->a->opt[opt + 1];
  add(p, x->q, &q, 2, 4);
  add(p, x->k, &k, 2, 6);
  add(p, x->v, &v, 2, 8);
  c->i[10] = c->i[11] = 0;
  if (x->mask) add(p, x->mask, &scores, 2, 10);
  c->i[0] = x->L, c->i[1] = x->S, c->i[2] = x->E, c->i[3] = x->D;
  c->f[0] = scale->given ? scale->num : x->E ? 1 / sqrt((double)x->E) : 1;
  c->f[1] = (double)causal->i;
  c->f[2] = x->mask != NULL;
  int64_t *strides[PLN_MAX_ARGS];
  int n = c->nout + c->nin;
  c->numel = 1;
  for (int d = 0; d < x->batch.ndim; d++) {
    c->size[d] = x->batch.size[d];
    c->numel *= x->batch.size[d];
  }
  if (c->numel == 0) {
    p->done = 1;
    return PLN_OK;
  }
  for (int a = 0; a < n; a++) strides[a] = c->arg[a].stride;
  c->ndim = (uint8_t)pln_shape_collapse(x->batch.ndim, c->size, n, strides);
  if (c->ndim > 0) return PLN_OK;
  c->ndim = 1;
  c->size[0] = 1;
  for (int a = 0; a < n; a++) strides[a][0] = 0;
  return PLN_OK;
}

static pln_Status forward(pln_Prep *p) {
  Attention x;
  PLN_TRY(check(p, 0, &x));
  pln_Shape out = with(&x.batch, 2, x.L, x.D), lse = with(&x.batch, 1, x.L, 0);
  PLN_TRY(pln_prep_out_contiguous(p, 0, (pln_DType)x.q->dtype, &out));
  if (p->op->nout > 1) PLN_TRY(pln_prep_out_contiguous(p, 1, (pln_DType)x.q->dtype, &lse));
  return lay_out(p, &x, 0);
}

pln_Status pln_prepare_sdpa(pln_Prep *p) { return forward(p); }
pln_Status pln_prepare_sdpa_forward(pln_Prep *p) { return forward(p); }

pln_Status pln_prepare_sdpa_backward(pln_Prep *p) {
  Attention x;
  PLN_TRY(check(p, 3, &x));
  pln_DType dtype = (pln_DType)x.q->dtype;
  pln_Shape out = with(&x.batch, 2, x.L, x.D), lse = with(&x.batch, 1, x.L, 0);
  pln_Shape dq = with(&x.batch, 2, x.L, x.E), dk = with(&x.batch, 2, x.S, x.E), dv = with(&x.batch, 2, x.S, x.D);
  static const char *const names[] = {"g", "y", "lse"};
  for (int i = 0; i < 3; i++) {
    const pln_Tensor *t = p->a->in[i];
    pln_Shape own = pln_tensor_shape(t);
    if (!pln_shape_equal(&own, i == 2 ? &lse : &out) || t->dtype != dtype) return wrong_shape(p, names[i], t, "shape or dtype does not fit");
  }
  PLN_TRY(pln_prep_out_contiguous(p, 0, dtype, &dq));
  PLN_TRY(pln_prep_out_contiguous(p, 1, dtype, &dk));
  PLN_TRY(pln_prep_out_contiguous(p, 2, dtype, &dv));
  p->done = 0; /* the first result may be empty while the others are not */
  for (int i = 0; i < 3; i++) {
    pln_Tensor *t;
    PLN_TRY(pln_prep_contiguous(p, p->a->in[i], &t));
    add(p, t, i == 2 ? &lse : &out, i == 2 ? 1 : 2, -1);
  }
  return lay_out(p, &x, 0);
}
