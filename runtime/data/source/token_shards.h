/* SPDX-License-Identifier: MIT
 *
 * Token files, and parts of the cache (token_part.h), that stay in their files: one stream over all of them, of which
 * ranges are read as they are needed.  What the process holds does not depend on their size; the system's file cache
 * keeps what is read often.
 *
 * Ranges are read (pread), not mapped: a file that is cut off or replaced while a run reads it is then an error with a
 * place, where a mapping would end the process by SIGBUS.
 */
#ifndef HS_RUNTIME_DATA_SOURCE_TOKEN_SHARDS_H
#define HS_RUNTIME_DATA_SOURCE_TOKEN_SHARDS_H

#include <stdbool.h>
#include <stdint.h>

#include "kernels/base/status.h"

typedef struct HsTokenShard {
    char *path;
    int descriptor;       /* -1: opened for each read, as there are many */
    int width;            /* bytes a token, little-endian */
    int64_t begin;        /* byte of the first token */
    int64_t mask_at;      /* byte of a mask of a bit a token; 0: all tokens count */
    int64_t first, count; /* tokens, within the stream */
} HsTokenShard;

typedef struct HsTokenShards {
    HsTokenShard *items;
    int count;
    int64_t tokens;     /* of all */
    bool masked;        /* some file has a mask */
    int64_t vocabulary; /* tokens must be below it */
} HsTokenShards;

/* Appends a file; raw16: without a header.  Its header is checked, and its first tokens are; all of them where it has
 * at most HS_TOKEN_SHARD_CHECKED.  An empty one is passed over.  errors: HS_EIO, HS_EFORMAT with the byte, HS_ENOMEM */
enum { HS_TOKEN_SHARD_CHECKED = 1 << 24 };
HsStatus hs_token_shards_add(HsTokenShards *shards, const char *path, bool raw16);
/* Tokens [start, start + count) of the stream.  Any thread may.  errors: HS_EIO where a file is shorter than it was,
 * HS_EFORMAT for a token that is not below the vocabulary, with file and byte */
HsStatus hs_token_shards_read(const HsTokenShards *shards, int64_t start, int64_t count, int32_t *tokens);
/* Appends a part, whose descriptor is the shards' from then on.  errors: HS_ENOMEM */
struct HsTokenPart;
HsStatus hs_token_shards_add_part(HsTokenShards *shards, struct HsTokenPart *part);
/* Which of these tokens count (1).  errors: as for tokens */
HsStatus hs_token_shards_read_mask(const HsTokenShards *shards, int64_t start, int64_t count, uint8_t *mask);
void hs_token_shards_deinit(HsTokenShards *shards);

#endif
