/* SPDX-License-Identifier: MIT
 *
 * Every layer alone, in double on ref: backward against central differences of L = sum r_i y_i with random r, for each
 * differentiable input and parameter.  Gradients start from random values, so that "adds to" and "writes" differ.
 */
#include <criterion/criterion.h>
#include <float.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/model/layer.h"
#include "tests/support/differences.h"

enum { B = 2, T = 4, N = B * T, C = 6, F = 10, H = 4, G = 2, D = 4, V = 7, POSITIONS = 5 };
enum { MAX_TENSORS = 32 };

typedef struct Bench {
    HsDevice device;
    HsContext context;
    HsNode node;
    HsLayerCall call;
    HsParam params[HS_NODE_PARAMS];
    int measured;                         /* the output in L */
    double *r;                            /* L's weights; NULL: L is given by `loss` */
    double (*extra)(struct Bench *bench); /* what L has in addition to the sum; may be NULL */
    void (*prepare)(struct Bench *bench); /* before each forward; may be NULL */
    float gradient_scale;
    void *owned[MAX_TENSORS];
    int owned_count;
    uint32_t draws;
} Bench;

static HsTensor make(Bench *bench, HsDtype dtype, int rank, int64_t rows, int64_t columns)
{
    HsTensor tensor = { .dtype = dtype, .rank = rank, .shape = { rows, columns, 1, 1 } };
    tensor.data = calloc(1, hs_tensor_bytes(&tensor));
    cr_assert(tensor.data && bench->owned_count < MAX_TENSORS);
    bench->owned[bench->owned_count++] = tensor.data;
    return tensor;
}

/* Uniform in [-1, 1). */
static HsTensor make_random(Bench *bench, int rank, int64_t rows, int64_t columns)
{
    HsTensor tensor = make(bench, HS_F64, rank, rows, columns);
    HsRng rng = { .seed = 31, .site = ++bench->draws };
    double *data = tensor.data;
    for (int64_t i = 0; i < hs_tensor_count(&tensor); i++)
        data[i] = 2 * (double)hs_rng_uniform(hs_rng_draw(&rng, (uint64_t)i).word[0]) - 1;
    return tensor;
}

static void start(Bench *bench, const HsLayer *layer)
{
    memset(bench, 0, sizeof *bench);
    cr_assert_eq(hs_device_host_init(&bench->device), HS_OK);
    bench->context = (HsContext){ .backend = hs_backend_ref(), .device = &bench->device, .threads = 1 };
    bench->gradient_scale = 1;
    bench->node.layer = layer;
    bench->node.attributes = (HsAttributes){ .heads = { 0, 0, H, G, D },
                                             .epsilon = 1e-5f,
                                             .score.scale = 0.5f,
                                             .rope.theta = 100,
                                             .site = 3,
                                             .operand = HS_F64,
                                             .logit = HS_F64,
                                             .trained_logit = HS_F64,
                                             .logit_gradient = HS_F64,
                                             .vocabulary = V,
                                             .head_chunk = 3,
                                             .factor = 1,
                                             .embedding_factor = 1,
                                             .logit_factor = 1 };
    bench->call = (HsLayerCall){ .context = &bench->context,
                                 .precision = hs_precision_find("fp64"),
                                 .training = true,
                                 .batch = B,
                                 .sequence_length = T,
                                 .rng = { .seed = 8, .step = 2, .site = 3, .row_offset = 16 },
                                 .gradient_scale = &bench->gradient_scale };
}

static void finish(Bench *bench)
{
    for (int i = 0; i < bench->owned_count; i++)
        free(bench->owned[i]);
}

static void add_param(Bench *bench, int index, int rank, int64_t rows, int64_t columns)
{
    bench->params[index].stored.values = make_random(bench, rank, rows, columns);
    bench->params[index].gradient = make_random(bench, rank, rows, columns);
    bench->call.params[index] = &bench->params[index];
}

static double loss(void *user)
{
    Bench *bench = user;
    if (bench->prepare)
        bench->prepare(bench);
    cr_assert_eq(bench->node.layer->forward(&bench->call, &bench->node), HS_OK, "%s", hs_error_message());
    const HsTensor *y = &bench->call.outputs[bench->measured];
    const double *values = y->data;
    double sum = bench->extra ? bench->extra(bench) : 0;
    for (int64_t i = 0; i < hs_tensor_count(y); i++)
        sum += bench->r ? bench->r[i] * values[i] : values[i];
    return sum;
}

/* Each element of x against its gradient, less what the gradient held before. */
static void check_tensor(Bench *bench, const char *what, const HsTensor *x, const HsTensor *gradient,
                         const double *held)
{
    double *values = x->data, largest = 0, largest_tolerance = 0;
    const double *analytic = gradient->data;
    /* sums of at most some 200 terms of size one */
    double rounding = 200 * DBL_EPSILON * 100;
    for (int64_t i = 0; i < hs_tensor_count(x); i++) {
        Difference numeric = central_difference(loss, bench, &values[i], rounding);
        double got = analytic[i] - held[i];
        cr_assert(fabs(got - numeric.derivative) <= numeric.tolerance,
                  "%s %s[%lld]: gradient %.12g, difference quotient %.12g, tolerance %.3g", bench->node.layer->name,
                  what, (long long)i, got, numeric.derivative, numeric.tolerance);
        largest = fmax(largest, fabs(got));
        largest_tolerance = fmax(largest_tolerance, numeric.tolerance);
    }
    cr_assert(largest > 50 * largest_tolerance, "%s %s: gradients up to %g, tolerances up to %g",
              bench->node.layer->name, what, largest, largest_tolerance);
}

static double *hold(Bench *bench, const HsTensor *gradient, bool adds)
{
    HsTensor copy = make(bench, HS_F64, gradient->rank, gradient->shape[0], gradient->shape[1]);
    if (adds)
        memcpy(copy.data, gradient->data, hs_tensor_bytes(gradient));
    return copy.data;
}

/* Forward, backward, differences.  Inputs with d_inputs present are differentiated. */
static void check(Bench *bench)
{
    HsLayerCall *call = &bench->call;
    if (!bench->node.layer->turns) {
        HsTensor *y = &call->outputs[bench->measured];
        HsTensor r = make_random(bench, y->rank, y->shape[0], y->shape[1]);
        bench->r = r.data;
        call->d_outputs[bench->measured] = make(bench, HS_F64, y->rank, y->shape[0], y->shape[1]);
        memcpy(call->d_outputs[bench->measured].data, r.data, hs_tensor_bytes(&r));
    }
    double *held_inputs[HS_NODE_INPUTS] = { 0 }, *held_params[HS_NODE_PARAMS] = { 0 };
    for (int i = 0; i < HS_NODE_INPUTS; i++) {
        if (hs_tensor_present(&call->d_inputs[i]))
            held_inputs[i] = hold(bench, &call->d_inputs[i], call->accumulate[i]);
    }
    for (int i = 0; i < HS_NODE_PARAMS; i++) {
        if (call->params[i])
            held_params[i] = hold(bench, &call->params[i]->gradient, true);
    }
    loss(bench);
    cr_assert_eq(bench->node.layer->backward(call, &bench->node), HS_OK, "%s", hs_error_message());
    for (int i = 0; i < HS_NODE_INPUTS; i++) {
        char what[] = { 'i', 'n', 'p', 'u', 't', ' ', (char)('0' + i), '\0' };
        if (held_inputs[i])
            check_tensor(bench, what, &call->inputs[i], &call->d_inputs[i], held_inputs[i]);
    }
    for (int i = 0; i < HS_NODE_PARAMS; i++) {
        char what[] = { 'p', 'a', 'r', 'a', 'm', ' ', (char)('0' + i), '\0' };
        if (held_params[i])
            check_tensor(bench, what, &bench->params[i].stored.values, &bench->params[i].gradient, held_params[i]);
    }
    finish(bench);
}

/* An input of random values with a gradient, of random values too. */
static void add_input(Bench *bench, int index, int64_t columns, bool accumulate)
{
    bench->call.inputs[index] = make_random(bench, 2, N, columns);
    bench->call.d_inputs[index] = make_random(bench, 2, N, columns);
    bench->call.accumulate[index] = accumulate;
}

static void check_norm(HsNormKind kind, bool bias, bool accumulate)
{
    Bench bench;
    start(&bench, &hs_layer_norm);
    bench.node.attributes.norm = kind;
    add_input(&bench, 0, C, accumulate);
    add_param(&bench, 0, 1, C, 1);
    if (bias)
        add_param(&bench, 1, 1, C, 1);
    bench.call.outputs[0] = make(&bench, HS_F64, 2, N, C);
    bench.call.saved[0] = make(&bench, HS_F64, 1, N, 1);
    if (kind == HS_NORM_LAYER)
        bench.call.saved[1] = make(&bench, HS_F64, 1, N, 1);
    check(&bench);
}

Test(layers, norm)
{
    check_norm(HS_NORM_LAYER, true, true);
    check_norm(HS_NORM_LAYER, false, false);
    check_norm(HS_NORM_RMS, false, true);
    check_norm(HS_NORM_RMS, false, false);
}

/* Behind a branch: the residual's gradient is the output's (sums_pass_their_gradient). */
static void check_norm_sum(bool weight)
{
    Bench bench;
    start(&bench, &hs_layer_norm_sum);
    bench.node.attributes.norm = HS_NORM_RMS;
    add_input(&bench, 0, C, false);
    bench.call.inputs[1] = make_random(&bench, 2, N, C);
    if (weight)
        add_param(&bench, 0, 1, C, 1);
    bench.call.outputs[0] = make(&bench, HS_F64, 2, N, C);
    bench.call.saved[0] = make(&bench, HS_F64, 1, N, 1);
    check(&bench);
}

Test(layers, norm_sum)
{
    check_norm_sum(true);
    check_norm_sum(false);
}

Test(layers, round_adds_to_the_streams_gradient)
{
    for (int adds = 0; adds < 2; adds++) {
        Bench bench;
        start(&bench, &hs_layer_round);
        add_input(&bench, 0, C, adds);
        bench.call.outputs[0] = make(&bench, HS_F64, 2, N, C);
        check(&bench);
    }
}

static void check_linear(bool bias, bool residual, bool accumulate)
{
    Bench bench;
    start(&bench, &hs_layer_linear);
    bench.node.attributes.factor = bias ? 1.0f : -0.75f;
    add_input(&bench, 0, C, accumulate);
    if (residual)
        bench.call.inputs[1] = make_random(&bench, 2, N, F);
    add_param(&bench, 0, 2, F, C);
    if (bias)
        add_param(&bench, 1, 1, F, 1);
    bench.call.outputs[0] = make(&bench, HS_F64, 2, N, F);
    check(&bench);
}

Test(layers, linear)
{
    check_linear(false, false, false);
    check_linear(true, true, true);
}

/* The residual's gradient is the output's: the plan passes the buffer on, so the identity is what to check. */
Test(layers, sums_pass_their_gradient)
{
    const HsLayer *const sums[] = { &hs_layer_linear, &hs_layer_dropout_residual, &hs_layer_norm_sum };
    for (int s = 0; s < 3; s++) {
        Bench bench;
        start(&bench, sums[s]);
        cr_assert_eq(sums[s]->passes_gradient, 1);
        bench.node.attributes.dropout = 0.4f;
        bench.call.inputs[0] = make_random(&bench, 2, N, C);
        bench.call.inputs[1] = make_random(&bench, 2, N, C);
        if (s == 0)
            add_param(&bench, 0, 2, C, C);
        bench.node.attributes.norm = HS_NORM_RMS;
        bench.call.saved[0] = make(&bench, HS_F64, 1, N, 1);
        bench.call.outputs[0] = make(&bench, HS_F64, 2, N, C);
        HsTensor r = make_random(&bench, 2, N, C);
        bench.r = r.data;
        check_tensor(&bench, "residual", &bench.call.inputs[1], &r, hold(&bench, &r, false));
        finish(&bench);
    }
}

/* First half of a fused activation: the gradient is that of `pre`. */
static void check_first_half(HsEpilogue epilogue, int64_t pre_columns)
{
    Bench bench;
    start(&bench, &hs_layer_linear);
    bench.node.attributes.epilogue = epilogue;
    add_input(&bench, 0, C, false);
    add_param(&bench, 0, 2, pre_columns, C);
    add_param(&bench, 1, 1, pre_columns, 1);
    bench.call.outputs[0] = make(&bench, HS_F64, 2, N, F);
    bench.call.outputs[1] = make(&bench, HS_F64, 2, N, pre_columns);
    bench.measured = 1;
    check(&bench);
}

Test(layers, linear_before_an_activation)
{
    check_first_half(HS_EPILOGUE_GELU, F);
    check_first_half(HS_EPILOGUE_RELU2, F);
    check_first_half(HS_EPILOGUE_SWIGLU, 2 * F);
    check_first_half(HS_EPILOGUE_GEGLU, 2 * F);
}

static double gelu(double x)
{
    return 0.5 * x * (1 + tanh(sqrt(2 / acos(-1.0)) * (x + 0.044715 * x * x * x)));
}

/* Second half: x is f(pre), written out here, and the gradient is pre's. */
static void gelu_of_pre(Bench *bench)
{
    const double *pre = bench->call.inputs[2].data;
    double *x = bench->call.inputs[0].data;
    for (int64_t i = 0; i < hs_tensor_count(&bench->call.inputs[0]); i++)
        x[i] = gelu(pre[i]);
}

static void relu2_of_pre(Bench *bench)
{
    const double *pre = bench->call.inputs[2].data;
    double *x = bench->call.inputs[0].data;
    for (int64_t i = 0; i < hs_tensor_count(&bench->call.inputs[0]); i++)
        x[i] = pre[i] > 0 ? pre[i] * pre[i] : 0;
}

/* ... or f(gate) up of pre = [gate|up]. */
static void swiglu_of_pre(Bench *bench)
{
    const double *pre = bench->call.inputs[2].data;
    double *x = bench->call.inputs[0].data;
    for (int64_t n = 0; n < N; n++)
        for (int64_t f = 0; f < F; f++) {
            const double gate = pre[n * 2 * F + f], up = pre[n * 2 * F + F + f];
            x[n * F + f] = gate / (1 + exp(-gate)) * up;
        }
}

static void geglu_of_pre(Bench *bench)
{
    const double *pre = bench->call.inputs[2].data;
    double *x = bench->call.inputs[0].data;
    for (int64_t n = 0; n < N; n++)
        for (int64_t f = 0; f < F; f++)
            x[n * F + f] = gelu(pre[n * 2 * F + f]) * pre[n * 2 * F + F + f];
}

static void check_second_half(HsEpilogue epilogue, int64_t pre_columns, void (*prepare)(Bench *bench))
{
    Bench bench;
    start(&bench, &hs_layer_linear);
    bench.call.inputs[0] = make(&bench, HS_F64, 2, N, F);
    add_input(&bench, 2, pre_columns, false);
    bench.node.attributes.backward_epilogue = epilogue;
    add_param(&bench, 0, 2, C, F);
    add_param(&bench, 1, 1, C, 1);
    bench.call.outputs[0] = make(&bench, HS_F64, 2, N, C);
    bench.prepare = prepare;
    check(&bench);
}

Test(layers, linear_after_an_activation)
{
    check_second_half(HS_EPILOGUE_GELU_BACKWARD, F, gelu_of_pre);
    check_second_half(HS_EPILOGUE_RELU2_BACKWARD, F, relu2_of_pre);
    check_second_half(HS_EPILOGUE_SWIGLU_BACKWARD, 2 * F, swiglu_of_pre);
    check_second_half(HS_EPILOGUE_GEGLU_BACKWARD, 2 * F, geglu_of_pre);
}

Test(layers, linear_converts_its_gradient)
{
    Bench bench;
    start(&bench, &hs_layer_linear);
    bench.node.attributes.convert_gradient = true;
    add_input(&bench, 0, C, false);
    add_param(&bench, 0, 2, F, C);
    bench.call.outputs[0] = make(&bench, HS_F64, 2, N, F);
    HsTensor scratch[HS_NODE_SCRATCH] = { 0 };
    hs_layer_linear.scratch(&bench.node, bench.call.outputs, true, scratch);
    bench.call.scratch[0] = make(&bench, scratch[0].dtype, scratch[0].rank, scratch[0].shape[0], scratch[0].shape[1]);
    check(&bench);
}

static void check_head_norm(bool whole, bool weights)
{
    Bench bench;
    start(&bench, &hs_layer_head_norm);
    bench.node.attributes.whole = whole;
    add_input(&bench, 0, (H + 2 * G) * D, false);
    if (weights) {
        add_param(&bench, 0, 1, whole ? H * D : D, 1);
        add_param(&bench, 1, 1, whole ? G * D : D, 1);
    }
    bench.call.outputs[0] = make(&bench, HS_F64, 2, N, (H + 2 * G) * D);
    bench.call.saved[0] = make(&bench, HS_F64, 2, N, whole ? 2 : H + G);
    check(&bench);
}

Test(layers, head_norm)
{
    check_head_norm(false, true);
    check_head_norm(false, false);
    check_head_norm(true, true);
    check_head_norm(true, false);
}

Test(layers, rope)
{
    Bench bench;
    for (int reversed = 0; reversed < 2; reversed++) {
        start(&bench, &hs_layer_rope);
        bench.node.attributes.reversed = reversed;
        bench.call.position_start = 3;
        add_input(&bench, 0, (H + 2 * G) * D, false);
        bench.call.outputs[0] = make(&bench, HS_F64, 2, N, (H + 2 * G) * D);
        check(&bench);
    }
}

static void check_attention(float dropout, bool training)
{
    Bench bench;
    start(&bench, &hs_layer_attention);
    bench.node.attributes.dropout = dropout;
    bench.call.training = training;
    add_input(&bench, 0, (H + 2 * G) * D, false);
    bench.call.outputs[0] = make(&bench, HS_F64, 2, N, H * D);
    bench.call.saved[0] = make(&bench, HS_F64, 2, N, H);
    check(&bench);
}

Test(layers, attention)
{
    check_attention(0, true);
    check_attention(0.3f, true);
    check_attention(0.3f, false);
}

Test(layers, dropout_residual)
{
    Bench bench;
    start(&bench, &hs_layer_dropout_residual);
    bench.node.attributes.dropout = 0.4f;
    add_input(&bench, 0, C, false);
    bench.call.inputs[1] = make_random(&bench, 2, N, C);
    bench.call.outputs[0] = make(&bench, HS_F64, 2, N, C);
    check(&bench);
}

static void check_embedding(float dropout, bool positions, float factor)
{
    Bench bench;
    start(&bench, &hs_layer_embedding);
    bench.node.attributes.dropout = dropout;
    bench.node.attributes.embedding_factor = factor;
    bench.call.inputs[0] = make(&bench, HS_I32, 1, N, 1);
    int32_t *tokens = bench.call.inputs[0].data;
    for (int i = 0; i < N; i++)
        tokens[i] = i * i % V; /* some twice, some never */
    add_param(&bench, 0, 2, V, C);
    if (positions)
        add_param(&bench, 1, 2, POSITIONS, C);
    bench.call.outputs[0] = make(&bench, HS_F64, 2, N, C);
    check(&bench);
}

Test(layers, embedding)
{
    check_embedding(0, false, 1);
    check_embedding(0, true, 1);
    check_embedding(0.5f, true, 1);
    check_embedding(0, false, -0.5f);
    check_embedding(0.5f, true, 3);
}

/* z times the sum of squared log-sum-exps of the counted rows, which the losses leave out. */
static double z_term(Bench *bench)
{
    const double *hidden = bench->call.inputs[0].data, *weight = bench->params[0].stored.values.data;
    const int32_t *targets = bench->call.inputs[1].data;
    const double cap = (double)bench->node.attributes.logit_cap;
    double sum = 0;
    for (int row = 0; row < N; row++) {
        double total = 0;
        for (int v = 0; v < V; v++) {
            double logit = 0;
            for (int c = 0; c < C; c++)
                logit += hidden[row * C + c] * weight[v * C + c];
            logit *= (double)bench->node.attributes.logit_factor;
            total += exp(cap > 0 ? cap * tanh(logit / cap) : logit);
        }
        if (targets[row] >= 0)
            sum += log(total) * log(total);
    }
    return (double)bench->node.attributes.z_loss * sum;
}

static void add_scratch(Bench *bench, const HsTensor *scratch)
{
    for (int i = 0; i < HS_NODE_SCRATCH; i++)
        if (hs_tensor_present(&scratch[i]))
            bench->call.scratch[i] =
                make(bench, scratch[i].dtype, scratch[i].rank, scratch[i].shape[0], scratch[i].shape[1]);
}

static void make_head(Bench *bench, int64_t chunk, bool accumulate)
{
    start(bench, &hs_layer_head_loss);
    bench->node.attributes.head_chunk = chunk;
    bench->node.attributes.inputs = C;
    bench->node.attributes.operand = HS_F64;
    add_input(bench, 0, C, accumulate);
    bench->call.inputs[1] = make(bench, HS_I32, 1, N, 1);
    add_param(bench, 0, 2, V, C);
    bench->call.outputs[0] = make(bench, HS_F64, 1, N, 1);
}

static void check_scaled_head(float factor, float cap, float z_loss, int64_t chunk, bool accumulate, bool leaves_out)
{
    Bench bench;
    make_head(&bench, chunk, accumulate);
    bench.node.attributes.logit_factor = factor;
    bench.node.attributes.logit_cap = cap;
    bench.node.attributes.z_loss = z_loss;
    bench.node.attributes.leaves_out = leaves_out;
    int32_t *targets = bench.call.inputs[1].data;
    for (int i = 0; i < N; i++)
        targets[i] = i % 3 == 1 ? -1 : i * 5 % V;
    int32_t list[N];
    bench.call.target_rows = (HsTargetRows){ list, hs_target_rows_list(targets, N, list) };
    HsTensor scratch[HS_NODE_SCRATCH] = { 0 };
    hs_layer_head_loss.scratch(&bench.node, bench.call.outputs, true, scratch);
    cr_assert_eq(scratch[0].shape[0], chunk < N ? chunk : N);
    add_scratch(&bench, scratch);
    bench.extra = z_loss > 0 ? z_term : NULL;
    check(&bench);
}

static void check_head(float z_loss, int64_t chunk, bool accumulate, bool leaves_out)
{
    check_scaled_head(1, 0, z_loss, chunk, accumulate, leaves_out);
}

Test(layers, head_loss)
{
    for (int leaves_out = 0; leaves_out < 2; leaves_out++) {
        check_head(0, 3, false, leaves_out); /* 3 + 3 + 2 rows */
        check_head(0, 100, true, leaves_out);
        check_head(0, 100, false, leaves_out);
        check_head(0.25f, 1, false, leaves_out); /* a coefficient that float holds exactly */
    }
}

Test(layers, head_loss_of_scaled_and_capped_logits)
{
    for (int leaves_out = 0; leaves_out < 2; leaves_out++) {
        check_scaled_head(-1.5f, 0, 0, 3, false, leaves_out);
        check_scaled_head(1, 1.5f, 0, 100, true, leaves_out);
        check_scaled_head(1.5f, 2, 0.25f, 3, false, leaves_out);
    }
}

/* Rows that are left out are not even read: what is no number in them goes nowhere, and their own gradient is 0. */
static void check_left_out(unsigned kept, int64_t chunk)
{
    Bench bench;
    make_head(&bench, chunk, false);
    bench.node.attributes.leaves_out = true;
    int32_t *targets = bench.call.inputs[1].data;
    double *hidden = bench.call.inputs[0].data, *d_hidden = bench.call.d_inputs[0].data;
    const double *losses = bench.call.outputs[0].data, *d_weight = bench.params[0].gradient.data;
    for (int i = 0; i < N; i++) {
        targets[i] = kept >> i & 1u ? i * 5 % V : -1;
        for (int c = 0; c < C && targets[i] < 0; c++)
            hidden[i * C + c] = NAN;
    }
    int32_t list[N];
    bench.call.target_rows = (HsTargetRows){ list, hs_target_rows_list(targets, N, list) };
    HsTensor scratch[HS_NODE_SCRATCH] = { 0 };
    hs_layer_head_loss.scratch(&bench.node, bench.call.outputs, true, scratch);
    add_scratch(&bench, scratch);
    cr_assert_eq(hs_layer_head_loss.backward(&bench.call, &bench.node), HS_OK, "%s", hs_error_message());
    for (int i = 0; i < N; i++) {
        cr_expect(targets[i] < 0 ? losses[i] == 0 : losses[i] > 0, "rows %x, chunks of %d: %d", kept, (int)chunk, i);
        for (int c = 0; c < C; c++)
            cr_expect(targets[i] < 0 ? d_hidden[i * C + c] == 0 : isfinite(d_hidden[i * C + c]));
    }
    for (int i = 0; i < V * C; i++)
        cr_expect(isfinite(d_weight[i]));
    finish(&bench);
}

Test(layers, head_loss_leaves_out_rows_without_a_target)
{
    for (unsigned kept = 0; kept < 1u << N; kept++)
        for (int64_t chunk = 1; chunk <= 4; chunk++)
            if (__builtin_popcount(kept) / chunk * chunk + chunk < N)
                check_left_out(kept, chunk);
}
