/* SPDX-License-Identifier: MIT
 *
 * What a step holds, in closed form.  With F(n) = floor(R S(n)) the sequences replayed in all steps before step n,
 *     replayed in steps [a, b) = F(b) - F(a)
 * so that the share is exact over any run of steps (within one sequence), whatever R f is, and nothing is counted
 * along the way.
 *
 *     replay in turn:   | new .. replayed | new .. replayed | new .. replayed |   each step its own share
 *     replay first:     | replayed        | replayed .. new | new             |   the group's, in one run (algorithm 6)
 */
#include "optim/continual/replay.h"

#include <assert.h>
#include <math.h>

HsReplayPlan hs_replay_plan_of_task(const HsReplayPlan *plan, int task, int64_t steps)
{
    HsReplayPlan own = *plan;
    if (plan->choice == HS_REPLAY_EARLIER && task == 0)
        own.fraction = 0;
    if (plan->choice != HS_REPLAY_ANY)
        own.choice = task > 0 ? HS_REPLAY_EARLIER : HS_REPLAY_ANY;
    const double most = plan->late_part > 0 ? fmin(own.fraction / plan->late_part, 1.0) : 0;
    if (isnan(own.late))
        own.late = fmax((double)task / (double)(task + 1), own.fraction);
    own.late = fmin(own.late, most);
    own.steps = plan->late_part > 0 && own.fraction > 0 ? steps : 0;
    return own;
}

/* F(n) */
static int64_t replayed_before(const HsReplayPlan *plan, int64_t n)
{
    const double rows = (double)plan->rows, f = plan->fraction;
    const int64_t late = llround(plan->late_part * (double)plan->steps), early = plan->steps - late;
    if (plan->steps == 0 || late == 0 || early == 0)
        return (int64_t)floor((double)n * rows * f);
    const double before = fmax((f * (double)plan->steps - plan->late * (double)late) / (double)early, 0.0);
    const double share = n <= early ? before * (double)n : before * (double)early + plan->late * (double)(n - early);
    return (int64_t)floor(share * rows);
}

/* Replayed sequences of the first `steps` steps of a group of this window. */
static int64_t replayed_in_group(const HsReplayPlan *plan, int64_t window, int64_t steps, bool empty_reservoir)
{
    if (empty_reservoir)
        return 0;
    const int64_t first = window * plan->group_steps;
    const int64_t in_turn = replayed_before(plan, first + steps) - replayed_before(plan, first);
    if (!plan->replay_first)
        return in_turn;
    const int64_t all = replayed_before(plan, first + plan->group_steps) - replayed_before(plan, first);
    const int64_t room = steps * plan->rows;
    return all < room ? all : room;
}

int64_t hs_replay_window_steps(const HsReplayPlan *plan)
{
    return plan->group_steps * plan->groups;
}

int64_t hs_replay_window_rows(const HsReplayPlan *plan, int64_t window, bool empty_reservoir)
{
    /* Every group of the window sees the same new sequences: one group's worth. */
    return plan->group_steps * plan->rows - replayed_in_group(plan, window, plan->group_steps, empty_reservoir);
}

int64_t hs_replay_rows_before(const HsReplayPlan *plan, int64_t window)
{
    const int64_t steps = window * plan->group_steps;
    const int64_t replayed = window > 0 ? replayed_before(plan, steps) - replayed_before(plan, plan->group_steps) : 0;
    return steps * plan->rows - replayed;
}

int64_t hs_replay_window_rows_most(const HsReplayPlan *plan)
{
    return plan->group_steps * plan->rows; /* while the reservoir is empty */
}

HsReplayStep hs_replay_step(const HsReplayPlan *plan, int64_t window, int64_t step, bool empty_reservoir)
{
    const int64_t window_steps = hs_replay_window_steps(plan);
    assert(window >= 0 && step >= 0 && step < window_steps);
    const int64_t in_group = step % plan->group_steps;
    const int64_t before = replayed_in_group(plan, window, in_group, empty_reservoir);
    const int64_t after = replayed_in_group(plan, window, in_group + 1, empty_reservoir);
    const int64_t replay_rows = after - before, new_rows = plan->rows - replay_rows;
    assert(replay_rows >= 0 && new_rows >= 0);
    return (HsReplayStep){
        .new_first = in_group * plan->rows - before,
        .new_rows = new_rows,
        .replay_rows = replay_rows,
        /* A whole step's worth of numbers is set aside for each step, replayed or not: numbers never repeat, and the
         * reference's follow the batch's. */
        .replay_first_draw = (window * window_steps + step) * (plan->rows + plan->reference_rows),
        .learning_rate_scale = 1.0 + (plan->current_rate_scale - 1.0) * (double)new_rows / (double)plan->rows,
        .closes_group = in_group + 1 == plan->group_steps,
        .closes_window = step + 1 == window_steps,
    };
}

int64_t hs_replay_rows_most(const HsReplayPlan *plan)
{
    double share = plan->fraction;
    if (plan->late_part > 0) {
        /* One that is chosen is no less than f, and what is before it no more. */
        const double most_late = fmin(share / plan->late_part, 1.0);
        const double late = isnan(plan->late) ? most_late : fmin(plan->late, most_late);
        const double early = (share - plan->late_part * late) / (1 - plan->late_part);
        share = fmax(fmax(share, late), early);
    }
    const int64_t most =
        (int64_t)ceil((double)plan->rows * share * (double)(plan->replay_first ? plan->group_steps : 1));
    return most < plan->rows ? most : plan->rows;
}

double hs_replay_new_rows_per_step(const HsReplayPlan *plan)
{
    return (double)plan->rows * (1.0 - plan->fraction) / (double)plan->groups;
}
