/* SPDX-License-Identifier: MIT
** anchor.c -- what keeps recorded ops alive: the collector.
**
** A segment of the tape hangs on an anchor: a table that holds a userdata whose finalizer drops the segment. Handles of recorded results
** have the anchor as their environment, the anchor of a younger segment holds those of the older ones that it refers to, and Lua nodes
** lie in it. So the collector sees every path to a graph and every cycle through one. Anchors are found in a weak table, which is the
** environment of all functions of the module: the table by its slot, an even number, and the userdata at the one before. Slots are used again when
** their segment is dropped, so that the weak table stays an array.
*/
#include "binding.h"

#define ANCHOR_KEY ((uintptr_t)0xd6e8feb86659fd93u)

typedef struct Anchor {
  uintptr_t magic;
  pln_Segment *segment;
  uint16_t engine;
} Anchor;

void pll_push_environment(lua_State *L) { lua_getfield(L, LUA_REGISTRYINDEX, "perilune.anchors"); }

int pll_anchor_gc(lua_State *L) {
  Anchor *a = lua_touserdata(L, 1);
  if (!a || lua_objlen(L, 1) != sizeof *a || a->magic != (ANCHOR_KEY ^ (uintptr_t)a) || !a->segment) return 0;
  pll_State *state = pll_state(L);
  if (state->free_anchors < PLL_FREE_ANCHORS) state->free_anchor[state->free_anchors++] = a->segment->slot;
  pln_segment_drop(state->runtime->engines[a->engine]->engine, a->segment);
  a->segment = NULL;
  pln_runtime_drop(state->runtime);
  return 0;
}

static PLN_COLD void new_anchor(lua_State *L, pln_Engine *e) {
  luaL_checkstack(L, 8, "anchor");
  pll_State *state = pll_state(L);
  lua_createtable(L, 1, 0);
  Anchor *a = lua_newuserdata(L, sizeof *a);
  a->magic = ANCHOR_KEY ^ (uintptr_t)a;
  a->segment = NULL;
  a->engine = e->id;
  lua_getfield(L, LUA_REGISTRYINDEX, "perilune.anchor");
  lua_setmetatable(L, -2);
  int slot = state->free_anchors ? state->free_anchor[--state->free_anchors] : 2 * ++state->anchors;
  lua_pushvalue(L, -1);
  lua_rawseti(L, LUA_ENVIRONINDEX, slot - 1);
  lua_rawseti(L, -2, 1);
  lua_pushvalue(L, -1);
  lua_rawseti(L, LUA_ENVIRONINDEX, slot);
  if (e->capture) {
    pll_push_capture(L, e);
    lua_setfield(L, -2, "capture");
  }
  pll_check(L, pln_segment_open(e, slot, &a->segment));
  pln_runtime_hold(state->runtime);
}

void pll_push_anchor(lua_State *L, pln_Engine *e) {
  const pln_Segment *s = e->tape->segment;
  if (PLN_LIKELY(s && s->slot > 0 && s->count < PLN_SEGMENT_NODES && s->bytes < PLN_SEGMENT_BYTES)) {
    /* The table may outlive its userdata by a cycle, when a dead handle with a finalizer is all that refers to it: ask for the userdata. */
    lua_rawgeti(L, LUA_ENVIRONINDEX, s->slot - 1);
    bool alive = lua_touserdata(L, -1) != NULL;
    lua_pop(L, 1);
    if (PLN_LIKELY(alive)) {
      lua_rawgeti(L, LUA_ENVIRONINDEX, s->slot);
      return;
    } /* else collected, its finalizer has yet to run */
  }
  new_anchor(L, e);
}

/* With the current anchor on top. */
void pll_anchor_hang(lua_State *L, const pln_Node *n) {
  const pln_Segment *s = n->segment;
  if (!s || s == n->engine->tape->segment || s->slot <= 0) return;
  lua_rawgeti(L, LUA_ENVIRONINDEX, s->slot);
  lua_rawseti(L, -2, -s->slot);
}

void pll_anchor_operand(lua_State *L, const pln_Tensor *t) {
  const pln_Node *n = t ? pln_tensor_node(t) : NULL;
  if (n) pll_anchor_hang(L, n);
}

void pll_anchor_operands(lua_State *L, pln_Engine *e, const pln_Args *a) {
  pll_push_anchor(L, e);
  for (int i = 0; i < a->nin; i++) pll_anchor_operand(L, a->in[i]);
  for (int i = 0; i < a->nlist; i++) pll_anchor_operand(L, a->list[i]);
}

void pll_anchor_handle(lua_State *L, int i, const pln_Tensor *t) {
  const pln_Node *n = pln_tensor_node(t);
  if (!n || !n->segment) return;
  lua_rawgeti(L, LUA_ENVIRONINDEX, n->segment->slot);
  if (PLN_LIKELY(lua_istable(L, -1)))
    lua_setfenv(L, i < 0 ? i - 1 : i);
  else
    lua_pop(L, 1);
}
