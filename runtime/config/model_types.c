/* SPDX-License-Identifier: MIT
 *
 * The rows.
 */
#include "runtime/config/model_types.h"

#include <stdio.h>
#include <string.h>

#include "runtime/config/huggingface.h"
#include "runtime/config/huggingface_reader.h"

/* Several names are one function. */
static const char *const tanh_gelu[] = { "gelu_new",  "gelu_pytorch_tanh", "gelu_python_tanh",
                                         "gelu_fast", "gelu_accurate",     NULL };
static const char *const gemma_gelu[] = { "gelu_pytorch_tanh", "gelu_new",      "gelu_python_tanh",
                                          "gelu_fast",         "gelu_accurate", NULL };
static const char *const silu[] = { "silu", "swish", NULL };
static const char *const relu2[] = { "relu2", NULL };

static const HsFamilyFiles families[HS_FAMILY_COUNT] = {
    [HS_FAMILY_gpt2] = { .name = "gpt2",
                         .input_rows = true,
                         .biases = true,
                         .ends = true,
                         .read = hs_model_read_gpt2,
                         .write = hs_model_write_gpt2 },
    [HS_FAMILY_llama] = { .name = "llama", .read = hs_model_read_llama, .write = hs_model_write_llama },
};

/* The older names are attributes of the class, the newer ones are set over them. */
static const HsModelRow gpt2_rows[] = {
    { "width", { "hidden_size", "n_embd" }, HS_ROW_WHOLE, "768", false, NULL },
    { "layers", { "num_hidden_layers", "n_layer" }, HS_ROW_WHOLE, "12", false, NULL },
    { "heads", { "num_attention_heads", "n_head" }, HS_ROW_WHOLE, "12", false, NULL },
    { "max_positions", { "max_position_embeddings", "n_positions" }, HS_ROW_WHOLE, "1024", false, NULL },
    { "mlp_width", { "n_inner" }, HS_ROW_WHOLE, "", true, NULL },
    { "vocabulary", { "vocab_size" }, HS_ROW_WHOLE, "50257", false, NULL },
    { "norm_epsilon", { "layer_norm_epsilon" }, HS_ROW_REAL, "1e-5", false, NULL },
    { "tie_head", { "tie_word_embeddings" }, HS_ROW_YES_NO, "true", false, NULL },
    { 0 },
};

/* What all of that family say, with what each type takes for a missing key. */
#define LLAMA_ROWS(width, layers, heads, mlp_width, positions, vocabulary, epsilon, tied)             \
    {                                                                                                 \
        { "width", { "hidden_size" }, HS_ROW_WHOLE, width, false, NULL },                             \
            { "layers", { "num_hidden_layers" }, HS_ROW_WHOLE, layers, false, NULL },                 \
            { "heads", { "num_attention_heads" }, HS_ROW_WHOLE, heads, false, NULL },                 \
            { "mlp_width", { "intermediate_size" }, HS_ROW_WHOLE, mlp_width, false, NULL },           \
            { "max_positions", { "max_position_embeddings" }, HS_ROW_WHOLE, positions, false, NULL }, \
            { "vocabulary", { "vocab_size" }, HS_ROW_WHOLE, vocabulary, false, NULL },                \
            { "norm_epsilon", { "rms_norm_eps" }, HS_ROW_REAL, epsilon, false, NULL },                \
            { "tie_head", { "tie_word_embeddings" }, HS_ROW_YES_NO, tied, false, NULL }, { 0 },       \
    }

static const HsModelRow llama_rows[] = LLAMA_ROWS("4096", "32", "32", "11008", "2048", "32000", "1e-6", "false");
static const HsModelRow mistral_rows[] = LLAMA_ROWS("4096", "32", "32", "14336", "131072", "32000", "1e-6", "false");
static const HsModelRow qwen_rows[] = LLAMA_ROWS("4096", "32", "32", "22016", "32768", "151936", "1e-6", "false");
static const HsModelRow smollm3_rows[] = LLAMA_ROWS("2048", "36", "16", "11008", "32768", "128256", "1e-6", "true");
static const HsModelRow olmo_rows[] = LLAMA_ROWS("4096", "32", "32", "11008", "2048", "50304", "1e-5", "false");
static const HsModelRow exaone_rows[] = LLAMA_ROWS("4096", "32", "32", "16384", "2048", "102400", "1e-5", "false");
static const HsModelRow phi3_rows[] = LLAMA_ROWS("3072", "32", "32", "8192", "4096", "32064", "1e-5", "false");
static const HsModelRow gemma2_rows[] = LLAMA_ROWS("2304", "26", "8", "9216", "8192", "256000", "1e-6", "true");
static const HsModelRow gemma3_rows[] = LLAMA_ROWS("2304", "26", "8", "9216", "131072", "262208", "1e-6", "true");
static const HsModelRow nanochat_rows[] = LLAMA_ROWS("768", "12", "6", "8192", "2048", "50304", "1e-6", "false");

static const HsModelRow granite_own[] = {
    { "embedding_factor", { "embedding_multiplier" }, HS_ROW_REAL, "1", false, NULL },
    { "score_scale", { "attention_multiplier" }, HS_ROW_REAL, "1", false, NULL },
    { "branch_factor", { "residual_multiplier" }, HS_ROW_REAL, "1", false, NULL },
    { "logit_factor", { "logits_scaling" }, HS_ROW_INVERSE, "1", false, NULL },
    { 0 },
};
static const HsModelRow gemma2_own[] = {
    { "score_scale", { "query_pre_attn_scalar" }, HS_ROW_INVERSE_ROOT, "0.0625", false, NULL },
    { "score_cap", { "attn_logit_softcapping" }, HS_ROW_REAL, "50", true, "0" },
    { "logit_cap", { "final_logit_softcapping" }, HS_ROW_REAL, "30", true, "0" },
    { 0 },
};
static const HsModelRow gemma3_own[] = {
    { "score_scale", { "query_pre_attn_scalar" }, HS_ROW_INVERSE_ROOT, "0.0625", false, NULL },
    { "score_cap", { "attn_logit_softcapping" }, HS_ROW_REAL, "0", true, "0" },
    { "logit_cap", { "final_logit_softcapping" }, HS_ROW_REAL, "0", true, "0" },
    { 0 },
};
static const HsModelRow nanochat_own[] = {
    { "logit_cap", { "final_logit_softcapping" }, HS_ROW_REAL, "15", true, "0" },
    { 0 },
};

static const HsModelTrait qwen2_traits[] = { { "qkv_bias", "true" }, { 0 } };
static const HsModelTrait qwen3_traits[] = { { "qk_norm", "true" }, { 0 } };
static const HsModelTrait olmo_traits[] = {
    { "norms", "after" }, { "qk_norm", "true" }, { "qk_norm_span", "projection" }, { 0 }
};
static const HsModelTrait exaone_traits[] = { { "norms", "after" }, { "qk_norm", "true" }, { 0 } };
static const HsModelTrait phi3_traits[] = { { "fused_projections", "true" }, { 0 } };
static const HsModelTrait gemma2_traits[] = {
    { "norms", "around" }, { "norm_offset", "true" }, { "activation", "geglu" }, { "embedding_factor", "0" }, { 0 }
};
static const HsModelTrait gemma3_traits[] = { { "norms", "around" },     { "norm_offset", "true" },
                                              { "activation", "geglu" }, { "embedding_factor", "0" },
                                              { "qk_norm", "true" },     { 0 } };
static const HsModelTrait nanochat_traits[] = { { "norm_weights", "false" },
                                                { "embedding_norm", "true" },
                                                { "qk_norm", "true" },
                                                { "qk_norm_rotated", "true" },
                                                { "rope_reversed", "true" },
                                                { "activation", "relu2" },
                                                { 0 } };

/* A model is written as the first that describes it. */
static const HsModelType types[] = {
    { .name = "gpt2",
      .class = "GPT2LMHeadModel",
      .family = HS_FAMILY_gpt2,
      .rows = gpt2_rows,
      .activation = "activation_function",
      .activations = tanh_gelu },
    { .name = "llama",
      .class = "LlamaForCausalLM",
      .gguf = "llama",
      .family = HS_FAMILY_llama,
      .rows = llama_rows,
      .activation = "hidden_act",
      .activations = silu,
      .kv_heads = "",
      .head_dim = "",
      .null_kv_heads = true,
      .null_head_dim = true,
      .biases = true,
      .mlp_biases = true },
    { .name = "mistral",
      .class = "MistralForCausalLM",
      .family = HS_FAMILY_llama,
      .rows = mistral_rows,
      .activation = "hidden_act",
      .activations = silu,
      .kv_heads = "8",
      .head_dim = "",
      .null_head_dim = true,
      .layers = { .kinds = HS_LAYERS_WINDOW, .window = 4096 } },
    { .name = "ministral",
      .class = "MinistralForCausalLM",
      .family = HS_FAMILY_llama,
      .rows = mistral_rows,
      .activation = "hidden_act",
      .activations = silu,
      .kv_heads = "8",
      .head_dim = "",
      .null_head_dim = true,
      .layers = { .kinds = HS_LAYERS_WINDOWS, .window = 4096 } },
    { .name = "qwen2",
      .class = "Qwen2ForCausalLM",
      .gguf = "qwen2",
      .family = HS_FAMILY_llama,
      .rows = qwen_rows,
      .traits = qwen2_traits,
      .activation = "hidden_act",
      .activations = silu,
      .kv_heads = "32",
      .head_dim = "",
      .null_kv_heads = true,
      .layers = { .kinds = HS_LAYERS_WINDOWS | HS_LAYERS_FLAG, .missing = HS_LAYERS_FROM, .window = 4096 } },
    { .name = "qwen3",
      .class = "Qwen3ForCausalLM",
      .gguf = "qwen3",
      .family = HS_FAMILY_llama,
      .rows = qwen_rows,
      .traits = qwen3_traits,
      .activation = "hidden_act",
      .activations = silu,
      .kv_heads = "32",
      .head_dim = "128",
      .null_kv_heads = true,
      .biases = true,
      .layers = { .kinds = HS_LAYERS_WINDOWS | HS_LAYERS_FLAG, .missing = HS_LAYERS_FROM, .window = 4096 } },
    { .name = "smollm3",
      .class = "SmolLM3ForCausalLM",
      .gguf = "smollm3",
      .family = HS_FAMILY_llama,
      .rows = smollm3_rows,
      .activation = "hidden_act",
      .activations = silu,
      .kv_heads = "4",
      .head_dim = "",
      .null_kv_heads = true,
      .biases = true,
      .mlp_biases = true,
      .theta = "2000000",
      .layers = { .kinds = HS_LAYERS_WINDOWS | HS_LAYERS_FLAG | HS_LAYERS_NOPE, .missing = HS_LAYERS_NOPES } },
    { .name = "olmo2",
      .class = "Olmo2ForCausalLM",
      .gguf = "olmo2",
      .family = HS_FAMILY_llama,
      .rows = olmo_rows,
      .traits = olmo_traits,
      .activation = "hidden_act",
      .activations = silu,
      .kv_heads = "",
      .head_dim = "",
      .null_kv_heads = true,
      .biases = true },
    { .name = "olmo3",
      .class = "Olmo3ForCausalLM",
      .gguf = "olmo2",
      .family = HS_FAMILY_llama,
      .rows = olmo_rows,
      .traits = olmo_traits,
      .activation = "hidden_act",
      .activations = silu,
      .kv_heads = "",
      .head_dim = "",
      .null_kv_heads = true,
      .biases = true,
      .theta = "500000",
      .layers = { .kinds = HS_LAYERS_WINDOWS | HS_LAYERS_POSITIONS,
                  .missing = HS_LAYERS_PERIOD,
                  .period = 4,
                  .window = 4096,
                  .local_theta = 500000 } },
    { .name = "exaone4",
      .class = "Exaone4ForCausalLM",
      .gguf = "exaone4",
      .family = HS_FAMILY_llama,
      .rows = exaone_rows,
      .traits = exaone_traits,
      .activation = "hidden_act",
      .activations = silu,
      .kv_heads = "32",
      .head_dim = "",
      .layers = { .kinds = HS_LAYERS_WINDOWS | HS_LAYERS_FULL_NOPE,
                  .missing = HS_LAYERS_PERIOD,
                  .period = 4,
                  .window = 4096 } },
    { .name = "phi3",
      .class = "Phi3ForCausalLM",
      .gguf = "phi3",
      .family = HS_FAMILY_llama,
      .rows = phi3_rows,
      .traits = phi3_traits,
      .activation = "hidden_act",
      .activations = silu,
      .kv_heads = "",
      .head_dim = "",
      .null_kv_heads = true,
      .rotates_share = true,
      .longrope_alone = true,
      .layers = { .kinds = HS_LAYERS_WINDOW } },
    { .name = "granite",
      .class = "GraniteForCausalLM",
      .gguf = "granite",
      .family = HS_FAMILY_llama,
      .rows = llama_rows,
      .own_rows = granite_own,
      .activation = "hidden_act",
      .activations = silu,
      .kv_heads = "",
      .head_dim = "",
      .null_kv_heads = true,
      .biases = true,
      .mlp_biases = true },
    { .name = "gemma2",
      .class = "Gemma2ForCausalLM",
      .gguf = "gemma2",
      .family = HS_FAMILY_llama,
      .rows = gemma2_rows,
      .own_rows = gemma2_own,
      .traits = gemma2_traits,
      .activation = "hidden_activation",
      .activations = gemma_gelu,
      .kv_heads = "4",
      .head_dim = "256",
      .biases = true,
      .layers = { .kinds = HS_LAYERS_WINDOWS, .missing = HS_LAYERS_PERIOD, .period = 2, .window = 4096 } },
    { .name = "gemma3_text",
      .class = "Gemma3ForCausalLM",
      .gguf = "gemma3",
      .family = HS_FAMILY_llama,
      .rows = gemma3_rows,
      .own_rows = gemma3_own,
      .traits = gemma3_traits,
      .activation = "hidden_activation",
      .activations = gemma_gelu,
      .kv_heads = "4",
      .head_dim = "256",
      .biases = true,
      .theta = "1000000",
      .layers = { .kinds = HS_LAYERS_WINDOWS | HS_LAYERS_POSITIONS,
                  .missing = HS_LAYERS_PERIOD,
                  .period = 6,
                  .period_key = "sliding_window_pattern",
                  .window = 4096,
                  .local_theta = 10000,
                  .local_key = true } },
    { .name = "nanochat",
      .class = "NanoChatForCausalLM",
      .family = HS_FAMILY_llama,
      .rows = nanochat_rows,
      .own_rows = nanochat_own,
      .traits = nanochat_traits,
      .activation = "hidden_act",
      .activations = relu2,
      .kv_heads = "",
      .head_dim = "",
      .null_kv_heads = true,
      .biases = true },
};

enum { TYPES = sizeof types / sizeof *types };

const HsFamilyFiles *hs_family_files_of(HsFamilyKind kind)
{
    return &families[kind];
}

const HsFamilyFiles *hs_family_files(const HsConfig *config)
{
    int kind = 0;
    while (kind < HS_FAMILY_COUNT - 1 && strcmp(families[kind].name, config->model.family) != 0)
        kind++;
    return &families[kind];
}

bool hs_family_is_in(const HsConfig *config, unsigned set)
{
    return set >> (hs_family_files(config) - families) & 1u;
}

const char *hs_family_names(unsigned set, char *text, size_t size)
{
    size_t used = 0;
    text[0] = '\0';
    for (int kind = 0; kind < HS_FAMILY_COUNT; kind++)
        if (set >> kind & 1u && used < size)
            used += (size_t)snprintf(text + used, size - used, "%s%s", used > 0 ? " or " : "", families[kind].name);
    return text;
}

const HsModelType *hs_model_type_find(const char *name)
{
    for (int i = 0; i < TYPES; i++)
        if (strcmp(types[i].name, name) == 0)
            return &types[i];
    return NULL;
}

int hs_model_type_count(void)
{
    return TYPES;
}

const HsModelType *hs_model_type_at(int index)
{
    return &types[index];
}

const char *hs_model_type_names(char *text, size_t size)
{
    size_t used = 0;
    for (int i = 0; i < TYPES && used < size; i++)
        used += (size_t)snprintf(text + used, size - used, "%s%s", i > 0 ? ", " : "", types[i].name);
    return text;
}
