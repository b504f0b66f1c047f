/* SPDX-License-Identifier: MIT
** elementwise_unary_rows.h -- a functor of every row with one operand, for the element type T; p and q are its options.
*/
#define PARAM_0 p
#define PARAM_1 q
#define PARAM(i, name) const T name __attribute__((unused)) = PARAM_##i;
#define FUNCTION(name, result, params, formula)                  \
  struct FN(name) {                                              \
    typedef result R;                                            \
    typedef T A;                                                 \
    typedef uint8_t B, C;                                        \
    enum { N = 1, CHECKED = 0 };                                 \
    T p, q;                                                      \
    __device__ __forceinline__ R operator()(T stored) const {    \
      const T x = LOAD(stored);                                  \
      params return (R)(formula);                                \
    }                                                            \
    static FN(name) of(const pln_Call *c) {                      \
      return {F(cast_f64)(c->f[0]), F(cast_f64)(c->f[1])};       \
    }                                                            \
  };
#define UNARY(name, rule, saves, formula, ...) FOR_##rule(FUNCTION(name, T, , formula))
#define OPTIONS(name, signature, params, rule, saves, formula, ...) FOR_##rule(FUNCTION(name, T, params, formula))
#define TEST(name, formula, ...) FUNCTION(name, uint8_t, , formula)
#include "ops/elementwise.def"
#undef PARAM_0
#undef PARAM_1
#undef PARAM
#undef FUNCTION
