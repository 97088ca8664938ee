/* SPDX-License-Identifier: MIT
 *
 * Opens an allocator's shared object, see allocator.h.
 */
#include "runtime/engine/allocator.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

/* A name without a folder is a file here, and none in the loader's folders. */
static HsStatus open_file(const char *path, void **handle)
{
    char here[4096];
    snprintf(here, sizeof here, "%s%s", strchr(path, '/') ? "" : "./", path);
    *handle = dlopen(here, RTLD_NOW | RTLD_LOCAL);
    if (*handle)
        return HS_OK;
    const char *const message = dlerror();
    return hs_fail(HS_ECONFIG, "it cannot be opened: %s", message ? message : "unknown reason");
}

static HsStatus check_table(const HsMemoryHooks *hooks, const char *device)
{
    if (!hooks)
        return hs_fail(HS_ECONFIG, "it has no memory for %s", device);
    if (hooks->version != HS_MEMORY_HOOKS_VERSION)
        return hs_fail(HS_ECONFIG,
                       "it was compiled with version %llu of memory_hooks.h, and this program has version %d: compile "
                       "it again",
                       (unsigned long long)hooks->version, (int)HS_MEMORY_HOOKS_VERSION);
    if (!hooks->name)
        return hs_fail(HS_ECONFIG, "its table for %s has no name", device);
    if (!hooks->alloc != !hooks->release || !hooks->pinned != !hooks->pinned_release)
        return hs_fail(HS_ECONFIG, "its table for %s has one function of a pair: give both or none", device);
    if (!hooks->alloc && !hooks->pinned)
        return hs_fail(HS_ECONFIG, "its table for %s has no functions", device);
    if (hooks->alloc && strncmp(device, "emu", 3) == 0)
        return hs_fail(HS_ECONFIG,
                       "its table for %s has alloc, and the emulator accepts only its own device memory: leave alloc "
                       "and release NULL there",
                       device);
    return HS_OK;
}

static HsStatus find_table(void *handle, const char *device, const HsMemoryHooks **hooks)
{
    const HsMemoryHooks *(*entry)(const char *device_name);
    *(void **)&entry = dlsym(handle, "hs_memory_hooks"); /* as POSIX has it */
    if (!entry)
        return hs_fail(HS_ECONFIG, "it exports no function hs_memory_hooks");
    *hooks = entry(device);
    return check_table(*hooks, device);
}

HsStatus hs_allocator_open(const char *path, const char *device, const HsMemoryHooks **hooks)
{
    void *handle;
    *hooks = NULL;
    HsStatus status = open_file(path, &handle);
    if (status == HS_OK)
        status = find_table(handle, device, hooks);
    if (status == HS_OK)
        return HS_OK;
    *hooks = NULL;
    return hs_error_prefix(status, "memory.allocator: %.200s", path);
}
