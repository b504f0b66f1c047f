/* SPDX-License-Identifier: MIT
** pass.c -- see pass.h. While a backward is written down, every address of a call must be traced to a storage that is found again in the
** next one; what cannot be makes the graph one that is not remembered.
*/
#include "pass.h"

#include <string.h>

#include "../alloc.h"
#include "../engine.h"
#include "../fault.h"
#include "../interrupt.h"
#include "../plan.h"

#define SLOTS 64 /* a power of two */
#define MAX_NODES 1024
#define STRANGE 4 /* graphs in a row that only look like the one remembered, before another takes its place */
#define MAX_WAY ((size_t)1 << 20) /* bytes of what is made on the way: with more the calls themselves take the time */

/* Where an address points: `offset` bytes behind a base. Bases: memory of the way, the tape's two ones, saved tensors, gradients. */
enum { BASE_NONE, BASE_WAY, BASE_ONE, BASE_SAVED = BASE_ONE + 2 };

typedef struct Address {
  uint32_t base;
  ptrdiff_t offset;
} Address;

typedef struct Step {
  pln_Call *call;
  uint32_t nargs;
  Address scratch;
  Address arg[PLN_MAX_ARGS];
} Step;

typedef struct Leaf {
  pln_Node *node;
  uint64_t serial;
} Leaf;

/* A storage that a call may refer to, while written down. */
typedef struct Known {
  const pln_Storage *storage;
  uint64_t serial;
  const char *data; /* what offsets count from */
  Address at;
} Known;

struct pln_Pass {
  uint64_t hash;
  int output;
  uint32_t nnodes, nsaved, nleaves, nsteps, nwords, nknown;
  uint32_t capwords, capsteps, capleaves, capknown, capsaved;
  uint64_t *word;      /* the kind of graph */
  uint32_t *same_as;   /* saved tensor i is the one that saved tensor same_as[i] is, itself if first */
  Step *step;
  Leaf *leaf;
  Known *known;
  char **base;
  char *way;
  size_t way_bytes;
  uint64_t root;       /* while written down: the root's serial */
  pln_PassSlot *slot;
  bool fits;           /* so far it can be remembered; */
  bool later;          /* if not: the next one may be */
};

/* Room for one more item; the pass does not fit where there is none. */
static bool room(pln_Pass *p, void **items_p, uint32_t n, uint32_t *cap_p, size_t size) {
  if (n < *cap_p) return true;
  uint32_t cap = *cap_p ? 2 * *cap_p : 16;
  void *more = pln_realloc(*items_p, cap * size);
  if (!more) return p->fits = false;
  *items_p = more;
  *cap_p = cap;
  return true;
}

static void pass_free(pln_Pass *p) {
  if (!p) return;
  for (uint32_t i = 0; i < p->nsteps; i++) pln_mfree(p->step[i].call);
  pln_mfree(p->step);
  pln_mfree(p->word);
  pln_mfree(p->same_as);
  pln_mfree(p->leaf);
  pln_mfree(p->known);
  pln_mfree(p->base);
  pln_mfree_aligned(p->way);
  pln_mfree(p);
}

void pln_passes_free(pln_Tape *tape) {
  if (!tape->passes) return;
  for (int i = 0; i < SLOTS; i++) pass_free(tape->passes[i].pass);
  pln_mfree(tape->passes);
  tape->passes = NULL;
}

/* --- the kind of a graph ------------------------------------------------------------------------ */

/* What node n is, seen from a root: this, and a word for each operand. */
#define NODE_WORDS 3

static inline void node_words(const pln_Node *n, uint64_t root, uint64_t *w) {
  w[0] = root - n->object.serial;
  w[1] = (uint64_t)n->plan | (uint64_t)n->nsaved << 32 | (uint64_t)n->nedges << 48;
  w[2] = n->saved_mask;
}

static inline uint64_t edge_word(const pln_Edge *edge, uint64_t root) {
  if (!edge->node) return 0;
  if (edge->node->kind == PLN_NODE_LEAF) return edge->serial << 2 | 2;
  return (root - edge->serial) << 18 | (uint64_t)edge->output << 2 | 1;
}

static uint64_t mix(uint64_t h, uint64_t word) { return (h ^ word ^ h >> 29) * UINT64_C(0x9e3779b97f4a7c15); }

static uint64_t hash_of(const pln_Node *root, int output) {
  uint64_t h = mix((uint64_t)output, root->plan);
  const pln_Node *n = root->older;
  for (int i = 0; i < 7 && n; i++, n = n->older) h = mix(h, n->plan);
  return h | 1;
}

static bool usable(const pln_Engine *e, const pln_Node *root) {
  const pln_Tape *tape = e->tape;
  const pln_Poison *poison = &e->options.poison;
  return root->kind == PLN_NODE_OP && root->plan && e->backend->host_memory && !e->late && !e->options.no_plans && !e->options.stale_allow &&
         !(e->hooks & (PLN_HOOK_CAPTURE | PLN_HOOK_PLACES)) && !poison->on_reset && !poison->on_free && !poison->on_alloc && !poison->redzone &&
         !tape->run && !tape->node_hook && !tape->owner && !e->pass && !pln_fault_any && !pln_interrupted;
}

/* --- running ------------------------------------------------------------------------------------ */

/* Whether the graph below root is the pass's, all of it can run, and where its tensors are. */
static bool matches(pln_Pass *p, pln_Engine *e, pln_Node *root, pln_Node **node) {
  const uint64_t *w = p->word;
  uint32_t saved = 0;
  pln_Node *n = root;
  const pln_Tape *tape = e->tape;
  for (uint32_t k = 0; k < p->nnodes; k++) {
    while (n && root->object.serial - n->object.serial < *w) n = n->older;
    if (!n || n->kind != PLN_NODE_OP || n->held) return false;
    uint64_t own[NODE_WORDS];
    node_words(n, root->object.serial, own);
    if (w[0] != own[0] || w[1] != own[1] || w[2] != own[2]) return false;
    w += NODE_WORDS;
    for (uint32_t i = 0; i < n->nedges; i++) {
      const pln_Edge *edge = &n->edge[i];
      if (*w++ != edge_word(edge, root->object.serial) || (edge->node && edge->node->object.serial != edge->serial)) return false;
    }
    for (uint32_t i = 0; i < n->nsaved; i++, saved++) {
      const pln_Tensor *t = n->saved[i].t;
      if (t->storage->version != n->saved[i].version) return false; /* backward.c says what is wrong */
      p->base[BASE_SAVED + saved] = t->data;
      if (p->same_as[saved] != saved && p->base[BASE_SAVED + p->same_as[saved]] != t->data) return false;
    }
    node[k] = n;
  }
  for (uint32_t i = 0; i < p->nleaves; i++) {
    const pln_Node *leaf = p->leaf[i].node;
    const pln_Tensor *grad = leaf->grad;
    if (leaf->object.serial != p->leaf[i].serial || !grad || !grad->contiguous || grad->requires_grad) return false;
    p->base[BASE_SAVED + saved + i] = grad->data;
  }
  for (int i = 0; i < 2; i++) {
    if (tape->one_version[i] != tape->one[i]->storage->version) return false;
    p->base[BASE_ONE + i] = tape->one[i]->data;
  }
  return true;
}

static inline char *resolve(const pln_Pass *p, const Address *at) { return p->base[at->base] + at->offset; }

static pln_Status launch(pln_Pass *p, pln_Engine *e, uint32_t place) {
  for (uint32_t i = 0; i < p->nsteps; i++) {
    const Step *s = &p->step[i];
    pln_Call *c = s->call;
    for (uint32_t k = 0; k < s->nargs; k++)
      if (s->arg[k].base) c->arg[k].data = resolve(p, &s->arg[k]);
    if (s->scratch.base) c->scratch = resolve(p, &s->scratch);
    c->place = place;
    c->number = ++e->calls;
    pln_Status status = c->kernel(c);
    if (PLN_UNLIKELY(status != PLN_OK)) return pln_fail_prefix(status, "backward: ");
  }
  return PLN_OK;
}

/* What is left to do when the calls have run, or failed. */
static void finish(const pln_Pass *p, pln_Node *const *node, bool whole, uint32_t place) {
  for (uint32_t i = 0; whole && i < p->nleaves; i++) pln_tensor_written(p->leaf[i].node->grad, PLN_OP_add, place);
  for (uint32_t k = 0; k < p->nnodes; k++) pln_node_drop(node[k]);
}

static void begin(pln_Engine *e, pln_PassSlot *slot, const pln_Node *root, int output, uint64_t hash);

bool pln_pass_run(pln_Engine *e, pln_Node *root, int output, uint32_t place, pln_Status *status_p) {
  pln_Tape *tape = e->tape;
  if (!usable(e, root)) return false;
  if (PLN_UNLIKELY(!tape->passes)) {
    tape->passes = pln_calloc(SLOTS, sizeof *tape->passes);
    if (!tape->passes) return false;
  }
  uint64_t hash = hash_of(root, output);
  pln_PassSlot *slot = &tape->passes[hash >> 40 & (SLOTS - 1)];
  pln_Pass *p = slot->pass;
  pln_Node *node[MAX_NODES];
  if (PLN_UNLIKELY(!p) || PLN_UNLIKELY(p->hash != hash) || PLN_UNLIKELY(p->output != output) || PLN_UNLIKELY(!matches(p, e, root, node))) {
    if (slot->refused == hash) return false;
    if (p && p->hash == hash && ++slot->strange < STRANGE) return false;
    if (slot->seen == hash)
      begin(e, slot, root, output, hash);
    else
      slot->seen = hash;
    return false;
  }
  slot->strange = 0;
  tape->passed++;
  *status_p = launch(p, e, place);
  finish(p, node, *status_p == PLN_OK, place);
  return true;
}

/* --- writing down ------------------------------------------------------------------------------- */

static void know(pln_Pass *p, const pln_Storage *s, const char *data, uint32_t base, ptrdiff_t offset) {
  if (!room(p, (void **)&p->known, p->nknown, &p->capknown, sizeof *p->known)) return;
  p->known[p->nknown++] = (Known){s, s->object.serial, data, {base, offset}};
}

static const Known *find_known(const pln_Pass *p, const pln_Storage *s) {
  for (uint32_t i = p->nknown; i-- > 0;)
    if (p->known[i].storage == s && p->known[i].serial == s->object.serial) return &p->known[i];
  return NULL;
}

static void begin(pln_Engine *e, pln_PassSlot *slot, const pln_Node *root, int output, uint64_t hash) {
  pln_Pass *p = pln_calloc(1, sizeof *p);
  if (!p) return;
  p->hash = hash;
  p->output = output;
  p->slot = slot;
  p->root = root->object.serial;
  p->fits = true;
  for (int i = 0; i < 2; i++) know(p, e->tape->one[i]->storage, e->tape->one[i]->data, BASE_ONE + (uint32_t)i, 0);
  e->pass = p;
}

static void put_word(pln_Pass *p, uint64_t word) {
  if (room(p, (void **)&p->word, p->nwords, &p->capwords, sizeof *p->word)) p->word[p->nwords++] = word;
}

void pln_pass_node(pln_Pass *p, const pln_Node *n) {
  if (!p->fits) return;
  if (n->kind != PLN_NODE_OP || !n->plan || p->nnodes == MAX_NODES) {
    p->fits = false;
    return;
  }
  p->nnodes++;
  uint64_t own[NODE_WORDS];
  node_words(n, p->root, own);
  for (int i = 0; i < NODE_WORDS; i++) put_word(p, own[i]);
  for (uint32_t i = 0; i < n->nedges; i++) put_word(p, edge_word(&n->edge[i], p->root));
  for (uint32_t i = 0; i < n->nsaved && p->fits; i++) {
    const pln_Tensor *t = n->saved[i].t;
    if (!room(p, (void **)&p->same_as, p->nsaved, &p->capsaved, sizeof *p->same_as)) return;
    uint32_t index = p->nsaved++;
    const Known *k = find_known(p, t->storage);
    p->same_as[index] = index;
    if (!k) {
      know(p, t->storage, t->data, BASE_SAVED + index, 0);
    } else if (k->at.base < BASE_SAVED || k->data != t->data) {
      p->fits = false; /* two views of one storage: whose an address is would be a guess */
    } else {
      p->same_as[index] = k->at.base - BASE_SAVED;
    }
  }
}

void pln_pass_leaf(pln_Pass *p, pln_Node *leaf) {
  if (!p->fits) return;
  const pln_Tensor *grad = leaf->grad;
  if (!grad || !grad->contiguous || grad->requires_grad || find_known(p, grad->storage)) {
    p->fits = false;
    p->later = !grad;
    return;
  }
  if (!room(p, (void **)&p->leaf, p->nleaves, &p->capleaves, sizeof *p->leaf)) return;
  p->leaf[p->nleaves++] = (Leaf){leaf, leaf->object.serial};
  know(p, grad->storage, grad->data, BASE_SAVED + p->nsaved + p->nleaves - 1, 0); /* all nodes have run */
}

/* The address of memory that belongs to one of the call's tensors. */
static bool trace(pln_Pass *p, const pln_Args *a, pln_Tensor *const *temps, int ntemps, const char *data, Address *at) {
  const pln_Storage *found = NULL;
  int nin = a->nin, n = nin + PLN_MAX_OUT + ntemps;
  for (int i = 0; i < n; i++) {
    const pln_Tensor *t = i < nin ? a->in[i] : i < nin + PLN_MAX_OUT ? a->out[i - nin] : temps[i - nin - PLN_MAX_OUT];
    const pln_Storage *s = t ? t->storage : NULL;
    if (s && s->data && data >= s->data && data < s->data + s->bytes) found = s;
  }
  if (!found) return false;
  const Known *k = find_known(p, found);
  if (!k) { /* made on the way */
    size_t bytes = (found->bytes + PLN_ALIGN - 1) / PLN_ALIGN * PLN_ALIGN;
    if (p->way_bytes + bytes > MAX_WAY) return false;
    know(p, found, found->data, BASE_WAY, (ptrdiff_t)p->way_bytes);
    if (!p->fits) return false;
    p->way_bytes += bytes;
    k = &p->known[p->nknown - 1];
  }
  at->base = k->at.base;
  at->offset = k->at.offset + (data - k->data);
  return true;
}

void pln_pass_call(pln_Pass *p, const pln_Args *a, pln_Tensor *const *temps, int ntemps, const pln_Call *c) {
  if (!p->fits || !room(p, (void **)&p->step, p->nsteps, &p->capsteps, sizeof *p->step)) return;
  Step *s = &p->step[p->nsteps];
  memset(s, 0, sizeof *s);
  s->nargs = (uint32_t)(c->nout + c->nin);
  p->fits = !a->list && !(pln_ops[c->op].flags & PLN_OP_RANDOM);
  for (uint32_t k = 0; k < s->nargs && p->fits; k++)
    if (c->arg[k].data) p->fits = trace(p, a, temps, ntemps, c->arg[k].data, &s->arg[k]);
  if (p->fits && c->scratch) p->fits = trace(p, a, temps, ntemps, c->scratch, &s->scratch);
  if (!p->fits) return;
  s->call = pln_malloc(pln_call_bytes(c));
  if (!s->call) {
    p->fits = false;
    return;
  }
  memcpy(s->call, c, pln_call_bytes(c));
  p->nsteps++;
}

/* The addresses of gradients were counted from the saved tensors known by then: all of them. */
void pln_pass_end(pln_Engine *e, bool whole) {
  pln_Pass *p = e->pass;
  if (!p) return;
  e->pass = NULL;
  bool fits = p->fits && whole && p->nsteps;
  if (fits) {
    p->base = pln_calloc(BASE_SAVED + p->nsaved + p->nleaves, sizeof *p->base);
    p->way = pln_malloc_aligned(p->way_bytes ? p->way_bytes : PLN_ALIGN);
    fits = p->base && p->way;
  }
  if (!fits) {
    if (whole && !p->later) p->slot->refused = p->hash;
    pass_free(p);
    return;
  }
  p->base[BASE_WAY] = p->way;
  pln_mfree(p->known);
  p->known = NULL;
  pass_free(p->slot->pass);
  p->slot->pass = p;
  p->slot->strange = 0;
}
