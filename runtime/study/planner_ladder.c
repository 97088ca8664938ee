/* SPDX-License-Identifier: MIT
 *
 * Every rung through the planner: a dry run of the rung's own program, optimizer and batches.  Only the scores of an
 * attention that writes them are a formula, as no program here makes them.
 */
#include "runtime/study/planner_ladder.h"

#include <assert.h>
#include <math.h>
#include <string.h>

/* --- time --- */

/* Rates are measured once for each mode, on this device as it is now. */
typedef struct Rates {
    const HsTraining *training;
    const HsPlannerOptions *options;
    double bytes; /* 0: not asked yet */
    struct {
        const char *mode;
        HsDeviceRates rates;
    } modes[HS_LADDER_LINES];
    int count;
} Rates;

static HsDeviceRates rates_of(Rates *rates, const HsPrecision *precision, size_t parameter_bytes)
{
    const size_t most = (size_t)256 << 20, probe = parameter_bytes < most ? parameter_bytes : most;
    for (int i = 0; i < rates->count; i++)
        if (strcmp(rates->modes[i].mode, precision->name) == 0)
            return rates->modes[i].rates;
    HsDeviceRates found = hs_planner_rates(rates->training, rates->options, precision, probe);
    rates->bytes = rates->bytes > 0 ? rates->bytes : found.bytes; /* one memory for all modes */
    found.bytes = rates->bytes;
    rates->modes[rates->count].mode = precision->name;
    rates->modes[rates->count++].rates = found;
    return found;
}

/* --- lines --- */

static size_t computed_scores(const HsRung *rung, const HsConfig *config, const HsMemoryPlan *plan,
                              const HsPrecision *precision)
{
    const size_t layer = hs_rung_score_bytes(config, plan->micro_batch, hs_dtype_bytes(precision->activation));
    const size_t layers[] = {
        [HS_SCORES_NONE] = 0, [HS_SCORES_OF_ONE_LAYER] = 1, [HS_SCORES_OF_ALL_LAYERS] = (size_t)config->model.layers
    };
    return hs_size_multiply(layer, layers[rung->scores]);
}

static HsStatus plan_line(const HsLadder *ladder, Rates *rates, const HsConfig *config, HsLadderLine *line)
{
    HsTraining draft;
    HS_TRY(hs_training_draft(ladder->training, config, &draft));
    hs_training_measure_plan(&draft, &line->plan);
    line->score_bytes = computed_scores(line->rung, config, &line->plan, &draft.precision);
    line->bytes = hs_size_add(line->plan.device_bytes, line->score_bytes);
    line->fits = line->bytes <= ladder->limit;
    const HsDeviceRates found = rates_of(rates, &draft.precision, hs_planner_parameter_bytes(&line->plan));
    line->seconds = found.flops > 0 ? hs_memory_plan_seconds(&line->plan, &found) : (double)NAN;
    hs_training_release(&draft);
    return HS_OK;
}

/* What this configuration or this device cannot have is a line with its reason; everything else ends the ladder. */
static HsStatus make_line(HsLadder *ladder, Rates *rates, int rung, HsLadderLine *line)
{
    HsConfig config;
    *line = (HsLadderLine){ .rung = &hs_rungs[rung], .seconds = (double)NAN };
    HsStatus status = hs_rung_load(rates->options, rung, &config);
    if (status == HS_OK) {
        status = plan_line(ladder, rates, &config, line);
        hs_config_deinit(&config);
    }
    if (status == HS_OK || (status != HS_ECONFIG && status != HS_EUNSUPPORTED))
        return status;
    snprintf(line->refused, sizeof line->refused, "%.511s", hs_error_message());
    return HS_OK;
}

static double saved(const HsLadderLine *line, const HsLadderLine *from)
{
    return 1 - (double)line->bytes / (double)from->bytes;
}

static HsStatus make_lines(HsLadder *ladder, Rates *rates)
{
    const HsLadderLine *before = NULL;
    assert(hs_rung_count <= HS_LADDER_LINES);
    for (int i = 0; i < hs_rung_count; i++) {
        HsLadderLine *line = &ladder->lines[ladder->count++];
        HS_TRY(make_line(ladder, rates, i, line));
        if (line->refused[0] != '\0')
            continue;
        before = before ? before : line;
        ladder->first = ladder->first ? ladder->first : line;
        line->saved_before = saved(line, before);
        line->saved_in_all = saved(line, ladder->first);
        before = line;
    }
    return ladder->first ? HS_OK
                         : hs_fail(HS_ECONFIG, "no configuration of the ladder can be planned; the first: %s",
                                   ladder->lines[0].refused);
}

HsStatus hs_planner_print_ladder(const HsTraining *training, const HsPlannerOptions *options, FILE *out)
{
    HsLadder ladder = { .training = training, .limit = hs_training_memory_limit(training) };
    Rates rates = { .training = training, .options = options };
    ladder.rates = options->card               ? "the card's datasheet"
                   : training->engine.emulated ? "nothing: no rate is known of this device"
                                               : "rates measured on this device";
    HS_TRY(make_lines(&ladder, &rates));
    return options->json ? hs_ladder_print_json(&ladder, out) : hs_ladder_print(&ladder, out);
}
