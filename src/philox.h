/* SPDX-License-Identifier: MIT
** philox.h -- random words as a function of where they are needed: Philox4x32-10 (Salmon, Moraes, Dror, Shaw: "Parallel random numbers:
** as easy as 1, 2, 3", 2011). Compiles as C11, C++17 and CUDA.
**
** Invariant (C10): the key is the engine's seed, the counter is (group, draw), low words first. Elements of 32 bits are number e % 4 of
** group e / 4, elements of 64 bits (low word first) number e % 2 of group e / 2. So every element can be made alone, on any device.
*/
#ifndef PLN_PHILOX_H
#define PLN_PHILOX_H

#include "elementary.h"

typedef struct pln_Words {
  uint32_t w0, w1, w2, w3;
} pln_Words;

PLN_FN pln_Words pln_philox(uint64_t seed, uint64_t draw, uint64_t group) {
  uint32_t k0 = (uint32_t)seed, k1 = (uint32_t)(seed >> 32);
  pln_Words c = {(uint32_t)group, (uint32_t)(group >> 32), (uint32_t)draw, (uint32_t)(draw >> 32)};
  for (int round = 0; round < 10; round++) {
    uint64_t p = (uint64_t)c.w0 * 0xD2511F53u, q = (uint64_t)c.w2 * 0xCD9E8D57u;
    pln_Words next = {(uint32_t)(q >> 32) ^ c.w1 ^ k0, (uint32_t)q, (uint32_t)(p >> 32) ^ c.w3 ^ k1, (uint32_t)p};
    c = next;
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  return c;
}

/* In [0, 1): the upper bits, as many as the type holds. */
PLN_FN float pln_uniform_f32(uint32_t w) { return (float)(int32_t)(w >> 8) * 0x1p-24f; }
PLN_FN double pln_uniform_f64(uint32_t lo, uint32_t hi) {
  /* in exact parts of at most 31 bits, which vectors convert */
  double upper = (double)(int32_t)(hi >> 16) * 65536.0 + (double)(int32_t)(hi & 0xffffu);
  return (upper * 0x1p21 + (double)(int32_t)(lo >> 11)) * 0x1p-53;
}

/* Two normal numbers (Box and Muller): a radius from u in (0, 1], an angle from v in [0, 1). */
typedef struct pln_NormalsF32 {
  float a, b;
} pln_NormalsF32;
typedef struct pln_NormalsF64 {
  double a, b;
} pln_NormalsF64;

PLN_FN pln_NormalsF32 pln_normals_f32(uint32_t w0, uint32_t w1) {
  /* 32 bits of radius as their upper and lower halves, each exact: a conversion that every device rounds alike */
  float u = ((float)(int32_t)(w0 >> 16) * 65536.0f + (float)(int32_t)((w0 & 0xffffu) + 1)) * 0x1p-32f;
  float r = pls_sqrt_f32(-2.0f * pls_log_f32(u)), angle = 6.2831853f * pln_uniform_f32(w1);
  pln_NormalsF32 n = {r * pls_cos_f32(angle), r * pls_sin_f32(angle)};
  return n;
}

PLN_FN pln_NormalsF64 pln_normals_f64(pln_Words w) {
  double u = pln_uniform_f64(w.w0, w.w1) + 0x1p-53;
  double r = pls_sqrt_f64(-2.0 * pls_log_f64(u)), angle = 6.283185307179586 * pln_uniform_f64(w.w2, w.w3);
  pln_NormalsF64 n = {r * pls_cos_f64(angle), r * pls_sin_f64(angle)};
  return n;
}

/* A whole number below n, n > 0: the upper half of a product, so that no division is needed; the bias is below n / 2^64. */
PLN_FN uint64_t pln_below(uint64_t w, uint64_t n) {
  uint64_t wl = (uint32_t)w, wh = w >> 32, nl = (uint32_t)n, nh = n >> 32;
  uint64_t mid = wh * nl + (wl * nl >> 32), low = (uint32_t)mid + wl * nh;
  return wh * nh + (mid >> 32) + (low >> 32);
}

/* Whether dropout keeps an element: its uniform number is at least p, with p as the threshold ceil(p * 2^24). */
PLN_FN int pln_kept(uint32_t w, uint32_t threshold) { return (w >> 8) >= threshold; }

#endif
