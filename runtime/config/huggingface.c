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
#include "runtime/config/pretrained.h"
#include "runtime/config/table.h"
#include "runtime/io/json.h"

enum { CONFIG_JSON_BYTES = 1 << 24, TEXT_BYTES = 64 };

typedef enum RowKind { WHOLE, REAL, YES_NO, TEXT } RowKind;

/* Our key, and their names for it: of two the first goes before the second.  What a missing one means: "": our default;
 * else the value. */
typedef struct Row {
    const char *key;
    const char *names[2];
    RowKind kind;
    const char *missing;
    bool may_be_null; /* null is as missing; else it is refused, as the library refuses it */
} Row;

/* The older names are attributes of the class, the newer ones are set over them. */
static const Row gpt2_rows[] = {
    { "width", { "hidden_size", "n_embd" }, WHOLE, "768", false },
    { "layers", { "num_hidden_layers", "n_layer" }, WHOLE, "12", false },
    { "heads", { "num_attention_heads", "n_head" }, WHOLE, "12", false },
    { "max_positions", { "max_position_embeddings", "n_positions" }, WHOLE, "1024", false },
    { "mlp_width", { "n_inner" }, WHOLE, "", true },
    { "vocabulary", { "vocab_size" }, WHOLE, "50257", false },
    { "norm_epsilon", { "layer_norm_epsilon" }, REAL, "1e-5", false },
    { "tie_head", { "tie_word_embeddings" }, YES_NO, "true", false },
    { 0 },
};

#define LLAMA_ROWS(mlp_width_missing, positions_missing, vocabulary_missing)                     \
    {                                                                                            \
        { "width", { "hidden_size" }, WHOLE, "4096", false },                                    \
            { "layers", { "num_hidden_layers" }, WHOLE, "32", false },                           \
            { "heads", { "num_attention_heads" }, WHOLE, "32", false },                          \
            { "mlp_width", { "intermediate_size" }, WHOLE, mlp_width_missing, false },           \
            { "max_positions", { "max_position_embeddings" }, WHOLE, positions_missing, false }, \
            { "vocabulary", { "vocab_size" }, WHOLE, vocabulary_missing, false },                \
            { "norm_epsilon", { "rms_norm_eps" }, REAL, "1e-6", false },                         \
            { "tie_head", { "tie_word_embeddings" }, YES_NO, "false", false }, { 0 },            \
    }

static const Row llama_rows[] = LLAMA_ROWS("11008", "2048", "32000");
static const Row mistral_rows[] = LLAMA_ROWS("14336", "131072", "32000");
static const Row qwen_rows[] = LLAMA_ROWS("22016", "32768", "151936");

typedef struct Type {
    const char *name; /* model_type */
    const char *family;
    const Row *rows;
    const char *kv_heads, *head_dim;   /* where the file does not say; "": all heads; width / heads */
    bool null_kv_heads, null_head_dim; /* may be null, which says the same as "" */
    bool qkv_bias, qk_norm;
    bool biases;          /* reads attention_bias */
    bool mlp_biases;      /* reads mlp_bias */
    bool window;          /* reads sliding_window, 4096 where the file does not say */
    bool window_by_layer; /* only where use_sliding_window says so, in the layers of layer_types or max_window_layers */
} Type;

static const Type types[] = {
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

typedef struct Reader {
    const char *path;
    const HsJson *root;
    const Type *type;
    HsAdoption *adoption;
} Reader;

/* A JSON value as messages show it. */
static const char *show(const HsJson *value, char *text, size_t size)
{
    char *written = hs_json_write(value, false);
    snprintf(text, size, "%.60s", written ? written : "?");
    free(written);
    return text;
}

static HsStatus unsupported(const Reader *reader, const char *key, const HsJson *value, const char *supported)
{
    char text[TEXT_BYTES];
    return hs_fail(HS_EUNSUPPORTED, "%s: %s is %s, which is not supported: %s", reader->path, key,
                   show(value, text, sizeof text), supported);
}

/* A value of the kind -> text as YAML writes it. */
static HsStatus text_of(const Reader *reader, const char *name, const HsJson *value, RowKind kind,
                        char text[TEXT_BYTES])
{
    const double number = hs_json_number(value);
    if (kind == TEXT && hs_json_is_string(value))
        snprintf(text, TEXT_BYTES, "%s", hs_json_string(value));
    else if (kind == YES_NO && hs_json_is_bool(value))
        snprintf(text, TEXT_BYTES, "%s", hs_json_is_true(value) ? "true" : "false");
    else if (kind == WHOLE && hs_json_is_number(value) && number >= 0 && number <= 1e15 && floor(number) == number)
        snprintf(text, TEXT_BYTES, "%.0f", number);
    else if (kind == REAL && hs_json_is_number(value) && isfinite(number))
        hs_config_real_text(number, text);
    else
        return hs_fail(HS_EFORMAT, "%s: %s must be %s (got %s)", reader->path, name,
                       kind == YES_NO  ? "true or false"
                       : kind == WHOLE ? "a whole number"
                       : kind == TEXT  ? "a text"
                                       : "a number",
                       show(value, text, TEXT_BYTES));
    return HS_OK;
}

static HsStatus refuse_null(const Reader *reader, const char *name)
{
    return hs_fail(HS_EFORMAT, "%s: %s is null: give its value, or leave the key out", reader->path, name);
}

/* NULL where the key is absent or null. */
static const HsJson *member(const HsJson *object, const char *name)
{
    const HsJson *value = name ? hs_json_get(object, name) : NULL;
    return value && !hs_json_is_null(value) ? value : NULL;
}

static HsStatus add(const Reader *reader, const char *key, const char *text, const char *from)
{
    return hs_adoption_add(reader->adoption, "model", key, text, from);
}

/* `object`'s member of one of the names -> our key. */
static HsStatus add_member(const Reader *reader, const HsJson *object, const Row *row)
{
    char text[TEXT_BYTES];
    for (int i = 0; i < 2 && row->names[i]; i++) {
        const HsJson *value = hs_json_get(object, row->names[i]);
        if (value && hs_json_is_null(value) && !row->may_be_null)
            return refuse_null(reader, row->names[i]);
        if (!value || hs_json_is_null(value))
            continue;
        HS_TRY(text_of(reader, row->names[i], value, row->kind, text));
        return add(reader, row->key, text, row->names[i]);
    }
    if (!row->missing)
        return hs_fail(HS_EFORMAT, "%s: %s is missing", reader->path, row->names[0]);
    return row->missing[0] ? add(reader, row->key, row->missing, row->names[0]) : HS_OK;
}

/* Matrices in four bits are read as bitsandbytes writes them for QLoRA. */
static HsStatus check_quantization(const Reader *reader)
{
    const HsJson *config = member(reader->root, "quantization_config");
    if (!config)
        return HS_OK;
    const char *const method = hs_json_string(hs_json_get(config, "quant_method"));
    const char *const type = hs_json_string(hs_json_get(config, "bnb_4bit_quant_type"));
    const HsJson *four = hs_json_get(config, "load_in_4bit"), *twice = hs_json_get(config, "bnb_4bit_use_double_quant");
    const bool known = method && strcmp(method, "bitsandbytes") == 0 && type && strcmp(type, "nf4") == 0;
    if (known && hs_json_is_true(four) && hs_json_is_true(twice))
        return HS_OK;
    return unsupported(reader, "quantization_config", config,
                       "weights in f32, bf16 or f16, or bitsandbytes' with load_in_4bit, bnb_4bit_quant_type nf4 and "
                       "bnb_4bit_use_double_quant");
}

/* Keys that only one value of is served; absent is that value.  A type does not look at the others' keys. */
static HsStatus check_fixed(const Reader *reader)
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
    char text[TEXT_BYTES];
    const bool gpt2 = strcmp(reader->type->family, "gpt2") == 0;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const HsJson *value = hs_json_get(reader->root, rows[i].key);
        if (value && (gpt2 ? rows[i].gpt2 : rows[i].llama) &&
            strcmp(show(value, text, sizeof text), rows[i].value) != 0)
            return unsupported(reader, rows[i].key, value, rows[i].supported);
    }
    const HsJson *weights = member(reader->root, "transformers_weights");
    const char *const file = hs_json_string(weights);
    if (weights && !(file && strcmp(file, "model.safetensors") == 0))
        return unsupported(reader, "transformers_weights", weights, "model.safetensors, or its index without the key");
    const HsJson *mlp = hs_json_get(reader->root, "mlp_bias"), *biases = hs_json_get(reader->root, "attention_bias");
    if (mlp && reader->type->mlp_biases && strcmp(show(mlp, text, sizeof text), "false") != 0)
        return unsupported(reader, "mlp_bias", mlp, "an MLP without biases");
    if (biases && reader->type->biases && !hs_json_is_bool(biases))
        return hs_fail(HS_EFORMAT, "%s: attention_bias must be true or false", reader->path);
    if (biases && reader->type->biases && hs_json_is_true(biases) && reader->type->qk_norm)
        return unsupported(reader, "attention_bias", biases, "false, or model_type llama with biases of q, k, v alone");
    const HsJson *map = hs_json_get(reader->root, "auto_map");
    if (map && hs_json_is_null(map))
        return refuse_null(reader, "auto_map");
    if (map)
        hs_warn("%s: auto_map names code of the folder's own, which is not run: the model is read as %s", reader->path,
                reader->type->name);
    return HS_OK;
}

/* Keys that change nothing here, and that the library refuses where they are of another kind: it would not open the folder
 * at all.  Of numbers a fraction may be whole. */
static HsStatus check_unread(const Reader *reader)
{
    static const struct {
        const char *key;
        RowKind kind;
        bool may_be_null;
        bool gpt2, llama;
    } rows[] = {
        { "use_cache", YES_NO, false, true, true },
        { "initializer_range", REAL, false, true, true },
        { "attention_dropout", REAL, false, false, true },
        { "pretraining_tp", WHOLE, true, false, true },
        { "summary_type", TEXT, false, true, false },
        { "bos_token_id", WHOLE, true, true, true },
        { "pad_token_id", WHOLE, true, true, true },
        { "resid_pdrop", REAL, false, true, false },
        { "embd_pdrop", REAL, false, true, false },
        { "attn_pdrop", REAL, false, true, false },
        { "summary_first_dropout", REAL, false, true, false },
        { "summary_use_proj", YES_NO, false, true, false },
        { "summary_proj_to_labels", YES_NO, false, true, false },
        { "reorder_and_upcast_attn", YES_NO, false, true, false },
    };
    const bool gpt2 = strcmp(reader->type->family, "gpt2") == 0;
    char text[TEXT_BYTES];
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const HsJson *value = hs_json_get(reader->root, rows[i].key);
        if (!value || !(gpt2 ? rows[i].gpt2 : rows[i].llama))
            continue;
        const bool llamas = strcmp(rows[i].key, "attention_dropout") == 0 && strcmp(reader->type->name, "llama") == 0;
        if (hs_json_is_null(value) && !rows[i].may_be_null && !llamas)
            return refuse_null(reader, rows[i].key);
        if (!hs_json_is_null(value) && !(rows[i].kind == REAL && hs_json_is_number(value)))
            HS_TRY(text_of(reader, rows[i].key, value, rows[i].kind, text));
    }
    return HS_OK;
}

/* Several names are one function. */
static HsStatus check_activation(const Reader *reader)
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
    return activation ? unsupported(reader, key, activation, gpt2 ? "gelu_new" : "silu") : HS_OK;
}

/* Whether some layer has the window, where layers may differ. */
static HsStatus find_windowed_layer(const Reader *reader, bool *windowed)
{
    const HsJson *layers = member(reader->root, "layer_types"), *from = hs_json_get(reader->root, "max_window_layers");
    const HsJson *all = hs_json_get(reader->root, "num_hidden_layers");
    *windowed = false;
    if (layers && (!hs_json_is_array(layers) || (all && hs_json_count(layers) != hs_json_number(all))))
        return hs_fail(HS_EFORMAT, "%s: layer_types must be a list with a kind for each of num_hidden_layers",
                       reader->path);
    for (const HsJson *layer = hs_json_first(layers); layer; layer = hs_json_next(layer)) {
        const char *kind = hs_json_string(layer);
        if (!kind || (strcmp(kind, "full_attention") != 0 && strcmp(kind, "sliding_attention") != 0))
            return unsupported(reader, "layer_types", layer, "full_attention, sliding_attention");
        *windowed = *windowed || strcmp(kind, "sliding_attention") == 0;
    }
    if (from && (!hs_json_is_number(from) || floor(hs_json_number(from)) != hs_json_number(from)))
        return hs_fail(HS_EFORMAT, "%s: max_window_layers must be a whole number", reader->path);
    if (!layers)
        *windowed = hs_json_number(all) > (from ? hs_json_number(from) : 28.0);
    return HS_OK;
}

/* A window of attention that is as long as the sequences is none. */
static HsStatus check_window(const Reader *reader, int64_t max_length)
{
    const HsJson *window = hs_json_get(reader->root, "sliding_window");
    const HsJson *asked = hs_json_get(reader->root, "use_sliding_window");
    const HsJson *layers = member(reader->root, "layer_types");
    bool windowed = reader->type->window, sliding = false;
    if (layers && !reader->type->window_by_layer) {
        HS_TRY(find_windowed_layer(reader, &sliding));
        if (sliding || windowed) /* Mistral's windows are those of all layers */
            return unsupported(reader, "layer_types", layers, "layers of one kind: leave the key out");
    }
    const double said = hs_json_number(window);
    if (!reader->type->window && said < (double)max_length)
        return unsupported(reader, "sliding_window", window, "none for this model_type: leave the key out");
    if (!reader->type->window)
        return HS_OK;
    if (reader->type->window_by_layer) {
        if (asked && !hs_json_is_bool(asked))
            return hs_fail(HS_EFORMAT, "%s: use_sliding_window must be true or false", reader->path);
        HS_TRY(find_windowed_layer(reader, &windowed));
        const bool on = asked && hs_json_is_true(asked) && !(window && hs_json_is_null(window));
        if (windowed && layers && !on)
            return unsupported(reader, "layer_types", layers, "full_attention where no window is asked for");
        windowed = windowed && on;
    }
    if (!windowed || (window && hs_json_is_null(window)))
        return HS_OK;
    const double width = window ? hs_json_number(window) : 4096.0;
    if (!(width >= 1 && floor(width) == width))
        return unsupported(reader, "sliding_window", window, "a whole number of tokens from 1 on, or null");
    if (width >= (double)max_length) {
        const double positions = hs_json_number(member(reader->root, "max_position_embeddings"));
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

static const char *const rope_sections[] = { "rope_scaling", "rope_parameters" };

/* 0.1 m ln(factor) + 1, as yarn's paper has it for m 1. */
static double yarn_scale(double factor, double m)
{
    return factor <= 1 ? 1.0 : 0.1 * m * log(factor) + 1.0;
}

/* The factor of cosines and sines: said, or of two coefficients a quotient, or (0) the paper's. */
static HsStatus add_attention_factor(const Reader *reader, const HsJson *rope, double factor)
{
    const HsJson *said = member(rope, "attention_factor");
    const double one = hs_json_number(member(rope, "mscale")), all = hs_json_number(member(rope, "mscale_all_dim"));
    char text[TEXT_BYTES];
    if (said) {
        HS_TRY(text_of(reader, "attention_factor", said, REAL, text));
        return hs_json_number(said) > 0 ? add(reader, "rope_attention_factor", text, "attention_factor")
                                        : unsupported(reader, "attention_factor", said, "a number above 0, or none");
    }
    if (!(one != 0 && all != 0 && isfinite(one) && isfinite(all)))
        return add(reader, "rope_attention_factor", "0", "attention_factor");
    hs_config_real_text(yarn_scale(factor, one) / yarn_scale(factor, all), text);
    return add(reader, "rope_attention_factor", text, "mscale");
}

/* The length before it was made longer: at the top level it goes before the section's. */
static HsStatus add_original(const Reader *reader, const HsJson *rope, double *length)
{
    static const char name[] = "original_max_position_embeddings";
    static const Row here = { "rope_original_positions", { name }, WHOLE, NULL, false };
    static const Row all = { "rope_original_positions", { "max_position_embeddings" }, WHOLE, NULL, false };
    const HsJson *const place = hs_json_get(reader->root, name) ? reader->root : rope;
    const bool said = hs_json_get(place, name) != NULL;
    *length = hs_json_number(hs_json_get(said ? place : reader->root, said ? name : all.names[0]));
    return add_member(reader, said ? place : reader->root, said ? &here : &all);
}

/* The rules of scaled positions, and what each reads. */
static HsStatus add_scaling(const Reader *reader, const HsJson *rope, const char *kind)
{
    static const Row factor_row = { "rope_factor", { "factor" }, REAL, NULL, false };
    static const Row llama3[] = {
        { "rope_low_freq_factor", { "low_freq_factor" }, REAL, NULL, false },
        { "rope_high_freq_factor", { "high_freq_factor" }, REAL, NULL, false },
    };
    static const Row yarn[] = {
        { "rope_beta_fast", { "beta_fast" }, REAL, "32", true },
        { "rope_beta_slow", { "beta_slow" }, REAL, "1", true },
    };
    static const char *const refused[] = { "mrope_section", "short_factor", "long_factor" };
    for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++)
        if (member(rope, refused[i]))
            return unsupported(reader, refused[i], member(rope, refused[i]), "linear, llama3 and yarn without it");
    const HsJson *truncate = hs_json_get(rope, "truncate");
    const bool is_yarn = strcmp(kind, "yarn") == 0;
    double factor = hs_json_number(hs_json_get(rope, "factor")), original = 0;
    if (is_yarn && truncate && !hs_json_is_true(truncate))
        return unsupported(reader, "truncate", truncate, "true");
    HS_TRY(add(reader, "rope_scaling", kind, "rope_type"));
    if (strcmp(kind, "linear") == 0)
        return add_member(reader, rope, &factor_row);
    HS_TRY(add_original(reader, rope, &original));
    if (is_yarn && hs_json_is_null(hs_json_get(rope, "factor"))) { /* null: how many times longer it is */
        char text[TEXT_BYTES];
        factor = hs_json_number(member(reader->root, "max_position_embeddings")) / original;
        hs_config_real_text(factor, text);
        HS_TRY(add(reader, "rope_factor", text, "max_position_embeddings"));
    } else {
        HS_TRY(add_member(reader, rope, &factor_row));
    }
    for (int i = 0; i < 2; i++)
        HS_TRY(add_member(reader, rope, is_yarn ? &yarn[i] : &llama3[i]));
    return is_yarn ? add_attention_factor(reader, rope, factor) : HS_OK;
}

/* rope_scaling, and where that is absent, null or empty rope_parameters; what neither says stands at the top level. */
static HsStatus add_rope(const Reader *reader)
{
    static const Row theta = { "rope_theta", { "rope_theta" }, REAL, "10000", false };
    const HsJson *rope = NULL;
    for (int i = 0; i < 2 && hs_json_count(rope) == 0; i++) {
        rope = member(reader->root, rope_sections[i]);
        if (rope && !hs_json_is_object(rope))
            return unsupported(reader, rope_sections[i], rope, "a section");
    }
    for (const HsJson *part = hs_json_first(rope); part; part = hs_json_next(part))
        if (hs_json_is_object(part))
            return unsupported(reader, hs_json_key(part), part, "one rule for all layers");
    HS_TRY(add_member(reader, hs_json_get(rope, "rope_theta") ? rope : reader->root, &theta));
    const HsJson *kind = hs_json_get(rope, "rope_type") ? hs_json_get(rope, "rope_type") : hs_json_get(rope, "type");
    const char *const name = kind ? hs_json_string(kind) : "default";
    if (name && strcmp(name, "default") == 0) /* which rotates whole heads, whatever share is said */
        return add(reader, "rope_scaling", "none", "rope_type");
    if (!name || (strcmp(name, "linear") != 0 && strcmp(name, "llama3") != 0 && strcmp(name, "yarn") != 0))
        return unsupported(reader, "rope_type", kind, "default, linear, llama3, yarn");
    const HsJson *part = hs_json_get(rope, "partial_rotary_factor");
    part = part ? part : member(reader->root, "partial_rotary_factor");
    if (part && !(hs_json_number(part) == 1.0))
        return unsupported(reader, "partial_rotary_factor", part, "rotation of whole heads");
    return add_scaling(reader, rope, name);
}

static HsStatus add_llama(const Reader *reader)
{
    const Type *type = reader->type;
    const Row head_dim = { "head_dim", { "head_dim" }, WHOLE, type->head_dim, type->null_head_dim };
    const HsJson *kv_heads = hs_json_get(reader->root, "num_key_value_heads");
    const HsJson *all = hs_json_get(reader->root, "num_attention_heads");
    char heads[TEXT_BYTES] = "32"; /* the missing one's */
    if (all)
        HS_TRY(text_of(reader, "num_attention_heads", all, WHOLE, heads));
    /* null, and absent in a Llama's file: as many as query heads */
    const bool as_many = kv_heads ? hs_json_is_null(kv_heads) : type->kv_heads[0] == '\0';
    const Row groups = {
        "kv_heads", { "num_key_value_heads" }, WHOLE, as_many ? heads : type->kv_heads, type->null_kv_heads
    };
    HS_TRY(add_member(reader, reader->root, &groups));
    HS_TRY(add_member(reader, reader->root, &head_dim));
    const HsJson *asked = hs_json_get(reader->root, "attention_bias"); /* o_proj's must be zero: pretrained.c */
    const bool biases = type->qkv_bias || (type->biases && asked && hs_json_is_true(asked));
    HS_TRY(add(reader, "qkv_bias", biases ? "true" : "false", type->qkv_bias ? "model_type" : "attention_bias"));
    HS_TRY(add(reader, "qk_norm", type->qk_norm ? "true" : "false", "model_type"));
    return add_rope(reader);
}

static HsStatus find_type(Reader *reader)
{
    const HsJson *value = member(reader->root, "model_type");
    const char *const name = hs_json_string(value);
    if (!name)
        return hs_fail(HS_EFORMAT, "%s: model_type is missing", reader->path);
    for (size_t i = 0; i < sizeof types / sizeof types[0] && !reader->type; i++)
        if (strcmp(types[i].name, name) == 0)
            reader->type = &types[i];
    return reader->type ? HS_OK : unsupported(reader, "model_type", value, "gpt2, llama, mistral, qwen2, qwen3");
}

static HsStatus read_model(Reader *reader, int64_t max_length)
{
    if (!hs_json_is_object(reader->root))
        return hs_fail(HS_EFORMAT, "%s: not a JSON object", reader->path);
    HS_TRY(find_type(reader));
    HS_TRY(check_fixed(reader));
    HS_TRY(check_unread(reader));
    HS_TRY(check_activation(reader));
    HS_TRY(check_quantization(reader));
    HS_TRY(check_window(reader, max_length));
    HS_TRY(add(reader, "family", reader->type->family, "model_type"));
    for (const Row *row = reader->type->rows; row->key; row++)
        HS_TRY(add_member(reader, reader->root, row));
    if (strcmp(reader->type->family, "gpt2") == 0) {
        for (int i = 0; i < 2; i++)
            if (hs_json_count(hs_json_get(reader->root, rope_sections[i])) > 0)
                return unsupported(reader, rope_sections[i], hs_json_get(reader->root, rope_sections[i]),
                                   "none: GPT-2 has learned positions");
        return add(reader, "bias", "true", "model_type");
    }
    return add_llama(reader);
}

HsStatus hs_huggingface_read(const char *path, int64_t max_length, bool is_set, HsAdoption *adoption)
{
    HsJson *root = NULL;
    HS_TRY(hs_json_read_python(path, CONFIG_JSON_BYTES, &root));
    Reader reader = { .path = path, .root = root, .adoption = adoption };
    const double positions = hs_json_number(hs_json_get(root, "max_position_embeddings"));
    if (!is_set && positions >= 1 && positions < (double)max_length)
        max_length = (int64_t)positions;
    const HsStatus status = read_model(&reader, max_length);
    hs_json_destroy(root);
    return status;
}
