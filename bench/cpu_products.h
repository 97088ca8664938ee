/* SPDX-License-Identifier: MIT
 *
 * What the benchmarks of the cpu backend's products share: matrices of random numbers, packed weights, medians.
 */
#ifndef HS_BENCH_CPU_PRODUCTS_H
#define HS_BENCH_CPU_PRODUCTS_H

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/ops/backend.h"

static inline void *allocate(size_t bytes)
{
    void *memory = aligned_alloc(64, (bytes + 63) / 64 * 64);
    if (!memory) {
        fprintf(stderr, "bench: no memory for %zu bytes\n", bytes);
        exit(1);
    }
    memset(memory, 0, bytes);
    return memory;
}

/* Numbers in [-1/2, 1/2): a random block, repeated. */
static inline HsTensor random_matrix(HsDtype dtype, int64_t rows, int64_t columns)
{
    enum { BLOCK = 1 << 16 };
    HsTensor t = hs_tensor_2d(NULL, dtype, rows, columns);
    size_t bytes = hs_tensor_bytes(&t), block = BLOCK * hs_dtype_bytes(dtype);
    t.data = allocate(bytes);
    const HsRng rng = { .seed = 1, .site = (uint32_t)rows };
    for (int64_t i = 0; i < BLOCK && i < rows * columns; i++)
        hs_dtype_store(dtype, t.data, i, (double)hs_rng_uniform(hs_rng_draw(&rng, (uint64_t)i).word[0]) - 0.5);
    for (size_t at = block; at < bytes; at += block)
        memcpy((char *)t.data + at, t.data, bytes - at < block ? bytes - at : block);
    return t;
}

static inline int compare_doubles(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* The weight w packed ahead, as training does it once a step; `transposed`: for op(w) = w^T. */
static inline HsStatus pack(HsContext *context, HsTensor w, bool transposed, HsPacked *packed)
{
    *packed = (HsPacked){ NULL, w.dtype, w.shape[transposed ? 1 : 0], w.shape[transposed ? 0 : 1] };
    packed->data = allocate(context->backend->packed_bytes(context, w.dtype, packed->k, packed->n));
    const HsPackWeightArgs args = { w, transposed, packed };
    return context->backend->pack_weight(context, &args);
}

#endif
