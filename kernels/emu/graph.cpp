/* SPDX-License-Identifier: MIT
 *
 * Stream capture and graphs.  A stream joins a capture by waiting for an event recorded in it, and has to be joined
 * back (an event of its last operation waited for) before the capture ends.
 */
#include "kernels/emu/stream.h"

namespace hs_emu
{
namespace emulator
{

static long captures_begun;

cudaError_t capture_wait(Stream &stream, Event &event)
{
    Graph *capture = stream.capture;
    if (capture == nullptr) {
        Stream *recorder = nullptr;
        for (Stream *other : all_streams())
            if (other->capture != nullptr && other->capture->id == event.capture_id)
                recorder = other;
        if (recorder == nullptr)
            return remember(cudaErrorCapturedEvent); /* its capture is over */
        if (!stream.pending.empty())
            return remember(cudaErrorStreamCaptureIsolation);
        stream.capture = recorder->capture;
        stream.captured = stream.joined = 0;
    } else if (event.capture_id != capture->id) {
        capture->failed = true; /* an event from outside the capture */
        return remember(cudaErrorStreamCaptureIsolation);
    }
    Stream &recorder = *event.capture_stream;
    if (&recorder != &stream && recorder.joined < event.captured)
        recorder.joined = event.captured;
    return cudaSuccess;
}

} // namespace emulator

using namespace emulator;
typedef std::lock_guard<std::recursive_mutex> Hold;

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode)
{
    Hold hold(stream_lock());
    if (stream == nullptr || stream->capture != nullptr)
        return remember(cudaErrorStreamCaptureUnsupported);
    stream->capture = new Graph{ ++captures_begun, stream, {}, false };
    stream->captured = stream->joined = 0;
    return cudaSuccess;
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *graph)
{
    Hold hold(stream_lock());
    *graph = nullptr;
    if (stream == nullptr || stream->capture == nullptr || stream->capture->origin != stream)
        return remember(cudaErrorStreamCaptureUnmatched);
    Graph *capture = stream->capture;
    bool joined = true;
    for (Stream *member : all_streams())
        if (member->capture == capture) {
            joined = joined && (member == stream || member->joined == member->captured);
            member->capture = nullptr;
        }
    if (capture->failed || !joined) {
        const bool failed = capture->failed;
        delete capture;
        return remember(failed ? cudaErrorStreamCaptureInvalidated : cudaErrorStreamCaptureUnjoined);
    }
    *graph = capture;
    return cudaSuccess;
}

cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus *status)
{
    Hold hold(stream_lock());
    const Graph *capture = stream_of(stream).capture;
    *status = capture == nullptr ? cudaStreamCaptureStatusNone
              : capture->failed  ? cudaStreamCaptureStatusInvalidated
                                 : cudaStreamCaptureStatusActive;
    return cudaSuccess;
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t *exec, cudaGraph_t graph, unsigned long long)
{
    *exec = new Executable{ graph->operations };
    return cudaSuccess;
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream)
{
    Hold hold(stream_lock());
    for (const std::function<void()> &operation : exec->operations)
        enqueue(stream_of(stream), operation);
    return cudaSuccess;
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec)
{
    delete exec;
    return cudaSuccess;
}
cudaError_t cudaGraphDestroy(cudaGraph_t graph)
{
    delete graph;
    return cudaSuccess;
}
cudaError_t cudaGraphGetNodes(cudaGraph_t graph, void *, size_t *count)
{
    *count = graph->operations.size();
    return cudaSuccess;
}

} // namespace hs_emu
