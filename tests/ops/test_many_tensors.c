/* SPDX-License-Identifier: MIT
 *
 * Sums over more tensors than one launch of the CUDA kernels takes, on the emulated GPU: every tensor's value stands at
 * its own index, whichever launch it came in, and tensors of several parts lie between small ones.
 */
#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>

#include "kernels/base/tolerance.h"
#include "kernels/ops/backend.h"
#include "tests/support/emulator.h"

#define RUN(call) cr_assert_eq((call), HS_OK, "%s", hs_error_message())

enum { TENSORS = 400, SMALL = 5, LARGE = 40001, LARGE_EVERY = 90, RESULTS = 3 };

static int64_t size_of(int tensor)
{
    return tensor % LARGE_EVERY == LARGE_EVERY - 1 ? LARGE : SMALL + tensor % 4;
}

/* One device allocation; tensors are views of it. */
typedef struct Data {
    HsDevice device;
    HsContext context;
    HsTensor tensors[TENSORS];
    float *host;
    int64_t offset[TENSORS];
    double *results; /* device [RESULTS][TENSORS] */
} Data;

static void make(Data *data)
{
    const HsCudaOptions options = { 0 };
    RUN(emulator()->device_init(&data->device, &options));
    data->context = (HsContext){ .backend = emulator()->backend, .device = &data->device, .threads = 1 };
    int64_t total = 0;
    for (int t = 0; t < TENSORS; t++) {
        data->offset[t] = total;
        total += size_of(t) + (4 - size_of(t) % 4) % 4; /* aligned, as arenas do */
    }
    data->host = malloc((size_t)total * sizeof(float));
    const HsRng rng = { .seed = 5 };
    for (int64_t i = 0; i < total; i++)
        data->host[i] = hs_rng_uniform(hs_rng_draw(&rng, (uint64_t)i).word[0]);
    void *device_data, *results;
    RUN(data->device.alloc(&data->device, (size_t)total * sizeof(float), &device_data));
    RUN(data->device.alloc(&data->device, RESULTS * TENSORS * sizeof(double), &results));
    RUN(data->device.copy(&data->device, NULL, device_data, data->host, (size_t)total * sizeof(float)));
    data->results = results;
    for (int t = 0; t < TENSORS; t++)
        data->tensors[t] = hs_tensor_1d((float *)device_data + data->offset[t], HS_F32, size_of(t));
}

/* As much workspace as the operation asks for in a dry run. */
static void give_workspace(Data *data)
{
    data->context.dry_run = false;
    RUN(data->device.alloc(&data->device, data->context.workspace_needed, &data->context.workspace));
    data->context.workspace_bytes = data->context.workspace_needed;
}

static void download(Data *data, double results[RESULTS][TENSORS])
{
    RUN(data->device.copy(&data->device, NULL, results, data->results, RESULTS * TENSORS * sizeof(double)));
    RUN(data->device.stream_sync(&data->device, NULL));
}

static void finish(Data *data)
{
    free(data->host);
    data->device.deinit(&data->device);
}

/* Sums of positive numbers in double, in any order, by both sides. */
static void expect_near(double found, double expected, int tensor)
{
    const double tolerance = 2.0 * hs_tolerance(LARGE, 0, HS_F64, HS_F64, expected, 0.0);
    cr_assert(fabs(found - expected) <= tolerance, "tensor %d: %.17g, expected %.17g", tensor, found, expected);
}

Test(many_tensors, importance_stats)
{
    Data data = { 0 };
    make(&data);
    const HsImportanceStatsArgs args = { .tensors = data.tensors,
                                         .count = TENSORS,
                                         .maximum = data.results,
                                         .sum = data.results + TENSORS,
                                         .sum_squares = data.results + 2 * (size_t)TENSORS };
    data.context.dry_run = true;
    RUN(hs_op_importance_stats(&data.context, &args));
    give_workspace(&data);
    RUN(hs_op_importance_stats(&data.context, &args));
    double found[RESULTS][TENSORS];
    download(&data, found);
    for (int t = 0; t < TENSORS; t++) {
        double maximum = 0.0, sum = 0.0, sum_squares = 0.0;
        for (int64_t i = 0; i < size_of(t); i++) {
            const double value = (double)data.host[data.offset[t] + i];
            maximum = fmax(maximum, value);
            sum += value;
            sum_squares += value * value;
        }
        cr_assert_eq(found[0][t], maximum, "tensor %d", t);
        expect_near(found[1][t], sum, t);
        expect_near(found[2][t], sum_squares, t);
    }
    finish(&data);
}

/* The lists of two and of three streams are shorter: their launches are cut elsewhere.  Every seventh tensor has no
 * anchor, and so no part. */
Test(many_tensors, dot_and_penalty)
{
    Data data = { 0 };
    make(&data);
    HsTensor absent[TENSORS] = { 0 }, anchors[TENSORS];
    for (int t = 0; t < TENSORS; t++)
        anchors[t] = t % 7 == 0 ? absent[t] : data.tensors[t];
    const HsDotArgs dot = { .x = data.tensors, .y = data.tensors, .count = TENSORS, .values = data.results };
    /* p - anchor is 0 where they are the same: the anchor is the tensor before, where that has the same size */
    for (int t = TENSORS - 1; t > 0; t--)
        if (hs_tensor_present(&anchors[t]) && size_of(t) < LARGE)
            anchors[t].data = data.tensors[t - 1].data;
    const HsPenaltyArgs penalty = { .importance = absent,
                                    .anchor = anchors,
                                    .parameter = data.tensors,
                                    .count = TENSORS,
                                    .values = data.results + TENSORS };
    data.context.dry_run = true;
    RUN(hs_op_dot(&data.context, &dot));
    RUN(hs_op_penalty(&data.context, &penalty));
    give_workspace(&data);
    RUN(hs_op_dot(&data.context, &dot));
    RUN(hs_op_penalty(&data.context, &penalty));
    double found[RESULTS][TENSORS];
    download(&data, found);
    for (int t = 0; t < TENSORS; t++) {
        double sum_squares = 0.0, sum_distances = 0.0;
        for (int64_t i = 0; i < size_of(t); i++) {
            const float p = data.host[data.offset[t] + i];
            sum_squares += (double)p * (double)p;
            if (!hs_tensor_present(&anchors[t]) || size_of(t) == LARGE || t == 0)
                continue;
            const double distance = (double)(p - data.host[data.offset[t - 1] + i]);
            sum_distances += distance * distance;
        }
        expect_near(found[0][t], sum_squares, t);
        expect_near(found[1][t], sum_distances, t);
    }
    finish(&data);
}
