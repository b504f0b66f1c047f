/* SPDX-License-Identifier: MIT
** attention_block.h -- attention of one block of rows or keys, for one float type (reduce_each.h).
*/

/* One batch: where everything starts. Results and what the forward left come first in the record. */
typedef struct K(Batch) {
  const pln_Call *c;
  const T *q, *k, *v, *mask;
  const uint8_t *keep;
  T *r[3];
  const T *g, *out, *lse;
} K(Batch);

static K(Batch) K(batch_at)(const pln_Call *c, int64_t at, bool backward) {
  K(Batch) b = {.c = c};
  int first = c->nout + (backward ? 3 : 0), mask = first + 3;
  for (int i = 0; i < c->nout; i++) b.r[i] = (T *)c->arg[i].data + batch_offset(c, i, at);
  if (backward) {
    b.g = (const T *)c->arg[c->nout].data + batch_offset(c, c->nout, at);
    b.out = (const T *)c->arg[c->nout + 1].data + batch_offset(c, c->nout + 1, at);
    b.lse = (const T *)c->arg[c->nout + 2].data + batch_offset(c, c->nout + 2, at);
  }
  b.q = (const T *)c->arg[first].data + batch_offset(c, first, at);
  b.k = (const T *)c->arg[first + 1].data + batch_offset(c, first + 1, at);
  b.v = (const T *)c->arg[first + 2].data + batch_offset(c, first + 2, at);
  if (c->f[2] != 0) {
    const char *m = c->arg[mask].data;
    if (c->arg[mask].dtype == c->arg[0].dtype)
      b.mask = (const T *)m + batch_offset(c, mask, at);
    else
      b.keep = (const uint8_t *)m + batch_offset(c, mask, at);
  }
  return b;
}

static void K(product)(int64_t m, int64_t n, int64_t k, const T *a, int64_t as0, int64_t as1, const T *b, int64_t bs0, int64_t bs1, T *r,
                       int64_t rs0, int accumulate) {
  pln_Gemm g = {m, n, k, as0, as1, bs0, bs1, rs0, 1, 1, 0, 0, 0, accumulate};
  K(pln_gemm)(NULL, &g, a, b, r);
}

/* Whether all keys from `key` on are left out for all rows of the block, of which `last` is the last one. */
PLK_INLINE bool K(beyond)(const pln_Call *c, int64_t last, int64_t key) { return c->f[1] != 0 && key > last; }

/* Scores of `rows` by `keys`, -inf where left out, in s (KEYS a row). */
static void K(scores)(const K(Batch) *b, int64_t row, int64_t rows, int64_t key, int64_t keys, T *s) {
  const pln_Call *c = b->c;
  const int64_t *i = c->i;
  const T scale = (T)c->f[0];
  K(product)(rows, keys, i[2], b->q + row * i[4], i[4], i[5], b->k + key * i[6], i[7], i[6], s, KEYS, 0);
  for (int64_t x = 0; x < rows; x++) {
    T *restrict line = s + x * KEYS;
    for (int64_t y = 0; y < keys; y++) line[y] *= scale;
    if (b->mask) {
      const T *m = b->mask + (row + x) * i[10] + key * i[11];
      for (int64_t y = 0; y < keys; y++) line[y] += m[y * i[11]];
    }
    if (b->keep) {
      const uint8_t *m = b->keep + (row + x) * i[10] + key * i[11];
      for (int64_t y = 0; y < keys; y++) line[y] = m[y * i[11]] ? line[y] : LOWEST;
    }
    if (c->f[1] != 0)
      for (int64_t y = row + x - key + 1 > 0 ? row + x - key + 1 : 0; y < keys; y++) line[y] = LOWEST;
  }
}

/* Adds the n rows of x, each times 0, to all rows of r: what blocks that are passed over would add. It is 0, or NaN where x is not finite, as if
** they had been met. */
static void K(pass_over)(T *r, int64_t rows, int64_t wide, const T *x, int64_t xs0, int64_t xs1, int64_t n) {
  T sum[KEYS];
  if (n <= 0) return;
  for (int64_t d = 0; d < wide; d += KEYS) {
    int64_t w = wide - d < KEYS ? wide - d : KEYS;
    for (int64_t y = 0; y < w; y++) sum[y] = 0;
    for (int64_t k = 0; k < n; k++)
      for (int64_t y = 0; y < w; y++) sum[y] += 0 * x[k * xs0 + (d + y) * xs1];
    for (int64_t k = 0; k < rows; k++)
      for (int64_t y = 0; y < w; y++) r[k * wide + d + y] += sum[y];
  }
}

static void K(forward_block)(const K(Batch) *b, int64_t row) {
  const pln_Call *c = b->c;
  const int64_t *i = c->i, rows = i[0] - row < ROWS ? i[0] - row : ROWS, wide = i[3];
  T s[ROWS * KEYS], most[ROWS], sum[ROWS];
  T *out = b->r[0] + row * wide;
  for (int64_t x = 0; x < rows; x++) most[x] = LOWEST, sum[x] = 0;
  for (int64_t x = 0; x < rows * wide; x++) out[x] = 0;
  int64_t key = 0;
  for (; key < i[1] && !K(beyond)(c, row + rows - 1, key); key += KEYS) {
    int64_t keys = i[1] - key < KEYS ? i[1] - key : KEYS;
    K(scores)(b, row, rows, key, keys, s);
    for (int64_t x = 0; x < rows; x++) {
      T *restrict line = s + x * KEYS, *restrict o = out + x * wide;
      T m = K(step)(PLK_MAX, most[x], K(block)(PLK_MAX, line, keys)), shift = m == LOWEST ? 0 : m;
      T before = K(plk_exp_below)(most[x] - shift);
      for (int64_t y = 0; y < keys; y++) line[y] = K(plk_exp_below)(line[y] - shift);
      sum[x] = sum[x] * before + K(block)(PLK_SUM, line, keys);
      most[x] = m;
      for (int64_t y = 0; y < wide; y++) o[y] *= before;
    }
    K(product)(rows, wide, keys, s, KEYS, 1, b->v + key * i[8], i[8], i[9], out, wide, 1);
  }
  K(pass_over)(out, rows, wide, b->v + key * i[8], i[8], i[9], i[1] - key);
  for (int64_t x = 0; x < rows; x++) {
    T *restrict o = out + x * wide;
    bool none = sum[x] == 0 && most[x] == LOWEST;
    for (int64_t y = 0; y < wide; y++) o[y] = none ? 0 : o[y] / sum[x];
    if (c->nout > 1) b->r[1][row + x] = none ? HIGHEST : most[x] + K(pls_log)(sum[x]);
  }
}

static void K(forward)(void *context, int64_t begin, int64_t end) {
  const pln_Call *c = context;
  int64_t blocks = blocks_of(c->i[0], ROWS);
  for (int64_t at = begin; at < end; at++) {
    K(Batch) b = K(batch_at)(c, at / blocks, false);
    K(forward_block)(&b, at % blocks * ROWS);
  }
}

/* Weights p of a block of rows and keys, and d = p (g v^T - g out) scale, what the scores' gradient is times the scale. */
static void K(weights)(const K(Batch) *b, int64_t row, int64_t rows, int64_t key, int64_t keys, T *p, T *d) {
  const int64_t *i = b->c->i, wide = i[3];
  const T scale = (T)b->c->f[0];
  K(scores)(b, row, rows, key, keys, p);
  K(product)(rows, keys, wide, b->g + row * wide, wide, 1, b->v + key * i[8], i[9], i[8], d, KEYS, 0);
  for (int64_t x = 0; x < rows; x++) {
    const T *restrict g = b->g + (row + x) * wide, *restrict o = b->out + (row + x) * wide;
    T *restrict px = p + x * KEYS, *restrict dx = d + x * KEYS, lse = b->lse[row + x], inner = 0;
    for (int64_t y = 0; y < wide; y++) inner = K(pls_fma)(g[y], o[y], inner);
    for (int64_t y = 0; y < keys; y++) {
      bool left = px[y] == LOWEST; /* out */
      px[y] = K(pls_exp)(px[y] - lse);
      dx[y] = left ? 0 : px[y] * (dx[y] - inner) * scale;
    }
  }
}

/* All of a batch that is one block of rows and keys: its weights are computed once. */
static void K(backward_one)(void *context, int64_t begin, int64_t end) {
  const pln_Call *c = context;
  const int64_t *i = c->i, rows = i[0], keys = i[1];
  T p[ROWS * KEYS], d[ROWS * KEYS];
  for (int64_t at = begin; at < end; at++) {
    K(Batch) b = K(batch_at)(c, at, true);
    for (int64_t x = 0; x < rows * i[2]; x++) b.r[0][x] = 0;
    for (int64_t x = 0; x < keys * i[2]; x++) b.r[1][x] = 0;
    for (int64_t x = 0; x < keys * i[3]; x++) b.r[2][x] = 0;
    K(weights)(&b, 0, rows, 0, keys, p, d);
    K(product)(rows, i[2], keys, d, KEYS, 1, b.k, i[6], i[7], b.r[0], i[2], 1);
    K(product)(keys, i[3], rows, p, 1, KEYS, b.g, i[3], 1, b.r[2], i[3], 1);
    K(product)(keys, i[2], rows, d, 1, KEYS, b.q, i[4], i[5], b.r[1], i[2], 1);
  }
}

static void K(backward_q)(void *context, int64_t begin, int64_t end) {
  const pln_Call *c = context;
  const int64_t *i = c->i, blocks = blocks_of(i[0], ROWS);
  T p[ROWS * KEYS], d[ROWS * KEYS];
  for (int64_t at = begin; at < end; at++) {
    K(Batch) b = K(batch_at)(c, at / blocks, true);
    int64_t row = at % blocks * ROWS, rows = i[0] - row < ROWS ? i[0] - row : ROWS;
    T *dq = b.r[0] + row * i[2];
    for (int64_t x = 0; x < rows * i[2]; x++) dq[x] = 0;
    int64_t key = 0;
    for (; key < i[1] && !K(beyond)(c, row + rows - 1, key); key += KEYS) {
      int64_t keys = i[1] - key < KEYS ? i[1] - key : KEYS;
      K(weights)(&b, row, rows, key, keys, p, d);
      K(product)(rows, i[2], keys, d, KEYS, 1, b.k + key * i[6], i[6], i[7], dq, i[2], 1);
    }
    K(pass_over)(dq, rows, i[2], b.k + key * i[6], i[6], i[7], i[1] - key);
  }
}

static void K(backward_kv)(void *context, int64_t begin, int64_t end) {
  const pln_Call *c = context;
  const int64_t *i = c->i, blocks = blocks_of(i[1], KEYS);
  T p[ROWS * KEYS], d[ROWS * KEYS];
  for (int64_t at = begin; at < end; at++) {
    K(Batch) b = K(batch_at)(c, at / blocks, true);
    int64_t key = at % blocks * KEYS, keys = i[1] - key < KEYS ? i[1] - key : KEYS;
    T *dk = b.r[1] + key * i[2], *dv = b.r[2] + key * i[3];
    for (int64_t x = 0; x < keys * i[2]; x++) dk[x] = 0;
    for (int64_t x = 0; x < keys * i[3]; x++) dv[x] = 0;
    for (int64_t row = 0; row < i[0]; row += ROWS) {
      int64_t rows = i[0] - row < ROWS ? i[0] - row : ROWS;
      if (K(beyond)(c, row + rows - 1, key)) {
        K(pass_over)(dv, keys, i[3], b.g + row * i[3], i[3], 1, rows);
        K(pass_over)(dk, keys, i[2], b.q + row * i[4], i[4], i[5], rows);
        continue;
      }
      K(weights)(&b, row, rows, key, keys, p, d);
      K(product)(keys, i[3], rows, p, 1, KEYS, b.g + row * i[3], i[3], 1, dv, i[3], 1);
      K(product)(keys, i[2], rows, d, 1, KEYS, b.q + row * i[4], i[4], i[5], dk, i[2], 1);
    }
  }
}
