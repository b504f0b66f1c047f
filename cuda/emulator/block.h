/* SPDX-License-Identifier: MIT
 * One block of CUDA threads in execution. A stream owns one Block and runs all its kernels on it,
 * block by block: for ThreadSanitizer the fibers then carry the history of that stream only.
 * Invariant: vectors are reserved for 1024 threads when the Block is made; nothing is allocated
 * on a fiber. */
#ifndef PLEMU_BLOCK_H
#define PLEMU_BLOCK_H

#include <memory>
#include <vector>

#include "fiber.h"
#include "settings.h"

namespace plemu {

enum { kMaxThreads = 1024, kMaxWarps = kMaxThreads / 32, kStaticShared = 48 << 10 };

/* A kernel launch: what is snapshotted when the host calls it, to be run later. */
struct Launch {
  struct Kernel *kernel;
  plemu_Run run;
  std::unique_ptr<unsigned char[]> storage;
  void *arguments;  /* in storage, aligned */
  dim3 grid, block;
  size_t shared;
};

/* The lanes of one mask of one warp, on their way to meet. Values are kept for two meetings: a
 * lane reads those of the last one while others already bring their next. */
struct Meeting {
  unsigned mask = 0, arrived = 0, round = 0;
  const char *what = nullptr, *file = nullptr;
  int line = 0;
  unsigned present[2] = {0, 0};
  uint64_t value[2][32];
  void *pointer[32] = {};
  Fiber *waiting[32] = {};
  char order[2] = {0, 0};  /* addresses for ThreadSanitizer */
};

struct Warp {
  unsigned exited = 0;
  std::vector<std::unique_ptr<Meeting>> meetings;
};

struct CopyQueue;  /* copy_async.cpp */
void delete_copy_queue(CopyQueue *q);

class Block {
 public:
  Block();
  ~Block();
  /* Runs block (x, y, z) of the launch in the calling host thread. */
  void run(const Launch &launch, uint3 index, unsigned seed, uint64_t serial);

  void barrier(const char *what, const char *file, int line);
  int barrier_vote(int op, int predicate, const char *file, int line);
  const uint64_t *exchange(unsigned mask, uint64_t value, bool ordered, unsigned *present,
                           const char *what, const char *file, int line);
  void collect(unsigned mask, void *mine, plemu_Collective fn, const char *what, const char *file,
               int line);
  void yield();
  void *shared_object(const void *site, size_t bytes, size_t align);
  const char *kernel_name() const;
  uint64_t serial() const { return serial_; }  /* unique to the block in execution */
  CopyQueue *&copy_queue(unsigned thread) { return copy_queues_[thread]; }

 private:
  struct Site {
    const void *key;
    unsigned char *p;
  };

  static void entry();
  __attribute__((noinline)) void run_threads();
  Fiber *new_fiber();
  Fiber *start_next();
  Fiber *pick();
  void switch_to(Fiber *to);
  void suspend();
  void resume_later(Fiber *f) { ready_.push_back(f); }
  void about_to_wait(const char *what, const char *file, int line);
  void mark_exited(unsigned from, unsigned to);
  void after_exits();
  void check_barrier_place(const char *what, const char *file, int line);
  void wait_at_barrier();
  void release_barrier();
  Meeting &join(unsigned mask, const char *what, const char *file, int line);
  bool arrive(Warp &w, Meeting &m, const char *what, const char *file, int line);
  unsigned expected(unsigned warp, unsigned mask) const;
  void release(Meeting &m);
  unsigned thread_at(unsigned position) const {
    return order_.empty() ? position : order_[position];
  }
  [[noreturn]] void deadlock();

  /* kernel and block */
  const Launch *launch_ = nullptr;
  uint64_t serial_ = 0;
  unsigned n_ = 0;          /* threads */
  unsigned next_ = 0;       /* next place in the start order */
  unsigned exited_ = 0;
  std::vector<unsigned> order_;
  bool shuffled_ = false;
  Random random_{1};

  /* scheduling */
  Fiber home_;              /* the host thread that runs the block */
  Fiber *current_ = nullptr;
  std::vector<Fiber *> fibers_, idle_, ready_, at_barrier_;
  size_t ready_head_ = 0;
  std::vector<Fiber *> by_thread_;  /* under ThreadSanitizer each CUDA thread keeps its fiber */

  /* barrier */
  unsigned barrier_round_ = 0;
  const char *barrier_file_ = nullptr;
  int barrier_line_ = 0;
  bool voting_ = false;
  int votes_ = 0;
  Warp warps_[kMaxWarps];

  /* shared memory: dynamic first, then the objects in order of first use */
  unsigned char *slab_;
  size_t slab_used_ = 0, static_used_ = 0;
  std::vector<Site> sites_;

  std::vector<CopyQueue *> copy_queues_;

  char start_ = 0, end_ = 0, barrier_order_[2] = {0, 0};  /* addresses for ThreadSanitizer */
};

}  // namespace plemu

#endif
