/* SPDX-License-Identifier: MIT
 *
 * A GPU as an HsDevice: memory, copies, streams, events, graphs, profiler ranges; and the check of every launch.
 *
 * Copies go through cudaMemcpyDefault: the driver knows from the address which side is which.  Pageable host memory is
 * staged before the call returns, pinned memory (host_alloc) is read while the host continues.
 */
#include "kernels/cuda/device/device.cuh"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "kernels/cuda/toolbox/launch.cuh"

extern "C" {
#include "kernels/base/clock.h"
}

#ifndef HS_EMU
#include <nvtx3/nvToolsExt.h>
#endif

namespace HS_CUDA_NAMESPACE
{

namespace
{

/* The kernels use cp.async and mma.sync on bf16: Ampere and later. */
enum { OLDEST_CAPABILITY = 80 };

struct Allocation {
    void *pointer;
    size_t bytes;
    Allocation *next;
};

struct Implementation {
    HsCudaOptions options;
    DeviceLimits limits;
    Products *products;
    void (*release_products)(Products *products);
    Watch watch;
    char name[16];
    Allocation *allocations; /* cudaFree does not tell how much it gave back */
};

struct Graph {
    cudaGraph_t graph;
    cudaGraphExec_t executable;
};

Implementation &implementation_of(const HsDevice *device)
{
    return *static_cast<Implementation *>(device->implementation);
}

HsStatus check(cudaError_t error, const char *what)
{
    if (error == cudaSuccess)
        return HS_OK;
    return hs_fail(error == cudaErrorMemoryAllocation ? HS_ENOMEM : HS_EDEVICE, "%s: %s", what,
                   cudaGetErrorString(error));
}

cudaStream_t stream_from(HsStream *stream)
{
    return reinterpret_cast<cudaStream_t>(stream);
}

cudaEvent_t event_from(HsEvent *event)
{
    return reinterpret_cast<cudaEvent_t>(event);
}

HsStatus device_alloc(HsDevice *device, size_t bytes, void **pointer)
{
    *pointer = nullptr;
    Allocation *allocation = static_cast<Allocation *>(malloc(sizeof *allocation));
    if (allocation == nullptr)
        return hs_fail(HS_ENOMEM, "no memory for a list of allocations, %zu bytes", sizeof *allocation);
    const cudaError_t error = cudaMalloc(pointer, bytes > 0 ? bytes : 1);
    if (error != cudaSuccess) {
        free(allocation);
        size_t available = 0, total = 0;
        cudaGetLastError(); /* reported here: the next launch must not find it */
        cudaMemGetInfo(&available, &total);
        return hs_fail(error == cudaErrorMemoryAllocation ? HS_ENOMEM : HS_EDEVICE,
                       "%zu bytes on %s: %s; %zu of its %zu bytes are free; see with `trainer plan` what takes less",
                       bytes, device->name, cudaGetErrorString(error), available, total);
    }
    *allocation = Allocation{ *pointer, bytes, implementation_of(device).allocations };
    implementation_of(device).allocations = allocation;
    device->current_bytes += bytes;
    if (device->current_bytes > device->peak_bytes)
        device->peak_bytes = device->current_bytes;
    return HS_OK;
}

void device_release(HsDevice *device, void *pointer)
{
    Allocation **link = &implementation_of(device).allocations;
    while (*link != nullptr && (*link)->pointer != pointer)
        link = &(*link)->next;
    if (*link == nullptr)
        return;
    Allocation *found = *link;
    *link = found->next;
    device->current_bytes -= found->bytes;
    cudaFree(pointer); /* waits for the work that uses it */
    free(found);
}

HsStatus device_free_memory(const HsDevice *, size_t *free_bytes)
{
    size_t total = 0;
    return check(cudaMemGetInfo(free_bytes, &total), "asking for free memory");
}

/* With a watch the host asks, and sleeps for a moment between two questions; else the driver waits. */
template <typename Ask, typename Wait> HsStatus wait_watched(const Watch &watch, const char *what, Ask ask, Wait wait)
{
    if (watch.look == nullptr)
        return check(wait(), what);
    const double start = hs_clock_s();
    for (int turn = 0;; turn++) {
        const cudaError_t error = ask();
        if (error != cudaErrorNotReady)
            return check(error, what);
        cudaGetLastError(); /* which is no error: the next launch must not find it */
        HS_TRY(watch.look(watch.watcher, hs_clock_s() - start));
        if (turn >= 16)
            usleep(20);
    }
}

HsStatus wait_for_event(const HsDevice *device, HsEvent *event)
{
    return wait_watched(
        implementation_of(device).watch, "waiting for an event", [=] { return cudaEventQuery(event_from(event)); },
        [=] { return cudaEventSynchronize(event_from(event)); });
}

/* Copies from and to pageable memory wait for the stream in the driver, where no watch is. */
HsStatus wait_before_copy(const HsDevice *device, HsStream *stream, const void *destination, const void *source)
{
    if (implementation_of(device).watch.look == nullptr)
        return HS_OK;
    for (const void *pointer : { destination, source }) {
        cudaPointerAttributes attributes;
        HS_TRY(check(cudaPointerGetAttributes(&attributes, pointer), "asking which memory a pointer is in"));
        if (attributes.type == cudaMemoryTypeUnregistered)
            return wait_for_stream(device, stream_from(stream));
    }
    return HS_OK;
}

HsStatus device_copy(HsDevice *device, HsStream *stream, void *destination, const void *source, size_t bytes)
{
    if (bytes == 0)
        return HS_OK;
    HS_TRY(wait_before_copy(device, stream, destination, source));
    return check(cudaMemcpyAsync(destination, source, bytes, cudaMemcpyDefault, stream_from(stream)), "copy");
}

HsStatus device_fill_zero(HsDevice *, HsStream *stream, void *pointer, size_t bytes)
{
    return bytes == 0 ? HS_OK : check(cudaMemsetAsync(pointer, 0, bytes, stream_from(stream)), "filling with zero");
}

HsStatus device_stream_create(HsDevice *, HsStream **stream)
{
    cudaStream_t created = nullptr;
    HS_TRY(check(cudaStreamCreateWithFlags(&created, cudaStreamNonBlocking), "creating a stream"));
    *stream = reinterpret_cast<HsStream *>(created);
    return HS_OK;
}

void device_stream_destroy(HsDevice *, HsStream *stream)
{
    if (stream != nullptr)
        cudaStreamDestroy(stream_from(stream));
}

HsStatus device_stream_sync(HsDevice *device, HsStream *stream)
{
    return wait_for_stream(device, stream_from(stream));
}

HsStatus device_event_create(HsDevice *, HsEvent **event)
{
    cudaEvent_t created = nullptr;
    HS_TRY(check(cudaEventCreateWithFlags(&created, cudaEventDefault), "creating an event"));
    *event = reinterpret_cast<HsEvent *>(created);
    return HS_OK;
}

void device_event_destroy(HsDevice *, HsEvent *event)
{
    if (event != nullptr)
        cudaEventDestroy(event_from(event));
}

HsStatus device_event_record(HsDevice *, HsEvent *event, HsStream *stream)
{
    return check(cudaEventRecord(event_from(event), stream_from(stream)), "recording an event");
}

HsStatus device_event_elapsed_ms(HsDevice *device, HsEvent *start, HsEvent *stop, double *milliseconds)
{
    float elapsed = 0.0f;
    HS_TRY(wait_for_event(device, stop));
    HS_TRY(check(cudaEventElapsedTime(&elapsed, event_from(start), event_from(stop)), "reading events"));
    *milliseconds = (double)elapsed;
    return HS_OK;
}

HsStatus device_event_sync(HsDevice *device, HsEvent *event)
{
    return wait_for_event(device, event);
}

HsStatus device_stream_wait(HsDevice *, HsStream *stream, HsEvent *event)
{
    return check(cudaStreamWaitEvent(stream_from(stream), event_from(event), 0), "waiting for an event");
}

HsStatus device_host_alloc(HsDevice *, size_t bytes, void **pointer)
{
    return check(cudaMallocHost(pointer, bytes > 0 ? bytes : 1), "pinned host memory");
}

void device_host_release(HsDevice *, void *pointer)
{
    if (pointer != nullptr)
        cudaFreeHost(pointer);
}

HsStatus device_graph_begin(HsDevice *, HsStream *stream)
{
    return check(cudaStreamBeginCapture(stream_from(stream), cudaStreamCaptureModeThreadLocal), "recording a graph");
}

HsStatus device_graph_end(HsDevice *, HsStream *stream, HsGraph **graph)
{
    *graph = nullptr;
    Graph *made = static_cast<Graph *>(calloc(1, sizeof *made));
    if (made == nullptr)
        return hs_fail(HS_ENOMEM, "no memory for a graph, %zu bytes", sizeof *made);
    HsStatus status = check(cudaStreamEndCapture(stream_from(stream), &made->graph), "recording a graph");
    if (status == HS_OK)
        status = check(cudaGraphInstantiate(&made->executable, made->graph, 0), "instantiating a graph");
    if (status != HS_OK) {
        if (made->graph != nullptr)
            cudaGraphDestroy(made->graph);
        free(made);
        return status;
    }
    *graph = reinterpret_cast<HsGraph *>(made);
    return HS_OK;
}

HsStatus device_graph_launch(HsDevice *, HsGraph *graph, HsStream *stream)
{
    return check(cudaGraphLaunch(reinterpret_cast<Graph *>(graph)->executable, stream_from(stream)),
                 "launching a graph");
}

void device_graph_destroy(HsDevice *, HsGraph *graph)
{
    Graph *made = reinterpret_cast<Graph *>(graph);
    if (made == nullptr)
        return;
    cudaGraphExecDestroy(made->executable);
    cudaGraphDestroy(made->graph);
    free(made);
}

/* Nothing happens unless a profiler is attached: it puts its library behind these calls. */
void device_range_push(HsDevice *, const char *name)
{
#ifndef HS_EMU
    nvtxRangePushA(name);
#else
    (void)name;
#endif
}

void device_range_pop(HsDevice *)
{
#ifndef HS_EMU
    nvtxRangePop();
#endif
}

void device_deinit(HsDevice *device)
{
    while (implementation_of(device).allocations != nullptr)
        device_release(device, implementation_of(device).allocations->pointer);
    if (implementation_of(device).release_products != nullptr)
        implementation_of(device).release_products(implementation_of(device).products);
    free(device->implementation);
    device->implementation = nullptr;
}

/* Why there is no GPU to use, in words that say what to do. */
HsStatus check_driver(int index)
{
    int count = 0;
    const cudaError_t error = cudaGetDeviceCount(&count);
    if (error == cudaErrorInsufficientDriver) {
        int driver = 0, runtime = 0;
        cudaDriverGetVersion(&driver);
        cudaRuntimeGetVersion(&runtime);
        if (driver == 0)
            return hs_fail(HS_EUNSUPPORTED, "no NVIDIA driver is installed");
        return hs_fail(HS_EUNSUPPORTED,
                       "the NVIDIA driver supports CUDA %d.%d, this build needs %d.%d: update the driver",
                       driver / 1000, driver % 1000 / 10, runtime / 1000, runtime % 1000 / 10);
    }
    if (error == cudaErrorNoDevice || (error == cudaSuccess && count == 0))
        return hs_fail(HS_EUNSUPPORTED, "the NVIDIA driver finds no GPU (CUDA_VISIBLE_DEVICES hides them all?)");
    if (error != cudaSuccess)
        return hs_fail(HS_EUNSUPPORTED, "CUDA does not start: %s", cudaGetErrorString(error));
    if (index >= count)
        return hs_fail(
            HS_EUNSUPPORTED,
            "GPU %d is not there: %d found, counted from 0; name another as device, or start fewer processes", index,
            count);
    return HS_OK;
}

/* The clock that predictions and datasheets have: the boost clock of a card that is known, which a card may exceed while
 * little of it works.  multiprocessors: the GPU's own. */
double nominal_clock(int capability, int multiprocessors, double highest)
{
    for (int i = 0; i < hs_card_count; i++)
        if (hs_cards[i].compute_capability == capability && hs_cards[i].multiprocessors == multiprocessors)
            return 1e9 * hs_cards[i].clock_ghz;
    return highest;
}

/* Nominal rates; memory moves data twice a clock. */
HsStatus read_rates(int index, int multiprocessors, DeviceLimits *limits)
{
    int clock_khz = 0, memory_khz = 0, width_bits = 0;
    HS_TRY(check(cudaDeviceGetAttribute(&clock_khz, cudaDevAttrClockRate, index), "reading the GPU's clock"));
    HS_TRY(check(cudaDeviceGetAttribute(&memory_khz, cudaDevAttrMemoryClockRate, index), "reading its memory's clock"));
    HS_TRY(check(cudaDeviceGetAttribute(&width_bits, cudaDevAttrGlobalMemoryBusWidth, index), "reading its bus"));
    limits->clock_hz = nominal_clock(limits->compute_capability, multiprocessors, 1e3 * clock_khz);
    limits->bytes_per_second = 2.0 * 1e3 * memory_khz * width_bits / 8.0;
    return HS_OK;
}

/* multiprocessors: the GPU's own. */
HsStatus lay_out(int multiprocessors, DeviceLimits *limits)
{
    const int most = 4096;
    const char *const text = getenv("HALFSTEP_MULTIPROCESSORS");
    limits->multiprocessors = multiprocessors;
    if (text == nullptr)
        return HS_OK;
    char *end;
    const long wanted = strtol(text, &end, 10);
    if (end == text || *end != '\0' || wanted < 1 || wanted > most)
        return hs_fail(HS_ECONFIG, "HALFSTEP_MULTIPROCESSORS=%.40s: give a number from 1 to %d", text, most);
    limits->multiprocessors = (int)wanted;
    return HS_OK;
}

/* For measurements: what matmul_hopper_epilogue.cuh says of both ways. */
/* Whether a variable says `other`, and not `usual`. */
HsStatus read_choice(const char *variable, const char *usual, const char *other, bool *is_other)
{
    const char *const text = getenv(variable);
    *is_other = text != nullptr && strcmp(text, other) == 0;
    if (text != nullptr && !*is_other && strcmp(text, usual) != 0)
        return hs_fail(HS_ECONFIG, "%s=%.40s: say %s or %s", variable, text, usual, other);
    return HS_OK;
}

HsStatus choose_epilogues(DeviceLimits *limits)
{
    HS_TRY(read_choice("HALFSTEP_HOPPER_STORES", "lines", "copies", &limits->hopper_copies));
    return read_choice("HALFSTEP_GATES", "epilogue", "apart", &limits->gates_apart);
}

HsStatus allow_hopper(const HsCudaOptions &options, DeviceLimits *limits)
{
    const HsHopperUse use = options.hopper;
    const bool hopper = limits->compute_capability == 90;
    if (!hopper && use != HS_HOPPER_ALL)
        return hs_fail(
            HS_ECONFIG,
            "kernels.hopper chooses where the kernels for compute capability 9.0 are used, and %s has %d.%d: "
            "leave it out",
            limits->name, limits->compute_capability / 10, limits->compute_capability % 10);
    limits->hopper_products = hopper && (use == HS_HOPPER_ALL || use == HS_HOPPER_PRODUCTS);
    limits->hopper_attention = hopper && (use == HS_HOPPER_ALL || use == HS_HOPPER_ATTENTION);
    if (options.unordered && !limits->hopper_attention)
        return hs_fail(HS_ECONFIG,
                       "kernels.deterministic: false saves waits in attention's kernels for compute capability 9.0 "
                       "alone, which this run on %s does not use: leave it out",
                       limits->name);
    return HS_OK;
}

HsStatus read_properties(HsDevice *device, Implementation *implementation)
{
    cudaDeviceProp properties;
    const int index = implementation->options.index;
    HS_TRY(check(cudaSetDevice(index), "choosing the GPU"));
    HS_TRY(check(cudaGetDeviceProperties(&properties, index), "reading the GPU's properties"));
    const int capability = properties.major * 10 + properties.minor;
    if (capability < OLDEST_CAPABILITY)
        return hs_fail(HS_EUNSUPPORTED, "%s has compute capability %d.%d; the kernels need 8.0 (Ampere) or later",
                       properties.name, properties.major, properties.minor);
    DeviceLimits &limits = implementation->limits;
    snprintf(limits.name, sizeof limits.name, "%.63s", properties.name);
    limits.compute_capability = capability;
    HS_TRY(lay_out(properties.multiProcessorCount, &limits));
    limits.block_shared_bytes = properties.sharedMemPerBlockOptin;
    limits.multiprocessor_shared_bytes = properties.sharedMemPerMultiprocessor;
    HS_TRY(read_rates(index, properties.multiProcessorCount, &limits));
    HS_TRY(choose_epilogues(&limits));
    if (implementation->options.card != nullptr)
        play_card(*implementation->options.card, &limits);
    HS_TRY(allow_hopper(implementation->options, &limits));
    HS_TRY(
        check(cudaDeviceGetPCIBusId(device->bus_id, sizeof device->bus_id, index), "asking for the GPU's PCI address"));
    device->memory_bytes = properties.totalGlobalMem;
    snprintf(device->description, sizeof device->description, "%.60s, compute capability %d.%d, %zu MiB",
             properties.name, properties.major, properties.minor, properties.totalGlobalMem >> 20);
    if (limits.multiprocessors != properties.multiProcessorCount) {
        const size_t used = strlen(device->description);
        snprintf(device->description + used, sizeof device->description - used,
                 ", laid out for %d multiprocessors instead of %d", limits.multiprocessors,
                 properties.multiProcessorCount);
    }
    return HS_OK;
}

} // namespace

void play_card(const HsCard &card, DeviceLimits *limits)
{
    snprintf(limits->name, sizeof limits->name, "%s", card.name);
    limits->compute_capability = card.compute_capability;
    limits->multiprocessors = card.multiprocessors;
    limits->clock_hz = 1e9 * card.clock_ghz;
    limits->bytes_per_second = 1e9 * card.gigabytes_per_second;
    limits->block_shared_bytes = (size_t)hs_card_shared_kib(card.compute_capability) * 1024;
    limits->multiprocessor_shared_bytes = limits->block_shared_bytes + 1024;
}

HsStatus open_device(HsDevice *device, const HsCudaOptions *options, const char *kind)
{
    HS_TRY(check_driver(options->index));
    Implementation *implementation = static_cast<Implementation *>(calloc(1, sizeof *implementation));
    if (implementation == nullptr)
        return hs_fail(HS_ENOMEM, "no memory for a device, %zu bytes", sizeof *implementation);
    implementation->options = *options;
    snprintf(implementation->name, sizeof implementation->name, "%s:%d", kind, options->index);
    memset(device, 0, sizeof *device);
    HsStatus status = read_properties(device, implementation);
    if (status != HS_OK) {
        free(implementation);
        return status;
    }
    device->name = implementation->name;
    device->host_accessible = 0;
    device->implementation = implementation;
    device->alloc = device_alloc;
    device->release = device_release;
    device->copy = device_copy;
    device->fill_zero = device_fill_zero;
    device->stream_create = device_stream_create;
    device->stream_destroy = device_stream_destroy;
    device->stream_sync = device_stream_sync;
    device->event_create = device_event_create;
    device->event_destroy = device_event_destroy;
    device->event_record = device_event_record;
    device->event_elapsed_ms = device_event_elapsed_ms;
    device->event_sync = device_event_sync;
    device->stream_wait = device_stream_wait;
    device->host_alloc = device_host_alloc;
    device->host_release = device_host_release;
    device->graph_begin = device_graph_begin;
    device->graph_end = device_graph_end;
    device->graph_launch = device_graph_launch;
    device->graph_destroy = device_graph_destroy;
    device->range_push = device_range_push;
    device->range_pop = device_range_pop;
    device->free_memory = device_free_memory;
    device->deinit = device_deinit;
    return HS_OK;
}

const DeviceLimits &limits_of(const HsContext *context)
{
    return device_limits(context->device);
}

const DeviceLimits &device_limits(const HsDevice *device)
{
    return implementation_of(device).limits;
}

Products *device_products(const HsDevice *device)
{
    return implementation_of(device).products;
}

void hang_products(HsDevice *device, Products *products, void (*release)(Products *products))
{
    implementation_of(device).products = products;
    implementation_of(device).release_products = release;
}

void hang_watch(HsDevice *device, Watch watch)
{
    implementation_of(device).watch = watch;
}

HsStatus wait_for_stream(const HsDevice *device, cudaStream_t stream)
{
    return wait_watched(
        implementation_of(device).watch, "waiting for the device", [=] { return cudaStreamQuery(stream); },
        [=] { return cudaStreamSynchronize(stream); });
}

HsStatus is_on_device(const void *pointer, bool *on_device)
{
    cudaPointerAttributes attributes;
    HS_TRY(check(cudaPointerGetAttributes(&attributes, pointer), "asking which memory a pointer is in"));
    *on_device = attributes.type == cudaMemoryTypeDevice || attributes.type == cudaMemoryTypeManaged;
    return HS_OK;
}

const HsCudaOptions &device_options(const HsDevice *device)
{
    return implementation_of(device).options;
}

const HsCudaOptions &options_of(const HsContext *context)
{
    return device_options(context->device);
}

bool kernels_may_overlap(const HsContext *context)
{
    const HsCudaOptions &options = options_of(context);
    return limits_of(context).compute_capability >= 90 && !options.sync_launch && !options.no_overlap;
}

HsStatus check_launch(const HsContext *context, const char *name, dim3 grid, dim3 block, size_t shared_bytes,
                      cudaError_t error)
{
    if (error == cudaSuccess && options_of(context).sync_launch)
        error = cudaStreamSynchronize(stream_of(context));
    if (error == cudaSuccess)
        return HS_OK;
    return hs_fail(HS_EDEVICE, "kernel %s, grid %u x %u x %u, block %u x %u x %u, %zu bytes of shared memory: %s", name,
                   grid.x, grid.y, grid.z, block.x, block.y, block.z, shared_bytes, cudaGetErrorString(error));
}

} // namespace HS_CUDA_NAMESPACE
