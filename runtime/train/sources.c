/* SPDX-License-Identifier: MIT
 *
 * Which files a run read: task, path, and by what each is known again (file_mark.h), kept in its checkpoints.  A run that
 * continues over other data would be no run that ever was, so that a file which changed, came or went is refused by name.
 * Where the configuration has other paths (HsRun.moved_text), the files at them are compared one by one in their order,
 * with what each is for.
 *
 *     same size, times and samples   it is the file that the run read
 *     another time                   its checksum decides, for which it is read once; where none was taken, the samples
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/base/array.h"
#include "kernels/base/log.h"
#include "runtime/data/source/source.h"
#include "runtime/data/source/token_cache.h"
#include "runtime/data/tokenizer/map.h"
#include "runtime/exchange/reduce.h"
#include "runtime/train/run.h"

/* Token files are not read at the start but for these many bytes in all: fewer are checksummed, more only if
 * data.verify: full asks for it.  Text is read anyway. */
static const int64_t checksummed_bytes = (int64_t)64 << 20;

typedef struct HsReadFile {
    char *path;
    int task;
    bool validates; /* is read for validation, and not for training */
    bool stays;     /* in its file: a token file */
    HsFileMark mark;
} HsReadFile;

struct HsReadFiles {
    HsReadFile *items;
    int count;
    size_t capacity;
    HsMap first; /* path -> the first item that has it */
};

static int find_file(const HsReadFiles *files, const char *path)
{
    int64_t index;
    return hs_map_get(&files->first, path, strlen(path), &index) ? (int)index : -1;
}

/* One that several tasks read is listed for each, and looked at once. */
static HsStatus add_file(HsReadFiles *files, const HsTokenCache *cache, const HsSource *source, int task,
                         bool validates)
{
    HsReadFile file = { .task = task, .validates = validates, .stays = hs_source_stays_in_file(source) };
    const int same = find_file(files, source->name);
    if (same >= 0)
        file.mark = files->items[same].mark;
    else if (!cache || !hs_file_marks_find(cache->marks, source->name, &file.mark)) /* it has just been looked at */
        HS_TRY(hs_file_mark(source->name, false, &file.mark));
    HS_TRY(hs_array_grow(&files->items, sizeof *files->items, (size_t)files->count + 1, &files->capacity));
    if (same < 0)
        HS_TRY(hs_map_put(&files->first, source->name, strlen(source->name), files->count));
    file.path = strdup(source->name);
    if (!file.path)
        return hs_fail(HS_ENOMEM, "no memory to list the files of the training data");
    files->items[files->count++] = file;
    return HS_OK;
}

/* The checksums that are taken at every start. */
static HsStatus complete_marks(HsReadFiles *files, bool full)
{
    int64_t bytes = 0;
    for (int i = 0; i < files->count; i++)
        bytes += files->items[i].mark.bytes;
    for (int i = 0; i < files->count; i++) {
        HsReadFile *file = &files->items[i];
        const HsReadFile *const first = &files->items[find_file(files, file->path)];
        if (first != file)
            file->mark = first->mark;
        else if (full || !file->stays || bytes <= checksummed_bytes)
            HS_TRY(hs_file_mark_complete(file->path, &file->mark));
    }
    return HS_OK;
}

static HsStatus list_validation(HsSourceList *list, const HsTaskConfig *task, const char *name)
{
    const size_t length = strlen(name);
    const bool share = length == 0 || name[length - 1] == '%'; /* is no source */
    return share ? HS_OK : hs_source_list_add(list, name, task->format);
}

/* *trained: how many of them are for training, which come first. */
static HsStatus list_sources(const HsConfig *config, const HsTaskConfig *task, HsSourceList *list, int *trained)
{
    HS_TRY(hs_source_list_keep_apart(list, config->training.out_dir));
    HS_TRY(hs_source_list_exclude(list, &task->exclude));
    for (int i = 0; i < task->train.count; i++)
        HS_TRY(hs_source_list_add(list, task->train.items[i], task->format));
    *trained = list->count;
    HS_TRY(list_validation(list, task, task->validation));
    for (int i = 0; i < task->source_validation.count; i++)
        HS_TRY(list_validation(list, task, task->source_validation.items[i]));
    return HS_OK;
}

static HsStatus add_task(HsReadFiles *files, const HsTokenCache *cache, const HsConfig *config, int task)
{
    HsSourceList list = { 0 };
    int trained = 0;
    HsStatus status = list_sources(config, &config->tasks[task], &list, &trained);
    for (int i = 0; status == HS_OK && i < list.count; i++)
        if (list.items[i].kind) /* not synthetic */
            status = add_file(files, cache, &list.items[i], task, i >= trained);
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
        HS_TRY(add_task(run->files, run->training.data.cache, config, i));
    return complete_marks(run->files, hs_is(config->data.verify, "full"));
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
    hs_map_deinit(&run->files->first);
    free(run->files);
    run->files = NULL;
}

/* times: with what differs from machine to machine. */
static HsJson *list_json(const HsRun *run, bool times)
{
    HsJson *array = hs_json_array();
    char number[20];
    for (int i = 0; i < run->files->count; i++) {
        const HsReadFile *file = &run->files->items[i];
        HsJson *row = hs_json_object();
        hs_json_set_string(row, "path", file->path);
        hs_json_set_integer(row, "task", file->task);
        hs_json_set_bool(row, "validation", file->validates);
        hs_json_set_integer(row, "bytes", file->mark.bytes);
        snprintf(number, sizeof number, "%016" PRIx64, file->mark.samples);
        hs_json_set_string(row, "samples", number);
        if (times)
            hs_json_set_string(row, "times", file->mark.times);
        snprintf(number, sizeof number, "%016" PRIx64, file->mark.checksum);
        if (file->mark.whole)
            hs_json_set_string(row, "xxh3", number);
        hs_json_append(array, row);
    }
    return array;
}

HsJson *hs_run_files_json(const HsRun *run)
{
    return list_json(run, true);
}

HsStatus hs_run_compare_files(const HsRun *run)
{
    HsJson *files = list_json(run, false);
    char *text = hs_json_write(files, false);
    HsStatus status = text ? hs_check_same(run->training.engine.comm, text, "data files")
                           : hs_fail(HS_ENOMEM, "no memory for a list of files");
    free(text);
    hs_json_destroy(files);
    return status;
}

/* What a checkpoint says of a file; texts "" where an earlier version did not keep them. */
typedef struct Kept {
    const char *path, *checksum, *samples, *times;
    int64_t bytes;
} Kept;

static HsStatus read_kept(const char *name, const HsJson *row, Kept *kept)
{
    const char *const checksum = hs_json_string(hs_json_get(row, "xxh3"));
    const char *const samples = hs_json_string(hs_json_get(row, "samples"));
    const char *const times = hs_json_string(hs_json_get(row, "times"));
    HS_TRY(hs_json_need_string(name, row, "path", &kept->path));
    HS_TRY(hs_json_need_integer(name, row, "bytes", &kept->bytes));
    *kept = (Kept){ kept->path, checksum ? checksum : "", samples ? samples : "", times ? times : "", kept->bytes };
    if (!checksum && !samples)
        return hs_json_need_string(name, row, "xxh3", &kept->checksum);
    return HS_OK;
}

static bool is_number(const char *text, uint64_t number)
{
    char *end;
    return text[0] != '\0' && strtoull(text, &end, 16) == number && *end == '\0';
}

/* Whether the file has the bytes that the checkpoint knows; of one that is accepted its mark knows all that is known. */
static HsStatus compare_bytes(HsReadFile *file, const Kept *kept, bool *same)
{
    const bool samples = is_number(kept->samples, file->mark.samples);
    *same = file->mark.bytes == kept->bytes && (samples || kept->samples[0] == '\0');
    if (!*same)
        return HS_OK;
    const bool untouched = samples && strcmp(kept->times, file->mark.times) == 0;
    if (untouched && !file->mark.whole && kept->checksum[0] != '\0') {
        file->mark.whole = true;
        file->mark.checksum = strtoull(kept->checksum, NULL, 16);
    }
    if (kept->checksum[0] != '\0') {
        HS_TRY(hs_file_mark_complete(file->path, &file->mark));
        *same = is_number(kept->checksum, file->mark.checksum);
    } else if (!untouched) {
        hs_warn("%s: has another time than when the run began, and no checksum of all its bytes was taken then: its "
                "size and samples of it are the same (data.verify: full takes one at the start of a run)",
                file->path);
    }
    return HS_OK;
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
    Kept kept;
    char what[96];
    bool same;
    HS_TRY(read_kept(name, row, &kept));
    const int index = find_file(files, kept.path);
    if (index < 0 || files->items[index].task >= known)
        return changed(folder, kept.path, "was removed");
    HsReadFile *file = &files->items[index];
    HS_TRY(compare_bytes(file, &kept, &same));
    if (same)
        return HS_OK;
    snprintf(what, sizeof what,
             file->mark.bytes != kept.bytes ? "has %" PRId64 " bytes and had %" PRId64
                                            : "has other bytes, %" PRId64 " as before",
             file->mark.bytes, kept.bytes);
    return changed(folder, kept.path, what);
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
    return find_file(files, files->items[index].path) != index;
}

/* A file that takes the place of one of the checkpoint's: of the same bytes, for the same, and read in the same way. */
static HsStatus check_taken(const HsTraining *training, const char *name, const HsJson *row, HsReadFile *file)
{
    const char *what = NULL;
    const char *const format = training->config->tasks[file->task].format;
    int64_t task = file->task;
    const HsSourceKind *before = NULL, *now = NULL;
    Kept kept;
    bool same = true;
    HS_TRY(read_kept(name, row, &kept));
    if (hs_json_get(row, "task"))
        HS_TRY(hs_json_need_integer(name, row, "task", &task));
    const bool validates = hs_json_is_true(hs_json_get(row, "validation"));
    const bool known = hs_source_kind_choose(kept.path, format, &before) == HS_OK;
    HS_TRY(hs_source_kind_choose(file->path, format, &now));
    if (task != file->task || (hs_json_get(row, "task") && validates != file->validates))
        what = "is for another task, or for validation in place of training";
    else if (!known || before != now)
        what = "is read as another format";
    else
        HS_TRY(compare_bytes(file, &kept, &same));
    if (!same)
        what = file->mark.bytes != kept.bytes ? "has another size" : "has other bytes";
    if (!what)
        return HS_OK;
    return hs_fail(HS_ECONFIG,
                   "tasks.%d.%s: %s would take the place of %s, and %s: the run would continue on other data than it "
                   "began with: set it back, or choose another out_dir",
                   file->task, file->validates ? "validation" : "train", file->path, kept.path, what);
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
        HsReadFile *file = &files->items[i];
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

/* All files at the paths that the checkpoint has. */
static HsStatus check_listed(const HsRun *run, const char *name, const char *folder, const HsJson *kept)
{
    const HsReadFiles *files = run->files;
    const int known = run->training.data.count - run->appended;
    HsMap paths = { 0 };
    HsStatus status = HS_OK;
    for (const HsJson *row = hs_json_first(kept); row && status == HS_OK; row = hs_json_next(row)) {
        const char *const path = hs_json_string(hs_json_get(row, "path"));
        status = check_file(files, known, name, folder, row);
        if (status == HS_OK)
            status = hs_map_put(&paths, path, strlen(path), 0);
    }
    for (int i = 0; i < files->count && status == HS_OK; i++) {
        int64_t there;
        const HsReadFile *file = &files->items[i];
        if (file->task < known && !hs_map_get(&paths, file->path, strlen(file->path), &there))
            status = changed(folder, file->path, "is new");
    }
    hs_map_deinit(&paths);
    return status;
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
    return check_listed(run, name, folder, kept);
}
