/* SPDX-License-Identifier: MIT
** small.h -- a call record of a capture made ready to run: what a kernel finds out from its record at every call (which loop, which
** strides, whether threads pay) is found out once.
**
** A kernel that knows a shorter way for a record fills a pln_Small; every other record runs as its kernel. The way is the same loop
** over the same elements in the same order, so bits cannot differ. Only what runs on one thread is small; of an elementwise op of one row
** the vector function is told whatever its size, since such ones in a row may become a chain (graph.c).
*/
#ifndef PLN_CPU_SMALL_H
#define PLN_CPU_SMALL_H

#include "../call.h"
#include "kernels/gemm_kernel.h"

#define PLN_SMALL_DIMS 3 /* outside the rows of an elementwise op */

struct pln_Small;
typedef pln_Status (*pln_SmallFn)(struct pln_Small *s);

typedef struct pln_Small {
  pln_SmallFn run;
  pln_Call *call;
  const uint64_t *calls; /* launched before this step, */
  uint64_t index;        /* and the record's place in the step, from 1: for faults */
  uint32_t count;        /* records that `run` sees to: this one and what follows it */
  uint8_t row;           /* `each` tells of one row and finds no fault */
  union {
    struct {      /* rows of elements side by side */
      void (*vec)(char *const *ptr, const int64_t *step, int64_t n, const pln_Call *c, int64_t at);
      char *ptr[4];
      int64_t step[4], n;
      int operands, outer;               /* results and operands; dims outside the rows, */
      int64_t size[PLN_SMALL_DIMS];      /* innermost first, */
      int64_t next[PLN_SMALL_DIMS][4];   /* and the bytes by which one step of each moves on */
      uint64_t number[4];                /* operands that are numbers, as elements */
    } each;
    struct {      /* one product */
      pln_GemmBlockF32 block_f32;
      pln_GemmBlockF64 block_f64;
      int part;
      pln_Gemm g;
      const void *a, *b;
      void *c;
    } gemm;
    struct {      /* the one place that an index names */
      size_t bytes;
      int64_t step;           /* bytes between places, */
      uint64_t places;        /* and how many there are */
    } pick;
    struct {      /* lanes of n elements side by side, by result and operand */
      int64_t n, lanes, next[2];
    } lanes;
  };
} pln_Small;

/* Before anything that may find a fault. */
static inline void pln_small_number(pln_Small *s) { s->call->number = *s->calls + s->index; }

/* Runs the record as it is. */
static inline pln_Status pln_small_call(pln_Small *s) {
  pln_small_number(s);
  return s->call->kernel(s->call);
}

/* Fills *s, which is filled in but for the union, for a record that has a shorter way; run stays as it is for one that has none. */
typedef void (*pln_SmallMaker)(pln_Small *s);

#endif
