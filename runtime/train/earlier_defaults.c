/* SPDX-License-Identifier: MIT
 *
 * Keys whose default changed between versions.  A run that is resumed keeps what it began with: where the configuration
 * does not set such a key, and the checkpoint's run had the earlier default (or is from before there was the key), it is
 * set to that, and said.
 */
#include <stdlib.h>
#include <string.h>

#include "kernels/base/log.h"
#include "runtime/config/table.h"
#include "runtime/train/trainer.h"

static const struct {
    const char *section, *name, *earlier;
} rows[] = {
    { "mer", "beta", "1" },
    { "mer", "gamma", "0.7" },
    { "mer", "compensate_learning_rate", "false" },
    { "replay", "late_part", "0" }, /* since then */
    { "replay", "draw", "any" },    /* since then */
    { "continual", "schedule", "fresh" },
    { "continual", "optimizer_state", "reset" },
    { "generative", "top_k", "20" },
    { "generative", "alpha", "0" }, /* since then */
};

static HsStatus set(HsConfig *config, const char *section, const char *name, const char *text)
{
    char copy[32];
    snprintf(copy, sizeof copy, "%s", text);
    const HsYaml value = { .kind = HS_YAML_SCALAR, .text = copy, .plain = text[0] != 0 };
    return hs_config_value_set(hs_config_key_find(section, name), NULL, &value, config);
}

/* Documents end as they did when the run began: earlier versions did not read a folder's eos_token, and where the
 * configuration does not set it, it is that now. */
static HsStatus keep_end_of_text(HsConfig *config, const HsConfig *saved)
{
    if (config->tokenizer.end_of_text[0] == '\0' || hs_config_is_set(config, "tokenizer.end_of_text") ||
        saved->tokenizer.end_of_text[0] != '\0')
        return HS_OK;
    hs_info("documents end as this run began, by the tokenizer's usual name of an end; a new run takes %s",
            config->tokenizer.end_of_text);
    return set(config, "tokenizer", "end_of_text", "");
}

HsStatus hs_trainer_complete_saved(HsConfig *saved)
{
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char dotted[64];
        snprintf(dotted, sizeof dotted, "%s.%s", rows[i].section, rows[i].name);
        if (!hs_config_is_set(saved, dotted))
            HS_TRY(set(saved, rows[i].section, rows[i].name, rows[i].earlier));
    }
    return HS_OK;
}

/* The checkpoint's value is the earlier default. */
static bool had_earlier(const HsConfig *saved, int row)
{
    const HsConfigKey *key = hs_config_key_find(rows[row].section, rows[row].name);
    char text[64] = "", *end;
    FILE *stream = fmemopen(text, sizeof text, "w");
    if (!stream)
        return false;
    hs_config_value_print(key, saved, stream);
    fclose(stream);
    const double number = strtod(text, &end);
    if (end > text)
        return number == strtod(rows[row].earlier, NULL);
    const size_t quote = text[0] == '"', length = strlen(rows[row].earlier); /* words that YAML might take for others */
    return strncmp(text + quote, rows[row].earlier, length) == 0 && strlen(text) == length + 2 * quote;
}

HsStatus hs_trainer_keep_defaults(HsConfig *config, const HsConfig *saved)
{
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char dotted[64];
        snprintf(dotted, sizeof dotted, "%s.%s", rows[i].section, rows[i].name);
        if (hs_config_is_set(config, dotted) || !had_earlier(saved, (int)i))
            continue;
        HS_TRY(set(config, rows[i].section, rows[i].name, rows[i].earlier));
        hs_info("%s: %s, as this run began; a new run has another default", dotted, rows[i].earlier);
    }
    return keep_end_of_text(config, saved);
}
