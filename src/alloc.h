/* SPDX-License-Identifier: MIT
** alloc.h -- every allocation of the core goes through here, so that specs can let the n-th one fail
** and count what is alive. Aligned blocks are for tensor data.
*/
#ifndef PLN_ALLOC_H
#define PLN_ALLOC_H

#include <stddef.h>
#include <stdint.h>

#define PLN_ALIGN 64 /* bytes; a cache line and the widest vector */

/* NULL when out of memory; `pln_malloc(0)` is a valid, unique block. */
void *pln_malloc(size_t bytes);
void *pln_calloc(size_t count, size_t bytes);
void *pln_realloc(void *p, size_t bytes);
void pln_mfree(void *p);
/* Aligned to PLN_ALIGN, uninitialized. */
void *pln_malloc_aligned(size_t bytes);
void pln_mfree_aligned(void *p);

/* For specs: blocks alive now, and "let the n-th allocation from now fail" (n >= 1; 0 switches it off).
** Returns how many allocations were made since the last call. Counted across all threads. */
int64_t pln_alloc_live(void);
int64_t pln_alloc_fail_at(int64_t n);

#endif
