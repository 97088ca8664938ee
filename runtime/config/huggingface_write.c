/* SPDX-License-Identifier: MIT
 *
 * Our model section as config.json, in spellings that the fourth and the fifth version of the library both read.  Every
 * key is written: what a missing one means differs between versions and model types.
 */
#include <string.h>

#include "runtime/config/huggingface.h"
#include "runtime/config/huggingface_reader.h"

void hs_model_write_gpt2(const HsConfig *config, int64_t mlp_width, bool biases, HsJson *root)
{
    (void)mlp_width;
    (void)biases;
    static const char *const drops[] = { "resid_pdrop", "embd_pdrop", "attn_pdrop" };
    const int64_t positions = config->model.max_positions;
    hs_json_set_string(root, "activation_function", "gelu_new");
    hs_json_set_integer(root, "n_embd", config->model.width);
    hs_json_set_integer(root, "n_layer", config->model.layers);
    hs_json_set_integer(root, "n_head", config->model.heads);
    hs_json_set_integer(root, "n_inner", config->model.mlp_width ? config->model.mlp_width : 4 * config->model.width);
    hs_json_set_integer(root, "n_positions", positions ? positions : config->training.max_length);
    hs_json_set_real(root, "layer_norm_epsilon", config->model.norm_epsilon);
    for (int i = 0; i < 3; i++)
        hs_json_set_real(root, drops[i], config->model.dropout);
    hs_json_set_bool(root, "scale_attn_weights", true);
}

static void set_rope(const HsConfig *config, HsJson *root)
{
    const char *const kind = config->model.rope_scaling;
    hs_json_set_real(root, "rope_theta", config->model.rope_theta);
    if (strcmp(kind, "none") == 0)
        return;
    HsJson *rope = hs_json_object();
    hs_json_set_string(rope, "rope_type", kind);
    hs_json_set_real(rope, "factor", config->model.rope_factor);
    if (strcmp(kind, "linear") != 0)
        hs_json_set_integer(rope, "original_max_position_embeddings", config->model.rope_original_positions);
    if (strcmp(kind, "llama3") == 0) {
        hs_json_set_real(rope, "low_freq_factor", config->model.rope_low_freq_factor);
        hs_json_set_real(rope, "high_freq_factor", config->model.rope_high_freq_factor);
    }
    if (strcmp(kind, "yarn") == 0) {
        hs_json_set_real(rope, "beta_fast", config->model.rope_beta_fast);
        hs_json_set_real(rope, "beta_slow", config->model.rope_beta_slow);
        if (config->model.rope_attention_factor > 0)
            hs_json_set_real(rope, "attention_factor", config->model.rope_attention_factor);
    }
    hs_json_set(root, "rope_scaling", rope);
}

void hs_model_write_llama(const HsConfig *config, int64_t mlp_width, bool biases, HsJson *root)
{
    const int64_t heads = config->model.heads, positions = config->model.max_positions;
    hs_json_set_string(root, "hidden_act", "silu");
    hs_json_set_integer(root, "hidden_size", config->model.width);
    hs_json_set_integer(root, "intermediate_size", mlp_width);
    hs_json_set_integer(root, "num_hidden_layers", config->model.layers);
    hs_json_set_integer(root, "num_attention_heads", heads);
    hs_json_set_integer(root, "num_key_value_heads", config->model.kv_heads ? config->model.kv_heads : heads);
    hs_json_set_integer(root, "head_dim",
                        config->model.head_dim ? config->model.head_dim : config->model.width / heads);
    hs_json_set_integer(root, "max_position_embeddings", positions ? positions : config->training.max_length);
    hs_json_set_real(root, "rms_norm_eps", config->model.norm_epsilon);
    hs_json_set_real(root, "attention_dropout", 0);
    hs_json_set_bool(root, "attention_bias", biases);
    hs_json_set_bool(root, "mlp_bias", false);
    hs_json_set_bool(root, "use_sliding_window", false);
    set_rope(config, root);
}

HsStatus hs_huggingface_config(const HsConfig *config, const HsPublishedShape *shape, HsJson **root)
{
    const HsModelType *type = hs_model_type_of(config);
    if (!type)
        return hs_fail(HS_EUNSUPPORTED, "no model type of Hugging Face has both model.qkv_bias and model.qk_norm");
    /* a Llama whose other bias is zero: HsPublishedShape */
    const bool as_llama = type->qkv_bias && !shape->qwen_tokenizer;
    if (as_llama)
        type = hs_model_type_find("llama");
    HsJson *names = hs_json_array();
    *root = hs_json_object();
    hs_json_append(names, hs_json_new_string(type->class));
    hs_json_set(*root, "architectures", names);
    hs_json_set_string(*root, "model_type", type->name);
    hs_json_set_string(*root, "torch_dtype", shape->dtype);
    hs_json_set_integer(*root, "vocab_size", shape->vocabulary);
    hs_json_set_bool(*root, "tie_word_embeddings", config->model.tie_head);
    hs_family_files(config)->write(config, shape->mlp_width, as_llama, *root);
    hs_json_set_real(*root, "initializer_range", config->model.init_std);
    hs_json_set_bool(*root, "use_cache", true);
    return HS_OK;
}
