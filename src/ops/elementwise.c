/* SPDX-License-Identifier: MIT
** elementwise.c -- arguments, dtypes and shapes of the elementwise ops.
**
** Every prepare decides the dtypes and hands over to `elementwise`, which knows two ways: operands that all lie row-major
** in the result's shape become one flat loop, anything else goes through broadcasting and the collapsed iteration space.
*/
#include "elementwise.h"

#include <math.h>
#include <string.h>

#include "../engine.h"

#define INLINE static inline __attribute__((always_inline))

/* --- derivatives -------------------------------------------------------------------------------- */

#define UNARY(name, rule, saves, formula, derivative, ...) \
  [PLN_OP_##name] = {{#derivative, NULL}, PLN_SAVES_##saves, PLN_OP_##name##_backward},
#define OPTIONS(name, signature, params, rule, saves, formula, derivative, ...) UNARY(name, rule, saves, formula, derivative)
#define BINARY(name, rule, formula, derivative1, derivative2, ...) \
  [PLN_OP_##name] = {{#derivative1, #derivative2}, PLN_SAVES_NONE, PLN_OP_##name##_backward},
const pln_Derivative pln_derivatives[PLN_NOPS] = {
#include "elementwise.def"
};

static bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }

bool pln_derivative_names(const char *text, char operand) {
  for (const char *s = text; *s;) {
    size_t n = 0;
    while (is_letter(s[n])) n++;
    if (n == 1 && *s == operand) return true;
    s += n ? n : 1;
  }
  return false;
}

/* --- the common way ----------------------------------------------------------------------------- */

static const char *slot_name(const pln_Prep *p, int i) { return p->op->slot[i].name; } /* tensor slots come first */

/* A tensor operand if all of them are row-major, of one shape and of the wanted dtypes, and so is the destination. */
INLINE const pln_Tensor *plain(const pln_Prep *p, int nin, const pln_DType *in) {
  const pln_Args *a = p->a;
  const pln_Tensor *first = NULL;
  for (int i = 0; i < nin; i++) {
    const pln_Tensor *t = a->in[i];
    if (!t) continue;
    if (!t->contiguous || t->dtype != in[i]) return NULL;
    if (!first) {
      first = t;
      continue;
    }
    if (t->ndim != first->ndim) return NULL;
    for (int d = 0; d < t->ndim; d++)
      if (t->shape[d] != first->shape[d]) return NULL;
  }
  return a->out[0] && !a->out[0]->contiguous ? NULL : first;
}

/* Integer operands take whole numbers up to 64 bits; what is wider than the dtype wraps. */
static PLN_COLD pln_Status number_fault(const pln_Prep *p, int i) {
  return pln_prep_fail(p, PLN_EARG, "argument '%s': the number %.17g does not fit into i64", slot_name(p, i), p->a->num[i]);
}

/* Whether two row-major operands are rows and one row for all of them, such as a bias; the rows come first. */
INLINE bool is_bias(const pln_Prep *p, const pln_DType *in) {
  const pln_Tensor *x = p->a->in[0], *y = p->a->in[1];
  if (!x || !y || !x->contiguous || !y->contiguous || x->dtype != in[0] || y->dtype != in[1]) return false;
  if (y->ndim == 0 || y->ndim >= x->ndim || (p->a->out[0] && !p->a->out[0]->contiguous)) return false;
  for (int d = 1; d <= y->ndim; d++)
    if (y->shape[y->ndim - d] != x->shape[x->ndim - d]) return false;
  return true;
}

INLINE void set_operand(pln_Arg *g, const pln_Tensor *t) {
  g->data = t->data;
  g->dtype = t->dtype;
  g->ndim = 0; /* an operand's own shape is not used by these kernels */
}

static pln_Status bias(pln_Prep *p, pln_DType out) {
  pln_Call *c = &p->call;
  const pln_Tensor *x = p->a->in[0], *y = p->a->in[1];
  pln_Shape shape = pln_tensor_shape(x);
  PLN_TRY(pln_prep_out(p, 0, out, &shape));
  if (p->done) return PLN_OK;
  c->ndim = 2;
  c->nin = 2;
  c->numel = x->numel;
  c->size[0] = x->numel / y->numel;
  c->size[1] = y->numel;
  set_operand(&c->arg[1], x);
  set_operand(&c->arg[2], y);
  c->arg[0].stride[0] = c->arg[1].stride[0] = y->numel;
  c->arg[2].stride[0] = 0;
  for (int k = 0; k < 3; k++) c->arg[k].stride[1] = 1;
  return PLN_OK;
}

INLINE pln_Status elementwise(pln_Prep *p, int nin, const pln_DType *in, pln_DType out) {
  pln_Args *a = p->a;
  pln_Call *c = &p->call;
  if (a->numbers)
    for (int i = 0; i < nin; i++)
      if (a->numbers >> i & 1 && !pln_dtype_is_float(in[i]) && !(fabs(a->num[i]) < 0x1p63)) return number_fault(p, i);
  const pln_Tensor *like = plain(p, nin, in);
  pln_Shape shape;
  if (PLN_LIKELY(like != NULL)) {
    shape.ndim = like->ndim;
    for (int d = 0; d < like->ndim; d++) shape.size[d] = like->shape[d];
    PLN_TRY(pln_prep_out(p, 0, out, &shape));
    c->ndim = 1;
    c->nin = (uint8_t)nin;
    c->numel = c->size[0] = like->numel;
    c->arg[0].stride[0] = 1;
    for (int i = 0; i < nin; i++) {
      pln_Arg *g = &c->arg[1 + i];
      const pln_Tensor *t = a->in[i];
      if (PLN_LIKELY(t != NULL)) {
        set_operand(g, t);
        g->stride[0] = 1;
      } else {
        g->data = NULL;
        g->dtype = (uint8_t)in[i];
        g->ndim = 0;
        c->f[PLN_MAX_PARAMS - 1 - i] = a->num[i];
      }
    }
    return PLN_OK;
  }
  if (nin == 2 && is_bias(p, in)) return bias(p, out);
  PLN_TRY(pln_prep_broadcast(p, nin, &shape));
  PLN_TRY(pln_prep_out(p, 0, out, &shape));
  for (int i = 0; i < nin; i++) PLN_TRY(pln_prep_in(p, i, in[i]));
  return pln_prep_iterate(p, &shape);
}

/* --- one operand -------------------------------------------------------------------------------- */

static void take_options(pln_Prep *p) {
  for (int i = 0; i < p->op->nopt; i++) p->call.f[i] = p->a->opt[i].num;
}

INLINE pln_Status unary(pln_Prep *p, pln_DType in, pln_DType out) { return elementwise(p, 1, &in, out); }

static pln_DType float_of(pln_DType d) { return pln_dtype_is_float(d) ? d : PLN_F32; }

pln_Status pln_prepare_unary_float(pln_Prep *p) {
  pln_DType d = float_of((pln_DType)p->a->in[0]->dtype);
  take_options(p);
  return unary(p, d, d);
}

pln_Status pln_prepare_unary_number(pln_Prep *p) {
  pln_DType d = (pln_DType)p->a->in[0]->dtype;
  PLN_TRY(pln_prep_dtype(p, d, p->op->dtypes, "x"));
  return unary(p, d, d);
}

pln_Status pln_prepare_unary_clamp(pln_Prep *p) {
  const pln_Opt *lo = &p->a->opt[0], *hi = &p->a->opt[1];
  pln_DType d = (pln_DType)p->a->in[0]->dtype;
  if (!lo->given && !hi->given) return pln_prep_fail(p, PLN_EARG, "argument 'lo': lo or hi is needed, both are nil");
  if (lo->given) d = pln_dtype_promote_number(d, lo->num);
  if (hi->given) d = pln_dtype_promote_number(d, hi->num);
  PLN_TRY(pln_prep_dtype(p, d, p->op->dtypes, "x"));
  p->call.f[0] = lo->given ? lo->num : -INFINITY;
  p->call.f[1] = hi->given ? hi->num : INFINITY;
  return unary(p, d, d);
}

pln_Status pln_prepare_test(pln_Prep *p) { return unary(p, (pln_DType)p->a->in[0]->dtype, PLN_BOOL); }

pln_Status pln_prepare_unary_backward(pln_Prep *p) {
  pln_DType d = (pln_DType)p->a->in[0]->dtype, in[2] = {d, d};
  PLN_TRY(pln_prep_dtype(p, d, p->op->dtypes, "g"));
  if (p->op - pln_ops == PLN_OP_clamp_backward) {
    p->call.f[0] = p->a->opt[0].given ? p->a->opt[0].num : -INFINITY;
    p->call.f[1] = p->a->opt[1].given ? p->a->opt[1].num : INFINITY;
  } else {
    take_options(p);
  }
  return elementwise(p, 2, in, d);
}

/* The two formulas of gelu are ops of their own, so that each is one vector loop and has its own derivative. */
pln_Status pln_prepare_gelu(pln_Prep *p) {
  const pln_OpDef *op = &pln_ops[p->a->opt[0].i ? PLN_OP_gelu_tanh : PLN_OP_gelu_erf];
  pln_Args a;
  if (p->a->out[0]) { /* errors name gelu; where it overlaps x is the formula's concern */
    pln_Shape shape = pln_tensor_shape(p->a->in[0]);
    pln_DType d = (pln_DType)p->a->in[0]->dtype;
    PLN_TRY(pln_prep_out(p, 0, pln_dtype_is_float(d) ? d : PLN_F32, &shape));
    p->nback = 0;
  }
  pln_args_init(op, &a);
  a.in[0] = p->a->in[0];
  a.out[0] = p->a->out[0];
  a.place = p->a->place;
  PLN_TRY(pln_op_run(p->e, op, &a));
  p->made[0] = !p->a->out[0];
  p->a->out[0] = a.out[0];
  p->done = 1;
  return PLN_OK;
}

/* --- two operands ------------------------------------------------------------------------------- */

/* Two numbers make a 0-dim f32 result, as in PyTorch. */
INLINE pln_DType promoted(const pln_Prep *p) {
  const pln_Tensor *x = p->a->in[0], *y = p->a->in[1];
  return PLN_LIKELY(x && y && x->dtype == y->dtype) ? (pln_DType)x->dtype : pln_prep_promote(p, 0, 2);
}

INLINE pln_Status binary(pln_Prep *p, pln_DType d, pln_DType out) {
  pln_DType in[2] = {d, d};
  return elementwise(p, 2, in, out);
}

pln_Status pln_prepare_binary_any(pln_Prep *p) {
  pln_DType d = promoted(p);
  return binary(p, d, d);
}

pln_Status pln_prepare_binary_number(pln_Prep *p) {
  pln_DType d = promoted(p);
  PLN_TRY(pln_prep_dtype(p, d, p->op->dtypes, "a"));
  return binary(p, d, d);
}

pln_Status pln_prepare_binary_fraction(pln_Prep *p) {
  pln_DType d = float_of(promoted(p));
  return binary(p, d, d);
}

/* The number operand b as the integer dtype holds it. */
static int64_t wrapped(pln_DType d, double v) {
  if (!(fabs(v) < 0x1p63)) return 0; /* refused by `elementwise` */
  int64_t i = (int64_t)v;
  return d == PLN_U8 ? (uint8_t)i : d == PLN_I32 ? (int32_t)i : i;
}

pln_Status pln_prepare_binary_mod(pln_Prep *p) {
  pln_DType d = promoted(p);
  PLN_TRY(pln_prep_dtype(p, d, p->op->dtypes, "a"));
  if (!p->a->in[1] && !pln_dtype_is_float(d) && fabs(p->a->num[1]) < 0x1p63 && wrapped(d, p->a->num[1]) == 0)
    return pln_prep_fail(p, PLN_EARG, "argument 'b': integer division by zero, the number %g is 0 as %s", p->a->num[1],
                         pln_dtype_name(d));
  return binary(p, d, d);
}

pln_Status pln_prepare_binary_power(pln_Prep *p) {
  pln_DType d = promoted(p);
  PLN_TRY(pln_prep_dtype(p, d, p->op->dtypes, "a"));
  if (!p->a->in[1] && !pln_dtype_is_float(d) && p->a->num[1] < 0)
    return pln_prep_fail(p, PLN_EARG, "argument 'b': an integer has no power of %g, convert the base with t:to \"f32\"",
                         p->a->num[1]);
  return binary(p, d, d);
}

pln_Status pln_prepare_binary_backward(pln_Prep *p) {
  pln_DType d = (pln_DType)p->a->in[0]->dtype, in[3] = {d, d, d};
  int64_t which = p->a->opt[0].i;
  PLN_TRY(pln_prep_dtype(p, d, p->op->dtypes, "g"));
  if (which != 1 && which != 2)
    return pln_prep_fail(p, PLN_EARG, "argument 'which': operand 1 or 2 was expected, got %lld", (long long)which);
  p->call.i[0] = which - 1;
  return elementwise(p, 3, in, d);
}

/* Whether an integer dtype holds the number as it is. */
static bool fits(pln_DType d, double v) {
  switch (d) {
    case PLN_U8: return v >= 0 && v <= 255;
    case PLN_I32: return v >= -0x1p31 && v < 0x1p31;
    case PLN_I64: return v >= -0x1p63 && v < 0x1p63;
    default: return true;
  }
}

pln_Status pln_prepare_compare(pln_Prep *p) {
  const pln_Args *a = p->a;
  pln_DType d = promoted(p);
  /* a wrapped number would compare wrongly: u8 < 300 */
  if (PLN_UNLIKELY(a->numbers))
    for (int i = 0; i < 2; i++)
      if (a->numbers >> i & 1 && !fits(d, a->num[i])) d = PLN_I64;
  return binary(p, d, PLN_BOOL);
}

/* --- choice ------------------------------------------------------------------------------------- */

/* A mask is read as bytes != 0; other dtypes are converted first. */
static pln_DType mask_dtype(const pln_Tensor *t) { return t->dtype == PLN_U8 ? PLN_U8 : PLN_BOOL; }

pln_Status pln_prepare_where(pln_Prep *p) {
  pln_DType d = pln_prep_promote(p, 1, 2);
  pln_DType in[3] = {mask_dtype(p->a->in[0]), d, d};
  return elementwise(p, 3, in, d);
}

pln_Status pln_elementwise_number(const pln_Prep *p, pln_DType dtype, double v, const char *what) {
  if (pln_dtype_is_float(dtype) || dtype == PLN_BOOL || (floor(v) == v && fits(dtype, v))) return PLN_OK;
  return pln_prep_fail(p, PLN_EARG, "argument '%s': the number %.17g is no %s", what, v, pln_dtype_name(dtype));
}

pln_Status pln_prepare_masked_fill(pln_Prep *p) {
  const pln_Tensor *x = p->a->in[0];
  pln_DType d = (pln_DType)x->dtype, in[2] = {d, mask_dtype(p->a->in[1])};
  PLN_TRY(pln_elementwise_number(p, d, p->a->opt[0].num, "value"));
  p->call.f[0] = p->a->opt[0].num;
  return elementwise(p, 2, in, d);
}

/* --- moving ------------------------------------------------------------------------------------- */

/* The first operand as the result. */
static pln_Status in_place(pln_Prep *p) {
  pln_Tensor *t = p->a->in[0];
  if (p->a->out[0] && p->a->out[0] != t)
    return pln_prep_fail(p, PLN_EARG, "argument 'out': the op writes into '%s' and takes no other destination", slot_name(p, 0));
  if (!t->contiguous && pln_shape_self_overlaps(t->ndim, t->shape, t->stride))
    return pln_prep_fail(p, PLN_ESHAPE, "argument '%s': cannot write through a broadcast view (several elements share memory), "
                         "clone it first", slot_name(p, 0));
  p->a->out[0] = t;
  return PLN_OK;
}

/* One operand as it is; the kernel converts. */
static pln_Status move(pln_Prep *p, pln_DType out, const pln_Shape *shape, int operand) {
  pln_Call *c = &p->call;
  const pln_Tensor *src = p->a->in[operand];
  PLN_TRY(pln_prep_out(p, 0, out, shape));
  if (src->contiguous && src->numel == p->a->out[0]->numel && p->a->out[0]->contiguous) {
    c->nin = 1;
    c->ndim = 1;
    c->numel = c->size[0] = src->numel;
    c->arg[0].stride[0] = c->arg[1].stride[0] = 1;
    c->arg[1].data = src->data;
    c->arg[1].dtype = src->dtype;
    c->arg[1].ndim = 0;
    return PLN_OK;
  }
  PLN_TRY(pln_prep_in(p, operand, PLN_NODTYPE));
  return pln_prep_iterate(p, shape);
}

pln_Status pln_prepare_cast(pln_Prep *p) {
  pln_Shape shape = pln_tensor_shape(p->a->in[0]);
  return move(p, (pln_DType)p->a->opt[0].i, &shape, 0);
}

pln_Status pln_prepare_copy(pln_Prep *p) {
  const pln_Tensor *dst = p->a->in[0], *src = p->a->in[1];
  pln_Shape shape = pln_tensor_shape(dst);
  int64_t stride[PLN_MAX_DIMS];
  if (!pln_shape_expand(src->ndim, src->shape, src->stride, &shape, stride)) {
    char from[PLN_SHAPE_TEXT], to[PLN_SHAPE_TEXT];
    return pln_prep_fail(p, PLN_ESHAPE, "argument 'src': shape %s does not broadcast to %s",
                         pln_shape_text(src->ndim, src->shape, from), pln_shape_text(dst->ndim, dst->shape, to));
  }
  PLN_TRY(in_place(p));
  return move(p, (pln_DType)dst->dtype, &shape, 1);
}

/* fill and zero */
pln_Status pln_prepare_fill(pln_Prep *p) {
  const pln_Tensor *t = p->a->in[0];
  pln_Shape shape = pln_tensor_shape(t);
  double value = p->op->nopt ? p->a->opt[0].num : 0;
  PLN_TRY(pln_elementwise_number(p, (pln_DType)t->dtype, value, "value"));
  PLN_TRY(in_place(p));
  p->call.f[0] = value;
  PLN_TRY(pln_prep_out(p, 0, (pln_DType)t->dtype, &shape));
  return pln_prep_iterate(p, &shape);
}
