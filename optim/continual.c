/* SPDX-License-Identifier: MIT
 *
 * The table of strategies, and what follows from a run's choice of them before anything is allocated: whether it makes
 * sense, what it replays, and how much memory it takes.
 */
#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "optim/continual_internal.h"

const HsStrategy hs_strategy_table[] = {
    { .name = "none",
      .doc = "nothing is done against forgetting: the lower control (the effect: McCloskey & Cohen 1989)",
      .role = HS_ROLE_ALONE },
    { .name = "joint",
      .doc = "all tasks are mixed from the start: the upper control (multi-task learning: Caruana 1997)",
      .role = HS_ROLE_ALONE },
    { .name = "er",
      .doc = "experience replay: a share of each batch is drawn from a uniform sample of the past (Chaudhry et al. "
             "2019, On Tiny Episodic Memories in Continual Learning)",
      .role = HS_ROLE_REPLAYS },
    { .name = "l2",
      .doc = "a quadratic penalty towards the latest task's end, every parameter alike (the control of Kirkpatrick et "
             "al. 2017)",
      .role = HS_ROLE_PENALIZES,
      .tensors_per_parameter = hs_l2_tensors,
      .create = hs_penalty_create,
      .after_task = hs_l2_after_task,
      .visit = hs_penalty_visit },
    { .name = "ewc",
      .doc = "elastic weight consolidation: a quadratic penalty weighted by the Fisher information (Kirkpatrick et al. "
             "2017; online: Schwarz et al. 2018)",
      .role = HS_ROLE_PENALIZES,
      .tensors_per_parameter = hs_ewc_tensors,
      .create = hs_penalty_create,
      .after_task = hs_ewc_after_task,
      .visit = hs_penalty_visit },
    { .name = "si",
      .doc = "synaptic intelligence: a quadratic penalty weighted by what each parameter did for the loss along the "
             "way (Zenke et al. 2017)",
      .role = HS_ROLE_PENALIZES,
      .tensors_per_parameter = hs_si_tensors,
      .create = hs_penalty_create,
      .begin_task = hs_si_begin_task,
      .after_task = hs_si_after_task,
      .visit = hs_penalty_visit },
    { .name = "mer",
      .doc = "meta-experience replay: steps one after another on new and replayed sequences, then interpolation back "
             "to where they began (Riemer et al. 2019)",
      .role = HS_ROLE_REPLAYS,
      .tensors_per_parameter = hs_mer_tensors,
      .create = hs_mer_create,
      .begin_task = hs_mer_begin_task,
      .fold = hs_mer_fold,
      .after_step = hs_mer_after_step,
      .after_task = hs_mer_after_task,
      .visit = hs_mer_visit },
    { .name = "a-gem",
      .doc = "averaged gradient episodic memory: a gradient that would raise the loss on replayed sequences is "
             "projected (Chaudhry et al. 2019, eq. 11)",
      .role = HS_ROLE_REPLAYS,
      .tensors_per_parameter = hs_agem_tensors,
      .create = hs_agem_create,
      .before_update = hs_agem_before_update,
      .visit = hs_agem_visit },
};
const int hs_strategy_count = (int)(sizeof hs_strategy_table / sizeof hs_strategy_table[0]);

const HsStrategy *hs_strategy_find(const char *name)
{
    for (int i = 0; i < hs_strategy_count; i++)
        if (strcmp(hs_strategy_table[i].name, name) == 0)
            return &hs_strategy_table[i];
    return NULL;
}

static HsStatus fail_unknown(const char *name)
{
    char known[128] = "";
    for (int i = 0; i < hs_strategy_count; i++) {
        const size_t used = strlen(known);
        snprintf(known + used, sizeof known - used, "%s%s", i > 0 ? ", " : "", hs_strategy_table[i].name);
    }
    return hs_fail(HS_ECONFIG, "continual.strategy: there is no \"%s\": choose one of %s", name, known);
}

/* Whether two strategies of a list can stand together; `second` comes later in it. */
static HsStatus check_pair(const HsStrategy *first, const HsStrategy *second)
{
    if (first == second)
        return hs_fail(HS_ECONFIG, "continual.strategy: %s is listed twice: remove one", first->name);
    if (first->role == HS_ROLE_ALONE || second->role == HS_ROLE_ALONE) {
        const HsStrategy *alone = first->role == HS_ROLE_ALONE ? first : second;
        const HsStrategy *other = alone == first ? second : first;
        return hs_fail(HS_ECONFIG, "continual.strategy: %s stands alone: remove %s, or %s", alone->name, alone->name,
                       other->name);
    }
    if (first->role != second->role)
        return HS_OK;
    /* Of two that replay, plain replay is what the other already contains. */
    const bool first_goes = strcmp(first->name, "er") == 0;
    return hs_fail(HS_ECONFIG, "continual.strategy: %s %s already: remove %s", (first_goes ? second : first)->name,
                   first->role == HS_ROLE_REPLAYS ? "replays" : "penalizes", (first_goes ? first : second)->name);
}

HsStatus hs_continual_check(const HsContinualConfig *config)
{
    assert(config->strategy_count >= 0 && config->strategy_count <= HS_STRATEGIES_MAX);
    for (int i = 0; i < config->strategy_count; i++)
        if (!hs_strategy_find(config->strategies[i]))
            return fail_unknown(config->strategies[i]);
    for (int i = 0; i < config->strategy_count; i++)
        for (int j = i + 1; j < config->strategy_count; j++)
            HS_TRY(check_pair(hs_strategy_find(config->strategies[i]), hs_strategy_find(config->strategies[j])));
    return HS_OK;
}

bool hs_continual_has(const HsContinualConfig *config, const char *strategy)
{
    for (int i = 0; i < config->strategy_count; i++)
        if (strcmp(config->strategies[i], strategy) == 0)
            return true;
    return config->strategy_count == 0 && strcmp(strategy, "none") == 0;
}

bool hs_continual_replays(const HsContinualConfig *config)
{
    for (int i = 0; i < config->strategy_count; i++) {
        const HsStrategy *strategy = hs_strategy_find(config->strategies[i]);
        if (strategy && strategy->role == HS_ROLE_REPLAYS)
            return true;
    }
    return false;
}

HsReplayPlan hs_continual_replay_plan(const HsContinualConfig *config, int64_t rows_per_step)
{
    HsReplayPlan plan = { .rows = rows_per_step, .group_steps = 1, .groups = 1, .current_rate_scale = 1.0 };
    const bool mer = hs_continual_has(config, "mer");
    if (mer || hs_continual_has(config, "er"))
        plan.fraction = config->replay_fraction;
    if (hs_continual_has(config, "a-gem"))
        plan.reference_rows = config->reference_rows;
    /* Reptile's interval is counted by after_step: its windows are single steps, like those of er. */
    if (!mer || config->mer.mode == HS_MER_REPTILE)
        return plan;
    assert(config->mer.group_steps >= 1 && config->mer.groups >= 1);
    plan.group_steps = config->mer.group_steps;
    if (config->mer.mode == HS_MER_ALGORITHM1)
        plan.groups = config->mer.groups;
    else
        plan.replay_first = true;
    if (config->mer.mode == HS_MER_ALGORITHM7)
        plan.current_rate_scale = (double)config->mer.groups;
    return plan;
}

size_t hs_continual_device_bytes(const HsContinualConfig *config, const HsSpan *spans, int count)
{
    size_t bytes = 0;
    for (int i = 0; i < config->strategy_count; i++) {
        const HsStrategy *strategy = hs_strategy_find(config->strategies[i]);
        if (strategy && strategy->tensors_per_parameter)
            bytes += (size_t)strategy->tensors_per_parameter(config) *
                     hs_family_bytes(spans, count, strategy->role == HS_ROLE_PENALIZES);
    }
    return bytes > 0 ? bytes + hs_continual_value_bytes(count) : 0;
}

bool hs_continual_anchored(const HsContinual *continual)
{
    return continual->anchored != 0;
}
