/* SPDX-License-Identifier: MIT
** parallel.c -- chunked loops on the engine's threads; see parallel.h.
*/
#include "parallel.h"

#include <stdatomic.h>

#include "../fault.h"
#include "../interrupt.h"
#include "threads.h"

pln_Threads *pln_cpu_threads(const pln_Call *c); /* device.c */

typedef struct Loop {
  void (*fn)(void *, int64_t, int64_t);
  void *context;
  int64_t n, grain;
  atomic_int stopped;
} Loop;

static void chunk(void *p, int64_t task) {
  Loop *l = p;
  if (pln_interrupted) atomic_store_explicit(&l->stopped, 1, memory_order_relaxed);
  if (atomic_load_explicit(&l->stopped, memory_order_relaxed)) return;
  int64_t begin = task * l->grain;
  int64_t end = begin + l->grain < l->n ? begin + l->grain : l->n;
  l->fn(l->context, begin, end);
}

pln_Status pln_parallel_for(const pln_Call *c, int64_t n, int64_t grain, void (*fn)(void *, int64_t, int64_t), void *context) {
  if (PLN_FAULT(tail_unwritten) && n > 1) n--;
  if (n <= 0) return PLN_OK;
  if (n <= grain) {
    fn(context, 0, n);
    return PLN_OK;
  }
  Loop l = {fn, context, n, grain, 0};
  pln_threads_run(pln_cpu_threads(c), (n + grain - 1) / grain, chunk, &l);
  return atomic_load(&l.stopped) ? pln_fail(PLN_EINTERRUPT, "interrupted") : PLN_OK;
}
