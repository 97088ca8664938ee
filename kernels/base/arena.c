/* SPDX-License-Identifier: MIT
 *
 * Reserve, commit, use: see arena.h for the picture.
 */
#include "kernels/base/arena.h"

#include <assert.h>

#include "kernels/base/size.h"

void hs_arena_init(HsArena *arena, HsDevice *device, HsMemoryCategory category)
{
    *arena = (HsArena){ .category = category, .device = device };
}

void hs_arena_init_at(HsArena *arena, HsDevice *device, HsMemoryCategory category, bool on_host)
{
    hs_arena_init(arena, device, on_host ? HS_MEMORY_OFFLOADED : category);
    arena->on_host = on_host;
}

void hs_arena_init_in(HsArena *arena, HsDevice *device, const char *folder)
{
    hs_arena_init(arena, device, HS_MEMORY_ON_DISK);
    arena->folder = folder;
}

size_t hs_arena_reserve(HsArena *arena, size_t bytes)
{
    assert(!arena->base && "reservations come before the commit");
    size_t offset = arena->used;
    /* Every slot starts and ends aligned, so that `used` is always the next slot's offset. */
    arena->used = hs_size_add(offset, hs_size_align(bytes, HS_ARENA_ALIGNMENT));
    return offset;
}

static void give_back(const HsArena *arena, size_t bytes, void *base)
{
    if (arena->folder)
        hs_memory_file_release(arena->device, arena->category, bytes, base);
    else if (arena->on_host)
        hs_memory_host_release(arena->device, arena->category, bytes, base);
    else
        hs_memory_release(arena->device, arena->category, bytes, base);
}

HsStatus hs_arena_commit(HsArena *arena)
{
    assert(!arena->base && "an arena is committed once");
    if (arena->used == 0)
        return HS_OK;
    HsDevice *device = arena->device;
    void *base = NULL;
    HS_TRY(arena->folder    ? hs_memory_file_alloc(device, arena->category, arena->folder, arena->used, &base)
           : arena->on_host ? hs_memory_host_alloc(device, arena->category, arena->used, &base)
                            : hs_memory_alloc(device, arena->category, arena->used, &base));
    HsStatus status = HS_OK;
    /* Zeroing here also makes the operating system give the pages now, not in the middle of the first step.  A file is
     * zeros, and not to be brought into memory. */
    if (!arena->folder)
        status = device->fill_zero(device, NULL, base, arena->used);
    if (status == HS_OK) /* it may be used on another stream */
        status = device->stream_sync(device, NULL);
    if (status != HS_OK) {
        give_back(arena, arena->used, base);
        return hs_error_prefix(status, "%s", hs_memory_row(arena->category)->name);
    }
    arena->base = base;
    arena->capacity = arena->used;
    return HS_OK;
}

void hs_arena_deinit(HsArena *arena)
{
    give_back(arena, arena->capacity, arena->base);
    *arena = (HsArena){ .category = arena->category, .device = arena->device };
}
