/* SPDX-License-Identifier: MIT
** attention.c -- scaled dot-product attention without a matrix of all scores (src/ops/attention.def): keys are met block by block, each
** row keeping its largest score and the sum of e^score so far (Milakov and Gimelshein 2018; Dao et al. 2022). The gradient computes the scores
** again, once for blocks of rows (dq) and once for blocks of keys (dk, dv), so that no two tasks add to the same element.
*/
#include "../../ops/attention.h"
#include "../gemm.h"
#include "reduce_exp.h"

#define ROWS PLN_ATTENTION_ROWS
#define KEYS PLN_ATTENTION_KEYS
/* Multiply-adds of a task. */
#define WORK 2e5

#define REALS_ONLY
#define TEMPLATE "reduce_lanes.h"
#include "reduce_each.h"

static int64_t batch_offset(const pln_Call *c, int arg, int64_t at) {
  int64_t offset = 0;
  for (int d = c->ndim - 1; d >= 0; d--) {
    offset += at % c->size[d] * c->arg[arg].stride[d];
    at /= c->size[d];
  }
  return offset;
}

static int64_t blocks_of(int64_t n, int64_t size) { return (n + size - 1) / size; }

#define REALS_ONLY
#define TEMPLATE "attention_block.h"
#include "reduce_each.h"

/* Blocks of all batches in tasks of about WORK. */
static pln_Status all(const pln_Call *c, int64_t blocks, double work, void (*fn)(void *, int64_t, int64_t)) {
  return pln_parallel_for(c, c->numel * blocks, (int64_t)(WORK / (work + 1)) + 1, fn, (void *)c);
}

pln_Status PLK(sdpa)(const pln_Call *c) {
  double work = (double)ROWS * (double)c->i[1] * (double)(c->i[2] + c->i[3]);
  return all(c, blocks_of(c->i[0], ROWS), work, c->arg[0].dtype == PLN_F32 ? forward_f32 : forward_f64);
}

pln_Status PLK(sdpa_backward)(const pln_Call *c) {
  bool single = c->arg[0].dtype == PLN_F32;
  double work = 2 * (double)(c->i[2] + c->i[3]);
  pln_Status status = PLN_OK;
  if (c->i[0] > 0 && c->i[0] <= ROWS && c->i[1] > 0 && c->i[1] <= KEYS)
    return all(c, 1, work * ROWS * KEYS, single ? backward_one_f32 : backward_one_f64);
  if (c->i[0] && c->i[2]) status = all(c, blocks_of(c->i[0], ROWS), work * ROWS * (double)c->i[1], single ? backward_q_f32 : backward_q_f64);
  if (status != PLN_OK || !c->i[1]) return status;
  return all(c, blocks_of(c->i[1], KEYS), work * KEYS * (double)c->i[0], single ? backward_kv_f32 : backward_kv_f64);
}
