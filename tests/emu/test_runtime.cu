/* SPDX-License-Identifier: MIT
 *
 * The runtime: streams, events, graphs, copies, limits of launches, and errors.
 */
#include "tests/emu/harness.h"

#include <string.h>

#include "kernels/emu/attach.h"

namespace hs_emu
{

__global__ void add_kernel(int *x, int value)
{
    x[threadIdx.x] += value;
}
__global__ void append_kernel(int *log, int value)
{
    log[log[0]++] = value;
}

static cudaError_t launch_append(int *log, int value, cudaStream_t stream)
{
    return emulate_launch("append", 1, 1, 0, stream, [=] { append_kernel(log, value); });
}

/* Every check names itself, so that a failure can be read. */
#define EXPECT(condition)                                           \
    do {                                                            \
        if (!(condition)) {                                         \
            fprintf(stderr, "line %d: %s\n", __LINE__, #condition); \
            return false;                                           \
        }                                                           \
    } while (0)

static bool events_and_order()
{
    cudaStream_t a, b;
    cudaEvent_t first, second, start, stop;
    float milliseconds = -1.0f;
    int *log = test::to_device(std::vector<int>{ 1, 0, 0, 0, 0, 0 });
    cudaStreamCreateWithFlags(&a, cudaStreamNonBlocking);
    cudaStreamCreateWithFlags(&b, cudaStreamNonBlocking);
    for (cudaEvent_t *event : { &first, &second, &start, &stop })
        cudaEventCreateWithFlags(event, cudaEventDefault);
    EXPECT(cudaEventElapsedTime(&milliseconds, start, stop) == cudaErrorInvalidResourceHandle);
    EXPECT(cudaGetLastError() == cudaErrorInvalidResourceHandle && cudaGetLastError() == cudaSuccess);
    cudaEventRecord(start, a);
    launch_append(log, 10, a);
    cudaEventRecord(first, a);
    cudaStreamWaitEvent(b, first);
    launch_append(log, 20, b);
    cudaEventRecord(second, b);
    cudaStreamWaitEvent(a, second);
    launch_append(log, 30, a);
    cudaEventRecord(first, a);  /* a new recording: the earlier wait is for the old one */
    cudaEventRecord(second, a); /* even on the stream that waits for the old one */
    cudaEventRecord(stop, a);
    cudaEventDestroy(second); /* work that waits for it keeps it */
    EXPECT(cudaEventSynchronize(stop) == cudaSuccess);
    EXPECT(test::to_host(log, 4) == (std::vector<int>{ 4, 10, 20, 30 }));
    EXPECT(cudaEventElapsedTime(&milliseconds, start, stop) == cudaSuccess && milliseconds >= 0.0f);
    launch_append(log, 40, b);
    launch_append(log, 50, b);
    cudaEventRecord(stop, b);
    while (cudaEventQuery(stop) == cudaErrorNotReady) {
    }
    EXPECT(cudaStreamQuery(b) == cudaSuccess);
    EXPECT(test::to_host(log, 6)[5] == 50);
    cudaStreamDestroy(a);
    cudaStreamDestroy(b);
    return true;
}

/* A graph of a fork and a join, launched twice; then what captures refuse. */
static bool graphs()
{
    cudaStream_t a, b;
    cudaEvent_t forked, joined;
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    size_t nodes = 0;
    int *x = test::to_device(std::vector<int>(4)), *y = test::to_device(std::vector<int>(4));
    cudaStreamCreate(&a);
    cudaStreamCreate(&b);
    cudaEventCreate(&forked);
    cudaEventCreate(&joined);
    EXPECT(cudaStreamBeginCapture(a, cudaStreamCaptureModeThreadLocal) == cudaSuccess);
    emulate_launch("add", 1, 4, 0, a, [=] { add_kernel(x, 3); });
    cudaEventRecord(forked, a);
    cudaStreamWaitEvent(b, forked);
    cudaMemcpyAsync(y, x, 4 * sizeof(int), cudaMemcpyDeviceToDevice, b);
    emulate_launch("add", 1, 4, 0, b, [=] { add_kernel(y, 100); });
    cudaEventRecord(joined, b);
    cudaStreamWaitEvent(a, joined);
    cudaMemsetAsync(x + 3, 0, sizeof(int), a);
    EXPECT(cudaStreamEndCapture(a, &graph) == cudaSuccess);
    EXPECT(cudaGraphGetNodes(graph, nullptr, &nodes) == cudaSuccess && nodes == 4);
    EXPECT(test::to_host(x, 4) == std::vector<int>(4)); /* nothing has run */
    EXPECT(cudaGraphInstantiate(&exec, graph, 0) == cudaSuccess);
    cudaGraphDestroy(graph);
    cudaGraphLaunch(exec, a);
    cudaGraphLaunch(exec, a);
    EXPECT(cudaStreamSynchronize(a) == cudaSuccess);
    EXPECT(test::to_host(x, 4) == (std::vector<int>{ 6, 6, 6, 0 }));
    EXPECT(test::to_host(y, 4) == (std::vector<int>{ 106, 106, 106, 103 }));
    cudaGraphExecDestroy(exec);

    /* A stream that is not joined back. */
    cudaStreamBeginCapture(a, cudaStreamCaptureModeGlobal);
    cudaEventRecord(forked, a);
    cudaStreamWaitEvent(b, forked);
    emulate_launch("add", 1, 4, 0, b, [=] { add_kernel(y, 1); });
    EXPECT(cudaStreamEndCapture(a, &graph) == cudaErrorStreamCaptureUnjoined && graph == nullptr);
    /* Waiting inside a capture spoils it; so does an event from outside. */
    cudaStreamBeginCapture(a, cudaStreamCaptureModeGlobal);
    EXPECT(cudaStreamSynchronize(a) == cudaErrorStreamCaptureUnsupported);
    EXPECT(cudaStreamEndCapture(a, &graph) == cudaErrorStreamCaptureInvalidated);
    cudaEventRecord(forked, b);
    cudaStreamBeginCapture(a, cudaStreamCaptureModeGlobal);
    EXPECT(cudaStreamWaitEvent(a, forked) == cudaErrorStreamCaptureIsolation);
    EXPECT(cudaStreamEndCapture(a, &graph) == cudaErrorStreamCaptureInvalidated);
    EXPECT(cudaStreamEndCapture(a, &graph) == cudaErrorStreamCaptureUnmatched);
    return true;
}

static bool copies()
{
    int local[4] = { 1, 2, 3, 4 }, back[4] = { 0, 0, 0, 0 }, *x;
    cudaMalloc(&x, sizeof local);
    EXPECT(cudaMemcpyAsync(x, local, sizeof local, cudaMemcpyDefault, nullptr) == cudaSuccess);
    local[0] = 9; /* pageable memory was read at the call */
    EXPECT(cudaMemcpyAsync(back, x, sizeof back, cudaMemcpyDefault, nullptr) == cudaSuccess);
    EXPECT(back[0] == 1 && back[3] == 4); /* and is written before it returns */
    EXPECT(cudaMemcpy(x, back, sizeof back, cudaMemcpyDeviceToHost) == cudaErrorInvalidValue);
    EXPECT(cudaPeekAtLastError() == cudaErrorInvalidValue);
    EXPECT(strcmp(cudaGetErrorName(cudaGetLastError()), "cudaErrorInvalidValue") == 0);
    EXPECT(cudaFree(x) == cudaSuccess && cudaFree(nullptr) == cudaSuccess);
    return true;
}
template <int extra> static bool copy_range()
{
    const std::vector<int> values((size_t)(16 + extra));
    int *x = test::to_device(std::vector<int>(16));
    return cudaMemcpy(x, values.data(), values.size() * sizeof(int), cudaMemcpyDefault) == cudaSuccess;
}
template <int times> static bool free_twice()
{
    int *x = test::to_device(std::vector<int>(16));
    for (int i = 0; i < times; i++)
        cudaFree(x);
    return true;
}

static bool limits()
{
    const auto nothing = [] {};
    EXPECT(emulate_launch("k", 0, 32, 0, nullptr, nothing) == cudaErrorInvalidConfiguration);
    EXPECT(emulate_launch("k", 1, 1025, 0, nullptr, nothing) == cudaErrorInvalidConfiguration);
    EXPECT(emulate_launch("k", 1, dim3(1, 1, 65), 0, nullptr, nothing) == cudaErrorInvalidConfiguration);
    EXPECT(emulate_launch("k", dim3(1, 65536), 32, 0, nullptr, nothing) == cudaErrorInvalidConfiguration);
    EXPECT(emulate_launch("k", 1, 32, 227 * 1024 + 1, nullptr, nothing) == cudaErrorInvalidValue);
    EXPECT(emulate_launch("k", 1, 1024, 227 * 1024, nullptr, nothing) == cudaSuccess);
    test::settings().shared_limit = 99 * 1024;
    EXPECT(emulate_launch("k", 1, 32, 100 * 1024, nullptr, nothing) == cudaErrorInvalidValue);
    cudaDeviceProp properties;
    EXPECT(cudaGetDeviceProperties(&properties, 0) == cudaSuccess);
    EXPECT(properties.sharedMemPerBlockOptin == 99 * 1024 && properties.major == 8);
    EXPECT(cudaSetDevice(1) == cudaErrorInvalidDevice);
    char address[32], little[4];
    EXPECT(cudaDeviceGetPCIBusId(address, sizeof address, 0) == cudaSuccess && !strcmp(address, "0000:00:00.0"));
    EXPECT(cudaDeviceGetPCIBusId(little, sizeof little, 0) == cudaErrorInvalidValue);
    EXPECT(cudaDeviceGetPCIBusId(address, sizeof address, 1) == cudaErrorInvalidDevice);
    return true;
}

/* Blocks over several host threads, each with shared memory and barriers: all run, once. */
__global__ void blocks_kernel(int *count, int *order)
{
    HS_SHARED(int, place, 1);
    if (threadIdx.x == 0)
        *place = atomicAdd(count, 1);
    __syncthreads();
    if (threadIdx.x == 63)
        order[*place] = (int)(blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z));
}
static bool blocks()
{
    const size_t total = 7 * 5 * 3;
    test::settings().threads = 3;
    int *count = test::to_device(std::vector<int>(1)), *order = test::to_device(std::vector<int>(total));
    for (int repeat = 0; repeat < 20; repeat++) {
        cudaMemset(count, 0, sizeof(int));
        test::launch(blocks_kernel, dim3(7, 5, 3), 64, 0, count, order);
        std::vector<int> seen(total);
        for (int block : test::to_host(order, total))
            seen[(size_t)block]++;
        EXPECT(seen == std::vector<int>(total, 1));
    }
    return true;
}

/* Work that another process has to finish: queries and copies of other streams pass it by, and a wait continues until
 * it is done. */
static bool advancing()
{
    cudaStream_t a, b;
    cudaEvent_t reached;
    cudaPointerAttributes attributes;
    int *log = test::to_device(std::vector<int>{ 1, 0, 0, 0 });
    int asked = 0, waited = 0, number = 0, *pinned = nullptr;
    cudaStreamCreateWithFlags(&a, cudaStreamNonBlocking);
    cudaStreamCreateWithFlags(&b, cudaStreamNonBlocking);
    cudaEventCreateWithFlags(&reached, cudaEventDefault);
    cudaMallocHost(&pinned, sizeof *pinned);
    launch_append(log, 10, a);
    stream_access()->enqueue(a, [&](bool wait) {
        asked++;
        waited += wait;
        return waited == 3;
    });
    launch_append(log, 20, a);
    stream_access()->follow(b, a);
    cudaEventRecord(reached, a);
    stream_access()->progress(a);
    for (int i = 0; i < 5; i++)
        EXPECT(cudaStreamQuery(b) == cudaErrorNotReady && cudaEventQuery(reached) == cudaErrorNotReady);
    EXPECT(asked >= 10 && waited == 0);
    EXPECT(test::to_host(log, 3) == (std::vector<int>{ 2, 10, 0 }));
    EXPECT(cudaStreamSynchronize(b) == cudaSuccess && waited == 3);
    EXPECT(cudaEventQuery(reached) == cudaErrorNotReady && cudaEventQuery(reached) == cudaSuccess);
    EXPECT(test::to_host(log, 3) == (std::vector<int>{ 3, 10, 20 }));
    EXPECT(cudaPointerGetAttributes(&attributes, log + 1) == cudaSuccess && attributes.type == cudaMemoryTypeDevice);
    EXPECT(cudaPointerGetAttributes(&attributes, pinned) == cudaSuccess && attributes.type == cudaMemoryTypeHost);
    EXPECT(cudaPointerGetAttributes(&attributes, &number) == cudaSuccess);
    EXPECT(attributes.type == cudaMemoryTypeUnregistered);
    EXPECT(stream_access()->holds(log, 4 * sizeof *log) && !stream_access()->holds(log, 5 * sizeof *log));
    cudaFreeHost(pinned);
    cudaStreamDestroy(a);
    cudaStreamDestroy(b);
    return true;
}

} // namespace hs_emu

int main()
{
    using namespace hs_emu;
    test::holds("events and order", events_and_order);
    test::holds("graphs", graphs);
    test::holds("copies", copies);
    test::finds("copy past the end", "past the end", copy_range<0>, copy_range<1>);
    test::finds("freed twice", "freed twice", free_twice<1>, free_twice<2>);
    test::holds("limits of launches", limits);
    test::holds("work of other processes", advancing);
    test::holds("blocks over host threads", blocks);
    return test::result();
}
