/* SPDX-License-Identifier: MIT
** reduce_scan.c -- cumsum, from either end. Sums run in f64 or i64, one element after the other along the dim, whatever the layout,
** and are rounded as they are stored.
*/
#include "reduce_fold.h"

typedef struct Job {
  const pln_Call *c;
  const pln_Arg *y, *x;
  plk_LoadFn load;      /* to f64 or i64; NULL: x is one of them */
  int nouter, item, yitem;
  bool real;
  bool columns;         /* neighbouring lanes lie side by side: PLK_COLUMNS of them at a time */
  int64_t count, wide, tiles;
  int64_t step, ystep, cstride, ycstride; /* bytes, along the dim and from lane to lane; from the end on if reversed */
} Job;

static void store(const Job *job, char *y, int64_t step, const void *sums, int64_t n) {
  if (job->y->dtype == PLN_F32 && step == 4)
    for (int64_t i = 0; i < n; i++) ((float *)y)[i] = (float)((const double *)sums)[i];
  else if (job->y->dtype == PLN_F32)
    for (int64_t i = 0; i < n; i++) {
      float v = (float)((const double *)sums)[i];
      memcpy(y + i * step, &v, 4);
    }
  else if (step == 8)
    memcpy(y, sums, (size_t)n * 8);
  else
    for (int64_t i = 0; i < n; i++) memcpy(y + i * step, (const char *)sums + 8 * i, 8);
}

/* n elements, `step` bytes apart, as f64 or i64. */
static void fetch(const Job *job, void *dst, const char *x, int64_t step, int64_t n) {
  char raw[PLK_BLOCK * 8];
  if (step != job->item) {
    plk_gather(job->load ? raw : dst, x, step, job->item, n);
    x = raw;
    if (!job->load) return;
  }
  if (job->load)
    job->load(dst, x, n, NULL, 0);
  else
    memcpy(dst, x, (size_t)n * 8);
}

static void scan_lane(const Job *job, const char *x, char *y) {
  union { double r[PLK_BLOCK]; uint64_t i[PLK_BLOCK]; } sums;
  double real = 0;
  uint64_t whole = 0;
  for (int64_t k = 0; k < job->count; k += PLK_BLOCK) {
    int64_t n = job->count - k < PLK_BLOCK ? job->count - k : PLK_BLOCK;
    fetch(job, &sums, x + k * job->step, job->step, n);
    if (job->real)
      for (int64_t i = 0; i < n; i++) sums.r[i] = real += sums.r[i];
    else
      for (int64_t i = 0; i < n; i++) sums.i[i] = whole += sums.i[i];
    store(job, y + k * job->ystep, job->ystep, &sums, n);
  }
}

static void scan_tile(const Job *job, const char *x, char *y, int64_t w) {
  union { double r[PLK_COLUMNS]; uint64_t i[PLK_COLUMNS]; } sums, row;
  memset(&sums, 0, sizeof sums);
  for (int64_t k = 0; k < job->count; k++) {
    fetch(job, &row, x + k * job->step, job->cstride, w);
    if (job->real)
      for (int64_t i = 0; i < w; i++) sums.r[i] += row.r[i];
    else
      for (int64_t i = 0; i < w; i++) sums.i[i] += row.i[i];
    store(job, y + k * job->ystep, job->ycstride, &sums, w);
  }
}

static void run(void *context, int64_t begin, int64_t end) {
  const Job *job = context;
  const pln_Call *c = job->c;
  int64_t last = c->i[2] ? job->count - 1 : 0; /* where a lane starts */
  int64_t xstart = last * -job->step, ystart = last * -job->ystep;
  for (int64_t t = begin; t < end; t++) {
    int64_t group = t / job->tiles, column = t % job->tiles * PLK_COLUMNS;
    const char *x = job->x->data + xstart + plk_offset(job->nouter, c->size, job->x->stride, group) * job->item;
    char *y = job->y->data + ystart + plk_offset(job->nouter, c->size, job->y->stride, group) * job->yitem;
    if (!job->columns)
      scan_lane(job, x, y);
    else
      scan_tile(job, x + column * job->cstride, y + column * job->ycstride,
                job->wide - column < PLK_COLUMNS ? job->wide - column : PLK_COLUMNS);
  }
}

pln_Status PLK(cumsum)(const pln_Call *c) {
  const pln_Arg *y = &c->arg[0], *x = pln_call_in(c, 0);
  int nkept = (int)c->i[0];
  int64_t sign = c->i[2] ? -1 : 1, groups = c->numel;
  Job job = {.c = c, .y = y, .x = x, .nouter = nkept, .count = c->i[1], .wide = 1, .tiles = 1,
             .item = pln_dtype_size((pln_DType)x->dtype), .yitem = pln_dtype_size((pln_DType)y->dtype)};
  bool line = c->ndim > nkept;
  job.step = line ? x->stride[nkept] * job.item * sign : job.item;
  job.ystep = line ? y->stride[nkept] * job.yitem * sign : job.yitem;
  job.real = pln_dtype_is_float((pln_DType)x->dtype);
  job.load = x->dtype == PLN_F32 ? plk_widen_f32 : plk_to_i64(x->dtype);
  if (nkept && c->size[nkept - 1] > 1) {
    int64_t across = x->stride[nkept - 1] * job.item, along = job.step < 0 ? -job.step : job.step;
    job.columns = across > 0 && (across < along || along == 0);
  }
  if (job.columns) {
    job.nouter--;
    job.wide = c->size[nkept - 1];
    job.tiles = (job.wide + PLK_COLUMNS - 1) / PLK_COLUMNS;
    job.cstride = x->stride[nkept - 1] * job.item;
    job.ycstride = y->stride[nkept - 1] * job.yitem;
    groups = c->numel / job.wide * job.tiles;
  }
  int64_t work = job.count * (job.wide < PLK_COLUMNS ? job.wide : PLK_COLUMNS) + PLK_LANES;
  return pln_parallel_for(c, groups, work < PLN_GRAIN ? PLN_GRAIN / work : 1, run, &job);
}
