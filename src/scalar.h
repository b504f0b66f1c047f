/* SPDX-License-Identifier: MIT
** scalar.h -- the scalar functions that the formulas of src/ops/elementwise.def name, for every element type:
** pls_<function>_<dtype>, with conversions pls_cast_<from>_<to>. Compiles as C11, C++17 and CUDA.
**
** Invariant: defined for every argument and the same bits on every device. Integers wrap (the sums and products are
** made unsigned); what no integer can hold (x mod 0, a negative power) gives 0 here and is reported by the kernel.
*/
#ifndef PLN_SCALAR_H
#define PLN_SCALAR_H

#include "elementary.h"

/* U is the unsigned type that T's arithmetic is made in. */
#define PLS_FLOAT(T, S)                                            \
  PLN_FN T pls_add_##S(T a, T b) { return a + b; }                 \
  PLN_FN T pls_sub_##S(T a, T b) { return a - b; }                 \
  PLN_FN T pls_mul_##S(T a, T b) { return a * b; }                 \
  PLN_FN T pls_neg_##S(T a) { return -a; }                         \
  PLN_FN T pls_square_##S(T a) { return a * a; }                   \
  PLN_FN T pls_abs_##S(T a) { return pls_fabs_##S(a); }            \
  PLN_FN T pls_number_##S(double v) { return (T)v; }
PLS_FLOAT(float, f32)
PLS_FLOAT(double, f64)
#undef PLS_FLOAT

#define PLS_WHOLE(T, U, S)                                         \
  PLN_FN T pls_add_##S(T a, T b) { return (T)((U)a + (U)b); }      \
  PLN_FN T pls_sub_##S(T a, T b) { return (T)((U)a - (U)b); }      \
  PLN_FN T pls_mul_##S(T a, T b) { return (T)((U)a * (U)b); }      \
  PLN_FN T pls_neg_##S(T a) { return (T)(0 - (U)a); }              \
  PLN_FN T pls_square_##S(T a) { return (T)((U)a * (U)a); }        \
  PLN_FN T pls_max_##S(T a, T b) { return a > b ? a : b; }         \
  PLN_FN T pls_min_##S(T a, T b) { return a < b ? a : b; }         \
  PLN_FN T pls_clamp_##S(T x, T lo, T hi) { return pls_min_##S(pls_max_##S(x, lo), hi); } \
  PLN_FN T pls_floor_##S(T a) { return a; }                        \
  PLN_FN T pls_ceil_##S(T a) { return a; }                         \
  PLN_FN T pls_round_##S(T a) { return a; }

#define PLS_POWER(T, U, S)                                         \
  PLN_FN T pls_power_##S(T a, T n) {                               \
    U base = (U)a, power = 1;                                      \
    for (; n > 0; n = (T)(n >> 1)) {                               \
      if (n & 1) power *= base;                                    \
      base *= base;                                                \
    }                                                              \
    return (T)power;                                               \
  }

#define PLS_SIGNED(T, U, S)                                        \
  PLS_WHOLE(T, U, S) PLS_POWER(T, U, S)                            \
  PLN_FN T pls_abs_##S(T a) { return a < 0 ? pls_neg_##S(a) : a; } \
  PLN_FN T pls_sign_##S(T a) { return (T)((a > 0) - (a < 0)); }    \
  PLN_FN T pls_relu_##S(T a) { return a > 0 ? a : 0; }             \
  PLN_FN T pls_mod_##S(T a, T b) {                                 \
    if (b == 0 || b == -1) return 0; /* min % -1 would trap */     \
    T r = a % b;                                                   \
    return r != 0 && (r < 0) != (b < 0) ? r + b : r;               \
  }                                                                \
  PLN_FN T pls_pow_##S(T a, T n) { return n < 0 ? 0 : pls_power_##S(a, n); }
PLS_SIGNED(int32_t, uint32_t, i32)
PLS_SIGNED(int64_t, uint64_t, i64)
#undef PLS_SIGNED

PLS_WHOLE(uint8_t, uint8_t, u8)
PLS_POWER(uint8_t, uint8_t, u8)
#undef PLS_WHOLE
#undef PLS_POWER
PLN_FN uint8_t pls_abs_u8(uint8_t a) { return a; }
PLN_FN uint8_t pls_sign_u8(uint8_t a) { return a != 0; }
PLN_FN uint8_t pls_relu_u8(uint8_t a) { return a; }
PLN_FN uint8_t pls_mod_u8(uint8_t a, uint8_t b) { return b == 0 ? 0 : (uint8_t)(a % b); }
PLN_FN uint8_t pls_pow_u8(uint8_t a, uint8_t n) { return pls_power_u8(a, n); }

/* Of 0 and 1 only: kernels load a bool as `!= 0`. PyTorch's sum and product of bools. */
PLN_FN uint8_t pls_add_bool(uint8_t a, uint8_t b) { return a | b; }
PLN_FN uint8_t pls_mul_bool(uint8_t a, uint8_t b) { return a & b; }
PLN_FN uint8_t pls_max_bool(uint8_t a, uint8_t b) { return a | b; }
PLN_FN uint8_t pls_min_bool(uint8_t a, uint8_t b) { return a & b; }

/* --- conversions: floats to integers truncate and saturate, NaN gives the minimum; integers to narrower ones wrap --- */

/* Each branch is a choice between values, and the conversion sees only what it can hold. */
#define PLS_TO_INT(T, S)                                                                                   \
  PLN_FN int32_t pls_cast_##S##_i32(T x) {                                                                 \
    int inside = (x > (T)-2147483649.0) & (x < (T)2147483648.0);                                           \
    int32_t r = (int32_t)(inside ? x : (T)0);                                                              \
    return inside ? r : x > 0 ? INT32_MAX : INT32_MIN;                                                     \
  }                                                                                                        \
  PLN_FN int64_t pls_cast_##S##_i64(T x) {                                                                 \
    int inside = (x >= (T)-9223372036854775808.0) & (x < (T)9223372036854775808.0);                        \
    int64_t r = (int64_t)(inside ? x : (T)0);                                                              \
    return inside ? r : x > 0 ? INT64_MAX : INT64_MIN;                                                     \
  }                                                                                                        \
  PLN_FN uint8_t pls_cast_##S##_u8(T x) {                                                                  \
    T t = x > 0 ? x : (T)0;                                                                                \
    return (uint8_t)(int32_t)(t < 255 ? t : (T)255);                                                       \
  }
PLS_TO_INT(float, f32)
PLS_TO_INT(double, f64)
#undef PLS_TO_INT

#define PLS_CAST(FROM, F, TO, T) PLN_FN TO pls_cast_##F##_##T(FROM x) { return (TO)x; }
#define PLS_CAST_BOOL(FROM, F)                                     \
  PLN_FN uint8_t pls_cast_##F##_bool(FROM x) { return x != 0; }
PLS_CAST(float, f32, float, f32) PLS_CAST(float, f32, double, f64) PLS_CAST_BOOL(float, f32)
PLS_CAST(double, f64, float, f32) PLS_CAST(double, f64, double, f64) PLS_CAST_BOOL(double, f64)
#define PLS_CAST_INT(FROM, F)                                                                  \
  PLS_CAST(FROM, F, uint8_t, u8) PLS_CAST(FROM, F, int32_t, i32) PLS_CAST(FROM, F, int64_t, i64) \
  PLS_CAST(FROM, F, float, f32) PLS_CAST(FROM, F, double, f64) PLS_CAST_BOOL(FROM, F)
PLS_CAST_INT(uint8_t, u8)
PLS_CAST_INT(int32_t, i32)
PLS_CAST_INT(int64_t, i64)
#undef PLS_CAST
#undef PLS_CAST_BOOL
#undef PLS_CAST_INT
/* a bool's byte may be anything */
#define PLS_CAST(TO, T) PLN_FN TO pls_cast_bool_##T(uint8_t x) { return (TO)(x != 0); }
PLS_CAST(uint8_t, bool) PLS_CAST(uint8_t, u8) PLS_CAST(int32_t, i32) PLS_CAST(int64_t, i64) PLS_CAST(float, f32) PLS_CAST(double, f64)
#undef PLS_CAST

/* A Lua number as an operand of the type: integers take its whole part and wrap, as PyTorch does. */
PLN_FN uint8_t pls_number_u8(double v) { return (uint8_t)pls_cast_f64_i64(v); }
PLN_FN int32_t pls_number_i32(double v) { return (int32_t)pls_cast_f64_i64(v); }
PLN_FN int64_t pls_number_i64(double v) { return pls_cast_f64_i64(v); }
PLN_FN uint8_t pls_number_bool(double v) { return v != 0; }

#endif
