/* SPDX-License-Identifier: MIT
 *
 * hs_optimizer_step on the reference backend, against AdamW and SGD written again here in double.
 *
 * The independent rule keeps everything in double; the tested one stores m, v and p in f32 after every step.  Each
 * stored value is rounded once a step, so after t steps p differs by at most gamma(8 t) times the sum of the absolute
 * values that were added into it, which the independent rule keeps next to the result.
 */
#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

#include "kernels/base/tolerance.h"
#include "optim/update.h"

enum { SPANS = 3, COUNT = 16, STEPS = 6 };

/* Three spans: an f32 weight that decays; a bf16 weight with master and bf16 gradient; a vector without decay and
 * with its own learning rate. */
typedef struct Fixture {
    HsDevice device;
    HsContext context;
    HsOptimizer optimizer;
    HsSpan spans[SPANS];
    float weight[SPANS][COUNT], master[COUNT], state[SPANS][2][COUNT], gradient[SPANS][COUNT];
    uint16_t weight16[COUNT], gradient16[COUNT];
} Fixture;

static Fixture fixture;

static const HsOptimizerConfig adamw = {
    .kind = HS_OPTIMIZER_ADAMW, .beta1 = 0.9, .beta2 = 0.95, .epsilon = 1e-8, .weight_decay = 0.1, .seed = 5
};
static const HsOptimizerConfig sgd = {
    .kind = HS_OPTIMIZER_SGD, .momentum = 0.9, .weight_decay = 0.1, .nesterov = true
};
static const HsScalerConfig unscaled = { .kind = HS_SCALER_NONE };
static const HsScalerConfig dynamic = { .kind = HS_SCALER_DYNAMIC,
                                        .init_scale = 1024,
                                        .growth_factor = 2,
                                        .backoff_factor = 0.5,
                                        .min_scale = 512,
                                        .max_scale = 1e30,
                                        .growth_interval = 1000,
                                        .hysteresis = 1 };

static double start_value(int span, int i)
{
    return (double)((i * 7 + span * 3) % 11 - 5) / 8.0; /* exact in bf16 */
}

/* The true gradient of a step: multiples of 1/64 below 1, so that bf16 and any power-of-two scale hold it exactly. */
static double true_gradient(int span, int step, int i)
{
    return (double)((i * 13 + span * 29 + step * 17) % 101 - 50) / 64.0;
}

static void set_gradients(int step, double scale)
{
    for (int s = 0; s < SPANS; s++)
        for (int i = 0; i < COUNT; i++)
            hs_dtype_store(fixture.spans[s].gradient.dtype, fixture.spans[s].gradient.data, i,
                           true_gradient(s, step, i) * scale);
}

static void set_up(const HsOptimizerConfig *config, const HsScalerConfig *scaler)
{
    memset(&fixture, 0, sizeof fixture);
    cr_assert_eq(hs_device_host_init(&fixture.device), HS_OK);
    fixture.context = (HsContext){ .backend = hs_backend_ref(), .device = &fixture.device, .threads = 1 };
    HsSchedule schedule;
    cr_assert_eq(hs_schedule_init(&schedule, "linear", 0.01, 0.001, 2, 10, 0.2), HS_OK);
    cr_assert_eq(hs_optimizer_init(&fixture.optimizer, &fixture.device, config, &schedule, scaler, SPANS), HS_OK);
    for (int s = 0; s < SPANS; s++) {
        HsSpan *span = &fixture.spans[s];
        *span = (HsSpan){ .name = s == 0   ? "a"
                                  : s == 1 ? "b"
                                           : "c",
                          .decay = s != 2,
                          .learning_rate_scale = s == 2 ? 0.5f : 1.0f,
                          .weight = hs_tensor_1d(fixture.weight[s], HS_F32, COUNT),
                          .gradient = hs_tensor_1d(fixture.gradient[s], HS_F32, COUNT) };
        if (s == 1) {
            span->weight = hs_tensor_1d(fixture.weight16, HS_BF16, COUNT);
            span->master = hs_tensor_1d(fixture.master, HS_F32, COUNT);
            span->gradient = hs_tensor_1d(fixture.gradient16, HS_BF16, COUNT);
        }
        for (int n = 0; n < hs_optimizer_state_count(config, span); n++)
            span->state[n] = hs_tensor_1d(fixture.state[s][n], HS_F32, COUNT);
        for (int i = 0; i < COUNT; i++) {
            hs_dtype_store(span->weight.dtype, span->weight.data, i, start_value(s, i));
            if (s == 1)
                fixture.master[i] = (float)start_value(s, i);
        }
    }
}

static HsStepReport step(void)
{
    HsStepReport report;
    cr_assert_eq(hs_optimizer_step(&fixture.optimizer, &fixture.context, fixture.spans, SPANS, &report), HS_OK, "%s",
                 hs_error_message());
    return report;
}

/* One parameter in double, with the sum of absolute values that entered it. */
typedef struct Exact {
    double p, m, v, m_absolute, magnitude;
} Exact;

static void exact_adamw(Exact *e, double g, double rate, double decay, int t)
{
    const double b1 = (double)(float)0.9, b2 = (double)(float)0.95, epsilon = (double)(float)1e-8;
    double bc1 = 1 - pow(0.9, t), bc2 = 1 - pow(0.95, t);
    e->magnitude += rate * decay * fabs(e->p);
    e->p -= rate * decay * e->p;
    e->m = b1 * e->m + (1 - b1) * g;
    e->m_absolute = b1 * e->m_absolute + (1 - b1) * fabs(g);
    e->v = b2 * e->v + (1 - b2) * g * g;
    double denominator = sqrt(e->v / bc2) + epsilon;
    e->p -= rate * (e->m / bc1) / denominator;
    if (e->v > 0)
        e->magnitude += rate * (e->m_absolute / bc1) / denominator;
}

static void exact_sgd(Exact *e, double g, double rate, double decay)
{
    const double momentum = (double)(float)0.9;
    double d = g + decay * e->p;
    e->m = momentum * e->m + d;
    e->m_absolute = momentum * e->m_absolute + fabs(g) + decay * fabs(e->p);
    e->p -= rate * (d + momentum * e->m);
    e->magnitude += rate * (fabs(d) + momentum * e->m_absolute);
}

static double rate_at(int applied) /* the schedule of set_up, by hand */
{
    return applied < 2 ? 0.01 * (applied + 1) / 2 : 0.001 + 0.009 * (1 - (applied - 2) / 8.0);
}

/* STEPS steps under a loss scale; every weight, master and moment compared. */
static void check_rule(const HsOptimizerConfig *config, const HsScalerConfig *scaler)
{
    set_up(config, scaler);
    static Exact exact[SPANS][COUNT];
    memset(exact, 0, sizeof exact);
    for (int s = 0; s < SPANS; s++)
        for (int i = 0; i < COUNT; i++)
            exact[s][i].p = start_value(s, i), exact[s][i].magnitude = fabs(start_value(s, i));
    const double scale = (double)fixture.optimizer.counters.loss_scale;
    for (int t = 1; t <= STEPS; t++) {
        set_gradients(t, scale);
        HsStepReport report = step();
        cr_expect_eq(report.verdict, HS_SCALER_APPLY);
        cr_expect_float_eq(report.learning_rate, rate_at(t - 1), 1e-15);
        for (int s = 0; s < SPANS; s++) {
            double rate = rate_at(t - 1) * (s == 2 ? 0.5 : 1.0), decay = s == 2 ? 0 : 0.1;
            for (int i = 0; i < COUNT; i++) {
                if (config->kind == HS_OPTIMIZER_ADAMW)
                    exact_adamw(&exact[s][i], true_gradient(s, t, i), rate, decay, t);
                else
                    exact_sgd(&exact[s][i], true_gradient(s, t, i), rate, decay);
                cr_assert_eq(hs_dtype_load(fixture.spans[s].gradient.dtype, fixture.spans[s].gradient.data, i), 0.0);
            }
        }
    }
    for (int s = 0; s < SPANS; s++) {
        for (int i = 0; i < COUNT; i++) {
            const Exact *e = &exact[s][i];
            double p = s == 1 ? (double)fixture.master[i] : (double)fixture.weight[s][i];
            double bound = hs_tolerance(8 * STEPS, 0, HS_F32, HS_F32, e->magnitude, e->p);
            cr_expect(fabs(p - e->p) <= bound, "%s[%d]: %.9g, expected %.9g +- %g", fixture.spans[s].name, i, p, e->p,
                      bound);
            cr_expect_neq(p, start_value(s, i), "nothing was learnt");
        }
    }
    for (int i = 0; i < COUNT; i++)
        cr_expect_eq(fixture.weight16[i], hs_bf16_encode(fixture.master[i]), "the weight is the rounded master");
    cr_expect_eq(fixture.optimizer.counters.applied_steps, STEPS);
    cr_expect_eq(fixture.optimizer.counters.skipped_steps, 0);
    hs_optimizer_deinit(&fixture.optimizer);
    cr_expect_eq(fixture.device.current_bytes, 0);
}

Test(optimizer, adamw_agrees_with_double)
{
    check_rule(&adamw, &unscaled);
}

Test(optimizer, adamw_agrees_under_a_loss_scale)
{
    check_rule(&adamw, &dynamic);
}

Test(optimizer, sgd_with_nesterov_momentum_agrees_with_double)
{
    check_rule(&sgd, &dynamic);
}

Test(optimizer, clipping_acts_on_the_unscaled_norm)
{
    HsOptimizerConfig config = sgd;
    config.momentum = 0;
    config.weight_decay = 0;
    config.nesterov = false;
    config.clip_norm = 0.5;
    set_up(&config, &dynamic);
    set_gradients(1, 1024);
    double squares = 0;
    for (int s = 0; s < SPANS; s++)
        for (int i = 0; i < COUNT; i++)
            squares += true_gradient(s, 1, i) * true_gradient(s, 1, i);
    HsStepReport report = step();
    const double norm = sqrt(squares), coefficient = 0.5 / (norm + 1e-6);
    cr_expect_gt(norm, 1.0, "the case must clip");
    cr_expect_float_eq(report.gradient_norm, norm, norm * 1e-14);
    cr_expect_float_eq(report.clip_coefficient, coefficient, 1e-14);
    cr_expect_eq(report.loss_scale, 1024.0f);
    /* Plain SGD shows the multiplier itself: (start - weight) / rate = coefficient * g. */
    for (int i = 0; i < COUNT; i++) {
        double moved = rate_at(0) * coefficient * true_gradient(0, 1, i), expected = start_value(0, i) - moved;
        double bound = hs_tolerance(4, 0, HS_F32, HS_F32, fabs(moved), expected);
        cr_expect(fabs((double)fixture.weight[0][i] - expected) <= bound, "element %d", i);
    }
    /* A small gradient is left as it is. */
    set_gradients(1, 1.0);
    report = step();
    cr_expect_eq(report.clip_coefficient, 1.0);
    hs_optimizer_deinit(&fixture.optimizer);
}

Test(optimizer, a_non_finite_gradient_skips_the_step_and_changes_nothing_else)
{
    set_up(&adamw, &dynamic);
    set_gradients(1, 1024);
    step();
    static Fixture before;
    before = fixture;

    const float bad[] = { INFINITY, -INFINITY, NAN };
    for (int b = 0; b < 2; b++) {
        set_gradients(2, (double)fixture.optimizer.counters.loss_scale);
        fixture.gradient[2][3] = bad[b];
        fixture.gradient16[7] = hs_bf16_encode(bad[b + 1]);
        HsStepReport report = step();
        /* The first overflow lowers the scale to its minimum; the second finds it there. */
        cr_expect_eq(report.verdict, b == 0 ? HS_SCALER_SKIP : HS_SCALER_HOPELESS);
        cr_expect_eq(report.loss_scale, b == 0 ? 1024.0f : 512.0f, "the scale that these gradients were made with");
        cr_expect_eq(fixture.optimizer.counters.loss_scale, 512.0f);
        cr_expect_eq(report.first_nonfinite, 1);
        cr_expect_eq(report.nonfinite_elements, 2);
        cr_expect_not(isfinite(report.gradient_norm));
        cr_expect_eq(fixture.optimizer.counters.skipped_steps, b + 1);
        cr_expect_eq(fixture.optimizer.counters.applied_steps, 1);
        cr_expect_arr_eq(fixture.weight, before.weight, sizeof before.weight);
        cr_expect_arr_eq(fixture.weight16, before.weight16, sizeof before.weight16);
        cr_expect_arr_eq(fixture.master, before.master, sizeof before.master);
        cr_expect_arr_eq(fixture.state, before.state, sizeof before.state);
        for (int i = 0; i < COUNT; i++)
            cr_expect(fixture.gradient[2][i] == 0 && fixture.gradient16[i] == 0, "gradients are cleared");
    }
    /* The next clean step is step 2 for the schedule and the bias correction, as if nothing had happened. */
    set_gradients(2, 512);
    HsStepReport report = step();
    cr_expect_eq(report.verdict, HS_SCALER_APPLY);
    cr_expect_eq(report.learning_rate, rate_at(1));
    cr_expect_eq(report.first_nonfinite, -1);
    cr_expect_eq(fixture.optimizer.counters.applied_steps, 2);
    hs_optimizer_deinit(&fixture.optimizer);
}

Test(optimizer, a_step_allocates_nothing)
{
    set_up(&adamw, &dynamic);
    size_t held = fixture.device.current_bytes, peak = fixture.device.peak_bytes;
    set_gradients(1, 1024);
    step();
    cr_expect_eq(fixture.device.current_bytes, held);
    cr_expect_eq(fixture.device.peak_bytes, peak);
    hs_optimizer_deinit(&fixture.optimizer);
}

Test(optimizer, mistakes_are_refused)
{
    set_up(&adamw, &unscaled);
    HsStepReport report;
    cr_expect_eq(hs_optimizer_step(&fixture.optimizer, &fixture.context, fixture.spans, 2, &report), HS_EINVAL);
    hs_optimizer_deinit(&fixture.optimizer);

    HsOptimizerConfig config = adamw;
    config.beta2 = 1;
    HsOptimizer optimizer;
    HsSchedule schedule = fixture.optimizer.schedule;
    cr_expect_eq(hs_optimizer_init(&optimizer, &fixture.device, &config, &schedule, &unscaled, 1), HS_ECONFIG);
    cr_expect_not_null(strstr(hs_error_message(), "beta2"));
}

Test(optimizer, state_tables)
{
    const int64_t rows[] = { 4, 4 };
    const HsSpan vector = { .name = "v" }, matrix = { .name = "m", .part_count = 2, .part_rows = rows };
    cr_expect_eq(hs_optimizer_state_count(&adamw, &vector), 2);
    cr_expect_str_eq(hs_optimizer_state_name(&adamw, &vector, 1), "v");
    cr_expect_eq(hs_optimizer_state_count(&sgd, &vector), 1);
    cr_expect_str_eq(hs_optimizer_state_name(&sgd, &vector, 0), "momentum");
    HsOptimizerConfig config = sgd;
    config.momentum = 0;
    cr_expect_eq(hs_optimizer_state_count(&config, &vector), 0);
    /* what Muon does not serve is AdamW's */
    config.kind = HS_OPTIMIZER_MUON;
    cr_expect_eq(hs_optimizer_state_count(&config, &matrix), 1);
    cr_expect_eq(hs_optimizer_state_count(&config, &vector), 2);
    /* a group's rule comes before the run's */
    const HsOptimizerGroup group = { .kind = HS_OPTIMIZER_ADAMW, .learning_rate_scale = 1 };
    HsSpan grouped = matrix;
    grouped.group = &group;
    cr_expect_eq(hs_optimizer_kind_of(&config, &grouped), HS_OPTIMIZER_ADAMW);
}
