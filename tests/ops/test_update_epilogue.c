/* SPDX-License-Identifier: MIT
 *
 * What follows an update in its own pass (HsUpdateEpilogue) against the same as separate operations, one after another:
 * every bit of parameter, weight, average, snapshot and both packed layouts, on every instruction set, for 1 and 3 threads.
 */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/base/rng.h"
#include "kernels/cpu/cpu.h"
#include "kernels/ops/backend.h"
#include "tests/support/tier.h"

#define RUN(call) cr_assert_eq((call), HS_OK, "%s", hs_error_message())

typedef struct Case {
    HsDtype dtype;
    bool master;
    int64_t rows, columns;
    bool back, skip;
    enum { ADAMW, SGD, ADAMW8BIT, RULES } rule;
} Case;

enum {
    GRADIENT,
    MOMENT_1,
    MOMENT_2,
    MASTER,
    WEIGHT,
    ANCHOR,
    SNAPSHOT,
    AVERAGE,
    CODES_1,
    CODES_2,
    TRANSPOSED,
    PACKED,
    BUFFERS
};

/* All memory of one way of doing it. */
typedef struct Parameter {
    unsigned char *memory[BUFFERS];
    size_t bytes[BUFFERS];
    HsTensor tensors[BUFFERS];
    HsPacked transposed, packed;
} Parameter;

static void make_buffer(Parameter *parameter, int index, size_t bytes)
{
    const size_t whole = (bytes + 63) / 64 * 64;
    parameter->bytes[index] = whole;
    parameter->memory[index] = aligned_alloc(64, whole > 0 ? whole : 64);
    cr_assert_not_null(parameter->memory[index]);
    memset(parameter->memory[index], 0x5A, whole); /* what is not written is no zero */
}

static void make_parameter(Parameter *parameter, const HsContext *context, const Case *c)
{
    memset(parameter, 0, sizeof *parameter);
    for (int i = GRADIENT; i <= CODES_2; i++) {
        const HsDtype dtype = i == WEIGHT ? c->dtype : i >= CODES_1 ? HS_U8 : HS_F32;
        const HsTensor shape = hs_tensor_2d(NULL, dtype, c->rows, c->columns);
        make_buffer(parameter, i, hs_tensor_bytes(&shape));
        parameter->tensors[i] = shape;
        parameter->tensors[i].data = parameter->memory[i];
        const HsRng rng = { .seed = 11, .site = (uint32_t)i };
        for (int64_t e = 0; e < hs_tensor_count(&shape); e++) {
            const double u = (double)hs_rng_uniform(hs_rng_draw(&rng, (uint64_t)e).word[0]);
            hs_dtype_store(dtype, parameter->memory[i], e, i >= CODES_1 ? 255.0 * u : i == MOMENT_2 ? u : u - 0.5);
        }
    }
    if (!c->master)
        parameter->tensors[MASTER].rank = 0;
    const size_t transposed = context->backend->packed_bytes(context, c->dtype, c->columns, c->rows);
    const size_t packed = context->backend->packed_bytes(context, c->dtype, c->rows, c->columns);
    make_buffer(parameter, TRANSPOSED, transposed);
    make_buffer(parameter, PACKED, packed);
    parameter->transposed = (HsPacked){ parameter->memory[TRANSPOSED], c->dtype, c->columns, c->rows };
    parameter->packed = (HsPacked){ parameter->memory[PACKED], c->dtype, c->rows, c->columns };
}

static void free_parameter(Parameter *parameter)
{
    for (int i = 0; i < BUFFERS; i++)
        free(parameter->memory[i]);
}

static const HsRng back_rng = { .seed = 5, .step = 3, .site = 9 };

/* As prepare_step has it. */
static float average_rate_of(const Case *c)
{
    return c->skip ? 0.0f : 0.125f;
}

static void update(HsContext *context, Parameter *parameter, const Case *c, const HsUpdateEpilogue *epilogue)
{
    const HsStepScalars scalars = { .learning_rate = 0.01f,
                                    .gradient_multiplier = 0.5f,
                                    .bias_correction1 = 0.2f,
                                    .bias_correction2 = 0.1f,
                                    .unscale = 1.0f,
                                    .average_rate = average_rate_of(c),
                                    .skip = c->skip };
    const HsTensor *t = parameter->tensors;
    const HsUpdateArgs surroundings = { .scalars = &scalars,
                                        .weight_decay = c->rule == SGD ? 0.0f : 0.1f,
                                        .learning_rate_scale = 1.0f,
                                        .rng = { .seed = 4, .step = 2, .site = 1 },
                                        .grad = t[GRADIENT],
                                        .master = t[MASTER],
                                        .weight = t[WEIGHT],
                                        .epilogue = *epilogue };
    const int64_t blocks = hs_dynamic_blocks(c->rows * c->columns);
    if (c->rule == SGD)
        RUN(hs_op_sgd(context, &(HsSgdArgs){ .update = surroundings, .momentum = 0.9f, .buffer = t[MOMENT_1] }));
    else if (c->rule == ADAMW)
        RUN(hs_op_adamw(context, &(HsAdamWArgs){ .update = surroundings,
                                                 .beta1 = 0.9f,
                                                 .beta2 = 0.99f,
                                                 .epsilon = 1e-8f,
                                                 .m = t[MOMENT_1],
                                                 .v = t[MOMENT_2] }));
    else
        RUN(hs_op_adamw8bit(context, &(HsAdamW8bitArgs){ .update = surroundings,
                                                         .beta1 = 0.9f,
                                                         .beta2 = 0.99f,
                                                         .epsilon = 1e-8f,
                                                         .m = t[CODES_1],
                                                         .v = t[CODES_2],
                                                         .m_absmax = hs_tensor_1d(t[MOMENT_1].data, HS_F32, blocks),
                                                         .v_absmax = hs_tensor_1d(t[MOMENT_2].data, HS_F32, blocks) }));
}

static void update_folded(HsContext *context, Parameter *parameter, const Case *c)
{
    HsUpdateEpilogue epilogue = { .packed_transposed = &parameter->transposed, .packed = &parameter->packed };
    epilogue.snapshots[epilogue.snapshot_count++] = parameter->tensors[SNAPSHOT];
    epilogue.average = parameter->tensors[AVERAGE];
    if (c->back)
        epilogue.back[epilogue.back_count++] = (HsStepBack){ parameter->tensors[ANCHOR], 0.25f, back_rng };
    update(context, parameter, c, &epilogue);
}

static void update_apart(HsContext *context, Parameter *parameter, const Case *c)
{
    const HsTensor *t = parameter->tensors;
    const HsUpdateEpilogue nothing = { .back_count = 0 };
    update(context, parameter, c, &nothing);
    if (c->back)
        RUN(hs_op_interpolate(
            context,
            &(HsInterpolateArgs){
                .anchor = t[ANCHOR], .master = t[MASTER], .weight = t[WEIGHT], .rate = 0.25f, .rng = back_rng }));
    const float rate = average_rate_of(c);
    RUN(hs_op_average(
        context, &(HsAverageArgs){ .rate = &rate, .x = c->master ? t[MASTER] : t[WEIGHT], .average = t[AVERAGE] }));
    RUN(hs_op_convert(context, &(HsConvertArgs){ .x = c->master ? t[MASTER] : t[WEIGHT], .y = t[SNAPSHOT] }));
    if (c->skip && !c->back) /* p did not move: what was packed stays */
        return;
    RUN(hs_op_pack_weight(context, &(HsPackWeightArgs){ t[WEIGHT], true, &parameter->transposed }));
    RUN(hs_op_pack_weight(context, &(HsPackWeightArgs){ t[WEIGHT], false, &parameter->packed }));
}

static void compare(const HsBackend *backend, const char *isa, const Case *c)
{
    HsContext context = { .backend = backend, .threads = 1 };
    Parameter apart;
    make_parameter(&apart, &context, c);
    update_apart(&context, &apart, c);
    for (int threads = 1; threads <= 3; threads += 2) {
        context.threads = threads;
        Parameter folded;
        make_parameter(&folded, &context, c);
        update_folded(&context, &folded, c);
        for (int i = 0; i < BUFFERS; i++)
            cr_expect(memcmp(folded.memory[i], apart.memory[i], apart.bytes[i]) == 0,
                      "%s, %s, %lld x %lld, master %d, back %d, skip %d, rule %d, %d threads: buffer %d differs", isa,
                      hs_dtype_name(c->dtype), (long long)c->rows, (long long)c->columns, c->master, c->back, c->skip,
                      (int)c->rule, threads, i);
        free_parameter(&folded);
    }
    free_parameter(&apart);
}

/* Shapes around the cut: one block and many, edges in rows, columns, panels, pairs and draws; the last is large. */
Test(update_epilogue, has_the_bits_of_the_operations_it_is_made_of)
{
    static const int64_t shapes[][2] = { { 64, 64 }, { 1, 1 },      { 65, 33 },  { 130, 320 }, { 192, 100 },
                                         { 7, 512 }, { 129, 1088 }, { 66, 300 }, { 449, 600 } };
    static const Case formats[] = { { .dtype = HS_BF16, .master = true },
                                    { .dtype = HS_BF16 },
                                    { .dtype = HS_F16, .master = true },
                                    { .dtype = HS_F32 } };
    for (int index = 0; hs_backend_cpu_isa_name(index); index++) {
        const HsBackend *backend;
        const char *isa = hs_backend_cpu_isa_name(index);
        if (hs_backend_cpu_for_isa(isa, &backend) != HS_OK)
            continue; /* this machine lacks it */
        for (size_t s = 0; s < sizeof shapes / sizeof shapes[0]; s++) {
            const bool large = shapes[s][0] > 400;
            for (size_t f = 0; f < sizeof formats / sizeof formats[0]; f++)
                for (int options = 0; options < 4 * RULES; options += large ? 7 : 1) {
                    Case c = formats[f];
                    if (!is_in_tier((size_t)index + s + f + (size_t)options, 4))
                        continue;
                    c.rows = shapes[s][0];
                    c.columns = shapes[s][1];
                    c.back = options & 1;
                    c.skip = options & 2;
                    c.rule = options / 4;
                    compare(backend, isa, &c);
                }
        }
    }
}

Test(update_epilogue, is_checked)
{
    const HsBackend *backend;
    RUN(hs_backend_cpu(&backend));
    HsContext context = { .backend = backend, .threads = 1 };
    const Case c = { .dtype = HS_F32, .rows = 8, .columns = 16 };
    Parameter parameter;
    make_parameter(&parameter, &context, &c);
    const HsTensor *t = parameter.tensors;
    HsAdamWArgs args = { .update.grad = t[GRADIENT], .m = t[MOMENT_1], .v = t[MOMENT_2], .update.weight = t[WEIGHT] };
    args.update.epilogue.back_count = HS_MOST_STEPS_BACK + 1;
    cr_expect_eq(hs_op_adamw(&context, &args), HS_EINVAL);
    args.update.epilogue.back_count = 0;
    args.update.epilogue.snapshot_count = 1; /* of rank 0 */
    cr_expect_neq(hs_op_adamw(&context, &args), HS_OK);
    args.update.epilogue.snapshot_count = 0;
    args.update.epilogue.packed = &parameter.transposed; /* made for the other product */
    cr_expect_eq(hs_op_adamw(&context, &args), HS_ESHAPE);
    free_parameter(&parameter);
}
