/* SPDX-License-Identifier: MIT
 *
 * Rules of what makes codes below 16 bits, and of their scales.
 */
#include <inttypes.h>
#include <math.h>

#include "kernels/checks/checks.h"

static HsStatus check_side(const HsQuantizeArgs *args, const char *name, const HsCodes *codes, int64_t rows,
                           int64_t depth)
{
    const bool four = codes->format == HS_E2M1, nv = codes->granularity == HS_SCALE_NV;
    if (!hs_codes_present(codes))
        return HS_OK;
    if (codes->rows != rows || codes->depth != depth)
        return hs_fail(HS_ESHAPE, "quantize: %s is [%" PRId64 ",%" PRId64 "], expected [%" PRId64 ",%" PRId64 "]", name,
                       codes->rows, codes->depth, rows, depth);
    if (codes->format == HS_TF32 || four != nv || codes->granularity == HS_SCALE_NONE)
        return hs_fail(HS_EINVAL,
                       "quantize: %s is %s with %s: e4m3 and e5m2 have a scale a tensor, a block or 32 "
                       "neighbours, e2m1 one for 16 neighbours",
                       name, hs_dtype_name(codes->format), hs_scale_names[codes->granularity]);
    if (args->source == HS_SCALE_KEPT && codes->granularity != HS_SCALE_TENSOR)
        return hs_fail(HS_EINVAL, "quantize: only a scale a tensor is kept from step to step");
    return HS_OK;
}

HsStatus hs_check_quantize(const HsQuantizeArgs *args)
{
    HS_TRY(hs_check_operands("quantize", &hs_operands.quantize, args));
    const HsCodes *along = &args->along, *across = &args->across;
    const int64_t rows = args->x.shape[0], columns = args->x.shape[1];
    if (!hs_codes_present(along) && !hs_codes_present(across))
        return hs_fail(HS_EINVAL, "quantize: neither along nor across is asked for");
    HS_TRY(check_side(args, "along", along, rows, columns));
    HS_TRY(check_side(args, "across", across, columns, rows));
    if (hs_codes_present(along) && hs_codes_present(across) &&
        (along->format != across->format || along->granularity != across->granularity))
        return hs_fail(HS_EINVAL, "quantize: along and across are of one format and granularity");
    if (args->rotates && (args->squares || across->granularity != HS_SCALE_NV))
        return hs_fail(HS_EINVAL, "quantize: what is rotated is across, with a scale for 16 neighbours in a row");
    return HS_OK;
}

HsStatus hs_check_roll_scales(const HsRollScalesArgs *args)
{
    HS_TRY(hs_check_operands("roll_scales", &hs_operands.roll_scales, args));
    if (hs_tensor_present(&args->history) && args->history.shape[0] != args->count)
        return hs_fail(HS_ESHAPE, "roll_scales: history is of %" PRId64 " scalings, there are %" PRId64,
                       args->history.shape[0], args->count);
    if (hs_tensor_present(&args->maxima) && args->maxima.shape[0] != args->count)
        return hs_fail(HS_ESHAPE, "roll_scales: maxima are of %" PRId64 " scalings, there are %" PRId64,
                       args->maxima.shape[0], args->count);
    if (args->gathers && !hs_tensor_present(&args->maxima))
        return hs_fail(HS_EINVAL, "roll_scales: what is gathered has no place: maxima are missing");
    if (!(args->margin >= 0.0f) || !isfinite(args->margin))
        return hs_fail(HS_EINVAL, "roll_scales: margin must be at least 0 (got %g)", (double)args->margin);
    return HS_OK;
}
