/* SPDX-License-Identifier: MIT
** arena.h -- memory with the lifetime of an epoch (C2-C4, C7-C9).
**
** One range of device memory. Blocks are cut off its top by bumping; blocks freed within the epoch go to bins by size
** class (two levels of bits: Masmano et al., "TLSF", ECRTS 2004) and merge with free neighbours. A reset drops every block
** of the current level in O(1), whatever their number, and then rebuilds the gaps between the held ones (pins,
** captures), which stay in place: O(held). Nothing here touches the memory itself: fills, guards and
** overflow go through the device, ordered on the engine's stream, so bookkeeping may run ahead of the stream.
**
** Levels are nested scopes, level 0 the outermost. An inner level gets what is above the outer one's top; when it ends
** its memory goes back, except held blocks, which move to the outer level and live until its next reset after
** the last unpin. Blocks of an outer level freed meanwhile return to that level's bins and are reused
** only when it is the current one again.
**
** A gap is described by a pln_Storage of the same pool, and every gap that a reset has to describe was covered by at least one
** such object before: the slots that a rewind gives back suffice, so a reset needs no memory and cannot fail.
*/
#ifndef PLN_ARENA_H
#define PLN_ARENA_H

#include <stdbool.h>

#include "pool.h"
#include "storage.h"

#define PLN_MAX_DEPTH 64
#define PLN_ARENA_MIN 4096 /* bytes */
#define PLN_BIN_COUNT 512 /* 64 powers of two by 8 */

/* What the arena asks of its device. Every call is ordered on the engine's stream. Addresses and sizes of fills and guards
** are even, not more. */
typedef struct pln_ArenaDevice {
  void *context;
  /* `bytes` > 0, aligned to PLN_ALIGN at least. PLN_ENOMEM sets no message. */
  pln_Status (*alloc)(void *context, size_t bytes, char **data_p);
  void (*free)(void *context, char *data, size_t bytes);
  void (*fill)(void *context, char *data, size_t bytes, uint16_t word);
  /* Checks that the range still holds `word`; if not, an error is recorded on the stream that names the place. */
  void (*guard)(void *context, char *data, size_t bytes, uint16_t word, uint32_t place);
} pln_ArenaDevice;

typedef struct pln_Poison {
  bool on_reset, on_free, on_alloc;
  uint16_t word;    /* 0x7FF8 unless told otherwise */
  uint32_t redzone; /* at least so many guard bytes after each block, with what rounding adds; 0 = none */
} pln_Poison;

/* "In all": since the arena was made. Bytes of blocks are rounded ones, red zones included, unless said otherwise. */
typedef struct pln_ArenaStats {
  uint64_t resets;          /* in all, ends of scopes not counted */
  uint64_t allocs;          /* requests served in all, */
  uint64_t reuses;          /* those of them that took a freed block */
  uint64_t misses;          /* requests in all for which the arena had no room: overflowed or refused */
  uint64_t frees;           /* blocks given back before their epoch's end, */
  uint64_t deferred_frees;  /* those of them that had to wait for the last unpin */
  uint64_t stale_frees;     /* late frees that did nothing (C4); counted by whoever checks the handle */
  uint64_t pins;            /* pins not undone yet; two on one block are two */
  uint64_t pinned_bytes, pinned_high_water; /* of the blocks with a pin or capture, wherever they lie */
  uint64_t overflow_bytes, overflow_blocks, overflow_high_water; /* alive now; the mark is in bytes */
  uint64_t high_water;      /* largest offset ever */
  uint64_t largest_alloc;   /* bytes asked, in all */
  uint64_t epoch_allocs;    /* since the current level was last reset or opened, inner scopes included; */
  uint64_t epoch_largest;   /* bytes asked */
  uint64_t live_bytes, live_blocks; /* in the arena, all levels: handed out and neither freed nor reset */
  uint64_t free_bytes;      /* capacity - live_bytes */
  uint64_t poisoned_bytes;  /* filled in all, red zones included */
  size_t first_overflow;    /* bytes asked by the first overflow of the current level's epoch, 0 none */
} pln_ArenaStats;

typedef struct pln_ArenaLevel {
  uint64_t epoch;          /* compared with a tensor's; only ever grows */
  pln_Storage *first;      /* neighbours by address, from the level's lower end to `top` */
  uint64_t bits;           /* powers of two with a free block */
  size_t begin;            /* offset where the level begins */
  size_t largest;          /* bytes asked at most in this epoch */
  uint64_t blocks;         /* live ones in the arena */
  size_t binned;           /* bytes in bins */
  size_t touched;          /* nothing above it was handed out since it was last poisoned, but see note_top */
  uint64_t allocs_before;  /* stats.allocs when the epoch began */
  size_t first_overflow;   /* of this level, while an inner one is current */
  pln_Storage top;         /* the free block at the upper end, of 0 bytes while an inner level is open; in no pool */
  pln_Storage *held;       /* blocks with a pin or capture, and survivors (pin_next) */
  pln_Storage *overflow;   /* overflow blocks (next) */
  pln_Storage *empty;      /* blocks without bytes (next) */
  pln_PoolMark storages, tensors; /* where the pools stood when the level began; none with keep_headers */
  uint32_t place;          /* Lua line of scope */
  uint8_t subbits[64];     /* which of a power's eight classes have a free block; valid where `bits` is set */
  pln_Storage *bin[PLN_BIN_COUNT]; /* valid where subbits is set */
} pln_ArenaLevel;

typedef struct pln_Arena {
  char *base;
  size_t capacity;         /* a multiple of PLN_ALIGN */
  size_t granule;          /* bytes to which blocks are rounded and aligned: 64 on the host, 256 on a GPU */
  pln_ArenaDevice device;
  pln_Poison poison;
  pln_Pool *storages, *tensors;
  struct pln_Engine *engine;
  bool keep_headers;       /* stale = "allow": headers of dead blocks stay readable, pools are not rewound */
  pln_Storage *spare;      /* then one descriptor in store for each live block: resets cannot fail (next) */
  uint64_t spares;
  int depth;
  pln_ArenaLevel *level[PLN_MAX_DEPTH]; /* made at first use, freed at close: their epochs must last */
  pln_ArenaStats stats;    /* read with pln_arena_stats, which fills in the rest; stale_frees and first_overflow are good here */
} pln_Arena;

/* `base` is owned by the caller and aligned to `granule`. The pools are rewound by resets; persistent and owned things live
** in others. keep_headers may be set before the first block is made. PLN_EARG, PLN_ENOMEM. */
pln_Status pln_arena_init(pln_Arena *a, char *base, size_t capacity, size_t granule, const pln_ArenaDevice *device,
                          pln_Pool *storages, pln_Pool *tensors, struct pln_Engine *engine);
/* New settings, between ops; with on_alloc newly set, what is free now is filled. Blocks made before red zones were on have none; the
** zones of others are checked and filled anew when the word changes. */
void pln_arena_poison(pln_Arena *a, const pln_Poison *poison);
/* Frees overflow blocks and the arena's own memory, epoch words included: handles end with the pools' close. */
void pln_arena_close(pln_Arena *a);

/* A live block of the current level, refs = 1 (for the tensor about to show it), no tensors listed, home PLN_HOME_ARENA.
** `bytes` = 0 gives data NULL and takes no memory. Out of arena: overflow (reported through stats.first_overflow),
** unless `no_overflow`, then PLN_ENOMEM. The message of PLN_ENOMEM says what C7 wants. `place` is 0: set it before the next call. */
pln_Status pln_arena_alloc(pln_Arena *a, size_t bytes, bool no_overflow, pln_Storage **storage_p);
/* Gives a live block of a live epoch back (C4); a held one becomes free at its last unpin instead. No header may be listed any
** more. Afterwards the object may describe a gap or another block. */
void pln_arena_free(pln_Arena *a, pln_Storage *s);
void pln_arena_pin(pln_Arena *a, pln_Storage *s);
/* s->pins > 0. Frees the block if nobody refers to it any more. */
void pln_arena_unpin(pln_Arena *a, pln_Storage *s);
/* A capture takes or drops the block (counted): held like a pinned one. */
void pln_arena_capture(pln_Arena *a, pln_Storage *s);
void pln_arena_uncapture(pln_Arena *a, pln_Storage *s);

/* A header on this block was made while an inner level is current and had its `kept` flag set, so that the inner rewinds
** spare it: the reset that ends the block shall clear the flag. */
void pln_arena_note(pln_Arena *a, pln_Storage *s);

/* Ends the epoch of the current level. Cannot fail. */
void pln_arena_reset(pln_Arena *a);
/* PLN_EARG when nested deeper than PLN_MAX_DEPTH, PLN_ENOMEM. */
pln_Status pln_arena_scope_open(pln_Arena *a);
void pln_arena_scope_close(pln_Arena *a);

pln_ArenaStats pln_arena_stats(const pln_Arena *a);
/* Offset of the current top. */
size_t pln_arena_offset(const pln_Arena *a);
/* Of the current level. */
size_t pln_arena_largest_free(const pln_Arena *a);
/* Walks what lies where, by address, all levels: arena blocks and gaps, then overflow blocks. */
void pln_arena_walk(const pln_Arena *a, void (*visit)(void *context, const pln_Storage *s), void *context);
/* For tests: "" or what is inconsistent (neighbours, bins, bits, counts, no lost byte, no overlap). O(blocks). */
const char *pln_arena_check(const pln_Arena *a);

static inline pln_ArenaLevel *pln_arena_level(const pln_Arena *a) { return a->level[a->depth]; }

#endif
