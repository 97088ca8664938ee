/* SPDX-License-Identifier: MIT
 *
 * Tables of measured choices: keys, search, writing, and the products they are for.  parse.c reads them.
 */
#include "kernels/tuning/tuning.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char *const format_names[HS_PRODUCT_FORMATS] = { "f32", "tf32",         "16bit",
                                                              "fp8", "fp8-promoted", "fp8-blocks" };

const char *hs_product_format_name(HsProductFormat format)
{
    return format_names[format];
}

const char *hs_product_layout_name(const HsProductKey *key)
{
    static const char *const names[] = { "nn", "nt", "tn", "tt" };
    return names[(key->transpose_a ? 2 : 0) + (key->transpose_b ? 1 : 0)];
}

/* A forward product is recognised by its c and by the order of its codes: what accumulates, comes in f32 or reads codes
 * across is a gradient.  Gradients for which a recipe has E4M3 and one scale a tensor, by codes along k, count as forward:
 * nothing distinguishes them.  Of codes that are read across, a and not b has no kernel. */
static HsProductFormat format_of_codes(const HsMatmulArgs *args)
{
    enum { ROW_BYTES = 16, STRAIGHT_DEPTH = 2048 };
    const HsCodes *const a = hs_codes_of(&args->a), *const b = hs_codes_of(&args->b);
    const bool e5m2 = a->format == HS_E5M2, along = !args->transpose_a && args->transpose_b;
    const int64_t k = args->transpose_a ? a->rows : a->depth;
    if ((!e5m2 && a->format != HS_E4M3) || b->format != HS_E4M3 || k % ROW_BYTES != 0 || a->depth % ROW_BYTES != 0 ||
        b->depth % ROW_BYTES != 0 || (args->transpose_a && args->transpose_b))
        return HS_PRODUCT_16BIT;
    if (a->granularity == HS_SCALE_BLOCK)
        return HS_PRODUCT_FP8_BLOCKS;
    if (a->granularity != HS_SCALE_TENSOR)
        return HS_PRODUCT_16BIT;
    const bool forward = along && !e5m2 && !args->accumulate && args->c.dtype != HS_F32;
    return forward && k <= STRAIGHT_DEPTH ? HS_PRODUCT_FP8 : HS_PRODUCT_FP8_PROMOTED;
}

/* From the operands: c is twice as wide as the product, or half, where a gate follows. */
HsProductKey hs_product_key(const HsMatmulArgs *args)
{
    return (HsProductKey){
        .m = args->a.values.shape[args->transpose_a ? 1 : 0],
        .n = args->b.values.shape[args->transpose_b ? 0 : 1],
        .k = args->a.values.shape[args->transpose_a ? 0 : 1],
        .transpose_a = args->transpose_a,
        .transpose_b = args->transpose_b,
        .format = args->a.layout == HS_LAYOUT_CODES ? format_of_codes(args)
                  : args->a.values.dtype != HS_F32  ? HS_PRODUCT_16BIT
                  : hs_policy_is_tf32(args->policy) ? HS_PRODUCT_TF32
                                                    : HS_PRODUCT_F32,
    };
}

int hs_product_compare(const HsProductKey *a, const HsProductKey *b)
{
    const int64_t left[] = { a->m, a->n, a->k, a->transpose_a, a->transpose_b, a->format };
    const int64_t right[] = { b->m, b->n, b->k, b->transpose_a, b->transpose_b, b->format };
    for (size_t i = 0; i < sizeof left / sizeof *left; i++)
        if (left[i] != right[i])
            return left[i] < right[i] ? -1 : 1;
    return 0;
}

static int compare_rows(const void *a, const void *b)
{
    const HsTuningRow *left = a, *right = b;
    const int order = hs_product_compare(&left->key, &right->key);
    return order != 0 ? order : (left->line > right->line) - (left->line < right->line);
}

void hs_tuning_sort(HsTuningTable *table)
{
    if (table->count > 0)
        qsort(table->rows, (size_t)table->count, sizeof *table->rows, compare_rows);
}

const HsTuningRow *hs_tuning_find(const HsTuningTable *table, const HsProductKey *key)
{
    int low = 0, high = table->count;
    while (low < high) {
        const int middle = low + (high - low) / 2;
        const int order = hs_product_compare(&table->rows[middle].key, key);
        if (order == 0)
            return &table->rows[middle];
        if (order < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return NULL;
}

void hs_tuning_deinit(HsTuningTable *table)
{
    free(table->rows);
    memset(table, 0, sizeof *table);
}

HsStatus hs_tuning_print(const HsTuningTable *table, FILE *out)
{
    const HsTuningDevice *device = &table->device;
    fprintf(out,
            "halfstep-tuning\t1\nkernels\t%d\ndevice\t%s\nmultiprocessors\t%d\ncompute_capability\t%d.%d\n"
            "# M\tN\tK\tlayout\tformat\tkernel\tslices\tmicroseconds\n",
            (int)HS_TUNING_KERNELS, device->name, device->multiprocessors, device->compute_capability / 10,
            device->compute_capability % 10);
    for (int i = 0; i < table->count; i++) {
        const HsTuningRow *row = &table->rows[i];
        fprintf(out, "%lld\t%lld\t%lld\t%s\t%s\t%s\t%d\t%.4g\n", (long long)row->key.m, (long long)row->key.n,
                (long long)row->key.k, hs_product_layout_name(&row->key), hs_product_format_name(row->key.format),
                row->kernel, row->slices, row->microseconds);
    }
    return ferror(out) ? hs_fail(HS_EIO, "the table of products cannot be written: %s", strerror(errno)) : HS_OK;
}

HsStatus hs_tuning_write(const char *path, const HsTuningTable *table)
{
    char temporary[4096];
    const int length = snprintf(temporary, sizeof temporary, "%s.%ld.tmp", path, (long)getpid());
    if (length < 0 || (size_t)length >= sizeof temporary)
        return hs_fail(HS_EIO, "%.64s...: a path of more than %zu characters", path, sizeof temporary);
    FILE *file = fopen(temporary, "wx");
    if (!file)
        return hs_fail(HS_EIO, "%s: cannot be written: %s", temporary, strerror(errno));
    bool written = hs_tuning_print(table, file) == HS_OK && fflush(file) == 0 && fsync(fileno(file)) == 0;
    written = fclose(file) == 0 && written;
    if (written && rename(temporary, path) == 0)
        return HS_OK;
    const int error = errno;
    unlink(temporary);
    return hs_fail(HS_EIO, "%s: cannot be written: %s", path, strerror(error));
}

/* --- the products of training --- */

enum { TOKENS = 32768, HEAD_TOKENS = 8192 };

const HsTrainingLayer hs_training_layers[] = {
    { "GPT-2 124M", "qkv", TOKENS, 768, 2304, false },
    { "GPT-2 124M", "attention out", TOKENS, 768, 768, false },
    { "GPT-2 124M", "mlp up", TOKENS, 768, 3072, false },
    { "GPT-2 124M", "mlp down", TOKENS, 3072, 768, false },
    { "GPT-2 124M", "head", HEAD_TOKENS, 768, 50304, true },
    { "Llama 1B", "qkv", TOKENS, 2048, 2560, false },
    { "Llama 1B", "attention out", TOKENS, 2048, 2048, false },
    { "Llama 1B", "gate and up", TOKENS, 2048, 11264, false },
    { "Llama 1B", "down", TOKENS, 5632, 2048, false },
    { "Llama 1B", "head", HEAD_TOKENS, 2048, 32000, true },
    { "square", "8192", 8192, 8192, 8192, false },
};
const int hs_training_layer_count = sizeof hs_training_layers / sizeof *hs_training_layers;

const char *hs_training_pass_name(HsTrainingPass pass)
{
    static const char *const names[HS_TRAINING_PASSES] = { "forward", "dgrad", "wgrad" };
    return names[pass];
}

HsMatmulArgs hs_training_product(const HsTrainingLayer *layer, HsTrainingPass pass, HsDtype dtype,
                                 HsProductPolicy policy)
{
    const HsTensor x = hs_tensor_2d(NULL, dtype, layer->rows, layer->in);
    const HsTensor w = hs_tensor_2d(NULL, dtype, layer->out, layer->in);
    const HsTensor dy = hs_tensor_2d(NULL, dtype, layer->rows, layer->out);
    const HsTensor y = hs_tensor_2d(NULL, layer->f32_output ? HS_F32 : dtype, layer->rows, layer->out);
    const HsTensor dw = hs_tensor_2d(NULL, HS_F32, layer->out, layer->in);
    switch (pass) {
    case HS_PASS_FORWARD:
        return (
            HsMatmulArgs){ .a.values = x, .b.values = w, .transpose_b = true, .policy = policy, .alpha = 1.0f, .c = y };
    case HS_PASS_DGRAD:
        return (HsMatmulArgs){ .a.values = dy, .b.values = w, .policy = policy, .alpha = 1.0f, .c = x };
    default:
        return (HsMatmulArgs){ .a.values = dy,
                               .b.values = x,
                               .transpose_a = true,
                               .policy = policy,
                               .alpha = 1.0f,
                               .accumulate = true,
                               .c = dw };
    }
}
