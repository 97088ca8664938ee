/* SPDX-License-Identifier: MIT
 *
 * Saving.  At every instant of a save `latest` names a whole folder, because each step is undone by nothing worse than
 * a leftover with a name that starts with ".tmp-":
 *
 *     .tmp-step-N/ written, each file fsynced, checksums.json last, folder fsynced
 *     -> rename to step-N, parent fsynced             step-N is whole, latest still names the one before
 *     -> .tmp-best written, fsynced, renamed          where step-N is the best so far
 *     -> .tmp-latest written, fsynced, renamed        latest names step-N
 *     -> step-old renamed to .tmp-, then removed      no step folder is ever half deleted
 */
#include "runtime/checkpoint/checkpoint.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/checkpoint/folder.h"
#include "runtime/io/files.h"
#include "runtime/io/storage.h"

static HsStatus rename_within(const char *parent, const char *from, const char *to)
{
    char *source = NULL, *target = NULL;
    HsStatus status = HS_OK;
    HS_TRY_GOTO(status, hs_storage_join(parent, from, &source), done);
    HS_TRY_GOTO(status, hs_storage_join(parent, to, &target), done);
    if (rename(source, target) != 0)
        status = hs_fail(HS_EIO, "cannot rename %s to %s: %s", source, target, strerror(errno));
done:
    free(source);
    free(target);
    return status;
}

static HsStatus remove_within(const char *parent, const char *name)
{
    char *path = NULL;
    HS_TRY(hs_storage_join(parent, name, &path));
    HsStatus status = hs_storage_remove(path);
    free(path);
    return status;
}

static bool ends_with(const char *name, const char *ending)
{
    size_t length = strlen(name), tail = strlen(ending);
    return length >= tail && strcmp(name + length - tail, ending) == 0;
}

/* A folder moved aside is garbage as soon as its replacement is in place; before that it is the only copy. */
static HsStatus is_leftover(const char *parent, const char *name, bool *leftover)
{
    int64_t step = 0;
    *leftover = strncmp(name, HS_CHECKPOINT_TEMPORARY, strlen(HS_CHECKPOINT_TEMPORARY)) == 0;
    if (*leftover || !hs_checkpoint_step_of(name, &step) || !ends_with(name, HS_CHECKPOINT_REPLACED))
        return HS_OK;
    char plain[64];
    snprintf(plain, sizeof plain, "step-%08" PRId64, step);
    return hs_storage_has(parent, plain, leftover);
}

/* What killed saves left behind. */
static HsStatus remove_leftovers(const char *parent)
{
    HsFolderListing listing = { 0 };
    HS_TRY(hs_storage_list(parent, &listing));
    HsStatus status = HS_OK;
    for (int i = 0; i < listing.count && status == HS_OK; i++) {
        bool leftover;
        status = is_leftover(parent, listing.names[i], &leftover);
        if (status == HS_OK && leftover)
            status = remove_within(parent, listing.names[i]);
    }
    hs_storage_list_free(&listing);
    return status;
}

HsStatus hs_checkpoint_clean(const char *out_dir)
{
    char *parent = NULL;
    HS_TRY(hs_storage_join(out_dir, HS_CHECKPOINTS_FOLDER, &parent));
    bool exists;
    HsStatus status = hs_path_exists(parent, &exists);
    if (status == HS_OK && exists)
        status = remove_leftovers(parent);
    free(parent);
    return status;
}

static HsStatus write_tensors(const char *folder, const char *name, const HsNamedTensor *tensors, int count,
                              HsJson *known)
{
    char *path = NULL;
    uint64_t checksum = 0;
    char digits[17];
    HS_TRY(hs_storage_join(folder, name, &path));
    static const char *const metadata[] = { "format", "pt", NULL }; /* readers of the field look for it */
    HsStatus status = hs_safetensors_write(path, tensors, count, metadata, &checksum);
    snprintf(digits, sizeof digits, "%016" PRIx64, checksum);
    hs_json_set_string(known, name, digits);
    free(path);
    return status;
}

static HsStatus write_state(const char *folder, const HsJson *state)
{
    char *path = NULL;
    HS_TRY(hs_storage_join(folder, "trainer.json", &path));
    char *text = hs_json_write(state, true);
    HsStatus status = text ? hs_storage_write_file(path, text, strlen(text))
                           : hs_fail(HS_ENOMEM, "%s: no memory for the trainer's state", path);
    free(text);
    free(path);
    return status;
}

/* Everything into `folder`, fsynced, sealed. */
static HsStatus write_content(const char *folder, const HsCheckpointContent *content)
{
    HsStatus status = HS_OK;
    HsJson *known = hs_json_object();
    if (mkdir(folder, 0777) != 0) {
        status = hs_fail(HS_EIO, "cannot make the folder %s: %s", folder, strerror(errno));
        goto done;
    }
    HS_TRY_GOTO(status, write_tensors(folder, "model.safetensors", content->model, content->model_count, known), done);
    HS_TRY_GOTO(status,
                write_tensors(folder, "optimizer.safetensors", content->optimizer, content->optimizer_count, known),
                done);
    HS_TRY_GOTO(status, write_state(folder, content->state), done);
    if (content->write_extra)
        HS_TRY_GOTO(status, content->write_extra(content->user, folder), done);
    status = hs_checkpoint_seal(folder, content->step, known);
done:
    hs_json_destroy(known);
    return status;
}

/* .tmp-step-N -> step-N.  A folder of that step may be there already (saved, resumed from an older one, saved again):
 * the two change places in one operation where the file system can do that. */
static HsStatus publish(const char *parent, const char *temporary, const char *name)
{
    bool exists;
    HS_TRY(hs_storage_has(parent, name, &exists));
    if (!exists)
        return rename_within(parent, temporary, name);
    char *source = NULL, *target = NULL;
    HsStatus status = HS_OK;
    HS_TRY_GOTO(status, hs_storage_join(parent, temporary, &source), done);
    HS_TRY_GOTO(status, hs_storage_join(parent, name, &target), done);
    if (renameat2(AT_FDCWD, source, AT_FDCWD, target, RENAME_EXCHANGE) == 0) {
        status = hs_storage_remove(source);
        goto done;
    }
    /* It cannot (NFS): move the old one aside under a name that hs_checkpoint_latest still finds. */
    char aside[80];
    snprintf(aside, sizeof aside, "%s%s", name, HS_CHECKPOINT_REPLACED);
    HS_TRY_GOTO(status, remove_within(parent, aside), done);
    HS_TRY_GOTO(status, rename_within(parent, name, aside), done);
    HS_TRY_GOTO(status, rename_within(parent, temporary, name), done);
    status = remove_within(parent, aside);
done:
    free(source);
    free(target);
    return status;
}

/* The file `pointer` (latest, best) names the folder `name` from now on. */
static HsStatus point(const char *parent, const char *pointer, const char *name)
{
    char *path = NULL;
    char line[80], temporary[80];
    int length = snprintf(line, sizeof line, "%s\n", name);
    snprintf(temporary, sizeof temporary, HS_CHECKPOINT_TEMPORARY "%s", pointer);
    HS_TRY(hs_storage_join(parent, temporary, &path));
    HsStatus status = hs_storage_write_file(path, line, (size_t)length);
    free(path);
    HS_TRY(status);
    HS_TRY(rename_within(parent, temporary, pointer));
    return hs_storage_sync(parent);
}

/* What else than `latest` the checkpoint is called. */
static HsStatus point_all(const char *parent, const HsCheckpointContent *content, const char *name)
{
    for (int i = 0; i < content->name_count; i++)
        HS_TRY(point(parent, content->names[i], name));
    return HS_OK;
}

HsStatus hs_checkpoint_name_best(const char *out_dir, const char *name)
{
    char *parent = NULL, *path = NULL, folder[HS_CHECKPOINT_NAME_BYTES];
    bool taken = false;
    HsStatus status = HS_OK;
    HS_TRY_GOTO(status, hs_storage_join(out_dir, HS_CHECKPOINTS_FOLDER, &parent), done);
    HS_TRY_GOTO(status, hs_storage_join(parent, name, &path), done);
    HS_TRY_GOTO(status, hs_path_exists(path, &taken), done);
    if (!taken && hs_checkpoint_read_name(parent, HS_CHECKPOINT_BEST, folder) == HS_OK)
        status = point(parent, name, folder);
done:
    free(path);
    free(parent);
    return status;
}

HsStatus hs_checkpoint_go_back(const char *out_dir, bool *done)
{
    char *parent = NULL, *path = NULL, name[HS_CHECKPOINT_NAME_BYTES];
    HsStatus status = HS_OK;
    *done = false;
    HS_TRY_GOTO(status, hs_storage_join(out_dir, HS_CHECKPOINTS_FOLDER, &parent), done);
    HS_TRY_GOTO(status, hs_storage_join(parent, HS_CHECKPOINT_HELD, &path), done);
    if (access(path, F_OK) != 0)
        goto done;
    HS_TRY_GOTO(status, hs_checkpoint_read_name(parent, HS_CHECKPOINT_HELD, name), done);
    char *folder = NULL;
    HS_TRY_GOTO(status, hs_storage_join(parent, name, &folder), done);
    status = hs_checkpoint_verify(folder, true);
    free(folder);
    if (status == HS_OK)
        status = point(parent, "latest", name);
    if (status == HS_OK && unlink(path) != 0)
        status = hs_fail(HS_EIO, "cannot remove %s: %s", path, strerror(errno));
    *done = status == HS_OK;
done:
    free(path);
    free(parent);
    return status;
}

static bool is_kept_name(const char *name)
{
    return strncmp(name, HS_CHECKPOINT_BEST, strlen(HS_CHECKPOINT_BEST)) == 0 || strcmp(name, HS_CHECKPOINT_HELD) == 0;
}

/* Does some `best`, or `held`, name this folder?  One that cannot be read names none: the folder may go then as any other. */
static bool is_kept(const char *parent, const HsFolderListing *listing, const char *folder)
{
    bool found = false;
    for (int i = 0; i < listing->count && !found; i++) {
        char name[HS_CHECKPOINT_NAME_BYTES];
        if (is_kept_name(listing->names[i]))
            found = hs_checkpoint_read_name(parent, listing->names[i], name) == HS_OK && strcmp(name, folder) == 0;
    }
    return found;
}

/* Older whole checkpoints beyond the newest `keep`, those of a name left alone.  Damaged ones neither count nor go: a user
 * may want to look. */
static HsStatus remove_old(const char *parent, int64_t newest, int64_t keep)
{
    HsFolderListing listing = { 0 };
    HS_TRY(hs_storage_list(parent, &listing));
    HsStatus status = HS_OK;
    int64_t kept = 1; /* the newest itself */
    /* Names are sorted and of one width up to 99,999,999 steps; beyond that longer ones sort among the shorter, so the
     * next lower step is looked for each time. */
    for (int64_t below = newest; status == HS_OK;) {
        int best = -1;
        int64_t best_step = -1, step = 0;
        for (int i = 0; i < listing.count; i++) {
            if (hs_checkpoint_step_of(listing.names[i], &step) && step < below && step > best_step) {
                best = i;
                best_step = step;
            }
        }
        if (best < 0)
            break;
        below = best_step;
        char *path = NULL;
        HS_TRY_GOTO(status, hs_storage_join(parent, listing.names[best], &path), done);
        bool whole = hs_checkpoint_verify(path, false) == HS_OK;
        free(path);
        if (!whole || ++kept <= keep || is_kept(parent, &listing, listing.names[best]))
            continue;
        char temporary[80];
        snprintf(temporary, sizeof temporary, HS_CHECKPOINT_TEMPORARY "old-%08" PRId64, best_step);
        HS_TRY_GOTO(status, rename_within(parent, listing.names[best], temporary), done);
        status = remove_within(parent, temporary);
    }
done:
    hs_storage_list_free(&listing);
    return status;
}

HsStatus hs_checkpoint_save(const char *out_dir, const HsCheckpointContent *content, int64_t keep)
{
    HsStatus status = HS_OK;
    char *parent = NULL, *folder = NULL;
    char name[64], temporary[80];
    snprintf(name, sizeof name, "step-%08" PRId64, content->step);
    snprintf(temporary, sizeof temporary, HS_CHECKPOINT_TEMPORARY "%s", name);
    HS_TRY_GOTO(status, hs_storage_join(out_dir, HS_CHECKPOINTS_FOLDER, &parent), done);
    HS_TRY_GOTO(status, hs_storage_join(parent, temporary, &folder), done);
    HS_TRY_GOTO(status, hs_make_directories(parent), done);
    HS_TRY_GOTO(status, hs_storage_sync(out_dir), done); /* the name "checkpoints", made just now perhaps */
    HS_TRY_GOTO(status, remove_leftovers(parent), done);

    status = write_content(folder, content);
    if (status != HS_OK) {
        /* Give the space back at once: the disk may be full.  The first error is the one to report. */
        char message[1024];
        snprintf(message, sizeof message, "%s", hs_error_message());
        (void)hs_storage_remove(folder);
        status = hs_fail(status, "checkpoint of step %" PRId64 " not saved (earlier ones are untouched): %s",
                         content->step, message);
        goto done;
    }
    /* Before `latest` names it, so that a run that dies in between continues from an earlier checkpoint and comes
     * here again.  A folder that is only replaced is named by `latest` already, perhaps: then before that. */
    bool again;
    HS_TRY_GOTO(status, hs_storage_has(parent, name, &again), done);
    if (again)
        HS_TRY_GOTO(status, point_all(parent, content, name), done);
    HS_TRY_GOTO(status, publish(parent, temporary, name), done);
    HS_TRY_GOTO(status, hs_storage_sync(parent), done);
    if (!again)
        HS_TRY_GOTO(status, point_all(parent, content, name), done);
    HS_TRY_GOTO(status, point(parent, HS_CHECKPOINT_LATEST, name), done);
    status = remove_old(parent, content->step, keep);
done:
    free(folder);
    free(parent);
    return status;
}
