/* SPDX-License-Identifier: MIT
 *
 * Softmax cross-entropy with its gradient, one row a task: the largest logit, the sum of exponentials, the result.
 *     loss = lse - l_t;  dl_v = gs ((1 + 2 z lse) p_v - [v = t]),  p_v = exp(l_v - lse)
 * The gradient may overwrite the logits in place: each group of lanes is read before it is written.
 * Rows with a cap have their own copy of the loops: l = c tanh(x / c), and dl_v times 1 - (l / c)^2.
 */
#include <math.h>

#include "kernels/cpu/cpu.h"
#include "kernels/cpu/logit_cap.h"

/* Logits of a row as they are stored, and the cap; constants where a row is begun, but for cap. */
typedef struct Reading {
    HsDtype in;
    bool capped;
    float cap;
} Reading;

HS_SIMD float logit_at(HsDtype in, const void *logits, int64_t i)
{
    return in == HS_F32 ? ((const float *)logits)[i] : hs_simd_load_part(in, logits, i, 1)[0];
}

/* exp(l - maximum) of `left` logits from i on */
HS_SIMD HsF32x16 exponentials(Reading reading, const void *logits, int64_t i, int64_t left, float maximum)
{
    const HsF32x16 x = hs_simd_load_part(reading.in, logits, i, left);
    return hs_simd_exp(hs_simd_cap(reading.capped, x, reading.cap).logit - maximum);
}

HS_SIMD float log_sum_exp(Reading reading, const void *logits, int64_t count)
{
    const HsDtype in = reading.in;
    const int64_t whole = count / HS_LANES * HS_LANES;
    HsF32Parts most = { .whole = hs_simd_splat(-INFINITY) };
    for (int64_t i = 0; i < whole; i += HS_LANES)
        hs_simd_raise(&most, hs_simd_load(in, logits, i));
    float maximum = hs_simd_largest(most.whole);
    for (int64_t i = whole; i < count; i++)
        maximum = logit_at(in, logits, i) > maximum ? logit_at(in, logits, i) : maximum;
    maximum = hs_simd_cap_one(reading.capped, maximum, reading.cap);
    HsF32Parts sum = { 0 };
    for (int64_t i = 0; i < whole; i += HS_LANES)
        hs_simd_accumulate(&sum, exponentials(reading, logits, i, HS_LANES, maximum));
    if (whole < count)
        hs_simd_accumulate(
            &sum, hs_simd_keep_first(exponentials(reading, logits, whole, count - whole, maximum), count - whole));
    return maximum + logf(hs_simd_sum(sum.whole));
}

static void zero_row(const HsTensor *dlogits, int64_t row)
{
    const size_t bytes = (size_t)dlogits->shape[1] * (dlogits->dtype == HS_F32 ? 4 : 2);
    memset((unsigned char *)dlogits->data + (size_t)row * bytes, 0, bytes);
}

HS_SIMD void gradient_vector(Reading reading, HsDtype out, const void *logits, void *dlogits, float lse, float pull,
                             float scale, int32_t target, int64_t i, int64_t left)
{
    const HsI32x16 lane = { 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15 };
    const HsF32x16 x = hs_simd_load_part(reading.in, logits, i, left);
    const HsCappedLogits capped = hs_simd_cap(reading.capped, x, reading.cap);
    HsF32x16 p = hs_simd_exp(capped.logit - lse);
    HsI32x16 hit = hs_simd_equal_i32(lane, hs_simd_splat_i32((int32_t)((int64_t)target - i)));
    HsF32x16 gradient = pull * p - hs_simd_select(hit, hs_simd_splat(scale), hs_simd_splat(0.0f));
    hs_simd_store_part(out, dlogits, i, reading.capped ? gradient * capped.slope : gradient, left);
}

HS_SIMD void gradient_row(const HsCrossEntropyArgs *args, Reading reading, HsDtype out, const void *logits, int64_t row,
                          float lse, int32_t target)
{
    const int64_t vocabulary = args->logits.shape[1];
    const float scale = *args->gradient_scale, pull = scale * (1.0f + 2.0f * args->z_loss * lse);
    void *out_row = (unsigned char *)args->dlogits.data + (size_t)(row * vocabulary) * (out == HS_F32 ? 4 : 2);
    HS_FOR_VECTORS(i, left, 0, vocabulary,
                   gradient_vector(reading, out, logits, out_row, lse, pull, scale, target, i, left));
}

/* Of a counted target. */
HS_SIMD void one_row(const HsCrossEntropyArgs *args, bool capped, HsDtype in, HsDtype out, int64_t row, int32_t target)
{
    const Reading reading = { in, capped, args->cap };
    const int64_t vocabulary = args->logits.shape[1];
    const void *logits = (unsigned char *)args->logits.data + (size_t)(row * vocabulary) * (in == HS_F32 ? 4 : 2);
    const float lse = log_sum_exp(reading, logits, vocabulary);
    ((float *)args->losses.data)[row] = lse - hs_simd_cap_one(capped, logit_at(in, logits, target), args->cap);
    if (hs_tensor_present(&args->dlogits))
        gradient_row(args, reading, out, logits, row, lse, target);
}

/* 16-bit logits have gradients in the same format. */
HS_SIMD void counted_row(const HsCrossEntropyArgs *args, bool capped, int64_t row, int32_t target)
{
    const HsDtype in = args->logits.dtype, out = hs_tensor_present(&args->dlogits) ? args->dlogits.dtype : HS_F32;
    if (in == HS_BF16)
        one_row(args, capped, HS_BF16, HS_BF16, row, target);
    else if (in == HS_F16)
        one_row(args, capped, HS_F16, HS_F16, row, target);
    else if (out == HS_F32)
        one_row(args, capped, HS_F32, HS_F32, row, target);
    else if (out == HS_BF16)
        one_row(args, capped, HS_F32, HS_BF16, row, target);
    else
        one_row(args, capped, HS_F32, HS_F16, row, target);
}

static void any_row(const HsCrossEntropyArgs *args, int64_t row)
{
    const int32_t target = ((const int32_t *)args->targets.data)[row];
    if (target < 0) {
        ((float *)args->losses.data)[row] = 0.0f;
        if (hs_tensor_present(&args->dlogits))
            zero_row(&args->dlogits, row);
    } else if (args->cap > 0.0f) {
        counted_row(args, true, row, target);
    } else {
        counted_row(args, false, row, target);
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
