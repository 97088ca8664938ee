/* SPDX-License-Identifier: MIT
 *
 * What the device is doing while a run trains: memory in use by whomever, utilisation, power, temperature (NVML, opened
 * at run time, on NVIDIA GPUs), and the process's own memory.  Samples go to out_dir/device.jsonl: they belong to the
 * machine and the moment, so metrics.jsonl, which is the same however a run is interrupted, does not hold them.
 */
#ifndef HS_RUNTIME_MONITOR_H
#define HS_RUNTIME_MONITOR_H

#include <stdbool.h>

#include "kernels/base/device.h"

/* NAN or 0 bytes: not known here. */
typedef struct HsDeviceSample {
    size_t used_bytes, total_bytes; /* of the device, by every process */
    size_t process_bytes;           /* resident on the host */
    double utilisation;             /* 0 to 1 */
    double power_w, temperature_c;
} HsDeviceSample;

/* Where samples come from; the test puts its own here. */
typedef struct HsSampler {
    HsStatus (*read)(void *user, HsDeviceSample *sample);
    void *user;
} HsSampler;

typedef struct HsMonitor HsMonitor;

typedef struct HsMonitorOptions {
    HsDevice *device; /* borrowed */
    bool nvml;        /* a real GPU */
    int index;        /* its number, of those this process sees; matched by PCI address */
    double every_s;   /* 0: never */
    const char *out_dir;
} HsMonitorOptions;

/* Says once, as a log line, what cannot be sampled and why. */
HsStatus hs_monitor_create(const HsMonitorOptions *options, HsMonitor **monitor);
void hs_monitor_destroy(HsMonitor *monitor);
void hs_monitor_set_sampler(HsMonitor *monitor, HsSampler sampler);
/* Takes a sample if one is due, and writes it.  *taken tells; `sample` is filled then. */
HsStatus hs_monitor_poll(HsMonitor *monitor, int64_t step, HsDeviceSample *sample, bool *taken);

#endif
