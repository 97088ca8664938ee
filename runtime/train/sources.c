/* SPDX-License-Identifier: MIT
 *
 * Which files a run read: task, path, size and XXH3-64 of each, kept in its checkpoints.  A run that continues over other
 * data would be no run that ever was, so that a file which changed, came or went is refused by name.  Where the
 * configuration has other paths (HsRun.moved_text), the files at them are compared one by one in their order, with what
 * each is for.
 *
 * Files are read once more for their checksums.  They have just been read for their text: they are in the page cache.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/data/source/source.h"
#include "runtime/io/storage.h"
#include "runtime/train/run.h"

typedef struct HsReadFile {
    char *path;
    int task;
    bool validates; /* is read for validation, and not for training */
    int64_t bytes;
    char checksum[20]; /* hexadecimal */
} HsReadFile;

struct HsReadFiles {
    HsReadFile *items;
    int count;
};

/* One that several tasks read is listed for each, and read once. */
static HsStatus add_file(HsReadFiles *files, const char *path, int task, bool validates)
{
    HsReadFile file = { .task = task, .validates = validates };
    const HsReadFile *same = NULL;
    for (int i = 0; i < files->count && !same; i++)
        if (strcmp(files->items[i].path, path) == 0)
            same = &files->items[i];
    if (same) {
        file.bytes = same->bytes;
        memcpy(file.checksum, same->checksum, sizeof file.checksum);
    } else {
        uint64_t checksum;
        HS_TRY(hs_storage_checksum(path, &checksum, &file.bytes));
        snprintf(file.checksum, sizeof file.checksum, "%016" PRIx64, checksum);
    }
    HsReadFile *items = realloc(files->items, (size_t)(files->count + 1) * sizeof *items);
    file.path = strdup(path);
    files->items = items ? items : files->items;
    if (!items || !file.path) {
        free(file.path);
        return hs_fail(HS_ENOMEM, "no memory to list the files of the training data");
    }
    items[files->count++] = file;
    return HS_OK;
}

/* *trained: how many of them are for training, which come first. */
static HsStatus list_sources(const HsConfig *config, const HsTaskConfig *task, HsSourceList *list, int *trained)
{
    HS_TRY(hs_source_list_keep_apart(list, config->training.out_dir));
    for (int i = 0; i < task->train.count; i++)
        HS_TRY(hs_source_list_add(list, task->train.items[i], task->format));
    *trained = list->count;
    /* A share is no source. */
    const size_t length = strlen(task->validation);
    const bool share = length == 0 || task->validation[length - 1] == '%';
    return share ? HS_OK : hs_source_list_add(list, task->validation, task->format);
}

static HsStatus add_task(HsReadFiles *files, const HsConfig *config, int task)
{
    HsSourceList list = { 0 };
    int trained = 0;
    HsStatus status = list_sources(config, &config->tasks[task], &list, &trained);
    for (int i = 0; status == HS_OK && i < list.count; i++)
        if (list.items[i].kind) /* not synthetic */
            status = add_file(files, list.items[i].name, task, i >= trained);
    hs_source_list_deinit(&list);
    return status;
}

HsStatus hs_run_list_files(HsRun *run)
{
    const HsConfig *config = run->training.config;
    run->files = calloc(1, sizeof *run->files);
    if (!run->files)
        return hs_fail(HS_ENOMEM, "no memory to list the files of the training data");
    for (int i = 0; i < config->task_count; i++)
        HS_TRY(add_task(run->files, config, i));
    return HS_OK;
}

HsStatus hs_run_check_token_files(const HsRun *run)
{
    const HsConfig *config = run->training.config;
    HsStatus status = HS_OK;
    if (!hs_is(config->tokenizer.kind, "char"))
        return HS_OK;
    for (int i = config->task_count - run->appended; status == HS_OK && i < config->task_count; i++) {
        HsSourceList list = { 0 };
        int trained;
        status = list_sources(config, &config->tasks[i], &list, &trained);
        if (status == HS_OK && hs_source_list_has_tokens(&list))
            status = hs_fail(HS_ECONFIG,
                             "tasks.%d.train: task `%.60s` has token files (.bin), and tokenizer.kind: char, which is "
                             "made from text, takes text files only",
                             i, config->tasks[i].name);
        hs_source_list_deinit(&list);
    }
    return status;
}

void hs_run_forget_files(HsRun *run)
{
    if (!run->files)
        return;
    for (int i = 0; i < run->files->count; i++)
        free(run->files->items[i].path);
    free(run->files->items);
    free(run->files);
    run->files = NULL;
}

HsJson *hs_run_files_json(const HsRun *run)
{
    HsJson *array = hs_json_array();
    for (int i = 0; i < run->files->count; i++) {
        const HsReadFile *file = &run->files->items[i];
        HsJson *row = hs_json_object();
        hs_json_set_string(row, "path", file->path);
        hs_json_set_integer(row, "task", file->task);
        hs_json_set_bool(row, "validation", file->validates);
        hs_json_set_integer(row, "bytes", file->bytes);
        hs_json_set_string(row, "xxh3", file->checksum);
        hs_json_append(array, row);
    }
    return array;
}

static HsStatus changed(const char *folder, const char *path, const char *what)
{
    return hs_fail(HS_ECONFIG,
                   "%s: %s since %s, and the run would continue on other data than it began with: restore the file, "
                   "or choose another out_dir",
                   path, what, folder);
}

/* One file as the checkpoint has it, against what the `known` tasks that its run had read now. */
static HsStatus check_file(const HsReadFiles *files, int known, const char *name, const char *folder, const HsJson *row)
{
    const char *path, *checksum;
    char what[96];
    int64_t bytes;
    HS_TRY(hs_json_need_string(name, row, "path", &path));
    HS_TRY(hs_json_need_string(name, row, "xxh3", &checksum));
    HS_TRY(hs_json_need_integer(name, row, "bytes", &bytes));
    for (int i = 0; i < files->count; i++) {
        const HsReadFile *file = &files->items[i];
        if (strcmp(file->path, path) != 0 || file->task >= known)
            continue;
        if (file->bytes == bytes && strcmp(file->checksum, checksum) == 0)
            return HS_OK;
        snprintf(what, sizeof what,
                 file->bytes != bytes ? "has %" PRId64 " bytes and had %" PRId64
                                      : "has other bytes, %" PRId64 " as before",
                 file->bytes, bytes);
        return changed(folder, path, what);
    }
    return changed(folder, path, "was removed");
}

/* Where rows say no task (an earlier version, which also kept a file once only), their order serves only if all files are
 * for the same purpose. */
static HsStatus check_roles(const HsReadFiles *files, int known, const char *folder)
{
    const HsReadFile *first = NULL;
    for (int i = 0; i < files->count; i++) {
        const HsReadFile *file = &files->items[i];
        if (file->task >= known)
            continue;
        if (first && (first->task != file->task || first->validates != file->validates))
            return hs_fail(
                HS_ECONFIG,
                "%s was saved by an earlier version, which did not keep what each file is for: set the paths "
                "back, and save once with this version",
                folder);
        first = first ? first : file;
    }
    return HS_OK;
}

static bool is_listed_before(const HsReadFiles *files, int index)
{
    for (int i = 0; i < index; i++)
        if (strcmp(files->items[i].path, files->items[index].path) == 0)
            return true;
    return false;
}

/* A file that takes the place of one of the checkpoint's: of the same bytes, for the same, and read in the same way. */
static HsStatus check_taken(const HsTraining *training, const char *name, const HsJson *row, const HsReadFile *file)
{
    const char *path, *checksum, *what = NULL;
    const char *const format = training->config->tasks[file->task].format;
    int64_t bytes, task = file->task;
    const HsSourceKind *before = NULL, *now = NULL;
    HS_TRY(hs_json_need_string(name, row, "path", &path));
    HS_TRY(hs_json_need_string(name, row, "xxh3", &checksum));
    HS_TRY(hs_json_need_integer(name, row, "bytes", &bytes));
    if (hs_json_get(row, "task"))
        HS_TRY(hs_json_need_integer(name, row, "task", &task));
    const bool validates = hs_json_is_true(hs_json_get(row, "validation"));
    const bool known = hs_source_kind_choose(path, format, &before) == HS_OK;
    HS_TRY(hs_source_kind_choose(file->path, format, &now));
    if (task != file->task || (hs_json_get(row, "task") && validates != file->validates))
        what = "is for another task, or for validation in place of training";
    else if (!known || before != now)
        what = "is read as another format";
    else if (file->bytes != bytes || strcmp(file->checksum, checksum) != 0)
        what = file->bytes != bytes ? "has another size" : "has other bytes";
    if (!what)
        return HS_OK;
    return hs_fail(HS_ECONFIG,
                   "tasks.%d.%s: %s would take the place of %s, and %s: the run would continue on other data than it "
                   "began with: set it back, or choose another out_dir",
                   file->task, file->validates ? "validation" : "train", file->path, path, what);
}

/* All files at other paths, in their order. */
static HsStatus check_moved(const HsRun *run, const char *name, const char *folder, const HsJson *kept)
{
    const HsReadFiles *files = run->files;
    const int known = run->training.data.count - run->appended;
    const HsJson *row = hs_json_first(kept);
    const bool says_task = row && hs_json_get(row, "task");
    int count = 0;
    if (!says_task)
        HS_TRY(check_roles(files, known, folder));
    for (int i = 0; i < files->count; i++) {
        const HsReadFile *file = &files->items[i];
        if (file->task >= known || (!says_task && is_listed_before(files, i)))
            continue;
        if (row)
            HS_TRY(check_taken(&run->training, name, row, file));
        row = row ? hs_json_next(row) : NULL;
        count++;
    }
    if (count == hs_json_count(kept))
        return HS_OK;
    return hs_fail(
        HS_ECONFIG,
        "the text lies at other paths than in %s, where it was %d files, and there are %d: set the paths back, "
        "or choose another out_dir",
        folder, hs_json_count(kept), count);
}

HsStatus hs_run_check_files(const HsRun *run, const char *name, const char *folder, const HsJson *kept)
{
    if (!kept) /* of a version that kept none */
        return run->moved_text ? hs_fail(HS_ECONFIG,
                                         "%s was saved by an earlier version, which kept no checksums: the text must "
                                         "lie where it was: set the paths back",
                                         folder)
                               : HS_OK;
    if (!hs_json_is_array(kept))
        return hs_fail(HS_EFORMAT, "%s: member `files` must be a list", name);
    if (run->moved_text)
        return check_moved(run, name, folder, kept);
    const int known = run->training.data.count - run->appended;
    for (const HsJson *row = hs_json_first(kept); row; row = hs_json_next(row))
        HS_TRY(check_file(run->files, known, name, folder, row));
    for (int i = 0; i < run->files->count; i++) {
        bool found = run->files->items[i].task >= known;
        for (const HsJson *row = hs_json_first(kept); row && !found; row = hs_json_next(row)) {
            const char *path = hs_json_string(hs_json_get(row, "path"));
            found = path && strcmp(path, run->files->items[i].path) == 0;
        }
        if (!found)
            return changed(folder, run->files->items[i].path, "is new");
    }
    return HS_OK;
}
