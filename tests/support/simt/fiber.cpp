// SPDX-License-Identifier: Apache-2.0
// Switching stacks: a few instructions where we know the machine, ucontext elsewhere.
#include "tests/support/simt/fiber.h"

#include <sys/mman.h>
#include <ucontext.h>

#include <cstdint>
#include <new>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#define BATON_FIBER_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#define BATON_FIBER_ASAN 1
#endif
#endif

#if defined(__x86_64__)
// Saves the callee-saved registers of the System V ABI on the stack, stores the stack pointer in *from, continues at
// the one in `to`.
extern "C" void baton_switch_stack(void** from, void* to);
asm(R"(
.text
.globl baton_switch_stack
.type baton_switch_stack, @function
baton_switch_stack:
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
.size baton_switch_stack, .-baton_switch_stack
)");
#endif

namespace baton::simt {

Fiber::Fiber() {
  stack_ = mmap(nullptr, kStackBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (stack_ == MAP_FAILED) throw std::bad_alloc();
#if !defined(__x86_64__)
  own_ = new ucontext_t;
  host_ = new ucontext_t;
#endif
}

Fiber::~Fiber() {
#if !defined(__x86_64__)
  delete static_cast<ucontext_t*>(own_);
  delete static_cast<ucontext_t*>(host_);
#endif
  munmap(stack_, kStackBytes);
}

void Fiber::prepare(void (*entry)()) {
#ifdef BATON_FIBER_ASAN
  __asan_unpoison_memory_region(stack_, kStackBytes);
#endif
#if defined(__x86_64__)
  auto* top = reinterpret_cast<std::uintptr_t*>(static_cast<char*>(stack_) + kStackBytes);
  *--top = 0;  // a return address that nobody returns to: at entry the stack pointer is 8 past a multiple of 16
  *--top = reinterpret_cast<std::uintptr_t>(entry);  // where the first switch returns to
  for (int i = 0; i < 6; ++i) *--top = 0;            // the saved registers
  own_ = top;
#else
  auto* context = static_cast<ucontext_t*>(own_);
  getcontext(context);
  context->uc_stack.ss_sp = stack_;
  context->uc_stack.ss_size = kStackBytes;
  context->uc_link = nullptr;
  makecontext(context, entry, 0);
#endif
}

void Fiber::resume() {
#ifdef BATON_FIBER_ASAN
  void* fake = nullptr;
  __sanitizer_start_switch_fiber(&fake, stack_, kStackBytes);
#endif
#if defined(__x86_64__)
  baton_switch_stack(&host_, own_);
#else
  swapcontext(static_cast<ucontext_t*>(host_), static_cast<ucontext_t*>(own_));
#endif
#ifdef BATON_FIBER_ASAN
  __sanitizer_finish_switch_fiber(fake, nullptr, nullptr);
#endif
}

void Fiber::yield() {
#ifdef BATON_FIBER_ASAN
  void* fake = nullptr;
  __sanitizer_start_switch_fiber(&fake, host_stack_, host_bytes_);
#endif
#if defined(__x86_64__)
  baton_switch_stack(&own_, host_);
#else
  swapcontext(static_cast<ucontext_t*>(own_), static_cast<ucontext_t*>(host_));
#endif
#ifdef BATON_FIBER_ASAN
  __sanitizer_finish_switch_fiber(fake, const_cast<const void**>(&host_stack_), &host_bytes_);
#endif
}

void Fiber::entered() {
#ifdef BATON_FIBER_ASAN
  __sanitizer_finish_switch_fiber(nullptr, const_cast<const void**>(&host_stack_), &host_bytes_);
#endif
}

}  // namespace baton::simt
