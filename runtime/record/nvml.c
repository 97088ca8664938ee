/* SPDX-License-Identifier: MIT
 *
 * The only file that knows NVML.  The few declarations of its C interface that are used are written out here, from its
 * documentation: the header need not be installed.  The names below are those of the first versions of each function,
 * which every driver since has kept, but for the two that end in _v2.
 *
 * Units of the library: bytes, percent, milliwatts, degrees Celsius.
 */
#include "runtime/record/nvml.h"

#include <dlfcn.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct NvmlDevice NvmlDevice; /* opaque */

typedef struct NvmlMemory {
    unsigned long long total, free, used;
} NvmlMemory;

typedef struct NvmlUtilization {
    unsigned int gpu, memory; /* percent of the sampling period */
} NvmlUtilization;

enum { NVML_SUCCESS_CODE = 0, NVML_SENSOR_GPU = 0 };

/* name in the library, result, parameters */
#define NVML_FUNCTIONS(X)                                                     \
    X(nvmlInit_v2, int, (void))                                               \
    X(nvmlShutdown, int, (void))                                              \
    X(nvmlErrorString, const char *, (int))                                   \
    X(nvmlDeviceGetHandleByPciBusId_v2, int, (const char *, NvmlDevice **))   \
    X(nvmlDeviceGetMemoryInfo, int, (NvmlDevice *, NvmlMemory *))             \
    X(nvmlDeviceGetUtilizationRates, int, (NvmlDevice *, NvmlUtilization *))  \
    X(nvmlDeviceGetPowerUsage, int, (NvmlDevice *, unsigned int *milliwatts)) \
    X(nvmlDeviceGetTemperature, int, (NvmlDevice *, int sensor, unsigned int *celsius))

struct HsNvml {
    void *library;
    bool started;
    NvmlDevice *device;
#define NVML_MEMBER(name, Result, parameters) Result(*name) parameters;
    NVML_FUNCTIONS(NVML_MEMBER)
#undef NVML_MEMBER
};

/* ISO C knows no conversion from a data pointer to a function's: its bits are copied, as POSIX asks. */
static HsStatus find(void *library, const char *name, void *function, size_t bytes)
{
    void *found = dlsym(library, name);
    if (!found)
        return hs_fail(HS_EUNSUPPORTED, "the NVIDIA driver's management library is too old: it lacks %s", name);
    memcpy(function, &found, bytes);
    return HS_OK;
}

static HsStatus start(HsNvml *nvml, const char *library, const char *bus_id)
{
    nvml->library = dlopen(library, RTLD_NOW | RTLD_LOCAL);
    if (!nvml->library)
        return hs_fail(HS_EUNSUPPORTED, "the NVIDIA driver's management library is not there: %s", dlerror());
#define NVML_FIND(name, Result, parameters) HS_TRY(find(nvml->library, #name, &nvml->name, sizeof nvml->name));
    NVML_FUNCTIONS(NVML_FIND)
#undef NVML_FIND
    int code = nvml->nvmlInit_v2();
    if (code != NVML_SUCCESS_CODE)
        return hs_fail(HS_EUNSUPPORTED, "the NVIDIA driver's management library does not start: %s",
                       nvml->nvmlErrorString(code));
    nvml->started = true;
    code = nvml->nvmlDeviceGetHandleByPciBusId_v2(bus_id, &nvml->device);
    if (code != NVML_SUCCESS_CODE)
        return hs_fail(HS_EUNSUPPORTED, "the NVIDIA driver's management library does not give access to %s: %s", bus_id,
                       nvml->nvmlErrorString(code));
    return HS_OK;
}

HsStatus hs_nvml_open(const char *library, const char *bus_id, HsNvml **out)
{
    *out = NULL;
    HsNvml *nvml = calloc(1, sizeof *nvml);
    if (!nvml)
        return hs_fail(HS_ENOMEM, "no memory to monitor the GPU");
    HsStatus status = start(nvml, library ? library : "libnvidia-ml.so.1", bus_id);
    if (status != HS_OK) {
        hs_nvml_close(nvml);
        return status;
    }
    *out = nvml;
    return HS_OK;
}

/* Whether the query answered; otherwise "what (reason)" joins the list. */
static bool answered(const HsNvml *nvml, int code, const char *what, char *missing, size_t room)
{
    if (code == NVML_SUCCESS_CODE)
        return true;
    const size_t used = strlen(missing);
    snprintf(missing + used, room - used, "%s%s (%s)", used > 0 ? ", " : "", what, nvml->nvmlErrorString(code));
    return false;
}

void hs_nvml_read(HsNvml *nvml, HsNvmlReading *reading, char *missing, size_t room)
{
    NvmlMemory memory;
    NvmlUtilization share;
    unsigned int milliwatts, celsius;
    *reading = (HsNvmlReading){ .utilisation = NAN, .power_w = NAN, .temperature_c = NAN };
    missing[0] = '\0';
    if (answered(nvml, nvml->nvmlDeviceGetMemoryInfo(nvml->device, &memory), "memory", missing, room)) {
        reading->used_bytes = (size_t)memory.used;
        reading->total_bytes = (size_t)memory.total;
    }
    if (answered(nvml, nvml->nvmlDeviceGetUtilizationRates(nvml->device, &share), "utilisation", missing, room))
        reading->utilisation = 0.01 * (double)share.gpu;
    if (answered(nvml, nvml->nvmlDeviceGetPowerUsage(nvml->device, &milliwatts), "power", missing, room))
        reading->power_w = 1e-3 * (double)milliwatts;
    if (answered(nvml, nvml->nvmlDeviceGetTemperature(nvml->device, NVML_SENSOR_GPU, &celsius), "temperature", missing,
                 room))
        reading->temperature_c = (double)celsius;
}

void hs_nvml_close(HsNvml *nvml)
{
    if (!nvml)
        return;
    if (nvml->started)
        (void)nvml->nvmlShutdown();
    if (nvml->library)
        dlclose(nvml->library);
    free(nvml);
}
