/* SPDX-License-Identifier: MIT
 *
 * Attention backward by tiles (Dao 2023, algorithm 2), lanes over queries.  F are the mask's factors:
 *     S = Q K^T                  P = exp(scale S - lse)
 *     delta = rowsum(dO * O)     dP^T = V dO^T       dS = P * (F dP - delta)
 *     dV += (F P)^T dO           dK += dS^T Q        dQ^T += K^T dS^T           dK and dQ times scale at the end
 * Five products, nothing computed twice.  One task owns one key/value head of one sequence: its dK and dV stay in the
 * thread's scratch while it walks the query heads of the group and their tiles in order, so no two threads ever add
 * into one element and no atomics are needed.
 */
#include "kernels/cpu/isa/attention_tile.h"

#include <math.h>
#include <omp.h>

/* One thread's scratch.  Columns have a lane per query ([D][64]), rows are row-major ([64][D], or [T][D]), squares have
 * a lane per query too ([64][64]).  P and dS are operands twice: with queries as the depth, and dS with keys. */
typedef struct Scratch {
    HsPanels query_columns, dout_columns, dquery;
    HsPanels query_rows, dout_rows;
    HsPanels score, dscore, mask;
    HsPanels weight, dweight; /* rows of bf16 [key][query], where these are the format */
    HsPanels dkey, dvalue;
    float *key, *key_across, *value; /* [T][D] of the task's head, in words for the products */
} Scratch;

static HsPanelFormat format_of(const HsAttentionBackwardArgs *args)
{
    return args->dout.dtype == args->qkv.dtype ? hs_panel_format(args->qkv.dtype) : HS_PANEL_F32;
}

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
        { &scratch->weight, TILE / 2, TILE },     { &scratch->dweight, TILE / 2, TILE },
        { &scratch->dkey, length, width },        { &scratch->dvalue, length, width },
    };
    int64_t used = 0;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        *rows[i].panels = hs_panels(floats ? floats + used : NULL, rows[i].rows);
        used += hs_panels_floats(rows[i].rows, rows[i].columns);
    }
    const int64_t keys = hs_cpu_block_count(length * width, HS_LANES) * HS_LANES;
    scratch->key = floats ? floats + used : NULL;
    scratch->value = floats ? floats + used + keys : NULL;
    scratch->key_across = floats ? floats + used + 2 * keys : NULL;
    return used + 2 * keys + hs_across_floats(length, width);
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
    HsF32Parts exponent[HS_ATTENTION_GROUPS], delta[HS_ATTENTION_GROUPS]; /* lse in units of base 2 */
} QueryState;

static void load_queries(const HsAttentionBackwardArgs *args, const HsAttentionPlace *place, const Scratch *scratch,
                         QueryState *state)
{
    const HsHeads *heads = &args->heads;
    const int64_t width = heads->head_dim, row = place->sequence * heads->sequence_length + place->query;
    const HsHeadRows queries = hs_head_rows(&args->qkv, row, place->queries, place->head * width, width);
    const HsHeadRows douts = hs_head_rows(&args->dout, row, place->queries, place->head * width, width);
    const HsHeadRows outs = hs_head_rows(&args->out, row, place->queries, place->head * width, width);
    const HsPanelFormat format = format_of(args);
    HS_ISA_NAME(hs_attention_load_lanes)(&queries, format, scratch->query_columns);
    HS_ISA_NAME(hs_attention_load_rows)(&queries, format, scratch->query_rows);
    HS_ISA_NAME(hs_attention_load_lanes)(&douts, format, scratch->dout_columns);
    HS_ISA_NAME(hs_attention_load_rows)(&douts, format, scratch->dout_rows);

    const float *lse = args->lse.data;
    float exponents[HS_ATTENTION_TILE] = { 0 }, deltas[HS_ATTENTION_TILE] = { 0 };
    for (int64_t q = 0; q < place->queries; q++) { /* past the last query q = dO = 0, which add nothing */
        HsF32Parts sum = { .whole = { 0 } };
        for (int64_t d = 0; d < width; d += HS_LANES)
            hs_simd_accumulate(&sum, hs_simd_load_part(douts.dtype, hs_head_row(&douts, q), d, width - d) *
                                         hs_simd_load_part(outs.dtype, hs_head_row(&outs, q), d, width - d));
        deltas[q] = hs_simd_sum(sum.whole);
        exponents[q] = lse[(row + q) * heads->heads + place->head] * HS_LOG2_E;
    }
    memcpy(state->exponent, exponents, sizeof exponents);
    memcpy(state->delta, deltas, sizeof deltas);
}

/* While the key tiles are at work: the next query tile's rows. */
static void ask_for_next(const HsAttentionBackwardArgs *args, const HsAttentionPlace *place)
{
    const HsHeads *heads = &args->heads;
    const int64_t left = heads->sequence_length - place->query - place->queries;
    const int64_t row = place->sequence * heads->sequence_length + place->query + place->queries;
    const int64_t count = left < HS_ATTENTION_TILE ? left : HS_ATTENTION_TILE, column = place->head * heads->head_dim;
    const HsTensor *const tensors[] = { &args->qkv, &args->dout, &args->out };
    for (int i = 0; i < 3; i++) {
        const HsHeadRows rows = hs_head_rows(tensors[i], row, count, column, heads->head_dim);
        for (int64_t q = 0; q < count; q++)
            hs_attention_ask(&rows, q, false);
    }
}

/* F P and dS of one key for a part of a group of queries. */
typedef struct KeyGradient {
    HsF32Part weight, dscore;
} KeyGradient;

/* What the part's keys have in common: local, so that stores through other pointers leave it in registers. */
typedef struct PartState {
    HsPanels score, dscore, mask;
    bool dropout, diagonal, cut;
    int group, part;
    float factor;         /* scale log2 e */
    HsI32Part first_keys; /* where `cut` */
    float share;          /* scale / cap: of a capped score to its tanh; 0: none is capped */
    HsF32Part exponent, delta;
} PartState;

HS_SIMD KeyGradient gradient_of(PartState state, int64_t key)
{
    const HsF32Part score = hs_group_load_part(state.score, key, state.group, state.part);
    HsF32Part p = hs_attention_exp2_part(score * state.factor - state.exponent);
    if (state.diagonal && key / HS_LANES == state.group)
        p = hs_part_hide(p, state.part, (int)(key % HS_LANES), 0.0f);
    if (state.cut)
        p = hs_part_select(state.first_keys > (int)key, (HsF32Part){ 0 }, p);
    HsF32Part dp = hs_group_load_part(state.dscore, key, state.group, state.part), kept = p;
    if (state.dropout) {
        const HsF32Part factor = hs_group_load_part(state.mask, key, state.group, state.part);
        kept *= factor;
        dp *= factor;
    }
    HsF32Part dscore = p * (dp - state.delta);
    if (state.share != 0) { /* capped: times 1 - tanh^2 */
        const HsF32Part share = score * state.share;
        dscore *= 1.0f - share * share;
    }
    return (KeyGradient){ kept, dscore };
}

#ifdef HS_BF16_PAIRS
/* Words of pairs of queries: bf16 of one key's row. */
HS_SIMD void store_halves(HsPanels out, int64_t key, int group, int part, HsF32Part value)
{
    const int64_t column = (int64_t)group * HS_LANES + part * HS_PART_LANES;
    hs_attention_store_halves(out.data + column / HS_TILE_COLUMNS * out.stride +
                                  (key * HS_TILE_COLUMNS + column % HS_TILE_COLUMNS) / 2,
                              value);
}

HS_SIMD void store_pairs(const Scratch *scratch, PartState state, int64_t key, KeyGradient first, KeyGradient second)
{
    hs_group_store_part(state.dscore, key / 2, state.group, state.part, hs_attention_pair(first.dscore, second.dscore));
    store_halves(scratch->weight, key, state.group, state.part, first.weight);
    store_halves(scratch->weight, key + 1, state.group, state.part, second.weight);
    store_halves(scratch->dweight, key, state.group, state.part, first.dscore);
    store_halves(scratch->dweight, key + 1, state.group, state.part, second.dscore);
}
#endif

HS_SIMD void store_words(PartState state, int64_t key, KeyGradient gradient)
{
    hs_group_store_part(state.score, key, state.group, state.part, gradient.weight);
    hs_group_store_part(state.dscore, key, state.group, state.part, gradient.dscore);
}

HS_SIMD void differentiate_part(const Scratch *scratch, HsPanelFormat format, PartState state, int64_t visible)
{
    for (int64_t key = 0; key < visible; key += 2) {
        const KeyGradient first = gradient_of(state, key);
        KeyGradient second = { { 0 }, { 0 } }; /* pairs an odd last key */
        if (key + 1 < visible)
            second = gradient_of(state, key + 1);
#ifdef HS_BF16_PAIRS
        if (format == HS_PANEL_BF16_PAIRS) {
            store_pairs(scratch, state, key, first, second);
            continue;
        }
#else
        (void)scratch, (void)format;
#endif
        store_words(state, key, first);
        store_words(state, key + 1, second);
    }
}

/* score: S^T -> (F P)^T;  dscore: dP^T -> dS^T.  As pairs of bf16, dS^T is paired by keys in its place, by queries in
 * dweight; (F P)^T by queries in weight. */
static void differentiate(const HsAttentionBackwardArgs *args, const HsAttentionPlace *place, const Scratch *scratch,
                          const QueryState *state)
{
    for (int group = 0; group * HS_LANES < place->queries; group++) {
        const bool cut = hs_attention_cut(place, group);
        const HsI32Parts first_keys = cut ? hs_attention_first_keys(place, group) : (HsI32Parts){ .whole = { 0 } };
        const int64_t seen = place->diagonal ? (int64_t)(group + 1) * HS_LANES : place->keys;
        for (int part = 0; part < HS_PARTS; part++) {
            const PartState common = { .score = scratch->score,
                                       .dscore = scratch->dscore,
                                       .mask = scratch->mask,
                                       .dropout = args->dropout > 0,
                                       .diagonal = place->diagonal,
                                       .cut = cut,
                                       .first_keys = first_keys.part[part],
                                       .share = args->rule.cap > 0.0f ? args->rule.scale / args->rule.cap : 0.0f,
                                       .group = group,
                                       .part = part,
                                       .factor = args->rule.scale * HS_LOG2_E,
                                       .exponent = state->exponent[group].part[part],
                                       .delta = state->delta[group].part[part] };
            differentiate_part(scratch, format_of(args), common, seen < place->keys ? seen : place->keys);
        }
    }
}

/* out [key][d] += weights [key][query] rows [query][d]; `first`: overwrite.  Keys of the diagonal skip the whole groups
 * of queries before them; the weights' panels are visited one after the other. */
static void add_to_keys(const HsAttentionPlace *place, HsPanelFormat format, HsPanels weights, HsPanels rows,
                        int64_t width, bool first, HsPanels out)
{
    const int64_t step = place->diagonal ? HS_LANES : place->keys, word = hs_panel_step(format);
    const int64_t row_words = HS_TILE_COLUMNS / word;
    for (int64_t key = 0; key < place->keys; key += step) {
        const int64_t start = place->diagonal ? key : 0;
        int64_t count;
        for (int64_t query = start; query < place->queries; query += count) {
            const int64_t column = query % HS_TILE_COLUMNS, left = place->queries - query;
            count = left < HS_TILE_COLUMNS - column ? left : HS_TILE_COLUMNS - column;
            const HsTileProduct product = { .format = format,
                                            .a = weights.data + query / HS_TILE_COLUMNS * weights.stride +
                                                 key * row_words + column / word,
                                            .a_row = row_words,
                                            .a_step = 1,
                                            .b = hs_panels_from(rows, query / word),
                                            .out = hs_panels_from(out, place->key + key),
                                            .rows = place->keys - key < step ? place->keys - key : step,
                                            .depth = hs_panel_depth(format, count),
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
    const HsPanelFormat format = format_of(args);
    const bool pairs = format == HS_PANEL_BF16_PAIRS;
    const int64_t width = heads->head_dim, group = heads->heads / heads->kv_heads;
    const int64_t plain = place->key * hs_panel_depth(format, width);
    const float *across = pairs ? scratch->key_across + place->key / 2 * width : scratch->key + plain;
    HS_ISA_NAME(hs_attention_scores)
    (place, format, scratch->key + plain, scratch->query_columns, width, scratch->score);
    HS_ISA_NAME(hs_attention_cap)(place, scratch->score);
    HS_ISA_NAME(hs_attention_scores)
    (place, format, scratch->value + plain, scratch->dout_columns, width, scratch->dscore);
    if (args->dropout > 0) {
        const HsDropoutTile tile = hs_attention_dropout_tile(heads, &args->rng, args->dropout, place);
        HS_ISA_NAME(hs_attention_dropout)(&tile, scratch->mask);
    }
    differentiate(args, place, scratch, state);
    /* A key tile is first met on the diagonal of the group's first head. */
    const bool first = place->diagonal && place->head % group == 0;
    const HsPanels weights = pairs ? scratch->weight : scratch->score;
    const HsPanels dweights = pairs ? scratch->dweight : scratch->dscore;
    add_to_keys(place, format, weights, scratch->dout_rows, width, first, scratch->dvalue);
    add_to_keys(place, format, dweights, scratch->query_rows, width, first, scratch->dkey);
    HS_ISA_NAME(hs_attention_sums)(place, format, across, scratch->dscore, width, scratch->dquery);
}

static void load_keys(const HsAttentionBackwardArgs *args, int64_t sequence, int64_t kv_head, const Scratch *scratch)
{
    const HsHeads *heads = &args->heads;
    const HsPanelFormat format = format_of(args);
    const int64_t width = heads->head_dim, length = heads->sequence_length, row = sequence * length;
    const HsHeadRows keys = hs_head_rows(&args->qkv, row, length, hs_key_column(heads, kv_head), width);
    const HsHeadRows values = hs_head_rows(&args->qkv, row, length, hs_value_column(heads, kv_head), width);
    HS_ISA_NAME(hs_attention_load_plain)(&keys, format, scratch->key);
    HS_ISA_NAME(hs_attention_load_plain)(&values, format, scratch->value);
    if (format == HS_PANEL_BF16_PAIRS)
        HS_ISA_NAME(hs_attention_load_across)(&keys, format, scratch->key_across);
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
        ask_for_next(args, &place);
        hs_attention_find_keys(&place, &args->rule, sequence * length + place.query);
        for (place.key = place.first_key; place.key <= place.query; place.key += HS_ATTENTION_TILE) {
            place.diagonal = place.key == place.query;
            place.keys = place.diagonal ? place.queries : HS_ATTENTION_TILE;
            key_tile(args, &place, scratch, &state);
        }
        HsF32x16 factors[HS_ATTENTION_GROUPS];
        for (int group = 0; group < HS_ATTENTION_GROUPS; group++)
            factors[group] = hs_simd_splat(args->rule.scale);
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

    const int threads = hs_cpu_threads(context, tasks);
    HsTurns turns;
    hs_turns_begin(&turns, tasks, 1, threads);
#pragma omp parallel num_threads(threads)
    for (HsTurn turn = hs_turn_first(&turns, omp_get_thread_num()); hs_turn_take(&turns, &turn);) {
        const int64_t task = turn.row, sequence = task / heads->kv_heads, kv_head = task % heads->kv_heads;
        Scratch scratch;
        carve(args, (float *)(workspace + (size_t)omp_get_thread_num() * slot), &scratch);
        load_keys(args, sequence, kv_head, &scratch);
        for (int64_t head = kv_head * group; head < (kv_head + 1) * group; head++)
            query_head(args, sequence, head, &scratch);
        const HsHeadRows dkeys =
            hs_head_rows(&args->dqkv, sequence * length, length, hs_key_column(heads, kv_head), width);
        const HsHeadRows dvalues =
            hs_head_rows(&args->dqkv, sequence * length, length, hs_value_column(heads, kv_head), width);
        HS_ISA_NAME(hs_attention_store_rows)(scratch.dkey, args->rule.scale, &dkeys);
        HS_ISA_NAME(hs_attention_store_rows)(scratch.dvalue, 1.0f, &dvalues);
    }
    HS_ISA_NAME(hs_cpu_find_amax)(context, &args->dqkv);
    return HS_OK;
}
