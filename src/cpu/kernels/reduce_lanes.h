/* SPDX-License-Identifier: MIT
** reduce_lanes.h -- what a reduction adds up first: the tree of one block, for one element type.
**
** A template of reduce_each.h. A block of at most PLK_BLOCK elements is cut into runs of 256. Of each run element k joins lane k % 16, in order; runs join lane by lane, in
** order; lanes are halved 8, 4, 2, 1. Lanes without elements hold the identity, which changes nothing. This is the order whether
** the elements lie side by side (block) or each is a row of `w` of them, one for each of w results (block_rows).
*/

typedef T K(Vec) __attribute__((vector_size(PLK_VECTOR)));
typedef U K(VecU) __attribute__((vector_size(PLK_VECTOR)));
typedef M K(VecM) __attribute__((vector_size(PLK_VECTOR)));
typedef T K(Load) __attribute__((vector_size(PLK_VECTOR), aligned(sizeof(T)), may_alias));

#define WIDTH ((int)(PLK_VECTOR / sizeof(T)))
#define PARTS (PLK_LANES / WIDTH)

PLK_INLINE T K(identity)(int op) {
  return op == PLK_SUM ? (T)0 : op == PLK_PROD ? (T)1 : op == PLK_MAX ? LOWEST : HIGHEST;
}

/* a is never NaN for long: a NaN in x wins and stays */
PLK_INLINE T K(step)(int op, T a, T x) {
  if (op == PLK_SUM) return (T)((U)a + (U)x);
  if (op == PLK_PROD) return (T)((U)a * (U)x);
  if (op == PLK_MAX) return ((x > a) | UNORDERED(x)) ? x : a;
  return ((x < a) | UNORDERED(x)) ? x : a;
}

PLK_INLINE K(Vec) K(vec_step)(int op, K(Vec) a, K(Vec) x) {
  if (op == PLK_SUM) return (K(Vec))((K(VecU))a + (K(VecU))x);
  if (op == PLK_PROD) return (K(Vec))((K(VecU))a * (K(VecU))x);
  K(VecM) m = (K(VecM))(op == PLK_MAX ? x > a : x < a) | UNORDERED(x);
  return (K(Vec))((m & (K(VecM))x) | (~m & (K(VecM))a));
}

PLK_INLINE K(Vec) K(vec_of)(T x) { return x - (K(Vec)){0}; }

/* Fewer elements than lanes. */
PLK_INLINE T K(short_block_of)(int op, const T *x, int64_t n) {
  T t[PLK_LANES];
  t[0] = K(identity)(op);
  for (int64_t l = 0; l < n; l++) t[l] = K(step)(op, K(identity)(op), x[l]);
  for (int64_t h = PLK_LANES / 2; h; h /= 2)
    for (int64_t l = 0; l + h < (n < 2 * h ? n : 2 * h); l++) t[l] = K(step)(op, t[l], t[l + h]);
  return t[0];
}

PLK_INLINE T K(block_of)(int op, const T *x, int64_t n) {
  if (n < PLK_LANES) return K(short_block_of)(op, x, n);
  K(Vec) total[PARTS], a[PARTS];
  T t[PLK_LANES];
  for (int v = 0; v < PARTS; v++) total[v] = K(vec_of)(K(identity)(op));
  for (int64_t r = 0; r < n; r += PLK_RUN) {
    int64_t m = n - r < PLK_RUN ? n - r : PLK_RUN, k = 0;
    for (int v = 0; v < PARTS; v++) a[v] = K(vec_of)(K(identity)(op));
    for (; k + PLK_LANES <= m; k += PLK_LANES)
      for (int v = 0; v < PARTS; v++) a[v] = K(vec_step)(op, a[v], *(const K(Load) *)(x + r + k + v * WIDTH));
    if (k < m) {
      for (int v = 0; v < PARTS; v++) *(K(Load) *)(t + v * WIDTH) = a[v];
      for (int64_t i = k; i < m; i++) t[i - k] = K(step)(op, t[i - k], x[r + i]);
      for (int v = 0; v < PARTS; v++) a[v] = *(const K(Load) *)(t + v * WIDTH);
    }
    for (int v = 0; v < PARTS; v++) total[v] = K(vec_step)(op, total[v], a[v]);
  }
  for (int v = 0; v < PARTS; v++) *(K(Load) *)(t + v * WIDTH) = total[v];
  for (int h = PLK_LANES / 2; h; h /= 2)
    for (int l = 0; l < h; l++) t[l] = K(step)(op, t[l], t[l + h]);
  return t[0];
}

/* The reduction of n <= PLK_BLOCK elements. */
__attribute__((noinline, unused)) static T K(block)(int op, const T *x, int64_t n) {
  switch (op) {
  case PLK_SUM: return K(block_of)(PLK_SUM, x, n);
  case PLK_PROD: return K(block_of)(PLK_PROD, x, n);
  case PLK_MAX: return K(block_of)(PLK_MAX, x, n);
  default: return K(block_of)(PLK_MIN, x, n);
  }
}

PLK_INLINE void K(join)(int op, T *restrict a, const T *restrict x, int64_t n) {
  for (int64_t i = 0; i < n; i++) a[i] = K(step)(op, a[i], x[i]);
}

PLK_INLINE void K(block_rows_of)(int op, const plk_Rows *rows, int64_t n, int64_t w, T *restrict out) {
  T acc[PLK_LANES * PLK_COLUMNS], total[PLK_LANES * PLK_COLUMNS], buffer[PLK_LANES * PLK_COLUMNS];
  const T none = K(identity)(op);
  const int64_t lanes = n < PLK_LANES ? n : PLK_LANES;
  for (int64_t r = 0; r < n; r += PLK_RUN) {
    int64_t m = n - r < PLK_RUN ? n - r : PLK_RUN;
    T *a = r ? acc : total;
    for (int64_t i = 0; i < lanes * w; i++) a[i] = none;
    for (int64_t k = 0; k < m; k += PLK_LANES) {
      int64_t left = m - k < PLK_LANES ? m - k : PLK_LANES;
      if (rows->packed) { /* the rows of all lanes side by side, as the lanes are */
        K(join)(op, a, plk_row(rows, r + k, left * w, buffer), left * w);
      } else {
        for (int64_t l = 0; l < left; l++) K(join)(op, a + l * w, plk_row(rows, r + k + l, w, buffer), w);
      }
    }
    if (r) K(join)(op, total, acc, lanes * w);
  }
  for (int64_t h = PLK_LANES / 2; h; h /= 2)
    for (int64_t l = 0; l < h && l + h < lanes; l++) K(join)(op, total + l * w, total + (l + h) * w, w);
  for (int64_t i = 0; i < w; i++) out[i] = n ? total[i] : none;
}

/* The same of n <= PLK_BLOCK rows of w <= PLK_COLUMNS elements each: w results. */
__attribute__((noinline, unused)) static void K(block_rows)(int op, const plk_Rows *rows, int64_t n, int64_t w, T *out) {
  switch (op) {
  case PLK_SUM: K(block_rows_of)(PLK_SUM, rows, n, w, out); return;
  case PLK_PROD: K(block_rows_of)(PLK_PROD, rows, n, w, out); return;
  case PLK_MAX: K(block_rows_of)(PLK_MAX, rows, n, w, out); return;
  default: K(block_rows_of)(PLK_MIN, rows, n, w, out);
  }
}

#undef WIDTH
#undef PARTS
