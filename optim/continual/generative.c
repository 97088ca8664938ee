/* SPDX-License-Identifier: MIT
 *
 * Generative replay (LAMOL: Sun et al. 2020, section 3.2): no text of earlier tasks is kept.  When a later task begins,
 * the model writes gamma |T| sequences of its own, |T| the new task's, an equal share for each earlier task, and these
 * are replayed while the task trains, as er replays what it kept.
 *
 * LAMOL's model is trained with a token that begins a task's text, and is asked by it.  Plain text has none: a sequence
 * begins with a token drawn from how often each token began the earlier task's windows, counts that are taken when the
 * task ends (one number a token and task; no text follows from them), and the model goes on from there.
 *
 * The model is the training loop's, which writes (runtime/train/rehearsal.c): here stands what it asks for.
 */
#include "optim/continual/internal.h"

static void generative_plan_replay(const HsContinualConfig *config, HsReplayPlan *plan)
{
    plan->fraction = hs_continual_number(config, "replay", "fraction");
}

const HsStrategy hs_strategy_generative = {
    .name = "generative",
    .doc = "generative replay: before each later task the model writes its own rehearsal of the earlier ones, whose "
           "text is not kept (LAMOL, Sun et al. 2020)",
    .role = HS_ROLE_REPLAYS,
    .section = "generative",
    .writes_rehearsal = true,
    .needs_boundaries = "has the model write when a task begins",
    .plan_replay = generative_plan_replay,
};
