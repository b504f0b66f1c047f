/* SPDX-License-Identifier: MIT
** arena_check.c -- what an arena knows of itself: statistics, a walk over its blocks, and a check of everything that must
** agree, for tests.
*/
#include "arena_bins.h"

size_t pln_arena_offset(const pln_Arena *a) { return (size_t)(pln_arena_level(a)->top.data - a->base); }

size_t pln_arena_largest_free(const pln_Arena *a) {
  const pln_ArenaLevel *l = pln_arena_level(a);
  size_t largest = l->top.bytes;
  if (!l->bits) return largest;
  int power = 63 - __builtin_clzll(l->bits), sub = 31 - __builtin_clz(l->subbits[power]);
  for (const pln_Storage *s = l->bin[power * 8 + sub]; s; s = s->next)
    if (s->bytes > largest) largest = s->bytes;
  return largest;
}

pln_ArenaStats pln_arena_stats(const pln_Arena *a) {
  pln_ArenaStats s = a->stats;
  if (!a->level[0]) return s; /* an engine without arena */
  for (int i = 0; i <= a->depth; i++) {
    const pln_ArenaLevel *l = a->level[i];
    size_t offset = (size_t)(l->top.data - a->base);
    s.live_bytes += offset - l->begin - l->binned;
    s.live_blocks += l->blocks;
    if (offset > s.high_water) s.high_water = offset;
    if (l->largest > s.largest_alloc) s.largest_alloc = l->largest;
  }
  s.free_bytes = a->capacity - s.live_bytes;
  s.epoch_allocs = s.allocs - pln_arena_level(a)->allocs_before;
  s.epoch_largest = pln_arena_level(a)->largest;
  return s;
}

void pln_arena_walk(const pln_Arena *a, void (*visit)(void *context, const pln_Storage *s), void *context) {
  for (int i = 0; i <= a->depth; i++) {
    const pln_ArenaLevel *l = a->level[i];
    for (const pln_Storage *s = l->first; s != &l->top; s = s->after) visit(context, s);
    if (l->top.bytes) visit(context, &l->top);
  }
  for (int i = 0; i <= a->depth; i++)
    for (const pln_Storage *s = a->level[i]->overflow; s; s = s->next) visit(context, s);
}

/* --- the check ---------------------------------------------------------------------------------- */

#define EXPECT(condition, text) \
  do {                          \
    if (!(condition)) return text; \
  } while (0)

/* What one level's lists add up to. */
typedef struct Sums {
  uint64_t pins, pinned_bytes, held; /* held: blocks that belong on the held list */
  uint64_t overflow_blocks, overflow_bytes;
  uint64_t gaps, binned;
} Sums;

static const char *check_live(const pln_Storage *s, int depth, Sums *sums) {
  EXPECT(s->object.serial, "a live block has no serial");
  EXPECT(s->depth == depth, "a block is on a level that is not its own");
  EXPECT(s->home == PLN_HOME_ARENA, "a block's home is not the arena");
  EXPECT(s->asked <= s->bytes, "a block is smaller than what was asked");
  EXPECT(s->refs || pln_storage_held(s), "a live block that nobody refers to");
  if (pln_storage_held(s)) sums->pinned_bytes += s->bytes;
  sums->pins += s->pins;
  return NULL;
}

static bool on_held(const pln_Storage *s) { return s->survivor || (s->state == PLN_STORAGE_LIVE && pln_storage_held(s)); }

static const char *check_range(const pln_Arena *a, const pln_ArenaLevel *l, int depth, Sums *sums) {
  const char *at = a->base + l->begin;
  const pln_Storage *before = NULL;
  uint64_t blocks = 0;
  for (const pln_Storage *s = l->first; s != &l->top; before = s, s = s->after) {
    EXPECT(s, "the list by address ends before the top");
    EXPECT(s->before == before, "neighbours do not link back");
    EXPECT(s->data == at, "a hole or an overlap between neighbours");
    EXPECT(s->bytes && s->bytes % a->granule == 0, "a block is no multiple of the granule");
    EXPECT(!s->overflow, "an overflow block is listed by address");
    EXPECT(s->object.kept == s->survivor, "kept and survivor do not agree");
    if (is_gap(s)) {
      EXPECT(!is_gap(before), "two free blocks side by side");
      EXPECT(bin_used(l, bin_of(s->bytes)), "a free block's bin is empty");
      sums->gaps++;
      sums->binned += s->bytes;
    } else {
      EXPECT(s->state == PLN_STORAGE_LIVE, "a dead block is still listed");
      const char *wrong = check_live(s, depth, sums);
      if (wrong) return wrong;
      blocks++;
    }
    sums->held += on_held(s);
    at = s->data + s->bytes;
  }
  EXPECT(l->top.before == before, "the top does not link back");
  EXPECT(l->top.data == at, "a hole below the top");
  EXPECT(depth < a->depth || !is_gap(before), "a free block below the top did not join it");
  size_t end = depth < a->depth ? a->level[depth + 1]->begin : a->capacity;
  EXPECT(block_end(&l->top) == a->base + end, "a level does not end where the next begins");
  EXPECT(depth == a->depth || !l->top.bytes, "an outer level has a top");
  EXPECT(blocks == l->blocks, "the number of live blocks is wrong");
  return NULL;
}

static const char *check_bins(const pln_ArenaLevel *l, const Sums *sums) {
  uint64_t gaps = 0;
  for (int power = 0; power < 64; power++)
    EXPECT(!(l->bits >> power & 1) || l->subbits[power], "a bit stands for no class");
  for (int bin = 0; bin < PLN_BIN_COUNT; bin++) {
    if (!bin_used(l, bin)) continue;
    EXPECT(l->bin[bin], "a bit stands for an empty bin");
    const pln_Storage *before = NULL;
    for (const pln_Storage *s = l->bin[bin]; s; before = s, s = s->next) {
      EXPECT(s->prev == before, "a bin does not link back");
      EXPECT(is_gap(s) && bin_of(s->bytes) == bin, "a block is in a wrong bin");
      gaps++;
    }
  }
  EXPECT(gaps == sums->gaps && l->binned == sums->binned, "bins and free blocks differ");
  return NULL;
}

static const char *check_lists(const pln_ArenaLevel *l, int depth, Sums *sums) {
  for (const pln_Storage *s = l->overflow, *before = NULL; s; before = s, s = s->next) {
    EXPECT(s->prev == before && s->overflow && s->bytes && s->data, "an overflow block is wrong");
    const char *wrong = check_live(s, depth, sums);
    if (wrong) return wrong;
    sums->held += on_held(s);
    sums->overflow_blocks++;
    sums->overflow_bytes += s->bytes;
  }
  for (const pln_Storage *s = l->empty, *before = NULL; s; before = s, s = s->next) {
    EXPECT(s->prev == before && !s->overflow && !s->bytes && !s->data, "an empty block is wrong");
    const char *wrong = check_live(s, depth, sums);
    if (wrong) return wrong;
    sums->held += on_held(s);
  }
  uint64_t held = 0;
  for (const pln_Storage *s = l->held, *before = NULL; s; before = s, s = s->pin_next) {
    EXPECT(s->pin_prev == before && on_held(s), "the held list is wrong");
    held++;
  }
  EXPECT(held == sums->held, "held blocks are missing on their list");
  return NULL;
}

const char *pln_arena_check(const pln_Arena *a) {
  Sums all = {0};
  size_t begin = 0;
  for (int i = 0; i <= a->depth; i++) {
    const pln_ArenaLevel *l = a->level[i];
    Sums sums = {0};
    EXPECT(l->begin >= begin && l->begin <= a->capacity, "levels are not in order");
    begin = l->begin;
    const char *wrong = check_range(a, l, i, &sums);
    if (!wrong) wrong = check_bins(l, &sums);
    if (!wrong) wrong = check_lists(l, i, &sums);
    if (wrong) return wrong;
    all.pins += sums.pins;
    all.pinned_bytes += sums.pinned_bytes;
    all.overflow_blocks += sums.overflow_blocks;
    all.overflow_bytes += sums.overflow_bytes;
  }
  EXPECT(all.pins == a->stats.pins && all.pinned_bytes == a->stats.pinned_bytes, "pins are counted wrong");
  EXPECT(all.overflow_blocks == a->stats.overflow_blocks && all.overflow_bytes == a->stats.overflow_bytes,
         "overflow is counted wrong");
  return "";
}
