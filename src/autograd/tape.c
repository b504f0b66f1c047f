/* SPDX-License-Identifier: MIT
** tape.c -- life of nodes, segments and leaves; recording. See tape.h for who owns what.
*/
#include "tape.h"

#include <stdio.h>
#include <string.h>

#include "../alloc.h"
#include "../capture.h"
#include "../fault.h"
#include "../ops/random.h"
#include "pass.h"

/* --- the tape ----------------------------------------------------------------------------------- */

static pln_Status make_one(pln_Engine *e, pln_DType dtype, pln_Tensor **t_p) {
  pln_Shape shape = {0, {0}};
  float f = 1;
  double d = 1;
  pln_Capture *capture = pln_capture_pause(e);
  pln_Status status = pln_tensor_new(e, PLN_HOME_PERSISTENT, dtype, &shape, t_p);
  if (status == PLN_OK && (status = pln_tensor_write(*t_p, dtype == PLN_F32 ? (void *)&f : (void *)&d)) != PLN_OK) {
    pln_tensor_release(*t_p);
    *t_p = NULL;
  }
  pln_capture_resume(e, capture);
  return status;
}

pln_Status pln_tape_open(pln_Engine *e) {
  if (e->tape) return PLN_OK;
  pln_Tape *tape = pln_calloc(1, sizeof *tape);
  if (!tape) return pln_fail(PLN_ENOMEM, "out of memory for the tape");
  tape->engine = e;
  pln_Status status = PLN_ENOMEM;
  if ((tape->slabs = pln_slabs_new(sizeof(pln_Node)))) {
    pln_pool_init(&tape->nodes, tape->slabs, &tape->serial);
    status = make_one(e, PLN_F32, &tape->one[0]);
    if (status == PLN_OK) status = make_one(e, PLN_F64, &tape->one[1]);
  } else {
    (void)pln_fail(PLN_ENOMEM, "out of memory for the tape");
  }
  if (status != PLN_OK) {
    if (tape->one[0]) pln_tensor_release(tape->one[0]);
    pln_slabs_free(tape->slabs);
    pln_mfree(tape);
    return status;
  }
  for (int i = 0; i < 2; i++) tape->one_version[i] = tape->one[i]->storage->version;
  e->tape = tape;
  if (!e->no_record) e->hooks |= PLN_HOOK_TAPE;
  return PLN_OK;
}

bool pln_tape_recording(const pln_Engine *e) { return e->hooks & PLN_HOOK_TAPE; }

bool pln_tape_record_on(pln_Engine *e, bool on) {
  bool before = !e->no_record;
  e->no_record = !on;
  if (on && e->tape)
    e->hooks |= PLN_HOOK_TAPE;
  else
    e->hooks &= ~(uint32_t)PLN_HOOK_TAPE;
  return before;
}

/* --- nodes -------------------------------------------------------------------------------------- */

void pln_tape_pin(pln_Storage *s) {
  if (!PLN_CHECKED) return;
  pln_storage_pin(s);
  s->tape_pins++;
}

void pln_tape_unpin(pln_Storage *s) {
  if (!PLN_CHECKED) return;
  s->tape_pins--;
  pln_storage_unpin(s);
}

const char *pln_node_name(const pln_Node *n) {
  return n->kind == PLN_NODE_OP ? n->op->name : n->kind == PLN_NODE_LUA ? n->name : "leaf";
}

pln_Status pln_tape_gone(pln_Engine *e, uint64_t serial) {
  if (serial <= e->tape->aged)
    return pln_fail(PLN_EGRAD, "backward: the graph is older than %d resets and was dropped (engine option graph_resets)",
                    e->options.graph_resets);
  return pln_fail(PLN_EGRAD, "backward: a second backward through the same nodes, what they saved was released by the first one "
                  "(or by the error that ended it); { retain = true } keeps it");
}

/* An empty sealed segment leaves the list; it goes when nothing outside holds it. */
static void end_segment(pln_Tape *tape, pln_Segment *s) {
  if (s->listed) {
    *(s->older ? &s->older->newer : &tape->oldest_segment) = s->newer;
    *(s->newer ? &s->newer->older : &tape->newest_segment) = s->older;
    s->listed = 0;
  }
  if (tape->segment == s) tape->segment = NULL;
  if (!s->anchored) pln_mfree(s);
}

static void leave_segment(pln_Tape *tape, pln_Node *n) {
  pln_Segment *s = n->segment;
  for (pln_Run *r = tape->run; r; r = r->outer)
    if (r->at == n) r->at = n->older;
  if (s->first == n) s->first = s->last == n ? NULL : n->newer;
  if (s->last == n) s->last = s->first ? n->older : NULL;
  *(n->older ? &n->older->newer : &tape->oldest) = n->newer;
  *(n->newer ? &n->newer->older : &tape->newest) = n->older;
  if (--s->count == 0 && tape->segment != s) end_segment(tape, s);
}

static void drop_leaf_ref(pln_Node *leaf);

static void leave_parent(pln_Node *n) {
  pln_Node **link = &n->parent->child;
  while (*link != n) link = &(*link)->sibling;
  *link = n->sibling;
  n->parent = NULL;
}

static void release_dy(pln_Node *n) {
  for (uint32_t k = 0; k < n->nouts; k++)
    if (n->out[k].dy) {
      pln_tensor_release(n->out[k].dy);
      n->out[k].dy = NULL;
    }
}

void pln_node_drop(pln_Node *n) {
  pln_Tape *tape = n->engine->tape;
  while (n->child) pln_node_drop(n->child);
  if (n->parent) leave_parent(n);
  for (uint32_t i = 0; i < n->nsaved; i++) {
    if (!PLN_FAULT(unpin_early) && !PLN_FAULT(leak_pin)) pln_tape_unpin(n->saved[i].t->storage);
    pln_tensor_release(n->saved[i].t);
  }
  for (uint32_t i = 0; i < n->nedges; i++)
    if (n->edge[i].node && n->edge[i].node->kind == PLN_NODE_LEAF && n->edge[i].node->object.serial == n->edge[i].serial)
      drop_leaf_ref(n->edge[i].node);
  if (n->kind == PLN_NODE_LEAF) {
    if (n->grad) pln_tensor_release(n->grad);
    if (n->leaf) n->leaf->node = NULL;
  }
  release_dy(n);
  if (n->segment) {
    leave_segment(tape, n);
  } else {
    *(n->older ? &n->older->newer : &tape->leaves) = n->newer;
    if (n->newer) n->newer->older = n->older;
  }
  if (n->external) pln_mfree(n->edge);
  if (n->kind == PLN_NODE_LUA) pln_mfree(n->saved);
  pln_pool_free(&tape->nodes, &n->object);
}

/* Leaves in a segment go with it. */
static void drop_leaf_ref(pln_Node *leaf) {
  if (--leaf->refs == 0 && !leaf->segment) pln_node_drop(leaf);
}

/* A node with room for what it holds, at the tape's end; nothing in it is filled in. */
static pln_Status new_node(pln_Engine *e, pln_NodeKind kind, uint32_t nedges, uint32_t nouts, uint32_t nsaved, uint32_t nopts,
                           uint32_t nsizes, pln_Node **n_p) {
  pln_Tape *tape = e->tape;
  if (!tape->segment) {
    pln_Segment *s;
    PLN_TRY(pln_segment_open(e, -1, &s));
    s->anchored = 0;
  }
  pln_Node *n = pln_pool_new(&tape->nodes);
  if (!n) return pln_fail(PLN_ENOMEM, "out of memory for a recorded op");
  size_t bytes = nedges * sizeof(pln_Edge) + nouts * sizeof(pln_Out) + nsaved * sizeof(pln_Saved) + nopts * sizeof(pln_Kept) +
                 nsizes * sizeof(int64_t);
  char *at = (char *)n->payload;
  n->external = bytes > sizeof n->payload;
  if (PLN_UNLIKELY(n->external) && !(at = pln_malloc(bytes))) {
    pln_pool_free(&tape->nodes, &n->object);
    return pln_fail(PLN_ENOMEM, "out of memory for a recorded op");
  }
  n->edge = (pln_Edge *)at;
  n->out = (pln_Out *)(n->edge + nedges);
  n->saved = (pln_Saved *)(n->out + nouts);
  n->opt = (pln_Kept *)(n->saved + nsaved);
  n->sizes = (int64_t *)(n->opt + nopts);
  n->op = NULL;
  n->plan = 0;
  n->engine = e;
  n->run = n->needed = 0;
  n->nedges = nedges;
  n->nouts = nouts;
  n->nsaved = nsaved;
  n->saved_mask = 0;
  n->refs = 0;
  n->kind = (uint8_t)kind;
  n->held = 0;
  n->leaf = n->grad = NULL;
  n->next = n->parent = n->child = NULL;
  if (PLN_UNLIKELY(tape->owner != NULL)) {
    n->parent = tape->owner;
    n->sibling = n->parent->child;
    n->parent->child = n;
  }
  pln_Segment *s = n->segment = tape->segment;
  n->older = tape->newest;
  n->newer = NULL;
  *(tape->newest ? &tape->newest->newer : &tape->oldest) = n;
  tape->newest = n;
  s->last = n;
  if (!s->first) s->first = n;
  s->count++;
  *n_p = n;
  return PLN_OK;
}

static void save(pln_Node *n, pln_Saved *s, pln_Tensor *t) {
  s->t = t;
  s->version = t->storage->version;
  pln_tensor_retain(t);
  if (!PLN_FAULT(unpin_early)) pln_tape_pin(t->storage);
  n->segment->bytes += t->storage->bytes;
}

static void keep_shape(pln_Node *n, uint32_t *used, uint32_t *sizes, const pln_Tensor *t) {
  *sizes = *used;
  for (int d = 0; d < t->ndim; d++) n->sizes[(*used)++] = t->shape[d];
}

static void make_edge(pln_Node *n, pln_Edge *edge, pln_Tensor *t, uint32_t *used) {
  edge->node = t->requires_grad ? t->node : NULL;
  edge->serial = t->node_serial;
  edge->output = (uint16_t)t->output;
  edge->dtype = t->dtype;
  edge->ndim = t->ndim;
  keep_shape(n, used, &edge->sizes, t);
  if (edge->node && edge->node->kind == PLN_NODE_LEAF && edge->node->object.serial == edge->serial) edge->node->refs++;
}

static void make_result(pln_Node *n, int k, pln_Tensor *t, uint32_t *used) {
  pln_Out *out = &n->out[k];
  out->serial = t->object.serial;
  out->dy = NULL;
  out->dtype = t->dtype;
  out->ndim = t->ndim;
  out->own = 0;
  keep_shape(n, used, &out->sizes, t);
  /* what internal ops give besides their first result is for their own derivative */
  if (!pln_dtype_is_float((pln_DType)t->dtype) || (k > 0 && n->op && n->op->flags & PLN_OP_INTERNAL)) return;
  t->node = n;
  t->node_serial = n->object.serial;
  t->output = (uint32_t)k;
  t->requires_grad = 1;
}

/* --- recording ---------------------------------------------------------------------------------- */

static bool any_requires(const pln_Args *a) {
  for (int i = 0; i < a->nin; i++)
    if (a->in[i] && a->in[i]->requires_grad) return true;
  for (int i = 0; i < a->nlist; i++)
    if (a->list[i]->requires_grad) return true;
  return false;
}

bool pln_tape_wants(pln_Engine *e, const pln_OpDef *op, const pln_Args *a) {
  (void)e;
  return !(op->flags & PLN_OP_NODIFF) && any_requires(a);
}

static PLN_COLD pln_Status refuse_write(const pln_OpDef *op) {
  if (op->flags & PLN_OP_INPLACE)
    return pln_fail(PLN_EGRAD, "%s: writing in place is not allowed while gradients are recorded and an operand requires grad "
                    "(eng:no_grad(fn) records nothing)", op->name);
  return pln_fail(PLN_EGRAD, "%s: argument 'out': a destination is not allowed while gradients are recorded and it or an operand "
                  "requires grad (eng:no_grad(fn) records nothing)", op->name);
}

pln_Status pln_tape_plan(pln_Engine *e, const pln_OpDef *op, const pln_Args *a, pln_TapePlan *plan_p, bool *quiet_p) {
  (void)e;
  bool any = any_requires(a), written = op->flags & PLN_OP_INPLACE;
  bool any_out = false;
  for (int k = 0; k < op->nout; k++)
    if (a->out[k]) {
      written = true;
      any_out |= a->out[k]->requires_grad;
    }
  *plan_p = PLN_TAPE_PLAIN;
  if (!any && !any_out) return PLN_OK;
  if (written && !(op->flags & PLN_OP_OPTIMIZER)) return refuse_write(op);
  *plan_p = PLN_TAPE_ALOUD;
  *quiet_p = true;
  if (op->flags & PLN_OP_NODIFF) return PLN_OK;
  if (op->backward)
    *plan_p = PLN_TAPE_RECORD;
  else if (op->flags & PLN_OP_COMPOSITE)
    *quiet_p = false;
  else
    return pln_fail(PLN_EGRAD, "%s: the op has no derivative (t:detach() takes an operand without gradient)", op->name);
  return PLN_OK;
}

static uint32_t keep_options(pln_Node *n, const pln_OpDef *op, const pln_Args *a, uint32_t used) {
  int nopts = op->nopt + (op->flags & PLN_OP_RANDOM ? 1 : 0);
  for (int i = 0; i < nopts; i++) {
    const pln_Opt *o = &a->opt[i];
    pln_Kept *kept = &n->opt[i];
    kept->num = o->num;
    kept->i = o->i;
    kept->given = o->given;
    kept->n = 0;
  }
  for (int k = 0; k < op->nslots; k++) {
    const pln_Slot *slot = &op->slot[k];
    if (slot->kind != PLN_SLOT_DIMS && slot->kind != PLN_SLOT_INTS) continue;
    const pln_Shape *list = &a->opt[slot->index].list;
    pln_Kept *kept = &n->opt[slot->index];
    if (!kept->given || list->ndim <= 0) continue;
    kept->n = (uint8_t)list->ndim;
    kept->sizes = used;
    for (int d = 0; d < list->ndim; d++) n->sizes[used++] = list->size[d];
  }
  return used;
}

static inline uint32_t count_bits(uint32_t mask) {
  uint32_t n = 0;
  for (; mask; mask &= mask - 1) n++;
  return n;
}

/* Sizes of the options that are lists. */
static uint32_t list_sizes(const pln_OpDef *op, const pln_Args *a) {
  uint32_t n = 0;
  for (int k = 0; k < op->nslots; k++)
    if (op->slot[k].kind == PLN_SLOT_DIMS || op->slot[k].kind == PLN_SLOT_INTS) {
      int len = a->opt[op->slot[k].index].list.ndim;
      n += (uint32_t)(len > 0 ? len : 0);
    }
  return n;
}

/* The same as below for most ops: no list, no draw, one result. */
static pln_Status record_one(pln_Engine *e, const pln_OpDef *op, pln_Args *a) {
  pln_Tensor *y = a->out[0];
  const uint16_t *saves = pln_saves[op->id];
  uint32_t mask = 0, there = PLN_OUT(0), nsizes = y->ndim, used = 0;
  int nin = op->nin;
  if (!pln_dtype_is_float((pln_DType)y->dtype)) return PLN_OK;
  for (int i = 0; i < nin; i++) {
    const pln_Tensor *t = a->in[i];
    if (!t) continue;
    nsizes += t->ndim;
    there |= PLN_IN(i);
    if (t->requires_grad) mask |= saves[i];
  }
  mask &= there;
  if (op->nopt) nsizes += list_sizes(op, a);
  pln_Node *n;
  PLN_TRY(new_node(e, PLN_NODE_OP, (uint32_t)nin, 1, count_bits(mask), op->nopt, nsizes, &n));
  n->op = op;
  n->place = a->place;
  n->plan = a->plan;
  n->saved_mask = mask;
  for (int i = 0; i < nin; i++) {
    pln_Edge *edge = &n->edge[i];
    if (PLN_LIKELY(a->in[i] != NULL)) {
      make_edge(n, edge, a->in[i], &used);
    } else {
      edge->node = NULL;
      edge->number = a->num[i];
      edge->dtype = a->numbers >> i & 1 ? PLN_NODTYPE : 0;
      edge->ndim = 0;
    }
  }
  make_result(n, 0, y, &used);
  pln_Saved *s = n->saved;
  for (int i = 0; mask & (PLN_OUT(0) - 1); i++, mask &= ~PLN_IN(i - 1))
    if (mask & PLN_IN(i)) save(n, s++, a->in[i]);
  if (mask) save(n, s, y);
  if (op->nopt) keep_options(n, op, a, used);
  return PLN_OK;
}

pln_Status pln_tape_record(pln_Engine *e, const pln_OpDef *op, pln_Args *a) {
  if (PLN_LIKELY(op->nout == 1 && !a->results && !a->nlist && !(op->flags & PLN_OP_RANDOM))) return record_one(e, op, a);
  int nouts = a->results ? a->nresults : op->nout;
  pln_Tensor **result = a->results ? a->results : a->out;
  uint32_t mask = 0, nsizes = 0;
  bool gradient = false;
  while (nouts && !result[nouts - 1]) nouts--; /* optional results come last */
  for (int k = 0; k < nouts; k++) {
    nsizes += result[k]->ndim;
    gradient |= pln_dtype_is_float((pln_DType)result[k]->dtype);
  }
  if (!gradient) return PLN_OK;
  const uint16_t *saves = pln_saves[op - pln_ops];
  for (int i = 0; i < a->nin; i++)
    if (a->in[i]) {
      nsizes += a->in[i]->ndim;
      if (a->in[i]->requires_grad) mask |= saves[i];
    }
  for (int i = 0; i < a->nlist; i++) nsizes += a->list[i]->ndim;
  bool random = op->flags & PLN_OP_RANDOM;
  int nin = a->nin;
  if (PLN_UNLIKELY(random) && a->in[nin]) mask |= PLN_IN(nin); /* the draw number, in a capture */
  for (int i = 0; i <= nin && i < PLN_MAX_IN; i++)
    if (mask >> i & 1 && !((i < nin || random) && a->in[i])) mask &= ~PLN_IN(i);
  if (op->nopt) nsizes += list_sizes(op, a);
  pln_Node *n;
  for (int k = nouts; k < PLN_MAX_OUT; k++) mask &= ~PLN_OUT(k);
  if (mask & PLN_EITHER) mask &= nouts > 1 ? PLN_OUT(1) | PLN_OUT(2) : ~PLN_EITHER;
  uint32_t used = 0;
  PLN_TRY(new_node(e, PLN_NODE_OP, (uint32_t)(nin + a->nlist), (uint32_t)nouts, count_bits(mask),
                   op->nopt + random, nsizes, &n));
  n->op = op;
  n->place = a->place;
  n->plan = a->plan;
  n->saved_mask = mask;
  for (int i = 0; i < nin; i++) {
    pln_Edge *edge = &n->edge[i];
    if (a->in[i]) {
      make_edge(n, edge, a->in[i], &used);
    } else {
      edge->node = NULL;
      edge->number = a->num[i];
      edge->dtype = a->numbers >> i & 1 ? PLN_NODTYPE : 0;
      edge->ndim = 0;
    }
  }
  for (int i = 0; i < a->nlist; i++) make_edge(n, &n->edge[nin + i], a->list[i], &used);
  for (int k = 0; k < nouts; k++) make_result(n, k, result[k], &used);
  pln_Saved *s = n->saved;
  for (uint32_t rest = mask; rest; rest &= rest - 1) {
    int bit = __builtin_ctz(rest);
    save(n, s++, bit >= 12 ? result[bit - 12] : a->in[bit]);
  }
  if (op->nopt + random) keep_options(n, op, a, used);
  return PLN_OK;
}

/* --- nodes of the binding ----------------------------------------------------------------------- */

pln_Status pln_tape_custom(pln_Engine *e, const char *name, pln_Tensor **in, int nin, uint32_t place, pln_Node **n_p) {
  uint32_t nsizes = 0, used = 0;
  pln_Node *n;
  for (int i = 0; i < nin; i++) nsizes += in[i]->ndim;
  PLN_TRY(new_node(e, PLN_NODE_LUA, (uint32_t)nin, 0, 0, 0, nsizes, &n));
  snprintf(n->name, sizeof n->name, "%s", name);
  n->place = place;
  n->saved = NULL;
  for (int i = 0; i < nin; i++) make_edge(n, &n->edge[i], in[i], &used);
  *n_p = n;
  return PLN_OK;
}

pln_Status pln_node_results(pln_Node *n, pln_Tensor **result, int nresults) {
  uint32_t first = 0, nsizes;
  for (uint32_t i = 0; i < n->nedges; i++) first += n->edge[i].ndim;
  nsizes = first;
  for (int k = 0; k < nresults; k++) nsizes += result[k]->ndim;
  size_t bytes = n->nedges * sizeof(pln_Edge) + (size_t)nresults * sizeof(pln_Out) + nsizes * sizeof(int64_t);
  char *at = pln_malloc(bytes);
  if (!at) return pln_fail(PLN_ENOMEM, "out of memory for a recorded op");
  memcpy(at, n->edge, n->nedges * sizeof(pln_Edge));
  pln_Out *out = (pln_Out *)((pln_Edge *)at + n->nedges);
  int64_t *sizes = (int64_t *)(out + nresults);
  memcpy(sizes, n->sizes, first * sizeof(int64_t));
  if (n->external) pln_mfree(n->edge);
  n->external = 1;
  n->edge = (pln_Edge *)at;
  n->out = out;
  n->sizes = sizes;
  n->nouts = (uint32_t)nresults;
  for (int k = 0; k < nresults; k++) make_result(n, k, result[k], &first);
  return PLN_OK;
}

pln_Status pln_node_save(pln_Node *n, pln_Tensor *t) {
  if (!(n->nsaved & (n->nsaved - 1))) { /* 0 or a power of two: full */
    pln_Saved *saved = pln_realloc(n->saved, (n->nsaved ? 2 * n->nsaved : 1) * sizeof *saved);
    if (!saved) return pln_fail(PLN_ENOMEM, "out of memory for a saved tensor");
    n->saved = saved;
  }
  save(n, &n->saved[n->nsaved++], t);
  return PLN_OK;
}

/* --- leaves ------------------------------------------------------------------------------------- */

/* Owned and persistent headers drop their leaf when they go; those of the arena just end, so the segment has to. */
static pln_Status new_leaf(pln_Tensor *t, pln_Node **n_p) {
  pln_Engine *e = t->engine;
  pln_Node *n;
  uint32_t used = 0;
  PLN_TRY(new_node(e, PLN_NODE_LEAF, 0, 1, 0, 0, t->ndim, &n));
  n->place = t->place;
  make_result(n, 0, t, &used);
  if (t->storage->home != PLN_HOME_ARENA) {
    if (n->parent) leave_parent(n);
    leave_segment(e->tape, n);
    n->segment = NULL;
    n->leaf = t;
    n->refs = 1;
    n->older = NULL;
    n->newer = e->tape->leaves;
    if (n->newer) n->newer->older = n;
    e->tape->leaves = n;
  }
  *n_p = n;
  return PLN_OK;
}

pln_Status pln_tensor_require_grad(pln_Tensor *t, bool on) {
  pln_Node *n = pln_tensor_node(t), *leaf;
  if (!pln_dtype_is_float((pln_DType)t->dtype))
    return pln_fail(PLN_EGRAD, "requires_grad: only floating point tensors have gradients, this one is %s", pln_dtype_name((pln_DType)t->dtype));
  if (t->requires_grad == on) return PLN_OK;
  if (!on) {
    if (!n || n->kind != PLN_NODE_LEAF)
      return pln_fail(PLN_EGRAD, "requires_grad: the tensor is the result of a recorded op (t:detach() is one without gradient)");
    t->requires_grad = 0;
    t->node = NULL;
    n->leaf = NULL;
    if (n->segment) return PLN_OK;
    drop_leaf_ref(n);
    return PLN_OK;
  }
  PLN_TRY(pln_tape_open(t->engine));
  return new_leaf(t, &leaf);
}

static pln_Status zero_grad(pln_Engine *e, const pln_Node *leaf, pln_Tensor **t_p) {
  pln_Shape shape = pln_node_out_shape(leaf, 0);
  pln_Args a;
  PLN_TRY(pln_tensor_new(e, PLN_HOME_PERSISTENT, (pln_DType)leaf->out[0].dtype, &shape, t_p));
  pln_args_init(&pln_ops[PLN_OP_zero], &a);
  a.in[0] = *t_p;
  pln_Status status = pln_op_run(e, &pln_ops[PLN_OP_zero], &a);
  if (status != PLN_OK) pln_tensor_release(*t_p);
  return status;
}

/* In a capture the sum of a leaf from before it begins once, not with each replay. */
pln_Status pln_leaf_grad(pln_Node *leaf, pln_Tensor **grad_p) {
  if (!leaf->grad) {
    pln_Engine *e = leaf->engine;
    bool once = e->capture && leaf->out[0].serial < e->capture->serial;
    pln_Capture *capture = once ? pln_capture_pause(e) : NULL;
    pln_Tensor *t;
    pln_Status status = zero_grad(e, leaf, &t);
    if (once) pln_capture_resume(e, capture);
    PLN_TRY(status);
    leaf->grad = t;
  }
  *grad_p = leaf->grad;
  return PLN_OK;
}

void pln_tape_header_gone(pln_Tensor *t) {
  pln_Node *n = pln_tensor_node(t);
  if (!n || n->kind != PLN_NODE_LEAF || n->segment) return;
  t->node = NULL;
  n->leaf = NULL;
  drop_leaf_ref(n);
}

/* --- segments ----------------------------------------------------------------------------------- */

pln_Status pln_segment_open(pln_Engine *e, int slot, pln_Segment **s_p) {
  pln_Tape *tape = e->tape;
  pln_Segment *s = pln_calloc(1, sizeof *s);
  if (!s) return pln_fail(PLN_ENOMEM, "out of memory for a recorded op");
  pln_tape_seal(e);
  s->anchored = s->listed = 1;
  s->slot = slot;
  s->older = tape->newest_segment;
  *(s->older ? &s->older->newer : &tape->oldest_segment) = s;
  tape->newest_segment = tape->segment = s;
  *s_p = s;
  return PLN_OK;
}

void pln_segment_drop(pln_Engine *e, pln_Segment *s) {
  if (e) {
    while (s->count) pln_node_drop(s->last);
    end_segment(e->tape, s);
  }
  pln_mfree(s);
}

void pln_tape_seal(pln_Engine *e) {
  pln_Segment *s = e->tape ? e->tape->segment : NULL;
  if (!s) return;
  s->resets = e->count_resets;
  e->tape->segment = NULL;
  if (!s->count) end_segment(e->tape, s);
}

void pln_tape_forget(pln_Engine *e, uint64_t node, uint64_t header) {
  for (pln_Node *n = e->tape->newest, *older; n && n->object.serial > node; n = older) {
    older = n->older;
    if (n->kind != PLN_NODE_LEAF || n->out[0].serial > header) pln_node_drop(n);
  }
}

/* An open segment that still has nodes is sealed, so that its age counts; an empty one serves on. */
void pln_tape_reset(pln_Engine *e) {
  pln_Tape *tape = e->tape;
  if (!tape || tape->run) return;
  pln_Segment *s = tape->segment, *newer;
  if (s && s->count) {
    s->resets = e->count_resets - 1;
    tape->segment = NULL;
  } else if (s) {
    s->bytes = 0;
  }
  uint64_t limit = e->options.graph_resets < 0 ? 0 : (uint64_t)e->options.graph_resets;
  for (s = tape->oldest_segment; s && s != tape->segment; s = newer) {
    newer = s->newer;
    if (e->count_resets - s->resets <= limit) break;
    if (s->last->object.serial > tape->aged) tape->aged = s->last->object.serial;
    for (uint32_t k = 0; k < s->last->nouts; k++)
      if (s->last->out[k].serial > tape->aged_header) tape->aged_header = s->last->out[k].serial;
    uint8_t anchored = s->anchored;
    s->anchored = 1; /* else its last node would free it */
    while (s->count) pln_node_drop(s->last);
    if (!(s->anchored = anchored)) pln_mfree(s);
  }
}

void pln_tape_close(pln_Engine *e) {
  pln_Tape *tape = e->tape;
  if (!tape) return;
  while (tape->newest) pln_node_drop(tape->newest);
  while (tape->leaves) pln_node_drop(tape->leaves);
  if (tape->segment) end_segment(tape, tape->segment);
  pln_passes_free(tape);
  for (int i = 0; i < 2; i++) pln_tensor_release(tape->one[i]);
  pln_pool_close(&tape->nodes);
  pln_slabs_free(tape->slabs);
  pln_mfree(tape);
  e->tape = NULL;
  e->hooks &= ~(uint32_t)PLN_HOOK_TAPE;
}

pln_Status pln_tape_find(pln_Engine *e, uint64_t serial, pln_Node **n_p, int *output_p) {
  for (pln_Node *n = e->tape ? e->tape->newest : NULL; n; n = n->older)
    for (uint32_t k = 0; k < n->nouts; k++)
      if (n->out[k].serial == serial) {
        *output_p = (int)k;
        *n_p = n;
        return PLN_OK;
      }
  if (e->tape && serial <= e->tape->aged_header) return pln_tape_gone(e, 0);
  return pln_fail(PLN_EGRAD, "backward: the tensor is stale and no recorded op is known for it: its backward has run, or it did not require grad");
}
