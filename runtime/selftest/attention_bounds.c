/* SPDX-License-Identifier: MIT
 *
 * Attention's error bound, stage by stage.  u = 2^-24, gamma_n = n u / (1 - n u), sums over keys j of a row i; a stage
 * that multiplies an exponential turns an absolute error e of the exponent into a relative one of expm1(e).
 *
 *   score      s = scale q.k            e_s = gamma(D+3) scale |q|.|k|
 *   exponent   s - max, s - lse         + u (|s| + largest |s|), and the exponential itself: a function's roundings
 *              E_i = the largest such error in row i
 *   weights    p = exp(..) / sum        numerator and denominator both off: expm1(2 E_i)
 *   sums       over up to T keys, each rescaled at most once per key by the online softmax: gamma(3T + 8)
 *   =>  out    (expm1(2 E_i) + gamma(3T + 8)) sum_j p f |v|
 *   =>  lse    E_i + gamma(3T + 8) + gamma(function) |lse|
 *
 *   backward   p = exp(s - lse)         R_ij = expm1(e_s + u (|s| + |lse|) + function), lse being given
 *              dp = f do.v              A_ij = f |do|.|v| + |do|.|out| bounds dp - delta and, times gamma(D+3),
 *              delta = do.out           its error
 *              ds = p (dp - delta)      p A (R + gamma(D+4))
 *   =>  dq     scale sum_j |k| p A (R + gamma(D+4) + gamma(T+3))
 *   =>  dk     scale sum_i |q| p A (R + gamma(D+4) + gamma(T H/G + 3)), over the rows and heads that read the key
 *   =>  dv     sum_i f p |do| (R + gamma(T H/G + 3))
 *
 *   A capped score c tanh(s / c) passes e_s on at most as it is, and adds its own, c times a function's roundings and those
 *   around it.  ds is then times 1 - t^2 with t = tanh(s / c): t is off by (e_s + u (|s| + |lse|) + function) / c, as it
 *   may come from p, and 1 - t^2 by twice that and a few roundings, which R has besides.
 *
 *   A sink is one more score, which comes exactly and belongs to no value.
 *
 *   What is below f32's normal numbers an exponential may flush to zero: every p has an absolute error of
 *   n = 2^-126 besides, and ds one of n A.  In forward, n is against a sum of at least 1.
 *
 *   Matrix units for 16-bit operands multiply 16-bit numbers.  A backend that uses them rounds the left operands of the
 *   second products, p and ds, to the operands' format: with unit roundoff w (2^-8 for bf16, 2^-11 for f16) and, below
 *   the format's normal numbers, an absolute error of t, half the smallest subnormal.  Products stay exact, sums f32.
 *   In forward exp(s - max) is rounded; the sum is at least 1, so that dividing by it makes t no larger.  Operands in
 *   f32 are not rounded there: w = t = 0.
 *   =>  with A = 1 for p, an error p A e above becomes  A (p ((1 + e)(1 + w) - 1) + n (1 + w)) + t
 */
#include "runtime/selftest/attention_bounds.h"

enum { CAP_ROUNDINGS = 8 };

/* w and t above. */
typedef struct HsWeightRounding {
    double relative, absolute;
} HsWeightRounding;

static HsWeightRounding weight_rounding(const HsAttentionView *view)
{
    const HsDtypeInfo *info = hs_dtype_info(view->weights);
    return view->weights == HS_F32 ? (HsWeightRounding){ 0.0, 0.0 }
                                   : (HsWeightRounding){ info->epsilon / 2.0, info->smallest_subnormal / 2.0 };
}

/* How far off p A, a left operand of the second products, is where the exponential and the factor A are off by the
 * relative error e. */
static double weight_error(HsWeightRounding rounding, double p, double size, double error)
{
    const double flushed = hs_dtype_info(HS_F32)->smallest_normal, grown = 1.0 + rounding.relative;
    return size * (p * ((1.0 + error) * grown - 1.0) + flushed * grown) + rounding.absolute;
}

static const double *query_of(const HsAttentionView *view, int64_t row, int64_t h)
{
    return view->qkv + row * hs_heads_columns(&view->heads) + h * view->heads.head_dim;
}

/* Key (value: which = 1) head g at `position` of the sequence that `row` belongs to. */
static const double *key_of(const HsAttentionView *view, int64_t row, int64_t position, int64_t g, int which)
{
    const HsHeads *heads = &view->heads;
    const int64_t sequence = row / heads->sequence_length, width = heads->head_dim;
    if (view->k_cache)
        return (which ? view->v_cache : view->k_cache) + (sequence * view->room + position) * heads->kv_heads * width +
               g * width;
    return query_of(view, sequence * heads->sequence_length + position, heads->heads + which * heads->kv_heads + g);
}

/* The largest position that a row sees. */
static int64_t position_of(const HsAttentionView *view, int64_t row)
{
    return view->start + row % view->heads.sequence_length;
}

/* The smallest. */
static int64_t first_of(const HsAttentionView *view, int64_t row)
{
    const int64_t start = view->starts ? view->starts[row] : 0, nearest = position_of(view, row) - view->window + 1;
    return view->window > 0 && nearest > start ? nearest : start;
}

static double dot(const double *a, const double *b, int64_t count)
{
    double sum = 0.0;
    for (int64_t i = 0; i < count; i++)
        sum += a[i] * b[i];
    return sum;
}

static double absolute_dot(const double *a, const double *b, int64_t count)
{
    double sum = 0.0;
    for (int64_t i = 0; i < count; i++)
        sum += fabs(a[i] * b[i]);
    return sum;
}

static double score_of(const HsAttentionView *view, const double *q, const double *k)
{
    const double s = view->scale * dot(q, k, view->heads.head_dim);
    return view->cap > 0.0 ? view->cap * tanh(s / view->cap) : s;
}

/* e_s */
static double score_error(const HsAttentionView *view, const double *q, const double *k)
{
    const double product = hs_gamma(view->heads.head_dim + 3) * view->scale * absolute_dot(q, k, view->heads.head_dim);
    return product + view->cap * hs_gamma(HS_FUNCTION_ROUNDINGS + CAP_ROUNDINGS);
}

static double mask_factor(const HsAttentionView *view, int64_t row, int64_t h, int64_t key)
{
    if (view->dropout == 0.0f)
        return 1.0;
    const HsHeads *heads = &view->heads;
    const int64_t element = ((view->rng.row_offset + row) * heads->heads + h) * heads->sequence_length + key;
    const HsPhilox draw = hs_rng_draw(&view->rng, (uint64_t)element / 4);
    return hs_rng_uniform(draw.word[element % 4]) >= view->dropout ? 1.0 / (1.0 - (double)view->dropout) : 0.0;
}

/* E_i and the exact lse of one query head. */
typedef struct HsAttentionRow {
    double error, lse;
} HsAttentionRow;

static HsAttentionRow analyse_scores(const HsAttentionView *view, int64_t row, int64_t h)
{
    const HsHeads *heads = &view->heads;
    const int64_t g = h / (heads->heads / heads->kv_heads);
    const double *q = query_of(view, row, h);
    double largest = 0.0, maximum = -INFINITY, product_error = 0.0, total = 0.0;
    for (int64_t j = first_of(view, row); j <= position_of(view, row); j++) {
        const double *k = key_of(view, row, j, g, 0);
        const double s = score_of(view, q, k);
        largest = fmax(largest, fabs(s));
        maximum = fmax(maximum, s);
        product_error = fmax(product_error, score_error(view, q, k));
    }
    if (view->sinks) {
        largest = fmax(largest, fabs(view->sinks[h]));
        maximum = fmax(maximum, view->sinks[h]);
        total = exp(view->sinks[h] - maximum);
    }
    for (int64_t j = first_of(view, row); j <= position_of(view, row); j++)
        total += exp(score_of(view, q, key_of(view, row, j, g, 0)) - maximum);
    const double error = product_error + hs_gamma(2) * largest + hs_gamma(HS_FUNCTION_ROUNDINGS);
    return (HsAttentionRow){ error, maximum + log(total) };
}

void hs_bound_attention_forward(const HsAttentionView *view, double *out_error, double *lse_error)
{
    const HsHeads *heads = &view->heads;
    const int64_t width = heads->head_dim;
    const HsWeightRounding rounding = weight_rounding(view);
    for (int64_t row = 0; row < hs_heads_rows(heads); row++) {
        const double sums = hs_gamma(3 * (position_of(view, row) + 1 + (view->sinks ? 1 : 0)) + 8);
        for (int64_t h = 0; h < heads->heads; h++) {
            const int64_t g = h / (heads->heads / heads->kv_heads), at = row * heads->heads + h;
            const HsAttentionRow scores = analyse_scores(view, row, h);
            if (lse_error)
                lse_error[at] = scores.error + sums + hs_gamma(HS_FUNCTION_ROUNDINGS) * fabs(scores.lse);
            double *out = out_error + at * width;
            for (int64_t j = first_of(view, row); j <= position_of(view, row); j++) {
                const double *k = key_of(view, row, j, g, 0), *v = key_of(view, row, j, g, 1);
                const double p = exp(score_of(view, query_of(view, row, h), k) - scores.lse);
                const double weight =
                    mask_factor(view, row, h, j) * weight_error(rounding, p, 1.0, expm1(2.0 * scores.error) + sums);
                for (int64_t d = 0; d < width; d++)
                    out[d] += weight * fabs(v[d]);
            }
        }
    }
}

/* One (row, key) pair of backward: p, A, f, R, and what a capped score adds. */
typedef struct HsPairBound {
    double probability, size, factor, relative, slope;
} HsPairBound;

static HsPairBound analyse_pair(const HsAttentionView *view, int64_t row, int64_t j, int64_t h)
{
    const HsHeads *heads = &view->heads;
    const int64_t width = heads->head_dim, g = h / (heads->heads / heads->kv_heads), at = row * heads->heads + h;
    const double *q = query_of(view, row, h), *k = key_of(view, row, j, g, 0), *v = key_of(view, row, j, g, 1);
    const double *dout = view->dout + at * width, *out = view->out + at * width;
    const double s = score_of(view, q, k), lse = view->lse[at];
    const double exponent_error =
        score_error(view, q, k) + hs_gamma(2) * (fabs(s) + fabs(lse)) + hs_gamma(HS_FUNCTION_ROUNDINGS);
    const double p = exp(s - lse), factor = mask_factor(view, row, h, j);
    const double size = factor * absolute_dot(dout, v, width) + absolute_dot(dout, out, width);
    /* 1 - tanh^2, of a tanh that may have been made of p and lse again */
    const double slope = view->cap > 0.0 ? 2.0 * exponent_error / view->cap + hs_gamma(CAP_ROUNDINGS) : 0.0;
    return (HsPairBound){ p, size, factor, expm1(exponent_error), slope };
}

void hs_bound_attention_backward(const HsAttentionView *view, double *dqkv_error)
{
    const HsHeads *heads = &view->heads;
    const int64_t width = heads->head_dim, group = heads->heads / heads->kv_heads;
    const int64_t columns = hs_heads_columns(heads);
    const double row_sums = hs_gamma(heads->sequence_length + 3);
    const double key_sums = hs_gamma(heads->sequence_length * group + 3);
    const double score_sums = hs_gamma(width + 4);
    const HsWeightRounding rounding = weight_rounding(view);
    for (int64_t row = 0; row < hs_heads_rows(heads); row++) {
        const int64_t first = row - row % heads->sequence_length;
        for (int64_t h = 0; h < heads->heads; h++) {
            const double *q = query_of(view, row, h), *dout = view->dout + (row * heads->heads + h) * width;
            double *dq = dqkv_error + row * columns + h * width;
            for (int64_t j = first_of(view, row); j <= position_of(view, row); j++) {
                const HsPairBound pair = analyse_pair(view, row, j, h);
                const double *k = key_of(view, row, j, h / group, 0);
                double *dk = dqkv_error + (first + j) * columns + (heads->heads + h / group) * width;
                double *dv = dk + heads->kv_heads * width;
                const double before = pair.relative + score_sums + pair.slope, p = pair.probability;
                const double dq_error = view->scale * weight_error(rounding, p, pair.size, before + row_sums);
                const double dk_error = view->scale * weight_error(rounding, p, pair.size, before + key_sums);
                const double dv_error = pair.factor * weight_error(rounding, p, 1.0, pair.relative + key_sums);
                for (int64_t d = 0; d < width; d++) {
                    dq[d] += fabs(k[d]) * dq_error;
                    dk[d] += fabs(q[d]) * dk_error;
                    dv[d] += fabs(dout[d]) * dv_error;
                }
            }
        }
    }
}
