/* SPDX-License-Identifier: MIT
 *
 * The entry points of a communicator, and the one of a run that is alone.  With one rank a reduction is the value that
 * is there already; scattering and gathering copy it where it is wanted elsewhere, which no caller alone does.
 */
#include <assert.h>

#include "kernels/base/comm.h"

HsComm *hs_comm_alone(void)
{
    static HsComm alone = { .rank = 0, .size = 1, .operations = NULL };
    return &alone;
}

static HsStatus check_type(const HsComm *comm, const char *operation, HsDtype dtype)
{
    const bool known = dtype == HS_F32 || dtype == HS_F64 || dtype == HS_I64 || dtype == HS_BF16 || dtype == HS_F16;
    return known ? HS_OK
                 : hs_fail(HS_EUNSUPPORTED, "%s of %s by %s: it takes f32, f64, i64, bf16 and f16", operation,
                           hs_dtype_name(dtype), comm->operations->name);
}

HsStatus hs_comm_all_reduce(HsComm *comm, HsStream *stream, void *buffer, size_t count, HsDtype dtype, HsCommOp op)
{
    if (comm->size == 1)
        return HS_OK;
    HS_TRY(check_type(comm, "all_reduce", dtype));
    return comm->operations->all_reduce(comm, stream, buffer, count, dtype, op);
}

HsStatus hs_comm_reduce_scatter(HsComm *comm, HsStream *stream, const void *send, void *receive, size_t count,
                                HsDtype dtype)
{
    if (comm->size == 1) {
        assert(send == receive && "alone, nothing is moved");
        return HS_OK;
    }
    HS_TRY(check_type(comm, "reduce_scatter", dtype));
    return comm->operations->reduce_scatter(comm, stream, send, receive, count, dtype);
}

HsStatus hs_comm_all_gather(HsComm *comm, HsStream *stream, const void *send, void *receive, size_t count,
                            HsDtype dtype)
{
    if (comm->size == 1) {
        assert(send == receive && "alone, nothing is moved");
        return HS_OK;
    }
    HS_TRY(check_type(comm, "all_gather", dtype));
    return comm->operations->all_gather(comm, stream, send, receive, count, dtype);
}

HsStatus hs_comm_broadcast(HsComm *comm, HsStream *stream, void *buffer, size_t count, HsDtype dtype, int root)
{
    assert(root >= 0 && root < comm->size);
    if (comm->size == 1)
        return HS_OK;
    HS_TRY(check_type(comm, "broadcast", dtype));
    return comm->operations->broadcast(comm, stream, buffer, count, dtype, root);
}

HsStatus hs_comm_barrier(HsComm *comm)
{
    return comm->size == 1 ? HS_OK : comm->operations->barrier(comm);
}

void hs_comm_abort(HsComm *comm)
{
    if (comm->size > 1)
        comm->operations->abort(comm);
}
