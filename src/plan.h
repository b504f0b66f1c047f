/* SPDX-License-Identifier: MIT
** plan.h -- what prepare found, remembered: the second and later calls of an op on operands laid out alike take their call record from
** here and change addresses only. Where a call cannot be done again that way (temporaries), its plan has a number only, by which others know
** calls that are the same (autograd/pass.h).
**
** A layout number stands for dtype, shape and strides; equal numbers mean equal layouts, so a call is the same as before iff the numbers,
** the options and the sharing of memory among its tensors are. prepare must therefore depend on nothing else; ops that do (random
** numbers, lists of tensors, composites) have no plans. A plan is kept at the second sight of a call, so that what happens once costs nothing.
*/
#ifndef PLN_PLAN_H
#define PLN_PLAN_H

#include <string.h>

#include "op.h"

#define PLN_PLAN_NONE 0xff

/* Dtype, shape and strides of a new tensor. */
typedef struct pln_Layout {
  uint32_t number;      /* 0: unused */
  uint8_t dtype, ndim, contiguous;
  size_t bytes;         /* of a row-major tensor */
  int64_t numel;
  int64_t shape[PLN_MAX_DIMS], stride[PLN_MAX_DIMS];
} pln_Layout;

#define PLN_PLAN_WORDS 112
#define PLN_PLAN_SHORT 3 /* words of a short key; longer keys have more */

typedef struct pln_Plan {
  uint64_t word[PLN_PLAN_SHORT];    /* of the key, the first; */
  uint64_t *rest;                   /* and the others */
  uint32_t number;                  /* equal numbers: the same op on layouts, numbers, options and sharing that are the same */
  uint8_t nwords;
  uint8_t bare;                     /* only the number is known: prepare runs each time */
  uint8_t view;                     /* the result shows operand 0, `offset` bytes on; nothing is launched */
  uint8_t nargs;
  uint16_t source[PLN_MAX_ARGS];    /* where in pln_Args the tensor stands whose address call argument k has; 0: it has none */
  uint8_t inplace[PLN_MAX_OUT];     /* result j is operand i, or none */
  ptrdiff_t offset;
  size_t scratch;                   /* bytes of device memory that the call needs besides, 0 none */
  pln_Layout out[PLN_MAX_OUT];
  pln_Call *call;                   /* as far as its last argument */
} pln_Plan;

/* A call's key on its way from the look-up to pln_plan_keep; words == 0: this call has no plan. */
typedef struct pln_PlanKey {
  uint32_t words;
  uint64_t hash;
  uint64_t word[PLN_PLAN_WORDS];
} pln_PlanKey;

typedef struct pln_PlanSlot {
  uint64_t missed; /* hash of the last call that was not found here */
  pln_Plan *plan;
} pln_PlanSlot;

#define PLN_LAYOUTS 1024 /* powers of two */
#define PLN_PLANS 1024

typedef struct pln_Plans {
  uint32_t number; /* of the last new layout */
  uint32_t plans;  /* and plan */
  pln_PlanSlot slot[PLN_PLANS];
  pln_Layout layout[PLN_LAYOUTS];
} pln_Plans;

/* The first of the two places that a plan may have; the other is the one beside it, so that two calls that meet here do not evict each other. */
static inline pln_PlanSlot *pln_plan_slot(pln_Plans *all, uint64_t hash) { return &all->slot[hash >> 20 & (PLN_PLANS - 1)]; }
static inline pln_PlanSlot *pln_plan_beside(pln_Plans *all, const pln_PlanSlot *slot) { return &all->slot[(slot - all->slot) ^ 1]; }

/* Two tensors of one storage that are the same view; layouts are known. */
static inline bool pln_plan_same(const pln_Tensor *a, const pln_Tensor *b) { return a->data == b->data && a->layout == b->layout; }

/* The options as one number: 0 for what is absent or has its default, else small integers; false if it takes more. */
static inline bool pln_plan_options(const pln_OpDef *op, const pln_Args *a, uint64_t *code_p) {
  uint64_t code = 0;
  int shift = 0;
  for (int k = op->nin; k < op->nslots; k++, shift += 6) {
    const pln_Slot *slot = &op->slot[k];
    const pln_Opt *o = &a->opt[slot->index];
    if (o->given == slot->has_default && (!o->given || (o->num == slot->def && o->i == (int64_t)slot->def))) continue;
    if (!o->given || slot->kind < PLN_SLOT_INT || slot->kind > PLN_SLOT_DIM || o->i < -9 || o->i > 9 || shift > 24) return false;
    code |= (uint64_t)(o->i + 10) << shift;
  }
  *code_p = code;
  return true;
}

/* The key of a call of a brief op (pln_OpDef.brief) and its hash; false if a layout is unknown, memory is shared in part, or there is more to
** it than three words say: then it has a long key. */
__attribute__((always_inline)) static inline bool pln_plan_short_key_of(const pln_OpDef *op, int nin, int nopt, const pln_Args *a, uint64_t *word,
                                                                       uint64_t *hash_p) {
  const pln_Tensor *x = a->in[0], *y = NULL, *z = NULL, *out = a->out[0];
  uint64_t lx = 0, ly = 0, lo = 0, last = 0, sharing = 0;
  if (PLN_LIKELY(x != NULL)) {
    if (PLN_UNLIKELY(!(lx = x->layout))) return false;
  } else if (a->numbers & 1) {
    memcpy(&last, &a->num[0], sizeof last);
  }
  if (nin > 1) {
    if ((y = a->in[1])) {
      if (PLN_UNLIKELY(!(ly = y->layout))) return false;
      if (PLN_UNLIKELY(x && x->storage == y->storage) && pln_plan_same(x, y)) sharing = 1;
    } else if (a->numbers & 2) {
      if (PLN_UNLIKELY(!x)) return false; /* two numbers do not fit */
      memcpy(&last, &a->num[1], sizeof last);
    }
    if (nin > 2) {
      if (PLN_UNLIKELY(a->numbers)) return false;
      if ((z = a->in[2])) {
        if (PLN_UNLIKELY(!(last = z->layout))) return false;
        if (x && x->storage == z->storage && pln_plan_same(x, z)) sharing |= 8;
        if (y && y->storage == z->storage && pln_plan_same(y, z)) sharing |= 16;
      }
    }
  }
  if (out) {
    if (PLN_UNLIKELY(!(lo = out->layout))) return false;
    if (x && out->storage == x->storage) {
      if (!pln_plan_same(x, out)) return false;
      sharing |= 2;
    }
    if (y && out->storage == y->storage) {
      if (!pln_plan_same(y, out)) return false;
      sharing |= 4;
    }
    if (z && out->storage == z->storage) {
      if (!pln_plan_same(z, out)) return false;
      sharing |= 32;
    }
  }
  if (nopt) {
    uint64_t code;
    if (PLN_UNLIKELY(a->numbers) || !pln_plan_options(op, a, &code)) return false;
    last |= code << 32;
  }
  word[0] = lx | ly << 32;
  word[1] = op->id | sharing << 16 | (uint64_t)a->numbers << 24 | lo << 32;
  word[2] = last;
  uint64_t h = (word[0] ^ last) * UINT64_C(0x9e3779b97f4a7c15) ^ word[1] * UINT64_C(0xc2b2ae3d27d4eb4f);
  *hash_p = h ^ h >> 31;
  return true;
}

static inline bool pln_plan_short_key(const pln_OpDef *op, const pln_Args *a, uint64_t *word, uint64_t *hash_p) {
  return pln_plan_short_key_of(op, op->nin, op->nopt, a, word, hash_p);
}

/* The plan of a call of a brief op, the short way to the same as pln_plan_find; nin and nopt are the op's, constants where they are known. */
__attribute__((always_inline)) static inline const pln_Plan *pln_plan_find_brief(pln_Plans *all, const pln_OpDef *op, int nin, int nopt,
                                                                                 const pln_Args *a) {
  uint64_t word[PLN_PLAN_SHORT], hash;
  if (PLN_UNLIKELY(!pln_plan_short_key_of(op, nin, nopt, a, word, &hash))) return NULL;
  const pln_PlanSlot *slot = pln_plan_slot(all, hash);
  for (int way = 0; way < 2; way++, slot = pln_plan_beside(all, slot)) {
    const pln_Plan *plan = slot->plan;
    if (PLN_LIKELY(plan != NULL) && PLN_LIKELY(plan->word[0] == word[0]) && PLN_LIKELY(plan->word[1] == word[1]) &&
        PLN_LIKELY(plan->word[2] == word[2]) && PLN_LIKELY(plan->nwords == PLN_PLAN_SHORT))
      return plan;
  }
  return NULL;
}

/* The plan of a call, NULL if there is none. */
const pln_Plan *pln_plan_find(struct pln_Engine *e, const pln_OpDef *op, const pln_Args *a, pln_PlanKey *key);
/* Keeps what prepare found, if the call can have a plan and was seen before; not `whole`: prepare did work of its own that the record does
** not show. PLN_ENOMEM. */
pln_Status pln_plan_keep(pln_Prep *p, pln_PlanKey *key, bool whole);
void pln_plans_free(struct pln_Engine *e);

#endif
