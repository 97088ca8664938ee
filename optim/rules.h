/* SPDX-License-Identifier: MIT
 *
 * The table of update rules.  A rule is a row: what it keeps of each parameter, which ones it serves, and one step.
 * What surrounds every rule (skip, unscale, clip, penalty, decay, rounding, what follows) is HsUpdateArgs, which the
 * optimizer fills and the rule's last operation obeys.  Private to optim.
 */
#ifndef HS_OPTIM_RULES_H
#define HS_OPTIM_RULES_H

#include <math.h>

#include "optim/update.h"

/* A tensor that a rule keeps of a span. */
typedef struct HsRuleState {
    const char *name; /* in checkpoints, after the parameter's */
    HsDtype dtype;
    bool is_moment; /* HsOptimizerConfig.moments says the dtype */
    HsTensor (*shape)(const HsOptimizerConfig *config, const HsSpan *span); /* its rank and extents */
    bool (*needed)(const HsOptimizerConfig *config);                        /* NULL: always */
} HsRuleState;

enum { HS_RULE_STATES = HS_SPAN_STATES - 1 };

typedef struct HsUpdateRule {
    HsRuleState states[HS_RULE_STATES];                                  /* without a name: no more */
    bool (*serves)(const HsOptimizerConfig *config, const HsSpan *span); /* NULL: everything */
    const char *served;                                                  /* that in words */
    const char
        *mend; /* what to do about a model in which it serves nothing; NULL: no model is like that, or none minds */
    HsStatus (*check)(const HsOptimizerConfig *config);
    /* Bytes of scratch for a step of this span; NULL: none, and it is updated element by element. */
    size_t (*scratch_bytes)(const HsOptimizerConfig *config, const HsSpan *span);
    /* One of the two: at the end of the step's list, in which all such spans are updated together, */
    void (*append)(const HsOptimizer *optimizer, const HsSpan *span, const HsUpdateArgs *update,
                   HsUpdateListArgs *list);
    /* or by its own operations, on scratch of this size, apart from other spans. */
    HsStatus (*apply)(const HsOptimizer *optimizer, HsContext *context, const HsSpan *span, const HsUpdateArgs *update,
                      void *scratch);
} HsUpdateRule;

const HsUpdateRule *hs_rule_get(HsOptimizerKind kind);
/* What a span keeps, by its rule and then by averages; NULL: no more. */
const HsRuleState *hs_rule_state(const HsOptimizerConfig *config, const HsSpan *span, int index);
/* One span, or a part of one, by a rule that needs no scratch. */
HsStatus hs_rule_apply(const HsOptimizer *optimizer, HsContext *context, const HsSpan *span,
                       const HsUpdateArgs *update);
/* What surrounds the rule of a span (spans.c). */
HsUpdateArgs hs_rule_update(const HsOptimizer *optimizer, const HsSpan *span);

/* 0 <= value < limit, of a setting called `name`.  errors: HS_ECONFIG */
static inline HsStatus hs_rule_check_setting(const char *name, double value, double limit)
{
    if (value >= 0 && value < limit)
        return HS_OK;
    return hs_fail(HS_ECONFIG, "optimizer: %s must be at least 0 and less than %g (got %g)", name, limit, value);
}

/* schedule_free.c */
/* y = x, of the spans by that rule, before their z - y becomes 0: a fresh start begins with what was evaluated. */
HsStatus hs_schedule_free_settle(const HsOptimizer *optimizer, HsContext *context, const HsSpan *spans, int count);

/* Decay rates, epsilon and the moments' format, of what has Adam's two moments.  errors: HS_ECONFIG */
static inline HsStatus hs_rule_check_adam(const HsOptimizerConfig *config)
{
    HS_TRY(hs_rule_check_setting("beta1", config->beta1, 1));
    HS_TRY(hs_rule_check_setting("beta2", config->beta2, 1));
    if (config->moments != HS_F32 && config->moments != HS_BF16)
        return hs_fail(HS_ECONFIG, "optimizer: moments are f32 or bf16, not %s", hs_dtype_name(config->moments));
    return hs_rule_check_setting("epsilon", config->epsilon, INFINITY);
}

/* muon.c */
bool hs_muon_serves(const HsOptimizerConfig *config, const HsSpan *span);
/* Of the step that follows as many applied ones. */
double hs_muon_momentum(const HsMuonConfig *muon, const HsSchedule *schedule, int64_t applied_steps);
HsStatus hs_muon_check(const HsOptimizerConfig *config);
size_t hs_muon_scratch_bytes(const HsOptimizerConfig *config, const HsSpan *span);
HsStatus hs_muon_apply(const HsOptimizer *optimizer, HsContext *context, const HsSpan *span, const HsUpdateArgs *update,
                       void *scratch);

/* apollo.c */
bool hs_apollo_serves(const HsOptimizerConfig *config, const HsSpan *span);
bool hs_apollo_limits(const HsOptimizerConfig *config);
HsStatus hs_apollo_check(const HsOptimizerConfig *config);
/* [rank, longer side] */
HsTensor hs_apollo_moment(const HsOptimizerConfig *config, const HsSpan *span);
size_t hs_apollo_scratch_bytes(const HsOptimizerConfig *config, const HsSpan *span);
HsStatus hs_apollo_apply(const HsOptimizer *optimizer, HsContext *context, const HsSpan *span,
                         const HsUpdateArgs *update, void *scratch);

#endif
