/* SPDX-License-Identifier: MIT
 *
 * Finding, verifying and reading checkpoints.
 */
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "kernels/base/log.h"
#include "runtime/checkpoint/checkpoint.h"
#include "runtime/checkpoint/folder.h"
#include "runtime/io/files.h"
#include "runtime/io/storage.h"

enum { MAX_STATE_BYTES = 1 << 30, LOAD_CHUNK = 1024 };

/* A checkpoint that cannot be used is passed over with a warning, as an earlier one may do; without memory nothing can
 * be said of it.  *verdict: HS_OK, HS_EFORMAT (damaged), HS_EIO (not to be read, for the moment perhaps). */
static HsStatus usable(const char *folder, const char *what, HsStatus *verdict)
{
    *verdict = hs_checkpoint_verify(folder, true);
    if (*verdict == HS_OK || *verdict == HS_ENOMEM)
        return *verdict;
    hs_warn("%s: %s", what, hs_error_message());
    return HS_OK;
}

/* The folder that `latest` names, if it names one and that verifies; else *folder stays NULL.  *found: `latest` is
 * there, whatever it says; tried: the name of what is damaged. */
static HsStatus named_by_latest(const char *parent, char **folder, bool *found, char tried[HS_CHECKPOINT_NAME_BYTES])
{
    char *path = NULL, *named = NULL, name[HS_CHECKPOINT_NAME_BYTES];
    HsStatus status = HS_OK, verdict = HS_EIO;
    HS_TRY_GOTO(status, hs_storage_join(parent, HS_CHECKPOINT_LATEST, &path), done);
    HS_TRY_GOTO(status, hs_path_exists(path, found), done);
    if (!*found)
        goto done; /* killed before the first save was complete */
    if (hs_checkpoint_read_name(parent, HS_CHECKPOINT_LATEST, name) != HS_OK) {
        hs_warn("%s", hs_error_message());
        goto done;
    }
    HS_TRY_GOTO(status, hs_storage_join(parent, name, &named), done);
    HS_TRY_GOTO(status, usable(named, "latest checkpoint cannot be used", &verdict), done);
    if (verdict == HS_OK) {
        *folder = named;
        named = NULL;
    } else if (verdict == HS_EFORMAT) { /* else it is tried once more before an older one is taken */
        snprintf(tried, HS_CHECKPOINT_NAME_BYTES, "%s", name);
    }
done:
    free(named);
    free(path);
    return status;
}

/* The highest step that verifies, other than what was tried.  *count: step folders, that one among them. */
static HsStatus highest_whole(const char *parent, const char *tried, char **folder, int *count)
{
    HsFolderListing listing = { 0 };
    HS_TRY(hs_storage_list(parent, &listing));
    HsStatus status = HS_OK;
    for (int64_t below = INT64_MAX; !*folder;) {
        int64_t highest = -1, step = 0;
        for (int i = 0; i < listing.count; i++) {
            if (hs_checkpoint_step_of(listing.names[i], &step) && step < below && step > highest)
                highest = step;
        }
        if (highest < 0)
            break;
        below = highest;
        /* "step-N" sorts before "step-N.replaced": the newer of the two is tried first. */
        for (int i = 0; i < listing.count && !*folder; i++) {
            if (!hs_checkpoint_step_of(listing.names[i], &step) || step != highest)
                continue;
            char *path = NULL;
            HsStatus verdict = HS_EIO;
            *count += 1;
            if (strcmp(listing.names[i], tried) == 0)
                continue;
            HS_TRY_GOTO(status, hs_storage_join(parent, listing.names[i], &path), done);
            status = usable(path, "checkpoint passed over", &verdict);
            if (verdict == HS_OK)
                *folder = path;
            else
                free(path);
            if (status != HS_OK)
                goto done;
        }
    }
done:
    hs_storage_list_free(&listing);
    return status;
}

HsStatus hs_checkpoint_exists(const char *out_dir, bool *exists)
{
    char *parent = NULL;
    HsFolderListing listing = { 0 };
    int64_t step;
    bool folder = false;
    *exists = false;
    HS_TRY(hs_storage_join(out_dir, HS_CHECKPOINTS_FOLDER, &parent));
    HsStatus status = hs_path_exists(parent, &folder);
    if (status == HS_OK && folder)
        status = hs_storage_list(parent, &listing);
    for (int i = 0; i < listing.count; i++)
        *exists = *exists || strcmp(listing.names[i], HS_CHECKPOINT_LATEST) == 0 ||
                  hs_checkpoint_step_of(listing.names[i], &step);
    hs_storage_list_free(&listing);
    free(parent);
    return status;
}

HsStatus hs_checkpoint_latest(const char *out_dir, char **folder)
{
    *folder = NULL;
    char *parent = NULL;
    char tried[HS_CHECKPOINT_NAME_BYTES] = "";
    bool found = false;
    int count = 0;
    HS_TRY(hs_storage_join(out_dir, HS_CHECKPOINTS_FOLDER, &parent));
    HsStatus status = HS_OK;
    bool exists;
    HS_TRY_GOTO(status, hs_path_exists(parent, &exists), done);
    if (!exists)
        goto done;
    HS_TRY_GOTO(status, named_by_latest(parent, folder, &found, tried), done);
    if (*folder)
        goto done;
    HS_TRY_GOTO(status, highest_whole(parent, tried, folder, &count), done);
    if (*folder)
        hs_warn("going by %s", *folder);
    else if (found || count > 0)
        status = hs_fail(HS_EFORMAT,
                         "%s: none of its %d checkpoints can be used, see the warnings above. Restore one, or choose "
                         "another out_dir; to start over, remove %s",
                         parent, count, out_dir);
done:
    free(parent);
    return status;
}

HsStatus hs_checkpoint_best(const char *out_dir, char **path)
{
    *path = NULL;
    HS_TRY(hs_storage_join(out_dir, HS_CHECKPOINTS_FOLDER "/" HS_CHECKPOINT_BEST, path));
    if (access(*path, F_OK) == 0)
        return HS_OK;
    free(*path);
    *path = NULL;
    return hs_fail(HS_EIO,
                   "%s: no best checkpoint is kept there (" HS_CHECKPOINTS_FOLDER "/" HS_CHECKPOINT_BEST
                   "): name a run's folder that was trained with keep_best=true",
                   out_dir);
}

/* The folder that the file at `path` (checkpoints/best, or latest) names, verified. */
static HsStatus resolve_name(const char *path, char **step_folder)
{
    char name[HS_CHECKPOINT_NAME_BYTES], aside[HS_CHECKPOINT_NAME_BYTES + sizeof HS_CHECKPOINT_REPLACED];
    char *copy = strdup(path), *named = NULL;
    if (!copy)
        return hs_fail(HS_ENOMEM, "no memory for the path %s", path);
    char *slash = strrchr(copy, '/');
    if (slash)
        *slash = '\0';
    const char *parent = !slash ? "." : slash == copy ? "/" : copy;
    HsStatus status = HS_OK;
    HS_TRY_GOTO(status, hs_checkpoint_read_name(parent, slash ? slash + 1 : path, name), done);
    HS_TRY_GOTO(status, hs_storage_join(parent, name, &named), done);
    if (access(named, F_OK) != 0) { /* moved aside while its step was saved again, and left there */
        free(named);
        named = NULL;
        snprintf(aside, sizeof aside, "%s" HS_CHECKPOINT_REPLACED, name);
        HS_TRY_GOTO(status, hs_storage_join(parent, aside, &named), done);
    }
    status = hs_checkpoint_verify(named, true);
    if (status == HS_OK) {
        *step_folder = named;
        named = NULL;
    } else {
        status = hs_error_prefix(status, "%s names %s", path, name);
    }
done:
    free(named);
    free(copy);
    return status;
}

/* Which step folder is meant, verified. */
static HsStatus resolve(const char *folder, char **step_folder)
{
    *step_folder = NULL;
    HsStatus status = HS_OK;
    char *checksums = NULL, *parent = NULL;
    bool sealed, run;
    struct stat about;
    if (stat(folder, &about) == 0 && S_ISREG(about.st_mode))
        return resolve_name(folder, step_folder);
    HS_TRY_GOTO(status, hs_storage_join(folder, HS_CHECKPOINT_CHECKSUMS, &checksums), done);
    HS_TRY_GOTO(status, hs_storage_join(folder, HS_CHECKPOINTS_FOLDER, &parent), done);
    HS_TRY_GOTO(status, hs_path_exists(checksums, &sealed), done);
    HS_TRY_GOTO(status, hs_path_exists(parent, &run), done);
    if (sealed) {
        HS_TRY_GOTO(status, hs_checkpoint_verify(folder, true), done);
        *step_folder = strdup(folder);
        if (!*step_folder)
            status = hs_fail(HS_ENOMEM, "no memory for the path %s", folder);
    } else if (run) {
        status = hs_checkpoint_latest(folder, step_folder);
        if (status == HS_OK && !*step_folder)
            status = hs_fail(HS_EIO, "%s: no complete checkpoint in it", parent);
    } else {
        status = hs_fail(HS_EIO, "%s: neither a checkpoint (no %s) nor a run folder (no %s/)", folder,
                         HS_CHECKPOINT_CHECKSUMS, HS_CHECKPOINTS_FOLDER);
    }
done:
    free(checksums);
    free(parent);
    return status;
}

static HsStatus open_tensors(const char *folder, const char *name, HsSafetensors *file)
{
    char *path = NULL;
    HS_TRY(hs_storage_join(folder, name, &path));
    HsStatus status = hs_safetensors_open(path, file);
    free(path);
    return status;
}

static HsStatus open_state(const char *folder, HsJson **state)
{
    char *path = NULL, *text = NULL;
    size_t length = 0;
    HS_TRY(hs_storage_join(folder, "trainer.json", &path));
    HsStatus status = hs_read_file(path, MAX_STATE_BYTES, &text, &length);
    if (status == HS_OK)
        status = hs_json_parse(path, text, length, state);
    if (status == HS_OK && !hs_json_is_object(*state))
        status = hs_fail(HS_EFORMAT, "%s: must be an object", path);
    free(text);
    free(path);
    return status;
}

HsStatus hs_checkpoint_open(const char *folder, bool with_optimizer, HsCheckpoint *checkpoint)
{
    *checkpoint = (HsCheckpoint){ 0 };
    HsStatus status = HS_OK;
    HS_TRY_GOTO(status, resolve(folder, &checkpoint->folder), failed);
    HS_TRY_GOTO(status, open_tensors(checkpoint->folder, "model.safetensors", &checkpoint->model), failed);
    if (with_optimizer)
        HS_TRY_GOTO(status, open_tensors(checkpoint->folder, "optimizer.safetensors", &checkpoint->optimizer), failed);
    HS_TRY_GOTO(status, open_state(checkpoint->folder, &checkpoint->state), failed);
    return HS_OK;
failed:
    hs_checkpoint_close(checkpoint);
    return status;
}

void hs_checkpoint_close(HsCheckpoint *checkpoint)
{
    hs_safetensors_close(&checkpoint->model);
    hs_safetensors_close(&checkpoint->optimizer);
    hs_json_destroy(checkpoint->state);
    free(checkpoint->folder);
    *checkpoint = (HsCheckpoint){ 0 };
}

/* "[2, 3]" */
static void describe_shape(const HsTensor *tensor, char *text, size_t size)
{
    size_t used = (size_t)snprintf(text, size, "[");
    for (int axis = 0; axis < tensor->rank; axis++)
        used += (size_t)snprintf(text + used, size - used, "%s%" PRId64, axis ? ", " : "", tensor->shape[axis]);
    snprintf(text + used, size - used, "]");
}

static HsStatus check_match(const char *file_name, const HsSafetensors *file, const HsNamedTensor *destination)
{
    const HsNamedTensor *source = hs_safetensors_find(file, destination->name);
    const HsTensor *to = &destination->tensor;
    if (!source)
        return hs_fail(HS_EFORMAT, "%s: tensor `%s` is missing", file_name, destination->name);
    bool same = source->tensor.rank == to->rank;
    for (int axis = 0; axis < to->rank && same; axis++)
        same = source->tensor.shape[axis] == to->shape[axis];
    if (!same) {
        char has[128], needs[128];
        describe_shape(&source->tensor, has, sizeof has);
        describe_shape(to, needs, sizeof needs);
        return hs_fail(HS_ESHAPE, "%s: tensor `%s` has shape %s, the model needs %s", file_name, destination->name, has,
                       needs);
    }
    bool floats = hs_dtype_info(source->tensor.dtype)->is_float && hs_dtype_info(to->dtype)->is_float;
    if (!floats && source->tensor.dtype != to->dtype)
        return hs_fail(HS_ESHAPE, "%s: tensor `%s` is %s and cannot become %s", file_name, destination->name,
                       hs_dtype_name(source->tensor.dtype), hs_dtype_name(to->dtype));
    return HS_OK;
}

static HsStatus copy_elements(const char *file_name, const HsNamedTensor *source, HsTensor *to)
{
    double values[LOAD_CHUNK];
    const HsTensor *from = &source->tensor;
    int64_t count = hs_dtype_info(from->dtype)->is_float ? hs_tensor_count(from) : 0;
    for (int64_t first = 0; first < count; first += LOAD_CHUNK) {
        int64_t here = count - first < LOAD_CHUNK ? count - first : LOAD_CHUNK;
        hs_safetensors_load(from, first, here, values);
        for (int64_t i = 0; i < here; i++) {
            if (!isfinite(values[i]))
                return hs_fail(HS_EFORMAT, "%s: tensor `%s`: element %" PRId64 " is %s", file_name, source->name,
                               first + i, isnan(values[i]) ? "NaN" : "infinite");
            if (from->dtype == to->dtype)
                continue;
            hs_dtype_store(to->dtype, to->data, first + i, values[i]);
            if (!isfinite(hs_dtype_load(to->dtype, to->data, first + i)))
                return hs_fail(HS_EFORMAT, "%s: tensor `%s`: element %" PRId64 ", %g, is too large for %s", file_name,
                               source->name, first + i, values[i], hs_dtype_name(to->dtype));
        }
    }
    /* Integers have no bad values and the same format needs no conversion: the bytes as they are. */
    if (from->dtype == to->dtype && hs_tensor_bytes(to) > 0)
        memcpy(to->data, from->data, hs_tensor_bytes(to));
    return HS_OK;
}

/* Converted on the host, then brought to where it belongs. */
static HsStatus restore_tensor(const char *file_name, const HsNamedTensor *source, const HsNamedTensor *destination)
{
    HsTensor to = destination->tensor;
    const HsContext *context = destination->context;
    const size_t bytes = hs_tensor_bytes(&to);
    if (!context || context->device->host_accessible || bytes == 0)
        return copy_elements(file_name, source, &to);
    to.data = malloc(bytes);
    if (!to.data)
        return hs_fail(HS_ENOMEM, "%s: no memory for tensor `%s`, %zu bytes", file_name, source->name, bytes);
    HsStatus status = copy_elements(file_name, source, &to);
    if (status == HS_OK)
        status = context->device->copy(context->device, context->stream, destination->tensor.data, to.data, bytes);
    free(to.data);
    return status;
}

HsStatus hs_checkpoint_restore(const char *file_name, const HsSafetensors *file, const HsNamedTensor *destinations,
                               int count)
{
    /* All of them first: a model that does not fit is left as it was. */
    for (int i = 0; i < count; i++)
        HS_TRY(check_match(file_name, file, &destinations[i]));
    for (int i = 0; i < count; i++)
        HS_TRY(restore_tensor(file_name, hs_safetensors_find(file, destinations[i].name), &destinations[i]));
    return HS_OK;
}
