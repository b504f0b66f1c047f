/* SPDX-License-Identifier: MIT
** reduce_extreme.h -- a largest or smallest element with its index, for one element type (reduce_each.h). The first one wins
** ties, a NaN wins over all, the first NaN over the others. Indices are counted from the block's start until blocks merge.
*/

/* Where v, which is in x, first is; with NaN in x, where the first of them is. */
static int64_t K(find)(const T *x, int64_t n, T v) {
  enum { STRIDE = 64 };
  int64_t k = 0;
  for (; k + STRIDE <= n; k += STRIDE) {
    M hits = 0;
    for (int l = 0; l < STRIDE; l++) hits += (x[k + l] == v) | UNORDERED(x[k + l]);
    if (hits) break;
  }
  while (k < n - 1 && !((x[k] == v) | UNORDERED(x[k]))) k++;
  return k;
}

static void K(extreme_block)(const plk_Fold *f, const char *src, int64_t n, char *acc) {
  T buffer[PLK_BLOCK];
  const T *x = f->load ? f->load(buffer, src, n, NULL, 0) : (const void *)src;
  T v = K(block)(f->op, x, n);
  *(T *)acc = v;
  *indices(acc, 1) = K(find)(x, n, v);
}

/* Does b, behind a, take its place? */
PLK_INLINE int K(beats)(int op, T b, T a) {
  return ((op == PLK_MAX ? b > a : b < a) | UNORDERED(b)) & !UNORDERED(a);
}

PLK_INLINE void K(choose)(int op, T *restrict best, M *restrict index, const T *restrict x, M k, int64_t w) {
  for (int64_t i = 0; i < w; i++) {
    T a = best[i], b = x[i];
    int take = K(beats)(op, b, a);
    best[i] = take ? b : a;
    index[i] = take ? k : index[i];
  }
}

static void K(extreme_rows)(const plk_Fold *f, plk_Rows *rows, int64_t n, int64_t w, char *acc) {
  T buffer[PLK_COLUMNS], *best = (T *)acc;
  M index[PLK_COLUMNS] = {0}; /* of T's size, so that values and indices are chosen by one mask */
  memcpy(best, plk_row(rows, 0, w, buffer), (size_t)w * sizeof(T));
  for (int64_t k = 1; k < n; k++) {
    const T *x = plk_row(rows, k, w, buffer);
    if (f->op == PLK_MAX)
      K(choose)(PLK_MAX, best, index, x, (M)k, w);
    else
      K(choose)(PLK_MIN, best, index, x, (M)k, w);
  }
  for (int64_t i = 0; i < w; i++) indices(acc, w)[i] = index[i];
}

static void K(extreme_merge)(const plk_Fold *f, char *a, int64_t na, const char *b, int64_t nb, int64_t w) {
  (void)nb;
  for (int64_t i = 0; i < w; i++) {
    T *best = (T *)a + i, other = ((const T *)b)[i];
    if (!K(beats)(f->op, other, *best)) continue;
    *best = other;
    indices(a, w)[i] = indices((char *)b, w)[i] + na;
  }
}
