/* SPDX-License-Identifier: MIT
 * One program with the emulator, as an object whose runtime symbols are local, and NVIDIA's static
 * runtime: each serves its own callers. */
#include <cuda_runtime_api.h>
#include <stdio.h>

int module_run(float v);

int main(void) {
  struct cudaDeviceProp p;
  int version = 0, count = 0;
  const cudaError_t real = cudaGetDeviceCount(&count);
  const int emulated = module_run(2.0f);
  cudaRuntimeGetVersion(&version);
  /* Either there is a driver and a real device, or none: never the emulated one. */
  const int apart = real != cudaSuccess || cudaGetDeviceProperties(&p, 0) != cudaSuccess ||
                    p.name[0] != 'E';
  printf("runtime %d, devices %d, emulated %d, apart %d\n", version, count, emulated, apart);
  return !(emulated && apart);
}
