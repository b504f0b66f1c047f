/* SPDX-License-Identifier: MIT
** blas.h - another library's matrix product, if it is asked for and gives the same bits.
**
** Perilune's own kernels are the rule (docs/decisions/002-matmul.md).  PERILUNE_BLAS=1 looks for
** OpenBLAS, PERILUNE_BLAS=PATH loads that library; it is loaded at the first product large enough to
** want it and used where its results equal the own kernels' bit for bit, which is tried once.
*/
#ifndef PLN_CPU_BLAS_H
#define PLN_CPU_BLAS_H

typedef struct pln_Blas { /* the C interface's products, row order; NULL: not to be used */
  void (*f32)(int order, int atrans, int btrans, int m, int n, int k, float alpha, const float *a,
              int lda, const float *b, int ldb, float beta, float *c, int ldc);
  void (*f64)(int order, int atrans, int btrans, int m, int n, int k, double alpha, const double *a,
              int lda, const double *b, int ldb, double beta, double *c, int ldc);
} pln_Blas;

enum { PLN_BLAS_ROWS = 101, PLN_BLAS_PLAIN = 111, PLN_BLAS_TURNED = 112 };

/* Asked for are only blocks of m x n x k with k up to PLN_GEMM_KC and m and n multiples of
** PLN_BLAS_STEP from PLN_BLAS_LEAST to PLN_BLAS_MOST: there a library can be expected to add in the
** order of k, and there it is tried.  Smaller ones and edges it computes in orders of its own. */
#define PLN_BLAS_STEP 16
#define PLN_BLAS_LEAST 64
#define PLN_BLAS_MOST 512

/* Loads and tries the library at the first call. */
const pln_Blas *pln_blas_get(void);

/* Which library is used, or why none is; valid for the life of the process. */
const char *pln_blas_state(void);

#endif
