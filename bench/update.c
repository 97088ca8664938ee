/* SPDX-License-Identifier: MIT
 *
 * Speed of the cpu backend's operations on whole parameters against the machine's own memory bandwidth, measured in the
 * same run.
 *
 *     update [THREADS ...]          default: 1 and the machine's processors
 *
 * The update rules in the layout of mixed precision: f32 gradient, moments and master, bf16 weight, also with the
 * weight packed for the next products by the same pass, and packing alone.  Bytes are those that an operation must
 * move: what it reads once, what it writes once, what it updates twice.  The bandwidth is the best of three loops over
 * the same arrays: copy y = x, triad z = x + s y (McCalpin 1995), and y += s x, which like an update writes only what
 * it has read.  Where reading is the narrower way, an operation that writes as much as it reads (they read twice as
 * much) can pass 100%, and one that only reads stays below.  HALFSTEP_CPU_ISA chooses the instruction set.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <omp.h>

#include "kernels/base/clock.h"
#include "kernels/cpu/cpu.h"

/* 64 MiB a tensor in f32: far beyond every cache. */
enum { COUNT = 1 << 24, COLUMNS = 1 << 10, LEAST_RUNS = 5, MOST_RUNS = 100 };

/* Every tensor that some operation needs. */
enum { GRAD, M, V, MASTER, WEIGHT, IMPORTANCE, ANCHOR, PATH, M_CODES, V_CODES, M_ABSMAX, V_ABSMAX, TENSOR_COUNT };

static HsDtype dtype_of(int index)
{
    if (index == M_CODES || index == V_CODES)
        return HS_U8;
    return index == WEIGHT ? HS_BF16 : HS_F32;
}

/* Numbers in [1/4, 1/2).  Written anew for every row: moments that decay for a thousand steps become subnormal, and
 * those cost more than they should. */
static void fill(const HsTensor tensors[TENSOR_COUNT])
{
    for (int t = 0; t < TENSOR_COUNT; t++)
        for (int64_t i = 0; i < COUNT; i++) {
            const float value = 0.25f + (float)(i % 1021) / 4096.0f;
            if (dtype_of(t) == HS_F32)
                ((float *)tensors[t].data)[i] = value;
            else if (dtype_of(t) == HS_U8)
                ((uint8_t *)tensors[t].data)[i] = (uint8_t)(160 + i % 83);
            else
                ((uint16_t *)tensors[t].data)[i] = hs_bf16_encode(value);
        }
}

static const HsStepScalars scalars = { .learning_rate = 1e-4f,
                                       .gradient_multiplier = 1.0f,
                                       .bias_correction1 = 0.5f,
                                       .bias_correction2 = 0.5f,
                                       .unscale = 1.0f,
                                       .free_rate = 1e-4f,
                                       .free_weight = 0.01f };
static const HsTensor absent = { 0 };

/* Of the weight as a matrix, with `transposed` and without. */
static HsPacked packed_transposed, packed;

static HsTensor weight_matrix(const HsTensor *t)
{
    return hs_tensor_2d(t[WEIGHT].data, HS_BF16, COUNT / COLUMNS, COLUMNS);
}

/* What is added to an update: nothing, packing, the penalty by either step, and the path integral. */
typedef enum Guard { PLAIN, PACKING, GRADIENT_STEP, PROXIMAL_STEP, WITH_PATH } Guard;

static HsProtection protection_of(const HsTensor *t, Guard guard)
{
    if (guard == PLAIN || guard == PACKING)
        return (HsProtection){ .strength = 0.0f };
    return (HsProtection){ .importance = t[IMPORTANCE],
                           .anchor = t[ANCHOR],
                           .path = guard == WITH_PATH ? t[PATH] : absent,
                           .strength = 1.0f,
                           .proximal = guard == PROXIMAL_STEP };
}

static HsStatus adamw_of(HsContext *context, const HsTensor *t, Guard guard, bool schedule_free)
{
    HsUpdateEpilogue epilogue = { .back_count = 0 };
    if (guard == PACKING)
        epilogue.packed_transposed = &packed_transposed, epilogue.packed = &packed;
    return hs_op_adamw(context, &(HsAdamWArgs){ .update.scalars = &scalars,
                                                .beta1 = 0.9f,
                                                .beta2 = 0.95f,
                                                .epsilon = 1e-8f,
                                                .schedule_free = schedule_free,
                                                .update.weight_decay = 0.01f,
                                                .update.learning_rate_scale = 1.0f,
                                                .update.grad = t[GRAD],
                                                .m = t[M],
                                                .v = t[V],
                                                .update.master = t[MASTER],
                                                .update.weight = weight_matrix(t),
                                                .update.protection = protection_of(t, guard),
                                                .update.epilogue = epilogue });
}

static HsStatus adamw(HsContext *context, const HsTensor *t, Guard guard)
{
    return adamw_of(context, t, guard, false);
}

static HsStatus schedule_free(HsContext *context, const HsTensor *t, Guard guard)
{
    return adamw_of(context, t, guard, true);
}

static HsTensor first_half(HsTensor tensor)
{
    tensor.dtype = HS_BF16;
    return tensor;
}

/* Moments in bf16, in the first half of m's and v's memory. */
static HsStatus adamw_rounded(HsContext *context, const HsTensor *t, Guard guard)
{
    (void)guard;
    return hs_op_adamw(context, &(HsAdamWArgs){ .update.scalars = &scalars,
                                                .beta1 = 0.9f,
                                                .beta2 = 0.95f,
                                                .epsilon = 1e-8f,
                                                .update.weight_decay = 0.01f,
                                                .update.learning_rate_scale = 1.0f,
                                                .update.grad = t[GRAD],
                                                .m = first_half(t[M]),
                                                .v = first_half(t[V]),
                                                .update.master = t[MASTER],
                                                .update.weight = weight_matrix(t) });
}

/* The absmax of each block are the first ones of their tensors. */
static HsStatus adamw_codes(HsContext *context, const HsTensor *t, Guard guard, HsMomentMap map)
{
    const int64_t blocks = hs_dynamic_blocks(COUNT);
    HsUpdateEpilogue epilogue = { .back_count = 0 };
    if (guard == PACKING)
        epilogue.packed_transposed = &packed_transposed, epilogue.packed = &packed;
    return hs_op_adamw8bit(context, &(HsAdamW8bitArgs){ .update.scalars = &scalars,
                                                        .beta1 = 0.9f,
                                                        .beta2 = 0.95f,
                                                        .epsilon = 1e-8f,
                                                        .map = map,
                                                        .update.weight_decay = 0.01f,
                                                        .update.learning_rate_scale = 1.0f,
                                                        .update.grad = t[GRAD],
                                                        .m = t[M_CODES],
                                                        .v = t[V_CODES],
                                                        .m_absmax = hs_tensor_1d(t[M_ABSMAX].data, HS_F32, blocks),
                                                        .v_absmax = hs_tensor_1d(t[V_ABSMAX].data, HS_F32, blocks),
                                                        .update.master = t[MASTER],
                                                        .update.weight = weight_matrix(t),
                                                        .update.protection = protection_of(t, guard),
                                                        .update.epilogue = epilogue });
}

static HsStatus adamw8bit(HsContext *context, const HsTensor *t, Guard guard)
{
    return adamw_codes(context, t, guard, HS_MOMENTS_DYNAMIC);
}

static HsStatus adamwfp8(HsContext *context, const HsTensor *t, Guard guard)
{
    return adamw_codes(context, t, guard, HS_MOMENTS_FP8);
}

static HsStatus packing(HsContext *context, const HsTensor *t, Guard guard)
{
    (void)guard;
    const HsTensor w = weight_matrix(t);
    HS_TRY(hs_op_pack_weight(context, &(HsPackWeightArgs){ w, true, &packed_transposed }));
    return hs_op_pack_weight(context, &(HsPackWeightArgs){ w, false, &packed });
}

static HsStatus sgd(HsContext *context, const HsTensor *t, Guard guard)
{
    return hs_op_sgd(context, &(HsSgdArgs){ .update.scalars = &scalars,
                                            .momentum = 0.9f,
                                            .update.learning_rate_scale = 1.0f,
                                            .update.grad = t[GRAD],
                                            .buffer = t[M],
                                            .update.master = t[MASTER],
                                            .update.weight = t[WEIGHT],
                                            .update.protection = protection_of(t, guard) });
}

static HsStatus interpolate(HsContext *context, const HsTensor *t, Guard guard)
{
    (void)guard;
    return hs_op_interpolate(context, &(HsInterpolateArgs){ t[ANCHOR], t[MASTER], t[WEIGHT], 0.5f, { 0 } });
}

static HsStatus penalty(HsContext *context, const HsTensor *t, Guard guard)
{
    (void)guard;
    double value;
    return hs_op_penalty(context, &(HsPenaltyArgs){ t + IMPORTANCE, t + ANCHOR, t + MASTER, 1, &value });
}

static HsStatus square_accumulate(HsContext *context, const HsTensor *t, Guard guard)
{
    (void)guard;
    return hs_op_square_accumulate(context, &(HsSquareAccumulateArgs){ t[GRAD], t[V], 1.0f, 1.0f });
}

static HsStatus dot(HsContext *context, const HsTensor *t, Guard guard)
{
    (void)guard;
    double value;
    return hs_op_dot(context, &(HsDotArgs){ &t[M], &t[V], 1, &value });
}

static const struct {
    const char *name;
    HsStatus (*call)(HsContext *context, const HsTensor *tensors, Guard guard);
    Guard guard;
    int bytes; /* a parameter */
} rows[] = {
    { "adamw", adamw, PLAIN, 8 + 8 + 8 + 8 + 2 },
    { "adamw and packing", adamw, PACKING, 34 + 2 + 2 },
    { "adamw, bf16 moments", adamw_rounded, PLAIN, 8 + 4 + 4 + 8 + 2 },
    { "schedule-free", schedule_free, PLAIN, 8 + 8 + 8 + 8 + 2 },
    { "adamw8bit", adamw8bit, PLAIN, 8 + 4 + 8 + 2 },
    { "adamw8bit and packing", adamw8bit, PACKING, 22 + 2 + 2 },
    { "adamwfp8", adamwfp8, PLAIN, 8 + 4 + 8 + 2 },
    { "packing alone", packing, PLAIN, 4 + 2 + 2 },
    { "adamw, gradient penalty", adamw, GRADIENT_STEP, 34 + 8 },
    { "adamw, proximal penalty", adamw, PROXIMAL_STEP, 34 + 8 },
    { "adamw, penalty and path", adamw, WITH_PATH, 34 + 8 + 8 },
    { "sgd, momentum", sgd, PLAIN, 8 + 8 + 8 + 2 },
    { "sgd, gradient penalty", sgd, GRADIENT_STEP, 26 + 8 },
    { "sgd, proximal penalty", sgd, PROXIMAL_STEP, 26 + 8 },
    { "interpolate", interpolate, PLAIN, 4 + 8 + 2 },
    { "penalty", penalty, PLAIN, 4 + 4 + 4 },
    { "square_accumulate", square_accumulate, PLAIN, 8 + 8 },
    { "dot", dot, PLAIN, 4 + 4 },
};
enum { ROW_COUNT = sizeof rows / sizeof *rows };

/* The shortest run: the others were disturbed. */
static HsStatus shortest_run(HsContext *context, const HsTensor *tensors, int row, double *shortest)
{
    double total = 0;
    *shortest = 1e9;
    HS_TRY(rows[row].call(context, tensors, rows[row].guard));
    for (int run = 0; run < MOST_RUNS && (run < LEAST_RUNS || total < 0.5); run++) {
        const double start = hs_clock_s();
        HS_TRY(rows[row].call(context, tensors, rows[row].guard));
        const double taken = hs_clock_s() - start;
        total += taken;
        *shortest = taken < *shortest ? taken : *shortest;
    }
    return HS_OK;
}

/* One run of a bandwidth loop; returns its bytes an element. */
static int stream_loop(int kind, int threads, const float *x, float *y, float *z)
{
    enum { SLICE = 1 << 16 };
    static const int bytes[] = { 8, 12, 12 };
#pragma omp parallel for schedule(static) num_threads(threads)
    for (int64_t slice = 0; slice < COUNT; slice += SLICE) {
        const float *a = x + slice;
        float *b = y + slice, *c = z + slice;
        if (kind == 0)
            memcpy(b, a, SLICE * sizeof *a);
        if (kind == 1) {
#pragma omp simd
            for (int i = 0; i < SLICE; i++)
                c[i] = a[i] + 0.5f * b[i];
        }
        if (kind == 2) {
#pragma omp simd
            for (int i = 0; i < SLICE; i++)
                b[i] = 0.5f * b[i] + a[i] * 0.25f;
        }
    }
    return bytes[kind];
}

/* Bytes a second of the best of copy, triad and y += s x; prints all three. */
static double bandwidth(int threads, const HsTensor *tensors)
{
    static const char *const names[] = { "copy", "triad", "y += s x" };
    double best = 0;
    printf("  memory");
    for (int kind = 0; kind < 3; kind++) {
        double total = 0, most = 0;
        for (int run = 0; run < MOST_RUNS && (run < LEAST_RUNS || total < 0.5); run++) {
            const double start = hs_clock_s();
            const int bytes = stream_loop(kind, threads, tensors[IMPORTANCE].data, tensors[PATH].data, tensors[M].data);
            const double taken = hs_clock_s() - start, rate = (double)bytes * COUNT / taken;
            total += taken;
            most = rate > most ? rate : most;
        }
        printf("%s %s %.1f GB/s", kind ? "," : ":", names[kind], most * 1e-9);
        best = most > best ? most : best;
    }
    printf("\n");
    return best;
}

static HsStatus bench(HsContext *context, const HsTensor tensors[TENSOR_COUNT])
{
    fill(tensors);
    printf("\n%s, threads %d, %d parameters\n", hs_backend_cpu_isa(), context->threads, COUNT);
    const double best = bandwidth(context->threads, tensors);
    printf("  %-24s %6s %10s %8s %10s\n", "", "bytes", "ms", "GB/s", "of memory");
    for (int row = 0; row < ROW_COUNT; row++) {
        double taken;
        fill(tensors);
        HS_TRY(shortest_run(context, tensors, row, &taken));
        const double rate = (double)rows[row].bytes * COUNT / taken;
        printf("  %-24s %6d %10.2f %8.1f %9.0f%%\n", rows[row].name, rows[row].bytes, taken * 1e3, rate * 1e-9,
               100 * rate / best);
        fflush(stdout);
    }
    return HS_OK;
}

static HsStatus alloc_packed(HsContext *context, int64_t k, int64_t n, HsPacked *layout)
{
    const size_t bytes = context->backend->packed_bytes(context, HS_BF16, k, n);
    return context->device->alloc(context->device, bytes, &layout->data);
}

int main(int argc, char **argv)
{
    const int processors = (int)sysconf(_SC_NPROCESSORS_ONLN);
    int thread_counts[16] = { 1, processors }, count = processors > 1 ? 2 : 1;
    if (argc > 1)
        for (count = 0; count < argc - 1 && count < 16; count++)
            thread_counts[count] = atoi(argv[count + 1]);

    HsDevice device;
    HsContext context = { .device = &device };
    HsStatus status = hs_device_host_init(&device);
    if (status == HS_OK)
        status = hs_backend_cpu(&context.backend);
    HsTensor tensors[TENSOR_COUNT];
    for (int i = 0; i < TENSOR_COUNT; i++)
        tensors[i] = hs_tensor_1d(NULL, dtype_of(i), COUNT);
    for (int i = 0; status == HS_OK && i < TENSOR_COUNT; i++)
        status = device.alloc(&device, hs_tensor_bytes(&tensors[i]), &tensors[i].data);
    if (status == HS_OK)
        status = alloc_packed(&context, COUNT / COLUMNS, COLUMNS, &packed);
    if (status == HS_OK)
        status = alloc_packed(&context, COLUMNS, COUNT / COLUMNS, &packed_transposed);
    for (int t = 0; status == HS_OK && t < count; t++) {
        context.threads = thread_counts[t] < 1 ? 1 : thread_counts[t];
        status = bench(&context, tensors);
    }
    if (status != HS_OK)
        fprintf(stderr, "bench update: %s\n", hs_error_message());
    for (int i = 0; i < TENSOR_COUNT; i++)
        device.release(&device, tensors[i].data);
    device.release(&device, packed.data);
    device.release(&device, packed_transposed.data);
    return status != HS_OK;
}
