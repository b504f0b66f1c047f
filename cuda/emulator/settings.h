/* SPDX-License-Identifier: MIT
 * Settings, random numbers, call counts and injected faults.
 * Invariant: settings are read from the environment on first use and change only through
 * plemu_configure, which refuses while work is queued. */
#ifndef PLEMU_SETTINGS_H
#define PLEMU_SETTINGS_H

#include <atomic>
#include <cstdint>

#include "sanitizer.h"

namespace plemu {

enum Mode { kAsync, kLazy, kSync };

struct Device {
  const char *key, *name;
  int major, minor, multiprocessors, threads_per_multiprocessor;
  size_t shared_optin, shared_per_multiprocessor, memory;
  int l2_bytes, bus_bits;
  bool integrated;
};

struct Settings {
  Mode mode = kAsync;
  unsigned seed = 0;           /* 0 ascending, 1 descending, others random orders */
  unsigned jitter_us = 0;      /* async: longest random delay before an operation */
  bool guard = false;          /* device memory is inaccessible outside stream operations */
  bool poison = true;          /* fill fresh and freed memory with 0xff */
  bool strict = true;          /* check barrier places, pointer arguments and ranges */
  size_t memory = (size_t)4 << 30;  /* device memory budget */
  const Device *device = nullptr;
};

const Settings &settings();

inline void poison_fill(void *p, size_t bytes) {
  if (settings().poison) memset(p, 0xff, bytes);
}

struct Random {
  uint64_t state;
  explicit Random(uint64_t seed) : state(seed * 0x9E3779B97F4A7C15ull + 0xD1B54A32D192ED03ull) {}
  uint32_t next() {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return (uint32_t)(state >> 32);
  }
  uint32_t below(uint32_t n) { return (uint32_t)(((uint64_t)next() * n) >> 32); }
};

/* A runtime function, or "kernel" for executed kernels: its calls are counted. */
struct CallSite {
  const char *name;
  CallSite *next = nullptr;
  std::atomic<long> calls{0};
  std::atomic<bool> listed{false};
  constexpr explicit CallSite(const char *n) : name(n) {}
};

/* Counts the call; the error to fail with, or cudaSuccess. */
cudaError_t count_call(CallSite &site);

/* The error of a kernel that failed while it ran: every later call returns it, as on a device
 * whose context is lost. */
extern std::atomic<int> device_error;

inline cudaError_t result(cudaError_t e) {
  if (e != cudaSuccess) plemu_t.last_error = e;
  return e;
}

/* Opens a runtime function. */
struct Call {
  Quiet quiet;
  cudaError_t error;
  explicit Call(CallSite &site);
};

#define PLEMU_CALL(name)                         \
  static plemu::CallSite site_(#name);           \
  plemu::Call call_(site_);                      \
  if (call_.error != cudaSuccess) return plemu::result(call_.error)

}  // namespace plemu

#endif
