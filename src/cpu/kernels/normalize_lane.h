/* SPDX-License-Identifier: MIT
** normalize_lane.h -- lanes for ops that work along one dim: one at a time where their elements lie side by side, else a tile of
** neighbouring ones, row by row. Bits do not depend on which.
*/
#ifndef PLN_CPU_NORMALIZE_LANE_H
#define PLN_CPU_NORMALIZE_LANE_H

#include "reduce_fold.h"

#define PLK_LANE_ARGS 5 /* of one op */

typedef struct plk_Lane {
  const pln_Call *c;
  void *state;           /* of the op */
  char *p[PLK_LANE_ARGS]; /* element 0 of the first lane, by argument */
  const int64_t *step;   /* by argument: bytes along the lane, 0 without that dim */
  const int64_t *across; /* by argument: bytes to the next lane of the tile */
  int64_t n, w;          /* elements of a lane, lanes of the tile */
  int64_t first;         /* number of the first lane, row-major */
} plk_Lane;

typedef void (*plk_LaneFn)(const plk_Lane *lane);

typedef struct plk_LaneJob {
  const pln_Call *c;
  void *state;
  plk_LaneFn one, tile;
  int64_t step[PLK_LANE_ARGS], across[PLK_LANE_ARGS];
  bool columns;
  int nouter;
  int64_t n, wide, tiles; /* elements of a lane; lanes of a group side by side, and their tiles */
} plk_LaneJob;

static void plk_run_lanes(void *context, int64_t begin, int64_t end) {
  const plk_LaneJob *job = context;
  const pln_Call *c = job->c;
  int nargs = c->nout + c->nin;
  plk_Lane lane;
  lane.c = c;
  lane.state = job->state;
  lane.step = job->step;
  lane.across = job->across;
  lane.n = job->n;
  lane.w = 1;
  for (int64_t t = begin; t < end; t++) {
    int64_t group = job->tiles == 1 ? t : t / job->tiles, column = (t - group * job->tiles) * PLK_COLUMNS;
    for (int a = 0; a < nargs; a++)
      lane.p[a] = c->arg[a].data + column * lane.across[a] +
                  plk_offset(job->nouter, c->size, c->arg[a].stride, group) * pln_dtype_size((pln_DType)c->arg[a].dtype);
    lane.first = group * job->wide + column;
    if (job->columns) {
      lane.w = job->wide - column < PLK_COLUMNS ? job->wide - column : PLK_COLUMNS;
      job->tile(&lane);
    } else {
      job->one(&lane);
    }
  }
}

/* Runs `one` or `tile` for all lanes; argument `x` decides which. Narrower tiles would stay
** in a cache, if rows were not so often a power of two apart. */
static inline pln_Status plk_lanes(const pln_Call *c, int x, plk_LaneFn one, plk_LaneFn tile, void *state) {
  int nkept = (int)c->i[0];
  bool line = c->ndim > nkept;
  plk_LaneJob job;
  job.one = one;
  job.tile = tile;
  job.columns = false;
  job.nouter = nkept;
  job.wide = job.tiles = 1;
  job.c = c;
  job.state = state;
  job.n = c->i[1];
  for (int a = 0; a < c->nout + c->nin; a++) {
    int item = pln_dtype_size((pln_DType)c->arg[a].dtype);
    job.step[a] = line ? c->arg[a].stride[nkept] * item : item;
    job.across[a] = nkept ? c->arg[a].stride[nkept - 1] * item : item;
  }
  if (nkept && c->size[nkept - 1] > 1 && line) {
    int64_t across = job.across[x], along = job.step[x];
    if (along < 0) along = -along;
    bool apart = across < along || along == 0, stubby = job.n <= PLK_LANES && c->size[nkept - 1] >= 2 * PLK_LANES;
    job.columns = across > 0 && (apart || stubby);
  }
  int64_t groups = c->numel;
  if (job.columns) {
    job.nouter--;
    job.wide = c->size[nkept - 1];
    job.tiles = (job.wide + PLK_COLUMNS - 1) / PLK_COLUMNS;
    groups = c->numel / job.wide * job.tiles;
  }
  int64_t work = job.n * (job.wide < PLK_COLUMNS ? job.wide : PLK_COLUMNS) + PLK_LANES;
  return pln_parallel_for(c, groups, work < PLN_GRAIN ? PLN_GRAIN / work : 1, plk_run_lanes, &job);
}

#endif
