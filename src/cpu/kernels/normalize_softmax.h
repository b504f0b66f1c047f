/* SPDX-License-Identifier: MIT
** normalize_softmax.h -- softmax, log_softmax and their gradients for one float type (reduce_each.h). Arguments are in the order of
** the call record: 0 the result, then x, or g and y.
*/

/* --- softmax: e^(x - m) / sum ------------------------------------------------------------------- */

/* n <= PLK_BLOCK elements side by side, y apart from x. */
PLK_INLINE void K(softmax_short)(T *y, const T *x, int64_t n) {
  T m, scale = 1 / K(short_exp_sum)(y, x, n, &m);
  for (int64_t i = 0; i < n; i++) y[i] *= scale;
}

static pln_Status K(small_softmax)(pln_Small *s) {
  char *y = s->call->arg[0].data;
  const char *x = s->call->arg[1].data;
  for (int64_t l = 0; l < s->lanes.lanes; l++, y += s->lanes.next[0], x += s->lanes.next[1])
    K(softmax_short)((T *)y, (const T *)x, s->lanes.n);
  return PLN_OK;
}

static void K(softmax_lane)(const plk_Lane *l) {
  if (K(is_short)(l, 0) && K(is_short)(l, 1)) {
    K(softmax_short)((T *)l->p[0], (const T *)l->p[1], l->n);
    return;
  }
  T buffer[PLK_BLOCK], m = K(largest)(l, 1), scale = 1 / K(exp_sum)(l, 1, 0, m, 0, l->n);
  for (int64_t k = 0; k < l->n; k += PLK_BLOCK) {
    int64_t n = l->n - k < PLK_BLOCK ? l->n - k : PLK_BLOCK;
    char *dst = l->p[0] + k * l->step[0];
    T *y = (T *)K(fetch)(dst, l->step[0], n, buffer);
    for (int64_t i = 0; i < n; i++) y[i] *= scale;
    K(deliver)(dst, l->step[0], n, y);
  }
}

static void K(softmax_tile)(const plk_Lane *l) {
  T buffer[PLK_COLUMNS], m[PLK_COLUMNS], scale[PLK_COLUMNS];
  K(tile_largest)(l, 1, m);
  K(tile_exp_sum)(l, 1, 0, m, 0, l->n, scale);
  for (int64_t i = 0; i < l->w; i++) scale[i] = 1 / scale[i];
  for (int64_t k = 0; k < l->n; k++) {
    char *dst = l->p[0] + k * l->step[0];
    T *restrict y = (T *)K(fetch)(dst, l->across[0], l->w, buffer);
    for (int64_t i = 0; i < l->w; i++) y[i] *= scale[i];
    K(deliver)(dst, l->across[0], l->w, y);
  }
}

/* --- log_softmax: x - m - log sum --------------------------------------------------------------- */

static void K(log_softmax_lane)(const plk_Lane *l) {
  T gathered[PLK_BLOCK], buffer[PLK_BLOCK], m, log = K(pls_log)(K(lane_exp_sum)(l, 1, -1, &m));
  for (int64_t k = 0; k < l->n; k += PLK_BLOCK) {
    int64_t n = l->n - k < PLK_BLOCK ? l->n - k : PLK_BLOCK;
    char *dst = l->p[0] + k * l->step[0];
    const T *restrict x = K(along)(l, 1, k, n, gathered);
    T *restrict y = K(aim)(dst, l->step[0], buffer);
    for (int64_t i = 0; i < n; i++) y[i] = x[i] - m - log;
    K(deliver)(dst, l->step[0], n, y);
  }
}

static void K(log_softmax_tile)(const plk_Lane *l) {
  T gathered[PLK_COLUMNS], buffer[PLK_COLUMNS], m[PLK_COLUMNS], log[PLK_COLUMNS];
  K(tile_largest)(l, 1, m);
  K(tile_exp_sum)(l, 1, -1, m, 0, l->n, log);
  for (int64_t i = 0; i < l->w; i++) log[i] = K(pls_log)(log[i]);
  for (int64_t k = 0; k < l->n; k++) {
    char *dst = l->p[0] + k * l->step[0];
    const T *restrict x = K(row)(l, 1, k, gathered);
    T *restrict y = K(aim)(dst, l->across[0], buffer);
    for (int64_t i = 0; i < l->w; i++) y[i] = x[i] - m[i] - log[i];
    K(deliver)(dst, l->across[0], l->w, y);
  }
}

/* --- gradients: y (g - sum of g y), g - e^y (sum of g) ------------------------------------------ */

/* The sum of g, or of g y with `product`, of n elements from the k-th on. */
static T K(dot)(const plk_Lane *l, bool product, int64_t k, int64_t n) {
  if (n > PLK_BLOCK) {
    int64_t h = plk_split(n);
    T left = K(dot)(l, product, k, h);
    return left + K(dot)(l, product, k + h, n - h);
  }
  T gbuffer[PLK_BLOCK], ybuffer[PLK_BLOCK], terms[PLK_BLOCK];
  const T *g = K(along)(l, 1, k, n, gbuffer);
  if (!product) return K(block)(PLK_SUM, g, n);
  const T *y = K(along)(l, 2, k, n, ybuffer);
  for (int64_t i = 0; i < n; i++) terms[i] = g[i] * y[i];
  return K(block)(PLK_SUM, terms, n);
}

typedef struct K(DotRow) {
  const plk_Lane *l;
  int64_t k; /* the tile's row that is row 0 */
} K(DotRow);

static const void *K(dot_row)(void *buffer, const char *src, int64_t n, const void *with, int64_t k) {
  const K(DotRow) *r = with;
  T ybuffer[PLK_COLUMNS], *restrict terms = buffer;
  const T *restrict g = (const void *)src, *restrict y = K(row)(r->l, 2, r->k + k, ybuffer);
  for (int64_t i = 0; i < n; i++) terms[i] = g[i] * y[i];
  return terms;
}

static void K(tile_dot)(const plk_Lane *l, bool product, int64_t k, int64_t n, T *sum) {
  if (n > PLK_BLOCK) {
    T right[PLK_COLUMNS];
    int64_t h = plk_split(n);
    K(tile_dot)(l, product, k, h, sum);
    K(tile_dot)(l, product, k + h, n - h, right);
    for (int64_t i = 0; i < l->w; i++) sum[i] += right[i];
    return;
  }
  K(DotRow) with = {l, k};
  plk_Rows rows = K(rows)(l, 1, k, product ? K(dot_row) : NULL, &with);
  K(block_rows)(PLK_SUM, &rows, n, l->w, sum);
}

PLK_INLINE void K(gradient_lane)(const plk_Lane *l, bool log) {
  T gbuffer[PLK_BLOCK], ybuffer[PLK_BLOCK], buffer[PLK_BLOCK], sum = K(dot)(l, !log, 0, l->n);
  for (int64_t k = 0; k < l->n; k += PLK_BLOCK) {
    int64_t n = l->n - k < PLK_BLOCK ? l->n - k : PLK_BLOCK;
    char *dst = l->p[0] + k * l->step[0];
    const T *restrict g = K(along)(l, 1, k, n, gbuffer), *restrict y = K(along)(l, 2, k, n, ybuffer);
    T *restrict dx = K(aim)(dst, l->step[0], buffer);
    for (int64_t i = 0; i < n; i++) dx[i] = log ? g[i] - K(plk_exp_below)(y[i]) * sum : y[i] * (g[i] - sum);
    K(deliver)(dst, l->step[0], n, dx);
  }
}

PLK_INLINE void K(gradient_tile)(const plk_Lane *l, bool log) {
  T gbuffer[PLK_COLUMNS], ybuffer[PLK_COLUMNS], buffer[PLK_COLUMNS], sum[PLK_COLUMNS];
  K(tile_dot)(l, !log, 0, l->n, sum);
  for (int64_t k = 0; k < l->n; k++) {
    char *dst = l->p[0] + k * l->step[0];
    const T *restrict g = K(row)(l, 1, k, gbuffer), *restrict y = K(row)(l, 2, k, ybuffer);
    T *restrict dx = K(aim)(dst, l->across[0], buffer);
    for (int64_t i = 0; i < l->w; i++) dx[i] = log ? g[i] - K(plk_exp_below)(y[i]) * sum[i] : y[i] * (g[i] - sum[i]);
    K(deliver)(dst, l->across[0], l->w, dx);
  }
}

static void K(softmax_gradient_lane)(const plk_Lane *l) { K(gradient_lane)(l, false); }
static void K(softmax_gradient_tile)(const plk_Lane *l) { K(gradient_tile)(l, false); }
static void K(log_softmax_gradient_lane)(const plk_Lane *l) { K(gradient_lane)(l, true); }
static void K(log_softmax_gradient_tile)(const plk_Lane *l) { K(gradient_tile)(l, true); }
