/* SPDX-License-Identifier: MIT
** alloc.c -- counting wrappers over malloc with a planned failure.
*/
#include "alloc.h"

#include <stdatomic.h>
#include <stdlib.h>

static _Atomic int64_t live;
static _Atomic int64_t made;
static _Atomic int64_t fail_at;

static int fails(void) {
  int64_t n = atomic_fetch_add_explicit(&made, 1, memory_order_relaxed) + 1;
  return atomic_load_explicit(&fail_at, memory_order_relaxed) == n;
}

static void *counted(void *p) {
  if (p) atomic_fetch_add_explicit(&live, 1, memory_order_relaxed);
  return p;
}

void *pln_malloc(size_t bytes) { return fails() ? NULL : counted(malloc(bytes ? bytes : 1)); }

void *pln_calloc(size_t count, size_t bytes) { return fails() ? NULL : counted(calloc(count ? count : 1, bytes ? bytes : 1)); }

void *pln_realloc(void *p, size_t bytes) {
  if (!p) return pln_malloc(bytes);
  return fails() ? NULL : realloc(p, bytes ? bytes : 1);
}

void pln_mfree(void *p) {
  if (!p) return;
  atomic_fetch_sub_explicit(&live, 1, memory_order_relaxed);
  free(p);
}

void *pln_malloc_aligned(size_t bytes) {
  if (fails() || bytes > SIZE_MAX - PLN_ALIGN) return NULL;
  size_t rounded = (bytes + PLN_ALIGN - 1) / PLN_ALIGN * PLN_ALIGN;
  return counted(aligned_alloc(PLN_ALIGN, rounded ? rounded : PLN_ALIGN));
}

void pln_mfree_aligned(void *p) { pln_mfree(p); }

int64_t pln_alloc_live(void) { return atomic_load(&live); }

int64_t pln_alloc_fail_at(int64_t n) {
  int64_t count = atomic_exchange(&made, 0);
  atomic_store(&fail_at, n);
  return count;
}
