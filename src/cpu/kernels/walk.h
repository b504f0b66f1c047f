/* SPDX-License-Identifier: MIT
** walk.h -- a piece of a call's iteration space as runs along its last dim, for kernels that read through any strides.
**
**   Walk w;
**   for (walk_begin(&w, c, begin, end); w.run; walk_next(&w)) ... w.run elements from number w.at on, at[k] of argument k
*/
#ifndef PLN_CPU_WALK_H
#define PLN_CPU_WALK_H

#include "kernel.h"

typedef struct Walk {
  const pln_Call *c;
  int64_t at, end, run;            /* number of the first element, end of the piece, length of the run */
  int64_t coord[PLN_MAX_DIMS];
  int64_t offset[PLN_MAX_ARGS];    /* in elements, of each argument that is a tensor */
} Walk;

static inline void walk_run(Walk *w) {
  int last = w->c->ndim - 1;
  w->run = w->c->size[last] - w->coord[last];
  if (w->run > w->end - w->at) w->run = w->end - w->at;
}

static inline void walk_begin(Walk *w, const pln_Call *c, int64_t begin, int64_t end) {
  w->c = c;
  w->at = begin;
  w->end = end;
  int64_t rest = begin;
  for (int d = c->ndim - 1; d >= 0; d--) {
    w->coord[d] = rest % c->size[d];
    rest /= c->size[d];
  }
  for (int k = 0; k < c->nout + c->nin; k++) {
    w->offset[k] = 0;
    if (c->arg[k].data)
      for (int d = 0; d < c->ndim; d++) w->offset[k] += w->coord[d] * c->arg[k].stride[d];
  }
  walk_run(w);
}

/* To the start of the next run. A run that ended before its row did is the last one. */
static inline void walk_next(Walk *w) {
  const pln_Call *c = w->c;
  int d = c->ndim - 1;
  w->at += w->run;
  if (w->at >= w->end) {
    w->run = 0;
    return;
  }
  for (int k = 0; k < c->nout + c->nin; k++)
    if (c->arg[k].data) w->offset[k] -= w->coord[d] * c->arg[k].stride[d];
  w->coord[d] = 0;
  for (d--; d >= 0; d--) {
    bool carry = ++w->coord[d] == c->size[d];
    for (int k = 0; k < c->nout + c->nin; k++)
      if (c->arg[k].data) w->offset[k] += c->arg[k].stride[d] * (carry ? 1 - c->size[d] : 1);
    if (!carry) break;
    w->coord[d] = 0;
  }
  walk_run(w);
}

#endif
