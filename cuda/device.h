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

/* In `number` at the end of a replay: its launches have the numbers of the next replay's, whose faults come later. */
#define PLD_SEALED (1ull << 63)

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
  bool graphs;             /* captures become CUDA graphs: not with PERILUNE_CUDA_GRAPHS=0 or `debug` */
  bool managed;            /* the arena is managed memory */
  bool loading;            /* kernels are loaded instead of launched, for a capture to come */
  bool reports;            /* since it was cleared a launch was prepared that may record a fault */
  unsigned blocks;         /* that fill the device several times over: the largest grid of a grid-stride loop */
  cudaStream_t stream;
  cudaMemPool_t pool;
  char *arena;
  size_t bytes, budget;    /* in use, allowed */
  pld_Record *record;
  uint64_t number;         /* of launches */
  size_t queued;           /* calls since the last wait, those of graphs included */
  cudaEvent_t pace;        /* half a backlog ago */
  pln_Status failed;       /* of a call that could not report it; the text waits in `why` */
  char why[PLN_MAX_ERROR];
  char *staging;           /* PLD_SLOTS pinned pieces, used in turn */
  cudaEvent_t event[PLD_SLOTS]; /* the copies of the piece are done */
  int slot;                /* in use, */
  size_t used;             /* filled so far */
  void *blas;              /* cuBLAS's handle; NULL: the own kernel makes all products */
  char *workspace;         /* that it has */
  cudaStream_t blas_stream; /* that it works on */
  char products[512];      /* which library makes them, or why none does */
} pld_Device;

static inline pld_Device *pld_device(const pln_Call *c) { return (pld_Device *)c->engine->device; }

/* PLN_OK, or PLN_EDEVICE (PLN_ENOMEM for memory) with what failed, the error's name and its text. Clears it. */
pln_Status pld_check(cudaError_t error, const char *what);
/* After a launch: its error, or with `debug` that of its run, with op, kernel and launch shape. */
pln_Status pld_launched(const pln_Call *c, const char *kernel, dim3 grid, dim3 block, size_t shared);
/* PLN_EDEVICE with all of that and the error's name and text. Clears it. */
pln_Status pld_launch_failed(const char *op, const char *kernel, dim3 grid, dim3 block, size_t shared, cudaError_t error);
/* For a launch that may record a fault. */
pld_Site pld_site(const pln_Call *c);
/* Copies within the device; apart from launches the only thing that a kernel function may do. */
pln_Status pld_copy(const pln_Call *c, void *to, const void *from, size_t bytes);
/* Counts calls that are about to be queued, and waits when too many are. */
pln_Status pld_queue(pld_Device *d, size_t calls);
/* Loads a kernel, which the driver else does at its first launch: too late in a capture. */
pln_Status pld_load(const void *kernel, const char *name);
const char *pld_op_name(const pln_Call *c);
/* The core's flag (interrupt.h), module.cu. */
bool pld_interrupted();

/* The graph functions of the backend (engine.h), graph.cu. */
pln_Status pld_graph_new(pln_Engine *e, pln_Call *const *calls, size_t ncalls, void **graph_p);
pln_Status pld_graph_run(pln_Engine *e, void *graph, uint64_t n, uint64_t *done_p);
void pld_graph_free(pln_Engine *e, void *graph);
size_t pld_graph_pieces(const pln_Engine *e, const void *graph);

/* cuBLAS for a stream that is open, blas.cu; without it `products` says why. The caller's device must be current. */
void pld_blas_open(pld_Device *d, bool tf32);
void pld_blas_close(pld_Device *d);
/* A call of the kernel `matmul`; *done_p: whether cuBLAS took it, else the own kernel must. */
pln_Status pld_blas_matmul(const pln_Call *c, bool *done_p);

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

template <class K> static inline pln_Status pld_load_kernel(K *kernel, const char *name) { return pld_load((const void *)kernel, name); }

/* Launches and returns from the caller on an error. */
#define PLD_LAUNCH(c, kernel, grid, block, shared, ...)                                     \
  do {                                                                                      \
    dim3 grid_(grid), block_(block);                                                        \
    if (PLN_UNLIKELY(pld_device(c)->loading)) {                                             \
      PLN_TRY(pld_load_kernel(kernel, #kernel));                                            \
      break;                                                                                \
    }                                                                                       \
    PLN_LAUNCH(kernel, grid_, block_, shared, pld_device(c)->stream, __VA_ARGS__);          \
    PLN_TRY(pld_launched(c, #kernel, grid_, block_, shared));                               \
  } while (0)

#endif
