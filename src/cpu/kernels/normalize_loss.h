/* SPDX-License-Identifier: MIT
** normalize_loss.h -- cross entropy and its gradient for one float type (reduce_each.h).
**
** With m the largest of a lane's x, s the sum of e^(x - m) and a the wanted distribution, times class weights, the loss is the sum
** over c of a[c] (log s - (x[c] - m)), and its gradient (sum of a) e^(x[c] - m) / s - a[c]. For a class t, a[t] = w[t]; label smoothing e
** keeps 1 - e of a and adds e / C w[c] everywhere.
*/

PLK_INLINE T K(weight_of)(const Loss *o, int64_t c) { return o->weight ? ((const T *)o->weight)[c] : 1; }

/* a[c] of a lane, apart from what belongs to the class itself; t is the lane's probability of c. */
PLK_INLINE T K(share)(const Loss *o, int64_t c, T t) {
  T even = (T)(o->smoothing / (double)o->classes);
  return K(weight_of)(o, c) * (o->probabilities ? (T)(1 - o->smoothing) * t + even : even);
}

/* What the class itself has. */
PLK_INLINE T K(share_of_class)(const Loss *o, int64_t class) { return (T)(1 - o->smoothing) * K(weight_of)(o, class - 1); }

/* The sum of n numbers in the order of all sums. */
static T K(total)(const T *x, int64_t n) {
  if (n <= PLK_BLOCK) return K(block)(PLK_SUM, x, n);
  int64_t h = plk_split(n);
  T left = K(total)(x, h);
  return left + K(total)(x + h, n - h);
}

/* Lane i's loss and what it counts in the mean. */
PLK_INLINE void K(store_loss)(const plk_Lane *l, int64_t i, T loss, T counts) {
  const Loss *o = l->state;
  if (o->reduction == NONE) {
    memcpy(l->p[0] + i * l->across[0], &loss, sizeof loss);
    return;
  }
  ((T *)o->losses)[l->first + i] = loss;
  o->counts[l->first + i] = counts;
}

/* --- sums over classes: of a (log s - (x - m)), or with log NULL of a alone ---------------------- */

static T K(shared_loss)(const plk_Lane *l, T m, const T *log, int64_t k, int64_t n) {
  const Loss *o = l->state;
  if (n > PLK_BLOCK) {
    int64_t h = plk_split(n);
    T left = K(shared_loss)(l, m, log, k, h);
    return left + K(shared_loss)(l, m, log, k + h, n - h);
  }
  T xbuffer[PLK_BLOCK], tbuffer[PLK_BLOCK], terms[PLK_BLOCK];
  const T *x = K(along)(l, o->x, k, n, xbuffer), *t = o->probabilities ? K(along)(l, o->target, k, n, tbuffer) : x;
  for (int64_t i = 0; i < n; i++) {
    T a = K(share)(o, k + i, t[i]);
    terms[i] = log ? a * (*log - (x[i] - m)) : a;
  }
  return K(block)(PLK_SUM, terms, n);
}

typedef struct K(ShareRow) {
  const plk_Lane *l;
  const T *m, *log;
  int64_t k; /* the tile's row that is row 0 */
} K(ShareRow);

static const void *K(share_row)(void *buffer, const char *src, int64_t n, const void *with, int64_t k) {
  const K(ShareRow) *r = with;
  const Loss *o = r->l->state;
  T tbuffer[PLK_COLUMNS], *restrict terms = buffer;
  const T *x = (const void *)src, *t = o->probabilities ? K(row)(r->l, o->target, r->k + k, tbuffer) : x;
  for (int64_t i = 0; i < n; i++) {
    T a = K(share)(o, r->k + k, t[i]);
    terms[i] = r->log ? a * (r->log[i] - (x[i] - r->m[i])) : a;
  }
  return terms;
}

static void K(tile_shared_loss)(const plk_Lane *l, const T *m, const T *log, int64_t k, int64_t n, T *sum) {
  const Loss *o = l->state;
  if (n > PLK_BLOCK) {
    T right[PLK_COLUMNS];
    int64_t h = plk_split(n);
    K(tile_shared_loss)(l, m, log, k, h, sum);
    K(tile_shared_loss)(l, m, log, k + h, n - h, right);
    for (int64_t i = 0; i < l->w; i++) sum[i] += right[i];
    return;
  }
  K(ShareRow) with = {l, m, log, k};
  plk_Rows rows = K(rows)(l, o->x, k, K(share_row), &with);
  K(block_rows)(PLK_SUM, &rows, n, l->w, sum);
}

/* --- losses ------------------------------------------------------------------------------------- */

/* Lane i's loss, given the part that its class has no say in. */
PLK_INLINE void K(finish_loss)(const plk_Lane *l, int64_t i, T m, T log, T shared) {
  const Loss *o = l->state;
  if (o->probabilities) {
    K(store_loss)(l, i, shared, 1);
    return;
  }
  int64_t class = class_of(l, i);
  if (class == IGNORED) {
    K(store_loss)(l, i, 0, 0);
  } else if (class == INVALID) {
    K(store_loss)(l, i, (T)NAN, 0);
  } else {
    T x;
    memcpy(&x, l->p[o->x] + i * l->across[o->x] + (class - 1) * l->step[o->x], sizeof x);
    K(store_loss)(l, i, K(share_of_class)(o, class) * (log - (x - m)) + shared, K(weight_of)(o, class - 1));
  }
}

static void K(loss_lane)(const plk_Lane *l) {
  const Loss *o = l->state;
  T m, log = K(pls_log)(K(lane_exp_sum)(l, o->x, -1, &m)), shared = 0;
  if (o->shares) shared = K(shared_loss)(l, m, &log, 0, l->n);
  K(finish_loss)(l, 0, m, log, shared);
}

static void K(loss_tile)(const plk_Lane *l) {
  const Loss *o = l->state;
  T m[PLK_COLUMNS], log[PLK_COLUMNS], shared[PLK_COLUMNS] = {0};
  K(tile_largest)(l, o->x, m);
  K(tile_exp_sum)(l, o->x, -1, m, 0, l->n, log);
  for (int64_t i = 0; i < l->w; i++) log[i] = K(pls_log)(log[i]);
  if (o->shares) K(tile_shared_loss)(l, m, log, 0, l->n, shared);
  for (int64_t i = 0; i < l->w; i++) K(finish_loss)(l, i, m[i], log[i], shared[i]);
}

/* Sum or mean of the losses that are in scratch. */
static void K(reduce_losses)(const pln_Call *c, const Loss *o) {
  double sum = K(total)((const T *)o->losses, c->numel);
  if (o->reduction == MEAN) sum /= o->probabilities ? (double)c->numel : total_f64(o->counts, c->numel);
  *(T *)c->arg[0].data = (T)sum;
}

/* --- gradient ----------------------------------------------------------------------------------- */

static void K(count_lanes)(const plk_Lane *l) {
  const Loss *o = l->state;
  for (int64_t i = 0; i < l->w; i++) {
    int64_t class = class_of(l, i);
    o->counts[l->first + i] = class == IGNORED || class == INVALID ? 0 : K(weight_of)(o, class - 1);
  }
}

/* The incoming gradient of lane i's loss. */
PLK_INLINE T K(gradient_of)(const plk_Lane *l, int64_t i) {
  T g;
  memcpy(&g, l->p[1] + i * l->across[1], sizeof g);
  return (T)(g / ((const Loss *)l->state)->divisor);
}

/* Corrects lane i, which holds what all classes get: the class itself, ignored and invalid lanes. */
PLK_INLINE void K(finish_gradient)(const plk_Lane *l, int64_t i, T g) {
  const Loss *o = l->state;
  if (o->probabilities) return;
  char *dst = l->p[0] + i * l->across[0];
  int64_t class = class_of(l, i);
  if (class == IGNORED || class == INVALID) {
    T v = class == IGNORED ? 0 : (T)NAN;
    for (int64_t k = 0; k < l->n; k++) memcpy(dst + k * l->step[0], &v, sizeof v);
  } else {
    T v;
    dst += (class - 1) * l->step[0];
    memcpy(&v, dst, sizeof v);
    v -= g * K(share_of_class)(o, class);
    memcpy(dst, &v, sizeof v);
  }
}

/* The sum of a of lane i, `shared` being that of what its class has no say in. */
PLK_INLINE T K(mass)(const plk_Lane *l, int64_t i, T shared) {
  const Loss *o = l->state;
  int64_t class = o->probabilities ? IGNORED : class_of(l, i);
  return class == IGNORED || class == INVALID ? shared : shared + K(share_of_class)(o, class);
}

static void K(loss_gradient_lane)(const plk_Lane *l) {
  const Loss *o = l->state;
  T ebuffer[PLK_BLOCK], tbuffer[PLK_BLOCK], m, s = K(lane_exp_sum)(l, o->x, 0, &m);
  T g = K(gradient_of)(l, 0), shared = o->shares ? K(shared_loss)(l, m, NULL, 0, l->n) : 0;
  T scale = g * K(mass)(l, 0, shared) / s;
  for (int64_t k = 0; k < l->n; k += PLK_BLOCK) {
    int64_t n = l->n - k < PLK_BLOCK ? l->n - k : PLK_BLOCK;
    char *dst = l->p[0] + k * l->step[0];
    T *dx = (T *)K(fetch)(dst, l->step[0], n, ebuffer);
    const T *t = o->probabilities ? K(along)(l, o->target, k, n, tbuffer) : dx;
    if (o->shares)
      for (int64_t i = 0; i < n; i++) dx[i] = dx[i] * scale - g * K(share)(o, k + i, t[i]);
    else
      for (int64_t i = 0; i < n; i++) dx[i] *= scale;
    K(deliver)(dst, l->step[0], n, dx);
  }
  K(finish_gradient)(l, 0, g);
}

static void K(loss_gradient_tile)(const plk_Lane *l) {
  const Loss *o = l->state;
  T ebuffer[PLK_COLUMNS], tbuffer[PLK_COLUMNS], m[PLK_COLUMNS], s[PLK_COLUMNS], shared[PLK_COLUMNS] = {0}, g[PLK_COLUMNS];
  K(tile_largest)(l, o->x, m);
  K(tile_exp_sum)(l, o->x, 0, m, 0, l->n, s);
  if (o->shares) K(tile_shared_loss)(l, m, NULL, 0, l->n, shared);
  for (int64_t i = 0; i < l->w; i++) {
    g[i] = K(gradient_of)(l, i);
    s[i] = g[i] * K(mass)(l, i, shared[i]) / s[i];
  }
  for (int64_t k = 0; k < l->n; k++) {
    char *dst = l->p[0] + k * l->step[0];
    T *dx = (T *)K(fetch)(dst, l->across[0], l->w, ebuffer);
    const T *t = o->probabilities ? K(row)(l, o->target, k, tbuffer) : dx;
    if (o->shares)
      for (int64_t i = 0; i < l->w; i++) dx[i] = dx[i] * s[i] - g[i] * K(share)(o, k, t[i]);
    else
      for (int64_t i = 0; i < l->w; i++) dx[i] *= s[i];
    K(deliver)(dst, l->across[0], l->w, dx);
  }
  for (int64_t i = 0; i < l->w; i++) K(finish_gradient)(l, i, g[i]);
}
