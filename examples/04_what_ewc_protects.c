/* SPDX-License-Identifier: MIT
 *
 * Example 4: what elastic weight consolidation (Kirkpatrick et al. 2017) protects, in two parameters.
 *
 *     build/examples/04_what_ewc_protects
 *
 * Linear regression, prediction a . (x, y), loss (prediction - b)^2 / 2.  Task 1 has one input a = (3, 0.01) and b = 3:
 * it needs x = 1 and hardly looks at y.  Task 2 has a = (1, 1) and b = 3: anywhere on the line x + y = 3 will do.  So
 * (1, 2) solves both, and the question is what finds it.  Optimizer, strategies and the Fisher's sums are the trainer's.
 */
#include <math.h>
#include <stdio.h>

#include "optim/continual/continual.h"

typedef struct Task {
    float a[2], b;
} Task;
static const Task tasks[2] = { { { 3, 0.01f }, 3 }, { { 1, 1 }, 3 } };
static const double RATE = 0.05;
enum { TASK_STEPS = 2000, FISHER_SAMPLES = 256 };

/* Two parameters and their gradient; the span is what the optimizer sees of them. */
typedef struct Run {
    float theta[2], gradient[2];
    HsDevice device;
    HsContext context;
    HsOptimizer optimizer;
    HsSpan span;
    HsContinual *continual;
    int samples_left;
} Run;

static float error(const Run *run, const Task *task)
{
    return task->a[0] * run->theta[0] + task->a[1] * run->theta[1] - task->b;
}

static double loss(const Run *run, const Task *task)
{
    const double e = (double)error(run, task);
    return e * e / 2;
}

/* The Fisher is the mean square of gradients at labels drawn from the model itself, here N(prediction, 1).  Then the
 * error is a normal number and its square is 1 on average: F = (a0^2, a1^2), the curvature of the task. */
static HsStatus next_fisher_sample(void *user, HsFisherSample *sample)
{
    Run *run = user;
    *sample = (HsFisherSample){ .multiplier = 1, .weight = 1, .count = 1, .end = run->samples_left == 0 };
    const HsPhilox draw = hs_rng_draw(&(HsRng){ .seed = 4 }, (uint64_t)run->samples_left);
    double normal[2];
    hs_rng_normal(draw.word[0], draw.word[1], normal);
    for (int i = 0; i < 2 && run->samples_left > 0; i++)
        run->gradient[i] = (float)normal[0] * tasks[0].a[i];
    run->samples_left -= run->samples_left > 0;
    return HS_OK;
}

static HsStatus train(Run *run, const Task *task, int steps)
{
    for (int step = 0; step < steps; step++) {
        HsStepReport report;
        for (int i = 0; i < 2; i++)
            run->gradient[i] = error(run, task) * task->a[i];
        HS_TRY(hs_optimizer_step(&run->optimizer, &run->context, &run->span, 1, &report));
    }
    return HS_OK;
}

/* Train task 1, let the strategy look at it, and stand before task 2.  lambda serves l2 and ewc. */
static HsStatus learn_task1(Run *run, const char *strategy, double lambda, bool proximal)
{
    *run = (Run){ .samples_left = FISHER_SAMPLES };
    HsSchedule schedule;
    const HsOptimizerConfig sgd = { .kind = HS_OPTIMIZER_SGD };
    const HsScalerConfig no_scaling = { .kind = HS_SCALER_NONE };
    const HsContinualConfig config = { .strategies = { strategy },
                                       .strategy_count = 1,
                                       .settings = { { "l2", "lambda", .number = lambda },
                                                     { "ewc", "lambda", .number = lambda },
                                                     { "ewc", "gamma", .number = 1 },
                                                     { "ewc", "normalize", .word = "none" },
                                                     { "ewc", "mode", .word = "online" },
                                                     { "ewc", "curvature", .word = "diagonal" },
                                                     { "ewc", "step", .word = proximal ? "proximal" : "gradient" } } };
    HsFisherSource source = { .user = run, .next = next_fisher_sample };
    HS_TRY(hs_device_host_init(&run->device));
    run->context = (HsContext){ .backend = hs_backend_ref(), .device = &run->device, .threads = 1 };
    run->span = (HsSpan){ .name = "theta",
                          .learning_rate_scale = 1,
                          .weight = hs_tensor_1d(run->theta, HS_F32, 2),
                          .gradient = hs_tensor_1d(run->gradient, HS_F32, 2) };
    HS_TRY(hs_schedule_init(&schedule, "constant", RATE, 0, 0, 1, 0));
    HS_TRY(hs_optimizer_init(&run->optimizer, &run->device, &sgd, &schedule, &no_scaling, 1));
    HS_TRY(hs_continual_create(&config, &run->context, &run->span, 1, &run->continual));
    HS_TRY(hs_continual_begin_task(run->continual, &run->context, 0));
    HS_TRY(train(run, &tasks[0], TASK_STEPS));
    HS_TRY(hs_continual_after_task(run->continual, &run->context, 0, &source));
    return hs_continual_begin_task(run->continual, &run->context, 1);
}

static void release(Run *run)
{
    hs_continual_destroy(run->continual);
    hs_optimizer_deinit(&run->optimizer);
}

/* The plane, x from 0.5 to 2.1, y from 0 to 2.1:  |  task 1 solved,  \  task 2 solved. */
enum { COLUMNS = 33, LINES = 15 };
static char plane[LINES][COLUMNS + 1];

static void plot(double x, double y, char mark)
{
    const long column = lround((x - 0.5) / 0.05), line = lround(y / 0.15);
    if (column >= 0 && column < COLUMNS && line >= 0 && line < LINES)
        plane[line][column] = mark;
}

static const struct {
    const char *strategy;
    double lambda;
    bool proximal;
    char mark;
} runs[] = { { "none", 0, false, 'n' }, { "l2", 0.1, false, ' ' }, { "l2", 1, false, 'l' }, { "l2", 10, false, ' ' },
             { "ewc", 1, false, 'e' },  { "ewc", 4, false, ' ' },  { "ewc", 40, true, ' ' } };

static HsStatus print_table(void)
{
    HsStatus status = HS_OK;
    for (double t = 0; t <= 2.1; t += 0.01) {
        plot(1, t, '|');
        plot(3 - t, t, '\\');
    }
    printf("1. Task 1, then task 2 (%d steps of gradient descent each, rate %g)\n\n", TASK_STEPS, RATE);
    printf("  %-6s %8s %-9s %8s %8s %12s %12s\n", "", "lambda", "step", "x", "y", "loss, task 1", "loss, task 2");
    for (size_t i = 0; i < sizeof runs / sizeof runs[0] && status == HS_OK; i++) {
        Run run;
        status = learn_task1(&run, runs[i].strategy, runs[i].lambda, runs[i].proximal);
        if (i == 0 && status == HS_OK) {
            printf("  %-25s %8.3f %8.3f %12.4f %12.4f\n", "after task 1", (double)run.theta[0], (double)run.theta[1],
                   loss(&run, &tasks[0]), loss(&run, &tasks[1]));
            plot((double)run.theta[0], (double)run.theta[1], '1');
        }
        if (status == HS_OK)
            status = train(&run, &tasks[1], TASK_STEPS);
        if (status == HS_OK)
            printf("  %-6s %8g %-9s %8.3f %8.3f %12.4f %12.4f\n", runs[i].strategy, runs[i].lambda,
                   runs[i].proximal ? "proximal" : "gradient", (double)run.theta[0], (double)run.theta[1],
                   loss(&run, &tasks[0]), loss(&run, &tasks[1]));
        if (runs[i].mark != ' ')
            plot((double)run.theta[0], (double)run.theta[1], runs[i].mark);
        release(&run);
    }
    printf("\n");
    for (int line = LINES - 1; line >= 0; line--) {
        for (int column = 0; column < COLUMNS; column++)
            plane[line][column] = plane[line][column] ? plane[line][column] : '.';
        printf("   %5.2f  %s\n", 0.15 * line, plane[line]);
    }
    printf("     y\n      x = 0.5       1.0                2.1     | task 1 solved, \\ task 2 solved\n\n");
    printf("  n (none) takes the shortest way from 1 to the line and leaves task 1.  l (l2, lambda 1) holds x and y\n"
           "  alike: it stops short of both, and no lambda helps.  e (ewc, lambda 1) holds x, where the Fisher is\n"
           "  large, and slides along y, where it is next to nothing: it finds (1, 2).\n\n");
    return status;
}

static HsStatus print_stability(void)
{
    Run run[2];
    HsStatus status = HS_OK;
    const double lambda = 5;
    for (int i = 0; i < 2; i++) {
        HsStatus made = learn_task1(&run[i], "ewc", lambda, i == 1);
        status = status == HS_OK ? made : status;
    }
    if (status == HS_OK)
        printf("2. Too stiff: lambda %g, rate * lambda * F = %.3g (the estimated F of x is %.3g)\n\n", lambda,
               RATE * lambda * hs_continual_importance(run[0].continual)->maximum,
               hs_continual_importance(run[0].continual)->maximum);
    printf("  %5s %16s %16s\n", "step", "x, gradient", "x, proximal");
    for (int step = 0; step <= 40 && status == HS_OK; step += 5) {
        printf("  %5d %16.4f %16.4f\n", step, (double)run[0].theta[0], (double)run[1].theta[0]);
        for (int i = 0; i < 2 && status == HS_OK; i++)
            status = train(&run[i], &tasks[1], 5);
    }
    printf(
        "\n  A gradient step multiplies the distance to the anchor by 1 - rate lambda F: from rate lambda F = 2 on it\n"
        "  grows.  The proximal step divides it by 1 + rate lambda F, which is stable for every lambda.\n");
    for (int i = 0; i < 2; i++)
        release(&run[i]);
    return status;
}

int main(void)
{
    HsStatus status = print_table();
    if (status == HS_OK)
        status = print_stability();
    if (status != HS_OK)
        fprintf(stderr, "error: %s\n", hs_error_message());
    return status == HS_OK ? 0 : 1;
}
