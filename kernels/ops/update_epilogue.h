/* SPDX-License-Identifier: MIT
 *
 * HsUpdateEpilogue for backends that do not fuse it: the operations that it is made of, one after another.
 */
#ifndef HS_KERNELS_OPS_UPDATE_EPILOGUE_H
#define HS_KERNELS_OPS_UPDATE_EPILOGUE_H

#include <string.h>

#include "kernels/ops/backend.h"

static inline HsStatus hs_pack_apart(HsContext *context, const HsTensor *weight, bool transposed, HsPacked *packed)
{
    if (packed == NULL || packed->data == NULL)
        return HS_OK;
    HsPackWeightArgs args;
    args.w = *weight;
    args.transposed = transposed;
    args.packed = packed;
    return context->backend->pack_weight(context, &args);
}

static inline HsStatus hs_update_epilogue_apart(HsContext *context, const HsUpdateArgs *update)
{
    const HsUpdateEpilogue *const epilogue = &update->epilogue;
    const HsTensor *const master = &update->master, *const weight = &update->weight;
    const HsTensor *const parameter = hs_tensor_present(master) ? master : weight;
    for (int i = 0; i < epilogue->back_count; i++) {
        HsInterpolateArgs args;
        args.anchor = epilogue->back[i].anchor;
        args.master = *master;
        args.weight = *weight;
        args.rate = epilogue->back[i].rate;
        args.rng = epilogue->back[i].rng;
        HS_TRY(context->backend->interpolate(context, &args));
    }
    if (hs_tensor_present(&epilogue->average)) {
        HsAverageArgs args;
        args.rate = &update->scalars->average_rate;
        args.x = *parameter;
        args.average = epilogue->average;
        HS_TRY(context->backend->average(context, &args));
    }
    for (int i = 0; i < epilogue->snapshot_count; i++) {
        HsConvertArgs args;
        memset(&args, 0, sizeof args);
        args.x = *parameter;
        args.y = epilogue->snapshots[i];
        HS_TRY(context->backend->convert(context, &args)); /* exact: f32 holds every 16-bit value */
    }
    HS_TRY(hs_pack_apart(context, weight, true, epilogue->packed_transposed));
    return hs_pack_apart(context, weight, false, epilogue->packed);
}

#endif
