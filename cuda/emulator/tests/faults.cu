/* SPDX-License-Identifier: MIT
 * Kernels with one planted fault each. run.sh names the detector that must catch it: a detector
 * that stays silent fails the tests. */
#include "kernels.h"

#include <string.h>

#include "../../mma.h"

__global__ void past_the_end(float *out, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i <= n) out[i] = 1.0f; /* should be i < n */
}

__global__ void past_shared(float *out) {
  PLN_SHARED(float, s, [64]);
  s[threadIdx.x + 1] = (float)threadIdx.x;
  __syncthreads();
  out[threadIdx.x] = s[threadIdx.x];
}

__global__ void past_dynamic_shared(float *out) {
  PLN_DYN_SHARED(float, s);
  s[threadIdx.x + 1] = (float)threadIdx.x;
  __syncthreads();
  out[threadIdx.x] = s[threadIdx.x];
}

__global__ void unset_shared(float *out) {
  PLN_SHARED(float, s, [64]);
  if (threadIdx.x < 32) s[threadIdx.x] = 1.0f;
  __syncthreads();
  out[threadIdx.x] = s[threadIdx.x];
}

__global__ void no_barrier(const float *x, float *out) {
  PLN_SHARED(float, s, [256]);
  s[threadIdx.x] = x[threadIdx.x];
  /* __syncthreads() is missing; in ascending order the left neighbour has already written */
  out[threadIdx.x] = threadIdx.x ? s[threadIdx.x - 1] : 0.0f;
}

__global__ void no_second_barrier(const float *x, float *out) {
  PLN_SHARED(float, s, [256]);
  float sum = 0.0f;
  for (int t = 0; t < 4; t++) {
    s[threadIdx.x] = x[t * 256 + threadIdx.x];
    __syncthreads();
    sum += s[(threadIdx.x + 1) % 256];
    /* __syncthreads() is missing before the next round overwrites s */
  }
  out[threadIdx.x] = sum;
}

__global__ void no_syncwarp(const float *x, float *out) {
  PLN_SHARED(float, s, [32]);
  s[threadIdx.x] = x[threadIdx.x];
  __syncwarp();
  for (int o = 16; o > 0; o >>= 1)
    if ((int)threadIdx.x < o) s[threadIdx.x] += s[threadIdx.x + o]; /* no __syncwarp() between */
  if (threadIdx.x == 0) out[0] = s[0];
}

__global__ void divergent_barrier(float *out) {
  if (threadIdx.x < 32) {
    __syncthreads();
    out[threadIdx.x] = 1.0f;
  } else {
    __syncthreads();
    out[threadIdx.x] = 2.0f;
  }
}

__global__ void partial_shuffle(float *out) {
  float v = (float)threadIdx.x;
  if (threadIdx.x < 16)
    v = __shfl_down_sync(0xffffffffu, v, 1); /* half of the named lanes are elsewhere */
  else
    __syncthreads();
  out[threadIdx.x] = v;
}

__global__ void lane_not_in_mask(float *out) {
  out[threadIdx.x] = __shfl_sync(0x0000ffffu, (float)threadIdx.x, 0);
}

__global__ void plain_sum(float *sum, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) *sum += 1.0f; /* should be atomicAdd */
}

__global__ void misaligned(const float *x, float4 *out) {
  out[threadIdx.x] = *reinterpret_cast<const float4 *>(x + 1 + 4 * threadIdx.x);
}

__global__ void no_tail(const float *x, float *out, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x; /* the grid was rounded down */
  if (i < n) out[i] = x[i];
}

__global__ void no_copy_wait(const float *x, float *out) {
  PLN_SHARED(float, s, [128]);
  pln_copy_async16(&s[threadIdx.x * 4], &x[threadIdx.x * 4]);
  pln_copy_async_commit();
  __syncthreads();
  out[threadIdx.x] = s[threadIdx.x];
}

__global__ void block_order(const float *x, float *out, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x; /* reads what the block before wrote */
  if (i < n) out[i] = i < (int)blockDim.x ? x[i] : out[i - blockDim.x] + 1.0f;
}

extern "C" cudaError_t launch_fault(const char *name, const float *x, float *out, int n,
                                    cudaStream_t s) {
#define FAULT(kernel, grid, block, shared, ...)           \
  if (!strcmp(name, #kernel)) {                           \
    PLN_LAUNCH(kernel, grid, block, shared, s, __VA_ARGS__); \
    return cudaGetLastError();                            \
  }
  FAULT(past_the_end, (n + 256) / 256, 256, 0, out, n)
  FAULT(past_shared, 1, 64, 0, out)
  FAULT(past_dynamic_shared, 1, 64, 64 * sizeof(float), out)
  FAULT(unset_shared, 1, 64, 0, out)
  FAULT(no_barrier, 1, 256, 0, x, out)
  FAULT(no_second_barrier, 1, 256, 0, x, out)
  FAULT(no_syncwarp, 1, 32, 0, x, out)
  FAULT(divergent_barrier, 1, 64, 0, out)
  FAULT(partial_shuffle, 1, 32, 0, out)
  FAULT(lane_not_in_mask, 1, 32, 0, out)
  FAULT(plain_sum, (n + 255) / 256, 256, 0, out, n)
  FAULT(misaligned, 1, 32, 0, x, (float4 *)out)
  FAULT(no_tail, (n - 1) / 256, 256, 0, x, out, n)
  FAULT(no_copy_wait, 1, 32, 0, x, out)
  FAULT(block_order, (n + 255) / 256, 256, 0, x, out, n)
#undef FAULT
  return cudaErrorUnknown;
}
