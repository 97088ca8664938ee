/* SPDX-License-Identifier: MIT
 *
 * The rotary embedding of a config.json: base, rule of scaling and its lengths, by the precedence of transformers 5.24
 * (docs/huggingface-folders.md has the table).
 */
#include <math.h>
#include <string.h>

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
    static const HsModelRow here = { "rope_original_positions", { name }, HS_ROW_WHOLE, NULL, false };
    static const HsModelRow all = {
        "rope_original_positions", { "max_position_embeddings" }, HS_ROW_WHOLE, NULL, false
    };
    const HsJson *const place = hs_json_get(reader->root, name) ? reader->root : rope;
    const bool said = hs_json_get(place, name) != NULL;
    *length = hs_json_number(hs_json_get(said ? place : reader->root, said ? name : all.names[0]));
    return hs_model_add_member(reader, said ? place : reader->root, said ? &here : &all);
}

/* The rules of scaled positions, and what each reads. */
static HsStatus add_scaling(const HsModelReader *reader, const HsJson *rope, const char *kind)
{
    static const HsModelRow factor_row = { "rope_factor", { "factor" }, HS_ROW_REAL, NULL, false };
    static const HsModelRow llama3[] = {
        { "rope_low_freq_factor", { "low_freq_factor" }, HS_ROW_REAL, NULL, false },
        { "rope_high_freq_factor", { "high_freq_factor" }, HS_ROW_REAL, NULL, false },
    };
    static const HsModelRow yarn[] = {
        { "rope_beta_fast", { "beta_fast" }, HS_ROW_REAL, "32", true },
        { "rope_beta_slow", { "beta_slow" }, HS_ROW_REAL, "1", true },
    };
    static const char *const refused[] = { "mrope_section", "short_factor", "long_factor" };
    for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++)
        if (hs_model_member(rope, refused[i]))
            return hs_model_unsupported(reader, refused[i], hs_model_member(rope, refused[i]),
                                        "linear, llama3 and yarn without it");
    const HsJson *truncate = hs_json_get(rope, "truncate");
    const bool is_yarn = strcmp(kind, "yarn") == 0;
    double factor = hs_json_number(hs_json_get(rope, "factor")), original = 0;
    if (is_yarn && truncate && !hs_json_is_true(truncate))
        return hs_model_unsupported(reader, "truncate", truncate, "true");
    HS_TRY(hs_model_add(reader, "rope_scaling", kind, "rope_type"));
    if (strcmp(kind, "linear") == 0)
        return hs_model_add_member(reader, rope, &factor_row);
    HS_TRY(add_original(reader, rope, &original));
    if (is_yarn && hs_json_is_null(hs_json_get(rope, "factor"))) { /* null: how many times longer it is */
        char text[HS_MODEL_TEXT_BYTES];
        factor = hs_json_number(hs_model_member(reader->root, "max_position_embeddings")) / original;
        hs_config_real_text(factor, text);
        HS_TRY(hs_model_add(reader, "rope_factor", text, "max_position_embeddings"));
    } else {
        HS_TRY(hs_model_add_member(reader, rope, &factor_row));
    }
    for (int i = 0; i < 2; i++)
        HS_TRY(hs_model_add_member(reader, rope, is_yarn ? &yarn[i] : &llama3[i]));
    return is_yarn ? add_attention_factor(reader, rope, factor) : HS_OK;
}

/* rope_scaling, and where that is absent, null or empty rope_parameters; what neither says stands at the top level. */
HsStatus hs_model_add_positions(const HsModelReader *reader)
{
    static const HsModelRow theta = { "rope_theta", { "rope_theta" }, HS_ROW_REAL, "10000", false };
    const HsJson *rope = NULL;
    for (int i = 0; i < 2 && hs_json_count(rope) == 0; i++) {
        rope = hs_model_member(reader->root, hs_model_rope_sections[i]);
        if (rope && !hs_json_is_object(rope))
            return hs_model_unsupported(reader, hs_model_rope_sections[i], rope, "a section");
    }
    for (const HsJson *part = hs_json_first(rope); part; part = hs_json_next(part))
        if (hs_json_is_object(part))
            return hs_model_unsupported(reader, hs_json_key(part), part, "one rule for all layers");
    HS_TRY(hs_model_add_member(reader, hs_json_get(rope, "rope_theta") ? rope : reader->root, &theta));
    const HsJson *kind = hs_json_get(rope, "rope_type") ? hs_json_get(rope, "rope_type") : hs_json_get(rope, "type");
    const char *const name = kind ? hs_json_string(kind) : "default";
    if (name && strcmp(name, "default") == 0) /* which rotates whole heads, whatever share is said */
        return hs_model_add(reader, "rope_scaling", "none", "rope_type");
    if (!name || (strcmp(name, "linear") != 0 && strcmp(name, "llama3") != 0 && strcmp(name, "yarn") != 0))
        return hs_model_unsupported(reader, "rope_type", kind, "default, linear, llama3, yarn");
    const HsJson *part = hs_json_get(rope, "partial_rotary_factor");
    part = part ? part : hs_model_member(reader->root, "partial_rotary_factor");
    if (part && !(hs_json_number(part) == 1.0))
        return hs_model_unsupported(reader, "partial_rotary_factor", part, "rotation of whole heads");
    return add_scaling(reader, rope, name);
}
