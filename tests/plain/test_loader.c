/* SPDX-License-Identifier: MIT
 *
 * The prefetching loader under several threads.  A plain program, because ThreadSanitizer does not get along with the
 * test framework: it prints "N passed, N failed" and returns 0 or 1.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "runtime/data/dataset.h"

enum { LENGTH = 16, TOKENS = 5000, ROWS = 6 };

static int passed, failed;

static void check(bool condition, const char *what, int64_t value)
{
    passed += condition;
    failed += !condition;
    if (!condition)
        printf("FAIL: %s (%lld)\n", what, (long long)value);
}

/* Every token encodes its position; every third is no target. */
static HsDataset counting_dataset(void)
{
    HsDataset dataset = { .sequence_length = LENGTH, .seed = 7 };
    dataset.train.count = TOKENS;
    dataset.train.tokens = malloc(TOKENS * sizeof(int32_t));
    dataset.train.loss_mask = malloc(TOKENS);
    if (!dataset.train.tokens || !dataset.train.loss_mask)
        abort();
    for (int32_t i = 0; i < TOKENS; i++) {
        dataset.train.tokens[i] = i;
        dataset.train.loss_mask[i] = i % 3 != 0;
    }
    return dataset;
}

/* Batch `number` of a loader that began at `first`, against rows made one by one. */
static void check_batch(const HsDataset *dataset, const HsBatch *batch, int64_t first, int64_t number)
{
    int32_t tokens[LENGTH], targets[LENGTH];
    int64_t counted = 0;
    bool same = batch->rows == ROWS && batch->first_index == first + number * ROWS;
    for (int64_t row = 0; row < ROWS; row++) {
        hs_dataset_sample(dataset, first + number * ROWS + row, tokens, targets);
        same = same && memcmp(tokens, batch->tokens + row * LENGTH, sizeof tokens) == 0 &&
               memcmp(targets, batch->targets + row * LENGTH, sizeof targets) == 0;
        for (int t = 0; t < LENGTH; t++)
            counted += targets[t] >= 0;
    }
    check(same, "batch holds its rows in order", number);
    check(counted == batch->counted && counted > 0 && counted < ROWS * LENGTH, "counted targets", number);
}

static void test_order(const HsDataset *dataset, int64_t first, int64_t prefetch, int64_t workers)
{
    HsLoader *loader = NULL;
    HsSampler sampler = hs_dataset_sampler(dataset);
    check(hs_loader_create(&sampler, ROWS, first, prefetch, workers, &loader) == HS_OK, "create", workers);
    for (int64_t number = 0; loader && number < 60; number++) {
        const HsBatch *batch = NULL;
        check(hs_loader_next(loader, &batch) == HS_OK, "next", number);
        check_batch(dataset, batch, first, number);
        /* Workers that run ahead must not touch the batch in hand, however long it is held. */
        if (number % 20 == 5) {
            nanosleep(&(struct timespec){ .tv_nsec = 2000000 }, NULL);
            check_batch(dataset, batch, first, number);
        }
    }
    hs_loader_destroy(loader);
}

/* Destroyed at once, full, half used, or while workers wait: it must return, and leak nothing. */
static void test_shutdown(const HsDataset *dataset)
{
    HsSampler sampler = hs_dataset_sampler(dataset);
    for (int64_t taken = 0; taken < 12; taken++) {
        HsLoader *loader = NULL;
        const HsBatch *batch;
        bool ok = hs_loader_create(&sampler, ROWS, 0, 1 + taken % 3, 1 + taken % 5, &loader) == HS_OK;
        for (int64_t i = 0; ok && i < taken; i++)
            ok = hs_loader_next(loader, &batch) == HS_OK;
        if (taken % 2)
            nanosleep(&(struct timespec){ .tv_nsec = 1000000 }, NULL);
        hs_loader_destroy(loader);
        check(ok, "shut down", taken);
    }
}

static void test_bad_arguments(const HsDataset *dataset)
{
    HsLoader *loader = NULL;
    HsSampler sampler = hs_dataset_sampler(dataset);
    check(hs_loader_create(&sampler, 0, 0, 1, 1, &loader) == HS_EINVAL && !loader, "no rows", 0);
    check(hs_loader_create(&sampler, 1, 0, 0, 1, &loader) == HS_EINVAL && !loader, "no prefetch", 0);
    check(hs_loader_create(&sampler, 1, 0, 1, 0, &loader) == HS_EINVAL && !loader, "no workers", 0);
    check(hs_loader_create(&sampler, 1, -1, 1, 1, &loader) == HS_EINVAL && !loader, "negative index", 0);
    hs_loader_destroy(NULL);
}

int main(void)
{
    HsDataset dataset = counting_dataset();
    static const int64_t counts[] = { 1, 2, 4, 9 };
    for (int mode = 0; mode < 2; mode++) {
        dataset.random_windows = mode == 1;
        for (size_t p = 0; p < 4; p++)
            for (size_t w = 0; w < 4; w++)
                test_order(&dataset, 137 * (int64_t)p, counts[p], counts[w]);
    }
    test_shutdown(&dataset);
    test_bad_arguments(&dataset);
    free(dataset.train.tokens);
    free(dataset.train.loss_mask);
    printf("%d passed, %d failed\n", passed, failed);
    return failed == 0 && passed > 0 ? 0 : 1;
}
