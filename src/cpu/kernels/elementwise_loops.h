/* SPDX-License-Identifier: MIT
** elementwise_loops.h -- the loops of one element type; included by elementwise_each.h with T (C type), S (dtype's name) and
** LOAD(v), what of a stored v is computed with (a bool is `!= 0`). Each takes a scalar function that is known where it is
** called, so that function and loop become one.
**
** `omp simd` says that elements are independent: the result may be the very memory of an operand, never overlap it otherwise.
*/

/* One operand; p and q are the op's first two options. */
PLK_INLINE void FN(loop1)(char *const *ptr, int64_t n, T p, T q, T (*f)(T x, T p, T q)) {
  T *o = (T *)ptr[0];
  const T *x = (const T *)ptr[1];
#pragma omp simd
  for (int64_t i = 0; i < n; i++) o[i] = f(LOAD(x[i]), p, q);
}

PLK_INLINE void FN(test1)(char *const *ptr, int64_t n, uint8_t (*f)(T x)) {
  uint8_t *o = (uint8_t *)ptr[0];
  const T *x = (const T *)ptr[1];
#pragma omp simd
  for (int64_t i = 0; i < n; i++) o[i] = f(LOAD(x[i]));
}

/* Two or three operands side by side. */
PLK_INLINE void FN(units2)(char *const *ptr, int64_t n, T p, T q, T (*f)(T a, T b, T p, T q)) {
  T *o = (T *)ptr[0];
  const T *a = (const T *)ptr[1], *b = (const T *)ptr[2];
#pragma omp simd
  for (int64_t i = 0; i < n; i++) o[i] = f(LOAD(a[i]), LOAD(b[i]), p, q);
}

/* The same for functions that do not vectorize. */
PLK_INLINE void FN(serial2)(char *const *ptr, int64_t n, T (*f)(T a, T b)) {
  T *o = (T *)ptr[0];
  const T *a = (const T *)ptr[1], *b = (const T *)ptr[2];
  for (int64_t i = 0; i < n; i++) o[i] = f(a[i], b[i]);
}

PLK_INLINE void FN(units3)(char *const *ptr, int64_t n, T (*f)(T g, T a, T b)) {
  T *o = (T *)ptr[0];
  const T *g = (const T *)ptr[1], *a = (const T *)ptr[2], *b = (const T *)ptr[3];
#pragma omp simd
  for (int64_t i = 0; i < n; i++) o[i] = f(g[i], a[i], b[i]);
}

/* Two operands, each side by side or one value: loop2 with results of the operands' type, test2 with bools. */
#define LOOP2(NAME, R)                                                                                       \
  PLK_INLINE void FN(NAME)(char *const *ptr, const int64_t *step, int64_t n, R (*f)(T a, T b)) {             \
    R *o = (R *)ptr[0];                                                                                      \
    const T *a = (const T *)ptr[1], *b = (const T *)ptr[2];                                                  \
    T u = LOAD(*a), v = LOAD(*b);                                                                            \
    if (step[1] && step[2]) {                                                                                \
      _Pragma("omp simd") for (int64_t i = 0; i < n; i++) o[i] = f(LOAD(a[i]), LOAD(b[i]));                  \
    } else if (step[1]) {                                                                                    \
      _Pragma("omp simd") for (int64_t i = 0; i < n; i++) o[i] = f(LOAD(a[i]), v);                           \
    } else if (step[2]) {                                                                                    \
      _Pragma("omp simd") for (int64_t i = 0; i < n; i++) o[i] = f(u, LOAD(b[i]));                           \
    } else {                                                                                                 \
      R r = f(u, v);                                                                                         \
      _Pragma("omp simd") for (int64_t i = 0; i < n; i++) o[i] = r;                                          \
    }                                                                                                        \
  }
LOOP2(loop2, T)
LOOP2(test2, uint8_t)
#undef LOOP2
