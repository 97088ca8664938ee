/* SPDX-License-Identifier: MIT
 *
 * Blends, gates, smear and added values: the reference against numbers worked out by hand, what the checks refuse,
 * costs.
 */
#include <criterion/criterion.h>
#include <math.h>

#include "kernels/base/tolerance.h"
#include "kernels/ops/backend.h"

#define RUN(call) cr_assert_eq((call), HS_OK, "%s", hs_error_message())

static HsContext reference(void)
{
    return (HsContext){ .backend = hs_backend_ref(), .threads = 1 };
}

static HsTensor f32(float *data, int64_t rows, int64_t columns)
{
    return hs_tensor_2d(data, HS_F32, rows, columns);
}

static HsTensor vector(float *data, int64_t count)
{
    return hs_tensor_1d(data, HS_F32, count);
}

static HsTensor indices(int32_t *data, int64_t count)
{
    return hs_tensor_1d(data, HS_I32, count);
}

/* A chain in double, rounded to f32. */
static void expect_f32(const char *what, float found, double exact)
{
    const double tolerance = hs_tolerance(8, 0, HS_F64, HS_F32, fabs(exact) + 1.0, exact);
    cr_expect(fabs((double)found - exact) <= tolerance, "%s: %.9g, expected %.9g", what, (double)found, exact);
}

/* 2 x - 3 z, and in place x - 3 z */
Test(streams, blend_forward)
{
    float a[] = { 9, 2 }, b[] = { 9, 3 }, x[] = { 1, 2, 3, 4 }, z[] = { 1, 0, -1, 0.5f }, y[4];
    const float mixed[] = { -1, 4, 9, 6.5f }, without[] = { -2, 2, 6, 2.5f };
    HsContext context = reference();
    HsBlendArgs args = { .at = 1,
                         .sign = -1,
                         .a = vector(a, 2),
                         .b = vector(b, 2),
                         .x = f32(x, 2, 2),
                         .z = f32(z, 2, 2),
                         .y = f32(y, 2, 2) };
    RUN(hs_op_blend_forward(&context, &args));
    cr_expect_arr_eq(y, mixed, sizeof y);
    args.a = (HsTensor){ 0 };
    args.y = args.x;
    RUN(hs_op_blend_forward(&context, &args));
    cr_expect_arr_eq(x, without, sizeof x);
}

/* Sums: dy.x = 1 + 4 + 0 + 4 = 9, dy.z = 1 + 0 + 0 + 0.5; only the element that is asked for is added to. */
Test(streams, blend_backward)
{
    float a[] = { 9, 2 }, b[] = { 9, 3 }, x[] = { 1, 2, 3, 4 }, z[] = { 1, 0, -1, 0.5f }, dy[] = { 1, 2, 0, 1 };
    float dx[] = { 100, 100, 100, 100 }, dz[4], da[] = { 5, 10 }, db[] = { 5, 10 };
    const float added[] = { 102, 104, 100, 102 }, other[] = { -3, -6, 0, -3 }, in_place[] = { 2, 4, 0, 2 };
    HsContext context = reference();
    HsBlendBackwardArgs args = { .at = 1,
                                 .sign = -1,
                                 .a = vector(a, 2),
                                 .b = vector(b, 2),
                                 .dy = f32(dy, 2, 2),
                                 .x = f32(x, 2, 2),
                                 .z = f32(z, 2, 2),
                                 .accumulate_x = true,
                                 .dx = f32(dx, 2, 2),
                                 .dz = f32(dz, 2, 2),
                                 .da = vector(da, 2),
                                 .db = vector(db, 2) };
    RUN(hs_op_blend_backward(&context, &args));
    cr_expect_arr_eq(dx, added, sizeof dx);
    cr_expect(dz[0] == other[0] && dz[1] == other[1] && dz[2] == 0.0f && dz[3] == other[3]);
    cr_expect(da[0] == 5 && da[1] == 19 && db[0] == 5 && db[1] == 8.5f, "%g %g", (double)da[1], (double)db[1]);
    args.accumulate_x = false;
    args.dx = args.dy;
    RUN(hs_op_blend_backward(&context, &args));
    cr_expect_arr_eq(dy, in_place, sizeof dy);
    cr_expect(da[1] == 28 && db[1] == 7, "sums are of dy as it was: %g %g", (double)da[1], (double)db[1]);
}

/* Logits 0 and 3 of two features of three; the third is not read.  da = 1 * 1 * (1 - 1/2) of the first gate. */
Test(streams, gates)
{
    float x[] = { 1, 2, NAN }, w[] = { 2, -1, 1, 1 }, gate[2], dgate[] = { 1, 0 };
    float dx[] = { 7, 7, 7 }, dw[] = { 10, 20, 30, 40 };
    HsContext context = reference();
    RUN(hs_op_gate_forward(
        &context, &(HsGateArgs){ .factor = 2, .x = f32(x, 1, 3), .w = f32(w, 2, 2), .gate = f32(gate, 1, 2) }));
    cr_expect_eq(gate[0], 1.0f);
    expect_f32("a gate of 3", gate[1], 2.0 / (1.0 + exp(-3.0)));
    HsGateBackwardArgs args = { .factor = 2,
                                .dgate = f32(dgate, 1, 2),
                                .gate = f32(gate, 1, 2),
                                .x = f32(x, 1, 3),
                                .w = f32(w, 2, 2),
                                .accumulate = true,
                                .dx = f32(dx, 1, 3),
                                .dw = f32(dw, 2, 2) };
    RUN(hs_op_gate_backward(&context, &args));
    cr_expect(dx[0] == 8 && dx[1] == 6.5f && dx[2] == 7);
    cr_expect(dw[0] == 10.5f && dw[1] == 21 && dw[2] == 30 && dw[3] == 40);
    args.accumulate = false;
    args.x = args.dw = (HsTensor){ 0 };
    RUN(hs_op_gate_backward(&context, &args));
    cr_expect(dx[0] == 1 && dx[1] == -0.5f && dx[2] == 0);
}

/* Two sequences of two; then one of four, with a document from its third token on. */
Test(streams, smear_forward)
{
    float x[] = { 1, 10, 2, 20, 3, 30, 4, 40 }, gate[] = { 1, 2, 3, 4 }, strength[] = { 0.5f };
    float before[] = { 100, 200, 300, 400 }, y[8];
    int32_t starts[] = { 0, 0, 2, 2 };
    const float alone[] = { 1, 10, 3, 30, 3, 30, 10, 100 };
    const float behind[] = { 51, 110, 3, 30, 453, 630, 10, 100 };
    HsContext context = reference();
    HsSmearArgs args = { .sequence_length = 2,
                         .x = f32(x, 4, 2),
                         .gate = f32(gate, 4, 1),
                         .strength = vector(strength, 1),
                         .y = f32(y, 4, 2) };
    RUN(hs_op_smear_forward(&context, &args));
    cr_expect_arr_eq(y, alone, sizeof y);
    args.before = f32(before, 2, 2);
    RUN(hs_op_smear_forward(&context, &args));
    cr_expect_arr_eq(y, behind, sizeof y);
    args.before = (HsTensor){ 0 };
    args.sequence_length = 4;
    args.starts = indices(starts, 4);
    RUN(hs_op_smear_forward(&context, &args));
    cr_expect_arr_eq(y, alone, sizeof y);
}

/* Rows 1 and 3 have a token before: dy.x = 1 * 1 + 2 * 10 = 21, and -3 + 30 = 27. */
Test(streams, smear_backward)
{
    float x[] = { 1, 10, 2, 20, 3, 30, 4, 40 }, gate[] = { 1, 2, 3, 4 }, strength[] = { 0.5f };
    float dy[] = { 5, 6, 1, 2, 7, 8, -1, 1 }, dx[8], dgate[4], dstrength[] = { 1000 };
    const float expected[] = { 6, 8, 1, 2, 5, 10, -1, 1 };
    HsContext context = reference();
    HsSmearBackwardArgs args = { .sequence_length = 2,
                                 .dy = f32(dy, 4, 2),
                                 .x = f32(x, 4, 2),
                                 .gate = f32(gate, 4, 1),
                                 .strength = vector(strength, 1),
                                 .dx = f32(dx, 4, 2),
                                 .dgate = f32(dgate, 4, 1),
                                 .dstrength = vector(dstrength, 1) };
    RUN(hs_op_smear_backward(&context, &args));
    cr_expect_arr_eq(dx, expected, sizeof dx);
    cr_expect(dgate[0] == 0 && dgate[1] == 10.5f && dgate[2] == 0 && dgate[3] == 13.5f);
    cr_expect_eq(dstrength[0], 1000 + 2 * 21 + 4 * 27);
}

/* Two query heads on two heads of keys and values, of one feature: rows [q q k k v v]. */
Test(streams, added_values)
{
    float x[] = { 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12 }, y[12], table[] = { 100, 200, 300, 400, 500, 600 };
    float gate[] = { 1, 2, 0, 0.5f }, dy[12], drows[4], dgate[4];
    int32_t tokens[] = { 2, 0 };
    const float expected[] = { 1, 2, 3, 4, 505, 1206, 7, 8, 9, 10, 11, 112 };
    const HsHeads heads = { .batch = 1, .sequence_length = 2, .heads = 2, .kv_heads = 2, .head_dim = 1 };
    HsContext context = reference();
    HsAddValuesArgs args = { .heads = heads,
                             .tokens = indices(tokens, 2),
                             .table = f32(table, 3, 2),
                             .gate = f32(gate, 2, 2),
                             .x = f32(x, 2, 6),
                             .y = f32(y, 2, 6) };
    RUN(hs_op_add_values_forward(&context, &args));
    cr_expect_arr_eq(y, expected, sizeof y);
    args.y = args.x;
    for (int i = 0; i < 12; i++)
        dy[i] = x[i];
    RUN(hs_op_add_values_forward(&context, &args));
    cr_expect_arr_eq(x, expected, sizeof x);
    RUN(hs_op_add_values_backward(&context, &(HsAddValuesBackwardArgs){ .heads = heads,
                                                                        .tokens = args.tokens,
                                                                        .table = args.table,
                                                                        .gate = args.gate,
                                                                        .dy = f32(dy, 2, 6),
                                                                        .drows = f32(drows, 2, 2),
                                                                        .dgate = f32(dgate, 2, 2) }));
    cr_expect(drows[0] == 5 && drows[1] == 12 && drows[2] == 0 && drows[3] == 6);
    cr_expect(dgate[0] == 2500 && dgate[1] == 3600 && dgate[2] == 1100 && dgate[3] == 2400);
}

/* --- checks, on shapes without data --- */

static HsContext dry(void)
{
    return (HsContext){ .backend = hs_backend_ref(), .threads = 1, .dry_run = true };
}

#define EXPECT_REFUSED(code, message, call)                              \
    do {                                                                 \
        HsContext context = dry();                                       \
        cr_expect_eq((call), (code), "expected a refusal: %s", message); \
        cr_expect_str_eq(hs_error_message(), message);                   \
    } while (0)

static HsTensor shape(int64_t rows, int64_t columns)
{
    return f32(NULL, rows, columns);
}

static HsTensor bf16(int64_t rows, int64_t columns)
{
    return hs_tensor_2d(NULL, HS_BF16, rows, columns);
}

Test(streams, refused_blends)
{
    const HsTensor absent = { 0 }, rows = shape(4, 8), vectors = vector(NULL, 3);
    HsBlendArgs args = { .at = 3, .sign = 0.5f, .b = vectors, .x = rows, .z = bf16(4, 8), .y = rows };
    EXPECT_REFUSED(HS_ESHAPE, "blend_forward: z is bf16, expected f32 like x", hs_op_blend_forward(&context, &args));
    args.z = rows;
    EXPECT_REFUSED(HS_EINVAL, "blend_forward: sign must be 1 or -1 (got 0.5)", hs_op_blend_forward(&context, &args));
    args.sign = 1;
    EXPECT_REFUSED(HS_EINVAL, "blend_forward: element 3 of b is asked for, which has 3",
                   hs_op_blend_forward(&context, &args));
    args.at = 2;
    args.a = vector(NULL, 4);
    EXPECT_REFUSED(HS_ESHAPE, "blend_forward: b is [3], expected [4]", hs_op_blend_forward(&context, &args));

    HsBlendBackwardArgs back = { .sign = 1, .b = vectors, .dy = rows };
    EXPECT_REFUSED(HS_EINVAL, "blend_backward: none of dx, dz, da and db is asked for",
                   hs_op_blend_backward(&context, &back));
    back.x = rows;
    EXPECT_REFUSED(HS_EINVAL, "blend_backward: x is given without da: leave it out, or give both",
                   hs_op_blend_backward(&context, &back));
    back.da = vectors;
    EXPECT_REFUSED(HS_EINVAL, "blend_backward: da is given without a: leave it out, or give both",
                   hs_op_blend_backward(&context, &back));
    back.x = back.da = absent;
    back.db = vectors;
    EXPECT_REFUSED(HS_EINVAL, "blend_backward: db is given without z: leave it out, or give both",
                   hs_op_blend_backward(&context, &back));
    float memory[32];
    back.db = absent;
    back.dx = back.dy = f32(memory, 4, 8);
    back.accumulate_x = true;
    EXPECT_REFUSED(HS_EINVAL, "blend_backward: dx and dy share their memory, and dx accumulates",
                   hs_op_blend_backward(&context, &back));
}

Test(streams, refused_gates)
{
    HsGateArgs args = { .factor = INFINITY, .x = shape(4, 8), .w = bf16(3, 9), .gate = shape(4, 3) };
    EXPECT_REFUSED(HS_EINVAL, "gate_forward: factor must be positive and finite (got inf)",
                   hs_op_gate_forward(&context, &args));
    args.factor = 2;
    EXPECT_REFUSED(HS_ESHAPE, "gate_forward: w is of 9 features, x has 8", hs_op_gate_forward(&context, &args));
    args.gate = shape(4, 2);
    EXPECT_REFUSED(HS_ESHAPE, "gate_forward: gate is [4,2], expected [4,3]", hs_op_gate_forward(&context, &args));

    HsGateBackwardArgs back = { .factor = 2, .dgate = shape(4, 3), .gate = shape(4, 3), .w = bf16(3, 9) };
    EXPECT_REFUSED(HS_EINVAL, "gate_backward: neither dx nor dw is asked for", hs_op_gate_backward(&context, &back));
    back.dx = shape(4, 8);
    EXPECT_REFUSED(HS_ESHAPE, "gate_backward: w is of 9 features, dx has 8", hs_op_gate_backward(&context, &back));
    back.dx = shape(4, 9);
    back.dw = bf16(3, 9);
    EXPECT_REFUSED(HS_EINVAL, "gate_backward: dw is given without x: leave it out, or give both",
                   hs_op_gate_backward(&context, &back));
}

Test(streams, refused_smears)
{
    HsSmearArgs args = { .sequence_length = 5,
                         .before = shape(3, 8),
                         .x = shape(12, 8),
                         .gate = shape(12, 1),
                         .strength = vector(NULL, 1),
                         .y = shape(12, 8) };
    EXPECT_REFUSED(HS_ESHAPE, "smear_forward: x is of 12 rows, expected a multiple of sequence_length 5",
                   hs_op_smear_forward(&context, &args));
    args.sequence_length = 6;
    EXPECT_REFUSED(HS_ESHAPE, "smear_forward: before is of 3 sequences, there are 2",
                   hs_op_smear_forward(&context, &args));
    args.before = shape(2, 8);
    args.starts = indices(NULL, 12);
    EXPECT_REFUSED(HS_EINVAL,
                   "smear_forward: before continues documents, and starts are given: leave out the one or the other",
                   hs_op_smear_forward(&context, &args));
    args.gate = vector(NULL, 12);
    EXPECT_REFUSED(HS_ESHAPE, "smear_forward: gate is [12], expected [12,1]", hs_op_smear_forward(&context, &args));

    const HsSmearBackwardArgs back = { .dy = shape(12, 8),
                                       .x = bf16(12, 8),
                                       .gate = shape(12, 1),
                                       .strength = vector(NULL, 1),
                                       .dx = shape(12, 8),
                                       .dgate = shape(12, 1) };
    EXPECT_REFUSED(HS_ESHAPE, "smear_backward: x is of 12 rows, expected a multiple of sequence_length 0",
                   hs_op_smear_backward(&context, &back));
}

Test(streams, refused_values)
{
    HsAddValuesArgs args = { .heads = { 1, 4, 4, 2, 8 },
                             .tokens = indices(NULL, 4),
                             .table = shape(9, 8),
                             .gate = shape(4, 4),
                             .x = shape(4, 64),
                             .y = shape(4, 64) };
    EXPECT_REFUSED(HS_ESHAPE, "add_values_forward: table is [9,8], expected [any,16]",
                   hs_op_add_values_forward(&context, &args));
    args.table = bf16(9, 16);
    EXPECT_REFUSED(HS_ESHAPE, "add_values_forward: gate is [4,4], expected [4,2]",
                   hs_op_add_values_forward(&context, &args));
    args.gate = shape(4, 2);
    args.y = bf16(4, 64);
    EXPECT_REFUSED(HS_ESHAPE, "add_values_forward: y is bf16, expected f32 like x",
                   hs_op_add_values_forward(&context, &args));
    HsAddValuesBackwardArgs back = { .heads = args.heads,
                                     .tokens = args.tokens,
                                     .table = args.table,
                                     .gate = args.gate,
                                     .dy = shape(4, 64),
                                     .drows = shape(4, 64) };
    EXPECT_REFUSED(HS_ESHAPE, "add_values_backward: drows is [4,64], expected [4,16]",
                   hs_op_add_values_backward(&context, &back));
    back.drows = (HsTensor){ 0 };
    EXPECT_REFUSED(HS_ESHAPE, "add_values_backward: dgate is missing, expected [4,2]",
                   hs_op_add_values_backward(&context, &back));
}

/* --- costs --- */

#define EXPECT_BYTES(call, wanted)                                             \
    do {                                                                       \
        const HsOpCost cost = (call);                                          \
        cr_expect_eq(cost.flops, 0.0);                                         \
        cr_expect_eq(cost.bytes, (wanted), "%s: %g bytes", #call, cost.bytes); \
    } while (0)

/* Of vectors one number moves. */
Test(streams, costs_of_streams)
{
    const HsTensor f = shape(16, 64), h = bf16(16, 64), vectors = vector(NULL, 12), gate = shape(16, 1);
    const HsBlendArgs blend = { .a = vectors, .b = vectors, .x = h, .z = h, .y = h };
    EXPECT_BYTES(hs_cost_blend_forward(&blend), 3 * 2.0 * 1024 + 2 * 4.0);
    const HsBlendBackwardArgs back = {
        .b = vectors, .dy = f, .z = h, .accumulate_z = true, .dx = f, .dz = f, .db = vectors
    };
    EXPECT_BYTES(hs_cost_blend_backward(&back), 4.0 * 1024 + 2.0 * 1024 + 4.0 * 1024 + 8.0 * 1024 + 4.0 + 8.0);
    const HsSmearArgs smear = {
        .sequence_length = 8, .before = bf16(2, 64), .x = h, .gate = gate, .strength = vector(NULL, 1), .y = h
    };
    EXPECT_BYTES(hs_cost_smear_forward(&smear), 2 * 2.0 * 1024 + 2.0 * 128 + 4.0 * 16 + 4.0);
    const HsSmearBackwardArgs unsmear = { .starts = indices(NULL, 16),
                                          .dy = f,
                                          .x = h,
                                          .gate = gate,
                                          .strength = vector(NULL, 1),
                                          .dx = f,
                                          .dgate = gate,
                                          .dstrength = vector(NULL, 1) };
    EXPECT_BYTES(hs_cost_smear_backward(&unsmear), 2 * 4.0 * 1024 + 2.0 * 1024 + 3 * 4.0 * 16 + 4.0 + 8.0);
}

/* Of rows the first 8 features move, and the value heads, 32 of 96 columns; of the table at most its 9 rows. */
Test(streams, costs_of_gates_and_values)
{
    const HsTensor h = bf16(16, 64), w = bf16(3, 8), gates = shape(16, 3);
    const HsGateArgs gate = { .factor = 2, .x = h, .w = w, .gate = gates };
    EXPECT_BYTES(hs_cost_gate_forward(&gate), 2.0 * 16 * 8 + 2.0 * 24 + 4.0 * 48);
    HsGateBackwardArgs back = {
        .factor = 2, .dgate = gates, .gate = gates, .x = h, .w = w, .dx = shape(16, 64), .dw = shape(3, 8)
    };
    EXPECT_BYTES(hs_cost_gate_backward(&back), 2 * 4.0 * 48 + 2.0 * 16 * 8 + 2.0 * 24 + 4.0 * 1024 + 8.0 * 24);
    back.accumulate = true;
    EXPECT_BYTES(hs_cost_gate_backward(&back), 2 * 4.0 * 48 + 2.0 * 16 * 8 + 2.0 * 24 + 8.0 * 16 * 8 + 8.0 * 24);

    int place;
    HsAddValuesArgs args = { .heads = { 2, 8, 2, 2, 16 },
                             .tokens = indices(NULL, 16),
                             .table = shape(9, 32),
                             .gate = shape(16, 2),
                             .x = bf16(16, 96),
                             .y = bf16(16, 96) };
    const double named = 4.0 * 16 + 4.0 * 9 * 32 + 4.0 * 32;
    EXPECT_BYTES(hs_cost_add_values_forward(&args), named + 2 * 2.0 * 16 * 96);
    args.x.data = args.y.data = &place;
    EXPECT_BYTES(hs_cost_add_values_forward(&args), named + 2 * 2.0 * 16 * 32);
    const HsAddValuesBackwardArgs values = { .heads = args.heads,
                                             .tokens = args.tokens,
                                             .table = args.table,
                                             .gate = args.gate,
                                             .dy = bf16(16, 96),
                                             .drows = bf16(16, 32),
                                             .dgate = shape(16, 2) };
    EXPECT_BYTES(hs_cost_add_values_backward(&values), named + 4.0 * 32 + 2 * 2.0 * 16 * 32);
}
