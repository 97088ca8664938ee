/* SPDX-License-Identifier: MIT
 *
 * What the dispatcher refuses, and how it says so; dry runs.
 */
#include <criterion/criterion.h>

#include "kernels/ops/backend.h"
#include "kernels/ops/operands.h"

/* Shapes without data: a dry run looks at nothing else. */
static HsTensor f32(int64_t rows, int64_t columns)
{
    return hs_tensor_2d(NULL, HS_F32, rows, columns);
}

static HsTensor f32_1d(int64_t count)
{
    return hs_tensor_1d(NULL, HS_F32, count);
}

static HsTensor bf16(int64_t rows, int64_t columns)
{
    return hs_tensor_2d(NULL, HS_BF16, rows, columns);
}

static HsContext dry(void)
{
    return (HsContext){ .backend = hs_backend_ref(), .threads = 1, .dry_run = true };
}

#define EXPECT_REFUSED(code, message, call)                                  \
    do {                                                                     \
        HsContext context = dry();                                           \
        cr_expect_eq((call), (code), "expected a refusal: %s", message);     \
        cr_expect_str_eq(hs_error_message(), message);                       \
        cr_expect_eq(context.flops, 0.0, "a refused operation was counted"); \
    } while (0)

static HsMatmulArgs product(void)
{
    return (HsMatmulArgs){
        .a.values = f32(8, 16), .b.values = f32(16, 256), .bias = f32_1d(256), .alpha = 1.0f, .c = f32(8, 256)
    };
}

Test(checks, matmul)
{
    HsMatmulArgs args = product();
    args.bias = f32_1d(128);
    EXPECT_REFUSED(HS_ESHAPE, "matmul: bias is [128], expected [256]", hs_op_matmul(&context, &args));
    args = product();
    args.b.values = f32(17, 256);
    EXPECT_REFUSED(HS_ESHAPE, "matmul: b is [17,256], expected [16,any]", hs_op_matmul(&context, &args));
    args = product();
    args.transpose_b = true;
    EXPECT_REFUSED(HS_ESHAPE, "matmul: b is [16,256], expected [any,16]", hs_op_matmul(&context, &args));
    args = product();
    args.c = f32(256, 8);
    EXPECT_REFUSED(HS_ESHAPE, "matmul: c is [256,8], expected [8,256]", hs_op_matmul(&context, &args));
    args = product();
    args.b.values = bf16(16, 256);
    EXPECT_REFUSED(HS_ESHAPE, "matmul: b is bf16, expected f32 like a", hs_op_matmul(&context, &args));
    args = product();
    args.c = bf16(8, 256);
    EXPECT_REFUSED(HS_ESHAPE, "matmul: c is bf16, expected f32", hs_op_matmul(&context, &args));
    args = product();
    args.bias = hs_tensor_1d(NULL, HS_BF16, 256);
    EXPECT_REFUSED(HS_ESHAPE, "matmul: bias is bf16, expected f32", hs_op_matmul(&context, &args));
    args = product();
    args.epilogue = HS_EPILOGUE_GELU_BACKWARD;
    EXPECT_REFUSED(HS_ESHAPE, "matmul: pre is missing, expected [8,256]", hs_op_matmul(&context, &args));
    args.epilogue = HS_EPILOGUE_RELU2_BACKWARD;
    EXPECT_REFUSED(HS_ESHAPE, "matmul: pre is missing, expected [8,256]", hs_op_matmul(&context, &args));
    args = product();
    args.pre = f32(8, 256);
    EXPECT_REFUSED(HS_EINVAL, "matmul: pre is given, but no epilogue uses it", hs_op_matmul(&context, &args));
    args = product();
    args.alpha = 0.0f;
    EXPECT_REFUSED(HS_EINVAL, "matmul: alpha must be finite and not 0 (got 0); 1 is the plain product",
                   hs_op_matmul(&context, &args));
    args = product();
    args.addend = f32(8, 128);
    EXPECT_REFUSED(HS_ESHAPE, "matmul: addend is [8,128], expected [8,256]", hs_op_matmul(&context, &args));
    args = product();
    args.a.values = f32(0, 16);
    EXPECT_REFUSED(HS_ESHAPE, "matmul: a is [0,16], expected [any,any]", hs_op_matmul(&context, &args));
}

/* Two columns become one, or one two, of [gate|up]; nothing may follow. */
Test(checks, gates_of_products)
{
    HsContext ref = dry();
    HsMatmulArgs args = product();
    args.epilogue = HS_EPILOGUE_GEGLU;
    args.pre = f32(8, 256);
    EXPECT_REFUSED(HS_ESHAPE, "matmul: c is [8,256], expected [8,128]", hs_op_matmul(&context, &args));
    args.c = f32(8, 128);
    cr_expect_eq(hs_op_matmul(&ref, &args), HS_OK, "%s", hs_error_message());
    args.accumulate = true;
    EXPECT_REFUSED(HS_EINVAL, "matmul: nothing is added behind GEGLU", hs_op_matmul(&context, &args));
    args.epilogue = HS_EPILOGUE_SWIGLU_BACKWARD;
    EXPECT_REFUSED(HS_EINVAL, "matmul: nothing is added behind SwiGLU", hs_op_matmul(&context, &args));
    args.accumulate = false;
    args.epilogue = HS_EPILOGUE_GEGLU_BACKWARD;
    args.c = f32(8, 512);
    EXPECT_REFUSED(HS_ESHAPE, "matmul: pre is [8,256], expected [8,512]", hs_op_matmul(&context, &args));
    args.pre = f32(8, 512);
    cr_expect_eq(hs_op_matmul(&ref, &args), HS_OK, "%s", hs_error_message());
    args = product();
    args.epilogue = HS_EPILOGUE_GEGLU;
    args.b.values = f32(16, 255);
    args.bias.rank = 0;
    args.c = f32(8, 127);
    args.pre = f32(8, 255);
    EXPECT_REFUSED(HS_ESHAPE, "matmul: GEGLU halves its columns, which are 255", hs_op_matmul(&context, &args));
}

/* Row sums are of what a product takes transposed, one a row of c. */
Test(checks, row_sums_of_products)
{
    HsContext ref = dry();
    HsMatmulArgs args = product();
    args.a.values = f32(16, 8);
    args.transpose_a = true;
    args.row_sums = f32_1d(8);
    cr_expect_eq(hs_op_matmul(&ref, &args), HS_OK, "%s", hs_error_message());
    args.row_sums = f32_1d(256);
    EXPECT_REFUSED(HS_ESHAPE, "matmul: row_sums is [256], expected [8]", hs_op_matmul(&context, &args));
    args.row_sums = hs_tensor_1d(NULL, HS_BF16, 8);
    EXPECT_REFUSED(HS_ESHAPE, "matmul: row_sums is bf16, expected f32", hs_op_matmul(&context, &args));
    args.row_sums = f32_1d(8);
    args.epilogue = HS_EPILOGUE_SWIGLU;
    args.pre = f32(8, 256);
    args.c = f32(8, 128);
    EXPECT_REFUSED(HS_EINVAL, "matmul: row_sums are not taken with SwiGLU", hs_op_matmul(&context, &args));
    args.epilogue = HS_EPILOGUE_GEGLU;
    EXPECT_REFUSED(HS_EINVAL, "matmul: row_sums are not taken with GEGLU", hs_op_matmul(&context, &args));
    args = product();
    args.row_sums = f32_1d(8);
    EXPECT_REFUSED(HS_EINVAL, "matmul: row_sums are those of a transposed a, as a weight's gradient has it",
                   hs_op_matmul(&context, &args));
}

/* A policy that rounds both operands says what they become; one that a backend does not have is refused, in a dry run
 * too. */
Test(checks, policies_of_products)
{
    HsContext ref = dry(), cpu = dry();
    HsMatmulArgs args = product();
    args.policy = (HsProductPolicy)HS_POLICY_TF32;
    cr_expect_eq(hs_op_matmul(&ref, &args), HS_OK, "%s", hs_error_message());
    args.b.values = bf16(16, 256);
    cr_expect_eq(hs_op_matmul(&ref, &args), HS_OK, "%s", hs_error_message());
    args.policy.a = HS_F32;
    EXPECT_REFUSED(HS_ESHAPE, "matmul: b is bf16, expected f32 like a", hs_op_matmul(&context, &args));
    args.policy = (HsProductPolicy){ HS_E5M2, HS_E4M3, HS_SCALE_TENSOR };
    EXPECT_REFUSED(
        HS_EUNSUPPORTED,
        "matmul: the ref backend has no products of a e5m2 and b e4m3 with a scale a tensor; it has operands "
        "as they are, both in tf32 without scales, or both in codes",
        hs_op_matmul(&context, &args));

    cr_assert_eq(hs_backend_cpu(&cpu.backend), HS_OK);
    args.policy = (HsProductPolicy)HS_POLICY_TF32;
    EXPECT_REFUSED(HS_EUNSUPPORTED, "matmul: the cpu backend multiplies operands of one dtype (a is f32, b bf16)",
                   hs_op_matmul(&cpu, &args));
}

Test(checks, packed_weights)
{
    char bytes[64];
    HsPacked packed = { bytes, HS_F32, 256, 16 };
    HsMatmulArgs args = product();
    args.b = hs_operand_packed(args.b.values, &packed);
    EXPECT_REFUSED(HS_ESHAPE, "matmul: b is packed as [256,16] f32, expected [16,256] f32",
                   hs_op_matmul(&context, &args));
    EXPECT_REFUSED(HS_ESHAPE, "pack_weight: packed is [256,16], expected [16,256]",
                   hs_op_pack_weight(&context, &(HsPackWeightArgs){ f32(16, 256), false, &packed }));
    EXPECT_REFUSED(HS_EINVAL, "pack_weight: packed is missing",
                   hs_op_pack_weight(&context, &(HsPackWeightArgs){ f32(16, 256), false, NULL }));
}

Test(checks, norms_and_heads)
{
    HsNormArgs norm = { .kind = HS_NORM_LAYER, .x = f32(4, 8), .weight = f32_1d(8), .y = f32(4, 8), .rstd = f32_1d(4) };
    EXPECT_REFUSED(HS_ESHAPE, "norm_forward: mean is missing, expected [4]", hs_op_norm_forward(&context, &norm));
    norm.mean = f32_1d(8);
    EXPECT_REFUSED(HS_ESHAPE, "norm_forward: mean is [8], expected [4]", hs_op_norm_forward(&context, &norm));

    norm.mean = f32_1d(4);
    norm.residual = f32(4, 8);
    EXPECT_REFUSED(HS_EINVAL, "norm_forward: residual is given without a branch: leave it out, or give both",
                   hs_op_norm_forward(&context, &norm));
    norm.branch = bf16(4, 16);
    EXPECT_REFUSED(HS_ESHAPE, "norm_forward: branch is [4,16], expected [4,8]", hs_op_norm_forward(&context, &norm));
    norm.branch = bf16(4, 8);
    norm.probability = 1.0f;
    EXPECT_REFUSED(HS_EINVAL, "norm_forward: dropout probability must be in [0, 1) (got 1)",
                   hs_op_norm_forward(&context, &norm));
    norm.probability = 0.5f;
    norm.residual = (HsTensor){ 0 };
    EXPECT_REFUSED(HS_ESHAPE, "norm_forward: residual is missing, expected [4,8]", hs_op_norm_forward(&context, &norm));

    HsNormBackwardArgs back = { .kind = HS_NORM_RMS,
                                .dy = bf16(4, 8),
                                .x = f32(4, 8),
                                .weight = f32_1d(8),
                                .rstd = f32_1d(4),
                                .dx = f32(4, 8),
                                .dx_rounded = f32(4, 8),
                                .dx_sums = f32_1d(8) };
    EXPECT_REFUSED(HS_ESHAPE, "norm_backward: dx_rounded is f32, expected f16 or bf16",
                   hs_op_norm_backward(&context, &back));
    back.dx_rounded = bf16(4, 16);
    EXPECT_REFUSED(HS_ESHAPE, "norm_backward: dx_rounded is [4,16], expected [4,8]",
                   hs_op_norm_backward(&context, &back));
    back.dx_rounded = bf16(4, 8);
    back.dx_sums = f32_1d(4);
    EXPECT_REFUSED(HS_ESHAPE, "norm_backward: dx_sums is [4], expected [8]", hs_op_norm_backward(&context, &back));
    back.dx_sums = f32_1d(8);
    back.dx_masked = bf16(4, 8);
    EXPECT_REFUSED(
        HS_EINVAL,
        "norm_backward: dx_masked is for a branch with dropout, dx_rounded and dx_sums for one without: leave "
        "out the one or the others",
        hs_op_norm_backward(&context, &back));
    HsNormBackwardArgs masked = back;
    masked.dx_rounded = masked.dx_sums = (HsTensor){ 0 };
    masked.probability = -0.5f;
    EXPECT_REFUSED(HS_EINVAL, "norm_backward: dropout probability must be in [0, 1) (got -0.5)",
                   hs_op_norm_backward(&context, &masked));
    back.dx_masked = (HsTensor){ 0 };
    back.x = back.dx = bf16(4, 8);
    EXPECT_REFUSED(HS_EINVAL, "norm_backward: dx_rounded and dx_sums are of an f32 dx (it is bf16)",
                   hs_op_norm_backward(&context, &back));

    HsRopeArgs rope = { .heads = { 1, 4, 3, 2, 8 }, .rule.theta = 1e4, .x = f32(4, 56), .y = f32(4, 56) };
    EXPECT_REFUSED(HS_EINVAL, "rope: 3 query heads cannot be shared evenly by 2 kv heads", hs_op_rope(&context, &rope));
    rope.heads.heads = 4, rope.heads.head_dim = 7;
    EXPECT_REFUSED(HS_EINVAL, "rope: head_dim must be even, it is rotated in pairs (got 7)",
                   hs_op_rope(&context, &rope));
    rope.heads.head_dim = 8;
    EXPECT_REFUSED(HS_ESHAPE, "rope: x is [4,56], expected [4,64]", hs_op_rope(&context, &rope));
    rope.heads.head_dim = 512;
    EXPECT_REFUSED(HS_EINVAL, "rope: head_dim must be at most 256 (got 512)", hs_op_rope(&context, &rope));
    rope.heads.head_dim = 8, rope.heads.batch = 0;
    EXPECT_REFUSED(HS_EINVAL, "rope: batch must be at least 1 (got 0)", hs_op_rope(&context, &rope));
}

Test(checks, norms_without_weights_and_with_addends)
{
    HsNormArgs norm = { .kind = HS_NORM_RMS, .x = bf16(4, 8), .bias = f32_1d(8), .y = f32(4, 8), .rstd = f32_1d(4) };
    EXPECT_REFUSED(HS_EINVAL, "norm_forward: bias is given without a weight: leave it out, or give both",
                   hs_op_norm_forward(&context, &norm));
    norm.bias = (HsTensor){ 0 };
    norm.addend = f32(4, 16);
    EXPECT_REFUSED(HS_ESHAPE, "norm_forward: addend is [4,16], expected [4,8]", hs_op_norm_forward(&context, &norm));
    norm.addend = norm.branch = norm.residual = f32(4, 8);
    EXPECT_REFUSED(HS_EINVAL,
                   "norm_forward: addend is what the norm of a branch is added to, branch what is added before a norm: "
                   "leave out the one or the other",
                   hs_op_norm_forward(&context, &norm));

    HsNormBackwardArgs back = {
        .kind = HS_NORM_RMS, .dy = f32(4, 8), .x = bf16(4, 8), .rstd = f32_1d(4), .dx = bf16(4, 8), .dweight = f32_1d(8)
    };
    EXPECT_REFUSED(HS_EINVAL, "norm_backward: dweight is given without a weight: leave it out, or give both",
                   hs_op_norm_backward(&context, &back));
    back.dweight = (HsTensor){ 0 };
    back.dbias = f32_1d(8);
    EXPECT_REFUSED(HS_EINVAL, "norm_backward: dbias is given without a weight: leave it out, or give both",
                   hs_op_norm_backward(&context, &back));
}

/* Four query heads and two key heads of eight, then all of a kind at once. */
Test(checks, head_norms)
{
    HsHeadNormArgs norm = {
        .heads = { 1, 4, 4, 2, 8 }, .x = f32(4, 64), .q_weight = f32_1d(8), .y = f32(4, 64), .rstd = f32(4, 6)
    };
    EXPECT_REFUSED(HS_EINVAL, "head_norm_forward: q_weight is given without k_weight: leave it out, or give both",
                   hs_op_head_norm_forward(&context, &norm));
    norm.k_weight = f32_1d(8);
    norm.whole = true;
    EXPECT_REFUSED(HS_ESHAPE, "head_norm_forward: q_weight is [8], expected [32]",
                   hs_op_head_norm_forward(&context, &norm));
    norm.q_weight = f32_1d(32);
    EXPECT_REFUSED(HS_ESHAPE, "head_norm_forward: k_weight is [8], expected [16]",
                   hs_op_head_norm_forward(&context, &norm));
    norm.k_weight = f32_1d(16);
    EXPECT_REFUSED(HS_ESHAPE, "head_norm_forward: rstd is [4,6], expected [4,2]",
                   hs_op_head_norm_forward(&context, &norm));

    HsHeadNormBackwardArgs back = { .heads = { 1, 4, 4, 2, 8 },
                                    .dy = f32(4, 64),
                                    .x = f32(4, 64),
                                    .k_weight = f32_1d(8),
                                    .rstd = f32(4, 6),
                                    .dx = f32(4, 64) };
    EXPECT_REFUSED(HS_EINVAL, "head_norm_backward: k_weight is given without q_weight: leave it out, or give both",
                   hs_op_head_norm_backward(&context, &back));
    back.k_weight = (HsTensor){ 0 };
    back.dk_weight = f32_1d(8);
    EXPECT_REFUSED(HS_EINVAL, "head_norm_backward: dk_weight is given without weights: leave it out, or give them",
                   hs_op_head_norm_backward(&context, &back));
    back.whole = true;
    EXPECT_REFUSED(HS_ESHAPE, "head_norm_backward: rstd is [4,6], expected [4,2]",
                   hs_op_head_norm_backward(&context, &back));
    back.rstd = f32(4, 2);
    EXPECT_REFUSED(HS_ESHAPE, "head_norm_backward: dk_weight is [8], expected [16]",
                   hs_op_head_norm_backward(&context, &back));
}

Test(checks, attention)
{
    HsAttentionArgs args = {
        .heads = { 2, 4, 4, 2, 8 }, .dropout = 1.0f, .qkv = bf16(8, 64), .out = bf16(8, 32), .lse = f32(8, 4)
    };
    EXPECT_REFUSED(HS_EINVAL, "attention_forward: dropout probability must be in [0, 1) (got 1)",
                   hs_op_attention_forward(&context, &args));
    args.dropout = 0.0f;
    EXPECT_REFUSED(HS_EINVAL, "attention_forward: the scale is 0; it must be positive and finite",
                   hs_op_attention_forward(&context, &args));
    args.rule.scale = 1.0f, args.rule.cap = -1.0f;
    EXPECT_REFUSED(HS_EINVAL, "attention_forward: the cap is -1; it must be positive and finite, or 0 for none",
                   hs_op_attention_forward(&context, &args));
    args.rule.cap = 0.0f, args.rule.window = -2;
    EXPECT_REFUSED(HS_EINVAL, "attention_forward: the window is -2; it must be positive, or 0 for none",
                   hs_op_attention_forward(&context, &args));
    args.rule.window = 0, args.rule.starts = hs_tensor_1d(NULL, HS_I32, 4);
    EXPECT_REFUSED(HS_ESHAPE, "attention_forward: starts is [4], expected [8]",
                   hs_op_attention_forward(&context, &args));
    args.rule.starts = f32_1d(8);
    EXPECT_REFUSED(HS_ESHAPE, "attention_forward: starts is f32, expected i32",
                   hs_op_attention_forward(&context, &args));
    args.rule.starts = hs_tensor_1d(NULL, HS_I32, 8);
    args.sinks = f32_1d(2);
    EXPECT_REFUSED(HS_ESHAPE, "attention_forward: sinks is [2], expected [4]",
                   hs_op_attention_forward(&context, &args));
    args.sinks = (HsTensor){ 0 };
    args.lse = f32(8, 2);
    EXPECT_REFUSED(HS_ESHAPE, "attention_forward: lse is [8,2], expected [8,4]",
                   hs_op_attention_forward(&context, &args));

    const HsTensor cache = hs_tensor_3d(NULL, HS_BF16, 2, 16, 16);
    HsAttentionCachedArgs cached = { .heads = { 2, 4, 4, 2, 8 },
                                     .rule.scale = 1.0f,
                                     .position_start = 13,
                                     .qkv = bf16(8, 64),
                                     .k_cache = cache,
                                     .v_cache = cache,
                                     .out = bf16(8, 32) };
    EXPECT_REFUSED(HS_ESHAPE, "attention_cached: positions 13..16 do not fit a cache of 16",
                   hs_op_attention_cached(&context, &cached));
    cached.rule.starts = hs_tensor_1d(NULL, HS_I32, 8);
    EXPECT_REFUSED(HS_EINVAL, "attention_cached: a cache has one document, and starts are given",
                   hs_op_attention_cached(&context, &cached));
    cached.rule.starts = (HsTensor){ 0 };
    cached.k_cache.dtype = HS_F32;
    EXPECT_REFUSED(HS_ESHAPE, "attention_cached: k_cache is f32, expected bf16 like qkv",
                   hs_op_attention_cached(&context, &cached));
}

Test(checks, embeddings_and_loss)
{
    HsEmbeddingArgs embedding = { .tokens = hs_tensor_1d(NULL, HS_I32, 12),
                                  .token_table = f32(100, 8),
                                  .position_table = f32(5, 8),
                                  .sequence_length = 6,
                                  .y = f32(12, 8) };
    EXPECT_REFUSED(HS_EINVAL, "embedding_forward: factor must be finite and not 0 (got 0); 1 is the plain lookup",
                   hs_op_embedding_forward(&context, &embedding));
    embedding.factor = 1.0f;
    EXPECT_REFUSED(HS_EINVAL, "embedding_backward: factor must be finite and not 0 (got inf); 1 is the plain lookup",
                   hs_op_embedding_backward(&context, &(HsEmbeddingBackwardArgs){ .factor = INFINITY }));
    EXPECT_REFUSED(HS_ESHAPE, "embedding_forward: position_table is [5,8], expected at least [6,8]",
                   hs_op_embedding_forward(&context, &embedding));
    embedding.sequence_length = 5;
    EXPECT_REFUSED(HS_ESHAPE, "embedding_forward: tokens is [12], expected a multiple of sequence_length 5",
                   hs_op_embedding_forward(&context, &embedding));
    HsDocumentStartsArgs marked = { .tokens = embedding.tokens, .sequence_length = 5 };
    EXPECT_REFUSED(HS_ESHAPE, "document_starts: starts is missing, expected [12]",
                   hs_op_document_starts(&context, &marked));
    marked.starts = marked.tokens;
    EXPECT_REFUSED(HS_ESHAPE, "document_starts: tokens is [12], expected a multiple of sequence_length 5",
                   hs_op_document_starts(&context, &marked));
    embedding.tokens.dtype = HS_F32;
    EXPECT_REFUSED(HS_ESHAPE, "embedding_forward: tokens is f32, expected i32",
                   hs_op_embedding_forward(&context, &embedding));

    /* gradients of 16-bit logits may take their place */
    HsCrossEntropyArgs loss = { .logits = bf16(4, 9),
                                .targets = hs_tensor_1d(NULL, HS_I32, 4),
                                .losses = f32_1d(4),
                                .dlogits = hs_tensor_2d(NULL, HS_F32, 4, 9) };
    EXPECT_REFUSED(HS_ESHAPE, "cross_entropy: dlogits is f32, expected bf16 like logits",
                   hs_op_cross_entropy(&context, &loss));
    loss.dlogits.dtype = HS_BF16;
    loss.cap = -30.0f;
    EXPECT_REFUSED(HS_EINVAL, "cross_entropy: the cap is -30; it must be positive and finite, or 0 for none",
                   hs_op_cross_entropy(&context, &loss));
}

Test(checks, caps_of_logits)
{
    const HsTensor rows = hs_tensor_1d(NULL, HS_I32, 4), index = hs_tensor_2d(NULL, HS_I32, 4, 2);
    EXPECT_REFUSED(
        HS_EINVAL, "top_logits: the cap is inf; it must be positive and finite, or 0 for none",
        hs_op_top_logits(
            &context, &(HsTopLogitsArgs){ .logits = f32(4, 9), .cap = INFINITY, .value = f32(4, 2), .index = index }));
    EXPECT_REFUSED(HS_EINVAL, "match_logits: the cap is -1; it must be positive and finite, or 0 for none",
                   hs_op_match_logits(&context, &(HsMatchLogitsArgs){ .logits = f32(4, 9),
                                                                      .cap = -1.0f,
                                                                      .targets = rows,
                                                                      .replayed = rows,
                                                                      .value = f32(4, 2),
                                                                      .index = index,
                                                                      .losses = f32_1d(4),
                                                                      .dlogits = f32(4, 9) }));
    HsDistillArgs distill = { .logits = f32(4, 9),
                              .teacher = f32(4, 9),
                              .cap = 30.0f,
                              .teacher_cap = -2.0f,
                              .targets = rows,
                              .losses = f32_1d(4),
                              .dlogits = f32(4, 9) };
    EXPECT_REFUSED(HS_EINVAL, "distill: the teacher's cap is -2; it must be positive and finite, or 0 for none",
                   hs_op_distill(&context, &distill));
    distill.cap = -2.0f;
    EXPECT_REFUSED(HS_EINVAL, "distill: the cap is -2; it must be positive and finite, or 0 for none",
                   hs_op_distill(&context, &distill));
    EXPECT_REFUSED(
        HS_EINVAL, "sample_labels: the cap is -3; it must be positive and finite, or 0 for none",
        hs_op_sample_labels(&context, &(HsSampleLabelsArgs){ .logits = f32(4, 9), .cap = -3.0f, .targets = rows }));
}

Test(checks, elementwise_and_updates)
{
    EXPECT_REFUSED(HS_ESHAPE, "swiglu_forward: x is [4,8], expected [4,16]",
                   hs_op_swiglu_forward(&context, &(HsUnaryArgs){ HS_ACTIVATION_GELU, f32(4, 8), f32(4, 8) }));
    EXPECT_REFUSED(HS_EINVAL, "swiglu_forward: the gate's function is silu or gelu (got 0)",
                   hs_op_swiglu_forward(&context, &(HsUnaryArgs){ .x = f32(4, 16), .y = f32(4, 8) }));
    EXPECT_REFUSED(HS_EINVAL, "swiglu_backward: the gate's function is silu or gelu (got 3)",
                   hs_op_swiglu_backward(
                       &context, &(HsUnaryBackwardArgs){ HS_ACTIVATION_RELU2, f32(4, 8), f32(4, 16), f32(4, 16) }));
    EXPECT_REFUSED(HS_ESHAPE, "combine: y is [4,7], expected 32 elements",
                   hs_op_combine(&context, &(HsCombineArgs){ .x = f32(4, 8), .y = f32(4, 7) }));
    EXPECT_REFUSED(HS_ESHAPE, "convert: stochastic rounding is for f32 to bf16 only (got bf16 to f32)",
                   hs_op_convert(&context, &(HsConvertArgs){ .x = bf16(1, 3), .y = f32(1, 3), .stochastic = true }));
    HsDropoutArgs dropout = { .probability = -0.5f, .x = f32(4, 8), .y = f32(4, 8) };
    EXPECT_REFUSED(HS_EINVAL, "dropout_forward: dropout probability must be in [0, 1) (got -0.5)",
                   hs_op_dropout_forward(&context, &dropout));
    HsAdamWArgs adamw = { .update.grad = f32_1d(8), .m = f32_1d(8), .v = f32_1d(7), .update.weight = f32_1d(8) };
    EXPECT_REFUSED(HS_ESHAPE, "adamw: v is [7], expected 8 elements", hs_op_adamw(&context, &adamw));
    adamw.v = f32_1d(8);
    adamw.v.dtype = HS_BF16;
    EXPECT_REFUSED(HS_ESHAPE, "adamw: v is bf16, expected f32 like m", hs_op_adamw(&context, &adamw));
    adamw.v = f32_1d(8);
    adamw.update.weight.dtype = HS_F16;
    EXPECT_REFUSED(HS_ESHAPE, "adamw: an f16 weight needs a master (stochastic rounding is for bf16)",
                   hs_op_adamw(&context, &adamw));
    HsSgdArgs sgd = { .momentum = 0.9f, .update.grad = f32_1d(8), .update.weight = f32_1d(8) };
    EXPECT_REFUSED(HS_ESHAPE, "sgd: buffer is missing, expected 8 elements", hs_op_sgd(&context, &sgd));
}

/* The largest magnitude is found of what operations say they look at, and of no sum that grows. */
Test(checks, largest_magnitudes)
{
    float largest = 0;
    HsMatmulArgs product = {
        .a.values = bf16(4, 8), .b.values = bf16(8, 3), .alpha = 1, .c = f32(4, 3), .accumulate = true
    };
    product.c.amax = &largest;
    EXPECT_REFUSED(HS_EINVAL,
                   "matmul: the largest magnitude is found of a c that is written, not of one that "
                   "accumulates",
                   hs_op_matmul(&context, &product));
    HsConvertArgs convert = { .x = f32(4, 3), .y = bf16(4, 3) };
    convert.y.amax = &largest;
    EXPECT_REFUSED(HS_EINVAL, "convert: does not find the largest magnitude of y", hs_op_convert(&context, &convert));
    HsNormBackwardArgs norm = { .kind = HS_NORM_RMS,
                                .dy = bf16(4, 8),
                                .x = f32(4, 8),
                                .weight = f32_1d(8),
                                .rstd = f32_1d(4),
                                .dx = f32(4, 8),
                                .dx_rounded = bf16(4, 8) };
    norm.dx.amax = &largest;
    EXPECT_REFUSED(HS_EINVAL,
                   "norm_backward: the largest magnitude is of what is passed on, which is not dx where dx_rounded or "
                   "dx_masked is given",
                   hs_op_norm_backward(&context, &norm));
}

Test(checks, protection)
{
    HsSgdArgs sgd = { .update.grad = f32_1d(8), .update.weight = f32_1d(8), .update.protection.importance = f32_1d(8) };
    EXPECT_REFUSED(HS_EINVAL, "sgd: importance is given without an anchor", hs_op_sgd(&context, &sgd));
    sgd.update.protection.anchor = f32_1d(7);
    EXPECT_REFUSED(HS_ESHAPE, "sgd: anchor is [7], expected 8 elements", hs_op_sgd(&context, &sgd));
    sgd.update.protection.anchor = hs_tensor_1d(NULL, HS_BF16, 8);
    EXPECT_REFUSED(HS_ESHAPE, "sgd: anchor is bf16, expected f32", hs_op_sgd(&context, &sgd));
    sgd.update.protection.anchor = f32_1d(8), sgd.update.protection.strength = -1.0f;
    EXPECT_REFUSED(HS_EINVAL, "sgd: the penalty's strength must be at least 0 (got -1)", hs_op_sgd(&context, &sgd));
    HsAdamWArgs adamw = { .update.grad = f32_1d(8),
                          .m = f32_1d(8),
                          .v = f32_1d(8),
                          .update.weight = f32_1d(8),
                          .update.protection.path = f32_1d(9) };
    EXPECT_REFUSED(HS_ESHAPE, "adamw: path is [9], expected 8 elements", hs_op_adamw(&context, &adamw));
}

Test(checks, continual_learning)
{
    EXPECT_REFUSED(HS_ESHAPE, "combine: y is [7], expected 8 elements",
                   hs_op_combine(&context, &(HsCombineArgs){ .x = f32_1d(8), .y = f32_1d(7) }));
    const HsTensor eight[] = { f32_1d(8), f32_1d(8) }, uneven[] = { f32_1d(8), f32_1d(9) }, absent[2] = { 0 };
    EXPECT_REFUSED(HS_EINVAL, "dot: y is missing, expected 2 of them",
                   hs_op_dot(&context, &(HsDotArgs){ .x = eight, .count = 2 }));
    EXPECT_REFUSED(HS_ESHAPE, "dot: y 1 is [9], expected 8 elements",
                   hs_op_dot(&context, &(HsDotArgs){ .x = eight, .y = uneven, .count = 2 }));
    EXPECT_REFUSED(HS_ESHAPE, "penalty: anchor 1 is [9], expected 8 elements",
                   hs_op_penalty(&context, &(HsPenaltyArgs){ absent, uneven, eight, 2, NULL }));
    EXPECT_REFUSED(HS_EINVAL, "importance_stats: tensors is missing, expected 3 of them",
                   hs_op_importance_stats(&context, &(HsImportanceStatsArgs){ .count = 3 }));
    EXPECT_REFUSED(HS_ESHAPE, "sample_labels: targets is [3], expected [4]",
                   hs_op_sample_labels(&context, &(HsSampleLabelsArgs){ .logits = f32(4, 9),
                                                                        .targets = hs_tensor_1d(NULL, HS_I32, 3) }));
    EXPECT_REFUSED(
        HS_ESHAPE, "argmax: index is [3], expected [4]",
        hs_op_argmax(&context,
                     &(HsArgmaxArgs){ .logits = f32(4, 9), .count = 9, .index = hs_tensor_1d(NULL, HS_I32, 3) }));
    EXPECT_REFUSED(
        HS_EINVAL, "argmax: count is 10, expected 1 to 9",
        hs_op_argmax(&context,
                     &(HsArgmaxArgs){ .logits = f32(4, 9), .count = 10, .index = hs_tensor_1d(NULL, HS_I32, 4) }));
    EXPECT_REFUSED(
        HS_ESHAPE, "square_accumulate: accumulator is bf16, expected f32",
        hs_op_square_accumulate(&context, &(HsSquareAccumulateArgs){ .grad = f32(1, 8), .accumulator = bf16(1, 8) }));
    EXPECT_REFUSED(HS_EINVAL, "consolidate_path: damping must be more than 0 (got 0)",
                   hs_op_consolidate_path(&context, &(HsConsolidatePathArgs){ .path = f32_1d(8),
                                                                              .importance = f32_1d(8),
                                                                              .anchor = f32_1d(8),
                                                                              .parameter = f32_1d(8) }));
    EXPECT_REFUSED(HS_ESHAPE, "interpolate: an f16 weight needs a master (stochastic rounding is for bf16)",
                   hs_op_interpolate(
                       &context, &(HsInterpolateArgs){ .anchor = f32_1d(8), .weight = hs_tensor_1d(NULL, HS_F16, 8) }));
}

Test(checks, consolidation)
{
    float memory[8];
    double offset;
    HsConsolidateArgs args = {
        .fresh = f32_1d(8), .importance = f32_1d(8), .anchor = f32_1d(7), .parameter = bf16(2, 4)
    };
    EXPECT_REFUSED(HS_ESHAPE, "consolidate: anchor is [7], expected 8 elements", hs_op_consolidate(&context, &args));
    args.anchor = hs_tensor_1d(memory, HS_F32, 8), args.offset = &offset;
    EXPECT_REFUSED(HS_EINVAL, "consolidate: offset is given, but only merge adds to it",
                   hs_op_consolidate(&context, &args));
    args.merge = true, args.offset = NULL;
    EXPECT_REFUSED(HS_EINVAL, "consolidate: offset is missing, merge adds to it", hs_op_consolidate(&context, &args));
    args.offset = &offset, args.fresh = args.anchor;
    EXPECT_REFUSED(HS_EINVAL, "consolidate: fresh and anchor share their memory, which merge cannot use",
                   hs_op_consolidate(&context, &args));
}

Test(checks, dry_runs_count_and_touch_nothing)
{
    HsContext context = dry();
    HsMatmulArgs args = product();
    cr_assert_eq(hs_op_matmul(&context, &args), HS_OK, "%s", hs_error_message());
    cr_expect_eq(context.flops, 2.0 * 8 * 16 * 256);
    context.flops = 0.0;
    HsAttentionArgs attention = {
        .heads = { 2, 4, 4, 2, 8 }, .rule.scale = 1, .qkv = f32(8, 64), .out = f32(8, 32), .lse = f32(8, 4)
    };
    cr_assert_eq(hs_op_attention_forward(&context, &attention), HS_OK, "%s", hs_error_message());
    cr_expect_eq(context.flops, 2.0 * 8 * 4 * 32);
    cr_expect_eq(context.workspace_needed, 0u, "the reference needs none");
}

static size_t hungry(const HsContext *context, const HsCombineArgs *args)
{
    (void)context;
    return 100 * (size_t)hs_tensor_count(&args->x);
}

Test(checks, workspace_is_planned_and_required)
{
    HsBackend backend = *hs_backend_ref();
    backend.workspace.combine = hungry;
    HsContext context = dry();
    context.backend = &backend;
    float x[3] = { 1, 2, 3 }, y[3] = { 0 }, workspace[75];
    const HsCombineArgs small = { hs_tensor_1d(x, HS_F32, 1), hs_tensor_1d(y, HS_F32, 1), 1.0f, 1.0f };
    const HsCombineArgs large = { hs_tensor_1d(x, HS_F32, 3), hs_tensor_1d(y, HS_F32, 3), 1.0f, 1.0f };
    cr_assert_eq(hs_op_combine(&context, &large), HS_OK);
    cr_assert_eq(hs_op_combine(&context, &small), HS_OK);
    cr_expect_eq(context.workspace_needed, 300u, "the largest of both");
    cr_expect_eq(y[0], 0.0f, "a dry run computed");

    context.dry_run = false;
    context.workspace_bytes = 299;
    context.workspace = workspace;
    cr_expect_eq(hs_op_combine(&context, &large), HS_ENOMEM);
    cr_expect_str_eq(hs_error_message(),
                     "combine: the ref backend needs 300 bytes of workspace, the context has 299: plan "
                     "with a dry run");
    context.workspace_bytes = 300;
    cr_expect_eq(hs_op_combine(&context, &large), HS_OK);
    cr_expect_eq(y[2], 3.0f);
}

/* An operation without rows is neither checked nor costs anything: these have their own functions. */
Test(checks, every_operation_has_rows)
{
    static const char *const without[] = { "adamw",    "adamw8bit", "sgd",        "update_list",
                                           "momentum", "descend",   "begin_step", "prepare_step" };
    static const struct {
        const char *op;
        const HsOperandTable *table;
    } operations[] = {
#define OPERATION(name, Args, formula) { #name, &hs_operands.name },
        HS_OPS(OPERATION)
#undef OPERATION
    };
    for (size_t i = 0; i < sizeof operations / sizeof *operations; i++) {
        bool expected = true;
        for (size_t j = 0; j < sizeof without / sizeof *without; j++)
            expected = expected && strcmp(operations[i].op, without[j]) != 0;
        cr_expect_eq(operations[i].table->rows[0].name != NULL, expected, "%s", operations[i].op);
        cr_expect_null(operations[i].table->rows[HS_MOST_OPERANDS].name, "%s: no end", operations[i].op);
    }
}

Test(checks, formulas_by_name)
{
    cr_expect_str_eq(hs_op_formula("combine"), "y = alpha x + beta y");
    cr_expect_null(hs_op_formula("subtract"));
}
