/* SPDX-License-Identifier: MIT
 *
 * Example 5: what the two interpolations of meta-experience replay do (MER: Riemer et al. 2019, algorithm 1).
 *
 *     build/examples/05_mer_interpolations
 *
 *     A0 = theta;  s times { W0 = theta;  K steps;  theta = W0 + beta (theta - W0) };  theta = A0 + gamma (theta - A0)
 *
 * Part 1: how far a window of s K steps gets, by the trainer's own optimizer and strategy.
 * Part 2: two examples with theta = (u, v),  l1 = u^2/2 - u v  and  l2 = u^2/2 + u v.  Their mean is u^2/2: v makes no
 * difference to it.  But the gradients are  (u - v, -u)  and  (u + v, u),  with the product  g1 . g2 = -v^2:  v is how
 * much the examples disagree.  Steps taken one after another feel it, one step on both together does not.
 */
#include <stdio.h>

#include "optim/continual/continual.h"

enum { STEPS = 4, WINDOWS = 200, SHOWN_EVERY = 40 };
static const double RATE = 0.05;

typedef struct Run {
    float theta[2], gradient[2];
    HsDevice device;
    HsContext context;
    HsOptimizer optimizer;
    HsSpan span;
    HsContinual *continual;
    HsReplayPlan plan;
} Run;

static HsStatus start(Run *run, double rate, const HsContinualConfig *config)
{
    HsSchedule schedule;
    const HsOptimizerConfig sgd = { .kind = HS_OPTIMIZER_SGD };
    const HsScalerConfig no_scaling = { .kind = HS_SCALER_NONE };
    *run = (Run){ .plan = hs_continual_replay_plan(config, 1) };
    HS_TRY(hs_device_host_init(&run->device));
    run->context = (HsContext){ .backend = hs_backend_ref(), .device = &run->device, .threads = 1 };
    run->span = (HsSpan){ .name = "theta",
                          .learning_rate_scale = 1,
                          .weight = hs_tensor_1d(run->theta, HS_F32, 2),
                          .gradient = hs_tensor_1d(run->gradient, HS_F32, 2) };
    HS_TRY(hs_schedule_init(&schedule, "constant", rate, 0, 0, 1, 0));
    HS_TRY(hs_optimizer_init(&run->optimizer, &run->device, &sgd, &schedule, &no_scaling, 1));
    HS_TRY(hs_continual_create(config, &run->context, &run->span, 1, &run->continual));
    run->optimizer.learning_rate_scale = hs_continual_rate_scale(config).least;
    return HS_OK;
}

static void release(Run *run)
{
    hs_continual_destroy(run->continual);
    hs_optimizer_deinit(&run->optimizer);
}

/* A gradient of the theta that a step finds; `step` counts within the window. */
typedef void GradientFunction(const float theta[2], int64_t step, float gradient[2]);

static HsStatus train_window(Run *run, int64_t window, GradientFunction *gradient)
{
    for (int64_t step = 0; step < hs_replay_window_steps(&run->plan); step++) {
        const HsReplayStep place = hs_replay_step(&run->plan, window, step, true);
        HsStepReport report;
        gradient(run->theta, step, run->gradient);
        HS_TRY(hs_optimizer_step(&run->optimizer, &run->context, &run->span, 1, &report));
        HS_TRY(hs_continual_after_step(run->continual, &run->context, &place, false));
    }
    return HS_OK;
}

static HsContinualConfig mer(int64_t groups, double beta, double gamma, const char *compensate)
{
    return (HsContinualConfig){ .strategies = { "mer" },
                                .strategy_count = 1,
                                .settings = { { "replay", "fraction", .number = 0 },
                                              { "replay", "draw", .word = "any" },
                                              { "replay", "late_part", .number = 0 },
                                              { "replay", "late_fraction", .number = 0 },
                                              { "mer", "mode", .word = "algorithm1" },
                                              { "mer", "beta", .number = beta },
                                              { "mer", "gamma", .number = gamma },
                                              { "mer", "epsilon", .number = 1 },
                                              { "mer", "groups", .number = (double)groups },
                                              { "mer", "group_steps", .number = STEPS },
                                              { "mer", "interval", .number = 1 },
                                              { "mer", "compensate_learning_rate", .word = compensate } } };
}

static void slope(const float theta[2], int64_t step, float gradient[2])
{
    (void)theta, (void)step;
    gradient[0] = -1;
    gradient[1] = 0;
}

/* l = (u - 1)^2 / 2, from u = 0 */
static void bowl(const float theta[2], int64_t step, float gradient[2])
{
    (void)step;
    gradient[0] = theta[0] - 1;
    gradient[1] = 0;
}

static HsStatus print_displacements(void)
{
    static const struct {
        int64_t groups;
        double beta, gamma;
        const char *compensate;
    } rows[] = { { 1, 1, 1, "false" },     { 1, 1, 0.3, "false" },  { 3, 1, 0.3, "false" }, { 1, 0.1, 0.1, "false" },
                 { 3, 0.1, 0.1, "false" }, { 1, 0.1, 0.1, "true" }, { 1, 1, 0.3, "auto" } };
    enum { BOWL_WINDOWS = 20 };
    HsStatus status = HS_OK;
    printf("1. Displacement of a window of s groups of %d steps, rate %g\n\n", STEPS, RATE);
    printf("  %2s %5s %6s %12s %14s %14s %22s\n", "s", "beta", "gamma", "rate times", "s beta gamma", "displacement",
           "loss of 1/2 after 20");
    for (size_t i = 0; i < sizeof rows / sizeof rows[0] && status == HS_OK; i++) {
        const HsContinualConfig config = mer(rows[i].groups, rows[i].beta, rows[i].gamma, rows[i].compensate);
        Run straight = { 0 }, curved = { 0 };
        status = start(&straight, RATE, &config);
        if (status == HS_OK)
            status = start(&curved, RATE, &config);
        if (status == HS_OK)
            status = hs_continual_begin_task(straight.continual, &straight.context, 0);
        if (status == HS_OK)
            status = hs_continual_begin_task(curved.continual, &curved.context, 0);
        if (status == HS_OK)
            status = train_window(&straight, 0, slope);
        for (int window = 0; window < BOWL_WINDOWS && status == HS_OK; window++)
            status = train_window(&curved, window, bowl);
        const double distance = 1 - (double)curved.theta[0];
        if (status == HS_OK)
            printf("  %2d %5g %6g %12g %14g %14.4f %22.6f\n", (int)rows[i].groups, rows[i].beta, rows[i].gamma,
                   hs_continual_rate_scale(&config).least, (double)rows[i].groups * rows[i].beta * rows[i].gamma,
                   (double)straight.theta[0] / (RATE * STEPS), distance * distance / 2);
        release(&straight);
        release(&curved);
    }
    printf(
        "\n  Displacement: of one window on a slope, in units of %d plain steps; it is rate times s beta gamma.\n"
        "  With beta = gamma = 0.1 and one group, 99%% of every window is taken back, and the trainer says so at its\n"
        "  start.  mer.compensate_learning_rate: auto, the last row, divides the rate by s beta gamma down to 0.3, "
        "and\n"
        "  leaves no less than 0.3; true divides it by no more than ten.\n\n",
        STEPS);
    return status;
}

/* 1, 2, 2, 1: each example as often first as last. */
static void one_after_another(const float theta[2], int64_t step, float gradient[2])
{
    const float sign = step == 0 || step == 3 ? -1.0f : 1.0f, u = theta[0], v = theta[1];
    gradient[0] = u + sign * v;
    gradient[1] = sign * u;
}

static void both_together(const float theta[2], int64_t step, float gradient[2])
{
    (void)step;
    gradient[0] = theta[0];
    gradient[1] = 0;
}

static HsStatus print_alignment(void)
{
    const HsContinualConfig none = { .strategy_count = 0 };
    const struct {
        const char *title;
        HsContinualConfig config;
        double rate;
        GradientFunction *gradient;
    } columns[] = { { "one batch", none, STEPS * RATE, both_together },
                    { "in sequence", mer(1, 1, 1, "false"), RATE, one_after_another },
                    { "gamma 0.25", mer(1, 1, 0.25, "false"), RATE / 0.25, one_after_another },
                    { "gamma 0.1", mer(1, 1, 0.1, "false"), RATE / 0.1, one_after_another } };
    enum { COLUMNS = sizeof columns / sizeof columns[0] };
    Run runs[COLUMNS] = { 0 };
    HsStatus status = HS_OK;
    printf("2. Gradients that disagree: g1 . g2 over training; rate x steps x gamma is %g in every column\n\n",
           STEPS * RATE);
    printf("  %10s", "windows");
    for (int c = 0; c < COLUMNS && status == HS_OK; c++) {
        printf(" %14s", columns[c].title);
        status = start(&runs[c], columns[c].rate, &columns[c].config);
        runs[c].theta[0] = runs[c].theta[1] = 1;
        if (status == HS_OK)
            status = hs_continual_begin_task(runs[c].continual, &runs[c].context, 0);
    }
    printf("\n");
    for (int window = 0; window <= WINDOWS && status == HS_OK; window++) {
        if (window % SHOWN_EVERY == 0) {
            printf("  %10d", window);
            for (int c = 0; c < COLUMNS; c++) {
                const double u = (double)runs[c].theta[0], v = (double)runs[c].theta[1];
                printf(" %14.5f", (u - v) * (u + v) - u * u);
            }
            printf("\n");
        }
        for (int c = 0; c < COLUMNS && status == HS_OK; c++)
            status = train_window(&runs[c], window, columns[c].gradient);
    }
    printf("  %10s", "mean loss");
    for (int c = 0; c < COLUMNS; c++) {
        printf(" %14.1e", (double)(runs[c].theta[0] * runs[c].theta[0]) / 2);
        release(&runs[c]);
    }
    printf("\n\n  One batch never sees v.  Steps in sequence do: a step on one example moves u to where the other's\n"
           "  gradient depends on v.  To second order in the rate they raise g1 . g2, here from -1 towards 0.\n"
           "  Interpolation lets the inner steps be longer for the same displacement, so that this second-order part\n"
           "  counts for more.  It is no other objective: without it, sequential steps align too, only more slowly.\n");
    return status;
}

int main(void)
{
    HsStatus status = print_displacements();
    if (status == HS_OK)
        status = print_alignment();
    if (status != HS_OK)
        fprintf(stderr, "error: %s\n", hs_error_message());
    return status == HS_OK ? 0 : 1;
}
