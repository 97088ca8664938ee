/* SPDX-License-Identifier: MIT
 *
 * All tasks as one stream: proportions, order within a task, and batches that are made of exactly these samples.
 * A plain program like test_loader.c, so that ThreadSanitizer can look at it.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/data/stream/internal.h"

enum { LENGTH = 8, TOKENS = 700, TASKS = 3, STRIDE = 1000, ROWS = 4 };

static int passed, failed;

static void check(bool condition, const char *what, int64_t value)
{
    passed += condition;
    failed += !condition;
    if (!condition && failed < 50)
        printf("FAIL: %s (%lld)\n", what, (long long)value);
}

/* Every token encodes its task and position. */
static void make_data(HsTaskData *data)
{
    *data = (HsTaskData){ .tasks = calloc(TASKS, sizeof(HsDataset)), .count = TASKS };
    for (int task = 0; data->tasks && task < TASKS; task++) {
        HsDataset *dataset = &data->tasks[task];
        *dataset = (HsDataset){ .sequence_length = LENGTH, .seed = 7 + (uint64_t)task };
        dataset->train.count = TOKENS;
        dataset->train.tokens = malloc(TOKENS * sizeof(int32_t));
        if (!dataset->train.tokens)
            abort();
        for (int32_t i = 0; i < TOKENS; i++)
            dataset->train.tokens[i] = task * STRIDE + i;
    }
    if (!data->tasks)
        abort();
}

/* Blocks in exact proportion, each task's samples used in order without gaps, and orders that differ. */
static void check_joint(const HsTaskData *data, const double *shares, const int64_t *weights)
{
    enum { BLOCKS = 40 };
    HsJoint joint;
    int64_t total = 0, next[TASKS] = { 0 };
    bool orders_differ = false;
    check(hs_joint_init(&joint, data, shares) == HS_OK, "init", 0);
    for (int t = 0; t < TASKS; t++) {
        check(joint.weights[t] == weights[t], "weight", joint.weights[t]);
        total += weights[t];
    }
    check(joint.total == total, "block", joint.total);
    for (int64_t block = 0; block < BLOCKS; block++) {
        int64_t used[TASKS] = { 0 }, sum[TASKS] = { 0 };
        for (int64_t i = 0; i < total; i++) {
            int task, first_task;
            int64_t sample, first_sample;
            hs_joint_locate(&joint, block * total + i, &task, &sample);
            hs_joint_locate(&joint, i, &first_task, &first_sample);
            orders_differ |= task != first_task;
            bool inside = sample >= next[task] && sample < next[task] + weights[task];
            check(inside, "a sample of this block", sample);
            used[task]++;
            sum[task] += sample - next[task];
        }
        for (int t = 0; t < TASKS; t++) {
            check(used[t] == weights[t] && sum[t] == weights[t] * (weights[t] - 1) / 2, "proportions", block);
            next[t] += weights[t];
        }
    }
    check(orders_differ, "blocks have different orders", total);
    hs_joint_deinit(&joint);
}

static void test_joint_shares(const HsTaskData *data)
{
    check_joint(data, (const double[]){ 400, 400, 800 }, (const int64_t[]){ 1, 1, 2 });
    check_joint(data, (const double[]){ 0.1, 0.7, 0.2 }, (const int64_t[]){ 1, 7, 2 });
    check_joint(data, (const double[]){ 300, 200, 150 }, (const int64_t[]){ 6, 4, 3 });
    /* No block of 10000 is exact: the nearest, and at least one of each. */
    HsJoint joint;
    check(hs_joint_init(&joint, data, (const double[]){ 3.14159265358979, 1e-9, 2.71828182845905 }) == HS_OK, "init",
          1);
    check(joint.weights[0] == 5361 && joint.weights[1] == 1 && joint.weights[2] == 4639, "rounded weights",
          joint.weights[0]);
    hs_joint_deinit(&joint);
    check(hs_joint_init(&joint, data, (const double[]){ 1, 0, 1 }) == HS_EINVAL, "a share of nothing", 0);
    hs_joint_deinit(&joint);
}

/* Hands the next batch out, as a step that is not given up does. */
static HsStatus take_next(HsDataStream *stream, const HsStreamBatch **batch)
{
    HS_TRY(hs_stream_peek(stream, batch));
    hs_stream_accept(stream);
    return HS_OK;
}

/* The stream's rows are the located samples, also when it continues in the middle. */
static void test_joint_stream(const HsTaskData *data)
{
    enum { STEPS = 20 };
    const double shares[TASKS] = { 3, 2, 1 };
    HsStreamOptions options = {
        .data = data,
        .joint = true,
        .weights = shares,
        .plan = { .rows = ROWS, .group_steps = 1, .groups = 1, .current_rate_scale = 1 },
        .prefetch = 2,
        .workers = 2,
    };
    HsJoint joint;
    if (hs_joint_init(&joint, data, shares) != HS_OK)
        abort();
    for (int64_t start = 0; start < STEPS; start += 7) {
        HsDataStream *stream = NULL;
        HsStreamPosition position = { start, 0, start * ROWS };
        bool same = hs_stream_create(&options, &stream) == HS_OK &&
                    hs_stream_begin_task(stream, 0, start > 0 ? &position : NULL) == HS_OK;
        for (int64_t step = start; same && step < STEPS; step++) {
            const HsStreamBatch *batch;
            same = take_next(stream, &batch) == HS_OK;
            for (int64_t row = 0; same && row < batch->rows; row++) {
                int task;
                int64_t sample;
                int32_t tokens[LENGTH], targets[LENGTH];
                hs_joint_locate(&joint, step * ROWS + row, &task, &sample);
                hs_dataset_sample(&data->tasks[task], sample, tokens, targets);
                same = memcmp(tokens, batch->tokens + row * LENGTH, sizeof tokens) == 0 &&
                       memcmp(targets, batch->targets + row * LENGTH, sizeof targets) == 0;
            }
        }
        check(same, "stream", start);
        hs_stream_end_task(stream);
        hs_stream_destroy(stream);
    }
    hs_joint_deinit(&joint);
}

int main(void)
{
    HsTaskData data;
    make_data(&data);
    test_joint_shares(&data);
    test_joint_stream(&data);
    hs_task_data_deinit(&data);
    printf("%d passed, %d failed\n", passed, failed);
    return failed == 0 && passed > 0 ? 0 : 1;
}
