/* SPDX-License-Identifier: MIT
 *
 * The figures behind the self-test's lines and bench/ops's tables: that every operation is there, that rates follow
 * from bytes, operations and seconds, that cases bound by memory are beyond caches, and what the probes of the machine
 * may say.  Times themselves are not tested.
 */
#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

#include "kernels/cpu/cpu.h"
#include "runtime/selftest/selftest.h"
#include "tests/support/emulator.h"

typedef struct Fixture {
    HsDevice device;
    HsContext context;
} Fixture;

static void open_backend(Fixture *fixture, const HsBackend *backend)
{
    cr_assert_eq(hs_device_host_init(&fixture->device), HS_OK, "%s", hs_error_message());
    fixture->context = (HsContext){ .backend = backend, .device = &fixture->device, .threads = 1 };
}

static void open_cpu(Fixture *fixture)
{
    const HsBackend *backend;
    cr_assert_eq(hs_backend_cpu(&backend), HS_OK, "%s", hs_error_message());
    open_backend(fixture, backend);
}

/* A machine with its ridge point at eight operations a byte. */
static HsRoofline known_roofline(void)
{
    HsRoofline roofline = { .bytes = 1e9 };
    for (int i = 0; i < HS_DTYPE_COUNT; i++)
        roofline.flops[i] = 8e9;
    return roofline;
}

static int find(const char *name)
{
    int op;
    cr_assert_eq(hs_selftest_find(name, &op), HS_OK, "%s", hs_error_message());
    return op;
}

Test(selftest_report, every_operation_is_there_once)
{
#define NAME(op, Args, formula) #op,
    static const char *const names[] = { HS_OPS(NAME) };
#undef NAME
    cr_assert_eq(hs_selftest_count(), HS_COUNT_OF(names));
    for (int i = 0; i < HS_COUNT_OF(names); i++) {
        cr_expect_str_eq(hs_selftest_name(i), names[i]);
        cr_expect_eq(find(names[i]), i);
    }
}

/* On the device itself nothing of this is to be seen but the time: small cases, a very short while. */
Test(selftest_report, rates_follow_from_work_and_time)
{
    const HsSpeedPlan plan = { .shrink = 1 << 20, .seconds = 1e-6 };
    const HsRoofline roofline = known_roofline();
    Fixture fixture;
    open_cpu(&fixture);
    for (int op = 0; op < hs_selftest_count(); op++) {
        HsOpReport report = { .name = hs_selftest_name(op) };
        cr_assert_eq(hs_selftest_time(&fixture.context, op, &roofline, &plan, HS_OP_TIMINGS, &report), HS_OK, "%s: %s",
                     report.name, hs_error_message());
        cr_expect_gt(report.timing_count, 0, "%s", report.name);
        for (int i = 0; i < report.timing_count; i++) {
            const HsOpTiming *timing = &report.timings[i];
            const bool products = timing->bound == HS_BOUND_PRODUCTS;
            cr_expect(isfinite(timing->seconds) && timing->seconds > 0.0, "%s", report.name);
            cr_expect_gt(timing->bytes, 0.0, "%s", report.name);
            cr_expect_float_eq(timing->rate * timing->seconds, products ? timing->flops : timing->bytes,
                               1e-9 * (timing->flops + timing->bytes), "%s", report.name);
            if (timing->bound != HS_BOUND_LATENCY) {
                cr_expect_eq(timing->limit, products ? 8e9 : 1e9, "%s", report.name);
                cr_expect_eq(products, timing->flops >= 8.0 * timing->bytes, "%s", report.name);
            }
        }
    }
    cr_expect_eq(fixture.device.current_bytes, (size_t)0, "operands and workspaces were given back");
}

/* A probe that was disturbed only ever says too little: the best counts, and a limit found later moves the verdict. */
Test(selftest_report, limits_are_the_best_of_all_probes)
{
    Fixture fixture;
    open_cpu(&fixture);
    HsRoofline roofline = { .bytes = 1e15 };
    hs_roofline_measure(&fixture.context, &roofline);
    cr_expect_eq(roofline.bytes, 1e15);

    HsOpTiming timing = { .config.dtype = HS_BF16, .seconds = 2.0, .flops = 12e9, .bytes = 1e9 };
    roofline = known_roofline();
    hs_speed_judge(&timing, &roofline); /* 12 operations a byte: 1.5 seconds of products, 1 of memory */
    cr_expect(timing.bound == HS_BOUND_PRODUCTS && timing.rate == 6e9 && timing.limit == 8e9);
    roofline.flops[HS_BF16] = 24e9; /* now half a second of products */
    hs_speed_judge(&timing, &roofline);
    cr_expect(timing.bound == HS_BOUND_MEMORY && timing.rate == 0.5e9 && timing.limit == 1e9);
}

/* The whole tables, by shapes alone. */
Test(selftest_report, memory_bound_cases_grow_beyond_the_plan)
{
    const HsSpeedPlan plan = { .least_bytes = (size_t)1 << 26, .shrink = 1 };
    const HsRoofline roofline = known_roofline();
    Fixture fixture;
    open_cpu(&fixture);
    static const struct {
        const char *op;
        const HsOpTest *test;
        bool grows;
    } rows[] = {
        { "norm_forward", &hs_op_test_norm_forward, true },
        { "adamw", &hs_op_test_adamw, true },
        { "rope", &hs_op_test_rope, true },
        { "attention_cached", &hs_op_test_attention_cached, true },
        { "matmul", &hs_op_test_matmul, false },
        { "attention_forward", &hs_op_test_attention_forward, false },
        { "begin_step", &hs_op_test_begin_step, false },
    };
    for (int i = 0; i < HS_COUNT_OF(rows); i++) {
        HsCase timed;
        cr_assert_eq(hs_speed_case(rows[i].test, &rows[i].test->timed[0], &plan, &roofline, &fixture.context, &timed),
                     HS_OK, "%s: %s", rows[i].op, hs_error_message());
        const HsCase *given = &rows[i].test->timed[0];
        cr_expect_eq(timed.rows > given->rows || timed.columns > given->columns ||
                         timed.heads.batch > given->heads.batch,
                     rows[i].grows, "%s", rows[i].op);
        HsTrial trial = { .test = rows[i].test, .config = &timed };
        trial.test->declare(&trial);
        if (rows[i].grows)
            cr_expect_geq(hs_speed_bytes(&trial, &fixture.context), (double)plan.least_bytes, "%s", rows[i].op);
    }
}

/* Counted by hand: GPT-2's norm, 4096 x 768 f32 in, bf16 out, two f32 statistics a row, weight and bias; AdamW with a
 * master, 34 bytes a parameter and the step's scalars; packing, the weight and what it becomes. */
Test(selftest_report, bytes_are_those_that_must_move)
{
    Fixture fixture;
    open_cpu(&fixture);
    const struct {
        const HsOpTest *test;
        double bytes;
    } rows[] = {
        { &hs_op_test_norm_forward, 4096.0 * 768 * 6 + 4096 * 8 + 768 * 8 },
        { &hs_op_test_adamw, 768.0 * 3072 * 34 + (double)sizeof(HsStepScalars) },
        { &hs_op_test_pack_weight,
          50304.0 * 768 * 2 + (double)fixture.context.backend->packed_bytes(&fixture.context, HS_BF16, 768, 50304) },
    };
    for (int i = 0; i < HS_COUNT_OF(rows); i++) {
        HsTrial trial = { .test = rows[i].test, .config = &rows[i].test->timed[0] };
        trial.test->declare(&trial);
        cr_expect_eq(hs_speed_bytes(&trial, &fixture.context), rows[i].bytes, "row %d: %.0f, expected %.0f", i,
                     hs_speed_bytes(&trial, &fixture.context), rows[i].bytes);
    }
}

Test(selftest_report, errors_are_counted)
{
    Fixture fixture;
    HsOpReport all, some;
    open_cpu(&fixture);
    const int op = find("combine");
    const HsCaseChoice pairs = { .pairs = true };
    cr_assert_eq(hs_selftest_check_all(&fixture.context, 1, op, (HsCaseChoice){ 0 }, &all), HS_OK, "%s",
                 hs_error_message());
    cr_assert_eq(hs_selftest_check_all(&fixture.context, 1, op, pairs, &some), HS_OK, "%s", hs_error_message());
    cr_expect_eq(all.cases, hs_op_test_combine.case_count);
    cr_expect(some.cases > 0 && some.cases < all.cases, "%d of %d", some.cases, all.cases);
    cr_expect(all.failures == 0 && all.worst > 0.0 && all.worst <= 1.0, "%d failures, worst %g", all.failures,
              all.worst);
    cr_expect_leq(some.worst, all.worst);
}

/* The operation as it should be, with one element spoilt. */
static HsStatus spoilt_combine(HsContext *context, const HsCombineArgs *args)
{
    HS_TRY(hs_backend_ref()->combine(context, args));
    hs_dtype_store(args->y.dtype, args->y.data, 0, 1e3);
    return HS_OK;
}

Test(selftest_report, failures_are_kept_with_their_cases)
{
    Fixture fixture;
    HsOpReport report;
    HsBackend broken = *hs_backend_ref();
    broken.combine = spoilt_combine;
    open_backend(&fixture, &broken);
    cr_assert_eq(hs_selftest_check_all(&fixture.context, 1, find("combine"), (HsCaseChoice){ 0 }, &report), HS_OK, "%s",
                 hs_error_message());
    cr_expect_eq(report.failures, report.cases);
    cr_expect_gt(report.worst, 1.0);
    for (int i = 0; i < HS_COMPLAINTS_KEPT; i++) {
        cr_expect_eq(report.complaints[i].config, &hs_op_test_combine.cases[i]);
        cr_expect_neq(strstr(report.complaints[i].text, "y[0] is 1000"), NULL, "%s", report.complaints[i].text);
    }
}

/* No memory of today moves a tenth of this, and any moves more than a hundredth of a gigabyte a second. */
Test(selftest_report, memory_probe_is_plausible)
{
    Fixture fixture;
    open_cpu(&fixture);
    const double rate = fixture.context.backend->peak_bytes(&fixture.context, HS_UNCACHED_BYTES);
    cr_expect(isfinite(rate) && rate > 1e7 && rate < 1e14, "%g bytes a second", rate);
    cr_expect_eq(fixture.device.peak_bytes, (size_t)0, "the probe is not in the device's account");
    cr_expect(hs_backend_ref()->peak_bytes == NULL, "the reference has no peak");
}

Test(selftest_report, emulated_probe_claims_nothing)
{
    HsDevice device;
    const HsCudaOptions options = { .index = 0 };
    cr_assert_eq(emulator()->device_init(&device, &options), HS_OK, "%s", hs_error_message());
    HsContext context = { .backend = emulator()->backend, .device = &device, .threads = 1 };
    cr_assert_eq(device.stream_create(&device, &context.stream), HS_OK);
    cr_expect_eq(context.backend->peak_bytes(&context, HS_UNCACHED_BYTES), 0.0);
    cr_expect(device.current_bytes == 0 && device.peak_bytes == 0, "the probe is not in the device's account");
    device.stream_destroy(&device, context.stream);
    hs_device_deinit(&device);
}
