/* SPDX-License-Identifier: MIT
 *
 * Products of operands in FP8 codes (kernels/ops/codes.h): a E4M3 or E5M2, b E4M3; both k-major, or with one scale a tensor
 * and by mma.sync b, or a and b, read across.
 *
 *     c = epilogue(factor sum over k of a b + bias) + residual [+ c],   factor = alpha (factor of a * factor of b)
 *
 * Tensor cores of 8.9 and 9.0 keep 14 significant bits of such sums, and cut the rest (kernels/emu/truncated.h).  So most
 * products are promoted: every 128 of k the sum so far is added to another, in f32 by the general cores, and begun anew.
 *
 *     FP8_STRAIGHT   all of k by the tensor cores: what nothing is lost by, forward products of short k
 *     FP8_PROMOTED   sum += part, every 128 of k
 *     FP8_BLOCKS     sum += (part * scale of a's block) * scale of b's, likewise: blocks of 128 along k
 *
 * To everything but the instructions a pair of codes is an element of 16 bits: rows are half as long, a step of 64 such
 * is 128 of k, and copies, tiles, deals of work and the model of time are those of 16-bit products.  All counts of k in
 * MatmulParameters and MatmulShape are of pairs then.
 *
 * Sources: DeepSeek-AI 2024, "DeepSeek-V3 Technical Report", section 3.3.2 (promotion, blocks).
 */
#ifndef HS_KERNELS_CUDA_PRODUCT_MATMUL_FP8_CUH
#define HS_KERNELS_CUDA_PRODUCT_MATMUL_FP8_CUH

#include "kernels/cuda/toolbox/cast.cuh"
#include "kernels/cuda/product/matmul.cuh"

extern "C" {
#include "kernels/ops/code_rule.h"
}

namespace HS_CUDA_NAMESPACE
{

enum Fp8Sum { FP8_STRAIGHT, FP8_PROMOTED, FP8_BLOCKS };

/* pairs of codes between two additions of a promoted sum, and of a block */
enum { FP8_PART_PAIRS = HS_SCALE_BLOCK_ELEMENTS / 2 };

struct Fp8Scales {
    const HsScaling *a, *b;
    const unsigned char *a_blocks, *b_blocks; /* E8M0 [rows, blocks] and [columns, blocks]; of FP8_BLOCKS alone */
    int blocks;
    float alpha;
};

/* What a sum is multiplied by. */
HS_DEVICE float fp8_factor(const Fp8Scales &scales)
{
    return scales.alpha * (HS_SCALING_FACTOR(scales.a) * HS_SCALING_FACTOR(scales.b));
}

/* Of block `block` of a row, 0 where there is no such row. */
HS_DEVICE float fp8_block_scale(const unsigned char *scales, int blocks, int row, int rows, int block)
{
    return row < rows ? hs_code_power(scales[(int64_t)row * blocks + block]) : 0.0f;
}

/* What a product in codes is besides its MatmulParameters, in which rows are of pairs and multiples of 16 bytes. */
struct Fp8Product {
    Fp8Sum sum;
    bool a_e5m2; /* never straight */
    Fp8Scales scales;
    CastOut cast; /* of c, which is not written then */
};

/* The operands of which the codes lie across k: of a gradient dx = dy w, and of dw = dy^T x. */
enum Fp8Order { FP8_ALONG, FP8_B_ACROSS, FP8_BOTH_ACROSS };

/* Whether tensor cores of the GPU multiply the codes of HS_PRODUCT_FP8 and so on as they are: not where there are only
 * 16-bit products (matmul_fp8.cu), or where kernels.hopper leaves the GPU those.  Other codes are decoded to bf16 on every
 * GPU: with scales for 32 or 16 elements (mx, nv), which GPUs up to 9.0 cannot multiply; rows that are no multiples of
 * 16 bytes; two operands in E5M2.  And these, too, where that is the faster way (matmul_choice.cu): all numbers are exact,
 * so that results differ by their sums alone. */
bool has_fp8_products(const DeviceLimits &limits);
Fp8Product fp8_product_of(const HsMatmulArgs *args);
/* Whether mma.sync's kernels cast the c of such a product in place of storing it: as training has them with one scale a
 * tensor, forward to E4M3, and back through an activation to E5M2. */
bool casts_as_it_stores(const HsMatmulArgs *args);
/* across: codes.rows are k */
MatmulOperand fp8_operand_of(const HsCodes &codes, bool across);
/* HsBackend's: wgmma reads codes along k alone. */
bool turns_codes(const HsContext *context);

/* On 8.9 and 12.0, by mma.sync; on sm_90, by wgmma. */
HsStatus launch_matmul_fp8(HsContext *context, MatmulParameters &parameters, const Fp8Product &product,
                           const MatmulChoice &choice);
HsStatus launch_matmul_fp8_hopper(HsContext *context, const MatmulParameters &parameters, const Fp8Product &product,
                                  const MatmulChoice &choice);

} // namespace HS_CUDA_NAMESPACE

#endif
