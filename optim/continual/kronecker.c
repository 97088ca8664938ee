/* SPDX-License-Identifier: MIT
 *
 * Kronecker factors as the curvature of a penalty (Ritter, Botev & Barber 2018, "Online structured Laplace
 * approximations for overcoming catastrophic forgetting"): of each matrix W the quadratic
 *     (strength/2) tr(D^T left D right),   D = W - anchor,     gradient  strength left D right  (the pull)
 * over the factors of optim/continual/factors.h.  One anchor, at the latest task's end; tasks are merged factor by
 * factor:  what averages inputs (product: right, lookup: left) is the tasks' mean, what sums gradients (the others) is
 * decay times the earlier sum, and the task's own.
 *
 * Memory:  | factors |  | sums of a task while it is measured, the pulls while others are trained |  | D | left D |
 *
 * The pull is computed for a range of columns as wide as a block at a time, and of these as many rows at a time as the
 * scratch has: D, then left D block by block, then times the block of right.
 */
#include <assert.h>
#include <math.h>
#include <stdlib.h>

#include "optim/continual/internal.h"

enum { ALIGNMENT_BYTES = 64, PULLED_ROWS = 4096 };

struct HsKronecker {
    HsSpanFactors *factors, *fresh; /* [span_count] */
    HsTensor *pulls;                /* [span_count] */
    void *factor_block, *shared_block, *scratch_block;
    size_t factor_bytes, shared_bytes, scratch_bytes;
    int64_t scratch_rows; /* of D and left D: [scratch_rows, block] each */
    int64_t block, tasks;
    double decay;
    float *host; /* one factor */
};

static const char *const names[HS_FACTOR_USES][2] = {
    [HS_FACTOR_PRODUCT] = { "ewc.product.left", "ewc.product.right" },
    [HS_FACTOR_LOOKUP] = { "ewc.lookup.left", "ewc.lookup.right" },
};

/* The sides that are means over tasks, not sums. */
static bool averages(int use, int side)
{
    return (use == HS_FACTOR_PRODUCT) == (side == 1);
}

static HsFactor *side_of(HsSpanFactors *factors, int use, int side)
{
    return side ? &factors->use[use].right : &factors->use[use].left;
}

bool hs_kronecker_serves(const HsSpan *span)
{
    return span->uses != 0 && !span->excluded;
}

/* --- storage --- */

static HsFactor factor_of(int64_t size, int64_t block)
{
    const int64_t own = block < size ? block : size;
    return (HsFactor){ hs_tensor_1d(NULL, HS_F32, hs_factor_count(size, own)), size, own };
}

/* Shapes of the span's factors; absent ones where it has none. */
static HsSpanFactors factors_of(const HsSpan *span, int64_t block)
{
    HsSpanFactors factors = { 0 };
    if (!hs_kronecker_serves(span))
        return factors;
    const int64_t rows = span->weight.shape[0], columns = span->weight.shape[1];
    const bool vocabulary = span->uses & HS_SPAN_MAKES_LOGITS;
    if (vocabulary || span->uses & HS_SPAN_MULTIPLIES)
        factors.use[HS_FACTOR_PRODUCT] =
            (HsFactorPair){ factor_of(rows, vocabulary ? 1 : block), factor_of(columns, block) };
    if (span->uses & HS_SPAN_IS_LOOKED_UP)
        factors.use[HS_FACTOR_LOOKUP] = (HsFactorPair){ factor_of(rows, 1), factor_of(columns, block) };
    return factors;
}

static size_t aligned_bytes(const HsFactor *factor)
{
    const size_t bytes = hs_factor_present(factor) ? hs_tensor_bytes(&factor->values) : 0;
    return hs_size_align(bytes, ALIGNMENT_BYTES);
}

/* What both blocks and the scratch take. */
typedef struct Sizes {
    size_t factors, pulls, scratch;
    int64_t scratch_rows;
} Sizes;

static int64_t rows_at_once(const HsSpan *span, int64_t block)
{
    const int64_t rows = span->weight.shape[0], most = block < PULLED_ROWS ? PULLED_ROWS / block * block : block;
    return rows < most ? rows : most;
}

static Sizes sizes_of(const HsSpan *spans, int count, int64_t block)
{
    Sizes sizes = { 0 };
    int64_t widest = 0;
    for (int i = 0; i < count; i++) {
        HsSpanFactors factors = factors_of(&spans[i], block);
        for (int use = 0; use < HS_FACTOR_USES; use++)
            for (int side = 0; side < 2; side++)
                sizes.factors = hs_size_add(sizes.factors, aligned_bytes(side_of(&factors, use, side)));
        if (!hs_kronecker_serves(&spans[i]))
            continue;
        const int64_t columns = spans[i].weight.shape[1], rows = rows_at_once(&spans[i], block);
        sizes.pulls += hs_tensor_set_span_bytes(&spans[i]);
        widest = columns > widest ? columns : widest;
        sizes.scratch_rows = rows > sizes.scratch_rows ? rows : sizes.scratch_rows;
    }
    widest = widest < block ? widest : block;
    sizes.scratch = 2 * hs_size_align((size_t)(sizes.scratch_rows * widest) * sizeof(float), ALIGNMENT_BYTES);
    return sizes;
}

static size_t shared_bytes(const Sizes *sizes)
{
    return sizes->factors > sizes->pulls ? sizes->factors : sizes->pulls;
}

size_t hs_kronecker_bytes(const HsSpan *spans, int count, int64_t block)
{
    const Sizes sizes = sizes_of(spans, count, block);
    return sizes.factors + shared_bytes(&sizes) + sizes.scratch;
}

/* Factors one after another from `next` on. */
static void lay_out(const HsContinual *continual, HsKronecker *kronecker, HsSpanFactors *factors, unsigned char *next)
{
    for (int i = 0; i < continual->span_count; i++) {
        factors[i] = factors_of(&continual->spans[i], kronecker->block);
        for (int use = 0; use < HS_FACTOR_USES; use++)
            for (int side = 0; side < 2; side++) {
                HsFactor *factor = side_of(&factors[i], use, side);
                if (!hs_factor_present(factor))
                    continue;
                factor->values.data = next;
                next += aligned_bytes(factor);
            }
    }
}

static void lay_out_pulls(const HsContinual *continual, HsKronecker *kronecker)
{
    unsigned char *next = kronecker->shared_block;
    for (int i = 0; i < continual->span_count; i++) {
        if (!hs_kronecker_serves(&continual->spans[i]))
            continue;
        kronecker->pulls[i] = hs_span_wide(&continual->spans[i]);
        kronecker->pulls[i].data = next;
        next += hs_tensor_set_span_bytes(&continual->spans[i]);
    }
}

static size_t largest_factor_bytes(const HsContinual *continual, const HsKronecker *kronecker)
{
    size_t largest = sizeof(float);
    for (int i = 0; i < continual->span_count; i++)
        for (int use = 0; use < HS_FACTOR_USES; use++)
            for (int side = 0; side < 2; side++) {
                const size_t bytes = aligned_bytes(side_of(&kronecker->factors[i], use, side));
                largest = bytes > largest ? bytes : largest;
            }
    return largest;
}

static HsStatus allocate(HsContinual *continual, HsKronecker *kronecker)
{
    HsDevice *device = continual->device;
    const size_t spans = (size_t)continual->span_count;
    const Sizes sizes = sizes_of(continual->spans, continual->span_count, kronecker->block);
    kronecker->factor_bytes = sizes.factors;
    kronecker->shared_bytes = shared_bytes(&sizes);
    kronecker->scratch_bytes = sizes.scratch;
    kronecker->scratch_rows = sizes.scratch_rows;
    kronecker->factors = calloc(spans + 1, sizeof *kronecker->factors);
    kronecker->fresh = calloc(spans + 1, sizeof *kronecker->fresh);
    kronecker->pulls = calloc(spans + 1, sizeof *kronecker->pulls);
    if (!kronecker->factors || !kronecker->fresh || !kronecker->pulls)
        return hs_fail(HS_ENOMEM, "ewc: no memory to list the factors of %zu tensors", spans);
    if (sizes.factors == 0) /* every matrix is excluded */
        return HS_OK;
    HsStatus status = hs_memory_alloc(device, HS_MEMORY_PENALTY, kronecker->factor_bytes, &kronecker->factor_block);
    if (status == HS_OK)
        status = hs_memory_alloc(device, HS_MEMORY_PENALTY, kronecker->shared_bytes, &kronecker->shared_block);
    if (status == HS_OK)
        status = hs_memory_alloc(device, HS_MEMORY_PENALTY, kronecker->scratch_bytes, &kronecker->scratch_block);
    if (status != HS_OK)
        return hs_error_prefix(status, "ewc, Kronecker factors (ewc.block_size %lld)", (long long)kronecker->block);
    HS_TRY(device->fill_zero(device, NULL, kronecker->factor_block, kronecker->factor_bytes));
    HS_TRY(device->fill_zero(device, NULL, kronecker->shared_block, kronecker->shared_bytes));
    HS_TRY(device->stream_sync(device, NULL));
    lay_out(continual, kronecker, kronecker->factors, kronecker->factor_block);
    lay_out(continual, kronecker, kronecker->fresh, kronecker->shared_block);
    lay_out_pulls(continual, kronecker);
    kronecker->host = malloc(largest_factor_bytes(continual, kronecker));
    return kronecker->host ? HS_OK : hs_fail(HS_ENOMEM, "ewc: no memory to look at a factor");
}

HsStatus hs_kronecker_create(HsContinual *continual, int64_t block, double decay, HsKronecker **created)
{
    HsKronecker *kronecker = calloc(1, sizeof *kronecker);
    *created = NULL;
    if (!kronecker)
        return hs_fail(HS_ENOMEM, "ewc: no memory for Kronecker factors");
    kronecker->block = block;
    kronecker->decay = decay;
    HsStatus status = allocate(continual, kronecker);
    if (status == HS_OK)
        *created = kronecker;
    else
        hs_kronecker_destroy(continual, kronecker);
    return status;
}

void hs_kronecker_destroy(HsContinual *continual, HsKronecker *kronecker)
{
    HsDevice *device = continual->device;
    if (!kronecker)
        return;
    hs_memory_release(device, HS_MEMORY_PENALTY, kronecker->factor_bytes, kronecker->factor_block);
    hs_memory_release(device, HS_MEMORY_PENALTY, kronecker->shared_bytes, kronecker->shared_block);
    hs_memory_release(device, HS_MEMORY_PENALTY, kronecker->scratch_bytes, kronecker->scratch_block);
    free(kronecker->factors);
    free(kronecker->fresh);
    free(kronecker->pulls);
    free(kronecker->host);
    free(kronecker);
}

HsTensor hs_kronecker_pull_of(const HsKronecker *kronecker, int span)
{
    return kronecker->pulls[span];
}

/* --- a task's end --- */

const HsSpanFactors *hs_kronecker_fresh(const HsKronecker *kronecker)
{
    return kronecker->fresh;
}

HsStatus hs_kronecker_clear(HsContinual *continual, HsKronecker *kronecker, HsContext *context)
{
    HsDevice *device = continual->device;
    if (!kronecker->shared_block)
        return HS_OK;
    return device->fill_zero(device, context->stream, kronecker->shared_block, kronecker->shared_bytes);
}

HsStatus hs_kronecker_merge(HsContinual *continual, HsKronecker *kronecker, HsContext *context, double rows,
                            double count, double multiplier)
{
    const double seen = (double)kronecker->tasks;
    for (int i = 0; i < continual->span_count; i++)
        for (int use = 0; use < HS_FACTOR_USES; use++)
            for (int side = 0; side < 2; side++) {
                const HsFactor *merged = side_of(&kronecker->factors[i], use, side);
                const bool mean = averages(use, side);
                if (!hs_factor_present(merged))
                    continue;
                const HsCombineArgs args = {
                    .x = side_of(&kronecker->fresh[i], use, side)->values,
                    .y = merged->values,
                    .alpha = (float)(mean ? 1.0 / (rows * (seen + 1.0)) : multiplier * multiplier / count),
                    .beta = (float)(mean ? seen / (seen + 1.0) : kronecker->decay),
                };
                HS_TRY(hs_op_combine(context, &args));
            }
    if (!context->dry_run)
        kronecker->tasks++;
    return HS_OK;
}

/* --- the pull --- */

static HsTensor rows_of(HsTensor matrix, int64_t first, int64_t rows)
{
    if (matrix.data)
        matrix.data = (unsigned char *)matrix.data + (size_t)(first * matrix.shape[1]) * hs_dtype_bytes(matrix.dtype);
    matrix.shape[0] = rows;
    return matrix;
}

/* A piece of one matrix: rows [row, row + rows) and columns [column, column + columns). */
typedef struct Piece {
    int64_t row, rows, column, columns;
} Piece;

static HsTensor scratch_of(const HsKronecker *kronecker, int which, const Piece *piece)
{
    unsigned char *base = kronecker->scratch_block;
    return hs_tensor_2d(base ? base + (size_t)which * (kronecker->scratch_bytes / 2) : NULL, HS_F32, piece->rows,
                        piece->columns);
}

/* left D of the piece: in scratch 0 where left is a diagonal, in scratch 1 where it is not. */
static HsStatus weigh_rows(const HsKronecker *kronecker, HsContext *context, const HsSpan *span, const HsTensor *anchor,
                           const HsFactor *left, const Piece *piece, HsTensor *weighed)
{
    const bool diagonal = left->block == 1;
    const HsTensor distance = scratch_of(kronecker, 0, piece);
    HsCopyColumnsArgs copy = { .x = rows_of(hs_span_parameter(span), piece->row, piece->rows),
                               .minus = rows_of(*anchor, piece->row, piece->rows),
                               .from = piece->column,
                               .columns = piece->columns,
                               .y = distance };
    if (diagonal) {
        copy.scale = rows_of(left->values, 0, piece->rows);
        if (copy.scale.data)
            copy.scale.data = (float *)left->values.data + piece->row;
    }
    HS_TRY(hs_op_copy_columns(context, &copy));
    *weighed = distance;
    if (diagonal)
        return HS_OK;
    *weighed = scratch_of(kronecker, 1, piece);
    for (int64_t first = 0; first < piece->rows; first += left->block) {
        const HsTensor block = hs_factor_at(left, piece->row + first);
        const HsMatmulArgs product = { .a.values = block,
                                       .b.values = rows_of(distance, first, block.shape[0]),
                                       .alpha = 1.0f,
                                       .c = rows_of(*weighed, first, block.shape[0]) };
        HS_TRY(hs_op_matmul(context, &product));
    }
    return HS_OK;
}

/* pull [+]= (left D) right of the piece. */
static HsStatus weigh_columns(const HsKronecker *kronecker, HsContext *context, HsTensor pull, const HsFactor *right,
                              const Piece *piece, const HsTensor *weighed, bool add)
{
    const bool whole = piece->columns == right->size;
    const int other = weighed->data == scratch_of(kronecker, 0, piece).data ? 1 : 0;
    const HsTensor target = rows_of(pull, piece->row, piece->rows);
    HsMatmulArgs product = { .a.values = *weighed,
                             .b.values = hs_factor_at(right, piece->column),
                             .accumulate = add,
                             .alpha = 1.0f,
                             .c = whole ? target : scratch_of(kronecker, other, piece) };
    if (!whole && add) {
        const HsCopyColumnsArgs take = {
            .x = target, .from = piece->column, .columns = piece->columns, .y = product.c
        };
        HS_TRY(hs_op_copy_columns(context, &take));
    }
    HS_TRY(hs_op_matmul(context, &product));
    if (whole)
        return HS_OK;
    const HsCopyColumnsArgs put = { .x = product.c, .to = piece->column, .columns = piece->columns, .y = target };
    return hs_op_copy_columns(context, &put);
}

static HsStatus pull_pair(const HsKronecker *kronecker, HsContext *context, const HsSpan *span, const HsTensor *anchor,
                          const HsFactorPair *pair, HsTensor pull, bool add)
{
    const HsFactor *right = &pair->right;
    const int64_t rows = pair->left.size, at_once = rows_at_once(span, kronecker->block);
    for (int64_t column = 0; column < right->size; column += right->block)
        for (int64_t row = 0; row < rows; row += at_once) {
            const Piece piece = { .row = row,
                                  .rows = rows - row < at_once ? rows - row : at_once,
                                  .column = column,
                                  .columns = hs_factor_width(right, column) };
            HsTensor weighed;
            HS_TRY(weigh_rows(kronecker, context, span, anchor, &pair->left, &piece, &weighed));
            HS_TRY(weigh_columns(kronecker, context, pull, right, &piece, &weighed, add));
        }
    return HS_OK;
}

HsStatus hs_kronecker_pull(HsContinual *continual, HsKronecker *kronecker, HsContext *context,
                           const HsTensorSet *anchor)
{
    for (int i = 0; i < continual->span_count; i++) {
        const HsSpan *span = &continual->spans[i];
        bool add = false;
        for (int use = 0; use < HS_FACTOR_USES; use++) {
            const HsFactorPair *pair = &kronecker->factors[i].use[use];
            if (!hs_factor_present(&pair->right))
                continue;
            HsStatus status = pull_pair(kronecker, context, span, &anchor->tensors[i], pair, kronecker->pulls[i], add);
            if (status != HS_OK)
                return hs_error_prefix(status, "ewc, pull of %s", span->name);
            add = true;
        }
    }
    return HS_OK;
}

/* --- what it amounts to --- */

/* sum D pull as sum p pull - sum anchor pull: products of f32 are exact in double, and little cancels that matters. */
HsStatus hs_kronecker_value(HsContinual *continual, HsKronecker *kronecker, HsContext *context,
                            const HsTensorSet *anchor, double *value)
{
    HsDevice *device = continual->device;
    HsTensor *x = continual->arguments, *y = x + continual->span_count;
    double *host = continual->host_values;
    *value = 0;
    HS_TRY(hs_kronecker_pull(continual, kronecker, context, anchor));
    for (int side = 0; side < 2; side++) {
        int count = 0;
        for (int i = 0; i < continual->span_count; i++)
            if (hs_tensor_present(&kronecker->pulls[i])) {
                x[count] = side ? anchor->tensors[i] : hs_span_parameter(&continual->spans[i]);
                y[count++] = kronecker->pulls[i];
            }
        const HsDotArgs dot = { .x = x, .y = y, .count = count, .values = continual->device_values };
        HS_TRY(hs_op_dot(context, &dot));
        if (context->dry_run)
            continue;
        HS_TRY(device->copy(device, context->stream, host, continual->device_values, (size_t)count * sizeof *host));
        HS_TRY(device->stream_sync(device, context->stream));
        for (int i = 0; i < count; i++)
            *value += side ? -host[i] : host[i];
    }
    return HS_OK;
}

/* Trace, and the largest sum of sizes in a row, which no eigenvalue exceeds (Gershgorin). */
typedef struct Spectrum {
    double trace, bound;
} Spectrum;

static Spectrum spectrum_of(const HsFactor *factor, const float *values)
{
    Spectrum spectrum = { 0 };
    for (int64_t first = 0; first < factor->size; first += factor->block) {
        const int64_t width = hs_factor_width(factor, first);
        for (int64_t row = 0; row < width; row++) {
            double sum = 0;
            for (int64_t column = 0; column < width; column++)
                sum += fabs((double)values[first * factor->block + row * width + column]);
            spectrum.trace += (double)values[first * factor->block + row * width + row];
            spectrum.bound = sum > spectrum.bound || isnan(sum) ? sum : spectrum.bound;
        }
    }
    return spectrum;
}

static HsStatus look_at(HsContinual *continual, HsKronecker *kronecker, HsContext *context, const HsFactor *factor,
                        Spectrum *spectrum)
{
    HsDevice *device = continual->device;
    HS_TRY(
        device->copy(device, context->stream, kronecker->host, factor->values.data, hs_tensor_bytes(&factor->values)));
    HS_TRY(device->stream_sync(device, context->stream));
    *spectrum = spectrum_of(factor, kronecker->host);
    return HS_OK;
}

HsStatus hs_kronecker_measure(HsContinual *continual, HsKronecker *kronecker, HsContext *context,
                              HsImportance *importance, double *sum, int64_t *elements)
{
    for (int i = 0; i < continual->span_count; i++) {
        if (!hs_tensor_present(&kronecker->pulls[i]))
            continue;
        HsImportanceTensor *tensor = &importance->tensors[importance->count++];
        *tensor = (HsImportanceTensor){ .name = continual->spans[i].name };
        double own = 0;
        for (int use = 0; use < HS_FACTOR_USES; use++) {
            const HsFactorPair *pair = &kronecker->factors[i].use[use];
            Spectrum left, right;
            if (!hs_factor_present(&pair->right))
                continue;
            HS_TRY(look_at(continual, kronecker, context, &pair->left, &left));
            HS_TRY(look_at(continual, kronecker, context, &pair->right, &right));
            own += left.trace * right.trace;
            tensor->maximum += left.bound * right.bound;
        }
        if (!isfinite(own) || !isfinite(tensor->maximum))
            return hs_fail(
                HS_ENUMERIC,
                "the curvature of %s is not finite, as its gradients are too large for f32: lower learning_rate",
                tensor->name);
        const int64_t count = hs_tensor_count(&kronecker->pulls[i]);
        tensor->mean = own / (double)count;
        *sum += own;
        *elements += count;
        importance->maximum = fmax(importance->maximum, tensor->maximum);
    }
    return HS_OK;
}

HsStatus hs_kronecker_visit(HsContinual *continual, HsKronecker *kronecker, const HsStateVisitor *visitor)
{
    HS_TRY(visitor->integer(visitor->user, "ewc.factor_tasks", &kronecker->tasks, HS_COUNT_MOST));
    for (int use = 0; use < HS_FACTOR_USES; use++)
        for (int side = 0; side < 2; side++)
            for (int i = 0; i < continual->span_count; i++) {
                HsFactor *factor = side_of(&kronecker->factors[i], use, side);
                if (hs_factor_present(factor))
                    HS_TRY(visitor->tensor(visitor->user, names[use][side], continual->spans[i].name, &factor->values));
            }
    return HS_OK;
}

HsStatus hs_kronecker_dry_run(HsContinual *continual, HsKronecker *kronecker, HsContext *dry)
{
    HsTensor *wide = calloc((size_t)continual->span_count + 1, sizeof *wide);
    if (!wide)
        return hs_fail(HS_ENOMEM, "ewc: no memory to list %d tensors", continual->span_count);
    for (int i = 0; i < continual->span_count; i++)
        wide[i] = hs_span_wide(&continual->spans[i]);
    const HsTensorSet anchor = { .tensors = wide };
    double value;
    HsStatus status = hs_kronecker_merge(continual, kronecker, dry, 1, 1, 1);
    if (status == HS_OK)
        status = hs_kronecker_value(continual, kronecker, dry, &anchor, &value);
    free(wide);
    return status;
}
