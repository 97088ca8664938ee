/* SPDX-License-Identifier: MIT
 *
 * MER's hooks around the real optimizer, against the paper's algorithms written plainly, in double.
 *
 * The problem is separable: element i of step n has the loss  curvature_i / 2 (theta_i - target_{n,i})^2, so that the
 * plain algorithm runs on one number at a time.  Plain gradient descent with rate * curvature <= 1 and interpolations
 * with rates in [0,1] are contractions or averages: errors made along the way never grow, they only add up.  What is
 * rounded to f32 is, per step, the gradient and the parameter, and per interpolation the parameter and the rate; each
 * is off by at most u times M, the largest |theta| + rate |gradient| + |target| of the run, the rate's by u |theta -
 * snapshot| <= 2 u M.  Hence gamma(2 steps + 3 interpolations) M.
 */
#include <criterion/criterion.h>
#include <float.h>
#include <math.h>
#include <string.h>

#include "kernels/base/tolerance.h"
#include "tests/support/strategy_settings.h"

enum { SPANS = 2, COUNT = 24, ROWS = 4 };

typedef enum Mode { ALGORITHM1, ALGORITHM6, ALGORITHM7, REPTILE } Mode;

static const double RATE = 0.125;

typedef struct Case {
    Mode mode;
    int64_t groups, group_steps, interval;
    double beta, gamma, epsilon;
    double replay_fraction;
    int64_t steps;   /* of each task */
    int64_t skipped; /* the step with a gradient that is not finite; -1: none */
    bool cpu;        /* the cpu backend, else ref */
    bool folded;     /* interpolations are part of the update */
} Case;

/* An f32 weight, and a bf16 one with its master, which penalties would leave out. */
typedef struct Fixture {
    HsDevice device;
    HsContext context;
    HsOptimizer optimizer;
    HsContinualConfig config;
    HsContinual *continual;
    HsReplayPlan plan;
    HsSpan spans[SPANS];
    float weight[COUNT], master[COUNT], gradient[SPANS][COUNT];
    uint16_t weight16[COUNT];
} Fixture;

static double start_value(int span, int i)
{
    return (double)((i * 7 + span * 3) % 17 - 8) / 8.0; /* exact in bf16 */
}

static double curvature_of(int span, int i)
{
    return (double)((i + span * 5) % 8 + 1) / 8.0;
}

static double target_of(int span, int64_t n, int i)
{
    return sin((double)(n * 31 + span * 17 + i * 5 + 1));
}

static HsContinualConfig config_of(const Case *c)
{
    static const char *const words[] = { "algorithm1", "algorithm6", "algorithm7", "reptile" };
    HsContinualConfig config = strategies_of("mer", NULL);
    config.seed = 77;
    set_number(&config, "replay", "fraction", c->replay_fraction);
    set_word(&config, "mer", "mode", words[c->mode]);
    set_number(&config, "mer", "beta", c->beta);
    set_number(&config, "mer", "gamma", c->gamma);
    set_number(&config, "mer", "epsilon", c->epsilon);
    set_number(&config, "mer", "groups", (double)c->groups);
    set_number(&config, "mer", "group_steps", (double)c->group_steps);
    set_number(&config, "mer", "interval", (double)c->interval);
    return config;
}

static void set_up(Fixture *f, const Case *c)
{
    memset(f, 0, sizeof *f);
    cr_assert_eq(hs_device_host_init(&f->device), HS_OK);
    f->context = (HsContext){ .backend = hs_backend_ref(), .device = &f->device, .threads = 1 };
    if (c->cpu)
        cr_assert_eq(hs_backend_cpu(&f->context.backend), HS_OK);
    const HsOptimizerConfig sgd = { .kind = HS_OPTIMIZER_SGD, .seed = 77 };
    const HsScalerConfig scaler = { .kind = HS_SCALER_DYNAMIC,
                                    .init_scale = 1024,
                                    .growth_factor = 2,
                                    .backoff_factor = 0.5,
                                    .min_scale = 1,
                                    .max_scale = 65536,
                                    .growth_interval = 1000,
                                    .hysteresis = 1 };
    HsSchedule schedule;
    cr_assert_eq(hs_schedule_init(&schedule, "constant", RATE, 0, 0, 1, 0), HS_OK);
    cr_assert_eq(hs_optimizer_init(&f->optimizer, &f->device, &sgd, &schedule, &scaler, SPANS), HS_OK);
    for (int s = 0; s < SPANS; s++)
        f->spans[s] = (HsSpan){ .name = s == 0 ? "a" : "b",
                                .learning_rate_scale = 1,
                                .weight = hs_tensor_1d(f->weight, HS_F32, COUNT),
                                .gradient = hs_tensor_1d(f->gradient[s], HS_F32, COUNT),
                                .excluded = s == 1 };
    f->spans[1].weight = hs_tensor_1d(f->weight16, HS_BF16, COUNT);
    f->spans[1].master = hs_tensor_1d(f->master, HS_F32, COUNT);
    for (int i = 0; i < COUNT; i++) {
        f->weight[i] = (float)start_value(0, i);
        f->master[i] = (float)start_value(1, i);
        f->weight16[i] = hs_bf16_encode(f->master[i]);
    }
    f->config = config_of(c);
    f->plan = hs_continual_replay_plan(&f->config, ROWS);
    cr_assert_eq(hs_continual_create(&f->config, &f->context, f->spans, SPANS, &f->continual), HS_OK, "%s",
                 hs_error_message());
}

static void tear_down(Fixture *f)
{
    hs_continual_destroy(f->continual);
    hs_optimizer_deinit(&f->optimizer);
    cr_expect_eq(f->device.current_bytes, 0);
}

static const float *parameters(const Fixture *f, int span)
{
    return span == 0 ? f->weight : f->master;
}

/* Steps [from, to) of a task that begins at step `first` of the run. */
static void train(Fixture *f, const Case *c, int64_t first, int64_t from, int64_t to)
{
    const int64_t window_steps = hs_replay_window_steps(&f->plan);
    for (int64_t n = from; n < to; n++) {
        const HsReplayStep step = hs_replay_step(&f->plan, n / window_steps, n % window_steps, false);
        const double scale = (double)f->optimizer.counters.loss_scale;
        for (int s = 0; s < SPANS; s++)
            for (int i = 0; i < COUNT; i++) {
                const double distance = (double)parameters(f, s)[i] - target_of(s, first + n, i);
                f->gradient[s][i] = (float)(scale * curvature_of(s, i) * distance);
            }
        if (n == c->skipped)
            f->gradient[1][3] = INFINITY;
        HsStepReport report;
        f->optimizer.learning_rate_scale = step.learning_rate_scale;
        if (c->folded)
            hs_continual_fold(f->continual, &step);
        cr_assert_eq(hs_continual_before_update(f->continual, &f->context), HS_OK);
        cr_assert_eq(hs_optimizer_step(&f->optimizer, &f->context, f->spans, SPANS, &report), HS_OK);
        cr_assert_eq(report.verdict, n == c->skipped ? HS_SCALER_SKIP : HS_SCALER_APPLY);
        cr_assert_eq(hs_continual_after_step(f->continual, &f->context, &step, c->folded), HS_OK, "%s",
                     hs_error_message());
    }
}

/* One element's path in double. */
typedef struct Plain {
    const Case *c;
    int span, i;
    int64_t first; /* number of the task's first step in the run */
    double theta, magnitude;
    int64_t interpolations;
} Plain;

static void plain_step(Plain *plain, int64_t n, double rate)
{
    if (n == plain->c->skipped)
        return;
    const double target = target_of(plain->span, plain->first + n, plain->i);
    const double gradient = curvature_of(plain->span, plain->i) * (plain->theta - target);
    plain->magnitude = fmax(plain->magnitude, fabs(plain->theta) + rate * fabs(gradient) + fabs(target));
    plain->theta -= rate * gradient;
}

static void plain_interpolate(Plain *plain, double from, double rate)
{
    plain->theta = from + rate * (plain->theta - from);
    plain->interpolations++;
}

static void plain_algorithm1(Plain *plain)
{
    const Case *c = plain->c;
    for (int64_t n = 0; n < c->steps;) {
        const double a0 = plain->theta;
        for (int64_t group = 0; group < c->groups && n < c->steps; group++) {
            const double w0 = plain->theta;
            for (int64_t k = 0; k < c->group_steps && n < c->steps; k++)
                plain_step(plain, n++, RATE);
            plain_interpolate(plain, w0, c->beta);
        }
        plain_interpolate(plain, a0, c->gamma);
    }
}

/* Half of a group is replayed, and comes first; algorithm 7 takes the current half at s times the rate. */
static void plain_algorithm67(Plain *plain)
{
    const Case *c = plain->c;
    for (int64_t n = 0; n < c->steps;) {
        const double a0 = plain->theta;
        for (int64_t k = 0; k < c->group_steps && n < c->steps; k++) {
            const bool current = 2 * k >= c->group_steps;
            plain_step(plain, n++, current && c->mode == ALGORITHM7 ? RATE * (double)c->groups : RATE);
        }
        plain_interpolate(plain, a0, c->gamma);
    }
}

static void plain_reptile(Plain *plain)
{
    const Case *c = plain->c;
    for (int64_t n = 0; n < c->steps;) {
        const double a0 = plain->theta;
        for (int64_t k = 0; k < c->interval && n < c->steps; k++)
            plain_step(plain, n++, RATE);
        plain_interpolate(plain, a0, c->epsilon);
    }
}

static void (*const plain_table[])(Plain *) = {
    [ALGORITHM1] = plain_algorithm1,
    [ALGORITHM6] = plain_algorithm67,
    [ALGORITHM7] = plain_algorithm67,
    [REPTILE] = plain_reptile,
};

/* Two tasks of c->steps each, both ways; the parameters they end with. */
static void compare_to_plain(const Case *c, float found[SPANS][COUNT])
{
    static Fixture f;
    set_up(&f, c);
    for (int task = 0; task < 2; task++) {
        cr_assert_eq(hs_continual_begin_task(f.continual, &f.context, task), HS_OK);
        train(&f, c, task * c->steps, 0, c->steps);
        cr_assert_eq(hs_continual_after_task(f.continual, &f.context, task, NULL), HS_OK);
        cr_expect_eq(state_integer(f.continual, "mer.steps_in_interval"), 0);
        cr_expect_eq(state_integer(f.continual, "mer.group_open"), 0);
    }
    for (int s = 0; s < SPANS; s++)
        for (int i = 0; i < COUNT; i++) {
            Plain plain = { .c = c, .span = s, .i = i, .theta = start_value(s, i) };
            for (int task = 0; task < 2; task++) {
                plain.first = task * c->steps;
                plain_table[c->mode](&plain);
            }
            const double p = (double)parameters(&f, s)[i];
            const double bound =
                hs_tolerance(2 * c->steps + 3 * plain.interpolations, 0, HS_F32, HS_F32, plain.magnitude, plain.theta);
            cr_expect(fabs(p - plain.theta) <= bound, "%s[%d]: %.9g, expected %.9g +- %g", f.spans[s].name, i, p,
                      plain.theta, bound);
        }
    for (int i = 0; i < COUNT; i++)
        cr_expect_eq(f.weight16[i], hs_bf16_encode(f.master[i]), "the weight is the rounded master");
    for (int s = 0; s < SPANS; s++)
        memcpy(found[s], parameters(&f, s), sizeof found[s]);
    tear_down(&f);
}

/* On either backend, with interpolations apart and folded into the update: the latter two to the bit. */
static void compare(const Case *c)
{
    for (int cpu = 0; cpu < 2; cpu++) {
        float found[2][SPANS][COUNT];
        for (int folded = 0; folded < 2; folded++) {
            Case variant = *c;
            variant.cpu = cpu != 0;
            variant.folded = folded != 0;
            compare_to_plain(&variant, found[folded]);
        }
        cr_expect_arr_eq(found[0], found[1], sizeof found[0], "folded interpolations have other bits");
    }
}

Test(mer, algorithm_1_with_one_group)
{
    compare(&(Case){ .groups = 1, .group_steps = 4, .beta = 0.3, .gamma = 0.7, .steps = 24, .skipped = -1 });
    compare(&(Case){ .groups = 1, .group_steps = 1, .beta = 0.3, .gamma = 1, .steps = 10, .skipped = -1 });
}

Test(mer, algorithm_1_with_several_groups)
{
    compare(&(Case){ .groups = 3, .group_steps = 4, .beta = 0.3, .gamma = 0.7, .steps = 36, .skipped = -1 });
    compare(&(Case){ .groups = 3, .group_steps = 4, .beta = 1, .gamma = 0.7, .steps = 36, .skipped = -1 });
    compare(&(Case){ .groups = 3, .group_steps = 4, .beta = 0.3, .gamma = 1, .steps = 36, .skipped = -1 });
}

/* After 2 steps of a group; after the first group of a window, in the middle of its second, and at its end. */
Test(mer, a_task_may_end_anywhere)
{
    compare(&(Case){ .groups = 1, .group_steps = 4, .beta = 0.3, .gamma = 0.7, .steps = 6, .skipped = -1 });
    static const int64_t ends[] = { 1, 4, 6, 8, 12, 15, 16, 18 };
    for (int e = 0; e < 8; e++)
        compare(&(Case){ .groups = 3, .group_steps = 4, .beta = 0.3, .gamma = 0.7, .steps = ends[e], .skipped = -1 });
}

Test(mer, algorithms_6_and_7)
{
    for (int64_t steps = 10; steps <= 12; steps++) { /* inside a group, and at its end */
        Case c = { .mode = ALGORITHM6, .groups = 3, .group_steps = 4, .beta = 0.3, .gamma = 0.7 };
        c.replay_fraction = 0.5;
        c.steps = steps;
        c.skipped = -1;
        compare(&c);
        c.mode = ALGORITHM7;
        compare(&c);
    }
}

Test(mer, reptile)
{
    Case c = { .mode = REPTILE, .groups = 1, .group_steps = 1, .interval = 5, .epsilon = 0.3, .skipped = -1 };
    c.replay_fraction = 0.25;
    for (c.steps = 13; c.steps <= 15; c.steps++)
        compare(&c);
}

Test(mer, a_skipped_step_is_a_step_of_its_group)
{
    compare(&(Case){ .groups = 1, .group_steps = 4, .beta = 0.3, .gamma = 0.7, .steps = 9, .skipped = 5 });
    compare(&(Case){ .groups = 1, .group_steps = 4, .beta = 0.3, .gamma = 0.7, .steps = 9, .skipped = 7 });
}

Test(mer, rates_of_one_do_no_pass)
{
    static Fixture f;
    const struct {
        Case c;
        int64_t interpolations;
    } cases[] = {
        { { .groups = 1, .group_steps = 2, .beta = 1, .gamma = 1, .steps = 12, .skipped = -1 }, 0 },
        { { .groups = 1, .group_steps = 2, .beta = 0.5, .gamma = 0.5, .steps = 12, .skipped = -1 }, 6 }, /* one pass */
        { { .groups = 3, .group_steps = 2, .beta = 1, .gamma = 0.5, .steps = 12, .skipped = -1 }, 2 },
        { { .groups = 3, .group_steps = 2, .beta = 0.5, .gamma = 1, .steps = 12, .skipped = -1 }, 6 },
        { { .groups = 3, .group_steps = 2, .beta = 0.5, .gamma = 0.5, .steps = 12, .skipped = -1 }, 8 },
    };
    for (size_t k = 0; k < sizeof cases / sizeof cases[0]; k++) {
        const Case *c = &cases[k].c;
        set_up(&f, c);
        cr_expect_eq(hs_strategy_find("mer")->tensors_per_parameter(&f.config), c->groups > 1 ? 2 : 1);
        cr_assert_eq(hs_continual_begin_task(f.continual, &f.context, 0), HS_OK);
        const size_t held = f.device.current_bytes, peak = f.device.peak_bytes;
        train(&f, c, 0, 0, c->steps);
        cr_expect_eq(state_integer(f.continual, "mer.interpolations"), cases[k].interpolations, "case %zu", k);
        cr_expect(f.device.current_bytes == held && f.device.peak_bytes == peak, "a step allocates nothing");
        tear_down(&f);
    }
}

/* A walk that writes the state into a list, or reads it back in the same order. */
typedef struct Saved {
    bool load;
    int integers, tensors;
    int64_t integer[16];
    float tensor[8][COUNT];
    const char *family[8];
} Saved;

static HsStatus visit_integer(void *user, const char *name, int64_t *value, int64_t most)
{
    cr_expect(*value >= 0 && *value <= most, "%s", name);
    Saved *saved = user;
    int64_t *slot = &saved->integer[saved->integers++];
    *(saved->load ? value : slot) = *(saved->load ? slot : value);
    return HS_OK;
}

static HsStatus visit_real(void *user, const char *name, double *value)
{
    (void)user, (void)name, (void)value;
    return HS_EINVAL; /* MER has none */
}

static HsStatus visit_tensor(void *user, const char *family, const char *span, HsTensor *tensor)
{
    (void)span;
    Saved *saved = user;
    float *slot = saved->tensor[saved->tensors];
    saved->family[saved->tensors++] = family;
    memcpy(saved->load ? tensor->data : slot, saved->load ? slot : tensor->data, sizeof saved->tensor[0]);
    return HS_OK;
}

Test(mer, a_run_resumed_inside_a_group_is_the_same_run)
{
    static Fixture whole, resumed;
    const Case c = { .groups = 3, .group_steps = 4, .beta = 0.3, .gamma = 0.7, .steps = 30, .skipped = -1 };
    for (int64_t cut = 1; cut < 14; cut++) {
        set_up(&whole, &c);
        cr_assert_eq(hs_continual_begin_task(whole.continual, &whole.context, 0), HS_OK);
        train(&whole, &c, 0, 0, cut);
        static Saved saved;
        saved = (Saved){ .load = false };
        const HsStateVisitor visitor = { &saved, visit_integer, visit_real, visit_tensor, visit_integer };
        cr_assert_eq(hs_continual_visit(whole.continual, &visitor), HS_OK);
        cr_expect_eq(saved.tensors, 2 * SPANS);
        cr_expect_str_eq(saved.family[0], "mer.group_start");
        cr_expect_str_eq(saved.family[SPANS], "mer.window_start");

        set_up(&resumed, &c);
        memcpy(resumed.weight, whole.weight, sizeof whole.weight);
        memcpy(resumed.master, whole.master, sizeof whole.master);
        memcpy(resumed.weight16, whole.weight16, sizeof whole.weight16);
        saved.load = true;
        saved.integers = saved.tensors = 0;
        cr_assert_eq(hs_continual_visit(resumed.continual, &visitor), HS_OK);

        train(&whole, &c, 0, cut, c.steps);
        train(&resumed, &c, 0, cut, c.steps);
        cr_assert_eq(hs_continual_after_task(whole.continual, &whole.context, 0, NULL), HS_OK);
        cr_assert_eq(hs_continual_after_task(resumed.continual, &resumed.context, 0, NULL), HS_OK);
        cr_expect_arr_eq(resumed.weight, whole.weight, sizeof whole.weight, "cut %lld", (long long)cut);
        cr_expect_arr_eq(resumed.master, whole.master, sizeof whole.master, "cut %lld", (long long)cut);
        cr_expect_eq(state_integer(resumed.continual, "mer.interpolations"),
                     state_integer(whole.continual, "mer.interpolations"));
        tear_down(&whole);
        tear_down(&resumed);
    }
}

/* bf16 weights without a master: each span's, and each interpolation's, roundings are drawn apart. */
Test(mer, stochastic_rounding_draws_anew)
{
    enum { MANY = 256 };
    static uint16_t weight[SPANS][MANY], first[MANY];
    HsDevice device;
    cr_assert_eq(hs_device_host_init(&device), HS_OK);
    HsContext context = { .backend = hs_backend_ref(), .device = &device, .threads = 1 };
    const Case c = { .groups = 1, .group_steps = 1, .beta = 0.3, .gamma = 1 };
    const HsContinualConfig config = config_of(&c);
    HsSpan spans[SPANS] = { { .name = "a", .parameter = 0, .weight = hs_tensor_1d(weight[0], HS_BF16, MANY) },
                            { .name = "b", .parameter = 1, .weight = hs_tensor_1d(weight[1], HS_BF16, MANY) } };
    for (int s = 0; s < SPANS; s++)
        spans[s].gradient = spans[s].weight; /* not looked at */
    HsContinual *continual;
    cr_assert_eq(hs_continual_create(&config, &context, spans, SPANS, &continual), HS_OK);
    const HsReplayStep step = { .closes_group = true, .closes_window = true };
    for (int window = 0; window < 2; window++) {
        for (int i = 0; i < SPANS * MANY; i++)
            weight[i / MANY][i % MANY] = hs_bf16_encode(1.0f);
        cr_assert_eq(hs_continual_begin_task(continual, &context, 0), HS_OK);
        for (int i = 0; i < SPANS * MANY; i++) /* 0.3 of the way to 1 + 2^-7 lies between two bf16 numbers */
            weight[i / MANY][i % MANY] = hs_bf16_encode(1.0f + 0x1p-7f);
        cr_assert_eq(hs_continual_after_step(continual, &context, &step, false), HS_OK);
        int up = 0;
        for (int i = 0; i < MANY; i++)
            up += weight[0][i] != hs_bf16_encode(1.0f);
        /* Binomial (256, 0.3): 76.8 +- 5 standard deviations of 7.3. */
        cr_expect(up > 40 && up < 114, "%d", up);
        cr_expect_arr_neq(weight[0], weight[1], sizeof weight[0], "spans round apart");
        if (window == 1)
            cr_expect_arr_neq(weight[0], first, sizeof first, "interpolations round apart");
        memcpy(first, weight[0], sizeof first);
    }
    hs_continual_destroy(continual);
}

Test(mer, displacement_and_rate_scale)
{
    const struct {
        Case c;
        double scale; /* 1 / displacement, within bounds */
    } cases[] = {
        { { .groups = 1, .beta = 0.1, .gamma = 0.1 }, 10 }, /* 1/d = 100, capped */
        { { .groups = 1, .beta = 0.5, .gamma = 0.5 }, 4 },
        { { .groups = 4, .beta = 0.5, .gamma = 0.25 }, 2 },
        { { .groups = 4, .beta = 1, .gamma = 1 }, 1 }, /* never lowered */
        { { .groups = 1, .beta = 0, .gamma = 1 }, 10 },
        { { .mode = ALGORITHM6, .groups = 4, .beta = 0.1, .gamma = 0.5 }, 2 },
        { { .mode = ALGORITHM7, .groups = 4, .beta = 0.1, .gamma = 0.25 }, 4 },
        { { .mode = REPTILE, .groups = 4, .beta = 0.1, .gamma = 0.1, .epsilon = 0.2 }, 5 },
    };
    for (size_t k = 0; k < sizeof cases / sizeof cases[0]; k++) {
        HsContinualConfig config = config_of(&cases[k].c);
        cr_expect_eq(hs_continual_rate_scale(&config).least, 1.0);
        set_word(&config, "mer", "compensate_learning_rate", "true");
        cr_expect_float_eq(hs_continual_rate_scale(&config).least, cases[k].scale, 1e-13, "case %zu", k);
        config.strategies[0] = "er";
        cr_expect_eq(hs_continual_rate_scale(&config).least, 1.0);
    }
}

/* compensate_learning_rate: auto, by what a window leaves of a displacement of 1: nothing from 0.7 on, 1/d from 0.3 on,
 * else 0.3 is left and a trial finds the rate below 1/d. */
Test(mer, automatic_compensation)
{
    const struct {
        Case c;
        double least, most, left;
    } cases[] = {
        { { .groups = 1, .beta = NAN, .gamma = NAN }, 1, 1, 0.7 },
        { { .groups = 1, .beta = 0.8, .gamma = NAN }, 1, 1, 0.7 },
        { { .groups = 1, .beta = 0.5, .gamma = NAN }, 2, 2, 0.5 },
        { { .groups = 1, .beta = 0.5, .gamma = 0.8 }, 2.5, 2.5, 0.4 },
        { { .groups = 1, .beta = 0.1, .gamma = 0.1 }, 1, 100, 0.3 },
        { { .groups = 1, .beta = 0, .gamma = 1 }, 1, 1, 0 }, /* nothing was to be learned */
        { { .mode = ALGORITHM6, .groups = 1, .beta = NAN, .gamma = NAN }, 1, 1, 0.7 },
        { { .mode = ALGORITHM6, .groups = 1, .beta = 0.1, .gamma = 0.05 }, 1, 20, 0.3 },
        { { .mode = REPTILE, .groups = 1, .beta = NAN, .gamma = NAN, .epsilon = 0.5 }, 1, 1, 0.5 },
        { { .mode = REPTILE, .groups = 1, .beta = NAN, .gamma = NAN, .epsilon = 0.1 }, 1, 10, 0.3 },
    };
    for (size_t k = 0; k < sizeof cases / sizeof cases[0]; k++) {
        Case c = cases[k].c;
        Fixture f;
        c.group_steps = c.interval = 1;
        HsContinualConfig config = config_of(&c);
        set_word(&config, "mer", "compensate_learning_rate", "auto");
        cr_expect_float_eq(hs_continual_rate_scale(&config).least, cases[k].least, 1e-13, "case %zu", k);
        cr_expect_float_eq(hs_continual_rate_scale(&config).most, cases[k].most, 1e-11, "case %zu", k);
        /* A window that moves a parameter by 1. */
        set_up(&f, &c);
        hs_continual_destroy(f.continual);
        cr_assert_eq(hs_continual_create(&config, &f.context, f.spans, SPANS, &f.continual), HS_OK);
        cr_assert_eq(hs_continual_begin_task(f.continual, &f.context, 0), HS_OK);
        const float before = f.weight[0];
        f.weight[0] += 1;
        const HsReplayStep step = { .learning_rate_scale = 1, .closes_group = true, .closes_window = true };
        cr_assert_eq(hs_continual_after_step(f.continual, &f.context, &step, false), HS_OK);
        cr_expect_float_eq(f.weight[0] - before, cases[k].left, 4 * FLT_EPSILON * (1 + fabs(before)), "case %zu", k);
        tear_down(&f);
    }
}
