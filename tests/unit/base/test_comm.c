/* SPDX-License-Identifier: MIT
 *
 * Communicators: every operation against its definition, worked out here with all ranks' inputs side by side; the same
 * bits on every rank and in every run; and ranks that fail, or do different things, which leave no rank waiting.
 */
#include <criterion/criterion.h>
#include <math.h>
#include <pthread.h>
#include <string.h>

#include "kernels/base/comm_fold.h"
#include "kernels/base/comm_threads.h"

enum { SIZE_MOST = 5, COUNT_MOST = 37, ROUNDS = 3 };
static const HsDtype types[] = { HS_F32, HS_F64, HS_I64, HS_BF16, HS_F16 };
enum { TYPES = sizeof types / sizeof types[0] };
static const size_t counts[] = { 0, 1, 3, 8, COUNT_MOST };

/* Values with sums that are rounded in every float format. */
static double value_of(int rank, size_t i, HsDtype dtype)
{
    const double whole = (double)((int)((i * 37 + (size_t)rank * 101) % 211) - 105);
    return dtype == HS_I64 ? whole * 1e12 : whole / 7.0 * pow(2.0, (double)(rank % 3));
}

static void fill(HsDtype dtype, int rank, size_t count, void *array)
{
    for (size_t i = 0; i < count; i++)
        hs_dtype_store(dtype, array, (int64_t)i, value_of(rank, i, dtype));
}

static double rounded(HsDtype dtype, double value)
{
    double stored;
    hs_dtype_store(dtype, &stored, 0, value);
    return hs_dtype_load(dtype, &stored, 0);
}

/* Element i of what ranks [first, last) have, combined by definition: the left half of the tree is the largest power of
 * two below their number, each sum rounded to the type. */
static double folded(HsDtype dtype, int first, int last, size_t i, HsCommOp op)
{
    if (last - first == 1)
        return rounded(dtype, value_of(first, i, dtype));
    int part = 1;
    while (2 * part < last - first)
        part *= 2;
    const double a = folded(dtype, first, first + part, i, op), b = folded(dtype, first + part, last, i, op);
    return op == HS_COMM_SUM ? rounded(dtype, a + b) : fmax(a, b);
}

/* Ranges of unequal length, with elements before the first and after the last that no range holds. */
static size_t ranges_of(size_t count, int size, size_t starts[SIZE_MOST + 1])
{
    starts[0] = 1;
    for (int r = 0; r < size; r++)
        starts[r + 1] = starts[r] + (r == 1 ? 0 : count / (size_t)(r + 1));
    return starts[size] + 2;
}

typedef struct Job {
    HsComm *comm;
    HsStatus status;
    int wrong;
    const char *what;
} Job;

static void run_ranks(HsCommThreads *group, int size, void *(*work)(void *), Job jobs[SIZE_MOST])
{
    pthread_t threads[SIZE_MOST];
    for (int r = 0; r < size; r++) {
        jobs[r] = (Job){ .comm = hs_comm_threads_rank(group, r), .what = "" };
        cr_assert_eq(pthread_create(&threads[r], NULL, work, &jobs[r]), 0);
    }
    for (int r = 0; r < size; r++)
        pthread_join(threads[r], NULL);
}

static void expect(Job *job, HsDtype dtype, const void *array, size_t i, double wanted, const char *what)
{
    if (hs_dtype_load(dtype, array, (int64_t)i) != wanted) {
        job->wrong++;
        job->what = what;
    }
}

static HsStatus try_type(Job *job, HsDtype dtype, size_t count)
{
    HsComm *comm = job->comm;
    const int size = comm->size, rank = comm->rank;
    double small[COUNT_MOST + 1], wide[SIZE_MOST * COUNT_MOST + 3];
    for (HsCommOp op = HS_COMM_SUM; op <= HS_COMM_MAX; op++) {
        fill(dtype, rank, count, small);
        HS_TRY(hs_comm_all_reduce(comm, NULL, small, count, dtype, op));
        for (size_t i = 0; i < count; i++)
            expect(job, dtype, small, i, folded(dtype, 0, size, i, op), op == HS_COMM_SUM ? "sum" : "max");
    }
    size_t starts[SIZE_MOST + 1];
    const size_t all = ranges_of(count, size, starts), own = starts[rank], own_end = starts[rank + 1];
    fill(dtype, rank, all, wide);
    HS_TRY(hs_comm_reduce_scatter(comm, NULL, wide, starts, dtype));
    for (size_t i = 0; i < all; i++)
        expect(job, dtype, wide, i,
               i >= own && i < own_end ? folded(dtype, 0, size, i, HS_COMM_SUM)
                                       : rounded(dtype, value_of(rank, i, dtype)),
               "reduce_scatter");
    HS_TRY(hs_comm_all_gather(comm, NULL, wide, starts, dtype));
    for (size_t i = 0; i < all; i++)
        expect(job, dtype, wide, i,
               i >= starts[0] && i < starts[size] ? folded(dtype, 0, size, i, HS_COMM_SUM)
                                                  : rounded(dtype, value_of(rank, i, dtype)),
               "all_gather");
    for (int root = 0; root < size; root++) {
        fill(dtype, rank, count, small);
        HS_TRY(hs_comm_broadcast(comm, NULL, small, count, dtype, root));
        for (size_t i = 0; i < count; i++)
            expect(job, dtype, small, i, rounded(dtype, value_of(root, i, dtype)), "broadcast");
    }
    return hs_comm_barrier(comm);
}

static void *everything(void *argument)
{
    Job *job = argument;
    for (int round = 0; round < ROUNDS; round++)
        for (int t = 0; t < TYPES; t++)
            for (size_t c = 0; c < sizeof counts / sizeof counts[0] && job->status == HS_OK; c++)
                job->status = try_type(job, types[t], counts[c]);
    return NULL;
}

Test(comm, threads_give_every_rank_the_defined_bits)
{
    for (int size = 2; size <= SIZE_MOST; size++) {
        HsCommThreads *group;
        Job jobs[SIZE_MOST];
        cr_assert_eq(hs_comm_threads_create(size, &group), HS_OK);
        run_ranks(group, size, everything, jobs);
        for (int r = 0; r < size; r++) {
            cr_expect_eq(jobs[r].status, HS_OK, "rank %d of %d", r, size);
            cr_expect_eq(jobs[r].wrong, 0, "rank %d of %d: %d wrong, %s", r, size, jobs[r].wrong, jobs[r].what);
        }
        hs_comm_threads_destroy(group);
    }
}

/* One rank of the threads' kind, and `alone`: nothing is read or written, so that device memory may stand there. */
Test(comm, one_rank_touches_nothing)
{
    HsCommThreads *group;
    cr_assert_eq(hs_comm_threads_create(1, &group), HS_OK);
    HsComm *const comms[] = { hs_comm_alone(), hs_comm_threads_rank(group, 0) };
    void *const nowhere = (void *)(uintptr_t)64;
    const size_t starts[] = { 0, 5 };
    for (size_t i = 0; i < 2; i++) {
        cr_expect(comms[i]->rank == 0 && comms[i]->size == 1);
        cr_expect_eq(hs_comm_all_reduce(comms[i], NULL, nowhere, 5, HS_F32, HS_COMM_SUM), HS_OK);
        cr_expect_eq(hs_comm_reduce_scatter(comms[i], NULL, nowhere, starts, HS_F64), HS_OK);
        cr_expect_eq(hs_comm_all_gather(comms[i], NULL, nowhere, starts, HS_I64), HS_OK);
        cr_expect_eq(hs_comm_broadcast(comms[i], NULL, nowhere, 5, HS_F32, 0), HS_OK);
        cr_expect_eq(hs_comm_barrier(comms[i]), HS_OK);
        hs_comm_abort(comms[i], "for a test");
    }
    hs_comm_threads_destroy(group);
}

/* A NaN or infinity of any rank reaches all of them. */
static void *with_nonfinite(void *argument)
{
    Job *job = argument;
    float values[2] = { job->comm->rank == 1 ? NAN : 1.0f, job->comm->rank == 2 ? INFINITY : 1.0f };
    job->status = hs_comm_all_reduce(job->comm, NULL, values, 2, HS_F32, HS_COMM_SUM);
    job->wrong = !isnan(values[0]) + !isinf(values[1]);
    return NULL;
}

Test(comm, what_is_not_finite_reaches_every_rank)
{
    HsCommThreads *group;
    Job jobs[SIZE_MOST];
    cr_assert_eq(hs_comm_threads_create(4, &group), HS_OK);
    run_ranks(group, 4, with_nonfinite, jobs);
    for (int r = 0; r < 4; r++)
        cr_expect(jobs[r].status == HS_OK && jobs[r].wrong == 0, "rank %d", r);
    hs_comm_threads_destroy(group);
}

static void *one_gives_up(void *argument)
{
    Job *job = argument;
    double sum = 1;
    job->status = hs_comm_all_reduce(job->comm, NULL, &sum, 1, HS_F64, HS_COMM_SUM);
    if (job->comm->rank == 1) {
        hs_comm_note_step(job->comm, 17);
        hs_comm_abort(job->comm, "no memory");
        return NULL;
    }
    const HsStatus waited = hs_comm_barrier(job->comm);
    job->wrong = waited != HS_EDEVICE || strstr(hs_error_message(), "barrier: rank 1 of 3 (host ") == NULL ||
                 strstr(hs_error_message(), ", step 17) gave up: no memory") == NULL;
    job->wrong += hs_comm_all_reduce(job->comm, NULL, &sum, 1, HS_F64, HS_COMM_SUM) != HS_EDEVICE; /* and for good */
    return NULL;
}

Test(comm, a_rank_that_gives_up_leaves_no_rank_waiting, .timeout = 20)
{
    for (int round = 0; round < 200; round++) {
        HsCommThreads *group;
        Job jobs[SIZE_MOST];
        cr_assert_eq(hs_comm_threads_create(3, &group), HS_OK);
        run_ranks(group, 3, one_gives_up, jobs);
        for (int r = 0; r < 3; r++)
            cr_expect(jobs[r].status == HS_OK && jobs[r].wrong == 0, "rank %d, round %d", r, round);
        hs_comm_threads_destroy(group);
    }
}

static void *different_things(void *argument)
{
    Job *job = argument;
    double values[2] = { 1, 2 };
    const size_t count = job->comm->rank == 2 ? 2 : 1;
    job->status = hs_comm_all_reduce(job->comm, NULL, values, count, HS_F64, HS_COMM_SUM);
    job->wrong = strstr(hs_error_message(), "rank 0 all_reduce of 1 f64 (sum), rank 2 all_reduce of 2 f64") == NULL;
    /* All get the error, and may continue together. */
    job->wrong += hs_comm_all_reduce(job->comm, NULL, values, 1, HS_F64, HS_COMM_SUM) != HS_OK || values[0] != 3;
    return NULL;
}

/* A power of two of equal parts within a rank, added up along the tree, are leaves of one larger tree. */
Test(comm, trees_within_ranks_and_across_them_are_one_tree)
{
    enum { PARTS = 24, ELEMENTS = 3001 };
    for (int t = 0; t < TYPES; t++)
        for (int within = 1; within <= 8; within *= 2) {
            static double parts[PARTS][ELEMENTS], sums[PARTS][ELEMENTS], once[ELEMENTS], twice[ELEMENTS];
            const void *leaves[PARTS], *ranks[PARTS];
            for (int p = 0; p < PARTS; p++) {
                fill(types[t], p, ELEMENTS, parts[p]);
                leaves[p] = parts[p];
                ranks[p] = sums[p];
            }
            hs_comm_fold(leaves, PARTS, ELEMENTS, types[t], HS_COMM_SUM, once);
            for (int r = 0; r < PARTS / within; r++)
                hs_comm_fold(leaves + r * within, within, ELEMENTS, types[t], HS_COMM_SUM, sums[r]);
            hs_comm_fold(ranks, PARTS / within, ELEMENTS, types[t], HS_COMM_SUM, twice);
            cr_expect_arr_eq(once, twice, ELEMENTS * hs_dtype_bytes(types[t]), "%s, %d within a rank",
                             hs_dtype_name(types[t]), within);
            for (size_t i = 0; i < ELEMENTS; i++)
                cr_assert_eq(hs_dtype_load(types[t], once, (int64_t)i), folded(types[t], 0, PARTS, i, HS_COMM_SUM));
        }
}

Test(comm, ranks_that_do_different_things_get_an_error, .timeout = 20)
{
    HsCommThreads *group;
    Job jobs[SIZE_MOST];
    cr_assert_eq(hs_comm_threads_create(3, &group), HS_OK);
    run_ranks(group, 3, different_things, jobs);
    for (int r = 0; r < 3; r++)
        cr_expect(jobs[r].status == HS_EDEVICE && jobs[r].wrong == 0, "rank %d", r);
    cr_expect_eq(hs_comm_all_reduce(hs_comm_threads_rank(group, 0), NULL, NULL, 1, HS_U8, HS_COMM_SUM),
                 HS_EUNSUPPORTED);
    hs_comm_threads_destroy(group);
}
