/* SPDX-License-Identifier: MIT
 *
 * All tasks as one stream: which task's which sample is sample i, as a pure function of i.
 *
 *     block b = i / W     | w_0 samples of task 0, w_1 of task 1, ... in an order drawn for the block |    W = sum w
 *     place p = permute(key(b), i mod W):   task t with  w_0 + .. + w_(t-1) <= p < w_0 + .. + w_t
 *     its sample k = b w_t + (p - w_0 - .. - w_(t-1))
 *
 * So every W samples hold the tasks in exact proportions, and each task's samples are used block after block without
 * gaps or repetition: its epochs are what they are when it is trained alone.
 */
#include "runtime/data/stream/internal.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>

#include "kernels/base/rng.h"

/* Longer blocks bring nothing: proportions are within 1/10000 of what was asked for. */
enum { BLOCK_MOST = 10000 };

/* Weights for blocks of about `total` samples, at least one of each task; whether they are the shares exactly. */
static bool weigh(HsJoint *joint, const double *shares, double sum, int64_t total)
{
    bool exact = true;
    joint->total = 0;
    for (int t = 0; t < joint->data->count; t++) {
        double wanted = shares[t] / sum * (double)total, nearest = round(wanted);
        /* Rounded on the way: the share itself and the others, their sum, the quotient, the product. */
        double roundings = joint->data->count + 3;
        exact = exact && nearest >= 1 && fabs(nearest - wanted) <= roundings * 0x1p-53 * wanted;
        joint->weights[t] = nearest >= 1 ? (int64_t)nearest : 1;
        joint->total += joint->weights[t];
    }
    return exact;
}

HsStatus hs_joint_init(HsJoint *joint, const HsTaskData *data, const double *shares)
{
    double sum = 0;
    *joint = (HsJoint){ .data = data };
    for (int t = 0; t < data->count; t++) {
        if (!(shares[t] > 0 && isfinite(shares[t])))
            return hs_fail(HS_EINVAL, "joint training: the share of task %d must be positive (got %g)", t + 1,
                           shares[t]);
        sum += shares[t];
    }
    joint->weights = calloc((size_t)data->count, sizeof *joint->weights);
    if (!joint->weights)
        return hs_fail(HS_ENOMEM, "no memory for the shares of %d tasks", data->count);
    /* The shortest block that has the shares exactly, since proportions hold from block to block. */
    int64_t total = data->count;
    while (!weigh(joint, shares, sum, total) && total < BLOCK_MOST)
        total++;
    return HS_OK;
}

void hs_joint_deinit(HsJoint *joint)
{
    free(joint->weights);
    *joint = (HsJoint){ 0 };
}

void hs_joint_locate(const HsJoint *joint, int64_t index, int *task, int64_t *sample)
{
    assert(index >= 0);
    int64_t block = index / joint->total;
    const uint32_t counter[4] = { (uint32_t)block, (uint32_t)((uint64_t)block >> 32), 0, 0x4a4f494e };
    HsPhilox bits = hs_philox(joint->data->tasks[0].seed, counter);
    uint64_t key = (uint64_t)bits.word[1] << 32 | bits.word[0];
    int64_t place = hs_rng_permute(key, index % joint->total, joint->total);
    int t = 0;
    while (place >= joint->weights[t])
        place -= joint->weights[t++];
    *task = t;
    *sample = block * joint->weights[t] + place;
}

static HsStatus sample_joint(const void *user, int64_t index, int32_t *tokens, int32_t *targets)
{
    const HsJoint *joint = user;
    int task;
    int64_t sample;
    hs_joint_locate(joint, index, &task, &sample);
    return hs_dataset_sample(&joint->data->tasks[task], sample, tokens, targets);
}

HsSampler hs_joint_sampler(const HsJoint *joint)
{
    return (HsSampler){ sample_joint, joint, joint->data->tasks[0].sequence_length };
}
