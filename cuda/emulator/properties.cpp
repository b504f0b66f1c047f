/* SPDX-License-Identifier: MIT
 * The emulated device: one, with the limits of an H200 or a GB10. Attributes that nobody has
 * checked on the real device are refused rather than invented. */
#include <algorithm>

#include "memory.h"
#include "settings.h"

namespace plemu {

#define PLEMU_ERRORS(X)                                                          \
  X(cudaSuccess, "no error")                                                     \
  X(cudaErrorInvalidValue, "invalid argument")                                   \
  X(cudaErrorMemoryAllocation, "out of memory")                                  \
  X(cudaErrorInitializationError, "initialization error")                        \
  X(cudaErrorInvalidConfiguration, "invalid configuration argument")             \
  X(cudaErrorInvalidMemcpyDirection, "invalid copy direction for memcpy")        \
  X(cudaErrorInsufficientDriver, "driver is too old for the runtime")            \
  X(cudaErrorInvalidDeviceFunction, "invalid device function")                   \
  X(cudaErrorNoDevice, "no device")                                              \
  X(cudaErrorInvalidDevice, "invalid device ordinal")                            \
  X(cudaErrorNoKernelImageForDevice, "no kernel image for the device")           \
  X(cudaErrorECCUncorrectable, "uncorrectable memory error")                     \
  X(cudaErrorInvalidResourceHandle, "invalid resource handle")                   \
  X(cudaErrorIllegalState, "operation not possible in the present state")        \
  X(cudaErrorNotReady, "device not ready")                                       \
  X(cudaErrorIllegalAddress, "illegal memory access")                            \
  X(cudaErrorLaunchOutOfResources, "too many resources requested for launch")    \
  X(cudaErrorLaunchTimeout, "launch timed out")                                  \
  X(cudaErrorAssert, "device-side assert")                                       \
  X(cudaErrorMisalignedAddress, "misaligned address")                            \
  X(cudaErrorLaunchFailure, "unspecified launch failure")                        \
  X(cudaErrorNotPermitted, "operation not permitted")                            \
  X(cudaErrorNotSupported, "operation not supported")                            \
  X(cudaErrorStreamCaptureUnsupported, "not permitted while a stream captures")  \
  X(cudaErrorStreamCaptureInvalidated, "capture was invalidated before")         \
  X(cudaErrorStreamCaptureMerge, "would merge two captures")                     \
  X(cudaErrorStreamCaptureUnmatched, "capture was begun on another stream")      \
  X(cudaErrorStreamCaptureUnjoined, "capture has a branch that was not joined")  \
  X(cudaErrorStreamCaptureIsolation, "depends on work outside the capture")      \
  X(cudaErrorStreamCaptureImplicit, "legacy stream would depend on a capture")   \
  X(cudaErrorCapturedEvent, "event belongs to a capture")                        \
  X(cudaErrorStreamCaptureWrongThread, "capture was begun by another thread")    \
  X(cudaErrorUnknown, "unknown error")

static const struct {
  cudaError_t error;
  const char *name, *text;
} errors[] = {
#define PLEMU_ROW(error, text) {error, #error, text},
    PLEMU_ERRORS(PLEMU_ROW)
#undef PLEMU_ROW
};

static bool attribute(cudaDeviceAttr a, int *value) {
  const Device &d = *settings().device;
  const struct {
    cudaDeviceAttr attribute;
    int value;
  } known[] = {
      {cudaDevAttrComputeCapabilityMajor, d.major},
      {cudaDevAttrComputeCapabilityMinor, d.minor},
      {cudaDevAttrMultiProcessorCount, d.multiprocessors},
      {cudaDevAttrMaxThreadsPerMultiProcessor, d.threads_per_multiprocessor},
      {cudaDevAttrMaxThreadsPerBlock, 1024},
      {cudaDevAttrMaxBlockDimX, 1024},
      {cudaDevAttrMaxBlockDimY, 1024},
      {cudaDevAttrMaxBlockDimZ, 64},
      {cudaDevAttrMaxGridDimX, 0x7fffffff},
      {cudaDevAttrMaxGridDimY, 65535},
      {cudaDevAttrMaxGridDimZ, 65535},
      {cudaDevAttrWarpSize, 32},
      {cudaDevAttrMaxSharedMemoryPerBlock, 48 << 10},
      {cudaDevAttrMaxSharedMemoryPerBlockOptin, (int)d.shared_optin},
      {cudaDevAttrMaxSharedMemoryPerMultiprocessor, (int)d.shared_per_multiprocessor},
      {cudaDevAttrReservedSharedMemoryPerBlock, 1024},
      {cudaDevAttrMaxRegistersPerBlock, 65536},
      {cudaDevAttrMaxRegistersPerMultiprocessor, 65536},
      {cudaDevAttrTotalConstantMemory, 65536},
      {cudaDevAttrL2CacheSize, d.l2_bytes},
      {cudaDevAttrGlobalMemoryBusWidth, d.bus_bits},
      {cudaDevAttrIntegrated, d.integrated},
      {cudaDevAttrUnifiedAddressing, 1},
      {cudaDevAttrManagedMemory, 1},
      {cudaDevAttrConcurrentKernels, 1},
      {cudaDevAttrCanMapHostMemory, 1},
      {cudaDevAttrMemoryPoolsSupported, 1},
      {cudaDevAttrStreamPrioritiesSupported, 1},
      {cudaDevAttrHostRegisterSupported, 1},
      /* Kernels may not touch the host's pageable memory here, whatever a machine allows. Of managed memory there is
       * one device that says yes and one that says no, so that both can be tried. */
      {cudaDevAttrPageableMemoryAccess, 0},
      {cudaDevAttrConcurrentManagedAccess, !d.integrated},
      {cudaDevAttrCooperativeLaunch, 0},
  };
  for (auto &k : known)
    if (k.attribute == a) {
      *value = k.value;
      return true;
    }
  return false;
}

static void describe(cudaDeviceProp *p) {
  const Device &d = *settings().device;
  memset((void *)p, 0, sizeof *p);
  snprintf(p->name, sizeof p->name, "%s", d.name);
  p->major = d.major;
  p->minor = d.minor;
  p->totalGlobalMem = std::min(d.memory, settings().memory);
  p->sharedMemPerBlock = 48 << 10;
  p->sharedMemPerBlockOptin = d.shared_optin;
  p->sharedMemPerMultiprocessor = d.shared_per_multiprocessor;
  p->reservedSharedMemPerBlock = 1024;
  p->regsPerBlock = p->regsPerMultiprocessor = 65536;
  p->totalConstMem = 65536;
  p->warpSize = 32;
  p->maxThreadsPerBlock = 1024;
  p->maxThreadsPerMultiProcessor = d.threads_per_multiprocessor;
  p->maxThreadsDim[0] = p->maxThreadsDim[1] = 1024;
  p->maxThreadsDim[2] = 64;
  p->maxGridSize[0] = 0x7fffffff;
  p->maxGridSize[1] = p->maxGridSize[2] = 65535;
  p->multiProcessorCount = d.multiprocessors;
  p->integrated = d.integrated;
  p->l2CacheSize = d.l2_bytes;
  p->memoryBusWidth = d.bus_bits;
  p->canMapHostMemory = p->concurrentKernels = p->unifiedAddressing = p->managedMemory = 1;
  p->streamPrioritiesSupported = p->memoryPoolsSupported = p->hostRegisterSupported = 1;
  p->asyncEngineCount = 1;
}

}  // namespace plemu

using namespace plemu;

extern "C" {

cudaError_t cudaGetLastError(void) {
  const int e = device_error ? device_error.load() : plemu_t.last_error;
  plemu_t.last_error = cudaSuccess;
  return (cudaError_t)e;
}

cudaError_t cudaPeekAtLastError(void) {
  return (cudaError_t)(device_error ? device_error.load() : plemu_t.last_error);
}

const char *cudaGetErrorName(cudaError_t e) {
  for (auto &row : errors)
    if (row.error == e) return row.name;
  return "cudaErrorUnknown";
}

const char *cudaGetErrorString(cudaError_t e) {
  for (auto &row : errors)
    if (row.error == e) return row.text;
  return "unrecognized error code";
}

cudaError_t cudaGetDeviceCount(int *count) {
  PLEMU_CALL(cudaGetDeviceCount);
  *count = 1;
  return cudaSuccess;
}

cudaError_t cudaGetDevice(int *device) {
  PLEMU_CALL(cudaGetDevice);
  *device = 0;
  return cudaSuccess;
}

cudaError_t cudaSetDevice(int device) {
  PLEMU_CALL(cudaSetDevice);
  return result(device == 0 ? cudaSuccess : cudaErrorInvalidDevice);
}

cudaError_t cudaSetDeviceFlags(unsigned) {
  PLEMU_CALL(cudaSetDeviceFlags);
  return cudaSuccess;
}

cudaError_t cudaInitDevice(int device, unsigned, unsigned) {
  PLEMU_CALL(cudaInitDevice);
  return result(device == 0 ? cudaSuccess : cudaErrorInvalidDevice);
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp *p, int device) {
  PLEMU_CALL(cudaGetDeviceProperties);
  if (device != 0) return result(cudaErrorInvalidDevice);
  describe(p);
  return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int *value, cudaDeviceAttr a, int device) {
  PLEMU_CALL(cudaDeviceGetAttribute);
  if (device != 0) return result(cudaErrorInvalidDevice);
  return result(attribute(a, value) ? cudaSuccess : cudaErrorNotSupported);
}

cudaError_t cudaDeviceGetStreamPriorityRange(int *least, int *greatest) {
  PLEMU_CALL(cudaDeviceGetStreamPriorityRange);
  *least = 0;
  *greatest = -5;
  return cudaSuccess;
}

cudaError_t cudaRuntimeGetVersion(int *version) {
  PLEMU_CALL(cudaRuntimeGetVersion);
  *version = CUDART_VERSION;
  return cudaSuccess;
}

cudaError_t cudaDriverGetVersion(int *version) {
  PLEMU_CALL(cudaDriverGetVersion);
  *version = CUDART_VERSION;
  return cudaSuccess;
}

}  // extern "C"
