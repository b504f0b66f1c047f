/* SPDX-License-Identifier: MIT
 * double: exp expm1 log log1p tanh sigmoid softplus erf sin cos pow. Included by elementary.h.
 * The methods of elementary_f32.h with longer polynomials; sin, cos and pow carry a second word.
 * log follows Tang: s = f / (2 + f), log(1 + f) = 2 atanh(s). Integers stay in the low bits of a
 * double or in its exponent, because vector units convert 64-bit integers slowly or not at all.
 * Errors are measured by tests/elementary.c. */
#ifndef PLN_ELEMENTARY_F64_H
#define PLN_ELEMENTARY_F64_H

/* high + low, unevaluated */
typedef struct { double high, low; } pln_PairF64;

/* x + low = n ln2 + r + lost, |r| <= ln2 / 2, |lost| <= ulp(r) / 2. n + 1.5 * 2^52 is left in z, so
 * that the low bits of z's pattern are n. */
typedef struct { double r, lost, z; } pln_ReducedF64;

PLN_FN pln_ReducedF64 pls_exp_reduce_f64(double x, double low) {
  pln_ReducedF64 s;
  s.z = pls_fma_f64(x, 0x1.71547652b82fep+0, 0x1.8p+52);
  double n = s.z - 0x1.8p+52;
  double exact = pls_fma_f64(n, -0x1.62e42fefa39efp-1, x);
  double small = pls_fma_f64(n, -0x1.abc9e3b39803fp-56, low);
  s.r = exact + small;
  s.lost = (exact - s.r) + small;
  return s;
}

/* 2^(n - down), n from z as above, within the normal range */
PLN_FN double pls_exp2i_f64(double z, uint64_t down) {
  return pls_from_bits_f64((pls_bits_f64(z) + 1023 - down) << 52);
}

/* e^(r + lost) - 1 - r */
PLN_FN double pls_exp_poly_f64(double r, double lost) {
  double q = PLN_P11(f64, r, 0x1.1f85afbf0b015p-29, 0x1.af5f5905211e3p-26, 0x1.27e4d04473e5ep-22,
                     0x1.71ddf7f8b0f85p-19, 0x1.a01a01ab6f70dp-16, 0x1.a01a01b00ad4fp-13,
                     0x1.6c16c16c156d4p-10, 0x1.111111110f649p-7, 0x1.5555555555557p-5,
                     0x1.5555555555559p-3, 0x1p-1);
  return pls_fma_f64(r * r, q, pls_fma_f64(lost, r, lost));
}

/* e^(x + low). e^-746 rounds to 0 and e^746 to inf by themselves; two steps of scaling round a
 * subnormal once. Adding 2^11 keeps the halved exponent positive. */
PLN_FN pln_PairF64 pls_exp_pair_f64(double x, double low) {
  double size = pls_fabs_f64(x);
  size = size > 746.0 ? 746.0 : size;
  pln_ReducedF64 s = pls_exp_reduce_f64(pls_with_sign_f64(size, x), low);
  double t = s.r + pls_exp_poly_f64(s.r, s.lost), y = 1.0 + t;
  uint64_t i = pls_bits_f64(s.z) - pls_bits_f64(0x1.8p+52) + 2048, half = i >> 1;
  double a = pls_from_bits_f64((half - 1) << 52), b = pls_from_bits_f64((i - half - 1) << 52);
  pln_PairF64 e = {y * a * b, (t - (y - 1.0)) * a * b};
  return e;
}

PLN_FN double pls_exp_f64(double x) { return pls_exp_pair_f64(x, 0.0).high; }

/* (e^x - 1) / 2 for -40 <= x <= 710 */
PLN_FN pln_PairF64 pls_expm1_half_f64(double x) {
  pln_ReducedF64 s = pls_exp_reduce_f64(x, 0.0);
  double t = pls_exp_poly_f64(s.r, s.lost), scale = pls_exp2i_f64(s.z, 1);
  double big = scale - 0.5, small = scale * s.r, sum = big + small;
  double low = pls_fma_f64(scale, t, (small - (sum - big)) + ((scale - big) - 0.5));
  double high = sum + low;
  pln_PairF64 h = {high, low - (high - sum)};
  return h;
}

PLN_FN double pls_expm1_f64(double x) {
  double c = x < -40.0 ? -40.0 : x;
  c = c > 710.0 ? 710.0 : c;
  return pls_fabs_f64(x) < 0x1p-54 ? x : 2.0 * pls_expm1_half_f64(c).high;
}

/* log(1 + f + f_low) + e ln2 for 1 + f in [sqrt(1/2), sqrt(2)] */
PLN_FN double pls_log_poly_f64(double f, double f_low, double e) {
  double s = f / (2.0 + f), z = s * s, half = 0.5 * f * f;
  double p = PLN_P7(f64, z, 0x1.2f049a4a612c9p-3, 0x1.39a1d534538d6p-3, 0x1.74663d9309345p-3,
                    0x1.c71c5211c4c89p-3, 0x1.24924941e39e1p-2, 0x1.999999997ff02p-2,
                    0x1.5555555555592p-1);
  double high = e * 0x1.62e42fefa38p-1, sum = high + f; /* 42 bits of ln2: exact */
  double low = pls_fma_f64(e, 0x1.ef35793c7673p-45, f - (sum - high));
  low += pls_fma_f64(-f_low, f, f_low);
  return sum + (pls_fma_f64(s, pls_fma_f64(z, p, half), low) - half);
}

/* log's values outside (0, inf): of zero, of negative numbers, of inf and NaN */
PLN_FN double pls_log_edge_f64(double x) {
  return x == 0 ? -(double)INFINITY : x < 0 ? (double)NAN : x;
}

/* The exponent e + 1023 for which x / 2^e lies in [sqrt(1/2), sqrt(2)), and from it e. */
PLN_FN uint64_t pls_exponent_f64(double x) {
  return (pls_bits_f64(x) + (0x3ff0000000000000u - 0x3fe6a09e667f3bcdu)) >> 52;
}
PLN_FN double pls_exponent_value_f64(uint64_t k) {
  return pls_from_bits_f64(k + 0x4330000000000000u) - (0x1p+52 + 1023.0);
}

PLN_FN double pls_log_f64(double x) {
  int tiny = x < 0x1p-1022;
  double c = tiny ? x * 0x1p+54 : x;
  uint64_t k = pls_exponent_f64(c);
  double f = pls_from_bits_f64(pls_bits_f64(c) - (k << 52) + 0x3ff0000000000000u) - 1.0;
  double y = pls_log_poly_f64(f, 0.0, pls_exponent_value_f64(k) - (tiny ? 54.0 : 0.0));
  return ((x > 0) & (x < (double)INFINITY)) ? y : pls_log_edge_f64(x);
}

/* log(1 + x + x_low) with f = (x / 2^e) + (1 / 2^e - 1), x_low tiny and only for x >= 0 */
PLN_FN double pls_log1p_poly_f64(double x, double x_low) {
  uint64_t k = pls_exponent_f64(1.0 + x), shift = (k << 52) - 0x3ff0000000000000u;
  double scale = pls_from_bits_f64(0x4010000000000000u - shift); /* 4 / 2^e: normal */
  double a = pls_fma_f64(0.25, scale, -1.0), b = pls_from_bits_f64(pls_bits_f64(x) - shift);
  double f = a + b, f_low = pls_fma_f64(0.25 * scale, x_low, b - (f - a));
  return pls_log_poly_f64(f, f_low, pls_exponent_value_f64(k));
}

PLN_FN double pls_log1p_f64(double x) {
  double y = pls_log1p_poly_f64(x, 0.0);
  y = ((x > -1.0) & (x < (double)INFINITY)) ? y : pls_log_edge_f64(1.0 + x);
  return pls_fabs_f64(x) < 0x1p-54 ? x : y;
}

/* With h = (e^2|x| - 1) / 2: h / (h + 1) corrected by its remainder, above 1/2 1 - 1 / (h + 1) */
PLN_FN double pls_tanh_f64(double x) {
  double a = pls_fabs_f64(x);
  double c = a > 20.0 ? 20.0 : a; /* tanh(20) rounds to 1 */
  pln_PairF64 h = pls_expm1_half_f64(2.0 * c);
  double d = h.high + 1.0, d_low = (h.high - (d - 1.0)) + h.low;
  double q = (c < 0.5625 ? h.high : 1.0) / d;
  double rest = pls_fma_f64(-q, d, h.high) + pls_fma_f64(-q, d_low, h.low);
  double small = pls_fma_f64(rest, 1.0 - q, q); /* 1 - q = 1 / d */
  double y = c < 0x1p-28 ? a : c < 0.5625 ? small : 1.0 - q;
  return pls_with_sign_f64(y, x);
}

/* n / d with e = e^-|x|, d = 1 + e, n = 1 or e: the quotient is corrected by its remainder. */
PLN_FN double pls_sigmoid_f64(double x) {
  pln_PairF64 e = pls_exp_pair_f64(-pls_fabs_f64(x), 0.0);
  double d = 1.0 + e.high, d_low = (e.high - (d - 1.0)) + e.low;
  double n = x < 0 ? e.high : 1.0, n_low = x < 0 ? e.low : 0.0;
  double q = n / d, inverse = x < 0 ? 1.0 - q : q; /* 1 / d */
  double rest = pls_fma_f64(-q, d, n) + pls_fma_f64(-q, d_low, n_low);
  return pls_fma_f64(rest, inverse, q);
}

/* log(1 + e^x) = max(x, 0) + log1p(e^-|x|) */
PLN_FN double pls_softplus_f64(double x) {
  pln_PairF64 e = pls_exp_pair_f64(-pls_fabs_f64(x), 0.0);
  double l = e.high < 0x1p-54 ? e.high : pls_log1p_poly_f64(e.high, e.low);
  return (x < 0 ? 0.0 : x) + l;
}

/* x + x P(x^2) up to 1, then 1 - e^(-x^2) G(|x|) with G = e^(x^2) erfc(x) */
PLN_FN double pls_erf_f64(double x) {
  double a = pls_fabs_f64(x);
  a = a > 6.0 ? 6.0 : a; /* erf(6) rounds to 1 */
  double z = a * a, t = a - 3.0;
  double p = PLN_P6(f64, z, 0x1.355e1bc731851p-33, -0x1.bf958fe21efd7p-30, 0x1.12378cfb2d6cep-26,
                    -0x1.636205a8264bap-23, 0x1.ba63394167531p-20, -0x1.f4dc776763a89p-17);
  p = PLN_P8(f64, z, p, 0x1.f9a3b2d968132p-14, -0x1.c02db8face59dp-11, 0x1.565bcd2b39898p-8,
             -0x1.b82ce3134e079p-6, 0x1.ce2f21a0457b3p-4, -0x1.812746b037a24p-2,
             0x1.06eba8214db69p-3);
  double g = PLN_P11(f64, t, -0x1.128bcc4f5423fp-42, -0x1.c974b8fd1a9f5p-40, -0x1.fe4fe3d04267dp-39,
                     0x1.3b431c54d7b94p-37, 0x1.4829728374ce2p-35, 0x1.5e4a579dd3275p-34,
                     -0x1.19a35219e082ap-32, 0x1.caa820218c52fp-32, -0x1.d97b04bcd014ep-29,
                     0x1.08e6993a0474ap-26, -0x1.1ac044dc4b7adp-24);
  g = PLN_P12(f64, t, g, 0x1.369f05354d64ap-22, -0x1.4b3b125554948p-20, 0x1.595887925a037p-18,
              -0x1.6024b8fefb8b7p-16, 0x1.5e73c5e3cdcacp-14, -0x1.53dec6342bb46p-12,
              0x1.409cc2a1fbd6p-10, -0x1.259061c6279cbp-8, 0x1.043fe1a950c55p-6,
              -0x1.bd6ae4d142af4p-5, 0x1.6e9827d22a077p-3);
  double low = -pls_fma_f64(a, a, -z);
  double small = pls_fma_f64(a, p, a), large = 1.0 - pls_exp_pair_f64(-z, low).high * g;
  return pls_with_sign_f64(a < 1.0 ? small : large, x);
}

/* Entry g holds 48 bits of 2/pi: 2^(8 g) 2/pi modulo 4, cut after 2^-46. Entries g, g + 6, g + 12,
 * g + 18 therefore continue each other, as in Payne and Hanek's reduction. */
PLN_FN double pls_two_over_pi_f64(uint64_t g) {
  static const double bits[140] = {
    0x28be60db9391p-46, 0xbe60db939105p-46, 0x60db9391054ap-46, 0xdb9391054a7fp-46, 0x9391054a7f09p-46,
    0x91054a7f09d5p-46, 0x054a7f09d5f4p-46, 0x4a7f09d5f47dp-46, 0x7f09d5f47d4dp-46, 0x09d5f47d4d37p-46,
    0xd5f47d4d3770p-46, 0xf47d4d377036p-46, 0x7d4d377036d8p-46, 0x4d377036d8a5p-46, 0x377036d8a566p-46,
    0x7036d8a5664fp-46, 0x36d8a5664f10p-46, 0xd8a5664f10e4p-46, 0xa5664f10e410p-46, 0x664f10e4107fp-46,
    0x4f10e4107f94p-46, 0x10e4107f9458p-46, 0xe4107f9458eap-46, 0x107f9458eaf7p-46, 0x7f9458eaf7aep-46,
    0x9458eaf7aef1p-46, 0x58eaf7aef158p-46, 0xeaf7aef1586dp-46, 0xf7aef1586dc9p-46, 0xaef1586dc91bp-46,
    0xf1586dc91b8ep-46, 0x586dc91b8e90p-46, 0x6dc91b8e9093p-46, 0xc91b8e909374p-46, 0x1b8e909374b8p-46,
    0x8e909374b801p-46, 0x909374b80192p-46, 0x9374b801924bp-46, 0x74b801924bbap-46, 0xb801924bba82p-46,
    0x01924bba8274p-46, 0x924bba827464p-46, 0x4bba82746487p-46, 0xba827464873fp-46, 0x827464873f87p-46,
    0x7464873f877ap-46, 0x64873f877ac7p-46, 0x873f877ac72cp-46, 0x3f877ac72c4ap-46, 0x877ac72c4a69p-46,
    0x7ac72c4a69cfp-46, 0xc72c4a69cfbap-46, 0x2c4a69cfba20p-46, 0x4a69cfba208dp-46, 0x69cfba208d7dp-46,
    0xcfba208d7d4bp-46, 0xba208d7d4baep-46, 0x208d7d4baed1p-46, 0x8d7d4baed121p-46, 0x7d4baed1213ap-46,
    0x4baed1213a67p-46, 0xaed1213a671cp-46, 0xd1213a671c09p-46, 0x213a671c09adp-46, 0x3a671c09ad17p-46,
    0x671c09ad17dfp-46, 0x1c09ad17df90p-46, 0x09ad17df904ep-46, 0xad17df904e64p-46, 0x17df904e6475p-46,
    0xdf904e64758ep-46, 0x904e64758e60p-46, 0x4e64758e60d4p-46, 0x64758e60d4cep-46, 0x758e60d4ce7dp-46,
    0x8e60d4ce7d27p-46, 0x60d4ce7d2721p-46, 0xd4ce7d272117p-46, 0xce7d272117e2p-46, 0x7d272117e2efp-46,
    0x272117e2ef7ep-46, 0x2117e2ef7e4ap-46, 0x17e2ef7e4a0ep-46, 0xe2ef7e4a0ec7p-46, 0xef7e4a0ec7fep-46,
    0x7e4a0ec7fe25p-46, 0x4a0ec7fe25ffp-46, 0x0ec7fe25fff7p-46, 0xc7fe25fff781p-46, 0xfe25fff78166p-46,
    0x25fff7816603p-46, 0xfff7816603fbp-46, 0xf7816603fbcbp-46, 0x816603fbcbc4p-46, 0x6603fbcbc462p-46,
    0x03fbcbc462d6p-46, 0xfbcbc462d682p-46, 0xcbc462d6829bp-46, 0xc462d6829b47p-46, 0x62d6829b47dbp-46,
    0xd6829b47db4dp-46, 0x829b47db4d9fp-46, 0x9b47db4d9fb3p-46, 0x47db4d9fb3c9p-46, 0xdb4d9fb3c9f2p-46,
    0x4d9fb3c9f2c2p-46, 0x9fb3c9f2c26dp-46, 0xb3c9f2c26dd3p-46, 0xc9f2c26dd3d1p-46, 0xf2c26dd3d18fp-46,
    0xc26dd3d18fd9p-46, 0x6dd3d18fd9a7p-46, 0xd3d18fd9a797p-46, 0xd18fd9a797fap-46, 0x8fd9a797fa8bp-46,
    0xd9a797fa8b5dp-46, 0xa797fa8b5d49p-46, 0x97fa8b5d49eep-46, 0xfa8b5d49eeb1p-46, 0x8b5d49eeb1fap-46,
    0x5d49eeb1faf9p-46, 0x49eeb1faf97cp-46, 0xeeb1faf97c5ep-46, 0xb1faf97c5ecfp-46, 0xfaf97c5ecf41p-46,
    0xf97c5ecf41cep-46, 0x7c5ecf41ce7dp-46, 0x5ecf41ce7de2p-46, 0xcf41ce7de294p-46, 0x41ce7de294a4p-46,
    0xce7de294a4bap-46, 0x7de294a4ba9ap-46, 0xe294a4ba9afep-46, 0x94a4ba9afed7p-46, 0xa4ba9afed7ecp-46,
    0xba9afed7ec47p-46, 0x9afed7ec47e3p-46, 0xfed7ec47e357p-46, 0xd7ec47e35742p-46, 0xec47e3574215p-46
  };
  return bits[g];
}

/* a + b = high + low exactly */
PLN_FN pln_PairF64 pls_two_sum_f64(double a, double b) {
  double high = a + b, part = high - a;
  pln_PairF64 s = {high, (a - (high - part)) + (b - part)};
  return s;
}

/* |x| = (4 j + n) pi/2 + r + low for every finite x; n is in the low bits of z's pattern. From 2^60
 * on a multiple of 8 is taken off the exponent so that y is in [2^52, 2^60): an integer, hence
 * y times 2/pi's row modulo 4 is right modulo 4. The products are summed by size, exactly down to
 * 2^-80, because x may come as close as 2^-61 to a multiple of pi/2. */
typedef struct { double r, low, z; } pln_AngleF64;

PLN_FN pln_AngleF64 pls_angle_reduce_f64(double x) {
  pln_AngleF64 s;
  uint64_t u = pls_bits_f64(pls_fabs_f64(x)), e = u >> 52;
  uint64_t far = 0 - ((1023 + 59 - e) >> 63); /* all ones if |x| >= 2^60 */
  uint64_t g = ((e - (1023 + 52)) >> 3) & far;
  double y = e == 2047 ? (double)NAN : pls_from_bits_f64(u - (g << 55));
  double c1 = pls_two_over_pi_f64(g), c2 = pls_two_over_pi_f64(g + 6) * 0x1p-48;
  double c3 = pls_two_over_pi_f64(g + 12) * 0x1p-96, c4 = pls_two_over_pi_f64(g + 18) * 0x1p-144;
  double p1 = y * c1, p2 = y * c2, p3 = y * c3;
  double turns = p1 - ((p1 + 0x1.8p+54) - 0x1.8p+54); /* less a multiple of 4 */
  pln_PairF64 h = pls_two_sum_f64(turns, pls_fma_f64(y, c1, -p1)), l = h;
  h = pls_two_sum_f64(h.high, p2);
  l = pls_two_sum_f64(l.low, h.low);
  s.z = h.high + 0x1.8p+52;
  h.high -= s.z - 0x1.8p+52;
  double last = l.low;
  l = pls_two_sum_f64(l.high, pls_fma_f64(y, c2, -p2));
  last += l.low;
  l = pls_two_sum_f64(l.high, p3);
  last += l.low + (pls_fma_f64(y, c3, -p3) + y * c4);
  h = pls_two_sum_f64(h.high, l.high);
  h = pls_two_sum_f64(h.high, h.low + last);
  s.r = h.high * 0x1.921fb54442d18p+0;
  s.low = pls_fma_f64(h.high, 0x1.921fb54442d18p+0, -s.r) +
          pls_fma_f64(h.low, 0x1.921fb54442d18p+0, h.high * 0x1.1a62633145c07p-54);
  return s;
}

/* sin of (n + shift) pi/2 + r + low */
PLN_FN double pls_angle_sin_f64(pln_AngleF64 a, uint64_t shift) {
  uint64_t quarter = pls_bits_f64(a.z) + shift;
  double r = a.r, z = r * r, half = 0.5 * z, w = 1.0 - half;
  double s = PLN_P6(f64, z, 0x1.5d93ac21dd618p-33, -0x1.ae5e68bb05453p-26, 0x1.71de357b40e89p-19,
                    -0x1.a01a019c16432p-13, 0x1.111111110f8a7p-7, -0x1.5555555555549p-3);
  double c = PLN_P6(f64, z, -0x1.8fb149358e49ep-37, 0x1.1ee9f17ff274bp-29, -0x1.27e4f812f4c32p-22,
                    0x1.a01a019cbfacbp-16, -0x1.6c16c16c15221p-10, 0x1.555555555554cp-5);
  double sine = r + pls_fma_f64(r * z, s, pls_fma_f64(-half, a.low, a.low));
  double cosine = w + (((1.0 - w) - half) + pls_fma_f64(z * z, c, -r * a.low));
  double y = quarter & 1 ? cosine : sine;
  return pls_from_bits_f64(pls_bits_f64(y) ^ (quarter & 2) << 62);
}

PLN_FN double pls_sin_f64(double x) {
  double y = pls_angle_sin_f64(pls_angle_reduce_f64(x), 0);
  y = pls_from_bits_f64(pls_bits_f64(y) ^ (pls_bits_f64(x) & 0x8000000000000000u));
  return pls_fabs_f64(x) < 0x1p-27 ? x : y;
}

PLN_FN double pls_cos_f64(double x) { return pls_angle_sin_f64(pls_angle_reduce_f64(x), 1); }

/* log a as the unevaluated sum high + low, relative error about 2^-65, for normal a > 0 */
PLN_FN pln_PairF64 pls_log_pair_f64(double a, double e_shift) {
  pln_PairF64 l;
  uint64_t k = pls_exponent_f64(a);
  double f = pls_from_bits_f64(pls_bits_f64(a) - (k << 52) + 0x3ff0000000000000u) - 1.0;
  double e = pls_exponent_value_f64(k) - e_shift;
  /* s = f / (2 + f) */
  double d = 2.0 + f, d_low = f - (d - 2.0), inverse = 1.0 / d;
  double s = f * inverse, s_low = pls_fma_f64(-s, d_low, pls_fma_f64(-s, d, f)) * inverse;
  /* z = s^2, r = 2/3 + z P(z), v = s z r */
  double z = s * s, z_low = pls_fma_f64(2.0 * s, s_low, pls_fma_f64(s, s, -z));
  double t = z * PLN_P8(f64, z, 0x1.eac6bd29374aap-4, 0x1.de3d558e498e2p-4, 0x1.11206fbe09afbp-3,
                        0x1.3b1364c65a6b3p-3, 0x1.745d18295dfb6p-3, 0x1.c71c71c596883p-3,
                        0x1.2492492492f51p-2, 0x1.9999999999996p-2);
  double r = 0x1.5555555555555p-1 + t;
  double r_low = ((0x1.5555555555555p-1 - r) + t) + 0x1.5555555555555p-55;
  double u = z * r;
  double u_low = pls_fma_f64(z_low, r, pls_fma_f64(z, r_low, pls_fma_f64(z, r, -u)));
  double v = s * u;
  double v_low = pls_fma_f64(s_low, u, pls_fma_f64(s, u_low, pls_fma_f64(s, u, -v)));
  /* e ln2 + 2 s + v, largest first */
  double m = 2.0 * s + v, m_low = (2.0 * s - m) + v + (v_low + 2.0 * s_low);
  double n = e * 0x1.62e42fefa38p-1, sum = n + m;
  double low = (m - (sum - n)) + pls_fma_f64(e, 0x1.ef35793c7673p-45, m_low);
  l.high = sum + low;
  l.low = low - (l.high - sum);
  return l;
}

/* e^(y log|x|) with C99's special cases */
PLN_FN double pls_pow_f64(double x, double y) {
  double a = pls_fabs_f64(x);
  int tiny = a < 0x1p-1022;
  pln_PairF64 l = pls_log_pair_f64(tiny ? a * 0x1p+54 : a, tiny ? 54.0 : 0.0);
  double h = ((a > 0) & (a < (double)INFINITY)) ? l.high : a == 0 ? -(double)INFINITY : a;
  double w = y * h, w_low = pls_fma_f64(y, l.high, -w) + y * l.low;
  double v = pls_exp_pair_f64(w, pls_fabs_f64(w) < 800.0 ? w_low : 0.0).high;
  int whole = pls_trunc_f64(y) == y;
  int odd = whole & (pls_trunc_f64(0.5 * y) != 0.5 * y);
  v = odd ? pls_from_bits_f64(pls_bits_f64(v) | (pls_bits_f64(x) & 0x8000000000000000u)) : v;
  v = ((x < 0) & (a < (double)INFINITY) & !whole) ? (double)NAN : v;
  int one = (x == 1.0) | (y == 0) | ((a == 1.0) & (pls_fabs_f64(y) == (double)INFINITY));
  return one ? 1.0 : v;
}

#endif
