/* SPDX-License-Identifier: MIT
** graph.c -- captures on the host: a step is a row of pln_Small, run one after the other without a look at anything else. A late engine has no
** graphs: its records go onto the stream one by one.
*/
#include "graph.h"

#include "../alloc.h"
#include "../interrupt.h"
#include "small.h"

typedef struct Graph {
  uint64_t n;
  pln_Small small[];
} Graph;

#if defined(__x86_64__)
void plk_cpu_small_v2(pln_Small *s), plk_cpu_small_v3(pln_Small *s), plk_cpu_small_v4(pln_Small *s);

static pln_SmallMaker maker(void) {
  const char *isa = pln_gemm_isa();
  return isa[1] == '4' ? plk_cpu_small_v4 : isa[1] == '3' ? plk_cpu_small_v3 : plk_cpu_small_v2;
}
#else
void plk_cpu_small_base(pln_Small *s);

static pln_SmallMaker maker(void) { return plk_cpu_small_base; }
#endif

pln_Status pln_cpu_graph_new(pln_Engine *e, pln_Call *const *calls, size_t ncalls, void **graph_p) {
  if (e->late) return PLN_OK;
  Graph *g = pln_malloc_aligned(sizeof *g + ncalls * sizeof *g->small);
  if (!g) return pln_fail(PLN_ENOMEM, "out of memory for a capture");
  pln_SmallMaker make = maker();
  g->n = ncalls;
  for (size_t i = 0; i < ncalls; i++) {
    pln_Small *s = &g->small[i];
    s->run = pln_small_call;
    s->call = calls[i];
    s->calls = &e->calls;
    s->index = i + 1;
    make(s);
  }
  *graph_p = g;
  return PLN_OK;
}

pln_Status pln_cpu_graph_run(pln_Engine *e, void *graph, uint64_t n, uint64_t *done_p) {
  Graph *g = graph;
  pln_Small *const end = g->small + g->n;
  uint64_t done = 0;
  pln_Status status = PLN_OK;
  while (done < n) {
    for (pln_Small *s = g->small; s < end; s++)
      if (PLN_UNLIKELY((status = s->run(s)) != PLN_OK)) goto out;
    e->calls += g->n;
    if (++done < n && PLN_UNLIKELY(pln_interrupted)) {
      status = PLN_EINTERRUPT;
      break;
    }
  }
out:
  *done_p = done;
  return status;
}

void pln_cpu_graph_free(pln_Engine *e, void *graph) {
  (void)e;
  pln_mfree_aligned(graph);
}
