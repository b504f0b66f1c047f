/* SPDX-License-Identifier: MIT
 * Warp operations, included by device.h. All of them meet the lanes in the mask at one place
 * (plemu_warp_exchange) and then compute from the 32 values that were brought.
 * Invariant: the value of a lane that takes no part reads as all ones (NaN or -1). */
#ifndef PLEMU_DEVICE_WARP_H
#define PLEMU_DEVICE_WARP_H

static inline void __syncwarp(unsigned mask = 0xffffffffu, PLEMU_PLACE) {
  unsigned present;
  plemu_warp_exchange(mask, 0, 1, &present, "__syncwarp", file_, line_);
}

/* "Only me" is the weakest legal answer; code that hopes for more is wrong. */
static inline unsigned __activemask() { return 1u << (plemu_t.linear & 31); }

namespace plemu {

template <class T> inline uint64_t to_bits(T v) {
  static_assert(sizeof(T) <= 8, "shuffles move at most 8 bytes");
  uint64_t u = 0;
  memcpy(&u, &v, sizeof(T));
  return u;
}

template <class T> inline T from_bits(uint64_t u) {
  T v;
  memcpy((void *)&v, &u, sizeof(T));
  return v;
}

inline int lane() { return (int)(plemu_t.linear & 31); }

/* Lane src's value; the caller's own where src lies outside its segment. */
template <class T>
inline T shuffle(unsigned mask, T v, int src, bool inside, const char *what, const char *file,
                 int line) {
  unsigned present;
  const uint64_t *all = plemu_warp_exchange(mask, to_bits(v), 0, &present, what, file, line);
  if (!inside) return v;
  return from_bits<T>((present >> src) & 1u ? all[src] : ~(uint64_t)0);
}

template <class T, class F>
inline T reduce(unsigned mask, T v, F join, const char *what, const char *file, int line) {
  unsigned present;
  const uint64_t *all = plemu_warp_exchange(mask, to_bits(v), 0, &present, what, file, line);
  int i = __builtin_ctz(present);
  T r = from_bits<T>(all[i]);
  while (++i < 32)
    if ((present >> i) & 1u) r = join(r, from_bits<T>(all[i]));
  return r;
}

inline unsigned ballot(unsigned mask, uint64_t mine, uint64_t wanted, const char *what,
                       const char *file, int line) {
  unsigned present, r = 0;
  const uint64_t *all = plemu_warp_exchange(mask, mine, 0, &present, what, file, line);
  for (int i = 0; i < 32; i++)
    if (((present >> i) & 1u) && all[i] == wanted) r |= 1u << i;
  return r;
}

}  // namespace plemu

template <class T> inline T __shfl_sync(unsigned mask, T v, int src, int width = 32, PLEMU_PLACE) {
  const int first = plemu::lane() & ~(width - 1);
  return plemu::shuffle(mask, v, first + (src & (width - 1)), true, "__shfl_sync", file_, line_);
}
template <class T>
inline T __shfl_up_sync(unsigned mask, T v, unsigned delta, int width = 32, PLEMU_PLACE) {
  const int src = plemu::lane() - (int)delta, first = plemu::lane() & ~(width - 1);
  return plemu::shuffle(mask, v, src & 31, src >= first, "__shfl_up_sync", file_, line_);
}
template <class T>
inline T __shfl_down_sync(unsigned mask, T v, unsigned delta, int width = 32, PLEMU_PLACE) {
  const int src = plemu::lane() + (int)delta, last = plemu::lane() | (width - 1);
  return plemu::shuffle(mask, v, src & 31, src <= last, "__shfl_down_sync", file_, line_);
}
template <class T>
inline T __shfl_xor_sync(unsigned mask, T v, int bits, int width = 32, PLEMU_PLACE) {
  const int src = plemu::lane() ^ bits, last = plemu::lane() | (width - 1);
  return plemu::shuffle(mask, v, src & 31, src <= last, "__shfl_xor_sync", file_, line_);
}

static inline unsigned __ballot_sync(unsigned mask, int p, PLEMU_PLACE) {
  return plemu::ballot(mask, p != 0, 1, "__ballot_sync", file_, line_);
}
static inline int __any_sync(unsigned mask, int p, PLEMU_PLACE) {
  return plemu::ballot(mask, p != 0, 1, "__any_sync", file_, line_) != 0;
}
static inline int __all_sync(unsigned mask, int p, PLEMU_PLACE) {
  return plemu::ballot(mask, p != 0, 0, "__all_sync", file_, line_) == 0;
}
template <class T> inline unsigned __match_any_sync(unsigned mask, T v, PLEMU_PLACE) {
  const uint64_t bits = plemu::to_bits(v);
  return plemu::ballot(mask, bits, bits, "__match_any_sync", file_, line_);
}

#define PLEMU_REDUCE(T, NAME, JOIN)                                                             \
  static inline T __reduce_##NAME##_sync(unsigned mask, T v, PLEMU_PLACE) {                     \
    return plemu::reduce(                                                                       \
        mask, v, [](T a, T b) -> T { return JOIN; }, "__reduce_" #NAME "_sync", file_, line_);  \
  }
PLEMU_REDUCE(unsigned, add, a + b)
PLEMU_REDUCE(unsigned, min, a < b ? a : b)
PLEMU_REDUCE(unsigned, max, a > b ? a : b)
PLEMU_REDUCE(int, add, (int)((unsigned)a + (unsigned)b))
PLEMU_REDUCE(int, min, a < b ? a : b)
PLEMU_REDUCE(int, max, a > b ? a : b)
PLEMU_REDUCE(unsigned, and, a & b)
PLEMU_REDUCE(unsigned, or, a | b)
PLEMU_REDUCE(unsigned, xor, a ^ b)
#undef PLEMU_REDUCE

#endif
