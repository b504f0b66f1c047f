/* SPDX-License-Identifier: MIT
** elementwise.c -- the driver of elementwise kernels: cuts a call of any layout into runs for a vector function.
**
** Three ways, chosen by strides alone:
**   rows   results side by side in the last dim, operands side by side or one value there: nothing is copied
**   tiles  an operand runs fastest in another dim than the last (a transpose): blocks of 16 x 64, so that each cache line is read once
**   flat   anything else: blocks of 512 consecutive elements
** What does not lie side by side is gathered into a buffer, or scattered from it. Big results pass the caches by (bypass.h).
*/
#include "elementwise.h"

#include "../small.h"
#include "bypass.h"

enum { FLAT = 512, TILE_ROWS = 16, TILE_COLUMNS = 64, TILE = TILE_ROWS * TILE_COLUMNS, PIECE = 1024, AHEAD = 2048 };

typedef struct Operand {
  char *data;
  int size;             /* bytes per element */
  const int64_t *stride;
} Operand;

typedef struct Walk {
  const pln_Call *c;
  plk_Vec vec;
  int n, ndim, broadcasts;
  const int64_t *size;
  Operand operand[PLK_MAX_OPERANDS];
  uint64_t number[PLK_MAX_OPERANDS]; /* a number operand as an element of its dtype */
  int bypass;                        /* the result is big, and no operand: its lines are in no cache */
} Walk;

/* What the driver is told of an op. */
typedef struct Described {
  plk_Vec vec;
  int broadcasts;
} Described;

static const int64_t zeros[PLN_MAX_DIMS];

/* --- moving elements between a buffer and a strided place ------------------------------------------ */

#define EACH_SIZE(X) X(1, uint8_t) X(4, uint32_t) X(8, uint64_t)

#define MOVE(SIZE, T)                                                                                              \
  static void move_##SIZE(T *to, int64_t to_step, const T *from, int64_t from_step, int64_t n) {                 \
    if (to_step == 1 && from_step == 1)                                                                            \
      memcpy(to, from, (size_t)n * sizeof(T));                                                                     \
    else                                                                                                           \
      for (int64_t i = 0; i < n; i++) to[i * to_step] = from[i * from_step];                                       \
  }
EACH_SIZE(MOVE)
#undef MOVE

static void move(int size, char *to, int64_t to_step, const char *from, int64_t from_step, int64_t n) {
  switch (size) {
#define CASE(SIZE, T)                                                                                              \
  case SIZE: move_##SIZE((T *)to, to_step, (const T *)from, from_step, n); break;
    EACH_SIZE(CASE)
#undef CASE
  }
}

/* rows x columns elements between a buffer, row after row, and a place; along the place's shorter step inside. */
static void move_tile(const Operand *o, char *place, int64_t row_stride, int64_t column_stride, char *buffer, int64_t rows,
                      int64_t columns, int scatter) {
  int64_t r = row_stride < 0 ? -row_stride : row_stride, k = column_stride < 0 ? -column_stride : column_stride;
  int by_rows = k <= r;
  int64_t outer = by_rows ? rows : columns, inner = by_rows ? columns : rows;
  int64_t place_outer = by_rows ? row_stride : column_stride, place_inner = by_rows ? column_stride : row_stride;
  int64_t buffer_outer = by_rows ? columns : 1, buffer_inner = by_rows ? 1 : columns;
  for (int64_t i = 0; i < outer; i++) {
    char *p = place + i * place_outer * o->size, *b = buffer + i * buffer_outer * o->size;
    if (scatter)
      move(o->size, p, place_inner, b, buffer_inner, inner);
    else
      move(o->size, b, buffer_inner, p, place_inner, inner);
  }
}

/* --- coordinates ------------------------------------------------------------------------------------ */

static void coordinates(const Walk *w, int64_t at, int64_t *x) {
  for (int d = w->ndim - 1; d > 0; d--) {
    x[d] = at % w->size[d];
    at /= w->size[d];
  }
  x[0] = at;
}

/* Goes `n` elements on, not past the end of the row. */
static void advance(const Walk *w, int64_t *x, int64_t n) {
  int d = w->ndim - 1;
  x[d] += n;
  for (; d > 0 && x[d] == w->size[d]; x[--d]++) x[d] = 0;
}

static char *address(const Operand *o, int ndim, const int64_t *x) {
  int64_t offset = 0;
  for (int d = 0; d < ndim; d++) offset += x[d] * o->stride[d];
  return o->data + offset * o->size;
}

/* --- rows ------------------------------------------------------------------------------------------- */

/* A run whose result is streamed out; the first piece ends where a line of the result does. */
static void run_past_caches(const Walk *w, char *const *from, const int64_t *step, int64_t n, int64_t at) {
  _Alignas(PLK_LINE) char buffer[PIECE];
  char *ptr[PLK_MAX_OPERANDS], *out = from[0];
  const int size = w->operand[0].size;
  for (int k = 1; k < w->n; k++) ptr[k] = from[k];
  ptr[0] = buffer;
  int64_t piece = (PIECE - ((intptr_t)out & (PLK_LINE - 1))) / size;
  for (int64_t done = 0; done < n; piece = PIECE / size) {
    if (piece > n - done) piece = n - done;
    for (int k = 1; k < w->n; k++)
      if (step[k]) plk_ahead(ptr[k] + AHEAD, piece * w->operand[k].size);
    w->vec(ptr, step, piece, w->c, at + done);
    plk_bypass(out, buffer, piece * size);
    out += piece * size;
    done += piece;
    for (int k = 1; k < w->n; k++) ptr[k] += piece * step[k] * w->operand[k].size;
  }
}

static void rows(void *context, int64_t begin, int64_t end) {
  const Walk *w = context;
  int last = w->ndim - 1;
  int64_t x[PLN_MAX_DIMS], step[PLK_MAX_OPERANDS], next[PLK_MAX_OPERANDS];
  char *row[PLK_MAX_OPERANDS], *ptr[PLK_MAX_OPERANDS];
  coordinates(w, begin, x);
  int64_t column = x[last];
  x[last] = 0;
  for (int k = 0; k < w->n; k++) {
    const Operand *o = &w->operand[k];
    step[k] = o->stride[last];
    next[k] = last ? o->stride[last - 1] * o->size : 0;
    row[k] = address(o, w->ndim, x);
    ptr[k] = row[k] + column * step[k] * o->size;
  }
  for (;;) {
    int64_t n = w->size[last] - column;
    if (n > end - begin) n = end - begin;
    if (w->bypass)
      run_past_caches(w, ptr, step, n, begin);
    else
      w->vec(ptr, step, n, w->c, begin);
    begin += n;
    if (begin >= end) break;
    column = 0;
    if (++x[last - 1] < w->size[last - 1]) {
      for (int k = 0; k < w->n; k++) ptr[k] = row[k] += next[k];
    } else { /* a new plane */
      coordinates(w, begin, x);
      for (int k = 0; k < w->n; k++) ptr[k] = row[k] = address(&w->operand[k], w->ndim, x);
    }
  }
  if (w->bypass) plk_bypass_end();
}

/* --- flat ------------------------------------------------------------------------------------------- */

/* n elements from coordinates x on, row after row. */
static void move_flat(const Walk *w, const Operand *o, const int64_t *from, char *buffer, int64_t n, int scatter) {
  int last = w->ndim - 1;
  int64_t x[PLN_MAX_DIMS], step = o->stride[last];
  memcpy(x, from, sizeof x);
  while (n > 0) {
    int64_t run = w->size[last] - x[last];
    if (run > n) run = n;
    char *p = address(o, w->ndim, x);
    if (scatter)
      move(o->size, p, step, buffer, 1, run);
    else
      move(o->size, buffer, 1, p, step, run);
    buffer += run * o->size;
    n -= run;
    advance(w, x, run);
  }
}

static int steps_as(const Walk *w, const Operand *o, int one_value) {
  int64_t step = one_value ? 0 : 1;
  for (int d = w->ndim - 1; d >= 0; d--) {
    if (o->stride[d] != step) return 0;
    step *= w->size[d];
  }
  return 1;
}

static void flat(void *context, int64_t begin, int64_t end) {
  const Walk *w = context;
  double buffer[PLK_MAX_OPERANDS][FLAT];
  int64_t x[PLN_MAX_DIMS], step[PLK_MAX_OPERANDS];
  char *ptr[PLK_MAX_OPERANDS];
  int gathers[PLK_MAX_OPERANDS], whole[PLK_MAX_OPERANDS];
  coordinates(w, begin, x);
  for (int k = 0; k < w->n; k++) {
    const Operand *o = &w->operand[k];
    int value = k > 0 && steps_as(w, o, 1);
    whole[k] = !value && steps_as(w, o, 0);
    gathers[k] = !value && !whole[k];
    step[k] = 1;
    ptr[k] = (char *)buffer[k];
    if (value && w->broadcasts) {
      step[k] = 0;
      ptr[k] = o->data;
    } else if (value) { /* the same for all blocks */
      move(o->size, ptr[k], 1, o->data, 0, end - begin < FLAT ? end - begin : FLAT);
    }
  }
  while (begin < end) {
    int64_t n = end - begin < FLAT ? end - begin : FLAT;
    for (int k = 0; k < w->n; k++) {
      const Operand *o = &w->operand[k];
      if (whole[k]) ptr[k] = o->data + begin * o->size;
      if (k > 0 && gathers[k]) move_flat(w, o, x, ptr[k], n, 0);
    }
    w->vec(ptr, step, n, w->c, begin);
    if (gathers[0]) move_flat(w, &w->operand[0], x, ptr[0], n, 1);
    begin += n;
    for (int64_t left = n; left > 0;) {
      int64_t run = w->size[w->ndim - 1] - x[w->ndim - 1];
      if (run > left) run = left;
      advance(w, x, run);
      left -= run;
    }
  }
}

/* --- tiles ------------------------------------------------------------------------------------------ */

typedef struct Tiles {
  Walk *w;
  int rows;                           /* the dim of a tile's rows; its columns are the last dim */
  int64_t row_tiles, column_tiles;    /* per plane */
  int64_t weight[PLN_MAX_DIMS];       /* row-major number of an element = sum of coordinate * weight */
} Tiles;

static void tile(const Tiles *t, const int64_t *x, int64_t nrows, int64_t ncolumns) {
  const Walk *w = t->w;
  int last = w->ndim - 1;
  double buffer[PLK_MAX_OPERANDS][TILE];
  char *base[PLK_MAX_OPERANDS], *ptr[PLK_MAX_OPERANDS];
  int64_t row_bytes[PLK_MAX_OPERANDS], step[PLK_MAX_OPERANDS];
  int64_t at = 0;
  for (int d = 0; d < w->ndim; d++) at += x[d] * t->weight[d];
  for (int k = 0; k < w->n; k++) {
    const Operand *o = &w->operand[k];
    int64_t column = o->stride[last], row = o->stride[t->rows];
    char *place = address(o, w->ndim, x);
    if ((column == 1 && !(k == 0 && w->bypass)) || (column == 0 && k > 0 && w->broadcasts)) {
      base[k] = place;
      row_bytes[k] = row * o->size;
      step[k] = column;
    } else {
      base[k] = (char *)buffer[k];
      row_bytes[k] = ncolumns * o->size;
      step[k] = 1;
      if (k > 0) move_tile(o, place, row, column, base[k], nrows, ncolumns, 0);
    }
  }
  for (int64_t r = 0; r < nrows; r++) {
    for (int k = 0; k < w->n; k++) ptr[k] = base[k] + r * row_bytes[k];
    w->vec(ptr, step, ncolumns, w->c, at + r * t->weight[t->rows]);
  }
  const Operand *o = &w->operand[0];
  if (o->stride[last] == 1 && w->bypass)
    for (int64_t r = 0; r < nrows; r++)
      plk_bypass(address(o, w->ndim, x) + r * o->stride[t->rows] * o->size, base[0] + r * row_bytes[0], ncolumns * o->size);
  else if (base[0] == (char *)buffer[0])
    move_tile(o, address(o, w->ndim, x), o->stride[t->rows], o->stride[last], base[0], nrows, ncolumns, 1);
}

static void tiles(void *context, int64_t begin, int64_t end) {
  const Tiles *t = context;
  const Walk *w = t->w;
  int last = w->ndim - 1;
  for (; begin < end; begin++) {
    int64_t x[PLN_MAX_DIMS], at = begin;
    x[t->rows] = at % t->row_tiles * TILE_ROWS; /* neighbours share the pages of the operand that runs this way */
    at /= t->row_tiles;
    x[last] = at % t->column_tiles * TILE_COLUMNS;
    at /= t->column_tiles;
    for (int d = last - 1; d >= 0; d--) {
      if (d == t->rows) continue;
      x[d] = at % w->size[d];
      at /= w->size[d];
    }
    int64_t nrows = w->size[t->rows] - x[t->rows], ncolumns = w->size[last] - x[last];
    tile(t, x, nrows < TILE_ROWS ? nrows : TILE_ROWS, ncolumns < TILE_COLUMNS ? ncolumns : TILE_COLUMNS);
  }
  if (w->bypass) plk_bypass_end();
}

/* The dim in which an operand that does not run along the last dim steps least; -1 if there is none worth tiles. */
static int row_dim(const Walk *w) {
  int last = w->ndim - 1;
  if (w->size[last] < TILE_ROWS) return -1;
  for (int k = 0; k < w->n; k++) {
    const int64_t *stride = w->operand[k].stride;
    int64_t least = stride[last] < 0 ? -stride[last] : stride[last];
    int dim = -1;
    if (least <= 1) continue;
    for (int d = 0; d < last; d++) {
      int64_t s = stride[d] < 0 ? -stride[d] : stride[d];
      if (s != 0 && s < least && w->size[d] >= 4) {
        least = s;
        dim = d;
      }
    }
    if (dim >= 0) return dim;
  }
  return -1;
}

/* --- few elements ----------------------------------------------------------------------------------- */

pln_Status PLK(elementwise_numbers)(const pln_Call *c, plk_Vec vec) {
  char *ptr[PLK_MAX_OPERANDS];
  int64_t step[PLK_MAX_OPERANDS];
  uint64_t number[PLK_MAX_OPERANDS];
  for (int k = 0; k < c->nout + c->nin; k++) {
    const pln_Arg *a = &c->arg[k];
    ptr[k] = a->data;
    step[k] = 1;
    if (a->data) continue;
    plk_put_number(a->dtype, c->f[PLN_MAX_PARAMS - 1 - (k - c->nout)], &number[k]);
    ptr[k] = (char *)&number[k];
    step[k] = 0;
  }
  vec(ptr, step, c->numel, c, 0);
  return PLN_OK;
}

/* --- the call --------------------------------------------------------------------------------------- */

pln_Status PLK(elementwise_walk)(const pln_Call *c, plk_Vec vec, int broadcasts) {
  Walk w;
  if (PLN_UNLIKELY(c->ndim == 0)) { /* small_elementwise asks */
    *(Described *)c->scratch = (Described){vec, broadcasts};
    return PLN_OK;
  }
  w.c = c;
  w.vec = vec;
  w.n = c->nout + c->nin;
  w.ndim = c->ndim;
  w.broadcasts = broadcasts;
  w.size = c->size;
  int last = c->ndim - 1, in_rows = c->ndim == 1 || c->size[last] >= 8;
  for (int k = 0; k < w.n; k++) {
    const pln_Arg *a = &c->arg[k];
    Operand *o = &w.operand[k];
    o->size = pln_dtype_size((pln_DType)a->dtype);
    if (a->data) {
      o->data = a->data;
      o->stride = a->stride;
    } else {
      o->data = (char *)&w.number[k];
      o->stride = zeros;
      plk_put_number(a->dtype, c->f[PLN_MAX_PARAMS - 1 - (k - c->nout)], &w.number[k]);
    }
    int64_t step = o->stride[last];
    if (step != 1 && !(step == 0 && k > 0 && broadcasts)) in_rows = 0;
    if (k > 0 && o->data == w.operand[0].data) w.bypass = 0;
    if (k == 0) w.bypass = step == 1 && plk_bypasses(c->numel * o->size);
  }
  if (c->ndim > 1 && c->size[last] * w.operand[0].size < 4 * PLK_LINE) w.bypass = 0;
  if (in_rows) return pln_parallel_for(c, c->numel, PLN_GRAIN, rows, &w);
  int dim = row_dim(&w);
  if (dim < 0) return pln_parallel_for(c, c->numel, PLN_GRAIN, flat, &w);
  Tiles t;
  t.w = &w;
  t.rows = dim;
  t.row_tiles = (c->size[dim] + TILE_ROWS - 1) / TILE_ROWS;
  t.column_tiles = (c->size[last] + TILE_COLUMNS - 1) / TILE_COLUMNS;
  int64_t n = t.row_tiles * t.column_tiles, weight = 1;
  for (int d = last; d >= 0; d--) {
    t.weight[d] = weight;
    weight *= c->size[d];
    if (d != last && d != dim) n *= c->size[d];
  }
  return pln_parallel_for(c, n, PLN_GRAIN / TILE, tiles, &t);
}

/* --- small ones --------------------------------------------------------------------------------------- */

static pln_Status run_row(pln_Small *s) {
  s->each.vec(s->each.ptr, s->each.step, s->each.n, s->call, 0);
  return PLN_OK;
}

/* The same for what may find a fault. */
static pln_Status run_row_numbered(pln_Small *s) {
  pln_small_number(s);
  return run_row(s);
}

/* Row after row; the outer dims count like an odometer. */
static pln_Status run_rows(pln_Small *s) {
  char *ptr[PLK_MAX_OPERANDS];
  int64_t x[PLN_SMALL_DIMS] = {0};
  const int n = s->each.operands;
  pln_small_number(s);
  for (int k = 0; k < n; k++) ptr[k] = s->each.ptr[k];
  for (int64_t at = 0;;) {
    s->each.vec(ptr, s->each.step, s->each.n, s->call, at);
    at += s->each.n;
    int d = 0;
    while (d < s->each.outer && ++x[d] == s->each.size[d]) x[d++] = 0;
    if (d == s->each.outer) return PLN_OK;
    for (int k = 0; k < n; k++) ptr[k] += s->each.next[d][k];
  }
}

static void describe(const pln_Call *c, Described *d) {
  pln_Call ask;
  memcpy(&ask, c, pln_call_bytes(c));
  ask.ndim = 0;
  ask.scratch = (char *)d;
  (void)c->kernel(&ask);
}

/* For captures: the vector function alone, over one row or some. */
void PLK(small_elementwise)(pln_Small *s) {
  const pln_Call *c = s->call;
  const int n = c->nout + c->nin, last = c->ndim - 1;
  Described described = {0};
  if (last > PLN_SMALL_DIMS || (last && c->numel > PLN_GRAIN)) return;
  describe(c, &described);
  s->each.vec = described.vec;
  s->each.operands = n;
  s->each.outer = last;
  s->each.n = c->size[last];
  for (int d = 0; d < last; d++) s->each.size[d] = c->size[last - 1 - d];
  for (int k = 0; k < n; k++) {
    const pln_Arg *a = &c->arg[k];
    int64_t item = pln_dtype_size((pln_DType)a->dtype), back = 0;
    if (a->data) {
      s->each.ptr[k] = a->data;
      s->each.step[k] = a->stride[last];
      for (int d = 0; d < last; d++) { /* from the end of the dims inside to the next place */
        int64_t stride = a->stride[last - 1 - d] * item;
        s->each.next[d][k] = stride - back;
        back += stride * (s->each.size[d] - 1);
      }
    } else {
      s->each.ptr[k] = (char *)&s->each.number[k];
      s->each.step[k] = 0;
      plk_put_number(a->dtype, c->f[PLN_MAX_PARAMS - 1 - (k - c->nout)], &s->each.number[k]);
      for (int d = 0; d < last; d++) s->each.next[d][k] = 0;
    }
    if (c->size[last] == 1) s->each.step[k] = 1;
    if (s->each.step[k] != 1 && !(s->each.step[k] == 0 && k > 0 && described.broadcasts)) return;
  }
  s->row = last == 0 && (described.broadcasts || pln_dtype_is_float((pln_DType)c->arg[n - 1].dtype));
  if (c->numel > PLN_GRAIN) return;
  s->run = last ? run_rows : pln_dtype_is_float((pln_DType)c->arg[0].dtype) ? run_row : run_row_numbered;
}
