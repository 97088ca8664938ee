/* SPDX-License-Identifier: MIT
 *
 * See huggingface_reader.h.
 */
#include "runtime/config/huggingface_reader.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/config/table.h"

const char *hs_model_show(const HsJson *value, char *text, size_t size)
{
    char *written = hs_json_write(value, false);
    snprintf(text, size, "%.60s", written ? written : "?");
    free(written);
    return text;
}

HsStatus hs_model_unsupported(const HsModelReader *reader, const char *key, const HsJson *value, const char *supported)
{
    char text[HS_MODEL_TEXT_BYTES];
    return hs_fail(HS_EUNSUPPORTED, "%s: %s is %s, which is not supported; supported: %s", reader->path, key,
                   hs_model_show(value, text, sizeof text), supported);
}

HsStatus hs_model_value_text(const HsModelReader *reader, const char *name, const HsJson *value, HsRowKind kind,
                             char text[HS_MODEL_TEXT_BYTES])
{
    const double number = hs_json_number(value);
    if (kind == HS_ROW_TEXT && hs_json_is_string(value))
        snprintf(text, HS_MODEL_TEXT_BYTES, "%s", hs_json_string(value));
    else if (kind == HS_ROW_YES_NO && hs_json_is_bool(value))
        snprintf(text, HS_MODEL_TEXT_BYTES, "%s", hs_json_is_true(value) ? "true" : "false");
    else if (kind == HS_ROW_WHOLE && hs_json_is_number(value) && number >= 0 && number <= 1e15 &&
             floor(number) == number)
        snprintf(text, HS_MODEL_TEXT_BYTES, "%.0f", number);
    else if (kind == HS_ROW_REAL && hs_json_is_number(value) && isfinite(number))
        hs_config_real_text(number, text);
    else if (kind >= HS_ROW_INVERSE && hs_json_is_number(value) && isfinite(number) && number > 0)
        hs_config_real_text(1.0 / (kind == HS_ROW_INVERSE ? number : sqrt(number)), text);
    else
        return hs_fail(HS_EFORMAT, "%s: %s must be %s (got %s)", reader->path, name,
                       kind == HS_ROW_YES_NO  ? "true or false"
                       : kind == HS_ROW_WHOLE ? "a whole number"
                       : kind == HS_ROW_TEXT  ? "a text"
                       : kind == HS_ROW_REAL  ? "a number"
                                              : "a number above 0",
                       hs_model_show(value, text, HS_MODEL_TEXT_BYTES));
    return HS_OK;
}

HsStatus hs_model_refuse_null(const HsModelReader *reader, const char *name)
{
    return hs_fail(HS_EFORMAT, "%s: %s is null: give its value, or leave the key out", reader->path, name);
}

const HsJson *hs_model_member(const HsJson *object, const char *name)
{
    const HsJson *value = name ? hs_json_get(object, name) : NULL;
    return value && !hs_json_is_null(value) ? value : NULL;
}

HsStatus hs_model_add(const HsModelReader *reader, const char *key, const char *text, const char *from)
{
    return hs_adoption_add(reader->adoption, "model", key, text, from);
}

HsStatus hs_model_add_member(const HsModelReader *reader, const HsJson *object, const HsModelRow *row)
{
    char text[HS_MODEL_TEXT_BYTES];
    for (int i = 0; i < 2 && row->names[i]; i++) {
        const HsJson *value = hs_json_get(object, row->names[i]);
        if (value && hs_json_is_null(value) && !row->may_be_null)
            return hs_model_refuse_null(reader, row->names[i]);
        if (value && hs_json_is_null(value) && row->null_means)
            return hs_model_add(reader, row->key, row->null_means, row->names[i]);
        if (!value || hs_json_is_null(value))
            continue;
        HS_TRY(hs_model_value_text(reader, row->names[i], value, row->kind, text));
        return hs_model_add(reader, row->key, text, row->names[i]);
    }
    if (!row->missing)
        return hs_fail(HS_EFORMAT, "%s: %s is missing", reader->path, row->names[0]);
    return row->missing[0] ? hs_model_add(reader, row->key, row->missing, row->names[0]) : HS_OK;
}
