/* SPDX-License-Identifier: MIT
** elementwise_backward_rows.h -- a functor of every derivative, for the element type T. s is x or y, whichever the formula names.
*/
#if IS_FLOAT
#define PARAM_0 p
#define PARAM_1 q
#define PARAM(i, name) const T name __attribute__((unused)) = PARAM_##i;
#define FUNCTION(name, params, formula)                                    \
  struct FN(name) {                                                        \
    typedef T R, A, B;                                                     \
    typedef uint8_t C;                                                     \
    enum { N = 2, CHECKED = 0 };                                           \
    T p, q;                                                                \
    __device__ __forceinline__ T operator()(T g, T s) const {              \
      const T x __attribute__((unused)) = s, y __attribute__((unused)) = s; \
      (void)g;                                                             \
      params return (T)(formula);                                          \
    }                                                                      \
    static FN(name) of(const pln_Call *c) { return {(T)c->f[0], (T)c->f[1]}; } \
  };
#define FUNCTION2(name, formula)                                           \
  struct FN(name) {                                                        \
    typedef T R, A, B, C;                                                  \
    enum { N = 3, CHECKED = 0 };                                           \
    __device__ __forceinline__ T operator()(T g, T a, T b) const {         \
      (void)g, (void)a, (void)b;                                           \
      return (T)(formula);                                                 \
    }                                                                      \
  };
#define UNARY(name, rule, saves, formula, derivative, ...) FUNCTION(name, , derivative)
#define OPTIONS(name, signature, params, rule, saves, formula, derivative, ...) FUNCTION(name, params, derivative)
#define BINARY(name, rule, formula, derivative1, derivative2, ...) \
  FUNCTION2(name##_1, derivative1) FUNCTION2(name##_2, derivative2)
#include "ops/elementwise.def"
#undef PARAM_0
#undef PARAM_1
#undef PARAM
#undef FUNCTION
#undef FUNCTION2
#endif
