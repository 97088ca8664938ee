/* SPDX-License-Identifier: MIT
 *
 * Operations of continual learning on single elements, and sums over tensors: importance, anchors, interpolation.
 * Equations stand at each function; ops.h says what may alias what.
 */
#include "kernels/ref/ref.h"

HsStatus hs_ref_combine(HsContext *context, const HsCombineArgs *args)
{
    (void)context;
    for (int64_t i = 0; i < hs_tensor_count(&args->x); i++) {
        double value = (double)args->alpha * hs_ref_load(&args->x, i);
        if (args->beta != 0.0f) /* y may hold anything, NaN too */
            value += (double)args->beta * hs_ref_load(&args->y, i);
        hs_ref_store(&args->y, i, value);
    }
    return HS_OK;
}

HsStatus hs_ref_copy_columns(HsContext *context, const HsCopyColumnsArgs *args)
{
    (void)context;
    for (int64_t n = 0; n < args->x.shape[0]; n++) {
        const double scale = hs_tensor_present(&args->scale) ? hs_ref_load(&args->scale, n) : 1.0;
        for (int64_t c = 0; c < args->columns; c++) {
            const int64_t at = n * args->x.shape[1] + args->from + c;
            double value = hs_ref_load(&args->x, at);
            if (hs_tensor_present(&args->minus))
                value -= hs_ref_load(&args->minus, at);
            hs_ref_store(&args->y, n * args->y.shape[1] + args->to + c, scale * value);
        }
    }
    return HS_OK;
}

HsStatus hs_ref_dot(HsContext *context, const HsDotArgs *args)
{
    (void)context;
    for (int t = 0; t < args->count; t++) {
        double sum = 0.0;
        for (int64_t i = 0; i < hs_tensor_count(&args->x[t]); i++)
            sum += hs_ref_load(&args->x[t], i) * hs_ref_load(&args->y[t], i);
        args->values[t] = sum;
    }
    return HS_OK;
}

HsStatus hs_ref_square_accumulate(HsContext *context, const HsSquareAccumulateArgs *args)
{
    (void)context;
    for (int64_t i = 0; i < hs_tensor_count(&args->grad); i++) {
        const double g = (double)args->multiplier * hs_ref_load(&args->grad, i);
        hs_ref_store(&args->accumulator, i, hs_ref_load(&args->accumulator, i) + (double)args->weight * g * g);
        hs_ref_store(&args->grad, i, 0.0);
    }
    return HS_OK;
}

/* F/2 (x - a)^2 + N/2 (x - p)^2 = (F + N)/2 (x - a')^2 + 1/2 F N / (F + N) (a - p)^2,  a' = a + N / (F + N) (p - a):
 * complete the square.  Where F is 0 the anchor is p to the bit, also where N is 0 too: what was there meant nothing.
 */
static double merge_element(const HsConsolidateArgs *args, int64_t index, double fresh, double p)
{
    const double importance = hs_ref_load(&args->importance, index), sum = importance + fresh;
    const double anchor = hs_ref_load(&args->anchor, index), distance = p - anchor;
    hs_ref_store(&args->importance, index, sum);
    if (importance == 0.0) {
        hs_ref_store(&args->anchor, index, p);
        return 0.0;
    }
    hs_ref_store(&args->anchor, index, anchor + fresh / sum * distance);
    return importance * fresh / sum * distance * distance;
}

HsStatus hs_ref_consolidate(HsContext *context, const HsConsolidateArgs *args)
{
    (void)context;
    const bool shared = args->fresh.data == args->anchor.data;
    double offset = 0.0;
    for (int64_t i = 0; i < hs_tensor_count(&args->parameter); i++) {
        const double fresh = (double)args->scale * hs_ref_load(&args->fresh, i);
        const double p = hs_ref_load(&args->parameter, i);
        if (args->merge) {
            offset += merge_element(args, i, fresh, p);
        } else {
            hs_ref_store(&args->importance, i, (double)args->decay * hs_ref_load(&args->importance, i) + fresh);
            hs_ref_store(&args->anchor, i, p); /* over fresh, where they share their memory: it has been read */
        }
        if (!shared)
            hs_ref_store(&args->fresh, i, 0.0);
    }
    if (args->merge)
        *args->offset += offset;
    return HS_OK;
}

HsStatus hs_ref_consolidate_path(HsContext *context, const HsConsolidatePathArgs *args)
{
    (void)context;
    for (int64_t i = 0; i < hs_tensor_count(&args->parameter); i++) {
        const double p = hs_ref_load(&args->parameter, i), distance = p - hs_ref_load(&args->anchor, i);
        const double importance = hs_ref_load(&args->importance, i) +
                                  hs_ref_load(&args->path, i) / (distance * distance + (double)args->damping);
        hs_ref_store(&args->importance, i, 0.0 > importance ? 0.0 : importance); /* NaN stays to be seen */
        hs_ref_store(&args->anchor, i, p);
        hs_ref_store(&args->path, i, 0.0);
    }
    return HS_OK;
}

HsStatus hs_ref_importance_stats(HsContext *context, const HsImportanceStatsArgs *args)
{
    (void)context;
    for (int t = 0; t < args->count; t++) {
        double maximum = 0.0, sum = 0.0, sum_squares = 0.0;
        for (int64_t i = 0; i < hs_tensor_count(&args->tensors[t]); i++) {
            const double value = hs_ref_load(&args->tensors[t], i);
            maximum = fmax(maximum, value);
            sum += value;
            sum_squares += value * value;
        }
        args->maximum[t] = maximum;
        args->sum[t] = sum;
        args->sum_squares[t] = sum_squares;
    }
    return HS_OK;
}

HsStatus hs_ref_penalty(HsContext *context, const HsPenaltyArgs *args)
{
    (void)context;
    for (int t = 0; t < args->count; t++) {
        const bool weighted = hs_tensor_present(&args->importance[t]);
        double sum = 0.0;
        for (int64_t i = 0; hs_tensor_present(&args->anchor[t]) && i < hs_tensor_count(&args->anchor[t]); i++) {
            const double distance = hs_ref_load(&args->parameter[t], i) - hs_ref_load(&args->anchor[t], i);
            sum += (weighted ? hs_ref_load(&args->importance[t], i) : 1.0) * distance * distance;
        }
        args->values[t] = sum;
    }
    return HS_OK;
}

/* anchor + rate (p - anchor) is the anchor to the bit at rate 0; at rate 1 rounding could miss p, so p is kept. */
HsStatus hs_ref_interpolate(HsContext *context, const HsInterpolateArgs *args)
{
    (void)context;
    const double rate = (double)args->rate;
    for (int64_t i = 0; i < hs_tensor_count(&args->weight); i++) {
        const double p = hs_ref_load_parameter(&args->master, &args->weight, i);
        const double anchor = hs_ref_load(&args->anchor, i);
        const double value = rate == 1.0 ? p : anchor + rate * (p - anchor);
        hs_ref_store_parameter(&args->master, &args->weight, &args->rng, i, value);
    }
    return HS_OK;
}
