/* SPDX-License-Identifier: MIT
 *
 * The rows.
 */
#include "runtime/config/model_types.h"

#include <stdio.h>
#include <string.h>

#include "runtime/config/huggingface_reader.h"
#include "runtime/config/huggingface.h"

/* Several names are one function. */
static const char *const tanh_gelu[] = { "gelu_new",  "gelu_pytorch_tanh", "gelu_python_tanh",
                                         "gelu_fast", "gelu_accurate",     NULL };
static const char *const silu[] = { "silu", "swish", NULL };

static const HsFamilyFiles families[HS_FAMILY_COUNT] = {
    [HS_FAMILY_gpt2] = { .name = "gpt2",
                         .input_rows = true,
                         .biases = true,
                         .ends = true,
                         .activation = "activation_function",
                         .activations = tanh_gelu,
                         .read = hs_model_read_gpt2,
                         .write = hs_model_write_gpt2 },
    [HS_FAMILY_llama] = { .name = "llama",
                          .activation = "hidden_act",
                          .activations = silu,
                          .read = hs_model_read_llama,
                          .write = hs_model_write_llama },
};

/* The older names are attributes of the class, the newer ones are set over them. */
static const HsModelRow gpt2_rows[] = {
    { "width", { "hidden_size", "n_embd" }, HS_ROW_WHOLE, "768", false },
    { "layers", { "num_hidden_layers", "n_layer" }, HS_ROW_WHOLE, "12", false },
    { "heads", { "num_attention_heads", "n_head" }, HS_ROW_WHOLE, "12", false },
    { "max_positions", { "max_position_embeddings", "n_positions" }, HS_ROW_WHOLE, "1024", false },
    { "mlp_width", { "n_inner" }, HS_ROW_WHOLE, "", true },
    { "vocabulary", { "vocab_size" }, HS_ROW_WHOLE, "50257", false },
    { "norm_epsilon", { "layer_norm_epsilon" }, HS_ROW_REAL, "1e-5", false },
    { "tie_head", { "tie_word_embeddings" }, HS_ROW_YES_NO, "true", false },
    { 0 },
};

#define LLAMA_ROWS(mlp_width_missing, positions_missing, vocabulary_missing)                            \
    {                                                                                                   \
        { "width", { "hidden_size" }, HS_ROW_WHOLE, "4096", false },                                    \
            { "layers", { "num_hidden_layers" }, HS_ROW_WHOLE, "32", false },                           \
            { "heads", { "num_attention_heads" }, HS_ROW_WHOLE, "32", false },                          \
            { "mlp_width", { "intermediate_size" }, HS_ROW_WHOLE, mlp_width_missing, false },           \
            { "max_positions", { "max_position_embeddings" }, HS_ROW_WHOLE, positions_missing, false }, \
            { "vocabulary", { "vocab_size" }, HS_ROW_WHOLE, vocabulary_missing, false },                \
            { "norm_epsilon", { "rms_norm_eps" }, HS_ROW_REAL, "1e-6", false },                         \
            { "tie_head", { "tie_word_embeddings" }, HS_ROW_YES_NO, "false", false }, { 0 },            \
    }

static const HsModelRow llama_rows[] = LLAMA_ROWS("11008", "2048", "32000");
static const HsModelRow mistral_rows[] = LLAMA_ROWS("14336", "131072", "32000");
static const HsModelRow qwen_rows[] = LLAMA_ROWS("22016", "32768", "151936");

static const HsModelType types[] = {
    { .name = "gpt2", .class = "GPT2LMHeadModel", .family = HS_FAMILY_gpt2, .rows = gpt2_rows },
    { .name = "llama",
      .class = "LlamaForCausalLM",
      .gguf = "llama",
      .family = HS_FAMILY_llama,
      .rows = llama_rows,
      .kv_heads = "",
      .head_dim = "",
      .null_kv_heads = true,
      .null_head_dim = true,
      .biases = true,
      .mlp_biases = true },
    { .name = "mistral",
      .family = HS_FAMILY_llama,
      .rows = mistral_rows,
      .kv_heads = "8",
      .head_dim = "",
      .null_head_dim = true,
      .window = true },
    { .name = "qwen2",
      .class = "Qwen2ForCausalLM",
      .gguf = "qwen2",
      .family = HS_FAMILY_llama,
      .rows = qwen_rows,
      .kv_heads = "32",
      .head_dim = "",
      .null_kv_heads = true,
      .qkv_bias = true,
      .window = true,
      .window_by_layer = true },
    { .name = "qwen3",
      .class = "Qwen3ForCausalLM",
      .gguf = "qwen3",
      .family = HS_FAMILY_llama,
      .rows = qwen_rows,
      .kv_heads = "32",
      .head_dim = "128",
      .null_kv_heads = true,
      .qk_norm = true,
      .biases = true,
      .window = true,
      .window_by_layer = true },
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

const char *hs_model_type_names(char *text, size_t size)
{
    size_t used = 0;
    for (int i = 0; i < TYPES && used < size; i++)
        used += (size_t)snprintf(text + used, size - used, "%s%s", i > 0 ? ", " : "", types[i].name);
    return text;
}

const HsModelType *hs_model_type_of(const HsConfig *config)
{
    const HsFamilyFiles *family = hs_family_files(config);
    for (int i = 0; i < TYPES; i++)
        if (types[i].class && &families[types[i].family] == family && types[i].qkv_bias == config->model.qkv_bias &&
            types[i].qk_norm == config->model.qk_norm)
            return &types[i];
    return NULL;
}
