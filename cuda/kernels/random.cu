/* SPDX-License-Identifier: MIT
** random.cu -- random numbers and dropout (src/ops/random.def): a thread makes a group's words and the elements that they belong to.
*/
#include "kernel.h"

#include "philox.h"

namespace {

struct Random {
  char *out;
  const char *x;
  int64_t n;
  uint64_t seed, draw;
  const int64_t *drawn; /* holds the draw number, if not NULL */
  uint64_t lo, below;   /* of randint */
  double kept;          /* of dropout */
  uint32_t threshold;
};

__device__ __forceinline__ pln_Words words_of(const Random &r, int64_t group) {
  return pln_philox(r.seed, r.drawn ? (uint64_t)*r.drawn : r.draw, (uint64_t)group);
}

/* A maker has T, the elements of a group (PER) and what they are. */
struct RandF32 {
  typedef float T;
  enum { PER = 4 };
  static __device__ __forceinline__ void make(const Random &, pln_Words w, float *v) {
    v[0] = pln_uniform_f32(w.w0);
    v[1] = pln_uniform_f32(w.w1);
    v[2] = pln_uniform_f32(w.w2);
    v[3] = pln_uniform_f32(w.w3);
  }
};

struct RandF64 {
  typedef double T;
  enum { PER = 2 };
  static __device__ __forceinline__ void make(const Random &, pln_Words w, double *v) {
    v[0] = pln_uniform_f64(w.w0, w.w1);
    v[1] = pln_uniform_f64(w.w2, w.w3);
  }
};

struct RandnF32 {
  typedef float T;
  enum { PER = 4 };
  static __device__ __forceinline__ void make(const Random &, pln_Words w, float *v) {
    pln_NormalsF32 a = pln_normals_f32(w.w0, w.w1), b = pln_normals_f32(w.w2, w.w3);
    v[0] = a.a;
    v[1] = a.b;
    v[2] = b.a;
    v[3] = b.b;
  }
};

struct RandnF64 {
  typedef double T;
  enum { PER = 2 };
  static __device__ __forceinline__ void make(const Random &, pln_Words w, double *v) {
    pln_NormalsF64 a = pln_normals_f64(w);
    v[0] = a.a;
    v[1] = a.b;
  }
};

template <class E> struct Randint {
  typedef E T;
  enum { PER = 2 };
  static __device__ __forceinline__ void make(const Random &r, pln_Words w, E *v) {
    v[0] = (E)(int64_t)(r.lo + pln_below((uint64_t)w.w1 << 32 | w.w0, r.below));
    v[1] = (E)(int64_t)(r.lo + pln_below((uint64_t)w.w3 << 32 | w.w2, r.below));
  }
};

template <class M> __global__ void __launch_bounds__(PLC_THREADS) random_kernel(const Random r) {
  typedef typename M::T T;
  const int64_t groups = (r.n + M::PER - 1) / M::PER;
  for (int64_t group = pld_thread(); group < groups; group += pld_threads()) {
    T v[M::PER];
    M::make(r, words_of(r, group), v);
    for (int k = 0; k < M::PER && group * M::PER + k < r.n; k++) ((T *)r.out)[group * M::PER + k] = v[k];
  }
}

/* The factor is 0 for what is dropped, so that a NaN stays one. */
template <class T> __global__ void __launch_bounds__(PLC_THREADS) dropout_kernel(const Random r) {
  const int64_t groups = (r.n + 3) / 4;
  const T kept = (T)r.kept;
  for (int64_t group = pld_thread(); group < groups; group += pld_threads()) {
    pln_Words w = words_of(r, group);
    uint32_t word[4] = {w.w0, w.w1, w.w2, w.w3};
    for (int k = 0; k < 4 && group * 4 + k < r.n; k++) {
      int64_t i = group * 4 + k;
      ((T *)r.out)[i] = ((const T *)r.x)[i] * (pln_kept(word[k], r.threshold) ? kept : (T)0);
    }
  }
}

Random random_of(const pln_Call *c, int tensors) {
  Random r;
  memset(&r, 0, sizeof r);
  r.out = c->arg[0].data;
  r.n = c->numel;
  r.draw = (uint64_t)c->i[0];
  r.seed = (uint64_t)c->i[1];
  if (c->nin > tensors) r.drawn = (const int64_t *)pln_call_in(c, tensors)->data;
  return r;
}

template <class M> pln_Status generate(const pln_Call *c, const Random &r) {
  PLD_LAUNCH(c, (random_kernel<M>), pld_blocks(c, (r.n + M::PER - 1) / M::PER, PLC_THREADS), PLC_THREADS, 0, r);
  return PLN_OK;
}

}  // namespace

PLC_KERNEL(rand) {
  Random r = random_of(c, 0);
  return c->arg[0].dtype == PLN_F32 ? generate<RandF32>(c, r) : generate<RandF64>(c, r);
}

PLC_KERNEL(randn) {
  Random r = random_of(c, 0);
  return c->arg[0].dtype == PLN_F32 ? generate<RandnF32>(c, r) : generate<RandnF64>(c, r);
}

PLC_KERNEL(randint) {
  Random r = random_of(c, 0);
  r.lo = (uint64_t)c->i[2];
  r.below = (uint64_t)c->i[3];
  switch (c->arg[0].dtype) {
    case PLN_U8: return generate<Randint<uint8_t>>(c, r);
    case PLN_I32: return generate<Randint<int32_t>>(c, r);
    case PLN_I64: return generate<Randint<int64_t>>(c, r);
    case PLN_F32: return generate<Randint<float>>(c, r);
    default: return generate<Randint<double>>(c, r);
  }
}

PLC_KERNEL(dropout) {
  const pln_Arg *out = &c->arg[0], *x = &c->arg[1];
  if (c->i[3]) {
    size_t bytes = (size_t)c->numel * (size_t)pln_dtype_size((pln_DType)out->dtype);
    if (out->data == x->data) return PLN_OK;
    return pld_copy(c, out->data, x->data, bytes);
  }
  Random r = random_of(c, 1);
  r.x = x->data;
  r.kept = c->f[0];
  r.threshold = (uint32_t)c->i[2];
  unsigned blocks = pld_blocks(c, (r.n + 3) / 4, PLC_THREADS);
  if (out->dtype == PLN_F32)
    PLD_LAUNCH(c, (dropout_kernel<float>), blocks, PLC_THREADS, 0, r);
  else
    PLD_LAUNCH(c, (dropout_kernel<double>), blocks, PLC_THREADS, 0, r);
  return PLN_OK;
}
