/* SPDX-License-Identifier: MIT
** fault.c -- the switches of fault.h, of the whole process: set between ops, from the thread that runs them.
*/
#include "fault.h"

#include <string.h>

bool pln_faults[PLN_NFAULTS], pln_fault_any;

const char *const pln_fault_names[PLN_NFAULTS] = {
#define FAULT(name, doc) #name,
#include "fault.def"
};

const char *const pln_fault_docs[PLN_NFAULTS] = {
#define FAULT(name, doc) doc,
#include "fault.def"
};

bool pln_fault_set(const char *name, bool on) {
  for (int i = 0; i < PLN_NFAULTS; i++)
    if (strcmp(pln_fault_names[i], name) == 0) {
      pln_faults[i] = on;
      pln_fault_any = false;
      for (int k = 0; k < PLN_NFAULTS; k++) pln_fault_any |= pln_faults[k];
      return true;
    }
  return false;
}
