/* SPDX-License-Identifier: MIT
** normalize_access.h -- elements of lanes for one float type (reduce_each.h): side by side ones in place, others through a
** buffer. Along a lane n elements from the k-th on, across a tile the k-th of all w lanes.
*/

PLK_INLINE const T *K(fetch)(const char *src, int64_t step, int64_t n, T *buffer) {
  if (step == sizeof(T)) return (const T *)src;
  plk_gather((char *)buffer, src, step, sizeof(T), n);
  return buffer;
}

/* Where n results go that K(deliver) then takes to dst. */
PLK_INLINE T *K(aim)(char *dst, int64_t step, T *buffer) { return step == sizeof(T) ? (T *)dst : buffer; }

PLK_INLINE void K(deliver)(char *dst, int64_t step, int64_t n, const T *values) {
  if (step == sizeof(T)) return;
  for (int64_t i = 0; i < n; i++) memcpy(dst + i * step, values + i, sizeof(T));
}

PLK_INLINE const T *K(along)(const plk_Lane *l, int a, int64_t k, int64_t n, T *buffer) {
  return K(fetch)(l->p[a] + k * l->step[a], l->step[a], n, buffer);
}

PLK_INLINE const T *K(row)(const plk_Lane *l, int a, int64_t k, T *buffer) {
  return K(fetch)(l->p[a] + k * l->step[a], l->across[a], l->w, buffer);
}

/* The rows of a tile from the k-th on. */
PLK_INLINE plk_Rows K(rows)(const plk_Lane *l, int a, int64_t k, plk_LoadFn load, const void *with) {
  return (plk_Rows){l->p[a] + k * l->step[a], NULL, l->step[a], l->across[a], sizeof(T), false, load, with};
}

/* The largest element of a lane, NaN aside: the sum of exponentials is NaN then. */
static T K(largest)(const plk_Lane *l, int a) {
  T buffer[PLK_BLOCK], m = LOWEST;
  for (int64_t k = 0; k < l->n; k += PLK_BLOCK) {
    int64_t n = l->n - k < PLK_BLOCK ? l->n - k : PLK_BLOCK;
    m = K(step)(PLK_TOP, m, K(block)(PLK_TOP, K(along)(l, a, k, n, buffer), n));
  }
  return m;
}

static void K(tile_largest)(const plk_Lane *l, int a, T *m) {
  T part[PLK_COLUMNS];
  for (int64_t i = 0; i < l->w; i++) m[i] = LOWEST;
  for (int64_t k = 0; k < l->n; k += PLK_BLOCK) {
    plk_Rows rows = K(rows)(l, a, k, NULL, NULL);
    K(block_rows)(PLK_TOP, &rows, l->n - k < PLK_BLOCK ? l->n - k : PLK_BLOCK, l->w, part);
    for (int64_t i = 0; i < l->w; i++) m[i] = K(step)(PLK_TOP, m[i], part[i]);
  }
}

/* The sum of e^(x - m) of n elements of argument a from the k-th on; the terms go to argument `out`, if it is not negative. */
static T K(exp_sum)(const plk_Lane *l, int a, int out, T m, int64_t k, int64_t n) {
  if (n > PLK_BLOCK) {
    int64_t h = plk_split(n);
    T left = K(exp_sum)(l, a, out, m, k, h);
    return left + K(exp_sum)(l, a, out, m, k + h, n - h);
  }
  T gathered[PLK_BLOCK], buffer[PLK_BLOCK];
  const T *restrict x = K(along)(l, a, k, n, gathered);
  char *dst = out < 0 ? NULL : l->p[out] + k * l->step[out];
  int64_t step = out < 0 ? 0 : l->step[out];
  T *restrict e = K(aim)(dst, step, buffer);
  K(exp_all)(e, x, m, n);
  T sum = K(block)(PLK_SUM, e, n);
  if (dst) K(deliver)(dst, step, n, e);
  return sum;
}

/* Largest element and sum of a lane in one go, the terms e apart from x, if it is no longer than a block. */
PLK_INLINE T K(short_exp_sum)(T *e, const T *x, int64_t n, T *m) {
  *m = K(step)(PLK_TOP, LOWEST, K(block_of)(PLK_TOP, x, n));
  K(exp_all)(e, x, *m, n);
  return K(block_of)(PLK_SUM, e, n);
}

PLK_INLINE bool K(is_short)(const plk_Lane *l, int a) { return l->n <= PLK_BLOCK && l->step[a] == sizeof(T); }

/* Both of any lane; terms go to argument `out`, if it is not negative. */
static T K(lane_exp_sum)(const plk_Lane *l, int a, int out, T *m) {
  T e[PLK_BLOCK];
  if (K(is_short)(l, a) && (out < 0 || l->step[out] == sizeof(T)))
    return K(short_exp_sum)(out < 0 ? e : (T *)l->p[out], (const T *)l->p[a], l->n, m);
  *m = K(largest)(l, a);
  return K(exp_sum)(l, a, out, *m, 0, l->n);
}

typedef struct K(ExpRow) {
  const T *m;
  char *dst; /* where row 0's terms go, or NULL */
  int64_t step, across;
} K(ExpRow);

static const void *K(exp_row)(void *buffer, const char *src, int64_t n, const void *with, int64_t k) {
  const K(ExpRow) *r = with;
  const T *restrict x = (const void *)src, *restrict m = r->m;
  char *dst = r->dst ? r->dst + k * r->step : NULL;
  T *restrict e = dst ? K(aim)(dst, r->across, buffer) : buffer;
  for (int64_t i = 0; i < n; i++) e[i] = K(plk_exp_below)(x[i] - m[i]);
  if (dst) K(deliver)(dst, r->across, n, e);
  return e;
}

static void K(tile_exp_sum)(const plk_Lane *l, int a, int out, const T *m, int64_t k, int64_t n, T *sum) {
  if (n > PLK_BLOCK) {
    T right[PLK_COLUMNS];
    int64_t h = plk_split(n);
    K(tile_exp_sum)(l, a, out, m, k, h, sum);
    K(tile_exp_sum)(l, a, out, m, k + h, n - h, right);
    for (int64_t i = 0; i < l->w; i++) sum[i] += right[i];
    return;
  }
  K(ExpRow) with = {m, NULL, 0, 0};
  if (out >= 0) with = (K(ExpRow)){m, l->p[out] + k * l->step[out], l->step[out], l->across[out]};
  plk_Rows rows = K(rows)(l, a, k, K(exp_row), &with);
  K(block_rows)(PLK_SUM, &rows, n, l->w, sum);
}
