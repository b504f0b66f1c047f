/* SPDX-License-Identifier: MIT
** elementwise_backward_rows.h -- a scalar and a vector function of every derivative, for the element type T.
*/
#if IS_FLOAT
#define PARAM_0 p
#define PARAM_1 q
#define PARAM(i, name) const T name __attribute__((unused)) = PARAM_##i;

#define VECTOR(name) \
  static void FN(vec_##name)(char *const *ptr, const int64_t *step, int64_t n, const pln_Call *c, int64_t at)
/* s is x or y, whichever the formula names */
#define FUNCTION(name, params, formula, p_, q_)                                    \
  PLK_INLINE T FN(name)(T g, T s, T p, T q) {                                      \
    const T x __attribute__((unused)) = s, y __attribute__((unused)) = s;          \
    (void)g, (void)p, (void)q;                                                     \
    params return formula;                                                         \
  }                                                                                \
  VECTOR(name) {                                                                   \
    (void)step, (void)at, (void)c;                                                 \
    FN(units2)(ptr, n, p_, q_, FN(name));                                          \
  }
#define FUNCTION2(name, formula)                                                   \
  PLK_INLINE T FN(name)(T g, T a, T b) {                                           \
    (void)g, (void)a, (void)b;                                                     \
    return formula;                                                                \
  }                                                                                \
  VECTOR(name) {                                                                   \
    (void)step, (void)at, (void)c;                                                 \
    FN(units3)(ptr, n, FN(name));                                                  \
  }
#define UNARY(name, rule, saves, formula, derivative, ...) FUNCTION(name, , derivative, 0, 0)
#define OPTIONS(name, signature, params, rule, saves, formula, derivative, ...) \
  FUNCTION(name, params, derivative, (T)c->f[0], (T)c->f[1])
#define BINARY(name, rule, formula, derivative1, derivative2, ...) \
  FUNCTION2(name##_1, derivative1) FUNCTION2(name##_2, derivative2)
#include "../../ops/elementwise.def"
#undef PARAM_0
#undef PARAM_1
#undef PARAM
#undef VECTOR
#undef FUNCTION
#undef FUNCTION2
#endif
