/* SPDX-License-Identifier: MIT
 *
 * Gates from the first features of a row, and values of tokens added to those of attention (formulas:
 * kernels/ref/streams.c).  A gate's weight is small and stays in a cache; rows are bound by memory.
 * The weight's gradient: one partial sum for each block of rows, in scratch, then the blocks in order
 * (kernels/cpu/cpu.h).
 */
#include "kernels/checks/checks.h"
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/simd.h"

enum { ROW_CHUNK = 32 };

/* Logits of all rows first, then their gates, one behind the other: exponentials fill whole vectors. */
HS_SIMD void gate_rows(const HsGateArgs *args, HsDtype in, HsDtype weight, HsRowBlock range)
{
    const int64_t width = args->x.shape[1], gates = args->w.shape[0], features = args->w.shape[1];
    const void *x = args->x.data, *w = args->w.data;
    const float factor = args->factor;
    float *gate = args->gate.data;
    for (int64_t row = range.begin; row < range.end; row++) {
        for (int64_t g = 0; g < gates; g++) {
            HsF32Parts products = { 0 };
            HS_FOR_VECTORS(k, left, 0, features,
                           hs_simd_accumulate(&products, hs_simd_load_part(in, x, row * width + k, left) *
                                                             hs_simd_load_part(weight, w, g * features + k, left)));
            gate[row * gates + g] = hs_simd_sum(products.whole);
        }
    }
    HS_FOR_VECTORS(i, left, range.begin * gates, range.end * gates, {
        HsF32x16 complement;
        const HsF32x16 open = hs_simd_sigmoid(hs_simd_load_part(HS_F32, gate, i, left), &complement);
        hs_simd_store_part(HS_F32, gate, i, factor * open, left);
    });
}

/* gate[n,g] = factor / (1 + exp(-w[g].x[n,:K])) */
HsStatus HS_ISA_NAME(hs_cpu_gate_forward)(HsContext *context, const HsGateArgs *args)
{
    const int64_t rows = args->x.shape[0], chunks = hs_cpu_block_count(rows, ROW_CHUNK);
#pragma omp parallel for schedule(static) num_threads(hs_cpu_threads(context, chunks))
    for (int64_t chunk = 0; chunk < chunks; chunk++) {
        const HsRowBlock range = hs_cpu_block(rows, ROW_CHUNK, chunk);
#define GATE(in, weight) gate_rows(args, in, weight, range)
        HS_FOR_DTYPES(args->x.dtype, args->w.dtype, GATE);
#undef GATE
    }
    return HS_OK;
}

/* Scratch: the weight in f32, then for each block of rows a partial sum like it, and da of one row.  Rows of the weight
 * are padded with zeros to whole vectors. */
typedef struct GateScratch {
    int64_t vectors, matrix, of_block; /* of a row of the weight; floats of all rows, and of a block */
} GateScratch;

static GateScratch scratch_of(const HsGateBackwardArgs *args)
{
    const int64_t gates = args->w.shape[0], vectors = hs_cpu_block_count(args->w.shape[1], HS_LANES);
    const int64_t matrix = gates * vectors * HS_LANES;
    return (GateScratch){ vectors, matrix, matrix + hs_cpu_block_count(gates, HS_LANES) * HS_LANES };
}

size_t HS_ISA_NAME(hs_cpu_gate_backward_workspace)(const HsContext *context, const HsGateBackwardArgs *args)
{
    (void)context;
    const GateScratch scratch = scratch_of(args);
    const int64_t rows = args->gate.shape[0], blocks = hs_cpu_block_count(rows, hs_cpu_partial_rows(rows));
    return (size_t)(scratch.matrix + blocks * scratch.of_block) * sizeof(float);
}

static void widen_weight(const HsTensor *w, int64_t vectors, float *wide)
{
    const int64_t features = w->shape[1];
    for (int64_t g = 0; g < w->shape[0]; g++)
        for (int64_t v = 0; v < vectors; v++)
            hs_simd_store_f32(
                wide + (g * vectors + v) * HS_LANES,
                hs_simd_load_part(w->dtype, w->data, g * features + v * HS_LANES, features - v * HS_LANES));
}

/* da = dgate gate (1 - gate / factor) of a row */
static void differentiate_gates(const HsGateBackwardArgs *args, int64_t row, float *da)
{
    const int64_t gates = args->w.shape[0];
    const float inverse = 1.0f / args->factor;
    const float *dgate_row = (const float *)args->dgate.data + row * gates;
    const float *gate_row = (const float *)args->gate.data + row * gates;
    HS_FOR_VECTORS(i, left, 0, gates, {
        const HsF32x16 gate = hs_simd_load_part(HS_F32, gate_row, i, left);
        const HsF32x16 dgate = hs_simd_load_part(HS_F32, dgate_row, i, left);
        hs_simd_store_part(HS_F32, da, i, dgate * gate * (1.0f - gate * inverse), left);
    });
}

/* Of a row: dx [+]= da w, zeros behind the features unless it accumulates */
static void store_features(const HsGateBackwardArgs *args, const float *wide, int64_t vectors, int64_t row,
                           const float *da)
{
    const int64_t gates = args->w.shape[0], features = args->w.shape[1], width = args->dx.shape[1];
    const HsDtype out = args->dx.dtype;
    for (int64_t v = 0; v < vectors; v++) {
        const int64_t at = row * width + v * HS_LANES, left = features - v * HS_LANES;
        HsF32x16 sum = { 0 };
        for (int64_t g = 0; g < gates; g++)
            sum = hs_simd_fma(hs_simd_load_f32(wide + (g * vectors + v) * HS_LANES), da[g], sum);
        if (args->accumulate)
            sum += hs_simd_load_part(out, args->dx.data, at, left);
        hs_simd_store_part(out, args->dx.data, at, sum, left);
    }
    if (!args->accumulate) { /* zero is all bits clear in every format */
        const size_t bytes = hs_dtype_bytes(out);
        memset((unsigned char *)args->dx.data + (size_t)(row * width + features) * bytes, 0,
               (size_t)(width - features) * bytes);
    }
}

/* partial += da^T x of a row */
static void add_weight_gradient(const HsGateBackwardArgs *args, int64_t vectors, int64_t row, const float *da,
                                float *partial)
{
    const int64_t gates = args->w.shape[0], features = args->w.shape[1];
    for (int64_t v = 0; v < vectors; v++) {
        const HsF32x16 x = hs_simd_load_part(args->x.dtype, args->x.data, row * args->x.shape[1] + v * HS_LANES,
                                             features - v * HS_LANES);
        for (int64_t g = 0; g < gates; g++) {
            float *const sum = partial + (g * vectors + v) * HS_LANES;
            hs_simd_store_f32(sum, hs_simd_fma(x, da[g], hs_simd_load_f32(sum)));
        }
    }
}

/* dw += the blocks' sums, rounded once */
static void add_partials(const HsTensor *dw, GateScratch scratch, const float *partials, int64_t blocks)
{
    const int64_t features = dw->shape[1];
    for (int64_t g = 0; g < dw->shape[0]; g++) {
        for (int64_t v = 0; v < scratch.vectors; v++) {
            const int64_t at = g * features + v * HS_LANES, left = features - v * HS_LANES;
            HsF32x16 sum = { 0 };
            for (int64_t block = 0; block < blocks; block++)
                sum += hs_simd_load_f32(partials + block * scratch.of_block + (g * scratch.vectors + v) * HS_LANES);
            sum += hs_simd_load_part(dw->dtype, dw->data, at, left);
            hs_simd_store_part(dw->dtype, dw->data, at, sum, left);
        }
    }
}

HsStatus HS_ISA_NAME(hs_cpu_gate_backward)(HsContext *context, const HsGateBackwardArgs *args)
{
    const int64_t rows = args->gate.shape[0];
    const int64_t block_rows = hs_cpu_partial_rows(rows), blocks = hs_cpu_block_count(rows, block_rows);
    const GateScratch scratch = scratch_of(args);
    float *const wide = context->workspace, *const partials = wide + scratch.matrix;
    widen_weight(&args->w, scratch.vectors, wide);
#pragma omp parallel for schedule(static) num_threads(hs_cpu_threads(context, blocks))
    for (int64_t block = 0; block < blocks; block++) {
        const HsRowBlock range = hs_cpu_block(rows, block_rows, block);
        float *const partial = partials + block * scratch.of_block, *const da = partial + scratch.matrix;
        memset(partial, 0, (size_t)scratch.matrix * sizeof(float));
        for (int64_t row = range.begin; row < range.end; row++) {
            differentiate_gates(args, row, da);
            if (hs_tensor_present(&args->dx))
                store_features(args, wide, scratch.vectors, row, da);
            if (hs_tensor_present(&args->dw))
                add_weight_gradient(args, scratch.vectors, row, da, partial);
        }
    }
    if (hs_tensor_present(&args->dw))
        add_partials(&args->dw, scratch, partials, blocks);
    return HS_OK;
}

/* --- values of tokens --- */

/* The first value column of a row. */
static int64_t values_at(const HsHeads *heads, int64_t row)
{
    return row * hs_heads_columns(heads) + (heads->heads + heads->kv_heads) * heads->head_dim;
}

/* Of a row and the next one, where their tokens' values begin in the table: while one is read the next is fetched, as
 * tokens' rows lie apart, where no hardware prefetcher follows. */
typedef struct TableRow {
    int64_t at, next;
} TableRow;

static TableRow table_row(const HsTensor *tokens, int64_t row, int64_t width)
{
    const int32_t *token = tokens->data;
    return (TableRow){ token[row] * width, token[row + 1 < tokens->shape[0] ? row + 1 : row] * width };
}

HS_SIMD void add_values_vector(HsDtype in, HsDtype source, const HsAddValuesArgs *args, float gate, int64_t at,
                               int64_t from, int64_t next, int64_t left)
{
    __builtin_prefetch((const unsigned char *)args->table.data + (size_t)next * hs_dtype_bytes(source));
    const HsF32x16 value = hs_simd_load_part(source, args->table.data, from, left);
    hs_simd_store_part(in, args->y.data, at, hs_simd_fma(value, gate, hs_simd_load_part(in, args->x.data, at, left)),
                       left);
}

HS_SIMD void add_values_row(const HsAddValuesArgs *in_memory, HsDtype in, HsDtype source, int64_t row)
{
    const HsAddValuesArgs args = *in_memory; /* so that its pointers may stay in registers */
    const int64_t head_dim = args.heads.head_dim, kv_heads = args.heads.kv_heads;
    const int64_t first = values_at(&args.heads, row);
    const TableRow place = table_row(&args.tokens, row, kv_heads * head_dim);
    const float *gate = (const float *)args.gate.data + row * kv_heads;
    for (int64_t g = 0; g < kv_heads; g++)
        HS_FOR_VECTORS(i, left, g * head_dim, (g + 1) * head_dim,
                       add_values_vector(in, source, &args, gate[g], first + i, place.at + i, place.next + i, left));
}

/* Query and key heads, where y is not x. */
static void copy_others(const HsAddValuesArgs *args, int64_t row)
{
    const size_t bytes = hs_dtype_bytes(args->x.dtype);
    const size_t begin = (size_t)(row * hs_heads_columns(&args->heads)) * bytes;
    if (args->y.data != args->x.data)
        memcpy((unsigned char *)args->y.data + begin, (const unsigned char *)args->x.data + begin,
               (size_t)values_at(&args->heads, row) * bytes - begin);
}

/* v[n,g] += gate[n,g] table[tokens[n],g] */
HsStatus HS_ISA_NAME(hs_cpu_add_values_forward)(HsContext *context, const HsAddValuesArgs *args)
{
    const int64_t rows = hs_heads_rows(&args->heads);
#pragma omp parallel for schedule(static) num_threads(hs_cpu_threads(context, rows / ROW_CHUNK))
    for (int64_t row = 0; row < rows; row++) {
        copy_others(args, row);
#define ADD(in, source) add_values_row(args, in, source, row)
        HS_FOR_DTYPES(args->x.dtype, args->table.dtype, ADD);
#undef ADD
    }
    return HS_OK;
}

HS_SIMD void add_values_backward_row(const HsAddValuesBackwardArgs *in_memory, HsDtype gradient, HsDtype source,
                                     HsDtype out, int64_t row)
{
    const HsAddValuesBackwardArgs args = *in_memory;
    const int64_t head_dim = args.heads.head_dim, kv_heads = args.heads.kv_heads, to = row * kv_heads * head_dim;
    const int64_t first = values_at(&args.heads, row);
    const TableRow place = table_row(&args.tokens, row, kv_heads * head_dim);
    const float *gate = (const float *)args.gate.data + row * kv_heads;
    const bool wanted = hs_tensor_present(&args.drows);
    const size_t bytes = hs_dtype_bytes(source);
    for (int64_t g = 0; g < kv_heads; g++) {
        const float open = gate[g];
        HsF32Parts products = { 0 };
        HS_FOR_VECTORS(i, left, g * head_dim, (g + 1) * head_dim, {
            __builtin_prefetch((const unsigned char *)args.table.data + (size_t)(place.next + i) * bytes);
            const HsF32x16 dv = hs_simd_load_part(gradient, args.dy.data, first + i, left);
            hs_simd_accumulate(&products, dv * hs_simd_load_part(source, args.table.data, place.at + i, left));
            if (wanted)
                hs_simd_store_part(out, args.drows.data, to + i, dv * open, left);
        });
        ((float *)args.dgate.data)[row * kv_heads + g] = hs_simd_sum(products.whole);
    }
}

static void any_values_backward_row(const HsAddValuesBackwardArgs *args, int64_t row)
{
    const HsDtype gradient = args->dy.dtype, source = args->table.dtype;
    const HsDtype out = hs_tensor_present(&args->drows) ? args->drows.dtype : gradient;
    if (gradient == HS_BF16 && source == HS_BF16 && out == HS_BF16)
        add_values_backward_row(args, HS_BF16, HS_BF16, HS_BF16, row);
    else if (gradient == HS_F32 && source == HS_F32 && out == HS_F32)
        add_values_backward_row(args, HS_F32, HS_F32, HS_F32, row);
    else if (gradient == HS_F16 && source == HS_F16 && out == HS_F16)
        add_values_backward_row(args, HS_F16, HS_F16, HS_F16, row);
    else
        add_values_backward_row(args, gradient, source, out, row);
}

/* drows[n,g] = gate[n,g] dv[n,g];  dgate[n,g] = dv[n,g].table[tokens[n],g] */
HsStatus HS_ISA_NAME(hs_cpu_add_values_backward)(HsContext *context, const HsAddValuesBackwardArgs *args)
{
    const int64_t rows = hs_heads_rows(&args->heads);
#pragma omp parallel for schedule(static) num_threads(hs_cpu_threads(context, rows / ROW_CHUNK))
    for (int64_t row = 0; row < rows; row++)
        any_values_backward_row(args, row);
    return HS_OK;
}
