/* SPDX-License-Identifier: MIT
 *
 * Keeping validation out of training, and saying where it is not.
 *
 *     files       what a folder or a pattern of `train` finds and some task's `validation` has is left out of training:
 *                 it was named for validation, and not for training.  Where nothing would be left, all stays.
 *     documents   those of validation that are also among the training documents, at whatever path, are counted; of a
 *                 text file also where it is part of a longer one
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
#include "runtime/data/tokenizer/map.h"
#include "runtime/io/storage.h"

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

/* The validation files of the task and of all others.  What another task's names cannot be found for is that
 * task's error. */
static HsStatus list_validation(const HsDatasetBuild *building, Files *files)
{
    const HsConfig *config = building->config;
    HsStatus status = add_files(&building->sources, building->train_sources, building->sources.count, false, files);
    for (int i = 0; status == HS_OK && i < config->task_count; i++) {
        const HsTaskConfig *task = &config->tasks[i];
        const size_t length = strlen(task->validation);
        const bool share = length == 0 || task->validation[length - 1] == '%';
        HsSourceList list = { 0 };
        if (task != building->task && !share && hs_source_list_add(&list, task->validation, task->format) == HS_OK)
            status = add_files(&list, 0, list.count, false, files);
        hs_source_list_deinit(&list);
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

typedef struct Document {
    int64_t next; /* the piece behind it */
    const void *bytes;
    size_t size;
    const HsPiece *first;
    bool is_text_file;
} Document;

static Document document_at(const HsDatasetBuild *building, int64_t at, int64_t last)
{
    const HsCorpus *corpus = &building->corpus;
    const HsPiece *first = &corpus->pieces[at], *end = first;
    const HsSourceKind *kind = building->sources.items[first->source].kind;
    while (!first->is_tokens && !end->ends_document && end + 1 < corpus->pieces + last)
        end++;
    const size_t length = end->start + end->length - first->start;
    return (Document){ .next = end - corpus->pieces + 1,
                       .bytes = first->is_tokens ? (const void *)(corpus->tokens.items + first->start)
                                                 : (const void *)(corpus->text + first->start),
                       .size = length * (first->is_tokens ? sizeof(int32_t) : 1),
                       .first = first,
                       .is_text_file = kind && kind->parse == hs_text_parse };
}

static int64_t text_bytes(const HsDatasetBuild *building, const Document *document)
{
    int64_t bytes = 0;
    if (!document->first->is_tokens)
        return (int64_t)document->size;
    for (size_t i = 0; i < document->first->length; i++) {
        size_t size;
        (void)hs_tokenizer_bytes(building->tokenizer, ((const int32_t *)document->bytes)[i], &size);
        bytes += (int64_t)size;
    }
    return bytes;
}

static bool is_generated(const HsDatasetBuild *building, const Document *document)
{
    return !building->sources.items[document->first->source].kind;
}

/* Hashes of validation's documents -> whether training has one with the same. */
static HsStatus find_equal(const HsDatasetBuild *building, HsMap *hashes)
{
    const int64_t train = building->train_pieces, all = building->corpus.piece_count;
    for (int64_t at = train; at < all;) {
        const Document document = document_at(building, at, all);
        const uint64_t hash = hs_storage_hash(document.bytes, document.size);
        HS_TRY(hs_map_put(hashes, &hash, sizeof hash, false));
        at = document.next;
    }
    for (int64_t at = 0; at < train;) {
        const Document document = document_at(building, at, train);
        const uint64_t hash = hs_storage_hash(document.bytes, document.size);
        int64_t known;
        if (hs_map_get(hashes, &hash, sizeof hash, &known))
            HS_TRY(hs_map_put(hashes, &hash, sizeof hash, true));
        at = document.next;
    }
    return HS_OK;
}

/* Whether a text file is a part of a longer one that is trained on. */
static bool is_part(const HsDatasetBuild *building, const Document *part)
{
    enum { LEAST_BYTES = 64 }; /* less may well be there by chance */
    if (!part->is_text_file || part->size < LEAST_BYTES)
        return false;
    for (int64_t at = 0; at < building->train_pieces;) {
        const Document document = document_at(building, at, building->train_pieces);
        if (document.is_text_file && document.size > part->size &&
            memmem(document.bytes, document.size, part->bytes, part->size))
            return true;
        at = document.next;
    }
    return false;
}

HsStatus hs_dataset_count_shared(const HsDatasetBuild *building, HsDatasetApart *apart)
{
    enum { MOST_SEARCHED = 16 }; /* each is looked for in all of the training text */
    HsMap hashes = { 0 };
    int searched = 0;
    if (building->share > 0)
        return HS_OK; /* cut from the same text, at its end */
    HsStatus status = find_equal(building, &hashes);
    for (int64_t at = building->train_pieces; status == HS_OK && at < building->corpus.piece_count;) {
        const Document document = document_at(building, at, building->corpus.piece_count);
        const uint64_t hash = hs_storage_hash(document.bytes, document.size);
        const int64_t bytes = text_bytes(building, &document);
        int64_t shared = false;
        at = document.next;
        if (is_generated(building, &document))
            continue;
        (void)hs_map_get(&hashes, &hash, sizeof hash, &shared);
        if (!shared && document.is_text_file && searched++ < MOST_SEARCHED)
            shared = is_part(building, &document);
        apart->documents++;
        apart->bytes += bytes;
        apart->shared_documents += shared;
        apart->shared_bytes += shared ? bytes : 0;
    }
    hs_map_deinit(&hashes);
    return status;
}

void hs_dataset_apart_deinit(HsDatasetApart *apart)
{
    free(apart->first_left_out);
    free(apart->first_twice);
    *apart = (HsDatasetApart){ 0 };
}

void hs_task_data_warn_shared(const HsConfig *config, const HsTaskData *data)
{
    for (int i = 0; i < data->count; i++) {
        const HsDatasetApart *apart = &data->tasks[i].apart;
        const char *const name = config->tasks[i].name;
        char more[32] = "";
        if (apart->left_out > 1)
            snprintf(more, sizeof more, " and %d more", apart->left_out - 1);
        if (apart->left_out > 0)
            hs_warn("task %s: %s%s: read for validation, and left out of training, though train's folders or patterns "
                    "hold it too; to "
                    "train on it name it by its path",
                    name, apart->first_left_out, more);
        if (apart->twice > 0)
            hs_warn("task %s: train reads %s twice%s", name, apart->first_twice ? apart->first_twice : "a file",
                    apart->twice > 1 ? ", and other files too" : "");
        if (apart->shared_bytes > 0)
            hs_warn("task %s: %" PRId64 " of validation's %" PRId64 " bytes, %" PRId64 " of %" PRId64
                    " documents, are in the training text as well: their loss says nothing about new text; remove them "
                    "from one of the two",
                    name, apart->shared_bytes, apart->bytes, apart->shared_documents, apart->documents);
    }
}
