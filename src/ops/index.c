/* SPDX-License-Identifier: MIT
** index.c -- shapes and dtypes of the ops that read or add where an index tensor says; index.def says what the records hold.
**
** Indices are checked by the kernels. What prepares guarantee: there is a valid index wherever one will be read.
*/
#include <string.h>

#include "contiguous.h"

static pln_Status check_index(const pln_Prep *p, const pln_Tensor *index) {
  char text[PLN_SHAPE_TEXT + 16];
  if (index->dtype == PLN_I32 || index->dtype == PLN_I64) return PLN_OK;
  return pln_prep_fail(p, PLN_EDTYPE, "argument 'index': expected an i32 or i64 tensor of indices, got %s", pln_tensor_text(index, text));
}

/* n: the size of the indexed dim of `name`. */
static pln_Status check_range(const pln_Prep *p, const pln_Tensor *index, int64_t n, const char *name) {
  if (n > 0 || index->numel == 0) return PLN_OK;
  return pln_prep_fail(p, PLN_ESHAPE, "argument 'index': no index is valid, the dim of '%s' that it points into has size 0", name);
}

static pln_Status dims_differ(const pln_Prep *p, const char *name, const pln_Tensor *t, int ndim) {
  return pln_prep_fail(p, PLN_ESHAPE, "argument '%s': expected %d dimensions as of '%s', got %d", name, ndim, p->op->slot[0].name, t->ndim);
}

/* index stays within `shape` in all dims but `except`. */
static pln_Status check_within(const pln_Prep *p, const pln_Tensor *index, const int64_t *shape, int except, const char *name) {
  for (int d = 0; d < index->ndim; d++)
    if (d != except && index->shape[d] > shape[d])
      return pln_prep_fail(p, PLN_ESHAPE, "argument 'index': size %lld in dim %d is more than the %lld of '%s'", (long long)index->shape[d], d + 1,
                           (long long)shape[d], name);
  return PLN_OK;
}

static int64_t product(const int64_t *size, int begin, int end) {
  int64_t n = 1;
  for (int d = begin; d < end; d++) n *= size[d];
  return n;
}

/* Strides of arguments 0 .. 2 step through `space`: makes them the collapsed iteration space. */
static void iterate(pln_Call *c, const pln_Shape *space) {
  int64_t *sets[3] = {c->arg[0].stride, c->arg[1].stride, c->arg[2].stride};
  c->numel = product(space->size, 0, space->ndim);
  memcpy(c->size, space->size, (size_t)space->ndim * sizeof(int64_t));
  c->ndim = (uint8_t)pln_shape_collapse(space->ndim, c->size, 3, sets);
  if (c->ndim) return;
  c->ndim = 1;
  c->size[0] = 1;
  for (int k = 0; k < 3; k++) sets[k][0] = 0;
}

/* --- reading -------------------------------------------------------------------------------------- */

/* Result `shape` from x, indexed along `dim`. Strides of x (0 along dim) and of the index step through the shape. */
static pln_Status read(pln_Prep *p, const pln_Shape *shape, const pln_Tensor *x, int dim, const int64_t *xs, const pln_Tensor *index,
                       const int64_t *is, int64_t behind, int64_t length, int operand) {
  pln_Call *c = &p->call;
  PLN_TRY(pln_prep_out(p, 0, (pln_DType)x->dtype, shape));
  if (p->done) return PLN_OK;
  pln_prep_arg(p, c->nin++, x);
  pln_prep_arg(p, c->nin++, index);
  memcpy(c->arg[1].stride, xs, (size_t)shape->ndim * sizeof(int64_t));
  memcpy(c->arg[2].stride, is, (size_t)shape->ndim * sizeof(int64_t));
  c->i[0] = x->ndim ? x->stride[dim] : 0;
  c->i[1] = x->ndim ? x->shape[dim] : 1;
  c->i[2] = behind;
  c->i[3] = length;
  c->i[4] = operand;
  iterate(c, shape);
  return PLN_OK;
}

pln_Status pln_prepare_gather(pln_Prep *p) {
  const pln_Tensor *x = p->a->in[0], *index = p->a->in[1];
  int64_t xs[PLN_MAX_DIMS];
  int dim;
  PLN_TRY(check_index(p, index));
  PLN_TRY(pln_prep_dim(p, 0, x->ndim, &dim));
  if (index->ndim != x->ndim) return dims_differ(p, "index", index, x->ndim);
  PLN_TRY(check_within(p, index, x->shape, dim, "x"));
  PLN_TRY(check_range(p, index, x->ndim ? x->shape[dim] : 1, "x"));
  memcpy(xs, x->stride, sizeof xs);
  xs[dim] = 0;
  pln_Shape shape = pln_tensor_shape(index);
  return read(p, &shape, x, dim, xs, index, index->stride, 1, index->numel, 1);
}

/* The index of index_select and its derivative, for x of `ndim` dims. */
static pln_Status check_list(const pln_Prep *p, const pln_Tensor *index, int ndim) {
  PLN_TRY(check_index(p, index));
  if (index->ndim > 1) return pln_prep_fail(p, PLN_ESHAPE, "argument 'index': expected at most 1 dimension, got %d", index->ndim);
  if (ndim == 0 && index->numel != 1)
    return pln_prep_fail(p, PLN_ESHAPE, "argument 'index': for a 0-dim tensor 1 element was expected, got %lld", (long long)index->numel);
  return PLN_OK;
}

pln_Status pln_prepare_index_select(pln_Prep *p) {
  const pln_Tensor *x = p->a->in[0], *index = p->a->in[1];
  int64_t xs[PLN_MAX_DIMS], is[PLN_MAX_DIMS] = {0};
  int dim;
  PLN_TRY(check_list(p, index, x->ndim));
  PLN_TRY(pln_prep_dim(p, 0, x->ndim, &dim));
  PLN_TRY(check_range(p, index, x->ndim ? x->shape[dim] : 1, "x"));
  pln_Shape shape = pln_tensor_shape(x);
  if (x->ndim) shape.size[dim] = index->numel;
  memcpy(xs, x->stride, sizeof xs);
  xs[dim] = 0;
  is[dim] = index->ndim ? index->stride[0] : 0;
  return read(p, &shape, x, dim, xs, index, is, product(shape.size, dim + 1, x->ndim), index->numel, 1);
}

pln_Status pln_prepare_embedding(pln_Prep *p) {
  const pln_Tensor *index = p->a->in[0], *weight = p->a->in[1];
  char text[PLN_SHAPE_TEXT];
  int64_t ws[PLN_MAX_DIMS] = {0}, is[PLN_MAX_DIMS];
  PLN_TRY(check_index(p, index));
  if (weight->ndim != 2)
    return pln_prep_fail(p, PLN_ESHAPE, "argument 'weight': expected shape (rows, width), got %s", pln_shape_text(weight->ndim, weight->shape, text));
  if (index->ndim == PLN_MAX_DIMS)
    return pln_prep_fail(p, PLN_ESHAPE, "argument 'index': at most %d dimensions, the result has one more", PLN_MAX_DIMS - 1);
  PLN_TRY(check_range(p, index, weight->shape[0], "weight"));
  pln_Shape shape = pln_tensor_shape(index);
  int last = shape.ndim++;
  shape.size[last] = weight->shape[1];
  memcpy(is, index->stride, sizeof is);
  is[last] = 0;
  ws[last] = weight->stride[1];
  return read(p, &shape, weight, 0, ws, index, is, weight->shape[1], index->numel, 0);
}

/* --- adding --------------------------------------------------------------------------------------- */

/* What call.arg[0] shows, as a tensor: the result or the temporary in its place. */
static pln_Tensor *written(const pln_Prep *p) {
  for (int i = 0; i < p->nback; i++)
    if (p->back[i].to == p->a->out[0]) return p->back[i].from;
  return p->a->out[0];
}

static pln_Status zeros(pln_Prep *p, pln_DType dtype, const pln_Shape *shape) {
  pln_Args a;
  PLN_TRY(pln_prep_out(p, 0, dtype, shape));
  if (p->done) return PLN_OK;
  pln_args_init(&pln_ops[PLN_OP_zero], &a);
  a.in[0] = written(p);
  return pln_op_run(p->e, &pln_ops[PLN_OP_zero], &a);
}

/* Adds the part `space` of src to the result, indexed along `dim`. The index's strides `is` step through the space, too. */
static void add(pln_Prep *p, const pln_Shape *space, int dim, const pln_Tensor *src, const pln_Tensor *index, const int64_t *is, bool list) {
  pln_Call *c = &p->call;
  int64_t count = space->ndim ? space->size[dim] : 1;
  if (p->done) return;
  pln_prep_arg(p, c->nin++, src);
  pln_prep_arg(p, c->nin++, index);
  c->i[0] = space->ndim ? c->arg[0].stride[dim] : 0;
  c->i[1] = space->ndim ? c->arg[0].shape[dim] : 1;
  c->i[2] = count;
  c->i[3] = space->ndim ? src->stride[dim] : 0;
  c->i[4] = 1;
  c->i[5] = space->ndim ? is[dim] : 0;
  int64_t behind = product(space->size, dim + 1, space->ndim);
  c->i[6] = behind;
  c->i[7] = list ? 0 : count * behind;
  c->i[8] = list ? 1 : behind;
  c->i[9] = !list;
  pln_Shape rest = {0, {0}};
  for (int d = 0; d < space->ndim; d++) {
    if (d == dim) continue;
    c->arg[0].stride[rest.ndim] = c->arg[0].stride[d];
    c->arg[1].stride[rest.ndim] = src->stride[d];
    c->arg[2].stride[rest.ndim] = is[d];
    rest.size[rest.ndim++] = space->size[d];
  }
  p->done = count == 0 || product(rest.size, 0, rest.ndim) == 0;
  if (!p->done) iterate(c, &rest);
}

pln_Status pln_prepare_scatter_add(pln_Prep *p) {
  pln_Args *a = p->a;
  pln_Tensor *x = a->in[0], *index = a->in[1], *src = a->in[2], *out = a->out[0];
  int dim;
  PLN_TRY(check_index(p, index));
  PLN_TRY(pln_prep_dtype(p, (pln_DType)x->dtype, p->op->dtypes, "x"));
  if (src->dtype != x->dtype)
    return pln_prep_fail(p, PLN_EDTYPE, "argument 'src': expected %s as of 'x', got %s", pln_dtype_name((pln_DType)x->dtype),
                         pln_dtype_name((pln_DType)src->dtype));
  PLN_TRY(pln_prep_dim(p, 0, x->ndim, &dim));
  if (index->ndim != x->ndim) return dims_differ(p, "index", index, x->ndim);
  if (src->ndim != x->ndim) return dims_differ(p, "src", src, x->ndim);
  PLN_TRY(check_within(p, index, x->shape, dim, "x"));
  PLN_TRY(check_within(p, index, src->shape, -1, "src"));
  PLN_TRY(check_range(p, index, x->ndim ? x->shape[dim] : 1, "x"));
  pln_Shape shape = pln_tensor_shape(x), space = pln_tensor_shape(index);
  if (out && pln_tensor_same_view(out, x)) { /* x's own memory: nothing to copy, and x is no overlap */
    a->in[0] = NULL;
    pln_Status status = pln_prep_out(p, 0, (pln_DType)x->dtype, &shape);
    a->in[0] = x;
    PLN_TRY(status);
  } else {
    PLN_TRY(pln_prep_out(p, 0, (pln_DType)x->dtype, &shape));
  }
  if (!p->done && !pln_tensor_same_view(written(p), x)) PLN_TRY(pln_copy_into(p->e, written(p), x));
  add(p, &space, dim, src, index, index->stride, false);
  return PLN_OK;
}

pln_Status pln_prepare_gather_backward(pln_Prep *p) {
  pln_Tensor *g = p->a->in[0], *index = p->a->in[1];
  const pln_Shape *shape = &p->a->opt[1].list;
  int dim;
  PLN_TRY(check_index(p, index));
  PLN_TRY(pln_prep_dtype(p, (pln_DType)g->dtype, p->op->dtypes, "g"));
  PLN_TRY(pln_prep_dim(p, 0, shape->ndim, &dim));
  if (index->ndim != g->ndim) return dims_differ(p, "index", index, g->ndim);
  if (shape->ndim != g->ndim)
    return pln_prep_fail(p, PLN_ESHAPE, "argument 'shape': expected %d sizes, got %d", g->ndim, shape->ndim);
  PLN_TRY(check_within(p, index, shape->size, dim, "shape"));
  PLN_TRY(check_within(p, index, g->shape, -1, "g"));
  PLN_TRY(check_range(p, index, shape->ndim ? shape->size[dim] : 1, "shape"));
  PLN_TRY(zeros(p, (pln_DType)g->dtype, shape));
  pln_Shape space = pln_tensor_shape(index);
  add(p, &space, dim, g, index, index->stride, false);
  return PLN_OK;
}

pln_Status pln_prepare_index_select_backward(pln_Prep *p) {
  pln_Tensor *g = p->a->in[0], *index = p->a->in[1];
  int64_t is[PLN_MAX_DIMS] = {0}, size = p->a->opt[1].i;
  int dim;
  PLN_TRY(check_list(p, index, g->ndim));
  PLN_TRY(pln_prep_dtype(p, (pln_DType)g->dtype, p->op->dtypes, "g"));
  PLN_TRY(pln_prep_dim(p, 0, g->ndim, &dim));
  pln_Shape space = pln_tensor_shape(g), shape = space;
  if (g->ndim) {
    if (g->shape[dim] != index->numel)
      return pln_prep_fail(p, PLN_ESHAPE, "argument 'index': expected %lld elements as dim %d of 'g', got %lld", (long long)g->shape[dim], dim + 1,
                           (long long)index->numel);
    shape.size[dim] = size;
  }
  PLN_TRY(check_range(p, index, g->ndim ? size : 1, "shape"));
  PLN_TRY(zeros(p, (pln_DType)g->dtype, &shape));
  is[dim] = index->ndim ? index->stride[0] : 0;
  add(p, &space, dim, g, index, is, true);
  return PLN_OK;
}

/* g and index as (count, width) and (count). */
pln_Status pln_prepare_embedding_backward(pln_Prep *p) {
  pln_Tensor *g = p->a->in[0], *index = p->a->in[1];
  int64_t rows = p->a->opt[0].i, is[2] = {1, 0};
  PLN_TRY(check_index(p, index));
  PLN_TRY(pln_prep_dtype(p, (pln_DType)g->dtype, p->op->dtypes, "g"));
  if (g->ndim != index->ndim + 1 || memcmp(g->shape, index->shape, (size_t)index->ndim * sizeof(int64_t)) != 0) {
    char tg[PLN_SHAPE_TEXT], ti[PLN_SHAPE_TEXT];
    return pln_prep_fail(p, PLN_ESHAPE, "argument 'g': expected the shape of 'index', %s, and a width, got %s",
                         pln_shape_text(index->ndim, index->shape, ti), pln_shape_text(g->ndim, g->shape, tg));
  }
  PLN_TRY(check_range(p, index, rows, "weight"));
  int64_t width = g->shape[g->ndim - 1];
  pln_Shape shape = {2, {rows, width}}, space = {2, {index->numel, width}};
  PLN_TRY(zeros(p, (pln_DType)g->dtype, &shape));
  if (p->done) return PLN_OK;
  PLN_TRY(pln_prep_contiguous(p, g, &g));
  PLN_TRY(pln_prep_contiguous(p, index, &index));
  pln_Tensor flat = *g; /* only shape and strides differ */
  flat.ndim = 2;
  flat.shape[0] = index->numel;
  flat.shape[1] = width;
  flat.stride[0] = width;
  flat.stride[1] = 1;
  add(p, &space, 0, &flat, index, is, true);
  return PLN_OK;
}

/* --- one_hot -------------------------------------------------------------------------------------- */

pln_Status pln_prepare_one_hot(pln_Prep *p) {
  pln_Tensor *index = p->a->in[0];
  int64_t classes = p->a->opt[0].i;
  PLN_TRY(check_index(p, index));
  if (classes < 1) return pln_prep_fail(p, PLN_EARG, "argument 'classes': at least 1 class is expected, got %lld", (long long)classes);
  if (index->ndim == PLN_MAX_DIMS)
    return pln_prep_fail(p, PLN_ESHAPE, "argument 'index': at most %d dimensions, the result has one more", PLN_MAX_DIMS - 1);
  pln_Shape shape = pln_tensor_shape(index);
  shape.size[shape.ndim++] = classes;
  PLN_TRY(pln_prep_out_contiguous(p, 0, PLN_I64, &shape));
  PLN_TRY(pln_prep_contiguous(p, index, &index));
  pln_prep_arg(p, p->call.nin++, index);
  p->call.i[1] = classes;
  p->call.ndim = 1;
  p->call.numel = p->call.size[0] = index->numel;
  return PLN_OK;
}
