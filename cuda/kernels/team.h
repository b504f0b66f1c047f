/* SPDX-License-Identifier: MIT
** team.h -- lanes for ops that work along one dim: a team of threads to a lane, as large as the lane is long.
**
** The team's size and what each member does follow from the lane's length only (C10). Members take every G-th element; what they
** found meets in halves. All threads of a block must make every call of `all`, those without a lane too.
*/
#ifndef PLN_CUDA_TEAM_H
#define PLN_CUDA_TEAM_H

#include "reduce.h"

struct Lanes {
  int64_t lanes, count;
  bool columns;          /* neighbouring lanes lie closer than neighbouring elements */
  char *data[PLN_MAX_ARGS];
  int64_t step[6];       /* along the lane, in elements, of the first arguments */
  pld_Layout<6> layout;  /* of lanes */
  pld_Site site;         /* of ops that may record a fault */
};

/* Arguments of the call along its reduced dim; argument `x` decides which way threads go. */
static inline Lanes lanes_of(const pln_Call *c, int x) {
  Lanes l;
  const int nkept = (int)c->i[0];
  memset(&l, 0, sizeof l);
  l.lanes = c->numel;
  l.count = c->i[1];
  l.layout = pld_layout<6>(c, nkept);
  for (int k = 0; k < c->nout + c->nin && k < 6; k++) {
    l.data[k] = c->arg[k].data;
    l.step[k] = c->ndim > nkept ? c->arg[k].stride[nkept] : 1;
  }
  if (nkept && c->size[nkept - 1] > 1) {
    int64_t across = c->arg[x].stride[nkept - 1], along = l.step[x] < 0 ? -l.step[x] : l.step[x];
    l.columns = across > 0 && (across < along || along == 0);
  }
  return l;
}

template <int G> struct Team {
  enum { W = PLC_THREADS / G };
  int member, place; /* in the team; of the team in the block */
  __device__ __forceinline__ explicit Team(bool columns) {
    member = columns ? threadIdx.x / W : threadIdx.x % G;
    place = columns ? threadIdx.x % W : threadIdx.x / G;
  }
  /* What all members' a come to; `part` holds a number for each thread. */
  template <class Merge> __device__ __forceinline__ double all(double *part, double a, Merge merge) const {
    if (G == 1) return a;
    double *mine = part + place * G + member;
    *mine = a;
    __syncthreads();
    for (int h = G / 2; h; h /= 2) {
      if (member < h) *mine = merge(*mine, mine[h]);
      __syncthreads();
    }
    a = part[place * G];
    __syncthreads();
    return a;
  }
  __device__ __forceinline__ double sum(double *part, double a) const {
    return all(part, a, [](double x, double y) { return x + y; });
  }
  __device__ __forceinline__ double largest(double *part, double a) const {
    return all(part, a, [](double x, double y) { return step<double, MAX>(x, y); });
  }
};

/* A long sum: 16 terms at a time in T, those sums in double. */
template <class T> struct Total {
  T run = 0;
  int terms = 0;
  double sum = 0;
  __device__ __forceinline__ void add(T v) {
    run += v;
    if (++terms < 16) return;
    sum += (double)run;
    run = 0;
    terms = 0;
  }
  __device__ __forceinline__ double value() const { return sum + (double)run; }
};

/* Launches kernel<.., G> for lanes of `count` elements. */
#define TEAM_LAUNCH(c, lanes, count, kernel, ...)                                                                            \
  do {                                                                                                                       \
    const int64_t lanes_ = (lanes), count_ = (count);                                                                        \
    if (count_ <= 16)                                                                                                        \
      PLD_LAUNCH(c, (kernel<T, 1>), pld_blocks(c, lanes_, PLC_THREADS), PLC_THREADS, 0, __VA_ARGS__);                        \
    else if (count_ <= 512)                                                                                                  \
      PLD_LAUNCH(c, (kernel<T, 16>), pld_blocks(c, lanes_, PLC_THREADS / 16), PLC_THREADS, 0, __VA_ARGS__);                  \
    else                                                                                                                     \
      PLD_LAUNCH(c, (kernel<T, PLC_THREADS>), pld_blocks(c, lanes_, 1), PLC_THREADS, 0, __VA_ARGS__);                        \
  } while (0)

/* Goes through the lanes of a block's teams; `lane` is the team's, which may lie past the end. */
#define EACH_LANE(team, lanes, lane)                                                                                        \
  for (int64_t first_ = (int64_t)blockIdx.x * team.W, lane = first_ + team.place; first_ < (lanes);                          \
       first_ += (int64_t)gridDim.x * team.W, lane = first_ + team.place)

#endif
