/* SPDX-License-Identifier: MIT
 *
 * A parameter in one span and in three: the same bits, whatever the rule, the penalty and the way it is kept.
 */
#include <criterion/criterion.h>
#include <string.h>

#include "kernels/base/rng.h"
#include "optim/update.h"

enum { COUNT = 5000, PARTS = 3, STEPS = 3 };
static const int64_t cuts[PARTS + 1] = { 0, 256, 4352, COUNT };

typedef struct Parameter {
    _Alignas(64) float master[COUNT];
    _Alignas(64) float wide[COUNT];
    _Alignas(64) uint16_t weight[COUNT];
    _Alignas(64) float gradient[COUNT];
    _Alignas(64) float state[HS_SPAN_STATES][COUNT];
    _Alignas(64) float importance[COUNT];
    _Alignas(64) float anchor[COUNT];
    _Alignas(64) float path[COUNT];
    _Alignas(64) float snapshot[COUNT];
} Parameter;

typedef enum Kept { IN_F32, WITH_MASTER, STOCHASTICALLY } Kept;

static double number(uint32_t site, int64_t i)
{
    const HsRng rng = { .seed = 3, .site = site };
    return 2.0 * (double)hs_rng_uniform(hs_rng_draw(&rng, (uint64_t)i).word[0]) - 1.0;
}

static void fill(Parameter *p)
{
    memset(p, 0, sizeof *p);
    for (int i = 0; i < COUNT; i++) {
        p->weight[i] = hs_bf16_encode((float)number(1, i));
        p->master[i] = p->wide[i] = (float)number(1, i);
        p->importance[i] = (float)(1.0 + number(2, i));
        p->anchor[i] = (float)number(3, i);
    }
}

static HsTensor f32(float *data)
{
    return hs_tensor_1d(data, HS_F32, COUNT);
}

static HsSpan span_of(Parameter *p, Kept kept, bool guarded, const HsOptimizerConfig *config)
{
    HsSpan span = { .name = "p", .parameter = 4, .count = COUNT, .decay = true, .learning_rate_scale = 1 };
    span.weight = kept == IN_F32 ? f32(p->wide) : hs_tensor_1d(p->weight, HS_BF16, COUNT);
    if (kept == WITH_MASTER)
        span.master = f32(p->master);
    span.gradient = f32(p->gradient);
    for (int s = 0; s < hs_optimizer_state_count(config, &span); s++) {
        span.state[s] = hs_tensor_1d(p->state[s], config->moments, COUNT);
        if (config->kind == HS_OPTIMIZER_ADAMW8BIT || config->kind == HS_OPTIMIZER_ADAMWFP8)
            span.state[s] = hs_tensor_1d(p->state[s], s < 2 ? HS_U8 : HS_F32, s < 2 ? COUNT : hs_dynamic_blocks(COUNT));
    }
    if (!guarded)
        return span;
    span.protection = (HsProtection){
        .importance = f32(p->importance), .anchor = f32(p->anchor), .path = f32(p->path), .strength = 0.5f
    };
    span.epilogue = (HsUpdateEpilogue){ .back = { { f32(p->anchor), 0.5f, { .seed = 9, .site = 1 } } },
                                        .back_count = 1,
                                        .snapshots = { f32(p->snapshot) },
                                        .snapshot_count = 1 };
    return span;
}

static void train(HsContext *context, const HsOptimizerConfig *config, Parameter *p, Kept kept, bool guarded, int parts)
{
    HsOptimizer optimizer;
    HsSchedule schedule;
    const HsScalerConfig scaler = { .kind = HS_SCALER_NONE };
    const HsSpan whole = span_of(p, kept, guarded, config);
    HsSpan spans[PARTS] = { whole };
    for (int i = 0; parts > 1 && i < parts; i++)
        spans[i] = hs_span_cut(&whole, cuts[i], cuts[i + 1] - cuts[i]);
    cr_assert_eq(hs_schedule_init(&schedule, "constant", 0.01, 0, 0, 1, 0), HS_OK);
    cr_assert_eq(hs_optimizer_init(&optimizer, context->device, config, &schedule, &scaler, parts), HS_OK);
    for (int step = 0; step < STEPS; step++) {
        HsStepReport report;
        for (int i = 0; i < COUNT; i++)
            p->gradient[i] = (float)number(10 + (uint32_t)step, i);
        cr_assert_eq(hs_optimizer_step(&optimizer, context, spans, parts, &report), HS_OK, "%s", hs_error_message());
    }
    hs_optimizer_deinit(&optimizer);
}

static void compare(HsContext *context, const char *backend)
{
    static const HsOptimizerConfig rules[] = {
        { .kind = HS_OPTIMIZER_ADAMW, .beta1 = 0.9, .beta2 = 0.95, .epsilon = 1e-8, .weight_decay = 0.1, .seed = 5 },
        { .kind = HS_OPTIMIZER_SGD, .momentum = 0.9, .nesterov = true, .weight_decay = 0.1, .seed = 5 },
        { .kind = HS_OPTIMIZER_ADAMW8BIT,
          .beta1 = 0.9,
          .beta2 = 0.95,
          .epsilon = 1e-8,
          .weight_decay = 0.1,
          .seed = 5 },
        { .kind = HS_OPTIMIZER_ADAMW, .beta1 = 0.9, .beta2 = 0.95, .epsilon = 1e-8, .moments = HS_BF16, .seed = 5 },
        { .kind = HS_OPTIMIZER_ADAMWFP8, .beta1 = 0.9, .beta2 = 0.95, .epsilon = 1e-8, .seed = 5 },
        { .kind = HS_OPTIMIZER_SCHEDULE_FREE,
          .beta1 = 0.9,
          .beta2 = 0.95,
          .epsilon = 1e-8,
          .weight_decay = 0.1,
          .seed = 5 },
        { .kind = HS_OPTIMIZER_SCHEDULE_FREE,
          .beta1 = 0.9,
          .beta2 = 0.95,
          .epsilon = 1e-8,
          .moments = HS_BF16,
          .seed = 5 },
    };
    enum { RULES = sizeof rules / sizeof *rules };
    for (int c = 0; c < RULES * 3 * 2; c++) {
        static Parameter one, three, start;
        const HsOptimizerConfig *config = &rules[c % RULES];
        const Kept kept = (Kept)(c / RULES % 3);
        const bool guarded = c / (3 * RULES) != 0;
        fill(&one), fill(&three), fill(&start);
        train(context, config, &one, kept, guarded, 1);
        train(context, config, &three, kept, guarded, PARTS);
        cr_expect(memcmp(&one, &three, sizeof one) == 0, "%s, rule %d, kept %d, guarded %d: bits differ", backend,
                  config->kind, kept, guarded);
        cr_expect(memcmp(&one.state, &start.state, sizeof one.state) != 0, "nothing was trained");
    }
}

Test(spans, three_parts_have_the_bits_of_the_whole)
{
    const HsBackend *cpu;
    HsDevice device;
    cr_assert_eq(hs_device_host_init(&device), HS_OK);
    cr_assert_eq(hs_backend_cpu(&cpu), HS_OK);
    HsContext context = { .backend = hs_backend_ref(), .device = &device, .threads = 1 };
    compare(&context, "ref");
    context.backend = cpu;
    context.threads = 2;
    compare(&context, "cpu");
    cr_expect_eq(device.current_bytes, 0);
}

/* A part is updated by the rule of the whole, small as it may be. */
Test(spans, parts_have_the_rule_of_the_whole)
{
    const HsOptimizerConfig config = { .kind = HS_OPTIMIZER_ADAMW8BIT };
    static Parameter p;
    HsSpan whole = span_of(&p, IN_F32, false, &config);
    HsSpan part = hs_span_cut(&whole, 256, 512);
    cr_expect_eq(hs_optimizer_kind_of(&config, &part), HS_OPTIMIZER_ADAMW8BIT);
    cr_expect_eq(hs_tensor_count(&part.state[2]), 2);
    cr_expect_eq((float *)part.state[3].data, p.state[3] + 1);
    part = hs_span_cut(&part, 256, 256);
    cr_expect_eq(part.part_of, COUNT);
    whole.uses = HS_SPAN_IS_LOOKED_UP | HS_SPAN_MAKES_LOGITS; /* an embedding */
    part = hs_span_cut(&whole, 256, 512);
    cr_expect_eq(hs_optimizer_kind_of(&config, &whole), HS_OPTIMIZER_ADAMW);
    cr_expect_eq(hs_optimizer_kind_of(&config, &part), HS_OPTIMIZER_ADAMW);
    whole.uses = HS_SPAN_MULTIPLIES;
    whole.count = 4095;
    cr_expect_eq(hs_optimizer_kind_of(&config, &whole), HS_OPTIMIZER_ADAMW);
}

/* Where the parts of a parameter may begin is checked by every rule. */
Test(spans, a_part_begins_at_a_grain)
{
    HsDevice device;
    float data[8] = { 0 };
    const HsStepScalars scalars = { 0 };
    cr_assert_eq(hs_device_host_init(&device), HS_OK);
    HsContext context = { .backend = hs_backend_ref(), .device = &device, .threads = 1 };
    const HsTensor tensor = hs_tensor_1d(data, HS_F32, 8);
    const HsSgdArgs args = { .update = {
                                 .scalars = &scalars, .rng = { .row_offset = 32 }, .grad = tensor, .weight = tensor } };
    cr_expect_eq(hs_op_sgd(&context, &args), HS_EINVAL);
}
