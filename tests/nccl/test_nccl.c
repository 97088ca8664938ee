/* SPDX-License-Identifier: MIT
 *
 * Communicators over NCCL on the emulator, between processes: every operation against its definition, worked out here
 * along the tree; the same bits as threads; and how failures end.
 */
#include <criterion/criterion.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "kernels/base/comm_threads.h"
#include "tests/support/gpu_ranks.h"

enum { COUNT_MOST = 5003, LEAST_SCRATCH = 4096 };
static const HsDtype types[] = { HS_F32, HS_F64, HS_I64, HS_BF16, HS_F16 };
enum { TYPES = sizeof types / sizeof types[0] };
static const size_t counts[] = { 0, 1, 3, 37, COUNT_MOST };
enum { COUNTS = sizeof counts / sizeof counts[0] };

typedef union Array {
    double f64[COUNT_MOST];
    int64_t i64[COUNT_MOST];
    float f32[COUNT_MOST];
    unsigned char u8[COUNT_MOST * 8];
} Array;

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

/* Element i over ranks [first, end), by the tree's definition. */
static double tree(HsDtype dtype, int first, int end, size_t i, HsCommOp op)
{
    double stored;
    int left = 1;
    if (end - first == 1) {
        hs_dtype_store(dtype, &stored, 0, value_of(first, i, dtype));
        return hs_dtype_load(dtype, &stored, 0);
    }
    while (2 * left < end - first)
        left *= 2;
    const double a = tree(dtype, first, first + left, i, op), b = tree(dtype, first + left, end, i, op);
    hs_dtype_store(dtype, &stored, 0, op == HS_COMM_SUM ? a + b : a > b ? a : b);
    return hs_dtype_load(dtype, &stored, 0);
}

static bool complain(const Rank *rank, const char *what, HsDtype dtype, size_t count)
{
    fprintf(stderr, "rank %d of %d: %s, %zu %s: %s\n", rank->rank, rank->size, what, count, hs_dtype_name(dtype),
            hs_error_message());
    return false;
}

/* Elements [first, end) are what the tree gives. */
static bool is_folded(const Rank *rank, const Array *array, HsDtype dtype, size_t first, size_t end, HsCommOp op)
{
    for (size_t i = first; i < end; i++)
        if (hs_dtype_load(dtype, array, (int64_t)i) != tree(dtype, 0, rank->size, i, op))
            return false;
    return true;
}

static bool reduce_one(Rank *rank, HsDtype dtype, size_t count, HsCommOp op, void *memory)
{
    static Array array;
    const size_t bytes = count * hs_dtype_bytes(dtype);
    fill(dtype, rank->rank, count, &array);
    to_device(rank, memory, &array, bytes);
    if (hs_comm_all_reduce(rank->comm, rank->stream, memory, count, dtype, op) != HS_OK)
        return complain(rank, "all_reduce failed", dtype, count);
    to_host(rank, &array, memory, bytes);
    return is_folded(rank, &array, dtype, 0, count, op) || complain(rank, "all_reduce is not the tree's", dtype, count);
}

static bool all_reduces(Rank *rank)
{
    void *memory = device_memory(rank, sizeof(Array));
    for (int t = 0; t < TYPES; t++)
        for (int c = 0; c < COUNTS; c++)
            for (int op = HS_COMM_SUM; op <= HS_COMM_MAX; op++)
                if (!reduce_one(rank, types[t], counts[c], (HsCommOp)op, memory))
                    return false;
    return true;
}

Test(nccl, sums_and_maxima, .timeout = 120)
{
    for (int size = 2; size <= RANKS_MOST; size++)
        expect_all_right(&(Scene){ .size = size,
                                   .exact = true,
                                   .scratch_bytes = (size_t)size * LEAST_SCRATCH,
                                   .seed = size,
                                   .body = all_reduces },
                         "all_reduce");
}

/* Ranges of unequal length, one of them empty, between elements that belong to no rank. */
static void uneven(int size, size_t starts[RANKS_MOST + 1])
{
    starts[0] = 3;
    for (int r = 0; r < size; r++)
        starts[r + 1] = starts[r] + (r == 1 ? 0 : (size_t)(r + 1) * 419);
}

static bool ranges_one(Rank *rank, HsDtype dtype, const size_t *starts, void *memory)
{
    static Array own, array;
    const size_t count = starts[rank->size] + 5, width = hs_dtype_bytes(dtype), bytes = count * width;
    const size_t first = starts[rank->rank], end = starts[rank->rank + 1];
    fill(dtype, rank->rank, count, &own);
    to_device(rank, memory, &own, bytes);
    if (hs_comm_reduce_scatter(rank->comm, rank->stream, memory, starts, dtype) != HS_OK)
        return complain(rank, "reduce_scatter failed", dtype, count);
    to_host(rank, &array, memory, bytes);
    if (rank->comm->exact && !is_folded(rank, &array, dtype, first, end, HS_COMM_SUM))
        return complain(rank, "reduce_scatter is not the tree's", dtype, count);
    if (memcmp(&array, &own, first * width) != 0 ||
        memcmp(array.u8 + end * width, own.u8 + end * width, (count - end) * width) != 0)
        return complain(rank, "reduce_scatter changed other ranges", dtype, count);
    if (hs_comm_all_gather(rank->comm, rank->stream, memory, starts, dtype) != HS_OK)
        return complain(rank, "all_gather failed", dtype, count);
    to_host(rank, &array, memory, bytes);
    if (rank->comm->exact && !is_folded(rank, &array, dtype, starts[0], starts[rank->size], HS_COMM_SUM))
        return complain(rank, "all_gather brings something else", dtype, count);
    if (memcmp(&array, &own, starts[0] * width) != 0 ||
        memcmp(array.u8 + starts[rank->size] * width, own.u8 + starts[rank->size] * width, 5 * width) != 0)
        return complain(rank, "all_gather changed what no range holds", dtype, count);
    return true;
}

static bool ranges(Rank *rank)
{
    size_t starts[RANKS_MOST + 1];
    void *memory = device_memory(rank, sizeof(Array));
    for (int t = 0; t < TYPES; t++) {
        uneven(rank->size, starts);
        if (!ranges_one(rank, types[t], starts, memory))
            return false;
        for (int r = 0; r <= rank->size; r++)
            starts[r] = 1 + (size_t)r * 517;
        if (!ranges_one(rank, types[t], starts, memory))
            return false;
    }
    return true;
}

Test(nccl, unequal_ranges, .timeout = 60)
{
    for (int size = 2; size <= RANKS_MOST; size++)
        expect_all_right(&(Scene){ .size = size,
                                   .exact = size != 3,
                                   .scratch_bytes = (size_t)size * LEAST_SCRATCH,
                                   .seed = size,
                                   .body = ranges },
                         "ranges");
}

/* Buffers of the host, roots, bytes, barriers, and what stays out of recordings. */
static bool the_rest(Rank *rank)
{
    unsigned char bytes[33];
    int64_t counters[2] = { rank->rank, 1 };
    double sums[3] = { value_of(rank->rank, 0, HS_F64), value_of(rank->rank, 1, HS_F64), 1.0 };
    HsGraph *graph = NULL;
    for (int root = 0; root < rank->size; root++) {
        memset(bytes, rank->rank, sizeof bytes);
        void *memory = device_memory(rank, sizeof bytes);
        to_device(rank, memory, bytes, sizeof bytes);
        if (hs_comm_broadcast(rank->comm, rank->stream, memory, sizeof bytes - 1, HS_U8, root) != HS_OK)
            return complain(rank, "broadcast failed", HS_U8, 32);
        to_host(rank, bytes, memory, sizeof bytes);
        for (size_t i = 0; i < sizeof bytes; i++)
            if (bytes[i] != (i < sizeof bytes - 1 ? root : rank->rank))
                return complain(rank, "broadcast brings something else", HS_U8, i);
    }
    if (hs_comm_all_reduce(rank->comm, rank->stream, counters, 2, HS_I64, HS_COMM_SUM) != HS_OK ||
        counters[0] != rank->size * (rank->size - 1) / 2 || counters[1] != rank->size)
        return complain(rank, "sums of the host's counters", HS_I64, 2);
    counters[0] = rank->rank;
    if (hs_comm_all_reduce(rank->comm, NULL, counters, 1, HS_I64, HS_COMM_MAX) != HS_OK ||
        counters[0] != rank->size - 1)
        return complain(rank, "maximum of the host's flags", HS_I64, 1);
    if (hs_comm_all_reduce(rank->comm, rank->stream, sums, 3, HS_F64, HS_COMM_SUM) != HS_OK ||
        sums[0] != tree(HS_F64, 0, rank->size, 0, HS_COMM_SUM) || sums[1] != tree(HS_F64, 0, rank->size, 1, 0) ||
        sums[2] != rank->size)
        return complain(rank, "sums of the host's losses", HS_F64, 3);
    if (hs_comm_barrier(rank->comm) != HS_OK)
        return complain(rank, "barrier", HS_I64, 1);
    if (hs_comm_can_be_recorded(rank->comm) || rank->device.graph_begin(&rank->device, rank->stream) != HS_OK ||
        hs_comm_barrier(rank->comm) != HS_OK ||
        hs_comm_all_reduce(rank->comm, rank->stream, counters, 1, HS_I64, HS_COMM_SUM) != HS_EUNSUPPORTED ||
        rank->device.graph_end(&rank->device, rank->stream, &graph) != HS_OK)
        return complain(rank, "a recording", HS_I64, 1);
    rank->device.graph_destroy(&rank->device, graph);
    return true;
}

Test(nccl, hosts_buffers_broadcasts_and_barriers, .timeout = 60)
{
    for (int size = 2; size <= RANKS_MOST; size++)
        expect_all_right(&(Scene){ .size = size, .exact = true, .seed = 10 + size, .body = the_rest }, "the rest");
}

typedef struct Job {
    HsComm *comm;
    Array *array;
    HsDtype dtype;
} Job;

static void *reduce_by_threads(void *argument)
{
    Job *job = argument;
    hs_comm_all_reduce(job->comm, NULL, job->array, COUNT_MOST, job->dtype, HS_COMM_SUM);
    return NULL;
}

/* Threads of this process as the ranks; numbers of all sizes, and an infinity. */
static bool same_as_threads(Rank *rank)
{
    static Array arrays[RANKS_MOST], by_nccl;
    pthread_t threads[RANKS_MOST];
    Job jobs[RANKS_MOST];
    void *memory = device_memory(rank, sizeof(Array));
    for (int t = 0; t < TYPES; t++) {
        const size_t bytes = COUNT_MOST * hs_dtype_bytes(types[t]);
        HsCommThreads *group;
        if (hs_comm_threads_create(rank->size, &group) != HS_OK)
            return complain(rank, "threads", types[t], 0);
        for (int r = 0; r < rank->size; r++) {
            for (size_t i = 0; i < COUNT_MOST; i++)
                hs_dtype_store(types[t], &arrays[r], (int64_t)i,
                               sin((double)(i * 8 + (size_t)r)) *
                                   pow(2.0, (double)(i * 31 + (size_t)r * 7) / 200.0 - 300.0 * (types[t] != HS_I64)));
            hs_dtype_store(types[t], &arrays[r], 5, types[t] == HS_I64 ? 0 : r == 1 ? INFINITY : 1.0);
        }
        to_device(rank, memory, &arrays[rank->rank], bytes);
        if (hs_comm_all_reduce(rank->comm, rank->stream, memory, COUNT_MOST, types[t], HS_COMM_SUM) != HS_OK)
            return complain(rank, "all_reduce failed", types[t], COUNT_MOST);
        to_host(rank, &by_nccl, memory, bytes);
        for (int r = 0; r < rank->size; r++) {
            jobs[r] = (Job){ hs_comm_threads_rank(group, r), &arrays[r], types[t] };
            pthread_create(&threads[r], NULL, reduce_by_threads, &jobs[r]);
        }
        for (int r = 0; r < rank->size; r++)
            pthread_join(threads[r], NULL);
        hs_comm_threads_destroy(group);
        if (memcmp(&by_nccl, &arrays[0], bytes) != 0)
            return complain(rank, "NCCL's bits are not those of threads", types[t], COUNT_MOST);
    }
    return true;
}

Test(nccl, the_bits_of_threads, .timeout = 60)
{
    expect_all_right(&(Scene){ .size = 3, .exact = true, .body = same_as_threads }, "threads");
    expect_all_right(&(Scene){ .size = 4, .exact = true, .body = same_as_threads }, "threads");
}

/* The library's own sums: near, the same on all ranks, and not the tree's. */
static bool library_sums(Rank *rank)
{
    static Array array, first;
    const size_t bytes = COUNT_MOST * sizeof(float);
    int64_t others = 0;
    void *memory = device_memory(rank, sizeof(Array));
    fill(HS_F32, rank->rank, COUNT_MOST, &array);
    to_device(rank, memory, &array, bytes);
    if (hs_comm_all_reduce(rank->comm, rank->stream, memory, COUNT_MOST, HS_F32, HS_COMM_SUM) != HS_OK)
        return complain(rank, "all_reduce failed", HS_F32, COUNT_MOST);
    to_host(rank, &array, memory, bytes);
    if (hs_comm_broadcast(rank->comm, rank->stream, memory, COUNT_MOST, HS_F32, 0) != HS_OK)
        return complain(rank, "broadcast failed", HS_F32, COUNT_MOST);
    to_host(rank, &first, memory, bytes);
    if (memcmp(&array, &first, bytes) != 0)
        return complain(rank, "ranks hold different bits", HS_F32, COUNT_MOST);
    for (size_t i = 0; i < COUNT_MOST; i++) {
        const double by_tree = tree(HS_F32, 0, rank->size, i, HS_COMM_SUM);
        if (fabs(array.f32[i] - by_tree) > 4 * 210 * 0x1p-23)
            return complain(rank, "a sum is far off", HS_F32, i);
        others += (double)array.f32[i] != by_tree;
    }
    return others > 0 || complain(rank, "every sum is the tree's", HS_F32, COUNT_MOST);
}

Test(nccl, sums_in_the_librarys_order, .timeout = 60)
{
    expect_all_right(&(Scene){ .size = 3, .exact = false, .body = library_sums }, "the library's sums");
    expect_all_right(&(Scene){ .size = 4, .exact = false, .body = library_sums }, "the library's sums");
}

/* --- mistakes --- */

static bool some(const Outcome *outcome, int size, const char *words)
{
    for (int r = 0; r < size; r++)
        if (strstr(outcome->reports[r], words))
            return true;
    return false;
}

static bool wrong_order(Rank *rank)
{
    double *memory = device_memory(rank, 64 * sizeof *memory);
    const size_t starts[] = { 0, 32, 64 };
    for (int i = 0; i < 2; i++)
        if ((i + rank->rank) % 2 == 0)
            hs_comm_all_gather(rank->comm, rank->stream, memory, starts, HS_F64);
        else
            hs_comm_all_reduce(rank->comm, rank->stream, memory, 64, HS_F64, HS_COMM_SUM);
    return rank->device.stream_sync(&rank->device, rank->stream) == HS_OK;
}

static bool wrong_count(Rank *rank)
{
    int64_t *memory = device_memory(rank, 64 * sizeof *memory);
    hs_comm_all_reduce(rank->comm, rank->stream, memory, rank->rank == 0 ? 64 : 63, HS_I64, HS_COMM_SUM);
    return rank->device.stream_sync(&rank->device, rank->stream) == HS_OK;
}

static bool wrong_memory(Rank *rank)
{
    int64_t *memory = device_memory(rank, 64 * sizeof *memory);
    hs_comm_all_reduce(rank->comm, rank->stream, memory + 1, 64, HS_I64, HS_COMM_SUM);
    return rank->device.stream_sync(&rank->device, rank->stream) == HS_OK;
}

Test(nccl, mistakes_are_named, .timeout = 60)
{
    static const struct {
        const char *name, *words;
        bool (*body)(Rank *rank);
    } rows[] = {
        { "order", "ranks do different things: this one nccl", wrong_order },
        { "count", "ncclAllReduce of 63 int64, sum", wrong_count },
        { "memory", "goes beyond its allocation", wrong_memory },
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const Outcome outcome = run_ranks(&(Scene){ .size = 2, .exact = false, .body = rows[i].body });
        cr_expect(some(&outcome, 2, rows[i].words), "%s: %s | %s", rows[i].name, outcome.reports[0],
                  outcome.reports[1]);
        cr_expect_lt(outcome.seconds, 10.0, "%s took %.1f s", rows[i].name, outcome.seconds);
    }
}

/* The result is read on another stream, which does not wait for the first. */
static bool missing_wait(Rank *rank)
{
    double *memory = device_memory(rank, 8 * sizeof *memory), values[8];
    HsStream *other;
    if (rank->device.stream_create(&rank->device, &other) != HS_OK)
        return false;
    for (int i = 0; i < 8; i++)
        values[i] = 1.0;
    to_device(rank, memory, values, sizeof values);
    if (rank->device.stream_sync(&rank->device, rank->stream) != HS_OK)
        return false;
    usleep(rank->rank == 0 ? 0 : 200000);
    hs_comm_all_reduce(rank->comm, rank->stream, memory, 8, HS_F64, HS_COMM_SUM);
    if (rank->rank == 0) {
        rank->device.copy(&rank->device, other, values, memory, sizeof values);
        rank->device.stream_sync(&rank->device, other);
        fprintf(stderr, isnan(values[0]) ? "poisoned\n" : values[0] == 1.0 ? "stale\n" : "there\n");
    }
    rank->device.stream_destroy(&rank->device, other);
    return rank->device.stream_sync(&rank->device, rank->stream) == HS_OK;
}

Test(nccl, a_result_used_too_early_is_poisoned, .timeout = 60)
{
    int poisoned = 0, there = 0;
    for (int seed = 1; seed <= 6; seed++) {
        const Outcome outcome = run_ranks(&(Scene){ .size = 2, .seed = seed, .body = missing_wait });
        poisoned += strstr(outcome.reports[0], "poisoned") != NULL;
        there += strstr(outcome.reports[0], "there") != NULL;
    }
    cr_expect_gt(poisoned, 0, "the poison was never seen");
    cr_expect_eq(there, 0, "a result was there before its time %d times", there);
}

/* --- failures --- */

static bool reduce_for_ever(Rank *rank)
{
    int64_t *memory = device_memory(rank, 64 * sizeof *memory);
    HsStatus status = HS_OK;
    for (int step = 0; step < 50 && status == HS_OK; step++) {
        hs_comm_note_step(rank->comm, step);
        status = hs_comm_all_reduce(rank->comm, rank->stream, memory, 64, HS_I64, HS_COMM_SUM);
        if (status == HS_OK)
            status = rank->device.stream_sync(&rank->device, rank->stream);
        if (status == HS_OK && step == 20 && rank->rank == 0 && getenv("HALFSTEP_NCCL_FAULT") == NULL)
            hs_comm_abort(rank->comm, "the disk is full");
    }
    fprintf(stderr, "%d: %s\n", (int)status, hs_error_message());
    /* A rank that continues gets the same error, at once. */
    if (hs_comm_barrier(rank->comm) != HS_EDEVICE)
        return false;
    rank->device.release(&rank->device, memory);
    return status == HS_EDEVICE;
}

Test(nccl, failures_end_all_ranks, .timeout = 120)
{
    static const struct {
        const char *fault;
        int dies;
        const char *own, *others; /* words of rank 1's (or 0's, which aborts) report, and of the others' */
    } rows[] = {
        { "1,7,error", -1, "gave up: NCCL: unhandled system error", "gave up: NCCL: unhandled system error" },
        { "1,9,async", -1, "gave up: NCCL: remote process exited", "gave up: NCCL: remote process exited" },
        { "1,8,hang", -1, "for the other ranks, as long as it may", "for the other ranks, as long as it may" },
        { "1,6,die", 1, "", "step 5" },
        { NULL, -1, "gave up: the disk is full", "gave up: the disk is full" },
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const Scene scene = { .size = 3, .fault = rows[i].fault, .timeout_s = 1.0, .body = reduce_for_ever };
        const Outcome outcome = run_ranks(&scene);
        const char *name = rows[i].fault ? rows[i].fault : "abort";
        for (int r = 0; r < 3; r++) {
            const char *words = r == 1 ? rows[i].own : rows[i].others;
            cr_expect_eq(outcome.codes[r], r == rows[i].dies ? 128 + 9 : 0, "%s: rank %d: code %d: %s", name, r,
                         outcome.codes[r], outcome.reports[r]);
            cr_expect(strstr(outcome.reports[r], words) != NULL, "%s: rank %d: %s", name, r, outcome.reports[r]);
        }
        cr_expect_lt(outcome.seconds, 8.0, "%s took %.1f s", name, outcome.seconds);
    }
}

/* --- the library --- */

static void expect_refused(const char *part_name, const char *library, const char *version, const char *words)
{
    fflush(NULL);
    FILE *file = tmpfile();
    const pid_t child = fork();
    if (child == 0) {
        const HsBackendPart *part;
        unsigned char id[HS_COMM_NCCL_ID_BYTES];
        setenv("HALFSTEP_NCCL", library, 1);
        if (version)
            setenv("HALFSTEP_NCCL_VERSION", version, 1);
        if (hs_part_open(part_name, &part) != HS_OK)
            _exit(4); /* this build has none */
        const HsStatus status = part->comm_id(id);
        fprintf(file, "%s", hs_error_message());
        fflush(file);
        _exit(status == HS_EUNSUPPORTED ? 0 : 1);
    }
    char message[1024];
    int status;
    waitpid(child, &status, 0);
    rewind(file);
    message[fread(message, 1, sizeof message - 1, file)] = '\0';
    fclose(file);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 4)
        return;
    cr_expect(WIFEXITED(status) && WEXITSTATUS(status) == 0, "%s: status %x: %s", library, status, message);
    cr_expect(strstr(message, words) != NULL, "%s: %s", library, message);
}

Test(nccl, libraries_that_cannot_be_used, .timeout = 20)
{
    expect_refused("emu", "/nowhere/libnccl.so.2", NULL, "cannot be opened: /nowhere/libnccl.so.2");
    expect_refused("emu", "libm.so.6", NULL, "libm.so.6 is not the stand-in");
    expect_refused("emu", "libhalfstep-nccl-standin.so", "2808", "older than 2.14");
    expect_refused("cuda", "/nowhere/libnccl.so.2", NULL, "install NCCL 2.14 or later");
    expect_refused("cuda", "libm.so.6", NULL, "has no ncclGetVersion");
    expect_refused("cuda", "libhalfstep-nccl-standin.so", NULL, "is the emulator's stand-in");
}
