/* SPDX-License-Identifier: MIT
 *
 * Softmax cross-entropy with its gradient, one row a task: the largest logit, the sum of exponentials, the result.
 *     loss = lse - l_t;  dl_v = gs ((1 + 2 z lse) p_v - [v = t]),  p_v = exp(l_v - lse)
 * The gradient may overwrite the logits in place: each group of lanes is read before it is written.
 */
#include <math.h>

#include "kernels/cpu/cpu.h"
#include "kernels/cpu/simd.h"

HS_SIMD float logit_at(HsDtype in, const void *logits, int64_t i)
{
    return in == HS_F32 ? ((const float *)logits)[i] : hs_simd_load_part(in, logits, i, 1)[0];
}

HS_SIMD float log_sum_exp(HsDtype in, const void *logits, int64_t count)
{
    const int64_t whole = count / HS_LANES * HS_LANES;
    HsF32x16 most = hs_simd_splat(-INFINITY);
    for (int64_t i = 0; i < whole; i += HS_LANES)
        most = hs_simd_max(hs_simd_load(in, logits, i), most);
    float maximum = hs_simd_largest(most);
    for (int64_t i = whole; i < count; i++)
        maximum = logit_at(in, logits, i) > maximum ? logit_at(in, logits, i) : maximum;
    HsF32Parts sum = { 0 };
    for (int64_t i = 0; i < whole; i += HS_LANES)
        hs_simd_accumulate(&sum, hs_simd_exp(hs_simd_load(in, logits, i) - maximum));
    if (whole < count)
        hs_simd_accumulate(
            &sum, hs_simd_keep_first(hs_simd_exp(hs_simd_load_part(in, logits, whole, count - whole) - maximum),
                                     count - whole));
    return maximum + logf(hs_simd_sum(sum.whole));
}

static void zero_row(const HsTensor *dlogits, int64_t row)
{
    const size_t bytes = (size_t)dlogits->shape[1] * (dlogits->dtype == HS_F32 ? 4 : 2);
    memset((unsigned char *)dlogits->data + (size_t)row * bytes, 0, bytes);
}

HS_SIMD void gradient_vector(HsDtype in, HsDtype out, const void *logits, void *dlogits, float lse, float pull,
                             float scale, int32_t target, int64_t i, int64_t left)
{
    const HsI32x16 lane = { 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15 };
    HsF32x16 p = hs_simd_exp(hs_simd_load_part(in, logits, i, left) - lse);
    HsI32x16 hit = hs_simd_equal_i32(lane, hs_simd_splat_i32((int32_t)((int64_t)target - i)));
    HsF32x16 gradient = pull * p - hs_simd_select(hit, hs_simd_splat(scale), hs_simd_splat(0.0f));
    hs_simd_store_part(out, dlogits, i, gradient, left);
}

HS_SIMD void gradient_row(const HsCrossEntropyArgs *args, HsDtype in, HsDtype out, const void *logits, int64_t row,
                          float lse, int32_t target)
{
    const int64_t vocabulary = args->logits.shape[1];
    const float scale = *args->gradient_scale, pull = scale * (1.0f + 2.0f * args->z_loss * lse);
    void *out_row = (unsigned char *)args->dlogits.data + (size_t)(row * vocabulary) * (out == HS_F32 ? 4 : 2);
    HS_FOR_VECTORS(i, left, 0, vocabulary,
                   gradient_vector(in, out, logits, out_row, lse, pull, scale, target, i, left));
}

/* Of a counted target. */
HS_SIMD void one_row(const HsCrossEntropyArgs *args, HsDtype in, HsDtype out, int64_t row, int32_t target)
{
    const int64_t vocabulary = args->logits.shape[1];
    const void *logits = (unsigned char *)args->logits.data + (size_t)(row * vocabulary) * (in == HS_F32 ? 4 : 2);
    const float lse = log_sum_exp(in, logits, vocabulary);
    ((float *)args->losses.data)[row] = lse - logit_at(in, logits, target);
    if (hs_tensor_present(&args->dlogits))
        gradient_row(args, in, out, logits, row, lse, target);
}

/* 16-bit logits have gradients in the same format. */
static void any_row(const HsCrossEntropyArgs *args, int64_t row)
{
    const int32_t target = ((const int32_t *)args->targets.data)[row];
    const HsDtype in = args->logits.dtype, out = hs_tensor_present(&args->dlogits) ? args->dlogits.dtype : HS_F32;
    if (target < 0) {
        ((float *)args->losses.data)[row] = 0.0f;
        if (hs_tensor_present(&args->dlogits))
            zero_row(&args->dlogits, row);
    } else if (in == HS_BF16) {
        one_row(args, HS_BF16, HS_BF16, row, target);
    } else if (in == HS_F16) {
        one_row(args, HS_F16, HS_F16, row, target);
    } else if (out == HS_F32) {
        one_row(args, HS_F32, HS_F32, row, target);
    } else if (out == HS_BF16) {
        one_row(args, HS_F32, HS_BF16, row, target);
    } else {
        one_row(args, HS_F32, HS_F16, row, target);
    }
}

HsStatus HS_ISA_NAME(hs_cpu_cross_entropy)(HsContext *context, const HsCrossEntropyArgs *args)
{
    const int64_t rows = args->logits.shape[0];
#pragma omp parallel for schedule(static) num_threads(hs_cpu_threads(context, rows))
    for (int64_t row = 0; row < rows; row++)
        any_row(args, row);
    return HS_OK;
}
