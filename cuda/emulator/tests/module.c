/* SPDX-License-Identifier: MIT
 * A module with the emulator inside, as an engine would ship it: module_run is its only name. */
#include "check.h"
#include "kernels.h"

int passed, failed;

__attribute__((visibility("default"))) int module_run(float v) {
  float *p = device_floats(NULL, 256);
  cudaStream_t s = new_stream();
  OK(launch_fill(p, v, 256, s));
  OK(cudaStreamSynchronize(s));
  OK(launch_softmax(p, p, 1, 256, s));
  OK(cudaStreamSynchronize(s));
  float *h = host_floats(p, 256);
  const int right = fabsf(h[255] - 1.0f / 256) < 1e-6f;
  free(h);
  OK(cudaFree(p));
  OK(cudaStreamDestroy(s));
  return right;
}
