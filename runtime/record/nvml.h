/* SPDX-License-Identifier: MIT
 *
 * What NVIDIA's management library reports of one GPU: memory used by all processes, utilisation, power, temperature.
 * The library comes with the driver and is opened at run time; where it is missing, or has no answer, a run continues
 * without.
 */
#ifndef HS_RUNTIME_RECORD_NVML_H
#define HS_RUNTIME_RECORD_NVML_H

#include <stdbool.h>
#include <stddef.h>

#include "kernels/base/status.h"

typedef struct HsNvml HsNvml;

/* NAN or 0 bytes: this card does not tell, or not us. */
typedef struct HsNvmlReading {
    size_t used_bytes, total_bytes; /* used includes what the driver reserves */
    double utilisation;             /* 0 to 1: share of the last moments in which a kernel ran */
    double power_w, temperature_c;
} HsNvmlReading;

/* `library`: path, NULL for the driver's own.  `bus_id`: the PCI address, "0000:65:00.0".
 * errors: HS_EUNSUPPORTED with the reason (no library, no driver, a card that it does not know), HS_ENOMEM */
HsStatus hs_nvml_open(const char *library, const char *bus_id, HsNvml **nvml);
/* One reading.  Queries that fail leave their values unknown; their names with the library's reasons are added to
 * `missing` (room bytes, "" when all answered). */
void hs_nvml_read(HsNvml *nvml, HsNvmlReading *reading, char *missing, size_t room);
/* NULL is allowed. */
void hs_nvml_close(HsNvml *nvml);

#endif
