/* SPDX-License-Identifier: MIT
** random.h -- which random numbers a random op used, for the tape and for captures.
**
** A random op's prepare leaves behind the row's own arguments: opt[nopt].i, the draw number, or, once a tensor holds it, in[nin]; and
** opt[nopt].num, the bits of the seed (which eng:rng may change before the derivative runs). Without a draw (dropout outside training)
** opt[nopt].given is 0 and in[nin] NULL. dropout_backward takes both as its arguments draw and seed.
*/
#ifndef PLN_OPS_RANDOM_H
#define PLN_OPS_RANDOM_H

#include "../op.h"

static inline int64_t pln_random_seed(double bits) {
  int64_t seed;
  memcpy(&seed, &bits, sizeof seed);
  return seed;
}

/* After prepare, for a capture: the draw number is to be read from `t` (i64, one element), which changes from replay to replay. */
static inline void pln_random_from_tensor(pln_Prep *p, pln_Tensor *t) {
  pln_Opt *used = &p->a->opt[p->op->nopt];
  if (!used->given) return;
  used->given = 0;
  p->a->in[p->op->nin] = t;
  pln_prep_arg(p, p->call.nin++, t);
}

/* Whether the record reads its draw number from a tensor. */
static inline bool pln_random_reads_draw(const pln_Call *c) {
  uint32_t flags = pln_ops[c->op].flags;
  int tensors = flags & PLN_OP_CREATE ? 0 : 1;
  return (flags & PLN_OP_RANDOM || c->op == PLN_OP_dropout_backward) && c->nin > tensors;
}

#endif
