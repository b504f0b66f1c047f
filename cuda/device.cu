/* SPDX-License-Identifier: MIT
** device.cu -- a CUDA device behind an engine: one non-blocking stream, memory, staging, errors.
**
** The arena is cudaMalloc'ed when the engine is made; nothing is after that, since a synchronous allocation stalls the device and is
** forbidden in a capture. What the arena cannot hold comes from the stream-ordered pool. The host never touches device memory: uploads and
** downloads go through pinned pieces that are used in turn, each guarded by an event.
*/
#include "device.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static pld_Device *device_of(const pln_Engine *e) { return (pld_Device *)e->device; }

const char *pld_op_name(const pln_Call *c) {
  static const char *const names[] = {
#define OP(name, ...) #name,
#include "ops.def"
  };
  return names[c->op];
}

/* --- errors --------------------------------------------------------------------------------------- */

pln_Status pld_check(cudaError_t error, const char *what) {
  if (PLN_LIKELY(error == cudaSuccess)) return PLN_OK;
  (void)cudaGetLastError(); /* else the next launch would report it again */
  if (error == cudaErrorMemoryAllocation) return pln_fail(PLN_ENOMEM, "%s: out of device memory (%s)", what, cudaGetErrorName(error));
  return pln_fail(PLN_EDEVICE, "%s: %s: %s", what, cudaGetErrorName(error), cudaGetErrorString(error));
}

pln_Status pld_launch_failed(const char *op, const char *kernel, dim3 grid, dim3 block, size_t shared, cudaError_t error) {
  (void)cudaGetLastError();
  return pln_fail(PLN_EDEVICE, "%s: %s with grid (%u, %u, %u), block (%u, %u, %u), %zu bytes of shared memory: %s: %s", op, kernel,
                  grid.x, grid.y, grid.z, block.x, block.y, block.z, shared, cudaGetErrorName(error), cudaGetErrorString(error));
}

pln_Status pld_launched(const pln_Call *c, const char *kernel, dim3 grid, dim3 block, size_t shared) {
  pld_Device *d = pld_device(c);
  cudaError_t error = cudaGetLastError();
  if (PLN_UNLIKELY(d->debug) && error == cudaSuccess) error = cudaStreamSynchronize(d->stream);
  return PLN_LIKELY(error == cudaSuccess) ? PLN_OK : pld_launch_failed(pld_op_name(c), kernel, grid, block, shared, error);
}

pld_Site pld_site(const pln_Call *c) {
  pld_Device *d = pld_device(c);
  d->reports = true;
  return pld_Site{d->record, d->number, c->place, c->op, 0};
}

pln_Status pld_copy(const pln_Call *c, void *to, const void *from, size_t bytes) {
  pld_Device *d = pld_device(c);
  if (d->loading) return PLN_OK;
  return pld_check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, d->stream), pld_op_name(c));
}

pln_Status pld_load(const void *kernel, const char *name) {
  cudaFuncAttributes attributes;
  return pld_check(cudaFuncGetAttributes(&attributes, kernel), name);
}

/* Keeps the error of a call that has no way to report it, for the next wait. */
static void postpone(pld_Device *d, pln_Status status) {
  if (status == PLN_OK || d->failed != PLN_OK) return;
  d->failed = status;
  snprintf(d->why, sizeof d->why, "%s", pln_error());
}

static pln_Status postponed(pld_Device *d) {
  if (PLN_LIKELY(d->failed == PLN_OK)) return PLN_OK;
  pln_Status status = d->failed;
  d->failed = PLN_OK;
  return pln_fail(status, "%s", d->why);
}

/* The stream stands still: what kernels recorded becomes the engine's error. */
static void take_record(pln_Engine *e) {
  pld_Record *r = device_of(e)->record;
  if (PLN_LIKELY(r->number == 0)) return;
  if (!e->error.set) {
    pln_StreamError x = {};
    x.set = 1;
    x.kind = (int)r->kind;
    x.op = (uint16_t)r->op;
    x.input = r->input;
    x.place = r->place;
    x.position = r->position;
    x.value = r->value;
    x.lo = r->lo;
    x.hi = r->hi;
    x.call = r->number & ~PLD_SEALED;
    e->error = x;
  }
  memset(r, 0, sizeof *r);
}

/* --- opening -------------------------------------------------------------------------------------- */

static __global__ void probe_kernel() {}

static pln_Status check_driver(int *devices_p) {
  int driver = 0, runtime = 0;
  PLN_TRY(pld_check(cudaRuntimeGetVersion(&runtime), "CUDA"));
  if (cudaDriverGetVersion(&driver) != cudaSuccess || driver == 0) {
    (void)cudaGetLastError();
    return pln_fail(PLN_EDEVICE, "there is no CUDA driver");
  }
  if (driver / 1000 < runtime / 1000)
    return pln_fail(PLN_EDEVICE, "the CUDA driver is too old: it knows CUDA %d.%d, this build needs %d.%d", driver / 1000, driver % 1000 / 10,
                    runtime / 1000, runtime % 1000 / 10);
  cudaError_t error = cudaGetDeviceCount(devices_p);
  (void)cudaGetLastError();
  if (error == cudaErrorNoDevice || (error == cudaSuccess && *devices_p == 0)) return pln_fail(PLN_EDEVICE, "there is no CUDA device");
  return pld_check(error, "cudaGetDeviceCount");
}

extern "C" const char *plk_cuda_reason(void) {
  int devices = 0;
  return check_driver(&devices) == PLN_OK ? NULL : pln_error();
}

/* Bytes that the machine can spare, 0 if that is not known. */
static size_t available_memory(void) {
  char line[128];
  unsigned long long kb = 0;
  FILE *f = fopen("/proc/meminfo", "r");
  if (!f) return 0;
  while (fgets(line, sizeof line, f) && sscanf(line, "MemAvailable: %llu kB", &kb) != 1) {}
  fclose(f);
  return (size_t)kb * 1024;
}

/* A device that shares the machine's memory can freeze it, so it gets at most 4/5 of what is free. PERILUNE_CUDA_MEMORY (bytes) decides
** otherwise. */
static size_t budget_of(int ordinal) {
  const char *given = getenv("PERILUNE_CUDA_MEMORY");
  if (given && *given) return (size_t)strtoull(given, NULL, 10);
  int integrated = 0;
  if (cudaDeviceGetAttribute(&integrated, cudaDevAttrIntegrated, ordinal) != cudaSuccess) (void)cudaGetLastError();
  size_t free = integrated ? available_memory() : 0;
  return free ? free / 5 * 4 : SIZE_MAX;
}

/* While the host uses managed memory, kernels must be able to use it, too: elsewhere any read or write waits for the whole device. */
static pln_Status check_managed(const pld_Device *d) {
  int concurrent = 0;
  PLN_TRY(pld_check(cudaDeviceGetAttribute(&concurrent, cudaDevAttrConcurrentManagedAccess, d->ordinal), "cudaDeviceGetAttribute"));
  if (concurrent) return PLN_OK;
  return pln_fail(PLN_EARG, "managed = true: device %d does not support concurrent access to managed memory", d->ordinal + 1);
}

static pln_Status open_stream(pld_Device *d) {
  int processors = 0;
  uint64_t keep = UINT64_MAX;
  PLN_TRY(pld_check(cudaSetDevice(d->ordinal), "cudaSetDevice"));
  PLN_TRY(pld_check(cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, d->ordinal), "cudaDeviceGetAttribute"));
  if (d->managed) PLN_TRY(check_managed(d));
  d->blocks = (unsigned)processors * 16;
  PLN_TRY(pld_check(cudaStreamCreateWithFlags(&d->stream, cudaStreamNonBlocking), "cudaStreamCreateWithFlags"));
  PLN_LAUNCH(probe_kernel, 1, 1, 0, d->stream);
  cudaError_t error = cudaGetLastError();
  if (error != cudaSuccess) {
    int major = 0, minor = 0;
    (void)cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, d->ordinal);
    (void)cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, d->ordinal);
    return pln_fail(PLN_EDEVICE, "this build has no kernels for device %d (sm_%d%d): %s: %s", d->ordinal + 1, major, minor, cudaGetErrorName(error),
                    cudaGetErrorString(error));
  }
  /* without a threshold every wait would give the pool's memory back to the system */
  PLN_TRY(pld_check(cudaDeviceGetDefaultMemPool(&d->pool, d->ordinal), "cudaDeviceGetDefaultMemPool"));
  PLN_TRY(pld_check(cudaMemPoolSetAttribute(d->pool, cudaMemPoolAttrReleaseThreshold, &keep), "cudaMemPoolSetAttribute"));
  PLN_TRY(pld_check(cudaMallocHost((void **)&d->record, sizeof *d->record), "cudaMallocHost"));
  memset(d->record, 0, sizeof *d->record);
  PLN_TRY(pld_check(cudaMallocHost((void **)&d->staging, (size_t)PLD_SLOTS * PLD_SLOT_BYTES), "cudaMallocHost"));
  for (int i = 0; i < PLD_SLOTS; i++)
    PLN_TRY(pld_check(cudaEventCreateWithFlags(&d->event[i], cudaEventDisableTiming), "cudaEventCreateWithFlags"));
  PLN_TRY(pld_check(cudaEventCreateWithFlags(&d->pace, cudaEventDisableTiming), "cudaEventCreateWithFlags"));
  return pld_check(cudaStreamSynchronize(d->stream), "cudaStreamSynchronize");
}

static void dev_close(pln_Engine *e) {
  pld_Device *d = device_of(e);
  (void)cudaSetDevice(d->ordinal);
  if (d->stream) (void)cudaStreamSynchronize(d->stream);
  pld_blas_close(d);
  for (int i = 0; i < PLD_SLOTS; i++)
    if (d->event[i]) (void)cudaEventDestroy(d->event[i]);
  if (d->pace) (void)cudaEventDestroy(d->pace);
  if (d->staging) (void)cudaFreeHost(d->staging);
  if (d->record) (void)cudaFreeHost(d->record);
  if (d->stream) (void)cudaStreamDestroy(d->stream);
  (void)cudaGetLastError();
  pln_mfree(d);
  e->device = NULL;
}

static pln_Status dev_open(pln_Engine *e, int ordinal) {
  int devices = 0;
  PLN_TRY(check_driver(&devices));
  if (ordinal < 0 || ordinal >= devices)
    return pln_fail(PLN_EARG, "there %s %d CUDA device%s: device = %d was asked for", devices == 1 ? "is" : "are", devices,
                    devices == 1 ? "" : "s", ordinal + 1);
  pld_Device *d = (pld_Device *)pln_calloc(1, sizeof *d);
  if (!d) return pln_fail(PLN_ENOMEM, "out of memory for an engine");
  const char *debug = getenv("PERILUNE_CUDA_SYNC"), *graphs = getenv("PERILUNE_CUDA_GRAPHS");
  d->ordinal = ordinal;
  d->debug = debug && strcmp(debug, "1") == 0;
  d->graphs = !d->debug && !(graphs && strcmp(graphs, "0") == 0);
  d->managed = e->options.managed;
  d->budget = budget_of(ordinal);
  e->device = d;
  e->kernels = plk_cuda_table;
  pln_Status status = open_stream(d);
  if (status == PLN_OK)
    pld_blas_open(d, e->options.tf32);
  else
    dev_close(e);
  return status;
}

/* --- running -------------------------------------------------------------------------------------- */

pln_Status pld_queue(pld_Device *d, size_t calls) {
  const size_t halves = d->queued / (PLD_BACKLOG / 2);
  d->queued += calls;
  if (PLN_LIKELY(d->queued / (PLD_BACKLOG / 2) == halves)) return PLN_OK;
  PLN_TRY(pld_check(cudaEventSynchronize(d->pace), "cudaEventSynchronize"));
  return pld_check(cudaEventRecord(d->pace, d->stream), "cudaEventRecord");
}

static pln_Status dev_launch(pln_Engine *e, const pln_Call *c) {
  pld_Device *d = device_of(e);
  PLN_TRY(pld_check(cudaSetDevice(d->ordinal), "cudaSetDevice"));
  d->number++;
  PLN_TRY(pld_queue(d, 1));
  return c->kernel(c);
}

static pln_Status dev_wait(pln_Engine *e) {
  pld_Device *d = device_of(e);
  pln_Status status = pld_check(cudaStreamSynchronize(d->stream), "waiting for the device");
  d->queued = 0;
  if (status == PLN_OK) take_record(e);
  PLN_TRY(status);
  return postponed(d);
}

static size_t dev_queued(const pln_Engine *e) { return device_of(e)->queued; }

static const char *dev_products(const pln_Engine *e) { return device_of(e)->products; }

/* --- memory --------------------------------------------------------------------------------------- */

static pln_Status dev_alloc(pln_Engine *e, size_t bytes, char **data_p) {
  pld_Device *d = device_of(e);
  *data_p = NULL;
  if (bytes > d->budget - d->bytes) return PLN_ENOMEM;
  (void)cudaSetDevice(d->ordinal);
  bool arena = e->options.arena && !e->has_arena && !d->arena;
  cudaError_t error = !arena       ? cudaMallocAsync((void **)data_p, bytes, d->stream)
                      : d->managed ? cudaMallocManaged((void **)data_p, bytes, cudaMemAttachGlobal)
                                   : cudaMalloc((void **)data_p, bytes);
  if (error != cudaSuccess) {
    (void)cudaGetLastError();
    if (error == cudaErrorMemoryAllocation) return PLN_ENOMEM;
    return pld_check(error, !arena ? "cudaMallocAsync" : d->managed ? "cudaMallocManaged" : "cudaMalloc");
  }
  d->bytes += bytes;
  if (arena) d->arena = *data_p;
  return PLN_OK;
}

static void dev_free(pln_Engine *e, char *data, size_t bytes) {
  pld_Device *d = device_of(e);
  if (!data) return;
  (void)cudaSetDevice(d->ordinal);
  d->bytes -= bytes;
  if (data == d->arena) {
    d->arena = NULL;
    postpone(d, pld_check(cudaStreamSynchronize(d->stream), "waiting for the device"));
    postpone(d, pld_check(cudaFree(data), "cudaFree"));
  } else {
    postpone(d, pld_check(cudaFreeAsync(data, d->stream), "cudaFreeAsync"));
  }
}

/* --- poison --------------------------------------------------------------------------------------- */

static __global__ void fill_words_kernel(uint16_t *data, size_t words, uint16_t word) {
  const size_t first = blockIdx.x * (size_t)blockDim.x + threadIdx.x, step = (size_t)gridDim.x * blockDim.x;
  if (((uintptr_t)data & 3) == 0) { /* two at a time, the odd one last */
    const uint32_t pair = (uint32_t)word << 16 | word;
    for (size_t i = first; i < words / 2; i += step) ((uint32_t *)data)[i] = pair;
    if (first == 0 && words & 1) data[words - 1] = word;
    return;
  }
  for (size_t i = first; i < words; i += step) data[i] = word;
}

static __global__ void guard_kernel(const uint16_t *data, size_t words, uint16_t word, pld_Record *record, unsigned long long number,
                                    unsigned place) {
  PLN_SHARED(unsigned long long, first, );
  if (threadIdx.x == 0) first = ~0ull;
  __syncthreads();
  for (size_t i = threadIdx.x; i < words; i += blockDim.x)
    if (data[i] != word) {
      atomicMin(&first, (unsigned long long)i);
      break;
    }
  __syncthreads();
  if (threadIdx.x == 0 && first != ~0ull && record->number == 0) { /* one block, and launches follow each other */
    record->kind = 1;
    record->place = place;
    record->position = (long long)(2 * first);
    record->number = number;
  }
}

static void dev_fill(pln_Engine *e, char *data, size_t bytes, uint16_t word) {
  pld_Device *d = device_of(e);
  if (bytes < 2) return;
  (void)cudaSetDevice(d->ordinal);
  size_t wanted = bytes / 4 / 256 + 1;
  dim3 grid((unsigned)(wanted < d->blocks ? wanted : d->blocks)), block(256);
  PLN_LAUNCH(fill_words_kernel, grid, block, 0, d->stream, (uint16_t *)data, bytes / 2, word);
  cudaError_t error = cudaGetLastError();
  if (error != cudaSuccess) postpone(d, pld_launch_failed("poison", "fill_words_kernel", grid, block, 0, error));
}

static void dev_guard(pln_Engine *e, char *data, size_t bytes, uint16_t word, uint32_t place) {
  pld_Device *d = device_of(e);
  if (bytes < 2) return;
  (void)cudaSetDevice(d->ordinal);
  dim3 grid(1), block(128);
  PLN_LAUNCH(guard_kernel, grid, block, 0, d->stream, (const uint16_t *)data, bytes / 2, word, d->record, ++d->number, place);
  cudaError_t error = cudaGetLastError();
  if (error != cudaSuccess) postpone(d, pld_launch_failed("red zone", "guard_kernel", grid, block, 0, error));
}

/* --- host access ---------------------------------------------------------------------------------- */

/* Turns to the next piece: its copies must be done before it is written again. */
static pln_Status next_slot(pld_Device *d) {
  PLN_TRY(pld_check(cudaEventRecord(d->event[d->slot], d->stream), "cudaEventRecord"));
  d->slot = (d->slot + 1) % PLD_SLOTS;
  d->used = 0;
  return pld_check(cudaEventSynchronize(d->event[d->slot]), "cudaEventSynchronize");
}

static pln_Status dev_upload(pln_Engine *e, char *data, const void *host, size_t bytes) {
  pld_Device *d = device_of(e);
  const char *from = (const char *)host;
  PLN_TRY(pld_check(cudaSetDevice(d->ordinal), "cudaSetDevice"));
  while (bytes) {
    if (d->used == PLD_SLOT_BYTES) PLN_TRY(next_slot(d));
    size_t n = PLD_SLOT_BYTES - d->used < bytes ? PLD_SLOT_BYTES - d->used : bytes;
    char *piece = d->staging + (size_t)d->slot * PLD_SLOT_BYTES + d->used;
    memcpy(piece, from, n);
    PLN_TRY(pld_check(cudaMemcpyAsync(data, piece, n, cudaMemcpyHostToDevice, d->stream), "upload"));
    d->used = (d->used + n + 63) & ~(size_t)63;
    data += n;
    from += n;
    bytes -= n;
  }
  return PLN_OK;
}

/* Copies go one piece ahead of the host. */
static pln_Status dev_download(pln_Engine *e, void *host, const char *data, size_t bytes) {
  pld_Device *d = device_of(e);
  char *to = (char *)host;
  PLN_TRY(pld_check(cudaSetDevice(d->ordinal), "cudaSetDevice"));
  size_t asked = 0, done = 0, size[PLD_SLOTS];
  int ahead = -1;
  while (done < bytes) {
    int now = ahead;
    if (asked < bytes) {
      PLN_TRY(next_slot(d));
      ahead = d->slot;
      size[ahead] = bytes - asked < PLD_SLOT_BYTES ? bytes - asked : PLD_SLOT_BYTES;
      char *piece = d->staging + (size_t)ahead * PLD_SLOT_BYTES;
      PLN_TRY(pld_check(cudaMemcpyAsync(piece, data + asked, size[ahead], cudaMemcpyDeviceToHost, d->stream), "download"));
      PLN_TRY(pld_check(cudaEventRecord(d->event[ahead], d->stream), "cudaEventRecord"));
      d->used = PLD_SLOT_BYTES; /* taken */
      asked += size[ahead];
    } else {
      ahead = -1;
    }
    if (now < 0) continue;
    PLN_TRY(pld_check(cudaEventSynchronize(d->event[now]), "waiting for the device"));
    memcpy(to + done, d->staging + (size_t)now * PLD_SLOT_BYTES, size[now]);
    done += size[now];
  }
  return dev_wait(e);
}

#if PLN_CUDA_EMULATED
#define DEVICE_NAME "cuda-emu"
#else
#define DEVICE_NAME "cuda"
#endif

const pln_Backend plk_cuda_backend = {
  DEVICE_NAME, false, 256, dev_open, dev_close, dev_launch, dev_wait, dev_alloc, dev_free, dev_fill, dev_guard,
  dev_upload, dev_download, dev_queued, pld_graph_new, pld_graph_run, pld_graph_free, pld_graph_pieces, dev_products,
};
