/* SPDX-License-Identifier: MIT
** blas.c - another library's matrix product, if it is asked for and gives the same bits.
**
** The library lives in somebody's process: one that the host program uses already is not told how
** many threads to run, and the threads that a library starts while loading have signals blocked.
*/
#include "blas.h"

#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/gemm_kernel.h"

static pthread_once_t once = PTHREAD_ONCE_INIT;
static pln_Blas blas;
static char state[512];

/* Blocks as the driver makes them, small and large, of one term and many. */
static const int trials[][3] = {
  { 64, 64, 1 },   { 64, 64, 256 },  { 64, 128, 7 },   { 96, 104, 255 },  { 104, 96, 100 },
  { 72, 512, 128 }, { 512, 64, 33 }, { 136, 248, 256 }, { 256, 320, 19 }, { 512, 512, 256 },
};

/* Both operands plain and turned, C overwritten (whatever it holds) and added to: the same bits as
** the own kernel, or the library is of no use. */
#define TRY(T, TYPE)                                                                               \
  static bool try_##TYPE (int m, int n, int k) {                                                   \
    size_t an = (size_t)m * (size_t)k, bn = (size_t)k * (size_t)n, cn = (size_t)m * (size_t)n;     \
    T *a = malloc((2 * (an + bn) + 3 * cn) * sizeof(T));                                           \
    if (a == NULL) return false;                                                                   \
    T *at = a + an, *b = at + an, *bt = b + bn, *own = bt + bn, *c = own + cn, *old = c + cn;      \
    uint32_t x = 12345;                                                                            \
    for (int i = 0; i < m; i++)                                                                    \
      for (int p = 0; p < k; p++)                                                                  \
        a[i * k + p] = at[p * m + i] = (T)(int32_t)(x = x * 1664525u + 1013904223u) / 1234567;     \
    for (int p = 0; p < k; p++)                                                                    \
      for (int j = 0; j < n; j++)                                                                  \
        b[p * n + j] = bt[j * k + p] = (T)(int32_t)(x = x * 1664525u + 1013904223u) / 1234567;     \
    for (size_t i = 0; i < cn; i++) old[i] = (T)(int32_t)(x = x * 1664525u + 1013904223u);         \
    bool same = true;                                                                              \
    for (int way = 0; way < 8 && same; way++) {                                                    \
      bool ta = way & 1, tb = way & 2, add = way & 4;                                              \
      memcpy(own, old, cn * sizeof(T));                                                            \
      pln_Gemm g = { m, n, k, k, 1, n, 1, n, 1, 1, 0, 0, 0, add };                                 \
      pln_gemm_table()->TYPE.direct(&g, a, b, own);                                                \
      if (add) memcpy(c, old, cn * sizeof(T));                                                     \
      else memset(c, 0xff, cn * sizeof(T)); /* NaN */                                              \
      blas.TYPE(PLN_BLAS_ROWS, ta ? PLN_BLAS_TURNED : PLN_BLAS_PLAIN,                              \
                tb ? PLN_BLAS_TURNED : PLN_BLAS_PLAIN, m, n, k, 1, ta ? at : a, ta ? m : k,        \
                tb ? bt : b, tb ? k : n, add, c, n);                                               \
      same = memcmp(c, own, cn * sizeof(T)) == 0;                                                  \
    }                                                                                              \
    free(a);                                                                                       \
    return same;                                                                                   \
  }                                                                                                \
  /* Appends the verdict to the state. */                                                          \
  static void judge_##TYPE (void) {                                                                \
    size_t used = strlen(state);                                                                   \
    for (size_t i = 0; i < sizeof trials / sizeof *trials && blas.TYPE != NULL; i++)               \
      if (!try_##TYPE(trials[i][0], trials[i][1], trials[i][2])) {                                 \
        snprintf(state + used, sizeof state - used,                                                \
                 ", " #TYPE " refused: other bits than the own kernel at %d x %d x %d",            \
                 trials[i][0], trials[i][1], trials[i][2]);                                        \
        blas.TYPE = NULL;                                                                          \
        return;                                                                                    \
      }                                                                                            \
    snprintf(state + used, sizeof state - used, ", " #TYPE " %s",                                  \
             blas.TYPE != NULL ? "used" : "missing");                                              \
  }

TRY(float, f32)
TRY(double, f64)

/* dlsym's result as the function it is. */
static void find (void *library, const char *name, void *function_p) {
  void *symbol = dlsym(library, name);
  memcpy(function_p, &symbol, sizeof symbol);
}

static void load (void) {
  const char *wanted = getenv("PERILUNE_BLAS");
  if (wanted == NULL || *wanted == '\0' || strcmp(wanted, "0") == 0) {
    snprintf(state, sizeof state, "own kernels; PERILUNE_BLAS asks for no other");
    return;
  }
  const char *name = strcmp(wanted, "1") == 0 ? "libopenblas.so.0" : wanted;
  sigset_t all, old;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &old);
  bool hosts = true;
  void *library = dlopen(name, RTLD_NOW | RTLD_NOLOAD);
  if (library == NULL) {
    hosts = false;
    library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
  }
  pthread_sigmask(SIG_SETMASK, &old, NULL);
  if (library == NULL) {
    const char *why = dlerror();
    snprintf(state, sizeof state, "own kernels; not loaded: %s", why != NULL ? why : name);
    return;
  }
  void (*set_threads)(int);
  int (*get_threads)(void);
  char *(*config)(void), *(*core)(void);
  find(library, "openblas_set_num_threads", &set_threads);
  find(library, "openblas_get_num_threads", &get_threads);
  find(library, "openblas_get_config", &config);
  find(library, "openblas_get_corename", &core);
  if (config != NULL && strstr(config(), "USE64BITINT") != NULL) {
    snprintf(state, sizeof state, "own kernels; %s refused: its integers have 64 bits", name);
    return;
  }
  if (!hosts && set_threads != NULL) set_threads(1);
  if (hosts && get_threads != NULL && get_threads() != 1) {
    snprintf(state, sizeof state, "own kernels; %s refused: the host program runs it with %d threads",
             name, get_threads());
    return;
  }
  find(library, "cblas_sgemm", &blas.f32);
  find(library, "cblas_dgemm", &blas.f64);
  snprintf(state, sizeof state, "%s (%s)", name, core != NULL ? core() : "unknown kind");
  judge_f32();
  judge_f64();
}

const pln_Blas *pln_blas_get (void) {
  pthread_once(&once, load);
  return &blas;
}

const char *pln_blas_state (void) {
  pln_blas_get();
  return state;
}
