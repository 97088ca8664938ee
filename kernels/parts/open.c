/* SPDX-License-Identifier: MIT
 *
 * Opens a backend's shared object.  Nothing closes it again: devices hold addresses in it until the process ends, and
 * LeakSanitizer names functions by it even later.
 */
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#include "kernels/parts/mpi.h"
#include "kernels/parts/part.h"

static const struct {
    const char *name, *file, *absent;
} parts[] = {
    { "cuda", "libhalfstep-cuda.so", "this build has no kernels for GPUs; to build them (nvcc is needed): make cuda" },
    { "emu", "libhalfstep-emu.so", "this build has no emulator; to build it: make emu" },
};

/* The loader's message, if it is that there is no such file; one that the part itself needs may be missing, too. */
static bool is_absent(const char *file, const char *message)
{
    const size_t length = strlen(file);
    return strncmp(message, file, length) == 0 && message[length] == ':' && strstr(message, "No such file");
}

/* command: what builds it. */
static HsStatus open_part(const char *file, const char *absent, const char *command, int mode, void **handle)
{
    *handle = dlopen(file, RTLD_NOW | mode);
    if (*handle)
        return HS_OK;
    const char *message = dlerror();
    if (!message)
        message = "unknown reason";
    if (is_absent(file, message))
        return hs_fail(HS_EUNSUPPORTED, "%s", absent);
    return hs_fail(HS_EUNSUPPORTED, "%s cannot be opened: %s; to build it again: make %s", file, message, command);
}

/* The plugins of an MPI expect its names among the global ones. */
HsStatus hs_mpi_part_open(const HsMpiPart **part)
{
    const char *const file = "libhalfstep-mpi.so";
    void *handle;
    *part = NULL;
    HS_TRY(open_part(file,
                     "this build has no MPI; to build it (the MPI of this site with its mpicc is needed): make mpi",
                     "mpi", RTLD_GLOBAL, &handle));
    const HsMpiPart *(*entry)(void);
    *(void **)&entry = dlsym(handle, "hs_mpi_part");
    *part = entry ? entry() : NULL;
    if (*part && (*part)->layout == hs_mpi_part_layout())
        return HS_OK;
    return hs_fail(HS_EUNSUPPORTED, "%s comes from another build than this program; to build it again: make mpi", file);
}

HsStatus hs_part_open(const char *name, const HsBackendPart **part)
{
    size_t row = 0;
    while (row < sizeof parts / sizeof *parts && strcmp(parts[row].name, name) != 0)
        row++;
    if (row == sizeof parts / sizeof *parts)
        return hs_fail(HS_EINVAL, "no backend '%s' is a part: cuda or emu", name);
    const char *file = parts[row].file;
    void *handle;
    HS_TRY(open_part(file, parts[row].absent, name, RTLD_LOCAL, &handle));
    const HsBackendPart *(*entry)(void);
    *(void **)&entry = dlsym(handle, "hs_backend_part"); /* as POSIX has it */
    *part = entry ? entry() : NULL;
    if (*part && (*part)->layout == hs_part_layout())
        return HS_OK;
    return hs_fail(HS_EUNSUPPORTED, "%s comes from another build than this program; to build it again: make %s", file,
                   name);
}
