/* SPDX-License-Identifier: MIT
 *
 * The points of a front when nothing is named: every strategy at a few strengths, between the ends none and joint.
 *
 * Strengths are a factor of two to four apart, around the defaults.  A strength of EWC is in the Fisher information's
 * own unit, nats a token, and with factors, as `auto` takes it: there one number means the same for models of any size.
 *
 * With adapters the axes are rank, targets, learning rate and strategy: each strategy at the configuration's own values
 * and with one of them changed, since the product of all would be ten times as many runs.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/base/log.h"
#include "runtime/study/compare_runs.h"

/* Whole models. */
static const char *const whole_points[] = {
    "none",
    "joint",
    "er:replay.fraction=0.05",
    "er:replay.fraction=0.1",
    "er:replay.fraction=0.25",
    "er:replay.fraction=0.5",
    "mer:replay.fraction=0.05",
    "mer:replay.fraction=0.1",
    "mer:replay.fraction=0.25",
    "mer:replay.fraction=0.5",
    "mer:replay.fraction=0.25:mer.gamma=0.5",
    "mer:replay.fraction=0.25:mer.gamma=0.9",
    "der++:der.alpha=0.05",
    "der++:der.alpha=0.2",
    "der++:der.alpha=0.5",
    "a-gem",
    "ewc+er",
    "ewc",
    "ewc:ewc.lambda=1:ewc.curvature=kronecker",
    "ewc:ewc.lambda=10:ewc.curvature=kronecker",
    "ewc:ewc.lambda=100:ewc.curvature=kronecker",
    "ewc:ewc.lambda=1000:ewc.curvature=kronecker",
    "si",
    "si:si.strength=1",
    "si:si.strength=10",
    "si:si.strength=100",
    "l2",
    "l2:l2.lambda=0.01",
    "l2:l2.lambda=0.1",
    "l2:l2.lambda=1",
    "lwf:lwf.alpha=1",
    "lwf:lwf.alpha=3",
    "lwf:lwf.alpha=10",
    "lwf:lwf.alpha=30",
    "generative:replay.fraction=0.1",
    "generative:replay.fraction=0.25",
    "generative:replay.fraction=0.5",
    "merge:merge.share=0.3",
    "merge:merge.share=0.5",
    "merge:merge.share=0.7",
};

/* Adapters: with each setting, and those that stand once. */
static const char *const adapter_strategies[] = { "none", "er:replay.fraction=0.25", "ewc", "lwf" };
static const char *const adapter_points[] = {
    "joint",
    "er:replay.fraction=0.05",
    "er:replay.fraction=0.5",
    "generative",
    "merge:merge.share=0.3",
    "merge:merge.share=0.5",
    "merge:merge.share=0.7",
    "inc-lora",
    "o-lora",
};
static const char *const target_names[] = { "attention", "mlp", "all-linear" };

enum { WHOLE_POINTS = sizeof whole_points / sizeof *whole_points };
enum { ADAPTER_POINTS = sizeof adapter_points / sizeof *adapter_points };
enum { ADAPTER_STRATEGIES = sizeof adapter_strategies / sizeof *adapter_strategies };
enum { TARGETS = sizeof target_names / sizeof *target_names };
enum { SETTING_BYTES = 160, SETTINGS_MOST = 8, RANK_FACTOR = 4, RANK_MOST = 4096 };

/* alpha stays the same multiple of the rank: another rank alone would scale the change, too. */
static void write_rank(const HsConfig *config, int64_t rank, char text[SETTING_BYTES])
{
    const double alpha = config->adapter.alpha * (double)rank / (double)config->adapter.rank;
    snprintf(text, SETTING_BYTES, ":adapter.rank=%" PRId64 ":adapter.alpha=%g", rank, alpha);
}

/* The decay ends at the same share of the rate. */
static void write_rate(const HsConfig *config, double factor, char text[SETTING_BYTES])
{
    const int used = snprintf(text, SETTING_BYTES, ":learning_rate=%g", factor * config->training.learning_rate);
    if (config->schedule.min_learning_rate > 0)
        snprintf(text + used, SETTING_BYTES - (size_t)used, ":schedule.min_learning_rate=%g",
                 factor * config->schedule.min_learning_rate);
}

static bool lists(const HsStringList *list, const char *name)
{
    for (int i = 0; i < list->count; i++)
        if (strcmp(list->items[i], name) == 0)
            return true;
    return false;
}

/* Whether the configuration's targets are these: attention and mlp together are all of a block's linear layers. */
static bool has_targets(const HsStringList *targets, const char *name)
{
    if (targets->count == 2 && strcmp(name, "all-linear") == 0)
        return lists(targets, "attention") && lists(targets, "mlp");
    return targets->count == 1 && lists(targets, name);
}

/* The configuration's own values, then one changed at a time. */
static int list_settings(const HsConfig *config, char settings[SETTINGS_MOST][SETTING_BYTES])
{
    const int64_t rank = config->adapter.rank;
    int count = 0;
    settings[count++][0] = '\0';
    if (rank / RANK_FACTOR >= 1)
        write_rank(config, rank / RANK_FACTOR, settings[count++]);
    if (rank * RANK_FACTOR <= RANK_MOST)
        write_rank(config, rank * RANK_FACTOR, settings[count++]);
    for (int i = 0; i < TARGETS; i++)
        if (!has_targets(&config->adapter.targets, target_names[i]))
            snprintf(settings[count++], SETTING_BYTES, ":adapter.targets=%s", target_names[i]);
    write_rate(config, 0.3, settings[count++]);
    write_rate(config, 3, settings[count++]);
    return count;
}

static void write_points(const HsConfig *config, FILE *stream)
{
    if (hs_is(config->adapter.kind, "none")) {
        for (int i = 0; i < WHOLE_POINTS; i++)
            fprintf(stream, "%s%s", i > 0 ? "," : "", whole_points[i]);
        return;
    }
    char settings[SETTINGS_MOST][SETTING_BYTES];
    const int count = list_settings(config, settings);
    for (int i = 0; i < ADAPTER_STRATEGIES; i++)
        for (int setting = 0; setting < count; setting++)
            fprintf(stream, "%s%s%s", i + setting > 0 ? "," : "", adapter_strategies[i], settings[setting]);
    for (int i = 0; i < ADAPTER_POINTS; i++)
        fprintf(stream, ",%s", adapter_points[i]);
}

/* A point of the table that the configuration has as another one already: its own mer.gamma, say. */
static int find_equal(const HsConfig *config, const HsConfig *kept, const int *variants, int count)
{
    static const char *const ignored[] = { "out_dir", NULL };
    char keys[64];
    for (int i = 0; i < count; i++)
        if (hs_config_differences(config, &kept[i], HS_RESUME_ANY, ignored, keys, sizeof keys) == 0)
            return variants[i];
    return -1;
}

/* Of each point that stays its configuration and its number; returns how many stay. */
static int keep_points(const HsComparison *comparison, HsConfig *kept, int *variants)
{
    int count = 0;
    for (int i = 0; i < comparison->variants.count; i++) {
        HsConfig *config = &kept[count];
        if (hs_compare_load(comparison, i, comparison->first_seed, 1, config) != HS_OK) {
            hs_info("left out of the front: %s", hs_error_message());
            continue;
        }
        const int equal = find_equal(config, kept, variants, count);
        if (equal >= 0) {
            hs_info("left out of the front: %s is %s in this configuration", comparison->variants.items[i].label,
                    comparison->variants.items[equal].label);
            hs_config_deinit(config);
            continue;
        }
        variants[count++] = i;
    }
    return count;
}

/* The labels of the points that stay, between commas, on the heap. */
static char *join_labels(const HsVariants *variants, const int *kept, int count)
{
    char *text = NULL;
    size_t bytes = 0;
    FILE *stream = open_memstream(&text, &bytes);
    for (int i = 0; i < count && stream; i++)
        fprintf(stream, "%s%s", i > 0 ? "," : "", variants->items[kept[i]].label);
    if (stream && fclose(stream) == 0)
        return text;
    free(text);
    return NULL;
}

/* What the configuration refuses is no point of its front, nor what it has twice, and the log says so. */
static HsStatus leave_out(HsComparison *comparison)
{
    const size_t count = (size_t)comparison->variants.count;
    HsConfig *configs = calloc(count, sizeof *configs);
    int *variants = calloc(count, sizeof *variants), kept = 0;
    if (configs && variants) {
        kept = keep_points(comparison, configs, variants);
        comparison->table = join_labels(&comparison->variants, variants, kept);
    }
    for (int i = 0; i < kept; i++)
        hs_config_deinit(&configs[i]);
    free(configs);
    free(variants);
    if (!comparison->table)
        return hs_fail(HS_ENOMEM, "no memory for the table of a front");
    if (kept < 2)
        return hs_fail(HS_ECONFIG,
                       "%s: of the strategies that --front compares the configuration allows %d, and two are needed: "
                       "name some with "
                       "--strategies",
                       comparison->options->config_path, kept);
    return HS_OK;
}

HsStatus hs_front_table(HsComparison *comparison)
{
    const HsCompareOptions *options = comparison->options;
    HsConfig config;
    char *all = NULL;
    size_t bytes = 0;
    HS_TRY(hs_config_parse(&config, options->config_path, comparison->text, comparison->length, options->override_count,
                           options->overrides));
    FILE *stream = open_memstream(&all, &bytes);
    if (stream)
        write_points(&config, stream);
    const bool made = stream && fclose(stream) == 0;
    hs_config_deinit(&config);
    HsStatus status = made ? HS_OK : hs_fail(HS_ENOMEM, "no memory for the table of a front");
    if (status == HS_OK)
        status = hs_variants_parse(all, NULL, 0, &comparison->variants);
    if (status == HS_OK)
        status = leave_out(comparison);
    if (status == HS_OK) {
        hs_variants_deinit(&comparison->variants);
        status = hs_variants_parse(comparison->table, NULL, 0, &comparison->variants);
    }
    free(all);
    return status;
}
