/* SPDX-License-Identifier: MIT
 *
 * What the rows of kernels/ops/operands.h demand: presence, shape and dtype of each operand.  The operations that have
 * no further rules are checked here; the others' functions, in this folder, call hs_check_operands among theirs.
 */
#include "kernels/checks/checks.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { UNIT = 'Z' + 1, LETTERS = UNIT - 'A' + 1 };

/* One axis of a shape: factor * dimension / divisor; a shape without the letter has UNIT's, which is 1. */
typedef struct Axis {
    char dimension;
    int factor, divisor;
} Axis;

/* Extents by letter, 0: not decided yet; elements: of operands of any shape. */
typedef struct Dimensions {
    int64_t extents[LETTERS];
    int64_t elements;
} Dimensions;

/* What follows the next axis of a shape, or NULL after the last. */
static const char *next_axis(const char *shape, Axis *axis)
{
    if (*shape == ' ')
        shape++;
    if (!*shape)
        return NULL;
    axis->factor = *shape >= '0' && *shape <= '9' ? *shape++ - '0' : 1;
    axis->dimension = *shape && *shape != ' ' ? *shape++ : (char)UNIT;
    axis->divisor = 1;
    if (*shape == '/') {
        axis->divisor = shape[1] - '0';
        shape += 2;
    }
    return shape;
}

static int64_t *extent_of(Dimensions *dimensions, const Axis *axis)
{
    return &dimensions->extents[axis->dimension - 'A'];
}

static void decide_by_heads(const HsHeads *heads, Dimensions *dimensions)
{
    const struct {
        char dimension;
        int64_t extent;
    } decided[] = { { 'B', heads->batch },
                    { 'R', hs_heads_rows(heads) },
                    { 'H', heads->heads },
                    { 'G', heads->kv_heads },
                    { 'S', heads->heads + heads->kv_heads },
                    { 'D', heads->head_dim },
                    { 'W', hs_heads_columns(heads) },
                    { 'O', heads->heads * heads->head_dim },
                    { 'K', heads->kv_heads * heads->head_dim } };
    for (size_t i = 0; i < sizeof decided / sizeof *decided; i++)
        dimensions->extents[decided[i].dimension - 'A'] = decided[i].extent;
}

static HsStatus check_shape(const char *op, const char *name, const HsOperandRow *row, const HsTensor *tensor,
                            Dimensions *dimensions)
{
    if (!*row->shape) {
        if (dimensions->elements == 0)
            dimensions->elements = hs_tensor_count(tensor);
        return hs_rule_count(op, name, row->dtypes, tensor, dimensions->elements);
    }
    HsRule rule = { op, name, row->dtypes, 0, { 0 } };
    Axis axis;
    for (const char *rest = row->shape; (rest = next_axis(rest, &axis)); rule.rank++)
        rule.shape[rule.rank] = *extent_of(dimensions, &axis) * axis.factor / axis.divisor;
    HS_TRY(hs_rule(&rule, tensor));
    int at = 0;
    for (const char *rest = row->shape; (rest = next_axis(rest, &axis)); at++)
        if (*extent_of(dimensions, &axis) == 0)
            *extent_of(dimensions, &axis) = tensor->shape[at] * axis.divisor / axis.factor;
    return HS_OK;
}

static HsStatus check_like(const char *op, const HsOperandTable *table, const HsOperandRow *row, const void *args,
                           const HsTensor *tensor)
{
    for (const HsOperandRow *other = table->rows; row->like && other->name; other++)
        if (strcmp(other->name, row->like) == 0)
            return hs_rule_same_dtype(op, row->name, tensor, other->name, hs_operand_of(table, other, args, 0));
    return HS_OK;
}

/* "x 3" for number 3 of an array x, "tensor 3" of tensors. */
static const char *name_of(const HsOperandTable *table, const HsOperandRow *row, int index, char text[32])
{
    if (!table->arrays)
        return row->name;
    const size_t length = strlen(row->name);
    snprintf(text, 32, "%.*s %d", (int)(row->name[length - 1] == 's' ? length - 1 : length), row->name, index);
    return text;
}

static HsStatus check_arrays(const char *op, const HsOperandTable *table, const void *args, int count)
{
    for (const HsOperandRow *row = table->rows; row->name; row++)
        if (count < 0 || (count > 0 && hs_operand_of(table, row, args, 0) == NULL))
            return hs_fail(HS_EINVAL, "%s: %s is missing, expected %d of them", op, row->name, count);
    return HS_OK;
}

HsStatus hs_check_operands(const char *op, const HsOperandTable *table, const void *args)
{
    const int count = hs_operand_count(table, args);
    if (table->arrays)
        HS_TRY(check_arrays(op, table, args, count));
    for (int i = 0; i < count; i++) {
        Dimensions dimensions = { .extents[UNIT - 'A'] = 1 };
        if (table->heads) {
            HS_TRY(hs_rule_heads(op, args));
            decide_by_heads(args, &dimensions);
        }
        for (const HsOperandRow *given = table->rows; given->name; given++) {
            const HsTensor *tensor = hs_operand_of(table, given, args, i);
            HsOperandRow row = *given;
            char text[32];
            if (row.adapt)
                row.adapt(args, &row);
            if (row.optional && !hs_tensor_present(tensor))
                continue;
            HS_TRY(check_shape(op, name_of(table, &row, i, text), &row, tensor, &dimensions));
            HS_TRY(check_like(op, table, &row, args, tensor));
            if (row.use != HS_READ && !row.finds && tensor->amax)
                return hs_fail(HS_EINVAL, "%s: does not find the largest magnitude of %s", op, row.name);
        }
    }
    return HS_OK;
}

#define PLAIN_CHECK(op, Args)                                 \
    HsStatus hs_check_##op(const Args *args)                  \
    {                                                         \
        return hs_check_operands(#op, &hs_operands.op, args); \
    }
PLAIN_CHECK(bias_backward, HsBiasBackwardArgs)
PLAIN_CHECK(gather_rows, HsMoveRowsArgs)
PLAIN_CHECK(scatter_rows, HsMoveRowsArgs)
PLAIN_CHECK(grad_stats, HsGradStatsArgs)
PLAIN_CHECK(combine, HsCombineArgs)
PLAIN_CHECK(dot, HsDotArgs)
PLAIN_CHECK(average, HsAverageArgs)
PLAIN_CHECK(square_accumulate, HsSquareAccumulateArgs)
PLAIN_CHECK(importance_stats, HsImportanceStatsArgs)
PLAIN_CHECK(penalty, HsPenaltyArgs)
PLAIN_CHECK(add_values_forward, HsAddValuesArgs)
PLAIN_CHECK(add_values_backward, HsAddValuesBackwardArgs)

HsStatus hs_check_norm_forward(const HsNormArgs *args)
{
    HS_TRY(hs_check_operands("norm_forward", &hs_operands.norm_forward, args));
    if (hs_tensor_present(&args->bias) && !hs_tensor_present(&args->weight))
        return hs_fail(HS_EINVAL, "norm_forward: bias is given without a weight: leave it out, or give both");
    if (hs_tensor_present(&args->addend) && hs_tensor_present(&args->branch))
        return hs_fail(HS_EINVAL, "norm_forward: addend is what the norm of a branch is added to, branch what is added "
                                  "before a norm: leave out the one or the other");
    if (hs_tensor_present(&args->addend) && hs_codes_present(&args->cast))
        return hs_fail(HS_EINVAL, "norm_forward: y is a stream where there is an addend, and not cast");
    HS_TRY(hs_rule_cast("norm_forward", "y", &args->y, &args->cast));
    if (hs_tensor_present(&args->branch))
        return hs_rule_probability("norm_forward", args->probability);
    if (hs_tensor_present(&args->residual))
        return hs_fail(HS_EINVAL, "norm_forward: residual is given without a branch: leave it out, or give both");
    return HS_OK;
}

HsStatus hs_check_norm_backward(const HsNormBackwardArgs *args)
{
    HS_TRY(hs_check_operands("norm_backward", &hs_operands.norm_backward, args));
    if (!hs_tensor_present(&args->weight) && (hs_tensor_present(&args->dweight) || hs_tensor_present(&args->dbias)))
        return hs_fail(HS_EINVAL, "norm_backward: %s is given without a weight: leave it out, or give both",
                       hs_tensor_present(&args->dweight) ? "dweight" : "dbias");
    const bool more = hs_tensor_present(&args->dx_rounded) || hs_tensor_present(&args->dx_sums);
    if (more && hs_dtype_bytes(args->dx.dtype) == 2)
        return hs_fail(HS_EINVAL, "norm_backward: dx_rounded and dx_sums are of an f32 dx (it is %s)",
                       hs_dtype_name(args->dx.dtype));
    if (more && hs_tensor_present(&args->dx_masked))
        return hs_fail(HS_EINVAL,
                       "norm_backward: dx_masked is for a branch with dropout, dx_rounded and dx_sums for one "
                       "without: leave out the one or the others");
    HS_TRY(hs_rule_cast("norm_backward", "dx_rounded", &args->dx_rounded, &args->cast));
    const HsTensor *const handed_on = hs_norm_handed_on(args), *const all[] = { &args->dx, &args->dx_rounded };
    for (int i = 0; i < 2; i++)
        if (all[i] != handed_on && all[i]->amax)
            return hs_fail(HS_EINVAL, "norm_backward: the largest magnitude is of what is passed on, which is not dx "
                                      "where dx_rounded or dx_masked is given");
    if (hs_tensor_present(&args->dx_masked))
        return hs_rule_probability("norm_backward", args->probability);
    return HS_OK;
}

HsStatus hs_check_cross_entropy(const HsCrossEntropyArgs *args)
{
    HS_TRY(hs_check_operands("cross_entropy", &hs_operands.cross_entropy, args));
    return hs_rule_cap("cross_entropy", "the cap", args->cap);
}

HsStatus hs_check_sample_labels(const HsSampleLabelsArgs *args)
{
    HS_TRY(hs_check_operands("sample_labels", &hs_operands.sample_labels, args));
    return hs_rule_cap("sample_labels", "the cap", args->cap);
}

static HsStatus rule_head_weights(const char *op, const HsTensor *q_weight, const HsTensor *k_weight)
{
    if (hs_tensor_present(q_weight) == hs_tensor_present(k_weight))
        return HS_OK;
    return hs_fail(HS_EINVAL, "%s: %s is given without %s: leave it out, or give both", op,
                   hs_tensor_present(q_weight) ? "q_weight" : "k_weight",
                   hs_tensor_present(q_weight) ? "k_weight" : "q_weight");
}

HsStatus hs_check_head_norm_forward(const HsHeadNormArgs *args)
{
    HS_TRY(hs_check_operands("head_norm_forward", &hs_operands.head_norm_forward, args));
    return rule_head_weights("head_norm_forward", &args->q_weight, &args->k_weight);
}

HsStatus hs_check_head_norm_backward(const HsHeadNormBackwardArgs *args)
{
    HS_TRY(hs_check_operands("head_norm_backward", &hs_operands.head_norm_backward, args));
    HS_TRY(rule_head_weights("head_norm_backward", &args->q_weight, &args->k_weight));
    const bool query = hs_tensor_present(&args->dq_weight), key = hs_tensor_present(&args->dk_weight);
    if (!hs_tensor_present(&args->q_weight) && (query || key))
        return hs_fail(HS_EINVAL, "head_norm_backward: %s is given without weights: leave it out, or give them",
                       query ? "dq_weight" : "dk_weight");
    return HS_OK;
}

HsStatus hs_check_argmax(const HsArgmaxArgs *args)
{
    HS_TRY(hs_check_operands("argmax", &hs_operands.argmax, args));
    if (args->count < 1 || args->count > args->logits.shape[1])
        return hs_fail(HS_EINVAL, "argmax: count is %" PRId64 ", expected 1 to %" PRId64, args->count,
                       args->logits.shape[1]);
    return HS_OK;
}
