/* SPDX-License-Identifier: MIT
** elementwise_unary_rows.h -- a scalar and a vector function of every row with one operand, for the element type T.
*/
#define PARAM_0 p
#define PARAM_1 q
#define PARAM(i, name) const T name __attribute__((unused)) = PARAM_##i;

#define VECTOR(name) \
  static void FN(vec_##name)(char *const *ptr, const int64_t *step, int64_t n, const pln_Call *c, int64_t at)
#define FUNCTION(name, params, formula, p_, q_)                                    \
  PLK_INLINE T FN(name)(T x, T p, T q) {                                           \
    (void)p, (void)q;                                                              \
    params return formula;                                                         \
  }                                                                                \
  VECTOR(name) {                                                                   \
    (void)step, (void)at, (void)c;                                                 \
    FN(loop1)(ptr, n, p_, q_, FN(name));                                           \
  }
#define UNARY(name, rule, saves, formula, ...) FOR_##rule(FUNCTION(name, , formula, 0, 0))
#define OPTIONS(name, signature, params, rule, saves, formula, ...) \
  FOR_##rule(FUNCTION(name, params, formula, F(cast_f64)(c->f[0]), F(cast_f64)(c->f[1])))
#define TEST(name, formula, ...)                                                   \
  PLK_INLINE uint8_t FN(name)(T x) { return formula; }                             \
  VECTOR(name) {                                                                   \
    (void)step, (void)at, (void)c;                                                 \
    FN(test1)(ptr, n, FN(name));                                                   \
  }
#include "../../ops/elementwise.def"
#undef PARAM_0
#undef PARAM_1
#undef PARAM
#undef VECTOR
#undef FUNCTION
