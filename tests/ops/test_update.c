/* SPDX-License-Identifier: MIT
 *
 * The reference's update rules and gradient statistics against formulas written out here.
 */
#include <criterion/criterion.h>
#include <math.h>

#include "kernels/base/tolerance.h"
#include "kernels/cpu/cpu.h"
#include "kernels/ops/backend.h"

#define RUN(call) cr_assert_eq((call), HS_OK, "%s", hs_error_message())

static HsContext reference(void)
{
    return (HsContext){ .backend = hs_backend_ref(), .threads = 1 };
}

static HsTensor scalar(double *value)
{
    return hs_tensor_1d(value, HS_F64, 1);
}

/* Both sides compute the same few operations in double. */
static void expect_double(const char *what, double found, double expected)
{
    const double tolerance = hs_tolerance(16, 0, HS_F64, HS_F64, fabs(expected) + 1.0, expected);
    cr_expect(fabs(found - expected) <= tolerance, "%s: %.17g, expected %.17g", what, found, expected);
}

/* Three AdamW steps in f64 against the textbook recursion.  The parameters are exact in binary, so that f32 arguments
 * mean the same numbers. */
Test(update, adamw_steps)
{
    const double beta1 = 0.875, beta2 = 0.96875, rate = 0.125, decay = 0.25, epsilon = 0x1p-20;
    const double gradients[] = { 3.0, -1.5, 0.25 };
    double p = 2.0, m = 0.0, v = 0.0, expected_p = 2.0, expected_m = 0.0, expected_v = 0.0;
    HsContext context = reference();
    for (int t = 1; t <= 3; t++) {
        double grad = 64.0 * gradients[t - 1]; /* as a loss scale of 64 leaves it */
        const HsStepScalars scalars = { .learning_rate = (float)rate,
                                        .gradient_multiplier = 0x1p-6f,
                                        .bias_correction1 = (float)(1.0 - pow(beta1, t)),
                                        .bias_correction2 = (float)(1.0 - pow(beta2, t)) };
        RUN(hs_op_adamw(&context, &(HsAdamWArgs){ .update.scalars = &scalars,
                                                  .beta1 = (float)beta1,
                                                  .beta2 = (float)beta2,
                                                  .epsilon = (float)epsilon,
                                                  .update.weight_decay = (float)decay,
                                                  .update.learning_rate_scale = 0.5f,
                                                  .update.grad = scalar(&grad),
                                                  .m = scalar(&m),
                                                  .v = scalar(&v),
                                                  .update.weight = scalar(&p) }));
        const double g = gradients[t - 1], step = 0.5 * rate;
        expected_m = beta1 * expected_m + (1.0 - beta1) * g;
        expected_v = beta2 * expected_v + (1.0 - beta2) * g * g;
        const double m_hat = expected_m / (double)scalars.bias_correction1;
        const double v_hat = expected_v / (double)scalars.bias_correction2;
        expected_p = expected_p * (1.0 - step * decay) - step * m_hat / (sqrt(v_hat) + epsilon);
        expect_double("m", m, expected_m);
        expect_double("v", v, expected_v);
        expect_double("p", p, expected_p);
        cr_expect_eq(grad, 0.0, "the gradient is not cleared");
    }
}

Test(update, first_adamw_step_moves_by_the_learning_rate)
{
    double p = 1.0, m = 0.0, v = 0.0, grad = -1234.5;
    const HsStepScalars scalars = { .learning_rate = 0.25f,
                                    .gradient_multiplier = 1.0f,
                                    .bias_correction1 = 0.5f,
                                    .bias_correction2 = 0.25f,
                                    .unscale = 1.0f };
    HsContext context = reference();
    RUN(hs_op_adamw(&context, &(HsAdamWArgs){ .update.scalars = &scalars,
                                              .beta1 = 0.5f,
                                              .beta2 = 0.75f,
                                              .update.learning_rate_scale = 1.0f,
                                              .update.grad = scalar(&grad),
                                              .m = scalar(&m),
                                              .v = scalar(&v),
                                              .update.weight = scalar(&p) }));
    expect_double("p", p, 1.25); /* m_hat / sqrt(v_hat) is the gradient's sign */
}

Test(update, a_skipped_step_only_clears_the_gradient)
{
    float p = 1.0f, m = 2.0f, v = 3.0f, grad = INFINITY, master = 5.0f, buffer = 7.0f;
    const HsStepScalars scalars = { .learning_rate = 0.25f,
                                    .gradient_multiplier = 1.0f,
                                    .bias_correction1 = 0.5f,
                                    .bias_correction2 = 0.25f,
                                    .unscale = 1.0f,
                                    .skip = 1 };
    HsContext context = reference();
    RUN(hs_op_adamw(&context, &(HsAdamWArgs){ .update.scalars = &scalars,
                                              .beta1 = 0.5f,
                                              .beta2 = 0.75f,
                                              .update.weight_decay = 0.5f,
                                              .update.learning_rate_scale = 1.0f,
                                              .update.grad = hs_tensor_1d(&grad, HS_F32, 1),
                                              .m = hs_tensor_1d(&m, HS_F32, 1),
                                              .v = hs_tensor_1d(&v, HS_F32, 1),
                                              .update.master = hs_tensor_1d(&master, HS_F32, 1),
                                              .update.weight = hs_tensor_1d(&p, HS_F32, 1) }));
    cr_expect_eq(grad, 0.0f);
    cr_expect(p == 1.0f && m == 2.0f && v == 3.0f && master == 5.0f);
    grad = NAN;
    RUN(hs_op_sgd(&context, &(HsSgdArgs){ .update.scalars = &scalars,
                                          .momentum = 0.5f,
                                          .update.learning_rate_scale = 1.0f,
                                          .update.grad = hs_tensor_1d(&grad, HS_F32, 1),
                                          .buffer = hs_tensor_1d(&buffer, HS_F32, 1),
                                          .update.weight = hs_tensor_1d(&p, HS_F32, 1) }));
    cr_expect_eq(grad, 0.0f);
    cr_expect(p == 1.0f && buffer == 7.0f);
}

Test(update, sgd_plain_momentum_nesterov)
{
    const HsStepScalars scalars = { .learning_rate = 0.5f, .gradient_multiplier = 0.25f };
    HsContext context = reference();
    /* g = 2, p = 4, wd 1/4: d = 3; momentum 1/2 of a buffer of 6: 6 */
    const struct {
        float momentum;
        bool nesterov;
        double p, buffer;
    } rows[] = { { 0.0f, false, 4 - 0.5 * 3, 6 },
                 { 0.5f, false, 4 - 0.5 * 6, 6 },
                 { 0.5f, true, 4 - 0.5 * (3 + 3), 6 } };
    for (int i = 0; i < 3; i++) {
        double p = 4.0, buffer = 6.0, grad = 8.0;
        const HsTensor absent = { 0 };
        RUN(hs_op_sgd(&context, &(HsSgdArgs){ .update.scalars = &scalars,
                                              .momentum = rows[i].momentum,
                                              .update.weight_decay = 0.25f,
                                              .update.learning_rate_scale = 1.0f,
                                              .nesterov = rows[i].nesterov,
                                              .update.grad = scalar(&grad),
                                              .buffer = rows[i].momentum > 0.0f ? scalar(&buffer) : absent,
                                              .update.weight = scalar(&p) }));
        expect_double("p", p, rows[i].p);
        expect_double("buffer", buffer, rows[i].buffer);
    }
}

/* The weight is the rounded master, so that it can be made again from a checkpoint's masters. */
Test(update, weight_is_the_rounded_master)
{
    /* p = 1 + 2^-8 + 2^-30: the master rounds to the tie 1 + 2^-8, and the weight from there down to 1 */
    float master = 1.00390625f, grad = -0x1p-30f;
    uint16_t weight = 0;
    const HsStepScalars scalars = { .learning_rate = 1.0f, .gradient_multiplier = 1.0f };
    HsContext context = reference();
    RUN(hs_op_sgd(&context, &(HsSgdArgs){ .update.scalars = &scalars,
                                          .update.learning_rate_scale = 1.0f,
                                          .update.grad = hs_tensor_1d(&grad, HS_F32, 1),
                                          .update.master = hs_tensor_1d(&master, HS_F32, 1),
                                          .update.weight = hs_tensor_1d(&weight, HS_BF16, 1) }));
    cr_expect_eq(master, 1.00390625f);
    cr_expect_eq(hs_bf16_decode(weight), 1.0f);
}

/* Steps far below half a unit in the last place: nearest rounding would lose them all, stochastic keeps their mean. */
Test(update, stochastic_rounding_keeps_small_steps_on_average)
{
    enum { COUNT = 20000 };
    static uint16_t weight[COUNT];
    static float grad[COUNT];
    for (int i = 0; i < COUNT; i++) {
        weight[i] = hs_bf16_encode(1.0f);
        grad[i] = -0x1p-10f; /* an eighth of 2^-7, the distance to the next bf16 */
    }
    const HsStepScalars scalars = { .learning_rate = 1.0f, .gradient_multiplier = 1.0f };
    HsContext context = reference();
    RUN(hs_op_sgd(&context, &(HsSgdArgs){ .update.scalars = &scalars,
                                          .update.learning_rate_scale = 1.0f,
                                          .update.rng = { .seed = 6, .step = 1, .site = 0 },
                                          .update.grad = hs_tensor_1d(grad, HS_F32, COUNT),
                                          .update.weight = hs_tensor_1d(weight, HS_BF16, COUNT) }));
    double moved = 0.0;
    for (int i = 0; i < COUNT; i++) {
        const float value = hs_bf16_decode(weight[i]);
        cr_assert(value == 1.0f || value == 1.0078125f, "%g", (double)value);
        moved += value > 1.0f;
    }
    /* five standard deviations of a binomial share of 1/8 */
    cr_expect(fabs(moved - COUNT / 8.0) <= 5.0 * sqrt(COUNT * 0.125 * 0.875), "%g of %d moved", moved, COUNT);
}

Test(update, grad_stats_count_what_is_not_finite)
{
    float first[] = { 3, 4, NAN, INFINITY };
    uint16_t second[] = { hs_f16_encode(2.0f), hs_f16_encode(-1e9f) };
    const HsTensor tensors[] = { hs_tensor_1d(first, HS_F32, 4), hs_tensor_1d(second, HS_F16, 2) };
    double sum_squares[2];
    int64_t nonfinite[2];
    HsContext context = reference();
    RUN(hs_op_grad_stats(&context, &(HsGradStatsArgs){ tensors, 2, sum_squares, nonfinite }));
    cr_expect_eq(sum_squares[0], 25.0);
    cr_expect_eq(sum_squares[1], 4.0);
    cr_expect_eq(nonfinite[0], 2);
    cr_expect_eq(nonfinite[1], 1);
}

enum { DECAYING = 4096 };

/* A gradient of 1 for a step, then of 0: with beta2 = 0.999 v falls by a thousandth a step, less than half a unit of
 * bf16.  Rounded stochastically its mean over many elements falls as in f32; to the nearest it would stay. */
Test(update, v_in_bf16_does_not_stand_still)
{
    static float p[DECAYING], gradient[DECAYING];
    static uint16_t m[DECAYING], v[DECAYING];
    const HsBackend *cpu;
    RUN(hs_backend_cpu(&cpu));
    for (int backend = 0; backend < 2; backend++) {
        HsContext context = { .backend = backend ? cpu : hs_backend_ref(), .threads = 1 };
        const HsStepScalars scalars = {
            .gradient_multiplier = 1, .bias_correction1 = 1, .bias_correction2 = 1, .unscale = 1
        };
        for (int i = 0; i < DECAYING; i++)
            v[i] = hs_bf16_encode(1.0f), m[i] = hs_bf16_encode(1.0f);
        for (uint32_t step = 0; step < 500; step++)
            RUN(hs_op_adamw(&context, &(HsAdamWArgs){ .update.scalars = &scalars,
                                                      .update.rng = { .seed = 9, .step = step },
                                                      .beta1 = 0.999f,
                                                      .beta2 = 0.999f,
                                                      .epsilon = 1e-8f,
                                                      .update.learning_rate_scale = 1.0f,
                                                      .update.grad = hs_tensor_1d(gradient, HS_F32, DECAYING),
                                                      .update.weight = hs_tensor_1d(p, HS_F32, DECAYING),
                                                      .m = hs_tensor_1d(m, HS_BF16, DECAYING),
                                                      .v = hs_tensor_1d(v, HS_BF16, DECAYING) }));
        double mean[2] = { 0 };
        for (int i = 0; i < DECAYING; i++) {
            mean[0] += (double)hs_bf16_decode(m[i]) / DECAYING;
            mean[1] += (double)hs_bf16_decode(v[i]) / DECAYING;
        }
        /* A rounding's variance is at most unit^2 / 4, a unit 2^-8 of a value between 1/2 and 1: the mean's deviation is
         * at most 2^-9 sqrt(500 / 4096); five of those. */
        for (int k = 0; k < 2; k++)
            cr_expect_float_eq(mean[k], pow(0.999, 500), 5 * 0x1p-9 * sqrt(500.0 / DECAYING), "%s: mean %d is %g",
                               context.backend->name, k, mean[k]);
    }
}
