/* SPDX-License-Identifier: MIT
 *
 * Every backend of this machine's CPU, one after another.
 */
#ifndef HS_TESTS_SUPPORT_HOST_BACKENDS_H
#define HS_TESTS_SUPPORT_HOST_BACKENDS_H

#include <stdbool.h>
#include <stddef.h>

#include "kernels/cpu/cpu.h"
#include "kernels/ops/backend.h"

/* The reference, then one instruction set after another; index: 0 at first.  False past the last. */
static inline bool next_host_backend(int *index, HsContext *context, const char **name)
{
    for (;; (*index)++) {
        *name = *index == 0 ? "ref" : hs_backend_cpu_isa_name(*index - 1);
        if (*name == NULL)
            return false;
        *context = (HsContext){ .backend = hs_backend_ref(), .threads = 1 };
        if (*index == 0 || hs_backend_cpu_for_isa(*name, &context->backend) == HS_OK)
            return (*index)++, true;
    }
}

#endif
