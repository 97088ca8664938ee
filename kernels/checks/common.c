/* SPDX-License-Identifier: MIT
 *
 * The few predicates that every operation's rule is made of, and the wording of their messages.
 */
#include "kernels/checks/checks.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>

enum { TEXT_BYTES = 128 };

/* "[4,8]"; in an expected shape 0 stands for any extent: "[4,any]". */
static const char *shape_text(int rank, const int64_t *shape, bool expected, char text[TEXT_BYTES])
{
    int length = snprintf(text, TEXT_BYTES, "[");
    for (int axis = 0; axis < rank; axis++) {
        const char *comma = axis ? "," : "";
        if (expected && shape[axis] == 0)
            length += snprintf(text + length, (size_t)(TEXT_BYTES - length), "%sany", comma);
        else
            length += snprintf(text + length, (size_t)(TEXT_BYTES - length), "%s%" PRId64, comma, shape[axis]);
    }
    snprintf(text + length, (size_t)(TEXT_BYTES - length), "]");
    return text;
}

/* "f32 or bf16"; f64 is left out of messages: users never meet it. */
static const char *dtypes_text(unsigned dtypes, char text[TEXT_BYTES])
{
    int length = 0;
    text[0] = 0;
    for (int dtype = 0; dtype < HS_DTYPE_COUNT; dtype++) {
        if (dtype != HS_F64 && (dtypes & HS_DTYPE_BIT(dtype)))
            length += snprintf(text + length, (size_t)(TEXT_BYTES - length), "%s%s", length ? " or " : "",
                               hs_dtype_name((HsDtype)dtype));
    }
    return text;
}

static HsStatus rule_dtype(const char *op, const char *name, unsigned dtypes, const HsTensor *tensor)
{
    char expected[TEXT_BYTES];
    if (dtypes & HS_DTYPE_BIT(tensor->dtype))
        return HS_OK;
    return hs_fail(HS_ESHAPE, "%s: %s is %s, expected %s", op, name, hs_dtype_name(tensor->dtype),
                   dtypes_text(dtypes, expected));
}

HsStatus hs_rule(const HsRule *rule, const HsTensor *tensor)
{
    char expected[TEXT_BYTES], found[TEXT_BYTES];
    if (!hs_tensor_present(tensor))
        return hs_fail(HS_ESHAPE, "%s: %s is missing, expected %s", rule->op, rule->tensor,
                       shape_text(rule->rank, rule->shape, true, expected));
    bool fits = tensor->rank == rule->rank;
    for (int axis = 0; fits && axis < rule->rank; axis++)
        fits = tensor->shape[axis] > 0 && (rule->shape[axis] == 0 || rule->shape[axis] == tensor->shape[axis]);
    if (!fits)
        return hs_fail(HS_ESHAPE, "%s: %s is %s, expected %s", rule->op, rule->tensor,
                       shape_text(tensor->rank, tensor->shape, false, found),
                       shape_text(rule->rank, rule->shape, true, expected));
    return rule_dtype(rule->op, rule->tensor, rule->dtypes, tensor);
}

HsStatus hs_rule_count(const char *op, const char *name, unsigned dtypes, const HsTensor *tensor, int64_t count)
{
    char found[TEXT_BYTES];
    if (!hs_tensor_present(tensor))
        return hs_fail(HS_ESHAPE, "%s: %s is missing, expected %" PRId64 " elements", op, name, count);
    if (hs_tensor_count(tensor) != count || count <= 0)
        return hs_fail(HS_ESHAPE, "%s: %s is %s, expected %" PRId64 " elements", op, name,
                       shape_text(tensor->rank, tensor->shape, false, found), count);
    return rule_dtype(op, name, dtypes, tensor);
}

HsStatus hs_rule_same_dtype(const char *op, const char *name, const HsTensor *tensor, const char *other_name,
                            const HsTensor *other)
{
    if (tensor->dtype == other->dtype)
        return HS_OK;
    return hs_fail(HS_ESHAPE, "%s: %s is %s, expected %s like %s", op, name, hs_dtype_name(tensor->dtype),
                   hs_dtype_name(other->dtype), other_name);
}

HsStatus hs_rule_heads(const char *op, const HsHeads *heads)
{
    const struct {
        const char *name;
        int64_t value;
    } sizes[] = { { "batch", heads->batch },
                  { "sequence_length", heads->sequence_length },
                  { "heads", heads->heads },
                  { "kv_heads", heads->kv_heads },
                  { "head_dim", heads->head_dim } };
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        if (sizes[i].value < 1)
            return hs_fail(HS_EINVAL, "%s: %s must be at least 1 (got %" PRId64 ")", op, sizes[i].name, sizes[i].value);
    }
    if (heads->heads % heads->kv_heads != 0)
        return hs_fail(HS_EINVAL, "%s: %" PRId64 " query heads cannot be shared evenly by %" PRId64 " kv heads", op,
                       heads->heads, heads->kv_heads);
    if (heads->head_dim > HS_MAX_HEAD_DIM)
        return hs_fail(HS_EINVAL, "%s: head_dim must be at most %d (got %" PRId64 ")", op, HS_MAX_HEAD_DIM,
                       heads->head_dim);
    return HS_OK;
}

HsStatus hs_rule_parameter(const char *op, const HsTensor *master, const HsTensor *weight)
{
    const int64_t count = hs_tensor_count(weight);
    HS_TRY(hs_rule_count(op, "weight", HS_DTYPES_ACT, weight, count));
    if (hs_tensor_present(master))
        return hs_rule_count(op, "master", HS_DTYPES_WIDE, master, count);
    if (weight->dtype == HS_F16)
        return hs_fail(HS_ESHAPE, "%s: an f16 weight needs a master (stochastic rounding is for bf16)", op);
    return HS_OK;
}

HsStatus hs_rule_probability(const char *op, float probability)
{
    /* written so that NaN fails too */
    if (probability >= 0.0f && probability < 1.0f)
        return HS_OK;
    return hs_fail(HS_EINVAL, "%s: dropout probability must be in [0, 1) (got %g)", op, (double)probability);
}

HsStatus hs_rule_cap(const char *op, const char *name, float cap)
{
    if (cap >= 0.0f && isfinite(cap))
        return HS_OK;
    return hs_fail(HS_EINVAL, "%s: %s is %g; it must be positive and finite, or 0 for none", op, name, (double)cap);
}

const char *const hs_scale_names[HS_SCALE_GRANULARITIES] = { "no scales", "a scale a tensor", "a scale a block",
                                                             "a scale for 32 neighbours", "a scale for 16 neighbours" };

HsStatus hs_rule_cast(const char *op, const char *name, const HsTensor *result, const HsCodes *codes)
{
    if (!hs_codes_present(codes))
        return HS_OK;
    if (!hs_tensor_present(result) || result->dtype != HS_BF16 || result->amax)
        return hs_fail(HS_EINVAL,
                       "%s: %s is cast, so that it is bf16, and has its largest magnitude in its scaling alone", op,
                       name);
    if (codes->rows != result->shape[0] || codes->depth != result->shape[1])
        return hs_fail(HS_ESHAPE, "%s: the cast of %s is [%" PRId64 ",%" PRId64 "], %s [%" PRId64 ",%" PRId64 "]", op,
                       name, codes->rows, codes->depth, name, result->shape[0], result->shape[1]);
    if ((codes->format != HS_E4M3 && codes->format != HS_E5M2) || codes->granularity != HS_SCALE_TENSOR)
        return hs_fail(HS_EINVAL, "%s: %s is cast to FP8 with one scale a tensor, not to %s with %s", op, name,
                       hs_dtype_name(codes->format), hs_scale_names[codes->granularity]);
    return HS_OK;
}
