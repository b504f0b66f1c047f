/* SPDX-License-Identifier: MIT
** random.c -- random numbers and dropout (src/ops/random.def). Words are made for some groups at once, lane by lane, so that the
** loops vectorize; an element's value follows from its number alone.
*/
#include "kernel.h"

#include "../../philox.h"

#define PLN_GROUPS 64 /* made at once */

typedef struct Job {
  const pln_Call *c;
  uint64_t draw;
} Job;

typedef uint32_t Words[4][PLN_GROUPS];

/* Values of `groups` groups into buf, which has room for PLN_GROUPS. */
typedef void Make(const pln_Call *c, const Words w, int groups, void *buf);

static Job job_of(const pln_Call *c, int tensors) {
  Job j = {c, (uint64_t)c->i[0]};
  if (c->nin > tensors) j.draw = (uint64_t)*(const int64_t *)pln_call_in(c, tensors)->data;
  return j;
}

static inline void make_words(const Job *j, int64_t group, int groups, Words w) {
  const uint64_t seed = (uint64_t)j->c->i[1], draw = j->draw, first = (uint64_t)group;
  for (int i = 0; i < groups; i++) {
    pln_Words p = pln_philox(seed, draw, first + (uint64_t)i);
    w[0][i] = p.w0;
    w[1][i] = p.w1;
    w[2][i] = p.w2;
    w[3][i] = p.w3;
  }
}

/* Elements [begin, end) of `size` bytes, `per` to a group; begin is a multiple of `per`. */
static inline __attribute__((always_inline)) void generate(const Job *j, int64_t begin, int64_t end, int per, int64_t size, Make *make) {
  _Alignas(64) Words w;
  _Alignas(64) char buf[PLN_GROUPS * 16];
  char *out = j->c->arg[0].data;
  for (int64_t e = begin; e < end; e += PLN_GROUPS * per) {
    int n = (int)(end - e < PLN_GROUPS * per ? end - e : PLN_GROUPS * per), groups = (n + per - 1) / per;
    make_words(j, e / per, groups, w);
    make(j->c, w, groups, buf);
    memcpy(out + e * size, buf, (size_t)(n * size));
  }
}

#define PLN_GENERATE(name, per, T)                                      \
  static void name(void *context, int64_t begin, int64_t end) {         \
    generate(context, begin, end, per, (int64_t)sizeof(T), make_##name); \
  }

/* --- rand, randn ---------------------------------------------------------------------------------- */

static void make_rand_f32(const pln_Call *c, const Words w, int groups, void *buf) {
  float *v = buf;
  (void)c;
  for (int i = 0; i < groups; i++) {
    v[4 * i] = pln_uniform_f32(w[0][i]);
    v[4 * i + 1] = pln_uniform_f32(w[1][i]);
    v[4 * i + 2] = pln_uniform_f32(w[2][i]);
    v[4 * i + 3] = pln_uniform_f32(w[3][i]);
  }
}

static void make_rand_f64(const pln_Call *c, const Words w, int groups, void *buf) {
  double *v = buf;
  (void)c;
  for (int i = 0; i < groups; i++) {
    v[2 * i] = pln_uniform_f64(w[0][i], w[1][i]);
    v[2 * i + 1] = pln_uniform_f64(w[2][i], w[3][i]);
  }
}

/* Numbers first, each lane by itself, then their order in memory. */
static void make_randn_f32(const pln_Call *c, const Words w, int groups, void *buf) {
  float *v = buf, lane[4][PLN_GROUPS];
  (void)c;
  for (int k = 0; k < 4; k += 2)
    for (int i = 0; i < groups; i++) {
      pln_NormalsF32 n = pln_normals_f32(w[k][i], w[k + 1][i]);
      lane[k][i] = n.a;
      lane[k + 1][i] = n.b;
    }
  for (int i = 0; i < groups; i++)
    for (int k = 0; k < 4; k++) v[4 * i + k] = lane[k][i];
}

static void make_randn_f64(const pln_Call *c, const Words w, int groups, void *buf) {
  double *v = buf, lane[2][PLN_GROUPS];
  (void)c;
  for (int i = 0; i < groups; i++) {
    pln_Words words = {w[0][i], w[1][i], w[2][i], w[3][i]};
    pln_NormalsF64 n = pln_normals_f64(words);
    lane[0][i] = n.a;
    lane[1][i] = n.b;
  }
  for (int i = 0; i < groups; i++) {
    v[2 * i] = lane[0][i];
    v[2 * i + 1] = lane[1][i];
  }
}

PLN_GENERATE(rand_f32, 4, float)
PLN_GENERATE(rand_f64, 2, double)
PLN_GENERATE(randn_f32, 4, float)
PLN_GENERATE(randn_f64, 2, double)

pln_Status PLK(rand)(const pln_Call *c) {
  Job j = job_of(c, 0);
  return pln_parallel_for(c, c->numel, PLN_GRAIN / 4, c->arg[0].dtype == PLN_F32 ? rand_f32 : rand_f64, &j);
}

pln_Status PLK(randn)(const pln_Call *c) {
  Job j = job_of(c, 0);
  return pln_parallel_for(c, c->numel, PLN_GRAIN / 8, c->arg[0].dtype == PLN_F32 ? randn_f32 : randn_f64, &j);
}

/* --- randint -------------------------------------------------------------------------------------- */

#define PLN_RANDINT(T, S)                                                                                                 \
  static void make_randint_##S(const pln_Call *c, const Words w, int groups, void *buf) {                                 \
    T *v = buf;                                                                                                           \
    const uint64_t lo = (uint64_t)c->i[2], n = (uint64_t)c->i[3];                                                         \
    for (int i = 0; i < groups; i++) {                                                                                    \
      v[2 * i] = (T)(int64_t)(lo + pln_below((uint64_t)w[1][i] << 32 | w[0][i], n));                                      \
      v[2 * i + 1] = (T)(int64_t)(lo + pln_below((uint64_t)w[3][i] << 32 | w[2][i], n));                                  \
    }                                                                                                                     \
  }                                                                                                                       \
  PLN_GENERATE(randint_##S, 2, T)
PLN_RANDINT(uint8_t, u8)
PLN_RANDINT(int32_t, i32)
PLN_RANDINT(int64_t, i64)
PLN_RANDINT(float, f32)
PLN_RANDINT(double, f64)
#undef PLN_RANDINT

pln_Status PLK(randint)(const pln_Call *c) {
  static void (*const loop[PLN_NDTYPE])(void *, int64_t, int64_t) = {[PLN_U8] = randint_u8, [PLN_I32] = randint_i32,
    [PLN_I64] = randint_i64, [PLN_F32] = randint_f32, [PLN_F64] = randint_f64};
  Job j = job_of(c, 0);
  return pln_parallel_for(c, c->numel, PLN_GRAIN / 4, loop[c->arg[0].dtype], &j);
}

/* --- dropout -------------------------------------------------------------------------------------- */

/* The factors of all elements of the groups, then the products. out may be x. */
#define PLN_DROPOUT(T, S)                                                                                                 \
  static void dropout_##S(void *context, int64_t begin, int64_t end) {                                                    \
    const Job *j = context;                                                                                               \
    const pln_Call *c = j->c;                                                                                             \
    const uint32_t threshold = (uint32_t)c->i[2];                                                                         \
    const T kept = (T)c->f[0];                                                                                            \
    _Alignas(64) Words w;                                                                                                 \
    _Alignas(64) T factor[PLN_GROUPS * 4];                                                                                \
    for (int64_t e = begin; e < end; e += PLN_GROUPS * 4) {                                                               \
      int n = (int)(end - e < PLN_GROUPS * 4 ? end - e : PLN_GROUPS * 4), groups = (n + 3) / 4;                           \
      make_words(j, e / 4, groups, w);                                                                                    \
      for (int i = 0; i < groups; i++) {                                                                                  \
        factor[4 * i] = pln_kept(w[0][i], threshold) ? kept : 0;                                                          \
        factor[4 * i + 1] = pln_kept(w[1][i], threshold) ? kept : 0;                                                      \
        factor[4 * i + 2] = pln_kept(w[2][i], threshold) ? kept : 0;                                                      \
        factor[4 * i + 3] = pln_kept(w[3][i], threshold) ? kept : 0;                                                      \
      }                                                                                                                   \
      const T *x = (const T *)c->arg[1].data + e;                                                                         \
      T *out = (T *)c->arg[0].data + e;                                                                                   \
      for (int i = 0; i < n; i++) out[i] = x[i] * factor[i];                                                              \
    }                                                                                                                     \
  }
PLN_DROPOUT(float, f32)
PLN_DROPOUT(double, f64)
#undef PLN_DROPOUT

pln_Status PLK(dropout)(const pln_Call *c) {
  if (c->i[3]) {
    if (c->arg[0].data != c->arg[1].data)
      memcpy(c->arg[0].data, c->arg[1].data, (size_t)(c->numel * pln_dtype_size((pln_DType)c->arg[0].dtype)));
    return PLN_OK;
  }
  Job j = job_of(c, 1);
  return pln_parallel_for(c, c->numel, PLN_GRAIN / 4, c->arg[0].dtype == PLN_F32 ? dropout_f32 : dropout_f64, &j);
}
