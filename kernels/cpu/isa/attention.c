/* SPDX-License-Identifier: MIT
 *
 * Attention forward: the online softmax by tiles (Dao 2023, algorithm 1; Milakov & Gimelshein 2018).  One task is a
 * tile of 64 queries of one head; it visits the key tiles before it in order, so the arithmetic of an element depends
 * on nothing but its position.  For every key tile, with lanes over queries (attention_tile.h):
 *     S^T = K (scale Q)^T    m' = max(m, max_k S)    P = exp(S - m')    l = l exp(m - m') + sum_k P
 *     O^T = O^T exp(m - m') + V^T (dropout P)^T      at the end  out = O / l,  lse = m + log l
 */
#include "kernels/cpu/isa/attention_tile.h"

#include <math.h>
#include <omp.h>

/* One thread's scratch, in floats: [D][64] queries and sums, [64][D] keys and values, [64][64] scores and masks. */
typedef struct Scratch {
    HsPanels query, sum, score, mask;
    float *key, *value;
} Scratch;

static int64_t scratch_floats(const HsAttentionArgs *args)
{
    const int64_t columns = hs_panels_floats(args->heads.head_dim, HS_ATTENTION_TILE);
    return 4 * columns + 2 * hs_panels_floats(HS_ATTENTION_TILE, HS_ATTENTION_TILE);
}

static Scratch carve(const HsAttentionArgs *args, float *floats)
{
    const int64_t width = args->heads.head_dim, columns = hs_panels_floats(width, HS_ATTENTION_TILE);
    const int64_t square = hs_panels_floats(HS_ATTENTION_TILE, HS_ATTENTION_TILE);
    return (Scratch){ .query = hs_panels(floats, width),
                      .sum = hs_panels(floats + columns, width),
                      .key = floats + 2 * columns,
                      .value = floats + 3 * columns,
                      .score = hs_panels(floats + 4 * columns, HS_ATTENTION_TILE),
                      .mask = hs_panels(floats + 4 * columns + square, HS_ATTENTION_TILE) };
}

size_t HS_ISA_NAME(hs_cpu_attention_forward_workspace)(const HsContext *context, const HsAttentionArgs *args)
{
    return hs_cpu_align((size_t)scratch_floats(args) * sizeof(float)) * (size_t)hs_cpu_thread_slots(context);
}

/* The running softmax of one group of queries. */
typedef struct Softmax {
    HsF32x16 maximum, total;
} Softmax;

static inline HsF32x16 exponentiate(HsPanels score, int64_t key, int group, HsF32x16 maximum)
{
    const HsF32x16 probability = hs_simd_exp(hs_group_load(score, key, group) - maximum);
    hs_group_store(score, key, group, probability);
    return probability;
}

/* Scores of one group become probabilities under the new maximum; returns exp(old maximum - new maximum).  Four chains
 * of maxima and sums hide the latency; they are joined in a fixed order. */
static HsF32x16 softmax_group(const HsAttentionPlace *place, HsPanels score, int group, Softmax *softmax)
{
    const int64_t first = group * HS_LANES;
    const int64_t visible = place->diagonal && place->keys > first + HS_LANES ? first + HS_LANES : place->keys;
    if (place->diagonal)
        for (int64_t key = first + 1; key < visible; key++)
            hs_group_store(score, key, group,
                           hs_group_hide(hs_group_load(score, key, group), (int)(key - first), -INFINITY));

    HsF32x16 best[4], sums[4];
    for (int chain = 0; chain < 4; chain++) {
        best[chain] = softmax->maximum;
        sums[chain] = (HsF32x16){ 0 };
    }
    int64_t key = 0;
    for (; key + 4 <= visible; key += 4)
#pragma GCC unroll 4
        for (int chain = 0; chain < 4; chain++)
            best[chain] = hs_simd_max(best[chain], hs_group_load(score, key + chain, group));
    for (; key < visible; key++)
        best[0] = hs_simd_max(best[0], hs_group_load(score, key, group));
    const HsF32x16 maximum = hs_simd_max(hs_simd_max(best[0], best[1]), hs_simd_max(best[2], best[3]));

    for (key = 0; key + 4 <= visible; key += 4)
#pragma GCC unroll 4
        for (int chain = 0; chain < 4; chain++)
            sums[chain] += exponentiate(score, key + chain, group, maximum);
    for (; key < visible; key++)
        sums[0] += exponentiate(score, key, group, maximum);
    const HsF32x16 shrink = hs_simd_exp(softmax->maximum - maximum);
    softmax->total = softmax->total * shrink + ((sums[0] + sums[1]) + (sums[2] + sums[3]));
    softmax->maximum = maximum;
    return shrink;
}

/* Probabilities of kept pairs / (1 - p), of others 0; the total l has been taken before. */
static void drop_tile(const HsAttentionArgs *args, const HsAttentionPlace *place, const Scratch *scratch)
{
    const HsDropoutTile tile = hs_attention_dropout_tile(&args->heads, &args->rng, args->dropout, place);
    HS_ISA_NAME(hs_attention_dropout)(&tile, scratch->mask);
    for (int64_t key = 0; key < place->keys; key++)
        for (int group = hs_first_group(place->diagonal, key); group * HS_LANES < place->queries; group++)
            hs_group_store(scratch->score, key, group,
                           hs_group_load(scratch->score, key, group) * hs_group_load(scratch->mask, key, group));
}

static void key_tile(const HsAttentionArgs *args, const HsAttentionPlace *place, const Scratch *scratch,
                     Softmax *softmax)
{
    const HsHeads *heads = &args->heads;
    const int64_t width = heads->head_dim, row = place->sequence * heads->sequence_length + place->key;
    const int64_t kv_head = place->head / (heads->heads / heads->kv_heads);
    const HsHeadRows keys = hs_head_rows(&args->qkv, row, place->keys, hs_key_column(heads, kv_head), width);
    const HsHeadRows values = hs_head_rows(&args->qkv, row, place->keys, hs_value_column(heads, kv_head), width);
    hs_attention_load_plain(&keys, scratch->key);
    hs_attention_load_plain(&values, scratch->value);

    HS_ISA_NAME(hs_attention_scores)(place, scratch->key, scratch->query, width, scratch->score);
    for (int group = 0; group * HS_LANES < place->queries; group++) {
        const HsF32x16 shrink = softmax_group(place, scratch->score, group, &softmax[group]);
        for (int64_t d = 0; d < width && place->key > 0; d++)
            hs_group_store(scratch->sum, d, group, hs_group_load(scratch->sum, d, group) * shrink);
    }
    if (args->dropout > 0)
        drop_tile(args, place, scratch);
    HS_ISA_NAME(hs_attention_sums)(place, scratch->value, scratch->score, width, scratch->sum);
}

static void query_tile(const HsAttentionArgs *args, HsAttentionPlace place, float *floats)
{
    const HsHeads *heads = &args->heads;
    const int64_t width = heads->head_dim, row = place.sequence * heads->sequence_length + place.query;
    const Scratch scratch = carve(args, floats);
    const HsHeadRows queries = hs_head_rows(&args->qkv, row, place.queries, place.head * width, width);
    HS_ISA_NAME(hs_attention_load_columns)(&queries, args->scale, scratch.query);

    Softmax softmax[HS_ATTENTION_GROUPS];
    for (int group = 0; group < HS_ATTENTION_GROUPS; group++)
        softmax[group] = (Softmax){ .maximum = (HsF32x16){ 0 } - INFINITY, .total = (HsF32x16){ 0 } };
    for (place.key = 0; place.key <= place.query; place.key += HS_ATTENTION_TILE) {
        place.diagonal = place.key == place.query;
        place.keys = place.diagonal ? place.queries : HS_ATTENTION_TILE;
        key_tile(args, &place, &scratch, softmax);
    }

    HsF32x16 inverse[HS_ATTENTION_GROUPS];
    for (int group = 0; group < HS_ATTENTION_GROUPS; group++)
        inverse[group] = 1.0f / softmax[group].total;
    const HsHeadRows out = hs_head_rows(&args->out, row, place.queries, place.head * width, width);
    HS_ISA_NAME(hs_attention_store_columns)(scratch.sum, inverse, &out);
    float *lse = args->lse.data;
    for (int64_t q = 0; q < place.queries; q++) {
        const Softmax *group = &softmax[q / HS_LANES];
        lse[(row + q) * heads->heads + place.head] = group->maximum[q % HS_LANES] + logf(group->total[q % HS_LANES]);
    }
}

HsStatus HS_ISA_NAME(hs_cpu_attention_forward)(HsContext *context, const HsAttentionArgs *args)
{
    const HsTensor *const tensors[] = { &args->qkv, &args->out, &args->lse };
    HS_TRY(hs_attention_refuse_f64("attention_forward", tensors, 3));
    const HsHeads *heads = &args->heads;
    const int64_t tiles = hs_cpu_block_count(heads->sequence_length, HS_ATTENTION_TILE);
    const int64_t per_tile = heads->batch * heads->heads, tasks = tiles * per_tile;
    const size_t slot = hs_cpu_align((size_t)scratch_floats(args) * sizeof(float));
    unsigned char *workspace = context->workspace;

    /* The last tiles see the most keys: long tasks first, so that threads finish together. */
#pragma omp parallel for num_threads(hs_cpu_threads(context, tasks)) schedule(dynamic, 1)
    for (int64_t task = 0; task < tasks; task++) {
        const int64_t query = (tiles - 1 - task / per_tile) * HS_ATTENTION_TILE;
        const int64_t left = heads->sequence_length - query;
        const HsAttentionPlace place = { .sequence = task % per_tile / heads->heads,
                                         .head = task % heads->heads,
                                         .query = query,
                                         .queries = left < HS_ATTENTION_TILE ? left : HS_ATTENTION_TILE };
        query_tile(args, place, (float *)(workspace + (size_t)omp_get_thread_num() * slot));
    }
    return HS_OK;
}
