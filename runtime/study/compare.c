/* SPDX-License-Identifier: MIT
 *
 * What can be known to be wrong is said before the first run has trained for an hour; then the runs, then the pages.
 */
#include "runtime/study/compare.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/base/clock.h"
#include "kernels/base/log.h"
#include "runtime/config/continual.h"
#include "runtime/io/files.h"
#include "runtime/io/storage.h"
#include "runtime/study/compare_page.h"
#include "runtime/study/compare_runs.h"
#include "runtime/study/halving.h"

enum { PRINTED_COLUMNS = 200 }; /* every column and spread: the table is made to be kept */
enum { CONFIG_MOST_BYTES = 1 << 20 };

static HsStatus report(const HsComparison *comparison, const HsCompareRow *rows)
{
    char html[HS_COMPARE_PATH_BYTES], json[HS_COMPARE_PATH_BYTES];
    const int count = comparison->variants.count;
    snprintf(html, sizeof html, "%s/compare.html", comparison->out_dir);
    snprintf(json, sizeof json, "%s/compare.json", comparison->out_dir);
    HS_TRY(hs_compare_write_html(html, comparison->options->config_path, rows, count));
    HS_TRY(hs_compare_write_json(json, rows, count));
    HS_TRY(hs_compare_print(rows, count, PRINTED_COLUMNS, stdout));
    printf("page: %s\n", html);
    return HS_OK;
}

static HsStatus report_runs(const HsComparison *comparison, const HsCompareRun *runs)
{
    HsCompareRow *rows = NULL;
    HsRunResult *results = NULL;
    HsStatus status = hs_compare_rows(comparison, runs, &rows, &results);
    if (status == HS_OK)
        status = report(comparison, rows);
    free(rows);
    free(results);
    return status;
}

static HsStatus compare_strategies(HsComparison *comparison, HsCompareRun *runs, int64_t count)
{
    HS_TRY(hs_compare_train(comparison, runs, count, ""));
    return report_runs(comparison, runs);
}

/* --- before the first run --- */

static HsStatus read_text(HsComparison *comparison)
{
    HsStatus status =
        hs_read_file(comparison->options->config_path, CONFIG_MOST_BYTES, &comparison->text, &comparison->length);
    return status == HS_OK || status == HS_ENOMEM ? status : HS_ECONFIG;
}

/* A validation of 0% leaves nothing to judge by. */
static HsStatus check_judged(const HsConfig *config)
{
    for (int i = 0; i < config->task_count; i++) {
        const char *share = config->tasks[i].validation;
        char *end;
        if (strtod(share, &end) == 0 && end != share && strcmp(end, "%") == 0)
            return hs_fail(HS_ECONFIG,
                           "--grid judges by validation losses, and tasks.%d.validation is 0%%: set it to a share "
                           "such as 10%%",
                           i);
    }
    return HS_OK;
}

/* Of the shortest task, as far as keys alone say: passes over data are as long as the data. */
static int64_t least_steps(const HsConfig *config)
{
    const int64_t tokens = hs_config_rows_per_step(config) * config->training.max_length;
    int64_t least = INT64_MAX;
    for (int i = 0; i < config->task_count; i++) {
        const HsTaskConfig *task = &config->tasks[i];
        const int64_t steps = task->steps > 0                                       ? task->steps
                              : task->tokens > 0                                    ? task->tokens / tokens
                              : task->epochs > 0 || config->training.max_steps == 0 ? INT64_MAX
                                                                                    : config->training.max_steps;
        least = steps < least ? steps : least;
    }
    return least;
}

static HsStatus read_base(HsComparison *comparison)
{
    const HsCompareOptions *options = comparison->options;
    HsConfig config;
    HS_TRY(read_text(comparison));
    HS_TRY(hs_config_parse(&config, options->config_path, comparison->text, comparison->length, options->override_count,
                           options->overrides));
    comparison->first_seed = config.training.seed;
    comparison->tasks = config.task_count;
    comparison->steps = least_steps(&config);
    comparison->keep_best = config.training.keep_best;
    comparison->threads = config.training.threads;
    const int length =
        snprintf(comparison->out_dir, sizeof comparison->out_dir, "%s%s",
                 options->out_dir ? options->out_dir : config.training.out_dir, options->out_dir ? "" : "-compare");
    HsStatus status = options->grid_count > 0 && !options->front ? check_judged(&config) : HS_OK;
    hs_config_deinit(&config);
    HS_TRY(status);
    if (length >= (int)sizeof comparison->out_dir)
        return hs_fail(HS_ECONFIG, "--out: a path of over %zu characters", sizeof comparison->out_dir - 1);
    if (comparison->tasks < 2 && options->front)
        return hs_fail(HS_ECONFIG, "%s: a front of learned against forgotten needs at least two tasks",
                       options->config_path);
    if (comparison->tasks < 2 && options->strategies)
        return hs_fail(HS_ECONFIG, "%s: a comparison of strategies needs at least two tasks", options->config_path);
    return HS_OK;
}

/* Each variant as it will run: at full length, and in a search at each rung's. */
static HsStatus check_variants(const HsComparison *comparison)
{
    const HsCompareOptions *options = comparison->options;
    const int rungs = options->grid_count > 0 && !options->front ? hs_grid_rungs(comparison) : 1;
    for (int i = 0; i < comparison->variants.count; i++)
        for (int rung = 0; rung < rungs; rung++) {
            HsConfig config;
            HS_TRY(hs_compare_load(comparison, i, comparison->first_seed, hs_halving_divisor(options->eta, rungs, rung),
                                   &config));
            hs_config_deinit(&config);
        }
    return HS_OK;
}

/* The variants, each of which can be loaded. */
static HsStatus list_variants(HsComparison *comparison)
{
    const HsCompareOptions *options = comparison->options;
    const bool named = options->strategies || options->grid_count > 0 || !options->front;
    if (named)
        HS_TRY(hs_variants_parse(options->strategies, options->grids, options->grid_count, &comparison->variants));
    HS_TRY(read_base(comparison));
    return named ? check_variants(comparison) : hs_front_table(comparison);
}

static HsStatus compare(HsComparison *comparison)
{
    const HsCompareOptions *options = comparison->options;
    char copy[HS_COMPARE_PATH_BYTES];
    const double began_s = hs_clock_s();
    HS_TRY(list_variants(comparison));
    HS_TRY(hs_compare_settle_jobs(comparison, comparison->variants.count * options->seeds));
    /* What every run is started by, whatever becomes of the file meanwhile. */
    HS_TRY(hs_make_directories(comparison->out_dir));
    snprintf(copy, sizeof copy, "%s/config.yaml", comparison->out_dir);
    HS_TRY(hs_storage_replace_text(copy, comparison->text));
    HS_TRY(options->front            ? hs_compare_front(comparison)
           : options->grid_count > 0 ? hs_grid_search(comparison)
                                     : hs_compare_all(comparison, compare_strategies));
    if (comparison->trained > 0)
        hs_info("%d run%s trained in %.0f s, %d at a time; %.0f s of processor time", comparison->trained,
                comparison->trained == 1 ? "" : "s", hs_clock_s() - began_s, comparison->jobs, comparison->processor_s);
    return HS_OK;
}

HsStatus hs_compare(const HsCompareOptions *options)
{
    HsComparison *comparison = calloc(1, sizeof *comparison);
    if (!comparison)
        return hs_fail(HS_ENOMEM, "no memory for a comparison");
    HsCompareOptions full = *options;
    HsStringList grids = { 0 };
    comparison->options = &full;
    HsStatus status = hs_compare_take_rules(&full, &grids);
    if (status == HS_OK)
        status = compare(comparison);
    hs_variants_deinit(&comparison->variants);
    hs_string_list_deinit(&grids);
    free(comparison->table);
    free(comparison->text);
    free(comparison);
    return status;
}
