/* SPDX-License-Identifier: MIT
** plan.c -- see plan.h. Per engine: a small table of layouts and one of plans, both replaced on collision.
*/
#include "plan.h"

#include <stddef.h>
#include <string.h>

#include "alloc.h"
#include "engine.h"
#include "fault.h"

#define WAYS 4

static inline uint64_t mix(uint64_t h, uint64_t word) { return (h ^ word ^ h >> 29) * UINT64_C(0x9e3779b97f4a7c15); }

static bool shows(const pln_Layout *l, const pln_Tensor *t) {
  if (l->dtype != t->dtype || l->ndim != t->ndim) return false;
  for (int d = 0; d < t->ndim; d++)
    if (l->shape[d] != t->shape[d] || l->stride[d] != t->stride[d]) return false;
  return true;
}

static void describe(pln_Layout *l, const pln_Tensor *t, uint32_t number) {
  l->number = number;
  l->dtype = t->dtype;
  l->ndim = t->ndim;
  l->contiguous = t->contiguous;
  l->numel = t->numel;
  l->bytes = (size_t)t->numel * (size_t)pln_dtype_size(t->dtype);
  for (int d = 0; d < t->ndim; d++) {
    l->shape[d] = t->shape[d];
    l->stride[d] = t->stride[d];
  }
}

/* Finds or issues the number of a tensor's layout; 0 once all are used up. */
__attribute__((noinline)) static uint32_t find_layout(pln_Plans *all, pln_Tensor *t) {
  uint64_t h = mix(t->dtype, t->ndim);
  for (int d = 0; d < t->ndim; d++) h = mix(mix(h, (uint64_t)t->shape[d]), (uint64_t)t->stride[d]);
  pln_Layout *set = &all->layout[(h >> 40) % (PLN_LAYOUTS / WAYS) * WAYS];
  for (int i = 0; i < WAYS; i++)
    if (set[i].number && shows(&set[i], t)) return t->layout = set[i].number;
  if (all->number == UINT32_MAX) return 0;
  all->number++;
  int at = 0;
  while (at < WAYS - 1 && set[at].number) at++;
  if (set[at].number) at = (int)(all->number % WAYS);
  describe(&set[at], t, all->number);
  return t->layout = all->number;
}

static inline uint64_t bits_of(double number) {
  uint64_t bits;
  memcpy(&bits, &number, sizeof bits);
  return bits;
}

/* Bits of which operands are the same view; false if some share memory otherwise and one of them is written. */
static bool sharing(const pln_OpDef *op, const pln_Args *a, uint64_t *bits_p) {
  uint64_t bits = 0;
  int shift = 0;
  bool inplace = op->flags & PLN_OP_INPLACE;
  for (int i = 1; i < op->nin; i++) {
    const pln_Tensor *t = a->in[i];
    for (int j = 0; j < i; j++, shift++) {
      const pln_Tensor *u = a->in[j];
      if (!t || !u || t->storage != u->storage) continue;
      if (inplace) return false;
      if (pln_plan_same(t, u)) bits |= UINT64_C(1) << shift;
    }
  }
  for (int k = 0; k < op->nout; k++) {
    const pln_Tensor *out = a->out[k];
    if (!out) continue;
    for (int j = 0; j < k; j++)
      if (a->out[j] && a->out[j]->storage == out->storage) return false;
    for (int i = 0; i < op->nin; i++) {
      if (!a->in[i] || a->in[i]->storage != out->storage) continue;
      if (inplace || !pln_plan_same(a->in[i], out)) return false;
      bits |= UINT64_C(1) << (36 + k * PLN_MAX_IN + i);
    }
  }
  *bits_p = bits;
  return true;
}

static bool options_key(const pln_OpDef *op, const pln_Args *a, pln_PlanKey *key) {
  uint32_t n = key->words;
  for (int k = 0; k < op->nopt; k++) {
    const pln_Opt *o = &a->opt[k];
    int sizes = o->given && o->list.ndim > 0 ? o->list.ndim : 0;
    key->word[n++] = (uint64_t)o->given | (uint64_t)(uint32_t)o->list.ndim << 8;
    if (!o->given) continue;
    key->word[n++] = bits_of(o->num);
    key->word[n++] = (uint64_t)o->i;
    for (int i = 0; i < sizes; i++) key->word[n++] = (uint64_t)o->list.size[i];
  }
  key->words = n;
  return true;
}

static inline uint64_t hash_of(const uint64_t *word, uint32_t n) {
  uint64_t h = 0;
  for (uint32_t i = 0; i < n; i++) h = mix(h, word[i]);
  return h;
}

/* Layouts, numbers, options and sharing, in a row. */
static bool make_key(pln_Plans *all, const pln_OpDef *op, const pln_Args *a, pln_PlanKey *key) {
  key->words = PLN_PLAN_SHORT;
  if (op->brief && pln_plan_short_key(op, a, key->word, &key->hash)) return true;
  uint32_t n = 0;
  uint32_t tensors = 0;
  key->word[n++] = (uint64_t)op->id | (uint64_t)a->numbers << 16;
  for (int i = 0; i < op->nin; i++) {
    pln_Tensor *t = a->in[i];
    if (PLN_LIKELY(t != NULL)) {
      if (PLN_UNLIKELY(!t->layout) && !find_layout(all, t)) return false;
      key->word[n++] = t->layout;
      tensors++;
    } else {
      key->word[n++] = a->numbers >> i & 1 ? bits_of(a->num[i]) : 0;
    }
  }
  for (int k = 0; k < op->nout; k++) {
    pln_Tensor *t = a->out[k];
    if (t) {
      if (PLN_UNLIKELY(!t->layout) && !find_layout(all, t)) return false;
      tensors++;
    }
    key->word[n++] = t ? t->layout : 0;
  }
  uint64_t bits = 0;
  if (tensors > 1 && !sharing(op, a, &bits)) return false;
  key->word[n++] = bits;
  key->words = n;
  if (op->nopt) options_key(op, a, key);
  if (op->brief) { /* now that the layouts are known */
    pln_PlanKey brief;
    if (pln_plan_short_key(op, a, brief.word, &brief.hash)) {
      key->words = PLN_PLAN_SHORT;
      memcpy(key->word, brief.word, PLN_PLAN_SHORT * sizeof *key->word);
      key->hash = brief.hash;
      return true;
    }
  }
  while (key->words <= PLN_PLAN_SHORT) key->word[key->words++] = 0; /* never as long as a short one */
  key->hash = hash_of(key->word, key->words);
  return true;
}

static bool is_of(const pln_Plan *plan, const pln_PlanKey *key) {
  if (!plan || plan->nwords != key->words) return false;
  for (uint32_t i = 0; i < PLN_PLAN_SHORT; i++)
    if (plan->word[i] != key->word[i]) return false;
  for (uint32_t i = PLN_PLAN_SHORT; i < key->words; i++)
    if (plan->rest[i - PLN_PLAN_SHORT] != key->word[i]) return false;
  return true;
}

const pln_Plan *pln_plan_find(pln_Engine *e, const pln_OpDef *op, const pln_Args *a, pln_PlanKey *key) {
  key->words = 0;
  if (PLN_UNLIKELY(op->flags & (PLN_OP_RANDOM | PLN_OP_COMPOSITE | PLN_OP_CREATE)) || PLN_UNLIKELY(a->list != NULL) ||
      PLN_UNLIKELY(!e->plans) || PLN_UNLIKELY(pln_fault_any))
    return NULL;
  if (!make_key(e->plans, op, a, key)) {
    key->words = 0;
    return NULL;
  }
  const pln_PlanSlot *slot = pln_plan_slot(e->plans, key->hash);
  if (is_of(slot->plan, key)) return slot->plan;
  slot = pln_plan_beside(e->plans, slot);
  return is_of(slot->plan, key) ? slot->plan : NULL;
}

#define UNKNOWN UINT16_MAX

/* Where the address of a call's argument came from. */
static uint16_t source_of(const pln_Prep *p, const pln_Arg *g) {
  if (!g->data) return 0;
  const pln_Args *a = p->a;
  for (int k = 0; k < p->op->nout; k++)
    if (a->out[k] && a->out[k]->data == g->data) return (uint16_t)offsetof(pln_Args, out[k]);
  for (int i = 0; i < p->op->nin; i++)
    if (a->in[i] && a->in[i]->data == g->data) return (uint16_t)offsetof(pln_Args, in[i]);
  return UNKNOWN;
}

/* Two different views of one storage, or memory that a dead tensor (stale = "allow") had before: an address may belong to either. */
static bool ambiguous(const pln_Prep *p) {
  const pln_Tensor *t[PLN_MAX_IN + PLN_MAX_OUT];
  int n = 0;
  for (int i = 0; i < p->op->nin; i++)
    if (p->a->in[i]) t[n++] = p->a->in[i];
  for (int k = 0; k < p->op->nout; k++)
    if (p->a->out[k]) t[n++] = p->a->out[k];
  for (int i = 0; i < n; i++)
    if (!pln_tensor_alive(t[i])) return true;
  for (int i = 1; i < n; i++)
    for (int j = 0; j < i; j++)
      if (t[i]->storage == t[j]->storage && !(t[i]->data == t[j]->data && t[i]->layout == t[j]->layout)) return true;
  return false;
}

/* What the call wrote down; false if it cannot be done again with other addresses. */
static bool describe_call(const pln_Prep *p, pln_Plan *plan) {
  const pln_Args *a = p->a;
  const pln_OpDef *op = p->op;
  memset(plan->inplace, PLN_PLAN_NONE, sizeof plan->inplace);
  memset(plan->source, 0, sizeof plan->source);
  plan->nargs = (uint8_t)(p->call.nout + p->call.nin);
  plan->view = op->flags & PLN_OP_VIEW ? 1 : 0;
  if (plan->view) {
    const pln_Tensor *x = a->in[0], *y = a->out[0];
    if (op->nout != 1 || a->results || !p->made[0] || !x || y == x || y->storage != x->storage || !y->data) return false;
    plan->offset = y->data - x->data;
    return true;
  }
  bool scratch = p->call.scratch && p->ntemps == 1 && p->temp[0]->data == p->call.scratch;
  if (p->done || p->nback || p->ntemps != scratch) return false;
  plan->scratch = scratch ? p->call.scratch_bytes : 0;
  for (int k = 0; k < op->nout; k++) {
    if (!a->out[k]) return false;
    for (int i = 0; op->flags & PLN_OP_INPLACE && i < op->nin; i++)
      if (a->out[k] == a->in[i]) plan->inplace[k] = (uint8_t)i;
  }
  if (ambiguous(p)) return false;
  for (int k = 0; k < plan->nargs; k++) {
    plan->source[k] = source_of(p, &p->call.arg[k]);
    if (plan->source[k] == UNKNOWN) return false;
  }
  return true;
}

pln_Status pln_plan_keep(pln_Prep *p, pln_PlanKey *key, bool whole) {
  pln_Engine *e = p->e;
  if (e->options.no_plans) return PLN_OK;
  if (!e->plans) {
    e->plans = pln_calloc(1, sizeof *e->plans);
    return e->plans ? PLN_OK : pln_fail(PLN_ENOMEM, "out of memory for the plans of an engine");
  }
  if (!key->words || e->plans->plans == UINT32_MAX) return PLN_OK;
  pln_PlanSlot *slot = pln_plan_slot(e->plans, key->hash), *beside = pln_plan_beside(e->plans, slot);
  if (slot->missed != key->hash && (beside->missed == key->hash || (slot->missed && !beside->missed))) slot = beside;
  if (slot->missed != key->hash) {
    slot->missed = key->hash;
    return PLN_OK;
  }
  pln_Plan found;
  memset(&found, 0, sizeof found);
  for (int k = 0; k < p->op->nout; k++)
    if (p->a->out[k] && !p->a->out[k]->layout && !find_layout(e->plans, p->a->out[k])) return PLN_OK;
  found.bare = !whole || !describe_call(p, &found);
  uint32_t rest = key->words - PLN_PLAN_SHORT;
  size_t bytes = sizeof found + rest * sizeof(uint64_t) + (found.view || found.bare ? 0 : pln_call_bytes(&p->call));
  pln_Plan *plan = pln_malloc(bytes);
  if (!plan) return pln_fail(PLN_ENOMEM, "out of memory for the plan of an op");
  *plan = found;
  plan->number = p->a->plan = ++e->plans->plans;
  plan->nwords = (uint8_t)key->words;
  memcpy(plan->word, key->word, sizeof plan->word);
  plan->rest = (uint64_t *)(plan + 1);
  memcpy(plan->rest, key->word + PLN_PLAN_SHORT, rest * sizeof(uint64_t));
  plan->call = (pln_Call *)(plan->rest + rest);
  if (!plan->view && !plan->bare) memcpy(plan->call, &p->call, pln_call_bytes(&p->call));
  for (int k = 0; k < p->op->nout; k++)
    if (p->a->out[k]) describe(&plan->out[k], p->a->out[k], p->a->out[k]->layout);
  pln_mfree(slot->plan);
  slot->plan = plan;
  return PLN_OK;
}

void pln_plans_free(pln_Engine *e) {
  if (!e->plans) return;
  for (int i = 0; i < PLN_PLANS; i++) pln_mfree(e->plans->slot[i].plan);
  pln_mfree(e->plans);
  e->plans = NULL;
}
