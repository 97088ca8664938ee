/* SPDX-License-Identifier: MIT
 *
 * Attention backward by tiles (Dao 2023, algorithm 2).  With P = exp(S - lse), mask factors F and lanes over queries:
 *     delta = rowsum(dO * O)         dP^T = V dO^T            dS = P * (F dP - delta)
 *     dV += (F P)^T dO               dK += dS^T (scale Q)     dQ^T += K^T dS^T, times scale at the end
 * Five products, nothing computed twice.  One task owns one key/value head of one sequence: its dK and dV stay in the
 * thread's scratch while it walks the query heads of the group and their tiles in order, so no two threads ever add
 * into one element and no atomics are needed.
 */
#include "kernels/cpu/isa/attention_tile.h"

#include <math.h>
#include <omp.h>

/* One thread's scratch.  Columns have a lane per query ([D][64]), rows are row-major ([64][D], or [T][D]). */
typedef struct Scratch {
    HsPanels query_columns, dout_columns, dquery;
    HsPanels query_rows, dout_rows;
    HsPanels score, dscore, mask;
    HsPanels dkey, dvalue;
    float *key, *value;
} Scratch;

/* Cut the scratch; with NULL only the size is of interest.  Returns the floats used. */
static int64_t carve(const HsAttentionBackwardArgs *args, float *floats, Scratch *scratch)
{
    enum { TILE = HS_ATTENTION_TILE };
    const int64_t width = args->heads.head_dim, length = args->heads.sequence_length;
    const struct {
        HsPanels *panels;
        int64_t rows, columns;
    } rows[] = {
        { &scratch->query_columns, width, TILE }, { &scratch->dout_columns, width, TILE },
        { &scratch->dquery, width, TILE },        { &scratch->query_rows, TILE, width },
        { &scratch->dout_rows, TILE, width },     { &scratch->score, TILE, TILE },
        { &scratch->dscore, TILE, TILE },         { &scratch->mask, TILE, TILE },
        { &scratch->dkey, length, width },        { &scratch->dvalue, length, width },
    };
    int64_t used = 0;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        *rows[i].panels = hs_panels(floats ? floats + used : NULL, rows[i].rows);
        used += hs_panels_floats(rows[i].rows, rows[i].columns);
    }
    scratch->key = floats ? floats + used : NULL;
    scratch->value = floats ? floats + used + TILE * width : NULL;
    return used + 2 * TILE * width;
}

static size_t slot_bytes(const HsAttentionBackwardArgs *args)
{
    Scratch scratch;
    return hs_cpu_align((size_t)carve(args, NULL, &scratch) * sizeof(float));
}

size_t HS_ISA_NAME(hs_cpu_attention_backward_workspace)(const HsContext *context, const HsAttentionBackwardArgs *args)
{
    return slot_bytes(args) * (size_t)hs_cpu_thread_slots(context);
}

/* What a query tile brings to every key tile, lanes over its queries. */
typedef struct QueryState {
    HsF32x16 lse[HS_ATTENTION_GROUPS], delta[HS_ATTENTION_GROUPS];
} QueryState;

static void load_queries(const HsAttentionBackwardArgs *args, const HsAttentionPlace *place, const Scratch *scratch,
                         QueryState *state)
{
    const HsHeads *heads = &args->heads;
    const int64_t width = heads->head_dim, row = place->sequence * heads->sequence_length + place->query;
    const HsHeadRows queries = hs_head_rows(&args->qkv, row, place->queries, place->head * width, width);
    const HsHeadRows douts = hs_head_rows(&args->dout, row, place->queries, place->head * width, width);
    const HsHeadRows outs = hs_head_rows(&args->out, row, place->queries, place->head * width, width);
    HS_ISA_NAME(hs_attention_load_columns)(&queries, args->scale, scratch->query_columns);
    HS_ISA_NAME(hs_attention_load_rows)(&queries, args->scale, scratch->query_rows);
    HS_ISA_NAME(hs_attention_load_columns)(&douts, 1.0f, scratch->dout_columns);
    HS_ISA_NAME(hs_attention_load_rows)(&douts, 1.0f, scratch->dout_rows);
    HS_ISA_NAME(hs_attention_load_columns)(&outs, 1.0f, scratch->dquery); /* only until the first key tile */

    const float *lse = args->lse.data;
    for (int group = 0; group * HS_LANES < place->queries; group++) {
        /* Lanes past the last query have q = dO = 0: with any finite lse they add nothing anywhere. */
        state->lse[group] = state->delta[group] = (HsF32x16){ 0 };
        for (int lane = 0; lane < HS_LANES && group * HS_LANES + lane < place->queries; lane++)
            state->lse[group][lane] = lse[(row + group * HS_LANES + lane) * heads->heads + place->head];
        for (int64_t d = 0; d < width; d++)
            state->delta[group] +=
                hs_group_load(scratch->dout_columns, d, group) * hs_group_load(scratch->dquery, d, group);
    }
}

/* score: S^T -> (F P)^T;  dscore: dP^T -> dS^T */
static void differentiate(const HsAttentionBackwardArgs *args, const HsAttentionPlace *place, const Scratch *scratch,
                          const QueryState *state)
{
    for (int64_t key = 0; key < place->keys; key++) {
        for (int group = hs_first_group(place->diagonal, key); group * HS_LANES < place->queries; group++) {
            HsF32x16 p = hs_simd_exp(hs_group_load(scratch->score, key, group) - state->lse[group]);
            if (place->diagonal && key / HS_LANES == group)
                p = hs_group_hide(p, (int)(key % HS_LANES), 0.0f);
            HsF32x16 dp = hs_group_load(scratch->dscore, key, group), kept = p;
            if (args->dropout > 0) {
                const HsF32x16 factor = hs_group_load(scratch->mask, key, group);
                kept *= factor;
                dp *= factor;
            }
            hs_group_store(scratch->score, key, group, kept);
            hs_group_store(scratch->dscore, key, group, p * (dp - state->delta[group]));
        }
    }
}

/* out [key][d] += weights [key][query] rows [query][d]; `first`: overwrite.  Keys of the diagonal skip the whole groups
 * of queries before them; the weights' panels are visited one after the other. */
static void add_to_keys(const HsAttentionPlace *place, HsPanels weights, HsPanels rows, int64_t width, bool first,
                        HsPanels out)
{
    const int64_t step = place->diagonal ? HS_LANES : place->keys;
    for (int64_t key = 0; key < place->keys; key += step) {
        const int64_t start = place->diagonal ? key : 0;
        int64_t count;
        for (int64_t query = start; query < place->queries; query += count) {
            const int64_t column = query % HS_TILE_COLUMNS, left = place->queries - query;
            count = left < HS_TILE_COLUMNS - column ? left : HS_TILE_COLUMNS - column;
            const HsTileProduct product = { .a = weights.data + query / HS_TILE_COLUMNS * weights.stride +
                                                 key * HS_TILE_COLUMNS + column,
                                            .a_row = HS_TILE_COLUMNS,
                                            .a_step = 1,
                                            .b = hs_panels_from(rows, query),
                                            .out = hs_panels_from(out, place->key + key),
                                            .rows = place->keys - key < step ? place->keys - key : step,
                                            .depth = count,
                                            .begin = 0,
                                            .end = width,
                                            .resume = !first || query > start };
            HS_ISA_NAME(hs_attention_multiply)(&product);
        }
    }
}

static void key_tile(const HsAttentionBackwardArgs *args, const HsAttentionPlace *place, const Scratch *scratch,
                     const QueryState *state)
{
    const HsHeads *heads = &args->heads;
    const int64_t width = heads->head_dim, row = place->sequence * heads->sequence_length + place->key;
    const int64_t group = heads->heads / heads->kv_heads, kv_head = place->head / group;
    const HsHeadRows keys = hs_head_rows(&args->qkv, row, place->keys, hs_key_column(heads, kv_head), width);
    const HsHeadRows values = hs_head_rows(&args->qkv, row, place->keys, hs_value_column(heads, kv_head), width);
    hs_attention_load_plain(&keys, scratch->key);
    hs_attention_load_plain(&values, scratch->value);

    HS_ISA_NAME(hs_attention_scores)(place, scratch->key, scratch->query_columns, width, scratch->score);
    HS_ISA_NAME(hs_attention_scores)(place, scratch->value, scratch->dout_columns, width, scratch->dscore);
    if (args->dropout > 0) {
        const HsDropoutTile tile = hs_attention_dropout_tile(heads, &args->rng, args->dropout, place);
        HS_ISA_NAME(hs_attention_dropout)(&tile, scratch->mask);
    }
    differentiate(args, place, scratch, state);
    /* A key tile is first met on the diagonal of the group's first head. */
    const bool first = place->diagonal && place->head % group == 0;
    add_to_keys(place, scratch->score, scratch->dout_rows, width, first, scratch->dvalue);
    add_to_keys(place, scratch->dscore, scratch->query_rows, width, first, scratch->dkey);
    HS_ISA_NAME(hs_attention_sums)(place, scratch->key, scratch->dscore, width, scratch->dquery);
}

static void query_head(const HsAttentionBackwardArgs *args, int64_t sequence, int64_t head, const Scratch *scratch)
{
    const HsHeads *heads = &args->heads;
    const int64_t width = heads->head_dim, length = heads->sequence_length;
    HsAttentionPlace place = { .sequence = sequence, .head = head };
    for (place.query = 0; place.query < length; place.query += HS_ATTENTION_TILE) {
        const int64_t left = length - place.query;
        place.queries = left < HS_ATTENTION_TILE ? left : HS_ATTENTION_TILE;
        QueryState state;
        load_queries(args, &place, scratch, &state);
        for (place.key = 0; place.key <= place.query; place.key += HS_ATTENTION_TILE) {
            place.diagonal = place.key == place.query;
            place.keys = place.diagonal ? place.queries : HS_ATTENTION_TILE;
            key_tile(args, &place, scratch, &state);
        }
        HsF32x16 factors[HS_ATTENTION_GROUPS];
        for (int group = 0; group < HS_ATTENTION_GROUPS; group++)
            factors[group] = hs_simd_splat(args->scale);
        const HsHeadRows dqueries =
            hs_head_rows(&args->dqkv, sequence * length + place.query, place.queries, head * width, width);
        HS_ISA_NAME(hs_attention_store_columns)(scratch->dquery, factors, &dqueries);
    }
}

HsStatus HS_ISA_NAME(hs_cpu_attention_backward)(HsContext *context, const HsAttentionBackwardArgs *args)
{
    const HsTensor *const tensors[] = { &args->dout, &args->qkv, &args->out, &args->lse, &args->dqkv };
    HS_TRY(hs_attention_refuse_f64("attention_backward", tensors, 5));
    const HsHeads *heads = &args->heads;
    const int64_t width = heads->head_dim, length = heads->sequence_length, group = heads->heads / heads->kv_heads;
    const int64_t tasks = heads->batch * heads->kv_heads;
    const size_t slot = slot_bytes(args);
    unsigned char *workspace = context->workspace;

#pragma omp parallel for num_threads(hs_cpu_threads(context, tasks)) schedule(dynamic, 1)
    for (int64_t task = 0; task < tasks; task++) {
        const int64_t sequence = task / heads->kv_heads, kv_head = task % heads->kv_heads;
        Scratch scratch;
        carve(args, (float *)(workspace + (size_t)omp_get_thread_num() * slot), &scratch);
        for (int64_t head = kv_head * group; head < (kv_head + 1) * group; head++)
            query_head(args, sequence, head, &scratch);
        const HsHeadRows dkeys =
            hs_head_rows(&args->dqkv, sequence * length, length, hs_key_column(heads, kv_head), width);
        const HsHeadRows dvalues =
            hs_head_rows(&args->dqkv, sequence * length, length, hs_value_column(heads, kv_head), width);
        HS_ISA_NAME(hs_attention_store_rows)(scratch.dkey, &dkeys);
        HS_ISA_NAME(hs_attention_store_rows)(scratch.dvalue, &dvalues);
    }
    return HS_OK;
}
