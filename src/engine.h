/* SPDX-License-Identifier: MIT
** engine.h -- an engine is a device plus a memory policy; a runtime (one per Lua state) owns what outlives engines.
*/
#ifndef PLN_ENGINE_H
#define PLN_ENGINE_H

#include "arena.h"
#include "op.h"

/* What a device offers. One stream per engine; every call is ordered on it. All functions may be called only from the thread of the Lua state. */
typedef struct pln_Backend {
  const char *device;          /* "cpu", "cuda", "cuda-emu" */
  bool host_memory;            /* tensor memory can be read by the host after wait */
  size_t granule;              /* alignment of blocks in bytes */
  pln_Status (*open)(struct pln_Engine *e, int ordinal);   /* sets e->device and e->kernels */
  void (*close)(struct pln_Engine *e);                     /* all memory was freed before */
  /* Runs or queues the record; it may be on the caller's stack. */
  pln_Status (*launch)(struct pln_Engine *e, const pln_Call *c);
  pln_Status (*wait)(struct pln_Engine *e);
  /* Memory that lives until free is reached on the stream. PLN_ENOMEM sets no message. */
  pln_Status (*alloc)(struct pln_Engine *e, size_t bytes, char **data_p);
  void (*free)(struct pln_Engine *e, char *data, size_t bytes);
  void (*fill)(struct pln_Engine *e, char *data, size_t bytes, uint16_t word);
  void (*guard)(struct pln_Engine *e, char *data, size_t bytes, uint16_t word, uint32_t place);
  /* Copies `bytes` from the host: the source may go as soon as this returns, the write is ordered on the stream. */
  pln_Status (*upload)(struct pln_Engine *e, char *data, const void *host, size_t bytes);
  /* Waits, then copies to the host. */
  pln_Status (*download)(struct pln_Engine *e, void *host, const char *data, size_t bytes);
  size_t (*queued)(const struct pln_Engine *e);            /* calls not run yet */
  /* Captures (C6); all NULL where records are launched one by one. The records stay where they are until graph_free, their launch
  ** numbers are the device's to set. */
  pln_Status (*graph_new)(struct pln_Engine *e, pln_Call *const *calls, size_t ncalls, void **graph_p); /* NULL: one by one */
  /* Runs or queues it n times; *done_p counts whole steps. PLN_EINTERRUPT, without a message, when interrupted between two. */
  pln_Status (*graph_run)(struct pln_Engine *e, void *graph, uint64_t n, uint64_t *done_p);
  void (*graph_free)(struct pln_Engine *e, void *graph);
  /* Pieces that run one after the other in a step: records, or several of them fused. */
  size_t (*graph_pieces)(const struct pln_Engine *e, const void *graph);
  /* Which library computes matrix products, and why no other; as long as the engine. NULL: there is one way only. */
  const char *(*products)(const struct pln_Engine *e);
} pln_Backend;

typedef struct pln_ResetEntry { /* runs of resets at one place and depth, for messages */
  uint64_t serial;              /* the newest object when the last of the run happened */
  uint64_t epoch;
  uint32_t place;
  uint16_t depth;
  uint16_t kind;                /* 0 reset, 1 end of scope */
} pln_ResetEntry;

#define PLN_RESET_LOG 4096
#define PLN_SURVIVOR_LOG 256
#define PLN_TOMBSTONES 1024

/* What is remembered of an engine beyond its close. */
typedef struct pln_EngineRecord {
  struct pln_Engine *engine; /* NULL once closed */
  char kind[24];
  uint32_t closed_place;
  uint64_t stale_frees;
  pln_ResetEntry *log;       /* ring */
  uint32_t nlog, log_begin;
  pln_ResetEntry *survivor;  /* ring: what ended a tensor (`serial`) that an earlier reset had spared */
  uint32_t nsurvivor;        /* entries ever made */
} pln_EngineRecord;

typedef struct pln_Runtime {
  uint64_t serial;           /* last one issued */
  uint64_t ends;             /* resets, ends of scopes, frees, closes: what was alive before one may not be after it */
  pln_Slabs *tensor_slabs, *storage_slabs;
  pln_EngineRecord **engines; /* by id */
  uint32_t nengines, capengines;
  uint64_t holds;            /* 1 for the Lua state and one per handle with a finalizer */
} pln_Runtime;

pln_Runtime *pln_runtime_new(void);
void pln_runtime_hold(pln_Runtime *r);
/* Frees the runtime with the last hold; engines still open are closed then. */
void pln_runtime_drop(pln_Runtime *r);

/* The reset or end of scope under way ends t, which survived an earlier one: remembered for messages. */
void pln_engine_survivor_ended(struct pln_Engine *e, const pln_Tensor *t);

/* Reasons for an op to leave the straight path; zero in the common case. */
enum {
  PLN_HOOK_TAPE = 1,    /* gradients are recorded: some tensor of this engine requires grad */
  PLN_HOOK_CAPTURE = 2,
  PLN_HOOK_POISON = 4,
  PLN_HOOK_PLACES = 8,
  PLN_HOOK_REPORT = 16     /* the first overflow of an epoch waits to be reported */
};

typedef struct pln_StreamError { /* C11: the first error that only data could tell; written by kernels */
  int set;                       /* 0 none */
  int kind;                      /* 0 value out of range, 1 red zone */
  uint16_t op;
  int input;
  uint32_t place;
  int64_t position, value, lo, hi;
  uint64_t call;                 /* number of the call: a later one never replaces it */
} pln_StreamError;

typedef struct pln_EngineOptions {
  const char *kind;        /* as the user named it, for messages */
  int ordinal;             /* device, 0-based */
  bool late;               /* host stream that runs when somebody waits */
  size_t arena;            /* bytes; 0 = no arena */
  pln_Poison poison;
  bool stale_allow, places, test;
  bool no_plans;           /* every call is prepared anew */
  bool managed;            /* the arena in memory that host and device share; backends that cannot refuse it */
  bool tf32;               /* products of f32 may round their operands to TF32 */
  int threads;             /* 0 = as many as cores */
  uint64_t seed;
  int graph_resets;
} pln_EngineOptions;

typedef struct pln_Engine {
  uint32_t hooks;
  uint8_t has_arena, test, late, closed;
  uint16_t id;
  const pln_KernelFn *kernels; /* by op id */
  const pln_Backend *backend;
  void *device;
  uint64_t forever;            /* epoch of persistent and owned tensors; changes only at close */
  pln_Runtime *runtime;
  pln_EngineOptions options;
  pln_Arena arena;             /* has_arena */
  char *arena_base;
  pln_Pool tensors, storages;  /* arena lifetime */
  pln_Pool own_tensors, own_storages;
  pln_Storage *owned;          /* list of owned and persistent storages (prev/next), for close */
  int depth;                   /* scopes; counted without an arena too */
  uint64_t calls;              /* records launched */
  uint64_t planned;            /* calls and views that had a plan */
  uint64_t draw;               /* C10: the next draw number */
  uint64_t fallbacks;
  uint64_t owned_bytes;        /* alive */
  uint64_t owned_since;        /* made since the collector was last told */
  uint64_t count_resets, count_pins; /* on an engine without arena resets and pins only count */
  struct pln_Plans *plans;     /* plan.h; NULL before the first op */
  struct pln_Tape *tape;
  struct pln_Pass *pass;       /* the backward that is being written down (autograd/pass.h), NULL mostly */
  bool no_record;              /* gradients are not to be recorded at present */
  struct pln_Capture *capture;  /* recording now */
  struct pln_Capture *captures; /* not released yet */
  pln_StreamError error;
  uint64_t error_lock;         /* spin lock of pln_call_fault */
  bool overflow_reported;      /* first-overflow report given in this epoch */
  struct { pln_Tensor *t; uint64_t serial; } tombs[PLN_TOMBSTONES]; /* ring */
  uint32_t tomb;
} pln_Engine;

/* A new engine; options are copied. */
pln_Status pln_engine_new(pln_Runtime *r, const pln_Backend *backend, const pln_EngineOptions *options, pln_Engine **e_p);
/* Waits, frees everything, returns the headers to the runtime; every tensor of it is dead then. The struct goes too. A pending stream
** error is returned, the engine is closed all the same. */
pln_Status pln_engine_close(pln_Engine *e, uint32_t place);
/* C11: waits for the stream and raises (and clears) a recorded error. */
pln_Status pln_engine_sync(pln_Engine *e);
/* The same without waiting. */
pln_Status pln_engine_raise(pln_Engine *e);
/* C2: ends the epoch of the current scope. */
pln_Status pln_engine_reset(pln_Engine *e, uint32_t place);
pln_Status pln_engine_scope_open(pln_Engine *e, uint32_t place);
pln_Status pln_engine_scope_close(pln_Engine *e, uint32_t place);
pln_Status pln_engine_pin(pln_Engine *e, pln_Tensor *t);
/* PLN_EPIN when the block has no pin. */
pln_Status pln_engine_unpin(pln_Engine *e, pln_Tensor *t);
pln_Status pln_engine_poison(pln_Engine *e, const pln_Poison *poison);
/* Remembers a header freed by hand, so that its slot is reused only after many more such frees and a later use can say where. */
void pln_engine_tombstone(pln_Engine *e, pln_Tensor *t);
/* Pins the storage for the tape or a capture, whatever its home. */
void pln_storage_pin(pln_Storage *s);
void pln_storage_unpin(pln_Storage *s);
/* Holds it for a capture, counted like pins. */
void pln_storage_capture(pln_Storage *s);
void pln_storage_uncapture(pln_Storage *s);

/* For the device's guard check: byte `position` of the red zone of the block made at `place` was overwritten. */
void pln_engine_guard_fault(pln_Engine *e, uint32_t place, int64_t position);

/* Values between host and tensor; `host` is row-major, of the tensor's dtype. Write: copied before it returns. */
pln_Status pln_tensor_write(pln_Tensor *t, const void *host);
pln_Status pln_tensor_read(pln_Tensor *t, void *host);
/* One element by its offset in elements from element 0. */
pln_Status pln_tensor_read_at(pln_Tensor *t, int64_t offset, void *host);
pln_Status pln_tensor_write_at(pln_Tensor *t, int64_t offset, const void *host);
/* Marks a write for version checks (C1): every op does it for its destinations. */
static inline void pln_tensor_written(pln_Tensor *t, pln_OpId op, uint32_t place) {
  t->storage->version++;
  t->storage->version_op = (uint16_t)op;
  t->storage->version_place = place;
}

/* Backends built into the core (src/cpu). */
extern const pln_Backend pln_cpu_backend;

#endif
