/* SPDX-License-Identifier: MIT
 *
 * The host device's memory and the arena cut from it.
 */
#include <criterion/criterion.h>
#include <stdint.h>
#include <string.h>

#include "kernels/base/arena.h"

static HsDevice device;

static void set_up(void)
{
    cr_assert_eq(hs_device_host_init(&device), HS_OK);
}

TestSuite(arena, .init = set_up);

Test(arena, reserve_commit_use)
{
    HsArena arena;
    hs_arena_init(&arena, &device, HS_MEMORY_ACTIVATIONS);
    size_t a = hs_arena_reserve(&arena, 1), b = hs_arena_reserve(&arena, 65), c = hs_arena_reserve(&arena, 0);
    size_t d = hs_arena_reserve(&arena, 64);
    cr_expect_eq(a, 0);
    cr_expect_eq(b, 64);
    cr_expect_eq(c, 192);
    cr_expect_eq(d, 192);
    cr_expect_eq(arena.used, 256);
    cr_expect_null(hs_arena_at(&arena, b), "no memory before the commit");

    cr_assert_eq(hs_arena_commit(&arena), HS_OK);
    cr_expect_eq(arena.capacity, 256);
    cr_expect_eq(device.current_bytes, 256);
    cr_expect_eq((uintptr_t)hs_arena_at(&arena, b) % HS_ARENA_ALIGNMENT, 0);
    const unsigned char *bytes = hs_arena_at(&arena, 0);
    int nonzero = 0;
    for (int i = 0; i < 256; i++)
        nonzero += bytes[i] != 0;
    cr_expect_eq(nonzero, 0, "zero-filled");
    hs_arena_deinit(&arena);
    cr_expect_eq(device.current_bytes, 0);
    cr_expect_null(arena.base);
}

Test(arena, an_empty_arena_holds_nothing)
{
    HsArena arena;
    hs_arena_init(&arena, &device, HS_MEMORY_MASTERS);
    cr_expect_eq(hs_arena_commit(&arena), HS_OK);
    cr_expect_null(arena.base);
    hs_arena_deinit(&arena);
}

Test(arena, too_much_memory_is_refused_by_name)
{
    HsArena arena;
    hs_arena_init(&arena, &device, HS_MEMORY_MOMENTS);
    hs_arena_reserve(&arena, (size_t)1 << 60);
    cr_expect_eq(hs_arena_commit(&arena), HS_ENOMEM);
    cr_expect_not_null(strstr(hs_error_message(), "optimizer moments"));
    cr_expect_not_null(strstr(hs_error_message(), "1152921504606846976"));
    cr_expect_eq(device.current_bytes, 0);
    hs_arena_deinit(&arena);
}

Test(arena, host_memory_is_aligned_and_counted)
{
    static const size_t sizes[] = { 0, 1, 63, 64, 65, 4096, ((size_t)4 << 20) - 1, (size_t)4 << 20, 5000001 };
    size_t peak = 0;
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        void *pointer = NULL;
        cr_assert_eq(device.alloc(&device, sizes[i], &pointer), HS_OK);
        cr_expect_eq(device.current_bytes, sizes[i]);
        peak = sizes[i] > peak ? sizes[i] : peak;
        cr_expect_eq((uintptr_t)pointer % (sizes[i] >= (size_t)4 << 20 ? (size_t)2 << 20 : 64), 0);
        memset(pointer, 0xA5, sizes[i]); /* every byte is ours: the sanitizers watch */
        device.release(&device, pointer);
        cr_expect_eq(device.current_bytes, 0);
    }
    cr_expect_eq(device.peak_bytes, peak);
    device.release(&device, NULL);
}

Test(arena, host_events_measure_time_and_copies_copy)
{
    HsEvent *start = NULL, *stop = NULL;
    cr_assert_eq(device.event_create(&device, &start), HS_OK);
    cr_assert_eq(device.event_create(&device, &stop), HS_OK);
    cr_expect_eq(device.event_record(&device, start, NULL), HS_OK);
    char from[] = "bytes", to[sizeof from];
    cr_expect_eq(device.copy(&device, NULL, to, from, sizeof from), HS_OK);
    cr_expect_eq(device.stream_sync(&device, NULL), HS_OK);
    cr_expect_eq(device.event_record(&device, stop, NULL), HS_OK);
    double milliseconds = -1;
    cr_expect_eq(device.event_elapsed_ms(&device, start, stop, &milliseconds), HS_OK);
    cr_expect(milliseconds >= 0);
    cr_expect_str_eq(to, "bytes");
    device.event_destroy(&device, start);
    device.event_destroy(&device, stop);
    cr_expect(device.host_accessible);
    cr_expect_gt(device.memory_bytes, (size_t)64 << 20);
    cr_expect_not_null(strstr(device.description, "core"));
}
