/* SPDX-License-Identifier: MIT
 *
 * O-LoRA: the pull and the value against their definitions in double, for adapters of one matrix and of two that are
 * stacked; what is no adapter is left alone.
 */
#include <criterion/criterion.h>
#include <math.h>

#include "kernels/base/tolerance.h"
#include "kernels/ref/ref.h"
#include "tests/support/strategy_settings.h"

#define OK(expression) cr_assert_eq((expression), HS_OK, "%s: %s", #expression, hs_error_message())

enum { RANK = 3, WIDTH = 5, TASKS = 3, STACKED = 2 * RANK * WIDTH, ALONE = RANK * WIDTH, VECTOR = 4 };
static const double LAMBDA = 0.75;

static float stacked[STACKED], alone[ALONE], vector[VECTOR];
static const int64_t stacked_rows[2] = { RANK, RANK }, alone_rows[1] = { RANK };

static HsSpan span_of(const char *name, float *data, int64_t rows, int parts, const int64_t *part_rows)
{
    HsTensor weight = parts > 0 ? hs_tensor_2d(data, HS_F32, rows, WIDTH) : hs_tensor_1d(data, HS_F32, rows);
    return (HsSpan){ .name = name,
                     .count = hs_tensor_count(&weight),
                     .part_count = parts,
                     .part_rows = part_rows,
                     .adapts = parts > 0,
                     .weight = weight };
}

static void fill(uint64_t seed)
{
    HsRng rng = { .seed = seed };
    float *const all[] = { stacked, alone, vector };
    const int counts[] = { STACKED, ALONE, VECTOR };
    for (int t = 0; t < 3; t++)
        for (int i = 0; i < counts[t]; i++)
            all[t][i] = hs_rng_uniform(hs_rng_draw(&rng, (uint64_t)(100 * t + i)).word[0]) - 0.5f;
}

/* value += |A K^T|^2, pull += (A K^T) K, of one matrix's [RANK, WIDTH]. */
static void add_exact(const float *a, const double *k, double *pull, double *value)
{
    for (int i = 0; i < RANK; i++)
        for (int j = 0; j < RANK; j++) {
            double overlap = 0;
            for (int c = 0; c < WIDTH; c++)
                overlap += (double)a[i * WIDTH + c] * k[j * WIDTH + c];
            *value += overlap * overlap;
            for (int c = 0; c < WIDTH; c++)
                pull[i * WIDTH + c] += overlap * k[j * WIDTH + c];
        }
}

Test(olora, pull_and_value)
{
    HsDevice device;
    OK(hs_device_host_init(&device));
    HsContext context = { .backend = hs_backend_ref(), .device = &device, .threads = 1 };
    HsSpan spans[] = { span_of("stacked", stacked, 2 * RANK, 2, stacked_rows),
                       span_of("vector", vector, VECTOR, 0, NULL), span_of("alone", alone, RANK, 1, alone_rows) };
    HsContinualConfig config = strategies_of("o-lora", NULL);
    set_number(&config, "olora", "lambda", LAMBDA);
    config.tasks = TASKS;
    HsContinual *continual = NULL;
    OK(hs_continual_create(&config, &context, spans, 3, &continual));
    double kept[TASKS][STACKED + ALONE], value;
    fill(1);
    OK(hs_continual_begin_task(continual, &context, 0));
    cr_expect(!hs_continual_anchored(continual));
    for (int task = 1; task < TASKS; task++) {
        for (int i = 0; i < STACKED + ALONE; i++)
            kept[task - 1][i] = (double)(i < STACKED ? stacked[i] : alone[i - STACKED]);
        OK(hs_continual_begin_task(continual, &context, task));
        fill(1 + (uint64_t)task);
        OK(hs_continual_before_update(continual, &context));
        OK(hs_continual_penalty(continual, &context, &value));
        double pull[STACKED + ALONE] = { 0 }, squares = 0;
        for (int earlier = 0; earlier < task; earlier++)
            for (int part = 0; part < 3; part++) {
                const int at = part * RANK * WIDTH;
                add_exact(part < 2 ? stacked + at : alone, kept[earlier] + at, pull + at, &squares);
            }
        /* Sums of at most WIDTH and RANK products of numbers below a half, rounded to f32 twice a task. */
        const double bound = hs_tolerance((WIDTH + RANK + 2) * task, 0, HS_F32, HS_F32, RANK * WIDTH, 1);
        for (int i = 0; i < STACKED + ALONE; i++) {
            const HsProtection *protection = &spans[i < STACKED ? 0 : 2].protection;
            const double got = (double)((const float *)protection->pull.data)[i < STACKED ? i : i - STACKED];
            cr_expect_eq(protection->strength, (float)(2 * LAMBDA));
            cr_expect(fabs(got - pull[i]) <= bound, "task %d, element %d: %g, exact %g", task, i, got, pull[i]);
        }
        cr_expect(fabs(value - LAMBDA * squares) <= bound * squares, "%g, exact %g", value, LAMBDA * squares);
        cr_expect(!hs_tensor_present(&spans[1].protection.pull), "a vector has no directions");
    }
    hs_continual_destroy(continual);
}
