/* SPDX-License-Identifier: MIT
 *
 * The rotary embedding of a config.json: base, rule of scaling and its lengths, by the precedence of transformers 5.24
 * (docs/huggingface-folders.md has the table).
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/config/attention_pattern.h"
#include "runtime/config/huggingface_reader.h"
#include "runtime/config/table.h"

const char *const hs_model_rope_sections[2] = { "rope_scaling", "rope_parameters" };

/* 0.1 m ln(factor) + 1, as yarn's paper has it for m 1. */
static double yarn_scale(double factor, double m)
{
    return factor <= 1 ? 1.0 : 0.1 * m * log(factor) + 1.0;
}

/* The factor of cosines and sines: said, or of two coefficients a quotient, or (0) the paper's. */
static HsStatus add_attention_factor(const HsModelReader *reader, const HsJson *rope, double factor)
{
    const HsJson *said = hs_model_member(rope, "attention_factor");
    const double one = hs_json_number(hs_model_member(rope, "mscale")),
                 all = hs_json_number(hs_model_member(rope, "mscale_all_dim"));
    char text[HS_MODEL_TEXT_BYTES];
    if (said) {
        HS_TRY(hs_model_value_text(reader, "attention_factor", said, HS_ROW_REAL, text));
        return hs_json_number(said) > 0
                   ? hs_model_add(reader, "rope_attention_factor", text, "attention_factor")
                   : hs_model_unsupported(reader, "attention_factor", said, "a number above 0, or none");
    }
    if (!(one != 0 && all != 0 && isfinite(one) && isfinite(all)))
        return hs_model_add(reader, "rope_attention_factor", "0", "attention_factor");
    hs_config_real_text(yarn_scale(factor, one) / yarn_scale(factor, all), text);
    return hs_model_add(reader, "rope_attention_factor", text, "mscale");
}

/* The length before it was made longer: at the top level it goes before the section's. */
static HsStatus add_original(const HsModelReader *reader, const HsJson *rope, double *length)
{
    static const char name[] = "original_max_position_embeddings";
    static const HsModelRow here = { "rope_original_positions", { name }, HS_ROW_WHOLE, NULL, false, NULL };
    static const HsModelRow phi = { "rope_original_positions", { name }, HS_ROW_WHOLE, "4096", false, NULL };
    static const HsModelRow all = {
        "rope_original_positions", { "max_position_embeddings" }, HS_ROW_WHOLE, NULL, false, NULL
    };
    const bool top = hs_json_get(reader->root, name) || reader->type->longrope_alone;
    const HsJson *const place = top ? reader->root : rope;
    const bool said = top || hs_json_get(place, name) != NULL;
    HS_TRY(hs_model_add_member(reader, said ? place : reader->root,
                               reader->type->longrope_alone ? &phi
                               : said                       ? &here
                                                            : &all));
    *length = (double)reader->adoption->made.model.rope_original_positions;
    return HS_OK;
}

/* A list of numbers above 0 -> a list as YAML writes it; the caller frees. */
static HsStatus divisors_text(const HsModelReader *reader, const char *name, const HsJson *list, char **text)
{
    size_t size;
    char number[HS_MODEL_TEXT_BYTES];
    bool good = hs_json_is_array(list) && hs_json_count(list) > 0;
    FILE *stream = open_memstream(text, &size);
    if (!stream)
        return hs_fail(HS_ENOMEM, "no memory for %s", name);
    fprintf(stream, "[");
    for (const HsJson *item = hs_json_first(list); good && item; item = hs_json_next(item)) {
        good = hs_json_is_number(item) && hs_json_number(item) > 0 && isfinite(hs_json_number(item));
        fprintf(stream, "%s%s", item == hs_json_first(list) ? "" : ", ",
                hs_config_real_text(good ? hs_json_number(item) : 0, number));
    }
    fprintf(stream, "]");
    const bool written = fclose(stream) == 0;
    if (written && good)
        return HS_OK;
    free(*text);
    *text = NULL;
    return written ? hs_fail(HS_EFORMAT, "%s: %s must be a list of numbers above 0", reader->path, name)
                   : hs_fail(HS_ENOMEM, "no memory for %s", name);
}

static HsStatus add_divisors(const HsModelReader *reader, const HsJson *rope, const char *name, const char *key)
{
    char *text = NULL;
    HS_TRY(divisors_text(reader, name, hs_json_get(rope, name), &text));
    const HsStatus status = hs_model_add(reader, key, text, name);
    free(text);
    return status;
}

/* The factor, where it is missing or null how many times longer the model is. */
static HsStatus add_factor(const HsModelReader *reader, const HsJson *rope, bool may_be_missing, double original,
                           double *factor)
{
    static const HsModelRow row = { "rope_factor", { "factor" }, HS_ROW_REAL, NULL, false, NULL };
    char text[HS_MODEL_TEXT_BYTES];
    *factor = hs_json_number(hs_json_get(rope, "factor"));
    if (!may_be_missing || hs_model_member(rope, "factor"))
        return hs_model_add_member(reader, rope, &row);
    *factor = reader->adoption->made.model.max_positions > 0 && original > 0
                  ? (double)reader->adoption->made.model.max_positions / original
                  : 1;
    hs_config_real_text(*factor > 1 ? *factor : 1, text);
    return hs_model_add(reader, "rope_factor", text, "max_position_embeddings");
}

static HsStatus add_longrope(const HsModelReader *reader, const HsJson *rope)
{
    double original = 0, factor = 0;
    const HsJson *said = hs_model_member(rope, "attention_factor");
    char text[HS_MODEL_TEXT_BYTES] = "0";
    HS_TRY(add_original(reader, rope, &original));
    HS_TRY(add_factor(reader, rope, true, original, &factor));
    HS_TRY(add_divisors(reader, rope, "short_factor", "rope_short_divisors"));
    HS_TRY(add_divisors(reader, rope, "long_factor", "rope_long_divisors"));
    if (said)
        HS_TRY(hs_model_value_text(reader, "attention_factor", said, HS_ROW_REAL, text));
    return hs_model_add(reader, "rope_attention_factor", text, "attention_factor");
}

/* The rules of scaled positions, and what each reads. */
static HsStatus add_scaling(const HsModelReader *reader, const HsJson *rope, const char *kind)
{
    static const HsModelRow llama3[] = {
        { "rope_low_freq_factor", { "low_freq_factor" }, HS_ROW_REAL, NULL, false, NULL },
        { "rope_high_freq_factor", { "high_freq_factor" }, HS_ROW_REAL, NULL, false, NULL },
    };
    static const HsModelRow yarn[] = {
        { "rope_beta_fast", { "beta_fast" }, HS_ROW_REAL, "32", true, NULL },
        { "rope_beta_slow", { "beta_slow" }, HS_ROW_REAL, "1", true, NULL },
    };
    static const char *const refused[] = { "mrope_section", "short_factor", "long_factor" };
    const bool is_yarn = strcmp(kind, "yarn") == 0, is_longrope = strcmp(kind, "longrope") == 0;
    for (size_t i = 0; i < (is_longrope ? 1 : sizeof refused / sizeof refused[0]); i++)
        if (hs_model_member(rope, refused[i]))
            return hs_model_unsupported(reader, refused[i], hs_model_member(rope, refused[i]),
                                        "linear, llama3 and yarn without it");
    const HsJson *truncate = hs_json_get(rope, "truncate");
    double factor = 0, original = 0;
    if (is_yarn && truncate && !hs_json_is_true(truncate))
        return hs_model_unsupported(reader, "truncate", truncate, "true");
    HS_TRY(hs_model_add(reader, "rope_scaling", kind, "rope_type"));
    if (is_longrope)
        return add_longrope(reader, rope);
    if (strcmp(kind, "linear") == 0)
        return add_factor(reader, rope, false, 0, &factor);
    HS_TRY(add_original(reader, rope, &original));
    HS_TRY(add_factor(reader, rope, is_yarn && hs_json_is_null(hs_json_get(rope, "factor")), original, &factor));
    for (int i = 0; i < 2; i++)
        HS_TRY(hs_model_add_member(reader, rope, is_yarn ? &yarn[i] : &llama3[i]));
    return is_yarn ? add_attention_factor(reader, rope, factor) : HS_OK;
}

/* The share of a head that rotates: in the section, or at the top level. */
static HsStatus add_share(const HsModelReader *reader, const HsJson *rope, bool read)
{
    static const HsModelRow row = { "rope_share", { "partial_rotary_factor" }, HS_ROW_REAL, "1", true, NULL };
    const bool here = hs_model_member(rope, row.names[0]) != NULL;
    const HsJson *place = here ? rope : reader->root, *part = hs_model_member(place, row.names[0]);
    if (read)
        return hs_model_add_member(reader, place, &row);
    return part && !(hs_json_number(part) == 1.0)
               ? hs_model_unsupported(reader, "partial_rotary_factor", part, "rotation of whole heads")
               : HS_OK;
}

/* rope_scaling, and where that is absent, null or empty rope_parameters. */
static HsStatus find_section(const HsModelReader *reader, const HsJson **rope)
{
    *rope = NULL;
    for (int i = 0; i < 2 && hs_json_count(*rope) == 0; i++) {
        *rope = hs_model_member(reader->root, hs_model_rope_sections[i]);
        if (*rope && !hs_json_is_object(*rope))
            return hs_model_unsupported(reader, hs_model_rope_sections[i], *rope, "a section");
    }
    return HS_OK;
}

/* Of a type whose layers have different positions: rope_parameters has a section for each kind of layers, and older files
 * have rope_scaling, which is of the full ones. */
static HsStatus find_apart(const HsModelReader *reader, const char *layers, const HsJson **rope)
{
    const HsJson *scaling = hs_model_member(reader->root, hs_model_rope_sections[0]);
    const HsJson *both = hs_model_member(reader->root, hs_model_rope_sections[1]);
    const bool full = strcmp(layers, "full_attention") == 0;
    *rope = hs_model_member(both, layers);
    if (both && hs_json_count(both) > 0 && !hs_model_member(both, "full_attention") &&
        !hs_model_member(both, "sliding_attention"))
        return hs_model_unsupported(reader, hs_model_rope_sections[1], both,
                                    "sections full_attention and sliding_attention");
    if (full && hs_json_count(scaling) > 0)
        *rope = scaling;
    return *rope && !hs_json_is_object(*rope) ? hs_model_unsupported(reader, layers, *rope, "a section") : HS_OK;
}

/* What no section says stands at the top level. */
HsStatus hs_model_add_positions(const HsModelReader *reader)
{
    const HsModelType *const type = reader->type;
    const HsModelRow theta = { "rope_theta", { "rope_theta" }, HS_ROW_REAL, type->theta ? type->theta : "10000", false,
                               NULL };
    const HsJson *rope;
    HS_TRY(type->layers.kinds & HS_LAYERS_POSITIONS ? find_apart(reader, "full_attention", &rope)
                                                    : find_section(reader, &rope));
    for (const HsJson *part = hs_json_first(rope); part; part = hs_json_next(part))
        if (hs_json_is_object(part))
            return hs_model_unsupported(reader, hs_json_key(part), part, "one rule for all layers");
    const HsJson *both = hs_model_member(reader->root, hs_model_rope_sections[1]);
    const HsJson *full = hs_json_get(rope, "rope_theta") ? rope : hs_model_member(both, "full_attention");
    HS_TRY(hs_model_add_member(reader, hs_json_get(full, "rope_theta") ? full : reader->root, &theta));
    if (type->rotates_share)
        HS_TRY(add_share(reader, rope, true));
    const HsJson *kind = hs_json_get(rope, "rope_type") ? hs_json_get(rope, "rope_type") : hs_json_get(rope, "type");
    const char *name = kind ? hs_json_string(kind) : "default";
    if (name && type->longrope_alone && (strcmp(name, "su") == 0 || strcmp(name, "yarn") == 0))
        name = "longrope";
    if (name && strcmp(name, "default") == 0) /* which rotates whole heads, whatever share is said, but in some types */
        return hs_model_add(reader, "rope_scaling", "none", "rope_type");
    const bool longrope = name && strcmp(name, "longrope") == 0;
    if (type->longrope_alone && !longrope)
        return hs_model_unsupported(reader, "rope_type", kind, "default, longrope");
    if (!name || (!longrope && strcmp(name, "linear") != 0 && strcmp(name, "llama3") != 0 && strcmp(name, "yarn") != 0))
        return hs_model_unsupported(reader, "rope_type", kind, "default, linear, llama3, yarn, longrope");
    if (!type->rotates_share)
        HS_TRY(add_share(reader, rope, false));
    return add_scaling(reader, rope, name);
}

HsStatus hs_model_local_theta(const HsModelReader *reader, double *theta)
{
    const HsJson *rope, *value = NULL;
    HS_TRY(find_apart(reader, "sliding_attention", &rope));
    const HsJson *kind = hs_json_get(rope, "rope_type") ? hs_json_get(rope, "rope_type") : hs_json_get(rope, "type");
    if (kind && !(hs_json_string(kind) && strcmp(hs_json_string(kind), "default") == 0))
        return hs_model_unsupported(reader, "sliding_attention: rope_type", kind, "default");
    value = hs_model_member(rope, "rope_theta");
    if (!value && reader->type->layers.local_key)
        value = hs_model_member(reader->root, "rope_local_base_freq");
    if (value && !(hs_json_number(value) >= 1))
        return hs_model_unsupported(reader, "sliding_attention: rope_theta", value, "a number from 1 on");
    *theta = value ? hs_json_number(value) : *theta;
    return HS_OK;
}

/* --- as files have it --- */

static void write_divisors(const char *name, const HsStringList *list, HsJson *rope)
{
    HsJson *numbers = hs_json_array();
    for (int i = 0; i < list->count; i++)
        hs_json_append(numbers, hs_json_new_real(strtod(list->items[i], NULL)));
    hs_json_set(rope, name, numbers);
}

static void write_rule(const HsConfig *config, HsJson *rope)
{
    const char *const kind = config->model.rope_scaling;
    const bool yarn = strcmp(kind, "yarn") == 0, longrope = strcmp(kind, "longrope") == 0;
    hs_json_set_string(rope, "rope_type", kind);
    hs_json_set_real(rope, "factor", config->model.rope_factor);
    if (strcmp(kind, "linear") != 0)
        hs_json_set_integer(rope, "original_max_position_embeddings", config->model.rope_original_positions);
    if (strcmp(kind, "llama3") == 0) {
        hs_json_set_real(rope, "low_freq_factor", config->model.rope_low_freq_factor);
        hs_json_set_real(rope, "high_freq_factor", config->model.rope_high_freq_factor);
    }
    if (yarn) {
        hs_json_set_real(rope, "beta_fast", config->model.rope_beta_fast);
        hs_json_set_real(rope, "beta_slow", config->model.rope_beta_slow);
    }
    if (longrope) {
        write_divisors("short_factor", &config->model.rope_short_divisors, rope);
        write_divisors("long_factor", &config->model.rope_long_divisors, rope);
    }
    if ((yarn || longrope) && config->model.rope_attention_factor > 0)
        hs_json_set_real(rope, "attention_factor", config->model.rope_attention_factor);
}

/* The base of layers with a window; 0: they have the model's. */
static double local_theta(const HsConfig *config)
{
    HsAttentionKind kinds[HS_MOST_LAYERS];
    double theta = 0;
    for (int64_t layer = 0; hs_attention_kinds(config, kinds) == HS_OK && layer < config->model.layers; layer++)
        theta = kinds[layer].window > 0 ? kinds[layer].theta : theta;
    return theta;
}

/* In both spellings, where a kind of layers has different positions; rope_scaling is the older one of the full layers. */
static void write_apart(const HsConfig *config, const HsModelType *type, HsJson *root)
{
    const double own = local_theta(config), theta = own > 0 ? own : config->model.rope_theta;
    HsJson *both = hs_json_object(), *full = hs_json_object(), *sliding = hs_json_object();
    hs_json_set_string(full, "rope_type", "default");
    hs_json_set_string(sliding, "rope_type", "default");
    if (!hs_is(config->model.rope_scaling, "none")) {
        HsJson *scaling = hs_json_object();
        write_rule(config, scaling);
        write_rule(config, full);
        hs_json_set(root, "rope_scaling", scaling);
    }
    hs_json_set_real(full, "rope_theta", config->model.rope_theta);
    hs_json_set_real(sliding, "rope_theta", theta);
    hs_json_set(both, "full_attention", full);
    hs_json_set(both, "sliding_attention", sliding);
    hs_json_set(root, "rope_parameters", both);
    if (type->layers.local_key)
        hs_json_set_real(root, "rope_local_base_freq", theta);
}

void hs_model_write_positions(const HsConfig *config, const HsModelType *type, HsJson *root)
{
    hs_json_set_real(root, "rope_theta", config->model.rope_theta);
    if (type->rotates_share)
        hs_json_set_real(root, "partial_rotary_factor", config->model.rope_share);
    if (type->layers.kinds & HS_LAYERS_POSITIONS) {
        write_apart(config, type, root);
        return;
    }
    if (type->longrope_alone && config->model.rope_original_positions > 0) /* which goes before the section's */
        hs_json_set_integer(root, "original_max_position_embeddings", config->model.rope_original_positions);
    if (hs_is(config->model.rope_scaling, "none"))
        return;
    HsJson *rope = hs_json_object();
    write_rule(config, rope);
    hs_json_set(root, "rope_scaling", rope);
}
