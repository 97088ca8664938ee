/* SPDX-License-Identifier: MIT
 *
 * File operations that checkpoints are built from (POSIX, plus libxxhash for checksums).
 */
#include "runtime/io/storage.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <xxhash.h>

#include "runtime/io/files.h"

enum { READ_CHUNK_BYTES = 1 << 18, OPEN_FOLDERS = 16 };

static HsStatus fail_errno(const char *verb, const char *path)
{
    return hs_fail(HS_EIO, "cannot %s %s: %s", verb, path, strerror(errno));
}

HsStatus hs_storage_join(const char *folder, const char *name, char **path)
{
    *path = NULL;
    char *joined = NULL;
    if (asprintf(&joined, "%s/%s", folder, name) < 0)
        return hs_fail(HS_ENOMEM, "no memory for the path %s/%s", folder, name);
    *path = joined;
    return HS_OK;
}

HsStatus hs_storage_folder(const char *path, char **folder)
{
    const char *const slash = strrchr(path, '/');
    *folder = slash ? strndup(path, slash == path ? 1 : (size_t)(slash - path)) : strdup(".");
    return *folder ? HS_OK : hs_fail(HS_ENOMEM, "no memory for the path %s", path);
}

HsStatus hs_storage_write_all(int descriptor, const char *path, const void *bytes, size_t size)
{
    const char *rest = bytes;
    while (size > 0) {
        ssize_t written = write(descriptor, rest, size);
        if (written < 0 && errno == EINTR)
            continue;
        if (written <= 0)
            return fail_errno("write", path);
        rest += written;
        size -= (size_t)written;
    }
    return HS_OK;
}

HsStatus hs_storage_read_at(int descriptor, const char *path, void *bytes, size_t size, int64_t offset)
{
    for (size_t done = 0; done < size;) {
        const ssize_t count = pread(descriptor, (char *)bytes + done, size - done, (off_t)offset + (off_t)done);
        if (count < 0 && errno == EINTR)
            continue;
        if (count < 0)
            return fail_errno("read", path);
        if (count == 0)
            return hs_fail(HS_EIO, "cannot read %s: it ends at byte %lld", path, (long long)offset + (long long)done);
        done += (size_t)count;
    }
    return HS_OK;
}

HsStatus hs_storage_write_file(const char *path, const void *bytes, size_t size)
{
    int descriptor = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (descriptor < 0)
        return fail_errno("create", path);
    HsStatus status = hs_storage_write_all(descriptor, path, bytes, size);
    if (status == HS_OK && fsync(descriptor) != 0)
        status = fail_errno("flush", path);
    if (close(descriptor) != 0 && status == HS_OK)
        status = fail_errno("close", path);
    return status;
}

HsStatus hs_storage_sync(const char *path)
{
    int descriptor = open(path, O_RDONLY | O_CLOEXEC);
    if (descriptor < 0)
        return fail_errno("open", path);
    HsStatus status = fsync(descriptor) == 0 ? HS_OK : fail_errno("flush", path);
    close(descriptor);
    return status;
}

uint64_t hs_storage_hash(const void *bytes, size_t size)
{
    return XXH3_64bits(bytes, size);
}

HsStatus hs_storage_checksum(const char *path, uint64_t *checksum, int64_t *size)
{
    HsStatus status = HS_OK;
    unsigned char *chunk = malloc(READ_CHUNK_BYTES);
    XXH3_state_t *hash = XXH3_createState();
    int descriptor = open(path, O_RDONLY | O_CLOEXEC);
    *size = 0;
    if (descriptor < 0) {
        status = fail_errno("open", path);
        goto done;
    }
    if (!chunk || !hash) {
        status = hs_fail(HS_ENOMEM, "no memory to checksum %s", path);
        goto done;
    }
    XXH3_64bits_reset(hash);
    for (;;) {
        ssize_t count = read(descriptor, chunk, READ_CHUNK_BYTES);
        if (count < 0 && errno == EINTR)
            continue;
        if (count < 0) {
            status = fail_errno("read", path);
            goto done;
        }
        if (count == 0)
            break;
        XXH3_64bits_update(hash, chunk, (size_t)count);
        *size += count;
    }
    *checksum = XXH3_64bits_digest(hash);
done:
    if (descriptor >= 0)
        close(descriptor);
    XXH3_freeState(hash);
    free(chunk);
    return status;
}

static int compare_names(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

HsStatus hs_storage_list(const char *folder, HsFolderListing *listing)
{
    *listing = (HsFolderListing){ 0 };
    HsStatus status = HS_OK;
    DIR *stream = opendir(folder);
    if (!stream)
        return fail_errno("list", folder);
    for (;;) {
        errno = 0;
        const struct dirent *entry = readdir(stream);
        if (!entry) {
            status = errno ? fail_errno("list", folder) : HS_OK;
            break;
        }
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
            continue;
        char **larger = realloc(listing->names, (size_t)(listing->count + 1) * sizeof *larger);
        char *name = strdup(entry->d_name);
        if (larger)
            listing->names = larger;
        if (!larger || !name) {
            free(name);
            status = hs_fail(HS_ENOMEM, "no memory to list %s", folder);
            break;
        }
        listing->names[listing->count++] = name;
    }
    closedir(stream);
    if (status != HS_OK)
        hs_storage_list_free(listing);
    else if (listing->count > 1)
        qsort(listing->names, (size_t)listing->count, sizeof *listing->names, compare_names);
    return status;
}

void hs_storage_list_free(HsFolderListing *listing)
{
    for (int i = 0; i < listing->count; i++)
        free(listing->names[i]);
    free(listing->names);
    *listing = (HsFolderListing){ 0 };
}

static int remove_one(const char *path, const struct stat *info, int kind, struct FTW *place)
{
    (void)info;
    (void)kind;
    (void)place;
    return remove(path) != 0 && errno != ENOENT;
}

HsStatus hs_storage_remove(const char *path)
{
    /* Children first, links as themselves. */
    if (nftw(path, remove_one, OPEN_FOLDERS, FTW_DEPTH | FTW_PHYS) != 0 && errno != ENOENT)
        return fail_errno("remove", path);
    return HS_OK;
}

HsStatus hs_storage_has(const char *folder, const char *name, bool *exists)
{
    char *path = NULL;
    HS_TRY(hs_storage_join(folder, name, &path));
    HsStatus status = hs_path_exists(path, exists);
    free(path);
    return status;
}

HsStatus hs_storage_replace_text(const char *path, const char *text)
{
    char *temporary = NULL;
    if (!text || asprintf(&temporary, "%s.tmp", path) < 0)
        return hs_fail(HS_ENOMEM, "no memory to write %s", path);
    HsStatus status = hs_storage_write_file(temporary, text, strlen(text));
    if (status == HS_OK && rename(temporary, path) != 0)
        status = hs_fail(HS_EIO, "cannot rename %s to %s: %s", temporary, path, strerror(errno));
    if (status != HS_OK)
        (void)remove(temporary);
    free(temporary);
    return status;
}

HsStatus hs_storage_replace_printed(const char *path, HsPrinter print, const void *user)
{
    char *text = NULL;
    size_t size = 0;
    FILE *stream = open_memstream(&text, &size);
    HsStatus status = stream ? print(stream, user) : HS_OK;
    if (hs_close_text(stream, &text) != HS_OK)
        status = hs_fail(HS_ENOMEM, "no memory to write %s", path);
    if (status == HS_OK)
        status = hs_storage_replace_text(path, text);
    free(text);
    return status;
}
