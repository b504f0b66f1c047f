/* SPDX-License-Identifier: MIT
** index.c -- reading and adding where an index tensor says (src/ops/index.def). No index is used before it was found valid.
**
** Additions to one element are made in the order of the source: tasks share out the positions beside the indexed dim, and each goes along
** that dim from start to end.
*/
#include "../small.h"
#include "walk.h"

#include <math.h>

/* --- gather --------------------------------------------------------------------------------------- */

static PLN_COLD void read_fault(const pln_Call *c, int64_t at, int64_t value) {
  pln_call_fault(c, (int)c->i[4], at / c->i[2] % c->i[3], value, 1, c->i[1]);
}

/* T has an element's size, I is the index's type; bad is what is read where no element is. */
#define PLN_GATHER(T, I, S)                                                                                               \
  static void gather_##S(void *context, int64_t begin, int64_t end) {                                                     \
    const pln_Call *c = context;                                                                                          \
    const int last = c->ndim - 1;                                                                                         \
    const int64_t os = c->arg[0].stride[last], xs = c->arg[1].stride[last], is = c->arg[2].stride[last];                  \
    const int64_t step = c->i[0];                                                                                         \
    const uint64_t n = (uint64_t)c->i[1];                                                                                 \
    const T bad = (T)not_a_number((pln_DType)c->arg[0].dtype);                                                            \
    Walk w;                                                                                                               \
    for (walk_begin(&w, c, begin, end); w.run; walk_next(&w)) {                                                           \
      T *out = (T *)c->arg[0].data + w.offset[0];                                                                         \
      const T *x = (const T *)c->arg[1].data + w.offset[1];                                                               \
      const I *index = (const I *)c->arg[2].data + w.offset[2];                                                           \
      if (is != 0) {                                                                                                      \
        for (int64_t j = 0; j < w.run; j++) {                                                                             \
          uint64_t k = (uint64_t)index[j * is] - 1;                                                                       \
          if (PLN_UNLIKELY(k >= n)) read_fault(c, w.at + j, index[j * is]);                                               \
          out[j * os] = k < n ? x[(int64_t)k * step + j * xs] : bad;                                                      \
        }                                                                                                                 \
        continue;                                                                                                         \
      }                                                                                                                   \
      uint64_t k = (uint64_t)*index - 1; /* one for the whole run */                                                      \
      if (PLN_UNLIKELY(k >= n)) {                                                                                         \
        read_fault(c, w.at, *index);                                                                                      \
        for (int64_t j = 0; j < w.run; j++) out[j * os] = bad;                                                            \
        continue;                                                                                                         \
      }                                                                                                                   \
      x += (int64_t)k * step;                                                                                             \
      if (os == 1 && xs == 1)                                                                                             \
        memcpy(out, x, (size_t)w.run * sizeof(T));                                                                        \
      else                                                                                                                \
        for (int64_t j = 0; j < w.run; j++) out[j * os] = x[j * xs];                                                      \
    }                                                                                                                     \
  }

/* The bits of NaN, 0 for integers. */
static uint64_t not_a_number(pln_DType dtype) {
  return dtype == PLN_F32 ? pls_bits_f32(NAN) : dtype == PLN_F64 ? pls_bits_f64((double)NAN) : 0;
}

PLN_GATHER(uint8_t, int32_t, 1_i32)
PLN_GATHER(uint32_t, int32_t, 4_i32)
PLN_GATHER(uint64_t, int32_t, 8_i32)
PLN_GATHER(uint8_t, int64_t, 1_i64)
PLN_GATHER(uint32_t, int64_t, 4_i64)
PLN_GATHER(uint64_t, int64_t, 8_i64)
#undef PLN_GATHER

pln_Status PLK(gather)(const pln_Call *c) {
  static void (*const loop[2][3])(void *, int64_t, int64_t) = {{gather_1_i32, gather_4_i32, gather_8_i32},
                                                               {gather_1_i64, gather_4_i64, gather_8_i64}};
  int size = pln_dtype_size((pln_DType)c->arg[0].dtype);
  return pln_parallel_for(c, c->numel, PLN_GRAIN, loop[c->arg[2].dtype == PLN_I64][size == 1 ? 0 : size == 4 ? 1 : 2], (void *)c);
}

/* For captures: one index, and what it names lies side by side. */
static pln_Status small_pick(pln_Small *s, uint64_t k) {
  if (PLN_UNLIKELY(--k >= s->pick.places)) return pln_small_call(s); /* says so */
  const pln_Arg *arg = s->call->arg;
  memcpy(arg[0].data, arg[1].data + (int64_t)k * s->pick.step, s->pick.bytes);
  return PLN_OK;
}

static pln_Status small_pick_i32(pln_Small *s) { return small_pick(s, (uint64_t)*(const int32_t *)s->call->arg[2].data); }
static pln_Status small_pick_i64(pln_Small *s) { return small_pick(s, (uint64_t)*(const int64_t *)s->call->arg[2].data); }

void PLK(small_gather)(pln_Small *s) {
  const pln_Call *c = s->call;
  const int64_t size = pln_dtype_size((pln_DType)c->arg[0].dtype);
  if (c->ndim != 1 || c->numel > PLN_GRAIN || c->arg[0].stride[0] != 1 || c->arg[1].stride[0] != 1 || c->arg[2].stride[0] != 0) return;
  s->pick.bytes = (size_t)(c->numel * size);
  s->pick.step = c->i[0] * size;
  s->pick.places = (uint64_t)c->i[1];
  s->run = c->arg[2].dtype == PLN_I64 ? small_pick_i64 : small_pick_i32;
}

/* --- scatter -------------------------------------------------------------------------------------- */

static PLN_COLD void add_fault(const pln_Call *c, int64_t t, int64_t l, int64_t value) {
  pln_call_fault(c, (int)c->i[4], t / c->i[6] * c->i[7] + l * c->i[8] + t % c->i[6] * c->i[9], value, 1, c->i[1]);
}

/* Wrapping sums are made in W. */
#define PLN_SCATTER(T, W, I, S)                                                                                           \
  static inline void add_##S(const pln_Call *c, T *out, const T *src, const I *index, int64_t t, int64_t l) {             \
    uint64_t k = (uint64_t)*index - 1;                                                                                    \
    if (PLN_UNLIKELY(k >= (uint64_t)c->i[1])) {                                                                           \
      add_fault(c, t, l, *index);                                                                                         \
      return;                                                                                                             \
    }                                                                                                                     \
    out += (int64_t)k * c->i[0];                                                                                          \
    *out = (T)((W)*out + (W)*src);                                                                                        \
  }                                                                                                                       \
  static inline void add_slice_##S(T *restrict out, const T *restrict src, int64_t n, int64_t os, int64_t ss) {           \
    if (os == 1 && ss == 1)                                                                                               \
      for (int64_t j = 0; j < n; j++) out[j] = (T)((W)out[j] + (W)src[j]);                                                \
    else                                                                                                                  \
      for (int64_t j = 0; j < n; j++) out[j * os] = (T)((W)out[j * os] + (W)src[j * ss]);                                 \
  }                                                                                                                       \
  static void scatter_##S(void *context, int64_t begin, int64_t end) {                                                    \
    const pln_Call *c = context;                                                                                          \
    const int last = c->ndim - 1;                                                                                         \
    const int64_t os = c->arg[0].stride[last], ss = c->arg[1].stride[last], is = c->arg[2].stride[last];                  \
    const int64_t count = c->i[2], sl = c->i[3], il = c->i[5];                                                            \
    Walk w;                                                                                                               \
    for (walk_begin(&w, c, begin, end); w.run; walk_next(&w)) {                                                           \
      T *out = (T *)c->arg[0].data + w.offset[0];                                                                         \
      const T *src = (const T *)c->arg[1].data + w.offset[1];                                                             \
      const I *index = (const I *)c->arg[2].data + w.offset[2];                                                           \
      if (is == 0) /* one index for the whole run */                                                                      \
        for (int64_t l = 0; l < count; l++) {                                                                             \
          uint64_t k = (uint64_t)index[l * il] - 1;                                                                       \
          if (PLN_LIKELY(k < (uint64_t)c->i[1]))                                                                          \
            add_slice_##S(out + (int64_t)k * c->i[0], src + l * sl, w.run, os, ss);                                       \
          else                                                                                                            \
            add_fault(c, w.at, l, index[l * il]);                                                                         \
        }                                                                                                                 \
      else if (sl == 1) /* the indexed dim lies together */                                                               \
        for (int64_t j = 0; j < w.run; j++)                                                                               \
          for (int64_t l = 0; l < count; l++)                                                                             \
            add_##S(c, out + j * os, src + l + j * ss, index + l * il + j * is, w.at + j, l);                             \
      else                                                                                                                \
        for (int64_t l = 0; l < count; l++)                                                                               \
          for (int64_t j = 0; j < w.run; j++)                                                                             \
            add_##S(c, out + j * os, src + l * sl + j * ss, index + l * il + j * is, w.at + j, l);                        \
    }                                                                                                                     \
  }
PLN_SCATTER(uint8_t, uint8_t, int32_t, u8_i32)
PLN_SCATTER(int32_t, uint32_t, int32_t, i32_i32)
PLN_SCATTER(int64_t, uint64_t, int32_t, i64_i32)
PLN_SCATTER(float, float, int32_t, f32_i32)
PLN_SCATTER(double, double, int32_t, f64_i32)
PLN_SCATTER(uint8_t, uint8_t, int64_t, u8_i64)
PLN_SCATTER(int32_t, uint32_t, int64_t, i32_i64)
PLN_SCATTER(int64_t, uint64_t, int64_t, i64_i64)
PLN_SCATTER(float, float, int64_t, f32_i64)
PLN_SCATTER(double, double, int64_t, f64_i64)
#undef PLN_SCATTER

pln_Status PLK(scatter)(const pln_Call *c) {
  static void (*const loop[2][PLN_NDTYPE])(void *, int64_t, int64_t) = {
    {[PLN_U8] = scatter_u8_i32, [PLN_I32] = scatter_i32_i32, [PLN_I64] = scatter_i64_i32, [PLN_F32] = scatter_f32_i32, [PLN_F64] = scatter_f64_i32},
    {[PLN_U8] = scatter_u8_i64, [PLN_I32] = scatter_i32_i64, [PLN_I64] = scatter_i64_i64, [PLN_F32] = scatter_f32_i64, [PLN_F64] = scatter_f64_i64}};
  int64_t grain = PLN_GRAIN / c->i[2];
  return pln_parallel_for(c, c->numel, grain < 64 ? 64 : grain, loop[c->arg[2].dtype == PLN_I64][c->arg[0].dtype], (void *)c);
}

/* --- one_hot -------------------------------------------------------------------------------------- */

static void one_hot(void *context, int64_t begin, int64_t end) {
  const pln_Call *c = context;
  const int64_t classes = c->i[1];
  const bool wide = c->arg[1].dtype == PLN_I64;
  int64_t *out = (int64_t *)c->arg[0].data;
  memset(out + begin * classes, 0, (size_t)((end - begin) * classes) * sizeof *out);
  for (int64_t i = begin; i < end; i++) {
    int64_t k = wide ? ((const int64_t *)c->arg[1].data)[i] : ((const int32_t *)c->arg[1].data)[i];
    if (PLN_LIKELY(k >= 1 && k <= classes))
      out[i * classes + k - 1] = 1;
    else
      pln_call_fault(c, 0, i, k, 1, classes);
  }
}

pln_Status PLK(one_hot)(const pln_Call *c) {
  return pln_parallel_for(c, c->numel, PLN_GRAIN / (c->i[1] < PLN_GRAIN ? c->i[1] : PLN_GRAIN), one_hot, (void *)c);
}
