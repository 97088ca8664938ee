/* SPDX-License-Identifier: MIT
 *
 * trainer inspect: one pass over every tensor of a checkpoint, statistics in double, exponents in histograms.
 */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/base/log.h"
#include "runtime/io/files.h"
#include "runtime/io/storage.h"
#include "runtime/pages/inspect_internal.h"

enum { CHUNK = 1024 };

static void count_value(double value, HsInspectedTensor *tensor, HsHistogram *histogram)
{
    tensor->elements++;
    double magnitude = fabs(value);
    if (histogram) /* integers have none: they are no magnitudes to fit into a format */
        hs_histogram_add_value(histogram, value);
    if (!isfinite(value)) {
        tensor->nonfinite++;
        return;
    }
    tensor->min = fmin(tensor->min, value);
    tensor->max = fmax(tensor->max, value);
    tensor->sum += value;
    tensor->sum_squares += value * value;
    tensor->zeros += magnitude == 0;
    for (int i = 0; i < HS_INSPECT_FORMATS && histogram; i++) {
        const HsDtypeInfo *info = hs_dtype_info(hs_inspect_formats[i]);
        tensor->underflow[i] += magnitude > 0 && magnitude < info->smallest_normal;
        tensor->overflow[i] += magnitude > info->max;
    }
}

static void count_tensor(const HsTensor *tensor, HsInspectedTensor *found, HsHistogram *histogram)
{
    double values[CHUNK];
    int64_t count = hs_tensor_count(tensor);
    *found = (HsInspectedTensor){ .min = INFINITY, .max = -INFINITY };
    for (int64_t first = 0; first < count; first += CHUNK) {
        int64_t here = count - first < CHUNK ? count - first : CHUNK;
        hs_safetensors_load(tensor, first, 1, here, values);
        for (int64_t i = 0; i < here; i++)
            count_value(values[i], found, histogram);
    }
}

static void add_tensor(HsInspectedTensor *total, const HsInspectedTensor *part)
{
    total->elements += part->elements;
    total->zeros += part->zeros;
    total->nonfinite += part->nonfinite;
    for (int i = 0; i < HS_INSPECT_FORMATS; i++) {
        total->underflow[i] += part->underflow[i];
        total->overflow[i] += part->overflow[i];
    }
    total->min = fmin(total->min, part->min);
    total->max = fmax(total->max, part->max);
    total->sum += part->sum;
    total->sum_squares += part->sum_squares;
}

/* The histogram that a tensor's values go to: one for all weights, one for each kind of moment (".m", ".v"). */
static HsHistogram *histogram_for(HsInspection *inspection, const char *name)
{
    int count = inspection->histogram_count;
    for (int i = 0; i < count; i++) {
        if (strcmp(inspection->histograms[i].name, name) == 0)
            return &inspection->histograms[i].histogram;
    }
    if (count == HS_INSPECT_HISTOGRAMS) /* foreign names: the last one gathers what is left */
        return &inspection->histograms[count - 1].histogram;
    HsInspectedHistogram *fresh = &inspection->histograms[inspection->histogram_count++];
    snprintf(fresh->name, sizeof fresh->name, "%s", name);
    return &fresh->histogram;
}

/* "model" for all weights; ".m" and ".v" apart; strategies by family: "ewc.importance/...". */
static void kind_of(const char *title, const char *tensor, bool by_kind, char kind[32])
{
    const char *slash = strchr(tensor, '/'), *dot = strrchr(tensor, '.');
    if (!by_kind)
        snprintf(kind, 32, "%s", title);
    else if (slash)
        snprintf(kind, 32, "%.*s", (int)(slash - tensor < 31 ? slash - tensor : 31), tensor);
    else
        snprintf(kind, 32, "%.31s", dot ? dot + 1 : tensor);
}

static HsStatus look_at_file(HsInspection *inspection, const char *title, const HsSafetensors *file, bool by_kind)
{
    HsInspectedFile *found = &inspection->files[inspection->file_count++];
    *found = (HsInspectedFile){ .title = title, .file = file, .total = { .min = INFINITY, .max = -INFINITY } };
    found->tensors = calloc((size_t)file->count + 1, sizeof *found->tensors); /* one more: none is no failure */
    if (!found->tensors)
        return hs_fail(HS_ENOMEM, "no memory to inspect %s", inspection->checkpoint.folder);
    for (int i = 0; i < file->count; i++) {
        const HsNamedTensor *named = &file->tensors[i];
        char kind[32];
        kind_of(title, named->name, by_kind, kind);
        /* Tokens are no magnitudes. */
        bool is_float = hs_dtype_info(named->tensor.dtype)->is_float;
        count_tensor(&named->tensor, &found->tensors[i], is_float ? histogram_for(inspection, kind) : NULL);
        add_tensor(&found->total, &found->tensors[i]);
    }
    return HS_OK;
}

/* The strategies' tensors and the replay buffer, where a run has them. */
static HsStatus look_at_continual(HsInspection *inspection)
{
    char *path;
    HS_TRY(hs_storage_join(inspection->checkpoint.folder, "continual.safetensors", &path));
    HsStatus status = HS_OK;
    bool exists;
    HS_TRY_GOTO(status, hs_path_exists(path, &exists), done);
    if (exists) {
        status = hs_safetensors_open(path, &inspection->continual);
        if (status == HS_OK)
            status = look_at_file(inspection, "continual", &inspection->continual, true);
    }
done:
    free(path);
    return status;
}

static HsStatus look(HsInspection *inspection)
{
    const HsCheckpoint *checkpoint = &inspection->checkpoint;
    HS_TRY(hs_checkpoint_hash(checkpoint->folder, &inspection->hash));
    HS_TRY(look_at_file(inspection, "model", &checkpoint->model, false));
    HS_TRY(hs_inspect_codes(inspection, &inspection->files[0]));
    HS_TRY(look_at_file(inspection, "optimizer", &checkpoint->optimizer, true));
    return look_at_continual(inspection);
}

/* Names and values are the files': nothing of them that a terminal would obey. */
static HsStatus print_clean(const HsInspection *inspection, FILE *out)
{
    char *text = NULL;
    size_t bytes = 0;
    FILE *stream = open_memstream(&text, &bytes);
    HsStatus status = stream ? hs_inspection_print(inspection, stream) : HS_OK;
    HsStatus closed = hs_close_text(stream, &text);
    if (status == HS_OK)
        status = closed;
    if (status == HS_OK) {
        hs_log_clean(text, bytes);
        if (fwrite(text, 1, bytes, out) != bytes)
            status = hs_fail(HS_EIO, "the inspection cannot be written: %s", strerror(errno));
    }
    free(text);
    return status;
}

HsStatus hs_inspect_checkpoint_page(const char *folder, FILE *out, const char *path)
{
    HsInspection *inspection = calloc(1, sizeof *inspection);
    if (!inspection)
        return hs_fail(HS_ENOMEM, "no memory to inspect %s", folder);
    HsStatus status = HS_OK;
    HS_TRY_GOTO(status, hs_checkpoint_open(folder, true, &inspection->checkpoint), done);
    HS_TRY_GOTO(status, look(inspection), done);
    HS_TRY_GOTO(status, print_clean(inspection, out), done);
    if (path)
        status = hs_inspection_write_html(inspection, path);
done:
    for (int i = 0; i < inspection->file_count; i++)
        free(inspection->files[i].tensors);
    free(inspection->codes);
    hs_safetensors_close(&inspection->continual);
    hs_checkpoint_close(&inspection->checkpoint);
    free(inspection);
    return status;
}

HsStatus hs_inspect_checkpoint(const char *folder, FILE *out)
{
    return hs_inspect_checkpoint_page(folder, out, NULL);
}
