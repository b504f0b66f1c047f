/* SPDX-License-Identifier: MIT
** device.h -- the host as a device: what an engine's `device` points to.
*/
#ifndef PLN_CPU_DEVICE_H
#define PLN_CPU_DEVICE_H

#include "../engine.h"
#include "stream.h"
#include "threads.h"

#define PLN_CACHE_CLASSES 64  /* blocks of 64, 128, ... 4096 bytes are kept for reuse */
#define PLN_CACHE_BLOCKS 256  /* of each class at most */

typedef struct pln_CpuDevice {
  pln_Threads *threads;
  pln_Stream stream;          /* of a late engine */
  char *cache[PLN_CACHE_CLASSES]; /* freed blocks, linked through their first word */
  int cached[PLN_CACHE_CLASSES];
} pln_CpuDevice;

/* Runs what an engine's stream holds right away; the stream and an eager engine share these. */
void pln_cpu_fill(char *data, size_t bytes, uint16_t word);
void pln_cpu_guard(pln_Engine *e, const char *data, size_t bytes, uint16_t word, uint32_t place);
void pln_cpu_release(pln_CpuDevice *d, char *data, size_t bytes);

#endif
