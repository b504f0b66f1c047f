/* SPDX-License-Identifier: MIT
** capture.c -- captured steps for Lua: a userdata that owns a pln_Capture.
**
** Every tensor value made while a capture records has as environment a table that holds the capture's value (the anchors of recorded
** ops hold it, too): a step that nobody refers to any more is released by the collector only when its tensors are gone as well, so what
** they hold never depends on the collector. The table is found in the registry under the value's address as long as the capture records.
*/
#include "binding.h"

#define CAPTURE_KEY ((uintptr_t)0xe7037ed1a0b428dbu)

typedef struct CaptureBox {
  uintptr_t magic;
  pln_Capture *c;        /* NULL while its function runs, or when that failed */
  pln_Runtime *runtime;
  uint16_t engine;
} CaptureBox;

static CaptureBox *capture_box(lua_State *L, int i) {
  CaptureBox *b = lua_touserdata(L, i);
  if (PLN_UNLIKELY(!b) || PLN_UNLIKELY(lua_objlen(L, i) != sizeof *b) || PLN_UNLIKELY(b->magic != (CAPTURE_KEY ^ (uintptr_t)b)))
    return NULL;
  return b;
}

void pll_push_capture(lua_State *L, pln_Engine *e) {
  luaL_checkstack(L, 4, "capture");
  lua_pushlightuserdata(L, e->capture->owner);
  lua_rawget(L, LUA_REGISTRYINDEX);
}

void pll_capture_handle(lua_State *L, int i, pln_Engine *e) {
  pll_Handle *h = lua_touserdata(L, i);
  h->t->storage->capture_shown = 1;
  pll_push_capture(L, e);
  lua_setfenv(L, i < 0 ? i - 1 : i);
}

/* capture(engine, fn): the step, and what fn returned. */
static int capture_new(lua_State *L) {
  pln_Engine *e = pll_engine(L, 1, "capture");
  char text[PLN_SHAPE_TEXT + 16];
  if (!lua_isfunction(L, 2)) return pll_argument(L, "capture", "argument 'fn': a function was expected, got %s", pll_describe(L, 2, text));
  lua_settop(L, 2);
  uint32_t place = pll_place(L);
  CaptureBox *b = lua_newuserdata(L, sizeof *b);
  *b = (CaptureBox){CAPTURE_KEY ^ (uintptr_t)b, NULL, NULL, e->id};
  lua_getfield(L, LUA_REGISTRYINDEX, "perilune.capture");
  lua_setmetatable(L, 3);
  lua_pushlightuserdata(L, b);
  lua_createtable(L, 1, 0);
  lua_pushvalue(L, 3);
  lua_rawseti(L, -2, 1);
  lua_rawset(L, LUA_REGISTRYINDEX);
  e = pll_engine(L, 1, "capture");
  pln_Capture *c;
  pln_Status status = pln_capture_begin(e, b, place, &c);
  int failed = 0;
  if (status == PLN_OK) {
    bool recording = !e->no_record;
    lua_pushvalue(L, 2);
    failed = lua_pcall(L, 0, LUA_MULTRET, 0);
    pln_tape_record_on(e, recording);
    if (failed) {
      pln_capture_abort(c);
    } else if ((status = pln_capture_end(c)) == PLN_OK) {
      b->c = c;
      b->runtime = e->runtime;
      pln_runtime_hold(b->runtime);
    }
  }
  lua_pushlightuserdata(L, b);
  lua_pushnil(L);
  lua_rawset(L, LUA_REGISTRYINDEX);
  if (failed) return lua_error(L);
  if (status != PLN_OK) return pll_raise(L, pln_fail_prefix(status, "capture: "));
  return lua_gettop(L) - 2;
}

static PLN_COLD int not_usable(lua_State *L, const CaptureBox *b, const char *op) {
  char text[PLN_SHAPE_TEXT + 16], place[PLN_PLACE_TEXT];
  if (!b) return pll_argument(L, op, "a capture was expected (call it with a colon: step:%s()), got %s", op, pll_describe(L, 1, text));
  if (!b->c) return pll_raise(L, pln_fail(PLN_ECAPTURE, "%s: the capture was never completed", op));
  const pln_EngineRecord *record = b->runtime->engines[b->engine];
  if (!record->engine)
    return pll_raise(L, pln_fail(PLN_ECLOSED, "%s: the engine \"%s\" was closed at %s", op, record->kind,
                                 pln_place_text(record->closed_place, place)));
  return pll_raise(L, pln_fail(PLN_ECAPTURE, "%s: the capture was released at %s", op, pln_place_text(b->c->ended, place)));
}

/* replay(step [, n]) */
static int capture_replay(lua_State *L) {
  const CaptureBox *b = capture_box(L, 1);
  if (PLN_UNLIKELY(!b) || PLN_UNLIKELY(!b->c) || PLN_UNLIKELY(!b->c->engine)) return not_usable(L, b, "replay");
  uint64_t n = 1;
  if (PLN_UNLIKELY(!lua_isnoneornil(L, 2))) {
    int64_t given = pll_integer(L, 2, "replay", "n");
    if (given < 0) return pll_argument(L, "replay", "argument 'n': a number of steps was expected, got %lld", (long long)given);
    n = (uint64_t)given;
  }
  pll_check(L, pln_capture_replay(b->c, n));
  return 0;
}

/* release(step): a second one does nothing. */
static int capture_release(lua_State *L) {
  CaptureBox *b = capture_box(L, 1);
  if (!b || !b->c) return not_usable(L, b, "release");
  if (!b->c->engine) return 0;
  if (b->c->engine->capture) return pll_raise(L, pln_capture_refused(b->c->engine, "a release"));
  pln_capture_release(b->c, pll_place(L));
  return 0;
}

static void set_count(lua_State *L, const char *name, uint64_t v) {
  lua_pushnumber(L, (lua_Number)v);
  lua_setfield(L, -2, name);
}

/* stats(step): calls of a step and the pieces that they run in, storages that are held and their bytes, draw numbers that a step takes,
** replays so far. */
static int capture_stats(lua_State *L) {
  const CaptureBox *b = capture_box(L, 1);
  if (!b || !b->c || !b->c->engine) return not_usable(L, b, "stats");
  const pln_Capture c = *b->c; /* a copy: Lua allocates */
  size_t pieces = c.graph ? c.engine->backend->graph_pieces(c.engine, c.graph) : c.ncalls;
  lua_createtable(L, 0, 6);
  set_count(L, "calls", c.ncalls);
  set_count(L, "pieces", pieces);
  set_count(L, "storages", c.nuse);
  set_count(L, "bytes", c.bytes);
  set_count(L, "draws", c.draws);
  set_count(L, "replays", c.replays);
  return 1;
}

/* Whether it can be replayed. */
static int capture_is_valid(lua_State *L) {
  const CaptureBox *b = capture_box(L, 1);
  if (!b) return not_usable(L, b, "is_valid");
  lua_pushboolean(L, b->c && b->c->engine);
  return 1;
}

int pll_capture_gc(lua_State *L) {
  CaptureBox *b = capture_box(L, 1);
  if (!b || !b->c) return 0;
  pln_capture_release(b->c, 0);
  pln_capture_free(b->c);
  b->c = NULL;
  pln_runtime_drop(b->runtime);
  return 0;
}

const luaL_Reg pll_capture_functions[] = {
  {"capture", capture_new}, {"replay", capture_replay}, {"release", capture_release}, {"stats", capture_stats},
  {"is_valid", capture_is_valid}, {NULL, NULL},
};
