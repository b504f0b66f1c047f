/* SPDX-License-Identifier: MIT
** reduce.h -- the shape of every reduction: leaves become accumulators, accumulators merge in a tree that depends on the number of
** elements only (C10). It is the tree of src/cpu/kernels/reduce_fold.h: blocks of 1024 elements of 16 lanes in 4 runs, lanes halved, blocks
** joined pairwise, so that sums agree with the host's to the bit. Which kernel walks it is a matter of strides and speed.
**
** A policy P has L (what an element is as), A (accumulator; 16 bytes hold what its number of elements does not tell), and
**   load(r, result, x, first, n, v)   n elements first, first + LANES, ... of a result whose element 0 is at offset x
**   none(), leaf(v, n, first), merge(a, b), pack(a, slot), unpack(slot, n), finish(r, a, offsets)
*/
#ifndef PLN_CUDA_REDUCE_H
#define PLN_CUDA_REDUCE_H

#include "kernel.h"

enum { LANES = 16, RUN = 256, BLOCK = 1024, UNIT = 4096, UNIT_BLOCKS = 4 };

struct Reduction {
  int64_t results, count, units;
  bool columns;          /* neighbouring results lie closer than neighbouring elements */
  const char *x;
  char *out[2];
  int dtype, out_dtype;
  int load, finish;      /* meaning is the policy's */
  double number;         /* p of norm, correction of var */
  uint64_t *scratch;     /* two words for each unit of each result */
  pld_Layout<3> kept;    /* results 0 and 1, x */
  pld_Layout<1> reduced; /* x */
  const void *with[4];   /* what a load needs besides */
  int64_t width;
};

/* Offset of element k of a result from its element 0. */
static __device__ __forceinline__ int64_t element_at(const Reduction &r, int64_t k) {
  if (r.reduced.ndim <= 1) return k * r.reduced.stride[0][0];
  int64_t at[1];
  r.reduced.find(k, at);
  return at[0];
}

/* n elements from `first` on, LANES apart, of a type that is known. */
template <class E, class L, class Of>
static __device__ __forceinline__ void load_as(const Reduction &r, int64_t x, int64_t first, int n, L *v, Of of) {
  PLC_UNROLL(16)
  for (int j = 0; j < LANES; j++)
    if (j < n) v[j] = of(((const E *)r.x)[x + element_at(r, first + j * LANES)]);
}

static __device__ __forceinline__ int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

/* The leaf of the lane whose first element in the run is `first`; `end` is where the result's elements (or the run) end. */
template <class P> static __device__ __forceinline__ typename P::A leaf_at(const Reduction &r, int64_t result, int64_t x, int64_t first, int64_t end) {
  typename P::L v[LANES];
  const int n = first < end ? (int)((end - first + LANES - 1) / LANES) : 0;
  if (n == 0) return P::none();
  P::load(r, result, x, first, n, v);
  return P::leaf(v, n, first);
}

/* At most LANES elements: a thread for each result. */
template <class P> __global__ void __launch_bounds__(PLC_THREADS) fold_few_kernel(const Reduction r) {
  for (int64_t result = pld_thread(); result < r.results; result += pld_threads()) {
    int64_t at[3];
    typename P::A a[LANES];
    r.kept.find(result, at);
    PLC_UNROLL(16)
    for (int l = 0; l < LANES; l++) a[l] = l < r.count ? leaf_at<P>(r, result, at[2], l, l + 1) : P::none();
    PLC_UNROLL(4)
    for (int h = LANES / 2; h; h /= 2)
      for (int l = 0; l < h; l++) P::merge(a[l], a[l + h]);
    P::finish(r, a[0], at);
  }
}

/* A result's unit is done: the result itself, or one of the parts that wait in scratch. */
template <class P> static __device__ __forceinline__ void unit_done(const Reduction &r, typename P::A a, int64_t result, int64_t unit, const int64_t (&at)[3]) {
  if (r.units == 1)
    P::finish(r, a, at);
  else
    P::pack(a, r.scratch + 2 * (result * r.units + unit));
}

template <class P> static __device__ __forceinline__ typename P::A join_blocks(typename P::A *block, int n) {
  if (n > 1) P::merge(block[0], block[1]);
  if (n > 3) P::merge(block[2], block[3]);
  if (n > 2) P::merge(block[0], block[2]);
  return block[0];
}

/* 16 results to a thread block, a thread for each lane of each. */
template <class P> __global__ void __launch_bounds__(PLC_THREADS) fold_lanes_kernel(const Reduction r) {
  typedef typename P::A A;
  enum { W = PLC_THREADS / LANES };
  PLN_SHARED(A, part, [W][LANES + 1]);
  const int lane = r.columns ? threadIdx.x / W : threadIdx.x % LANES, w = r.columns ? threadIdx.x % W : threadIdx.x / LANES;
  const int64_t groups = (r.results + W - 1) / W;
  for (int64_t job = blockIdx.x; job < groups * r.units; job += gridDim.x) {
    const int64_t group = job / r.units, unit = job - group * r.units, result = group * W + w;
    const int64_t first = unit * UNIT, n = least(UNIT, r.count - first);
    const int nblocks = (int)((n + BLOCK - 1) / BLOCK);
    int64_t at[3] = {0, 0, 0};
    A block[UNIT_BLOCKS];
    for (int b = 0; b < UNIT_BLOCKS; b++) block[b] = P::none();
    if (result < r.results) r.kept.find(result, at);
    for (int b = 0; b < nblocks; b++) {
      A total = P::none();
      if (result < r.results)
        for (int64_t begin = first + b * BLOCK, end = least(begin + BLOCK, first + n); begin < end; begin += RUN) {
          A a = leaf_at<P>(r, result, at[2], begin + lane, least(begin + RUN, end));
          P::merge(total, a);
        }
      part[w][lane] = total;
      __syncthreads();
      if (lane == 0) {
        for (int h = LANES / 2; h; h /= 2)
          for (int l = 0; l < h; l++) {
            A a = part[w][l];
            P::merge(a, part[w][l + h]);
            part[w][l] = a;
          }
        block[b] = part[w][0];
      }
      __syncthreads();
    }
    if (lane == 0 && result < r.results) unit_done<P>(r, join_blocks<P>(block, nblocks), result, unit, at);
  }
}

/* One unit of one result to a thread block, a thread for each leaf. */
template <class P> __global__ void __launch_bounds__(PLC_THREADS) fold_unit_kernel(const Reduction r) {
  typedef typename P::A A;
  enum { RUNS = BLOCK / RUN };
  PLN_SHARED(A, part, [PLC_THREADS]);
  const int t = threadIdx.x;
  for (int64_t job = blockIdx.x; job < r.results * r.units; job += gridDim.x) {
    const int64_t result = job / r.units, unit = job - result * r.units, first = unit * UNIT, n = least(UNIT, r.count - first);
    int64_t at[3];
    r.kept.find(result, at);
    const int64_t begin = first + t / LANES * RUN;
    part[t] = leaf_at<P>(r, result, at[2], begin + t % LANES, least(begin + RUN, first + n));
    __syncthreads();
    if (t % (RUNS * LANES) < LANES) { /* runs in order */
      A total = P::none();
      for (int i = 0; i < RUNS; i++) P::merge(total, part[t + i * LANES]);
      part[t] = total;
    }
    __syncthreads();
    for (int h = LANES / 2; h; h /= 2) {
      if (t % (RUNS * LANES) < h) {
        A a = part[t];
        P::merge(a, part[t + h]);
        part[t] = a;
      }
      __syncthreads();
    }
    if (t == 0) {
      A block[UNIT_BLOCKS];
      for (int b = 0; b < UNIT_BLOCKS; b++) block[b] = P::none();
      for (int b = 0; b < UNIT_BLOCKS; b++) block[b] = part[b * RUNS * LANES];
      unit_done<P>(r, join_blocks<P>(block, (int)((n + BLOCK - 1) / BLOCK)), result, unit, at);
    }
    __syncthreads();
  }
}

/* Units that wait in scratch, joined pairwise: a thread block for each result. */
template <class P> __global__ void __launch_bounds__(PLC_THREADS) fold_units_kernel(const Reduction r) {
  for (int64_t result = blockIdx.x; result < r.results; result += gridDim.x) {
    uint64_t *slot = r.scratch + 2 * result * r.units;
    for (int64_t s = 1; s < r.units; s *= 2) {
      for (int64_t u = threadIdx.x * 2 * s; u + s < r.units; u += (int64_t)blockDim.x * 2 * s) {
        typename P::A a = P::unpack(slot + 2 * u, s * UNIT), b = P::unpack(slot + 2 * (u + s), least(s * UNIT, r.count - (u + s) * UNIT));
        P::merge(a, b);
        P::pack(a, slot + 2 * u);
      }
      __syncthreads();
    }
    if (threadIdx.x == 0) {
      int64_t at[3];
      r.kept.find(result, at);
      P::finish(r, P::unpack(slot, r.count), at);
    }
  }
}

template <class P> static pln_Status fold(const pln_Call *c, const Reduction &r) {
  if (r.count <= LANES) {
    PLD_LAUNCH(c, (fold_few_kernel<P>), pld_blocks(c, r.results, PLC_THREADS), PLC_THREADS, 0, r);
    return PLN_OK;
  }
  if (r.columns || r.count <= BLOCK / 2) {
    enum { W = PLC_THREADS / LANES };
    PLD_LAUNCH(c, (fold_lanes_kernel<P>), pld_blocks(c, (r.results + W - 1) / W * r.units, 1), PLC_THREADS, 0, r);
  } else {
    PLD_LAUNCH(c, (fold_unit_kernel<P>), pld_blocks(c, r.results * r.units, 1), PLC_THREADS, 0, r);
  }
  if (r.units > 1) PLD_LAUNCH(c, (fold_units_kernel<P>), pld_blocks(c, r.results, 1), PLC_THREADS, 0, r);
  return PLN_OK;
}

/* What the call record says (reduce.def). */
static inline Reduction reduction_of(const pln_Call *c) {
  Reduction r;
  const pln_Arg *x = pln_call_in(c, 0);
  const int nkept = (int)c->i[0], nreduced = c->ndim - nkept;
  int64_t numel = 1;
  memset(&r, 0, sizeof r);
  r.results = c->numel;
  r.count = c->i[1];
  r.units = r.count > UNIT ? (r.count + UNIT - 1) / UNIT : 1;
  r.x = x->data;
  r.dtype = x->dtype;
  r.out_dtype = c->arg[0].dtype;
  r.number = c->f[0];
  r.scratch = (uint64_t *)c->scratch;
  r.kept.ndim = nkept;
  r.kept.narrow = c->numel <= INT32_MAX;
  for (int d = 0; d < nkept; d++) {
    r.kept.size[d] = c->size[d];
    for (int i = 0; i < c->nout; i++) r.kept.stride[i][d] = c->arg[i].stride[d];
    r.kept.stride[2][d] = x->stride[d];
  }
  for (int i = 0; i < c->nout && i < 2; i++) r.out[i] = c->arg[i].data;
  r.reduced.ndim = nreduced;
  for (int d = 0; d < nreduced; d++) {
    numel *= r.reduced.size[d] = c->size[nkept + d];
    r.reduced.stride[0][d] = x->stride[nkept + d];
  }
  r.reduced.narrow = numel <= INT32_MAX;
  if (nkept && c->size[nkept - 1] > 1 && nreduced) {
    int64_t across = x->stride[nkept - 1], along = x->stride[c->ndim - 1];
    across = across < 0 ? -across : across;
    along = along < 0 ? -along : along;
    r.columns = across > 0 && (across < along || along == 0);
  }
  return r;
}

/* --- one number ----------------------------------------------------------------------------------- */

enum { SUM, PROD, MAX, MIN };

template <class T> struct Bounds;
template <> struct Bounds<float> {
  typedef float Wrap;
  static __device__ __forceinline__ float lowest() { return -INFINITY; }
  static __device__ __forceinline__ float highest() { return INFINITY; }
};
template <> struct Bounds<double> {
  typedef double Wrap;
  static __device__ __forceinline__ double lowest() { return -(double)INFINITY; }
  static __device__ __forceinline__ double highest() { return (double)INFINITY; }
};
template <> struct Bounds<int64_t> {
  typedef uint64_t Wrap;
  static __device__ __forceinline__ int64_t lowest() { return INT64_MIN; }
  static __device__ __forceinline__ int64_t highest() { return INT64_MAX; }
};

template <class T> static __device__ __forceinline__ bool unordered(T x) { return x != x; }

/* A NaN in x wins and stays. */
template <class T, int OP> static __device__ __forceinline__ T step(T a, T x) {
  typedef typename Bounds<T>::Wrap U;
  if (OP == SUM) return (T)((U)a + (U)x);
  if (OP == PROD) return (T)((U)a * (U)x);
  if (OP == MAX) return x > a || unordered(x) ? x : a;
  return x < a || unordered(x) ? x : a;
}

template <class T, int OP> static __device__ __forceinline__ T identity() {
  return OP == SUM ? (T)0 : OP == PROD ? (T)1 : OP == MAX ? Bounds<T>::lowest() : Bounds<T>::highest();
}

/* The accumulator of one number of type T; loads and finishes are to be added. */
template <class T, int OP> struct One {
  typedef T L, A;
  static __device__ __forceinline__ T none() { return identity<T, OP>(); }
  static __device__ __forceinline__ T leaf(const T *v, int n, int64_t) {
    T a = none();
    PLC_UNROLL(16)
    for (int j = 0; j < LANES; j++)
      if (j < n) a = step<T, OP>(a, v[j]);
    return a;
  }
  static __device__ __forceinline__ void merge(T &a, const T &b) { a = step<T, OP>(a, b); }
  static __device__ __forceinline__ void pack(const T &a, uint64_t *slot) { memcpy(slot, &a, sizeof a); }
  static __device__ __forceinline__ T unpack(const uint64_t *slot, int64_t) {
    T a;
    memcpy(&a, slot, sizeof a);
    return a;
  }
};

#endif
