/* SPDX-License-Identifier: MIT
** gpu.h -- the contract between the core and a GPU module: a shared library beside the core's that holds one backend and whatever
** runtime it needs, with all its names to itself.
**
** "cuda" (cuda.so) has NVIDIA's static runtime inside, "cuda-emu" (cuda_emu.so) the emulator; both define the same symbols, so
** neither may be linked with the core. A module gets what it needs of the core in a table and gives its backend in another.
*/
#ifndef PLN_GPU_H
#define PLN_GPU_H

#include <signal.h>

#include "engine.h"

/* What the core lends. */
typedef struct pln_GpuHost {
  uint64_t layout; /* PLN_GPU_LAYOUT of the core */
  pln_Status (*fail)(pln_Status status, const char *fmt, ...);
  const char *(*error)(void);
  void *(*calloc)(size_t count, size_t bytes);
  void (*mfree)(void *p);
  const volatile sig_atomic_t *interrupted; /* interrupt.h */
} pln_GpuHost;

/* What a module offers. */
typedef struct pln_GpuModule {
  const pln_Backend *backend;
  const char *(*reason)(void); /* why no engine can be made on this machine; NULL if one can */
} pln_GpuModule;

/* Tells apart modules that were compiled against other headers. */
#define PLN_GPU_LAYOUT \
  ((uint64_t)sizeof(pln_Engine) << 40 ^ (uint64_t)sizeof(pln_Call) << 20 ^ (uint64_t)sizeof(pln_Backend) << 10 ^ \
   (uint64_t)sizeof(pln_GpuHost) << 30 ^ (uint64_t)PLN_NOPS)

/* The module's one name. NULL when the layouts differ. */
#define PLN_GPU_ENTRY "pln_gpu_module"
typedef const pln_GpuModule *(*pln_GpuEntry)(const pln_GpuHost *host);

/* The backend "cuda" or "cuda-emu", loaded at the first call; or NULL and in *reason_p why there is none, a text that stays. */
const pln_Backend *pln_gpu_backend(const char *kind, const char **reason_p);

#endif
