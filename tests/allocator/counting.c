/* SPDX-License-Identifier: MIT
 *
 * An allocator for tests/cli/test_allocator.sh: malloc's memory, filled with what no run may read, and a count of each
 * use, which is written at the process's end.  It ends the process when a block comes back otherwise than it went.
 *
 *   COUNTING_REPORT=FILE      "use peak current" lines in bytes, then "total" and the calls
 *   COUNTING_FAIL_AT=N        the N-th call has no memory
 *   COUNTING_BREAK_AT=N       the N-th call fails in another way
 *   COUNTING_MISALIGN_AT=N    the N-th call gives an address that is no multiple
 *   COUNTING_NOT=DEVICE       there is no table for this device
 *   COUNTING_WHOLE=1          device memory for the emulator, too, which may not be
 * -DVERSION=N: the table of another version.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/base/memory_hooks.h"

#ifndef VERSION
#define VERSION HS_MEMORY_HOOKS_VERSION
#endif

enum { USES = 32, BLOCKS = 4096, SKEW = 8 };

typedef struct Use {
    const char *name;
    size_t current, peak;
} Use;

typedef struct Block {
    void *start, *pointer; /* of the C library, and as handed out */
    Use *use;
    size_t bytes;
} Block;

static Use uses[USES];
static Block blocks[BLOCKS];
static long calls;

static void give_up(const char *why)
{
    fprintf(stderr, "counting: %s\n", why);
    abort();
}

static Use *find_use(const char *name)
{
    for (int i = 0; i < USES; i++) {
        if (!uses[i].name)
            uses[i].name = name;
        if (strcmp(uses[i].name, name) == 0)
            return &uses[i];
    }
    give_up("more uses than there are categories");
    return NULL;
}

static int is_now(const char *variable)
{
    const char *const at = getenv(variable);
    return at && atol(at) == calls;
}

static int take(void *user, const HsMemoryRequest *request, void **pointer, char *why, size_t why_bytes)
{
    (void)user;
    const size_t rounded = (request->bytes + SKEW + request->alignment - 1) / request->alignment * request->alignment;
    Block *block = blocks;
    calls++;
    if (is_now("COUNTING_FAIL_AT")) {
        snprintf(why, why_bytes, "call %ld has to fail\nand a second line", calls);
        return HS_MEMORY_EXHAUSTED;
    }
    if (is_now("COUNTING_BREAK_AT"))
        return HS_MEMORY_FAILED;
    while (block < blocks + BLOCKS && block->start)
        block++;
    if (block == blocks + BLOCKS)
        give_up("more blocks than a run has");
    block->start = aligned_alloc(request->alignment, rounded);
    if (!block->start)
        return HS_MEMORY_EXHAUSTED;
    memset(block->start, 0xff, rounded);
    block->pointer = (char *)block->start + (is_now("COUNTING_MISALIGN_AT") ? SKEW : 0);
    block->bytes = request->bytes;
    block->use = find_use(request->use);
    block->use->current += request->bytes;
    if (block->use->current > block->use->peak)
        block->use->peak = block->use->current;
    *pointer = block->pointer;
    return HS_MEMORY_SERVED;
}

static void give_back(void *user, const HsMemoryRequest *request, void *pointer)
{
    (void)user;
    Block *block = blocks;
    while (block < blocks + BLOCKS && (!block->start || block->pointer != pointer))
        block++;
    if (block == blocks + BLOCKS)
        give_up("a block that is not here comes back");
    if (block->bytes != request->bytes || strcmp(block->use->name, request->use) != 0)
        give_up("a block comes back as another");
    block->use->current -= block->bytes;
    free(block->start);
    *block = (Block){ 0 };
}

__attribute__((destructor)) static void report(void)
{
    const char *const path = getenv("COUNTING_REPORT");
    FILE *const file = path ? fopen(path, "w") : NULL;
    size_t peak = 0, current = 0;
    if (!file)
        return;
    for (int i = 0; i < USES && uses[i].name; i++) {
        fprintf(file, "%s %zu %zu\n", uses[i].name, uses[i].peak, uses[i].current);
        peak += uses[i].peak;
        current += uses[i].current;
    }
    fprintf(file, "total %zu %zu\ncalls %ld\n", peak, current, calls);
    fclose(file);
}

const HsMemoryHooks *hs_memory_hooks(const char *device)
{
    static const HsMemoryHooks whole = { .version = VERSION,
                                         .name = "counting",
                                         .alloc = take,
                                         .release = give_back,
                                         .pinned = take,
                                         .pinned_release = give_back };
    static const HsMemoryHooks pinned = {
        .version = VERSION, .name = "counting", .pinned = take, .pinned_release = give_back
    };
    const char *const without = getenv("COUNTING_NOT");
    if (without && strcmp(without, device) == 0)
        return NULL;
    return strncmp(device, "emu", 3) == 0 && !getenv("COUNTING_WHOLE") ? &pinned : &whole;
}
