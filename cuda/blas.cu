/* SPDX-License-Identifier: MIT
** blas.cu -- products of floats through cuBLAS, which is looked for when the first engine is opened and never linked.
**
** cuBLAS counts in columns. A result whose rows are contiguous is, read by columns, its transpose, so that b^T a^T is asked for; a turned result is
** asked for as it is. What it cannot take, and everything where there is no library, is the tiled kernel's. The workspace is the engine's and there
** from the start: captures allocate nothing, and one stream with one workspace makes the same bits of the same call (C10).
*/
#include "kernels/kernel.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <type_traits>

#if __has_include(<cublas_v2.h>)
#include <cublas_v2.h>
#else /* what is used of it, by its names */
typedef struct cublasContext *cublasHandle_t;
typedef enum { CUBLAS_STATUS_SUCCESS = 0 } cublasStatus_t;
typedef enum { CUBLAS_OP_N = 0, CUBLAS_OP_T = 1 } cublasOperation_t;
typedef enum { CUBLAS_DEFAULT_MATH = 0, CUBLAS_TF32_TENSOR_OP_MATH = 3 } cublasMath_t;
#endif
#if PLN_CUDA_EMULATED
#include "emulator/control.h"
#endif

namespace {

#define OLDEST 12                            /* major version: the first whose sizes have 64 bits */
#define WORKSPACE ((size_t)32 << 20)         /* bytes; what NVIDIA advises from sm_90 on */
#define SMALL 32768                          /* multiplications that one tile of the own kernel has done before cuBLAS has chosen a kernel */
#define MOST_CALLS 64                        /* for one product whose batches do not lie evenly */

template <class T> using Gemm = cublasStatus_t (*)(cublasHandle_t, cublasOperation_t, cublasOperation_t, int64_t, int64_t, int64_t, const T *, const T *,
                                                   int64_t, const T *, int64_t, const T *, T *, int64_t);
template <class T> using GemmBatched = cublasStatus_t (*)(cublasHandle_t, cublasOperation_t, cublasOperation_t, int64_t, int64_t, int64_t, const T *,
                                                          const T *, int64_t, long long, const T *, int64_t, long long, const T *, T *, int64_t,
                                                          long long, int64_t);

template <class T> struct Functions {
  Gemm<T> one;
  GemmBatched<T> many;
};

struct Library {
  cublasStatus_t (*property)(libraryPropertyType, int *);
  const char *(*status_name)(cublasStatus_t);
  cublasStatus_t (*create)(cublasHandle_t *);
  cublasStatus_t (*destroy)(cublasHandle_t);
  cublasStatus_t (*set_stream)(cublasHandle_t, cudaStream_t);
  cublasStatus_t (*set_workspace)(cublasHandle_t, void *, size_t);
  cublasStatus_t (*set_math)(cublasHandle_t, cublasMath_t);
  Functions<float> f32;
  Functions<double> f64;
  bool usable;
  char state[320]; /* name and version, or why it is not usable */
};

#if __has_include(<cublas_v2.h>)
#define SAME(member, function) static_assert(std::is_same<decltype(((Library *)0)->member), decltype(&function)>::value, #function)
SAME(property, cublasGetProperty);
SAME(status_name, cublasGetStatusName);
SAME(create, cublasCreate_v2);
SAME(destroy, cublasDestroy_v2);
SAME(set_stream, cublasSetStream_v2);
SAME(set_workspace, cublasSetWorkspace_v2);
SAME(set_math, cublasSetMathMode);
SAME(f32.one, cublasSgemm_v2_64);
SAME(f64.one, cublasDgemm_v2_64);
SAME(f32.many, cublasSgemmStridedBatched_64);
SAME(f64.many, cublasDgemmStridedBatched_64);
#endif

/* --- finding it ----------------------------------------------------------------------------------- */

/* dlsym's result as the function it is; keeps the first name that was missing. */
template <class F> void find(void *file, const char *name, F *function_p, const char **missing_p) {
  void *symbol = dlsym(file, name);
  static_assert(sizeof symbol == sizeof *function_p, "a function's address");
  memcpy(function_p, &symbol, sizeof symbol);
  if (!symbol && !*missing_p) *missing_p = name;
}

void find_all(void *file, Library *l, const char **missing_p) {
  find(file, "cublasGetProperty", &l->property, missing_p);
  find(file, "cublasGetStatusName", &l->status_name, missing_p);
  find(file, "cublasCreate_v2", &l->create, missing_p);
  find(file, "cublasDestroy_v2", &l->destroy, missing_p);
  find(file, "cublasSetStream_v2", &l->set_stream, missing_p);
  find(file, "cublasSetWorkspace_v2", &l->set_workspace, missing_p);
  find(file, "cublasSetMathMode", &l->set_math, missing_p);
  find(file, "cublasSgemm_v2_64", &l->f32.one, missing_p);
  find(file, "cublasDgemm_v2_64", &l->f64.one, missing_p);
  find(file, "cublasSgemmStridedBatched_64", &l->f32.many, missing_p);
  find(file, "cublasDgemmStridedBatched_64", &l->f64.many, missing_p);
}

/* The file that PERILUNE_CUBLAS names, or the newest of those that are known; NULL with a text in `state`. */
void *open_file(Library *l, const char **name_p) {
  static const char *const known[] = {"libcublas.so.13", "libcublas.so.12"};
  const char *wanted = getenv("PERILUNE_CUBLAS");
  if (wanted && strcmp(wanted, "off") == 0) {
    snprintf(l->state, sizeof l->state, "PERILUNE_CUBLAS is off");
    return NULL;
  }
  if (wanted && *wanted) {
    void *file = dlopen(*name_p = wanted, RTLD_NOW | RTLD_LOCAL);
    if (!file) snprintf(l->state, sizeof l->state, "%s", dlerror());
    return file;
  }
  for (const char *name : known) {
    if (PLN_CUDA_EMULATED) break;
    void *file = dlopen(*name_p = name, RTLD_NOW | RTLD_LOCAL);
    if (file) return file;
  }
  if (PLN_CUDA_EMULATED) snprintf(l->state, sizeof l->state, "the emulated device has no cuBLAS");
  else snprintf(l->state, sizeof l->state, "cuBLAS was not found: %s", dlerror());
  return NULL;
}

/* A library stays loaded. */
Library load() {
  Library l = {};
  const char *name = NULL, *missing = NULL;
  int version[3] = {0, 0, 0};
  void *file = open_file(&l, &name);
  if (!file) return l;
  find_all(file, &l, &missing);
  for (int i = 0; i < 3 && l.property; i++) (void)l.property((libraryPropertyType)i, &version[i]); /* major, minor, patch */
  if (l.property && version[0] < OLDEST) {
    snprintf(l.state, sizeof l.state, "wrong version: %s is cuBLAS %d.%d.%d, %d or later is needed", name, version[0], version[1], version[2], OLDEST);
    return l;
  }
  if (missing) {
    snprintf(l.state, sizeof l.state, "%s has no function %s", name, missing);
    return l;
  }
  /* what stands in for cuBLAS on the emulated device asks for the emulator's streams, and NVIDIA's would take them for its own */
  void *symbol = dlsym(file, "plemu_library");
  if ((symbol != NULL) != PLN_CUDA_EMULATED) {
    snprintf(l.state, sizeof l.state, "%s is for the %s device", name, symbol ? "emulated" : "real");
    return l;
  }
#if PLN_CUDA_EMULATED
  plemu_Library attach;
  memcpy(&attach, &symbol, sizeof attach);
  attach(plemu_submit);
#endif
  snprintf(l.state, sizeof l.state, "cuBLAS %d.%d.%d (%s)", version[0], version[1], version[2], name);
  l.usable = true;
  return l;
}

const Library &library() {
  static const Library l = load();
  return l;
}

template <class T> Functions<T> functions();
template <> Functions<float> functions() { return library().f32; }
template <> Functions<double> functions() { return library().f64; }

}  // namespace

/* --- the engine's handle -------------------------------------------------------------------------- */

static pln_Status blas_check(cublasStatus_t status, const char *what) {
  if (PLN_LIKELY(status == CUBLAS_STATUS_SUCCESS)) return PLN_OK;
  (void)cudaGetLastError(); /* else the next launch would report it again */
  return pln_fail(PLN_EDEVICE, "%s: %s", what, library().status_name(status));
}

/* Binds the handle to the device's present stream, which is another while a graph is recorded. */
static pln_Status bind(pld_Device *d) {
  cublasHandle_t handle = (cublasHandle_t)d->blas;
  PLN_TRY(blas_check(library().set_stream(handle, d->stream), "cublasSetStream"));
  /* after the stream, which brings a workspace of cuBLAS's own */
  PLN_TRY(blas_check(library().set_workspace(handle, d->workspace, WORKSPACE), "cublasSetWorkspace"));
  d->blas_stream = d->stream;
  return PLN_OK;
}

static pln_Status open_handle(pld_Device *d, bool tf32) {
  const Library &l = library();
  cublasHandle_t handle = NULL;
  PLN_TRY(blas_check(l.create(&handle), "cublasCreate"));
  d->blas = handle;
  if (WORKSPACE > d->budget - d->bytes) return pln_fail(PLN_ENOMEM, "its workspace of %zu bytes is beyond the memory budget", WORKSPACE);
  PLN_TRY(pld_check(cudaMalloc((void **)&d->workspace, WORKSPACE), "its workspace"));
  d->bytes += WORKSPACE;
  PLN_TRY(bind(d));
  return blas_check(l.set_math(handle, tf32 ? CUBLAS_TF32_TENSOR_OP_MATH : CUBLAS_DEFAULT_MATH), "cublasSetMathMode");
}

void pld_blas_open(pld_Device *d, bool tf32) {
  const Library &l = library();
  if (l.usable && open_handle(d, tf32) == PLN_OK) {
    snprintf(d->products, sizeof d->products, "%s%s", l.state, tf32 ? ", TF32" : "");
    return;
  }
  snprintf(d->products, sizeof d->products, "own kernel: %s%s%s", l.state, l.usable ? ": " : "", l.usable ? pln_error() : "");
  pld_blas_close(d);
}

void pld_blas_close(pld_Device *d) {
  if (d->blas) (void)library().destroy((cublasHandle_t)d->blas);
  if (d->workspace) {
    (void)cudaFree(d->workspace);
    d->bytes -= WORKSPACE;
  }
  d->blas = NULL;
  d->workspace = NULL;
}

/* --- products ------------------------------------------------------------------------------------- */

namespace {

/* One matrix of a product as cuBLAS reads it. */
struct Operand {
  const char *data;
  cublasOperation_t turned;
  int64_t ld;
  const int64_t *batch; /* strides */
};

/* x (rows x columns) with these strides: by columns as it is or turned. Of a single row or column the other stride is nobody's business. */
bool describe(Operand *x, int64_t rows, int64_t columns, int64_t by_row, int64_t by_column) {
  if ((by_row == 1 || rows == 1) && (by_column >= rows || columns == 1)) {
    x->turned = CUBLAS_OP_N;
    x->ld = columns == 1 ? rows : by_column;
    return true;
  }
  if ((by_column == 1 || columns == 1) && (by_row >= columns || rows == 1)) {
    x->turned = CUBLAS_OP_T;
    x->ld = rows == 1 ? columns : by_row;
    return true;
  }
  return false;
}

struct Plan {
  int64_t m, n, k;
  Operand x, y, out; /* out = x y, by columns */
  int along;         /* the dim of the batches that one call goes through */
  int64_t calls;
};

/* The product as it is, or (turn) its transpose. */
bool plan_product(const pln_Call *c, bool turn, Plan *p) {
  const int64_t *i = c->i;
  const pln_Arg *out = &c->arg[0], *a = &c->arg[1], *b = &c->arg[2];
  p->m = turn ? i[1] : i[0];
  p->n = turn ? i[0] : i[1];
  p->k = i[2];
  p->x.data = turn ? b->data : a->data;
  p->y.data = turn ? a->data : b->data;
  p->out.data = out->data;
  p->x.batch = turn ? b->stride : a->stride;
  p->y.batch = turn ? a->stride : b->stride;
  p->out.batch = out->stride;
  return (turn ? describe(&p->out, p->m, p->n, i[4], i[3]) : describe(&p->out, p->m, p->n, i[3], i[4])) && p->out.turned == CUBLAS_OP_N &&
         (turn ? describe(&p->x, p->m, p->k, i[8], i[7]) : describe(&p->x, p->m, p->k, i[5], i[6])) &&
         (turn ? describe(&p->y, p->k, p->n, i[6], i[5]) : describe(&p->y, p->k, p->n, i[7], i[8]));
}

/* One call goes through the largest dim of the batches; the others are counted through by the host. */
bool plan_batches(const pln_Call *c, Plan *p) {
  p->along = 0;
  for (int d = 0; d < c->ndim; d++) {
    if (c->size[d] > c->size[p->along]) p->along = d;
    for (int k = 0; k < 3; k++)
      if (c->arg[k].stride[d] < 0) return false;
  }
  p->calls = c->numel / c->size[p->along];
  return p->calls <= MOST_CALLS;
}

/* Puts the addend where the result comes. */
struct Preload {
  char *out;
  const char *add;
  int64_t m, n, batch, os0, os1, cs0, cs1;
  pld_Layout<4> layout; /* of batches: out, a, b, addend */
};

template <class T> __global__ void __launch_bounds__(PLC_THREADS) preload_kernel(const Preload p) {
  for (int64_t at = pld_thread(); at < p.m * p.n * p.batch; at += pld_threads()) {
    const int64_t column = at % p.n, row = at / p.n % p.m;
    int64_t base[4];
    p.layout.find(at / p.n / p.m, base);
    ((T *)p.out)[base[0] + row * p.os0 + column * p.os1] = ((const T *)p.add)[base[3] + row * p.cs0 + column * p.cs1];
  }
}

template <class T> pln_Status preload(const pln_Call *c) {
  Preload p;
  memset(&p, 0, sizeof p);
  p.out = c->arg[0].data;
  p.add = c->arg[3].data;
  p.m = c->i[0], p.n = c->i[1], p.batch = c->numel;
  p.os0 = c->i[3], p.os1 = c->i[4], p.cs0 = c->i[9], p.cs1 = c->i[10];
  p.layout = pld_layout<4>(c, c->ndim);
  PLD_LAUNCH(c, (preload_kernel<T>), pld_blocks(c, p.m * p.n * p.batch, PLC_THREADS), PLC_THREADS, 0, p);
  return PLN_OK;
}

/* One call to cuBLAS: from these elements on, through the batches along one dim. */
template <class T> pln_Status call_blas(const pln_Call *c, const Plan &p, const T *x, const T *y, T *out) {
  cublasHandle_t handle = (cublasHandle_t)pld_device(c)->blas;
  const Functions<T> f = functions<T>();
  const T alpha = (T)c->f[1], beta = c->nin > 2 ? (T)c->f[0] : T(0);
  const int64_t count = c->size[p.along];
  const cublasStatus_t status =
      count == 1 ? f.one(handle, p.x.turned, p.y.turned, p.m, p.n, p.k, &alpha, x, p.x.ld, y, p.y.ld, &beta, out, p.out.ld)
                 : f.many(handle, p.x.turned, p.y.turned, p.m, p.n, p.k, &alpha, x, p.x.ld, p.x.batch[p.along], y, p.y.ld, p.y.batch[p.along], &beta, out,
                          p.out.ld, p.out.batch[p.along], count);
  if (PLN_LIKELY(status == CUBLAS_STATUS_SUCCESS)) return PLN_OK;
  (void)cudaGetLastError(); /* else the next launch would report it again */
  return pln_fail(PLN_EDEVICE, "%s: cuBLAS's product of %lld x %lld x %lld: %s", pld_op_name(c), (long long)c->i[0], (long long)c->i[1],
                  (long long)p.k, library().status_name(status));
}

/* A graph is to be recorded, and cuBLAS loads a kernel when it first runs it, too late in a capture: the product is made once, into memory
** that nobody reads. */
template <class T> pln_Status load_product(const pln_Call *c, const Plan &p) {
  pld_Device *d = pld_device(c);
  const int64_t elements = (c->size[p.along] - 1) * p.out.batch[p.along] + (p.n - 1) * p.out.ld + p.m;
  T *out;
  PLN_TRY(pld_check(cudaMallocAsync((void **)&out, (size_t)elements * sizeof(T), d->stream), pld_op_name(c)));
  pln_Status status = call_blas(c, p, (const T *)p.x.data, (const T *)p.y.data, out);
  cudaError_t error = cudaFreeAsync(out, d->stream);
  return status == PLN_OK ? pld_check(error, "cudaFreeAsync") : status;
}

template <class T> pln_Status multiply(const pln_Call *c, const Plan &p) {
  pld_Device *d = pld_device(c);
  if (PLN_UNLIKELY(d->blas_stream != d->stream)) PLN_TRY(bind(d));
  if (c->nin > 2) PLN_TRY(preload<T>(c));
  if (PLN_UNLIKELY(d->loading)) return load_product<T>(c, p);
  for (int64_t call = 0; call < p.calls; call++) {
    int64_t rest = call, x0 = 0, y0 = 0, out0 = 0;
    for (int dim = c->ndim - 1; dim >= 0; dim--) {
      if (dim == p.along) continue;
      const int64_t at = rest % c->size[dim];
      rest /= c->size[dim];
      x0 += at * p.x.batch[dim];
      y0 += at * p.y.batch[dim];
      out0 += at * p.out.batch[dim];
    }
    PLN_TRY(call_blas(c, p, (const T *)p.x.data + x0, (const T *)p.y.data + y0, (T *)p.out.data + out0));
  }
  return PLN_UNLIKELY(d->debug) ? pld_check(cudaStreamSynchronize(d->stream), pld_op_name(c)) : PLN_OK;
}

}  // namespace

pln_Status pld_blas_matmul(const pln_Call *c, bool *done_p) {
  const pln_DType dtype = (pln_DType)c->arg[0].dtype;
  Plan p;
  *done_p = false;
  if (!pld_device(c)->blas || (dtype != PLN_F32 && dtype != PLN_F64)) return PLN_OK;
  /* without a term, or times 0, cuBLAS would not look at values that may be NaN */
  if (c->i[2] == 0 || c->f[1] == 0 || (double)c->i[0] * (double)c->i[1] * (double)c->i[2] * (double)c->numel <= SMALL) return PLN_OK;
  if ((c->i[0] == 1 && c->i[1] == 1) || !(plan_product(c, true, &p) || plan_product(c, false, &p)) || !plan_batches(c, &p)) return PLN_OK;
  *done_p = true;
  return dtype == PLN_F32 ? multiply<float>(c, p) : multiply<double>(c, p);
}
