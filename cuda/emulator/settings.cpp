/* SPDX-License-Identifier: MIT
 * Settings from the environment and plemu_configure, fatal messages, and injected faults.
 * PLEMU_FAIL holds faults as function:nth:error, separated by commas, with nth+ for "and all
 * later calls": PLEMU_FAIL=cudaMallocAsync:3:2,kernel:10+:700. */
#include "settings.h"

#include <stdarg.h>
#include <strings.h>
#include <time.h>

#include <mutex>
#include <string>
#include <vector>

#include "control.h"
#include "memory.h"
#include "stream.h"

/* All thread-local storage of the emulator: see device.h. */
__thread plemu_Thread plemu_t;
static_assert(sizeof(plemu_Thread) <= 192, "a module has little initial-exec storage");

namespace plemu {

static const Device devices[] = {
    {"h200", "Emulated H200", 9, 0, 132, 2048, 232448, 233472, (size_t)141 << 30, 50 << 20, 6144,
     false},
    {"gb10", "Emulated GB10", 12, 1, 48, 1536, 101376, 102400, (size_t)119 << 30, 24 << 20, 256,
     true},
};

static bool parse_bytes(const char *text, size_t *bytes) {
  char *end;
  const unsigned long long n = strtoull(text, &end, 0);
  const char *units = "KMG";
  const char *unit = *end ? strchr(units, *end) : nullptr;
  if (end == text || (*end && (!unit || end[1]))) return false;
  *bytes = (size_t)n << (unit ? 10 * (unit - units + 1) : 0);
  return true;
}

static bool parse_number(const char *text, unsigned *n) {
  char *end;
  *n = (unsigned)strtoul(text, &end, 0);
  return end != text && !*end;
}

static bool parse_flag(const char *text, bool *flag) {
  unsigned n;
  if (!parse_number(text, &n) || n > 1) return false;
  *flag = n == 1;
  return true;
}

static bool apply(Settings &s, const std::string &name, const char *value) {
  if (name == "seed") return parse_number(value, &s.seed);
  if (name == "jitter_us") return parse_number(value, &s.jitter_us);
  if (name == "memory") return parse_bytes(value, &s.memory);
  if (name == "guard") return parse_flag(value, &s.guard);
  if (name == "poison") return parse_flag(value, &s.poison);
  if (name == "strict") return parse_flag(value, &s.strict);
  if (name == "mode") {
    const char *const modes[] = {"async", "lazy", "sync"};
    for (int i = 0; i < 3; i++)
      if (!strcmp(value, modes[i])) {
        s.mode = (Mode)i;
        return true;
      }
  }
  if (name == "device")
    for (const Device &d : devices)
      if (!strcmp(value, d.key)) {
        s.device = &d;
        return true;
      }
  return false;
}

static Settings *from_environment() {
  Settings *s = new Settings;
  s->device = &devices[0];
  const char *const names[] = {"mode",  "seed",   "jitter_us", "device",
                               "guard", "poison", "strict",    "memory"};
  for (const char *name : names) {
    std::string variable = "PLEMU_";
    for (const char *p = name; *p; p++) variable += (char)(*p >= 'a' ? *p - 'a' + 'A' : *p);
    const char *value = getenv(variable.c_str());
    if (value && !apply(*s, name, value))
      plemu_die("%s=%s is not understood", variable.c_str(), value);
  }
  return s;
}

static Settings &mutable_settings() {
  static Settings *s = from_environment();
  return *s;
}

const Settings &settings() { return mutable_settings(); }

/* ---- injected faults ---- */

struct Fault {
  std::string function;
  long nth;  /* counted down to 0 */
  bool every;
  cudaError_t error;
};

std::atomic<int> device_error{0};

static std::mutex faults_lock;
static std::atomic<bool> any_faults{false};
static std::atomic<CallSite *> sites{nullptr};

static std::vector<Fault> &faults() {
  static auto *all = new std::vector<Fault>;
  return *all;
}

static void read_faults() {
  const char *text = getenv("PLEMU_FAIL");
  if (!text) return;
  const std::string all = text;
  for (size_t at = 0; at < all.size();) {
    size_t end = all.find(',', at);
    if (end == std::string::npos) end = all.size();
    const std::string one = all.substr(at, end - at);
    char function[64], plus = 0;
    long nth;
    int error;
    if (sscanf(one.c_str(), "%63[^:]:%ld:%d", function, &nth, &error) != 3 &&
        (sscanf(one.c_str(), "%63[^:]:%ld%c:%d", function, &nth, &plus, &error) != 4 ||
         plus != '+'))
      plemu_die("PLEMU_FAIL: %s is not function:nth:error", one.c_str());
    plemu_fail_call(function, nth, plus == '+', error);
    at = end + 1;
  }
}

static cudaError_t matching_fault(const char *function) {
  std::lock_guard<std::mutex> lock(faults_lock);
  cudaError_t error = cudaSuccess;
  for (Fault &f : faults()) {
    if (f.function != function || f.nth == 0) continue;
    if (--f.nth > 0) continue;
    if (f.every) f.nth = 1;
    error = f.error;
  }
  return error;
}

cudaError_t count_call(CallSite &site) {
  static bool once = (read_faults(), true);
  (void)once;
  if (!site.listed.exchange(true)) {
    site.next = sites.load();
    while (!sites.compare_exchange_weak(site.next, &site)) {
    }
  }
  site.calls++;
  return any_faults ? matching_fault(site.name) : cudaSuccess;
}

Call::Call(CallSite &site) {
  error = count_call(site);
  if (plemu_t.host_function) error = cudaErrorNotPermitted;
  if (error == cudaSuccess) error = (cudaError_t)device_error.load();
}

}  // namespace plemu

using namespace plemu;

extern "C" {

void plemu_die(const char *format, ...) {
  fflush(stdout);
  fputs("plemu: ", stderr);
  va_list arguments;
  va_start(arguments, format);
  vfprintf(stderr, format, arguments);
  va_end(arguments);
  fputc('\n', stderr);
  fflush(stderr);
  abort();
}

long long plemu_clock(void) {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec * 1000000000ll + t.tv_nsec;
}

int plemu_configure(const char *name, const char *value) {
  Quiet quiet;
  wait_for_all();
  Settings changed = settings();
  if (!apply(changed, name, value)) return -1;
  if (changed.guard != settings().guard && plemu_live_allocations(nullptr) > 0) return -1;
  Lock lock(runtime().lock);
  mutable_settings() = changed;
  return 0;
}

void plemu_fail_call(const char *function, long nth, int every, int error) {
  Quiet quiet;
  std::lock_guard<std::mutex> lock(faults_lock);
  faults().push_back({function, nth, every != 0, (cudaError_t)error});
  any_faults = true;
}

void plemu_clear_faults(void) {
  Quiet quiet;
  std::lock_guard<std::mutex> lock(faults_lock);
  faults().clear();
  any_faults = false;
  device_error = 0;
}

long plemu_calls(const char *function) {
  long calls = 0;
  for (CallSite *s = sites; s; s = s->next)
    if (!strcmp(s->name, function)) calls += s->calls;
  return calls;
}

}  // extern "C"
