/* SPDX-License-Identifier: MIT
 *
 * How a task's sources are read, and what messages say of them.
 */
#include <stdio.h>

#include "kernels/base/rng.h"
#include "runtime/data/dataset_build.h"

HsStatus hs_dataset_blame_task(const HsDatasetBuild *building, HsStatus status)
{
    if (status == HS_OK || building->config->task_count < 2)
        return status;
    return hs_error_prefix(status, "task %s", building->task->name);
}

/* A tenth is enough to measure with, as with the default share. */
int64_t hs_dataset_synthetic_bytes(const HsDatasetBuild *building, int source)
{
    const int64_t bytes = building->task->synthetic_tokens;
    return source < building->train_sources ? bytes : bytes / 10;
}

/* Sources in a list are different text even if they have the same name, and so are those of two tasks: each has its
 * own seed. */
static uint64_t source_seed(const HsDatasetBuild *building, int source)
{
    const uint32_t site = 0x534f5552;
    bool validates = source >= building->train_sources;
    uint32_t index = (uint32_t)(validates ? source - building->train_sources : source);
    const uint32_t counter[4] = { index, validates, building->task_index, site };
    HsPhilox bits = hs_philox((uint64_t)building->config->training.seed, counter);
    return (uint64_t)bits.word[1] << 32 | bits.word[0];
}

HsSourceOptions hs_dataset_source_options(const void *user, int source)
{
    const HsDatasetBuild *building = *(HsDatasetBuild *const *)user;
    const HsConfig *config = building->config;
    HsSourceOptions options = hs_source_options(building->task);
    options.chat_template = config->tokenizer.chat_template;
    options.tokenizer_path = config->tokenizer.path;
    options.tokenizer = building->tokenizer;
    options.needs_utf8 = !hs_is(config->tokenizer.kind, "byte");
    options.raw16 = hs_is(config->data.token_file, "raw16");
    options.vocabulary = building->tokenizer ? hs_tokenizer_vocabulary(building->tokenizer) : 0;
    options.seed = source_seed(building, source);
    options.synthetic_bytes = hs_dataset_synthetic_bytes(building, source);
    return options;
}

HsStatus hs_dataset_require_text(const HsDatasetBuild *building, bool there)
{
    if (there)
        return HS_OK;
    char more[32] = "";
    if (building->train_sources > 1)
        snprintf(more, sizeof more, " and %d more", building->train_sources - 1);
    return hs_fail(HS_ECONFIG, "task %s: train holds no text: every file in it is empty: %s%s", building->task->name,
                   building->sources.items[0].name, more);
}

HsStatus hs_dataset_refuse_tokens(const HsDatasetBuild *building, const HsSource *source)
{
    if (!hs_dataset_keeps_documents(building->config))
        return HS_OK;
    return hs_fail(
        HS_ECONFIG,
        "%s: a token file does not say where its documents end, and data.packing: %s keeps them apart: leave "
        "the file out, give its text, or set data.packing: stream",
        hs_source_title(source), building->config->data.packing);
}

bool hs_dataset_keeps_documents(const HsConfig *config)
{
    return !hs_is(config->data.packing, "stream");
}
