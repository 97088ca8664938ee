/* SPDX-License-Identifier: MIT
 *
 * Every operation's error and speed on every backend, under the machine's own roofline.
 *
 *     ops [--device NAME]... [--op NAME]... [--json FILE] [--quick]      default: ref, cpu, emu, and cuda where it is
 *
 * Errors: the cases of the self-test, each difference from the exact result as a share of what the arithmetic allows
 * (runtime/selftest).  Speed: shapes as training GPT-2 124M on 4096 tokens has them, or a Llama of its size for what
 * GPT-2 lacks; those bound by memory are enlarged until no cache holds them.  Limits are measured in the same run,
 * before each operation, and the best counts: products of each format, and moving memory; the ridge point is where an
 * operation does enough operations a byte for products to bind it.
 *
 * Two devices are here for their errors alone.  emu runs the GPU's kernels on the CPU: a speed would say nothing.  ref
 * is the oracle: it is compared, in the case's own formats, with itself in f64, and its speed, on smaller shapes, has
 * no limit.  --quick: a pairwise covering of the cases and one small timed case of each operation.  A Markdown page goes to the
 * standard output, a JSON object a line to FILE.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runtime/engine/engine.h"
#include "runtime/io/json.h"
#include "runtime/selftest/selftest.h"

enum { MOST_DEVICES = 8, MOST_OPS = 64, TEXT = 256 };

static const HsDtype product_dtypes[] = { HS_F32, HS_BF16, HS_F16 };

typedef struct Options {
    const char *devices[MOST_DEVICES];
    int device_count;
    int ops[MOST_OPS];
    int op_count; /* 0: all */
    bool quick;
    FILE *json;
} Options;

static HsStatus read_option(Options *options, const char *name, const char *value)
{
    if (strcmp(name, "--device") == 0 && options->device_count < MOST_DEVICES) {
        options->devices[options->device_count++] = value;
        return HS_OK;
    }
    if (strcmp(name, "--op") == 0 && options->op_count < MOST_OPS)
        return hs_selftest_find(value, &options->ops[options->op_count++]);
    if (strcmp(name, "--json") == 0 && options->json == NULL) {
        options->json = fopen(value, "a");
        return options->json ? HS_OK : hs_fail(HS_EIO, "%s: cannot be written", value);
    }
    return hs_fail(HS_EINVAL,
                   "%s is not known, or too often there; [--device NAME]... [--op NAME]... [--json FILE] "
                   "[--quick]",
                   name);
}

static HsStatus read_options(Options *options, int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--quick") == 0)
            options->quick = true;
        else if (i + 1 == argc)
            return hs_fail(HS_EINVAL, "%s: an option's value is missing, or it is not known", argv[i]);
        else {
            HS_TRY(read_option(options, argv[i], argv[i + 1]));
            i++;
        }
    }
    return HS_OK;
}

/* A line of JSON; takes the object. */
static void write_json(const Options *options, HsJson *object)
{
    char *line = options->json ? hs_json_write(object, false) : NULL;
    if (line)
        fprintf(options->json, "%s\n", line);
    free(line);
    hs_json_destroy(object);
}

static void print_roofline(const Options *options, const HsEngine *engine, const HsRoofline *roofline)
{
    HsJson *object = hs_json_object();
    hs_json_set_string(object, "bench", "roofline");
    hs_json_set_string(object, "device", engine->context.backend->name);
    hs_json_set_real(object, "bytes_per_second", roofline->bytes);
    printf("| limit | measured peak | ridge point |\n|---|---|---|\n");
    for (int i = 0; i < HS_COUNT_OF(product_dtypes); i++) {
        const double flops = roofline->flops[product_dtypes[i]];
        const char *name = hs_dtype_name(product_dtypes[i]);
        char key[TEXT];
        snprintf(key, sizeof key, "%s_flops_per_second", name);
        hs_json_set_real(object, key, flops);
        if (flops > 0.0 && roofline->bytes > 0.0)
            printf("| products, %s | %.0f GFLOP/s | %.1f operations a byte |\n", name, flops * 1e-9,
                   flops / roofline->bytes);
        else if (flops > 0.0)
            printf("| products, %s | %.0f GFLOP/s | |\n", name, flops * 1e-9);
    }
    if (roofline->bytes > 0.0)
        printf("| memory | %.1f GB/s | |\n", roofline->bytes * 1e-9);
    printf("\n");
    write_json(options, object);
}

/* The cells behind an operation's errors. */
static void print_timing(const HsOpTiming *timing)
{
    char described[TEXT];
    printf(" %s | %.4g |", hs_case_describe(&timing->config, described, sizeof described), timing->seconds * 1e3);
    const char *bound = hs_bound_name(timing->bound), *unit = timing->bound == HS_BOUND_PRODUCTS ? "GFLOP/s" : "GB/s";
    if (timing->bound == HS_BOUND_LATENCY)
        printf(" | %s | |\n", bound);
    else if (timing->limit > 0.0)
        printf(" %.1f %s | %s | %.0f%% |\n", timing->rate * 1e-9, unit, bound, 100.0 * timing->rate / timing->limit);
    else
        printf(" %.1f %s | %s | |\n", timing->rate * 1e-9, unit, bound);
}

static void print_head(bool timed)
{
    printf("| operation | cases | worst error / tolerance |%s\n",
           timed ? " timed case | ms | rate | bound by | share of the limit |" : "");
    printf("|---|---|---|%s\n", timed ? "---|---|---|---|---|" : "");
}

static void print_report(const HsOpReport *report, bool timed)
{
    printf("| %s | %d | %.3g%s |", report->name, report->cases, report->worst, report->failures ? " **FAILED**" : "");
    if (!timed)
        printf("\n");
    else if (report->timing_count == 0)
        printf(" nothing to do on this backend | | | | |\n");
    for (int i = 0; i < report->timing_count; i++) {
        printf("%s", i > 0 ? "| | | |" : "");
        print_timing(&report->timings[i]);
    }
    fflush(stdout);
}

static HsJson *timing_json(const HsOpTiming *timing)
{
    char described[TEXT];
    HsJson *object = hs_json_object();
    hs_json_set_string(object, "case", hs_case_describe(&timing->config, described, sizeof described));
    hs_json_set_real(object, "seconds", timing->seconds);
    hs_json_set_real(object, "flops", timing->flops);
    hs_json_set_real(object, "bytes", timing->bytes);
    hs_json_set_string(object, "bound", hs_bound_name(timing->bound));
    hs_json_set_real(object, "rate", timing->rate);
    hs_json_set_real(object, "limit", timing->limit);
    return object;
}

static void write_report(const Options *options, const HsEngine *engine, const HsOpReport *report)
{
    HsJson *object = hs_json_object(), *timings = hs_json_array();
    hs_json_set_string(object, "bench", "op");
    hs_json_set_string(object, "device", engine->context.backend->name);
    hs_json_set_string(object, "op", report->name);
    hs_json_set_integer(object, "cases", report->cases);
    hs_json_set_integer(object, "failures", report->failures);
    hs_json_set_real(object, "worst", report->worst);
    for (int i = 0; i < report->timing_count; i++)
        hs_json_append(timings, timing_json(&report->timings[i]));
    hs_json_set(object, "timings", timings);
    write_json(options, object);
}

/* The failures behind the table's FAILED. */
static void complain(const HsOpReport *report)
{
    char described[TEXT];
    for (int i = 0; i < report->failures && i < HS_COMPLAINTS_KEPT; i++)
        fprintf(stderr, "%s: %s: %s\n", report->name,
                hs_case_describe(report->complaints[i].config, described, sizeof described),
                report->complaints[i].text);
}

/* Measures; the limit that the report holds is the best so far. */
static HsStatus bench_op(const Options *options, HsEngine *engine, int op, HsRoofline *roofline, HsOpReport *report)
{
    HsContext *context = &engine->context;
    const HsSpeedPlan plan = hs_speed_plan(context, options->quick);
    if (isatty(STDERR_FILENO))
        fprintf(stderr, "\r%-20s", hs_selftest_name(op));
    HS_TRY(hs_selftest_check_all(context, 1, op, (HsCaseChoice){ .pairs = options->quick }, report));
    if (engine->emulated)
        return HS_OK;
    hs_roofline_measure(context, roofline);
    return hs_selftest_time(context, op, roofline, &plan, options->quick ? 1 : HS_OP_TIMINGS, report);
}

static void print_device(const Options *options, const HsEngine *engine, const HsRoofline *roofline,
                         HsOpReport *reports, int count)
{
    if (engine->emulated)
        printf("Errors only: the GPU's kernels, emulated, have no speed.\n\n");
    else if (engine->context.backend == hs_backend_ref())
        printf("The oracle, against itself in f64. It is made to be read: its speed is here for scale.\n\n");
    else
        print_roofline(options, engine, roofline);
    print_head(!engine->emulated);
    for (int i = 0; i < count; i++) {
        for (int t = 0; t < reports[i].timing_count; t++)
            hs_speed_judge(&reports[i].timings[t], roofline);
        print_report(&reports[i], !engine->emulated);
        write_report(options, engine, &reports[i]);
        complain(&reports[i]);
    }
}

static HsStatus bench_device(const Options *options, HsEngine *engine, int *failures)
{
    const int count = options->op_count ? options->op_count : hs_selftest_count();
    HsRoofline roofline = { 0 };
    HsOpReport *reports = calloc((size_t)count, sizeof *reports);
    HsStatus status = reports ? HS_OK : hs_fail(HS_ENOMEM, "%zu bytes for reports", (size_t)count * sizeof *reports);
    for (int i = 0; status == HS_OK && i < count; i++) {
        status = bench_op(options, engine, options->op_count ? options->ops[i] : i, &roofline, &reports[i]);
        *failures += reports[i].failures;
    }
    printf("\n## %s\n\n", engine->why);
    if (status == HS_OK)
        print_device(options, engine, &roofline, reports, count);
    free(reports);
    return status;
}

static HsStatus bench_all(const Options *options, int *failures)
{
    static const char *const usual[] = { "ref", "cpu", "emu", "cuda" };
    const bool chosen = options->device_count > 0;
    const int count = chosen ? options->device_count : HS_COUNT_OF(usual);
    printf("# Operations\n");
    for (int i = 0; i < count; i++) {
        HsEngine engine;
        const HsEngineOptions wanted = { .device = chosen ? options->devices[i] : usual[i] };
        const HsStatus opened = hs_engine_init(&engine, &wanted);
        if (opened == HS_EUNSUPPORTED && !chosen) {
            printf("\n## %s\n\nNot measured: %s\n", wanted.device, hs_error_message());
            continue;
        }
        HS_TRY(opened);
        const HsStatus status = bench_device(options, &engine, failures);
        hs_engine_deinit(&engine);
        HS_TRY(status);
    }
    return HS_OK;
}

int main(int argc, char **argv)
{
    Options options = { 0 };
    int failures = 0;
    HsStatus status = read_options(&options, argc, argv);
    if (status == HS_OK)
        status = bench_all(&options, &failures);
    if (status != HS_OK)
        fprintf(stderr, "ops: %s\n", hs_error_message());
    if (options.json)
        fclose(options.json);
    return status != HS_OK || failures > 0;
}
