/* SPDX-License-Identifier: MIT
** table.c -- the CPU kernels of one instruction set level, by op; made of the op table, so a kernel that is missing
** is an undefined symbol and `require` fails at once.
*/
#include "kernel.h"

#include "../../op.h"

#define OP(name, signature, nout, flags, dtypes, prepare, kernel, ...) pln_Status PLK(kernel)(const pln_Call *c);
#include "../../ops.def"

/* The kernel `none` of views and composites is never launched; its entry says so by not being there. */
pln_Status PLK(none)(const pln_Call *c) {
  (void)c;
  return pln_fail(PLN_EDEVICE, "this op has no kernel");
}

const pln_KernelFn PLK(table)[PLN_NOPS] = {
#define OP(name, signature, nout, flags, dtypes, prepare, kernel, ...) [PLN_OP_##name] = PLK(kernel),
#include "../../ops.def"
};
