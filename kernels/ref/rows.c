/* SPDX-License-Identifier: MIT
 *
 * Rows gathered from a matrix, and scattered into one.
 */
#include <string.h>

#include "kernels/ref/ref.h"

/* y[n] = x[rows[n]]; where there is none 0, or -1 of integers, which is no row, token or index. */
HsStatus hs_ref_gather_rows(HsContext *context, const HsMoveRowsArgs *args)
{
    (void)context;
    const size_t bytes = (size_t)args->x.shape[1] * hs_dtype_bytes(args->x.dtype);
    const int32_t *rows = args->rows.data;
    for (int64_t n = 0; n < args->y.shape[0]; n++) {
        unsigned char *const to = (unsigned char *)args->y.data + (size_t)n * bytes;
        if (rows[n] < 0)
            memset(to, args->x.dtype == HS_I32 ? 0xff : 0, bytes);
        else
            memcpy(to, (const unsigned char *)args->x.data + (size_t)rows[n] * bytes, bytes);
    }
    return HS_OK;
}

/* y[rows[n]] = x[n] */
HsStatus hs_ref_scatter_rows(HsContext *context, const HsMoveRowsArgs *args)
{
    (void)context;
    const size_t bytes = (size_t)args->x.shape[1] * hs_dtype_bytes(args->x.dtype);
    const int32_t *rows = args->rows.data;
    for (int64_t n = 0; n < args->x.shape[0]; n++)
        if (rows[n] >= 0)
            memcpy((unsigned char *)args->y.data + (size_t)rows[n] * bytes,
                   (const unsigned char *)args->x.data + (size_t)n * bytes, bytes);
    return HS_OK;
}
