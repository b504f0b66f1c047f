/* SPDX-License-Identifier: MIT
** rearrange.cu -- kernels repeat and triangle (src/ops/view.def). They move bits, so they go by element size only.
*/
#include "kernel.h"

/* Runs K<T> for the result's element size. */
#define BY_SIZE(c, kernel, n, ...)                                                                           \
  do {                                                                                                       \
    int size_ = pln_dtype_size((pln_DType)(c)->arg[0].dtype);                                                \
    unsigned blocks_ = pld_blocks(c, n, PLC_THREADS);                                                        \
    if (size_ == 1)                                                                                          \
      PLD_LAUNCH(c, (kernel<uint8_t>), blocks_, PLC_THREADS, 0, __VA_ARGS__);                                \
    else if (size_ == 4)                                                                                     \
      PLD_LAUNCH(c, (kernel<uint32_t>), blocks_, PLC_THREADS, 0, __VA_ARGS__);                               \
    else                                                                                                     \
      PLD_LAUNCH(c, (kernel<uint64_t>), blocks_, PLC_THREADS, 0, __VA_ARGS__);                               \
  } while (0)

struct Repeat {
  char *out;
  const char *x;
  int64_t n;
  int ndim;
  int64_t size[PLN_MAX_DIMS], each[PLN_MAX_DIMS], period[PLN_MAX_DIMS], to[PLN_MAX_DIMS], from[PLN_MAX_DIMS];
};

template <class T> static __global__ void repeat_kernel(const Repeat r) {
  for (int64_t i = pld_thread(); i < r.n; i += pld_threads()) {
    int64_t rest = i, to = 0, from = 0;
    for (int d = r.ndim - 1; d >= 0; d--) {
      int64_t next = rest / r.size[d], at = rest - next * r.size[d];
      to += at * r.to[d];
      from += at / r.each[d] % r.period[d] * r.from[d];
      rest = next;
    }
    ((T *)r.out)[to] = ((const T *)r.x)[from];
  }
}

PLC_KERNEL(repeat) {
  Repeat r;
  memset(&r, 0, sizeof r);
  r.out = c->arg[0].data;
  r.x = c->arg[1].data;
  r.n = c->numel;
  r.ndim = c->ndim;
  for (int d = 0; d < c->ndim; d++) {
    r.size[d] = c->size[d];
    r.each[d] = c->i[d];
    r.period[d] = c->arg[1].shape[d];
    r.to[d] = c->arg[0].stride[d];
    r.from[d] = c->arg[1].stride[d];
  }
  BY_SIZE(c, repeat_kernel, r.n, r);
  return PLN_OK;
}

struct Triangle {
  char *out;
  const char *x;
  int64_t n, rows, columns, k;
  bool upper;
  pld_Layout<2> layout;
};

template <class T> static __global__ void triangle_kernel(const Triangle t) {
  for (int64_t i = pld_thread(); i < t.n; i += pld_threads()) {
    int64_t at[2], column = i % t.columns, row = i / t.columns % t.rows;
    t.layout.find(i, at);
    bool keeps = t.upper ? column >= row + t.k : column <= row + t.k;
    ((T *)t.out)[at[0]] = keeps ? ((const T *)t.x)[at[1]] : T(0);
  }
}

PLC_KERNEL(triangle) {
  Triangle t = {c->arg[0].data, c->arg[1].data, c->numel, c->size[c->ndim - 2], c->size[c->ndim - 1], c->i[0], c->i[1] != 0,
                pld_layout<2>(c, c->ndim)};
  BY_SIZE(c, triangle_kernel, t.n, t);
  return PLN_OK;
}
