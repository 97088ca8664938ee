/* SPDX-License-Identifier: MIT
 *
 * Which sequences an optimizer step sees: new ones, and ones drawn from the reservoir.  Pure arithmetic: what a step
 * holds follows from (plan, window, step), so that it can be prefetched and a resumed run sees the same.
 *
 *     window   | group 0                  | group 1 (same new sequences)  | ... s groups   -> the reservoir takes the
 *              | step 0 | step 1 | .. K-1 | step K | ...          | 2 K-1 |                   window's new sequences
 *     step     R sequences: new ones, then replayed ones
 *
 * Without mer: K = s = 1.  er, mer.mode reptile: K = s = 1 with a replay fraction.
 * mer algorithm1: K = group_steps, s = groups.
 * algorithm6, 7: s = 1, a group's replayed sequences come first, the current ones last.
 *
 * Exact share f: with n counting steps of K-step rounds (groups of a window share n), step n replays
 *     floor(R S(n + 1)) - floor(R S(n))   sequences; none while the reservoir is empty at the window's start,
 * S(n) = n f, or with a late part p of a task's N steps, which has the share l,
 *     S(n) = e min(n, N - L) + l max(0, n - (N - L)),   L = round(p N),  e (N - L) + l L = f N
 * so that f is the mean over the task all the same.
 */
#ifndef HS_OPTIM_CONTINUAL_REPLAY_H
#define HS_OPTIM_CONTINUAL_REPLAY_H

#include <stdbool.h>
#include <stdint.h>

/* Which sequences are replayed. */
typedef enum HsReplayChoice {
    HS_REPLAY_ANY,
    HS_REPLAY_EARLIER,  /* of earlier tasks; in the first task none */
    HS_REPLAY_OWN_FIRST /* of earlier tasks; in the first its own */
} HsReplayChoice;

typedef struct HsReplayPlan {
    double fraction;           /* f; 0: nothing is replayed inside batches */
    HsReplayChoice choice;     /* of a task: HS_REPLAY_ANY or HS_REPLAY_EARLIER */
    double late, late_part;    /* l and p; l NAN: chosen for each task; p 0: f throughout */
    int64_t steps;             /* N, of hs_replay_plan_of_task; 0: no late part */
    int64_t rows;              /* R: sequences of an optimizer step */
    int64_t group_steps;       /* K */
    int64_t groups;            /* s */
    bool replay_first;         /* algorithms 6 and 7 */
    double current_rate_scale; /* algorithm 7: the rate of a step with current sequences only; 1 otherwise */
    int64_t reference_rows;    /* drawn in addition to the batch, from earlier tasks only */
} HsReplayPlan;

typedef struct HsReplayStep {
    int64_t new_first, new_rows; /* index within the window's new sequences, and how many */
    int64_t replay_rows;         /* new_rows + replay_rows = R */
    int64_t replay_first_draw;   /* number of this step's first draw, unique in a task; the reference's draws follow */
    double learning_rate_scale;  /* 1 + (current_rate_scale - 1) new_rows / R */
    bool closes_group, closes_window;
} HsReplayStep;

/* A run's plan for a task of `steps` steps (of K-step rounds; 0: not known).  Where l is to be chosen it is what gives
 * each task so far the same share of a batch, task / (task + 1), as far as e is not negative, and f at least. */
HsReplayPlan hs_replay_plan_of_task(const HsReplayPlan *plan, int task, int64_t steps);
/* Steps of a window: K s. */
int64_t hs_replay_window_steps(const HsReplayPlan *plan);
/* New sequences that window `window` of a task needs. */
int64_t hs_replay_window_rows(const HsReplayPlan *plan, int64_t window, bool empty_reservoir);
/* New sequences of all windows before `window`, where the first alone finds an empty reservoir. */
int64_t hs_replay_rows_before(const HsReplayPlan *plan, int64_t window);
/* At most, for any window: what a caller must have room for. */
int64_t hs_replay_window_rows_most(const HsReplayPlan *plan);
HsReplayStep hs_replay_step(const HsReplayPlan *plan, int64_t window, int64_t step, bool empty_reservoir);
/* The most sequences that a step of any task replays, which stand last in it. */
int64_t hs_replay_rows_most(const HsReplayPlan *plan);
/* Mean new sequences of a step: to turn tokens and epochs into steps.  R (1 - f) / s. */
double hs_replay_new_rows_per_step(const HsReplayPlan *plan);

#endif
