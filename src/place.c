/* SPDX-License-Identifier: MIT
** place.c -- an interning hash table behind a lock, since Lua states may run in several threads.
*/
#include "place.h"

#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "alloc.h"

#define SOURCE 100

typedef struct Entry {
  char source[SOURCE];
  int line;
} Entry;

static atomic_flag lock = ATOMIC_FLAG_INIT;
static Entry *entries; /* entries[0] is unused */
static uint32_t *table; /* open addressing, 0 = empty */
static uint32_t count = 1, capacity, table_size;

static uint32_t hash(const char *source, int line) {
  uint32_t h = 2166136261u ^ (uint32_t)line * 16777619u; /* FNV-1a */
  for (const char *s = source; *s; s++) h = (h ^ (uint8_t)*s) * 16777619u;
  return h;
}

static int grow(void) {
  uint32_t cap = capacity ? 2 * capacity : 256;
  Entry *e = pln_realloc(entries, cap * sizeof *e);
  if (!e) return 0;
  entries = e;
  uint32_t *t = pln_calloc(2 * cap, sizeof *t);
  if (!t) return 0;
  capacity = cap;
  for (uint32_t i = 1; i < count; i++) {
    uint32_t at = hash(entries[i].source, entries[i].line) & (2 * cap - 1);
    while (t[at]) at = (at + 1) & (2 * cap - 1);
    t[at] = i;
  }
  pln_mfree(table);
  table = t;
  table_size = 2 * cap;
  return 1;
}

/* When the process ends: the module stays loaded until then. */
__attribute__((destructor)) static void forget(void) {
  pln_mfree(entries);
  pln_mfree(table);
}

uint32_t pln_place_intern(const char *source, int line) {
  char text[SOURCE];
  snprintf(text, sizeof text, "%s", source);
  while (atomic_flag_test_and_set_explicit(&lock, memory_order_acquire)) {}
  uint32_t found = 0;
  if ((table_size && count < capacity) || grow()) {
    uint32_t at = hash(text, line) & (table_size - 1);
    while ((found = table[at]) && (entries[found].line != line || strcmp(entries[found].source, text) != 0))
      at = (at + 1) & (table_size - 1);
    if (!found) {
      found = count++;
      memcpy(entries[found].source, text, sizeof text);
      entries[found].line = line;
      table[at] = found;
    }
  }
  atomic_flag_clear_explicit(&lock, memory_order_release);
  return found;
}

char *pln_place_text(uint32_t place, char *buf) {
  while (atomic_flag_test_and_set_explicit(&lock, memory_order_acquire)) {}
  if (place == 0 || place >= count)
    snprintf(buf, PLN_PLACE_TEXT, "an unknown line");
  else
    snprintf(buf, PLN_PLACE_TEXT, "%s:%d", entries[place].source, entries[place].line);
  atomic_flag_clear_explicit(&lock, memory_order_release);
  return buf;
}
