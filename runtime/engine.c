/* SPDX-License-Identifier: MIT
 *
 * Device choice as a table: name in the configuration -> backend and the sentence that explains the choice.
 */
#include "runtime/engine.h"

#include <sched.h>
#include <stdio.h>
#include <string.h>

static HsStatus open_cpu(HsEngine *engine)
{
    HS_TRY(hs_backend_cpu(&engine->context.backend));
    engine->has_bf16 = hs_backend_cpu_has_bf16();
    return HS_OK;
}

static HsStatus open_ref(HsEngine *engine)
{
    engine->context.backend = hs_backend_ref();
    engine->context.threads = 1; /* the reference is serial by design */
    return HS_OK;
}

static const char *cpu_detail(void)
{
    return hs_backend_cpu_isa();
}

static const char *ref_detail(void)
{
    return "plain C, sums in double";
}

static const struct {
    const char *name;
    const char *runs_as;
    HsStatus (*open)(HsEngine *engine);
    const char *(*detail)(void);
    const char *reason;
} devices[] = {
    { "auto", "cpu", open_cpu, cpu_detail, "this build has no GPU backend" },
    { "cpu", "cpu", open_cpu, cpu_detail, "as configured" },
    { "ref", "ref", open_ref, ref_detail, "as configured" },
};

/* Cores this process may run on: smaller than the machine's under taskset or in a container. */
static int usable_cores(void)
{
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set) != 0)
        return 1;
    int count = CPU_COUNT(&set);
    return count < 1 ? 1 : count;
}

HsStatus hs_engine_init(HsEngine *engine, const char *device, int64_t threads)
{
    memset(engine, 0, sizeof *engine);
    HS_TRY(hs_device_host_init(&engine->device));
    engine->context.device = &engine->device;
    engine->context.threads = threads > 0 ? (int)threads : usable_cores();
    for (size_t i = 0; i < sizeof devices / sizeof *devices; i++) {
        if (strcmp(device, devices[i].name) != 0)
            continue;
        HS_TRY(devices[i].open(engine));
        snprintf(engine->why, sizeof engine->why, "%s (%s, %s, %d thread%s): %s", devices[i].runs_as,
                 engine->device.description, devices[i].detail(), engine->context.threads,
                 engine->context.threads == 1 ? "" : "s", devices[i].reason);
        return HS_OK;
    }
    return hs_fail(HS_ECONFIG, "device %s is not known: use auto, cpu or ref", device);
}
