/* SPDX-License-Identifier: MIT
 *
 * Finding, verifying and opening checkpoints.
 */
#include <errno.h>
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

enum { MAX_STATE_BYTES = 1 << 30 };

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
        hs_warn("using the newest intact checkpoint, %s", *folder);
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
            status = hs_fail(HS_EIO, "%s: no complete checkpoint in it: the run has saved none yet", parent);
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
