/* SPDX-License-Identifier: MIT
** engine.c -- life of runtimes and engines, epochs and their log, errors of the stream, host access.
*/
#include "engine.h"

#include <stdio.h>
#include <string.h>

#include "alloc.h"
#include "autograd/tape.h"
#include "capture.h"
#include "place.h"
#include "plan.h"

/* --- runtime ------------------------------------------------------------------------------------ */

pln_Runtime *pln_runtime_new(void) {
  pln_Runtime *r = pln_calloc(1, sizeof *r);
  if (!r) return NULL;
  r->holds = 1;
  r->tensor_slabs = pln_slabs_new(sizeof(pln_Tensor));
  r->storage_slabs = pln_slabs_new(sizeof(pln_Storage));
  if (!r->tensor_slabs || !r->storage_slabs) {
    pln_runtime_drop(r);
    return NULL;
  }
  return r;
}

void pln_runtime_hold(pln_Runtime *r) { r->holds++; }

void pln_runtime_drop(pln_Runtime *r) {
  if (--r->holds) return;
  for (uint32_t i = 0; i < r->nengines; i++) {
    pln_EngineRecord *record = r->engines[i];
    if (record->engine) (void)pln_engine_close(record->engine, 0);
    pln_mfree(record->log);
    pln_mfree(record->survivor);
    pln_mfree(record);
  }
  pln_mfree(r->engines);
  pln_slabs_free(r->tensor_slabs);
  pln_slabs_free(r->storage_slabs);
  pln_mfree(r);
}

static pln_EngineRecord *record_new(pln_Runtime *r, pln_Engine *e, const char *kind) {
  if (r->nengines == UINT16_MAX) {
    (void)pln_fail(PLN_ENOMEM, "more than %d engines were made in this Lua state", UINT16_MAX);
    return NULL;
  }
  if (r->nengines == r->capengines) {
    uint32_t cap = r->capengines ? 2 * r->capengines : 8;
    pln_EngineRecord **all = pln_realloc(r->engines, cap * sizeof *all);
    if (!all) return NULL;
    r->engines = all;
    r->capengines = cap;
  }
  pln_EngineRecord *record = pln_calloc(1, sizeof *record);
  if (!record) return NULL;
  record->engine = e;
  snprintf(record->kind, sizeof record->kind, "%s", kind);
  e->id = (uint16_t)r->nengines;
  r->engines[r->nengines++] = record;
  return record;
}

static pln_EngineRecord *record_of(const pln_Engine *e) { return e->runtime->engines[e->id]; }

/* Ends a run in the log, or lengthens the last one. Without memory the log stays short, which only costs the place in a message. */
static void log_reset(pln_Engine *e, uint32_t place, int kind, uint64_t epoch) {
  pln_EngineRecord *r = record_of(e);
  if (!r->log && !(r->log = pln_malloc(PLN_RESET_LOG * sizeof *r->log))) return;
  pln_ResetEntry entry = {e->runtime->serial, epoch, place, (uint16_t)e->depth, (uint16_t)kind};
  if (r->nlog) {
    pln_ResetEntry *last = &r->log[(r->log_begin + r->nlog - 1) % PLN_RESET_LOG];
    if (last->place == place && last->depth == entry.depth && last->kind == entry.kind) {
      last->serial = entry.serial;
      last->epoch = epoch;
      return;
    }
  }
  if (r->nlog == PLN_RESET_LOG)
    r->log_begin = (r->log_begin + 1) % PLN_RESET_LOG;
  else
    r->nlog++;
  r->log[(r->log_begin + r->nlog - 1) % PLN_RESET_LOG] = entry;
}

void pln_engine_survivor_ended(pln_Engine *e, const pln_Tensor *t) {
  pln_EngineRecord *r = record_of(e);
  if (!r->nlog || (!r->survivor && !(r->survivor = pln_calloc(PLN_SURVIVOR_LOG, sizeof *r->survivor)))) return;
  pln_ResetEntry *entry = &r->survivor[r->nsurvivor++ % PLN_SURVIVOR_LOG];
  *entry = r->log[(r->log_begin + r->nlog - 1) % PLN_RESET_LOG];
  entry->serial = t->object.serial;
}

/* --- engine ------------------------------------------------------------------------------------- */

static pln_Status arena_alloc(void *e, size_t bytes, char **data_p) {
  return ((pln_Engine *)e)->backend->alloc(e, bytes, data_p);
}
static void arena_free(void *e, char *data, size_t bytes) { ((pln_Engine *)e)->backend->free(e, data, bytes); }
static void arena_fill(void *e, char *data, size_t bytes, uint16_t word) {
  ((pln_Engine *)e)->backend->fill(e, data, bytes, word);
}
static void arena_guard(void *e, char *data, size_t bytes, uint16_t word, uint32_t place) {
  ((pln_Engine *)e)->backend->guard(e, data, bytes, word, place);
}

static pln_Status arena_open(pln_Engine *e) {
  const pln_EngineOptions *o = &e->options;
  size_t capacity = (o->arena + e->backend->granule - 1) / e->backend->granule * e->backend->granule;
  pln_Status status = e->backend->alloc(e, capacity, &e->arena_base);
  if (status != PLN_OK)
    return status != PLN_ENOMEM ? status : pln_fail(PLN_ENOMEM, "out of memory: the arena asked for %zu bytes", capacity);
  pln_ArenaDevice device = {e, arena_alloc, arena_free, arena_fill, arena_guard};
  status = pln_arena_init(&e->arena, e->arena_base, capacity, e->backend->granule, &device, &e->storages, &e->tensors, e);
  if (status != PLN_OK) return status;
  e->has_arena = 1;
  e->arena.keep_headers = o->stale_allow;
  pln_arena_poison(&e->arena, &o->poison);
  return PLN_OK;
}

pln_Status pln_engine_new(pln_Runtime *r, const pln_Backend *backend, const pln_EngineOptions *options, pln_Engine **e_p) {
  if (options->arena && options->arena < PLN_ARENA_MIN)
    return pln_fail(PLN_EARG, "an arena has at least %d bytes, %zu asked", PLN_ARENA_MIN, options->arena);
  pln_Engine *e = pln_calloc(1, sizeof *e);
  if (!e) return pln_fail(PLN_ENOMEM, "out of memory for an engine");
  e->backend = backend;
  e->runtime = r;
  e->options = *options;
  e->forever = 1;
  e->test = options->test;
  e->late = options->late;
  e->hooks = options->places ? PLN_HOOK_PLACES : 0;
  pln_pool_init(&e->tensors, r->tensor_slabs, &r->serial);
  pln_pool_init(&e->storages, r->storage_slabs, &r->serial);
  pln_pool_init(&e->own_tensors, r->tensor_slabs, &r->serial);
  pln_pool_init(&e->own_storages, r->storage_slabs, &r->serial);
  pln_EngineRecord *record = record_new(r, e, options->kind);
  if (!record) {
    pln_mfree(e);
    return pln_fail(PLN_ENOMEM, "out of memory for an engine");
  }
  e->options.kind = record->kind;
  pln_Status status = backend->open(e, options->ordinal);
  if (status == PLN_OK && options->arena) {
    status = arena_open(e);
    if (status != PLN_OK && !e->has_arena && e->arena_base) {
      size_t capacity = (options->arena + backend->granule - 1) / backend->granule * backend->granule;
      backend->free(e, e->arena_base, capacity);
    }
  }
  if (status != PLN_OK) {
    if (e->device) backend->close(e);
    record->engine = NULL;
    pln_pool_close(&e->tensors);
    pln_pool_close(&e->storages);
    pln_pool_close(&e->own_tensors);
    pln_pool_close(&e->own_storages);
    pln_mfree(e);
    return status;
  }
  *e_p = e;
  return PLN_OK;
}

pln_Status pln_engine_close(pln_Engine *e, uint32_t place) {
  e->runtime->ends++;
  if (e->capture) pln_capture_abort(e->capture); /* the Lua state ends while it records */
  pln_Status status = pln_engine_sync(e);
  while (e->captures) pln_capture_release(e->captures, place);
  pln_tape_close(e);
  pln_EngineRecord *record = record_of(e);
  record->engine = NULL;
  record->closed_place = place;
  for (pln_Storage *s = e->owned; s; s = s->next)
    if (s->data) e->backend->free(e, s->data, s->bytes);
  if (e->has_arena) {
    size_t capacity = e->arena.capacity;
    pln_arena_close(&e->arena);
    e->backend->free(e, e->arena_base, capacity);
  }
  pln_plans_free(e);
  e->backend->close(e);
  pln_pool_close(&e->tensors);
  pln_pool_close(&e->storages);
  pln_pool_close(&e->own_tensors);
  pln_pool_close(&e->own_storages);
  pln_mfree(e);
  return status;
}

/* --- errors of the stream ----------------------------------------------------------------------- */

static void record_error(pln_Engine *e, const pln_StreamError *error) {
  while (__atomic_exchange_n(&e->error_lock, 1, __ATOMIC_ACQUIRE)) {}
  bool replaces = !e->error.set || (e->error.call == error->call && error->position < e->error.position);
  if (replaces) {
    e->error = *error;
    e->error.set = 1;
  }
  __atomic_store_n(&e->error_lock, 0, __ATOMIC_RELEASE);
}

void pln_call_fault(const pln_Call *c, int input, int64_t position, int64_t value, int64_t lo, int64_t hi) {
  pln_StreamError error = {.kind = 0, .op = c->op, .input = input, .place = c->place, .position = position,
                           .value = value, .lo = lo, .hi = hi, .call = c->number};
  record_error(c->engine, &error);
}

void pln_engine_guard_fault(pln_Engine *e, uint32_t place, int64_t position) {
  pln_StreamError error = {.kind = 1, .place = place, .position = position, .call = e->calls};
  record_error(e, &error);
}

pln_Status pln_engine_raise(pln_Engine *e) {
  if (PLN_LIKELY(!e->error.set)) return PLN_OK;
  pln_StreamError x = e->error;
  e->error.set = 0;
  char place[PLN_PLACE_TEXT];
  pln_place_text(x.place, place);
  const char *hint = x.place ? "" : " (eng:places(true) records the lines)";
  if (x.kind == 1)
    return pln_fail(PLN_EREDZONE, "memory was written past the end of the tensor made at %s (byte %lld of its red zone)%s", place,
                    (long long)x.position, hint);
  const pln_OpDef *op = &pln_ops[x.op];
  const char *name = "operand";
  for (int i = 0; i < op->nslots; i++)
    if (op->slot[i].kind <= PLN_SLOT_TENSORS && op->slot[i].index == x.input) name = op->slot[i].name;
  if (x.lo > x.hi) /* no valid range: the value itself is the fault */
    return pln_fail(PLN_EDATA, "%s (at %s): element %lld of '%s' is %lld, which is not allowed%s", op->name, place,
                    (long long)x.position + 1, name, (long long)x.value, hint);
  return pln_fail(PLN_EDATA, "%s (at %s): element %lld of '%s' is %lld, valid are %lld to %lld%s%s", op->name, place,
                  (long long)x.position + 1, name, (long long)x.value, (long long)x.lo, (long long)x.hi,
                  x.value == 0 && x.lo == 1 ? "; indices start at 1" : "", hint);
}

pln_Status pln_engine_sync(pln_Engine *e) {
  PLN_TRY(pln_capture_refuse(e, "waiting for the stream"));
  PLN_TRY(e->backend->wait(e));
  return pln_engine_raise(e);
}

/* --- epochs ------------------------------------------------------------------------------------- */

pln_Status pln_engine_reset(pln_Engine *e, uint32_t place) {
  PLN_TRY(pln_capture_refuse(e, "a reset"));
  e->count_resets++;
  e->runtime->ends++;
  if (e->has_arena) {
    log_reset(e, place, 0, pln_arena_level(&e->arena)->epoch);
    pln_tape_reset(e);
    pln_arena_reset(&e->arena);
    e->overflow_reported = false;
  }
  return pln_engine_raise(e);
}

pln_Status pln_engine_scope_open(pln_Engine *e, uint32_t place) {
  PLN_TRY(pln_capture_refuse(e, "a scope"));
  if (e->depth + 1 >= PLN_MAX_DEPTH) return pln_fail(PLN_EARG, "scopes are nested more than %d deep", PLN_MAX_DEPTH - 1);
  if (e->has_arena) {
    PLN_TRY(pln_arena_scope_open(&e->arena));
    pln_arena_level(&e->arena)->place = place;
  }
  e->depth++;
  return PLN_OK;
}

pln_Status pln_engine_scope_close(pln_Engine *e, uint32_t place) {
  if (e->depth == 0) return pln_fail(PLN_EARG, "no scope is open");
  e->runtime->ends++;
  if (e->has_arena) {
    log_reset(e, place, 1, pln_arena_level(&e->arena)->epoch);
    pln_arena_scope_close(&e->arena);
  }
  e->depth--;
  return PLN_OK;
}

pln_Status pln_engine_pin(pln_Engine *e, pln_Tensor *t) {
  (void)e;
  if (t->storage->pins == UINT32_MAX) return pln_fail(PLN_EPIN, "too many pins");
  pln_storage_pin(t->storage);
  return PLN_OK;
}

pln_Status pln_engine_unpin(pln_Engine *e, pln_Tensor *t) {
  (void)e;
  if (t->storage->pins <= pln_storage_tape_pins(t->storage))
    return pln_fail(PLN_EPIN, "the tensor is not pinned (one unpin too many)");
  pln_storage_unpin(t->storage);
  return PLN_OK;
}

pln_Status pln_engine_poison(pln_Engine *e, const pln_Poison *poison) {
  e->options.poison = *poison;
  if (e->has_arena) pln_arena_poison(&e->arena, poison);
  return PLN_OK;
}

void pln_engine_tombstone(pln_Engine *e, pln_Tensor *t) {
  uint32_t at = e->tomb++ % PLN_TOMBSTONES;
  pln_Tensor *old = e->tombs[at].t;
  if (old && old->object.serial == e->tombs[at].serial && old->epoch == PLN_EPOCH_FREED && old->live != &e->forever)
    pln_pool_free(&e->tensors, &old->object);
  e->tombs[at].t = t;
  e->tombs[at].serial = t->object.serial;
}

/* --- host access -------------------------------------------------------------------------------- */

pln_Status pln_tensor_write(pln_Tensor *t, const void *host) {
  pln_Engine *e = t->engine;
  PLN_TRY(pln_capture_refuse(e, "writing values to a tensor"));
  if (!t->numel) return PLN_OK;
  size_t bytes = (size_t)t->numel * (size_t)pln_dtype_size(t->dtype);
  if (t->contiguous) {
    PLN_TRY(e->backend->upload(e, t->data, host, bytes));
  } else {
    pln_Tensor *staged;
    pln_Shape shape = pln_tensor_shape(t);
    PLN_TRY(pln_tensor_result(e, t->dtype, &shape, &staged));
    pln_Status status = e->backend->upload(e, staged->data, host, bytes);
    if (status == PLN_OK) status = pln_copy_into(e, t, staged);
    pln_tensor_release(staged);
    PLN_TRY(status);
  }
  pln_tensor_written(t, PLN_OP_copy, 0);
  return PLN_OK;
}

pln_Status pln_tensor_read(pln_Tensor *t, void *host) {
  pln_Engine *e = t->engine;
  PLN_TRY(pln_capture_refuse(e, "reading a tensor"));
  if (!t->numel) return pln_engine_sync(e);
  size_t bytes = (size_t)t->numel * (size_t)pln_dtype_size(t->dtype);
  if (t->contiguous) {
    PLN_TRY(e->backend->download(e, host, t->data, bytes));
    return pln_engine_raise(e);
  }
  pln_Tensor *packed;
  pln_Shape shape = pln_tensor_shape(t);
  /* owned, not in the arena: reading must not change what the next ops find there */
  PLN_TRY(pln_tensor_new(e, PLN_HOME_OWNED, t->dtype, &shape, &packed));
  pln_Status status = pln_copy_into(e, packed, t);
  if (status == PLN_OK) status = e->backend->download(e, host, packed->data, bytes);
  pln_tensor_release(packed);
  PLN_TRY(status);
  return pln_engine_raise(e);
}

pln_Status pln_tensor_read_at(pln_Tensor *t, int64_t offset, void *host) {
  pln_Engine *e = t->engine;
  PLN_TRY(pln_capture_refuse(e, "reading a tensor"));
  int size = pln_dtype_size(t->dtype);
  PLN_TRY(e->backend->download(e, host, t->data + offset * size, (size_t)size));
  return pln_engine_raise(e);
}

pln_Status pln_tensor_write_at(pln_Tensor *t, int64_t offset, const void *host) {
  pln_Engine *e = t->engine;
  PLN_TRY(pln_capture_refuse(e, "writing values to a tensor"));
  int size = pln_dtype_size(t->dtype);
  PLN_TRY(e->backend->upload(e, t->data + offset * size, host, (size_t)size));
  pln_tensor_written(t, PLN_OP_copy, 0);
  return PLN_OK;
}
