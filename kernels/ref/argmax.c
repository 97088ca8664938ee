/* SPDX-License-Identifier: MIT
 *
 * The index of each row's largest logit, from left to right: a later one must be larger, so that the lowest index wins.
 */
#include "kernels/ref/ref.h"

HsStatus hs_ref_argmax(HsContext *context, const HsArgmaxArgs *args)
{
    (void)context;
    const int64_t vocabulary = args->logits.shape[1];
    int32_t *index = args->index.data;
    for (int64_t n = 0; n < args->logits.shape[0]; n++) {
        double largest = -INFINITY;
        index[n] = 0;
        for (int64_t v = 0; v < args->count; v++) {
            const double logit = hs_ref_load(&args->logits, n * vocabulary + v);
            if (logit > largest) { /* NaN is never larger */
                largest = logit;
                index[n] = (int32_t)v;
            }
        }
    }
    return HS_OK;
}
