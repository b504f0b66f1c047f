/* SPDX-License-Identifier: MIT
** autograd.c -- gradients for Lua: leaves, backward, and ops whose derivative is Lua's. What a Lua node needs (its backward function, its
** context) lies in the anchor of its segment (anchor.c) under the node's number, so that the collector sees it.
*/
#include "autograd/pass.h"
#include "binding.h"

#include <stdio.h>
#include <string.h>

#define NODE_KEY ((uintptr_t)0xa0761d6478bd642fu)

typedef struct NodeBox { /* its environment is the table { backward, ctx, anchor } */
  uintptr_t magic;
  pln_Node *node;
  uint64_t serial;
  uint16_t engine;
} NodeBox;

/* --- handles and nodes -------------------------------------------------------------------------- */

typedef struct Source {
  pln_Engine *e;
  pln_Node *node;
  int output;
} Source;

/* The node behind a handle, which may be stale. */
static Source find_source(lua_State *L, int i, const char *op, const char *arg) {
  pll_Handle *h = pll_handle(L, i);
  if (!h || !h->t) (void)pll_tensor(L, i, op, arg);
  pln_Engine *e = pll_state(L)->runtime->engines[h->engine]->engine;
  if (!e) (void)pll_tensor(L, i, op, arg);
  Source s = {e, NULL, 0};
  if (!e->tape) pll_raise(L, pln_fail(PLN_EGRAD, "%s: argument '%s': nothing on this engine requires grad", op, arg));
  if (h->t->object.serial == h->serial) {
    if (!h->t->requires_grad)
      pll_raise(L, pln_fail(PLN_EGRAD, "%s: argument '%s': the tensor does not require grad and no recorded op made it", op, arg));
    s.node = pln_tensor_node(h->t);
    s.output = (int)h->t->output;
    if (!s.node) pll_raise(L, pln_tape_gone(e, h->t->node_serial));
    return s;
  }
  pll_check(L, pln_tape_find(e, h->serial, &s.node, &s.output));
  return s;
}

/* The leaf behind a handle, NULL if it is none; stale handles of arena leaves have theirs, too. */
static pln_Node *find_leaf(lua_State *L, int i, const char *op) {
  pll_Handle *h = pll_handle(L, i);
  if (!h || !h->t) (void)pll_tensor(L, i, op, "t");
  pln_Engine *e = pll_state(L)->runtime->engines[h->engine]->engine;
  if (!e) (void)pll_tensor(L, i, op, "t");
  pln_Node *n = NULL;
  int output;
  if (h->t->object.serial == h->serial)
    n = pln_tensor_node(h->t);
  else if (e->tape && pln_tape_find(e, h->serial, &n, &output) != PLN_OK)
    n = NULL;
  return n && n->kind == PLN_NODE_LEAF ? n : NULL;
}

/* requires_grad(t [, flag]): without a flag whether it does. */
static int autograd_requires_grad(lua_State *L) {
  pln_Tensor *t = pll_tensor(L, 1, "requires_grad", "t");
  if (lua_isnoneornil(L, 2)) {
    lua_pushboolean(L, t->requires_grad);
    return 1;
  }
  if (!lua_isboolean(L, 2)) return pll_argument(L, "requires_grad", "argument 'flag': a boolean was expected, got %s", luaL_typename(L, 2));
  bool on = lua_toboolean(L, 2);
  if (on && !t->requires_grad) {
    pll_check(L, pln_tape_open(t->engine));
    if (t->storage->home == PLN_HOME_ARENA) pll_push_anchor(L, t->engine);
    t = pll_tensor(L, 1, "requires_grad", "t");
  }
  pll_check(L, pln_tensor_require_grad(t, on));
  if (on) pll_anchor_handle(L, 1, t);
  lua_settop(L, 1);
  return 1;
}

static int autograd_grad(lua_State *L) {
  lua_settop(L, 1);
  pll_Handle *h = pll_box(L);
  pln_Node *leaf = find_leaf(L, 1, "grad");
  if (!leaf || !leaf->grad) return 0;
  pln_tensor_retain(leaf->grad);
  pll_fill(L, 2, h, leaf->grad);
  return 1;
}

/* set_grad(t, value): a tensor or number is copied, nil zeroes. */
static int autograd_set_grad(lua_State *L) {
  pln_Node *leaf = find_leaf(L, 1, "grad");
  if (!leaf) return pll_argument(L, "grad", "only tensors that require grad and are no results have a gradient to set (t:requires_grad(true))");
  pln_Engine *e = leaf->engine;
  pln_Tensor *grad, *value = NULL;
  char text[PLN_SHAPE_TEXT + 16], want[PLN_SHAPE_TEXT];
  double number = 0;
  if (lua_type(L, 2) == LUA_TNUMBER) {
    number = lua_tonumber(L, 2);
  } else if (!lua_isnoneornil(L, 2)) {
    value = pll_tensor(L, 2, "grad", "value");
    pln_Shape shape = pln_node_out_shape(leaf, 0), own = pln_tensor_shape(value);
    if (value->engine != e) return pll_raise(L, pln_fail(PLN_EENGINE, "grad: the gradient belongs to another engine (t:to(engine) copies)"));
    if (!pln_shape_equal(&shape, &own))
      return pll_argument(L, "grad", "expected shape %s, got %s", pln_shape_text(shape.ndim, shape.size, want), pln_tensor_text(value, text));
  }
  bool before = pln_tape_record_on(e, false);
  pln_Status status = pln_leaf_grad(leaf, &grad);
  if (status == PLN_OK && value) {
    status = pln_copy_into(e, grad, value);
  } else if (status == PLN_OK) {
    pln_Args a;
    pln_args_init(&pln_ops[PLN_OP_fill], &a);
    a.in[0] = grad;
    a.opt[0].given = 1;
    a.opt[0].num = number;
    status = pln_op_run(e, &pln_ops[PLN_OP_fill], &a);
  }
  if (status == PLN_OK) {
    grad->requires_grad = 0;
    grad->node = NULL;
  }
  pln_tape_record_on(e, before);
  pll_check(L, status);
  return 0;
}

static int autograd_detach(lua_State *L) {
  lua_settop(L, 1);
  pll_Handle *h = pll_box(L);
  pln_Tensor *t = pll_tensor(L, 1, "detach", "t"), *v;
  pln_Shape shape = pln_tensor_shape(t);
  pll_check(L, pln_tensor_view(t, &shape, t->stride, 0, &v));
  v->place = pll_place_if(L, t->engine);
  pll_fill(L, -1, h, v);
  return 1;
}

/* no_grad(engine, fn, ...): what fn returns. */
static int autograd_no_grad(lua_State *L) {
  pln_Engine *e = pll_engine(L, 1, "no_grad");
  char text[PLN_SHAPE_TEXT + 16];
  if (!lua_isfunction(L, 2)) return pll_argument(L, "no_grad", "argument 'fn': a function was expected, got %s", pll_describe(L, 2, text));
  bool before = pln_tape_record_on(e, false);
  int failed = lua_pcall(L, lua_gettop(L) - 2, LUA_MULTRET, 0);
  pll_EngineBox *b = pll_engine_box(L, 1);
  if (b->e) pln_tape_record_on(b->e, before);
  if (failed) return lua_error(L);
  return lua_gettop(L) - 1;
}

/* Whether ops are recorded where an operand requires grad. */
static int autograd_recording(lua_State *L) {
  lua_pushboolean(L, !pll_engine(L, 1, "recording")->no_record);
  return 1;
}

/* --- backward ----------------------------------------------------------------------------------- */

/* The Lua node's turn; upvalues as all functions, argument 1 the run. Under a pcall. */
static int run_lua_node(lua_State *L) {
  pln_Run *r = lua_touserdata(L, 1);
  pln_Node *n = r->lua;
  lua_Number number = (lua_Number)n->object.serial;
  uint32_t nouts = n->nouts, nedges = n->nedges;
  luaL_checkstack(L, (int)nouts + 20, "too many results");
  lua_rawgeti(L, LUA_ENVIRONINDEX, n->segment->slot);
  if (!lua_istable(L, -1)) return pll_raise(L, pln_fail(PLN_EGRAD, "backward of %s: its graph was collected", n->name));
  int anchor = lua_gettop(L);
  lua_pushnumber(L, number);
  lua_rawget(L, anchor);
  lua_getfenv(L, -1);
  lua_getfield(L, -1, "backward");
  lua_getfield(L, -2, "ctx");
  for (uint32_t k = 0; k < nouts; k++) {
    if (n->out[k].dy)
      pll_push_tensor(L, n->out[k].dy);
    else
      lua_pushnil(L);
  }
  int base = lua_gettop(L) - (int)nouts - 2;
  pln_tape_record_on(r->e, r->graph);
  if (r->graph) { /* what is recorded now refers to older nodes */
    pll_push_anchor(L, r->e);
    pll_anchor_hang(L, n);
    lua_insert(L, base + 1);
    base++;
  }
  lua_call(L, (int)nouts + 1, LUA_MULTRET);
  int given = lua_gettop(L) - base;
  pln_Tensor **dx = lua_newuserdata(L, sizeof *dx * (nedges ? nedges : 1));
  for (uint32_t i = 0; i < nedges; i++) {
    char name[40], text[PLN_SHAPE_TEXT + 16], want[PLN_SHAPE_TEXT];
    int at = base + 1 + (int)i;
    dx[i] = NULL;
    if ((int)i >= given || lua_isnil(L, at)) continue;
    snprintf(name, sizeof name, "gradient %u", i + 1);
    if (!pll_handle(L, at))
      return pll_raise(L, pln_fail(PLN_EARG, "backward of %s: %s: a tensor or nil was expected, got %s", n->name, name, pll_describe(L, at, text)));
    pln_Tensor *t = pll_tensor(L, at, n->name, name);
    pln_Shape shape = pln_node_in_shape(n, (int)i), own = pln_tensor_shape(t);
    if (t->engine != r->e) return pll_raise(L, pln_fail(PLN_EENGINE, "backward of %s: %s belongs to another engine", n->name, name));
    if (!pln_shape_equal(&shape, &own))
      return pll_raise(L, pln_fail(PLN_ESHAPE, "backward of %s: %s: expected shape %s like the argument, got %s", n->name, name,
                                   pln_shape_text(shape.ndim, shape.size, want), pln_tensor_text(t, text)));
    dx[i] = t;
  }
  if (given > (int)nedges)
    return pll_raise(L, pln_fail(PLN_EARG, "backward of %s: %d gradients for %u tensor argument%s", n->name, given, nedges, nedges == 1 ? "" : "s"));
  if (!r->retain) {
    lua_pushnumber(L, number);
    lua_pushnil(L);
    lua_rawset(L, anchor);
  }
  pll_check(L, pln_run_lua_done(r, dx));
  return 0;
}

/* The engine's node hook: fn(name) before each node. */
static int run_node_hook(lua_State *L) {
  pln_Run *r = lua_touserdata(L, 1);
  pll_push_engine(L, r->e);
  lua_getfenv(L, -1);
  lua_getfield(L, -1, "node_hook");
  lua_pushstring(L, pln_node_name(r->at));
  lua_call(L, 1, 0);
  return 0;
}

/* Runs all steps. On an error everything is released and the error raised. */
static void drive(lua_State *L, pln_Run *r) {
  pln_Node *n;
  pln_Status status;
  while ((status = pln_run_step(r, &n)) == PLN_OK && n) {
    bool before = pln_tape_record_on(r->e, false);
    lua_getfield(L, LUA_REGISTRYINDEX, r->lua ? "perilune.run.node" : "perilune.run.hook");
    lua_pushlightuserdata(L, r);
    int failed = lua_pcall(L, 1, 0, 0);
    pln_tape_record_on(r->e, before);
    if (failed) {
      pln_pass_end(r->e, false);
      pln_run_abort(r);
      lua_error(L);
    }
  }
  if (status == PLN_OK) {
    status = pln_run_finish(r);
  } else {
    pln_run_abort(r);
  }
  pln_pass_end(r->e, status == PLN_OK);
  pll_check(L, status);
}

typedef struct Flags {
  bool retain, graph, unused;
} Flags;

/* { retain, create_graph, ... }: unknown names are errors. */
static Flags read_flags(lua_State *L, int i, const char *op) {
  Flags f = {false, false, false};
  if (lua_isnoneornil(L, i)) return f;
  char text[PLN_SHAPE_TEXT + 16];
  if (!lua_istable(L, i)) pll_argument(L, op, "a table of options was expected, got %s", pll_describe(L, i, text));
  lua_pushnil(L);
  while (lua_next(L, i)) {
    const char *name = lua_type(L, -2) == LUA_TSTRING ? lua_tostring(L, -2) : "?";
    bool value = lua_toboolean(L, -1);
    if (strcmp(name, "retain") == 0)
      f.retain = value;
    else if (strcmp(name, "create_graph") == 0)
      f.graph = value;
    else if (strcmp(name, "allow_unused") == 0 && strcmp(op, "grad") == 0)
      f.unused = value;
    else if (strcmp(name, "grad_outputs") != 0 || strcmp(op, "grad") != 0)
      pll_argument(L, op, "there is no option '%s'", name);
    lua_pop(L, 1);
  }
  return f;
}

/* With create_graph what is recorded on the way refers to the root's nodes. Leaves the anchor on the stack. */
static void anchor_graph(lua_State *L, const Source *s) {
  pll_push_anchor(L, s->e);
  pll_anchor_hang(L, s->node);
}

/* backward(t [, dy] [, options]) */
static int autograd_backward(lua_State *L) {
  if (!pll_handle(L, 2) && lua_istable(L, 2) && lua_isnoneornil(L, 3)) {
    lua_settop(L, 2);
    lua_pushnil(L);
    lua_insert(L, 2);
  }
  lua_settop(L, 3);
  uint64_t ends = pll_ends(L);
  Flags f = read_flags(L, 3, "backward");
  pln_Tensor *dy = lua_isnil(L, 2) ? NULL : pll_tensor(L, 2, "backward", "dy");
  Source s = find_source(L, 1, "backward", "t");
  if (PLN_FAULT(seed_is_value) && !dy) dy = pll_tensor(L, 1, "backward", "t");
  pln_Run r;
  if (f.graph) anchor_graph(L, &s);
  pll_unended(L, ends, "backward");
  pln_Status status;
  if (PLN_LIKELY(!dy && !f.retain && !f.graph) && pln_pass_run(s.e, s.node, s.output, 0, &status)) {
    pll_check(L, status);
    pll_settle_if(L, s.e);
    return 0;
  }
  pll_check(L, pln_run_begin(&r, s.e, f.retain, f.graph, NULL, 0, pll_place_if(L, s.e)));
  status = pln_run_seed(&r, s.node, s.output, dy);
  if (status != PLN_OK) {
    pln_pass_end(s.e, false);
    r.retain = true; /* nothing has happened yet */
    pln_run_abort(&r);
    pll_raise(L, status);
  }
  drive(L, &r);
  pll_settle_if(L, s.e);
  return 0;
}

/* backward_all(outputs, gradients): lists of the same length; adds up in the leaves. */
static int autograd_backward_all(lua_State *L) {
  luaL_checktype(L, 1, LUA_TTABLE);
  luaL_checktype(L, 2, LUA_TTABLE);
  lua_settop(L, 2);
  int n = (int)lua_objlen(L, 1);
  if (!n) return 0;
  Source *out = lua_newuserdata(L, sizeof *out * (size_t)n);
  pln_Tensor **dy = lua_newuserdata(L, sizeof *dy * (size_t)n);
  for (int i = 0; i < n; i++) {
    lua_rawgeti(L, 1, i + 1);
    out[i] = find_source(L, -1, "backward", "outputs");
    lua_rawgeti(L, 2, i + 1);
    dy[i] = pll_tensor(L, -1, "backward", "gradients");
    lua_pop(L, 2);
  }
  pln_Run r;
  pln_Status status = pln_run_begin(&r, out[0].e, false, false, NULL, 0, pll_place_if(L, out[0].e));
  for (int i = 0; i < n && status == PLN_OK; i++) status = pln_run_seed(&r, out[i].node, out[i].output, dy[i]);
  if (status != PLN_OK) {
    r.retain = true;
    pln_run_abort(&r);
    return pll_raise(L, status);
  }
  drive(L, &r);
  return 0;
}

/* A gradient that is handed out shares memory with nothing. */
static pln_Status separate(pln_Engine *e, pln_Tensor **t_p) {
  pln_Tensor *t = *t_p;
  if (t->refs == 1 && t->storage->refs == 1 && t->contiguous) return PLN_OK;
  pln_Args a;
  pln_args_init(&pln_ops[PLN_OP_cast], &a);
  a.in[0] = t;
  a.opt[0].given = 1;
  a.opt[0].i = t->dtype;
  PLN_TRY(pln_op_run(e, &pln_ops[PLN_OP_cast], &a));
  pln_tensor_release(t);
  *t_p = a.out[0];
  return PLN_OK;
}

static pln_Status zeros_like(const pln_Node *n, int output, pln_Tensor **t_p) {
  pln_Shape shape = pln_node_out_shape(n, output);
  pln_Args a;
  pln_args_init(&pln_ops[PLN_OP_zeros], &a);
  a.opt[0].given = 1;
  a.opt[0].list = shape;
  a.opt[1].given = 1;
  a.opt[1].i = n->out[output].dtype;
  PLN_TRY(pln_op_run(n->engine, &pln_ops[PLN_OP_zeros], &a));
  *t_p = a.out[0];
  return PLN_OK;
}

/* The answers: complete, and separate tensors. */
static pln_Status settle_wants(pln_Run *r, const Flags *f) {
  bool before = pln_tape_record_on(r->e, r->graph);
  pln_Status status = PLN_OK;
  for (int i = 0; i < r->nwant && status == PLN_OK; i++) {
    pln_Want *w = &r->want[i];
    if (w->dx)
      status = separate(r->e, &w->dx);
    else if (f->unused)
      status = zeros_like(w->node, w->output, &w->dx);
    else
      status = pln_fail(PLN_EGRAD, "grad: input %d was not used for the outputs (allow_unused = true gives zeros)", i + 1);
  }
  pln_tape_record_on(r->e, before);
  if (status == PLN_OK) return PLN_OK;
  for (int i = 0; i < r->nwant; i++)
    if (r->want[i].dx) pln_tensor_release(r->want[i].dx);
  return status;
}

/* grad(outputs, inputs, grad_outputs or nil, options): lists; false in grad_outputs is none. Returns a list. */
static int autograd_gradients(lua_State *L) {
  lua_settop(L, 4);
  luaL_checktype(L, 1, LUA_TTABLE);
  luaL_checktype(L, 2, LUA_TTABLE);
  Flags f = read_flags(L, 4, "grad");
  int nout = (int)lua_objlen(L, 1), nin = (int)lua_objlen(L, 2);
  if (!nout || !nin) return pll_argument(L, "grad", "at least one output and one input were expected");
  pln_Engine *e = NULL;
  uint64_t ends = pll_ends(L);
  Source *out = lua_newuserdata(L, sizeof *out * (size_t)nout);
  pln_Tensor **dy = lua_newuserdata(L, sizeof *dy * (size_t)nout);
  pln_Node **roots = lua_newuserdata(L, sizeof *roots * (size_t)nout);
  pln_Want *want = lua_newuserdata(L, sizeof *want * (size_t)nin);
  lua_createtable(L, nin, 0);
  int results = lua_gettop(L);
  for (int i = 0; i < nout; i++) {
    lua_rawgeti(L, 1, i + 1);
    out[i] = find_source(L, -1, "grad", "outputs");
    roots[i] = out[i].node;
    if (e && out[i].e != e) return pll_raise(L, pln_fail(PLN_EENGINE, "grad: the outputs belong to several engines"));
    e = out[i].e;
    dy[i] = NULL;
    if (lua_istable(L, 3)) {
      lua_rawgeti(L, 3, i + 1);
      if (lua_toboolean(L, -1)) dy[i] = pll_tensor(L, -1, "grad", "grad_outputs");
      lua_pop(L, 1);
    }
    lua_pop(L, 1);
    if (!f.graph) continue;
    luaL_checkstack(L, 8, "too many outputs");
    anchor_graph(L, &out[i]);
  }
  for (int i = 0; i < nin; i++) {
    lua_rawgeti(L, 2, i + 1);
    Source s = find_source(L, -1, "grad", "inputs");
    if (s.e != e) return pll_raise(L, pln_fail(PLN_EENGINE, "grad: the inputs belong to another engine than the outputs"));
    want[i] = (pln_Want){s.node, s.node->object.serial, s.output, NULL};
    lua_pop(L, 1);
    (void)pll_box(L);
    lua_rawseti(L, results, i + 1);
  }
  pln_Run r;
  pll_unended(L, ends, "grad");
  pll_check(L, pln_run_begin(&r, e, f.retain, f.graph, want, nin, pll_place_if(L, e)));
  pln_Status status = pln_run_plan(&r, roots, nout);
  for (int i = 0; i < nout && status == PLN_OK; i++) status = pln_run_seed(&r, out[i].node, out[i].output, dy[i]);
  if (status != PLN_OK) {
    r.retain = true;
    pln_run_abort(&r);
    return pll_raise(L, status);
  }
  drive(L, &r);
  pll_check(L, settle_wants(&r, &f));
  for (int i = 0; i < nin; i++) {
    lua_rawgeti(L, results, i + 1);
    pll_fill(L, -1, lua_touserdata(L, -1), want[i].dx);
    lua_pop(L, 1);
  }
  lua_settop(L, results);
  pll_settle_if(L, e);
  return 1;
}

/* --- ops in Lua --------------------------------------------------------------------------------- */

static NodeBox *node_box(lua_State *L, int i) {
  NodeBox *b = lua_touserdata(L, i);
  return b && lua_objlen(L, i) == sizeof *b && b->magic == (NODE_KEY ^ (uintptr_t)b) ? b : NULL;
}

/* The box's node while it is there. */
static pln_Node *boxed_node(lua_State *L, const NodeBox *b) {
  if (!b->node || !pll_state(L)->runtime->engines[b->engine]->engine) return NULL;
  return b->node->object.serial == b->serial ? b->node : NULL;
}

/* node(name, backward, ctx, force, tensor arguments): the box of a new node, nil where nothing is to be recorded. It hangs on its segment. */
static int autograd_node(lua_State *L) {
  const char *name = luaL_checkstring(L, 1);
  bool force = lua_toboolean(L, 4), any = force;
  luaL_checktype(L, 5, LUA_TTABLE);
  int nin = (int)lua_objlen(L, 5);
  pln_Engine *e = NULL;
  uint64_t ends = pll_ends(L);
  pln_Tensor **in = lua_newuserdata(L, sizeof *in * (size_t)(nin ? nin : 1));
  for (int i = 0; i < nin; i++) {
    char what[32];
    snprintf(what, sizeof what, "%d", i + 1);
    lua_rawgeti(L, 5, i + 1);
    in[i] = pll_tensor(L, -1, name, what);
    any |= in[i]->requires_grad;
    if (e && in[i]->engine != e)
      return pll_raise(L, pln_fail(PLN_EENGINE, "%s: tensor argument %d belongs to another engine (t:to(engine) copies)", name, i + 1));
    e = in[i]->engine;
    lua_pop(L, 1);
  }
  if (!any || !e || !e->tape || e->no_record) return 0;
  pll_push_anchor(L, e);
  int anchor = lua_gettop(L);
  for (int i = 0; i < nin; i++) pll_anchor_operand(L, in[i]);
  NodeBox *b = lua_newuserdata(L, sizeof *b);
  *b = (NodeBox){NODE_KEY ^ (uintptr_t)b, NULL, 0, e->id};
  lua_createtable(L, 0, 2);
  lua_pushvalue(L, 2), lua_setfield(L, -2, "backward");
  lua_pushvalue(L, 3), lua_setfield(L, -2, "ctx");
  lua_pushvalue(L, anchor), lua_setfield(L, -2, "anchor"); /* while forward runs nobody else holds the segment */
  lua_setfenv(L, -2);
  pll_unended(L, ends, name);
  pll_check(L, pln_tape_custom(e, name, in, nin, pll_place_if(L, e), &b->node));
  b->serial = b->node->object.serial;
  lua_pushnumber(L, (lua_Number)b->serial);
  lua_pushvalue(L, -2);
  lua_rawset(L, anchor);
  return 1;
}

/* drop(box): the forward failed. */
static int autograd_drop(lua_State *L) {
  NodeBox *b = node_box(L, 1);
  pln_Node *n = b ? boxed_node(L, b) : NULL;
  if (!n) return 0;
  lua_rawgeti(L, LUA_ENVIRONINDEX, n->segment->slot);
  if (lua_istable(L, -1)) {
    lua_pushnumber(L, (lua_Number)b->serial);
    lua_pushnil(L);
    lua_rawset(L, -3);
  }
  pln_node_drop(n);
  return 0;
}

/* save(box, tensor) */
static int autograd_save(lua_State *L) {
  NodeBox *b = node_box(L, 1);
  pln_Node *n = b ? boxed_node(L, b) : NULL;
  pln_Tensor *t = pll_tensor(L, 2, "ctx:save", "t");
  if (!n) return pll_argument(L, "ctx:save", "the op's graph is gone");
  if (t->engine != n->engine) return pll_raise(L, pln_fail(PLN_EENGINE, "ctx:save: the tensor belongs to another engine"));
  pll_check(L, pln_node_save(n, t));
  return 0;
}

/* results(box, ...): makes the tensors among the values results of the node and returns the values. A tensor that is also something else (a
** parameter, another node's result) is shown by a header of its own. */
static int autograd_results(lua_State *L) {
  NodeBox *b = node_box(L, 1);
  pln_Node *n = b ? boxed_node(L, b) : NULL;
  if (!n) return pll_argument(L, "op", "the op's graph is gone (was the engine reset too often inside?)");
  int top = lua_gettop(L), count = 0;
  uint64_t ends = pll_ends(L);
  pln_Tensor **result = lua_newuserdata(L, sizeof *result * (size_t)(top + 1));
  lua_rawgeti(L, LUA_ENVIRONINDEX, n->segment->slot);
  int anchor = lua_gettop(L);
  for (int i = 2; i <= top; i++) {
    if (!pll_handle(L, i)) continue;
    pln_Tensor *t = pll_tensor(L, i, n->name, "result");
    if (t->engine != n->engine) return pll_raise(L, pln_fail(PLN_EENGINE, "%s: a result belongs to another engine than the arguments", n->name));
    bool other = t->requires_grad || t->storage->home == PLN_HOME_PERSISTENT;
    if (other) {
      pll_Handle *h = pll_box(L);
      pln_Shape shape = pln_tensor_shape(t);
      pln_Tensor *v;
      pll_check(L, pln_tensor_view(t, &shape, t->stride, 0, &v));
      v->place = t->place;
      pll_fill(L, -1, h, v);
      lua_replace(L, i);
      t = v;
    }
    result[count++] = t;
  }
  pll_unended(L, ends, n->name);
  pll_check(L, pln_node_results(n, result, count));
  for (int i = 2; i <= top; i++) {
    if (!pll_handle(L, i)) continue;
    lua_pushvalue(L, anchor);
    lua_setfenv(L, i);
  }
  lua_settop(L, top);
  return top - 1;
}

/* owner(engine, box or nil): nodes recorded from now on go with the box's node. Returns the one before. */
static int autograd_owner(lua_State *L) {
  pln_Engine *e = pll_engine(L, 1, "ctx:call");
  NodeBox *b = node_box(L, 2);
  if (e->tape) e->tape->owner = b ? boxed_node(L, b) : NULL;
  return 0;
}

/* rewind(engine, state): the state of eng:rng() for a checkpoint, which draws once more what it drew before, in a capture too. */
static int autograd_rewind(lua_State *L) {
  pln_Engine *e = pll_engine(L, 1, "checkpoint");
  luaL_checktype(L, 2, LUA_TTABLE);
  lua_rawgeti(L, 2, 1);
  lua_rawgeti(L, 2, 2);
  e->options.seed = (uint64_t)lua_tonumber(L, -2);
  e->draw = (uint64_t)lua_tonumber(L, -1);
  return 0;
}

/* record_on(engine, flag): returns what it was. */
static int autograd_record_on(lua_State *L) {
  lua_pushboolean(L, pln_tape_record_on(pll_engine(L, 1, "record_on"), lua_toboolean(L, 2)));
  return 1;
}

/* on_node(engine, fn or nil): fn(name) runs before each node of a backward. */
static int autograd_on_node(lua_State *L) {
  pln_Engine *e = pll_engine(L, 1, "on_node");
  pll_check(L, pln_tape_open(e));
  lua_settop(L, 2);
  lua_createtable(L, 0, 1);
  lua_pushvalue(L, 2);
  lua_setfield(L, -2, "node_hook");
  lua_setfenv(L, 1);
  e->tape->node_hook = !lua_isnil(L, 2);
  return 0;
}

const luaL_Reg pll_autograd_functions[] = {
  {"requires_grad", autograd_requires_grad}, {"grad", autograd_grad}, {"set_grad", autograd_set_grad},
  {"detach", autograd_detach}, {"no_grad", autograd_no_grad}, {"recording", autograd_recording}, {"backward", autograd_backward}, {"backward_all", autograd_backward_all},
  {"gradients", autograd_gradients}, {"node", autograd_node}, {"drop", autograd_drop}, {"save", autograd_save},
  {"results", autograd_results}, {"owner", autograd_owner}, {"rewind", autograd_rewind}, {"record_on", autograd_record_on}, {"on_node", autograd_on_node}, {NULL, NULL},
};

/* Registry entries; before any function is registered. */
void pll_autograd_open(lua_State *L) {
  lua_createtable(L, 2 * PLL_FREE_ANCHORS, 0);
  lua_createtable(L, 0, 1);
  lua_pushliteral(L, "v");
  lua_setfield(L, -2, "__mode");
  lua_setmetatable(L, -2);
  lua_setfield(L, LUA_REGISTRYINDEX, "perilune.anchors");
  static const luaL_Reg functions[] = {{"perilune.run.node", run_lua_node}, {"perilune.run.hook", run_node_hook}, {"__gc", pll_anchor_gc}, {NULL, NULL}};
  lua_newtable(L);
  pll_register(L, functions);
  for (int i = 0; i < 2; i++) {
    lua_getfield(L, -1, functions[i].name);
    lua_setfield(L, LUA_REGISTRYINDEX, functions[i].name);
    lua_pushnil(L);
    lua_setfield(L, -2, functions[i].name);
  }
  lua_setfield(L, LUA_REGISTRYINDEX, "perilune.anchor");
}
