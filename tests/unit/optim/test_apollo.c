/* SPDX-License-Identifier: MIT
 *
 * APOLLO against the whole step written again here in double, plainly; that against the authors' program
 * (tests/apollo/make.py), with the projection made here once more from words of Philox.
 *
 * Bound.  As in test_muon.c: the same step is made once more with every product and sum rounded to f32, and a backend, which
 * adds in another order, may be off by a few times what that is from the one in double.
 */
#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/base/rng.h"
#include "optim/update.h"
#include "tests/apollo/steps.h"

enum { MOST = 64 * 64, INTERVAL = 2, STEPS = 5 };

typedef struct Matrix {
    int64_t rows, columns, rank;
} Matrix;

static const Matrix matrices[] = {
    { 24, 24, 6 }, { 16, 40, 4 }, { 40, 16, 15 }, { 5, 61, 1 }, { 64, 3, 2 }, { 17, 33, 8 },
};
enum { MATRICES = sizeof matrices / sizeof matrices[0] };

/* The rule in double, or rounded to f32 everywhere. */
typedef struct Plain {
    bool narrow;
    double added; /* the authors' program adds 1e-8 to every divisor */
    double p[MOST], m[MOST], v[MOST], norm;
} Plain;

typedef struct Fixture {
    HsDevice device;
    HsContext context;
    HsOptimizer optimizer;
    HsSpan span;
    _Alignas(64) float weight32[MOST];
    _Alignas(64) float gradients[MOST];
    int64_t part_rows[1];
    Plain exact, rounded;
} Fixture;

static Fixture f;

static const HsOptimizerConfig plain = {
    .kind = HS_OPTIMIZER_APOLLO,
    .beta1 = 0.9,
    .beta2 = 0.96,
    .epsilon = 1e-8,
    .weight_decay = 0.25,
    .moments = HS_F32,
    .apollo = { .interval = INTERVAL, .scale = 2, .growth_limit = 1.01 },
    .seed = 5,
};

static const HsBackend *cpu(void)
{
    const HsBackend *backend;
    cr_assert_eq(hs_backend_cpu(&backend), HS_OK);
    return backend;
}

/* Exact in f32. */
static double gradient_at(int64_t i, int64_t step)
{
    return (double)((i * 7919 + step * 104729 + i * i * 31 + 11) % 8191 - 4095) / 4096.0;
}

static double weight_at(int64_t i)
{
    return (double)(i % 17 - 8) / 128.0;
}

/* --- the step, plainly --- */

static double rounded(const Plain *state, double value)
{
    return state->narrow ? (double)(float)value : value;
}

static double projection_at(const Matrix *matrix, int64_t step, int64_t e)
{
    const uint32_t counter[4] = { (uint32_t)(e / 4), 0, 0, (uint32_t)(step / INTERVAL) };
    const uint64_t key = 5 ^ 0x41504F4C4C4F0000u; /* "APOLLO" */
    const uint32_t word = hs_philox(key, counter).word[e % 4];
    return (double)(__builtin_popcount(word) - 16) / sqrt(8.0 * (double)matrix->rank);
}

/* g by its shorter side and its channel. */
static int64_t place(const Matrix *matrix, int64_t i, int64_t channel)
{
    return matrix->rows < matrix->columns ? i * matrix->columns + channel : channel * matrix->columns + i;
}

static void project(const Plain *state, const Matrix *matrix, const double *g, int64_t step, double *r)
{
    const bool wide = matrix->rows < matrix->columns;
    const int64_t side = wide ? matrix->rows : matrix->columns, channels = wide ? matrix->columns : matrix->rows;
    for (int64_t k = 0; k < matrix->rank; k++)
        for (int64_t j = 0; j < channels; j++) {
            double sum = 0;
            for (int64_t i = 0; i < side; i++)
                sum = rounded(state,
                              sum + rounded(state, projection_at(matrix, step, k * side + i) * g[place(matrix, i, j)]));
            r[k * channels + j] = sum;
        }
}

/* |adam(r)| and |r| of a channel, squared. */
static void adam(Plain *state, const Matrix *matrix, const HsOptimizerConfig *config, const double *r, int64_t step,
                 int64_t channels, int64_t j, double *t_squares, double *r_squares)
{
    const double b1 = (double)(float)config->beta1, b2 = (double)(float)config->beta2;
    const double bc1 = 1 - pow(b1, (double)(step + 1)), bc2 = 1 - pow(b2, (double)(step + 1));
    for (int64_t k = 0; k < matrix->rank; k++) {
        const int64_t i = k * channels + j;
        state->m[i] = rounded(state, b1 * state->m[i] + (1 - b1) * r[i]);
        state->v[i] = rounded(state, b2 * state->v[i] + (1 - b2) * r[i] * r[i]);
        const double t = rounded(state, state->m[i] / bc1 / (sqrt(state->v[i] / bc2) + config->epsilon));
        *t_squares = rounded(state, *t_squares + t * t);
        *r_squares = rounded(state, *r_squares + r[i] * r[i]);
    }
}

static void step_plainly(Plain *state, const Matrix *matrix, const HsOptimizerConfig *config, int64_t step)
{
    static double g[MOST], r[MOST], factor[MOST];
    const HsApolloConfig *apollo = &config->apollo;
    const int64_t count = matrix->rows * matrix->columns;
    const int64_t channels = matrix->rows < matrix->columns ? matrix->columns : matrix->rows, side = count / channels;
    double all_t = 0, all_r = 0, norm = 0, limit = 1;
    for (int64_t i = 0; i < count; i++)
        g[i] = gradient_at(i, step);
    project(state, matrix, g, step, r);
    for (int64_t j = 0; j < channels; j++) {
        double t_squares = 0, r_squares = 0;
        adam(state, matrix, config, r, step, channels, j, &t_squares, &r_squares);
        factor[j] = rounded(state, sqrt(t_squares) / (sqrt(r_squares) + state->added));
        all_t = rounded(state, all_t + t_squares);
        all_r = rounded(state, all_r + r_squares);
    }
    for (int64_t j = 0; j < channels; j++) {
        if (apollo->granularity == HS_APOLLO_TENSOR)
            factor[j] = rounded(state, sqrt(all_t) / (sqrt(all_r) + state->added));
        for (int64_t i = 0; i < side; i++)
            norm = rounded(state, norm + pow(factor[j] * g[place(matrix, i, j)], 2));
    }
    norm = sqrt(norm);
    const double growth = state->added > 0 ? apollo->growth_limit : (double)(float)apollo->growth_limit;
    const double most = growth * (state->norm + state->added);
    if (apollo->growth_limit > 0 && state->norm > 0 && norm > most)
        limit = rounded(state, most / norm);
    state->norm = rounded(state, limit * norm);
    for (int64_t j = 0; j < channels; j++)
        for (int64_t i = 0; i < side; i++) {
            double *p = &state->p[place(matrix, i, j)];
            const double move = rounded(state, apollo->scale * limit * factor[j] * g[place(matrix, i, j)]);
            *p = rounded(state, *p - 0.125 * (config->weight_decay * *p + move));
        }
}

static void begin_plainly(Plain *state, const Matrix *matrix, bool narrow)
{
    memset(state, 0, sizeof *state);
    state->narrow = narrow;
    for (int64_t i = 0; i < matrix->rows * matrix->columns; i++)
        state->p[i] = weight_at(i);
}

/* In double both are the same but for roundings, some hundred of them in each of five steps, which a channel with a small
 * projection makes a thousand times larger, and for the 16 digits of the file: 1e5 units of 2^-53. */
Test(apollo, equals_the_authors_program)
{
    for (size_t c = 0; c < sizeof official / sizeof *official; c++) {
        const Matrix matrix = { official[c].rows, official[c].columns, official[c].rank };
        HsOptimizerConfig config = plain;
        config.weight_decay = 0;
        config.epsilon = 1e-30;
        config.beta1 = official[c].limited ? 0 : (double)(float)0.9;
        config.beta2 = official[c].limited ? 0 : (double)(float)0.96;
        config.apollo.granularity = official[c].of_tensors ? HS_APOLLO_TENSOR : HS_APOLLO_CHANNEL;
        config.apollo.growth_limit = official[c].limited ? 1.01 : 0;
        begin_plainly(&f.exact, &matrix, false);
        f.exact.added = 1e-8;
        for (int64_t n = 0; n < STEPS; n++)
            step_plainly(&f.exact, &matrix, &config, n);
        for (int64_t i = 0; i < matrix.rows * matrix.columns; i++)
            cr_expect(fabs(f.exact.p[i] - official[c].p[i]) < 1e5 * 0x1p-53, "case %zu, element %lld: %.17g, not %.17g",
                      c, (long long)i, f.exact.p[i], official[c].p[i]);
    }
}

/* --- the optimizer --- */

static void set_up(const Matrix *matrix, const HsOptimizerConfig *config, const HsBackend *backend)
{
    const HsScalerConfig scaler = { .kind = HS_SCALER_STATIC, .init_scale = 8 };
    HsSchedule schedule;
    memset(&f, 0, sizeof f);
    cr_assert_eq(hs_device_host_init(&f.device), HS_OK);
    f.context = (HsContext){ .backend = backend, .device = &f.device, .threads = 2 };
    cr_assert_eq(hs_schedule_init(&schedule, "constant", 0.125, 0, 0, 1, 0), HS_OK);
    cr_assert_eq(hs_optimizer_init(&f.optimizer, &f.device, config, &schedule, &scaler, 1), HS_OK, "%s",
                 hs_error_message());
    f.part_rows[0] = matrix->rows;
    f.span = (HsSpan){ .name = "p",
                       .count = matrix->rows * matrix->columns,
                       .part_count = 1,
                       .part_rows = f.part_rows,
                       .decay = true,
                       .learning_rate_scale = 1,
                       .weight = hs_tensor_2d(f.weight32, HS_F32, matrix->rows, matrix->columns),
                       .gradient = hs_tensor_2d(f.gradients, HS_F32, matrix->rows, matrix->columns) };
    cr_assert_eq(hs_optimizer_commit(&f.optimizer, &f.span, 1, HS_F32), HS_OK, "%s", hs_error_message());
    for (int64_t i = 0; i < f.span.count; i++)
        f.weight32[i] = (float)weight_at(i);
    begin_plainly(&f.exact, matrix, false);
    begin_plainly(&f.rounded, matrix, true);
}

/* Workspace as the run plans it: by a dry run. */
static void step_with(int64_t number_of_step, double scale, float broken)
{
    HsStepReport report;
    HsContext dry = f.context;
    dry.dry_run = true;
    dry.workspace_needed = 0;
    for (int64_t i = 0; i < f.span.count; i++)
        f.gradients[i] = (float)(scale * gradient_at(i, number_of_step));
    f.gradients[3] += broken;
    cr_assert_eq(hs_optimizer_update(&f.optimizer, &dry, &f.span, 1), HS_OK, "%s", hs_error_message());
    f.context.workspace = aligned_alloc(64, dry.workspace_needed + 64 - dry.workspace_needed % 64);
    f.context.workspace_bytes = dry.workspace_needed;
    cr_assert_eq(hs_optimizer_step(&f.optimizer, &f.context, &f.span, 1, &report), HS_OK, "%s", hs_error_message());
    free(f.context.workspace);
}

static void compare(const HsBackend *backend, const HsOptimizerConfig *variant)
{
    for (int m = 0; m < MATRICES; m++) {
        HsOptimizerConfig config = *variant;
        double worst = 0, bound = 0, moved = 0;
        config.apollo.rank = matrices[m].rank;
        set_up(&matrices[m], &config, backend);
        for (int64_t n = 0; n < STEPS; n++) {
            step_with(n, 8, 0);
            step_plainly(&f.exact, &matrices[m], &config, n);
            step_plainly(&f.rounded, &matrices[m], &config, n);
        }
        for (int64_t i = 0; i < f.span.count; i++) {
            worst = fmax(worst, fabs((double)f.weight32[i] - f.exact.p[i]));
            bound = fmax(bound, 8 * fabs(f.rounded.p[i] - f.exact.p[i]));
            moved = fmax(moved, fabs(f.exact.p[i] - weight_at(i)));
        }
        cr_expect(worst <= bound && bound < 1e-4 * moved, "%s, matrix %d: off by %g, bound %g, moved %g", backend->name,
                  m, worst, bound, moved);
        hs_optimizer_deinit(&f.optimizer);
        cr_expect_eq(f.device.current_bytes, 0);
    }
}

Test(apollo, equals_the_step_in_double)
{
    for (int variant = 0; variant < 4; variant++) {
        HsOptimizerConfig config = plain;
        config.apollo.granularity = variant & 1 ? HS_APOLLO_TENSOR : HS_APOLLO_CHANNEL;
        config.apollo.growth_limit = variant & 2 ? 0 : 1.01;
        compare(hs_backend_ref(), &config);
        compare(cpu(), &config);
    }
}

Test(apollo, a_skipped_step_changes_nothing)
{
    static float weight[MOST];
    static unsigned char state[3][MOST * sizeof(float)];
    HsOptimizerConfig config = plain;
    config.apollo.rank = matrices[1].rank;
    set_up(&matrices[1], &config, cpu());
    step_with(0, 8, 0);
    memcpy(weight, f.weight32, sizeof weight);
    for (int s = 0; s < 3; s++)
        memcpy(state[s], f.span.state[s].data, hs_tensor_bytes(&f.span.state[s]));
    cr_expect(((const float *)f.span.state[2].data)[0] > 0, "the norm is kept");
    step_with(1, 8, INFINITY);
    cr_expect(memcmp(weight, f.weight32, sizeof weight) == 0);
    for (int s = 0; s < 3; s++)
        cr_expect(memcmp(state[s], f.span.state[s].data, hs_tensor_bytes(&f.span.state[s])) == 0, "state %d", s);
    for (int64_t i = 0; i < f.span.count; i++)
        cr_assert_eq(f.gradients[i], 0, "the gradient is cleared");
    hs_optimizer_deinit(&f.optimizer);
}

/* Without a gradient nothing moves but by decay, and the next step is not held to a norm of zero. */
Test(apollo, a_gradient_of_zeros)
{
    HsOptimizerConfig config = plain;
    config.apollo.rank = matrices[2].rank;
    set_up(&matrices[2], &config, cpu());
    step_with(0, 0, 0);
    for (int64_t i = 0; i < f.span.count; i++) {
        const double expected = weight_at(i) * (1 - 0.125 * 0.25);
        cr_assert(fabs((double)f.weight32[i] - expected) <= 4 * 0x1p-24 * fabs(expected));
    }
    step_with(1, 8, 0);
    double moved = 0;
    for (int64_t i = 0; i < f.span.count; i++)
        moved = fmax(moved, fabs((double)f.weight32[i] - weight_at(i)));
    cr_expect(moved > 0.1, "moved by %g", moved);
    hs_optimizer_deinit(&f.optimizer);
}

Test(apollo, serves_matrices_above_its_rank)
{
    const int64_t rows[] = { 8 };
    HsOptimizerConfig config = plain;
    HsSpan span = { .name = "m", .part_count = 1, .part_rows = rows, .weight = hs_tensor_2d(NULL, HS_F32, 8, 40) };
    config.apollo.rank = 8;
    cr_expect_eq(hs_optimizer_kind_of(&config, &span), HS_OPTIMIZER_ADAMW);
    config.apollo.rank = 7;
    cr_expect_eq(hs_optimizer_kind_of(&config, &span), HS_OPTIMIZER_APOLLO);
    cr_expect_eq(hs_optimizer_state_count(&config, &span), 3);
    cr_expect_str_eq(hs_optimizer_state_name(&config, &span, 2), "norm");
    config.apollo.growth_limit = 0;
    cr_expect_eq(hs_optimizer_state_count(&config, &span), 2);
    span.part_count = 0;
    cr_expect_eq(hs_optimizer_kind_of(&config, &span), HS_OPTIMIZER_ADAMW, "a table, or a part");
    cr_expect(hs_optimizer_kind_needs_whole(HS_OPTIMIZER_APOLLO) && hs_optimizer_kind_needs_whole(HS_OPTIMIZER_MUON));
    cr_expect_not(hs_optimizer_kind_needs_whole(HS_OPTIMIZER_ADAMW8BIT));
}

Test(apollo, refuses_what_makes_no_sense)
{
    const HsScalerConfig scaler = { .kind = HS_SCALER_NONE };
    HsSchedule schedule;
    HsDevice device;
    HsOptimizer optimizer;
    cr_assert_eq(hs_device_host_init(&device), HS_OK);
    cr_assert_eq(hs_schedule_init(&schedule, "constant", 0.125, 0, 0, 1, 0), HS_OK);
    for (int wrong = 0; wrong < 4; wrong++) {
        static const char *const named[] = { "apollo.rank", "apollo.interval", "apollo.scale", "apollo.growth_limit" };
        HsOptimizerConfig config = plain;
        config.apollo.rank = wrong == 0 ? 0 : 4;
        config.apollo.interval = wrong == 1 ? 0 : 4;
        config.apollo.scale = wrong == 2 ? 0 : 1;
        config.apollo.growth_limit = wrong == 3 ? 0.5 : 1;
        cr_expect_eq(hs_optimizer_init(&optimizer, &device, &config, &schedule, &scaler, 1), HS_ECONFIG);
        cr_expect(strstr(hs_error_message(), named[wrong]) != NULL, "%s", hs_error_message());
    }
}

/* Mean 0, variance 8, kurtosis 3 - 2/32, each within five of its standard errors: sqrt(variance of x^k / n).  Lengths: |P g|^2
 * is |g|^2 times a chi-squared of `rank` degrees over rank, but for sums of coins that are not normal. */
Test(apollo, random_matrices_are_nearly_normal)
{
    enum { COUNT = 1 << 18, RANK = 64, SIDE = COUNT / RANK };
    static float y[COUNT];
    double sums[5] = { 0 };
    HsContext context = { .backend = hs_backend_ref() };
    const HsRandomMatrixArgs args = { .rng = { .seed = 11, .site = 3 },
                                      .interval = 1,
                                      .y = hs_tensor_1d(y, HS_F32, COUNT) };
    cr_assert_eq(hs_op_random_matrix(&context, &args), HS_OK);
    for (int i = 0; i < COUNT; i++)
        for (int power = 1; power <= 4; power++)
            sums[power] += pow((double)y[i], power) / COUNT;
    const double error = 5 / sqrt((double)COUNT);
    cr_expect(fabs(sums[1]) < error * sqrt(8), "mean %g", sums[1]);
    cr_expect(fabs(sums[2] - 8) < error * sqrt(2.0) * 8, "variance %g", sums[2]);
    cr_expect(fabs(sums[4] - (3 - 2.0 / 32) * 64) < error * sqrt(96.0) * 64, "fourth moment %g", sums[4]);
    double length = 0, squares = 0;
    for (int k = 0; k < RANK; k++) {
        double sum = 0;
        for (int i = 0; i < SIDE; i++)
            sum += (double)y[k * SIDE + i] * gradient_at(i, 1) / sqrt(8.0 * RANK);
        squares += sum * sum;
    }
    for (int i = 0; i < SIDE; i++)
        length += gradient_at(i, 1) * gradient_at(i, 1);
    cr_expect(fabs(squares / length - 1) < 5 * sqrt(2.0 / RANK), "|P g|^2 / |g|^2 = %g", squares / length);
}
