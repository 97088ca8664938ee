/* SPDX-License-Identifier: MIT
 *
 * Embedding: a copy of table rows forward.  Backward, each table row gains the sum of the gradient rows that looked it
 * up, added in f32 in the rows' order and rounded once.  Rows of one token are chained first, so that the sum stays in
 * registers:
 *
 *     last[token]   the latest row seen with this token, while chaining
 *     next[row]     the next row with the same token, or -1
 *     heads[k]      the first row of chain k
 *
 * One task is a chain and a stretch of columns; no two write the same place, so that no order depends on the threads.
 */
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/simd.h"

enum { COLUMNS = 64 };

typedef struct Chains {
    int32_t *last, *next, *heads;
    int64_t count;
} Chains;

size_t HS_ISA_NAME(hs_cpu_embedding_backward_workspace)(const HsContext *context, const HsEmbeddingBackwardArgs *args)
{
    (void)context;
    return hs_cpu_align((size_t)(args->dtoken_table.shape[0] + 2 * args->dy.shape[0]) * sizeof(int32_t));
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

static void add_to_row(const HsTensor *table, int64_t row, int64_t column, int64_t left, HsF32x16 sum)
{
    const int64_t at = row * table->shape[1] + column;
    hs_simd_store_part(table->dtype, table->data, at, sum + hs_simd_load_part(table->dtype, table->data, at, left),
                       left);
}

/* table[token of the chain] += sum of its rows, columns [begin, end) */
static void add_chain(const HsEmbeddingBackwardArgs *args, const Chains *chains, int32_t head, HsRowBlock columns)
{
    const int64_t width = args->dy.shape[1];
    const int32_t token = ((const int32_t *)args->tokens.data)[head];
    for (int64_t column = columns.begin; column < columns.end; column += HS_LANES) {
        const int64_t left = columns.end - column;
        HsF32x16 sum = hs_simd_splat(0.0f);
        for (int32_t row = head; row >= 0; row = chains->next[row])
            sum += hs_simd_load_part(args->dy.dtype, args->dy.data, row * width + column, left);
        add_to_row(&args->dtoken_table, token, column, left, sum);
    }
}

static void add_position(const HsEmbeddingBackwardArgs *args, int64_t position)
{
    const int64_t rows = args->dy.shape[0], width = args->dy.shape[1];
    for (int64_t column = 0; column < width; column += HS_LANES) {
        const int64_t left = width - column;
        HsF32x16 sum = hs_simd_splat(0.0f);
        for (int64_t row = position; row < rows; row += args->sequence_length)
            sum += hs_simd_load_part(args->dy.dtype, args->dy.data, row * width + column, left);
        add_to_row(&args->dposition_table, position, column, left, sum);
    }
}

HsStatus HS_ISA_NAME(hs_cpu_embedding_backward)(HsContext *context, const HsEmbeddingBackwardArgs *args)
{
    const int64_t width = args->dy.shape[1], stretches = hs_cpu_block_count(width, COLUMNS);
    const Chains chains = chain_rows(args, context->workspace);
    const int64_t tasks = chains.count * stretches;
#pragma omp parallel for schedule(dynamic, 8) num_threads(hs_cpu_threads(context, tasks / 8))
    for (int64_t task = 0; task < tasks; task++)
        add_chain(args, &chains, chains.heads[task / stretches], hs_cpu_block(width, COLUMNS, task % stretches));
    if (hs_tensor_present(&args->dposition_table)) {
#pragma omp parallel for schedule(static) num_threads(hs_cpu_threads(context, args->sequence_length / 8))
        for (int64_t position = 0; position < args->sequence_length; position++)
            add_position(args, position);
    }
    return HS_OK;
}
