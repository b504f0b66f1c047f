/* SPDX-License-Identifier: MIT
** module.cu -- the one name of a GPU module (src/gpu.h), and the core's functions under their own names inside it.
*/
#include "device.h"

extern "C" {
#include "gpu.h"
}

#include <stdarg.h>
#include <stdio.h>

static pln_GpuHost core;

extern "C" pln_Status pln_fail(pln_Status status, const char *fmt, ...) {
  char text[PLN_MAX_ERROR];
  va_list args;
  va_start(args, fmt);
  vsnprintf(text, sizeof text, fmt, args);
  va_end(args);
  return core.fail(status, "%s", text);
}

extern "C" const char *pln_error(void) { return core.error(); }
extern "C" void *pln_calloc(size_t count, size_t bytes) { return core.calloc(count, bytes); }
extern "C" void pln_mfree(void *p) { core.mfree(p); }
bool pld_interrupted() { return *core.interrupted != 0; }

extern "C" __attribute__((visibility("default"))) const pln_GpuModule *pln_gpu_module(const pln_GpuHost *host) {
  static const pln_GpuModule module = {&plk_cuda_backend, plk_cuda_reason};
  if (host->layout != PLN_GPU_LAYOUT) return NULL;
  core = *host;
  return &module;
}
