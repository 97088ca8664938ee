/* SPDX-License-Identifier: MIT
 *
 * Adapters are added to a finished table: the families know nothing of them.
 */
#include "runtime/model/adapter.h"

#include <fnmatch.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

bool hs_adapter_wanted(const HsConfig *config)
{
    return !hs_is(config->adapter.kind, "none");
}

void hs_adapter_module(const char *parameter, char *module, size_t size)
{
    const char *const ending = strrchr(parameter, '.');
    const int length = ending && strcmp(ending, ".weight") == 0 ? (int)(ending - parameter) : (int)strlen(parameter);
    snprintf(module, size, "%.*s", length, parameter);
}

/* PEFT's rule for lists: the whole name, or its end after a dot.  In addition: words, and globs of the whole name. */
static bool is_target(const HsNode *node, const char *module, const char *target)
{
    if (strcmp(target, "all-linear") == 0)
        return true;
    if (strcmp(target, "attention") == 0 || strcmp(target, "mlp") == 0) {
        const char *const place = strstr(node->name, target);
        return place && place[strlen(target)] == '.';
    }
    const size_t length = strlen(module), tail = strlen(target);
    const bool ends = length > tail && module[length - tail - 1] == '.' && strcmp(module + length - tail, target) == 0;
    return ends || fnmatch(target, module, 0) == 0;
}

/* Which parts of the matrix are adapted; used[t]: target t has named something. */
static void choose_parts(const HsNode *node, const HsParam *weight, const HsStringList *targets, bool *used,
                         HsAdapterShape *shape, int parts[HS_PARAM_MOST_PARTS])
{
    int64_t first = 0;
    for (int part = 0; part < hs_param_stored_parts(weight); part++) {
        char module[sizeof weight->name];
        bool chosen = false;
        hs_adapter_module(hs_param_stored_name(weight, part), module, sizeof module);
        for (int t = 0; t < targets->count; t++) {
            const bool named = is_target(node, module, targets->items[t]);
            used[t] = used[t] || named;
            chosen = chosen || named;
        }
        const int64_t rows = hs_param_stored_rows(weight, part);
        if (chosen) {
            parts[shape->blocks] = part;
            shape->first_row[shape->blocks] = first;
            shape->rows[shape->blocks++] = rows;
        }
        first += rows;
    }
}

/* One of the two factors, named after the matrix, its parts after the matrix's. */
static int add_factor(HsBuilder *builder, const HsParam *weight, const HsAdapterShape *shape, const int *parts,
                      bool second)
{
    char module[sizeof weight->name], suffix[HS_PARAM_MOST_PARTS][sizeof weight->name], name[sizeof weight->name + 16];
    HsPart stacked[HS_PARAM_MOST_PARTS];
    int64_t rows = 0;
    for (int i = 0; i < shape->blocks; i++) {
        hs_adapter_module(hs_param_stored_name(weight, parts[i]), module, sizeof module);
        snprintf(suffix[i], sizeof suffix[i], "%.48s.lora_%c.weight", module, second ? 'B' : 'A');
        stacked[i] = (HsPart){ suffix[i], second ? shape->rows[i] : shape->rank };
        rows += stacked[i].rows;
    }
    hs_adapter_module(weight->name, module, sizeof module);
    snprintf(name, sizeof name, "%.48s.lora_%c.weight", module, second ? 'B' : 'A');
    const int param = hs_builder_table(builder, "", name, HS_PARAM_ADAPTER, second ? HS_START_ZERO : HS_START_UNIFORM,
                                       rows, second ? shape->rank : shape->inputs);
    if (hs_param_stored_parts(weight) > 1)
        hs_builder_stack(builder, param, "", shape->blocks, stacked);
    return param;
}

static void adapt(HsBuilder *builder, int node_index, const HsStringList *targets, bool *used)
{
    HsModel *model = builder->model;
    HsNode *node = &model->nodes[node_index];
    const HsParam weight = model->params[node->params[0]]; /* a copy: the table grows */
    const double rank = (double)builder->config->adapter.rank, alpha = builder->config->adapter.alpha;
    int parts[HS_PARAM_MOST_PARTS];
    HsAdapterShape shape = {
        .rank = builder->config->adapter.rank,
        .inputs = weight.shape[1],
        .outputs = weight.shape[0],
        .scale = (float)(alpha / (builder->config->adapter.rank_stabilized ? sqrt(rank) : rank)),
        .dropout = (float)builder->config->adapter.dropout,
        .sum = model->precision.statistic,
    };
    choose_parts(node, &weight, targets, used, &shape, parts);
    if (shape.blocks == 0)
        return;
    shape.spread = shape.blocks > 1 || shape.rows[0] != shape.outputs;
    const int first = add_factor(builder, &weight, &shape, parts, false);
    const int second = add_factor(builder, &weight, &shape, parts, true);
    if (builder->status != HS_OK)
        return;
    model->params[second].spread = shape.spread;
    node->params[2] = first;
    node->params[3] = second;
    node->attributes.adapter = shape;
    hs_builder_saved(builder, node_index, ".lora", shape.blocks * shape.rank);
}

/* "q_proj, k_proj, ..." of the first block. */
static void list_modules(const HsModel *model, char *text, size_t size)
{
    size_t length = 0;
    for (int n = 0; n < model->node_count; n++) {
        if (model->nodes[n].layer != &hs_layer_linear || model->nodes[n].block > 0)
            continue;
        const HsParam *weight = &model->params[model->nodes[n].params[0]];
        for (int part = 0; part < hs_param_stored_parts(weight); part++) {
            char module[sizeof weight->name];
            hs_adapter_module(hs_param_stored_name(weight, part), module, sizeof module);
            const char *const last = strrchr(module, '.') + 1;
            if (strstr(text, last))
                continue;
            const int written = snprintf(text + length, size - length, "%s%s", length ? ", " : "", last);
            length += written > 0 && (size_t)written < size - length ? (size_t)written : 0;
        }
    }
}

HsStatus hs_model_add_adapters(HsBuilder *builder)
{
    enum { MOST_TARGETS = 256 };
    const HsStringList *targets = &builder->config->adapter.targets;
    bool used[MOST_TARGETS] = { false };
    if (targets->count > MOST_TARGETS)
        return hs_fail(HS_ECONFIG, "adapter.targets: %d names, at most %d: use a pattern", targets->count,
                       MOST_TARGETS);
    for (int n = 0; n < builder->model->node_count; n++)
        if (builder->model->nodes[n].layer == &hs_layer_linear)
            adapt(builder, n, targets, used);
    HS_TRY(builder->status);
    for (int t = 0; t < targets->count; t++) {
        char modules[256] = "";
        if (used[t])
            continue;
        list_modules(builder->model, modules, sizeof modules);
        return hs_fail(HS_ECONFIG,
                       "adapter.targets: `%.80s` names no matrix of this model. It takes attention, mlp, all-linear, "
                       "names (%s), or patterns of whole names such as *.3.mlp.*",
                       targets->items[t], modules);
    }
    return HS_OK;
}
