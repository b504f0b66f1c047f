/* SPDX-License-Identifier: MIT
** matmul.c -- shapes and dtypes of the matrix products and of the Walsh-Hadamard transform; matmul.def says what a record holds.
**
** Operands are never copied: a product reads its matrices through any strides.
*/
#include <math.h>
#include <string.h>

#include "contiguous.h"

#define INLINE static inline __attribute__((always_inline))

static PLN_COLD pln_Status dtypes_differ(const pln_Prep *p, const pln_Tensor *a, const pln_Tensor *b, const char *name) {
  return pln_prep_fail(p, PLN_EDTYPE, "argument '%s': expected the other operand's dtype, got dtypes %s and %s (t:to \"%s\" converts)", name,
                       pln_dtype_name((pln_DType)a->dtype), pln_dtype_name((pln_DType)b->dtype), pln_dtype_name((pln_DType)a->dtype));
}

static PLN_COLD pln_Status sizes_differ(const pln_Prep *p, const pln_Tensor *a, const pln_Tensor *b, const char *name, int64_t ka, int64_t kb) {
  char ta[PLN_SHAPE_TEXT], tb[PLN_SHAPE_TEXT];
  return pln_prep_fail(p, PLN_ESHAPE, "argument '%s': inner sizes %lld and %lld differ, shapes are %s and %s", name, (long long)ka, (long long)kb,
                       pln_shape_text(a->ndim, a->shape, ta), pln_shape_text(b->ndim, b->shape, tb));
}

static PLN_COLD pln_Status no_dims(const pln_Prep *p, const char *name) {
  return pln_prep_fail(p, PLN_ESHAPE, "argument '%s': a 0-dim tensor has no matrix product (mul multiplies)", name);
}

/* Both operands of a product. */
INLINE pln_Status check_dtypes(const pln_Prep *p, const pln_Tensor *a, const pln_Tensor *b, const char *name_a, const char *name_b) {
  if (PLN_UNLIKELY(a->dtype != b->dtype)) return dtypes_differ(p, a, b, name_b);
  return pln_prep_dtype(p, (pln_DType)a->dtype, PLN_SET_NUMBER, name_a);
}

/* Operand k of the record, of which a product needs address and dtype only; its batch strides follow. */
INLINE void operand(pln_Call *c, int k, const pln_Tensor *t) {
  pln_Arg *g = &c->arg[1 + k];
  g->data = t->data;
  g->dtype = t->dtype;
  g->ndim = 0;
  g->stride[0] = 0;
}

INLINE void product(pln_Call *c, const pln_Tensor *a, const pln_Tensor *b, int64_t m, int64_t n, int64_t k, int64_t cs0, int64_t cs1,
                    int64_t as0, int64_t as1, int64_t bs0, int64_t bs1) {
  c->nin = 2;
  operand(c, 0, a);
  operand(c, 1, b);
  c->i[0] = m, c->i[1] = n, c->i[2] = k;
  c->i[3] = cs0, c->i[4] = cs1;
  c->i[5] = as0, c->i[6] = as1;
  c->i[7] = bs0, c->i[8] = bs1;
  c->f[0] = c->f[1] = 1;
  c->ndim = 1;
  c->numel = c->size[0] = 1;
}

/* a (m,k) times n columns of b, which steps by bs0 and bs1. */
INLINE pln_Status matrices(pln_Prep *p, const pln_Tensor *a, const pln_Tensor *b, int64_t n, int64_t bs0, int64_t bs1) {
  pln_Call *c = &p->call;
  pln_Shape shape;
  shape.ndim = 2;
  shape.size[0] = a->shape[0];
  shape.size[1] = n;
  PLN_TRY(pln_prep_out(p, 0, (pln_DType)a->dtype, &shape));
  product(c, a, b, a->shape[0], n, a->shape[1], c->arg[0].stride[0], c->arg[0].stride[1], a->stride[0], a->stride[1], bs0, bs1);
  c->arg[0].stride[0] = 0; /* of the batch */
  return PLN_OK;
}

INLINE pln_Status two_matrices(pln_Prep *p, const pln_Tensor *a, const pln_Tensor *b) {
  if (PLN_UNLIKELY(b->shape[0] != a->shape[1])) return sizes_differ(p, a, b, "b", a->shape[1], b->shape[0]);
  return matrices(p, a, b, b->shape[1], b->stride[0], b->stride[1]);
}

static pln_Shape head(const pln_Tensor *t, int ndim) {
  pln_Shape s = {ndim > 0 ? ndim : 0, {0}};
  memcpy(s.size, t->shape, (size_t)s.ndim * sizeof(int64_t));
  return s;
}

/* Turns the strides of arguments 0 .. nargs - 1, which step through `batch`, into the collapsed iteration space. */
static void collapse_batch(pln_Call *c, const pln_Shape *batch, int nargs) {
  int64_t *sets[3];
  c->numel = 1;
  for (int d = 0; d < batch->ndim; d++) c->numel *= c->size[d] = batch->size[d];
  for (int k = 0; k < nargs; k++) sets[k] = c->arg[k].stride;
  c->ndim = (uint8_t)pln_shape_collapse(batch->ndim, c->size, nargs, sets);
  if (c->ndim) return;
  c->ndim = 1;
  c->size[0] = 1;
  for (int k = 0; k < nargs; k++) sets[k][0] = 0;
}

/* A row of one step that stands for m = 1 rows: lets a batch of rows look like the one matrix that it may be. */
static void stretch_row(pln_Call *c) {
  if (c->i[0] != 1 || c->ndim != 1) return;
  c->i[3] = c->arg[0].stride[0];
  c->i[5] = c->arg[1].stride[0];
}

/* Vectors and batches. */
static pln_Status batched(pln_Prep *p) {
  pln_Tensor *a = p->a->in[0], *b = p->a->in[1];
  pln_Call *c = &p->call;
  if (a->ndim == 0) return no_dims(p, "a");
  if (b->ndim == 0) return no_dims(p, "b");
  int na = a->ndim - 2, nb = b->ndim - 2; /* -1: a vector */
  int64_t m = na < 0 ? 1 : a->shape[na], k = a->shape[na + 1];
  int64_t n = nb < 0 ? 1 : b->shape[nb + 1], kb = nb < 0 ? b->shape[0] : b->shape[nb];
  if (kb != k) return sizes_differ(p, a, b, "b", k, kb);
  pln_Shape sa = head(a, na), sb = head(b, nb), batch, shape;
  if (!pln_shape_broadcast(&sa, &sb, &batch)) {
    char ta[PLN_SHAPE_TEXT], tb[PLN_SHAPE_TEXT];
    return pln_prep_fail(p, PLN_ESHAPE, "argument 'b': batch sizes %s and %s do not broadcast", pln_shape_text(sa.ndim, sa.size, ta),
                         pln_shape_text(sb.ndim, sb.size, tb));
  }
  shape = batch;
  if (na >= 0) shape.size[shape.ndim++] = m;
  if (nb >= 0) shape.size[shape.ndim++] = n;
  PLN_TRY(pln_prep_out(p, 0, (pln_DType)a->dtype, &shape));
  if (p->done) return PLN_OK;
  const int64_t *out = c->arg[0].stride + batch.ndim;
  int64_t cs0 = na >= 0 ? out[0] : 0, cs1 = nb >= 0 ? out[na >= 0] : 0;
  product(c, a, b, m, n, k, cs0, cs1, na < 0 ? 0 : a->stride[na], a->stride[na + 1], nb < 0 ? b->stride[0] : b->stride[nb],
          nb < 0 ? 0 : b->stride[nb + 1]);
  pln_shape_expand(sa.ndim, sa.size, a->stride, &batch, c->arg[1].stride);
  pln_shape_expand(sb.ndim, sb.size, b->stride, &batch, c->arg[2].stride);
  collapse_batch(c, &batch, 3);
  stretch_row(c);
  return PLN_OK;
}

pln_Status pln_prepare_matmul(pln_Prep *p) {
  pln_Tensor *a = p->a->in[0], *b = p->a->in[1];
  PLN_TRY(check_dtypes(p, a, b, "a", "b"));
  if (PLN_LIKELY(a->ndim == 2 && b->ndim == 2)) return two_matrices(p, a, b);
  return batched(p);
}

/* What is added: c, stepping by s0 and s1 within a product. */
static void addend(pln_Call *c, const pln_Tensor *t, int64_t s0, int64_t s1) {
  operand(c, 2, t);
  c->nin = 3;
  c->i[9] = s0;
  c->i[10] = s1;
}

static pln_Status factor(pln_Prep *p, int opt, pln_DType dtype, const char *name) {
  double v = p->a->opt[opt].num;
  if (pln_dtype_is_float(dtype) || (v == floor(v) && fabs(v) < 0x1p53)) return PLN_OK;
  return pln_prep_fail(p, PLN_EARG, "argument '%s': with %s operands a whole number is expected, got %g", name, pln_dtype_name(dtype), v);
}

pln_Status pln_prepare_addmm(pln_Prep *p) {
  pln_Tensor *c = p->a->in[0], *a = p->a->in[1], *b = p->a->in[2];
  char text[PLN_SHAPE_TEXT], want[PLN_SHAPE_TEXT];
  PLN_TRY(check_dtypes(p, a, b, "a", "b"));
  if (c->dtype != a->dtype) return dtypes_differ(p, a, c, "c");
  if (a->ndim != 2 || b->ndim != 2)
    return pln_prep_fail(p, PLN_ESHAPE, "argument '%s': expected a matrix of 2 dimensions, got shape %s", a->ndim != 2 ? "a" : "b",
                         a->ndim != 2 ? pln_shape_text(a->ndim, a->shape, text) : pln_shape_text(b->ndim, b->shape, text));
  PLN_TRY(factor(p, 0, (pln_DType)a->dtype, "beta"));
  PLN_TRY(factor(p, 1, (pln_DType)a->dtype, "alpha"));
  pln_Shape shape = {2, {a->shape[0], b->shape[1]}};
  int64_t stride[PLN_MAX_DIMS];
  if (c->ndim > 2 || !pln_shape_expand(c->ndim, c->shape, c->stride, &shape, stride))
    return pln_prep_fail(p, PLN_ESHAPE, "argument 'c': shape %s does not broadcast to %s", pln_shape_text(c->ndim, c->shape, text),
                         pln_shape_text(2, shape.size, want));
  PLN_TRY(two_matrices(p, a, b));
  p->call.f[0] = p->a->opt[0].num;
  p->call.f[1] = p->a->opt[1].num;
  if (p->call.f[0] != 0) addend(&p->call, c, stride[0], stride[1]);
  return PLN_OK;
}

/* x w^T as one tall product, or as several where x's rows, or the destination's, do not step evenly. */
static pln_Status tall(pln_Prep *p, const pln_Tensor *x, const pln_Tensor *w, const pln_Shape *shape) {
  pln_Call *c = &p->call;
  int dims = x->ndim - 1;
  bool vector = w->ndim == 1;
  PLN_TRY(pln_prep_out(p, 0, (pln_DType)x->dtype, shape));
  if (p->done) return PLN_OK;
  int64_t cs1 = vector ? 0 : c->arg[0].stride[dims];
  product(c, x, w, 1, vector ? 1 : w->shape[0], x->shape[dims], 0, cs1, 0, x->stride[dims], w->stride[vector ? 0 : 1],
          vector ? 0 : w->stride[0]);
  memcpy(c->arg[1].stride, x->stride, (size_t)dims * sizeof(int64_t));
  pln_Shape rows = head(x, dims);
  collapse_batch(c, &rows, 2);
  /* the last dim of the rows is that of the product */
  int last = c->ndim - 1;
  c->i[0] = c->size[last];
  c->i[3] = c->arg[0].stride[last];
  c->i[5] = c->arg[1].stride[last];
  c->numel /= c->size[last];
  if (last == 0) {
    c->size[0] = 1;
    c->arg[0].stride[0] = c->arg[1].stride[0] = 0;
  } else {
    c->ndim--;
  }
  for (int d = 0; d < c->ndim; d++) c->arg[2].stride[d] = 0;
  return PLN_OK;
}

static void add_bias(pln_Call *c, const pln_Tensor *b) {
  addend(c, b, 0, b->ndim ? b->stride[0] : 0);
  for (int d = 0; d < c->ndim; d++) c->arg[3].stride[d] = 0;
}

pln_Status pln_prepare_linear(pln_Prep *p) {
  pln_Tensor *x = p->a->in[0], *w = p->a->in[1], *b = p->a->in[2];
  char text[PLN_SHAPE_TEXT], want[PLN_SHAPE_TEXT];
  PLN_TRY(check_dtypes(p, x, w, "x", "w"));
  if (b && b->dtype != x->dtype) return dtypes_differ(p, x, b, "b");
  if (PLN_LIKELY(x->ndim == 2 && w->ndim == 2 && x->shape[1] == w->shape[1] && (!b || (b->ndim == 1 && b->shape[0] == w->shape[0])))) {
    PLN_TRY(matrices(p, x, w, w->shape[0], w->stride[1], w->stride[0]));
    if (b) add_bias(&p->call, b);
    return PLN_OK;
  }
  if (x->ndim == 0) return no_dims(p, "x");
  if (w->ndim != 1 && w->ndim != 2)
    return pln_prep_fail(p, PLN_ESHAPE, "argument 'w': expected shape (out, in) or (in), got %s", pln_shape_text(w->ndim, w->shape, text));
  int64_t k = x->shape[x->ndim - 1], kw = w->shape[w->ndim - 1];
  if (kw != k) return sizes_differ(p, x, w, "w", k, kw);
  pln_Shape shape = head(x, x->ndim - 1), bias = {w->ndim - 1, {w->shape[0]}};
  if (w->ndim == 2) shape.size[shape.ndim++] = w->shape[0];
  if (b) {
    pln_Shape given = pln_tensor_shape(b);
    if (!pln_shape_equal(&given, &bias))
      return pln_prep_fail(p, PLN_ESHAPE, "argument 'b': expected shape %s, got %s", pln_shape_text(bias.ndim, bias.size, want),
                           pln_shape_text(b->ndim, b->shape, text));
  }
  PLN_TRY(tall(p, x, w, &shape));
  if (b && !p->done) add_bias(&p->call, b);
  return PLN_OK;
}

pln_Status pln_prepare_hadamard(pln_Prep *p) {
  pln_Tensor *x = p->a->in[0];
  pln_Call *c = &p->call;
  PLN_TRY(pln_prep_dtype(p, (pln_DType)x->dtype, p->op->dtypes, "x"));
  if (x->ndim == 0) return pln_prep_fail(p, PLN_ESHAPE, "argument 'x': a 0-dim tensor has no last dim");
  int last = x->ndim - 1;
  int64_t n = x->shape[last];
  if (n <= 0 || (n & (n - 1)))
    return pln_prep_fail(p, PLN_ESHAPE, "argument 'x': the size of the last dim is %lld, a power of two is expected", (long long)n);
  pln_Shape shape = pln_tensor_shape(x), rows = head(x, last);
  PLN_TRY(pln_prep_out_contiguous(p, 0, (pln_DType)x->dtype, &shape));
  if (p->done) return PLN_OK;
  PLN_TRY(pln_prep_in(p, 0, PLN_NODTYPE));
  c->i[0] = n;
  c->i[1] = x->stride[last];
  collapse_batch(c, &rows, 2);
  return PLN_OK;
}
