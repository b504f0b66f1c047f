/* SPDX-License-Identifier: MIT
** copy.cu -- kernels that move elements: cast and copy (any dtype to any), where, masked_fill and fill.
** What only moves bits goes by element size, so that a NaN's payload and a bool's byte stay what they are.
*/
#include "elementwise.h"

namespace {

#define CAST(FROM, F, TO, S)                                                                 \
  struct cast_##F##_##S {                                                                    \
    typedef TO R;                                                                            \
    typedef FROM A;                                                                          \
    typedef uint8_t B, C;                                                                    \
    enum { N = 1, CHECKED = 0 };                                                             \
    __device__ __forceinline__ TO operator()(FROM x) const { return pls_cast_##F##_##S(x); } \
  };
#define CASTS(ID, FROM, F)                                                           \
  CAST(FROM, F, uint8_t, u8) CAST(FROM, F, int32_t, i32) CAST(FROM, F, int64_t, i64) \
  CAST(FROM, F, float, f32) CAST(FROM, F, double, f64) CAST(FROM, F, uint8_t, bool)
PLC_EACH_DTYPE(CASTS)

template <class T> struct Copy {
  typedef T R, A;
  typedef uint8_t B, C;
  enum { N = 1, CHECKED = 0 };
  __device__ __forceinline__ T operator()(T x) const { return x; }
};

template <class T> struct Where {
  typedef T R, B, C;
  typedef uint8_t A;
  enum { N = 3, CHECKED = 0 };
  __device__ __forceinline__ T operator()(uint8_t mask, T a, T b) const { return mask ? a : b; }
};

template <class T> struct Masked {
  typedef T R, A;
  typedef uint8_t B, C;
  enum { N = 2, CHECKED = 0 };
  T value;
  __device__ __forceinline__ T operator()(T x, uint8_t mask) const { return mask ? value : x; }
};

template <class T> struct Fill {
  typedef T R;
  typedef uint8_t A, B, C;
  enum { N = 0, CHECKED = 0 };
  T value;
  __device__ __forceinline__ T operator()() const { return value; }
};

/* The call's number as the bits of a result element. */
template <class T> T value_of(const pln_Call *c) {
  uint64_t bits = element_of(c->arg[0].dtype, c->f[0]);
  T v;
  memcpy(&v, &bits, sizeof v);
  return v;
}

#define BY_SIZE(c, F, ...)                                            \
  do {                                                                \
    int size_ = pln_dtype_size((pln_DType)(c)->arg[0].dtype);         \
    if (size_ == 1) return elementwise(c, F<uint8_t>{__VA_ARGS__});   \
    if (size_ == 4) return elementwise(c, F<uint32_t>{__VA_ARGS__});  \
    return elementwise(c, F<uint64_t>{__VA_ARGS__});                  \
  } while (0)

}  // namespace

PLC_KERNEL(cast) {
  int from = c->arg[1].dtype, to = c->arg[0].dtype;
  if (from == to) BY_SIZE(c, Copy);
  switch (from * PLN_NDTYPE + to) {
#define TO(F, FID, ID, T, S) \
  case PLN_##FID * PLN_NDTYPE + PLN_##ID: return elementwise(c, cast_##F##_##S());
#define FROM(ID, T, F)                                                                                   \
  TO(F, ID, BOOL, uint8_t, bool) TO(F, ID, U8, uint8_t, u8) TO(F, ID, I32, int32_t, i32)                 \
  TO(F, ID, I64, int64_t, i64) TO(F, ID, F32, float, f32) TO(F, ID, F64, double, f64)
    PLC_EACH_DTYPE(FROM)
#undef TO
#undef FROM
  }
  return pln_fail(PLN_EDEVICE, "cast: no kernel");
}

PLC_KERNEL(where) { BY_SIZE(c, Where); }

PLC_KERNEL(masked_fill) {
  int size = pln_dtype_size((pln_DType)c->arg[0].dtype);
  if (size == 1) return elementwise(c, Masked<uint8_t>{value_of<uint8_t>(c)});
  if (size == 4) return elementwise(c, Masked<uint32_t>{value_of<uint32_t>(c)});
  return elementwise(c, Masked<uint64_t>{value_of<uint64_t>(c)});
}

PLC_KERNEL(fill) {
  int size = pln_dtype_size((pln_DType)c->arg[0].dtype);
  if (size == 1) return elementwise(c, Fill<uint8_t>{value_of<uint8_t>(c)});
  if (size == 4) return elementwise(c, Fill<uint32_t>{value_of<uint32_t>(c)});
  return elementwise(c, Fill<uint64_t>{value_of<uint64_t>(c)});
}
