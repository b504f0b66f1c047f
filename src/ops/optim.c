/* SPDX-License-Identifier: MIT
** optim.c -- arguments of the optimizers. What they change is both operand and result: the destination's rules (C1) then hold for
** parameters and state, too.
*/
#include "../op.h"

static const char *operand_name(const pln_Prep *p, int i) { return p->op->slot[i].name; } /* tensor slots come first */

/* Operand i has p's shape and one of the dtypes. */
static pln_Status same_shape(const pln_Prep *p, int i, uint32_t dtypes, const char *dtype_text) {
  const pln_Tensor *x = p->a->in[0], *t = p->a->in[i];
  char want[PLN_SHAPE_TEXT], got[PLN_SHAPE_TEXT];
  if (t->ndim != x->ndim || memcmp(t->shape, x->shape, (size_t)x->ndim * sizeof(int64_t)) != 0)
    return pln_prep_fail(p, PLN_ESHAPE, "argument '%s': expected shape %s as of 'p', got %s", operand_name(p, i),
                         pln_shape_text(x->ndim, x->shape, want), pln_shape_text(t->ndim, t->shape, got));
  if (!(dtypes >> t->dtype & 1))
    return pln_prep_fail(p, PLN_EDTYPE, "argument '%s': expected %s, got %s", operand_name(p, i), dtype_text, pln_dtype_name((pln_DType)t->dtype));
  return PLN_OK;
}

/* A number that is at least `least`, or a tensor of one element; absent: the row's default. */
static pln_Status scalar(pln_Prep *p, int i, double least, const char *range) {
  pln_Args *a = p->a;
  const pln_Tensor *t = a->in[i];
  char text[PLN_SHAPE_TEXT + 16];
  if (t) {
    if (t->numel == 1) return PLN_OK;
    return pln_prep_fail(p, PLN_ESHAPE, "argument '%s': expected a number or a tensor of one element, got %s", operand_name(p, i),
                         pln_tensor_text(t, text));
  }
  if (!(a->numbers >> i & 1)) {
    a->numbers |= 1u << i;
    a->num[i] = p->op->slot[i].def;
  }
  if (a->num[i] >= least) return PLN_OK;
  return pln_prep_fail(p, PLN_EARG, "argument '%s': expected a number that is %s, got %g", operand_name(p, i), range, a->num[i]);
}

/* Results are the operands `changed`; operands 0 .. ntensors - 1 have p's shape, the others one element. */
static pln_Status step(pln_Prep *p, const int *changed, int ntensors) {
  pln_Args *a = p->a;
  pln_Call *c = &p->call;
  pln_Tensor *x = a->in[0];
  pln_Shape shape = pln_tensor_shape(x);
  for (int k = 0; k < c->nout; k++) {
    pln_Tensor *t = a->in[changed[k]];
    if (a->out[k] && a->out[k] != t)
      return pln_prep_fail(p, PLN_EARG, "argument 'out': the op writes into '%s' and takes no other destination", operand_name(p, changed[k]));
    a->out[k] = t;
  }
  for (int k = 0; k < c->nout; k++) PLN_TRY(pln_prep_out(p, k, (pln_DType)a->out[k]->dtype, &shape));
  bool flat = true;
  for (int i = 0; i < a->nin; i++) {
    PLN_TRY(pln_prep_in(p, i, PLN_NODTYPE));
    if (i < ntensors)
      flat &= a->in[i]->contiguous;
    else
      c->arg[c->nout + i].ndim = 0, c->arg[c->nout + i].stride[0] = 0;
  }
  if (!flat) return pln_prep_iterate(p, &shape);
  c->ndim = 1;
  c->numel = c->size[0] = x->numel;
  for (int k = 0; k < c->nout + ntensors; k++) c->arg[k].stride[0] = 1;
  return PLN_OK;
}

static pln_Status parameter(const pln_Prep *p) {
  pln_DType dtype = (pln_DType)p->a->in[0]->dtype;
  PLN_TRY(pln_prep_dtype(p, dtype, p->op->dtypes, "p"));
  return same_shape(p, 1, PLN_SET(dtype), pln_dtype_name(dtype));
}

pln_Status pln_prepare_sgd(pln_Prep *p) {
  static const int changed[] = {0};
  PLN_TRY(parameter(p));
  PLN_TRY(scalar(p, 2, 0, "not negative"));
  return step(p, changed, 2);
}

pln_Status pln_prepare_adamw(pln_Prep *p) {
  static const int changed[] = {0, 2, 3};
  PLN_TRY(parameter(p));
  for (int i = 2; i <= 3; i++)
    if (p->a->in[0]->dtype == PLN_F64)
      PLN_TRY(same_shape(p, i, PLN_SET(PLN_F64), "f64"));
    else
      PLN_TRY(same_shape(p, i, PLN_SET_FLOAT, "f32 or f64"));
  if (p->a->in[2]->dtype != p->a->in[3]->dtype)
    return pln_prep_fail(p, PLN_EDTYPE, "argument 'v': expected %s as of 'm', got %s", pln_dtype_name((pln_DType)p->a->in[2]->dtype),
                         pln_dtype_name((pln_DType)p->a->in[3]->dtype));
  PLN_TRY(scalar(p, 4, 1, "at least 1 (steps are counted from 1)"));
  PLN_TRY(scalar(p, 5, 0, "not negative"));
  for (int k = 0; k < 4; k++) {
    double v = p->call.f[k] = p->a->opt[k].num;
    const char *name = p->op->slot[6 + k].name;
    if (k < 2 && !(v >= 0 && v < 1)) return pln_prep_fail(p, PLN_EARG, "argument '%s': expected 0 <= %s < 1, got %g", name, name, v);
    if (k >= 2 && !(v >= 0)) return pln_prep_fail(p, PLN_EARG, "argument '%s': expected a number that is not negative, got %g", name, v);
  }
  return step(p, changed, 4);
}
