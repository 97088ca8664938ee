/* SPDX-License-Identifier: MIT
 *
 * Calls into the library and their failures, see group.cuh.
 */
#include "kernels/cuda/comm/group.cuh"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "kernels/cuda/device/device.cuh"

extern "C" {
#include "kernels/base/clock.h"
}

namespace HS_CUDA_NAMESPACE
{

namespace
{

const double LOOK_S = 0.01;

/* The library's end: with the lock, so that no thread is inside. */
void abort_handle(Group *group)
{
    if (group->handle != nullptr)
        group->nccl->abort(group->handle);
    group->handle = nullptr;
}

bool has_failed(Group *group)
{
    std::lock_guard<std::mutex> hold(group->failing);
    return group->failed;
}

/* Which rank, and in what. */
void describe(const Group *group, char *text, size_t bytes)
{
    char host[64] = "";
    gethostname(host, sizeof host - 1);
    const HsComm &comm = group->comm;
    const HsCommPlace place = { comm.rank, comm.size, host, getpid(), comm.step, comm.operation, comm.sequence };
    hs_comm_describe(&place, text, bytes);
}

HsStatus fail_own(Group *group, const char *what)
{
    group_abort(group, what, true);
    return group_failure(group);
}

HsStatus fail_library(Group *group, int result)
{
    char what[256];
    const char *const detail = group->nccl->last_error(group->handle);
    snprintf(what, sizeof what, "NCCL: %.80s%s%.120s; NCCL_DEBUG=WARN shows more", group->nccl->error_string(result),
             detail != nullptr && detail[0] != '\0' ? ": " : "", detail != nullptr ? detail : "");
    return fail_own(group, what);
}

int async_result(Group *group)
{
    std::lock_guard<std::mutex> hold(group->inside);
    int result = NCCL_SUCCESS;
    if (group->handle == nullptr)
        return NCCL_SUCCESS;
    const int asked = group->nccl->async_error(group->handle, &result);
    return asked != NCCL_SUCCESS ? asked : result;
}

/* What does not concern the library. */
HsStatus look_around(Group *group, double waited_s)
{
    char message[400] = "";
    if (has_failed(group)) {
        std::lock_guard<std::mutex> hold(group->inside);
        abort_handle(group); /* by another thread, which was not let in */
    }
    if (has_failed(group))
        return group_failure(group);
    const HsCommNcclOptions &options = group->options;
    if (options.others_failed != nullptr && options.others_failed(options.host, message, sizeof message)) {
        group_abort(group, message, false);
        return group_failure(group);
    }
    if (options.timeout_s > 0.0 && waited_s > options.timeout_s) {
        char what[128];
        snprintf(what, sizeof what, "waited %.0f s for the other ranks, as long as it may", waited_s);
        return fail_own(group, what);
    }
    return HS_OK;
}

HsStatus order_after_last(Group *group, cudaStream_t stream)
{
    if (!group->used || group->last == stream)
        return HS_OK;
    return group_check(cudaStreamWaitEvent(stream, group->done, 0), "waiting for an operation between ranks");
}

} // namespace

HsStatus group_check(cudaError_t error, const char *what)
{
    return error == cudaSuccess ? HS_OK : hs_fail(HS_EDEVICE, "%s: %s", what, cudaGetErrorString(error));
}

HsStatus group_failure(Group *group)
{
    std::lock_guard<std::mutex> hold(group->failing);
    return hs_fail(HS_EDEVICE, "%s", group->reason);
}

void group_abort(Group *group, const char *reason, bool own)
{
    char member[256] = "";
    bool first;
    if (own)
        describe(group, member, sizeof member);
    {
        std::lock_guard<std::mutex> hold(group->failing);
        first = !group->failed;
        if (first)
            snprintf(group->reason, sizeof group->reason, "%s%s%.240s", member, own ? " gave up: " : "", reason);
        group->failed = true;
    }
    if (first && own && group->options.tell_others != nullptr)
        group->options.tell_others(group->options.host, reason);
    if (group->inside.try_lock()) { /* else the thread inside finds out */
        abort_handle(group);
        group->inside.unlock();
    }
}

HsStatus group_is_well(Group *group, double waited_s)
{
    HS_TRY(look_around(group, waited_s));
    const int result = async_result(group);
    return result == NCCL_SUCCESS || result == NCCL_IN_PROGRESS ? HS_OK : fail_library(group, result);
}

HsStatus group_look(void *watcher, double waited_s)
{
    Group *const group = static_cast<Group *>(watcher);
    const double now = hs_clock_s();
    if (now - group->last_look < LOOK_S)
        return HS_OK;
    group->last_look = now;
    return group_is_well(group, waited_s);
}

HsStatus group_settle(Group *group, int result)
{
    const double start = hs_clock_s();
    while (result == NCCL_IN_PROGRESS) {
        result = async_result(group);
        HS_TRY(look_around(group, hs_clock_s() - start));
        if (result == NCCL_IN_PROGRESS)
            usleep(20);
    }
    return result == NCCL_SUCCESS ? HS_OK : fail_library(group, result);
}

HsStatus group_begin(Group *group, cudaStream_t stream)
{
    cudaStreamCaptureStatus capture = cudaStreamCaptureStatusNone;
    HS_TRY(look_around(group, 0.0));
    HS_TRY(group_check(cudaStreamIsCapturing(stream, &capture), "asking whether work is recorded"));
    if (capture != cudaStreamCaptureStatusNone)
        return hs_fail(HS_EUNSUPPORTED, "operations between ranks cannot be recorded: set kernels.cuda_graph to false");
    return order_after_last(group, stream);
}

HsStatus group_end(Group *group, cudaStream_t stream)
{
    HS_TRY(group_check(cudaEventRecord(group->done, stream), "recording an operation between ranks"));
    group->last = stream;
    group->used = true;
    return HS_OK;
}

HsStatus group_join(Group *group)
{
    NcclId id;
    static_assert(sizeof id == HS_COMM_NCCL_ID_BYTES, "the library's size");
    NcclConfig config = { sizeof config, NCCL_MAGIC, (unsigned)NCCL_OLDEST, 0 };
    int result;
    memcpy(&id, group->options.id, sizeof id);
    {
        std::lock_guard<std::mutex> hold(group->inside);
        result = group->nccl->init(&group->handle, group->comm.size, id, group->comm.rank, &config);
    }
    return group_settle(group, result);
}

/* Finalize lets what is under way end; if that fails, another rank gave up meanwhile. */
void group_leave(Group *group)
{
    if (!has_failed(group) && group->handle != nullptr) {
        int result;
        {
            std::lock_guard<std::mutex> hold(group->inside);
            result = group->nccl->finalize(group->handle);
        }
        if (group_settle(group, result) == HS_OK) {
            std::lock_guard<std::mutex> hold(group->inside);
            group->nccl->destroy(group->handle);
            group->handle = nullptr;
        }
    }
    std::lock_guard<std::mutex> hold(group->inside);
    abort_handle(group);
}

} // namespace HS_CUDA_NAMESPACE
