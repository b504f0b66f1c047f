/* SPDX-License-Identifier: MIT
** gemm.h - the matrix product on the host, for operands of any strides.
**
** The bits of a result follow from m, n, k and the values alone: not from strides, alignment,
** threads, batch, the vector width, or whether a BLAS was found.  Each element of C is
**   1 x 1 results: 32 chains, chain l taking the terms p with p % 32 == l, added up in halves;
**   all others:    blocks of 256 terms in the order of p, each block one chain that starts from
**                  zero; the blocks' sums are added up in order, onto C when accumulating.
** A chain is x = fma(a, b, x), or x = a * b + x on a machine without fused multiply-add.
*/
#ifndef PLN_CPU_GEMM_H
#define PLN_CPU_GEMM_H

#include "threads.h"

/* C (m,n) = or += A (m,k) * B (k,n), `batch` times.  Strides are in elements and may be zero or
** negative, except that no two elements of the C's may coincide.  C overlaps neither A nor B. */
typedef struct pln_Gemm {
  int64_t m, n, k;
  int64_t as0, as1, bs0, bs1, cs0, cs1;
  int64_t batch, abatch, bbatch, cbatch; /* number of products and the strides between them */
  int accumulate; /* 0: C is only written, whatever it holds; 1: the product is added to C */
} pln_Gemm;

/* k = 0 gives zeros, or leaves C when accumulating; m, n or batch = 0 does nothing.  pool may be
** NULL.  Nothing here fails: where there is no memory for packing it does without.  After a product that
** was given a pool, pln_threads_stopped tells whether an interrupt broke it off. */
void pln_gemm_f32(pln_Threads *pool, const pln_Gemm *g, const float *a, const float *b, float *c);
void pln_gemm_f64(pln_Threads *pool, const pln_Gemm *g, const double *a, const double *b, double *c);

/* Integers: sums wrap around in 64 bits and are cut to the element's size. */
void pln_gemm_u8(pln_Threads *pool, const pln_Gemm *g, const uint8_t *a, const uint8_t *b, uint8_t *c);
void pln_gemm_i32(pln_Threads *pool, const pln_Gemm *g, const int32_t *a, const int32_t *b, int32_t *c);
void pln_gemm_i64(pln_Threads *pool, const pln_Gemm *g, const int64_t *a, const int64_t *b, int64_t *c);

/* The instruction set in use: "v2", "v3", "v4" or "base".  PERILUNE_ISA in the environment asks for
** a lower one. */
const char *pln_gemm_isa(void);

#endif
