/* SPDX-License-Identifier: MIT
 * Running operations in the three modes, waiting for them, and the runtime's stream functions.
 * Lazy mode is the adversary: an operation runs only when the host waits for something that needs
 * it, so code that forgot to wait always reads old data. With a seed, other streams advance at
 * random moments as well. */
#include "stream.h"

#include <pthread.h>
#include <unistd.h>

#include <algorithm>

#include "control.h"
#include "memory.h"

namespace plemu {

Runtime &runtime() {
  static Runtime *r = new Runtime;
  return *r;
}

Block &Stream::block() {
  if (!block_) {
    Quiet quiet;
    block_.reset(new Block);
  }
  return *block_;
}

/* In lazy and sync mode operations run on whatever host thread waits; to ThreadSanitizer they are
 * the stream's own thread. */
void *Stream::tsan_fiber() {
  if (tsan() && !tsan_) {
    tsan_ = __tsan_create_fiber(0);
    __tsan_set_fiber_name(tsan_, "CUDA stream");
  }
  return tsan_;
}

Stream::~Stream() {
  block_.reset();
  if (tsan_) __tsan_destroy_fiber(tsan_);
}

Stream *find_stream(cudaStream_t handle) {
  if (handle == nullptr || handle == cudaStreamLegacy) return &runtime().legacy;
  auto it = runtime().streams.find((Stream *)handle);
  return it == runtime().streams.end() || (*it)->destroyed ? nullptr : *it;
}

static std::vector<Stream *> all_streams() {
  Runtime &r = runtime();
  std::vector<Stream *> all(r.streams.begin(), r.streams.end());
  all.push_back(&r.legacy);
  return all;
}

/* ---- running ---- */

static void execute(Operation &op) {
  const bool own_thread = settings().mode == kAsync;
  guard_enter();
  {
    Loud loud(own_thread ? nullptr : op.stream->tsan_fiber());
    for (const OperationPtr &w : op.waits) hb_acquire(&w->order);
    hb_acquire(&op.order);
    if (op.body) op.body(*op.stream);
    hb_release(&op.order);
  }
  guard_leave();
  op.body = nullptr;
  op.waits.clear();
}

static void finish(const OperationPtr &op) {
  Stream &s = *op->stream;
  op->done = true;
  s.queue.pop_front();
  runtime().changed.notify_all();
  if (s.destroyed && s.queue.empty() && !s.has_worker) {
    runtime().streams.erase(&s);
    delete &s;
  }
}

static void run_front(Stream &s);

static void complete(const OperationPtr &op) {
  while (!op->done) run_front(*op->stream);
}

static void run_front(Stream &s) {
  const OperationPtr op = s.queue.front();
  const std::vector<OperationPtr> waits = op->waits;
  for (const OperationPtr &w : waits) complete(w);
  execute(*op);
  finish(op);
}

static void *work(void *argument) {
  Quiet quiet;
  Stream &s = *static_cast<Stream *>(argument);
  Runtime &r = runtime();
  Lock lock(r.lock);
  Random random(settings().seed * 31ull + r.submitted);
  for (;;) {
    r.changed.wait(lock, [&] {
      return s.queue.empty() ? s.destroyed : settings().mode == kAsync;
    });
    if (s.queue.empty()) break;
    const OperationPtr op = s.queue.front();
    for (const OperationPtr &w : op->waits) r.changed.wait(lock, [&] { return w->done; });
    const unsigned jitter = settings().jitter_us;
    lock.unlock();
    if (jitter) usleep(random.below(jitter));
    execute(*op);
    lock.lock();
    finish(op);
  }
  r.streams.erase(&s);
  delete &s;
  return nullptr;
}

static void start_worker(Stream &s) {
  s.has_worker = true;
  pthread_t thread;
  int failed;
  {
    Loud loud(nullptr);  /* else ThreadSanitizer would not order the thread after this */
    failed = pthread_create(&thread, nullptr, work, &s);
  }
  if (failed) plemu_die("no thread for a stream");
  pthread_detach(thread);
}

cudaError_t submit_locked(Stream &s, const char *what, Body body, std::vector<OperationPtr> waits,
                          OperationPtr *out) {
  Runtime &r = runtime();
  if (s.capture) return add_node_locked(s, what, std::move(body));
  const bool legacy = &s == &r.legacy;
  if (legacy) {
    const cudaError_t implicit = implicit_in_capture_locked();
    if (implicit != cudaSuccess) return implicit;
    for (Stream *t : r.streams)
      if (t->blocking() && t->last) waits.push_back(t->last);
  } else if (s.blocking() && r.legacy.last) {
    waits.push_back(r.legacy.last);
  }
  auto op = std::make_shared<Operation>();
  op->what = what;
  op->body = std::move(body);
  op->waits = std::move(waits);
  op->stream = &s;
  hb_release(&op->order);
  s.queue.push_back(op);
  s.last = op;
  r.submitted++;
  if (out) *out = op;
  if (settings().mode == kSync) complete(op);
  if (settings().mode == kAsync) {
    if (!s.has_worker) start_worker(s);
    r.changed.notify_all();
  }
  return cudaSuccess;
}

cudaError_t submit(cudaStream_t stream, const char *what, Body body) {
  Lock lock(runtime().lock);
  Stream *s = find_stream(stream);
  if (!s) return cudaErrorInvalidResourceHandle;
  return submit_locked(*s, what, std::move(body), {}, nullptr);
}

/* ---- waiting ---- */

/* Lets other streams run ahead of what is needed, now and then. */
static void run_some() {
  Runtime &r = runtime();
  if (!settings().seed) return;
  Random random(settings().seed * 7919ull + r.submitted);
  while (random.next() & 1) {
    std::vector<Stream *> busy = all_streams();
    busy.erase(std::remove_if(busy.begin(), busy.end(),
                              [](Stream *s) { return s->queue.empty(); }),
               busy.end());
    if (busy.empty()) return;
    run_front(*busy[random.below((uint32_t)busy.size())]);
  }
}

void wait_for(const OperationPtr &op) {
  if (!op) return;
  {
    Runtime &r = runtime();
    Lock lock(r.lock);
    if (settings().mode == kAsync) {
      r.changed.wait(lock, [&] { return op->done; });
    } else if (!op->done) {
      run_some();
      complete(op);
    }
  }
  hb_acquire(&op->order);
}

/* The last operations of the streams that s waits for when the host waits for s. */
static std::vector<OperationPtr> last_operations(const Stream *s) {
  Runtime &r = runtime();
  std::vector<OperationPtr> last;
  for (Stream *t : all_streams())
    if (!s || t == s || (s == &r.legacy && t->blocking())) last.push_back(t->last);
  if (settings().seed > 1) {
    Random random(settings().seed * 104729ull + r.submitted);
    for (size_t i = last.size(); i > 1; i--)
      std::swap(last[i - 1], last[random.below((uint32_t)i)]);
  }
  return last;
}

static void wait_for_each(const Stream *s) {
  std::vector<OperationPtr> last;
  {
    Lock lock(runtime().lock);
    last = last_operations(s);
  }
  for (const OperationPtr &op : last) wait_for(op);
}

void wait_for_stream(cudaStream_t stream) {
  Stream *s;
  {
    Lock lock(runtime().lock);
    s = find_stream(stream);
  }
  if (s) wait_for_each(s);
}

void wait_for_all() { wait_for_each(nullptr); }

bool poll(const OperationPtr &op) {
  if (!op) return true;
  {
    Lock lock(runtime().lock);
    if (!op->done && settings().mode != kAsync) run_front(*op->stream);
    if (!op->done) return false;
  }
  hb_acquire(&op->order);
  return true;
}

static cudaError_t create(cudaStream_t *stream, unsigned flags, int priority) {
  if (flags & ~(unsigned)cudaStreamNonBlocking) return cudaErrorInvalidValue;
  Stream *s = new Stream;
  s->flags = flags;
  s->priority = std::max(-5, std::min(priority, 0));
  s->tsan_fiber();  /* made now, so that nothing later happens before it */
  Lock lock(runtime().lock);
  runtime().streams.insert(s);
  *stream = (cudaStream_t)s;
  return cudaSuccess;
}

/* Finds the stream for a call that may not be made while it is captured. */
static cudaError_t uncaptured(cudaStream_t handle, Stream **s) {
  Lock lock(runtime().lock);
  *s = find_stream(handle);
  if (!*s) return cudaErrorInvalidResourceHandle;
  if ((*s)->capture) return break_capture_locked(**s, cudaErrorStreamCaptureUnsupported);
  return *s == &runtime().legacy ? implicit_in_capture_locked() : cudaSuccess;
}

static cudaError_t after_wait() {
  trim_pools();
  return (cudaError_t)device_error.load();
}

}  // namespace plemu

using namespace plemu;

extern "C" {

cudaError_t cudaStreamCreate(cudaStream_t *stream) {
  PLEMU_CALL(cudaStreamCreate);
  return result(create(stream, 0, 0));
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned flags) {
  PLEMU_CALL(cudaStreamCreateWithFlags);
  return result(create(stream, flags, 0));
}

cudaError_t cudaStreamCreateWithPriority(cudaStream_t *stream, unsigned flags, int priority) {
  PLEMU_CALL(cudaStreamCreateWithPriority);
  return result(create(stream, flags, priority));
}

/* Returns at once: what is queued still runs, in lazy mode when somebody waits for the device. */
cudaError_t cudaStreamDestroy(cudaStream_t handle) {
  PLEMU_CALL(cudaStreamDestroy);
  Lock lock(runtime().lock);
  Stream *s = find_stream(handle);
  if (!s || s == &runtime().legacy) return result(cudaErrorInvalidResourceHandle);
  abandon_capture_locked(*s);
  s->destroyed = true;
  if (s->has_worker) {
    runtime().changed.notify_all();
  } else if (s->queue.empty()) {
    runtime().streams.erase(s);
    delete s;
  }
  return cudaSuccess;
}

cudaError_t cudaStreamSynchronize(cudaStream_t handle) {
  PLEMU_CALL(cudaStreamSynchronize);
  Stream *s;
  const cudaError_t bad = uncaptured(handle, &s);
  if (bad != cudaSuccess) return result(bad);
  wait_for_stream(handle);
  return result(after_wait());
}

cudaError_t cudaDeviceSynchronize(void) {
  PLEMU_CALL(cudaDeviceSynchronize);
  const cudaError_t unsafe = unsafe_in_capture();
  if (unsafe != cudaSuccess) return result(unsafe);
  wait_for_all();
  return result(after_wait());
}

cudaError_t cudaStreamQuery(cudaStream_t handle) {
  PLEMU_CALL(cudaStreamQuery);
  Stream *s;
  const cudaError_t bad = uncaptured(handle, &s);
  if (bad != cudaSuccess) return result(bad);
  OperationPtr last;
  {
    Lock lock(runtime().lock);
    last = s->last;
  }
  /* "Not ready" is recorded as the last error too, as on a device. */
  return result(poll(last) ? after_wait() : cudaErrorNotReady);
}

cudaError_t cudaStreamGetFlags(cudaStream_t handle, unsigned *flags) {
  PLEMU_CALL(cudaStreamGetFlags);
  Lock lock(runtime().lock);
  Stream *s = find_stream(handle);
  if (!s) return result(cudaErrorInvalidResourceHandle);
  *flags = s->flags;
  return cudaSuccess;
}

cudaError_t cudaStreamGetPriority(cudaStream_t handle, int *priority) {
  PLEMU_CALL(cudaStreamGetPriority);
  Lock lock(runtime().lock);
  Stream *s = find_stream(handle);
  if (!s) return result(cudaErrorInvalidResourceHandle);
  *priority = s->priority;
  return cudaSuccess;
}

cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function, void *user) {
  PLEMU_CALL(cudaLaunchHostFunc);
  return result(submit(stream, "cudaLaunchHostFunc", [=](Stream &) {
    plemu_t.host_function = 1;  /* in which runtime functions are not permitted */
    function(user);
    plemu_t.host_function = 0;
  }));
}

size_t plemu_pending(void) {
  Quiet quiet;
  Lock lock(runtime().lock);
  size_t n = 0;
  for (Stream *s : all_streams()) n += s->queue.size();
  return n;
}

}  // extern "C"
