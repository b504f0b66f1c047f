/* SPDX-License-Identifier: MIT
** kernel.h -- what every CPU kernel file includes. These files are compiled once per instruction set level (PLN_ISA),
** so every function with external linkage is named through PLK.
**
** Bits must not depend on the level: no contraction (fma is named), no order of additions made of the vector width.
*/
#ifndef PLN_CPU_KERNEL_H
#define PLN_CPU_KERNEL_H

#include "../../call.h"
#include "../../elementary.h"
#include "../parallel.h"

#ifndef PLN_ISA
#define PLN_ISA base
#endif
#define PLK_PASTE2(name, isa) plk_cpu_##name##_##isa
#define PLK_PASTE(name, isa) PLK_PASTE2(name, isa)
#define PLK(name) PLK_PASTE(name, PLN_ISA)

/* Element types by dtype: PLK_T(PLN_F32) is float. */
#define PLK_EACH_DTYPE(X) X(BOOL, uint8_t, bool) X(U8, uint8_t, u8) X(I32, int32_t, i32) X(I64, int64_t, i64) X(F32, float, f32) X(F64, double, f64)

#endif
