/* SPDX-License-Identifier: MIT
 *
 * The table of measured choices on a device: taking it in, looking products up, and the choices that are worth
 * measuring for a new one.
 */
#include "kernels/cuda/product/products.cuh"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/cuda/device/device.cuh"
#include "kernels/cuda/product/matmul_choice.cuh"
#include "kernels/cuda/product/matmul_model.cuh"

namespace HS_CUDA_NAMESPACE
{

namespace
{

/* Cuts of k that are tried; what lies between them makes little difference. */
const int tried_slices[] = { 1, 2, 3, 4, 6, 8, 12, 16, 24, 32 };
/* Choices that the model finds this many times slower than the best are not measured. */
const double HOPELESS = 2.0;

HsStatus check_device(const HsTuningDevice &made, const DeviceLimits &limits, const char *name)
{
    if (strcmp(made.name, limits.name) == 0 && made.multiprocessors == limits.multiprocessors &&
        made.compute_capability == limits.compute_capability)
        return HS_OK;
    return hs_fail(HS_ECONFIG,
                   "%.200s: measured on %s (%d multiprocessors, compute capability %d.%d), and this is %s (%d, %d.%d): "
                   "measure on this one with trainer selftest --tune",
                   name, made.name, made.multiprocessors, made.compute_capability / 10, made.compute_capability % 10,
                   limits.name, limits.multiprocessors, limits.compute_capability / 10, limits.compute_capability % 10);
}

/* A row's kernel by its name, among those that can serve the product here. */
HsStatus look_up(const HsTuningRow &row, const DeviceLimits &limits, const char *name, MatmulChoice *choice)
{
    const MatmulShape shape = matmul_shape(row.key, limits);
    char known[512] = "", kernel[HS_TUNING_KERNEL];
    for (int i = 0; i < count_kernels(shape); i++) {
        name_kernel(shape, i, kernel, sizeof kernel);
        if (strcmp(kernel, row.kernel) == 0) {
            *choice = choice_of(shape, i, row.slices);
            if (real_slices(shape.k, row.slices) == row.slices)
                return HS_OK;
            return hs_fail(
                HS_ECONFIG,
                "%.200s:%d: K %lld cannot be cut into %d slices, only into %d: correct the line, or remove it", name,
                row.line, (long long)row.key.k, row.slices, real_slices(shape.k, row.slices));
        }
        const size_t used = strlen(known);
        snprintf(known + used, sizeof known - used, "%s%s", i > 0 ? ", " : "", kernel);
    }
    return hs_fail(HS_ECONFIG,
                   "%.200s:%d: no kernel %s for this product on this GPU: use one of %s, or remove the line", name,
                   row.line, row.kernel, known);
}

HsStatus create_table(const HsTuningTable &given, const DeviceLimits &limits, const char *name, MatmulTable **made)
{
    HS_TRY(check_device(given.device, limits, name));
    const size_t count = (size_t)given.count;
    MatmulTable *table = static_cast<MatmulTable *>(calloc(1, sizeof *table));
    if (table != nullptr) {
        table->rows = given;
        table->rows.rows = static_cast<HsTuningRow *>(calloc(count + 1, sizeof *given.rows));
        table->choices = static_cast<MatmulChoice *>(calloc(count + 1, sizeof *table->choices));
    }
    if (table == nullptr || table->rows.rows == nullptr || table->choices == nullptr) {
        destroy_table(table);
        return hs_fail(HS_ENOMEM, "%.200s: no memory for %zu rows", name, count);
    }
    if (count > 0)
        memcpy(table->rows.rows, given.rows, count * sizeof *given.rows);
    for (size_t i = 0; i < count; i++) {
        const HsStatus status = look_up(given.rows[i], limits, name, &table->choices[i]);
        if (status != HS_OK) {
            destroy_table(table);
            return status;
        }
    }
    *made = table;
    return HS_OK;
}

HsStatus use(HsDevice *device, const HsTuningTable *given, const char *name)
{
    MatmulTable *table = nullptr;
    if (given != nullptr)
        HS_TRY(create_table(*given, device_limits(device), name, &table));
    Products *products = device_products(device);
    destroy_table(products->table);
    products->table = table;
    forget_choices(products);
    return HS_OK;
}

void describe(const HsDevice *device, HsTuningDevice *description)
{
    const DeviceLimits &limits = device_limits(device);
    memset(description, 0, sizeof *description);
    snprintf(description->name, sizeof description->name, "%s", limits.name);
    description->multiprocessors = limits.multiprocessors;
    description->compute_capability = limits.compute_capability;
}

/* --- what is worth measuring --- */

struct Weighing {
    MatmulShape shape;
    const DeviceLimits *limits;
    double bytes;
    HsProductChoice *choices;
    int count, most;
};

HsProductChoice weigh(const Weighing &weighing, int kernel, int slices)
{
    HsProductChoice choice;
    name_kernel(weighing.shape, kernel, choice.kernel, sizeof choice.kernel);
    choice.slices = slices;
    choice.predicted_us = 1e6 * product_seconds(weighing.shape, *weighing.limits, kernel, slices, weighing.bytes);
    return choice;
}

/* Into its place by predicted time, behind the first; the slowest falls out where there is no room. */
void insert(Weighing *weighing, const HsProductChoice &choice)
{
    for (int i = 0; i < weighing->count; i++)
        if (weighing->choices[i].slices == choice.slices && strcmp(weighing->choices[i].kernel, choice.kernel) == 0)
            return;
    int place = weighing->count;
    while (place > 1 && weighing->choices[place - 1].predicted_us > choice.predicted_us)
        place--;
    if (place >= weighing->most)
        return;
    const int last = weighing->count < weighing->most ? weighing->count++ : weighing->most - 1;
    for (int i = last; i > place; i--)
        weighing->choices[i] = weighing->choices[i - 1];
    weighing->choices[place] = choice;
}

void offer_kernel(Weighing *weighing, int kernel)
{
    HsProductChoice tried[sizeof tried_slices / sizeof *tried_slices];
    int count = 0, best = 0;
    for (int wanted : tried_slices) {
        if (is_joint(weighing->shape, kernel) && wanted > 1)
            break; /* clusters that share tiles cut k by themselves */
        const int slices = real_slices(weighing->shape.k, wanted);
        if (slices == wanted)
            tried[count++] = weigh(*weighing, kernel, slices);
        if (slices == wanted && tried[count - 1].predicted_us < tried[best].predicted_us)
            best = count - 1;
    }
    for (int i = 0; i < count; i++)
        if (i == best || tried[i].predicted_us <= HOPELESS * weighing->choices[0].predicted_us)
            insert(weighing, tried[i]);
}

int list_choices(const HsContext *context, const HsMatmulArgs *args, HsProductChoice *choices, int most)
{
    const DeviceLimits &limits = limits_of(context);
    Weighing weighing = { matmul_shape(args, limits), &limits, hs_cost_matmul(args).bytes, choices, 0, most };
    const MatmulChoice modelled = choose_by_model(weighing.shape, limits);
    choices[weighing.count++] = weigh(weighing, kernel_of(weighing.shape, modelled), modelled.slices);
    for (int kernel = 0; kernel < count_kernels(weighing.shape); kernel++)
        offer_kernel(&weighing, kernel);
    return weighing.count;
}

} // namespace

const MatmulChoice *find_choice(const MatmulTable &table, const HsProductKey &key)
{
    const HsTuningRow *row = hs_tuning_find(&table.rows, &key);
    return row != nullptr ? &table.choices[row - table.rows.rows] : nullptr;
}

void destroy_table(MatmulTable *table)
{
    if (table == nullptr)
        return;
    hs_tuning_deinit(&table->rows);
    free(table->choices);
    free(table);
}

const HsTuner matmul_tuner = { describe, list_choices, use, force_matmul };

} // namespace HS_CUDA_NAMESPACE
