/* SPDX-License-Identifier: MIT
 *
 * Parts of parameters, and what an update rule is given of one.
 */
#include <assert.h>

#include "optim/rules.h"
#include "optim/update.h"

/* The part of a tensor with one element for `elements` of the span's. */
static void cut_tensor(HsTensor *tensor, int64_t elements, int64_t first, int64_t count)
{
    if (hs_tensor_present(tensor))
        *tensor =
            hs_tensor_1d((unsigned char *)tensor->data + (size_t)(first / elements) * hs_dtype_bytes(tensor->dtype),
                         tensor->dtype, (count + elements - 1) / elements);
}

HsSpan hs_span_cut(const HsSpan *whole, int64_t first, int64_t count)
{
    assert(first >= 0 && first % HS_SPAN_GRAIN == 0 && count > 0 && first + count <= whole->count);
    HsSpan part = *whole;
    HsTensor *const tensors[] = { &part.weight,
                                  &part.master,
                                  &part.gradient,
                                  &part.protection.importance,
                                  &part.protection.anchor,
                                  &part.protection.path,
                                  &part.protection.pull,
                                  &part.epilogue.back[0].anchor,
                                  &part.epilogue.back[1].anchor,
                                  &part.epilogue.average,
                                  &part.epilogue.snapshots[0],
                                  &part.epilogue.snapshots[1] };
    part.first = whole->first + first;
    part.count = count;
    part.part_of = whole->part_of > 0 ? whole->part_of : whole->count;
    part.part_of_table = whole->part_of_table || whole->uses & HS_SPAN_IS_LOOKED_UP;
    part.part_count = 0;
    part.uses = 0;
    for (size_t i = 0; i < sizeof tensors / sizeof tensors[0]; i++)
        cut_tensor(tensors[i], 1, first, count);
    for (int s = 0; s < HS_SPAN_STATES; s++) {
        const bool each = hs_tensor_count(&part.state[s]) == whole->count;
        cut_tensor(&part.state[s], each ? 1 : HS_DYNAMIC_BLOCK, first, count);
    }
    for (int i = 0; i < part.epilogue.back_count; i++)
        part.epilogue.back[i].rng.row_offset += first;
    part.epilogue.packed = part.epilogue.packed_transposed = NULL;
    return part;
}

static HsUpdateEpilogue epilogue_of(const HsOptimizer *optimizer, const HsSpan *span)
{
    HsUpdateEpilogue epilogue = span->epilogue;
    const HsTensor *average = hs_optimizer_average(&optimizer->config, span);
    if (average)
        epilogue.average = *average;
    return epilogue;
}

/* What surrounds the rule.  Biases, norm weights and other vectors are not decayed: the span says so. */
HsUpdateArgs hs_rule_update(const HsOptimizer *optimizer, const HsSpan *span)
{
    const HsOptimizerGroup *group = span->group;
    const double decay = group ? group->weight_decay : optimizer->config.weight_decay;
    return (HsUpdateArgs){
        .scalars = optimizer->scalars,
        .weight_decay = span->decay ? (float)decay : 0.0f,
        .learning_rate_scale = span->learning_rate_scale * (group ? (float)group->learning_rate_scale : 1.0f),
        .rng = { .seed = optimizer->config.seed,
                 .site = (uint32_t)span->parameter,
                 .row_offset = span->first,
                 .step_counter = &optimizer->state->update_step },
        .grad = span->gradient,
        .master = span->master,
        .weight = span->weight,
        .protection = span->protection,
        .epilogue = epilogue_of(optimizer, span),
    };
}
