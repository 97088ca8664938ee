/* SPDX-License-Identifier: MIT
 *
 * What several GPUs of one host exchange, over NCCL: is it right, and how fast?
 *
 *     collectives [--device cuda|emu] [--ranks N] [--seconds S] [--tiny] [--json FILE]
 *
 * N processes, 2 by default, each with its own GPU (on the emulator: an emulated one).  Sums along the tree have to be
 * hs_comm_fold's bits; the library's own are reported by their largest difference from it, in ulps of the largest
 * element.  The bus bandwidth is as nccl-tests defines it (its doc/PERFORMANCE.md), so that it can be held against the
 * links' rate whatever N is: bytes / time x 2 (N - 1) / N for all_reduce, x (N - 1) / N for reduce_scatter and
 * all_gather, where bytes are the whole buffer's.  Times are of the slowest rank, over as many calls as --seconds
 * allow.
 */
#include <math.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bench/bench.h"
#include "kernels/base/clock.h"
#include "kernels/base/comm_fold.h"
#include "kernels/base/comm_shared.h"
#include "kernels/parts/comm.h"

enum { RANKS_MOST = 16, CHECKED = 100003 };

typedef struct Options {
    const char *device, *json;
    int ranks;
    double seconds;
    bool tiny;
} Options;

typedef struct Rank {
    const Options *options;
    Bench bench;
    HsComm *host, *comm; /* of the processes, and of their devices */
} Rank;

static HsStatus call_all_reduce(Rank *rank, void *buffer, const size_t *starts, size_t count, HsDtype dtype)
{
    (void)starts;
    return hs_comm_all_reduce(rank->comm, rank->bench.context.stream, buffer, count, dtype, HS_COMM_SUM);
}

static HsStatus call_reduce_scatter(Rank *rank, void *buffer, const size_t *starts, size_t count, HsDtype dtype)
{
    (void)count;
    return hs_comm_reduce_scatter(rank->comm, rank->bench.context.stream, buffer, starts, dtype);
}

static HsStatus call_all_gather(Rank *rank, void *buffer, const size_t *starts, size_t count, HsDtype dtype)
{
    (void)count;
    return hs_comm_all_gather(rank->comm, rank->bench.context.stream, buffer, starts, dtype);
}

static const struct {
    const char *name;
    double factor; /* of bytes (N - 1) / N in the bus bandwidth */
    HsStatus (*call)(Rank *rank, void *buffer, const size_t *starts, size_t count, HsDtype dtype);
} operations[] = {
    { "all_reduce", 2.0, call_all_reduce },
    { "reduce_scatter", 1.0, call_reduce_scatter },
    { "all_gather", 1.0, call_all_gather },
};

/* --- is it right? --- */

static double value_of(int rank, size_t i)
{
    return sin((double)i * 0.37 + 1.7 * (double)rank) * pow(2.0, (double)(rank % 5));
}

/* The largest difference of `sum` from the tree's, in ulps of the largest element; every rank has it. */
static HsStatus compare(Rank *rank, HsDtype dtype, const void *sum, double *ulps)
{
    const size_t bytes = CHECKED * hs_dtype_bytes(dtype);
    const int size = rank->comm->size;
    unsigned char *parts = malloc(bytes * (size_t)size);
    const void *of_ranks[RANKS_MOST];
    double difference = 0.0, largest = 0.0;
    if (!parts)
        return hs_fail(HS_ENOMEM, "%zu bytes of host memory", bytes * (size_t)size);
    for (int r = 0; r < size; r++) {
        of_ranks[r] = parts + (size_t)r * bytes;
        for (size_t i = 0; i < CHECKED; i++)
            hs_dtype_store(dtype, parts + (size_t)r * bytes, (int64_t)i, value_of(r, i));
    }
    hs_comm_fold(of_ranks, size, CHECKED, dtype, HS_COMM_SUM, parts);
    const bool same = memcmp(parts, sum, bytes) == 0;
    for (size_t i = 0; i < CHECKED; i++) {
        const double tree = hs_dtype_load(dtype, parts, (int64_t)i);
        difference = fmax(difference, fabs(hs_dtype_load(dtype, sum, (int64_t)i) - tree));
        largest = fmax(largest, fabs(tree));
    }
    free(parts);
    *ulps = same ? 0.0 : difference / (largest * hs_dtype_info(dtype)->epsilon);
    int64_t differs = !same, scaled = (int64_t)fmin(1e15, *ulps * 1000.0);
    HS_TRY(hs_comm_all_reduce(rank->host, NULL, &differs, 1, HS_I64, HS_COMM_SUM));
    HS_TRY(hs_comm_all_reduce(rank->host, NULL, &scaled, 1, HS_I64, HS_COMM_MAX));
    *ulps = (double)scaled / 1000.0;
    if (rank->comm->exact && differs > 0)
        return hs_fail(HS_EDEVICE, "all_reduce of %d %s: %lld ranks of %d have other bits than the tree's sum",
                       (int)CHECKED, hs_dtype_name(dtype), (long long)differs, size);
    return HS_OK;
}

static HsStatus check_sums(Rank *rank, HsDtype dtype)
{
    HsDevice *device = &rank->bench.device;
    HsTensor tensor = hs_tensor_1d(NULL, dtype, CHECKED);
    const size_t bytes = hs_tensor_bytes(&tensor);
    void *values = malloc(bytes);
    double ulps = 0.0;
    if (!values)
        return hs_fail(HS_ENOMEM, "%zu bytes of host memory", bytes);
    for (size_t i = 0; i < CHECKED; i++)
        hs_dtype_store(dtype, values, (int64_t)i, value_of(rank->comm->rank, i));
    HsStatus status = bench_upload(&rank->bench, &tensor, values);
    if (status == HS_OK)
        status = call_all_reduce(rank, tensor.data, NULL, CHECKED, dtype);
    if (status == HS_OK)
        status = device->copy(device, rank->bench.context.stream, values, tensor.data, bytes);
    if (status == HS_OK)
        status = device->stream_sync(device, rank->bench.context.stream);
    if (status == HS_OK)
        status = compare(rank, dtype, values, &ulps);
    bench_release(&rank->bench, &tensor);
    free(values);
    if (status == HS_OK && rank->comm->rank == 0) {
        printf("| all_reduce | %s | %s | %d | %.1f |\n", rank->comm->exact ? "tree" : "library", hs_dtype_name(dtype),
               (int)CHECKED, ulps);
        bench_json(&rank->bench,
                   "{\"bench\":\"collectives\",\"check\":\"all_reduce\",\"exact\":%s,\"dtype\":\"%s\",\"ulps\":%.1f}",
                   rank->comm->exact ? "true" : "false", hs_dtype_name(dtype), ulps);
    }
    return status;
}

/* --- how fast? --- */

/* Seconds of one of `calls` calls, on the slowest rank. */
static HsStatus time_calls(Rank *rank, int row, void *buffer, const size_t *starts, size_t count, int64_t calls,
                           double *seconds)
{
    HsDevice *device = &rank->bench.device;
    HS_TRY(hs_comm_barrier(rank->comm));
    const double start = hs_clock_s();
    for (int64_t i = 0; i < calls; i++)
        HS_TRY(operations[row].call(rank, buffer, starts, count, HS_F32));
    HS_TRY(device->stream_sync(device, rank->bench.context.stream));
    int64_t nanoseconds = (int64_t)((hs_clock_s() - start) * 1e9);
    HS_TRY(hs_comm_all_reduce(rank->host, NULL, &nanoseconds, 1, HS_I64, HS_COMM_MAX));
    *seconds = 1e-9 * (double)nanoseconds / (double)calls;
    return HS_OK;
}

static HsStatus time_row(Rank *rank, int row, void *buffer, size_t count)
{
    const int size = rank->comm->size;
    size_t starts[RANKS_MOST + 1];
    double seconds = 0.0;
    for (int r = 0; r <= size; r++)
        starts[r] = hs_comm_share_start(count, size, r);
    HS_TRY(time_calls(rank, row, buffer, starts, count, 2, &seconds)); /* connections are made by the first */
    HS_TRY(time_calls(rank, row, buffer, starts, count, 2, &seconds));
    const double wanted = rank->options->seconds / seconds;
    HS_TRY(time_calls(rank, row, buffer, starts, count,
                      wanted > 1000 ? 1000
                      : wanted < 2  ? 2
                                    : (int64_t)wanted,
                      &seconds));
    const double bytes = 4.0 * (double)count;
    const double bus = bytes / seconds * operations[row].factor * (size - 1) / size * 1e-9;
    if (rank->comm->rank != 0)
        return HS_OK;
    printf("| %s | %s | %.2f MiB | %.3f | %.2f |\n", operations[row].name, rank->comm->exact ? "tree" : "library",
           bytes / (1 << 20), seconds * 1e3, bus);
    bench_json(&rank->bench,
               "{\"bench\":\"collectives\",\"operation\":\"%s\",\"exact\":%s,\"ranks\":%d,\"bytes\":%.0f,\"ms\":%.4f,"
               "\"bus_gb_per_s\":%.2f}",
               operations[row].name, rank->comm->exact ? "true" : "false", size, bytes, seconds * 1e3, bus);
    return HS_OK;
}

static HsStatus time_all(Rank *rank)
{
    static const size_t full[] = { 1 << 18, 1 << 22, 1 << 26 }, tiny[] = { 1 << 12 };
    const size_t *sizes = rank->options->tiny ? tiny : full;
    const int size_count = rank->options->tiny ? 1 : 3;
    HsTensor tensor = hs_tensor_1d(NULL, HS_F32, (int64_t)sizes[size_count - 1]);
    const size_t bytes = hs_tensor_bytes(&tensor);
    HsDevice *device = &rank->bench.device;
    HS_TRY(device->alloc(device, bytes, &tensor.data));
    /* Random numbers would grow to infinity; what the bits are makes no difference to a link. */
    HS_TRY(device->fill_zero(device, rank->bench.context.stream, tensor.data, bytes));
    for (int row = 0; row < (int)(sizeof operations / sizeof *operations); row++)
        for (int s = 0; s < size_count; s++)
            HS_TRY(time_row(rank, row, tensor.data, sizes[s]));
    bench_release(&rank->bench, &tensor);
    return HS_OK;
}

/* --- ranks --- */

static HsStatus with_comm(Rank *rank, bool exact, const char *head, HsStatus (*work)(Rank *rank))
{
    const HsBackendPart *part;
    const HsPartCommOptions options = { .exact = exact, .timeout_s = 60 };
    HS_TRY(hs_part_open(rank->options->device, &part));
    HS_TRY(hs_part_comm_create(part, &rank->bench.device, rank->host, &options, &rank->comm));
    if (rank->host->rank == 0)
        printf("%s", head);
    const HsStatus status = work(rank);
    hs_comm_destroy(rank->comm);
    return status;
}

static HsStatus check_all(Rank *rank)
{
    HS_TRY(check_sums(rank, HS_F32));
    return check_sums(rank, HS_BF16);
}

static HsStatus run_rank(Rank *rank)
{
    const HsCudaOptions cuda = { .index = strcmp(rank->options->device, "emu") == 0 ? 0 : rank->host->rank };
    HS_TRY(bench_device(&rank->bench.device, &rank->bench.context, rank->options->device, cuda));
    HS_TRY(with_comm(rank, true,
                     "| operation | sums by | type | elements | ulps from the tree |\n|---|---|---|---|---|\n",
                     check_all));
    HS_TRY(with_comm(rank, false, "", check_all));
    HS_TRY(with_comm(rank, true, "\n| operation | sums by | f32 bytes | ms | bus GB/s |\n|---|---|---|---|---|\n",
                     time_all));
    return with_comm(rank, false, "", time_all);
}

static int live(const Options *options, int descriptor, int number)
{
    Rank rank = { .options = options, .bench = { .program = "collectives" } };
    const HsCommSharedOptions shared = { .join_s = 60 };
    HsStatus status = hs_comm_shared_join(descriptor, number, &shared, &rank.host);
    if (status == HS_OK && number == 0 && options->json && !(rank.bench.json = fopen(options->json, "a")))
        status = hs_fail(HS_EIO, "%s: cannot be written", options->json);
    if (status == HS_OK)
        status = run_rank(&rank);
    if (status != HS_OK)
        fprintf(stderr, "collectives: rank %d: %s\n", number, hs_error_message());
    if (status != HS_OK && rank.host)
        hs_comm_abort(rank.host, hs_error_message());
    bench_close(&rank.bench);
    hs_comm_destroy(rank.host);
    return status == HS_OK ? 0 : 1;
}

static bool read_options(int argc, char **argv, Options *options)
{
    for (int i = 1; i < argc; i++) {
        const bool has_value = i + 1 < argc;
        if (strcmp(argv[i], "--tiny") == 0)
            options->tiny = true;
        else if (strcmp(argv[i], "--device") == 0 && has_value)
            options->device = argv[++i];
        else if (strcmp(argv[i], "--json") == 0 && has_value)
            options->json = argv[++i];
        else if (strcmp(argv[i], "--seconds") == 0 && has_value)
            options->seconds = strtod(argv[++i], NULL);
        else if (strcmp(argv[i], "--ranks") == 0 && has_value)
            options->ranks = atoi(argv[++i]);
        else
            return false;
    }
    return options->ranks >= 2 && options->ranks <= RANKS_MOST;
}

int main(int argc, char **argv)
{
    Options options = { .device = "emu", .ranks = 2, .seconds = 0.25 };
    int descriptor, failures = 0;
    pid_t ranks[RANKS_MOST];
    if (!read_options(argc, argv, &options)) {
        fprintf(stderr, "collectives [--device cuda|emu] [--ranks 2 to %d] [--seconds S] [--tiny] [--json FILE]\n",
                (int)RANKS_MOST);
        return 2;
    }
    if (hs_comm_shared_make(options.ranks, &(HsCommSharedOptions){ .join_s = 60 }, &descriptor) != HS_OK) {
        fprintf(stderr, "collectives: %s\n", hs_error_message());
        return 1;
    }
    for (int r = 0; r < options.ranks; r++) {
        ranks[r] = fork(); /* before anything of CUDA's */
        if (ranks[r] == 0) {
            const int code = live(&options, descriptor, r);
            fflush(stdout);
            _exit(code);
        }
        failures += ranks[r] < 0;
    }
    for (int r = 0; r < options.ranks; r++) {
        int status = 0;
        if (ranks[r] > 0)
            failures += waitpid(ranks[r], &status, 0) != ranks[r] || status != 0;
    }
    return failures > 0;
}
