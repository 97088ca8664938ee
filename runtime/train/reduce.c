/* SPDX-License-Identifier: MIT
 *
 * The reductions of a step, see reduce.h.
 */
#include "runtime/train/reduce.h"

HsStatus hs_reduce_counted(HsComm *comm, HsStream *stream, int64_t counted[HS_STEP_ROWS])
{
    return hs_comm_all_reduce(comm, stream, counted, HS_STEP_ROWS, HS_I64, HS_COMM_SUM);
}

HsStatus hs_reduce_gradients(HsComm *comm, HsStream *stream, const HsSpan *spans, int count)
{
    for (int i = count - 1; comm->size > 1 && i >= 0; i--) {
        const HsTensor *gradient = &spans[i].gradient;
        HsStatus status = hs_comm_all_reduce(comm, stream, gradient->data, (size_t)hs_tensor_count(gradient),
                                             gradient->dtype, HS_COMM_SUM);
        if (status != HS_OK)
            return hs_error_prefix(status, "gradient of %s", spans[i].name);
    }
    return HS_OK;
}

HsStatus hs_reduce_losses(HsComm *comm, HsStream *stream, double *sums, int64_t *counts, size_t count)
{
    HS_TRY(hs_comm_all_reduce(comm, stream, sums, count, HS_F64, HS_COMM_SUM));
    return hs_comm_all_reduce(comm, stream, counts, count, HS_I64, HS_COMM_SUM);
}
