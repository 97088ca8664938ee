/* SPDX-License-Identifier: MIT
 *
 * Copies and fills, in stream order.  From pageable host memory the bytes are taken at the call, to pageable host
 * memory the call waits (CUDA, "API synchronization behavior"); pinned memory is read and written when the stream
 * comes to it, however late.
 */
#include "kernels/emu/memory.h"
#include "kernels/emu/stream.h"

#include <string.h>

#include "kernels/emu/fault.h"

namespace hs_emu
{

using namespace emulator;
typedef std::lock_guard<std::recursive_mutex> Hold;

/* Device and pinned memory are known; whether pageable memory is there shows when it is touched. */
static void check_range(const char *function, const void *pointer, size_t bytes)
{
    if (memory_kind(pointer) == MemoryKind::PAGEABLE) {
        char text[512];
        if (memory_describe(pointer, text, sizeof text))
            fault("%s: %zu bytes at %p: %s", function, bytes, pointer, text);
    } else if (!memory_holds(pointer, bytes)) {
        char text[512] = "beyond its allocation";
        memory_describe(static_cast<const char *>(pointer) + bytes - 1, text, sizeof text);
        fault("%s: %zu bytes at %p: the last is %s", function, bytes, pointer, text);
    }
}

/* Whether a copy's stated direction is that of its pointers. */
static bool direction_fits(cudaMemcpyKind kind, MemoryKind destination, MemoryKind source)
{
    const bool to_device = destination == MemoryKind::DEVICE, from_device = source == MemoryKind::DEVICE;
    switch (kind) {
    case cudaMemcpyHostToHost:
        return !to_device && !from_device;
    case cudaMemcpyHostToDevice:
        return to_device && !from_device;
    case cudaMemcpyDeviceToHost:
        return !to_device && from_device;
    case cudaMemcpyDeviceToDevice:
        return to_device && from_device;
    case cudaMemcpyDefault:
        return true;
    }
    return false;
}

cudaError_t cudaMemcpyAsync(void *destination, const void *source, size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t stream)
{
    if (bytes == 0)
        return cudaSuccess;
    Hold hold(stream_lock());
    Stream &target = stream_of(stream);
    check_range("cudaMemcpyAsync to", destination, bytes);
    check_range("cudaMemcpyAsync from", source, bytes);
    const MemoryKind to = memory_kind(destination), from = memory_kind(source);
    if (!direction_fits(kind, to, from))
        return remember(cudaErrorInvalidValue);
    if (from == MemoryKind::PAGEABLE && target.capture == nullptr) {
        const char *first = static_cast<const char *>(source);
        const auto staged = std::make_shared<std::vector<char>>(first, first + bytes);
        enqueue(target, [=] { memcpy(destination, staged->data(), bytes); });
    } else {
        enqueue(target, [=] { memmove(destination, source, bytes); });
    }
    return to == MemoryKind::PAGEABLE && target.capture == nullptr ? cudaStreamSynchronize(stream) : cudaSuccess;
}

cudaError_t cudaMemcpy(void *destination, const void *source, size_t bytes, cudaMemcpyKind kind)
{
    const cudaError_t error = cudaMemcpyAsync(destination, source, bytes, kind, nullptr);
    return error != cudaSuccess ? error : cudaStreamSynchronize(nullptr);
}

cudaError_t cudaMemsetAsync(void *pointer, int value, size_t bytes, cudaStream_t stream)
{
    if (bytes == 0)
        return cudaSuccess;
    Hold hold(stream_lock());
    check_range("cudaMemsetAsync", pointer, bytes);
    enqueue(stream_of(stream), [=] { memset(pointer, value, bytes); });
    return cudaSuccess;
}

cudaError_t cudaMemset(void *pointer, int value, size_t bytes)
{
    return cudaMemsetAsync(pointer, value, bytes, nullptr);
}

} // namespace hs_emu
