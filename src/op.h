/* SPDX-License-Identifier: MIT
** op.h -- the op table and the one entry for every op.
**
** src/ops.def lists every op once. An op is run by pln_op_run: prepare checks the arguments and makes a call record;
** the device runs or queues it; the tape notes it. Composite and view ops have no kernel of their own.
*/
#ifndef PLN_OP_H
#define PLN_OP_H

#include "call.h"
#include "tensor.h"

typedef enum pln_OpId {
#define OP(name, ...) PLN_OP_##name,
#include "ops.def"
  PLN_NOPS
} pln_OpId;

#define PLN_MAX_SLOTS 12 /* of one op */
#define PLN_MAX_IN 9
#define PLN_MAX_OUT 3
#define PLN_MAX_OPT 8

/* Flags of a row. */
enum {
  PLN_OP_POINTWISE = 1,  /* reads each operand element only where it writes: safe on the identical view */
  PLN_OP_VIEW = 2,       /* makes headers only; with a destination it copies */
  PLN_OP_COMPOSITE = 4,  /* prepare runs other ops */
  PLN_OP_NODIFF = 8,     /* no derivative: integers, comparisons */
  PLN_OP_INTERNAL = 16,  /* not a method: fused backwards and the like */
  PLN_OP_RANDOM = 32,    /* consumes a draw number */
  PLN_OP_INPLACE = 64,   /* writes its first operands (optimizers, fill, copy): a result is that operand */
  PLN_OP_EATS_NAN = 128, /* exception of C8 by definition */
  PLN_OP_CREATE = 256,   /* no tensor operand: engine method only */
  PLN_OP_HOSTREAD = 512, /* needs data on the host: cannot be captured */
  PLN_OP_OPTIMIZER = 1024 /* updates parameters: may write what requires grad */
};

/* Kinds of a slot in a signature (see ops.def for the text form). */
typedef enum pln_SlotKind {
  PLN_SLOT_TENSOR, PLN_SLOT_NUMBER_OR_TENSOR, PLN_SLOT_INDEX, PLN_SLOT_MASK, PLN_SLOT_TENSORS,
  PLN_SLOT_NUM, PLN_SLOT_INT, PLN_SLOT_BOOL, PLN_SLOT_DIM, PLN_SLOT_DIMS, PLN_SLOT_INTS, PLN_SLOT_DTYPE, PLN_SLOT_WORD
} pln_SlotKind;

typedef struct pln_Slot {
  char name[20];
  uint8_t kind;
  uint8_t optional;    /* may be nil; then absent or the default */
  uint8_t has_default;
  uint8_t index;       /* into Args.in for tensors, into Args.opt for options */
  double def;          /* default of numbers, ints, bools (0/1), dims, words (index) */
  char words[64];      /* "none|mean|sum" */
} pln_Slot;

typedef struct pln_Opt { /* one option slot's value */
  uint8_t given;         /* 0: absent (nil and no default) */
  double num;            /* NUM */
  int64_t i;             /* INT, BOOL, DIM (0-based after pln_opt_dim), DTYPE, WORD (0-based index) */
  pln_Shape list;        /* DIMS, INTS */
} pln_Opt;

/* What the caller passed, typed but not yet checked against each other. */
typedef struct pln_Args {
  int nin;
  uint32_t numbers;              /* bit i: operand i is the Lua number num[i] */
  pln_Tensor *in[PLN_MAX_IN];    /* NULL: absent, or a number */
  double num[PLN_MAX_IN];
  pln_Tensor **list;             /* of a TENSORS slot */
  int nlist;
  pln_Tensor *out[PLN_MAX_OUT];  /* destinations or NULL; the results on return */
  pln_Opt opt[PLN_MAX_OPT];
  uint32_t place;
  uint32_t plan;                 /* on return: number of the call's plan (plan.h), 0 none */
  int nresults;                  /* for ops with a variable number (split, chunk): set by prepare */
  pln_Tensor **results;          /* then an array of nresults new views, to be freed with pln_mfree by the caller */
} pln_Args;

struct pln_Prep;
typedef pln_Status (*pln_PrepareFn)(struct pln_Prep *p);

struct pln_Node;
/* Gradients of the operands (NULL: none) from those of the results; see autograd/tape.h. */
typedef pln_Status (*pln_BackwardFn)(struct pln_Node *n, pln_Tensor **dy, pln_Tensor **dx);

typedef struct pln_OpDef {
  const char *name;
  const char *signature;
  uint32_t flags;
  uint32_t dtypes;          /* set of dtypes of the operands that decide */
  pln_PrepareFn prepare;
  pln_BackwardFn backward;  /* NULL with NODIFF */
  const char *samples, *domain; /* see ops.def */
  double rtol;              /* of f32 against the reference, per element, times max(1, |ref|) for atol */
  const char *doc;
  uint8_t nout;
  /* made of the signature at start: */
  uint16_t id;     /* pln_OpId */
  uint8_t nslots, nin, nopt;
  uint8_t lead;    /* tensor slots before the first other one */
  uint8_t numbers; /* each operand may be a number */
  uint8_t brief;   /* at most three operands in front, one result, not in place: calls of most kinds have a short key (plan.h) */
  uint8_t recorded; /* a call with a plan is recorded by pln_tape_record as it is */
  pln_Slot slot[PLN_MAX_SLOTS];
} pln_OpDef;

extern pln_OpDef pln_ops[PLN_NOPS];
/* Parses the signatures; once per process, before any engine. */
pln_Status pln_ops_init(void);
const pln_OpDef *pln_op_find(const char *name);

/* --- prepare ------------------------------------------------------------------------------------ */

#define PLN_MAX_TEMPS 16

/* The state of one op on its way from arguments to a call record. Lives on the stack. */
typedef struct pln_Prep {
  struct pln_Engine *e;
  const pln_OpDef *op;
  pln_Args *a;
  int ntemps, nback;
  pln_Tensor *temp[PLN_MAX_TEMPS];   /* released once the call is on the stream */
  struct { pln_Tensor *from, *to; } back[PLN_MAX_OUT]; /* results to be copied into overlapping destinations */
  uint8_t made[PLN_MAX_OUT];         /* out[i] was made here: released on error */
  uint8_t done;                      /* nothing to launch (view, composite, zero elements) */
  pln_Call call;
} pln_Prep;

/* Runs an op: on PLN_OK a->out[0 .. nout) are the results; the caller owns a reference to each that was not a
** destination. On error nothing has changed and nothing is owned. Operands must be alive (the binding checks that). */
pln_Status pln_op_run(struct pln_Engine *e, const pln_OpDef *op, pln_Args *a);
/* The same for a call whose plan is known; `record`: an operand requires grad, and op->recorded. */
struct pln_Plan;
pln_Status pln_op_run_plan(struct pln_Engine *e, const pln_OpDef *op, pln_Args *a, const struct pln_Plan *plan, bool record);

/* Fails with "op: text". Its value is `status` itself, so that a compiler sees that it isn't PLN_OK. */
#define pln_prep_fail(p, status, ...) (pln_fail(status, __VA_ARGS__), pln_fail_prefix(status, "%s: ", (p)->op->name), status)

/* The result i: makes it, or checks the destination (C1) and arranges a copy back where it overlaps an operand. Sets call.arg[i]
** (data, dtype, ndim, shape, stride). Call it after all checks, once per result, and before pln_prep_in. */
pln_Status pln_prep_out(pln_Prep *p, int i, pln_DType dtype, const pln_Shape *shape);
/* Operand i as call.arg[nout + k], k counting up from 0: converted to `dtype` if it has another (PLN_NODTYPE: as it is); a Lua number becomes a
** number operand (arg.data NULL, ndim 0). Sets data, dtype, ndim, shape, stride. */
pln_Status pln_prep_in(pln_Prep *p, int i, pln_DType dtype);
/* The same for a tensor of prepare's own choosing (a cast, a contiguous copy). */
void pln_prep_arg(pln_Prep *p, int k, const pln_Tensor *t);
/* A row-major copy of t, or t itself if it is row-major already; released with the call. */
pln_Status pln_prep_contiguous(pln_Prep *p, pln_Tensor *t, pln_Tensor **t_p);
/* A tensor of another dtype with t's values, or t itself; released with the call. */
pln_Status pln_prep_cast(pln_Prep *p, pln_Tensor *t, pln_DType dtype, pln_Tensor **t_p);
/* A temporary that is released once the call is on the stream. */
pln_Status pln_prep_temp(pln_Prep *p, pln_DType dtype, const pln_Shape *shape, pln_Tensor **t_p);
/* Device memory for the kernel, released likewise; sets call.scratch. */
pln_Status pln_prep_scratch(pln_Prep *p, size_t bytes);
/* Hands a finished tensor over as result i of a view or composite op: the reference becomes the caller's. With a destination it is copied there
** (after the checks of C1) and released. */
pln_Status pln_prep_result(pln_Prep *p, int i, pln_Tensor *t);
/* Elementwise: broadcast shape of all operands in, and dtypes promoted as PyTorch does (numbers are weak). */
pln_Status pln_prep_broadcast(pln_Prep *p, int nin, pln_Shape *shape_p);
pln_DType pln_prep_promote(const pln_Prep *p, int first, int nin);
/* Sets call.ndim/size/numel and all strides to the collapsed iteration space `shape`, expanding operands to it. */
pln_Status pln_prep_iterate(pln_Prep *p, const pln_Shape *shape);
/* PLN_EDTYPE unless `dtype` is in the set; names the operand and the valid ones. */
pln_Status pln_prep_dtype(const pln_Prep *p, pln_DType dtype, uint32_t set, const char *what);
/* A 1-based or negative dim of an option (absent: PLN_EARG) as 0-based index for `ndim` dimensions (a 0-dim tensor counts as one of size 1). */
pln_Status pln_prep_dim(const pln_Prep *p, int opt, int ndim, int *dim_p);
/* A set of dims: bit mask of 0-based dims; absent means all. Doubles are errors. */
pln_Status pln_prep_dims(const pln_Prep *p, int opt, int ndim, uint32_t *mask_p);

/* C-level conveniences for composites and derivatives: run an op by id with up to three tensors; result owned by the caller. */
pln_Status pln_op1(struct pln_Engine *e, pln_OpId op, pln_Tensor *x, pln_Tensor **y_p);
pln_Status pln_op2(struct pln_Engine *e, pln_OpId op, pln_Tensor *a, pln_Tensor *b, pln_Tensor **y_p);
/* Copies src (broadcast, converted) into dst. */
pln_Status pln_copy_into(struct pln_Engine *e, pln_Tensor *dst, pln_Tensor *src);
/* An argument block with every option absent or at its default, ready to be filled. */
void pln_args_init(const pln_OpDef *op, pln_Args *a);

/* A shape or dtype in messages: "f32 tensor (2, 3)". Returns buf (PLN_SHAPE_TEXT + 16 bytes). */
char *pln_tensor_text(const pln_Tensor *t, char *buf);

#endif
