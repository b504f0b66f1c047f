/* SPDX-License-Identifier: MIT
** rearrange.c -- kernels repeat and triangle (see ops/view.def). They move bits, so they go by element size only.
*/
#include "kernel.h"

#define INLINE static inline __attribute__((always_inline))

/* `bytes` is a constant where this is called: the copy is one move. */
INLINE void move(char *to, int64_t to_step, const char *from, int64_t from_step, int64_t n, size_t bytes) {
  const int64_t b = (int64_t)bytes;
  if (to_step == 1 && from_step == 1)
    memcpy(to, from, (size_t)n * bytes);
  else
    for (int64_t i = 0; i < n; i++) memcpy(to + i * to_step * b, from + i * from_step * b, bytes);
}

/* --- repeat --------------------------------------------------------------------------------------- */

/* Columns [begin, end) of a row of the result: x[(c / each) mod size]. */
INLINE void repeat_row(char *to, int64_t to_step, const char *x, int64_t x_step, int64_t size, int64_t each, int64_t begin,
                       int64_t end, size_t bytes) {
  const int64_t b = (int64_t)bytes;
  if (each > 1) {
    int64_t at = begin / each % size, run = each - begin % each;
    for (int64_t c = begin; c < end; c += run, run = each, at = at + 1 < size ? at + 1 : 0)
      for (int64_t k = c; k < c + run && k < end; k++) memcpy(to + k * to_step * b, x + at * x_step * b, bytes);
    return;
  }
  /* one period out of x, the rest out of what is there already, ever longer */
  int64_t first = size < end - begin ? size : end - begin;
  for (int64_t c = begin; c < begin + first;) {
    int64_t run = size - c % size;
    if (run > begin + first - c) run = begin + first - c;
    move(to + c * to_step * b, to_step, x + c % size * x_step * b, x_step, run, bytes);
    c += run;
  }
  for (int64_t done = first; done < end - begin;) {
    int64_t run = done < end - begin - done ? done : end - begin - done;
    move(to + (begin + done) * to_step * b, to_step, to + begin * to_step * b, to_step, run, bytes);
    done += run;
  }
}

INLINE void repeat_part(const pln_Call *c, int64_t begin, int64_t end, size_t bytes) {
  const pln_Arg *out = &c->arg[0], *x = &c->arg[1];
  const int last = c->ndim - 1;
  const int64_t columns = c->size[last], b = (int64_t)bytes;
  while (begin < end) {
    int64_t row = begin / columns, column = begin % columns, to = 0, from = 0;
    int64_t n = columns - column < end - begin ? columns - column : end - begin;
    for (int d = last - 1; d >= 0; d--) {
      int64_t at = row % c->size[d];
      row /= c->size[d];
      to += at * out->stride[d];
      from += at / c->i[d] % x->shape[d] * x->stride[d];
    }
    repeat_row(out->data + to * b, out->stride[last], x->data + from * b, x->stride[last], x->shape[last], c->i[last], column,
               column + n, bytes);
    begin += n;
  }
}

#define EACH_SIZE(X) X(1) X(4) X(8)

#define PART(SIZE) static void repeat_##SIZE(void *c, int64_t begin, int64_t end) { repeat_part(c, begin, end, SIZE); }
EACH_SIZE(PART)
#undef PART

pln_Status PLK(repeat)(const pln_Call *c) {
  int size = pln_dtype_size((pln_DType)c->arg[0].dtype);
  return pln_parallel_for(c, c->numel, PLN_GRAIN, size == 1 ? repeat_1 : size == 4 ? repeat_4 : repeat_8, (void *)c);
}

/* --- triangle ------------------------------------------------------------------------------------- */

INLINE void zero(char *to, int64_t step, int64_t n, size_t bytes) {
  if (step == 1)
    memset(to, 0, (size_t)n * bytes);
  else
    for (int64_t i = 0; i < n; i++) memset(to + i * step * (int64_t)bytes, 0, bytes);
}

/* Rows [begin, end), counted through all matrices. Where x is the result itself its elements stay. */
INLINE void triangle_rows(const pln_Call *c, int64_t begin, int64_t end, size_t bytes) {
  const pln_Arg *out = &c->arg[0], *x = &c->arg[1];
  const int last = c->ndim - 1;
  const int64_t columns = c->size[last], b = (int64_t)bytes;
  const int64_t to_step = out->stride[last], from_step = x->stride[last];
  for (; begin < end; begin++) {
    int64_t row = begin, to = 0, from = 0;
    for (int d = last - 1; d >= 0; d--) {
      int64_t at = row % c->size[d];
      row /= c->size[d];
      to += at * out->stride[d];
      from += at * x->stride[d];
    }
    /* columns before the cut belong to the lower triangle */
    int64_t cut = begin % c->size[last - 1] + c->i[0] + !c->i[1];
    cut = cut < 0 ? 0 : cut < columns ? cut : columns;
    int64_t lo = c->i[1] ? cut : 0, hi = c->i[1] ? columns : cut;
    char *t = out->data + to * b;
    const char *f = x->data + from * b;
    if (t != f) move(t + lo * to_step * b, to_step, f + lo * from_step * b, from_step, hi - lo, bytes);
    zero(t, to_step, lo, bytes);
    zero(t + hi * to_step * b, to_step, columns - hi, bytes);
  }
}

#define ROWS(SIZE) static void triangle_##SIZE(void *c, int64_t begin, int64_t end) { triangle_rows(c, begin, end, SIZE); }
EACH_SIZE(ROWS)
#undef ROWS

pln_Status PLK(triangle)(const pln_Call *c) {
  int size = pln_dtype_size((pln_DType)c->arg[0].dtype);
  int64_t columns = c->size[c->ndim - 1];
  int64_t grain = columns < PLN_GRAIN ? PLN_GRAIN / columns : 1;
  return pln_parallel_for(c, c->numel / columns, grain, size == 1 ? triangle_1 : size == 4 ? triangle_4 : triangle_8, (void *)c);
}
