/* SPDX-License-Identifier: MIT
 *
 * How far a configuration can grow within a limit.  Bytes are nearly a straight line over sequences and over their
 * length: two points of it lead to within a few of the answer, and where they don't, halving continues.
 */
#include <math.h>

#include "runtime/study/planner.h"

static void set_rows(HsConfig *config, int64_t value)
{
    const int64_t parts = config->distributed.virtual_ranks; /* each has to have as many */
    config->training.batch_size = value * (parts > 1 ? parts : 1);
    config->memory.micro_batch = value;
}

static void set_length(HsConfig *config, int64_t value)
{
    set_rows(config, 1);
    config->training.gradient_accumulation_steps = 1;
    config->training.max_length = value;
}

const HsGrowth hs_planner_rows = { set_rows }, hs_planner_length = { set_length };

static HsStatus bytes_of(const HsTraining *training, const HsGrowth *growth, const HsConfig *base, int64_t value,
                         size_t *bytes)
{
    HsConfig config = *base;
    HsMemoryPlan plan;
    growth->set(&config, value);
    HS_TRY(hs_training_plan(training, &config, &plan));
    *bytes = plan.device_bytes;
    return HS_OK;
}

HsStatus hs_planner_find_most(const HsTraining *training, const HsGrowth *growth, const HsConfig *config, int64_t from,
                              size_t from_bytes, size_t limit, int64_t bound, int64_t *most)
{
    enum { GUESSES = 8 };
    int64_t low = from, high = bound + 1, at = from; /* low fits, high does not */
    double bytes_at = (double)from_bytes, slope = 0;
    for (int tries = 0; high - low > 1; tries++) {
        int64_t guess = low + (high - low) / 2;
        if (tries < GUESSES) {
            const double ahead = slope > 0 ? ((double)limit - bytes_at) / slope : (double)from;
            const double wanted = floor((double)at + ahead);
            guess = wanted <= (double)low ? low + 1 : wanted >= (double)high ? high - 1 : (int64_t)wanted;
        }
        size_t bytes;
        HS_TRY(bytes_of(training, growth, config, guess, &bytes));
        *(bytes <= limit ? &low : &high) = guess;
        slope = ((double)bytes - bytes_at) / (double)(guess - at);
        at = guess;
        bytes_at = (double)bytes;
    }
    *most = low;
    return HS_OK;
}
