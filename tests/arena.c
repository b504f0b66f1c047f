/* SPDX-License-Identifier: MIT
** arena [steps] [seed] -- the arena under random operations, against a model that knows nothing of bins, pools or
** neighbours (arena_model.h); then single cases, a failure of each allocation in turn, and times.
*/
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "arena_model.h"

/* --- verification ------------------------------------------------------------------------------- */

typedef struct Slots { /* every slot of a pool: in use, or on one of its lists, and never both */
  pln_Pool *pool;
  uint8_t *seen;
  uint32_t count, kept;
} Slots;

static void slot_seen(Slots *s, const pln_Object *o) {
  CHECK_TEXT(!s->seen[o->slot], "a slot has two owners");
  s->seen[o->slot] = 1;
  s->count += o->slot < s->pool->top;
  s->kept += o->kept;
}

static void slots_of_list(Slots *s, const pln_Object *o) {
  for (; o; o = o->next) {
    CHECK(!o->kept && !o->serial);
    slot_seen(s, o);
  }
}

static void check_slots(Model *m, Slots *s, bool tensors) {
  slots_of_list(s, s->pool->free);
  slots_of_list(s, s->pool->below);
  for (int i = 0; i <= m->depth && !m->keep; i++) {
    const pln_PoolMark *mark = tensors ? &m->a.level[i]->tensors : &m->a.level[i]->storages;
    slots_of_list(s, mark->free);
    slots_of_list(s, mark->below);
  }
  CHECK_TEXT(s->count == s->pool->top, "slots are lost");
  uint32_t kept = 0;
  for (uint32_t i = 0; i < s->pool->nslab * 128; i++) kept += pln_pool_at(s->pool, i)->kept;
  CHECK_TEXT(kept == s->kept, "a slot is kept for nobody");
  free(s->seen);
}

static Slots slots_new(pln_Pool *p) { return (Slots){p, calloc(p->nslab * 128 + 1, 1), 0, 0}; }

typedef struct Walk {
  Model *m;
  Slots *slots;
  const char *at;
  uint64_t live, overflow, gap_bytes;
} Walk;

static void visit(void *context, const pln_Storage *s) {
  Walk *w = context;
  Model *m = w->m;
  bool is_top = false;
  for (int i = 0; i <= m->depth; i++) is_top |= s == &m->a.level[i]->top;
  if (!is_top) slot_seen(w->slots, &s->object);
  if (s->overflow && s->state == PLN_STORAGE_LIVE) {
    w->overflow++;
    return;
  }
  CHECK_TEXT(s->data == w->at, "a hole or an overlap");
  w->at = s->data + s->bytes;
  if (s->state == PLN_STORAGE_LIVE)
    w->live++;
  else
    w->gap_bytes += s->bytes;
}

static void check_storages(Model *m) {
  Slots slots = slots_new(&m->storages);
  Walk w = {m, &slots, m->base, 0, 0, 0};
  pln_arena_walk(&m->a, visit, &w);
  CHECK(w.at == m->base + m->capacity && w.live == m->want.live_blocks && w.overflow == m->want.overflow_blocks);
  CHECK(w.gap_bytes == m->want.free_bytes);
  for (int i = 0; i < m->blocks; i++)
    if (!m->block[i].bytes) slot_seen(&slots, &m->block[i].s->object);
  for (const pln_Storage *s = m->a.spare; s; s = s->next) slot_seen(&slots, &s->object);
  if (m->keep)
    for (int i = 0; i < m->stales; i++) {
      const pln_Storage *s = m->stale[i].t->storage;
      CHECK(s->state == PLN_STORAGE_DEAD);
      if (!slots.seen[s->object.slot]) slot_seen(&slots, &s->object);
    }
  check_slots(m, &slots, false);
}

static void check_headers(Model *m) {
  Slots slots = slots_new(&m->tensors);
  for (int i = 0; i < m->blocks; i++)
    for (int k = 0; k < m->block[i].handles; k++) slot_seen(&slots, &m->block[i].handle[k].t->object);
  for (int i = 0; i < m->stales && m->keep; i++) slot_seen(&slots, &m->stale[i].t->object);
  check_slots(m, &slots, true);
}

static void check_blocks(Model *m) {
  uint8_t *used = calloc(m->capacity / 64, 1);
  for (int i = 0; i < m->blocks; i++) {
    Block *b = &m->block[i];
    pln_Storage *s = b->s;
    CHECK(s->object.serial == b->serial && s->data == b->data && s->bytes == b->bytes && s->asked == b->asked);
    CHECK(s->pins == b->pins && s->captures == b->captures && s->refs == (uint32_t)b->handles && s->depth == b->depth);
    CHECK(s->place == b->place && s->guarded == b->guarded);
    for (int k = 0; k < b->handles; k++) {
      Handle h = b->handle[k];
      CHECK_TEXT(header_alive(h), "a live handle looks dead");
      CHECK(h.t->storage == s && h.t->live == &m->a.level[b->depth]->epoch);
    }
    if (!inside(b)) {
      for (size_t j = 0; b->seed && j < b->asked; j++) CHECK((uint8_t)b->data[j] == byte_at(b->seed, j));
      continue;
    }
    size_t end = b->depth == m->depth ? m->capacity : m->begin[b->depth + 1];
    CHECK(b->data >= m->base + m->begin[b->depth] && end_of(m, b) <= end);
    for (size_t j = end_of(m, b) - b->bytes; j < end_of(m, b); j += 64) CHECK_TEXT(!used[j / 64]++, "live blocks overlap");
  }
  free(used);
}

static void verify(Model *m) {
  const char *wrong = pln_arena_check(&m->a);
  CHECK_TEXT(!*wrong, wrong);
  pln_ArenaStats have = pln_arena_stats(&m->a), *w = &m->want;
  w->free_bytes = m->capacity - w->live_bytes;
  w->epoch_allocs = w->allocs - m->allocs_before[m->depth];
  w->epoch_largest = m->largest[m->depth];
  w->first_overflow = m->first_overflow[m->depth];
  for (size_t i = 0; i < sizeof have / 8; i++)
    if (memcmp((char *)&have + 8 * i, (char *)w + 8 * i, 8)) {
      char text[100];
      snprintf(text, sizeof text, "statistic %zu: %llu, expected %llu", i, ((unsigned long long *)&have)[i],
               ((unsigned long long *)w)[i]);
      fault(__FILE__, __LINE__, text);
    }
  CHECK_TEXT(memcmp(m->base, m->shadow, m->capacity) == 0, "the arena's memory is not what it should be");
  check_blocks(m);
  check_storages(m);
  check_headers(m);
  for (int i = 0; i < m->stales; i++) CHECK_TEXT(!header_alive(m->stale[i]), "a dead handle looks alive");
}

/* --- one arena ---------------------------------------------------------------------------------- */

static void model_open(Model *m, size_t capacity, size_t granule, bool keep) {
  pln_Slabs *storages = m->storage_slabs, *tensors = m->tensor_slabs;
  uint64_t serials = m->serials;
  memset(m, 0, sizeof *m);
  m->storage_slabs = storages;
  m->tensor_slabs = tensors;
  m->serials = serials;
  m->capacity = capacity;
  m->granule = granule;
  m->keep = keep;
  m->base = aligned_alloc(256, (capacity + 255) / 256 * 256);
  m->shadow = malloc(capacity);
  memset(m->base, 0x22, capacity);
  memset(m->shadow, 0x22, capacity);
  m->poison.word = m->zone_word = 0x7ff8;
  m->budget = capacity * 2;
  pln_pool_init(&m->storages, storages, &m->serials);
  pln_pool_init(&m->tensors, tensors, &m->serials);
  pln_ArenaDevice device = {m, device_alloc, device_free, device_fill, device_guard};
  CHECK(pln_arena_init(&m->a, m->base, capacity, granule, &device, &m->storages, &m->tensors, NULL) == PLN_OK);
  m->a.keep_headers = keep;
}

static void model_close(Model *m) {
  m->want.overflow_bytes = 0;
  for (int i = 0; i < m->blocks; i++) m->block[i].dying = true;
  pln_arena_close(&m->a);
  CHECK_TEXT(m->budget == m->capacity * 2, "overflow blocks are left");
  pln_pool_close(&m->storages);
  pln_pool_close(&m->tensors);
  for (int i = 0; i < m->stales; i++) CHECK(!pln_tensor_is(m->stale[i].t, m->stale[i].serial));
  free(m->base);
  free(m->shadow);
}

static size_t any_size(const Model *m) {
  switch (below(16)) {
    case 0: return 0;
    case 1: return below(m->capacity + m->capacity / 4);
    case 2: return below(m->capacity / 4);
    case 3: case 4: return 64 * below(40);
    case 5: case 6: return 1000;
    default: return below(m->capacity / 16 < 2000 ? m->capacity / 16 : 2000) + 1;
  }
}

static void random_step(Model *m) {
  int i = m->blocks ? (int)below((uint64_t)m->blocks) : -1;
  uint64_t op = below(1000);
  if (op < 430) do_alloc(m, any_size(m), !below(8));
  else if (op < 440) do_alloc(m, below(2) ? SIZE_MAX - below(300) : (size_t)1 << (34 + below(30)), false);
  else if (op < 455) do_end(m, m->depth);
  else if (op < 467) do_open(m);
  else if (op < 480) { if (m->depth) do_end(m, m->depth - 1); }
  else if (op < 486) do_poison(m);
  else if (op < 530) { if (m->stales) drop_stale(m, (int)below((uint64_t)m->stales)); }
  else if (i < 0) return;
  else if (op < 720) do_release(m, i, below(2));
  else if (op < 770) do_hold(m, i, true);
  else if (op < 790) do_hold(m, i, false);
  else if (op < 850) do_let_go(m, i, true);
  else if (op < 880) do_let_go(m, i, false);
  else if (op < 960) do_view(m, i);
  else if (op < 990) write_block(m, &m->block[i]);
  else do_smash(m, i);
}

static void random_arena(Model *m, uint64_t seed, long steps) {
  seed_now = rng_state = seed;
  size_t capacity = below(2) ? 4096 + 64 * below(200) : (size_t)4096 << below(9);
  model_open(m, capacity, below(3) ? 64 : 256, below(4) == 0);
  if (below(3)) do_poison(m);
  for (long i = 0; i < steps; i++) {
    step_now = i;
    random_step(m);
    if (i % 64 == 0) verify(m);
  }
  verify(m);
  while (m->depth) do_end(m, m->depth - 1);
  verify(m);
  while (m->blocks) { /* all given up: nothing is left after a reset */
    Block *b = &m->block[0];
    if (b->pins) do_let_go(m, 0, true);
    else if (b->captures) do_let_go(m, 0, false);
    else do_release(m, 0, true);
  }
  do_end(m, 0);
  while (m->stales) drop_stale(m, 0);
  verify(m);
  CHECK(pln_arena_offset(&m->a) == 0 && pln_arena_largest_free(&m->a) == m->capacity);
  model_close(m);
}

/* --- single cases ------------------------------------------------------------------------------- */

static void case_reuse(Model *m) {
  model_open(m, 4096, 64, false);
  do_alloc(m, 200, false);
  do_alloc(m, 200, false);
  do_alloc(m, 200, false);
  char *first = m->block[0].data;
  do_release(m, 0, true); /* the last takes its place in the model */
  CHECK(pln_arena_offset(&m->a) == 768);
  do_alloc(m, 256, false);
  CHECK(m->block[2].data == first && m->want.reuses == 1);
  do_release(m, 0, true);
  CHECK(pln_arena_offset(&m->a) == 512);
  verify(m);
  model_close(m);
}

/* A view made in a scope of a block from outside lives as long as the block. */
static void case_outer_view(Model *m) {
  model_open(m, 65536, 64, false);
  do_alloc(m, 100, false);
  for (int round = 0; round < 1000; round++) {
    do_open(m);
    do_alloc(m, 100, false);
    if (m->block[0].handles < MAX_HANDLES) do_view(m, 0);
    do_end(m, 1);
    do_alloc(m, 100, false);
    do_end(m, 0);
    CHECK(m->blocks == 1 && header_alive(m->block[0].handle[m->block[0].handles - 1]));
    do_alloc(m, 300, false);
    do_release(m, 1, true);
    verify(m);
  }
  CHECK(m->storages.nslab == 1 && m->tensors.nslab == 1);
  do_end(m, 0);
  verify(m);
  model_close(m);
}

static void case_messages(Model *m) {
  model_open(m, 4096, 64, false);
  do_alloc(m, 4000, false);
  pln_Storage *s = NULL;
  CHECK(pln_arena_alloc(&m->a, 100, true, &s) == PLN_ENOMEM && !s);
  CHECK(strstr(pln_error(), "100 bytes asked") && strstr(pln_error(), "arena of 4096 bytes: 64 free (largest free block 64)"));
  CHECK(strstr(pln_error(), "offset 4032"));
  CHECK(pln_arena_alloc(&m->a, 10000, false, &s) == PLN_ENOMEM && strstr(pln_error(), "the device has no more"));
  m->want.misses += 2;
  do_alloc(m, 64, true);
  do_alloc(m, 1, false);
  CHECK(m->block[2].overflow);
  verify(m);
  model_close(m);
  pln_ArenaDevice device = {0};
  CHECK(pln_arena_init(&m->a, NULL, 4032, 64, &device, NULL, NULL, NULL) == PLN_EARG);
}

/* Blocks made before red zones are on have none; a new word does not make old zones wrong. */
static void case_poison_later(Model *m) {
  model_open(m, 8192, 64, false);
  do_alloc(m, 100, false);
  set_poison(m, (pln_Poison){true, true, false, 0x7ff8, 64});
  do_alloc(m, 100, false);
  do_smash(m, 1);
  set_poison(m, (pln_Poison){true, true, false, 0x1234, 64});
  do_alloc(m, 101, false);
  do_hold(m, 1, true);
  do_smash(m, 1);
  uint64_t guards = m->guards;
  do_end(m, 0);
  CHECK(m->guards == guards + 2 && m->blocks == 1);
  verify(m);
  model_close(m);
}

/* Every allocation of the heap fails once; whatever is refused, the rest goes on and nothing leaks. */
static void failing_run(Model *m, bool keep) {
  model_open(m, 65536, 64, keep);
  for (int i = 0; i < 700; i++) {
    pln_Storage *s = NULL;
    if (pln_arena_alloc(&m->a, i % 7 * 40, false, &s) != PLN_OK) continue;
    Handle h = header_new(m, s);
    if (!h.t) {
      s->refs = 0;
      pln_arena_free(&m->a, s);
    } else if (i % 5 == 0) {
      pln_arena_pin(&m->a, s);
    } else if (i % 3 == 0) {
      header_free(m, h.t);
      s->refs = 0;
      pln_arena_free(&m->a, s);
    }
    if (i % 100 == 50) (void)pln_arena_scope_open(&m->a);
    if (i % 150 == 140) pln_arena_reset(&m->a);
    if (i % 200 == 190) pln_arena_scope_close(&m->a);
    const char *wrong = pln_arena_check(&m->a);
    CHECK_TEXT(!*wrong, wrong);
  }
  m->blocks = 0;
  model_close(m);
}

static void case_failing(Model *m, bool keep) {
  int64_t live = -1, n = 1, made;
  do {
    pln_slabs_free(m->storage_slabs);
    pln_slabs_free(m->tensor_slabs);
    m->storage_slabs = pln_slabs_new(sizeof(pln_Storage));
    m->tensor_slabs = pln_slabs_new(sizeof(pln_Tensor));
    int64_t before = pln_alloc_live();
    CHECK(live < 0 || before == live);
    live = before;
    step_now = n;
    pln_alloc_fail_at(n + 1); /* the first is the level itself */
    failing_run(m, keep);
    made = pln_alloc_fail_at(0);
  } while (made > n++);
  CHECK(n > 10);
}

/* --- time --------------------------------------------------------------------------------------- */

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

/* The best of some resets with `dead` blocks, `pins` of them held. Many dead blocks leave nothing in the cache, so for a
** comparison `cold` sweeps it first. */
static double reset_ns(Model *m, int dead, int pins, bool cold, int rounds) {
  double best = 1e18;
  pln_Storage *s, *pinned[10];
  for (int r = 0; r < rounds; r++) {
    for (int i = 0; i < dead; i++) {
      CHECK(pln_arena_alloc(&m->a, 64, true, &s) == PLN_OK);
      if (pins && i % (dead / pins) == 0) pln_arena_pin(&m->a, pinned[i / (dead / pins)] = s);
    }
    for (size_t i = 0; cold && i < m->capacity; i += 64) m->base[i]++;
    double t = now();
    pln_arena_reset(&m->a);
    t = now() - t;
    if (t < best) best = t;
    for (int i = 0; i < pins; i++) pln_arena_unpin(&m->a, pinned[i]);
    pln_arena_reset(&m->a);
  }
  return best;
}

static void case_time(Model *m) {
  model_open(m, (size_t)80 << 20, 64, false);
  pln_Storage *s = NULL;
  double bump = 1e18, reuse = 1e18;
  for (int r = 0; r < 20; r++) {
    double t = now();
    for (int i = 0; i < 100000; i++) {
      pln_arena_alloc(&m->a, 256, false, &s);
      if (i % 100 == 99) pln_arena_reset(&m->a);
    }
    t = (now() - t) / 100000;
    if (t < bump) bump = t;
    pln_Storage *low;
    pln_arena_alloc(&m->a, 256, false, &low);
    pln_arena_alloc(&m->a, 256, false, &s);
    t = now();
    for (int i = 0; i < 100000; i++) {
      pln_arena_free(&m->a, low);
      pln_arena_alloc(&m->a, 256, false, &low);
    }
    t = (now() - t) / 100000;
    if (t < reuse) reuse = t;
    pln_arena_reset(&m->a);
  }
  double few = reset_ns(m, 10, 0, true, 20), many = reset_ns(m, 1000000, 0, true, 5);
  printf("alloc %.1f ns, free and alloc %.1f ns\n", bump, reuse);
  printf("reset %.0f ns, with 10 blocks held %.0f ns; on a cold cache with 10 dead blocks %.0f ns, with 1000000 %.0f ns\n",
         reset_ns(m, 1000, 0, false, 50), reset_ns(m, 1000, 10, false, 50), few, many);
  /* alike but for noise; looking at each dead block once takes a million ns */
  CHECK_TEXT(many < 2 * few + 20000, "a reset looks at dead blocks");
  model_close(m);
}

/* --- main --------------------------------------------------------------------------------------- */

static Model model;
static int cases_failed;

static void run(const char *name, void (*f)(Model *)) {
  int before = failed;
  f(&model);
  if (failed == before) passed++;
  else {
    cases_failed++;
    printf("FAILED %s\n", name);
  }
}

static void failing(Model *m) { case_failing(m, false); }
static void failing_keeping(Model *m) { case_failing(m, true); }

int main(int argc, char **argv) {
  long steps = argc > 1 ? atol(argv[1]) : 1000000, all = steps;
  uint64_t seed = argc > 2 ? strtoull(argv[2], NULL, 10) : 1;
  model.storage_slabs = pln_slabs_new(sizeof(pln_Storage));
  model.tensor_slabs = pln_slabs_new(sizeof(pln_Tensor));
  run("reuse", case_reuse);
  run("view from an inner scope", case_outer_view);
  run("messages", case_messages);
  run("poison switched on later", case_poison_later);
  run("failing allocations", failing);
  run("failing allocations, headers kept", failing_keeping);
  for (uint64_t k = 0; steps > 0; k++, steps -= 4000) {
    int before = failed;
    random_arena(&model, seed + k, steps < 4000 ? steps : 4000);
    if (failed == before) passed++;
    else cases_failed++;
  }
  run("time", case_time);
  pln_slabs_free(model.storage_slabs);
  pln_slabs_free(model.tensor_slabs);
  if (pln_alloc_live()) {
    printf("FAILED: %lld blocks of the heap are left\n", (long long)pln_alloc_live());
    cases_failed++;
  }
  printf("%ld random steps\n%d passed, %d failed\n", all, passed, cases_failed);
  return cases_failed != 0;
}
