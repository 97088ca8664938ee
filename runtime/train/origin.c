/* SPDX-License-Identifier: MIT
 *
 * Where a run began, and what lies elsewhere by now.
 *
 * A checkpoint holds all weights and the tokenizer: a run that continues needs neither the folder of init_from nor the one
 * of adapter.init_from.  Which bytes they had is kept with it (name, size and XXH3-64 of each file of weights), as is the
 * text's (sources.c).  A key that names another path than the checkpoint's is then no other run where the bytes there are
 * the same:
 *
 *     init_from, adapter.init_from       the files of weights, read whole
 *     tokenizer.path                     the tokenizer, with the one that the checkpoint has
 *     tasks.N.train, tasks.N.validation  the files in their order (hs_run_check_files)
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/base/log.h"
#include "runtime/checkpoint/pretrained.h"
#include "runtime/config/pretrained.h"
#include "runtime/data/synthetic/synthetic.h"
#include "runtime/io/files.h"
#include "runtime/io/storage.h"
#include "runtime/train/run.h"

typedef struct HsOriginFile {
    const char *key; /* that named its folder */
    char *name;      /* within it */
    int64_t bytes;
    char checksum[20]; /* hexadecimal */
} HsOriginFile;

struct HsOrigin {
    HsOriginFile *items;
    int count;
};

static const char *const places[] = { "init_from", "adapter.init_from" };
enum { PLACES = sizeof places / sizeof *places };

static const char *folder_of(const HsConfig *config, int place)
{
    return place == 0 ? config->training.init_from : config->adapter.init_from;
}

/* --- the files --- */

static HsStatus append(HsOrigin *origin, const HsOriginFile *file)
{
    HsOriginFile *items = realloc(origin->items, (size_t)(origin->count + 1) * sizeof *items);
    if (!items)
        return hs_fail(HS_ENOMEM, "no memory to list the files of %s", file->key);
    origin->items = items;
    items[origin->count] = *file;
    items[origin->count].name = strdup(file->name);
    if (!items[origin->count].name)
        return hs_fail(HS_ENOMEM, "no memory to list the files of %s", file->key);
    origin->count++;
    return HS_OK;
}

static HsStatus add_file(HsOrigin *origin, const char *key, char *path)
{
    uint64_t checksum;
    char *const slash = strrchr(path, '/');
    HsOriginFile file = { .key = key, .name = slash ? slash + 1 : path };
    HS_TRY(hs_storage_checksum(path, &checksum, &file.bytes));
    snprintf(file.checksum, sizeof file.checksum, "%016" PRIx64, checksum);
    return append(origin, &file);
}

/* Of a run's folder or checkpoint its weights; of a Hugging Face folder its one file, or its shards. */
static HsStatus list_model(HsOrigin *origin, const char *key, const char *folder)
{
    HsPretrainedKind kind;
    HS_TRY(hs_pretrained_kind(folder, &kind));
    if (kind == HS_PRETRAINED_HUGGINGFACE) {
        HsPretrained pretrained;
        HS_TRY(hs_pretrained_open(folder, &pretrained));
        HsStatus status = HS_OK;
        for (int i = 0; status == HS_OK && i < pretrained.count; i++)
            status = add_file(origin, key, pretrained.paths[i]);
        hs_pretrained_close(&pretrained);
        return status;
    }
    HsCheckpoint checkpoint;
    char *path = NULL;
    HS_TRY(hs_checkpoint_open(folder, false, &checkpoint));
    HsStatus status = hs_storage_join(checkpoint.folder, "model.safetensors", &path);
    if (status == HS_OK)
        status = add_file(origin, key, path);
    free(path);
    hs_checkpoint_close(&checkpoint);
    return status;
}

static HsStatus list_place(HsOrigin *origin, int place, const char *folder)
{
    char *path = NULL;
    if (place == 0)
        return list_model(origin, places[place], folder);
    HS_TRY(hs_storage_join(folder, "adapter_model.safetensors", &path));
    HsStatus status = add_file(origin, places[place], path);
    free(path);
    return status;
}

void hs_run_forget_origin(HsOrigin *origin)
{
    for (int i = 0; origin && i < origin->count; i++)
        free(origin->items[i].name);
    if (origin)
        free(origin->items);
    free(origin);
}

static HsStatus make(HsOrigin **origin)
{
    *origin = calloc(1, sizeof **origin);
    return *origin ? HS_OK : hs_fail(HS_ENOMEM, "no memory to list the files that a run begins with");
}

HsStatus hs_run_list_origin(HsRun *run)
{
    HsTraining *training = &run->training;
    if (!hs_training_records(training))
        return HS_OK;
    HS_TRY(make(&run->origin));
    for (int place = 0; place < PLACES; place++)
        if (folder_of(training->config, place)[0] != '\0')
            HS_TRY(list_place(run->origin, place, folder_of(training->config, place)));
    return HS_OK;
}

/* --- in a checkpoint --- */

HsJson *hs_run_origin_json(const HsRun *run)
{
    HsJson *array = hs_json_array();
    for (int i = 0; i < run->origin->count; i++) {
        const HsOriginFile *file = &run->origin->items[i];
        HsJson *row = hs_json_object();
        hs_json_set_string(row, "key", file->key);
        hs_json_set_string(row, "name", file->name);
        hs_json_set_integer(row, "bytes", file->bytes);
        hs_json_set_string(row, "xxh3", file->checksum);
        hs_json_append(array, row);
    }
    return array;
}

static HsStatus read_row(const char *name, const HsJson *row, HsOrigin *origin)
{
    const char *key, *file_name, *checksum;
    HsOriginFile file = { 0 };
    HS_TRY(hs_json_need_string(name, row, "key", &key));
    HS_TRY(hs_json_need_string(name, row, "name", &file_name));
    HS_TRY(hs_json_need_string(name, row, "xxh3", &checksum));
    HS_TRY(hs_json_need_integer(name, row, "bytes", &file.bytes));
    for (int place = 0; place < PLACES; place++)
        if (strcmp(key, places[place]) == 0)
            file.key = places[place];
    if (!file.key)
        return hs_fail(HS_EFORMAT, "%s: member `origin` has a key `%.60s`, which is not known", name, key);
    file.name = (char *)(uintptr_t)file_name;
    snprintf(file.checksum, sizeof file.checksum, "%s", checksum);
    return append(origin, &file);
}

HsStatus hs_run_read_origin(HsRun *run, const char *folder)
{
    char *path = NULL, *text = NULL;
    size_t length = 0;
    HsJson *state = NULL;
    HS_TRY(hs_storage_join(folder, "trainer.json", &path));
    HsStatus status = hs_read_file(path, 0, &text, &length);
    if (status == HS_OK)
        status = hs_json_parse(path, text, length, &state);
    const HsJson *rows = status == HS_OK ? hs_json_get(state, "origin") : NULL; /* a version that kept none */
    if (rows)
        status = hs_json_is_array(rows) ? make(&run->origin)
                                        : hs_fail(HS_EFORMAT, "%s: member `origin` must be a list", path);
    for (const HsJson *row = hs_json_first(rows); rows && row && status == HS_OK; row = hs_json_next(row))
        status = read_row(path, row, run->origin);
    hs_json_destroy(state);
    free(text);
    free(path);
    return status;
}

/* --- at another path --- */

static HsStatus refuse(const char *key, const char *before, const char *now, const char *what)
{
    return hs_fail(
        HS_ECONFIG,
        "%s: %s does not hold what %s held when this run began: %s.  Set it back, choose another out_dir, or "
        "remove the old run",
        key, now, before, what);
}

/* The place's next file from `at` on; NULL: no more. */
static const HsOriginFile *next_file(const HsOrigin *origin, const char *key, int *at)
{
    while (*at < origin->count) {
        const HsOriginFile *file = &origin->items[(*at)++];
        if (strcmp(file->key, key) == 0)
            return file;
    }
    return NULL;
}

static HsStatus compare_files(const HsOrigin *kept, const HsOrigin *found, const char *key, const char *before,
                              const char *now)
{
    char what[320];
    for (int k = 0, f = 0;;) {
        const HsOriginFile *was = next_file(kept, key, &k), *is = next_file(found, key, &f);
        if (!was && !is)
            return HS_OK;
        if (!was || !is || strcmp(was->name, is->name) != 0)
            snprintf(what, sizeof what, "%.120s is there%s%.120s", is ? is->name : "nothing more",
                     was ? " in place of " : " besides", was ? was->name : "");
        else if (was->bytes != is->bytes)
            snprintf(what, sizeof what, "%.120s has %" PRId64 " bytes and had %" PRId64, is->name, is->bytes,
                     was->bytes);
        else if (strcmp(was->checksum, is->checksum) != 0)
            snprintf(what, sizeof what, "%.120s has other bytes, %" PRId64 " as before", is->name, is->bytes);
        else
            continue;
        return refuse(key, before, now, what);
    }
}

/* Process 0, which records, reads them; what is wrong with them ends the others, too. */
static HsStatus check_place(const HsRun *run, int place, const char *before, const char *now)
{
    HsOrigin *found;
    if (!hs_training_records(&run->training))
        return HS_OK;
    if (!run->origin) {
        if (run->appended > 0)
            return hs_fail(HS_ECONFIG,
                           "%s: appended tasks are measured on the weights that the run began with, and an earlier "
                           "version, which kept no checksums, began it: set it back to %s",
                           places[place], before);
        hs_info("%s: the checkpoint has all weights; whether %s holds those of %s is not known, as an earlier version "
                "began this run",
                places[place], now, before);
        return HS_OK;
    }
    HS_TRY(make(&found));
    HsStatus status = list_place(found, place, now);
    if (status == HS_OK)
        status = compare_files(run->origin, found, places[place], before, now);
    if (status == HS_OK && strcmp(before, now) != 0)
        hs_info("%s: %s holds what %s held", places[place], now, before);
    hs_run_forget_origin(found);
    return status;
}

static HsStatus describe(const HsTokenizer *tokenizer, char **text)
{
    HsJson *root;
    HS_TRY(hs_tokenizer_published(tokenizer, &root));
    *text = hs_json_write(root, false);
    hs_json_destroy(root);
    return *text ? HS_OK : hs_fail(HS_ENOMEM, "no memory to compare tokenizers");
}

/* The run has the checkpoint's already. */
static HsStatus check_tokenizer(const HsTraining *training, const char *before, const char *now)
{
    HsTokenizer *other;
    char *ours = NULL, *theirs = NULL;
    HS_TRY(hs_tokenizer_create("bpe", now, NULL, 0, &other));
    HsStatus status = describe(training->data.tokenizer, &ours);
    if (status == HS_OK)
        status = describe(other, &theirs);
    if (status == HS_OK && strcmp(ours, theirs) != 0)
        status = refuse("tokenizer.path", before, now, "it is not the tokenizer of the checkpoint");
    free(ours);
    free(theirs);
    hs_tokenizer_destroy(other);
    return status;
}

static bool is_path(const char *source)
{
    const size_t length = strlen(source);
    return length > 0 && source[length - 1] != '%' && strncmp(source, HS_SYNTHETIC_PREFIX, strlen(HS_SYNTHETIC_PREFIX));
}

/* Files take the place of files, at the same places of the list. */
static bool has_shape(const HsTaskConfig *task, const HsTaskConfig *saved)
{
    if (task->train.count != saved->train.count)
        return false;
    for (int i = 0; i < task->train.count; i++)
        if (strcmp(task->train.items[i], saved->train.items[i]) != 0 &&
            !(is_path(task->train.items[i]) && is_path(saved->train.items[i])))
            return false;
    return strcmp(task->validation, saved->validation) == 0 ||
           (is_path(task->validation) && is_path(saved->validation));
}

static bool same_list(const HsStringList *a, const HsStringList *b)
{
    for (int i = 0; i < a->count; i++)
        if (strcmp(a->items[i], b->items[i]) != 0)
            return false;
    return true;
}

HsStatus hs_run_accept_moved(HsRun *run, const HsConfig *saved, HsConfig *config)
{
    char **const now[] = { &config->training.init_from, &config->adapter.init_from };
    for (int place = 0; place < PLACES; place++) {
        const char *const before = folder_of(saved, place);
        const bool moved = strcmp(before, *now[place]) != 0;
        bool there = true;
        if (before[0] != '\0' && !moved)
            HS_TRY(hs_path_exists(before, &there));
        if (!there && run->appended > 0)
            return hs_fail(
                HS_ECONFIG,
                "%s: appended tasks are measured on the weights that the run began with, and %s is not there "
                "any more: name where it lies now",
                places[place], before);
        if (!there)
            hs_info("%s: %s is not there any more; the checkpoint has the weights and the tokenizer", places[place],
                    before);
        if (before[0] == '\0' || *now[place][0] == '\0' || (!moved && (run->appended == 0 || !run->origin)))
            continue;
        HS_TRY(check_place(run, place, before, *now[place]));
        *now[place] = (char *)(uintptr_t)before;
    }
    const char *const before = saved->tokenizer.path, *const path = config->tokenizer.path;
    if (before[0] != '\0' && path[0] != '\0' && strcmp(before, path) != 0) {
        HS_TRY(check_tokenizer(&run->training, before, path));
        config->tokenizer.path = saved->tokenizer.path;
    }
    for (int i = 0; i < saved->task_count; i++) {
        HsTaskConfig *task = &config->tasks[i];
        if (!has_shape(task, &saved->tasks[i]))
            continue; /* named as a difference */
        run->moved_text |= !same_list(&task->train, &saved->tasks[i].train) ||
                           strcmp(task->validation, saved->tasks[i].validation) != 0;
        task->train = saved->tasks[i].train;
        task->validation = saved->tasks[i].validation;
    }
    return HS_OK;
}
