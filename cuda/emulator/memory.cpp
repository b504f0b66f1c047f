/* SPDX-License-Identifier: MIT
 * The allocation table and the runtime's allocation functions.
 * Budget: device memory counts from cudaMalloc to cudaFree; pool memory counts while the pool
 * reserves it, which is until a synchronization finds it above the release threshold.
 * Stream order: memory of cudaMallocAsync may not be touched before its stream gets there, and
 * any use that is submitted after its cudaFreeAsync is wrong whatever the order of execution. */
#include "memory.h"

#include <algorithm>
#include <map>
#include <mutex>
#include <set>

#include "control.h"
#include "stream.h"

namespace plemu {

struct Allocation {
  size_t bytes;
  Kind kind;
  unsigned id;
  Pool *pool;
  const char *function;
  bool guarded, freed, graph;
};

static std::mutex table_lock;
static std::map<uintptr_t, Allocation> &table() {
  static auto *t = new std::map<uintptr_t, Allocation>;
  return *t;
}
static std::set<Pool *> &pools() {
  static auto *all = new std::set<Pool *>{&default_pool()};
  return *all;
}
static size_t outside_pools = 0;
static unsigned next_id = 1;

Pool &default_pool() {
  static Pool *p = new Pool;
  return *p;
}

static bool counts(Kind k) { return k == kDevice || k == kManaged; }

static size_t reserved_bytes() {
  size_t n = outside_pools;
  for (Pool *p : pools()) n += p->reserved;
  return n;
}

static void trim(Pool &p, uint64_t keep) {
  if (p.reserved > keep) p.reserved = std::max<size_t>(p.used, (size_t)keep);
}

void trim_pools() {
  std::lock_guard<std::mutex> lock(table_lock);
  for (Pool *p : pools()) trim(*p, p->threshold);
}

/* Makes room in the budget: from the pool's own reserve first, then from idle reserves. */
static bool reserve(size_t bytes, Pool *pool) {
  const size_t budget = settings().memory;
  const size_t own = pool ? std::min(bytes, pool->reserved - pool->used) : 0;
  const auto fits = [&] { return bytes - own <= budget - std::min(budget, reserved_bytes()); };
  if (!fits())
    for (Pool *p : pools())
      if (p != pool) trim(*p, 0);
  if (!fits()) return false;
  if (pool) {
    pool->used += bytes;
    pool->reserved += bytes - own;
    pool->used_high = std::max(pool->used_high, pool->used);
    pool->reserved_high = std::max(pool->reserved_high, pool->reserved);
  } else {
    outside_pools += bytes;
  }
  return true;
}

static void unreserve(const Allocation &a) {
  if (!counts(a.kind)) return;
  (a.pool ? a.pool->used : outside_pools) -= a.bytes;
}

void *allocate(size_t bytes, Kind kind, Pool *pool, const char *function) {
  std::lock_guard<std::mutex> lock(table_lock);
  if (counts(kind) && !reserve(bytes, pool)) return nullptr;
  Allocation a{bytes, kind, next_id++, pool, function, false, false, false};
  a.guarded = settings().guard && kind == kDevice;
  void *p = nullptr;
  if (a.guarded)
    p = guard_allocate(bytes, a.id);
  else if (posix_memalign(&p, 256, bytes) != 0)
    p = nullptr;
  else
    poison_fill(p, bytes);
  if (p)
    table()[(uintptr_t)p] = a;
  else
    unreserve(a);
  return p;
}

bool release(void *p, Kind kind) {
  std::lock_guard<std::mutex> lock(table_lock);
  auto it = table().find((uintptr_t)p);
  if (it == table().end()) return false;
  const Allocation a = it->second;
  if (kind == kDevice ? !counts(a.kind) : a.kind != kind) return false;
  unreserve(a);
  table().erase(it);
  if (a.kind == kRegistered) return true;
  if (a.guarded) {
    guard_release(p);
    return true;
  }
  permit(p, a.bytes);
  poison_fill(p, a.bytes);
  free(p);
  return true;
}

bool begin_release(void *p, size_t *bytes) {
  std::lock_guard<std::mutex> lock(table_lock);
  auto it = table().find((uintptr_t)p);
  if (it == table().end() || it->second.kind != kDevice || it->second.freed) return false;
  if (!it->second.graph) it->second.freed = true;
  *bytes = it->second.bytes;
  return true;
}

void set_graph_memory(void *p) {
  std::lock_guard<std::mutex> lock(table_lock);
  table()[(uintptr_t)p].graph = true;
}

/* The allocation that holds p, its end included; null if none does. The lock is held. */
static const Allocation *find(const void *p, uintptr_t *start) {
  auto it = table().upper_bound((uintptr_t)p);
  if (it == table().begin()) return nullptr;
  --it;
  *start = it->first;
  return (uintptr_t)p <= it->first + it->second.bytes ? &it->second : nullptr;
}

bool is_graph_memory(const void *p) {
  std::lock_guard<std::mutex> lock(table_lock);
  uintptr_t start;
  const Allocation *a = find(p, &start);
  return a && a->graph;
}

Kind kind_of(const void *p) {
  std::lock_guard<std::mutex> lock(table_lock);
  uintptr_t start;
  const Allocation *a = find(p, &start);
  return a && (uintptr_t)p < start + std::max<size_t>(a->bytes, 1) ? a->kind : kUnknown;
}

static void die_freed(const char *who, const Allocation &a) {
  plemu_die("%s: allocation #%u (%s, %zu bytes) was freed with cudaFreeAsync before", who, a.id,
            a.function, a.bytes);
}

void check_argument(const void *p, const char *kernel, unsigned index) {
  if (!p || !settings().strict) return;
  std::lock_guard<std::mutex> lock(table_lock);
  uintptr_t start;
  const Allocation *a = find(p, &start);
  char who[256];
  snprintf(who, sizeof who, "kernel %s, argument %u", kernel, index + 1);
  if (!a) plemu_die("%s: %p is no memory of the device", who, p);
  if (a->freed) die_freed(who, *a);
}

void check_range(const void *p, size_t bytes, const char *what) {
  if (!settings().strict || !bytes) return;
  std::lock_guard<std::mutex> lock(table_lock);
  uintptr_t start;
  const Allocation *a = find(p, &start);
  if (!a || (uintptr_t)p == start + a->bytes) return;  /* memory of the host */
  if (a->freed) die_freed(what, *a);
  const size_t rest = start + a->bytes - (uintptr_t)p;
  if (bytes > rest)
    plemu_die("%s of %zu bytes runs %zu bytes past the end of allocation #%u (%s, %zu bytes)",
              what, bytes, bytes - rest, a->id, a->function, a->bytes);
}

/* Allocates in stream order. When the budget is exhausted, work that may hold frees is finished
 * first, as a device finishes it in time. */
static cudaError_t allocate_async(void **p, size_t bytes, Pool *pool, cudaStream_t stream) {
  *p = nullptr;
  if (bytes == 0) return cudaSuccess;
  const char *function = "cudaMallocAsync";
  void *q = allocate(bytes, kDevice, pool, function);
  if (!q && !is_capturing(stream)) {
    wait_for_stream(stream);
    q = allocate(bytes, kDevice, pool, function);
  }
  if (!q) return cudaErrorMemoryAllocation;
  const bool guard = settings().guard;
  const bool captured = own_by_capture(stream, q);
  if (!guard) forbid(q, bytes);
  const cudaError_t e = submit(stream, "cudaMallocAsync", [q, bytes, guard](Stream &) {
    if (!guard) permit(q, bytes);
    poison_fill(q, bytes);
  });
  if (e == cudaSuccess)
    *p = q;
  else if (!captured)
    release(q, kDevice);
  return e;
}

static cudaError_t allocate_now(void **p, size_t bytes, Kind kind, const char *function) {
  const cudaError_t unsafe = unsafe_in_capture();
  if (unsafe != cudaSuccess) return unsafe;
  *p = nullptr;
  if (bytes == 0) return cudaSuccess;
  *p = allocate(bytes, kind, nullptr, function);
  if (!*p) {
    wait_for_all();
    *p = allocate(bytes, kind, nullptr, function);
  }
  return *p ? cudaSuccess : cudaErrorMemoryAllocation;
}

/* Waits for all work, as cudaFree does. */
static cudaError_t free_now(void *p, Kind kind) {
  if (!p) return cudaSuccess;
  const cudaError_t unsafe = unsafe_in_capture();
  if (unsafe != cudaSuccess) return unsafe;
  wait_for_all();
  trim_pools();
  return release(p, kind) ? cudaSuccess : cudaErrorInvalidValue;
}

static cudaError_t free_async(void *p, cudaStream_t stream) {
  if (!p) return cudaSuccess;
  const bool capturing = is_capturing(stream), graph = is_graph_memory(p);
  size_t bytes;
  if (capturing != graph || !begin_release(p, &bytes)) return cudaErrorInvalidValue;
  if (!graph)
    return submit(stream, "cudaFreeAsync", [p](Stream &) {
      Quiet quiet;
      release(p, kDevice);
    });
  const bool guard = settings().guard;
  return submit(stream, "free node", [p, bytes, guard](Stream &) {
    poison_fill(p, bytes);
    if (!guard) forbid(p, bytes);
  });
}

/* Opens a function that frees: a lost device reports its error and takes its memory back, so that
 * a test can go on after plemu_clear_faults(). */
#define PLEMU_FREEING_CALL(name, p, kind)         \
  static CallSite site_(#name);                   \
  Call call_(site_);                              \
  if (call_.error != cudaSuccess) {               \
    if (device_error != cudaSuccess) {            \
      wait_for_all();                             \
      release(p, kind);                           \
    }                                             \
    return result(call_.error);                   \
  }

}  // namespace plemu

using namespace plemu;

extern "C" {

cudaError_t cudaMalloc(void **p, size_t bytes) {
  PLEMU_CALL(cudaMalloc);
  return result(allocate_now(p, bytes, kDevice, "cudaMalloc"));
}

cudaError_t cudaMallocManaged(void **p, size_t bytes, unsigned) {
  PLEMU_CALL(cudaMallocManaged);
  return result(allocate_now(p, bytes, kManaged, "cudaMallocManaged"));
}

cudaError_t cudaMallocHost(void **p, size_t bytes) {
  PLEMU_CALL(cudaMallocHost);
  return result(allocate_now(p, bytes, kPinned, "cudaMallocHost"));
}

cudaError_t cudaHostAlloc(void **p, size_t bytes, unsigned) {
  PLEMU_CALL(cudaHostAlloc);
  return result(allocate_now(p, bytes, kPinned, "cudaHostAlloc"));
}

cudaError_t cudaFree(void *p) {
  PLEMU_FREEING_CALL(cudaFree, p, kDevice);
  return result(free_now(p, kDevice));
}

cudaError_t cudaFreeHost(void *p) {
  PLEMU_FREEING_CALL(cudaFreeHost, p, kPinned);
  return result(free_now(p, kPinned));
}

cudaError_t cudaHostRegister(void *p, size_t bytes, unsigned) {
  PLEMU_CALL(cudaHostRegister);
  if (!p || !bytes || kind_of(p) != kUnknown) return result(cudaErrorInvalidValue);
  std::lock_guard<std::mutex> lock(table_lock);
  table()[(uintptr_t)p] = Allocation{bytes,   kRegistered,        next_id++, nullptr,
                                     "cudaHostRegister", false, false,     false};
  return cudaSuccess;
}

cudaError_t cudaHostUnregister(void *p) {
  PLEMU_FREEING_CALL(cudaHostUnregister, p, kRegistered);
  return result(free_now(p, kRegistered));
}

cudaError_t cudaHostGetDevicePointer(void **device, void *host, unsigned) {
  PLEMU_CALL(cudaHostGetDevicePointer);
  const Kind k = kind_of(host);
  if (k != kPinned && k != kRegistered) return result(cudaErrorInvalidValue);
  *device = host;
  return cudaSuccess;
}

cudaError_t cudaMallocAsync(void **p, size_t bytes, cudaStream_t stream) {
  PLEMU_CALL(cudaMallocAsync);
  return result(allocate_async(p, bytes, &default_pool(), stream));
}

cudaError_t cudaMallocFromPoolAsync(void **p, size_t bytes, cudaMemPool_t pool,
                                    cudaStream_t stream) {
  PLEMU_CALL(cudaMallocFromPoolAsync);
  if (!pools().count((Pool *)pool)) return result(cudaErrorInvalidValue);
  return result(allocate_async(p, bytes, (Pool *)pool, stream));
}

cudaError_t cudaFreeAsync(void *p, cudaStream_t stream) {
  PLEMU_FREEING_CALL(cudaFreeAsync, p, kDevice);
  return result(free_async(p, stream));
}

cudaError_t cudaMemGetInfo(size_t *available, size_t *total) {
  PLEMU_CALL(cudaMemGetInfo);
  std::lock_guard<std::mutex> lock(table_lock);
  *total = settings().memory;
  *available = *total - std::min(*total, reserved_bytes());
  return cudaSuccess;
}

cudaError_t cudaPointerGetAttributes(cudaPointerAttributes *a, const void *p) {
  PLEMU_CALL(cudaPointerGetAttributes);
  const Kind k = kind_of(p);
  memset(a, 0, sizeof *a);
  a->type = k == kUnknown   ? cudaMemoryTypeUnregistered
            : k == kDevice  ? cudaMemoryTypeDevice
            : k == kManaged ? cudaMemoryTypeManaged
                            : cudaMemoryTypeHost;
  if (k != kUnknown) a->devicePointer = (void *)p;
  if (k != kDevice) a->hostPointer = (void *)p;
  return cudaSuccess;
}

/* ---- pools ---- */

cudaError_t cudaDeviceGetDefaultMemPool(cudaMemPool_t *pool, int device) {
  PLEMU_CALL(cudaDeviceGetDefaultMemPool);
  if (device != 0) return result(cudaErrorInvalidDevice);
  *pool = (cudaMemPool_t)&default_pool();
  return cudaSuccess;
}

cudaError_t cudaMemPoolCreate(cudaMemPool_t *pool, const cudaMemPoolProps *) {
  PLEMU_CALL(cudaMemPoolCreate);
  std::lock_guard<std::mutex> lock(table_lock);
  Pool *p = new Pool;
  pools().insert(p);
  *pool = (cudaMemPool_t)p;
  return cudaSuccess;
}

cudaError_t cudaMemPoolDestroy(cudaMemPool_t pool) {
  PLEMU_CALL(cudaMemPoolDestroy);
  Pool *p = (Pool *)pool;
  wait_for_all();
  std::lock_guard<std::mutex> lock(table_lock);
  if (p == &default_pool() || !pools().count(p) || p->used)
    return result(cudaErrorInvalidValue);
  pools().erase(p);
  delete p;
  return cudaSuccess;
}

cudaError_t cudaMemPoolTrimTo(cudaMemPool_t pool, size_t keep) {
  PLEMU_CALL(cudaMemPoolTrimTo);
  std::lock_guard<std::mutex> lock(table_lock);
  if (!pools().count((Pool *)pool)) return result(cudaErrorInvalidValue);
  trim(*(Pool *)pool, keep);
  return cudaSuccess;
}

static cudaError_t pool_attribute(cudaMemPool_t pool, cudaMemPoolAttr attribute, void *value,
                                  bool set) {
  std::lock_guard<std::mutex> lock(table_lock);
  Pool *p = (Pool *)pool;
  if (!pools().count(p)) return cudaErrorInvalidValue;
  int *flag = attribute == cudaMemPoolReuseFollowEventDependencies   ? &p->follow_events
              : attribute == cudaMemPoolReuseAllowOpportunistic      ? &p->opportunistic
              : attribute == cudaMemPoolReuseAllowInternalDependencies ? &p->internal
                                                                       : nullptr;
  if (flag) {
    *(set ? flag : (int *)value) = *(set ? (int *)value : flag);
    return cudaSuccess;
  }
  if (attribute == cudaMemPoolAttrReleaseThreshold) {
    uint64_t *v = (uint64_t *)value;
    *(set ? &p->threshold : v) = set ? *v : p->threshold;
    return cudaSuccess;
  }
  size_t *high = attribute == cudaMemPoolAttrReservedMemHigh ? &p->reserved_high
                 : attribute == cudaMemPoolAttrUsedMemHigh   ? &p->used_high
                                                             : nullptr;
  if (set) {  /* a high mark can only be reset */
    if (!high || *(uint64_t *)value != 0) return cudaErrorInvalidValue;
    *high = high == &p->used_high ? p->used : p->reserved;
    return cudaSuccess;
  }
  if (high)
    *(uint64_t *)value = *high;
  else if (attribute == cudaMemPoolAttrReservedMemCurrent)
    *(uint64_t *)value = p->reserved;
  else if (attribute == cudaMemPoolAttrUsedMemCurrent)
    *(uint64_t *)value = p->used;
  else
    return cudaErrorInvalidValue;
  return cudaSuccess;
}

cudaError_t cudaMemPoolSetAttribute(cudaMemPool_t pool, cudaMemPoolAttr a, void *value) {
  PLEMU_CALL(cudaMemPoolSetAttribute);
  return result(pool_attribute(pool, a, value, true));
}

cudaError_t cudaMemPoolGetAttribute(cudaMemPool_t pool, cudaMemPoolAttr a, void *value) {
  PLEMU_CALL(cudaMemPoolGetAttribute);
  return result(pool_attribute(pool, a, value, false));
}

size_t plemu_live_allocations(size_t *bytes) {
  Quiet quiet;
  std::lock_guard<std::mutex> lock(table_lock);
  size_t n = 0, sum = 0;
  for (auto &a : table())
    if (counts(a.second.kind)) {
      n++;
      sum += a.second.bytes;
    }
  if (bytes) *bytes = sum;
  return n;
}

}  // extern "C"
