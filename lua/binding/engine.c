/* SPDX-License-Identifier: MIT
** engine.c -- engine methods: memory, epochs, scopes, statistics, creation from Lua values.
*/
#include "binding.h"

#include "gpu.h"

#include <stdio.h>
#include <string.h>

/* --- opening and closing ------------------------------------------------------------------------ */

/* The device of a kind, or NULL and in *reason_p why there is none. */
static const pln_Backend *backend_named(const char *kind, const char **reason_p) {
  *reason_p = NULL;
  if (strcmp(kind, "cpu") == 0 || strcmp(kind, "stress") == 0) return &pln_cpu_backend;
  return pln_gpu_backend(kind, reason_p);
}

/* reason(kind): why no engine of that kind can be opened here; nil if one can. */
static int engine_reason(lua_State *L) {
  const char *reason;
  if (backend_named(luaL_checkstring(L, 1), &reason)) return 0;
  lua_pushstring(L, reason);
  return 1;
}

static bool field_boolean(lua_State *L, int table, const char *name, bool otherwise) {
  lua_getfield(L, table, name);
  bool b = lua_isnil(L, -1) ? otherwise : lua_toboolean(L, -1);
  lua_pop(L, 1);
  return b;
}

static double field_number(lua_State *L, int table, const char *name, double otherwise) {
  lua_getfield(L, table, name);
  double v = lua_isnumber(L, -1) ? lua_tonumber(L, -1) : otherwise;
  lua_pop(L, 1);
  return v;
}

static pln_Poison read_poison(lua_State *L, int table) {
  return (pln_Poison){
    .on_reset = field_boolean(L, table, "on_reset", false),
    .on_free = field_boolean(L, table, "on_free", false),
    .on_alloc = field_boolean(L, table, "on_alloc", false),
    .word = (uint16_t)field_number(L, table, "word", 0x7FF8),
    .redzone = (uint32_t)field_number(L, table, "redzone", 0),
  };
}

/* open(kind, options): options are complete and checked by perilune/engine.lua, sizes in bytes. */
static int engine_open(lua_State *L) {
  const char *kind = luaL_checkstring(L, 1);
  luaL_checktype(L, 2, LUA_TTABLE);
  pll_State *s = pll_state(L);
  const char *reason;
  const pln_Backend *backend = backend_named(kind, &reason);
  if (!backend) return pll_argument(L, "engine", "%s is not available: %s", kind, reason);
  pln_EngineOptions o = {
    .kind = kind,
    .ordinal = (int)field_number(L, 2, "device", 1) - 1,
    .late = field_boolean(L, 2, "late", false),
    .arena = (size_t)field_number(L, 2, "arena", 0),
    .stale_allow = field_boolean(L, 2, "stale_allow", false),
    .places = field_boolean(L, 2, "places", false),
    .test = field_boolean(L, 2, "test", false),
    .threads = (int)field_number(L, 2, "threads", 0),
    .no_plans = !field_boolean(L, 2, "plans", true),
    .managed = field_boolean(L, 2, "managed", false),
    .tf32 = field_boolean(L, 2, "tf32", false),
    .seed = (uint64_t)field_number(L, 2, "seed", 0),
    .graph_resets = (int)field_number(L, 2, "graph_resets", 64),
  };
  lua_getfield(L, 2, "poison");
  o.poison = read_poison(L, lua_gettop(L));
  lua_pop(L, 1);
  pll_EngineBox *b = lua_newuserdata(L, sizeof *b);
  memset(b, 0, sizeof *b);
  b->magic = PLL_ENGINE_KEY ^ (uintptr_t)b;
  lua_getfield(L, LUA_REGISTRYINDEX, "perilune.engine");
  lua_setmetatable(L, -2);
  lua_pushlightuserdata(L, s);
  lua_rawget(L, LUA_REGISTRYINDEX); /* the table of engine values by id */
  pll_check(L, pln_engine_new(s->runtime, backend, &o, &b->e));
  b->runtime = s->runtime;
  b->id = b->e->id;
  pln_runtime_hold(b->runtime);
  lua_pushvalue(L, -2);
  lua_rawseti(L, -2, b->id + 1);
  lua_pop(L, 1);
  return 1;
}

static int engine_close(lua_State *L) {
  pll_EngineBox *b = pll_engine_box(L, 1);
  if (!b) (void)pll_engine(L, 1, "close");
  if (!b->e) return 0; /* a second close does nothing */
  uint32_t place = pll_place(L);
  pln_Engine *e = b->e;
  if (e->tape && e->tape->run) return pll_argument(L, "close", "a backward is under way");
  pll_refuse_in_capture(L, e, "close: closing the engine");
  if (e->depth) return pll_argument(L, "close", "%d scope%s still open", e->depth, e->depth == 1 ? " is" : "s are");
  b->e = NULL;
  lua_pushlightuserdata(L, pll_state(L));
  lua_rawget(L, LUA_REGISTRYINDEX);
  lua_pushnil(L);
  lua_rawseti(L, -2, b->id + 1);
  pll_check(L, pln_engine_close(e, place));
  return 0;
}

static int engine_closed(lua_State *L) {
  pll_EngineBox *b = pll_engine_box(L, 1);
  if (!b) (void)pll_engine(L, 1, "closed");
  lua_pushboolean(L, b->e == NULL);
  return 1;
}

/* --- epochs, scopes, pins ----------------------------------------------------------------------- */

static int engine_reset(lua_State *L) {
  pln_Engine *e = pll_engine(L, 1, "reset");
  pll_refuse_in_capture(L, e, "reset: ending the epoch");
  pll_check(L, pln_engine_reset(e, pll_place(L)));
  return 0;
}

static int engine_sync(lua_State *L) {
  pln_Engine *e = pll_engine(L, 1, "sync");
  pll_refuse_in_capture(L, e, "sync: waiting for the stream");
  pll_check(L, pln_engine_sync(e));
  return 0;
}

/* The scope's function runs through lua_call under a pcall of our own, so that the scope ends whatever happens; LuaJIT refuses to yield
** across this C frame, which is the wanted error. */
static int engine_scope(lua_State *L) {
  pln_Engine *e = pll_engine(L, 1, "scope");
  if (!lua_isfunction(L, 2)) {
    char text[PLN_SHAPE_TEXT + 16];
    return pll_argument(L, "scope", "argument 'fn': a function was expected, got %s", pll_describe(L, 2, text));
  }
  lua_settop(L, 2);
  pll_refuse_in_capture(L, e, "scope: opening a scope");
  uint32_t place = pll_place(L);
  pln_Status opened = pln_engine_scope_open(e, place);
  if (opened != PLN_OK) return pll_raise(L, pln_fail_prefix(opened, "scope: "));
  int failed = lua_pcall(L, 0, LUA_MULTRET, 0);
  pll_EngineBox *b = pll_engine_box(L, 1);
  if (b->e) {
    pln_Status status = pln_engine_scope_close(e, place);
    if (!failed) pll_check(L, status);
  }
  if (failed) return lua_error(L);
  return lua_gettop(L) - 1;
}

static pln_Tensor *own_tensor(lua_State *L, pln_Engine *e, int i, const char *op) {
  pln_Tensor *t = pll_tensor(L, i, op, "t");
  if (t->engine != e) pll_raise(L, pln_fail(PLN_EENGINE, "%s: the tensor belongs to another engine", op));
  return t;
}

static int engine_pin(lua_State *L) {
  pln_Engine *e = pll_engine(L, 1, "pin");
  pll_check(L, pln_engine_pin(e, own_tensor(L, e, 2, "pin")));
  lua_settop(L, 2);
  return 1;
}

static int engine_unpin(lua_State *L) {
  pln_Engine *e = pll_engine(L, 1, "unpin");
  pln_Status status = pln_engine_unpin(e, own_tensor(L, e, 2, "unpin"));
  if (status != PLN_OK) pll_raise(L, pln_fail_prefix(status, "unpin: "));
  lua_settop(L, 2);
  return 1;
}

static int engine_free(lua_State *L) {
  pln_Engine *e = pll_engine(L, 1, "free");
  pll_Handle *h = pll_handle(L, 2);
  /* a second free, and one after the reset that took the block, do nothing (C4) */
  if (h && !pll_alive(h) && h->t && e->runtime->engines[h->engine]->engine == e) {
    if (h->t->object.serial != h->serial || h->t->epoch != PLN_EPOCH_FREED) e->arena.stats.stale_frees++;
    return 0;
  }
  pln_Status status = pln_tensor_free(own_tensor(L, e, 2, "free"), pll_place(L));
  if (status != PLN_OK) pll_raise(L, pln_fail_prefix(status, "free: "));
  return 0;
}

/* set_poison(engine, {on_reset=..., ...}) */
static int engine_set_poison(lua_State *L) {
  pln_Engine *e = pll_engine(L, 1, "poison");
  luaL_checktype(L, 2, LUA_TTABLE);
  pln_Poison poison = read_poison(L, 2);
  pll_check(L, pln_engine_poison(e, &poison));
  return 0;
}

static int engine_get_poison(lua_State *L) {
  const pln_Poison poison = pll_engine(L, 1, "poison")->options.poison, *p = &poison;
  lua_createtable(L, 0, 5);
  lua_pushboolean(L, p->on_reset), lua_setfield(L, -2, "on_reset");
  lua_pushboolean(L, p->on_free), lua_setfield(L, -2, "on_free");
  lua_pushboolean(L, p->on_alloc), lua_setfield(L, -2, "on_alloc");
  lua_pushnumber(L, p->word), lua_setfield(L, -2, "word");
  lua_pushnumber(L, p->redzone), lua_setfield(L, -2, "redzone");
  return 1;
}

static int engine_places(lua_State *L) {
  pln_Engine *e = pll_engine(L, 1, "places");
  if (lua_gettop(L) > 1) {
    if (lua_toboolean(L, 2))
      e->hooks |= PLN_HOOK_PLACES;
    else
      e->hooks &= ~(uint32_t)PLN_HOOK_PLACES;
  }
  lua_pushboolean(L, (e->hooks & PLN_HOOK_PLACES) != 0);
  return 1;
}

/* rng() gives {seed, draw} as numbers, rng{seed, draw} sets them (C10). */
static int engine_rng(lua_State *L) {
  pln_Engine *e = pll_engine(L, 1, "rng");
  if (lua_istable(L, 2)) {
    pll_refuse_in_capture(L, e, "rng: setting the random state");
    lua_rawgeti(L, 2, 1);
    lua_rawgeti(L, 2, 2);
    int64_t seed = pll_integer(L, -2, "rng", "seed"), draw = pll_integer(L, -1, "rng", "draw");
    if (seed < 0 || draw < 0) return pll_argument(L, "rng", "a state that rng() gave was expected, got {%lld, %lld}", (long long)seed, (long long)draw);
    e->options.seed = (uint64_t)seed;
    e->draw = (uint64_t)draw;
    return 0;
  }
  if (!lua_isnoneornil(L, 2)) return pll_argument(L, "rng", "a state that rng() gave was expected");
  lua_Number seed = (lua_Number)e->options.seed, draw = (lua_Number)e->draw;
  lua_createtable(L, 2, 0);
  lua_pushnumber(L, seed), lua_rawseti(L, -2, 1);
  lua_pushnumber(L, draw), lua_rawseti(L, -2, 2);
  return 1;
}

typedef struct Count {
  const char *name;
  uint64_t v;
} Count;

static int engine_stats(lua_State *L) {
  pln_Engine *e = pll_engine(L, 1, "stats");
  const pln_ArenaStats stats = pln_arena_stats(&e->arena), *s = &stats;
  const Count counts[] = { /* all of them before the table: Lua allocates */
    {"capacity", e->has_arena ? e->arena.capacity : 0},
    {"offset", e->has_arena ? pln_arena_offset(&e->arena) : 0},
    {"epoch", e->has_arena ? pln_arena_level(&e->arena)->epoch : e->count_resets + 1},
    {"largest_free", e->has_arena ? pln_arena_largest_free(&e->arena) : 0},
    {"depth", (uint64_t)e->depth},
    {"resets", e->count_resets},
    {"high_water", s->high_water},
    {"allocs", s->allocs},
    {"reuses", s->reuses},
    {"misses", s->misses},
    {"frees", s->frees},
    {"stale_frees", s->stale_frees},
    {"deferred_frees", s->deferred_frees},
    {"pins", e->count_pins},
    {"pinned_bytes", s->pinned_bytes},
    {"pinned_high_water", s->pinned_high_water},
    {"overflow_bytes", s->overflow_bytes},
    {"overflow_blocks", s->overflow_blocks},
    {"overflow_high_water", s->overflow_high_water},
    {"largest_alloc", s->largest_alloc},
    {"live_bytes", s->live_bytes},
    {"live_blocks", s->live_blocks},
    {"free_bytes", s->free_bytes},
    {"poisoned_bytes", s->poisoned_bytes},
    {"owned_bytes", e->owned_bytes},
    {"fallbacks", e->fallbacks},
    {"calls", e->calls},
    {"planned", e->planned},
    {"passed", e->tape ? e->tape->passed : 0},
    {"queued", e->backend->queued(e)},
  };
  size_t n = sizeof counts / sizeof *counts;
  lua_createtable(L, 0, (int)n + 2);
  for (size_t i = 0; i < n; i++) lua_pushnumber(L, (lua_Number)counts[i].v), lua_setfield(L, -2, counts[i].name);
  if (s->first_overflow) lua_pushnumber(L, (lua_Number)s->first_overflow), lua_setfield(L, -2, "first_overflow");
  if (e->backend->products) lua_pushstring(L, e->backend->products(e)), lua_setfield(L, -2, "products");
  return 1;
}

/* --- creation from Lua values ------------------------------------------------------------------- */

typedef struct Values {
  lua_State *L;
  const char *op;
  pln_DType dtype;
  pln_Shape shape;
  char *at;
} Values;

/* The shape of nested tables, read along the first elements. */
static void nested_shape(Values *v, int i) {
  lua_State *L = v->L;
  int pushed = 0;
  while (lua_istable(L, i)) {
    if (v->shape.ndim == PLN_MAX_DIMS) pll_argument(L, v->op, "values are nested more than %d deep", PLN_MAX_DIMS);
    v->shape.size[v->shape.ndim++] = (int64_t)lua_objlen(L, i);
    lua_rawgeti(L, i, 1);
    i = lua_gettop(L);
    pushed++;
  }
  lua_pop(L, pushed);
}

static void write_nested(Values *v, int i, int dim) {
  lua_State *L = v->L;
  if (dim == v->shape.ndim) {
    if (lua_istable(L, i)) pll_argument(L, v->op, "the values are nested unevenly: a number was expected at depth %d, got a table", dim + 1);
    pll_write_value(L, i, v->dtype, v->at, v->op);
    v->at += pln_dtype_size(v->dtype);
    return;
  }
  char text[PLN_SHAPE_TEXT + 16];
  if (!lua_istable(L, i))
    pll_argument(L, v->op, "the values are nested unevenly: a table was expected at depth %d, got %s", dim + 1, pll_describe(L, i, text));
  int64_t n = (int64_t)lua_objlen(L, i);
  if (n != v->shape.size[dim])
    pll_argument(L, v->op, "the values are nested unevenly: %lld at depth %d, the first has %lld", (long long)n, dim + 1,
                 (long long)v->shape.size[dim]);
  luaL_checkstack(L, 4, "values are nested too deep");
  for (int64_t k = 0; k < n; k++) {
    lua_rawgeti(L, i, (int)k + 1);
    write_nested(v, lua_gettop(L), dim + 1);
    lua_pop(L, 1);
  }
}

static void write_flat(Values *v, int i, int64_t numel) {
  lua_State *L = v->L;
  int64_t n = (int64_t)lua_objlen(L, i);
  char shape[PLN_SHAPE_TEXT];
  if (n != numel)
    pll_argument(L, v->op, "%lld values for shape %s, which has %lld", (long long)n,
                 pln_shape_text(v->shape.ndim, v->shape.size, shape), (long long)numel);
  for (int64_t k = 0; k < n; k++, v->at += pln_dtype_size(v->dtype)) {
    lua_rawgeti(L, i, (int)k + 1);
    pll_write_value(L, -1, v->dtype, v->at, v->op);
    lua_pop(L, 1);
  }
}

/* A leaf whose gradient is there from the start. */
static pln_Status make_param(pln_Tensor *t) {
  pln_Tensor *grad;
  PLN_TRY(pln_tensor_require_grad(t, true));
  return pln_leaf_grad(pln_tensor_node(t), &grad);
}

/* from_values(engine, name, values, dtype or nil, shape or nil, nil or "persistent" or "param"): values are a number, a boolean, a tensor, or tables flat or nested;
** nil with a shape leaves zeros. Without a dtype f32, or bool for booleans. */
static int engine_from_values(lua_State *L) {
  pln_Engine *e = pll_engine(L, 1, "tensor");
  Values v = {L, luaL_checkstring(L, 2), PLN_F32, {0, {0}}, NULL};
  lua_settop(L, 6);
  pln_Home home = lua_isnil(L, 6) ? PLN_HOME_ARENA : PLN_HOME_PERSISTENT;
  bool param = home == PLN_HOME_PERSISTENT && strcmp(luaL_checkstring(L, 6), "param") == 0;
  if (!lua_isnil(L, 4)) v.dtype = pll_dtype(L, 4, v.op);
  bool shaped = !lua_isnil(L, 5);
  if (shaped) pll_integers(L, 5, v.op, "shape", &v.shape);
  pll_Handle *from = pll_handle(L, 3);
  pln_Tensor *source = from ? pll_tensor(L, 3, v.op, "values") : NULL;
  if (source) {
    if (lua_isnil(L, 4)) v.dtype = (pln_DType)source->dtype;
    if (!shaped) v.shape = pln_tensor_shape(source);
    pln_Shape own = pln_tensor_shape(source), both;
    char text[PLN_SHAPE_TEXT], want[PLN_SHAPE_TEXT];
    if (!pln_shape_broadcast(&own, &v.shape, &both) || !pln_shape_equal(&both, &v.shape))
      return pll_argument(L, v.op, "argument 'values': shape %s does not broadcast to %s", pln_shape_text(own.ndim, own.size, text),
                          pln_shape_text(v.shape.ndim, v.shape.size, want));
    if (source->engine != e) return pll_raise(L, pln_fail(PLN_EENGINE, "%s: the values belong to another engine (t:to(engine) copies)", v.op));
  } else if (lua_istable(L, 3) && !shaped) {
    nested_shape(&v, 3);
  }
  if (lua_isnil(L, 4) && !source) {
    lua_pushvalue(L, 3);
    for (int depth = 0; lua_istable(L, -1) && depth < PLN_MAX_DIMS; depth++) { /* no further: a table may hold itself */
      lua_rawgeti(L, -1, 1);
      lua_remove(L, -2);
    }
    if (lua_isboolean(L, -1)) v.dtype = PLN_BOOL;
    lua_pop(L, 1);
  }
  int64_t numel;
  pln_Status status = pln_shape_numel(&v.shape, pln_dtype_size(v.dtype), &numel);
  if (status != PLN_OK) pll_raise(L, pln_fail_prefix(status, "%s: ", v.op));
  if (!source && PLN_UNLIKELY(e->capture != NULL)) {
    char what[80];
    snprintf(what, sizeof what, "%s: uploading values", v.op);
    pll_refuse_in_capture(L, e, what);
  }
  char *staging = NULL;
  size_t item = (size_t)pln_dtype_size(v.dtype);
  if (!source) {
    /* memory of Lua's, so that an error in the middle frees it; uploads copy it */
    bool uniform = !lua_istable(L, 3);
    if (!uniform && numel > PLL_MAX_USERDATA / (int64_t)item) {
      char text[PLN_SHAPE_TEXT];
      return pll_argument(L, v.op, "shape %s has more elements than a table can hold values", pln_shape_text(v.shape.ndim, v.shape.size, text));
    }
    if (!uniform || numel < (1 << 20)) {
      staging = lua_newuserdata(L, item * (size_t)(numel ? numel : 1));
      v.at = staging;
      if (uniform) {
        if (lua_isnil(L, 3))
          memset(staging, 0, item);
        else
          pll_write_value(L, 3, v.dtype, staging, v.op);
        for (int64_t k = 1; k < numel; k++) memcpy(staging + (size_t)k * item, staging, item);
      } else {
        lua_rawgeti(L, 3, 1);
        bool nested = lua_istable(L, -1);
        lua_pop(L, 1);
        if (shaped && !nested)
          write_flat(&v, 3, numel);
        else
          write_nested(&v, 3, 0);
      }
    }
  }
  pll_Handle *h = pll_box(L);
  e = pll_engine(L, 1, v.op); /* Lua code may have run */
  if (source) source = pll_tensor(L, 3, v.op, "values");
  pln_Tensor *t;
  status = pln_tensor_new(e, home, v.dtype, &v.shape, &t);
  if (status != PLN_OK) pll_raise(L, pln_fail_prefix(status, "%s: ", v.op));
  t->place = t->storage->place = pll_place_if(L, e);
  if (staging)
    status = pln_tensor_write(t, staging);
  else if (source)
    status = pln_copy_into(e, t, source);
  else {
    pln_Args a;
    pln_args_init(&pln_ops[PLN_OP_fill], &a);
    a.in[0] = t;
    a.opt[0].given = 1;
    a.opt[0].num = lua_isnil(L, 3) ? 0 : lua_isboolean(L, 3) ? lua_toboolean(L, 3) : lua_tonumber(L, 3);
    status = pln_op_run(e, &pln_ops[PLN_OP_fill], &a);
  }
  if (status == PLN_OK && param) status = make_param(t);
  if (status != PLN_OK) {
    pln_tensor_release(t);
    pll_raise(L, status);
  }
  pll_fill(L, -1, h, t);
  pll_settle_if(L, e);
  return 1;
}

const luaL_Reg pll_engine_functions[] = {
  {"reason", engine_reason}, {"open", engine_open}, {"close", engine_close}, {"closed", engine_closed}, {"reset", engine_reset}, {"sync", engine_sync},
  {"scope", engine_scope}, {"pin", engine_pin}, {"unpin", engine_unpin}, {"free", engine_free}, {"set_poison", engine_set_poison},
  {"get_poison", engine_get_poison}, {"places", engine_places}, {"rng", engine_rng}, {"stats", engine_stats},
  {"from_values", engine_from_values}, {NULL, NULL},
};
