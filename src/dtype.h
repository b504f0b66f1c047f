/* SPDX-License-Identifier: MIT
** dtype.h -- element types. bool is stored as u8 and read as `!= 0` (C8: poison is "true").
*/
#ifndef PLN_DTYPE_H
#define PLN_DTYPE_H

#include <stdbool.h>
#include <stdint.h>

typedef enum pln_Kind { PLN_KIND_BOOL, PLN_KIND_UINT, PLN_KIND_INT, PLN_KIND_FLOAT } pln_Kind;

typedef enum pln_DType {
#define DTYPE(ID, name, ctype, kind, sum) PLN_##ID,
#include "dtype.def"
#undef DTYPE
  PLN_NDTYPE,
  PLN_NODTYPE = 255
} pln_DType;

typedef struct pln_DTypeInfo {
  const char *name;
  uint8_t size; /* bytes per element */
  uint8_t kind; /* pln_Kind */
  uint8_t sum;  /* pln_DType of sum, prod and cumsum */
} pln_DTypeInfo;

extern const pln_DTypeInfo pln_dtypes[PLN_NDTYPE];

static inline int pln_dtype_size(pln_DType d) { return pln_dtypes[d].size; }
static inline const char *pln_dtype_name(pln_DType d) { return d < PLN_NDTYPE ? pln_dtypes[d].name : "none"; }
static inline bool pln_dtype_is_float(pln_DType d) { return pln_dtypes[d].kind == PLN_KIND_FLOAT; }

/* The dtype with that name, PLN_NODTYPE if there is none. */
pln_DType pln_dtype_find(const char *name);
/* PyTorch's promotion of two tensors. */
pln_DType pln_dtype_promote(pln_DType a, pln_DType b);
/* A tensor's dtype with a weak Lua number: an integral number keeps it (bool becomes i64), any other makes it float. */
pln_DType pln_dtype_promote_number(pln_DType d, double number);

/* Sets of dtypes, as op table rows list them. */
#define PLN_SET(d) (1u << (d))
#define PLN_SET_FLOAT (PLN_SET(PLN_F32) | PLN_SET(PLN_F64))
#define PLN_SET_INT (PLN_SET(PLN_U8) | PLN_SET(PLN_I32) | PLN_SET(PLN_I64))
#define PLN_SET_NUMBER (PLN_SET_INT | PLN_SET_FLOAT)
#define PLN_SET_ANY (PLN_SET_NUMBER | PLN_SET(PLN_BOOL))

#endif
