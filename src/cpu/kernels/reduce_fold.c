/* SPDX-License-Identifier: MIT
** reduce_fold.c -- the driver of all reductions: cuts the work into units, walks the tree, merges what units left.
**
** A result's elements are cut into units of PLK_UNIT, a whole subtree each. Results whose elements lie apart, but side by
** side with those of the next result, are taken PLK_COLUMNS at a time (a tile); else a tile is one result.
*/
#include "reduce_fold.h"

typedef struct Job {
  const pln_Call *c;
  const plk_Fold *f;
  const pln_Arg *x;
  int nouter;            /* kept dims that number the groups of tiles */
  int nkept, nreduced;
  int item;
  bool columns;
  int64_t count, units;  /* elements and units of a result */
  int64_t wide, tiles;   /* results and tiles of a group */
  int64_t ostride[2], cstride; /* from result to result within a tile, in bytes */
} Job;

static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

static void fold_block(const Job *job, const char *x, int64_t first, int64_t n, int64_t w, char *acc) {
  const pln_Call *c = job->c;
  const int64_t *size = c->size + job->nkept, *stride = job->x->stride + job->nkept;
  int item = job->item;
  int64_t offset[PLK_BLOCK];
  bool line = job->nreduced <= 1;
  int64_t step = job->nreduced ? stride[job->nreduced - 1] * item : item;
  if (line)
    x += first * step;
  else
    plk_offsets(job->nreduced, size, stride, item, first, n, offset);
  if (job->columns) {
    plk_Rows rows = {x, line ? NULL : offset, step, job->cstride, item, line && job->cstride == item && step == w * item,
                     job->f->load, job->f->with};
    job->f->rows(job->f, &rows, n, w, acc);
    return;
  }
  char raw[PLK_BLOCK * 8];
  if (!line) {
    for (int64_t k = 0; k < n; k++) memcpy(raw + k * item, x + offset[k], (size_t)item);
    x = raw;
  } else if (step != item) {
    plk_gather(raw, x, step, item, n);
    x = raw;
  }
  job->f->block(job->f, x, n, acc);
}

static void fold_range(const Job *job, const char *x, int64_t first, int64_t n, int64_t w, char *acc) {
  if (n <= PLK_BLOCK) {
    fold_block(job, x, first, n, w, acc);
    return;
  }
  char right[PLK_COLUMNS * PLK_ACC] __attribute__((aligned(64)));
  int64_t h = plk_split(n);
  fold_range(job, x, first, h, w, acc);
  fold_range(job, x, first + h, n - h, w, right);
  job->f->merge(job->f, acc, h, right, n - h, w);
}

static void finish(const Job *job, int64_t group, int64_t column, int64_t w, const char *acc) {
  const pln_Call *c = job->c;
  char *out[2] = {NULL, NULL};
  for (int i = 0; i < c->nout; i++)
    out[i] = c->arg[i].data + plk_offset(job->nouter, c->size, c->arg[i].stride, group) * pln_dtype_size((pln_DType)c->arg[i].dtype) +
             column * job->ostride[i];
  job->f->finish(job->f, acc, w, out, job->ostride);
}

static void run_units(void *context, int64_t begin, int64_t end) {
  const Job *job = context;
  const pln_Call *c = job->c;
  char acc[PLK_COLUMNS * PLK_ACC] __attribute__((aligned(64)));
  for (int64_t u = begin; u < end; u++) {
    int64_t tile = job->units == 1 ? u : u / job->units, unit = u - tile * job->units;
    int64_t group = job->tiles == 1 ? tile : tile / job->tiles, column = (tile - group * job->tiles) * PLK_COLUMNS;
    int64_t w = least(job->wide - column, PLK_COLUMNS), first = unit * PLK_UNIT;
    const char *x = job->x->data + plk_offset(job->nouter, c->size, job->x->stride, group) * job->item + column * job->cstride;
    if (job->units == 1) {
      fold_range(job, x, 0, job->count, w, acc);
      finish(job, group, column, w, acc);
    } else {
      fold_range(job, x, first, least(job->count - first, PLK_UNIT), w, acc);
      memcpy(c->scratch + ((group * job->wide + column) * job->units + unit * w) * PLK_ACC, acc, (size_t)w * PLK_ACC);
    }
  }
}

/* Merges the units that hold n elements of a tile into the first one. */
static void merge_units(const Job *job, char *partial, int64_t n, int64_t w) {
  if (n <= PLK_UNIT) return;
  int64_t h = plk_split(n);
  char *right = partial + h / PLK_UNIT * w * PLK_ACC;
  merge_units(job, partial, h, w);
  merge_units(job, right, n - h, w);
  job->f->merge(job->f, partial, h, right, n - h, w);
}

static void run_merges(void *context, int64_t begin, int64_t end) {
  const Job *job = context;
  for (int64_t tile = begin; tile < end; tile++) {
    int64_t group = tile / job->tiles, column = tile % job->tiles * PLK_COLUMNS;
    int64_t w = least(job->wide - column, PLK_COLUMNS);
    char *partial = job->c->scratch + (group * job->wide + column) * job->units * PLK_ACC;
    merge_units(job, partial, job->count, w);
    finish(job, group, column, w, partial);
  }
}

pln_Status PLK(fold)(const pln_Call *c, const plk_Fold *f) {
  const pln_Arg *x = pln_call_in(c, 0);
  int nkept = (int)c->i[0], item = pln_dtype_size((pln_DType)x->dtype);
  Job job = {.c = c, .f = f, .x = x, .nouter = nkept, .nkept = nkept, .nreduced = c->ndim - nkept, .item = item,
             .count = c->i[1], .wide = 1, .tiles = 1, .cstride = item};
  job.units = job.count <= PLK_UNIT ? 1 : (job.count + PLK_UNIT - 1) / PLK_UNIT;
  int64_t groups = c->numel;
  if (nkept && c->size[nkept - 1] > 1) {
    int64_t across = x->stride[nkept - 1], along = job.nreduced ? x->stride[c->ndim - 1] : 1;
    if (along < 0) along = -along;
    bool apart = along != 1 && across > 0 && (across < along || along == 0);
    bool stubby = job.count <= PLK_LANES / 2 && c->size[nkept - 1] >= PLK_LANES && across > 0;
    job.columns = apart || stubby;
  }
  if (job.columns) {
    job.nouter--;
    job.wide = c->size[nkept - 1];
    job.tiles = (job.wide + PLK_COLUMNS - 1) / PLK_COLUMNS;
    job.cstride = x->stride[nkept - 1] * item;
    groups = c->numel / job.wide * job.tiles;
    for (int i = 0; i < c->nout; i++) job.ostride[i] = c->arg[i].stride[nkept - 1] * pln_dtype_size((pln_DType)c->arg[i].dtype);
  }
  int64_t work = least(job.count, PLK_UNIT) * (job.columns ? least(job.wide, PLK_COLUMNS) : 1) + PLK_LANES;
  PLN_TRY(pln_parallel_for(c, groups * job.units, work < PLN_GRAIN ? PLN_GRAIN / work : 1, run_units, &job));
  if (job.units == 1) return PLN_OK;
  work = job.units * least(job.wide, PLK_COLUMNS);
  return pln_parallel_for(c, groups, work < PLN_GRAIN ? PLN_GRAIN / work : 1, run_merges, &job);
}
