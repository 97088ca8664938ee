/* SPDX-License-Identifier: MIT
 *
 * Red zones: bytes next to an array that hold 0xff and must not be written.  With AddressSanitizer they are also
 * poisoned, which finds reads too, and at once.
 */
#ifndef HS_KERNELS_EMU_REDZONE_H
#define HS_KERNELS_EMU_REDZONE_H

#include <stdint.h>
#include <string.h>

#include "kernels/emu/fiber.h"

#ifdef HS_EMU_ASAN
#include <sanitizer/asan_interface.h>
#endif

namespace hs_emu
{
namespace emulator
{

static constexpr size_t PAGE_BYTES = 4096;

static inline void redzone_forbid(const char *from, const char *to)
{
#ifdef HS_EMU_ASAN
    __asan_poison_memory_region(from, (size_t)(to - from));
#else
    (void)from, (void)to;
#endif
}

static inline void redzone_allow(const char *from, const char *to)
{
#ifdef HS_EMU_ASAN
    __asan_unpoison_memory_region(from, (size_t)(to - from));
#else
    (void)from, (void)to;
#endif
}

/* Whether a red zone is as it was.  Not checked by AddressSanitizer, which would refuse to let it look.  Eight bytes at
 * a time where `from` allows it: this runs after every kernel, for every allocation. */
__attribute__((no_sanitize("address"))) static inline bool redzone_intact(const char *from, const char *to)
{
    uint64_t words = UINT64_MAX;
    unsigned char bytes = 0xff;
    if ((uintptr_t)from % 8 == 0)
        for (; to - from >= 8; from += 8)
            words &= *reinterpret_cast<const uint64_t *>(from);
    for (; from < to; from++)
        bytes &= (unsigned char)*from;
    return words == UINT64_MAX && bytes == 0xff;
}

} // namespace emulator
} // namespace hs_emu

#endif
