/* SPDX-License-Identifier: MIT
** threads.h - a small pool of threads that shares out numbered tasks.
**
** A caller cuts its work into tasks by shape alone and lets the pool run them: which thread gets
** which task is left to chance, so no result may depend on it.  Workers start at the first run
** that can use them, sleep between runs, have every signal blocked and never call back.
*/
#ifndef PLN_CPU_THREADS_H
#define PLN_CPU_THREADS_H

#include <stdbool.h>
#include <stdint.h>

typedef struct pln_Threads pln_Threads;

/* A pool of n threads, the caller of pln_threads_run being one of them; n <= 0 asks for one per
** processor that this process may use.  NULL when memory is out. */
pln_Threads *pln_threads_new(int n);

/* Ends the workers.  No run may be in progress; NULL is fine. */
void pln_threads_free(pln_Threads *pool);

/* The number of threads asked for, at least 1; 1 for a NULL pool. */
int pln_threads_count(const pln_Threads *pool);

/* Calls fn(ctx, task) once for each task in 0 .. ntasks-1 and returns when all are done.  With a
** NULL pool, one thread, one task, or a pool that is busy (a second caller, or a task that itself
** runs tasks), everything happens on the calling thread, in order.  A pool may be used in the child
** of a fork: it starts new workers there. */
void pln_threads_run(pln_Threads *pool, int64_t ntasks, void (*fn)(void *ctx, int64_t task),
                     void *ctx);

/* The same for work that may be broken off: between tasks the interrupt flag is polled, a set flag skips
** the tasks that are left, and pln_threads_stopped tells so, once. Long tasks may poll within: true
** means that the rest is not wanted. A NULL pool polls nothing. */
void pln_threads_run_polled(pln_Threads *pool, int64_t ntasks, void (*fn)(void *ctx, int64_t task),
                            void *ctx);
bool pln_threads_poll(pln_Threads *pool);
bool pln_threads_stopped(pln_Threads *pool);

#endif
