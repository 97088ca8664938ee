/* SPDX-License-Identifier: MIT
 *
 * The rows of the update rules; those of one operation stand here whole.
 */
#include "optim/rules.h"

#include <math.h>
#include <string.h>

HsStatus hs_rule_check_setting(const char *name, double value, double limit)
{
    if (value >= 0 && value < limit)
        return HS_OK;
    return hs_fail(HS_ECONFIG, "optimizer: %s must be at least 0 and less than %g (got %g)", name, limit, value);
}

static HsTensor shape_of_weight(const HsSpan *span)
{
    return span->weight;
}

static HsStatus adamw_check(const HsOptimizerConfig *config)
{
    HS_TRY(hs_rule_check_setting("beta1", config->beta1, 1));
    HS_TRY(hs_rule_check_setting("beta2", config->beta2, 1));
    return hs_rule_check_setting("epsilon", config->epsilon, INFINITY);
}

static HsStatus adamw_apply(const HsOptimizer *optimizer, HsContext *context, const HsSpan *span,
                            const HsUpdateArgs *update)
{
    const HsOptimizerConfig *config = &optimizer->config;
    return hs_op_adamw(context, &(HsAdamWArgs){ .update = *update,
                                                .beta1 = (float)config->beta1,
                                                .beta2 = (float)config->beta2,
                                                .epsilon = (float)config->epsilon,
                                                .m = span->state[0],
                                                .v = span->state[1] });
}

static bool sgd_has_momentum(const HsOptimizerConfig *config)
{
    return config->momentum != 0;
}

static HsStatus sgd_check(const HsOptimizerConfig *config)
{
    return hs_rule_check_setting("momentum", config->momentum, 1);
}

static HsStatus sgd_apply(const HsOptimizer *optimizer, HsContext *context, const HsSpan *span,
                          const HsUpdateArgs *update)
{
    const HsOptimizerConfig *config = &optimizer->config;
    return hs_op_sgd(context, &(HsSgdArgs){ .update = *update,
                                            .momentum = (float)config->momentum,
                                            .nesterov = config->nesterov,
                                            .buffer = span->state[0] });
}

static const HsUpdateRule rules[HS_OPTIMIZER_KINDS] = {
    [HS_OPTIMIZER_ADAMW] = { .name = "adamw",
                             .states = { { "m", HS_F32, shape_of_weight, NULL },
                                         { "v", HS_F32, shape_of_weight, NULL } },
                             .check = adamw_check,
                             .apply = adamw_apply },
    [HS_OPTIMIZER_SGD] = { .name = "sgd",
                           .states = { { "momentum", HS_F32, shape_of_weight, sgd_has_momentum } },
                           .check = sgd_check,
                           .apply = sgd_apply },
    [HS_OPTIMIZER_MUON] = { .name = "muon",
                            .states = { { "momentum", HS_F32, shape_of_weight, NULL } },
                            .serves = hs_muon_serves,
                            .check = hs_muon_check,
                            .scratch_bytes = hs_muon_scratch_bytes,
                            .apply = hs_muon_apply },
};

const HsUpdateRule *hs_rule_get(HsOptimizerKind kind)
{
    return &rules[kind];
}

HsStatus hs_optimizer_kind_find(const char *name, HsOptimizerKind *kind)
{
    for (int i = 0; i < HS_OPTIMIZER_KINDS; i++) {
        if (strcmp(rules[i].name, name) == 0) {
            *kind = (HsOptimizerKind)i;
            return HS_OK;
        }
    }
    return hs_fail(HS_ECONFIG, "optimizer: there is no update rule %s", name);
}

const char *hs_optimizer_kind_name(HsOptimizerKind kind)
{
    return rules[kind].name;
}

HsOptimizerKind hs_optimizer_kind_of(const HsOptimizerConfig *config, const HsSpan *span)
{
    const HsOptimizerKind kind = span->group ? span->group->kind : config->kind;
    return rules[kind].serves == NULL || rules[kind].serves(span) ? kind : HS_OPTIMIZER_ADAMW;
}

int hs_optimizer_state_count(const HsOptimizerConfig *config, const HsSpan *span)
{
    const HsRuleState *states = rules[hs_optimizer_kind_of(config, span)].states;
    int count = 0;
    while (count < HS_SPAN_STATES && states[count].name && (!states[count].needed || states[count].needed(config)))
        count++;
    return count;
}

const char *hs_optimizer_state_name(const HsOptimizerConfig *config, const HsSpan *span, int index)
{
    return rules[hs_optimizer_kind_of(config, span)].states[index].name;
}
