/* SPDX-License-Identifier: MIT
 *
 * See parquet_runs.h.
 */
#include "runtime/data/source/parquet_runs.h"

#include "runtime/data/source/parquet_thrift.h"

enum { MOST_WIDTH = 64, MOST_BLOCK = 1 << 24 };

unsigned hs_runs_width(unsigned most)
{
    unsigned width = 0;
    for (; most > 0; most >>= 1)
        width++;
    return width;
}

/* `width` bits at bit `index * width` of the bytes behind `at`; all of them must be there. */
static uint64_t get_packed(const char *bytes, size_t at, uint64_t index, unsigned width)
{
    const uint64_t bit = index * width;
    const unsigned char *from = (const unsigned char *)bytes + at + bit / 8;
    const unsigned shift = (unsigned)(bit % 8), count = (shift + width + 7) / 8;
    uint64_t value = 0;
    for (unsigned i = 0; i < count && i < 8; i++)
        value |= (uint64_t)from[i] << (8 * i);
    value >>= shift;
    if (count > 8) /* shift > 0 */
        value |= (uint64_t)from[8] << (64 - shift);
    return width < 64 ? value & ((UINT64_C(1) << width) - 1) : value;
}

/* The head of the next run.  A packed run at the end may be cut short: it has groups of eight values, the last of which
 * need not all be there. */
static bool begin_run(HsRuns *runs)
{
    uint64_t head;
    if (!hs_thrift_varint(runs->bytes, runs->size, &runs->at, &head))
        return false;
    const size_t rest = runs->size - runs->at;
    runs->packed = head & 1;
    runs->left = head >> 1;
    if (runs->packed) {
        const uint64_t most = runs->width > 0 ? (uint64_t)rest * 8 / runs->width : UINT64_MAX / 8;
        runs->left = runs->left > most / 8 ? most : 8 * runs->left;
        runs->start = runs->at;
        runs->taken = 0;
        const uint64_t bytes = runs->width > 0 ? (runs->left * runs->width + 7) / 8 : 0;
        runs->at += (size_t)bytes;
        return true;
    }
    const size_t bytes = (runs->width + 7) / 8;
    if (rest < bytes)
        return false;
    runs->value = 0;
    for (size_t i = 0; i < bytes; i++)
        runs->value |= (uint32_t)(unsigned char)runs->bytes[runs->at + i] << (8 * i);
    runs->at += bytes;
    return true;
}

bool hs_runs_next_run(HsRuns *runs, uint32_t *value)
{
    while (runs->left == 0)
        if (!begin_run(runs))
            return false;
    runs->left--;
    *value = runs->packed ? (uint32_t)get_packed(runs->bytes, runs->start, runs->taken++, runs->width) : runs->value;
    return true;
}

bool hs_differences_init(HsDifferences *differences, const char *bytes, size_t size)
{
    uint64_t block, miniblocks, count, first;
    *differences = (HsDifferences){ .bytes = bytes, .size = size };
    if (!hs_thrift_varint(bytes, size, &differences->at, &block) ||
        !hs_thrift_varint(bytes, size, &differences->at, &miniblocks) ||
        !hs_thrift_varint(bytes, size, &differences->at, &count) ||
        !hs_thrift_varint(bytes, size, &differences->at, &first))
        return false;
    if (block == 0 || block > MOST_BLOCK || miniblocks == 0 || block % miniblocks || block / miniblocks % 8)
        return false; /* a miniblock has whole bytes */
    differences->miniblocks = differences->miniblock = miniblocks;
    differences->values = differences->taken = block / miniblocks;
    differences->left = count;
    differences->value = (uint64_t)hs_thrift_zigzag(first);
    differences->is_first = true;
    return true;
}

/* The next miniblock, with the head of its block in front of it. */
static bool begin_miniblock(HsDifferences *differences)
{
    if (differences->miniblock == differences->miniblocks) {
        uint64_t least;
        if (!hs_thrift_varint(differences->bytes, differences->size, &differences->at, &least) ||
            differences->miniblocks > differences->size - differences->at)
            return false;
        differences->least = (uint64_t)hs_thrift_zigzag(least);
        differences->widths = differences->at;
        differences->at += (size_t)differences->miniblocks;
        differences->miniblock = 0;
    }
    differences->width = (unsigned char)differences->bytes[differences->widths + differences->miniblock++];
    differences->start = differences->at;
    differences->taken = 0;
    const uint64_t bytes = differences->values / 8 * differences->width;
    if (differences->width > MOST_WIDTH || bytes > differences->size - differences->at)
        return false;
    differences->at += (size_t)bytes;
    return true;
}

bool hs_differences_next(HsDifferences *differences, int64_t *value)
{
    if (differences->left == 0)
        return false;
    if (!differences->is_first) {
        if (differences->taken == differences->values && !begin_miniblock(differences))
            return false;
        differences->value += differences->least + get_packed(differences->bytes, differences->start,
                                                              differences->taken++, differences->width);
    }
    differences->is_first = false;
    differences->left--;
    *value = (int64_t)differences->value;
    return true;
}

bool hs_differences_end(const HsDifferences *differences, size_t *end)
{
    HsDifferences rest = *differences;
    /* All but the first value stand in miniblocks; a block's last ones, without values, have no bytes. */
    for (uint64_t left = rest.left > 0 ? rest.left - 1 : 0; left > 0;) {
        if (!begin_miniblock(&rest))
            return false;
        left -= left < rest.values ? left : rest.values;
    }
    *end = rest.at;
    return true;
}
