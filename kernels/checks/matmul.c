/* SPDX-License-Identifier: MIT
 *
 * Rules of matrix products and embeddings beyond their operands' rows, and which products backends refuse.
 */
#include "kernels/checks/checks.h"

#include <inttypes.h>
#include <math.h>

/* A packed operand must have been made from the same op(b). */
static HsStatus check_packed(const HsMatmulArgs *args, int64_t k, int64_t n)
{
    const HsPacked *const packed = hs_packed_of(&args->b);
    const HsDtype dtype = args->b.values.dtype;
    if (packed == NULL || (packed->k == k && packed->n == n && packed->dtype == dtype))
        return HS_OK;
    return hs_fail(HS_ESHAPE,
                   "matmul: b is packed as [%" PRId64 ",%" PRId64 "] %s, expected [%" PRId64 ",%" PRId64 "] %s",
                   packed->k, packed->n, hs_dtype_name(packed->dtype), k, n, hs_dtype_name(dtype));
}

static HsStatus check_nf4(const HsMatmulArgs *args)
{
    const HsTensor *const b = &args->b.values;
    if (args->b.layout != HS_LAYOUT_NF4)
        return HS_OK;
    if (args->b.nf4.count != hs_tensor_count(b))
        return hs_fail(HS_ESHAPE, "matmul: b has %" PRId64 " elements in four bits, and is [%" PRId64 ",%" PRId64 "]",
                       args->b.nf4.count, b->shape[0], b->shape[1]);
    if (args->transpose_a)
        return hs_fail(HS_EINVAL, "matmul: a transposed a is not multiplied with a b in four bits");
    if (b->shape[1] % HS_NF4_RUN != 0)
        return hs_fail(HS_ESHAPE, "matmul: rows of a b in four bits are multiples of %d elements (got %" PRId64 ")",
                       HS_NF4_RUN, b->shape[1]);
    return HS_OK;
}

/* Of an epilogue that reshapes c. */
static const char *name_of(HsEpilogue epilogue)
{
    return hs_epilogue_activation(epilogue) == HS_ACTIVATION_SILU ? "SwiGLU" : "GEGLU";
}

static HsStatus check_row_sums(const HsMatmulArgs *args)
{
    if (!hs_tensor_present(&args->row_sums))
        return HS_OK;
    if (!args->transpose_a)
        return hs_fail(HS_EINVAL, "matmul: row_sums are those of a transposed a, as a weight's gradient has it");
    if (hs_epilogue_reshapes(args->epilogue))
        return hs_fail(HS_EINVAL, "matmul: row_sums are not taken with %s", name_of(args->epilogue));
    return HS_OK;
}

/* Codes are what the policy says. */
static HsStatus check_codes_of(const char *name, const HsOperand *operand, HsDtype format,
                               HsScaleGranularity granularity)
{
    const HsCodes *const codes = &operand->codes;
    const HsTensor *const x = &operand->values;
    if (codes->rows != x->shape[0] || codes->depth != x->shape[1])
        return hs_fail(HS_ESHAPE, "matmul: %s is [%" PRId64 ",%" PRId64 "] in codes, and [%" PRId64 ",%" PRId64 "]",
                       name, codes->rows, codes->depth, x->shape[0], x->shape[1]);
    if (codes->format != format || codes->granularity != granularity)
        return hs_fail(HS_EINVAL, "matmul: %s is %s with %s, the policy says %s with %s", name,
                       hs_dtype_name(codes->format), hs_scale_names[codes->granularity], hs_dtype_name(format),
                       hs_scale_names[granularity]);
    return HS_OK;
}

static HsStatus check_codes(const HsMatmulArgs *args)
{
    const HsProductPolicy policy = args->policy;
    const bool a = args->a.layout == HS_LAYOUT_CODES, b = args->b.layout == HS_LAYOUT_CODES;
    if (!a && args->a.layout != HS_LAYOUT_ROWS)
        return hs_fail(HS_EINVAL, "matmul: a is packed or in four bits, as only b may be");
    if (!a && !b)
        return HS_OK;
    if (!a || !b)
        return hs_fail(HS_EINVAL, "matmul: %s is in codes, the other operand is not", a ? "a" : "b");
    if ((args->transpose_a || !args->transpose_b) && policy.granularity != HS_SCALE_TENSOR)
        return hs_fail(HS_EINVAL, "matmul: codes with scales of blocks are of a as it is and of a transposed b");
    if (args->a.values.dtype != HS_BF16 || args->b.values.dtype != HS_BF16)
        return hs_fail(HS_ESHAPE, "matmul: operands in codes are bf16, not %s and %s",
                       hs_dtype_name(args->a.values.dtype), hs_dtype_name(args->b.values.dtype));
    HS_TRY(check_codes_of("a", &args->a, policy.a, policy.granularity));
    return check_codes_of("b", &args->b, policy.b, policy.granularity);
}

static HsStatus check_cast(const HsMatmulArgs *args)
{
    if (hs_codes_present(&args->cast) && args->accumulate)
        return hs_fail(HS_EINVAL, "matmul: a c that is cast does not accumulate: leave out accumulate, or the cast");
    return hs_rule_cast("matmul", "c", &args->c, &args->cast);
}

static HsStatus check_symmetric(const HsMatmulArgs *args)
{
    if (!args->symmetric)
        return HS_OK;
    if (args->c.shape[0] != args->c.shape[1])
        return hs_fail(HS_ESHAPE, "matmul: a symmetric c is square, not [%" PRId64 ",%" PRId64 "]", args->c.shape[0],
                       args->c.shape[1]);
    if (args->epilogue != HS_EPILOGUE_NONE || args->accumulate || hs_tensor_present(&args->bias) ||
        hs_tensor_present(&args->residual) || hs_tensor_present(&args->row_sums))
        return hs_fail(HS_EINVAL, "matmul: a symmetric c has an addend and nothing else");
    return HS_OK;
}

HsStatus hs_check_matmul(const HsMatmulArgs *args)
{
    if (args->alpha == 0.0f || !isfinite(args->alpha))
        return hs_fail(HS_EINVAL, "matmul: alpha must be finite and not 0 (got %g); 1 is the plain product",
                       (double)args->alpha);
    if (hs_epilogue_reshapes(args->epilogue) && (hs_tensor_present(&args->residual) || args->accumulate))
        return hs_fail(HS_EINVAL, "matmul: nothing is added behind %s", name_of(args->epilogue));
    if (args->accumulate && args->c.amax)
        return hs_fail(HS_EINVAL, "matmul: the largest magnitude is found of a c that is written, not of one that "
                                  "accumulates");
    HS_TRY(hs_check_operands("matmul", &hs_operands.matmul, args));
    const int64_t k = args->a.values.shape[args->transpose_a ? 0 : 1],
                  n = args->b.values.shape[args->transpose_b ? 0 : 1];
    if (hs_epilogue_gates(args->epilogue) && n % 2 != 0)
        return hs_fail(HS_ESHAPE, "matmul: %s halves its columns, which are %" PRId64, name_of(args->epilogue), n);
    if (args->epilogue == HS_EPILOGUE_NONE && hs_tensor_present(&args->pre))
        return hs_fail(HS_EINVAL, "matmul: pre is given, but no epilogue uses it");
    HS_TRY(check_nf4(args));
    HS_TRY(check_codes(args));
    HS_TRY(check_row_sums(args));
    HS_TRY(check_cast(args));
    HS_TRY(check_symmetric(args));
    return check_packed(args, k, n);
}

HsStatus hs_refuse_policy(const HsContext *context, const HsMatmulArgs *args)
{
    const HsProductPolicy policy = args->policy;
    const bool as_is = !hs_policy_rounds(policy) && policy.granularity == HS_SCALE_NONE;
    if (as_is || hs_policy_is_tf32(policy) || args->a.layout == HS_LAYOUT_CODES)
        return HS_OK;
    return hs_fail(HS_EUNSUPPORTED,
                   "matmul: the %s backend has no products of a %s and b %s with %s; it has operands as they are, "
                   "both in tf32 without scales, or both in codes",
                   context->backend->name, hs_dtype_name(policy.a), hs_dtype_name(policy.b),
                   hs_scale_names[policy.granularity]);
}

HsStatus hs_refuse_mixed_product(const HsContext *context, const HsMatmulArgs *args)
{
    HS_TRY(hs_refuse_policy(context, args));
    if (args->a.values.dtype == args->b.values.dtype)
        return HS_OK;
    return hs_fail(HS_EUNSUPPORTED, "matmul: the %s backend multiplies operands of one dtype (a is %s, b %s)",
                   context->backend->name, hs_dtype_name(args->a.values.dtype), hs_dtype_name(args->b.values.dtype));
}

HsStatus hs_check_pack_weight(const HsPackWeightArgs *args)
{
    HS_TRY(hs_check_operands("pack_weight", &hs_operands.pack_weight, args));
    if (args->packed == NULL)
        return hs_fail(HS_EINVAL, "pack_weight: packed is missing");
    /* A buffer that was sized for another product must not be written: packing would run over its end. */
    const int64_t k = args->w.shape[args->transposed ? 1 : 0];
    const int64_t n = args->w.shape[args->transposed ? 0 : 1];
    const HsPacked *packed = args->packed;
    const bool sized = packed->data != NULL && packed->k != 0;
    if (sized && (packed->k != k || packed->n != n))
        return hs_fail(HS_ESHAPE,
                       "pack_weight: packed is [%" PRId64 ",%" PRId64 "], expected [%" PRId64 ",%" PRId64 "]",
                       packed->k, packed->n, k, n);
    return HS_OK;
}

/* Rows come as whole sequences, and each position needs a row of the table. */
static HsStatus check_positions(const char *op, const char *name, int64_t rows, int64_t sequence_length, int64_t start,
                                const HsTensor *table)
{
    if (sequence_length < 1 || rows % sequence_length != 0)
        return hs_fail(HS_ESHAPE, "%s: tokens is [%" PRId64 "], expected a multiple of sequence_length %" PRId64, op,
                       rows, sequence_length);
    if (start < 0)
        return hs_fail(HS_EINVAL, "%s: position_start must be at least 0 (got %" PRId64 ")", op, start);
    if (hs_tensor_present(table) && start + sequence_length > table->shape[0])
        return hs_fail(HS_ESHAPE, "%s: %s is [%" PRId64 ",%" PRId64 "], expected at least [%" PRId64 ",%" PRId64 "]",
                       op, name, table->shape[0], table->shape[1], start + sequence_length, table->shape[1]);
    return HS_OK;
}

HsStatus hs_check_document_starts(const HsDocumentStartsArgs *args)
{
    HS_TRY(hs_check_operands("document_starts", &hs_operands.document_starts, args));
    return check_positions("document_starts", "", args->tokens.shape[0], args->sequence_length, 0, &(HsTensor){ 0 });
}

static HsStatus check_factor(const char *op, float factor)
{
    if (factor == 0.0f || !isfinite(factor))
        return hs_fail(HS_EINVAL, "%s: factor must be finite and not 0 (got %g); 1 is the plain lookup", op,
                       (double)factor);
    return HS_OK;
}

HsStatus hs_check_embedding_forward(const HsEmbeddingArgs *args)
{
    const char *op = "embedding_forward";
    HS_TRY(check_factor(op, args->factor));
    HS_TRY(hs_check_operands(op, &hs_operands.embedding_forward, args));
    return check_positions(op, "position_table", args->tokens.shape[0], args->sequence_length, args->position_start,
                           &args->position_table);
}

HsStatus hs_check_embedding_backward(const HsEmbeddingBackwardArgs *args)
{
    const char *op = "embedding_backward";
    HS_TRY(check_factor(op, args->factor));
    HS_TRY(hs_check_operands(op, &hs_operands.embedding_backward, args));
    return check_positions(op, "dposition_table", args->tokens.shape[0], args->sequence_length, 0,
                           &args->dposition_table);
}
