/* SPDX-License-Identifier: MIT
 *
 * The rows of operands.h, in the order of ops.h.
 */
#include "kernels/ops/operands.h"

#include <stddef.h>

static double bytes_of(const HsTensor *tensor)
{
    return (double)hs_tensor_bytes(tensor);
}

/* --- matmul --- */

static void adapt_a(const void *arguments, HsOperandRow *a)
{
    const HsMatmulArgs *args = arguments;
    a->shape = args->transpose_a ? "K M" : "M K";
}

/* Where a policy rounds both operands, it says what they become. */
static void adapt_b(const void *arguments, HsOperandRow *b)
{
    const HsMatmulArgs *args = arguments;
    b->shape = args->transpose_b ? "N K" : "K N";
    if (hs_format_rounds(args->policy.a) && hs_format_rounds(args->policy.b))
        b->like = NULL;
}

static double bytes_of_codes(const HsCodes *codes)
{
    return (double)(codes->rows * (hs_codes_row_bytes(codes) + hs_codes_blocks(codes)));
}

static double bytes_a(const void *arguments, const HsTensor *a)
{
    const HsMatmulArgs *args = arguments;
    return args->a.layout == HS_LAYOUT_CODES ? bytes_of_codes(&args->a.codes) : bytes_of(a);
}

static double bytes_b(const void *arguments, const HsTensor *b)
{
    const HsMatmulArgs *args = arguments;
    return args->b.layout == HS_LAYOUT_CODES ? bytes_of_codes(&args->b.codes)
           : args->b.layout == HS_LAYOUT_NF4 ? (double)hs_nf4_bytes(&args->b.nf4)
                                             : bytes_of(b);
}

/* Read once for the largest magnitude where its own scale follows from it, if that is not known yet or x is rotated,
 * and once for the codes, which are written. */
static double bytes_quantized(const void *arguments, const HsTensor *x)
{
    const HsQuantizeArgs *args = arguments;
    const HsCodes *const one = hs_codes_present(&args->along) ? &args->along : &args->across;
    const bool rotates = args->rotates && hs_codes_present(&args->across);
    const bool twice =
        hs_scale_is_of_tensor(one->granularity) && args->source == HS_SCALE_OWN && (x->amax == NULL || rotates);
    return (twice ? 2.0 : 1.0) * bytes_of(x) + (x->amax ? (double)sizeof *x->amax : 0.0) +
           bytes_of_codes(&args->along) + bytes_of_codes(&args->across);
}

/* pre is a result of a product that an activation follows, and an operand where it is gone back through. */
static void adapt_pre(const void *arguments, HsOperandRow *pre)
{
    const HsMatmulArgs *args = arguments;
    const bool gates = hs_epilogue_gates(args->epilogue), ungates = hs_epilogue_ungates(args->epilogue);
    pre->optional = !gates && !ungates && !hs_epilogue_differentiates(args->epilogue);
    pre->use = gates || hs_epilogue_activates(args->epilogue) ? HS_WRITTEN : HS_READ;
    pre->shape = ungates ? "M 2N" : "M N";
    if (gates || ungates)
        pre->dtypes = HS_DTYPES_WIDE | HS_DTYPE_BIT(args->a.values.dtype);
}

static void adapt_c(const void *arguments, HsOperandRow *c)
{
    const HsMatmulArgs *args = arguments;
    c->dtypes = HS_DTYPES_WIDE | HS_DTYPE_BIT(args->a.values.dtype);
    c->use = args->accumulate ? HS_UPDATED : HS_WRITTEN;
    c->shape = hs_epilogue_gates(args->epilogue) ? "M N/2" : hs_epilogue_ungates(args->epilogue) ? "M 2N" : "M N";
}

static double bytes_c(const void *arguments, const HsTensor *c)
{
    const HsMatmulArgs *args = arguments;
    if (hs_codes_present(&args->cast))
        return bytes_of_codes(&args->cast);
    return (args->accumulate ? 2.0 : 1.0) * bytes_of(c);
}

/* The weight, and its packed copy. */
static double bytes_packed(const void *arguments, const HsTensor *w)
{
    (void)arguments;
    return 2.0 * bytes_of(w);
}

/* --- embedding --- */

static double bytes_of_rows(const HsTensor *table, int64_t rows)
{
    return (double)rows * (double)table->shape[1] * (double)hs_dtype_bytes(table->dtype);
}

/* Rows that tokens may name, each once. */
static double bytes_named(const HsTensor *tokens, const HsTensor *table)
{
    return bytes_of_rows(table, tokens->shape[0] < table->shape[0] ? tokens->shape[0] : table->shape[0]);
}

static double bytes_token_table(const void *arguments, const HsTensor *table)
{
    const HsEmbeddingArgs *args = arguments;
    return bytes_named(&args->tokens, table);
}

static double bytes_position_table(const void *arguments, const HsTensor *table)
{
    const HsEmbeddingArgs *args = arguments;
    return bytes_of_rows(table, args->sequence_length);
}

/* Of the matrix that has more than are moved: the rows that are. */
static double bytes_moved(const void *arguments, const HsTensor *x)
{
    const HsMoveRowsArgs *args = arguments;
    return bytes_of_rows(x, args->rows.shape[0]);
}

/* Read for the table's gradient alone. */
static double bytes_backward_tokens(const void *arguments, const HsTensor *tokens)
{
    const HsEmbeddingBackwardArgs *args = arguments;
    return hs_tensor_present(&args->dtoken_table) ? bytes_of(tokens) : 0.0;
}

/* ... and for that of positions. */
static double bytes_backward_starts(const void *arguments, const HsTensor *starts)
{
    const HsEmbeddingBackwardArgs *args = arguments;
    return hs_tensor_present(&args->dposition_table) ? bytes_of(starts) : 0.0;
}

static double bytes_dtoken_table(const void *arguments, const HsTensor *table)
{
    const HsEmbeddingBackwardArgs *args = arguments;
    return 2.0 * bytes_named(&args->tokens, table);
}

static double bytes_dposition_table(const void *arguments, const HsTensor *table)
{
    const HsEmbeddingBackwardArgs *args = arguments;
    return 2.0 * bytes_of_rows(table, args->sequence_length);
}

/* --- norms, rope, attention --- */

static void adapt_mean(const void *arguments, HsOperandRow *mean)
{
    const HsNormArgs *args = arguments;
    mean->optional = args->kind == HS_NORM_RMS;
}

static void adapt_norm_x(const void *arguments, HsOperandRow *x)
{
    const HsNormArgs *args = arguments;
    x->use = hs_tensor_present(&args->branch) ? HS_WRITTEN : HS_READ;
}

static void adapt_norm_residual(const void *arguments, HsOperandRow *residual)
{
    const HsNormArgs *args = arguments;
    residual->optional = !hs_tensor_present(&args->branch);
}

static double bytes_norm_y(const void *arguments, const HsTensor *y)
{
    const HsNormArgs *args = arguments;
    return hs_codes_present(&args->cast) ? bytes_of_codes(&args->cast) : bytes_of(y);
}

static double bytes_rounded(const void *arguments, const HsTensor *dx_rounded)
{
    const HsNormBackwardArgs *args = arguments;
    return hs_codes_present(&args->cast) ? bytes_of_codes(&args->cast) : bytes_of(dx_rounded);
}

static void adapt_backward_mean(const void *arguments, HsOperandRow *mean)
{
    const HsNormBackwardArgs *args = arguments;
    mean->optional = args->kind == HS_NORM_RMS;
}

static void adapt_norm_dx(const void *arguments, HsOperandRow *dx)
{
    const HsNormBackwardArgs *args = arguments;
    dx->use = args->accumulate ? HS_UPDATED : HS_WRITTEN;
}

/* Where both head norms are asked whether they are of all heads at once. */
_Static_assert(offsetof(HsHeadNormArgs, whole) == offsetof(HsHeadNormBackwardArgs, whole), "`whole` is at one place");

static bool norms_whole(const void *arguments)
{
    const HsHeadNormArgs *args = arguments;
    return args->whole;
}

/* A weight of queries, or its gradient. */
static void adapt_of_queries(const void *arguments, HsOperandRow *weight)
{
    weight->shape = norms_whole(arguments) ? "O" : "D";
}

static void adapt_of_keys(const void *arguments, HsOperandRow *weight)
{
    weight->shape = norms_whole(arguments) ? "K" : "D";
}

static void adapt_head_rstd(const void *arguments, HsOperandRow *rstd)
{
    rstd->shape = norms_whole(arguments) ? "R 2" : "R S";
}

/* In place what is not rotated stays where it is, unless it is looked at for y's amax. */
static double bytes_rope(const void *arguments, const HsTensor *tensor)
{
    const HsRopeArgs *args = arguments;
    const double width = (double)args->heads.head_dim, keys = (double)args->heads.kv_heads;
    const double turned =
        ((double)args->heads.heads + keys) * (double)hs_rope_rotated(&args->rule, args->heads.head_dim);
    const double all = ((double)args->heads.heads + 2 * keys) * width;
    const bool stay = args->x.data && args->x.data == args->y.data && args->y.amax == NULL;
    return (stay ? turned / all : 1.0) * bytes_of(tensor);
}

/* Earlier rows are read, those in a window; new ones come from qkv and are written. */
static double bytes_cache(const void *arguments, const HsTensor *cache)
{
    const HsAttentionCachedArgs *args = arguments;
    const int64_t length = args->heads.sequence_length, all = args->position_start + length;
    const int64_t seen = args->rule.window > 0 ? args->rule.window + length - 1 : all;
    const int64_t rows = args->heads.batch * (seen < all ? seen : all);
    return (double)rows * (double)(args->heads.kv_heads * args->heads.head_dim) * (double)hs_dtype_bytes(cache->dtype);
}

/* --- streams, gates, values of tokens --- */

/* One element of a vector. */
static double bytes_of_one(const void *arguments, const HsTensor *vector)
{
    (void)arguments;
    return (double)hs_dtype_bytes(vector->dtype);
}

static double bytes_of_one_updated(const void *arguments, const HsTensor *vector)
{
    return 2.0 * bytes_of_one(arguments, vector);
}

static void adapt_blend_dx(const void *arguments, HsOperandRow *dx)
{
    const HsBlendBackwardArgs *args = arguments;
    dx->use = args->accumulate_x ? HS_UPDATED : HS_WRITTEN;
}

static void adapt_blend_dz(const void *arguments, HsOperandRow *dz)
{
    const HsBlendBackwardArgs *args = arguments;
    dz->use = args->accumulate_z ? HS_UPDATED : HS_WRITTEN;
}

/* The first columns, as many as a gate's weight has. */
static double bytes_of_features(const HsTensor *rows, const HsTensor *weight)
{
    return (double)rows->shape[0] * (double)weight->shape[1] * (double)hs_dtype_bytes(rows->dtype);
}

static double bytes_gate_x(const void *arguments, const HsTensor *x)
{
    const HsGateArgs *args = arguments;
    return bytes_of_features(x, &args->w);
}

static double bytes_gate_backward_x(const void *arguments, const HsTensor *x)
{
    const HsGateBackwardArgs *args = arguments;
    return bytes_of_features(x, &args->w);
}

static void adapt_gate_dx(const void *arguments, HsOperandRow *dx)
{
    const HsGateBackwardArgs *args = arguments;
    dx->use = args->accumulate ? HS_UPDATED : HS_WRITTEN;
}

static double bytes_gate_dx(const void *arguments, const HsTensor *dx)
{
    const HsGateBackwardArgs *args = arguments;
    return args->accumulate ? 2.0 * bytes_of_features(dx, &args->w) : bytes_of(dx);
}

/* Of rows of a packed projection the value heads. */
static double bytes_of_values(const HsHeads *heads, const HsTensor *rows)
{
    return (double)rows->shape[0] * (double)(heads->kv_heads * heads->head_dim) * (double)hs_dtype_bytes(rows->dtype);
}

/* In place query and key heads stay where they are. */
static double bytes_added_to(const void *arguments, const HsTensor *rows)
{
    const HsAddValuesArgs *args = arguments;
    const bool stay = args->x.data && args->x.data == args->y.data;
    return stay ? bytes_of_values(&args->heads, rows) : bytes_of(rows);
}

static double bytes_added_table(const void *arguments, const HsTensor *table)
{
    const HsAddValuesArgs *args = arguments;
    return bytes_named(&args->tokens, table);
}

static double bytes_added_dy(const void *arguments, const HsTensor *dy)
{
    const HsAddValuesBackwardArgs *args = arguments;
    return bytes_of_values(&args->heads, dy);
}

static double bytes_added_backward_table(const void *arguments, const HsTensor *table)
{
    const HsAddValuesBackwardArgs *args = arguments;
    return bytes_named(&args->tokens, table);
}

/* --- loss --- */

static void adapt_dlogits(const void *arguments, HsOperandRow *dlogits)
{
    const HsCrossEntropyArgs *args = arguments;
    if (hs_dtype_bytes(args->logits.dtype) == 2)
        dlogits->like = "logits";
}

/* --- distillation --- */

/* One element of each kept entry. */
static double bytes_matched(const void *arguments, const HsTensor *logits)
{
    const HsMatchLogitsArgs *args = arguments;
    return (double)hs_tensor_count(&args->index) * (double)hs_dtype_bytes(logits->dtype);
}

/* With a weight on the targets the whole row is scaled. */
static double bytes_matched_gradient(const void *arguments, const HsTensor *dlogits)
{
    const HsMatchLogitsArgs *args = arguments;
    return 2.0 * (args->target_weight == 1.0f ? bytes_matched(arguments, dlogits) : bytes_of(dlogits));
}

/* --- continual learning --- */

static void adapt_combine_y(const void *arguments, HsOperandRow *y)
{
    const HsCombineArgs *args = arguments;
    y->use = args->beta == 0.0f ? HS_WRITTEN : HS_UPDATED;
}

/* Only the columns that are copied move. */
static double bytes_of_columns(const void *arguments, const HsTensor *matrix)
{
    const HsCopyColumnsArgs *args = arguments;
    return (double)matrix->shape[0] * (double)args->columns * (double)hs_dtype_bytes(matrix->dtype);
}

/* Set to zero where it has its own memory; else only the anchor is written there. */
static void adapt_fresh(const void *arguments, HsOperandRow *fresh)
{
    const HsConsolidateArgs *args = arguments;
    fresh->use = args->fresh.data && args->fresh.data == args->anchor.data ? HS_READ : HS_UPDATED;
}

static void adapt_consolidated_anchor(const void *arguments, HsOperandRow *anchor)
{
    const HsConsolidateArgs *args = arguments;
    anchor->use = args->merge ? HS_UPDATED : HS_WRITTEN;
}

/* A tensor without an anchor costs nothing but its zero. */
static double bytes_penalized(const void *arguments, const HsTensor *parameter)
{
    const HsPenaltyArgs *args = arguments;
    return hs_tensor_present(&args->anchor[parameter - args->parameter]) ? bytes_of(parameter) : 0.0;
}

static double bytes_weighing(const void *arguments, const HsTensor *importance)
{
    const HsPenaltyArgs *args = arguments;
    return hs_tensor_present(&args->anchor[importance - args->importance]) ? bytes_of(importance) : 0.0;
}

/* p is the master where there is one; then the weight is written only. */
static void adapt_interpolated_weight(const void *arguments, HsOperandRow *weight)
{
    const HsInterpolateArgs *args = arguments;
    weight->use = hs_tensor_present(&args->master) ? HS_WRITTEN : HS_UPDATED;
}

/* Where HsHeads is looked for. */
_Static_assert(offsetof(HsHeadNormArgs, heads) == 0 && offsetof(HsHeadNormBackwardArgs, heads) == 0 &&
                   offsetof(HsRopeArgs, heads) == 0 && offsetof(HsAttentionArgs, heads) == 0 &&
                   offsetof(HsAttentionBackwardArgs, heads) == 0 && offsetof(HsAttentionCachedArgs, heads) == 0 &&
                   offsetof(HsSinkBackwardArgs, heads) == 0 && offsetof(HsAddValuesArgs, heads) == 0 &&
                   offsetof(HsAddValuesBackwardArgs, heads) == 0,
               "heads come first");

#define ACT    HS_DTYPES_ACT
#define WIDE   HS_DTYPES_WIDE
#define MOMENT HS_DTYPES_MOMENT
#define INDEX  HS_DTYPES_INDEX
#define ANY    HS_DTYPES_ANY
#define READ   HS_READ
#define WRITE  HS_WRITTEN
#define UPDATE HS_UPDATED
/* A row of an operation with arguments of type A; the shape, then further members. */
#define ROW(member, used, formats, ...)                                                                  \
    {                                                                                                    \
        .name = #member, .at = offsetof(A, member), .use = used, .dtypes = formats, .shape = __VA_ARGS__ \
    }

/* Of a score rule. */
#define STARTS                                                                                                         \
    {                                                                                                                  \
        .name = "starts", .at = offsetof(A, rule.starts), .use = READ, .dtypes = INDEX, .shape = "R", .optional = true \
    }

const HsOperands hs_operands = {
#define A HsMatmulArgs
    .matmul.rows = { ROW(a, READ, ACT, "M K", .adapt = adapt_a, .bytes = bytes_a),
                     ROW(b, READ, ACT, "K N", .like = "a", .adapt = adapt_b, .bytes = bytes_b),
                     ROW(addend, READ, ACT, "M N", .optional = true), ROW(bias, READ, WIDE, "N", .optional = true),
                     ROW(c, WRITE, ACT, "M N", .finds = true, .adapt = adapt_c, .bytes = bytes_c),
                     ROW(residual, READ, ACT, "M N", .optional = true), ROW(pre, WRITE, ACT, "M N", .adapt = adapt_pre),
                     ROW(row_sums, UPDATE, WIDE, "M", .optional = true) },
#undef A
#define A HsPackWeightArgs
    .pack_weight.rows = { ROW(w, READ, ACT, "X Y", .bytes = bytes_packed) },
#undef A
#define A HsQuantizeArgs
    .quantize.rows = { ROW(x, READ, ACT, "N C", .bytes = bytes_quantized) },
#undef A
#define A HsRollScalesArgs
    .roll_scales.rows = { ROW(history, UPDATE, WIDE, "X Y", .optional = true),
                          ROW(maxima, UPDATE, WIDE, "X", .optional = true) },
#undef A
#define A HsBiasBackwardArgs
    .bias_backward.rows = { ROW(dy, READ, ACT, "N C"), ROW(dbias, UPDATE, WIDE, "C") },
#undef A
#define A HsDocumentStartsArgs
    .document_starts.rows = { ROW(tokens, UPDATE, INDEX, "N"), ROW(starts, WRITE, INDEX, "N") },
#undef A
#define A HsEmbeddingArgs
    .embedding_forward.rows = { ROW(tokens, READ, INDEX, "N"), ROW(starts, READ, INDEX, "N", .optional = true),
                                ROW(token_table, READ, ACT, "V C", .bytes = bytes_token_table),
                                ROW(position_table, READ, ACT, "P C", .optional = true, .bytes = bytes_position_table),
                                ROW(y, WRITE, ACT, "N C") },
#undef A
#define A HsEmbeddingBackwardArgs
    .embedding_backward.rows = { ROW(tokens, READ, INDEX, "N", .bytes = bytes_backward_tokens),
                                 ROW(starts, READ, INDEX, "N", .optional = true, .bytes = bytes_backward_starts),
                                 ROW(dy, READ, ACT, "N C"),
                                 ROW(dtoken_table, UPDATE, ACT, "V C", .optional = true, .bytes = bytes_dtoken_table),
                                 ROW(dposition_table, UPDATE, ACT, "P C", .optional = true,
                                     .bytes = bytes_dposition_table) },
#undef A
#define A HsMoveRowsArgs
    .gather_rows.rows = { ROW(rows, READ, INDEX, "N"), ROW(x, READ, ANY, "M C", .bytes = bytes_moved),
                          ROW(y, WRITE, ANY, "N C", .like = "x") },
    .scatter_rows.rows = { ROW(rows, READ, INDEX, "N"), ROW(x, READ, ANY, "N C"),
                           ROW(y, WRITE, ANY, "M C", .like = "x", .bytes = bytes_moved) },
#undef A
#define A HsNormArgs
    .norm_forward.rows = { ROW(x, READ, ACT, "N C", .adapt = adapt_norm_x),
                           ROW(weight, READ, WIDE, "C", .optional = true), ROW(bias, READ, WIDE, "C", .optional = true),
                           ROW(addend, READ, ACT, "N C", .optional = true),
                           ROW(y, WRITE, ACT, "N C", .finds = true, .bytes = bytes_norm_y),
                           ROW(mean, WRITE, WIDE, "N", .adapt = adapt_mean), ROW(rstd, WRITE, WIDE, "N"),
                           ROW(branch, READ, ACT, "N C", .optional = true),
                           ROW(residual, READ, ACT, "N C", .adapt = adapt_norm_residual) },
#undef A
#define A HsNormBackwardArgs
    .norm_backward
        .rows = { ROW(x, READ, ACT, "N C"), ROW(dy, READ, ACT, "N C"), ROW(weight, READ, WIDE, "C", .optional = true),
                  ROW(mean, READ, WIDE, "N", .adapt = adapt_backward_mean), ROW(rstd, READ, WIDE, "N"),
                  ROW(dx, WRITE, ACT, "N C", .finds = true, .adapt = adapt_norm_dx),
                  ROW(dweight, UPDATE, WIDE, "C", .optional = true), ROW(dbias, UPDATE, WIDE, "C", .optional = true),
                  ROW(dx_rounded, WRITE, HS_DTYPES_16, "N C", .optional = true, .finds = true, .bytes = bytes_rounded),
                  ROW(dx_sums, UPDATE, WIDE, "C", .optional = true),
                  ROW(dx_masked, WRITE, ACT, "N C", .optional = true, .finds = true) },
#undef A
#define A HsHeadNormArgs
    .head_norm_forward = { .heads = true,
                           .rows = { ROW(x, READ, ACT, "R W"),
                                     ROW(q_weight, READ, WIDE, "D", .optional = true, .adapt = adapt_of_queries),
                                     ROW(k_weight, READ, WIDE, "D", .optional = true, .adapt = adapt_of_keys),
                                     ROW(y, WRITE, ACT, "R W", .like = "x"),
                                     ROW(rstd, WRITE, WIDE, "R S", .adapt = adapt_head_rstd) } },
#undef A
#define A HsHeadNormBackwardArgs
    .head_norm_backward = { .heads = true,
                            .rows = { ROW(dy, READ, ACT, "R W"), ROW(x, READ, ACT, "R W"),
                                      ROW(q_weight, READ, WIDE, "D", .optional = true, .adapt = adapt_of_queries),
                                      ROW(k_weight, READ, WIDE, "D", .optional = true, .adapt = adapt_of_keys),
                                      ROW(rstd, READ, WIDE, "R S", .adapt = adapt_head_rstd),
                                      ROW(dx, WRITE, ACT, "R W", .finds = true),
                                      ROW(dq_weight, UPDATE, WIDE, "D", .optional = true, .adapt = adapt_of_queries),
                                      ROW(dk_weight, UPDATE, WIDE, "D", .optional = true, .adapt = adapt_of_keys) } },
#undef A
#define A HsRopeArgs
    .rope = { .heads = true,
              .rows = { ROW(starts, READ, INDEX, "R", .optional = true), ROW(x, READ, ACT, "R W", .bytes = bytes_rope),
                        ROW(y, WRITE, ACT, "R W", .like = "x", .finds = true, .bytes = bytes_rope) } },
#undef A
#define A HsAttentionArgs
    .attention_forward = { .heads = true,
                           .rows = { STARTS, ROW(qkv, READ, ACT, "R W"), ROW(sinks, READ, WIDE, "H", .optional = true),
                                     ROW(out, WRITE, ACT, "R O", .finds = true), ROW(lse, WRITE, WIDE, "R H") } },
#undef A
#define A HsAttentionBackwardArgs
    .attention_backward = { .heads = true,
                            .rows = { STARTS, ROW(dout, READ, ACT, "R O"), ROW(qkv, READ, ACT, "R W"),
                                      ROW(out, READ, ACT, "R O"), ROW(lse, READ, WIDE, "R H"),
                                      ROW(dqkv, WRITE, ACT, "R W", .finds = true) } },
#undef A
#define A HsAttentionCachedArgs
    .attention_cached = { .heads = true,
                          .rows = { ROW(qkv, READ, ACT, "R W"),
                                    ROW(k_cache, UPDATE, ACT, "B C K", .like = "qkv", .bytes = bytes_cache),
                                    ROW(v_cache, UPDATE, ACT, "B C K", .like = "qkv", .bytes = bytes_cache),
                                    ROW(sinks, READ, WIDE, "H", .optional = true),
                                    ROW(out, WRITE, ACT, "R O", .finds = true) } },
#undef A
#define A HsSinkBackwardArgs
    .sink_backward = { .heads = true,
                       .rows = { ROW(dout, READ, ACT, "R O"), ROW(out, READ, ACT, "R O"), ROW(lse, READ, WIDE, "R H"),
                                 ROW(sinks, READ, WIDE, "H"), ROW(dsinks, UPDATE, WIDE, "H") } },
#undef A
#define A HsBlendArgs
    .blend_forward.rows = { ROW(x, READ, ACT, "N C"), ROW(z, READ, ACT, "N C", .like = "x"),
                            ROW(a, READ, WIDE, "L", .optional = true, .bytes = bytes_of_one),
                            ROW(b, READ, WIDE, "L", .bytes = bytes_of_one), ROW(y, WRITE, ACT, "N C", .like = "x") },
#undef A
#define A HsBlendBackwardArgs
    .blend_backward.rows = { ROW(dy, READ, ACT, "N C"), ROW(x, READ, ACT, "N C", .optional = true),
                             ROW(z, READ, ACT, "N C", .optional = true),
                             ROW(a, READ, WIDE, "L", .optional = true, .bytes = bytes_of_one),
                             ROW(b, READ, WIDE, "L", .bytes = bytes_of_one),
                             ROW(dx, WRITE, ACT, "N C", .optional = true, .adapt = adapt_blend_dx),
                             ROW(dz, WRITE, ACT, "N C", .optional = true, .adapt = adapt_blend_dz),
                             ROW(da, UPDATE, WIDE, "L", .optional = true, .bytes = bytes_of_one_updated),
                             ROW(db, UPDATE, WIDE, "L", .optional = true, .bytes = bytes_of_one_updated) },
#undef A
#define A HsGateArgs
    .gate_forward.rows = { ROW(x, READ, ACT, "N C", .bytes = bytes_gate_x), ROW(w, READ, ACT, "G K"),
                           ROW(gate, WRITE, WIDE, "N G") },
#undef A
#define A HsGateBackwardArgs
    .gate_backward.rows = { ROW(dgate, READ, WIDE, "N G"), ROW(gate, READ, WIDE, "N G"), ROW(w, READ, ACT, "G K"),
                            ROW(x, READ, ACT, "N C", .optional = true, .bytes = bytes_gate_backward_x),
                            ROW(dx, WRITE, ACT, "N C", .optional = true, .adapt = adapt_gate_dx,
                                .bytes = bytes_gate_dx),
                            ROW(dw, UPDATE, ACT, "G K", .optional = true) },
#undef A
#define A HsSmearArgs
    .smear_forward.rows = { ROW(starts, READ, INDEX, "N", .optional = true), ROW(x, READ, ACT, "N C"),
                            ROW(before, READ, ACT, "S C", .optional = true, .like = "x"), ROW(gate, READ, WIDE, "N 1"),
                            ROW(strength, READ, WIDE, "1"), ROW(y, WRITE, ACT, "N C", .like = "x") },
#undef A
#define A HsSmearBackwardArgs
    .smear_backward.rows = { ROW(starts, READ, INDEX, "N", .optional = true), ROW(dy, READ, ACT, "N C"),
                             ROW(x, READ, ACT, "N C"), ROW(gate, READ, WIDE, "N 1"), ROW(strength, READ, WIDE, "1"),
                             ROW(dx, WRITE, ACT, "N C"), ROW(dgate, WRITE, WIDE, "N 1"),
                             ROW(dstrength, UPDATE, WIDE, "1", .optional = true) },
#undef A
#define A HsAddValuesArgs
    .add_values_forward = { .heads = true,
                            .rows = { ROW(tokens, READ, INDEX, "R"),
                                      ROW(table, READ, ACT, "V K", .bytes = bytes_added_table),
                                      ROW(gate, READ, WIDE, "R G"), ROW(x, READ, ACT, "R W", .bytes = bytes_added_to),
                                      ROW(y, WRITE, ACT, "R W", .like = "x", .bytes = bytes_added_to) } },
#undef A
#define A HsAddValuesBackwardArgs
    .add_values_backward = { .heads = true,
                             .rows = { ROW(tokens, READ, INDEX, "R"),
                                       ROW(table, READ, ACT, "V K", .bytes = bytes_added_backward_table),
                                       ROW(gate, READ, WIDE, "R G"), ROW(dy, READ, ACT, "R W", .bytes = bytes_added_dy),
                                       ROW(drows, WRITE, ACT, "R K", .optional = true),
                                       ROW(dgate, WRITE, WIDE, "R G") } },
#undef A
#define A HsUnaryArgs
    .swiglu_forward.rows = { ROW(y, WRITE, ACT, "N F", .finds = true), ROW(x, READ, ACT, "N 2F") },
#undef A
#define A HsUnaryBackwardArgs
    .swiglu_backward.rows = { ROW(dy, READ, ACT, "N F"), ROW(x, READ, ACT, "N 2F"),
                              ROW(dx, WRITE, ACT, "N 2F", .finds = true) },
#undef A
#define A HsDropoutArgs
    .dropout_forward.rows = { ROW(x, READ, ACT, "N C"), ROW(y, WRITE, ACT, "N C", .finds = true),
                              ROW(residual, READ, ACT, "N C", .optional = true) },
    .dropout_backward.rows = { ROW(x, READ, ACT, "N C"), ROW(y, WRITE, ACT, "N C", .finds = true) },
#undef A
#define A HsCrossEntropyArgs
    .cross_entropy.rows = { ROW(logits, READ, ACT, "N V"), ROW(targets, READ, INDEX, "N"),
                            ROW(losses, WRITE, WIDE, "N"),
                            ROW(dlogits, WRITE, ACT, "N V", .optional = true, .adapt = adapt_dlogits) },
#undef A
#define A HsTopLogitsArgs
    .top_logits.rows = { ROW(logits, READ, WIDE, "N V"), ROW(value, WRITE, WIDE, "N K"),
                         ROW(index, WRITE, INDEX, "N K") },
#undef A
#define A HsMatchLogitsArgs
    .match_logits.rows = { ROW(logits, READ, WIDE, "N V", .bytes = bytes_matched), ROW(targets, READ, INDEX, "N"),
                           ROW(replayed, READ, INDEX, "N"), ROW(value, READ, WIDE, "N K"),
                           ROW(index, READ, INDEX, "N K"), ROW(losses, WRITE, WIDE, "N"),
                           ROW(dlogits, UPDATE, ACT, "N V", .bytes = bytes_matched_gradient) },
#undef A
#define A HsDistillArgs
    .distill.rows = { ROW(logits, READ, WIDE, "N V"), ROW(teacher, READ, WIDE, "N V"), ROW(targets, READ, INDEX, "N"),
                      ROW(replayed, READ, INDEX, "N", .optional = true), ROW(losses, WRITE, WIDE, "N"),
                      ROW(dlogits, UPDATE, ACT, "N V") },
#undef A
#define A HsGradStatsArgs
    .grad_stats = { .arrays = true, .count_at = offsetof(A, count), .rows = { ROW(tensors, READ, ACT, "") } },
#undef A
#define A HsNormalizeArgs
    .normalize.rows = { ROW(x, READ, WIDE, ""), ROW(y, WRITE, ACT, "") },
#undef A
#define A HsScaleNeuronsArgs
    .scale_neurons.rows = { ROW(x, UPDATE, ACT, "R C"), ROW(second_moment, UPDATE, WIDE, "R") },
#undef A
#define A HsRandomMatrixArgs
    .random_matrix.rows = { ROW(y, WRITE, WIDE, "") },
#undef A
#define A HsChannelFactorsArgs
    .channel_factors.rows = { ROW(r, READ, WIDE, "K N"), ROW(m, UPDATE, MOMENT, "K N"),
                              ROW(v, UPDATE, MOMENT, "K N", .like = "m"), ROW(g, READ, WIDE, "R C", .optional = true),
                              ROW(norm, UPDATE, WIDE, "1", .optional = true), ROW(factors, WRITE, WIDE, "N") },
#undef A
#define A HsAverageArgs
    .average.rows = { ROW(x, READ, ACT, ""), ROW(average, UPDATE, WIDE, "") },
#undef A
#define A HsConvertArgs
    .convert.rows = { ROW(x, READ, ACT, ""), ROW(y, WRITE, ACT, "") },
#undef A
#define A HsCombineArgs
    .combine.rows = { ROW(x, READ, ACT, ""), ROW(y, UPDATE, ACT, "", .adapt = adapt_combine_y) },
#undef A
#define A HsCopyColumnsArgs
    .copy_columns.rows = { ROW(x, READ, ACT, "N M", .bytes = bytes_of_columns),
                           ROW(minus, READ, WIDE, "N M", .optional = true, .bytes = bytes_of_columns),
                           ROW(scale, READ, WIDE, "N", .optional = true),
                           ROW(y, WRITE, ACT, "N K", .bytes = bytes_of_columns) },
#undef A
#define A HsDotArgs
    .dot = { .arrays = true, .count_at = offsetof(A, count), .rows = { ROW(x, READ, ACT, ""), ROW(y, READ, ACT, "") } },
#undef A
#define A HsSampleLabelsArgs
    .sample_labels.rows = { ROW(logits, READ, ACT, "N V"), ROW(targets, UPDATE, INDEX, "N"),
                            ROW(rows, READ, INDEX, "N", .optional = true) },
#undef A
#define A HsArgmaxArgs
    .argmax.rows = { ROW(logits, READ, WIDE, "N V"), ROW(index, WRITE, INDEX, "N") },
#undef A
#define A HsSquareAccumulateArgs
    .square_accumulate.rows = { ROW(grad, UPDATE, ACT, ""), ROW(accumulator, UPDATE, WIDE, "") },
#undef A
#define A HsConsolidateArgs
    .consolidate.rows = { ROW(parameter, READ, ACT, ""), ROW(fresh, UPDATE, WIDE, "", .adapt = adapt_fresh),
                          ROW(importance, UPDATE, WIDE, ""),
                          ROW(anchor, WRITE, WIDE, "", .adapt = adapt_consolidated_anchor) },
#undef A
#define A HsConsolidatePathArgs
    .consolidate_path.rows = { ROW(parameter, READ, ACT, ""), ROW(path, UPDATE, WIDE, ""),
                               ROW(importance, UPDATE, WIDE, ""), ROW(anchor, UPDATE, WIDE, "") },
#undef A
#define A HsImportanceStatsArgs
    .importance_stats = { .arrays = true, .count_at = offsetof(A, count), .rows = { ROW(tensors, READ, WIDE, "") } },
#undef A
#define A HsPenaltyArgs
    .penalty = { .arrays = true,
                 .count_at = offsetof(A, count),
                 .rows = { ROW(parameter, READ, ACT, "", .bytes = bytes_penalized),
                           ROW(anchor, READ, WIDE, "", .optional = true),
                           ROW(importance, READ, WIDE, "", .optional = true, .bytes = bytes_weighing) } },
#undef A
#define A HsInterpolateArgs
    .interpolate.rows = { ROW(weight, UPDATE, ACT, "", .adapt = adapt_interpolated_weight),
                          ROW(master, UPDATE, WIDE, "", .optional = true), ROW(anchor, READ, WIDE, "") },
#undef A
};
