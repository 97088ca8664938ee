/* SPDX-License-Identifier: MIT
 *
 * See mixture.h.
 */
#include "runtime/config/mixture.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

bool hs_task_is_mixed(const HsTaskConfig *task)
{
    return task->weights.count > 0 || task->temperature > 0 || task->source_names.count > 0;
}

static bool read_weight(const char *text, const char **end, double *weight)
{
    char *stop;
    *weight = strtod(text, &stop);
    *end = stop;
    return stop > text && isfinite(*weight) && *weight >= 0;
}

bool hs_task_weights(const HsTaskConfig *task, double *weights)
{
    const char *end;
    for (int i = 0; i < task->weights.count && i < HS_MIXTURE_MOST; i++)
        (void)read_weight(task->weights.items[i], &end, &weights[i]);
    return task->weights.count > 0;
}

static double sum(const double *weights, int count)
{
    double all = 0;
    for (int i = 0; i < count; i++)
        all += weights[i];
    return all;
}

HsStatus hs_task_weight_change(const HsTaskConfig *task, int index, int64_t *step, double *weights)
{
    const char *text = task->weight_changes.items[index];
    char *colon;
    *step = strtoll(text, &colon, 10);
    if (colon == text || *colon != ':' || *step < 1)
        return hs_fail(HS_ECONFIG, "`%.60s` must be \"STEP: WEIGHT WEIGHT ...\", with a step of at least 1", text);
    const char *at = colon + 1;
    for (int i = 0; i < task->train.count && i < HS_MIXTURE_MOST; i++)
        if (!read_weight(at, &at, &weights[i]))
            return hs_fail(HS_ECONFIG, "`%.60s` must have a weight of 0 or more for each of the %d sources", text,
                           task->train.count);
    if (at[strspn(at, " ")] != '\0' || !(sum(weights, task->train.count) > 0))
        return hs_fail(HS_ECONFIG, "`%.60s` must have %d weights, of which one is above 0", text, task->train.count);
    return HS_OK;
}

const char *hs_task_source_name(const HsTaskConfig *task, int source)
{
    return source < task->source_names.count ? task->source_names.items[source] : task->train.items[source];
}

static HsStatus check_count(const HsStringList *list, int wanted)
{
    if (list->count == 0 || list->count == wanted)
        return HS_OK;
    return hs_fail(HS_ECONFIG, "has %d entries, and train has %d: give one for each", list->count, wanted);
}

static HsStatus check_weights(const HsTaskConfig *task)
{
    double weights[HS_MIXTURE_MOST] = { 0 };
    for (int i = 0; i < task->weights.count; i++) {
        const char *end;
        if (!read_weight(task->weights.items[i], &end, &weights[i]) || *end != '\0')
            return hs_fail(HS_ECONFIG, "`%.40s` must be a number of 0 or more", task->weights.items[i]);
    }
    if (task->weights.count > 0 && !(sum(weights, task->weights.count) > 0))
        return hs_fail(HS_ECONFIG, "must have one above 0");
    return HS_OK;
}

static HsStatus check_changes(const HsTaskConfig *task)
{
    int64_t before = 0;
    for (int i = 0; i < task->weight_changes.count; i++) {
        double weights[HS_MIXTURE_MOST];
        int64_t step;
        HS_TRY(hs_task_weight_change(task, i, &step, weights));
        if (step <= before)
            return hs_fail(HS_ECONFIG, "must be in ascending order of steps, and step %lld comes behind %lld",
                           (long long)step, (long long)before);
        before = step;
    }
    return HS_OK;
}

/* Without a mixture they would do nothing. */
static HsStatus check_idle(const HsTaskConfig *task, const char **key)
{
    const char *const idle = task->weight_changes.count > 0      ? "weight_changes"
                             : task->source_validation.count > 0 ? "source_validation"
                             : !hs_is(task->exhausted, "repeat") ? "exhausted"
                                                                 : NULL;
    if (!idle)
        return HS_OK;
    *key = idle;
    return hs_fail(HS_ECONFIG, "is for sources that are mixed: give weights, or a list `sources`");
}

HsStatus hs_task_check_mixture(const HsTaskConfig *task, const char **key)
{
    const size_t length = strlen(task->validation);
    const bool share = length > 0 && task->validation[length - 1] == '%';
    if (!hs_task_is_mixed(task))
        return check_idle(task, key);
    *key = "train";
    if (task->train.count > HS_MIXTURE_MOST)
        return hs_fail(HS_ECONFIG, "has %d sources, and at most %d are mixed: put some into a folder, or a pattern",
                       task->train.count, HS_MIXTURE_MOST);
    *key = "weights";
    HS_TRY(check_count(&task->weights, task->train.count));
    HS_TRY(check_weights(task));
    *key = "temperature";
    if (task->temperature > 0 && task->weights.count > 0)
        return hs_fail(HS_ECONFIG, "takes the place of weights: leave one of them out");
    *key = "weight_changes";
    HS_TRY(check_changes(task));
    *key = "source_names";
    HS_TRY(check_count(&task->source_names, task->train.count));
    *key = "source_validation";
    HS_TRY(check_count(&task->source_validation, task->train.count));
    *key = "validation";
    if (!share && task->source_validation.count == 0)
        return hs_fail(HS_ECONFIG, "of a mixture is a share of each source, such as 10%%; files are named for each, as "
                                   "source_validation");
    return HS_OK;
}
