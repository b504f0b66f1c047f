/* SPDX-License-Identifier: MIT
** capture.h -- a step recorded once and replayed many times (C6).
**
** While a function is captured every op that would launch a record hands it to the capture instead: nothing runs, no device is in a special
** mode. What the records refer to is held (arena blocks stay where they are through resets, nothing can be freed) until the release. At
** the end the device may make a graph of the records; one that makes none gets them launched one by one.
**
** What varies from replay to replay lies in tensors. Random ops read their draw number from one: number k of a capture that drew K in a step
** is element k of the capture's own draw tensors, which the step's last records advance by K. A replay first writes them anew where the
** engine's draw number went on without it.
*/
#ifndef PLN_CAPTURE_H
#define PLN_CAPTURE_H

#include "engine.h"

typedef struct pln_Use { /* a storage that the capture holds */
  pln_Storage *s;
  uint64_t version;      /* before the capture, as the next two */
  uint32_t version_place;
  uint16_t version_op;
  uint8_t made;          /* came to be in the capture */
  uint8_t written;       /* by a replay */
  pln_Storage *next_idle;
} pln_Use;

typedef struct pln_Written { /* a storage that headers show and a replay writes */
  pln_Storage *s;
  uint32_t place;        /* of the last write of a step */
  uint16_t op;
} pln_Written;

#define PLN_CAPTURE_DRAWS 32 /* draw numbers in one tensor */

typedef struct pln_Capture {
  pln_Engine *engine;    /* NULL once released, or the engine was closed */
  struct pln_Capture *next, **link; /* of the engine's captures */
  void *owner;           /* of the binding, while it records */
  uint64_t serial;       /* the newest object before it began, */
  uint64_t node;         /* and the newest recorded op */
  uint64_t draw, draws;  /* the engine's draw number when it began, and how many a replay takes */
  uint64_t next_draw;    /* what the draw tensors stand at */
  bool drawn;            /* they were written at all */
  uint64_t seed;         /* in the records */
  uint64_t replays;
  uint32_t place, ended; /* Lua lines of the capture and of its release */
  bool broken;           /* something in the function could not be captured: `error` says what */
  char error[256];
  pln_Tensor **draw_tensor; /* i64 (PLN_CAPTURE_DRAWS), */
  pln_Tensor **draw_view;   /* and their elements, i64 () */
  pln_Use *use;
  pln_Written *written;
  pln_Call **call;       /* each an allocation of its own, as long as its arguments want it */
  pln_Storage *idle;     /* the first, others by next_idle of their uses */
  size_t ndraw_tensors, ndraw_views, nuse, capuse, nwritten, ncalls, capcalls, bytes;
  void *graph;           /* of the backend, or NULL */
} pln_Capture;

/* From now on ops are recorded. PLN_ECAPTURE within another capture or a backward. `owner` is what the binding knows it by. */
pln_Status pln_capture_begin(pln_Engine *e, void *owner, uint32_t place, pln_Capture **c_p);
/* Ends the recording; on an error, its own or that of something inside that could not be captured, everything is as before the
** begin, what was made inside is freed and *c is gone. */
pln_Status pln_capture_end(pln_Capture *c);
/* Ends the recording for an error of the function: the same. Keeps the waiting message. */
void pln_capture_abort(pln_Capture *c);
/* Runs the records n times. A pending error of the stream is raised before anything runs, one that is known at once afterwards. */
pln_Status pln_capture_replay(pln_Capture *c, uint64_t n);
/* Lets go of all that it holds, once; the struct stays until pln_capture_free. */
void pln_capture_release(pln_Capture *c, uint32_t place);
void pln_capture_free(pln_Capture *c);

/* --- hooks, while a capture records ---------------------------------------------------------------- */

/* Before an op prepares: whether it can be captured. */
pln_Status pln_capture_admit(pln_Engine *e, const pln_OpDef *op);
/* In place of a launch; without one (p->done) it only holds the tensors. */
pln_Status pln_capture_call(pln_Prep *p);
/* An op failed: without memory the capture has a hole and cannot succeed any more. */
pln_Status pln_capture_failed(pln_Engine *e, const pln_OpDef *op, pln_Status status);
/* Memory that ops make for themselves (temporaries, gradients on their way) serves again within the step, in the order of its records: a
** storage that nobody refers to any more waits (false: it does not, it belongs to others or Lua has seen it), and one that is large enough
** and not twice as large as wanted is taken, with one reference and no header. */
bool pln_capture_idle(pln_Capture *c, pln_Storage *s);
pln_Storage *pln_capture_again(pln_Capture *c, pln_Home home, size_t bytes);
/* A storage was made, or is shown by a new view. */
pln_Status pln_capture_made(pln_Capture *c, pln_Storage *s);
pln_Status pln_capture_hold(pln_Capture *c, pln_Storage *s);

/* PLN_ECAPTURE "<what> is not possible during a capture"; the capture cannot succeed any more. */
PLN_COLD pln_Status pln_capture_refused(pln_Engine *e, const char *what);
static inline pln_Status pln_capture_refuse(pln_Engine *e, const char *what) {
  return PLN_LIKELY(!e->capture) ? PLN_OK : pln_capture_refused(e, what);
}

/* What the core does once, for itself, runs at once even in a capture: between these two. */
static inline pln_Capture *pln_capture_pause(pln_Engine *e) {
  pln_Capture *c = e->capture;
  e->capture = NULL;
  e->hooks &= ~(uint32_t)PLN_HOOK_CAPTURE;
  return c;
}
static inline void pln_capture_resume(pln_Engine *e, pln_Capture *c) {
  e->capture = c;
  if (c) e->hooks |= PLN_HOOK_CAPTURE;
}

#endif
