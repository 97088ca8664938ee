/* SPDX-License-Identifier: MIT
 *
 * Libraries that the benchmarks open at run time: none is needed to build or to run.
 */
#ifndef HS_BENCH_LIBRARY_H
#define HS_BENCH_LIBRARY_H

#include <dlfcn.h>
#include <string.h>

#include "kernels/base/status.h"

/* Opens the first of `names` (ended by NULL) that is there.  HS_EUNSUPPORTED: none is. */
static inline HsStatus library_open(const char *const *names, void **library)
{
    for (int i = 0; names[i]; i++) {
        *library = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
        if (*library)
            return HS_OK;
    }
    return hs_fail(HS_EUNSUPPORTED, "%s", dlerror());
}

/* ISO C knows no conversion from a data pointer to a function's: its bits are copied, as POSIX asks. */
static inline HsStatus library_find(void *library, const char *name, void *function, size_t bytes)
{
    void *found = dlsym(library, name);
    if (!found)
        return hs_fail(HS_EUNSUPPORTED, "the library lacks %s", name);
    memcpy(function, &found, bytes);
    return HS_OK;
}

#endif
