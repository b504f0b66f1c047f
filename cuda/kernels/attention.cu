/* SPDX-License-Identifier: MIT
** attention.cu -- scaled dot-product attention, fused (src/ops/attention.def): no matrix of scores is ever stored. A block has one row of
** queries (or, for the gradients of keys and values, one key) and meets the keys in tiles, in order, with the softmax rescaled as it goes
** (Milakov and Gimelshein 2018; Dao et al. 2022). What each thread adds, and when, follows from the shape only.
*/
#include "reduce_exp.h"
#include "team.h"

namespace {

const int TILE = PLC_THREADS; /* keys, or rows, at a time */

/* Arguments in the order of the record: nout results, then `first` more, then q, k, v, mask. */
struct Attention {
  int64_t batches, L, S, E, D;
  int64_t qs[2], ks[2], vs[2], ms[2]; /* strides of the last two dims */
  pld_Layout<10> layout;              /* of batches */
  char *data[10];
  int q;                              /* number of the argument q */
  bool causal, masked, floats;        /* floats: the mask is added */
  double scale;
};

Attention attention_of(const pln_Call *c, int first) {
  Attention a;
  memset(&a, 0, sizeof a);
  a.batches = c->numel;
  a.L = c->i[0], a.S = c->i[1], a.E = c->i[2], a.D = c->i[3];
  for (int d = 0; d < 2; d++) a.qs[d] = c->i[4 + d], a.ks[d] = c->i[6 + d], a.vs[d] = c->i[8 + d], a.ms[d] = c->i[10 + d];
  a.layout = pld_layout<10>(c, c->ndim);
  for (int k = 0; k < c->nout + c->nin && k < 10; k++) a.data[k] = c->arg[k].data;
  a.q = c->nout + first;
  a.scale = c->f[0];
  a.causal = c->f[1] != 0;
  a.masked = c->f[2] != 0;
  a.floats = a.masked && c->arg[a.q + 3].dtype == c->arg[0].dtype;
  return a;
}

/* Where the arguments of one batch are. */
template <class T> struct Batch {
  const Attention &a;
  int64_t at[10];
  __device__ Batch(const Attention &a, int64_t number) : a(a) { a.layout.find(number, at); }
  __device__ T *arg(int k) const { return (T *)a.data[k] + at[k]; }
  __device__ T query(int64_t i, int64_t e) const { return arg(a.q)[i * a.qs[0] + e * a.qs[1]]; }
  __device__ T key(int64_t j, int64_t e) const { return arg(a.q + 1)[j * a.ks[0] + e * a.ks[1]]; }
  __device__ T value(int64_t j, int64_t d) const { return arg(a.q + 2)[j * a.vs[0] + d * a.vs[1]]; }

  /* -inf where the key is left out. */
  __device__ T score(int64_t i, int64_t j) const {
    Total<T> sum;
    if (a.causal && j > i) return -(T)INFINITY;
    if (a.masked && !a.floats && !((const uint8_t *)a.data[a.q + 3])[at[a.q + 3] + i * a.ms[0] + j * a.ms[1]]) return -(T)INFINITY;
    for (int64_t e = 0; e < a.E; e++) sum.add(query(i, e) * key(j, e));
    T s = (T)(sum.value() * a.scale);
    return a.floats ? s + arg(a.q + 3)[i * a.ms[0] + j * a.ms[1]] : s;
  }
};

__device__ __forceinline__ double larger(double m, double s) { return s > m || s != s ? s : m; }

template <class T> __global__ void __launch_bounds__(PLC_THREADS) forward_kernel(const Attention a, bool with_lse) {
  PLN_SHARED(double, part, [PLC_THREADS]);
  PLN_SHARED(double, weight, [PLC_THREADS]);
  const Team<PLC_THREADS> team(false);
  for (int64_t number = blockIdx.x; number < a.batches * a.L; number += gridDim.x) {
    const Batch<T> b(a, number / a.L);
    const int64_t i = number % a.L;
    T *y = b.arg(0) + i * a.D;
    double most = -INFINITY, sum = 0;
    for (int64_t d = threadIdx.x; d < a.D; d += PLC_THREADS) y[d] = 0;
    for (int64_t first = 0; first < a.S; first += TILE) {
      const int64_t j = first + threadIdx.x, n = a.S - first < TILE ? a.S - first : TILE;
      const double s = j < a.S ? (double)b.score(i, j) : -INFINITY;
      const double now = larger(most, team.all(part, s, larger));
      const bool none = now == -INFINITY;
      const double w = none || j >= a.S ? 0 : (double)exp_below((T)(s - now));
      const double before = none ? 1 : (double)exp_below((T)(most - now));
      weight[threadIdx.x] = w;
      sum = sum * before + team.sum(part, w); /* waits: all weights are there */
      most = now;
      for (int64_t d = threadIdx.x; d < a.D; d += PLC_THREADS) {
        double total = 0;
        for (int64_t k = 0; k < n; k++) total += weight[k] * (double)b.value(first + k, d);
        y[d] = (T)((double)y[d] * before + total);
      }
      __syncthreads(); /* before the next tile's weights */
    }
    const bool none = most == -INFINITY;
    for (int64_t d = threadIdx.x; d < a.D; d += PLC_THREADS) y[d] = none ? 0 : (T)((double)y[d] / sum);
    if (with_lse && threadIdx.x == 0) b.arg(1)[i] = none ? (T)INFINITY : (T)(most + pls_log_f64(sum));
  }
}

/* The backward's arguments: dq, dk, dv; g, y, lse; q, k, v, mask. */
template <class T> struct Backward : Batch<T> {
  using Batch<T>::a;
  using Batch<T>::arg;
  __device__ Backward(const Attention &a, int64_t number) : Batch<T>(a, number) {}
  __device__ double inner(int64_t i) const {
    Total<T> sum;
    for (int64_t d = 0; d < a.D; d++) sum.add(arg(3)[i * a.D + d] * arg(4)[i * a.D + d]);
    return sum.value();
  }
  /* The weight of key j in row i, and the gradient of its score times the scale. */
  __device__ void of(int64_t i, int64_t j, double inner, double *p_p, double *ds_p) const {
    const T s = this->score(i, j);
    const double p = (double)exp_below((T)(s - arg(5)[i]));
    Total<T> dp;
    for (int64_t d = 0; d < a.D; d++) dp.add(arg(3)[i * a.D + d] * this->value(j, d));
    *p_p = p;
    *ds_p = s == -(T)INFINITY ? 0 : p * (dp.value() - inner) * a.scale;
  }
};

template <class T> __global__ void __launch_bounds__(PLC_THREADS) query_kernel(const Attention a) {
  PLN_SHARED(double, slope, [PLC_THREADS]);
  for (int64_t number = blockIdx.x; number < a.batches * a.L; number += gridDim.x) {
    const Backward<T> b(a, number / a.L);
    const int64_t i = number % a.L;
    T *dq = b.arg(0) + i * a.E;
    const double inner = b.inner(i);
    for (int64_t e = threadIdx.x; e < a.E; e += PLC_THREADS) dq[e] = 0;
    for (int64_t first = 0; first < a.S; first += TILE) {
      const int64_t j = first + threadIdx.x, n = a.S - first < TILE ? a.S - first : TILE;
      double p, ds = 0;
      if (j < a.S) b.of(i, j, inner, &p, &ds);
      slope[threadIdx.x] = ds;
      __syncthreads();
      for (int64_t e = threadIdx.x; e < a.E; e += PLC_THREADS) {
        double total = 0;
        for (int64_t k = 0; k < n; k++) total += slope[k] * (double)b.key(first + k, e);
        dq[e] = (T)((double)dq[e] + total);
      }
      __syncthreads();
    }
  }
}

template <class T> __global__ void __launch_bounds__(PLC_THREADS) key_kernel(const Attention a) {
  PLN_SHARED(double, slope, [PLC_THREADS]);
  PLN_SHARED(double, weight, [PLC_THREADS]);
  for (int64_t number = blockIdx.x; number < a.batches * a.S; number += gridDim.x) {
    const Backward<T> b(a, number / a.S);
    const int64_t j = number % a.S;
    T *dk = b.arg(1) + j * a.E, *dv = b.arg(2) + j * a.D;
    for (int64_t e = threadIdx.x; e < a.E; e += PLC_THREADS) dk[e] = 0;
    for (int64_t d = threadIdx.x; d < a.D; d += PLC_THREADS) dv[d] = 0;
    for (int64_t first = 0; first < a.L; first += TILE) {
      const int64_t i = first + threadIdx.x, n = a.L - first < TILE ? a.L - first : TILE;
      double p = 0, ds = 0;
      if (i < a.L) b.of(i, j, b.inner(i), &p, &ds);
      weight[threadIdx.x] = p;
      slope[threadIdx.x] = ds;
      __syncthreads();
      for (int64_t e = threadIdx.x; e < a.E; e += PLC_THREADS) {
        double total = 0;
        for (int64_t k = 0; k < n; k++) total += slope[k] * (double)b.query(first + k, e);
        dk[e] = (T)((double)dk[e] + total);
      }
      for (int64_t d = threadIdx.x; d < a.D; d += PLC_THREADS) {
        double total = 0;
        for (int64_t k = 0; k < n; k++) total += weight[k] * (double)b.arg(3)[(first + k) * a.D + d];
        dv[d] = (T)((double)dv[d] + total);
      }
      __syncthreads();
    }
  }
}

template <class T> pln_Status forward(const pln_Call *c) {
  const Attention a = attention_of(c, 0);
  if (a.batches * a.L == 0) return PLN_OK;
  PLD_LAUNCH(c, forward_kernel<T>, pld_blocks(c, a.batches * a.L, 1), PLC_THREADS, 0, a, c->nout > 1);
  return PLN_OK;
}

template <class T> pln_Status backward(const pln_Call *c) {
  const Attention a = attention_of(c, 3);
  if (a.batches * a.L > 0) PLD_LAUNCH(c, query_kernel<T>, pld_blocks(c, a.batches * a.L, 1), PLC_THREADS, 0, a);
  if (a.batches * a.S > 0) PLD_LAUNCH(c, key_kernel<T>, pld_blocks(c, a.batches * a.S, 1), PLC_THREADS, 0, a);
  return PLN_OK;
}

}  // namespace

#define RUN(fn) (c->arg[0].dtype == PLN_F32 ? fn<float>(c) : fn<double>(c))

PLC_KERNEL(sdpa) { return RUN(forward); }
PLC_KERNEL(sdpa_backward) { return RUN(backward); }
