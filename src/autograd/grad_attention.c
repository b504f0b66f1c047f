/* SPDX-License-Identifier: MIT
** grad_attention.c -- scaled dot-product attention: the fused gradient, or a formula made of ops where gradients are recorded or the mask wants one.
*/
#include <math.h>

#include "calc.h"

static pln_Status fused(pln_Calc *c, const pln_Node *n, pln_Tensor *g, pln_Tensor **dx) {
  pln_Args a;
  pln_calc_args(c, PLN_OP_sdpa_backward, &a);
  a.in[0] = g;
  a.in[1] = pln_node_out(n, 0);
  a.in[2] = pln_node_out(n, 1);
  for (int i = 0; i < 4; i++) a.in[3 + i] = pln_node_in(n, i);
  pln_calc_int(&a, 0, n->opt[0].i);
  a.opt[1].given = n->opt[1].given;
  a.opt[1].num = n->opt[1].num;
  (void)pln_calc_run(c, PLN_OP_sdpa_backward, &a);
  for (int i = 0; i < 3; i++)
    if (pln_node_wants(n, i)) dx[i] = pln_calc_keep(c, a.out[i]);
  return pln_calc_end(c);
}

static pln_Tensor *turned(pln_Calc *c, pln_Tensor *x) { return c->status == PLN_OK ? pln_calc_transpose(c, x, x->ndim - 2, x->ndim - 1) : NULL; }

/* Weights p: softmax of the scores, 0 in rows with nothing kept, whose lse is inf. */
static pln_Tensor *weights(pln_Calc *c, const pln_Node *n, double scale) {
  pln_Tensor *q = pln_node_in(n, 0), *k = pln_node_in(n, 1), *mask = pln_node_in(n, 3), *lse = pln_node_out(n, 1);
  pln_Tensor *s = pln_calc_scale(c, pln_calc_matmul(c, q, turned(c, k)), scale);
  if (mask && pln_dtype_is_float((pln_DType)mask->dtype))
    s = pln_calc_add(c, s, mask);
  else if (mask)
    s = pln_calc_where(c, mask, s, -INFINITY);
  if (c->status != PLN_OK) return NULL;
  pln_Args a;
  if (n->opt[0].i) {
    pln_Shape square = {2, {s->shape[s->ndim - 2], s->shape[s->ndim - 1]}};
    pln_calc_args(c, PLN_OP_tril, &a);
    a.in[0] = pln_calc_full(c, &square, PLN_BOOL, 1);
    s = pln_calc_where(c, pln_calc_run(c, PLN_OP_tril, &a), s, -INFINITY);
  }
  pln_Shape row = pln_tensor_shape(lse);
  row.size[row.ndim++] = 1;
  pln_Tensor *some = pln_calc_tn(c, PLN_OP_ne, pln_calc_reshape(c, lse, &row), INFINITY);
  pln_calc_args(c, PLN_OP_softmax, &a);
  a.in[0] = pln_calc_where(c, some, s, 0);
  pln_calc_int(&a, 0, -1);
  return pln_calc_where(c, some, pln_calc_run(c, PLN_OP_softmax, &a), 0);
}

pln_Status plg_sdpa(pln_Node *n, pln_Tensor **dy, pln_Tensor **dx) {
  pln_Calc c;
  pln_calc_begin(&c, n->engine);
  if (!c.graph && !pln_node_wants(n, 3)) return fused(&c, n, dy[0], dx);
  pln_Tensor *q = pln_node_in(n, 0), *k = pln_node_in(n, 1), *v = pln_node_in(n, 2), *g = dy[0];
  int64_t wide = q->shape[q->ndim - 1];
  double scale = n->opt[1].given ? n->opt[1].num : wide ? 1 / sqrt((double)wide) : 1;
  pln_Tensor *p = weights(&c, n, scale);
  if (pln_node_wants(n, 2)) dx[2] = pln_calc_keep(&c, pln_calc_matmul(&c, turned(&c, p), g));
  pln_Tensor *dp = pln_calc_mul(&c, p, pln_calc_matmul(&c, g, turned(&c, v)));
  if (c.status != PLN_OK) return pln_calc_end(&c);
  pln_Tensor *ds = pln_calc_sub(&c, dp, pln_calc_mul(&c, p, pln_calc_sum(&c, dp, 1u << (dp->ndim - 1), true)));
  if (pln_node_wants(n, 0)) dx[0] = pln_calc_keep(&c, pln_calc_scale(&c, pln_calc_matmul(&c, ds, k), scale));
  if (pln_node_wants(n, 1)) dx[1] = pln_calc_keep(&c, pln_calc_scale(&c, pln_calc_matmul(&c, turned(&c, ds), q), scale));
  if (pln_node_wants(n, 3)) dx[3] = pln_calc_keep(&c, ds);
  return pln_calc_end(&c);
}
