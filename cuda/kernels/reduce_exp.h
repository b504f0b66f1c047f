/* SPDX-License-Identifier: MIT
** reduce_exp.h -- e^x for what is not above 0 or NaN: the largest element was subtracted. As src/cpu/kernels/reduce_exp.h: results below
** the normal range are 0, and so is e^-inf.
*/
#ifndef PLN_CUDA_REDUCE_EXP_H
#define PLN_CUDA_REDUCE_EXP_H

#include "kernel.h"

static __device__ __forceinline__ float exp_below(float x) {
  float y = pls_exp_normal_f32(x);
  return x < -87.0f ? 0.0f : y;
}

static __device__ __forceinline__ double exp_below(double x) { return pls_exp_f64(x); }

#endif
