/* SPDX-License-Identifier: MIT
 *
 * A hash map from byte strings to numbers: open addressing, linear probing.
 *
 *     slots    | hash, index | free | hash, index | ...     a half of a hash tells nearly all other keys apart
 *     entries  | key, value | key, value | ...              in order of insertion; a key of up to 16 bytes lies in it
 *     pool     | longer keys ...
 *
 * So a look-up of a word touches two lines of memory, and those of frequent words lie together.
 * Hash: XXH3 with fixed seeds, so that behaviour repeats from run to run; iteration goes in order of insertion.
 */
#ifndef HS_RUNTIME_DATA_TOKENIZER_MAP_H
#define HS_RUNTIME_DATA_TOKENIZER_MAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kernels/base/status.h"

enum { HS_MAP_SHORT_KEY = 16 };

typedef struct HsMapEntry {
    union {
        uint64_t words[2];            /* a short key, and zeros */
        char bytes[HS_MAP_SHORT_KEY]; /* the same */
        size_t offset;                /* of a longer one in the pool */
    } key;
    size_t key_length;
    int64_t value;
} HsMapEntry;

/* All zero is an empty map. */
typedef struct HsMap {
    uint64_t *slots;     /* the hash's upper half, entry index + 1; 0: free */
    size_t slot_count;   /* a power of two, at least 3/2 of `count` */
    HsMapEntry *entries; /* in order of insertion */
    size_t count, entry_capacity;
    char *pool;
    size_t pool_used, pool_capacity;
} HsMap;

/* Insert or overwrite.  errors: HS_ENOMEM (the map stays as it was). */
HsStatus hs_map_put(HsMap *map, const void *key, size_t length, int64_t value);
/* Add to the key's value, which is 0 where it is new.  errors: as put's */
HsStatus hs_map_add(HsMap *map, const void *key, size_t length, int64_t more);
/* The same for every entry of another map. */
HsStatus hs_map_add_all(HsMap *map, const HsMap *other);
bool hs_map_get(const HsMap *map, const void *key, size_t length, int64_t *value);
/* Key of entry i; valid until the next put. */
static inline const char *hs_map_key(const HsMap *map, size_t i, size_t *length)
{
    const HsMapEntry *entry = &map->entries[i];
    *length = entry->key_length;
    return entry->key_length <= HS_MAP_SHORT_KEY ? entry->key.bytes : map->pool + entry->key.offset;
}
/* Empties it, and keeps its memory. */
void hs_map_clear(HsMap *map);
void hs_map_deinit(HsMap *map);

#endif
