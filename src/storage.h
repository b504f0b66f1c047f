/* SPDX-License-Identifier: MIT
** storage.h -- a block of memory and all that is known of it. Type-stable (pool.h): may be read when stale.
**
** The same struct describes an arena block (live or free), an overflow block, and memory that a tensor owns.
** `tensors` lists every header that shows this block, base and views alike; whoever ends or moves the block
** walks it, so that checking a tensor is two compares (tensor.h).
*/
#ifndef PLN_STORAGE_H
#define PLN_STORAGE_H

#include <stdbool.h>
#include <stddef.h>

#include "pool.h"

/* The bench builds the module without the stale check and the bookkeeping of pins, too, to tell what they cost. Only its loops run there. */
#ifdef PLN_UNCHECKED
#define PLN_CHECKED 0
#else
#define PLN_CHECKED 1
#endif

typedef enum pln_Home { PLN_HOME_ARENA, PLN_HOME_PERSISTENT, PLN_HOME_OWNED } pln_Home;

typedef enum pln_StorageState {
  PLN_STORAGE_FREE, /* an arena gap, or an unused slot */
  PLN_STORAGE_LIVE,
  PLN_STORAGE_DEAD /* its memory is gone, but headers still show it (stale = "allow") */
} pln_StorageState;

typedef struct pln_Storage {
  pln_Object object;
  char *data;              /* device address; NULL for zero bytes */
  size_t bytes;            /* size of the block, guard included */
  size_t asked;            /* bytes that the tensor may touch */
  struct pln_Tensor *tensors;
  uint64_t version;        /* raised by every write (C1) */
  struct pln_Engine *engine;
  uint32_t pins;           /* C3: manual pins and those of the tape */
  uint32_t tape_pins;      /* the tape's among them */
  uint32_t captures;       /* captures that hold it (C6) */
  uint32_t refs;           /* headers alive; at 0 the block is freed as soon as it is not pinned */
  uint8_t depth;           /* scope that it belongs to, 0 outermost */
  uint8_t state, home;
  uint8_t overflow;        /* arena lifetime, memory from the device's pool */
  uint8_t survivor;        /* it or a header of it is kept (pool.h): on its level's held list until the next reset */
  uint8_t guarded;         /* what follows the asked bytes is a red zone */
  uint16_t version_op;     /* the op that wrote last (pln_OpId) */
  uint32_t version_place;  /* and its Lua line, 0 unknown */
  uint32_t place;          /* Lua line that made it, 0 unknown */
  uint32_t capture_use;    /* index in the capture under way, */
  uint64_t capture;        /* if this is its serial */
  uint8_t capture_shown;   /* made in it, and Lua has or had a value for it */
  /* links of the arena: neighbours by address; the bin of free blocks, or the level's list of overflow blocks or of
  ** blocks without bytes; the level's list of held blocks and survivors */
  struct pln_Storage *before, *after;
  struct pln_Storage *prev, *next;
  struct pln_Storage *pin_prev, *pin_next;
} pln_Storage;

static inline int pln_storage_held(const pln_Storage *s) { return s->pins != 0 || s->captures != 0; }

#endif
