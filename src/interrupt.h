/* SPDX-License-Identifier: MIT
** interrupt.h -- a flag that a host program's signal handler may set: long kernels poll it per chunk and the op ends with PLN_EINTERRUPT; so
** does an op that would begin. Raising that to Lua clears it. The library never installs a handler.
*/
#ifndef PLN_INTERRUPT_H
#define PLN_INTERRUPT_H

#include <signal.h>

extern volatile sig_atomic_t pln_interrupted;

#endif
