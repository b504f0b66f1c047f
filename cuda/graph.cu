/* SPDX-License-Identifier: MIT
** graph.cu -- captured steps as CUDA graphs: the records' launches go once into a stream that captures, a replay is one launch of the graph.
**
** The engine's own stream never captures: a graph is recorded on a stream that lives as long as that takes, in thread-local mode, so a
** recording that fails leaves nothing behind. Nothing is allocated between its begin and its end: operands and workspaces belong to the
** capture (src/capture.c), and the kernels were loaded before. What varies is read from tensors; what a launch gets by value is that of
** the recording in every replay.
*/
#include "device.h"

typedef struct Graph {
  cudaGraphExec_t exec;
  size_t calls, nodes; /* of a step */
} Graph;

/* The last node of a step with launches that may record faults: what is recorded is none of the next replay's, though the numbers are. */
static __global__ void seal_kernel(pld_Record *record) {
  if (record->number) record->number |= PLD_SEALED;
}

/* --- recording ------------------------------------------------------------------------------------ */

/* Runs the kernel functions, which load their kernels or launch them. */
static pln_Status run_calls(pld_Device *d, pln_Call *const *calls, size_t ncalls) {
  for (size_t i = 0; i < ncalls; i++) {
    d->number++;
    PLN_TRY(calls[i]->kernel(calls[i]));
  }
  return PLN_OK;
}

static pln_Status load_kernels(pld_Device *d, pln_Call *const *calls, size_t ncalls) {
  d->loading = true;
  d->reports = false;
  pln_Status status = run_calls(d, calls, ncalls);
  d->loading = false;
  return status == PLN_OK && d->reports ? pld_load_kernel(seal_kernel, "seal_kernel") : status;
}

static pln_Status launch_all(pld_Device *d, pln_Call *const *calls, size_t ncalls) {
  PLN_TRY(run_calls(d, calls, ncalls));
  if (!d->reports) return PLN_OK;
  PLN_LAUNCH(seal_kernel, 1, 1, 0, d->stream, d->record);
  cudaError_t error = cudaGetLastError();
  return error == cudaSuccess ? PLN_OK : pld_launch_failed("end of a step", "seal_kernel", dim3(1), dim3(1), 0, error);
}

/* Records on stream `own`. A capture that has begun is ended, whatever happens in it. */
static pln_Status record_on(pld_Device *d, cudaStream_t own, pln_Call *const *calls, size_t ncalls, cudaGraph_t *graph_p) {
  const cudaStream_t stream = d->stream;
  PLN_TRY(pld_check(cudaStreamBeginCapture(own, cudaStreamCaptureModeThreadLocal), "cudaStreamBeginCapture"));
  d->stream = own;
  pln_Status status = launch_all(d, calls, ncalls);
  d->stream = stream;
  cudaError_t error = cudaStreamEndCapture(own, graph_p);
  if (status == PLN_OK) return pld_check(error, "cudaStreamEndCapture");
  (void)cudaGetLastError(); /* the first error is the one to tell */
  return status;
}

static pln_Status record(pld_Device *d, pln_Call *const *calls, size_t ncalls, cudaGraph_t *graph_p) {
  cudaStream_t own;
  PLN_TRY(pld_check(cudaStreamCreateWithFlags(&own, cudaStreamNonBlocking), "cudaStreamCreateWithFlags"));
  pln_Status status = record_on(d, own, calls, ncalls, graph_p);
  cudaError_t error = cudaStreamDestroy(own); /* with a capture that could not be ended */
  return status == PLN_OK ? pld_check(error, "cudaStreamDestroy") : status;
}

/* Uploaded at once, so that the first replay does no more than the next. */
static pln_Status instantiate(pld_Device *d, Graph *g, cudaGraph_t graph) {
  PLN_TRY(pld_check(cudaGraphGetNodes(graph, NULL, &g->nodes), "cudaGraphGetNodes"));
  PLN_TRY(pld_check(cudaGraphInstantiate(&g->exec, graph, 0), "cudaGraphInstantiate"));
  return pld_check(cudaGraphUpload(g->exec, d->stream), "cudaGraphUpload");
}

static pln_Status make(pld_Device *d, Graph *g, pln_Call *const *calls, size_t ncalls) {
  cudaGraph_t graph = NULL;
  PLN_TRY(pld_check(cudaSetDevice(d->ordinal), "cudaSetDevice"));
  PLN_TRY(load_kernels(d, calls, ncalls));
  pln_Status status = record(d, calls, ncalls, &graph);
  if (status == PLN_OK) status = instantiate(d, g, graph);
  if (graph && cudaGraphDestroy(graph) != cudaSuccess) (void)cudaGetLastError();
  return status;
}

/* --- the backend's functions ---------------------------------------------------------------------- */

pln_Status pld_graph_new(pln_Engine *e, pln_Call *const *calls, size_t ncalls, void **graph_p) {
  pld_Device *d = (pld_Device *)e->device;
  if (!d->graphs || ncalls == 0) return PLN_OK;
  Graph *g = (Graph *)pln_calloc(1, sizeof *g);
  if (!g) return pln_fail(PLN_ENOMEM, "out of memory for a capture");
  g->calls = ncalls;
  pln_Status status = make(d, g, calls, ncalls);
  if (status == PLN_OK) {
    *graph_p = g;
    return PLN_OK;
  }
  pld_graph_free(e, g);
  return pln_fail(status, "%s (with PERILUNE_CUDA_GRAPHS=0 captures do without CUDA graphs)", pln_error());
}

pln_Status pld_graph_run(pln_Engine *e, void *graph, uint64_t n, uint64_t *done_p) {
  pld_Device *d = (pld_Device *)e->device;
  const Graph *g = (const Graph *)graph;
  PLN_TRY(pld_check(cudaSetDevice(d->ordinal), "cudaSetDevice"));
  while (*done_p < n) {
    PLN_TRY(pld_queue(d, g->calls));
    PLN_TRY(pld_check(cudaGraphLaunch(g->exec, d->stream), "replay: cudaGraphLaunch"));
    e->calls += g->calls;
    if (++*done_p < n && PLN_UNLIKELY(pld_interrupted())) return PLN_EINTERRUPT;
  }
  return PLN_OK;
}

/* Replays that are under way end first: the driver waits for them, not the host. */
void pld_graph_free(pln_Engine *e, void *graph) {
  Graph *g = (Graph *)graph;
  (void)cudaSetDevice(((pld_Device *)e->device)->ordinal);
  if (g->exec && cudaGraphExecDestroy(g->exec) != cudaSuccess) (void)cudaGetLastError();
  pln_mfree(g);
}

size_t pld_graph_pieces(const pln_Engine *e, const void *graph) {
  (void)e;
  return ((const Graph *)graph)->nodes;
}
