/* SPDX-License-Identifier: MIT
** reduce_exp.h -- e^x for what is not above 0 or NaN: the largest element was subtracted. Cheaper than the general function;
** results below the normal range are 0, and so is e^-inf.
*/
#ifndef PLN_CPU_REDUCE_EXP_H
#define PLN_CPU_REDUCE_EXP_H

#include "reduce_fold.h"

PLK_INLINE float plk_exp_below_f32(float x) {
  float y = pls_exp_normal_f32(x);
  return x < -87.0f ? 0.0f : y;
}

PLK_INLINE double plk_exp_below_f64(double x) { return pls_exp_f64(x); }

#define REALS_ONLY
#define TEMPLATE "reduce_exp_all.h"
#include "reduce_each.h"

#endif
