/* SPDX-License-Identifier: MIT
** scan.cu -- cumsum, from either end. Sums run in f64 or i64 and are rounded as they are stored; their order depends on the number of
** elements along the dim only.
*/
#include "kernel.h"

namespace {

enum { SHORT = 64, OWN = 4, CHUNK = PLC_THREADS * OWN };

struct Scan {
  char *y;
  const char *x;
  int64_t lanes, count, ystep, xstep; /* steps in elements, negative from the end on */
  int64_t ystart, xstart;             /* where a lane starts */
  int dtype, out_dtype;
  pld_Layout<2> layout; /* of lanes: y, x */
};

template <class A> __device__ __forceinline__ A fetch(const Scan &s, int64_t at);
template <> __device__ __forceinline__ double fetch<double>(const Scan &s, int64_t at) {
  return s.dtype == PLN_F32 ? (double)((const float *)s.x)[at] : ((const double *)s.x)[at];
}
template <> __device__ __forceinline__ uint64_t fetch<uint64_t>(const Scan &s, int64_t at) {
  switch (s.dtype) {
    case PLN_BOOL: return ((const uint8_t *)s.x)[at] != 0;
    case PLN_U8: return ((const uint8_t *)s.x)[at];
    case PLN_I32: return (uint64_t)(int64_t)((const int32_t *)s.x)[at];
    default: return ((const uint64_t *)s.x)[at];
  }
}

__device__ __forceinline__ void put(const Scan &s, int64_t at, double v) {
  if (s.out_dtype == PLN_F32)
    ((float *)s.y)[at] = (float)v;
  else
    ((double *)s.y)[at] = v;
}
__device__ __forceinline__ void put(const Scan &s, int64_t at, uint64_t v) { ((uint64_t *)s.y)[at] = v; }

/* A thread for each lane. */
template <class A> __global__ void __launch_bounds__(PLC_THREADS) scan_short_kernel(const Scan s) {
  for (int64_t lane = pld_thread(); lane < s.lanes; lane += pld_threads()) {
    int64_t at[2];
    A sum = 0;
    s.layout.find(lane, at);
    for (int64_t k = 0; k < s.count; k++) {
      sum += fetch<A>(s, s.xstart + at[1] + k * s.xstep);
      put(s, s.ystart + at[0] + k * s.ystep, sum);
    }
  }
}

/* A thread block for each lane, chunk after chunk: 4 elements to a thread, then the threads' sums in doubling distances. */
template <class A> __global__ void __launch_bounds__(PLC_THREADS) scan_long_kernel(const Scan s) {
  PLN_SHARED(A, total, [2][PLC_THREADS]);
  const int t = threadIdx.x;
  for (int64_t lane = blockIdx.x; lane < s.lanes; lane += gridDim.x) {
    int64_t at[2];
    A carry = 0;
    s.layout.find(lane, at);
    for (int64_t begin = 0; begin < s.count; begin += CHUNK) {
      A v[OWN], sum = 0;
      for (int j = 0; j < OWN; j++) {
        const int64_t k = begin + t * OWN + j;
        if (k < s.count) sum += fetch<A>(s, s.xstart + at[1] + k * s.xstep);
        v[j] = sum;
      }
      int from = 0;
      total[0][t] = sum;
      __syncthreads();
      for (int h = 1; h < PLC_THREADS; h *= 2, from = !from) {
        total[!from][t] = t >= h ? total[from][t - h] + total[from][t] : total[from][t];
        __syncthreads();
      }
      const A before = t ? carry + total[from][t - 1] : carry;
      for (int j = 0; j < OWN; j++) {
        const int64_t k = begin + t * OWN + j;
        if (k < s.count) put(s, s.ystart + at[0] + k * s.ystep, before + v[j]);
      }
      carry += total[from][PLC_THREADS - 1];
      __syncthreads();
    }
  }
}

template <class A> pln_Status scan(const pln_Call *c, const Scan &s) {
  if (s.count <= SHORT)
    PLD_LAUNCH(c, (scan_short_kernel<A>), pld_blocks(c, s.lanes, PLC_THREADS), PLC_THREADS, 0, s);
  else
    PLD_LAUNCH(c, (scan_long_kernel<A>), pld_blocks(c, s.lanes, 1), PLC_THREADS, 0, s);
  return PLN_OK;
}

}  // namespace

PLC_KERNEL(cumsum) {
  const pln_Arg *y = &c->arg[0], *x = pln_call_in(c, 0);
  const int nkept = (int)c->i[0];
  const bool line = c->ndim > nkept;
  Scan s;
  memset(&s, 0, sizeof s);
  s.y = y->data;
  s.x = x->data;
  s.lanes = c->numel;
  s.count = c->i[1];
  s.dtype = x->dtype;
  s.out_dtype = y->dtype;
  s.ystep = line ? y->stride[nkept] : 1;
  s.xstep = line ? x->stride[nkept] : 1;
  s.layout = pld_layout<2>(c, nkept);
  if (c->i[2]) {
    s.ystart = (s.count - 1) * s.ystep;
    s.xstart = (s.count - 1) * s.xstep;
    s.ystep = -s.ystep;
    s.xstep = -s.xstep;
  }
  return pln_dtype_is_float((pln_DType)x->dtype) ? scan<double>(c, s) : scan<uint64_t>(c, s);
}
