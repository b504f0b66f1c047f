/* SPDX-License-Identifier: MIT
** calc.h -- derivatives as short formulas: each function runs one op and returns its result, which goes with the calculation.
**
** After the first error all functions return NULL and do nothing; pln_calc_end reports it. A result leaves the calculation only through
** pln_calc_keep. With `graph` the gradients themselves are being recorded: then derivatives must be made of ops that have derivatives.
*/
#ifndef PLN_CALC_H
#define PLN_CALC_H

#include "../engine.h"
#include "tape.h"

#define PLN_CALC_MAX 96

typedef struct pln_Calc {
  pln_Engine *e;
  pln_Status status;
  uint32_t place;
  bool graph;
  int n;
  pln_Tensor *t[PLN_CALC_MAX];
} pln_Calc;

static inline void pln_calc_begin(pln_Calc *c, pln_Engine *e) {
  c->e = e;
  c->status = PLN_OK;
  c->place = e->tape->place;
  c->graph = pln_tape_recording(e);
  c->n = 0;
}
/* Releases all; the first error. */
pln_Status pln_calc_end(pln_Calc *c);
/* Registers a new reference. */
pln_Tensor *pln_calc_own(pln_Calc *c, pln_Tensor *t);
/* A reference of the caller's own. */
static inline pln_Tensor *pln_calc_keep(pln_Calc *c, pln_Tensor *t) {
  if (c->status != PLN_OK || !t) return NULL;
  pln_tensor_retain(t);
  return t;
}

/* Any op: a is made by pln_calc_args; the first result. */
pln_Tensor *pln_calc_run(pln_Calc *c, pln_OpId op, pln_Args *a);
void pln_calc_args(pln_Calc *c, pln_OpId op, pln_Args *a);
static inline void pln_calc_int(pln_Args *a, int opt, int64_t v) {
  a->opt[opt].given = 1;
  a->opt[opt].i = v;
  a->opt[opt].num = (double)v;
}
static inline void pln_calc_num(pln_Args *a, int opt, double v) {
  a->opt[opt].given = 1;
  a->opt[opt].num = v;
}
static inline void pln_calc_list(pln_Args *a, int opt, const pln_Shape *list) {
  a->opt[opt].given = 1;
  a->opt[opt].list = *list;
}

pln_Tensor *pln_calc_op1(pln_Calc *c, pln_OpId op, pln_Tensor *x);
pln_Tensor *pln_calc_op2(pln_Calc *c, pln_OpId op, pln_Tensor *a, pln_Tensor *b);
/* With a number as second or first operand. */
pln_Tensor *pln_calc_tn(pln_Calc *c, pln_OpId op, pln_Tensor *a, double b);
pln_Tensor *pln_calc_nt(pln_Calc *c, pln_OpId op, double a, pln_Tensor *b);

static inline pln_Tensor *pln_calc_add(pln_Calc *c, pln_Tensor *a, pln_Tensor *b) { return pln_calc_op2(c, PLN_OP_add, a, b); }
static inline pln_Tensor *pln_calc_sub(pln_Calc *c, pln_Tensor *a, pln_Tensor *b) { return pln_calc_op2(c, PLN_OP_sub, a, b); }
static inline pln_Tensor *pln_calc_mul(pln_Calc *c, pln_Tensor *a, pln_Tensor *b) { return pln_calc_op2(c, PLN_OP_mul, a, b); }
static inline pln_Tensor *pln_calc_div(pln_Calc *c, pln_Tensor *a, pln_Tensor *b) { return pln_calc_op2(c, PLN_OP_div, a, b); }
static inline pln_Tensor *pln_calc_scale(pln_Calc *c, pln_Tensor *a, double b) { return pln_calc_tn(c, PLN_OP_mul, a, b); }
static inline pln_Tensor *pln_calc_matmul(pln_Calc *c, pln_Tensor *a, pln_Tensor *b) { return pln_calc_op2(c, PLN_OP_matmul, a, b); }

/* Views and reductions. Dims are 0-based here; masks of dims as in pln_prep_dims. */
pln_Tensor *pln_calc_transpose(pln_Calc *c, pln_Tensor *x, int dim1, int dim2);
pln_Tensor *pln_calc_reshape(pln_Calc *c, pln_Tensor *x, const pln_Shape *shape);
pln_Tensor *pln_calc_expand(pln_Calc *c, pln_Tensor *x, const pln_Shape *shape);
pln_Tensor *pln_calc_narrow(pln_Calc *c, pln_Tensor *x, int dim, int64_t start, int64_t length);
pln_Tensor *pln_calc_sum(pln_Calc *c, pln_Tensor *x, uint32_t dims, bool keepdim);
pln_Tensor *pln_calc_cast(pln_Calc *c, pln_Tensor *x, pln_DType dtype);
/* The sum of x over what was broadcast from `shape`. */
pln_Tensor *pln_calc_sum_to(pln_Calc *c, pln_Tensor *x, const pln_Shape *shape);
/* What a reduction over `dims` gave, with the dims there again as 1. */
pln_Tensor *pln_calc_unreduce(pln_Calc *c, pln_Tensor *y, uint32_t dims, bool keepdim, const pln_Shape *shape);
pln_Tensor *pln_calc_full(pln_Calc *c, const pln_Shape *shape, pln_DType dtype, double value);
pln_Tensor *pln_calc_where(pln_Calc *c, pln_Tensor *mask, pln_Tensor *a, double b);

/* The formula text of elementwise.def, made of ops. */
typedef struct pln_Name {
  const char *name;
  pln_Tensor *t;   /* NULL: the number */
  double number;
} pln_Name;
pln_Tensor *pln_calc_formula(pln_Calc *c, const char *text, const pln_Name *names, int nnames);

/* Mask of 0-based dims of a node's option "dims" for an operand of ndim dims. */
uint32_t pln_node_dims(const pln_Node *n, int opt, int ndim);
/* 0-based dim of a node's option. */
static inline int pln_node_dim(const pln_Node *n, int opt, int ndim) {
  int64_t d = n->opt[opt].i;
  return (int)(d > 0 ? d - 1 : d + (ndim ? ndim : 1));
}

#endif
