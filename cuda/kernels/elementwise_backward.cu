/* SPDX-License-Identifier: MIT
** elementwise_backward.cu -- kernels of <name>_backward: the derivative formulas of the rows, one pass each.
*/
#include "elementwise.h"

namespace {
#define ROWS "elementwise_backward_rows.h"
#include "elementwise_each.h"
}  // namespace

#define KERNEL(name)                                                                        \
  PLC_KERNEL(name##_backward) {                                                             \
    if (c->arg[1].dtype == PLN_F32) return elementwise(c, name##_f32::of(c));               \
    return c->arg[1].dtype == PLN_F64 ? elementwise(c, name##_f64::of(c)) : wrong_dtype(c); \
  }
#define UNARY(name, ...) KERNEL(name)
#define OPTIONS(name, ...) KERNEL(name)
#define BINARY(name, ...)                                                                   \
  PLC_KERNEL(name##_backward) {                                                             \
    if (c->arg[1].dtype == PLN_F32)                                                         \
      return c->i[0] ? elementwise(c, name##_2_f32()) : elementwise(c, name##_1_f32());     \
    if (c->arg[1].dtype != PLN_F64) return wrong_dtype(c);                                  \
    return c->i[0] ? elementwise(c, name##_2_f64()) : elementwise(c, name##_1_f64());       \
  }
#include "ops/elementwise.def"
