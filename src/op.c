/* SPDX-License-Identifier: MIT
** op.c -- the op table as data, and the one entry for every op.
*/
#include "op.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "alloc.h"
#include "autograd/pass.h"
#include "autograd/tape.h"
#include "capture.h"
#include "engine.h"
#include "fault.h"
#include "plan.h"

/* --- the table ---------------------------------------------------------------------------------- */

#define OP(name, signature, nout, flags, dtypes, prepare, kernel, backward, samples, domain, rtol, doc) \
  pln_Status pln_prepare_##prepare(pln_Prep *p);                                                        \
  pln_Status plg_##backward(struct pln_Node *n, pln_Tensor **dy, pln_Tensor **dx);
#include "ops.def"

#define plg_none NULL

pln_OpDef pln_ops[PLN_NOPS] = {
#define OP(name, signature, nout, flags, dtypes, prepare, kernel, backward, samples, domain, rtol, doc) \
  [PLN_OP_##name] = {#name, signature, flags, dtypes, pln_prepare_##prepare, plg_##backward, samples, domain, rtol, doc, nout, \
                     PLN_OP_##name, 0, 0, 0, 0, 0, 0, 0, {{{0}, 0, 0, 0, 0, 0, {0}}}},
#include "ops.def"
};

const pln_OpDef *pln_op_find(const char *name) {
  for (int i = 0; i < PLN_NOPS; i++)
    if (strcmp(pln_ops[i].name, name) == 0) return &pln_ops[i];
  return NULL;
}

static const struct {
  const char *text;
  pln_SlotKind kind;
} slot_kinds[] = {
  {"t", PLN_SLOT_TENSOR}, {"ts", PLN_SLOT_NUMBER_OR_TENSOR}, {"i", PLN_SLOT_INDEX}, {"m", PLN_SLOT_MASK},
  {"tl", PLN_SLOT_TENSORS}, {"num", PLN_SLOT_NUM}, {"int", PLN_SLOT_INT}, {"bool", PLN_SLOT_BOOL},
  {"dim", PLN_SLOT_DIM}, {"dims", PLN_SLOT_DIMS}, {"ints", PLN_SLOT_INTS}, {"dtype", PLN_SLOT_DTYPE},
};

/* Copies up to one of `stops` into buf; returns where it stopped, NULL if it does not fit. */
static const char *field(const char *s, const char *stops, char *buf, size_t size) {
  size_t n = strcspn(s, stops);
  if (n >= size) return NULL;
  memcpy(buf, s, n);
  buf[n] = 0;
  return s + n;
}

static int word_index(const char *words, const char *word) {
  int index = 0;
  for (const char *w = words; *w; index++) {
    size_t n = strcspn(w, "|");
    if (strlen(word) == n && strncmp(w, word, n) == 0) return index;
    w += n;
    if (*w) w++;
  }
  return -1;
}

static bool parse_slot(const char **s_p, pln_Slot *slot) {
  char kind[64], text[32];
  const char *s = field(*s_p, ":", slot->name, sizeof slot->name);
  if (!s || *s != ':') return false;
  s = field(s + 1, "?= ", kind, sizeof kind);
  if (!s) return false;
  if (*s == '?') slot->optional = 1, s++;
  if (*s == '=') {
    s = field(s + 1, " ", text, sizeof text);
    if (!s) return false;
    slot->optional = slot->has_default = 1;
  }
  slot->kind = PLN_SLOT_WORD;
  for (size_t i = 0; i < sizeof slot_kinds / sizeof slot_kinds[0]; i++)
    if (strcmp(kind, slot_kinds[i].text) == 0) slot->kind = (uint8_t)slot_kinds[i].kind;
  if (slot->kind == PLN_SLOT_DIMS) slot->optional = 1;
  if (slot->kind == PLN_SLOT_WORD) {
    if (!strchr(kind, '|')) return false;
    strcpy(slot->words, kind);
  }
  if (slot->has_default) {
    if (slot->kind == PLN_SLOT_WORD)
      slot->def = word_index(slot->words, text);
    else if (slot->kind == PLN_SLOT_BOOL)
      slot->def = strcmp(text, "true") == 0;
    else
      slot->def = strtod(text, NULL);
  }
  *s_p = s;
  return true;
}

static pln_Status parse_signature(pln_OpDef *op) {
  const char *s = op->signature;
  int slots = 0, nin = 0, nopt = 0;
  while (*s) {
    if (*s == ' ') {
      s++;
      continue;
    }
    if (slots == PLN_MAX_SLOTS || !parse_slot(&s, &op->slot[slots]))
      return pln_fail(PLN_EARG, "op table: the signature of '%s' is wrong at '%s'", op->name, s);
    pln_Slot *slot = &op->slot[slots++];
    if (slot->kind == PLN_SLOT_TENSORS) continue;
    bool tensor = slot->kind < PLN_SLOT_TENSORS;
    slot->index = (uint8_t)(tensor ? nin++ : nopt++);
    if (nin > PLN_MAX_IN || nopt > PLN_MAX_OPT)
      return pln_fail(PLN_EARG, "op table: '%s' has too many slots", op->name);
  }
  op->nslots = (uint8_t)slots;
  op->nin = (uint8_t)nin;
  op->nopt = (uint8_t)nopt;
  op->lead = 0;
  while (op->lead < slots && op->slot[op->lead].kind < PLN_SLOT_TENSORS) op->lead++;
  op->numbers = nin > 0;
  for (int k = 0; k < op->lead; k++) op->numbers &= op->slot[k].kind == PLN_SLOT_NUMBER_OR_TENSOR;
  op->brief = nin >= 1 && nin <= 3 && op->lead == nin && slots == nin + nopt && op->nout == 1 &&
              !(op->flags & (PLN_OP_INPLACE | PLN_OP_RANDOM | PLN_OP_COMPOSITE | PLN_OP_CREATE));
  op->recorded = op->backward && !(op->flags & PLN_OP_NODIFF) && pln_recorded_as((pln_OpId)op->id) == op->id;
  return PLN_OK;
}

static pthread_once_t table_once = PTHREAD_ONCE_INIT;
static pln_Status table_status = PLN_OK;

static void parse_table(void) {
  for (int i = 0; i < PLN_NOPS && table_status == PLN_OK; i++) table_status = parse_signature(&pln_ops[i]);
  pln_saves_init();
}

pln_Status pln_ops_init(void) {
  (void)pthread_once(&table_once, parse_table); /* Lua states may load the module in several threads at once */
  return table_status;
}

void pln_args_init(const pln_OpDef *op, pln_Args *a) {
  a->nin = op->nin;
  a->numbers = 0;
  /* all of them: straight stores cost less than a loop over the used ones */
  for (int i = 0; i < PLN_MAX_IN; i++) a->in[i] = NULL;
  for (int i = 0; i < PLN_MAX_OUT; i++) a->out[i] = NULL;
  a->list = NULL;
  a->nlist = 0;
  a->results = NULL;
  a->nresults = 0;
  a->place = a->plan = 0;
  if (!op->nopt) return;
  for (int i = 0; i < op->nslots; i++) {
    const pln_Slot *slot = &op->slot[i];
    if (slot->kind <= PLN_SLOT_TENSORS) continue;
    pln_Opt *o = &a->opt[slot->index];
    o->given = slot->has_default;
    o->num = slot->def;
    o->i = (int64_t)slot->def;
    o->list.ndim = -1;
  }
}

char *pln_tensor_text(const pln_Tensor *t, char *buf) {
  char shape[PLN_SHAPE_TEXT];
  int len = 0;
  pln_append(buf, PLN_SHAPE_TEXT + 16, &len, "%s tensor %s", pln_dtype_name(t->dtype),
             pln_shape_text(t->ndim, t->shape, shape));
  return buf;
}

/* --- prepare ------------------------------------------------------------------------------------ */

static const char *operand_name(const pln_Prep *p, int i) {
  for (int k = 0; k < p->op->nslots; k++)
    if (p->op->slot[k].kind < PLN_SLOT_TENSORS && p->op->slot[k].index == i) return p->op->slot[k].name;
  return "operand";
}

static void set_arg(pln_Arg *g, const pln_Tensor *t) {
  g->data = t->data;
  g->dtype = t->dtype;
  g->ndim = t->ndim;
  for (int i = 0; i < t->ndim; i++) {
    g->shape[i] = t->shape[i];
    g->stride[i] = t->stride[i];
  }
}

static bool overlaps_operand(const pln_Prep *p, const pln_Tensor *out) {
  bool pointwise = p->op->flags & PLN_OP_POINTWISE;
  if (PLN_FAULT(overlap_ignored)) return false;
  for (int i = 0; i < p->a->nin; i++) {
    const pln_Tensor *in = p->a->in[i];
    if (in && in->storage == out->storage && pln_tensor_overlaps(in, out) && !(pointwise && pln_tensor_same_view(in, out)))
      return true;
  }
  for (int i = 0; i < p->a->nlist; i++)
    if (pln_tensor_overlaps(p->a->list[i], out)) return true;
  return false;
}

static pln_Status check_destination(pln_Prep *p, int i, pln_DType dtype, const pln_Shape *shape) {
  const pln_Tensor *out = p->a->out[i];
  char want[PLN_SHAPE_TEXT], got[PLN_SHAPE_TEXT];
  if (out->engine != p->e) return pln_prep_fail(p, PLN_EENGINE, "argument 'out': the destination belongs to another engine");
  if (out->dtype != dtype)
    return pln_prep_fail(p, PLN_EDTYPE, "argument 'out': the destination is %s, the result is %s", pln_dtype_name(out->dtype),
                         pln_dtype_name(dtype));
  if (out->ndim != shape->ndim || memcmp(out->shape, shape->size, (size_t)shape->ndim * sizeof(int64_t)) != 0)
    return pln_prep_fail(p, PLN_ESHAPE, "argument 'out': the destination has shape %s, the result %s",
                         pln_shape_text(out->ndim, out->shape, got), pln_shape_text(shape->ndim, shape->size, want));
  if (!out->contiguous && pln_shape_self_overlaps(out->ndim, out->shape, out->stride))
    return pln_prep_fail(p, PLN_ESHAPE,
                         "argument 'out': cannot write through a broadcast view (several elements share memory), clone it first");
  for (int k = 0; k < i; k++)
    if (p->a->out[k] && !p->made[k] && pln_tensor_overlaps(out, p->a->out[k]))
      return pln_prep_fail(p, PLN_EARG, "argument 'out': two destinations share memory");
  return PLN_OK;
}

pln_Status pln_prep_temp(pln_Prep *p, pln_DType dtype, const pln_Shape *shape, pln_Tensor **t_p) {
  if (p->ntemps == PLN_MAX_TEMPS) return pln_prep_fail(p, PLN_EARG, "too many temporaries");
  PLN_TRY(pln_tensor_result(p->e, dtype, shape, t_p));
  p->temp[p->ntemps++] = *t_p;
  return PLN_OK;
}

pln_Status pln_prep_scratch(pln_Prep *p, size_t bytes) {
  pln_Shape shape = {1, {(int64_t)bytes}};
  pln_Tensor *t;
  PLN_TRY(pln_prep_temp(p, PLN_U8, &shape, &t));
  p->call.scratch = t->data;
  p->call.scratch_bytes = bytes;
  return PLN_OK;
}

pln_Status pln_prep_out(pln_Prep *p, int i, pln_DType dtype, const pln_Shape *shape) {
  pln_Tensor *t = p->a->out[i];
  if (t && PLN_FAULT(destination_ignored) && !(p->op->flags & PLN_OP_INPLACE)) t = NULL;
  if (!t) {
    pln_Status status = pln_tensor_result(p->e, dtype, shape, &t);
    if (PLN_UNLIKELY(status == PLN_ESHAPE)) pln_fail_prefix(status, "%s: ", p->op->name);
    PLN_TRY(status);
    t->place = t->storage->place = p->a->place;
    p->a->out[i] = t;
    p->made[i] = 1;
  } else {
    PLN_TRY(check_destination(p, i, dtype, shape));
    if (overlaps_operand(p, t)) {
      pln_Tensor *dst = t;
      PLN_TRY(pln_prep_temp(p, dtype, shape, &t));
      p->back[p->nback].from = t;
      p->back[p->nback++].to = dst;
    }
  }
  set_arg(&p->call.arg[i], t);
  if (t->numel == 0 && i == 0) p->done = 1;
  return PLN_OK;
}

void pln_prep_arg(pln_Prep *p, int k, const pln_Tensor *t) { set_arg(&p->call.arg[p->call.nout + k], t); }

pln_Status pln_prep_cast(pln_Prep *p, pln_Tensor *t, pln_DType dtype, pln_Tensor **t_p) {
  if (t->dtype == dtype) {
    *t_p = t;
    return PLN_OK;
  }
  pln_Shape shape = pln_tensor_shape(t);
  PLN_TRY(pln_prep_temp(p, dtype, &shape, t_p));
  return pln_copy_into(p->e, *t_p, t);
}

pln_Status pln_prep_contiguous(pln_Prep *p, pln_Tensor *t, pln_Tensor **t_p) {
  if (t->contiguous) {
    *t_p = t;
    return PLN_OK;
  }
  pln_Shape shape = pln_tensor_shape(t);
  PLN_TRY(pln_prep_temp(p, t->dtype, &shape, t_p));
  return pln_copy_into(p->e, *t_p, t);
}

pln_Status pln_prep_in(pln_Prep *p, int i, pln_DType dtype) {
  pln_Call *c = &p->call;
  int k = c->nin++;
  pln_Arg *g = &c->arg[c->nout + k];
  pln_Tensor *t = p->a->in[i];
  if (!t) {
    g->data = NULL;
    g->dtype = (uint8_t)dtype;
    g->ndim = 0;
    c->f[PLN_MAX_PARAMS - 1 - k] = p->a->num[i];
    return PLN_OK;
  }
  if (PLN_UNLIKELY(t->dtype != dtype && dtype != PLN_NODTYPE)) PLN_TRY(pln_prep_cast(p, t, dtype, &t));
  set_arg(g, t);
  return PLN_OK;
}

pln_Status pln_prep_result(pln_Prep *p, int i, pln_Tensor *t) {
  pln_Tensor *dst = p->a->out[i];
  p->done = 1;
  if (!dst) {
    t->place = p->a->place;
    p->a->out[i] = t;
    p->made[i] = 1;
    return PLN_OK;
  }
  pln_Shape shape = pln_tensor_shape(t);
  pln_Status status = check_destination(p, i, t->dtype, &shape);
  if (status == PLN_OK) status = pln_copy_into(p->e, dst, t);
  pln_tensor_release(t);
  return status;
}

pln_Status pln_prep_broadcast(pln_Prep *p, int nin, pln_Shape *shape_p) {
  bool first = true;
  shape_p->ndim = 0;
  for (int i = 0; i < nin; i++) {
    const pln_Tensor *t = p->a->in[i];
    if (!t) continue;
    pln_Shape s = pln_tensor_shape(t), merged;
    if (first) {
      *shape_p = s;
      first = false;
    } else {
      if (!pln_shape_broadcast(shape_p, &s, &merged)) {
        char a[PLN_SHAPE_TEXT], b[PLN_SHAPE_TEXT];
        return pln_prep_fail(p, PLN_ESHAPE, "argument '%s': shape %s does not broadcast with %s", operand_name(p, i),
                             pln_shape_text(s.ndim, s.size, b), pln_shape_text(shape_p->ndim, shape_p->size, a));
      }
      *shape_p = merged;
    }
  }
  return PLN_OK;
}

/* PyTorch's result type: tensors with dimensions decide; 0-dim tensors, then numbers, only when of a higher category. */
pln_DType pln_prep_promote(const pln_Prep *p, int first, int nin) {
  pln_DType dim = PLN_NODTYPE, zero = PLN_NODTYPE;
  for (int i = first; i < first + nin; i++) {
    const pln_Tensor *t = p->a->in[i];
    if (!t) continue;
    pln_DType *d = t->ndim ? &dim : &zero;
    *d = *d == PLN_NODTYPE ? (pln_DType)t->dtype : pln_dtype_promote(*d, (pln_DType)t->dtype);
  }
  pln_DType r = dim;
  if (r == PLN_NODTYPE)
    r = zero;
  else if (zero != PLN_NODTYPE) {
    int kd = pln_dtypes[dim].kind, kz = pln_dtypes[zero].kind;
    if (kd == PLN_KIND_UINT) kd = PLN_KIND_INT; /* one category */
    if (kz == PLN_KIND_UINT) kz = PLN_KIND_INT;
    if (kz > kd) r = pln_dtype_promote(dim, zero);
  }
  for (int i = first; i < first + nin; i++)
    if (p->a->numbers >> i & 1) r = r == PLN_NODTYPE ? PLN_F32 : pln_dtype_promote_number(r, p->a->num[i]);
  return r;
}

pln_Status pln_prep_iterate(pln_Prep *p, const pln_Shape *shape) {
  pln_Call *c = &p->call;
  int n = c->nout + c->nin;
  int64_t *strides[PLN_MAX_ARGS] = {0};
  int sets = 0;
  c->numel = 1;
  for (int i = 0; i < shape->ndim; i++) {
    c->size[i] = shape->size[i];
    c->numel *= shape->size[i];
  }
  if (c->numel == 0) {
    p->done = 1;
    return PLN_OK;
  }
  for (int k = 0; k < n; k++) {
    pln_Arg *g = &c->arg[k];
    if (!g->data) continue;
    if (g->ndim != shape->ndim || memcmp(g->shape, shape->size, (size_t)shape->ndim * sizeof(int64_t)) != 0) {
      int64_t full[PLN_MAX_DIMS];
      if (!pln_shape_expand(g->ndim, g->shape, g->stride, shape, full)) {
        char a[PLN_SHAPE_TEXT], b[PLN_SHAPE_TEXT];
        return pln_prep_fail(p, PLN_ESHAPE, "argument '%s': shape %s does not broadcast to %s",
                             k < c->nout ? "out" : operand_name(p, k - c->nout), pln_shape_text(g->ndim, g->shape, a),
                             pln_shape_text(shape->ndim, shape->size, b));
      }
      memcpy(g->stride, full, sizeof full);
    }
    strides[sets++] = g->stride;
  }
  c->ndim = (uint8_t)pln_shape_collapse(shape->ndim, c->size, sets, strides);
  if (c->ndim == 0) {
    c->ndim = 1;
    c->size[0] = 1;
    for (int k = 0; k < sets; k++) strides[k][0] = 1;
  }
  return PLN_OK;
}

pln_Status pln_prep_dtype(const pln_Prep *p, pln_DType dtype, uint32_t set, const char *what) {
  if (PLN_LIKELY(set >> dtype & 1)) return PLN_OK;
  char valid[64];
  int len = 0;
  valid[0] = 0;
  for (int d = 0; d < PLN_NDTYPE; d++)
    if (set >> d & 1) pln_append(valid, sizeof valid, &len, len ? ", %s" : "%s", pln_dtype_name((pln_DType)d));
  return pln_prep_fail(p, PLN_EDTYPE, "argument '%s': dtype %s is not supported, valid are %s (t:to \"f32\" converts)", what,
                       pln_dtype_name(dtype), valid);
}

static const char *option_name(const pln_Prep *p, int opt) {
  for (int k = 0; k < p->op->nslots; k++)
    if (p->op->slot[k].kind > PLN_SLOT_TENSORS && p->op->slot[k].index == opt) return p->op->slot[k].name;
  return "option";
}

static pln_Status one_dim(const pln_Prep *p, int opt, int64_t dim, int ndim, int *dim_p) {
  int n = ndim ? ndim : 1;
  if (dim == 0) return pln_prep_fail(p, PLN_EARG, "argument '%s': dimensions start at 1, got 0", option_name(p, opt));
  if (dim < -n || dim > n)
    return pln_prep_fail(p, PLN_EARG, "argument '%s': dimension %lld of a tensor with %d dimension%s", option_name(p, opt),
                         (long long)dim, ndim, ndim == 1 ? "" : "s");
  *dim_p = (int)(dim > 0 ? dim - 1 : dim + n);
  return PLN_OK;
}

pln_Status pln_prep_dim(const pln_Prep *p, int opt, int ndim, int *dim_p) {
  const pln_Opt *o = &p->a->opt[opt];
  if (!o->given) return pln_prep_fail(p, PLN_EARG, "argument '%s': a dimension is needed", option_name(p, opt));
  return one_dim(p, opt, o->i, ndim, dim_p);
}

pln_Status pln_prep_dims(const pln_Prep *p, int opt, int ndim, uint32_t *mask_p) {
  const pln_Opt *o = &p->a->opt[opt];
  uint32_t mask = 0;
  if (!o->given || o->list.ndim <= 0) {
    *mask_p = ndim ? (1u << ndim) - 1 : 0;
    return PLN_OK;
  }
  for (int i = 0; i < o->list.ndim; i++) {
    int dim = 0;
    PLN_TRY(one_dim(p, opt, o->list.size[i], ndim, &dim));
    if (mask >> dim & 1)
      return pln_prep_fail(p, PLN_EARG, "argument '%s': dimension %d is given twice", option_name(p, opt), dim + 1);
    mask |= 1u << dim;
  }
  *mask_p = ndim ? mask : 0;
  return PLN_OK;
}

/* --- run ---------------------------------------------------------------------------------------- */

static pln_Status copy_back(pln_Prep *p) {
  for (int i = 0; i < p->nback; i++) PLN_TRY(pln_copy_into(p->e, p->back[i].to, p->back[i].from));
  return PLN_OK;
}

static PLN_COLD void undo(const pln_OpDef *op, pln_Args *a, const uint8_t *made) {
  for (int i = 0; i < op->nout; i++)
    if (made[i]) {
      pln_tensor_release(a->out[i]);
      a->out[i] = NULL;
    }
  for (int i = 0; i < a->nresults; i++) pln_tensor_release(a->results[i]);
  pln_mfree(a->results);
  a->results = NULL;
  a->nresults = 0;
}

/* The op that leaves what the gradient reads besides; the tape holds it from then on. */
static PLN_COLD pln_Status run_recorded(pln_Engine *e, const pln_OpDef *op, pln_Args *a) {
  const pln_OpDef *as = &pln_ops[pln_recorded_as((pln_OpId)(op - pln_ops))];
  for (int k = op->nout; k < as->nout; k++) a->out[k] = NULL;
  PLN_TRY(pln_op_run(e, as, a));
  for (int k = op->nout; k < as->nout; k++) pln_tensor_release(a->out[k]);
  return PLN_OK;
}

/* The call as prepare makes it. */
static pln_Status run_prepared(pln_Engine *e, const pln_OpDef *op, pln_Args *a, pln_PlanKey *key, uint8_t *made) {
  pln_Prep p;
  p.e = e;
  p.op = op;
  p.a = a;
  p.ntemps = p.nback = 0;
  p.made[0] = p.made[1] = p.made[2] = 0;
  p.done = 0;
  pln_Call *c = &p.call;
  c->engine = e;
  c->op = (uint16_t)(op - pln_ops);
  c->nout = op->nout;
  c->nin = 0;
  c->place = a->place;
  c->scratch = NULL;
  c->scratch_bytes = 0;
  c->kernel = e->kernels[c->op];
  uint64_t calls = e->calls;
  pln_Status status = op->prepare(&p);
  if (PLN_LIKELY(status == PLN_OK)) {
    bool captured = e->hooks & PLN_HOOK_CAPTURE;
    if (PLN_UNLIKELY(captured))
      status = pln_capture_call(&p);
    else if (!a->plan)
      status = pln_plan_keep(&p, key, calls == e->calls);
    if (PLN_UNLIKELY(e->pass != NULL) && !p.done && status == PLN_OK) pln_pass_call(e->pass, a, p.temp, p.ntemps, c);
    if (!p.done && !captured && PLN_LIKELY(status == PLN_OK)) {
      c->number = ++e->calls;
      if (PLN_UNLIKELY(p.ntemps) && PLN_FAULT(scratch_early))
        while (p.ntemps) pln_tensor_release(p.temp[--p.ntemps]);
      status = e->backend->launch(e, c);
    }
    if (PLN_UNLIKELY(p.nback) && status == PLN_OK) status = copy_back(&p);
  }
  for (int i = 0; i < p.ntemps; i++) pln_tensor_release(p.temp[i]);
  for (int i = 0; i < PLN_MAX_OUT; i++) made[i] = p.made[i];
  return status;
}

/* The call as its plan has it. */
static inline pln_Status run_planned(pln_Engine *e, const pln_OpDef *op, pln_Args *a, const pln_Plan *plan, uint8_t *made) {
  e->planned++;
  if (plan->view) {
    PLN_TRY(pln_tensor_view_planned(a->in[0], &plan->out[0], plan->offset, &a->out[0]));
    a->out[0]->place = a->place;
    made[0] = 1;
    return PLN_OK;
  }
  pln_Call *c = plan->call;
  for (int k = 0; k < op->nout; k++) {
    if (a->out[k]) continue;
    if (plan->inplace[k] != PLN_PLAN_NONE) {
      a->out[k] = a->in[plan->inplace[k]];
      continue;
    }
    pln_Tensor *t;
    PLN_TRY(pln_tensor_planned(e, &plan->out[k], &t));
    t->place = t->storage->place = a->place;
    a->out[k] = t;
    made[k] = 1;
  }
  for (int k = 0; k < plan->nargs; k++)
    if (PLN_LIKELY(plan->source[k])) c->arg[k].data = (*(pln_Tensor **)((char *)a + plan->source[k]))->data;
  c->place = a->place;
  c->number = ++e->calls;
  pln_Tensor *scratch = NULL;
  if (PLN_UNLIKELY(plan->scratch)) {
    pln_Shape bytes = {1, {(int64_t)plan->scratch}};
    PLN_TRY(pln_tensor_result(e, PLN_U8, &bytes, &scratch));
    c->scratch = scratch->data;
  }
  if (PLN_UNLIKELY(e->pass != NULL)) pln_pass_call(e->pass, a, &scratch, scratch ? 1 : 0, c);
  pln_Status status = e->backend->launch(e, c);
  if (PLN_UNLIKELY(scratch != NULL)) pln_tensor_release(scratch);
  return status;
}

/* Apart, for the size of its frame. */
__attribute__((noinline)) static pln_Status run_other(pln_Engine *e, const pln_OpDef *op, pln_Args *a, uint8_t *made) {
  pln_PlanKey key;
  key.words = 0;
  if (PLN_UNLIKELY(e->hooks & PLN_HOOK_CAPTURE)) {
    PLN_TRY(pln_capture_admit(e, op)); /* prepare tells what the record refers to: no plan */
    return run_prepared(e, op, a, &key, made);
  }
  const pln_Plan *plan = pln_plan_find(e, op, a, &key);
  a->plan = plan ? plan->number : 0;
  return plan && !plan->bare ? run_planned(e, op, a, plan, made) : run_prepared(e, op, a, &key, made);
}

pln_Status pln_op_run_plan(pln_Engine *e, const pln_OpDef *op, pln_Args *a, const pln_Plan *plan, bool record) {
  uint8_t made[PLN_MAX_OUT] = {0};
  pln_Status status = PLN_OK;
  a->plan = plan->number;
  if (PLN_LIKELY(!plan->view && !plan->scratch)) { /* as run_planned does it, for one result */
    pln_Tensor *y = a->out[0];
    e->planned++;
    if (PLN_LIKELY(!y)) {
      PLN_TRY(pln_tensor_planned(e, &plan->out[0], &y));
      y->place = y->storage->place = a->place;
      a->out[0] = y;
      made[0] = 1;
    }
    pln_Call *c = plan->call;
    c->arg[0].data = y->data;
    for (int k = 1; k < plan->nargs; k++)
      if (PLN_LIKELY(plan->source[k])) c->arg[k].data = (*(pln_Tensor **)((char *)a + plan->source[k]))->data;
    c->place = a->place;
    c->number = ++e->calls;
    status = e->backend->launch(e, c);
    if (PLN_LIKELY(status == PLN_OK)) pln_tensor_written(y, (pln_OpId)op->id, a->place);
  } else {
    status = run_planned(e, op, a, plan, made);
    if (!(op->flags & PLN_OP_VIEW) && status == PLN_OK) pln_tensor_written(a->out[0], (pln_OpId)op->id, a->place);
  }
  if (PLN_UNLIKELY(record) && status == PLN_OK) status = pln_tape_record(e, op, a);
  if (PLN_UNLIKELY(status != PLN_OK)) undo(op, a, made);
  return status;
}

pln_Status pln_op_run(pln_Engine *e, const pln_OpDef *op, pln_Args *a) {
  pln_OpId id = (pln_OpId)op->id;
  pln_TapePlan recording = PLN_TAPE_PLAIN;
  bool quiet = false;
  uint8_t made[PLN_MAX_OUT] = {0};
  if (PLN_UNLIKELY(e->hooks & PLN_HOOK_TAPE)) {
    PLN_TRY(pln_tape_plan(e, op, a, &recording, &quiet));
    if (recording == PLN_TAPE_RECORD && pln_recorded_as(id) != id) return run_recorded(e, op, a);
    if (quiet) pln_tape_record_on(e, false);
  }
  const pln_Plan *plan = NULL;
  if (PLN_LIKELY(op->brief && e->plans) && !PLN_UNLIKELY(e->hooks & PLN_HOOK_CAPTURE) && !PLN_UNLIKELY(pln_fault_any))
    plan = pln_plan_find_brief(e->plans, op, op->nin, op->nopt, a);
  pln_Status status;
  if (PLN_LIKELY(plan != NULL) && PLN_LIKELY(!plan->bare)) {
    a->plan = plan->number;
    status = run_planned(e, op, a, plan, made);
  } else {
    status = run_other(e, op, a, made);
  }
  if (PLN_UNLIKELY(quiet)) pln_tape_record_on(e, true);
  if (PLN_LIKELY(status == PLN_OK)) {
    if (!(op->flags & (PLN_OP_VIEW | PLN_OP_COMPOSITE))) /* those wrote through the ops that they ran */
      for (int i = 0; i < op->nout; i++)
        if (a->out[i]) pln_tensor_written(a->out[i], id, a->place);
    if (PLN_UNLIKELY(recording == PLN_TAPE_RECORD)) status = pln_tape_record(e, op, a);
  }
  if (PLN_UNLIKELY(status != PLN_OK)) {
    undo(op, a, made);
    if (e->capture) status = pln_capture_failed(e, op, status);
  }
  return status;
}

pln_Status pln_op1(pln_Engine *e, pln_OpId op, pln_Tensor *x, pln_Tensor **y_p) { return pln_op2(e, op, x, NULL, y_p); }

pln_Status pln_op2(pln_Engine *e, pln_OpId op, pln_Tensor *x, pln_Tensor *y, pln_Tensor **y_p) {
  pln_Args a;
  pln_args_init(&pln_ops[op], &a);
  a.in[0] = x;
  if (y) a.in[1] = y;
  PLN_TRY(pln_op_run(e, &pln_ops[op], &a));
  *y_p = a.out[0];
  return PLN_OK;
}

/* The core's own copies are never recorded, nor refused. */
pln_Status pln_copy_into(pln_Engine *e, pln_Tensor *dst, pln_Tensor *src) {
  pln_Args a;
  pln_args_init(&pln_ops[PLN_OP_copy], &a);
  a.in[0] = dst;
  a.in[1] = src;
  bool recorded = e->hooks & PLN_HOOK_TAPE;
  if (PLN_UNLIKELY(recorded)) pln_tape_record_on(e, false);
  pln_Status status = pln_op_run(e, &pln_ops[PLN_OP_copy], &a);
  if (PLN_UNLIKELY(recorded)) pln_tape_record_on(e, true);
  return status;
}
