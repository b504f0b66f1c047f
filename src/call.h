/* SPDX-License-Identifier: MIT
** call.h -- the call record: everything a kernel needs, prepared once, run now, later (stress) or many times (capture).
**
** A record holds addresses, sizes and numbers by value and points to nothing that Lua or the caller owns. Kernels know only this.
** arg[0 .. nout) are the results, arg[nout .. nout + nin) the operands. What size/ndim and the parameters mean is a
** convention of each family (see its .def file); for elementwise calls they are the collapsed iteration space and each
** arg's strides step through it.
*/
#ifndef PLN_CALL_H
#define PLN_CALL_H

#include <stddef.h>
#include <string.h>

#include "dtype.h"
#include "shape.h"

#define PLN_MAX_ARGS 12
#define PLN_MAX_PARAMS 12

struct pln_Engine;
struct pln_Call;

/* Runs the record; errors are those of the device. What only data can tell goes to pln_call_fault. */
typedef pln_Status (*pln_KernelFn)(const struct pln_Call *c);

typedef struct pln_Arg {
  char *data;      /* element 0; NULL: the operand is the number f[PLN_MAX_PARAMS - 1 - operand index] */
  uint8_t dtype;
  uint8_t ndim;
  int64_t shape[PLN_MAX_DIMS];  /* filled as far as ndim by families that need an operand's own shape */
  int64_t stride[PLN_MAX_DIMS]; /* in elements */
} pln_Arg;

typedef struct pln_Call {
  pln_KernelFn kernel;
  struct pln_Engine *engine;
  uint16_t op;             /* pln_OpId */
  uint8_t nout, nin;
  uint8_t ndim;            /* of the iteration space, at least 1 */
  uint32_t place;          /* Lua line of the op, 0 unknown */
  uint64_t number;         /* of the launch, set by the engine */
  int64_t numel;           /* of the iteration space; 0 is never launched */
  int64_t size[PLN_MAX_DIMS];
  double f[PLN_MAX_PARAMS];
  int64_t i[PLN_MAX_PARAMS];
  char *scratch;           /* device memory asked for by prepare, NULL if none */
  size_t scratch_bytes;
  pln_Arg arg[PLN_MAX_ARGS]; /* last: copies stop after the used ones */
} pln_Call;

static inline size_t pln_call_bytes(const pln_Call *c) {
  return offsetof(pln_Call, arg) + (size_t)(c->nout + c->nin) * sizeof(pln_Arg);
}
static inline const pln_Arg *pln_call_in(const pln_Call *c, int i) { return &c->arg[c->nout + i]; }

/* An error that only data can tell (C11): operand `input` (0-based) held `value` at element `position` (0-based, row-major), valid is
** lo..hi. The one with the smallest position of the first faulty call is kept, whatever the number of threads; it is raised by the next wait.
** Safe to call from the engine's threads. */
void pln_call_fault(const pln_Call *c, int input, int64_t position, int64_t value, int64_t lo, int64_t hi);

#endif
