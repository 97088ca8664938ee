/* SPDX-License-Identifier: MIT
 *
 * A hash map from byte strings to numbers: open addressing, linear probing, keys copied into one pool.
 * Hash: XXH3 with a fixed seed, so that behaviour repeats from run to run; iteration goes in order of insertion.
 */
#ifndef HS_RUNTIME_DATA_TOKENIZER_MAP_H
#define HS_RUNTIME_DATA_TOKENIZER_MAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kernels/base/status.h"

typedef struct HsMapEntry {
    uint64_t hash;
    size_t key_offset, key_length; /* in the pool */
    int64_t value;
} HsMapEntry;

/* All zero is an empty map. */
typedef struct HsMap {
    uint32_t *slots;     /* entry index + 1; 0: free */
    size_t slot_count;   /* a power of two, at least twice `count` */
    HsMapEntry *entries; /* in order of insertion */
    size_t count, entry_capacity;
    unsigned char *pool;
    size_t pool_used, pool_capacity;
} HsMap;

/* Insert or overwrite.  errors: HS_ENOMEM (the map stays as it was). */
HsStatus hs_map_put(HsMap *map, const void *key, size_t length, int64_t value);
bool hs_map_get(const HsMap *map, const void *key, size_t length, int64_t *value);
/* Key of entry i; valid until the next put. */
static inline const char *hs_map_key(const HsMap *map, size_t i, size_t *length)
{
    *length = map->entries[i].key_length;
    return (const char *)map->pool + map->entries[i].key_offset;
}
/* Empties it, and keeps its memory. */
void hs_map_clear(HsMap *map);
void hs_map_deinit(HsMap *map);

#endif
