/* SPDX-License-Identifier: MIT */
#include "runtime/selftest/coded.h"

#include <stdlib.h>
#include <string.h>

enum { SCALINGS_BYTES = 128 };

/* In one piece of memory: | both scalings | codes of a | codes of b | */
static size_t place_codes(HsCodes codes[2], unsigned char *memory)
{
    size_t at = SCALINGS_BYTES;
    for (int i = 0; i < 2; i++) {
        hs_codes_place(&codes[i], memory ? memory + at : NULL);
        codes[i].scaling = memory ? (HsScaling *)(void *)memory + i : NULL;
        at += (hs_codes_bytes(&codes[i]) + HS_CODES_ALIGNMENT - 1) / HS_CODES_ALIGNMENT * HS_CODES_ALIGNMENT;
    }
    return at;
}

static void shape_codes(const HsTrial *trial, HsCodes codes[2])
{
    const HsCase *config = trial->config;
    const HsProductPolicy policy = config->policy;
    const int64_t m = config->rows, n = config->columns, k = config->depth;
    codes[0] = (HsCodes){ policy.a, policy.granularity, m, k, NULL, NULL, NULL };
    codes[1] = (HsCodes){ policy.b, policy.granularity, n, k, NULL, NULL, NULL };
    if (hs_case_has(trial, HS_CASE_TRANSPOSE_A))
        codes[0].rows = k, codes[0].depth = m;
    if (!hs_case_has(trial, HS_CASE_TRANSPOSE_B))
        codes[1].rows = k, codes[1].depth = n;
}

/* Number times block scale of every element: the product with an identity, to the reference. */
static HsStatus decode(HsContext *reference, const HsCodes *codes, const HsTrialOperand *operand)
{
    const int64_t depth = codes->depth;
    HsScaling unit = { .scale = 1.0f, .inverse = 1.0f };
    HsCodes numbers = *codes, identity = { HS_E4M3, codes->granularity, depth, depth, NULL, NULL, &unit };
    if (codes->format == HS_E2M1)
        identity.format = HS_E2M1;
    void *memory = calloc(1, hs_codes_bytes(&identity));
    float *const ones = calloc((size_t)(depth * depth), sizeof *ones);
    HsStatus status = memory && ones ? HS_OK : hs_fail(HS_ENOMEM, "selftest: no memory for an identity");
    numbers.scaling = &unit;
    for (int64_t i = 0; i < depth && status == HS_OK; i++)
        ones[i * depth + i] = 1.0f;
    hs_codes_place(&identity, memory);
    if (status == HS_OK)
        status = hs_op_quantize(reference,
                                &(HsQuantizeArgs){ .x = hs_tensor_2d(ones, HS_F32, depth, depth), .along = identity });
    const float factor = unit.inverse;
    unit = (HsScaling){ .scale = 1.0f, .inverse = 1.0f };
    const HsMatmulArgs product = {
        .a = hs_operand_codes(numbers),
        .b = hs_operand_codes(identity),
        .transpose_b = true,
        .policy = { codes->format, identity.format, codes->granularity },
        .alpha = factor,
        .c = hs_tensor_2d(operand->image, HS_BF16, codes->rows, depth),
    };
    if (status == HS_OK)
        status = hs_op_matmul(reference, &product);
    free(memory);
    free(ones);
    return status;
}

/* Plausible bytes, for timing: numbers below 1 of either sign, block scales of 1. */
static void fill_codes(HsCodes codes[2])
{
    for (int i = 0; i < 2; i++) {
        const size_t bytes = (size_t)(codes[i].rows * hs_codes_row_bytes(&codes[i]));
        for (size_t at = 0; at < bytes; at++)
            codes[i].data[at] = (unsigned char)(((uint32_t)at * 2654435761u >> 24) & 0xB7u);
        if (codes[i].block_scales)
            memset(codes[i].block_scales, codes[i].granularity == HS_SCALE_NV ? 0x38 : 127,
                   (size_t)(codes[i].rows * hs_codes_blocks(&codes[i])));
        *codes[i].scaling = (HsScaling){ .scale = 1.0f, .inverse = 1.0f };
    }
}

HsStatus hs_trial_encode(HsTrial *trial, HsContext *reference, HsTrialOperand *a, HsTrialOperand *b)
{
    const HsTrialOperand *const operands[] = { a, b };
    HsCodes codes[2];
    shape_codes(trial, codes);
    trial->coded_image = calloc(1, place_codes(codes, NULL));
    if (trial->coded_image == NULL)
        return hs_fail(HS_ENOMEM, "selftest: no memory for codes");
    place_codes(codes, trial->coded_image);
    if (reference == NULL)
        fill_codes(codes);
    for (int i = 0; i < 2 && reference; i++) {
        HsTensor x = operands[i]->tensor;
        x.data = operands[i]->image;
        HS_TRY(hs_op_quantize(reference, &(HsQuantizeArgs){ .x = x, .along = codes[i] }));
        HS_TRY(decode(reference, &codes[i], operands[i]));
    }
    return HS_OK;
}

HsStatus hs_trial_upload_codes(HsTrial *trial, HsContext *context, HsTensor *a, HsTensor *b, HsCodes codes[2])
{
    HsDevice *const device = context->device;
    shape_codes(trial, codes);
    const size_t bytes = place_codes(codes, NULL);
    a->data = b->data = NULL;
    if (context->dry_run || trial->coded_image == NULL)
        return HS_OK;
    if (trial->coded_memory == NULL) {
        HS_TRY(device->alloc(device, bytes, &trial->coded_memory));
        HS_TRY(device->copy(device, context->stream, trial->coded_memory, trial->coded_image, bytes));
        HS_TRY(device->stream_sync(device, context->stream));
    }
    place_codes(codes, trial->coded_memory);
    return HS_OK;
}

float hs_trial_coded_factor(const HsTrial *trial)
{
    const HsScaling *const scalings = trial->coded_image;
    return scalings ? HS_SCALING_FACTOR(&scalings[0]) * HS_SCALING_FACTOR(&scalings[1]) : 1.0f;
}

double hs_trial_coded_bytes(const HsTrial *trial)
{
    HsCodes codes[2];
    double bytes = 0.0;
    shape_codes(trial, codes);
    for (int i = 0; i < 2; i++)
        bytes += (double)(codes[i].rows * (hs_codes_row_bytes(&codes[i]) + hs_codes_blocks(&codes[i])));
    return bytes;
}

void hs_trial_declare_cast(HsTrial *trial, int codes, const HsTensor *result)
{
    HsTrialOperand *const operands = trial->operands;
    operands[codes] = hs_output("codes", hs_tensor_1d(NULL, HS_U8, result->shape[0] * result->shape[1]));
    operands[codes + 1] =
        hs_filled(hs_updated("scaling", 0.0, hs_tensor_1d(NULL, HS_U8, sizeof(HsScaling))), HS_FILL_ZERO);
    operands[codes + 1].parameter = true;
}

void hs_trial_prepare_cast(HsTrial *trial, int codes)
{
    if (hs_case_casts(trial->config))
        *(HsScaling *)trial->operands[codes + 1].image = hs_case_scaling(trial->config->columns % 32 ? 3.0f : 900.0f);
}

HsCodes hs_trial_cast(const HsTrial *trial, const HsTensor *t, int result, int codes)
{
    const int64_t *const shape = trial->operands[result].tensor.shape;
    return (
        HsCodes){ trial->config->cast, HS_SCALE_TENSOR, shape[0], shape[1], t[codes].data, NULL, t[codes + 1].data };
}

HsStatus hs_trial_follow_cast(HsTrial *trial, HsContext *reference, void *const *stored, int result, int codes)
{
    HsTrialOperand *const operands = trial->operands;
    HsTensor t[HS_TRIAL_OPERANDS] = { 0 };
    if (!hs_case_casts(trial->config))
        return HS_OK;
    t[result] = operands[result].tensor;
    t[result].data = stored[result];
    t[codes] = operands[codes].exact;
    t[codes + 1] = operands[codes + 1].exact;
    memcpy(t[codes + 1].data, operands[codes + 1].image, sizeof(HsScaling));
    const HsCodes left = hs_trial_cast(trial, t, result, codes);
    const HsQuantizeArgs cast = hs_cast_apart(&t[result], &left);
    return hs_op_quantize(reference, &cast);
}
