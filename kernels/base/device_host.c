/* SPDX-License-Identifier: MIT
 *
 * The machine's own memory and processors as a device.  Streams run in order at once, so every stream is the default
 * one and waiting for it is nothing; events are readings of the monotonic clock.
 *
 * A block carries its size in a header just before the pointer handed out:
 *     | padding to the alignment ... size | pointer: bytes ... |
 */
#include "kernels/base/device.h"

#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

struct HsEvent {
    struct timespec time;
};

static const size_t small_alignment = 64;
static const size_t huge_page_bytes = (size_t)2 << 20;
static const size_t huge_threshold_bytes = (size_t)4 << 20; /* from here on, huge pages save more than they waste */

static HsStatus host_alloc(HsDevice *device, size_t bytes, void **pointer)
{
    *pointer = NULL;
    bool huge = bytes >= huge_threshold_bytes;
    size_t alignment = huge ? huge_page_bytes : small_alignment;
    /* Linux would promise more than there is and kill the process later, at a place that has nothing to do with it. */
    if (bytes > device->memory_bytes || device->current_bytes > device->memory_bytes - bytes)
        return hs_fail(HS_ENOMEM,
                       "%zu bytes of host memory: %zu are in use of the %zu this process may have; see with `trainer "
                       "plan` what takes less",
                       bytes, device->current_bytes, device->memory_bytes);
    size_t rounded = (bytes + alignment - 1) / alignment * alignment;
    unsigned char *block = aligned_alloc(alignment, alignment + rounded);
    if (!block)
        return hs_fail(
            HS_ENOMEM,
            "%zu bytes of host memory: the operating system has none left; end other programs, or lower batch_size",
            bytes);
    unsigned char *data = block + alignment;
    /* Advice only: without huge pages everything works, more slowly. */
    if (huge)
        (void)madvise(data, rounded, MADV_HUGEPAGE);
    memcpy(data - sizeof bytes, &bytes, sizeof bytes);
    device->current_bytes += bytes;
    if (device->current_bytes > device->peak_bytes)
        device->peak_bytes = device->current_bytes;
    *pointer = data;
    return HS_OK;
}

static void host_release(HsDevice *device, void *pointer)
{
    if (!pointer)
        return;
    unsigned char *data = pointer;
    size_t bytes;
    memcpy(&bytes, data - sizeof bytes, sizeof bytes);
    device->current_bytes -= bytes;
    free(data - (bytes >= huge_threshold_bytes ? huge_page_bytes : small_alignment));
}

static HsStatus host_copy(HsDevice *device, HsStream *stream, void *destination, const void *source, size_t bytes)
{
    (void)device;
    (void)stream;
    if (bytes > 0)
        memcpy(destination, source, bytes);
    return HS_OK;
}

static HsStatus host_fill_zero(HsDevice *device, HsStream *stream, void *pointer, size_t bytes)
{
    (void)device;
    (void)stream;
    if (bytes > 0)
        memset(pointer, 0, bytes);
    return HS_OK;
}

static HsStatus host_stream_create(HsDevice *device, HsStream **stream)
{
    (void)device;
    *stream = NULL; /* the default stream */
    return HS_OK;
}

static void host_stream_destroy(HsDevice *device, HsStream *stream)
{
    (void)device;
    (void)stream;
}

static HsStatus host_stream_sync(HsDevice *device, HsStream *stream)
{
    (void)device;
    (void)stream;
    return HS_OK;
}

static HsStatus host_event_create(HsDevice *device, HsEvent **event)
{
    (void)device;
    *event = calloc(1, sizeof **event);
    return *event ? HS_OK : hs_fail(HS_ENOMEM, "no memory for an event, %zu bytes", sizeof **event);
}

static void host_event_destroy(HsDevice *device, HsEvent *event)
{
    (void)device;
    free(event);
}

static HsStatus host_event_record(HsDevice *device, HsEvent *event, HsStream *stream)
{
    (void)device;
    (void)stream;
    clock_gettime(CLOCK_MONOTONIC, &event->time);
    return HS_OK;
}

static HsStatus host_event_elapsed_ms(HsDevice *device, HsEvent *start, HsEvent *stop, double *milliseconds)
{
    (void)device;
    *milliseconds = (double)(stop->time.tv_sec - start->time.tv_sec) * 1e3 +
                    (double)(stop->time.tv_nsec - start->time.tv_nsec) * 1e-6;
    return HS_OK;
}

/* Events are reached as they are recorded. */
static HsStatus host_event_sync(HsDevice *device, HsEvent *event)
{
    (void)device;
    (void)event;
    return HS_OK;
}

static HsStatus host_stream_wait(HsDevice *device, HsStream *stream, HsEvent *event)
{
    (void)device;
    (void)stream;
    (void)event;
    return HS_OK;
}

static HsStatus host_host_alloc(HsDevice *device, size_t bytes, void **pointer)
{
    (void)device;
    *pointer = aligned_alloc(small_alignment, (bytes + small_alignment - 1) / small_alignment * small_alignment);
    return *pointer ? HS_OK : hs_fail(HS_ENOMEM, "%zu bytes of host memory", bytes);
}

static void host_host_release(HsDevice *device, void *pointer)
{
    (void)device;
    free(pointer);
}

/* What the machine has left, or less where a control group's limit is nearer. */
static HsStatus host_free_memory(const HsDevice *device, size_t *free_bytes)
{
    const size_t available = hs_limits_available("");
    *free_bytes = available < device->memory_bytes ? available : device->memory_bytes;
    return HS_OK;
}

/* The widest vector extension among the flags of /proc/cpuinfo, widest first. */
static const char *find_vectors(const char *flags)
{
    static const struct {
        const char *flag, *name;
    } rows[] = {
        { " avx512_bf16", "AVX-512 BF16" }, { " avx512f", "AVX-512" }, { " avx2", "AVX2" }, { " sse2", "SSE2" },
        { " bf16", "NEON BF16" },           { " asimd", "NEON" }
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        if (strstr(flags, rows[i].flag))
            return rows[i].name;
    return "no vectors known";
}

static void describe_processor(char *description, size_t bytes)
{
    char model[64] = "unknown processor";
    const char *vectors = "no vectors known";
    FILE *file = fopen("/proc/cpuinfo", "r");
    char line[8192]; /* the flags line of a recent processor is over 2000 characters */
    while (file && fgets(line, sizeof line, file)) {
        line[strcspn(line, "\n")] = '\0';
        const char *value = strchr(line, ':');
        if (!value)
            continue;
        if (strncmp(line, "model name", 10) == 0)
            snprintf(model, sizeof model, "%.*s", (int)sizeof model - 1, value + 2);
        if (strncmp(line, "flags", 5) == 0 || strncmp(line, "Features", 8) == 0) {
            vectors = find_vectors(value);
            break;
        }
    }
    if (file)
        fclose(file);
    /* The cores this process may use, which taskset or a container may have made fewer. */
    cpu_set_t set;
    int cores = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : (int)sysconf(_SC_NPROCESSORS_ONLN);
    snprintf(description, bytes, "%s, %s, %d core%s", model, vectors, cores, cores == 1 ? "" : "s");
}

HsStatus hs_device_host_init(HsDevice *device)
{
    HsLimits limits;
    hs_limits_read("", &limits);
    *device = (HsDevice){
        .name = "host",
        .memory_bytes = limits.memory_bytes,
        .limits = limits,
        .host_accessible = 1,
        .alloc = host_alloc,
        .release = host_release,
        .copy = host_copy,
        .fill_zero = host_fill_zero,
        .stream_create = host_stream_create,
        .stream_destroy = host_stream_destroy,
        .stream_sync = host_stream_sync,
        .event_create = host_event_create,
        .event_destroy = host_event_destroy,
        .event_record = host_event_record,
        .event_elapsed_ms = host_event_elapsed_ms,
        .event_sync = host_event_sync,
        .stream_wait = host_stream_wait,
        .host_alloc = host_host_alloc,
        .host_release = host_host_release,
        .free_memory = host_free_memory,
    };
    describe_processor(device->description, sizeof device->description);
    return HS_OK;
}

void hs_device_deinit(HsDevice *device)
{
    if (device->deinit)
        device->deinit(device);
    device->deinit = NULL;
}
