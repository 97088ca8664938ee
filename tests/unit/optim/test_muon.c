/* SPDX-License-Identifier: MIT
 *
 * Muon against the whole step written again here in double, plainly: every matrix of a stack is cut out, turned when it
 * is tall, divided by its norm and iterated; and against what the iteration is for, singular values near 1.
 *
 * Bound.  The same step is made once more with every product and sum rounded to f32: how far that is from the one in
 * double is what roundings do to this matrix.  A backend adds in another order, so it may be off by a few times that.
 */
#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/base/rng.h"
#include "optim/update.h"

enum { MOST = 64 * 64 };

typedef struct Matrix {
    int64_t rows, columns, parts, part_rows[3], head_rows;
} Matrix;

static const Matrix matrices[] = {
    { 24, 24, 1, { 24 }, 0 },         { 16, 40, 1, { 16 }, 0 },       { 40, 16, 1, { 40 }, 0 },
    { 48, 16, 3, { 16, 16, 16 }, 0 }, { 40, 24, 3, { 24, 8, 8 }, 0 }, { 60, 12, 2, { 30, 30 }, 0 },
    { 60, 16, 3, { 20, 20, 20 }, 4 }, { 40, 24, 3, { 24, 8, 8 }, 8 },
};
enum { MATRICES = sizeof matrices / sizeof matrices[0] };

typedef struct Fixture {
    HsDevice device;
    HsContext context;
    HsOptimizer optimizer;
    HsSpan span;
    HsTensor weight, gradient;
    _Alignas(64) float weight32[MOST];
    _Alignas(64) uint16_t weight16[MOST];
    _Alignas(64) float gradients[MOST];
    /* the step in double, and rounded to f32 everywhere */
    double p[MOST], m[MOST], second[MOST], narrow_p[MOST], narrow_m[MOST], narrow_second[MOST];
} Fixture;

static Fixture f;

static const HsOptimizerConfig plain = {
    .kind = HS_OPTIMIZER_MUON,
    .beta1 = 0.9,
    .beta2 = 0.95,
    .epsilon = 1e-8,
    .weight_decay = 0.25,
    .muon = { .momentum = 0.95, .nesterov = true, .steps = 5, .product = HS_F32 },
    .seed = 5,
};

/* n roundings to f32, one after another (Higham 2002, lemma 3.1). */
static double roundings(int64_t n)
{
    const double u = (double)n * 0x1p-24;
    return u / (1 - u);
}

static double number(uint32_t site, int64_t i)
{
    const HsRng rng = { .seed = 3, .site = site };
    double normal[2];
    const HsPhilox bits = hs_rng_draw(&rng, (uint64_t)i);
    hs_rng_normal(bits.word[0], bits.word[1], normal);
    return normal[0];
}

static void set_up(const Matrix *matrix, const HsOptimizerConfig *config, HsDtype weight, const HsBackend *backend)
{
    const HsScalerConfig scaler = { .kind = HS_SCALER_STATIC, .init_scale = 8 };
    HsSchedule schedule;
    memset(&f, 0, sizeof f);
    cr_assert_eq(hs_device_host_init(&f.device), HS_OK);
    f.context = (HsContext){ .backend = backend, .device = &f.device, .threads = 2 };
    cr_assert_eq(hs_schedule_init(&schedule, "constant", 0.125, 0, 0, 1, 0), HS_OK);
    cr_assert_eq(hs_optimizer_init(&f.optimizer, &f.device, config, &schedule, &scaler, 1), HS_OK);
    void *data = weight == HS_F32 ? (void *)f.weight32 : (void *)f.weight16;
    f.span = (HsSpan){ .name = "p",
                       .count = matrix->rows * matrix->columns,
                       .part_count = (int)matrix->parts,
                       .part_rows = matrix->part_rows,
                       .head_rows = matrix->head_rows,
                       .decay = true,
                       .learning_rate_scale = 1,
                       .weight = hs_tensor_2d(data, weight, matrix->rows, matrix->columns),
                       .gradient = hs_tensor_2d(f.gradients, HS_F32, matrix->rows, matrix->columns) };
    cr_assert_eq(hs_optimizer_commit(&f.optimizer, &f.span, 1, HS_F32), HS_OK, "%s", hs_error_message());
    for (int64_t i = 0; i < f.span.count; i++) {
        f.p[i] = f.narrow_p[i] = (double)(float)(0.02 * number(1, i));
        if (weight == HS_F32)
            f.weight32[i] = (float)f.p[i];
        else
            ((float *)f.span.master.data)[i] = (float)f.p[i];
    }
}

/* Workspace as the run plans it: by a dry run. */
static void step_with(uint32_t number_of_step, double scale, float broken)
{
    HsStepReport report;
    HsContext dry = f.context;
    dry.dry_run = true;
    dry.workspace_needed = 0;
    for (int64_t i = 0; i < f.span.count; i++)
        f.gradients[i] = (float)(scale * number(10 + number_of_step, i));
    f.gradients[3] += broken;
    cr_assert_eq(hs_optimizer_update(&f.optimizer, &dry, &f.span, 1), HS_OK, "%s", hs_error_message());
    f.context.workspace = aligned_alloc(64, dry.workspace_needed + 64 - dry.workspace_needed % 64);
    f.context.workspace_bytes = dry.workspace_needed;
    cr_assert_eq(hs_optimizer_step(&f.optimizer, &f.context, &f.span, 1, &report), HS_OK, "%s", hs_error_message());
    free(f.context.workspace);
}

static void step(uint32_t number_of_step, float broken)
{
    step_with(number_of_step, 8.0, broken);
}

static double rounded(bool narrow, double value)
{
    return narrow ? (double)(float)value : value;
}

/* sum += a b */
static void add_product(bool narrow, double *sum, double a, double b)
{
    *sum = rounded(narrow, *sum + rounded(narrow, a * b));
}

/* Jordan et al. 2024; Amsel et al. 2025 (arXiv 2505.16932), for a norm of at most 1.02. */
static const double newton_schulz[3] = { 3.4445, -4.7750, 2.0315 };
static const double polar_express[5][3] = { { 8.156554524902461, -22.48329292557795, 15.878769915207462 },
                                            { 4.042929935166739, -2.808917465908714, 0.5000178451051316 },
                                            { 3.8916678022926607, -2.772484153217685, 0.5060648178503393 },
                                            { 3.285753657755655, -2.3681294933425376, 0.46449024233003106 },
                                            { 2.3465413258596377, -1.7097828382687081, 0.42323551169305323 } };

/* x [rows, columns], wide or square. */
static void iterate_exactly(bool narrow, const double *c, double *x, int64_t rows, int64_t columns)
{
    static double a[MOST], b[MOST], next[MOST];
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < rows; j++) {
            a[i * rows + j] = 0;
            for (int64_t k = 0; k < columns; k++)
                add_product(narrow, &a[i * rows + j], x[i * columns + k], x[j * columns + k]);
        }
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < rows; j++) {
            double square = 0;
            for (int64_t k = 0; k < rows; k++)
                add_product(narrow, &square, a[i * rows + k], a[k * rows + j]);
            b[i * rows + j] = rounded(narrow, c[1] * a[i * rows + j]);
            add_product(narrow, &b[i * rows + j], c[2], square);
        }
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < columns; j++) {
            next[i * columns + j] = rounded(narrow, c[0] * x[i * columns + j]);
            for (int64_t k = 0; k < rows; k++)
                add_product(narrow, &next[i * columns + j], b[i * rows + k], x[k * columns + j]);
        }
    memcpy(x, next, (size_t)(rows * columns) * sizeof *x);
}

/* Row i, column j of u [rows, columns], turned or not. */
static double *element(double *u, int64_t rows, int64_t columns, int64_t i, int64_t j)
{
    return rows > columns ? &u[j * rows + i] : &u[i * columns + j];
}

/* From its start in a line over the warm-up; a constant schedule's rate does not decay. */
static double momentum_of(const HsMuonConfig *muon, uint32_t step)
{
    const double share = muon->momentum_warmup_steps > step ? (double)step / (double)muon->momentum_warmup_steps : 1;
    return (1 - share) * muon->momentum_start + share * muon->momentum;
}

/* Where the matrix that begins at row `first` ends: with its part, or, in a stack of queries, keys and values, with its
 * group of heads. */
static int64_t end_of(const Matrix *matrix, const HsMuonConfig *muon, int64_t first)
{
    int64_t part = 0, end = matrix->part_rows[0];
    while (end <= first)
        end += matrix->part_rows[++part];
    const int64_t group = first + muon->head_group * matrix->head_rows;
    return part < 2 && group > first && group < end ? group : end;
}

/* MuonEq: every row gets the mean length, which leaves the norm of the whole as it was. */
static void equilibrate_exactly(bool narrow, double *x, int64_t rows, int64_t columns, double squares)
{
    for (int64_t i = 0; i < rows; i++) {
        double row = 0;
        for (int64_t j = 0; j < columns; j++)
            row += *element(x, rows, columns, i, j) * *element(x, rows, columns, i, j);
        for (int64_t j = 0; j < columns; j++)
            *element(x, rows, columns, i, j) =
                rounded(narrow, *element(x, rows, columns, i, j) * sqrt(squares / (double)rows / row));
    }
}

/* NorMuon, algorithm 1: v is the neurons' running mean square. */
static void scale_neurons_exactly(bool narrow, double beta2, double *x, int64_t rows, int64_t columns, double *v)
{
    double squares = 0;
    for (int64_t i = 0; i < rows; i++) {
        double row = 0;
        for (int64_t j = 0; j < columns; j++)
            row += *element(x, rows, columns, i, j) * *element(x, rows, columns, i, j);
        v[i] = rounded(narrow, beta2 * v[i] + (1 - beta2) * row / (double)columns);
        for (int64_t j = 0; j < columns; j++) {
            *element(x, rows, columns, i, j) = rounded(narrow, *element(x, rows, columns, i, j) / sqrt(v[i]));
            squares += *element(x, rows, columns, i, j) * *element(x, rows, columns, i, j);
        }
    }
    for (int64_t i = 0; i < rows * columns; i++)
        x[i] *= 0.2 * sqrt((double)(rows * columns) / squares);
}

static void step_exactly(const Matrix *matrix, const HsMuonConfig *muon, uint32_t number_of_step, bool narrow)
{
    const bool polar = muon->polynomial == HS_MUON_POLAR_EXPRESS;
    static double x[MOST];
    const int64_t columns = matrix->columns;
    double *m = narrow ? f.narrow_m : f.m, *p = narrow ? f.narrow_p : f.p;
    for (int64_t first = 0, end; first < matrix->rows; first = end) {
        end = end_of(matrix, muon, first);
        const int64_t rows = end - first;
        double squares = 0;
        for (int64_t i = 0; i < rows; i++)
            for (int64_t j = 0; j < columns; j++) {
                const int64_t at = (first + i) * columns + j;
                const double g = (double)(float)(8.0 * number(10 + number_of_step, at)) / 8.0;
                const double b = (double)(float)momentum_of(muon, number_of_step);
                m[at] = rounded(narrow, b * m[at] + (1 - b) * g);
                const double u = rounded(narrow, (1 - b) * g + b * m[at]);
                *element(x, rows, columns, i, j) = u;
                squares += u * u;
            }
        if (muon->equilibrate)
            equilibrate_exactly(narrow, x, rows, columns, squares);
        for (int64_t i = 0; i < rows * columns; i++)
            x[i] = rounded(narrow, x[i] / (sqrt(squares) + 1e-7) / (polar ? 1.02 : 1.0));
        for (int n = 0; n < muon->steps; n++)
            iterate_exactly(narrow, polar ? polar_express[n < 5 ? n : 4] : newton_schulz, x,
                            rows < columns ? rows : columns, rows < columns ? columns : rows);
        const double size = 0.2 * sqrt((double)(rows > columns ? rows : columns));
        for (int64_t i = 0; i < rows * columns; i++)
            x[i] *= size;
        if (muon->beta2 > 0)
            scale_neurons_exactly(narrow, (double)(float)muon->beta2, x, rows, columns,
                                  (narrow ? f.narrow_second : f.second) + first);
        for (int64_t i = 0; i < rows; i++)
            for (int64_t j = 0; j < columns; j++) {
                double *kept = &p[(first + i) * columns + j];
                const double d = *element(x, rows, columns, i, j);
                const double decay = muon->cautious_decay && d * *kept < 0 ? 0 : 0.25;
                *kept = rounded(narrow, *kept - 0.125 * (decay * *kept + d));
            }
    }
}

static const HsBackend *cpu(void)
{
    const HsBackend *backend;
    cr_assert_eq(hs_backend_cpu(&backend), HS_OK);
    return backend;
}

static void compare(const HsBackend *backend, const HsMuonConfig *muon)
{
    HsOptimizerConfig config = plain;
    config.muon = *muon;
    for (int m = 0; m < MATRICES; m++) {
        double worst = 0, bound = 0, moved = 0;
        set_up(&matrices[m], &config, HS_F32, backend);
        for (uint32_t n = 0; n < 3; n++) {
            step(n, 0);
            step_exactly(&matrices[m], &config.muon, n, false);
            step_exactly(&matrices[m], &config.muon, n, true);
        }
        for (int64_t i = 0; i < f.span.count; i++) {
            worst = fmax(worst, fabs((double)f.weight32[i] - f.p[i]));
            bound = fmax(bound, 8 * fabs(f.narrow_p[i] - f.p[i]));
            moved = fmax(moved, fabs(f.p[i] - 0.02 * number(1, i)));
        }
        cr_expect(worst <= bound && bound < 1e-4 * moved, "%s, matrix %d: off by %g, bound %g, moved %g", backend->name,
                  m, worst, bound, moved);
        hs_optimizer_deinit(&f.optimizer);
        cr_expect_eq(f.device.current_bytes, 0);
    }
}

Test(muon, equals_the_step_in_double)
{
    static const struct {
        HsMuonPolynomial polynomial;
        int64_t steps;
    } iterations[] = { { HS_MUON_NEWTON_SCHULZ, 5 },
                       { HS_MUON_POLAR_EXPRESS, 5 },
                       { HS_MUON_POLAR_EXPRESS, 3 },
                       { HS_MUON_POLAR_EXPRESS, 7 } };
    for (size_t i = 0; i < sizeof iterations / sizeof *iterations; i++) {
        HsMuonConfig muon = plain.muon;
        muon.polynomial = iterations[i].polynomial;
        muon.steps = iterations[i].steps;
        compare(hs_backend_ref(), &muon);
        compare(cpu(), &muon);
    }
}

/* Each by itself, then all together. */
Test(muon, equals_its_variants_in_double)
{
    static const int variants[] = { 1, 2, 4, 8, 16, 32, 63 };
    for (size_t i = 0; i < sizeof variants / sizeof *variants; i++) {
        const int variant = variants[i];
        HsMuonConfig muon = plain.muon;
        muon.equilibrate = (variant & 1) != 0;
        muon.beta2 = variant & 2 ? 0.9 : 0.0;
        muon.cautious_decay = (variant & 4) != 0;
        muon.head_group = variant & 8 ? 1 : variant & 16 ? 2 : 0;
        muon.momentum_start = 0.5;
        muon.momentum_warmup_steps = variant & 32 ? 2 : 0;
        compare(hs_backend_ref(), &muon);
        compare(cpu(), &muon);
    }
}

/* The polynomials' bands: five steps take singular values that are not too small into 0.68 .. 1.13 (Jordan et al. 2024)
 * or 0.84 .. 1.15 (Amsel et al. 2025), which products in 16 bits widen; random square matrices have some that are, so the
 * test takes those of 16 x 40.  Singular values come from the eigenvalues of O O^T by Jacobi's rotations. */
static void eigenvalues(double *a, int n)
{
    for (int sweep = 0; sweep < 60; sweep++)
        for (int p = 0; p < n; p++)
            for (int q = p + 1; q < n; q++) {
                const double apq = a[p * n + q];
                if (fabs(apq) < 1e-14)
                    continue;
                const double angle = 0.5 * atan2(2 * apq, a[q * n + q] - a[p * n + p]), c = cos(angle), s = sin(angle);
                for (int k = 0; k < n; k++) {
                    const double kp = a[k * n + p], kq = a[k * n + q];
                    a[k * n + p] = c * kp - s * kq, a[k * n + q] = s * kp + c * kq;
                }
                for (int k = 0; k < n; k++) {
                    const double pk = a[p * n + k], qk = a[q * n + k];
                    a[p * n + k] = c * pk - s * qk, a[q * n + k] = s * pk + c * qk;
                }
            }
}

Test(muon, singular_values_are_near_one_in_every_product_format)
{
    static const HsDtype formats[] = { HS_F32, HS_BF16, HS_F16 };
    for (int k = 0; k < 6; k++) {
        HsOptimizerConfig config = plain;
        const bool polar = k >= 3;
        const HsDtype format = formats[k % 3];
        config.weight_decay = 0;
        config.muon.product = format;
        config.muon.polynomial = polar ? HS_MUON_POLAR_EXPRESS : HS_MUON_NEWTON_SCHULZ;
        const Matrix *matrix = &matrices[1];
        set_up(matrix, &config, format, cpu());
        step(0, 0);
        const float *now = format == HS_F32 ? f.weight32 : (const float *)f.span.master.data;
        double gram[16 * 16] = { 0 };
        for (int i = 0; i < 16; i++)
            for (int j = 0; j < 16; j++)
                for (int c = 0; c < 40; c++)
                    gram[i * 16 + j] +=
                        (f.p[i * 40 + c] - (double)now[i * 40 + c]) * (f.p[j * 40 + c] - (double)now[j * 40 + c]);
        eigenvalues(gram, 16);
        for (int i = 0; i < 16; i++) {
            const double value = sqrt(gram[i * 16 + i]) / (0.125 * 0.2 * sqrt(40.0));
            cr_expect(value > (polar ? 0.8 : 0.6) && value < 1.25, "%s, polynomial %d: singular value %g",
                      hs_dtype_name(format), (int)config.muon.polynomial, value);
        }
        hs_optimizer_deinit(&f.optimizer);
    }
}

Test(muon, a_skipped_step_changes_nothing)
{
    static float weight[MOST], momentum[MOST];
    set_up(&matrices[3], &plain, HS_F32, cpu());
    step(0, 0);
    memcpy(weight, f.weight32, sizeof weight);
    memcpy(momentum, f.span.state[0].data, hs_tensor_bytes(&f.span.state[0]));
    step(1, INFINITY);
    cr_expect(memcmp(weight, f.weight32, sizeof weight) == 0);
    cr_expect(memcmp(momentum, f.span.state[0].data, hs_tensor_bytes(&f.span.state[0])) == 0);
    for (int64_t i = 0; i < f.span.count; i++)
        cr_assert_eq(f.gradients[i], 0, "the gradient is cleared");
    hs_optimizer_deinit(&f.optimizer);
}

/* Without a gradient nothing moves but by decay: no division by a norm of zero. */
Test(muon, a_gradient_of_zeros)
{
    set_up(&matrices[2], &plain, HS_F32, cpu());
    step_with(0, 0.0, 0);
    for (int64_t i = 0; i < f.span.count; i++) {
        const double expected = f.p[i] * (1 - 0.125 * 0.25);
        cr_assert(fabs((double)f.weight32[i] - expected) <= roundings(4) * fabs(expected));
    }
    hs_optimizer_deinit(&f.optimizer);
}
