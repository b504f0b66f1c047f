/* SPDX-License-Identifier: MIT
** arena_bins.h -- the arena's lists and its bins of free blocks; for arena.c and arena_check.c.
** A bin holds free blocks of one size class: a power of two and the next three bits of the size. Two levels of bits say which
** bins are in use, so that a block that fits is found without a walk.
*/
#ifndef PLN_ARENA_BINS_H
#define PLN_ARENA_BINS_H

#include "arena.h"

#define BIN_TRIES 16 /* blocks of a request's own size class that are looked at; those of higher classes fit anyway */

static inline char *block_end(const pln_Storage *s) { return s->data + s->bytes; }

static inline bool in_arena(const pln_Storage *s) { return s->bytes && !s->overflow; }

static inline bool is_gap(const pln_Storage *s) { return s && s->state == PLN_STORAGE_FREE; }

/* --- lists -------------------------------------------------------------------------------------- */

static inline void list_add(pln_Storage **head, pln_Storage *s) {
  s->prev = NULL;
  s->next = *head;
  if (*head) (*head)->prev = s;
  *head = s;
}

static inline void list_remove(pln_Storage **head, pln_Storage *s) {
  *(s->prev ? &s->prev->next : head) = s->next;
  if (s->next) s->next->prev = s->prev;
}

static inline void held_add(pln_ArenaLevel *l, pln_Storage *s) {
  s->pin_prev = NULL;
  s->pin_next = l->held;
  if (l->held) l->held->pin_prev = s;
  l->held = s;
}

static inline void held_remove(pln_ArenaLevel *l, pln_Storage *s) {
  *(s->pin_prev ? &s->pin_prev->pin_next : &l->held) = s->pin_next;
  if (s->pin_next) s->pin_next->pin_prev = s->pin_prev;
}

static inline pln_Storage *merge(pln_Storage *x, pln_Storage *y) {
  pln_Storage *head, **at = &head;
  while (x && y) {
    pln_Storage **low = (uintptr_t)x->data <= (uintptr_t)y->data ? &x : &y;
    *at = *low;
    at = &(*low)->pin_next;
    *low = *at;
  }
  *at = x ? x : y;
  return head;
}

/* Merge sort by address; part[i] is sorted and has 2^i blocks. */
static inline pln_Storage *sort_held(pln_Storage *s) {
  pln_Storage *part[40] = {NULL}, *all = NULL;
  while (s) {
    pln_Storage *run = s;
    s = s->pin_next;
    run->pin_next = NULL;
    int i = 0;
    for (; part[i]; i++) {
      run = merge(part[i], run);
      part[i] = NULL;
    }
    part[i] = run;
  }
  for (int i = 0; i < 40; i++) all = merge(part[i], all);
  return all;
}

/* --- bins --------------------------------------------------------------------------------------- */

/* Power of two and the next three bits. */
static inline int bin_of(size_t bytes) {
  int power = 63 - __builtin_clzll(bytes);
  return power * 8 + (int)(bytes >> (power - 3) & 7);
}

static inline bool bin_used(const pln_ArenaLevel *l, int bin) {
  return (l->bits >> (bin >> 3) & 1) && (l->subbits[bin >> 3] >> (bin & 7) & 1);
}

static inline void bin_add(pln_ArenaLevel *l, pln_Storage *s) {
  int bin = bin_of(s->bytes), power = bin >> 3;
  if (!bin_used(l, bin)) l->bin[bin] = NULL;
  if (!(l->bits >> power & 1)) l->subbits[power] = 0;
  l->bits |= 1ull << power;
  l->subbits[power] |= (uint8_t)(1u << (bin & 7));
  list_add(&l->bin[bin], s);
  l->binned += s->bytes;
}

static inline void bin_remove(pln_ArenaLevel *l, pln_Storage *s) {
  int bin = bin_of(s->bytes), power = bin >> 3;
  list_remove(&l->bin[bin], s);
  if (!l->bin[bin]) {
    l->subbits[power] &= (uint8_t)~(1u << (bin & 7));
    if (!l->subbits[power]) l->bits &= ~(1ull << power);
  }
  l->binned -= s->bytes;
}

static inline pln_Storage *bin_find(const pln_ArenaLevel *l, size_t need) {
  int bin = bin_of(need), power = bin >> 3;
  if (bin_used(l, bin)) {
    pln_Storage *s = l->bin[bin];
    for (int i = 0; s && i < BIN_TRIES; i++, s = s->next)
      if (s->bytes >= need) return s;
  }
  unsigned classes = l->bits >> power & 1 ? l->subbits[power] & (0xfeu << (bin & 7)) : 0;
  if (!classes) {
    uint64_t powers = l->bits & (power == 63 ? 0 : ~0ull << (power + 1));
    if (!powers) return NULL;
    power = __builtin_ctzll(powers);
    classes = l->subbits[power];
  }
  return l->bin[power * 8 + __builtin_ctz(classes)];
}

#endif
