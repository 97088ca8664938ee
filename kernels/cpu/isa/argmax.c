/* SPDX-License-Identifier: MIT
 *
 * The index of each row's largest logit, one row a task: the maximum with vectors, then the first place that holds it,
 * while the row is in a cache.
 */
#include <math.h>

#include "kernels/cpu/cpu.h"
#include "kernels/cpu/simd.h"

static int32_t first_largest(const float *logits, int64_t count)
{
    const int64_t whole = count / HS_LANES * HS_LANES;
    HsF32Parts most = { .whole = hs_simd_splat(-INFINITY) };
    for (int64_t i = 0; i < whole; i += HS_LANES)
        hs_simd_raise(&most, hs_simd_load_f32(logits + i)); /* passes over NaN */
    float maximum = hs_simd_largest(most.whole);
    for (int64_t i = whole; i < count; i++)
        maximum = logits[i] > maximum ? logits[i] : maximum;
    for (int64_t i = 0; i < count && maximum > -INFINITY; i++)
        if (logits[i] == maximum)
            return (int32_t)i;
    return 0;
}

HsStatus HS_ISA_NAME(hs_cpu_argmax)(HsContext *context, const HsArgmaxArgs *args)
{
    const int64_t rows = args->logits.shape[0], vocabulary = args->logits.shape[1];
    int32_t *index = args->index.data;
#pragma omp parallel for schedule(static) num_threads(hs_cpu_threads(context, rows))
    for (int64_t row = 0; row < rows; row++)
        index[row] = first_largest((const float *)args->logits.data + row * vocabulary, args->count);
    return HS_OK;
}
