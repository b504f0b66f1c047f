/* SPDX-License-Identifier: MIT
** gemm_kernel.h - what gemm.c asks of the matrix product's inner kernels.
**
** gemm_kernel.c is compiled once per instruction set; each compilation exports one table.  All
** tables compute every element of C as the same chain of fused multiply-adds in the order of k (v2,
** without a fused multiply-add, as the same chain of products and sums).
*/
#ifndef PLN_CPU_GEMM_KERNEL_H
#define PLN_CPU_GEMM_KERNEL_H

#include "../gemm.h"

/* One table's kernels for one element type T; A is read through any strides, B by rows.
**
** direct: one product with k <= PLN_GEMM_KC and the rows of B and C contiguous (bs1, cs1 unread).
** tile:   C (m,n) = or += A * B on packed panels, m <= mr, n <= nr: A[p*m + i], B[p*n' + j] with n'
**         = n rounded up to whole vectors.
** pack:   out[p*ld + i] = in[i*s0 + p*s1] for i < rows, p < k; zeros for rows <= i < ld.
** row:    C (1,n) = or += A * B, k <= PLN_GEMM_KC, with columns of B contiguous and bs1 apart.
** block:  the part of `direct` that does all of a plain product in one go (NULL: there is none), and what
**         it wants to be told as `part`.
** dot:    continues the 32 chains of a 1 x 1 product, chain l taking each p with p % 32 == l; both
**         operands contiguous, k a multiple of 32 except in the last call. */
#define PLN_GEMM_KERNELS(T, NAME, BLOCK)                                                           \
  typedef void (*BLOCK)(const pln_Gemm *g, int part, const T *a, const T *b, T *c);                \
  typedef struct NAME {                                                                            \
    int mr, nr, vector;                                                                            \
    BLOCK (*block)(const pln_Gemm *g, int *part_p);                                                \
    void (*direct)(const pln_Gemm *g, const T *a, const T *b, T *c);                               \
    void (*tile)(int64_t m, int64_t n, int64_t k, const T *a, const T *b, T *c, int64_t cs0,       \
                 int add);                                                                         \
    void (*pack)(int64_t rows, int64_t ld, int64_t k, const T *in, int64_t s0, int64_t s1,         \
                 T *out);                                                                          \
    void (*row)(int64_t n, int64_t k, const T *a, int64_t as1, const T *b, int64_t bs1, T *c,      \
                int add);                                                                          \
    void (*dot)(int64_t k, const T *a, const T *b, T *lanes);                                      \
  } NAME;

PLN_GEMM_KERNELS(float, pln_GemmF32, pln_GemmBlockF32)
PLN_GEMM_KERNELS(double, pln_GemmF64, pln_GemmBlockF64)

typedef struct pln_GemmTable {
  const char *isa;
  pln_GemmF32 f32;
  pln_GemmF64 f64;
} pln_GemmTable;

/* The longest chain: longer sums are cut into blocks of KC terms, each block's chain starting from
** zero, and the blocks' sums are added up in order. */
#define PLN_GEMM_KC 256

#define PLN_GEMM_LANES 32 /* chains of a dot product */

/* Plain products are over before a long one has begun: one of them, small, its columns of C side by side. */
#define PLN_GEMM_PLAIN 48 /* largest side */
static inline int pln_gemm_is_plain (const pln_Gemm *g) {
  return g->batch == 1 && g->cs1 == 1 && (uint64_t)(g->k - 1) < PLN_GEMM_PLAIN
         && (uint64_t)(g->m - 1) < PLN_GEMM_PLAIN && (uint64_t)(g->n - 2) < PLN_GEMM_PLAIN;
}

/* The table in use (gemm.c). */
const pln_GemmTable *pln_gemm_table(void);

extern const pln_GemmTable pln_gemm_kernel_v2, pln_gemm_kernel_v3, pln_gemm_kernel_v4,
  pln_gemm_kernel_base;

#endif
