/* SPDX-License-Identifier: MIT
** random.h -- the draw number of a random op, for the tape and for captures.
**
** A random op's prepare leaves the draw number that it used behind the row's own arguments: opt[nopt].i, or, once a tensor holds it,
** in[nin]. Without a draw (dropout outside training) opt[nopt].given is 0 and in[nin] NULL.
*/
#ifndef PLN_OPS_RANDOM_H
#define PLN_OPS_RANDOM_H

#include "../op.h"

/* The two arguments that make the internal op see the same random numbers again: operand `slot` of `to` becomes the draw number. */
static inline void pln_random_repeat(const pln_OpDef *op, const pln_Args *from, pln_Args *to, int slot) {
  if (from->in[op->nin]) {
    to->in[slot] = from->in[op->nin];
  } else {
    to->numbers |= 1u << slot;
    to->num[slot] = (double)from->opt[op->nopt].i;
  }
}

/* After prepare, for a capture: the draw number is to be read from `t` (i64, one element), which changes from replay to replay. */
static inline void pln_random_from_tensor(pln_Prep *p, pln_Tensor *t) {
  pln_Opt *used = &p->a->opt[p->op->nopt];
  if (!used->given) return;
  used->given = 0;
  p->a->in[p->op->nin] = t;
  pln_prep_arg(p, p->call.nin++, t);
}

#endif
