/* SPDX-License-Identifier: MIT
** grad_view.c -- views, joins and other ways to move elements: each gradient moves them back.
*/
#include "../alloc.h"
#include "calc.h"

/* reshape, view, flatten, squeeze, unsqueeze, contiguous */
pln_Status plg_reshape(pln_Node *n, pln_Tensor **dy, pln_Tensor **dx) {
  pln_Shape shape = pln_node_in_shape(n, 0);
  pln_Calc c;
  pln_calc_begin(&c, n->engine);
  dx[0] = pln_calc_keep(&c, pln_calc_reshape(&c, dy[0], &shape));
  return pln_calc_end(&c);
}

pln_Status plg_permute(pln_Node *n, pln_Tensor **dy, pln_Tensor **dx) {
  pln_Shape dims = pln_node_list(n, 0), inverse = dims;
  pln_Calc c;
  pln_Args a;
  for (int i = 0; i < dims.ndim; i++) inverse.size[dims.size[i] > 0 ? dims.size[i] - 1 : dims.size[i] + dims.ndim] = i + 1;
  pln_calc_begin(&c, n->engine);
  pln_calc_args(&c, PLN_OP_permute, &a);
  a.in[0] = dy[0];
  pln_calc_list(&a, 0, &inverse);
  dx[0] = pln_calc_keep(&c, pln_calc_run(&c, PLN_OP_permute, &a));
  return pln_calc_end(&c);
}

pln_Status plg_transpose(pln_Node *n, pln_Tensor **dy, pln_Tensor **dx) {
  int ndim = n->edge[0].ndim;
  pln_Calc c;
  pln_calc_begin(&c, n->engine);
  dx[0] = pln_calc_keep(&c, ndim ? pln_calc_transpose(&c, dy[0], pln_node_dim(n, 0, ndim), pln_node_dim(n, 1, ndim)) : dy[0]);
  return pln_calc_end(&c);
}

pln_Status plg_t(pln_Node *n, pln_Tensor **dy, pln_Tensor **dx) {
  pln_Calc c;
  pln_calc_begin(&c, n->engine);
  dx[0] = pln_calc_keep(&c, pln_calc_op1(&c, PLN_OP_t, dy[0]));
  return pln_calc_end(&c);
}

/* --- parts -------------------------------------------------------------------------------------- */

/* g as the part of zeros that `slice` with these lists takes. */
static pln_Tensor *embed(pln_Calc *c, pln_Tensor *g, const pln_Shape *first, const pln_Shape *last, const pln_Shape *step, const pln_Shape *shape) {
  pln_Args a;
  pln_calc_args(c, PLN_OP_slice_backward, &a);
  a.in[0] = g;
  pln_calc_list(&a, 0, first);
  pln_calc_list(&a, 1, last);
  pln_calc_list(&a, 2, step);
  pln_calc_list(&a, 3, shape);
  return pln_calc_run(c, PLN_OP_slice_backward, &a);
}

pln_Status plg_slice(pln_Node *n, pln_Tensor **dy, pln_Tensor **dx) {
  pln_Shape first = pln_node_list(n, 0), last = pln_node_list(n, 1), step = pln_node_list(n, 2), shape = pln_node_in_shape(n, 0);
  pln_Calc c;
  pln_calc_begin(&c, n->engine);
  dx[0] = pln_calc_keep(&c, embed(&c, dy[0], &first, &last, &step, &shape));
  return pln_calc_end(&c);
}

pln_Status plg_slice_backward(pln_Node *n, pln_Tensor **dy, pln_Tensor **dx) {
  pln_Calc c;
  pln_Args a;
  pln_calc_begin(&c, n->engine);
  pln_calc_args(&c, PLN_OP_slice, &a);
  a.in[0] = dy[0];
  for (int i = 0; i < 3; i++) {
    pln_Shape list = pln_node_list(n, i);
    pln_calc_list(&a, i, &list);
  }
  dx[0] = pln_calc_keep(&c, pln_calc_run(&c, PLN_OP_slice, &a));
  return pln_calc_end(&c);
}

/* `length` elements of one dim from `start` (0-based) on; step 0 is one index whose dim is gone. */
static pln_Status part(pln_Node *n, pln_Tensor *g, int dim, int64_t start, int64_t length, int step, pln_Tensor **dx) {
  pln_Shape shape = pln_node_in_shape(n, 0), first = {dim + 1, {0}}, last = first, by = first;
  pln_Calc c;
  for (int i = 0; i < dim; i++) {
    first.size[i] = by.size[i] = 1;
    last.size[i] = shape.size[i]; /* of nothing it is the empty range 1..0 */
  }
  first.size[dim] = start + 1;
  last.size[dim] = start + length;
  by.size[dim] = step;
  pln_calc_begin(&c, n->engine);
  *dx = pln_calc_keep(&c, embed(&c, g, &first, &last, &by, &shape));
  return pln_calc_end(&c);
}

static int64_t start_of(const pln_Node *n, int opt, int dim) {
  int64_t start = n->opt[opt].i;
  return start > 0 ? start - 1 : start + n->sizes[n->edge[0].sizes + (uint32_t)dim];
}

pln_Status plg_narrow(pln_Node *n, pln_Tensor **dy, pln_Tensor **dx) {
  int dim = pln_node_dim(n, 0, n->edge[0].ndim);
  return part(n, dy[0], dim, start_of(n, 1, dim), n->opt[2].i, 1, &dx[0]);
}

pln_Status plg_select(pln_Node *n, pln_Tensor **dy, pln_Tensor **dx) {
  int dim = pln_node_dim(n, 0, n->edge[0].ndim);
  return part(n, dy[0], dim, start_of(n, 1, dim), 1, 0, &dx[0]);
}

/* split, chunk: the pieces side by side, zeros for those that nobody used. */
pln_Status plg_split(pln_Node *n, pln_Tensor **dy, pln_Tensor **dx) {
  int dim = pln_node_dim(n, 1, n->edge[0].ndim);
  pln_Calc c;
  pln_Tensor **piece = pln_malloc(n->nouts * sizeof *piece);
  if (!piece) return pln_fail(PLN_ENOMEM, "out of memory for the list of %u gradients", n->nouts);
  uint32_t made = 0;
  pln_Status status = PLN_OK;
  for (; made < n->nouts && status == PLN_OK; made++) {
    pln_Shape shape = pln_node_out_shape(n, (int)made);
    pln_calc_begin(&c, n->engine);
    piece[made] = pln_calc_keep(&c, dy[made] ? dy[made] : pln_calc_full(&c, &shape, (pln_DType)n->out[made].dtype, 0));
    status = pln_calc_end(&c);
  }
  if (status != PLN_OK) made--;
  if (status == PLN_OK) {
    pln_Args a;
    pln_calc_begin(&c, n->engine);
    pln_calc_args(&c, PLN_OP_concat, &a);
    a.list = piece;
    a.nlist = (int)n->nouts;
    pln_calc_int(&a, 0, dim + 1);
    dx[0] = pln_calc_keep(&c, pln_calc_run(&c, PLN_OP_concat, &a));
    status = pln_calc_end(&c);
  }
  while (made) pln_tensor_release(piece[--made]);
  pln_mfree(piece);
  return status;
}

/* --- joins -------------------------------------------------------------------------------------- */

pln_Status plg_concat(pln_Node *n, pln_Tensor **dy, pln_Tensor **dx) {
  int dim = pln_node_dim(n, 0, n->edge[0].ndim);
  int64_t at = 0;
  for (uint32_t i = 0; i < n->nedges; i++) {
    int64_t size = n->sizes[n->edge[i].sizes + (uint32_t)dim];
    if (pln_node_wants(n, (int)i)) {
      pln_Calc c;
      pln_calc_begin(&c, n->engine);
      dx[i] = pln_calc_keep(&c, pln_calc_narrow(&c, dy[0], dim, size ? at : 0, size));
      PLN_TRY(pln_calc_end(&c));
    }
    at += size;
  }
  return PLN_OK;
}

pln_Status plg_stack(pln_Node *n, pln_Tensor **dy, pln_Tensor **dx) {
  int dim = pln_node_dim(n, 0, n->edge[0].ndim + 1);
  for (uint32_t i = 0; i < n->nedges; i++) {
    if (!pln_node_wants(n, (int)i)) continue;
    pln_Calc c;
    pln_Args a;
    pln_calc_begin(&c, n->engine);
    pln_calc_args(&c, PLN_OP_select, &a);
    a.in[0] = dy[0];
    pln_calc_int(&a, 0, dim + 1);
    pln_calc_int(&a, 1, i + 1);
    dx[i] = pln_calc_keep(&c, pln_calc_run(&c, PLN_OP_select, &a));
    PLN_TRY(pln_calc_end(&c));
  }
  return PLN_OK;
}

pln_Status plg_flip(pln_Node *n, pln_Tensor **dy, pln_Tensor **dx) {
  pln_Calc c;
  pln_Args a;
  pln_Shape dims = pln_node_list(n, 0);
  pln_calc_begin(&c, n->engine);
  pln_calc_args(&c, PLN_OP_flip, &a);
  a.in[0] = dy[0];
  if (n->opt[0].given) pln_calc_list(&a, 0, &dims);
  dx[0] = pln_calc_keep(&c, pln_calc_run(&c, PLN_OP_flip, &a));
  return pln_calc_end(&c);
}

/* --- repeats ------------------------------------------------------------------------------------ */

static int64_t product(const pln_Shape *s, int from, int to) {
  int64_t p = 1;
  for (int i = from; i < to; i++) p *= s->size[i];
  return p;
}

/* Adds up the copies that dim `d` of g holds side by side (whole: size elements, count times) or in a row (each element count times). */
static pln_Tensor *fold(pln_Calc *c, pln_Tensor *g, int d, int64_t size, int64_t count, bool whole) {
  if (c->status != PLN_OK || count == 1) return g;
  pln_Shape own = pln_tensor_shape(g), folded = own;
  folded.size[d] = size;
  if (count == 0 || !g->numel) return pln_calc_full(c, &folded, (pln_DType)g->dtype, 0);
  int64_t before = product(&own, 0, d), after = product(&own, d + 1, own.ndim);
  pln_Shape parts = whole ? (pln_Shape){3, {before, count, size * after}} : (pln_Shape){3, {before * size, count, after}};
  return pln_calc_reshape(c, pln_calc_sum(c, pln_calc_reshape(c, g, &parts), 2, false), &folded);
}

/* repeat and tile: leading counts make new dims. */
pln_Status plg_repeat(pln_Node *n, pln_Tensor **dy, pln_Tensor **dx) {
  pln_Shape counts = pln_node_list(n, 0), shape = pln_node_in_shape(n, 0);
  pln_Calc c;
  pln_calc_begin(&c, n->engine);
  pln_Tensor *g = dy[0];
  int lead = g->ndim - shape.ndim;
  for (int i = 0; i < counts.ndim; i++) {
    int d = g->ndim - counts.ndim + i;
    g = fold(&c, g, d, d < lead ? 1 : shape.size[d - lead], counts.size[i], true);
  }
  dx[0] = pln_calc_keep(&c, pln_calc_reshape(&c, g, &shape));
  return pln_calc_end(&c);
}

pln_Status plg_repeat_interleave(pln_Node *n, pln_Tensor **dy, pln_Tensor **dx) {
  pln_Shape shape = pln_node_in_shape(n, 0);
  int64_t count = n->opt[0].i;
  pln_Calc c;
  pln_calc_begin(&c, n->engine);
  pln_Tensor *g = dy[0];
  if (n->opt[1].given && shape.ndim > 0) {
    int d = pln_node_dim(n, 1, shape.ndim);
    g = fold(&c, g, d, shape.size[d], count, false);
  } else {
    g = fold(&c, g, 0, product(&shape, 0, shape.ndim), count, false);
  }
  dx[0] = pln_calc_keep(&c, pln_calc_reshape(&c, g, &shape));
  return pln_calc_end(&c);
}

static pln_Status triangle(pln_Node *n, pln_OpId op, pln_Tensor **dy, pln_Tensor **dx) {
  pln_Calc c;
  pln_Args a;
  pln_calc_begin(&c, n->engine);
  pln_calc_args(&c, op, &a);
  a.in[0] = dy[0];
  pln_calc_int(&a, 0, n->opt[0].i);
  dx[0] = pln_calc_keep(&c, pln_calc_run(&c, op, &a));
  return pln_calc_end(&c);
}

pln_Status plg_tril(pln_Node *n, pln_Tensor **dy, pln_Tensor **dx) { return triangle(n, PLN_OP_tril, dy, dx); }
pln_Status plg_triu(pln_Node *n, pln_Tensor **dy, pln_Tensor **dx) { return triangle(n, PLN_OP_triu, dy, dx); }
