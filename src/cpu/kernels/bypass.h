/* SPDX-License-Identifier: MIT
** bypass.h -- big results go to memory past the caches: an ordinary store first reads the line that it then overwrites, which
** makes three streams of two and pushes out what is read. Measured: an addition of 16 M floats takes two thirds of the time, a transposed
** copy of 2048 x 2048 a fifth. A result is made piece by piece in a buffer that stays in the first cache, then streamed out.
*/
#ifndef PLN_CPU_BYPASS_H
#define PLN_CPU_BYPASS_H

#include <stdint.h>
#include <string.h>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#define PLK_LINE 64
#define PLK_BYPASS_BYTES (4 << 20) /* results up to this may still be in a cache when they are read */

/* Does a result of so many bytes pass the caches by? */
static inline int plk_bypasses(int64_t bytes) {
#if defined(__x86_64__)
  return bytes > PLK_BYPASS_BYTES;
#else
  return (void)bytes, 0;
#endif
}

/* Copies; whole lines of `to` are streamed. Whoever streamed calls plk_bypass_end before others may read. */
static inline void plk_bypass(char *to, const char *from, int64_t bytes) {
#if defined(__x86_64__)
  int64_t head = -(intptr_t)to & (PLK_LINE - 1);
  if (head > bytes) head = bytes;
  memcpy(to, from, (size_t)head);
  for (to += head, from += head, bytes -= head; bytes >= PLK_LINE; to += PLK_LINE, from += PLK_LINE, bytes -= PLK_LINE) {
#if defined(__AVX512F__)
    _mm512_stream_si512((void *)to, _mm512_loadu_si512(from));
#elif defined(__AVX__)
    for (int k = 0; k < PLK_LINE; k += 32) _mm256_stream_si256((void *)(to + k), _mm256_loadu_si256((const void *)(from + k)));
#else
    for (int k = 0; k < PLK_LINE; k += 16) _mm_stream_si128((void *)(to + k), _mm_loadu_si128((const void *)(from + k)));
#endif
  }
#endif
  memcpy(to, from, (size_t)bytes);
}

static inline void plk_bypass_end(void) {
#if defined(__x86_64__)
  _mm_sfence();
#endif
}

/* Fetches lines that are read soon; there need be none. */
static inline void plk_ahead(const char *from, int64_t bytes) {
  for (int64_t k = 0; k < bytes; k += PLK_LINE) __builtin_prefetch(from + k);
}

#endif
