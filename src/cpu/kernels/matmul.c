/* SPDX-License-Identifier: MIT
** matmul.c -- matrix products from a call record (src/ops/matmul.def); the products themselves are ../gemm.h's.
**
** What is added to a product is added after it, in a pass of its own: bias first would be another order of additions.
*/
#include "kernel.h"

#include "../small.h"

/* Multiply-adds in one call of the gemm from which it can use all threads by itself. */
#define PLN_WHOLE_WORK 1e6

static void multiply(pln_DType dtype, pln_Threads *threads, const pln_Gemm *g, char *out, const char *a, const char *b) {
  switch (dtype) {
    case PLN_F32: pln_gemm_f32(threads, g, (const float *)a, (const float *)b, (float *)out); break;
    case PLN_F64: pln_gemm_f64(threads, g, (const double *)a, (const double *)b, (double *)out); break;
    case PLN_I32: pln_gemm_i32(threads, g, (const int32_t *)a, (const int32_t *)b, (int32_t *)out); break;
    case PLN_I64: pln_gemm_i64(threads, g, (const int64_t *)a, (const int64_t *)b, (int64_t *)out); break;
    default: pln_gemm_u8(threads, g, (const uint8_t *)a, (const uint8_t *)b, (uint8_t *)out);
  }
}

typedef struct Product {
  const pln_Call *c;
  pln_Gemm g;
  pln_Threads *threads;
} Product;

/* Element offset of argument `arg` at position `at` of the first `ndim` batch dims. */
static int64_t batch_offset(const pln_Call *c, int arg, int ndim, int64_t at) {
  int64_t offset = 0;
  for (int d = ndim - 1; d >= 0; d--) {
    offset += at % c->size[d] * c->arg[arg].stride[d];
    at /= c->size[d];
  }
  return offset;
}

/* Batches that one stride cannot step through: one gemm for each position of the dims before the last. */
static void outer(void *context, int64_t begin, int64_t end) {
  const Product *q = context;
  const pln_Call *c = q->c;
  int64_t size = pln_dtype_size((pln_DType)c->arg[0].dtype);
  for (int64_t x = begin; x < end; x++) {
    int nd = c->ndim - 1;
    multiply((pln_DType)c->arg[0].dtype, q->threads, &q->g, c->arg[0].data + batch_offset(c, 0, nd, x) * size,
             c->arg[1].data + batch_offset(c, 1, nd, x) * size, c->arg[2].data + batch_offset(c, 2, nd, x) * size);
  }
}

static pln_Status all_outer(const pln_Call *c, const pln_Gemm *g) {
  int64_t inner = c->size[c->ndim - 1], n = c->numel / inner;
  double work = (double)g->m * (double)g->n * (double)g->k * (double)inner;
  Product q = {c, *g, work < PLN_WHOLE_WORK ? NULL : pln_cpu_threads(c)};
  if (q.threads) {
    outer(&q, 0, n);
    return PLN_OK;
  }
  return pln_parallel_for(c, n, (int64_t)(PLN_WHOLE_WORK / (work + 64)) + 1, outer, &q);
}

/* Rows [begin, end) of all batches: out = alpha * out + beta * c. */
#define EPILOGUE(T, S)                                                                                                     \
  static void finish_##S(void *context, int64_t begin, int64_t end) {                                                      \
    const pln_Call *c = context;                                                                                           \
    const int64_t m = c->i[0], n = c->i[1], os = c->i[4], cs = c->i[10];                                                   \
    const T alpha = (T)c->f[1], beta = (T)c->f[0];                                                                         \
    for (int64_t row = begin; row < end; row++) {                                                                          \
      T *out = (T *)c->arg[0].data + batch_offset(c, 0, c->ndim, row / m) + row % m * c->i[3];                             \
      if (c->nin == 2) {                                                                                                   \
        for (int64_t j = 0; j < n; j++) out[j * os] = alpha * out[j * os];                                                 \
        continue;                                                                                                          \
      }                                                                                                                    \
      const T *add = (const T *)c->arg[3].data + batch_offset(c, 3, c->ndim, row / m) + row % m * c->i[9];                 \
      if (os == 1 && cs == 1)                                                                                              \
        for (int64_t j = 0; j < n; j++) out[j] = alpha * out[j] + beta * add[j];                                           \
      else                                                                                                                 \
        for (int64_t j = 0; j < n; j++) out[j * os] = alpha * out[j * os] + beta * add[j * cs];                            \
    }                                                                                                                      \
  }
EPILOGUE(float, f32)
EPILOGUE(double, f64)
#undef EPILOGUE

/* Integers: factors are whole numbers, everything wraps. */
#define EPILOGUE_INT(T, S)                                                                                                 \
  static void finish_##S(void *context, int64_t begin, int64_t end) {                                                      \
    const pln_Call *c = context;                                                                                           \
    const int64_t m = c->i[0], n = c->i[1];                                                                                \
    const uint64_t alpha = (uint64_t)(int64_t)c->f[1], beta = (uint64_t)(int64_t)c->f[0];                                  \
    for (int64_t row = begin; row < end; row++) {                                                                          \
      T *out = (T *)c->arg[0].data + batch_offset(c, 0, c->ndim, row / m) + row % m * c->i[3];                             \
      const T *add = c->nin == 2 ? NULL : (const T *)c->arg[3].data + batch_offset(c, 3, c->ndim, row / m) + row % m * c->i[9]; \
      for (int64_t j = 0; j < n; j++) {                                                                                    \
        uint64_t v = alpha * (uint64_t)out[j * c->i[4]];                                                                   \
        out[j * c->i[4]] = (T)(add ? v + beta * (uint64_t)add[j * c->i[10]] : v);                                          \
      }                                                                                                                    \
    }                                                                                                                      \
  }
EPILOGUE_INT(uint8_t, u8)
EPILOGUE_INT(int32_t, i32)
EPILOGUE_INT(int64_t, i64)
#undef EPILOGUE_INT

static pln_Status finish(const pln_Call *c) {
  static void (*const loop[PLN_NDTYPE])(void *, int64_t, int64_t) = {
    [PLN_U8] = finish_u8, [PLN_I32] = finish_i32, [PLN_I64] = finish_i64, [PLN_F32] = finish_f32, [PLN_F64] = finish_f64};
  return pln_parallel_for(c, c->numel * c->i[0], PLN_GRAIN / c->i[1] + 1, loop[c->arg[0].dtype], (void *)c);
}

static inline pln_Gemm gemm_of(const pln_Call *c) {
  int last = c->ndim - 1;
  return (pln_Gemm){c->i[0], c->i[1], c->i[2], c->i[5], c->i[6], c->i[7], c->i[8], c->i[3], c->i[4],
                    c->size[last], c->arg[1].stride[last], c->arg[2].stride[last], c->arg[0].stride[last], 0};
}

pln_Status PLK(matmul)(const pln_Call *c) {
  pln_Gemm g = gemm_of(c);
  if (PLN_LIKELY(c->ndim == 1))
    multiply((pln_DType)c->arg[0].dtype, pln_cpu_threads(c), &g, c->arg[0].data, c->arg[1].data, c->arg[2].data);
  else
    PLN_TRY(all_outer(c, &g));
  if (PLN_UNLIKELY(pln_threads_stopped(pln_cpu_threads(c)))) return pln_fail(PLN_EINTERRUPT, "matmul: interrupted");
  return PLN_LIKELY(c->nin == 2 && c->f[1] == 1) ? PLN_OK : finish(c);
}

/* --- small ones ------------------------------------------------------------------------------------- */

#define SMALL(T, S)                                                                                                        \
  static pln_Status small_block_##S(pln_Small *s) {                                                                        \
    s->gemm.block_##S(&s->gemm.g, s->gemm.part, s->gemm.a, s->gemm.b, s->gemm.c);                                          \
    return PLN_OK;                                                                                                         \
  }                                                                                                                        \
  static pln_Status small_gemm_##S(pln_Small *s) {                                                                         \
    pln_gemm_##S(NULL, &s->gemm.g, s->gemm.a, s->gemm.b, s->gemm.c);                                                       \
    return PLN_OK;                                                                                                         \
  }
SMALL(float, f32)
SMALL(double, f64)
#undef SMALL

#define ONE_THREAD 32768 /* multiply-adds that are less than what is worth a thread */

void PLK(small_matmul)(pln_Small *s) {
  const pln_Call *c = s->call;
  bool single = c->arg[0].dtype == PLN_F32;
  if (c->ndim != 1 || c->nin != 2 || c->f[1] != 1 || !pln_dtype_is_float((pln_DType)c->arg[0].dtype)) return;
  pln_Gemm g = gemm_of(c);
  if ((double)g.m * (double)g.n * (double)g.k * (double)g.batch > ONE_THREAD) return;
  s->gemm.g = g;
  s->gemm.c = c->arg[0].data;
  s->gemm.a = c->arg[1].data;
  s->gemm.b = c->arg[2].data;
  s->run = single ? small_gemm_f32 : small_gemm_f64;
  if (!pln_gemm_is_plain(&g) || g.bs1 != 1) return;
  if (single && (s->gemm.block_f32 = pln_gemm_table()->f32.block(&g, &s->gemm.part))) s->run = small_block_f32;
  if (!single && (s->gemm.block_f64 = pln_gemm_table()->f64.block(&g, &s->gemm.part))) s->run = small_block_f64;
}
