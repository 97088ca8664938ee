/* SPDX-License-Identifier: MIT
 *
 * checksums.json is written last; a folder without it is not a checkpoint.
 *
 *     {"format": "halfstep-checkpoint-1", "step": 200,
 *      "files": {"model.safetensors": {"bytes": 1048576, "xxh3": "0123456789abcdef"}, ...}}
 */
#include "runtime/checkpoint/folder.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <xxhash.h>

#include "runtime/checkpoint/checkpoint.h"
#include "runtime/io/files.h"
#include "runtime/io/storage.h"

#define FORMAT_NAME "halfstep-checkpoint-1"
enum { MAX_CHECKSUMS_BYTES = 1 << 20, MAX_NAME_BYTES = 256, HASH_DIGITS = 16 };

bool hs_checkpoint_step_of(const char *name, int64_t *step)
{
    static const char prefix[] = "step-";
    size_t prefix_length = sizeof prefix - 1;
    if (strncmp(name, prefix, prefix_length) != 0)
        return false;
    const char *digits = name + prefix_length;
    size_t count = strspn(digits, "0123456789");
    if (count < 8 || count > 18) /* the width of %08d; 18 digits cannot overflow */
        return false;
    if (digits[count] != '\0' && strcmp(digits + count, HS_CHECKPOINT_REPLACED) != 0)
        return false;
    *step = strtoll(digits, NULL, 10);
    return true;
}

HsStatus hs_checkpoint_read_name(const char *parent, const char *pointer, char name[HS_CHECKPOINT_NAME_BYTES])
{
    char *path = NULL, *text = NULL;
    size_t length = 0;
    int64_t step = 0;
    HS_TRY(hs_storage_join(parent, pointer, &path));
    HsStatus status = hs_read_file(path, MAX_NAME_BYTES, &text, &length);
    if (status == HS_OK) {
        text[strcspn(text, "\r\n")] = '\0';
        snprintf(name, HS_CHECKPOINT_NAME_BYTES, "%s", text);
        if (strlen(text) >= HS_CHECKPOINT_NAME_BYTES || !hs_checkpoint_step_of(name, &step))
            status =
                hs_fail(HS_EFORMAT, "%s: `%.64s` is not the name of a checkpoint, such as step-00000100", path, text);
    }
    free(text);
    free(path);
    return status;
}

/* One file's row. */
static HsStatus seal_file(const char *folder, const char *name, const HsJson *known, HsJson *files)
{
    char *path = NULL;
    HS_TRY(hs_storage_join(folder, name, &path));
    HsStatus status = HS_OK;
    char digits[HASH_DIGITS + 1];
    struct stat info;
    int64_t size = 0;
    if (lstat(path, &info) != 0) {
        status = hs_fail(HS_EIO, "%s: cannot be looked at: %s", path, strerror(errno));
        goto done;
    }
    if (!S_ISREG(info.st_mode)) {
        status = hs_fail(HS_EIO, "%s: not a regular file, and a checkpoint holds no others: remove it", path);
        goto done;
    }
    const char *digest = hs_json_string(hs_json_get(known, name));
    if (digest) {
        size = info.st_size;
        snprintf(digits, sizeof digits, "%s", digest);
    } else {
        uint64_t checksum = 0;
        HS_TRY_GOTO(status, hs_storage_checksum(path, &checksum, &size), done);
        snprintf(digits, sizeof digits, "%016" PRIx64, checksum);
        HS_TRY_GOTO(status, hs_storage_sync(path), done);
    }
    HsJson *row = hs_json_object();
    hs_json_set_integer(row, "bytes", size);
    hs_json_set_string(row, "xxh3", digits);
    hs_json_set(files, name, row);
done:
    free(path);
    return status;
}

HsStatus hs_checkpoint_seal(const char *folder, int64_t step, const HsJson *known)
{
    HsStatus status = HS_OK;
    HsFolderListing listing = { 0 };
    char *path = NULL, *text = NULL;
    HsJson *root = hs_json_object(), *files = hs_json_object();
    hs_json_set_string(root, "format", FORMAT_NAME);
    hs_json_set_integer(root, "step", step);

    HS_TRY_GOTO(status, hs_storage_list(folder, &listing), done);
    for (int i = 0; i < listing.count; i++)
        HS_TRY_GOTO(status, seal_file(folder, listing.names[i], known, files), done);
    hs_json_set(root, "files", files);
    files = NULL;
    text = hs_json_write(root, true);
    if (!text) {
        status = hs_fail(HS_ENOMEM, "%s: no memory for %s", folder, HS_CHECKPOINT_CHECKSUMS);
        goto done;
    }
    HS_TRY_GOTO(status, hs_storage_join(folder, HS_CHECKPOINT_CHECKSUMS, &path), done);
    HS_TRY_GOTO(status, hs_storage_write_file(path, text, strlen(text)), done);
    status = hs_storage_sync(folder); /* the names themselves */
done:
    free(path);
    free(text);
    hs_json_destroy(files);
    hs_json_destroy(root);
    hs_storage_list_free(&listing);
    return status;
}

static HsStatus verify_file(const char *folder, const HsJson *row, bool with_checksum)
{
    const char *name = hs_json_key(row), *digest = NULL;
    char *path = NULL;
    int64_t bytes = 0, size = 0;
    struct stat info;
    if (name[0] == '\0' || strchr(name, '/'))
        return hs_fail(HS_EFORMAT, "%s/%s: `%s` is not a file name", folder, HS_CHECKPOINT_CHECKSUMS, name);
    HS_TRY(hs_json_need_integer(HS_CHECKPOINT_CHECKSUMS, row, "bytes", &bytes));
    HS_TRY(hs_json_need_string(HS_CHECKPOINT_CHECKSUMS, row, "xxh3", &digest));
    HS_TRY(hs_storage_join(folder, name, &path));
    HsStatus status = HS_OK;
    if (stat(path, &info) != 0) {
        status = hs_fail(HS_EIO, "cannot read %s: %s", path, strerror(errno));
    } else if (!S_ISREG(info.st_mode)) {
        status = hs_fail(HS_EIO, "%s: not a regular file", path);
    } else if (info.st_size != bytes) {
        status = hs_fail(HS_EFORMAT, "%s: damaged: %lld bytes instead of the %lld in %s", path, (long long)info.st_size,
                         (long long)bytes, HS_CHECKPOINT_CHECKSUMS);
    } else if (with_checksum) {
        uint64_t checksum = 0;
        char digits[HASH_DIGITS + 1];
        status = hs_storage_checksum(path, &checksum, &size);
        snprintf(digits, sizeof digits, "%016" PRIx64, checksum);
        if (status == HS_OK && strcmp(digits, digest) != 0)
            status = hs_fail(HS_EFORMAT, "%s: damaged: checksum %s instead of the %s in %s", path, digits, digest,
                             HS_CHECKPOINT_CHECKSUMS);
    }
    free(path);
    return status;
}

/* What a checkpoint is made of, and whether each has it.  Other files (a user's notes) are ignored. */
static const struct {
    const char *name;
    bool always;
} known_files[] = {
    { "model.safetensors", true },      { "optimizer.safetensors", true }, { "trainer.json", true },
    { "continual.safetensors", false }, { "tokenizer.json", false },       { "config.yaml", false },
    { "carried.json", false },
};

/* A file without a checksum may have any content. */
static HsStatus check_listed(const char *folder, const HsJson *files)
{
    for (size_t i = 0; i < sizeof known_files / sizeof *known_files; i++) {
        bool there;
        const char *name = known_files[i].name;
        if (hs_json_get(files, name))
            continue;
        HS_TRY(hs_storage_has(folder, name, &there));
        if (there || known_files[i].always)
            return hs_fail(HS_EFORMAT, "%s/%s does not list %s: copy the checkpoint again, or use an older one", folder,
                           HS_CHECKPOINT_CHECKSUMS, name);
    }
    return HS_OK;
}

HsStatus hs_checkpoint_verify(const char *folder, bool with_checksums)
{
    HsStatus status = HS_OK;
    char *path = NULL, *text = NULL;
    size_t length = 0;
    HsJson *root = NULL;
    const char *format = NULL;
    HS_TRY_GOTO(status, hs_storage_join(folder, HS_CHECKPOINT_CHECKSUMS, &path), done);
    HS_TRY_GOTO(status, hs_read_file(path, MAX_CHECKSUMS_BYTES, &text, &length), done);
    HS_TRY_GOTO(status, hs_json_parse(path, text, length, &root), done);
    HS_TRY_GOTO(status, hs_json_need_string(path, root, "format", &format), done);
    if (strcmp(format, FORMAT_NAME) != 0) {
        status =
            hs_fail(HS_EFORMAT, "%s: format `%.40s` is not one this version reads (%s): use the version that wrote it",
                    path, format, FORMAT_NAME);
        goto done;
    }
    const HsJson *files = hs_json_get(root, "files");
    if (!hs_json_is_object(files) || hs_json_count(files) == 0) {
        status = hs_fail(HS_EFORMAT, "%s: member `files` must list the checkpoint's files", path);
        goto done;
    }
    HS_TRY_GOTO(status, check_listed(folder, files), done);
    for (const HsJson *row = hs_json_first(files); row; row = hs_json_next(row))
        HS_TRY_GOTO(status, verify_file(folder, row, with_checksums), done);
done:
    hs_json_destroy(root);
    free(text);
    free(path);
    return status;
}

HsStatus hs_checkpoint_hash(const char *folder, uint64_t *hash)
{
    HsStatus status = HS_OK;
    HsFolderListing listing = { 0 };
    char *path = NULL;
    XXH3_state_t *state = XXH3_createState();
    if (!state)
        return hs_fail(HS_ENOMEM, "%s: no memory to hash it", folder);
    XXH3_64bits_reset(state);
    HS_TRY_GOTO(status, hs_storage_list(folder, &listing), done);
    for (int i = 0; i < listing.count; i++) {
        uint64_t checksum = 0;
        int64_t size = 0;
        HS_TRY_GOTO(status, hs_storage_join(folder, listing.names[i], &path), done);
        HS_TRY_GOTO(status, hs_storage_checksum(path, &checksum, &size), done);
        /* Name with its NUL, size, hash of the bytes: no two folders can run together into the same input. */
        XXH3_64bits_update(state, listing.names[i], strlen(listing.names[i]) + 1);
        XXH3_64bits_update(state, &size, sizeof size);
        XXH3_64bits_update(state, &checksum, sizeof checksum);
        free(path);
        path = NULL;
    }
    *hash = XXH3_64bits_digest(state);
done:
    free(path);
    hs_storage_list_free(&listing);
    XXH3_freeState(state);
    return status;
}
