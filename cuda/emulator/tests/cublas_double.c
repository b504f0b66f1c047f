/* SPDX-License-Identifier: MIT
** cublas_double.c -- stands in for cuBLAS on the emulated device, for spec/cuda_blas_spec.lua: the functions that cuda/blas.cu uses.
**
** Stricter than the original where that says nothing: a product without a workspace of the caller's, which would allocate, fails. Turned
** operands are added up from the other end, so that nobody can count on the bits of another layout. CUBLAS_DOUBLE="what=number,..." sets
** `major` (version), `create`, `workspace`, `product` (status to fail with).
*/
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "../control.h"

#define SHOWN __attribute__((visibility("default")))

enum { SUCCESS = 0, INVALID_VALUE = 7, EXECUTION_FAILED = 13, INTERNAL_ERROR = 14 };
enum { PLAIN, TURNED };
enum { TF32 = 3 };

typedef struct Handle {
  void *stream, *workspace;
  int math;
} Handle;

typedef struct Product {
  int turned_a, turned_b, tf32;
  int64_t m, n, k, lda, ldb, ldc, step_a, step_b, step_c, count;
  double alpha, beta;
  const void *a, *b;
  void *c;
} Product;

static plemu_Submit submit;
static long products, batches;

SHOWN void plemu_library(plemu_Submit given) { submit = given; }
/* Calls so far: of one product, of several. */
SHOWN long cublas_double_products(void) { return products; }
SHOWN long cublas_double_batches(void) { return batches; }

static int setting(const char *what, int otherwise) {
  const char *all = getenv("CUBLAS_DOUBLE"), *at = all ? strstr(all, what) : NULL;
  return at && at[strlen(what)] == '=' ? atoi(at + strlen(what) + 1) : otherwise;
}

SHOWN int cublasGetProperty(int type, int *value) {
  *value = type == 0 ? setting("major", 13) : type == 1 ? 1 : 0;
  return SUCCESS;
}

SHOWN const char *cublasGetStatusName(int status) {
  return status == INVALID_VALUE      ? "CUBLAS_STATUS_INVALID_VALUE"
         : status == EXECUTION_FAILED ? "CUBLAS_STATUS_EXECUTION_FAILED"
         : status == INTERNAL_ERROR   ? "CUBLAS_STATUS_INTERNAL_ERROR"
                                      : "CUBLAS_STATUS_OF_ANOTHER_KIND";
}

SHOWN int cublasCreate_v2(Handle **handle_p) {
  int status = setting("create", SUCCESS);
  if (status == SUCCESS && !(*handle_p = calloc(1, sizeof **handle_p))) status = INTERNAL_ERROR;
  return status;
}

SHOWN int cublasDestroy_v2(Handle *h) {
  free(h);
  return SUCCESS;
}

/* The workspace goes with the stream. */
SHOWN int cublasSetStream_v2(Handle *h, void *stream) {
  h->stream = stream;
  h->workspace = NULL;
  return SUCCESS;
}

SHOWN int cublasSetWorkspace_v2(Handle *h, void *workspace, size_t bytes) {
  if (!workspace || (uintptr_t)workspace % 256 || !bytes) return INVALID_VALUE;
  h->workspace = workspace;
  return setting("workspace", SUCCESS);
}

SHOWN int cublasSetMathMode(Handle *h, int mode) {
  h->math = mode;
  return SUCCESS;
}

/* 10 bits after the point. */
static float to_tf32(float x) {
  uint32_t bits;
  memcpy(&bits, &x, sizeof bits);
  bits = (bits + 0x1000) & ~UINT32_C(0x1fff);
  memcpy(&x, &bits, sizeof x);
  return x;
}

#define RUN(T, run, round)                                                                            \
  static void run(void *data) {                                                                       \
    const Product *p = data;                                                                          \
    for (int64_t at = 0; at < p->count; at++) {                                                       \
      const T *a = (const T *)p->a + at * p->step_a, *b = (const T *)p->b + at * p->step_b;            \
      T *c = (T *)p->c + at * p->step_c;                                                              \
      for (int64_t j = 0; j < p->n; j++)                                                              \
        for (int64_t i = 0; i < p->m; i++) {                                                          \
          T sum = 0;                                                                                  \
          for (int64_t q = 0; q < p->k; q++) {                                                        \
            int64_t l = p->turned_a ? p->k - 1 - q : q;                                               \
            T x = a[p->turned_a ? i * p->lda + l : l * p->lda + i];                                   \
            T y = b[p->turned_b ? l * p->ldb + j : j * p->ldb + l];                                   \
            sum += round(x) * round(y);                                                               \
          }                                                                                           \
          T *to = c + j * p->ldc + i;                                                                 \
          *to = (T)p->alpha * sum + (p->beta != 0 ? (T)p->beta * *to : 0);                            \
        }                                                                                             \
    }                                                                                                 \
  }

#define OF_F32(x) (p->tf32 ? to_tf32(x) : (x))
#define OF_F64(x) (x)
RUN(float, run_f32, OF_F32)
RUN(double, run_f64, OF_F64)

/* What NVIDIA's refuses is refused; a product waits for its turn on the stream. */
static int start(Handle *h, const char *name, void (*run)(void *), Product p) {
  const int64_t rows_a = p.turned_a ? p.k : p.m, rows_b = p.turned_b ? p.n : p.k;
  if (p.m < 0 || p.n < 0 || p.k < 0 || p.count < 0) return INVALID_VALUE;
  if (p.lda < (rows_a > 1 ? rows_a : 1) || p.ldb < (rows_b > 1 ? rows_b : 1) || p.ldc < (p.m > 1 ? p.m : 1)) return INVALID_VALUE;
  if (!h->stream || !h->workspace) return INTERNAL_ERROR;
  if (setting("product", SUCCESS) != SUCCESS) return setting("product", SUCCESS);
  Product *kept = malloc(sizeof *kept);
  if (!kept) return INTERNAL_ERROR;
  p.tf32 = h->math == TF32;
  *kept = p;
  const void *pointers[] = {p.a, p.b, p.c};
  return submit(h->stream, name, run, kept, free, pointers, 3) == 0 ? SUCCESS : EXECUTION_FAILED;
}

#define PRODUCTS(T, one, many, run)                                                                                                       \
  SHOWN int one(Handle *h, int ta, int tb, int64_t m, int64_t n, int64_t k, const T *alpha, const T *a, int64_t lda, const T *b,         \
                int64_t ldb, const T *beta, T *c, int64_t ldc) {                                                                          \
    products++;                                                                                                                           \
    return start(h, #one, run, (Product){ta, tb, 0, m, n, k, lda, ldb, ldc, 0, 0, 0, 1, *alpha, *beta, a, b, c});                         \
  }                                                                                                                                       \
  SHOWN int many(Handle *h, int ta, int tb, int64_t m, int64_t n, int64_t k, const T *alpha, const T *a, int64_t lda, long long step_a,  \
                 const T *b, int64_t ldb, long long step_b, const T *beta, T *c, int64_t ldc, long long step_c, int64_t count) {          \
    batches++;                                                                                                                            \
    return start(h, #many, run, (Product){ta, tb, 0, m, n, k, lda, ldb, ldc, step_a, step_b, step_c, count, *alpha, *beta, a, b, c});     \
  }
PRODUCTS(float, cublasSgemm_v2_64, cublasSgemmStridedBatched_64, run_f32)
PRODUCTS(double, cublasDgemm_v2_64, cublasDgemmStridedBatched_64, run_f64)
