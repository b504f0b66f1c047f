/* SPDX-License-Identifier: MIT
** reduce.c -- sum, mean, prod, any, all, norm, and max and min of everything: one value per result, folded in lanes.
**
** f32 sums stay f32 (the tree keeps them accurate); products and norms of f32 are f64, so that they overflow only if the result does.
** Integers are i64; any and all count what is not 0.
*/
#include "../../op.h"
#include "reduce_fold.h"

#define TEMPLATE "reduce_lanes.h"
#include "reduce_each.h"

/* --- loads -------------------------------------------------------------------------------------- */

#define POWER (*(const double *)with)
#define NONZERO(D, S, s) PLK_LOAD(nonzero_##s, S, int64_t, x != 0)
PLK_EACH_DTYPE(NONZERO)
#define NORMS(S, s)                                                                              \
  PLK_LOAD(count_##s, S, double, x != x ? x : x != 0)                                              \
  PLK_LOAD(size_##s, S, double, pls_fabs_f64(x))                                                   \
  PLK_LOAD(square_##s, S, double, (double)x * (double)x)                                           \
  PLK_LOAD(power_##s, S, double, pls_pow_f64(pls_fabs_f64(x), POWER))
NORMS(float, f32)
NORMS(double, f64)

static plk_LoadFn to_nonzero(int dtype) {
#define CASE(D, S, s) dtype == PLN_##D ? nonzero_##s:
  return PLK_EACH_DTYPE(CASE) NULL;
#undef CASE
}

static plk_LoadFn to_norm(int dtype, double p) {
  if (p == 0) return dtype == PLN_F32 ? count_f32 : count_f64;
  if (p == 2) return dtype == PLN_F32 ? square_f32 : square_f64;
  if (p == 1 || p == INFINITY || p == -INFINITY) return dtype == PLN_F32 ? size_f32 : size_f64;
  return dtype == PLN_F32 ? power_f32 : power_f64;
}

/* --- folds -------------------------------------------------------------------------------------- */

#define EACH_LANE_TYPE(X) X(F32, float, f32) X(F64, double, f64) X(I64, int64_t, i64)

#define FOLDS(D, T, s)                                                                           \
  static void block_to_##s(const plk_Fold *f, const char *x, int64_t n, char *acc) {             \
    T buffer[PLK_BLOCK];                                                                         \
    const void *src = f->load ? f->load(buffer, x, n, f->with, 0)  : x;                        \
    *(T *)acc = block_##s(f->op, src, n);                                                        \
  }                                                                                              \
  static void rows_to_##s(const plk_Fold *f, plk_Rows *rows, int64_t n, int64_t w, char *acc) {  \
    block_rows_##s(f->op, rows, n, w, (T *)acc);                                                 \
  }                                                                                              \
  static void merge_##s(const plk_Fold *f, char *a, int64_t na, const char *b, int64_t nb, int64_t w) { \
    (void)na, (void)nb;                                                                          \
    for (int64_t i = 0; i < w; i++) ((T *)a)[i] = step_##s(f->op, ((T *)a)[i], ((const T *)b)[i]); \
  }
EACH_LANE_TYPE(FOLDS)

/* --- finishes ----------------------------------------------------------------------------------- */

#define FINISH(name, A, R, expr)                                                                 \
  static void name(const plk_Fold *f, const char *acc, int64_t w, char *const *out, const int64_t *stride) { \
    (void)f;                                                                                     \
    for (int64_t i = 0; i < w; i++) {                                                            \
      A a = ((const A *)acc)[i];                                                                 \
      R r = (R)(expr);                                                                           \
      memcpy(out[0] + i * stride[0], &r, sizeof r);                                              \
    }                                                                                            \
  }
FINISH(out_bool, int64_t, uint8_t, a)
FINISH(out_u8, int64_t, uint8_t, a)
FINISH(out_i32, int64_t, int32_t, a)
FINISH(out_i64, int64_t, int64_t, a)
FINISH(out_f32, float, float, a)
FINISH(out_f64, double, double, a)
FINISH(out_narrow_f32, double, float, a)
FINISH(out_mean_f32, float, float, (double)a / (double)f->count)
FINISH(out_mean_f64, double, double, a / (double)f->count)
FINISH(out_any, int64_t, uint8_t, a != 0)
FINISH(out_all, int64_t, uint8_t, a == f->count)
FINISH(out_root_f32, double, float, pls_sqrt_f64(a))
FINISH(out_root_f64, double, double, pls_sqrt_f64(a))
FINISH(out_root_of_f32, double, float, pls_pow_f64(a, 1 / f->number))
FINISH(out_root_of_f64, double, double, pls_pow_f64(a, 1 / f->number))

static void plan_norm(plk_Fold *f) {
  double p = f->number;
  bool single = f->dtype == PLN_F32;
  f->type = PLN_F64;
  f->op = p == INFINITY ? PLK_MAX : p == -INFINITY ? PLK_MIN : PLK_SUM;
  f->load = to_norm(f->dtype, p);
  if (p == 2)
    f->finish = single ? out_root_f32 : out_root_f64;
  else if (p == 0 || p == 1 || p == INFINITY || p == -INFINITY)
    f->finish = single ? out_narrow_f32 : out_f64;
  else
    f->finish = single ? out_root_of_f32 : out_root_of_f64;
}

/* sum, mean, prod, max, min: the value itself, widened where that matters. */
static void plan_value(plk_Fold *f, uint16_t op) {
  switch (f->dtype) {
  case PLN_F32:
    if (op == PLN_OP_prod) {
      f->type = PLN_F64;
      f->load = plk_widen_f32;
      f->finish = out_narrow_f32;
    } else {
      f->type = PLN_F32;
      f->finish = op == PLN_OP_mean ? out_mean_f32 : out_f32;
    }
    return;
  case PLN_F64:
    f->type = PLN_F64;
    f->finish = op == PLN_OP_mean ? out_mean_f64 : out_f64;
    return;
  default:
    f->type = PLN_I64;
    f->load = plk_to_i64(f->dtype);
    f->finish = out_i64;
    if (op == PLN_OP_max || op == PLN_OP_min)
      f->finish = f->dtype == PLN_BOOL ? out_bool : f->dtype == PLN_U8 ? out_u8 : f->dtype == PLN_I32 ? out_i32 : out_i64;
  }
}

static pln_Status run(const pln_Call *c, plk_Fold *f) {
  switch (f->type) {
#define CASE(D, T, s) case PLN_##D: f->block = block_to_##s; f->rows = rows_to_##s; f->merge = merge_##s; break;
    EACH_LANE_TYPE(CASE)
#undef CASE
  }
  return PLK(fold)(c, f);
}

pln_Status PLK(reduce)(const pln_Call *c) {
  plk_Fold f = {.dtype = pln_call_in(c, 0)->dtype, .number = c->f[0], .count = c->i[1]};
  f.with = &f.number;
  switch (c->op) {
  case PLN_OP_any:
  case PLN_OP_all:
    f.type = PLN_I64;
    f.op = PLK_SUM;
    f.load = to_nonzero(f.dtype);
    f.finish = c->op == PLN_OP_any ? out_any : out_all;
    break;
  case PLN_OP_norm:
    plan_norm(&f);
    break;
  default:
    f.op = c->op == PLN_OP_prod ? PLK_PROD : c->op == PLN_OP_max ? PLK_MAX : c->op == PLN_OP_min ? PLK_MIN : PLK_SUM;
    plan_value(&f, c->op);
  }
  return run(c, &f);
}

pln_Status PLK(fold_sum)(const pln_Call *c, plk_LoadFn load, const void *with) {
  plk_Fold f = {.dtype = pln_call_in(c, 0)->dtype, .count = c->i[1], .op = PLK_SUM};
  plan_value(&f, PLN_OP_sum);
  f.load = load;
  f.with = with;
  return run(c, &f);
}
