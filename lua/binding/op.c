/* SPDX-License-Identifier: MIT
** op.c -- every op of the table as one C function, whose fourth upvalue is the row. Called as a function of tensors, as a tensor method,
** as an operator or as an engine method, it is the same function: a leading engine value is skipped.
**
** Arguments follow the row's signature by position; after the last slot come the destinations. A final table with string keys gives slots by
** name, and the destination as `out` (a list for several results).
*/
#include "binding.h"

#include "plan.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* Where things are on the Lua stack while the arguments are read. */
typedef struct Reader {
  lua_State *L;
  const pln_OpDef *op;
  pln_Args *a;
  pln_Engine *e;
  int at, top;             /* next argument, last one */
  int out[PLN_MAX_OUT];    /* stack index of destinations, 0 none */
  int inplace;             /* stack index of the operand that an in-place op writes */
  int list;                /* stack index of the list of tensors */
  uint16_t id;             /* of the engine, whose record outlives it */
} Reader;

static PLN_COLD int expected(Reader *r, int i, const pln_Slot *slot, const char *what) {
  char text[PLN_SHAPE_TEXT + 16];
  return pll_argument(r->L, r->op->name, "argument '%s': %s was expected, got %s", slot->name, what, pll_describe(r->L, i, text));
}

static PLN_COLD pln_Tensor *stale_tensor(const Reader *r, pll_Handle *h, const char *name) {
  char what[64];
  snprintf(what, sizeof what, "argument '%s'", name);
  return pll_stale(r->L, h, r->op->name, what);
}

static PLN_COLD void other_engine(const Reader *r, const pln_Tensor *t, const char *name) {
  pll_raise(r->L, pln_fail(PLN_EENGINE, "%s: argument '%s' belongs to the engine \"%s\", the others to \"%s\" (t:to(engine) copies)",
                           r->op->name, name, t->engine->options.kind, pll_state(r->L)->runtime->engines[r->id]->kind));
}

static inline pln_Tensor *take_tensor(Reader *r, pll_Handle *h, const char *name) {
  pln_Tensor *t = h->t;
  if (PLN_UNLIKELY(!pll_alive(h))) t = stale_tensor(r, h, name);
  if (PLN_UNLIKELY(t->engine != r->e)) {
    if (r->e) other_engine(r, t, name);
    r->e = t->engine;
    r->id = t->engine->id;
  }
  return t;
}

static void read_operand(Reader *r, int i, const pln_Slot *slot) {
  lua_State *L = r->L;
  pll_Handle *h = pll_handle(L, i);
  if (PLN_LIKELY(h != NULL)) {
    r->a->in[slot->index] = take_tensor(r, h, slot->name);
    if (r->op->flags & PLN_OP_INPLACE && !r->inplace) r->inplace = i;
    return;
  }
  int type = lua_type(L, i);
  if (slot->kind == PLN_SLOT_NUMBER_OR_TENSOR && (type == LUA_TNUMBER || type == LUA_TBOOLEAN)) {
    r->a->numbers |= 1u << slot->index;
    r->a->num[slot->index] = type == LUA_TNUMBER ? lua_tonumber(L, i) : lua_toboolean(L, i);
    return;
  }
  if (type <= LUA_TNIL && slot->optional) return;
  expected(r, i, slot, slot->kind == PLN_SLOT_NUMBER_OR_TENSOR ? "a tensor or number" : "a tensor");
}

static void read_tensors(Reader *r, int i, const pln_Slot *slot) {
  lua_State *L = r->L;
  if (!lua_istable(L, i)) expected(r, i, slot, "a list of tensors");
  int n = (int)lua_objlen(L, i);
  /* the list's memory is Lua's: nothing to free when a later argument is wrong; it stays on the stack, below it the arguments */
  r->list = i;
  r->a->list = lua_newuserdata(L, sizeof(pln_Tensor *) * (size_t)(n ? n : 1));
  r->a->nlist = n;
  for (int k = 0; k < n; k++) {
    char name[40];
    snprintf(name, sizeof name, "%s[%d]", slot->name, k + 1);
    lua_rawgeti(L, i, k + 1);
    pll_Handle *h = pll_handle(L, -1);
    if (!h) {
      char text[PLN_SHAPE_TEXT + 16];
      pll_argument(L, r->op->name, "argument '%s': a tensor was expected, got %s", name, pll_describe(L, -1, text));
    }
    r->a->list[k] = take_tensor(r, h, name);
    lua_pop(L, 1);
  }
}

static void read_word(Reader *r, int i, const pln_Slot *slot, pln_Opt *o) {
  if (lua_type(r->L, i) == LUA_TSTRING) {
    const char *word = lua_tostring(r->L, i);
    int index = 0;
    for (const char *w = slot->words; *w; index++) {
      size_t n = strcspn(w, "|");
      if (strlen(word) == n && strncmp(w, word, n) == 0) {
        o->i = index;
        return;
      }
      w += n;
      if (*w) w++;
    }
  }
  char what[100];
  snprintf(what, sizeof what, "one of %s", slot->words);
  expected(r, i, slot, what);
}

/* Whether the list still holds the tensors that were read: Lua code that ran meanwhile may have taken them out. */
static bool same_tensors(const Reader *r) {
  bool same = (int)lua_objlen(r->L, r->list) == r->a->nlist;
  for (int k = 0; k < r->a->nlist && same; k++) {
    lua_rawgeti(r->L, r->list, k + 1);
    const pll_Handle *h = pll_handle(r->L, -1);
    same = h && pll_alive(h) && h->t == r->a->list[k];
    lua_pop(r->L, 1);
  }
  return same;
}

/* One option's value at stack index i, which is not nil. */
static void read_option(Reader *r, int i, const pln_Slot *slot) {
  lua_State *L = r->L;
  pln_Opt *o = &r->a->opt[slot->index];
  o->given = 1;
  switch (slot->kind) {
    case PLN_SLOT_NUM:
      if (lua_type(L, i) != LUA_TNUMBER) expected(r, i, slot, "a number");
      o->num = lua_tonumber(L, i);
      break;
    case PLN_SLOT_BOOL:
      if (!lua_isboolean(L, i)) expected(r, i, slot, "a boolean");
      o->i = lua_toboolean(L, i);
      break;
    case PLN_SLOT_INT:
    case PLN_SLOT_DIM:
      o->i = pll_integer(L, i, r->op->name, slot->name);
      o->num = (double)o->i;
      break;
    case PLN_SLOT_DTYPE: o->i = pll_dtype(L, i, r->op->name); break;
    case PLN_SLOT_WORD: read_word(r, i, slot, o); break;
    default: pll_integers(L, i, r->op->name, slot->name, &o->list);
  }
}

static bool has_string_keys(lua_State *L, int i) {
  lua_pushnil(L);
  if (!lua_next(L, i)) return false;
  bool named = lua_type(L, -2) == LUA_TSTRING;
  lua_pop(L, 2);
  return named;
}

/* Trailing numbers as one list: x:view(3, 2). */
static void read_spread(Reader *r, const pln_Slot *slot) {
  pln_Opt *o = &r->a->opt[slot->index];
  o->given = 1;
  o->list.ndim = 0;
  while (r->at <= r->top && lua_type(r->L, r->at) == LUA_TNUMBER) {
    if (o->list.ndim == PLN_MAX_DIMS) pll_argument(r->L, r->op->name, "argument '%s': at most %d numbers", slot->name, PLN_MAX_DIMS);
    o->list.size[o->list.ndim++] = pll_integer(r->L, r->at++, r->op->name, slot->name);
  }
}

static void read_slot(Reader *r, int k) {
  const pln_Slot *slot = &r->op->slot[k];
  if (slot->kind < PLN_SLOT_TENSORS) {
    read_operand(r, r->at++, slot);
  } else if (slot->kind == PLN_SLOT_TENSORS) {
    int i = r->at++;
    read_tensors(r, i, slot);
  } else if (lua_isnoneornil(r->L, r->at)) {
    r->at++;
    if (!slot->optional) expected(r, r->at - 1, slot, "a value");
  } else if (slot->kind == PLN_SLOT_INTS && k == r->op->nslots - 1 && lua_type(r->L, r->at) == LUA_TNUMBER) {
    read_spread(r, slot);
  } else {
    read_option(r, r->at++, slot);
  }
}

static void read_destination(Reader *r, int k, int i) {
  pll_Handle *h = pll_handle(r->L, i);
  char text[PLN_SHAPE_TEXT + 16];
  if (!h) pll_argument(r->L, r->op->name, "argument 'out': a tensor was expected, got %s", pll_describe(r->L, i, text));
  if (k >= r->op->nout) pll_argument(r->L, r->op->name, "too many arguments: %d result%s", r->op->nout, r->op->nout == 1 ? "" : "s");
  r->a->out[k] = take_tensor(r, h, "out");
  r->out[k] = i;
}

/* `out = t` or `out = {a, b}`; values are left on the stack so that they have an index. */
static void read_out(Reader *r) {
  lua_State *L = r->L;
  if (pll_handle(L, -1)) {
    read_destination(r, 0, lua_gettop(L));
    return;
  }
  char text[PLN_SHAPE_TEXT + 16];
  int list = lua_gettop(L);
  if (!lua_istable(L, list)) pll_argument(L, r->op->name, "argument 'out': a tensor was expected, got %s", pll_describe(L, list, text));
  for (int k = 0; k < (int)lua_objlen(L, list); k++) {
    lua_rawgeti(L, list, k + 1);
    read_destination(r, k, lua_gettop(L));
  }
}

static PLN_COLD void read_named(Reader *r, int table) {
  lua_State *L = r->L;
  luaL_checkstack(L, 40, "too many arguments");
  lua_pushnil(L);
  while (lua_next(L, table)) { /* refuses unknown names before anything is read */
    if (lua_type(L, -2) != LUA_TSTRING) pll_argument(L, r->op->name, "the option table mixes names and values without a name");
    const char *name = lua_tostring(L, -2);
    bool known = strcmp(name, "out") == 0;
    for (int k = 0; k < r->op->nslots && !known; k++) known = strcmp(r->op->slot[k].name, name) == 0;
    if (!known) pll_argument(L, r->op->name, "there is no option '%s'; the arguments are: %s", name, r->op->signature);
    lua_pop(L, 1);
  }
  for (int k = 0; k < r->op->nslots; k++) {
    const pln_Slot *slot = &r->op->slot[k];
    lua_getfield(L, table, slot->name);
    int i = lua_gettop(L);
    if (lua_isnil(L, i))
      lua_pop(L, 1);
    else if (slot->kind < PLN_SLOT_TENSORS)
      read_operand(r, i, slot); /* stays on the stack */
    else if (slot->kind == PLN_SLOT_TENSORS)
      read_tensors(r, i, slot);
    else
      read_option(r, i, slot);
  }
  lua_getfield(L, table, "out");
  if (lua_isnil(L, -1))
    lua_pop(L, 1);
  else
    read_out(r);
}

/* The slots from k on, destinations and named options: whatever is not a tensor after tensors. */
__attribute__((noinline)) static void read_rest(Reader *r, int k) {
  lua_State *L = r->L;
  const pln_OpDef *op = r->op;
  int named = 0;
  if (r->top >= r->at && lua_istable(L, r->top) && has_string_keys(L, r->top)) named = r->top--;
  for (; k < op->nslots; k++) {
    if (r->at > r->top) {
      const pln_Slot *slot = &op->slot[k];
      if (named || slot->optional) {
        r->at++;
        continue;
      }
      expected(r, r->at, slot, slot->kind < PLN_SLOT_TENSORS ? "a tensor" : "a value");
    }
    read_slot(r, k);
  }
  for (int k = 0; r->at <= r->top; r->at++, k++)
    if (!lua_isnil(L, r->at)) read_destination(r, k, r->at);
  if (!named) return;
  read_named(r, named);
  for (int k = 0; k < op->nslots; k++) {
    const pln_Slot *slot = &op->slot[k];
    bool missing = !slot->optional && (slot->kind < PLN_SLOT_TENSORS
                       ? !r->a->in[slot->index] && !(r->a->numbers >> slot->index & 1)
                       : slot->kind == PLN_SLOT_TENSORS ? !r->a->list : !r->a->opt[slot->index].given);
    if (missing) pll_argument(L, op->name, "argument '%s' is missing", slot->name);
  }
}

/* Tensors in the first slots and a destination right behind them are read here and fast; `h` is the first argument's handle or NULL. */
static inline void read_arguments(Reader *r, pll_Handle *h) {
  lua_State *L = r->L;
  const pln_OpDef *op = r->op;
  int k = 0;
  for (; k < op->lead && h; k++) {
    r->a->in[k] = take_tensor(r, h, op->slot[k].name);
    r->at++;
    h = r->at <= r->top ? pll_handle(L, r->at) : NULL;
  }
  if (k && op->flags & PLN_OP_INPLACE) r->inplace = r->at - k;
  if (h && k == op->nslots && r->at == r->top) {
    r->a->out[0] = take_tensor(r, h, "out");
    r->out[0] = r->at++;
  }
  if (r->at <= r->top || k < op->nslots) {
    read_rest(r, k);
    r->top = lua_gettop(L);
  }
}

/* A result on its way to its box, known again after Lua code ran. */
typedef struct Piece {
  pln_Tensor *t;
  uint64_t serial;
} Piece;

static PLN_COLD int push_results(lua_State *L, pln_Engine *e, pln_Args *a, const pln_OpDef *op) {
  int n = a->nresults;
  const pln_EngineRecord *record = e->runtime->engines[e->id];
  Piece *piece = lua_checkstack(L, n + 4) ? pln_malloc(sizeof *piece * (size_t)n) : NULL;
  for (int i = 0; i < n; i++) {
    if (piece)
      piece[i] = (Piece){a->results[i], a->results[i]->object.serial};
    else
      pln_tensor_release(a->results[i]);
  }
  pln_mfree(a->results);
  if (!piece) return pll_raise(L, pln_fail(PLN_ENOMEM, "%s: out of memory for %d results", op->name, n));
  Piece *moved = lua_newuserdata(L, sizeof *moved * (size_t)n);
  memcpy(moved, piece, sizeof *moved * (size_t)n);
  pln_mfree(piece);
  for (int i = 0; i < n; i++) {
    pll_Handle *h = pll_box(L);
    if (PLN_UNLIKELY(moved[i].t->object.serial != moved[i].serial) || PLN_UNLIKELY(moved[i].t->epoch != *moved[i].t->live)) {
      for (; i < n; i++) pll_drop(record, moved[i].t, moved[i].serial);
      return pll_argument(L, op->name, "a finalizer ended the results before they were returned");
    }
    pll_fill(L, -1, h, moved[i].t);
  }
  if (PLN_LIKELY(record->engine != NULL)) pll_settle_if(L, e);
  return n;
}

static PLN_COLD void failed(lua_State *L, const pln_OpDef *op, pln_Status status) {
  if (status == PLN_ENOMEM && strncmp(pln_error(), "out of memory", 13) == 0) pln_fail_prefix(status, "%s: ", op->name);
  pll_raise(L, status);
}

static inline void run(lua_State *L, pln_Engine *e, const pln_OpDef *op, pln_Args *a) {
  pln_Status status = pln_op_run(e, op, a);
  if (PLN_UNLIKELY(status != PLN_OK)) failed(L, op, status);
}

/* Any op in any form; -1 when what was read may have ended before the op, and nothing has been done. */
static int try_general(lua_State *L, const pln_OpDef *op) {
  pln_Args a;
  Reader r = {L, op, &a, NULL, 1, lua_gettop(L), {0}, 0, 0, 0};
  const pln_Runtime *runtime = pll_state(L)->runtime;
  uint64_t ends = runtime->ends;
  pln_args_init(op, &a);
  pll_EngineBox *on = NULL;
  pll_Handle *h = r.top ? pll_handle_or_engine(L, 1, &on) : NULL;
  if (on) {
    r.e = PLN_LIKELY(on->e != NULL) ? on->e : pll_engine(L, 1, op->name);
    r.id = r.e->id;
    r.at = 2;
    h = r.top > 1 ? pll_handle(L, 2) : NULL;
  }
  read_arguments(&r, h);
  if (PLN_UNLIKELY(!r.e)) return pll_argument(L, op->name, "a tensor is needed to know the engine (or call it as eng:%s(...))", op->name);
  if (PLN_UNLIKELY(runtime->ends != ends)) return -1;
  a.place = pll_place_if(L, r.e);
  if (PLN_UNLIKELY(r.e->hooks & PLN_HOOK_TAPE) && pln_tape_wants(r.e, op, &a)) {
    pll_anchor_operands(L, r.e, &a);
    r.top = lua_gettop(L);
  }
  if (r.out[0] && r.out[0] == r.top && op->nout == 1) { /* stands where the result has to */
    if (PLN_UNLIKELY(runtime->ends != ends) || (PLN_UNLIKELY(r.list) && !same_tensors(&r))) return -1;
    run(L, r.e, op, &a);
    pll_settle_if(L, r.e);
    return 1;
  }
  int first = r.top + 1;
  pll_Handle *box[PLN_MAX_OUT];
  for (int k = 0; k < op->nout; k++) {
    box[k] = NULL;
    if (r.out[k])
      lua_pushvalue(L, r.out[k]);
    else if (op->flags & PLN_OP_INPLACE && k == 0)
      lua_pushvalue(L, r.inplace);
    else
      box[k] = pll_box(L);
  }
  if (PLN_UNLIKELY(runtime->ends != ends) || (PLN_UNLIKELY(r.list) && !same_tensors(&r))) return -1;
  run(L, r.e, op, &a);
  if (PLN_UNLIKELY(a.results != NULL)) return push_results(L, r.e, &a, op);
  int n = 0;
  for (int k = 0; k < op->nout; k++) {
    if (!a.out[k]) break; /* optional results come last */
    n++;
    if (box[k]) {
      if (op->flags & PLN_OP_INPLACE) pln_tensor_retain(a.out[k]);
      pll_fill(L, first + k, box[k], a.out[k]);
    }
  }
  if (PLN_UNLIKELY(n < op->nout)) lua_settop(L, first + n - 1);
  pll_settle_if(L, r.e);
  return n;
}

#define TRIES 8

/* Lua code runs wherever Lua allocates (finalizers) and reads a table (metamethods), and may end what is in use: then all is read again,
** and what is no longer alive is an error as always. */
__attribute__((noinline)) static int run_general(lua_State *L, const pln_OpDef *op) {
  int top = lua_gettop(L);
  for (int i = 0; i < TRIES; i++) {
    int n = try_general(L, op);
    if (PLN_LIKELY(n >= 0)) return n;
    lua_settop(L, top);
  }
  return pll_argument(L, op->name, "a finalizer or metamethod ends tensors each time the arguments are read");
}

/* --- the short way ------------------------------------------------------------------------------ */

/* Takes a value that is an operand of this engine, alive, and nothing special; false: it is for the general way. */
__attribute__((always_inline)) static inline bool take_brief(lua_State *L, int i, pll_Handle *h, const pln_OpDef *op, pln_Engine **e_p, pln_Args *a, int k) {
  if (PLN_LIKELY(h != NULL)) {
    pln_Tensor *t = h->t;
    if (PLN_UNLIKELY(!pll_alive(h)) || (PLN_UNLIKELY(t->engine != *e_p) && *e_p)) return false;
    *e_p = t->engine;
    a->in[k] = t;
    return true;
  }
  int type = lua_type(L, i);
  if (type == LUA_TNUMBER && op->numbers) {
    a->numbers |= 1u << k;
    a->num[k] = lua_tonumber(L, i);
    return true;
  }
  return type <= LUA_TNIL && op->slot[k].optional;
}

/* Options by position from stack index `at` on: small integers where integers or dims are asked for, or nil. */
static inline bool take_options(lua_State *L, int at, int top, const pln_OpDef *op, pln_Args *a) {
  for (int k = op->nin; k < op->nslots; k++, at++) {
    const pln_Slot *slot = &op->slot[k];
    int type = at <= top ? lua_type(L, at) : LUA_TNONE;
    if (type <= LUA_TNIL) {
      if (!slot->optional) return false;
      continue;
    }
    if (type != LUA_TNUMBER || (slot->kind != PLN_SLOT_DIM && slot->kind != PLN_SLOT_INT)) return false;
    lua_Number number = lua_tonumber(L, at);
    int whole = (int)number;
    if (number != whole) return false;
    pln_Opt *o = &a->opt[slot->index];
    o->given = 1;
    o->num = number;
    o->i = whole;
  }
  return true;
}

static inline bool requires_grad(int nin, const pln_Args *a) {
  for (int k = 0; k < nin; k++)
    if (a->in[k] && a->in[k]->requires_grad) return true;
  return false;
}

/* Calls of brief ops (pln_OpDef.brief) whose plan is known, when nothing is wrong or special; 0: it is, and nothing has been done. nin and
** nopt are the op's: constants make a copy for each common kind. */
__attribute__((always_inline)) static inline int run_brief(lua_State *L, const pln_OpDef *op, int nin, int nopt) {
  int top = lua_gettop(L), at = 1;
  pln_Args a;
  pll_EngineBox *on;
  if (PLN_UNLIKELY(!top)) return 0;
  pll_Handle *h = pll_handle_or_engine(L, 1, &on);
  pln_Engine *e = NULL;
  if (on) {
    e = on->e;
    if (PLN_UNLIKELY(!e) || top < 2) return 0;
    h = pll_handle(L, at = 2);
  }
  if (nopt) {
    pln_args_init(op, &a);
  } else {
    a.nin = nin;
    a.numbers = 0;
    for (int k = 0; k < 3; k++) a.in[k] = NULL;
    for (int k = 0; k < PLN_MAX_OUT; k++) a.out[k] = NULL;
    a.list = NULL;
    a.nlist = a.nresults = 0;
    a.results = NULL;
    a.place = 0;
  }
  if (PLN_UNLIKELY(!take_brief(L, at, h, op, &e, &a, 0))) return 0;
  for (int k = 1; k < nin; k++) {
    at++;
    if (PLN_UNLIKELY(!take_brief(L, at, at <= top ? pll_handle(L, at) : NULL, op, &e, &a, k))) return 0;
  }
  if (PLN_UNLIKELY(!e) || PLN_UNLIKELY(e->hooks & (PLN_HOOK_PLACES | PLN_HOOK_CAPTURE)) || PLN_UNLIKELY(!e->plans) || PLN_UNLIKELY(pln_fault_any)) return 0;
  at++;
  if (nopt) {
    if (PLN_UNLIKELY(!take_options(L, at, top, op, &a))) return 0;
    at += nopt;
  }
  bool record = false;
  if (PLN_UNLIKELY(e->hooks & PLN_HOOK_TAPE)) {
    record = requires_grad(nin, &a);
    if (record && (!op->recorded || at <= top)) return 0;
  }
  if (at <= top) {
    if (PLN_UNLIKELY(at < top)) return 0;
    h = pll_handle(L, top);
    if (PLN_UNLIKELY(!h) || PLN_UNLIKELY(!pll_alive(h)) || PLN_UNLIKELY(h->t->engine != e)) return 0;
    if (PLN_UNLIKELY(e->hooks & PLN_HOOK_TAPE) && h->t->requires_grad) return 0;
    a.out[0] = h->t;
  }
  uint64_t ends = e->runtime->ends;
  const pln_Runtime *runtime = e->runtime;
  bool made = !a.out[0];
  if (PLN_LIKELY(made)) {
    if (PLN_UNLIKELY(record)) pll_anchor_operands(L, e, &a);
    h = pll_box(L);
  }
  /* finalizers that ran may have ended tensors, or replaced a plan */
  const pln_Plan *plan = PLN_LIKELY(runtime->ends == ends) ? pln_plan_find_brief(e->plans, op, nin, nopt, &a) : NULL;
  if (PLN_UNLIKELY(!plan) || PLN_UNLIKELY(plan->bare)) {
    lua_settop(L, top);
    return 0;
  }
  pln_Status status = pln_op_run_plan(e, op, &a, plan, record);
  if (PLN_UNLIKELY(status != PLN_OK)) failed(L, op, status);
  if (PLN_LIKELY(made)) pll_fill(L, -1, h, a.out[0]);
  pll_settle_if(L, e);
  return 1;
}

int pll_op(lua_State *L) {
  const pln_OpDef *op = lua_touserdata(L, lua_upvalueindex(PLL_UP_OP));
  if (PLN_UNLIKELY(pln_interrupted)) return pll_raise(L, pln_fail(PLN_EINTERRUPT, "%s: interrupted", op->name));
  if (PLN_LIKELY(op->brief)) {
    int done = op->nopt ? run_brief(L, op, op->nin, op->nopt) : op->nin == 2 ? run_brief(L, op, 2, 0) : op->nin == 1 ? run_brief(L, op, 1, 0)
                                                                                                                     : run_brief(L, op, 3, 0);
    if (PLN_LIKELY(done)) return 1;
  }
  return run_general(L, op);
}
