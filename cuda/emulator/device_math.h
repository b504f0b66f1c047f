/* SPDX-License-Identifier: MIT
 * CUDA's arithmetic functions that a host compiler lacks, included by device.h: fast intrinsics,
 * explicit rounding, bit casts, integer helpers, half and bfloat16 functions.
 * Values are the host's (correctly rounded where the name says so), not a GPU's bits: tests that
 * compare with a device need tolerances for the fast ones.
 * Trap: glibc's <math.h> declares __expf, __logf and others that libm does not export, so the
 * names compile and fail to link. They are macros here. */
#ifndef PLEMU_DEVICE_MATH_H
#define PLEMU_DEVICE_MATH_H

#define __expf(x) expf(x)
#define __exp10f(x) exp10f(x)
#define __logf(x) logf(x)
#define __log2f(x) log2f(x)
#define __log10f(x) log10f(x)
#define __powf(x, y) powf(x, y)
#define __sinf(x) sinf(x)
#define __cosf(x) cosf(x)
#define __tanf(x) tanf(x)
#define __sincosf(x, s, c) sincosf(x, s, c)

static inline float rsqrtf(float x) { return 1.0f / sqrtf(x); }
static inline double rsqrt(double x) { return 1.0 / sqrt(x); }
static inline float sinpif(float x) { return (float)sin(3.14159265358979323846 * x); }
static inline float cospif(float x) { return (float)cos(3.14159265358979323846 * x); }
static inline float normcdff(float x) { return 0.5f * erfcf(-x * 0.70710678118654752f); }
static inline float fdividef(float a, float b) { return a / b; }
static inline float __fdividef(float a, float b) { return a / b; }
static inline float __saturatef(float x) { return x > 0.0f ? (x < 1.0f ? x : 1.0f) : 0.0f; }

#define PLEMU_ROUNDED(T, P)                                                            \
  static inline T P##add_rn(T a, T b) { return a + b; }                                \
  static inline T P##sub_rn(T a, T b) { return a - b; }                                \
  static inline T P##mul_rn(T a, T b) { return a * b; }                                \
  static inline T P##div_rn(T a, T b) { return a / b; }                                \
  static inline T P##rcp_rn(T a) { return 1 / a; }                                     \
  static inline T P##sqrt_rn(T a) { return std::sqrt(a); }
PLEMU_ROUNDED(float, __f)
PLEMU_ROUNDED(double, __d)
#undef PLEMU_ROUNDED
static inline float __fmaf_rn(float a, float b, float c) { return fmaf(a, b, c); }
static inline double __fma_rn(double a, double b, double c) { return fma(a, b, c); }
static inline float __frsqrt_rn(float x) { return (float)(1.0 / sqrt((double)x)); }

#define PLEMU_CAST(NAME, TO, FROM) \
  static inline TO NAME(FROM x) {  \
    TO r;                          \
    memcpy(&r, &x, sizeof r);      \
    return r;                      \
  }
PLEMU_CAST(__float_as_int, int, float)
PLEMU_CAST(__float_as_uint, unsigned, float)
PLEMU_CAST(__int_as_float, float, int)
PLEMU_CAST(__uint_as_float, float, unsigned)
PLEMU_CAST(__double_as_longlong, long long, double)
PLEMU_CAST(__longlong_as_double, double, long long)
#undef PLEMU_CAST

/* Conversions saturate and take NaN to 0, where plain C++ is undefined. */
namespace plemu {
template <class T, class F> inline T saturate(F x, double below, double above) {
  if (x != x) return 0;
  if ((double)x <= below) return std::numeric_limits<T>::min();
  if ((double)x >= above) return std::numeric_limits<T>::max();
  return (T)x;
}
template <class F> inline int to_int(F x) {
  return saturate<int>(x, -2147483648.0, 2147483647.0);
}
template <class F> inline unsigned to_uint(F x) { return saturate<unsigned>(x, 0, 4294967295.0); }
template <class F> inline long long to_ll(F x) {
  return saturate<long long>(x, -9223372036854775808.0, 9223372036854775808.0);
}
}  // namespace plemu
#define PLEMU_CONVERT(FROM, F)                                                                \
  static inline int __##F##2int_rn(FROM x) { return plemu::to_int(std::nearbyint(x)); }       \
  static inline int __##F##2int_rz(FROM x) { return plemu::to_int(std::trunc(x)); }           \
  static inline int __##F##2int_rd(FROM x) { return plemu::to_int(std::floor(x)); }           \
  static inline int __##F##2int_ru(FROM x) { return plemu::to_int(std::ceil(x)); }            \
  static inline unsigned __##F##2uint_rn(FROM x) { return plemu::to_uint(std::nearbyint(x)); } \
  static inline unsigned __##F##2uint_rz(FROM x) { return plemu::to_uint(std::trunc(x)); }    \
  static inline long long __##F##2ll_rn(FROM x) { return plemu::to_ll(std::nearbyint(x)); }   \
  static inline long long __##F##2ll_rz(FROM x) { return plemu::to_ll(std::trunc(x)); }
PLEMU_CONVERT(float, float)
PLEMU_CONVERT(double, double)
#undef PLEMU_CONVERT
static inline float __int2float_rn(int x) { return (float)x; }
static inline float __uint2float_rn(unsigned x) { return (float)x; }
static inline float __ll2float_rn(long long x) { return (float)x; }
static inline double __ll2double_rn(long long x) { return (double)x; }
static inline float __double2float_rn(double x) { return (float)x; }

static inline int __popc(unsigned x) { return __builtin_popcount(x); }
static inline int __popcll(unsigned long long x) { return __builtin_popcountll(x); }
static inline int __clz(int x) { return x ? __builtin_clz((unsigned)x) : 32; }
static inline int __clzll(long long x) { return x ? __builtin_clzll((unsigned long long)x) : 64; }
static inline int __ffs(int x) { return __builtin_ffs(x); }
static inline int __ffsll(long long x) { return __builtin_ffsll(x); }
static inline unsigned __brev(unsigned x) {
  unsigned r = 0;
  for (int i = 0; i < 32; i++) r |= ((x >> i) & 1u) << (31 - i);
  return r;
}
static inline unsigned __umulhi(unsigned a, unsigned b) {
  return (unsigned)(((uint64_t)a * b) >> 32);
}
static inline int __mulhi(int a, int b) { return (int)(((int64_t)a * b) >> 32); }
static inline unsigned long long __umul64hi(unsigned long long a, unsigned long long b) {
  return (unsigned long long)(((unsigned __int128)a * b) >> 64);
}
static inline unsigned __funnelshift_l(unsigned low, unsigned high, unsigned shift) {
  return (unsigned)(((((uint64_t)high << 32) | low) << (shift & 31)) >> 32);
}
static inline unsigned __funnelshift_r(unsigned low, unsigned high, unsigned shift) {
  return (unsigned)((((uint64_t)high << 32) | low) >> (shift & 31));
}
static inline unsigned __byte_perm(unsigned x, unsigned y, unsigned select) {
  const uint64_t both = ((uint64_t)y << 32) | x;
  unsigned r = 0;
  for (int i = 0; i < 4; i++) {
    const unsigned nibble = (select >> (4 * i)) & 0xf;
    unsigned byte = (unsigned)(both >> (8 * (nibble & 7))) & 0xff;
    if (nibble & 8) byte = byte & 0x80 ? 0xff : 0;  /* replicate the sign */
    r |= byte << (8 * i);
  }
  return r;
}
static inline int __dp4a(int a, int b, int c) {
  for (int i = 0; i < 4; i++) c += (int8_t)(a >> (8 * i)) * (int8_t)(b >> (8 * i));
  return c;
}

#define PLEMU_MIN_MAX(T, A, B)                                    \
  static inline T min(A a, B b) { return (T)b < (T)a ? (T)b : (T)a; } \
  static inline T max(A a, B b) { return (T)a < (T)b ? (T)b : (T)a; }
PLEMU_MIN_MAX(int, int, int)
PLEMU_MIN_MAX(unsigned, unsigned, unsigned)
PLEMU_MIN_MAX(unsigned, int, unsigned)
PLEMU_MIN_MAX(unsigned, unsigned, int)
PLEMU_MIN_MAX(long, long, long)
PLEMU_MIN_MAX(unsigned long, unsigned long, unsigned long)
PLEMU_MIN_MAX(long long, long long, long long)
PLEMU_MIN_MAX(unsigned long long, unsigned long long, unsigned long long)
#undef PLEMU_MIN_MAX
static inline float min(float a, float b) { return fminf(a, b); }
static inline float max(float a, float b) { return fmaxf(a, b); }
static inline double min(double a, double b) { return fmin(a, b); }
static inline double max(double a, double b) { return fmax(a, b); }

/* Half and bfloat16 functions that NVIDIA's headers give to nvcc only: computed in float and
 * rounded once, which is what the hardware's results are specified against. */
#define PLEMU_HALF(NAME, VALUE)                     \
  static inline __half NAME(__half h) {             \
    const float x = __half2float(h);                \
    return __float2half_rn(VALUE);                  \
  }                                                 \
  static inline __nv_bfloat16 NAME(__nv_bfloat16 h) { \
    const float x = __bfloat162float(h);            \
    return __float2bfloat16_rn(VALUE);              \
  }
PLEMU_HALF(hsqrt, sqrtf(x))
PLEMU_HALF(hrsqrt, 1.0f / sqrtf(x))
PLEMU_HALF(hrcp, 1.0f / x)
PLEMU_HALF(hexp, expf(x))
PLEMU_HALF(hexp2, exp2f(x))
PLEMU_HALF(hlog, logf(x))
PLEMU_HALF(hlog2, log2f(x))
PLEMU_HALF(htanh, tanhf(x))
PLEMU_HALF(hsin, sinf(x))
PLEMU_HALF(hcos, cosf(x))
PLEMU_HALF(hfloor, floorf(x))
PLEMU_HALF(hceil, ceilf(x))
PLEMU_HALF(htrunc, truncf(x))
PLEMU_HALF(hrint, nearbyintf(x))
#undef PLEMU_HALF

/* In double the product of two is exact, so that only the last step rounds. */
static inline __half __hfma(__half a, __half b, __half c) {
  return __double2half((double)__half2float(a) * __half2float(b) + __half2float(c));
}
static inline __nv_bfloat16 __hfma(__nv_bfloat16 a, __nv_bfloat16 b, __nv_bfloat16 c) {
  const double ab = (double)__bfloat162float(a) * __bfloat162float(b);
  return __double2bfloat16(ab + __bfloat162float(c));
}
static inline __half2 __hfma2(__half2 a, __half2 b, __half2 c) {
  return __halves2half2(__hfma(__low2half(a), __low2half(b), __low2half(c)),
                        __hfma(__high2half(a), __high2half(b), __high2half(c)));
}
static inline __nv_bfloat162 __hfma2(__nv_bfloat162 a, __nv_bfloat162 b, __nv_bfloat162 c) {
  return __halves2bfloat162(
      __hfma(__low2bfloat16(a), __low2bfloat16(b), __low2bfloat16(c)),
      __hfma(__high2bfloat16(a), __high2bfloat16(b), __high2bfloat16(c)));
}

#endif
