/* SPDX-License-Identifier: MIT
 *
 * The operations of a communicator over NCCL, see kernels/base/comm_nccl.h.
 *
 * An exact sum of a range that rank r owns, in rounds of as many elements as the scratch holds of every rank:
 *
 *     all:     send the round's part of each range to its owner, receive the others' parts of the own one -> scratch
 *     rank r:  own part = the tree's sum of scratch and own part (fold.cu)
 *
 * all_reduce is that over equal shares, and then all_gather.
 */
#include "kernels/cuda/comm/nccl.cuh"

#include <new>
#include <stdio.h>
#include <string.h>

#include "kernels/cuda/comm/fold.cuh"
#include "kernels/cuda/comm/group.cuh"
#include "kernels/cuda/device/device.cuh"

namespace HS_CUDA_NAMESPACE
{

namespace
{

enum { SCRATCH_BYTES = 32 << 20, SCRATCH_LEAST = 4096, BOUNCE_BYTES = 4096 };

/* One operation as it runs: on a buffer of the device. */
struct Operation {
    Group *group;
    cudaStream_t stream;
    unsigned char *buffer;
    const size_t *starts; /* of ranges; else null */
    size_t count;
    HsDtype dtype;
    HsCommOp op;
    int root;
};

typedef HsStatus Body(const Operation &operation);

int type_of(HsDtype dtype)
{
    switch (dtype) {
    case HS_F32:
        return NCCL_F32;
    case HS_F64:
        return NCCL_F64;
    case HS_I64:
        return NCCL_I64;
    case HS_BF16:
        return NCCL_BF16;
    case HS_F16:
        return NCCL_F16;
    default:
        return NCCL_U8;
    }
}

/* Element i of the operation's buffer. */
unsigned char *at(const Operation &o, size_t i)
{
    return o.buffer + i * hs_dtype_bytes(o.dtype);
}

bool is_fine(int result)
{
    return result == NCCL_SUCCESS || result == NCCL_IN_PROGRESS;
}

/* Runs calls(library, handle) -> result inside the library, as a separate group, and waits until they are taken up. */
template <typename Calls> HsStatus call(Group *group, Calls calls)
{
    int result;
    {
        std::lock_guard<std::mutex> hold(group->inside);
        if (group->handle == nullptr)
            return group_failure(group);
        const Nccl &nccl = *group->nccl;
        result = nccl.group_start();
        const int called = is_fine(result) ? calls(nccl, group->handle) : result;
        const int ended = nccl.group_end();
        result = is_fine(called) ? ended : called;
    }
    return group_settle(group, result);
}

bool are_equal(const size_t *starts, int size)
{
    for (int r = 1; r < size; r++)
        if (starts[r + 1] - starts[r] != starts[1] - starts[0])
            return false;
    return true;
}

/* Of range r: its part in a round of `most` elements. */
struct Part {
    size_t first, count;
};
Part part_of(const Operation &o, int r, size_t most, size_t round)
{
    const size_t length = o.starts[r + 1] - o.starts[r], before = round * most;
    if (before >= length)
        return Part{ o.starts[r], 0 };
    return Part{ o.starts[r] + before, length - before < most ? length - before : most };
}

HsStatus exchange(const Operation &o, size_t most, size_t round)
{
    const HsComm &comm = o.group->comm;
    const int type = type_of(o.dtype);
    const Part own = part_of(o, comm.rank, most, round);
    unsigned char *const scratch = static_cast<unsigned char *>(o.group->scratch);
    const size_t stride = most * hs_dtype_bytes(o.dtype);
    return call(o.group, [&](const Nccl &nccl, NcclHandle handle) {
        int result = NCCL_SUCCESS;
        for (int r = 0; r < comm.size && is_fine(result); r++) {
            const Part theirs = part_of(o, r, most, round);
            if (r == comm.rank)
                continue;
            if (theirs.count > 0)
                result = nccl.send(at(o, theirs.first), theirs.count, type, r, handle, o.stream);
            if (own.count > 0 && is_fine(result))
                result = nccl.receive(scratch + (size_t)(r < comm.rank ? r : r - 1) * stride, own.count, type, r,
                                      handle, o.stream);
        }
        return result;
    });
}

/* Sums, or maxima, of each range at its owner, along the tree. */
HsStatus scatter_exactly(const Operation &o)
{
    const HsComm &comm = o.group->comm;
    const size_t most = o.group->options.scratch_bytes / (size_t)(comm.size - 1) / hs_dtype_bytes(o.dtype);
    size_t longest = 0;
    for (int r = 0; r < comm.size; r++)
        longest = o.starts[r + 1] - o.starts[r] > longest ? o.starts[r + 1] - o.starts[r] : longest;
    HsContext context = {};
    context.device = o.group->device;
    context.stream = reinterpret_cast<HsStream *>(o.stream);
    for (size_t round = 0; round * most < longest; round++) {
        const Part own = part_of(o, comm.rank, most, round);
        HS_TRY(exchange(o, most, round));
        HS_TRY(launch_fold(&context, at(o, own.first), o.group->scratch, most, own.count, comm.rank, comm.size, o.dtype,
                           o.op));
    }
    return HS_OK;
}

/* By the library: equal ranges at once, others by one reduction each. */
HsStatus scatter_by_library(const Operation &o)
{
    const HsComm &comm = o.group->comm;
    const int type = type_of(o.dtype);
    return call(o.group, [&](const Nccl &nccl, NcclHandle handle) {
        if (are_equal(o.starts, comm.size))
            return nccl.reduce_scatter(at(o, o.starts[0]), at(o, o.starts[comm.rank]), o.starts[1] - o.starts[0], type,
                                       NCCL_SUM, handle, o.stream);
        int result = NCCL_SUCCESS;
        for (int r = 0; r < comm.size && is_fine(result); r++)
            if (o.starts[r + 1] > o.starts[r])
                result = nccl.reduce(at(o, o.starts[r]), at(o, o.starts[r]), o.starts[r + 1] - o.starts[r], type,
                                     NCCL_SUM, r, handle, o.stream);
        return result;
    });
}

bool is_exact(const Operation &o)
{
    return o.dtype != HS_I64 && (o.group->comm.exact || o.op == HS_COMM_MAX);
}

HsStatus run_reduce_scatter(const Operation &o)
{
    return is_exact(o) ? scatter_exactly(o) : scatter_by_library(o);
}

HsStatus run_all_gather(const Operation &o)
{
    const HsComm &comm = o.group->comm;
    const int type = type_of(o.dtype);
    return call(o.group, [&](const Nccl &nccl, NcclHandle handle) {
        if (are_equal(o.starts, comm.size))
            return nccl.all_gather(at(o, o.starts[comm.rank]), at(o, o.starts[0]), o.starts[1] - o.starts[0], type,
                                   handle, o.stream);
        int result = NCCL_SUCCESS;
        for (int r = 0; r < comm.size && is_fine(result); r++)
            if (o.starts[r + 1] > o.starts[r])
                result = nccl.broadcast(at(o, o.starts[r]), at(o, o.starts[r]), o.starts[r + 1] - o.starts[r], type, r,
                                        handle, o.stream);
        return result;
    });
}

HsStatus run_all_reduce(const Operation &o)
{
    size_t starts[FOLD_RANKS_MOST + 1];
    if (!is_exact(o))
        return call(o.group, [&](const Nccl &nccl, NcclHandle handle) {
            return nccl.all_reduce(o.buffer, o.buffer, o.count, type_of(o.dtype),
                                   o.op == HS_COMM_MAX ? NCCL_MAX : NCCL_SUM, handle, o.stream);
        });
    for (int r = 0; r <= o.group->comm.size; r++)
        starts[r] = hs_comm_share_start(o.count, o.group->comm.size, r);
    Operation shares = o;
    shares.starts = starts;
    HS_TRY(scatter_exactly(shares));
    return run_all_gather(shares);
}

HsStatus run_broadcast(const Operation &o)
{
    return call(o.group, [&](const Nccl &nccl, NcclHandle handle) {
        return nccl.broadcast(o.buffer, o.buffer, o.count, type_of(o.dtype), o.root, handle, o.stream);
    });
}

/* --- buffers of the host --- */

constexpr size_t HOST_SUM_BYTES = size_t(16) << 20; /* of a sum: at a time */

void release_bounce(Group *group)
{
    group->device->host_release(group->device, group->pinned);
    hs_memory_release(group->device, HS_MEMORY_COMMUNICATION, group->bounce_bytes, group->bounce);
    group->pinned = group->bounce = nullptr;
    group->bounce_bytes = 0;
}

/* Operations on host buffers have ended when they return, so nothing is in what is replaced here. */
HsStatus reserve_bounce(Group *group, size_t bytes)
{
    if (bytes <= group->bounce_bytes)
        return HS_OK;
    if (group->bounce_bytes > 0)
        release_bounce(group);
    HS_TRY(hs_memory_alloc(group->device, HS_MEMORY_COMMUNICATION, bytes, &group->bounce));
    group->bounce_bytes = bytes;
    return group->device->host_alloc(group->device, bytes, &group->pinned);
}

HsStatus copy(Group *group, cudaStream_t stream, void *to, const void *from, size_t bytes)
{
    return group->device->copy(group->device, reinterpret_cast<HsStream *>(stream), to, from, bytes);
}

HsStatus through_bounce(Operation operation, size_t bytes, Body *body)
{
    Group *const group = operation.group;
    unsigned char *const host = operation.buffer;
    HS_TRY(reserve_bounce(group, bytes));
    HS_TRY(wait_for_stream(group->device, operation.stream)); /* kernels may write pinned memory themselves */
    memcpy(group->pinned, host, bytes);
    HS_TRY(copy(group, operation.stream, group->bounce, group->pinned, bytes));
    operation.buffer = static_cast<unsigned char *>(group->bounce);
    HS_TRY(body(operation));
    HS_TRY(copy(group, operation.stream, group->pinned, group->bounce, bytes));
    HS_TRY(wait_for_stream(group->device, operation.stream));
    memcpy(host, group->pinned, bytes);
    return HS_OK;
}

/* elements: that the buffer has, as far as the operation goes. */
HsStatus run(HsComm *comm, HsStream *stream, void *buffer, size_t elements, Operation operation, Body *body)
{
    Group *const group = reinterpret_cast<Group *>(comm);
    bool on_device = false;
    operation.group = group;
    operation.stream = reinterpret_cast<cudaStream_t>(stream);
    operation.buffer = static_cast<unsigned char *>(buffer);
    HS_TRY(group_begin(group, operation.stream));
    if (elements == 0)
        return HS_OK;
    HS_TRY(is_on_device(buffer, &on_device));
    HS_TRY(on_device ? body(operation) : through_bounce(operation, elements * hs_dtype_bytes(operation.dtype), body));
    return group_end(group, operation.stream);
}

/* --- the table's functions --- */

HsStatus nccl_all_reduce(HsComm *comm, HsStream *stream, void *buffer, size_t count, HsDtype dtype, HsCommOp op)
{
    bool on_device = false;
    HS_TRY(is_on_device(buffer, &on_device));
    /* What lies on the host for want of room on the device is not to take as much there. */
    const size_t most = on_device ? count : HOST_SUM_BYTES / hs_dtype_bytes(dtype);
    size_t done = 0;
    do {
        Operation operation = {};
        operation.count = count - done < most ? count - done : most;
        operation.dtype = dtype;
        operation.op = op;
        unsigned char *const part = static_cast<unsigned char *>(buffer) + done * hs_dtype_bytes(dtype);
        HS_TRY(run(comm, stream, part, operation.count, operation, run_all_reduce));
        done += operation.count;
    } while (done < count);
    return HS_OK;
}

HsStatus nccl_reduce_scatter(HsComm *comm, HsStream *stream, void *buffer, const size_t *starts, HsDtype dtype)
{
    Operation operation = {};
    operation.starts = starts;
    operation.dtype = dtype;
    operation.op = HS_COMM_SUM;
    return run(comm, stream, buffer, starts[comm->size], operation, run_reduce_scatter);
}

HsStatus nccl_all_gather(HsComm *comm, HsStream *stream, void *buffer, const size_t *starts, HsDtype dtype)
{
    Operation operation = {};
    operation.starts = starts;
    operation.dtype = dtype;
    return run(comm, stream, buffer, starts[comm->size], operation, run_all_gather);
}

HsStatus nccl_broadcast(HsComm *comm, HsStream *stream, void *buffer, size_t count, HsDtype dtype, int root)
{
    Operation operation = {};
    operation.count = count;
    operation.dtype = dtype;
    operation.root = root;
    return run(comm, stream, buffer, count, operation, run_broadcast);
}

/* The library has none: a sum that all ranks wait for. */
HsStatus nccl_barrier(HsComm *comm)
{
    int64_t one = 1;
    HsStream *const stream = reinterpret_cast<HsStream *>(reinterpret_cast<Group *>(comm)->stream);
    HS_TRY(nccl_all_reduce(comm, stream, &one, 1, HS_I64, HS_COMM_SUM));
    return one == comm->size ? HS_OK
                             : hs_fail(HS_EDEVICE, "a barrier of %d ranks counted %lld", comm->size, (long long)one);
}

void nccl_abort(HsComm *comm, const char *reason)
{
    group_abort(reinterpret_cast<Group *>(comm), reason, true);
}

void nccl_note_step(HsComm *comm)
{
    const HsCommNcclOptions &options = reinterpret_cast<Group *>(comm)->options;
    if (options.note_step != nullptr)
        options.note_step(options.host, comm->step);
}

HsStatus nccl_check(HsComm *comm)
{
    return group_is_well(reinterpret_cast<Group *>(comm), 0.0);
}

void nccl_destroy(HsComm *comm)
{
    Group *const group = reinterpret_cast<Group *>(comm);
    if (group->used && group->handle != nullptr && wait_for_stream(group->device, group->last) != HS_OK)
        group_abort(group, "the last operations failed", false);
    group_leave(group);
    hang_watch(group->device, Watch{});
    if (group->bounce_bytes > 0)
        release_bounce(group);
    hs_memory_release(group->device, HS_MEMORY_COMMUNICATION, group->options.scratch_bytes, group->scratch);
    if (group->done != nullptr)
        cudaEventDestroy(group->done);
    if (group->stream != nullptr)
        cudaStreamDestroy(group->stream);
    delete group;
}

const HsCommOperations operations = { "NCCL",         nccl_all_reduce, nccl_reduce_scatter, nccl_all_gather,
                                      nccl_broadcast, nccl_barrier,    nccl_abort,          nccl_check,
                                      nccl_note_step, nccl_destroy };

HsStatus check_options(const HsCommNcclOptions *options)
{
    if (options->size < 2 || options->size > FOLD_RANKS_MOST || options->rank < 0 || options->rank >= options->size)
        return hs_fail(HS_EINVAL, "a communicator over NCCL: rank %d of %d, where 2 to %d ranks are allowed",
                       options->rank, options->size, (int)FOLD_RANKS_MOST);
    if (options->scratch_bytes > 0 && options->scratch_bytes < SCRATCH_LEAST * (size_t)options->size)
        return hs_fail(HS_EINVAL, "a communicator over NCCL: %zu bytes of scratch, where %zu are the least",
                       options->scratch_bytes, SCRATCH_LEAST * (size_t)options->size);
    return HS_OK;
}

HsStatus set_up(Group *group)
{
    HS_TRY(group_check(cudaStreamCreateWithFlags(&group->stream, cudaStreamNonBlocking), "creating a stream"));
    HS_TRY(group_check(cudaEventCreateWithFlags(&group->done, cudaEventDisableTiming), "creating an event"));
    HS_TRY(reserve_bounce(group, BOUNCE_BYTES));
    HS_TRY(hs_memory_alloc(group->device, HS_MEMORY_COMMUNICATION, group->options.scratch_bytes, &group->scratch));
    HS_TRY(group_join(group));
    hang_watch(group->device, Watch{ group_look, group });
    return HS_OK;
}

} // namespace

HsStatus make_comm_id(unsigned char id[HS_COMM_NCCL_ID_BYTES])
{
    const Nccl *nccl = nullptr;
    NcclId made;
    HS_TRY(open_nccl(&nccl));
    const int result = nccl->unique_id(&made);
    if (result != NCCL_SUCCESS)
        return hs_fail(HS_EDEVICE, "NCCL makes no unique id: %s; NCCL_DEBUG=WARN shows more",
                       nccl->error_string(result));
    memcpy(id, &made, sizeof made);
    return HS_OK;
}

HsStatus make_comm(HsDevice *device, const HsCommNcclOptions *options, HsComm **comm)
{
    const Nccl *nccl = nullptr;
    *comm = nullptr;
    HS_TRY(check_options(options));
    HS_TRY(open_nccl(&nccl));
    Group *const group = new (std::nothrow) Group();
    if (group == nullptr)
        return hs_fail(HS_ENOMEM, "no memory for a communicator, %zu bytes", sizeof *group);
    group->nccl = nccl;
    group->device = device;
    group->options = *options;
    if (group->options.scratch_bytes == 0)
        group->options.scratch_bytes = SCRATCH_BYTES;
    group->comm.rank = options->rank;
    group->comm.size = options->size;
    group->comm.local_rank = options->local_rank;
    group->comm.local_size = options->local_size;
    group->comm.exact = options->exact;
    group->comm.step = -1;
    group->comm.operations = &operations;
    const HsStatus status = set_up(group);
    if (status != HS_OK) {
        nccl_destroy(&group->comm);
        return hs_error_prefix(status, "joining %d ranks by NCCL", options->size);
    }
    *comm = &group->comm;
    return HS_OK;
}

} // namespace HS_CUDA_NAMESPACE
