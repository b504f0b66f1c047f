/* SPDX-License-Identifier: MIT
** index.cu -- reading and adding where an index tensor says (src/ops/index.def). No index is used before it was found valid.
**
** Additions to one element are made in the order of the source, without atomics: each thread owns some destinations, looks at every
** index of its position beside the indexed dim, and adds what belongs to it.
*/
#include "kernel.h"

namespace {

struct Gather {
  char *out;
  const char *x, *index;
  int64_t numel, step, n, behind, length;
  int operand;
  uint64_t bad; /* what is read where no element is */
  pld_Layout<3> layout;
  pld_Site site;
};

/* T has an element's size, I is the index's type. */
template <class T, class I> __global__ void __launch_bounds__(PLC_THREADS) gather_kernel(const Gather g) {
  for (int64_t i = pld_thread(); i < g.numel; i += pld_threads()) {
    int64_t at[3];
    g.layout.find(i, at);
    const int64_t index = ((const I *)g.index)[at[2]], k = index - 1;
    T v = (T)g.bad;
    if (k >= 0 && k < g.n)
      v = ((const T *)g.x)[at[1] + k * g.step];
    else
      pld_fault(g.site, g.operand, i / g.behind % g.length, index, 1, g.n);
    ((T *)g.out)[at[0]] = v;
  }
}

template <class I> pln_Status gather(const pln_Call *c, const Gather &g) {
  unsigned blocks = pld_blocks(c, g.numel, PLC_THREADS);
  int size = pln_dtype_size((pln_DType)c->arg[0].dtype);
  if (size == 1)
    PLD_LAUNCH(c, (gather_kernel<uint8_t, I>), blocks, PLC_THREADS, 0, g);
  else if (size == 4)
    PLD_LAUNCH(c, (gather_kernel<uint32_t, I>), blocks, PLC_THREADS, 0, g);
  else
    PLD_LAUNCH(c, (gather_kernel<uint64_t, I>), blocks, PLC_THREADS, 0, g);
  return PLN_OK;
}

struct Scatter {
  char *out;
  const char *src, *index;
  int64_t numel, step, n, count, src_step, index_step;
  int operand;
  int64_t position[4]; /* of faults: i[6 .. 9] */
  int64_t parts, part; /* of the destinations; destinations of a part */
  pld_Layout<3> layout;
  pld_Site site;
};

/* Wrapping sums are made in W. */
template <class T, class W, class I> __global__ void __launch_bounds__(PLC_THREADS) scatter_kernel(const Scatter s) {
  for (int64_t job = pld_thread(); job < s.numel * s.parts; job += pld_threads()) {
    const int64_t p = job / s.numel, t = job - p * s.numel, first = p * s.part, last = first + s.part;
    int64_t at[3];
    s.layout.find(t, at);
    T *out = (T *)s.out + at[0];
    const T *src = (const T *)s.src + at[1];
    const I *index = (const I *)s.index + at[2];
    for (int64_t l = 0; l < s.count; l++) {
      const int64_t value = index[l * s.index_step], k = value - 1;
      if (k < 0 || k >= s.n) {
        if (p == 0)
          pld_fault(s.site, s.operand, t / s.position[0] * s.position[1] + l * s.position[2] + t % s.position[0] * s.position[3], value, 1,
                    s.n);
      } else if (k >= first && k < last) {
        T *o = out + k * s.step;
        *o = (T)((W)*o + (W)src[l * s.src_step]);
      }
    }
  }
}

template <class T, class W> pln_Status scatter(const pln_Call *c, const Scatter &s) {
  unsigned blocks = pld_blocks(c, s.numel * s.parts, PLC_THREADS);
  if (c->arg[2].dtype == PLN_I64)
    PLD_LAUNCH(c, (scatter_kernel<T, W, int64_t>), blocks, PLC_THREADS, 0, s);
  else
    PLD_LAUNCH(c, (scatter_kernel<T, W, int32_t>), blocks, PLC_THREADS, 0, s);
  return PLN_OK;
}

template <class I>
__global__ void __launch_bounds__(PLC_THREADS) one_hot_kernel(int64_t *out, const I *index, int64_t n, int64_t classes, const pld_Site site) {
  for (int64_t i = pld_thread(); i < n * classes; i += pld_threads()) {
    const int64_t at = i / classes, column = i - at * classes, k = index[at];
    out[i] = k == column + 1;
    if (column == 0 && (k < 1 || k > classes)) pld_fault(site, 0, at, k, 1, classes);
  }
}

int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

}  // namespace

PLC_KERNEL(gather) {
  Gather g;
  memset(&g, 0, sizeof g);
  g.out = c->arg[0].data;
  g.x = c->arg[1].data;
  g.index = c->arg[2].data;
  g.numel = c->numel;
  g.step = c->i[0];
  g.n = c->i[1];
  g.behind = c->i[2];
  g.length = c->i[3];
  g.operand = (int)c->i[4];
  g.bad = c->arg[0].dtype == PLN_F32 ? pls_bits_f32(NAN) : c->arg[0].dtype == PLN_F64 ? pls_bits_f64((double)NAN) : 0;
  g.layout = pld_layout<3>(c, c->ndim);
  g.site = pld_site(c);
  return c->arg[2].dtype == PLN_I64 ? gather<int64_t>(c, g) : gather<int32_t>(c, g);
}

PLC_KERNEL(scatter) {
  Scatter s;
  memset(&s, 0, sizeof s);
  s.out = c->arg[0].data;
  s.src = c->arg[1].data;
  s.index = c->arg[2].data;
  s.numel = c->numel;
  s.step = c->i[0];
  s.n = c->i[1];
  s.count = c->i[2];
  s.src_step = c->i[3];
  s.operand = (int)c->i[4];
  s.index_step = c->i[5];
  memcpy(s.position, c->i + 6, sizeof s.position);
  s.layout = pld_layout<3>(c, c->ndim);
  s.site = pld_site(c);
  /* as many parts as there are threads to spare; every part costs a look at all indices */
  int64_t threads = (int64_t)pld_device(c)->blocks * PLC_THREADS;
  s.parts = least(least(threads / s.numel, s.count / 32), s.n);
  if (s.parts < 1) s.parts = 1;
  s.part = (s.n + s.parts - 1) / s.parts;
  switch (c->arg[0].dtype) {
    case PLN_U8: return scatter<uint8_t, uint8_t>(c, s);
    case PLN_I32: return scatter<int32_t, uint32_t>(c, s);
    case PLN_I64: return scatter<int64_t, uint64_t>(c, s);
    case PLN_F32: return scatter<float, float>(c, s);
    default: return scatter<double, double>(c, s);
  }
}

PLC_KERNEL(one_hot) {
  int64_t *out = (int64_t *)c->arg[0].data;
  const char *index = c->arg[1].data;
  unsigned blocks = pld_blocks(c, c->numel * c->i[1], PLC_THREADS);
  if (c->arg[1].dtype == PLN_I64)
    PLD_LAUNCH(c, (one_hot_kernel<int64_t>), blocks, PLC_THREADS, 0, out, (const int64_t *)index, c->numel, c->i[1], pld_site(c));
  else
    PLD_LAUNCH(c, (one_hot_kernel<int32_t>), blocks, PLC_THREADS, 0, out, (const int32_t *)index, c->numel, c->i[1], pld_site(c));
  return PLN_OK;
}
