/* SPDX-License-Identifier: MIT
** matmul.cu -- matrix products from a call record (src/ops/matmul.def), by tiles in shared memory.
**
** Additions are made in the order of src/cpu/gemm.h: blocks of 256 terms, each a chain of fma from zero, added up in order; a 1 x 1
** result as 32 chains. So neither tiles nor strides show in the bits, and host and device agree.
*/
#include "kernel.h"

namespace {

enum { TILE = 64, STEP = 16, OWN = 4, SIDE = TILE / OWN, TERMS = 256 };

struct Product {
  char *out;
  const char *a, *b, *add;     /* add: NULL if nothing is added */
  int64_t m, n, k, batch, tiles_m, tiles_n;
  int64_t os0, os1, as0, as1, bs0, bs1, cs0, cs1;
  double alpha, beta;
  bool scaled;                 /* alpha is not 1, or there is an addend */
  pld_Layout<4> layout;        /* of batches: out, a, b, addend */
};

/* W is what sums are made in: wrapping for integers. */
template <class T> struct Sum {
  typedef T W;
  static __device__ __forceinline__ T step(T a, T b, T x);
  static __device__ __forceinline__ T finish(const Product &p, T sum, const T *add) {
    return add ? (T)p.alpha * sum + (T)p.beta * *add : (T)p.alpha * sum;
  }
};
template <> __device__ __forceinline__ float Sum<float>::step(float a, float b, float x) { return pls_fma_f32(a, b, x); }
template <> __device__ __forceinline__ double Sum<double>::step(double a, double b, double x) { return pls_fma_f64(a, b, x); }

template <class T, class U> struct WholeSum {
  typedef U W;
  static __device__ __forceinline__ U step(T a, T b, U x) { return x + (U)a * (U)b; }
  static __device__ __forceinline__ T finish(const Product &p, U sum, const T *add) {
    uint64_t v = (uint64_t)(int64_t)p.alpha * (uint64_t)sum;
    return (T)(add ? v + (uint64_t)(int64_t)p.beta * (uint64_t)*add : v);
  }
};
template <> struct Sum<uint8_t> : WholeSum<uint8_t, uint32_t> {};
template <> struct Sum<int32_t> : WholeSum<int32_t, uint32_t> {};
template <> struct Sum<int64_t> : WholeSum<int64_t, uint64_t> {};

template <class T> __device__ __forceinline__ void store(const Product &p, const int64_t (&base)[4], int64_t row, int64_t column,
                                                         typename Sum<T>::W sum) {
  T *out = (T *)p.out + base[0] + row * p.os0 + column * p.os1;
  const T *add = p.add ? (const T *)p.add + base[3] + row * p.cs0 + column * p.cs1 : nullptr;
  *out = p.scaled ? Sum<T>::finish(p, sum, add) : (T)sum;
}

/* A block makes a tile of 64 x 64 results, a thread 4 x 4 of them, 16 apart. */
template <class T> __global__ void __launch_bounds__(SIDE *SIDE) matmul_kernel(const Product p) {
  typedef typename Sum<T>::W W;
  PLN_SHARED(T, ta, [STEP][TILE + 1]);
  PLN_SHARED(T, tb, [STEP][TILE + 1]);
  const int x = threadIdx.x % SIDE, y = threadIdx.x / SIDE;
  const bool a_by_rows = p.as1 == 1, b_by_rows = p.bs1 == 1; /* which way neighbours lie */
  for (int64_t job = blockIdx.x; job < p.tiles_m * p.tiles_n * p.batch; job += gridDim.x) {
    const int64_t column0 = job % p.tiles_n * TILE, row0 = job / p.tiles_n % p.tiles_m * TILE;
    int64_t base[4];
    p.layout.find(job / p.tiles_n / p.tiles_m, base);
    const T *a = (const T *)p.a + base[1], *b = (const T *)p.b + base[2];
    W total[OWN][OWN], sum[OWN][OWN];
    for (int i = 0; i < OWN; i++)
      for (int j = 0; j < OWN; j++) total[i][j] = sum[i][j] = 0;
    for (int64_t k0 = 0; k0 < p.k; k0 += STEP) {
      for (int i = threadIdx.x; i < STEP * TILE; i += SIDE * SIDE) {
        const int ka = a_by_rows ? i % STEP : i / TILE, ra = a_by_rows ? i / STEP : i % TILE;
        const int kb = b_by_rows ? i / TILE : i % STEP, cb = b_by_rows ? i % TILE : i / STEP;
        ta[ka][ra] = k0 + ka < p.k && row0 + ra < p.m ? a[(row0 + ra) * p.as0 + (k0 + ka) * p.as1] : T(0);
        tb[kb][cb] = k0 + kb < p.k && column0 + cb < p.n ? b[(k0 + kb) * p.bs0 + (column0 + cb) * p.bs1] : T(0);
      }
      __syncthreads();
      const int left = p.k - k0 < STEP ? (int)(p.k - k0) : STEP;
      PLC_UNROLL(4)
      for (int k = 0; k < left; k++) {
        T u[OWN], v[OWN];
        for (int i = 0; i < OWN; i++) u[i] = ta[k][y + i * SIDE];
        for (int j = 0; j < OWN; j++) v[j] = tb[k][x + j * SIDE];
        for (int i = 0; i < OWN; i++)
          for (int j = 0; j < OWN; j++) sum[i][j] = Sum<T>::step(u[i], v[j], sum[i][j]);
      }
      if ((k0 + STEP) % TERMS == 0 || k0 + STEP >= p.k)
        for (int i = 0; i < OWN; i++)
          for (int j = 0; j < OWN; j++) {
            total[i][j] = k0 < TERMS ? sum[i][j] : total[i][j] + sum[i][j];
            sum[i][j] = 0;
          }
      __syncthreads();
    }
    for (int i = 0; i < OWN; i++)
      for (int j = 0; j < OWN; j++)
        if (row0 + y + i * SIDE < p.m && column0 + x + j * SIDE < p.n)
          store<T>(p, base, row0 + y + i * SIDE, column0 + x + j * SIDE, total[i][j]);
  }
}

/* 1 x 1 results: a warp each. */
template <class T> __global__ void __launch_bounds__(32) dot_kernel(const Product p) {
  typedef typename Sum<T>::W W;
  PLN_SHARED(W, part, [32]);
  const int lane = threadIdx.x;
  for (int64_t job = blockIdx.x; job < p.batch; job += gridDim.x) {
    int64_t base[4];
    p.layout.find(job, base);
    const T *a = (const T *)p.a + base[1], *b = (const T *)p.b + base[2];
    W sum = 0;
    for (int64_t k = lane; k < p.k; k += 32) sum = Sum<T>::step(a[k * p.as1], b[k * p.bs0], sum);
    part[lane] = sum;
    __syncthreads();
    for (int h = 16; h; h /= 2) {
      if (lane < h) part[lane] = part[lane] + part[lane + h];
      __syncthreads();
    }
    if (lane == 0) store<T>(p, base, 0, 0, part[0]);
    __syncthreads();
  }
}

template <class T> pln_Status multiply(const pln_Call *c, const Product &p) {
  if (p.m == 1 && p.n == 1) {
    PLD_LAUNCH(c, (dot_kernel<T>), pld_blocks(c, p.batch, 1), 32, 0, p);
    return PLN_OK;
  }
  PLD_LAUNCH(c, (matmul_kernel<T>), pld_blocks(c, p.tiles_m * p.tiles_n * p.batch, 1), SIDE * SIDE, 0, p);
  return PLN_OK;
}

}  // namespace

PLC_KERNEL(matmul) {
  bool done;
  PLN_TRY(pld_blas_matmul(c, &done));
  if (done) return PLN_OK;
  Product p;
  memset(&p, 0, sizeof p);
  p.out = c->arg[0].data;
  p.a = c->arg[1].data;
  p.b = c->arg[2].data;
  if (c->nin > 2) {
    p.add = c->arg[3].data;
    p.cs0 = c->i[9];
    p.cs1 = c->i[10];
  }
  p.m = c->i[0], p.n = c->i[1], p.k = c->i[2];
  p.os0 = c->i[3], p.os1 = c->i[4], p.as0 = c->i[5], p.as1 = c->i[6], p.bs0 = c->i[7], p.bs1 = c->i[8];
  p.beta = c->f[0];
  p.alpha = c->f[1];
  p.scaled = p.add || p.alpha != 1;
  p.batch = c->numel;
  p.tiles_m = (p.m + TILE - 1) / TILE;
  p.tiles_n = (p.n + TILE - 1) / TILE;
  p.layout = pld_layout<4>(c, c->ndim);
  switch (c->arg[0].dtype) {
    case PLN_F32: return multiply<float>(c, p);
    case PLN_F64: return multiply<double>(c, p);
    case PLN_I32: return multiply<int32_t>(c, p);
    case PLN_I64: return multiply<int64_t>(c, p);
    default: return multiply<uint8_t>(c, p);
  }
}
