/* SPDX-License-Identifier: MIT
 *
 * The gradient of attention's sinks.  A row's product dout.out is summed in f32 with lanes along the head, the rows of a
 * part in double one after the other, and the parts in order: one result for any number of threads.
 */
#include "kernels/cpu/isa/attention_tile.h"

#include <math.h>

enum { PARTS = 64 };

/* Sum over rows of exp(sink - lse) dout.out. */
static double part_of_head(const HsSinkBackwardArgs *args, int64_t head, HsRowBlock rows)
{
    const int64_t heads = args->heads.heads, width = args->heads.head_dim;
    const float sink = ((const float *)args->sinks.data)[head];
    const float *lse = args->lse.data;
    double total = 0;
    for (int64_t row = rows.begin; row < rows.end; row++) {
        const int64_t at = row * heads + head;
        HsF32Parts sum = { 0 };
        for (int64_t d = 0; d < width; d += HS_LANES)
            hs_simd_accumulate(&sum, hs_simd_load_part(args->dout.dtype, args->dout.data, at * width + d, width - d) *
                                         hs_simd_load_part(args->out.dtype, args->out.data, at * width + d, width - d));
        total += (double)(expf(sink - lse[at]) * hs_simd_sum(sum.whole));
    }
    return total;
}

HsStatus HS_ISA_NAME(hs_cpu_sink_backward)(HsContext *context, const HsSinkBackwardArgs *args)
{
    const HsTensor *const tensors[] = { &args->dout, &args->out, &args->lse, &args->sinks, &args->dsinks };
    HS_TRY(hs_attention_refuse_f64("sink_backward", tensors, 5));
    const int64_t rows = hs_heads_rows(&args->heads), size = hs_cpu_block_count(rows, PARTS);
    const int64_t parts = hs_cpu_block_count(rows, size);
    for (int64_t head = 0; head < args->heads.heads; head++) {
        double sums[PARTS], sum = 0;
#pragma omp parallel for schedule(static) num_threads(hs_cpu_threads(context, parts))
        for (int64_t part = 0; part < parts; part++)
            sums[part] = part_of_head(args, head, hs_cpu_block(rows, size, part));
        for (int64_t part = 0; part < parts; part++)
            sum += sums[part];
        float *const dsink = (float *)args->dsinks.data + head;
        *dsink = (float)((double)*dsink - sum);
    }
    return HS_OK;
}
