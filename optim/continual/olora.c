/* SPDX-License-Identifier: MIT
 *
 * O-LoRA (Wang et al. 2023, "Orthogonal Subspace Learning for Language Model Continual Learning", eq. 7 and 8): each
 * later task has its own adapter, and its A is kept orthogonal to those of the tasks before, so that the task moves
 * the model in directions that they did not use:
 *
 *     L = L_task + lambda sum over matrices and earlier tasks i  |A A_i^T|^2       (squares of all elements)
 *     dL/dA = dL_task/dA + 2 lambda sum_i (A A_i^T) A_i
 *
 * A [r, in] has a row a direction.  The sum is made before each update and handed to it as the span's pull.  Where the
 * adapters of several matrices are stacked, each is compared with its own predecessors.
 */
#include <stdio.h>
#include <stdlib.h>

#include "optim/continual/internal.h"

typedef struct OloraState {
    float lambda;
    int most;          /* earlier tasks that there can be */
    int64_t count;     /* those that there are */
    HsTensorSet *kept; /* [most], A as each task left it */
    HsTensorSet pulls, now;
    void *product; /* f32 [r, r] of one matrix */
    size_t product_bytes;
} OloraState;

static bool is_first_factor(const HsSpan *span)
{
    return span->adapts;
}

static int parts_of(const HsSpan *span)
{
    return span->part_count > 1 ? span->part_count : 1;
}

static int64_t rows_of(const HsSpan *span)
{
    return span->weight.shape[0] / parts_of(span);
}

static size_t product_bytes(const HsSpan *spans, int count)
{
    int64_t most = 0;
    for (int i = 0; i < count; i++)
        if (is_first_factor(&spans[i]) && rows_of(&spans[i]) > most)
            most = rows_of(&spans[i]);
    return (size_t)(most * most) * sizeof(float);
}

static int earlier_tasks(const HsContinualConfig *config)
{
    return config->tasks > 1 ? config->tasks - 1 : 0;
}

static size_t olora_bytes(const HsContinualConfig *config, const HsSpan *spans, int count)
{
    size_t bytes = 0;
    for (int i = 0; i < count; i++)
        bytes += is_first_factor(&spans[i]) ? hs_tensor_set_span_bytes(&spans[i]) : 0;
    return bytes * (size_t)(earlier_tasks(config) + 2) + product_bytes(spans, count);
}

static HsStatus olora_create(HsContinual *continual, void *state)
{
    OloraState *olora = state;
    olora->lambda = (float)hs_continual_number(&continual->config, "olora", "lambda");
    olora->most = earlier_tasks(&continual->config);
    olora->kept = calloc((size_t)olora->most + 1, sizeof *olora->kept);
    if (!olora->kept)
        return hs_fail(HS_ENOMEM, "o-lora: no memory for the list of %d tasks", olora->most);
    for (int task = 0; task < olora->most; task++)
        HS_TRY(hs_tensor_set_create_for(continual, HS_MEMORY_REFERENCE, "o-lora", is_first_factor, &olora->kept[task]));
    HS_TRY(hs_tensor_set_create_for(continual, HS_MEMORY_REFERENCE, "o-lora", is_first_factor, &olora->pulls));
    HS_TRY(hs_tensor_set_create_for(continual, HS_MEMORY_REFERENCE, "o-lora", is_first_factor, &olora->now));
    olora->product_bytes = product_bytes(continual->spans, continual->span_count);
    return hs_memory_alloc(continual->device, HS_MEMORY_REFERENCE, olora->product_bytes, &olora->product);
}

static void olora_destroy(HsContinual *continual, void *state)
{
    OloraState *olora = state;
    for (int task = 0; olora->kept && task < olora->most; task++)
        hs_tensor_set_destroy(continual, &olora->kept[task]);
    hs_tensor_set_destroy(continual, &olora->pulls);
    hs_tensor_set_destroy(continual, &olora->now);
    hs_memory_release(continual->device, HS_MEMORY_REFERENCE, olora->product_bytes, olora->product);
    free(olora->kept);
}

/* Part `part` of a stacked tensor. */
static HsTensor part_rows(HsTensor tensor, int64_t rows, int part)
{
    if (tensor.data)
        tensor.data = (float *)tensor.data + part * rows * tensor.shape[1];
    tensor.shape[0] = rows;
    return tensor;
}

/* P = A K^T of one part, and pull = P K, or pull += where others came before. */
static HsStatus add_pull(HsContext *context, HsTensor now, HsTensor kept, HsTensor product, HsTensor pull, bool add)
{
    const HsMatmulArgs overlap = { .a.values = now, .b.values = kept, .transpose_b = true, .alpha = 1, .c = product };
    const HsMatmulArgs back = { .a.values = product, .b.values = kept, .alpha = 1, .accumulate = add, .c = pull };
    HS_TRY(hs_op_matmul(context, &overlap));
    return hs_op_matmul(context, &back);
}

static HsStatus for_each_part(HsContinual *continual, OloraState *olora, HsContext *context, int64_t count,
                              double *squares)
{
    HsDevice *device = continual->device;
    for (int i = 0; i < continual->span_count; i++) {
        const HsSpan *span = &continual->spans[i];
        if (!is_first_factor(span))
            continue;
        const HsConvertArgs read = { .x = hs_span_parameter(span), .y = olora->now.tensors[i] };
        const int64_t rows = rows_of(span);
        HS_TRY(hs_op_convert(context, &read));
        for (int part = 0; part < parts_of(span); part++) {
            const HsTensor product = hs_tensor_2d(olora->product, HS_F32, rows, rows);
            const HsTensor now = part_rows(read.y, rows, part), pull = part_rows(olora->pulls.tensors[i], rows, part);
            for (int64_t task = 0; task < count; task++) {
                HS_TRY(add_pull(context, now, part_rows(olora->kept[task].tensors[i], rows, part), product, pull,
                                task > 0));
                if (!squares)
                    continue;
                const HsDotArgs dot = { .x = &product, .y = &product, .count = 1, .values = continual->device_values };
                HS_TRY(hs_op_dot(context, &dot));
                HS_TRY(device->copy(device, context->stream, continual->host_values, continual->device_values,
                                    sizeof(double)));
                HS_TRY(device->stream_sync(device, context->stream));
                *squares += continual->host_values[0];
            }
        }
    }
    return HS_OK;
}

static HsStatus olora_dry_run(HsContinual *continual, void *state, HsContext *dry)
{
    OloraState *olora = state;
    return for_each_part(continual, olora, dry, olora->most < 2 ? olora->most : 2, NULL);
}

static void protect(HsContinual *continual, const OloraState *olora)
{
    for (int i = 0; i < continual->span_count; i++) {
        HsSpan *span = &continual->spans[i];
        span->protection = (HsProtection){ 0 };
        if (olora->count > 0 && is_first_factor(span))
            span->protection = (HsProtection){ .pull = olora->pulls.tensors[i], .strength = 2.0f * olora->lambda };
    }
}

/* What the task before has left is what later ones keep away from; the training loop draws a new A after it.  An
 * adapter of a task that is not to be retained is dropped there: its directions are free again. */
static HsStatus olora_begin_task(HsContinual *continual, void *state, HsContext *context, int task)
{
    OloraState *olora = state;
    if (task == 0 || !hs_continual_retains(&continual->config, task - 1))
        return HS_OK;
    HS_TRY(hs_tensor_set_copy_parameters(continual, context, &olora->kept[olora->count++]));
    protect(continual, olora);
    return HS_OK;
}

static HsStatus olora_before_update(HsContinual *continual, void *state, HsContext *context)
{
    OloraState *olora = state;
    return for_each_part(continual, olora, context, olora->count, NULL);
}

static bool olora_acts(const void *state)
{
    const OloraState *olora = state;
    return olora->count > 0;
}

static HsStatus olora_penalty(HsContinual *continual, void *state, HsContext *context, double *value)
{
    OloraState *olora = state;
    double squares = 0;
    HS_TRY(for_each_part(continual, olora, context, olora->count, &squares));
    *value = (double)olora->lambda * squares;
    return HS_OK;
}

static HsStatus olora_visit(HsContinual *continual, void *state, const HsStateVisitor *visitor)
{
    OloraState *olora = state;
    HS_TRY(visitor->integer(visitor->user, "olora.tasks", &olora->count, olora->most));
    for (int64_t task = 0; task < olora->count; task++) {
        char name[32];
        snprintf(name, sizeof name, "olora.a%d", (int)task);
        HS_TRY(hs_tensor_set_visit(continual, &olora->kept[task], name, visitor));
    }
    protect(continual, olora);
    return HS_OK;
}

static bool works_on_matrices(const HsContinualConfig *config)
{
    (void)config;
    return true;
}

const HsStrategy hs_strategy_olora = {
    .name = "o-lora",
    .doc = "a new adapter for each task, kept orthogonal to those of the tasks before, which are merged into the model "
           "(Wang et al. 2023, eq. 7 and 8)",
    .role = HS_ROLE_PENALIZES,
    .whole_matrices = works_on_matrices,
    .section = "olora",
    .new_adapters = true,
    .needs_boundaries = "gives each task its own adapter",
    .strength_key = "olora.lambda",
    .further_bytes = olora_bytes,
    .state_bytes = sizeof(OloraState),
    .create = olora_create,
    .destroy = olora_destroy,
    .dry_run = olora_dry_run,
    .begin_task = olora_begin_task,
    .before_update = olora_before_update,
    .visit = olora_visit,
    .anchored = olora_acts,
    .penalty = olora_penalty,
};
