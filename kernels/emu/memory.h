/* SPDX-License-Identifier: MIT
 *
 * What the rest of the emulator asks about memory.
 */
#ifndef HS_KERNELS_EMU_MEMORY_H
#define HS_KERNELS_EMU_MEMORY_H

#include <stddef.h>
#include <string>
#include <vector>

namespace hs_emu
{
namespace emulator
{

enum class MemoryKind { PAGEABLE, PINNED, DEVICE };
/* Of what a pointer points to; anything that CUDA did not allocate is pageable host memory. */
MemoryKind memory_kind(const void *pointer);
/* Whether `bytes` at `pointer` lie within one allocation. */
bool memory_holds(const void *pointer, size_t bytes);
/* The same for the running kernel, remembered. */
bool device_range(const void *pointer, size_t bytes);

/* Kernels and copies may touch device memory between these two; they nest. */
void memory_open();
void memory_close();
/* Between these two nothing may, while a kernel's first blocks begin. */
void memory_hide();
void memory_show();
/* All that is allocated, on the device and pinned. */
struct MemoryCopy {
    struct Range {
        char *data;
        std::vector<char> bytes;
    };
    std::vector<Range> ranges;
};
MemoryCopy memory_copy();
void memory_restore(const MemoryCopy &copy);
/* Whether memory is another than in the copy; the first difference in words. */
bool memory_differs(const MemoryCopy &copy, std::string *difference);
/* Reports a write just outside an allocation; `after` names the suspect. */
void memory_check(const char *after);

} // namespace emulator
} // namespace hs_emu

#endif
