/* SPDX-License-Identifier: MIT
 * Capture rules and graph replay. What CUDA forbids during a capture returns its error and
 * invalidates the capture. A replay runs the nodes one after another in an order that their
 * dependencies allow; the seeds choose which. */
#include "capture.h"

#include <algorithm>

#include "memory.h"

namespace plemu {

Graph::~Graph() {
  for (void *p : memory) release(p, kDevice);
}

static bool started_here(const Capture &c) { return pthread_equal(c.thread, pthread_self()); }

bool is_capturing(cudaStream_t stream) {
  Lock lock(runtime().lock);
  Stream *s = find_stream(stream);
  return s && s->capture;
}

bool own_by_capture(cudaStream_t stream, void *p) {
  Lock lock(runtime().lock);
  Stream *s = find_stream(stream);
  if (!s || !s->capture) return false;
  s->capture->graph->memory.push_back(p);
  set_graph_memory(p);
  return true;
}

/* Whether the calling thread's mode and that of capture c forbid a potentially unsafe call. */
static bool forbids(const Capture &c) {
  const bool own = started_here(c) && c.mode != cudaStreamCaptureModeRelaxed;
  if (plemu_t.capture_mode == cudaStreamCaptureModeRelaxed) return false;
  if (plemu_t.capture_mode == cudaStreamCaptureModeThreadLocal) return own;
  return own || c.mode == cudaStreamCaptureModeGlobal;
}

cudaError_t unsafe_in_capture_locked() {
  cudaError_t e = cudaSuccess;
  for (Capture *c : runtime().captures)
    if (forbids(*c)) {
      c->invalid = true;
      e = cudaErrorStreamCaptureUnsupported;
    }
  return e;
}

cudaError_t unsafe_in_capture() {
  Lock lock(runtime().lock);
  return unsafe_in_capture_locked();
}

cudaError_t implicit_in_capture_locked() {
  cudaError_t e = cudaSuccess;
  for (Capture *c : runtime().captures)
    for (Stream *s : c->joined)
      if (s->blocking()) {
        c->invalid = true;
        e = cudaErrorStreamCaptureImplicit;
      }
  return e;
}

cudaError_t break_capture_locked(Stream &s, cudaError_t error) {
  if (s.capture) s.capture->invalid = true;
  return error;
}

static void leave(Capture &c) {
  for (Stream *j : c.joined) {
    j->capture.reset();
    j->tail.clear();
  }
  c.joined.clear();
  runtime().captures.erase(&c);
}

void abandon_capture_locked(Stream &s) {
  const std::shared_ptr<Capture> c = s.capture;
  if (!c) return;
  c->invalid = true;
  if (c->origin == &s) {
    leave(*c);
  } else {
    s.capture.reset();
    c->joined.erase(&s);
  }
}

cudaError_t add_node_locked(Stream &s, const char *what, Body body) {
  if (s.capture->invalid) return cudaErrorStreamCaptureInvalidated;
  std::vector<Node> &nodes = s.capture->graph->nodes;
  nodes.push_back({what, std::move(body), s.tail});
  s.tail = {(int)nodes.size() - 1};
  return cudaSuccess;
}

static cudaError_t begin(cudaStream_t handle, cudaStreamCaptureMode mode) {
  Runtime &r = runtime();
  Lock lock(r.lock);
  Stream *s = find_stream(handle);
  if (!s) return cudaErrorInvalidResourceHandle;
  if (s == &r.legacy) return cudaErrorStreamCaptureUnsupported;
  if (s->capture) return cudaErrorIllegalState;
  auto c = std::make_shared<Capture>();
  c->mode = mode;
  c->origin = s;
  c->thread = pthread_self();
  c->joined.insert(s);
  r.captures.insert(c.get());
  s->capture = c;
  s->tail.clear();
  return cudaSuccess;
}

/* The nodes that those in from depend on, themselves included. */
static std::set<int> ancestors(const Graph &g, std::vector<int> from) {
  std::set<int> seen;
  while (!from.empty()) {
    const int n = from.back();
    from.pop_back();
    if (!seen.insert(n).second) continue;
    from.insert(from.end(), g.nodes[n].dependencies.begin(), g.nodes[n].dependencies.end());
  }
  return seen;
}

static cudaError_t end(cudaStream_t handle, cudaGraph_t *graph) {
  Runtime &r = runtime();
  std::shared_ptr<Capture> c;  /* outlives the lock: a graph's end releases memory */
  Lock lock(r.lock);
  *graph = nullptr;
  Stream *s = find_stream(handle);
  if (!s) return cudaErrorInvalidResourceHandle;
  if (!s->capture) return cudaErrorIllegalState;
  c = s->capture;
  if (c->origin != s) {
    c->invalid = true;
    return cudaErrorStreamCaptureUnmatched;
  }
  if (c->mode != cudaStreamCaptureModeRelaxed && !started_here(*c)) {
    c->invalid = true;
    return cudaErrorStreamCaptureWrongThread;
  }
  const std::set<int> reached = ancestors(*c->graph, s->tail);
  bool unjoined = false;
  for (Stream *j : c->joined)
    for (int n : j->tail) unjoined |= !reached.count(n);
  leave(*c);
  if (c->invalid) return cudaErrorStreamCaptureInvalidated;
  if (unjoined) return cudaErrorStreamCaptureUnjoined;
  *graph = (cudaGraph_t) new std::shared_ptr<Graph>(c->graph);
  return cudaSuccess;
}

static void replay(const Graph &g, Stream &s) {
  const size_t n = g.nodes.size();
  const unsigned seed = settings().seed;
  static std::atomic<unsigned> replays{0};
  Random random(seed * 15485863ull + replays++);
  std::vector<int> missing(n), ready;
  std::vector<std::vector<int>> next(n);
  {
    Quiet quiet;
    ready.reserve(n);
    for (size_t i = 0; i < n; i++) {
      missing[i] = (int)g.nodes[i].dependencies.size();
      for (int d : g.nodes[i].dependencies) next[d].push_back((int)i);
      if (!missing[i]) ready.push_back((int)i);
    }
  }
  while (!ready.empty()) {
    const size_t pick = seed == 0   ? 0
                        : seed == 1 ? ready.size() - 1
                                    : random.below((uint32_t)ready.size());
    const int node = ready[pick];
    ready.erase(ready.begin() + (long)pick);
    g.nodes[node].body(s);
    for (int k : next[node])
      if (--missing[k] == 0) ready.push_back(k);
  }
}

}  // namespace plemu

using namespace plemu;

extern "C" {

cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode *mode) {
  PLEMU_CALL(cudaThreadExchangeStreamCaptureMode);
  const int old = plemu_t.capture_mode;
  plemu_t.capture_mode = *mode;
  *mode = (cudaStreamCaptureMode)old;
  return cudaSuccess;
}

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode) {
  PLEMU_CALL(cudaStreamBeginCapture);
  return result(begin(stream, mode));
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *graph) {
  PLEMU_CALL(cudaStreamEndCapture);
  return result(end(stream, graph));
}

cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus *status) {
  PLEMU_CALL(cudaStreamIsCapturing);
  Lock lock(runtime().lock);
  Stream *s = find_stream(stream);
  if (!s) return result(cudaErrorInvalidResourceHandle);
  if (s == &runtime().legacy) {
    const cudaError_t implicit = implicit_in_capture_locked();
    if (implicit != cudaSuccess) return result(implicit);
  }
  *status = !s->capture           ? cudaStreamCaptureStatusNone
            : s->capture->invalid ? cudaStreamCaptureStatusInvalidated
                                  : cudaStreamCaptureStatusActive;
  return cudaSuccess;
}

/* Counts the nodes; there are no node handles to give out. */
cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t *nodes, size_t *count) {
  PLEMU_CALL(cudaGraphGetNodes);
  if (!graph) return result(cudaErrorInvalidValue);
  if (nodes) return result(cudaErrorNotSupported);
  *count = (*(std::shared_ptr<Graph> *)graph)->nodes.size();
  return cudaSuccess;
}

static cudaError_t instantiate(cudaGraphExec_t *exec, cudaGraph_t graph) {
  if (!graph) return cudaErrorInvalidValue;
  *exec = (cudaGraphExec_t) new std::shared_ptr<Graph>(*(std::shared_ptr<Graph> *)graph);
  return cudaSuccess;
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t *exec, cudaGraph_t graph, unsigned long long) {
  PLEMU_CALL(cudaGraphInstantiate);
  return result(instantiate(exec, graph));
}

cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t *exec, cudaGraph_t graph,
                                          unsigned long long) {
  PLEMU_CALL(cudaGraphInstantiateWithFlags);
  return result(instantiate(exec, graph));
}

cudaError_t cudaGraphUpload(cudaGraphExec_t, cudaStream_t) {
  PLEMU_CALL(cudaGraphUpload);
  return cudaSuccess;
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream) {
  PLEMU_CALL(cudaGraphLaunch);
  if (!exec) return result(cudaErrorInvalidValue);
  const std::shared_ptr<Graph> g = *(std::shared_ptr<Graph> *)exec;
  {
    Lock lock(runtime().lock);  /* a graph within a graph is not emulated */
    Stream *s = find_stream(stream);
    if (s && s->capture)
      return result(break_capture_locked(*s, cudaErrorStreamCaptureUnsupported));
  }
  return result(submit(stream, "graph", [g](Stream &s) { replay(*g, s); }));
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec) {
  PLEMU_CALL(cudaGraphExecDestroy);
  delete (std::shared_ptr<Graph> *)exec;
  return cudaSuccess;
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  PLEMU_CALL(cudaGraphDestroy);
  delete (std::shared_ptr<Graph> *)graph;
  return cudaSuccess;
}

}  // extern "C"
