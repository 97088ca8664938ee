/* SPDX-License-Identifier: MIT
 *
 * Softmax cross-entropy with its gradient.  For a row of logits l, target t and lse = log sum_v exp(l_v):
 *     loss = lse - l_t                                      reported
 *     L    = loss + z lse^2                                 differentiated (PaLM's z-loss keeps lse near 0)
 *     dL/dl_v = (1 + 2 z lse) p_v - [v = t],  p_v = exp(l_v - lse);   dlogits = gs dL/dl
 * With a cap c, what is stored is x, l = c tanh(x / c), and dlogits = gs dL/dl (1 - (l / c)^2).
 */
#include "kernels/ref/ref.h"

static double logit_at(const HsCrossEntropyArgs *args, int64_t index)
{
    return hs_ref_cap_logit(hs_ref_load(&args->logits, index), args->cap);
}

static double log_sum_exp(const HsCrossEntropyArgs *args, int64_t offset, int64_t count)
{
    double maximum = -INFINITY, total = 0.0;
    for (int64_t v = 0; v < count; v++)
        maximum = fmax(maximum, logit_at(args, offset + v));
    for (int64_t v = 0; v < count; v++)
        total += exp(logit_at(args, offset + v) - maximum);
    return maximum + log(total);
}

HsStatus hs_ref_cross_entropy(HsContext *context, const HsCrossEntropyArgs *args)
{
    (void)context;
    const int64_t vocabulary = args->logits.shape[1];
    const int32_t *targets = args->targets.data;
    const bool wants_gradient = hs_tensor_present(&args->dlogits);
    const double gradient_scale = wants_gradient ? (double)*args->gradient_scale : 0.0;
    for (int64_t n = 0; n < args->logits.shape[0]; n++) {
        const int64_t row = n * vocabulary;
        const bool ignored = targets[n] < 0;
        const double lse = log_sum_exp(args, row, vocabulary);
        hs_ref_store(&args->losses, n, ignored ? 0.0 : lse - logit_at(args, row + targets[n]));
        const double pull = 1.0 + 2.0 * (double)args->z_loss * lse;
        for (int64_t v = 0; wants_gradient && v < vocabulary; v++) {
            const double x = hs_ref_load(&args->logits, row + v), p = exp(hs_ref_cap_logit(x, args->cap) - lse);
            const double gradient = gradient_scale * (pull * p - (v == targets[n] ? 1.0 : 0.0));
            hs_ref_store(&args->dlogits, row + v, ignored ? 0.0 : gradient * hs_ref_cap_slope(x, args->cap));
        }
    }
    return HS_OK;
}
