/* SPDX-License-Identifier: MIT
** pool.c -- slabs of 128 objects each; see pool.h for the rules.
*/
#include "pool.h"

#include <string.h>

#include "alloc.h"

#define SLAB_OBJECTS 128u

struct pln_Slabs {
  size_t object;
  char **spare; /* slabs no pool owns */
  uint32_t nspare, capspare;
  uint32_t made;
};

static char *slab_of(char **all, uint32_t i) { return all[i]; }

pln_Slabs *pln_slabs_new(size_t object) {
  pln_Slabs *s = pln_calloc(1, sizeof *s);
  if (s) s->object = (object + 15) / 16 * 16;
  return s;
}

void pln_slabs_free(pln_Slabs *s) {
  if (!s) return;
  for (uint32_t i = 0; i < s->nspare; i++) pln_mfree_aligned(s->spare[i]);
  pln_mfree(s->spare);
  pln_mfree(s);
}

/* Room in `spare` for every slab ever made, so that giving one back cannot fail. */
static char *slab_take(pln_Slabs *s) {
  if (s->nspare) return s->spare[--s->nspare];
  if (s->made == s->capspare) {
    uint32_t cap = s->capspare ? 2 * s->capspare : 16;
    char **spare = pln_realloc(s->spare, cap * sizeof *spare);
    if (!spare) return NULL;
    s->spare = spare;
    s->capspare = cap;
  }
  char *slab = pln_malloc_aligned(SLAB_OBJECTS * s->object);
  if (!slab) return NULL;
  memset(slab, 0, SLAB_OBJECTS * s->object);
  s->made++;
  return slab;
}

void pln_pool_init(pln_Pool *p, pln_Slabs *slabs, uint64_t *serials) {
  memset(p, 0, sizeof *p);
  p->slabs = slabs;
  p->object = slabs->object;
  p->serials = serials;
}

void pln_pool_close(pln_Pool *p) {
  for (uint32_t i = 0; i < p->nslab; i++) {
    char *slab = slab_of(p->slab, i);
    for (uint32_t k = 0; k < SLAB_OBJECTS; k++) {
      pln_Object *o = (pln_Object *)(slab + k * p->object);
      o->serial = 0;
      o->kept = 0;
    }
    p->slabs->spare[p->slabs->nspare++] = slab;
  }
  pln_mfree(p->slab);
  memset(p, 0, sizeof *p);
}

pln_Object *pln_pool_grow(pln_Pool *p) {
  uint32_t next = p->top / SLAB_OBJECTS;
  if (next == p->nslab) {
    if (p->nslab == p->capslab) {
      uint32_t cap = p->capslab ? 2 * p->capslab : 8;
      char **all = pln_realloc(p->slab, cap * sizeof *all);
      if (!all) return NULL;
      p->slab = all;
      p->capslab = cap;
    }
    char *slab = slab_take(p->slabs);
    if (!slab) return NULL;
    for (uint32_t k = 0; k < SLAB_OBJECTS; k++)
      ((pln_Object *)(slab + k * p->object))->slot = next * SLAB_OBJECTS + k;
    p->slab[p->nslab++] = slab;
  }
  p->bump = slab_of(p->slab, next);
  p->bump_end = p->bump + SLAB_OBJECTS * p->object;
  return (pln_Object *)p->bump;
}

void pln_pool_free(pln_Pool *p, pln_Object *o) {
  o->serial = 0;
  o->kept = 0;
  if (o->slot >= p->top) return;
  pln_Object **list = o->slot < p->floor ? &p->below : &p->free;
  o->next = *list;
  *list = o;
}

pln_PoolMark pln_pool_mark(pln_Pool *p) {
  pln_PoolMark mark = {p->top, p->floor, p->free, p->below};
  p->floor = p->top;
  p->free = p->below = NULL;
  return mark;
}

void pln_pool_rewind(pln_Pool *p, const pln_PoolMark *mark) {
  p->top = mark->top;
  p->free = NULL;
  uint32_t slab = mark->top / SLAB_OBJECTS, at = mark->top % SLAB_OBJECTS;
  if (slab < p->nslab) {
    p->bump = slab_of(p->slab, slab) + at * p->object;
    p->bump_end = slab_of(p->slab, slab) + SLAB_OBJECTS * p->object;
  } else {
    p->bump = p->bump_end = NULL;
  }
}

void pln_pool_unmark(pln_Pool *p, const pln_PoolMark *mark) {
  pln_pool_rewind(p, mark);
  pln_Object *o = p->below;
  p->floor = mark->floor;
  p->free = mark->free;
  p->below = mark->below;
  while (o) { /* freed meanwhile: to the list where it belongs now */
    pln_Object *next = o->next;
    pln_pool_free(p, o);
    o = next;
  }
}

pln_Object *pln_pool_at(const pln_Pool *p, uint32_t slot) {
  return (pln_Object *)(slab_of(p->slab, slot / SLAB_OBJECTS) + (slot % SLAB_OBJECTS) * p->object);
}
