/* SPDX-License-Identifier: MIT
 *
 * Communicators between processes: every operation over all types and odd counts against a tree of sums worked out here
 * element by element; ranks that call different things; ranks that fail, die, are stopped, leave or do not come.
 *
 *     ranks shared N CASE                        N processes of this host, made here
 *     ranks launched CASE [section.key=value]    one of the processes that mpirun, torchrun or srun started
 *
 * Exit code 0 if every rank saw what it should have.
 */
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "kernels/base/clock.h"
#include "kernels/base/comm_shared.h"
#include "runtime/launch/launch.h"

enum { COUNT_MOST = 40000, FAULTY = 1, RANKS_MOST = 16 };
static const HsDtype types[] = { HS_F32, HS_F64, HS_I64, HS_BF16, HS_F16, HS_U8 };
static const size_t counts[] = { 0, 1, 2, 5, 63, 511, 1025, 4099, COUNT_MOST };
static int wrong;

#define EXPECT(condition, ...)                                                           \
    do {                                                                                 \
        if (!(condition) && wrong++ < 5) {                                               \
            fprintf(stderr, "rank %d, line %d: %s: ", comm->rank, __LINE__, #condition); \
            fprintf(stderr, __VA_ARGS__);                                                \
            fprintf(stderr, "; %s\n", hs_error_message());                               \
        }                                                                                \
    } while (0)

/* Values with sums that are rounded in every float format. */
static double value_of(int rank, size_t i, HsDtype dtype)
{
    const double whole = (double)((int)((i * 37 + (size_t)rank * 101) % 211) - 105);
    if (dtype == HS_U8)
        return fabs(whole);
    return dtype == HS_I64 ? whole * 1e12 : whole / 7.0 * pow(2.0, (double)(rank % 3));
}

static double rounded(HsDtype dtype, double value)
{
    double stored = 0;
    hs_dtype_store(dtype, &stored, 0, value);
    return hs_dtype_load(dtype, &stored, 0);
}

/* Element i of ranks [first, last) by definition. */
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

static void fill(const HsComm *comm, HsDtype dtype, size_t count, void *array)
{
    for (size_t i = 0; i < count; i++)
        hs_dtype_store(dtype, array, (int64_t)i, value_of(comm->rank, i, dtype));
}

/* Ranges of unequal length, one of them empty, with elements around them that no range holds. */
static size_t ranges_of(size_t count, int size, size_t starts[RANKS_MOST + 1])
{
    starts[0] = 1;
    for (int r = 0; r < size; r++)
        starts[r + 1] = starts[r] + (r == 1 ? 0 : count / (size_t)(size + r));
    return starts[size] + 2;
}

static void check_sums(HsComm *comm, HsDtype dtype, size_t count, double *array)
{
    size_t starts[RANKS_MOST + 1];
    for (HsCommOp op = HS_COMM_SUM; op <= HS_COMM_MAX; op++) {
        fill(comm, dtype, count, array);
        EXPECT(hs_comm_all_reduce(comm, NULL, array, count, dtype, op) == HS_OK, "%zu", count);
        for (size_t i = 0; i < count; i++)
            EXPECT(hs_dtype_load(dtype, array, (int64_t)i) == folded(dtype, 0, comm->size, i, op), "%zu of %zu %s", i,
                   count, hs_dtype_name(dtype));
    }
    const size_t all = ranges_of(count, comm->size, starts);
    fill(comm, dtype, all, array);
    EXPECT(hs_comm_reduce_scatter(comm, NULL, array, starts, dtype) == HS_OK, "%zu", count);
    for (size_t i = 0; i < all; i++) {
        const bool own = i >= starts[comm->rank] && i < starts[comm->rank + 1];
        EXPECT(hs_dtype_load(dtype, array, (int64_t)i) == (own ? folded(dtype, 0, comm->size, i, HS_COMM_SUM)
                                                               : rounded(dtype, value_of(comm->rank, i, dtype))),
               "%zu of %zu %s", i, count, hs_dtype_name(dtype));
    }
}

static void check_moves(HsComm *comm, HsDtype dtype, size_t count, double *array)
{
    size_t starts[RANKS_MOST + 1];
    const size_t all = ranges_of(count, comm->size, starts);
    fill(comm, dtype, all, array);
    EXPECT(hs_comm_all_gather(comm, NULL, array, starts, dtype) == HS_OK, "%zu", count);
    for (size_t i = 0; i < all; i++) {
        int owner = comm->rank;
        for (int r = 0; r < comm->size; r++)
            owner = i >= starts[r] && i < starts[r + 1] ? r : owner;
        EXPECT(hs_dtype_load(dtype, array, (int64_t)i) == rounded(dtype, value_of(owner, i, dtype)), "%zu of %zu %s", i,
               count, hs_dtype_name(dtype));
    }
    for (int root = 0; root < comm->size; root++) {
        fill(comm, dtype, count, array);
        EXPECT(hs_comm_broadcast(comm, NULL, array, count, dtype, root) == HS_OK, "%zu", count);
        for (size_t i = 0; i < count; i++)
            EXPECT(hs_dtype_load(dtype, array, (int64_t)i) == rounded(dtype, value_of(root, i, dtype)), "%zu of %zu %s",
                   i, count, hs_dtype_name(dtype));
    }
}

static void case_values(HsComm *comm)
{
    double *array = malloc((COUNT_MOST + 64) * sizeof *array);
    for (size_t t = 0; array && t < sizeof types / sizeof *types; t++)
        for (size_t c = 0; c < sizeof counts / sizeof *counts; c++) {
            if (types[t] != HS_U8)
                check_sums(comm, types[t], counts[c], array);
            check_moves(comm, types[t], counts[c], array);
        }
    EXPECT(array && hs_comm_barrier(comm) == HS_OK && hs_comm_check(comm) == HS_OK, "at the end");
    EXPECT(comm->size == 1 || comm->sent_bytes > 0, "bytes");
    float values[2] = { comm->rank == 0 ? NAN : 1.0f, comm->rank == comm->size - 1 ? INFINITY : 1.0f };
    EXPECT(hs_comm_all_reduce(comm, NULL, values, 2, HS_F32, HS_COMM_SUM) == HS_OK, "what is not finite");
    EXPECT(isnan(values[0]) && isinf(values[1]), "%g %g", values[0], values[1]);
    free(array);
}

/* Many small operations, ranks ahead of and behind each other. */
static void case_busy(HsComm *comm)
{
    unsigned state = 1u + (unsigned)comm->rank;
    static double array[3000];
    for (int round = 0; round < 2000; round++) {
        const size_t count = (size_t)(round * 7 % 3000);
        state = state * 1664525u + 1013904223u;
        if (state >> 26 == 0)
            usleep(200);
        fill(comm, HS_F64, count, array);
        EXPECT(hs_comm_all_reduce(comm, NULL, array, count, HS_F64, HS_COMM_SUM) == HS_OK, "round %d", round);
        for (size_t i = 0; i < count; i += 97)
            EXPECT(array[i] == folded(HS_F64, 0, comm->size, i, HS_COMM_SUM), "round %d", round);
    }
}

static bool says(const char *text)
{
    return strstr(hs_error_message(), text) != NULL;
}

/* All get the error, and may continue together. */
static void case_mismatch(HsComm *comm)
{
    static double values[20000];
    const bool odd = comm->rank == FAULTY;
    EXPECT(hs_comm_all_reduce(comm, NULL, values, odd ? 2 : 1, HS_F64, HS_COMM_SUM) == HS_EDEVICE, "count");
    EXPECT(says("rank 0 all_reduce of 1 f64 (sum), rank 1 all_reduce of 2 f64 (sum)"), "count");
    EXPECT(hs_comm_all_reduce(comm, NULL, values, 20000, odd ? HS_F32 : HS_F64, HS_COMM_SUM) == HS_EDEVICE, "type");
    EXPECT(says("20000 f64 (sum), rank 1 all_reduce of 20000 f32"), "type");
    EXPECT(hs_comm_all_reduce(comm, NULL, values, 1, HS_F64, odd ? HS_COMM_MAX : HS_COMM_SUM) == HS_EDEVICE, "op");
    EXPECT(says("(sum), rank 1 all_reduce of 1 f64 (max)"), "op");
    EXPECT(hs_comm_broadcast(comm, NULL, values, 1, HS_F64, odd) == HS_EDEVICE, "root");
    EXPECT(says("broadcast of 1 f64 from rank 0, rank 1 broadcast of 1 f64 from rank 1"), "root");
    EXPECT((odd ? hs_comm_barrier(comm) : hs_comm_broadcast(comm, NULL, values, 20000, HS_F64, 0)) == HS_EDEVICE,
           "operation");
    EXPECT(says("rank 0 broadcast of 20000 f64 from rank 0, rank 1 barrier"), "operation");
    size_t ranges[RANKS_MOST + 1];
    for (int r = 0; r <= comm->size; r++)
        ranges[r] = (size_t)r * 4 + (r == 1 && odd ? 1 : 0);
    EXPECT(hs_comm_all_gather(comm, NULL, values, ranges, HS_F64) == HS_EDEVICE && says("all_gather of"), "ranges");
    EXPECT(hs_comm_all_reduce(comm, NULL, values, 1, HS_U8, HS_COMM_SUM) == HS_EUNSUPPORTED, "a type without sums");
    fill(comm, HS_F64, 20000, values);
    EXPECT(hs_comm_all_reduce(comm, NULL, values, 20000, HS_F64, HS_COMM_SUM) == HS_OK, "afterwards");
    EXPECT(values[19999] == folded(HS_F64, 0, comm->size, 19999, HS_COMM_SUM), "afterwards");
}

/* Operations until one fails; the message of all others has the texts, and comes within most_s seconds. */
static void expect_failure(HsComm *comm, double most_s, const char *text, const char *text_too)
{
    static double values[100000];
    double before_s = hs_clock_s();
    HsStatus status = HS_OK;
    for (int i = 0; i < 1000000 && status == HS_OK; i++) {
        before_s = hs_clock_s();
        status = hs_comm_all_reduce(comm, NULL, values, i % 2 ? 100000 : 3, HS_F64, HS_COMM_SUM);
    }
    const double waited_s = hs_clock_s() - before_s;
    EXPECT(status == HS_EDEVICE && says(text) && says(text_too), "after %.1f s", waited_s);
    EXPECT(waited_s < most_s, "%.1f s", waited_s);
    EXPECT(hs_comm_barrier(comm) == HS_EDEVICE && says(text), "and for good");
    EXPECT(hs_comm_check(comm) == HS_EDEVICE && says(text), "when asked");
}

/* The faulty rank has its part of the last operation when it fails.  Another, which still waits for its own, may see the
 * failure there already: the message is the same in every operation from then on, and expect_failure reads it. */
static void together(HsComm *comm, int operations)
{
    double value = 1;
    hs_comm_note_step(comm, 17);
    for (int i = 0; i < operations; i++) {
        const HsStatus status = hs_comm_all_reduce(comm, NULL, &value, 1, HS_F64, HS_COMM_MAX);
        const bool seen = i == operations - 1 && comm->rank != FAULTY && status == HS_EDEVICE;
        EXPECT(status == HS_OK || seen, "%d", i);
    }
}

/* Over networks what others know of a rank is as old as its last heartbeat, and it has talked before. */
static void expect_place(HsComm *comm, double most_s, const char *what)
{
    char text[256];
    snprintf(text, sizeof text, "%s%s",
             strcmp(hs_comm_name(comm), "shared memory") != 0 ? "" : ", step 17, all_reduce 5", what);
    expect_failure(comm, most_s, "rank 1 of ", text);
}

static void case_kill(HsComm *comm)
{
    together(comm, 5);
    if (comm->rank == FAULTY)
        raise(SIGKILL);
    expect_place(comm, 5, ") died: its ");
}

static void case_stop(HsComm *comm)
{
    together(comm, 5);
    if (comm->rank == FAULTY)
        raise(SIGSTOP);
    else
        expect_place(comm, 10, ") has been without a heartbeat for");
}

static void case_abort(HsComm *comm)
{
    together(comm, 5);
    if (comm->rank == FAULTY)
        hs_comm_abort(comm, "no memory for 7 tensors");
    expect_place(comm, 1, ") gave up: no memory for 7 tensors");
}

static void case_leave(HsComm *comm)
{
    together(comm, 5);
    if (comm->rank != FAULTY)
        expect_place(comm, 2, ") has ended, and rank ");
}

/* Its heart beats, and it does not come: options.timeout_s is 2 in this case. */
static void case_late(HsComm *comm)
{
    together(comm, 5);
    if (comm->rank == FAULTY)
        sleep(4);
    expect_place(comm, 3.5, ") is alive and has not come for 2 s (distributed.timeout)");
}

static const struct {
    const char *name;
    void (*run)(HsComm *comm);
    int faulty_status; /* of the process of rank FAULTY, as waitpid has it; -1: does not end by itself */
} cases[] = {
    { "values", case_values, 0 }, { "busy", case_busy, 0 },  { "mismatch", case_mismatch, 0 },
    { "kill", case_kill, 9 },     { "stop", case_stop, -1 }, { "abort", case_abort, 0 },
    { "leave", case_leave, 0 },   { "late", case_late, 0 },  { "absent", NULL, 0 },
};

static void run_case(HsComm *comm, const char *name)
{
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        if (strcmp(cases[i].name, name) == 0 && cases[i].run)
            cases[i].run(comm);
}

static int work(HsComm *comm, const char *name)
{
    run_case(comm, name);
    hs_comm_destroy(comm);
    return wrong > 0;
}

static int shared_rank(int descriptor, int rank, const char *name)
{
    const HsCommSharedOptions options = { .join_s = strcmp(name, "absent") == 0 ? 1 : 20,
                                          .timeout_s = strcmp(name, "late") == 0 ? 2 : 0 };
    HsComm *comm;
    const HsStatus status = hs_comm_shared_join(descriptor, rank, &options, &comm);
    if (strcmp(name, "absent") == 0)
        return !(status == HS_EDEVICE && says("these ranks of ") && says("are still absent: 1"));
    if (status == HS_OK)
        return work(comm, name);
    fprintf(stderr, "rank %d: %s\n", rank, hs_error_message());
    return 1;
}

static int run_shared(int size, const char *name)
{
    /* Windows of one page: every operation of some size goes through several pieces. */
    const HsCommSharedOptions options = { .window_bytes = 8192 };
    pid_t processes[RANKS_MOST];
    int descriptor, failures = 0;
    size_t row = 0;
    while (row < sizeof cases / sizeof *cases && strcmp(cases[row].name, name) != 0)
        row++;
    if (row == sizeof cases / sizeof *cases || hs_comm_shared_make(size, &options, &descriptor) != HS_OK)
        return 2;
    for (int r = 0; r < size; r++) {
        processes[r] = 0;
        if (strcmp(name, "absent") == 0 && r == FAULTY)
            continue;
        processes[r] = fork();
        if (processes[r] == 0)
            _exit(shared_rank(descriptor, r, name));
    }
    for (int pass = 0; pass < 2; pass++) /* the faulty one last: it may have to be killed then */
        for (int r = 0; r < size; r++) {
            int status = 0;
            if ((r == FAULTY) != (pass == 1) || processes[r] <= 0)
                continue;
            if (pass == 1 && cases[row].faulty_status == -1)
                kill(processes[r], SIGKILL);
            waitpid(processes[r], &status, 0);
            const int wanted = pass == 0 ? 0 : cases[row].faulty_status == -1 ? SIGKILL : cases[row].faulty_status;
            if (status != wanted) {
                fprintf(stderr, "rank %d ended with status %d\n", r, status);
                failures++;
            }
        }
    close(descriptor);
    return failures > 0;
}

static int run_launched(const char *name, int count, char **overrides)
{
    HsConfig config;
    HsComm *comm;
    HsStatus status = hs_config_load(&config, NULL, count, (const char *const *)overrides);
    const bool loaded = status == HS_OK;
    if (loaded)
        status = hs_launch_join(&config, &comm);
    if (status != HS_OK && loaded)
        hs_config_deinit(&config);
    if (status != HS_OK) {
        fprintf(stderr, "error: %s\n", hs_error_message());
        return status == HS_ECONFIG ? 2 : 1;
    }
    printf("%d ranks by %s, %d on this host, %d on these cores\n", comm->size, hs_comm_name(comm), comm->local_size,
           comm->core_size);
    run_case(comm, name);
    const bool over = hs_comm_check(comm) != HS_OK;
    hs_launch_leave(over ? HS_EDEVICE : HS_OK);
    hs_config_deinit(&config);
    return wrong > 0;
}

int main(int argc, char **argv)
{
    if (argc >= 3 && strcmp(argv[1], "launched") == 0)
        return run_launched(argv[2], argc - 3, argv + 3);
    if (argc == 4 && strcmp(argv[1], "shared") == 0 && atoi(argv[2]) >= 1 && atoi(argv[2]) <= RANKS_MOST)
        return run_shared(atoi(argv[2]), argv[3]);
    fprintf(stderr, "usage: ranks shared N CASE | ranks launched CASE [section.key=value ...]\n");
    return 2;
}
