/* SPDX-License-Identifier: MIT
** elementwise.h -- how an elementwise kernel is made: a functor per op and dtype, run over any layout by one kernel.
**
** A functor F has R (result type), A, B, C (types of as many operands as N says), CHECKED, and an operator that computes one element; with
** CHECKED also bad(b), LO and HI for operand b. Elements that lie side by side, aligned, are moved 16 bytes at a time.
*/
#ifndef PLN_CUDA_ELEMENTWISE_H
#define PLN_CUDA_ELEMENTWISE_H

#include "kernel.h"

struct Elements {
  int64_t numel, packs;  /* packs: groups of elements that are moved at once */
  int64_t single[4];     /* with packs: 0 for an argument that is one value */
  char *data[4];
  uint64_t number[4];    /* an operand without data, at the front of the 8 bytes */
  pld_Layout<4> layout;
  pld_Site site;
};

template <class T, int W> struct alignas(sizeof(T) * W) Pack {
  T v[W];
};

template <class T> static __device__ __forceinline__ T load(const Elements &e, int k, int64_t offset) {
  T v;
  if (e.data[k]) return ((const T *)e.data[k])[offset];
  memcpy(&v, &e.number[k], sizeof v);
  return v;
}

template <class T, int W> static __device__ __forceinline__ Pack<T, W> load_pack(const Elements &e, int k, int64_t p) {
  if (e.data[k] && e.single[k]) return ((const Pack<T, W> *)e.data[k])[p];
  Pack<T, W> r;
  T v = load<T>(e, k, 0);
  for (int w = 0; w < W; w++) r.v[w] = v;
  return r;
}

/* Operand b had a bad value where the result has the element `at`: says which element of b that is. */
static __device__ __attribute__((unused)) void operand_fault(const Elements &e, int64_t at, int64_t value, int64_t lo, int64_t hi) {
  int64_t position = 0, weight = 1;
  for (int d = e.layout.ndim - 1; d >= 0; d--) {
    int64_t x = at % e.layout.size[d];
    at /= e.layout.size[d];
    if (e.layout.stride[2][d] == 0) continue; /* broadcast: not a dim of b */
    position += x * weight;
    weight *= e.layout.size[d];
  }
  pld_fault(e.site, 1, position, value, lo, hi);
}

template <class F> static __device__ __forceinline__ typename F::R one_element(const Elements &e, const F &f, typename F::A a,
                                                                               typename F::B b, typename F::C c, int64_t at) {
  if constexpr (F::CHECKED)
    if (f.bad(b)) operand_fault(e, at, (int64_t)b, F::LO, F::HI);
  (void)e, (void)a, (void)b, (void)c, (void)at;
  if constexpr (F::N == 0)
    return f();
  else if constexpr (F::N == 1)
    return f(a);
  else if constexpr (F::N == 2)
    return f(a, b);
  else
    return f(a, b, c);
}

template <class F> __host__ __device__ constexpr int pack_width() {
  size_t w = sizeof(typename F::R);
  if (F::N > 0 && sizeof(typename F::A) > w) w = sizeof(typename F::A);
  if (F::N > 1 && sizeof(typename F::B) > w) w = sizeof(typename F::B);
  if (F::N > 2 && sizeof(typename F::C) > w) w = sizeof(typename F::C);
  return (int)(16 / w);
}

template <class F> __global__ void __launch_bounds__(PLC_THREADS) elements_kernel(const Elements e, const F f) {
  typedef typename F::R R;
  typedef typename F::A A;
  typedef typename F::B B;
  typedef typename F::C C;
  constexpr int W = pack_width<F>();
  int64_t i = pld_thread(), threads = pld_threads();
  for (int64_t p = i; p < e.packs; p += threads) {
    Pack<A, W> a = {};
    Pack<B, W> b = {};
    Pack<C, W> c = {};
    Pack<R, W> r;
    if constexpr (F::N > 0) a = load_pack<A, W>(e, 1, p);
    if constexpr (F::N > 1) b = load_pack<B, W>(e, 2, p);
    if constexpr (F::N > 2) c = load_pack<C, W>(e, 3, p);
    for (int w = 0; w < W; w++) r.v[w] = one_element(e, f, a.v[w], b.v[w], c.v[w], p * W + w);
    ((Pack<R, W> *)e.data[0])[p] = r;
  }
  for (i += e.packs * W; i < e.numel; i += threads) {
    int64_t at[4];
    A a = {};
    B b = {};
    C c = {};
    e.layout.find(i, at);
    if constexpr (F::N > 0) a = load<A>(e, 1, at[1]);
    if constexpr (F::N > 1) b = load<B>(e, 2, at[2]);
    if constexpr (F::N > 2) c = load<C>(e, 3, at[3]);
    ((R *)e.data[0])[at[0]] = one_element(e, f, a, b, c, i);
  }
}

/* A number as an element of the dtype, at the front of the 8 bytes. */
static inline uint64_t element_of(int dtype, double v) {
  uint64_t bits = 0;
  switch (dtype) {
#define CASE(ID, T, S)           \
  case PLN_##ID: {               \
    T t = pls_number_##S(v);     \
    memcpy(&bits, &t, sizeof t); \
    break;                       \
  }
    PLC_EACH_DTYPE(CASE)
#undef CASE
  }
  return bits;
}

/* Whether argument k can be moved W elements at a time; one value is fine for operands. */
static inline bool packable(const pln_Call *c, int k, int width) {
  const pln_Arg *a = &c->arg[k];
  if (!a->data) return true;
  if (k > 0 && a->stride[0] == 0) return true;
  size_t bytes = (size_t)width * (size_t)pln_dtype_size((pln_DType)a->dtype);
  return a->stride[0] == 1 && (uintptr_t)a->data % bytes == 0;
}

template <class F> static pln_Status elementwise(const pln_Call *c, const F &f) {
  constexpr int W = pack_width<F>();
  Elements e;
  memset(&e, 0, sizeof e);
  e.numel = c->numel;
  e.layout = pld_layout<4>(c, c->ndim);
  if constexpr (F::CHECKED) e.site = pld_site(c);
  bool packs = c->ndim == 1;
  for (int k = 0; k < c->nout + c->nin; k++) {
    const pln_Arg *a = &c->arg[k];
    e.data[k] = a->data;
    e.single[k] = a->data && a->stride[0] != 0;
    if (!a->data) e.number[k] = element_of(a->dtype, c->f[PLN_MAX_PARAMS - 1 - (k - c->nout)]);
    packs = packs && packable(c, k, W);
  }
  if (packs) e.packs = c->numel / W;
  int64_t work = e.packs ? e.packs + W : e.numel;
  PLD_LAUNCH(c, (elements_kernel<F>), pld_blocks(c, work, PLC_THREADS), PLC_THREADS, 0, e, f);
  return PLN_OK;
}

#endif
