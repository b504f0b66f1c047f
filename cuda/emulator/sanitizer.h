/* SPDX-License-Identifier: MIT
 * The sanitizers' interfaces, found at run time: one set of emulator objects, never instrumented,
 * serves plain, AddressSanitizer and ThreadSanitizer programs.
 * Invariant for ThreadSanitizer: the emulator's own locks and buffers must neither order the
 * user's code nor be taken for it. So all of it runs inside a Quiet, and the edges that CUDA
 * promises (submission, stream order, events, barriers, the ends of a block) are stated by hand
 * with hb_release and hb_acquire. */
#ifndef PLEMU_SANITIZER_H
#define PLEMU_SANITIZER_H

#include <stddef.h>

#include "device.h"

extern "C" {
#define PLEMU_WEAK __attribute__((weak))
PLEMU_WEAK void __sanitizer_start_switch_fiber(void **fake, const void *bottom, size_t size);
PLEMU_WEAK void __sanitizer_finish_switch_fiber(void *fake, const void **bottom, size_t *size);
PLEMU_WEAK void __asan_poison_memory_region(const volatile void *p, size_t bytes);
PLEMU_WEAK void __asan_unpoison_memory_region(const volatile void *p, size_t bytes);
PLEMU_WEAK void *__tsan_create_fiber(unsigned flags);
PLEMU_WEAK void __tsan_destroy_fiber(void *fiber);
PLEMU_WEAK void *__tsan_get_current_fiber(void);
PLEMU_WEAK void __tsan_switch_to_fiber(void *fiber, unsigned flags);
PLEMU_WEAK void __tsan_set_fiber_name(void *fiber, const char *name);
PLEMU_WEAK void __tsan_acquire(void *p);
PLEMU_WEAK void __tsan_release(void *p);
PLEMU_WEAK void AnnotateIgnoreSyncBegin(const char *file, int line);
PLEMU_WEAK void AnnotateIgnoreSyncEnd(const char *file, int line);
PLEMU_WEAK void AnnotateIgnoreReadsBegin(const char *file, int line);
PLEMU_WEAK void AnnotateIgnoreReadsEnd(const char *file, int line);
PLEMU_WEAK void AnnotateIgnoreWritesBegin(const char *file, int line);
PLEMU_WEAK void AnnotateIgnoreWritesEnd(const char *file, int line);
#undef PLEMU_WEAK
}

namespace plemu {

enum { kSwitchUnordered = 1 };  /* __tsan_switch_to_fiber: the switch orders nothing */

inline bool asan() { return __asan_poison_memory_region != nullptr; }
inline bool tsan() { return __builtin_expect(__tsan_create_fiber != nullptr, 0); }

inline void forbid(const void *p, size_t bytes) {
  if (asan()) __asan_poison_memory_region(p, bytes);
}
inline void permit(const void *p, size_t bytes) {
  if (asan()) __asan_unpoison_memory_region(p, bytes);
}

inline void ignore_begin() {
  AnnotateIgnoreSyncBegin(__FILE__, __LINE__);
  AnnotateIgnoreReadsBegin(__FILE__, __LINE__);
  AnnotateIgnoreWritesBegin(__FILE__, __LINE__);
}
inline void ignore_end() {
  AnnotateIgnoreSyncEnd(__FILE__, __LINE__);
  AnnotateIgnoreReadsEnd(__FILE__, __LINE__);
  AnnotateIgnoreWritesEnd(__FILE__, __LINE__);
}

/* Hides what the emulator does from ThreadSanitizer; nests. */
struct Quiet {
  Quiet() {
    if (tsan() && plemu_t.quiet++ == 0) ignore_begin();
  }
  ~Quiet() {
    if (tsan() && --plemu_t.quiet == 0) ignore_end();
  }
  Quiet(const Quiet &) = delete;
};

/* Happens-before edges through the address p, in and out of a Quiet. */
inline void hb_release(void *p) {
  if (!tsan()) return;
  if (plemu_t.quiet) ignore_end();
  __tsan_release(p);
  if (plemu_t.quiet) ignore_begin();
}
inline void hb_acquire(void *p) {
  if (!tsan()) return;
  if (plemu_t.quiet) ignore_end();
  __tsan_acquire(p);
  if (plemu_t.quiet) ignore_begin();
}

/* Leaves the Quiet of this host thread for code of the user; as_fiber, where not null, is the
 * ThreadSanitizer thread that the code shall count as. */
struct Loud {
  int quiet;
  void *home;
  explicit Loud(void *as_fiber) : quiet(plemu_t.quiet), home(nullptr) {
    if (!tsan()) return;
    if (as_fiber) {
      home = __tsan_get_current_fiber();
      __tsan_switch_to_fiber(as_fiber, kSwitchUnordered);
    } else if (quiet) {
      ignore_end();
    }
    plemu_t.quiet = 0;
  }
  ~Loud() {
    if (!tsan()) return;
    plemu_t.quiet = quiet;
    if (home)
      __tsan_switch_to_fiber(home, kSwitchUnordered);
    else if (quiet)
      ignore_begin();
  }
  Loud(const Loud &) = delete;
};

}  // namespace plemu

#endif
