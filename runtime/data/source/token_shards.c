/* SPDX-License-Identifier: MIT
 *
 * See token_shards.h.
 */
#include "runtime/data/source/token_shards.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/data/source/token_file.h"
#include "runtime/data/source/token_part.h"
#include "runtime/io/files.h"

/* Files that stay open; of more each read opens its own. */
enum { OPEN_MOST = 256, CHUNK_BYTES = 1 << 14 };

static HsStatus open_file(const char *path, int *descriptor)
{
    *descriptor = open(path, O_RDONLY | O_CLOEXEC);
    return *descriptor >= 0 ? HS_OK : hs_fail(HS_EIO, "%s: cannot be opened: %s", path, strerror(errno));
}

/* Exactly `size` bytes. */
static HsStatus read_bytes(const char *path, int descriptor, int64_t at, size_t size, char *bytes)
{
    size_t done = 0;
    while (done < size) {
        const ssize_t got = pread(descriptor, bytes + done, size - done, (off_t)(at + (int64_t)done));
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return hs_fail(HS_EIO, "%s: byte %" PRId64 ": cannot be read: %s", path, at + (int64_t)done,
                           strerror(errno));
        if (got == 0)
            return hs_fail(HS_EIO,
                           "%s: ends before byte %" PRId64
                           ", and was longer when the run began: it was cut off or replaced meanwhile; put it back as "
                           "it was, and continue by the same command",
                           path, at + (int64_t)done);
        done += (size_t)got;
    }
    return HS_OK;
}

/* Tokens [start, start + count) of one file. */
static HsStatus read_shard(const HsTokenShard *shard, int64_t vocabulary, int64_t start, int64_t count, int32_t *tokens)
{
    char bytes[CHUNK_BYTES];
    const int64_t most = CHUNK_BYTES / shard->width;
    int descriptor = shard->descriptor;
    HsStatus status = descriptor >= 0 ? HS_OK : open_file(shard->path, &descriptor);
    for (int64_t done = 0; status == HS_OK && done < count;) {
        const int64_t part = count - done < most ? count - done : most;
        const int64_t at = shard->begin + (start + done) * shard->width;
        status = read_bytes(shard->path, descriptor, at, (size_t)(part * shard->width), bytes);
        const HsTokenRange range = { shard->path, at, (size_t)shard->width, vocabulary };
        if (status == HS_OK)
            status = hs_token_file_decode(&range, bytes, part, tokens + done);
        done += part;
    }
    if (descriptor != shard->descriptor && descriptor >= 0)
        close(descriptor);
    return status;
}

static HsStatus check_tokens(const HsTokenShards *shards, const HsTokenShard *shard)
{
    int32_t tokens[CHUNK_BYTES / 2];
    const int64_t chunk = CHUNK_BYTES / 2, checked = shard->count <= HS_TOKEN_SHARD_CHECKED ? shard->count : chunk;
    for (int64_t at = 0; at < checked; at += chunk)
        HS_TRY(read_shard(shard, shards->vocabulary, at, checked - at < chunk ? checked - at : chunk, tokens));
    return HS_OK;
}

/* The header, from an open file. */
static HsStatus measure(HsTokenShard *shard, bool raw16)
{
    struct stat about;
    char start[HS_TOKEN_HEADER_BYTES];
    if (fstat(shard->descriptor, &about) != 0)
        return hs_fail(HS_EIO, "%s: cannot be examined: %s", shard->path, strerror(errno));
    size_t token_bytes = 2;
    const size_t size = about.st_size < HS_TOKEN_HEADER_BYTES ? (size_t)about.st_size : HS_TOKEN_HEADER_BYTES;
    HS_TRY(read_bytes(shard->path, shard->descriptor, 0, size, start));
    if (about.st_size < HS_TOKEN_HEADER_BYTES)
        HS_TRY(hs_check_fetched(shard->path, start, size));
    if (!raw16) {
        HS_TRY(hs_token_file_read_header(shard->path, start, (size_t)about.st_size, &token_bytes));
        shard->begin = HS_TOKEN_HEADER_BYTES;
    } else {
        HS_TRY(hs_token_file_check_raw16(shard->path, (size_t)about.st_size));
    }
    shard->width = (int)token_bytes;
    shard->count = (about.st_size - shard->begin) / shard->width;
    return HS_OK;
}

static HsStatus append(HsTokenShards *shards, const HsTokenShard *shard)
{
    HsTokenShard *items = realloc(shards->items, (size_t)(shards->count + 1) * sizeof *items);
    if (!items)
        return hs_fail(HS_ENOMEM, "no memory to list the token files");
    shards->items = items;
    items[shards->count++] = *shard;
    shards->tokens += shard->count;
    shards->masked |= shard->mask_at > 0;
    return HS_OK;
}

HsStatus hs_token_shards_add(HsTokenShards *shards, const char *path, bool raw16)
{
    HsTokenShard shard = { .path = strdup(path), .descriptor = -1, .first = shards->tokens };
    if (!shard.path)
        return hs_fail(HS_ENOMEM, "no memory to list the token files");
    HsStatus status = open_file(path, &shard.descriptor);
    if (status == HS_OK)
        status = measure(&shard, raw16);
    if (status == HS_OK)
        status = check_tokens(shards, &shard);
    const bool taken = status == HS_OK && shard.count > 0;
    if (shard.descriptor >= 0 && (!taken || shards->count >= OPEN_MOST)) {
        close(shard.descriptor);
        shard.descriptor = -1;
    }
    if (taken)
        status = append(shards, &shard);
    if (!taken || status != HS_OK)
        free(shard.path);
    return status;
}

HsStatus hs_token_shards_add_part(HsTokenShards *shards, HsTokenPart *part)
{
    const HsTokenShard shard = { .path = part->path,
                                 .descriptor = part->descriptor,
                                 .width = part->about.width,
                                 .begin = part->tokens_at,
                                 .mask_at = part->mask_at,
                                 .first = shards->tokens,
                                 .count = part->about.tokens };
    if (shard.count == 0)
        return HS_OK;
    HS_TRY(append(shards, &shard));
    part->path = NULL;
    part->descriptor = -1;
    return HS_OK;
}

/* The file that has token `at`: the last that begins at or before it. */
static int find(const HsTokenShards *shards, int64_t at)
{
    int low = 0, high = shards->count - 1;
    while (low < high) {
        const int middle = (low + high + 1) / 2;
        if (shards->items[middle].first <= at)
            low = middle;
        else
            high = middle - 1;
    }
    return low;
}

HsStatus hs_token_shards_read(const HsTokenShards *shards, int64_t start, int64_t count, int32_t *tokens)
{
    for (int i = find(shards, start); count > 0; i++) {
        const HsTokenShard *shard = &shards->items[i];
        const int64_t at = start - shard->first, there = shard->count - at, part = count < there ? count : there;
        HS_TRY(read_shard(shard, shards->vocabulary, at, part, tokens));
        start += part;
        tokens += part;
        count -= part;
    }
    return HS_OK;
}

/* Of one file: bits [start, start + count), the lowest of a byte first. */
static HsStatus read_bits(const HsTokenShard *shard, int64_t start, int64_t count, uint8_t *mask)
{
    char bytes[CHUNK_BYTES];
    if (shard->mask_at == 0) {
        memset(mask, 1, (size_t)count);
        return HS_OK;
    }
    for (int64_t at = start, end = start + count; at < end;) {
        const int64_t byte = at / 8, room = (int64_t)sizeof bytes * 8 - at % 8;
        const int64_t some = end - at < room ? end - at : room;
        HS_TRY(read_bytes(shard->path, shard->descriptor, shard->mask_at + byte, (size_t)((at % 8 + some + 7) / 8),
                          bytes));
        for (int64_t i = 0; i < some; i++, at++)
            mask[at - start] = (unsigned char)bytes[at / 8 - byte] >> at % 8 & 1;
    }
    return HS_OK;
}

HsStatus hs_token_shards_read_mask(const HsTokenShards *shards, int64_t start, int64_t count, uint8_t *mask)
{
    for (int i = find(shards, start); count > 0; i++) {
        const HsTokenShard *shard = &shards->items[i];
        const int64_t at = start - shard->first, there = shard->count - at, part = count < there ? count : there;
        HS_TRY(read_bits(shard, at, part, mask));
        start += part;
        mask += part;
        count -= part;
    }
    return HS_OK;
}

void hs_token_shards_deinit(HsTokenShards *shards)
{
    for (int i = 0; i < shards->count; i++) {
        if (shards->items[i].descriptor >= 0)
            close(shards->items[i].descriptor);
        free(shards->items[i].path);
    }
    free(shards->items);
    *shards = (HsTokenShards){ 0 };
}
