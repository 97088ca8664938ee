/* SPDX-License-Identifier: MIT
 *
 * A growable string of bytes, NUL bytes included.  All zero is an empty one.
 */
#ifndef HS_RUNTIME_DATA_TOKENIZER_BYTES_H
#define HS_RUNTIME_DATA_TOKENIZER_BYTES_H

#include <stdlib.h>
#include <string.h>

#include "kernels/base/array.h"
#include "runtime/data/tokenizer/map.h"
#include "runtime/io/utf8.h"

typedef struct HsBytes {
    char *items;
    size_t count, capacity;
} HsBytes;

/* errors: HS_ENOMEM */
static inline HsStatus hs_bytes_append(HsBytes *bytes, const char *items, size_t count)
{
    HS_TRY(hs_array_grow(&bytes->items, 1, bytes->count + count + 1, &bytes->capacity));
    if (count > 0)
        memcpy(bytes->items + bytes->count, items, count);
    bytes->count += count;
    return HS_OK;
}

/* errors: HS_ENOMEM */
static inline HsStatus hs_bytes_append_character(HsBytes *bytes, uint32_t character)
{
    char encoded[HS_UTF8_MAX_BYTES];
    return hs_bytes_append(bytes, encoded, hs_utf8_encode(character, encoded));
}

static inline void hs_bytes_deinit(HsBytes *bytes)
{
    free(bytes->items);
    *bytes = (HsBytes){ 0 };
}

#endif
