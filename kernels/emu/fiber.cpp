/* SPDX-License-Identifier: MIT
 *
 * Fibers on x86-64: the registers that a function must preserve (System V ABI, section 3.2.1) are pushed on the old
 * stack and popped from the new one.  Elsewhere: ucontext, several times slower because it also saves signal masks.
 */
#include "kernels/emu/fiber.h"

#include <mutex>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>
#include <vector>

#include "kernels/emu/fault.h"

#if HS_EMU_OWN_SWITCH
/* Push, exchange stack pointers, pop.  The return address is on the stack that was switched to. */
__asm__(".text\n"
        ".p2align 4\n"
        ".globl hs_emu_switch\n"
        ".hidden hs_emu_switch\n"
        ".type hs_emu_switch, @function\n"
        "hs_emu_switch:\n"
        "    pushq %rbp\n"
        "    pushq %rbx\n"
        "    pushq %r12\n"
        "    pushq %r13\n"
        "    pushq %r14\n"
        "    pushq %r15\n"
        "    movq %rsp, (%rdi)\n"
        "    movq %rsi, %rsp\n"
        "    popq %r15\n"
        "    popq %r14\n"
        "    popq %r13\n"
        "    popq %r12\n"
        "    popq %rbx\n"
        "    popq %rbp\n"
        "    ret\n"
        ".size hs_emu_switch, .-hs_emu_switch\n");
#endif

namespace hs_emu
{
namespace emulator
{

#ifdef HS_EMU_ASAN
static constexpr size_t STACK_BYTES = 512 * 1024; /* red zones around every local array */
#else
static constexpr size_t STACK_BYTES = 128 * 1024;
#endif

/* Guard pages of all fibers, for reports. */
static std::mutex guards_lock;
static std::vector<const char *> guards;

bool fiber_describe(const void *address, char *text, size_t size)
{
    if (!guards_lock.try_lock())
        return false;
    bool found = false;
    for (const char *guard : guards)
        found = found || (address >= guard && address < guard + sysconf(_SC_PAGESIZE));
    guards_lock.unlock();
    if (found)
        snprintf(text, size, "a thread's stack (%zu bytes) has overflowed", STACK_BYTES);
    return found;
}

Fiber *fiber_create(void (*entry)(), int number)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    char *memory = static_cast<char *>(
        mmap(nullptr, STACK_BYTES + page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
    if (memory == MAP_FAILED || mprotect(memory, page, PROT_NONE) != 0)
        out_of_memory();
    {
        std::lock_guard<std::mutex> hold(guards_lock);
        guards.push_back(memory);
    }
    Fiber *fiber = new Fiber();
    fiber->stack = memory + page;
    fiber->stack_bytes = STACK_BYTES;
    /* Stacks start at different cache lines of a page: else 32 lanes' hot frames would share one cache set. */
    char *top = memory + page + STACK_BYTES - (size_t)(number % 16) * 256;
#if HS_EMU_OWN_SWITCH
    /* At the entry of a function the stack pointer is 8 above a multiple of 16; a null return address and frame
     * pointer end backtraces. */
    void **frame = reinterpret_cast<void **>(top - 16);
    *--frame = nullptr;
    *--frame = reinterpret_cast<void *>(entry);
    for (int saved_register = 0; saved_register < 6; saved_register++)
        *--frame = nullptr;
    fiber->stack_pointer = frame;
#else
    getcontext(&fiber->context);
    fiber->context.uc_stack.ss_sp = fiber->stack;
    fiber->context.uc_stack.ss_size = (size_t)(top - static_cast<char *>(fiber->stack));
    fiber->context.uc_link = nullptr;
    makecontext(&fiber->context, entry, 0);
#endif
    return fiber;
}

Fiber *fiber_of_host_thread()
{
    Fiber *fiber = new Fiber();
    pthread_attr_t attributes;
    if (pthread_getattr_np(pthread_self(), &attributes) == 0) {
        pthread_attr_getstack(&attributes, &fiber->stack, &fiber->stack_bytes);
        pthread_attr_destroy(&attributes);
    }
    return fiber;
}

void fiber_started()
{
#ifdef HS_EMU_ASAN
    __sanitizer_finish_switch_fiber(nullptr, nullptr, nullptr);
#endif
}

} // namespace emulator
} // namespace hs_emu
