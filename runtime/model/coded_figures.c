/* SPDX-License-Identifier: MIT */
#include "runtime/model/coded_figures.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/base/scaled_formats.h"
#include "kernels/ops/code_rule.h"

const char *hs_scaling_role_name(int role)
{
    static const char *const names[HS_SCALING_ROLES] = {
        [HS_SCALING_X] = "x",
        [HS_SCALING_WEIGHT] = "weight",
        [HS_SCALING_DY] = "dy",
        [HS_SCALING_X_TURNED] = "x rotated",
        [HS_SCALING_DY_TURNED] = "dy rotated",
    };
    return names[role];
}

/* Sums of a role; shares are made of them when all layers are in. */
typedef struct Sums {
    uint64_t elements, saturated, zeroed;
} Sums;

static double share(uint64_t part, uint64_t whole)
{
    return whole > 0 ? (double)part / (double)whole : 0;
}

/* What the largest magnitude of the step was multiplied by: the kept scale, or the one that follows from it. */
static float scale_of(const HsScalingRecipe *recipe, const HsScaling *found)
{
    if (recipe->delayed && found->recorded > 0)
        return found->scale;
    if (recipe->forward.granularity == HS_SCALE_NV)
        return 1.0f / hs_code_nv_inverse(hs_code_bits(found->amax));
    return hs_tensor_scale(found->amax, found->largest, recipe->power_of_two);
}

static void add_layer(const HsScalingRecipe *recipe, const HsNode *node, const HsScaling *found,
                      HsScalingFigures *figures, Sums *sums)
{
    if (found->elements == 0)
        return;
    const double lost = share(found->saturated + found->zeroed, found->elements);
    sums->elements += found->elements;
    sums->saturated += found->saturated;
    sums->zeroed += found->zeroed;
    /* Not fmax, which drops a NaN. */
    if (!isfinite(found->amax))
        figures->amax = NAN;
    else if (found->amax > figures->amax)
        figures->amax = (double)found->amax;
    figures->lowest = fmin(figures->lowest, (double)scale_of(recipe, found));
    figures->highest = fmax(figures->highest, (double)scale_of(recipe, found));
    if (lost > figures->layer_lost) {
        figures->layer_lost = lost;
        snprintf(figures->layer, sizeof figures->layer, "%s", node->name);
    }
}

static void add_layers(const HsModel *model, const HsScaling *all, int role, HsScalingFigures *figures, Sums *sums)
{
    for (int n = 0; n < model->node_count; n++) {
        const HsNode *const node = &model->nodes[n];
        if (hs_node_coded(node))
            add_layer(&model->precision.scaling, node, &all[node->attributes.scaling + role], figures, sums);
    }
}

static void find_figures(const HsModel *model, const HsScaling *all, HsScalingFigures figures[HS_SCALING_ROLES],
                         int *count)
{
    const bool of_tensors = hs_scale_is_of_tensor(model->precision.scaling.forward.granularity);
    for (int role = 0; role < model->scalings.per_node; role++) {
        HsScalingFigures found = { .role = hs_scaling_role_name(role), .lowest = INFINITY, .highest = 0 };
        Sums sums = { 0 };
        add_layers(model, all, role, &found, &sums);
        if (sums.elements == 0)
            continue;
        found.saturated = share(sums.saturated, sums.elements);
        found.zeroed = share(sums.zeroed, sums.elements);
        if (!of_tensors)
            found.lowest = found.highest = NAN;
        figures[(*count)++] = found;
    }
}

/* Each process has counted its own part of the batch.  Bits of magnitudes are in the order of what they stand for. */
static HsStatus add_processes(HsComm *comm, HsContext *context, HsScaling *all, int count)
{
    enum { MEMBERS = 4 };
    int64_t *const members = malloc(MEMBERS * (size_t)count * sizeof *members), *const most = members;
    if (comm->size == 1 || !members) {
        free(members);
        return comm->size == 1 ? HS_OK : hs_fail(HS_ENOMEM, "no memory for the figures of %d scales", count);
    }
    int64_t *const sums = most + count;
    for (int i = 0; i < count; i++) {
        most[i] = hs_code_bits(all[i].amax);
        sums[3 * i] = (int64_t)all[i].elements;
        sums[3 * i + 1] = (int64_t)all[i].saturated;
        sums[3 * i + 2] = (int64_t)all[i].zeroed;
    }
    HsStatus status = hs_comm_all_reduce(comm, context->stream, most, (size_t)count, HS_I64, HS_COMM_MAX);
    if (status == HS_OK)
        status = hs_comm_all_reduce(comm, context->stream, sums, 3 * (size_t)count, HS_I64, HS_COMM_SUM);
    for (int i = 0; i < count; i++) {
        all[i].amax = hs_code_float((uint32_t)most[i]);
        all[i].elements = (uint64_t)sums[3 * i];
        all[i].saturated = (uint64_t)sums[3 * i + 1];
        all[i].zeroed = (uint64_t)sums[3 * i + 2];
    }
    free(members);
    return status;
}

HsStatus hs_scaling_figures(const HsModel *model, HsContext *context, HsComm *comm,
                            HsScalingFigures figures[HS_SCALING_ROLES], int *count)
{
    const HsModelScalings *const scalings = &model->scalings;
    HsDevice *const device = context->device;
    *count = 0;
    if (scalings->count == 0 || !scalings->report)
        return HS_OK;
    const size_t bytes = (size_t)scalings->count * sizeof(HsScaling);
    HsScaling *const all = malloc(bytes);
    if (!all)
        return hs_fail(HS_ENOMEM, "no memory for the figures of %d scales", scalings->count);
    HsStatus status = device->copy(device, context->stream, all, scalings->report, bytes);
    if (status == HS_OK)
        status = device->stream_sync(device, context->stream);
    if (status == HS_OK)
        status = add_processes(comm, context, all, scalings->count);
    if (status == HS_OK)
        find_figures(model, all, figures, count);
    free(all);
    return status;
}
