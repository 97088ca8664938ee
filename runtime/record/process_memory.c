/* SPDX-License-Identifier: MIT
 *
 * Lines such as "VmRSS:     1234 kB".
 */
#include "runtime/record/process_memory.h"

#include <stdio.h>

HsProcessMemory hs_process_memory(void)
{
    HsProcessMemory memory = { 0 };
    FILE *file = fopen("/proc/self/status", "r");
    char line[256];
    size_t kibibytes;
    while (file && fgets(line, sizeof line, file)) {
        if (sscanf(line, "VmRSS: %zu kB", &kibibytes) == 1)
            memory.current_bytes = kibibytes << 10;
        if (sscanf(line, "VmHWM: %zu kB", &kibibytes) == 1)
            memory.peak_bytes = kibibytes << 10;
    }
    if (file)
        fclose(file);
    return memory;
}
