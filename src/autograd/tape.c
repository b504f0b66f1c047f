/* SPDX-License-Identifier: MIT
** tape.c -- recorded ops.
*/
#include "tape.h"

#include "../engine.h"

void pln_node_release(struct pln_Node *n) { (void)n; }
void pln_tape_close(pln_Engine *e) { (void)e; }
void pln_tape_reset(pln_Engine *e) { (void)e; }
uint32_t pln_storage_tape_pins(const pln_Storage *s) { (void)s; return 0; }
pln_Status pln_tape_record(pln_Engine *e, const pln_OpDef *op, pln_Args *a) { (void)e; (void)op; (void)a; return PLN_OK; }
bool pln_tape_wants(pln_Engine *e, const pln_OpDef *op, const pln_Args *a) { (void)e; (void)op; (void)a; return false; }
