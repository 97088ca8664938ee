/* SPDX-License-Identifier: MIT
 *
 * Merging against its formula in double: what a run begins with decides what the first task keeps, adapters keep the
 * line of their product, and a task that is to be forgotten is no place to go back to.
 *
 * before + share (after - before) in f32, share rounded too: each element is off by at most 4 u (|before| + |after|),
 * of the difference, the share, the product and the sum; a bf16 weight is its master rounded, half a step of 2^-8.
 */
#include <criterion/criterion.h>
#include <float.h>
#include <math.h>

#include "kernels/ref/ref.h"
#include "tests/support/strategy_settings.h"

#define OK(expression) cr_assert_eq((expression), HS_OK, "%s: %s", #expression, hs_error_message())

enum { SPANS = 4, ROWS = 3, WIDTH = 7, COUNT = ROWS * WIDTH, FIRST_FACTOR = 2, SECOND_FACTOR = 3 };
static const double SHARE = 0.3;

typedef struct Fixture {
    HsDevice device;
    HsContext context;
    HsContinual *continual;
    HsSpan spans[SPANS];
    float wide[SPANS][COUNT]; /* the parameter, of span 1 the master */
    uint16_t narrow[COUNT];
} Fixture;

static bool retains_all_but_the_second(const void *user, int task)
{
    (void)user;
    return task != 1;
}

static void begin(Fixture *fixture, HsBeginning beginning)
{
    HsContinualConfig config = strategies_of("merge", NULL);
    set_number(&config, "merge", "share", SHARE);
    config.tasks = 3;
    config.beginning = beginning;
    config.retains = retains_all_but_the_second;
    OK(hs_device_host_init(&fixture->device));
    fixture->context = (HsContext){ .backend = hs_backend_ref(), .device = &fixture->device, .threads = 1 };
    for (int s = 0; s < SPANS; s++) {
        const HsTensor wide = hs_tensor_2d(fixture->wide[s], HS_F32, ROWS, WIDTH);
        fixture->spans[s] =
            (HsSpan){ .name = "w", .parameter = s, .count = COUNT, .weight = wide, .adapts = s == FIRST_FACTOR };
    }
    fixture->spans[1].master = fixture->spans[1].weight;
    fixture->spans[1].weight = hs_tensor_2d(fixture->narrow, HS_BF16, ROWS, WIDTH);
    OK(hs_continual_create(&config, &fixture->context, fixture->spans, SPANS, &fixture->continual));
}

static void end(Fixture *fixture)
{
    hs_continual_destroy(fixture->continual);
    hs_device_deinit(&fixture->device);
}

static float value_of(int time, int span, int i)
{
    return (float)((i * 29 + span * 13 + time * 47) % 101 - 50) / 37.0f;
}

static void train(Fixture *fixture, int time)
{
    for (int s = 0; s < SPANS; s++)
        for (int i = 0; i < COUNT; i++)
            fixture->wide[s][i] = value_of(time, s, i);
}

static double of_bf16(uint16_t bits)
{
    const uint32_t word = (uint32_t)bits << 16;
    float value;
    memcpy(&value, &word, sizeof value);
    return (double)value;
}

/* before: what span s held at its task's beginning. */
static void expect_merged(const Fixture *fixture, int s, const float before[COUNT], const float after[COUNT],
                          double share)
{
    for (int i = 0; i < COUNT; i++) {
        const double b = (double)before[i], a = (double)after[i], exact = b + share * (a - b);
        const double bound = share == 1 ? 0 : 4 * (double)FLT_EPSILON / 2 * (fabs(b) + fabs(a));
        cr_expect_float_eq((double)fixture->wide[s][i], exact, bound, "span %d, element %d: %.9g for %.9g", s, i,
                           (double)fixture->wide[s][i], exact);
        if (s == 1 && share != 1)
            cr_expect_float_eq(of_bf16(fixture->narrow[i]), (double)fixture->wide[s][i],
                               fabs((double)fixture->wide[s][i]) / 256);
    }
}

static void run_task(Fixture *fixture, int task, float before[SPANS][COUNT], float after[SPANS][COUNT])
{
    memcpy(before, fixture->wide, sizeof fixture->wide);
    OK(hs_continual_begin_task(fixture->continual, &fixture->context, task));
    train(fixture, task + 1);
    memcpy(after, fixture->wide, sizeof fixture->wide);
    OK(hs_continual_after_task(fixture->continual, &fixture->context, task, NULL));
}

Test(merge, first_task_of_each_beginning)
{
    const HsBeginning beginnings[] = { HS_BEGINS_UNTRAINED, HS_BEGINS_TRAINED, HS_BEGINS_WITH_DRAWN_ADAPTER };
    for (int k = 0; k < 3; k++) {
        Fixture fixture = { 0 };
        float before[SPANS][COUNT], after[SPANS][COUNT];
        begin(&fixture, beginnings[k]);
        train(&fixture, 0);
        run_task(&fixture, 0, before, after);
        for (int s = 0; s < SPANS; s++) {
            const bool stays = beginnings[k] == HS_BEGINS_UNTRAINED ||
                               (beginnings[k] == HS_BEGINS_WITH_DRAWN_ADAPTER && s == FIRST_FACTOR);
            expect_merged(&fixture, s, before[s], after[s], stays ? 1 : SHARE);
        }
        end(&fixture);
    }
}

/* B = 0 when it was drawn: B A merged is share times what the task made of it. */
Test(merge, product_of_a_drawn_adapter)
{
    Fixture fixture = { 0 };
    float before[SPANS][COUNT], after[SPANS][COUNT];
    begin(&fixture, HS_BEGINS_WITH_DRAWN_ADAPTER);
    train(&fixture, 0);
    memset(fixture.wide[SECOND_FACTOR], 0, sizeof fixture.wide[SECOND_FACTOR]);
    run_task(&fixture, 0, before, after);
    for (int i = 0; i < ROWS; i++)
        for (int j = 0; j < WIDTH; j++) {
            double got = 0, exact = 0, size = 0;
            for (int r = 0; r < ROWS; r++) {
                const int b = i * ROWS + r, a = r * WIDTH + j; /* B as [ROWS, ROWS], of its first elements */
                got += (double)fixture.wide[SECOND_FACTOR][b] * (double)fixture.wide[FIRST_FACTOR][a];
                exact += SHARE * (double)after[SECOND_FACTOR][b] * (double)after[FIRST_FACTOR][a];
                size += fabs((double)after[SECOND_FACTOR][b] * (double)after[FIRST_FACTOR][a]);
            }
            cr_expect_float_eq(got, exact, 2 * (double)FLT_EPSILON * size);
        }
    end(&fixture);
}

Test(merge, later_tasks_and_one_to_be_forgotten)
{
    Fixture fixture = { 0 };
    float before[3][SPANS][COUNT], after[SPANS][COUNT];
    begin(&fixture, HS_BEGINS_WITH_DRAWN_ADAPTER);
    train(&fixture, 0);
    run_task(&fixture, 0, before[0], after);
    run_task(&fixture, 1, before[1], after);
    for (int s = 0; s < SPANS; s++) /* both factors of an adapter that an earlier task trained */
        expect_merged(&fixture, s, before[1][s], after[s], SHARE);
    run_task(&fixture, 2, before[2], after);
    for (int s = 0; s < SPANS; s++) /* towards the model from before the task that is to be forgotten */
        expect_merged(&fixture, s, before[1][s], after[s], SHARE);
    end(&fixture);
}
