/* SPDX-License-Identifier: MIT
 *
 * Reports of errors of the emulated program.
 */
#ifndef HS_KERNELS_EMU_FAULT_H
#define HS_KERNELS_EMU_FAULT_H

#include <stddef.h>

namespace hs_emu
{
namespace emulator
{

/* Prints the running kernel, block and thread (if any), the message and a backtrace to stderr, and aborts. */
[[noreturn]] void fault(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* The host has no memory left for the emulator: an error message, exit code 1. */
[[noreturn]] void out_of_memory();

/* No thread of the block can continue: prints where each warp's lanes wait, and aborts. */
[[noreturn]] void fault_deadlock();

/* Turn accesses to guard pages into such reports (SIGSEGV, SIGBUS); once a process, and a stack a thread. */
void fault_watch_process();
void fault_watch_thread();

/* What an address is near to, in words: "4 bytes past the end of ..."; false: nothing of the emulator's. */
bool memory_describe(const void *address, char *text, size_t size);
bool shared_describe(const void *address, char *text, size_t size);
bool fiber_describe(const void *address, char *text, size_t size);

} // namespace emulator
} // namespace hs_emu

#endif
