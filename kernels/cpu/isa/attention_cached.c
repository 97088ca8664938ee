/* SPDX-License-Identifier: MIT
 *
 * Attention for generation: append the new rows' keys and values to the cache, then let each new query read all of it.
 * With one new row per sequence there are no query lanes to fill, so lanes run along the head: a score is a dot product
 * of D lanes, and the output is a sum of value rows; both stream the cache once, which is the bound.  The softmax is
 * online (Milakov & Gimelshein 2018) in blocks of one vector of keys.
 */
#include "kernels/cpu/isa/attention_tile.h"

#include <math.h>

enum { BLOCK = HS_LANES, MOST_VECTORS = HS_MAX_HEAD_DIM / HS_LANES };

/* Keys or values of one head in the cache: row j begins at element first + j * stride. */
typedef struct CacheRows {
    const HsTensor *cache;
    int64_t first, stride, width;
} CacheRows;

static HsF32x16 cache_load(const CacheRows *rows, int64_t row, int64_t d)
{
    return hs_simd_load_part(rows->cache->dtype, rows->cache->data, rows->first + row * rows->stride + d,
                             rows->width - d);
}

static float score_of(const CacheRows *keys, int64_t key, const HsF32x16 *query)
{
    HsF32Parts sum = { 0 };
    for (int64_t d = 0; d < keys->width; d += HS_LANES)
        hs_simd_accumulate(&sum, query[d / HS_LANES] * cache_load(keys, key, d));
    return hs_simd_sum(sum.whole);
}

static float capped(float score, float cap)
{
    return cap > 0.0f ? cap * tanhf(score / cap) : score;
}

/* out = softmax(query K^T) V over keys [begin, end); `out` holds ceil(D / lanes) vectors.  sink: NULL for none. */
static void attend(const CacheRows *keys, const CacheRows *values, int64_t begin, int64_t end, float cap,
                   const float *sink, const HsF32x16 *query, HsF32x16 *out)
{
    const int64_t vectors = hs_cpu_block_count(values->width, HS_LANES);
    float maximum = -INFINITY, total = 0.0f;
    for (int64_t v = 0; v < vectors; v++)
        out[v] = (HsF32x16){ 0 };
    for (int64_t first = begin; first < end; first += BLOCK) {
        const int64_t keys_here = end - first < BLOCK ? end - first : BLOCK;
        HsF32x16 scores = hs_simd_splat(-INFINITY);
        for (int64_t j = 0; j < keys_here; j++)
            scores[j] = capped(score_of(keys, first + j, query), cap);
        const float largest = fmaxf(maximum, hs_simd_largest(scores));
        const HsF32x16 weights = hs_simd_exp(scores - largest);
        const float shrink = expf(maximum - largest);
        maximum = largest;
        total = total * shrink + hs_simd_sum(weights);
        for (int64_t v = 0; v < vectors; v++) {
            HsF32Parts sum = { .whole = out[v] * shrink };
            for (int64_t j = 0; j < keys_here; j++)
                hs_simd_accumulate(&sum, weights[j] * cache_load(values, first + j, v * HS_LANES));
            out[v] = sum.whole;
        }
    }
    const float largest = sink ? fmaxf(maximum, *sink) : maximum, share = sink ? expf(maximum - largest) : 1.0f;
    total = sink ? total * share + expf(*sink - largest) : total;
    for (int64_t v = 0; v < vectors; v++)
        out[v] = out[v] * share / total;
}

static void append(const HsAttentionCachedArgs *args, int64_t row)
{
    const HsHeads *heads = &args->heads;
    const int64_t room = args->k_cache.shape[1], length = heads->sequence_length;
    const size_t bytes = (size_t)(heads->kv_heads * heads->head_dim) * hs_dtype_bytes(args->qkv.dtype);
    const size_t at = (size_t)(row / length * room + args->position_start + row % length) * bytes;
    const HsHeadRows keys = hs_head_rows(&args->qkv, row, 1, hs_key_column(heads, 0), heads->head_dim);
    const HsHeadRows values = hs_head_rows(&args->qkv, row, 1, hs_value_column(heads, 0), heads->head_dim);
    memcpy((unsigned char *)args->k_cache.data + at, keys.data, bytes);
    memcpy((unsigned char *)args->v_cache.data + at, values.data, bytes);
}

static void attend_row(const HsAttentionCachedArgs *args, int64_t row, int64_t head)
{
    const HsHeads *heads = &args->heads;
    const int64_t width = heads->head_dim, kv_width = heads->kv_heads * width;
    const int64_t sequence = row / heads->sequence_length, kv_head = head / (heads->heads / heads->kv_heads);
    const int64_t first = sequence * args->k_cache.shape[1] * kv_width + kv_head * width;
    const CacheRows keys = { &args->k_cache, first, kv_width, width };
    const CacheRows values = { &args->v_cache, first, kv_width, width };

    HsF32x16 query[MOST_VECTORS], out[MOST_VECTORS];
    const int64_t query_at = row * args->qkv.shape[1] + head * width, out_at = (row * heads->heads + head) * width;
    for (int64_t d = 0; d < width; d += HS_LANES)
        query[d / HS_LANES] =
            hs_simd_load_part(args->qkv.dtype, args->qkv.data, query_at + d, width - d) * args->rule.scale;
    const int64_t position = args->position_start + row % heads->sequence_length;
    const float *const sink = hs_tensor_present(&args->sinks) ? (const float *)args->sinks.data + head : NULL;
    attend(&keys, &values, hs_first_seen(&args->rule, 0, position), position + 1, args->rule.cap, sink, query, out);
    for (int64_t d = 0; d < width; d += HS_LANES)
        hs_simd_store_part(args->out.dtype, args->out.data, out_at + d, out[d / HS_LANES], width - d);
}

HsStatus HS_ISA_NAME(hs_cpu_attention_cached)(HsContext *context, const HsAttentionCachedArgs *args)
{
    const HsTensor *const tensors[] = { &args->qkv, &args->k_cache, &args->v_cache, &args->out, &args->sinks };
    HS_TRY(hs_attention_refuse_f64("attention_cached", tensors, 5));
    const int64_t rows = hs_heads_rows(&args->heads), heads = args->heads.heads, tasks = rows * heads;

    /* Every row is in the cache before any is read: a later row attends to the earlier ones of the same call. */
    for (int64_t row = 0; row < rows; row++)
        append(args, row);
#pragma omp parallel for num_threads(hs_cpu_threads(context, tasks)) schedule(static)
    for (int64_t task = 0; task < tasks; task++)
        attend_row(args, task / heads, task % heads);
    HS_ISA_NAME(hs_cpu_find_amax)(context, &args->out);
    return HS_OK;
}
