/* SPDX-License-Identifier: MIT
** hadamard.cu -- the Walsh-Hadamard transform of rows (src/ops/matmul.def): pieces of a row in shared memory, then the stages that
** reach beyond a piece, in place in the result. Every element is one balanced tree, so the cut does not show.
*/
#include "kernel.h"

namespace {

enum { PIECE = 2048 };

struct Hadamard {
  char *out;
  const char *x;
  int64_t n, len, pieces, step; /* of a row, of a piece; pieces in all; the operand's stride within a row */
  double scale;
  pld_Layout<2> layout; /* of rows; of the operand, argument 1, only */
};

template <class T> __global__ void __launch_bounds__(PLC_THREADS) pieces_kernel(const Hadamard q) {
  PLN_SHARED(T, y, [PIECE]);
  const int len = (int)q.len;
  const int64_t per_row = q.n / q.len;
  const T scale = per_row == 1 ? (T)q.scale : (T)1;
  for (int64_t piece = blockIdx.x; piece < q.pieces; piece += gridDim.x) {
    int64_t at[2];
    q.layout.find(piece / per_row, at);
    const T *x = (const T *)q.x + at[1] + piece % per_row * q.len * q.step;
    for (int j = threadIdx.x; j < len; j += blockDim.x) y[j] = x[j * q.step];
    __syncthreads();
    for (int h = 1; h < len; h *= 2) {
      for (int j = threadIdx.x; j < len / 2; j += blockDim.x) {
        const int i = j / h * 2 * h + j % h;
        const T a = y[i] + y[i + h], b = y[i] - y[i + h];
        y[i] = a;
        y[i + h] = b;
      }
      __syncthreads();
    }
    for (int j = threadIdx.x; j < len; j += blockDim.x) ((T *)q.out)[piece * q.len + j] = y[j] * scale;
    __syncthreads();
  }
}

template <class T> __global__ void __launch_bounds__(PLC_THREADS) stage_kernel(T *y, int64_t pairs, int64_t h, T scale) {
  for (int64_t j = pld_thread(); j < pairs; j += pld_threads()) {
    const int64_t i = j / h * 2 * h + j % h;
    const T a = y[i] + y[i + h], b = y[i] - y[i + h];
    y[i] = a * scale;
    y[i + h] = b * scale;
  }
}

template <class T> pln_Status transform(const pln_Call *c, const Hadamard &q) {
  PLD_LAUNCH(c, (pieces_kernel<T>), pld_blocks(c, q.pieces, 1), PLC_THREADS, 0, q);
  const int64_t pairs = q.pieces * q.len / 2;
  for (int64_t h = q.len; h < q.n; h *= 2)
    PLD_LAUNCH(c, (stage_kernel<T>), pld_blocks(c, pairs, PLC_THREADS), PLC_THREADS, 0, (T *)q.out, pairs, h, 2 * h == q.n ? (T)q.scale : (T)1);
  return PLN_OK;
}

}  // namespace

PLC_KERNEL(hadamard) {
  Hadamard q;
  memset(&q, 0, sizeof q);
  q.out = c->arg[0].data;
  q.x = c->arg[1].data;
  q.n = c->i[0];
  q.len = q.n < (int64_t)PIECE ? q.n : (int64_t)PIECE;
  q.pieces = c->numel * (q.n / q.len);
  q.step = c->i[1];
  q.scale = 1 / pls_sqrt_f64((double)q.n);
  q.layout = pld_layout<2>(c, c->ndim);
  return c->arg[0].dtype == PLN_F32 ? transform<float>(c, q) : transform<double>(c, q);
}
