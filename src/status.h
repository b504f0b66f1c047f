/* SPDX-License-Identifier: MIT
** status.h -- how the core reports errors: a status is returned, its text waits in a thread-local
** buffer (so that reporting "out of memory" needs no memory). Who finds the error writes the text;
** all others pass the status up. The core never longjmps, exits, prints or calls Lua.
*/
#ifndef PLN_STATUS_H
#define PLN_STATUS_H

#include <stdarg.h>

typedef enum pln_Status {
#define STATUS(code, text) PLN_##code,
#include "status.def"
#undef STATUS
  PLN_NSTATUS
} pln_Status;

#if defined(__GNUC__)
#define PLN_PRINTF(f, a) __attribute__((format(printf, f, a)))
#define PLN_COLD __attribute__((cold, noinline))
#define PLN_LIKELY(x) __builtin_expect(!!(x), 1)
#define PLN_UNLIKELY(x) __builtin_expect(!!(x), 0)
#else
#define PLN_PRINTF(f, a)
#define PLN_COLD
#define PLN_LIKELY(x) (x)
#define PLN_UNLIKELY(x) (x)
#endif

#define PLN_MAX_ERROR 2048

/* Records the message and returns `status`. The text has no place and no newline; the binding adds the Lua line. */
PLN_COLD pln_Status pln_fail(pln_Status status, const char *fmt, ...) PLN_PRINTF(2, 3);
/* Puts "prefix" before the waiting message; returns `status`. */
PLN_COLD pln_Status pln_fail_prefix(pln_Status status, const char *fmt, ...) PLN_PRINTF(2, 3);
/* The last message of this thread; "" when there was none. */
const char *pln_error(void);
/* The code's own text, such as "out of memory". */
const char *pln_status_text(pln_Status status);
/* Appends to a bounded buffer at *len (kept below size); for building messages. */
void pln_append(char *buf, int size, int *len, const char *fmt, ...) PLN_PRINTF(4, 5);

#define PLN_TRY(expr)                                                  \
  do {                                                                 \
    pln_Status try_status_ = (expr);                                   \
    if (PLN_UNLIKELY(try_status_ != PLN_OK)) return try_status_;       \
  } while (0)

#define PLN_TRY_GOTO(expr, label)                                      \
  do {                                                                 \
    status = (expr);                                                   \
    if (PLN_UNLIKELY(status != PLN_OK)) goto label;                    \
  } while (0)

#endif
