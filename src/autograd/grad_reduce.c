/* SPDX-License-Identifier: MIT
** grad_reduce.c -- reductions and cumsum. `dims` are the reduced ones as a mask; a gradient that came without them gets them back as 1.
*/
#include <math.h>

#include "calc.h"

typedef struct Reduced {
  pln_Shape shape;  /* of the operand */
  uint32_t dims;
  bool keepdim;
  double count;     /* elements that met in one */
} Reduced;

/* Options `dims` and `keepdim` at these places; for ops with a single dim it may be absent. */
static Reduced reduced(const pln_Node *n, int dims, int keepdim) {
  Reduced r = {pln_node_in_shape(n, 0), 0, n->opt[keepdim].i, 1};
  r.dims = pln_node_dims(n, dims, r.shape.ndim);
  for (int i = 0; i < r.shape.ndim; i++)
    if (r.dims >> i & 1) r.count *= (double)r.shape.size[i];
  return r;
}

static pln_Tensor *back(pln_Calc *c, pln_Tensor *t, const Reduced *r) { return pln_calc_unreduce(c, t, r->dims, r->keepdim, &r->shape); }

pln_Status plg_sum(pln_Node *n, pln_Tensor **dy, pln_Tensor **dx) {
  Reduced r = reduced(n, 0, 1);
  pln_Calc c;
  pln_calc_begin(&c, n->engine);
  dx[0] = pln_calc_keep(&c, pln_calc_expand(&c, back(&c, dy[0], &r), &r.shape));
  return pln_calc_end(&c);
}

pln_Status plg_mean(pln_Node *n, pln_Tensor **dy, pln_Tensor **dx) {
  Reduced r = reduced(n, 0, 1);
  pln_Calc c;
  pln_calc_begin(&c, n->engine);
  dx[0] = pln_calc_keep(&c, pln_calc_expand(&c, pln_calc_scale(&c, back(&c, dy[0], &r), 1 / r.count), &r.shape));
  return pln_calc_end(&c);
}

/* An op over the same dims, which stay as 1. */
static pln_Tensor *over(pln_Calc *c, pln_OpId op, pln_Tensor *x, const Reduced *r) {
  if (!r->dims) return x;
  pln_Args a;
  pln_Shape list = {0, {0}};
  for (int i = 0; i < r->shape.ndim; i++)
    if (r->dims >> i & 1) list.size[list.ndim++] = i + 1;
  pln_calc_args(c, op, &a);
  a.in[0] = x;
  pln_calc_list(&a, 0, &list);
  pln_calc_int(&a, 1, 1);
  return pln_calc_run(c, op, &a);
}

/* The product of all other elements: of those that are not 0, divided by the element, where exactly the zeros are the element itself. */
pln_Status plg_prod(pln_Node *n, pln_Tensor **dy, pln_Tensor **dx) {
  Reduced r = reduced(n, 0, 1);
  pln_Tensor *x = pln_node_in(n, 0);
  pln_Calc c;
  pln_calc_begin(&c, n->engine);
  pln_Tensor *zero = pln_calc_tn(&c, PLN_OP_eq, x, 0);
  pln_Tensor *rest = pln_calc_where(&c, pln_calc_tn(&c, PLN_OP_ne, x, 0), x, 1);
  pln_Tensor *others = pln_calc_div(&c, over(&c, PLN_OP_prod, rest, &r), rest);
  pln_Tensor *alone = pln_calc_op2(&c, PLN_OP_eq, over(&c, PLN_OP_sum, zero, &r), zero);
  dx[0] = pln_calc_keep(&c, pln_calc_mul(&c, back(&c, dy[0], &r), pln_calc_where(&c, alone, others, 0)));
  return pln_calc_end(&c);
}

/* Along a dim to where the value was found; without one in equal parts to all that equal it. */
pln_Status plg_extreme(pln_Node *n, pln_Tensor **dy, pln_Tensor **dx) {
  pln_Calc c;
  pln_calc_begin(&c, n->engine);
  if (!dy[0]) return pln_calc_end(&c);
  pln_Shape shape = pln_node_in_shape(n, 0);
  if (n->opt[0].given) {
    int dim = pln_node_dim(n, 0, shape.ndim);
    uint32_t dims = shape.ndim ? 1u << dim : 0;
    bool keepdim = n->opt[1].i;
    pln_Args a;
    pln_calc_args(&c, PLN_OP_gather_backward, &a);
    a.in[0] = pln_calc_unreduce(&c, dy[0], dims, keepdim, &shape);
    a.in[1] = pln_calc_unreduce(&c, pln_node_out(n, 1), dims, keepdim, &shape);
    pln_calc_int(&a, 0, dim + 1);
    pln_calc_list(&a, 1, &shape);
    dx[0] = pln_calc_keep(&c, pln_calc_run(&c, PLN_OP_gather_backward, &a));
    return pln_calc_end(&c);
  }
  pln_Tensor *y = pln_node_out(n, 0), *x = pln_node_in(n, 0), *g = dy[0];
  if (n->opt[1].i) { /* keepdim: all sizes are 1 */
    y = pln_calc_reshape(&c, y, &(pln_Shape){0, {0}});
    g = pln_calc_reshape(&c, g, &(pln_Shape){0, {0}});
  }
  Reduced r = {shape, shape.ndim ? (1u << shape.ndim) - 1 : 0, false, 0};
  pln_Tensor *here = pln_calc_op2(&c, PLN_OP_eq, x, y);
  pln_Tensor *share = pln_calc_div(&c, g, pln_calc_cast(&c, pln_calc_sum(&c, here, r.dims, false), (pln_DType)g->dtype));
  dx[0] = pln_calc_keep(&c, pln_calc_where(&c, here, share, 0));
  return pln_calc_end(&c);
}

pln_Status plg_var(pln_Node *n, pln_Tensor **dy, pln_Tensor **dx) {
  Reduced r = reduced(n, 0, 2);
  pln_Tensor *x = pln_node_in(n, 0);
  pln_Calc c;
  pln_calc_begin(&c, n->engine);
  pln_Tensor *distance = pln_calc_sub(&c, x, over(&c, PLN_OP_mean, x, &r));
  double rest = r.count - n->opt[1].num;
  dx[0] = pln_calc_keep(&c, pln_calc_mul(&c, pln_calc_scale(&c, back(&c, dy[0], &r), 2 / (rest > 0 ? rest : 0)), distance));
  return pln_calc_end(&c);
}

pln_Status plg_logsumexp(pln_Node *n, pln_Tensor **dy, pln_Tensor **dx) {
  Reduced r = reduced(n, 0, 1);
  pln_Calc c;
  pln_calc_begin(&c, n->engine);
  pln_Tensor *part = pln_calc_op1(&c, PLN_OP_exp, pln_calc_sub(&c, pln_node_in(n, 0), back(&c, pln_node_out(n, 0), &r)));
  dx[0] = pln_calc_keep(&c, pln_calc_mul(&c, back(&c, dy[0], &r), part));
  return pln_calc_end(&c);
}

static pln_Status scan(pln_Node *n, pln_OpId op, pln_Tensor **dy, pln_Tensor **dx) {
  pln_Calc c;
  pln_Args a;
  pln_calc_begin(&c, n->engine);
  pln_calc_args(&c, op, &a);
  a.in[0] = dy[0];
  pln_calc_int(&a, 0, n->opt[0].i);
  dx[0] = pln_calc_keep(&c, pln_calc_run(&c, op, &a));
  return pln_calc_end(&c);
}

pln_Status plg_cumsum(pln_Node *n, pln_Tensor **dy, pln_Tensor **dx) { return scan(n, PLN_OP_cumsum_reverse, dy, dx); }
pln_Status plg_cumsum_reverse(pln_Node *n, pln_Tensor **dy, pln_Tensor **dx) { return scan(n, PLN_OP_cumsum, dy, dx); }

/* g * sign(x) |x|^(p - 1) * y^(1 - p), 0 where y or (for p < 1) x is 0; for p = inf and -inf in equal parts to what has the value. */
pln_Status plg_norm(pln_Node *n, pln_Tensor **dy, pln_Tensor **dx) {
  Reduced r = reduced(n, 1, 2);
  double p = n->opt[0].num;
  pln_Tensor *x = pln_node_in(n, 0), *d;
  pln_Calc c;
  pln_calc_begin(&c, n->engine);
  pln_Tensor *y = back(&c, pln_node_out(n, 0), &r), *g = back(&c, dy[0], &r);
  pln_Tensor *some = pln_calc_tn(&c, PLN_OP_ne, y, 0);
  if (p == 0) {
    d = pln_calc_scale(&c, x, 0);
  } else if (p == 1) {
    d = pln_calc_mul(&c, g, pln_calc_op1(&c, PLN_OP_sign, x));
  } else if (p == 2) {
    d = pln_calc_mul(&c, x, pln_calc_where(&c, some, pln_calc_div(&c, g, y), 0));
  } else if (isinf(p)) {
    pln_Tensor *here = pln_calc_op2(&c, PLN_OP_eq, pln_calc_op1(&c, PLN_OP_abs, x), y);
    pln_Tensor *count = pln_calc_cast(&c, over(&c, PLN_OP_sum, here, &r), (pln_DType)x->dtype);
    d = pln_calc_mul(&c, pln_calc_where(&c, here, pln_calc_div(&c, g, count), 0), pln_calc_op1(&c, PLN_OP_sign, x));
  } else {
    pln_Tensor *slope = pln_calc_tn(&c, PLN_OP_pow, pln_calc_op1(&c, PLN_OP_abs, x), p - 1);
    if (p < 1) slope = pln_calc_where(&c, pln_calc_tn(&c, PLN_OP_ne, x, 0), slope, 0);
    pln_Tensor *scale = pln_calc_where(&c, some, pln_calc_mul(&c, g, pln_calc_tn(&c, PLN_OP_pow, y, 1 - p)), 0);
    d = pln_calc_mul(&c, pln_calc_mul(&c, slope, pln_calc_op1(&c, PLN_OP_sign, x)), scale);
  }
  dx[0] = pln_calc_keep(&c, d);
  return pln_calc_end(&c);
}
