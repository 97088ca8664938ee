/* SPDX-License-Identifier: MIT
 *
 * The communicator of one host's processes and the machine's memory, in one run: sums of N ranks' buffers in GB/s of
 * one buffer, and how long small operations take.
 *
 *     comm [RANKS [MIB [WINDOW_KIB]]]     2 ranks, 64 MiB, windows of 512 KiB
 *
 * The measures are taken by N processes at a time, as a sum of ranks is:
 *
 *     copy    memcpy: bytes copied a second, all processes together
 *     add     a[i] = b[i] + c[i]: bytes of a written a second, all processes together
 *
 * A sum of N buffers of S bytes is, over all ranks, (N - 1) S bytes copied into windows, N - 1 additions of S bytes, and
 * N S bytes copied from there: through memory that takes (2 N - 1) S / copy + (N - 1) S / add.  The ratio is that time
 * over the measured one; it is above 1 where windows stay in caches.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "kernels/base/clock.h"
#include "kernels/base/comm_shared.h"

enum { ROUNDS = 7, SMALL_ROUNDS = 2000 };

typedef struct Result {
    double copy, add, all_reduce, reduce_scatter, all_gather, small_us, barrier_us; /* seconds but for the last two */
} Result;

typedef struct Bench {
    HsComm *comm;
    size_t bytes;
    float *a, *b, *c;
} Bench;

static void must(HsStatus status)
{
    if (status == HS_OK)
        return;
    fprintf(stderr, "error: %s\n", hs_error_message());
    exit(1);
}

static void copy(Bench *bench)
{
    memcpy(bench->a, bench->b, bench->bytes);
}

static void add(Bench *bench)
{
    for (size_t i = 0; i < bench->bytes / sizeof *bench->a; i++)
        bench->a[i] = bench->b[i] + bench->c[i];
}

static void all_reduce(Bench *bench)
{
    must(hs_comm_all_reduce(bench->comm, NULL, bench->a, bench->bytes / 4, HS_F32, HS_COMM_SUM));
}

static void ranges(const Bench *bench, size_t starts[1025])
{
    for (int r = 0; r <= bench->comm->size; r++)
        starts[r] = hs_comm_share_start(bench->bytes / 4, bench->comm->size, r);
}

static void reduce_scatter(Bench *bench)
{
    size_t starts[1025];
    ranges(bench, starts);
    must(hs_comm_reduce_scatter(bench->comm, NULL, bench->a, starts, HS_F32));
}

static void all_gather(Bench *bench)
{
    size_t starts[1025];
    ranges(bench, starts);
    must(hs_comm_all_gather(bench->comm, NULL, bench->a, starts, HS_F32));
}

/* The best of some rounds, from when all are there to when the last has ended. */
static double seconds_of(Bench *bench, void (*work)(Bench *bench))
{
    double best_s = 1e9;
    for (int round = 0; round < ROUNDS; round++) {
        must(hs_comm_barrier(bench->comm));
        const double start_s = hs_clock_s();
        work(bench);
        must(hs_comm_barrier(bench->comm));
        const double took_s = hs_clock_s() - start_s;
        best_s = took_s < best_s ? took_s : best_s;
    }
    return best_s;
}

static double small_us(Bench *bench, bool barrier)
{
    double value[4] = { 1, 2, 3, 4 };
    must(hs_comm_barrier(bench->comm));
    const double start_s = hs_clock_s();
    for (int i = 0; i < SMALL_ROUNDS; i++)
        must(barrier ? hs_comm_barrier(bench->comm)
                     : hs_comm_all_reduce(bench->comm, NULL, value, 4, HS_F64, HS_COMM_MAX));
    return (hs_clock_s() - start_s) / SMALL_ROUNDS * 1e6;
}

static void work(int descriptor, int rank, size_t bytes, Result *result)
{
    const HsCommSharedOptions options = { .join_s = 60 };
    Bench bench = { .bytes = bytes, .a = malloc(bytes), .b = malloc(bytes), .c = malloc(bytes) };
    must(bench.a && bench.b && bench.c ? HS_OK : hs_fail(HS_ENOMEM, "no memory for 3 x %zu bytes", bytes));
    must(hs_comm_shared_join(descriptor, rank, &options, &bench.comm));
    for (size_t i = 0; i < bytes / sizeof *bench.a; i++)
        bench.a[i] = bench.b[i] = bench.c[i] = (float)(i % 97) * 0x1p-40f;
    const Result own = { .copy = seconds_of(&bench, copy),
                         .add = seconds_of(&bench, add),
                         .all_reduce = seconds_of(&bench, all_reduce),
                         .reduce_scatter = seconds_of(&bench, reduce_scatter),
                         .all_gather = seconds_of(&bench, all_gather),
                         .small_us = small_us(&bench, false),
                         .barrier_us = small_us(&bench, true) };
    if (rank == 0)
        *result = own;
    hs_comm_destroy(bench.comm);
}

static void print(int size, size_t bytes, size_t window, const Result *result)
{
    const double gigabytes = (double)bytes * 1e-9, ranks = size;
    const double copy_rate = ranks * gigabytes / result->copy, add_rate = ranks * gigabytes / result->add;
    const double scatter = ((ranks - 1) * gigabytes) / copy_rate + (ranks - 1) * gigabytes / add_rate;
    const double gather = ranks * gigabytes / copy_rate;
    printf("%d ranks, %.0f MiB of f32 each, windows of %zu KiB\n", size, (double)bytes / 1048576, window >> 10);
    printf("  copy            %7.2f GB/s, all ranks together\n", copy_rate);
    printf("  add             %7.2f GB/s, all ranks together\n", add_rate);
    printf("  all_reduce      %7.2f GB/s, %5.1f ms, %.2f of memory's speed\n", gigabytes / result->all_reduce,
           result->all_reduce * 1e3, (scatter + gather) / result->all_reduce);
    printf("  reduce_scatter  %7.2f GB/s, %5.1f ms, %.2f of memory's speed\n", gigabytes / result->reduce_scatter,
           result->reduce_scatter * 1e3, scatter / result->reduce_scatter);
    printf("  all_gather      %7.2f GB/s, %5.1f ms, %.2f of memory's speed\n", gigabytes / result->all_gather,
           result->all_gather * 1e3, gather / result->all_gather);
    printf("  small sum       %7.1f us, barrier %.1f us\n", result->small_us, result->barrier_us);
}

int main(int argc, char **argv)
{
    const int size = argc > 1 ? atoi(argv[1]) : 2;
    const size_t bytes = (size_t)(argc > 2 ? atoi(argv[2]) : 64) << 20;
    const HsCommSharedOptions options = { .window_bytes = (size_t)(argc > 3 ? atoi(argv[3]) : 512) << 10 };
    int descriptor, failures = 0;
    if (size < 2 || size > 64 || bytes == 0) {
        fprintf(stderr, "usage: comm [RANKS [MIB [WINDOW_KIB]]]\n");
        return 2;
    }
    Result *result = mmap(NULL, sizeof *result, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    must(result != MAP_FAILED ? HS_OK : hs_fail(HS_ENOMEM, "no memory for the results"));
    must(hs_comm_shared_make(size, &options, &descriptor));
    for (int r = 0; r < size; r++)
        if (fork() == 0) {
            work(descriptor, r, bytes, result);
            _exit(0);
        }
    for (int status; wait(&status) > 0;)
        failures += status != 0;
    if (failures == 0)
        print(size, bytes, options.window_bytes, result);
    return failures > 0;
}
