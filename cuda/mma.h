/* SPDX-License-Identifier: MIT
 * Every inline-PTX instruction that the kernels use, each with a twin for the emulator: asynchronous
 * copies to shared memory and tensor-core products. Any GPU from sm_80 on has them.
 * Whole warps must call the pln_mma functions; fragments are laid out as the PTX manual says:
 * with g = lane / 4 and t = lane % 4, register i of A holds row g + 8 * (i % 2), columns
 * 2t + 8 * (i / 2) and the next; of B rows 2t + 8i and the next, column g; of C row g + 8 * (i / 2),
 * column 2t + i % 2. */
#ifndef PLN_MMA_H
#define PLN_MMA_H

#include "cuda_port.h"

#if !PLN_CUDA_EMULATED

/* Copies 16 bytes from global to shared memory, both aligned to 16. */
static __device__ __forceinline__ void pln_copy_async16(void *shared, const void *global) {
  const unsigned to = (unsigned)__cvta_generic_to_shared(shared);
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(global) : "memory");
}
/* Ends a group of copies of the calling thread. */
static __device__ __forceinline__ void pln_copy_async_commit() {
  asm volatile("cp.async.commit_group;" ::: "memory");
}
/* Waits until at most `open` of the calling thread's latest groups are unfinished. Other threads'
 * copies are visible after a barrier that follows their waits. */
template <int open> static __device__ __forceinline__ void pln_copy_async_wait() {
  asm volatile("cp.async.wait_group %0;" ::"n"(open) : "memory");
}

#define PLN_MMA_M16N8K16(NAME, TYPE)                                                             \
  static __device__ __forceinline__ void NAME(float c[4], const unsigned a[4],                   \
                                              const unsigned b[2]) {                             \
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32." TYPE "." TYPE ".f32 "                  \
                 "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"                         \
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])                                \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));            \
  }
/* C += A B for A (16,16), B (16,8), C (16,8). */
PLN_MMA_M16N8K16(pln_mma_bf16, "bf16")
PLN_MMA_M16N8K16(pln_mma_f16, "f16")
#undef PLN_MMA_M16N8K16

#else

extern "C" {
void plemu_copy_async(void *shared, const void *global, unsigned bytes);
void plemu_copy_async_commit(void);
/* Takes one copy that a wait must finish; 0 when none is left. */
int plemu_copy_async_take(int open, void **shared, const void **global, unsigned *bytes);
}

static inline void pln_copy_async16(void *shared, const void *global) {
  if (((uintptr_t)shared | (uintptr_t)global) & 15) plemu_die("copy_async16: misaligned address");
  plemu_copy_async(shared, global, 16);
}
static inline void pln_copy_async_commit() { plemu_copy_async_commit(); }
/* The copy happens here, as late as the hardware may do it: a missing wait reads poison. */
template <int open> inline void pln_copy_async_wait() {
  void *to;
  const void *from;
  unsigned bytes;
  while (plemu_copy_async_take(open, &to, &from, &bytes)) memcpy(to, from, bytes);
}

namespace plemu {

struct Fragments {
  float *c;
  const unsigned *a, *b;
};

inline float half_of(unsigned pair, int high, __nv_bfloat16) {
  const unsigned bits = high ? pair & 0xffff0000u : pair << 16;
  float f;
  memcpy(&f, &bits, sizeof f);
  return f;
}
inline float half_of(unsigned pair, int high, __half) {
  const unsigned short bits = (unsigned short)(high ? pair >> 16 : pair);
  __half h;
  memcpy((void *)&h, &bits, sizeof h);
  return __half2float(h);
}

template <class T> PLEMU_UNSEEN void mma_m16n8k16(void **lanes, unsigned present) {
  if (present != 0xffffffffu) plemu_die("mma: lanes are missing (0x%08x present)", present);
  float A[16][16], B[16][8];
  for (int l = 0; l < 32; l++) {
    const Fragments &f = *static_cast<Fragments *>(lanes[l]);
    const int g = l / 4, t = l % 4;
    for (int h = 0; h < 2; h++) {
      for (int i = 0; i < 4; i++)
        A[g + 8 * (i % 2)][2 * t + h + 8 * (i / 2)] = half_of(f.a[i], h, T());
      for (int i = 0; i < 2; i++) B[2 * t + h + 8 * i][g] = half_of(f.b[i], h, T());
    }
  }
  for (int l = 0; l < 32; l++) {
    const Fragments &f = *static_cast<Fragments *>(lanes[l]);
    const int g = l / 4, t = l % 4;
    for (int i = 0; i < 4; i++)
      for (int k = 0; k < 16; k++)
        f.c[i] += A[g + 8 * (i / 2)][k] * B[k][2 * t + i % 2];
  }
}

}  // namespace plemu

static inline void pln_mma_bf16(float c[4], const unsigned a[4], const unsigned b[2],
                                PLEMU_PLACE) {
  plemu::Fragments f{c, a, b};
  plemu_warp_collect(0xffffffffu, &f, plemu::mma_m16n8k16<__nv_bfloat16>, "mma", file_, line_);
}
static inline void pln_mma_f16(float c[4], const unsigned a[4], const unsigned b[2],
                               PLEMU_PLACE) {
  plemu::Fragments f{c, a, b};
  plemu_warp_collect(0xffffffffu, &f, plemu::mma_m16n8k16<__half>, "mma", file_, line_);
}

#endif
#endif
