/* SPDX-License-Identifier: MIT
** arena.c -- see arena.h for the rules.
**
** The blocks of a level tile its range without a hole: live ones, free ones in bins (never two side by side), last the
** level's `top`. Everything that describes a block of a level sits in a pool slot from the level's mark on, or is `kept`; a
** kept one is a survivor and on the level's held list, so that a reset finds it.
*/
#include "arena.h"

#include <string.h>

#include "alloc.h"
#include "arena_bins.h"
#include "fault.h"
#include "tensor.h"

static size_t offset_of(const pln_Arena *a, const char *p) { return (size_t)(p - a->base); }

/* The top was the highest address handed out so far; called before it goes down and whenever `touched` counts. */
static void note_top(pln_Arena *a, pln_ArenaLevel *l) {
  size_t offset = offset_of(a, l->top.data);
  if (offset > l->touched) l->touched = offset;
  if (offset > a->stats.high_water) a->stats.high_water = offset;
}

/* --- poison ------------------------------------------------------------------------------------- */

static void fill(pln_Arena *a, char *from, char *to) {
  if (to <= from) return;
  a->device.fill(a->device.context, from, (size_t)(to - from), a->poison.word);
  a->stats.poisoned_bytes += (size_t)(to - from);
}

/* A red zone begins right behind the asked bytes: what rounding adds belongs to it. It holds the current poison word. */
static char *zone_of(const pln_Storage *s) { return s->data + ((s->asked + 1) & ~(size_t)1); }

static void poison_new(pln_Arena *a, pln_Storage *s) {
  s->guarded = a->poison.redzone != 0;
  if (a->poison.on_alloc)
    fill(a, s->data, block_end(s));
  else if (s->guarded)
    fill(a, zone_of(s), block_end(s));
}

static void check_guard(pln_Arena *a, const pln_Storage *s) {
  if (!a->poison.redzone || !s->guarded) return;
  char *zone = zone_of(s);
  a->device.guard(a->device.context, zone, (size_t)(block_end(s) - zone), a->poison.word, s->place);
}

static void check_guards(pln_Arena *a, const pln_ArenaLevel *l) {
  for (const pln_Storage *s = l->first; s != &l->top; s = s->after)
    check_guard(a, s);
  for (const pln_Storage *s = l->overflow; s; s = s->next) check_guard(a, s);
}

static void renew_guards(pln_Arena *a, const pln_ArenaLevel *l) {
  for (const pln_Storage *s = l->first; s != &l->top; s = s->after)
    if (s->guarded) fill(a, zone_of(s), block_end(s));
  for (const pln_Storage *s = l->overflow; s; s = s->next)
    if (s->guarded) fill(a, zone_of(s), block_end(s));
}

/* All of the level that was ever handed out, except `kept` blocks (by address, pin_next). */
static void poison_gaps(pln_Arena *a, pln_ArenaLevel *l, const pln_Storage *kept) {
  char *at = a->base + l->begin;
  for (const pln_Storage *s = kept; s; s = s->pin_next) {
    if (!in_arena(s)) continue;
    fill(a, at, s->data);
    at = block_end(s);
  }
  fill(a, at, a->base + l->touched);
  l->touched = l->begin; /* note_top adds what was kept */
}

/* --- neighbours --------------------------------------------------------------------------------- */

static void insert_before(pln_ArenaLevel *l, pln_Storage *at, pln_Storage *s) {
  s->before = at->before;
  s->after = at;
  *(at->before ? &at->before->after : &l->first) = s;
  at->before = s;
}

/* Takes a descriptor out of the range; a neighbour covers its bytes from now on. */
static void absorb(pln_Arena *a, pln_ArenaLevel *l, pln_Storage *s) {
  *(s->before ? &s->before->after : &l->first) = s->after;
  s->after->before = s->before;
  if (s->survivor) held_remove(l, s);
  pln_pool_free(a->storages, &s->object);
}

static void make_gap(pln_Storage *s) {
  s->object.serial = 0;
  s->state = PLN_STORAGE_FREE;
  s->tensors = NULL;
  s->asked = 0;
  s->guarded = 0;
}

/* A live block becomes a gap; its memory may be cut from `top` again only where that is the end of the arena. */
static void give_back(pln_Arena *a, pln_ArenaLevel *l, pln_Storage *s) {
  make_gap(s);
  l->blocks--;
  pln_Storage *before = s->before, *after = s->after;
  if (is_gap(before)) {
    bin_remove(l, before);
    before->bytes += s->bytes;
    absorb(a, l, s);
    s = before;
  }
  if (after == &l->top) {
    if (l == pln_arena_level(a)) {
      note_top(a, l);
      after->data = s->data;
      after->bytes += s->bytes;
      absorb(a, l, s);
      return;
    }
  } else if (is_gap(after)) {
    bin_remove(l, after);
    s->bytes += after->bytes;
    absorb(a, l, after);
  }
  bin_add(l, s);
}

/* --- allocation --------------------------------------------------------------------------------- */

static inline pln_Storage *new_block(pln_Arena *a) {
  pln_Storage *s = pln_pool_new(a->storages);
  if (PLN_LIKELY(s != NULL)) s->survivor = 0;
  return s;
}

/* All that is the same for every new block. `survivor` belongs to the descriptor. */
static inline void start_block(pln_Arena *a, pln_ArenaLevel *l, pln_Storage *s, size_t bytes) {
  s->asked = bytes;
  s->tensors = NULL;
  s->version = 0;
  s->engine = a->engine;
  s->pins = s->captures = 0;
  s->refs = 1;
  s->depth = (uint8_t)a->depth;
  s->state = PLN_STORAGE_LIVE;
  s->home = PLN_HOME_ARENA;
  s->overflow = s->guarded = 0;
  s->version_op = 0;
  s->place = 0;
  a->stats.allocs++;
  if (bytes > l->largest) l->largest = bytes;
}

static inline void cut_top(pln_ArenaLevel *l, pln_Storage *s, size_t need) {
  s->data = l->top.data;
  s->bytes = need;
  l->top.data += need;
  l->top.bytes -= need;
  l->blocks++;
  insert_before(l, &l->top, s);
}

PLN_COLD static pln_Status no_memory(const pln_Arena *a, size_t bytes, const char *why) {
  pln_ArenaStats s = pln_arena_stats(a);
  return pln_fail(PLN_ENOMEM,
                  "out of memory: %zu bytes asked, %s; arena of %zu bytes: %llu free (largest free block %zu), %llu in use, "
                  "%llu pinned, offset %zu; %llu bytes in %llu overflow blocks",
                  bytes, why, a->capacity, (unsigned long long)s.free_bytes, pln_arena_largest_free(a),
                  (unsigned long long)s.live_bytes, (unsigned long long)s.pinned_bytes, pln_arena_offset(a),
                  (unsigned long long)s.overflow_bytes, (unsigned long long)s.overflow_blocks);
}

#define NO_DESCRIPTOR "no host memory to describe the block"

/* Brings the store of spare descriptors to one per live block and `more`. */
static bool settle_spares(pln_Arena *a, uint64_t more) {
  for (int i = 0; i <= a->depth; i++) more += a->level[i]->blocks;
  while (a->spares < more) {
    pln_Storage *s = new_block(a);
    if (!s) return false;
    s->next = a->spare;
    a->spare = s;
    a->spares++;
  }
  while (a->spares > more) {
    pln_Storage *s = a->spare;
    a->spare = s->next;
    a->spares--;
    pln_pool_free(a->storages, &s->object);
  }
  return true;
}

static pln_Status alloc_overflow(pln_Arena *a, pln_ArenaLevel *l, size_t need, size_t bytes, bool no_overflow,
                                 pln_Storage **storage_p) {
  a->stats.misses++;
  if (no_overflow) return no_memory(a, bytes, "the arena is full and must not overflow now");
  pln_Storage *s = new_block(a);
  if (!s) return no_memory(a, bytes, NO_DESCRIPTOR);
  pln_Status status = a->device.alloc(a->device.context, need, &s->data);
  if (status != PLN_OK) {
    pln_pool_free(a->storages, &s->object);
    return status == PLN_ENOMEM ? no_memory(a, bytes, "the device has no more") : status;
  }
  start_block(a, l, s, bytes);
  s->bytes = need;
  s->overflow = 1;
  list_add(&l->overflow, s);
  pln_ArenaStats *stats = &a->stats;
  stats->overflow_blocks++;
  stats->overflow_bytes += need;
  if (stats->overflow_bytes > stats->overflow_high_water) stats->overflow_high_water = stats->overflow_bytes;
  if (!stats->first_overflow) stats->first_overflow = bytes;
  poison_new(a, s);
  *storage_p = s;
  return PLN_OK;
}

__attribute__((noinline)) static pln_Status alloc_general(pln_Arena *a, size_t bytes, bool no_overflow, pln_Storage **storage_p) {
  pln_ArenaLevel *l = pln_arena_level(a);
  if (bytes > SIZE_MAX / 4) {
    a->stats.misses++;
    return no_memory(a, bytes, "which no device has");
  }
  pln_Storage *s;
  if (!bytes) {
    if (!(s = new_block(a))) return no_memory(a, bytes, NO_DESCRIPTOR);
    start_block(a, l, s, 0);
    s->data = NULL;
    s->bytes = 0;
    list_add(&l->empty, s);
    *storage_p = s;
    return PLN_OK;
  }
  size_t need = (bytes + a->poison.redzone + a->granule - 1) & ~(a->granule - 1);
  pln_Storage *gap = l->bits ? bin_find(l, need) : NULL;
  if (!gap && need > l->top.bytes) return alloc_overflow(a, l, need, bytes, no_overflow, storage_p);
  if (a->keep_headers && !settle_spares(a, 1)) return no_memory(a, bytes, NO_DESCRIPTOR);
  if (gap && gap->bytes == need) {
    s = gap;
    bin_remove(l, gap);
    s->object.serial = ++*a->storages->serials;
    l->blocks++;
  } else {
    if (!(s = new_block(a))) return no_memory(a, bytes, NO_DESCRIPTOR);
    if (gap) {
      bin_remove(l, gap);
      s->data = gap->data;
      s->bytes = need;
      gap->data += need;
      gap->bytes -= need;
      insert_before(l, gap, s);
      bin_add(l, gap);
      l->blocks++;
    } else {
      cut_top(l, s, need);
    }
  }
  if (PLN_FAULT(issued_twice) && s->before && s->before->state == PLN_STORAGE_LIVE && s->before->bytes >= need) s->data = s->before->data;
  start_block(a, l, s, bytes);
  if (gap) a->stats.reuses++;
  poison_new(a, s);
  *storage_p = s;
  return PLN_OK;
}

pln_Status pln_arena_alloc(pln_Arena *a, size_t bytes, bool no_overflow, pln_Storage **storage_p) {
  pln_ArenaLevel *l = pln_arena_level(a);
  size_t need = (bytes + a->granule - 1) & ~(a->granule - 1);
  if (PLN_UNLIKELY(bytes - 1 >= l->top.bytes || need > l->top.bytes || l->bits || a->poison.on_alloc || a->poison.redzone ||
                   a->keep_headers)) /* bytes - 1: zero is not for here */
    return alloc_general(a, bytes, no_overflow, storage_p);
  pln_Storage *s = new_block(a);
  if (PLN_UNLIKELY(!s)) return no_memory(a, bytes, NO_DESCRIPTOR);
  cut_top(l, s, need);
  start_block(a, l, s, bytes);
  *storage_p = s;
  return PLN_OK;
}

static void device_free(pln_Arena *a, pln_Storage *s) {
  a->device.free(a->device.context, s->data, s->bytes);
  a->stats.overflow_blocks--;
  a->stats.overflow_bytes -= s->bytes;
  s->data = NULL;
}

void pln_arena_free(pln_Arena *a, pln_Storage *s) {
  s->refs = 0;
  if (pln_storage_held(s)) return;
  pln_ArenaLevel *l = a->level[s->depth];
  a->stats.frees++;
  check_guard(a, s);
  if (a->poison.on_free && s->bytes) fill(a, s->data, block_end(s));
  if (in_arena(s)) {
    give_back(a, l, s);
    return;
  }
  if (s->overflow) device_free(a, s);
  list_remove(s->overflow ? &l->overflow : &l->empty, s);
  if (s->survivor) held_remove(l, s);
  make_gap(s);
  pln_pool_free(a->storages, &s->object);
}

/* --- pins --------------------------------------------------------------------------------------- */

static void hold(pln_Arena *a, pln_Storage *s) {
  if (pln_storage_held(s)) return;
  if (!s->survivor) held_add(a->level[s->depth], s);
  a->stats.pinned_bytes += s->bytes;
  if (a->stats.pinned_bytes > a->stats.pinned_high_water) a->stats.pinned_high_water = a->stats.pinned_bytes;
}

static void let_go(pln_Arena *a, pln_Storage *s) {
  if (pln_storage_held(s)) return;
  if (!s->survivor) held_remove(a->level[s->depth], s);
  a->stats.pinned_bytes -= s->bytes;
  if (s->refs) return;
  a->stats.deferred_frees++;
  pln_arena_free(a, s);
}

void pln_arena_pin(pln_Arena *a, pln_Storage *s) {
  hold(a, s);
  s->pins++;
  a->stats.pins++;
}

void pln_arena_unpin(pln_Arena *a, pln_Storage *s) {
  s->pins--;
  a->stats.pins--;
  let_go(a, s);
}

void pln_arena_capture(pln_Arena *a, pln_Storage *s) {
  hold(a, s);
  s->captures++;
}

void pln_arena_uncapture(pln_Arena *a, pln_Storage *s) {
  s->captures--;
  let_go(a, s);
}

void pln_arena_note(pln_Arena *a, pln_Storage *s) {
  if (s->survivor) return;
  if (!pln_storage_held(s)) held_add(a->level[s->depth], s);
  s->survivor = 1;
  s->object.kept = 1;
}

/* --- epochs ------------------------------------------------------------------------------------- */

static void clear_level(pln_Arena *a, pln_ArenaLevel *l) {
  l->first = &l->top;
  l->bits = 0;
  l->blocks = l->binned = l->largest = 0;
  l->allocs_before = a->stats.allocs;
  l->held = l->overflow = l->empty = NULL;
  l->top.before = NULL;
  l->top.data = a->base + l->begin;
  l->top.bytes = a->capacity - l->begin;
}

/* Takes the level's held blocks to level `depth`, whose epoch is right already, and lets its other survivors die. Returns
** the held ones by address (pin_next only). */
static pln_Storage *sift(pln_Arena *a, pln_ArenaLevel *l, int depth) {
  pln_Storage *kept = NULL, *next;
  for (pln_Storage *s = l->held; s; s = next) {
    next = s->pin_next;
    s->object.kept = s->survivor = (uint8_t)pln_storage_held(s);
    if (s->survivor) {
      s->depth = (uint8_t)depth;
      pln_tensors_move(s, &a->level[depth]->epoch);
      s->pin_next = kept;
      kept = s;
    } else {
      pln_tensors_end(s);
    }
  }
  return sort_held(kept);
}

/* With keep_headers dead blocks stay known, gaps go back to the pool one by one. */
static void bury(pln_Arena *a, pln_ArenaLevel *l) {
  pln_Storage *after;
  for (pln_Storage *s = l->first; s != &l->top; s = after) {
    after = s->after;
    if (s->state == PLN_STORAGE_FREE)
      pln_pool_free(a->storages, &s->object);
    else if (!pln_storage_held(s))
      s->state = PLN_STORAGE_DEAD;
  }
  for (pln_Storage *s = l->empty; s; s = s->next)
    if (!pln_storage_held(s)) s->state = PLN_STORAGE_DEAD;
}

static void end_overflow(pln_Arena *a, pln_ArenaLevel *l) {
  for (pln_Storage *s = l->overflow; s; s = s->next) {
    if (pln_storage_held(s) || PLN_FAULT(overflow_kept)) continue;
    if (a->poison.on_reset) fill(a, s->data, block_end(s));
    device_free(a, s);
    s->state = PLN_STORAGE_DEAD;
  }
}

/* A descriptor for what lies between two kept blocks; cannot fail (arena.h). */
static pln_Storage *new_gap(pln_Arena *a) {
  pln_Storage *s;
  if (a->keep_headers) {
    s = a->spare;
    a->spare = s->next;
    a->spares--;
  } else {
    s = new_block(a);
  }
  make_gap(s);
  s->pins = s->captures = s->refs = 0;
  s->overflow = 0;
  s->engine = a->engine;
  s->place = 0;
  return s;
}

/* Lays the kept blocks from the level's top on, with gaps between them; the top moves behind the last. */
static void lay_out(pln_Arena *a, int depth, pln_Storage *kept) {
  pln_ArenaLevel *l = a->level[depth];
  pln_Storage *top = &l->top, *s, *last = NULL;
  char *at = top->data, *end = a->base + a->capacity;
  for (s = kept; s; s = s->pin_next) {
    s->pin_prev = last;
    last = s;
    if (!in_arena(s)) {
      list_add(s->overflow ? &l->overflow : &l->empty, s);
      continue;
    }
    if (s->data > at) {
      pln_Storage *gap = top->before;
      if (is_gap(gap)) { /* the outer level's last block was freed while the inner one was current */
        bin_remove(l, gap);
        gap->bytes += (size_t)(s->data - at);
      } else {
        gap = new_gap(a);
        gap->data = at;
        gap->bytes = (size_t)(s->data - at);
        gap->depth = (uint8_t)depth;
        insert_before(l, top, gap);
      }
      bin_add(l, gap);
    }
    insert_before(l, top, s);
    l->blocks++;
    at = block_end(s);
  }
  if (last) {
    last->pin_next = l->held;
    if (l->held) l->held->pin_prev = last;
    l->held = kept;
  }
  if (is_gap(top->before)) {
    at = top->before->data;
    bin_remove(l, top->before);
    absorb(a, l, top->before);
  }
  top->data = at;
  top->bytes = (size_t)(end - at);
}

/* Ends the current level's epoch; what is held goes on in level `depth`, that one or the next outer. */
static void end_epoch(pln_Arena *a, int depth) {
  pln_ArenaLevel *l = pln_arena_level(a), *to = a->level[depth];
  note_top(a, l);
  if (a->poison.redzone) check_guards(a, l);
  if (l->largest > a->stats.largest_alloc) a->stats.largest_alloc = l->largest;
  l->epoch++;
  pln_Storage *kept = l->held ? sift(a, l, depth) : NULL;
  if (a->keep_headers) bury(a, l);
  if (l->overflow) end_overflow(a, l);
  if (a->poison.on_reset) poison_gaps(a, l, PLN_FAULT(pinned_poisoned) ? NULL : kept);
  if (l == to) {
    if (!a->keep_headers) {
      pln_pool_rewind(a->storages, &l->storages);
      pln_pool_rewind(a->tensors, &l->tensors);
    }
    clear_level(a, l);
    a->stats.first_overflow = 0;
  } else {
    if (!a->keep_headers) {
      pln_pool_unmark(a->storages, &l->storages);
      pln_pool_unmark(a->tensors, &l->tensors);
    }
    if (l->touched > to->touched) to->touched = l->touched;
    if (l->largest > to->largest) to->largest = l->largest;
    a->stats.first_overflow = to->first_overflow;
    a->depth = depth;
  }
  lay_out(a, depth, kept);
  if (a->keep_headers) settle_spares(a, 0); /* there are enough: takes none */
}

void pln_arena_reset(pln_Arena *a) {
  a->stats.resets++;
  end_epoch(a, a->depth);
}

static pln_Status level_new(struct pln_Engine *engine, pln_ArenaLevel **l_p) {
  pln_ArenaLevel *l = pln_calloc(1, sizeof *l);
  if (!l) return pln_fail(PLN_ENOMEM, "out of memory: no host memory for a scope");
  l->epoch = PLN_EPOCH_FREED + 1;
  l->top.engine = engine;
  *l_p = l;
  return PLN_OK;
}

/* A level above `begin`, without blocks; becomes the current one. */
static void open_level(pln_Arena *a, int depth, size_t begin) {
  pln_ArenaLevel *l = a->level[depth];
  l->begin = l->touched = begin;
  l->place = 0;
  clear_level(a, l);
  if (!a->keep_headers) {
    l->storages = pln_pool_mark(a->storages);
    l->tensors = pln_pool_mark(a->tensors);
  }
  a->depth = depth;
}

pln_Status pln_arena_scope_open(pln_Arena *a) {
  if (a->depth + 1 == PLN_MAX_DEPTH)
    return pln_fail(PLN_EARG, "scopes are nested more than %d deep", PLN_MAX_DEPTH - 1);
  pln_ArenaLevel *outer = pln_arena_level(a);
  if (!a->level[a->depth + 1]) PLN_TRY(level_new(a->engine, &a->level[a->depth + 1]));
  outer->first_overflow = a->stats.first_overflow;
  a->stats.first_overflow = 0;
  outer->top.bytes = 0;
  open_level(a, a->depth + 1, offset_of(a, outer->top.data));
  return PLN_OK;
}

void pln_arena_scope_close(pln_Arena *a) {
  if (a->depth) end_epoch(a, a->depth - 1);
}

pln_Status pln_arena_init(pln_Arena *a, char *base, size_t capacity, size_t granule, const pln_ArenaDevice *device,
                          pln_Pool *storages, pln_Pool *tensors, struct pln_Engine *engine) {
  if (capacity < PLN_ARENA_MIN || capacity % PLN_ALIGN)
    return pln_fail(PLN_EARG, "an arena has at least %d bytes, a multiple of %d", PLN_ARENA_MIN, PLN_ALIGN);
  memset(a, 0, sizeof *a);
  a->base = base;
  a->capacity = capacity;
  a->granule = granule;
  a->device = *device;
  a->storages = storages;
  a->tensors = tensors;
  a->engine = engine;
  a->poison.word = 0x7FF8;
  PLN_TRY(level_new(engine, &a->level[0]));
  open_level(a, 0, 0);
  return PLN_OK;
}

void pln_arena_poison(pln_Arena *a, const pln_Poison *poison) {
  bool fills = poison->on_alloc && !a->poison.on_alloc, renews = poison->word != a->poison.word;
  if (renews && a->poison.redzone)
    for (int i = 0; i <= a->depth; i++) check_guards(a, a->level[i]);
  a->poison = *poison;
  for (int i = 0; i <= a->depth; i++) {
    const pln_ArenaLevel *l = a->level[i];
    if (renews) renew_guards(a, l);
    if (!fills) continue;
    for (const pln_Storage *s = l->first; s != &l->top; s = s->after)
      if (is_gap(s)) fill(a, s->data, block_end(s));
    fill(a, l->top.data, block_end(&l->top));
  }
}

void pln_arena_close(pln_Arena *a) {
  for (int i = a->depth; i >= 0; i--) {
    if (a->poison.redzone) check_guards(a, a->level[i]);
    for (pln_Storage *s = a->level[i]->overflow; s; s = s->next) device_free(a, s);
  }
  for (int i = 0; i < PLN_MAX_DEPTH; i++) pln_mfree(a->level[i]);
  memset(a, 0, sizeof *a);
}
