/* SPDX-License-Identifier: MIT
 *
 * Means and spreads over seeds, and their JSON.
 */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/io/storage.h"
#include "runtime/record/matrix_json.h"
#include "runtime/study/compare_page.h"

/* Running mean and sum of squared deviations (Welford 1962): no cancellation, as sums of squares would have. */
typedef struct Spread {
    double mean, squares;
    int count;
} Spread;

static void spread_add(Spread *spread, double value)
{
    if (!isfinite(value))
        return;
    double before = value - spread->mean;
    spread->mean += before / ++spread->count;
    spread->squares += before * (value - spread->mean);
}

static HsCompareFigure spread_figure(const Spread *spread)
{
    return (HsCompareFigure){
        .mean = spread->count > 0 ? spread->mean : NAN,
        .spread = spread->count > 1 ? sqrt(spread->squares / (spread->count - 1)) : NAN,
        .count = spread->count,
    };
}

static const HsCompareRow *find_row(const HsCompareRow *rows, int count, const char *name)
{
    for (int i = 0; i < count; i++) {
        if (strcmp(rows[i].name, name) == 0)
            return &rows[i];
    }
    return NULL;
}

static bool has_matrix(const HsRunResult *result)
{
    return result->finished && result->matrix.tasks > 0;
}

/* The tasks that all runs share; 0 when no run has a matrix. */
static HsStatus count_tasks(const HsCompareRow *rows, int count, int *tasks)
{
    *tasks = 0;
    for (int i = 0; i < count; i++) {
        for (int seed = 0; seed < rows[i].seeds; seed++) {
            const HsRunResult *result = &rows[i].results[seed];
            if (!has_matrix(result))
                continue;
            if (*tasks > 0 && *tasks != result->matrix.tasks)
                return hs_fail(HS_EINVAL,
                               "run %d of %s has %d tasks, others have %d: only runs of the same tasks can be compared",
                               seed + 1, rows[i].name, result->matrix.tasks, *tasks);
            *tasks = result->matrix.tasks;
        }
    }
    return HS_OK;
}

/* The run's matrix with the same seed's joint losses, if a finished joint run has them.  Borrows from both. */
static HsMatrix with_joint(const HsCompareRow *row, int seed, const HsCompareRow *joint)
{
    HsMatrix matrix = row->results[seed].matrix;
    if (joint && joint != row && seed < joint->seeds && has_matrix(&joint->results[seed])) {
        const HsMatrix *other = &joint->results[seed].matrix;
        int last = hs_matrix_last_row(other);
        if (last == other->tasks - 1)
            matrix.joint = hs_matrix_at(other, last, 0);
    }
    return matrix;
}

/* Cell by cell the mean over the runs that know it: `count` figures at the pointer that lies `member` into the matrix.
 */
static void mean_losses(const HsCompareRow *row, size_t member, size_t count, HsMatrix *mean)
{
    double *means = *(double **)(void *)((char *)mean + member);
    for (size_t i = 0; i < count; i++) {
        Spread spread = { 0 };
        for (int seed = 0; seed < row->seeds; seed++) {
            const HsMatrix *matrix = &row->results[seed].matrix;
            if (has_matrix(&row->results[seed]))
                spread_add(&spread, (*(double *const *)(const void *)((const char *)matrix + member))[i]);
        }
        means[i] = spread_figure(&spread).mean;
    }
}

static HsStatus mean_matrix(const HsCompareRow *row, int tasks, HsMatrix *mean)
{
    const HsMatrix *example = NULL;
    size_t count = (size_t)tasks;
    for (int seed = 0; seed < row->seeds && !example; seed++)
        example = has_matrix(&row->results[seed]) ? &row->results[seed].matrix : NULL;
    if (!example)
        return HS_OK;
    HS_TRY(hs_matrix_init(mean, tasks));
    memcpy(mean->names, example->names, count * sizeof *mean->names);
    mean->known = example->known;
    memcpy(mean->forgets, example->forgets, count * sizeof *mean->forgets);
    mean_losses(row, offsetof(HsMatrix, loss), count * count, mean);
    mean_losses(row, offsetof(HsMatrix, untrained), count, mean);
    mean_losses(row, offsetof(HsMatrix, floor), count, mean);
    mean_losses(row, offsetof(HsMatrix, joint), count, mean);
    mean_losses(row, offsetof(HsMatrix, bytes_per_token), count, mean);
    for (size_t set = 0; set < HS_ITEM_SET_COUNT; set++)
        mean_losses(row, offsetof(HsMatrix, accuracy) + set * sizeof(double *), (count + 1) * count, mean);
    return HS_OK;
}

static HsStatus figures_of_row(const HsCompareRow *row, const HsCompareRow *joint, int tasks, HsCompareFigures *figures)
{
    Spread members[HS_COMPARE_MEMBERS] = { { 0 } }, speed = { 0 }, memory = { 0 };
    Spread seconds = { 0 }, kept = { 0 };
    figures->name = row->name;
    figures->runs = row->seeds;
    for (int seed = 0; seed < row->seeds; seed++) {
        const HsRunResult *result = &row->results[seed];
        if (!result->finished)
            continue;
        figures->finished++;
        spread_add(&speed, result->tokens_per_second);
        spread_add(&memory, result->memory_bytes > 0 ? (double)result->memory_bytes : NAN);
        spread_add(&seconds, result->seconds > 0 ? result->seconds : (double)NAN);
        spread_add(&kept, (double)result->kept_bytes);
        figures->parameters = result->parameters > 0 ? result->parameters : figures->parameters;
        if (!has_matrix(result))
            continue;
        HsMatrix matrix = with_joint(row, seed, joint);
        HsMatrixSummary summary = hs_matrix_summary(&matrix);
        for (int i = 0; i < HS_COMPARE_MEMBERS; i++)
            spread_add(&members[i], hs_matrix_member_value(&summary, i));
    }
    for (int i = 0; i < HS_COMPARE_MEMBERS; i++)
        figures->members[i] = spread_figure(&members[i]);
    figures->tokens_per_second = spread_figure(&speed);
    figures->memory_bytes = spread_figure(&memory);
    figures->seconds = spread_figure(&seconds);
    figures->kept_bytes = spread_figure(&kept);
    return mean_matrix(row, tasks, &figures->mean);
}

HsStatus hs_compare_figures(const HsCompareRow *rows, int count, HsCompareFigures **out)
{
    int tasks = 0;
    HsStatus status = HS_OK;
    *out = NULL;
    if (count < 1)
        return hs_fail(HS_EINVAL, "there is nothing to compare: give at least one strategy");
    HS_TRY(count_tasks(rows, count, &tasks));
    HsCompareFigures *figures = calloc((size_t)count, sizeof *figures);
    if (!figures)
        return hs_fail(HS_ENOMEM, "no memory to compare %d strategies", count);
    const HsCompareFigures *none = NULL;
    const HsCompareRow *joint = find_row(rows, count, "joint");
    for (int i = 0; i < count; i++) {
        HS_TRY_GOTO(status, figures_of_row(&rows[i], joint, tasks, &figures[i]), failed);
        if (strcmp(rows[i].name, "none") == 0)
            none = &figures[i];
    }
    for (int i = 0; i < count; i++) { /* NAN travels through */
        figures[i].time_overhead =
            none ? none->tokens_per_second.mean / figures[i].tokens_per_second.mean - 1 : (double)NAN;
        figures[i].memory_overhead = none ? figures[i].memory_bytes.mean / none->memory_bytes.mean - 1 : (double)NAN;
    }
    *out = figures;
    return HS_OK;
failed:
    hs_compare_figures_free(figures, count);
    return status;
}

void hs_compare_figures_free(HsCompareFigures *figures, int count)
{
    for (int i = 0; figures && i < count; i++)
        hs_matrix_deinit(&figures[i].mean);
    free(figures);
}

/* ---- JSON ---- */

static HsJson *figure_json(const HsCompareFigure *figure)
{
    HsJson *object = hs_json_object();
    hs_json_set_real(object, "mean", figure->mean);
    hs_json_set_real(object, "spread", figure->spread);
    hs_json_set_integer(object, "count", figure->count);
    return object;
}

static HsJson *run_json(const HsCompareRow *row, int seed, const HsCompareRow *joint)
{
    const HsRunResult *result = &row->results[seed];
    HsJson *run = hs_json_object();
    hs_json_set_bool(run, "finished", result->finished);
    hs_json_set_integer(run, "steps", result->steps);
    hs_json_set_real(run, "tokens_per_second", result->tokens_per_second);
    hs_json_set_integer(run, "memory_bytes", result->memory_bytes);
    hs_json_set_real(run, "seconds", result->seconds > 0 ? result->seconds : (double)NAN);
    if (has_matrix(result)) {
        HsMatrix matrix = with_joint(row, seed, joint);
        hs_json_set(run, "summary", hs_matrix_summary_json(&matrix));
    }
    return run;
}

static HsJson *row_json(const HsCompareRow *row, const HsCompareRow *joint, const HsCompareFigures *figures)
{
    HsJson *object = hs_json_object(), *means = hs_json_object(), *runs = hs_json_array();
    hs_json_set_string(object, "name", row->name);
    hs_json_set_integer(object, "runs", figures->runs);
    hs_json_set_integer(object, "finished", figures->finished);
    for (int i = 0; i < HS_COMPARE_MEMBERS; i++)
        if (!hs_matrix_members[i].rare || !isnan(figures->members[i].mean))
            hs_json_set(means, hs_matrix_members[i].name, figure_json(&figures->members[i]));
    hs_json_set(means, "tokens_per_second", figure_json(&figures->tokens_per_second));
    hs_json_set(means, "memory_bytes", figure_json(&figures->memory_bytes));
    hs_json_set(means, "seconds", figure_json(&figures->seconds));
    hs_json_set(object, "figures", means);
    hs_json_set_real(object, "time_overhead", figures->time_overhead);
    hs_json_set_real(object, "memory_overhead", figures->memory_overhead);
    if (figures->mean.tasks > 0) {
        HsJson *matrix = hs_json_object();
        hs_matrix_to_json(&figures->mean, figures->mean.tasks, matrix);
        hs_json_set(object, "mean_matrix", matrix);
    }
    for (int seed = 0; seed < row->seeds; seed++)
        hs_json_append(runs, run_json(row, seed, joint));
    hs_json_set(object, "seeds", runs);
    return object;
}

HsJson *hs_compare_json(const HsCompareRow *rows, const HsCompareFigures *figures, int count)
{
    HsJson *root = hs_json_object(), *strategies = hs_json_array();
    for (int i = 0; i < count; i++)
        hs_json_append(strategies, row_json(&rows[i], find_row(rows, count, "joint"), &figures[i]));
    hs_json_set(root, "strategies", strategies);
    return root;
}

HsStatus hs_compare_write_json(const char *path, const HsCompareRow *rows, int count)
{
    HsCompareFigures *figures = NULL;
    HS_TRY(hs_compare_figures(rows, count, &figures));
    HsJson *root = hs_compare_json(rows, figures, count);
    char *text = hs_json_write(root, true);
    hs_json_destroy(root);
    HsStatus status = hs_storage_replace_text(path, text);
    free(text);
    hs_compare_figures_free(figures, count);
    return status;
}
