/* SPDX-License-Identifier: MIT
 *
 * Causal attention with grouped queries (Vaswani et al. 2017, eq. 1; Ainslie et al. 2023).  For query row i of head h,
 * the keys j that it sees (HsScoreRule) and kv head h / (H/G), and dropout factors f_ij (0 or 1/(1-p)):
 *     s_ij = scale q_i.k_j     p_ij = exp(s_ij - lse_i)     lse_i = log sum_j exp(s_ij)     out_i = sum_j f_ij p_ij v_j
 * With a sink z of the head, lse_i = log(sum_j exp(s_ij) + exp(z)), so that a row's p_ij add up to less than 1.
 * With a cap c, s_ij becomes c tanh(s_ij / c), and ds_ij below is times 1 - (s_ij / c)^2.
 * The sum runs online, with a running maximum (Milakov & Gimelshein 2018, algorithm 3), so nothing of size T is held.
 * Backward (Dao 2023, appendix B.2), with do = dout:
 *     delta_i = do_i.out_i = sum_j p_ij f_ij do_i.v_j        dv_j = sum_i f_ij p_ij do_i
 *     ds_ij = p_ij (f_ij do_i.v_j - delta_i)                 dq_i = scale sum_j ds_ij k_j
 *                                                            dk_j = scale sum_i ds_ij q_i
 * With a sink all that stays as it is, as lse holds it, and      dz = -sum_i exp(z - lse_i) delta_i
 */
#include "kernels/ref/ref.h"

#include "kernels/checks/checks.h"

typedef double HsHeadVector[HS_MAX_HEAD_DIM];

/* Element offsets of a query, key or value head in a row of the packed projection. */
static int64_t query_at(const HsHeads *heads, int64_t row, int64_t h)
{
    return row * hs_heads_columns(heads) + h * heads->head_dim;
}

static int64_t key_at(const HsHeads *heads, int64_t row, int64_t g)
{
    return query_at(heads, row, heads->heads + g);
}

static int64_t value_at(const HsHeads *heads, int64_t row, int64_t g)
{
    return query_at(heads, row, heads->heads + heads->kv_heads + g);
}

static void load_vector(const HsTensor *x, int64_t offset, int64_t width, HsHeadVector out)
{
    for (int64_t d = 0; d < width; d++)
        out[d] = hs_ref_load(x, offset + d);
}

static double dot(const HsTensor *x, int64_t offset, int64_t width, const HsHeadVector with)
{
    double sum = 0.0;
    for (int64_t d = 0; d < width; d++)
        sum += hs_ref_load(x, offset + d) * with[d];
    return sum;
}

static void add_scaled(const HsTensor *x, int64_t offset, int64_t width, double factor, HsHeadVector sum)
{
    for (int64_t d = 0; d < width; d++)
        sum[d] += factor * hs_ref_load(x, offset + d);
}

static void store_vector(const HsTensor *x, int64_t offset, int64_t width, double factor, const HsHeadVector from)
{
    for (int64_t d = 0; d < width; d++)
        hs_ref_store(x, offset + d, factor * from[d]);
}

/* The mask's element index, as ops.h defines it: independent of how the batch is split. */
static double mask_factor(const HsRng *rng, float dropout, const HsHeads *heads, int64_t row, int64_t h, int64_t key)
{
    const int64_t element = ((rng->row_offset + row) * heads->heads + h) * heads->sequence_length + key;
    return hs_ref_dropout_factor(rng, dropout, (uint64_t)element);
}

/* s of a query and a key, and its derivative by what is capped. */
static double score_of(const HsScoreRule *rule, double product)
{
    const double s = (double)rule->scale * product, cap = (double)rule->cap;
    return cap > 0.0 ? cap * tanh(s / cap) : s;
}

static double slope_of(const HsScoreRule *rule, double score)
{
    const double share = rule->cap > 0.0f ? score / (double)rule->cap : 0.0;
    return 1.0 - share * share;
}

/* The online softmax: total = sum exp(s - maximum), sum = sum exp(s - maximum) f v. */
typedef struct HsOnline {
    double maximum, total;
    HsHeadVector sum;
} HsOnline;

static void online_begin(HsOnline *online, int64_t width)
{
    online->maximum = -INFINITY;
    online->total = 0.0;
    for (int64_t d = 0; d < width; d++)
        online->sum[d] = 0.0;
}

/* Into the denominator; returns the score's weight. */
static double online_count(HsOnline *online, double score, int64_t width)
{
    if (score > online->maximum) {
        const double shrink = exp(online->maximum - score);
        online->total *= shrink;
        for (int64_t d = 0; d < width; d++)
            online->sum[d] *= shrink;
        online->maximum = score;
    }
    const double weight = exp(score - online->maximum);
    online->total += weight;
    return weight;
}

static void online_add(HsOnline *online, double score, double factor, const HsTensor *v, int64_t offset, int64_t width)
{
    add_scaled(v, offset, width, online_count(online, score, width) * factor, online->sum);
}

static void online_end(HsOnline *online, const HsTensor *sinks, int64_t h, int64_t width)
{
    if (hs_tensor_present(sinks))
        (void)online_count(online, hs_ref_load(sinks, h), width);
}

HsStatus hs_ref_attention_forward(HsContext *context, const HsAttentionArgs *args)
{
    (void)context;
    const HsHeads *heads = &args->heads;
    const int64_t width = heads->head_dim, length = heads->sequence_length, group = heads->heads / heads->kv_heads;
    HsHeadVector q;
    HsOnline online;
    for (int64_t row = 0; row < hs_heads_rows(heads); row++) {
        const int64_t first = row - row % length;
        for (int64_t h = 0; h < heads->heads; h++) {
            load_vector(&args->qkv, query_at(heads, row, h), width, q);
            online_begin(&online, width);
            for (int64_t key = first + hs_first_seen(&args->rule, row, row - first); key <= row; key++) {
                const double score = score_of(&args->rule, dot(&args->qkv, key_at(heads, key, h / group), width, q));
                const double factor = mask_factor(&args->rng, args->dropout, heads, row, h, key - first);
                online_add(&online, score, factor, &args->qkv, value_at(heads, key, h / group), width);
            }
            online_end(&online, &args->sinks, h, width);
            store_vector(&args->out, (row * heads->heads + h) * width, width, 1.0 / online.total, online.sum);
            hs_ref_store(&args->lse, row * heads->heads + h, online.maximum + log(online.total));
        }
    }
    hs_ref_find_amax(&args->out);
    return HS_OK;
}

/* p_ij f_ij and ds_ij of one (query, key) pair. */
typedef struct HsPair {
    double dropped_probability, score_gradient;
} HsPair;

static HsPair pair_of(const HsAttentionBackwardArgs *args, int64_t row, int64_t key, int64_t h, const HsHeadVector q,
                      const HsHeadVector dout, double delta)
{
    const HsHeads *heads = &args->heads;
    const int64_t width = heads->head_dim, g = h / (heads->heads / heads->kv_heads);
    const double score = score_of(&args->rule, dot(&args->qkv, key_at(heads, key, g), width, q));
    const double p = exp(score - hs_ref_load(&args->lse, row * heads->heads + h));
    const double factor = mask_factor(&args->rng, args->dropout, heads, row, h, key % heads->sequence_length);
    const double dp = factor * dot(&args->qkv, value_at(heads, key, g), width, dout);
    return (HsPair){ p * factor, p * (dp - delta) * slope_of(&args->rule, score) };
}

/* q_i, do_i and delta_i of one query head. */
static double load_query(const HsAttentionBackwardArgs *args, int64_t row, int64_t h, HsHeadVector q, HsHeadVector dout)
{
    const int64_t width = args->heads.head_dim, at = (row * args->heads.heads + h) * width;
    load_vector(&args->qkv, query_at(&args->heads, row, h), width, q);
    load_vector(&args->dout, at, width, dout);
    return dot(&args->out, at, width, dout);
}

static void query_gradient(const HsAttentionBackwardArgs *args, int64_t row, int64_t h)
{
    const HsHeads *heads = &args->heads;
    const int64_t width = heads->head_dim, g = h / (heads->heads / heads->kv_heads);
    HsHeadVector q, dout, dq = { 0 };
    const double delta = load_query(args, row, h, q, dout);
    const int64_t position = row % heads->sequence_length;
    for (int64_t key = row - position + hs_first_seen(&args->rule, row, position); key <= row; key++) {
        const HsPair pair = pair_of(args, row, key, h, q, dout, delta);
        add_scaled(&args->qkv, key_at(heads, key, g), width, pair.score_gradient, dq);
    }
    store_vector(&args->dqkv, query_at(heads, row, h), width, (double)args->rule.scale, dq);
}

/* A key head serves every query head of its group, in every later row that sees it. */
static void key_value_gradient(const HsAttentionBackwardArgs *args, int64_t key, int64_t g)
{
    const HsHeads *heads = &args->heads;
    const int64_t width = heads->head_dim, group = heads->heads / heads->kv_heads;
    const int64_t position = key % heads->sequence_length, first = key - position;
    HsHeadVector q, dout, dk = { 0 }, dv = { 0 };
    for (int64_t row = key; row < first + heads->sequence_length; row++) {
        if (hs_first_seen(&args->rule, row, row - first) > position)
            break;
        for (int64_t h = g * group; h < (g + 1) * group; h++) {
            const double delta = load_query(args, row, h, q, dout);
            const HsPair pair = pair_of(args, row, key, h, q, dout, delta);
            for (int64_t d = 0; d < width; d++) {
                dk[d] += pair.score_gradient * q[d];
                dv[d] += pair.dropped_probability * dout[d];
            }
        }
    }
    store_vector(&args->dqkv, key_at(heads, key, g), width, (double)args->rule.scale, dk);
    store_vector(&args->dqkv, value_at(heads, key, g), width, 1.0, dv);
}

HsStatus hs_ref_attention_backward(HsContext *context, const HsAttentionBackwardArgs *args)
{
    (void)context;
    for (int64_t row = 0; row < hs_heads_rows(&args->heads); row++) {
        for (int64_t h = 0; h < args->heads.heads; h++)
            query_gradient(args, row, h);
        for (int64_t g = 0; g < args->heads.kv_heads; g++)
            key_value_gradient(args, row, g);
    }
    hs_ref_find_amax(&args->dqkv);
    return HS_OK;
}

HsStatus hs_ref_sink_backward(HsContext *context, const HsSinkBackwardArgs *args)
{
    (void)context;
    const HsHeads *heads = &args->heads;
    const int64_t width = heads->head_dim;
    HsHeadVector dout;
    for (int64_t h = 0; h < heads->heads; h++) {
        double sum = hs_ref_load(&args->dsinks, h);
        for (int64_t row = 0; row < hs_heads_rows(heads); row++) {
            const int64_t at = row * heads->heads + h;
            load_vector(&args->dout, at * width, width, dout);
            sum -= exp(hs_ref_load(&args->sinks, h) - hs_ref_load(&args->lse, at)) *
                   dot(&args->out, at * width, width, dout);
        }
        hs_ref_store(&args->dsinks, h, sum);
    }
    return HS_OK;
}

/* Copy the new rows' k and v behind what the cache holds, then attend to all of it. */
HsStatus hs_ref_attention_cached(HsContext *context, const HsAttentionCachedArgs *args)
{
    (void)context;
    const HsHeads *heads = &args->heads;
    const int64_t width = heads->head_dim, kv_width = heads->kv_heads * width, room = args->k_cache.shape[1];
    const int64_t group = heads->heads / heads->kv_heads;
    HsHeadVector q;
    HsOnline online;
    for (int64_t row = 0; row < hs_heads_rows(heads); row++) {
        const int64_t sequence = row / heads->sequence_length;
        const int64_t position = args->position_start + row % heads->sequence_length;
        const int64_t cached = (sequence * room + position) * kv_width;
        for (int64_t c = 0; c < kv_width; c++) {
            hs_ref_store(&args->k_cache, cached + c, hs_ref_load(&args->qkv, key_at(heads, row, 0) + c));
            hs_ref_store(&args->v_cache, cached + c, hs_ref_load(&args->qkv, value_at(heads, row, 0) + c));
        }
        for (int64_t h = 0; h < heads->heads; h++) {
            load_vector(&args->qkv, query_at(heads, row, h), width, q);
            online_begin(&online, width);
            for (int64_t key = hs_first_seen(&args->rule, 0, position); key <= position; key++) {
                const int64_t at = (sequence * room + key) * kv_width + h / group * width;
                const double score = score_of(&args->rule, dot(&args->k_cache, at, width, q));
                online_add(&online, score, 1.0, &args->v_cache, at, width);
            }
            online_end(&online, &args->sinks, h, width);
            store_vector(&args->out, (row * heads->heads + h) * width, width, 1.0 / online.total, online.sum);
        }
    }
    hs_ref_find_amax(&args->out);
    return HS_OK;
}
