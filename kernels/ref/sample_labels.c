/* SPDX-License-Identifier: MIT
 *
 * Labels drawn from softmax(logits) by inversion: with e_v = exp(l_v - max) and their running sum S_v, the label is the
 * smallest v with  S_v > uniform S_V.  Since uniform < 1 there is one, and since the comparison is strict a label of
 * probability 0 is never drawn.
 */
#include "kernels/ref/ref.h"

static double logit_at(const HsSampleLabelsArgs *args, int64_t index)
{
    return hs_ref_cap_logit(hs_ref_load(&args->logits, index), args->cap);
}

HsStatus hs_ref_sample_labels(HsContext *context, const HsSampleLabelsArgs *args)
{
    (void)context;
    const int64_t vocabulary = args->logits.shape[1];
    int32_t *targets = args->targets.data;
    const int32_t *rows = hs_tensor_present(&args->rows) ? args->rows.data : NULL;
    for (int64_t n = 0; n < args->logits.shape[0]; n++) {
        if (targets[n] < 0)
            continue;
        const HsPhilox draw = hs_rng_draw(&args->rng, (uint64_t)(args->rng.row_offset + (rows ? rows[n] : n)));
        double maximum = -INFINITY, total = 0.0, sum = 0.0;
        for (int64_t v = 0; v < vocabulary; v++)
            maximum = fmax(maximum, logit_at(args, n * vocabulary + v));
        for (int64_t v = 0; v < vocabulary; v++)
            total += exp(logit_at(args, n * vocabulary + v) - maximum);
        const double limit = (double)hs_rng_uniform(draw.word[0]) * total;
        /* A row with NaN compares false all along and gets the last label; its gradient will tell. */
        int64_t label = 0;
        for (; label < vocabulary - 1; label++) {
            sum += exp(logit_at(args, n * vocabulary + label) - maximum);
            if (sum > limit)
                break;
        }
        targets[n] = (int32_t)label;
    }
    return HS_OK;
}
