/* SPDX-License-Identifier: MIT
 *
 * Token and position embeddings (Radford et al. 2019: both learned, added), and where documents start.
 */
#include "kernels/ref/ref.h"

#include "kernels/checks/checks.h"

HsStatus hs_ref_document_starts(HsContext *context, const HsDocumentStartsArgs *args)
{
    (void)context;
    int32_t *tokens = args->tokens.data, *starts = args->starts.data;
    for (int64_t n = 0; n < args->tokens.shape[0]; n++) {
        const int64_t t = n % args->sequence_length;
        const bool marked = tokens[n] < 0;
        tokens[n] = marked ? ~tokens[n] : tokens[n];
        starts[n] = t == 0 ? 0 : marked ? (int32_t)t : starts[n - 1];
    }
    return HS_OK;
}

/* y[n,c] = factor token_table[tokens[n],c] + position_table[start + n mod T - starts[n], c] */
HsStatus hs_ref_embedding_forward(HsContext *context, const HsEmbeddingArgs *args)
{
    (void)context;
    const int64_t rows = args->y.shape[0], columns = args->y.shape[1];
    const int32_t *tokens = args->tokens.data;
    for (int64_t n = 0; n < rows; n++) {
        const int64_t token = tokens[n];
        const int64_t position = args->position_start + n % args->sequence_length - hs_start_of(&args->starts, n);
        for (int64_t c = 0; c < columns; c++) {
            double value = (double)args->factor * hs_ref_load(&args->token_table, token * columns + c);
            if (hs_tensor_present(&args->position_table))
                value += hs_ref_load(&args->position_table, position * columns + c);
            hs_ref_store(&args->y, n * columns + c, value);
        }
    }
    return HS_OK;
}

static bool seen_before(const int32_t *tokens, int64_t n)
{
    for (int64_t earlier = 0; earlier < n; earlier++) {
        if (tokens[earlier] == tokens[n])
            return true;
    }
    return false;
}

/* Columns are summed in strips, so that the sums of one table row fit on the stack and are rounded once. */
enum { STRIP = 64 };

/* table[row] += factor times the sum of dy over the n in first, first + stride, ... that `tokens` (when given) maps to
 * `row`. */
static void add_rows(const HsTensor *dy, float factor, const HsTensor *table, int64_t row, int64_t first,
                     int64_t stride, const int32_t *tokens)
{
    const int64_t rows = dy->shape[0], columns = dy->shape[1];
    for (int64_t strip = 0; strip < columns; strip += STRIP) {
        const int64_t width = columns - strip < STRIP ? columns - strip : STRIP;
        double sum[STRIP];
        for (int64_t c = 0; c < width; c++)
            sum[c] = hs_ref_load(table, row * columns + strip + c);
        for (int64_t n = first; n < rows; n += stride) {
            if (tokens && tokens[n] != row)
                continue;
            for (int64_t c = 0; c < width; c++)
                sum[c] += (double)factor * hs_ref_load(dy, n * columns + strip + c);
        }
        for (int64_t c = 0; c < width; c++)
            hs_ref_store(table, row * columns + strip + c, sum[c]);
    }
}

/* dposition_table[p] += the sum of dy over the rows at position p of their documents, in increasing n. */
static void add_positions(const HsEmbeddingBackwardArgs *args, int64_t position)
{
    const int64_t rows = args->dy.shape[0], columns = args->dy.shape[1];
    for (int64_t c = 0; c < columns; c++) {
        double sum = hs_ref_load(&args->dposition_table, position * columns + c);
        for (int64_t n = 0; n < rows; n++)
            if (n % args->sequence_length - hs_start_of(&args->starts, n) == position)
                sum += hs_ref_load(&args->dy, n * columns + c);
        hs_ref_store(&args->dposition_table, position * columns + c, sum);
    }
}

/* The transpose of the lookup: each table row gathers the dy rows that read it, in increasing n. */
HsStatus hs_ref_embedding_backward(HsContext *context, const HsEmbeddingBackwardArgs *args)
{
    (void)context;
    const int32_t *tokens = args->tokens.data;
    for (int64_t n = 0; n < args->dy.shape[0] && hs_tensor_present(&args->dtoken_table); n++) {
        if (!seen_before(tokens, n))
            add_rows(&args->dy, args->factor, &args->dtoken_table, tokens[n], n, 1, tokens);
    }
    for (int64_t position = 0; hs_tensor_present(&args->dposition_table) && position < args->sequence_length;
         position++) {
        if (hs_tensor_present(&args->starts))
            add_positions(args, position);
        else
            add_rows(&args->dy, 1.0f, &args->dposition_table, position, position, args->sequence_length, NULL);
    }
    return HS_OK;
}
