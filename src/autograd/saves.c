/* SPDX-License-Identifier: MIT
** saves.c -- what the gradient of each operand reads, by op. An op that is not named here saves nothing: its gradient needs shapes and
** options only. Elementwise ops follow from their formulas.
*/
#include "../ops/elementwise.h"
#include "tape.h"

#define X PLN_IN(0)
#define Y PLN_OUT(0)
#define LOSS (X | PLN_IN(1) | PLN_IN(2))
#define SDPA (X | PLN_IN(1) | PLN_IN(2) | PLN_IN(3) | Y | PLN_OUT(1))
#define NORM (X | PLN_IN(1) | PLN_OUT(1) | PLN_OUT(2)) /* the mean and deviation of each lane */

static const struct {
  pln_OpId op;
  uint16_t reads[PLN_MAX_IN]; /* by operand */
} rows[] = {
  {PLN_OP_where, {0, PLN_IN(0), PLN_IN(0)}},
  {PLN_OP_masked_fill, {PLN_IN(1)}},
  {PLN_OP_matmul, {PLN_IN(1), X}},
  {PLN_OP_addmm, {0, PLN_IN(2), PLN_IN(1)}},
  {PLN_OP_linear, {PLN_IN(1), X}},
  {PLN_OP_prod, {X}},
  {PLN_OP_max, {X | Y | PLN_OUT(1) | PLN_EITHER}},
  {PLN_OP_min, {X | Y | PLN_OUT(1) | PLN_EITHER}},
  {PLN_OP_var, {X}},
  {PLN_OP_logsumexp, {X | Y}},
  {PLN_OP_norm, {X | Y}},
  {PLN_OP_gather, {PLN_IN(1)}},
  {PLN_OP_gather_backward, {PLN_IN(1)}},
  {PLN_OP_index_select, {PLN_IN(1)}},
  {PLN_OP_index_select_backward, {PLN_IN(1)}},
  {PLN_OP_embedding, {0, PLN_IN(0)}},
  {PLN_OP_embedding_backward, {PLN_IN(1)}},
  {PLN_OP_scatter_add, {0, 0, PLN_IN(1)}},
  {PLN_OP_dropout_backward, {PLN_IN(1)}},
  {PLN_OP_softmax, {Y}},
  {PLN_OP_log_softmax, {Y}},
  {PLN_OP_cross_entropy, {LOSS, LOSS, LOSS | Y}},
  {PLN_OP_sdpa_forward, {SDPA, SDPA, SDPA, SDPA}},
  {PLN_OP_layer_norm_forward, {NORM, NORM, NORM}},
  {PLN_OP_rms_norm_forward, {NORM, NORM}},
  {PLN_OP_group_norm_forward, {NORM, NORM, NORM}},
};

uint16_t pln_saves[PLN_NOPS][PLN_MAX_IN];

pln_OpId pln_recorded_as(pln_OpId op) {
  switch (op) {
    case PLN_OP_sdpa: return PLN_OP_sdpa_forward;
    case PLN_OP_layer_norm: return PLN_OP_layer_norm_forward;
    case PLN_OP_rms_norm: return PLN_OP_rms_norm_forward;
    case PLN_OP_group_norm: return PLN_OP_group_norm_forward;
    default: return op;
  }
}

void pln_saves_init(void) {
  for (int op = 0; op < PLN_NOPS; op++) {
    const pln_Derivative *d = &pln_derivatives[op];
    if (!d->text[0]) continue;
    if (!d->text[1]) {
      pln_saves[op][0] = (d->saves & PLN_SAVES_X ? X : 0) | (d->saves & PLN_SAVES_Y ? Y : 0);
      continue;
    }
    for (int i = 0; i < 2; i++)
      pln_saves[op][i] =
        (pln_derivative_names(d->text[i], 'a') ? PLN_IN(0) : 0) | (pln_derivative_names(d->text[i], 'b') ? PLN_IN(1) : 0);
  }
  for (size_t r = 0; r < sizeof rows / sizeof rows[0]; r++)
    for (int i = 0; i < PLN_MAX_IN; i++) pln_saves[rows[r].op][i] = rows[r].reads[i];
}
