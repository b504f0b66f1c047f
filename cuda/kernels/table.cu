/* SPDX-License-Identifier: MIT
** table.cu -- the CUDA kernels by op; made of the op table, so a kernel that is missing is an undefined symbol.
*/
#include "kernel.h"

#define OP(name, signature, nout, flags, dtypes, prepare, kernel, ...) PLC_KERNEL(kernel);
#include "ops.def"

/* The kernel `none` of views and composites is never launched. */
PLC_KERNEL(none) {
  (void)c;
  return pln_fail(PLN_EDEVICE, "this op has no kernel");
}

const pln_KernelFn plk_cuda_table[PLN_NOPS] = {
#define OP(name, signature, nout, flags, dtypes, prepare, kernel, ...) PLC(kernel),
#include "ops.def"
};
