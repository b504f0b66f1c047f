/* SPDX-License-Identifier: MIT
** arena.c -- the raw arena for tests and tools: what lies where, and, on engines made with test = true, blocks by hand.
*/
#include "binding.h"

static pln_Engine *arena_engine(lua_State *L, const char *op) {
  pln_Engine *e = pll_engine(L, 1, op);
  if (!e->has_arena) pll_argument(L, op, "the engine \"%s\" has no arena", e->options.kind);
  return e;
}

/* The blocks as they are, or only their number: copied first, since Lua allocates. */
typedef struct Blocks {
  pln_Storage *block; /* NULL: count */
  size_t n, room;
} Blocks;

static void add_block(void *context, const pln_Storage *s) {
  Blocks *b = context;
  if (b->block && b->n < b->room) b->block[b->n] = *s;
  b->n++;
}

static void push_block(lua_State *L, const pln_Storage *s, const char *base) {
  char place[PLN_PLACE_TEXT];
  lua_createtable(L, 0, 8);
  lua_pushstring(L, s->state == PLN_STORAGE_LIVE ? "live" : "free"), lua_setfield(L, -2, "state");
  if (s->overflow)
    lua_pushboolean(L, 1), lua_setfield(L, -2, "overflow");
  else
    lua_pushnumber(L, (lua_Number)(s->data - base)), lua_setfield(L, -2, "offset");
  lua_pushnumber(L, (lua_Number)s->bytes), lua_setfield(L, -2, "bytes");
  lua_pushnumber(L, (lua_Number)s->asked), lua_setfield(L, -2, "asked");
  lua_pushnumber(L, s->pins), lua_setfield(L, -2, "pins");
  lua_pushnumber(L, s->captures), lua_setfield(L, -2, "captures");
  lua_pushnumber(L, s->depth), lua_setfield(L, -2, "depth");
  if (s->place) lua_pushstring(L, pln_place_text(s->place, place)), lua_setfield(L, -2, "place");
}

static int arena_blocks(lua_State *L) {
  Blocks b = {NULL, 0, 0};
  pln_arena_walk(&arena_engine(L, "blocks")->arena, add_block, &b);
  b.room = b.n;
  b.block = lua_newuserdata(L, sizeof *b.block * (b.n + 1));
  b.n = 0;
  const pln_Arena *a = &arena_engine(L, "blocks")->arena;
  const char *base = a->base;
  pln_arena_walk(a, add_block, &b);
  if (b.n > b.room) b.n = b.room; /* a finalizer made more */
  lua_createtable(L, (int)b.n, 0);
  for (size_t i = 0; i < b.n; i++) {
    push_block(L, &b.block[i], base);
    lua_rawseti(L, -2, (int)i + 1);
  }
  return 1;
}

/* "" or what is inconsistent. */
static int arena_check(lua_State *L) {
  lua_pushstring(L, pln_arena_check(&arena_engine(L, "check")->arena));
  return 1;
}

/* Raw blocks are u8 tensors of the arena, so that they obey the rules of all others. */
static int arena_alloc(lua_State *L) {
  pln_Engine *e = arena_engine(L, "alloc");
  if (!e->test) return pll_argument(L, "alloc", "raw blocks need an engine made with test = true");
  int64_t bytes = pll_integer(L, 2, "alloc", "bytes");
  pln_Shape shape = {1, {bytes}};
  pll_Handle *h = pll_box(L);
  e = arena_engine(L, "alloc");
  pln_Tensor *t;
  pll_check(L, pln_tensor_new(e, PLN_HOME_ARENA, PLN_U8, &shape, &t));
  t->place = t->storage->place = pll_place_if(L, e);
  pll_fill(L, -1, h, t);
  return 1;
}

const luaL_Reg pll_arena_functions[] = {
  {"blocks", arena_blocks}, {"check", arena_check}, {"alloc", arena_alloc}, {NULL, NULL},
};
