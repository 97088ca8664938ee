/* SPDX-License-Identifier: MIT
 *
 * The ladder as a table and as JSON.  Categories of which no rung has anything are left out of the table.
 */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/io/json.h"
#include "runtime/study/planner_ladder.h"

#define FORMAT "halfstep ladder 1"

enum { NAME_WIDTH = 26, LEAST_WIDTH = 9, LINE_WIDTH = 90 };

/* --- text --- */

/* A category's column; its name stands in two lines. */
typedef struct Column {
    HsMemoryCategory category;
    char top[32], bottom[32];
    int width;
} Column;

static bool shown(const HsLadder *ladder, HsMemoryCategory category)
{
    size_t most = 0;
    for (int i = 0; i < ladder->count; i++)
        most = most > ladder->lines[i].plan.bytes[category] ? most : ladder->lines[i].plan.bytes[category];
    return hs_mebibytes((double)most) >= 0.05 && category != HS_MEMORY_CACHES;
}

static int list_columns(const HsLadder *ladder, Column columns[HS_MEMORY_COUNT])
{
    int count = 0;
    for (int i = 0; i < HS_MEMORY_COUNT; i++) {
        Column *column = &columns[count];
        const char *name = hs_memory_row((HsMemoryCategory)i)->name, *cut = strrchr(name, ' ');
        if (!shown(ladder, (HsMemoryCategory)i))
            continue;
        *column = (Column){ .category = (HsMemoryCategory)i };
        snprintf(column->top, sizeof column->top, "%.*s", cut ? (int)(cut - name) : 0, name);
        snprintf(column->bottom, sizeof column->bottom, "%s", cut ? cut + 1 : name);
        const int top = (int)strlen(column->top), bottom = (int)strlen(column->bottom);
        column->width = top > bottom ? top : bottom;
        column->width = column->width > LEAST_WIDTH ? column->width : LEAST_WIDTH;
        count++;
    }
    return count;
}

static void print_heads(const Column *columns, int count, FILE *out)
{
    fprintf(out, "  %-*s", NAME_WIDTH, "MiB");
    for (int i = 0; i < count; i++)
        fprintf(out, " %*s", columns[i].width, columns[i].top);
    fprintf(out, " %10s %10s %9s %9s %9s\n  %-*s", "scores,", "", "saved of", "saved of", "at least", NAME_WIDTH, "");
    for (int i = 0; i < count; i++)
        fprintf(out, " %*s", columns[i].width, columns[i].bottom);
    fprintf(out, " %10s %10s %9s %9s %9s  %s\n", "computed", "total", "the last", "the first", "s a step", "fits");
}

static void print_line(const HsLadderLine *line, const Column *columns, int count, FILE *out)
{
    fprintf(out, "  %-*s", NAME_WIDTH, line->rung->name);
    if (line->refused[0] != '\0') {
        fprintf(out, " not here: %s\n", line->refused);
        return;
    }
    for (int i = 0; i < count; i++)
        fprintf(out, " %*.1f", columns[i].width, hs_mebibytes((double)line->plan.bytes[columns[i].category]));
    fprintf(out, " %10.1f %10.1f %8.1f%% %8.1f%%", hs_mebibytes((double)line->score_bytes),
            hs_mebibytes((double)line->bytes), 100 * line->saved_before, 100 * line->saved_in_all);
    if (isnan(line->seconds))
        fprintf(out, " %9s", "-");
    else
        fprintf(out, " %9.3g", line->seconds);
    fprintf(out, "  %s\n", line->fits ? "yes" : "no");
}

static void print_sets(const HsRung *rung, FILE *out)
{
    int column = 0;
    for (int i = 0; i < HS_RUNG_SETS && rung->sets[i]; i++) {
        if (!strchr(rung->sets[i], '='))
            continue;
        if (column > LINE_WIDTH)
            fputc('\n', out);
        column = column > 0 && column <= LINE_WIDTH ? column : 0;
        column += fprintf(out, "%s%s", column > 0 ? " " : "      ", rung->sets[i]);
    }
    if (column > 0)
        fputc('\n', out);
}

/* Of each rung what it adds to the one before, as words of a command line. */
static void print_settings(const HsLadder *ladder, FILE *out)
{
    fprintf(out, "\nwhat each rung adds to those before it\n");
    for (int i = 0; i < ladder->count; i++) {
        const HsRung *rung = ladder->lines[i].rung;
        fprintf(out, "  %-*s %s\n", NAME_WIDTH, rung->name, rung->doc);
        print_sets(rung, out);
    }
}

static void print_notes(const HsLadder *ladder, FILE *out)
{
    fprintf(
        out,
        "\nEverything but the scores is the plan of a dry run: what training with these keys takes.\n"
        "scores, computed: this runtime's attention never writes its scores, and needs nothing for them on any rung. "
        "Attention that does keeps\n  at least its probabilities, [%" PRId64 ", %" PRId64 ", %" PRId64 ", %" PRId64
        "] a layer in the activations' format: of all layers, or where blocks are computed again, of one.\n"
        "s a step: products and parameters moved, at %s; attention that writes scores would take longer.\n"
        "fits: target_gpu_util %g of %.0f MiB = %.0f MiB.\n",
        ladder->first->plan.micro_batch, ladder->training->config->model.heads,
        ladder->training->config->training.max_length, ladder->training->config->training.max_length, ladder->rates,
        ladder->training->config->training.target_gpu_util,
        hs_mebibytes((double)hs_training_device_memory(ladder->training)), hs_mebibytes((double)ladder->limit));
}

HsStatus hs_ladder_print(const HsLadder *ladder, FILE *out)
{
    Column columns[HS_MEMORY_COUNT];
    const HsConfig *config = ladder->training->config;
    const HsMemoryPlan *plan = &ladder->first->plan;
    const int count = list_columns(ladder, columns);
    fprintf(out,
            "device: %s\nmodel: %s, %" PRId64 " layers, width %" PRId64 ", %.3f million parameters; %" PRId64
            " x %" PRId64 " tokens at a time, %" PRId64 " time%s a step\n\n",
            ladder->training->engine.why, config->model.family, config->model.layers, config->model.width,
            1e-6 * (double)plan->parameters, plan->micro_batch, config->training.max_length, plan->micro_batches,
            plan->micro_batches == 1 ? "" : "s");
    print_heads(columns, count, out);
    for (int i = 0; i < ladder->count; i++)
        print_line(&ladder->lines[i], columns, count, out);
    print_settings(ladder, out);
    print_notes(ladder, out);
    return HS_OK;
}

/* --- JSON --- */

static HsJson *bytes_json(const HsLadderLine *line)
{
    HsJson *object = hs_json_object();
    for (int i = 0; i < HS_MEMORY_COUNT; i++)
        if (line->plan.bytes[i] > 0)
            hs_json_set_integer(object, hs_memory_row((HsMemoryCategory)i)->name, (int64_t)line->plan.bytes[i]);
    return object;
}

static HsJson *line_json(const HsLadderLine *line, int rung)
{
    const char *overrides[HS_RUNG_OVERRIDES];
    HsJson *object = hs_json_object(), *list = hs_json_array();
    const int count = hs_rung_overrides(rung, overrides);
    for (int i = 0; i < count; i++)
        hs_json_append(list, hs_json_new_string(overrides[i]));
    hs_json_set_string(object, "name", line->rung->name);
    hs_json_set(object, "overrides", list);
    if (line->refused[0] != '\0') {
        hs_json_set_string(object, "refused", line->refused);
        return object;
    }
    hs_json_set(object, "planned", bytes_json(line));
    hs_json_set_integer(object, "planned_bytes", (int64_t)line->plan.device_bytes);
    hs_json_set_integer(object, "computed_score_bytes", (int64_t)line->score_bytes);
    hs_json_set_integer(object, "bytes", (int64_t)line->bytes);
    hs_json_set_real(object, "saved_of_the_last", line->saved_before);
    hs_json_set_real(object, "saved_of_the_first", line->saved_in_all);
    hs_json_set_real(object, "step_seconds", line->seconds);
    hs_json_set_bool(object, "fits", line->fits);
    return object;
}

HsStatus hs_ladder_print_json(const HsLadder *ladder, FILE *out)
{
    HsJson *root = hs_json_object(), *rungs = hs_json_array();
    hs_json_set_string(root, "format", FORMAT);
    hs_json_set_string(root, "device", ladder->training->engine.why);
    hs_json_set_string(root, "step_seconds_by", ladder->rates);
    hs_json_set_integer(root, "parameters", ladder->first->plan.parameters);
    hs_json_set_integer(root, "micro_batch", ladder->first->plan.micro_batch);
    hs_json_set_integer(root, "max_length", ladder->training->config->training.max_length);
    hs_json_set_integer(root, "limit_bytes", (int64_t)ladder->limit);
    for (int i = 0; i < ladder->count; i++)
        hs_json_append(rungs, line_json(&ladder->lines[i], i));
    hs_json_set(root, "rungs", rungs);
    char *text = hs_json_write(root, false);
    hs_json_destroy(root);
    if (!text)
        return hs_fail(HS_ENOMEM, "no memory to write JSON");
    fprintf(out, "%s\n", text);
    free(text);
    return HS_OK;
}
