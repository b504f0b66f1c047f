/* SPDX-License-Identifier: MIT
** create.c -- kernels eye and ramp (see ops/create.def).
*/
#include "../../scalar.h"
#include "kernel.h"

/* Names are pasted of dtypes, and C11's macro would make one of them _Bool. */
#undef bool

/* --- eye ------------------------------------------------------------------------------------------ */

#define ROWS(ID, T, S)                                                                                     \
  static void eye_##S(void *context, int64_t begin, int64_t end) {                                         \
    const pln_Arg *out = &((const pln_Call *)context)->arg[0];                                             \
    for (int64_t i = begin; i < end; i++) {                                                                \
      T *row = (T *)out->data + i * out->stride[0];                                                        \
      for (int64_t j = 0; j < out->shape[1]; j++) row[j * out->stride[1]] = 0;                             \
      if (i < out->shape[1]) row[i * out->stride[1]] = 1;                                                  \
    }                                                                                                      \
  }
PLK_EACH_DTYPE(ROWS)
#undef ROWS

pln_Status PLK(eye)(const pln_Call *c) {
  static void (*const rows[PLN_NDTYPE])(void *, int64_t, int64_t) = {
#define ROW(ID, T, S) [PLN_##ID] = eye_##S,
    PLK_EACH_DTYPE(ROW)
#undef ROW
  };
  const pln_Arg *out = &c->arg[0];
  int64_t grain = out->shape[1] < PLN_GRAIN ? PLN_GRAIN / out->shape[1] : 1;
  return pln_parallel_for(c, out->shape[0], grain, rows[out->dtype], (void *)c);
}

/* --- ramp ----------------------------------------------------------------------------------------- */

enum { BLOCK = 256 };

#define STORE(ID, T, S)                                                                                    \
  static void store_##S(char *to, int64_t at, int64_t step, const double *v, int64_t n) {                  \
    T *out = (T *)to + at * step;                                                                          \
    for (int64_t i = 0; i < n; i++) out[i * step] = pls_cast_f64_##S(v[i]);                                \
  }
PLK_EACH_DTYPE(STORE)
#undef STORE

static void (*const store[PLN_NDTYPE])(char *, int64_t, int64_t, const double *, int64_t) = {
#define ROW(ID, T, S) [PLN_##ID] = store_##S,
  PLK_EACH_DTYPE(ROW)
#undef ROW
};

/* v[k] = from + (first + k * sign) * step; the counts are whole numbers below 2^53, so exact. */
static void count(double *v, int64_t n, double from, double first, double sign, double step) {
  for (int k = 0; k < (int)n; k++) v[k] = from + (first + (double)k * sign) * step;
}

static void ramp(void *context, int64_t begin, int64_t end) {
  const pln_Call *c = context;
  const pln_Arg *out = &c->arg[0];
  double v[BLOCK];
  for (int64_t n; begin < end; begin += n) {
    int back = begin >= c->i[0];
    int64_t stop = back || end < c->i[0] ? end : c->i[0];
    n = stop - begin < BLOCK ? stop - begin : BLOCK;
    if (back)
      count(v, n, c->f[2], (double)(c->size[0] - 1 - begin), -1, -c->f[1]);
    else
      count(v, n, c->f[0], (double)begin, 1, c->f[1]);
    store[out->dtype](out->data, begin, out->stride[0], v, n);
  }
}

pln_Status PLK(ramp)(const pln_Call *c) { return pln_parallel_for(c, c->size[0], PLN_GRAIN, ramp, (void *)c); }
