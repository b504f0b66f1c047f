/* SPDX-License-Identifier: MIT
** normalize_layer.h -- lanes of layer_norm, rms_norm and group_norm for one float type (reduce_each.h).
**
** A mean is kept in f64 and taken off in two steps, high and low, so that lanes far from 0 with little spread lose nothing.
*/

/* What maps x to its normalized value: ((x - high) - low) * scale. */
typedef struct K(Scale) {
  T high, low, scale;
} K(Scale);

static K(Scale) K(scale_of)(double mean, double rstd) {
  T high = (T)mean;
  return (K(Scale)){high, (T)(mean - (double)high), (T)rstd};
}

PLK_INLINE T K(normal)(K(Scale) s, T x) { return ((x - s.high) - s.low) * s.scale; }

/* Mean and sum of squared distances from it; parts merge by the exact formula. */
static void K(moments)(const T *x, int64_t n, double *mean, double *squares) {
  if (n > PLK_BLOCK) {
    double bmean, bsquares;
    int64_t h = plk_split(n);
    K(moments)(x, h, mean, squares);
    K(moments)(x + h, n - h, &bmean, &bsquares);
    double delta = bmean - *mean, share = (double)(n - h) / (double)n;
    *mean += delta * share;
    *squares += bsquares + delta * delta * share * (double)h;
    return;
  }
  T d[PLK_BLOCK], q[PLK_BLOCK], m = K(block)(PLK_SUM, x, n) / (T)n;
  for (int64_t i = 0; i < n; i++) {
    d[i] = x[i] - m;
    q[i] = d[i] * d[i];
  }
  double rest = K(block)(PLK_SUM, d, n); /* what rounding left of the distances' sum, 0 by rights */
  *mean = (double)m + rest / (double)n;
  *squares = (double)K(block)(PLK_SUM, q, n) - rest * rest / (double)n;
  if (*squares < 0) *squares = 0;
}

static double K(sum_of_squares)(const T *x, int64_t n) {
  if (n > PLK_BLOCK) {
    int64_t h = plk_split(n);
    double left = K(sum_of_squares)(x, h);
    return left + K(sum_of_squares)(x + h, n - h);
  }
  T q[PLK_BLOCK];
  for (int64_t i = 0; i < n; i++) q[i] = x[i] * x[i];
  return K(block)(PLK_SUM, q, n);
}

/* Mean (0 if not centred) and reciprocal deviation of a lane. */
static K(Scale) K(measure)(const Norm *o, const T *x, int64_t lane) {
  double mean = 0, squares;
  if (o->centred)
    K(moments)(x, o->n, &mean, &squares);
  else
    squares = K(sum_of_squares)(x, o->n);
  double rstd = 1 / pls_sqrt_f64(squares / (double)o->n + o->eps);
  if (o->mean) o->mean[plk_offset(o->nkept, o->c->size, o->mean_stride, lane)] = mean;
  if (o->rstd) o->rstd[plk_offset(o->nkept, o->c->size, o->rstd_stride, lane)] = rstd;
  return K(scale_of)(mean, rstd);
}

PLK_INLINE void K(apply)(K(Scale) s, int64_t n, const T *restrict x, const T *restrict w, const T *restrict b, T *restrict y) {
  if (w && b)
    for (int64_t i = 0; i < n; i++) y[i] = K(normal)(s, x[i]) * w[i] + b[i];
  else if (w)
    for (int64_t i = 0; i < n; i++) y[i] = K(normal)(s, x[i]) * w[i];
  else if (b)
    for (int64_t i = 0; i < n; i++) y[i] = K(normal)(s, x[i]) + b[i];
  else
    for (int64_t i = 0; i < n; i++) y[i] = K(normal)(s, x[i]);
}

static void K(forward)(void *context, int64_t begin, int64_t end) {
  const Norm *o = context;
  const pln_Call *c = o->c;
  for (int64_t lane = begin; lane < end; lane++) {
    const T *x = (const T *)o->x->data + plk_offset(o->nkept, c->size, o->x->stride, lane);
    T *y = (T *)c->arg[0].data + lane * o->n;
    const T *w = o->weight, *b = o->bias;
    K(Scale) s = K(measure)(o, x, lane);
    if (!o->channels) {
      K(apply)(s, o->n, x, w, b, y);
      continue;
    }
    int64_t channel = lane % o->groups * o->channels;
    for (int64_t j = 0; j < o->channels; j++, channel++, x += o->area, y += o->area) {
      T scale = w ? w[channel] : 1, shift = b ? b[channel] : 0;
      for (int64_t i = 0; i < o->area; i++) y[i] = K(normal)(s, x[i]) * scale + shift;
    }
  }
}

/* --- gradients ---------------------------------------------------------------------------------- */

/* Sums over n elements of g w and of g w times the normalized x; w may be NULL. */
static void K(lane_sums)(K(Scale) s, const T *restrict g, const T *restrict x, const T *restrict w, int64_t n, T *plain, T *scaled) {
  if (n > PLK_BLOCK) {
    T right_plain, right_scaled;
    int64_t h = plk_split(n);
    K(lane_sums)(s, g, x, w, h, plain, scaled);
    K(lane_sums)(s, g + h, x + h, w ? w + h : NULL, n - h, &right_plain, &right_scaled);
    *plain += right_plain;
    *scaled += right_scaled;
    return;
  }
  T p[PLK_BLOCK], q[PLK_BLOCK];
  for (int64_t i = 0; i < n; i++) {
    p[i] = w ? g[i] * w[i] : g[i];
    q[i] = p[i] * K(normal)(s, x[i]);
  }
  *plain = K(block)(PLK_SUM, p, n);
  *scaled = K(block)(PLK_SUM, q, n);
}

/* dx = scale (g w - plain / n - normalized x * scaled / n), without the middle term if the lane was not centred. */
PLK_INLINE void K(spread)(K(Scale) s, T plain, T scaled, int64_t n, const T *restrict g, const T *restrict x, const T *restrict w, T one,
                          T *restrict dx) {
  if (w)
    for (int64_t i = 0; i < n; i++) dx[i] = s.scale * (g[i] * w[i] - plain - K(normal)(s, x[i]) * scaled);
  else
    for (int64_t i = 0; i < n; i++) dx[i] = s.scale * (g[i] * one - plain - K(normal)(s, x[i]) * scaled);
}

static void K(backward)(void *context, int64_t begin, int64_t end) {
  const Norm *o = context;
  const int64_t n = o->n;
  for (int64_t lane = begin; lane < end; lane++) {
    const T *g = (const T *)o->g->data + lane * n, *x = (const T *)o->x->data + lane * n;
    T *dx = (T *)o->c->arg[0].data + lane * n, plain, scaled;
    K(Scale) s = K(scale_of)(o->mean ? o->mean[lane] : 0, o->rstd[lane]);
    K(lane_sums)(s, g, x, o->weight, n, &plain, &scaled);
    K(spread)(s, o->mean ? plain / (T)n : 0, scaled / (T)n, n, g, x, o->weight, 1, dx);
  }
}

/* --- group_norm: sums per channel first, of which those of a lane and of the weight are made ------ */

/* The sum of w x over n channels, w NULL for 1. */
static T K(weighted)(const T *restrict x, const T *restrict w, int64_t n) {
  if (n > PLK_BLOCK) {
    int64_t h = plk_split(n);
    T left = K(weighted)(x, w, h);
    return left + K(weighted)(x + h, w ? w + h : NULL, n - h);
  }
  T terms[PLK_BLOCK];
  if (!w) return K(block)(PLK_SUM, x, n);
  for (int64_t i = 0; i < n; i++) terms[i] = x[i] * w[i];
  return K(block)(PLK_SUM, terms, n);
}

static void K(group_backward)(void *context, int64_t begin, int64_t end) {
  const Norm *o = context;
  const int64_t n = o->n, area = o->area;
  for (int64_t lane = begin; lane < end; lane++) {
    const T *g = (const T *)o->g->data + lane * n, *x = (const T *)o->x->data + lane * n;
    const T *w = o->weight ? (const T *)o->weight + lane % o->groups * o->channels : NULL;
    T *plain = (T *)o->plain + lane * o->channels, *scaled = (T *)o->scaled + lane * o->channels;
    T *dx = (T *)o->c->arg[0].data + lane * n;
    K(Scale) s = K(scale_of)(o->mean[lane], o->rstd[lane]);
    for (int64_t j = 0; j < o->channels; j++)
      K(lane_sums)(s, g + j * area, x + j * area, NULL, area, &plain[j], &scaled[j]);
    T mean_plain = K(weighted)(plain, w, o->channels) / (T)n, mean_scaled = K(weighted)(scaled, w, o->channels) / (T)n;
    for (int64_t j = 0; j < o->channels; j++)
      K(spread)(s, mean_plain, mean_scaled, area, g + j * area, x + j * area, NULL, w ? w[j] : 1, dx + j * area);
  }
}

/* A load of g times the normalized x, for the sum over lanes that is dweight; elements are found by their place in g. */
static const void *K(scaled_g)(void *buffer, const char *src, int64_t n, const void *with, int64_t k) {
  const Norm *o = with;
  const T *restrict g = (const void *)src;
  T *restrict dst = buffer;
  int64_t at = g - (const T *)o->g->data, lane = at / o->n, first = at - lane * o->n;
  (void)k;
  for (int64_t done = 0; done < n; lane++, first = 0) {
    int64_t m = o->n - first < n - done ? o->n - first : n - done;
    const T *restrict x = (const T *)o->x->data + lane * o->n + first;
    K(Scale) s = K(scale_of)(o->mean ? o->mean[lane] : 0, o->rstd[lane]);
    for (int64_t i = 0; i < m; i++) dst[done + i] = g[done + i] * K(normal)(s, x[i]);
    done += m;
  }
  return dst;
}
