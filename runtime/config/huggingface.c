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
#include "runtime/io/files.h"
#include "runtime/io/json.h"

enum { CONFIG_JSON_BYTES = 1 << 24, TEXT_BYTES = 64 };

typedef enum RowKind { WHOLE, REAL, YES_NO } RowKind;

/* Our key, their names for it, and what a missing one means: NULL: an error; "": our default; else the value. */
typedef struct Row {
    const char *key;
    const char *names[2];
    RowKind kind;
    const char *missing;
} Row;

static const Row gpt2_rows[] = {
    { "width", { "n_embd", "hidden_size" }, WHOLE, NULL },
    { "layers", { "n_layer", "num_hidden_layers" }, WHOLE, NULL },
    { "heads", { "n_head", "num_attention_heads" }, WHOLE, NULL },
    { "max_positions", { "n_positions", "max_position_embeddings" }, WHOLE, NULL },
    { "mlp_width", { "n_inner" }, WHOLE, "" },
    { "vocabulary", { "vocab_size" }, WHOLE, NULL },
    { "norm_epsilon", { "layer_norm_epsilon" }, REAL, "1e-5" },
    { "tie_head", { "tie_word_embeddings" }, YES_NO, "true" },
    { 0 },
};

static const Row llama_rows[] = {
    { "width", { "hidden_size" }, WHOLE, NULL },
    { "layers", { "num_hidden_layers" }, WHOLE, NULL },
    { "heads", { "num_attention_heads" }, WHOLE, NULL },
    { "mlp_width", { "intermediate_size" }, WHOLE, NULL },
    { "max_positions", { "max_position_embeddings" }, WHOLE, "" },
    { "vocabulary", { "vocab_size" }, WHOLE, NULL },
    { "norm_epsilon", { "rms_norm_eps" }, REAL, "1e-6" },
    { "tie_head", { "tie_word_embeddings" }, YES_NO, "false" },
    { 0 },
};

typedef struct Type {
    const char *name; /* model_type */
    const char *family;
    const Row *rows;
    const char *kv_heads, *head_dim; /* where the file does not say; "": all heads; width / heads */
    bool qkv_bias, qk_norm;
    int64_t window;    /* where the file does not say; 0: none */
    bool window_asked; /* there is one only where use_sliding_window says so */
} Type;

static const Type types[] = {
    { .name = "gpt2", .family = "gpt2", .rows = gpt2_rows },
    { .name = "llama", .family = "llama", .rows = llama_rows, .kv_heads = "", .head_dim = "" },
    { .name = "mistral", .family = "llama", .rows = llama_rows, .kv_heads = "8", .head_dim = "", .window = 4096 },
    { .name = "qwen2",
      .family = "llama",
      .rows = llama_rows,
      .kv_heads = "32",
      .head_dim = "",
      .qkv_bias = true,
      .window = 4096,
      .window_asked = true },
    { .name = "qwen3",
      .family = "llama",
      .rows = llama_rows,
      .kv_heads = "32",
      .head_dim = "128",
      .qk_norm = true,
      .window = 4096,
      .window_asked = true },
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
    if (kind == YES_NO && hs_json_is_bool(value))
        snprintf(text, TEXT_BYTES, "%s", hs_json_is_true(value) ? "true" : "false");
    else if (kind == WHOLE && hs_json_is_number(value) && number >= 0 && number <= 1e15 && floor(number) == number)
        snprintf(text, TEXT_BYTES, "%.0f", number);
    else if (kind == REAL && hs_json_is_number(value) && isfinite(number))
        hs_config_real_text(number, text);
    else
        return hs_fail(HS_EFORMAT, "%s: %s must be %s (got %s)", reader->path, name,
                       kind == YES_NO  ? "true or false"
                       : kind == WHOLE ? "a whole number"
                                       : "a number",
                       show(value, text, TEXT_BYTES));
    return HS_OK;
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
    for (int i = 0; i < 2; i++) {
        const HsJson *value = member(object, row->names[i]);
        if (!value)
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

/* Keys that only one value of is served; absent and null are that value. */
static HsStatus check_fixed(const Reader *reader)
{
    static const struct {
        const char *key, *value, *supported;
    } rows[] = {
        { "scale_attn_weights", "true", "scores divided by the root of the head's size" },
        { "scale_attn_by_inverse_layer_idx", "false", "false" },
        { "add_cross_attention", "false", "decoders alone" },
        { "mlp_bias", "false", "an MLP without biases" },
        { "partial_rotary_factor", "1", "rotation of whole heads" },
        { "attn_logit_softcapping", "", "none" },
        { "final_logit_softcapping", "", "none" },
        { "num_experts", "", "a dense model" },
        { "num_local_experts", "", "a dense model" },
        { "auto_map", "", "the model types below, without code of their own" },
    };
    char text[TEXT_BYTES];
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const HsJson *value = member(reader->root, rows[i].key);
        if (value && strcmp(show(value, text, sizeof text), rows[i].value) != 0)
            return unsupported(reader, rows[i].key, value, rows[i].supported);
    }
    const bool gpt2 = strcmp(reader->type->family, "gpt2") == 0;
    const char *const key = gpt2 ? "activation_function" : "hidden_act";
    const HsJson *biases = member(reader->root, "attention_bias");
    if (biases && hs_json_is_true(biases) && strcmp(reader->type->name, "llama") != 0)
        return unsupported(reader, "attention_bias", biases, "false, or model_type llama with biases of q, k, v alone");
    const HsJson *activation = member(reader->root, key);
    const char *const name = hs_json_string(activation);
    const bool known = gpt2 ? name && (strcmp(name, "gelu_new") == 0 || strcmp(name, "gelu_pytorch_tanh") == 0)
                            : name && strcmp(name, "silu") == 0;
    return activation && !known ? unsupported(reader, key, activation, gpt2 ? "gelu_new" : "silu") : HS_OK;
}

/* A window of attention that is as long as the sequences is none. */
static HsStatus check_window(const Reader *reader, int64_t max_length)
{
    const HsJson *window = hs_json_get(reader->root, "sliding_window"), *layers = member(reader->root, "layer_types");
    const HsJson *asked = member(reader->root, "use_sliding_window");
    for (const HsJson *layer = hs_json_first(layers); layer; layer = hs_json_next(layer)) {
        const char *kind = hs_json_string(layer);
        if (!kind || (strcmp(kind, "full_attention") != 0 && strcmp(kind, "sliding_attention") != 0))
            return unsupported(reader, "layer_types", layer, "full_attention");
    }
    if (reader->type->window == 0 || (reader->type->window_asked && !(asked && hs_json_is_true(asked))) ||
        (window && hs_json_is_null(window)))
        return HS_OK;
    const double width = window ? hs_json_number(window) : (double)reader->type->window;
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

/* The rules of scaled positions, and what each reads. */
static HsStatus add_scaling(const Reader *reader, const HsJson *rope, const char *kind)
{
    static const Row factor = { "rope_factor", { "factor" }, REAL, NULL };
    static const Row original = { "rope_original_positions", { "original_max_position_embeddings" }, WHOLE, NULL };
    static const Row llama3[] = {
        { "rope_low_freq_factor", { "low_freq_factor" }, REAL, NULL },
        { "rope_high_freq_factor", { "high_freq_factor" }, REAL, NULL },
    };
    static const Row yarn[] = {
        { "rope_beta_fast", { "beta_fast" }, REAL, "32" },
        { "rope_beta_slow", { "beta_slow" }, REAL, "1" },
        { "rope_attention_factor", { "attention_factor" }, REAL, "0" },
    };
    static const char *const refused[] = { "mscale", "mscale_all_dim", "mrope_section", "short_factor", "long_factor" };
    for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++)
        if (member(rope, refused[i]))
            return unsupported(reader, refused[i], member(rope, refused[i]), "linear, llama3 and yarn without it");
    const HsJson *truncate = member(rope, "truncate");
    if (truncate && !hs_json_is_true(truncate))
        return unsupported(reader, "truncate", truncate, "true");
    HS_TRY(add(reader, "rope_scaling", kind, "rope_type"));
    HS_TRY(add_member(reader, rope, &factor));
    if (strcmp(kind, "linear") == 0)
        return HS_OK;
    const bool is_yarn = strcmp(kind, "yarn") == 0;
    const Row all_positions = { "rope_original_positions", { "max_position_embeddings" }, WHOLE, NULL };
    if (is_yarn && !member(rope, original.names[0]))
        HS_TRY(add_member(reader, reader->root, &all_positions));
    else
        HS_TRY(add_member(reader, rope, &original));
    for (int i = 0; i < (is_yarn ? 3 : 2); i++)
        HS_TRY(add_member(reader, rope, is_yarn ? &yarn[i] : &llama3[i]));
    return HS_OK;
}

/* rope_parameters of the library's fifth version, rope_scaling and rope_theta of those before. */
static HsStatus add_rope(const Reader *reader)
{
    static const Row theta = { "rope_theta", { "rope_theta" }, REAL, "10000" };
    const HsJson *rope = member(reader->root, "rope_parameters");
    if (!rope)
        rope = member(reader->root, "rope_scaling");
    if (rope && !hs_json_is_object(rope))
        return unsupported(reader, "rope_scaling", rope, "a section");
    for (const HsJson *part = hs_json_first(rope); part; part = hs_json_next(part))
        if (hs_json_is_object(part))
            return unsupported(reader, hs_json_key(part), part, "one rule for all layers");
    HS_TRY(add_member(reader, member(rope, "rope_theta") ? rope : reader->root, &theta));
    const HsJson *kind = member(rope, "rope_type") ? member(rope, "rope_type") : member(rope, "type");
    const char *const name = kind ? hs_json_string(kind) : "default";
    const HsJson *part = member(rope, "partial_rotary_factor");
    if (part && !(hs_json_number(part) == 1.0))
        return unsupported(reader, "partial_rotary_factor", part, "rotation of whole heads");
    if (name && strcmp(name, "default") == 0)
        return add(reader, "rope_scaling", "none", "rope_type");
    if (!name || (strcmp(name, "linear") != 0 && strcmp(name, "llama3") != 0 && strcmp(name, "yarn") != 0))
        return unsupported(reader, "rope_type", kind, "default, linear, llama3, yarn");
    return add_scaling(reader, rope, name);
}

static HsStatus add_llama(const Reader *reader)
{
    const Type *type = reader->type;
    char heads[TEXT_BYTES];
    const HsJson *kv_heads = hs_json_get(reader->root, "num_key_value_heads"),
                 *all = member(reader->root, "num_attention_heads");
    const Row head_dim = { "head_dim", { "head_dim" }, WHOLE, type->head_dim };
    /* null, and absent in a Llama's file: as many as query heads */
    const bool grouped = kv_heads ? !hs_json_is_null(kv_heads) : type->kv_heads[0] != '\0';
    HS_TRY(text_of(reader, "num_attention_heads", all, WHOLE, heads));
    const Row groups = {
        "kv_heads", { grouped ? "num_key_value_heads" : NULL }, WHOLE, grouped ? type->kv_heads : heads
    };
    HS_TRY(add_member(reader, reader->root, &groups));
    HS_TRY(add_member(reader, reader->root, &head_dim));
    const HsJson *asked = member(reader->root, "attention_bias"); /* the fourth, o_proj's, must be zero: pretrained.c */
    const bool biases = type->qkv_bias || (asked && hs_json_is_true(asked));
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
    HS_TRY(check_quantization(reader));
    HS_TRY(check_window(reader, max_length));
    HS_TRY(add(reader, "family", reader->type->family, "model_type"));
    for (const Row *row = reader->type->rows; row->key; row++)
        HS_TRY(add_member(reader, reader->root, row));
    if (strcmp(reader->type->family, "gpt2") == 0)
        return add(reader, "bias", "true", "model_type");
    return add_llama(reader);
}

HsStatus hs_huggingface_read(const char *path, int64_t max_length, HsAdoption *adoption)
{
    char *text = NULL;
    size_t length = 0;
    HsJson *root = NULL;
    HS_TRY(hs_read_file(path, CONFIG_JSON_BYTES, &text, &length));
    HsStatus status = hs_json_parse(path, text, length, &root);
    Reader reader = { .path = path, .root = root, .adoption = adoption };
    if (status == HS_OK)
        status = read_model(&reader, max_length);
    hs_json_destroy(root);
    free(text);
    return status;
}
