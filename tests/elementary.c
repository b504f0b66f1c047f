/* SPDX-License-Identifier: MIT
 * Elementary functions against libm one precision up: errors in ulp, special values, symmetry, and
 * equal bits from a scalar call and from loops compiled for each vector width.
 *   elementary [STRIDE]     checks; float sweeps visit every STRIDE-th of the 2^32 patterns
 *   elementary bench        ns per element in cache, against a loop over libm
 * Build with -O3 -ffp-contract=off -fno-math-errno -fno-trapping-math -lm, as the kernels are. */
#define _POSIX_C_SOURCE 199309L
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "../src/elementary.h"

/* name, limit in ulp for float and for double */
#define UNARY(X) \
  X(exp, 1.0, 1.0) X(expm1, 1.0, 2.0) X(log, 1.0, 1.0) X(log1p, 1.0, 2.0) X(sin, 1.5, 2.0) \
  X(cos, 1.5, 2.0) X(tanh, 1.5, 2.0) X(sigmoid, 1.5, 2.0) X(erf, 1.5, 2.0) X(softplus, 1.5, 2.0) \
  X(sqrt, 0.5, 0.5) X(rsqrt, 1.5, 1.5) X(floor, 0, 0) X(ceil, 0, 0) X(trunc, 0, 0) X(round, 0, 0)
/* no reference in libm: checked by special values and by equal bits only */
#define UNARY_PLAIN(X) X(sign, 0, 0) X(relu, 0, 0) X(fabs, 0, 0)
#define BINARY(X) X(pow, 1.5, 2.0) X(max, 0, 0) X(min, 0, 0) X(mod, 0, 0)

/* Every function as a scalar call and as a loop for each instruction set of this machine. */
#define ONE_SCALAR(N, T, S) \
  static __attribute__((noinline)) T scalar_##N##_##S(T x) { return pls_##N##_##S(x); }
#define TWO_SCALAR(N, T, S) \
  static __attribute__((noinline)) T scalar_##N##_##S(T x, T y) { return pls_##N##_##S(x, y); }
#define ONE_LOOP(N, T, S, ISA, TARGET) \
  static TARGET __attribute__((noinline)) void ISA##_##N##_##S(T *restrict y, const T *restrict x, \
                                                               const T *restrict z, long n) { \
    (void)z; \
    for (long i = 0; i < n; i++) y[i] = pls_##N##_##S(x[i]); \
  }
#define TWO_LOOP(N, T, S, ISA, TARGET) \
  static TARGET __attribute__((noinline)) void ISA##_##N##_##S(T *restrict y, const T *restrict x, \
                                                               const T *restrict z, long n) { \
    for (long i = 0; i < n; i++) y[i] = pls_##N##_##S(x[i], z[i]); \
  }
#if defined(__x86_64__)
#define AVX2 __attribute__((target("avx2,fma")))
#if defined(__clang__)
#define AVX512 __attribute__((target("avx512f,avx512dq,avx512bw,avx512vl,avx2,fma")))
#else
#define AVX512 \
  __attribute__((target("avx512f,avx512dq,avx512bw,avx512vl,avx2,fma,prefer-vector-width=512")))
#endif
static int has_avx2(void) { return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"); }
static int has_avx512(void) {
  return __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512vl") && has_avx2();
}
#else
#define AVX2
#define AVX512
static int has_avx2(void) { return 0; }
static int has_avx512(void) { return 0; }
#endif
#define ONE_ALL(N, L32, L64) \
  ONE_SCALAR(N, float, f32) ONE_SCALAR(N, double, f64) \
  ONE_LOOP(N, float, f32, base, ) ONE_LOOP(N, double, f64, base, ) \
  ONE_LOOP(N, float, f32, avx2, AVX2) ONE_LOOP(N, double, f64, avx2, AVX2) \
  ONE_LOOP(N, float, f32, avx512, AVX512) ONE_LOOP(N, double, f64, avx512, AVX512)
#define TWO_ALL(N, L32, L64) \
  TWO_SCALAR(N, float, f32) TWO_SCALAR(N, double, f64) \
  TWO_LOOP(N, float, f32, base, ) TWO_LOOP(N, double, f64, base, ) \
  TWO_LOOP(N, float, f32, avx2, AVX2) TWO_LOOP(N, double, f64, avx2, AVX2) \
  TWO_LOOP(N, float, f32, avx512, AVX512) TWO_LOOP(N, double, f64, avx512, AVX512)
UNARY(ONE_ALL) UNARY_PLAIN(ONE_ALL) BINARY(TWO_ALL)

/* References one precision up: double for float, long double for double. */
static double ref_sigmoid(double x) { return x < 0 ? exp(x) / (1 + exp(x)) : 1 / (1 + exp(-x)); }
static double ref_softplus(double x) { return (x > 0 ? x : 0) + log1p(exp(-fabs(x))); }
static double ref_rsqrt(double x) { return 1 / sqrt(x); }
static long double ref_sigmoidl(long double x) {
  return x < 0 ? expl(x) / (1 + expl(x)) : 1 / (1 + expl(-x));
}
static long double ref_softplusl(long double x) { return (x > 0 ? x : 0) + log1pl(expl(-fabsl(x))); }
static long double ref_rsqrtl(long double x) { return 1 / sqrtl(x); }
#define ref_exp exp
#define ref_expm1 expm1
#define ref_log log
#define ref_log1p log1p
#define ref_sin sin
#define ref_cos cos
#define ref_tanh tanh
#define ref_erf erf
#define ref_sqrt sqrt
#define ref_floor floor
#define ref_ceil ceil
#define ref_trunc trunc
#define ref_round rint
#define ref_pow pow
#define ref_expl expl
#define ref_expm1l expm1l
#define ref_logl logl
#define ref_log1pl log1pl
#define ref_sinl sinl
#define ref_cosl cosl
#define ref_tanhl tanhl
#define ref_erfl erfl
#define ref_sqrtl sqrtl
#define ref_floorl floorl
#define ref_ceill ceill
#define ref_truncl truncl
#define ref_roundl rintl
#define ref_powl powl

static long passed, failed;

static void check(int ok, const char *what) {
  if (ok) passed++; else failed++;
  if (!ok) printf("FAIL %s\n", what);
}

/* xorshift64*: any fixed, full-period source does */
static uint64_t random_state = 0x9e3779b97f4a7c15u;
static uint64_t random_bits(void) {
  random_state ^= random_state >> 12;
  random_state ^= random_state << 25;
  random_state ^= random_state >> 27;
  return random_state * 0x2545f4914f6cdd1du;
}

/* |got - want| in units of the last place of a type with p bits and smallest exponent e_min;
 * infinite where only one of the two is NaN, infinite or a zero of that sign. */
static double ulp_error(long double got, long double want, int p, int e_min, long double max) {
  if (isnan(got) || isnan(want)) return isnan(got) && isnan(want) ? 0 : INFINITY;
  if (isinf(got) || isinf(want)) {
    /* a result that rounds to inf lies half a unit above max */
    long double top = max + ldexpl(1.0L, (max > 1e300L ? 1024 : 128) - p - 1);
    long double finite = isinf(got) ? want : got;
    if (isinf(got) && isinf(want)) return got == want ? 0 : INFINITY;
    return fabsl(finite) >= top * (1 - 1e-15L) && signbit(got) == signbit(want) ? 0 : INFINITY;
  }
  if (want == 0) return got == 0 && signbit(got) == signbit(want) ? 0 : INFINITY;
  if (got == 0 && signbit(got) != signbit(want)) return INFINITY;
  int e;
  frexpl(want, &e);
  return (double)ldexpl(fabsl(got - want), p - (e < e_min ? e_min : e));
}
static double ulp_f32(float got, double want) {
  return ulp_error(got, want, 24, -125, 0x1.fffffep127L);
}
static double ulp_f64(double got, long double want) {
  return ulp_error(got, want, 53, -1021, 0x1.fffffffffffffp1023L);
}

static int same_f32(float a, float b) {
  return (isnan(a) && isnan(b)) || pls_bits_f32(a) == pls_bits_f32(b);
}
static int same_f64(double a, double b) {
  return (isnan(a) && isnan(b)) || pls_bits_f64(a) == pls_bits_f64(b);
}

typedef struct {
  const char *name;
  double limit;
  float (*f32)(float);
  double (*ref32)(double);
  double (*f64)(double);
  long double (*ref64)(long double);
  double limit64;
} Unary;

#define ROW(N, L32, L64) {#N, L32, scalar_##N##_f32, ref_##N, scalar_##N##_f64, ref_##N##l, L64},
static const Unary unary[] = {UNARY(ROW)};
enum { UNARIES = sizeof unary / sizeof *unary };

/* f(-x) = -f(x) must hold to the bit */
static int is_odd(const Unary *u) {
  return !strcmp(u->name, "sin") || !strcmp(u->name, "tanh") || !strcmp(u->name, "erf");
}

static void report(const char *name, const char *type, double worst, double x, double y, double limit) {
  char what[200];
  snprintf(what, sizeof what, "%s_%s: %.4f ulp at %a %a, limit %.1f", name, type, worst, x, y, limit);
  printf("%-9s %s  max %.4f ulp at %a\n", name, type, worst, x);
  check(worst <= limit, what);
  fflush(stdout);
}

static void sweep_f32(const Unary *u, uint64_t stride) {
  double worst = 0;
  float at = 0;
  long asymmetric = 0;
  int odd = is_odd(u);
  for (uint64_t i = 0; i < 0x100000000u; i += stride) {
    float x = pls_from_bits_f32((uint32_t)i), y = u->f32(x);
    double e = ulp_f32(y, u->ref32(x));
    if (e > worst) worst = e, at = x;
    if (odd && !same_f32(u->f32(-x), -y)) asymmetric++;
  }
  report(u->name, "f32", worst, at, 0, u->limit);
  if (odd) check(!asymmetric, "odd symmetry f32");
}

/* Random over all patterns, over moderate exponents, near 1, and close to multiples of pi/2. */
static double random_f64(void) {
  uint64_t r = random_bits(), kind = random_bits() % 5;
  if (kind == 0) return pls_from_bits_f64(r);
  if (kind == 4) return (double)((long double)(r >> (r & 63)) * 1.57079632679489661923L);
  double m = pls_from_bits_f64((r & 0x800fffffffffffffu) | 0x3ff0000000000000u);
  if (kind == 1) return m * 1000.0 * (double)(random_bits() >> 11) * 0x1p-53;
  return ldexp(m, (int)(random_bits() % 24) - (kind == 2 ? 12 : 20));
}

static void sweep_f64(const Unary *u, long count) {
  double worst = 0, at = 0;
  long asymmetric = 0;
  int odd = is_odd(u);
  for (long i = 0; i < count; i++) {
    double x = i ? random_f64() : 0x1.6ac5b262ca1ffp+849; /* the closest of all to k pi/2 */
    double y = u->f64(x), e = ulp_f64(y, u->ref64(x));
    if (e > worst) worst = e, at = x;
    if (odd && !same_f64(u->f64(-x), -y)) asymmetric++;
  }
  report(u->name, "f64", worst, at, 0, u->limit64);
  if (odd) check(!asymmetric, "odd symmetry f64");
}

/* Half of the pairs are made so that x^y spreads over the whole range of the type. */
static void sweep_pow(long count) {
  double worst = 0, at[2] = {0, 0};
  for (long i = 0; i < count; i++) {
    uint64_t r = random_bits();
    float x = pls_from_bits_f32((uint32_t)r), y = pls_from_bits_f32((uint32_t)(r >> 32));
    if (i & 1) y = (float)((double)(int32_t)(r >> 32) * 0x1p-31 * 104.0 / log(fabs((double)x)));
    if (i & 2) y = rintf(y);
    double e = ulp_f32(scalar_pow_f32(x, y), pow(x, y));
    if (e > worst) worst = e, at[0] = x, at[1] = y;
  }
  report("pow", "f32", worst, at[0], at[1], 1.5);
  worst = 0;
  for (long i = 0; i < count / 4; i++) {
    double x = random_f64(), y = random_f64();
    if (i & 1) y = (double)(int64_t)random_bits() * 0x1p-63 * 746.0 / log(fabs(x));
    if (i & 2) y = rint(y);
    double e = ulp_f64(scalar_pow_f64(x, y), powl(x, y));
    if (e > worst) worst = e, at[0] = x, at[1] = y;
  }
  report("pow", "f64", worst, at[0], at[1], 2.0);
}

typedef void Loop32(float *restrict, const float *restrict, const float *restrict, long);
typedef void Loop64(double *restrict, const double *restrict, const double *restrict, long);
typedef struct {
  const char *name;
  Loop32 *f32[3];
  Loop64 *f64[3];
  float (*one32)(float);
  double (*one64)(double);
  float (*two32)(float, float);
  double (*two64)(double, double);
} Loops;

#define LOOPS(N) #N, {base_##N##_f32, avx2_##N##_f32, avx512_##N##_f32}, \
                     {base_##N##_f64, avx2_##N##_f64, avx512_##N##_f64}
#define ONE_LOOPS(N, L32, L64) {LOOPS(N), scalar_##N##_f32, scalar_##N##_f64, NULL, NULL},
#define TWO_LOOPS(N, L32, L64) {LOOPS(N), NULL, NULL, scalar_##N##_f32, scalar_##N##_f64},
static const Loops loops[] = {UNARY(ONE_LOOPS) UNARY_PLAIN(ONE_LOOPS) BINARY(TWO_LOOPS)};
enum { LOOP_COUNT = sizeof loops / sizeof *loops };
static const char *const isa_name[3] = {"base", "avx2", "avx512"};

static int isa_available(int isa) { return isa == 0 || (isa == 1 ? has_avx2() : has_avx512()); }

/* Every length up to 67, so that each vector width meets each tail; one word behind the end stays. */
static void check_loop_f32(const Loops *l, int isa) {
  float x[68], z[68], y[68];
  long different = 0;
  for (int round = 0; round < 60; round++)
    for (int n = 0; n < 68; n++) {
      for (int i = 0; i < 68; i++) {
        uint64_t r = random_bits();
        x[i] = r & 1 ? pls_from_bits_f32((uint32_t)(r >> 32)) : (float)random_f64();
        z[i] = r & 2 ? (float)(int)(r >> 60) : (float)random_f64();
        y[i] = 12345.0f;
      }
      l->f32[isa](y, x, z, n);
      for (int i = 0; i < n; i++)
        different += !same_f32(y[i], l->one32 ? l->one32(x[i]) : l->two32(x[i], z[i]));
      different += y[n] != 12345.0f;
    }
  char what[100];
  snprintf(what, sizeof what, "%s_f32: %ld differ between scalar and %s", l->name, different,
           isa_name[isa]);
  check(!different, what);
}

static void check_loop_f64(const Loops *l, int isa) {
  double x[36], z[36], y[36];
  long different = 0;
  for (int round = 0; round < 60; round++)
    for (int n = 0; n < 36; n++) {
      for (int i = 0; i < 36; i++) {
        x[i] = random_f64();
        z[i] = i & 1 ? (double)(int)(random_bits() % 32) : random_f64();
        y[i] = 12345.0;
      }
      l->f64[isa](y, x, z, n);
      for (int i = 0; i < n; i++)
        different += !same_f64(y[i], l->one64 ? l->one64(x[i]) : l->two64(x[i], z[i]));
      different += y[n] != 12345.0;
    }
  char what[100];
  snprintf(what, sizeof what, "%s_f64: %ld differ between scalar and %s", l->name, different,
           isa_name[isa]);
  check(!different, what);
}

/* Special values of both types. TINY stands for the smallest subnormal, TOP for an argument whose
 * exponential overflows; any NaN answers to NAN, everything else is compared to the bit. */
#define INF INFINITY
#define TINY 0x1p-1074
#define TOP 710.0
typedef struct { const char *name; double x, y, want; } Special;
static const Special specials[] = {
  {"exp", -INF, 0, 0}, {"exp", INF, 0, INF}, {"exp", 0, 0, 1}, {"exp", -0.0, 0, 1},
  {"exp", TOP, 0, INF}, {"exp", -2 * TOP, 0, 0}, {"exp", 1e30, 0, INF}, {"exp", NAN, 0, NAN},
  {"exp", TINY, 0, 1},
  {"expm1", -INF, 0, -1}, {"expm1", INF, 0, INF}, {"expm1", -0.0, 0, -0.0}, {"expm1", 0, 0, 0},
  {"expm1", TINY, 0, TINY}, {"expm1", -TINY, 0, -TINY}, {"expm1", -TOP, 0, -1},
  {"expm1", TOP, 0, INF}, {"expm1", NAN, 0, NAN},
  {"log", 0, 0, -INF}, {"log", -0.0, 0, -INF}, {"log", -1, 0, NAN}, {"log", -INF, 0, NAN},
  {"log", 1, 0, 0}, {"log", INF, 0, INF}, {"log", NAN, 0, NAN}, {"log", -TINY, 0, NAN},
  {"log1p", -1, 0, -INF}, {"log1p", -2, 0, NAN}, {"log1p", -INF, 0, NAN}, {"log1p", INF, 0, INF},
  {"log1p", -0.0, 0, -0.0}, {"log1p", 0, 0, 0}, {"log1p", TINY, 0, TINY},
  {"log1p", -TINY, 0, -TINY}, {"log1p", NAN, 0, NAN},
  {"sin", 0, 0, 0}, {"sin", -0.0, 0, -0.0}, {"sin", INF, 0, NAN}, {"sin", -INF, 0, NAN},
  {"sin", NAN, 0, NAN}, {"sin", TINY, 0, TINY}, {"sin", -TINY, 0, -TINY},
  {"cos", 0, 0, 1}, {"cos", -0.0, 0, 1}, {"cos", INF, 0, NAN}, {"cos", NAN, 0, NAN},
  {"cos", TINY, 0, 1},
  {"tanh", 0, 0, 0}, {"tanh", -0.0, 0, -0.0}, {"tanh", TINY, 0, TINY}, {"tanh", -TINY, 0, -TINY},
  {"tanh", 20, 0, 1}, {"tanh", -20, 0, -1}, {"tanh", 50, 0, 1}, {"tanh", -1e4, 0, -1},
  {"tanh", INF, 0, 1}, {"tanh", -INF, 0, -1}, {"tanh", NAN, 0, NAN},
  {"sigmoid", 0, 0, 0.5}, {"sigmoid", INF, 0, 1}, {"sigmoid", -INF, 0, 0},
  {"sigmoid", -1000, 0, 0}, {"sigmoid", 1000, 0, 1}, {"sigmoid", NAN, 0, NAN},
  {"softplus", -INF, 0, 0}, {"softplus", INF, 0, INF}, {"softplus", 1000, 0, 1000},
  {"softplus", -1000, 0, 0}, {"softplus", NAN, 0, NAN},
  {"erf", 0, 0, 0}, {"erf", -0.0, 0, -0.0}, {"erf", 6, 0, 1}, {"erf", -6, 0, -1},
  {"erf", INF, 0, 1}, {"erf", -INF, 0, -1}, {"erf", NAN, 0, NAN},
  {"sqrt", -1, 0, NAN}, {"sqrt", -0.0, 0, -0.0}, {"sqrt", INF, 0, INF}, {"rsqrt", 0, 0, INF},
  {"rsqrt", -0.0, 0, -INF}, {"rsqrt", INF, 0, 0}, {"rsqrt", 4, 0, 0.5}, {"rsqrt", -1, 0, NAN},
  {"round", 2.5, 0, 2}, {"round", 3.5, 0, 4}, {"round", -0.5, 0, -0.0}, {"floor", -0.5, 0, -1},
  {"ceil", -0.5, 0, -0.0}, {"trunc", -1.5, 0, -1},
  {"sign", -3, 0, -1}, {"sign", -0.0, 0, 0}, {"sign", INF, 0, 1}, {"sign", TINY, 0, 1},
  {"sign", NAN, 0, NAN}, {"relu", -1, 0, 0}, {"relu", -0.0, 0, 0}, {"relu", 2, 0, 2},
  {"relu", NAN, 0, NAN}, {"relu", -INF, 0, 0}, {"fabs", -0.0, 0, 0}, {"fabs", NAN, 0, NAN},
  {"max", 1, NAN, NAN}, {"max", NAN, 1, NAN}, {"max", NAN, INF, NAN}, {"max", -0.0, 0, 0},
  {"max", 0, -0.0, 0}, {"max", -INF, 3, 3}, {"max", 3, 3, 3}, {"max", 2, 3, 3},
  {"min", 1, NAN, NAN}, {"min", NAN, 1, NAN}, {"min", -INF, NAN, NAN}, {"min", -0.0, 0, -0.0},
  {"min", 0, -0.0, -0.0}, {"min", INF, 3, 3}, {"min", 3, 3, 3}, {"min", 2, 3, 2},
  {"mod", -10, 3, 2}, {"mod", 10, -3, -2}, {"mod", 5, -3, -1}, {"mod", -5, 3, 1},
  {"mod", 5, 3, 2}, {"mod", -5, -3, -2}, {"mod", 1, 0, NAN}, {"mod", NAN, 1, NAN},
  {"mod", 1, NAN, NAN}, {"mod", INF, 2, NAN}, {"mod", 5, INF, 5}, {"mod", -5, INF, INF},
  {"mod", -0.0, 3, -0.0}, {"mod", -6, 3, -0.0}, {"mod", 6, -3, 0},
  {"mod", 0x1.fffffep+100, 13, 0}, {"mod", 0x1.8p+100, 1024, 0},
  {"pow", NAN, 0, 1}, {"pow", NAN, -0.0, 1}, {"pow", 1, NAN, 1}, {"pow", NAN, 1, NAN},
  {"pow", 2, NAN, NAN}, {"pow", 0, NAN, NAN}, {"pow", 0, 0, 1}, {"pow", INF, 0, 1},
  {"pow", -1, INF, 1}, {"pow", -1, -INF, 1}, {"pow", 1, INF, 1}, {"pow", 0, -1, INF},
  {"pow", -0.0, -1, -INF}, {"pow", -0.0, -2, INF}, {"pow", -0.0, 3, -0.0}, {"pow", -0.0, 2, 0},
  {"pow", -0.0, 0.5, 0}, {"pow", 0, 1e-30, 0}, {"pow", 0, -1e-30, INF}, {"pow", 0, INF, 0},
  {"pow", 0, -INF, INF}, {"pow", INF, 1e-30, INF}, {"pow", INF, -1, 0}, {"pow", -INF, 3, -INF},
  {"pow", -INF, 2, INF}, {"pow", -INF, -3, -0.0}, {"pow", -INF, 0.5, INF},
  {"pow", -INF, -0.5, 0}, {"pow", -INF, INF, INF}, {"pow", -2, 3, -8}, {"pow", -2, 2, 4},
  {"pow", -2, 0.5, NAN}, {"pow", 2, INF, INF}, {"pow", 2, -INF, 0}, {"pow", 0.5, INF, 0},
  {"pow", 0.5, -INF, INF}, {"pow", -2, INF, INF}, {"pow", -2, 1e30, INF}, {"pow", -0.5, 1e30, 0},
  {"pow", 10, 2, 100}, {"pow", 3, 4, 81}, {"pow", TINY, 1, TINY}, {"pow", -TINY, 1, -TINY},
};

static const Loops *loops_named(const char *name) {
  for (int i = 0; i < LOOP_COUNT; i++)
    if (!strcmp(loops[i].name, name)) return &loops[i];
  abort();
}

static float tiny_f32(double x) { return fabs(x) == TINY ? copysignf(0x1p-149f, (float)x) : (float)x; }

static void check_specials(void) {
  for (size_t i = 0; i < sizeof specials / sizeof *specials; i++) {
    const Special *s = &specials[i];
    const Loops *l = loops_named(s->name);
    float x = tiny_f32(s->x), y = tiny_f32(s->y);
    float got32 = l->one32 ? l->one32(x) : l->two32(x, y);
    double got64 = l->one64 ? l->one64(s->x) : l->two64(s->x, s->y);
    char what[160];
    snprintf(what, sizeof what, "%s(%a, %a): got %a (f32) and %a (f64), expected %a", s->name, s->x,
             s->y, got32, got64, s->want);
    check(same_f32(got32, tiny_f32(s->want)), what);
    check(same_f64(got64, s->want), what);
  }
  check(isnan(pls_clamp_f32(NAN, 0, 1)) && isnan(pls_clamp_f64(NAN, 0, 1)), "clamp keeps NaN");
  check(isnan(pls_clamp_f32(0, NAN, 1)) && isnan(pls_clamp_f64(0, 0, NAN)), "clamp, NaN bound");
  check(pls_clamp_f32(2, 0, 1) == 1 && pls_clamp_f64(-2, 0, 1) == 0, "clamp");
}

/* The header relies on the build flags: a product and a sum must round twice, and subnormals stay. */
static __attribute__((noinline)) float multiply_add(float a, float b, float c) { return a * b + c; }
static __attribute__((noinline)) float halve(float a) { return a * 0.5f; }


#define LIBM_LOOPS(N) \
  static void libm_##N##_f32(float *restrict y, const float *restrict x, const float *restrict z, \
                             long n) { \
    (void)z; \
    for (long i = 0; i < n; i++) y[i] = N##f(x[i]); \
  } \
  static void libm_##N##_f64(double *restrict y, const double *restrict x, \
                             const double *restrict z, long n) { \
    (void)z; \
    for (long i = 0; i < n; i++) y[i] = N(x[i]); \
  }
#define LIBM(X) X(exp) X(expm1) X(log) X(log1p) X(sin) X(cos) X(tanh) X(erf) X(sqrt)
LIBM(LIBM_LOOPS)
#define LIBM_ROW(N) {#N, libm_##N##_f32, libm_##N##_f64},
static const struct { const char *name; Loop32 *f32; Loop64 *f64; } libm[] = {LIBM(LIBM_ROW)};

static double seconds(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* ns per element over data in cache, best of 200 */
enum { BENCH_N = 2048 };
#define TIMER(T, S, LOOP) \
  static double time_##S(LOOP *loop) { \
    static T x[BENCH_N], z[BENCH_N], y[BENCH_N]; \
    double best = INFINITY; \
    for (int i = 0; i < BENCH_N; i++) x[i] = (T)0.01 + (T)(i * 7 % 977) * (T)0.004, z[i] = (T)1.5; \
    for (int k = 0; k < 200; k++) { \
      double t = seconds(); \
      loop(y, x, z, BENCH_N); \
      t = seconds() - t; \
      if (t < best) best = t; \
    } \
    return best / BENCH_N * 1e9; \
  }
TIMER(float, f32, Loop32)
TIMER(double, f64, Loop64)

static void bench(void) {
  printf("ns per element   f32: libm   base   avx2 avx512   f64: libm   base   avx2 avx512\n");
  for (int i = 0; i < LOOP_COUNT; i++) {
    const Loops *l = &loops[i];
    double t[8] = {0};
    for (size_t k = 0; k < sizeof libm / sizeof *libm; k++)
      if (!strcmp(libm[k].name, l->name)) t[0] = time_f32(libm[k].f32), t[4] = time_f64(libm[k].f64);
    for (int isa = 0; isa < 3; isa++)
      if (isa_available(isa)) t[1 + isa] = time_f32(l->f32[isa]), t[5 + isa] = time_f64(l->f64[isa]);
    printf("%-14s", l->name);
    for (int k = 0; k < 8; k++) printf(k == 4 ? "       %7.2f" : " %6.2f", t[k]);
    printf("\n");
  }
}

int main(int argc, char **argv) {
  if (argc > 1 && !strcmp(argv[1], "bench")) {
    bench();
    return 0;
  }
  uint64_t stride = argc > 1 ? strtoull(argv[1], NULL, 10) : 499;
  if (stride < 1) return 2;
  check(multiply_add(0x1.000002p0f, 0x1.000002p0f, -0x1.000004p0f) == 0, "contraction is on");
  check(halve(0x1p-126f) == 0x1p-127f, "subnormals are flushed");
  check_specials();
  for (int isa = 0; isa < 3; isa++) {
    if (!isa_available(isa)) printf("SKIP %s: this machine has none\n", isa_name[isa]);
    for (int i = 0; i < LOOP_COUNT && isa_available(isa); i++) {
      check_loop_f32(&loops[i], isa);
      check_loop_f64(&loops[i], isa);
    }
  }
  for (int i = 0; i < UNARIES; i++) {
    sweep_f32(&unary[i], stride);
    sweep_f64(&unary[i], 400000);
  }
  sweep_pow(2000000);
  printf("%ld passed, %ld failed\n", passed, failed);
  return failed != 0;
}
