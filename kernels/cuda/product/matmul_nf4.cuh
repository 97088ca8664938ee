/* SPDX-License-Identifier: MIT
 *
 * A right operand in four bits (kernels/ops/nf4.h), decoded on its way into shared memory.
 *
 * A thread holds the codes and absmaxes of its chunks of the next step in registers while this one is multiplied, so
 * that global memory's latency does not show; decoded and rounded they go where TileLoader's copies would lie, one stage
 * ahead as those do.  A level is looked up in shared memory: sixteen words lie in sixteen banks, and threads that ask
 * for the same word are answered at once, so no lookup waits for another.  Besides the product that is a word of shared
 * memory's bandwidth for each element of the tile, once a block.
 *
 * A block's absmax, decoded, is one f32 for 64 elements; a separate kernel makes them before the product.
 */
#ifndef HS_KERNELS_CUDA_PRODUCT_MATMUL_NF4_CUH
#define HS_KERNELS_CUDA_PRODUCT_MATMUL_NF4_CUH

#include "kernels/cuda/product/matmul_shared.cuh"

namespace HS_CUDA_NAMESPACE
{

enum { NF4_LEVEL_BYTES = HS_NF4_LEVELS * 4 };

/* By one warp; a barrier has to follow. */
HS_DEVICE void fill_nf4_levels(float *levels)
{
    const float values[HS_NF4_LEVELS] = { HS_NF4_LEVEL_LIST };
#pragma unroll
    for (int i = 0; i < HS_NF4_LEVELS; i++)
        if ((int)threadIdx.x == i)
            levels[i] = values[i];
}

HS_DEVICE uint32_t nf4_pair(Bf16, float first, float second)
{
    return (uint32_t)ptx::encode_bf16(first) | (uint32_t)ptx::encode_bf16(second) << 16;
}
HS_DEVICE uint32_t nf4_pair(F16, float first, float second)
{
    return (uint32_t)ptx::encode_f16(first) | (uint32_t)ptx::encode_f16(second) << 16;
}

/* Element i of a chunk's codes: the upper half of a byte comes first. */
HS_DEVICE float nf4_element(const float *levels, uint32_t codes, int i, float absmax)
{
    return levels[codes >> (i / 2 * 8 + (i % 2 == 0 ? 4 : 0)) & 15] * absmax;
}

/* 16 bytes of shared memory. */
template <typename Element>
HS_DEVICE Pack<uint32_t, 4> nf4_chunk(Element element, const float *levels, uint32_t codes, float absmax)
{
    Pack<uint32_t, 4> chunk;
#pragma unroll
    for (int i = 0; i < 4; i++)
        chunk.value[i] =
            nf4_pair(element, nf4_element(levels, codes, 2 * i, absmax), nf4_element(levels, codes, 2 * i + 1, absmax));
    return chunk;
}
HS_DEVICE Pack<uint32_t, 4> nf4_chunk(Tf32, const float *levels, uint32_t codes, float absmax)
{
    Pack<uint32_t, 4> chunk;
#pragma unroll
    for (int i = 0; i < 4; i++)
        chunk.value[i] = __float_as_uint(nf4_element(levels, codes, i, absmax));
    return chunk;
}

/* Chunk number `chunk` of `count` elements, 8 or 4, which are all of one block. */
template <int count> HS_DEVICE uint32_t load_nf4_codes(const MatmulQuantized &matrix, uint32_t chunk)
{
    return count == 8 ? reinterpret_cast<const uint32_t *>(matrix.codes)[chunk]
                      : reinterpret_cast<const uint16_t *>(matrix.codes)[chunk];
}
template <int count> HS_DEVICE float load_nf4_absmax(const MatmulQuantized &matrix, uint32_t chunk)
{
    return matrix.absmax[chunk / (HS_NF4_BLOCK / count)];
}

/* TileLoader's tiles, threads and chunks (matmul_shared.cuh), from codes.  Rows are multiples of whole chunks. */
template <typename Element, bool k_contiguous, int extent, int threads> struct Nf4Loader {
    typedef TileLoader<Element, k_contiguous, extent, threads, true> Plain;
    static constexpr int passes = Plain::passes, elements = chunk_elements<Element>;

    MatmulQuantized matrix;
    const float *levels;
    uint32_t first; /* chunk of the first pass in the next step */
    uint32_t pass_stride, step_stride;
    int offset, k, k_end, outer, outer_end;
    uint32_t codes[passes];
    float absmax[passes];

    __device__ __forceinline__ void init(const MatmulOperand &operand, const MatmulQuantized &quantized,
                                         const float *shared_levels, int tile, int k_begin, int k_stop)
    {
        const int row = (int)threadIdx.x / Plain::row_chunks, chunk = (int)threadIdx.x % Plain::row_chunks;
        matrix = quantized;
        levels = shared_levels;
        k = k_begin + (k_contiguous ? chunk * elements : row);
        k_end = k_stop;
        outer = tile * extent + (k_contiguous ? row : chunk * elements);
        outer_end = operand.extent;
        offset = row * Plain::row_bytes + permuted_chunk<Element, k_contiguous>(row, chunk) * CHUNK_BYTES;
        const uint32_t row_chunks = (uint32_t)(operand.stride / elements);
        first = (uint32_t)(k_contiguous ? outer : k) * row_chunks + (uint32_t)(k_contiguous ? k : outer) / elements;
        pass_stride = Plain::pass_rows * row_chunks;
        step_stride = k_contiguous ? step_depth<Element> / elements : step_depth<Element> * row_chunks;
        fetch();
    }

    /* Whole chunks are inside or outside. */
    __device__ __forceinline__ void fetch()
    {
#pragma unroll
        for (int pass = 0; pass < passes; pass++) {
            const int further = pass * Plain::pass_rows;
            const bool inside =
                k_contiguous ? outer + further < outer_end && k < k_end : k + further < k_end && outer < outer_end;
            const uint32_t at = first + (uint32_t)pass * pass_stride;
            codes[pass] = inside ? load_nf4_codes<elements>(matrix, at) : 0u;
            absmax[pass] = inside ? load_nf4_absmax<elements>(matrix, at) : 0.0f;
        }
    }

    __device__ __forceinline__ void load_step(unsigned char *tile)
    {
#pragma unroll
        for (int pass = 0; pass < passes; pass++)
            *reinterpret_cast<Pack<uint32_t, 4> *>(tile + offset + pass * Plain::pass_rows * Plain::row_bytes) =
                nf4_chunk(Element{}, levels, codes[pass], absmax[pass]);
        first += step_stride;
        k += step_depth<Element>;
        fetch();
    }
};

} // namespace HS_CUDA_NAMESPACE

#endif
