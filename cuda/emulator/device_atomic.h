/* SPDX-License-Identifier: MIT
 * Atomic operations and cached loads, included by device.h.
 * Invariant: atomics are relaxed, as CUDA's are: they order nothing but themselves, so
 * ThreadSanitizer still sees a missing barrier or fence round them. */
#ifndef PLEMU_DEVICE_ATOMIC_H
#define PLEMU_DEVICE_ATOMIC_H

namespace plemu {

template <size_t bytes> struct Word;
template <> struct Word<2> { using Type = uint16_t; };
template <> struct Word<4> { using Type = uint32_t; };
template <> struct Word<8> { using Type = uint64_t; };

template <class T, class F> inline T update(T *p, F next) {
  using W = typename Word<sizeof(T)>::Type;
  W *word = reinterpret_cast<W *>(p), seen = __atomic_load_n(word, __ATOMIC_RELAXED), wanted;
  T old;
  do {
    memcpy((void *)&old, &seen, sizeof(T));
    const T value = next(old);
    memcpy(&wanted, &value, sizeof(T));
  } while (!__atomic_compare_exchange_n(word, &seen, wanted, true, __ATOMIC_RELAXED,
                                        __ATOMIC_RELAXED));
  return old;
}

template <class T> struct Same { using Type = T; };  /* keeps an argument out of deduction */
template <class T> using Given = typename Same<T>::Type;

}  // namespace plemu

#define PLEMU_ATOMIC_ADD(T, SUM)                                       \
  static inline T atomicAdd(T *p, T v) {                               \
    return plemu::update(p, [=](T old) -> T { return SUM; });          \
  }
PLEMU_ATOMIC_ADD(int, (int)((unsigned)old + (unsigned)v))
PLEMU_ATOMIC_ADD(unsigned, old + v)
PLEMU_ATOMIC_ADD(unsigned long long, old + v)
PLEMU_ATOMIC_ADD(float, old + v)
PLEMU_ATOMIC_ADD(double, old + v)
PLEMU_ATOMIC_ADD(__half, __hadd(old, v))
PLEMU_ATOMIC_ADD(__nv_bfloat16, __hadd(old, v))
#undef PLEMU_ATOMIC_ADD

static inline int atomicSub(int *p, int v) { return atomicAdd(p, (int)(0u - (unsigned)v)); }
static inline unsigned atomicSub(unsigned *p, unsigned v) { return atomicAdd(p, 0u - v); }
static inline unsigned atomicInc(unsigned *p, unsigned top) {
  return plemu::update(p, [=](unsigned old) { return old >= top ? 0u : old + 1u; });
}
static inline unsigned atomicDec(unsigned *p, unsigned top) {
  return plemu::update(p, [=](unsigned old) { return old == 0 || old > top ? top : old - 1u; });
}
template <class T> inline T atomicMax(T *p, plemu::Given<T> v) {
  return plemu::update(p, [=](T old) { return old > v ? old : v; });
}
template <class T> inline T atomicMin(T *p, plemu::Given<T> v) {
  return plemu::update(p, [=](T old) { return old < v ? old : v; });
}
template <class T> inline T atomicAnd(T *p, plemu::Given<T> v) {
  return plemu::update(p, [=](T old) -> T { return old & v; });
}
template <class T> inline T atomicOr(T *p, plemu::Given<T> v) {
  return plemu::update(p, [=](T old) -> T { return old | v; });
}
template <class T> inline T atomicXor(T *p, plemu::Given<T> v) {
  return plemu::update(p, [=](T old) -> T { return old ^ v; });
}
template <class T> inline T atomicExch(T *p, plemu::Given<T> v) {
  return plemu::update(p, [=](T) { return v; });
}
template <class T> inline T atomicCAS(T *p, plemu::Given<T> expected, plemu::Given<T> v) {
  /* Compares bits, as the hardware does: NaN equals NaN, and -0 differs from 0. */
  return plemu::update(p, [=](T old) { return memcmp(&old, &expected, sizeof(T)) ? old : v; });
}

template <class T> inline T __ldg(const T *p) { return *p; }
template <class T> inline T __ldca(const T *p) { return *p; }
template <class T> inline T __ldcg(const T *p) { return *p; }
template <class T> inline T __ldcs(const T *p) { return *p; }
template <class T> inline void __stcg(T *p, plemu::Given<T> v) { *p = v; }
template <class T> inline void __stcs(T *p, plemu::Given<T> v) { *p = v; }
template <class T> inline void __stwb(T *p, plemu::Given<T> v) { *p = v; }
template <class T> inline void __stwt(T *p, plemu::Given<T> v) { *p = v; }

#endif
