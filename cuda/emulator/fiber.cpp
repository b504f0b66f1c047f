/* SPDX-License-Identifier: MIT
 * Context switch for x86-64 and aarch64, ucontext elsewhere (or with -DPLEMU_UCONTEXT), and the
 * stacks. A switch keeps what a function call keeps; floating-point modes are left alone. */
#include "fiber.h"

#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "sanitizer.h"

#if !defined(PLEMU_UCONTEXT)

extern "C" void plemu_context_switch(void **save, void *load);

#if defined(__x86_64__)

asm(R"(
.pushsection .text
.p2align 4
.globl plemu_context_switch
.hidden plemu_context_switch
.type plemu_context_switch,@function
plemu_context_switch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size plemu_context_switch,.-plemu_context_switch
.popsection
)");

/* Six registers and the entry point; the word above it is where a caller's return address would
 * be, which gives the entry its stack alignment. */
static void *first_frame(char *top, void (*entry)()) {
  void **sp = (void **)((uintptr_t)top & ~(uintptr_t)15);
  *--sp = nullptr;
  *--sp = (void *)entry;
  for (int i = 0; i < 6; i++) *--sp = nullptr;
  return sp;
}

#elif defined(__aarch64__)

asm(R"(
.pushsection .text
.p2align 4
.globl plemu_context_switch
.hidden plemu_context_switch
.type plemu_context_switch,%function
plemu_context_switch:
  sub sp, sp, #160
  stp x19, x20, [sp, #0]
  stp x21, x22, [sp, #16]
  stp x23, x24, [sp, #32]
  stp x25, x26, [sp, #48]
  stp x27, x28, [sp, #64]
  stp x29, x30, [sp, #80]
  stp d8, d9, [sp, #96]
  stp d10, d11, [sp, #112]
  stp d12, d13, [sp, #128]
  stp d14, d15, [sp, #144]
  mov x9, sp
  str x9, [x0]
  mov sp, x1
  ldp x19, x20, [sp, #0]
  ldp x21, x22, [sp, #16]
  ldp x23, x24, [sp, #32]
  ldp x25, x26, [sp, #48]
  ldp x27, x28, [sp, #64]
  ldp x29, x30, [sp, #80]
  ldp d8, d9, [sp, #96]
  ldp d10, d11, [sp, #112]
  ldp d12, d13, [sp, #128]
  ldp d14, d15, [sp, #144]
  add sp, sp, #160
  ret
.size plemu_context_switch,.-plemu_context_switch
.popsection
)");

static void *first_frame(char *top, void (*entry)()) {
  char *sp = (char *)((uintptr_t)top & ~(uintptr_t)15) - 160;
  memset(sp, 0, 160);
  memcpy(sp + 88, &entry, sizeof entry);  /* x30, to which the switch returns */
  return sp;
}

#else
#error "no context switch for this processor: build with -DPLEMU_UCONTEXT"
#endif
#endif

namespace plemu {

static size_t guard_bytes() { return (size_t)sysconf(_SC_PAGESIZE); }

Fiber *fiber_new(void (*entry)(), unsigned number) {
  Fiber *f = new Fiber;
  const size_t guard = guard_bytes();
  f->size = asan() ? 256 << 10 : 128 << 10;  /* AddressSanitizer's frames are larger */
  void *m = mmap(nullptr, f->size + guard, PROT_READ | PROT_WRITE,
                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (m == MAP_FAILED || mprotect(m, guard, PROT_NONE) != 0)
    plemu_die("no memory for the stack of CUDA thread %u", number);
  f->stack = (char *)m + guard;
  f->asan_bottom = f->stack;
  f->asan_size = f->size;
  if (tsan()) {
    f->tsan = __tsan_create_fiber(0);
    __tsan_set_fiber_name(f->tsan, "CUDA thread");
  }
  char *top = f->stack + f->size - (number % 61) * 192;
#if defined(PLEMU_UCONTEXT)
  getcontext(&f->context);
  f->context.uc_stack.ss_sp = f->stack;
  f->context.uc_stack.ss_size = (size_t)(top - f->stack);
  f->context.uc_link = nullptr;
  makecontext(&f->context, entry, 0);
#else
  f->sp = first_frame(top, entry);
#endif
  return f;
}

void fiber_delete(Fiber *f) {
  if (f->tsan) __tsan_destroy_fiber(f->tsan);
  permit(f->stack, f->size);
  munmap(f->stack - guard_bytes(), f->size + guard_bytes());
  delete f;
}

void fiber_entered(Fiber *self) {
  Fiber *by = self->resumed_by;
  if (asan()) __sanitizer_finish_switch_fiber(self->asan_fake, &by->asan_bottom, &by->asan_size);
}

void fiber_switch(Fiber *from, Fiber *to) {
  to->resumed_by = from;
  if (asan()) __sanitizer_start_switch_fiber(&from->asan_fake, to->asan_bottom, to->asan_size);
  if (tsan()) __tsan_switch_to_fiber(to->tsan, kSwitchUnordered);
#if defined(PLEMU_UCONTEXT)
  swapcontext(&from->context, &to->context);
#else
  plemu_context_switch(&from->sp, to->sp);
#endif
  fiber_entered(from);
}

}  // namespace plemu
