/* SPDX-License-Identifier: MIT
 *
 * See map.h.
 */
#include "kernels/base/array.h"
#include "runtime/data/tokenizer/map.h"

#include <stdlib.h>
#include <string.h>

/* Words of a few bytes are looked up by the million: a call for each hash would take as long as the hash. */
#define XXH_INLINE_ALL
#include <xxhash.h>

enum { MAP_FIRST_SLOTS = 64, AHEAD = 8 };
#define INDEX_MASK UINT64_C(0xFFFFFFFF)

typedef struct Key {
    const void *bytes;
    size_t length;
    uint64_t words[2]; /* of a short one */
    uint64_t hash;
} Key;

/* bytes[length], at most 8 of them, and zeros: loads that overlap, where a copy of `length` bytes would be a call. */
static uint64_t load(const unsigned char *bytes, size_t length)
{
    uint32_t first, last;
    if (length == 8) {
        uint64_t all;
        memcpy(&all, bytes, sizeof all);
        return all;
    }
    if (length >= 4) {
        memcpy(&first, bytes, sizeof first);
        memcpy(&last, bytes + length - 4, sizeof last);
        return first | (uint64_t)last << (8 * (length - 4));
    }
    if (length == 0)
        return 0;
    return bytes[0] | (uint64_t)bytes[length / 2] << (8 * (length / 2)) |
           (uint64_t)bytes[length - 1] << (8 * (length - 1));
}

static uint64_t hash_short(const uint64_t words[2], size_t length)
{
    return XXH3_64bits_withSeed(words, 2 * sizeof words[0], length);
}

static Key make_key(const void *bytes, size_t length)
{
    Key key = { .bytes = bytes, .length = length };
    if (length > HS_MAP_SHORT_KEY) {
        key.hash = XXH3_64bits(bytes, length);
        return key;
    }
    key.words[0] = load(bytes, length < 8 ? length : 8);
    key.words[1] = length > 8 ? load((const unsigned char *)bytes + 8, length - 8) : 0;
    key.hash = hash_short(key.words, length);
    return key;
}

static uint64_t hash_of(const HsMap *map, const HsMapEntry *entry)
{
    return entry->key_length <= HS_MAP_SHORT_KEY ? hash_short(entry->key.words, entry->key_length)
                                                 : XXH3_64bits(map->pool + entry->key.offset, entry->key_length);
}

static bool equals(const HsMap *map, const HsMapEntry *entry, const Key *key)
{
    if (entry->key_length != key->length)
        return false;
    if (key->length <= HS_MAP_SHORT_KEY)
        return entry->key.words[0] == key->words[0] && entry->key.words[1] == key->words[1];
    return memcmp(map->pool + entry->key.offset, key->bytes, key->length) == 0;
}

/* The slot that holds the key, or the free one where it would go. */
static size_t find_slot(const HsMap *map, const Key *key)
{
    const size_t mask = map->slot_count - 1;
    size_t slot = (size_t)key->hash & mask;
    for (; map->slots[slot] != 0; slot = (slot + 1) & mask)
        if (((map->slots[slot] ^ key->hash) & ~INDEX_MASK) == 0 &&
            equals(map, &map->entries[(map->slots[slot] & INDEX_MASK) - 1], key))
            break;
    return slot;
}

static HsStatus grow_slots(HsMap *map)
{
    size_t slot_count = map->slot_count ? map->slot_count * 2 : MAP_FIRST_SLOTS;
    uint64_t *slots = calloc(slot_count, sizeof *slots);
    if (!slots || map->count >= UINT32_MAX / 2) {
        free(slots);
        return hs_fail(HS_ENOMEM, "out of memory: a map of %zu entries", slot_count / 2);
    }
    for (size_t i = 0; i < map->count; i++) {
        const uint64_t hash = hash_of(map, &map->entries[i]);
        size_t slot = (size_t)hash & (slot_count - 1);
        while (slots[slot] != 0)
            slot = (slot + 1) & (slot_count - 1);
        slots[slot] = (hash & ~INDEX_MASK) | (i + 1);
    }
    free(map->slots);
    map->slots = slots;
    map->slot_count = slot_count;
    return HS_OK;
}

/* The key's entry, which is made with value 0 where there is none. */
static HsStatus need_entry(HsMap *map, const Key *key, HsMapEntry **entry)
{
    if (3 * (map->count + 1) > 2 * map->slot_count)
        HS_TRY(grow_slots(map));
    const size_t slot = find_slot(map, key);
    if (map->slots[slot] != 0) {
        *entry = &map->entries[(map->slots[slot] & INDEX_MASK) - 1];
        return HS_OK;
    }
    const size_t pooled = key->length > HS_MAP_SHORT_KEY ? key->length : 0;
    HS_TRY(hs_array_grow(&map->entries, sizeof *map->entries, map->count + 1, &map->entry_capacity));
    HS_TRY(hs_array_grow(&map->pool, 1, map->pool_used + pooled, &map->pool_capacity));
    *entry = &map->entries[map->count++];
    **entry = (HsMapEntry){ .key.words = { key->words[0], key->words[1] }, .key_length = key->length };
    if (pooled > 0) {
        (*entry)->key.offset = map->pool_used;
        memcpy(map->pool + map->pool_used, key->bytes, pooled);
        map->pool_used += pooled;
    }
    map->slots[slot] = (key->hash & ~INDEX_MASK) | map->count;
    return HS_OK;
}

HsStatus hs_map_put(HsMap *map, const void *key, size_t length, int64_t value)
{
    const Key made = make_key(key, length);
    HsMapEntry *entry;
    HS_TRY(need_entry(map, &made, &entry));
    entry->value = value;
    return HS_OK;
}

HsStatus hs_map_add(HsMap *map, const void *key, size_t length, int64_t more)
{
    const Key made = make_key(key, length);
    HsMapEntry *entry;
    HS_TRY(need_entry(map, &made, &entry));
    entry->value += more;
    return HS_OK;
}

/* A large map's slots, and then its entries, come from memory: both are asked for ahead of time. */
HsStatus hs_map_add_all(HsMap *map, const HsMap *other)
{
    uint64_t hashes[2 * AHEAD] = { 0 };
    for (size_t i = 0; i < other->count + 2 * AHEAD; i++) {
        if (i < other->count && map->slot_count > 0) {
            hashes[i % (2 * AHEAD)] = hash_of(other, &other->entries[i]);
            __builtin_prefetch(&map->slots[hashes[i % (2 * AHEAD)] & (map->slot_count - 1)]);
        }
        if (i >= AHEAD && i < other->count + AHEAD && map->slot_count > 0) {
            const uint64_t found = map->slots[hashes[(i - AHEAD) % (2 * AHEAD)] & (map->slot_count - 1)];
            __builtin_prefetch(&map->entries[found != 0 ? (found & INDEX_MASK) - 1 : 0], 1);
        }
        if (i < 2 * AHEAD)
            continue;
        size_t length;
        const char *key = hs_map_key(other, i - 2 * AHEAD, &length);
        HS_TRY(hs_map_add(map, key, length, other->entries[i - 2 * AHEAD].value));
    }
    return HS_OK;
}

bool hs_map_get(const HsMap *map, const void *key, size_t length, int64_t *value)
{
    if (map->count == 0)
        return false;
    const Key made = make_key(key, length);
    const size_t slot = find_slot(map, &made);
    if (map->slots[slot] == 0)
        return false;
    *value = map->entries[(map->slots[slot] & INDEX_MASK) - 1].value;
    return true;
}

void hs_map_clear(HsMap *map)
{
    if (map->slot_count > 0)
        memset(map->slots, 0, map->slot_count * sizeof *map->slots);
    map->count = map->pool_used = 0;
}

void hs_map_deinit(HsMap *map)
{
    free(map->slots);
    free(map->entries);
    free(map->pool);
    *map = (HsMap){ 0 };
}
