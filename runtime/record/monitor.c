/* SPDX-License-Identifier: MIT
 *
 * One table of fields makes the line; one table of sources fills the sample, the general ones first: what a later row
 * knows better replaces what an earlier one said.
 *
 *     process     /proc, on every device
 *     device      total less free, as the device itself reports: the host's memory, or a GPU's
 *     emulated    what this process allocated: no other process is on an emulated device
 *     nvml        a GPU's memory as the driver counts it, utilisation, power, temperature
 */
#include "runtime/record/monitor.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "kernels/base/clock.h"
#include "kernels/base/log.h"
#include "runtime/io/json.h"
#include "runtime/io/storage.h"
#include "runtime/record/nvml.h"
#include "runtime/record/process_memory.h"

enum { LINE_BYTES = 512, REASON_BYTES = 256 };

struct HsMonitor {
    HsDevice *device;
    bool emulated;
    HsNvml *nvml; /* NULL: not asked */
    HsDeviceSampler sampler;
    double every_s, start_s, latest_s;
    char *path;
    int descriptor; /* -1: no file */
};

/* --- sources --- */

static HsStatus read_process(HsMonitor *monitor, HsDeviceSample *sample)
{
    (void)monitor;
    sample->process_bytes = hs_process_memory().current_bytes;
    return HS_OK;
}

static HsStatus read_device(HsMonitor *monitor, HsDeviceSample *sample)
{
    HsDevice *device = monitor->device;
    size_t free_bytes;
    HS_TRY(device->free_memory(device, &free_bytes));
    sample->total_bytes = device->memory_bytes;
    sample->used_bytes = free_bytes < device->memory_bytes ? device->memory_bytes - free_bytes : 0;
    return HS_OK;
}

static HsStatus read_emulated(HsMonitor *monitor, HsDeviceSample *sample)
{
    sample->total_bytes = monitor->device->memory_bytes;
    sample->used_bytes = monitor->device->current_bytes;
    return HS_OK;
}

/* A slice of a card has less memory than the card that the library answers for; then the device's own figures stay.
 * The two totals of a whole card differ by what the driver keeps for itself, a few percent. */
static bool speaks_of(const HsNvmlReading *reading, const HsDevice *device)
{
    return reading->total_bytes > 0 && reading->total_bytes / 5 * 4 <= device->memory_bytes;
}

static HsStatus read_nvml(HsMonitor *monitor, HsDeviceSample *sample)
{
    HsNvmlReading reading;
    char missing[REASON_BYTES]; /* said when the monitor was made */
    hs_nvml_read(monitor->nvml, &reading, missing, sizeof missing);
    if (speaks_of(&reading, monitor->device)) {
        sample->used_bytes = reading.used_bytes;
        sample->total_bytes = reading.total_bytes;
    }
    sample->utilisation = reading.utilisation;
    sample->power_w = reading.power_w;
    sample->temperature_c = reading.temperature_c;
    return HS_OK;
}

static bool always(const HsMonitor *monitor)
{
    (void)monitor;
    return true;
}

static bool tells_free_memory(const HsMonitor *monitor)
{
    return monitor->device->free_memory && !monitor->emulated;
}

static bool is_emulated(const HsMonitor *monitor)
{
    return monitor->emulated;
}

static bool has_nvml(const HsMonitor *monitor)
{
    return monitor->nvml != NULL;
}

static const struct {
    bool (*applies)(const HsMonitor *monitor);
    HsStatus (*read)(HsMonitor *monitor, HsDeviceSample *sample);
} sources[] = {
    { always, read_process },
    { tells_free_memory, read_device },
    { is_emulated, read_emulated },
    { has_nvml, read_nvml },
};

static HsStatus read_sources(void *user, HsDeviceSample *sample)
{
    HsMonitor *monitor = user;
    for (size_t i = 0; i < sizeof sources / sizeof *sources; i++)
        if (sources[i].applies(monitor))
            HS_TRY(sources[i].read(monitor, sample));
    return HS_OK;
}

/* --- the file --- */

/* Where the last whole line ends: a machine that went down may have left half of one. */
static HsStatus find_end(const HsMonitor *monitor, int64_t size, int64_t *end)
{
    char tail[LINE_BYTES];
    const int64_t first = size > LINE_BYTES ? size - LINE_BYTES : 0;
    HS_TRY(hs_storage_read_at(monitor->descriptor, monitor->path, tail, (size_t)(size - first), first));
    *end = size;
    while (*end > first && tail[*end - 1 - first] != '\n')
        (*end)--;
    if (*end == first && first > 0)
        return hs_fail(HS_EFORMAT, "the last line of %s is not one of this program: move the file away", monitor->path);
    return HS_OK;
}

static HsStatus open_file(HsMonitor *monitor, const HsMonitorOptions *options)
{
    struct stat info;
    int64_t end = 0;
    HS_TRY(hs_storage_join(options->out_dir, "device.jsonl", &monitor->path));
    monitor->descriptor = open(monitor->path, O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    if (monitor->descriptor < 0 || fstat(monitor->descriptor, &info) != 0)
        return hs_fail(HS_EIO, "cannot open %s: %s", monitor->path, strerror(errno));
    if (options->append)
        HS_TRY(find_end(monitor, (int64_t)info.st_size, &end));
    if (ftruncate(monitor->descriptor, (off_t)end) != 0)
        return hs_fail(HS_EIO, "cannot cut %s to %lld bytes: %s", monitor->path, (long long)end, strerror(errno));
    return HS_OK;
}

typedef enum FieldKind { FIELD_BYTES, FIELD_REAL } FieldKind;

/* In the order of the line. */
static const struct {
    const char *name;
    FieldKind kind;
    size_t offset;
} fields[] = {
    { "device_used_bytes", FIELD_BYTES, offsetof(HsDeviceSample, used_bytes) },
    { "device_total_bytes", FIELD_BYTES, offsetof(HsDeviceSample, total_bytes) },
    { "process_bytes", FIELD_BYTES, offsetof(HsDeviceSample, process_bytes) },
    { "utilisation", FIELD_REAL, offsetof(HsDeviceSample, utilisation) },
    { "power_w", FIELD_REAL, offsetof(HsDeviceSample, power_w) },
    { "temperature_c", FIELD_REAL, offsetof(HsDeviceSample, temperature_c) },
};

/* The field's value as text; false when it is unknown. */
static bool field_text(const HsDeviceSample *sample, int field, char text[HS_JSON_NUMBER_BYTES])
{
    const char *place = (const char *)sample + fields[field].offset;
    if (fields[field].kind == FIELD_BYTES) {
        size_t bytes;
        memcpy(&bytes, place, sizeof bytes);
        snprintf(text, HS_JSON_NUMBER_BYTES, "%zu", bytes);
        return bytes > 0;
    }
    double value;
    memcpy(&value, place, sizeof value);
    hs_json_format_real(value, text);
    return isfinite(value);
}

/* Eight numbers of at most HS_JSON_NUMBER_BYTES and their names stay below LINE_BYTES. */
static HsStatus write_line(const HsMonitor *monitor, double time_s, int64_t step, const HsDeviceSample *sample)
{
    char line[LINE_BYTES], text[HS_JSON_NUMBER_BYTES];
    size_t used = (size_t)snprintf(line, sizeof line, "{\"time_s\":%.3f,\"step\":%lld", time_s, (long long)step);
    for (int i = 0; i < (int)(sizeof fields / sizeof *fields); i++)
        if (field_text(sample, i, text))
            used += (size_t)snprintf(line + used, sizeof line - used, ",\"%s\":%s", fields[i].name, text);
    used += (size_t)snprintf(line + used, sizeof line - used, "}\n");
    return hs_storage_write_all(monitor->descriptor, monitor->path, line, used);
}

/* --- the monitor --- */

/* Opens the library where the device has an address to be found by; a run does without what it cannot have. */
static HsStatus open_nvml(HsMonitor *monitor, const HsMonitorOptions *options)
{
    char missing[REASON_BYTES];
    HsNvmlReading reading;
    if (monitor->emulated || monitor->device->bus_id[0] == '\0')
        return HS_OK;
    HsStatus status = hs_nvml_open(options->nvml_library, monitor->device->bus_id, &monitor->nvml);
    if (status == HS_EUNSUPPORTED) {
        hs_info("device.jsonl: no utilisation, power and temperature of the GPU: %s", hs_error_message());
        return HS_OK;
    }
    HS_TRY(status);
    hs_nvml_read(monitor->nvml, &reading, missing, sizeof missing);
    if (missing[0] != '\0')
        hs_info("device.jsonl: this GPU does not report its %s", missing);
    return HS_OK;
}

HsStatus hs_monitor_create(const HsMonitorOptions *options, HsMonitor **out)
{
    *out = NULL;
    HsMonitor *monitor = calloc(1, sizeof *monitor);
    if (!monitor)
        return hs_fail(HS_ENOMEM, "no memory to monitor the device");
    monitor->device = options->device;
    monitor->emulated = options->emulated;
    monitor->every_s = options->every_s;
    monitor->start_s = hs_clock_s();
    monitor->latest_s = -INFINITY;
    monitor->descriptor = -1;
    monitor->sampler = (HsDeviceSampler){ read_sources, monitor };
    HsStatus status = HS_OK;
    if (monitor->every_s > 0) {
        if (options->out_dir)
            HS_TRY_GOTO(status, open_file(monitor, options), failed);
        HS_TRY_GOTO(status, open_nvml(monitor, options), failed);
    }
    *out = monitor;
    return HS_OK;
failed:
    hs_monitor_destroy(monitor);
    return status;
}

void hs_monitor_destroy(HsMonitor *monitor)
{
    if (!monitor)
        return;
    if (monitor->descriptor >= 0)
        close(monitor->descriptor);
    hs_nvml_close(monitor->nvml);
    free(monitor->path);
    free(monitor);
}

void hs_monitor_set_sampler(HsMonitor *monitor, HsDeviceSampler sampler)
{
    monitor->sampler = sampler;
}

HsStatus hs_monitor_poll(HsMonitor *monitor, int64_t step, HsDeviceSample *sample, bool *taken)
{
    const double now_s = hs_clock_s();
    *taken = false;
    if (monitor->every_s <= 0 || now_s - monitor->latest_s < monitor->every_s)
        return HS_OK;
    *sample = (HsDeviceSample){ .utilisation = NAN, .power_w = NAN, .temperature_c = NAN };
    HS_TRY(monitor->sampler.read(monitor->sampler.user, sample));
    monitor->latest_s = now_s;
    *taken = true;
    return monitor->descriptor < 0 ? HS_OK : write_line(monitor, now_s - monitor->start_s, step, sample);
}
