/* SPDX-License-Identifier: MIT
** handle.c -- tensor and engine values, places, and errors: the one place from which the module throws.
*/
#include "binding.h"

#include <stdio.h>
#include <string.h>

/* --- errors ------------------------------------------------------------------------------------- */

bool pll_is_own(const pll_State *s, const char *source) {
  bool own = false;
  for (int i = 0; s && i < s->nhomes; i++) own |= strncmp(source, s->home[i], strlen(s->home[i])) == 0;
  return own;
}

/* The nearest line of a caller's Lua code on the stack, else the nearest of the library's own (a command runs it); false when there is
** none (a host program's C code calls). */
static bool nearest_line(lua_State *L, lua_Debug *ar) {
  const pll_State *s = pll_state(L);
  int own = -1;
  for (int level = 0; lua_getstack(L, level, ar); level++) {
    lua_getinfo(L, "Sl", ar);
    if (ar->currentline <= 0) continue;
    if (PLN_LIKELY(!pll_is_own(s, ar->source))) return true;
    if (own < 0) own = level;
  }
  if (own < 0) return false;
  lua_getstack(L, own, ar);
  lua_getinfo(L, "Sl", ar);
  return true;
}

uint32_t pll_place(lua_State *L) {
  lua_Debug ar;
  if (!nearest_line(L, &ar)) return 0;
  pll_Line *r = &pll_state(L)->recent[ar.currentline & (PLL_LINES - 1)];
  if (PLN_LIKELY(r->line == ar.currentline) && PLN_LIKELY(strcmp(r->source, ar.short_src) == 0) && PLN_LIKELY(r->place)) return r->place;
  r->line = ar.currentline;
  strcpy(r->source, ar.short_src);
  return r->place = pln_place_intern(ar.short_src, ar.currentline);
}

int pll_raise(lua_State *L, pln_Status status) {
  lua_Debug ar;
  char text[PLN_MAX_ERROR];
  const char *message = pln_error();
  snprintf(text, sizeof text, "%s", *message ? message : pln_status_text(status));
  if (status == PLN_EINTERRUPT) pln_interrupted = 0; /* raised once */
  if (nearest_line(L, &ar))
    lua_pushfstring(L, "%s:%d: ", ar.short_src, ar.currentline);
  else
    lua_pushliteral(L, "");
  lua_pushstring(L, text);
  lua_concat(L, 2);
  return lua_error(L);
}

int pll_argument(lua_State *L, const char *op, const char *fmt, ...) {
  char text[PLN_MAX_ERROR - 64];
  va_list ap;
  va_start(ap, fmt);
  vsnprintf(text, sizeof text, fmt, ap);
  va_end(ap);
  return pll_raise(L, pln_fail(PLN_EARG, "%s: %s", op, text));
}

const char *pll_describe(lua_State *L, int i, char *buf) {
  pll_Handle *h = pll_handle(L, i);
  if (h) return pll_alive(h) ? pln_tensor_text(h->t, buf) : "a tensor that is no longer valid";
  if (pll_engine_box(L, i)) return "an engine";
  if (lua_type(L, i) == LUA_TNUMBER)
    snprintf(buf, PLN_SHAPE_TEXT, "the number %.14g", lua_tonumber(L, i));
  else if (lua_type(L, i) == LUA_TSTRING)
    snprintf(buf, PLN_SHAPE_TEXT, "the string \"%.60s\"", lua_tostring(L, i));
  else
    snprintf(buf, PLN_SHAPE_TEXT, "%s", lua_isnone(L, i) ? "nothing" : luaL_typename(L, i));
  return buf;
}

/* --- stale tensors ------------------------------------------------------------------------------ */

static const char *places_hint = " (places = true records the lines)";

/* The first reset or scope end after the tensor was made that ended its level; of one that survived that by a pin, a later one. */
static const pln_ResetEntry *ending_reset(const pln_EngineRecord *r, const pll_Handle *h) {
  for (uint32_t i = 0; i < PLN_SURVIVOR_LOG && i < r->nsurvivor; i++)
    if (r->survivor[i].serial == h->serial) return &r->survivor[i];
  for (uint32_t i = 0; i < r->nlog; i++) {
    const pln_ResetEntry *entry = &r->log[(r->log_begin + i) % PLN_RESET_LOG];
    if (entry->serial >= h->serial && entry->depth <= h->depth) return entry;
  }
  return NULL;
}

pln_Tensor *pll_stale(lua_State *L, pll_Handle *h, const char *op, const char *what) {
  char made[PLN_PLACE_TEXT], ended[PLN_PLACE_TEXT];
  pln_Runtime *r = pll_state(L)->runtime;
  if (!h->t) {
    pll_raise(L, pln_fail(PLN_ESTALE, "%s: %s is a tensor that was never made", op, what));
    return NULL;
  }
  const pln_EngineRecord *record = r->engines[h->engine];
  const pln_Engine *e = record->engine;
  pln_place_text(h->place, made);
  const char *hint = h->place ? "" : places_hint;
  if (!e) {
    pln_place_text(record->closed_place, ended);
    pll_raise(L, pln_fail(PLN_ECLOSED, "%s: %s, made at %s%s, belongs to the engine \"%s\", which was closed at %s", op, what, made,
                          hint, record->kind, ended));
  }
  bool same = h->t->object.serial == h->serial;
  if (same && h->t->epoch == PLN_EPOCH_FREED) {
    pln_place_text(h->t->place, ended);
    pll_raise(L, pln_fail(PLN_EFREED, "%s: %s, made at %s%s, was freed at %s", op, what, made, hint, ended));
  }
  if (same && e->options.stale_allow && h->t->storage && !h->t->storage->overflow) return h->t;
  const pln_ResetEntry *entry = ending_reset(record, h);
  if (!entry) {
    pll_raise(L, pln_fail(PLN_EFREED, "%s: %s, made at %s%s, was freed", op, what, made, hint));
    return NULL;
  }
  pln_place_text(entry->place, ended);
  unsigned long long now = e->has_arena ? (unsigned long long)pln_arena_level(&e->arena)->epoch : 0;
  pll_raise(L, pln_fail(PLN_ESTALE, "%s: %s is stale: made at %s%s, its memory was reclaimed by the %s at %s (arena epoch %llu, now %llu)", op,
                        what, made, hint, entry->kind ? "end of the scope" : "reset", ended, (unsigned long long)entry->epoch, now));
  return NULL;
}

pln_Tensor *pll_tensor(lua_State *L, int i, const char *op, const char *arg) {
  pll_Handle *h = pll_handle(L, i);
  char text[PLN_SHAPE_TEXT + 16], what[64];
  if (PLN_UNLIKELY(!h)) pll_argument(L, op, "argument '%s': a tensor was expected, got %s", arg, pll_describe(L, i, text));
  if (PLN_LIKELY(pll_alive(h))) return h->t;
  snprintf(what, sizeof what, "argument '%s'", arg);
  return pll_stale(L, h, op, what);
}

void pll_unended(lua_State *L, uint64_t ends, const char *op) {
  if (PLN_UNLIKELY(pll_ends(L) != ends))
    pll_argument(L, op, "a finalizer or metamethod ended tensors or an engine while the arguments were read");
}

/* --- engines ------------------------------------------------------------------------------------ */

pll_EngineBox *pll_engine_box(lua_State *L, int i) {
  pll_EngineBox *b = lua_touserdata(L, i);
  if (!b || lua_objlen(L, i) != sizeof *b || b->magic != (PLL_ENGINE_KEY ^ (uintptr_t)b)) return NULL;
  return b;
}

pln_Engine *pll_engine(lua_State *L, int i, const char *op) {
  pll_EngineBox *b = pll_engine_box(L, i);
  char text[PLN_SHAPE_TEXT + 16];
  if (PLN_UNLIKELY(!b))
    pll_argument(L, op, "an engine was expected (call it with a colon: eng:%s), got %s", op, pll_describe(L, i, text));
  if (PLN_UNLIKELY(!b->e)) {
    const pln_EngineRecord *record = pll_state(L)->runtime->engines[b->id]; /* its own runtime is gone once it was finalized */
    pln_place_text(record->closed_place, text);
    pll_raise(L, pln_fail(PLN_ECLOSED, "%s: the engine \"%s\" was closed at %s", op, record->kind, text));
  }
  return b->e;
}

/* Engine values by id, in the table under the state's address. */
void pll_push_engine(lua_State *L, pln_Engine *e) {
  lua_pushlightuserdata(L, pll_state(L));
  lua_rawget(L, LUA_REGISTRYINDEX);
  lua_rawgeti(L, -1, e->id + 1);
  lua_remove(L, -2);
}

int pll_engine_gc(lua_State *L) {
  pll_EngineBox *b = pll_engine_box(L, 1);
  if (!b || !b->runtime) return 0;
  if (b->e) (void)pln_engine_close(b->e, 0);
  b->e = NULL;
  pln_runtime_drop(b->runtime);
  b->runtime = NULL;
  return 0;
}

/* --- handles ------------------------------------------------------------------------------------ */

pll_Handle *pll_box(lua_State *L) {
  pll_Handle *h = lua_newuserdata(L, sizeof *h);
  h->magic = 0; /* no tensor yet */
  h->t = NULL;
  return h;
}

/* Whether the collector has to free it: what does not go with a reset soon enough. */
static bool needs_finalizer(const pln_Tensor *t) {
  const pln_Engine *e = t->engine;
  const pln_Storage *s = t->storage;
  return s->home != PLN_HOME_ARENA || s->overflow || s->survivor || e->arena.keep_headers ||
         pln_arena_offset(&e->arena) > e->arena.capacity / 2;
}

void pll_fill(lua_State *L, int i, pll_Handle *h, pln_Tensor *t) {
  h->t = t;
  h->serial = t->object.serial;
  h->place = t->place;
  h->engine = t->engine->id;
  h->depth = (uint8_t)t->storage->depth;
  h->finalized = needs_finalizer(t);
  h->magic = PLL_KEY ^ (uintptr_t)h;
  if (h->finalized) {
    pln_runtime_hold(t->engine->runtime);
    lua_pushvalue(L, lua_upvalueindex(PLL_UP_FINAL));
  } else {
    lua_pushvalue(L, lua_upvalueindex(PLL_UP_PLAIN));
  }
  lua_setmetatable(L, i < 0 ? i - 1 : i);
  if (PLN_UNLIKELY(t->engine->hooks & PLN_HOOK_CAPTURE)) pll_capture_handle(L, i, t->engine);
  if (PLN_UNLIKELY(t->node != NULL)) pll_anchor_handle(L, i, t);
}

void pll_push_tensor(lua_State *L, pln_Tensor *t) {
  pll_Handle *h = pll_box(L);
  pln_tensor_retain(t);
  pll_fill(L, -1, h, t);
}

void pll_drop(const pln_EngineRecord *record, pln_Tensor *t, uint64_t serial) {
  pln_Engine *e = record->engine;
  if (!e) return;
  if (t->object.serial != serial && !PLN_FAULT(late_free))
    e->arena.stats.stale_frees++;
  else if (t->epoch == *t->live || t->epoch == PLN_EPOCH_FREED || e->arena.keep_headers || PLN_FAULT(late_free))
    pln_tensor_release(t);
  else
    e->arena.stats.stale_frees++;
}

/* C4: late frees do nothing but count. */
int pll_tensor_gc(lua_State *L) {
  pll_Handle *h = pll_handle(L, 1);
  if (!h || !h->finalized) return 0;
  h->finalized = 0;
  pln_Runtime *r = pll_state(L)->runtime;
  pll_drop(r->engines[h->engine], h->t, h->serial);
  h->magic = 0;
  pln_runtime_drop(r);
  return 0;
}

/* Calls perilune/report.lua's function with the statistics; what it raises is dropped, the op has succeeded. */
static void report_overflow(lua_State *L, pln_Engine *e) {
  e->hooks &= ~(uint32_t)PLN_HOOK_REPORT;
  luaL_checkstack(L, 8, "report");
  int top = lua_gettop(L);
  lua_getfield(L, LUA_REGISTRYINDEX, "perilune.report");
  if (lua_isfunction(L, -1)) {
    pll_push_engine(L, e);
    (void)lua_pcall(L, 1, 0, 0);
  }
  lua_settop(L, top);
}

void pll_settle(lua_State *L, pln_Engine *e) {
  const pln_EngineRecord *record = e->runtime->engines[e->id];
  if (e->hooks & PLN_HOOK_REPORT) report_overflow(L, e);
  if (!record->engine) return; /* the report's function closed it */
  uint64_t alive = e->owned_bytes + e->arena.stats.overflow_bytes;
  uint64_t before = alive > e->owned_since ? alive - e->owned_since : 0;
  if (e->owned_since < PLL_COLLECT_MIN || e->owned_since < before) return;
  e->owned_since = 0;
  lua_gc(L, LUA_GCCOLLECT, 0);
}
