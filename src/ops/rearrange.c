/* SPDX-License-Identifier: MIT
** rearrange.c -- ops that move elements into a new tensor: joins, repeats, reversal, triangles.
**
** Joins and flip are copies between views, so that whole runs move at once.
*/
#include "../engine.h"
#include "../op.h"

#define LIMIT ((int64_t)1 << 62)

/* The tensor that result 0 is written to: a temporary where the destination overlaps an operand. */
static pln_Tensor *target(const pln_Prep *p) { return p->nback ? p->back[0].from : p->a->out[0]; }

/* Copies src into the part of the result with this shape, strides and offset. */
static pln_Status put(pln_Prep *p, pln_Tensor *src, const pln_Shape *shape, const int64_t *stride, int64_t offset) {
  pln_Tensor *part;
  if (src->numel == 0) return PLN_OK;
  PLN_TRY(pln_tensor_view(target(p), shape, stride, offset, &part));
  pln_Status status = pln_copy_into(p->e, part, src);
  pln_tensor_release(part);
  return status;
}

static pln_Status check_size(const pln_Prep *p, const char *name, pln_DType dtype, const pln_Shape *shape) {
  int64_t n;
  if (pln_shape_numel(shape, pln_dtype_size(dtype), &n) == PLN_OK) return PLN_OK;
  return pln_fail_prefix(PLN_ESHAPE, "%s: argument '%s': ", p->op->name, name);
}

/* --- joins ---------------------------------------------------------------------------------------- */

/* The promoted dtype of a list of tensors with the same number of dimensions. */
static pln_DType list_dtype(const pln_Args *a) {
  pln_DType d = (pln_DType)a->list[0]->dtype;
  for (int i = 1; i < a->nlist; i++) d = pln_dtype_promote(d, (pln_DType)a->list[i]->dtype);
  return d;
}

static pln_Status shapes_differ(const pln_Prep *p, int i, const char *rule) {
  char first[PLN_SHAPE_TEXT], other[PLN_SHAPE_TEXT];
  const pln_Tensor *a = p->a->list[0], *b = p->a->list[i];
  return pln_prep_fail(p, PLN_ESHAPE, "argument 'tensors': tensor 1 has shape %s and tensor %d %s, %s",
                       pln_shape_text(a->ndim, a->shape, first), i + 1, pln_shape_text(b->ndim, b->shape, other), rule);
}

static pln_Status some_tensors(const pln_Prep *p) {
  if (p->a->nlist > 0) return PLN_OK;
  return pln_prep_fail(p, PLN_EARG, "argument 'tensors': at least 1 tensor was expected, got an empty list");
}

/* The joined shape; all sizes but that of `dim` must agree, those of empty tensors too. */
static pln_Status joined_shape(const pln_Prep *p, int dim, pln_Shape *shape_p) {
  const pln_Args *a = p->a;
  pln_Shape s = pln_tensor_shape(a->list[0]);
  for (int i = 1; i < a->nlist; i++) {
    const pln_Tensor *t = a->list[i];
    bool agree = t->ndim == s.ndim;
    for (int d = 0; agree && d < s.ndim; d++) agree = d == dim || t->shape[d] == s.size[d];
    if (!agree) return shapes_differ(p, i, "which must agree but for the size of the joined dimension");
    if (s.size[dim] > LIMIT - t->shape[dim])
      return pln_prep_fail(p, PLN_ESHAPE, "argument 'tensors': dimension %d has too many elements together", dim + 1);
    s.size[dim] += t->shape[dim];
  }
  *shape_p = s;
  return PLN_OK;
}

pln_Status pln_prepare_concat(pln_Prep *p) {
  pln_Args *a = p->a;
  PLN_TRY(some_tensors(p));
  int ndim = a->list[0]->ndim, dim;
  if (ndim == 0) return pln_prep_fail(p, PLN_ESHAPE, "argument 'tensors': tensors without dimensions cannot be joined (stack makes a dimension)");
  PLN_TRY(pln_prep_dim(p, 0, ndim, &dim));
  pln_Shape shape;
  pln_DType dtype = list_dtype(a);
  PLN_TRY(joined_shape(p, dim, &shape));
  PLN_TRY(check_size(p, "tensors", dtype, &shape));
  PLN_TRY(pln_prep_out(p, 0, dtype, &shape));
  p->done = 1;
  const pln_Tensor *out = target(p);
  int64_t at = 0;
  for (int i = 0; i < a->nlist; i++) {
    shape.size[dim] = a->list[i]->shape[dim];
    PLN_TRY(put(p, a->list[i], &shape, out->stride, at * out->stride[dim]));
    at += shape.size[dim];
  }
  return PLN_OK;
}

pln_Status pln_prepare_stack(pln_Prep *p) {
  pln_Args *a = p->a;
  PLN_TRY(some_tensors(p));
  pln_Shape one = pln_tensor_shape(a->list[0]), shape;
  int64_t stride[PLN_MAX_DIMS];
  int dim;
  for (int i = 1; i < a->nlist; i++) {
    pln_Shape s = pln_tensor_shape(a->list[i]);
    if (!pln_shape_equal(&s, &one)) return shapes_differ(p, i, "the same shape was expected");
  }
  if (one.ndim == PLN_MAX_DIMS)
    return pln_prep_fail(p, PLN_ESHAPE, "argument 'tensors': a tensor has at most %d dimensions", PLN_MAX_DIMS);
  PLN_TRY(pln_prep_dim(p, 0, one.ndim + 1, &dim));
  shape.ndim = one.ndim + 1;
  for (int i = 0; i < shape.ndim; i++) shape.size[i] = i < dim ? one.size[i] : i > dim ? one.size[i - 1] : a->nlist;
  pln_DType dtype = list_dtype(a);
  PLN_TRY(check_size(p, "tensors", dtype, &shape));
  PLN_TRY(pln_prep_out(p, 0, dtype, &shape));
  p->done = 1;
  const pln_Tensor *out = target(p);
  for (int i = 0; i < one.ndim; i++) stride[i] = out->stride[i + (i >= dim)];
  for (int i = 0; i < a->nlist; i++) PLN_TRY(put(p, a->list[i], &one, stride, i * out->stride[dim]));
  return PLN_OK;
}

/* --- reversal ------------------------------------------------------------------------------------- */

pln_Status pln_prepare_flip(pln_Prep *p) {
  pln_Tensor *x = p->a->in[0], *reversed;
  pln_Shape shape = pln_tensor_shape(x);
  int64_t stride[PLN_MAX_DIMS], offset = 0;
  uint32_t mask;
  PLN_TRY(pln_prep_dims(p, 0, x->ndim, &mask));
  PLN_TRY(pln_prep_out(p, 0, (pln_DType)x->dtype, &shape));
  if (p->done) return PLN_OK;
  p->done = 1;
  for (int i = 0; i < x->ndim; i++) {
    bool flips = mask >> i & 1;
    stride[i] = flips ? -x->stride[i] : x->stride[i];
    if (flips) offset += (x->shape[i] - 1) * x->stride[i];
  }
  PLN_TRY(pln_tensor_view(x, &shape, stride, offset, &reversed));
  pln_Status status = pln_copy_into(p->e, target(p), reversed);
  pln_tensor_release(reversed);
  return status;
}

/* --- repeats -------------------------------------------------------------------------------------- */

/* What the repeat kernel does in one dimension: elements x[(c / each) mod size] for c < size * each * count. */
typedef struct Loop {
  int64_t size, each, count;
  int64_t stride; /* of x */
} Loop;

/* The kernel's call; dimensions through which x and the result step alike become one. */
static pln_Status repeat(pln_Prep *p, const char *name, const pln_Tensor *x, int ndim, const Loop *loop) {
  pln_Call *c = &p->call;
  pln_Shape shape = {ndim, {0}};
  for (int d = 0; d < ndim; d++) {
    int64_t times = loop[d].each == 1 ? loop[d].count : loop[d].each; /* the other is 1 */
    if (times && loop[d].size > LIMIT / times)
      return pln_prep_fail(p, PLN_ESHAPE, "argument '%s': %lld times %lld is too many elements", name, (long long)times,
                           (long long)loop[d].size);
    shape.size[d] = loop[d].size * times;
  }
  PLN_TRY(check_size(p, name, (pln_DType)x->dtype, &shape));
  PLN_TRY(pln_prep_out(p, 0, (pln_DType)x->dtype, &shape));
  if (p->done) return PLN_OK;
  pln_prep_arg(p, 0, x);
  c->nin = 1;
  c->numel = 1;
  pln_Arg *out = &c->arg[0], *in = &c->arg[1];
  int last = -1;
  for (int d = 0; d < ndim; d++) {
    if (shape.size[d] == 1) continue;
    c->numel *= shape.size[d];
    bool follows = last >= 0 && c->i[last] == 1 && out->stride[last] == shape.size[d] * out->stride[d];
    bool plain = loop[d].each == 1 && loop[d].count == 1;
    if (follows && plain && (in->shape[last] == 1 || in->stride[last] == loop[d].size * loop[d].stride)) {
      c->size[last] *= shape.size[d];
      in->shape[last] *= loop[d].size;
      in->stride[last] = loop[d].stride;
    } else if (follows && loop[d].size == 1) { /* each element of the dimension before, so often in a row */
      c->size[last] *= shape.size[d];
      c->i[last] = shape.size[d];
    } else {
      last++;
      c->size[last] = shape.size[d];
      in->shape[last] = loop[d].size;
      in->stride[last] = loop[d].stride;
      c->i[last] = loop[d].each;
    }
    out->stride[last] = out->stride[d];
  }
  if (last < 0) {
    last = 0;
    c->size[0] = in->shape[0] = c->i[0] = in->stride[0] = out->stride[0] = 1;
  }
  c->ndim = out->ndim = in->ndim = (uint8_t)(last + 1);
  return PLN_OK;
}

static pln_Status repeat_whole(pln_Prep *p, const pln_Shape *counts, int lead) {
  const pln_Tensor *x = p->a->in[0];
  Loop loop[PLN_MAX_DIMS];
  int ndim = x->ndim + lead;
  for (int d = 0; d < ndim; d++) {
    int own = d - lead, listed = d - (ndim - counts->ndim);
    loop[d] = (Loop){own < 0 ? 1 : x->shape[own], 1, listed < 0 ? 1 : counts->size[listed], own < 0 ? 0 : x->stride[own]};
    if (loop[d].count < 0) return pln_prep_fail(p, PLN_EARG, "argument 'counts': %lld is negative", (long long)loop[d].count);
  }
  return repeat(p, "counts", x, ndim, loop);
}

pln_Status pln_prepare_repeat(pln_Prep *p) {
  const pln_Shape *counts = &p->a->opt[0].list;
  int ndim = p->a->in[0]->ndim;
  if (counts->ndim < ndim)
    return pln_prep_fail(p, PLN_EARG, "argument 'counts': %d count%s for a tensor with %d dimensions (tile takes the missing ones as 1)",
                         counts->ndim, counts->ndim == 1 ? "" : "s", ndim);
  return repeat_whole(p, counts, counts->ndim - ndim);
}

pln_Status pln_prepare_tile(pln_Prep *p) {
  const pln_Shape *counts = &p->a->opt[0].list;
  int lead = counts->ndim - p->a->in[0]->ndim;
  return repeat_whole(p, counts, lead > 0 ? lead : 0);
}

pln_Status pln_prepare_repeat_interleave(pln_Prep *p) {
  pln_Tensor *x = p->a->in[0];
  int64_t n = p->a->opt[0].i;
  Loop loop[PLN_MAX_DIMS];
  int dim = 0;
  if (n < 0) return pln_prep_fail(p, PLN_EARG, "argument 'n': %lld is negative", (long long)n);
  if (p->a->opt[1].given) PLN_TRY(pln_prep_dim(p, 1, x->ndim, &dim));
  if (p->a->opt[1].given && x->ndim > 0) {
    for (int d = 0; d < x->ndim; d++) loop[d] = (Loop){x->shape[d], 1, 1, x->stride[d]};
    loop[dim].each = n ? n : 1;
    loop[dim].count = n != 0;
    return repeat(p, "n", x, x->ndim, loop);
  }
  pln_Shape flat = {1, {x->numel}};
  int64_t stride;
  if (!pln_shape_view(x->ndim, x->shape, x->stride, &flat, &stride)) {
    PLN_TRY(pln_prep_contiguous(p, x, &x));
    stride = 1;
  }
  loop[0] = (Loop){x->numel, n ? n : 1, n != 0, stride};
  return repeat(p, "n", x, 1, loop);
}

/* --- triangles ------------------------------------------------------------------------------------ */

static pln_Status triangle(pln_Prep *p, int upper) {
  pln_Call *c = &p->call;
  const pln_Tensor *x = p->a->in[0];
  pln_Shape shape = pln_tensor_shape(x);
  char own[PLN_SHAPE_TEXT];
  if (x->ndim < 2)
    return pln_prep_fail(p, PLN_ESHAPE, "argument 'x': at least 2 dimensions were expected, got shape %s",
                         pln_shape_text(x->ndim, x->shape, own));
  c->i[0] = p->a->opt[0].i;
  c->i[1] = upper;
  PLN_TRY(pln_prep_out(p, 0, (pln_DType)x->dtype, &shape));
  PLN_TRY(pln_prep_in(p, 0, PLN_NODTYPE));
  c->ndim = x->ndim;
  c->numel = x->numel;
  for (int i = 0; i < x->ndim; i++) c->size[i] = x->shape[i];
  return PLN_OK;
}

pln_Status pln_prepare_tril(pln_Prep *p) { return triangle(p, 0); }
pln_Status pln_prepare_triu(pln_Prep *p) { return triangle(p, 1); }
