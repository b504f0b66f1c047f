/* SPDX-License-Identifier: MIT
** reduce_lanes.h -- what a reduction adds up first: the tree of one block, for one element type.
**
** A template of reduce_each.h. Of a block of at most PLK_BLOCK elements, what fills 16 lanes is cut into runs of 256. Of each run
** element k joins lane k % 16, in order; runs join lane by lane, in order; lanes are halved 8, 4, 2, 1. Of the up to 15 elements left,
** fours join 4 lanes likewise, and the last up to 3 each other in order; the three parts join in order. This is the order whether the elements lie
** side by side (block) or each is a row of `w` of them, one for each of w results (block_rows).
*/

typedef T K(Vec) __attribute__((vector_size(PLK_VECTOR)));
typedef U K(VecU) __attribute__((vector_size(PLK_VECTOR)));
typedef M K(VecM) __attribute__((vector_size(PLK_VECTOR)));
typedef T K(Load) __attribute__((vector_size(PLK_VECTOR), aligned(sizeof(T)), may_alias));

#define QUAD (4 * sizeof(T) < PLK_VECTOR ? 4 * sizeof(T) : PLK_VECTOR)
typedef T K(Quad) __attribute__((vector_size(QUAD)));
typedef U K(QuadU) __attribute__((vector_size(QUAD)));
typedef M K(QuadM) __attribute__((vector_size(QUAD)));
typedef T K(QuadLoad) __attribute__((vector_size(QUAD), aligned(sizeof(T)), may_alias));

#define WIDTH ((int)(PLK_VECTOR / sizeof(T)))
#define PARTS (PLK_LANES / WIDTH)
#define NQUAD ((int)(QUAD / sizeof(T)))

PLK_INLINE T K(identity)(int op) {
  return op == PLK_SUM ? (T)0 : op == PLK_PROD ? (T)1 : op == PLK_MIN ? HIGHEST : LOWEST;
}

/* a is never NaN for long: a NaN in x wins and stays */
PLK_INLINE T K(step)(int op, T a, T x) {
  if (op == PLK_SUM) return (T)((U)a + (U)x);
  if (op == PLK_PROD) return (T)((U)a * (U)x);
  if (op == PLK_TOP) return x > a ? x : a;
  if (op == PLK_MAX) return ((x > a) | UNORDERED(x)) ? x : a;
  return ((x < a) | UNORDERED(x)) ? x : a;
}

PLK_INLINE K(Vec) K(vec_step)(int op, K(Vec) a, K(Vec) x) {
  if (op == PLK_SUM) return (K(Vec))((K(VecU))a + (K(VecU))x);
  if (op == PLK_PROD) return (K(Vec))((K(VecU))a * (K(VecU))x);
  K(VecM) m = (K(VecM))(op == PLK_MIN ? x < a : x > a);
  if (op != PLK_TOP) m |= UNORDERED(x);
  return (K(Vec))((m & (K(VecM))x) | (~m & (K(VecM))a));
}

PLK_INLINE K(Quad) K(quad_step)(int op, K(Quad) a, K(Quad) x) {
  if (op == PLK_SUM) return (K(Quad))((K(QuadU))a + (K(QuadU))x);
  if (op == PLK_PROD) return (K(Quad))((K(QuadU))a * (K(QuadU))x);
  K(QuadM) m = (K(QuadM))(op == PLK_MIN ? x < a : x > a);
  if (op != PLK_TOP) m |= UNORDERED(x);
  return (K(Quad))((m & (K(QuadM))x) | (~m & (K(QuadM))a));
}

PLK_INLINE K(Vec) K(vec_of)(T x) { return x - (K(Vec)){0}; }

/* Of n elements, a multiple of PLK_LANES and not 0. */
PLK_INLINE T K(lanes_of)(int op, const T *x, int64_t n) {
  K(Vec) total[PARTS], a[PARTS];
  T t[PLK_LANES];
  for (int v = 0; v < PARTS; v++) total[v] = K(vec_of)(K(identity)(op));
  for (int64_t r = 0; r < n; r += PLK_RUN) {
    int64_t m = n - r < PLK_RUN ? n - r : PLK_RUN;
    for (int v = 0; v < PARTS; v++) a[v] = K(vec_of)(K(identity)(op));
    for (int64_t k = 0; k < m; k += PLK_LANES)
      for (int v = 0; v < PARTS; v++) a[v] = K(vec_step)(op, a[v], *(const K(Load) *)(x + r + k + v * WIDTH));
    for (int v = 0; v < PARTS; v++) total[v] = K(vec_step)(op, total[v], a[v]);
  }
  for (int v = 0; v < PARTS; v++) *(K(Load) *)(t + v * WIDTH) = total[v];
  for (int h = PLK_LANES / 2; h; h /= 2)
    for (int l = 0; l < h; l++) t[l] = K(step)(op, t[l], t[l + h]);
  return t[0];
}

PLK_INLINE T K(block_of)(int op, const T *x, int64_t n) {
  int64_t k = n & -PLK_LANES;
  T r = k ? K(lanes_of)(op, x, k) : K(identity)(op);
  if (n - k >= 4) { /* in vectors: gcc 12 goes wrong on four chains of i64 */
    K(Quad) a[4 / NQUAD];
    for (int v = 0; v < 4 / NQUAD; v++) a[v] = *(const K(QuadLoad) *)(x + k + v * NQUAD);
    for (k += 4; n - k >= 4; k += 4)
      for (int v = 0; v < 4 / NQUAD; v++) a[v] = K(quad_step)(op, a[v], *(const K(QuadLoad) *)(x + k + v * NQUAD));
    const T *t = (const T *)a;
    r = K(step)(op, r, K(step)(op, K(step)(op, t[0], t[2]), K(step)(op, t[1], t[3])));
  }
  if (k < n) {
    T a = x[k++];
    while (k < n) a = K(step)(op, a, x[k++]);
    r = K(step)(op, r, a);
  }
  return r;
}

/* The reduction of n <= PLK_BLOCK elements. */
__attribute__((noinline, unused)) static T K(block)(int op, const T *x, int64_t n) {
  switch (op) {
  case PLK_SUM: return K(block_of)(PLK_SUM, x, n);
  case PLK_PROD: return K(block_of)(PLK_PROD, x, n);
  case PLK_MAX: return K(block_of)(PLK_MAX, x, n);
  case PLK_TOP: return K(block_of)(PLK_TOP, x, n);
  default: return K(block_of)(PLK_MIN, x, n);
  }
}

PLK_INLINE void K(join)(int op, T *restrict a, const T *restrict x, int64_t n) {
  for (int64_t i = 0; i < n; i++) a[i] = K(step)(op, a[i], x[i]);
}

/* Rows [k, k + m) into `lanes` lanes of `acc`, which become what they hold. */
PLK_INLINE void K(join_rows)(int op, const plk_Rows *rows, int64_t k, int64_t m, int64_t lanes, int64_t w, T *acc, T *buffer) {
  const T none = K(identity)(op);
  for (int64_t i = 0; i < lanes * w; i++) acc[i] = none;
  for (int64_t end = k + m; k < end; k += lanes) {
    if (rows->packed) /* the rows of all lanes side by side, as the lanes are */
      K(join)(op, acc, plk_row(rows, k, lanes * w, buffer), lanes * w);
    else
      for (int64_t l = 0; l < lanes; l++) K(join)(op, acc + l * w, plk_row(rows, k + l, w, buffer), w);
  }
}

PLK_INLINE void K(halve)(int op, int64_t lanes, int64_t w, T *acc) {
  for (int64_t h = lanes / 2; h; h /= 2) K(join)(op, acc, acc + h * w, h * w);
}

PLK_INLINE void K(block_rows_of)(int op, const plk_Rows *rows, int64_t n, int64_t w, T *restrict out) {
  T acc[PLK_LANES * PLK_COLUMNS], total[PLK_LANES * PLK_COLUMNS], buffer[PLK_LANES * PLK_COLUMNS];
  const T none = K(identity)(op);
  const int64_t full = n & -PLK_LANES, quads = n & -4;
  for (int64_t i = 0; i < w; i++) out[i] = none;
  for (int64_t r = 0; r < full; r += PLK_RUN) {
    K(join_rows)(op, rows, r, full - r < PLK_RUN ? full - r : PLK_RUN, PLK_LANES, w, r ? acc : total, buffer);
    if (r) K(join)(op, total, acc, PLK_LANES * w);
  }
  if (full) {
    K(halve)(op, PLK_LANES, w, total);
    K(join)(op, out, total, w);
  }
  if (quads > full) {
    K(join_rows)(op, rows, full, quads - full, 4, w, acc, buffer);
    K(halve)(op, 4, w, acc);
    K(join)(op, out, acc, w);
  }
  if (n > quads) {
    K(join_rows)(op, rows, quads, n - quads, 1, w, acc, buffer);
    K(join)(op, out, acc, w);
  }
}

/* The same of n <= PLK_BLOCK rows of w <= PLK_COLUMNS elements each: w results. */
__attribute__((noinline, unused)) static void K(block_rows)(int op, const plk_Rows *rows, int64_t n, int64_t w, T *out) {
  switch (op) {
  case PLK_SUM: K(block_rows_of)(PLK_SUM, rows, n, w, out); return;
  case PLK_PROD: K(block_rows_of)(PLK_PROD, rows, n, w, out); return;
  case PLK_MAX: K(block_rows_of)(PLK_MAX, rows, n, w, out); return;
  case PLK_TOP: K(block_rows_of)(PLK_TOP, rows, n, w, out); return;
  default: K(block_rows_of)(PLK_MIN, rows, n, w, out);
  }
}

#undef QUAD
#undef NQUAD
#undef WIDTH
#undef PARTS
