/* SPDX-License-Identifier: MIT
 *
 * config.json of a Hugging Face folder, and the keys of our model section.  What a file does not say means what the
 * library that writes such files takes for it, which differs between model types.  What cannot be trained here as it is
 * there is refused with file, key and value: a model that is nearly the same would be silently wrong.
 */
#include <math.h>
#include <string.h>

#include "kernels/base/log.h"
#include "runtime/config/huggingface_reader.h"
#include "runtime/config/table.h"
#include "runtime/io/json.h"

enum { CONFIG_JSON_BYTES = 1 << 24 };

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

enum { GPT2 = HS_FAMILY_BIT(gpt2), LLAMA = HS_FAMILY_BIT(llama), ALL = HS_FAMILY_ALL };

static bool looks_at(const HsModelReader *reader, unsigned families)
{
    return families >> reader->type->family & 1u;
}

/* Keys that only one value of is served; absent is that value.  A type does not look at the others' keys. */
static HsStatus check_fixed(const HsModelReader *reader)
{
    static const struct {
        const char *key, *value;
        unsigned families; /* that look at it */
        const char *supported;
    } rows[] = {
        { "scale_attn_weights", "true", GPT2, "scores divided by the root of the head's size" },
        { "scale_attn_by_inverse_layer_idx", "false", GPT2, "false" },
        { "add_cross_attention", "false", GPT2, "decoders alone" },
        { "attn_logit_softcapping", "null", ALL, "none" },
        { "final_logit_softcapping", "null", ALL, "none" },
        { "num_experts", "null", ALL, "a dense model" },
        { "num_local_experts", "null", ALL, "a dense model" },
        { "per_layer_config", "null", ALL, "one shape for all layers" },
    };
    char text[HS_MODEL_TEXT_BYTES];
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const HsJson *value = hs_json_get(reader->root, rows[i].key);
        if (value && looks_at(reader, rows[i].families) &&
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
        unsigned families;
    } rows[] = {
        { "use_cache", HS_ROW_YES_NO, false, ALL },
        { "initializer_range", HS_ROW_REAL, false, ALL },
        { "attention_dropout", HS_ROW_REAL, false, LLAMA },
        { "pretraining_tp", HS_ROW_WHOLE, true, LLAMA },
        { "summary_type", HS_ROW_TEXT, false, GPT2 },
        { "bos_token_id", HS_ROW_WHOLE, true, ALL },
        { "pad_token_id", HS_ROW_WHOLE, true, ALL },
        { "resid_pdrop", HS_ROW_REAL, false, GPT2 },
        { "embd_pdrop", HS_ROW_REAL, false, GPT2 },
        { "attn_pdrop", HS_ROW_REAL, false, GPT2 },
        { "summary_first_dropout", HS_ROW_REAL, false, GPT2 },
        { "summary_use_proj", HS_ROW_YES_NO, false, GPT2 },
        { "summary_proj_to_labels", HS_ROW_YES_NO, false, GPT2 },
        { "reorder_and_upcast_attn", HS_ROW_YES_NO, false, GPT2 },
    };
    char text[HS_MODEL_TEXT_BYTES];
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const HsJson *value = hs_json_get(reader->root, rows[i].key);
        if (!value || !looks_at(reader, rows[i].families))
            continue;
        const bool llamas = strcmp(rows[i].key, "attention_dropout") == 0 && strcmp(reader->type->name, "llama") == 0;
        if (hs_json_is_null(value) && !rows[i].may_be_null && !llamas)
            return hs_model_refuse_null(reader, rows[i].key);
        if (!hs_json_is_null(value) && !(rows[i].kind == HS_ROW_REAL && hs_json_is_number(value)))
            HS_TRY(hs_model_value_text(reader, rows[i].key, value, rows[i].kind, text));
    }
    return HS_OK;
}

static HsStatus check_activation(const HsModelReader *reader)
{
    const HsFamilyFiles *const family = hs_family_files_of(reader->type->family);
    const HsJson *activation = hs_json_get(reader->root, family->activation);
    const char *const name = hs_json_string(activation);
    for (const char *const *known = family->activations; name && *known; known++)
        if (strcmp(name, *known) == 0)
            return HS_OK;
    return activation ? hs_model_unsupported(reader, family->activation, activation, family->activations[0]) : HS_OK;
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

static HsStatus find_type(HsModelReader *reader)
{
    const HsJson *value = hs_model_member(reader->root, "model_type");
    const char *const name = hs_json_string(value);
    if (!name)
        return hs_fail(HS_EFORMAT, "%s: model_type is missing", reader->path);
    char known[256];
    reader->type = hs_model_type_find(name);
    return reader->type ? HS_OK
                        : hs_model_unsupported(reader, "model_type", value, hs_model_type_names(known, sizeof known));
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
    HS_TRY(hs_model_add(reader, "family", hs_family_files_of(reader->type->family)->name, "model_type"));
    for (const HsModelRow *row = reader->type->rows; row->key; row++)
        HS_TRY(hs_model_add_member(reader, reader->root, row));
    return hs_family_files_of(reader->type->family)->read(reader);
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
