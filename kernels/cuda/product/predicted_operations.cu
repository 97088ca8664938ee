/* SPDX-License-Identifier: MIT
 *
 * Predicted seconds of a call, by the kernel that would serve it.
 */
#include "kernels/cuda/product/predicted_operations.cuh"

#include "kernels/cuda/product/matmul_model.cuh"

namespace HS_CUDA_NAMESPACE
{

namespace
{

/* Exact f32 attention multiplies and adds on the general cores; its loads and exponentials take turns with them. */
const double EXACT_SHARE = 0.5;

/* Of the pairs of queries and keys that lie before them, those that a window leaves. */
double share_seen(const HsHeads &heads, const HsScoreRule &rule)
{
    const double length = (double)heads.sequence_length, window = (double)rule.window;
    return rule.window > 0 && window < length ? window / length * (2.0 - window / length) : 1.0;
}

/* plain: not so where a sink joins forward */
double attention(const HsContext *context, const HsHeads &heads, const HsScoreRule &rule, HsDtype dtype, bool plain,
                 bool backward)
{
    const double seen = share_seen(heads, rule);
    const bool ruled = !plain || hs_tensor_present(&rule.starts) || seen < 1.0 || rule.cap > 0.0f;
    const DeviceLimits &limits = limits_of(context);
    const AttentionShape shape = { "", heads.batch, heads.sequence_length, heads.heads, heads.head_dim };
    if (dtype == HS_F32) {
        const double peak = 2.0 * rates_of(limits.compute_capability).mma[MATMUL_F32] * limits.multiprocessors;
        return seen * attention_flops(shape, backward) / (EXACT_SHARE * peak * limits.clock_hz);
    }
    const bool wgmma = limits.hopper_attention && !ruled && heads.head_dim <= 128;
    return seen * attention_seconds(shape, attention_way(backward, wgmma), limits);
}

} // namespace

/* Codes that no tensor core multiplies are written as bf16 and read again.  A gate's separate pass reads and writes
 * what the operation does; the product alone, what it passes on.  Row sums apart read a once more. */
double predicted::matmul(const HsContext *context, const HsMatmulArgs *args)
{
    const DeviceLimits &limits = limits_of(context);
    const bool apart = is_gate_apart(context, args);
    const HsMatmulArgs product = apart ? without_gate(args, NULL) : *args;
    const MatmulShape shape = matmul_shape(&product, limits);
    const MatmulChoice choice = choose_matmul(shape, context->device);
    const double bytes = hs_cost_matmul(args).bytes;
    double seconds = product_seconds(shape, limits, kernel_of(shape, choice), choice.slices, bytes);
    const HsCodes *const a = hs_codes_of(&args->a), *const b = hs_codes_of(&args->b);
    if (a != NULL && shape.family != MATMUL_FP8 && limits.bytes_per_second > 0.0) /* decoded to bf16, and read so */
        seconds += (double)(a->rows * a->depth + b->rows * b->depth) * 2.0 * sizeof(uint16_t) / limits.bytes_per_second;
    if (are_rows_summed_apart(context, args) && limits.bytes_per_second > 0.0)
        seconds += (double)hs_tensor_bytes(&args->a.values) / limits.bytes_per_second;
    if (!apart || limits.bytes_per_second <= 0.0)
        return seconds;
    const double passed = (double)hs_tensor_bytes(&args->c) + (double)hs_tensor_bytes(&args->pre);
    return seconds + passed / limits.bytes_per_second;
}

double predicted::attention_forward(const HsContext *context, const HsAttentionArgs *args)
{
    return attention(context, args->heads, args->rule, args->qkv.dtype, !hs_tensor_present(&args->sinks), false);
}

double predicted::attention_backward(const HsContext *context, const HsAttentionBackwardArgs *args)
{
    return attention(context, args->heads, args->rule, args->qkv.dtype, true, true);
}

} // namespace HS_CUDA_NAMESPACE
