/* SPDX-License-Identifier: MIT
** normalize_layer.c -- layer_norm, rms_norm and group_norm, with their gradients. A lane lies side by side; its mean and spread take
** two passes. dweight and dbias are sums over lanes, in the order of all sums (reduce_fold.h).
*/
#include "reduce_fold.h"

typedef struct Norm {
  const pln_Call *c;
  const pln_Arg *x, *g;
  const void *weight, *bias; /* NULL if absent */
  double *mean, *rstd;       /* by lane; NULL where not wanted or not there */
  const int64_t *mean_stride, *rstd_stride; /* of results; operands are row-major */
  double eps;
  bool centred;
  int nkept;
  int64_t n;                 /* elements of a lane */
  int64_t groups, channels, area; /* group_norm: groups of an image, channels of a group (else 0), elements of a channel */
  char *plain, *scaled;      /* sums by image and channel: of g, of g times the normalized x */
} Norm;

#define REALS_ONLY
#define TEMPLATE "reduce_lanes.h"
#include "reduce_each.h"
#define REALS_ONLY
#define TEMPLATE "normalize_layer.h"
#include "reduce_each.h"

static int64_t grain(int64_t n) { return n + PLK_LANES < PLN_GRAIN ? PLN_GRAIN / (n + PLK_LANES) : 1; }

static bool single(const pln_Call *c) { return c->arg[0].dtype == PLN_F32; }

static Norm norm_of(const pln_Call *c, bool grouped) {
  Norm o = {.c = c, .n = c->i[1], .nkept = (int)c->i[0], .eps = c->f[0]};
  if (!grouped) return o;
  o.groups = c->i[4];
  o.channels = c->i[3] / c->i[4];
  o.area = c->i[5];
  return o;
}

static pln_Status forward(const pln_Call *c, bool centred, bool grouped) {
  Norm o = norm_of(c, grouped);
  const pln_Arg *next = pln_call_in(c, 0);
  o.centred = centred;
  o.x = next++;
  if (c->i[2] & 1) o.weight = next++->data;
  if (c->i[2] & 2) o.bias = next->data;
  if (c->nout > 1) { /* [mean,] rstd */
    if (centred) {
      o.mean = (double *)c->arg[1].data;
      o.mean_stride = c->arg[1].stride;
    }
    o.rstd = (double *)c->arg[1 + centred].data;
    o.rstd_stride = c->arg[1 + centred].stride;
  }
  return pln_parallel_for(c, c->numel, grain(o.n), single(c) ? forward_f32 : forward_f64, &o);
}

pln_Status PLK(layer_norm)(const pln_Call *c) { return forward(c, true, false); }
pln_Status PLK(rms_norm)(const pln_Call *c) { return forward(c, false, false); }
pln_Status PLK(group_norm)(const pln_Call *c) { return forward(c, true, true); }

/* result[j] = the sum over `rows` of x[i][j]. */
static pln_Status sum_rows(const pln_Call *c, int result, char *x, int64_t rows, int64_t columns, char *scratch, plk_LoadFn load,
                           const void *with) {
  pln_Call sum = {.engine = c->engine, .op = c->op, .nout = 1, .nin = 1, .ndim = 2, .place = c->place, .number = c->number,
                  .numel = columns, .size = {columns, rows}, .i = {1, rows}, .scratch = scratch};
  sum.arg[0] = (pln_Arg){.data = c->arg[result].data, .dtype = c->arg[0].dtype, .stride = {1}};
  sum.arg[1] = (pln_Arg){.data = x, .dtype = c->arg[0].dtype, .stride = {1, columns}};
  return PLK(fold_sum)(&sum, load, with);
}

static Norm gradient_of(const pln_Call *c, bool centred, bool grouped) {
  Norm o = norm_of(c, grouped);
  const pln_Arg *next = pln_call_in(c, 0);
  o.g = next++;
  o.x = next++;
  if (centred) o.mean = (double *)next++->data;
  o.rstd = (double *)next++->data;
  if (c->i[2] & 1) o.weight = next->data;
  return o;
}

static pln_Status backward(const pln_Call *c, bool centred) {
  Norm o = gradient_of(c, centred, false);
  PLN_TRY(pln_parallel_for(c, c->numel, grain(o.n), single(c) ? backward_f32 : backward_f64, &o));
  if (c->nout > 1) PLN_TRY(sum_rows(c, 1, o.g->data, c->numel, o.n, c->scratch, single(c) ? scaled_g_f32 : scaled_g_f64, &o));
  if (c->nout > 2) PLN_TRY(sum_rows(c, 2, o.g->data, c->numel, o.n, c->scratch, NULL, NULL));
  return PLN_OK;
}

pln_Status PLK(layer_norm_backward)(const pln_Call *c) { return backward(c, true); }
pln_Status PLK(rms_norm_backward)(const pln_Call *c) { return backward(c, false); }

pln_Status PLK(group_norm_backward)(const pln_Call *c) {
  Norm o = gradient_of(c, true, true);
  int64_t images = c->numel / o.groups, channels = c->i[3];
  o.plain = c->scratch;
  o.scaled = c->scratch + images * channels * 8;
  char *rest = o.scaled + images * channels * 8;
  PLN_TRY(pln_parallel_for(c, c->numel, grain(o.n), single(c) ? group_backward_f32 : group_backward_f64, &o));
  if (c->nout == 1) return PLN_OK;
  PLN_TRY(sum_rows(c, 1, o.scaled, images, channels, rest, NULL, NULL));
  return sum_rows(c, 2, o.plain, images, channels, rest, NULL, NULL);
}
