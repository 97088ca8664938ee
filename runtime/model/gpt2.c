/* SPDX-License-Identifier: MIT
 *
 * GPT-2 (Radford et al. 2019) as a table of nodes: learned positions, layer norm before each branch, one projection for
 * q, k and v, a GELU (or squared ReLU) MLP, a final norm, and a head that shares the embedding's weights unless model.tie_head is false.
 * Dropout sits where nanoGPT has it: on the embedding, on attention probabilities and on both branches' outputs.
 *
 *     x -+- norm - qkv - attention - proj -(+)-+- norm - up - gelu - down -(+)- ... - norm - head
 *        +----------------------------------+  +---------------------------+
 *
 * Parameters have Hugging Face's names; matrices are stored [out, in] (Hugging Face's GPT-2 stores the transpose).
 */
#include <stdio.h>

#include "runtime/model/builder.h"

/* A norm's gain, and its bias when the model has biases. */
static int gpt2_norm(HsBuilder *builder, const char *node_name, const char *prefix, const char *suffix, int input)
{
    char weight_name[48], bias_name[48];
    snprintf(weight_name, sizeof weight_name, "%s.weight", suffix);
    snprintf(bias_name, sizeof bias_name, "%s.bias", suffix);
    int64_t width = builder->model->width;
    int weight = hs_builder_vector(builder, prefix, weight_name, HS_START_ONE, width), bias = HS_NONE;
    if (builder->config->model.bias)
        bias = hs_builder_vector(builder, prefix, bias_name, HS_START_ZERO, width);
    return hs_builder_norm(builder, &(HsNormSpec){ .name = node_name,
                                                   .kind = HS_NORM_LAYER,
                                                   .input = input,
                                                   .weight = weight,
                                                   .bias = bias,
                                                   .residual = HS_NONE });
}

/* A linear layer's parameters around what the caller says of its place. */
static HsLinearSpec gpt2_linear(HsBuilder *builder, const char *node_name, const char *prefix, const char *suffix,
                                HsParamStart start, int input, int64_t inputs, int64_t outputs)
{
    char weight_name[48], bias_name[48];
    snprintf(weight_name, sizeof weight_name, "%s.weight", suffix);
    snprintf(bias_name, sizeof bias_name, "%s.bias", suffix);
    HsLinearSpec spec = { .name = node_name,
                          .input = input,
                          .input_pre = HS_NONE,
                          .outputs = outputs,
                          .bias = HS_NONE,
                          .residual = HS_NONE };
    spec.weight = hs_builder_table(builder, prefix, weight_name, HS_PARAM_MATRIX, start, outputs, inputs);
    if (spec.weight != HS_NONE)
        builder->model->params[spec.weight].published_transposed = true;
    if (builder->config->model.bias)
        spec.bias = hs_builder_vector(builder, prefix, bias_name, HS_START_ZERO, outputs);
    return spec;
}

static int gpt2_attention_branch(HsBuilder *builder, const char *prefix, int x)
{
    int64_t width = builder->model->width;
    builder->group = HS_GROUP_ATTENTION | HS_GROUP_BLOCK;
    int normed = gpt2_norm(builder, "attention.norm", prefix, "ln_1", x);
    HsLinearSpec qkv =
        gpt2_linear(builder, "attention.qkv", prefix, "attn.c_attn", HS_START_NORMAL, normed, width, 3 * width);
    hs_builder_stack(builder, qkv.weight, prefix, 3, (HsPart[]){ { NULL, width }, { NULL, width }, { NULL, width } });
    hs_builder_heads(builder, qkv.weight);
    int mixed = hs_builder_attention(builder, hs_builder_linear(builder, &qkv, NULL), HS_NONE);
    builder->group = HS_GROUP_BLOCK;
    HsLinearSpec projection =
        gpt2_linear(builder, "attention.proj", prefix, "attn.c_proj", HS_START_RESIDUAL, mixed, width, width);
    return hs_builder_branch_end(builder, projection, x);
}

static int gpt2_mlp_branch(HsBuilder *builder, const char *prefix, int x)
{
    int64_t width = builder->model->width;
    int64_t hidden = builder->config->model.mlp_width ? builder->config->model.mlp_width : 4 * width;
    builder->group = HS_GROUP_MLP | HS_GROUP_BLOCK;
    int normed = gpt2_norm(builder, "mlp.norm", prefix, "ln_2", x);
    HsLinearSpec up = gpt2_linear(builder, "mlp.up", prefix, "mlp.c_fc", HS_START_NORMAL, normed, width, hidden);
    const HsEpilogue activation =
        hs_is(builder->config->model.activation, "relu2") ? HS_EPILOGUE_RELU2 : HS_EPILOGUE_GELU;
    up.activation = activation;
    int pre = HS_NONE, active = hs_builder_linear(builder, &up, &pre);
    builder->group = 0; /* the block's output is the next one's input, which every policy keeps */
    HsLinearSpec down =
        gpt2_linear(builder, "mlp.down", prefix, "mlp.c_proj", HS_START_RESIDUAL, active, hidden, width);
    down.input_pre = pre;
    down.input_activation = activation;
    return hs_builder_branch_end(builder, down, x);
}

static void gpt2_build(HsBuilder *builder)
{
    HsModel *model = builder->model;
    int tokens = hs_builder_inputs(builder);
    int token_table = hs_builder_token_table(builder, "transformer.", "wte.weight");
    int position_table = hs_builder_table(builder, "transformer.", "wpe.weight", HS_PARAM_EMBEDDING, HS_START_NORMAL,
                                          model->max_positions, model->width);
    int x = hs_builder_embedding(builder, tokens, token_table, position_table);
    for (int block = 0; block < model->layers; block++) {
        char prefix[32];
        snprintf(prefix, sizeof prefix, "transformer.h.%d.", block);
        builder->block = block;
        x = gpt2_attention_branch(builder, prefix, x);
        x = gpt2_mlp_branch(builder, prefix, x);
    }
    builder->block = HS_NONE;
    builder->group = 0;
    x = gpt2_norm(builder, "final_norm", "transformer.", "ln_f", x);
    hs_builder_head(builder, x, hs_builder_head_table(builder, token_table));
}

const HsFamily hs_family_gpt2 = { .learned_positions = true, .build = gpt2_build };
