/* SPDX-License-Identifier: MIT
** elementwise_unary.cu -- kernels of the UNARY, OPTIONS and TEST rows.
*/
#include "elementwise.h"

namespace {
#define ROWS "elementwise_unary_rows.h"
#include "elementwise_each.h"
}  // namespace

#define CASE(name, ID, S) \
  case PLN_##ID: return elementwise(c, name##_##S::of(c));
#define KERNEL(name, rule)                                        \
  PLC_KERNEL(name) {                                              \
    switch (c->arg[1].dtype) { CASES_##rule(CASE, name) }         \
    return wrong_dtype(c);                                        \
  }
#define UNARY(name, rule, ...) KERNEL(name, rule)
#define OPTIONS(name, signature, params, rule, ...) KERNEL(name, rule)
#define TEST(name, ...) KERNEL(name, any)
#include "ops/elementwise.def"
