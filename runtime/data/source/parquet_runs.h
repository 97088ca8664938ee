/* SPDX-License-Identifier: MIT
 *
 * Integers in few bits, one after another.  Private to the parquet*.c files.
 *
 *     runs         (RLE) levels, places in a dictionary, booleans: of `width` bits each
 *                  count << 1, value  |  count / 8 << 1 | 1, packed values        from the lowest bit on
 *     differences  (DELTA_BINARY_PACKED) integers and lengths
 *                  values a block, miniblocks a block, count, first | block: least difference, a width for each
 *                  miniblock, miniblocks of packed differences over the least
 *
 * A reader keeps its place and nothing else: a few bytes may stand for any count of values, so none is laid out.
 */
#ifndef HS_RUNTIME_DATA_SOURCE_PARQUET_RUNS_H
#define HS_RUNTIME_DATA_SOURCE_PARQUET_RUNS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct HsRuns {
    const char *bytes;
    size_t size, at;
    unsigned width; /* bits of a value, at most 32 */
    uint64_t left;  /* of the run */
    bool packed;    /* else the same value again and again */
    uint32_t value; /* of a run of the same */
    size_t start;   /* of a packed run, */
    uint64_t taken; /* and how many of it were read */
} HsRuns;

/* The bits that hold 0..most. */
unsigned hs_runs_width(unsigned most);
/* The value, or false: the bytes have no more. */
bool hs_runs_next_run(HsRuns *runs, uint32_t *value);
static inline bool hs_runs_next(HsRuns *runs, uint32_t *value)
{
    if (runs->left == 0 || runs->packed)
        return hs_runs_next_run(runs, value);
    runs->left--;
    *value = runs->value;
    return true;
}

typedef struct HsDifferences {
    const char *bytes;
    size_t size, at;
    uint64_t miniblocks, values; /* of a block; of a miniblock */
    uint64_t left;               /* values that were not read */
    uint64_t value;              /* the next */
    uint64_t least;
    uint64_t miniblock, taken; /* the next miniblock of the block, values taken of the present one */
    size_t widths, start;      /* places of the block's widths, and of the miniblock */
    unsigned width;
    bool is_first;
} HsDifferences;

/* Reads the head.  false: it is not one. */
bool hs_differences_init(HsDifferences *differences, const char *bytes, size_t size);
/* The value, or false: there are no more, or they are cut off. */
bool hs_differences_next(HsDifferences *differences, int64_t *value);
/* Where the bytes behind all values begin.  false: they are cut off. */
bool hs_differences_end(const HsDifferences *differences, size_t *end);

#endif
