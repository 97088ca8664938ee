/* SPDX-License-Identifier: MIT
 *
 * See token_cache.h.
 */
#include "runtime/data/source/token_cache.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "kernels/base/log.h"
#include "runtime/io/files.h"
#include "runtime/io/storage.h"

static const char part_end[] = ".tokens";

HsStatus hs_token_cache_open(const char *folder, HsTokenCache **result)
{
    HsTokenCache *cache = *result = calloc(1, sizeof *cache);
    if (cache)
        cache->folder = strdup(folder);
    HsStatus status = cache && cache->folder ? HS_OK : hs_fail(HS_ENOMEM, "no memory for a cache of tokens");
    if (status == HS_OK)
        status = hs_file_marks_open(folder, &cache->marks);
    if (status != HS_OK) {
        hs_token_cache_close(cache);
        *result = NULL;
    }
    return status;
}

void hs_token_cache_close(HsTokenCache *cache)
{
    if (!cache)
        return;
    hs_file_marks_close(cache->marks);
    free(cache->folder);
    free(cache);
}

HsStatus hs_token_cache_path(const HsTokenCache *cache, const HsPartKey *key, int index, char **path)
{
    if (asprintf(path, "%s/%016" PRIx64 "%016" PRIx64 "-%04d%s", cache->folder, key->high, key->low, index, part_end) >=
        0)
        return HS_OK;
    *path = NULL;
    return hs_fail(HS_ENOMEM, "no memory for a path in %s", cache->folder);
}

HsStatus hs_token_cache_lock(const HsTokenCache *cache, const HsPartKey *key, int *lock)
{
    char *path;
    *lock = -1;
    HS_TRY(hs_make_directories(cache->folder));
    if (asprintf(&path, "%s/%016" PRIx64 "%016" PRIx64 ".lock", cache->folder, key->high, key->low) < 0)
        return hs_fail(HS_ENOMEM, "no memory for a path in %s", cache->folder);
    const int descriptor = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    HsStatus status = HS_OK;
    if (descriptor < 0)
        status = hs_fail(HS_EIO, "%s: cannot be written: %s", path, strerror(errno));
    else if (flock(descriptor, LOCK_EX) == 0)
        *lock = descriptor;
    else
        close(descriptor);
    free(path);
    return status;
}

/* The file stays: others may wait on it. */
void hs_token_cache_unlock(int lock)
{
    if (lock >= 0)
        close(lock);
}

static int by_use(const void *a, const void *b)
{
    const HsCachedPart *left = a, *right = b;
    if (left->used_s != right->used_s)
        return left->used_s > right->used_s ? -1 : 1;
    return strcmp(left->path, right->path);
}

static bool ends_in(const char *name, const char *end)
{
    const size_t length = strlen(name), tail = strlen(end);
    return length > tail && strcmp(name + length - tail, end) == 0;
}

static HsStatus add_part(HsCachedParts *parts, char *path)
{
    struct stat about;
    HsCachedPart part = { .path = path };
    if (stat(path, &about) != 0 || !hs_token_part_look(path, &part.about)) {
        free(path);
        return HS_OK;
    }
    part.bytes = about.st_size;
    part.used_s = about.st_atim.tv_sec;
    HsCachedPart *items = realloc(parts->items, (size_t)(parts->count + 1) * sizeof *items);
    if (!items) {
        free(path);
        return hs_fail(HS_ENOMEM, "no memory to list the cache");
    }
    parts->items = items;
    items[parts->count++] = part;
    return HS_OK;
}

HsStatus hs_token_cache_list(const char *folder, HsCachedParts *parts)
{
    HsFolderListing listing;
    bool exists;
    *parts = (HsCachedParts){ 0 };
    HS_TRY(hs_path_exists(folder, &exists));
    if (!exists)
        return HS_OK;
    HS_TRY(hs_storage_list(folder, &listing));
    HsStatus status = HS_OK;
    for (int i = 0; status == HS_OK && i < listing.count; i++) {
        char *path = NULL;
        if (!ends_in(listing.names[i], part_end))
            continue;
        status = hs_storage_join(folder, listing.names[i], &path);
        if (status == HS_OK)
            status = add_part(parts, path);
    }
    hs_storage_list_free(&listing);
    if (status == HS_OK && parts->count > 0)
        qsort(parts->items, (size_t)parts->count, sizeof *parts->items, by_use);
    return status;
}

void hs_cached_parts_deinit(HsCachedParts *parts)
{
    for (int i = 0; i < parts->count; i++)
        free(parts->items[i].path);
    free(parts->items);
    *parts = (HsCachedParts){ 0 };
}

/* The first part's goes with it: where others are left, the next that makes one makes a lock too. */
static void remove_lock(const char *path)
{
    char *lock = strdup(path);
    char *number = lock ? strrchr(lock, '-') : NULL;
    if (number) {
        memcpy(number, ".lock", sizeof ".lock"); /* "-0000.tokens" is longer */
        unlink(lock);
    }
    free(lock);
}

bool hs_cached_part_remove(const HsCachedPart *part)
{
    const int descriptor = open(part->path, O_RDONLY | O_CLOEXEC);
    const bool in_use = descriptor >= 0 && flock(descriptor, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK;
    const bool removed = !in_use && unlink(part->path) == 0;
    if (removed && part->about.index == 0)
        remove_lock(part->path);
    if (descriptor >= 0)
        close(descriptor);
    return removed;
}

/* What a process left that was killed while it wrote: nothing was written to it for an hour. */
static void remove_left(const char *folder)
{
    HsFolderListing listing;
    if (hs_storage_list(folder, &listing) != HS_OK)
        return;
    for (int i = 0; i < listing.count; i++) {
        char *path = NULL;
        struct stat about;
        if (strstr(listing.names[i], ".tokens.tmp-") && hs_storage_join(folder, listing.names[i], &path) == HS_OK &&
            stat(path, &about) == 0 && time(NULL) - about.st_mtim.tv_sec > 3600)
            unlink(path);
        free(path);
    }
    hs_storage_list_free(&listing);
}

void hs_token_cache_trim(const HsTokenCache *cache)
{
    HsCachedParts parts;
    int64_t bytes = 0;
    remove_left(cache->folder);
    if (cache->limit == 0 || hs_token_cache_list(cache->folder, &parts) != HS_OK)
        return;
    for (int i = 0; i < parts.count; i++)
        bytes += parts.items[i].bytes;
    for (int i = parts.count; i > 0 && bytes > cache->limit; i--)
        if (hs_cached_part_remove(&parts.items[i - 1])) {
            bytes -= parts.items[i - 1].bytes;
            hs_info("data.cache: %s was removed from %s, by data.cache_limit", parts.items[i - 1].about.title,
                    cache->folder);
        }
    hs_cached_parts_deinit(&parts);
}
