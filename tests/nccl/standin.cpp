/* SPDX-License-Identifier: MIT
 *
 * A stand-in for libnccl.so.2 on the emulator: the functions of NCCL that kernels/cuda/comm calls, between processes of
 * one host, over shared memory.  It is for tests, so it is stricter than the library and says what is wrong:
 *
 *   - ranks that call other operations, or in another order, with other counts, types, operations, roots or groups;
 *     messages that no rank expects; two ranks of one device; buffers that are not the device's         -> abort()
 *   - a call before the one before it has settled (communicators here are never blocking)               -> abort()
 *   - a result that is used before it is there: it is poisoned, and comes late                          -> NaN
 *
 * Sums run in the order of a ring, which depends on the number of ranks and on an element's place.
 *
 *   HALFSTEP_NCCL_SEED=N                  other delays
 *   HALFSTEP_NCCL_FAULT=RANK,GROUP,WHAT   the rank's group of calls number GROUP, from 1: `error` (the call returns
 *                                         one), `async` (the communicator does), `hang`, `die` (SIGKILL)
 *   HALFSTEP_NCCL_VERSION=N               what ncclGetVersion says
 */
#include <memory>
#include <mutex>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <vector>

#include "tests/nccl/work.h"

using namespace standin;
using hs_emu::cudaStream_t;

namespace
{

enum { SUCCESS = 0, SYSTEM_ERROR = 2, INVALID_ARGUMENT = 4, INVALID_USAGE = 5, REMOTE_ERROR = 6, IN_PROGRESS = 7 };

struct UniqueId {
    char name[128];
};

struct Config { /* as version 2.14 has it */
    size_t size;
    unsigned magic, version;
    int blocking;
};

const hs_emu::StreamAccess *streams;
std::recursive_mutex lock;
typedef std::lock_guard<std::recursive_mutex> Hold;

/* A group between ncclGroupStart and ncclGroupEnd. */
thread_local int depth;
thread_local std::vector<Call> grouped;
thread_local Communicator *grouped_by;

/* What was called and is not on the stream yet: a communicator that does not block may take its time. */
struct Unsettled {
    Communicator *communicator;
    std::shared_ptr<Work> work;
};
std::vector<Unsettled> unsettled;

/* Kept for ever: works may outlive their communicator by an abort. */
std::vector<std::unique_ptr<Communicator>> communicators;

Trouble trouble_of(const Communicator &communicator)
{
    const char *text = getenv("HALFSTEP_NCCL_FAULT");
    int rank = -1;
    unsigned long long group = 0;
    char what[16] = "";
    if (text == nullptr)
        return Trouble::NONE;
    if (sscanf(text, "%d,%llu,%15s", &rank, &group, what) != 3)
        fault(communicator.rank, "HALFSTEP_NCCL_FAULT=%s: give rank,group,what", text);
    if (rank != communicator.rank || group != communicator.groups)
        return Trouble::NONE;
    static const struct {
        const char *name;
        Trouble trouble;
    } rows[] = {
        { "error", Trouble::ERROR }, { "async", Trouble::ASYNC }, { "hang", Trouble::HANG }, { "die", Trouble::DIE }
    };
    for (const auto &row : rows)
        if (strcmp(row.name, what) == 0)
            return row.trouble;
    fault(communicator.rank, "HALFSTEP_NCCL_FAULT=%s: error, async, hang or die", text);
}

void put_on_stream(Communicator &communicator, const std::shared_ptr<Work> &work)
{
    const cudaStream_t stream = work->stream;
    if (communicator.used && communicator.stream != stream)
        streams->follow(stream, communicator.stream);
    communicator.stream = stream;
    communicator.used = true;
    streams->enqueue(stream, [work](bool wait) { return work->advance(wait); });
    if (draw(communicator, 2) == 0)
        streams->progress(stream);
}

void check_settled(const Communicator &communicator, const char *function)
{
    if (communicator.aborted)
        fault(communicator.rank, "%s after ncclCommAbort", function);
    if (communicator.unasked > 0)
        fault(communicator.rank,
              "%s before the call before it has settled: ask ncclCommGetAsyncError until it is not ncclInProgress",
              function);
}

void check_buffer(const Communicator &communicator, const Call &call, const void *buffer, size_t bytes,
                  const char *name)
{
    char text[256];
    if (bytes == 0 || streams->holds(buffer, bytes))
        return;
    describe(call.description, text, sizeof text);
    fault(communicator.rank, "%s: the %s buffer, %zu bytes at %p, is not the device's, or goes beyond its allocation",
          text, name, bytes, buffer);
}

/* Streams of unlike calls in a group would have to meet; nothing here needs that. */
void check_group(const Communicator &communicator, const std::vector<Call> &calls)
{
    for (const Call &call : calls) {
        if (call.stream != calls[0].stream)
            fault(communicator.rank, "a group on two streams, which is not emulated");
        if (streams->is_capturing(call.stream))
            fault(communicator.rank, "a call in a capture, which is not emulated");
        check_buffer(communicator, call, call.send, call.send_bytes, "send");
        check_buffer(communicator, call, call.receive, call.receive_bytes, "receive");
    }
}

int issue(Communicator &communicator, std::vector<Call> calls)
{
    uint32_t collectives = 0;
    for (const Call &call : calls)
        collectives += call.description.kind != Kind::POINT_TO_POINT;
    for (Call &call : calls)
        if (call.description.kind != Kind::POINT_TO_POINT) {
            call.description.number = ++communicator.collectives;
            call.description.grouped = collectives;
        }
    check_group(communicator, calls);
    communicator.groups++;
    const Trouble trouble = trouble_of(communicator);
    if (trouble == Trouble::ERROR)
        return communicator.result = SYSTEM_ERROR;
    const auto work = std::make_shared<Work>(communicator, std::move(calls), trouble);
    communicator.unasked = (int)draw(communicator, 3);
    if (communicator.unasked == 0) {
        put_on_stream(communicator, work);
        return communicator.result;
    }
    unsettled.push_back(Unsettled{ &communicator, work });
    return communicator.result = IN_PROGRESS;
}

int submit(Communicator *communicator, const char *function, Call call)
{
    Hold hold(lock);
    check_settled(*communicator, function);
    if (bytes_of(call.description.dtype) == 0)
        fault(communicator->rank, "%s: type %d is not emulated", function, call.description.dtype);
    if (call.description.op > 0 && call.description.op != 2)
        fault(communicator->rank, "%s: operation %d is not emulated", function, call.description.op);
    if (call.description.root >= communicator->size || call.to >= communicator->size || call.to == communicator->rank ||
        call.from >= communicator->size || call.from == communicator->rank)
        fault(communicator->rank, "%s: no such peer or root", function);
    if (depth == 0)
        return issue(*communicator, { call });
    if (grouped_by != nullptr && grouped_by != communicator)
        fault(communicator->rank, "a group of two communicators, which is not emulated");
    grouped_by = communicator;
    grouped.push_back(call);
    return SUCCESS;
}

Call collective(const Communicator *communicator, Kind kind, const void *send, void *receive, size_t count, int dtype,
                int op, int root, cudaStream_t stream)
{
    const size_t bytes = count * bytes_of(dtype), size = (size_t)communicator->size;
    Call call = { { kind, dtype, op, root, count, 0, 0 }, send, receive, bytes, bytes, -1, -1, stream };
    if (kind == Kind::REDUCE_SCATTER)
        call.send_bytes = size * bytes;
    if (kind == Kind::ALL_GATHER)
        call.receive_bytes = size * bytes;
    if (kind == Kind::REDUCE && communicator->rank != root)
        call.receive_bytes = 0;
    if (kind == Kind::BROADCAST && communicator->rank != root)
        call.send_bytes = 0;
    return call;
}

/* Attaches, or puts on its stream what was called. */
void settle(Communicator &communicator)
{
    if (!communicator.attached) {
        if (communicator.segment == nullptr)
            communicator.segment = segment_attach(communicator.name, communicator.rank, communicator.size);
        const uint32_t all = (1u << communicator.size) - 1;
        if (communicator.segment == nullptr || communicator.segment->here.load() != all)
            return;
        communicator.attached = true;
        if (communicator.rank == 0)
            segment_forget(communicator.name);
    }
    if (communicator.unasked > 0 && --communicator.unasked > 0)
        return;
    communicator.result = SUCCESS;
    for (size_t i = 0; i < unsettled.size(); i++)
        if (unsettled[i].communicator == &communicator) {
            const std::shared_ptr<Work> work = unsettled[i].work;
            unsettled.erase(unsettled.begin() + (long)i);
            put_on_stream(communicator, work);
            return;
        }
}

} // namespace

#define EXPORT extern "C" __attribute__((visibility("default")))

EXPORT void hs_emu_attach(const hs_emu::StreamAccess *access)
{
    streams = access;
}

EXPORT int ncclGetVersion(int *version)
{
    const char *text = getenv("HALFSTEP_NCCL_VERSION");
    *version = text == nullptr ? 22809 : atoi(text);
    return SUCCESS;
}

EXPORT int ncclGetUniqueId(UniqueId *id)
{
    static int made;
    memset(id, 0, sizeof *id);
    snprintf(id->name, sizeof id->name, "/halfstep-nccl-%ld-%d-%llx", (long)getpid(), made++,
             (unsigned long long)std::chrono::system_clock::now().time_since_epoch().count());
    return SUCCESS;
}

EXPORT int ncclCommInitRankConfig(Communicator **made, int size, UniqueId id, int rank, const Config *config)
{
    Hold hold(lock);
    if (config == nullptr || config->magic != 0xcafebeef || config->size < sizeof *config || config->blocking != 0)
        fault(rank, "ncclCommInitRankConfig: a configuration that does not say blocking = 0");
    if (streams == nullptr)
        fault(rank, "hs_emu_attach was not called");
    if (size < 1 || size > RANKS_MOST || rank < 0 || rank >= size || strncmp(id.name, "/halfstep-nccl-", 15) != 0)
        return INVALID_ARGUMENT;
    auto communicator = std::make_unique<Communicator>();
    const char *seed = getenv("HALFSTEP_NCCL_SEED");
    communicator->rank = rank;
    communicator->size = size;
    snprintf(communicator->name, sizeof communicator->name, "%.63s", id.name);
    communicator->random = (uint64_t)(seed == nullptr ? 1 : atoll(seed)) * 1000003 + (uint64_t)rank * 7919 + 1;
    communicator->result = IN_PROGRESS;
    communicator->unasked = 2;
    *made = communicator.get();
    communicators.push_back(std::move(communicator));
    return IN_PROGRESS;
}

EXPORT int ncclCommGetAsyncError(Communicator *communicator, int *result)
{
    Hold hold(lock);
    if (communicator->result == IN_PROGRESS)
        settle(*communicator);
    *result = communicator->result;
    return SUCCESS;
}

EXPORT int ncclCommAbort(Communicator *communicator)
{
    Hold hold(lock);
    communicator->aborted = true;
    if (communicator->rank == 0 && !communicator->attached)
        segment_forget(communicator->name);
    if (communicator->segment != nullptr)
        segment_wake(communicator->segment);
    return SUCCESS;
}

EXPORT int ncclCommFinalize(Communicator *communicator)
{
    Hold hold(lock);
    check_settled(*communicator, "ncclCommFinalize");
    return SUCCESS;
}

EXPORT int ncclCommDestroy(Communicator *communicator)
{
    Hold hold(lock);
    check_settled(*communicator, "ncclCommDestroy");
    if (communicator->under_way > 0)
        fault(communicator->rank, "ncclCommDestroy with %d groups under way", communicator->under_way);
    communicator->aborted = true; /* for check_settled */
    return SUCCESS;
}

EXPORT int ncclGroupStart(void)
{
    depth++;
    return SUCCESS;
}

EXPORT int ncclGroupEnd(void)
{
    Hold hold(lock);
    if (depth == 0)
        fault(-1, "ncclGroupEnd without ncclGroupStart");
    if (--depth > 0 || grouped.empty())
        return SUCCESS;
    Communicator *communicator = grouped_by;
    std::vector<Call> calls = std::move(grouped);
    grouped.clear();
    grouped_by = nullptr;
    return issue(*communicator, std::move(calls));
}

EXPORT int ncclAllReduce(const void *send, void *receive, size_t count, int dtype, int op, Communicator *communicator,
                         cudaStream_t stream)
{
    return submit(communicator, "ncclAllReduce",
                  collective(communicator, Kind::ALL_REDUCE, send, receive, count, dtype, op, -1, stream));
}

EXPORT int ncclReduceScatter(const void *send, void *receive, size_t count, int dtype, int op,
                             Communicator *communicator, cudaStream_t stream)
{
    return submit(communicator, "ncclReduceScatter",
                  collective(communicator, Kind::REDUCE_SCATTER, send, receive, count, dtype, op, -1, stream));
}

EXPORT int ncclReduce(const void *send, void *receive, size_t count, int dtype, int op, int root,
                      Communicator *communicator, cudaStream_t stream)
{
    return submit(communicator, "ncclReduce",
                  collective(communicator, Kind::REDUCE, send, receive, count, dtype, op, root, stream));
}

EXPORT int ncclAllGather(const void *send, void *receive, size_t count, int dtype, Communicator *communicator,
                         cudaStream_t stream)
{
    return submit(communicator, "ncclAllGather",
                  collective(communicator, Kind::ALL_GATHER, send, receive, count, dtype, -1, -1, stream));
}

EXPORT int ncclBroadcast(const void *send, void *receive, size_t count, int dtype, int root, Communicator *communicator,
                         cudaStream_t stream)
{
    return submit(communicator, "ncclBroadcast",
                  collective(communicator, Kind::BROADCAST, send, receive, count, dtype, -1, root, stream));
}

EXPORT int ncclSend(const void *send, size_t count, int dtype, int peer, Communicator *communicator,
                    cudaStream_t stream)
{
    return submit(communicator, "ncclSend",
                  Call{ { Kind::POINT_TO_POINT, dtype, -1, -1, count, 0, 0 },
                        send,
                        nullptr,
                        count * bytes_of(dtype),
                        0,
                        peer,
                        -1,
                        stream });
}

EXPORT int ncclRecv(void *receive, size_t count, int dtype, int peer, Communicator *communicator, cudaStream_t stream)
{
    return submit(communicator, "ncclRecv",
                  Call{ { Kind::POINT_TO_POINT, dtype, -1, -1, count, 0, 0 },
                        nullptr,
                        receive,
                        0,
                        count * bytes_of(dtype),
                        -1,
                        peer,
                        stream });
}

EXPORT const char *ncclGetErrorString(int result)
{
    static const char *const words[] = { "no error",
                                         "unhandled cuda error",
                                         "unhandled system error",
                                         "internal error",
                                         "invalid argument",
                                         "invalid usage",
                                         "remote process exited or there was a network error",
                                         "NCCL operation in progress" };
    return result >= 0 && result < (int)(sizeof words / sizeof *words) ? words[result] : "unknown result code";
}

EXPORT const char *ncclGetLastError(Communicator *)
{
    return "made up by the stand-in";
}
