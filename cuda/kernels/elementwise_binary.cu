/* SPDX-License-Identifier: MIT
** elementwise_binary.cu -- kernels of the BINARY and COMPARE rows.
*/
#include "elementwise.h"

namespace {
#define ROWS "elementwise_binary_rows.h"
#include "elementwise_each.h"
}  // namespace

#define CASE(name, ID, S) \
  case PLN_##ID: return elementwise(c, name##_##S());
#define KERNEL(name, rule)                                        \
  PLC_KERNEL(name) {                                              \
    switch (c->arg[1].dtype) { CASES_##rule(CASE, name) }         \
    return wrong_dtype(c);                                        \
  }
#define BINARY(name, rule, ...) KERNEL(name, rule)
#define COMPARE(name, ...) KERNEL(name, any)
#include "ops/elementwise.def"
