/* SPDX-License-Identifier: MIT
 *
 * A norm that does the work of the sum with dropout below it, against two operations one after the other: forward
 * x = residual + mask(branch) / (1 - p) before it, backward the branch's gradient behind it.  Every bit of every tensor,
 * on ref, by every instruction set of the CPU and on the emulated GPU, with rows that take each of its kernels.
 */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/cpu/cpu.h"
#include "tests/support/emulator.h"
#include "tests/support/tier.h"

#define RUN(call) cr_assert_eq((call), HS_OK, "%s", hs_error_message())

/* N x C: up to DX; C: up to DBIAS; N: the rest. */
enum { BRANCH, RESIDUAL, X, Y, DY, MASKED, DX, WEIGHT, BIAS, DWEIGHT, DBIAS, MEAN, RSTD, TENSORS };
static const char *const names[] = { "branch", "residual", "x",       "y",     "dy",   "dx_masked", "dx",
                                     "weight", "bias",     "dweight", "dbias", "mean", "rstd" };

typedef struct Formats {
    HsDtype branch, residual, x, y; /* gradients have the same */
    int shift;                      /* elements past a wide boundary at which tensors begin */
} Formats;

/* Those of the precision modes, and others, which take two operations' kernels all the same. */
enum { MODES = 3 };
static const Formats formats[] = {
    { HS_BF16, HS_F32, HS_F32, HS_BF16, 0 },  { HS_F16, HS_F32, HS_F32, HS_F16, 0 },
    { HS_F32, HS_F32, HS_F32, HS_F32, 0 },    { HS_BF16, HS_BF16, HS_BF16, HS_BF16, 0 },
    { HS_F16, HS_F16, HS_F16, HS_F16, 0 },    { HS_F32, HS_F32, HS_BF16, HS_BF16, 0 },
    { HS_BF16, HS_BF16, HS_F32, HS_BF16, 0 }, { HS_BF16, HS_F32, HS_F32, HS_BF16, 1 },
};

/* Columns: one warp a row with each size of what a lane holds, several warps, no registers for the row; odd ones. */
static const int64_t sizes[][2] = { { 3, 4 },   { 5, 7 },    { 35, 100 }, { 19, 384 },
                                    { 9, 768 }, { 3, 1032 }, { 2, 4104 }, { 2, 8200 } };
static const int64_t widest[2] = { 1, 16392 }; /* forward holds longer rows */

static const uint32_t step = 5;

typedef struct Bench {
    const char *backend;
    HsDevice device;
    HsContext context;
    uint32_t *counter; /* device */
    HsTensor tensors[TENSORS];
    void *memory[TENSORS];
} Bench;

/* One way or the other, with the variant's kind of norm, probability and use of memory. */
typedef void Way(Bench *bench, int variant, bool together);

static HsTensor shape_of(const Formats *f, const int64_t size[2], int tensor)
{
    const HsDtype dtypes[] = { [BRANCH] = f->branch, [RESIDUAL] = f->residual, [X] = f->x, [Y] = f->y,
                               [DY] = f->y,          [MASKED] = f->branch,     [DX] = f->x };
    if (tensor <= DX)
        return hs_tensor_2d(NULL, dtypes[tensor], size[0], size[1]);
    return hs_tensor_1d(NULL, HS_F32, size[tensor <= DBIAS ? 1 : 0]);
}

/* Numbers around 0, for the statistics of a row positive ones. */
static void fill(Bench *bench, int tensor)
{
    HsTensor *t = &bench->tensors[tensor];
    HsDevice *device = &bench->device;
    const HsRng rng = { .seed = 9, .site = (uint32_t)tensor };
    void *image = malloc(hs_tensor_bytes(t));
    cr_assert_not_null(image);
    for (int64_t i = 0; i < hs_tensor_count(t); i++) {
        const double uniform = (double)hs_rng_uniform(hs_rng_draw(&rng, (uint64_t)i).word[1]);
        hs_dtype_store(t->dtype, image, i, 3.0 * uniform - (tensor == RSTD ? 0.0 : 1.4));
    }
    RUN(device->copy(device, bench->context.stream, t->data, image, hs_tensor_bytes(t)));
    RUN(device->stream_sync(device, bench->context.stream));
    free(image);
}

/* Kinds of norms and probabilities, all with weights; then both kinds without. */
enum { WEIGHTED_VARIANTS = 6, VARIANTS = 8 };

static HsNormKind kind_of(int variant)
{
    return variant % 2 ? HS_NORM_LAYER : HS_NORM_RMS;
}

static float probability_of(int variant)
{
    static const float probabilities[] = { 0.0f, 0.25f, 0.3f };
    return probabilities[variant % 3];
}

static HsRng rng_of(const Bench *bench)
{
    return (HsRng){ .seed = 4, .step = 1, .site = 6, .row_offset = 3, .step_counter = bench->counter };
}

static void forward(Bench *bench, int variant, bool together)
{
    const HsTensor *t = bench->tensors, absent = { 0 };
    const bool layer = kind_of(variant) == HS_NORM_LAYER, weighted = variant < WEIGHTED_VARIANTS;
    const HsTensor x = variant % 3 == 2 && t[X].dtype == t[RESIDUAL].dtype ? t[RESIDUAL] : t[X];
    const HsDropoutArgs sum = {
        .probability = probability_of(variant), .rng = rng_of(bench), .x = t[BRANCH], .residual = t[RESIDUAL], .y = x
    };
    HsNormArgs norm = { .kind = kind_of(variant),
                        .epsilon = 1e-5f,
                        .x = x,
                        .weight = weighted ? t[WEIGHT] : absent,
                        .bias = layer && weighted ? t[BIAS] : absent,
                        .y = t[Y],
                        .mean = layer ? t[MEAN] : absent,
                        .rstd = t[RSTD] };
    if (together) {
        norm.branch = sum.x;
        norm.residual = sum.residual;
        norm.probability = sum.probability;
        norm.rng = sum.rng;
    } else {
        RUN(hs_op_dropout_forward(&bench->context, &sum));
    }
    RUN(hs_op_norm_forward(&bench->context, &norm));
}

static void backward(Bench *bench, int variant, bool together)
{
    const HsTensor *t = bench->tensors, absent = { 0 };
    const bool layer = kind_of(variant) == HS_NORM_LAYER, weighted = variant < WEIGHTED_VARIANTS;
    const HsDropoutArgs mask = {
        .probability = probability_of(variant), .rng = rng_of(bench), .x = t[DX], .y = t[MASKED]
    };
    HsNormBackwardArgs norm = { .kind = kind_of(variant),
                                .dy = t[DY],
                                .x = t[X],
                                .weight = weighted ? t[WEIGHT] : absent,
                                .mean = layer ? t[MEAN] : absent,
                                .rstd = t[RSTD],
                                .accumulate = variant % 3 != 1,
                                .dx = t[DX],
                                .dweight = weighted ? t[DWEIGHT] : absent,
                                .dbias = layer && weighted ? t[DBIAS] : absent };
    if (together) {
        norm.dx_masked = mask.y;
        norm.probability = mask.probability;
        norm.rng = mask.rng;
    }
    RUN(hs_op_norm_backward(&bench->context, &norm));
    if (!together)
        RUN(hs_op_dropout_backward(&bench->context, &mask));
}

/* What every tensor is behind it; all begin with the same numbers, so that what was not written is the same, too. */
static void run(Bench *bench, Way *way, int variant, bool together, void *results[TENSORS])
{
    HsDevice *device = &bench->device;
    for (int i = 0; i < TENSORS; i++)
        fill(bench, i);
    way(bench, variant, together);
    for (int i = 0; i < TENSORS; i++) {
        const HsTensor *t = &bench->tensors[i];
        results[i] = malloc(hs_tensor_bytes(t));
        cr_assert_not_null(results[i]);
        RUN(device->copy(device, bench->context.stream, results[i], t->data, hs_tensor_bytes(t)));
        RUN(device->stream_sync(device, bench->context.stream));
    }
}

static void compare(Bench *bench, Way *way, const Formats *f, const int64_t size[2], int variant)
{
    void *apart[TENSORS], *together[TENSORS];
    for (int i = 0; i < TENSORS; i++) {
        HsTensor *t = &bench->tensors[i];
        *t = shape_of(f, size, i);
        const size_t shift = (size_t)f->shift * hs_dtype_bytes(t->dtype);
        RUN(bench->device.alloc(&bench->device, hs_tensor_bytes(t) + shift, &bench->memory[i]));
        t->data = (unsigned char *)bench->memory[i] + shift;
    }
    run(bench, way, variant, false, apart);
    run(bench, way, variant, true, together);
    for (int i = 0; i < TENSORS; i++) {
        cr_expect(memcmp(apart[i], together[i], hs_tensor_bytes(&bench->tensors[i])) == 0,
                  "%s, %s: %s differs: %s, %s -> %s -> %s, %lld x %lld, variant %d", bench->backend,
                  way == forward ? "forward" : "backward", names[i], hs_dtype_name(f->branch),
                  hs_dtype_name(f->residual), hs_dtype_name(f->x), hs_dtype_name(f->y), (long long)size[0],
                  (long long)size[1], variant);
        free(apart[i]);
        free(together[i]);
        bench->device.release(&bench->device, bench->memory[i]);
    }
}

static void compare_all(Bench *bench)
{
    HsDevice *device = &bench->device;
    HsContext *context = &bench->context;
    context->workspace_bytes = 1 << 22;
    RUN(device->alloc(device, context->workspace_bytes, &context->workspace));
    RUN(device->alloc(device, sizeof step, (void **)&bench->counter));
    RUN(device->copy(device, context->stream, bench->counter, &step, sizeof step));
    for (size_t f = 0; f < sizeof formats / sizeof *formats; f++)
        for (int variant = f < MODES ? 0 : 2; variant < VARIANTS; variant += f < MODES ? 1 : 3) {
            for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
                if (!is_in_tier(f + (size_t)variant + s, 3))
                    continue;
                compare(bench, forward, &formats[f], sizes[s], variant);
                compare(bench, backward, &formats[f], sizes[s], variant);
            }
            compare(bench, forward, &formats[f], widest, variant);
        }
    device->release(device, bench->counter);
    device->release(device, context->workspace);
    hs_device_deinit(device);
}

static void compare_on_host(const HsBackend *backend, const char *name, int threads)
{
    Bench bench = { .backend = name };
    RUN(hs_device_host_init(&bench.device));
    bench.context = (HsContext){ .backend = backend, .device = &bench.device, .threads = threads };
    compare_all(&bench);
}

Test(norm_dropout, ref)
{
    compare_on_host(hs_backend_ref(), "ref", 1);
}

Test(norm_dropout, cpu)
{
    for (int i = 0; hs_backend_cpu_isa_name(i); i++) {
        const HsBackend *backend;
        if (hs_backend_cpu_for_isa(hs_backend_cpu_isa_name(i), &backend) != HS_EUNSUPPORTED)
            compare_on_host(backend, hs_backend_cpu_isa_name(i), 1 + i % 3);
    }
}

Test(norm_dropout, emu)
{
    Bench bench = { .backend = "emu" };
    const HsCudaOptions options = { 0 };
    RUN(emulator()->device_init(&bench.device, &options));
    bench.context = (HsContext){ .backend = emulator()->backend, .device = &bench.device, .threads = 1 };
    compare_all(&bench);
}
