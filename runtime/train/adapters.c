/* SPDX-License-Identifier: MIT
 *
 * Between two tasks of a strategy that gives each its own adapter: W += s B A, rounded once to the weight's format;
 * then A is drawn anew and B is zero, so the model is the same function but for that rounding.
 *
 * An adapter of a task that is not to be retained is dropped instead: the matrices are what they were before the task.
 */
#include "kernels/base/log.h"
#include "runtime/model/layers/adapter.h"
#include "runtime/train/run.h"

enum { ALIGNMENT = 256 };

/* | B along the diagonal, where it is of several parts | the product's own |: in the context's workspace */
static HsStatus merge_node(HsModel *model, const HsNode *node, HsContext *context)
{
    const HsAdapterShape *shape = &node->attributes.adapter;
    HsParam *w = &model->params[node->params[0]];
    const HsTensor a = model->params[node->params[2]].stored.values, b = model->params[node->params[3]].stored.values;
    HsMatmulArgs product = {
        .a.values = b, .b.values = a, .alpha = shape->scale, .accumulate = true, .c = w->stored.values
    };
    HsContext inner = *context;
    size_t ahead = 0;
    if (shape->spread) {
        product.a.values = hs_tensor_2d(context->workspace, b.dtype, shape->outputs, shape->blocks * shape->rank);
        ahead = (hs_tensor_bytes(&product.a.values) + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
        HS_TRY(hs_adapter_spread(context, shape, b, product.a.values));
    }
    if (!context->dry_run) {
        inner.workspace = (unsigned char *)context->workspace + ahead;
        inner.workspace_bytes = context->workspace_bytes - ahead;
    }
    inner.workspace_needed = 0;
    HS_TRY(hs_op_matmul(&inner, &product));
    if (context->dry_run && ahead + inner.workspace_needed > context->workspace_needed)
        context->workspace_needed = ahead + inner.workspace_needed;
    return HS_OK;
}

static HsStatus merge(HsTraining *training, HsContext *context)
{
    HsModel *model = &training->model;
    for (int n = 0; n < model->node_count; n++)
        if (model->nodes[n].attributes.adapter.rank > 0)
            HS_TRY(merge_node(model, &model->nodes[n], context));
    return HS_OK;
}

HsStatus hs_training_dry_renew(HsTraining *training, HsContext *dry)
{
    return hs_continual_new_adapters(&training->continual_config) ? merge(training, dry) : HS_OK;
}

HsStatus hs_training_renew_adapters(HsTraining *training, int task)
{
    HsContext *context = &training->engine.context;
    if (task == 0 || !hs_continual_new_adapters(&training->continual_config))
        return HS_OK;
    const uint64_t seed = (uint64_t)training->config->training.seed + 0x9e3779b97f4a7c15u * (uint64_t)task;
    if (hs_continual_retains(&training->continual_config, task - 1))
        HS_TRY(merge(training, context));
    else
        hs_info("task %s is not to be retained: its adapter is dropped", training->config->tasks[task - 1].name);
    HS_TRY(hs_model_initialize_adapters(&training->model, context, seed, training->spans, training->span_count));
    return hs_model_pack(&training->model, context);
}
