/* SPDX-License-Identifier: MIT
 *
 * Small file-system helpers.
 */
#include "runtime/files.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

HsStatus hs_make_directories(const char *path)
{
    char partial[4096];
    size_t length = strlen(path);
    if (length == 0 || length >= sizeof partial)
        return hs_fail(HS_EIO, "a folder's path must have 1 to %zu characters (got %zu)", sizeof partial - 1, length);
    memcpy(partial, path, length + 1);
    for (size_t i = 1; i <= length; i++) {
        if (partial[i] != '/' && partial[i] != '\0')
            continue;
        char kept = partial[i];
        partial[i] = '\0';
        if (mkdir(partial, 0777) != 0 && errno != EEXIST)
            return hs_fail(HS_EIO, "%s: the folder cannot be made: %s", partial, strerror(errno));
        partial[i] = kept;
    }
    struct stat info;
    if (stat(path, &info) != 0 || !S_ISDIR(info.st_mode))
        return hs_fail(HS_EIO, "%s exists and is not a folder", path);
    return HS_OK;
}

static HsStatus read_all(FILE *file, const char *path, size_t limit, char **text, size_t *length)
{
    size_t capacity = 65536, used = 0;
    char *buffer = malloc(capacity + 1);
    while (buffer) {
        used += fread(buffer + used, 1, capacity - used, file);
        if (limit > 0 && used > limit) {
            free(buffer);
            return hs_fail(HS_EFORMAT, "%s: larger than the %zu bytes that such a file may have", path, limit);
        }
        if (used < capacity)
            break;
        capacity *= 2;
        char *larger = realloc(buffer, capacity + 1);
        if (!larger)
            free(buffer);
        buffer = larger;
    }
    if (!buffer)
        return hs_fail(HS_ENOMEM, "%s: no memory for its %zu bytes", path, used);
    if (ferror(file)) {
        free(buffer);
        return hs_fail(HS_EIO, "%s: cannot be read: %s", path, strerror(errno));
    }
    buffer[used] = '\0';
    *text = buffer;
    *length = used;
    return HS_OK;
}

HsStatus hs_read_input(const char *path, size_t limit, char **text, size_t *length)
{
    if (strcmp(path, "-") == 0)
        return read_all(stdin, "the standard input", limit, text, length);
    return hs_read_file(path, limit, text, length);
}

HsStatus hs_read_file(const char *path, size_t limit, char **text, size_t *length)
{
    struct stat info;
    FILE *file = fopen(path, "rb");
    if (!file)
        return hs_fail(HS_EIO, "%s: cannot be opened: %s", path, strerror(errno));
    HsStatus status;
    if (fstat(fileno(file), &info) == 0 && S_ISDIR(info.st_mode))
        status = hs_fail(HS_EIO, "%s is a folder, not a file", path);
    else
        status = read_all(file, path, limit, text, length);
    fclose(file);
    return status;
}
