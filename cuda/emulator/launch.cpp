/* SPDX-License-Identifier: MIT
 * Kernel launches: limits, the snapshot of the arguments, the order of the blocks.
 * Blocks of a kernel run one after another, so a kernel that waits for another block hangs here;
 * the seeds change their order, so that one which depends on it gives other results. */
#include "launch.h"

#include <algorithm>
#include <map>
#include <mutex>

#include "control.h"
#include "memory.h"
#include "stream.h"

namespace plemu {

static std::mutex kernels_lock;
static std::map<const void *, Kernel> &kernels() {
  static auto *all = new std::map<const void *, Kernel>;
  return *all;
}
static std::atomic<uint64_t> block_serial{1};
static CallSite executed("kernel");

Kernel *find_kernel(const void *function) {
  std::lock_guard<std::mutex> lock(kernels_lock);
  return &kernels()[function];
}

/* The kernel in "... [with P = {float*}; void (* Kernel)(P ...) = f<2>]" (gcc) and in
 * "... [Kernel = &f]" (clang, without template arguments). */
static std::string instance_name(const char *pretty) {
  std::string name = pretty;
  const size_t at = name.rfind(" = ");
  if (at == std::string::npos || name.back() != ']') return name;
  name = name.substr(at + 3, name.size() - at - 4);
  if (name[0] == '&') name.erase(0, 1);
  for (const char *scope : {"{anonymous}::", "(anonymous namespace)::"})
    if (name.compare(0, strlen(scope), scope) == 0) name.erase(0, strlen(scope));
  return name;
}

void run_launch(const Launch &launch, Block &block) {
  const dim3 g = launch.grid;
  const unsigned seed = settings().seed;
  const size_t total = (size_t)g.x * g.y * g.z;
  std::vector<unsigned> order;
  {
    Quiet quiet;
    const cudaError_t fault = count_call(executed);
    if (fault != cudaSuccess) {
      device_error = fault;
      return;
    }
    launch.kernel->runs++;
    if (seed > 1 && total > 1 && total <= 1u << 24) {
      Random random(seed * 32452843ull + block_serial);
      for (size_t i = 0; i < total; i++) order.push_back((unsigned)i);
      for (size_t i = total; i > 1; i--) std::swap(order[i - 1], order[random.below((uint32_t)i)]);
    }
  }
  for (size_t i = 0; i < total; i++) {
    const size_t k = !order.empty() ? order[i] : seed == 1 ? total - 1 - i : i;
    const uint3 index{(unsigned)(k % g.x), (unsigned)(k / g.x % g.y),
                      (unsigned)(k / ((size_t)g.x * g.y))};
    block.run(launch, index, seed, block_serial++);
  }
  Quiet quiet;
  order = std::vector<unsigned>();
}

static cudaError_t check_shape(const Kernel &kernel, dim3 g, dim3 b, size_t shared) {
  const uint64_t threads = (uint64_t)b.x * b.y * b.z;
  if (threads == 0 || threads > kMaxThreads || b.x > 1024 || b.y > 1024 || b.z > 64)
    return cudaErrorInvalidConfiguration;
  if (!g.x || !g.y || !g.z || g.x > 0x7fffffffu || g.y > 65535 || g.z > 65535)
    return cudaErrorInvalidConfiguration;
  return shared > kernel.dynamic_limit ? cudaErrorInvalidValue : cudaSuccess;
}

/* A kernel is loaded by the first call that is about it, for which a driver may allocate: not in a capture. */
static cudaError_t load(Kernel &kernel, cudaStream_t stream) {
  if (kernel.loaded) return cudaSuccess;
  if (settings().strict && is_capturing(stream)) {
    Lock lock(runtime().lock);
    Stream *s = find_stream(stream);
    return s ? break_capture_locked(*s, cudaErrorStreamCaptureUnsupported) : cudaErrorInvalidResourceHandle;
  }
  kernel.loaded = true;
  return cudaSuccess;
}

static cudaError_t launch_kernel(const char *pretty, const void *function, plemu_Run run,
                                 const void *arguments, size_t bytes, const void *const *pointers,
                                 unsigned npointers, dim3 grid, dim3 block, size_t shared,
                                 cudaStream_t stream) {
  static CallSite site("cudaLaunchKernel");
  Call call(site);
  if (call.error != cudaSuccess) return call.error;
  Kernel *kernel = find_kernel(function);
  if (kernel->name.empty()) kernel->name = instance_name(pretty);
  const cudaError_t bad = check_shape(*kernel, grid, block, shared);
  if (bad != cudaSuccess) return bad;
  const cudaError_t late = load(*kernel, stream);
  if (late != cudaSuccess) return late;
  for (unsigned i = 0; i < npointers; i++)
    check_argument(pointers[i], kernel->name.c_str(), i);

  const size_t align = 64;
  auto l = std::make_shared<Launch>();
  l->kernel = kernel;
  l->run = run;
  l->storage.reset(new unsigned char[bytes + align]);
  l->arguments = (void *)(((uintptr_t)l->storage.get() + align - 1) & ~(uintptr_t)(align - 1));
  memcpy(l->arguments, arguments, bytes);
  l->grid = grid;
  l->block = block;
  l->shared = shared;
  return submit(stream, "kernel", [l](Stream &s) {
    if (device_error == cudaSuccess) run_launch(*l, s.block());
  });
}

}  // namespace plemu

using namespace plemu;

extern "C" {

void plemu_launch(const char *pretty, const void *kernel, plemu_Run run, const void *arguments,
                  size_t bytes, const void *const *pointers, unsigned npointers, dim3 grid,
                  dim3 block, size_t shared, cudaStream_t stream) {
  result(launch_kernel(pretty, kernel, run, arguments, bytes, pointers, npointers, grid, block,
                       shared, stream));
}

cudaError_t cudaFuncSetAttribute(const void *function, cudaFuncAttribute attribute, int value) {
  PLEMU_CALL(cudaFuncSetAttribute);
  if (!function) return result(cudaErrorInvalidDeviceFunction);
  if (attribute != cudaFuncAttributeMaxDynamicSharedMemorySize) return cudaSuccess;
  if (value < 0 || (size_t)value > settings().device->shared_optin)
    return result(cudaErrorInvalidValue);
  Kernel *kernel = find_kernel(function);
  kernel->dynamic_limit = std::max<size_t>((size_t)value, 48 << 10);
  kernel->loaded = true;
  return cudaSuccess;
}

/* Registers and code size are not known here; what is known is what a launch is checked against. */
cudaError_t cudaFuncGetAttributes(cudaFuncAttributes *attributes, const void *function) {
  PLEMU_CALL(cudaFuncGetAttributes);
  if (!function) return result(cudaErrorInvalidDeviceFunction);
  memset((void *)attributes, 0, sizeof *attributes);
  attributes->maxThreadsPerBlock = 1024;
  Kernel *kernel = find_kernel(function);
  kernel->loaded = true;
  attributes->maxDynamicSharedSizeBytes = (int)kernel->dynamic_limit;
  return cudaSuccess;
}

int plemu_submit(void *stream, const char *name, void (*fn)(void *), void *data, void (*release)(void *),
                 const void *const *pointers, unsigned npointers) {
  static CallSite site("library");
  Call call(site);
  std::shared_ptr<void> kept(data, release);
  if (call.error != cudaSuccess) return call.error;
  Kernel *kernel = find_kernel((const void *)fn);
  if (kernel->name.empty()) kernel->name = name;
  const cudaError_t late = load(*kernel, (cudaStream_t)stream);
  if (late != cudaSuccess) return late;
  for (unsigned i = 0; i < npointers; i++) check_argument(pointers[i], name, i);
  return submit((cudaStream_t)stream, name, [fn, kernel, kept](Stream &) {
    if (device_error != cudaSuccess) return;
    kernel->runs++;
    fn(kept.get());
  });
}

long plemu_kernel_runs(const char *name) {
  Quiet quiet;
  std::lock_guard<std::mutex> lock(kernels_lock);
  const size_t n = strlen(name);
  long runs = 0;
  for (auto &k : kernels())  /* every instance of a template counts */
    if (k.second.name.compare(0, n, name) == 0 &&
        (k.second.name.size() == n || k.second.name[n] == '<'))
      runs += k.second.runs;
  return runs;
}

void plemu_each_kernel(void (*visit)(const char *name, long runs, void *user), void *user) {
  Quiet quiet;
  std::lock_guard<std::mutex> lock(kernels_lock);
  for (auto &k : kernels()) visit(k.second.name.c_str(), k.second.runs, user);
}

}  // extern "C"
