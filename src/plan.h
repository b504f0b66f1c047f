/* SPDX-License-Identifier: MIT
** plan.h -- what prepare found, remembered: the second and later calls of an op on operands laid out alike take their call record from
** here and change addresses only.
**
** A layout number stands for dtype, shape and strides; equal numbers mean equal layouts, so a call is the same as before iff the numbers,
** the options and the sharing of memory among its tensors are. prepare must therefore depend on nothing else; ops that do (random
** numbers, lists of tensors, composites) have no plans. A plan is kept at the second sight of a call, so that what happens once costs nothing.
*/
#ifndef PLN_PLAN_H
#define PLN_PLAN_H

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

typedef struct pln_Plan {
  uint64_t hash;
  uint64_t *key;
  uint8_t nkey;
  uint8_t view;                     /* the result shows operand 0, `offset` bytes on; nothing is launched */
  uint8_t nargs;
  uint16_t source[PLN_MAX_ARGS];    /* where in pln_Args the tensor stands whose address call argument k has; 0: it has none */
  uint8_t inplace[PLN_MAX_OUT];     /* result j is operand i, or none */
  ptrdiff_t offset;
  pln_Layout out[PLN_MAX_OUT];
  pln_Call *call;                   /* as far as its last argument */
} pln_Plan;

#define PLN_PLAN_WORDS 112

/* A call's key on its way from the look-up to pln_plan_keep; words == 0: this call has no plan. */
typedef struct pln_PlanKey {
  uint32_t words;
  uint64_t hash;
  uint64_t word[PLN_PLAN_WORDS];
} pln_PlanKey;

/* The plan of a call, NULL if there is none. */
const pln_Plan *pln_plan_find(struct pln_Engine *e, const pln_OpDef *op, const pln_Args *a, pln_PlanKey *key);
/* Keeps what prepare found, if the call can have a plan and was seen before. PLN_ENOMEM. */
pln_Status pln_plan_keep(pln_Prep *p, pln_PlanKey *key);
void pln_plans_free(struct pln_Engine *e);

#endif
