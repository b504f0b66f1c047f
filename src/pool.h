/* SPDX-License-Identifier: MIT
** pool.h -- type-stable objects: a slot of a pool holds objects of one type for as long as the runtime
** lives, so a stale pointer to one may always be read. What it then finds is told by `serial`, a number
** that no two objects of a runtime ever share: an object is the one that was meant iff serials agree.
**
** Objects are handed out by bumping an index; `pln_pool_rewind` takes back in O(1) all that were made after
** a mark, except those with `kept` set (survivors of a reset), which later bumps skip. Objects freed one
** by one go to a list that is used first. Marks nest: a mark sets the list aside until it is dropped, and what was
** made before the mark and is freed after it waits on a list of its own, so that nothing made after a mark
** ever sits in a slot below it. A kept object beyond `top` never goes to a list: the bump will come to it.
*/
#ifndef PLN_POOL_H
#define PLN_POOL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "status.h"

typedef struct pln_Object { /* every pooled struct begins with this */
  uint64_t serial;          /* 0 while free */
  struct pln_Object *next;  /* of the free list */
  uint32_t kept;            /* 1: survives a rewind */
  uint32_t slot;            /* index in its pool, for marks */
} pln_Object;

typedef struct pln_Slabs pln_Slabs; /* the runtime's store of slabs, which outlives pools */

/* `object` bytes per object; slabs never go back to the system before pln_slabs_free. */
pln_Slabs *pln_slabs_new(size_t object);
void pln_slabs_free(pln_Slabs *s);

typedef struct pln_Pool {
  pln_Slabs *slabs;
  size_t object;
  char **slab;        /* slabs owned now */
  uint32_t nslab, capslab;
  uint32_t top;       /* slots [0, top) were handed out since the pool was made or rewound */
  char *bump, *bump_end; /* next slot and end of its slab */
  uint32_t floor;     /* top at the last mark */
  pln_Object *free;   /* freed slots from `floor` on, */
  pln_Object *below;  /* and those below it */
  uint64_t *serials;  /* the runtime's counter */
} pln_Pool;

typedef struct pln_PoolMark {
  uint32_t top, floor;
  pln_Object *free, *below;
} pln_PoolMark;

void pln_pool_init(pln_Pool *p, pln_Slabs *slabs, uint64_t *serials);
/* Gives all slabs back to the store; every object's serial becomes 0. */
void pln_pool_close(pln_Pool *p);
/* The slow path of pln_pool_new: next slab, or a new one; NULL when out of memory. */
pln_Object *pln_pool_grow(pln_Pool *p);
void pln_pool_free(pln_Pool *p, pln_Object *o);
pln_PoolMark pln_pool_mark(pln_Pool *p);
/* Back to the last mark, which stays. */
void pln_pool_rewind(pln_Pool *p, const pln_PoolMark *mark);
/* Back to the last mark, and to the time before it. */
void pln_pool_unmark(pln_Pool *p, const pln_PoolMark *mark);
/* The object in a slot below `top`. */
pln_Object *pln_pool_at(const pln_Pool *p, uint32_t slot);

/* A new object with a fresh serial and kept = 0; the rest is whatever it was. NULL when out of memory. */
static inline void *pln_pool_new(pln_Pool *p) {
  pln_Object *o = p->free;
  if (o) {
    p->free = o->next;
  } else {
    for (;;) {
      if (PLN_UNLIKELY(p->bump == p->bump_end)) {
        if (!pln_pool_grow(p)) return NULL;
      }
      o = (pln_Object *)p->bump;
      p->bump += p->object;
      p->top++;
      if (PLN_LIKELY(!o->kept)) break;
    }
  }
  o->serial = ++*p->serials;
  o->next = NULL;
  return o;
}

#endif
