/* SPDX-License-Identifier: MIT
** reduce_lse.h -- the blocks of logsumexp for one float type (reduce_each.h): the largest element, and the sum of
** e^(x - largest), where that is finite.
*/

PLK_LOAD(K(exp_each), T, T, K(plk_exp_below)(x - ((const T *)with)[i]))

static void K(lse_block)(const plk_Fold *f, const char *x, int64_t n, char *acc) {
  T buffer[PLK_BLOCK], largest = K(block)(PLK_MAX, (const T *)x, n);
  (void)f;
  *(double *)acc = largest;
  if (largest - largest != 0) {
    *second(acc, 1) = sum_of(largest);
    return;
  }
  K(exp_all)(buffer, (const T *)x, largest, n);
  *second(acc, 1) = K(block)(PLK_SUM, buffer, n);
}

static void K(lse_rows)(const plk_Fold *f, plk_Rows *rows, int64_t n, int64_t w, char *acc) {
  T largest[PLK_COLUMNS], shift[PLK_COLUMNS], sum[PLK_COLUMNS];
  (void)f;
  K(block_rows)(PLK_MAX, rows, n, w, largest);
  for (int64_t i = 0; i < w; i++) shift[i] = largest[i] - largest[i] == 0 ? largest[i] : 0;
  rows->load = K(exp_each);
  rows->with = shift;
  rows->packed = false;
  K(block_rows)(PLK_SUM, rows, n, w, sum);
  for (int64_t i = 0; i < w; i++) {
    ((double *)acc)[i] = largest[i];
    second(acc, w)[i] = largest[i] - largest[i] == 0 ? sum[i] : sum_of(largest[i]);
  }
}
