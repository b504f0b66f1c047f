/* SPDX-License-Identifier: MIT
** tape.h -- recorded ops.
*/
#ifndef PLN_TAPE_H
#define PLN_TAPE_H

#include "../op.h"

struct pln_Engine;
struct pln_Node;

void pln_node_release(struct pln_Node *n);
/* Drops every graph of the engine. */
void pln_tape_close(struct pln_Engine *e);
/* Before the arena ends an epoch: graphs older than `graph_resets` go, what lives on is found again by serial. */
void pln_tape_reset(struct pln_Engine *e);
/* Pins of a storage that the tape holds, out of all. */
uint32_t pln_storage_tape_pins(const pln_Storage *s);
/* After an op with operands that require grad ran. */
pln_Status pln_tape_record(struct pln_Engine *e, const pln_OpDef *op, pln_Args *a);
/* Whether the op would be recorded: recording is on and some operand requires grad. */
bool pln_tape_wants(struct pln_Engine *e, const pln_OpDef *op, const pln_Args *a);

#endif
