/* SPDX-License-Identifier: MIT
 *
 * What the operating system holds for this process.
 */
#ifndef HS_RUNTIME_RECORD_PROCESS_MEMORY_H
#define HS_RUNTIME_RECORD_PROCESS_MEMORY_H

#include <stddef.h>

typedef struct HsProcessMemory {
    size_t current_bytes, peak_bytes; /* resident; 0 where the system does not say */
} HsProcessMemory;

/* VmRSS and VmHWM of /proc/self/status. */
HsProcessMemory hs_process_memory(void);

#endif
