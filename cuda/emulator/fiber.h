/* SPDX-License-Identifier: MIT
 * Fibers: stacks on which CUDA threads wait. Switching saves only what a call must preserve.
 * Invariant: a fiber belongs to one Block and is resumed by one host thread at a time; between
 * kernels that may be another host thread, so code that stays on a fiber across a switch must not
 * keep the address of thread-local storage. */
#ifndef PLEMU_FIBER_H
#define PLEMU_FIBER_H

#include <stddef.h>

#include "device.h"
#if defined(PLEMU_UCONTEXT)
#include <ucontext.h>
#endif

namespace plemu {

struct Fiber {
#if defined(PLEMU_UCONTEXT)
  ucontext_t context;
#endif
  void *sp = nullptr;                  /* saved stack pointer while it does not run */
  char *stack = nullptr;               /* mapped stack; null for a host thread's own */
  size_t size = 0;
  Fiber *resumed_by = nullptr;
  const void *asan_bottom = nullptr;   /* stack bounds as AddressSanitizer knows them */
  size_t asan_size = 0;
  void *asan_fake = nullptr;
  void *tsan = nullptr;                /* the ThreadSanitizer thread of the CUDA thread on it */

  unsigned start = 0;                  /* first place in the start order that it runs */
  bool waited = false;                 /* a thread has waited, so it runs that one thread only */
  unsigned linear = 0;                 /* the waiting thread's coordinates... */
  uint3 thread{};
  const char *what = nullptr, *file = nullptr;  /* ...and where it waits */
  int line = 0;
  int vote = 0;                        /* result of __syncthreads_and and its kind */
};

/* number spreads the stack tops over the cache: page-aligned ones would share a few sets. */
Fiber *fiber_new(void (*entry)(), unsigned number);
void fiber_delete(Fiber *f);
void fiber_switch(Fiber *from, Fiber *to);
/* The first thing to call on a new fiber. */
void fiber_entered(Fiber *self);

}  // namespace plemu

#endif
