/* SPDX-License-Identifier: MIT
 *
 * See map.h.
 */
#include "kernels/base/array.h"
#include "runtime/data/tokenizer/map.h"

#include <stdlib.h>
#include <string.h>

#include <xxhash.h>

enum { MAP_FIRST_SLOTS = 64 };

/* The slot that holds the key, or the free one where it would go. */
static size_t find_slot(const HsMap *map, uint64_t hash, const void *key, size_t length)
{
    size_t mask = map->slot_count - 1, slot = (size_t)hash & mask;
    for (; map->slots[slot] != 0; slot = (slot + 1) & mask) {
        const HsMapEntry *entry = &map->entries[map->slots[slot] - 1];
        if (entry->hash == hash && entry->key_length == length &&
            (length == 0 || memcmp(map->pool + entry->key_offset, key, length) == 0))
            break;
    }
    return slot;
}

static HsStatus grow_slots(HsMap *map)
{
    size_t slot_count = map->slot_count ? map->slot_count * 2 : MAP_FIRST_SLOTS;
    uint32_t *slots = calloc(slot_count, sizeof *slots);
    if (!slots || map->count >= UINT32_MAX / 2) {
        free(slots);
        return hs_fail(HS_ENOMEM, "out of memory: a map of %zu entries", slot_count / 2);
    }
    for (size_t i = 0; i < map->count; i++) {
        size_t slot = (size_t)map->entries[i].hash & (slot_count - 1);
        while (slots[slot] != 0)
            slot = (slot + 1) & (slot_count - 1);
        slots[slot] = (uint32_t)(i + 1);
    }
    free(map->slots);
    map->slots = slots;
    map->slot_count = slot_count;
    return HS_OK;
}

HsStatus hs_map_put(HsMap *map, const void *key, size_t length, int64_t value)
{
    if (2 * (map->count + 1) > map->slot_count)
        HS_TRY(grow_slots(map));
    uint64_t hash = XXH3_64bits(key, length);
    size_t slot = find_slot(map, hash, key, length);
    if (map->slots[slot] != 0) {
        map->entries[map->slots[slot] - 1].value = value;
        return HS_OK;
    }
    HS_TRY(hs_array_grow(&map->entries, sizeof *map->entries, map->count + 1, &map->entry_capacity));
    HS_TRY(hs_array_grow(&map->pool, 1, map->pool_used + length, &map->pool_capacity));
    if (length > 0)
        memcpy(map->pool + map->pool_used, key, length);
    map->entries[map->count++] = (HsMapEntry){ hash, map->pool_used, length, value };
    map->pool_used += length;
    map->slots[slot] = (uint32_t)map->count;
    return HS_OK;
}

bool hs_map_get(const HsMap *map, const void *key, size_t length, int64_t *value)
{
    if (map->count == 0)
        return false;
    size_t slot = find_slot(map, XXH3_64bits(key, length), key, length);
    if (map->slots[slot] == 0)
        return false;
    *value = map->entries[map->slots[slot] - 1].value;
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
