/* SPDX-License-Identifier: MIT
 *
 * What operations cost, against numbers worked out by hand; and that the flops of a dry run are those.
 */
#include <criterion/criterion.h>

#include "kernels/ops/backend.h"

static HsTensor tensor(HsDtype dtype, int64_t rows, int64_t columns)
{
    return hs_tensor_2d(NULL, dtype, rows, columns);
}

static HsTensor vector(HsDtype dtype, int64_t count)
{
    return hs_tensor_1d(NULL, dtype, count);
}

#define EXPECT_COST(call, wanted_flops, wanted_bytes)                                \
    do {                                                                             \
        const HsOpCost cost = (call);                                                \
        cr_expect_eq(cost.flops, (wanted_flops), "%s: %g flops", #call, cost.flops); \
        cr_expect_eq(cost.bytes, (wanted_bytes), "%s: %g bytes", #call, cost.bytes); \
    } while (0)

/* x [10,32] w [48,32]^T -> y [10,48]: 10 * 48 sums of 32 multiply-adds. */
Test(cost, product_forward)
{
    HsMatmulArgs args = { .a.values = tensor(HS_BF16, 10, 32),
                          .b.values = tensor(HS_BF16, 48, 32),
                          .transpose_b = true,
                          .alpha = 1.0f,
                          .c = tensor(HS_BF16, 10, 48) };
    EXPECT_COST(hs_cost_matmul(&args), 30720.0, 2.0 * (320 + 1536 + 480));
    cr_expect_str_eq(hs_cost_matmul(&args).transposes, "nt");
    cr_expect_eq(hs_cost_matmul(&args).dtype, HS_BF16);
    /* A bias in f32, GELU's two results; then the residual stream read and written in f32. */
    args.bias = vector(HS_F32, 48);
    args.pre = tensor(HS_BF16, 10, 48);
    args.epilogue = HS_EPILOGUE_GELU;
    EXPECT_COST(hs_cost_matmul(&args), 30720.0, 2.0 * (320 + 1536 + 2 * 480) + 4.0 * 48);
    args.epilogue = HS_EPILOGUE_RELU2;
    EXPECT_COST(hs_cost_matmul(&args), 30720.0, 2.0 * (320 + 1536 + 2 * 480) + 4.0 * 48);
    args.epilogue = HS_EPILOGUE_GEGLU;
    args.c = tensor(HS_BF16, 10, 24);
    EXPECT_COST(hs_cost_matmul(&args), 30720.0, 2.0 * (320 + 1536 + 480 + 240) + 4.0 * 48);
    args.c = args.pre;
    args = (HsMatmulArgs){ .a.values = args.a.values, .b.values = args.b.values, .transpose_b = true };
    args.residual = args.c = tensor(HS_F32, 10, 48);
    EXPECT_COST(hs_cost_matmul(&args), 30720.0, 2.0 * (320 + 1536) + 4.0 * 2 * 480);
    /* The packed copy of b stands for b. */
    const HsPacked packed = { .dtype = HS_BF16, .k = 32, .n = 48 };
    args.b = hs_operand_packed(args.b.values, &packed);
    EXPECT_COST(hs_cost_matmul(&args), 30720.0, 2.0 * (320 + 1536) + 4.0 * 2 * 480);
}

Test(cost, product_gradients)
{
    const HsTensor dy = tensor(HS_F32, 10, 48), x = tensor(HS_F32, 10, 32), w = tensor(HS_F32, 48, 32);
    const HsMatmulArgs dgrad = { .a.values = dy, .b.values = w, .policy = HS_POLICY_TF32, .alpha = 1.0f, .c = x };
    const HsMatmulArgs wgrad = {
        .a.values = dy, .b.values = x, .transpose_a = true, .accumulate = true, .alpha = 1.0f, .c = w
    };
    EXPECT_COST(hs_cost_matmul(&dgrad), 30720.0, 4.0 * (480 + 1536 + 320));
    EXPECT_COST(hs_cost_matmul(&wgrad), 30720.0, 4.0 * (480 + 320 + 2 * 1536));
    HsMatmulArgs both = wgrad; /* the bias's gradient: 48 numbers, read and written */
    both.row_sums = vector(HS_F32, 48);
    EXPECT_COST(hs_cost_matmul(&both), 30720.0, 4.0 * (480 + 320 + 2 * 1536 + 2 * 48));
    cr_expect_str_eq(hs_cost_matmul(&dgrad).transposes, "nn");
    cr_expect_str_eq(hs_cost_matmul(&wgrad).transposes, "tn");
    cr_expect(hs_policy_is_tf32(hs_cost_matmul(&dgrad).policy) && !hs_policy_rounds(hs_cost_matmul(&wgrad).policy));
}

/* B 2, T 8, H 3, G 1, D 4: N = 16 rows of (3 + 2) * 4 = 20; 2 N T H D = 3072 flops. */
Test(cost, attention)
{
    const HsHeads heads = { .batch = 2, .sequence_length = 8, .heads = 3, .kv_heads = 1, .head_dim = 4 };
    const HsTensor qkv = tensor(HS_F16, 16, 20), out = tensor(HS_F16, 16, 12), lse = tensor(HS_F32, 16, 3);
    const HsAttentionArgs forward = { .heads = heads, .qkv = qkv, .out = out, .lse = lse };
    const HsAttentionBackwardArgs backward = {
        .heads = heads, .dout = out, .qkv = qkv, .out = out, .lse = lse, .dqkv = qkv
    };
    EXPECT_COST(hs_cost_attention_forward(&forward), 3072.0, 2.0 * (320 + 192) + 4.0 * 48);
    EXPECT_COST(hs_cost_attention_backward(&backward), 7680.0, 2.0 * (2 * 320 + 2 * 192) + 4.0 * 48);
    cr_expect_eq(hs_cost_attention_forward(&forward).dtype, HS_F16);
    cr_expect_null(hs_cost_attention_forward(&forward).transposes);
}

/* Two new rows a sequence behind five: rows of 5 + 1 and 5 + 2 keys; both caches of 7 rows of 4. */
Test(cost, cached_attention)
{
    const HsHeads heads = { .batch = 2, .sequence_length = 2, .heads = 3, .kv_heads = 1, .head_dim = 4 };
    const HsAttentionCachedArgs args = { .heads = heads,
                                         .position_start = 5,
                                         .qkv = tensor(HS_F32, 4, 20),
                                         .k_cache = tensor(HS_F32, 2 * 64, 4),
                                         .v_cache = tensor(HS_F32, 2 * 64, 4),
                                         .out = tensor(HS_F32, 4, 12) };
    EXPECT_COST(hs_cost_attention_cached(&args), 4.0 * 2 * 13 * 12, 4.0 * (2 * 2 * 7 * 4 + 80 + 48));
}

/* What no product is: bytes alone. */
Test(cost, what_memory_binds)
{
    const HsTensor x = tensor(HS_F32, 16, 64), y = tensor(HS_BF16, 16, 64), gain = vector(HS_F32, 64);
    const HsTensor rows = vector(HS_F32, 16);
    const HsNormArgs norm = { .x = x, .weight = gain, .y = y, .mean = rows, .rstd = rows };
    EXPECT_COST(hs_cost_norm_forward(&norm), 0.0, 4.0 * 1024 + 2.0 * 1024 + 4.0 * 64 + 2 * 4.0 * 16);
    HsNormArgs summed = norm;
    summed.branch = y;
    summed.residual = x;
    EXPECT_COST(hs_cost_norm_forward(&summed), 0.0, 8.0 * 1024 + 4.0 * 1024 + 4.0 * 64 + 2 * 4.0 * 16);
    /* A branch without a weight, to a stream in its own place. */
    const HsNormArgs added = { .kind = HS_NORM_RMS, .x = y, .addend = x, .y = x, .rstd = rows };
    EXPECT_COST(hs_cost_norm_forward(&added), 0.0, 2.0 * 1024 + 8.0 * 1024 + 4.0 * 16);
    HsNormBackwardArgs back = { .dy = y, .x = x, .weight = gain, .mean = rows, .rstd = rows, .dx = x, .dweight = gain };
    EXPECT_COST(hs_cost_norm_backward(&back), 0.0, 2.0 * 1024 + 4.0 * (2 * 1024 + 64 + 2 * 16 + 2 * 64));
    back.accumulate = true;
    EXPECT_COST(hs_cost_norm_backward(&back), 0.0, 2.0 * 1024 + 4.0 * (3 * 1024 + 64 + 2 * 16 + 2 * 64));
    back.dx_masked = y;
    EXPECT_COST(hs_cost_norm_backward(&back), 0.0, 4.0 * 1024 + 4.0 * (3 * 1024 + 64 + 2 * 16 + 2 * 64));
    back.dx_masked = (HsTensor){ 0 };
    back.dx_rounded = y;
    back.dx_sums = gain;
    EXPECT_COST(hs_cost_norm_backward(&back), 0.0, 4.0 * 1024 + 4.0 * (3 * 1024 + 64 + 2 * 16 + 4 * 64));
    const HsCombineArgs add = { .x = y, .y = x, .alpha = 1.0f, .beta = 1.0f };
    EXPECT_COST(hs_cost_combine(&add), 0.0, 2.0 * 1024 + 8.0 * 1024);
    HsPacked packed = { .dtype = HS_BF16 };
    const HsPackWeightArgs pack = { .w = y, .packed = &packed };
    EXPECT_COST(hs_cost_pack_weight(&pack), 0.0, 2.0 * 2 * 1024);
}

/* 12 tokens of a vocabulary of 9 name 9 rows at most. */
Test(cost, embedding)
{
    const HsTensor tokens = vector(HS_I32, 12), table = tensor(HS_BF16, 9, 8), positions = tensor(HS_BF16, 100, 8);
    const HsEmbeddingArgs forward = { .tokens = tokens,
                                      .token_table = table,
                                      .position_table = positions,
                                      .sequence_length = 6,
                                      .factor = 1.0f,
                                      .y = tensor(HS_F32, 12, 8) };
    EXPECT_COST(hs_cost_embedding_forward(&forward), 0.0, 4.0 * 12 + 2.0 * 9 * 8 + 2.0 * 6 * 8 + 4.0 * 96);
    const HsEmbeddingBackwardArgs backward = { .tokens = tokens,
                                               .dy = tensor(HS_F32, 12, 8),
                                               .sequence_length = 6,
                                               .factor = 1.0f,
                                               .dtoken_table = tensor(HS_F32, 9, 8) };
    EXPECT_COST(hs_cost_embedding_backward(&backward), 0.0, 4.0 * 12 + 4.0 * 96 + 2 * 4.0 * 9 * 8);
}

/* 100 parameters: gradient, moments and master are updated, the weight is written. */
Test(cost, update)
{
    const HsTensor f32 = vector(HS_F32, 100), bf16 = vector(HS_BF16, 100);
    const double scalars = sizeof(HsStepScalars);
    HsAdamWArgs args = { .update.grad = f32, .m = f32, .v = f32, .update.master = f32, .update.weight = bf16 };
    EXPECT_COST(hs_cost_adamw(&args), 0.0, scalars + 100.0 * (8 + 8 + 8 + 8 + 2));
    args.update.master = (HsTensor){ 0 };
    EXPECT_COST(hs_cost_adamw(&args), 0.0, scalars + 100.0 * (8 + 8 + 8 + 2 * 2));
    args.update.protection = (HsProtection){ .importance = f32, .anchor = f32, .path = f32 };
    EXPECT_COST(hs_cost_adamw(&args), 0.0, scalars + 100.0 * (8 + 8 + 8 + 2 * 2 + 4 + 4 + 8));
    int layout;
    HsPacked packed = { .data = &layout }, absent = { 0 };
    args.update.epilogue = (HsUpdateEpilogue){ .back = { { .anchor = f32 } }, .back_count = 1, .snapshots = { f32 } };
    args.update.epilogue.snapshot_count = 1;
    args.update.epilogue.average = f32;
    args.update.epilogue.packed = &packed;
    args.update.epilogue.packed_transposed = &absent;
    EXPECT_COST(hs_cost_adamw(&args), 0.0, scalars + 100.0 * (8 + 8 + 8 + 2 * 2 + 4 + 4 + 8 + 4 + 4 + 8 + 2));
    const HsTensor tensors[] = { f32, bf16 };
    double squares[2];
    int64_t bad[2];
    const HsGradStatsArgs stats = { .tensors = tensors, .count = 2, .sum_squares = squares, .nonfinite = bad };
    EXPECT_COST(hs_cost_grad_stats(&stats), 0.0, 600.0 + 2 * 16);
}

Test(cost, dry_runs_add_up_the_same_flops)
{
    HsContext context = { .backend = hs_backend_ref(), .threads = 1, .dry_run = true };
    const HsMatmulArgs args = { .a.values = tensor(HS_F32, 10, 32),
                                .b.values = tensor(HS_F32, 32, 48),
                                .alpha = 1.0f,
                                .c = tensor(HS_F32, 10, 48) };
    cr_assert_eq(hs_op_matmul(&context, &args), HS_OK, "%s", hs_error_message());
    cr_expect_eq(context.flops, hs_cost_matmul(&args).flops);
}
