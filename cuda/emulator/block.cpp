/* SPDX-License-Identifier: MIT
 * Runs the threads of a block. A fiber runs CUDA threads one after another as plain calls; when
 * one must wait, the fiber is suspended with it and the rest of the threads go to another fiber.
 * Under ThreadSanitizer every CUDA thread has a fiber of its own, so that each is a thread to it.
 * Invariant: a wait that can never end is reported with all the places where threads wait. */
#include "block.h"

#include <sys/mman.h>

#include <algorithm>
#include <map>
#include <string>

#include "launch.h"

namespace plemu {

enum { kSlab = 512 << 10, kRedZone = 32, kMeetings = 64 };

Block::Block() {
  slab_ = (unsigned char *)mmap(nullptr, kSlab, PROT_READ | PROT_WRITE,
                                MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (slab_ == MAP_FAILED) plemu_die("no memory for shared memory");
  forbid(slab_, kSlab);
  fibers_.reserve(kMaxThreads + 1);
  idle_.reserve(kMaxThreads + 1);
  ready_.reserve(4 * kMaxThreads);
  at_barrier_.reserve(kMaxThreads);
  by_thread_.assign(kMaxThreads, nullptr);
  order_.reserve(kMaxThreads);
  sites_.reserve(256);
  copy_queues_.assign(kMaxThreads, nullptr);
  for (Warp &w : warps_) w.meetings.reserve(kMeetings);
}

Block::~Block() {
  for (Fiber *f : fibers_) fiber_delete(f);
  for (CopyQueue *q : copy_queues_) delete_copy_queue(q);
  permit(slab_, kSlab);
  munmap(slab_, kSlab);
}

const char *Block::kernel_name() const { return launch_->kernel->name.c_str(); }

/* ---- a block from start to end ---- */

void Block::run(const Launch &launch, uint3 index, unsigned seed, uint64_t serial) {
  const dim3 b = launch.block;
  launch_ = &launch;
  serial_ = serial;
  n_ = b.x * b.y * b.z;
  next_ = exited_ = 0;
  for (Warp &w : warps_) {
    w.exited = 0;
    if (w.meetings.size() > kMeetings) w.meetings.clear();  /* of kernels with many masks */
  }

  order_.clear();
  shuffled_ = seed > 1;
  if (seed > 0)
    for (unsigned i = 0; i < n_; i++) order_.push_back(n_ - 1 - i);
  if (shuffled_) {
    random_ = Random(seed * 1000003ull + serial);
    for (unsigned i = n_; i > 1; i--) std::swap(order_[i - 1], order_[random_.below(i)]);
  }

  sites_.clear();
  static_used_ = 0;
  slab_used_ = launch.shared;
  permit(slab_, launch.shared);
  poison_fill(slab_, launch.shared);

  plemu_t.executing = this;
  plemu_t.block = index;
  plemu_t.block_dim = uint3{b.x, b.y, b.z};
  plemu_t.grid_dim = uint3{launch.grid.x, launch.grid.y, launch.grid.z};
  plemu_t.order = order_.empty() ? nullptr : order_.data();
  plemu_t.dynamic = slab_;

  if (tsan()) {
    home_.tsan = __tsan_get_current_fiber();
    __tsan_release(&start_);
  }
  current_ = &home_;
  switch_to(pick());
  if (tsan()) __tsan_acquire(&end_);

  plemu_t.executing = nullptr;
  forbid(slab_, slab_used_);
}

/* The body of every fiber. It outlives blocks and may change host threads between kernels, hence
 * run_threads must not be inlined here: thread-local addresses are found anew in each call. */
void Block::entry() {
  Block &b = *static_cast<Block *>(plemu_t.executing);
  fiber_entered(b.current_);
  for (;;) b.run_threads();
}

void Block::run_threads() {
  Fiber *f = current_;
  plemu_t.limit = tsan() ? f->start + 1 : n_;
  if (tsan()) __tsan_acquire(&start_);
  launch_->run(launch_->arguments, f->start);
  if (tsan()) __tsan_release(&end_);
  mark_exited(f->start, f->waited || tsan() ? f->start + 1 : n_);
  if (exited_ < n_) after_exits();
  if (!tsan()) idle_.push_back(f);
  if (exited_ == n_) {
    switch_to(&home_);
    return;
  }
  Fiber *to = pick();
  if (!to) deadlock();
  switch_to(to);
}

/* ---- scheduling ---- */

Fiber *Block::new_fiber() {
  Quiet quiet;
  fibers_.push_back(fiber_new(&Block::entry, (unsigned)fibers_.size()));
  return fibers_.back();
}

/* A fiber for the thread that is next in the start order, and for those after it. */
Fiber *Block::start_next() {
  Fiber *f;
  if (tsan()) {
    Fiber *&own = by_thread_[thread_at(next_)];
    if (!own) own = new_fiber();
    f = own;
  } else if (!idle_.empty()) {
    f = idle_.back();
    idle_.pop_back();
  } else {
    f = new_fiber();
  }
  f->start = next_;
  f->waited = false;
  next_ = tsan() ? next_ + 1 : n_;  /* about_to_wait() gives back what a thread leaves unstarted */
  return f;
}

/* What runs when the current fiber cannot go on; null when nothing can. Threads that are ready go
 * before unstarted ones, which keeps a warp's data in the cache. */
Fiber *Block::pick() {
  const bool unstarted = next_ < n_, some_ready = ready_head_ < ready_.size();
  if (unstarted && (!some_ready || (shuffled_ && (random_.next() & 1)))) return start_next();
  if (!some_ready) return nullptr;
  if (shuffled_) {
    const size_t other =
        ready_head_ + random_.below((uint32_t)(ready_.size() - ready_head_));
    std::swap(ready_[ready_head_], ready_[other]);
  }
  Fiber *f = ready_[ready_head_++];
  if (ready_head_ == ready_.size()) {
    ready_.clear();
    ready_head_ = 0;
  }
  return f;
}

void Block::switch_to(Fiber *to) {
  Fiber *from = current_;
  if (to == from) return;
  current_ = to;
  fiber_switch(from, to);
}

void Block::suspend() {
  Fiber *self = current_, *to = pick();
  if (!to) deadlock();
  switch_to(to);
  plemu_t.linear = self->linear;
  plemu_t.thread = self->thread;
  plemu_t.limit = 0;  /* once it has waited, a fiber runs its one thread to the end */
}

void Block::yield() {
  about_to_wait("__nanosleep", "", 0);
  resume_later(current_);
  suspend();
}

/* The current thread is about to wait for the first time: those that its fiber ran before it have
 * ended, those after it go to other fibers. */
void Block::about_to_wait(const char *what, const char *file, int line) {
  Fiber *f = current_;
  f->linear = plemu_t.linear;
  f->thread = plemu_t.thread;
  f->what = what;
  f->file = file;
  f->line = line;
  if (f->waited) return;
  f->waited = true;
  if (tsan()) return;
  const unsigned position = plemu_t.position, start = f->start;
  f->start = position;
  next_ = position + 1;
  plemu_t.limit = 0;
  mark_exited(start, position);
  if (start != position) after_exits();
}

void Block::mark_exited(unsigned from, unsigned to) {
  exited_ += to - from;
  for (unsigned i = from; i < to; i++) {
    const unsigned t = thread_at(i);
    warps_[t >> 5].exited |= 1u << (t & 31);
  }
}

/* Threads that have ended count as arrived everywhere. */
void Block::after_exits() {
  if (next_ == n_ && !at_barrier_.empty() && at_barrier_.size() == n_ - exited_)
    release_barrier();
  for (unsigned w = 0; w < (n_ + 31) / 32; w++)
    for (auto &m : warps_[w].meetings)
      if (m->arrived && m->arrived == expected(w, m->mask)) release(*m);
}

/* ---- barriers ---- */

void Block::check_barrier_place(const char *what, const char *file, int line) {
  if (at_barrier_.empty()) {
    barrier_file_ = file;
    barrier_line_ = line;
  } else if (settings().strict &&
             (barrier_line_ != line ||
              (barrier_file_ != file && strcmp(barrier_file_, file) != 0))) {
    plemu_die("divergent barrier in kernel %s: thread %u at %s:%d, others of block (%u,%u,%u) at "
              "%s:%d",
              kernel_name(), plemu_t.linear, file, line, plemu_t.block.x, plemu_t.block.y,
              plemu_t.block.z, barrier_file_, barrier_line_);
  }
  about_to_wait(what, file, line);
}

void Block::wait_at_barrier() {
  Fiber *f = current_;
  char *order = &barrier_order_[barrier_round_ & 1];
  hb_release(order);
  at_barrier_.push_back(f);
  if (next_ == n_ && at_barrier_.size() == n_ - exited_) {
    /* The last to arrive goes on at once, unless orders are random. */
    if (!shuffled_) at_barrier_.pop_back();
    if (voting_) f->vote = votes_;
    release_barrier();
    if (shuffled_) suspend();
  } else {
    suspend();
  }
  hb_acquire(order);
}

void Block::release_barrier() {
  barrier_round_++;
  for (Fiber *f : at_barrier_) {
    if (voting_) f->vote = votes_;
    resume_later(f);
  }
  at_barrier_.clear();
  voting_ = false;
}

void Block::barrier(const char *what, const char *file, int line) {
  check_barrier_place(what, file, line);
  wait_at_barrier();
}

int Block::barrier_vote(int op, int predicate, const char *file, int line) {
  check_barrier_place("__syncthreads vote", file, line);
  if (!voting_) {
    voting_ = true;
    votes_ = op == 1;
  }
  const int p = predicate != 0;
  votes_ = op == 0 ? votes_ + p : op == 1 ? votes_ & p : votes_ | p;
  Fiber *f = current_;
  wait_at_barrier();
  return f->vote;
}

/* ---- warps ---- */

/* The lanes of the mask that exist and have not ended. */
unsigned Block::expected(unsigned warp, unsigned mask) const {
  const unsigned first = warp * 32, lanes = std::min(n_ - first, 32u);
  return mask & ~warps_[warp].exited & (0xffffffffu >> (32 - lanes));
}

Meeting &Block::join(unsigned mask, const char *what, const char *file, int line) {
  const unsigned lane = plemu_t.linear & 31;
  if (!((mask >> lane) & 1u))
    plemu_die("%s at %s:%d in kernel %s: lane %u calls it and is not in its mask 0x%08x", what,
              file, line, kernel_name(), lane, mask);
  about_to_wait(what, file, line);
  Warp &w = warps_[plemu_t.linear >> 5];
  for (auto &m : w.meetings)
    if (m->mask == mask) return *m;
  Quiet quiet;
  w.meetings.emplace_back(new Meeting);
  w.meetings.back()->mask = mask;
  return *w.meetings.back();
}

bool Block::arrive(Warp &w, Meeting &m, const char *what, const char *file, int line) {
  const unsigned lane = plemu_t.linear & 31;
  if (!m.arrived) {
    m.what = what;
    m.file = file;
    m.line = line;
  } else if (settings().strict && (m.line != line || strcmp(m.what, what) != 0)) {
    plemu_die("warp divergence in kernel %s, warp %u, mask 0x%08x: lane %u in %s at %s:%d, others "
              "in %s at %s:%d",
              kernel_name(), plemu_t.linear >> 5, m.mask, lane, what, file, line, m.what, m.file,
              m.line);
  }
  m.arrived |= 1u << lane;
  return m.arrived == expected((unsigned)(&w - warps_), m.mask);
}

void Block::release(Meeting &m) {
  m.present[m.round & 1] = m.arrived;
  for (Fiber *&f : m.waiting)
    if (f) {
      resume_later(f);
      f = nullptr;
    }
  m.arrived = 0;
  m.round++;
}

const uint64_t *Block::exchange(unsigned mask, uint64_t value, bool ordered, unsigned *present,
                                const char *what, const char *file, int line) {
  Warp &w = warps_[plemu_t.linear >> 5];
  Meeting &m = join(mask, what, file, line);
  const unsigned lane = plemu_t.linear & 31, round = m.round & 1;
  m.value[round][lane] = value;
  if (ordered) hb_release(&m.order[round]);
  if (!arrive(w, m, what, file, line)) {
    m.waiting[lane] = current_;
    suspend();
  } else {
    release(m);
    if (shuffled_) {
      resume_later(current_);
      suspend();
    }
  }
  if (ordered) hb_acquire(&m.order[round]);
  *present = m.present[round];
  return m.value[round];
}

void Block::collect(unsigned mask, void *mine, plemu_Collective fn, const char *what,
                    const char *file, int line) {
  Warp &w = warps_[plemu_t.linear >> 5];
  Meeting &m = join(mask, what, file, line);
  const unsigned lane = plemu_t.linear & 31;
  m.pointer[lane] = mine;
  if (!arrive(w, m, what, file, line)) {
    m.waiting[lane] = current_;
    suspend();
    return;
  }
  void *lanes[32];
  for (unsigned i = 0; i < 32; i++) lanes[i] = (m.arrived >> i) & 1u ? m.pointer[i] : nullptr;
  fn(lanes, m.arrived);
  release(m);
}

/* ---- shared memory ---- */

void *Block::shared_object(const void *site, size_t bytes, size_t align) {
  for (const Site &s : sites_)
    if (s.key == site) return s.p;
  Quiet quiet;
  align = std::max<size_t>(align, 16);
  const size_t at = (slab_used_ + kRedZone + align - 1) & ~(align - 1);
  static_used_ += bytes;
  if (static_used_ > kStaticShared)
    plemu_die("kernel %s declares %zu bytes of shared memory; %d is the limit, dynamic shared "
              "memory has more",
              kernel_name(), static_used_, kStaticShared);
  if (static_used_ + launch_->shared > settings().device->shared_optin)
    plemu_die("kernel %s needs %zu bytes of static and dynamic shared memory; %s has %zu",
              kernel_name(), static_used_ + launch_->shared, settings().device->name,
              settings().device->shared_optin);
  slab_used_ = at + bytes;
  permit(slab_ + at, bytes);
  poison_fill(slab_ + at, bytes);
  sites_.push_back({site, slab_ + at});
  return slab_ + at;
}

/* ---- reports ---- */

void Block::deadlock() {
  Quiet quiet;
  std::map<std::string, std::vector<unsigned>> places;
  for (Fiber *f : at_barrier_)
    places[std::string(f->what) + " at " + f->file + ":" + std::to_string(f->line)].push_back(
        f->linear);
  for (Warp &w : warps_)
    for (auto &m : w.meetings)
      for (Fiber *f : m->waiting) {
        if (!f) continue;
        char mask[32];
        snprintf(mask, sizeof mask, " mask 0x%08x at ", m->mask);
        places[std::string(f->what) + mask + f->file + ":" + std::to_string(f->line)].push_back(
            f->linear);
      }
  std::string text;
  for (auto &p : places) {
    text += "\n  " + std::to_string(p.second.size()) + " thread(s) in " + p.first + ", first:";
    for (size_t i = 0; i < p.second.size() && i < 8; i++)
      text += " " + std::to_string(p.second[i]);
  }
  plemu_die("deadlock in kernel %s, block (%u,%u,%u): %u of %u threads have ended, the others "
            "wait:%s",
            kernel_name(), plemu_t.block.x, plemu_t.block.y, plemu_t.block.z, exited_, n_,
            text.c_str());
}

}  // namespace plemu

static plemu::Block &running() { return *static_cast<plemu::Block *>(plemu_t.executing); }

extern "C" {

void plemu_barrier(const char *file, int line) {
  running().barrier("__syncthreads", file, line);
}

int plemu_barrier_vote(int op, int predicate, const char *file, int line) {
  return running().barrier_vote(op, predicate, file, line);
}

const uint64_t *plemu_warp_exchange(unsigned mask, uint64_t value, int ordered, unsigned *present,
                                    const char *what, const char *file, int line) {
  return running().exchange(mask, value, ordered != 0, present, what, file, line);
}

void plemu_warp_collect(unsigned mask, void *mine, plemu_Collective fn, const char *what,
                        const char *file, int line) {
  running().collect(mask, mine, fn, what, file, line);
}

void *plemu_shared_object(const void *site, size_t bytes, size_t align) {
  return running().shared_object(site, bytes, align);
}

void plemu_thread_yield(void) { running().yield(); }

void plemu_fence(void) { __atomic_thread_fence(__ATOMIC_SEQ_CST); }

}  // extern "C"
