/* SPDX-License-Identifier: MIT
 *
 * Incremental LoRA, the control of Wang et al. 2023: each later task has its own adapter, the one before becomes
 * part of the model.  The training loop does both.
 */
#include "optim/continual/internal.h"

static bool works_on_matrices(const HsContinualConfig *config)
{
    (void)config;
    return true;
}

const HsStrategy hs_strategy_inclora = {
    .name = "inc-lora",
    .doc = "a new adapter for each task; the one before is merged into the model (the control of Wang et al. 2023)",
    .role = HS_ROLE_ADAPTS,
    .whole_matrices = works_on_matrices,
    .new_adapters = true,
    .needs_boundaries = "gives each task its own adapter",
};
