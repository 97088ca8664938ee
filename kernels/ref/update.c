/* SPDX-License-Identifier: MIT
 *
 * Gradient statistics and the update rules.  Both rules unscale, update, refresh the weight from its master and clear
 * the gradient in one pass; a skipped step only clears the gradient.
 */
#include "kernels/ref/ref.h"

/* sum_squares = sum g^2 over finite g; nonfinite = how many are not. */
HsStatus hs_ref_grad_stats(HsContext *context, const HsGradStatsArgs *args)
{
    (void)context;
    for (int t = 0; t < args->count; t++) {
        double sum = 0.0;
        int64_t nonfinite = 0;
        for (int64_t i = 0; i < hs_tensor_count(&args->tensors[t]); i++) {
            const double g = hs_ref_load(&args->tensors[t], i);
            if (isfinite(g))
                sum += g * g;
            else
                nonfinite++;
        }
        args->sum_squares[t] = sum;
        args->nonfinite[t] = nonfinite;
    }
    return HS_OK;
}

static double load_parameter(const HsTensor *master, const HsTensor *weight, int64_t index)
{
    return hs_ref_load(hs_tensor_present(master) ? master : weight, index);
}

/* The weight is the rounded master, not the rounded p: reloading the master gives the same weight, bit for bit. */
static void store_parameter(const HsTensor *master, const HsTensor *weight, const HsRng *rng, int64_t index, double p)
{
    if (hs_tensor_present(master))
        hs_ref_store(weight, index, hs_ref_store_rounded(master, index, p));
    else if (weight->dtype == HS_BF16)
        ((uint16_t *)weight->data)[index] =
            hs_bf16_encode_stochastic((float)p, hs_ref_random_bits(rng, (uint64_t)index));
    else
        hs_ref_store(weight, index, p);
}

/* AdamW (Loshchilov & Hutter 2019, algorithm 2):
 *     p -= lr wd p;  m = b1 m + (1-b1) g;  v = b2 v + (1-b2) g^2;  p -= lr (m/bc1) / (sqrt(v/bc2) + eps) */
HsStatus hs_ref_adamw(HsContext *context, const HsAdamWArgs *args)
{
    (void)context;
    const HsStepScalars *scalars = args->scalars;
    const double rate = (double)scalars->learning_rate * (double)args->learning_rate_scale;
    const double beta1 = (double)args->beta1, beta2 = (double)args->beta2;
    for (int64_t i = 0; i < hs_tensor_count(&args->weight); i++) {
        const double g = hs_ref_load(&args->grad, i) * (double)scalars->gradient_multiplier;
        hs_ref_store(&args->grad, i, 0.0);
        if (scalars->skip)
            continue;
        double p = load_parameter(&args->master, &args->weight, i);
        p -= rate * (double)args->weight_decay * p;
        const double m = beta1 * hs_ref_load(&args->m, i) + (1.0 - beta1) * g;
        const double v = beta2 * hs_ref_load(&args->v, i) + (1.0 - beta2) * g * g;
        hs_ref_store(&args->m, i, m);
        hs_ref_store(&args->v, i, v);
        p -= rate * (m / (double)scalars->bias_correction1) /
             (sqrt(v / (double)scalars->bias_correction2) + (double)args->epsilon);
        store_parameter(&args->master, &args->weight, &args->rng, i, p);
    }
    return HS_OK;
}

/* Stochastic gradient descent with momentum (Sutskever et al. 2013), decay inside the gradient:
 *     d = g + wd p;  buffer = momentum buffer + d;  p -= lr buffer   (nesterov: p -= lr (d + momentum buffer)) */
HsStatus hs_ref_sgd(HsContext *context, const HsSgdArgs *args)
{
    (void)context;
    const HsStepScalars *scalars = args->scalars;
    const double rate = (double)scalars->learning_rate * (double)args->learning_rate_scale;
    const double momentum = (double)args->momentum;
    for (int64_t i = 0; i < hs_tensor_count(&args->weight); i++) {
        const double g = hs_ref_load(&args->grad, i) * (double)scalars->gradient_multiplier;
        hs_ref_store(&args->grad, i, 0.0);
        if (scalars->skip)
            continue;
        const double p = load_parameter(&args->master, &args->weight, i);
        const double descent = g + (double)args->weight_decay * p;
        double direction = descent;
        if (hs_tensor_present(&args->buffer)) {
            const double buffer = momentum * hs_ref_load(&args->buffer, i) + descent;
            hs_ref_store(&args->buffer, i, buffer);
            direction = args->nesterov ? descent + momentum * buffer : buffer;
        }
        store_parameter(&args->master, &args->weight, &args->rng, i, p - rate * direction);
    }
    return HS_OK;
}
