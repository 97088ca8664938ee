/* SPDX-License-Identifier: MIT
 *
 * Pairs of codes below 16 bits, and what is counted of their casts (HsScaling): for the kernel that reads a tensor to cast it
 * (quantize.cu) and for products and norms that cast what they would store (matmul_epilogue.cuh, norm.cu, norm_backward.cu).
 */
#ifndef HS_KERNELS_CUDA_TOOLBOX_CAST_CUH
#define HS_KERNELS_CUDA_TOOLBOX_CAST_CUH

#include "kernels/cuda/toolbox/numeric.cuh"
#include "kernels/cuda/toolbox/ptx_convert.cuh"
#include "kernels/cuda/toolbox/reduce.cuh"

namespace HS_CUDA_NAMESPACE
{

struct CastCounts {
    uint32_t saturated, zeroed;
};

/* Codes of two neighbours, a byte each. */
template <HsDtype format> HS_DEVICE uint32_t nearest_pair(float low, float high)
{
    if constexpr (format == HS_E4M3)
        return ptx::pack_e4m3(low, high);
    else if constexpr (format == HS_E5M2)
        return ptx::pack_e5m2(low, high);
    else
        return (uint32_t)hs_code_encode(format, low) | (uint32_t)hs_code_encode(format, high) << 8;
}

/* pair: the codes of low and high, which are x[0] and x[1] after scaling. */
template <HsDtype format>
HS_DEVICE void count_pair(const float *x, float low, float high, uint32_t pair, CastCounts &counts)
{
    constexpr uint32_t magnitude = format == HS_E2M1 ? 7 : 0x7F;
    counts.saturated += fabsf(low) > hs_code_largest(format);
    counts.saturated += fabsf(high) > hs_code_largest(format);
    counts.zeroed += x[0] != 0.0f && (pair & magnitude) == 0;
    counts.zeroed += x[1] != 0.0f && (pair & magnitude << 8) == 0;
}

/* By one thread, of many. */
HS_DEVICE void add_counts(HsScaling *scaling, const CastCounts &counts)
{
    if (counts.saturated > 0)
        atomicAdd(reinterpret_cast<unsigned long long *>(&scaling->saturated), (unsigned long long)counts.saturated);
    if (counts.zeroed > 0)
        atomicAdd(reinterpret_cast<unsigned long long *>(&scaling->zeroed), (unsigned long long)counts.zeroed);
}

HS_DEVICE void add_elements(HsScaling *scaling, int64_t elements)
{
    atomicAdd(reinterpret_cast<unsigned long long *>(&scaling->elements), (unsigned long long)elements);
}

/* --- of a kernel's results --- */

/* What a kernel leaves of its result: values in its format, or E4M3 or E5M2 codes of these in place of them, by a scale that is
 * known before, [rows, columns] as the result is (ops.h: hs_cast_apart). */
struct ValuesAsTheyAre {
    static constexpr bool casts = false;
};
template <HsDtype format_> struct CastTo {
    static constexpr bool casts = true;
    static constexpr HsDtype format = format_;
    unsigned char *data;
    float scale;
    CastCounts *counts;

    /* Neighbours of bf16, four or a multiple, of which `at` is the first: a multiple of `width`. */
    template <int width> __device__ __forceinline__ void store(int64_t at, const float (&values)[width]) const
    {
        Pack<uint32_t, width / 4> words = {};
#pragma unroll
        for (int i = 0; i < width; i += 2) {
            const float x[2] = { rounded<Bf16>(values[i]), rounded<Bf16>(values[i + 1]) };
            const float low = hs_code_scaled(HS_SCALE_TENSOR, x[0], scale),
                        high = hs_code_scaled(HS_SCALE_TENSOR, x[1], scale);
            const uint32_t pair = nearest_pair<format>(low, high);
            count_pair<format>(x, low, high, pair, *counts);
            words.value[i / 4] |= pair << (8 * (i % 4));
        }
        store_pack(reinterpret_cast<uint32_t *>(data + at), words);
    }
};

/* A kernel's parameter.  elements 0: nothing is cast. */
struct CastOut {
    unsigned char *data;
    HsScaling *scaling; /* by its kept scale, recorded; the amax is left where a tensor's is */
    int64_t elements;
};

static inline CastOut cast_out(const HsCodes &codes)
{
    return hs_codes_present(&codes) ? CastOut{ codes.data, codes.scaling, codes.rows * codes.depth } : CastOut{};
}

/* Of a warp, all lanes of which call; the first thread of the first block leaves the scale. */
HS_DEVICE void leave_cast(const CastOut &out, const CastCounts &counts)
{
    const CastCounts all = { warp_reduce<Sum>(counts.saturated), warp_reduce<Sum>(counts.zeroed) };
    if (threadIdx.x % WARP_SIZE == 0)
        add_counts(out.scaling, all);
    if (blockIdx.x != 0 || blockIdx.y != 0 || threadIdx.x != 0 || threadIdx.y != 0)
        return;
    out.scaling->scale = out.scaling->kept;
    out.scaling->inverse = 1.0f / out.scaling->kept;
    add_elements(out.scaling, out.elements);
}

} // namespace HS_CUDA_NAMESPACE

#endif
