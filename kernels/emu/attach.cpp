/* SPDX-License-Identifier: MIT
 *
 * The emulator as other libraries see it, see attach.h.
 */
#include "kernels/emu/stream.h"

#include "kernels/emu/attach.h"
#include "kernels/emu/memory.h"

namespace hs_emu
{

using namespace emulator;
typedef std::lock_guard<std::recursive_mutex> Hold;

static void attached_enqueue(cudaStream_t stream, std::function<bool(bool wait)> advance)
{
    Hold hold(stream_lock());
    enqueue_advancing(stream_of(stream), std::move(advance));
}

static void attached_progress(cudaStream_t stream)
{
    Hold hold(stream_lock());
    progress(stream_of(stream));
}

static void attached_follow(cudaStream_t later, cudaStream_t earlier)
{
    cudaEvent_t reached;
    cudaEventCreateWithFlags(&reached, cudaEventDisableTiming);
    cudaEventRecord(reached, earlier);
    cudaStreamWaitEvent(later, reached);
    cudaEventDestroy(reached);
}

static bool attached_is_capturing(cudaStream_t stream)
{
    cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    cudaStreamIsCapturing(stream, &status);
    return status != cudaStreamCaptureStatusNone;
}

static bool attached_holds(const void *pointer, size_t bytes)
{
    return memory_kind(pointer) == MemoryKind::DEVICE && memory_holds(pointer, bytes);
}

const StreamAccess *stream_access()
{
    static const StreamAccess access = { attached_enqueue, attached_progress, attached_follow, attached_is_capturing,
                                         attached_holds };
    return &access;
}

} // namespace hs_emu
