/* SPDX-License-Identifier: MIT
 *
 * The reference against closed forms: numbers worked out by hand, identities, limits.
 */
#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

#include "kernels/base/tolerance.h"
#include "kernels/ops/backend.h"

#define RUN(call) cr_assert_eq((call), HS_OK, "%s", hs_error_message())

static HsContext reference(void)
{
    return (HsContext){ .backend = hs_backend_ref(), .threads = 1 };
}

static HsTensor f32_vector(float *data, int64_t count)
{
    return hs_tensor_1d(data, HS_F32, count);
}

static HsTensor f32_matrix(float *data, int64_t rows, int64_t columns)
{
    return hs_tensor_2d(data, HS_F32, rows, columns);
}

/* Values that one correctly rounded f32 operation chain in double may differ in: half a unit in the last place. */
static void expect_f32(const char *what, float found, double exact)
{
    const double tolerance = hs_tolerance(8, 0, HS_F64, HS_F32, fabs(exact) + 1.0, exact);
    cr_expect(fabs((double)found - exact) <= tolerance, "%s: %.9g, expected %.9g", what, (double)found, exact);
}

/* tanh(u) of gelu at x */
static double gelu_tanh(double x)
{
    return tanh(sqrt(2.0 / acos(-1.0)) * (x + 0.044715 * x * x * x));
}

static double gelu(double x)
{
    return 0.5 * x * (1.0 + gelu_tanh(x));
}

static double gelu_derivative(double x)
{
    const double t = gelu_tanh(x), slope = sqrt(2.0 / acos(-1.0)) * (1.0 + 3.0 * 0.044715 * x * x);
    return 0.5 * (1.0 + t) + 0.5 * x * (1.0 - t * t) * slope;
}

Test(ref, matmul_layouts)
{
    /* a = [1 2 3; 4 5 6], b = [1 0; 2 1; 0 3]:  a b = [5 11; 14 23] */
    float a[] = { 1, 2, 3, 4, 5, 6 }, a_transposed[] = { 1, 4, 2, 5, 3, 6 };
    float b[] = { 1, 0, 2, 1, 0, 3 }, b_transposed[] = { 1, 2, 0, 0, 1, 3 };
    const float expected[] = { 5, 11, 14, 23 };
    HsContext context = reference();
    for (int layout = 0; layout < 4; layout++) {
        const bool ta = layout & 1, tb = layout & 2;
        float c[4] = { 0 };
        RUN(hs_op_matmul(&context,
                         &(HsMatmulArgs){ .a.values = ta ? f32_matrix(a_transposed, 3, 2) : f32_matrix(a, 2, 3),
                                          .b.values = tb ? f32_matrix(b_transposed, 2, 3) : f32_matrix(b, 3, 2),
                                          .transpose_a = ta,
                                          .transpose_b = tb,
                                          .alpha = 1.0f,
                                          .c = f32_matrix(c, 2, 2) }));
        cr_expect_arr_eq(c, expected, sizeof c, "layout %d", layout);
    }
}

Test(ref, matmul_adds_the_sums_of_a_as_it_is_stored)
{
    float a[] = { 1, 2, 3, 4, 5, 6 }, b[] = { 1, 1 }, c[3], row_sums[] = { 100, 200, 300 };
    const float expected[] = { 105, 207, 309 }, products[] = { -10, -14, -18 };
    HsContext context = reference();
    RUN(hs_op_matmul(&context, &(HsMatmulArgs){ .a.values = f32_matrix(a, 2, 3),
                                                .b.values = f32_matrix(b, 2, 1),
                                                .transpose_a = true,
                                                .alpha = -2.0f,
                                                .c = f32_matrix(c, 3, 1),
                                                .row_sums = f32_vector(row_sums, 3) }));
    cr_expect_arr_eq(row_sums, expected, sizeof row_sums);
    cr_expect_arr_eq(c, products, sizeof c);
}

Test(ref, matmul_bias_residual_accumulate_in_place)
{
    float a[] = { 2 }, b[] = { 3, 5 }, bias[] = { 100, 200 }, c[] = { 1000, 2000 };
    HsContext context = reference();
    RUN(hs_op_matmul(&context, &(HsMatmulArgs){ .a.values = f32_matrix(a, 1, 1),
                                                .b.values = f32_matrix(b, 1, 2),
                                                .bias = f32_vector(bias, 2),
                                                .residual = f32_matrix(c, 1, 2),
                                                .accumulate = true,
                                                .alpha = 1.0f,
                                                .c = f32_matrix(c, 1, 2) }));
    cr_expect_eq(c[0], 2106.0f); /* 6 + 100 + 1000 as residual + 1000 as itself */
    cr_expect_eq(c[1], 4210.0f);
}

/* 6 / 2 + 10 + 100, and the sums of SwiGLU's two halves: gate 30, up 3. */
Test(ref, matmul_scales_its_sum_and_adds_before_the_epilogue)
{
    float a[] = { 2 }, b[] = { 3, 4 }, addend[] = { 10, 20 }, bias[] = { 100, 200 }, c[2], pre[2];
    float gates[] = { 30 - 3, 3 - 4 };
    HsContext context = reference();
    HsMatmulArgs args = { .a.values = f32_matrix(a, 1, 1),
                          .b.values = f32_matrix(b, 1, 2),
                          .alpha = 0.5f,
                          .addend = f32_matrix(addend, 1, 2),
                          .bias = f32_vector(bias, 2),
                          .c = f32_matrix(c, 1, 2) };
    RUN(hs_op_matmul(&context, &args));
    cr_expect_eq(c[0], 113.0f);
    cr_expect_eq(c[1], 224.0f);
    args.bias.rank = 0;
    args.addend.data = gates;
    args.epilogue = HS_EPILOGUE_SWIGLU;
    args.pre = f32_matrix(pre, 1, 2);
    args.c = f32_matrix(c, 1, 1);
    RUN(hs_op_matmul(&context, &args));
    cr_expect(pre[0] == 30.0f && pre[1] == 3.0f);
    expect_f32("silu(30) 3", c[0], 90.0 / (1.0 + exp(-30.0)));
}

Test(ref, matmul_gelu_reads_pre_as_it_is_stored)
{
    /* 1 + 2^-8 is a tie in bf16 and becomes 1, so c must be gelu(1). */
    float a[] = { 1.00390625f }, b[] = { 1 }, c[1];
    uint16_t pre[1];
    HsContext context = reference();
    RUN(hs_op_matmul(&context, &(HsMatmulArgs){ .a.values = f32_matrix(a, 1, 1),
                                                .b.values = f32_matrix(b, 1, 1),
                                                .epilogue = HS_EPILOGUE_GELU,
                                                .pre = hs_tensor_2d(pre, HS_BF16, 1, 1),
                                                .alpha = 1.0f,
                                                .c = f32_matrix(c, 1, 1) }));
    cr_expect_eq(hs_bf16_decode(pre[0]), 1.0f);
    expect_f32("gelu(1)", c[0], gelu(1.0));
}

/* Products 1 + 2^-8, a tie in bf16; -2 of it; 3 + 3/256, which becomes 193/64. */
Test(ref, matmul_squares_what_is_above_0_of_pre_as_it_is_stored)
{
    float a[] = { 1.00390625f }, b[] = { 1, -2, 3 }, c[3];
    uint16_t pre[3];
    HsContext context = reference();
    HsMatmulArgs args = { .a.values = f32_matrix(a, 1, 1),
                          .b.values = f32_matrix(b, 1, 3),
                          .epilogue = HS_EPILOGUE_RELU2,
                          .alpha = 1.0f,
                          .c = f32_matrix(c, 1, 3) };
    RUN(hs_op_matmul(&context, &args));
    expect_f32("of the sum itself", c[0], 1.00390625 * 1.00390625);
    args.pre = hs_tensor_2d(pre, HS_BF16, 1, 3);
    RUN(hs_op_matmul(&context, &args));
    cr_expect(c[0] == 1.0f && c[1] == 0.0f && c[2] == 37249.0f / 4096.0f, "%g %g %g", (double)c[0], (double)c[1],
              (double)c[2]);
    a[0] = NAN;
    RUN(hs_op_matmul(&context, &args));
    cr_expect(isnan(c[0]) && isnan(c[1]));
}

/* 6, 10, 14 and 18 times 2 max(pre, 0). */
Test(ref, matmul_goes_back_through_squared_relu)
{
    float a[] = { 2 }, b[] = { 3, 5, 7, 9 }, pre[] = { 4, -1, 0.5f, 0 }, c[4];
    const float expected[] = { 48, 0, 14, 0 };
    HsContext context = reference();
    RUN(hs_op_matmul(&context, &(HsMatmulArgs){ .a.values = f32_matrix(a, 1, 1),
                                                .b.values = f32_matrix(b, 1, 4),
                                                .epilogue = HS_EPILOGUE_RELU2_BACKWARD,
                                                .pre = f32_matrix(pre, 1, 4),
                                                .alpha = 1.0f,
                                                .c = f32_matrix(c, 1, 4) }));
    cr_expect_arr_eq(c, expected, sizeof c);
}

/* Gates 1 and -3, ups 4 and 0.5; backward from values 2 and 8. */
Test(ref, matmul_with_geglu_and_back)
{
    float a[] = { 1 }, b[] = { 1, -3, 4, 0.5f }, c[4], pre[4], value[] = { 2, 8 };
    HsContext context = reference();
    RUN(hs_op_matmul(&context, &(HsMatmulArgs){ .a.values = f32_matrix(a, 1, 1),
                                                .b.values = f32_matrix(b, 1, 4),
                                                .epilogue = HS_EPILOGUE_GEGLU,
                                                .pre = f32_matrix(pre, 1, 4),
                                                .alpha = 1.0f,
                                                .c = f32_matrix(c, 1, 2) }));
    cr_expect_arr_eq(pre, b, sizeof pre);
    expect_f32("gelu(1) 4", c[0], gelu(1.0) * 4.0);
    expect_f32("gelu(-3) 0.5", c[1], gelu(-3.0) * 0.5);
    RUN(hs_op_matmul(&context, &(HsMatmulArgs){ .a.values = f32_matrix(a, 1, 1),
                                                .b.values = f32_matrix(value, 1, 2),
                                                .epilogue = HS_EPILOGUE_GEGLU_BACKWARD,
                                                .pre = f32_matrix(pre, 1, 4),
                                                .alpha = 1.0f,
                                                .c = f32_matrix(c, 1, 4) }));
    expect_f32("2 * 4 gelu'(1)", c[0], 8.0 * gelu_derivative(1.0));
    expect_f32("8 * 0.5 gelu'(-3)", c[1], 4.0 * gelu_derivative(-3.0));
    expect_f32("2 gelu(1)", c[2], 2.0 * gelu(1.0));
    expect_f32("8 gelu(-3)", c[3], 8.0 * gelu(-3.0));
}

Test(ref, layer_norm_of_two)
{
    /* x = (1, 3): mean 2, variance 1 */
    float x[] = { 1, 3 }, weight[] = { 2, 4 }, bias[] = { 10, 20 }, y[2], mean[1], rstd[1];
    HsContext context = reference();
    RUN(hs_op_norm_forward(&context, &(HsNormArgs){ .kind = HS_NORM_LAYER,
                                                    .epsilon = 0.0f,
                                                    .x = f32_matrix(x, 1, 2),
                                                    .weight = f32_vector(weight, 2),
                                                    .bias = f32_vector(bias, 2),
                                                    .y = f32_matrix(y, 1, 2),
                                                    .mean = f32_vector(mean, 1),
                                                    .rstd = f32_vector(rstd, 1) }));
    cr_expect_eq(mean[0], 2.0f);
    cr_expect_eq(rstd[0], 1.0f);
    cr_expect_eq(y[0], 8.0f);
    cr_expect_eq(y[1], 24.0f);
}

Test(ref, rms_norm_of_two)
{
    /* x = (1, 7): mean square 25 */
    float x[] = { 1, 7 }, weight[] = { 5, 10 }, y[2], rstd[1];
    HsContext context = reference();
    RUN(hs_op_norm_forward(&context, &(HsNormArgs){ .kind = HS_NORM_RMS,
                                                    .x = f32_matrix(x, 1, 2),
                                                    .weight = f32_vector(weight, 2),
                                                    .y = f32_matrix(y, 1, 2),
                                                    .rstd = f32_vector(rstd, 1) }));
    expect_f32("rstd", rstd[0], 0.2);
    expect_f32("y[0]", y[0], 1.0);
    expect_f32("y[1]", y[1], 14.0);
}

/* The same without weights: xhat alone, and added to a stream in its own place. */
Test(ref, norms_without_weights)
{
    float x[] = { 1, 7 }, y[2], mean[1], rstd[1], stream[] = { 100, 200 };
    HsContext context = reference();
    HsNormArgs args = {
        .kind = HS_NORM_RMS, .x = f32_matrix(x, 1, 2), .y = f32_matrix(y, 1, 2), .rstd = f32_vector(rstd, 1)
    };
    RUN(hs_op_norm_forward(&context, &args));
    expect_f32("y[0]", y[0], 0.2);
    expect_f32("y[1]", y[1], 1.4);
    args.y = args.addend = f32_matrix(stream, 1, 2);
    RUN(hs_op_norm_forward(&context, &args));
    expect_f32("stream[0]", stream[0], 100.2);
    expect_f32("stream[1]", stream[1], 201.4);
    /* mean 4, variance 9 */
    args.kind = HS_NORM_LAYER;
    args.mean = f32_vector(mean, 1);
    args.addend = (HsTensor){ 0 };
    args.y = f32_matrix(y, 1, 2);
    RUN(hs_op_norm_forward(&context, &args));
    expect_f32("y[0]", y[0], -1.0);
    expect_f32("y[1]", y[1], 1.0);
}

/* 5 0.2 1 + 10 + 100 and 10 0.2 7 + 20 + 0.2, whose neighbours in bf16 are a quarter apart. */
Test(ref, norm_added_to_a_stream)
{
    float x[] = { 1, 7 }, weight[] = { 5, 10 }, bias[] = { 10, 20 }, addend[] = { 100, 0.2f }, rstd[1];
    uint16_t y[2];
    HsContext context = reference();
    RUN(hs_op_norm_forward(&context, &(HsNormArgs){ .kind = HS_NORM_RMS,
                                                    .x = f32_matrix(x, 1, 2),
                                                    .weight = f32_vector(weight, 2),
                                                    .bias = f32_vector(bias, 2),
                                                    .addend = f32_matrix(addend, 1, 2),
                                                    .y = hs_tensor_2d(y, HS_BF16, 1, 2),
                                                    .rstd = f32_vector(rstd, 1) }));
    cr_expect_eq(hs_bf16_decode(y[0]), 111.0f);
    cr_expect_eq(hs_bf16_decode(y[1]), 34.25f);
}

/* Two query heads of one, one key head: over heads each is its sign; over all queries, mean square 25. */
Test(ref, head_norm_of_each_and_of_all)
{
    float x[] = { 1, -7, 3, 9 }, q_weight[] = { 5, 10 }, k_weight[] = { 2 }, y[4], rstd[3];
    HsContext context = reference();
    HsHeadNormArgs args = {
        .heads = { 1, 1, 2, 1, 1 }, .x = f32_matrix(x, 1, 4), .y = f32_matrix(y, 1, 4), .rstd = f32_matrix(rstd, 1, 3)
    };
    RUN(hs_op_head_norm_forward(&context, &args));
    const double of_each[] = { 1, -1, 1, 9 }, of_all[] = { 1, -14, 2, 9 }, unweighted[] = { 0.2, -1.4, 1, 9 };
    for (int i = 0; i < 4; i++)
        expect_f32("of each head", y[i], of_each[i]);
    args.whole = true;
    args.rstd = f32_matrix(rstd, 1, 2);
    RUN(hs_op_head_norm_forward(&context, &args));
    for (int i = 0; i < 4; i++)
        expect_f32("of all, without weights", y[i], unweighted[i]);
    args.q_weight = f32_vector(q_weight, 2);
    args.k_weight = f32_vector(k_weight, 1);
    RUN(hs_op_head_norm_forward(&context, &args));
    for (int i = 0; i < 4; i++)
        expect_f32("of all", y[i], of_all[i]);
    expect_f32("rstd of queries", rstd[0], 0.2);
    expect_f32("rstd of keys", rstd[1], 1.0 / 3.0);
}

Test(ref, rope_turns_by_the_position)
{
    /* one head of two at position 3: the pair (1, 0) turns by 3 radians; the value head stays */
    const HsHeads heads = { 1, 1, 1, 1, 2 };
    float x[] = { 1, 0, 0, 1, 5, 6 };
    HsContext context = reference();
    RUN(hs_op_rope(&context, &(HsRopeArgs){ .heads = heads,
                                            .rule.theta = 10000.0,
                                            .position_start = 3,
                                            .x = f32_matrix(x, 1, 6),
                                            .y = f32_matrix(x, 1, 6) }));
    expect_f32("cos", x[0], cos(3.0));
    expect_f32("sin", x[1], sin(3.0));
    expect_f32("-sin", x[2], -sin(3.0));
    expect_f32("cos", x[3], cos(3.0));
    cr_expect_eq(x[4], 5.0f);
    cr_expect_eq(x[5], 6.0f);
}

Test(ref, rope_pairs_halves)
{
    /* head dimension 4: element 0 turns with element 2 by 1 radian, 1 with 3 by theta^(-1/2) = 0.1 */
    const HsHeads heads = { 1, 2, 1, 1, 4 };
    float x[24] = { 0 };
    x[12] = 1.0f, x[13] = 1.0f; /* the query of row 1 */
    HsContext context = reference();
    RUN(hs_op_rope(
        &context,
        &(HsRopeArgs){ .heads = heads, .rule.theta = 100.0, .x = f32_matrix(x, 2, 12), .y = f32_matrix(x, 2, 12) }));
    expect_f32("cos 1", x[12], cos(1.0));
    expect_f32("cos 0.1", x[13], cos(0.1));
    expect_f32("sin 1", x[14], sin(1.0));
    expect_f32("sin 0.1", x[15], sin(0.1));
}

enum { LENGTH = 3 };
static const HsHeads single = { 1, LENGTH, 1, 1, 1 };

/* q k v of one-dimensional heads, row by row */
static void attend_by(HsScoreRule rule, float *qkv, float *out, float *lse)
{
    HsContext context = reference();
    RUN(hs_op_attention_forward(&context, &(HsAttentionArgs){ .heads = single,
                                                              .rule = rule,
                                                              .qkv = f32_matrix(qkv, LENGTH, 3),
                                                              .out = f32_matrix(out, LENGTH, 1),
                                                              .lse = f32_matrix(lse, LENGTH, 1) }));
}

static void attend(float *qkv, float *out, float *lse)
{
    attend_by((HsScoreRule){ .scale = 1.0f }, qkv, out, lse);
}

/* A window counts the query's own key: of two, the second and third of three. */
Test(ref, attention_in_a_window_is_a_mean_of_as_many)
{
    float qkv[] = { 0, 1, 3, 0, 2, 6, 0, 3, 12 }, out[LENGTH], lse[LENGTH];
    attend_by((HsScoreRule){ .scale = 1.0f, .window = 2 }, qkv, out, lse);
    expect_f32("out[0]", out[0], 3.0);
    expect_f32("out[1]", out[1], 4.5);
    expect_f32("out[2]", out[2], 9.0);
    expect_f32("lse[2]", lse[2], log(2.0));
    attend_by((HsScoreRule){ .scale = 1.0f, .window = LENGTH }, qkv, out, lse);
    expect_f32("out[2]", out[2], 7.0);
}

/* A sink is one more score, without a value; one far above all others leaves next to nothing. */
Test(ref, attention_with_a_sink)
{
    float qkv[] = { 0, 1, 3, 0, 2, 6, 0, 3, 12 }, out[LENGTH], lse[LENGTH], sink = 0.5f;
    HsContext context = reference();
    HsAttentionArgs args = { .heads = single,
                             .rule = { .scale = 1.0f, .window = 2 },
                             .qkv = f32_matrix(qkv, LENGTH, 3),
                             .sinks = f32_vector(&sink, 1),
                             .out = f32_matrix(out, LENGTH, 1),
                             .lse = f32_matrix(lse, LENGTH, 1) };
    RUN(hs_op_attention_forward(&context, &args));
    expect_f32("out[0]", out[0], 3.0 / (1 + exp(0.5)));
    expect_f32("out[2]", out[2], 18.0 / (2 + exp(0.5)));
    expect_f32("lse[2]", lse[2], log(2 + exp(0.5)));
    sink = 1000.0f;
    RUN(hs_op_attention_forward(&context, &args));
    expect_f32("out[1]", out[1], 0.0);
    expect_f32("lse[1]", lse[1], 1000.0);
}

/* Scores 0.5 and 8 under a cap of 2. */
Test(ref, attention_with_capped_scores)
{
    float qkv[] = { 1, 0, 0, 1, 1, 0, 2, 16, 1 }, out[LENGTH], lse[LENGTH];
    attend_by((HsScoreRule){ .scale = 0.25f, .cap = 2.0f }, qkv, out, lse);
    const double none = 1.0, half = exp(2 * tanh(0.25)), eight = exp(2 * tanh(4.0));
    expect_f32("lse[2]", lse[2], log(none + half + eight));
    expect_f32("out[2]", out[2], eight / (none + half + eight));
}

Test(ref, attention_with_equal_scores_is_a_causal_mean)
{
    float qkv[] = { 0, 1, 3, 0, 2, 6, 0, 3, 12 }, out[LENGTH], lse[LENGTH];
    attend(qkv, out, lse);
    expect_f32("out[0]", out[0], 3.0);
    expect_f32("out[1]", out[1], 4.5);
    expect_f32("out[2]", out[2], 7.0);
    expect_f32("lse[2]", lse[2], log(3.0));
}

Test(ref, attention_survives_huge_scores)
{
    /* scores 10^4 apart: exp overflows and underflows, the softmax is an argmax */
    float qkv[] = { 100, 100, 1, 100, 200, 2, 100, -100, 4 }, out[LENGTH], lse[LENGTH];
    attend(qkv, out, lse);
    cr_expect_eq(out[0], 1.0f);
    cr_expect_eq(out[1], 2.0f);
    cr_expect_eq(out[2], 2.0f);
    cr_expect_eq(lse[0], 1e4f);
    cr_expect_eq(lse[2], 2e4f);
}

Test(ref, attention_shares_kv_heads)
{
    /* two query heads, one kv head: both read the same values, through different scores */
    const HsHeads heads = { 1, 2, 2, 1, 1 };
    float qkv[] = { 0, 0, 0, 1, 0, 1, 1, 3 }, out[4], lse[4];
    HsContext context = reference();
    RUN(hs_op_attention_forward(&context, &(HsAttentionArgs){ .heads = heads,
                                                              .rule.scale = 1.0f,
                                                              .qkv = f32_matrix(qkv, 2, 4),
                                                              .out = f32_matrix(out, 2, 2),
                                                              .lse = f32_matrix(lse, 2, 2) }));
    expect_f32("query 0", out[2], 2.0);
    expect_f32("query 1", out[3], (1.0 + 3.0 * exp(1.0)) / (1.0 + exp(1.0)));
}

/* The same tokens all at once, and one after another through the cache. */
Test(ref, attention_cached_equals_attention_forward)
{
    enum { B = 2, T = 9, H = 4, G = 2, D = 8, COLUMNS = (H + 2 * G) * D, ROOM = 12 };
    static float qkv[B * T * COLUMNS], out[B * T * H * D], lse[B * T * H];
    static float k[B * ROOM * G * D], v[B * ROOM * G * D];
    const HsRng rng = { .seed = 3 };
    for (int i = 0; i < B * T * COLUMNS; i++)
        qkv[i] = 4.0f * hs_rng_uniform(hs_rng_draw(&rng, (uint64_t)i).word[0]) - 2.0f;
    HsContext context = reference();
    float sinks[H] = { -1, 2, 0, 40 };
    RUN(hs_op_attention_forward(&context, &(HsAttentionArgs){ .heads = { B, T, H, G, D },
                                                              .rule.scale = 0.35f,
                                                              .sinks = f32_vector(sinks, H),
                                                              .qkv = f32_matrix(qkv, B * T, COLUMNS),
                                                              .out = f32_matrix(out, B * T, H * D),
                                                              .lse = f32_matrix(lse, B * T, H) }));
    const HsTensor k_cache = hs_tensor_3d(k, HS_F32, B, ROOM, G * D), v_cache = hs_tensor_3d(v, HS_F32, B, ROOM, G * D);
    /* a prompt of five, then pieces of one, two and one */
    const int pieces[] = { 5, 1, 2, 1 };
    int start = 0;
    for (int piece = 0; piece < 4; piece++) {
        const int count = pieces[piece];
        static float rows[B * T * COLUMNS], result[B * T * H * D];
        for (int b = 0; b < B; b++)
            memcpy(rows + b * count * COLUMNS, qkv + (b * T + start) * COLUMNS,
                   (size_t)(count * COLUMNS) * sizeof *rows);
        RUN(hs_op_attention_cached(&context, &(HsAttentionCachedArgs){ .heads = { B, count, H, G, D },
                                                                       .rule.scale = 0.35f,
                                                                       .position_start = start,
                                                                       .qkv = f32_matrix(rows, B * count, COLUMNS),
                                                                       .k_cache = k_cache,
                                                                       .v_cache = v_cache,
                                                                       .sinks = f32_vector(sinks, H),
                                                                       .out = f32_matrix(result, B * count, H * D) }));
        for (int b = 0; b < B; b++)
            cr_expect_arr_eq(result + b * count * H * D, out + (b * T + start) * H * D,
                             (size_t)(count * H * D) * sizeof *out, "sequence %d from %d", b, start);
        start += count;
    }
}

Test(ref, cross_entropy_of_equal_logits)
{
    float logits[] = { 7, 7, 7, 7, 1, 2, 3, 4 }, losses[2], gradient[8];
    int32_t targets[] = { 2, -1 };
    const float scale = 8.0f;
    HsContext context = reference();
    RUN(hs_op_cross_entropy(&context, &(HsCrossEntropyArgs){ .logits = f32_matrix(logits, 2, 4),
                                                             .targets = hs_tensor_1d(targets, HS_I32, 2),
                                                             .gradient_scale = &scale,
                                                             .losses = f32_vector(losses, 2),
                                                             .dlogits = f32_matrix(gradient, 2, 4) }));
    expect_f32("loss", losses[0], log(4.0));
    cr_expect_eq(losses[1], 0.0f);
    const double expected[] = { 2, 2, -6, 2, 0, 0, 0, 0 };
    for (int i = 0; i < 8; i++)
        expect_f32("gradient", gradient[i], expected[i]);
}

/* Logits of 2 tanh(x / 2), the third of them saturated: its gradient is small, and as exact as the others. */
Test(ref, cross_entropy_of_capped_logits)
{
    float logits[] = { 0, 3, 60, -9 }, loss[1], gradient[4];
    int32_t target[] = { 2 };
    const float scale = 8.0f;
    HsContext context = reference();
    RUN(hs_op_cross_entropy(&context, &(HsCrossEntropyArgs){ .logits = f32_matrix(logits, 1, 4),
                                                             .cap = 2.0f,
                                                             .targets = hs_tensor_1d(target, HS_I32, 1),
                                                             .z_loss = 0.25f,
                                                             .gradient_scale = &scale,
                                                             .losses = f32_vector(loss, 1),
                                                             .dlogits = f32_matrix(gradient, 1, 4) }));
    double total = 0.0;
    for (int v = 0; v < 4; v++)
        total += exp(2 * tanh(logits[v] / 2.0));
    const double lse = log(total);
    expect_f32("loss", loss[0], lse - 2.0);
    for (int v = 0; v < 4; v++) {
        const double e = exp(-fabs((double)logits[v])), slope = 4 * e / ((1 + e) * (1 + e));
        const double of_logit = 8 * ((1 + 0.5 * lse) * exp(2 * tanh(logits[v] / 2.0) - lse) - (v == 2 ? 1 : 0));
        cr_expect_float_eq(gradient[v], of_logit * slope, 0x1p-23 * fabs(of_logit * slope), "%d: %g, expected %g", v,
                           (double)gradient[v], of_logit * slope);
    }
}

/* Saturated logits are equal in f32, and still in order. */
Test(ref, top_logits_under_a_cap)
{
    float logits[] = { 400, -1, NAN, 500, 2, -600 }, value[4];
    int32_t index[4];
    HsContext context = reference();
    RUN(hs_op_top_logits(&context, &(HsTopLogitsArgs){ .logits = f32_matrix(logits, 1, 6),
                                                       .cap = 4.0f,
                                                       .value = f32_matrix(value, 1, 4),
                                                       .index = hs_tensor_2d(index, HS_I32, 1, 4) }));
    const int32_t expected[] = { 3, 0, 4, 1 };
    cr_expect_arr_eq(index, expected, sizeof index);
    cr_expect_eq(value[0], 4.0f);
    cr_expect_eq(value[1], 4.0f);
    expect_f32("value[2]", value[2], 4 * tanh(0.5));
    expect_f32("value[3]", value[3], -4 * tanh(0.25));
}

/* Of what is added to dlogits alone the cap's derivative is a factor. */
Test(ref, distillation_under_a_cap)
{
    float logits[] = { 1, -3 }, value[] = { 0.5f }, teacher[] = { 2, 0 }, losses[1], matched[] = { 3, 5 };
    float taught[] = { 3, 5 };
    int32_t targets[] = { 0 }, replayed[] = { 1 }, index[] = { 1 };
    const float scale = 2.0f;
    HsContext context = reference();
    RUN(hs_op_match_logits(&context, &(HsMatchLogitsArgs){ .logits = f32_matrix(logits, 1, 2),
                                                           .cap = 2.0f,
                                                           .targets = hs_tensor_1d(targets, HS_I32, 1),
                                                           .replayed = hs_tensor_1d(replayed, HS_I32, 1),
                                                           .value = f32_matrix(value, 1, 1),
                                                           .index = hs_tensor_2d(index, HS_I32, 1, 1),
                                                           .weight = 0.75f,
                                                           .target_weight = 0.5f,
                                                           .gradient_scale = &scale,
                                                           .losses = f32_vector(losses, 1),
                                                           .dlogits = f32_matrix(matched, 1, 2) }));
    const double t[] = { tanh(0.5), tanh(-1.5) }, distance = 2 * t[1] - 0.5;
    expect_f32("loss", losses[0], 0.75 * distance * distance);
    expect_f32("dlogits[0]", matched[0], 1.5);
    expect_f32("dlogits[1]", matched[1], 2.5 + 2.0 * 1.5 * distance * (1 - t[1] * t[1]));

    RUN(hs_op_distill(&context, &(HsDistillArgs){ .logits = f32_matrix(logits, 1, 2),
                                                  .teacher = f32_matrix(teacher, 1, 2),
                                                  .cap = 2.0f,
                                                  .teacher_cap = 4.0f,
                                                  .targets = hs_tensor_1d(targets, HS_I32, 1),
                                                  .fresh = { 0.75f, 2.0f, 0.5f },
                                                  .gradient_scale = &scale,
                                                  .losses = f32_vector(losses, 1),
                                                  .dlogits = f32_matrix(taught, 1, 2) }));
    /* of two, with the difference of their logits over 2 */
    const double p = 1 / (1 + exp(t[1] - t[0])), q = 1 / (1 + exp(-2 * tanh(0.5)));
    expect_f32("loss", losses[0], 0.75 * (q * log(q / p) + (1 - q) * log((1 - q) / (1 - p))));
    expect_f32("dlogits[0]", taught[0], 1.5 + 0.75 * (p - q) * (1 - t[0] * t[0]));
    expect_f32("dlogits[1]", taught[1], 2.5 + 0.75 * (q - p) * (1 - t[1] * t[1]));
}

Test(ref, dropout_keeps_its_share_and_ignores_the_split)
{
    enum { ROWS = 200, COLUMNS = 50, SPLIT = 80 };
    static float x[ROWS * COLUMNS], whole[ROWS * COLUMNS], parts[ROWS * COLUMNS];
    for (int i = 0; i < ROWS * COLUMNS; i++)
        x[i] = 1.0f;
    HsDropoutArgs args = { .probability = 0.25f, .rng = { .seed = 1, .step = 2, .site = 3 } };
    HsContext context = reference();
    args.x = f32_matrix(x, ROWS, COLUMNS), args.y = f32_matrix(whole, ROWS, COLUMNS);
    RUN(hs_op_dropout_forward(&context, &args));
    args.x = f32_matrix(x, SPLIT, COLUMNS), args.y = f32_matrix(parts, SPLIT, COLUMNS);
    RUN(hs_op_dropout_forward(&context, &args));
    args.rng.row_offset = SPLIT;
    args.x = f32_matrix(x, ROWS - SPLIT, COLUMNS);
    args.y = f32_matrix(parts + SPLIT * COLUMNS, ROWS - SPLIT, COLUMNS);
    RUN(hs_op_dropout_forward(&context, &args));
    cr_expect_arr_eq(whole, parts, sizeof whole);
    double kept = 0.0;
    for (int i = 0; i < ROWS * COLUMNS; i++) {
        if (whole[i] != 0.0f) {
            expect_f32("kept element", whole[i], 4.0 / 3.0);
            kept += 1.0;
        }
    }
    /* five standard deviations of a binomial share */
    const double count = ROWS * COLUMNS;
    cr_expect(fabs(kept - 0.75 * count) <= 5.0 * sqrt(count * 0.75 * 0.25), "%g of %g kept", kept, count);
}

static void check_embedding(float factor)
{
    float table[] = { 1, 2, 3, 4, 5, 6 }, positions[] = { 10, 20, 30, 40 }, y[8];
    int32_t tokens[] = { 2, 0, 2, 1 };
    HsContext context = reference();
    RUN(hs_op_embedding_forward(&context, &(HsEmbeddingArgs){ .tokens = hs_tensor_1d(tokens, HS_I32, 4),
                                                              .token_table = f32_matrix(table, 3, 2),
                                                              .position_table = f32_matrix(positions, 2, 2),
                                                              .sequence_length = 2,
                                                              .factor = factor,
                                                              .y = f32_matrix(y, 4, 2) }));
    for (int i = 0; i < 8; i++)
        expect_f32("y", y[i], (double)factor * (double)table[2 * tokens[i / 2] + i % 2] + (double)positions[i % 4]);

    float dy[] = { 1, 2, 3, 4, 5, 6, 7, 8 }, dtable[6] = { 100 }, dpositions[4] = { 0 };
    RUN(hs_op_embedding_backward(&context,
                                 &(HsEmbeddingBackwardArgs){ .tokens = hs_tensor_1d(tokens, HS_I32, 4),
                                                             .dy = f32_matrix(dy, 4, 2),
                                                             .sequence_length = 2,
                                                             .factor = factor,
                                                             .dtoken_table = f32_matrix(dtable, 3, 2),
                                                             .dposition_table = f32_matrix(dpositions, 2, 2) }));
    const float sums[] = { 3, 4, 7, 8, 6, 8 }, expected_positions[] = { 6, 8, 10, 12 };
    for (int i = 0; i < 6; i++)
        expect_f32("dtoken_table", dtable[i], (i == 0 ? 100.0 : 0.0) + (double)(factor * sums[i]));
    cr_expect_arr_eq(dpositions, expected_positions, sizeof dpositions);
}

Test(ref, embedding_gathers_and_scatters)
{
    check_embedding(1.0f);
    check_embedding(-2.5f);
}

Test(ref, swiglu_at_zero_and_far_out)
{
    float x[] = { 0, 30, -30, 3, 3, 3 }, y[3];
    HsContext context = reference();
    RUN(hs_op_swiglu_forward(&context, &(HsUnaryArgs){ HS_ACTIVATION_SILU, f32_matrix(x, 1, 6), f32_matrix(y, 1, 3) }));
    cr_expect_eq(y[0], 0.0f);
    expect_f32("silu(30) 3", y[1], 90.0 / (1.0 + exp(-30.0)));
    expect_f32("silu(-30) 3", y[2], -90.0 / (1.0 + exp(30.0)));
}

Test(ref, geglu_at_zero_and_far_out)
{
    float x[] = { 0, 30, -30, 2, 3, 3, 3, 5 }, y[4], dy[] = { 7, 7, 7, 7 }, dx[8];
    HsContext context = reference();
    RUN(hs_op_swiglu_forward(&context, &(HsUnaryArgs){ HS_ACTIVATION_GELU, f32_matrix(x, 1, 8), f32_matrix(y, 1, 4) }));
    cr_expect(y[0] == 0.0f && y[1] == 90.0f && y[2] == 0.0f);
    expect_f32("gelu(2) 5", y[3], gelu(2.0) * 5.0);
    RUN(hs_op_swiglu_backward(&context, &(HsUnaryBackwardArgs){ HS_ACTIVATION_GELU, f32_matrix(dy, 1, 4),
                                                                f32_matrix(x, 1, 8), f32_matrix(dx, 1, 8) }));
    cr_expect(dx[0] == 10.5f && dx[1] == 21.0f && dx[2] == 0.0f && dx[4] == 0.0f && dx[5] == 210.0f && dx[6] == 0.0f);
    expect_f32("7 * 5 gelu'(2)", dx[3], 35.0 * gelu_derivative(2.0));
    expect_f32("7 gelu(2)", dx[7], 7.0 * gelu(2.0));
}
