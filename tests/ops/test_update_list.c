/* SPDX-License-Identifier: MIT
 *
 * A step's updates as one list against the same operations one after another: every bit of every tensor, on ref, on
 * the CPU and on the emulated GPU.  The tensors are more than one launch takes, and differ in rule, formats, decay,
 * rate, random numbers, protection and in what follows, so that one that read its neighbour's entry would be found out.
 */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/base/rng.h"
#include "tests/support/emulator.h"

#define RUN(call) cr_assert_eq((call), HS_OK, "%s", hs_error_message())

enum { TENSORS = 260, LARGE = 9000, LARGE_EVERY = 60, ALIGNMENT = 64 };
typedef enum Rule { ADAMW, ADAMW_ROUNDED, ADAMW8BIT, SGD, RULES } Rule;
enum { GRADIENT, WEIGHT, MASTER, MOMENT_1, MOMENT_2, ABSMAX_1, ABSMAX_2, ANCHOR, IMPORTANCE, PATH, SNAPSHOT, STREAMS };

typedef struct Data {
    HsDevice device;
    HsContext context;
    unsigned char *image, *memory; /* host and device, of all tensors */
    size_t bytes;
    HsTensor tensors[TENSORS][STREAMS];
    HsStepScalars *scalars; /* device */
    HsAdamWArgs adamw[TENSORS];
    HsAdamW8bitArgs adamw8bit[TENSORS];
    HsSgdArgs sgd[TENSORS];
    HsUpdateListArgs list;
} Data;

static int64_t size_of(int tensor)
{
    return tensor % LARGE_EVERY == LARGE_EVERY - 1 ? LARGE + tensor : 1 + tensor % 7;
}

/* Four fifths of the tensors are AdamW's, so that its lists are full. */
static Rule rule_of(int tensor)
{
    return tensor % 5 ? ADAMW : (Rule)(tensor / 5 % RULES);
}

/* Of the same rules some with a schedule, some without. */
static bool is_schedule_free(int tensor)
{
    return tensor % 7 > 4;
}

/* Of those with moments in 8 bits every second one. */
static HsMomentMap map_of(int tensor)
{
    return tensor / 5 / RULES % 2 ? HS_MOMENTS_FP8 : HS_MOMENTS_DYNAMIC;
}

static HsTensor shape_of(int tensor, int stream)
{
    const int64_t count = size_of(tensor);
    const Rule rule = rule_of(tensor);
    const bool narrow = tensor % 3 != 0, mastered = tensor % 3 == 1, guarded = tensor % 4 == 1;
    const HsTensor none = { 0 };
    switch (stream) {
    case GRADIENT:
        return hs_tensor_1d(NULL, tensor % 11 == 0 ? HS_BF16 : HS_F32, count);
    case WEIGHT:
        return hs_tensor_1d(NULL, narrow ? HS_BF16 : HS_F32, count);
    case MASTER:
        return mastered ? hs_tensor_1d(NULL, HS_F32, count) : none;
    case MOMENT_1:
    case MOMENT_2:
        return hs_tensor_1d(NULL, rule == ADAMW_ROUNDED ? HS_BF16 : rule == ADAMW8BIT ? HS_U8 : HS_F32, count);
    case ABSMAX_1:
    case ABSMAX_2:
        return rule == ADAMW8BIT ? hs_tensor_1d(NULL, HS_F32, hs_dynamic_blocks(count)) : none;
    case SNAPSHOT:
        return tensor % 10 == 3 ? hs_tensor_1d(NULL, HS_F32, count) : none;
    default:
        return guarded ? hs_tensor_1d(NULL, HS_F32, count) : none;
    }
}

static void fill(Data *data)
{
    size_t at = 0;
    for (int t = 0; t < TENSORS; t++)
        for (int s = 0; s < STREAMS; s++) {
            data->tensors[t][s] = shape_of(t, s);
            if (hs_tensor_present(&data->tensors[t][s])) /* offsets, until there is memory */
                data->tensors[t][s].data = (void *)(uintptr_t)at;
            at += (hs_tensor_bytes(&data->tensors[t][s]) + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
        }
    data->bytes = at;
    data->image = calloc(at, 1);
    const HsRng rng = { .seed = 3 };
    uint64_t draw = 0;
    for (int t = 0; t < TENSORS; t++)
        for (int s = 0; s < STREAMS; s++) {
            const HsTensor *tensor = &data->tensors[t][s];
            for (int64_t i = 0; hs_tensor_present(tensor) && i < hs_tensor_count(tensor); i++) {
                const double u = (double)hs_rng_uniform(hs_rng_draw(&rng, draw++).word[0]);
                hs_dtype_store(tensor->dtype, data->image + (uintptr_t)tensor->data, i,
                               tensor->dtype == HS_U8 ? (map_of(t) == HS_MOMENTS_FP8 ? 123.0 : 255.0) * u
                               : s == GRADIENT || s == WEIGHT || s == MASTER ? u - 0.5
                                                                             : u + 0.1);
            }
        }
}

static HsUpdateArgs update_of(const Data *data, int tensor)
{
    const HsTensor *t = data->tensors[tensor];
    HsUpdateArgs update = { .scalars = data->scalars,
                            .weight_decay = 0.01f * (float)(tensor % 13),
                            .learning_rate_scale = 0.5f + 0.1f * (float)(tensor % 3),
                            .rng = { .seed = tensor % 50 ? 4 : 5, /* one that has its own launch */
                                     .step = 2,
                                     .site = (uint32_t)tensor,
                                     .row_offset = tensor % 2 ? 3 * HS_SPAN_GRAIN : 0 },
                            .grad = t[GRADIENT],
                            .master = t[MASTER],
                            .weight = t[WEIGHT],
                            .protection = { .importance = t[IMPORTANCE],
                                            .anchor = t[ANCHOR],
                                            .path = t[PATH],
                                            .strength = 0.2f + 0.01f * (float)tensor,
                                            .proximal = tensor % 8 == 1 } };
    if (hs_tensor_present(&t[SNAPSHOT])) {
        update.epilogue.snapshots[update.epilogue.snapshot_count++] = t[SNAPSHOT];
        update.epilogue.back[update.epilogue.back_count++] = (HsStepBack){ t[MOMENT_1], 0.5f, update.rng };
        update.epilogue.back_count = t[MOMENT_1].dtype == HS_F32; /* any f32 tensor is an anchor */
    }
    return update;
}

static void append(Data *data, int tensor)
{
    const HsTensor *t = data->tensors[tensor];
    const HsUpdateArgs update = update_of(data, tensor);
    const float beta2 = tensor % 40 ? 0.99f : 0.95f;
    switch (rule_of(tensor)) {
    case SGD:
        data->sgd[data->list.sgd_count++] = (HsSgdArgs){ .update = update, .momentum = 0.9f, .buffer = t[MOMENT_1] };
        break;
    case ADAMW8BIT:
        data->adamw8bit[data->list.adamw8bit_count++] = (HsAdamW8bitArgs){ .update = update,
                                                                           .beta1 = 0.9f,
                                                                           .beta2 = beta2,
                                                                           .epsilon = 1e-8f,
                                                                           .map = map_of(tensor),
                                                                           .m = t[MOMENT_1],
                                                                           .v = t[MOMENT_2],
                                                                           .m_absmax = t[ABSMAX_1],
                                                                           .v_absmax = t[ABSMAX_2] };
        break;
    default:
        data->adamw[data->list.adamw_count++] = (HsAdamWArgs){ .update = update,
                                                               .beta1 = 0.9f,
                                                               .beta2 = beta2,
                                                               .epsilon = 1e-8f,
                                                               .schedule_free = is_schedule_free(tensor),
                                                               .m = t[MOMENT_1],
                                                               .v = t[MOMENT_2] };
    }
}

/* The device is open. */
static void make(Data *data, bool skip)
{
    const HsStepScalars scalars = { .learning_rate = 0.01f,
                                    .gradient_multiplier = 0.5f,
                                    .bias_correction1 = 0.2f,
                                    .bias_correction2 = 0.1f,
                                    .unscale = 0.7f,
                                    .free_rate = 0.007f,
                                    .free_weight = 0.3f,
                                    .skip = skip };
    HsDevice *device = &data->device;
    void *memory, *record;
    fill(data);
    RUN(device->alloc(device, data->bytes, &memory));
    RUN(device->alloc(device, sizeof scalars, &record));
    RUN(device->copy(device, NULL, record, &scalars, sizeof scalars));
    data->memory = memory;
    data->scalars = record;
    for (int t = 0; t < TENSORS; t++)
        for (int s = 0; s < STREAMS; s++)
            if (hs_tensor_present(&data->tensors[t][s]))
                data->tensors[t][s].data = data->memory + (uintptr_t)data->tensors[t][s].data;
    data->list = (HsUpdateListArgs){ .adamw = data->adamw, .adamw8bit = data->adamw8bit, .sgd = data->sgd };
    for (int t = 0; t < TENSORS; t++)
        append(data, t);
}

static void finish(Data *data)
{
    free(data->image);
    hs_device_deinit(&data->device);
    free(data);
}

static void run_apart(Data *data)
{
    for (int i = 0; i < data->list.adamw_count; i++)
        RUN(hs_op_adamw(&data->context, &data->adamw[i]));
    for (int i = 0; i < data->list.adamw8bit_count; i++)
        RUN(hs_op_adamw8bit(&data->context, &data->adamw8bit[i]));
    for (int i = 0; i < data->list.sgd_count; i++)
        RUN(hs_op_sgd(&data->context, &data->sgd[i]));
}

/* Twice from the same bytes. */
static void compare(Data *data)
{
    HsDevice *device = &data->device;
    unsigned char *apart = malloc(data->bytes), *together = malloc(data->bytes);
    RUN(device->copy(device, NULL, data->memory, data->image, data->bytes));
    run_apart(data);
    RUN(device->copy(device, NULL, apart, data->memory, data->bytes));
    RUN(device->copy(device, NULL, data->memory, data->image, data->bytes));
    RUN(hs_op_update_list(&data->context, &data->list));
    RUN(device->copy(device, NULL, together, data->memory, data->bytes));
    RUN(device->stream_sync(device, NULL));
    cr_assert_neq(memcmp(together, data->image, data->bytes), 0, "%s: nothing was updated",
                  data->context.backend->name);
    for (int t = 0; t < TENSORS; t++)
        for (int s = 0; s < STREAMS; s++) {
            const HsTensor *tensor = &data->tensors[t][s];
            if (!hs_tensor_present(tensor))
                continue;
            const size_t at = (size_t)((unsigned char *)tensor->data - data->memory);
            cr_expect_eq(memcmp(apart + at, together + at, hs_tensor_bytes(tensor)), 0, "%s: tensor %d, stream %d",
                         data->context.backend->name, t, s);
        }
    free(apart);
    free(together);
}

static Data *open_host(const HsBackend *backend)
{
    Data *data = calloc(1, sizeof *data);
    RUN(hs_device_host_init(&data->device));
    data->context = (HsContext){ .backend = backend, .device = &data->device, .threads = 2 };
    return data;
}

static Data *open_emulator(void)
{
    const HsCudaOptions options = { 0 };
    Data *data = calloc(1, sizeof *data);
    RUN(emulator()->device_init(&data->device, &options));
    data->context = (HsContext){ .backend = emulator()->backend, .device = &data->device, .threads = 1 };
    return data;
}

static void check(Data *data, bool skip)
{
    make(data, skip);
    compare(data);
    finish(data);
}

Test(update_list, bits_on_ref)
{
    check(open_host(hs_backend_ref()), false);
}

Test(update_list, bits_on_cpu)
{
    const HsBackend *cpu;
    RUN(hs_backend_cpu(&cpu));
    check(open_host(cpu), false);
    check(open_host(cpu), true);
}

Test(update_list, bits_on_the_emulated_gpu)
{
    check(open_emulator(), false);
    check(open_emulator(), true);
}

/* The message names the tensor by its place among its rule's. */
Test(update_list, refuses_what_its_rules_refuse)
{
    Data *data = open_host(hs_backend_ref());
    make(data, false);
    data->sgd[2].buffer.shape[0]++;
    cr_expect_eq(hs_op_update_list(&data->context, &data->list), HS_ESHAPE);
    cr_expect_not_null(strstr(hs_error_message(), "update_list, tensor 2: sgd: buffer"), "%s", hs_error_message());
    finish(data);
}

Test(update_list, of_nothing)
{
    Data *data = open_emulator();
    RUN(hs_op_update_list(&data->context, &(HsUpdateListArgs){ .adamw = data->adamw }));
    hs_device_deinit(&data->device);
    free(data);
}
