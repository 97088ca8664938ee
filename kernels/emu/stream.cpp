/* SPDX-License-Identifier: MIT
 *
 * Streams and events.  A stream is a queue of operations; the call that waits for them runs them, and only as far as it
 * waits: work of other streams that no event ties to them stays undone (settings.late_streams), so that a missing wait
 * shows.
 */
#include "kernels/emu/stream.h"

#include <algorithm>

#include "kernels/emu/memory.h"
#include "kernels/emu/worker.h"

namespace hs_emu
{
namespace emulator
{

/* A GPU's queue is bounded too; its launches then wait for the oldest. */
static constexpr size_t MOST_PENDING = 1024;

std::recursive_mutex &stream_lock()
{
    static std::recursive_mutex lock;
    return lock;
}

static std::vector<Stream *> &streams()
{
    static Stream null_stream;
    static std::vector<Stream *> all = { &null_stream };
    return all;
}

const std::vector<Stream *> &all_streams()
{
    return streams();
}

Stream &stream_of(cudaStream_t stream)
{
    return stream == nullptr ? *streams()[0] : *stream;
}

/* One step towards the oldest operation of a stream: it, or what it waits for.  False: nothing moved, as that needs
 * another process.  Waits name recordings issued before them, so this cannot turn in a circle. */
static bool try_one(Stream &stream, bool wait)
{
    Operation &oldest = stream.pending.front();
    if (oldest.event != nullptr && oldest.event->done < oldest.recording)
        return try_one(*oldest.recorder, wait);
    if (oldest.advance && !oldest.advance(wait))
        return false;
    const Operation operation = std::move(oldest);
    stream.pending.pop_front();
    if (operation.run)
        operation.run();
    return true;
}

static void run_all(Stream &stream, size_t rest)
{
    if (stream.pending.size() <= rest)
        return;
    memory_open();
    while (stream.pending.size() > rest)
        try_one(stream, true);
    memory_close();
}

/* One step, for callers that ask whether a stream is done. */
static void nudge(Stream &stream)
{
    memory_open();
    try_one(stream, false);
    memory_close();
}

/* Everything, one operation of a random stream after the other. */
static void run_everything()
{
    static uint64_t random = settings().seed * 2 + 1;
    memory_open();
    for (;;) {
        std::vector<Stream *> busy;
        for (Stream *stream : streams())
            if (!stream->pending.empty())
                busy.push_back(stream);
        if (busy.empty())
            break;
        Stream &chosen = *busy[random_bits(random) % busy.size()];
        bool moved = try_one(chosen, false);
        for (Stream *stream : busy)
            moved = moved || (!stream->pending.empty() && try_one(*stream, false));
        if (!moved)
            try_one(chosen, true);
    }
    memory_close();
}

void progress(Stream &stream)
{
    memory_open();
    while (!stream.pending.empty() && try_one(stream, false)) {
    }
    memory_close();
}

static void add(Stream &stream, Operation operation)
{
    stream.pending.push_back(std::move(operation));
    if (!settings().late_streams)
        progress(stream);
    run_all(stream, MOST_PENDING);
}

void enqueue(Stream &stream, std::function<void()> run)
{
    if (stream.capture != nullptr) {
        stream.capture->operations.push_back(std::move(run));
        stream.captured++;
    } else {
        add(stream, Operation{ std::move(run), nullptr, 0, nullptr, nullptr });
    }
}

void enqueue_advancing(Stream &stream, std::function<bool(bool wait)> advance)
{
    add(stream, Operation{ nullptr, nullptr, 0, nullptr, std::move(advance) });
}

} // namespace emulator

using namespace emulator;
typedef std::lock_guard<std::recursive_mutex> Hold;

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned)
{
    Hold hold(stream_lock());
    *stream = new Stream();
    streams().push_back(*stream);
    return cudaSuccess;
}
cudaError_t cudaStreamCreateWithPriority(cudaStream_t *stream, unsigned flags, int)
{
    return cudaStreamCreateWithFlags(stream, flags);
}
cudaError_t cudaStreamCreate(cudaStream_t *stream)
{
    return cudaStreamCreateWithFlags(stream, cudaStreamDefault);
}

cudaError_t cudaStreamDestroy(cudaStream_t stream)
{
    Hold hold(stream_lock());
    if (stream == nullptr || stream->capture != nullptr)
        return remember(cudaErrorInvalidResourceHandle);
    run_all(*stream, 0); /* CUDA lets the rest of its work end */
    streams().erase(std::find(streams().begin(), streams().end(), stream));
    delete stream;
    return cudaSuccess;
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream)
{
    Hold hold(stream_lock());
    Stream &waited = stream_of(stream);
    if (waited.capture != nullptr) {
        waited.capture->failed = true;
        return remember(cudaErrorStreamCaptureUnsupported);
    }
    run_all(waited, 0);
    return cudaSuccess;
}

/* Asking makes one step of progress, so that a loop of questions ends. */
cudaError_t cudaStreamQuery(cudaStream_t stream)
{
    Hold hold(stream_lock());
    Stream &asked = stream_of(stream);
    if (asked.pending.empty())
        return cudaSuccess;
    nudge(asked);
    return cudaErrorNotReady;
}

cudaError_t cudaDeviceSynchronize()
{
    Hold hold(stream_lock());
    for (Stream *stream : streams())
        if (stream->capture != nullptr) {
            stream->capture->failed = true;
            return remember(cudaErrorStreamCaptureUnsupported);
        }
    run_everything();
    return cudaSuccess;
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned)
{
    Hold hold(stream_lock());
    Stream &waiting = stream_of(stream);
    if (waiting.capture != nullptr || event->capture_id != 0)
        return capture_wait(waiting, *event);
    if (event->state->recorded > 0)
        add(waiting, Operation{ nullptr, event->state, event->state->recorded, event->state->stream, nullptr });
    return cudaSuccess;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned)
{
    *event = new Event();
    return cudaSuccess;
}
cudaError_t cudaEventCreate(cudaEvent_t *event)
{
    return cudaEventCreateWithFlags(event, cudaEventDefault);
}
cudaError_t cudaEventDestroy(cudaEvent_t event)
{
    Hold hold(stream_lock());
    delete event;
    return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream)
{
    Hold hold(stream_lock());
    Stream &recorder = stream_of(stream);
    if (recorder.capture != nullptr) {
        event->capture_id = recorder.capture->id;
        event->capture_stream = &recorder;
        event->captured = recorder.captured;
        return cudaSuccess;
    }
    event->capture_id = 0;
    const std::shared_ptr<EventState> state = event->state;
    const long recording = ++state->recorded;
    state->stream = &recorder;
    add(recorder, Operation{ [state, recording] {
                                state->done = recording;
                                state->time = std::chrono::steady_clock::now();
                            },
                             nullptr, 0, nullptr, nullptr });
    return cudaSuccess;
}

cudaError_t cudaEventSynchronize(cudaEvent_t event)
{
    Hold hold(stream_lock());
    if (event->capture_id != 0)
        return remember(cudaErrorCapturedEvent);
    EventState &state = *event->state;
    memory_open();
    while (state.done < state.recorded)
        try_one(*state.stream, true);
    memory_close();
    return cudaSuccess;
}

cudaError_t cudaEventQuery(cudaEvent_t event)
{
    Hold hold(stream_lock());
    if (event->capture_id != 0)
        return remember(cudaErrorCapturedEvent);
    EventState &state = *event->state;
    if (state.done == state.recorded)
        return cudaSuccess;
    nudge(*state.stream);
    return cudaErrorNotReady;
}

cudaError_t cudaEventElapsedTime(float *milliseconds, cudaEvent_t start, cudaEvent_t stop)
{
    Hold hold(stream_lock());
    if (start->state->recorded == 0 || stop->state->recorded == 0)
        return remember(cudaErrorInvalidResourceHandle);
    if (start->state->done < start->state->recorded || stop->state->done < stop->state->recorded)
        return remember(cudaErrorNotReady);
    *milliseconds = std::chrono::duration<float, std::milli>(stop->state->time - start->state->time).count();
    return cudaSuccess;
}

} // namespace hs_emu
