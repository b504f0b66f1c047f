/* SPDX-License-Identifier: MIT
 * What only the emulator has: memory budget, injected faults, counts, refused handles. */
#include "../control.h"

#include "check.h"
#include "kernels.h"

static const size_t MB = 1 << 20;

static void test_budget(void) {
  void *p[8], *q;
  size_t available, total;
  cudaStream_t s = new_stream();
  OK(cudaDeviceSynchronize());
  EXPECT(plemu_configure("memory", "8M") == 0, "memory can be set");
  OK(cudaMemGetInfo(&available, &total));
  EXPECT(total == 8 * MB && available == 8 * MB, "%zu of %zu available", available, total);
  for (int i = 0; i < 8; i++) OK(cudaMalloc(&p[i], MB));
  EXPECT_ERROR(cudaMalloc(&q, 1), cudaErrorMemoryAllocation);
  EXPECT_ERROR(cudaMallocAsync(&q, MB, s), cudaErrorMemoryAllocation);
  EXPECT_ERROR(cudaMallocHost(&q, 64 * MB), cudaSuccess);
  OK(cudaFreeHost(q));
  for (int i = 4; i < 8; i++) OK(cudaFree(p[i]));
  /* Frees that are still queued make room for later allocations, whatever has run. */
  for (int i = 0; i < 20; i++) {
    OK(cudaMallocAsync(&q, 3 * MB, s));
    OK(cudaFreeAsync(q, s));
  }
  EXPECT_ERROR(cudaMallocAsync(&q, 5 * MB, s), cudaErrorMemoryAllocation);
  EXPECT_ERROR(cudaMallocAsync(&q, ~(size_t)0, s), cudaErrorMemoryAllocation);
  for (int i = 0; i < 4; i++) OK(cudaFree(p[i]));
  OK(cudaMalloc(&q, 8 * MB));
  OK(cudaFree(q));
  OK(cudaStreamDestroy(s));
  EXPECT(plemu_configure("memory", "1G") == 0, "memory can be reset");
}

static void test_faults(void) {
  void *p;
  cudaStream_t s = new_stream();
  float *x = device_floats(NULL, 256), h[256];
  plemu_fail_call("cudaMalloc", 2, 0, cudaErrorMemoryAllocation);
  OK(cudaMalloc(&p, 16));
  OK(cudaFree(p));
  EXPECT_ERROR(cudaMalloc(&p, 16), cudaErrorMemoryAllocation);
  OK(cudaMalloc(&p, 16));
  OK(cudaFree(p));

  plemu_fail_call("cudaLaunchKernel", 1, 1, cudaErrorLaunchOutOfResources);
  EXPECT_ERROR(launch_fill(x, 1, 256, s), cudaErrorLaunchOutOfResources);
  EXPECT_ERROR(launch_fill(x, 1, 256, s), cudaErrorLaunchOutOfResources);
  plemu_clear_faults();
  EXPECT_ERROR(launch_fill(x, 1, 256, s), cudaSuccess);
  OK(cudaStreamSynchronize(s));

  /* A kernel that fails while it runs is reported by the next wait and by all that follows. */
  OK(launch_fill(x, 2, 256, s));
  OK(cudaStreamSynchronize(s));
  plemu_fail_call("kernel", 1, 0, cudaErrorIllegalAddress);
  launch_fill(x, 3, 256, s); /* the error may come as early as here */
  EXPECT(cudaStreamSynchronize(s) == cudaErrorIllegalAddress, "the wait reports the kernel");
  EXPECT(cudaMalloc(&p, 16) == cudaErrorIllegalAddress, "a lost device stays lost");
  EXPECT(cudaGetLastError() == cudaErrorIllegalAddress, "the error is sticky");
  EXPECT(cudaGetLastError() == cudaErrorIllegalAddress, "and not cleared by reading it");
  plemu_clear_faults();
  EXPECT_ERROR(cudaMemcpy(h, x, sizeof h, cudaMemcpyDeviceToHost), cudaSuccess);
  EXPECT(h[0] == 2, "the failed kernel wrote %g", h[0]);
  OK(cudaFree(x));
  OK(cudaStreamDestroy(s));
}

static void CUDART_CB call_runtime(void *user) { *(cudaError_t *)user = cudaDeviceSynchronize(); }

static void test_counts(void) {
  const long calls = plemu_calls("cudaStreamSynchronize");
  const long fills = plemu_kernel_runs("fill_kernel"), rms = plemu_kernel_runs("rms_kernel");
  cudaStream_t s = new_stream();
  float *x = device_floats(NULL, 256);
  OK(launch_fill(x, 1, 256, s));
  OK(launch_rms(x, x, 1, 64, 0, s));
  OK(launch_rms(x, x, 1, 64, 1, s));
  OK(cudaStreamSynchronize(s));
  EXPECT(plemu_calls("cudaStreamSynchronize") == calls + 1, "calls are counted");
  EXPECT(plemu_kernel_runs("fill_kernel") == fills + 1, "kernels are counted");
  EXPECT(plemu_kernel_runs("rms_kernel") == rms + 2, "instances of a template are counted");
  EXPECT(plemu_pending() == 0, "%zu operations are pending", plemu_pending());
  cudaError_t inside = cudaSuccess;
  OK(cudaLaunchHostFunc(s, call_runtime, &inside));
  OK(cudaStreamSynchronize(s));
  EXPECT(inside == cudaErrorNotPermitted, "a host function may not call the runtime");
  OK(cudaFree(x));
  OK(cudaStreamDestroy(s));
}

static void test_lazy(void) {
  cudaStream_t s = new_stream();
  float *x = device_floats(NULL, 256);
  OK(cudaDeviceSynchronize());
  if (plemu_configure("mode", "lazy") != 0 || plemu_configure("seed", "0") != 0) exit(2);
  for (int i = 0; i < 5; i++) OK(launch_fill(x, 1, 256, s));
  EXPECT(plemu_pending() == 5, "%zu operations are pending, wanted 5", plemu_pending());
  OK(cudaStreamSynchronize(s));
  EXPECT(plemu_pending() == 0, "a wait runs them");
  OK(cudaFree(x));
  OK(cudaStreamDestroy(s));
}

static void test_refusals(void) {
  cudaStream_t s = new_stream();
  float *x = device_floats(NULL, 16), h[16];
  int value;
  void *p;
  OK(cudaStreamDestroy(s));
  EXPECT_ERROR(cudaStreamSynchronize(s), cudaErrorInvalidResourceHandle);
  EXPECT_ERROR(launch_fill(x, 1, 16, s), cudaErrorInvalidResourceHandle);
  EXPECT_ERROR(cudaMemcpy(h, x, sizeof h, cudaMemcpyHostToDevice),
               cudaErrorInvalidMemcpyDirection);
  EXPECT_ERROR(cudaMemset(h, 0, sizeof h), cudaErrorInvalidValue);
  EXPECT_ERROR(cudaSetDevice(1), cudaErrorInvalidDevice);
  EXPECT_ERROR(cudaDeviceGetAttribute(&value, cudaDevAttrClockRate, 0), cudaErrorNotSupported);
  OK(cudaMallocAsync(&p, 64, 0));
  OK(cudaFreeAsync(p, 0));
  EXPECT_ERROR(cudaFreeAsync(p, 0), cudaErrorInvalidValue);
  OK(cudaDeviceSynchronize());
  OK(cudaFree(x));
  EXPECT_ERROR(cudaFree(x), cudaErrorInvalidValue);
  EXPECT(plemu_configure("mode", "fast") == -1 && plemu_configure("speed", "1") == -1,
         "unknown settings are refused");
}

static void test_device(void) {
  struct cudaDeviceProp p;
  int optin, managed;
  const struct {
    const char *key;
    int major, optin, managed;
  } devices[] = {{"h200", 9, 232448, 1}, {"gb10", 12, 101376, 0}};
  for (int i = 0; i < 2; i++) {
    EXPECT(plemu_configure("device", devices[i].key) == 0, "device %s", devices[i].key);
    OK(cudaGetDeviceProperties(&p, 0));
    OK(cudaDeviceGetAttribute(&optin, cudaDevAttrMaxSharedMemoryPerBlockOptin, 0));
    EXPECT(p.major == devices[i].major && optin == devices[i].optin, "limits of %s", p.name);
    OK(cudaDeviceGetAttribute(&managed, cudaDevAttrConcurrentManagedAccess, 0));
    EXPECT(managed == devices[i].managed, "managed memory of %s", p.name);
  }
}

void test_control(void) {
  test_faults();
  test_counts();
  test_refusals();
  test_budget();
  test_device();
  test_lazy();
  size_t bytes;
  const size_t live = plemu_live_allocations(&bytes);
  EXPECT(live == 0, "%zu allocations with %zu bytes are left", live, bytes);
}
