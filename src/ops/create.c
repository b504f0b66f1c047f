/* SPDX-License-Identifier: MIT
** create.c -- ops that make a tensor of numbers alone. Without a dtype the result is f32.
*/
#include <math.h>

#include "elementwise.h"

static pln_DType dtype_of(const pln_Prep *p, int opt) { return p->a->opt[opt].given ? (pln_DType)p->a->opt[opt].i : PLN_F32; }

/* The result; sizes that no memory can hold are named before any is asked for. */
static pln_Status make(pln_Prep *p, const char *name, const pln_Shape *shape, pln_DType dtype) {
  int64_t n;
  if (pln_shape_numel(shape, pln_dtype_size(dtype), &n) != PLN_OK) return pln_fail_prefix(PLN_ESHAPE, "%s: argument '%s': ", p->op->name, name);
  return pln_prep_out(p, 0, dtype, shape);
}

/* --- one value ------------------------------------------------------------------------------------ */

static pln_Status filled(pln_Prep *p, double value, pln_DType dtype) {
  pln_Shape shape = p->a->opt[0].list;
  PLN_TRY(make(p, "shape", &shape, dtype));
  p->call.f[0] = value;
  return pln_prep_iterate(p, &shape);
}

pln_Status pln_prepare_full(pln_Prep *p) {
  pln_DType dtype = dtype_of(p, 2);
  double value = p->a->opt[1].num;
  PLN_TRY(pln_elementwise_number(p, dtype, value, "value"));
  return filled(p, value, dtype);
}

pln_Status pln_prepare_zeros(pln_Prep *p) { return filled(p, 0, dtype_of(p, 1)); }

pln_Status pln_prepare_ones(pln_Prep *p) { return filled(p, 1, dtype_of(p, 1)); }

pln_Status pln_prepare_empty(pln_Prep *p) {
  pln_Shape shape = p->a->opt[0].list;
  PLN_TRY(make(p, "shape", &shape, dtype_of(p, 1)));
  p->done = 1;
  return PLN_OK;
}

/* --- eye ------------------------------------------------------------------------------------------ */

pln_Status pln_prepare_eye(pln_Prep *p) {
  const pln_Opt *n = &p->a->opt[0], *m = &p->a->opt[1];
  pln_Shape shape = {2, {n->i, m->given ? m->i : n->i}};
  if (shape.size[0] < 0) return pln_prep_fail(p, PLN_EARG, "argument 'n': %lld is negative", (long long)shape.size[0]);
  if (shape.size[1] < 0) return pln_prep_fail(p, PLN_EARG, "argument 'm': %lld is negative", (long long)shape.size[1]);
  return make(p, "n", &shape, dtype_of(p, 2));
}

/* --- ranges --------------------------------------------------------------------------------------- */

/* n elements that count from `first` by `step`, from element `turn` on back from `last`. */
static pln_Status ramp(pln_Prep *p, const char *name, int64_t n, double first, double step, double last, int64_t turn, pln_DType dtype) {
  pln_Call *c = &p->call;
  pln_Shape shape = {1, {n}};
  PLN_TRY(make(p, name, &shape, dtype));
  c->f[0] = first;
  c->f[1] = step;
  c->f[2] = last;
  c->i[0] = turn;
  c->ndim = 1;
  c->numel = c->size[0] = n;
  return PLN_OK;
}

/* Elements become integers by cutting off the fraction; the ends must fit, then all others do. */
static pln_Status check_ends(const pln_Prep *p, const char *name, pln_DType dtype, double first, double last) {
  PLN_TRY(pln_elementwise_number(p, dtype, trunc(first), "a"));
  return pln_elementwise_number(p, dtype, trunc(last), name);
}

/* The least n with a + n * step not before b, as the elements are computed; the quotient alone may be one off. */
static double steps_between(double a, double b, double step) {
  double n = ceil((b - a) / step);
  if (n > 0 && (step > 0 ? a + (n - 1) * step >= b : a + (n - 1) * step <= b)) return n - 1;
  if (step > 0 ? a + n * step < b : a + n * step > b) return n + 1;
  return n;
}

pln_Status pln_prepare_arange(pln_Prep *p) {
  const pln_Opt *opt = p->a->opt;
  bool one = !opt[1].given; /* a alone is the end */
  double a = one ? 0 : opt[0].num, b = one ? opt[0].num : opt[1].num, step = opt[2].given ? opt[2].num : 1;
  const char *end = one ? "a" : "b";
  pln_DType dtype = dtype_of(p, 3);
  if (!isfinite(a) || !isfinite(b) || !isfinite(step))
    return pln_prep_fail(p, PLN_EARG, "finite numbers were expected, got %g, %g and step %g", a, b, step);
  if (step == 0) return pln_prep_fail(p, PLN_EARG, "argument 'step': a step other than 0 was expected");
  if ((b - a) / step < 0)
    return pln_prep_fail(p, PLN_EARG, "argument 'step': %.17g leads away from %.17g, which the range from %.17g ends before", step, b, a);
  double n = steps_between(a, b, step);
  if (!(n < 0x1p53)) return pln_prep_fail(p, PLN_ESHAPE, "argument '%s': %.17g elements are too many", end, n);
  if (n > 0) PLN_TRY(check_ends(p, end, dtype, a, a + (n - 1) * step));
  return ramp(p, end, (int64_t)n, a, step, b, (int64_t)n, dtype);
}

pln_Status pln_prepare_linspace(pln_Prep *p) {
  const pln_Opt *opt = p->a->opt;
  double a = opt[0].num, b = opt[1].num;
  int64_t n = opt[2].i;
  pln_DType dtype = dtype_of(p, 3);
  if (n < 0) return pln_prep_fail(p, PLN_EARG, "argument 'steps': %lld is negative", (long long)n);
  if (n > 0) PLN_TRY(check_ends(p, "b", dtype, a, n > 1 ? b : a));
  double step = n > 1 ? (b - a) / (double)(n - 1) : 0;
  if (!isfinite(step)) step = b / (double)(n - 1) - a / (double)(n - 1); /* b - a overflows */
  return ramp(p, "steps", n, a, step, b, (n + 1) / 2, dtype);
}
