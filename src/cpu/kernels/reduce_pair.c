/* SPDX-License-Identifier: MIT
** reduce_pair.c -- reductions that carry two numbers: var (mean and squared distances), logsumexp (largest and scaled sum), max
** and min with a dim, argmax, argmin (value and index).
**
** A block takes two passes, mean or largest first; blocks merge by the exact formulas for two parts, in f64.
*/
#include "../../op.h"
#include "reduce_fold.h"
#include "reduce_exp.h"

#define TEMPLATE "reduce_lanes.h"
#include "reduce_each.h"

/* The second part of w accumulators. */
static double *second(char *acc, int64_t w) { return (double *)(acc + 8 * w); }
static int64_t *indices(char *acc, int64_t w) { return (int64_t *)(acc + 8 * w); }

/* (x - a)^2 with one a for all elements, or with one for each. */
PLK_LOAD(distance_f32, float, double, (x - *(const double *)with) * (x - *(const double *)with))
PLK_LOAD(distance_f64, double, double, (x - *(const double *)with) * (x - *(const double *)with))
PLK_LOAD(distances_f32, float, double, (x - ((const double *)with)[i]) * (x - ((const double *)with)[i]))
PLK_LOAD(distances_f64, double, double, (x - ((const double *)with)[i]) * (x - ((const double *)with)[i]))

/* --- var: mean, sum of squared distances -------------------------------------------------------- */

static void var_block(const plk_Fold *f, const char *x, int64_t n, char *acc) {
  double buffer[PLK_BLOCK], *mean = (double *)acc;
  bool single = f->dtype == PLN_F32;
  *mean = n ? block_f64(PLK_SUM, single ? plk_widen_f32(buffer, x, n, NULL, 0) : x, n) / (double)n : 0;
  (single ? distance_f32 : distance_f64)(buffer, x, n, mean, 0);
  *second(acc, 1) = block_f64(PLK_SUM, buffer, n);
}

static void var_rows(const plk_Fold *f, plk_Rows *rows, int64_t n, int64_t w, char *acc) {
  double *mean = (double *)acc;
  bool single = f->dtype == PLN_F32;
  rows->load = single ? plk_widen_f32 : NULL;
  block_rows_f64(PLK_SUM, rows, n, w, mean);
  for (int64_t i = 0; i < w; i++) mean[i] = n ? mean[i] / (double)n : 0;
  rows->load = single ? distances_f32 : distances_f64;
  rows->with = mean;
  rows->packed = false;
  block_rows_f64(PLK_SUM, rows, n, w, second(acc, w));
}

static void var_merge(const plk_Fold *f, char *a, int64_t na, const char *b, int64_t nb, int64_t w) {
  double n = (double)(na + nb), share = (double)nb / n;
  const double *bmean = (const double *)b, *bsquares = second((char *)b, w);
  double *mean = (double *)a, *squares = second(a, w);
  (void)f;
  for (int64_t i = 0; i < w; i++) {
    double delta = bmean[i] - mean[i];
    mean[i] += delta * share;
    squares[i] += bsquares[i] + delta * delta * share * (double)na;
  }
}

static void var_finish(const plk_Fold *f, const char *acc, int64_t w, char *const *out, const int64_t *stride) {
  const double *squares = second((char *)acc, w);
  double divisor = (double)f->count - f->number;
  if (!(divisor > 0)) divisor = 0;
  for (int64_t i = 0; i < w; i++) {
    double r = squares[i] / divisor;
    float single = (float)r;
    if (f->dtype == PLN_F32)
      memcpy(out[0] + i * stride[0], &single, 4);
    else
      memcpy(out[0] + i * stride[0], &r, 8);
  }
}

pln_Status PLK(var)(const pln_Call *c) {
  plk_Fold f = {.dtype = pln_call_in(c, 0)->dtype, .number = c->f[0], .count = c->i[1], .block = var_block, .rows = var_rows,
                .merge = var_merge, .finish = var_finish};
  return PLK(fold)(c, &f);
}

/* --- logsumexp: largest element, sum of e^(x - largest) ----------------------------------------- */

/* The sum where the largest element is -inf, inf or NaN. */
static double sum_of(double largest) { return largest < 0 ? 0 : largest; }

#define REALS_ONLY
#define TEMPLATE "reduce_lse.h"
#include "reduce_each.h"

static void lse_merge(const plk_Fold *f, char *a, int64_t na, const char *b, int64_t nb, int64_t w) {
  const double *blargest = (const double *)b, *bsum = second((char *)b, w);
  double *largest = (double *)a, *sum = second(a, w);
  (void)f, (void)na, (void)nb;
  for (int64_t i = 0; i < w; i++) {
    double both = step_f64(PLK_MAX, largest[i], blargest[i]);
    if (both - both == 0)
      sum[i] = sum[i] * pls_exp_f64(largest[i] - both) + bsum[i] * pls_exp_f64(blargest[i] - both);
    else /* the sums are 0, inf or NaN then */
      sum[i] += bsum[i];
    largest[i] = both;
  }
}

static void lse_finish(const plk_Fold *f, const char *acc, int64_t w, char *const *out, const int64_t *stride) {
  for (int64_t i = 0; i < w; i++) {
    double largest = ((const double *)acc)[i], sum = second((char *)acc, w)[i];
    double r = largest - largest == 0 ? largest + pls_log_f64(sum) : largest;
    float single = (float)r;
    if (f->dtype == PLN_F32)
      memcpy(out[0] + i * stride[0], &single, 4);
    else
      memcpy(out[0] + i * stride[0], &r, 8);
  }
}

pln_Status PLK(logsumexp)(const pln_Call *c) {
  plk_Fold f = {.dtype = pln_call_in(c, 0)->dtype, .count = c->i[1], .merge = lse_merge, .finish = lse_finish};
  f.block = f.dtype == PLN_F32 ? lse_block_f32 : lse_block_f64;
  f.rows = f.dtype == PLN_F32 ? lse_rows_f32 : lse_rows_f64;
  return PLK(fold)(c, &f);
}

/* --- max, min, argmax, argmin: value, index ----------------------------------------------------- */

#define TEMPLATE "reduce_extreme.h"
#include "reduce_each.h"

#define VALUE(name, A, R)                                                                        \
  static void name(const plk_Fold *f, const char *acc, int64_t w, char *const *out, const int64_t *stride) { \
    (void)f;                                                                                     \
    for (int64_t i = 0; i < w; i++) {                                                            \
      R r = (R)((const A *)acc)[i];                                                              \
      int64_t index = indices((char *)acc, w)[i] + 1;                                            \
      memcpy(out[0] + i * stride[0], &r, sizeof r);                                              \
      memcpy(out[1] + i * stride[1], &index, sizeof index);                                      \
    }                                                                                            \
  }
VALUE(value_u8, int64_t, uint8_t)
VALUE(value_i32, int64_t, int32_t)
VALUE(value_i64, int64_t, int64_t)
VALUE(value_f32, float, float)
VALUE(value_f64, double, double)

static void index_only(const plk_Fold *f, const char *acc, int64_t w, char *const *out, const int64_t *stride) {
  (void)f;
  for (int64_t i = 0; i < w; i++) {
    int64_t index = indices((char *)acc, w)[i] + 1;
    memcpy(out[0] + i * stride[0], &index, sizeof index);
  }
}

pln_Status PLK(reduce)(const pln_Call *c);

pln_Status PLK(extreme)(const pln_Call *c) {
  bool values = c->op == PLN_OP_max || c->op == PLN_OP_min;
  if (values && c->nout == 1) return PLK(reduce)(c);
  plk_Fold f = {.dtype = pln_call_in(c, 0)->dtype, .count = c->i[1],
                .op = c->op == PLN_OP_max || c->op == PLN_OP_argmax ? PLK_MAX : PLK_MIN};
#define TYPE(s) f.block = extreme_block_##s, f.rows = extreme_rows_##s, f.merge = extreme_merge_##s
  switch (f.dtype) {
  case PLN_F32: TYPE(f32), f.finish = value_f32; break;
  case PLN_F64: TYPE(f64), f.finish = value_f64; break;
  case PLN_I64: TYPE(i64), f.finish = value_i64; break;
  case PLN_I32: TYPE(i64), f.finish = value_i32; break;
  case PLN_U8: TYPE(i64), f.finish = value_u8; break;
  default: TYPE(i64), f.finish = value_u8;
  }
#undef TYPE
  f.load = plk_to_i64(f.dtype);
  if (!values) f.finish = index_only;
  return PLK(fold)(c, &f);
}
