/* SPDX-License-Identifier: MIT
** embed.c -- the transpose of `slice`: a tensor as that part of zeros which the same lists would take out again.
*/
#include "../engine.h"
#include "../op.h"

static int64_t from_end(int64_t i, int64_t size) { return i < 0 ? i + size + 1 : i; }

pln_Status pln_prepare_slice_backward(pln_Prep *p) {
  pln_Tensor *g = p->a->in[0], *part;
  const pln_Shape *first = &p->a->opt[0].list, *last = &p->a->opt[1].list, *step = &p->a->opt[2].list, *whole = &p->a->opt[3].list;
  pln_Shape shape = {0, {0}};
  int64_t stride[PLN_MAX_DIMS], offset = 0;
  char want[PLN_SHAPE_TEXT], got[PLN_SHAPE_TEXT];
  if (first->ndim != last->ndim || first->ndim != step->ndim || first->ndim > whole->ndim)
    return pln_prep_fail(p, PLN_EARG, "arguments 'first', 'last' and 'step': lists of one length were expected, at most that of 'shape'");
  PLN_TRY(pln_prep_out(p, 0, (pln_DType)g->dtype, whole));
  pln_Tensor *out = p->nback ? p->back[0].from : p->a->out[0];
  p->done = 1;
  for (int i = 0; i < whole->ndim; i++) {
    int64_t start = 0, size = whole->size[i], by = 1;
    if (i < first->ndim) {
      start = from_end(first->size[i], size) - 1;
      by = step->size[i];
      if (start < 0 || start > size - (by == 0) || by < 0) return pln_prep_fail(p, PLN_EARG, "argument 'first': no index of dimension %d", i + 1);
      if (by == 0) {
        offset += start * out->stride[i];
        continue;
      }
      int64_t end = from_end(last->size[i], size);
      if (end > size) return pln_prep_fail(p, PLN_EARG, "argument 'last': no index of dimension %d", i + 1);
      size = end > start ? (end - 1 - start) / by + 1 : 0;
    }
    offset += start * out->stride[i];
    shape.size[shape.ndim] = size;
    stride[shape.ndim++] = size > 1 ? out->stride[i] * by : out->stride[i];
  }
  pln_Shape own = pln_tensor_shape(g);
  if (!pln_shape_equal(&own, &shape))
    return pln_prep_fail(p, PLN_ESHAPE, "argument 'g': expected shape %s, got %s", pln_shape_text(shape.ndim, shape.size, want),
                         pln_shape_text(g->ndim, g->shape, got));
  pln_Args a;
  pln_args_init(&pln_ops[PLN_OP_zero], &a);
  a.in[0] = out;
  PLN_TRY(pln_op_run(p->e, &pln_ops[PLN_OP_zero], &a));
  if (g->numel == 0) return PLN_OK;
  PLN_TRY(pln_tensor_view(out, &shape, stride, offset, &part));
  pln_Status status = pln_copy_into(p->e, part, g);
  pln_tensor_release(part);
  return status;
}
