/* SPDX-License-Identifier: MIT
** reduce_each.h -- includes TEMPLATE for f32, f64 and, unless REALS_ONLY is defined, i64.
**
** A template sees T, U (T with arithmetic that wraps), M (integer of T's size), K(name) (name with the type's suffix, so
** K(pls_exp) too), LOWEST, HIGHEST and UNORDERED(x), true for NaN.
*/
#define T float
#define U float
#define M int32_t
#define K(name) name##_f32
#define LOWEST (-INFINITY)
#define HIGHEST INFINITY
#define UNORDERED(x) ((x) != (x))
#include TEMPLATE
#undef T
#undef U
#undef M
#undef K

#define T double
#define U double
#define M int64_t
#define K(name) name##_f64
#include TEMPLATE
#undef T
#undef U
#undef M
#undef K
#undef LOWEST
#undef HIGHEST
#undef UNORDERED

#ifndef REALS_ONLY
#define T int64_t
#define U uint64_t
#define M int64_t
#define K(name) name##_i64
#define LOWEST INT64_MIN
#define HIGHEST INT64_MAX
#define UNORDERED(x) 0
#include TEMPLATE
#undef T
#undef U
#undef M
#undef K
#undef LOWEST
#undef HIGHEST
#undef UNORDERED
#endif

#undef REALS_ONLY
#undef TEMPLATE
