/* SPDX-License-Identifier: MIT
 *
 * Llama (Touvron et al. 2023) as a table of nodes, and with a few keys what has followed it: RMS norm before each branch
 * (model.norms: or behind it), grouped queries, rotary positions, a SwiGLU MLP.  Dropout as in gpt2.c.
 *
 *     x -+- norm - qkv - [head norm] - rope - attention - o_proj -(+)-+- norm - gate|up - swiglu - down -(+)- ...
 *        +---------------------------------------------------------+  +-----------------------------------+
 *     Gemma     norms also between o_proj, down and the sums; GeGLU
 *     OLMo 2    norms only there
 *     nanochat  norms without weights, also behind the embedding; the head norm behind rope; up - relu^2 - down; the token
 *               before and the stream behind the embedding are mixed in, the middle one is taken out at the end
 *
 * Parameters have Hugging Face's names, [out, in], except for the two products that are fused here: their parts
 * have them:  self_attn.qkv_proj = rows of q_proj, k_proj, v_proj;   mlp.gate_up_proj = rows of gate_proj, up_proj.
 */
#include <math.h>
#include <stdio.h>

#include "runtime/config/attention_pattern.h"
#include "runtime/model/builder.h"

/* First values of model.init: a matrix that reads the stream, or a table of values. */
static void start_between(HsBuilder *builder, int param, double factor)
{
    const double bound =
        factor * sqrt(3.0 / (double)builder->model->width); /* of a deviation of factor / sqrt(width) */
    if (hs_is(builder->config->model.init, "nanochat"))
        hs_builder_start(builder, param, HS_START_BETWEEN, -bound, bound);
}

static void start_normal(HsBuilder *builder, int param, double deviation)
{
    if (hs_is(builder->config->model.init, "nanochat"))
        hs_builder_start(builder, param, HS_START_NORMAL, 0, deviation);
}

/* The weight of a gate of `count` heads, which is a little open at first. */
static int llama_gate(HsBuilder *builder, const char *prefix, const char *name, int64_t count, int64_t features)
{
    const int gate = hs_builder_table(builder, prefix, name, HS_PARAM_VECTOR, HS_START_BETWEEN, count, features);
    hs_builder_start(builder, gate, HS_START_BETWEEN, 0, 0.02);
    return gate;
}

static HsLinearSpec llama_linear(HsBuilder *builder, const char *node_name, const char *prefix, const char *weight_name,
                                 HsParamStart start, int input, int64_t inputs, int64_t outputs)
{
    return (HsLinearSpec){
        .name = node_name,
        .input = input,
        .input_pre = HS_NONE,
        .outputs = outputs,
        .weight = hs_builder_table(builder, prefix, weight_name, HS_PARAM_MATRIX, start, outputs, inputs),
        .bias = HS_NONE,
        .residual = HS_NONE,
    };
}

/* Of a projection back into the stream. */
static HsParamStart back_start(const HsBuilder *builder)
{
    return hs_is(builder->config->model.init, "nanochat") ? HS_START_ZERO : HS_START_RESIDUAL;
}

/* HS_NONE without weights (model.norm_weights). */
static int llama_gain(HsBuilder *builder, const char *prefix, const char *weight_name, int64_t size)
{
    if (!builder->config->model.norm_weights)
        return HS_NONE;
    const int gain = hs_builder_vector(builder, prefix, weight_name, HS_START_ONE, size);
    if (gain != HS_NONE && builder->config->model.norm_offset)
        builder->model->params[gain].published_shift = -1;
    return gain;
}

static HsNormSpec llama_norm(HsBuilder *builder, const char *node_name, const char *prefix, const char *weight_name,
                             int input)
{
    return (HsNormSpec){ .name = node_name,
                         .kind = HS_NORM_RMS,
                         .input = input,
                         .weight = llama_gain(builder, prefix, weight_name, builder->model->width),
                         .bias = HS_NONE,
                         .residual = HS_NONE };
}

/* The norms of a branch (model.norms), by the names that files have for them. */
typedef struct LlamaBranch {
    const char *name, *end;                    /* of the nodes: "attention", "attention.proj" */
    const char *before, *before_alone, *after; /* before: where there is one behind the branch, too */
} LlamaBranch;

static const LlamaBranch attention_branch = { "attention", "attention.proj", "input_layernorm.weight",
                                              "input_layernorm.weight", "post_attention_layernorm.weight" };
static const LlamaBranch mlp_branch = { "mlp", "mlp.down", "pre_feedforward_layernorm.weight",
                                        "post_attention_layernorm.weight", "post_feedforward_layernorm.weight" };

/* What the branch's first product reads of the stream. */
static int begin_branch(HsBuilder *builder, const LlamaBranch *branch, const char *prefix, int x)
{
    const char *const norms = builder->config->model.norms;
    char name[32];
    if (hs_is(norms, "after")) {
        snprintf(name, sizeof name, "%s.round", branch->name);
        return hs_builder_round(builder, name, x);
    }
    snprintf(name, sizeof name, "%s.norm", branch->name);
    const HsNormSpec norm =
        llama_norm(builder, name, prefix, hs_is(norms, "before") ? branch->before_alone : branch->before, x);
    return hs_builder_norm(builder, &norm);
}

/* The last projection, and the sum, whose recomputation is that of sum_group. */
static int end_branch(HsBuilder *builder, const LlamaBranch *branch, const char *prefix, HsLinearSpec projection, int x,
                      unsigned sum_group)
{
    char name[32];
    if (hs_is(builder->config->model.norms, "before")) {
        builder->group = sum_group;
        projection.factor = (float)builder->config->model.branch_factor;
        return hs_builder_branch_end(builder, projection, x);
    }
    builder->group = HS_GROUP_BLOCK;
    const int whole = hs_builder_linear(builder, &projection, NULL);
    snprintf(name, sizeof name, "%s.norm", branch->end);
    HsNormSpec norm = llama_norm(builder, name, prefix, branch->after, whole);
    const bool drops = builder->config->model.dropout > 0;
    if (!drops) {
        builder->group = sum_group;
        norm.residual = x;
        return hs_builder_norm(builder, &norm);
    }
    const int normed = hs_builder_norm(builder, &norm);
    builder->group = sum_group;
    return hs_builder_dropout_sum(builder, branch->end, normed, x);
}

/* Rotary positions and the norm of queries and keys, in the model's order. */
static int llama_positions(HsBuilder *builder, const char *prefix, int qkv)
{
    const HsModel *model = builder->model;
    const bool whole = hs_is(builder->config->model.qk_norm_span, "projection");
    if (!builder->config->model.qk_norm)
        return hs_builder_rope(builder, qkv);
    if (builder->config->model.qk_norm_rotated)
        qkv = hs_builder_rope(builder, qkv);
    const int q = llama_gain(builder, prefix, "self_attn.q_norm.weight", (whole ? model->heads : 1) * model->head_dim);
    const int k =
        llama_gain(builder, prefix, "self_attn.k_norm.weight", (whole ? model->kv_heads : 1) * model->head_dim);
    qkv = hs_builder_head_norm(builder, qkv, q, k);
    return builder->config->model.qk_norm_rotated ? qkv : hs_builder_rope(builder, qkv);
}

/* The parts of a matrix or bias, which files hold by themselves unless model.fused_projections says otherwise. */
static void llama_stack(HsBuilder *builder, int param, const char *prefix, int count, const HsPart *parts)
{
    HsPart whole[HS_PARAM_MOST_PARTS];
    for (int i = 0; i < count; i++)
        whole[i] = (HsPart){ NULL, parts[i].rows };
    hs_builder_stack(builder, param, prefix, count, builder->config->model.fused_projections ? whole : parts);
}

/* Values of tokens by themselves, where the layer has them. */
static int llama_values(HsBuilder *builder, const char *prefix, int qkv, int normed)
{
    const HsModel *model = builder->model;
    char name[64];
    if (!hs_attention_kind(builder->config, builder->block).values)
        return qkv;
    snprintf(name, sizeof name, "model.value_embeds.%d.weight", builder->block);
    const int table = hs_builder_table(builder, "", name, HS_PARAM_EMBEDDING, HS_START_NORMAL, model->vocabulary,
                                       model->kv_heads * model->head_dim);
    start_between(builder, table, 1.0);
    const int gate =
        llama_gate(builder, prefix, "self_attn.ve_gate.weight", model->kv_heads, builder->config->model.value_gate);
    return hs_builder_values(builder, qkv, normed, table, gate);
}

static int llama_sinks(HsBuilder *builder, const char *prefix)
{
    return hs_attention_kind(builder->config, builder->block).sink
               ? hs_builder_vector(builder, prefix, "self_attn.sinks", HS_START_ZERO, builder->model->heads)
               : HS_NONE;
}

static int llama_attention_branch(HsBuilder *builder, const char *prefix, int x)
{
    const HsModel *model = builder->model;
    int64_t mixed_width = model->heads * model->head_dim;
    int64_t qkv_width = mixed_width + 2 * model->kv_heads * model->head_dim;
    builder->group = HS_GROUP_ATTENTION | HS_GROUP_BLOCK;
    const int normed = begin_branch(builder, &attention_branch, prefix, x);
    HsLinearSpec projection = llama_linear(builder, "attention.qkv", prefix, "self_attn.qkv_proj.weight",
                                           HS_START_NORMAL, normed, model->width, qkv_width);
    const int64_t shared_width = model->kv_heads * model->head_dim;
    llama_stack(builder, projection.weight, prefix, 3,
                (HsPart[]){ { "self_attn.q_proj.weight", mixed_width },
                            { "self_attn.k_proj.weight", shared_width },
                            { "self_attn.v_proj.weight", shared_width } });
    hs_builder_heads(builder, projection.weight);
    if (builder->config->model.qkv_bias) {
        projection.bias = hs_builder_vector(builder, prefix, "self_attn.qkv_proj.bias", HS_START_ZERO, qkv_width);
        llama_stack(builder, projection.bias, prefix, 3,
                    (HsPart[]){ { "self_attn.q_proj.bias", mixed_width },
                                { "self_attn.k_proj.bias", shared_width },
                                { "self_attn.v_proj.bias", shared_width } });
    }
    start_between(builder, projection.weight, 1.0);
    const int qkv = llama_values(builder, prefix, hs_builder_linear(builder, &projection, NULL), normed);
    const int placed = llama_positions(builder, prefix, qkv);
    const int mixed = hs_builder_attention(builder, placed, llama_sinks(builder, prefix));
    const HsLinearSpec output = llama_linear(builder, "attention.proj", prefix, "self_attn.o_proj.weight",
                                             back_start(builder), mixed, mixed_width, model->width);
    return end_branch(builder, &attention_branch, prefix, output, x, HS_GROUP_BLOCK);
}

/* One projection, or two of which one is a gate; with the names of those that have it so. */
static HsLinearSpec llama_mlp_begin(HsBuilder *builder, const char *prefix, HsEpilogue activation, int normed,
                                    int64_t hidden)
{
    const int64_t width = builder->model->width;
    if (!hs_epilogue_gates(activation))
        return llama_linear(builder, "mlp.up", prefix, "mlp.fc1.weight", HS_START_NORMAL, normed, width, hidden);
    const HsLinearSpec both = llama_linear(builder, "mlp.gate_up", prefix, "mlp.gate_up_proj.weight", HS_START_NORMAL,
                                           normed, width, 2 * hidden);
    llama_stack(builder, both.weight, prefix, 2,
                (HsPart[]){ { "mlp.gate_proj.weight", hidden }, { "mlp.up_proj.weight", hidden } });
    return both;
}

static HsEpilogue llama_activation(const HsConfig *config)
{
    const char *const word = config->model.activation;
    return hs_is(word, "gelu")    ? HS_EPILOGUE_GELU
           : hs_is(word, "relu2") ? HS_EPILOGUE_RELU2
           : hs_is(word, "geglu") ? HS_EPILOGUE_GEGLU
                                  : HS_EPILOGUE_SWIGLU;
}

/* 8/3 C keeps the parameters of a 4 C MLP with its third matrix; rounded up to whole panels of the kernels. */
static int64_t llama_mlp_width(const HsBuilder *builder, HsEpilogue activation)
{
    const int64_t width = builder->model->width, wanted = builder->config->model.mlp_width;
    if (wanted > 0)
        return wanted;
    return hs_epilogue_gates(activation) ? ((8 * width + 2) / 3 + 63) / 64 * 64 : 4 * width;
}

static int llama_mlp_branch(HsBuilder *builder, const char *prefix, int x)
{
    const HsEpilogue activation = llama_activation(builder->config);
    const int64_t hidden = llama_mlp_width(builder, activation);
    builder->group = HS_GROUP_MLP | HS_GROUP_BLOCK;
    const int normed = begin_branch(builder, &mlp_branch, prefix, x);
    HsLinearSpec first = llama_mlp_begin(builder, prefix, activation, normed, hidden);
    start_between(builder, first.weight, 0.4);
    first.activation = activation;
    int pre = HS_NONE;
    const int active = hs_builder_linear(builder, &first, &pre);
    const char *const last = hs_epilogue_gates(activation) ? "mlp.down_proj.weight" : "mlp.fc2.weight";
    HsLinearSpec down =
        llama_linear(builder, "mlp.down", prefix, last, back_start(builder), active, hidden, builder->model->width);
    down.input_pre = pre;
    down.input_activation = activation;
    /* The block's output is the next one's input, which every policy keeps. */
    return end_branch(builder, &mlp_branch, prefix, down, x, 0);
}

/* Behind the embedding. */
static int llama_embedding_norm(HsBuilder *builder, int x)
{
    if (!builder->config->model.embedding_norm)
        return x;
    HsNormSpec norm = llama_norm(builder, "embedding.norm", "model.", "embed_norm.weight", x);
    norm.stream = true;
    return hs_builder_norm(builder, &norm);
}

static int llama_smear(HsBuilder *builder, int x)
{
    const int64_t features = builder->config->model.smear;
    if (features == 0)
        return x;
    const int gate = llama_gate(builder, "model.", "smear_gate.weight", 1, features);
    const int strength = hs_builder_vector(builder, "model.", "smear_lambda", HS_START_LINE, 1);
    return hs_builder_smear(builder, x, gate, strength);
}

/* What a block begins with (model.input_blend): of the stream less the deeper it is, and ever less of x0. */
typedef struct LlamaBlend {
    int x0, of_stream, of_input;
} LlamaBlend;

static LlamaBlend llama_blend_begin(HsBuilder *builder, int x)
{
    const int64_t layers = builder->model->layers;
    LlamaBlend blend = { x, HS_NONE, HS_NONE };
    if (!builder->config->model.input_blend)
        return blend;
    blend.of_stream = hs_builder_vector(builder, "model.", "resid_lambdas", HS_START_LINE, layers);
    blend.of_input = hs_builder_vector(builder, "model.", "x0_lambdas", HS_START_LINE, layers);
    hs_builder_start(builder, blend.of_stream, HS_START_LINE, 1.15, 1.05);
    hs_builder_start(builder, blend.of_input, HS_START_LINE, 0.20, 0.05);
    return blend;
}

static int llama_blend(HsBuilder *builder, const LlamaBlend *blend, int x)
{
    builder->group = HS_GROUP_BLOCK;
    return hs_builder_blend(builder, &(HsBlendSpec){ .name = "blend",
                                                     .x = x,
                                                     .z = blend->x0,
                                                     .a = blend->of_stream,
                                                     .b = blend->of_input,
                                                     .at = builder->block,
                                                     .sign = 1.0f });
}

/* Behind the last block. */
static int llama_backout(HsBuilder *builder, int x, int middle)
{
    const int factor = hs_builder_vector(builder, "model.", "backout_lambda", HS_START_LINE, 1);
    hs_builder_start(builder, factor, HS_START_LINE, 0.2, 0.2);
    return hs_builder_blend(
        builder, &(HsBlendSpec){ .name = "backout", .x = x, .z = middle, .a = HS_NONE, .b = factor, .sign = -1.0f });
}

static void llama_build(HsBuilder *builder)
{
    HsModel *model = builder->model;
    int tokens = hs_builder_inputs(builder);
    const int token_table = hs_builder_token_table(builder, "model.", "embed_tokens.weight");
    start_normal(builder, token_table, 0.8);
    int x = llama_embedding_norm(builder, hs_builder_embedding(builder, tokens, token_table, HS_NONE));
    x = llama_smear(builder, x);
    const LlamaBlend blend = llama_blend_begin(builder, x);
    int middle = x;
    for (int block = 0; block < model->layers; block++) {
        char prefix[32];
        snprintf(prefix, sizeof prefix, "model.layers.%d.", block);
        builder->block = block;
        x = builder->config->model.input_blend ? llama_blend(builder, &blend, x) : x;
        x = llama_attention_branch(builder, prefix, x);
        x = llama_mlp_branch(builder, prefix, x);
        middle = block == model->layers / 2 ? x : middle;
    }
    builder->block = HS_NONE;
    builder->group = 0;
    x = builder->config->model.backout ? llama_backout(builder, x, middle) : x;
    const HsNormSpec norm = llama_norm(builder, "final_norm", "model.", "norm.weight", x);
    const int normed = hs_builder_norm(builder, &norm), head = hs_builder_head_table(builder, token_table);
    if (head != token_table)
        start_normal(builder, head, 0.001);
    hs_builder_head(builder, normed, head);
}

const HsFamily hs_family_llama = { .rotary = true, .free_head_dim = true, .build = llama_build };
