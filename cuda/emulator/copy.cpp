/* SPDX-License-Identifier: MIT
 * Copies and fills. All of them are stream operations that read their source when they run, those
 * from pageable memory too: that is the latest moment which CUDA allows any of them.
 * The synchronous ones run on the legacy stream, so they do not wait for non-blocking streams. */
#include "memory.h"
#include "stream.h"

namespace plemu {

struct Box {
  char *to;
  const char *from;
  size_t to_pitch, from_pitch, width, height;
};

static void move(const Box &b) {
  for (size_t y = 0; y < b.height; y++)
    memcpy(b.to + y * b.to_pitch, b.from + y * b.from_pitch, b.width);
}

static size_t extent_bytes(size_t pitch, size_t width, size_t height) {
  return height == 0 || width == 0 ? 0 : (height - 1) * pitch + width;
}

static bool on_device(Kind k) { return k == kDevice || k == kManaged; }

static bool kind_fits(const void *to, const void *from, cudaMemcpyKind kind) {
  const Kind t = kind_of(to), f = kind_of(from);
  switch (kind) {
    case cudaMemcpyHostToHost: return t != kDevice && f != kDevice;
    case cudaMemcpyHostToDevice: return on_device(t) && f != kDevice;
    case cudaMemcpyDeviceToHost: return t != kDevice && on_device(f);
    case cudaMemcpyDeviceToDevice: return t != kUnknown && f != kUnknown;
    case cudaMemcpyDefault: return true;
  }
  return false;
}

static cudaError_t copy(const Box &b, cudaMemcpyKind kind, cudaStream_t stream) {
  const size_t to_bytes = extent_bytes(b.to_pitch, b.width, b.height);
  if (to_bytes == 0) return cudaSuccess;
  if (!b.to || !b.from || b.to_pitch < b.width || b.from_pitch < b.width)
    return cudaErrorInvalidValue;
  if (!kind_fits(b.to, b.from, kind)) return cudaErrorInvalidMemcpyDirection;
  check_range(b.to, to_bytes, "copy to the device");
  check_range(b.from, extent_bytes(b.from_pitch, b.width, b.height), "copy from the device");
  return submit(stream, "copy", [b](Stream &) {
    if (device_error == cudaSuccess) move(b);
  });
}

static cudaError_t fill(void *p, size_t pitch, int value, size_t width, size_t height,
                        cudaStream_t stream) {
  const size_t bytes = extent_bytes(pitch, width, height);
  if (bytes == 0) return cudaSuccess;
  if (!p || kind_of(p) == kUnknown || pitch < width) return cudaErrorInvalidValue;
  check_range(p, bytes, "fill");
  return submit(stream, "fill", [=](Stream &) {
    if (device_error != cudaSuccess) return;
    for (size_t y = 0; y < height; y++) memset((char *)p + y * pitch, value, width);
  });
}

/* Whether a synchronous call may be made; the implicit dependency is the more telling error. */
static cudaError_t synchronous() {
  Lock lock(runtime().lock);
  const cudaError_t implicit = implicit_in_capture_locked();
  const cudaError_t unsafe = unsafe_in_capture_locked();
  return implicit != cudaSuccess ? implicit : unsafe;
}

static cudaError_t copy_now(const Box &b, cudaMemcpyKind kind) {
  cudaError_t e = synchronous();
  if (e == cudaSuccess) e = copy(b, kind, nullptr);
  if (e != cudaSuccess) return e;
  OperationPtr last;
  {
    Lock lock(runtime().lock);
    last = runtime().legacy.last;
  }
  wait_for(last);
  return (cudaError_t)device_error.load();
}

static cudaError_t fill_now(void *p, size_t pitch, int value, size_t width, size_t height) {
  const cudaError_t e = synchronous();
  return e == cudaSuccess ? fill(p, pitch, value, width, height, nullptr) : e;
}

}  // namespace plemu

using namespace plemu;

extern "C" {

cudaError_t cudaMemcpy(void *to, const void *from, size_t bytes, cudaMemcpyKind kind) {
  PLEMU_CALL(cudaMemcpy);
  return result(copy_now({(char *)to, (const char *)from, bytes, bytes, bytes, 1}, kind));
}

cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t stream) {
  PLEMU_CALL(cudaMemcpyAsync);
  return result(copy({(char *)to, (const char *)from, bytes, bytes, bytes, 1}, kind, stream));
}

cudaError_t cudaMemcpy2D(void *to, size_t to_pitch, const void *from, size_t from_pitch,
                         size_t width, size_t height, cudaMemcpyKind kind) {
  PLEMU_CALL(cudaMemcpy2D);
  return result(
      copy_now({(char *)to, (const char *)from, to_pitch, from_pitch, width, height}, kind));
}

cudaError_t cudaMemcpy2DAsync(void *to, size_t to_pitch, const void *from, size_t from_pitch,
                              size_t width, size_t height, cudaMemcpyKind kind,
                              cudaStream_t stream) {
  PLEMU_CALL(cudaMemcpy2DAsync);
  return result(
      copy({(char *)to, (const char *)from, to_pitch, from_pitch, width, height}, kind, stream));
}

/* A __constant__ or __device__ variable is an ordinary one here: its address is the symbol. */
cudaError_t cudaMemcpyToSymbol(const void *symbol, const void *from, size_t bytes, size_t offset,
                               cudaMemcpyKind) {
  PLEMU_CALL(cudaMemcpyToSymbol);
  return result(copy_now({(char *)const_cast<void *>(symbol) + offset, (const char *)from, bytes,
                          bytes, bytes, 1},
                         cudaMemcpyDefault));
}

cudaError_t cudaMemset(void *p, int value, size_t bytes) {
  PLEMU_CALL(cudaMemset);
  return result(fill_now(p, bytes, value, bytes, 1));
}

cudaError_t cudaMemsetAsync(void *p, int value, size_t bytes, cudaStream_t stream) {
  PLEMU_CALL(cudaMemsetAsync);
  return result(fill(p, bytes, value, bytes, 1, stream));
}

cudaError_t cudaMemset2DAsync(void *p, size_t pitch, int value, size_t width, size_t height,
                              cudaStream_t stream) {
  PLEMU_CALL(cudaMemset2DAsync);
  return result(fill(p, pitch, value, width, height, stream));
}

}  // extern "C"
