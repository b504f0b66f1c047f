/* SPDX-License-Identifier: MIT
** elementwise_each.h -- includes ROWS once per element type, with what a row's formula needs defined: T, F(name), K(constant), as
** on the host; FN(name) makes a name of its own; FOR_<rule>(code) keeps the code if the rule covers the type; LOAD(v) is what of a
** stored v is computed with (a bool is `!= 0`). CASES_<rule>(MAKE, name) then is MAKE(name, dtype's ID, suffix) for the rule's dtypes.
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
#include ROWS
#undef T
#undef S
#define T double
#define S f64
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
#include ROWS
#undef T
#undef S
#define T int32_t
#define S i32
#include ROWS
#undef T
#undef S
#define T uint8_t
#define S u8
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
#include ROWS
#undef T
#undef S
#undef F
#undef K
#undef IS_FLOAT
#undef LOAD

#define CASES_float(MAKE, name) MAKE(name, F32, f32) MAKE(name, F64, f64)
#define CASES_fraction(MAKE, name) CASES_float(MAKE, name)
#define CASES_number(MAKE, name) CASES_float(MAKE, name) MAKE(name, U8, u8) MAKE(name, I32, i32) MAKE(name, I64, i64)
#define CASES_clamp(MAKE, name) CASES_number(MAKE, name)
#define CASES_power(MAKE, name) CASES_number(MAKE, name)
#define CASES_mod(MAKE, name) CASES_number(MAKE, name)
#define CASES_any(MAKE, name) CASES_number(MAKE, name) MAKE(name, BOOL, bool)

static inline pln_Status wrong_dtype(const pln_Call *c) {
  return pln_fail(PLN_EDEVICE, "%s: no kernel for dtype %s", pld_op_name(c), pln_dtype_name((pln_DType)pln_call_in(c, 0)->dtype));
}
