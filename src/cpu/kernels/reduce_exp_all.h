/* SPDX-License-Identifier: MIT
** reduce_exp_all.h -- e^(x - m) of n elements for one float type (reduce_each.h): short rows must not fall to one at a time.
*/

PLK_INLINE void K(exp_four)(T *restrict e, const T *restrict x, T m) {
  for (int i = 0; i < 4; i++) e[i] = K(plk_exp_below)(x[i] - m);
}

__attribute__((unused)) static void K(exp_all)(T *restrict e, const T *restrict x, T m, int64_t n) {
  int64_t full = n & -PLK_LANES, k = full;
  for (int64_t i = 0; i < full; i++) e[i] = K(plk_exp_below)(x[i] - m);
  for (; n - k >= 4; k += 4) K(exp_four)(e + k, x + k, m);
  if (k < n) {
    T last[4] = {x[k], k + 1 < n ? x[k + 1] : m, k + 2 < n ? x[k + 2] : m, m}, r[4];
    K(exp_four)(r, last, m);
    for (int i = 0; k < n; k++, i++) e[k] = r[i];
  }
}
