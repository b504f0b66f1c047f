/* SPDX-License-Identifier: MIT
** grad_matmul.c -- matrix products: transposed products without copies.
*/
#include "calc.h"

static pln_Shape with_dim(const pln_Shape *s, int at) {
  pln_Shape r = {s->ndim + 1, {0}};
  for (int i = 0; i < r.ndim; i++) r.size[i] = i == at ? 1 : s->size[i - (i > at)];
  return r;
}

/* What lies before the last dim as one dim. */
static pln_Shape rows(const pln_Shape *s) {
  pln_Shape r = {2, {1, s->ndim ? s->size[s->ndim - 1] : 1}};
  for (int i = 0; i < s->ndim - 1; i++) r.size[0] *= s->size[i];
  return r;
}

static pln_Tensor *turned(pln_Calc *c, pln_Tensor *x) { return c->status == PLN_OK ? pln_calc_transpose(c, x, x->ndim - 2, x->ndim - 1) : NULL; }

/* A vector operand is a matrix of one row (a) or one column (b). */
pln_Status plg_matmul(pln_Node *n, pln_Tensor **dy, pln_Tensor **dx) {
  pln_Shape sa = pln_node_in_shape(n, 0), sb = pln_node_in_shape(n, 1);
  pln_Shape ma = sa.ndim == 1 ? with_dim(&sa, 0) : sa, mb = sb.ndim == 1 ? with_dim(&sb, 1) : sb;
  pln_Calc c;
  pln_calc_begin(&c, n->engine);
  pln_Tensor *g = dy[0];
  pln_Shape sg = pln_tensor_shape(g);
  if (sb.ndim == 1) sg = with_dim(&sg, sg.ndim);
  if (sa.ndim == 1) sg = with_dim(&sg, sg.ndim - 1);
  if (sg.ndim != g->ndim) g = pln_calc_reshape(&c, g, &sg);
  if (pln_node_wants(n, 0)) {
    pln_Tensor *d = pln_calc_matmul(&c, g, turned(&c, pln_calc_reshape(&c, pln_node_in(n, 1), &mb)));
    dx[0] = pln_calc_keep(&c, pln_calc_reshape(&c, pln_calc_sum_to(&c, d, &ma), &sa));
  }
  if (pln_node_wants(n, 1)) {
    pln_Tensor *a = pln_node_in(n, 0), *d;
    if (mb.ndim == 2 && ma.ndim > 2) { /* one product instead of a sum of many */
      pln_Shape ra = rows(&ma), rg = rows(&sg);
      d = pln_calc_matmul(&c, turned(&c, pln_calc_reshape(&c, a, &ra)), pln_calc_reshape(&c, g, &rg));
    } else {
      d = pln_calc_matmul(&c, turned(&c, pln_calc_reshape(&c, a, &ma)), g);
    }
    dx[1] = pln_calc_keep(&c, pln_calc_reshape(&c, pln_calc_sum_to(&c, d, &mb), &sb));
  }
  return pln_calc_end(&c);
}

static pln_Tensor *scaled(pln_Calc *c, pln_Tensor *x, double by) { return by == 1 ? x : pln_calc_scale(c, x, by); }

pln_Status plg_addmm(pln_Node *n, pln_Tensor **dy, pln_Tensor **dx) {
  double beta = n->opt[0].num, alpha = n->opt[1].num;
  pln_Calc c;
  pln_calc_begin(&c, n->engine);
  if (pln_node_wants(n, 0)) dx[0] = pln_calc_keep(&c, scaled(&c, dy[0], beta));
  if (pln_node_wants(n, 1)) dx[1] = pln_calc_keep(&c, scaled(&c, pln_calc_matmul(&c, dy[0], turned(&c, pln_node_in(n, 2))), alpha));
  if (pln_node_wants(n, 2)) dx[2] = pln_calc_keep(&c, scaled(&c, pln_calc_matmul(&c, turned(&c, pln_node_in(n, 1)), dy[0]), alpha));
  return pln_calc_end(&c);
}

/* x (.., in), w (out, in) or (in), b. */
pln_Status plg_linear(pln_Node *n, pln_Tensor **dy, pln_Tensor **dx) {
  pln_Shape sx = pln_node_in_shape(n, 0), sw = pln_node_in_shape(n, 1);
  pln_Shape mx = rows(&sx), mw = sw.ndim == 1 ? with_dim(&sw, 0) : sw, mg = {2, {mx.size[0], mw.size[0]}};
  pln_Calc c;
  pln_calc_begin(&c, n->engine);
  pln_Tensor *g = pln_calc_reshape(&c, dy[0], &mg);
  if (pln_node_wants(n, 0))
    dx[0] = pln_calc_keep(&c, pln_calc_reshape(&c, pln_calc_matmul(&c, g, pln_calc_reshape(&c, pln_node_in(n, 1), &mw)), &sx));
  if (pln_node_wants(n, 1)) {
    pln_Tensor *x = pln_calc_reshape(&c, pln_node_in(n, 0), &mx);
    dx[1] = pln_calc_keep(&c, pln_calc_reshape(&c, pln_calc_matmul(&c, turned(&c, g), x), &sw));
  }
  if (pln_node_wants(n, 2)) {
    pln_Shape sb = pln_node_in_shape(n, 2);
    dx[2] = pln_calc_keep(&c, pln_calc_reshape(&c, pln_calc_sum(&c, g, 1, false), &sb));
  }
  return pln_calc_end(&c);
}

/* The transform is its own transpose. */
pln_Status plg_hadamard(pln_Node *n, pln_Tensor **dy, pln_Tensor **dx) {
  pln_Calc c;
  pln_calc_begin(&c, n->engine);
  dx[0] = pln_calc_keep(&c, pln_calc_op1(&c, PLN_OP_hadamard_transform, dy[0]));
  return pln_calc_end(&c);
}
