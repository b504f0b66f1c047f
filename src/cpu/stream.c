/* SPDX-License-Identifier: MIT
** stream.c -- the late host stream; see stream.h.
*/
#include "stream.h"

#include <string.h>

#include "../alloc.h"
#include "../fault.h"
#include "device.h"

typedef enum { ITEM_CALL, ITEM_FILL, ITEM_GUARD, ITEM_FREE, ITEM_UPLOAD } ItemKind;

typedef struct Item {
  size_t length; /* with its payload, a multiple of 16 */
  ItemKind kind;
  uint32_t place;
  uint16_t word;
  char *data;
  size_t bytes;
  /* payload: a call record, or the bytes of an upload */
} Item;

#define HEADER ((sizeof(Item) + 15) / 16 * 16)
#define SMALL_UPLOAD 4096 /* larger ones stand in a block of their own */

static char *payload(Item *i) { return (char *)i + HEADER; }

/* Room for one more item. When there is no memory for it, the queue is run to make room, which it always does. */
static pln_Status push(pln_Engine *e, pln_Stream *s, ItemKind kind, char *data, size_t bytes, size_t extra, Item **item_p) {
  size_t length = HEADER + (extra + 15) / 16 * 16;
  pln_Status status = PLN_OK;
  if (s->count >= PLN_STREAM_LIMIT) status = pln_stream_run(e, s);
  if (s->used + length > s->capacity) {
    size_t capacity = s->capacity ? 2 * s->capacity : 1 << 16;
    while (capacity < s->used + length) capacity *= 2;
    char *items = pln_realloc(s->items, capacity);
    if (items) {
      s->items = items;
      s->capacity = capacity;
    } else {
      pln_Status ran = pln_stream_run(e, s);
      if (status == PLN_OK) status = ran;
      if (length > s->capacity) return pln_fail(PLN_ENOMEM, "out of memory for the host stream");
    }
  }
  Item *i = (Item *)(s->items + s->used);
  i->length = length;
  i->kind = kind;
  i->data = data;
  i->bytes = bytes;
  s->used += length;
  s->count++;
  *item_p = i;
  return status;
}

pln_Status pln_stream_call(pln_Engine *e, pln_Stream *s, const pln_Call *c) {
  Item *i = NULL;
  pln_Status status = push(e, s, ITEM_CALL, NULL, 0, pln_call_bytes(c), &i);
  if (!i) return status;
  memcpy(payload(i), c, pln_call_bytes(c));
  s->calls++;
  return status;
}

/* The rest must not fail: with no memory for the item the queue was run empty, so what was to be queued may happen at once. */
pln_Status pln_stream_fill(pln_Engine *e, pln_Stream *s, char *data, size_t bytes, uint16_t word) {
  Item *i = NULL;
  pln_Status status = push(e, s, ITEM_FILL, data, bytes, 0, &i);
  if (i)
    i->word = word;
  else
    pln_cpu_fill(data, bytes, word);
  return i ? status : PLN_OK;
}

pln_Status pln_stream_guard(pln_Engine *e, pln_Stream *s, char *data, size_t bytes, uint16_t word, uint32_t place) {
  Item *i = NULL;
  pln_Status status = push(e, s, ITEM_GUARD, data, bytes, 0, &i);
  if (i) {
    i->word = word;
    i->place = place;
  } else {
    pln_cpu_guard(e, data, bytes, word, place);
  }
  return i ? status : PLN_OK;
}

pln_Status pln_stream_free(pln_Engine *e, pln_Stream *s, char *data, size_t bytes) {
  Item *i = NULL;
  pln_Status status = push(e, s, ITEM_FREE, data, bytes, 0, &i);
  if (!i) pln_cpu_release(e->device, data, bytes);
  return i ? status : PLN_OK;
}

pln_Status pln_stream_upload(pln_Engine *e, pln_Stream *s, char *data, const void *host, size_t bytes) {
  Item *i = NULL;
  if (bytes <= SMALL_UPLOAD) {
    pln_Status status = push(e, s, ITEM_UPLOAD, data, bytes, bytes, &i);
    if (i) memcpy(payload(i), host, bytes); /* it is queued, whatever an older item ended with */
    return status;
  }
  void *staging = pln_malloc(bytes);
  if (!staging) return pln_fail(PLN_ENOMEM, "out of memory: %zu bytes for staging an upload", bytes);
  memcpy(staging, host, bytes);
  pln_Status status = push(e, s, ITEM_UPLOAD, data, bytes, sizeof staging, &i);
  if (!i) {
    pln_mfree(staging);
    return status;
  }
  memcpy(payload(i), &staging, sizeof staging);
  return status;
}

static pln_Status run_item(pln_Engine *e, Item *i) {
  switch (i->kind) {
    case ITEM_CALL: {
      const pln_Call *c = (const pln_Call *)payload(i);
      if (PLN_FAULT(past_the_end) && c->nout) memset(c->arg[0].data + c->numel * pln_dtype_size((pln_DType)c->arg[0].dtype), 1, 4);
      return c->kernel(c);
    }
    case ITEM_FILL: pln_cpu_fill(i->data, i->bytes, i->word); break;
    case ITEM_GUARD: pln_cpu_guard(e, i->data, i->bytes, i->word, i->place); break;
    case ITEM_FREE: pln_cpu_release(e->device, i->data, i->bytes); break;
    case ITEM_UPLOAD:
      if (i->bytes <= SMALL_UPLOAD) {
        memcpy(i->data, payload(i), i->bytes);
      } else {
        void *staging;
        memcpy(&staging, payload(i), sizeof staging);
        memcpy(i->data, staging, i->bytes);
        pln_mfree(staging);
      }
      break;
  }
  return PLN_OK;
}

pln_Status pln_stream_run(pln_Engine *e, pln_Stream *s) {
  pln_Status status = PLN_OK;
  for (size_t at = 0; at < s->used;) {
    Item *i = (Item *)(s->items + at);
    at += i->length;
    /* After an interrupt the remaining kernels are dropped, frees and uploads are not. */
    if (status == PLN_EINTERRUPT && i->kind == ITEM_CALL) continue;
    if (PLN_FAULT(reordered) && i->kind == ITEM_CALL && at < s->used) {
      Item *next = (Item *)(s->items + at);
      if (next->kind == ITEM_CALL) {
        (void)run_item(e, next);
        at += next->length;
      }
    }
    pln_Status ran = run_item(e, i);
    if (status == PLN_OK) status = ran;
  }
  s->used = s->count = s->calls = 0;
  return status;
}

void pln_stream_close(pln_Stream *s) {
  pln_mfree(s->items);
  memset(s, 0, sizeof *s);
}
