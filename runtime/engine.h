/* SPDX-License-Identifier: MIT
 *
 * The engine: which device, backend and threads a command runs on, chosen from `device` and `threads`.
 */
#ifndef HS_RUNTIME_ENGINE_H
#define HS_RUNTIME_ENGINE_H

#include "kernels/backend.h"
#include "runtime/config.h"

typedef struct HsEngine {
    HsDevice device;
    HsContext context;
    bool has_bf16; /* products of bf16 in hardware */
    char why[320]; /* "cpu (AMD EPYC, avx512bf16, 2 threads): no GPU backend in this build" */
} HsEngine;

/* device: "auto", "cpu" or "ref"; threads 0: one a core this process may run on.  errors: HS_ECONFIG, HS_EUNSUPPORTED.
 * The caller owns the storage; the context points into it, so it must not be moved afterwards. */
HsStatus hs_engine_init(HsEngine *engine, const char *device, int64_t threads);

#endif
