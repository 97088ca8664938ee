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
        return hs_fail(HS_ENOMEM, "%zu bytes of host memory: %zu are in use of the %zu this process may have", bytes,
                       device->current_bytes, device->memory_bytes);
    size_t rounded = (bytes + alignment - 1) / alignment * alignment;
    unsigned char *block = aligned_alloc(alignment, alignment + rounded);
    if (!block)
        return hs_fail(HS_ENOMEM, "%zu bytes of host memory: the operating system refused", bytes);
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

/* A container's memory limit, or SIZE_MAX where the file is absent or says "max". */
static size_t read_limit(const char *path)
{
    size_t limit = SIZE_MAX;
    FILE *file = fopen(path, "r");
    if (!file)
        return SIZE_MAX;
    if (fscanf(file, "%zu", &limit) != 1)
        limit = SIZE_MAX;
    fclose(file);
    return limit;
}

/* Physical memory, or less where a control group (version 2 or 1) allows less. */
static size_t find_memory_bytes(void)
{
    static const char *const limit_files[] = { "/sys/fs/cgroup/memory.max",
                                               "/sys/fs/cgroup/memory/memory.limit_in_bytes" };
    size_t bytes = (size_t)sysconf(_SC_PHYS_PAGES) * (size_t)sysconf(_SC_PAGESIZE);
    for (size_t i = 0; i < sizeof limit_files / sizeof limit_files[0]; i++) {
        size_t limit = read_limit(limit_files[i]);
        bytes = limit < bytes ? limit : bytes;
    }
    /* Outside a container the group's own limit lies further down: "0::/user.slice/..." names it. */
    FILE *file = fopen("/proc/self/cgroup", "r");
    char line[512];
    while (file && fgets(line, sizeof line, file)) {
        if (strncmp(line, "0::", 3) != 0)
            continue;
        line[strcspn(line, "\n")] = '\0';
        char path[600];
        snprintf(path, sizeof path, "/sys/fs/cgroup%s/memory.max", line + 3);
        size_t limit = read_limit(path);
        bytes = limit < bytes ? limit : bytes;
    }
    if (file)
        fclose(file);
    return bytes;
}

/* "MemAvailable:  123 kB": what may be had without swapping, caches that can be dropped included. */
static size_t find_available_bytes(void)
{
    size_t available = SIZE_MAX, kibibytes;
    FILE *file = fopen("/proc/meminfo", "r");
    char line[256];
    while (file && fgets(line, sizeof line, file))
        if (sscanf(line, "MemAvailable: %zu kB", &kibibytes) == 1)
            available = kibibytes << 10;
    if (file)
        fclose(file);
    return available;
}

/* What the machine has left, or less where a control group's limit is nearer. */
static HsStatus host_free_memory(const HsDevice *device, size_t *free_bytes)
{
    static const char *const usage_files[] = { "/sys/fs/cgroup/memory.current",
                                               "/sys/fs/cgroup/memory/memory.usage_in_bytes" };
    size_t available = find_available_bytes();
    for (size_t i = 0; i < sizeof usage_files / sizeof *usage_files; i++) {
        const size_t used = read_limit(usage_files[i]);
        const size_t limit = device->memory_bytes;
        if (used == SIZE_MAX || limit >= (size_t)sysconf(_SC_PHYS_PAGES) * (size_t)sysconf(_SC_PAGESIZE))
            continue; /* no group, or one without a limit, whose usage counts the machine's file caches */
        available = used > limit ? 0 : limit - used < available ? limit - used : available;
    }
    *free_bytes = available < device->memory_bytes ? available : device->memory_bytes;
    return HS_OK;
}

/* The widest vector extension among the flags of /proc/cpuinfo, widest first. */
static const char *find_vectors(const char *flags)
{
    static const struct {
        const char *flag, *name;
    } rows[] = { { " avx512_bf16", "AVX-512 BF16" },
                 { " avx512f", "AVX-512" },
                 { " avx2", "AVX2" },
                 { " sse2", "SSE2" },
                 { " asimd", "NEON" } };
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
    *device = (HsDevice){
        .name = "host",
        .memory_bytes = find_memory_bytes(),
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
