/* SPDX-License-Identifier: MIT
** calc.c -- see calc.h.
*/
#include "calc.h"

pln_Status pln_calc_end(pln_Calc *c) {
  while (c->n) pln_tensor_release(c->t[--c->n]);
  return c->status;
}

pln_Tensor *pln_calc_own(pln_Calc *c, pln_Tensor *t) {
  if (c->n == PLN_CALC_MAX) {
    pln_tensor_release(t);
    c->status = pln_fail(PLN_EGRAD, "backward: a derivative has too many steps");
    return NULL;
  }
  return c->t[c->n++] = t;
}

void pln_calc_args(pln_Calc *c, pln_OpId op, pln_Args *a) {
  pln_args_init(&pln_ops[op], a);
  a->place = c->place;
}

pln_Tensor *pln_calc_run(pln_Calc *c, pln_OpId op, pln_Args *a) {
  if (c->status != PLN_OK) return NULL;
  c->status = pln_op_run(c->e, &pln_ops[op], a);
  if (c->status != PLN_OK) return NULL;
  for (int k = 1; k < pln_ops[op].nout; k++)
    if (a->out[k]) (void)pln_calc_own(c, a->out[k]);
  return pln_calc_own(c, a->out[0]);
}

pln_Tensor *pln_calc_op1(pln_Calc *c, pln_OpId op, pln_Tensor *x) {
  if (c->status != PLN_OK) return NULL;
  pln_Args a;
  pln_calc_args(c, op, &a);
  a.in[0] = x;
  return pln_calc_run(c, op, &a);
}

pln_Tensor *pln_calc_op2(pln_Calc *c, pln_OpId op, pln_Tensor *x, pln_Tensor *y) {
  if (c->status != PLN_OK) return NULL;
  pln_Args a;
  pln_calc_args(c, op, &a);
  a.in[0] = x;
  a.in[1] = y;
  return pln_calc_run(c, op, &a);
}

pln_Tensor *pln_calc_tn(pln_Calc *c, pln_OpId op, pln_Tensor *x, double y) {
  if (c->status != PLN_OK) return NULL;
  pln_Args a;
  pln_calc_args(c, op, &a);
  a.in[0] = x;
  a.numbers = 2;
  a.num[1] = y;
  return pln_calc_run(c, op, &a);
}

pln_Tensor *pln_calc_nt(pln_Calc *c, pln_OpId op, double x, pln_Tensor *y) {
  if (c->status != PLN_OK) return NULL;
  pln_Args a;
  pln_calc_args(c, op, &a);
  a.numbers = 1;
  a.num[0] = x;
  a.in[1] = y;
  return pln_calc_run(c, op, &a);
}

/* Unrecorded views need no op. */
static pln_Tensor *view(pln_Calc *c, pln_Tensor *x, const pln_Shape *shape, const int64_t *stride) {
  pln_Tensor *v;
  c->status = pln_tensor_view(x, shape, stride, 0, &v);
  return c->status == PLN_OK ? pln_calc_own(c, v) : NULL;
}

pln_Tensor *pln_calc_transpose(pln_Calc *c, pln_Tensor *x, int dim1, int dim2) {
  if (c->status != PLN_OK) return NULL;
  if (!c->graph) {
    pln_Shape shape = pln_tensor_shape(x);
    int64_t stride[PLN_MAX_DIMS];
    for (int i = 0; i < x->ndim; i++) stride[i] = x->stride[i];
    shape.size[dim1] = x->shape[dim2], shape.size[dim2] = x->shape[dim1];
    stride[dim1] = x->stride[dim2], stride[dim2] = x->stride[dim1];
    return view(c, x, &shape, stride);
  }
  pln_Args a;
  pln_calc_args(c, PLN_OP_transpose, &a);
  a.in[0] = x;
  pln_calc_int(&a, 0, dim1 + 1);
  pln_calc_int(&a, 1, dim2 + 1);
  return pln_calc_run(c, PLN_OP_transpose, &a);
}

static pln_Tensor *shaped(pln_Calc *c, pln_OpId op, pln_Tensor *x, const pln_Shape *shape) {
  pln_Args a;
  pln_calc_args(c, op, &a);
  a.in[0] = x;
  pln_calc_list(&a, 0, shape);
  return pln_calc_run(c, op, &a);
}

static bool has_shape(const pln_Tensor *x, const pln_Shape *shape) {
  if (x->ndim != shape->ndim) return false;
  for (int i = 0; i < x->ndim; i++)
    if (x->shape[i] != shape->size[i]) return false;
  return true;
}

pln_Tensor *pln_calc_reshape(pln_Calc *c, pln_Tensor *x, const pln_Shape *shape) {
  int64_t stride[PLN_MAX_DIMS];
  if (c->status != PLN_OK || has_shape(x, shape)) return x;
  if (!c->graph && pln_shape_view(x->ndim, x->shape, x->stride, shape, stride)) return view(c, x, shape, stride);
  return shaped(c, PLN_OP_reshape, x, shape);
}

pln_Tensor *pln_calc_expand(pln_Calc *c, pln_Tensor *x, const pln_Shape *shape) {
  int64_t stride[PLN_MAX_DIMS];
  if (c->status != PLN_OK || has_shape(x, shape)) return x;
  if (!c->graph && pln_shape_expand(x->ndim, x->shape, x->stride, shape, stride)) return view(c, x, shape, stride);
  return shaped(c, PLN_OP_expand, x, shape);
}

pln_Tensor *pln_calc_narrow(pln_Calc *c, pln_Tensor *x, int dim, int64_t start, int64_t length) {
  pln_Args a;
  pln_calc_args(c, PLN_OP_narrow, &a);
  a.in[0] = x;
  pln_calc_int(&a, 0, dim + 1);
  pln_calc_int(&a, 1, start + 1);
  pln_calc_int(&a, 2, length);
  return pln_calc_run(c, PLN_OP_narrow, &a);
}

/* A mask as the list that an op takes; the empty mask is no list (a sum over no dim is the tensor itself). */
static pln_Shape dim_list(uint32_t dims) {
  pln_Shape list = {0, {0}};
  for (int d = 0; dims; d++, dims >>= 1)
    if (dims & 1) list.size[list.ndim++] = d + 1;
  return list;
}

pln_Tensor *pln_calc_sum(pln_Calc *c, pln_Tensor *x, uint32_t dims, bool keepdim) {
  if (c->status != PLN_OK || !dims) return x;
  pln_Args a;
  pln_Shape list = dim_list(dims);
  pln_calc_args(c, PLN_OP_sum, &a);
  a.in[0] = x;
  pln_calc_list(&a, 0, &list);
  pln_calc_int(&a, 1, keepdim);
  return pln_calc_run(c, PLN_OP_sum, &a);
}

pln_Tensor *pln_calc_cast(pln_Calc *c, pln_Tensor *x, pln_DType dtype) {
  if (c->status != PLN_OK || x->dtype == dtype) return x;
  pln_Args a;
  pln_calc_args(c, PLN_OP_cast, &a);
  a.in[0] = x;
  pln_calc_int(&a, 0, dtype);
  return pln_calc_run(c, PLN_OP_cast, &a);
}

pln_Tensor *pln_calc_sum_to(pln_Calc *c, pln_Tensor *x, const pln_Shape *shape) {
  if (c->status != PLN_OK || has_shape(x, shape)) return x;
  int lead = x->ndim - shape->ndim;
  uint32_t dims = 0;
  if (lead < 0) {
    c->status = pln_fail(PLN_EGRAD, "backward: a gradient has fewer dimensions than its operand");
    return NULL;
  }
  for (int i = 0; i < x->ndim; i++)
    if (i < lead || (shape->size[i - lead] == 1 && x->shape[i] != 1)) dims |= 1u << i;
  return pln_calc_reshape(c, pln_calc_sum(c, x, dims, true), shape);
}

pln_Tensor *pln_calc_unreduce(pln_Calc *c, pln_Tensor *y, uint32_t dims, bool keepdim, const pln_Shape *shape) {
  if (keepdim || c->status != PLN_OK) return y;
  pln_Shape s = *shape;
  for (int i = 0; i < s.ndim; i++)
    if (dims >> i & 1) s.size[i] = 1;
  return pln_calc_reshape(c, y, &s);
}

pln_Tensor *pln_calc_full(pln_Calc *c, const pln_Shape *shape, pln_DType dtype, double value) {
  pln_Args a;
  pln_calc_args(c, PLN_OP_full, &a);
  pln_calc_list(&a, 0, shape);
  pln_calc_num(&a, 1, value);
  pln_calc_int(&a, 2, dtype);
  return pln_calc_run(c, PLN_OP_full, &a);
}

pln_Tensor *pln_calc_where(pln_Calc *c, pln_Tensor *mask, pln_Tensor *x, double otherwise) {
  pln_Args a;
  pln_calc_args(c, PLN_OP_where, &a);
  a.in[0] = mask;
  a.in[1] = x;
  a.numbers = 4;
  a.num[2] = otherwise;
  return pln_calc_run(c, PLN_OP_where, &a);
}

uint32_t pln_node_dims(const pln_Node *n, int opt, int ndim) {
  pln_Shape list = pln_node_list(n, opt);
  if (!ndim) return 0;
  if (!n->opt[opt].given || list.ndim == 0) return (1u << ndim) - 1;
  uint32_t mask = 0;
  for (int i = 0; i < list.ndim; i++) mask |= 1u << (list.size[i] > 0 ? list.size[i] - 1 : list.size[i] + ndim);
  return mask;
}
