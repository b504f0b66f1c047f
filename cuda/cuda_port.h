/* SPDX-License-Identifier: MIT
 * The one CUDA header that a .cu file includes. nvcc gets the real thing; g++ and clang++ get the
 * emulator, which runs the same text on the host (docs/cuda.md).
 * Rule: kernels declare shared memory with PLN_SHARED and PLN_DYN_SHARED only. The emulator knows
 * those objects, fills them with NaN for each block and puts red zones round them. */
#ifndef PLN_CUDA_PORT_H
#define PLN_CUDA_PORT_H

#if defined(__CUDACC__)

#define PLN_CUDA_EMULATED 0
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

/* PLN_LAUNCH((kernel<256>), grid, block, dynamic shared bytes, stream, arguments...); a launch
 * error is picked up with cudaGetLastError(). A kernel whose name holds a comma needs the
 * parentheses. */
#define PLN_LAUNCH(kernel, grid, block, shared, stream, ...) \
  (kernel)<<<(grid), (block), (shared), (stream)>>>(__VA_ARGS__)

/* PLN_SHARED(float, tile, [16][17]); PLN_SHARED(float, total, ); */
#define PLN_SHARED(type, name, dims) __shared__ type name dims

/* PLN_DYN_SHARED(float, buffer); a pointer to the launch's dynamic shared memory. */
#define PLN_DYN_SHARED(type, name)                                            \
  extern __shared__ __align__(16) unsigned char pln_dynamic_shared[];         \
  type *name = reinterpret_cast<type *>(pln_dynamic_shared)

#else

#define PLN_CUDA_EMULATED 1
#include "emulator/device.h"

#define PLN_LAUNCH(kernel, grid, block, shared, stream, ...)                                     \
  plemu::Launcher<kernel>{plemu::extent(grid), plemu::extent(block), (size_t)(shared), (stream)}( \
      __VA_ARGS__)

#define PLN_SHARED(type, name, dims)                                                 \
  static char plemu_site_##name;                                                     \
  auto &name = *reinterpret_cast<type(*) dims>(                                      \
      plemu_shared_object(&plemu_site_##name, sizeof(type dims), alignof(type)))

#define PLN_DYN_SHARED(type, name) type *name = reinterpret_cast<type *>(plemu_t.dynamic)

#endif
#endif
