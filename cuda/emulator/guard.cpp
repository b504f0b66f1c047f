/* SPDX-License-Identifier: MIT
 * Guard mode: device memory lies in a reserved region that is inaccessible while no stream
 * operation runs, so that host code which touches it faults, with a message that names the
 * allocation. Addresses are never used twice, and each allocation ends at an inaccessible page:
 * kernels fault on freed memory, and beyond the end of an allocation rounded up to 256 bytes.
 * The signal handler is installed at the first guarded allocation and passes other faults on. */
#include <execinfo.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <mutex>
#include <vector>

#include "memory.h"

namespace plemu {

struct Guarded {
  char *pages, *p;
  size_t mapped, bytes;
  unsigned id;
  bool live;
};

static const size_t kRegion = (size_t)1 << 40;
static std::mutex guard_lock;
static char *region = nullptr;
static size_t region_used = 0;
static int operations = 0;  /* that run now */
static struct sigaction previous;

static std::vector<Guarded> &guarded() {
  static auto *all = new std::vector<Guarded>;
  return *all;
}

static void on_fault(int sig, siginfo_t *info, void *context) {
  char *a = (char *)info->si_addr;
  if (!region || a < region || a >= region + kRegion) {
    if (previous.sa_flags & SA_SIGINFO) {
      previous.sa_sigaction(sig, info, context);
    } else {
      sigaction(sig, &previous, nullptr);
      raise(sig);
    }
    return;
  }
  const Guarded *near = nullptr;
  for (const Guarded &g : guarded())
    if (a >= g.pages) near = &g;
  char text[256];
  int n;
  if (near)
    n = snprintf(text, sizeof text,
                 "plemu: %s code touched byte %td of %sdevice allocation #%u (%zu bytes)\n",
                 operations ? "kernel" : "host", a - near->p, near->live ? "" : "freed ", near->id,
                 near->bytes);
  else
    n = snprintf(text, sizeof text, "plemu: device address %p was never allocated\n", (void *)a);
  (void)!write(2, text, (size_t)n);
  void *frames[32];
  backtrace_symbols_fd(frames, backtrace(frames, 32), 2);
  signal(sig, SIG_DFL);
  raise(sig);
}

static void open_region() {
  region = (char *)mmap(nullptr, kRegion, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
                        -1, 0);
  if (region == MAP_FAILED) plemu_die("guard mode: no address space");
  void *frame[1];
  backtrace(frame, 1);  /* loads what the handler must not load */
  struct sigaction action {};
  action.sa_sigaction = on_fault;
  action.sa_flags = SA_SIGINFO;
  sigaction(SIGSEGV, &action, &previous);
}

void *guard_allocate(size_t bytes, unsigned id) {
  std::lock_guard<std::mutex> lock(guard_lock);
  if (!region) open_region();
  const size_t page = (size_t)sysconf(_SC_PAGESIZE), rounded = (bytes + 255) & ~(size_t)255;
  const size_t mapped = (rounded + page - 1) & ~(page - 1);
  if (region_used + mapped + page > kRegion) return nullptr;
  char *pages = region + region_used, *p = pages + (mapped - rounded);
  region_used += mapped + page;
  if (mprotect(pages, mapped, PROT_READ | PROT_WRITE) != 0) return nullptr;
  poison_fill(p, rounded);
  if (operations == 0) mprotect(pages, mapped, PROT_NONE);
  guarded().push_back({pages, p, mapped, bytes, id, true});
  return p;
}

void guard_release(void *p) {
  std::lock_guard<std::mutex> lock(guard_lock);
  for (Guarded &g : guarded())
    if (g.p == p && g.live) {
      g.live = false;
      mprotect(g.pages, g.mapped, PROT_NONE);
      madvise(g.pages, g.mapped, MADV_DONTNEED);
    }
}

static void protect_all(int protection) {
  for (const Guarded &g : guarded())
    if (g.live) mprotect(g.pages, g.mapped, protection);
}

void guard_enter() {
  if (!settings().guard) return;
  std::lock_guard<std::mutex> lock(guard_lock);
  if (operations++ == 0) protect_all(PROT_READ | PROT_WRITE);
}

void guard_leave() {
  if (!settings().guard) return;
  std::lock_guard<std::mutex> lock(guard_lock);
  if (--operations == 0) protect_all(PROT_NONE);
}

}  // namespace plemu
