/* SPDX-License-Identifier: MIT
** graph.h -- the graph functions of the host's backend (engine.h).
*/
#ifndef PLN_CPU_GRAPH_H
#define PLN_CPU_GRAPH_H

#include "../engine.h"

pln_Status pln_cpu_graph_new(pln_Engine *e, pln_Call *const *calls, size_t ncalls, void **graph_p);
pln_Status pln_cpu_graph_run(pln_Engine *e, void *graph, uint64_t n, uint64_t *done_p);
void pln_cpu_graph_free(pln_Engine *e, void *graph);
size_t pln_cpu_graph_pieces(const pln_Engine *e, const void *graph);

#endif
