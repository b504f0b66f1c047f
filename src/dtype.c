/* SPDX-License-Identifier: MIT
** dtype.c -- the dtype table and PyTorch's promotion rule.
*/
#include "dtype.h"

#include <math.h>
#include <string.h>

const pln_DTypeInfo pln_dtypes[PLN_NDTYPE] = {
#define DTYPE(ID, name, ctype, kind, sum) {#name, sizeof(ctype), kind, PLN_##sum},
#include "dtype.def"
#undef DTYPE
};

pln_DType pln_dtype_find(const char *name) {
  for (int d = 0; d < PLN_NDTYPE; d++)
    if (strcmp(pln_dtypes[d].name, name) == 0) return (pln_DType)d;
  return PLN_NODTYPE;
}

pln_DType pln_dtype_promote(pln_DType a, pln_DType b) {
  int ka = pln_dtypes[a].kind, kb = pln_dtypes[b].kind;
  if (ka != kb) return ka > kb ? a : b;
  if (pln_dtypes[a].size != pln_dtypes[b].size) return pln_dtypes[a].size > pln_dtypes[b].size ? a : b;
  /* two floats of one size but of different formats have no common format of that size */
  return a == b ? a : PLN_F32;
}

pln_DType pln_dtype_promote_number(pln_DType d, double number) {
  if (pln_dtypes[d].kind == PLN_KIND_FLOAT) return d;
  if (!(floor(number) == number && isfinite(number))) return PLN_F32;
  return d == PLN_BOOL ? PLN_I64 : d;
}
