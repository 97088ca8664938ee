/* SPDX-License-Identifier: MIT
 *
 * Measured choices of matrix products: a text file for one kind of GPU, a line a product.
 *
 *     halfstep-tuning	1
 *     kernels	2
 *     device	NVIDIA H200
 *     multiprocessors	132
 *     compute_capability	9.0
 *     # M	N	K	layout	format	kernel	slices	microseconds
 *     32768	2304	768	nt	16bit	wgmma-256x256	1	161.2
 *
 * Fields are separated by tabs or blanks, lines with # and empty lines are comments, the five lines of the header come
 * first and in this order.  layout has a letter for each operand of c[M,N] = op(a) op(b): n as it is (a [M,K], b
 * [K,N]), t transposed.  A row speaks for exactly its product; other products are left to the cost model
 * (kernels/cuda). The choice changes the order of sums and so the last bits of results: that is why a table is used
 * only where a configuration names it (kernels.tuning), and refused where it was made for another GPU or for other
 * kernels.
 */
#ifndef HS_KERNELS_TUNING_TUNING_H
#define HS_KERNELS_TUNING_TUNING_H

#include <stdio.h>

#include "kernels/ops/backend.h"

/* Raised whenever tiles or kernels change so that earlier measurements say nothing about them. */
enum { HS_TUNING_KERNELS = 3 };

enum {
    HS_TUNING_MOST_ROWS = 4096,
    HS_TUNING_MOST_BYTES = 1 << 20,
    HS_TUNING_MOST_SLICES = 32,
    HS_TUNING_NAME = 64,   /* room for a device's name */
    HS_TUNING_KERNEL = 28, /* and a kernel's: "bf16-wgmma-256x256-joint" */
    HS_TUNING_FORCED = 128 /* and for a list of them */
};

/* What the kernels of products differ by; bf16 and f16 take the same time.  Operands in codes that GPUs multiply as they
 * are: E4M3 or E5M2 by E4M3, rows of multiples of 16 bytes, one scale a tensor or blocks of 128; all others are decoded
 * to bf16 first, and are products in 16 bits. */
typedef enum HsProductFormat {
    HS_PRODUCT_F32,
    HS_PRODUCT_TF32,
    HS_PRODUCT_16BIT,
    HS_PRODUCT_FP8,          /* forward, k up to 2048: a sum is left to the tensor cores */
    HS_PRODUCT_FP8_PROMOTED, /* every 128 of k it is added to another in f32 (kernels/cuda/product/matmul_fp8.cuh) */
    HS_PRODUCT_FP8_BLOCKS,   /* likewise, with the scales of blocks */
    HS_PRODUCT_FORMATS
} HsProductFormat;

/* Which product. */
typedef struct HsProductKey {
    int64_t m, n, k;
    bool transpose_a, transpose_b;
    HsProductFormat format;
} HsProductKey;

typedef struct HsTuningRow {
    HsProductKey key;
    char kernel[HS_TUNING_KERNEL];
    int slices;
    double microseconds; /* as measured: for people */
    int line;            /* of the file; 0: none */
} HsTuningRow;

/* Which GPU. */
typedef struct HsTuningDevice {
    char name[HS_TUNING_NAME];
    int multiprocessors, compute_capability; /* 90: 9.0 */
} HsTuningDevice;

typedef struct HsTuningTable {
    HsTuningDevice device;
    HsTuningRow *rows; /* in ascending order of keys, no two alike */
    int count;
    uint64_t hash; /* of the file's bytes, 48 bits; never 0 */
} HsTuningTable;

/* The product of a call; a gate's second pass apart. */
HsProductKey hs_product_key(const HsMatmulArgs *args);
/* Ascending m, n, k, layout, format: negative, 0 or positive. */
int hs_product_compare(const HsProductKey *a, const HsProductKey *b);
/* "f32", "tf32", "16bit", "fp8", "fp8-promoted", "fp8-blocks"; "nt". */
const char *hs_product_format_name(HsProductFormat format);
const char *hs_product_layout_name(const HsProductKey *key);

/* Text to table; `name` is for messages, `text` ends with a NUL behind its `length` bytes.  errors: HS_EFORMAT
 * "name:line: what is wrong and what to do", HS_ENOMEM.  The table is empty after an error. */
HsStatus hs_tuning_parse(const char *name, const char *text, size_t length, HsTuningTable *table);
HsStatus hs_tuning_read(const char *path, HsTuningTable *table);
/* The text of a table. errors: HS_EIO */
HsStatus hs_tuning_print(const HsTuningTable *table, FILE *out);
/* Written next to `path`, flushed to the disk, renamed: never half a table.  errors: HS_EIO naming the file */
HsStatus hs_tuning_write(const char *path, const HsTuningTable *table);
/* Puts the rows in order, as parsing leaves them. */
void hs_tuning_sort(HsTuningTable *table);
/* NULL: no row for this product. */
const HsTuningRow *hs_tuning_find(const HsTuningTable *table, const HsProductKey *key);
void hs_tuning_deinit(HsTuningTable *table);

/* --- the products that tables and predictions are made for by default --- */

/* A linear layer y[rows,out] = x[rows,in] w[out,in]^T. */
typedef struct HsTrainingLayer {
    const char *model, *name;
    int64_t rows, in, out;
    bool f32_output; /* logits */
} HsTrainingLayer;

typedef enum HsTrainingPass {
    HS_PASS_FORWARD, /* y = x w^T */
    HS_PASS_DGRAD,   /* dx = dy w */
    HS_PASS_WGRAD,   /* dw += dy^T x, into f32 */
    HS_TRAINING_PASSES
} HsTrainingPass;

/* GPT-2 124M and a Llama of a billion parameters at 32768 tokens, their heads in chunks, and a large square. */
extern const HsTrainingLayer hs_training_layers[];
extern const int hs_training_layer_count;

const char *hs_training_pass_name(HsTrainingPass pass);
/* The call, its tensors without data. */
HsMatmulArgs hs_training_product(const HsTrainingLayer *layer, HsTrainingPass pass, HsDtype dtype,
                                 HsProductPolicy policy);

/* --- what a GPU backend offers for making and using a table --- */

/* A kernel with its tile and slices of k, as it could serve a product. */
typedef struct HsProductChoice {
    char kernel[HS_TUNING_KERNEL];
    int slices;
    double predicted_us; /* by the cost model */
} HsProductChoice;

typedef struct HsTuner {
    void (*describe)(const HsDevice *device, HsTuningDevice *description);
    /* Choices for a call's product, at most `most`, the cost model's own first, the others by predicted time; how many.
     * Those that the model finds more than twice as slow are left out, but for the best of each kernel. */
    int (*choices)(const HsContext *context, const HsMatmulArgs *args, HsProductChoice *choices, int most);
    /* From now on the table's rows decide (NULL: the cost model alone); the rows are copied.  Not while products are
     * under way or planned.  errors: HS_ECONFIG for a table of another GPU or with kernels that there are not, naming
     * file (`name`), line and mend; the table before stays. */
    HsStatus (*use)(HsDevice *device, const HsTuningTable *table, const char *name);
    /* For tests and measurements: from now on a product takes the first kernel of a list ("wgmma-256x256,mma-128x128")
     * that can serve it, and `slices` slices of k, as many of them as k allows; NULL or "", and 0: chosen as above. Not
     * while products are under way or planned.  errors: HS_ECONFIG, listing this GPU's kernels; then nothing is forced.
     */
    HsStatus (*force)(HsDevice *device, const char *kernels, int slices);
} HsTuner;

#endif
