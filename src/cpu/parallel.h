/* SPDX-License-Identifier: MIT
** parallel.h -- how kernels use the engine's threads. The cut into tasks is made by shape alone, so results never depend
** on how many threads there are (C10).
*/
#ifndef PLN_CPU_PARALLEL_H
#define PLN_CPU_PARALLEL_H

#include <stdint.h>

#include "../call.h"
#include "threads.h"

/* fn(context, begin, end) over [0, n) in chunks of `grain` (the last one shorter); inline when there is one chunk or one thread. Between chunks the
** interrupt flag is polled: a set flag ends the loop early with PLN_EINTERRUPT. */
pln_Status pln_parallel_for(const pln_Call *c, int64_t n, int64_t grain, void (*fn)(void *context, int64_t begin, int64_t end), void *context);

/* The threads of the call's engine, for kernels that cut their work themselves. */
pln_Threads *pln_cpu_threads(const pln_Call *c);

/* Elements per chunk for work of about one memory access per element. */
#define PLN_GRAIN 32768

#endif
