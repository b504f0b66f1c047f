/* SPDX-License-Identifier: MIT
 * The emulator's controls, for tests and the engine that is built on it. Plain C.
 * The same settings come from the environment: PLEMU_MODE=lazy and so on (docs/cuda.md). */
#ifndef PLEMU_CONTROL_H
#define PLEMU_CONTROL_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Sets "mode" (async, lazy, sync), "seed", "jitter_us", "device" (h200, gb10), "memory" (bytes,
 * with K, M or G), "guard", "poison" or "strict" (0, 1), after waiting for all queued work.
 * 0, or -1 when name or value is unknown or guard mode is switched while memory is allocated. */
int plemu_configure(const char *name, const char *value);

/* Lets the nth call from now of a runtime function (1 is the next) return the error instead of
 * doing anything; with every != 0 all later calls too. A kernel launch is "cudaLaunchKernel".
 * "kernel" is a kernel when it runs: it then does nothing and the device is lost, so that every
 * runtime function returns the error until plemu_clear_faults(). */
void plemu_fail_call(const char *function, long nth, int every, int error);
void plemu_clear_faults(void);

/* Calls of a runtime function so far. */
long plemu_calls(const char *function);

/* Executed launches of a kernel by its name, all instances of a template together. */
long plemu_kernel_runs(const char *name);
void plemu_each_kernel(void (*visit)(const char *name, long runs, void *user), void *user);

/* For libraries that stand in for NVIDIA's: runs fn(data) on the stream, in its order, as if it were a kernel; in a capture it becomes a
 * node. The first npointers of `pointers` must not be addresses of the host. release(data) follows the last run; also after an
 * error, which is a cudaError_t. Such a library exports plemu_library, which gets this function before any other call. */
typedef int (*plemu_Submit)(void *stream, const char *name, void (*fn)(void *data), void *data, void (*release)(void *data),
                            const void *const *pointers, unsigned npointers);
typedef void (*plemu_Library)(plemu_Submit submit);
int plemu_submit(void *stream, const char *name, void (*fn)(void *data), void *data, void (*release)(void *data),
                 const void *const *pointers, unsigned npointers);

/* Operations that were submitted and have not run. */
size_t plemu_pending(void);

/* Device allocations that are live, and their bytes. */
size_t plemu_live_allocations(size_t *bytes);

#ifdef __cplusplus
}
#endif
#endif
