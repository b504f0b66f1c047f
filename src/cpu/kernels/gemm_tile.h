/* SPDX-License-Identifier: MIT
** gemm_tile.h - the matrix product's inner kernels for one element type and one vector width.
**
** Included by gemm_kernel.c, which defines T, W (lanes), the type V = K(Vector), K(name) and the primitives
** K(zero), K(set), K(load), K(store), K(load_part), K(store_part), K(fma), K(gather), K(transpose); the
** macros are undefined again at the end.  Without PACKED there are only the kernels that read their operands where they lie.
** Every kernel is one body with its sizes fixed: element (i,j) starts from zero and takes the
** products a(i,p) b(p,j) for p = 0, 1, ... whatever the tile around it looks like.
*/

#define MAX_ROWS 14

/* C (rows, nv vectors), the last vector holding part lanes (0: all).  packed: a sum that came out
** as -0 is stored as 0, as if it had been added to a cleared C, which is what a BLAS does. */
static inline __attribute__((always_inline)) void K(body) (const int rows, const int nv,
    const int masked, const int packed, int part, int64_t k, const T *restrict a, int64_t as0,
    int64_t as1, const T *restrict b, int64_t bs0, T *restrict c, int64_t cs0, int add) {
  V acc[MAX_ROWS][4];
  UNROLL for (int i = 0; i < rows; i++)
    UNROLL for (int v = 0; v < nv; v++) acc[i][v] = K(zero)();
  for (int64_t p = 0; p < k; p++, a += as1, b += bs0) {
    V bv[4];
    UNROLL for (int v = 0; v < nv; v++)
      bv[v] = masked && v == nv - 1 ? K(load_part)(b + v * W, part) : K(load)(b + v * W);
    UNROLL for (int i = 0; i < rows; i++) {
      V av = K(set)(a[i * as0]);
      UNROLL for (int v = 0; v < nv; v++) acc[i][v] = K(fma)(av, bv[v], acc[i][v]);
    }
  }
  UNROLL for (int i = 0; i < rows; i++)
    UNROLL for (int v = 0; v < nv; v++) {
      T *to = c + i * cs0 + v * W;
      if (masked && v == nv - 1) {
        if (add) acc[i][v] = K(load_part)(to, part) + acc[i][v];
        K(store_part)(to, acc[i][v], part);
      } else {
        if (add) acc[i][v] = K(load)(to) + acc[i][v];
        else if (packed) acc[i][v] = K(zero)() + acc[i][v];
        K(store)(to, acc[i][v]);
      }
    }
}

typedef void K(Direct)(const pln_Gemm *g, int part, const T *a, const T *b, T *c);

#define DIRECT_(name, rows, nv, masked)                                                            \
  static void K(name##_##rows##_##nv) (const pln_Gemm *g, int part, const T *a, const T *b,        \
                                       T *c) {                                                     \
    K(body)(rows, nv, masked, 0, part, g->k, a, g->as0, g->as1, b, g->bs0, c, g->cs0,              \
            g->accumulate);                                                                        \
  }
#define DIRECT(rows, nv) DIRECT_(whole, rows, nv, 0) DIRECT_(part, rows, nv, 1)
DIRECT(1, 1) DIRECT(2, 1) DIRECT(3, 1) DIRECT(4, 1) DIRECT(5, 1) DIRECT(6, 1) DIRECT(7, 1)
DIRECT(8, 1) DIRECT(1, 2) DIRECT(2, 2) DIRECT(3, 2) DIRECT(4, 2) DIRECT(5, 2) DIRECT(6, 2)
DIRECT(1, 4) DIRECT(2, 4) DIRECT(3, 4)
#undef DIRECT
#undef DIRECT_

#define PAIR(rows, nv) { K(whole_##rows##_##nv), K(part_##rows##_##nv) }
static K(Direct) *const K(direct_1)[][2] = {
  PAIR(1, 1), PAIR(2, 1), PAIR(3, 1), PAIR(4, 1), PAIR(5, 1), PAIR(6, 1), PAIR(7, 1), PAIR(8, 1)
};
static K(Direct) *const K(direct_2)[][2] = {
  PAIR(1, 2), PAIR(2, 2), PAIR(3, 2), PAIR(4, 2), PAIR(5, 2), PAIR(6, 2)
};
static K(Direct) *const K(direct_4)[][2] = { PAIR(1, 4), PAIR(2, 4), PAIR(3, 4) };
#undef PAIR

/* One strip of columns: the rows in even portions of at most max. */
static inline void K(strip) (K(Direct) *const table[][2], int max, int part, const pln_Gemm *g,
                             const T *a, const T *b, T *c) {
  int64_t m = g->m;
  if (m > max)
    for (int64_t portions = (m + max - 1) / max; portions > 1; portions--) {
      int64_t rows = (m + portions - 1) / portions;
      table[rows - 1][part != 0](g, part, a, b, c);
      a += rows * g->as0;
      c += rows * g->cs0;
      m -= rows;
    }
  table[m - 1][part != 0](g, part, a, b, c);
}

__attribute__((noinline)) static void K(strips) (const pln_Gemm *g, const T *a, const T *b, T *c) {
  int64_t n = g->n;
  if (g->m <= 3) /* few rows: more columns at once, to have enough sums under way */
    for (; n >= 4 * W; n -= 4 * W, b += 4 * W, c += 4 * W)
      K(strip)(K(direct_4), 3, 0, g, a, b, c);
  for (; n > W; n -= 2 * W, b += 2 * W, c += 2 * W)
    K(strip)(K(direct_2), 6, n >= 2 * W ? 0 : (int)(n - W), g, a, b, c);
  if (n > 0) K(strip)(K(direct_1), 8, n == W ? 0 : (int)n, g, a, b, c);
}

static void K(direct) (const pln_Gemm *g, const T *a, const T *b, T *c) {
  if (g->n <= W && g->m <= 8) K(direct_1)[g->m - 1][g->n != W](g, (int)g->n, a, b, c);
  else K(strips)(g, a, b, c);
}

static K(Direct) *K(block) (const pln_Gemm *g, int *part_p) {
  if (g->n > W || g->m > 8) return 0;
  *part_p = (int)g->n;
  return K(direct_1)[g->m - 1][g->n != W];
}

/* Elements of a 16-byte lane: so many terms of k are turned at once. */
#define E (int)(16 / sizeof(T))

/* W rows (the last one again where there are fewer), E elements of each, turned: out[e] holds element
** e of every row. */
static inline __attribute__((always_inline)) void K(turn) (const int whole, int64_t rows,
                                                           const T *in, int64_t s, V *out) {
  UNROLL for (int e = 0; e < E; e++) {
    const T *at[4];
    UNROLL for (int l = 0; l < 4; l++) {
      int64_t row = l * E + e;
      at[l] = in + (whole || row < rows ? row : rows - 1) * s;
    }
    out[e] = K(gather)(at[0], at[1], at[2], at[3]);
  }
  K(transpose)(out);
}

static inline __attribute__((always_inline)) void K(pack_turned) (const int whole, int64_t rows,
    int64_t ld, int64_t k, const T *in, int64_t s, T *out) {
  int64_t p = 0;
  for (; p + E <= k; p += E) {
    V v[E];
    K(turn)(whole, rows, in + p, s, v);
    UNROLL for (int e = 0; e < E; e++) {
      if (whole) K(store)(out + (p + e) * ld, v[e]);
      else K(store_part)(out + (p + e) * ld, v[e], (int)rows);
    }
  }
  for (; p < k; p++)
    for (int64_t i = 0; i < rows; i++) out[p * ld + i] = in[i * s + p];
}

static void K(pack) (int64_t rows, int64_t ld, int64_t k, const T *in, int64_t s0, int64_t s1,
                     T *out) {
  int64_t i = 0;
  if (s0 == 1) {
    for (int64_t p = 0; p < k; p++) {
      for (i = 0; rows - i >= W; i += W) K(store)(out + p * ld + i, K(load)(in + p * s1 + i));
      if (rows > i)
        K(store_part)(out + p * ld + i, K(load_part)(in + p * s1 + i, (int)(rows - i)),
                      (int)(rows - i));
    }
  } else if (s1 == 1) {
    for (; rows - i >= W; i += W) K(pack_turned)(1, W, ld, k, in + i * s0, s0, out + i);
    if (rows > i) K(pack_turned)(0, rows - i, ld, k, in + i * s0, s0, out + i);
  } else {
    for (int64_t p = 0; p < k; p++)
      for (i = 0; i < rows; i++) out[p * ld + i] = in[i * s0 + p * s1];
  }
  if (rows < ld)
    for (int64_t p = 0; p < k; p++)
      for (i = rows; i < ld; i++) out[p * ld + i] = 0;
}

/* groups x W columns of a one-row product, each column of B contiguous. */
static inline __attribute__((always_inline)) void K(row_body) (const int groups, const int whole,
    int64_t n, int64_t k, const T *a, int64_t as1, const T *b, int64_t bs1, T *c, int add) {
  V acc[2];
  UNROLL for (int g = 0; g < groups; g++) acc[g] = K(zero)();
  int64_t p = 0;
  for (; p + E <= k; p += E)
    UNROLL for (int g = 0; g < groups; g++) {
      V v[E];
      K(turn)(whole, n, b + g * W * bs1 + p, bs1, v);
      UNROLL for (int e = 0; e < E; e++) acc[g] = K(fma)(K(set)(a[(p + e) * as1]), v[e], acc[g]);
    }
  for (; p < k; p++)
    UNROLL for (int g = 0; g < groups; g++) {
      T column[W];
      for (int64_t j = 0; j < W; j++)
        column[j] = b[(g * W + (whole || j < n ? j : n - 1)) * bs1 + p];
      acc[g] = K(fma)(K(set)(a[p * as1]), K(load)(column), acc[g]);
    }
  UNROLL for (int g = 0; g < groups; g++) {
    T *to = c + g * W;
    if (whole) K(store)(to, add ? K(load)(to) + acc[g] : acc[g]);
    else K(store_part)(to, add ? K(load_part)(to, (int)n) + acc[g] : acc[g], (int)n);
  }
}

static void K(row) (int64_t n, int64_t k, const T *a, int64_t as1, const T *b, int64_t bs1, T *c,
                    int add) {
  int64_t j = 0;
  for (; n - j >= 2 * W; j += 2 * W) K(row_body)(2, 1, W, k, a, as1, b + j * bs1, bs1, c + j, add);
  for (; n - j >= W; j += W) K(row_body)(1, 1, W, k, a, as1, b + j * bs1, bs1, c + j, add);
  if (n > j) K(row_body)(1, 0, n - j, k, a, as1, b + j * bs1, bs1, c + j, add);
}

#ifdef PACKED
typedef void K(Tile)(int64_t k, const T *a, const T *b, T *c, int64_t cs0, int add);

#define TILE(rows, nv)                                                                             \
  static void K(tile_##rows##_##nv) (int64_t k, const T *a, const T *b, T *c, int64_t cs0,         \
                                     int add) {                                                    \
    K(body)(rows, nv, 0, 1, 0, k, a, 1, rows, b, nv * W, c, cs0, add);                             \
  }
#define BOTH(rows) TILE(rows, 1) TILE(rows, 2)
ROWS(BOTH)
#undef BOTH
#undef TILE

#define BOTH(rows) { K(tile_##rows##_1), K(tile_##rows##_2) },
static K(Tile) *const K(tiles)[][2] = { ROWS(BOTH) };
#undef BOTH

static void K(tile) (int64_t m, int64_t n, int64_t k, const T *a, const T *b, T *c, int64_t cs0,
                     int add) {
  int nv = n > W ? 2 : 1;
  K(Tile) *tile = K(tiles)[m - 1][nv - 1];
  if (n == nv * W) {
    tile(k, a, b, c, cs0, add);
    return;
  }
  T edge[MR * 2 * W];
  tile(k, a, b, edge, nv * W, 0);
  for (int64_t i = 0; i < m; i++)
    for (int64_t j = 0; j < n; j++) {
      T sum = edge[i * nv * W + j];
      c[i * cs0 + j] = add ? c[i * cs0 + j] + sum : sum;
    }
}

static void K(dot) (int64_t k, const T *a, const T *b, T *lanes) {
  V acc[PLN_GEMM_LANES / W];
  UNROLL for (int v = 0; v < PLN_GEMM_LANES / W; v++) acc[v] = K(load)(lanes + v * W);
  int64_t p = 0;
  for (; p + PLN_GEMM_LANES <= k; p += PLN_GEMM_LANES)
    UNROLL for (int v = 0; v < PLN_GEMM_LANES / W; v++)
      acc[v] = K(fma)(K(load)(a + p + v * W), K(load)(b + p + v * W), acc[v]);
  if (p < k) {
    T ta[PLN_GEMM_LANES] = { 0 }, tb[PLN_GEMM_LANES] = { 0 };
    for (int64_t l = 0; p + l < k; l++) {
      ta[l] = a[p + l];
      tb[l] = b[p + l];
    }
    UNROLL for (int v = 0; v < PLN_GEMM_LANES / W; v++)
      acc[v] = K(fma)(K(load)(ta + v * W), K(load)(tb + v * W), acc[v]);
  }
  UNROLL for (int v = 0; v < PLN_GEMM_LANES / W; v++) K(store)(lanes + v * W, acc[v]);
}
#endif /* PACKED */

enum { K(lanes) = W };

#undef MAX_ROWS
#undef E
#undef T
#undef W
#undef K
