/* SPDX-License-Identifier: MIT
** kernel.h -- what every CUDA kernel file includes: names, layouts, faults, element types.
**
** Results depend on shapes and values only (C10): never on strides, grid sizes or the order of threads. No float atomics, no
** contraction (fma is named).
*/
#ifndef PLN_CUDA_KERNEL_H
#define PLN_CUDA_KERNEL_H

#include "../device.h"

#include "scalar.h"

#undef bool /* names are pasted of dtypes */

/* The function behind an op table's kernel column. */
#define PLC(name) plk_cuda_##name
#define PLC_KERNEL(name) extern "C" pln_Status PLC(name)(const pln_Call *c)

#define PLC_EACH_DTYPE(X) \
  X(BOOL, uint8_t, bool) X(U8, uint8_t, u8) X(I32, int32_t, i32) X(I64, int64_t, i64) X(F32, float, f32) X(F64, double, f64)

#define PLC_THREADS 256 /* of a block, where a kernel has no wish */

#if PLN_CUDA_EMULATED
#define PLC_UNROLL(n)
#else
#define PLC_PRAGMA(text) _Pragma(#text)
#define PLC_UNROLL(n) PLC_PRAGMA(unroll n)
#endif

/* Number of the thread in its grid, and how many there are. */
static __device__ __forceinline__ int64_t pld_thread() { return (int64_t)blockIdx.x * blockDim.x + threadIdx.x; }
static __device__ __forceinline__ int64_t pld_threads() { return (int64_t)gridDim.x * blockDim.x; }

/* Reports a fault (C11). Rare, so a lock is good enough; its words are read and written atomically, by one thread at a time. */
static __device__ __attribute__((unused)) void pld_fault(const pld_Site site, int input, int64_t position, int64_t value, int64_t lo, int64_t hi) {
  pld_Record *r = site.record;
  for (bool done = false; !done;) {
    if (atomicCAS(&r->lock, 0u, 1u) != 0) continue;
    __threadfence();
    unsigned long long number = atomicAdd(&r->number, 0ull);
    long long at = (long long)atomicAdd((unsigned long long *)&r->position, 0ull);
    if (number == 0 || (number == site.number && position < at)) {
      atomicExch(&r->kind, (unsigned)site.kind);
      atomicExch(&r->op, (unsigned)site.op);
      atomicExch(&r->place, site.place);
      atomicExch(&r->input, input);
      atomicExch((unsigned long long *)&r->position, (unsigned long long)position);
      atomicExch((unsigned long long *)&r->value, (unsigned long long)value);
      atomicExch((unsigned long long *)&r->lo, (unsigned long long)lo);
      atomicExch((unsigned long long *)&r->hi, (unsigned long long)hi);
      atomicExch(&r->number, (unsigned long long)site.number);
    }
    __threadfence();
    atomicExch(&r->lock, 0u);
    done = true;
  }
}

/* The first `ndim` dims of an iteration space, and where the elements of N arguments are in it. */
template <int N> struct pld_Layout {
  int ndim;
  bool narrow; /* numbers of elements fit into 32 bits, whose division is fast */
  int64_t size[PLN_MAX_DIMS], stride[N][PLN_MAX_DIMS];

  /* Offsets in elements of the element with that row-major number. */
  __device__ __forceinline__ void find(int64_t number, int64_t (&offset)[N]) const {
    for (int k = 0; k < N; k++) offset[k] = 0;
    if (narrow) {
      uint32_t rest = (uint32_t)number;
      for (int d = ndim - 1; d >= 0; d--) {
        uint32_t next = d ? rest / (uint32_t)size[d] : 0;
        int64_t x = d ? rest - next * (uint32_t)size[d] : rest;
        for (int k = 0; k < N; k++) offset[k] += x * stride[k][d];
        rest = next;
      }
    } else {
      int64_t rest = number;
      for (int d = ndim - 1; d >= 0; d--) {
        int64_t next = d ? rest / size[d] : 0, x = d ? rest - next * size[d] : rest;
        for (int k = 0; k < N; k++) offset[k] += x * stride[k][d];
        rest = next;
      }
    }
  }
};

/* The layout of arguments 0 .. N - 1 in dims [0, ndim) of the call. */
template <int N> static inline pld_Layout<N> pld_layout(const pln_Call *c, int ndim) {
  pld_Layout<N> l;
  int64_t numel = 1;
  memset(&l, 0, sizeof l);
  l.ndim = ndim;
  for (int d = 0; d < ndim; d++) numel *= l.size[d] = c->size[d];
  l.narrow = numel <= INT32_MAX;
  for (int k = 0; k < N && k < c->nout + c->nin; k++)
    if (c->arg[k].data)
      for (int d = 0; d < ndim; d++) l.stride[k][d] = c->arg[k].stride[d];
  return l;
}

#endif
