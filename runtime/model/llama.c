/* SPDX-License-Identifier: MIT
 *
 * Llama (Touvron et al. 2023) as a table of nodes, and with a few keys Qwen2 (model.qkv_bias) and Qwen3
 * (model.qk_norm): RMS norm before each branch, grouped queries, rotary positions, a SwiGLU MLP.  Dropout as in
 * gpt2.c.
 *
 *     x -+- norm - qkv - [head norm] - rope - attention - o_proj -(+)-+- norm - gate|up - swiglu - down -(+)- ...
 *        +---------------------------------------------------------+  +-----------------------------------+
 *
 * Parameters have Hugging Face's names, [out, in], except for the two products that are fused here: their parts
 * have them:  self_attn.qkv_proj = rows of q_proj, k_proj, v_proj;   mlp.gate_up_proj = rows of gate_proj, up_proj.
 */
#include <stdio.h>

#include "runtime/model/builder.h"

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

static int llama_norm(HsBuilder *builder, const char *node_name, const char *prefix, const char *weight_name, int input)
{
    int weight = hs_builder_vector(builder, prefix, weight_name, HS_START_ONE, builder->model->width);
    return hs_builder_norm(builder, node_name, HS_NORM_RMS, input, weight, HS_NONE);
}

static int llama_attention_branch(HsBuilder *builder, const char *prefix, int x)
{
    const HsModel *model = builder->model;
    int64_t mixed_width = model->heads * model->head_dim;
    int64_t qkv_width = mixed_width + 2 * model->kv_heads * model->head_dim;
    builder->group = HS_GROUP_ATTENTION | HS_GROUP_BLOCK;
    int normed = llama_norm(builder, "attention.norm", prefix, "input_layernorm.weight", x);
    HsLinearSpec projection = llama_linear(builder, "attention.qkv", prefix, "self_attn.qkv_proj.weight",
                                           HS_START_NORMAL, normed, model->width, qkv_width);
    const int64_t shared_width = model->kv_heads * model->head_dim;
    hs_builder_stack(builder, projection.weight, prefix, 3,
                     (HsPart[]){ { "self_attn.q_proj.weight", mixed_width },
                                 { "self_attn.k_proj.weight", shared_width },
                                 { "self_attn.v_proj.weight", shared_width } });
    if (builder->config->model.qkv_bias) {
        projection.bias = hs_builder_vector(builder, prefix, "self_attn.qkv_proj.bias", HS_START_ZERO, qkv_width);
        hs_builder_stack(builder, projection.bias, prefix, 3,
                         (HsPart[]){ { "self_attn.q_proj.bias", mixed_width },
                                     { "self_attn.k_proj.bias", shared_width },
                                     { "self_attn.v_proj.bias", shared_width } });
    }
    int qkv = hs_builder_linear(builder, &projection, NULL);
    if (builder->config->model.qk_norm) {
        int q = hs_builder_vector(builder, prefix, "self_attn.q_norm.weight", HS_START_ONE, model->head_dim);
        int k = hs_builder_vector(builder, prefix, "self_attn.k_norm.weight", HS_START_ONE, model->head_dim);
        qkv = hs_builder_head_norm(builder, qkv, q, k);
    }
    int mixed = hs_builder_attention(builder, hs_builder_rope(builder, qkv));
    builder->group = HS_GROUP_BLOCK;
    HsLinearSpec output = llama_linear(builder, "attention.proj", prefix, "self_attn.o_proj.weight", HS_START_RESIDUAL,
                                       mixed, mixed_width, model->width);
    return hs_builder_branch_end(builder, output, x);
}

static int llama_mlp_branch(HsBuilder *builder, const char *prefix, int x)
{
    int64_t width = builder->model->width;
    /* 8/3 C keeps the parameters of a 4 C MLP with its third matrix; rounded up to whole panels of the kernels. */
    int64_t hidden =
        builder->config->model.mlp_width ? builder->config->model.mlp_width : ((8 * width + 2) / 3 + 63) / 64 * 64;
    builder->group = HS_GROUP_MLP | HS_GROUP_BLOCK;
    int normed = llama_norm(builder, "mlp.norm", prefix, "post_attention_layernorm.weight", x);
    HsLinearSpec gate_up = llama_linear(builder, "mlp.gate_up", prefix, "mlp.gate_up_proj.weight", HS_START_NORMAL,
                                        normed, width, 2 * hidden);
    hs_builder_stack(builder, gate_up.weight, prefix, 2,
                     (HsPart[]){ { "mlp.gate_proj.weight", hidden }, { "mlp.up_proj.weight", hidden } });
    gate_up.activation = HS_EPILOGUE_SWIGLU;
    int pre = HS_NONE;
    int active = hs_builder_linear(builder, &gate_up, &pre);
    builder->group = 0; /* the block's output is the next one's input, which every policy keeps */
    HsLinearSpec down =
        llama_linear(builder, "mlp.down", prefix, "mlp.down_proj.weight", HS_START_RESIDUAL, active, hidden, width);
    down.input_pre = pre;
    down.input_activation = HS_EPILOGUE_SWIGLU;
    return hs_builder_branch_end(builder, down, x);
}

static void llama_build(HsBuilder *builder)
{
    HsModel *model = builder->model;
    int tokens = hs_builder_inputs(builder);
    int token_table = hs_builder_token_table(builder, "model.", "embed_tokens.weight");
    int x = hs_builder_embedding(builder, tokens, token_table, HS_NONE);
    for (int block = 0; block < model->layers; block++) {
        char prefix[32];
        snprintf(prefix, sizeof prefix, "model.layers.%d.", block);
        builder->block = block;
        x = llama_attention_branch(builder, prefix, x);
        x = llama_mlp_branch(builder, prefix, x);
    }
    builder->block = HS_NONE;
    builder->group = 0;
    x = llama_norm(builder, "final_norm", "model.", "norm.weight", x);
    hs_builder_head(builder, x, hs_builder_head_table(builder, token_table));
}

const HsFamily hs_family_llama = { .rotary = true, .free_head_dim = true, .build = llama_build };
