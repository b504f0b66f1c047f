/* SPDX-License-Identifier: MIT
** native.c - yardsticks for memory: what plain C reaches on this machine (called from Python).
*/
#include <stddef.h>
#include <string.h>

/* STREAM's triad on floats: 12 bytes of traffic an element, as an addition of two tensors has. */
void triad (float *a, const float *b, const float *c, float scale, size_t n) {
  for (size_t i = 0; i < n; i++) a[i] = b[i] + scale * c[i];
}

void set (void *to, int byte, size_t bytes) {
  memset(to, byte, bytes);
}
