/* SPDX-License-Identifier: MIT
** normalize_layer.cu -- layer_norm, rms_norm and group_norm, with their gradients. A lane lies side by side; its mean and spread take two
** passes. A mean is kept in f64 and taken off in two steps, high and low, so that lanes far from 0 with little spread lose nothing.
*/
#include "team.h"

namespace {

struct Norm {
  int64_t lanes, n;            /* elements of a lane */
  char *y;                     /* result; of the gradient dx */
  const char *x, *g, *weight, *bias;
  double *mean, *rstd;         /* by lane; NULL where not wanted or not there */
  bool centred;
  double eps;
  int64_t groups, channels, area; /* group_norm: groups of an image, channels of a group (else 0), elements of a channel */
  double *plain, *scaled;      /* group_norm's sums by image and channel: of g, of g times the normalized x */
  pld_Layout<4> layout;        /* of lanes: y, mean, rstd, x */
};

/* What maps x to its normalized value: ((x - high) - low) * scale. */
template <class T> struct Scale {
  T high, low, scale;
  __device__ __forceinline__ T operator()(T x) const { return ((x - high) - low) * scale; }
};

template <class T> __device__ __forceinline__ Scale<T> scale_of(double mean, double rstd) {
  const T high = (T)mean;
  return {high, (T)(mean - (double)high), (T)rstd};
}

template <class T> __device__ __forceinline__ Scale<T> scale_at(const Norm &o, int64_t lane) {
  return scale_of<T>(o.mean ? o.mean[lane] : 0, o.rstd[lane]);
}

/* Where element i of the lane has its weight and bias. */
__device__ __forceinline__ int64_t affine_at(const Norm &o, int64_t lane, int64_t i) {
  return o.channels ? lane % o.groups * o.channels + i / o.area : i;
}

template <class T, int G> __global__ void __launch_bounds__(PLC_THREADS) forward_kernel(const Norm o) {
  PLN_SHARED(double, part, [PLC_THREADS]);
  const Team<G> team(false);
  EACH_LANE(team, o.lanes, lane) {
    const int64_t n = lane < o.lanes ? o.n : 0;
    int64_t at[4] = {};
    if (n) o.layout.find(lane, at);
    const T *x = (const T *)o.x + at[3];
    double mean = 0, squares;
    if (o.centred) {
      Total<T> all, rest, q;
      for (int64_t k = team.member; k < n; k += G) all.add(x[k]);
      mean = team.sum(part, all.value()) / (double)o.n;
      const Scale<T> s = scale_of<T>(mean, 1);
      for (int64_t k = team.member; k < n; k += G) {
        const T d = s(x[k]);
        rest.add(d);
        q.add(d * d);
      }
      /* what rounding left of the distances' sum, 0 by rights */
      const double left = team.sum(part, rest.value());
      mean += left / (double)o.n;
      squares = team.sum(part, q.value()) - left * left / (double)o.n;
      if (squares < 0) squares = 0;
    } else {
      Total<T> q;
      for (int64_t k = team.member; k < n; k += G) q.add(x[k] * x[k]);
      squares = team.sum(part, q.value());
    }
    if (!n) continue;
    const double rstd = 1 / pls_sqrt_f64(squares / (double)o.n + o.eps);
    if (team.member == 0 && o.mean) o.mean[at[1]] = mean;
    if (team.member == 0 && o.rstd) o.rstd[at[2]] = rstd;
    const Scale<T> s = scale_of<T>(mean, rstd);
    T *y = (T *)o.y + lane * o.n;
    for (int64_t k = team.member; k < n; k += G) {
      T v = s(x[k]);
      if (o.weight || o.bias) {
        const int64_t a = affine_at(o, lane, k);
        if (o.weight) v *= ((const T *)o.weight)[a];
        if (o.bias) v += ((const T *)o.bias)[a];
      }
      y[k] = v;
    }
  }
}

/* dx = scale (g w - plain / n - normalized x * scaled / n), without the middle term if the lane was not centred. */
template <class T, int G> __global__ void __launch_bounds__(PLC_THREADS) backward_kernel(const Norm o) {
  PLN_SHARED(double, part, [PLC_THREADS]);
  const Team<G> team(false);
  EACH_LANE(team, o.lanes, lane) {
    const int64_t n = lane < o.lanes ? o.n : 0;
    const T *g = (const T *)o.g + lane * o.n, *x = (const T *)o.x + lane * o.n, *w = (const T *)o.weight;
    const Scale<T> s = n ? scale_at<T>(o, lane) : Scale<T>{0, 0, 0};
    Total<T> p, q;
    if (!o.channels) {
      for (int64_t k = team.member; k < n; k += G) {
        const T gw = w ? g[k] * w[k] : g[k];
        p.add(gw);
        q.add(gw * s(x[k]));
      }
    } else if (n) { /* the sums by channel are there */
      for (int64_t j = team.member; j < o.channels; j += G) {
        const T one = w ? w[lane % o.groups * o.channels + j] : (T)1;
        p.add((T)o.plain[lane * o.channels + j] * one);
        q.add((T)o.scaled[lane * o.channels + j] * one);
      }
    }
    const double plain = team.sum(part, p.value()), scaled = team.sum(part, q.value());
    const T mean_plain = o.mean ? (T)plain / (T)o.n : (T)0, mean_scaled = (T)scaled / (T)o.n;
    T *dx = (T *)o.y + lane * o.n;
    for (int64_t k = team.member; k < n; k += G) {
      const T gw = w ? g[k] * w[affine_at(o, lane, k)] : g[k];
      dx[k] = s.scale * (gw - mean_plain - s(x[k]) * mean_scaled);
    }
  }
}

/* group_norm: a team for each channel of each image. */
template <class T, int G> __global__ void __launch_bounds__(PLC_THREADS) channel_kernel(const Norm o, int64_t channels) {
  PLN_SHARED(double, part, [PLC_THREADS]);
  const Team<G> team(false);
  EACH_LANE(team, channels, channel) {
    const int64_t n = channel < channels ? o.area : 0;
    const T *g = (const T *)o.g + channel * o.area, *x = (const T *)o.x + channel * o.area;
    const Scale<T> s = n ? scale_at<T>(o, channel / o.channels) : Scale<T>{0, 0, 0};
    Total<T> p, q;
    for (int64_t k = team.member; k < n; k += G) {
      p.add(g[k]);
      q.add(g[k] * s(x[k]));
    }
    const double plain = team.sum(part, p.value()), scaled = team.sum(part, q.value());
    if (team.member || channel >= channels) continue;
    o.plain[channel] = plain;
    o.scaled[channel] = scaled;
  }
}

/* --- sums over lanes: dweight and dbias ----------------------------------------------------------- */

template <class T> struct Column : One<T, SUM> {
  static __device__ __forceinline__ void load(const Reduction &r, int64_t, int64_t x, int64_t first, int n, T *v) {
    load_as<T>(r, x, first, n, v, [](T e) { return e; });
  }
  static __device__ __forceinline__ void finish(const Reduction &r, T a, const int64_t (&at)[3]) { ((T *)r.out[0])[at[0]] = a; }
};

/* Of g times the normalized x, element k of a result lying in lane k. */
template <class T> struct ScaledColumn : Column<T> {
  static __device__ __forceinline__ void load(const Reduction &r, int64_t result, int64_t, int64_t first, int n, T *v) {
    const T *g = (const T *)r.with[0], *x = (const T *)r.with[1];
    const double *mean = (const double *)r.with[2], *rstd = (const double *)r.with[3];
    PLC_UNROLL(16)
    for (int j = 0; j < LANES; j++)
      if (j < n) {
        const int64_t lane = first + j * LANES, at = lane * r.width + result;
        v[j] = g[at] * scale_of<T>(mean ? mean[lane] : 0, rstd[lane])(x[at]);
      }
  }
};

/* Of doubles, rounded to T. */
template <class T> struct WideColumn : One<double, SUM> {
  static __device__ __forceinline__ void load(const Reduction &r, int64_t, int64_t x, int64_t first, int n, double *v) {
    load_as<double>(r, x, first, n, v, [](double e) { return e; });
  }
  static __device__ __forceinline__ void finish(const Reduction &r, double a, const int64_t (&at)[3]) { ((T *)r.out[0])[at[0]] = (T)a; }
};

/* result[j] = the sum over `rows` of x[i][j]. */
Reduction sum_rows(const pln_Call *c, int result, const void *x, int64_t rows, int64_t columns, char *scratch) {
  Reduction r;
  memset(&r, 0, sizeof r);
  r.results = columns;
  r.count = rows;
  r.units = rows > UNIT ? (rows + UNIT - 1) / UNIT : 1;
  r.columns = true;
  r.x = (const char *)x;
  r.out[0] = c->arg[result].data;
  r.scratch = (uint64_t *)scratch;
  r.kept.ndim = r.reduced.ndim = 1;
  r.kept.narrow = columns <= INT32_MAX;
  r.kept.size[0] = columns;
  r.kept.stride[0][0] = r.kept.stride[2][0] = 1;
  r.reduced.size[0] = rows;
  r.reduced.stride[0][0] = columns;
  r.width = columns;
  return r;
}

/* --- calls ---------------------------------------------------------------------------------------- */

Norm norm_of(const pln_Call *c, bool grouped) {
  Norm o;
  memset(&o, 0, sizeof o);
  o.lanes = c->numel;
  o.n = c->i[1];
  o.y = c->arg[0].data;
  o.eps = c->f[0];
  if (grouped) {
    o.groups = c->i[4];
    o.channels = c->i[3] / c->i[4];
    o.area = c->i[5];
  }
  return o;
}

template <class T> pln_Status forward(const pln_Call *c, bool centred, bool grouped) {
  Norm o = norm_of(c, grouped);
  const pln_Arg *next = pln_call_in(c, 0);
  const int nkept = (int)c->i[0];
  o.centred = centred;
  o.layout.ndim = nkept;
  o.layout.narrow = c->numel <= INT32_MAX;
  for (int d = 0; d < nkept; d++) {
    o.layout.size[d] = c->size[d];
    o.layout.stride[3][d] = next->stride[d];
  }
  o.x = next++->data;
  if (c->i[2] & 1) o.weight = next++->data;
  if (c->i[2] & 2) o.bias = next->data;
  for (int i = 1; i < c->nout; i++) { /* [mean,] rstd */
    const bool mean = centred && i == 1;
    (mean ? o.mean : o.rstd) = (double *)c->arg[i].data;
    for (int d = 0; d < nkept; d++) o.layout.stride[mean ? 1 : 2][d] = c->arg[i].stride[d];
  }
  TEAM_LAUNCH(c, o.lanes, o.n, forward_kernel, o);
  return PLN_OK;
}

Norm gradient_of(const pln_Call *c, bool centred, bool grouped) {
  Norm o = norm_of(c, grouped);
  const pln_Arg *next = pln_call_in(c, 0);
  o.g = next++->data;
  o.x = next++->data;
  if (centred) o.mean = (double *)next++->data;
  o.rstd = (double *)next++->data;
  if (c->i[2] & 1) o.weight = next->data;
  return o;
}

template <class T> pln_Status backward(const pln_Call *c, bool centred) {
  const Norm o = gradient_of(c, centred, false);
  if (o.lanes) TEAM_LAUNCH(c, o.lanes, o.n, backward_kernel, o);
  if (c->nout > 1) {
    Reduction r = sum_rows(c, 1, o.g, o.lanes, o.n, c->scratch);
    r.with[0] = o.g;
    r.with[1] = o.x;
    r.with[2] = o.mean;
    r.with[3] = o.rstd;
    PLN_TRY(fold<ScaledColumn<T>>(c, r));
  }
  return c->nout > 2 ? fold<Column<T>>(c, sum_rows(c, 2, o.g, o.lanes, o.n, c->scratch)) : PLN_OK;
}

template <class T> pln_Status group_backward(const pln_Call *c) {
  Norm o = gradient_of(c, true, true);
  const int64_t images = o.lanes / o.groups, channels = c->i[3];
  o.plain = (double *)c->scratch;
  o.scaled = o.plain + images * channels;
  if (o.lanes) {
    TEAM_LAUNCH(c, images * channels, o.area, channel_kernel, o, images * channels);
    TEAM_LAUNCH(c, o.lanes, o.n, backward_kernel, o);
  }
  if (c->nout == 1) return PLN_OK;
  char *rest = (char *)(o.scaled + images * channels);
  PLN_TRY(fold<WideColumn<T>>(c, sum_rows(c, 1, o.scaled, images, channels, rest)));
  return fold<WideColumn<T>>(c, sum_rows(c, 2, o.plain, images, channels, rest));
}

}  // namespace

#define BY_DTYPE(fn, ...) (c->arg[0].dtype == PLN_F32 ? fn<float>(__VA_ARGS__) : fn<double>(__VA_ARGS__))

PLC_KERNEL(layer_norm) { return BY_DTYPE(forward, c, true, false); }
PLC_KERNEL(rms_norm) { return BY_DTYPE(forward, c, false, false); }
PLC_KERNEL(group_norm) { return BY_DTYPE(forward, c, true, true); }
PLC_KERNEL(layer_norm_backward) { return BY_DTYPE(backward, c, true); }
PLC_KERNEL(rms_norm_backward) { return BY_DTYPE(backward, c, false); }
PLC_KERNEL(group_norm_backward) { return BY_DTYPE(group_backward, c); }
