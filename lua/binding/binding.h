/* SPDX-License-Identifier: MIT
** binding.h -- what the files of the Lua module share.
**
** Three phases per C function: read the arguments (may throw, nothing is held), act (core calls only), push (results already have
** their boxes, made before the act). Every error leaves through pll_raise.
**
** A tensor value is a full userdata of 32 bytes. It is checked by size and a magic word that is the key xor its own address, which
** costs two API calls and cannot be fooled by other userdata; then serial and epoch tell whether the tensor that it stands for is
** still alive. A Lua value is never reused for another tensor.
*/
#ifndef PLL_BINDING_H
#define PLL_BINDING_H

#include <lauxlib.h>
#include <lua.h>

#include "autograd/tape.h"
#include "capture.h"
#include "perilune.h"

typedef struct pll_Handle {
  uintptr_t magic;
  pln_Tensor *t;     /* type-stable memory: readable even when stale */
  uint64_t serial;
  uint32_t place;    /* Lua line that made it */
  uint16_t engine;   /* id of its record */
  uint8_t depth;     /* scope */
  uint8_t finalized; /* 1: has a finalizer and holds the runtime */
} pll_Handle;

typedef struct pll_EngineBox {
  uintptr_t magic;
  pln_Engine *e;     /* NULL once closed */
  pln_Runtime *runtime;
  uint64_t id;
  uint64_t unused;   /* for a size that is no handle's */
} pll_EngineBox;

#define PLL_HOMES 4

typedef struct pll_Line { /* a line of a caller's and its place */
  int line;
  uint32_t place; /* 0: unused */
  char source[LUA_IDSIZE];
} pll_Line;

#define PLL_LINES 32 /* a power of two */
#define PLL_FREE_ANCHORS 64

/* One per Lua state, a userdata in the registry; every C function of the module has it as upvalue 1. */
typedef struct pll_State {
  pln_Runtime *runtime;
  int anchors;         /* slots ever given out, see anchor.c, */
  int free_anchors;    /* and those that are free again */
  int free_anchor[PLL_FREE_ANCHORS];
  int nhomes;
  pll_Line recent[PLL_LINES]; /* places by line */
  char home[PLL_HOMES][240]; /* how the sources of the library's own Lua files begin: their lines are nobody's place */
} pll_State;

#define PLL_KEY ((uintptr_t)0x9e3779b97f4a7c15u)
#define PLL_ENGINE_KEY ((uintptr_t)0xc2b2ae3d27d4eb4fu)

/* Upvalues of every function: the state, the metatable of tensors without a finalizer, the one with. Op functions have the row as fourth. */
enum { PLL_UP_STATE = 1, PLL_UP_PLAIN, PLL_UP_FINAL, PLL_UP_OP };

static inline pll_State *pll_state(lua_State *L) { return lua_touserdata(L, lua_upvalueindex(PLL_UP_STATE)); }

/* The handle at a stack index, NULL if it is no tensor. */
static inline pll_Handle *pll_handle(lua_State *L, int i) {
  pll_Handle *h = lua_touserdata(L, i);
  if (PLN_UNLIKELY(!h) || PLN_UNLIKELY(lua_objlen(L, i) != sizeof *h) ||
      PLN_UNLIKELY(h->magic != (PLL_KEY ^ (uintptr_t)h)))
    return NULL;
  return h;
}

/* The same, and an engine value in *box_p if it is one: two API calls for both. */
static inline pll_Handle *pll_handle_or_engine(lua_State *L, int i, pll_EngineBox **box_p) {
  *box_p = NULL;
  void *p = lua_touserdata(L, i);
  if (!p) return NULL;
  size_t bytes = lua_objlen(L, i);
  if (bytes == sizeof(pll_Handle)) {
    pll_Handle *h = p;
    return PLN_LIKELY(h->magic == (PLL_KEY ^ (uintptr_t)h)) ? h : NULL;
  }
  _Static_assert(sizeof(pll_EngineBox) != sizeof(pll_Handle), "told apart by size");
  pll_EngineBox *b = p;
  if (bytes == sizeof *b && b->magic == (PLL_ENGINE_KEY ^ (uintptr_t)b)) *box_p = b;
  return NULL;
}

static inline bool pll_alive(const pll_Handle *h) {
  return !PLN_CHECKED || (PLN_LIKELY(h->t->object.serial == h->serial) && PLN_LIKELY(h->t->epoch == *h->t->live));
}

/* C2: the tensor of a handle that is not alive: raises what became of it, or returns it under stale = "allow". `what` names the
** operand ("argument 'a'"). */
pln_Tensor *pll_stale(lua_State *L, pll_Handle *h, const char *op, const char *what);
/* The tensor at a stack index, alive; else raises with the function's and argument's name. */
pln_Tensor *pll_tensor(lua_State *L, int i, const char *op, const char *arg);
/* Lua code runs wherever Lua allocates memory (finalizers of the user's) or reads a field (metamethods), and may end tensors and engines:
** what was read before such a place is read again behind it, or pll_unended tells that nothing ended since `ends` was runtime->ends. */
static inline uint64_t pll_ends(lua_State *L) { return pll_state(L)->runtime->ends; }
void pll_unended(lua_State *L, uint64_t ends, const char *op);
#define PLL_MAX_USERDATA INT64_C(0x7fffff00) /* bytes */
/* The open engine at a stack index; else raises. */
pln_Engine *pll_engine(lua_State *L, int i, const char *op);
pll_EngineBox *pll_engine_box(lua_State *L, int i);
/* Pushes the engine's Lua value. */
void pll_push_engine(lua_State *L, pln_Engine *e);

/* An empty handle on the stack: collected without effect until pll_fill. */
pll_Handle *pll_box(lua_State *L);
/* Makes the handle (at stack index i) stand for t, taking over one reference. Cannot fail. */
void pll_fill(lua_State *L, int i, pll_Handle *h, pln_Tensor *t);
/* Box and fill for a tensor that C already holds elsewhere (retains it). */
void pll_push_tensor(lua_State *L, pln_Tensor *t);
/* Drops the reference that a handle, or C on its behalf, had to t: if it is still the tensor of that serial. Late ones are counted (C4). */
void pll_drop(const pln_EngineRecord *record, pln_Tensor *t, uint64_t serial);
/* Before an op is recorded: pushes the value on which its node will hang, and hangs those of its operands' nodes on that. */
void pll_push_anchor(lua_State *L, pln_Engine *e);
void pll_anchor_operand(lua_State *L, const pln_Tensor *t);
void pll_anchor_operands(lua_State *L, pln_Engine *e, const pln_Args *a);
/* With an anchor on top: it holds the anchor of the node's segment from now on. */
void pll_anchor_hang(lua_State *L, const pln_Node *n);
int pll_anchor_gc(lua_State *L);
/* The handle at index i keeps the node of its tensor. */
void pll_anchor_handle(lua_State *L, int i, const pln_Tensor *t);
/* After new memory was made: runs the collector when much has come together since the last time, reports an epoch's first overflow. */
#define PLL_COLLECT_MIN ((uint64_t)16 << 20) /* bytes */
void pll_settle(lua_State *L, pln_Engine *e);
static inline void pll_settle_if(lua_State *L, pln_Engine *e) {
  if (PLN_UNLIKELY(e->owned_since >= PLL_COLLECT_MIN) || PLN_UNLIKELY(e->hooks & PLN_HOOK_REPORT)) pll_settle(L, e);
}

/* Raises the waiting message at the nearest Lua line. */
int pll_raise(lua_State *L, pln_Status status);
/* Raises "op: text" of a wrong argument. */
int pll_argument(lua_State *L, const char *op, const char *fmt, ...);
static inline void pll_check(lua_State *L, pln_Status status) {
  if (PLN_UNLIKELY(status != PLN_OK)) pll_raise(L, status);
}
/* What a value is, for messages: "f32 tensor (2, 3)", "nil", "table". */
const char *pll_describe(lua_State *L, int i, char *buf);
/* Whether a source, as Lua names it, is one of the library's own Lua files. */
bool pll_is_own(const pll_State *s, const char *source);
/* Puts what has to do with Ctrl-C into the table on top. */
void pll_interrupt_open(lua_State *L);
/* The number of the nearest Lua line. */
uint32_t pll_place(lua_State *L);
/* The same if the engine records places, else 0. Records of a capture always have theirs. */
static inline uint32_t pll_place_if(lua_State *L, const pln_Engine *e) {
  return PLN_UNLIKELY(e->hooks & (PLN_HOOK_PLACES | PLN_HOOK_CAPTURE)) ? pll_place(L) : 0;
}
/* Raises "<what> is not possible during a capture" in one; `what` begins with the function's name and a colon. */
static inline void pll_refuse_in_capture(lua_State *L, pln_Engine *e, const char *what) {
  pll_check(L, pln_capture_refuse(e, what));
}
/* While a capture records: pushes the table that holds its value; makes it the environment of the handle at index i. */
void pll_push_capture(lua_State *L, pln_Engine *e);
void pll_capture_handle(lua_State *L, int i, pln_Engine *e);

/* Values: one element between Lua and a dtype. Write raises on what does not fit; read pushes a number or boolean. */
void pll_write_value(lua_State *L, int i, pln_DType dtype, void *to, const char *op);
void pll_push_value(lua_State *L, pln_DType dtype, const void *from, bool int64);
/* An integral number that fits; raises otherwise. */
int64_t pll_integer(lua_State *L, int i, const char *op, const char *arg);
/* A list of integers, a single one, or trailing numbers into a shape. */
void pll_integers(lua_State *L, int i, const char *op, const char *arg, pln_Shape *list);
pln_DType pll_dtype(lua_State *L, int i, const char *op);

/* Registers functions of {name, fn} pairs into the table on top, with the common upvalues. */
void pll_register(lua_State *L, const luaL_Reg *functions);
/* The functions of each file. */
extern const luaL_Reg pll_engine_functions[], pll_tensor_functions[], pll_library_functions[], pll_arena_functions[], pll_autograd_functions[],
  pll_capture_functions[];
/* Pushes the table that all functions of the module have as environment: anchors by slot. */
void pll_push_environment(lua_State *L);
void pll_autograd_open(lua_State *L);
int pll_op(lua_State *L);
int pll_tensor_gc(lua_State *L);
int pll_engine_gc(lua_State *L);
int pll_capture_gc(lua_State *L);

#endif
