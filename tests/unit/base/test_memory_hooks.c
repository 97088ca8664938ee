/* SPDX-License-Identifier: MIT
 *
 * Memory by an external allocator, and the cap of what a device gives.
 */
#include <criterion/criterion.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/base/arena.h"

/* What the allocator under test does with its next call, and what it saw. */
typedef struct Allocator {
    int result;
    size_t skew;         /* bytes past an aligned address */
    bool nothing;        /* says served, and gives NULL */
    const char *reason;  /* NULL: none */
    int taken, returned; /* calls */
    HsMemoryRequest request;
} Allocator;

static HsDevice device;
static Allocator allocator;

static int take(void *user, const HsMemoryRequest *request, void **pointer, char *why, size_t why_bytes)
{
    Allocator *const own = user;
    own->taken++;
    own->request = *request;
    if (own->reason)
        snprintf(why, why_bytes, "%s", own->reason);
    if (own->result != HS_MEMORY_SERVED || own->nothing)
        return own->result;
    unsigned char *const block = aligned_alloc(request->alignment, 32 * request->alignment + 8192);
    *pointer = block + own->skew;
    return HS_MEMORY_SERVED;
}

static void give_back(void *user, const HsMemoryRequest *request, void *pointer)
{
    Allocator *const own = user;
    own->returned++;
    own->request = *request;
    free((unsigned char *)pointer - own->skew);
}

static const HsMemoryHooks both = { .version = HS_MEMORY_HOOKS_VERSION,
                                    .name = "theirs",
                                    .user = &allocator,
                                    .alloc = take,
                                    .release = give_back,
                                    .pinned = take,
                                    .pinned_release = give_back };

static void set_up(void)
{
    cr_assert_eq(hs_device_host_init(&device), HS_OK);
    device.hooks = &both;
    allocator = (Allocator){ 0 };
}

TestSuite(memory_hooks, .init = set_up);

Test(memory_hooks, serve_what_the_account_names)
{
    void *first, *second;
    cr_assert_eq(hs_memory_alloc(&device, HS_MEMORY_MOMENTS, 1000, &first), HS_OK);
    cr_expect_str_eq(allocator.request.device, "host");
    cr_expect_str_eq(allocator.request.use, "optimizer moments");
    cr_expect_eq(allocator.request.bytes, 1000);
    cr_expect_eq(allocator.request.alignment, 256);
    cr_assert_eq(hs_memory_alloc(&device, HS_MEMORY_WEIGHTS, 0, &second), HS_OK);
    cr_expect_eq(allocator.request.bytes, 1, "never asked for nothing");
    cr_expect_eq(device.current_bytes, 1000);
    cr_expect_eq(device.account.current[HS_MEMORY_MOMENTS], 1000);
    hs_memory_release(&device, HS_MEMORY_WEIGHTS, 0, second);
    hs_memory_release(&device, HS_MEMORY_MOMENTS, 1000, first);
    cr_expect_str_eq(allocator.request.use, "optimizer moments");
    cr_expect_eq(allocator.request.bytes, 1000);
    hs_memory_release(&device, HS_MEMORY_MOMENTS, 1000, NULL);
    cr_expect(allocator.taken == 2 && allocator.returned == 2);
    cr_expect(device.current_bytes == 0 && device.peak_bytes == 1000);
    cr_expect(device.account.current[HS_MEMORY_MOMENTS] == 0 && device.account.peak[HS_MEMORY_MOMENTS] == 1000);
}

Test(memory_hooks, serve_pinned_memory_and_arenas)
{
    void *pointer;
    cr_assert_eq(hs_memory_host_alloc(&device, HS_MEMORY_OFFLOADED, 640, &pointer), HS_OK);
    cr_expect_eq(allocator.request.alignment, 64);
    cr_expect_eq(device.current_bytes, 0, "as with the device's own");
    cr_expect_eq(device.account.current[HS_MEMORY_OFFLOADED], 640);
    hs_memory_host_release(&device, HS_MEMORY_OFFLOADED, 640, pointer);
    for (int on_host = 0; on_host < 2; on_host++) {
        HsArena arena;
        hs_arena_init_at(&arena, &device, HS_MEMORY_GRADIENTS, on_host);
        hs_arena_reserve(&arena, 100);
        cr_assert_eq(hs_arena_commit(&arena), HS_OK);
        const unsigned char *const bytes = hs_arena_at(&arena, 0);
        for (int i = 0; i < 128; i++)
            cr_expect_eq(bytes[i], 0, "zero-filled, whatever gave it");
        hs_arena_deinit(&arena);
    }
    cr_expect(allocator.taken == 3 && allocator.returned == 3);
}

/* A pair that is missing is the device's own; the other stays. */
Test(memory_hooks, leave_to_the_device_what_they_lack)
{
    const HsMemoryHooks no_pinned = { .name = "theirs", .user = &allocator, .alloc = take, .release = give_back };
    const HsMemoryHooks pinned = { .name = "theirs", .user = &allocator, .pinned = take, .pinned_release = give_back };
    const HsMemoryHooks *const tables[] = { &no_pinned, &pinned };
    for (int i = 0; i < 2; i++) {
        void *on_device, *on_host;
        device.hooks = tables[i];
        cr_assert_eq(hs_memory_alloc(&device, HS_MEMORY_WEIGHTS, 100, &on_device), HS_OK);
        cr_expect_eq(device.current_bytes, 100);
        cr_assert_eq(hs_memory_host_alloc(&device, HS_MEMORY_OFFLOADED, 100, &on_host), HS_OK);
        cr_expect_eq(allocator.taken, i + 1);
        hs_memory_host_release(&device, HS_MEMORY_OFFLOADED, 100, on_host);
        hs_memory_release(&device, HS_MEMORY_WEIGHTS, 100, on_device);
        cr_expect_eq(allocator.returned, i + 1);
        cr_expect_eq(device.current_bytes, 0);
    }
}

Test(memory_hooks, what_they_do_wrong_is_reported_by_name)
{
    const struct {
        Allocator behaviour;
        HsStatus status;
        const char *says;
    } cases[] = {
        { { .result = HS_MEMORY_EXHAUSTED, .reason = "the pool is empty\nsecond line" },
          HS_ENOMEM,
          "theirs has none: the pool is empty" },
        { { .result = HS_MEMORY_EXHAUSTED }, HS_ENOMEM, "theirs has none: it gives no reason" },
        { { .nothing = true }, HS_ENOMEM, "theirs has none" },
        { { .result = HS_MEMORY_FAILED, .reason = "driver lost" }, HS_EDEVICE, "theirs failed: driver lost" },
        { { .result = -7 }, HS_EDEVICE, "theirs failed" },
        { { .skew = 32 }, HS_EDEVICE, "is not a multiple of " },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (int on_host = 0; on_host < 2; on_host++) {
            void *pointer = &device;
            allocator = cases[i].behaviour;
            cr_expect_eq(on_host ? hs_memory_host_alloc(&device, HS_MEMORY_OFFLOADED, 777, &pointer)
                                 : hs_memory_alloc(&device, HS_MEMORY_GRADIENTS, 777, &pointer),
                         cases[i].status, "case %zu", i);
            cr_expect_null(pointer);
            cr_expect_not_null(strstr(hs_error_message(), cases[i].says), "%s", hs_error_message());
            cr_expect_not_null(
                strstr(hs_error_message(), on_host ? "offloaded states: 777 bytes" : "gradients: 777 bytes"), "%s",
                hs_error_message());
            cr_expect_null(strchr(hs_error_message(), '\n'));
            cr_expect_eq(allocator.returned, cases[i].behaviour.skew > 0, "an address that is of no use goes back");
            cr_expect_eq(hs_memory_sum(device.account.peak), 0);
            cr_expect_eq(device.peak_bytes, 0);
        }
}

Test(memory_hooks, a_counting_device_has_neither_hooks_nor_cap)
{
    HsDevice counting;
    void *pointer;
    device.cap_bytes = 10;
    hs_device_counting_init(&counting, &device);
    cr_assert_eq(hs_memory_alloc(&counting, HS_MEMORY_WEIGHTS, 1000, &pointer), HS_OK);
    cr_assert_eq(hs_memory_host_alloc(&counting, HS_MEMORY_OFFLOADED, 1000, &pointer), HS_OK);
    cr_expect_eq(allocator.taken, 0);
    cr_expect_eq(device.hooks, &both);
}

Test(memory_hooks, the_cap_holds_with_hooks_and_without)
{
    for (int hooked = 0; hooked < 2; hooked++) {
        void *first, *second, *refused = NULL;
        device.hooks = hooked ? &both : NULL;
        device.cap_bytes = 1000;
        cr_assert_eq(hs_memory_alloc(&device, HS_MEMORY_WEIGHTS, 600, &first), HS_OK);
        cr_assert_eq(hs_memory_alloc(&device, HS_MEMORY_MASTERS, 401, &refused), HS_ENOMEM);
        cr_expect_not_null(
            strstr(hs_error_message(),
                   "master weights: 401 bytes on host: 600 are in use of the 1000 that memory.limit allows"),
            "%s", hs_error_message());
        cr_expect_null(refused);
        cr_assert_eq(hs_memory_alloc(&device, HS_MEMORY_MASTERS, SIZE_MAX, &refused), HS_ENOMEM);
        cr_assert_eq(hs_memory_alloc(&device, HS_MEMORY_MASTERS, 400, &second), HS_OK, "up to the cap itself");
        cr_assert_eq(hs_memory_alloc(&device, HS_MEMORY_MASTERS, 1, &refused), HS_ENOMEM);
        hs_memory_release(&device, HS_MEMORY_WEIGHTS, 600, first);
        cr_assert_eq(hs_memory_alloc(&device, HS_MEMORY_WEIGHTS, 600, &first), HS_OK,
                     "what is given back is there again");
        hs_memory_release(&device, HS_MEMORY_WEIGHTS, 600, first);
        hs_memory_release(&device, HS_MEMORY_MASTERS, 400, second);
    }
}

/* Where the device has its own memory, the host's is another; else it is the same.  Buffers between processes grow
 * with what is exchanged, and are in no plan. */
Test(memory_hooks, the_cap_is_of_the_device_alone)
{
    void *on_host, *on_device, *exchanged, *refused;
    device.cap_bytes = 1000;
    cr_assert_eq(hs_memory_alloc(&device, HS_MEMORY_COMMUNICATION, 5000, &exchanged), HS_OK);
    cr_expect_eq(hs_memory_host_alloc(&device, HS_MEMORY_OFFLOADED, 1001, &refused), HS_ENOMEM);
    device.host_accessible = 0;
    cr_assert_eq(hs_memory_host_alloc(&device, HS_MEMORY_OFFLOADED, 2000, &on_host), HS_OK);
    hs_memory_add(&device.account, HS_MEMORY_REPLAY, 3000);
    cr_assert_eq(hs_memory_alloc(&device, HS_MEMORY_WEIGHTS, 1000, &on_device), HS_OK);
    cr_expect_eq(hs_memory_alloc(&device, HS_MEMORY_BATCHES, 1, &refused), HS_ENOMEM);
    hs_memory_release(&device, HS_MEMORY_WEIGHTS, 1000, on_device);
    hs_memory_release(&device, HS_MEMORY_COMMUNICATION, 5000, exchanged);
    hs_memory_host_release(&device, HS_MEMORY_OFFLOADED, 2000, on_host);
    cr_expect_eq(device.current_bytes, 0);
}
