/* SPDX-License-Identifier: MIT
 *
 * Fibers: stacks that are switched by hand.  Switching costs a few nanoseconds, which is what makes a warp of 32
 * emulated threads that meet at every shuffle bearable.
 */
#ifndef HS_KERNELS_EMU_FIBER_H
#define HS_KERNELS_EMU_FIBER_H

#include <stddef.h>
/* Elsewhere, and to test what runs elsewhere (-DHS_EMU_UCONTEXT): ucontext. */
#if defined(__x86_64__) && !defined(HS_EMU_UCONTEXT)
#define HS_EMU_OWN_SWITCH 1
#else
#define HS_EMU_OWN_SWITCH 0
#include <ucontext.h>
#endif

#if defined(__SANITIZE_ADDRESS__)
#define HS_EMU_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define HS_EMU_ASAN 1
#endif
#endif
#ifdef HS_EMU_ASAN
#include <sanitizer/common_interface_defs.h>
#endif

/* Save the registers and the stack pointer at *save, and continue where the stack pointer `load` was saved. */
#if HS_EMU_OWN_SWITCH
extern "C" void hs_emu_switch(void **save, void *load);
#endif

namespace hs_emu
{
namespace emulator
{

struct Fiber {
#if HS_EMU_OWN_SWITCH
    void *stack_pointer; /* valid while the fiber is not running */
#else
    ucontext_t context;
#endif
    void *stack; /* lowest usable address; below it lies a guard page */
    size_t stack_bytes;
    void *sanitizer_state; /* AddressSanitizer's, of the suspended fiber */
};

/* A fiber that runs `entry` (which never returns) at the first switch to it.  `number` staggers stacks by cache sets.
 */
Fiber *fiber_create(void (*entry)(), int number);
/* The fiber of code that already runs: the host thread itself. */
Fiber *fiber_of_host_thread();

/* Inline: there is a switch for every lane of every shuffle. */
static inline void fiber_switch(Fiber *from, Fiber *to)
{
#ifdef HS_EMU_ASAN
    __sanitizer_start_switch_fiber(&from->sanitizer_state, to->stack, to->stack_bytes);
#endif
#if HS_EMU_OWN_SWITCH
    hs_emu_switch(&from->stack_pointer, to->stack_pointer);
#else
    swapcontext(&from->context, &to->context);
#endif
#ifdef HS_EMU_ASAN
    __sanitizer_finish_switch_fiber(from->sanitizer_state, nullptr, nullptr);
#endif
}

/* The first thing `entry` must call. */
void fiber_started();

} // namespace emulator
} // namespace hs_emu

#endif
