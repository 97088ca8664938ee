/* SPDX-License-Identifier: MIT
 *
 * What nanochat's block adds to a transformer's (Karpathy 2025, github.com/karpathy/nanochat): streams blended by
 * learned numbers, gates, the token before mixed in, values of tokens (Zhou et al. 2024, "Value Residual Learning").
 */
#include "kernels/ref/ref.h"

#include "kernels/checks/checks.h"

/* --- streams --- */

/* Element `at` of a vector; absent: 1. */
static double number_at(const HsTensor *vector, int64_t at)
{
    return hs_tensor_present(vector) ? hs_ref_load(vector, at) : 1.0;
}

/* y = a x + sign b z */
HsStatus hs_ref_blend_forward(HsContext *context, const HsBlendArgs *args)
{
    (void)context;
    const double a = number_at(&args->a, args->at), b = (double)args->sign * number_at(&args->b, args->at);
    for (int64_t i = 0; i < hs_tensor_count(&args->x); i++)
        hs_ref_store(&args->y, i, a * hs_ref_load(&args->x, i) + b * hs_ref_load(&args->z, i));
    return HS_OK;
}

/* total[at] += factor times the sum of dy stream */
static void add_products(const HsTensor *dy, const HsTensor *stream, double factor, const HsTensor *total, int64_t at)
{
    double sum = 0.0;
    for (int64_t i = 0; hs_tensor_present(total) && i < hs_tensor_count(dy); i++)
        sum += hs_ref_load(dy, i) * hs_ref_load(stream, i);
    if (hs_tensor_present(total))
        hs_ref_store(total, at, hs_ref_load(total, at) + factor * sum);
}

static void scale_gradient(const HsTensor *gradient, bool accumulate, int64_t i, double value)
{
    if (hs_tensor_present(gradient))
        hs_ref_store(gradient, i, accumulate ? hs_ref_load(gradient, i) + value : value);
}

/* Sums come first, as dx may be dy. */
HsStatus hs_ref_blend_backward(HsContext *context, const HsBlendBackwardArgs *args)
{
    (void)context;
    const double a = number_at(&args->a, args->at), b = (double)args->sign * number_at(&args->b, args->at);
    add_products(&args->dy, &args->x, 1.0, &args->da, args->at);
    add_products(&args->dy, &args->z, (double)args->sign, &args->db, args->at);
    for (int64_t i = 0; i < hs_tensor_count(&args->dy); i++) {
        const double dy = hs_ref_load(&args->dy, i);
        scale_gradient(&args->dx, args->accumulate_x, i, a * dy);
        scale_gradient(&args->dz, args->accumulate_z, i, b * dy);
    }
    return HS_OK;
}

/* --- gates --- */

/* gate[n,g] = factor / (1 + exp(-w[g].x[n,:K])) */
HsStatus hs_ref_gate_forward(HsContext *context, const HsGateArgs *args)
{
    (void)context;
    const int64_t columns = args->x.shape[1], gates = args->w.shape[0], features = args->w.shape[1];
    for (int64_t n = 0; n < args->x.shape[0]; n++) {
        for (int64_t g = 0; g < gates; g++) {
            double sum = 0.0;
            for (int64_t k = 0; k < features; k++)
                sum += hs_ref_load(&args->w, g * features + k) * hs_ref_load(&args->x, n * columns + k);
            hs_ref_store(&args->gate, n * gates + g, (double)args->factor / (1.0 + exp(-sum)));
        }
    }
    return HS_OK;
}

/* The gradient of w[g].x[n]: with s = gate / factor, that of factor s is factor s (1 - s). */
static double logit_gradient(const HsGateBackwardArgs *args, int64_t n, int64_t g)
{
    const int64_t at = n * args->w.shape[0] + g;
    const double gate = hs_ref_load(&args->gate, at);
    return hs_ref_load(&args->dgate, at) * gate * (1.0 - gate / (double)args->factor);
}

/* dw[g,k] += sum_n da[n,g] x[n,k] */
static void add_weight_gradient(const HsGateBackwardArgs *args, int64_t g, int64_t k)
{
    const int64_t at = g * args->w.shape[1] + k;
    double sum = hs_ref_load(&args->dw, at);
    for (int64_t n = 0; n < args->x.shape[0]; n++)
        sum += logit_gradient(args, n, g) * hs_ref_load(&args->x, n * args->x.shape[1] + k);
    hs_ref_store(&args->dw, at, sum);
}

/* dx[n,c] [+]= sum_g da[n,g] w[g,c]; from column K on the sum is empty. */
static void store_feature_gradient(const HsGateBackwardArgs *args, int64_t n, int64_t c)
{
    const int64_t at = n * args->dx.shape[1] + c, features = args->w.shape[1];
    if (args->accumulate && c >= features)
        return;
    double sum = args->accumulate ? hs_ref_load(&args->dx, at) : 0.0;
    for (int64_t g = 0; c < features && g < args->w.shape[0]; g++)
        sum += logit_gradient(args, n, g) * hs_ref_load(&args->w, g * features + c);
    hs_ref_store(&args->dx, at, sum);
}

HsStatus hs_ref_gate_backward(HsContext *context, const HsGateBackwardArgs *args)
{
    (void)context;
    for (int64_t g = 0; hs_tensor_present(&args->dw) && g < args->w.shape[0]; g++)
        for (int64_t k = 0; k < args->w.shape[1]; k++)
            add_weight_gradient(args, g, k);
    for (int64_t n = 0; hs_tensor_present(&args->dx) && n < args->dx.shape[0]; n++)
        for (int64_t c = 0; c < args->dx.shape[1]; c++)
            store_feature_gradient(args, n, c);
    return HS_OK;
}

/* --- the token before --- */

/* Whether row n begins its document, or its sequence. */
static bool begins(const HsTensor *starts, int64_t sequence_length, int64_t n)
{
    const int64_t t = n % sequence_length;
    return t == hs_start_of(starts, n);
}

/* y[n] = x[n] + strength gate[n] x[n - 1], with `before` where a sequence begins */
HsStatus hs_ref_smear_forward(HsContext *context, const HsSmearArgs *args)
{
    (void)context;
    const int64_t columns = args->x.shape[1];
    for (int64_t n = 0; n < args->x.shape[0]; n++) {
        const bool first = begins(&args->starts, args->sequence_length, n);
        const HsTensor *from = first ? &args->before : &args->x;
        const int64_t row = first ? n / args->sequence_length : n - 1;
        const double factor = hs_ref_load(&args->strength, 0) * hs_ref_load(&args->gate, n);
        for (int64_t c = 0; c < columns; c++) {
            double value = hs_ref_load(&args->x, n * columns + c);
            if (hs_tensor_present(from))
                value += factor * hs_ref_load(from, row * columns + c);
            hs_ref_store(&args->y, n * columns + c, value);
        }
    }
    return HS_OK;
}

HsStatus hs_ref_smear_backward(HsContext *context, const HsSmearBackwardArgs *args)
{
    (void)context;
    const int64_t rows = args->x.shape[0], columns = args->x.shape[1];
    const double strength = hs_ref_load(&args->strength, 0);
    double sum = 0.0;
    for (int64_t n = 0; n < rows; n++) {
        const bool first = begins(&args->starts, args->sequence_length, n);
        const bool followed = n + 1 < rows && !begins(&args->starts, args->sequence_length, n + 1);
        const double next = followed ? strength * hs_ref_load(&args->gate, n + 1) : 0.0;
        double dot = 0.0;
        for (int64_t c = 0; c < columns; c++) {
            const int64_t at = n * columns + c;
            const double dy = hs_ref_load(&args->dy, at);
            if (!first)
                dot += dy * hs_ref_load(&args->x, at - columns);
            hs_ref_store(&args->dx, at, followed ? dy + next * hs_ref_load(&args->dy, at + columns) : dy);
        }
        hs_ref_store(&args->dgate, n, strength * dot);
        sum += hs_ref_load(&args->gate, n) * dot;
    }
    if (hs_tensor_present(&args->dstrength))
        hs_ref_store(&args->dstrength, 0, hs_ref_load(&args->dstrength, 0) + sum);
    return HS_OK;
}

/* --- values of tokens --- */

/* The first value column of row n. */
static int64_t values_at(const HsHeads *heads, int64_t n)
{
    return n * hs_heads_columns(heads) + (heads->heads + heads->kv_heads) * heads->head_dim;
}

/* v[n,g] += gate[n,g] table[tokens[n],g]; q and k are copied */
HsStatus hs_ref_add_values_forward(HsContext *context, const HsAddValuesArgs *args)
{
    (void)context;
    const HsHeads *heads = &args->heads;
    const int64_t width = heads->kv_heads * heads->head_dim;
    for (int64_t n = 0; n < hs_heads_rows(heads); n++) {
        const int64_t first = values_at(heads, n), row = (int64_t)((const int32_t *)args->tokens.data)[n] * width;
        for (int64_t i = n * hs_heads_columns(heads); i < first; i++)
            hs_ref_store(&args->y, i, hs_ref_load(&args->x, i));
        for (int64_t c = 0; c < width; c++) {
            const double gate = hs_ref_load(&args->gate, n * heads->kv_heads + c / heads->head_dim);
            hs_ref_store(&args->y, first + c,
                         hs_ref_load(&args->x, first + c) + gate * hs_ref_load(&args->table, row + c));
        }
    }
    return HS_OK;
}

/* drows[n,g] = gate[n,g] dv[n,g];  dgate[n,g] = dv[n,g].table[tokens[n],g] */
HsStatus hs_ref_add_values_backward(HsContext *context, const HsAddValuesBackwardArgs *args)
{
    (void)context;
    const HsHeads *heads = &args->heads;
    const int64_t width = heads->kv_heads * heads->head_dim;
    for (int64_t n = 0; n < hs_heads_rows(heads); n++) {
        const int64_t first = values_at(heads, n), row = (int64_t)((const int32_t *)args->tokens.data)[n] * width;
        for (int64_t g = 0; g < heads->kv_heads; g++) {
            const double gate = hs_ref_load(&args->gate, n * heads->kv_heads + g);
            double dot = 0.0;
            for (int64_t c = g * heads->head_dim; c < (g + 1) * heads->head_dim; c++) {
                const double dv = hs_ref_load(&args->dy, first + c);
                dot += dv * hs_ref_load(&args->table, row + c);
                if (hs_tensor_present(&args->drows))
                    hs_ref_store(&args->drows, n * width + c, gate * dv);
            }
            hs_ref_store(&args->dgate, n * heads->kv_heads + g, dot);
        }
    }
    return HS_OK;
}
