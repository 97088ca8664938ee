/* SPDX-License-Identifier: MIT
 *
 * The search: each rung's runs, then which combinations continue.
 */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/base/log.h"
#include "runtime/study/compare_runs.h"
#include "runtime/study/grid_results.h"

typedef struct Search {
    HsComparison *comparison;
    HsGridResults results;
    int *left; /* [left_count]: combinations that are still in */
    int left_count;
} Search;

int hs_grid_rungs(const HsComparison *comparison)
{
    const HsCompareOptions *options = comparison->options;
    return options->rungs > 0 ? options->rungs
                              : hs_halving_rungs(comparison->variants.count, options->eta, comparison->steps);
}

/* The runs' losses into the results' table. */
static void take_losses(Search *search, int rung, const HsCompareRun *runs)
{
    for (int64_t repeat = 0; repeat < search->results.seeds; repeat++)
        for (int i = 0; i < search->left_count; i++)
            hs_grid_losses(&search->results, search->left[i], rung)[repeat] =
                runs[repeat * search->left_count + i].loss;
    search->results.counts[rung] = search->left_count;
}

static HsStatus train_rung(Search *search, int rung)
{
    HsComparison *comparison = search->comparison;
    const HsGridResults *results = &search->results;
    int64_t count;
    char where[64], name[32];
    HsCompareRun *runs;
    HS_TRY(hs_compare_list_runs(comparison, search->left, search->left_count, results->divisors[rung], &runs, &count));
    snprintf(where, sizeof where, "rung %d of %d (%s), ", rung + 1, results->rungs,
             hs_grid_rung_name(results, rung, name));
    HsStatus status = hs_compare_train(comparison, runs, count, where);
    if (status == HS_OK)
        take_losses(search, rung, runs);
    else if (status == HS_ECONFIG && results->divisors[rung] > 1)
        status = hs_error_prefix(status, "with fewer --rungs or a smaller --eta runs are longer");
    hs_compare_free_runs(runs, count);
    return status;
}

/* Which combinations continue after the rung. */
static HsStatus drop(Search *search, int rung)
{
    const int before = search->left_count;
    double *losses = calloc((size_t)before, sizeof *losses);
    bool *survives = calloc((size_t)before, sizeof *survives);
    HsStatus status = losses && survives ? HS_OK : hs_fail(HS_ENOMEM, "no memory to rank %d combinations", before);
    for (int i = 0; i < before && status == HS_OK; i++)
        losses[i] = hs_grid_mean(&search->results, search->left[i], rung);
    if (status == HS_OK) {
        hs_halving_survivors(losses, before, search->results.eta, survives);
        search->left_count = 0;
        for (int i = 0; i < before; i++)
            if (survives[i])
                search->left[search->left_count++] = search->left[i];
        hs_info("rung %d of %d: %d of %d combinations continue", rung + 1, search->results.rungs, search->left_count,
                before);
    }
    free(losses);
    free(survives);
    return status;
}

/* A single one that is left goes straight to the full length. */
static HsStatus climb(Search *search)
{
    const int last = search->results.rungs - 1;
    for (int rung = 0; rung <= last && search->left_count > 0; rung++) {
        if (rung < last && rung > 0 && search->left_count == 1)
            continue;
        HS_TRY(train_rung(search, rung));
        if (rung < last)
            HS_TRY(drop(search, rung));
    }
    return HS_OK;
}

static HsStatus write_results(Search *search)
{
    const HsComparison *comparison = search->comparison;
    HsGridResults *results = &search->results;
    char html[HS_COMPARE_PATH_BYTES], json[HS_COMPARE_PATH_BYTES];
    HsConfig best;
    HS_TRY(hs_grid_rank(results));
    const int first = results->order[0], reached = hs_grid_reached(results, first);
    const bool found = reached >= 0 && isfinite(hs_grid_mean(results, first, reached));
    if (found)
        HS_TRY(hs_compare_load(comparison, first, results->first_seed, 1, &best));
    results->best = found ? &best : NULL;
    snprintf(html, sizeof html, "%s/compare.html", comparison->out_dir);
    snprintf(json, sizeof json, "%s/compare.json", comparison->out_dir);
    HsStatus status = hs_grid_write_html(html, results);
    if (status == HS_OK)
        status = hs_grid_write_json(json, results);
    if (status == HS_OK)
        status = hs_grid_print(results, stdout);
    if (status == HS_OK)
        printf("page: %s\n", html);
    if (found)
        hs_config_deinit(&best);
    results->best = NULL;
    if (status == HS_OK && !found)
        return hs_fail(HS_ENUMERIC,
                       "every combination diverged: there is no best one; try lower values of learning_rate");
    return status;
}

HsStatus hs_grid_search(HsComparison *comparison)
{
    Search search = { .comparison = comparison };
    const HsCompareOptions *options = comparison->options;
    const int rungs = hs_grid_rungs(comparison), count = comparison->variants.count;
    HsStatus status = hs_grid_results_init(&search.results, &comparison->variants, rungs, options->seeds);
    search.left = status == HS_OK ? calloc((size_t)count, sizeof *search.left) : NULL;
    if (status == HS_OK && !search.left)
        status = hs_fail(HS_ENOMEM, "no memory for %d combinations", count);
    if (status == HS_OK) {
        search.results.title = options->config_path;
        search.results.criterion = comparison->tasks > 1 ? "retained loss" : "validation loss";
        search.results.first_seed = comparison->first_seed;
        search.results.eta = options->eta;
        for (int i = 0; i < rungs; i++)
            search.results.divisors[i] = hs_halving_divisor(options->eta, rungs, i);
        for (search.left_count = 0; search.left_count < count; search.left_count++)
            search.left[search.left_count] = search.left_count;
        if (options->rungs == 0 && rungs < hs_halving_rungs(count, options->eta, INT64_MAX))
            hs_info("runs are short already (%" PRId64 " steps): %d rung%s; --rungs says otherwise", comparison->steps,
                    rungs, rungs == 1 ? "" : "s");
        hs_info("%d combination%s, %" PRId64 " seed%s, %d rung%s, %d at a time", count, count == 1 ? "" : "s",
                options->seeds, options->seeds == 1 ? "" : "s", rungs, rungs == 1 ? "" : "s", comparison->jobs);
        status = climb(&search);
    }
    if (status == HS_OK)
        status = write_results(&search);
    free(search.left);
    hs_grid_results_deinit(&search.results);
    return status;
}
