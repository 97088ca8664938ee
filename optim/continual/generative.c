/* SPDX-License-Identifier: MIT
 *
 * Generative replay (LAMOL: Sun et al. 2020, section 3.2): no text of earlier tasks is kept.  When a later task begins,
 * the model itself writes gamma |T| sequences, |T| the new task's, an equal share for each earlier task, and these
 * are replayed while the task trains, as er replays what it kept.
 *
 * LAMOL's model is trained with a token that begins a task's text and prompts for it.  Plain text has none: a sequence
 * begins with a token drawn from how often each token began the earlier task's windows, counts that are taken when the
 * task ends (one number a token and task; no text follows from them), and the model continues from there.
 *
 * A sequence's targets are draws from what the model said of it.  The model that wrote still knows what it said: it
 * teaches, as in LwF but on its own text (Hinton et al. 2015; Shin et al. 2017 replay what a solver of the past says of
 * generated inputs).  With y' what it says and y what was drawn, a rehearsal's loss is
 *     alpha H(y', p) + beta CE(y),    1 and 0 by default
 * Both have the same mean gradient over draws; the second adds the draws' noise.
 *
 * The model is the training loop's, which writes (runtime/train/rehearsal.c): here stands what it asks for.
 */
#include "optim/continual/internal.h"

static void generative_plan_replay(const HsContinualConfig *config, HsReplayPlan *plan)
{
    plan->fraction = hs_continual_number(config, "replay", "fraction");
}

/* Without a teacher (alpha 0) the targets have their own weight, which is then no other than 1. */
static void generative_plan_distillation(const HsContinualConfig *config, HsDistillation *plan)
{
    const double alpha = hs_continual_number(config, "generative", "alpha");
    if (alpha == 0)
        return;
    plan->teacher = true;
    plan->again = (HsTeaching){ .weight = (float)alpha,
                                .temperature = 1.0f,
                                .target_weight = (float)hs_continual_number(config, "generative", "beta") };
}

const HsStrategy hs_strategy_generative = {
    .name = "generative",
    .doc = "generative replay: before each later task the model writes its own rehearsal of the earlier ones, as their "
           "text is not kept (LAMOL, Sun et al. 2020), and teaches on it",
    .role = HS_ROLE_REPLAYS,
    .section = "generative",
    .writes_rehearsal = true,
    .needs_boundaries = "has the model write when a task begins",
    .replay_choice = HS_REPLAY_EARLIER,
    .plan_replay = generative_plan_replay,
    .plan_distillation = generative_plan_distillation,
};
