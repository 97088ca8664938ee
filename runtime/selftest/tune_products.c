/* SPDX-License-Identifier: MIT
 *
 * Which products are worth measuring: those that a configuration's steps ask for.  The run's own dry run gives them,
 * none is missed: the backend's table is copied with one function changed, which looks at each product on its way.
 * Shapes that only some batches have are left to the model of kernels: they are many.
 */
#include <string.h>

#include "runtime/selftest/tune.h"

/* A gate is a separate pass behind or before the product, on GPUs: only the product's kernel is chosen. */
static HsMatmulArgs without_gate(const HsMatmulArgs *args)
{
    HsMatmulArgs product = *args;
    if (product.b.layout == HS_LAYOUT_PACKED)
        product.b.layout = HS_LAYOUT_ROWS;
    if (!hs_epilogue_reshapes(args->epilogue))
        return product;
    const HsProductKey key = hs_product_key(args);
    product.epilogue = HS_EPILOGUE_NONE;
    product.pre = (HsTensor){ 0 };
    product.c = hs_tensor_2d(NULL, args->c.dtype, key.m, key.n);
    return product;
}

/* Shapes alone: the caller's do not outlive the call. */
static HsCodes without_memory(const HsCodes *codes)
{
    HsCodes shape = *codes;
    hs_codes_place(&shape, NULL);
    shape.scaling = NULL;
    return shape;
}

static void append(HsTuneList *list, const HsMatmulArgs *args)
{
    HsMatmulArgs *const product = &list->products[list->count];
    *product = without_gate(args);
    if (args->a.layout == HS_LAYOUT_CODES) {
        product->a.codes = without_memory(&args->a.codes);
        product->b.codes = without_memory(&args->b.codes);
    }
    list->count++;
}

void hs_tune_add(HsTuneList *list, const HsMatmulArgs *args)
{
    const HsProductKey key = hs_product_key(args);
    for (int i = 0; i < list->count; i++) {
        const HsProductKey listed = hs_product_key(&list->products[i]);
        if (hs_product_compare(&listed, &key) == 0)
            return;
    }
    if (list->count < HS_TUNE_MOST_PRODUCTS)
        append(list, args);
    else
        list->left_out++;
}

void hs_tune_add_defaults(HsTuneList *list)
{
    for (int layer = 0; layer < hs_training_layer_count; layer++)
        for (int pass = 0; pass < HS_TRAINING_PASSES; pass++) {
            const HsMatmulArgs args =
                hs_training_product(&hs_training_layers[layer], (HsTrainingPass)pass, HS_BF16, (HsProductPolicy){ 0 });
            hs_tune_add(list, &args);
        }
}

/* The list that is filled: a backend's functions are given nothing but their call. */
static _Thread_local struct {
    HsTuneList *list;
    const HsBackend *backend;
} watcher;

static size_t watch_matmul(const HsContext *context, const HsMatmulArgs *args)
{
    if (!context->rare)
        hs_tune_add(watcher.list, args);
    return watcher.backend->workspace.matmul(context, args);
}

HsStatus hs_tune_add_model(HsTuneList *list, const HsTraining *training)
{
    HsTraining watched = *training, draft;
    HsBackend backend = *training->engine.context.backend;
    watcher.list = list;
    watcher.backend = training->engine.context.backend;
    backend.workspace.matmul = watch_matmul;
    watched.engine.context.backend = &backend;
    HS_TRY(hs_training_draft(&watched, training->config, &draft));
    hs_training_release(&draft);
    return HS_OK;
}
