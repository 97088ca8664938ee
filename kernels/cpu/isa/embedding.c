/* SPDX-License-Identifier: MIT
 *
 * Embedding: a copy of table rows forward, times the factor.  Backward, each table row gains the sum of the gradient
 * rows that looked it up, added in f32 in the rows' order, times the factor, and rounded once.  Rows of one token are
 * chained first, so that the sum stays in registers:
 *
 *     last[token]   the latest row seen with this token, while chaining
 *     next[row]     the next row with the same token, or -1
 *     heads[k]      the first row of chain k
 *
 * One task is a chain and a stretch of columns; no two write the same place, so that no order depends on the threads.
 */
#include "kernels/checks/checks.h"
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/simd.h"

/* A stretch of columns: its sums stay in registers, half of those that there are. */
enum { VECTORS = HS_PARTS == 1 ? 16 : 8 / HS_PARTS, COLUMNS = VECTORS * HS_LANES };

typedef struct Chains {
    int32_t *last, *next, *heads;
    int64_t count;
} Chains;

size_t HS_ISA_NAME(hs_cpu_embedding_backward_workspace)(const HsContext *context, const HsEmbeddingBackwardArgs *args)
{
    (void)context;
    const int64_t rows = args->dy.shape[0];
    const bool tokens = hs_tensor_present(&args->dtoken_table);
    const bool positions = hs_tensor_present(&args->dposition_table) && hs_tensor_present(&args->starts);
    const int64_t of_tokens = tokens ? args->dtoken_table.shape[0] + 2 * rows : 0;
    const int64_t of_positions = positions ? args->sequence_length + rows : 0; /* one after the other */
    return hs_cpu_align((size_t)(of_tokens > of_positions ? of_tokens : of_positions) * sizeof(int32_t));
}

static Chains chain_rows(const HsEmbeddingBackwardArgs *args, int32_t *workspace)
{
    const int64_t vocabulary = args->dtoken_table.shape[0], rows = args->dy.shape[0];
    const int32_t *tokens = args->tokens.data;
    Chains chains = { workspace, workspace + vocabulary, workspace + vocabulary + rows, 0 };
    memset(chains.last, -1, (size_t)vocabulary * sizeof(int32_t));
    for (int32_t row = 0; row < (int32_t)rows; row++) {
        int32_t *last = &chains.last[tokens[row]];
        if (*last < 0)
            chains.heads[chains.count++] = row;
        else
            chains.next[*last] = row;
        chains.next[row] = -1;
        *last = row;
    }
    return chains;
}

/* Rows of dy that one table row gains: a chain from `first` on, or without `next` every stride-th row. */
typedef struct Rows {
    const int32_t *next;
    int64_t first, stride, end;
    float factor; /* of their sum */
} Rows;

/* table[at ...] += factor times the sum over the rows, `vectors` vectors of columns, the last of `left` lanes. */
HS_SIMD void add_stretch(HsDtype in, HsDtype out, const HsTensor *dy, Rows rows, int64_t column, int vectors,
                         int64_t left, void *table, int64_t at)
{
    const void *gradient = dy->data;
    const int64_t width = dy->shape[1];
    HsF32Parts sums[VECTORS] = { 0 };
    const int64_t bytes = in == HS_F32 ? 4 : 2;
    for (int64_t row = rows.first; row >= 0 && row < rows.end;) {
        const int64_t next = rows.next ? rows.next[row] : row + rows.stride;
        const int64_t ahead = next >= 0 && next < rows.end ? next : row;
        for (int v = 0; v < vectors; v++) {
            const int64_t place = column + v * HS_LANES;
            /* rows of a chain are pages apart, where no hardware prefetcher follows */
            __builtin_prefetch((const char *)gradient + (ahead * width + place) * bytes);
            hs_simd_accumulate(&sums[v], hs_simd_load_part(in, gradient, row * width + place, left));
        }
        row = next;
    }
    for (int v = 0; v < vectors; v++) {
        const int64_t place = at + v * HS_LANES;
        const HsF32x16 sum = hs_simd_fma(sums[v].whole, rows.factor, hs_simd_load_part(out, table, place, left));
        hs_simd_store_part(out, table, place, sum, left);
    }
}

/* table[row] += factor times the sum of the rows, columns [begin, end): whole stretches, then single vectors */
static void add_columns(const HsTensor *dy, Rows rows, const HsTensor *table, int64_t table_row, HsRowBlock columns)
{
    const int64_t at = table_row * table->shape[1];
    int64_t column = columns.begin;
#define ADD_STRETCH(in, out) add_stretch(in, out, dy, rows, column, VECTORS, HS_LANES, table->data, at + column)
    for (; column + COLUMNS <= columns.end; column += COLUMNS)
        HS_FOR_DTYPES(dy->dtype, table->dtype, ADD_STRETCH);
#undef ADD_STRETCH
    for (; column < columns.end; column += HS_LANES)
        add_stretch(dy->dtype, table->dtype, dy, rows, column, 1, columns.end - column, table->data, at + column);
}

static void add_tokens(const HsContext *context, const HsEmbeddingBackwardArgs *args)
{
    const int64_t width = args->dy.shape[1], stretches = hs_cpu_block_count(width, COLUMNS);
    const Chains chains = chain_rows(args, context->workspace);
    const int64_t tasks = chains.count * stretches;
#pragma omp parallel for schedule(dynamic, 8) num_threads(hs_cpu_threads(context, tasks / 8))
    for (int64_t task = 0; task < tasks; task++) {
        const int32_t head = chains.heads[task / stretches];
        const Rows rows = { chains.next, head, 0, args->dy.shape[0], args->factor };
        add_columns(&args->dy, rows, &args->dtoken_table, ((const int32_t *)args->tokens.data)[head],
                    hs_cpu_block(width, COLUMNS, task % stretches));
    }
}

/* Every position's rows: one a sequence, or a chain where documents begin anywhere. */
static void add_positions(const HsContext *context, const HsEmbeddingBackwardArgs *args)
{
    const int64_t width = args->dy.shape[1], rows = args->dy.shape[0], length = args->sequence_length;
    const bool documents = hs_tensor_present(&args->starts);
    int32_t *first = context->workspace, *next = documents ? first + length : NULL;
    if (documents)
        hs_cpu_chain_positions(args->starts.data, rows, length, first, next);
#pragma omp parallel for schedule(static) num_threads(hs_cpu_threads(context, length / 8))
    for (int64_t position = 0; position < length; position++) {
        const Rows chain = { next, documents ? first[position] : position, length, rows, 1.0f };
        if (chain.first >= 0)
            add_columns(&args->dy, chain, &args->dposition_table, position, (HsRowBlock){ 0, width });
    }
}

HsStatus HS_ISA_NAME(hs_cpu_embedding_backward)(HsContext *context, const HsEmbeddingBackwardArgs *args)
{
    if (hs_tensor_present(&args->dtoken_table))
        add_tokens(context, args);
    if (hs_tensor_present(&args->dposition_table))
        add_positions(context, args);
    return HS_OK;
}

HsStatus HS_ISA_NAME(hs_cpu_document_starts)(HsContext *context, const HsDocumentStartsArgs *args)
{
    const int64_t length = args->sequence_length, sequences = args->tokens.shape[0] / length;
#pragma omp parallel for schedule(static) num_threads(hs_cpu_threads(context, sequences))
    for (int64_t sequence = 0; sequence < sequences; sequence++) {
        int32_t *tokens = (int32_t *)args->tokens.data + sequence * length;
        int32_t *starts = (int32_t *)args->starts.data + sequence * length;
        int32_t start = 0;
        for (int32_t t = 0; t < (int32_t)length; t++) {
            start = tokens[t] < 0 && t > 0 ? t : start;
            tokens[t] = tokens[t] < 0 ? ~tokens[t] : tokens[t];
            starts[t] = start;
        }
    }
    return HS_OK;
}

HS_SIMD void embed_vector(HsDtype table, HsDtype position, HsDtype out, const HsEmbeddingArgs *args, bool positions,
                          int64_t from, int64_t next, int64_t from_position, int64_t to, int64_t left)
{
    const size_t bytes = table == HS_F32 ? 4 : 2;
    __builtin_prefetch((const unsigned char *)args->token_table.data + (size_t)next * bytes);
    const HsF32x16 token = hs_simd_load_part(table, args->token_table.data, from, left);
    const HsF32x16 y = positions
                           ? hs_simd_fma(token, args->factor,
                                         hs_simd_load_part(position, args->position_table.data, from_position, left))
                           : token * args->factor;
    hs_simd_store_part(out, args->y.data, to, y, left);
}

/* While one row is copied the next token's is fetched: table rows lie apart, where no hardware prefetcher follows. */
static void embed_row(const HsEmbeddingArgs *in_memory, int64_t row)
{
    const HsEmbeddingArgs args = *in_memory; /* so that its pointers may stay in registers */
    const int64_t width = args.y.shape[1], last = args.y.shape[0] - 1;
    const bool positions = hs_tensor_present(&args.position_table);
    const HsDtype position_dtype = args.position_table.dtype;
    const int32_t *tokens = args.tokens.data;
    const int64_t from = tokens[row] * width, next = tokens[row < last ? row + 1 : row] * width;
    const int64_t start = hs_start_of(&args.starts, row), to = row * width;
    const int64_t position = (args.position_start + row % args.sequence_length - start) * width;
#define EMBED(table, out)                                                                                          \
    do {                                                                                                           \
        if (!positions)                                                                                            \
            HS_FOR_VECTORS(i, left, 0, width,                                                                      \
                           embed_vector(table, table, out, &args, false, from + i, next + i, 0, to + i, left));    \
        else if (position_dtype == (table))                                                                        \
            HS_FOR_VECTORS(                                                                                        \
                i, left, 0, width,                                                                                 \
                embed_vector(table, table, out, &args, true, from + i, next + i, position + i, to + i, left));     \
        else                                                                                                       \
            HS_FOR_VECTORS(i, left, 0, width,                                                                      \
                           embed_vector(table, position_dtype, out, &args, true, from + i, next + i, position + i, \
                                        to + i, left));                                                            \
    } while (0)
    HS_FOR_DTYPES(args.token_table.dtype, args.y.dtype, EMBED);
#undef EMBED
}

HsStatus HS_ISA_NAME(hs_cpu_embedding_forward)(HsContext *context, const HsEmbeddingArgs *args)
{
    const int64_t rows = args->y.shape[0];
#pragma omp parallel for schedule(static) num_threads(hs_cpu_threads(context, rows / 8))
    for (int64_t row = 0; row < rows; row++)
        embed_row(args, row);
    return HS_OK;
}
