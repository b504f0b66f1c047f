/* SPDX-License-Identifier: MIT
** grad_index.c -- gathers, scatters and dropout: what is read by index is added by index, and the other way round.
*/
#include "../fault.h"
#include "../ops/random.h"
#include "calc.h"

/* An op of (g, index, dim and one more option): a.opt are set by the caller before. */
static pln_Status by_index(pln_Node *n, pln_OpId op, pln_Tensor *first, pln_Tensor *second, const pln_Opt *opt, int nopts, pln_Tensor **dx) {
  pln_Calc c;
  pln_Args a;
  pln_calc_begin(&c, n->engine);
  pln_calc_args(&c, op, &a);
  a.in[0] = first;
  a.in[1] = second;
  for (int i = 0; i < nopts; i++) a.opt[i] = opt[i];
  *dx = pln_calc_keep(&c, pln_calc_run(&c, op, &a));
  return pln_calc_end(&c);
}

static pln_Opt integer(int64_t v) { return (pln_Opt){1, (double)v, v, {-1, {0}}}; }

pln_Status plg_gather(pln_Node *n, pln_Tensor **dy, pln_Tensor **dx) {
  pln_Opt opt[2] = {integer(n->opt[0].i), {1, 0, 0, pln_node_in_shape(n, 0)}};
  return by_index(n, PLN_OP_gather_backward, dy[0], pln_node_in(n, 1), opt, 2, &dx[0]);
}

pln_Status plg_gather_backward(pln_Node *n, pln_Tensor **dy, pln_Tensor **dx) {
  pln_Opt opt[1] = {integer(n->opt[0].i)};
  return by_index(n, PLN_OP_gather, dy[0], pln_node_in(n, 1), opt, 1, &dx[0]);
}

pln_Status plg_index_select(pln_Node *n, pln_Tensor **dy, pln_Tensor **dx) {
  pln_Shape shape = pln_node_in_shape(n, 0);
  int dim = pln_node_dim(n, 0, shape.ndim);
  pln_Opt opt[2] = {integer(n->opt[0].i), integer(shape.ndim ? shape.size[dim] : 1)};
  return by_index(n, PLN_OP_index_select_backward, dy[0], pln_node_in(n, 1), opt, 2, &dx[0]);
}

pln_Status plg_index_select_backward(pln_Node *n, pln_Tensor **dy, pln_Tensor **dx) {
  pln_Opt opt[1] = {integer(n->opt[0].i)};
  return by_index(n, PLN_OP_index_select, dy[0], pln_node_in(n, 1), opt, 1, &dx[0]);
}

pln_Status plg_embedding(pln_Node *n, pln_Tensor **dy, pln_Tensor **dx) {
  pln_Opt opt[1] = {integer(pln_node_in_shape(n, 1).size[0])};
  return by_index(n, PLN_OP_embedding_backward, dy[0], pln_node_in(n, 0), opt, 1, &dx[1]);
}

pln_Status plg_embedding_backward(pln_Node *n, pln_Tensor **dy, pln_Tensor **dx) {
  return by_index(n, PLN_OP_embedding, pln_node_in(n, 1), dy[0], NULL, 0, &dx[0]);
}

/* src may be larger than index: the rest was not added. */
pln_Status plg_scatter_add(pln_Node *n, pln_Tensor **dy, pln_Tensor **dx) {
  pln_Calc c;
  pln_calc_begin(&c, n->engine);
  if (pln_node_wants(n, 0)) dx[0] = pln_calc_keep(&c, dy[0]);
  if (pln_node_wants(n, 2)) {
    pln_Tensor *index = pln_node_in(n, 1);
    pln_Shape shape = pln_node_in_shape(n, 2), own = pln_tensor_shape(index);
    pln_Args a;
    pln_calc_args(&c, PLN_OP_gather, &a);
    a.in[0] = dy[0];
    a.in[1] = index;
    pln_calc_int(&a, 0, n->opt[0].i);
    pln_Tensor *d = pln_calc_run(&c, PLN_OP_gather, &a);
    if (!pln_shape_equal(&shape, &own)) {
      pln_Shape first = {shape.ndim, {0}};
      for (int i = 0; i < shape.ndim; i++) first.size[i] = 1;
      pln_calc_args(&c, PLN_OP_slice_backward, &a);
      a.in[0] = d;
      pln_calc_list(&a, 0, &first);
      pln_calc_list(&a, 1, &own);
      pln_calc_list(&a, 2, &first);
      pln_calc_list(&a, 3, &shape);
      d = pln_calc_run(&c, PLN_OP_slice_backward, &a);
    }
    dx[2] = pln_calc_keep(&c, d);
  }
  return pln_calc_end(&c);
}

/* The mask is made again from its draw, which a capture keeps in a tensor (ops/random.h). */
static pln_Status mask_again(pln_Node *n, double p, pln_Tensor *drawn, double draw, int64_t seed, pln_Tensor **dy, pln_Tensor **dx) {
  pln_Calc c;
  pln_Args a;
  pln_calc_begin(&c, n->engine);
  pln_calc_args(&c, PLN_OP_dropout_backward, &a);
  a.in[0] = dy[0];
  a.in[1] = drawn;
  if (!drawn) {
    a.numbers = 2;
    a.num[1] = PLN_FAULT(mask_redrawn) ? draw + 1 : draw;
  }
  pln_calc_num(&a, 0, p);
  pln_calc_int(&a, 1, seed);
  dx[0] = pln_calc_keep(&c, pln_calc_run(&c, PLN_OP_dropout_backward, &a));
  return pln_calc_end(&c);
}

pln_Status plg_dropout(pln_Node *n, pln_Tensor **dy, pln_Tensor **dx) {
  const pln_Kept *used = &n->opt[n->op->nopt];
  pln_Tensor *t = pln_node_in(n, n->op->nin);
  if (t || used->given) return mask_again(n, n->opt[0].num, t, (double)used->i, pln_random_seed(used->num), dy, dx);
  pln_tensor_retain(dy[0]); /* not training: a copy */
  dx[0] = dy[0];
  return PLN_OK;
}

pln_Status plg_dropout_backward(pln_Node *n, pln_Tensor **dy, pln_Tensor **dx) {
  return mask_again(n, n->opt[0].num, pln_node_in(n, 1), n->edge[1].number, n->opt[1].i, dy, dx);
}
