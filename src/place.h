/* SPDX-License-Identifier: MIT
** place.h -- Lua lines as numbers, so that headers and records can carry them in 4 bytes. Process-wide; entries are never removed
** (a program has finitely many lines). 0 is "unknown".
*/
#ifndef PLN_PLACE_H
#define PLN_PLACE_H

#include <stdint.h>

#define PLN_PLACE_TEXT 160

/* The number of "source:line"; 0 when out of memory. */
uint32_t pln_place_intern(const char *source, int line);
/* "source:line", or "an unknown line", into buf (PLN_PLACE_TEXT bytes), which it returns. */
char *pln_place_text(uint32_t place, char *buf);

#endif
