/* SPDX-License-Identifier: MIT
 *
 * The emulated device and the runtime's errors.
 */
#include "kernels/emu/settings.h"
#include "kernels/emu/stream.h"

#include <stdio.h>
#include <unistd.h>

namespace hs_emu
{
namespace emulator
{

static __thread cudaError_t last_error;

cudaError_t remember(cudaError_t error)
{
    if (last_error == cudaSuccess)
        last_error = error;
    return error;
}

static const struct {
    cudaError_t error;
    const char *name, *meaning;
} ERRORS[] = {
    { cudaSuccess, "cudaSuccess", "no error" },
    { cudaErrorInvalidValue, "cudaErrorInvalidValue", "invalid argument" },
    { cudaErrorMemoryAllocation, "cudaErrorMemoryAllocation", "out of memory" },
    { cudaErrorInvalidConfiguration, "cudaErrorInvalidConfiguration", "invalid configuration argument" },
    { cudaErrorInsufficientDriver, "cudaErrorInsufficientDriver", "the driver is too old" },
    { cudaErrorNoDevice, "cudaErrorNoDevice", "no device" },
    { cudaErrorInvalidDevice, "cudaErrorInvalidDevice", "invalid device ordinal" },
    { cudaErrorInvalidResourceHandle, "cudaErrorInvalidResourceHandle", "invalid resource handle" },
    { cudaErrorNotReady, "cudaErrorNotReady", "not ready" },
    { cudaErrorNotSupported, "cudaErrorNotSupported", "not supported" },
    { cudaErrorStreamCaptureUnsupported, "cudaErrorStreamCaptureUnsupported", "not permitted while capturing" },
    { cudaErrorStreamCaptureInvalidated, "cudaErrorStreamCaptureInvalidated", "the capture failed earlier" },
    { cudaErrorStreamCaptureUnmatched, "cudaErrorStreamCaptureUnmatched", "the stream does not begin this capture" },
    { cudaErrorStreamCaptureUnjoined, "cudaErrorStreamCaptureUnjoined", "a forked stream was not joined" },
    { cudaErrorStreamCaptureIsolation, "cudaErrorStreamCaptureIsolation", "a dependence on work outside the capture" },
    { cudaErrorCapturedEvent, "cudaErrorCapturedEvent", "the event was last recorded in a capture" },
    { cudaErrorStreamCaptureWrongThread, "cudaErrorStreamCaptureWrongThread", "the capture began on another thread" },
};

static size_t total_memory()
{
    return (size_t)sysconf(_SC_PHYS_PAGES) * (size_t)sysconf(_SC_PAGESIZE);
}

} // namespace emulator

using namespace emulator;

const char *cudaGetErrorName(cudaError_t error)
{
    for (const auto &row : ERRORS)
        if (row.error == error)
            return row.name;
    return "unknown error";
}
const char *cudaGetErrorString(cudaError_t error)
{
    for (const auto &row : ERRORS)
        if (row.error == error)
            return row.meaning;
    return "unknown error";
}
cudaError_t cudaGetLastError()
{
    const cudaError_t error = last_error;
    last_error = cudaSuccess;
    return error;
}
cudaError_t cudaPeekAtLastError()
{
    return last_error;
}

cudaError_t cudaGetDeviceCount(int *count)
{
    *count = 1;
    return cudaSuccess;
}
cudaError_t cudaGetDevice(int *device)
{
    *device = 0;
    return cudaSuccess;
}
cudaError_t cudaSetDevice(int device)
{
    return device == 0 ? cudaSuccess : remember(cudaErrorInvalidDevice);
}
cudaError_t cudaGetDeviceProperties(cudaDeviceProp *properties, int device)
{
    if (device != 0)
        return remember(cudaErrorInvalidDevice);
    *properties = cudaDeviceProp();
    cudaDeviceProp &p = *properties;
    snprintf(p.name, sizeof p.name, "emulated");
    p.totalGlobalMem = total_memory();
    p.sharedMemPerBlock = 48 * 1024;
    p.sharedMemPerBlockOptin = settings().shared_limit;
    p.sharedMemPerMultiprocessor = settings().shared_limit + 1024;
    p.reservedSharedMemPerBlock = 1024;
    p.regsPerBlock = p.regsPerMultiprocessor = 65536;
    p.warpSize = 32;
    p.maxThreadsPerBlock = 1024;
    p.maxThreadsPerMultiProcessor = 2048;
    p.maxBlocksPerMultiProcessor = 32;
    p.maxThreadsDim[0] = p.maxThreadsDim[1] = 1024;
    p.maxThreadsDim[2] = 64;
    p.maxGridSize[0] = 0x7fffffff;
    p.maxGridSize[1] = p.maxGridSize[2] = 65535;
    p.major = settings().shared_limit >= 227 * 1024 ? 9 : 8; /* the shared memory shows which GPU this is */
    p.minor = settings().shared_limit < 163 * 1024 ? 9 : 0;
    p.multiProcessorCount = 4;
    p.l2CacheSize = 4 << 20;
    p.memoryBusWidth = 256;
    p.concurrentKernels = 1;
    p.asyncEngineCount = 1;
    return cudaSuccess;
}

/* On no bus: an address that no card has. */
cudaError_t cudaDeviceGetPCIBusId(char *address, int room, int device)
{
    if (device != 0)
        return remember(cudaErrorInvalidDevice);
    const int length = snprintf(address, room > 0 ? (size_t)room : 0, "0000:00:00.0");
    return length < room ? cudaSuccess : remember(cudaErrorInvalidValue);
}

/* From the properties, so that the two agree. */
cudaError_t cudaDeviceGetAttribute(int *value, cudaDeviceAttr attribute, int device)
{
    cudaDeviceProp p;
    const cudaError_t error = cudaGetDeviceProperties(&p, device);
    if (error != cudaSuccess)
        return error;
    const struct {
        cudaDeviceAttr attribute;
        size_t value;
    } attributes[] = {
        { cudaDevAttrMaxThreadsPerBlock, (size_t)p.maxThreadsPerBlock },
        { cudaDevAttrMaxSharedMemoryPerBlock, p.sharedMemPerBlock },
        { cudaDevAttrWarpSize, (size_t)p.warpSize },
        { cudaDevAttrClockRate, 1000000 },
        { cudaDevAttrMultiProcessorCount, (size_t)p.multiProcessorCount },
        { cudaDevAttrMemoryClockRate, 1000000 },
        { cudaDevAttrGlobalMemoryBusWidth, (size_t)p.memoryBusWidth },
        { cudaDevAttrL2CacheSize, (size_t)p.l2CacheSize },
        { cudaDevAttrMaxThreadsPerMultiProcessor, (size_t)p.maxThreadsPerMultiProcessor },
        { cudaDevAttrComputeCapabilityMajor, (size_t)p.major },
        { cudaDevAttrComputeCapabilityMinor, (size_t)p.minor },
        { cudaDevAttrMaxSharedMemoryPerMultiprocessor, p.sharedMemPerMultiprocessor },
        { cudaDevAttrMaxSharedMemoryPerBlockOptin, p.sharedMemPerBlockOptin },
    };
    for (const auto &row : attributes)
        if (row.attribute == attribute) {
            *value = (int)row.value;
            return cudaSuccess;
        }
    return remember(cudaErrorInvalidValue);
}

cudaError_t cudaDriverGetVersion(int *version)
{
    *version = CUDART_VERSION;
    return cudaSuccess;
}
cudaError_t cudaRuntimeGetVersion(int *version)
{
    *version = CUDART_VERSION;
    return cudaSuccess;
}
cudaError_t cudaMemGetInfo(size_t *available, size_t *total)
{
    *total = total_memory();
    *available = (size_t)sysconf(_SC_AVPHYS_PAGES) * (size_t)sysconf(_SC_PAGESIZE);
    return cudaSuccess;
}
cudaError_t cudaFuncSetAttribute(const void *, cudaFuncAttribute, int)
{
    return cudaSuccess;
}

} // namespace hs_emu
