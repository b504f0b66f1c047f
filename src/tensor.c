/* SPDX-License-Identifier: MIT
** tensor.c -- headers and the storages they show. Arena headers come from pools that resets rewind, those of persistent and
** owned storages from pools of their own.
*/
#include "tensor.h"

#include <string.h>

#include "autograd/tape.h"
#include "capture.h"
#include "fault.h"
#include "plan.h"

static void link_header(pln_Tensor *t, pln_Storage *s) {
  t->storage = s;
  t->sibling = s->tensors;
  t->sibling_p = &s->tensors;
  if (s->tensors) s->tensors->sibling_p = &t->sibling;
  s->tensors = t;
}

static void unlink_header(pln_Tensor *t) {
  *t->sibling_p = t->sibling;
  if (t->sibling) t->sibling->sibling_p = t->sibling_p;
}

static void header_init(pln_Tensor *t, pln_Engine *e) {
  t->engine = e;
  t->requires_grad = 0;
  t->place = 0;
  t->refs = 1;
  t->output = t->layout = 0;
  t->node = NULL;
}

static void storage_list(pln_Engine *e, pln_Storage *s) {
  s->prev = NULL;
  s->next = e->owned;
  if (e->owned) e->owned->prev = s;
  e->owned = s;
}

static void storage_unlist(pln_Engine *e, pln_Storage *s) {
  if (s->prev)
    s->prev->next = s->next;
  else
    e->owned = s->next;
  if (s->next) s->next->prev = s->prev;
}

static pln_Status own_storage(pln_Engine *e, pln_Home home, size_t bytes, pln_Storage **s_p) {
  pln_Storage *s = pln_pool_new(&e->own_storages);
  if (!s) return pln_fail(PLN_ENOMEM, "out of memory for a tensor's header");
  char *data = NULL;
  size_t rounded = (bytes + e->backend->granule - 1) / e->backend->granule * e->backend->granule;
  if (bytes) {
    pln_Status status = e->backend->alloc(e, rounded, &data);
    if (status != PLN_OK) {
      pln_pool_free(&e->own_storages, &s->object);
      return status != PLN_ENOMEM ? status
             : pln_fail(PLN_ENOMEM, "out of memory: %zu bytes asked, %llu bytes in use outside the arena", bytes,
                        (unsigned long long)e->owned_bytes);
    }
    if (e->options.poison.on_alloc) e->backend->fill(e, data, rounded, e->options.poison.word);
  }
  s->data = data;
  s->bytes = rounded;
  s->asked = bytes;
  s->tensors = NULL;
  s->version = 0;
  s->version_op = 0;
  s->engine = e;
  s->pins = s->captures = 0;
  s->refs = 1;
  s->depth = 0;
  s->state = PLN_STORAGE_LIVE;
  s->home = (uint8_t)home;
  s->overflow = s->survivor = 0;
  s->place = 0;
  storage_list(e, s);
  e->owned_bytes += rounded;
  e->owned_since += rounded;
  *s_p = s;
  return PLN_OK;
}

static void own_storage_free(pln_Engine *e, pln_Storage *s) {
  storage_unlist(e, s);
  if (s->data) {
    if (e->options.poison.on_free) e->backend->fill(e, s->data, s->bytes, e->options.poison.word);
    e->backend->free(e, s->data, s->bytes);
  }
  e->owned_bytes -= s->bytes;
  s->data = NULL;
  s->state = PLN_STORAGE_FREE;
  pln_pool_free(&e->own_storages, &s->object);
}

static void storage_free(pln_Engine *e, pln_Storage *s) {
  if (PLN_UNLIKELY(e->capture != NULL) && pln_capture_idle(e->capture, s)) return;
  if (s->home == PLN_HOME_ARENA) {
    if (s->state == PLN_STORAGE_DEAD)
      pln_pool_free(&e->storages, &s->object);
    else
      pln_arena_free(&e->arena, s);
  } else if (!pln_storage_held(s)) {
    own_storage_free(e, s);
  }
}

/* On a header whose shape is already set. */
static void header_place(pln_Tensor *t, pln_Storage *s) {
  link_header(t, s);
  if (s->home == PLN_HOME_ARENA) {
    t->live = &s->engine->arena.level[s->depth]->epoch;
    t->epoch = *t->live;
  } else {
    t->live = &s->engine->forever;
    t->epoch = s->engine->forever;
  }
}

/* A header on memory of its own, without dtype and shape. */
static inline pln_Status new_header(pln_Engine *e, pln_Home home, size_t bytes, pln_Tensor **t_p) {
  bool arena = home == PLN_HOME_ARENA;
  pln_Pool *pool = arena ? &e->tensors : &e->own_tensors;
  pln_Tensor *t = pln_pool_new(pool);
  if (PLN_UNLIKELY(!t)) return pln_fail(PLN_ENOMEM, "out of memory for a tensor's header");
  pln_Storage *s = PLN_UNLIKELY(e->capture != NULL) ? pln_capture_again(e->capture, home, bytes) : NULL;
  pln_Status status = PLN_OK;
  if (PLN_LIKELY(!s)) status = arena ? pln_arena_alloc(&e->arena, bytes, e->capture != NULL, &s) : own_storage(e, home, bytes, &s);
  if (PLN_UNLIKELY(status != PLN_OK)) {
    pln_pool_free(pool, &t->object);
    return status;
  }
  if (PLN_UNLIKELY(s->overflow)) {
    e->owned_since += s->bytes;
    if (!e->overflow_reported) e->hooks |= PLN_HOOK_REPORT;
    e->overflow_reported = true;
  }
  header_init(t, e);
  t->data = s->data;
  header_place(t, s);
  if (PLN_UNLIKELY(e->capture != NULL) && PLN_UNLIKELY((status = pln_capture_made(e->capture, s)) != PLN_OK)) {
    pln_tensor_release(t);
    return status;
  }
  *t_p = t;
  return PLN_OK;
}

pln_Status pln_tensor_new(pln_Engine *e, pln_Home home, pln_DType dtype, const pln_Shape *shape, pln_Tensor **t_p) {
  if (home == PLN_HOME_ARENA && !e->has_arena) home = PLN_HOME_OWNED;
  int64_t numel;
  pln_Tensor *t = NULL;
  PLN_TRY(pln_shape_numel(shape, pln_dtype_size(dtype), &numel));
  PLN_TRY(new_header(e, home, (size_t)numel * (size_t)pln_dtype_size(dtype), &t));
  t->numel = numel;
  t->dtype = (uint8_t)dtype;
  t->ndim = (uint8_t)shape->ndim;
  t->contiguous = 1;
  int64_t step = 1;
  for (int i = shape->ndim - 1; i >= 0; i--) {
    t->shape[i] = shape->size[i];
    t->stride[i] = step;
    step *= shape->size[i] ? shape->size[i] : 1;
  }
  *t_p = t;
  return PLN_OK;
}

static inline void set_layout(pln_Tensor *t, const pln_Layout *l) {
  t->layout = l->number;
  t->dtype = l->dtype;
  t->ndim = l->ndim;
  t->contiguous = l->contiguous;
  t->numel = l->numel;
  memcpy(t->shape, l->shape, sizeof t->shape); /* whole: a loop costs more */
  memcpy(t->stride, l->stride, sizeof t->stride);
}

pln_Status pln_tensor_planned(pln_Engine *e, const pln_Layout *layout, pln_Tensor **t_p) {
  PLN_TRY(new_header(e, e->has_arena ? PLN_HOME_ARENA : PLN_HOME_OWNED, layout->bytes, t_p));
  set_layout(*t_p, layout);
  return PLN_OK;
}

pln_Status pln_tensor_result(pln_Engine *e, pln_DType dtype, const pln_Shape *shape, pln_Tensor **t_p) {
  return pln_tensor_new(e, PLN_HOME_ARENA, dtype, shape, t_p);
}

/* A header on base's memory, without dtype, shape and address. */
static inline pln_Status view_header(pln_Tensor *base, pln_Tensor **t_p) {
  pln_Storage *s = base->storage;
  pln_Engine *e = base->engine;
  if (PLN_UNLIKELY(e->capture != NULL)) PLN_TRY(pln_capture_hold(e->capture, s));
  pln_Tensor *t = pln_pool_new(s->home == PLN_HOME_ARENA ? &e->tensors : &e->own_tensors);
  if (PLN_UNLIKELY(!t)) return pln_fail(PLN_ENOMEM, "out of memory for a tensor's header");
  header_init(t, e);
  s->refs++;
  link_header(t, s);
  t->live = base->live; /* shares the base's epoch, a dead one too (stale = "allow") */
  t->epoch = base->epoch;
  /* the header lies beyond the mark of its storage's level: keep it when the inner scope's end rewinds the pool */
  if (s->home == PLN_HOME_ARENA && s->depth < e->arena.depth) {
    t->object.kept = 1;
    pln_arena_note(&e->arena, s);
  }
  *t_p = t;
  return PLN_OK;
}

pln_Status pln_tensor_view_planned(pln_Tensor *base, const pln_Layout *layout, ptrdiff_t offset, pln_Tensor **t_p) {
  PLN_TRY(view_header(base, t_p));
  set_layout(*t_p, layout);
  (*t_p)->data = base->data + offset;
  return PLN_OK;
}

pln_Status pln_tensor_view(pln_Tensor *base, const pln_Shape *shape, const int64_t *stride, int64_t offset, pln_Tensor **t_p) {
  pln_Tensor *t = NULL;
  PLN_TRY(view_header(base, &t));
  t->dtype = base->dtype;
  t->ndim = (uint8_t)shape->ndim;
  int64_t numel = 1;
  for (int i = 0; i < shape->ndim; i++) {
    t->shape[i] = shape->size[i];
    t->stride[i] = stride[i];
    numel *= shape->size[i];
  }
  t->numel = numel;
  t->data = base->data ? base->data + offset * pln_dtype_size(base->dtype) : NULL;
  t->contiguous = pln_shape_is_contiguous(shape->ndim, t->shape, t->stride);
  *t_p = t;
  return PLN_OK;
}

void pln_tensor_retain(pln_Tensor *t) { t->refs++; }

void pln_tensor_release(pln_Tensor *t) {
  if (--t->refs) return;
  pln_Engine *e = t->engine;
  pln_Storage *s = t->storage;
  if (t->node) pln_tape_header_gone(t);
  if (s) { /* else it was freed by hand before */
    unlink_header(t);
    t->storage = NULL;
    if (--s->refs == 0) storage_free(e, s);
  }
  pln_pool_free(t->live == &e->forever ? &e->own_tensors : &e->tensors, &t->object);
}

pln_Status pln_tensor_free(pln_Tensor *t, uint32_t place) {
  pln_Storage *s = t->storage;
  pln_Engine *e = t->engine;
  if (s->captures) return pln_fail(PLN_EPIN, "the tensor is used by a capture");
  if (s->pins)
    return pln_fail(PLN_EPIN, "the tensor's block is pinned or saved for a backward pass (%u pin%s)", s->pins,
                    s->pins == 1 ? "" : "s");
  e->runtime->ends++;
  while (s->tensors) {
    pln_Tensor *h = s->tensors;
    if (h->node) pln_tape_header_gone(h);
    unlink_header(h);
    h->storage = NULL;
    h->epoch = PLN_EPOCH_FREED;
    h->place = place;
    pln_engine_tombstone(e, h);
  }
  s->refs = 0;
  storage_free(e, s);
  return PLN_OK;
}

void pln_tensors_move(pln_Storage *s, const uint64_t *live) {
  for (pln_Tensor *t = s->tensors; t; t = t->sibling) {
    t->live = live;
    t->epoch = *live;
    t->object.kept = 1;
  }
}

void pln_tensors_end(pln_Storage *s) {
  for (pln_Tensor *t = s->tensors; t; t = t->sibling) {
    t->object.kept = 0;
    pln_engine_survivor_ended(s->engine, t);
  }
}

bool pln_tensor_overlaps(const pln_Tensor *a, const pln_Tensor *b) {
  if (a->storage != b->storage || !a->numel || !b->numel) return false;
  int64_t alo, ahi, blo, bhi;
  pln_shape_extent(a->ndim, a->shape, a->stride, &alo, &ahi);
  pln_shape_extent(b->ndim, b->shape, b->stride, &blo, &bhi);
  int as = pln_dtype_size(a->dtype), bs = pln_dtype_size(b->dtype);
  return a->data + alo * as < b->data + (bhi + 1) * bs && b->data + blo * bs < a->data + (ahi + 1) * as;
}

bool pln_tensor_same_view(const pln_Tensor *a, const pln_Tensor *b) {
  if (a->data != b->data || a->dtype != b->dtype || a->ndim != b->ndim) return false;
  for (int i = 0; i < a->ndim; i++)
    if (a->shape[i] != b->shape[i] || (a->shape[i] > 1 && a->stride[i] != b->stride[i])) return false;
  return true;
}

void pln_storage_pin(pln_Storage *s) {
  if (!PLN_CHECKED) return;
  pln_Engine *e = s->engine;
  e->count_pins++;
  if (s->home == PLN_HOME_ARENA)
    pln_arena_pin(&e->arena, s);
  else
    s->pins++;
}

void pln_storage_unpin(pln_Storage *s) {
  if (!PLN_CHECKED) return;
  pln_Engine *e = s->engine;
  e->count_pins--;
  if (s->home == PLN_HOME_ARENA)
    pln_arena_unpin(&e->arena, s);
  else if (--s->pins == 0 && !s->captures && s->refs == 0)
    own_storage_free(e, s);
}

void pln_storage_capture(pln_Storage *s) {
  if (PLN_FAULT(capture_unheld)) return;
  if (s->home == PLN_HOME_ARENA)
    pln_arena_capture(&s->engine->arena, s);
  else
    s->captures++;
}

void pln_storage_uncapture(pln_Storage *s) {
  if (PLN_FAULT(capture_unheld)) return;
  if (s->home == PLN_HOME_ARENA)
    pln_arena_uncapture(&s->engine->arena, s);
  else if (--s->captures == 0 && !s->pins && s->refs == 0)
    own_storage_free(s->engine, s);
}
