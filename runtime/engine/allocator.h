/* SPDX-License-Identifier: MIT
 *
 * memory.allocator: a shared object with an allocator for a device's memory.
 */
#ifndef HS_RUNTIME_ENGINE_ALLOCATOR_H
#define HS_RUNTIME_ENGINE_ALLOCATOR_H

#include "kernels/base/memory_hooks.h"
#include "kernels/base/status.h"

/* Opens the file and asks it for the table of `device`, "host", "cuda:0" or "emu:0".  Nothing closes it again: the
 * process may still hold blocks of it, and it may print something when the process ends.
 * errors: HS_ECONFIG, with the key and the path: it cannot be opened (the loader's words), exports no hs_memory_hooks, has
 * no table for this device, was compiled with another version of memory_hooks.h, has half a pair of functions or none,
 * or has memory for the emulator's device, which must be the emulator's own */
HsStatus hs_allocator_open(const char *path, const char *device, const HsMemoryHooks **hooks);

#endif
