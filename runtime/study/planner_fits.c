/* SPDX-License-Identifier: MIT
 *
 * The configuration's own model on common sizes of memory: which kinds of training fit, and with how much.
 *
 * Data parallel training holds the whole of weights, gradients and states on each device, so eight devices fit what one
 * does, and a step has eight times the sequences.
 */
#include <inttypes.h>

#include "runtime/study/planner_rungs.h"

/* A kind of training, on its way from small memories to large ones. */
typedef struct Kind {
    const HsRung *rung;
    char refused[512]; /* why the configuration cannot have it; empty: it can */
    HsConfig config;
    int64_t rows, length; /* fit the size before, and take these bytes: */
    size_t rows_bytes, length_bytes;
} Kind;

enum { MOST_KINDS = 8 };

static size_t limit_of(const HsTraining *training, const HsDeviceSize *size)
{
    HsTraining sized = *training; /* borrows everything; never destroyed */
    sized.engine.device.memory_bytes = (size_t)size->gigabytes << 30;
    return hs_training_memory_limit(&sized);
}

static HsStatus plan_kind(const HsTraining *training, Kind *kind)
{
    HsMemoryPlan plan;
    kind->config.training.batch_size = kind->config.memory.micro_batch = 1;
    kind->config.training.gradient_accumulation_steps = 1;
    HS_TRY(hs_training_plan(training, &kind->config, &plan));
    kind->rows = 1;
    kind->length = kind->config.training.max_length;
    kind->rows_bytes = kind->length_bytes = plan.device_bytes;
    return HS_OK;
}

/* What this configuration or this device cannot have is a column without figures.  Of a kind that is refused, or after
 * an error, nothing need be released. */
static HsStatus load_kind(const HsTraining *training, const HsPlannerOptions *options, int rung, Kind *kind)
{
    *kind = (Kind){ .rung = &hs_rungs[rung] };
    HsStatus status = hs_rung_load(options, rung, &kind->config);
    if (status == HS_OK) {
        status = plan_kind(training, kind);
        if (status != HS_OK)
            hs_config_deinit(&kind->config);
    }
    if (status != HS_ECONFIG && status != HS_EUNSUPPORTED)
        return status;
    snprintf(kind->refused, sizeof kind->refused, "%.511s", hs_error_message());
    return HS_OK;
}

/* Learned positions end where the configuration says; where it says nothing they grow with the length. */
static int64_t longest(const HsConfig *config)
{
    const int64_t positions = config->model.max_positions;
    return positions > 0 && positions < HS_PLANNER_FAR ? positions : HS_PLANNER_FAR;
}

static HsStatus grow(const HsTraining *training, Kind *kind, size_t limit)
{
    int64_t rows, length;
    HsMemoryPlan plan;
    HsConfig config = kind->config; /* shallow; never released */
    HS_TRY(hs_planner_find_most(training, &hs_planner_rows, &config, kind->rows, kind->rows_bytes, limit,
                                HS_PLANNER_FAR, &rows));
    HS_TRY(hs_planner_find_most(training, &hs_planner_length, &config, kind->length, kind->length_bytes, limit,
                                longest(&config), &length));
    hs_planner_rows.set(&config, rows);
    HS_TRY(hs_training_plan(training, &config, &plan));
    kind->rows = rows;
    kind->rows_bytes = plan.device_bytes;
    config = kind->config;
    hs_planner_length.set(&config, length);
    HS_TRY(hs_training_plan(training, &config, &plan));
    kind->length = length;
    kind->length_bytes = plan.device_bytes;
    return HS_OK;
}

static HsStatus print_cell(const HsTraining *training, Kind *kind, const HsDeviceSize *size, FILE *out)
{
    const size_t limit = limit_of(training, size);
    if (kind->refused[0] != '\0') {
        fprintf(out, " - |");
        return HS_OK;
    }
    if (kind->rows_bytes > limit) {
        fprintf(out, " no: %.1f GiB |", hs_mebibytes((double)kind->rows_bytes) / 1024);
        return HS_OK;
    }
    HS_TRY(grow(training, kind, limit));
    if (size->devices > 1)
        fprintf(out, " %d times %" PRId64 "; %" PRId64 " |", size->devices, kind->rows, kind->length);
    else
        fprintf(out, " %" PRId64 "; %" PRId64 " |", kind->rows, kind->length);
    return HS_OK;
}

static HsStatus print_size(const HsTraining *training, Kind *kinds, int count, const HsDeviceSize *size, FILE *out)
{
    if (size->devices > 1)
        fprintf(out, "| %d x %d GB |", size->devices, size->gigabytes);
    else
        fprintf(out, "| %d GB |", size->gigabytes);
    for (int i = 0; i < count; i++)
        HS_TRY(print_cell(training, &kinds[i], size, out));
    fprintf(out, " %.0f |\n", hs_mebibytes((double)limit_of(training, size)));
    return HS_OK;
}

static HsStatus print_all(const HsTraining *training, Kind *kinds, int count, const HsDeviceSize *sizes, int size_count,
                          FILE *out)
{
    const HsConfig *config = training->config;
    fprintf(out,
            "\nthis configuration itself, %" PRId64 " layers, width %" PRId64
            ", with bf16 and each block computed again: the most sequences of %" PRId64
            " tokens at a time; the longest single sequence.\n"
            "no: what one sequence of %" PRId64 " tokens needs.  Several devices are data parallel: each holds the "
            "whole.\n\n| memory |",
            config->model.layers, config->model.width, config->training.max_length, config->training.max_length);
    for (int i = 0; i < count; i++)
        fprintf(out, " %s |", kinds[i].rung->training);
    fprintf(out, " MiB allowed |\n|---|");
    for (int i = 0; i <= count; i++)
        fprintf(out, "---|");
    fprintf(out, "\n");
    for (int i = 0; i < size_count; i++)
        HS_TRY(print_size(training, kinds, count, &sizes[i], out));
    for (int i = 0; i < count; i++)
        if (kinds[i].refused[0] != '\0')
            fprintf(out, "%s: not here: %s\n", kinds[i].rung->training, kinds[i].refused);
    return HS_OK;
}

HsStatus hs_planner_print_fits(const HsTraining *training, const HsPlannerOptions *options, const HsDeviceSize *sizes,
                               int count, FILE *out)
{
    Kind kinds[MOST_KINDS];
    int kind_count = 0;
    HsStatus status = HS_OK;
    for (int i = 0; i < hs_rung_count && status == HS_OK; i++) {
        if (!hs_rungs[i].training || kind_count == MOST_KINDS)
            continue;
        status = load_kind(training, options, i, &kinds[kind_count]);
        kind_count += status == HS_OK;
    }
    if (status == HS_OK)
        status = print_all(training, kinds, kind_count, sizes, count, out);
    for (int i = 0; i < kind_count; i++)
        if (kinds[i].refused[0] == '\0')
            hs_config_deinit(&kinds[i].config);
    return status;
}
