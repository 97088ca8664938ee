/* SPDX-License-Identifier: MIT
 *
 * One allocation per category of memory, cut up by offsets that the plan computed beforehand.
 *
 *     base                                          base + capacity
 *     |  slot A (64-byte aligned)  | slot B | ... free ... |
 *
 * Sizes are reserved first (arena has no memory), then hs_arena_commit allocates once, then offsets become
 * pointers.  Nothing is freed singly.
 */
#ifndef HS_KERNELS_BASE_ARENA_H
#define HS_KERNELS_BASE_ARENA_H

#include <stdbool.h>

#include "kernels/base/device.h"

enum { HS_ARENA_ALIGNMENT = 64 };

typedef struct HsArena {
    HsMemoryCategory category;
    HsDevice *device;
    unsigned char *base; /* NULL until committed */
    size_t used;         /* bytes reserved */
    size_t capacity;     /* bytes committed */
    bool on_host;        /* in pinned memory of the host; set before the commit */
    const char *folder;  /* in a file there; NULL: in memory.  Borrowed */
} HsArena;

void hs_arena_init(HsArena *arena, HsDevice *device, HsMemoryCategory category);
/* on_host: in pinned memory of the host, which the device may use, and accounted as offloaded. */
void hs_arena_init_at(HsArena *arena, HsDevice *device, HsMemoryCategory category, bool on_host);
/* In a file of `folder`, mapped: for copies and for the host, and accounted as on disk. */
void hs_arena_init_in(HsArena *arena, HsDevice *device, const char *folder);
/* Reserve aligned bytes; returns the offset. */
size_t hs_arena_reserve(HsArena *arena, size_t bytes);
/* Allocate everything reserved so far, zero-filled; errors: HS_ENOMEM with category and bytes, HS_EIO of a folder. */
HsStatus hs_arena_commit(HsArena *arena);
static inline void *hs_arena_at(const HsArena *arena, size_t offset)
{
    return arena->base ? arena->base + offset : NULL;
}
void hs_arena_deinit(HsArena *arena);

#endif
