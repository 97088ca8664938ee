/* SPDX-License-Identifier: MIT
 *
 * Streams, events and graphs inside the emulator.
 */
#ifndef HS_KERNELS_EMU_STREAM_H
#define HS_KERNELS_EMU_STREAM_H

#include <chrono>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "kernels/emu/runtime.h"

namespace hs_emu
{
namespace emulator
{

/* The k-th recording of an event is done when done == k; operations hold it beyond the event's destruction. */
struct EventState {
    Stream *stream = nullptr; /* of the last recording */
    long recorded = 0, done = 0;
    std::chrono::steady_clock::time_point time;
};

/* One step of a stream: first wait (if `event`) until the event's recording `recording` is done, then run.  What needs
 * other processes has `advance` instead: it is called until it returns true, and may sleep for a moment if its argument
 * is true. */
struct Operation {
    std::function<void()> run;
    std::shared_ptr<EventState> event;
    long recording;
    Stream *recorder; /* on which it was recorded: the event may have been recorded elsewhere since */
    std::function<bool(bool wait)> advance;
};

/* A capture in progress, then a graph.  The order of capture is one order that the dependences allow. */
struct Graph {
    long id; /* never used twice, unlike addresses */
    Stream *origin;
    std::vector<std::function<void()>> operations;
    bool failed;
};

struct Executable {
    std::vector<std::function<void()>> operations;
};

struct Stream {
    std::deque<Operation> pending;
    Graph *capture = nullptr; /* the capture that it takes part in */
    long captured = 0;        /* operations it has added to it ... */
    long joined = 0;          /* ... and how many of them another of the capture's streams waits for */
};

struct Event {
    std::shared_ptr<EventState> state = std::make_shared<EventState>();
    /* When last recorded in a capture: which, by which stream, after how many operations of it. */
    long capture_id = 0;
    Stream *capture_stream = nullptr;
    long captured = 0;
};

/* Held by every call that reads or runs streams. */
std::recursive_mutex &stream_lock();
const std::vector<Stream *> &all_streams();
Stream &stream_of(cudaStream_t stream);
/* Add to the stream (or run at once: settings.late_streams), or to the graph that it captures. */
void enqueue(Stream &stream, std::function<void()> run);
/* The same for what needs other processes; not in a capture. */
void enqueue_advancing(Stream &stream, std::function<bool(bool wait)> advance);
/* Does what can be done of the stream's work without waiting for other processes. */
void progress(Stream &stream);
/* Note the error for cudaGetLastError, and return it. */
cudaError_t remember(cudaError_t error);

/* graph.cpp: the part of captures in waits. */
cudaError_t capture_wait(Stream &stream, Event &event);

} // namespace emulator
} // namespace hs_emu

#endif
