/* SPDX-License-Identifier: MIT
 *
 * Operations that are bound by memory, against the device's own copy in the same run.
 *
 *     bandwidth [--device cuda|emu] [--seconds S] [--tiny] [--json FILE]
 *
 * Tensors of GPT-2 124M in bf16, with 64 sequences of 1024 tokens so that no operand fits in a cache.  Bytes are those
 * that an operation must move: what it reads once, what it writes once, what it updates twice.  The limit is the
 * device's copy of 512 MiB, bytes read and written; each operation is timed in turn with it.
 */
#include <math.h>

#include "bench/bench.h"

typedef struct Sizes {
    int64_t rows, length, width, mlp, heads, vocabulary, logit_rows, parameters, copy_bytes;
} Sizes;

static const Sizes full = { 65536, 1024, 768, 3072, 12, 50304, 8192, 1 << 27, 1 << 29 };
static const Sizes tiny = { 64, 16, 64, 128, 2, 264, 32, 4096, 4096 };

/* One operand of every kind; operations share them. */
typedef struct Operands {
    HsTensor x, y, dy, dx;      /* [rows, width] bf16 */
    HsTensor qkv;               /* [rows, 3 width] bf16 */
    HsTensor gate_up, dgate_up; /* [rows, 2 mlp] bf16 */
    HsTensor hidden, dhidden;   /* [rows, mlp] bf16 */
    HsTensor weight, bias;      /* [width] f32 */
    HsTensor dweight, dbias;    /* [width] f32 */
    HsTensor mean, rstd;        /* [rows] f32 */
    HsTensor table, positions;  /* bf16 */
    HsTensor dtable;            /* f32 */
    HsTensor tokens, targets;   /* i32 */
    HsTensor logits, dlogits, losses;
    HsTensor grad, m, v, master, parameter; /* [parameters]; parameter bf16 */
    HsTensor scalars, gradient_scale, sums; /* bytes */
} Operands;

static HsStatus make_operands(Bench *bench, const Sizes *s, Operands *o)
{
    const struct {
        HsTensor *tensor, shape;
    } rows[] = {
        { &o->x, hs_tensor_2d(NULL, HS_BF16, s->rows, s->width) },
        { &o->y, hs_tensor_2d(NULL, HS_BF16, s->rows, s->width) },
        { &o->dy, hs_tensor_2d(NULL, HS_BF16, s->rows, s->width) },
        { &o->dx, hs_tensor_2d(NULL, HS_BF16, s->rows, s->width) },
        { &o->qkv, hs_tensor_2d(NULL, HS_BF16, s->rows, 3 * s->width) },
        { &o->gate_up, hs_tensor_2d(NULL, HS_BF16, s->rows, 2 * s->mlp) },
        { &o->dgate_up, hs_tensor_2d(NULL, HS_BF16, s->rows, 2 * s->mlp) },
        { &o->hidden, hs_tensor_2d(NULL, HS_BF16, s->rows, s->mlp) },
        { &o->dhidden, hs_tensor_2d(NULL, HS_BF16, s->rows, s->mlp) },
        { &o->weight, hs_tensor_1d(NULL, HS_F32, s->width) },
        { &o->bias, hs_tensor_1d(NULL, HS_F32, s->width) },
        { &o->dweight, hs_tensor_1d(NULL, HS_F32, s->width) },
        { &o->dbias, hs_tensor_1d(NULL, HS_F32, s->width) },
        { &o->mean, hs_tensor_1d(NULL, HS_F32, s->rows) },
        { &o->rstd, hs_tensor_1d(NULL, HS_F32, s->rows) },
        { &o->table, hs_tensor_2d(NULL, HS_BF16, s->vocabulary, s->width) },
        { &o->positions, hs_tensor_2d(NULL, HS_BF16, s->length, s->width) },
        { &o->dtable, hs_tensor_2d(NULL, HS_F32, s->vocabulary, s->width) },
        { &o->logits, hs_tensor_2d(NULL, HS_F32, s->logit_rows, s->vocabulary) },
        { &o->dlogits, hs_tensor_2d(NULL, HS_BF16, s->logit_rows, s->vocabulary) },
        { &o->losses, hs_tensor_1d(NULL, HS_F32, s->logit_rows) },
        { &o->grad, hs_tensor_1d(NULL, HS_F32, s->parameters) },
        { &o->m, hs_tensor_1d(NULL, HS_F32, s->parameters) },
        { &o->v, hs_tensor_1d(NULL, HS_F32, s->parameters) },
        { &o->master, hs_tensor_1d(NULL, HS_F32, s->parameters) },
        { &o->parameter, hs_tensor_1d(NULL, HS_BF16, s->parameters) },
        { &o->scalars, hs_tensor_1d(NULL, HS_F32, (int64_t)sizeof(HsStepScalars)) },
        { &o->gradient_scale, hs_tensor_1d(NULL, HS_F32, 1) },
        { &o->sums, hs_tensor_1d(NULL, HS_F64, 2) },
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        *rows[i].tensor = rows[i].shape;
        HS_TRY(bench_normal(bench, rows[i].tensor, 0.5));
    }
    o->tokens = hs_tensor_1d(NULL, HS_I32, s->rows);
    o->targets = hs_tensor_1d(NULL, HS_I32, s->logit_rows);
    HS_TRY(bench_indices(bench, &o->tokens, s->vocabulary));
    HS_TRY(bench_indices(bench, &o->targets, s->vocabulary));
    /* Second moments and reciprocal deviations are no negative numbers; an update that overflows is no honest load. */
    HsDevice *device = &bench->device;
    const HsStepScalars scalars = { .learning_rate = 1e-4f,
                                    .gradient_multiplier = 1.0f,
                                    .bias_correction1 = 0.5f,
                                    .bias_correction2 = 0.5f,
                                    .unscale = 1.0f };
    HS_TRY(device->fill_zero(device, bench->context.stream, o->v.data, hs_tensor_bytes(&o->v)));
    HS_TRY(device->copy(device, bench->context.stream, o->scalars.data, &scalars, sizeof scalars));
    return device->stream_sync(device, bench->context.stream);
}

/* One timed row: bytes that must move, against the copy. */
typedef struct Row {
    const char *name;
    double bytes;
    HsStatus (*call)(HsContext *context, const void *arguments);
    const void *arguments;
} Row;

#define CALL(op)                                                         \
    static HsStatus call_##op(HsContext *context, const void *arguments) \
    {                                                                    \
        return hs_op_##op(context, arguments);                           \
    }
CALL(norm_forward)
CALL(norm_backward)
CALL(swiglu_forward)
CALL(swiglu_backward)
CALL(rope)
CALL(dropout_forward)
CALL(bias_backward)
CALL(embedding_forward)
CALL(embedding_backward)
CALL(cross_entropy)
CALL(grad_stats)
CALL(adamw)
CALL(convert)
#undef CALL

static HsStatus report(Bench *bench, const Row *row, const BenchCopy *copy)
{
    HsContext second = bench->context;
    BenchContender contenders[] = { { .context = &bench->context, .call = row->call, .arguments = row->arguments },
                                    { .context = &second, .call = bench_call_copy, .arguments = copy } };
    HS_TRY(bench_contend(bench, contenders, 2));
    const double rate = row->bytes / contenders[0].median_ms * 1e-6;
    const double limit = 2.0 * (double)copy->bytes / contenders[1].median_ms * 1e-6;
    printf("| %s | %.3f | %.4g | %.4g | %.0f%% |\n", row->name, contenders[0].median_ms, rate, limit,
           100.0 * rate / limit);
    fflush(stdout);
    bench_json(bench, "{\"bench\":\"bandwidth\",\"op\":\"%s\",\"ms\":%.6g,\"gb_per_s\":%.5g,\"copy_gb_per_s\":%.5g}",
               row->name, contenders[0].median_ms, rate, limit);
    return HS_OK;
}

static HsStatus bench_all(Bench *bench, const Sizes *s, const Operands *o, const BenchCopy *copy)
{
    const HsHeads heads = { s->rows / s->length, s->length, s->heads, s->heads, s->width / s->heads };
    const HsNormArgs norm = { .kind = HS_NORM_LAYER,
                              .epsilon = 1e-5f,
                              .x = o->x,
                              .weight = o->weight,
                              .bias = o->bias,
                              .y = o->y,
                              .mean = o->mean,
                              .rstd = o->rstd };
    const HsNormBackwardArgs norm_backward = { .kind = HS_NORM_LAYER,
                                               .dy = o->dy,
                                               .x = o->x,
                                               .weight = o->weight,
                                               .mean = o->mean,
                                               .rstd = o->rstd,
                                               .accumulate = true,
                                               .dx = o->dx,
                                               .dweight = o->dweight,
                                               .dbias = o->dbias };
    const HsUnaryArgs swiglu = { HS_ACTIVATION_SILU, o->gate_up, o->hidden };
    const HsUnaryBackwardArgs swiglu_backward = { HS_ACTIVATION_SILU, o->dhidden, o->gate_up, o->dgate_up };
    const HsRopeArgs rope = { .heads = heads, .rule.theta = 1e4, .x = o->qkv, .y = o->qkv };
    const HsDropoutArgs dropout = {
        .probability = 0.1f, .rng = { .seed = 1 }, .x = o->x, .residual = o->dx, .y = o->y
    };
    const HsBiasBackwardArgs bias_backward = { o->dy, o->dbias };
    const HsEmbeddingArgs embedding = { .tokens = o->tokens,
                                        .token_table = o->table,
                                        .position_table = o->positions,
                                        .sequence_length = s->length,
                                        .factor = 1.0f,
                                        .y = o->y };
    const HsEmbeddingBackwardArgs embedding_backward = {
        .tokens = o->tokens, .dy = o->dy, .sequence_length = s->length, .factor = 1.0f, .dtoken_table = o->dtable
    };
    const HsCrossEntropyArgs cross_entropy = { .logits = o->logits,
                                               .targets = o->targets,
                                               .gradient_scale = o->gradient_scale.data,
                                               .losses = o->losses,
                                               .dlogits = o->dlogits };
    const HsGradStatsArgs grad_stats = { &o->grad, 1, o->sums.data, (int64_t *)o->sums.data + 1 };
    const HsUpdateArgs update = { .scalars = o->scalars.data,
                                  .weight_decay = 0.1f,
                                  .learning_rate_scale = 1.0f,
                                  .grad = o->grad,
                                  .master = o->master,
                                  .weight = o->parameter };
    const HsAdamWArgs adamw = {
        .update = update, .beta1 = 0.9f, .beta2 = 0.95f, .epsilon = 1e-8f, .m = o->m, .v = o->v
    };
    const HsConvertArgs convert = { .x = o->grad, .y = o->parameter };

    const double activation = 2.0 * (double)(s->rows * s->width), hidden = 2.0 * (double)(s->rows * s->mlp);
    const double logits = (double)(s->logit_rows * s->vocabulary), parameters = (double)s->parameters;
    /* Rows of the table that some token names, each read and written in f32. */
    const double named = (double)s->vocabulary * (1.0 - exp(-(double)s->rows / (double)s->vocabulary));
    const Row rows[] = {
        { "norm_forward", 2.0 * activation, call_norm_forward, &norm },
        { "norm_backward, accumulating", 4.0 * activation, call_norm_backward, &norm_backward },
        { "swiglu_forward", 3.0 * hidden, call_swiglu_forward, &swiglu },
        { "swiglu_backward", 5.0 * hidden, call_swiglu_backward, &swiglu_backward },
        { "rope, in place", 4.0 * activation, call_rope, &rope },
        { "dropout_forward + residual", 3.0 * activation, call_dropout_forward, &dropout },
        { "bias_backward", activation, call_bias_backward, &bias_backward },
        { "embedding_forward", 2.0 * activation, call_embedding_forward, &embedding },
        { "embedding_backward", activation + 8.0 * named * (double)s->width, call_embedding_backward,
          &embedding_backward },
        { "cross_entropy with gradient", 6.0 * logits, call_cross_entropy, &cross_entropy },
        { "grad_stats", 4.0 * parameters, call_grad_stats, &grad_stats },
        { "adamw, f32 gradient and master", 34.0 * parameters, call_adamw, &adamw },
        { "convert f32 to bf16", 6.0 * parameters, call_convert, &convert },
    };
    printf("| operation | ms | GB/s | copy GB/s | share |\n|---|---|---|---|---|\n");
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        HS_TRY(report(bench, &rows[i], copy));
    return HS_OK;
}

int main(int argc, char **argv)
{
    Bench bench;
    Operands operands;
    BenchCopy copy;
    const char *more;
    HsStatus status = bench_open(&bench, argc, argv, &more);
    if (status != HS_OK)
        return bench_fail(&bench);
    const Sizes *sizes = bench.tiny ? &tiny : &full;
    printf("%s", bench_note(&bench));
    status = make_operands(&bench, sizes, &operands);
    if (status == HS_OK)
        status = bench_open_copy(&bench, &copy, (size_t)sizes->copy_bytes);
    if (status == HS_OK)
        status = bench_all(&bench, sizes, &operands, &copy);
    const int result = status == HS_OK ? 0 : bench_fail(&bench);
    bench_close(&bench); /* gives back every allocation */
    return result;
}
