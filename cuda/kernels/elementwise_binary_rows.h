/* SPDX-License-Identifier: MIT
** elementwise_binary_rows.h -- a functor of every row with two operands, for the element type T. Integers check what no integer can
** answer: x mod 0, negative powers.
*/
#define FUNCTOR(name, result, checked, is_bad, lo, hi, formula)                \
  struct FN(name) {                                                            \
    typedef result R;                                                          \
    typedef T A, B;                                                            \
    typedef uint8_t C;                                                         \
    enum { N = 2, CHECKED = checked };                                         \
    static constexpr int64_t LO = lo, HI = hi;                                 \
    __device__ __forceinline__ bool bad(T b) const { return (void)b, is_bad; } \
    __device__ __forceinline__ R operator()(T stored_a, T stored_b) const {    \
      const T a = LOAD(stored_a), b = LOAD(stored_b);                          \
      return (R)(formula);                                                     \
    }                                                                          \
  };
#define FUNCTION(name, formula) FUNCTOR(name, T, 0, false, 0, 0, formula)
#if IS_FLOAT
#define ROW_power(name, formula) FUNCTION(name, formula)
#define ROW_mod(name, formula) FUNCTION(name, formula)
#else
#define ROW_power(name, formula) FOR_power(FUNCTOR(name, T, 1, b < (T)1 && b != 0, 0, INT64_MAX, formula))
#define ROW_mod(name, formula) FOR_mod(FUNCTOR(name, T, 1, b == 0, 1, 0, formula))
#endif
#define ROW_any(name, formula) FOR_any(FUNCTION(name, formula))
#define ROW_number(name, formula) FOR_number(FUNCTION(name, formula))
#define ROW_fraction(name, formula) FOR_fraction(FUNCTION(name, formula))

#define BINARY(name, rule, formula, ...) ROW_##rule(name, formula)
#define COMPARE(name, formula, ...) FUNCTOR(name, uint8_t, 0, false, 0, 0, formula)
#include "ops/elementwise.def"
#undef FUNCTOR
#undef FUNCTION
#undef ROW_power
#undef ROW_mod
#undef ROW_any
#undef ROW_number
#undef ROW_fraction
