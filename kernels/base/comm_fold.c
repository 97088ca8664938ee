/* SPDX-License-Identifier: MIT
 *
 * The tree is walked depth first for a tile of elements at a time.  At depth d of the walk, the left half's sum waits in
 * scratch d while the right half is added up in scratches d + 1 and up: as many tiles as the tree is high, which stay in
 * the first cache.  The parts' own tiles are read where they are, once.
 */
#include "kernels/base/comm_fold.h"

#include <assert.h>
#include <stdint.h>
#include <string.h>

enum { TILE_BYTES = 4096, LEVELS = 21 };

typedef struct Fold {
    const void *const *parts;
    size_t offset, elements; /* the tile: bytes before it, elements in it */
    void (*combine)(size_t elements, const void *a, const void *b, void *out);
    unsigned char (*scratch)[TILE_BYTES];
} Fold;

/* out may be a or b */
#define SUM(name, Type)                                                              \
    static void sum_##name(size_t elements, const void *a, const void *b, void *out) \
    {                                                                                \
        const Type *x = a, *y = b;                                                   \
        Type *z = out;                                                               \
        for (size_t i = 0; i < elements; i++)                                        \
            z[i] = x[i] + y[i];                                                      \
    }                                                                                \
    static void max_##name(size_t elements, const void *a, const void *b, void *out) \
    {                                                                                \
        const Type *x = a, *y = b;                                                   \
        Type *z = out;                                                               \
        for (size_t i = 0; i < elements; i++)                                        \
            z[i] = y[i] > x[i] ? y[i] : x[i];                                        \
    }
SUM(f32, float)
SUM(f64, double)

/* Sums of integers wrap, which only unsigned ones do by the language. */
static void sum_i64(size_t elements, const void *a, const void *b, void *out)
{
    const uint64_t *x = a, *y = b;
    uint64_t *z = out;
    for (size_t i = 0; i < elements; i++)
        z[i] = x[i] + y[i];
}

static void max_i64(size_t elements, const void *a, const void *b, void *out)
{
    const int64_t *x = a, *y = b;
    int64_t *z = out;
    for (size_t i = 0; i < elements; i++)
        z[i] = y[i] > x[i] ? y[i] : x[i];
}

static float widen_bf16(uint16_t bits)
{
    const uint32_t wide = (uint32_t)bits << 16;
    float value;
    memcpy(&value, &wide, sizeof value);
    return value;
}

/* hs_bf16_encode without a branch, so that loops of it become vectors. */
static uint16_t narrow_bf16(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    const uint32_t rounded = (bits + 0x7FFF + (bits >> 16 & 1)) >> 16;
    const uint32_t quiet = bits >> 16 | 0x40;
    return (uint16_t)((bits & 0x7FFFFFFF) > 0x7F800000 ? quiet : rounded);
}

/* A sum of two in f32, rounded again to 16 bits, is the exact sum rounded once: 24 bits are at least twice the format's
 * 8 or 11 and two more (Figueroa 1995), and f32 holds the smallest subnormals of both. */
static void sum_bf16(size_t elements, const void *a, const void *b, void *out)
{
    const uint16_t *x = a, *y = b;
    uint16_t *z = out;
    for (size_t i = 0; i < elements; i++)
        z[i] = narrow_bf16(widen_bf16(x[i]) + widen_bf16(y[i]));
}

static void max_bf16(size_t elements, const void *a, const void *b, void *out)
{
    const uint16_t *x = a, *y = b;
    uint16_t *z = out;
    for (size_t i = 0; i < elements; i++)
        z[i] = widen_bf16(y[i]) > widen_bf16(x[i]) ? y[i] : x[i];
}

static void sum_f16(size_t elements, const void *a, const void *b, void *out)
{
    const uint16_t *x = a, *y = b;
    uint16_t *z = out;
    for (size_t i = 0; i < elements; i++)
        z[i] = hs_f16_encode(hs_f16_decode(x[i]) + hs_f16_decode(y[i]));
}

static void max_f16(size_t elements, const void *a, const void *b, void *out)
{
    const uint16_t *x = a, *y = b;
    uint16_t *z = out;
    for (size_t i = 0; i < elements; i++)
        z[i] = hs_f16_decode(y[i]) > hs_f16_decode(x[i]) ? y[i] : x[i];
}

static const struct {
    void (*combine[2])(size_t elements, const void *a, const void *b, void *out); /* by HsCommOp */
} kinds[HS_DTYPE_COUNT] = {
    [HS_F32] = { { sum_f32, max_f32 } },    [HS_F64] = { { sum_f64, max_f64 } }, [HS_I64] = { { sum_i64, max_i64 } },
    [HS_BF16] = { { sum_bf16, max_bf16 } }, [HS_F16] = { { sum_f16, max_f16 } },
};

/* The largest power of two below n, n > 1. */
static int left_part(int n)
{
    int p = 1;
    while (2 * p < n)
        p *= 2;
    return p;
}

/* The sum of parts [first, first + count), in scratch `depth` or where the only part is; not in `out` if that is NULL. */
static const void *walk(const Fold *fold, int first, int count, int depth, void *out)
{
    if (count == 1)
        return (const unsigned char *)fold->parts[first] + fold->offset;
    assert(depth < LEVELS);
    const int left = left_part(count);
    const void *a = walk(fold, first, left, depth, NULL);
    const void *b = walk(fold, first + left, count - left, depth + 1, NULL);
    void *sum = out ? out : fold->scratch[depth];
    fold->combine(fold->elements, a, b, sum);
    return sum;
}

void hs_comm_fold(const void *const *parts, int count, size_t elements, HsDtype dtype, HsCommOp op, void *out)
{
    assert(count >= 1 && count <= 1 << (LEVELS - 1) && kinds[dtype].combine[op]);
    _Alignas(64) unsigned char scratch[LEVELS][TILE_BYTES];
    const size_t bytes = hs_dtype_bytes(dtype), tile = TILE_BYTES / bytes;
    if (count == 1) {
        if (elements > 0 && out != parts[0])
            memcpy(out, parts[0], elements * bytes);
        return;
    }
    for (size_t first = 0; first < elements; first += tile) {
        const Fold fold = {
            .parts = parts,
            .offset = first * bytes,
            .elements = elements - first < tile ? elements - first : tile,
            .combine = kinds[dtype].combine[op],
            .scratch = scratch,
        };
        walk(&fold, 0, count, 0, (unsigned char *)out + first * bytes);
    }
}
