/* SPDX-License-Identifier: MIT
** create.cu -- kernels eye and ramp (src/ops/create.def).
*/
#include "kernel.h"

template <class T> static __global__ void eye_kernel(T *out, int64_t n, int64_t columns, int64_t s0, int64_t s1) {
  for (int64_t i = pld_thread(); i < n; i += pld_threads()) {
    int64_t row = i / columns, column = i - row * columns;
    out[row * s0 + column * s1] = row == column;
  }
}

PLC_KERNEL(eye) {
  const pln_Arg *out = &c->arg[0];
  int64_t n = out->shape[0] * out->shape[1];
  unsigned blocks = pld_blocks(c, n, PLC_THREADS);
  switch (out->dtype) {
#define CASE(ID, T, S)                                                                                                              \
  case PLN_##ID:                                                                                                                    \
    PLD_LAUNCH(c, (eye_kernel<T>), blocks, PLC_THREADS, 0, (T *)out->data, n, out->shape[1], out->stride[0], out->stride[1]);       \
    break;
    CASE(BOOL, uint8_t, bool) CASE(I32, int32_t, i32) CASE(I64, int64_t, i64) CASE(F32, float, f32) CASE(F64, double, f64)
    default: PLD_LAUNCH(c, (eye_kernel<uint8_t>), blocks, PLC_THREADS, 0, (uint8_t *)out->data, n, out->shape[1], out->stride[0], out->stride[1]);
#undef CASE
  }
  return PLN_OK;
}

struct Ramp {
  char *data;
  int64_t n, stride, turn; /* elements from `turn` on are counted from the end */
  double from, step, to;
};

template <class Cast, class T> static __global__ void ramp_kernel(const Ramp r) {
  for (int64_t i = pld_thread(); i < r.n; i += pld_threads()) {
    double v = i < r.turn ? r.from + (double)i * r.step : r.to + (double)(r.n - 1 - i) * -r.step;
    ((T *)r.data)[i * r.stride] = Cast::of(v);
  }
}

#define CAST(ID, T, S)                                                                     \
  struct Cast_##S {                                                                        \
    static __device__ __forceinline__ T of(double v) { return pls_cast_f64_##S(v); }       \
  };
PLC_EACH_DTYPE(CAST)
#undef CAST

PLC_KERNEL(ramp) {
  Ramp r = {c->arg[0].data, c->size[0], c->arg[0].stride[0], c->i[0], c->f[0], c->f[1], c->f[2]};
  unsigned blocks = pld_blocks(c, r.n, PLC_THREADS);
  switch (c->arg[0].dtype) {
#define CASE(ID, T, S) \
  case PLN_##ID: PLD_LAUNCH(c, (ramp_kernel<Cast_##S, T>), blocks, PLC_THREADS, 0, r); break;
    PLC_EACH_DTYPE(CASE)
#undef CASE
  }
  return PLN_OK;
}
