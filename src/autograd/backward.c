/* SPDX-License-Identifier: MIT
** backward.c -- the stepper: gradients run from seeds towards older nodes, one node at a time, newest first.
**
** A node's consumers are all newer than it, so when its turn comes its gradients are complete. Every gradient on its way lies in `out[k].dy`
** of the node that it belongs to (held is set then); `pending` counts those nodes, leaves apart. The core runs built-in nodes; where a
** derivative is Lua's, it returns to the caller and goes on when told the result. As Lua may reset the arena, gradients are pinned
** from the first such node on.
*/
#include <string.h>

#include "../alloc.h"
#include "../engine.h"
#include "../fault.h"
#include "../interrupt.h"
#include "../place.h"
#include "calc.h"
#include "pass.h"

static void pin(pln_Run *r, pln_Tensor *t) {
  if (PLN_UNLIKELY(r->pins) && !PLN_FAULT(gradient_unpinned)) pln_tape_pin(t->storage);
}

static void let_go(pln_Run *r, pln_Tensor *t) {
  if (PLN_UNLIKELY(r->pins) && !PLN_FAULT(gradient_unpinned)) pln_tape_unpin(t->storage);
  pln_tensor_release(t);
}

/* --- begin, seeds ------------------------------------------------------------------------------- */

pln_Status pln_run_begin(pln_Run *r, pln_Engine *e, bool retain, bool graph, pln_Want *want, int nwant, uint32_t place) {
  pln_Tape *tape = e->tape;
  memset(r, 0, sizeof *r);
  r->e = e;
  r->outer = tape->run;
  r->id = ++tape->runs;
  r->retain = retain || graph;
  r->graph = graph;
  r->place = place;
  r->want = want;
  r->nwant = nwant;
  r->pins = tape->node_hook || r->outer;
  tape->run = r;
  return PLN_OK;
}

/* Adds dx, whose reference it takes, to the gradient of a result. */
static pln_Status give(pln_Run *r, pln_Node *n, int output, pln_Tensor *dx) {
  pln_Out *out = &n->out[output];
  if (!n->held) {
    n->held = 1;
    n->run = r->id;
    if (n->kind == PLN_NODE_LEAF) {
      n->next = r->leaves;
      r->leaves = n;
      n->refs++;
    } else {
      r->pending++;
      if (!r->at || n->object.serial > r->at->object.serial) r->at = n; /* seeds; later ones are older */
    }
  } else if (PLN_UNLIKELY(n->run != r->id)) {
    pln_tensor_release(dx);
    return pln_fail(PLN_EGRAD, "backward: a backward inside a backward runs through the same node (%s)", pln_node_name(n));
  }
  if (PLN_LIKELY(!out->dy)) {
    pin(r, dx);
    out->dy = dx;
    out->own = 0;
    return PLN_OK;
  }
  pln_Tape *tape = r->e->tape;
  pln_Args a;
  pln_args_init(&pln_ops[PLN_OP_add], &a);
  a.place = tape->place;
  a.in[0] = out->dy;
  a.in[1] = dx;
  if (out->own && !pln_tape_recording(r->e)) a.out[0] = out->dy;
  pln_Status status = pln_op_run(r->e, &pln_ops[PLN_OP_add], &a);
  pln_tensor_release(dx);
  if (status != PLN_OK || a.out[0] == out->dy) return status;
  pin(r, a.out[0]);
  let_go(r, out->dy);
  out->dy = a.out[0];
  out->own = 1;
  return PLN_OK;
}

static pln_Status seed_one(pln_Run *r, const pln_Node *n, int output, pln_Tensor **dy_p) {
  pln_Tape *tape = r->e->tape;
  pln_Shape shape = pln_node_out_shape(n, output);
  char text[PLN_SHAPE_TEXT];
  int which = n->out[output].dtype == PLN_F64;
  for (int d = 0; d < shape.ndim; d++)
    if (shape.size[d] != 1)
      return pln_fail(PLN_EGRAD, "backward: the tensor has shape %s; only of one element the gradient needs not be given",
                      pln_shape_text(shape.ndim, shape.size, text));
  if (PLN_UNLIKELY(r->e->capture != NULL)) { /* a replay must find 1 there whatever has been written to it since */
    pln_Args a;
    pln_args_init(&pln_ops[PLN_OP_ones], &a);
    a.place = r->place;
    a.opt[0].given = a.opt[1].given = 1;
    a.opt[0].list = shape;
    a.opt[1].i = n->out[output].dtype;
    PLN_TRY(pln_op_run(r->e, &pln_ops[PLN_OP_ones], &a));
    *dy_p = a.out[0];
    return PLN_OK;
  }
  pln_Tensor *one = tape->one[which];
  if (tape->one_version[which] != one->storage->version) { /* somebody wrote to a gradient that he was handed */
    pln_Args a;
    pln_args_init(&pln_ops[PLN_OP_fill], &a);
    a.in[0] = one;
    a.opt[0].given = 1;
    a.opt[0].num = 1;
    PLN_TRY(pln_op_run(r->e, &pln_ops[PLN_OP_fill], &a));
    tape->one_version[which] = one->storage->version;
  }
  int64_t stride[PLN_MAX_DIMS];
  if (shape.ndim == 0) {
    pln_tensor_retain(one);
    *dy_p = one;
    return PLN_OK;
  }
  pln_shape_strides(shape.ndim, shape.size, stride);
  return pln_tensor_view(one, &shape, stride, 0, dy_p);
}

pln_Status pln_run_seed(pln_Run *r, pln_Node *n, int output, pln_Tensor *dy) {
  const pln_Out *out = &n->out[output];
  pln_Shape shape = pln_node_out_shape(n, output);
  if (!dy) {
    PLN_TRY(seed_one(r, n, output, &dy));
  } else {
    pln_Shape given = pln_tensor_shape(dy);
    char a[PLN_SHAPE_TEXT], b[PLN_SHAPE_TEXT];
    if (dy->engine != r->e) return pln_fail(PLN_EENGINE, "backward: argument 'dy': the gradient belongs to another engine");
    if (!pln_shape_equal(&given, &shape))
      return pln_fail(PLN_ESHAPE, "backward: argument 'dy': the gradient has shape %s, the tensor %s",
                      pln_shape_text(given.ndim, given.size, a), pln_shape_text(shape.ndim, shape.size, b));
    if (dy->dtype != out->dtype)
      return pln_fail(PLN_EDTYPE, "backward: argument 'dy': the gradient is %s, the tensor %s", pln_dtype_name((pln_DType)dy->dtype),
                      pln_dtype_name((pln_DType)out->dtype));
    pln_tensor_retain(dy);
  }
  return give(r, n, output, dy);
}

/* --- what is needed ----------------------------------------------------------------------------- */

static pln_Node *edge_node(const pln_Edge *edge) {
  return edge->node && edge->node->object.serial == edge->serial ? edge->node : NULL;
}

static bool is_wanted(const pln_Run *r, const pln_Node *n) {
  for (int i = 0; i < r->nwant; i++)
    if (r->want[i].node == n && r->want[i].serial == n->object.serial) return true;
  return false;
}

/* Whether something that is wanted lies at this node or behind it. */
static bool leads(const pln_Run *r, const pln_Node *n) { return n->needed == r->id || is_wanted(r, n); }

/* Two walks along the list: from the newest root down to the oldest node reached, marking what is reached (run), and back up, marking what leads
** to a wanted node (needed). */
pln_Status pln_run_plan(pln_Run *r, pln_Node **roots, int nroots) {
  pln_Node *newest = NULL, *oldest = NULL;
  uint32_t open = 0;
  for (int i = 0; i < nroots; i++) {
    pln_Node *n = roots[i];
    if (n->kind == PLN_NODE_LEAF || n->run == r->id) continue;
    n->run = r->id;
    open++;
    if (!newest || n->object.serial > newest->object.serial) newest = n;
  }
  for (pln_Node *n = newest; open; n = n->older) {
    if (n->run != r->id || n->kind == PLN_NODE_LEAF) continue;
    open--;
    oldest = n;
    for (uint32_t i = 0; i < n->nedges; i++) {
      pln_Node *to = edge_node(&n->edge[i]);
      if (!to || to->kind == PLN_NODE_LEAF || to->run == r->id) continue;
      if (to->held) return pln_fail(PLN_EGRAD, "grad: a backward inside a backward runs through the same node (%s)", pln_node_name(to));
      to->run = r->id;
      open++;
    }
  }
  for (pln_Node *n = oldest; n; n = n == newest ? NULL : n->newer) {
    if (n->run != r->id || n->kind == PLN_NODE_LEAF) continue;
    for (uint32_t i = 0; i < n->nedges; i++) {
      pln_Node *to = edge_node(&n->edge[i]);
      if (to && leads(r, to)) n->needed = r->id;
    }
  }
  return PLN_OK;
}

/* --- one node ----------------------------------------------------------------------------------- */

static pln_Status check_saved(const pln_Node *n) {
  for (uint32_t i = 0; i < n->nsaved; i++) {
    const pln_Storage *s = n->saved[i].t->storage;
    if (PLN_LIKELY(s->version == n->saved[i].version)) continue;
    char saved[PLN_PLACE_TEXT], written[PLN_PLACE_TEXT], what[32] = "a tensor";
    uint32_t mask = n->saved_mask;
    for (uint32_t k = 0; k < i && mask; k++) mask &= mask - 1;
    int bit = mask ? __builtin_ctz(mask) : -1;
    if (bit >= 12)
      strcpy(what, "its result");
    else if (bit >= 0)
      for (int k = 0; k < n->op->nslots; k++)
        if (n->op->slot[k].kind < PLN_SLOT_TENSORS && n->op->slot[k].index == bit) {
          strcpy(what, "'");
          strcat(what, n->op->slot[k].name);
          strcat(what, "'");
        }
    return pln_fail(PLN_EGRAD, "backward: %s (at %s) saved %s, which was changed in place by %s (at %s) afterwards%s", pln_node_name(n),
                    pln_place_text(n->place, saved), what, pln_ops[s->version_op].name, pln_place_text(s->version_place, written),
                    n->place ? "" : " (places = true records the lines)");
  }
  return PLN_OK;
}

/* Hands the gradients of n's operands on; takes their references, errors or not. */
static pln_Status route(pln_Run *r, pln_Node *n, pln_Tensor **dx) {
  pln_Status status = PLN_OK;
  for (uint32_t i = 0; i < n->nedges; i++) {
    if (!dx[i]) continue;
    pln_Edge *edge = &n->edge[i];
    pln_Tensor *g = dx[i];
    dx[i] = NULL;
    if (status != PLN_OK || !edge->node || !pln_node_wants(n, (int)i)) {
      pln_tensor_release(g);
      continue;
    }
    if (PLN_UNLIKELY(edge->node->object.serial != edge->serial)) { /* never a leaf, its edges own it, but in an older segment */
      pln_tensor_release(g);
      status = pln_tape_gone(r->e, edge->serial);
      continue;
    }
    bool fits = g->dtype == edge->dtype && g->ndim == edge->ndim;
    for (int d = 0; fits && d < g->ndim; d++) fits = g->shape[d] == n->sizes[edge->sizes + (uint32_t)d];
    if (PLN_UNLIKELY(!fits)) {
      pln_Calc c;
      pln_Shape shape = pln_node_in_shape(n, (int)i);
      pln_calc_begin(&c, r->e);
      pln_Tensor *to = pln_calc_keep(&c, pln_calc_cast(&c, pln_calc_sum_to(&c, g, &shape), (pln_DType)edge->dtype));
      status = pln_calc_end(&c);
      pln_tensor_release(g);
      if (status != PLN_OK) continue;
      g = to;
    }
    status = give(r, edge->node, edge->output, g);
  }
  return status;
}

static void put_down(pln_Run *r, pln_Node *n) {
  r->pending--;
  n->held = 0;
  for (uint32_t k = 0; k < n->nouts; k++)
    if (n->out[k].dy) {
      let_go(r, n->out[k].dy);
      n->out[k].dy = NULL;
    }
}

static void done_with(pln_Run *r, pln_Node *n) {
  put_down(r, n);
  if (!r->retain) pln_node_drop(n);
}

/* Whether n has to run; decides which operands' gradients are wanted and takes what is wanted of n itself. */
static bool prepare_node(pln_Run *r, pln_Node *n) {
  n->wants = ~(uint64_t)0;
  if (!r->nwant) return true;
  for (int i = 0; i < r->nwant; i++) {
    pln_Want *w = &r->want[i];
    if (w->node != n || w->serial != n->object.serial) continue;
    w->dx = n->out[w->output].dy;
    if (!w->dx) continue;
    pln_tensor_retain(w->dx);
    pin(r, w->dx);
  }
  for (uint32_t i = 0; i < n->nedges && i < 64; i++) {
    pln_Node *to = edge_node(&n->edge[i]);
    if (to && !leads(r, to)) n->wants &= ~((uint64_t)1 << i);
  }
  return n->needed == r->id;
}

#define FEW 16

static pln_Status run_builtin(pln_Run *r, pln_Node *n) {
  pln_Tensor *few[2 * FEW], **dy = few, **dx = few + FEW;
  bool many = n->nouts > FEW || n->nedges > FEW;
  PLN_TRY(check_saved(n));
  if (PLN_UNLIKELY(r->e->pass != NULL)) pln_pass_node(r->e->pass, n);
  if (many) {
    dy = pln_malloc((n->nouts + n->nedges) * sizeof *dy);
    if (!dy) return pln_fail(PLN_ENOMEM, "out of memory for a backward");
    dx = dy + n->nouts;
  }
  for (uint32_t k = 0; k < n->nouts; k++) dy[k] = n->out[k].dy;
  for (uint32_t i = 0; i < n->nedges; i++) dx[i] = NULL;
  pln_Status status = n->op->backward(n, dy, dx);
  if (status != PLN_OK) {
    for (uint32_t i = 0; i < n->nedges; i++)
      if (dx[i]) pln_tensor_release(dx[i]);
    status = pln_fail_prefix(status, "backward of %s: ", n->op->name);
  } else {
    status = route(r, n, dx);
  }
  if (many) pln_mfree(dy);
  return status;
}

/* Lua runs from now on: what is held gets pins. */
static void start_pinning(pln_Run *r) {
  if (r->pins) return;
  r->pins = true;
  if (PLN_FAULT(gradient_unpinned)) return;
  uint32_t left = r->pending;
  for (pln_Node *n = r->at; left && n; n = n->older) {
    if (!n->held || n->run != r->id || n->kind == PLN_NODE_LEAF) continue;
    left--;
    for (uint32_t k = 0; k < n->nouts; k++)
      if (n->out[k].dy) pln_tape_pin(n->out[k].dy->storage);
  }
  for (pln_Node *n = r->leaves; n; n = n->next) pln_tape_pin(n->out[0].dy->storage);
  for (int i = 0; i < r->nwant; i++)
    if (r->want[i].dx) pln_tape_pin(r->want[i].dx->storage);
}

static pln_Status step(pln_Run *r, pln_Node **n_p) {
  *n_p = NULL;
  while (r->pending) {
    pln_Node *n = r->at;
    if (!n->held || n->run != r->id || n->kind == PLN_NODE_LEAF) {
      r->at = n->older;
      continue;
    }
    if (PLN_UNLIKELY(r->e->tape->node_hook) && !r->hooked) {
      r->hooked = true;
      *n_p = n;
      return PLN_OK;
    }
    r->hooked = false;
    if (!prepare_node(r, n)) {
      r->at = n->older;
      put_down(r, n);
      continue; /* nothing behind it is wanted: it has not run and stays as it is */
    }
    if (n->kind == PLN_NODE_LUA) {
      PLN_TRY(check_saved(n));
      if (PLN_UNLIKELY(r->e->pass != NULL)) pln_pass_node(r->e->pass, n);
      start_pinning(r);
      for (uint32_t k = 0; k < n->nouts; k++) { /* Lua gets zeros for results that nobody used */
        if (n->out[k].dy || !pln_dtype_is_float((pln_DType)n->out[k].dtype)) continue;
        pln_Calc c;
        pln_Shape shape = pln_node_out_shape(n, (int)k);
        pln_calc_begin(&c, r->e);
        n->out[k].dy = pln_calc_keep(&c, pln_calc_full(&c, &shape, (pln_DType)n->out[k].dtype, 0));
        PLN_TRY(pln_calc_end(&c));
        pin(r, n->out[k].dy);
      }
      r->lua = n;
      *n_p = n;
      return PLN_OK;
    }
    PLN_TRY(run_builtin(r, n));
    r->at = n->older;
    done_with(r, n);
    if (PLN_UNLIKELY(pln_interrupted)) {
      pln_interrupted = 0;
      return pln_fail(PLN_EINTERRUPT, "backward: interrupted");
    }
  }
  return PLN_OK;
}

/* Recording is on inside iff the gradients are to have a graph. */
pln_Status pln_run_step(pln_Run *r, pln_Node **n_p) {
  pln_Tape *tape = r->e->tape;
  bool before = pln_tape_record_on(r->e, r->graph);
  uint32_t place = tape->place;
  tape->place = r->place;
  pln_Status status = step(r, n_p);
  tape->place = place;
  pln_tape_record_on(r->e, before);
  return status;
}

pln_Status pln_run_lua_done(pln_Run *r, pln_Tensor **dx) {
  pln_Tape *tape = r->e->tape;
  pln_Node *n = r->lua;
  bool before = pln_tape_record_on(r->e, r->graph);
  uint32_t place = tape->place;
  tape->place = r->place;
  r->lua = NULL;
  for (uint32_t i = 0; i < n->nedges; i++)
    if (dx[i]) pln_tensor_retain(dx[i]);
  pln_Status status = route(r, n, dx);
  if (status == PLN_OK) {
    r->at = n->older;
    done_with(r, n);
  }
  tape->place = place;
  pln_tape_record_on(r->e, before);
  return status;
}

/* --- end ---------------------------------------------------------------------------------------- */

/* The one rule by which gradients come together: sum = sum + gradient, in place. With a graph the sum gets one too. */
static pln_Status add_up(pln_Run *r, pln_Node *leaf, pln_Tensor *dy) {
  pln_Tensor *grad;
  pln_Args a;
  if (PLN_UNLIKELY(r->e->pass != NULL)) pln_pass_leaf(r->e->pass, leaf);
  PLN_TRY(pln_leaf_grad(leaf, &grad));
  pln_args_init(&pln_ops[PLN_OP_add], &a);
  a.place = r->place;
  a.in[0] = grad;
  a.in[1] = dy;
  if (!r->graph || !(grad->requires_grad || dy->requires_grad)) {
    a.out[0] = grad;
    if (PLN_FAULT(double_count)) PLN_TRY(pln_op_run(r->e, &pln_ops[PLN_OP_add], &a));
    if (PLN_FAULT(sum_dropped) || PLN_FAULT(gradient_rehomed)) a.out[0] = NULL;
    if (PLN_FAULT(gradient_kept)) {
      pln_tensor_retain(dy);
      leaf->grad = dy;
      return PLN_OK;
    }
    pln_Status ran = pln_op_run(r->e, &pln_ops[PLN_OP_add], &a);
    if (PLN_FAULT(gradient_rehomed) && ran == PLN_OK) leaf->grad = a.out[0];
    return ran;
  }
  pln_tape_record_on(r->e, true);
  PLN_TRY(pln_op_run(r->e, &pln_ops[PLN_OP_add], &a));
  pln_tape_record_on(r->e, false);
  pln_Status status = pln_copy_into(r->e, grad, a.out[0]);
  grad->node = a.out[0]->node;
  grad->node_serial = a.out[0]->node_serial;
  grad->output = a.out[0]->output;
  grad->requires_grad = 1;
  pln_tensor_release(a.out[0]);
  return status;
}

static void drop_leaf(pln_Run *r, pln_Node *leaf) {
  let_go(r, leaf->out[0].dy);
  leaf->out[0].dy = NULL;
  leaf->held = 0;
  if (--leaf->refs == 0 && !leaf->segment) pln_node_drop(leaf);
}

pln_Status pln_run_finish(pln_Run *r) {
  pln_Tape *tape = r->e->tape;
  bool before = pln_tape_record_on(r->e, false);
  pln_Status status = PLN_OK;
  while (r->leaves) {
    pln_Node *leaf = r->leaves;
    r->leaves = leaf->next;
    if (r->nwant) {
      for (int i = 0; i < r->nwant; i++)
        if (r->want[i].node == leaf && r->want[i].serial == leaf->object.serial) {
          r->want[i].dx = leaf->out[0].dy;
          pln_tensor_retain(leaf->out[0].dy);
          pin(r, leaf->out[0].dy);
        }
    } else if (status == PLN_OK) {
      status = add_up(r, leaf, leaf->out[0].dy);
    }
    drop_leaf(r, leaf);
  }
  if (r->pins)
    for (int i = 0; i < r->nwant; i++)
      if (r->want[i].dx) pln_tape_unpin(r->want[i].dx->storage);
  tape->run = r->outer;
  pln_tape_record_on(r->e, before);
  return status;
}

/* Nodes that have not run are dropped too, with what they saved, unless they were to be retained: `held` then marks the way to them. */
void pln_run_abort(pln_Run *r) {
  pln_Tape *tape = r->e->tape;
  for (pln_Node *n = r->at, *older; n && r->pending; n = older) {
    older = n->older;
    if (!n->held || n->run != r->id || n->kind == PLN_NODE_LEAF) continue;
    if (!r->retain)
      for (uint32_t i = 0; i < n->nedges; i++) {
        pln_Node *to = edge_node(&n->edge[i]);
        if (!to || to->kind == PLN_NODE_LEAF || to->held) continue;
        to->held = 1;
        to->run = r->id;
        r->pending++;
      }
    r->at = older;
    done_with(r, n);
    older = r->at;
  }
  while (r->leaves) {
    pln_Node *leaf = r->leaves;
    r->leaves = leaf->next;
    drop_leaf(r, leaf);
  }
  for (int i = 0; i < r->nwant; i++)
    if (r->want[i].dx) {
      let_go(r, r->want[i].dx);
      r->want[i].dx = NULL;
    }
  tape->run = r->outer;
}
