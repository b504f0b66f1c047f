/* SPDX-License-Identifier: MIT
 * The device side of CUDA C++ for host compilers: qualifiers, built-in variables, barriers and
 * kernel launches. Include it through cuda_port.h. Types and prototypes are NVIDIA's own.
 * Invariant: a kernel is ordinary host code that reads its coordinates from plemu_t, a thread-local
 * struct with initial-exec access. A dlopen'ed module has few bytes of such storage for all that
 * it declares thread-local, which is why shared memory is never `static thread_local`. */
#ifndef PLEMU_DEVICE_H
#define PLEMU_DEVICE_H

#if defined(__CUDACC__)
#error "device.h is for host compilers; nvcc includes cuda_runtime.h through cuda_port.h"
#endif

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <tuple>
#include <type_traits>
#include <utility>

/* NVIDIA's headers honour qualifiers that are defined before them in a host compile. A header of
 * the runtime may have come first and defined them as nvcc's attributes. */
#undef __global__
#undef __device__
#undef __host__
#undef __constant__
#undef __managed__
#undef __shared__
#undef __grid_constant__
#undef __launch_bounds__
#define __global__
#define __device__
#define __host__
#define __constant__
#define __managed__
#define __shared__
#define __grid_constant__
#define __launch_bounds__(...)
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>
#undef __shared__
#define __shared__ static_assert(false, "declare shared memory with PLN_SHARED or PLN_DYN_SHARED");

#if defined(__SANITIZE_THREAD__)
#define PLEMU_TSAN 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define PLEMU_TSAN 1
#endif
#endif

/* Writes to plemu_t are the emulator's, not the kernel's: ThreadSanitizer must not see them. */
#if defined(PLEMU_TSAN)
#define PLEMU_UNSEEN __attribute__((no_sanitize("thread"), noinline))
#define PLEMU_INLINE __attribute__((no_sanitize("thread")))
#else
#define PLEMU_UNSEEN
#define PLEMU_INLINE inline __attribute__((always_inline))
#endif

struct plemu_Thread {
  uint3 thread, block;           /* threadIdx, blockIdx */
  uint3 block_dim, grid_dim;     /* uint3: dim3 has a constructor, and this must be constant */
  unsigned linear;               /* number of the CUDA thread in its block */
  unsigned position;             /* its place in the order in which the block starts threads */
  unsigned limit;                /* the thread loop ends at this place */
  int host_function;             /* in a function given to cudaLaunchHostFunc */
  const unsigned *order;         /* the start order, or null for 0, 1, 2... */
  unsigned char *dynamic;        /* dynamic shared memory of the block */
  void *executing;               /* plemu::Block that runs on this host thread */
  int last_error, capture_mode;  /* of the host thread */
  int quiet, unused;             /* depth of plemu::Quiet */
};
extern __thread plemu_Thread plemu_t __attribute__((tls_model("initial-exec")));

#define threadIdx (plemu_t.thread)
#define blockIdx (plemu_t.block)
#define blockDim (plemu_t.block_dim)
#define gridDim (plemu_t.grid_dim)
static constexpr int warpSize = 32;

extern "C" {
typedef void (*plemu_Run)(const void *arguments, unsigned position);
/* fn runs once for all lanes of a collective operation; lanes that take no part have null. */
typedef void (*plemu_Collective)(void **lanes, unsigned present);

void plemu_barrier(const char *file, int line);
int plemu_barrier_vote(int op, int predicate, const char *file, int line);
/* Meets the lanes in mask; returns the values that the 32 lanes brought, valid until the caller's
 * next meeting. ordered: the meeting orders memory too, as __syncwarp does and shuffles do not. */
const uint64_t *plemu_warp_exchange(unsigned mask, uint64_t value, int ordered, unsigned *present,
                                    const char *what, const char *file, int line);
void plemu_warp_collect(unsigned mask, void *mine, plemu_Collective fn, const char *what,
                        const char *file, int line);
void plemu_thread_yield(void);
void plemu_fence(void);
long long plemu_clock(void);
void *plemu_shared_object(const void *site, size_t bytes, size_t align);
void plemu_die(const char *format, ...) __attribute__((noreturn, format(printf, 1, 2)));
/* pretty is the compiler's name of the instance; pointers are those among the arguments. */
void plemu_launch(const char *pretty, const void *kernel, plemu_Run run, const void *arguments,
                  size_t bytes, const void *const *pointers, unsigned npointers, dim3 grid,
                  dim3 block, size_t shared, cudaStream_t stream);
}

/* Where a barrier or warp operation stands, for the checks and their messages. */
#define PLEMU_PLACE const char *file_ = __builtin_FILE(), int line_ = __builtin_LINE()

static inline void __syncthreads(PLEMU_PLACE) { plemu_barrier(file_, line_); }
static inline int __syncthreads_count(int p, PLEMU_PLACE) {
  return plemu_barrier_vote(0, p, file_, line_);
}
static inline int __syncthreads_and(int p, PLEMU_PLACE) {
  return plemu_barrier_vote(1, p, file_, line_);
}
static inline int __syncthreads_or(int p, PLEMU_PLACE) {
  return plemu_barrier_vote(2, p, file_, line_);
}
static inline void __threadfence() { plemu_fence(); }
static inline void __threadfence_block() { plemu_fence(); }
static inline void __threadfence_system() { plemu_fence(); }
static inline void __nanosleep(unsigned) { plemu_thread_yield(); }
static inline void __trap() { plemu_die("__trap() in a kernel"); }
static inline long long clock64() { return plemu_clock(); }

#include "device_warp.h"

#include "device_atomic.h"

#include "device_math.h"

namespace plemu {

/* A grid or block size. nvcc would cut a size beyond 32 bits and launch too few blocks. */
inline dim3 extent(dim3 d) { return d; }
template <class T, class = std::enable_if_t<std::is_integral<T>::value>> inline dim3 extent(T n) {
  if (n < T(0) || (uint64_t)n > 0xffffffffu) plemu_die("launch of %lld blocks", (long long)n);
  return dim3((unsigned)n);
}

template <auto Kernel> struct Instance;
template <class... P, void (*Kernel)(P...)> struct Instance<Kernel> {
  using Arguments = std::tuple<std::decay_t<P>...>;
  static_assert((std::is_trivially_destructible<std::decay_t<P>>::value && ...),
                "kernel parameters are copied as bytes");
  static_assert(sizeof(Arguments) <= 32764, "kernel parameters are limited to 32764 bytes");

  static const char *name() { return __PRETTY_FUNCTION__; }

  template <size_t... I>
  static PLEMU_INLINE void call(const Arguments &a, std::index_sequence<I...>) {
    (void)a;
    Kernel(std::get<I>(a)...);
  }

  /* Runs the CUDA threads at position, position + 1, ... up to the limit as plain calls. A thread
   * that must wait suspends this whole frame, which stands on a fiber; the block then lowers the
   * limit and gives the remaining threads to another fiber. So a kernel that never waits costs a
   * loop, and a compiler may vectorize it. */
  PLEMU_UNSEEN static void run(const void *arguments, unsigned i) {
    const Arguments a = *static_cast<const Arguments *>(arguments);
    constexpr auto all = std::index_sequence_for<P...>{};
    const unsigned bx = plemu_t.block_dim.x, by = plemu_t.block_dim.y;
    if (plemu_t.order) {
      do {
        const unsigned l = plemu_t.order[i];
        plemu_t.position = i;
        plemu_t.linear = l;
        plemu_t.thread = uint3{l % bx, l / bx % by, l / (bx * by)};
        call(a, all);
      } while (++i < plemu_t.limit);
    } else if (by == 1 && plemu_t.block_dim.z == 1) {
      plemu_t.thread.y = plemu_t.thread.z = 0;
      do {
        plemu_t.position = plemu_t.linear = plemu_t.thread.x = i;
        call(a, all);
      } while (++i < plemu_t.limit);
    } else {
      do {
        plemu_t.position = plemu_t.linear = i;
        plemu_t.thread = uint3{i % bx, i / bx % by, i / (bx * by)};
        call(a, all);
      } while (++i < plemu_t.limit);
    }
  }
};

template <class T> inline const void *as_pointer(const T &v) {
  if constexpr (std::is_pointer<T>::value)
    return (const void *)v;
  else
    return nullptr;
}

template <auto Kernel> struct Launcher {
  dim3 grid, block;
  size_t shared;
  cudaStream_t stream;

  template <class... A> void operator()(A &&...given) const {
    using I = Instance<Kernel>;
    const typename I::Arguments a(std::forward<A>(given)...);
    std::apply(
        [&](const auto &...v) {
          const void *const pointers[] = {as_pointer(v)..., nullptr};
          plemu_launch(I::name(), (const void *)Kernel, &I::run, &a, sizeof a, pointers,
                       sizeof...(v), grid, block, shared, stream);
        },
        a);
  }
};

}  // namespace plemu

/* These two overloads exist in NVIDIA's headers under nvcc only. */
template <class R, class... P>
inline cudaError_t cudaFuncSetAttribute(R (*kernel)(P...), cudaFuncAttribute attribute, int value) {
  return cudaFuncSetAttribute((const void *)kernel, attribute, value);
}
template <class T>
inline cudaError_t cudaMemcpyToSymbol(T &symbol, const void *source, size_t bytes,
                                      size_t offset = 0,
                                      cudaMemcpyKind kind = cudaMemcpyHostToDevice) {
  return cudaMemcpyToSymbol((const void *)&symbol, source, bytes, offset, kind);
}

#endif
