/* SPDX-License-Identifier: MIT
** pass.h -- a backward remembered: the second and later backwards through a graph of the same kind run the calls of the first one, without
** asking the derivatives again.
**
** Two graphs are of the same kind iff their nodes, from the root down, have the same plans (plan.h), operands from the same nodes and leaves,
** and the same pattern of tensors saved twice. What the derivatives run then depends on nothing else, so the calls are the same but for
** addresses; those come from what the nodes saved, the leaves' gradients, and memory of the pass's own for what is made on the way.
** All checks of a backward (C1: versions; graphs that are gone) are made before anything runs.
**
** Only where calls run at once and nothing looks on: not on late engines or devices, with poison, hooks, captures, recorded places,
** create_graph, retain, a given gradient, or nodes written in Lua. Those take the way of backward.c, which is the same in effect.
*/
#ifndef PLN_PASS_H
#define PLN_PASS_H

#include "tape.h"

typedef struct pln_Pass pln_Pass;

typedef struct pln_PassSlot {
  uint64_t seen;       /* hash of the last graph that was not found here */
  uint64_t refused;    /* and of the last that cannot be remembered */
  uint32_t strange;    /* graphs in a row with the pass's hash that it is not for */
  struct pln_Pass *pass;
} pln_PassSlot;

/* Whether the backward of result `output` of `root` (seed 1) ran from memory, in *status_p how. If not, it may begin to be written
** down: then pln_pass_end must follow the backward. */
bool pln_pass_run(struct pln_Engine *e, pln_Node *root, int output, uint32_t place, pln_Status *status_p);
/* The backward that pln_pass_run began to write down is over; !whole: it failed. */
void pln_pass_end(struct pln_Engine *e, bool whole);

/* What is written down on the way: a node about to run, a leaf about to get its gradient, a call about to be launched. */
void pln_pass_node(pln_Pass *p, const pln_Node *n);
void pln_pass_leaf(pln_Pass *p, pln_Node *leaf);
void pln_pass_call(pln_Pass *p, const pln_Args *a, pln_Tensor *const *temps, int ntemps, const pln_Call *c);

void pln_passes_free(pln_Tape *tape);

#endif
