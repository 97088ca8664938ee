/* SPDX-License-Identifier: MIT
 *
 * bench.json: everything that was measured, so that figures and pages can be made of it again.
 *
 *   { format, complete, interrupted, config_path, device, emulated, interleaved, steps, reference,
 *     modes: [ { label, name, folder, overrides, config (YAML), figures, memory, split_seconds, losses, seconds,
 *                distances, gradients: { layers, all }, casts, ... } ] }
 *
 * Histograms list counts from the lowest exponent that occurs to the highest.
 */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/io/files.h"
#include "runtime/io/json.h"
#include "runtime/io/storage.h"
#include "runtime/record/metrics.h"
#include "runtime/study/bench.h"

#define FORMAT "halfstep bench 1"

static HsJson *reals(const double *values, int64_t count)
{
    HsJson *array = hs_json_array();
    for (int64_t i = 0; i < count; i++)
        hs_json_append(array, hs_json_new_real(values[i]));
    return array;
}

static HsJson *distances_json(const HsBenchRun *run, const HsBenchRun *reference)
{
    HsJson *array = hs_json_array();
    for (int64_t i = 0; i < run->steps; i++)
        hs_json_append(array, hs_json_new_real(hs_bench_distance(run, reference, i)));
    return array;
}

static HsJson *bytes_json(const size_t bytes[HS_MEMORY_COUNT])
{
    HsJson *object = hs_json_object();
    for (int i = 0; i < HS_MEMORY_COUNT; i++)
        if (bytes[i] > 0)
            hs_json_set_integer(object, hs_memory_row((HsMemoryCategory)i)->name, (int64_t)bytes[i]);
    hs_json_set_integer(object, "total", (int64_t)hs_memory_sum(bytes));
    return object;
}

static HsJson *figures_json(const HsBenchFigures *figures, const HsBenchRun *run)
{
    HsJson *object = hs_json_object();
    hs_json_set_integer(object, "timed_steps", figures->timed_steps);
    hs_json_set_real(object, "tokens_per_second", figures->tokens_per_second);
    hs_json_set_real(object, "tokens_per_second_p10", figures->tokens_per_second_p10);
    hs_json_set_real(object, "tokens_per_second_p90", figures->tokens_per_second_p90);
    hs_json_set_real(object, "peak_share", figures->peak_share);
    hs_json_set_real(object, "training_loss", figures->training_loss);
    hs_json_set_real(object, "validation_loss", run->finished ? run->validation_loss : NAN);
    hs_json_set_real(object, "distance_most", figures->distance_most);
    hs_json_set_integer(object, "distance_step", figures->distance_step);
    hs_json_set_real(object, "distance_final", figures->distance_final);
    return object;
}

static HsJson *split_json(const HsBenchRun *run)
{
    HsJson *object = hs_json_object();
    for (int part = 0; part < HS_PART_COUNT; part++)
        hs_json_set_real(object, hs_step_part_name((HsStepPart)part), run->parts[part]);
    return object;
}

/* --- gradients --- */

static HsJson *histogram_json(const HsHistogram *histogram, HsDtype format)
{
    HsJson *object = hs_json_object(), *counts = hs_json_array();
    const HsBenchLoss loss = hs_bench_loss(histogram, format);
    int first = 0, last = HS_HISTOGRAM_GROUPS - 1;
    while (first < last && histogram->groups[first] == 0)
        first++;
    while (last > first && histogram->groups[last] == 0)
        last--;
    hs_json_set_string(object, "format", hs_dtype_name(format));
    hs_json_set_integer(object, "elements", histogram->elements);
    hs_json_set_integer(object, "zeros", histogram->zeros);
    hs_json_set_integer(object, "nonfinite", histogram->nonfinite);
    hs_json_set_real(object, "zero_share", loss.zero);
    hs_json_set_real(object, "subnormal_share", loss.subnormal);
    hs_json_set_real(object, "overflow_share", loss.overflow);
    hs_json_set_integer(object, "lowest_exponent", hs_histogram_exponent(first));
    for (int group = first; group <= last; group++)
        hs_json_append(counts, hs_json_new_integer(histogram->groups[group]));
    hs_json_set(object, "counts", counts);
    return object;
}

static HsJson *pair_json(const HsBenchRun *run, const char *name, const HsHistogram *activations,
                         const HsHistogram *weights)
{
    HsJson *object = hs_json_object();
    if (name)
        hs_json_set_string(object, "name", name);
    if (activations->elements > 0)
        hs_json_set(object, "activations", histogram_json(activations, run->survey.activation_format));
    if (weights->elements > 0)
        hs_json_set(object, "weights", histogram_json(weights, run->gradient_format));
    return object;
}

static HsJson *gradients_json(const HsBenchRun *run)
{
    HsJson *object = hs_json_object(), *layers = hs_json_array();
    const HsSurvey *survey = &run->survey;
    for (int row = 0; row < survey->row_count; row++)
        hs_json_append(
            layers, pair_json(run, survey->rows[row].name, &survey->rows[row].activations, &survey->rows[row].weights));
    hs_json_set(object, "layers", layers);
    hs_json_set(object, "all", pair_json(run, NULL, &survey->activations, &survey->weights));
    return object;
}

/* --- the file --- */

/* What is known before anything was trained: enough to find the mode's folder again. */
static HsJson *mode_json(const HsBenchMode *mode)
{
    HsJson *object = hs_json_object(), *list = hs_json_array();
    const char *overrides[HS_BENCH_OVERRIDES];
    const int count = hs_bench_mode_overrides(mode, overrides);
    hs_json_set_string(object, "label", mode->label);
    hs_json_set_string(object, "name", mode->name);
    hs_json_set_string(object, "folder", mode->folder);
    for (int i = 0; i < count; i++)
        hs_json_append(list, hs_json_new_string(overrides[i]));
    hs_json_set(object, "overrides", list);
    hs_json_set_integer(object, "accumulate", mode->accumulate);
    return object;
}

static HsJson *run_json(const HsBenchResults *results, int index)
{
    const HsBenchRun *run = &results->runs[index];
    const HsBenchFigures figures = hs_bench_figures(results, index);
    HsJson *object = mode_json(run->mode), *memory = hs_json_object();
    hs_json_set_string(object, "precision", run->precision);
    hs_json_set_string(object, "config", run->config ? run->config : "");
    hs_json_set_bool(object, "finished", run->finished);
    hs_json_set_string(object, "failure", run->failure);
    hs_json_set_integer(object, "steps", run->steps);
    hs_json_set_integer(object, "applied_steps", run->applied_steps);
    hs_json_set_integer(object, "skipped_steps", run->skipped_steps);
    hs_json_set_real(object, "loss_scale", run->loss_scale);
    hs_json_set_integer(object, "parameters", run->parameters);
    hs_json_set_integer(object, "tokens_per_step", run->tokens_per_step);
    hs_json_set_integer(object, "micro_batch", run->micro_batch);
    hs_json_set_integer(object, "micro_batches", run->micro_batches);
    hs_json_set_real(object, "flops_per_token", run->flops_per_token);
    hs_json_set_real(object, "peak_flops", run->peak_flops > 0 ? run->peak_flops : NAN);
    hs_json_set(object, "figures", figures_json(&figures, run));
    hs_json_set(memory, "planned", bytes_json(run->planned));
    hs_json_set(memory, "peak", bytes_json(run->peak));
    hs_json_set(object, "memory_bytes", memory);
    hs_json_set(object, "losses", reals(run->losses, run->steps));
    hs_json_set(object, "seconds", reals(run->seconds, run->steps));
    hs_json_set(object, "distances", distances_json(run, &results->runs[results->reference]));
    if (run->finished) {
        hs_json_set(object, "split_seconds", split_json(run));
        hs_json_set(object, "gradients", gradients_json(run));
        if (run->cast_count > 0)
            hs_json_set(object, "casts", hs_metrics_roles_json(run->casts, run->cast_count));
    }
    return object;
}

static HsJson *results_json(const HsBenchResults *results, bool complete)
{
    HsJson *root = hs_json_object(), *modes = hs_json_array();
    hs_json_set_string(root, "format", FORMAT);
    hs_json_set_bool(root, "complete", complete);
    hs_json_set_bool(root, "interrupted", results->interrupted);
    hs_json_set_string(root, "config_path", results->config_path);
    hs_json_set_string(root, "device", results->device);
    hs_json_set_bool(root, "emulated", results->emulated);
    hs_json_set_bool(root, "interleaved", results->interleaved);
    hs_json_set_integer(root, "steps", results->steps);
    hs_json_set_string(root, "reference", results->runs[results->reference].mode->name);
    for (int i = 0; i < results->count; i++)
        hs_json_append(modes, complete ? run_json(results, i) : mode_json(results->runs[i].mode));
    hs_json_set(root, "modes", modes);
    return root;
}

HsStatus hs_bench_write_json(const char *path, const HsBenchResults *results, bool complete)
{
    HsJson *root = results_json(results, complete);
    char *text = hs_json_write(root, true);
    hs_json_destroy(root);
    HsStatus status = hs_storage_replace_text(path, text);
    free(text);
    return status;
}

/* --- what an earlier bench left --- */

/* A name within the bench's folder and nothing else. */
static bool is_plain_name(const char *name)
{
    return name && name[0] != '\0' && name[0] != '.' && !strchr(name, '/');
}

static HsStatus visit_folders(const char *path, const HsJson *root, HsStatus (*visit)(void *, const char *), void *user)
{
    const char *format = hs_json_string(hs_json_get(root, "format"));
    if (!format || strcmp(format, FORMAT) != 0)
        return hs_fail(HS_EFORMAT, "%s was not written by trainer bench: choose another folder with --out", path);
    const HsJson *modes = hs_json_get(root, "modes");
    for (const HsJson *mode = hs_json_first(modes); mode; mode = hs_json_next(mode)) {
        const char *folder = hs_json_string(hs_json_get(mode, "folder"));
        if (!is_plain_name(folder))
            return hs_fail(HS_EFORMAT, "%s names a folder outside its own: choose another folder with --out", path);
        HS_TRY(visit(user, folder));
    }
    return HS_OK;
}

HsStatus hs_bench_read_folders(const char *path, HsStatus (*visit)(void *user, const char *folder), void *user)
{
    char *text;
    size_t length;
    HsJson *root;
    HS_TRY(hs_read_file(path, 0, &text, &length));
    HsStatus status = hs_json_parse(path, text, length, &root);
    free(text);
    if (status != HS_OK)
        return hs_error_prefix(status, "not a bench's: choose another folder with --out");
    status = visit_folders(path, root, visit, user);
    hs_json_destroy(root);
    return status;
}
