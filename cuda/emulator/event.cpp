/* SPDX-License-Identifier: MIT
 * Events: a point in a stream, or in a capture. Waiting for an event that was never recorded
 * waits for nothing, as on a device. */
#include "event.h"

#include <algorithm>

#include "capture.h"
#include "memory.h"

namespace plemu {

Event *find_event(cudaEvent_t handle) {
  auto it = runtime().events.find((Event *)handle);
  return it == runtime().events.end() ? nullptr : *it;
}

static cudaError_t create(cudaEvent_t *event, unsigned flags) {
  if (flags & ~(unsigned)(cudaEventBlockingSync | cudaEventDisableTiming | cudaEventInterprocess))
    return cudaErrorInvalidValue;
  Event *e = new Event;
  e->flags = flags;
  Lock lock(runtime().lock);
  runtime().events.insert(e);
  *event = (cudaEvent_t)e;
  return cudaSuccess;
}

static cudaError_t record(cudaEvent_t handle, cudaStream_t stream) {
  Lock lock(runtime().lock);
  Event *e = find_event(handle);
  Stream *s = find_stream(stream);
  if (!e || !s) return cudaErrorInvalidResourceHandle;
  if (s->capture) {
    if (s->capture->invalid) return cudaErrorStreamCaptureInvalidated;
    e->capture = s->capture;
    e->nodes = s->tail;
    return cudaSuccess;
  }
  auto time = std::make_shared<long long>(0);
  OperationPtr op;
  const cudaError_t bad = submit_locked(
      *s, "cudaEventRecord", [time](Stream &) { *time = plemu_clock(); }, {}, &op);
  if (bad != cudaSuccess) return bad;
  e->capture.reset();
  e->last = op;
  e->time = time;
  return cudaSuccess;
}

/* The capture that the event was recorded in, while it is open. */
static std::shared_ptr<Capture> open_capture(const Event &e) {
  std::shared_ptr<Capture> c = e.capture.lock();
  return c && runtime().captures.count(c.get()) ? c : nullptr;
}

/* An event of an open capture joins the stream to it. */
static cudaError_t wait_captured(Stream &s, const Event &e, const std::shared_ptr<Capture> &c) {
  if (s.capture && s.capture != c) {
    c->invalid = true;
    return break_capture_locked(s, cudaErrorStreamCaptureMerge);
  }
  if (c->invalid) return cudaErrorStreamCaptureInvalidated;
  if (!s.capture) {
    if (&s == &runtime().legacy) {
      c->invalid = true;
      return cudaErrorStreamCaptureImplicit;
    }
    s.capture = c;
    c->joined.insert(&s);
    s.tail.clear();
  }
  for (int n : e.nodes)
    if (std::find(s.tail.begin(), s.tail.end(), n) == s.tail.end()) s.tail.push_back(n);
  return cudaSuccess;
}

static cudaError_t stream_wait(cudaStream_t stream, cudaEvent_t handle) {
  Lock lock(runtime().lock);
  Event *e = find_event(handle);
  Stream *s = find_stream(stream);
  if (!e || !s) return cudaErrorInvalidResourceHandle;
  if (auto c = open_capture(*e)) return wait_captured(*s, *e, c);
  if (s->capture) return break_capture_locked(*s, cudaErrorStreamCaptureIsolation);
  if (!e->last) return cudaSuccess;
  return submit_locked(*s, "cudaStreamWaitEvent", nullptr, {e->last}, nullptr);
}

/* The operation to wait for, or the error of an event that belongs to an open capture. */
static cudaError_t recorded(cudaEvent_t handle, OperationPtr *op) {
  Lock lock(runtime().lock);
  Event *e = find_event(handle);
  if (!e) return cudaErrorInvalidResourceHandle;
  if (auto c = open_capture(*e)) {
    c->invalid = true;
    return cudaErrorCapturedEvent;
  }
  *op = e->last;
  return cudaSuccess;
}

static cudaError_t elapsed(float *ms, cudaEvent_t from, cudaEvent_t to) {
  Lock lock(runtime().lock);
  Event *a = find_event(from), *b = find_event(to);
  if (!a || !b) return cudaErrorInvalidResourceHandle;
  if (!a->last || !b->last || ((a->flags | b->flags) & cudaEventDisableTiming))
    return cudaErrorInvalidResourceHandle;
  if (!a->last->done || !b->last->done) return cudaErrorNotReady;
  *ms = (float)((double)(*b->time - *a->time) * 1e-6);
  return cudaSuccess;
}

}  // namespace plemu

using namespace plemu;

extern "C" {

cudaError_t cudaEventCreate(cudaEvent_t *event) {
  PLEMU_CALL(cudaEventCreate);
  return result(create(event, 0));
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned flags) {
  PLEMU_CALL(cudaEventCreateWithFlags);
  return result(create(event, flags));
}

cudaError_t cudaEventDestroy(cudaEvent_t event) {
  PLEMU_CALL(cudaEventDestroy);
  Lock lock(runtime().lock);
  Event *e = find_event(event);
  if (!e) return result(cudaErrorInvalidResourceHandle);
  runtime().events.erase(e);
  delete e;
  return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  PLEMU_CALL(cudaEventRecord);
  return result(record(event, stream));
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
  PLEMU_CALL(cudaStreamWaitEvent);
  return result(stream_wait(stream, event));
}

cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  PLEMU_CALL(cudaEventSynchronize);
  OperationPtr op;
  const cudaError_t bad = recorded(event, &op);
  if (bad != cudaSuccess) return result(bad);
  wait_for(op);
  trim_pools();
  return result((cudaError_t)device_error.load());
}

cudaError_t cudaEventQuery(cudaEvent_t event) {
  PLEMU_CALL(cudaEventQuery);
  OperationPtr op;
  cudaError_t bad = recorded(event, &op);
  if (bad == cudaSuccess) bad = unsafe_in_capture();
  if (bad != cudaSuccess) return result(bad);
  return result(poll(op) ? (cudaError_t)device_error.load() : cudaErrorNotReady);
}

cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t from, cudaEvent_t to) {
  PLEMU_CALL(cudaEventElapsedTime);
  return result(elapsed(ms, from, to));
}

}  // extern "C"
