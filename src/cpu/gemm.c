/* SPDX-License-Identifier: MIT
** gemm.c - the matrix product on the host: choice of kernels, scratch memory, integers.
**
** The drivers for f32 and f64 are gemm_float.h.  See gemm.h for the order of additions, which is the
** one rule that all of this keeps.
*/
#include "gemm.h"

#include <limits.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "blas.h"
#include "kernels/gemm_kernel.h"

/* Sizes found by measuring; they decide about speed, never about bits. */
#define PACK_WORK 2e7          /* m n k from which packing pays */
#define PACK_SIDE 12           /* ... and the least m and n */
#define PACK_DEPTH 16          /* ... and k */
#define PACK_ROWS 4096         /* of A packed at once */
#define PACK_COLS 2048         /* of B packed at once */
#define TASK_ROWS 168          /* of a task: its panels of A stay in the second-level cache */
#define TASK_COLS 256
#define PANELS 4               /* packed by one task */
#define PARALLEL_WORK 1e6      /* m n k that is worth waking a thread for */
#define BATCH_WORK 2e7         /* products below this are shared out whole */
#define BLAS_WORK 2e6          /* m n k from which another library may be worth its call */
#define COPY_ROWS 48           /* rows of A from which a copy of B can be worth while */
#define COPY_BYTES 1024        /* ... when its rows are so far apart */
#define CUT_ROWS 128           /* of a task that packs nothing */
#define CUT_COLS 128
#define FLAT_ROWS 16           /* with fewer rows, tasks have more columns */
#define FLAT_COLS 512
#define SPREAD 64              /* side of a block on its way to a C without contiguous rows */
#define MAX_MR 14
#define MAX_NR(T) (int)(128 / sizeof(T))

static int64_t least (int64_t x, int64_t y) {
  return x < y ? x : y;
}

static int64_t portions (int64_t x, int64_t size) {
  return (x + size - 1) / size;
}

/* Where portion x of count even ones begins, in steps that a BLAS is asked for. */
static int64_t share (int64_t size, int64_t count, int64_t x) {
  return size / PLN_BLAS_STEP * x / count * PLN_BLAS_STEP;
}

static const pln_GemmTable *choose_table (void) {
  const char *wanted = getenv("PERILUNE_ISA");
#ifdef __x86_64__
  int level = 2;
  __builtin_cpu_init();
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")
      && __builtin_cpu_supports("bmi") && __builtin_cpu_supports("bmi2"))
    level = 3;
  if (level == 3 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl")
      && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq")
      && __builtin_cpu_supports("avx512cd"))
    level = 4;
  if (wanted != NULL && wanted[0] == 'v' && wanted[1] >= '2' && wanted[1] - '0' < level)
    level = wanted[1] - '0';
  return level == 4 ? &pln_gemm_kernel_v4 : level == 3 ? &pln_gemm_kernel_v3 : &pln_gemm_kernel_v2;
#else
  (void)wanted;
  return &pln_gemm_kernel_base;
#endif
}

const pln_GemmTable *pln_gemm_table (void) {
  static _Atomic(const pln_GemmTable *) chosen;
  const pln_GemmTable *t = atomic_load_explicit(&chosen, memory_order_relaxed);
  if (t == NULL) {
    t = choose_table();
    atomic_store_explicit(&chosen, t, memory_order_relaxed);
  }
  return t;
}

const char *pln_gemm_isa (void) {
  return pln_gemm_table()->isa;
}

/* Panels are some megabytes, too much to ask the system for at every product: the last block is
** kept.  Who finds none takes a new one, so products in several threads never wait. */
typedef struct Scratch {
  size_t size;
  _Alignas(64) char bytes[];
} Scratch;

static _Atomic(Scratch *) spare;

static void *take_scratch (size_t size) {
  Scratch *s = atomic_exchange(&spare, NULL);
  if (s != NULL && s->size >= size) return s->bytes;
  free(s);
  size = (size + 63) & ~(size_t)63;
  s = aligned_alloc(64, sizeof *s + size);
  if (s == NULL) return NULL;
  s->size = size;
  return s->bytes;
}

static void give_scratch (void *bytes) {
  Scratch *s = (Scratch *)((char *)bytes - offsetof(Scratch, bytes));
  free(atomic_exchange(&spare, s));
}

__attribute__((destructor)) static void free_scratch (void) {
  free(atomic_exchange(&spare, NULL));
}

#define T float
#define TYPE f32
#define KERNELS pln_GemmF32
#define GEMM pln_gemm_f32
#define K(name) f32_##name
#include "gemm_float.h"

#define T double
#define TYPE f64
#define KERNELS pln_GemmF64
#define GEMM pln_gemm_f64
#define K(name) f64_##name
#include "gemm_float.h"

/* Integers: blocks of both operands are widened to 64 bits, so that one loop serves every type. */
#define SIDE 32

typedef enum Width { U8, I32, I64 } Width;

static void widen (Width width, const void *from, int64_t s0, int64_t s1, int64_t rows,
                   int64_t cols, uint64_t to[SIDE][SIDE]) {
  for (int64_t i = 0; i < rows; i++)
    for (int64_t j = 0; j < cols; j++) {
      int64_t at = i * s0 + j * s1;
      to[i][j] = width == U8 ? ((const uint8_t *)from)[at]
                 : width == I32 ? (uint64_t)((const int32_t *)from)[at]
                                : (uint64_t)((const int64_t *)from)[at];
    }
}

typedef struct Whole {
  const pln_Gemm *g;
  Width width;
  const char *a, *b;
  char *c;
  int64_t across, down;
} Whole;

static int64_t bytes_of (Width width) {
  return width == U8 ? 1 : width == I32 ? 4 : 8;
}

/* One SIDE x SIDE block of one C. */
static void whole_task (void *ctx, int64_t task) {
  const Whole *q = ctx;
  const pln_Gemm *g = q->g;
  int64_t x = task / (q->across * q->down);
  int64_t i0 = task / q->across % q->down * SIDE, m = least(g->m - i0, SIDE);
  int64_t j0 = task % q->across * SIDE, n = least(g->n - j0, SIDE);
  uint64_t a[SIDE][SIDE], b[SIDE][SIDE], sum[SIDE][SIDE];
  char *c = q->c + (x * g->cbatch + i0 * g->cs0 + j0 * g->cs1) * bytes_of(q->width);
  if (g->accumulate) widen(q->width, c, g->cs0, g->cs1, m, n, sum);
  else memset(sum, 0, sizeof sum);
  for (int64_t p0 = 0; p0 < g->k; p0 += SIDE) {
    int64_t k = least(g->k - p0, SIDE);
    widen(q->width, q->a + (x * g->abatch + i0 * g->as0 + p0 * g->as1) * bytes_of(q->width), g->as0,
          g->as1, m, k, a);
    widen(q->width, q->b + (x * g->bbatch + p0 * g->bs0 + j0 * g->bs1) * bytes_of(q->width), g->bs0,
          g->bs1, k, n, b);
    for (int64_t i = 0; i < m; i++)
      for (int64_t p = 0; p < k; p++)
        for (int64_t j = 0; j < n; j++) sum[i][j] += a[i][p] * b[p][j];
  }
  for (int64_t i = 0; i < m; i++)
    for (int64_t j = 0; j < n; j++) {
      int64_t at = i * g->cs0 + j * g->cs1;
      if (q->width == U8) ((uint8_t *)c)[at] = (uint8_t)sum[i][j];
      else if (q->width == I32) ((int32_t *)c)[at] = (int32_t)sum[i][j];
      else ((int64_t *)c)[at] = (int64_t)sum[i][j];
    }
}

static void whole (pln_Threads *pool, const pln_Gemm *g, Width width, const void *a, const void *b,
                   void *c) {
  if (g->m <= 0 || g->n <= 0 || g->batch <= 0) return;
  Whole q = { g, width, a, b, c, portions(g->n, SIDE), portions(g->m, SIDE) };
  double work = (double)g->batch * (double)g->m * (double)g->n * (double)g->k;
  pln_threads_run_polled(work < PARALLEL_WORK ? NULL : pool, g->batch * q.down * q.across, whole_task, &q);
}

void pln_gemm_u8 (pln_Threads *pool, const pln_Gemm *g, const uint8_t *a, const uint8_t *b,
                  uint8_t *c) {
  whole(pool, g, U8, a, b, c);
}

void pln_gemm_i32 (pln_Threads *pool, const pln_Gemm *g, const int32_t *a, const int32_t *b,
                   int32_t *c) {
  whole(pool, g, I32, a, b, c);
}

void pln_gemm_i64 (pln_Threads *pool, const pln_Gemm *g, const int64_t *a, const int64_t *b,
                   int64_t *c) {
  whole(pool, g, I64, a, b, c);
}
