/* SPDX-License-Identifier: MIT
 *
 * Plans as figures: what a step costs by them, and ways of fitting as lines of configuration.
 */
#include "runtime/train/memory_plan.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "runtime/config/continual.h"

HsDeviceRates hs_nominal_rates(const HsDevice *device)
{
    /* A core or two with AVX-512; a GPU of the Ampere generation. */
    return device->host_accessible ? (HsDeviceRates){ 2e11, 2e10, 2e-6 } : (HsDeviceRates){ 1e14, 1e12, 5e-6 };
}

static double host_seconds(double down, double up, double host)
{
    return fmax(fmax(down, up) / HS_LINK_BYTES_A_SECOND, host / HS_HOST_BYTES_A_SECOND);
}

double hs_memory_plan_offload_seconds(const HsMemoryPlan *plan)
{
    return fmax(host_seconds(plan->offload_down, plan->offload_up, plan->offload_host),
                plan->disk_bytes / HS_DISK_BYTES_A_SECOND);
}

double hs_memory_plan_passes_seconds(const HsMemoryPlan *plan)
{
    return host_seconds(plan->passes_down, plan->passes_up, plan->passes_host);
}

double hs_memory_plan_seconds(const HsMemoryPlan *plan, const HsDeviceRates *rates)
{
    double seconds = (double)plan->actions * rates->launch_s;
    if (rates->flops > 0)
        seconds += (plan->forward_flops + plan->backward_flops + plan->recompute_flops) / rates->flops;
    if (rates->bytes > 0)
        seconds += plan->bytes_moved / rates->bytes;
    return fmax(seconds, hs_memory_plan_passes_seconds(plan)) + hs_memory_plan_offload_seconds(plan);
}

HsFit hs_fit_of(const HsConfig *config)
{
    return (HsFit){
        .micro_batch = hs_config_micro_batch(config),
        .recompute = config->memory.recompute,
        .recompute_every = config->memory.recompute_every,
        .narrow_gradients = hs_is(config->precision.gradients, "compute"),
        .offload = config->memory.offload,
    };
}

void hs_fit_apply(const HsConfig *config, const HsFit *fit, HsConfig *changed)
{
    static char narrow[] = "compute", wide[] = "fp32";
    *changed = *config;
    changed->training.use_gradient_checkpointing = false; /* it is short for memory.recompute, which says it all */
    changed->memory.micro_batch = fit->micro_batch;
    changed->memory.recompute = (char *)(uintptr_t)fit->recompute;
    changed->memory.recompute_every = fit->recompute_every;
    changed->memory.offload = (char *)(uintptr_t)fit->offload;
    changed->precision.gradients = fit->narrow_gradients ? narrow : wide;
}

/* One key that a fit sets. */
typedef struct FitLine {
    const char *section, *key;
    char value[32];
    bool differs;
} FitLine;

enum { FIT_LINES = 6 };

static void list_lines(const HsConfig *config, const HsFit *fit, FitLine lines[FIT_LINES])
{
    const HsFit now = hs_fit_of(config);
    const bool other_policy = strcmp(now.recompute, fit->recompute) != 0;
    memset(lines, 0, FIT_LINES * sizeof *lines);
    lines[0] = (FitLine){ "", "use_gradient_checkpointing", "false",
                          config->training.use_gradient_checkpointing && other_policy };
    lines[1] = (FitLine){ "memory", "micro_batch", "", now.micro_batch != fit->micro_batch };
    snprintf(lines[1].value, sizeof lines[1].value, "%lld", (long long)fit->micro_batch);
    lines[2] = (FitLine){ "memory", "recompute", "", other_policy };
    snprintf(lines[2].value, sizeof lines[2].value, "%s", fit->recompute);
    lines[3] = (FitLine){ "memory", "recompute_every", "", now.recompute_every != fit->recompute_every };
    snprintf(lines[3].value, sizeof lines[3].value, "%lld", (long long)fit->recompute_every);
    lines[4] = (FitLine){ "memory", "offload", "", strcmp(now.offload, fit->offload) != 0 };
    snprintf(lines[4].value, sizeof lines[4].value, "%s", fit->offload);
    lines[5] = (FitLine){ "precision", "gradients", "", now.narrow_gradients != fit->narrow_gradients };
    snprintf(lines[5].value, sizeof lines[5].value, "%s", fit->narrow_gradients ? "compute" : "fp32");
}

const char *hs_fit_lines(const HsConfig *config, const HsFit *fit, char text[HS_FIT_TEXT])
{
    FitLine lines[FIT_LINES];
    const char *section = "";
    size_t used = 0;
    list_lines(config, fit, lines);
    text[0] = '\0';
    for (int i = 0; i < FIT_LINES; i++) {
        if (!lines[i].differs)
            continue;
        if (strcmp(lines[i].section, section) != 0)
            used += (size_t)snprintf(text + used, HS_FIT_TEXT - used, "    %s:\n", lines[i].section);
        section = lines[i].section;
        used += (size_t)snprintf(text + used, HS_FIT_TEXT - used, "    %s%s: %s\n", section[0] ? "  " : "",
                                 lines[i].key, lines[i].value);
    }
    return text;
}

HsStatus hs_fit_write(HsConfig *config, const HsFit *fit)
{
    FitLine lines[FIT_LINES];
    list_lines(config, fit, lines);
    for (int i = 0; i < FIT_LINES; i++) {
        char text[96];
        if (!lines[i].differs)
            continue;
        snprintf(text, sizeof text, "%s%s%s=%s", lines[i].section, lines[i].section[0] ? "." : "", lines[i].key,
                 lines[i].value);
        HS_TRY(hs_config_override(config, text));
    }
    return HS_OK;
}
