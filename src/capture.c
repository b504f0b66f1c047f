/* SPDX-License-Identifier: MIT
** capture.c -- recording, holding, replaying; see capture.h.
*/
#include "capture.h"

#include <stdio.h>
#include <string.h>

#include "alloc.h"
#include "autograd/tape.h"
#include "fault.h"
#include "interrupt.h"
#include "ops/random.h"
#include "place.h"

/* --- what is held ------------------------------------------------------------------------------- */

static pln_Status no_memory(void) { return pln_fail(PLN_ENOMEM, "out of memory for a capture"); }

/* Index of the storage among the uses; it is added when it is new. */
static pln_Status find_use(pln_Capture *c, pln_Storage *s, bool made, pln_Use **use_p) {
  if (s->capture == c->serial && s->capture_use < c->nuse && c->use[s->capture_use].s == s) {
    *use_p = &c->use[s->capture_use];
    return PLN_OK;
  }
  if (c->nuse == c->capuse) {
    size_t cap = c->capuse ? 2 * c->capuse : 32;
    pln_Use *use = pln_realloc(c->use, cap * sizeof *use);
    if (!use) return no_memory();
    c->use = use;
    c->capuse = cap;
  }
  s->capture = c->serial;
  s->capture_use = (uint32_t)c->nuse;
  pln_Use *u = *use_p = &c->use[c->nuse++];
  *u = (pln_Use){s, s->version, s->version_place, s->version_op, made, 0, NULL};
  pln_storage_capture(s);
  return PLN_OK;
}

pln_Status pln_capture_hold(pln_Capture *c, pln_Storage *s) {
  pln_Use *u;
  return s->state == PLN_STORAGE_LIVE ? find_use(c, s, false, &u) : PLN_OK;
}

pln_Status pln_capture_made(pln_Capture *c, pln_Storage *s) {
  pln_Use *u;
  s->capture_shown = 0;
  return find_use(c, s, true, &u);
}

/* The collector lets go of values when it likes; what Lua has never seen is let go of at the same places every time. */
bool pln_capture_idle(pln_Capture *c, pln_Storage *s) {
  if (s->capture != c->serial || s->capture_use >= c->nuse) return false;
  pln_Use *u = &c->use[s->capture_use];
  if (u->s != s || !u->made || s->capture_shown || s->pins || !s->bytes || c->engine->options.poison.redzone) return false;
  u->next_idle = c->idle;
  c->idle = s;
  return true;
}

pln_Storage *pln_capture_again(pln_Capture *c, pln_Home home, size_t bytes) {
  for (pln_Storage **link = &c->idle, *s; (s = *link); link = &c->use[s->capture_use].next_idle) {
    if (s->home != home || s->asked < bytes || s->asked > 2 * bytes) continue;
    *link = c->use[s->capture_use].next_idle;
    s->refs = 1;
    s->version = 0;
    return s;
  }
  return NULL;
}

/* An operand or result of a record. Under stale = "allow" it may be dead: then no replay can be right. */
static pln_Status use_tensor(pln_Capture *c, const pln_OpDef *op, pln_Tensor *t, bool written) {
  pln_Use *u = NULL;
  if (!t) return PLN_OK;
  if (t->storage->state != PLN_STORAGE_LIVE || !pln_tensor_alive(t))
    return pln_fail(PLN_ESTALE, "%s: a stale tensor cannot be used in a capture", op->name);
  PLN_TRY(find_use(c, t->storage, false, &u));
  u->written |= written;
  return PLN_OK;
}

/* --- hooks -------------------------------------------------------------------------------------- */

static void break_off(pln_Capture *c) {
  if (c->broken) return;
  c->broken = true;
  snprintf(c->error, sizeof c->error, "%s", pln_error());
}

pln_Status pln_capture_refused(pln_Engine *e, const char *what) {
  pln_Status status = pln_fail(PLN_ECAPTURE, "%s is not possible during a capture", what);
  break_off(e->capture);
  return status;
}

pln_Status pln_capture_admit(pln_Engine *e, const pln_OpDef *op) {
  return op->flags & PLN_OP_HOSTREAD ? pln_capture_refused(e, op->name) : PLN_OK;
}

pln_Status pln_capture_failed(pln_Engine *e, const pln_OpDef *op, pln_Status status) {
  if (status != PLN_ENOMEM && status != PLN_ESTALE) return status;
  if (strncmp(pln_error(), op->name, strlen(op->name)) != 0) pln_fail_prefix(status, "%s: ", op->name);
  break_off(e->capture);
  return status;
}

/* One more draw tensor and the views of its elements. */
static pln_Status add_draw_tensor(pln_Capture *c) {
  pln_Shape shape = {1, {PLN_CAPTURE_DRAWS}}, one = {0, {0}};
  pln_Tensor **all = pln_realloc(c->draw_tensor, (c->ndraw_tensors + 1) * sizeof *all);
  if (!all) return no_memory();
  c->draw_tensor = all;
  all = pln_realloc(c->draw_view, (c->ndraw_tensors + 1) * PLN_CAPTURE_DRAWS * sizeof *all);
  if (!all) return no_memory();
  c->draw_view = all;
  pln_Tensor *t;
  PLN_TRY(pln_tensor_result(c->engine, PLN_I64, &shape, &t));
  c->draw_tensor[c->ndraw_tensors++] = t;
  for (int64_t k = 0; k < PLN_CAPTURE_DRAWS; k++) {
    PLN_TRY(pln_tensor_view(t, &one, NULL, k, &all[c->ndraw_views]));
    c->ndraw_views++;
  }
  return PLN_OK;
}

/* The tensor that is read for draw number `draw`. Numbers may come again: a checkpoint draws twice. */
static pln_Status draw_tensor(pln_Capture *c, uint64_t draw, pln_Tensor **t_p) {
  uint64_t k = draw - c->draw;
  while (c->ndraw_views <= k) PLN_TRY(add_draw_tensor(c));
  *t_p = c->draw_view[k];
  return PLN_OK;
}

static pln_Status add_call(pln_Capture *c, const pln_Call *from) {
  if (c->ncalls == c->capcalls) {
    size_t cap = c->capcalls ? 2 * c->capcalls : 32;
    pln_Call **call = pln_realloc(c->call, cap * sizeof *call);
    if (!call) return no_memory();
    c->call = call;
    c->capcalls = cap;
  }
  size_t bytes = pln_call_bytes(from);
  pln_Call *copy = pln_malloc_aligned(bytes);
  if (!copy) return no_memory();
  memcpy(copy, from, bytes);
  c->call[c->ncalls++] = copy;
  return PLN_OK;
}

pln_Status pln_capture_call(pln_Prep *p) {
  pln_Capture *c = p->e->capture;
  const pln_OpDef *op = p->op;
  pln_Args *a = p->a;
  const pln_Opt *drawn = &a->opt[op->nopt];
  if (!p->done && op->flags & PLN_OP_RANDOM && drawn->given && !PLN_FAULT(draw_frozen)) {
    pln_Tensor *t = NULL;
    PLN_TRY(draw_tensor(c, (uint64_t)drawn->i, &t));
    pln_random_from_tensor(p, t);
  }
  for (int i = 0; i < a->nin; i++) PLN_TRY(use_tensor(c, op, a->in[i], false));
  for (int i = 0; i < a->nlist; i++) PLN_TRY(use_tensor(c, op, a->list[i], false));
  for (int i = 0; i < p->ntemps; i++) PLN_TRY(use_tensor(c, op, p->temp[i], true));
  for (int k = 0; k < op->nout; k++) PLN_TRY(use_tensor(c, op, a->out[k], !p->done));
  return p->done ? PLN_OK : add_call(c, &p->call);
}

/* --- recording ---------------------------------------------------------------------------------- */

pln_Status pln_capture_begin(pln_Engine *e, void *owner, uint32_t place, pln_Capture **c_p) {
  if (e->capture) return pln_capture_refused(e, "a capture");
  if (e->tape && e->tape->run) return pln_fail(PLN_ECAPTURE, "a capture is not possible during a backward");
  pln_Capture *c = pln_calloc(1, sizeof *c);
  if (!c) return no_memory();
  c->engine = e;
  c->owner = owner;
  c->serial = ++e->runtime->serial;
  c->node = e->tape ? e->tape->serial : 0;
  c->draw = e->draw;
  c->seed = e->options.seed;
  c->place = place;
  pln_tape_seal(e);
  pln_capture_resume(e, c);
  *c_p = c;
  return PLN_OK;
}

/* What was recorded for gradients goes, leaves apart; results are plain tensors from then on. */
static void end_gradients(pln_Capture *c, bool leaves_too) {
  pln_Engine *e = c->engine;
  if (!e->tape) return;
  pln_tape_forget(e, c->node, leaves_too ? c->serial : UINT64_MAX);
  for (size_t i = 0; i < c->nuse; i++)
    for (pln_Tensor *t = c->use[i].s->tensors; t; t = t->sibling) {
      if (!t->node || t->node_serial <= c->node) continue;
      const pln_Node *n = pln_tensor_node(t);
      if (n && n->kind == PLN_NODE_LEAF) continue;
      t->requires_grad = 0;
      t->node = NULL;
    }
  pln_tape_seal(e);
}

/* Nothing has been written yet, so no version has changed. */
static void restore_versions(const pln_Capture *c) {
  for (size_t i = 0; i < c->nuse; i++) {
    const pln_Use *u = &c->use[i];
    if (u->made) continue;
    u->s->version = u->version;
    u->s->version_op = u->version_op;
    u->s->version_place = u->version_place;
  }
}

static void drop_contents(pln_Capture *c) {
  for (size_t i = 0; i < c->ndraw_views; i++) pln_tensor_release(c->draw_view[i]);
  for (size_t i = 0; i < c->ndraw_tensors; i++) pln_tensor_release(c->draw_tensor[i]);
  for (size_t i = 0; i < c->ncalls; i++) pln_mfree_aligned(c->call[i]);
  pln_mfree(c->call);
  pln_mfree(c->use);
  pln_mfree(c->written);
  pln_mfree(c->draw_tensor);
  pln_mfree(c->draw_view);
  c->call = NULL;
  c->use = NULL;
  c->written = NULL;
  c->draw_tensor = c->draw_view = NULL;
  c->ncalls = c->nuse = c->nwritten = c->ndraw_tensors = c->ndraw_views = 0;
}

/* A tensor that was never computed is of no use to anyone: it ends here. */
static void end_made(pln_Storage *s, uint32_t place) {
  bool shown = s->refs != 0;
  while (shown && s->pins > s->tape_pins) pln_storage_unpin(s);
  pln_storage_uncapture(s);
  if (shown) (void)pln_tensor_free(s->tensors, place);
}

static void undo(pln_Capture *c) {
  pln_Engine *e = c->engine;
  (void)pln_capture_pause(e);
  e->draw = c->draw;
  end_gradients(c, true);
  restore_versions(c);
  for (size_t i = c->nuse; i-- > 0;) {
    if (c->use[i].made)
      end_made(c->use[i].s, c->place);
    else
      pln_storage_uncapture(c->use[i].s);
  }
  drop_contents(c);
  c->engine = NULL;
  pln_capture_free(c);
}

void pln_capture_abort(pln_Capture *c) {
  char text[PLN_MAX_ERROR];
  snprintf(text, sizeof text, "%s", pln_error());
  undo(c);
  (void)pln_fail(PLN_ECAPTURE, "%s", text);
}

/* The last records of a step: the draw numbers of the next one. */
static pln_Status advance_draws(pln_Capture *c) {
  for (size_t i = 0; i < c->ndraw_tensors; i++) {
    pln_Args a;
    pln_args_init(&pln_ops[PLN_OP_add], &a);
    a.place = c->place;
    a.in[0] = a.out[0] = c->draw_tensor[i];
    a.numbers = 2;
    a.num[1] = (double)c->draws;
    PLN_TRY(pln_op_run(c->engine, &pln_ops[PLN_OP_add], &a));
  }
  return PLN_OK;
}

static pln_Status list_written(pln_Capture *c) {
  c->written = pln_malloc((c->nuse + 1) * sizeof *c->written);
  if (!c->written) return no_memory();
  for (size_t i = 0; i < c->nuse; i++) {
    pln_Storage *s = c->use[i].s;
    if (c->use[i].written && s->refs) c->written[c->nwritten++] = (pln_Written){s, s->version_place, s->version_op};
  }
  return PLN_OK;
}

static pln_Status make_graph(pln_Capture *c) {
  pln_Engine *e = c->engine;
  return e->backend->graph_new ? e->backend->graph_new(e, c->call, c->ncalls, &c->graph) : PLN_OK;
}

static void drop_graph(pln_Capture *c) {
  if (c->graph) c->engine->backend->graph_free(c->engine, c->graph);
  c->graph = NULL;
}

pln_Status pln_capture_end(pln_Capture *c) {
  pln_Engine *e = c->engine;
  pln_Status status;
  if (c->broken) {
    status = pln_fail(PLN_ECAPTURE, "the function went on after an error: %s", c->error);
    goto failed;
  }
  c->draws = e->draw - c->draw;
  PLN_TRY_GOTO(advance_draws(c), failed);
  PLN_TRY_GOTO(list_written(c), failed);
  PLN_TRY_GOTO(make_graph(c), failed);
  (void)pln_capture_pause(e);
  e->draw = c->draw;
  end_gradients(c, false);
  restore_versions(c);
  for (size_t i = 0; i < c->nuse; i++) c->bytes += c->use[i].s->bytes;
  c->next = e->captures;
  c->link = &e->captures;
  if (c->next) c->next->link = &c->next;
  e->captures = c;
  return PLN_OK;
failed:
  pln_capture_abort(c);
  return status;
}

void pln_capture_release(pln_Capture *c, uint32_t place) {
  if (!c->engine) return;
  drop_graph(c);
  for (size_t i = 0; i < c->nuse; i++) pln_storage_uncapture(c->use[i].s);
  drop_contents(c);
  *c->link = c->next;
  if (c->next) c->next->link = c->link;
  c->engine = NULL;
  c->ended = place;
}

void pln_capture_free(pln_Capture *c) { pln_mfree(c); }

/* --- replay ------------------------------------------------------------------------------------- */

/* eng:rng may have changed the seed; what the records hold of it follows. */
static pln_Status follow_seed(pln_Capture *c) {
  pln_Engine *e = c->engine;
  for (size_t i = 0; i < c->ncalls; i++) {
    pln_Call *call = c->call[i];
    if (pln_random_reads_draw(call)) call->i[1] = (int64_t)e->options.seed;
  }
  drop_graph(c);
  c->seed = e->options.seed;
  return make_graph(c);
}

static pln_Status write_draws(pln_Capture *c) {
  pln_Engine *e = c->engine;
  for (size_t i = 0; i < c->ndraw_tensors; i++) {
    int64_t number[PLN_CAPTURE_DRAWS];
    for (size_t k = 0; k < PLN_CAPTURE_DRAWS; k++) number[k] = (int64_t)(e->draw + i * PLN_CAPTURE_DRAWS + k);
    PLN_TRY(e->backend->upload(e, c->draw_tensor[i]->data, number, sizeof number));
  }
  c->drawn = true;
  c->next_draw = e->draw;
  return PLN_OK;
}

static pln_Status launch_all(pln_Capture *c, uint64_t n, uint64_t *done_p) {
  pln_Engine *e = c->engine;
  while (*done_p < n) {
    for (size_t i = 0; i < c->ncalls; i++) {
      c->call[i]->number = ++e->calls;
      PLN_TRY(e->backend->launch(e, c->call[i]));
    }
    if (++*done_p < n && PLN_UNLIKELY(pln_interrupted)) return PLN_EINTERRUPT;
  }
  return PLN_OK;
}

pln_Status pln_capture_replay(pln_Capture *c, uint64_t n) {
  pln_Engine *e = c->engine;
  uint64_t done = 0;
  if (PLN_UNLIKELY(e->capture != NULL)) return pln_capture_refused(e, "a replay");
  PLN_TRY(pln_engine_raise(e));
  if (PLN_UNLIKELY(c->draws)) {
    if (PLN_UNLIKELY(c->seed != e->options.seed)) PLN_TRY(follow_seed(c));
    if (PLN_UNLIKELY(!c->drawn || c->next_draw != e->draw)) PLN_TRY(write_draws(c));
  }
  pln_Status status = c->graph ? e->backend->graph_run(e, c->graph, n, &done) : launch_all(c, n, &done);
  for (size_t i = 0; i < c->nwritten; i++) {
    const pln_Written *w = &c->written[i];
    w->s->version++;
    w->s->version_op = w->op;
    w->s->version_place = w->place;
  }
  e->draw += done * c->draws;
  c->next_draw = e->draw;
  c->replays += done;
  if (PLN_UNLIKELY(status != PLN_OK)) {
    c->drawn = false; /* the step that was broken off may have advanced them or not */
    if (status != PLN_EINTERRUPT) return status;
    pln_interrupted = 0;
    return pln_fail(PLN_EINTERRUPT, "replay: interrupted after %llu of %llu steps", (unsigned long long)done, (unsigned long long)n);
  }
  return pln_engine_raise(e);
}
