/* SPDX-License-Identifier: MIT
 *
 * What sections of a report have in common: the tasks, their names and where each begins.
 */
#include <math.h>

#include "runtime/pages/report_internal.h"

int hs_report_task_count(const HsReport *report)
{
    int named = hs_json_count(hs_json_get(report->run, "tasks"));
    int count = report->matrix.tasks > named ? report->matrix.tasks : named;
    return report->task_count > count ? report->task_count : count;
}

/* (A joint run's event has one "task" for all of them.) */
const char *hs_report_task_name(const HsReport *report, int task, HsPage *page)
{
    const HsJson *item = hs_json_first(hs_json_get(report->run, "tasks"));
    for (int i = 0; item && i < task; i++)
        item = hs_json_next(item);
    const char *known =
        task < report->matrix.tasks ? report->matrix.names[task] : hs_json_string(hs_json_get(item, "name"));
    return known && known[0] ? hs_page_print(page, "%.79s", known) : hs_page_print(page, "task %d", task + 1);
}

/* By the run event's steps, else after each matrix event; none for a run of one task. */
HsReportMarks hs_report_task_marks(const HsReport *report, HsPage *page)
{
    const HsJson *item = hs_json_first(hs_json_get(report->run, "tasks"));
    const int room = hs_report_task_count(report);
    HsReportMarks found = { hs_page_room(page, (size_t)room + (size_t)report->pressures.count, sizeof *found.marks),
                            0 };
    double start = 0;
    if (!found.marks || room < 2)
        return found;
    if (hs_json_count(hs_json_get(report->run, "tasks")) > 1) {
        for (; item && found.count < room && start <= (double)report->steps; item = hs_json_next(item)) {
            int64_t steps = 0;
            found.marks[found.count] = (HsChartMark){ start, hs_report_task_name(report, found.count, page) };
            found.count++;
            if (hs_json_need_integer("tasks", item, "steps", &steps) == HS_OK) /* report_read.c checked it */
                start += (double)steps;
        }
        return found;
    }
    /* Task k + 1 begins where task k's matrix was measured; the first at 0. */
    for (int64_t i = -1; i < report->task_ends.count && found.count < room; i++) {
        const int task = i < 0 ? 0 : (int)report->task_ends.y[i] + 1;
        if (task < report->matrix.tasks && report->matrix.tasks > 1)
            found.marks[found.count++] =
                (HsChartMark){ i < 0 ? 0 : report->task_ends.x[i], hs_report_task_name(report, task, page) };
    }
    found.count = found.count > 1 ? found.count : 0;
    return found;
}

const char *const *hs_report_columns(const HsMatrix *matrix, HsPage *page)
{
    const char **names = hs_page_room(page, (size_t)matrix->tasks, sizeof *names);
    for (int i = 0; names && i < matrix->tasks; i++)
        names[i] = matrix->names[i];
    return names;
}

bool hs_report_any_known(const double *values, int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        if (isfinite(values[i]))
            return true;
    return false;
}
