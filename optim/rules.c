/* SPDX-License-Identifier: MIT
 *
 * The rows of the update rules; those of one operation stand here whole.
 */
#include "optim/rules.h"

#include <assert.h>
#include <math.h>
#include <string.h>

static HsTensor shape_of_weight(const HsOptimizerConfig *config, const HsSpan *span)
{
    (void)config;
    return span->weight;
}

/* It has a mean already, which beta1 mixes with the newest weights. */
static HsStatus schedule_free_check(const HsOptimizerConfig *config)
{
    HS_TRY(hs_rule_check_adam(config));
    if (config->beta1 <= 0)
        return hs_fail(HS_ECONFIG, "optimizer: without a schedule beta1 must be above 0 (got %g)", config->beta1);
    if (config->average_decay > 0)
        return hs_fail(HS_ECONFIG,
                       "optimizer: schedule-free keeps a mean already, and average_decay is %g: set it to 0",
                       config->average_decay);
    return HS_OK;
}

/* Moments in bf16 are rounded stochastically (Zamirai et al. 2020, "Revisiting BFloat16 Training", section 4, do so with
 * weights).  Measured on 4096 elements with beta2 = 0.999, 3000 steps after their gradients fell tenfold: v's mean is
 * right to 0.1%, and 22 times too large where it is rounded to the nearest; with beta2 = 0.99 both are within 0.4%. */
static HsAdamWArgs adamw_args(const HsOptimizer *optimizer, const HsSpan *span, const HsUpdateArgs *update)
{
    const HsOptimizerConfig *config = &optimizer->config;
    return (HsAdamWArgs){ .update = *update,
                          .beta1 = (float)config->beta1,
                          .beta2 = (float)config->beta2,
                          .epsilon = (float)config->epsilon,
                          .schedule_free = hs_optimizer_derives(config, span),
                          .m = span->state[0],
                          .v = span->state[1] };
}

/* Of schedule-free, too, with z - y in m's place. */
static void adamw_append(const HsOptimizer *optimizer, const HsSpan *span, const HsUpdateArgs *update,
                         HsUpdateListArgs *list)
{
    list->adamw[list->adamw_count++] = adamw_args(optimizer, span, update);
}

/* Few elements save nothing.  Rows of a table that tokens look up are updated seldom and then by much, so that one
 * outlier's absmax would cost its whole block precision (Dettmers et al. 2022, section 2.3); 4096: bitsandbytes'
 * min_8bit_size.  The decision is the whole parameter's, so that its parts have the same. */
enum { LEAST_8BIT_ELEMENTS = 4096 };

static bool adamw8bit_serves(const HsOptimizerConfig *config, const HsSpan *span)
{
    (void)config;
    const int64_t count = span->part_of > 0 ? span->part_of : span->count;
    return count >= LEAST_8BIT_ELEMENTS && !span->part_of_table && !(span->uses & HS_SPAN_IS_LOOKED_UP);
}

static HsTensor shape_of_absmax(const HsOptimizerConfig *config, const HsSpan *span)
{
    (void)config;
    return hs_tensor_1d(NULL, HS_F32, hs_dynamic_blocks(span->count));
}

/* Of both rules: they differ in the map. */
static HsAdamW8bitArgs adamw8bit_args(const HsOptimizer *optimizer, const HsSpan *span, const HsUpdateArgs *update)
{
    const HsOptimizerConfig *config = &optimizer->config;
    const bool fp8 = hs_optimizer_kind_of(config, span) == HS_OPTIMIZER_ADAMWFP8;
    return (HsAdamW8bitArgs){ .update = *update,
                              .beta1 = (float)config->beta1,
                              .beta2 = (float)config->beta2,
                              .epsilon = (float)config->epsilon,
                              .map = fp8 ? HS_MOMENTS_FP8 : HS_MOMENTS_DYNAMIC,
                              .m = span->state[0],
                              .v = span->state[1],
                              .m_absmax = span->state[2],
                              .v_absmax = span->state[3] };
}

static void adamw8bit_append(const HsOptimizer *optimizer, const HsSpan *span, const HsUpdateArgs *update,
                             HsUpdateListArgs *list)
{
    list->adamw8bit[list->adamw8bit_count++] = adamw8bit_args(optimizer, span, update);
}

static HsTensor shape_of_neurons(const HsOptimizerConfig *config, const HsSpan *span)
{
    (void)config;
    return hs_tensor_1d(NULL, HS_F32, span->weight.shape[0]);
}

static HsTensor shape_of_number(const HsOptimizerConfig *config, const HsSpan *span)
{
    (void)config;
    (void)span;
    return hs_tensor_1d(NULL, HS_F32, 1);
}

static bool muon_scales_neurons(const HsOptimizerConfig *config)
{
    return config->muon.beta2 > 0;
}

static bool sgd_has_momentum(const HsOptimizerConfig *config)
{
    return config->momentum != 0;
}

static HsStatus sgd_check(const HsOptimizerConfig *config)
{
    return hs_rule_check_setting("momentum", config->momentum, 1);
}

static HsSgdArgs sgd_args(const HsOptimizer *optimizer, const HsSpan *span, const HsUpdateArgs *update)
{
    const HsOptimizerConfig *config = &optimizer->config;
    return (HsSgdArgs){
        .update = *update, .momentum = (float)config->momentum, .nesterov = config->nesterov, .buffer = span->state[0]
    };
}

static void sgd_append(const HsOptimizer *optimizer, const HsSpan *span, const HsUpdateArgs *update,
                       HsUpdateListArgs *list)
{
    list->sgd[list->sgd_count++] = sgd_args(optimizer, span, update);
}

/* AdamW with moments in 8 bits by either map. */
#define ADAMW_OF_CODES                                                                                       \
    {                                                                                                        \
        .states = { { "m", HS_U8, false, shape_of_weight, NULL },                                            \
                    { "v", HS_U8, false, shape_of_weight, NULL },                                            \
                    { "m_absmax", HS_F32, false, shape_of_absmax, NULL },                                    \
                    { "v_absmax", HS_F32, false, shape_of_absmax, NULL } },                                  \
        .serves = adamw8bit_serves, .served = "parameters of 4096 elements and more that are no embeddings", \
        .check = hs_rule_check_adam, .append = adamw8bit_append,                                             \
    }

static const HsUpdateRule rules[HS_OPTIMIZER_KINDS] = {
    [HS_OPTIMIZER_ADAMW] = { .states = { { "m", HS_F32, true, shape_of_weight, NULL },
                                         { "v", HS_F32, true, shape_of_weight, NULL } },
                             .check = hs_rule_check_adam,
                             .append = adamw_append },
    [HS_OPTIMIZER_SGD] = { .states = { { "momentum", HS_F32, false, shape_of_weight, sgd_has_momentum } },
                           .check = sgd_check,
                           .append = sgd_append },
    [HS_OPTIMIZER_MUON] = { .states = { { "momentum", HS_F32, false, shape_of_weight, NULL },
                                        { "second_moment", HS_F32, false, shape_of_neurons, muon_scales_neurons } },
                            .serves = hs_muon_serves,
                            .served = "matrices of the blocks",
                            .check = hs_muon_check,
                            .scratch_bytes = hs_muon_scratch_bytes,
                            .apply = hs_muon_apply },
    [HS_OPTIMIZER_APOLLO] = { .states = { { "m", HS_F32, true, hs_apollo_moment, NULL },
                                          { "v", HS_F32, true, hs_apollo_moment, NULL },
                                          { "norm", HS_F32, false, shape_of_number, hs_apollo_limits } },
                              .serves = hs_apollo_serves,
                              .served = "matrices of the blocks with both sides above apollo.rank",
                              .mend = "lower apollo.rank, to a quarter of model.width say",
                              .check = hs_apollo_check,
                              .scratch_bytes = hs_apollo_scratch_bytes,
                              .apply = hs_apollo_apply },
    [HS_OPTIMIZER_ADAMW8BIT] = ADAMW_OF_CODES,
    [HS_OPTIMIZER_ADAMWFP8] = ADAMW_OF_CODES,
    [HS_OPTIMIZER_SCHEDULE_FREE] = { .states = { { "z_minus_y", HS_F32, true, shape_of_weight, NULL },
                                                 { "v", HS_F32, true, shape_of_weight, NULL } },
                                     .check = schedule_free_check,
                                     .append = adamw_append },
};

static const char *const names[] = HS_WORD_ARRAY(HS_OPTIMIZERS);

const HsUpdateRule *hs_rule_get(HsOptimizerKind kind)
{
    return &rules[kind];
}

HsStatus hs_rule_apply(const HsOptimizer *optimizer, HsContext *context, const HsSpan *span, const HsUpdateArgs *update)
{
    const HsUpdateRule *rule = &rules[hs_optimizer_kind_of(&optimizer->config, span)];
    assert(rule->append);
    HsAdamWArgs adamw;
    HsAdamW8bitArgs adamw8bit;
    HsSgdArgs sgd;
    HsUpdateListArgs list = { .adamw = &adamw, .adamw8bit = &adamw8bit, .sgd = &sgd };
    rule->append(optimizer, span, update, &list);
    return hs_op_update_list(context, &list);
}

HsStatus hs_optimizer_kind_find(const char *name, HsOptimizerKind *kind)
{
    for (int i = 0; i < HS_OPTIMIZER_KINDS; i++) {
        if (strcmp(names[i], name) == 0) {
            *kind = (HsOptimizerKind)i;
            return HS_OK;
        }
    }
    return hs_fail(HS_ECONFIG, "optimizer: there is no update rule %s", name);
}

const char *hs_optimizer_kind_name(HsOptimizerKind kind)
{
    return names[kind];
}

const char *hs_optimizer_kind_serves(HsOptimizerKind kind)
{
    return rules[kind].served;
}

const char *hs_optimizer_kind_mend(HsOptimizerKind kind)
{
    return rules[kind].mend;
}

bool hs_optimizer_kind_needs_whole(HsOptimizerKind kind)
{
    return rules[kind].apply != NULL;
}

HsOptimizerKind hs_optimizer_kind_of(const HsOptimizerConfig *config, const HsSpan *span)
{
    const HsOptimizerKind kind = span->group ? span->group->kind : config->kind;
    return rules[kind].serves == NULL || rules[kind].serves(config, span) ? kind : HS_OPTIMIZER_ADAMW;
}

bool hs_optimizer_derives(const HsOptimizerConfig *config, const HsSpan *span)
{
    return hs_optimizer_kind_of(config, span) == HS_OPTIMIZER_SCHEDULE_FREE;
}

/* Every rule's last. */
static const HsRuleState average = { "average", HS_F32, false, shape_of_weight, NULL };

const HsRuleState *hs_rule_state(const HsOptimizerConfig *config, const HsSpan *span, int index)
{
    const HsRuleState *const states = rules[hs_optimizer_kind_of(config, span)].states;
    int count = 0;
    while (count < HS_RULE_STATES && states[count].name && (!states[count].needed || states[count].needed(config)))
        count++;
    if (index < count)
        return &states[index];
    return index == count && config->average_decay > 0 ? &average : NULL;
}

int hs_optimizer_state_count(const HsOptimizerConfig *config, const HsSpan *span)
{
    int count = 0;
    while (hs_rule_state(config, span, count))
        count++;
    return count;
}

const char *hs_optimizer_state_name(const HsOptimizerConfig *config, const HsSpan *span, int index)
{
    return hs_rule_state(config, span, index)->name;
}

const HsTensor *hs_optimizer_average(const HsOptimizerConfig *config, const HsSpan *span)
{
    return config->average_decay > 0 ? &span->state[hs_optimizer_state_count(config, span) - 1] : NULL;
}
