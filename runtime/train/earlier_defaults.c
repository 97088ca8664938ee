/* SPDX-License-Identifier: MIT
 *
 * Keys with a default that changed between versions.  A run that is resumed keeps what it began with: where the
 * configuration does not set such a key, and the checkpoint's run had the earlier default (or is from before there was
 * the key), it is set to that, with a line in the log.
 */
#include <string.h>

#include "kernels/base/log.h"
#include "runtime/config/table.h"
#include "runtime/train/run.h"

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

HsStatus hs_run_complete_saved(HsConfig *saved)
{
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char dotted[64];
        snprintf(dotted, sizeof dotted, "%s.%s", rows[i].section, rows[i].name);
        if (!hs_config_is_set(saved, dotted))
            HS_TRY(set(saved, rows[i].section, rows[i].name, rows[i].earlier));
    }
    return HS_OK;
}

HsStatus hs_run_keep_defaults(HsConfig *config, const HsConfig *saved)
{
    HsConfig then;
    HS_TRY(hs_config_init(&then));
    HsStatus status = hs_run_complete_saved(&then); /* nothing is set in it: all rows have their earlier default */
    for (size_t i = 0; i < sizeof rows / sizeof *rows && status == HS_OK; i++) {
        const HsConfigKey *key = hs_config_key_find(rows[i].section, rows[i].name);
        char dotted[HS_DOTTED_BYTES];
        if (hs_config_is_set(config, hs_config_key_dotted(key, dotted)) || !hs_config_value_equal(key, &then, saved))
            continue;
        status = set(config, rows[i].section, rows[i].name, rows[i].earlier);
        hs_info("%s: %s, as this run began; a new run has another default", dotted, rows[i].earlier);
    }
    hs_config_deinit(&then);
    return status == HS_OK ? keep_end_of_text(config, saved) : status;
}
