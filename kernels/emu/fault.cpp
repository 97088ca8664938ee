/* SPDX-License-Identifier: MIT
 *
 * Errors of the emulated program: a report on stderr, then abort().  Wild accesses arrive here as signals, because
 * guard pages lie around every allocation, every shared array and every fiber's stack.
 *
 * That memory runs out is no error of the program: it is reported as such, and the process ends with exit code 1.  It
 * may happen on any fiber's stack in the middle of a kernel, where no exception can be thrown through what else is
 * under way.
 */
#include "kernels/emu/fault.h"

#include <atomic>
#include <execinfo.h>
#include <new>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "kernels/emu/worker.h"

extern "C" {
#include "kernels/base/log.h"
}

namespace hs_emu
{
namespace emulator
{

/* Two blocks may fail at once, on two host threads: the first reports, the other waits for the end. */
static void one_report_only()
{
    static std::atomic<bool> reporting(false);
    if (reporting.exchange(true))
        for (;;)
            pause();
    fflush(stdout);
}

static void print_block(bool with_thread)
{
    const Worker *self = worker;
    fprintf(stderr, "emulator: ");
    if (self == nullptr || self->launch == nullptr)
        return;
    fprintf(stderr, "kernel %s, block (%u, %u, %u)", self->launch->name, blockIdx.x, blockIdx.y, blockIdx.z);
    if (with_thread && self->running != self->host) {
        const uint3 thread = self->current->index;
        fprintf(stderr, ", thread (%u, %u, %u)", thread.x, thread.y, thread.z);
    }
    fprintf(stderr, ": ");
}

[[noreturn]] static void finish()
{
    void *frames[24];
    const int count = backtrace(frames, 24);
    fprintf(stderr, "emulator: called from (names: addr2line -Cfie PROGRAM ADDRESS)\n");
    fflush(stderr);
    backtrace_symbols_fd(frames, count, STDERR_FILENO);
    /* ASan and others may have handlers for abort's signal; none has more to say. */
    signal(SIGABRT, SIG_DFL);
    abort();
}

void fault(const char *format, ...)
{
    one_report_only();
    print_block(true);
    va_list arguments;
    va_start(arguments, format);
    vfprintf(stderr, format, arguments);
    va_end(arguments);
    fprintf(stderr, "\n");
    finish();
}

void out_of_memory()
{
    one_report_only();
    hs_error("emulator: no memory left to run kernel %s; what was saved is not touched",
             worker != nullptr && worker->launch != nullptr ? worker->launch->name : "or copy");
    _exit(EXIT_FAILURE);
}

/* For every `new`, and all that makes use of it: nothing else of this program does. */
static const std::new_handler former_handler = std::set_new_handler(out_of_memory);

/* One line for each group of a warp's lanes that wait at the same place. */
static void print_warp(const Warp &warp, int number)
{
    unsigned shown = 0;
    for (int lane = 0; lane < LANES; lane++) {
        const Thread &first = warp.threads[lane];
        if ((warp.exited | shown) >> lane & 1)
            continue;
        unsigned group = 0;
        for (int other = lane; other < LANES; other++) {
            const Thread &thread = warp.threads[other];
            if ((warp.exited >> other & 1) == 0 && thread.waits_for == first.waits_for &&
                thread.site.line == first.site.line)
                group |= 1u << other;
        }
        shown |= group;
        fprintf(stderr, "  warp %d: lanes %08x wait at %s (%s:%d)\n", number, group,
                first.waits_for != nullptr ? first.waits_for : "nothing", first.site.file, first.site.line);
    }
    if (warp.exited != 0)
        fprintf(stderr, "  warp %d: lanes %08x have returned\n", number, warp.exited);
}

void fault_deadlock()
{
    one_report_only();
    print_block(false);
    fprintf(stderr, "deadlock: no thread can continue\n");
    for (int w = 0; w < worker->warp_count; w++)
        print_warp(worker->warps[w], w);
    finish();
}

static struct sigaction former_segv, former_bus;

static void on_signal(int number, siginfo_t *information, void *)
{
    char text[512];
    const void *address = information->si_addr;
    if (memory_describe(address, text, sizeof text) || shared_describe(address, text, sizeof text) ||
        fiber_describe(address, text, sizeof text))
        fault("access to %p: %s", address, text);
    if (worker != nullptr && worker->launch != nullptr && worker->running != worker->host) {
        /* x86 reports no address for an impossible one, nor for a misaligned vector. */
        if (address == nullptr)
            fault("access to a null or wild pointer, or a misaligned 16-byte access");
        fault("access to %p, which is no memory of the device", address);
    }
    /* Not the emulator's: the former handler (or the default) gets it when the access is repeated. */
    sigaction(number, number == SIGSEGV ? &former_segv : &former_bus, nullptr);
}

void fault_watch_process()
{
    static std::atomic<bool> watching(false);
    if (watching.exchange(true))
        return;
    struct sigaction action = {};
    action.sa_sigaction = on_signal;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK;
    sigaction(SIGSEGV, &action, &former_segv);
    sigaction(SIGBUS, &action, &former_bus);
}

/* The handler needs its own stack: the fault may be the overflow of a fiber's.  Sanitizers bring one. */
void fault_watch_thread()
{
    static constexpr size_t BYTES = 64 * 1024;
    stack_t present = {};
    if (sigaltstack(nullptr, &present) == 0 && (present.ss_flags & SS_DISABLE) == 0)
        return;
    stack_t own = {};
    own.ss_sp = malloc(BYTES);
    own.ss_size = BYTES;
    if (own.ss_sp != nullptr)
        sigaltstack(&own, nullptr);
}

} // namespace emulator
} // namespace hs_emu
