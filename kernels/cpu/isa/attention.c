/* SPDX-License-Identifier: MIT
 *
 * Attention forward: the online softmax by tiles (Dao 2023, algorithm 1; Milakov & Gimelshein 2018).  One task is a
 * tile of 64 queries of one head; it visits the key tiles before it in order, so the arithmetic of an element depends
 * on nothing but its position.  For every key tile, with lanes over queries (attention_tile.h):
 *     S^T = K Q^T    m' = max(m, max_k c S)    P = 2^(c S - m')    l = l 2^(m - m') + sum_k P,    c = scale log2 e
 *     O^T = O^T 2^(m - m') + V^T (dropout P)^T      at the end  out = O / l,  lse = m ln 2 + log l
 * m need not be the largest score, only near it: a query keeps its m until a score exceeds it by SLACK, which bounds P
 * by 2^SLACK and leaves most tiles without rescaling.  The first m is a score, so that l >= 1 as ever; before it, while
 * all keys are hidden, m is finite, so that P of a hidden score of -infinity is 0.  A sink comes last, as one more score
 * that no value belongs to.
 */
#include "kernels/cpu/isa/attention_tile.h"

#include <float.h>
#include <math.h>
#include <omp.h>

/* One thread's scratch, in floats: [D][64] queries and sums, [64][64] scores and masks, [T][D] keys and values of a
 * head: words for the products, one after the other, which later query tiles and heads of the group find again. */
typedef struct Scratch {
    HsPanels query, sum, score, mask;
    float *key, *value;
    int64_t head, loaded; /* which key/value head of which sequence, and how many keys of it */
} Scratch;

static int64_t key_floats(const HsHeads *heads)
{
    return hs_cpu_block_count(heads->sequence_length * heads->head_dim, HS_LANES) * HS_LANES;
}

static int64_t scratch_floats(const HsAttentionArgs *args)
{
    const int64_t columns = hs_panels_floats(args->heads.head_dim, HS_ATTENTION_TILE);
    return 2 * columns + 2 * hs_panels_floats(HS_ATTENTION_TILE, HS_ATTENTION_TILE) + key_floats(&args->heads) +
           hs_across_floats(args->heads.sequence_length, args->heads.head_dim);
}

static Scratch carve(const HsAttentionArgs *args, float *floats)
{
    const int64_t width = args->heads.head_dim, columns = hs_panels_floats(width, HS_ATTENTION_TILE);
    const int64_t square = hs_panels_floats(HS_ATTENTION_TILE, HS_ATTENTION_TILE);
    float *keys = floats + 2 * columns + 2 * square;
    return (Scratch){ .query = hs_panels(floats, width),
                      .sum = hs_panels(floats + columns, width),
                      .score = hs_panels(floats + 2 * columns, HS_ATTENTION_TILE),
                      .mask = hs_panels(floats + 2 * columns + square, HS_ATTENTION_TILE),
                      .key = keys,
                      .value = keys + key_floats(&args->heads),
                      .head = -1 };
}

size_t HS_ISA_NAME(hs_cpu_attention_forward_workspace)(const HsContext *context, const HsAttentionArgs *args)
{
    return hs_cpu_align((size_t)scratch_floats(args) * sizeof(float)) * (size_t)hs_cpu_thread_slots(context);
}

#define SLACK 8.0f

/* The running softmax of one group of queries, with the maximum in units of base 2. */
typedef struct Softmax {
    HsF32Parts maximum, total;
} Softmax;

/* What a key tile asks of every group. */
typedef struct KeyTile {
    HsPanelFormat format;
    HsPanels score;
    const HsPanels *mask; /* factors of dropout, or none */
    float factor;         /* c */
} KeyTile;

/* P of one key; the sum l takes it before dropout. */
HS_SIMD HsF32Part probability(const KeyTile *tile, int64_t key, int group, int part, HsF32Part maximum, HsF32Part *sum)
{
    const HsF32Part score = hs_group_load_part(tile->score, key, group, part);
    const HsF32Part p = hs_attention_exp2_part(score * tile->factor - maximum);
    *sum += p;
    return tile->mask ? p * hs_group_load_part(*tile->mask, key, group, part) : p;
}

/* Two keys' probabilities as the next product's operand, in the place of scores that have been read: a pair's words go
 * to row key / 2. */
HS_SIMD void store_pair(const KeyTile *tile, int64_t key, int group, int part, HsF32Part first, HsF32Part second)
{
#ifdef HS_BF16_PAIRS
    if (tile->format == HS_PANEL_BF16_PAIRS) {
        hs_group_store_part(tile->score, key / 2, group, part, hs_attention_pair(first, second));
        return;
    }
#endif
    hs_group_store_part(tile->score, key, group, part, first);
    hs_group_store_part(tile->score, key + 1, group, part, second);
}

/* Hide from queries of a part the keys that they do not see; first_keys: NULL where the group is not cut. */
HS_SIMD void hide_keys(const HsAttentionPlace *place, const KeyTile *tile, int group, int part,
                       const HsI32Parts *first_keys, int64_t visible)
{
    const int64_t first = group * HS_LANES;
    if (place->diagonal)
        for (int64_t key = first + 1; key < visible; key++) {
            const HsF32Part score = hs_group_load_part(tile->score, key, group, part);
            hs_group_store_part(tile->score, key, group, part,
                                hs_part_hide(score, part, (int)(key - first), tile->factor < 0 ? INFINITY : -INFINITY));
        }

    for (int key = 0; first_keys && key < (int)visible; key++)
        hs_group_store_part(tile->score, key, group, part,
                            hs_part_select(first_keys->part[part] > key, hs_part_splat(-INFINITY),
                                           hs_group_load_part(tile->score, key, group, part)));
}

/* Scores of a part of a group become probabilities under the new maximum; returns 2^(old maximum - new maximum).  Four
 * chains of maxima and sums hide the latency; they are joined in a fixed order. */
HS_SIMD HsF32Part softmax_part(const HsAttentionPlace *place, KeyTile tile, int group, int part,
                               const HsI32Parts *first_keys, Softmax *softmax)
{
    const int64_t first = group * HS_LANES;
    const int64_t visible = place->diagonal && place->keys > first + HS_LANES ? first + HS_LANES : place->keys;
    hide_keys(place, &tile, group, part, first_keys, visible);

    HsF32Part best[4], sums[4];
    for (int chain = 0; chain < 4; chain++) {
        best[chain] = hs_part_splat(-INFINITY);
        sums[chain] = (HsF32Part){ 0 };
    }
    int64_t key = 0;
    for (; key + 4 <= visible; key += 4)
#pragma GCC unroll 4
        for (int chain = 0; chain < 4; chain++)
            best[chain] =
                hs_part_max(best[chain], hs_group_load_part(tile.score, key + chain, group, part) * tile.factor);
    for (; key < visible; key++)
        best[0] = hs_part_max(best[0], hs_group_load_part(tile.score, key, group, part) * tile.factor);
    const HsF32Part largest = hs_part_max(hs_part_max(best[0], best[1]), hs_part_max(best[2], best[3]));
    const HsF32Part before = softmax->maximum.part[part];
    const HsF32Part maximum = hs_part_select(largest <= before + SLACK, before, largest);

    for (key = 0; key + 4 <= visible; key += 4)
#pragma GCC unroll 2
        for (int chain = 0; chain < 4; chain += 2) {
            const HsF32Part p = probability(&tile, key + chain, group, part, maximum, &sums[chain]);
            const HsF32Part next = probability(&tile, key + chain + 1, group, part, maximum, &sums[chain + 1]);
            store_pair(&tile, key + chain, group, part, p, next);
        }
    for (; key < visible; key += 2) { /* an odd last key is paired with zeros */
        const HsF32Part p = probability(&tile, key, group, part, maximum, &sums[0]);
        HsF32Part next = { 0 };
        if (key + 1 < visible)
            next = probability(&tile, key + 1, group, part, maximum, &sums[1]);
        store_pair(&tile, key, group, part, p, next);
    }
    const HsF32Part shrink = hs_attention_exp2_part(before - maximum);
    softmax->total.part[part] = softmax->total.part[part] * shrink + ((sums[0] + sums[1]) + (sums[2] + sums[3]));
    softmax->maximum.part[part] = maximum;
    return shrink;
}

static void softmax_tile(const HsAttentionArgs *args, const HsAttentionPlace *place, HsPanelFormat format,
                         const Scratch *scratch, Softmax *softmax)
{
    KeyTile tile = { .format = format, .score = scratch->score, .factor = args->rule.scale * HS_LOG2_E };
    if (args->dropout > 0) {
        const HsDropoutTile dropped = hs_attention_dropout_tile(&args->heads, &args->rng, args->dropout, place);
        HS_ISA_NAME(hs_attention_dropout)(&dropped, scratch->mask);
        tile.mask = &scratch->mask;
    }
    for (int group = 0; group * HS_LANES < place->queries; group++) {
        const bool cut = hs_attention_cut(place, group);
        HsI32Parts first_keys = { .whole = { 0 } };
        if (cut)
            first_keys = hs_attention_first_keys(place, group);
        HsF32Parts parts;
        for (int part = 0; part < HS_PARTS; part++)
            parts.part[part] = softmax_part(place, tile, group, part, cut ? &first_keys : NULL, &softmax[group]);
        const HsF32x16 shrink = parts.whole;
        const HsI32x16 same = hs_simd_equal(shrink, hs_simd_splat(1.0f));
        const float others = hs_simd_sum(hs_simd_select(same, hs_simd_splat(0.0f), hs_simd_splat(1.0f)));
        if (place->key == place->first_key || others == 0.0f) /* multiplying by 1 changes no bit */
            continue;
        for (int64_t d = 0; d < args->heads.head_dim; d++)
            hs_group_store(scratch->sum, d, group, hs_group_load(scratch->sum, d, group) * shrink);
    }
}

/* Keys and values up to the last that the query tile sees. */
static void load_keys(const HsAttentionArgs *args, const HsAttentionPlace *place, Scratch *scratch)
{
    const HsHeads *heads = &args->heads;
    const HsPanelFormat format = hs_panel_format(args->qkv.dtype);
    const int64_t width = heads->head_dim, kv_head = place->head / (heads->heads / heads->kv_heads);
    const int64_t head = place->sequence * heads->kv_heads + kv_head;
    if (head != scratch->head)
        scratch->loaded = 0;
    scratch->head = head;
    /* `loaded` is a multiple of the tile, or all there is. */
    const int64_t first = scratch->loaded, count = place->query + place->queries - first;
    if (count <= 0)
        return;
    scratch->loaded += count;
    const int64_t row = place->sequence * heads->sequence_length + first;
    const HsHeadRows keys = hs_head_rows(&args->qkv, row, count, hs_key_column(heads, kv_head), width);
    const HsHeadRows values = hs_head_rows(&args->qkv, row, count, hs_value_column(heads, kv_head), width);
    HS_ISA_NAME(hs_attention_load_plain)(&keys, format, scratch->key + first * hs_panel_depth(format, width));
    HS_ISA_NAME(hs_attention_load_across)(&values, format, scratch->value + first / hs_panel_step(format) * width);
}

static void key_tile(const HsAttentionArgs *args, const HsAttentionPlace *place, const Scratch *scratch,
                     Softmax *softmax)
{
    const HsPanelFormat format = hs_panel_format(args->qkv.dtype);
    const int64_t width = args->heads.head_dim;
    const float *keys = scratch->key + place->key * hs_panel_depth(format, width);
    const float *values = scratch->value + place->key / hs_panel_step(format) * width;
    HS_ISA_NAME(hs_attention_scores)(place, format, keys, scratch->query, width, scratch->score);
    HS_ISA_NAME(hs_attention_cap)(place, scratch->score);
    softmax_tile(args, place, format, scratch, softmax);
    HS_ISA_NAME(hs_attention_sums)(place, format, values, scratch->score, width, scratch->sum);
}

/* The head's sink in the denominator; returns 2^(old maximum - new maximum), 1 where there is none. */
static HsF32x16 add_sink(const HsAttentionArgs *args, int64_t head, Softmax *softmax)
{
    if (!hs_tensor_present(&args->sinks))
        return hs_simd_splat(1.0f);
    const HsF32x16 sink = hs_simd_splat(((const float *)args->sinks.data)[head] * HS_LOG2_E);
    const HsF32x16 maximum = hs_simd_max(softmax->maximum.whole, sink);
    const HsF32x16 shrink = hs_attention_exp2(softmax->maximum.whole - maximum);
    softmax->total.whole = softmax->total.whole * shrink + hs_attention_exp2(sink - maximum);
    softmax->maximum.whole = maximum;
    return shrink;
}

static void query_tile(const HsAttentionArgs *args, HsAttentionPlace place, Scratch *scratch)
{
    const HsHeads *heads = &args->heads;
    const int64_t width = heads->head_dim, row = place.sequence * heads->sequence_length + place.query;
    const HsHeadRows queries = hs_head_rows(&args->qkv, row, place.queries, place.head * width, width);
    HS_ISA_NAME(hs_attention_load_lanes)(&queries, hs_panel_format(args->qkv.dtype), scratch->query);
    hs_attention_find_keys(&place, &args->rule, row);
    load_keys(args, &place, scratch);
    const HsHeadRows out = hs_head_rows(&args->out, row, place.queries, place.head * width, width);
    for (int64_t q = 0; q < place.queries; q++) /* there when they are written, many key tiles later */
        hs_attention_ask(&out, q, true);

    Softmax softmax[HS_ATTENTION_GROUPS];
    for (int group = 0; group < HS_ATTENTION_GROUPS; group++)
        softmax[group] = (Softmax){ .maximum.whole = hs_simd_splat(-FLT_MAX) };
    for (place.key = place.first_key; place.key <= place.query; place.key += HS_ATTENTION_TILE) {
        place.diagonal = place.key == place.query;
        place.keys = place.diagonal ? place.queries : HS_ATTENTION_TILE;
        key_tile(args, &place, scratch, softmax);
    }

    HsF32x16 inverse[HS_ATTENTION_GROUPS];
    for (int group = 0; group < HS_ATTENTION_GROUPS; group++) {
        const HsF32x16 shrink = add_sink(args, place.head, &softmax[group]);
        inverse[group] = shrink / softmax[group].total.whole;
    }
    HS_ISA_NAME(hs_attention_store_columns)(scratch->sum, inverse, &out);
    float *lse = args->lse.data;
    for (int64_t q = 0; q < place.queries; q++) {
        const Softmax *group = &softmax[q / HS_LANES];
        lse[(row + q) * heads->heads + place.head] =
            group->maximum.whole[q % HS_LANES] * HS_LN_2 + logf(group->total.whole[q % HS_LANES]);
    }
}

HsStatus HS_ISA_NAME(hs_cpu_attention_forward)(HsContext *context, const HsAttentionArgs *args)
{
    const HsTensor *const tensors[] = { &args->qkv, &args->out, &args->lse, &args->sinks };
    HS_TRY(hs_attention_refuse_f64("attention_forward", tensors, 4));
    const HsHeads *heads = &args->heads;
    const int64_t tiles = hs_cpu_block_count(heads->sequence_length, HS_ATTENTION_TILE);
    const int64_t tasks = tiles * heads->batch * heads->heads;
    const size_t slot = hs_cpu_align((size_t)scratch_floats(args) * sizeof(float));
    unsigned char *workspace = context->workspace;
    /* Where heads are many, a thread takes a whole one, and loads its keys for itself alone. */
    const int threads = hs_cpu_threads(context, tasks);
    const int64_t chunk = tasks / tiles >= 8 * threads ? tiles : 1;

    HsTurns turns;
    hs_turns_begin(&turns, tasks / chunk, 1, threads);

    /* The last tiles see the most keys: within a head long tasks first, so that threads finish together.  Heads one
     * after the other, so that tasks find their keys and values in a cache. */
#pragma omp parallel num_threads(threads)
    {
        Scratch scratch = carve(args, (float *)(workspace + (size_t)omp_get_thread_num() * slot));
        HsTurn turn = hs_turn_first(&turns, omp_get_thread_num());
        while (hs_turn_take(&turns, &turn))
            for (int64_t task = turn.row * chunk; task < (turn.row + 1) * chunk; task++) {
                const int64_t query = (tiles - 1 - task % tiles) * HS_ATTENTION_TILE, head = task / tiles;
                const int64_t left = heads->sequence_length - query;
                const HsAttentionPlace place = { .sequence = head / heads->heads,
                                                 .head = head % heads->heads,
                                                 .query = query,
                                                 .queries = left < HS_ATTENTION_TILE ? left : HS_ATTENTION_TILE };
                query_tile(args, place, &scratch);
            }
    }
    HS_ISA_NAME(hs_cpu_find_amax)(context, &args->out);
    return HS_OK;
}
