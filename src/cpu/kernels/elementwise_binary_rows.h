/* SPDX-License-Identifier: MIT
** elementwise_binary_rows.h -- a scalar and a vector function of every row with two operands, for the element type T.
*/
#define VECTOR(name) \
  static void FN(vec_##name)(char *const *ptr, const int64_t *step, int64_t n, const pln_Call *c, int64_t at)
#define FUNCTION(name, formula)                                                    \
  PLK_INLINE T FN(name)(T a, T b) { return formula; }                              \
  VECTOR(name) {                                                                   \
    (void)at, (void)c;                                                             \
    FN(loop2)(ptr, step, n, FN(name));                                             \
  }
#if IS_FLOAT
/* Too long to be worth a loop for each way of broadcasting. */
#define ROW_power(name, formula)                                                   \
  PLK_INLINE T FN(name)(T a, T b, T p, T q) {                                      \
    (void)p, (void)q;                                                              \
    return formula;                                                                \
  }                                                                                \
  VECTOR(name) {                                                                   \
    (void)step, (void)at, (void)c;                                                 \
    FN(units2)(ptr, n, 0, 0, FN(name));                                            \
  }
#define ROW_mod ROW_power
#else
/* The first b that is out of range, n if there is none. */
PLK_INLINE int64_t FN(find)(const T *b, int64_t n, int (*bad)(T b)) {
  int any = 0;
#pragma omp simd reduction(| : any)
  for (int64_t i = 0; i < n; i++) any |= bad(b[i]);
  if (!any) return n;
  int64_t i = 0;
  while (!bad(b[i])) i++;
  return i;
}
PLK_INLINE int FN(is_zero)(T b) { return b == 0; }
PLK_INLINE int FN(is_negative)(T b) { return b < (T)1 && b != 0; }
#define CHECKED(name, formula, bad, lo, hi)                                        \
  PLK_INLINE T FN(name)(T a, T b) { return formula; }                              \
  VECTOR(name) {                                                                   \
    const T *b = (const T *)ptr[2];                                                \
    int64_t first = FN(find)(b, n, FN(bad));                                       \
    (void)step;                                                                    \
    if (first < n) fault(c, at + first, (int64_t)b[first], lo, hi);                \
    FN(serial2)(ptr, n, FN(name));                                                 \
  }
#define ROW_power(name, formula) FOR_power(CHECKED(name, formula, is_negative, 0, INT64_MAX))
#define ROW_mod(name, formula) FOR_mod(CHECKED(name, formula, is_zero, 1, 0))
#endif
#define ROW_any(name, formula) FOR_any(FUNCTION(name, formula))
#define ROW_number(name, formula) FOR_number(FUNCTION(name, formula))
#define ROW_fraction(name, formula) FOR_fraction(FUNCTION(name, formula))

#define BINARY(name, rule, formula, ...) ROW_##rule(name, formula)
#define COMPARE(name, formula, ...)                                                \
  PLK_INLINE uint8_t FN(name)(T a, T b) { return formula; }                        \
  VECTOR(name) {                                                                   \
    (void)at, (void)c;                                                             \
    FN(test2)(ptr, step, n, FN(name));                                             \
  }
#include "../../ops/elementwise.def"
#undef VECTOR
#undef FUNCTION
#undef CHECKED
#undef ROW_power
#undef ROW_mod
#undef ROW_any
#undef ROW_number
#undef ROW_fraction
