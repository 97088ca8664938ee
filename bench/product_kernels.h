/* SPDX-License-Identifier: MIT
 *
 * Our kernels of 16-bit products forced in turn, and the ladder that they make: what each step of
 * kernels/cuda/README.md brings on this GPU, as far as the kernels that are left in the source can show it.
 */
#ifndef HS_BENCH_PRODUCT_KERNELS_H
#define HS_BENCH_PRODUCT_KERNELS_H

#include <math.h>

#include "bench/bench.h"
#include "kernels/cuda/product/matmul_tiles.cuh"

/* A row of the tables of tiles, by its name in HsTuner.force. */
typedef struct ProductKernel {
    const char *name;
    int columns;
    bool large; /* small tiles are for small products */
    bool hopper;
} ProductKernel;

#define MMA_KERNEL(rows, columns, ...)    { "mma-" #rows "x" #columns, columns, (rows) * (columns) >= 128 * 128, false },
#define HOPPER_KERNEL(rows, columns, ...) { "wgmma-" #rows "x" #columns, columns, true, true },
static const ProductKernel product_kernels[] = { HS_MATMUL_TILES_16BIT(MMA_KERNEL)
                                                     HS_MATMUL_TILES_HOPPER(HOPPER_KERNEL) };
#undef MMA_KERNEL
#undef HOPPER_KERNEL
_Static_assert(sizeof product_kernels / sizeof *product_kernels + 2 <= BENCH_MOST_CONTENDERS, "with both choices");

enum {
    PRODUCT_KERNELS = sizeof product_kernels / sizeof *product_kernels,
    /* rows of the ladder: the steps, then what the shape chooses, then the rival */
    LADDER_CHOSEN = PRODUCT_KERNELS,
    LADDER_RIVAL,
    LADDER_ROWS,
    /* columns: squares, then the layers' passes */
    LADDER_4096 = 0,
    LADDER_8192,
    LADDER_LAYERS,
    LADDER_COLUMNS = LADDER_LAYERS + 3
};

/* Sums of logarithms of TFLOP/s, for geometric means. */
typedef struct Ladder {
    int steps[PRODUCT_KERNELS], step_count; /* numbers of kernels, upwards */
    double log_sum[LADDER_ROWS][LADDER_COLUMNS];
    int count[LADDER_ROWS][LADDER_COLUMNS];
    double log_choice; /* of what is chosen over the best that was forced */
    int choices;
} Ladder;

/* Whether the device has one of product_kernels: those of wgmma are Hopper's. */
static inline bool has_kernel(Bench *bench, const ProductKernel *kernel)
{
    const HsTuner *tuner = bench->tuner;
    const bool has = tuner->force(&bench->device, kernel->name, 0) == HS_OK;
    (void)tuner->force(&bench->device, NULL, 0);
    return has;
}

static inline void ladder_init(Ladder *ladder, Bench *bench)
{
    *ladder = (Ladder){ .step_count = 0 };
    for (int kernel = 0; kernel < PRODUCT_KERNELS; kernel++) {
        const ProductKernel *row = &product_kernels[kernel];
        if (!row->large || !has_kernel(bench, row))
            continue;
        int at = ladder->step_count++;
        for (; at > 0; at--) {
            const ProductKernel *below = &product_kernels[ladder->steps[at - 1]];
            if (below->hopper < row->hopper || (below->hopper == row->hopper && below->columns < row->columns))
                break;
            ladder->steps[at] = ladder->steps[at - 1];
        }
        ladder->steps[at] = kernel;
    }
}

typedef struct ForcedProduct {
    const HsMatmulArgs *args;
    const char *kernel;
    int slices; /* 0: as many as the model finds best */
    const HsTuner *tuner;
} ForcedProduct;

/* The choice is made on the host while the call lasts. */
static inline HsStatus call_forced(HsContext *context, const void *arguments)
{
    const ForcedProduct *product = arguments;
    HS_TRY(product->tuner->force(context->device, product->kernel, product->slices));
    const HsStatus status = hs_op_matmul(context, product->args);
    HS_TRY(product->tuner->force(context->device, NULL, 0));
    return status;
}

static inline void ladder_add(Ladder *ladder, int row, int column, double tflops)
{
    ladder->log_sum[row][column] += log(tflops);
    ladder->count[row][column]++;
}

/* Notes one product's rates in TFLOP/s, as chosen and by each step, prints those of the steps as cells of a table and
 * writes them as JSON's continuation of an object. */
static inline void ladder_note(Ladder *ladder, int column, double chosen, const double *rates, char *json, size_t room)
{
    double best = 0.0;
    for (int i = 0; i < ladder->step_count; i++) {
        const size_t used = strlen(json);
        best = rates[i] > best ? rates[i] : best;
        ladder_add(ladder, ladder->steps[i], column, rates[i]);
        printf(" %.4g |", rates[i]);
        snprintf(json + used, room - used, "%s\"%s\":%.4g%s", i == 0 ? ",\"forced_tflops\":{" : ",",
                 product_kernels[ladder->steps[i]].name, rates[i], i + 1 == ladder->step_count ? "}" : "");
    }
    ladder_add(ladder, LADDER_CHOSEN, column, chosen);
    ladder->log_choice += log(chosen / best);
    ladder->choices++;
}

/* Geometric mean; NaN: none. */
static inline double ladder_mean(const Ladder *ladder, int row, int column)
{
    const int count = ladder->count[row][column];
    return count > 0 ? exp(ladder->log_sum[row][column] / count) : NAN;
}

/* How much faster a row is than another, over all columns that both have; NaN: none. */
static inline double ladder_gain(const Ladder *ladder, int row, int before)
{
    double sum = 0.0;
    int count = 0;
    for (int column = 0; column < LADDER_COLUMNS; column++)
        if (ladder->count[row][column] > 0 && ladder->count[row][column] == ladder->count[before][column]) {
            sum += ladder->log_sum[row][column] - ladder->log_sum[before][column];
            count += ladder->count[row][column];
        }
    return count > 0 ? exp(sum / count) : NAN;
}

static inline void ladder_print_row(const Bench *bench, const Ladder *ladder, const char *name, int row, int before)
{
    const double gain = before < 0 ? NAN : ladder_gain(ladder, row, before);
    printf("| %s |", name);
    for (int column = 0; column < LADDER_COLUMNS; column++) {
        const double mean = ladder_mean(ladder, row, column);
        printf(isnan(mean) ? " |" : " %.4g |", mean);
    }
    printf(isnan(gain) ? " |\n" : " %.2f |\n", gain);
    const double square = ladder_mean(ladder, row, LADDER_8192);
    if (!isnan(gain) && !isnan(square))
        bench_json(bench, "{\"bench\":\"ladder\",\"step\":\"%s\",\"square_tflops\":%.4g,\"gain\":%.4g}", name, square,
                   gain);
}

static inline void ladder_print(const Bench *bench, const Ladder *ladder)
{
    printf(
        "\n### The ladder\n\nEach kernel forced on the bf16 products above: TFLOP/s, geometric means; the gain is over "
        "the row before.\n\n| kernel | 4096^3 | 8192^3 | layers forward | dgrad | wgrad | gain |\n"
        "|---|---|---|---|---|---|---|\n");
    for (int i = 0; i < ladder->step_count; i++)
        ladder_print_row(bench, ladder, product_kernels[ladder->steps[i]].name, ladder->steps[i],
                         i > 0 ? ladder->steps[i - 1] : -1);
    ladder_print_row(bench, ladder, "chosen by shape", LADDER_CHOSEN, ladder->steps[ladder->step_count - 1]);
    if (ladder->count[LADDER_RIVAL][LADDER_LAYERS] > 0)
        ladder_print_row(bench, ladder, "cuBLASLt", LADDER_RIVAL, LADDER_CHOSEN);
    if (ladder->choices > 0)
        printf("\nWhat the shape chooses reaches %.3f of the fastest of these kernels (geometric mean).\n",
               exp(ladder->log_choice / ladder->choices));
}

#endif
