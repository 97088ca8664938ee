/* SPDX-License-Identifier: MIT
 *
 * Learning without forgetting (Li & Hoiem 2016): on the text of a later task the model is also to say what the model
 * before that task would have said; nothing of the earlier tasks is kept but that model.  With z the teacher's logits,
 * y' = softmax(z / T) and p = softmax(h / T), their eq. 2 and 3,
 *     L = CE(new) + alpha H(y', p),    H(y', p) = - sum_v y'_v log p_v
 *
 *   - the gradient is of this formula as it stands, 1/T of softmax's difference: alpha is their lambda_o (theirs is
 *     1), and the T^2 by which Hinton et al. (2015) multiply is not in it.
 *   - the teacher's dropout is off.  What is reported is H less the entropy of y', a constant: 0 where both agree.
 *   - rows that another strategy replays have their own targets, and no teacher but that strategy's.
 * The paper trains new heads alone at first and has one for each task; a language model has one for all.
 */
#include "optim/continual/internal.h"

static void lwf_plan_distillation(const HsContinualConfig *config, HsDistillation *plan)
{
    plan->teacher = true;
    plan->fresh = (HsTeaching){ .weight = (float)hs_continual_number(config, "lwf", "alpha"),
                                .temperature = (float)hs_continual_number(config, "lwf", "temperature"),
                                .target_weight = 1.0f };
}

const HsStrategy hs_strategy_lwf = {
    .name = "lwf",
    .doc = "learning without forgetting: on each later task's text the model before the task teaches, too (Li & Hoiem "
           "2016, eq. 2 and 3)",
    .role = HS_ROLE_TEACHES,
    .section = "lwf",
    .needs_boundaries = "copies the model when a task begins",
    .plan_distillation = lwf_plan_distillation,
};
