/* SPDX-License-Identifier: MIT
** tape.h -- recorded ops: nodes, what they saved, and how gradients run back through them.
**
** A node is one recorded op. It knows where the gradients of its operands go (edges), holds the tensors that its derivative reads (their
** blocks pinned, their versions noted) and collects the gradients of its results. Headers point to nodes by address and serial and never
** own them: nodes belong to a segment, what was recorded in a row, which is dropped as a whole when nobody can reach it any more (the
** binding hangs each segment on a Lua value that the collector sees), when it is too old, or when it has become empty. Nodes of one
** engine form a list in the order of recording; a gradient only ever runs towards older ones.
**
** A leaf is where gradients end: a node with the sum so far. That of an owned or persistent tensor lives as long as its header or an
** edge to it, that of an arena tensor in its segment.
*/
#ifndef PLN_TAPE_H
#define PLN_TAPE_H

#include "../op.h"

struct pln_Engine;
struct pln_Node;
struct pln_Run;

typedef struct pln_Edge { /* an operand */
  struct pln_Node *node;  /* who gets its gradient, NULL nobody */
  union {
    uint64_t serial;      /* of node */
    double number;        /* the operand, with dtype PLN_NODTYPE */
  };
  uint32_t sizes;         /* index of its shape in the node's sizes */
  uint16_t output;        /* which result of node it is */
  uint8_t dtype, ndim;
} pln_Edge;

typedef struct pln_Out { /* a result */
  uint64_t serial;       /* of the header that stood for it first */
  pln_Tensor *dy;        /* during a backward: its gradient so far */
  uint32_t sizes;
  uint8_t dtype, ndim;
  uint8_t own;           /* dy was made by adding up and is nobody else's: may be added to in place */
} pln_Out;

typedef struct pln_Saved {
  pln_Tensor *t;
  uint64_t version;      /* of its storage when it was saved */
} pln_Saved;

typedef struct pln_Kept { /* an option's value */
  double num;
  int64_t i;
  uint32_t sizes;        /* of a list */
  uint8_t given, n;
} pln_Kept;

typedef enum { PLN_NODE_OP, PLN_NODE_LUA, PLN_NODE_LEAF } pln_NodeKind;

#define PLN_NODE_INLINE 256

typedef struct pln_Node {
  pln_Object object;
  const pln_OpDef *op;        /* of PLN_NODE_OP */
  struct pln_Engine *engine;
  struct pln_Segment *segment; /* NULL: a leaf that its header and edges own */
  struct pln_Node *older, *newer;
  uint64_t run;               /* the backward that put gradients here, by number */
  uint64_t needed;            /* the backward that wants something from behind here */
  uint64_t wants;             /* bit i: operand i's gradient is wanted by this backward (the 64th on: always) */
  pln_Edge *edge;
  pln_Out *out;
  pln_Saved *saved;
  pln_Kept *opt;
  int64_t *sizes;
  uint32_t nedges, nouts, nsaved;
  uint32_t saved_mask;        /* PLN_IN(i), PLN_OUT(k): which, in the order of the bits */
  uint32_t place;
  uint32_t plan;              /* number of its call's plan (plan.h), 0 none */
  uint32_t refs;              /* of a leaf: its header and edges */
  uint8_t kind;
  uint8_t held;               /* has gradients of a running backward */
  uint8_t external;           /* the payload is an allocation of its own */
  char name[24];              /* of PLN_NODE_LUA */
  pln_Tensor *leaf;           /* of a leaf: its header while that lives, not owned, */
  pln_Tensor *grad;           /* the sum so far, NULL none yet, */
  struct pln_Node *next;      /* and the next leaf touched by the backward */
  struct pln_Node *parent, *child, *sibling; /* nodes that go with this one (ctx:call) */
  uint64_t payload[PLN_NODE_INLINE / 8];
} pln_Node;

/* What a derivative reads: bits of operands and results. */
#define PLN_IN(i) (1u << (i))
#define PLN_OUT(k) (1u << (12 + (k)))
#define PLN_EITHER (1u << 15) /* with several results those behind the first only, with one all else */

typedef struct pln_Segment {
  struct pln_Segment *older, *newer;
  pln_Node *first, *last;
  uint32_t count;
  uint64_t bytes;             /* of the blocks saved since it began */
  uint64_t resets;            /* of the engine when it was sealed */
  uint8_t anchored;           /* something outside holds it: dropped by pln_segment_drop */
  uint8_t listed;             /* open or not empty */
  int slot;                   /* of the binding */
} pln_Segment;

/* When a segment is sealed, so that what nobody needs is found in pieces. */
#define PLN_SEGMENT_NODES 256
#define PLN_SEGMENT_BYTES ((uint64_t)16 << 20)

typedef struct pln_Tape {
  struct pln_Engine *engine;
  pln_Slabs *slabs;
  pln_Pool nodes;
  uint64_t serial;            /* of nodes */
  pln_Node *oldest, *newest;
  pln_Segment *segment;       /* open one, NULL: the next recording makes one */
  pln_Segment *oldest_segment, *newest_segment;
  pln_Node *leaves;           /* header-owned leaves, for close (older, newer) */
  struct pln_Run *run;        /* the innermost backward */
  uint64_t runs;
  uint64_t aged, aged_header; /* serials of the newest node dropped for its age, and of its result's header */
  pln_Node *owner;            /* new nodes become its children */
  uint32_t place;             /* of the running backward, for the ops that it runs */
  bool node_hook;             /* backwards stop before each node */
  struct pln_PassSlot *passes; /* pass.h; NULL before the first backward */
  uint64_t passed;            /* backwards that ran from there */
  pln_Tensor *one[2];         /* f32, f64: persistent 1, */
  uint64_t one_version[2];    /* as long as nobody writes to it */
} pln_Tape;

/* --- recording ---------------------------------------------------------------------------------- */

/* Makes the engine's tape if it has none, and records from then on. */
pln_Status pln_tape_open(struct pln_Engine *e);
/* Drops every graph of the engine. */
void pln_tape_close(struct pln_Engine *e);
/* What is recorded from now on goes into a segment of its own. */
void pln_tape_seal(struct pln_Engine *e);
/* Drops the nodes newer than `node`; leaves only if their header is newer than `header`. */
void pln_tape_forget(struct pln_Engine *e, uint64_t node, uint64_t header);
/* Before the arena ends an epoch by a reset: graphs older than `graph_resets` go. */
void pln_tape_reset(struct pln_Engine *e);
/* Switches recording; returns what it was. */
bool pln_tape_record_on(struct pln_Engine *e, bool on);
bool pln_tape_recording(const struct pln_Engine *e);

/* What becomes of an op's results, decided before it runs. */
typedef enum { PLN_TAPE_PLAIN, PLN_TAPE_ALOUD, PLN_TAPE_RECORD } pln_TapePlan;

/* C1: refuses writing where gradients are recorded. *plan_p: PLAIN, nothing requires grad; RECORD, to be recorded once it ran, what it
** runs inside is not; ALOUD, something requires grad but this op is not recorded: with *quiet_p what it runs inside is not either. */
pln_Status pln_tape_plan(struct pln_Engine *e, const pln_OpDef *op, const pln_Args *a, pln_TapePlan *plan_p, bool *quiet_p);
/* Whether the op will be recorded or run recorded ones. */
bool pln_tape_wants(struct pln_Engine *e, const pln_OpDef *op, const pln_Args *a);
/* After the op ran: its results point to a new node. */
pln_Status pln_tape_record(struct pln_Engine *e, const pln_OpDef *op, pln_Args *a);
/* A node whose derivative the binding knows, with one edge per operand, and its results once they are there. */
pln_Status pln_tape_custom(struct pln_Engine *e, const char *name, pln_Tensor **in, int nin, uint32_t place, pln_Node **n_p);
pln_Status pln_node_results(pln_Node *n, pln_Tensor **result, int nresults);
/* A custom node saves t as well. */
pln_Status pln_node_save(pln_Node *n, pln_Tensor *t);
/* Drops a node and its children: what was saved is unpinned. */
void pln_node_drop(pln_Node *n);

/* The node behind a header, NULL if none or no longer there. */
static inline pln_Node *pln_tensor_node(const pln_Tensor *t) {
  return t->node && t->node->object.serial == t->node_serial ? t->node : NULL;
}
/* Finds the node of a header that is gone, by the header's serial; else PLN_EGRAD says why there is none. */
pln_Status pln_tape_find(struct pln_Engine *e, uint64_t serial, pln_Node **n_p, int *output_p);
const char *pln_node_name(const pln_Node *n);

/* t requires grad from now on, as a leaf, or no longer. PLN_EGRAD for a result of a recorded op. */
pln_Status pln_tensor_require_grad(pln_Tensor *t, bool on);
/* The leaf's sum, made (zero) if there is none yet. */
pln_Status pln_leaf_grad(pln_Node *leaf, pln_Tensor **grad_p);
/* A header with a node is going. */
void pln_tape_header_gone(pln_Tensor *t);

/* Pins of a storage that the tape holds, out of all. */
static inline uint32_t pln_storage_tape_pins(const pln_Storage *s) { return s->tape_pins; }
void pln_tape_pin(pln_Storage *s);
void pln_tape_unpin(pln_Storage *s);

/* Opens a segment; the caller holds it and drops it, with e NULL once the engine is closed. */
pln_Status pln_segment_open(struct pln_Engine *e, int slot, pln_Segment **s_p);
void pln_segment_drop(struct pln_Engine *e, pln_Segment *s);

/* --- what derivatives read ---------------------------------------------------------------------- */

/* What the gradient of each operand reads, by op; filled by pln_saves_init from src/autograd/saves.c and the formulas. */
extern uint16_t pln_saves[PLN_NOPS][PLN_MAX_IN];
void pln_saves_init(void);
/* The op that is run in place of this one where it is recorded: of the same arguments, with further results that its gradient reads. */
pln_OpId pln_recorded_as(pln_OpId op);

static inline bool pln_node_wants(const pln_Node *n, int i) {
  return n->edge[i].node && (i >= 64 || n->wants >> i & 1);
}
static inline pln_Tensor *pln_node_saved(const pln_Node *n, uint32_t bit) {
  return n->saved_mask & bit ? n->saved[__builtin_popcount(n->saved_mask & (bit - 1))].t : NULL;
}
static inline pln_Tensor *pln_node_in(const pln_Node *n, int i) { return pln_node_saved(n, PLN_IN(i)); }
static inline pln_Tensor *pln_node_out(const pln_Node *n, int k) { return pln_node_saved(n, PLN_OUT(k)); }
static inline bool pln_node_is_number(const pln_Node *n, int i) { return !n->edge[i].node && n->edge[i].dtype == PLN_NODTYPE; }
/* Of an operand that is wanted or whose shape is known. */
static inline pln_Shape pln_node_in_shape(const pln_Node *n, int i) {
  pln_Shape s = {n->edge[i].ndim, {0}};
  for (int d = 0; d < s.ndim; d++) s.size[d] = n->sizes[n->edge[i].sizes + (uint32_t)d];
  return s;
}
static inline pln_Shape pln_node_out_shape(const pln_Node *n, int k) {
  pln_Shape s = {n->out[k].ndim, {0}};
  for (int d = 0; d < s.ndim; d++) s.size[d] = n->sizes[n->out[k].sizes + (uint32_t)d];
  return s;
}
static inline pln_Shape pln_node_list(const pln_Node *n, int opt) {
  pln_Shape s = {n->opt[opt].n, {0}};
  for (int d = 0; d < s.ndim; d++) s.size[d] = n->sizes[n->opt[opt].sizes + (uint32_t)d];
  return s;
}

/* --- backward ----------------------------------------------------------------------------------- */

typedef struct pln_Want { /* a gradient asked for */
  pln_Node *node;
  uint64_t serial;
  int output;
  pln_Tensor *dx;         /* the answer, NULL: not reached */
} pln_Want;

/* A backward under way; on the caller's stack. */
typedef struct pln_Run {
  struct pln_Engine *e;
  struct pln_Run *outer;
  uint64_t id;
  bool retain, graph;
  bool pins;              /* Lua runs in between: gradients are pinned as long as they are held here */
  uint32_t pending;       /* nodes with gradients, leaves apart */
  uint32_t place;
  pln_Node *at;           /* next to be looked at */
  pln_Node *leaves;       /* leaves with gradients */
  pln_Want *want;         /* instead of adding up in leaves */
  int nwant;
  pln_Node *lua;          /* the node that the caller computes, its gradients in `dy` */
  bool hooked;            /* the node hook has seen run->at */
} pln_Run;

/* Begins: without wants all leaves get their sums. Then seeds, steps, and finish or abort. */
pln_Status pln_run_begin(pln_Run *r, struct pln_Engine *e, bool retain, bool graph, pln_Want *want, int nwant, uint32_t place);
/* The gradient of a node's result; NULL dy: 1, for one element. Takes no reference. */
pln_Status pln_run_seed(pln_Run *r, pln_Node *n, int output, pln_Tensor *dy);
/* After the last seed, with wants: finds what lies on the way to them. */
pln_Status pln_run_plan(pln_Run *r, pln_Node **roots, int nroots);
/* Runs built-in nodes until all is done (*n_p NULL) or the caller's turn has come: a Lua node, or with a node hook any node (then
** pln_run_step is called again without more). */
pln_Status pln_run_step(pln_Run *r, pln_Node **n_p);
/* The Lua node's gradients of its operands, NULL none; takes over no reference. Done with the node. */
pln_Status pln_run_lua_done(pln_Run *r, pln_Tensor **dx);
/* Adds up in the leaves. Must follow a successful last step. */
pln_Status pln_run_finish(pln_Run *r);
/* Ends a backward early: everything that it held goes. Saved tensors of nodes that have not run stay. */
void pln_run_abort(pln_Run *r);

/* Error of a node that is gone: its backward has run, or it was too old. */
pln_Status pln_tape_gone(struct pln_Engine *e, uint64_t serial);

#endif
