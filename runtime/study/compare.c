/* SPDX-License-Identifier: MIT
 *
 * A run of a comparison is an ordinary run with a few overrides: nothing is measured here that a single run would not
 * measure, and every one of them can be looked at by itself afterwards.
 */
#include "runtime/study/compare.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/base/log.h"
#include "runtime/study/compare_page.h"
#include "runtime/train/trainer.h"

enum { PRINTED_COLUMNS = 200 }; /* every column and spread: the table is made to be kept */
enum { MAX_VARIANTS = 64, MAX_OVERRIDES = 320, TEXT_BYTES = 512, PATH_BYTES = 4 * TEXT_BYTES };

typedef struct Variant {
    char *label;               /* as written: owns the text that the others point into */
    char folder[TEXT_BYTES];   /* the label, safe as a file name */
    char strategy[TEXT_BYTES]; /* "continual.strategy=[ewc, er]" */
    char *parts;               /* the label again, cut at its colons */
    const char *overrides[MAX_OVERRIDES];
    int override_count;
} Variant;

typedef struct Comparison {
    const HsCompareOptions *options;
    char out_dir[TEXT_BYTES];
    int64_t first_seed;
    Variant variants[MAX_VARIANTS];
    int variant_count;
    HsRunResult *results; /* [variant_count, seeds] */
} Comparison;

static void make_folder(Variant *variant)
{
    snprintf(variant->folder, sizeof variant->folder, "%s", variant->label);
    for (char *c = variant->folder; *c; c++)
        if (!isalnum((unsigned char)*c) && !strchr("+-._=", *c))
            *c = '_';
}

/* "ewc+er:ewc.lambda=10" */
static HsStatus parse_variant(const char *text, size_t length, Variant *variant)
{
    variant->label = strndup(text, length);
    variant->parts = strndup(text, length);
    if (!variant->label || !variant->parts)
        return hs_fail(HS_ENOMEM, "out of memory for a comparison's variants");
    if (length == 0 || length > TEXT_BYTES / 2)
        return hs_fail(HS_ECONFIG,
                       "--strategies: `%.60s` is not a variant; write names between commas, such as none,ewc,er",
                       variant->label);
    make_folder(variant);
    char *rest = variant->parts, *names = strsep(&rest, ":");
    for (char *part = strsep(&rest, ":"); part; part = strsep(&rest, ":")) {
        if (variant->override_count == MAX_OVERRIDES || !strchr(part, '='))
            return hs_fail(HS_ECONFIG, "--strategies: `%.60s` in %.60s is not of the form section.key=value", part,
                           variant->label);
        variant->overrides[variant->override_count++] = part;
    }
    size_t used = (size_t)snprintf(variant->strategy, sizeof variant->strategy, "continual.strategy=[");
    bool first = true;
    for (char *name = strsep(&names, "+"); name; name = strsep(&names, "+")) {
        if (!hs_strategy_find(name))
            return hs_fail(HS_ECONFIG, "--strategies: there is no strategy `%.60s`", name);
        used += (size_t)snprintf(variant->strategy + used, sizeof variant->strategy - used, "%s%s", first ? "" : ", ",
                                 name);
        first = false;
    }
    snprintf(variant->strategy + used, sizeof variant->strategy - used, "]");
    return HS_OK;
}

static HsStatus parse_variants(Comparison *comparison)
{
    const char *text = comparison->options->variants;
    for (;;) {
        size_t length = strcspn(text, ",");
        if (comparison->variant_count == MAX_VARIANTS)
            return hs_fail(HS_ECONFIG, "--strategies lists more than %d variants", MAX_VARIANTS);
        HS_TRY(parse_variant(text, length, &comparison->variants[comparison->variant_count++]));
        const char *label = comparison->variants[comparison->variant_count - 1].label;
        for (int i = 0; i < comparison->variant_count - 1; i++)
            if (strcmp(comparison->variants[i].label, label) == 0)
                return hs_fail(HS_ECONFIG, "--strategies lists %.60s twice", label);
        if (text[length] == '\0')
            return HS_OK;
        text += length + 1;
    }
}

static void run_folder(const Comparison *comparison, const Variant *variant, int64_t seed, char folder[PATH_BYTES])
{
    snprintf(folder, PATH_BYTES, "%s/%s-seed%lld", comparison->out_dir, variant->folder, (long long)seed);
}

static HsStatus load_config(const Comparison *comparison, const Variant *variant, int64_t seed, HsConfig *config)
{
    const HsCompareOptions *options = comparison->options;
    char seed_text[64], out_text[PATH_BYTES + 16], folder[PATH_BYTES];
    run_folder(comparison, variant, seed, folder);
    snprintf(seed_text, sizeof seed_text, "seed=%lld", (long long)seed);
    snprintf(out_text, sizeof out_text, "out_dir=\"%s\"", folder);
    const char *all[2 * MAX_OVERRIDES + 8];
    int count = 0;
    all[count++] = "logging.progress=none";
    for (int i = 0; i < options->override_count; i++)
        all[count++] = options->overrides[i];
    all[count++] = variant->strategy;
    for (int i = 0; i < variant->override_count; i++)
        all[count++] = variant->overrides[i];
    all[count++] = seed_text;
    all[count++] = out_text;
    HsStatus status = hs_config_load(config, options->config_path, count, all);
    return status == HS_OK ? HS_OK : hs_error_prefix(status, "variant %.60s", variant->label);
}

static HsStatus run_trainer(HsConfig *config)
{
    HsTrainer trainer;
    HS_TRY(hs_trainer_create(config, &trainer));
    HsStatus status = hs_trainer_run(&trainer);
    hs_trainer_destroy(&trainer);
    return status;
}

static HsStatus run(Comparison *comparison, int index, int64_t repeat)
{
    const Variant *variant = &comparison->variants[index];
    int64_t seed = comparison->first_seed + repeat;
    char folder[PATH_BYTES];
    run_folder(comparison, variant, seed, folder);
    HsConfig config;
    HS_TRY(load_config(comparison, variant, seed, &config));
    double began_s = hs_clock_s();
    hs_log_set_level(HS_LOG_WARNING); /* dozens of runs: only what goes wrong */
    HsStatus status = run_trainer(&config);
    hs_log_set_level(HS_LOG_INFO);
    hs_config_deinit(&config);
    if (status != HS_OK)
        return hs_error_prefix(status, "%s", folder);
    HsRunResult *result = &comparison->results[index * comparison->options->seeds + repeat];
    HS_TRY(hs_run_result_read(folder, result));
    HsMatrixSummary summary = hs_matrix_summary(&result->matrix);
    hs_info("run %lld of %lld: %s, seed %lld: retained %.4f, forgetting %.4f (%.0f s)",
            (long long)(repeat * comparison->variant_count + index + 1),
            (long long)(comparison->variant_count * comparison->options->seeds), variant->label, (long long)seed,
            summary.retained, summary.forgetting, hs_clock_s() - began_s);
    return HS_OK;
}

static HsStatus report(const Comparison *comparison)
{
    HsCompareRow rows[MAX_VARIANTS];
    for (int i = 0; i < comparison->variant_count; i++)
        rows[i] = (HsCompareRow){ .name = comparison->variants[i].label,
                                  .seeds = (int)comparison->options->seeds,
                                  .results = comparison->results + i * comparison->options->seeds };
    char html[TEXT_BYTES + 32], json[TEXT_BYTES + 32];
    snprintf(html, sizeof html, "%s/compare.html", comparison->out_dir);
    snprintf(json, sizeof json, "%s/compare.json", comparison->out_dir);
    HS_TRY(hs_compare_write_html(html, comparison->options->config_path, rows, comparison->variant_count));
    HS_TRY(hs_compare_write_json(json, rows, comparison->variant_count));
    HS_TRY(hs_compare_print(rows, comparison->variant_count, PRINTED_COLUMNS, stdout));
    printf("page: %s\n", html);
    return HS_OK;
}

static HsStatus compare(Comparison *comparison)
{
    const HsCompareOptions *options = comparison->options;
    HsConfig config;
    HS_TRY(parse_variants(comparison));
    HS_TRY(hs_config_load(&config, options->config_path, options->override_count, options->overrides));
    comparison->first_seed = config.training.seed;
    int tasks = config.task_count;
    snprintf(comparison->out_dir, sizeof comparison->out_dir, "%s%s",
             options->out_dir ? options->out_dir : config.training.out_dir, options->out_dir ? "" : "-compare");
    hs_config_deinit(&config);
    if (tasks < 2)
        return hs_fail(HS_ECONFIG, "%s: a comparison of strategies needs at least two tasks", options->config_path);
    size_t count = (size_t)comparison->variant_count * (size_t)options->seeds;
    comparison->results = calloc(count, sizeof *comparison->results);
    if (!comparison->results)
        return hs_fail(HS_ENOMEM, "no memory for %zu runs' results", count);
    /* What no variant can be loaded with is found before the first has trained for an hour. */
    for (int i = 0; i < comparison->variant_count; i++) {
        HS_TRY(load_config(comparison, &comparison->variants[i], comparison->first_seed, &config));
        hs_config_deinit(&config);
    }
    for (int64_t repeat = 0; repeat < options->seeds; repeat++)
        for (int i = 0; i < comparison->variant_count; i++)
            HS_TRY(run(comparison, i, repeat));
    return report(comparison);
}

HsStatus hs_compare(const HsCompareOptions *options)
{
    Comparison *comparison = calloc(1, sizeof *comparison);
    if (!comparison)
        return hs_fail(HS_ENOMEM, "no memory for a comparison");
    comparison->options = options;
    HsStatus status = compare(comparison);
    for (int i = 0; i < comparison->variant_count; i++) {
        free(comparison->variants[i].label);
        free(comparison->variants[i].parts);
    }
    for (int64_t i = 0; comparison->results && i < comparison->variant_count * options->seeds; i++)
        hs_run_result_deinit(&comparison->results[i]);
    free(comparison->results);
    free(comparison);
    return status;
}
