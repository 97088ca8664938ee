/* SPDX-License-Identifier: MIT
 *
 * Rows that end in padding (data.packing: none).  Attention is causal, so what stands behind the last target of every
 * sequence of a micro-batch changes no loss and no gradient: the pass ends there.
 *
 *     tokens    a a a a - - - -      targets end at 4 and at 6: of 8 places
 *               b b b b b b - -      6 are computed, in tensors of [2 x 6] rows
 *
 * A length is a multiple of a sixteenth of T, so that there are few: an operation's scratch need not grow with them, and
 * that of each is planned.  Sums over rows leave exact zeros out; kernels may add the others up in another order.
 *
 * Only where the host reads the device's memory: a GPU's recorded steps have lengths that the host fixed.  Not where masks
 * are drawn, as a mask's element depends on T (HsModel.pads), nor where the frequencies of rotary positions do.
 */
#include <string.h>

#include "runtime/engine/program_internal.h"

enum { LENGTHS = 16, GRAIN = 16 };

int64_t hs_program_length_grain(const HsModel *model, const HsDevice *device, int64_t sequence_length)
{
    const int64_t grain = ((sequence_length + LENGTHS - 1) / LENGTHS + GRAIN - 1) / GRAIN * GRAIN;
    return model->pads && device->host_accessible && !model->rope_divisors && grain < sequence_length ? grain : 0;
}

int64_t hs_program_needed_length(const HsProgram *program, const int32_t *targets)
{
    const int64_t most = program->sequence_length, grain = program->length_grain;
    if (grain == 0)
        return most;
    int64_t needed = 1;
    for (int64_t sequence = 0; sequence < program->batch; sequence++)
        for (int64_t t = most; t > needed; t--)
            if (targets[sequence * most + t - 1] >= 0)
                needed = t;
    const int64_t length = (needed + grain - 1) / grain * grain;
    return length < most ? length : most;
}

HsStatus hs_sequences_load(HsContext *context, HsTensor values, const int32_t *from, int64_t length, int64_t most)
{
    HsDevice *device = context->device;
    const int64_t sequences = length < most ? values.shape[0] / length : 1, count = values.shape[0] / sequences;
    for (int64_t i = 0; i < sequences; i++)
        HS_TRY(device->copy(device, context->stream, (int32_t *)values.data + i * count, from + i * most,
                            (size_t)count * sizeof *from));
    return HS_OK;
}

HsStatus hs_sequences_take(HsContext *context, HsTensor losses, void *to, int64_t length, int64_t most)
{
    HsDevice *device = context->device;
    const int64_t sequences = length < most ? losses.shape[0] / length : 1;
    const size_t bytes = hs_tensor_bytes(&losses) / (size_t)sequences;
    const size_t left_out = (size_t)(most - length) * hs_dtype_bytes(losses.dtype);
    for (int64_t i = 0; i < sequences; i++) {
        unsigned char *const place = (unsigned char *)to + (size_t)i * (bytes + left_out);
        HS_TRY(device->copy(device, context->stream, place, (unsigned char *)losses.data + (size_t)i * bytes, bytes));
        if (left_out > 0) /* only in memory that the host reads */
            memset(place + bytes, 0, left_out);
    }
    return HS_OK;
}
