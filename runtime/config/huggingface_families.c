/* SPDX-License-Identifier: MIT
 *
 * A family's own part of config.json, read and written.
 */
#include <math.h>
#include <string.h>

#include "runtime/config/huggingface.h"
#include "runtime/config/huggingface_reader.h"
#include "runtime/config/table.h"

HsStatus hs_model_read_llama(const HsModelReader *reader)
{
    const HsModelType *type = reader->type;
    const HsModelRow head_dim = { "head_dim", { "head_dim" }, HS_ROW_WHOLE, type->head_dim, type->null_head_dim, NULL };
    const HsJson *kv_heads = hs_json_get(reader->root, "num_key_value_heads");
    const HsJson *all = hs_json_get(reader->root, "num_attention_heads");
    char heads[HS_MODEL_TEXT_BYTES] = "32"; /* the missing one's */
    if (all)
        HS_TRY(hs_model_value_text(reader, "num_attention_heads", all, HS_ROW_WHOLE, heads));
    /* null, and absent in a Llama's file: as many as query heads */
    const bool as_many = kv_heads ? hs_json_is_null(kv_heads) : type->kv_heads[0] == '\0';
    const HsModelRow groups = { "kv_heads",          { "num_key_value_heads" },
                                HS_ROW_WHOLE,        as_many ? heads : type->kv_heads,
                                type->null_kv_heads, NULL };
    HS_TRY(hs_model_add_member(reader, reader->root, &groups));
    HS_TRY(hs_model_add_member(reader, reader->root, &head_dim));
    const HsJson *asked = hs_json_get(reader->root, "attention_bias"); /* o_proj's must be zero: pretrained.c */
    const bool always = hs_model_trait(type, "qkv_bias") != NULL;
    const bool biases = always || (type->biases && asked && hs_json_is_true(asked));
    HS_TRY(hs_model_add(reader, "qkv_bias", biases ? "true" : "false", always ? "model_type" : "attention_bias"));
    return hs_model_add_positions(reader);
}

HsStatus hs_model_read_gpt2(const HsModelReader *reader)
{
    for (int i = 0; i < 2; i++)
        if (hs_json_count(hs_json_get(reader->root, hs_model_rope_sections[i])) > 0)
            return hs_model_unsupported(reader, hs_model_rope_sections[i],
                                        hs_json_get(reader->root, hs_model_rope_sections[i]),
                                        "none: GPT-2 has learned positions");
    return hs_model_add(reader, "bias", "true", "model_type");
}

void hs_model_write_gpt2(const HsConfig *config, const HsModelType *type, int64_t mlp_width, bool biases, HsJson *root)
{
    (void)type;
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

/* The file's number for one of ours; what ours leaves open is settled. */
static double number_of(const HsConfig *config, const HsModelRow *row)
{
    const HsConfigKey *key = hs_config_key_find("model", row->key);
    const int64_t width = config->model.width, heads = config->model.heads;
    double value = *(const double *)((const char *)config + key->offset);
    if (value == 0 && strcmp(row->key, "score_scale") == 0)
        value = 1.0 / sqrt((double)(config->model.head_dim ? config->model.head_dim : width / heads));
    if (value == 0 && strcmp(row->key, "embedding_factor") == 0)
        value = sqrt((double)width);
    return row->kind == HS_ROW_INVERSE ? 1.0 / value : row->kind == HS_ROW_INVERSE_ROOT ? 1.0 / (value * value) : value;
}

static void write_own_rows(const HsConfig *config, const HsModelType *type, HsJson *root)
{
    for (const HsModelRow *row = type->own_rows; row && row->key; row++) {
        const double number = number_of(config, row), whole = nearbyint(number);
        if (number == 0 && row->null_means)
            hs_json_set(root, row->names[0], hs_json_new_null());
        else if (row->kind == HS_ROW_REAL)
            hs_json_set(root, row->names[0], hs_json_new_float(number));
        else if (fabs(number - whole) <= 1e-12 * fabs(number)) /* 1 / (1 / 10) */
            hs_json_set_integer(root, row->names[0], (int64_t)whole);
        else
            hs_json_set_real(root, row->names[0], number);
    }
}

void hs_model_write_llama(const HsConfig *config, const HsModelType *type, int64_t mlp_width, bool biases, HsJson *root)
{
    const int64_t heads = config->model.heads, positions = config->model.max_positions;
    hs_json_set_string(root, type->activation, type->activations[0]);
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
    write_own_rows(config, type, root);
    hs_model_write_positions(config, type, root);
}
