/* SPDX-License-Identifier: MIT
 *
 * Which update rule, rate and decay each parameter has: optimizer.groups over optimizer.kind, and how that is reported.
 */
#include <ctype.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/base/log.h"
#include "runtime/model/adapter.h"
#include "runtime/model/selector.h"
#include "runtime/train/run.h"

static HsStatus fill_group(const HsConfig *config, int index, HsOptimizerGroup *group)
{
    const HsGroupConfig *own = &config->groups[index];
    const double peak = config->training.learning_rate;
    const bool inherits = strcmp(own->kind, "inherit") == 0;
    *group = (HsOptimizerGroup){
        .weight_decay = own->weight_decay < 0 ? config->training.weight_decay : own->weight_decay,
        .learning_rate_scale = own->learning_rate > 0 ? own->learning_rate / peak : 1.0,
    };
    return hs_optimizer_kind_find(inherits ? config->optimizer.kind : own->kind, &group->kind);
}

/* chosen[param_count]: room for marks. */
static HsStatus join(HsTraining *training, int index, bool *chosen)
{
    const HsGroupConfig *own = &training->config->groups[index];
    HsOptimizerGroup *group = &training->groups[index];
    char key[64];
    snprintf(key, sizeof key, "optimizer.groups.%d.match", index);
    memset(chosen, 0, (size_t)training->model.param_count * sizeof *chosen);
    HS_TRY(hs_params_select(&training->model, key, &own->match, chosen));
    bool joined = false;
    for (int i = 0; i < training->exchange.shards.whole_count; i++) {
        HsSpan *span = &training->exchange.shards.whole[i];
        if (!chosen[span->parameter] || span->group)
            continue;
        span->group = group;
        joined = true;
        if (strcmp(own->kind, "inherit") != 0 && hs_optimizer_kind_of(&training->optimizer.config, span) != group->kind)
            return hs_fail(HS_ECONFIG,
                           "optimizer.groups.%d: %s serves %s only, and %s is none: narrow match, or leave kind out",
                           index, own->kind, hs_optimizer_kind_serves(group->kind), span->name);
    }
    if (!joined)
        return hs_fail(HS_ECONFIG,
                       "%s: each of its parameters is frozen, or belongs to an earlier group: remove the group", key);
    return HS_OK;
}

/* Where the run's rule has nothing to do, AdamW has all of it, with AdamW's memory. */
static void warn_idle(const HsTraining *training)
{
    const HsOptimizerConfig *rules = &training->optimizer.config;
    const HsShards *shards = &training->exchange.shards;
    const char *mend = hs_optimizer_kind_mend(rules->kind);
    for (int i = 0; i < shards->whole_count; i++)
        if (!shards->whole[i].group && hs_optimizer_kind_of(rules, &shards->whole[i]) == rules->kind)
            return;
    if (mend)
        hs_warn("optimizer.kind: %s serves %s, and nothing that it is to train is one: AdamW updates all of that, with "
                "AdamW's memory. %c%s, or set optimizer.kind: adamw",
                hs_optimizer_kind_name(rules->kind), hs_optimizer_kind_serves(rules->kind), toupper(mend[0]), mend + 1);
}

HsStatus hs_training_join_groups(HsTraining *training)
{
    const HsConfig *config = training->config;
    bool *chosen = calloc((size_t)training->model.param_count, sizeof *chosen);
    HsStatus status =
        chosen ? HS_OK : hs_fail(HS_ENOMEM, "no memory to mark %d parameters", training->model.param_count);
    for (int i = 0; i < config->group_count && status == HS_OK; i++) {
        status = fill_group(config, i, &training->groups[i]);
        if (status == HS_OK)
            status = join(training, i, chosen);
    }
    free(chosen);
    if (status == HS_OK)
        warn_idle(training);
    return status;
}

/* Of the spans with this group (NULL: of none) and this rule. */
static void describe_share(const HsTraining *training, const HsOptimizerGroup *group, HsOptimizerKind kind,
                           HsTextLine line, void *user)
{
    const HsConfig *config = training->config;
    int64_t elements = 0;
    int tensors = 0;
    for (int i = 0; i < training->exchange.shards.whole_count; i++) {
        const HsSpan *span = &training->exchange.shards.whole[i];
        const bool counts = span->group == group && hs_optimizer_kind_of(&training->optimizer.config, span) == kind;
        elements += counts ? span->count : 0;
        tensors += counts;
    }
    if (tensors == 0)
        return;
    char text[256], name[32] = "all others";
    if (group)
        snprintf(name, sizeof name, "group %d", (int)(group - training->groups));
    else if (config->group_count == 0)
        snprintf(name, sizeof name, "optimizer");
    snprintf(text, sizeof text, "%s: %s, %.3f million parameters in %d tensors, peak learning rate %g, weight decay %g",
             name, hs_optimizer_kind_name(kind), 1e-6 * (double)elements, tensors,
             config->training.learning_rate * (group ? group->learning_rate_scale : 1.0),
             group ? group->weight_decay : config->training.weight_decay);
    line(user, text);
}

void hs_training_describe_rules(const HsTraining *training, HsTextLine line, void *user)
{
    const HsConfig *config = training->config;
    const int64_t all = hs_model_parameter_count(&training->model),
                  trained = hs_model_trainable_count(&training->model);
    if (trained < all) {
        char text[128];
        const bool adapted = hs_adapter_wanted(config), frozen = config->train.freeze.count > 0;
        snprintf(text, sizeof text, "parameters: %" PRId64 " trainable, %" PRId64 " frozen (%s%s%s)", trained,
                 all - trained, adapted ? "adapter" : "", adapted && frozen ? ", " : "", frozen ? "train.freeze" : "");
        line(user, text);
    }
    if (config->group_count == 0 && hs_optimizer_kind_serves(training->optimizer.config.kind) == NULL)
        return;
    for (int g = 0; g <= config->group_count; g++)
        for (int kind = 0; kind < HS_OPTIMIZER_KINDS; kind++)
            describe_share(training, g < config->group_count ? &training->groups[g] : NULL, (HsOptimizerKind)kind, line,
                           user);
}
