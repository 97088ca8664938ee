/* SPDX-License-Identifier: MIT
 *
 * A task's text by way of the cache (token_cache.h): its sources in groups of 64 MiB or more, each in parts of 256 MiB of
 * text, so that what was interrupted continues.
 *
 *     sources   | a b c ... | d (large)               | e f ... |   a group's key: the bytes of its files, tokenizer, reading
 *     parts     | KEY-0     | KEY-0 | KEY-1 | ...     | KEY-0   |   found, or made once, by one process while others wait
 *
 * A part that cannot be written is kept in memory for this run.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <xxhash.h>

#include "kernels/base/log.h"
#include "runtime/data/dataset_build.h"
#include "runtime/data/source/progress.h"
#include "runtime/data/synthetic/synthetic.h"

/* Changes with anything that makes other tokens of the same text, or other files of them. */
#define CACHE_VERSION "2"
static const int64_t group_bytes = (int64_t)64 << 20, part_bytes = (int64_t)256 << 20;

bool hs_dataset_uses_cache(const HsDatasetBuild *building, const HsTokenCache *cache)
{
    int64_t bytes = 0;
    for (int i = 0; cache && i < building->sources.count; i++) {
        const HsSource *source = &building->sources.items[i];
        struct stat about;
        if (source->kind && stat(source->name, &about) == 0)
            bytes += about.st_size;
    }
    return cache && bytes >= cache->least_text && bytes > 0;
}

/* Sources [first, last) of a stream, one part of it. */
typedef struct Group {
    HsDatasetBuild *building; /* first, as in dataset_stream.c */
    int first, last;
    HsPartAbout about; /* of the part at hand */
    HsPartWriter *writer;
    bool writer_failed;
} Group;

static void add_text(XXH3_state_t *hash, const char *text)
{
    XXH3_128bits_update(hash, text ? text : "", text ? strlen(text) + 1 : 1);
}

/* What one source adds to the key: how it is read, and its bytes, or what is generated. */
static HsStatus add_source(const Group *group, int index, XXH3_state_t *hash)
{
    const HsDatasetBuild *building = group->building;
    const HsSource *source = &building->sources.items[index];
    const HsSourceOptions options = hs_dataset_source_options(&building, index);
    HsFileMark mark = { 0 };
    if (source->kind) {
        HS_TRY(hs_file_marks_get(building->cache->marks, source->name, &mark));
        add_text(hash, source->kind->format);
        add_text(hash, source->kind->makes_tokens ? "tokens" : "text");
        XXH3_128bits_update(hash, &mark.bytes, sizeof mark.bytes);
        XXH3_128bits_update(hash, &mark.checksum, sizeof mark.checksum);
        return HS_OK;
    }
    add_text(hash, source->name);
    XXH3_128bits_update(hash, &options.seed, sizeof options.seed);
    XXH3_128bits_update(hash, &options.synthetic_bytes, sizeof options.synthetic_bytes);
    return HS_OK;
}

static HsStatus add_reading(const Group *group, XXH3_state_t *hash)
{
    const HsSourceOptions options = hs_dataset_source_options(&group->building, group->first);
    uint64_t tokenizer;
    HS_TRY(hs_tokenizer_hash(group->building->tokenizer, &tokenizer));
    add_text(hash, CACHE_VERSION);
    XXH3_128bits_update(hash, &tokenizer, sizeof tokenizer);
    add_text(hash, options.text_field);
    add_text(hash, options.prompt_field);
    add_text(hash, options.completion_field);
    add_text(hash, options.chat_template);
    const bool flags[2] = { options.raw16, options.needs_utf8 };
    XXH3_128bits_update(hash, flags, sizeof flags);
    return HS_OK;
}

static HsStatus make_key(Group *group)
{
    XXH3_state_t *hash = XXH3_createState();
    if (!hash)
        return hs_fail(HS_ENOMEM, "no memory for a cache of tokens");
    XXH3_128bits_reset(hash);
    HsStatus status = add_reading(group, hash);
    for (int i = group->first; status == HS_OK && i < group->last; i++)
        status = add_source(group, i, hash);
    const XXH128_hash_t key = XXH3_128bits_digest(hash);
    XXH3_freeState(hash);
    group->about.key = (HsPartKey){ key.low64, key.high64 };
    const char *const name = group->building->sources.items[group->first].name;
    const int more = group->last - group->first - 1;
    if (more > 0)
        snprintf(group->about.title, sizeof group->about.title, "%.120s and %d more", name, more);
    else
        snprintf(group->about.title, sizeof group->about.title, "%.150s", name);
    return status;
}

static Group next_group(HsDatasetBuild *building, int first, int last)
{
    Group group = { .building = building, .first = first, .last = first };
    int64_t bytes = 0;
    while (group.last < last && bytes < group_bytes) {
        struct stat about;
        const HsSource *source = &building->sources.items[group.last++];
        const int64_t size = source->kind && stat(source->name, &about) == 0 ? (int64_t)about.st_size : 0;
        if (bytes > 0 && size >= group_bytes) { /* a large one is a group by itself */
            group.last--;
            break;
        }
        bytes += size;
    }
    return group;
}

/* The marks of the group's files are known, and all parts have its key. */
static bool is_there(Group *group)
{
    HsTokenCache *cache = group->building->cache;
    for (int i = group->first; i < group->last; i++) {
        const HsSource *source = &group->building->sources.items[i];
        if (source->kind && !hs_file_marks_are_known(cache->marks, source->name))
            return false;
    }
    bool there = make_key(group) == HS_OK;
    HsPartAbout about = { 0 };
    for (int index = 0; there && !about.last; index++) {
        char *path = NULL;
        there =
            hs_token_cache_path(cache, &group->about.key, index, &path) == HS_OK && hs_token_part_look(path, &about);
        free(path);
    }
    return there;
}

bool hs_dataset_is_cached(HsDatasetBuild *building)
{
    bool there = hs_dataset_uses_cache(building, building->cache);
    const int ends[2] = { building->train_sources, building->sources.count };
    for (int k = 0, first = 0; k < 2; k++)
        while (there && first < ends[k]) {
            Group group = next_group(building, first, ends[k]);
            there = is_there(&group);
            first = group.last;
        }
    return there;
}

static HsStatus add_unit(void *user, const HsEncodedUnit *unit)
{
    Group *group = user;
    for (int64_t i = 0; i < unit->document_count; i++)
        if (unit->documents[i].is_tokens)
            HS_TRY(hs_dataset_refuse_tokens(group->building, unit->from));
    const HsStatus status = hs_part_writer_add(group->writer, unit);
    group->writer_failed |= status != HS_OK;
    return status;
}

/* The files are what they were when they were marked: what was read belongs to the key. */
static HsStatus check_unchanged(const Group *group)
{
    for (int i = group->first; i < group->last; i++) {
        const HsSource *source = &group->building->sources.items[i];
        HsFileMark before = { 0 }, now;
        if (!source->kind || !hs_file_marks_find(group->building->cache->marks, source->name, &before))
            continue;
        HS_TRY(hs_file_marks_get(group->building->cache->marks, source->name, &now));
        if (now.bytes != before.bytes || now.checksum != before.checksum)
            return hs_fail(HS_EIO, "%s: was changed while it was read: start when it is whole", source->name);
    }
    return HS_OK;
}

/* Places in a part count sources from the group's first. */
static HsEncodingPlace moved(HsEncodingPlace place, int by)
{
    place.unit.source += by;
    return place;
}

/* path NULL: in memory. */
static HsStatus write_part(Group *group, const char *path, HsSourceProgress *progress, HsTokenPart *part)
{
    HsDatasetBuild *building = group->building;
    const HsEncodingPlace from = moved(group->about.from, group->first);
    HsPartAbout ending = { 0 };
    HsEncodingPlace reached = { 0 };
    HsStatus status = hs_part_writer_create(path, &group->about, hs_tokenizer_vocabulary(building->tokenizer),
                                            group->first, &group->writer);
    group->writer_failed = status != HS_OK;
    const HsEncoding encoding = { .sources = &building->sources,
                                  .first = group->first,
                                  .last = group->last,
                                  .from = &from,
                                  .most = part_bytes,
                                  .reached = &reached,
                                  .tokenizer = building->tokenizer,
                                  .options = hs_dataset_source_options,
                                  .with_ends = true,
                                  .threads = (int)building->config->training.threads,
                                  .take = add_unit,
                                  .look = building->needle_count > 0 ? hs_dataset_look_for_needles : NULL,
                                  .user = group,
                                  .progress = progress };
    if (status == HS_OK)
        status = hs_sources_encode(&encoding);
    if (status == HS_OK)
        status = check_unchanged(group);
    if (status == HS_OK) {
        ending.found_count = hs_dataset_found_needles(building, ending.found);
        ending.last = reached.unit.source == group->last;
        ending.next = moved(reached, -group->first);
        status = hs_part_writer_finish(group->writer, &ending, part);
        group->writer_failed = status != HS_OK;
    }
    hs_part_writer_destroy(group->writer);
    group->writer = NULL;
    return status;
}

static void say_broken(HsTokenCache *cache)
{
    cache->broken = true;
    hs_warn("data.cache: %s: the tokens of this run's text are kept in memory, and made anew by the next run; free the "
            "disk, or name another folder",
            hs_error_message());
}

static void say_where(const HsDatasetBuild *building)
{
    HsTokenCache *cache = building->cache;
    if (!cache->told)
        hs_info("text becomes tokens once, which are kept in %s (data.cache)", cache->folder);
    cache->told = true;
}

/* Another process may have made it while this one waited. */
static HsStatus make_part(Group *group, const char *path, HsSourceProgress *progress, HsTokenPart *part)
{
    HsTokenCache *cache = group->building->cache;
    bool there = false;
    int lock = -1;
    HsStatus status = cache->broken ? HS_OK : hs_token_cache_lock(cache, &group->about.key, &lock);
    if (status == HS_EIO) {
        say_broken(cache);
        status = HS_OK;
    }
    if (status == HS_OK && !cache->broken)
        status = hs_token_part_open(path, &group->about, cache->verify, part, &there);
    if (status == HS_OK && !there && !cache->broken) {
        say_where(group->building);
        status = write_part(group, path, progress, part);
        there = status == HS_OK;
        if (status == HS_EIO && group->writer_failed) {
            say_broken(cache);
            status = HS_OK;
        }
    }
    hs_token_cache_unlock(lock);
    if (status == HS_OK && !there)
        status = write_part(group, NULL, progress, part);
    return status;
}

static void take_found(const Group *group, const HsTokenPart *part)
{
    HsTokenCache *cache = group->building->cache;
    if (!cache->told)
        hs_info("tokens of an earlier run's text are taken from %s (data.cache)", cache->folder);
    cache->told = true;
    if (group->first < group->building->train_sources)
        hs_dataset_note_found(group->building, part->about.found, part->about.found_count);
}

static HsStatus add_part(Group *group, HsSourceProgress *progress, HsDocuments *documents, HsTokenShards *shards)
{
    HsTokenCache *cache = group->building->cache;
    HsTokenPart part = { .descriptor = -1 };
    char *path = NULL;
    bool there = false;
    HsStatus status = hs_token_cache_path(cache, &group->about.key, group->about.index, &path);
    if (status == HS_OK)
        status = hs_token_part_open(path, &group->about, cache->verify, &part, &there);
    if (status == HS_OK && !there)
        status = make_part(group, path, progress, &part);
    else if (status == HS_OK)
        take_found(group, &part);
    const int64_t before = shards->tokens;
    if (status == HS_OK) {
        group->about.last = part.about.last;
        group->about.from = part.about.next;
        group->about.index++;
        status = hs_documents_add_part(documents, &part, before, group->first);
    }
    if (status == HS_OK)
        status = hs_token_shards_add_part(shards, &part); /* takes the part; the documents borrow from it */
    hs_token_part_close(&part);
    free(path);
    return status;
}

static HsStatus add_group(Group *group, HsSourceProgress *progress, HsDocuments *documents, HsTokenShards *shards)
{
    HS_TRY(make_key(group));
    while (!group->about.last)
        HS_TRY(add_part(group, progress, documents, shards));
    return HS_OK;
}

HsStatus hs_dataset_encode_cached(HsDatasetBuild *building, int first, int last, HsDocuments *documents,
                                  HsTokenShards *shards)
{
    HsStatus status = HS_OK;
    HsSourceProgress progress;
    hs_source_progress_begin(&progress, &building->sources, first, last, "tokenizing");
    shards->vocabulary = hs_tokenizer_vocabulary(building->tokenizer);
    while (status == HS_OK && first < last) {
        Group group = next_group(building, first, last);
        status = add_group(&group, &progress, documents, shards);
        first = group.last;
    }
    hs_source_progress_end(&progress);
    hs_file_marks_save(building->cache->marks);
    if (status == HS_OK)
        hs_token_cache_trim(building->cache);
    return status;
}
