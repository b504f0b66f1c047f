/* SPDX-License-Identifier: MIT
** reduce_pair.cu -- reductions that carry two numbers: var (mean and squared distances), logsumexp (largest and scaled sum), max
** and min with a dim, argmax, argmin (value and index). Leaves take two passes over registers, then merge by the exact formulas.
*/
#include "reduce.h"

#include "reduce_exp.h"

namespace {

template <class T> __device__ __forceinline__ void put_words(T a, int64_t b, uint64_t *slot) {
  memcpy(slot, &a, sizeof a);
  slot[1] = (uint64_t)b;
}

__device__ __forceinline__ void put_words(double a, double b, uint64_t *slot) {
  memcpy(slot, &a, 8);
  memcpy(slot + 1, &b, 8);
}

template <class A, class T, class U> __device__ __forceinline__ void take_words(const uint64_t *slot, T &a, U &b, A &) {
  memcpy(&a, slot, sizeof a);
  memcpy(&b, slot + 1, sizeof b);
}

__device__ __forceinline__ void store_real(const Reduction &r, double v, int64_t at) {
  if (r.out_dtype == PLN_F32)
    ((float *)r.out[0])[at] = (float)v;
  else
    ((double *)r.out[0])[at] = v;
}

/* --- var ------------------------------------------------------------------------------------------ */

struct Moments {
  double mean, squares;
  int64_t n;
};

struct Var {
  typedef double L;
  typedef Moments A;
  static __device__ __forceinline__ void load(const Reduction &r, int64_t, int64_t x, int64_t first, int n, double *v) {
    if (r.dtype == PLN_F32)
      load_as<float>(r, x, first, n, v, [](float e) { return (double)e; });
    else
      load_as<double>(r, x, first, n, v, [](double e) { return e; });
  }
  static __device__ __forceinline__ Moments none() { return {0, 0, 0}; }
  static __device__ __forceinline__ Moments leaf(const double *v, int n, int64_t) {
    double sum = 0, squares = 0;
    for (int j = 0; j < LANES; j++)
      if (j < n) sum += v[j];
    const double mean = sum / n;
    for (int j = 0; j < LANES; j++)
      if (j < n) squares += (v[j] - mean) * (v[j] - mean);
    return {mean, squares, n};
  }
  static __device__ __forceinline__ void merge(Moments &a, const Moments &b) {
    if (b.n == 0) return;
    if (a.n == 0) {
      a = b;
      return;
    }
    const double share = (double)b.n / (double)(a.n + b.n), delta = b.mean - a.mean;
    a.mean += delta * share;
    a.squares += b.squares + delta * delta * share * (double)a.n;
    a.n += b.n;
  }
  static __device__ __forceinline__ void pack(const Moments &a, uint64_t *slot) { put_words(a.mean, a.squares, slot); }
  static __device__ __forceinline__ Moments unpack(const uint64_t *slot, int64_t n) {
    Moments a;
    take_words(slot, a.mean, a.squares, a);
    a.n = n;
    return a;
  }
  static __device__ __forceinline__ void finish(const Reduction &r, const Moments &a, const int64_t (&at)[3]) {
    double divisor = (double)r.count - r.number;
    store_real(r, a.squares / (divisor > 0 ? divisor : 0), at[0]);
  }
};

/* --- logsumexp ------------------------------------------------------------------------------------ */

struct Scaled {
  double largest, sum; /* of e^(x - largest) */
};

/* The sum where the largest element is -inf, inf or NaN. */
__device__ __forceinline__ double sum_of(double largest) { return largest < 0 ? 0 : largest; }

template <class T> struct LogSumExp {
  typedef T L;
  typedef Scaled A;
  static __device__ __forceinline__ void load(const Reduction &r, int64_t, int64_t x, int64_t first, int n, T *v) {
    load_as<T>(r, x, first, n, v, [](T e) { return e; });
  }
  static __device__ __forceinline__ Scaled none() { return {-(double)INFINITY, 0}; }
  static __device__ __forceinline__ Scaled leaf(const T *v, int n, int64_t) {
    T largest = identity<T, MAX>(), sum = 0;
    for (int j = 0; j < LANES; j++)
      if (j < n) largest = step<T, MAX>(largest, v[j]);
    if (largest - largest != 0) return {(double)largest, sum_of(largest)};
    for (int j = 0; j < LANES; j++)
      if (j < n) sum += exp_below(v[j] - largest);
    return {(double)largest, (double)sum};
  }
  static __device__ __forceinline__ void merge(Scaled &a, const Scaled &b) {
    const double both = step<double, MAX>(a.largest, b.largest);
    if (both - both == 0)
      a.sum = a.sum * pls_exp_f64(a.largest - both) + b.sum * pls_exp_f64(b.largest - both);
    else /* the sums are 0, inf or NaN then */
      a.sum += b.sum;
    a.largest = both;
  }
  static __device__ __forceinline__ void pack(const Scaled &a, uint64_t *slot) { put_words(a.largest, a.sum, slot); }
  static __device__ __forceinline__ Scaled unpack(const uint64_t *slot, int64_t) {
    Scaled a;
    take_words(slot, a.largest, a.sum, a);
    return a;
  }
  static __device__ __forceinline__ void finish(const Reduction &r, const Scaled &a, const int64_t (&at)[3]) {
    store_real(r, a.largest - a.largest == 0 ? a.largest + pls_log_f64(a.sum) : a.largest, at[0]);
  }
};

/* --- max, min, argmax, argmin --------------------------------------------------------------------- */

template <class T> struct Place {
  T value;
  int64_t index;
};

/* The first one wins ties, a NaN wins over all, the first NaN over the others. */
template <class T, int OP> struct Extreme {
  typedef T L;
  typedef Place<T> A;
  static __device__ __forceinline__ void load(const Reduction &r, int64_t, int64_t x, int64_t first, int n, T *v) {
    switch (r.dtype) {
      case PLN_BOOL: return load_as<uint8_t>(r, x, first, n, v, [](uint8_t e) { return (T)(e != 0); });
      case PLN_U8: return load_as<uint8_t>(r, x, first, n, v, [](uint8_t e) { return (T)e; });
      case PLN_I32: return load_as<int32_t>(r, x, first, n, v, [](int32_t e) { return (T)e; });
      default: return load_as<T>(r, x, first, n, v, [](T e) { return e; });
    }
  }
  static __device__ __forceinline__ A none() { return {identity<T, OP>(), INT64_MAX}; }
  static __device__ __forceinline__ A leaf(const T *v, int n, int64_t first) {
    A a = {v[0], first};
    for (int j = 1; j < LANES; j++)
      if (j < n) merge(a, {v[j], first + j * LANES});
    return a;
  }
  static __device__ __forceinline__ void merge(A &a, const A &b) {
    const bool tie = a.value == b.value || (unordered(a.value) && unordered(b.value));
    const bool beats = tie ? b.index < a.index : !unordered(a.value) && (unordered(b.value) || (OP == MAX ? b.value > a.value : b.value < a.value));
    if (beats) a = b;
  }
  static __device__ __forceinline__ void pack(const A &a, uint64_t *slot) { put_words(a.value, a.index, slot); }
  static __device__ __forceinline__ A unpack(const uint64_t *slot, int64_t) {
    A a;
    take_words(slot, a.value, a.index, a);
    return a;
  }
  static __device__ __forceinline__ void finish(const Reduction &r, const A &a, const int64_t (&at)[3]) {
    if (!r.finish) { /* the index only */
      ((int64_t *)r.out[0])[at[0]] = a.index + 1;
      return;
    }
    ((int64_t *)r.out[1])[at[1]] = a.index + 1;
    switch (r.out_dtype) {
      case PLN_BOOL:
      case PLN_U8: ((uint8_t *)r.out[0])[at[0]] = (uint8_t)a.value; break;
      case PLN_I32: ((int32_t *)r.out[0])[at[0]] = (int32_t)a.value; break;
      default: ((T *)r.out[0])[at[0]] = a.value;
    }
  }
};

template <class T> pln_Status extreme(const pln_Call *c, const Reduction &r, bool largest) {
  return largest ? fold<Extreme<T, MAX>>(c, r) : fold<Extreme<T, MIN>>(c, r);
}

}  // namespace

PLC_KERNEL(var) { return fold<Var>(c, reduction_of(c)); }

PLC_KERNEL(logsumexp) {
  Reduction r = reduction_of(c);
  return r.dtype == PLN_F32 ? fold<LogSumExp<float>>(c, r) : fold<LogSumExp<double>>(c, r);
}

PLC_KERNEL(reduce);

PLC_KERNEL(extreme) {
  const bool values = c->op == PLN_OP_max || c->op == PLN_OP_min, largest = c->op == PLN_OP_max || c->op == PLN_OP_argmax;
  if (values && c->nout == 1) return PLC(reduce)(c);
  Reduction r = reduction_of(c);
  r.finish = values;
  if (r.dtype == PLN_F32) return extreme<float>(c, r, largest);
  return r.dtype == PLN_F64 ? extreme<double>(c, r, largest) : extreme<int64_t>(c, r, largest);
}
