/* SPDX-License-Identifier: MIT
** fault.h -- fault points for the red proofs: PLN_FAULT(name) is true where a fault of fault.def was switched on. Off, which is always but in a
** red proof, a point costs one branch that is never taken. The switch is for tests; nothing but the points reads it.
*/
#ifndef PLN_FAULT_H
#define PLN_FAULT_H

#include <stdbool.h>

#include "status.h"

typedef enum pln_FaultId {
#define FAULT(name, doc) PLN_FAULT_##name,
#include "fault.def"
  PLN_NFAULTS
} pln_FaultId;

extern bool pln_faults[PLN_NFAULTS];
extern bool pln_fault_any; /* one is on: what was prepared before may not be used */
extern const char *const pln_fault_names[PLN_NFAULTS], *const pln_fault_docs[PLN_NFAULTS];

#define PLN_FAULT(name) PLN_UNLIKELY(pln_faults[PLN_FAULT_##name])

/* False if there is no fault of that name. */
bool pln_fault_set(const char *name, bool on);

#endif
