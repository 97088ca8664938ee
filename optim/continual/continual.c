/* SPDX-License-Identifier: MIT
 *
 * The table of strategies, and what follows from a run's choice of them before anything is allocated: whether it makes
 * sense, what it replays, and how much memory it takes.
 */
#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "optim/continual/internal.h"

const HsStrategy hs_strategy_none = {
    .name = "none",
    .doc = "nothing is done against forgetting: the lower control (the effect: McCloskey & Cohen 1989)",
    .role = HS_ROLE_ALONE,
    .does_nothing = true,
};

const HsStrategy hs_strategy_joint = {
    .name = "joint",
    .doc = "all tasks are mixed from the start: the upper control (multi-task learning: Caruana 1997)",
    .role = HS_ROLE_ALONE,
    .mixes_tasks = true,
    .needs_boundaries = "trains on all tasks from the start",
};

static void er_plan_replay(const HsContinualConfig *config, HsReplayPlan *plan)
{
    plan->fraction = hs_continual_number(config, "replay", "fraction");
}

const HsStrategy hs_strategy_er = {
    .name = "er",
    .doc = "experience replay: a share of each batch is drawn from a uniform sample of the past (Chaudhry et al. "
           "2019, On Tiny Episodic Memories in Continual Learning)",
    .role = HS_ROLE_REPLAYS,
    .plain = true,
    .replay_choice = HS_REPLAY_EARLIER,
    .plan_replay = er_plan_replay,
};

#define HS_STRATEGY_ROW(identifier, word) &hs_strategy_##identifier,
const HsStrategy *const hs_strategy_table[] = { HS_STRATEGIES(HS_STRATEGY_ROW) };
const int hs_strategy_count = (int)(sizeof hs_strategy_table / sizeof hs_strategy_table[0]);

const HsStrategy *hs_strategy_find(const char *name)
{
    for (int i = 0; i < hs_strategy_count; i++)
        if (strcmp(hs_strategy_table[i]->name, name) == 0)
            return hs_strategy_table[i];
    return NULL;
}

static HsStatus fail_unknown(const char *name)
{
    char known[128] = "";
    for (int i = 0; i < hs_strategy_count; i++) {
        const size_t used = strlen(known);
        snprintf(known + used, sizeof known - used, "%s%s", i > 0 ? ", " : "", hs_strategy_table[i]->name);
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
    const HsStrategy *renews = first->new_adapters ? first : second->new_adapters ? second : NULL;
    const HsStrategy *partner = renews == first ? second : first;
    const bool on_parameters = partner->role == HS_ROLE_PENALIZES || partner->role == HS_ROLE_MERGES;
    if (renews && (partner->new_adapters || on_parameters))
        return hs_fail(HS_ECONFIG,
                       "continual.strategy: %s gives each task a new adapter, and %s acts on adapters too: remove one",
                       renews->name, partner->name);
    if (first->role != second->role)
        return HS_OK;
    const bool first_goes = first->plain;
    return hs_fail(HS_ECONFIG, "continual.strategy: %s %s already: remove %s", (first_goes ? second : first)->name,
                   first->role == HS_ROLE_REPLAYS ? "replays" : "penalizes", (first_goes ? first : second)->name);
}

HsStatus hs_continual_check(const HsContinualConfig *config)
{
    assert(config->strategy_count >= 0 && config->strategy_count <= HS_STRATEGIES_MAX);
    for (int i = 0; i < config->strategy_count; i++)
        if (!hs_strategy_find(config->strategies[i]))
            return fail_unknown(config->strategies[i]);
    for (int i = 0; i < config->strategy_count && config->unmarked; i++) {
        const HsStrategy *row = hs_strategy_find(config->strategies[i]);
        if (row->needs_boundaries)
            return hs_fail(
                HS_ECONFIG,
                "continual.boundaries: none cannot be used with %s, which %s: set boundaries to tasks, or choose "
                "another strategy",
                row->name, row->needs_boundaries);
    }
    for (int i = 0; i < config->strategy_count; i++)
        for (int j = i + 1; j < config->strategy_count; j++)
            HS_TRY(check_pair(hs_strategy_find(config->strategies[i]), hs_strategy_find(config->strategies[j])));
    return HS_OK;
}

/* --- what the chosen rows ask for --- */

static const HsStrategy *row_at(const HsContinualConfig *config, int i)
{
    const HsStrategy *row = hs_strategy_find(config->strategies[i]);
    assert(row && "hs_continual_check comes first");
    return row;
}

static bool replays(const HsStrategy *row)
{
    return row->role == HS_ROLE_REPLAYS;
}

static bool penalizes(const HsStrategy *row)
{
    return row->role == HS_ROLE_PENALIZES;
}

static bool holds_rate(const HsStrategy *row)
{
    return row->replay_choice != HS_REPLAY_ANY && !row->writes_rehearsal;
}

static bool mixes_tasks(const HsStrategy *row)
{
    return row->mixes_tasks;
}

static bool new_adapters(const HsStrategy *row)
{
    return row->new_adapters;
}

static bool replaces_weights(const HsStrategy *row)
{
    return row->new_adapters || row->role == HS_ROLE_MERGES;
}

static bool writes_rehearsal(const HsStrategy *row)
{
    return row->writes_rehearsal;
}

static bool has_host_work(const HsStrategy *row)
{
    return row->host_work != NULL;
}

static bool works_beside(const HsStrategy *row)
{
    return row->beside_step != NULL;
}

static bool keeps_state(const HsStrategy *row)
{
    return row->visit != NULL;
}

static const HsStrategy *first_that(const HsContinualConfig *config, bool (*has)(const HsStrategy *row))
{
    for (int i = 0; i < config->strategy_count; i++)
        if (has(row_at(config, i)))
            return row_at(config, i);
    return NULL;
}

bool hs_continual_replays(const HsContinualConfig *config)
{
    return first_that(config, replays) != NULL;
}

bool hs_continual_holds_rate(const HsContinualConfig *config)
{
    return first_that(config, holds_rate) != NULL;
}

bool hs_continual_mixes_tasks(const HsContinualConfig *config)
{
    return first_that(config, mixes_tasks) != NULL;
}

const HsStrategy *hs_continual_needs_fisher(const HsContinualConfig *config)
{
    for (int i = 0; i < config->strategy_count; i++) {
        const HsStrategy *row = row_at(config, i);
        if (row->needs_fisher && row->needs_fisher(config))
            return row;
    }
    return NULL;
}

const HsStrategy *hs_continual_whole_matrices(const HsContinualConfig *config)
{
    for (int i = 0; i < config->strategy_count; i++) {
        const HsStrategy *row = row_at(config, i);
        if (row->whole_matrices && row->whole_matrices(config))
            return row;
    }
    return NULL;
}

const HsStrategy *hs_continual_writes_rehearsal(const HsContinualConfig *config)
{
    return first_that(config, writes_rehearsal);
}

const HsStrategy *hs_continual_new_adapters(const HsContinualConfig *config)
{
    return first_that(config, new_adapters);
}

const HsStrategy *hs_continual_replaces_weights(const HsContinualConfig *config)
{
    return first_that(config, replaces_weights);
}

const HsStrategy *hs_continual_host_work(const HsContinualConfig *config)
{
    return first_that(config, has_host_work);
}

const HsStrategy *hs_continual_outside_step(const HsContinualConfig *config)
{
    return first_that(config, works_beside);
}

const HsStrategy *hs_continual_penalizes(const HsContinualConfig *config)
{
    return first_that(config, penalizes);
}

const HsStrategy *hs_continual_compares_logits(const HsContinualConfig *config)
{
    for (int i = 0; i < config->strategy_count; i++) {
        HsDistillation plan = { 0 };
        if (row_at(config, i)->plan_distillation)
            row_at(config, i)->plan_distillation(config, &plan);
        if (plan.kept > 0 || plan.teacher)
            return row_at(config, i);
    }
    return NULL;
}

const HsStrategy *hs_continual_keeps_state(const HsContinualConfig *config)
{
    return first_that(config, keeps_state);
}

bool hs_continual_splits_accumulation(const HsContinualConfig *config)
{
    for (int i = 0; i < config->strategy_count; i++) {
        const HsStrategy *row = row_at(config, i);
        if (row->splits_accumulation && row->splits_accumulation(config))
            return true;
    }
    return false;
}

HsRateScale hs_continual_rate_scale(const HsContinualConfig *config)
{
    HsRateScale scale = { 1.0, 1.0 };
    for (int i = 0; i < config->strategy_count; i++) {
        const HsStrategy *row = row_at(config, i);
        const HsRateScale own = row->rate_scale ? row->rate_scale(config) : (HsRateScale){ 1.0, 1.0 };
        scale.least *= own.least;
        scale.most *= own.most;
    }
    return scale;
}

void hs_continual_describe(const HsContinualConfig *config)
{
    for (int i = 0; i < config->strategy_count; i++)
        if (row_at(config, i)->describe)
            row_at(config, i)->describe(config);
}

bool hs_continual_retains(const HsContinualConfig *config, int task)
{
    return !config->retains || config->retains(config->user, task);
}

bool hs_continual_retains_all(const HsContinualConfig *config)
{
    bool all = true;
    for (int task = 0; task < config->tasks; task++)
        all = all && hs_continual_retains(config, task);
    return all;
}

HsReplayPlan hs_continual_replay_plan(const HsContinualConfig *config, int64_t rows_per_step)
{
    HsReplayPlan plan = { .rows = rows_per_step, .group_steps = 1, .groups = 1, .current_rate_scale = 1.0 };
    for (int i = 0; i < config->strategy_count; i++)
        if (row_at(config, i)->plan_replay) {
            row_at(config, i)->plan_replay(config, &plan);
            /* Of an unmarked stream it is not known which tasks are earlier, or when one ends. */
            const bool any = config->unmarked || hs_continual_word_is(config, "replay", "draw", "any");
            plan.choice = any ? HS_REPLAY_ANY : row_at(config, i)->replay_choice;
            plan.late = hs_continual_number(config, "replay", "late_fraction");
            plan.late_part = config->unmarked ? 0 : hs_continual_number(config, "replay", "late_part");
        }
    return plan;
}

HsDistillation hs_continual_distillation(const HsContinualConfig *config)
{
    HsDistillation plan = { 0 };
    for (int i = 0; i < config->strategy_count; i++)
        if (row_at(config, i)->plan_distillation)
            row_at(config, i)->plan_distillation(config, &plan);
    return plan;
}

size_t hs_continual_device_bytes(const HsContinualConfig *config, const HsSpan *spans, int count)
{
    size_t bytes = 0;
    for (int i = 0; i < config->strategy_count; i++) {
        const HsStrategy *row = row_at(config, i);
        if (row->tensors_per_parameter)
            bytes += (size_t)row->tensors_per_parameter(config) *
                     hs_tensor_set_bytes(spans, count, row->role == HS_ROLE_PENALIZES);
        if (row->further_bytes)
            bytes += row->further_bytes(config, spans, count);
    }
    return bytes > 0 ? bytes + hs_continual_value_bytes(count) : 0;
}
