/* SPDX-License-Identifier: MIT
 *
 * Layer norm (Ba, Kiros & Hinton 2016, eq. 4) and root-mean-square norm (Zhang & Sennrich 2019, eq. 4), over whole rows
 * and over the q and k heads of a packed projection, each or all of a kind at once (QK-norm).
 *     xhat = (x - mean) rstd,   y = weight xhat + bias [+ addend],   rstd = 1 / sqrt(mean((x - mean)^2) + epsilon)
 * rms has mean = 0 and no bias; an absent weight is 1.  With g = weight dy, differentiating xhat through mean and rstd gives
 *     dx = rstd (g - mean(g) - xhat mean(g xhat)),   dweight = sum_n dy xhat,   dbias = sum_n dy
 * where rms lacks the mean(g) term.
 */
#include "kernels/ref/ref.h"

/* `width` elements from `offset`: a row, a head of a row, or its heads of a kind. */
typedef struct HsStretch {
    int64_t offset, width;
} HsStretch;

static double mean_of(const HsTensor *x, HsStretch at)
{
    double sum = 0.0;
    for (int64_t c = 0; c < at.width; c++)
        sum += hs_ref_load(x, at.offset + c);
    return sum / (double)at.width;
}

/* Two passes: subtracting the mean first keeps a large common offset from cancelling. */
static double rstd_of(const HsTensor *x, HsStretch at, double mean, double epsilon)
{
    double sum = 0.0;
    for (int64_t c = 0; c < at.width; c++) {
        const double centred = hs_ref_load(x, at.offset + c) - mean;
        sum += centred * centred;
    }
    return 1.0 / sqrt(sum / (double)at.width + epsilon);
}

static double weight_at(const HsTensor *weight, int64_t c)
{
    return hs_tensor_present(weight) ? hs_ref_load(weight, c) : 1.0;
}

/* What y is made of; bias and addend may be absent. */
typedef struct HsNormalized {
    const HsTensor *x, *weight, *bias, *addend, *y;
} HsNormalized;

static void normalize(const HsNormalized *with, HsStretch at, double mean, double rstd)
{
    for (int64_t c = 0; c < at.width; c++) {
        double value = weight_at(with->weight, c) * (hs_ref_load(with->x, at.offset + c) - mean) * rstd;
        if (hs_tensor_present(with->bias))
            value += hs_ref_load(with->bias, c);
        if (hs_tensor_present(with->addend))
            value += hs_ref_load(with->addend, at.offset + c);
        hs_ref_store(with->y, at.offset + c, value);
    }
}

HsStatus hs_ref_norm_forward(HsContext *context, const HsNormArgs *args)
{
    const int64_t columns = args->x.shape[1];
    if (hs_tensor_present(&args->branch)) {
        const HsDropoutArgs sum = { .probability = args->probability,
                                    .rng = args->rng,
                                    .x = args->branch,
                                    .residual = args->residual,
                                    .y = args->x };
        HS_TRY(hs_ref_dropout_forward(context, &sum));
    }
    const HsNormalized with = { &args->x, &args->weight, &args->bias, &args->addend, &args->y };
    for (int64_t n = 0; n < args->x.shape[0]; n++) {
        const HsStretch row = { n * columns, columns };
        const double mean = args->kind == HS_NORM_LAYER ? mean_of(&args->x, row) : 0.0;
        const double rstd = rstd_of(&args->x, row, mean, (double)args->epsilon);
        normalize(&with, row, mean, rstd);
        if (hs_tensor_present(&args->mean))
            hs_ref_store(&args->mean, n, mean);
        hs_ref_store(&args->rstd, n, rstd);
    }
    hs_ref_find_amax(&args->y);
    const HsQuantizeArgs cast = hs_cast_apart(&args->y, &args->cast);
    return hs_codes_present(&args->cast) ? hs_ref_quantize(context, &cast) : HS_OK;
}

typedef struct HsNormGradient {
    const HsTensor *dy, *x, *weight, *dx;
    bool centre;     /* layer norm: the mean(g) term */
    bool accumulate; /* dx += */
} HsNormGradient;

static void normalize_backward(const HsNormGradient *with, HsStretch at, double mean, double rstd)
{
    double sum_g = 0.0, sum_g_xhat = 0.0;
    for (int64_t c = 0; c < at.width; c++) {
        const double g = weight_at(with->weight, c) * hs_ref_load(with->dy, at.offset + c);
        sum_g += g;
        sum_g_xhat += g * (hs_ref_load(with->x, at.offset + c) - mean) * rstd;
    }
    const double mean_g = with->centre ? sum_g / (double)at.width : 0.0;
    const double mean_g_xhat = sum_g_xhat / (double)at.width;
    for (int64_t c = 0; c < at.width; c++) {
        const double g = weight_at(with->weight, c) * hs_ref_load(with->dy, at.offset + c);
        const double xhat = (hs_ref_load(with->x, at.offset + c) - mean) * rstd;
        const double dx = rstd * (g - mean_g - xhat * mean_g_xhat);
        hs_ref_store(with->dx, at.offset + c, with->accumulate ? hs_ref_load(with->dx, at.offset + c) + dx : dx);
    }
}

HsStatus hs_ref_norm_backward(HsContext *context, const HsNormBackwardArgs *args)
{
    const int64_t rows = args->x.shape[0], columns = args->x.shape[1];
    const bool layer = args->kind == HS_NORM_LAYER;
    /* Parameter gradients first, one column at a time: the rows' statistics are all there already. */
    const bool weighted = hs_tensor_present(&args->dweight), biased = hs_tensor_present(&args->dbias);
    for (int64_t c = 0; c < columns && (weighted || biased); c++) {
        double dweight = weighted ? hs_ref_load(&args->dweight, c) : 0.0,
               dbias = biased ? hs_ref_load(&args->dbias, c) : 0.0;
        for (int64_t n = 0; n < rows; n++) {
            const double dy = hs_ref_load(&args->dy, n * columns + c);
            const double mean = layer ? hs_ref_load(&args->mean, n) : 0.0;
            dweight += dy * (hs_ref_load(&args->x, n * columns + c) - mean) * hs_ref_load(&args->rstd, n);
            dbias += dy;
        }
        if (weighted)
            hs_ref_store(&args->dweight, c, dweight);
        if (biased)
            hs_ref_store(&args->dbias, c, dbias);
    }
    const HsNormGradient with = { &args->dy, &args->x, &args->weight, &args->dx, layer, args->accumulate };
    for (int64_t n = 0; n < rows; n++)
        normalize_backward(&with, (HsStretch){ n * columns, columns }, layer ? hs_ref_load(&args->mean, n) : 0.0,
                           hs_ref_load(&args->rstd, n));
    const HsDropoutArgs mask = {
        .probability = args->probability, .rng = args->rng, .x = args->dx, .y = args->dx_masked
    };
    if (hs_tensor_present(&args->dx_masked))
        HS_TRY(hs_ref_dropout_backward(context, &mask));
    for (int64_t i = 0; hs_tensor_present(&args->dx_rounded) && i < rows * columns; i++)
        hs_ref_store(&args->dx_rounded, i, hs_ref_load(&args->dx, i));
    hs_ref_find_amax(hs_norm_handed_on(args));
    const HsQuantizeArgs cast = hs_cast_apart(&args->dx_rounded, &args->cast);
    if (hs_codes_present(&args->cast))
        HS_TRY(hs_ref_quantize(context, &cast));
    const HsBiasBackwardArgs sums = { .dy = args->dx, .dbias = args->dx_sums };
    return hs_tensor_present(&args->dx_sums) ? hs_ref_bias_backward(context, &sums) : HS_OK;
}

static void copy_stretch(const HsTensor *x, HsStretch at, const HsTensor *y)
{
    for (int64_t c = 0; c < at.width; c++)
        hs_ref_store(y, at.offset + c, hs_ref_load(x, at.offset + c));
}

/* What is normed of a row, one behind the other: each query head, then each key head; whole: all query heads at once,
 * then all key heads. */
static int64_t count_normed(const HsHeads *heads, bool whole)
{
    return whole ? 2 : heads->heads + heads->kv_heads;
}

static bool is_query(const HsHeads *heads, bool whole, int64_t i)
{
    return i < (whole ? 1 : heads->heads);
}

static HsStretch normed_at(const HsHeads *heads, bool whole, int64_t n, int64_t i)
{
    const int64_t row = n * (heads->heads + 2 * heads->kv_heads);
    if (!whole)
        return (HsStretch){ (row + i) * heads->head_dim, heads->head_dim };
    return (HsStretch){ (row + (i == 0 ? 0 : heads->heads)) * heads->head_dim,
                        (i == 0 ? heads->heads : heads->kv_heads) * heads->head_dim };
}

static HsStretch values_at(const HsHeads *heads, int64_t n)
{
    const int64_t row = n * (heads->heads + 2 * heads->kv_heads);
    return (HsStretch){ (row + heads->heads + heads->kv_heads) * heads->head_dim, heads->kv_heads * heads->head_dim };
}

HsStatus hs_ref_head_norm_forward(HsContext *context, const HsHeadNormArgs *args)
{
    (void)context;
    const HsHeads *heads = &args->heads;
    const int64_t normed = count_normed(heads, args->whole);
    const HsTensor absent = { 0 };
    for (int64_t n = 0; n < args->x.shape[0]; n++) {
        for (int64_t i = 0; i < normed; i++) {
            const HsStretch at = normed_at(heads, args->whole, n, i);
            const HsTensor *weight = is_query(heads, args->whole, i) ? &args->q_weight : &args->k_weight;
            const HsNormalized with = { &args->x, weight, &absent, &absent, &args->y };
            const double rstd = rstd_of(&args->x, at, 0.0, (double)args->epsilon);
            normalize(&with, at, 0.0, rstd);
            hs_ref_store(&args->rstd, n * normed + i, rstd);
        }
        copy_stretch(&args->x, values_at(heads, n), &args->y);
    }
    return HS_OK;
}

/* dweight[d] += sum over rows n and what is normed with that weight of dy xhat */
static void head_weight_gradient(const HsHeadNormBackwardArgs *args, bool query, const HsTensor *dweight)
{
    const int64_t normed = count_normed(&args->heads, args->whole);
    for (int64_t d = 0; hs_tensor_present(dweight) && d < dweight->shape[0]; d++) {
        double sum = hs_ref_load(dweight, d);
        for (int64_t n = 0; n < args->x.shape[0]; n++) {
            for (int64_t i = 0; i < normed; i++) {
                const int64_t index = normed_at(&args->heads, args->whole, n, i).offset + d;
                if (is_query(&args->heads, args->whole, i) == query)
                    sum += hs_ref_load(&args->dy, index) * hs_ref_load(&args->x, index) *
                           hs_ref_load(&args->rstd, n * normed + i);
            }
        }
        hs_ref_store(dweight, d, sum);
    }
}

HsStatus hs_ref_head_norm_backward(HsContext *context, const HsHeadNormBackwardArgs *args)
{
    (void)context;
    const HsHeads *heads = &args->heads;
    const int64_t normed = count_normed(heads, args->whole);
    head_weight_gradient(args, true, &args->dq_weight);
    head_weight_gradient(args, false, &args->dk_weight);
    for (int64_t n = 0; n < args->x.shape[0]; n++) {
        for (int64_t i = 0; i < normed; i++) {
            const HsTensor *weight = is_query(heads, args->whole, i) ? &args->q_weight : &args->k_weight;
            const HsNormGradient with = { &args->dy, &args->x, weight, &args->dx, false, false };
            normalize_backward(&with, normed_at(heads, args->whole, n, i), 0.0,
                               hs_ref_load(&args->rstd, n * normed + i));
        }
        copy_stretch(&args->dy, values_at(heads, n), &args->dx);
    }
    hs_ref_find_amax(&args->dx);
    return HS_OK;
}
