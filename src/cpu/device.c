/* SPDX-License-Identifier: MIT
** device.c -- the host as a device. An eager engine runs each record at once; a late one (stress) puts it on a stream that runs when
** somebody waits.
*/
#include "device.h"

#include <string.h>

#include "../alloc.h"
#include "../fault.h"
#include "gemm.h"
#include "graph.h"
#include "parallel.h"

/* One table of kernels per instruction set level; kernels/table.c is compiled for each. */
#if defined(__x86_64__)
extern const pln_KernelFn plk_cpu_table_v2[], plk_cpu_table_v3[], plk_cpu_table_v4[];
#else
extern const pln_KernelFn plk_cpu_table_base[];
#endif

static const pln_KernelFn *kernels(void) {
#if defined(__x86_64__)
  const char *isa = pln_gemm_isa();
  return isa[1] == '4' ? plk_cpu_table_v4 : isa[1] == '3' ? plk_cpu_table_v3 : plk_cpu_table_v2;
#else
  return plk_cpu_table_base;
#endif
}

static pln_CpuDevice *device_of(const pln_Engine *e) { return e->device; }

pln_Threads *pln_cpu_threads(const pln_Call *c) { return device_of(c->engine)->threads; }

static pln_Status cpu_open(pln_Engine *e, int ordinal) {
  if (ordinal != 0) return pln_fail(PLN_EARG, "the host is one device: device = %d was asked for", ordinal + 1);
  pln_CpuDevice *d = pln_calloc(1, sizeof *d);
  if (d) d->threads = pln_threads_new(e->options.threads);
  if (!d || !d->threads) {
    pln_mfree(d);
    return pln_fail(PLN_ENOMEM, "out of memory for an engine");
  }
  e->device = d;
  e->kernels = kernels();
  return PLN_OK;
}

static void cpu_close(pln_Engine *e) {
  pln_CpuDevice *d = device_of(e);
  (void)pln_stream_run(e, &d->stream);
  pln_stream_close(&d->stream);
  for (int i = 0; i < PLN_CACHE_CLASSES; i++)
    while (d->cache[i]) {
      char *next;
      memcpy(&next, d->cache[i], sizeof next);
      pln_mfree_aligned(d->cache[i]);
      d->cache[i] = next;
    }
  pln_threads_free(d->threads);
  pln_mfree(d);
  e->device = NULL;
}

static pln_Status cpu_launch(pln_Engine *e, const pln_Call *c) {
  if (PLN_UNLIKELY(e->late)) return pln_stream_call(e, &device_of(e)->stream, c);
  return c->kernel(c);
}

static pln_Status cpu_wait(pln_Engine *e) {
  pln_CpuDevice *d = device_of(e);
  return d->stream.count ? pln_stream_run(e, &d->stream) : PLN_OK;
}

/* bytes is a multiple of the granule, 64 */
static int cache_class(size_t bytes) { return bytes <= 64 * PLN_CACHE_CLASSES ? (int)(bytes / 64) - 1 : -1; }

static pln_Status cpu_alloc(pln_Engine *e, size_t bytes, char **data_p) {
  pln_CpuDevice *d = device_of(e);
  int class = cache_class(bytes);
  if (class >= 0 && d->cache[class]) {
    char *data = d->cache[class];
    memcpy(&d->cache[class], data, sizeof d->cache[class]);
    d->cached[class]--;
    *data_p = data;
    return PLN_OK;
  }
  *data_p = pln_malloc_aligned(bytes);
  return *data_p ? PLN_OK : PLN_ENOMEM;
}

void pln_cpu_release(pln_CpuDevice *d, char *data, size_t bytes) {
  int class = cache_class(bytes);
  if (class >= 0 && d->cached[class] < PLN_CACHE_BLOCKS) {
    memcpy(data, &d->cache[class], sizeof d->cache[class]);
    d->cache[class] = data;
    d->cached[class]++;
  } else {
    pln_mfree_aligned(data);
  }
}

static void cpu_free(pln_Engine *e, char *data, size_t bytes) {
  if (!data) return;
  pln_CpuDevice *d = device_of(e);
  if (e->late)
    (void)pln_stream_free(e, &d->stream, data, bytes);
  else
    pln_cpu_release(d, data, bytes);
}

void pln_cpu_fill(char *data, size_t bytes, uint16_t word) {
  uint64_t pattern = word * UINT64_C(0x0001000100010001);
  size_t i = 0;
  for (; i + 8 <= bytes; i += 8) memcpy(data + i, &pattern, 8);
  if (i < bytes) memcpy(data + i, &pattern, bytes - i);
}

void pln_cpu_guard(pln_Engine *e, const char *data, size_t bytes, uint16_t word, uint32_t place) {
  for (size_t i = 0; i + 2 <= bytes; i += 2) {
    uint16_t found;
    memcpy(&found, data + i, 2);
    if (found != word) {
      pln_engine_guard_fault(e, place, (int64_t)i);
      return;
    }
  }
}

static void cpu_fill(pln_Engine *e, char *data, size_t bytes, uint16_t word) {
  if (e->late && !PLN_FAULT(fill_at_once))
    (void)pln_stream_fill(e, &device_of(e)->stream, data, bytes, word);
  else
    pln_cpu_fill(data, bytes, word);
}

static void cpu_guard(pln_Engine *e, char *data, size_t bytes, uint16_t word, uint32_t place) {
  if (e->late)
    (void)pln_stream_guard(e, &device_of(e)->stream, data, bytes, word, place);
  else
    pln_cpu_guard(e, data, bytes, word, place);
}

static pln_Status cpu_upload(pln_Engine *e, char *data, const void *host, size_t bytes) {
  if (e->late) return pln_stream_upload(e, &device_of(e)->stream, data, host, bytes);
  memcpy(data, host, bytes);
  return PLN_OK;
}

static pln_Status cpu_download(pln_Engine *e, void *host, const char *data, size_t bytes) {
  if (!PLN_FAULT(no_wait)) PLN_TRY(cpu_wait(e));
  memcpy(host, data, bytes);
  return PLN_OK;
}

static size_t cpu_queued(const pln_Engine *e) { return device_of(e)->stream.calls; }

const pln_Backend pln_cpu_backend = {
  .device = "cpu",
  .host_memory = true,
  .granule = PLN_ALIGN,
  .open = cpu_open,
  .close = cpu_close,
  .launch = cpu_launch,
  .wait = cpu_wait,
  .alloc = cpu_alloc,
  .free = cpu_free,
  .fill = cpu_fill,
  .guard = cpu_guard,
  .upload = cpu_upload,
  .download = cpu_download,
  .queued = cpu_queued,
  .graph_new = pln_cpu_graph_new,
  .graph_run = pln_cpu_graph_run,
  .graph_free = pln_cpu_graph_free,
  .graph_pieces = pln_cpu_graph_pieces,
};
