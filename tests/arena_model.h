/* SPDX-License-Identifier: MIT
** arena_model.h -- the model behind tests/arena.c: a list of blocks and a copy of every byte that the arena's memory should
** hold. Each operation here is done on the arena and on the model; what the arena answers and what it asks of its device
** is compared on the spot. The device is host memory which acts at once.
*/
#ifndef PLN_ARENA_MODEL_H
#define PLN_ARENA_MODEL_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "alloc.h"
#include "arena.h"
#include "tensor.h"

/* --- checks ------------------------------------------------------------------------------------- */

static int passed, failed;
static uint64_t seed_now;
static long step_now;

static void fault(const char *file, int line, const char *what) {
  if (failed < 20) fprintf(stderr, "%s:%d: seed %llu, step %ld: %s\n", file, line, (unsigned long long)seed_now, step_now, what);
  failed++;
}
#define CHECK(c) ((c) ? (void)0 : fault(__FILE__, __LINE__, #c))
#define CHECK_TEXT(c, text) ((c) ? (void)0 : fault(__FILE__, __LINE__, text))

static uint64_t rng_state;
static uint64_t rnd(void) {
  uint64_t z = rng_state += 0x9e3779b97f4a7c15u;
  z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
  z = (z ^ z >> 27) * 0x94d049bb133111ebu;
  return z ^ z >> 31;
}
static uint64_t below(uint64_t n) { return rnd() % n; }

/* --- the model ---------------------------------------------------------------------------------- */

#define MAX_BLOCKS 1024
#define MAX_HANDLES 6
#define MAX_STALE 256

typedef struct Handle { /* what a script keeps of a tensor */
  pln_Tensor *t;
  uint64_t serial;
} Handle;

typedef struct Block {
  pln_Storage *s;
  uint64_t serial;
  char *data;
  size_t asked, bytes;
  int depth;
  uint32_t pins, captures, place;
  uint64_t seed; /* of the bytes written, 0 = not written */
  bool overflow, guarded, smashed, dying;
  int handles;
  Handle handle[MAX_HANDLES];
} Block;

typedef struct Model {
  pln_Arena a;
  pln_Slabs *storage_slabs, *tensor_slabs;
  pln_Pool storages, tensors;
  uint64_t serials;
  char *base, *shadow; /* the arena's memory and what it should hold */
  size_t capacity, granule;
  pln_Poison poison;
  uint16_t zone_word; /* what guards expect: the old one until a change of settings is done */
  bool keep;
  Block block[MAX_BLOCKS];
  int blocks;
  Handle stale[MAX_STALE];
  int stales;
  size_t begin[PLN_MAX_DEPTH], touched[PLN_MAX_DEPTH], largest[PLN_MAX_DEPTH], first_overflow[PLN_MAX_DEPTH];
  uint64_t allocs_before[PLN_MAX_DEPTH];
  int depth;
  pln_ArenaStats want;
  size_t budget; /* what the device still has for overflow */
  uint64_t guards, fills;
  uint32_t places;
} Model;

static bool held(const Block *b) { return b->pins || b->captures; }
static bool inside(const Block *b) { return b->bytes && !b->overflow; }
static size_t end_of(const Model *m, const Block *b) { return (size_t)(b->data - m->base) + b->bytes; }
static size_t zone_at(const Block *b) { return (b->asked + 1) / 2 * 2; }

static void words(char *p, size_t bytes, uint16_t word) {
  for (size_t i = 0; i < bytes; i += 2) memcpy(p + i, &word, 2);
}

static char *shadow_of(Model *m, const char *p) { return m->shadow + (p - m->base); }

static uint8_t byte_at(uint64_t seed, size_t i) { return (uint8_t)((seed + i * 31) >> (i % 5)); }

static void write_block(Model *m, Block *b) {
  b->seed = rnd() | 1;
  for (size_t i = 0; i < b->asked; i++) b->data[i] = (char)byte_at(b->seed, i);
  if (inside(b)) memcpy(shadow_of(m, b->data), b->data, b->asked);
}

static void model_fill(Model *m, Block *b, size_t from) {
  if (inside(b)) words(shadow_of(m, b->data) + from, b->bytes - from, m->poison.word);
}

/* Poison on the level's memory but for the held blocks in it. */
static void model_fill_level(Model *m, int depth) {
  char *p = malloc(m->capacity);
  memcpy(p, m->shadow, m->capacity);
  words(m->shadow + m->begin[depth], m->touched[depth] - m->begin[depth], m->poison.word);
  for (int i = 0; i < m->blocks; i++) {
    Block *b = &m->block[i];
    if (inside(b) && !b->dying && b->depth == depth) memcpy(shadow_of(m, b->data), p + (b->data - m->base), b->bytes);
  }
  free(p);
}

/* --- the device --------------------------------------------------------------------------------- */

static pln_Status device_alloc(void *context, size_t bytes, char **data_p) {
  Model *m = context;
  CHECK(bytes && bytes % m->granule == 0);
  if (bytes > m->budget) return PLN_ENOMEM;
  m->budget -= bytes;
  *data_p = aligned_alloc(256, (bytes + 255) / 256 * 256);
  memset(*data_p, 0x11, bytes);
  return PLN_OK;
}

static void device_free(void *context, char *data, size_t bytes) {
  Model *m = context;
  m->budget += bytes;
  free(data);
}

static void device_fill(void *context, char *data, size_t bytes, uint16_t word) {
  Model *m = context;
  CHECK(bytes && bytes % 2 == 0 && (uintptr_t)data % 2 == 0 && word == m->poison.word);
  m->fills++;
  m->want.poisoned_bytes += bytes;
  words(data, bytes, word);
  for (int i = 0; i < m->blocks; i++) {
    Block *b = &m->block[i];
    bool zone = b->guarded && data == b->data + zone_at(b) && data + bytes == b->data + b->bytes;
    CHECK_TEXT(b->dying || zone || !b->bytes || data >= b->data + b->bytes || b->data >= data + bytes,
               "poison hits a live block");
  }
}

static void device_guard(void *context, char *data, size_t bytes, uint16_t word, uint32_t place) {
  Model *m = context;
  bool whole = true;
  for (size_t i = 0; i < bytes; i += 2) whole = whole && memcmp(data + i, &word, 2) == 0;
  m->guards++;
  for (int i = 0; i < m->blocks; i++) {
    Block *b = &m->block[i];
    if (b->place != place) continue;
    CHECK(b->guarded && data == b->data + zone_at(b) && data + bytes == b->data + b->bytes && word == m->zone_word);
    CHECK_TEXT(whole == !b->smashed, "a red zone is judged wrong");
    return;
  }
  CHECK_TEXT(false, "a guard of no block");
}

/* --- headers, as tensor.c keeps them ------------------------------------------------------------- */

void pln_tensors_move(pln_Storage *s, const uint64_t *live) {
  for (pln_Tensor *t = s->tensors; t; t = t->sibling) {
    t->live = live;
    t->epoch = *live;
    t->object.kept = 1;
  }
}

void pln_tensors_end(pln_Storage *s) {
  for (pln_Tensor *t = s->tensors; t; t = t->sibling) t->object.kept = 0;
}

static Handle header_new(Model *m, pln_Storage *s) {
  pln_Tensor *t = pln_pool_new(&m->tensors);
  if (!t) return (Handle){NULL, 0};
  t->data = s->data;
  t->storage = s;
  t->live = &m->a.level[s->depth]->epoch;
  t->epoch = *t->live;
  t->sibling = s->tensors;
  t->sibling_p = &s->tensors;
  if (s->tensors) s->tensors->sibling_p = &t->sibling;
  s->tensors = t;
  if (s->depth < m->a.depth) {
    t->object.kept = 1;
    pln_arena_note(&m->a, s);
  }
  return (Handle){t, t->object.serial};
}

static void header_free(Model *m, pln_Tensor *t) {
  *t->sibling_p = t->sibling;
  if (t->sibling) t->sibling->sibling_p = t->sibling_p;
  t->epoch = PLN_EPOCH_FREED;
  pln_pool_free(&m->tensors, &t->object);
}

static bool header_alive(Handle h) { return pln_tensor_is(h.t, h.serial) && pln_tensor_alive(h.t); }

/* --- operations, on both ------------------------------------------------------------------------ */

/* Runs a call of the arena that must not ask the heap for anything. */
#define WITHOUT_HEAP(call)                                          \
  do {                                                              \
    pln_alloc_fail_at(0);                                           \
    call;                                                           \
    CHECK_TEXT(pln_alloc_fail_at(0) == 0, "the heap was asked");    \
  } while (0)

/* A finalizer that comes late: it must do nothing but release what stays readable. */
static void drop_stale(Model *m, int i) {
  Handle h = m->stale[i];
  m->stale[i] = m->stale[--m->stales];
  CHECK_TEXT(!header_alive(h), "a dead handle looks alive");
  m->want.stale_frees++;
  m->a.stats.stale_frees++;
  if (!m->keep || !pln_tensor_is(h.t, h.serial)) return;
  pln_Storage *s = h.t->storage;
  CHECK(s->state == PLN_STORAGE_DEAD);
  header_free(m, h.t);
  if (--s->refs == 0) pln_pool_free(&m->storages, &s->object);
}

static void model_forget(Model *m, int i) {
  Block *b = &m->block[i];
  if (b->overflow) {
    m->want.overflow_blocks--;
    m->want.overflow_bytes -= b->bytes;
  } else if (b->bytes) {
    m->want.live_blocks--;
    m->want.live_bytes -= b->bytes;
  }
  *b = m->block[--m->blocks];
}

static size_t round_block(const Model *m, size_t bytes) {
  if (bytes > SIZE_MAX / 2) bytes = SIZE_MAX / 2;
  return bytes ? (bytes + m->poison.redzone + m->granule - 1) / m->granule * m->granule : 0;
}

static size_t size_class(size_t bytes) {
  size_t step = 1;
  while (bytes / step >= 16) step *= 2;
  return bytes / step * step;
}

/* The arena overflowed or failed: nothing large enough was free, or in the request's own size class only. */
static void check_room(Model *m, size_t need) {
  size_t largest = pln_arena_largest_free(&m->a);
  CHECK(need > m->capacity - pln_arena_offset(&m->a));
  CHECK(largest < need || size_class(largest) == size_class(need));
}

static void do_alloc(Model *m, size_t bytes, bool no_overflow) {
  if (m->blocks == MAX_BLOCKS) return;
  size_t need = round_block(m, bytes), top = pln_arena_offset(&m->a);
  pln_Storage *s = NULL;
  pln_Status status = pln_arena_alloc(&m->a, bytes, no_overflow, &s);
  if (status != PLN_OK) {
    m->want.misses++;
    CHECK(status == PLN_ENOMEM && !s && (no_overflow || need > m->budget));
    CHECK(strstr(pln_error(), "bytes asked") && strstr(pln_error(), "largest free block"));
    check_room(m, need);
    return;
  }
  Block *b = &m->block[m->blocks];
  *b = (Block){.s = s, .serial = s->object.serial, .data = s->data, .asked = bytes, .bytes = s->bytes, .depth = m->depth};
  b->place = s->place = ++m->places;
  b->overflow = s->overflow;
  b->guarded = bytes && m->poison.redzone;
  CHECK(s->bytes == need && s->asked == bytes && s->refs == 1 && s->depth == m->depth && s->pins == 0 && s->captures == 0);
  CHECK(s->state == PLN_STORAGE_LIVE && s->home == PLN_HOME_ARENA && !s->tensors && s->version == 0);
  CHECK((s->data == NULL) == (bytes == 0) && (uintptr_t)s->data % m->granule == 0);
  Handle h = header_new(m, s);
  CHECK(h.t);
  b->handle[b->handles++] = h;
  pln_ArenaStats *w = &m->want;
  w->allocs++;
  if (bytes > m->largest[m->depth]) m->largest[m->depth] = bytes;
  if (bytes > w->largest_alloc) w->largest_alloc = bytes;
  if (b->overflow) {
    CHECK(!no_overflow);
    check_room(m, need);
    w->misses++;
    w->overflow_blocks++;
    w->overflow_bytes += need;
    if (w->overflow_bytes > w->overflow_high_water) w->overflow_high_water = w->overflow_bytes;
    if (!m->first_overflow[m->depth]) m->first_overflow[m->depth] = bytes;
  } else if (bytes) {
    CHECK(b->data >= m->base + m->begin[m->depth] && end_of(m, b) <= m->capacity);
    if (b->data < m->base + top) w->reuses++;
    w->live_blocks++;
    w->live_bytes += need;
    if (end_of(m, b) > m->touched[m->depth]) m->touched[m->depth] = end_of(m, b);
    if (end_of(m, b) > w->high_water) w->high_water = end_of(m, b);
  }
  m->blocks++;
  if (m->poison.on_alloc) {
    model_fill(m, b, 0);
    for (size_t i = 0; i + 2 <= bytes; i += 2) CHECK(memcmp(b->data + i, &m->poison.word, 2) == 0);
  } else if (b->guarded) {
    model_fill(m, b, zone_at(b));
  }
  if (below(4)) write_block(m, b);
}

/* `call` makes the arena free block i, which is still listed so that the device knows it. */
static void freeing(Model *m, int i, void (*call)(pln_Arena *, pln_Storage *)) {
  Block *b = &m->block[i];
  uint64_t guards = m->guards + (b->guarded && m->poison.redzone), fills = m->fills + (b->bytes && m->poison.on_free);
  b->dying = true;
  if (m->poison.on_free) model_fill(m, b, 0);
  m->want.frees++;
  WITHOUT_HEAP(call(&m->a, b->s));
  CHECK(m->guards == guards && m->fills == fills);
  model_forget(m, i);
}

static void do_release(Model *m, int i, bool all) {
  Block *b = &m->block[i];
  while (b->handles) {
    Handle h = b->handle[--b->handles];
    header_free(m, h.t);
    b->s->refs--;
    if (m->stales < MAX_STALE && !m->keep) m->stale[m->stales++] = h; /* a double free later */
    if (!all) break;
  }
  if (b->handles) return;
  if (held(b))
    pln_arena_free(&m->a, b->s);
  else
    freeing(m, i, pln_arena_free);
}

static void do_hold(Model *m, int i, bool pin) {
  Block *b = &m->block[i];
  pln_ArenaStats *w = &m->want;
  if (!b->handles) return;
  if (!held(b)) w->pinned_bytes += b->bytes;
  if (w->pinned_bytes > w->pinned_high_water) w->pinned_high_water = w->pinned_bytes;
  if (pin) {
    b->pins++;
    w->pins++;
    WITHOUT_HEAP(pln_arena_pin(&m->a, b->s));
  } else {
    b->captures++;
    WITHOUT_HEAP(pln_arena_capture(&m->a, b->s));
  }
}

static void do_let_go(Model *m, int i, bool pin) {
  Block *b = &m->block[i];
  pln_ArenaStats *w = &m->want;
  if (!(pin ? b->pins : b->captures)) return;
  if (pin) {
    b->pins--;
    w->pins--;
  } else {
    b->captures--;
  }
  void (*call)(pln_Arena *, pln_Storage *) = pin ? pln_arena_unpin : pln_arena_uncapture;
  if (!held(b)) w->pinned_bytes -= b->bytes;
  if (held(b) || b->handles) {
    WITHOUT_HEAP(call(&m->a, b->s));
    return;
  }
  w->deferred_frees++;
  freeing(m, i, call);
}

static void do_view(Model *m, int i) {
  Block *b = &m->block[i];
  if (!b->handles || b->handles == MAX_HANDLES) return;
  b->s->refs++;
  b->handle[b->handles] = header_new(m, b->s);
  CHECK(b->handle[b->handles].t);
  b->handles++;
}

static void do_end(Model *m, int to) {
  int depth = m->depth;
  bool close = to < depth;
  uint64_t guards = m->guards, fills = m->fills, most = 1;
  size_t kept_end = m->begin[depth];
  for (int i = 0; i < m->blocks; i++) {
    Block *b = &m->block[i];
    if (b->depth != depth) continue;
    b->dying = !held(b);
    guards += b->guarded && m->poison.redzone;
    most += b->dying ? b->overflow : inside(b);
    if (inside(b) && !b->dying && end_of(m, b) > kept_end) kept_end = end_of(m, b);
  }
  if (m->poison.on_reset) {
    model_fill_level(m, depth);
    m->touched[depth] = kept_end;
  }
  if (close) {
    WITHOUT_HEAP(pln_arena_scope_close(&m->a));
    m->depth = to;
    if (m->touched[depth] > m->touched[to]) m->touched[to] = m->touched[depth];
    if (m->largest[depth] > m->largest[to]) m->largest[to] = m->largest[depth];
  } else {
    m->want.resets++;
    WITHOUT_HEAP(pln_arena_reset(&m->a));
    m->allocs_before[depth] = m->want.allocs;
    m->largest[depth] = m->first_overflow[depth] = 0;
  }
  CHECK(m->guards == guards && m->fills - fills <= (m->poison.on_reset ? most : 0));
  for (int i = m->blocks; i-- > 0;) {
    Block *b = &m->block[i];
    if (b->depth != depth) continue;
    b->depth = to;
    if (!b->dying) continue;
    for (int k = 0; k < b->handles; k++) {
      if (m->stales == MAX_STALE) drop_stale(m, (int)below(MAX_STALE));
      m->stale[m->stales++] = b->handle[k];
    }
    model_forget(m, i);
  }
}

static void do_open(Model *m) {
  size_t begin = pln_arena_offset(&m->a);
  if (m->depth == PLN_MAX_DEPTH - 1) {
    CHECK(pln_arena_scope_open(&m->a) == PLN_EARG);
    return;
  }
  CHECK(pln_arena_scope_open(&m->a) == PLN_OK);
  int d = ++m->depth;
  m->begin[d] = m->touched[d] = begin;
  m->largest[d] = m->first_overflow[d] = 0;
  m->allocs_before[d] = m->want.allocs;
}

static void set_poison(Model *m, pln_Poison p) {
  bool fills = p.on_alloc && !m->poison.on_alloc, renews = p.word != m->poison.word;
  uint64_t guards = m->guards;
  for (int i = 0; i < m->blocks && renews; i++) guards += m->block[i].guarded && m->poison.redzone;
  m->poison = p;
  pln_arena_poison(&m->a, &p);
  m->zone_word = p.word;
  CHECK(m->guards == guards);
  for (int i = 0; i < m->blocks && renews; i++)
    if (m->block[i].guarded) {
      model_fill(m, &m->block[i], zone_at(&m->block[i]));
      m->block[i].smashed = false;
    }
  if (!fills) return;
  char *old = malloc(m->capacity);
  memcpy(old, m->shadow, m->capacity);
  words(m->shadow, m->capacity, p.word);
  for (int i = 0; i < m->blocks; i++)
    if (inside(&m->block[i])) {
      size_t at = (size_t)(m->block[i].data - m->base);
      memcpy(m->shadow + at, old + at, m->block[i].bytes);
    }
  free(old);
}

static void do_poison(Model *m) {
  pln_Poison p = {below(2), below(2), below(2), below(2) ? 0x7ff8 : 0x1234, below(2) ? 2 * (uint32_t)below(80) : 0};
  set_poison(m, p);
}

/* A write past the end of a tensor. */
static void do_smash(Model *m, int i) {
  Block *b = &m->block[i];
  if (!b->guarded || b->smashed) return;
  size_t at = zone_at(b) + below(b->bytes - zone_at(b));
  b->smashed = true;
  b->data[at] ^= 0x40;
  if (inside(b)) *shadow_of(m, b->data + at) ^= 0x40;
}

#endif
