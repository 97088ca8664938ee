/* SPDX-License-Identifier: MIT
 *
 * How fast a device is, for the times of plans: a GPU that is not here by its datasheet, the device here as it measures
 * itself.
 */
#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "runtime/config/table.h"
#include "runtime/study/planner.h"

enum { PROBES = 3 /* neighbours disturb some of them */ };

/* "RTX 3060 (12 GB), ..." or, for suggestions, "RTX 3060|RTX 4090|...". */
static char *list_cards(const char *separator, bool sizes)
{
    char *text = NULL;
    size_t bytes = 0;
    FILE *out = open_memstream(&text, &bytes);
    if (!out)
        return NULL;
    for (int i = 0; i < hs_card_count; i++) {
        fprintf(out, "%s%s", i > 0 ? separator : "", hs_cards[i].name);
        if (sizes)
            fprintf(out, " (%d GB)", hs_cards[i].gigabytes);
    }
    if (fclose(out) != 0) {
        free(text);
        return NULL;
    }
    return text;
}

char *hs_card_list(void)
{
    return list_cards(", ", true);
}

HsStatus hs_card_find(const char *name, const HsCard **card)
{
    char near[HS_DOTTED_BYTES];
    for (int i = 0; i < hs_card_count; i++) {
        *card = &hs_cards[i];
        if (strcasecmp(hs_cards[i].name, name) == 0)
            return HS_OK;
    }
    *card = NULL;
    char *words = list_cards("|", false), *list = hs_card_list();
    const bool suggested = words && hs_config_choice_suggest(words, name, near);
    HsStatus status =
        hs_fail(HS_ECONFIG,
                "--card: there is no `%.60s`%s%s%s; the cards are %s; for another one give its memory with "
                "--device-memory",
                name, suggested ? "; did you mean " : "", suggested ? near : "", suggested ? "?" : "",
                list ? list : "in trainer plan --help");
    free(words);
    free(list);
    return status;
}

static HsDeviceRates card_rates(const HsTraining *training, const HsCard *card, const HsPrecision *precision)
{
    HsDeviceRates rates = hs_nominal_rates(&training->engine.device); /* what starting an operation costs */
    rates.bytes = 1e9 * card->gigabytes_per_second;
    rates.flops = 1e12 * (hs_dtype_bytes(precision->weight) < 4   ? card->half_teraflops
                          : hs_policy_is_tf32(precision->forward) ? card->tf32_teraflops
                                                                  : card->f32_teraflops);
    return rates;
}

HsDeviceRates hs_planner_rates(const HsTraining *training, const HsPlannerOptions *options,
                               const HsPrecision *precision, size_t probe_bytes)
{
    const HsContext *context = &training->engine.context;
    const HsBackend *backend = context->backend;
    HsDeviceRates rates = { 0 };
    if (options->card)
        return card_rates(training, options->card, precision);
    for (int probe = 0; probe < PROBES && backend->peak_flops && !training->engine.emulated; probe++)
        rates.flops = fmax(rates.flops, backend->peak_flops(context, precision->weight, precision->forward));
    /* Over no more memory than the run's own parameters: a small model's may lie in a cache, and a plan takes less than
     * what it plans. */
    if (backend->peak_bytes && !training->engine.emulated)
        rates.bytes = backend->peak_bytes(context, probe_bytes);
    return rates;
}

bool hs_planner_is_per_parameter(HsMemoryCategory category)
{
    return category <= HS_MEMORY_OFFLOADED || (category >= HS_MEMORY_PENALTY && category <= HS_MEMORY_REFERENCE);
}

size_t hs_planner_parameter_bytes(const HsMemoryPlan *plan)
{
    size_t bytes = 0;
    for (int i = 0; i < HS_MEMORY_COUNT; i++)
        bytes = hs_size_add(bytes, hs_planner_is_per_parameter((HsMemoryCategory)i) ? plan->bytes[i] : 0);
    return bytes;
}
