/* SPDX-License-Identifier: MIT
** stream.h -- a host stream that runs late: what is put on it runs in order, on the calling thread, when somebody waits (or when it
** has grown long). Between the call and its run the caller has gone on, as with a GPU: a missing wait, scratch that
** was freed too early or a pointer into Lua memory shows, every time and in the same way.
*/
#ifndef PLN_CPU_STREAM_H
#define PLN_CPU_STREAM_H

#include <stddef.h>

#include "../call.h"

typedef struct pln_Stream {
  char *items;       /* records of varying length, one after the other */
  size_t used, capacity;
  size_t calls;      /* op records among them */
  size_t count;
} pln_Stream;

#define PLN_STREAM_LIMIT 16384 /* items, after which it runs by itself so that memory stays bounded */

pln_Status pln_stream_call(struct pln_Engine *e, pln_Stream *s, const pln_Call *c);
pln_Status pln_stream_fill(struct pln_Engine *e, pln_Stream *s, char *data, size_t bytes, uint16_t word);
pln_Status pln_stream_guard(struct pln_Engine *e, pln_Stream *s, char *data, size_t bytes, uint16_t word, uint32_t place);
pln_Status pln_stream_free(struct pln_Engine *e, pln_Stream *s, char *data, size_t bytes);
/* The bytes are copied now. */
pln_Status pln_stream_upload(struct pln_Engine *e, pln_Stream *s, char *data, const void *host, size_t bytes);
/* Runs all items; the first error of a kernel is returned, the rest runs all the same. */
pln_Status pln_stream_run(struct pln_Engine *e, pln_Stream *s);
void pln_stream_close(pln_Stream *s);

#endif
