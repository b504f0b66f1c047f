/* SPDX-License-Identifier: MIT
** status.c -- the thread-local message buffer behind pln_Status.
*/
#include "status.h"

#include <stdio.h>
#include <string.h>

static _Thread_local char message[PLN_MAX_ERROR];

static const char *const texts[] = {
#define STATUS(code, text) text,
#include "status.def"
#undef STATUS
};

pln_Status pln_fail(pln_Status status, const char *fmt, ...) {
  va_list ap;
  va_start(ap, fmt);
  vsnprintf(message, sizeof message, fmt, ap);
  va_end(ap);
  return status;
}

pln_Status pln_fail_prefix(pln_Status status, const char *fmt, ...) {
  char rest[PLN_MAX_ERROR];
  memcpy(rest, message, sizeof rest);
  va_list ap;
  va_start(ap, fmt);
  int len = vsnprintf(message, sizeof message, fmt, ap);
  va_end(ap);
  if (len >= 0 && len < (int)sizeof message)
    snprintf(message + len, sizeof message - (size_t)len, "%s", rest);
  return status;
}

const char *pln_error(void) { return message; }

const char *pln_status_text(pln_Status status) {
  return (unsigned)status < PLN_NSTATUS ? texts[status] : "unknown status";
}

void pln_append(char *buf, int size, int *len, const char *fmt, ...) {
  if (*len >= size - 1) return;
  va_list ap;
  va_start(ap, fmt);
  int n = vsnprintf(buf + *len, (size_t)(size - *len), fmt, ap);
  va_end(ap);
  if (n > 0) *len = n < size - *len ? *len + n : size - 1;
}
