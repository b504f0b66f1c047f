/* SPDX-License-Identifier: MIT
** copy.c -- kernels that move elements: cast and copy (any dtype to any), where, masked_fill, fill and zero.
** What only moves bits goes by element size, so that a NaN's payload and a bool's byte stay what they are.
*/
#include "elementwise.h"

#define VECTOR(name) static void name(char *const *ptr, const int64_t *step, int64_t n, const pln_Call *c, int64_t at)
#define UNUSED (void)step, (void)c, (void)at
#define EACH_SIZE(X) X(1, uint8_t) X(4, uint32_t) X(8, uint64_t)

/* --- cast and copy -------------------------------------------------------------------------------- */

#define CAST(FROM, F, TO, T)                                                       \
  VECTOR(cast_##F##_##T) {                                                         \
    TO *o = (TO *)ptr[0];                                                          \
    const FROM *x = (const FROM *)ptr[1];                                          \
    UNUSED;                                                                        \
    _Pragma("omp simd") for (int64_t i = 0; i < n; i++) o[i] = pls_cast_##F##_##T(x[i]); \
  }
#define CASTS(ID, FROM, F)                                                         \
  CAST(FROM, F, uint8_t, u8) CAST(FROM, F, int32_t, i32) CAST(FROM, F, int64_t, i64) \
  CAST(FROM, F, float, f32) CAST(FROM, F, double, f64) CAST(FROM, F, uint8_t, bool)

PLK_EACH_DTYPE(CASTS)

#define COPY(SIZE, T)                                                              \
  VECTOR(copy_##SIZE) {                                                            \
    UNUSED;                                                                        \
    if (ptr[0] != ptr[1]) memcpy(ptr[0], ptr[1], (size_t)n * sizeof(T));           \
  }
EACH_SIZE(COPY)

pln_Status PLK(cast)(const pln_Call *c) {
#define ROW(ID, FROM, F)                                                           \
  [PLN_##ID] = {[PLN_BOOL] = cast_##F##_bool, [PLN_U8] = cast_##F##_u8, [PLN_I32] = cast_##F##_i32, \
                [PLN_I64] = cast_##F##_i64, [PLN_F32] = cast_##F##_f32, [PLN_F64] = cast_##F##_f64},
  static const plk_Vec casts[PLN_NDTYPE][PLN_NDTYPE] = {PLK_EACH_DTYPE(ROW)};
#undef ROW
  int from = c->arg[1].dtype, to = c->arg[0].dtype;
  if (from != to) return plk_elementwise(c, 2, casts[from][to], 0);
  int size = pln_dtype_size((pln_DType)to);
  return plk_elementwise(c, 2, size == 1 ? copy_1 : size == 4 ? copy_4 : copy_8, 0);
}

/* --- choice --------------------------------------------------------------------------------------- */

#define WHERE(SIZE, T)                                                             \
  VECTOR(where_##SIZE) {                                                           \
    T *o = (T *)ptr[0];                                                            \
    const uint8_t *m = (const uint8_t *)ptr[1];                                    \
    const T *a = (const T *)ptr[2], *b = (const T *)ptr[3];                        \
    UNUSED;                                                                        \
    _Pragma("omp simd") for (int64_t i = 0; i < n; i++) {                          \
      T u = a[i], v = b[i];                                                        \
      o[i] = m[i] ? u : v;                                                         \
    }                                                                              \
  }
EACH_SIZE(WHERE)

pln_Status PLK(where)(const pln_Call *c) {
  int size = pln_dtype_size((pln_DType)c->arg[0].dtype);
  return plk_elementwise(c, 4, size == 1 ? where_1 : size == 4 ? where_4 : where_8, 0);
}

#define MASKED(SIZE, T)                                                            \
  VECTOR(masked_##SIZE) {                                                          \
    T *o = (T *)ptr[0], value;                                                     \
    const T *x = (const T *)ptr[1];                                                \
    const uint8_t *m = (const uint8_t *)ptr[2];                                    \
    uint64_t bits = 0;                                                             \
    UNUSED;                                                                        \
    plk_put_number(c->arg[0].dtype, c->f[0], &bits);                               \
    memcpy(&value, &bits, sizeof value);                                           \
    _Pragma("omp simd") for (int64_t i = 0; i < n; i++) {                          \
      T v = x[i];                                                                  \
      o[i] = m[i] ? value : v;                                                     \
    }                                                                              \
  }
EACH_SIZE(MASKED)

pln_Status PLK(masked_fill)(const pln_Call *c) {
  int size = pln_dtype_size((pln_DType)c->arg[0].dtype);
  return plk_elementwise(c, 3, size == 1 ? masked_1 : size == 4 ? masked_4 : masked_8, 0);
}

/* --- fill ----------------------------------------------------------------------------------------- */

#define FILL(SIZE, T)                                                              \
  VECTOR(fill_##SIZE) {                                                            \
    T *o = (T *)ptr[0], value;                                                     \
    uint64_t bits = 0;                                                             \
    UNUSED;                                                                        \
    plk_put_number(c->arg[0].dtype, c->f[0], &bits);                               \
    memcpy(&value, &bits, sizeof value);                                           \
    _Pragma("omp simd") for (int64_t i = 0; i < n; i++) o[i] = value;              \
  }
EACH_SIZE(FILL)

pln_Status PLK(fill)(const pln_Call *c) {
  int size = pln_dtype_size((pln_DType)c->arg[0].dtype);
  return plk_elementwise(c, 1, size == 1 ? fill_1 : size == 4 ? fill_4 : fill_8, 0);
}
