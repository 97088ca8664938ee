/* SPDX-License-Identifier: MIT
 *
 * A folder of text that has become tokens (token_part.h), from run to run.
 *
 *     FOLDER/files            marks of files: a file with the same size and times is not read again (file_mark.h)
 *     FOLDER/KEY-N.tokens     part N of a group of texts; its key is of their bytes, the tokenizer and how they are read
 *     FOLDER/KEY.lock         held by the process that makes one of them
 *
 * Several processes, of one run or of many, may use a folder at once.
 */
#ifndef HS_RUNTIME_DATA_SOURCE_TOKEN_CACHE_H
#define HS_RUNTIME_DATA_SOURCE_TOKEN_CACHE_H

#include "runtime/data/source/file_mark.h"
#include "runtime/data/source/token_part.h"

typedef struct HsTokenCache {
    char *folder;
    int64_t limit;      /* bytes; 0: none */
    int64_t least_text; /* a task with less text does not use it */
    bool verify;        /* parts are read whole before they are used */
    bool broken;        /* it cannot be written, which was said: parts are kept in memory */
    bool told;          /* where it is */
    HsFileMarks *marks;
} HsTokenCache;

/* Nothing is written yet.  errors: HS_ENOMEM */
HsStatus hs_token_cache_open(const char *folder, HsTokenCache **cache);
void hs_token_cache_close(HsTokenCache *cache);
/* "FOLDER/KEY-N.tokens"; the caller frees. */
HsStatus hs_token_cache_path(const HsTokenCache *cache, const HsPartKey *key, int index, char **path);
/* Waits until no other process makes the part; -1: it cannot be locked, and two processes may make it.  Makes the folder.
 * errors: HS_EIO */
HsStatus hs_token_cache_lock(const HsTokenCache *cache, const HsPartKey *key, int *lock);
void hs_token_cache_unlock(int lock);
/* Removes what was used least lately, and is not in use, until the limit is kept. */
void hs_token_cache_trim(const HsTokenCache *cache);

/* For people: the parts, the one that was used last first. */
typedef struct HsCachedPart {
    char *path;
    HsPartAbout about;
    int64_t bytes, used_s; /* used_s: seconds since 1970 */
} HsCachedPart;
typedef struct HsCachedParts {
    HsCachedPart *items;
    int count;
} HsCachedParts;
HsStatus hs_token_cache_list(const char *folder, HsCachedParts *parts);
void hs_cached_parts_deinit(HsCachedParts *parts);
/* false: it is in use, or cannot be removed. */
bool hs_cached_part_remove(const HsCachedPart *part);

#endif
