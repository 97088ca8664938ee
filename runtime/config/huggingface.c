/* SPDX-License-Identifier: MIT
 *
 * config.json of a Hugging Face folder, and the keys of our model section.  What a file does not say means what the
 * library that writes such files takes for it, which differs between model types.  What cannot be trained here as it is
 * there is refused with file, key and value: a model that is nearly the same would be wrong without a word.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/base/log.h"
#include "runtime/config/huggingface_reader.h"
#include "runtime/config/table.h"
#include "runtime/io/json.h"

enum { CONFIG_JSON_BYTES = 1 << 24 };

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

typedef struct HsModelType {
    const char *name; /* model_type */
    const char *family;
    const HsModelRow *rows;
    const char *kv_heads, *head_dim;   /* where the file does not say; "": all heads; width / heads */
    bool null_kv_heads, null_head_dim; /* may be null, which says the same as "" */
    bool qkv_bias, qk_norm;
    bool biases;          /* reads attention_bias */
    bool mlp_biases;      /* reads mlp_bias */
    bool window;          /* reads sliding_window, 4096 where the file does not say */
    bool window_by_layer; /* only where use_sliding_window says so, in the layers of layer_types or max_window_layers */
} HsModelType;

static const HsModelType types[] = {
    { .name = "gpt2", .family = "gpt2", .rows = gpt2_rows },
    { .name = "llama",
      .family = "llama",
      .rows = llama_rows,
      .kv_heads = "",
      .head_dim = "",
      .null_kv_heads = true,
      .null_head_dim = true,
      .biases = true,
      .mlp_biases = true },
    { .name = "mistral",
      .family = "llama",
      .rows = mistral_rows,
      .kv_heads = "8",
      .head_dim = "",
      .null_head_dim = true,
      .window = true },
    { .name = "qwen2",
      .family = "llama",
      .rows = qwen_rows,
      .kv_heads = "32",
      .head_dim = "",
      .null_kv_heads = true,
      .qkv_bias = true,
      .window = true,
      .window_by_layer = true },
    { .name = "qwen3",
      .family = "llama",
      .rows = qwen_rows,
      .kv_heads = "32",
      .head_dim = "128",
      .null_kv_heads = true,
      .qk_norm = true,
      .biases = true,
      .window = true,
      .window_by_layer = true },
};

/* Matrices in four bits are read as bitsandbytes writes them for QLoRA. */
static HsStatus check_quantization(const HsModelReader *reader)
{
    const HsJson *config = hs_model_member(reader->root, "quantization_config");
    if (!config)
        return HS_OK;
    const char *const method = hs_json_string(hs_json_get(config, "quant_method"));
    const char *const type = hs_json_string(hs_json_get(config, "bnb_4bit_quant_type"));
    const HsJson *four = hs_json_get(config, "load_in_4bit"), *twice = hs_json_get(config, "bnb_4bit_use_double_quant");
    const bool known = method && strcmp(method, "bitsandbytes") == 0 && type && strcmp(type, "nf4") == 0;
    if (known && hs_json_is_true(four) && hs_json_is_true(twice))
        return HS_OK;
    return hs_model_unsupported(
        reader, "quantization_config", config,
        "weights in f32, bf16 or f16, or bitsandbytes' with load_in_4bit, bnb_4bit_quant_type nf4 and "
        "bnb_4bit_use_double_quant");
}

/* Keys that only one value of is served; absent is that value.  A type does not look at the others' keys. */
static HsStatus check_fixed(const HsModelReader *reader)
{
    static const struct {
        const char *key, *value;
        bool gpt2, llama; /* which families look at it */
        const char *supported;
    } rows[] = {
        { "scale_attn_weights", "true", true, false, "scores divided by the root of the head's size" },
        { "scale_attn_by_inverse_layer_idx", "false", true, false, "false" },
        { "add_cross_attention", "false", true, false, "decoders alone" },
        { "attn_logit_softcapping", "null", true, true, "none" },
        { "final_logit_softcapping", "null", true, true, "none" },
        { "num_experts", "null", true, true, "a dense model" },
        { "num_local_experts", "null", true, true, "a dense model" },
        { "per_layer_config", "null", true, true, "one shape for all layers" },
    };
    char text[HS_MODEL_TEXT_BYTES];
    const bool gpt2 = strcmp(reader->type->family, "gpt2") == 0;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const HsJson *value = hs_json_get(reader->root, rows[i].key);
        if (value && (gpt2 ? rows[i].gpt2 : rows[i].llama) &&
            strcmp(hs_model_show(value, text, sizeof text), rows[i].value) != 0)
            return hs_model_unsupported(reader, rows[i].key, value, rows[i].supported);
    }
    const HsJson *weights = hs_model_member(reader->root, "transformers_weights");
    const char *const file = hs_json_string(weights);
    if (weights && !(file && strcmp(file, "model.safetensors") == 0))
        return hs_model_unsupported(reader, "transformers_weights", weights,
                                    "model.safetensors, or its index without the key");
    const HsJson *mlp = hs_json_get(reader->root, "mlp_bias"), *biases = hs_json_get(reader->root, "attention_bias");
    if (mlp && reader->type->mlp_biases && strcmp(hs_model_show(mlp, text, sizeof text), "false") != 0)
        return hs_model_unsupported(reader, "mlp_bias", mlp, "an MLP without biases");
    if (biases && reader->type->biases && !hs_json_is_bool(biases))
        return hs_fail(HS_EFORMAT, "%s: attention_bias must be true or false", reader->path);
    if (biases && reader->type->biases && hs_json_is_true(biases) && reader->type->qk_norm)
        return hs_model_unsupported(reader, "attention_bias", biases,
                                    "false, or model_type llama with biases of q, k, v alone");
    const HsJson *map = hs_json_get(reader->root, "auto_map");
    if (map && hs_json_is_null(map))
        return hs_model_refuse_null(reader, "auto_map");
    if (map)
        hs_warn("%s: auto_map names code of the folder's own, which is not run: the model is read as %s", reader->path,
                reader->type->name);
    return HS_OK;
}

/* Keys that change nothing here, and that the library refuses where they are of another kind: it would not open the folder
 * at all.  Of numbers a fraction may be whole. */
static HsStatus check_unread(const HsModelReader *reader)
{
    static const struct {
        const char *key;
        HsRowKind kind;
        bool may_be_null;
        bool gpt2, llama;
    } rows[] = {
        { "use_cache", HS_ROW_YES_NO, false, true, true },
        { "initializer_range", HS_ROW_REAL, false, true, true },
        { "attention_dropout", HS_ROW_REAL, false, false, true },
        { "pretraining_tp", HS_ROW_WHOLE, true, false, true },
        { "summary_type", HS_ROW_TEXT, false, true, false },
        { "bos_token_id", HS_ROW_WHOLE, true, true, true },
        { "pad_token_id", HS_ROW_WHOLE, true, true, true },
        { "resid_pdrop", HS_ROW_REAL, false, true, false },
        { "embd_pdrop", HS_ROW_REAL, false, true, false },
        { "attn_pdrop", HS_ROW_REAL, false, true, false },
        { "summary_first_dropout", HS_ROW_REAL, false, true, false },
        { "summary_use_proj", HS_ROW_YES_NO, false, true, false },
        { "summary_proj_to_labels", HS_ROW_YES_NO, false, true, false },
        { "reorder_and_upcast_attn", HS_ROW_YES_NO, false, true, false },
    };
    const bool gpt2 = strcmp(reader->type->family, "gpt2") == 0;
    char text[HS_MODEL_TEXT_BYTES];
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const HsJson *value = hs_json_get(reader->root, rows[i].key);
        if (!value || !(gpt2 ? rows[i].gpt2 : rows[i].llama))
            continue;
        const bool llamas = strcmp(rows[i].key, "attention_dropout") == 0 && strcmp(reader->type->name, "llama") == 0;
        if (hs_json_is_null(value) && !rows[i].may_be_null && !llamas)
            return hs_model_refuse_null(reader, rows[i].key);
        if (!hs_json_is_null(value) && !(rows[i].kind == HS_ROW_REAL && hs_json_is_number(value)))
            HS_TRY(hs_model_value_text(reader, rows[i].key, value, rows[i].kind, text));
    }
    return HS_OK;
}

/* Several names are one function. */
static HsStatus check_activation(const HsModelReader *reader)
{
    static const char *const tanh_gelu[] = { "gelu_new",  "gelu_pytorch_tanh", "gelu_python_tanh",
                                             "gelu_fast", "gelu_accurate",     NULL };
    static const char *const silu[] = { "silu", "swish", NULL };
    const bool gpt2 = strcmp(reader->type->family, "gpt2") == 0;
    const char *const key = gpt2 ? "activation_function" : "hidden_act";
    const HsJson *activation = hs_json_get(reader->root, key);
    const char *const name = hs_json_string(activation);
    for (const char *const *known = gpt2 ? tanh_gelu : silu; name && *known; known++)
        if (strcmp(name, *known) == 0)
            return HS_OK;
    return activation ? hs_model_unsupported(reader, key, activation, gpt2 ? "gelu_new" : "silu") : HS_OK;
}

/* Whether some layer has the window, where layers may differ. */
static HsStatus find_windowed_layer(const HsModelReader *reader, bool *windowed)
{
    const HsJson *layers = hs_model_member(reader->root, "layer_types"),
                 *from = hs_json_get(reader->root, "max_window_layers");
    const HsJson *all = hs_json_get(reader->root, "num_hidden_layers");
    *windowed = false;
    if (layers && (!hs_json_is_array(layers) || (all && hs_json_count(layers) != hs_json_number(all))))
        return hs_fail(HS_EFORMAT, "%s: layer_types must be a list with a kind for each of num_hidden_layers",
                       reader->path);
    for (const HsJson *layer = hs_json_first(layers); layer; layer = hs_json_next(layer)) {
        const char *kind = hs_json_string(layer);
        if (!kind || (strcmp(kind, "full_attention") != 0 && strcmp(kind, "sliding_attention") != 0))
            return hs_model_unsupported(reader, "layer_types", layer, "full_attention, sliding_attention");
        *windowed = *windowed || strcmp(kind, "sliding_attention") == 0;
    }
    if (from && (!hs_json_is_number(from) || floor(hs_json_number(from)) != hs_json_number(from)))
        return hs_fail(HS_EFORMAT, "%s: max_window_layers must be a whole number", reader->path);
    if (!layers)
        *windowed = hs_json_number(all) > (from ? hs_json_number(from) : 28.0);
    return HS_OK;
}

/* A window of attention that is as long as the sequences is none. */
static HsStatus check_window(const HsModelReader *reader, int64_t max_length)
{
    const HsJson *window = hs_json_get(reader->root, "sliding_window");
    const HsJson *asked = hs_json_get(reader->root, "use_sliding_window");
    const HsJson *layers = hs_model_member(reader->root, "layer_types");
    bool windowed = reader->type->window, sliding = false;
    if (layers && !reader->type->window_by_layer) {
        HS_TRY(find_windowed_layer(reader, &sliding));
        if (sliding || windowed) /* Mistral's windows are those of all layers */
            return hs_model_unsupported(reader, "layer_types", layers, "layers of one kind: leave the key out");
    }
    const double said = hs_json_number(window);
    if (!reader->type->window && said < (double)max_length)
        return hs_model_unsupported(reader, "sliding_window", window, "none for this model_type: leave the key out");
    if (!reader->type->window)
        return HS_OK;
    if (reader->type->window_by_layer) {
        if (asked && !hs_json_is_bool(asked))
            return hs_fail(HS_EFORMAT, "%s: use_sliding_window must be true or false", reader->path);
        HS_TRY(find_windowed_layer(reader, &windowed));
        const bool on = asked && hs_json_is_true(asked) && !(window && hs_json_is_null(window));
        if (windowed && layers && !on)
            return hs_model_unsupported(reader, "layer_types", layers, "full_attention where no window is asked for");
        windowed = windowed && on;
    }
    if (!windowed || (window && hs_json_is_null(window)))
        return HS_OK;
    const double width = window ? hs_json_number(window) : 4096.0;
    if (!(width >= 1 && floor(width) == width))
        return hs_model_unsupported(reader, "sliding_window", window, "a whole number of tokens from 1 on, or null");
    if (width >= (double)max_length) {
        const double positions = hs_json_number(hs_model_member(reader->root, "max_position_embeddings"));
        if (positions > width)
            hs_warn("%s: attention sees the last %.0f tokens; here it sees all, which is the same up to that length",
                    reader->path, width);
        return HS_OK;
    }
    return hs_fail(HS_EUNSUPPORTED,
                   "%s: sliding_window is %.0f, less than max_length (%lld), and attention within a window is not "
                   "supported: lower max_length",
                   reader->path, width, (long long)max_length);
}

static HsStatus add_llama(const HsModelReader *reader)
{
    const HsModelType *type = reader->type;
    const HsModelRow head_dim = { "head_dim", { "head_dim" }, HS_ROW_WHOLE, type->head_dim, type->null_head_dim };
    const HsJson *kv_heads = hs_json_get(reader->root, "num_key_value_heads");
    const HsJson *all = hs_json_get(reader->root, "num_attention_heads");
    char heads[HS_MODEL_TEXT_BYTES] = "32"; /* the missing one's */
    if (all)
        HS_TRY(hs_model_value_text(reader, "num_attention_heads", all, HS_ROW_WHOLE, heads));
    /* null, and absent in a Llama's file: as many as query heads */
    const bool as_many = kv_heads ? hs_json_is_null(kv_heads) : type->kv_heads[0] == '\0';
    const HsModelRow groups = {
        "kv_heads", { "num_key_value_heads" }, HS_ROW_WHOLE, as_many ? heads : type->kv_heads, type->null_kv_heads
    };
    HS_TRY(hs_model_add_member(reader, reader->root, &groups));
    HS_TRY(hs_model_add_member(reader, reader->root, &head_dim));
    const HsJson *asked = hs_json_get(reader->root, "attention_bias"); /* o_proj's must be zero: pretrained.c */
    const bool biases = type->qkv_bias || (type->biases && asked && hs_json_is_true(asked));
    HS_TRY(
        hs_model_add(reader, "qkv_bias", biases ? "true" : "false", type->qkv_bias ? "model_type" : "attention_bias"));
    HS_TRY(hs_model_add(reader, "qk_norm", type->qk_norm ? "true" : "false", "model_type"));
    return hs_model_add_positions(reader);
}

static HsStatus find_type(HsModelReader *reader)
{
    const HsJson *value = hs_model_member(reader->root, "model_type");
    const char *const name = hs_json_string(value);
    if (!name)
        return hs_fail(HS_EFORMAT, "%s: model_type is missing", reader->path);
    for (size_t i = 0; i < sizeof types / sizeof types[0] && !reader->type; i++)
        if (strcmp(types[i].name, name) == 0)
            reader->type = &types[i];
    return reader->type ? HS_OK
                        : hs_model_unsupported(reader, "model_type", value, "gpt2, llama, mistral, qwen2, qwen3");
}

static HsStatus read_model(HsModelReader *reader, int64_t max_length)
{
    if (!hs_json_is_object(reader->root))
        return hs_fail(HS_EFORMAT, "%s: not a JSON object", reader->path);
    HS_TRY(find_type(reader));
    HS_TRY(check_fixed(reader));
    HS_TRY(check_unread(reader));
    HS_TRY(check_activation(reader));
    HS_TRY(check_quantization(reader));
    HS_TRY(check_window(reader, max_length));
    HS_TRY(hs_model_add(reader, "family", reader->type->family, "model_type"));
    for (const HsModelRow *row = reader->type->rows; row->key; row++)
        HS_TRY(hs_model_add_member(reader, reader->root, row));
    if (strcmp(reader->type->family, "gpt2") == 0) {
        for (int i = 0; i < 2; i++)
            if (hs_json_count(hs_json_get(reader->root, hs_model_rope_sections[i])) > 0)
                return hs_model_unsupported(reader, hs_model_rope_sections[i],
                                            hs_json_get(reader->root, hs_model_rope_sections[i]),
                                            "none: GPT-2 has learned positions");
        return hs_model_add(reader, "bias", "true", "model_type");
    }
    return add_llama(reader);
}

HsStatus hs_huggingface_read(const char *path, int64_t max_length, bool is_set, HsAdoption *adoption)
{
    HsJson *root = NULL;
    HS_TRY(hs_json_read_python(path, CONFIG_JSON_BYTES, &root));
    HsModelReader reader = { .path = path, .root = root, .adoption = adoption };
    const double positions = hs_json_number(hs_json_get(root, "max_position_embeddings"));
    if (!is_set && positions >= 1 && positions < (double)max_length)
        max_length = (int64_t)positions;
    const HsStatus status = read_model(&reader, max_length);
    hs_json_destroy(root);
    return status;
}
