/* SPDX-License-Identifier: MIT
** tensor.h -- the header of a tensor: shape, strides, dtype and the storage it shows. Type-stable (pool.h).
**
** A Lua handle keeps (header, serial). The header is the one meant iff its serial agrees, and its memory is alive
** iff `epoch == *live`: `live` is the epoch of its arena level, or for persistent and owned tensors a word that
** changes only when the engine closes. Freeing sets epoch to PLN_EPOCH_FREED, which no level ever has.
*/
#ifndef PLN_TENSOR_H
#define PLN_TENSOR_H

#include "dtype.h"
#include "pool.h"
#include "shape.h"
#include "storage.h"

#define PLN_EPOCH_FREED 0

typedef struct pln_Tensor {
  pln_Object object;
  uint64_t epoch;
  const uint64_t *live;
  char *data;                  /* address of element 0 */
  pln_Storage *storage;
  struct pln_Engine *engine;
  int64_t numel;
  uint8_t dtype, ndim;
  uint8_t contiguous;
  uint8_t requires_grad;       /* a leaf, or the result of a recorded op */
  uint32_t place;              /* Lua line that made it, 0 unknown; of the free once freed */
  uint32_t refs;               /* Lua handles with a finalizer, the tape, C code; arena handles without one hold theirs to the end */
  uint32_t output;             /* which result of `node` */
  uint32_t layout;             /* number of dtype, shape and strides (plan.h); 0: not asked for yet */
  struct pln_Node *node;       /* the recorded op that made it or its leaf, or NULL; there iff serials agree */
  uint64_t node_serial;
  struct pln_Tensor *sibling;  /* next header on the same storage */
  struct pln_Tensor **sibling_p; /* the link that points here */
  int64_t shape[PLN_MAX_DIMS];
  int64_t stride[PLN_MAX_DIMS]; /* in elements */
} pln_Tensor;

static inline bool pln_tensor_alive(const pln_Tensor *t) { return t->epoch == *t->live; }
static inline bool pln_tensor_is(const pln_Tensor *t, uint64_t serial) { return t->object.serial == serial; }
static inline pln_Shape pln_tensor_shape(const pln_Tensor *t) {
  pln_Shape s = {t->ndim, {0}};
  for (int i = 0; i < t->ndim; i++) s.size[i] = t->shape[i];
  return s;
}

/* A new tensor of the engine with uninitialized (poisoned, where that is on) memory, refs = 1. */
pln_Status pln_tensor_new(struct pln_Engine *e, pln_Home home, pln_DType dtype, const pln_Shape *shape, pln_Tensor **t_p);
/* Where results live: in the arena, on an engine without one owned. */
pln_Status pln_tensor_result(struct pln_Engine *e, pln_DType dtype, const pln_Shape *shape, pln_Tensor **t_p);
/* A view of `base`'s storage: element 0 at `offset` elements from base's element 0. refs = 1. */
pln_Status pln_tensor_view(pln_Tensor *base, const pln_Shape *shape, const int64_t *stride, int64_t offset, pln_Tensor **t_p);
/* The same two for a known layout: pln_tensor_result, and a view `offset` bytes from base's element 0. */
struct pln_Layout;
pln_Status pln_tensor_planned(struct pln_Engine *e, const struct pln_Layout *layout, pln_Tensor **t_p);
pln_Status pln_tensor_view_planned(pln_Tensor *base, const struct pln_Layout *layout, ptrdiff_t offset, pln_Tensor **t_p);
void pln_tensor_retain(pln_Tensor *t);
/* Drops a reference to a live header; the last one frees it, and the last header its storage (not a held one). */
void pln_tensor_release(pln_Tensor *t);
/* Ends the storage and all its views (C4, "free"): PLN_EPIN when it is held. */
pln_Status pln_tensor_free(pln_Tensor *t, uint32_t place);
/* Moves every header of the storage to another epoch word; for the arena. */
void pln_tensors_move(pln_Storage *s, const uint64_t *live);
/* The reset or end of scope under way ends what an earlier one had kept; for the arena. */
void pln_tensors_end(pln_Storage *s);

/* Same storage, and the byte ranges that the two views touch meet. */
bool pln_tensor_overlaps(const pln_Tensor *a, const pln_Tensor *b);
/* Same storage, element 0, shape and strides. */
bool pln_tensor_same_view(const pln_Tensor *a, const pln_Tensor *b);

#endif
