/* SPDX-License-Identifier: MIT
** graph.c -- captures on the host: a step is a row of pln_Small, run one after the other without a look at anything else. A late engine has no
** graphs: its records go onto the stream one by one.
**
** Elementwise ops in a row over the same long row of elements become a chain: a block of elements goes through all of them while it is in the
** cache. Every op still writes its result, and an element never depends on another one, so nothing can be told from the bits.
*/
#include "graph.h"

#include "../alloc.h"
#include "../interrupt.h"
#include "parallel.h"
#include "small.h"

typedef struct Graph {
  uint64_t n, pieces;
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

/* --- chains ------------------------------------------------------------------------------------- */

#define CHAIN_LEAST 4096 /* elements; shorter rows stay in the cache from one op to the next anyway */
#define CHAIN_BLOCK 1024 /* elements; a chain's operands fit the first-level cache together */

static void chain_part(void *context, int64_t begin, int64_t end) {
  const pln_Small *first = context, *last = first + first->count;
  for (int64_t n; begin < end; begin += n) {
    n = end - begin < CHAIN_BLOCK ? end - begin : CHAIN_BLOCK;
    for (const pln_Small *s = first; s < last; s++) {
      char *ptr[4];
      for (int k = 0; k < s->each.operands; k++)
        ptr[k] = s->each.ptr[k] + s->each.step[k] * begin * pln_dtype_size((pln_DType)s->call->arg[k].dtype);
      s->each.vec(ptr, s->each.step, n, s->call, begin);
    }
  }
}

static pln_Status run_chain(pln_Small *s) {
  for (pln_Small *m = s; m < s + s->count; m++) pln_small_number(m);
  return pln_parallel_for(s->call, s->each.n, PLN_GRAIN, chain_part, s);
}

/* Whether operand i of a and j of b can take turns block by block: apart, or the very same elements. */
static bool in_step(const pln_Small *a, int i, const pln_Small *b, int j) {
  const pln_Arg *x = &a->call->arg[i], *y = &b->call->arg[j];
  if (!x->data || !y->data) return true;
  int64_t xs = pln_dtype_size((pln_DType)x->dtype), ys = pln_dtype_size((pln_DType)y->dtype);
  if (x->data == y->data && xs == ys && a->each.step[i] == 1 && b->each.step[j] == 1) return true;
  return x->data + (a->each.step[i] ? a->each.n : 1) * xs <= y->data || y->data + (b->each.step[j] ? b->each.n : 1) * ys <= x->data;
}

static bool can_join(const pln_Small *first, const pln_Small *s) {
  if (!s->row || s->each.n != first->each.n) return false;
  for (const pln_Small *m = first; m < s; m++) {
    for (int j = 0; j < s->each.operands; j++)
      if (!in_step(m, 0, s, j)) return false;
    for (int i = 1; i < m->each.operands; i++)
      if (!in_step(m, i, s, 0)) return false;
  }
  return true;
}

#define CHAIN_MOST 32 /* ops; looking for the next one takes time that grows with them */

static void make_chains(Graph *g) {
  for (uint64_t i = 0; i < g->n; i += g->small[i].count) {
    pln_Small *s = &g->small[i];
    g->pieces++;
    if (!s->row || s->each.n < CHAIN_LEAST) continue;
    while (i + s->count < g->n && s->count < CHAIN_MOST && can_join(s, s + s->count)) s->count++;
    if (s->count > 1) s->run = run_chain;
  }
}

/* --- graphs ------------------------------------------------------------------------------------- */

pln_Status pln_cpu_graph_new(pln_Engine *e, pln_Call *const *calls, size_t ncalls, void **graph_p) {
  if (e->late) return PLN_OK;
  Graph *g = pln_malloc_aligned(sizeof *g + ncalls * sizeof *g->small);
  if (!g) return pln_fail(PLN_ENOMEM, "out of memory for a capture");
  pln_SmallMaker make = maker();
  g->n = ncalls;
  g->pieces = 0;
  for (size_t i = 0; i < ncalls; i++) {
    pln_Small *s = &g->small[i];
    s->run = pln_small_call;
    s->call = calls[i];
    s->calls = &e->calls;
    s->index = i + 1;
    s->count = 1;
    s->row = 0;
    make(s);
  }
  make_chains(g);
  *graph_p = g;
  return PLN_OK;
}

pln_Status pln_cpu_graph_run(pln_Engine *e, void *graph, uint64_t n, uint64_t *done_p) {
  Graph *g = graph;
  pln_Small *const end = g->small + g->n;
  uint64_t done = 0;
  pln_Status status = PLN_OK;
  while (done < n) {
    for (pln_Small *s = g->small; s < end; s += s->count)
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

size_t pln_cpu_graph_pieces(const pln_Engine *e, const void *graph) {
  (void)e;
  return ((const Graph *)graph)->pieces;
}
