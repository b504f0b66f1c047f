/* SPDX-License-Identifier: MIT
** device.h -- what the CUDA device and its kernel files share: the state behind an engine, checks, launches.
**
** The same text is the device "cuda" (nvcc) and "cuda-emu" (cuda/emulator). Kernels get records by value and device addresses only.
*/
#ifndef PLN_CUDA_DEVICE_H
#define PLN_CUDA_DEVICE_H

#include "cuda_port.h"

extern "C" {
#include "alloc.h"
#include "engine.h"
}

/* The first fault that data caused, in pinned memory that kernels write and a wait reads. Of the launch that came first the
** smallest position is kept, whatever the order of threads. */
typedef struct pld_Record {
  unsigned lock;
  unsigned kind, op, place;
  int input;
  unsigned long long number; /* of the launch; 0: no fault */
  long long position, value, lo, hi;
} pld_Record;

/* What a kernel says about itself when it reports a fault. */
typedef struct pld_Site {
  pld_Record *record;
  uint64_t number;
  uint32_t place;
  uint16_t op;
  uint16_t kind;
} pld_Site;

#define PLD_BACKLOG 2048 /* launches that may wait: what queues up holds memory */
#define PLD_SLOTS 4
#define PLD_SLOT_BYTES (1 << 20)

typedef struct pld_Device {
  int ordinal;
  bool debug;              /* wait after each launch: PERILUNE_CUDA_SYNC=1 */
  unsigned blocks;         /* that fill the device several times over: the largest grid of a grid-stride loop */
  cudaStream_t stream;
  cudaMemPool_t pool;
  char *arena;
  size_t bytes, budget;    /* in use, allowed */
  pld_Record *record;
  uint64_t number;         /* of launches */
  size_t queued;           /* calls since the last wait */
  cudaEvent_t pace;        /* half a backlog ago */
  pln_Status failed;       /* of a call that could not report it; the text waits in `why` */
  char why[PLN_MAX_ERROR];
  char *staging;           /* PLD_SLOTS pinned pieces, used in turn */
  cudaEvent_t event[PLD_SLOTS]; /* the copies of the piece are done */
  int slot;                /* in use, */
  size_t used;             /* filled so far */
} pld_Device;

static inline pld_Device *pld_device(const pln_Call *c) { return (pld_Device *)c->engine->device; }

/* PLN_OK, or PLN_EDEVICE (PLN_ENOMEM for memory) with what failed, the error's name and its text. Clears it. */
pln_Status pld_check(cudaError_t error, const char *what);
/* After a launch: its error, or with `debug` that of its run, with op, kernel and launch shape. */
pln_Status pld_launched(const pln_Call *c, const char *kernel, dim3 grid, dim3 block, size_t shared);
pld_Site pld_site(const pln_Call *c);
const char *pld_op_name(const pln_Call *c);

extern "C" const pln_KernelFn plk_cuda_table[];
extern "C" const pln_Backend plk_cuda_backend;
/* Why no engine can be made here; NULL if one can. */
extern "C" const char *plk_cuda_reason(void);

/* Blocks of `threads` for n > 0 pieces of work in a grid-stride loop. */
static inline unsigned pld_blocks(const pln_Call *c, int64_t n, int threads) {
  int64_t wanted = (n + threads - 1) / threads;
  unsigned most = pld_device(c)->blocks;
  return wanted < (int64_t)most ? (unsigned)wanted : most;
}

/* Launches and returns from the caller on an error. */
#define PLD_LAUNCH(c, kernel, grid, block, shared, ...)                                     \
  do {                                                                                      \
    dim3 grid_(grid), block_(block);                                                        \
    PLN_LAUNCH(kernel, grid_, block_, shared, pld_device(c)->stream, __VA_ARGS__);          \
    PLN_TRY(pld_launched(c, #kernel, grid_, block_, shared));                               \
  } while (0)

#endif
