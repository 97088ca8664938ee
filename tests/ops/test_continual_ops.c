/* SPDX-License-Identifier: MIT
 *
 * Continual learning's operations against closed forms written out here in double, and what must hold to the bit on
 * every backend: nothing pulls at the anchor, copies are copies, ends of an interpolation are its ends.
 */
#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

#include "kernels/base/tolerance.h"
#include "tests/support/host_backends.h"

#define RUN(call) cr_assert_eq((call), HS_OK, "%s", hs_error_message())

enum { COUNT = 1003, THREADS = 3 };

static HsContext reference(void)
{
    return (HsContext){ .backend = hs_backend_ref(), .threads = 1 };
}

/* The next backend of the reference and of every instruction set that this machine has; false past the last. */
static bool next_context(int *index, HsContext *context)
{
    const char *name;
    const bool there = next_host_backend(index, context, &name);
    context->threads = THREADS;
    return there;
}
#define FOR_EACH_BACKEND(context) \
    HsContext context;            \
    for (int index_ = 0; next_context(&index_, &context);)

/* Deterministic numbers in [-1, 1), exact in bf16. */
static double number(uint32_t site, int64_t i)
{
    const HsRng rng = { .seed = 11, .site = site };
    return (double)(hs_rng_draw(&rng, (uint64_t)i).word[0] >> 25) / 64.0 - 1.0;
}

static void fill(float *values, int64_t count, uint32_t site)
{
    for (int64_t i = 0; i < count; i++)
        values[i] = (float)number(site, i);
}

static HsTensor f32(float *values)
{
    return hs_tensor_1d(values, HS_F32, COUNT);
}

static HsTensor f64(double *values, int64_t count)
{
    return hs_tensor_1d(values, HS_F64, count);
}

/* Both sides compute the same few operations in double. */
static void expect_double(const char *what, double found, double expected)
{
    const double tolerance = hs_tolerance(16, 0, HS_F64, HS_F64, fabs(expected) + 1.0, expected);
    cr_expect(fabs(found - expected) <= tolerance, "%s: %.17g, expected %.17g", what, found, expected);
}

Test(continual_ops, penalty_and_its_zero_at_the_anchor)
{
    float importance[COUNT], anchor[COUNT], p[COUNT];
    uint16_t half[COUNT];
    double expected = 0.0, plain = 0.0;
    fill(importance, COUNT, 0), fill(anchor, COUNT, 1), fill(p, COUNT, 2);
    for (int i = 0; i < COUNT; i++) {
        importance[i] = fabsf(importance[i]);
        half[i] = hs_bf16_encode(anchor[i]);
        const double distance = (double)p[i] - (double)anchor[i];
        expected += (double)importance[i] * distance * distance;
        plain += distance * distance;
    }
    const HsTensor absent = { 0 };
    /* importance, anchor and parameter of five tensors: at p, unweighted at p, at the anchor twice, without an anchor
     */
    const HsTensor importances[] = { f32(importance), absent, f32(importance), f32(importance), absent };
    const HsTensor anchors[] = { f32(anchor), f32(anchor), f32(anchor), f32(anchor), absent };
    const HsTensor parameters[] = { f32(p), f32(p), f32(anchor), hs_tensor_1d(half, HS_BF16, COUNT), f32(p) };
    FOR_EACH_BACKEND(context)
    {
        double values[5] = { NAN, NAN, NAN, NAN, NAN };
        RUN(hs_op_penalty(&context, &(HsPenaltyArgs){ importances, anchors, parameters, 5, values }));
        /* These numbers' squares and products are exact in f32 and in double. */
        cr_expect_eq(values[0], expected, "%s: %.17g, expected %.17g", context.backend->name, values[0], expected);
        cr_expect_eq(values[1], plain);
        cr_expect(values[2] == 0.0 && values[3] == 0.0, "a penalty at the anchor");
        cr_expect_eq(values[4], 0.0, "a penalty without an anchor");
    }
}

/* Gradient step, in f64: the term goes in after unscaling and clipping, with p as it was before decay. */
Test(continual_ops, gradient_step_of_both_rules)
{
    const double p0 = 2.0, anchor0 = 1.25, importance0 = 3.0, raw = 24.0, rate = 0.125, decay = 0.25, start = 0.5;
    const HsStepScalars scalars = {
        .learning_rate = 0.25f, .gradient_multiplier = 0.0625f, .bias_correction1 = 0.5f, .bias_correction2 = 0.25f
    };
    const double g = raw * 0.0625 + 8.0 * importance0 * (p0 - anchor0);
    double importance = importance0, anchor = anchor0, p = p0, grad = raw, m = start, v = start, buffer = start;
    const HsProtection protection = { .importance = f64(&importance, 1), .anchor = f64(&anchor, 1), .strength = 8.0f };
    HsContext context = reference();
    RUN(hs_op_adamw(&context, &(HsAdamWArgs){ .update.scalars = &scalars,
                                              .beta1 = 0.5f,
                                              .beta2 = 0.75f,
                                              .epsilon = 0x1p-20f,
                                              .update.weight_decay = (float)decay,
                                              .update.learning_rate_scale = 0.5f,
                                              .update.grad = f64(&grad, 1),
                                              .m = f64(&m, 1),
                                              .v = f64(&v, 1),
                                              .update.weight = f64(&p, 1),
                                              .update.protection = protection }));
    const double m1 = 0.5 * start + 0.5 * g, v1 = 0.75 * start + 0.25 * g * g;
    expect_double("m", m, m1);
    expect_double("v", v, v1);
    expect_double("adamw's p", p, p0 * (1.0 - rate * decay) - rate * (m1 / 0.5) / (sqrt(v1 / 0.25) + 0x1p-20));
    p = p0, grad = raw;
    RUN(hs_op_sgd(&context, &(HsSgdArgs){ .update.scalars = &scalars,
                                          .momentum = 0.5f,
                                          .update.weight_decay = (float)decay,
                                          .update.learning_rate_scale = 0.5f,
                                          .update.grad = f64(&grad, 1),
                                          .buffer = f64(&buffer, 1),
                                          .update.weight = f64(&p, 1),
                                          .update.protection = protection }));
    expect_double("buffer", buffer, 0.5 * start + g + decay * p0);
    expect_double("sgd's p", p, p0 - rate * buffer);
}

/* Proximal step: p = (p' + k anchor) / (1 + k) with p' where the plain rule would have gone, for any k. */
Test(continual_ops, proximal_step_and_path)
{
    const HsStepScalars scalars = { .learning_rate = 0.5f, .gradient_multiplier = 0.25f, .unscale = 0.125f };
    const double strengths[] = { 0.0, 0.5, 8.0, 0x1p100 };
    for (int i = 0; i < 4; i++) {
        double importance = 3.0, anchor = 1.25, p = 2.0, grad = 24.0, path = 7.0;
        HsContext context = reference();
        RUN(hs_op_sgd(&context, &(HsSgdArgs){ .update.scalars = &scalars,
                                              .update.learning_rate_scale = 0.5f,
                                              .update.grad = f64(&grad, 1),
                                              .update.weight = f64(&p, 1),
                                              .update.protection = { .importance = f64(&importance, 1),
                                                                     .anchor = f64(&anchor, 1),
                                                                     .path = f64(&path, 1),
                                                                     .strength = (float)strengths[i],
                                                                     .proximal = true } }));
        const double moved = 2.0 - 0.25 * 24.0 * 0.25, k = 0.25 * strengths[i] * 3.0;
        expect_double("p", p, (moved + k * 1.25) / (1.0 + k));
        expect_double("path", path, 7.0 - 24.0 * 0.125 * (p - 2.0));
    }
}

/* k beyond f32 is a step onto the anchor, not a NaN. */
Test(continual_ops, proximal_step_survives_any_strength)
{
    FOR_EACH_BACKEND(context)
    {
        float importance[COUNT], anchor[COUNT], p[COUNT], grad[COUNT];
        fill(anchor, COUNT, 1), fill(p, COUNT, 2), fill(grad, COUNT, 3);
        for (int i = 0; i < COUNT; i++)
            importance[i] = 1e38f;
        const HsStepScalars scalars = { .learning_rate = 0.5f, .gradient_multiplier = 1.0f, .unscale = 1.0f };
        RUN(hs_op_sgd(&context, &(HsSgdArgs){ .update.scalars = &scalars,
                                              .update.learning_rate_scale = 1.0f,
                                              .update.grad = f32(grad),
                                              .update.weight = f32(p),
                                              .update.protection = { .importance = f32(importance),
                                                                     .anchor = f32(anchor),
                                                                     .strength = 1e5f,
                                                                     .proximal = true } }));
        for (int i = 0; i < COUNT; i++)
            cr_assert_float_eq(p[i], anchor[i], 4 * 0x1p-24, "p[%d] is %g", i, (double)p[i]);
    }
}

typedef struct Training {
    float grad[COUNT], m[COUNT], v[COUNT], master[COUNT], path[COUNT];
    uint16_t weight[COUNT];
} Training;

static void start_training(Training *training, bool still)
{
    memset(training, 0, sizeof *training);
    fill(training->master, COUNT, 2);
    for (int i = 0; i < COUNT; i++)
        training->weight[i] = hs_bf16_encode(training->master[i]);
    if (still)
        return;
    fill(training->grad, COUNT, 3), fill(training->m, COUNT, 4), fill(training->v, COUNT, 5);
    for (int i = 0; i < COUNT; i++)
        training->v[i] = fabsf(training->v[i]) + 0.25f;
}

static void run_rule(HsContext *context, Training *training, bool adamw, bool master, float decay,
                     const HsStepScalars *scalars, const HsProtection *protection)
{
    const HsTensor absent = { 0 }, weight = hs_tensor_1d(training->weight, HS_BF16, COUNT);
    const HsRng rng = { .seed = 5, .step = 1, .site = 2 };
    if (adamw)
        RUN(hs_op_adamw(context, &(HsAdamWArgs){ .update.scalars = scalars,
                                                 .beta1 = 0.9f,
                                                 .beta2 = 0.95f,
                                                 .epsilon = 1e-8f,
                                                 .update.weight_decay = decay,
                                                 .update.learning_rate_scale = 1.0f,
                                                 .update.rng = rng,
                                                 .update.grad = f32(training->grad),
                                                 .m = f32(training->m),
                                                 .v = f32(training->v),
                                                 .update.master = master ? f32(training->master) : absent,
                                                 .update.weight = weight,
                                                 .update.protection = *protection }));
    else
        RUN(hs_op_sgd(context, &(HsSgdArgs){ .update.scalars = scalars,
                                             .momentum = 0.9f,
                                             .update.weight_decay = decay,
                                             .update.learning_rate_scale = 1.0f,
                                             .update.rng = rng,
                                             .update.grad = f32(training->grad),
                                             .buffer = f32(training->m),
                                             .update.master = master ? f32(training->master) : absent,
                                             .update.weight = weight,
                                             .update.protection = *protection }));
}

static const HsStepScalars scalars_of_step = { .learning_rate = 0.0123f,
                                               .gradient_multiplier = 0.37f,
                                               .bias_correction1 = 0.271f,
                                               .bias_correction2 = 0.0297f,
                                               .unscale = 0.5f };

/* Where p is the anchor the gradient step's update has the bits of an unprotected one, and the proximal step leaves a
 * parameter alone that the rule did not move. */
Test(continual_ops, nothing_pulls_at_the_anchor)
{
    static Training plain, guarded;
    float importance[COUNT], anchor[COUNT];
    fill(importance, COUNT, 6), fill(anchor, COUNT, 2); /* as the master */
    for (int i = 0; i < COUNT; i++)
        importance[i] = fabsf(importance[i]);
    const HsProtection none = { 0 };
    FOR_EACH_BACKEND(context)
    {
        for (int row = 0; row < 8; row++) {
            const bool adamw = row & 1, master = row & 2, proximal = row & 4;
            const HsProtection protection = {
                .importance = f32(importance), .anchor = f32(anchor), .strength = 1e4f, .proximal = proximal
            };
            start_training(&plain, proximal);
            start_training(&guarded, proximal);
            const float decay = proximal ? 0.0f : 0.1f; /* which would move it */
            run_rule(&context, &plain, adamw, master, decay, &scalars_of_step, &none);
            run_rule(&context, &guarded, adamw, master, decay, &scalars_of_step, &protection);
            for (int i = 0; i < COUNT; i++) {
                cr_assert_eq(guarded.weight[i], plain.weight[i], "%s %d: weight %d", context.backend->name, row, i);
                cr_assert_eq(guarded.master[i], plain.master[i], "%s %d: master %d", context.backend->name, row, i);
                cr_assert_eq(guarded.m[i], plain.m[i], "%s %d: m %d", context.backend->name, row, i);
                cr_assert_eq(guarded.v[i], plain.v[i], "%s %d: v %d", context.backend->name, row, i);
            }
        }
    }
}

Test(continual_ops, a_skipped_step_changes_nothing)
{
    static Training training, before;
    float importance[COUNT], anchor[COUNT];
    fill(importance, COUNT, 6), fill(anchor, COUNT, 7);
    HsStepScalars scalars = scalars_of_step;
    scalars.skip = 1;
    FOR_EACH_BACKEND(context)
    {
        for (int row = 0; row < 4; row++) {
            start_training(&training, false);
            fill(training.path, COUNT, 8);
            training.grad[17] = NAN;
            before = training;
            memset(before.grad, 0, sizeof before.grad);
            const HsProtection protection = { .importance = f32(importance),
                                              .anchor = f32(anchor),
                                              .path = f32(training.path),
                                              .strength = 1e4f,
                                              .proximal = row & 2 };
            run_rule(&context, &training, row & 1, true, 0.1f, &scalars, &protection);
            cr_expect_eq(memcmp(&training, &before, sizeof before), 0, "%s %d", context.backend->name, row);
        }
    }
}

/* The path integral is over what is stored: the steps of a stochastically rounded bf16 weight, whole units. */
Test(continual_ops, path_follows_the_stored_weight)
{
    static Training training, before;
    FOR_EACH_BACKEND(context)
    {
        for (int adamw = 0; adamw < 2; adamw++) {
            int moved = 0;
            start_training(&training, false);
            before = training;
            const HsProtection protection = { .path = f32(training.path) };
            run_rule(&context, &training, adamw, false, 0.1f, &scalars_of_step, &protection);
            for (int i = 0; i < COUNT; i++) {
                const double old = (double)hs_bf16_decode(before.weight[i]);
                const double step = (double)hs_bf16_decode(training.weight[i]) - old;
                const double expected = -0.5 * (double)before.grad[i] * step;
                /* one half, a short gradient and a difference of two bf16: one rounding of the product at most */
                const double tolerance = hs_tolerance(1, 1, HS_F32, HS_F32, fabs(expected), expected);
                cr_assert(fabs((double)training.path[i] - expected) <= tolerance, "path[%d] is %g, expected %g", i,
                          (double)training.path[i], expected);
                moved += step != 0.0;
            }
            cr_expect_gt(moved, COUNT / 2, "hardly anything moved: %d", moved);
        }
    }
}

Test(continual_ops, online_consolidation)
{
    float fresh[COUNT], importance[COUNT], anchor[COUNT], p[COUNT], old_fresh[COUNT], old_importance[COUNT];
    fill(old_fresh, COUNT, 1), fill(old_importance, COUNT, 2), fill(p, COUNT, 3);
    FOR_EACH_BACKEND(context)
    {
        for (int shared = 0; shared < 2; shared++) {
            memcpy(fresh, old_fresh, sizeof fresh);
            memcpy(anchor, old_fresh, sizeof anchor);
            memcpy(importance, old_importance, sizeof importance);
            RUN(hs_op_consolidate(&context, &(HsConsolidateArgs){ .fresh = shared ? f32(anchor) : f32(fresh),
                                                                  .importance = f32(importance),
                                                                  .anchor = f32(anchor),
                                                                  .parameter = f32(p),
                                                                  .decay = 0.75f,
                                                                  .scale = 4.0f }));
            for (int i = 0; i < COUNT; i++) {
                /* exact in f32: a few bits each */
                cr_assert_eq(importance[i], 0.75f * old_importance[i] + 4.0f * old_fresh[i]);
                cr_assert_eq(anchor[i], p[i]);
                cr_assert_eq(fresh[i], shared ? old_fresh[i] : 0.0f);
            }
        }
    }
}

/* The one quadratic and its offset have the value of both wherever one looks. */
Test(continual_ops, merged_quadratics_are_the_sum)
{
    double fresh[COUNT], importance[COUNT], anchor[COUNT], p[COUNT], old_importance[COUNT], old_anchor[COUNT];
    const double scale = 2.5;
    for (int i = 0; i < COUNT; i++) {
        fresh[i] = i % 3 == 0 ? 0.0 : fabs(number(1, i)) * 40.0;
        importance[i] = old_importance[i] = i % 2 == 0 ? 0.0 : fabs(number(2, i));
        anchor[i] = old_anchor[i] = number(3, i);
        p[i] = number(4, i);
    }
    double both_fresh[COUNT], offset = 0.0;
    memcpy(both_fresh, fresh, sizeof fresh);
    HsContext context = reference();
    RUN(hs_op_consolidate(&context, &(HsConsolidateArgs){ .fresh = f64(fresh, COUNT),
                                                          .importance = f64(importance, COUNT),
                                                          .anchor = f64(anchor, COUNT),
                                                          .parameter = f64(p, COUNT),
                                                          .scale = (float)scale,
                                                          .merge = true,
                                                          .offset = &offset }));
    cr_expect_gt(offset, 0.0);
    for (uint32_t point = 10; point < 20; point++) {
        double both = 0.0, one = offset;
        for (int i = 0; i < COUNT; i++) {
            const double x = 3.0 * number(point, i);
            both += old_importance[i] * (x - old_anchor[i]) * (x - old_anchor[i]) +
                    scale * both_fresh[i] * (x - p[i]) * (x - p[i]);
            one += importance[i] * (x - anchor[i]) * (x - anchor[i]);
        }
        /* every term positive; eight roundings in each, on either side */
        const double tolerance = 2.0 * hs_tolerance(COUNT, 8, HS_F64, HS_F64, both + offset, both);
        cr_expect(fabs(both - one) <= tolerance, "%.17g, and %.17g merged", both, one);
    }
    for (int i = 0; i < COUNT; i++) {
        cr_assert_eq(fresh[i], 0.0);
        cr_assert(old_importance[i] != 0.0 || anchor[i] == p[i], "the first anchor is not p");
        cr_assert(both_fresh[i] != 0.0 || old_importance[i] == 0.0 || anchor[i] == old_anchor[i], "pulled by nothing");
    }
}

Test(continual_ops, path_consolidation_clips_at_zero)
{
    double path[] = { 6.0, -6.0, -0.5, 0.0 }, importance[] = { 1.0, 1.0, 1.0, 2.0 };
    double anchor[] = { 1.0, 1.0, 1.0, 3.0 }, p[] = { 2.0, 0.0, 1.0, 3.0 };
    HsContext context = reference();
    RUN(hs_op_consolidate_path(&context, &(HsConsolidatePathArgs){ .path = f64(path, 4),
                                                                   .importance = f64(importance, 4),
                                                                   .anchor = f64(anchor, 4),
                                                                   .parameter = f64(p, 4),
                                                                   .damping = 2.0f }));
    const double expected[] = { 1.0 + 6.0 / 3.0, 0.0, 1.0 - 0.5 / 2.0, 2.0 };
    for (int i = 0; i < 4; i++) {
        expect_double("importance", importance[i], expected[i]);
        cr_expect(anchor[i] == p[i] && path[i] == 0.0);
    }
}

Test(continual_ops, squares_of_unscaled_gradients)
{
    /* 2^-20 squared is below f16's range, and its scaled square 2^64 would be beyond it */
    float grad[COUNT], accumulator[COUNT];
    FOR_EACH_BACKEND(context)
    {
        for (int i = 0; i < COUNT; i++)
            grad[i] = 0x1p66f, accumulator[i] = 1.0f;
        RUN(hs_op_square_accumulate(&context, &(HsSquareAccumulateArgs){ .grad = f32(grad),
                                                                         .accumulator = f32(accumulator),
                                                                         .multiplier = 0x1p-64f,
                                                                         .weight = 0.5f }));
        for (int i = 0; i < COUNT; i++)
            cr_assert(accumulator[i] == 9.0f && grad[i] == 0.0f, "%g", (double)accumulator[i]);
    }
}

Test(continual_ops, sums_over_tensors)
{
    float x[] = { 1, 2, 3 }, y[] = { 4, -5, 6 };
    const HsTensor left[] = { hs_tensor_1d(x, HS_F32, 3) }, right[] = { hs_tensor_1d(y, HS_F32, 3) };
    FOR_EACH_BACKEND(context)
    {
        double product = NAN, maximum = NAN, sum = NAN, squares = NAN;
        RUN(hs_op_dot(&context, &(HsDotArgs){ left, right, 1, &product }));
        RUN(hs_op_importance_stats(&context, &(HsImportanceStatsArgs){ left, 1, &maximum, &sum, &squares }));
        cr_expect_eq(product, 12.0);
        cr_expect(maximum == 3.0 && sum == 6.0 && squares == 14.0, "%g %g %g", maximum, sum, squares);
    }
}

/* beta 0 writes only; alpha -1, beta 1 subtracts, as a projected gradient needs. */
Test(continual_ops, combination)
{
    FOR_EACH_BACKEND(context)
    {
        float x[] = { 1, 2, 3 }, y[] = { NAN, INFINITY, 6 };
        HsCombineArgs args = { hs_tensor_1d(x, HS_F32, 3), hs_tensor_1d(y, HS_F32, 3), 2.0f, 0.0f };
        RUN(hs_op_combine(&context, &args));
        cr_expect(y[0] == 2.0f && y[1] == 4.0f && y[2] == 6.0f);
        args.alpha = -1.0f, args.beta = 1.0f;
        RUN(hs_op_combine(&context, &args));
        cr_expect(y[0] == 1.0f && y[1] == 2.0f && y[2] == 3.0f);
    }
}

/* Both ends exactly, with masters and without, where p - anchor is rounded: 0.1 and 1e6 times it. */
Test(continual_ops, interpolation_reaches_both_ends)
{
    float anchor[COUNT], old[COUNT], master[COUNT];
    uint16_t weight[COUNT];
    for (int i = 0; i < COUNT; i++) {
        anchor[i] = hs_bf16_decode(hs_bf16_encode((float)number(1, i) * 0.1f)); /* as a snapshot of bf16 weights is */
        old[i] = (float)number(2, i) * 1e6f + 0.3f;
    }
    FOR_EACH_BACKEND(context)
    {
        for (int row = 0; row < 4; row++) {
            const bool has_master = row & 1, end = row & 2;
            const HsTensor absent = { 0 };
            memcpy(master, old, sizeof master);
            for (int i = 0; i < COUNT; i++)
                weight[i] = hs_bf16_encode(old[i]);
            RUN(hs_op_interpolate(&context, &(HsInterpolateArgs){ .anchor = f32(anchor),
                                                                  .master = has_master ? f32(master) : absent,
                                                                  .weight = hs_tensor_1d(weight, HS_BF16, COUNT),
                                                                  .rate = end ? 1.0f : 0.0f,
                                                                  .rng = { .seed = 3, .step = 1 } }));
            for (int i = 0; i < COUNT; i++) {
                const float expected = end ? old[i] : anchor[i];
                cr_assert_eq(weight[i], hs_bf16_encode(expected), "%s %d: weight %d", context.backend->name, row, i);
                cr_assert(!has_master || master[i] == expected, "%s %d: master %d", context.backend->name, row, i);
            }
        }
    }
}
