/* SPDX-License-Identifier: MIT
 *
 * What the device is doing while a run trains: memory used by all processes, utilisation, power, temperature (NVML,
 * opened at run time, on NVIDIA GPUs), and the process's own memory.  Samples go to out_dir/device.jsonl: they belong to
 * the machine and the moment, so metrics.jsonl, which is the same however a run is interrupted, does not hold them.
 *
 * No thread runs for it: the training loop checks after each step whether a sample is due.
 */
#ifndef HS_RUNTIME_RECORD_MONITOR_H
#define HS_RUNTIME_RECORD_MONITOR_H

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
typedef struct HsDeviceSampler {
    HsStatus (*read)(void *user, HsDeviceSample *sample);
    void *user;
} HsDeviceSampler;

typedef struct HsMonitor HsMonitor;

typedef struct HsMonitorOptions {
    HsDevice *device;         /* borrowed; one with a PCI address is asked through NVML too */
    bool emulated;            /* nothing but this process uses it, and no library knows it */
    double every_s;           /* 0: never, and no file */
    const char *out_dir;      /* exists; NULL: samples are taken and no file is written */
    bool append;              /* a resumed run: continue its file */
    const char *nvml_library; /* path; NULL: the driver's own */
} HsMonitorOptions;

/* Says once, as a log line, what cannot be sampled and why. */
HsStatus hs_monitor_create(const HsMonitorOptions *options, HsMonitor **monitor);
void hs_monitor_destroy(HsMonitor *monitor);
void hs_monitor_set_sampler(HsMonitor *monitor, HsDeviceSampler sampler);
/* Takes a sample if one is due (the first is due at once), and appends it to the file as one object a line: time_s
 * since create, step, device_used_bytes, device_total_bytes, process_bytes, utilisation, power_w, temperature_c;
 * unknown ones are left out.  `sample` is filled where *taken is set.  errors: HS_EIO, and those of the sampler */
HsStatus hs_monitor_poll(HsMonitor *monitor, int64_t step, HsDeviceSample *sample, bool *taken);

#endif
