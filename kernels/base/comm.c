/* SPDX-License-Identifier: MIT
 *
 * The entry points of a communicator, and the one of a run that is alone: with one rank the result of every operation is
 * in place already.
 */
#include "kernels/base/comm.h"

#include <assert.h>
#include <stdio.h>

#include "kernels/base/clock.h"
#include "kernels/base/comm_fault.h"

HsComm *hs_comm_alone(void)
{
    static HsComm alone = { .rank = 0, .size = 1, .local_size = 1, .core_size = 1, .exact = true, .step = -1 };
    return &alone;
}

const char *hs_comm_name(const HsComm *comm)
{
    return comm->operations ? comm->operations->name : "alone";
}

static HsStatus check_type(const HsComm *comm, const char *operation, HsDtype dtype, bool bytes_too)
{
    const bool number = dtype == HS_F32 || dtype == HS_F64 || dtype == HS_I64 || dtype == HS_BF16 || dtype == HS_F16;
    if (number || (bytes_too && dtype == HS_U8))
        return HS_OK;
    return hs_fail(HS_EUNSUPPORTED, "%s of %s by %s: it takes f32, f64, i64, bf16 and f16%s", operation,
                   hs_dtype_name(dtype), comm->operations->name, bytes_too ? ", and u8" : "");
}

static HsStatus check_starts(const HsComm *comm, const char *operation, const size_t *starts)
{
    for (int r = 0; r < comm->size; r++)
        if (starts[r] > starts[r + 1])
            return hs_fail(HS_EINVAL, "%s: the range of rank %d starts at %zu and ends at %zu", operation, r, starts[r],
                           starts[r + 1]);
    return HS_OK;
}

/* When it began. */
static double begin(HsComm *comm, const char *operation, size_t sent_bytes)
{
    __atomic_store_n(&comm->operation, operation, __ATOMIC_RELAXED);
    __atomic_store_n(&comm->sequence, comm->sequence + 1, __ATOMIC_RELAXED);
    comm->sent_bytes += sent_bytes;
    return hs_clock_s();
}

static HsStatus end(HsComm *comm, double began_s, HsStatus status)
{
    comm->exchange_s += hs_clock_s() - began_s;
    return status;
}

HsStatus hs_comm_all_reduce(HsComm *comm, HsStream *stream, void *buffer, size_t count, HsDtype dtype, HsCommOp op)
{
    if (comm->size == 1)
        return HS_OK;
    HS_TRY(check_type(comm, "all_reduce", dtype, false));
    const size_t own =
        hs_comm_share_start(count, comm->size, comm->rank + 1) - hs_comm_share_start(count, comm->size, comm->rank);
    const double began_s =
        begin(comm, "all_reduce", (count - own + own * (size_t)(comm->size - 1)) * hs_dtype_bytes(dtype));
    return end(comm, began_s, comm->operations->all_reduce(comm, stream, buffer, count, dtype, op));
}

HsStatus hs_comm_reduce_scatter(HsComm *comm, HsStream *stream, void *buffer, const size_t *starts, HsDtype dtype)
{
    if (comm->size == 1)
        return HS_OK;
    HS_TRY(check_type(comm, "reduce_scatter", dtype, false));
    HS_TRY(check_starts(comm, "reduce_scatter", starts));
    const size_t own = starts[comm->rank + 1] - starts[comm->rank];
    const double began_s =
        begin(comm, "reduce_scatter", (starts[comm->size] - starts[0] - own) * hs_dtype_bytes(dtype));
    return end(comm, began_s, comm->operations->reduce_scatter(comm, stream, buffer, starts, dtype));
}

HsStatus hs_comm_all_gather(HsComm *comm, HsStream *stream, void *buffer, const size_t *starts, HsDtype dtype)
{
    if (comm->size == 1)
        return HS_OK;
    HS_TRY(check_type(comm, "all_gather", dtype, true));
    HS_TRY(check_starts(comm, "all_gather", starts));
    const size_t own = starts[comm->rank + 1] - starts[comm->rank];
    const double began_s = begin(comm, "all_gather", own * (size_t)(comm->size - 1) * hs_dtype_bytes(dtype));
    return end(comm, began_s, comm->operations->all_gather(comm, stream, buffer, starts, dtype));
}

HsStatus hs_comm_broadcast(HsComm *comm, HsStream *stream, void *buffer, size_t count, HsDtype dtype, int root)
{
    assert(root >= 0 && root < comm->size);
    if (comm->size == 1)
        return HS_OK;
    HS_TRY(check_type(comm, "broadcast", dtype, true));
    const double began_s = begin(comm, "broadcast", comm->rank == root ? count * hs_dtype_bytes(dtype) : 0);
    return end(comm, began_s, comm->operations->broadcast(comm, stream, buffer, count, dtype, root));
}

HsStatus hs_comm_barrier(HsComm *comm)
{
    if (comm->size == 1)
        return HS_OK;
    const double began_s = begin(comm, "barrier", 0);
    return end(comm, began_s, comm->operations->barrier(comm));
}

HsStatus hs_comm_check(HsComm *comm)
{
    return comm->size == 1 ? HS_OK : comm->operations->check(comm);
}

void hs_comm_abort(HsComm *comm, const char *reason)
{
    char message[1024];
    if (comm->size == 1)
        return;
    snprintf(message, sizeof message, "%s", hs_error_message());
    comm->operations->abort(comm, reason);
    (void)hs_fail(HS_EDEVICE, "%s", message); /* whatever failed while telling the others */
}

void hs_comm_note_step(HsComm *comm, int64_t step)
{
    if (comm->size > 1) {
        __atomic_store_n(&comm->step, step, __ATOMIC_RELAXED);
        if (comm->operations->note_step)
            comm->operations->note_step(comm);
    }
    hs_comm_fault_strike(comm, step);
}

void hs_comm_destroy(HsComm *comm)
{
    if (comm && comm->operations && comm->operations->destroy)
        comm->operations->destroy(comm);
}

void hs_comm_describe(const HsCommPlace *place, char *text, size_t bytes)
{
    char details[256] = "";
    size_t used = 0;
    if (place->host && place->host[0])
        used += (size_t)snprintf(details + used, sizeof details - used, ", host %.64s", place->host);
    if (place->process > 0)
        used += (size_t)snprintf(details + used, sizeof details - used, ", process %lld", (long long)place->process);
    if (place->step >= 0)
        used += (size_t)snprintf(details + used, sizeof details - used, ", step %lld", (long long)place->step);
    if (place->operation && place->operation[0])
        used += (size_t)snprintf(details + used, sizeof details - used, ", %.32s %llu", place->operation,
                                 (unsigned long long)place->sequence);
    snprintf(text, bytes, "rank %d of %d%s%s%s", place->rank, place->size, used > 0 ? " (" : "",
             used > 0 ? details + 2 : "", used > 0 ? ")" : "");
}

size_t hs_comm_share_start(size_t count, int size, int rank)
{
    const size_t base = count / (size_t)size, extra = count % (size_t)size, r = (size_t)rank;
    return r * base + (r < extra ? r : extra);
}
