/* SPDX-License-Identifier: MIT
 *
 * Sums of virtual ranks against the tree of virtual_ranks.h written down as a recursion, in double and rounded at each
 * addition; and which numbers of processes may share how many parts.
 */
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include "kernels/base/comm_fold.h"
#include "kernels/base/rng.h"
#include "runtime/exchange/virtual_ranks.h"

enum { TENSORS = 4, PARTS_MOST = 9, ELEMENTS = 1301 };
static const int64_t sizes[TENSORS] = { 1000, 7, 1, 293 };

static double value(int64_t part, int64_t i)
{
    const HsRng rng = { .seed = 11, .site = (uint32_t)part };
    const HsPhilox bits = hs_rng_draw(&rng, (uint64_t)i);
    const double unit = 2.0 * (double)hs_rng_uniform(bits.word[0]) - 1.0;
    return unit * (double)(1u << bits.word[1] % 12); /* of many magnitudes: another order gives other bits */
}

static double rounded(HsDtype dtype, double x)
{
    unsigned char bytes[8];
    hs_dtype_store(dtype, bytes, 0, x);
    return hs_dtype_load(dtype, bytes, 0);
}

/* sum [a, b) = sum [a, a + p) + sum [a + p, b), p the largest power of two below b - a.  A sum of two numbers of 24 bits
 * or less is exact in double but for its last bits, which rounding to 24 again does not see (Figueroa 1995). */
static double tree(HsDtype dtype, int64_t a, int64_t b, int64_t i)
{
    int64_t p = 1;
    if (b - a == 1)
        return rounded(dtype, value(a, i));
    while (2 * p < b - a)
        p *= 2;
    return rounded(dtype, tree(dtype, a, a + p, i) + tree(dtype, a + p, b, i));
}

static double in_a_row(HsDtype dtype, int64_t parts, int64_t i)
{
    double sum = rounded(dtype, value(0, i));
    for (int64_t p = 1; p < parts; p++)
        sum = rounded(dtype, sum + rounded(dtype, value(p, i)));
    return sum;
}

/* Parts [first, first + own), added up by the sums themselves; out [ELEMENTS]. */
static void add_up(const HsBackend *backend, HsDtype dtype, int64_t first, int64_t own, unsigned char *out)
{
    HsDevice device;
    HsArena arena;
    HsPartialSums sums;
    HsTensor tensors[TENSORS + 1]; /* the last one is absent */
    size_t offsets[TENSORS];
    const size_t bytes = hs_dtype_bytes(dtype);
    cr_assert_eq(hs_device_host_init(&device), HS_OK);
    HsContext context = { .backend = backend, .device = &device, .threads = 1 };
    hs_arena_init(&arena, &device, HS_MEMORY_GRADIENTS);
    for (int t = 0; t < TENSORS; t++)
        offsets[t] = hs_arena_reserve(&arena, (size_t)sizes[t] * bytes);
    cr_assert_eq(hs_arena_commit(&arena), HS_OK);
    memset(tensors, 0, sizeof tensors);
    for (int t = 0; t < TENSORS; t++)
        tensors[t] = hs_tensor_1d(hs_arena_at(&arena, offsets[t]), dtype, sizes[t]);
    const size_t before = device.account.current[HS_MEMORY_STATISTICS];
    cr_assert_eq(hs_partial_sums_init(&sums, &device, HS_MEMORY_STATISTICS, false, tensors, TENSORS + 1, own), HS_OK);
    cr_assert_eq(device.account.current[HS_MEMORY_STATISTICS] - before,
                 hs_partial_sums_bytes(tensors, TENSORS + 1, own), "takes other memory than it says");
    for (int64_t part = 0; part < own; part++) {
        int64_t i = 0;
        for (int t = 0; t < TENSORS; t++)
            for (int64_t e = 0; e < sizes[t]; e++, i++) {
                cr_assert_eq(part > 0 ? hs_dtype_load(dtype, tensors[t].data, e) : 0, 0, "part %lld begins with a rest",
                             (long long)part);
                hs_dtype_store(dtype, tensors[t].data, e, value(first + part, i));
            }
        cr_assert_eq(hs_partial_sums_add(&sums, &context, part), HS_OK, "%s", hs_error_message());
    }
    for (int t = 0; t < TENSORS; t++) {
        memcpy(out, tensors[t].data, (size_t)sizes[t] * bytes);
        out += (size_t)sizes[t] * bytes;
    }
    hs_partial_sums_deinit(&sums);
    hs_arena_deinit(&arena);
}

static void check_parts(const HsBackend *backend, HsDtype dtype, int64_t parts)
{
    static unsigned char all[ELEMENTS * 8], each[PARTS_MOST][ELEMENTS * 8];
    int differing = 0;
    add_up(backend, dtype, 0, parts, all);
    for (int64_t i = 0; i < ELEMENTS; i++) {
        const double sum = hs_dtype_load(dtype, all, i);
        cr_assert_eq(sum, tree(dtype, 0, parts, i), "%s, %lld parts, element %lld: %.17g instead of %.17g",
                     hs_dtype_name(dtype), (long long)parts, (long long)i, sum, tree(dtype, 0, parts, i));
        differing += sum != in_a_row(dtype, parts, i);
    }
    cr_assert(parts <= 3 || differing > 10, "another order gives the same bits: nothing is tested");
    /* Dealt out to processes, with sums that continue along the tree of the communicator. */
    for (int size = 2; size <= parts; size++) {
        const HsComm comm = { .size = size };
        HsVirtualRanks ranks;
        const void *sums[PARTS_MOST];
        if (hs_virtual_ranks_divide(parts, &comm, &ranks) != HS_OK)
            continue;
        for (int r = 0; r < size; r++) {
            add_up(backend, dtype, r * ranks.own, ranks.own, each[r]);
            sums[r] = each[r];
        }
        hs_comm_fold(sums, size, ELEMENTS, dtype, HS_COMM_SUM, each[0]);
        cr_assert_arr_eq(each[0], all, hs_dtype_bytes(dtype) * ELEMENTS, "%d processes of %lld parts", size,
                         (long long)parts);
    }
}

Test(partial_sums, follow_the_tree_however_they_are_dealt_out)
{
    const HsBackend *cpu;
    cr_assert_eq(hs_backend_cpu(&cpu), HS_OK);
    const HsBackend *const backends[] = { hs_backend_ref(), cpu };
    static const HsDtype dtypes[] = { HS_F32, HS_BF16 };
    for (int b = 0; b < 2; b++)
        for (int d = 0; d < 2; d++)
            for (int64_t parts = 1; parts <= PARTS_MOST; parts++)
                check_parts(backends[b], dtypes[d], parts);
}

/* --- which ranks may share --- */

static bool may_share(int64_t parts, int64_t size)
{
    if (size == 1)
        return true;
    for (int64_t own = 1; own * size <= parts; own *= 2)
        if (own * size == parts)
            return true;
    return false;
}

Test(virtual_ranks, divide_by_powers_of_two_and_name_what_fits)
{
    int taken = 0, refused = 0;
    for (int64_t count = 0; count <= 130; count++)
        for (int size = 1; size <= 33; size++) {
            const int64_t parts = count > 0 ? count : size;
            int64_t next = 0;
            for (int rank = 0; rank < size; rank++) {
                const HsComm comm = { .rank = rank, .size = size };
                HsVirtualRanks ranks = { 0 };
                const HsStatus status = hs_virtual_ranks_divide(count, &comm, &ranks);
                cr_assert_eq(status, may_share(parts, size) ? HS_OK : HS_ECONFIG, "%lld parts, %d processes",
                             (long long)parts, size);
                if (status != HS_OK)
                    break;
                cr_assert(ranks.count == parts && ranks.first == next && ranks.own > 0);
                next += ranks.own;
            }
            taken += next == parts;
            refused += next == 0;
            cr_assert(next == 0 || next == parts, "%lld of %lld parts are dealt out", (long long)next,
                      (long long)parts);
            if (next > 0)
                continue;
            char fitting[128] = "start ";
            for (int64_t other = 1; other <= parts; other++)
                if (may_share(parts, other))
                    snprintf(fitting + strlen(fitting), sizeof fitting - strlen(fitting), "%s%lld",
                             other > 1 ? ", " : "", (long long)other);
            snprintf(fitting + strlen(fitting), sizeof fitting - strlen(fitting), " of them");
            cr_assert(strstr(hs_error_message(), fitting), "not `%s`: %s", fitting, hs_error_message());
        }
    cr_assert(taken > 100 && refused > 1000);
}
