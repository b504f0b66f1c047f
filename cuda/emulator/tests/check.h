/* SPDX-License-Identifier: MIT
 * What the emulator's tests share: counted expectations and device buffers. The same sources run
 * on a real device, except those that include ../control.h. */
#ifndef PLEMU_CHECK_H
#define PLEMU_CHECK_H

#include <cuda_runtime_api.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

extern int passed, failed;

/* One expectation; a failure prints the place and the text. */
#define EXPECT(condition, ...)                         \
  do {                                                 \
    if (condition) {                                   \
      passed++;                                        \
    } else {                                           \
      failed++;                                        \
      printf("FAILED %s:%d: ", __FILE__, __LINE__);    \
      printf(__VA_ARGS__);                             \
      printf("\n");                                    \
    }                                                  \
  } while (0)

/* A call that the test cannot go on without. */
#define OK(call)                                                                     \
  do {                                                                               \
    const cudaError_t ok_ = (call);                                                  \
    if (ok_ != cudaSuccess) {                                                        \
      printf("%s:%d: %s: %s\n", __FILE__, __LINE__, #call, cudaGetErrorName(ok_));   \
      exit(2);                                                                       \
    }                                                                                \
  } while (0)

#define EXPECT_ERROR(call, wanted)                                                            \
  do {                                                                                        \
    const cudaError_t got_ = (call);                                                          \
    EXPECT(got_ == (wanted), "%s: %s, wanted %s", #call, cudaGetErrorName(got_), #wanted);    \
    cudaGetLastError();                                                                       \
  } while (0)

static inline void *device_bytes(const void *from, size_t bytes) {
  void *p;
  OK(cudaMalloc(&p, bytes));
  if (from) OK(cudaMemcpy(p, from, bytes, cudaMemcpyHostToDevice));
  return p;
}

static inline float *device_floats(const float *from, size_t n) {
  return device_bytes(from, n * sizeof(float));
}

static inline float *host_floats(const float *device, size_t n) {
  float *p = malloc(n * sizeof(float));
  OK(cudaMemcpy(p, device, n * sizeof(float), cudaMemcpyDeviceToHost));
  return p;
}

static inline cudaStream_t new_stream(void) {
  cudaStream_t s;
  OK(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking));
  return s;
}

static inline float random_float(unsigned *state) {
  *state = *state * 1664525u + 1013904223u;
  return (float)(*state >> 8) / 8388608.0f - 1.0f;
}

void test_kernels(void);
void test_runtime(void);
void test_control(void);

#endif
