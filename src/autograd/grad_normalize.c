/* SPDX-License-Identifier: MIT
** grad_normalize.c -- softmax and its kin, cross entropy, the norm layers: fused backward ops, or formulas made of ops where gradients are
** recorded.
*/
#include "calc.h"

/* --- softmax ------------------------------------------------------------------------------------ */

static pln_Tensor *fused_softmax(pln_Calc *c, pln_OpId op, pln_Tensor *g, pln_Tensor *y, int64_t dim) {
  pln_Args a;
  pln_calc_args(c, op, &a);
  a.in[0] = g;
  a.in[1] = y;
  pln_calc_int(&a, 0, dim);
  return pln_calc_run(c, op, &a);
}

static uint32_t along(const pln_Tensor *x, int dim) { return x->ndim ? 1u << dim : 0; }

pln_Status plg_softmax(pln_Node *n, pln_Tensor **dy, pln_Tensor **dx) {
  pln_Tensor *y = pln_node_out(n, 0), *g = dy[0], *d;
  pln_Calc c;
  pln_calc_begin(&c, n->engine);
  if (c.graph) {
    pln_Tensor *part = pln_calc_mul(&c, g, y);
    d = pln_calc_sub(&c, part, pln_calc_mul(&c, y, pln_calc_sum(&c, part, along(y, pln_node_dim(n, 0, y->ndim)), true)));
  } else {
    d = fused_softmax(&c, PLN_OP_softmax_backward, g, y, n->opt[0].i);
  }
  dx[0] = pln_calc_keep(&c, d);
  return pln_calc_end(&c);
}

pln_Status plg_log_softmax(pln_Node *n, pln_Tensor **dy, pln_Tensor **dx) {
  pln_Tensor *y = pln_node_out(n, 0), *g = dy[0], *d;
  pln_Calc c;
  pln_calc_begin(&c, n->engine);
  if (c.graph) {
    pln_Tensor *whole = pln_calc_sum(&c, g, along(y, pln_node_dim(n, 0, y->ndim)), true);
    d = pln_calc_sub(&c, g, pln_calc_mul(&c, pln_calc_op1(&c, PLN_OP_exp, y), whole));
  } else {
    d = fused_softmax(&c, PLN_OP_log_softmax_backward, g, y, n->opt[0].i);
  }
  dx[0] = pln_calc_keep(&c, d);
  return pln_calc_end(&c);
}

/* --- cross entropy ------------------------------------------------------------------------------ */

/* The loss of a lane n is -sum over c of w_c q_nc log p_nc, with q = (1 - smoothing) * target + smoothing / C, and lanes with ignore_index left
** out; the mean over class targets divides by the sum of w[target], the one over probabilities by the number of lanes. */
typedef struct Loss {
  pln_Tensor *x, *weight;  /* weight: shaped to x's dims, NULL absent */
  pln_Tensor *onehot;      /* of class targets, 0 in lanes left out; else the probabilities */
  pln_Tensor *q;
  pln_Tensor *g;           /* of each lane, of x's dims with 1 class */
  pln_Tensor *total;       /* the mean's divisor, NULL a number */
  int dim;
  bool probabilities, mean;
} Loss;

static pln_Tensor *one_hot(pln_Calc *c, const Loss *l, pln_Tensor *target, bool ignores, int64_t ignored, int64_t classes, pln_Tensor **kept_p) {
  pln_Args a;
  pln_Shape order = {l->x->ndim, {0}};
  *kept_p = NULL;
  if (ignores) {
    *kept_p = pln_calc_tn(c, PLN_OP_ne, target, (double)ignored);
    target = pln_calc_where(c, *kept_p, target, 1);
  }
  pln_calc_args(c, PLN_OP_one_hot, &a);
  a.in[0] = target;
  pln_calc_int(&a, 0, classes);
  pln_Tensor *hot = pln_calc_run(c, PLN_OP_one_hot, &a);
  if (c->status != PLN_OK) return NULL;
  for (int i = 0; i < order.ndim; i++) order.size[i] = i < l->dim ? i + 1 : i == l->dim ? order.ndim : i;
  pln_calc_args(c, PLN_OP_permute, &a);
  a.in[0] = hot;
  pln_calc_list(&a, 0, &order);
  return pln_calc_cast(c, pln_calc_run(c, PLN_OP_permute, &a), (pln_DType)l->x->dtype);
}

static void prepare_loss(pln_Calc *c, const pln_Node *n, pln_Tensor *g, Loss *l) {
  pln_Tensor *target = pln_node_in(n, 1), *kept = NULL;
  l->x = pln_node_in(n, 0);
  l->dim = l->x->ndim == 1 ? 0 : 1;
  l->probabilities = pln_dtype_is_float((pln_DType)target->dtype);
  l->mean = n->opt[1].i == 1;
  l->total = l->weight = NULL;
  double smoothing = n->opt[2].num, classes = (double)l->x->shape[l->dim], lanes = classes ? (double)l->x->numel / classes : 0;
  pln_Shape lane = pln_tensor_shape(l->x), whole = lane;
  lane.size[l->dim] = 1;
  if (pln_node_in(n, 2)) {
    for (int i = 0; i < whole.ndim; i++)
      if (i != l->dim) whole.size[i] = 1;
    l->weight = pln_calc_reshape(c, pln_node_in(n, 2), &whole);
  }
  l->onehot = l->probabilities ? target : one_hot(c, l, target, n->opt[0].given, n->opt[0].i, (int64_t)classes, &kept);
  if (kept) {
    kept = pln_calc_cast(c, pln_calc_reshape(c, kept, &lane), (pln_DType)l->x->dtype);
    l->onehot = pln_calc_mul(c, l->onehot, kept);
  }
  l->q = smoothing ? pln_calc_tn(c, PLN_OP_add, pln_calc_scale(c, l->onehot, 1 - smoothing), smoothing / classes) : l->onehot;
  if (kept && smoothing) l->q = pln_calc_mul(c, l->q, kept);
  l->g = n->opt[1].i == 0 ? pln_calc_reshape(c, g, &lane) : g;
  if (!l->mean) return;
  if (l->probabilities) {
    l->g = pln_calc_scale(c, g, 1 / lanes);
    return;
  }
  l->total = l->weight ? pln_calc_mul(c, l->onehot, l->weight) : l->onehot;
  l->total = pln_calc_sum(c, l->total, (1u << l->x->ndim) - 1, false);
  l->g = pln_calc_div(c, g, l->total);
}

static pln_Tensor *log_softmax(pln_Calc *c, const Loss *l) {
  pln_Args a;
  pln_calc_args(c, PLN_OP_log_softmax, &a);
  a.in[0] = l->x;
  pln_calc_int(&a, 0, l->dim + 1);
  return pln_calc_run(c, PLN_OP_log_softmax, &a);
}

static void loss_gradients(pln_Calc *c, const pln_Node *n, pln_Tensor *g, pln_Tensor **dx, bool of_x) {
  Loss l;
  prepare_loss(c, n, g, &l);
  pln_Tensor *wq = l.weight ? pln_calc_mul(c, l.q, l.weight) : l.q, *logs = log_softmax(c, &l);
  if (of_x) {
    pln_Tensor *p = pln_calc_op1(c, PLN_OP_exp, logs);
    pln_Tensor *d = pln_calc_sub(c, pln_calc_mul(c, p, pln_calc_sum(c, wq, 1u << l.dim, true)), wq);
    dx[0] = pln_calc_keep(c, pln_calc_mul(c, d, l.g));
  }
  if (pln_node_wants(n, 1)) {
    pln_Tensor *d = pln_calc_mul(c, logs, pln_calc_scale(c, l.g, n->opt[2].num - 1));
    dx[1] = pln_calc_keep(c, l.weight ? pln_calc_mul(c, d, l.weight) : d);
  }
  if (!pln_node_wants(n, 2)) return;
  pln_Shape shape = pln_node_in_shape(n, 2);
  uint32_t others = ((1u << l.x->ndim) - 1) & ~(1u << l.dim);
  pln_Tensor *d = pln_calc_sum(c, pln_calc_mul(c, pln_calc_mul(c, l.q, logs), pln_calc_op1(c, PLN_OP_neg, l.g)), others, true);
  if (l.total) /* the divisor has the weights in it too */
    d = pln_calc_sub(c, d, pln_calc_mul(c, pln_calc_mul(c, l.g, pln_node_out(n, 0)), pln_calc_sum(c, l.onehot, others, true)));
  dx[2] = pln_calc_keep(c, pln_calc_reshape(c, d, &shape));
}

pln_Status plg_cross_entropy(pln_Node *n, pln_Tensor **dy, pln_Tensor **dx) {
  pln_Calc c;
  pln_calc_begin(&c, n->engine);
  bool fused = pln_node_wants(n, 0) && !c.graph;
  if (fused) {
    pln_Args a;
    pln_calc_args(&c, PLN_OP_cross_entropy_backward, &a);
    a.in[0] = dy[0];
    for (int i = 0; i < 3; i++) a.in[1 + i] = pln_node_in(n, i);
    for (int i = 0; i < 3; i++) {
      a.opt[i].given = n->opt[i].given;
      a.opt[i].i = n->opt[i].i;
      a.opt[i].num = n->opt[i].num;
    }
    dx[0] = pln_calc_keep(&c, pln_calc_run(&c, PLN_OP_cross_entropy_backward, &a));
  }
  if ((pln_node_wants(n, 0) && !fused) || pln_node_wants(n, 1) || pln_node_wants(n, 2))
    loss_gradients(&c, n, dy[0], dx, pln_node_wants(n, 0) && !fused);
  return pln_calc_end(&c);
}

/* --- norm layers -------------------------------------------------------------------------------- */

/* g times the weight, x in units of its deviation, and 1 / deviation, all over `dims`. */
static pln_Tensor *norm_formula(pln_Calc *c, pln_Tensor *x, pln_Tensor *gw, uint32_t dims, double eps, bool centered, pln_Tensor **unit_p) {
  pln_Args a;
  pln_Shape list = {0, {0}};
  for (int i = 0; i < x->ndim; i++)
    if (dims >> i & 1) list.size[list.ndim++] = i + 1;
  pln_Tensor *mean[3], *d = x;
  for (int k = 0; k < 3; k++) {
    if (k == 0 && !centered) continue;
    if (k == 1) {
      if (centered) d = pln_calc_sub(c, x, mean[0]);
    }
    pln_Tensor *of = k == 0 ? x : k == 1 ? pln_calc_mul(c, d, d) : gw;
    pln_calc_args(c, PLN_OP_mean, &a);
    a.in[0] = of;
    pln_calc_list(&a, 0, &list);
    pln_calc_int(&a, 1, 1);
    mean[k] = pln_calc_run(c, PLN_OP_mean, &a);
  }
  pln_Tensor *rstd = pln_calc_op1(c, PLN_OP_rsqrt, pln_calc_tn(c, PLN_OP_add, mean[1], eps));
  pln_Tensor *unit = *unit_p = pln_calc_mul(c, d, rstd);
  pln_calc_args(c, PLN_OP_mean, &a);
  a.in[0] = pln_calc_mul(c, gw, unit);
  pln_calc_list(&a, 0, &list);
  pln_calc_int(&a, 1, 1);
  pln_Tensor *slope = pln_calc_mul(c, unit, pln_calc_run(c, PLN_OP_mean, &a));
  pln_Tensor *rest = pln_calc_sub(c, centered ? pln_calc_sub(c, gw, mean[2]) : gw, slope);
  return pln_calc_mul(c, rest, rstd);
}

/* Weight and bias from g and x's units, both of x's shape. */
static void affine_gradients(pln_Calc *c, const pln_Node *n, pln_Tensor *g, pln_Tensor *unit, const pln_Shape *as, pln_Tensor **dx) {
  for (int i = 1; i < (int)n->nedges; i++) {
    if (!pln_node_wants(n, i)) continue;
    pln_Shape own = pln_node_in_shape(n, i);
    pln_Tensor *d = i == 1 ? pln_calc_mul(c, g, unit) : g;
    dx[i] = pln_calc_keep(c, pln_calc_reshape(c, pln_calc_sum_to(c, d, as), &own));
  }
}

/* The fused op; results beyond the first are there iff affine. */
static pln_Status fused_norm(pln_Calc *c, pln_Node *n, pln_OpId op, int nstats, pln_Tensor *g, pln_Tensor **dx) {
  pln_Args a;
  bool affine = pln_node_wants(n, 1) || (n->nedges > 2 && pln_node_wants(n, 2));
  pln_calc_args(c, op, &a);
  a.in[0] = g;
  a.in[1] = pln_node_in(n, 0);
  for (int k = 0; k < nstats; k++) a.in[2 + k] = pln_node_out(n, 1 + k);
  a.in[2 + nstats] = pln_node_in(n, 1);
  a.opt[0].given = 1;
  a.opt[0].i = n->opt[0].i;
  a.opt[0].list = pln_node_list(n, 0);
  pln_calc_int(&a, 1, affine);
  pln_Tensor *d = pln_calc_run(c, op, &a);
  if (pln_node_wants(n, 0)) dx[0] = pln_calc_keep(c, d);
  if (pln_node_wants(n, 1)) dx[1] = pln_calc_keep(c, a.out[1]);
  if (n->nedges > 2 && pln_node_wants(n, 2)) dx[2] = pln_calc_keep(c, a.out[2]);
  return pln_calc_end(c);
}

static pln_Status layer(pln_Node *n, bool centered, pln_OpId fused, pln_Tensor **dy, pln_Tensor **dx) {
  pln_Calc c;
  pln_calc_begin(&c, n->engine);
  if (!c.graph) return fused_norm(&c, n, fused, centered ? 2 : 1, dy[0], dx);
  pln_Tensor *x = pln_node_in(n, 0), *weight = pln_node_in(n, 1), *unit;
  pln_Shape lanes = pln_node_list(n, 0);
  uint32_t dims = ((1u << lanes.ndim) - 1) << (x->ndim - lanes.ndim);
  pln_Tensor *d = norm_formula(&c, x, weight ? pln_calc_mul(&c, dy[0], weight) : dy[0], dims, n->opt[1].num, centered, &unit);
  if (pln_node_wants(n, 0)) dx[0] = pln_calc_keep(&c, d);
  affine_gradients(&c, n, dy[0], unit, &lanes, dx);
  return pln_calc_end(&c);
}

pln_Status plg_layer_norm(pln_Node *n, pln_Tensor **dy, pln_Tensor **dx) { return layer(n, true, PLN_OP_layer_norm_backward, dy, dx); }
pln_Status plg_rms_norm(pln_Node *n, pln_Tensor **dy, pln_Tensor **dx) { return layer(n, false, PLN_OP_rms_norm_backward, dy, dx); }

/* Groups of channels as lanes of (N, groups, rest). */
pln_Status plg_group_norm(pln_Node *n, pln_Tensor **dy, pln_Tensor **dx) {
  pln_Calc c;
  pln_calc_begin(&c, n->engine);
  if (!c.graph) return fused_norm(&c, n, PLN_OP_group_norm_backward, 2, dy[0], dx);
  pln_Tensor *x = pln_node_in(n, 0), *weight = pln_node_in(n, 1), *unit;
  pln_Shape shape = pln_tensor_shape(x), channels = shape, lanes = {3, {shape.size[0], n->opt[0].i, 0}};
  int64_t groups = shape.size[0] * lanes.size[1];
  lanes.size[2] = groups ? x->numel / groups : 0;
  for (int i = 0; i < channels.ndim; i++)
    if (i != 1) channels.size[i] = 1;
  pln_Tensor *gw = weight ? pln_calc_mul(&c, dy[0], pln_calc_reshape(&c, weight, &channels)) : dy[0];
  pln_Tensor *d = norm_formula(&c, pln_calc_reshape(&c, x, &lanes), pln_calc_reshape(&c, gw, &lanes), 4, n->opt[1].num, true, &unit);
  if (pln_node_wants(n, 0)) dx[0] = pln_calc_keep(&c, pln_calc_reshape(&c, d, &shape));
  affine_gradients(&c, n, dy[0], pln_calc_reshape(&c, unit, &shape), &channels, dx);
  return pln_calc_end(&c);
}
