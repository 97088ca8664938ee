/* SPDX-License-Identifier: MIT
 *
 * Shape and dtype rules of the operations around matrix products: matmul, pack_weight, bias_backward, embeddings.
 */
#include "kernels/checks.h"

#include <inttypes.h>

/* A packed operand replaces b's bytes, so it must have been made from the same op(b). */
static HsStatus check_packed(const HsMatmulArgs *args, int64_t k, int64_t n)
{
    const HsPacked *packed = args->b_packed;
    if (packed == NULL || packed->data == NULL)
        return HS_OK;
    if (packed->k != k || packed->n != n || packed->dtype != args->b.dtype)
        return hs_fail(HS_ESHAPE,
                       "matmul: b_packed is [%" PRId64 ",%" PRId64 "] %s, expected [%" PRId64 ",%" PRId64 "] %s",
                       packed->k, packed->n, hs_dtype_name(packed->dtype), k, n, hs_dtype_name(args->b.dtype));
    return HS_OK;
}

static bool is_swiglu(HsEpilogue epilogue)
{
    return epilogue == HS_EPILOGUE_SWIGLU || epilogue == HS_EPILOGUE_SWIGLU_BACKWARD;
}

static HsStatus check_swiglu(const HsMatmulArgs *args, int64_t m, int64_t n)
{
    const bool forward = args->epilogue == HS_EPILOGUE_SWIGLU;
    if (forward && n % 2 != 0)
        return hs_fail(HS_ESHAPE, "matmul: SwiGLU halves its columns, which are %" PRId64, n);
    if (hs_tensor_present(&args->residual) || args->accumulate)
        return hs_fail(HS_EINVAL, "matmul: nothing is added behind SwiGLU");
    HS_RULE("matmul", c, HS_DTYPES_WIDE | HS_DTYPE_BIT(args->a.dtype), 2, m, forward ? n / 2 : 2 * n);
    HS_RULE("matmul", pre, HS_DTYPES_WIDE | HS_DTYPE_BIT(args->a.dtype), 2, m, forward ? n : 2 * n);
    return HS_OK;
}

static HsStatus check_outputs(const HsMatmulArgs *args, int64_t m, int64_t n)
{
    HS_RULE("matmul", c, HS_DTYPES_WIDE | HS_DTYPE_BIT(args->a.dtype), 2, m, n);
    HS_RULE_OPTIONAL("matmul", residual, HS_DTYPES_ACT, 2, m, n);
    if (args->epilogue == HS_EPILOGUE_GELU_BACKWARD)
        HS_RULE("matmul", pre, HS_DTYPES_ACT, 2, m, n);
    else
        HS_RULE_OPTIONAL("matmul", pre, HS_DTYPES_ACT, 2, m, n);
    if (args->epilogue == HS_EPILOGUE_NONE && hs_tensor_present(&args->pre))
        return hs_fail(HS_EINVAL, "matmul: pre is given, but no epilogue uses it");
    return HS_OK;
}

HsStatus hs_check_matmul(const HsMatmulArgs *args)
{
    HS_RULE("matmul", a, HS_DTYPES_ACT, 2, 0, 0);
    const int64_t m = args->a.shape[args->transpose_a ? 1 : 0];
    const int64_t k = args->a.shape[args->transpose_a ? 0 : 1];
    if (args->transpose_b)
        HS_RULE("matmul", b, HS_DTYPES_ACT, 2, 0, k);
    else
        HS_RULE("matmul", b, HS_DTYPES_ACT, 2, k, 0);
    const int64_t n = args->b.shape[args->transpose_b ? 0 : 1];
    HS_TRY(hs_rule_same_dtype("matmul", "b", &args->b, "a", &args->a));
    HS_RULE_OPTIONAL("matmul", bias, HS_DTYPES_WIDE, 1, n);
    HS_TRY(is_swiglu(args->epilogue) ? check_swiglu(args, m, n) : check_outputs(args, m, n));
    return check_packed(args, k, n);
}

HsStatus hs_check_pack_weight(const HsPackWeightArgs *args)
{
    HS_RULE("pack_weight", w, HS_DTYPES_ACT, 2, 0, 0);
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

HsStatus hs_check_bias_backward(const HsBiasBackwardArgs *args)
{
    HS_RULE("bias_backward", dy, HS_DTYPES_ACT, 2, 0, 0);
    HS_RULE("bias_backward", dbias, HS_DTYPES_WIDE, 1, args->dy.shape[1]);
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

HsStatus hs_check_embedding_forward(const HsEmbeddingArgs *args)
{
    const char *op = "embedding_forward";
    HS_RULE(op, tokens, HS_DTYPES_INDEX, 1, 0);
    HS_RULE(op, token_table, HS_DTYPES_ACT, 2, 0, 0);
    const int64_t rows = args->tokens.shape[0], columns = args->token_table.shape[1];
    HS_RULE_OPTIONAL(op, position_table, HS_DTYPES_ACT, 2, 0, columns);
    HS_RULE(op, y, HS_DTYPES_ACT, 2, rows, columns);
    return check_positions(op, "position_table", rows, args->sequence_length, args->position_start,
                           &args->position_table);
}

HsStatus hs_check_embedding_backward(const HsEmbeddingBackwardArgs *args)
{
    const char *op = "embedding_backward";
    HS_RULE(op, tokens, HS_DTYPES_INDEX, 1, 0);
    const int64_t rows = args->tokens.shape[0];
    HS_RULE(op, dy, HS_DTYPES_ACT, 2, rows, 0);
    const int64_t columns = args->dy.shape[1];
    HS_RULE(op, dtoken_table, HS_DTYPES_ACT, 2, 0, columns);
    HS_RULE_OPTIONAL(op, dposition_table, HS_DTYPES_ACT, 2, 0, columns);
    return check_positions(op, "dposition_table", rows, args->sequence_length, 0, &args->dposition_table);
}
