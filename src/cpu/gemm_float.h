/* SPDX-License-Identifier: MIT
** gemm_float.h - the matrix product's driver for one floating type.
**
** Included by gemm.c with T, K(name), KERNELS (the type of the kernel table) and TABLE (its place).
** A product is read in place when small or flat, and else packed into panels, block by block: 256
** terms of k, then up to PACK_ROWS x PACK_COLS results.  Any cut gives the same bits (gemm.h), so
** cuts serve speed alone.
*/

/* C = A * B seen from the side that suits: rows and columns may have changed places. */
typedef struct K(View) {
  int64_t m, n, k, as0, as1, bs0, bs1, cs0, cs1;
  const T *a, *b;
  T *c;
  int add;
} K(View);

static K(View) K(turned) (const K(View) *v) {
  return (K(View)){ v->n, v->m, v->k, v->bs1, v->bs0, v->as1, v->as0, v->cs1, v->cs0,
                    v->b, v->a, v->c, v->add };
}

/* Rows lo .. and columns jo .. of v, with the terms po .. of k. */
static K(View) K(part) (const K(View) *v, int64_t io, int64_t m, int64_t jo, int64_t n, int64_t po,
                        int64_t k) {
  K(View) s = *v;
  s.m = m;
  s.n = n;
  s.k = k;
  s.a += io * v->as0 + po * v->as1;
  s.b += po * v->bs0 + jo * v->bs1;
  s.c += io * v->cs0 + jo * v->cs1;
  s.add = v->add || po > 0;
  return s;
}

static void K(spread) (T *c, int64_t cs0, int64_t cs1, const T *from, int64_t ld, int64_t m,
                       int64_t n, int add) {
  for (int64_t i = 0; i < m; i++)
    for (int64_t j = 0; j < n; j++) {
      T *to = c + i * cs0 + j * cs1;
      *to = add ? *to + from[i * ld + j] : from[i * ld + j];
    }
}

static void K(clear) (const K(View) *v) {
  for (int64_t i = 0; i < v->m; i++)
    for (int64_t j = 0; j < v->n; j++) v->c[i * v->cs0 + j * v->cs1] = 0;
}

static void K(scalar) (const KERNELS *t, const K(View) *v) {
  T lanes[PLN_GEMM_LANES] = { 0 };
  if (v->as1 == 1 && v->bs0 == 1) t->dot(v->k, v->a, v->b, lanes);
  else
    for (int64_t p = 0; p < v->k; p += PLN_GEMM_KC) {
      T a[PLN_GEMM_KC], b[PLN_GEMM_KC];
      int64_t k = least(v->k - p, PLN_GEMM_KC);
      for (int64_t l = 0; l < k; l++) {
        a[l] = v->a[(p + l) * v->as1];
        b[l] = v->b[(p + l) * v->bs0];
      }
      t->dot(k, a, b, lanes);
    }
  for (int half = PLN_GEMM_LANES / 2; half > 0; half /= 2)
    for (int l = 0; l < half; l++) lanes[l] += lanes[l + half];
  *v->c = v->add ? *v->c + lanes[0] : lanes[0];
}

/* k <= KC and rows of C contiguous.  B is read where it lies; it is copied where its rows are far
** apart and every vector straddles two lines of the cache, again and again. */
static void K(rows) (const KERNELS *t, const K(View) *v) {
  uintptr_t apart = (uintptr_t)v->bs0 * sizeof(T);
  int copy = v->m >= COPY_ROWS && apart >= COPY_BYTES && (((uintptr_t)v->b | apart) & 63) != 0;
  if ((v->bs1 == 1 && !copy) || v->n == 1) {
    pln_Gemm g = { v->m, v->n, v->k, v->as0, v->as1, v->bs0, 1, v->cs0, 1, 1, 0, 0, 0, v->add };
    t->direct(&g, v->a, v->b, v->c);
    return;
  }
  if (v->m == 1 && v->bs0 == 1) {
    t->row(v->n, v->k, v->a, v->as1, v->b, v->bs1, v->c, v->add);
    return;
  }
  T strip[PLN_GEMM_KC * MAX_NR(T)];
  for (int64_t j = 0; j < v->n; j += t->nr) {
    int64_t n = least(v->n - j, t->nr);
    t->pack(n, n, v->k, v->b + j * v->bs1, v->bs1, v->bs0, strip);
    pln_Gemm g = { v->m, n, v->k, v->as0, v->as1, n, 1, v->cs0, 1, 1, 0, 0, 0, v->add };
    t->direct(&g, v->a, strip, v->c + j);
  }
}

/* Without memory of its own: A where it lies, B where it lies or strip by strip on the stack. */
static void K(in_place) (const KERNELS *t, const K(View) *view) {
  K(View) v = *view;
  if (v.m > 1 && (v.n == 1 || (v.cs1 != 1 && v.cs0 == 1))) v = K(turned)(&v);
  for (int64_t p = 0; p < v.k; p += PLN_GEMM_KC) {
    int64_t k = least(v.k - p, PLN_GEMM_KC);
    if (v.cs1 == 1 || v.n == 1) {
      K(View) s = K(part)(&v, 0, v.m, 0, v.n, p, k);
      K(rows)(t, &s);
      continue;
    }
    for (int64_t i = 0; i < v.m; i += SPREAD)
      for (int64_t j = 0; j < v.n; j += SPREAD) {
        T block[SPREAD * SPREAD];
        K(View) s = K(part)(&v, i, least(v.m - i, SPREAD), j, least(v.n - j, SPREAD), p, k);
        T *c = s.c;
        int add = s.add;
        s.c = block;
        s.cs0 = SPREAD;
        s.cs1 = 1;
        s.add = 0;
        K(rows)(t, &s);
        K(spread)(c, v.cs0, v.cs1, block, SPREAD, s.m, s.n, add);
      }
  }
}

/* One block of a packed product, shared by the tasks that pack it and those that multiply it. */
typedef struct K(Packed) {
  const KERNELS *t;
  K(View) v;
  T *a, *b; /* panels of mr rows and of nr columns */
  int64_t apanels, bpanels;
  int64_t rows, cols; /* of a task, in panels */
  int64_t across;     /* tasks side by side */
} K(Packed);

static void K(pack_panels) (void *ctx, int64_t task) {
  const K(Packed) *q = ctx;
  const KERNELS *t = q->t;
  const K(View) *v = &q->v;
  for (int64_t x = task * PANELS; x < least((task + 1) * PANELS, q->apanels + q->bpanels); x++) {
    if (x < q->apanels) {
      int64_t i = x * t->mr, m = least(v->m - i, t->mr);
      t->pack(m, m, v->k, v->a + i * v->as0, v->as0, v->as1, q->a + i * v->k);
    } else {
      int64_t j = (x - q->apanels) * t->nr, n = least(v->n - j, t->nr);
      int64_t ld = n > t->vector ? t->nr : t->vector;
      t->pack(n, ld, v->k, v->b + j * v->bs1, v->bs1, v->bs0, q->b + j * v->k);
    }
  }
}

static void K(multiply_panels) (void *ctx, int64_t task) {
  const K(Packed) *q = ctx;
  const KERNELS *t = q->t;
  const K(View) *v = &q->v;
  int64_t i0 = task / q->across * q->rows * t->mr, i1 = least(i0 + q->rows * t->mr, v->m);
  int64_t j0 = task % q->across * q->cols * t->nr, j1 = least(j0 + q->cols * t->nr, v->n);
  for (int64_t j = j0; j < j1; j += t->nr)
    for (int64_t i = i0; i < i1; i += t->mr) {
      int64_t m = least(i1 - i, t->mr), n = least(j1 - j, t->nr);
      T *c = v->c + i * v->cs0 + j * v->cs1;
      if (v->cs1 == 1) {
        t->tile(m, n, v->k, q->a + i * v->k, q->b + j * v->k, c, v->cs0, v->add);
      } else {
        T block[MAX_MR * MAX_NR(T)];
        t->tile(m, n, v->k, q->a + i * v->k, q->b + j * v->k, block, t->nr, 0);
        K(spread)(c, v->cs0, v->cs1, block, t->nr, m, n, v->add);
      }
    }
}

/* false: no memory for the panels, nothing has been written. */
static int K(packed) (pln_Threads *pool, const KERNELS *t, const K(View) *view) {
  K(View) v = *view;
  if (v.cs1 != 1 && v.cs0 == 1) v = K(turned)(&v);
  int64_t kc = least(v.k, PLN_GEMM_KC), mc = least(v.m, PACK_ROWS), nc = least(v.n, PACK_COLS);
  int64_t arows = portions(mc, 16) * 16; /* so that B's panels are aligned */
  T *memory = take_scratch((size_t)(kc * (arows + nc + t->nr)) * sizeof(T));
  if (memory == NULL) return 0;
  K(Packed) q = { .t = t, .a = memory, .b = memory + kc * arows };
  for (int64_t j = 0; j < v.n; j += PACK_COLS)
    for (int64_t i = 0; i < v.m; i += PACK_ROWS)
      for (int64_t p = 0; p < v.k; p += PLN_GEMM_KC) {
        q.v = K(part)(&v, i, least(v.m - i, PACK_ROWS), j, least(v.n - j, PACK_COLS), p,
                      least(v.k - p, PLN_GEMM_KC));
        q.apanels = portions(q.v.m, t->mr);
        q.bpanels = portions(q.v.n, t->nr);
        q.rows = TASK_ROWS / t->mr;
        q.cols = TASK_COLS / t->nr;
        q.across = portions(q.bpanels, q.cols);
        pln_threads_run_polled(pool, portions(q.apanels + q.bpanels, PANELS), K(pack_panels), &q);
        pln_threads_run_polled(pool, q.across * portions(q.apanels, q.rows), K(multiply_panels), &q);
      }
  give_scratch(memory);
  return 1;
}

/* A flat or middling product in place, cut into blocks. */
typedef struct K(Cut) {
  const KERNELS *t;
  const K(View) *v;
  int64_t rows, cols, across;
} K(Cut);

static void K(cut_task) (void *ctx, int64_t task) {
  const K(Cut) *q = ctx;
  int64_t i = task / q->across * q->rows, j = task % q->across * q->cols;
  K(View) s = K(part)(q->v, i, least(q->v->m - i, q->rows), j, least(q->v->n - j, q->cols), 0,
                      q->v->k);
  K(in_place)(q->t, &s);
}

/* The part of a product that another library computes, in blocks that it was tried with. */
typedef struct K(Lent) {
  pln_Threads *pool;
  const K(View) *v;
  int atrans, btrans, lda, ldb;
  int64_t across, down; /* blocks, of even sizes */
} K(Lent);

static void K(lent_task) (void *ctx, int64_t task) {
  const K(Lent) *q = ctx;
  const K(View) *v = q->v;
  int64_t x = task % q->across, y = task / q->across;
  int64_t i = share(v->m, q->down, y), m = share(v->m, q->down, y + 1) - i;
  int64_t j = share(v->n, q->across, x), n = share(v->n, q->across, x + 1) - j;
  for (int64_t p = 0; p < v->k && !pln_threads_poll(q->pool); p += PLN_GEMM_KC) {
    K(View) s = K(part)(v, i, m, j, n, p, least(v->k - p, PLN_GEMM_KC));
    pln_blas_get()->TYPE(PLN_BLAS_ROWS, q->atrans, q->btrans, (int)m, (int)n, (int)s.k, 1, s.a,
                         q->lda, s.b, q->ldb, s.add, s.c, (int)s.cs0);
  }
}

/* How a BLAS is told of an operand of m rows and n columns; 0: it cannot be. */
static int K(told) (int64_t m, int64_t n, int64_t s0, int64_t s1, int *ld_p) {
  int64_t ld = s1 == 1 ? s0 : s1;
  *ld_p = (int)ld;
  if ((s1 != 1 && s0 != 1) || ld > INT_MAX || ld < (s1 == 1 ? n : m)) return 0;
  return s1 == 1 ? PLN_BLAS_PLAIN : PLN_BLAS_TURNED;
}

/* false: not possible, nothing has been written.  The edges, where libraries add up in orders of
** their own, stay here. */
static int K(lent) (pln_Threads *pool, const KERNELS *t, const K(View) *view) {
  K(View) v = *view;
  if (v.cs1 != 1) v = K(turned)(&v);
  int ldc;
  int64_t m = v.m - v.m % PLN_BLAS_STEP, n = v.n - v.n % PLN_BLAS_STEP;
  if (m < PLN_BLAS_LEAST || n < PLN_BLAS_LEAST) return 0;
  K(Lent) q = { .pool = pool, .across = portions(n, PLN_BLAS_MOST), .down = portions(m, PLN_BLAS_MOST) };
  q.atrans = K(told)(v.m, v.k, v.as0, v.as1, &q.lda);
  q.btrans = K(told)(v.k, v.n, v.bs0, v.bs1, &q.ldb);
  if (!q.atrans || !q.btrans || v.cs1 != 1 || !K(told)(v.m, v.n, v.cs0, 1, &ldc)) return 0;
  K(View) inner = K(part)(&v, 0, m, 0, n, 0, v.k);
  q.v = &inner;
  pln_threads_run_polled(pool, q.across * q.down, K(lent_task), &q);
  K(View) right = K(part)(&v, 0, m, n, v.n - n, 0, v.k);
  K(View) below = K(part)(&v, m, v.m - m, 0, v.n, 0, v.k);
  if (right.n > 0) K(in_place)(t, &right);
  if (below.m > 0) K(in_place)(t, &below);
  return 1;
}

static void K(product) (pln_Threads *pool, const KERNELS *t, const K(View) *v) {
  if (v->m == 1 && v->n == 1) {
    K(scalar)(t, v);
    return;
  }
  double work = (double)v->m * (double)v->n * (double)v->k;
  int square = v->m >= PACK_SIDE && v->n >= PACK_SIDE && v->k >= PACK_DEPTH;
  if (square && work >= BLAS_WORK && pln_blas_get()->TYPE != NULL && K(lent)(pool, t, v)) return;
  if (square && work >= PACK_WORK && K(packed)(pool, t, v)) return;
  if (work < PARALLEL_WORK) {
    K(in_place)(t, v);
    return;
  }
  K(Cut) q = { .t = t, .v = v, .rows = CUT_ROWS, .cols = v->m < FLAT_ROWS ? FLAT_COLS : CUT_COLS };
  q.across = portions(v->n, q.cols);
  pln_threads_run_polled(pool, q.across * portions(v->m, q.rows), K(cut_task), &q);
}

typedef struct K(Batch) {
  const pln_Gemm *g;
  const T *a, *b;
  T *c;
  int64_t each; /* products per task */
} K(Batch);

static void K(one) (pln_Threads *pool, const K(Batch) *q, int64_t x) {
  const pln_Gemm *g = q->g;
  K(View) v = { g->m, g->n, g->k, g->as0, g->as1, g->bs0, g->bs1, g->cs0, g->cs1,
                q->a + x * g->abatch, q->b + x * g->bbatch, q->c + x * g->cbatch, g->accumulate };
  if (v.k > 0) K(product)(pool, &pln_gemm_table()->TYPE, &v);
  else if (!v.add) K(clear)(&v);
}

static void K(batch_task) (void *ctx, int64_t task) {
  const K(Batch) *q = ctx;
  for (int64_t x = task * q->each; x < least((task + 1) * q->each, q->g->batch); x++)
    K(one)(NULL, q, x);
}

/* Everything but the smallest plain product: batches, empty sizes, flat and large ones. */
__attribute__((noinline)) static void K(general) (pln_Threads *pool, const pln_Gemm *g, const T *a,
                                                  const T *b, T *c) {
  if (g->m <= 0 || g->n <= 0 || g->batch <= 0) return;
  pln_Gemm folded = *g;
  /* A batch that is one tall product, as of a layer; a dot product adds up in another order. */
  if (g->batch > 1 && g->bbatch == 0 && g->abatch == g->m * g->as0 && g->cbatch == g->m * g->cs0
      && (g->m > 1 || g->n > 1)) {
    folded.m *= g->batch;
    folded.batch = 1;
  }
  double work = (double)folded.m * (double)folded.n * (double)folded.k;
  K(Batch) q = { &folded, a, b, c, 1 };
  if (folded.batch > 1 && work < BATCH_WORK) {
    while (work * (double)q.each < PARALLEL_WORK && q.each < folded.batch) q.each *= 2;
    pln_threads_run_polled(pool, portions(folded.batch, q.each), K(batch_task), &q);
  } else {
    for (int64_t x = 0; x < folded.batch; x++) K(one)(pool, &q, x);
  }
}

/* A small product with contiguous rows of C, whose B is not by rows. */
__attribute__((noinline)) static void K(small) (const pln_Gemm *g, const T *a, const T *b, T *c) {
  const KERNELS *t = &pln_gemm_table()->TYPE;
  if (g->m == 1 && g->bs0 == 1) {
    t->row(g->n, g->k, a, g->as1, b, g->bs1, c, g->accumulate);
    return;
  }
  T strip[PLN_GEMM_PLAIN * MAX_NR(T)];
  for (int64_t j = 0; j < g->n; j += t->nr) {
    pln_Gemm packed = *g;
    packed.n = packed.bs0 = least(g->n - j, t->nr);
    t->pack(packed.n, packed.n, g->k, b + j * g->bs1, g->bs1, g->bs0, strip);
    t->direct(&packed, a, strip, c + j);
  }
}

/* The shortest way for the products that are over before a long one has begun. */
void GEMM (pln_Threads *pool, const pln_Gemm *g, const T *a, const T *b, T *c) {
  if (pln_gemm_is_plain(g)) {
    if (g->bs1 == 1) pln_gemm_table()->TYPE.direct(g, a, b, c);
    else K(small)(g, a, b, c);
  } else {
    K(general)(pool, g, a, b, c);
  }
}

#undef T
#undef TYPE
#undef KERNELS
#undef GEMM
#undef K
