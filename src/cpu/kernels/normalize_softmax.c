/* SPDX-License-Identifier: MIT
** normalize_softmax.c -- softmax and log_softmax along a dim, and their gradients. The largest element is subtracted first; a lane of
** nothing but -inf, or with inf or NaN in it, is NaN.
*/
#include "../small.h"
#include "normalize_lane.h"
#include "reduce_exp.h"

#define REALS_ONLY
#define TEMPLATE "reduce_lanes.h"
#include "reduce_each.h"
#define REALS_ONLY
#define TEMPLATE "normalize_access.h"
#include "reduce_each.h"
#define REALS_ONLY
#define TEMPLATE "normalize_softmax.h"
#include "reduce_each.h"

#define RUN(name)                                                                                \
  (c->arg[0].dtype == PLN_F32 ? plk_lanes(c, 1, name##_lane_f32, name##_tile_f32, NULL)          \
                              : plk_lanes(c, 1, name##_lane_f64, name##_tile_f64, NULL))

pln_Status PLK(softmax)(const pln_Call *c) { return RUN(softmax); }

/* For captures: few short lanes whose elements lie side by side. */
void PLK(small_softmax)(pln_Small *s) {
  const pln_Call *c = s->call;
  int nkept = (int)c->i[0];
  bool line = c->ndim > nkept;
  if (nkept > 1 || c->i[1] > PLK_BLOCK || c->numel * (c->i[1] + PLK_LANES) > PLN_GRAIN) return;
  for (int a = 0; a < 2; a++) {
    if (line && c->arg[a].stride[nkept] != 1) return;
    s->lanes.next[a] = nkept ? c->arg[a].stride[0] * pln_dtype_size((pln_DType)c->arg[a].dtype) : 0;
  }
  s->lanes.n = c->i[1];
  s->lanes.lanes = c->numel;
  s->run = c->arg[0].dtype == PLN_F32 ? small_softmax_f32 : small_softmax_f64;
}

pln_Status PLK(log_softmax)(const pln_Call *c) { return RUN(log_softmax); }
pln_Status PLK(softmax_backward)(const pln_Call *c) { return RUN(softmax_gradient); }
pln_Status PLK(log_softmax_backward)(const pln_Call *c) { return RUN(log_softmax_gradient); }
