/* SPDX-License-Identifier: MIT
** core.c -- luaopen_perilune_core: the state, the metatables, every op of the table as a function; and the table as Lua data.
*/
#include "binding.h"

#include <string.h>

#define EXPORT __attribute__((visibility("default")))

/* The runtime's hold goes with a second userdata, which is made when the state ends: the finalizers of values older than the module run
** after the first, and may use tensors. */
static int runtime_gc(lua_State *L) {
  pll_State **s_p = lua_touserdata(L, 1);
  pll_State *s = *s_p;
  if (s->runtime) pln_runtime_drop(s->runtime);
  s->runtime = NULL;
  return 0;
}

static int state_gc(lua_State *L) {
  pll_State **s_p = lua_newuserdata(L, sizeof *s_p);
  *s_p = lua_touserdata(L, 1);
  lua_createtable(L, 0, 1);
  lua_pushcfunction(L, runtime_gc);
  lua_setfield(L, -2, "__gc");
  lua_setmetatable(L, -2);
  lua_setfield(L, LUA_REGISTRYINDEX, "perilune.runtime"); /* no garbage before its time */
  return 0;
}

/* On the stack (relative to the caller): the table to register into on top. */
void pll_register(lua_State *L, const luaL_Reg *functions) {
  for (; functions->name; functions++) {
    lua_getfield(L, LUA_REGISTRYINDEX, "perilune.state");
    lua_getfield(L, LUA_REGISTRYINDEX, "perilune.tensor");
    lua_getfield(L, LUA_REGISTRYINDEX, "perilune.tensor.final");
    lua_pushcclosure(L, functions->func, 3);
    pll_push_environment(L);
    lua_setfenv(L, -2);
    lua_setfield(L, -2, functions->name);
  }
}

static void push_op(lua_State *L, const pln_OpDef *op) {
  lua_getfield(L, LUA_REGISTRYINDEX, "perilune.state");
  lua_getfield(L, LUA_REGISTRYINDEX, "perilune.tensor");
  lua_getfield(L, LUA_REGISTRYINDEX, "perilune.tensor.final");
  lua_pushlightuserdata(L, (void *)op);
  lua_pushcclosure(L, pll_op, 4);
  pll_push_environment(L);
  lua_setfenv(L, -2);
}

static void set_string(lua_State *L, const char *name, const char *value) {
  lua_pushstring(L, value);
  lua_setfield(L, -2, name);
}

static void set_flag(lua_State *L, const char *name, bool value) {
  lua_pushboolean(L, value);
  lua_setfield(L, -2, name);
}

static void push_slots(lua_State *L, const pln_OpDef *op) {
  static const char *const kinds[] = {"tensor", "tensor or number", "index", "mask", "tensors", "num", "int", "bool", "dim", "dims",
                                      "ints", "dtype", "word"};
  lua_createtable(L, op->nslots, 0);
  for (int k = 0; k < op->nslots; k++) {
    const pln_Slot *slot = &op->slot[k];
    lua_createtable(L, 0, 5);
    set_string(L, "name", slot->name);
    set_string(L, "kind", kinds[slot->kind]);
    set_flag(L, "optional", slot->optional);
    if (slot->kind == PLN_SLOT_WORD) set_string(L, "words", slot->words);
    if (slot->has_default) {
      lua_pushnumber(L, slot->def);
      lua_setfield(L, -2, "default");
    }
    lua_rawseti(L, -2, k + 1);
  }
}

/* The rows as Lua data, for harnesses and the reference. */
static void push_row(lua_State *L, const pln_OpDef *op) {
  lua_createtable(L, 0, 16);
  set_string(L, "name", op->name);
  set_string(L, "signature", op->signature);
  set_string(L, "samples", op->samples);
  set_string(L, "domain", op->domain);
  set_string(L, "doc", op->doc);
  lua_pushnumber(L, op->rtol), lua_setfield(L, -2, "rtol");
  lua_pushnumber(L, op->nout), lua_setfield(L, -2, "nout");
  set_flag(L, "differentiable", op->backward != NULL);
  set_flag(L, "nodiff", op->flags & PLN_OP_NODIFF);
  set_flag(L, "pointwise", op->flags & PLN_OP_POINTWISE);
  set_flag(L, "view", op->flags & PLN_OP_VIEW);
  set_flag(L, "composite", op->flags & PLN_OP_COMPOSITE);
  set_flag(L, "internal", op->flags & PLN_OP_INTERNAL);
  set_flag(L, "random", op->flags & PLN_OP_RANDOM);
  set_flag(L, "inplace", op->flags & PLN_OP_INPLACE);
  set_flag(L, "eats_nan", op->flags & PLN_OP_EATS_NAN);
  set_flag(L, "create", op->flags & PLN_OP_CREATE);
  set_flag(L, "host_read", op->flags & PLN_OP_HOSTREAD);
  lua_newtable(L);
  int n = 0;
  for (int d = 0; d < PLN_NDTYPE; d++)
    if (op->dtypes >> d & 1) {
      lua_pushstring(L, pln_dtype_name((pln_DType)d));
      lua_rawseti(L, -2, ++n);
    }
  lua_setfield(L, -2, "dtypes");
  push_slots(L, op);
  lua_setfield(L, -2, "slots");
}

/* new_state() -> made by luaopen: registry entries, the metatables. */
static void open_state(lua_State *L) {
  pll_State *s = lua_newuserdata(L, sizeof *s);
  memset(s, 0, sizeof *s);
  lua_createtable(L, 0, 1);
  lua_pushcfunction(L, state_gc);
  lua_setfield(L, -2, "__gc");
  lua_setmetatable(L, -2);
  s->runtime = pln_runtime_new();
  if (!s->runtime) luaL_error(L, "perilune: out of memory");
  lua_setfield(L, LUA_REGISTRYINDEX, "perilune.state");
  lua_pushlightuserdata(L, s); /* engine values by id */
  lua_newtable(L);
  lua_rawset(L, LUA_REGISTRYINDEX);
  static const char *const metatables[] = {"perilune.tensor", "perilune.tensor.final", "perilune.engine", "perilune.capture"};
  for (int i = 0; i < 4; i++) {
    lua_newtable(L);
    lua_setfield(L, LUA_REGISTRYINDEX, metatables[i]);
  }
}

static int library_alloc_live(lua_State *L) {
  lua_pushnumber(L, (lua_Number)pln_alloc_live());
  return 1;
}

static int library_alloc_fail_at(lua_State *L) {
  lua_pushnumber(L, (lua_Number)pln_alloc_fail_at((int64_t)luaL_checknumber(L, 1)));
  return 1;
}

/* int64_helpers(split, join): how LuaJIT's int64 goes to and from two halves. */
static int library_int64_helpers(lua_State *L) {
  lua_settop(L, 2);
  lua_setfield(L, LUA_REGISTRYINDEX, "perilune.int64.join");
  lua_setfield(L, LUA_REGISTRYINDEX, "perilune.int64.split");
  return 0;
}

/* peek(t, k) reads element k of a row-major f32 tensor without waiting, poke(t, k, v) writes one, past the end too: for specs that show
** what a missing wait or a write out of bounds looks like. Only where tensor memory is the host's. */
static float *raw_element(lua_State *L, const char *op) {
  pln_Tensor *t = pll_tensor(L, 1, op, "t");
  if (!t->engine->backend->host_memory || t->dtype != PLN_F32) pll_argument(L, op, "an f32 tensor in host memory was expected");
  return (float *)t->data + pll_integer(L, 2, op, "k") - 1;
}

static int library_peek(lua_State *L) {
  lua_pushnumber(L, *raw_element(L, "peek"));
  return 1;
}

static int library_poke(lua_State *L) {
  float *at = raw_element(L, "poke");
  pll_check(L, pln_engine_sync(pll_tensor(L, 1, "poke", "t")->engine));
  *at = (float)luaL_checknumber(L, 3);
  return 0;
}

/* set_report(fn): what an epoch's first overflow is told to. */
static int library_set_report(lua_State *L) {
  lua_settop(L, 1);
  lua_setfield(L, LUA_REGISTRYINDEX, "perilune.report");
  return 0;
}

/* fault(name, on) switches a fault point (fault.h); fault() lists them: name -> what goes wrong. */
static int library_fault(lua_State *L) {
  if (lua_isnoneornil(L, 1)) {
    lua_createtable(L, 0, PLN_NFAULTS);
    for (int i = 0; i < PLN_NFAULTS; i++) set_string(L, pln_fault_names[i], pln_fault_docs[i]);
    return 1;
  }
  const char *name = luaL_checkstring(L, 1);
  if (!pln_fault_set(name, lua_toboolean(L, 2))) pll_argument(L, "fault", "there is no fault '%s'", name);
  return 0;
}

/* home(source): how the sources of the library's own Lua files begin; one more where they are found by another path. */
static int library_home(lua_State *L) {
  pll_State *s = pll_state(L);
  size_t n;
  const char *source = luaL_checklstring(L, 1, &n);
  for (int i = 0; i < s->nhomes; i++)
    if (strcmp(s->home[i], source) == 0) return 0;
  if (n < sizeof s->home[0] && s->nhomes < PLL_HOMES) memcpy(s->home[s->nhomes++], source, n + 1); /* else its lines are places like any */
  return 0;
}

const luaL_Reg pll_library_functions[] = {
  {"alloc_live", library_alloc_live}, {"alloc_fail_at", library_alloc_fail_at}, {"int64_helpers", library_int64_helpers},
  {"set_report", library_set_report}, {"peek", library_peek}, {"poke", library_poke}, {"home", library_home}, {"fault", library_fault}, {NULL, NULL},
};

static void finalizer(lua_State *L, const char *metatable, lua_CFunction gc) {
  lua_getfield(L, LUA_REGISTRYINDEX, metatable);
  lua_getfield(L, LUA_REGISTRYINDEX, "perilune.state");
  lua_pushnil(L);
  lua_pushnil(L);
  lua_pushcclosure(L, gc, 3);
  lua_setfield(L, -2, "__gc");
  lua_pop(L, 1);
}

static void set_functions(lua_State *L, const char *name, const luaL_Reg *functions) {
  lua_newtable(L);
  pll_register(L, functions);
  lua_setfield(L, -2, name);
}

EXPORT int luaopen_perilune_core(lua_State *L) {
  lua_getfield(L, LUA_REGISTRYINDEX, "perilune.module");
  if (lua_istable(L, -1)) return 1; /* required again: tensors of before are of the same runtime */
  pll_check(L, pln_ops_init());
  open_state(L);
  pll_autograd_open(L);
  finalizer(L, "perilune.tensor.final", pll_tensor_gc);
  finalizer(L, "perilune.engine", pll_engine_gc);
  finalizer(L, "perilune.capture", pll_capture_gc);
  lua_newtable(L);
  set_string(L, "version", PACKAGE_VERSION);
  set_functions(L, "engine", pll_engine_functions);
  set_functions(L, "tensor", pll_tensor_functions);
  set_functions(L, "library", pll_library_functions);
  lua_getfield(L, -1, "library");
  pll_interrupt_open(L);
  lua_pop(L, 1);
  set_functions(L, "arena", pll_arena_functions);
  set_functions(L, "autograd", pll_autograd_functions);
  set_functions(L, "capture", pll_capture_functions);
  lua_createtable(L, 0, PLN_NOPS);
  lua_createtable(L, PLN_NOPS, 0);
  for (int i = 0; i < PLN_NOPS; i++) {
    push_op(L, &pln_ops[i]);
    lua_setfield(L, -3, pln_ops[i].name);
    push_row(L, &pln_ops[i]);
    lua_rawseti(L, -2, i + 1);
  }
  lua_setfield(L, -2, "rows");
  lua_setfield(L, -2, "ops");
  lua_newtable(L);
  for (int d = 0; d < PLN_NDTYPE; d++) {
    lua_pushstring(L, pln_dtype_name((pln_DType)d));
    lua_rawseti(L, -2, d + 1);
  }
  lua_setfield(L, -2, "dtypes");
  static const char *const metatables[] = {"perilune.tensor", "perilune.tensor.final", "perilune.engine", "perilune.capture"};
  lua_newtable(L);
  for (int i = 0; i < 4; i++) {
    lua_getfield(L, LUA_REGISTRYINDEX, metatables[i]);
    lua_setfield(L, -2, metatables[i]);
  }
  lua_setfield(L, -2, "metatables");
  lua_pushvalue(L, -1);
  lua_setfield(L, LUA_REGISTRYINDEX, "perilune.module");
  return 1;
}
