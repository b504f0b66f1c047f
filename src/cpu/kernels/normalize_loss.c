/* SPDX-License-Identifier: MIT
** normalize_loss.c -- cross entropy and its gradient. A lane is the classes of one position; losses of all lanes wait in scratch
** for the sum or mean, which adds them up in the order of all sums.
*/
#include "normalize_lane.h"
#include "reduce_exp.h"

enum { NONE, MEAN, SUM };
enum { IGNORED = -1, INVALID = -2 }; /* instead of a class */

typedef struct Loss {
  int x, target;       /* arguments */
  const char *weight;  /* NULL: all 1 */
  int64_t classes;
  int64_t reduction;
  bool probabilities;
  bool shares;         /* every class has a part in the loss: probabilities, smoothing */
  bool ignores;
  int64_t ignored;
  double smoothing;
  char *losses;        /* one per lane */
  double *counts;      /* what each counts in the mean */
  double divisor;      /* of gradients */
} Loss;

/* Lane i's target: 1 .. classes, or why it is none. */
static int64_t class_of(const plk_Lane *l, int64_t i) {
  const Loss *o = l->state;
  int64_t class;
  memcpy(&class, l->p[o->target] + i * l->across[o->target], sizeof class);
  if (o->ignores && class == o->ignored) return IGNORED;
  if (class >= 1 && class <= o->classes) return class;
  pln_call_fault(l->c, o->target - l->c->nout, l->first + i, class, 1, o->classes);
  return INVALID;
}

#define REALS_ONLY
#define TEMPLATE "reduce_lanes.h"
#include "reduce_each.h"
#define REALS_ONLY
#define TEMPLATE "normalize_access.h"
#include "reduce_each.h"

static double total_f64(const double *x, int64_t n);

#define REALS_ONLY
#define TEMPLATE "normalize_loss.h"
#include "reduce_each.h"

static Loss loss_of(const pln_Call *c, int x) {
  Loss o = {.x = x, .target = x + 1, .classes = c->i[1], .reduction = c->i[3], .probabilities = c->i[4], .ignores = c->i[5],
            .ignored = c->i[6], .smoothing = c->f[0], .losses = c->scratch, .divisor = 1};
  if (c->i[2] & 1) o.weight = c->arg[x + 2].data;
  if (c->scratch) o.counts = (double *)(c->scratch + c->numel * 8);
  o.shares = o.probabilities || o.smoothing > 0;
  return o;
}

pln_Status PLK(cross_entropy)(const pln_Call *c) {
  Loss o = loss_of(c, 1);
  bool single = c->arg[0].dtype == PLN_F32;
  PLN_TRY(plk_lanes(c, o.x, single ? loss_lane_f32 : loss_lane_f64, single ? loss_tile_f32 : loss_tile_f64, &o));
  if (o.reduction != NONE) (single ? reduce_losses_f32 : reduce_losses_f64)(c, &o);
  return PLN_OK;
}

pln_Status PLK(cross_entropy_backward)(const pln_Call *c) {
  Loss o = loss_of(c, 2);
  bool single = c->arg[0].dtype == PLN_F32;
  if (o.reduction == MEAN && o.probabilities) {
    o.divisor = (double)c->numel;
  } else if (o.reduction == MEAN) {
    plk_LaneFn count = single ? count_lanes_f32 : count_lanes_f64;
    PLN_TRY(plk_lanes(c, o.x, count, count, &o));
    o.divisor = total_f64(o.counts, c->numel);
  }
  return plk_lanes(c, o.x, single ? loss_gradient_lane_f32 : loss_gradient_lane_f64,
                   single ? loss_gradient_tile_f32 : loss_gradient_tile_f64, &o);
}
