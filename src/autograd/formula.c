/* SPDX-License-Identifier: MIT
** formula.c -- computes a derivative's text (ops/elementwise.h) with ops, each of which may be recorded: for gradients of gradients.
**
** A recursive descent, one function per level of binding. Values are tensors or numbers; what numbers alone can tell is computed here.
*/
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "calc.h"

typedef struct Value {
  pln_Tensor *t; /* NULL: the number */
  double number;
} Value;

typedef struct Parser {
  pln_Calc *c;
  const char *at;
  const pln_Name *names;
  int nnames;
} Parser;

static Value ternary(Parser *p);

static void blanks(Parser *p) {
  while (*p->at == ' ' || *p->at == '\n' || *p->at == '\t') p->at++;
}

static bool take(Parser *p, const char *token) {
  blanks(p);
  size_t n = strlen(token);
  if (strncmp(p->at, token, n) != 0) return false;
  p->at += n;
  return true;
}

static Value fail(Parser *p) {
  if (p->c->status == PLN_OK) p->c->status = pln_fail(PLN_EGRAD, "op table: a derivative cannot be read at '%s'", p->at);
  p->at = ""; /* every loop ends */
  return (Value){NULL, 0};
}

/* The op on two values; two numbers are computed by whoever calls. */
static Value binary(Parser *p, pln_OpId op, Value a, Value b) {
  pln_Args args;
  pln_calc_args(p->c, op, &args);
  args.in[0] = a.t;
  args.in[1] = b.t;
  args.numbers = (a.t ? 0u : 1u) | (b.t ? 0u : 2u);
  args.num[0] = a.number;
  args.num[1] = b.number;
  return (Value){pln_calc_run(p->c, op, &args), 0};
}

static Value unary(Parser *p, pln_OpId op, Value a) { return (Value){pln_calc_op1(p->c, op, a.t), 0}; }

static Value call(Parser *p) {
  char name[24];
  size_t n = 0;
  while (*p->at && *p->at != ')' && n + 1 < sizeof name) name[n++] = *p->at++;
  name[n] = 0;
  if (!take(p, ")") || !take(p, "(")) return fail(p);
  if (strcmp(name, "max") == 0) strcpy(name, "maximum");
  if (strcmp(name, "min") == 0) strcpy(name, "minimum");
  const pln_OpDef *op = pln_op_find(name);
  Value a = ternary(p);
  if (!op) return fail(p);
  if (take(p, ",")) {
    Value b = ternary(p);
    if (!take(p, ")")) return fail(p);
    return binary(p, (pln_OpId)(op - pln_ops), a, b);
  }
  if (!take(p, ")")) return fail(p);
  if (!a.t && p->c->status == PLN_OK) /* of a number: as a tensor of g's dtype */
    a.t = pln_calc_full(p->c, &(pln_Shape){0, {0}}, (pln_DType)p->names[0].t->dtype, a.number);
  return unary(p, (pln_OpId)(op - pln_ops), a);
}

static bool is_name(char c) { return (c >= 'a' && c <= 'z') || c == '_'; }

static Value primary(Parser *p) {
  blanks(p);
  if (take(p, "K(") || take(p, "(")) {
    Value v = ternary(p);
    return take(p, ")") ? v : fail(p);
  }
  if (take(p, "F(")) return call(p);
  char *end;
  if ((*p->at >= '0' && *p->at <= '9') || *p->at == '.') {
    double number = strtod(p->at, &end);
    p->at = end;
    return (Value){NULL, number};
  }
  size_t n = 0;
  while (is_name(p->at[n])) n++;
  for (int i = 0; n && i < p->nnames; i++)
    if (strlen(p->names[i].name) == n && strncmp(p->at, p->names[i].name, n) == 0) {
      p->at += n;
      return (Value){p->names[i].t, p->names[i].number};
    }
  return fail(p);
}

static Value negation(Parser *p) {
  if (!take(p, "-")) return primary(p);
  Value v = negation(p);
  if (!v.t) return (Value){NULL, -v.number};
  return unary(p, PLN_OP_neg, v);
}

static Value product(Parser *p) {
  Value v = negation(p);
  for (;;) {
    bool times = take(p, "*");
    if (!times && !take(p, "/")) return v;
    Value w = negation(p);
    if (v.t || w.t)
      v = binary(p, times ? PLN_OP_mul : PLN_OP_div, v, w);
    else
      v.number = times ? v.number * w.number : v.number / w.number;
  }
}

static Value sum(Parser *p) {
  Value v = product(p);
  for (;;) {
    bool plus = take(p, "+");
    if (!plus && !take(p, "-")) return v;
    Value w = product(p);
    if (v.t || w.t)
      v = binary(p, plus ? PLN_OP_add : PLN_OP_sub, v, w);
    else
      v.number = plus ? v.number + w.number : v.number - w.number;
  }
}

static Value comparison(Parser *p) {
  static const struct {
    const char *text;
    pln_OpId op;
  } signs[] = {{"==", PLN_OP_eq}, {"!=", PLN_OP_ne}, {"<=", PLN_OP_le}, {">=", PLN_OP_ge}, {"<", PLN_OP_lt}, {">", PLN_OP_gt}};
  Value v = sum(p);
  for (size_t i = 0; i < sizeof signs / sizeof signs[0]; i++)
    if (take(p, signs[i].text)) {
      Value w = sum(p);
      if (v.t || w.t) return binary(p, signs[i].op, v, w);
      double a = v.number, b = w.number;
      bool truths[] = {a == b, a != b, a <= b, a >= b, a < b, a > b};
      return (Value){NULL, truths[i]};
    }
  return v;
}

static Value ternary(Parser *p) {
  Value test = comparison(p);
  if (!take(p, "?")) return test;
  Value yes = ternary(p);
  if (!take(p, ":")) return fail(p);
  Value no = ternary(p);
  if (!test.t) return test.number != 0 ? yes : no;
  pln_Args args;
  pln_calc_args(p->c, PLN_OP_where, &args);
  args.in[0] = test.t;
  args.in[1] = yes.t;
  args.in[2] = no.t;
  args.numbers = (yes.t ? 0u : 2u) | (no.t ? 0u : 4u);
  args.num[1] = yes.number;
  args.num[2] = no.number;
  return (Value){pln_calc_run(p->c, PLN_OP_where, &args), 0};
}

pln_Tensor *pln_calc_formula(pln_Calc *c, const char *text, const pln_Name *names, int nnames) {
  Parser p = {c, text, names, nnames};
  Value v = ternary(&p);
  blanks(&p);
  if (*p.at) (void)fail(&p);
  if (c->status != PLN_OK) return NULL;
  return v.t ? v.t : pln_calc_scale(c, names[0].t, v.number); /* a number: of the shape of the first name, g */
}
