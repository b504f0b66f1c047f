/* SPDX-License-Identifier: MIT
** normalize.c -- prepare functions of softmax and its kin, cross entropy, and the norm layers. All of them work on lanes, the
** dims that pln_reduce_layout calls reduced.
*/
#include "reduce.h"

/* --- operands ----------------------------------------------------------------------------------- */

static pln_Status same_shape(pln_Prep *p, const pln_Tensor *t, int ndim, const int64_t *size, const char *name) {
  char got[PLN_SHAPE_TEXT], want[PLN_SHAPE_TEXT];
  if (t->ndim == ndim && memcmp(t->shape, size, (size_t)ndim * sizeof *size) == 0) return PLN_OK;
  return pln_prep_fail(p, PLN_ESHAPE, "argument '%s': expected shape %s, got %s", name, pln_shape_text(ndim, size, want),
                       pln_shape_text(t->ndim, t->shape, got));
}

static pln_Status same_dtype(pln_Prep *p, const pln_Tensor *t, int dtype, const char *name) {
  if (t->dtype == dtype) return PLN_OK;
  return pln_prep_fail(p, PLN_EDTYPE, "argument '%s': expected %s, got %s", name, pln_dtype_name((pln_DType)dtype),
                       pln_dtype_name((pln_DType)t->dtype));
}

static pln_Status same_kind(pln_Prep *p, const pln_Tensor *t, const pln_Tensor *like, const char *name) {
  PLN_TRY(same_dtype(p, t, like->dtype, name));
  return same_shape(p, t, like->ndim, like->shape, name);
}

/* The next operand of the call. */
static void add(pln_Prep *p, const pln_Tensor *t) { pln_prep_arg(p, p->call.nin++, t); }

static pln_Status add_contiguous(pln_Prep *p, pln_Tensor *t) {
  PLN_TRY(pln_prep_contiguous(p, t, &t));
  add(p, t);
  return PLN_OK;
}

/* An argument that is the same for all lanes. */
static void hold(pln_Arg *g) {
  for (int i = 0; i < PLN_MAX_DIMS; i++) g->stride[i] = 0;
  g->ndim = 0;
}

/* A result that the kernel finds row-major: one that is not is copied into its destination afterwards. */
static pln_Status contiguous_out(pln_Prep *p, int i, pln_DType dtype, const pln_Shape *shape) {
  PLN_TRY(pln_prep_out(p, i, dtype, shape));
  const pln_Arg *g = &p->call.arg[i];
  if (pln_shape_is_contiguous(g->ndim, g->shape, g->stride)) return PLN_OK;
  pln_Tensor *t;
  PLN_TRY(pln_prep_temp(p, dtype, shape, &t));
  p->back[p->nback].from = t;
  p->back[p->nback++].to = p->a->out[i];
  pln_prep_arg(p, i - p->call.nout, t);
  return PLN_OK;
}

/* Result i is not wanted: it and the ones behind it are none of the call's. */
static pln_Status drop_results(pln_Prep *p, int i) {
  p->call.nout = (uint8_t)i;
  for (; i < p->op->nout; i++)
    if (p->a->out[i]) return pln_prep_fail(p, PLN_EARG, "argument 'out': result %d is not computed", i + 1);
  return PLN_OK;
}

/* --- softmax ------------------------------------------------------------------------------------ */

pln_Status pln_prepare_softmax(pln_Prep *p) {
  pln_Tensor *x = p->a->in[0];
  int dim;
  PLN_TRY(pln_prep_dtype(p, (pln_DType)x->dtype, p->op->dtypes, "x"));
  PLN_TRY(pln_prep_dim(p, 0, x->ndim, &dim));
  pln_Shape shape = pln_tensor_shape(x);
  PLN_TRY(pln_prep_out(p, 0, (pln_DType)x->dtype, &shape));
  add(p, x);
  if (!p->done) pln_reduce_layout(p, x, pln_reduce_along(x, dim), 3);
  return PLN_OK;
}

pln_Status pln_prepare_softmax_backward(pln_Prep *p) {
  pln_Tensor *g = p->a->in[0], *y = p->a->in[1];
  int dim;
  PLN_TRY(pln_prep_dtype(p, (pln_DType)y->dtype, p->op->dtypes, "y"));
  PLN_TRY(same_kind(p, g, y, "g"));
  PLN_TRY(pln_prep_dim(p, 0, y->ndim, &dim));
  pln_Shape shape = pln_tensor_shape(y);
  PLN_TRY(pln_prep_out(p, 0, (pln_DType)y->dtype, &shape));
  add(p, g);
  add(p, y);
  if (!p->done) pln_reduce_layout(p, y, pln_reduce_along(y, dim), 7);
  return PLN_OK;
}

/* --- cross entropy ------------------------------------------------------------------------------ */

/* Checks x (in[first]), target and weight, and notes the options; the shape of the losses is that of class targets. */
static pln_Status check_loss(pln_Prep *p, int first, pln_Shape *losses) {
  pln_Args *a = p->a;
  pln_Call *c = &p->call;
  const pln_Tensor *x = a->in[first], *target = a->in[first + 1], *weight = a->in[first + 2];
  char text[PLN_SHAPE_TEXT + 16], got[PLN_SHAPE_TEXT + 16], want[PLN_SHAPE_TEXT];
  PLN_TRY(pln_prep_dtype(p, (pln_DType)x->dtype, p->op->dtypes, "x"));
  int dim = x->ndim == 1 ? 0 : 1;
  if (x->ndim == 0 || x->shape[dim] == 0)
    return pln_prep_fail(p, PLN_ESHAPE, "argument 'x': %s has no classes, expected (C), (N, C) or (N, C, ..)", pln_tensor_text(x, text));
  *losses = pln_reduce_shape(x, 1u << dim, false);
  bool probabilities = pln_dtype_is_float((pln_DType)target->dtype);
  const int64_t *size = probabilities ? x->shape : losses->size;
  int ndim = probabilities ? x->ndim : losses->ndim;
  if (target->dtype == PLN_BOOL || target->ndim != ndim || memcmp(target->shape, size, (size_t)ndim * sizeof *size) != 0)
    return pln_prep_fail(p, PLN_ESHAPE, "argument 'target': expected classes, integers of shape %s, or probabilities, %s of x's shape, got %s",
                         pln_shape_text(losses->ndim, losses->size, want), pln_dtype_name((pln_DType)x->dtype), pln_tensor_text(target, got));
  if (probabilities) PLN_TRY(same_dtype(p, target, x->dtype, "target"));
  if (weight) {
    PLN_TRY(same_dtype(p, weight, x->dtype, "weight"));
    PLN_TRY(same_shape(p, weight, 1, &x->shape[dim], "weight"));
  }
  double smoothing = a->opt[2].num;
  if (!(smoothing >= 0 && smoothing <= 1))
    return pln_prep_fail(p, PLN_EARG, "argument 'label_smoothing': expected a number from 0 to 1, got %g", smoothing);
  if (probabilities && a->opt[0].given)
    return pln_prep_fail(p, PLN_EARG, "argument 'ignore_index': not possible with probabilities as target");
  c->i[2] = weight ? 1 : 0;
  c->i[3] = a->opt[1].i;
  c->i[4] = probabilities;
  c->i[5] = a->opt[0].given;
  c->i[6] = a->opt[0].given ? a->opt[0].i : 0;
  c->f[0] = smoothing;
  return PLN_OK;
}

/* Adds x, target and weight, lays all out, asks for scratch. `full` is the set of arguments before x that step like it. */
static pln_Status lay_out_loss(pln_Prep *p, int first, uint32_t full) {
  pln_Args *a = p->a;
  pln_Call *c = &p->call;
  pln_Tensor *x = a->in[first], *target = a->in[first + 1], *weight = a->in[first + 2];
  full |= 1u << (c->nout + c->nin);
  add(p, x);
  if (c->i[4]) full |= 1u << (c->nout + c->nin);
  if (!c->i[4]) PLN_TRY(pln_prep_cast(p, target, PLN_I64, &target));
  add(p, target);
  if (weight) {
    PLN_TRY(add_contiguous(p, weight));
    hold(&c->arg[c->nout + c->nin - 1]);
  }
  pln_reduce_layout(p, x, x->ndim == 1 ? 1 : 2, full);
  if (c->i[3] && c->numel) PLN_TRY(pln_prep_scratch(p, (size_t)c->numel * 16));
  return PLN_OK;
}

pln_Status pln_prepare_cross_entropy(pln_Prep *p) {
  pln_Shape losses, scalar = {0, {0}};
  PLN_TRY(check_loss(p, 0, &losses));
  pln_DType dtype = (pln_DType)p->a->in[0]->dtype;
  bool none = p->call.i[3] == 0;
  PLN_TRY(pln_prep_out(p, 0, dtype, none ? &losses : &scalar));
  if (!none) hold(&p->call.arg[0]);
  PLN_TRY(lay_out_loss(p, 0, 0));
  if (!none) p->done = 0; /* no losses: their sum is 0, their mean NaN */
  return PLN_OK;
}

pln_Status pln_prepare_cross_entropy_backward(pln_Prep *p) {
  pln_Tensor *g = p->a->in[0], *x = p->a->in[1];
  pln_Shape losses;
  PLN_TRY(check_loss(p, 1, &losses));
  bool none = p->call.i[3] == 0;
  PLN_TRY(same_dtype(p, g, x->dtype, "g"));
  PLN_TRY(same_shape(p, g, none ? losses.ndim : 0, losses.size, "g"));
  pln_Shape shape = pln_tensor_shape(x);
  PLN_TRY(pln_prep_out(p, 0, (pln_DType)x->dtype, &shape));
  add(p, g);
  if (!none) hold(&p->call.arg[1]);
  return lay_out_loss(p, 1, 1);
}

/* --- layer_norm, rms_norm ----------------------------------------------------------------------- */

/* The last dims of x, which must be those of the option: a mask. */
static pln_Status last_dims(pln_Prep *p, const pln_Tensor *x, int opt, uint32_t *mask_p) {
  const pln_Shape *s = &p->a->opt[opt].list;
  char want[PLN_SHAPE_TEXT], got[PLN_SHAPE_TEXT + 16];
  int lead = x->ndim - s->ndim;
  PLN_TRY(pln_prep_dtype(p, (pln_DType)x->dtype, p->op->dtypes, "x"));
  if (s->ndim < 1 || lead < 0 || memcmp(x->shape + lead, s->size, (size_t)s->ndim * sizeof *s->size) != 0)
    return pln_prep_fail(p, PLN_ESHAPE, "argument 'normalized_shape': expected the last dims of x, got %s for an %s",
                         pln_shape_text(s->ndim < 0 ? 0 : s->ndim, s->size, want), pln_tensor_text(x, got));
  *mask_p = ((1u << s->ndim) - 1) << lead;
  return PLN_OK;
}

static pln_Status check_affine(pln_Prep *p, const pln_Tensor *t, const pln_Tensor *x, const pln_Shape *shape, const char *name) {
  if (!t) return PLN_OK;
  PLN_TRY(same_dtype(p, t, x->dtype, name));
  return same_shape(p, t, shape->ndim, shape->size, name);
}

/* Adds an operand whose lanes lie side by side. */
static pln_Status add_lanes(pln_Prep *p, pln_Tensor *t, uint32_t mask) {
  int lead = 0;
  while (!(mask >> lead & 1)) lead++;
  if (!pln_shape_is_contiguous(t->ndim - lead, t->shape + lead, t->stride + lead)) PLN_TRY(pln_prep_contiguous(p, t, &t));
  add(p, t);
  return PLN_OK;
}

static pln_Status add_held(pln_Prep *p, pln_Tensor *t, int bit) {
  if (!t) return PLN_OK;
  PLN_TRY(add_contiguous(p, t));
  hold(&p->call.arg[p->call.nout + p->call.nin - 1]);
  p->call.i[2] |= bit;
  return PLN_OK;
}

/* x over the lanes of `mask`: y, then one f64 number per lane for each further result; operands weight and bias, NULL if absent. */
static pln_Status norm_forward(pln_Prep *p, uint32_t mask, pln_Tensor *weight, pln_Tensor *bias, int eps) {
  pln_Tensor *x = p->a->in[0];
  pln_Shape shape = pln_tensor_shape(x), lanes = pln_reduce_shape(x, mask, false);
  p->call.f[0] = p->a->opt[eps].num;
  PLN_TRY(contiguous_out(p, 0, (pln_DType)x->dtype, &shape));
  for (int i = 1; i < p->op->nout; i++) PLN_TRY(pln_prep_out(p, i, PLN_F64, &lanes));
  p->call.i[2] = 0;
  PLN_TRY(add_lanes(p, x, mask));
  PLN_TRY(add_held(p, weight, 1));
  PLN_TRY(add_held(p, bias, 2));
  if (!p->done) pln_reduce_layout(p, x, mask, 1u | 1u << p->call.nout);
  return PLN_OK;
}

static pln_Status prepare_norm(pln_Prep *p, bool biased) {
  pln_Tensor **in = p->a->in, *x = in[0], *weight = in[1], *bias = biased ? in[2] : NULL;
  const pln_Shape *shape = &p->a->opt[0].list;
  uint32_t mask;
  PLN_TRY(last_dims(p, x, 0, &mask));
  PLN_TRY(check_affine(p, weight, x, shape, "weight"));
  PLN_TRY(check_affine(p, bias, x, shape, "bias"));
  return norm_forward(p, mask, weight, bias, 1);
}

pln_Status pln_prepare_layer_norm(pln_Prep *p) { return prepare_norm(p, true); }
pln_Status pln_prepare_layer_norm_forward(pln_Prep *p) { return prepare_norm(p, true); }
pln_Status pln_prepare_rms_norm(pln_Prep *p) { return prepare_norm(p, false); }
pln_Status pln_prepare_rms_norm_forward(pln_Prep *p) { return prepare_norm(p, false); }

static pln_Status check_stats(pln_Prep *p, const pln_Tensor *t, const pln_Shape *lanes, const char *name) {
  PLN_TRY(same_dtype(p, t, PLN_F64, name));
  return same_shape(p, t, lanes->ndim, lanes->size, name);
}

/* g, x, [mean,] rstd, [weight] to dx and, with affine, dweight [and dbias]. */
static pln_Status norm_backward(pln_Prep *p, bool centred) {
  pln_Tensor **in = p->a->in, *g = in[0], *x = in[1], *mean = centred ? in[2] : NULL, *rstd = in[2 + centred], *weight = in[3 + centred];
  const pln_Shape *normalized = &p->a->opt[0].list;
  bool affine = p->a->opt[1].i;
  uint32_t mask, full = 1;
  PLN_TRY(last_dims(p, x, 0, &mask));
  PLN_TRY(same_kind(p, g, x, "g"));
  pln_Shape shape = pln_tensor_shape(x), lanes = pln_reduce_shape(x, mask, false);
  if (mean) PLN_TRY(check_stats(p, mean, &lanes, "mean"));
  PLN_TRY(check_stats(p, rstd, &lanes, "rstd"));
  PLN_TRY(check_affine(p, weight, x, normalized, "weight"));
  if (!affine) PLN_TRY(drop_results(p, 1));
  PLN_TRY(contiguous_out(p, 0, (pln_DType)x->dtype, &shape));
  for (int i = 1; i < p->call.nout; i++) {
    PLN_TRY(contiguous_out(p, i, (pln_DType)x->dtype, normalized));
    hold(&p->call.arg[i]);
  }
  p->call.i[2] = 0;
  full |= 3u << p->call.nout;
  PLN_TRY(add_contiguous(p, g));
  PLN_TRY(add_contiguous(p, x));
  if (mean) PLN_TRY(add_contiguous(p, mean));
  PLN_TRY(add_contiguous(p, rstd));
  PLN_TRY(add_held(p, weight, 1));
  pln_reduce_layout(p, x, mask, full);
  if (!affine || p->call.i[1] == 0) return PLN_OK;
  p->done = 0; /* no lanes: sums over them are 0 */
  int64_t units = (p->call.numel + PLN_REDUCE_UNIT - 1) / PLN_REDUCE_UNIT;
  return units > 1 ? pln_prep_scratch(p, (size_t)(units * p->call.i[1] * 16)) : PLN_OK;
}

pln_Status pln_prepare_layer_norm_backward(pln_Prep *p) { return norm_backward(p, true); }
pln_Status pln_prepare_rms_norm_backward(pln_Prep *p) { return norm_backward(p, false); }

/* --- group_norm --------------------------------------------------------------------------------- */

/* Checks x (N, C, ..) and the number of groups; the shapes of weight and of the numbers per lane. */
static pln_Status check_groups(pln_Prep *p, const pln_Tensor *x, pln_Shape *channels, pln_Shape *lanes) {
  char text[PLN_SHAPE_TEXT + 16];
  int64_t groups = p->a->opt[0].i;
  PLN_TRY(pln_prep_dtype(p, (pln_DType)x->dtype, p->op->dtypes, "x"));
  if (x->ndim < 2) return pln_prep_fail(p, PLN_ESHAPE, "argument 'x': expected (N, C, ..), got %s", pln_tensor_text(x, text));
  if (groups < 1 || x->shape[1] % groups != 0)
    return pln_prep_fail(p, PLN_EARG, "argument 'groups': expected a divisor of the %lld channels, got %lld", (long long)x->shape[1],
                         (long long)groups);
  *channels = (pln_Shape){1, {x->shape[1]}};
  *lanes = (pln_Shape){2, {x->shape[0], groups}};
  return PLN_OK;
}

/* Lanes of a row-major x: one for each image and group. `full` arguments are row-major like x, further ones have a number per lane. */
static void lay_out_groups(pln_Prep *p, const pln_Tensor *x, uint32_t full) {
  pln_Call *c = &p->call;
  int64_t groups = p->a->opt[0].i, rest = 1;
  for (int d = 2; d < x->ndim; d++) rest *= x->shape[d];
  c->ndim = 3;
  c->size[0] = x->shape[0];
  c->size[1] = groups;
  c->size[2] = x->shape[1] / groups * rest;
  c->numel = x->shape[0] * groups;
  c->i[0] = 2;
  c->i[1] = c->size[2];
  c->i[3] = x->shape[1];
  c->i[4] = groups;
  c->i[5] = rest;
  for (int a = 0; a < c->nout + c->nin; a++) {
    if (!(full >> a & 1)) continue;
    c->arg[a].stride[0] = groups * c->size[2];
    c->arg[a].stride[1] = c->size[2];
    c->arg[a].stride[2] = 1;
  }
}

static pln_Status prepare_groups(pln_Prep *p) {
  pln_Tensor **in = p->a->in, *x = in[0], *weight = in[1], *bias = in[2];
  pln_Shape shape = pln_tensor_shape(x), channels, lanes;
  PLN_TRY(check_groups(p, x, &channels, &lanes));
  PLN_TRY(check_affine(p, weight, x, &channels, "weight"));
  PLN_TRY(check_affine(p, bias, x, &channels, "bias"));
  p->call.f[0] = p->a->opt[1].num;
  PLN_TRY(contiguous_out(p, 0, (pln_DType)x->dtype, &shape));
  for (int i = 1; i < p->op->nout; i++) PLN_TRY(pln_prep_out(p, i, PLN_F64, &lanes));
  p->call.i[2] = 0;
  PLN_TRY(add_contiguous(p, x));
  PLN_TRY(add_held(p, weight, 1));
  PLN_TRY(add_held(p, bias, 2));
  lay_out_groups(p, x, 1u | 1u << p->call.nout);
  return PLN_OK;
}

pln_Status pln_prepare_group_norm(pln_Prep *p) { return prepare_groups(p); }
pln_Status pln_prepare_group_norm_forward(pln_Prep *p) { return prepare_groups(p); }

pln_Status pln_prepare_group_norm_backward(pln_Prep *p) {
  pln_Tensor **in = p->a->in, *g = in[0], *x = in[1], *mean = in[2], *rstd = in[3], *weight = in[4];
  pln_Shape shape = pln_tensor_shape(x), channels, lanes;
  bool affine = p->a->opt[1].i;
  PLN_TRY(check_groups(p, x, &channels, &lanes));
  PLN_TRY(same_kind(p, g, x, "g"));
  PLN_TRY(check_stats(p, mean, &lanes, "mean"));
  PLN_TRY(check_stats(p, rstd, &lanes, "rstd"));
  PLN_TRY(check_affine(p, weight, x, &channels, "weight"));
  if (!affine) PLN_TRY(drop_results(p, 1));
  PLN_TRY(contiguous_out(p, 0, (pln_DType)x->dtype, &shape));
  for (int i = 1; i < p->call.nout; i++) PLN_TRY(contiguous_out(p, i, (pln_DType)x->dtype, &channels));
  p->call.i[2] = 0;
  PLN_TRY(add_contiguous(p, g));
  PLN_TRY(add_contiguous(p, x));
  PLN_TRY(add_contiguous(p, mean));
  PLN_TRY(add_contiguous(p, rstd));
  PLN_TRY(add_held(p, weight, 1));
  lay_out_groups(p, x, 1u | 3u << p->call.nout);
  if (affine && x->shape[1]) p->done = 0; /* no images: sums over them are 0 */
  int64_t images = x->shape[0], units = (images + PLN_REDUCE_UNIT - 1) / PLN_REDUCE_UNIT;
  return p->done || !images ? PLN_OK : pln_prep_scratch(p, (size_t)((images + (units > 1 ? units : 0)) * x->shape[1] * 16));
}
