/* SPDX-License-Identifier: MIT
** view.c -- ops that make headers only: the result shows x's storage with another shape, strides and offset.
**
** With a destination pln_prep_result copies the view there. reshape, flatten and contiguous copy x where no strides can show the result.
*/
#include "../alloc.h"
#include "../engine.h"
#include "../fault.h"
#include "../op.h"

/* More results than Lua's C stack holds are refused before any is made. */
#define MAX_PIECES 7000

/* Result 0 as a view of x. */
static pln_Status show(pln_Prep *p, const pln_Shape *shape, const int64_t *stride, int64_t offset) {
  pln_Tensor *t;
  PLN_TRY(pln_tensor_view(p->a->in[0], shape, stride, offset, &t));
  return pln_prep_result(p, 0, t);
}

/* Result 0 as a row-major copy of x under `shape`. */
static pln_Status show_copy(pln_Prep *p, const pln_Shape *shape) {
  pln_Tensor *x = p->a->in[0], *copy, *t;
  pln_Shape own = pln_tensor_shape(x);
  int64_t stride[PLN_MAX_DIMS];
  pln_shape_strides(shape->ndim, shape->size, stride);
  PLN_TRY(pln_tensor_result(p->e, x->dtype, &own, &copy));
  copy->storage->place = p->a->place;
  pln_Status status = pln_copy_into(p->e, copy, x);
  if (status == PLN_OK) status = pln_tensor_view(copy, shape, stride, 0, &t);
  pln_tensor_release(copy);
  return status == PLN_OK ? pln_prep_result(p, 0, t) : status;
}

static pln_Status show_reshaped(pln_Prep *p, const pln_Shape *shape) {
  const pln_Tensor *x = p->a->in[0];
  int64_t stride[PLN_MAX_DIMS];
  if (pln_shape_view(x->ndim, x->shape, x->stride, shape, stride)) return show(p, shape, stride, 0);
  return show_copy(p, shape);
}

/* A 1-based or negative dimension out of a list. */
static pln_Status list_dim(const pln_Prep *p, const char *name, int64_t dim, int ndim, int *dim_p) {
  if (dim == 0) return pln_prep_fail(p, PLN_EARG, "argument '%s': dimensions start at 1, got 0", name);
  if (dim < -ndim || dim > ndim)
    return pln_prep_fail(p, PLN_EARG, "argument '%s': dimension %lld of a tensor with %d dimension%s", name, (long long)dim, ndim,
                         ndim == 1 ? "" : "s");
  *dim_p = (int)(dim > 0 ? dim - 1 : dim + ndim);
  return PLN_OK;
}

/* A dimension that can be cut: a 0-dim tensor has none. */
static pln_Status cut_dim(const pln_Prep *p, int opt, const pln_Tensor *x, int *dim_p) {
  if (x->ndim == 0) return pln_prep_fail(p, PLN_ESHAPE, "argument 'x': a tensor without dimensions has none to take a part of");
  return pln_prep_dim(p, opt, x->ndim, dim_p);
}

/* A 1-based or negative index of dimension `dim` as 0-based one; `end` more than the size are valid (1 where a part may be empty). */
static pln_Status list_index(const pln_Prep *p, const char *name, int64_t index, const pln_Tensor *x, int dim, int end, int64_t *index_p) {
  int64_t size = x->shape[dim];
  if (index == 0) return pln_prep_fail(p, PLN_EARG, "argument '%s': indices start at 1, got 0", name);
  if (index < -size || index > size + end)
    return pln_prep_fail(p, PLN_EARG, "argument '%s': index %lld is outside 1..%lld of dimension %d", name, (long long)index,
                         (long long)size, dim + 1);
  *index_p = index > 0 ? index - 1 : index + size;
  return PLN_OK;
}

/* --- shape ---------------------------------------------------------------------------------------- */

/* The shape asked for by reshape and view, its -1 inferred. */
static pln_Status wanted_shape(pln_Prep *p, pln_Shape *shape_p) {
  const pln_Tensor *x = p->a->in[0];
  pln_Shape s = p->a->opt[0].list;
  char text[PLN_SHAPE_TEXT], own[PLN_SHAPE_TEXT];
  int guess = -1;
  int64_t n;
  pln_shape_text(s.ndim, s.size, text);
  for (int i = 0; i < s.ndim; i++) {
    if (s.size[i] != -1) continue;
    if (guess >= 0) return pln_prep_fail(p, PLN_ESHAPE, "argument 'shape': only one size can be -1, got %s", text);
    guess = i;
    s.size[i] = 1;
  }
  if (pln_shape_numel(&s, 1, &n) != PLN_OK) return pln_fail_prefix(PLN_ESHAPE, "%s: argument 'shape': ", p->op->name);
  if (guess >= 0) {
    if (n == 0) return pln_prep_fail(p, PLN_ESHAPE, "argument 'shape': -1 is ambiguous in %s, any size gives 0 elements", text);
    if (x->numel % n != 0)
      return pln_prep_fail(p, PLN_ESHAPE, "argument 'shape': no size fits for -1 in %s, x has shape %s, %lld elements", text,
                           pln_shape_text(x->ndim, x->shape, own), (long long)x->numel);
    s.size[guess] = x->numel / n;
  } else if (n != x->numel) {
    return pln_prep_fail(p, PLN_ESHAPE, "argument 'shape': %s holds %lld elements, x has shape %s, %lld elements", text, (long long)n,
                         pln_shape_text(x->ndim, x->shape, own), (long long)x->numel);
  }
  *shape_p = s;
  return PLN_OK;
}

pln_Status pln_prepare_reshape(pln_Prep *p) {
  pln_Shape shape;
  PLN_TRY(wanted_shape(p, &shape));
  return show_reshaped(p, &shape);
}

pln_Status pln_prepare_view(pln_Prep *p) {
  const pln_Tensor *x = p->a->in[0];
  pln_Shape shape;
  int64_t stride[PLN_MAX_DIMS];
  PLN_TRY(wanted_shape(p, &shape));
  if (!pln_shape_view(x->ndim, x->shape, x->stride, &shape, stride)) {
    char text[PLN_SHAPE_TEXT], own[PLN_SHAPE_TEXT];
    return pln_prep_fail(p, PLN_ESHAPE, "argument 'shape': x of shape %s is not laid out so that a view can have shape %s: use reshape, "
                         "which copies", pln_shape_text(x->ndim, x->shape, own), pln_shape_text(shape.ndim, shape.size, text));
  }
  return show(p, &shape, stride, 0);
}

pln_Status pln_prepare_flatten(pln_Prep *p) {
  const pln_Tensor *x = p->a->in[0];
  int first, last;
  PLN_TRY(pln_prep_dim(p, 0, x->ndim, &first));
  PLN_TRY(pln_prep_dim(p, 1, x->ndim, &last));
  if (first > last)
    return pln_prep_fail(p, PLN_EARG, "argument 'start_dim': dimension %d comes after end_dim, %d", first + 1, last + 1);
  pln_Shape shape = {0, {0}};
  for (int i = 0; i < first; i++) shape.size[shape.ndim++] = x->shape[i];
  int64_t size = 1;
  for (int i = first; i <= last && i < x->ndim; i++) {
    if (x->shape[i] != 0 && size > ((int64_t)1 << 62) / x->shape[i])
      return pln_prep_fail(p, PLN_ESHAPE, "argument 'x': the dimensions have too many elements together");
    size *= x->shape[i];
  }
  shape.size[shape.ndim++] = size;
  for (int i = last + 1; i < x->ndim; i++) shape.size[shape.ndim++] = x->shape[i];
  return show_reshaped(p, &shape);
}

pln_Status pln_prepare_contiguous(pln_Prep *p) {
  const pln_Tensor *x = p->a->in[0];
  pln_Shape shape = pln_tensor_shape(x);
  if (x->contiguous) return show(p, &shape, x->stride, 0);
  return show_copy(p, &shape);
}

pln_Status pln_prepare_squeeze(pln_Prep *p) {
  const pln_Tensor *x = p->a->in[0];
  pln_Shape shape = {0, {0}};
  int64_t stride[PLN_MAX_DIMS];
  uint32_t mask;
  PLN_TRY(pln_prep_dims(p, 0, x->ndim, &mask));
  for (int i = 0; i < x->ndim; i++) {
    if (mask >> i & 1 && x->shape[i] == 1) continue;
    shape.size[shape.ndim] = x->shape[i];
    stride[shape.ndim++] = x->stride[i];
  }
  return show(p, &shape, stride, 0);
}

pln_Status pln_prepare_unsqueeze(pln_Prep *p) {
  const pln_Tensor *x = p->a->in[0];
  pln_Shape shape = {x->ndim + 1, {0}};
  int64_t stride[PLN_MAX_DIMS];
  int dim;
  if (x->ndim == PLN_MAX_DIMS) return pln_prep_fail(p, PLN_ESHAPE, "argument 'x': a tensor has at most %d dimensions", PLN_MAX_DIMS);
  PLN_TRY(list_dim(p, "dim", p->a->opt[0].i, shape.ndim, &dim));
  for (int i = 0; i < dim; i++) {
    shape.size[i] = x->shape[i];
    stride[i] = x->stride[i];
  }
  shape.size[dim] = 1;
  stride[dim] = dim < x->ndim ? x->shape[dim] * x->stride[dim] : 1;
  for (int i = dim; i < x->ndim; i++) {
    shape.size[i + 1] = x->shape[i];
    stride[i + 1] = x->stride[i];
  }
  return show(p, &shape, stride, 0);
}

pln_Status pln_prepare_expand(pln_Prep *p) {
  const pln_Tensor *x = p->a->in[0];
  pln_Shape shape = p->a->opt[0].list;
  int64_t stride[PLN_MAX_DIMS], n;
  char text[PLN_SHAPE_TEXT], own[PLN_SHAPE_TEXT];
  int lead = shape.ndim - x->ndim;
  for (int i = 0; i < shape.ndim; i++) {
    if (shape.size[i] != -1) continue;
    if (i < lead) return pln_prep_fail(p, PLN_ESHAPE, "argument 'shape': dimension %d is new, it has no size to keep (-1)", i + 1);
    if (lead >= 0) shape.size[i] = x->shape[i - lead];
  }
  if (pln_shape_numel(&shape, pln_dtype_size(x->dtype), &n) != PLN_OK) return pln_fail_prefix(PLN_ESHAPE, "%s: argument 'shape': ", p->op->name);
  if (!pln_shape_expand(x->ndim, x->shape, x->stride, &shape, stride))
    return pln_prep_fail(p, PLN_ESHAPE, "argument 'shape': x of shape %s does not expand to %s", pln_shape_text(x->ndim, x->shape, own),
                         pln_shape_text(p->a->opt[0].list.ndim, p->a->opt[0].list.size, text));
  return show(p, &shape, stride, 0);
}

/* --- order ---------------------------------------------------------------------------------------- */

pln_Status pln_prepare_permute(pln_Prep *p) {
  const pln_Tensor *x = p->a->in[0];
  const pln_Shape *dims = &p->a->opt[0].list;
  pln_Shape shape = {x->ndim, {0}};
  int64_t stride[PLN_MAX_DIMS];
  uint32_t seen = 0;
  if (dims->ndim != x->ndim)
    return pln_prep_fail(p, PLN_EARG, "argument 'dims': %d of %d dimensions are listed", dims->ndim, x->ndim);
  for (int i = 0; i < x->ndim; i++) {
    int dim;
    PLN_TRY(list_dim(p, "dims", dims->size[i], x->ndim, &dim));
    if (seen >> dim & 1) return pln_prep_fail(p, PLN_EARG, "argument 'dims': dimension %d is given twice", dim + 1);
    seen |= 1u << dim;
    shape.size[i] = x->shape[dim];
    stride[i] = x->stride[dim];
  }
  return show(p, &shape, stride, 0);
}

static pln_Status show_transposed(pln_Prep *p, int dim1, int dim2) {
  const pln_Tensor *x = p->a->in[0];
  pln_Shape shape = {x->ndim, {0}};
  int64_t stride[PLN_MAX_DIMS];
  if (PLN_FAULT(square_transpose) && x->ndim && x->shape[dim1] == x->shape[dim2]) dim1 = dim2;
  for (int i = 0; i < x->ndim; i++) {
    int from = i == dim1 ? dim2 : i == dim2 ? dim1 : i;
    shape.size[i] = x->shape[from];
    stride[i] = x->stride[from];
  }
  return show(p, &shape, stride, 0);
}

pln_Status pln_prepare_transpose(pln_Prep *p) {
  int ndim = p->a->in[0]->ndim, dim1, dim2;
  PLN_TRY(pln_prep_dim(p, 0, ndim, &dim1));
  PLN_TRY(pln_prep_dim(p, 1, ndim, &dim2));
  return show_transposed(p, dim1, dim2);
}

pln_Status pln_prepare_t(pln_Prep *p) {
  const pln_Tensor *x = p->a->in[0];
  char own[PLN_SHAPE_TEXT];
  if (x->ndim > 2)
    return pln_prep_fail(p, PLN_ESHAPE, "argument 'x': at most 2 dimensions were expected, got shape %s (transpose takes two dimensions)",
                         pln_shape_text(x->ndim, x->shape, own));
  return show_transposed(p, 0, x->ndim == 2);
}

/* --- part ----------------------------------------------------------------------------------------- */

pln_Status pln_prepare_narrow(pln_Prep *p) {
  const pln_Tensor *x = p->a->in[0];
  pln_Shape shape = pln_tensor_shape(x);
  int64_t start, length = p->a->opt[2].i;
  int dim;
  PLN_TRY(cut_dim(p, 0, x, &dim));
  if (length < 0) return pln_prep_fail(p, PLN_EARG, "argument 'length': %lld is negative", (long long)length);
  PLN_TRY(list_index(p, "start", p->a->opt[1].i, x, dim, length == 0, &start));
  if (length > x->shape[dim] - start)
    return pln_prep_fail(p, PLN_EARG, "argument 'length': %lld from %lld on is more than the size of dimension %d, %lld",
                         (long long)length, (long long)start + 1, dim + 1, (long long)x->shape[dim]);
  shape.size[dim] = length;
  return show(p, &shape, x->stride, length ? start * x->stride[dim] : 0);
}

pln_Status pln_prepare_select(pln_Prep *p) {
  const pln_Tensor *x = p->a->in[0];
  pln_Shape shape = {x->ndim - 1, {0}};
  int64_t stride[PLN_MAX_DIMS], index;
  int dim;
  PLN_TRY(cut_dim(p, 0, x, &dim));
  PLN_TRY(list_index(p, "index", p->a->opt[1].i, x, dim, 0, &index));
  for (int i = 0; i < shape.ndim; i++) {
    shape.size[i] = x->shape[i + (i >= dim)];
    stride[i] = x->stride[i + (i >= dim)];
  }
  return show(p, &shape, stride, x->numel ? index * x->stride[dim] : 0);
}

/* The indices first to last of a dimension by step: where they start and how many they are. An empty range ends just before it starts. */
static pln_Status range(const pln_Prep *p, int64_t first, int64_t last, int64_t step, const pln_Tensor *x, int dim, int64_t *start_p,
                        int64_t *size_p) {
  int64_t end, size = x->shape[dim];
  if (step < 1)
    return pln_prep_fail(p, PLN_EARG, "argument 'step': a step of at least 1 was expected, got %lld (flip reverses)", (long long)step);
  if (last < 0 && (last >= -size || size == 0)) last += size + 1;
  bool empty = first > 0 && last == first - 1;
  PLN_TRY(list_index(p, "first", first, x, dim, empty, start_p));
  *size_p = 0;
  if (empty) return PLN_OK;
  PLN_TRY(list_index(p, "last", last, x, dim, 0, &end));
  if (end < *start_p - 1)
    return pln_prep_fail(p, PLN_EARG, "argument 'last': the range %lld to %lld of dimension %d ends before it begins",
                         (long long)first, (long long)last, dim + 1);
  if (end >= *start_p) *size_p = (end - *start_p) / step + 1;
  return PLN_OK;
}

pln_Status pln_prepare_slice(pln_Prep *p) {
  const pln_Tensor *x = p->a->in[0];
  const pln_Shape *first = &p->a->opt[0].list, *last = &p->a->opt[1].list, *step = &p->a->opt[2].list;
  pln_Shape shape = {0, {0}};
  int64_t stride[PLN_MAX_DIMS], offset = 0;
  bool empty = x->numel == 0;
  if (last->ndim != first->ndim || step->ndim != first->ndim)
    return pln_prep_fail(p, PLN_EARG, "arguments 'first', 'last' and 'step': lists of one length were expected");
  if (first->ndim > x->ndim)
    return pln_prep_fail(p, PLN_EARG, "%d indices for a tensor with %d dimension%s", first->ndim, x->ndim, x->ndim == 1 ? "" : "s");
  for (int i = 0; i < x->ndim; i++) {
    int64_t start = 0, size = x->shape[i], by = 1;
    if (i < first->ndim) {
      if (step->size[i] == 0) {
        PLN_TRY(list_index(p, "first", first->size[i], x, i, 0, &start));
        offset += start * x->stride[i];
        continue;
      }
      by = step->size[i];
      PLN_TRY(range(p, first->size[i], last->size[i], by, x, i, &start, &size));
    }
    if (size == 0)
      empty = true;
    else
      offset += start * x->stride[i];
    shape.size[shape.ndim] = size;
    stride[shape.ndim++] = size > 1 ? x->stride[i] * by : x->stride[i];
  }
  return show(p, &shape, stride, empty ? 0 : offset);
}

/* --- several results ------------------------------------------------------------------------------ */

/* Hands over `n` views of x, consecutive parts of a dimension: sizes[k], or size each and what is left for the last. */
static pln_Status show_pieces(pln_Prep *p, int dim, int64_t n, const int64_t *sizes, int64_t size) {
  pln_Tensor *x = p->a->in[0];
  pln_Shape shape = pln_tensor_shape(x);
  int64_t start = 0, whole = x->shape[dim];
  p->done = 1;
  if (n > MAX_PIECES) return pln_prep_fail(p, PLN_EARG, "%lld results are too many (at most %d)", (long long)n, MAX_PIECES);
  pln_Tensor **piece = pln_malloc((size_t)n * sizeof *piece);
  if (!piece) return pln_prep_fail(p, PLN_ENOMEM, "out of memory for the list of %lld results", (long long)n);
  for (int64_t k = 0; k < n; k++) {
    int64_t length = sizes ? sizes[k] : size < whole - start ? size : whole - start;
    shape.size[dim] = length;
    pln_Status status = pln_tensor_view(x, &shape, x->stride, length && x->numel ? start * x->stride[dim] : 0, &piece[k]);
    if (status != PLN_OK) {
      while (k-- > 0) pln_tensor_release(piece[k]);
      pln_mfree(piece);
      return status;
    }
    piece[k]->place = p->a->place;
    start += length;
  }
  p->a->results = piece;
  p->a->nresults = (int)n;
  return PLN_OK;
}

/* Pieces of one size; of an empty dimension one empty piece. */
static pln_Status show_equal(pln_Prep *p, int dim, int64_t size) {
  int64_t whole = p->a->in[0]->shape[dim];
  return show_pieces(p, dim, whole ? (whole - 1) / size + 1 : 1, NULL, size);
}

/* A list of one size means the same as that size as a number, unless nothing is to be cut. */
pln_Status pln_prepare_split(pln_Prep *p) {
  const pln_Tensor *x = p->a->in[0];
  const pln_Shape *sizes = &p->a->opt[0].list;
  int dim;
  PLN_TRY(cut_dim(p, 1, x, &dim));
  int64_t whole = x->shape[dim], sum = 0;
  if (sizes->ndim == 1) {
    if (sizes->size[0] < 1 && !(sizes->size[0] == 0 && whole == 0))
      return pln_prep_fail(p, PLN_EARG, "argument 'size': at least 1 element was expected in a piece, got %lld", (long long)sizes->size[0]);
    return show_equal(p, dim, sizes->size[0]);
  }
  for (int i = 0; i < sizes->ndim; i++) {
    if (sizes->size[i] < 0) return pln_prep_fail(p, PLN_EARG, "argument 'size': %lld is negative", (long long)sizes->size[i]);
    sum += sizes->size[i];
  }
  if (sum != whole)
    return pln_prep_fail(p, PLN_EARG, "argument 'size': the sizes add up to %lld, dimension %d has size %lld", (long long)sum, dim + 1,
                         (long long)whole);
  return show_pieces(p, dim, sizes->ndim, sizes->size, 0);
}

pln_Status pln_prepare_chunk(pln_Prep *p) {
  const pln_Tensor *x = p->a->in[0];
  int64_t n = p->a->opt[0].i;
  int dim;
  PLN_TRY(cut_dim(p, 1, x, &dim));
  if (n < 1) return pln_prep_fail(p, PLN_EARG, "argument 'n': at least 1 piece was expected, got %lld", (long long)n);
  int64_t whole = x->shape[dim];
  if (whole == 0) return show_pieces(p, dim, n, NULL, 0);
  return show_equal(p, dim, (whole - 1) / n + 1);
}
