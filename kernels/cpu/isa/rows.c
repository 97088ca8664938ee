/* SPDX-License-Identifier: MIT
 *
 * Rows gathered from a matrix, and scattered into one: copies of whole rows, as many to a thread as make it worth one.
 */
#include <string.h>

#include "kernels/cpu/cpu.h"

enum { BYTES_PER_THREAD = 1 << 16 };

static int threads_for(const HsContext *context, int64_t rows, size_t bytes)
{
    return hs_cpu_threads(context, rows * (int64_t)bytes / BYTES_PER_THREAD);
}

HsStatus HS_ISA_NAME(hs_cpu_gather_rows)(HsContext *context, const HsMoveRowsArgs *args)
{
    const size_t bytes = (size_t)args->x.shape[1] * hs_dtype_bytes(args->x.dtype);
    const int64_t count = args->y.shape[0];
    const int32_t *rows = args->rows.data;
#pragma omp parallel for schedule(static) num_threads(threads_for(context, count, bytes))
    for (int64_t n = 0; n < count; n++) {
        unsigned char *const to = (unsigned char *)args->y.data + (size_t)n * bytes;
        if (rows[n] < 0)
            memset(to, args->x.dtype == HS_I32 ? 0xff : 0, bytes);
        else
            memcpy(to, (const unsigned char *)args->x.data + (size_t)rows[n] * bytes, bytes);
    }
    return HS_OK;
}

HsStatus HS_ISA_NAME(hs_cpu_scatter_rows)(HsContext *context, const HsMoveRowsArgs *args)
{
    const size_t bytes = (size_t)args->x.shape[1] * hs_dtype_bytes(args->x.dtype);
    const int64_t count = args->x.shape[0];
    const int32_t *rows = args->rows.data;
#pragma omp parallel for schedule(static) num_threads(threads_for(context, count, bytes))
    for (int64_t n = 0; n < count; n++)
        if (rows[n] >= 0)
            memcpy((unsigned char *)args->y.data + (size_t)rows[n] * bytes,
                   (const unsigned char *)args->x.data + (size_t)n * bytes, bytes);
    return HS_OK;
}
