/* SPDX-License-Identifier: MIT
 * Kernels that use what the emulator offers, each in the usual way: the same text for nvcc. */
#include "kernels.h"

#include "../../mma.h"

static int blocks_for(int n, int threads) { return (n + threads - 1) / threads; }

/* ---- elementwise ---- */

__global__ void silu_kernel(const float *__restrict__ x, const float *__restrict__ y,
                            float *__restrict__ out, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) out[i] = x[i] / (1.0f + __expf(-x[i])) * __ldg(&y[i]);
}

__global__ void axpy4_kernel(float a, const float4 *x, float4 *y, int n) {
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
    const float4 v = x[i];
    float4 w = y[i];
    w.x += a * v.x;
    w.y += a * v.y;
    w.z += a * v.z;
    w.w += a * v.w;
    y[i] = w;
  }
}

__global__ void fill_kernel(float *out, float v, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) out[i] = v;
}

__global__ void add1_kernel(const float *x, float *out, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) out[i] = x[i] + 1.0f;
}

/* ---- reductions: shuffles, static shared memory, early exits ---- */

__device__ float warp_max(float v) {
  for (int o = 16; o > 0; o >>= 1) v = fmaxf(v, __shfl_xor_sync(0xffffffffu, v, o));
  return v;
}

__device__ float warp_sum(float v) {
  for (int o = 16; o > 0; o >>= 1) v += __shfl_down_sync(0xffffffffu, v, o);
  return v;
}

template <int threads>
__global__ void __launch_bounds__(threads) softmax_kernel(const float *x, float *y, int columns) {
  PLN_SHARED(float, part, [threads / 32]);
  PLN_SHARED(float, total, );
  x += (size_t)blockIdx.x * columns;
  y += (size_t)blockIdx.x * columns;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  float m = -INFINITY, s = 0.0f;
  for (int i = threadIdx.x; i < columns; i += threads) m = fmaxf(m, x[i]);
  m = warp_max(m);
  if (lane == 0) part[warp] = m;
  __syncthreads();
  if (warp == 0) {
    m = warp_max(lane < threads / 32 ? part[lane] : -INFINITY);
    if (lane == 0) total = m;
  }
  __syncthreads();
  m = total;
  for (int i = threadIdx.x; i < columns; i += threads) s += __expf(x[i] - m);
  s = warp_sum(s);
  if (lane == 0) part[warp] = s;
  __syncthreads();
  if (warp == 0) {
    s = warp_sum(lane < threads / 32 ? part[lane] : 0.0f);
    if (lane == 0) total = s;
  }
  __syncthreads();
  for (int i = threadIdx.x; i < columns; i += threads) y[i] = __expf(x[i] - m) / total;
}

__device__ float to_float(__half v) { return __half2float(v); }
__device__ float to_float(__nv_bfloat16 v) { return __bfloat162float(v); }
__device__ void from_float(float v, __half *out) { *out = __float2half_rn(v); }
__device__ void from_float(float v, __nv_bfloat16 *out) { *out = __float2bfloat16_rn(v); }

template <class T> __global__ void rms_kernel(const T *x, T *y, int n) {
  PLN_SHARED(float, part, [32]);
  x += (size_t)blockIdx.x * n;
  y += (size_t)blockIdx.x * n;
  float s = 0.0f;
  for (int i = threadIdx.x; i < n; i += blockDim.x) s = __fmaf_rn(to_float(x[i]), to_float(x[i]), s);
  s = warp_sum(s);
  if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = s;
  __syncthreads();
  if (threadIdx.x < 32) {
    s = warp_sum(threadIdx.x < blockDim.x / 32 ? part[threadIdx.x] : 0.0f);
    if (threadIdx.x == 0) part[0] = rsqrtf(s / n + 1e-5f);
  }
  __syncthreads();
  for (int i = threadIdx.x; i < n; i += blockDim.x) from_float(to_float(x[i]) * part[0], &y[i]);
}

__global__ void early_exit_kernel(const float *x, float *out, int n) {
  PLN_SHARED(float, s, [256]);
  if ((int)threadIdx.x >= n) return;
  s[threadIdx.x] = x[threadIdx.x];
  __syncthreads();
  out[threadIdx.x] = s[n - 1 - threadIdx.x];
}

/* Row t of out: what the warp and block votes give thread t. */
__global__ void votes_kernel(int *out) {
  const unsigned all = blockDim.x % 32 && threadIdx.x / 32 == blockDim.x / 32
                           ? (1u << (blockDim.x % 32)) - 1u
                           : 0xffffffffu;
  const int t = threadIdx.x, odd = t & 1;
  int *row = out + 8 * t;
  row[0] = (int)__ballot_sync(all, odd);
  row[1] = __any_sync(all, t == 5) | __all_sync(all, t < 1000) << 1;
  row[2] = (int)__match_any_sync(all, t / 8);
  row[3] = (int)__reduce_add_sync(all, (unsigned)t);
  row[4] = __syncthreads_count(odd);
  row[5] = __syncthreads_and(t >= 0) | __syncthreads_or(t == 40) << 1;
  if (odd) row[6] = __shfl_sync(0xaaaaaaaau & all, t, 1);
  else row[6] = __shfl_sync(0x55555555u & all, t, 2);
  row[7] = __shfl_up_sync(all, t, 4, 8);
}

/* ---- two-dimensional blocks and tiles ---- */

__global__ void matmul_kernel(const float *a, const float *b, float *c, int m, int n, int k) {
  PLN_SHARED(float, ta, [16][16]);
  PLN_SHARED(float, tb, [16][17]);
  const int x = threadIdx.x, y = threadIdx.y;
  const int row = blockIdx.y * 16 + y, column = blockIdx.x * 16 + x;
  float sum = 0.0f;
  for (int t = 0; t < k; t += 16) {
    ta[y][x] = row < m && t + x < k ? a[row * k + t + x] : 0.0f;
    tb[y][x] = column < n && t + y < k ? b[(t + y) * n + column] : 0.0f;
    __syncthreads();
    for (int i = 0; i < 16; i++) sum += ta[y][i] * tb[i][x];
    __syncthreads();
  }
  if (row < m && column < n) c[row * n + column] = sum;
}

__device__ void mma(float *c, const unsigned *a, const unsigned *b, const __half *) {
  pln_mma_f16(c, a, b);
}
__device__ void mma(float *c, const unsigned *a, const unsigned *b, const __nv_bfloat16 *) {
  pln_mma_bf16(c, a, b);
}

/* One warp makes a 16x8 tile of C; A comes through asynchronous copies. */
template <class T>
__global__ void mma_kernel(const T *a, const T *b, float *c, int n, int k) {
  PLN_SHARED(T, ta, [16][24]);
  PLN_SHARED(T, tb, [8][24]); /* transposed */
  const int lane = threadIdx.x, g = lane / 4, t = lane % 4;
  const int row = blockIdx.y * 16, column = blockIdx.x * 8;
  float sum[4] = {0, 0, 0, 0};
  for (int k0 = 0; k0 < k; k0 += 16) {
    pln_copy_async16(&ta[lane / 2][lane % 2 * 8],
                     &a[(size_t)(row + lane / 2) * k + k0 + lane % 2 * 8]);
    pln_copy_async_commit();
    for (int i = lane; i < 128; i += 32)
      tb[i % 8][i / 8] = b[(size_t)(k0 + i / 8) * n + column + i % 8];
    pln_copy_async_wait<0>();
    __syncthreads();
    unsigned fa[4], fb[2];
    for (int i = 0; i < 4; i++) memcpy(&fa[i], &ta[g + 8 * (i % 2)][2 * t + 8 * (i / 2)], 4);
    for (int i = 0; i < 2; i++) memcpy(&fb[i], &tb[g][2 * t + 8 * i], 4);
    mma(sum, fa, fb, (const T *)nullptr);
    __syncthreads();
  }
  for (int i = 0; i < 4; i++)
    c[(size_t)(row + g + 8 * (i / 2)) * n + column + 2 * t + i % 2] = sum[i];
}

/* ---- atomics, dynamic shared memory, constants ---- */

__global__ void histogram_kernel(const int *x, int n, int *bins, int nbins, float *sum) {
  PLN_DYN_SHARED(int, mine);
  for (int i = threadIdx.x; i < nbins; i += blockDim.x) mine[i] = 0;
  __syncthreads();
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) {
    atomicAdd(&mine[x[i]], 1);
    atomicAdd(sum, (float)x[i]);
  }
  __syncthreads();
  for (int b = threadIdx.x; b < nbins; b += blockDim.x)
    if (mine[b]) atomicAdd(&bins[b], mine[b]);
}

__constant__ float table[4];

__global__ void table_kernel(float *out) { out[threadIdx.x] = table[threadIdx.x % 4]; }

__global__ void empty_kernel() {}

/* ---- launchers ---- */

extern "C" {

cudaError_t launch_silu(const float *x, const float *y, float *out, int n, cudaStream_t s) {
  PLN_LAUNCH(silu_kernel, blocks_for(n, 256), 256, 0, s, x, y, out, n);
  return cudaGetLastError();
}

cudaError_t launch_axpy4(float a, const float *x, float *y, int n, cudaStream_t s) {
  PLN_LAUNCH(axpy4_kernel, 3, 128, 0, s, a, (const float4 *)x, (float4 *)y, n / 4);
  return cudaGetLastError();
}

cudaError_t launch_softmax(const float *x, float *y, int rows, int columns, cudaStream_t s) {
  PLN_LAUNCH((softmax_kernel<256>), rows, 256, 0, s, x, y, columns);
  return cudaGetLastError();
}

cudaError_t launch_matmul(const float *a, const float *b, float *c, int m, int n, int k,
                          cudaStream_t s) {
  PLN_LAUNCH(matmul_kernel, dim3(blocks_for(n, 16), blocks_for(m, 16)), dim3(16, 16), 0, s, a, b,
             c, m, n, k);
  return cudaGetLastError();
}

cudaError_t launch_histogram(const int *x, int n, int *bins, int nbins, float *sum,
                             cudaStream_t s) {
  PLN_LAUNCH(histogram_kernel, blocks_for(n, 128), 128, nbins * sizeof(int), s, x, n, bins, nbins,
             sum);
  return cudaGetLastError();
}

cudaError_t launch_rms(const void *x, void *y, int rows, int columns, int bf16, cudaStream_t s) {
  if (bf16)
    PLN_LAUNCH((rms_kernel<__nv_bfloat16>), rows, 128, 0, s, (const __nv_bfloat16 *)x,
               (__nv_bfloat16 *)y, columns);
  else
    PLN_LAUNCH((rms_kernel<__half>), rows, 128, 0, s, (const __half *)x, (__half *)y, columns);
  return cudaGetLastError();
}

cudaError_t launch_mma(const void *a, const void *b, float *c, int m, int n, int k, int bf16,
                       cudaStream_t s) {
  const dim3 grid(n / 8, m / 16);
  if (bf16)
    PLN_LAUNCH((mma_kernel<__nv_bfloat16>), grid, 32, 0, s, (const __nv_bfloat16 *)a,
               (const __nv_bfloat16 *)b, c, n, k);
  else
    PLN_LAUNCH((mma_kernel<__half>), grid, 32, 0, s, (const __half *)a, (const __half *)b, c, n,
               k);
  return cudaGetLastError();
}

cudaError_t launch_votes(int *out, int threads, cudaStream_t s) {
  PLN_LAUNCH(votes_kernel, 1, threads, 0, s, out);
  return cudaGetLastError();
}

cudaError_t launch_early_exit(const float *x, float *out, int n, cudaStream_t s) {
  PLN_LAUNCH(early_exit_kernel, 1, 256, 0, s, x, out, n);
  return cudaGetLastError();
}

cudaError_t launch_fill(float *out, float v, int n, cudaStream_t s) {
  PLN_LAUNCH(fill_kernel, blocks_for(n, 256), 256, 0, s, out, v, n);
  return cudaGetLastError();
}

cudaError_t launch_add1(const float *x, float *out, int n, cudaStream_t s) {
  PLN_LAUNCH(add1_kernel, blocks_for(n, 256), 256, 0, s, x, out, n);
  return cudaGetLastError();
}

cudaError_t launch_shape(int gx, int gy, int bx, int by, int bz, size_t shared) {
  PLN_LAUNCH(empty_kernel, dim3(gx, gy), dim3(bx, by, bz), shared, 0);
  return cudaGetLastError();
}

cudaError_t allow_shared(size_t bytes) {
  return cudaFuncSetAttribute(empty_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                              (int)bytes);
}

cudaError_t shared_allowed(int *bytes) {
  cudaFuncAttributes attributes;
  const cudaError_t e = cudaFuncGetAttributes(&attributes, (const void *)empty_kernel);
  *bytes = attributes.maxDynamicSharedSizeBytes;
  return e;
}

cudaError_t set_table(const float values[4]) {
  return cudaMemcpyToSymbol(table, values, 4 * sizeof(float));
}

cudaError_t launch_table(float *out, cudaStream_t s) {
  PLN_LAUNCH(table_kernel, 1, 8, 0, s, out);
  return cudaGetLastError();
}

}  // extern "C"
