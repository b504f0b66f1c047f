/* SPDX-License-Identifier: MIT
 * float: exp expm1 log log1p tanh sigmoid softplus erf sin cos pow. Included by elementary.h.
 * Float arithmetic throughout, except that sin and cos reduce and pow computes in double.
 * Method: classical argument reduction (Cody and Waite; log by f = m - 1, m in [2/3, 4/3)), then
 * polynomials fitted here (weighted minimax, coefficients rounded one by one, the rest refitted).
 * Errors over all 2^32 arguments are measured by tests/elementary.c. */
#ifndef PLN_ELEMENTARY_F32_H
#define PLN_ELEMENTARY_F32_H

/* x = n ln2 + r for |x| < 2^20, |r| <= ln2 / 2, r the sum of exact (without rounding error) and of
 * the tiny low. Adding 1.5 * 2^23 rounds to an integer and leaves it in the low bits. */
typedef struct { float exact, low; int32_t n; } pln_ReducedF32;

PLN_FN pln_ReducedF32 pls_exp_reduce_f32(float x) {
  pln_ReducedF32 s;
  float z = pls_fma_f32(x, 0x1.715476p+0f, 0x1.8p+23f), n = z - 0x1.8p+23f;
  s.n = (int32_t)(pls_bits_f32(z) - 0x4b400000u);
  s.exact = pls_fma_f32(n, -0x1.62e43p-1f, x);
  s.low = n * 0x1.05c61p-29f;
  return s;
}

/* 2^i for -126 <= i <= 127 */
PLN_FN float pls_exp2i_f32(int32_t i) { return pls_from_bits_f32((uint32_t)(i + 127) << 23); }

/* e^r - 1 */
PLN_FN float pls_exp_poly_f32(pln_ReducedF32 s) {
  float r = s.exact + s.low;
  float q = PLN_P5(f32, r, 0x1.6a59fap-10f, 0x1.123aeap-7f, 0x1.5558a6p-5f, 0x1.55549p-3f,
                   0x1.fffffcp-2f);
  return s.exact + pls_fma_f32(r * r, q, s.low);
}

/* e^x where neither argument nor result leave the normal range: |x| <= 87 or NaN */
PLN_FN float pls_exp_normal_f32(float x) {
  pln_ReducedF32 s = pls_exp_reduce_f32(x);
  return (1.0f + pls_exp_poly_f32(s)) * pls_exp2i_f32(s.n);
}

/* e^x as high + low. e^-104 rounds to 0 and e^104 to inf by themselves, so that one comparison is
 * enough to bound x; scaling in two steps rounds a subnormal once. */
typedef struct { float high, low; } pln_PairF32;

PLN_FN pln_PairF32 pls_exp_pair_f32(float x) {
  float size = pls_fabs_f32(x);
  size = size > 104.0f ? 104.0f : size;
  pln_ReducedF32 s = pls_exp_reduce_f32(pls_with_sign_f32(size, x));
  float t = pls_exp_poly_f32(s), y = 1.0f + t;
  int32_t half = s.n >> 1;
  float a = pls_exp2i_f32(half), b = pls_exp2i_f32(s.n - half);
  pln_PairF32 e = {y * a * b, (t - (y - 1.0f)) * a * b};
  return e;
}

PLN_FN float pls_exp_f32(float x) { return pls_exp_pair_f32(x).high; }

/* 2^n (e^r - 1) + (2^n - 1), computed at half size so that n = 128 fits; low collects what the
 * larger terms round away. */
PLN_FN float pls_expm1_f32(float x) {
  float c = x < -30.0f ? -30.0f : x;
  c = c > 89.0f ? 89.0f : c;
  pln_ReducedF32 s = pls_exp_reduce_f32(c);
  float r = s.exact + s.low;
  float q = PLN_P6(f32, r, 0x1.a27448p-13f, 0x1.6d3f14p-10f, 0x1.110feep-7f, 0x1.5554f4p-5f,
                   0x1.555556p-3f, 0x1p-1f);
  float t = pls_fma_f32(r * r, q, s.low), scale = pls_exp2i_f32(s.n - 1);
  float big = scale - 0.5f, small = scale * s.exact, sum = big + small;
  float low = (small - (sum - big)) + ((scale - big) - 0.5f);
  float y = 2.0f * (sum + pls_fma_f32(scale, t, low));
  return pls_fabs_f32(x) < 0x1p-25f ? x : y;
}

/* log(1 + f + f_low) + e ln2 for f in [-1/3, 1/3] */
PLN_FN float pls_log_poly_f32(float f, float f_low, float e) {
  float p = PLN_P9(f32, f, -0x1.065c88p-3f, 0x1.1e9a42p-3f, -0x1.f3db82p-4f, 0x1.1ecb04p-3f,
                   -0x1.55962ep-3f, 0x1.99d10cp-3f, -0x1.ffff1ep-3f, 0x1.555504p-2f, -0x1p-1f);
  float high = e * 0x1.62e4p-1f, sum = high + f; /* 15 bits of ln2: exact */
  float low = pls_fma_f32(e, 0x1.7f7d1cp-20f, f - (sum - high));
  return sum + pls_fma_f32(f * f, p, low + pls_fma_f32(-f_low, f, f_low));
}

/* log's values outside (0, inf): of zero, of negative numbers, of inf and NaN */
PLN_FN float pls_log_edge_f32(float x) { return x == 0 ? -INFINITY : x < 0 ? NAN : x; }

PLN_FN float pls_log_f32(float x) {
  int tiny = x < 0x1p-126f;
  uint32_t u = pls_bits_f32(tiny ? x * 0x1p+23f : x);
  uint32_t k = (u - 0x3f2aaaabu) & 0xff800000u; /* e = k / 2^23, m = x / 2^e in [2/3, 4/3) */
  float f = pls_from_bits_f32(u - k) - 1.0f;
  float e = (float)((int32_t)k >> 23) - (tiny ? 23.0f : 0.0f);
  float y = pls_log_poly_f32(f, 0.0f, e);
  return ((x > 0) & (x < INFINITY)) ? y : pls_log_edge_f32(x);
}

/* log(1 + x + x_low) with f = (x / 2^e) + (1 / 2^e - 1), x_low tiny and only for x >= 0 */
PLN_FN float pls_log1p_poly_f32(float x, float x_low) {
  uint32_t k = (pls_bits_f32(1.0f + x) - 0x3f2aaaabu) & 0xff800000u;
  float scale = pls_from_bits_f32(0x40800000u - k); /* 4 / 2^e: normal up to e = 128 */
  float a = pls_fma_f32(0.25f, scale, -1.0f), b = pls_from_bits_f32(pls_bits_f32(x) - k);
  float f = a + b, f_low = pls_fma_f32(0.25f * scale, x_low, b - (f - a));
  return pls_log_poly_f32(f, f_low, (float)((int32_t)k >> 23));
}

PLN_FN float pls_log1p_f32(float x) {
  float y = pls_log1p_poly_f32(x, 0.0f);
  y = ((x > -1.0f) & (x < INFINITY)) ? y : pls_log_edge_f32(1.0f + x);
  return pls_fabs_f32(x) < 0x1p-25f ? x : y;
}

PLN_FN float pls_tanh_f32(float x) {
  float a = pls_fabs_f32(x), z;
  a = a > 10.0f ? 10.0f : a; /* tanh(10) rounds to 1 */
  z = a * a;
  float p = PLN_P5(f32, z, -0x1.94daa4p-8f, 0x1.5826f8p-6f, -0x1.b907d6p-5f, 0x1.110c66p-3f,
                   -0x1.555548p-2f);
  float small = pls_fma_f32(a * z, p, a);
  float large = 1.0f - 2.0f / (pls_exp_normal_f32(2.0f * a) + 1.0f);
  return pls_with_sign_f32(a < 0.5625f ? small : large, x);
}

/* n / d with e = e^-|x|, d = 1 + e, n = 1 or e: the quotient is corrected by its remainder. */
PLN_FN float pls_sigmoid_f32(float x) {
  pln_PairF32 e = pls_exp_pair_f32(-pls_fabs_f32(x));
  float d = 1.0f + e.high, d_low = (e.high - (d - 1.0f)) + e.low;
  float n = x < 0 ? e.high : 1.0f, n_low = x < 0 ? e.low : 0.0f;
  float q = n / d, inverse = x < 0 ? 1.0f - q : q; /* 1 / d */
  float rest = pls_fma_f32(-q, d, n) + pls_fma_f32(-q, d_low, n_low);
  return pls_fma_f32(rest, inverse, q);
}

/* log(1 + e^x) = max(x, 0) + log1p(e^-|x|) */
PLN_FN float pls_softplus_f32(float x) {
  pln_PairF32 e = pls_exp_pair_f32(-pls_fabs_f32(x));
  float l = e.high < 0x1p-25f ? e.high : pls_log1p_poly_f32(e.high, e.low);
  return (x < 0 ? 0.0f : x) + l;
}

/* x + x P(x^2) up to 1, then 1 - e^Q(|x|) */
PLN_FN float pls_erf_f32(float x) {
  float a = pls_fabs_f32(x), z;
  a = a > 4.0f ? 4.0f : a; /* erf(4) rounds to 1 */
  z = a * a;
  float p = PLN_P7(f32, z, 0x1.4c33aep-14f, -0x1.a50aeap-11f, 0x1.542e0ep-8f, -0x1.b7fe9p-6f,
                   0x1.ce2d5p-4f, -0x1.81274p-2f, 0x1.06eba8p-3f);
  float q = PLN_P7(f32, a, 0x1.93772ep-13f, -0x1.8a4ac6p-9f, 0x1.69dd98p-6f, -0x1.a880b2p-4f,
                   -0x1.4668ep-1f, -0x1.20a224p+0f, -0x1.00ca02p-12f);
  float small = pls_fma_f32(a, p, a), large = 1.0f - pls_exp_normal_f32(q);
  return pls_with_sign_f32(a < 1.0f ? small : large, x);
}

/* One of two constants by a mask of ones or zeros, which costs vector units less than a blend. */
PLN_FN double pls_choose_f64(uint64_t mask, double set, double clear) {
  uint64_t bits = pls_bits_f64(clear);
  return pls_from_bits_f64(bits ^ (mask & (bits ^ pls_bits_f64(set))));
}

/* |x| = (4 j + quarter) pi/2 + r + low for every finite x. Above 2^75 the integer x / 2^52 and
 * 2^52 2/pi modulo 4 stand for x and 2/pi (to 159 bits): the product modulo 4 is the same. */
typedef struct { float r, low; uint32_t quarter; } pln_AngleF32;

PLN_FN pln_AngleF32 pls_angle_reduce_f32(float x) {
  pln_AngleF32 s;
  double a = (double)pls_fabs_f32(x);
  uint64_t huge = a >= 0x1p+75 ? ~(uint64_t)0 : 0;
  double y = a * pls_choose_f64(huge, 0x1p-52, 1.0);
  double c1 = pls_choose_f64(huge, 0x1.529fc2757d1f5p+0, 0x1.45f306dc9c883p-1);
  double c2 = pls_choose_f64(huge, 0x1.a6ee06db14acdp-55, -0x1.6b01ec5417056p-55);
  double c3 = pls_choose_f64(huge, -0x1.8778df7c035d4p-109, -0x1.6447e493ad4cep-109);
  double fours = (y * c1 + 0x1.8p+54) - 0x1.8p+54; /* the nearest multiple of 4, or one close by */
  double turns = pls_fma_f64(y, c1, -fours);
  double z = pls_fma_f64(y, c2, turns) + 0x1.8p+52;
  double rest = pls_fma_f64(y, c3, pls_fma_f64(y, c2, turns - (z - 0x1.8p+52)));
  double angle = rest * 0x1.921fb54442d18p+0;
  s.r = (float)angle;
  s.low = (float)(angle - (double)s.r);
  s.quarter = (uint32_t)pls_bits_f64(z);
  return s;
}

/* sin of (quarter + shift) pi/2 + r + low; low matters to the sine only. */
PLN_FN float pls_angle_sin_f32(pln_AngleF32 a, uint32_t shift) {
  float r = a.r, z = r * r;
  uint32_t quarter = a.quarter + shift;
  float s = PLN_P3(f32, z, -0x1.9955bp-13f, 0x1.11077cp-7f, -0x1.555546p-3f);
  float c = PLN_P4(f32, z, 0x1.99e67p-16f, -0x1.6c0c24p-10f, 0x1.55554ap-5f, -0.5f);
  float y = quarter & 1 ? pls_fma_f32(z, c, 1.0f) : r + pls_fma_f32(r * z, s, a.low);
  return pls_from_bits_f32(pls_bits_f32(y) ^ (quarter & 2) << 30);
}

PLN_FN float pls_sin_f32(float x) {
  float y = pls_angle_sin_f32(pls_angle_reduce_f32(x), 0);
  return pls_from_bits_f32(pls_bits_f32(y) ^ (pls_bits_f32(x) & 0x80000000u));
}

PLN_FN float pls_cos_f32(float x) { return pls_angle_sin_f32(pls_angle_reduce_f32(x), 1); }

/* e^(y log|x|) in double, where log = 2 atanh(f / (2 + f)); C99's special cases. */
PLN_FN float pls_pow_f32(float x, float y) {
  double xd = (double)x, yd = (double)y, a = pls_fabs_f64(xd);
  uint64_t k = (pls_bits_f64(a) + (0x3ff0000000000000u - 0x3fe6a09e667f3bcdu)) >> 52;
  double m = pls_from_bits_f64(pls_bits_f64(a) - (k << 52) + 0x3ff0000000000000u);
  double e = pls_from_bits_f64(k + 0x4330000000000000u) - (0x1p+52 + 1023.0);
  double s = (m - 1.0) / (m + 1.0), z = s * s;
  double p = PLN_P5(f64, z, 0x1.9116dc1930e7ep-3, 0x1.c62afd832dfeap-3, 0x1.24941235d77b6p-2,
                    0x1.999996a897638p-2, 0x1.555555561e8c3p-1);
  double l = pls_fma_f64(e, 0x1.62e42fefa39efp-1, pls_fma_f64(s * z, p, 2.0 * s));
  l = ((a > 0) & (a < (double)INFINITY)) ? l : a == 0 ? -(double)INFINITY : a;
  double w = yd * l;
  w = w < -200.0 ? -200.0 : w;
  w = w > 200.0 ? 200.0 : w;
  double t = pls_fma_f64(w, 0x1.71547652b82fep+0, 0x1.8p+52);
  double r = pls_fma_f64(t - 0x1.8p+52, -0x1.62e42fefa39efp-1, w);
  double q = PLN_P6(f64, r, 0x1.a19f90a09ec1fp-13, 0x1.6d976915ec91ap-10, 0x1.11108f825476ep-7,
                    0x1.55547f228078dp-5, 0x1.5555558a7b133p-3, 0x1.00000043ade2bp-1);
  double v = (1.0 + pls_fma_f64(r * r, q, r)) *
             pls_from_bits_f64((pls_bits_f64(t) + 1023) << 52);
  int whole = pls_trunc_f64(yd) == yd;
  int odd = whole & (pls_trunc_f64(0.5 * yd) != 0.5 * yd);
  v = odd ? pls_from_bits_f64(pls_bits_f64(v) | (pls_bits_f64(xd) & 0x8000000000000000u)) : v;
  v = ((xd < 0) & (a < (double)INFINITY) & !whole) ? (double)NAN : v;
  int one = (xd == 1.0) | (yd == 0) | ((a == 1.0) & (pls_fabs_f64(yd) == (double)INFINITY));
  return (float)(one ? 1.0 : v);
}

#endif
