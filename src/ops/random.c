/* SPDX-License-Identifier: MIT
** random.c -- arguments of the random ops. The engine's draw number moves on as the last step of a prepare, so an op that fails
** takes none.
*/
#include "random.h"

#include <math.h>

#include "../engine.h"
#include "contiguous.h"

/* The row-major iteration space of a kernel that counts its elements. */
static void count_elements(pln_Prep *p) {
  pln_Call *c = &p->call;
  c->numel = 1;
  for (int d = 0; d < c->arg[0].ndim; d++) c->numel *= c->arg[0].shape[d];
  c->ndim = 1;
  c->size[0] = c->numel;
}

static void draw(pln_Prep *p) {
  pln_Opt *used = &p->a->opt[p->op->nopt];
  used->given = 1;
  used->i = (int64_t)p->e->draw++;
  memcpy(&used->num, &p->e->options.seed, sizeof used->num);
  p->a->in[p->op->nin] = NULL;
  p->call.i[0] = used->i;
  p->call.i[1] = (int64_t)p->e->options.seed;
}

static pln_Status create(pln_Prep *p, int opt_shape, int opt_dtype, pln_DType dtype) {
  const pln_Opt *given = &p->a->opt[opt_dtype];
  const pln_Shape *shape = &p->a->opt[opt_shape].list;
  int64_t n;
  if (given->given) dtype = (pln_DType)given->i;
  PLN_TRY(pln_prep_dtype(p, dtype, p->op->dtypes, "dtype"));
  if (pln_shape_numel(shape, pln_dtype_size(dtype), &n) != PLN_OK)
    return pln_fail_prefix(PLN_ESHAPE, "%s: argument 'shape': ", p->op->name);
  PLN_TRY(pln_prep_out_contiguous(p, 0, dtype, shape));
  count_elements(p);
  draw(p);
  return PLN_OK;
}

pln_Status pln_prepare_rand(pln_Prep *p) { return create(p, 0, 1, PLN_F32); }
pln_Status pln_prepare_randn(pln_Prep *p) { return create(p, 0, 1, PLN_F32); }

pln_Status pln_prepare_randint(pln_Prep *p) {
  static const struct {
    int64_t lo, hi; /* of the dtype; of floats: whole numbers that are exact */
  } range[PLN_NDTYPE] = {
    [PLN_U8] = {0, UINT8_MAX}, [PLN_I32] = {INT32_MIN, INT32_MAX}, [PLN_I64] = {INT64_MIN, INT64_MAX},
    [PLN_F32] = {-(1 << 24), 1 << 24}, [PLN_F64] = {-(INT64_C(1) << 53), INT64_C(1) << 53},
  };
  int64_t lo = p->a->opt[0].i, hi = p->a->opt[1].i;
  pln_DType dtype = p->a->opt[3].given ? (pln_DType)p->a->opt[3].i : PLN_I64;
  if (hi <= lo)
    return pln_prep_fail(p, PLN_EARG, "argument 'hi': a number greater than lo = %lld was expected, got %lld", (long long)lo, (long long)hi);
  PLN_TRY(pln_prep_dtype(p, dtype, p->op->dtypes, "dtype"));
  if (lo < range[dtype].lo || hi - 1 > range[dtype].hi)
    return pln_prep_fail(p, PLN_EARG, "argument 'dtype': %s does not hold every whole number from %lld to %lld", pln_dtype_name(dtype),
                         (long long)lo, (long long)(hi - 1));
  p->call.i[2] = lo;
  p->call.i[3] = (int64_t)((uint64_t)hi - (uint64_t)lo);
  return create(p, 2, 3, PLN_I64);
}

/* Checks p, then the call up to its draw number. */
static pln_Status mask(pln_Prep *p) {
  pln_Call *c = &p->call;
  pln_Tensor *x = p->a->in[0];
  double drop = p->a->opt[0].num;
  PLN_TRY(pln_prep_dtype(p, (pln_DType)x->dtype, p->op->dtypes, p->op->slot[0].name));
  if (!(drop >= 0 && drop < 1)) return pln_prep_fail(p, PLN_EARG, "argument 'p': p is %g, expected 0 <= p < 1", drop);
  pln_Shape shape = pln_tensor_shape(x);
  PLN_TRY(pln_prep_out_contiguous(p, 0, (pln_DType)x->dtype, &shape));
  PLN_TRY(pln_prep_contiguous(p, x, &x));
  pln_prep_arg(p, c->nin++, x);
  count_elements(p);
  c->f[0] = 1 / (1 - drop);
  c->i[2] = (int64_t)ceil(drop * 0x1p24);
  c->i[3] = 0;
  return PLN_OK;
}

pln_Status pln_prepare_dropout(pln_Prep *p) {
  PLN_TRY(mask(p));
  if (p->a->opt[1].i) {
    draw(p);
    return PLN_OK;
  }
  p->a->opt[p->op->nopt].given = 0;
  p->a->in[p->op->nin] = NULL;
  p->call.i[3] = 1;
  return PLN_OK;
}

pln_Status pln_prepare_dropout_backward(pln_Prep *p) {
  pln_Tensor *t = p->a->in[1];
  if (t && (t->dtype != PLN_I64 || t->numel != 1)) {
    char text[PLN_SHAPE_TEXT + 16];
    return pln_prep_fail(p, PLN_EARG, "argument 'draw': expected a number or an i64 tensor of one element, got %s", pln_tensor_text(t, text));
  }
  PLN_TRY(mask(p));
  p->call.i[0] = t ? 0 : (int64_t)p->a->num[1];
  p->call.i[1] = p->a->opt[1].i;
  if (t) pln_prep_arg(p, p->call.nin++, t);
  return PLN_OK;
}
