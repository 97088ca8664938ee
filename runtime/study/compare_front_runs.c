/* SPDX-License-Identifier: MIT
 *
 * The runs of a front, and what is written of them.  There is no other state than the runs: the same command reads those
 * that are finished and trains the others.
 */
#include <stdlib.h>

#include "runtime/study/compare_front_plan.h"

static HsStatus write_front(const HsComparison *comparison, const HsFront *front)
{
    char html[HS_COMPARE_PATH_BYTES], json[HS_COMPARE_PATH_BYTES];
    snprintf(html, sizeof html, "%s/compare.html", comparison->out_dir);
    snprintf(json, sizeof json, "%s/compare.json", comparison->out_dir);
    HS_TRY(hs_front_write_html(html, front));
    HS_TRY(hs_front_write_json(json, front));
    HS_TRY(hs_front_print(front, stdout));
    printf("page: %s\n", html);
    return HS_OK;
}

static HsStatus report(const HsComparison *comparison, const HsCompareRun *runs, const HsFrontPrice *prices,
                       const HsFrontText *text)
{
    HsCompareRow *rows = NULL;
    HsRunResult *results = NULL;
    HsFront front = { 0 };
    HsStatus status = hs_compare_rows(comparison, runs, &rows, &results);
    if (status == HS_OK)
        status =
            hs_front_init(&front, comparison->options->config_path, rows, prices, text, comparison->variants.count);
    if (status == HS_OK)
        status = write_front(comparison, &front);
    hs_front_deinit(&front);
    free(rows);
    free(results);
    return status;
}

static HsStatus train(HsComparison *comparison, HsCompareRun *runs, int64_t count, HsFrontPrice *prices)
{
    HsFrontText text;
    int64_t found;
    HS_TRY(hs_front_plan(comparison, prices, &text));
    HS_TRY(hs_compare_find(comparison, runs, count, &found));
    hs_front_announce(comparison, runs, count, found, prices);
    HS_TRY(hs_compare_train(comparison, runs, count, ""));
    return report(comparison, runs, prices, &text);
}

static HsStatus front(HsComparison *comparison, HsCompareRun *runs, int64_t count)
{
    HsFrontPrice *prices = calloc((size_t)comparison->variants.count, sizeof *prices);
    if (!prices)
        return hs_fail(HS_ENOMEM, "no memory for the prices of %d points", comparison->variants.count);
    const HsStatus status = train(comparison, runs, count, prices);
    free(prices);
    return status;
}

HsStatus hs_compare_front(HsComparison *comparison)
{
    return hs_compare_all(comparison, front);
}

/* Results come in the order of runs (seed by seed), rows want them variant by variant. */
HsStatus hs_compare_rows(const HsComparison *comparison, const HsCompareRun *runs, HsCompareRow **rows,
                         HsRunResult **results)
{
    const int64_t seeds = comparison->options->seeds;
    const int count = comparison->variants.count;
    *rows = calloc((size_t)count, sizeof **rows);
    *results = calloc((size_t)count * (size_t)seeds, sizeof **results);
    if (!*rows || !*results)
        return hs_fail(HS_ENOMEM, "no memory to compare %d strategies", count);
    for (int i = 0; i < count; i++) {
        for (int64_t repeat = 0; repeat < seeds; repeat++)
            (*results)[i * seeds + repeat] = runs[repeat * count + i].result; /* borrows */
        (*rows)[i] = (HsCompareRow){ .name = comparison->variants.items[i].label,
                                     .seeds = (int)seeds,
                                     .results = *results + i * seeds };
    }
    return HS_OK;
}
