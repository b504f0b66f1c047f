/* SPDX-License-Identifier: MIT
** grad_elementwise.c -- elementwise ops: their formulas' own kernels, or the formulas' text where gradients are recorded. Gradients come in
** the result's shape; whoever hands them on adds up what was broadcast.
*/
#include "../ops/elementwise.h"
#include "calc.h"

static void option_names(const pln_Node *n, pln_Name *names, int *nnames) {
  for (int k = 0; k < n->op->nslots; k++) {
    const pln_Slot *slot = &n->op->slot[k];
    if (slot->kind <= PLN_SLOT_TENSORS) continue;
    const pln_Kept *o = &n->opt[slot->index];
    double absent = slot->name[0] == 'l' ? -__builtin_inf() : __builtin_inf(); /* clamp's lo and hi */
    names[(*nnames)++] = (pln_Name){slot->name, NULL, o->given ? o->num : absent};
  }
}

pln_Status plg_unary(pln_Node *n, pln_Tensor **dy, pln_Tensor **dx) {
  const pln_Derivative *d = &pln_derivatives[n->op - pln_ops];
  pln_Tensor *saved = d->saves & PLN_SAVES_X ? pln_node_in(n, 0) : d->saves & PLN_SAVES_Y ? pln_node_out(n, 0) : NULL;
  pln_Calc c;
  pln_calc_begin(&c, n->engine);
  if (c.graph) {
    pln_Name names[3 + PLN_MAX_OPT] = {{"g", dy[0], 0}};
    int nnames = 1;
    if (saved) names[nnames++] = (pln_Name){d->saves & PLN_SAVES_X ? "x" : "y", saved, 0};
    option_names(n, names, &nnames);
    dx[0] = pln_calc_keep(&c, pln_calc_formula(&c, d->text[0], names, nnames));
    return pln_calc_end(&c);
  }
  pln_Args a;
  pln_calc_args(&c, (pln_OpId)d->backward, &a);
  a.in[0] = dy[0];
  a.in[1] = saved;
  if (!saved) {
    a.numbers = 2;
    a.num[1] = 0;
  }
  for (int i = 0; i < n->op->nopt; i++) {
    a.opt[i].given = n->opt[i].given;
    a.opt[i].num = n->opt[i].num;
    a.opt[i].i = n->opt[i].i;
  }
  dx[0] = pln_calc_keep(&c, pln_calc_run(&c, (pln_OpId)d->backward, &a));
  return pln_calc_end(&c);
}

/* An operand for the backward kernel: what is not saved is not read and may be any number. */
static void operand(pln_Args *a, int i, const pln_Node *n, int k) {
  a->in[i] = pln_node_in(n, k);
  if (a->in[i]) return;
  a->numbers |= 1u << i;
  a->num[i] = pln_node_is_number(n, k) ? n->edge[k].number : 0;
}

pln_Status plg_binary(pln_Node *n, pln_Tensor **dy, pln_Tensor **dx) {
  const pln_Derivative *d = &pln_derivatives[n->op - pln_ops];
  pln_OpId op = (pln_OpId)(n->op - pln_ops);
  pln_Calc c;
  pln_calc_begin(&c, n->engine);
  for (int i = 0; i < 2; i++) {
    if (!pln_node_wants(n, i)) continue;
    if (op == PLN_OP_add || (op == PLN_OP_sub && i == 0)) {
      dx[i] = pln_calc_keep(&c, dy[0]);
    } else if (c.graph) {
      pln_Name names[3] = {{"g", dy[0], 0}, {"a", pln_node_in(n, 0), 0}, {"b", pln_node_in(n, 1), 0}};
      for (int k = 0; k < 2; k++)
        if (!names[1 + k].t && pln_node_is_number(n, k)) names[1 + k].number = n->edge[k].number;
      dx[i] = pln_calc_keep(&c, pln_calc_formula(&c, d->text[i], names, 3));
    } else {
      pln_Args a;
      pln_calc_args(&c, (pln_OpId)d->backward, &a);
      a.in[0] = dy[0];
      operand(&a, 1, n, 0);
      operand(&a, 2, n, 1);
      pln_calc_int(&a, 0, i + 1);
      dx[i] = pln_calc_keep(&c, pln_calc_run(&c, (pln_OpId)d->backward, &a));
    }
  }
  return pln_calc_end(&c);
}

static void other_branch(pln_Calc *c, pln_Tensor *mask, pln_Tensor *g, pln_Tensor **dx) {
  pln_Args a;
  pln_calc_args(c, PLN_OP_where, &a);
  a.in[0] = mask;
  a.in[2] = g;
  a.numbers = 2;
  a.num[1] = 0;
  *dx = pln_calc_keep(c, pln_calc_run(c, PLN_OP_where, &a));
}

pln_Status plg_where(pln_Node *n, pln_Tensor **dy, pln_Tensor **dx) {
  pln_Tensor *mask = pln_node_in(n, 0);
  pln_Calc c;
  pln_calc_begin(&c, n->engine);
  if (pln_node_wants(n, 1)) dx[1] = pln_calc_keep(&c, pln_calc_where(&c, mask, dy[0], 0));
  if (pln_node_wants(n, 2)) other_branch(&c, mask, dy[0], &dx[2]);
  return pln_calc_end(&c);
}

pln_Status plg_masked_fill(pln_Node *n, pln_Tensor **dy, pln_Tensor **dx) {
  pln_Calc c;
  pln_calc_begin(&c, n->engine);
  other_branch(&c, pln_node_in(n, 1), dy[0], &dx[0]);
  return pln_calc_end(&c);
}

/* Whoever hands the gradient on converts it. */
pln_Status plg_pass(pln_Node *n, pln_Tensor **dy, pln_Tensor **dx) {
  (void)n;
  pln_tensor_retain(dy[0]);
  dx[0] = dy[0];
  return PLN_OK;
}
