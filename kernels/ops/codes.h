/* SPDX-License-Identifier: MIT
 *
 * A matrix in codes of less than 16 bits with its scales: what quantize makes and what matmul multiplies.
 *
 *     element [row, k] = number(code) * block scale * inverse of the tensor's scale
 *
 * Codes lie k-major: those of a row are neighbours, along what products sum over.  With one scale a tensor a product may
 * read them across, too, as they are the codes of the transpose.  A block scale serves HS_*_BLOCK neighbours along k;
 * where blocks are squares, as many rows have the same one.  number * block scale is a bf16 number (3 and 4 bits of
 * significand with a power of two; E2M1's 2 with E4M3's 4): what a product multiplies, exactly.  Only the tensor's factor
 * is not: it multiplies the sum.
 *
 *     granularity   block    block scale                     tensor's scale
 *     tensor        -        -                               largest / amax, or what delayed scaling kept
 *     block         128      E8M0, amax / largest rounded up 1
 *     mx            32       E8M0, amax / largest rounded up 1
 *     nv            16       E4M3 of amax / (6 inverse)      inverse = amax of the tensor / 2688
 *
 * Sources: Micikevicius et al. 2022, "FP8 formats for deep learning"; DeepSeek-AI 2024, "DeepSeek-V3 Technical Report",
 * section 3.3.2 (blocks); OCP Microscaling Formats (MX) Specification 1.0; NVIDIA 2025, "Pretraining Large Language Models
 * with NVFP4", section 2.
 */
#ifndef HS_KERNELS_OPS_CODES_H
#define HS_KERNELS_OPS_CODES_H

#include <stddef.h>
#include <stdint.h>

#include "kernels/ops/product_policy.h"

#if defined(__CUDACC__) || defined(__HIP__)
#define HS_CODE_FUNCTION static __host__ __device__ __forceinline__
#else
#define HS_CODE_FUNCTION static inline __attribute__((always_inline))
#endif

enum {
    HS_SCALE_BLOCK_ELEMENTS = 128,
    HS_SCALE_MX_ELEMENTS = 32,
    HS_SCALE_NV_ELEMENTS = 16,
    HS_CODES_RUN = 16, /* what is rotated together */
    HS_CODES_ALIGNMENT = 64
};

/* What is kept of a tensor that is quantized, in memory of the device. */
typedef struct HsScaling {
    float scale;   /* what its elements were multiplied by in the latest cast */
    float inverse; /* 1 / scale; NaN where it follows from a tensor in which not all is finite */
    float kept;    /* delayed scaling: the scale of this step; 0: none yet */
    float largest; /* number of the format, for roll_scales; set once */
    /* Of all recorded casts of this step: the largest magnitude, of which a NaN is larger than infinity; elements; those
     * beyond the largest number of the format after scaling; those that were not 0 and became code 0. */
    float amax;
    uint32_t recorded; /* steps with their amax in the history */
    uint64_t elements, saturated, zeroed;
} HsScaling;

/* The product's factor for an operand: NaN where what is not finite was cast by it, or in this step was recorded: so the
 * overflow that saturation hides is found where gradients are looked at.  (A block's own scale is NaN then.) */
#define HS_SCALING_FACTOR(scaling) ((scaling)->inverse + ((scaling)->amax - (scaling)->amax))

typedef struct HsCodes {
    HsDtype format; /* f32: there are none */
    HsScaleGranularity granularity;
    int64_t rows, depth;
    unsigned char *data; /* [rows, depth], a byte each; E2M1: [rows, ceil(depth / 2)], the first in the low nibble */
    unsigned char *block_scales; /* [rows, blocks of depth]; NULL for one scale a tensor */
    HsScaling *scaling;          /* memory of the device */
} HsCodes;

/* Elements along k that a block scale serves; 0: there are none. */
HS_CODE_FUNCTION int hs_scale_block(HsScaleGranularity granularity)
{
    return granularity == HS_SCALE_BLOCK ? HS_SCALE_BLOCK_ELEMENTS
           : granularity == HS_SCALE_MX  ? HS_SCALE_MX_ELEMENTS
           : granularity == HS_SCALE_NV  ? HS_SCALE_NV_ELEMENTS
                                         : 0;
}

/* Whether a scale follows from the whole tensor. */
HS_CODE_FUNCTION bool hs_scale_is_of_tensor(HsScaleGranularity granularity)
{
    return granularity == HS_SCALE_TENSOR || granularity == HS_SCALE_NV;
}

HS_CODE_FUNCTION int64_t hs_codes_blocks(const HsCodes *codes)
{
    const int block = hs_scale_block(codes->granularity);
    return block == 0 ? 0 : (codes->depth + block - 1) / block;
}

/* Bytes of a row's codes. */
HS_CODE_FUNCTION int64_t hs_codes_row_bytes(const HsCodes *codes)
{
    return codes->format == HS_E2M1 ? (codes->depth + 1) / 2 : codes->depth;
}

/* Bytes of codes alone, and of both arrays in one piece of memory. */
HS_CODE_FUNCTION size_t hs_codes_data_bytes(const HsCodes *codes)
{
    const size_t bytes = (size_t)(codes->rows * hs_codes_row_bytes(codes));
    return (bytes + HS_CODES_ALIGNMENT - 1) / HS_CODES_ALIGNMENT * HS_CODES_ALIGNMENT;
}

HS_CODE_FUNCTION size_t hs_codes_bytes(const HsCodes *codes)
{
    return hs_codes_data_bytes(codes) + (size_t)(codes->rows * hs_codes_blocks(codes));
}

/* Both arrays in `memory`, 64-byte aligned; NULL: nowhere yet. */
HS_CODE_FUNCTION void hs_codes_place(HsCodes *codes, void *memory)
{
    codes->data = (unsigned char *)memory;
    codes->block_scales =
        memory && hs_scale_block(codes->granularity) > 0 ? codes->data + hs_codes_data_bytes(codes) : NULL;
}

HS_CODE_FUNCTION bool hs_codes_present(const HsCodes *codes)
{
    return codes->format != HS_F32;
}

#endif
