/* SPDX-License-Identifier: MIT
 * Device and pinned memory: one table of allocations against a budget.
 * Every allocation is a heap block of its own, so AddressSanitizer sees its ends and its death;
 * in guard mode device memory lies in a region that only stream operations may touch. */
#ifndef PLEMU_MEMORY_H
#define PLEMU_MEMORY_H

#include "settings.h"

namespace plemu {

enum Kind { kUnknown, kDevice, kManaged, kPinned, kRegistered };

struct Pool {
  uint64_t threshold = 0;  /* bytes kept at a synchronization */
  size_t used = 0, used_high = 0, reserved = 0, reserved_high = 0;
  int follow_events = 1, opportunistic = 1, internal = 1;
};

Pool &default_pool();
/* Gives back what idle pools hold beyond their thresholds; called at every synchronization. */
void trim_pools();

/* Null when the budget is exhausted. pool is null for memory outside stream order. */
void *allocate(size_t bytes, Kind kind, Pool *pool, const char *function);
/* At once. False when p is no allocation of this kind. */
bool release(void *p, Kind kind);
/* For cudaFreeAsync: takes p as freed from now on; false when it is not live pool memory. */
bool begin_release(void *p, size_t *bytes);
/* The graph's own memory may be used before and after a replay frees it. */
void set_graph_memory(void *p);
bool is_graph_memory(const void *p);

Kind kind_of(const void *p);
/* Both end the process with a message when the pointer is no live memory of the right extent. */
void check_argument(const void *p, const char *kernel, unsigned index);
void check_range(const void *p, size_t bytes, const char *what);

/* guard.cpp */
void *guard_allocate(size_t bytes, unsigned id);
void guard_release(void *p);
/* Round every stream operation; they nest. */
void guard_enter();
void guard_leave();

}  // namespace plemu

#endif
