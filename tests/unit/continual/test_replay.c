/* SPDX-License-Identifier: MIT
 *
 * The replay plan: shares, orders and numbers of every step, checked by walking over many windows with a counter.
 */
#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>

#include "optim/continual/replay.h"

enum { WINDOWS = 200 };

static HsReplayPlan plan_of(double fraction, int64_t rows, int64_t group_steps, int64_t groups, bool replay_first)
{
    return (HsReplayPlan){ .fraction = fraction,
                           .rows = rows,
                           .group_steps = group_steps,
                           .groups = groups,
                           .replay_first = replay_first,
                           .current_rate_scale = 1 };
}

/* Fractions with and without an exact double, fewer and more rows than 1/f. */
static const struct {
    double fraction;
    int64_t rows, group_steps, groups;
} shapes[] = {
    { 0, 8, 1, 1 },     { 0.25, 8, 1, 1 },     { 0.25, 1, 1, 1 },  { 0.1, 7, 1, 1 }, { 0.99, 1, 1, 1 },
    { 0.99, 64, 1, 1 }, { 0.25, 3, 4, 1 },     { 0.25, 2, 4, 3 },  { 0.3, 5, 3, 2 }, { 0.7, 1, 4, 5 },
    { 0.05, 2, 4, 1 },  { 1.0 / 3, 16, 7, 2 }, { 0.01, 32, 2, 2 },
};
enum { SHAPES = sizeof shapes / sizeof shapes[0] };

static HsReplayPlan shape(int i, bool replay_first)
{
    return plan_of(shapes[i].fraction, shapes[i].rows, shapes[i].group_steps, shapes[i].groups, replay_first);
}

Test(replay, a_step_holds_exactly_its_rows_and_a_window_its_new_ones)
{
    for (int i = 0; i < SHAPES; i++)
        for (int variant = 0; variant < 8; variant++) {
            const bool first = variant & 1, empty = variant & 2;
            HsReplayPlan plan = shape(i, first);
            if (variant & 4) {
                plan.late = NAN;
                plan.late_part = 0.3;
                plan = hs_replay_plan_of_task(&plan, 2, WINDOWS * plan.group_steps / 2);
            }
            cr_expect_eq(hs_replay_window_steps(&plan), plan.group_steps * plan.groups);
            for (int64_t window = 0; window < WINDOWS; window++) {
                const int64_t wanted = hs_replay_window_rows(&plan, window, empty);
                cr_assert(wanted >= 0 && wanted <= hs_replay_window_rows_most(&plan));
                int64_t next = 0; /* the next new sequence of the group */
                for (int64_t s = 0; s < hs_replay_window_steps(&plan); s++) {
                    const HsReplayStep step = hs_replay_step(&plan, window, s, empty);
                    cr_assert_eq(step.new_rows + step.replay_rows, plan.rows);
                    cr_assert(step.new_rows >= 0 && step.replay_rows >= 0);
                    cr_assert_eq(step.new_first, next, "shape %d window %lld step %lld", i, (long long)window,
                                 (long long)s);
                    next += step.new_rows;
                    cr_assert_eq(step.closes_group, (s + 1) % plan.group_steps == 0);
                    cr_assert_eq(step.closes_window, s + 1 == plan.group_steps * plan.groups);
                    cr_assert_eq(step.learning_rate_scale, 1.0);
                    if (empty)
                        cr_assert_eq(step.replay_rows, 0);
                    if (step.closes_group) { /* each group sees all of the window's new sequences, once */
                        cr_assert_eq(next, wanted);
                        next = 0;
                    }
                }
            }
        }
}

/* Over any run of steps the share is f, within one sequence: |replayed - n R f| < 1, and rounding of n R f. */
Test(replay, the_share_is_exact_over_any_run)
{
    for (int i = 0; i < SHAPES; i++) {
        const HsReplayPlan plan = shape(i, false);
        const int64_t steps = WINDOWS * plan.group_steps;
        int64_t *before = malloc(((size_t)steps + 1) * sizeof *before);
        cr_assert_not_null(before);
        before[0] = 0;
        for (int64_t n = 0; n < steps; n++) {
            const int64_t window = n / plan.group_steps, in_group = n % plan.group_steps;
            const HsReplayStep step = hs_replay_step(&plan, window, in_group, false);
            before[n + 1] = before[n] + step.replay_rows;
            /* Groups of a window share their counts. */
            const int64_t last = in_group + (plan.groups - 1) * plan.group_steps;
            cr_assert_eq(hs_replay_step(&plan, window, last, false).replay_rows, step.replay_rows);
        }
        for (int64_t from = 0; from < steps; from++)
            for (int64_t to = from + 1; to <= steps && to < from + 50; to++) {
                const double wanted = (double)((to - from) * plan.rows) * plan.fraction;
                cr_assert(fabs((double)(before[to] - before[from]) - wanted) < 1 + 1e-9,
                          "shape %d, steps %lld to %lld: %lld replayed, %g wanted", i, (long long)from, (long long)to,
                          (long long)(before[to] - before[from]), wanted);
            }
        cr_expect_float_eq(hs_replay_new_rows_per_step(&plan),
                           (double)plan.rows * (1 - plan.fraction) / (double)plan.groups, 1e-12);
        free(before);
    }
}

Test(replay, mean_new_rows_are_what_windows_need)
{
    for (int i = 0; i < SHAPES; i++) {
        const HsReplayPlan plan = shape(i, false);
        int64_t rows = 0;
        for (int64_t window = 0; window < WINDOWS; window++)
            rows += hs_replay_window_rows(&plan, window, false);
        const double steps = (double)(WINDOWS * hs_replay_window_steps(&plan));
        cr_expect_lt(fabs((double)rows - hs_replay_new_rows_per_step(&plan) * steps), 1 + 1e-9, "shape %d", i);
    }
}

/* Algorithms 6 and 7: what a group replays comes before everything new, and there is as much of it. */
Test(replay, replayed_sequences_come_first)
{
    for (int i = 0; i < SHAPES; i++) {
        const HsReplayPlan in_turn = shape(i, false), first = shape(i, true);
        for (int64_t window = 0; window < WINDOWS; window++) {
            cr_assert_eq(hs_replay_window_rows(&first, window, false), hs_replay_window_rows(&in_turn, window, false));
            bool new_seen = false;
            for (int64_t s = 0; s < first.group_steps; s++) {
                const HsReplayStep step = hs_replay_step(&first, window, s, false);
                cr_assert(!new_seen || step.replay_rows == 0, "replayed after new");
                new_seen = new_seen || step.new_rows > 0;
            }
        }
    }
    /* By hand: 4 steps of 3 rows, a quarter replayed: 3 of 12, the whole first step. */
    const HsReplayPlan plan = plan_of(0.25, 3, 4, 1, true);
    const int64_t expected[4][3] = { { 0, 0, 3 }, { 0, 3, 0 }, { 3, 3, 0 }, { 6, 3, 0 } };
    for (int64_t s = 0; s < 4; s++) {
        const HsReplayStep step = hs_replay_step(&plan, 5, s, false);
        cr_expect_eq(step.new_first, expected[s][0]);
        cr_expect_eq(step.new_rows, expected[s][1]);
        cr_expect_eq(step.replay_rows, expected[s][2]);
    }
}

Test(replay, rows_by_hand)
{
    /* 2 rows, f = 0.25, K = 4, s = 3: F(n) = floor(n / 2), so every second step replays one. */
    const HsReplayPlan plan = plan_of(0.25, 2, 4, 3, false);
    const int64_t new_first[4] = { 0, 2, 3, 5 }, new_rows[4] = { 2, 1, 2, 1 };
    cr_expect_eq(hs_replay_window_rows(&plan, 0, false), 6);
    cr_expect_eq(hs_replay_window_rows(&plan, 0, true), 8);
    cr_expect_eq(hs_replay_window_rows_most(&plan), 8);
    cr_expect_eq(hs_replay_new_rows_per_step(&plan), 0.5);
    for (int64_t s = 0; s < 12; s++) {
        const HsReplayStep step = hs_replay_step(&plan, 1, s, false);
        cr_expect_eq(step.new_first, new_first[s % 4]);
        cr_expect_eq(step.new_rows, new_rows[s % 4]);
    }
}

Test(replay, the_rate_follows_the_share_of_current_sequences)
{
    HsReplayPlan plan = plan_of(0.25, 6, 2, 1, true); /* 3 of 12 are replayed */
    plan.current_rate_scale = 5;
    cr_expect_eq(hs_replay_step(&plan, 0, 0, false).learning_rate_scale, 3.0); /* half of it is current: 1 + 4 / 2 */
    cr_expect_eq(hs_replay_step(&plan, 0, 1, false).learning_rate_scale, 5.0);
    cr_expect_eq(hs_replay_step(&plan, 0, 0, true).learning_rate_scale, 5.0);
    plan = plan_of(0.5, 6, 2, 1, true);
    plan.current_rate_scale = 5;
    cr_expect_eq(hs_replay_step(&plan, 0, 0, false).learning_rate_scale, 1.0); /* all replayed */
}

/* Batch and reference draws of a task never share a number: intervals, in order, do not touch. */
Test(replay, draw_numbers_are_unique)
{
    for (int i = 0; i < SHAPES; i++) {
        HsReplayPlan plan = shape(i, false);
        plan.reference_rows = i % 3 * 4;
        int64_t free_from = 0;
        for (int64_t window = 0; window < WINDOWS; window++)
            for (int64_t s = 0; s < hs_replay_window_steps(&plan); s++) {
                const HsReplayStep step = hs_replay_step(&plan, window, s, false);
                cr_assert_geq(step.replay_first_draw, free_from);
                free_from = step.replay_first_draw + step.replay_rows + plan.reference_rows;
            }
    }
}

/* In closed form what adding up gives: windows of every kind, the first of which finds nothing to replay. */
Test(replay, rows_before_a_window)
{
    for (int kind = 0; kind < 8; kind++) {
        const HsReplayPlan plan = { .fraction = kind % 4 * 0.23,
                                    .rows = 3 + kind,
                                    .group_steps = 1 + kind % 3,
                                    .groups = 1 + kind % 2,
                                    .replay_first = kind > 5,
                                    .current_rate_scale = 1 };
        int64_t rows = 0;
        for (int64_t window = 0; window < 200; window++) {
            cr_assert_eq(hs_replay_rows_before(&plan, window), rows, "kind %d, window %lld", kind, (long long)window);
            rows += hs_replay_window_rows(&plan, window, window == 0);
        }
    }
}

/* Each task's share, counted: f over the task, l in its last part, whatever else that leaves for the first. */
Test(replay, a_late_part_has_its_share_and_the_task_the_mean)
{
    enum { STEPS = 1000 };
    static const struct {
        double fraction, late, part;
        int task;
        double in_late; /* expected */
    } cases[] = {
        { 0.25, NAN, 0.2, 1, 0.5 },   { 0.25, NAN, 0.2, 2, 2.0 / 3 }, { 0.25, NAN, 0.2, 9, 0.9 },
        { 0.25, NAN, 0.4, 9, 0.625 }, /* then nothing is left for the rest */
        { 0.25, 0.4, 0.2, 1, 0.4 },   { 0.5, NAN, 0.2, 1, 0.5 },      { 0.05, NAN, 0.2, 1, 0.25 },
        { 0.25, NAN, 0.2, 0, 0.25 },  { 0.25, 0.1, 0.5, 3, 0.1 },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        HsReplayPlan run = plan_of(cases[i].fraction, 16, 1, 1, false);
        run.late = cases[i].late;
        run.late_part = cases[i].part;
        const HsReplayPlan plan = hs_replay_plan_of_task(&run, cases[i].task, STEPS);
        int64_t all = 0, late = 0;
        const int64_t last = llround(cases[i].part * STEPS);
        for (int64_t step = 0; step < STEPS; step++) {
            const int64_t rows = hs_replay_step(&plan, step, 0, false).replay_rows;
            cr_expect_leq(rows, hs_replay_rows_most(&run));
            all += rows;
            late += step >= STEPS - last ? rows : 0;
        }
        cr_expect(llabs(all - (int64_t)(cases[i].fraction * 16 * STEPS)) <= 1, "case %zu: %lld", i, (long long)all);
        cr_expect(fabs((double)late - cases[i].in_late * 16 * (double)last) <= 2, "case %zu: %lld", i, (long long)late);
    }
}

/* What replays earlier tasks alone has none in the first; its steps then hold all the more new sequences. */
Test(replay, the_first_task_has_no_earlier_one)
{
    HsReplayPlan run = plan_of(0.25, 16, 1, 1, false);
    run.choice = HS_REPLAY_EARLIER;
    const HsReplayPlan first = hs_replay_plan_of_task(&run, 0, 100), second = hs_replay_plan_of_task(&run, 1, 100);
    cr_expect_eq(hs_replay_new_rows_per_step(&first), 16.0);
    cr_expect_eq(hs_replay_new_rows_per_step(&second), 12.0);
    cr_expect_eq(hs_replay_step(&first, 50, 0, false).replay_rows, 0);
    cr_expect_eq(hs_replay_step(&second, 50, 0, false).replay_rows, 4);
}
