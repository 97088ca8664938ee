/* SPDX-License-Identifier: MIT
 *
 * Schedule-free AdamW over 400 steps with a warm-up: what the program of its authors makes of the same gradients in
 * double (tests/golden/schedule_free), the paper's algorithm written out here in its states x and z, and the optimizer
 * in f32.
 *
 * The optimizer may be off by what its roundings can come to, which is carried along: with u = y and d = z - y, off by
 * e(u) and e(d), a step leaves
 *     e(u) + c e(d) + |step| e(D) + roundings,   (1 - c) e(d) + |back| e(D) + roundings,   e(D) = wd e(u) + ...
 */
#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "kernels/base/tolerance.h"
#include "kernels/cpu/cpu.h"
#include "optim/update.h"

#define OK(call) cr_assert_eq((call), HS_OK, "%s", hs_error_message())

enum { COUNT = 8, STEPS = 400, WARMUP = 32, SPANS = 2 };
/* Exact in binary: as floats they are the same numbers. */
static const double rate_most = 0.03125, beta1 = 0.875, beta2 = 0.96875, epsilon = 0x1p-20, decay = 0.25;

static const HsOptimizerConfig config = { .kind = HS_OPTIMIZER_SCHEDULE_FREE,
                                          .beta1 = 0.875,
                                          .beta2 = 0.96875,
                                          .epsilon = 0x1p-20,
                                          .weight_decay = 0.25,
                                          .seed = 5 };
static const HsScalerConfig unscaled = { .kind = HS_SCALER_NONE };
static const HsScalerConfig dynamic = { .kind = HS_SCALER_DYNAMIC,
                                        .init_scale = 64,
                                        .growth_factor = 2,
                                        .backoff_factor = 0.5,
                                        .min_scale = 1,
                                        .max_scale = 64,
                                        .growth_interval = 1000,
                                        .hysteresis = 1 };

static double start_value(int i)
{
    return (double)((i * 7) % 11 - 5) / 8.0;
}

static double true_gradient(int step, int i)
{
    return (double)((i * 13 + step * 17 + step * step * 5) % 101 - 50 + 8 * (i % 3)) / 64.0;
}

/* What `roundings` roundings to f32 in a row come to, relative (Higham 2002, lemma 3.1). */
static double gamma_of(int roundings)
{
    return roundings * 0x1p-24 / (1 - roundings * 0x1p-24);
}

/* --- the paper's algorithm 1 --- */

typedef struct Element {
    double x, z, v;
    double y_off, d_off, v_off; /* how far an f32 one may be off */
} Element;

typedef struct Exact {
    double largest, squares;
    Element element[COUNT];
} Exact;

static double y_of(const Element *e)
{
    return (1 - beta1) * e->z + beta1 * e->x;
}

static void start(Exact *exact)
{
    *exact = (Exact){ 0 };
    for (int i = 0; i < COUNT; i++)
        exact->element[i].x = exact->element[i].z = start_value(i);
}

/* The gradient is exact.  v: two products and an addition; root, sum, quotient and decay 4, and half of v's error. */
static void advance_element(Element *e, double g, double rate, double c)
{
    const double y = y_of(e), d = e->z - y;
    e->v = beta2 * e->v + (1 - beta2) * g * g;
    e->v_off = beta2 * e->v_off + gamma_of(4) * e->v;
    const double quotient = g / (sqrt(e->v) + epsilon), direction = quotient + decay * y;
    const double relative = e->v > 0 ? e->v_off / e->v : 0;
    const double off = (gamma_of(3) + relative / 2 * (1 + relative)) * fabs(quotient) + decay * e->y_off +
                       gamma_of(1) * (fabs(quotient) + decay * fabs(y));
    const double size = fabs(quotient) + decay * fabs(y), step = rate * (beta1 * (1 - c) + 1), back = rate * beta1;
    /* c and the rate are rounded to f32, which the factors' roundings have, too */
    const double y_off = e->y_off + c * e->d_off + step * off + gamma_of(6) * (step * size + c * fabs(d)) +
                         gamma_of(2) * (fabs(y) + c * fabs(d) + step * size);
    const double d_off = (1 - c) * e->d_off + back * off + gamma_of(6) * (back * size + c * fabs(d)) +
                         gamma_of(2) * (fabs(d) + back * size);
    e->z -= rate * direction;
    e->x = (1 - c) * e->x + c * e->z;
    e->y_off = y_off;
    e->d_off = d_off;
}

static double rate_of(int step)
{
    return rate_most * fmin(1, (double)step / WARMUP) * sqrt(1 - pow(beta2, step));
}

static double weight_of(Exact *exact, int step)
{
    exact->largest = fmax(exact->largest, rate_of(step));
    exact->squares += exact->largest * exact->largest;
    return exact->largest * exact->largest / exact->squares;
}

static void advance(Exact *exact, int step)
{
    const double c = weight_of(exact, step);
    for (int i = 0; i < COUNT; i++)
        advance_element(&exact->element[i], true_gradient(step, i), rate_of(step), c);
}

/* Both in double: some ten roundings a step, of numbers of a few units. */
Test(schedule_free, the_authors_program_agrees_with_the_paper)
{
    FILE *file = fopen("tests/golden/schedule_free/steps.txt", "r");
    cr_assert_not_null(file, "tests run in the repository's root");
    Exact exact;
    int step, element, rows = 0, done = 0;
    double y, x;
    start(&exact);
    while (fscanf(file, "%d %d %la %la", &step, &element, &y, &x) == 4) {
        while (done < step)
            advance(&exact, ++done);
        const Element *e = &exact.element[element];
        const double bound = 10.0 * step * 0x1p-53 * 8;
        cr_expect(fabs(y - y_of(e)) <= bound, "step %d, y[%d] = %.17g, expected %.17g", step, element, y, y_of(e));
        cr_expect(fabs(x - e->x) <= bound, "step %d, x[%d] = %.17g, expected %.17g", step, element, x, e->x);
        rows++;
    }
    fclose(file);
    cr_expect_eq(done, STEPS);
    cr_expect_eq(rows, 9 * COUNT);
}

/* --- the optimizer --- */

typedef struct Fixture {
    HsDevice device;
    HsContext context;
    HsOptimizer optimizer;
    HsSpan spans[SPANS]; /* f32 alone; bf16 with a master and gradients in bf16 */
    float weight[COUNT], master[COUNT], gradient[COUNT], state[SPANS][2][COUNT];
    uint16_t weight16[COUNT];
    _Alignas(64) float workspace[2 * HS_DERIVED_PIECE];
} Fixture;

static Fixture fixture;

static void set_up(const HsBackend *backend, const HsOptimizerConfig *rules, const HsScalerConfig *scaler)
{
    Fixture *f = &fixture;
    HsSchedule schedule;
    memset(f, 0, sizeof *f);
    OK(hs_device_host_init(&f->device));
    f->context = (HsContext){ .backend = backend,
                              .device = &f->device,
                              .threads = 1,
                              .workspace = f->workspace,
                              .workspace_bytes = sizeof f->workspace };
    OK(hs_schedule_init(&schedule, "constant", rate_most, 0, WARMUP, STEPS, 0));
    OK(hs_optimizer_init(&f->optimizer, &f->device, rules, &schedule, scaler, SPANS));
    for (int s = 0; s < SPANS; s++) {
        f->spans[s] = (HsSpan){ .name = "p", .count = COUNT, .decay = true, .learning_rate_scale = 1 };
        f->spans[s].weight =
            s == 0 ? hs_tensor_1d(f->weight, HS_F32, COUNT) : hs_tensor_1d(f->weight16, HS_BF16, COUNT);
        f->spans[s].gradient = hs_tensor_1d(s == 0 ? f->gradient : NULL, HS_F32, COUNT);
        for (int n = 0; n < 2; n++)
            f->spans[s].state[n] = hs_tensor_1d(f->state[s][n], HS_F32, COUNT);
    }
    static float second[COUNT];
    f->spans[1].gradient.data = second;
    f->spans[1].master = hs_tensor_1d(f->master, HS_F32, COUNT);
    for (int i = 0; i < COUNT; i++)
        f->weight[i] = f->master[i] = (float)start_value(i);
    OK(hs_optimizer_round_weights(&f->optimizer, &f->context, f->spans, SPANS));
}

static HsStepReport step_with(int step, bool broken)
{
    HsStepReport report;
    const double scale = (double)fixture.optimizer.counters.loss_scale;
    for (int s = 0; s < SPANS; s++)
        for (int i = 0; i < COUNT; i++)
            ((float *)fixture.spans[s].gradient.data)[i] = broken ? INFINITY : (float)(scale * true_gradient(step, i));
    OK(hs_optimizer_step(&fixture.optimizer, &fixture.context, fixture.spans, SPANS, &report));
    return report;
}

static void expect_y(const Exact *exact, int step)
{
    for (int i = 0; i < COUNT; i++) {
        const Element *e = &exact->element[i];
        const double expected = y_of(e), apart = e->z - expected;
        cr_expect(fabs((double)fixture.weight[i] - expected) <= e->y_off, "step %d, y[%d] = %.9g, expected %.9g +- %g",
                  step, i, (double)fixture.weight[i], expected, e->y_off);
        cr_expect(fabs((double)fixture.state[0][0][i] - apart) <= e->d_off,
                  "step %d, z - y [%d] = %.9g, expected %.9g +- %g", step, i, (double)fixture.state[0][0][i], apart,
                  e->d_off);
        cr_expect_eq(fixture.master[i], fixture.weight[i]);
        cr_expect_eq(fixture.weight16[i], hs_bf16_encode(fixture.master[i]));
    }
}

/* x: the two errors in its combination, its factor, product and sum. */
static void expect_x(const Exact *exact, const float *x)
{
    const double rate = fabs(1 - 1 / beta1);
    for (int i = 0; i < COUNT; i++) {
        const Element *e = &exact->element[i];
        const double y = y_of(e), apart = rate * (e->z - y);
        const double bound = e->y_off + rate * e->d_off + gamma_of(4) * (fabs(y) + fabs(apart));
        cr_expect(fabs((double)x[i] - e->x) <= bound, "x[%d] = %.9g, expected %.9g +- %g", i, (double)x[i], e->x,
                  bound);
    }
}

static void follow(const HsBackend *backend, const HsScalerConfig *scaler)
{
    Exact exact;
    float x[COUNT], x_of_master[COUNT], y[COUNT];
    int skipped = 0;
    set_up(backend, &config, scaler);
    start(&exact);
    for (int step = 1; step <= STEPS; step++) {
        if (scaler->kind == HS_SCALER_DYNAMIC && step % 100 == 50) /* changes nothing, the averages' weights neither */
            skipped += step_with(step, true).verdict == HS_SCALER_SKIP;
        cr_expect_eq(step_with(step, false).verdict, HS_SCALER_APPLY);
        advance(&exact, step);
        expect_y(&exact, step);
    }
    cr_expect_eq(skipped, scaler->kind == HS_SCALER_DYNAMIC ? 4 : 0);
    cr_expect_float_eq(fixture.optimizer.counters.largest_rate, exact.largest, 1e-15);
    cr_expect_float_eq(fixture.optimizer.counters.rate_squares, exact.squares, 1e-14);

    memcpy(y, fixture.weight, sizeof y);
    OK(hs_optimizer_derive(&fixture.optimizer, &fixture.context, &fixture.spans[0].weight, false,
                           &fixture.spans[0].state[0], x));
    OK(hs_optimizer_derive(&fixture.optimizer, &fixture.context, &fixture.spans[1].master, true,
                           &fixture.spans[1].state[0], x_of_master));
    expect_x(&exact, x);
    cr_expect_arr_eq(x, x_of_master, sizeof x);
    cr_expect_arr_eq(fixture.weight, y, sizeof y);
    OK(hs_optimizer_show(&fixture.optimizer, &fixture.context, fixture.spans, SPANS));
    cr_expect_arr_eq(fixture.weight, x, sizeof x, "what is evaluated is what is saved");
    cr_expect_arr_eq(fixture.master, y, sizeof y);
    for (int i = 0; i < COUNT; i++)
        cr_expect_eq(fixture.weight16[i], hs_bf16_encode(x[i]));

    /* A fresh start begins with x. */
    memcpy(fixture.weight, y, sizeof y);
    OK(hs_optimizer_reset_state(&fixture.optimizer, &fixture.context, fixture.spans, SPANS));
    cr_expect_arr_eq(fixture.weight, x, sizeof x);
    cr_expect_arr_eq(fixture.master, x, sizeof x);
    for (int i = 0; i < COUNT; i++)
        cr_expect(fixture.state[0][0][i] == 0 && fixture.state[1][1][i] == 0);
    cr_expect_eq(fixture.optimizer.counters.rate_squares, 0);
    hs_optimizer_deinit(&fixture.optimizer);
    cr_expect_eq(fixture.device.current_bytes, 0);
}

Test(schedule_free, the_reference_agrees_with_the_paper)
{
    follow(hs_backend_ref(), &unscaled);
}

Test(schedule_free, the_cpu_agrees_with_the_paper_under_a_loss_scale)
{
    const HsBackend *cpu;
    OK(hs_backend_cpu(&cpu));
    follow(cpu, &dynamic);
}

/* What moves a weight from outside moves z and x as far. */
Test(schedule_free, a_moved_weight_takes_its_mean_along)
{
    float before[COUNT], after[COUNT];
    set_up(hs_backend_ref(), &config, &unscaled);
    for (int step = 1; step <= 50; step++)
        step_with(step, false);
    const HsTensor *y = &fixture.spans[0].weight, *apart = &fixture.spans[0].state[0];
    OK(hs_optimizer_derive(&fixture.optimizer, &fixture.context, y, false, apart, before));
    for (int i = 0; i < COUNT; i++)
        fixture.weight[i] += 0.5f;
    OK(hs_optimizer_derive(&fixture.optimizer, &fixture.context, y, false, apart, after));
    for (int i = 0; i < COUNT; i++)
        cr_expect_float_eq(after[i] - before[i], 0.5f, 0x1p-21f);
    hs_optimizer_deinit(&fixture.optimizer);
}

Test(schedule_free, settings)
{
    HsDevice device;
    HsOptimizer optimizer;
    HsSchedule schedule;
    OK(hs_device_host_init(&device));
    OK(hs_schedule_init(&schedule, "constant", rate_most, 0, WARMUP, STEPS, 0));
    HsOptimizerConfig wrong = config;
    wrong.beta1 = 0;
    cr_expect_eq(hs_optimizer_init(&optimizer, &device, &wrong, &schedule, &unscaled, 1), HS_ECONFIG);
    cr_expect_not_null(strstr(hs_error_message(), "beta1"));
    wrong = config;
    wrong.average_decay = 0.9;
    cr_expect_eq(hs_optimizer_init(&optimizer, &device, &wrong, &schedule, &unscaled, 1), HS_ECONFIG);
    cr_expect_not_null(strstr(hs_error_message(), "average_decay"));
    const HsSpan span = { .name = "p" };
    cr_expect_eq(hs_optimizer_state_count(&config, &span), 2);
    cr_expect_str_eq(hs_optimizer_state_name(&config, &span, 0), "z_minus_y");
}
