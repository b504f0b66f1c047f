/* SPDX-License-Identifier: MIT
** elementwise.h -- what other families and autograd need of the elementwise ops.
*/
#ifndef PLN_OPS_ELEMENTWISE_H
#define PLN_OPS_ELEMENTWISE_H

#include "../op.h"

/* What a derivative is made of beside g, as bits. */
enum { PLN_SAVES_NONE = 0, PLN_SAVES_X = 1, PLN_SAVES_Y = 2 };

/* The derivatives of an op whose row has a formula (text[0] is NULL for all others): of its one operand, from g and x or y as
** `saves` says, or of its two operands, from g, a and b. `backward` is the internal op that computes them in one pass:
** (g, s, options ...) where s is what is saved, or the number 0 with NONE; or (g, a, b, which), where an operand that the text
** does not name may be any number.
** The text is the formula as written in elementwise.def: numbers, K(number), names (g x y a b and the op's options),
** + - * / and unary -, comparisons, c ? p : q, and F(name)(...) for the op of that name (max and min are maximum and minimum). */
typedef struct pln_Derivative {
  const char *text[2];
  uint8_t saves;     /* of one operand */
  uint16_t backward; /* pln_OpId */
} pln_Derivative;

/* By pln_OpId. */
extern const pln_Derivative pln_derivatives[PLN_NOPS];
/* Whether the text names the one-letter operand. */
bool pln_derivative_names(const char *text, char operand);

/* PLN_EARG unless `v` can be an element of `dtype` as it is: integers take whole numbers in their range (bool and floats: anything).
** For fill, full and their like; `what` names the argument. */
pln_Status pln_elementwise_number(const pln_Prep *p, pln_DType dtype, double v, const char *what);

#endif
