/* SPDX-License-Identifier: MIT
 *
 * A stream without marks: the tasks' samples one after another, and nothing that says where one ends.
 *
 *     sample i of the stream = sample i - e_(t-1) of task t,  e_(t-1) <= i < e_t
 */
#include "runtime/data/stream/internal.h"

#include <stdlib.h>
#include <string.h>

HsStatus hs_sequence_init(HsSequence *sequence, const HsTaskData *data, const int64_t *ends)
{
    const size_t bytes = (size_t)data->count * sizeof *ends;
    *sequence = (HsSequence){ .data = data, .ends = malloc(bytes) };
    if (!sequence->ends)
        return hs_fail(HS_ENOMEM, "no memory for the ends of %d tasks", data->count);
    memcpy(sequence->ends, ends, bytes);
    return HS_OK;
}

void hs_sequence_deinit(HsSequence *sequence)
{
    free(sequence->ends);
    *sequence = (HsSequence){ 0 };
}

static HsStatus sample(const void *user, int64_t index, int32_t *tokens, int32_t *targets)
{
    const HsSequence *sequence = user;
    int task = 0;
    while (task + 1 < sequence->data->count && index >= sequence->ends[task])
        task++;
    const int64_t first = task > 0 ? sequence->ends[task - 1] : 0;
    return hs_dataset_sample(&sequence->data->tasks[task], index - first, tokens, targets);
}

HsSampler hs_sequence_sampler(const HsSequence *sequence)
{
    return (HsSampler){ sample, sequence, sequence->data->tasks[0].sequence_length };
}
