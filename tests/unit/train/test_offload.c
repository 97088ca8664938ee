/* SPDX-License-Identifier: MIT
 *
 * States on the host: weights, masters and states have the bits that the device's own update gives, with spans of several
 * pieces and of a few elements, after skipped steps, and after weights are rounded anew.
 */
#include <criterion/criterion.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/base/log.h"
#include "kernels/base/rng.h"
#include "optim/offload.h"
#include "runtime/engine/engine.h"

enum { SPANS = 4, STEPS = 4, SKIPPED = 2 };
static const int64_t counts[SPANS] = { 2 * HS_OFFLOAD_PIECE + 4321, 7, 4096, 300 };

#define OK(expression) cr_assert_eq((expression), HS_OK, "%s", hs_error_message())

typedef struct Case {
    HsOptimizerConfig config;
    HsDtype weight, master, gradient;
} Case;

typedef struct Run {
    HsOptimizer optimizer;
    HsSpan spans[SPANS];
    HsDevice *device;
} Run;

static void *take(HsDevice *device, size_t bytes)
{
    void *pointer;
    OK(hs_memory_alloc(device, HS_MEMORY_WEIGHTS, bytes, &pointer));
    return pointer;
}

/* element i of a tensor that `site` names, in (-1, 1) */
static void fill(HsContext *context, const HsTensor *tensor, uint32_t site, float scale)
{
    HsDevice *device = context->device;
    const int64_t count = hs_tensor_count(tensor);
    const HsRng rng = { .seed = 3, .site = site };
    unsigned char *values = malloc(hs_tensor_bytes(tensor));
    cr_assert_not_null(values);
    for (int64_t i = 0; i < count; i += 4) {
        const HsPhilox draw = hs_rng_draw(&rng, (uint64_t)i / 4);
        for (int64_t j = i; j < count && j < i + 4; j++)
            hs_dtype_store(tensor->dtype, values, j, scale * (2 * hs_rng_uniform(draw.word[j - i]) - 1));
    }
    OK(device->copy(device, context->stream, tensor->data, values, hs_tensor_bytes(tensor)));
    OK(device->stream_sync(device, context->stream));
    free(values);
}

static void make(Run *run, HsContext *context, const Case *what, bool offload)
{
    HsSchedule schedule;
    const HsScalerConfig scaler = { .kind = HS_SCALER_DYNAMIC,
                                    .init_scale = 8,
                                    .growth_factor = 2,
                                    .backoff_factor = 0.5,
                                    .min_scale = 1,
                                    .max_scale = 64,
                                    .growth_interval = 100,
                                    .hysteresis = 1 };
    HsOptimizerConfig config = what->config;
    config.offload = offload;
    config.host_threads = 2;
    *run = (Run){ .device = context->device };
    OK(hs_schedule_init(&schedule, "constant", 0.01, 0, 0, 1, 0));
    OK(hs_optimizer_init(&run->optimizer, context->device, &config, &schedule, &scaler, SPANS));
    for (int i = 0; i < SPANS; i++) {
        HsSpan *span = &run->spans[i];
        const size_t elements = (size_t)counts[i];
        *span = (HsSpan){ .name = "p", .parameter = i, .count = counts[i], .decay = true, .learning_rate_scale = 1 };
        span->weight =
            hs_tensor_1d(take(context->device, elements * hs_dtype_bytes(what->weight)), what->weight, counts[i]);
        span->gradient =
            hs_tensor_1d(take(context->device, elements * hs_dtype_bytes(what->gradient)), what->gradient, counts[i]);
    }
    OK(hs_optimizer_commit(&run->optimizer, run->spans, SPANS, what->master));
    for (int i = 0; i < SPANS; i++) {
        const HsTensor *kept = hs_tensor_present(&run->spans[i].master) ? &run->spans[i].master : &run->spans[i].weight;
        fill(context, kept, (uint32_t)i, 1);
    }
    OK(hs_optimizer_round_weights(&run->optimizer, context, run->spans, SPANS));
}

static void train(Run *run, HsContext *context)
{
    for (int step = 0; step < STEPS; step++) {
        HsStepReport report;
        for (int i = 0; i < SPANS; i++)
            fill(context, &run->spans[i].gradient, (uint32_t)(100 + 10 * step + i), 4);
        if (step == SKIPPED) {
            const HsTensor first = hs_tensor_1d(run->spans[1].gradient.data, run->spans[1].gradient.dtype, 1);
            fill(context, &first, 1, INFINITY);
        }
        OK(hs_optimizer_step(&run->optimizer, context, run->spans, SPANS, &report));
        cr_expect_eq(report.verdict, step == SKIPPED ? HS_SCALER_SKIP : HS_SCALER_APPLY);
    }
}

static void expect_same(HsContext *context, const HsTensor *a, const HsTensor *b, const char *what, int index)
{
    HsDevice *device = context->device;
    const size_t bytes = hs_tensor_present(a) ? hs_tensor_bytes(a) : 0;
    cr_assert_eq(hs_tensor_present(a), hs_tensor_present(b));
    unsigned char *const left = malloc(bytes + 1), *const right = malloc(bytes + 1);
    cr_assert(left && right);
    OK(device->copy(device, context->stream, left, a->data, bytes));
    OK(device->copy(device, context->stream, right, b->data, bytes));
    OK(device->stream_sync(device, context->stream));
    cr_expect(memcmp(left, right, bytes) == 0, "case %d: %s of %lld elements differ", index, what,
              bytes > 0 ? (long long)hs_tensor_count(a) : 0);
    free(left);
    free(right);
}

static void drop(Run *run)
{
    for (int i = 0; i < SPANS; i++) {
        hs_memory_release(run->device, HS_MEMORY_WEIGHTS, hs_tensor_bytes(&run->spans[i].weight),
                          run->spans[i].weight.data);
        hs_memory_release(run->device, HS_MEMORY_WEIGHTS, hs_tensor_bytes(&run->spans[i].gradient),
                          run->spans[i].gradient.data);
    }
    hs_optimizer_deinit(&run->optimizer);
}

static void compare(HsContext *context, const Case *what, int index)
{
    Run device, host;
    make(&device, context, what, false);
    make(&host, context, what, true);
    train(&device, context);
    train(&host, context);
    cr_expect_gt(context->device->account.current[HS_MEMORY_OFFLOADED], 0);
    for (int i = 0; i < SPANS; i++) {
        expect_same(context, &device.spans[i].weight, &host.spans[i].weight, "weights", index);
        expect_same(context, &device.spans[i].master, &host.spans[i].master, "masters", index);
        expect_same(context, &device.spans[i].gradient, &host.spans[i].gradient, "gradients", index);
        for (int s = 0; s < HS_SPAN_STATES; s++)
            expect_same(context, &device.spans[i].state[s], &host.spans[i].state[s], "states", index);
    }
    OK(hs_optimizer_show(&device.optimizer, context, device.spans, SPANS));
    OK(hs_optimizer_show(&host.optimizer, context, host.spans, SPANS));
    for (int i = 0; i < SPANS; i++)
        expect_same(context, &device.spans[i].weight, &host.spans[i].weight, "what is shown", index);
    OK(hs_optimizer_reset_state(&device.optimizer, context, device.spans, SPANS));
    OK(hs_optimizer_reset_state(&host.optimizer, context, host.spans, SPANS));
    for (int i = 0; i < SPANS; i++)
        expect_same(context, &device.spans[i].master, &host.spans[i].master, "masters of a fresh start", index);
    drop(&device);
    drop(&host);
    cr_expect_eq(hs_memory_sum(context->device->account.current), context->workspace_bytes);
}

#define RULE .beta1 = 0.9, .beta2 = 0.95, .epsilon = 1e-8, .weight_decay = 0.1, .clip_norm = 50, .seed = 5
static const Case cases[] = {
    { { .kind = HS_OPTIMIZER_ADAMW, RULE }, HS_BF16, HS_F32, HS_F32 },
    { { .kind = HS_OPTIMIZER_ADAMW, RULE }, HS_F32, HS_F32, HS_F32 },
    { { .kind = HS_OPTIMIZER_ADAMW, RULE }, HS_BF16, HS_BF16, HS_BF16 }, /* without masters: stochastic rounding */
    { { .kind = HS_OPTIMIZER_ADAMW, .moments = HS_BF16, RULE }, HS_F16, HS_F32, HS_F16 },
    { { .kind = HS_OPTIMIZER_ADAMW8BIT, RULE }, HS_BF16, HS_F32, HS_BF16 },
    { { .kind = HS_OPTIMIZER_ADAMWFP8, RULE }, HS_BF16, HS_F32, HS_F32 },
    { { .kind = HS_OPTIMIZER_ADAMWFP8, RULE }, HS_F32, HS_F32, HS_F32 },
    { { .kind = HS_OPTIMIZER_SGD, .momentum = 0.9, .nesterov = true, RULE }, HS_BF16, HS_F32, HS_F32 },
    { { .kind = HS_OPTIMIZER_SGD, RULE }, HS_F32, HS_F32, HS_F32 },
    { { .kind = HS_OPTIMIZER_SCHEDULE_FREE, RULE }, HS_BF16, HS_F32, HS_F32 },
    { { .kind = HS_OPTIMIZER_SCHEDULE_FREE, RULE }, HS_F32, HS_F32, HS_F32 },
    { { .kind = HS_OPTIMIZER_SCHEDULE_FREE, .moments = HS_BF16, RULE }, HS_BF16, HS_BF16, HS_BF16 },
};

Test(offload, has_the_bits_of_the_device, .timeout = 300)
{
    HsEngine engine;
    hs_log_set_level(HS_LOG_ERROR);
    OK(hs_engine_init(&engine, &(HsEngineOptions){ .device = "emu" }));
    engine.context.workspace_bytes = 1 << 22;
    void *const workspace = engine.context.workspace = take(&engine.device, engine.context.workspace_bytes);
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++)
        compare(&engine.context, &cases[c], (int)c);
    hs_memory_release(&engine.device, HS_MEMORY_WEIGHTS, engine.context.workspace_bytes, workspace);
    cr_expect_eq(engine.device.current_bytes, 0);
    hs_engine_deinit(&engine);
}

/* Muon's step is a matrix's. */
Test(offload, refuses_rules_of_whole_matrices)
{
    static const int64_t rows[] = { 16 };
    HsEngine engine;
    HsOptimizer optimizer;
    HsSchedule schedule;
    const HsScalerConfig scaler = { .kind = HS_SCALER_NONE };
    const HsOptimizerConfig config = { .kind = HS_OPTIMIZER_MUON,
                                       .offload = true,
                                       .muon = { .momentum = 0.95, .steps = 5, .product = HS_F32 } };
    HsSpan span = { .name = "w", .count = 256, .part_count = 1, .part_rows = rows, .uses = HS_SPAN_MULTIPLIES };
    hs_log_set_level(HS_LOG_ERROR);
    OK(hs_engine_init(&engine, &(HsEngineOptions){ .device = "emu" }));
    span.weight = span.gradient = hs_tensor_2d(NULL, HS_F32, 16, 16);
    OK(hs_schedule_init(&schedule, "constant", 0.01, 0, 0, 1, 0));
    OK(hs_optimizer_init(&optimizer, &engine.device, &config, &schedule, &scaler, 1));
    cr_expect_eq(hs_optimizer_commit(&optimizer, &span, 1, HS_F32), HS_ECONFIG);
    cr_expect(strstr(hs_error_message(), "muon") != NULL, "%s", hs_error_message());
    hs_optimizer_deinit(&optimizer);
    hs_engine_deinit(&engine);
}
