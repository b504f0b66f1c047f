/* SPDX-License-Identifier: MIT
** gpu.c -- finds and loads GPU modules: they lie beside the library that this file is in. A module stays loaded.
*/
#define _GNU_SOURCE /* dladdr */
#include "gpu.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#include "alloc.h"
#include "interrupt.h"

typedef struct Slot {
  const char *kind, *file;
  int tried;
  const pln_GpuModule *module;
  char reason[512];
} Slot;

static Slot slots[] = {{.kind = "cuda", .file = "cuda.so"}, {.kind = "cuda-emu", .file = "cuda_emu.so"}};

/* Fills in the module, or the reason why there is none. */
static void load(Slot *s) {
  static const pln_GpuHost host = {PLN_GPU_LAYOUT, pln_fail, pln_error, pln_calloc, pln_mfree, &pln_interrupted};
  char path[4096];
  Dl_info here;
  if (!dladdr((void *)slots, &here) || !here.dli_fname) {
    snprintf(s->reason, sizeof s->reason, "the folder of the core library is not known");
    return;
  }
  const char *slash = strrchr(here.dli_fname, '/');
  snprintf(path, sizeof path, "%.*s%s", slash ? (int)(slash - here.dli_fname) + 1 : 0, here.dli_fname, s->file);
  FILE *f = fopen(path, "rb");
  if (!f) {
    snprintf(s->reason, sizeof s->reason, "it was not built (%s is missing)", s->file);
    return;
  }
  fclose(f);
  void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (!library) {
    snprintf(s->reason, sizeof s->reason, "%s", dlerror());
    return;
  }
  pln_GpuEntry entry;
  void *symbol = dlsym(library, PLN_GPU_ENTRY);
  memcpy(&entry, &symbol, sizeof entry);
  s->module = entry ? entry(&host) : NULL;
  if (!s->module) snprintf(s->reason, sizeof s->reason, "%s was built from other sources", s->file);
}

const pln_Backend *pln_gpu_backend(const char *kind, const char **reason_p) {
  for (size_t i = 0; i < sizeof slots / sizeof *slots; i++) {
    Slot *s = &slots[i];
    if (strcmp(s->kind, kind) != 0) continue;
    if (!s->tried) {
      s->tried = 1;
      load(s);
      const char *reason = s->module ? s->module->reason() : NULL;
      if (reason) {
        snprintf(s->reason, sizeof s->reason, "%s", reason);
        s->module = NULL;
      }
    }
    *reason_p = s->reason;
    return s->module ? s->module->backend : NULL;
  }
  *reason_p = "there is no such kind";
  return NULL;
}
