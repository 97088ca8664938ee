/* SPDX-License-Identifier: MIT
 *
 * What the benchmark programs share: a device by name, random tensors on it, and times by the device's own events.
 *
 *     PROGRAM [--device cuda|emu] [--seconds S] [--tiny] [--json FILE] [more]
 *
 * Contenders for the same work are timed in turn within one run (a, b, a, b, ...), so that clocks and heat favour none,
 * and the median of the rounds counts.  Inputs are random: zeros let a GPU run faster than training ever does.  Tables
 * go to the standard output as Markdown, the same figures as JSON lines to FILE.
 */
#ifndef HS_BENCH_BENCH_H
#define HS_BENCH_BENCH_H

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "kernels/parts/part.h"

typedef struct Bench {
    const char *program, *device_name;
    const HsTuner *tuner; /* what prescribes the kernels of products on the device */
    HsDevice device;
    HsContext context;
    double seconds; /* for one comparison, all its contenders together */
    bool tiny;      /* sizes for an emulator: the program is being tested, not the hardware */
    FILE *json;
} Bench;

/* One contender: `call` runs the work once on `context`'s stream. */
typedef struct BenchContender {
    HsContext *context;
    HsStatus (*call)(HsContext *context, const void *arguments);
    const void *arguments;
    double median_ms; /* out */
} BenchContender;

enum { BENCH_MOST_CONTENDERS = 12, BENCH_MOST_ROUNDS = 101 };

static inline int bench_fail(const Bench *bench)
{
    fprintf(stderr, "%s: %s\n", bench->program, hs_error_message());
    return 1;
}

/* Opens a device with a stream: cuda or emu. */
static inline HsStatus bench_device(HsDevice *device, HsContext *context, const char *name, HsCudaOptions options)
{
    const HsBackendPart *part;
    *context = (HsContext){ .device = device, .threads = 1 };
    HS_TRY(hs_part_open(name, &part));
    HS_TRY(part->device_init(device, &options));
    context->backend = part->backend;
    return device->stream_create(device, &context->stream);
}

/* Gives back what bench_device took; safe after its failure. */
static inline void bench_device_close(HsDevice *device, HsContext *context)
{
    if (context->stream)
        device->stream_destroy(device, context->stream);
    hs_device_deinit(device);
}

/* Reads the common options; *more is the first argument that is none of them (NULL: none). */
static inline HsStatus bench_open(Bench *bench, int argc, char **argv, const char **more)
{
    *bench = (Bench){ .program = argv[0], .device_name = "emu", .seconds = 0.25 };
    *more = NULL;
    for (int i = 1; i < argc; i++) {
        const bool has_value = i + 1 < argc;
        if (strcmp(argv[i], "--tiny") == 0)
            bench->tiny = true;
        else if (strcmp(argv[i], "--device") == 0 && has_value)
            bench->device_name = argv[++i];
        else if (strcmp(argv[i], "--seconds") == 0 && has_value)
            bench->seconds = strtod(argv[++i], NULL);
        else if (strcmp(argv[i], "--json") == 0 && has_value) {
            bench->json = fopen(argv[++i], "a");
            if (bench->json == NULL)
                return hs_fail(HS_EIO, "%s: cannot be written", argv[i]);
        } else if (argv[i][0] != '-' && *more == NULL)
            *more = argv[i];
        else
            return hs_fail(HS_EINVAL, "%s is not known; [--device NAME] [--seconds S] [--tiny] [--json FILE]", argv[i]);
    }
    const HsBackendPart *part;
    HS_TRY(hs_part_open(bench->device_name, &part));
    bench->tuner = part->tuner;
    return bench_device(&bench->device, &bench->context, bench->device_name, (HsCudaOptions){ 0 });
}

static inline void bench_close(Bench *bench)
{
    if (bench->json)
        fclose(bench->json);
    bench_device_close(&bench->device, &bench->context);
}

/* A line of JSON; the format is the whole object. */
__attribute__((format(printf, 2, 3))) static inline void bench_json(const Bench *bench, const char *format, ...)
{
    if (bench->json == NULL)
        return;
    va_list arguments;
    va_start(arguments, format);
    vfprintf(bench->json, format, arguments);
    va_end(arguments);
    fputc('\n', bench->json);
    fflush(bench->json);
}

/* A tensor of numbers around zero with standard deviation `scale`: one random block, repeated. */
static inline HsStatus bench_normal(Bench *bench, HsTensor *tensor, double scale)
{
    enum { BLOCK = 1 << 16 };
    HsDevice *device = &bench->device;
    const size_t bytes = hs_tensor_bytes(tensor), block = BLOCK * hs_dtype_bytes(tensor->dtype);
    char *host = malloc(block);
    if (host == NULL)
        return hs_fail(HS_ENOMEM, "%zu bytes of host memory", block);
    const HsRng rng = { .seed = 1, .site = (uint32_t)bytes };
    for (int64_t i = 0; i < BLOCK; i++) {
        const HsPhilox draw = hs_rng_draw(&rng, (uint64_t)i);
        double normal[2];
        hs_rng_normal(draw.word[0], draw.word[1], normal);
        hs_dtype_store(tensor->dtype, host, i, scale * normal[0]);
    }
    HsStatus status = device->alloc(device, bytes, &tensor->data);
    if (status == HS_OK)
        status = device->copy(device, bench->context.stream, tensor->data, host, bytes < block ? bytes : block);
    /* What is there, once more behind itself: host memory comes slowly. */
    for (size_t at = block; status == HS_OK && at < bytes; at *= 2)
        status = device->copy(device, bench->context.stream, (char *)tensor->data + at, tensor->data,
                              bytes - at < at ? bytes - at : at);
    if (status == HS_OK)
        status = device->stream_sync(device, bench->context.stream);
    free(host);
    return status;
}

/* Memory on the device for a tensor, and its bytes there. */
static inline HsStatus bench_upload(Bench *bench, HsTensor *tensor, const void *bytes)
{
    HsDevice *device = &bench->device;
    HS_TRY(device->alloc(device, hs_tensor_bytes(tensor), &tensor->data));
    HS_TRY(device->copy(device, bench->context.stream, tensor->data, bytes, hs_tensor_bytes(tensor)));
    return device->stream_sync(device, bench->context.stream);
}

/* Whole numbers in [0, below). */
static inline HsStatus bench_indices(Bench *bench, HsTensor *tensor, int64_t below)
{
    const int64_t count = hs_tensor_count(tensor);
    int32_t *host = malloc((size_t)count * sizeof *host);
    if (host == NULL)
        return hs_fail(HS_ENOMEM, "%zu bytes of host memory", (size_t)count * sizeof *host);
    const HsRng rng = { .seed = 2 };
    for (int64_t i = 0; i < count; i++)
        host[i] = (int32_t)(hs_rng_draw(&rng, (uint64_t)i).word[0] % (uint64_t)below);
    const HsStatus status = bench_upload(bench, tensor, host);
    free(host);
    return status;
}

static inline void bench_release(Bench *bench, HsTensor *tensor)
{
    if (tensor->data)
        bench->device.release(&bench->device, tensor->data);
    tensor->data = NULL;
}

/* Gives `context` the workspace that a call needs, by a dry run; the caller releases context->workspace. */
static inline HsStatus bench_workspace(BenchContender *contender)
{
    HsContext *context = contender->context;
    context->workspace = NULL;
    context->workspace_needed = 0;
    context->flops = 0.0;
    context->dry_run = true;
    const HsStatus status = contender->call(context, contender->arguments);
    context->dry_run = false;
    context->workspace_bytes = context->workspace_needed;
    if (status != HS_OK || context->workspace_needed == 0)
        return status;
    return context->device->alloc(context->device, context->workspace_needed, &context->workspace);
}

/* Milliseconds of `repeats` calls, by the device's events. */
static inline HsStatus bench_sample(BenchContender *contender, int repeats, HsEvent *start, HsEvent *stop, double *ms)
{
    HsContext *context = contender->context;
    HS_TRY(context->device->event_record(context->device, start, context->stream));
    for (int i = 0; i < repeats; i++)
        HS_TRY(contender->call(context, contender->arguments));
    HS_TRY(context->device->event_record(context->device, stop, context->stream));
    return context->device->event_elapsed_ms(context->device, start, stop, ms);
}

static inline int bench_compare_doubles(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static inline double bench_median(double *values, int count)
{
    qsort(values, (size_t)count, sizeof *values, bench_compare_doubles);
    return count % 2 ? values[count / 2] : 0.5 * (values[count / 2 - 1] + values[count / 2]);
}

static inline HsStatus bench_rounds(const Bench *bench, BenchContender *contenders, int count, HsEvent *start,
                                    HsEvent *stop)
{
    enum { LEAST_ROUNDS = 5, LEAST_SAMPLE_MS = 2, MOST_REPEATS = 200 };
    double times[BENCH_MOST_CONTENDERS][BENCH_MOST_ROUNDS], total = 0.0;
    int repeats[BENCH_MOST_CONTENDERS], rounds = 0;
    for (int c = 0; c < count; c++) {
        double warm = 0.0;
        HS_TRY(bench_sample(&contenders[c], bench->tiny ? 1 : 3, start, stop, &warm));
        HS_TRY(bench_sample(&contenders[c], 1, start, stop, &warm));
        /* Launching costs microseconds and events resolve half of one: samples of milliseconds hide both. */
        const double wanted = warm > 0.0 ? LEAST_SAMPLE_MS / warm + 1.0 : MOST_REPEATS;
        repeats[c] = bench->tiny ? 1 : wanted > MOST_REPEATS ? MOST_REPEATS : (int)wanted;
    }
    const int least = bench->tiny ? 1 : LEAST_ROUNDS;
    while (rounds < least || (total < 1e3 * bench->seconds && rounds < BENCH_MOST_ROUNDS && !bench->tiny)) {
        for (int c = 0; c < count; c++) {
            double ms = 0.0;
            HS_TRY(bench_sample(&contenders[c], repeats[c], start, stop, &ms));
            times[c][rounds] = ms / repeats[c];
            total += ms;
        }
        rounds++;
    }
    for (int c = 0; c < count; c++)
        contenders[c].median_ms = bench_median(times[c], rounds);
    return HS_OK;
}

/* Times the contenders in turn.  Each needs its own context; workspaces are made and given back here. */
static inline HsStatus bench_contend(const Bench *bench, BenchContender *contenders, int count)
{
    HsDevice *device = contenders[0].context->device;
    HsEvent *start = NULL, *stop = NULL;
    HsStatus status = device->event_create(device, &start);
    if (status == HS_OK)
        status = device->event_create(device, &stop);
    for (int c = 0; status == HS_OK && c < count; c++)
        status = bench_workspace(&contenders[c]);
    if (status == HS_OK)
        status = bench_rounds(bench, contenders, count, start, stop);
    for (int c = 0; c < count; c++) {
        HsContext *context = contenders[c].context;
        if (context->workspace)
            context->device->release(context->device, context->workspace);
        context->workspace = NULL;
    }
    device->event_destroy(device, start);
    device->event_destroy(device, stop);
    return status;
}

/* The E4M3 or E5M2 code of a whole number from -2 to 2. */
static inline unsigned char bench_code_of(int number, HsDtype format)
{
    const unsigned one = format == HS_E4M3 ? 0x38u : 0x3Cu;
    const int size = number < 0 ? -number : number;
    return (unsigned char)((number < 0 ? 0x80u : 0u) | (size == 0 ? 0u : size == 1 ? one : 0x40u));
}

/* A copy within the device: what a memory can do at most. */
typedef struct BenchCopy {
    void *destination, *source;
    size_t bytes;
} BenchCopy;

static inline HsStatus bench_open_copy(Bench *bench, BenchCopy *copy, size_t bytes)
{
    HsDevice *const device = &bench->device;
    *copy = (BenchCopy){ .bytes = bytes };
    HS_TRY(device->alloc(device, bytes, &copy->source));
    return device->alloc(device, bytes, &copy->destination);
}

static inline HsStatus bench_call_copy(HsContext *context, const void *arguments)
{
    const BenchCopy *const copy = arguments;
    if (context->dry_run)
        return HS_OK;
    return context->device->copy(context->device, context->stream, copy->destination, copy->source, copy->bytes);
}

/* What a GPU's program on the emulator shows is that it runs. */
static inline const char *bench_note(const Bench *bench)
{
    return strcmp(bench->device_name, "emu") == 0 ? "Emulated: these figures say nothing about any hardware.\n\n" : "";
}

#endif
