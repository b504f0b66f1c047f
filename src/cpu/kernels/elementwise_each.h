/* SPDX-License-Identifier: MIT
** elementwise_each.h -- includes the loops and then ROWS once per element type, with what a row's formula needs defined:
** T, F(name), K(constant); FN(name) makes a name of its own; FOR_<rule>(code) keeps the code if the rule covers the type.
*/
#define PASTE2(a, b) a##_##b
#define PASTE(a, b) PASTE2(a, b)
#define FN(name) PASTE(name, S)
#define PLS2(name, s) pls_##name##_##s
#define PLS(name, s) PLS2(name, s)
#define F(name) PLS(name, S)
#define K(constant) ((T)(constant))
#define LOAD(v) (v)

#define FOR_any(...) __VA_ARGS__
#define FOR_number(...) __VA_ARGS__
#define FOR_clamp(...) __VA_ARGS__
#define FOR_power(...) __VA_ARGS__
#define FOR_mod(...) __VA_ARGS__
#define FOR_float(...) __VA_ARGS__
#define FOR_fraction(...) __VA_ARGS__

#define IS_FLOAT 1
#define T float
#define S f32
#include "elementwise_loops.h"
#include ROWS
#undef T
#undef S
#define T double
#define S f64
#include "elementwise_loops.h"
#include ROWS
#undef T
#undef S
#undef IS_FLOAT

#undef FOR_float
#undef FOR_fraction
#define FOR_float(...)
#define FOR_fraction(...)
#define IS_FLOAT 0
#define T int64_t
#define S i64
#include "elementwise_loops.h"
#include ROWS
#undef T
#undef S
#define T int32_t
#define S i32
#include "elementwise_loops.h"
#include ROWS
#undef T
#undef S
#define T uint8_t
#define S u8
#include "elementwise_loops.h"
#include ROWS
#undef S

#undef FOR_number
#undef FOR_clamp
#undef FOR_power
#undef FOR_mod
#undef LOAD
#define FOR_number(...)
#define FOR_clamp(...)
#define FOR_power(...)
#define FOR_mod(...)
#define LOAD(v) ((uint8_t)((v) != 0))
#define S bool
#include "elementwise_loops.h"
#include ROWS
#undef T
#undef S
#undef IS_FLOAT
#undef LOAD
#undef FOR_any
#undef FOR_number
#undef FOR_clamp
#undef FOR_power
#undef FOR_mod
#undef FOR_float
#undef FOR_fraction

/* The vector functions of a row, by dtype. */
#define VECS_float(name) [PLN_F32] = name##_f32, [PLN_F64] = name##_f64
#define VECS_fraction(name) VECS_float(name)
#define VECS_number(name) VECS_float(name), [PLN_U8] = name##_u8, [PLN_I32] = name##_i32, [PLN_I64] = name##_i64
#define VECS_clamp(name) VECS_number(name)
#define VECS_power(name) VECS_number(name)
#define VECS_mod(name) VECS_number(name)
#define VECS_any(name) VECS_number(name), [PLN_BOOL] = name##_bool
#define VECS(rule, name) {VECS_##rule(name)}
