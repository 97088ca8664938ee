/* SPDX-License-Identifier: MIT
 *
 * A run of the same shape in a part of its length.  What is scaled is what its length and its learning rate's course are
 * given in; periods (evaluation.every, mer.interval) and sizes stay as they are.
 */
#include "runtime/config/table.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

/* To the nearest whole number, but something is left of what there was. */
static int64_t part_of(int64_t whole, int64_t divisor)
{
    const int64_t part = whole / divisor + (whole % divisor >= divisor - divisor / 2);
    return whole > 0 && part < 1 ? 1 : part;
}

static HsStatus shorten_task(const HsTaskConfig *task, int index, int64_t divisor, HsStringList *list)
{
    char text[32];
    if (task->steps > 0)
        HS_TRY(hs_string_list_add(list, "tasks.%d.steps=%" PRId64, index, part_of(task->steps, divisor)));
    if (task->tokens > 0)
        HS_TRY(hs_string_list_add(list, "tasks.%d.tokens=%" PRId64, index, part_of(task->tokens, divisor)));
    if (task->epochs > 0)
        HS_TRY(hs_string_list_add(list, "tasks.%d.epochs=%s", index,
                                  hs_config_real_text(task->epochs / (double)divisor, text)));
    return HS_OK;
}

static HsStatus shorten(const HsConfig *config, int64_t divisor, HsStringList *list)
{
    char text[32];
    if (config->training.max_steps > 0)
        HS_TRY(hs_string_list_add(list, "max_steps=%" PRId64, part_of(config->training.max_steps, divisor)));
    if (config->training.max_epochs > 0)
        HS_TRY(hs_string_list_add(list, "max_epochs=%s",
                                  hs_config_real_text(config->training.max_epochs / (double)divisor, text)));
    for (int i = 0; i < config->task_count; i++)
        HS_TRY(shorten_task(&config->tasks[i], i, divisor, list));
    const int64_t warmup = part_of(config->schedule.warmup_steps, divisor);
    const int64_t decay = part_of(config->schedule.decay_steps, divisor);
    if (warmup > 0)
        HS_TRY(hs_string_list_add(list, "schedule.warmup_steps=%" PRId64, warmup));
    if (decay > 0) /* which counts the warm-up in */
        HS_TRY(hs_string_list_add(list, "schedule.decay_steps=%" PRId64, decay > warmup ? decay : warmup + 1));
    return HS_OK;
}

HsStatus hs_config_shorten(const HsConfig *config, int64_t divisor, HsStringList *overrides)
{
    *overrides = (HsStringList){ 0 };
    HsStatus status = divisor > 1 ? shorten(config, divisor, overrides) : HS_OK;
    if (status != HS_OK)
        hs_string_list_deinit(overrides);
    return status;
}
