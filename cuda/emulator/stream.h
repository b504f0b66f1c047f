/* SPDX-License-Identifier: MIT
 * Streams: queues of operations, and the three ways to run them.
 *   async  each stream has a worker thread; operations run as soon as their waits allow
 *   lazy   nothing runs until the host waits for it, and then only what that needs
 *   sync   everything runs inside the call that submits it
 * Invariant: Runtime::lock guards every stream, event and capture. In lazy and sync mode the
 * operations run under it, in the thread that waits. */
#ifndef PLEMU_STREAM_H
#define PLEMU_STREAM_H

#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <set>
#include <vector>

#include "block.h"

namespace plemu {

class Stream;
struct Capture;
struct Event;
struct Operation;
using OperationPtr = std::shared_ptr<Operation>;
using Body = std::function<void(Stream &)>;

struct Operation {
  const char *what;
  Body body;
  std::vector<OperationPtr> waits;  /* of other streams; its own stream is a queue */
  Stream *stream;
  bool done = false;
  char order = 0;  /* address for ThreadSanitizer */
};

class Stream {
 public:
  unsigned flags = 0;
  int priority = 0;
  std::deque<OperationPtr> queue;
  OperationPtr last;
  bool destroyed = false, has_worker = false;
  std::shared_ptr<Capture> capture;
  std::vector<int> tail;  /* capture: the nodes that the next one depends on */

  bool blocking() const { return !(flags & cudaStreamNonBlocking); }
  Block &block();
  void *tsan_fiber();
  ~Stream();

 private:
  std::unique_ptr<Block> block_;
  void *tsan_ = nullptr;
};

struct Runtime {
  std::mutex lock;
  std::condition_variable changed;
  Stream legacy;                /* the default stream */
  std::set<Stream *> streams;   /* the others, destroyed ones until they are empty */
  std::set<Event *> events;
  std::set<Capture *> captures;
  unsigned submitted = 0;
};
Runtime &runtime();
using Lock = std::unique_lock<std::mutex>;

/* Null for a handle that is none. The lock is held. */
Stream *find_stream(cudaStream_t handle);

/* Queues an operation, or makes it a node of the capture that the stream is in. */
cudaError_t submit(cudaStream_t stream, const char *what, Body body);
cudaError_t submit_locked(Stream &s, const char *what, Body body, std::vector<OperationPtr> waits,
                          OperationPtr *out);

void wait_for(const OperationPtr &op);
void wait_for_stream(cudaStream_t stream);
void wait_for_all();
/* Whether op is done; in lazy mode its stream advances by one operation first. */
bool poll(const OperationPtr &op);

/* capture.cpp */
bool is_capturing(cudaStream_t stream);
/* Adds p to the memory that the stream's capture owns; false where there is none. */
bool own_by_capture(cudaStream_t stream, void *p);
/* The error of a call that no capture in sight allows, which invalidates those captures. */
cudaError_t unsafe_in_capture();
cudaError_t unsafe_in_capture_locked();
/* The error of an operation on the legacy stream while a blocking stream is captured. */
cudaError_t implicit_in_capture_locked();
cudaError_t add_node_locked(Stream &s, const char *what, Body body);
/* Invalidates the capture of s, if it is in one, and says so. */
cudaError_t break_capture_locked(Stream &s, cudaError_t error);
/* Takes a stream that is destroyed out of its capture. */
void abandon_capture_locked(Stream &s);

}  // namespace plemu

#endif
