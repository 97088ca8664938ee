/* SPDX-License-Identifier: MIT
 *
 * Dark experience replay with labels, DER++ (Buzzega et al. 2020, eq. 6): of a replayed sequence the model is to say what
 * it said when the sequence was new, and the sequence's own targets too,
 *     L = CE(new) + alpha |h(x') - z'|^2 + beta CE(x'', y''),    z the logits that were kept
 *
 * Here, with N counted targets in a step, N_r of them replayed:
 *     L = 1/N ( sum_new CE + sum_replayed ( alpha/K sum_k (h_k - z_k)^2 + beta CE ) )
 *   - one draw serves both terms; the paper draws x' and x'' one by one.
 *   - the squares' mean runs over the K largest logits that were kept, the paper's over all.  What lies below them is
 *     left to the cross-entropy.  With K the vocabulary's size the two are the same.
 *   - terms are weighed by their share of the step's targets: where replay.fraction is 1/2, as in the paper, they have
 *     the paper's weights.
 * Logits are those of the step in which the sequence was trained on, from its own forward pass, rounded to f16.
 */
#include "optim/continual/internal.h"

static void derpp_plan_replay(const HsContinualConfig *config, HsReplayPlan *plan)
{
    plan->fraction = hs_continual_number(config, "replay", "fraction");
}

static void derpp_plan_distillation(const HsContinualConfig *config, HsDistillation *plan)
{
    plan->kept = (int64_t)hs_continual_number(config, "der", "top_k");
    plan->weight = hs_continual_number(config, "der", "alpha");
    plan->target_weight = hs_continual_number(config, "der", "beta");
}

const HsStrategy hs_strategy_derpp = {
    .name = "der++",
    .doc = "dark experience replay: replayed sequences are matched to the logits that the model had for them, and to "
           "their targets (Buzzega et al. 2020, eq. 6)",
    .role = HS_ROLE_REPLAYS,
    .section = "der",
    .replay_choice = HS_REPLAY_EARLIER,
    .plan_replay = derpp_plan_replay,
    .plan_distillation = derpp_plan_distillation,
};
