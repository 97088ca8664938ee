/* SPDX-License-Identifier: MIT
 *
 * What the operations on whole parameters share: the cut in chunks, and reading and writing a parameter where it is
 * kept.  Chunks depend on the size alone and begin at multiples of 64 elements, so that a chunk's random bits are its
 * own and no result depends on the number of threads.
 */
#ifndef HS_KERNELS_CPU_ISA_PARAMETER_H
#define HS_KERNELS_CPU_ISA_PARAMETER_H

#include "kernels/cpu/cpu.h"
#include "kernels/cpu/simd_random.h"

enum { HS_CPU_CHUNK = 16384 };

/* for each group of lanes of a chunk: index i, lane count `left` */
#define HS_FOR_LANES(i, left, begin, end) \
    for (int64_t i = (begin), left = (end) - (begin); left > 0; i += HS_LANES, left -= HS_LANES)

/* A single chunk stays on the calling thread: starting a team costs more than the work. */
static inline int hs_cpu_chunk_threads(const HsContext *context, int64_t elements)
{
    return hs_cpu_threads(context, hs_cpu_block_count(elements, HS_CPU_CHUNK));
}

/* Sums over a tensor: at most HS_CPU_PARTS parts, so that their sums fit on the stack, each of at least a chunk. */
enum { HS_CPU_PARTS = 256 };

static inline int64_t hs_cpu_part_size(int64_t count)
{
    const int64_t size = hs_cpu_block_count(count, HS_CPU_PARTS);
    return size < HS_CPU_CHUNK ? HS_CPU_CHUNK : hs_cpu_block_count(size, HS_LANES) * HS_LANES;
}

static inline void hs_cpu_clear(const HsTensor *tensor, HsRowBlock range)
{
    const size_t bytes = tensor->dtype == HS_F32 ? 4 : 2;
    memset((unsigned char *)tensor->data + (size_t)range.begin * bytes, 0, (size_t)(range.end - range.begin) * bytes);
}

/* p to where it is kept, and its copy.  Without a master a bf16 weight is rounded stochastically (ref's rule: element e
 * takes the upper half of word[e % 4] of draw e / 4); `word` keeps the draws of 64 elements between calls. */
HS_SIMD void hs_cpu_store_parameter(const HsTensor *master, const HsTensor *weight, HsDtype copy, const HsRng *rng,
                                    uint32_t word[64], int64_t i, HsF32x16 p, int64_t left)
{
    if (hs_tensor_present(master)) {
        hs_simd_store_part(HS_F32, master->data, i, p, left);
        hs_simd_store_part(copy, weight->data, i, p, left);
    } else if (copy == HS_BF16) {
        if (i % 64 == 0) /* chunks begin at multiples of 64 */
            hs_simd_draw64(rng, (uint64_t)(rng->row_offset + i) / 4, word);
        hs_simd_store_part_stochastic(weight->data, i, p, word + i % 64, left);
    } else {
        hs_simd_store_part(copy, weight->data, i, p, left);
    }
}

HS_SIMD HsF32x16 hs_cpu_load_parameter(const HsTensor *master, const HsTensor *weight, HsDtype copy, int64_t i,
                                       int64_t left)
{
    const bool kept = hs_tensor_present(master);
    return hs_simd_load_part(kept ? HS_F32 : copy, kept ? master->data : weight->data, i, left);
}

#endif
