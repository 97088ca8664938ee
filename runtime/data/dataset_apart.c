/* SPDX-License-Identifier: MIT
 *
 * Keeping validation out of training, and saying where it is not.
 *
 *     files       what a folder or a pattern of `train` finds and some task's `validation` has is left out of training:
 *                 it was named for validation, and not for training.  Where nothing would be left, all stays.
 *     documents   those of validation that are also among the training documents, at whatever path, are counted; of a
 *                 text file also where it is part of a longer one: where its beginning and its end stand in that
 *
 * Files are compared by device and inode, so that links and ways of writing a path make no difference.
 */
#include "runtime/data/dataset_build.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "kernels/base/array.h"
#include "kernels/base/log.h"
#include "runtime/config/mixture.h"
#include "runtime/data/source/input.h"
#include "runtime/data/tokenizer/map.h"
#include "runtime/io/storage.h"
#include "runtime/io/utf8.h"

/* ---- files ---- */

typedef struct File {
    dev_t device;
    ino_t inode;
    int index; /* in its list */
} File;

typedef struct Files {
    File *items;
    size_t count, capacity;
} Files;

static int compare_files(const void *a, const void *b)
{
    const File *one = a, *other = b;
    if (one->device != other->device)
        return one->device < other->device ? -1 : 1;
    return one->inode < other->inode ? -1 : one->inode > other->inode; /* one file, whatever its place in the list */
}

/* Which files sources [first, last) are, of those that were named alone (else all); what is generated, or went away
 * since, is none.  Sorted. */
static HsStatus add_files(const HsSourceList *list, int first, int last, bool named, Files *files)
{
    for (int i = first; i < last; i++) {
        struct stat about;
        if ((named && list->items[i].found) || !list->items[i].kind || stat(list->items[i].name, &about) != 0)
            continue;
        HS_TRY(hs_array_grow(&files->items, sizeof *files->items, files->count + 1, &files->capacity));
        files->items[files->count++] = (File){ about.st_dev, about.st_ino, i };
    }
    if (files->count > 0)
        qsort(files->items, files->count, sizeof *files->items, compare_files);
    return HS_OK;
}

static HsStatus add_named(const HsTaskConfig *task, const char *name, Files *files)
{
    const size_t length = strlen(name);
    const bool share = length == 0 || name[length - 1] == '%';
    HsSourceList list = { 0 };
    HsStatus status = HS_OK;
    if (!share && hs_source_list_add(&list, name, task->format) == HS_OK)
        status = add_files(&list, 0, list.count, false, files);
    hs_source_list_deinit(&list);
    return status;
}

/* The validation files of the task and of all others, and of sources that are mixed.  What another task's names cannot be
 * found for is that task's error. */
static HsStatus list_validation(const HsDatasetBuild *building, Files *files)
{
    const HsConfig *config = building->config;
    HsStatus status = add_files(&building->sources, building->train_sources, building->sources.count, false, files);
    for (int i = 0; status == HS_OK && i < config->task_count; i++) {
        const HsTaskConfig *task = &config->tasks[i];
        if (task != building->task)
            status = add_named(task, task->validation, files);
        for (int k = 0; status == HS_OK && k < task->source_validation.count; k++)
            status = add_named(task, task->source_validation.items[k], files);
    }
    return status;
}

static bool is_among(const Files *files, const File *file)
{
    return files->count > 0 && bsearch(file, files->items, files->count, sizeof *files->items, compare_files);
}

/* Takes the marked ones of the training sources out; the first one's name stays for a message. */
static void take_out(HsDatasetBuild *building, const bool *marked, HsDatasetApart *apart)
{
    HsSourceList *sources = &building->sources;
    int kept = 0;
    for (int i = 0; i < sources->count; i++) {
        if (i >= building->train_sources || !marked[i])
            sources->items[kept++] = sources->items[i];
        else if (apart->left_out++ == 0)
            apart->first_left_out = sources->items[i].name;
        else
            free(sources->items[i].name);
    }
    building->train_sources -= apart->left_out;
    sources->count = kept;
}

HsStatus hs_dataset_leave_out(HsDatasetBuild *building, HsDatasetApart *apart)
{
    Files validation = { 0 }, train = { 0 }, named = { 0 };
    const HsSourceList *sources = &building->sources;
    int found = 0;
    bool *marked = calloc((size_t)sources->count + 1, sizeof *marked);
    HsStatus status = marked ? HS_OK : hs_fail(HS_ENOMEM, "no memory for a list of %d files", sources->count);
    if (status == HS_OK)
        status = add_files(sources, 0, building->train_sources, false, &train);
    if (status == HS_OK)
        status = add_files(sources, 0, building->train_sources, true, &named);
    if (status == HS_OK)
        status = list_validation(building, &validation);
    for (size_t i = 0; status == HS_OK && i < train.count; i++) {
        const int index = train.items[i].index;
        marked[index] = is_among(&validation, &train.items[i]) && !is_among(&named, &train.items[i]);
        found += marked[index];
    }
    for (size_t i = 1; status == HS_OK && i < train.count; i++) {
        const int index = train.items[i].index;
        if (compare_files(&train.items[i - 1], &train.items[i]) == 0 && !marked[index] && apart->twice++ == 0)
            apart->first_twice = strdup(sources->items[index].name);
    }
    if (status == HS_OK && found > 0 && found < building->train_sources && !building->keeps_validation)
        take_out(building, marked, apart);
    free(marked);
    free(train.items);
    free(named.items);
    free(validation.items);
    return status;
}

/* ---- documents ---- */

struct HsNeedle {
    int source;
    char *begin, *end; /* of the text; one and the same where it is short */
    size_t begin_length, end_length;
    _Atomic bool begin_found, end_found;
    uint64_t hash; /* of both ends: parts of the cache say by it what they hold */
};

enum {
    NEEDLES = HS_PART_NEEDLES, /* each is looked for in all of the training text */
    NEEDLE_LEAST = 64,         /* bytes: less may well be there by chance */
    NEEDLE_MOST = 1 << 16      /* of either end */
};

static HsStatus fill_needle(HsInput *input, HsNeedle *needle)
{
    char *chunk = malloc(NEEDLE_MOST), *end = malloc(2 * NEEDLE_MOST);
    size_t got = 1, kept = 0;
    HsStatus status = chunk && end ? HS_OK : hs_fail(HS_ENOMEM, "no memory to compare texts");
    for (bool first = true; status == HS_OK && got > 0; first = false) {
        status = hs_input_read(input, chunk, NEEDLE_MOST, &got);
        const size_t mark = first && status == HS_OK ? hs_utf8_mark_bytes(chunk, got) : 0;
        if (status != HS_OK)
            break;
        if (first) {
            needle->begin = chunk;
            needle->begin_length = got - mark;
            memmove(chunk, chunk + mark, got - mark);
        }
        memcpy(end + kept, chunk + (first ? 0 : mark), got - mark);
        kept += got - mark;
        if (kept > NEEDLE_MOST) {
            memmove(end, end + kept - NEEDLE_MOST, NEEDLE_MOST);
            kept = NEEDLE_MOST;
        }
        if (first)
            chunk = malloc(NEEDLE_MOST);
        if (!chunk)
            status = hs_fail(HS_ENOMEM, "no memory to compare texts");
    }
    needle->end = end;
    needle->end_length = kept;
    free(chunk);
    return status;
}

HsStatus hs_dataset_open_needles(HsDatasetBuild *building)
{
    building->needles = calloc(NEEDLES, sizeof *building->needles);
    if (!building->needles)
        return hs_fail(HS_ENOMEM, "no memory to compare texts");
    for (int i = building->train_sources; i < building->sources.count && building->needle_count < NEEDLES; i++) {
        const HsSource *source = &building->sources.items[i];
        HsNeedle *needle = &building->needles[building->needle_count];
        HsInput *input;
        if (!source->kind || source->kind->parse != hs_text_parse)
            continue;
        HS_TRY(hs_input_open(source, &input));
        needle->source = i;
        building->needle_count++;
        const HsStatus status = fill_needle(input, needle);
        hs_input_close(input);
        HS_TRY(status);
        if (needle->begin_length < NEEDLE_LEAST)
            needle->begin_length = needle->end_length = 0;
        const uint64_t ends[2] = { hs_storage_hash(needle->begin, needle->begin_length),
                                   hs_storage_hash(needle->end, needle->end_length) };
        needle->hash = hs_storage_hash(ends, sizeof ends);
    }
    return HS_OK;
}

static void look(const char *text, size_t length, const char *part, size_t part_length, _Atomic bool *found)
{
    if (part_length > 0 && !*found && memmem(text, length, part, part_length))
        *found = true;
}

void hs_dataset_look_for_needles(void *user, int source, const char *text, size_t length)
{
    HsDatasetBuild *building = *(HsDatasetBuild **)user;
    for (int i = 0; source < building->train_sources && i < building->needle_count; i++) {
        HsNeedle *needle = &building->needles[i];
        look(text, length, needle->begin, needle->begin_length, &needle->begin_found);
        look(text, length, needle->end, needle->end_length, &needle->end_found);
    }
}

int64_t hs_dataset_found_needles(const HsDatasetBuild *building, uint64_t *found)
{
    int64_t count = 0;
    for (int i = 0; i < building->needle_count; i++)
        if (building->needles[i].begin_found && building->needles[i].end_found)
            found[count++] = building->needles[i].hash;
    return count;
}

void hs_dataset_note_found(HsDatasetBuild *building, const uint64_t *found, int64_t count)
{
    for (int i = 0; i < building->needle_count; i++)
        for (int64_t k = 0; k < count && k < NEEDLES; k++)
            if (building->needles[i].hash == found[k])
                building->needles[i].begin_found = building->needles[i].end_found = true;
}

void hs_dataset_close_needles(HsDatasetBuild *building)
{
    for (int i = 0; i < building->needle_count; i++) {
        free(building->needles[i].begin);
        free(building->needles[i].end);
    }
    free(building->needles);
    building->needles = NULL;
    building->needle_count = 0;
}

static bool is_part(const HsDatasetBuild *building, const HsEncodedDocument *document)
{
    for (int i = 0; document->is_text_file && i < building->needle_count; i++)
        if (building->needles[i].source == document->source)
            return building->needles[i].begin_found && building->needles[i].end_found;
    return false;
}

/* Hashes of validation's documents -> whether training has one with the same. */
static HsStatus find_equal(HsDatasetBuild *building, HsMap *hashes)
{
    HsDocuments *train = &building->train, *validation = &building->validation;
    for (int64_t i = 0; i < validation->count; i++) {
        const uint64_t hash = hs_document(validation, i).hash;
        HS_TRY(hs_map_put(hashes, &hash, sizeof hash, false));
    }
    for (int64_t i = 0; i < train->count; i++) {
        const uint64_t hash = hs_document(train, i).hash;
        int64_t known;
        if (hs_map_get(hashes, &hash, sizeof hash, &known))
            HS_TRY(hs_map_put(hashes, &hash, sizeof hash, true));
    }
    return HS_OK;
}

HsStatus hs_dataset_count_shared(HsDatasetBuild *building, HsDatasetApart *apart)
{
    HsMap hashes = { 0 };
    if (building->share > 0)
        return HS_OK; /* cut from the same text, at its end */
    HsStatus status = find_equal(building, &hashes);
    for (int64_t i = 0; status == HS_OK && i < building->validation.count; i++) {
        const HsEncodedDocument document = hs_document(&building->validation, i);
        int64_t shared = false;
        if (!building->sources.items[document.source].kind)
            continue; /* generated */
        (void)hs_map_get(&hashes, &document.hash, sizeof document.hash, &shared);
        shared = shared || is_part(building, &document);
        apart->documents++;
        apart->bytes += document.bytes;
        apart->shared_documents += shared;
        apart->shared_bytes += shared ? document.bytes : 0;
    }
    hs_map_deinit(&hashes);
    HS_TRY(building->train.failure);
    return status == HS_OK ? building->validation.failure : status;
}

void hs_dataset_apart_deinit(HsDatasetApart *apart)
{
    free(apart->first_left_out);
    free(apart->first_twice);
    *apart = (HsDatasetApart){ 0 };
}

static void warn_shared(const HsDatasetApart *apart, const char *name)
{
    char more[32] = "";
    if (apart->left_out > 1)
        snprintf(more, sizeof more, " and %d more", apart->left_out - 1);
    if (apart->left_out > 0)
        hs_warn(
            "task %s: %s%s: read for validation, and left out of training, though train's folders or patterns hold it "
            "too; to train on it name it by its path",
            name, apart->first_left_out, more);
    if (apart->twice > 0)
        hs_warn("task %s: train reads %s twice%s", name, apart->first_twice ? apart->first_twice : "a file",
                apart->twice > 1 ? ", and other files too" : "");
    if (apart->shared_bytes > 0)
        hs_warn(
            "task %s: %" PRId64 " of validation's %" PRId64 " bytes, %" PRId64 " of %" PRId64
            " documents, are in the training text as well: their loss says nothing about new text; remove them from "
            "one of the two",
            name, apart->shared_bytes, apart->bytes, apart->shared_documents, apart->documents);
}

void hs_task_data_warn_shared(const HsConfig *config, const HsTaskData *data)
{
    for (int i = 0; i < data->count; i++) {
        const HsTaskConfig *task = &config->tasks[i];
        warn_shared(&data->tasks[i].apart, task->name);
        for (int part = 0; part < data->tasks[i].part_count; part++) {
            char name[160];
            snprintf(name, sizeof name, "%.70s/%.80s", task->name, hs_task_source_name(task, part));
            warn_shared(&data->tasks[i].parts[part].apart, name);
        }
    }
}
