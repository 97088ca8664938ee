/* SPDX-License-Identifier: MIT
 *
 * y = residual + mask(x) / (1 - p) (Srivastava et al. 2014, scaled at training time): one rule for the kernel that does
 * this alone and for the norms that do it in their own pass.
 */
#ifndef HS_KERNELS_CUDA_LAYERS_DROPOUT_CUH
#define HS_KERNELS_CUDA_LAYERS_DROPOUT_CUH

#include "kernels/cuda/toolbox/rng.cuh"
#include "kernels/cuda/toolbox/view.cuh"

namespace HS_CUDA_NAMESPACE
{

struct DropoutRule {
    HsRng rng;
    uint64_t offset; /* of element 0 within the effective batch */
    float probability, scale;

    /* Bit i: whether element first + i is kept.  Four elements share a draw; a pack that does not begin with a draw's
     * first word needs one draw more.  aligned: every pack begins with one. */
    template <int width, bool aligned> HS_MEMBER uint32_t keep_mask(uint64_t first) const
    {
        constexpr int draws = (width + 3) / 4;
        const int phase = aligned ? 0 : (int)(first % 4);
        uint32_t mask = 0;
#pragma unroll
        for (int draw = 0; draw < draws + (width > 1 && !aligned); draw++) {
            if (draw < draws || phase != 0) {
                const uint4 words = rng_draw(rng, first / 4 + (uint64_t)draw);
#pragma unroll
                for (int word = 0; word < 4; word++)
                    mask |= (uint32_t)(rng_uniform(rng_word(words, word)) >= probability) << (4 * draw + word);
            }
        }
        return mask >> phase;
    }

    template <int width, bool aligned = false>
    HS_MEMBER void apply(int64_t index, const float (&x)[width], const float (&residual)[width],
                         float (&y)[width]) const
    {
        const uint32_t mask = probability > 0.0f ? keep_mask<width, aligned>(offset + (uint64_t)index) : ~0u;
        /* A dropped element is 0 even where x is infinite: select, do not multiply.  Two roundings in every kernel: no
         * compiler may fuse them in one and not in another. */
#pragma unroll
        for (int i = 0; i < width; i++)
            y[i] = residual[i] + (mask >> i & 1u ? __fmul_rn(x[i], scale) : 0.0f);
    }

    /* The same with the step's counter read, once for many packs. */
    HS_MEMBER DropoutRule at_step() const
    {
        DropoutRule rule = *this;
        if (rng.step_counter != nullptr)
            rule.rng.step += *rng.step_counter;
        rule.rng.step_counter = nullptr;
        return rule;
    }
};

static inline DropoutRule dropout_rule(const HsRng &rng, float probability, int64_t columns)
{
    return { rng, (uint64_t)(rng.row_offset * columns), probability, (float)(1.0 / (1.0 - (double)probability)) };
}

} // namespace HS_CUDA_NAMESPACE

#endif
