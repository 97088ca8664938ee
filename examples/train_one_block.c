/* SPDX-License-Identifier: MIT
 *
 * A whole training step of GPT-2 with one block, operation after operation: forward, loss, backward, loss scale, clipping
 * and AdamW with f32 masters, by the operations that the trainer uses, and nothing else of it.
 *
 *     build/examples/train_one_block bf16 configs/REFERENCE.md 20
 *
 * prints the loss of each of 20 steps on a text in fp32, bf16 or fp16: those of examples/train_one_block.yaml, to the bit
 * (tests/cli/test_one_block.sh).
 *
 *     tokens -> embedding -> x0 -+- norm - qkv - attention - proj -(+)- x1 -+- norm - up - gelu - down -(+)- x2 - norm - head
 *                                +----------------------------------+      +---------------------------+
 *
 * N = BATCH x LENGTH rows, C = WIDTH features, V words.  Matrices are stored [out, in].  In the 16-bit modes matrices,
 * activations and their gradients have that format; the residual stream x, its gradient, sums, statistics, the losses,
 * the gradients of weights and the masters are f32 (autocast's formats; Micikevicius et al. 2018).
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/ops/backend.h"
#include "optim/scaler.h"
#include "optim/schedule.h"

enum { BATCH = 8, LENGTH = 32, ROWS = BATCH * LENGTH, WIDTH = 32, HEADS = 2, HIDDEN = 4 * WIDTH, WORDS = 257 };
enum { SEED = 1337, MOST_BYTES = 1 << 20 };
static const double learning_rate = 1e-3, weight_decay = 0.1, init_std = 0.02, clip_norm = 1;
static const float beta1 = 0.9f, beta2 = 0.95f, adam_epsilon = 1e-8f, norm_epsilon = 1e-5f;

static const struct Mode {
    const char *name;
    HsDtype half; /* of matrices and activations */
    HsScalerKind scaler;
} modes[] = { { "fp32", HS_F32, HS_SCALER_NONE },
              { "bf16", HS_BF16, HS_SCALER_NONE },
              { "fp16", HS_F16, HS_SCALER_DYNAMIC } };

/* Parameters, in the order in which the trainer numbers them: their random numbers are keyed by it. */
enum { WTE, WPE, LN_1, QKV, PROJ, LN_2, UP, DOWN, LN_F, PARAMETERS };
static const struct {
    int64_t rows, columns; /* columns 0: a vector, a norm's gain, which begins as ones */
    double deviation;      /* of the first values; what adds to the residual stream: over sqrt(2 layers) */
} shapes[PARAMETERS] = {
    [WTE] = { WORDS, WIDTH, 1 },     [WPE] = { LENGTH, WIDTH, 1 },          [LN_1] = { WIDTH, 0, 0 },
    [QKV] = { 3 * WIDTH, WIDTH, 1 }, [PROJ] = { WIDTH, WIDTH, M_SQRT1_2 },  [LN_2] = { WIDTH, 0, 0 },
    [UP] = { HIDDEN, WIDTH, 1 },     [DOWN] = { WIDTH, HIDDEN, M_SQRT1_2 }, [LN_F] = { WIDTH, 0, 0 },
};

typedef struct Parameter {
    HsTensor weight, master, gradient, m, v; /* master: absent where the weight is f32 */
} Parameter;

/* What a norm keeps for backward. */
typedef struct Norm {
    HsTensor y, mean, rstd;
} Norm;

typedef struct Training {
    const struct Mode *mode;
    HsDevice device;
    HsContext context;
    Parameter p[PARAMETERS];
    HsTensor tokens, targets;
    /* forward */
    HsTensor x0, x1, x2, qkv, mixed, lse, pre, active, logits, losses;
    Norm norm_1, norm_2, norm_f;
    /* backward; dx is the gradient of the residual stream, which each branch adds to on the way down */
    HsTensor dlogits, dx, dx_half, dnorm, dpre, dmixed, dqkv;
    /* what the device keeps of a step (kernels/ops/step.h) */
    HsStepInput input;
    HsStepState state;
    HsStepScalars scalars;
    HsStepOutcome outcome;
    float gradient_scales[HS_STEP_ROWS];
    double sum_squares[PARAMETERS];
    int64_t nonfinite[PARAMETERS];
} Training;

static HsHeads heads(void)
{
    return (HsHeads){ BATCH, LENGTH, HEADS, HEADS, WIDTH / HEADS };
}

/* --- memory, first values --- */

static void *memory(size_t bytes)
{
    void *block = aligned_alloc(64, (bytes + 127) / 64 * 64);
    if (!block)
        exit(1);
    return memset(block, 0, bytes);
}

/* columns 0: a vector */
static HsTensor tensor(HsDtype dtype, int64_t rows, int64_t columns)
{
    HsTensor made = columns > 0 ? hs_tensor_2d(NULL, dtype, rows, columns) : hs_tensor_1d(NULL, dtype, rows);
    made.data = memory(hs_tensor_bytes(&made));
    return made;
}

/* N(0, deviation): four numbers a draw, of a site of random numbers for each parameter. */
static void draw(const HsTensor *values, int index, double deviation)
{
    const HsRng rng = { .seed = SEED, .site = 0x80000000u | (uint32_t)index };
    for (int64_t i = 0; i < hs_tensor_count(values); i += 4) {
        const HsPhilox bits = hs_rng_draw(&rng, (uint64_t)(i / 4));
        double normal[4];
        hs_rng_normal(bits.word[0], bits.word[1], normal);
        hs_rng_normal(bits.word[2], bits.word[3], normal + 2);
        for (int64_t j = 0; j < 4 && i + j < hs_tensor_count(values); j++)
            hs_dtype_store(values->dtype, values->data, i + j, deviation * normal[j]);
    }
}

static void make_parameter(Training *t, int index)
{
    Parameter *p = &t->p[index];
    const int64_t rows = shapes[index].rows, columns = shapes[index].columns;
    const HsDtype dtype = columns > 0 ? t->mode->half : HS_F32; /* gains stay f32 */
    p->weight = tensor(dtype, rows, columns);
    p->gradient = tensor(HS_F32, rows, columns);
    p->m = tensor(HS_F32, rows, columns);
    p->v = tensor(HS_F32, rows, columns);
    if (dtype != HS_F32)
        p->master = tensor(HS_F32, rows, columns);
    const HsTensor *first = hs_tensor_present(&p->master) ? &p->master : &p->weight;
    draw(first, index, init_std * shapes[index].deviation);
    for (int64_t i = 0; i < hs_tensor_count(first); i++) {
        if (columns == 0)
            hs_dtype_store(HS_F32, first->data, i, 1);
        hs_dtype_store(dtype, p->weight.data, i, hs_dtype_load(HS_F32, first->data, i));
    }
}

static void make_tensors(Training *t)
{
    const HsDtype half = t->mode->half;
    for (int i = 0; i < PARAMETERS; i++)
        make_parameter(t, i);
    t->tokens = tensor(HS_I32, ROWS, 0);
    t->targets = tensor(HS_I32, ROWS, 0);
    HsTensor *const stream[] = { &t->x0, &t->x1, &t->x2, &t->dx };
    for (int i = 0; i < 4; i++)
        *stream[i] = tensor(HS_F32, ROWS, WIDTH);
    Norm *const norms[] = { &t->norm_1, &t->norm_2, &t->norm_f };
    for (int i = 0; i < 3; i++)
        *norms[i] = (Norm){ tensor(half, ROWS, WIDTH), tensor(HS_F32, ROWS, 0), tensor(HS_F32, ROWS, 0) };
    t->qkv = tensor(half, ROWS, 3 * WIDTH);
    t->dqkv = tensor(half, ROWS, 3 * WIDTH);
    t->mixed = tensor(half, ROWS, WIDTH);
    t->lse = tensor(HS_F32, ROWS, HEADS);
    t->pre = tensor(half, ROWS, HIDDEN);
    t->active = tensor(half, ROWS, HIDDEN);
    t->dpre = tensor(half, ROWS, HIDDEN);
    t->dnorm = tensor(half, ROWS, WIDTH);
    t->dmixed = tensor(half, ROWS, WIDTH);
    t->dx_half = half == HS_F32 ? t->dx : tensor(half, ROWS, WIDTH);
    t->logits = tensor(HS_F32, ROWS, WORDS);
    t->dlogits = half == HS_F32 ? t->logits : tensor(half, ROWS, WORDS);
    t->losses = tensor(HS_F32, ROWS, 0);
}

/* --- the step --- */

/* An operation with its arguments (kernels/ops/ops.h). */
#define DO(operation, Args, ...) HS_TRY(hs_op_##operation(context, &(Args){ __VA_ARGS__ }))

static HsStatus norm(HsContext *context, HsTensor x, HsTensor gain, const Norm *n)
{
    DO(norm_forward, HsNormArgs, .kind = HS_NORM_LAYER, .epsilon = norm_epsilon, .x = x, .weight = gain, .y = n->y,
       .mean = n->mean, .rstd = n->rstd);
    return HS_OK;
}

static HsStatus forward(Training *t, HsContext *context)
{
    const Parameter *p = t->p;
    DO(embedding_forward, HsEmbeddingArgs, .tokens = t->tokens, .token_table = p[WTE].weight,
       .position_table = p[WPE].weight, .sequence_length = LENGTH, .factor = 1, .y = t->x0);

    HS_TRY(norm(context, t->x0, p[LN_1].weight, &t->norm_1));
    DO(matmul, HsMatmulArgs, .a.values = t->norm_1.y, .b.values = p[QKV].weight, .transpose_b = true, .alpha = 1,
       .c = t->qkv);
    DO(attention_forward, HsAttentionArgs, .heads = heads(), .rule.scale = (float)(1 / sqrt(WIDTH / HEADS)),
       .qkv = t->qkv, .out = t->mixed, .lse = t->lse);
    DO(matmul, HsMatmulArgs, .a.values = t->mixed, .b.values = p[PROJ].weight, .transpose_b = true, .alpha = 1,
       .residual = t->x0, .c = t->x1);

    HS_TRY(norm(context, t->x1, p[LN_2].weight, &t->norm_2));
    DO(matmul, HsMatmulArgs, .a.values = t->norm_2.y, .b.values = p[UP].weight, .transpose_b = true, .alpha = 1,
       .epilogue = HS_EPILOGUE_GELU, .pre = t->pre, .c = t->active);
    DO(matmul, HsMatmulArgs, .a.values = t->active, .b.values = p[DOWN].weight, .transpose_b = true, .alpha = 1,
       .residual = t->x1, .c = t->x2);

    /* The head shares the embedding's table.  The loss of a row, and at once the gradient of its logits, times the loss
     * scale over the number of targets. */
    HS_TRY(norm(context, t->x2, p[LN_F].weight, &t->norm_f));
    DO(matmul, HsMatmulArgs, .a.values = t->norm_f.y, .b.values = p[WTE].weight, .transpose_b = true, .alpha = 1,
       .c = t->logits);
    DO(cross_entropy, HsCrossEntropyArgs, .logits = t->logits, .targets = t->targets,
       .gradient_scale = &t->gradient_scales[HS_ROWS_TRAINED], .losses = t->losses, .dlogits = t->dlogits);
    return HS_OK;
}

/* dw += dy^T x */
static HsStatus weight_gradient(HsContext *context, HsTensor dy, HsTensor x, HsTensor dw)
{
    DO(matmul, HsMatmulArgs, .a.values = dy, .b.values = x, .transpose_a = true, .accumulate = true, .alpha = 1,
       .c = dw);
    return HS_OK;
}

/* dx = dy w */
static HsStatus data_gradient(HsContext *context, HsTensor dy, HsTensor w, HsTensor dx)
{
    DO(matmul, HsMatmulArgs, .a.values = dy, .b.values = w, .alpha = 1, .c = dx);
    return HS_OK;
}

/* The gradient of the residual stream: made by the final norm, added to by the others.  Products read it rounded. */
static HsStatus norm_backward(Training *t, HsContext *context, HsTensor x, int gain, const Norm *n, bool add)
{
    DO(norm_backward, HsNormBackwardArgs, .kind = HS_NORM_LAYER, .dy = t->dnorm, .x = x, .weight = t->p[gain].weight,
       .mean = n->mean, .rstd = n->rstd, .accumulate = add, .dx = t->dx, .dweight = t->p[gain].gradient);
    if (t->mode->half != HS_F32)
        DO(convert, HsConvertArgs, .x = t->dx, .y = t->dx_half);
    return HS_OK;
}

static HsStatus backward(Training *t, HsContext *context)
{
    Parameter *p = t->p;
    HS_TRY(data_gradient(context, t->dlogits, p[WTE].weight, t->dnorm));
    HS_TRY(weight_gradient(context, t->dlogits, t->norm_f.y, p[WTE].gradient));
    HS_TRY(norm_backward(t, context, t->x2, LN_F, &t->norm_f, false));

    /* The MLP.  GELU's derivative is taken where the product's sums are. */
    HS_TRY(weight_gradient(context, t->dx_half, t->active, p[DOWN].gradient));
    DO(matmul, HsMatmulArgs, .a.values = t->dx_half, .b.values = p[DOWN].weight, .alpha = 1,
       .epilogue = HS_EPILOGUE_GELU_BACKWARD, .pre = t->pre, .c = t->dpre);
    HS_TRY(weight_gradient(context, t->dpre, t->norm_2.y, p[UP].gradient));
    HS_TRY(data_gradient(context, t->dpre, p[UP].weight, t->dnorm));
    HS_TRY(norm_backward(t, context, t->x1, LN_2, &t->norm_2, true));

    /* Attention. */
    HS_TRY(weight_gradient(context, t->dx_half, t->mixed, p[PROJ].gradient));
    HS_TRY(data_gradient(context, t->dx_half, p[PROJ].weight, t->dmixed));
    DO(attention_backward, HsAttentionBackwardArgs, .heads = heads(), .rule.scale = (float)(1 / sqrt(WIDTH / HEADS)),
       .dout = t->dmixed, .qkv = t->qkv, .out = t->mixed, .lse = t->lse, .dqkv = t->dqkv);
    HS_TRY(weight_gradient(context, t->dqkv, t->norm_1.y, p[QKV].gradient));
    HS_TRY(data_gradient(context, t->dqkv, p[QKV].weight, t->dnorm));
    HS_TRY(norm_backward(t, context, t->x0, LN_1, &t->norm_1, true));

    DO(embedding_backward, HsEmbeddingBackwardArgs, .tokens = t->tokens, .dy = t->dx, .sequence_length = LENGTH,
       .factor = 1, .dtoken_table = p[WTE].gradient, .dposition_table = p[WPE].gradient);
    return HS_OK;
}

/* The norm of all gradients decides: overflow skips the step and halves the loss scale; else one factor undoes the loss
 * scale and clips, and AdamW (Loshchilov & Hutter 2019) moves the masters, rounds the weights and clears gradients. */
static HsStatus update(Training *t, HsContext *context, const HsScalerConfig *scaler)
{
    HsTensor gradients[PARAMETERS];
    for (int i = 0; i < PARAMETERS; i++)
        gradients[i] = t->p[i].gradient;
    DO(grad_stats, HsGradStatsArgs, .tensors = gradients, .count = PARAMETERS, .sum_squares = t->sum_squares,
       .nonfinite = t->nonfinite);
    DO(prepare_step, HsPrepareStepArgs, .sum_squares = t->sum_squares, .nonfinite = t->nonfinite, .count = PARAMETERS,
       .input = &t->input, .beta1 = 0.9, .beta2 = 0.95, .clip_norm = clip_norm, .scaling = hs_scaler_rule(scaler),
       .state = &t->state, .scalars = &t->scalars, .outcome = &t->outcome);
    for (int i = 0; i < PARAMETERS; i++) {
        Parameter *p = &t->p[i];
        const bool decays = shapes[i].columns > 0;
        DO(adamw, HsAdamWArgs, .beta1 = beta1, .beta2 = beta2, .epsilon = adam_epsilon, .m = p->m, .v = p->v,
           .update = { .scalars = &t->scalars,
                       .weight_decay = decays ? (float)weight_decay : 0,
                       .learning_rate_scale = 1,
                       .grad = p->gradient,
                       .master = p->master,
                       .weight = p->weight });
    }
    return HS_OK;
}

static HsStatus step(Training *t, HsContext *context, double rate, const HsScalerConfig *scaler)
{
    t->input.learning_rates[0] = rate;
    t->input.first_schedule_step = t->state.counters.schedule_steps;
    t->input.counted[HS_ROWS_TRAINED] = ROWS;
    t->input.counted[HS_ROWS_REFERENCE] = 1;
    DO(begin_step, HsBeginStepArgs, .input = &t->input, .state = &t->state, .gradient_scales = t->gradient_scales);
    HS_TRY(forward(t, context));
    HS_TRY(backward(t, context));
    return update(t, context, scaler);
}

/* --- data --- */

/* Where row `index` begins: an epoch permutes the windows of a text, and shifts them all. */
static int64_t window_start(int64_t index, int64_t count)
{
    const int64_t windows = (count - LENGTH) / LENGTH, room = count - 1 - windows * LENGTH;
    const uint32_t counter[4] = { (uint32_t)(index / windows), 0, 0, 0x45504f43 };
    const HsPhilox bits = hs_philox(SEED, counter);
    const uint64_t key = (uint64_t)bits.word[1] << 32 | bits.word[0],
                   shift = (uint64_t)bits.word[3] << 32 | bits.word[2];
    const int64_t shifts = room + 1 < LENGTH ? room + 1 : LENGTH;
    return hs_rng_permute(key, index % windows, windows) * LENGTH + (int64_t)(shift % (uint64_t)shifts);
}

/* Byte b is token b; token 256 ends the text. */
static void fill_batch(Training *t, const unsigned char *text, int64_t count, int64_t first)
{
    int32_t *tokens = t->tokens.data, *targets = t->targets.data;
    for (int64_t row = 0; row < BATCH; row++) {
        const int64_t start = window_start(first + row, count);
        for (int64_t i = 0; i < LENGTH; i++) {
            tokens[row * LENGTH + i] = text[start + i];
            targets[row * LENGTH + i] = start + i + 1 < count - 1 ? text[start + i + 1] : WORDS - 1;
        }
    }
}

static HsStatus train(Training *t, const unsigned char *text, int64_t count, int64_t steps)
{
    const HsScalerConfig scaler = { t->mode->scaler, 65536, 2, 0.5, 1, 1e30, 2000, 1 };
    HsSchedule schedule;
    HsContext dry = t->context;
    HS_TRY(hs_scaler_init(&scaler, &t->state.counters));
    HS_TRY(hs_schedule_init(&schedule, "cosine", learning_rate, 0, 0, steps, 0));
    /* A dry run finds how much scratch operations need. */
    dry.dry_run = true;
    HS_TRY(step(t, &dry, 0, &scaler));
    t->context.workspace = memory(dry.workspace_needed);
    t->context.workspace_bytes = dry.workspace_needed;
    for (int64_t i = 0; i < steps; i++) {
        double sum = 0;
        fill_batch(t, text, count, i * BATCH);
        HS_TRY(step(t, &t->context, hs_schedule_rate(&schedule, t->state.counters.schedule_steps), &scaler));
        for (int64_t row = 0; row < ROWS; row++)
            sum += hs_dtype_load(HS_F32, t->losses.data, row);
        printf("step %lld  loss %.17g  gradient norm %.6g  loss scale %g\n", (long long)(i + 1), sum / ROWS,
               t->outcome.gradient_norm, (double)t->outcome.loss_scale);
    }
    return HS_OK;
}

int main(int argc, char **argv)
{
    static unsigned char text[MOST_BYTES];
    static Training t;
    for (size_t i = 0; argc > 2 && i < sizeof modes / sizeof modes[0]; i++)
        if (strcmp(argv[1], modes[i].name) == 0)
            t.mode = &modes[i];
    FILE *file = t.mode ? fopen(argv[2], "rb") : NULL;
    const size_t bytes = file ? fread(text, 1, sizeof text, file) : 0;
    if (bytes < 2 * LENGTH) {
        fprintf(stderr, "usage: train_one_block fp32|bf16|fp16 TEXT [STEPS]; TEXT: a file of %d bytes or more\n",
                2 * LENGTH);
        return 2;
    }
    fclose(file);
    HsStatus status = hs_device_host_init(&t.device);
    t.context = (HsContext){ .device = &t.device, .threads = 1 };
    if (status == HS_OK)
        status = hs_backend_cpu(&t.context.backend);
    make_tensors(&t);
    if (status == HS_OK)
        status = train(&t, text, (int64_t)bytes + 1, argc > 3 ? atoll(argv[3]) : 20);
    if (status != HS_OK)
        fprintf(stderr, "%s\n", hs_error_message());
    return status == HS_OK ? 0 : 1;
}
