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

/* Whether the type has a row for a key of its config.json. */
static bool is_read(const HsModelType *type, const char *name)
{
    for (const HsModelRow *row = type->own_rows; row && row->key; row++)
        if (strcmp(row->names[0], name) == 0)
            return true;
    return false;
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
        if (value && looks_at(reader, rows[i].families) && !is_read(reader->type, rows[i].key) &&
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
    if (biases && reader->type->biases && hs_json_is_true(biases) && strcmp(reader->type->name, "llama") != 0)
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
    const HsModelType *const type = reader->type;
    const HsJson *activation = hs_json_get(reader->root, type->activation);
    const char *const name = hs_json_string(activation);
    for (const char *const *known = type->activations; name && *known; known++)
        if (strcmp(name, *known) == 0)
            return HS_OK;
    return activation ? hs_model_unsupported(reader, type->activation, activation, type->activations[0]) : HS_OK;
}

/* Model types that are not read, by what they have that none here has, and the nearest one that is. */
static HsStatus refuse_type(const HsModelReader *reader, const HsJson *value)
{
    static const struct {
        const char *begins, *has, *nearest;
    } rows[] = {
        { "qwen3_5", "Gated DeltaNet", "qwen3" },
        { "qwen3_next", "Gated DeltaNet and experts", "qwen3" },
        { "qwen2_moe", "experts", "qwen2" },
        { "qwen3_moe", "experts", "qwen3" },
        { "gemma3n", "embeddings by layer", "gemma3_text" },
        { "gemma4", "embeddings by layer and shared keys", "gemma3_text" },
        { "gemma", "the norms of the first Gemma", "gemma2" },
        { "mixtral", "experts", "mistral" },
        { "ministral3", "queries scaled by position", "ministral" },
        { "phimoe", "experts", "phi3" },
        { "phi", "biases and one norm a block", "phi3" },
        { "olmoe", "experts", "olmo2" },
        { "olmo", "norms without weights", "olmo2" },
        { "granitemoe", "experts or Mamba layers", "granite" },
        { "llama4", "experts", "llama" },
        { "gpt_oss", "experts and sinks", "llama" },
        { "deepseek", "latent attention and experts", "llama" },
        { "lfm2", "gated convolutions", "llama" },
    };
    char known[256], text[HS_MODEL_TEXT_BYTES];
    const char *const name = hs_json_string(value);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (strncmp(name, rows[i].begins, strlen(rows[i].begins)) == 0)
            return hs_fail(HS_EUNSUPPORTED,
                           "%s: model_type is %s, which is not supported (%s); the nearest that is: %s", reader->path,
                           hs_model_show(value, text, sizeof text), rows[i].has, rows[i].nearest);
    return hs_model_unsupported(reader, "model_type", value, hs_model_type_names(known, sizeof known));
}

/* Of a folder of text and pictures the text's part is read. */
static HsStatus find_type(HsModelReader *reader)
{
    const HsJson *value = hs_model_member(reader->root, "model_type");
    const HsJson *text = hs_model_member(reader->root, "text_config");
    const char *const name = hs_json_string(value);
    const char *const inner = hs_json_string(hs_model_member(text, "model_type"));
    if (!name)
        return hs_fail(HS_EFORMAT, "%s: model_type is missing", reader->path);
    reader->type = hs_model_type_find(name);
    if (!reader->type && inner && hs_model_type_find(inner)) {
        hs_info("%s: of model_type %s the text's part is read, %s; the others are left out", reader->path, name, inner);
        reader->type = hs_model_type_find(inner);
        reader->root = text;
    }
    return reader->type ? HS_OK : refuse_type(reader, value);
}

/* What all models of the type have, so that a configuration that says otherwise is refused. */
static HsStatus add_traits(const HsModelReader *reader)
{
    const char *key;
    for (int i = 0; (key = hs_model_telling_key(i)) != NULL; i++) {
        const char *const value = hs_model_trait(reader->type, key);
        const bool said = strcmp(key, "bias") == 0 || strcmp(key, "qkv_bias") == 0; /* by the family's own part */
        if (said || hs_model_type_reads(reader->type, key))
            continue;
        HS_TRY(value ? hs_model_add(reader, key, value, "model_type")
                     : hs_adoption_keep(reader->adoption, "model", key, "model_type"));
    }
    return HS_OK;
}

static HsStatus read_model(HsModelReader *reader)
{
    if (!hs_json_is_object(reader->root))
        return hs_fail(HS_EFORMAT, "%s: not a JSON object", reader->path);
    HS_TRY(find_type(reader));
    HS_TRY(check_fixed(reader));
    HS_TRY(check_unread(reader));
    HS_TRY(check_activation(reader));
    HS_TRY(check_quantization(reader));
    HS_TRY(hs_model_add(reader, "family", hs_family_files_of(reader->type->family)->name, "model_type"));
    for (const HsModelRow *row = reader->type->rows; row->key; row++)
        HS_TRY(hs_model_add_member(reader, reader->root, row));
    for (const HsModelRow *row = reader->type->own_rows; row && row->key; row++)
        HS_TRY(hs_model_add_member(reader, reader->root, row));
    HS_TRY(add_traits(reader));
    HS_TRY(hs_family_files_of(reader->type->family)->read(reader));
    return hs_model_add_layers(reader);
}

HsStatus hs_huggingface_read(const char *path, HsAdoption *adoption)
{
    HsJson *root = NULL;
    HS_TRY(hs_json_read_python(path, CONFIG_JSON_BYTES, &root));
    HsModelReader reader = { .path = path, .root = root, .adoption = adoption };
    const HsStatus status = read_model(&reader);
    hs_json_destroy(root);
    return status;
}
