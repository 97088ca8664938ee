/* SPDX-License-Identifier: MIT
 *
 * What casts of a checkpoint's matrices into codes below 16 bits would lose: a matrix at a time, its rows in bands that
 * hold whole blocks.
 */
#include <math.h>
#include <stdlib.h>

#include "kernels/ops/codes.h"
#include "runtime/pages/inspect_internal.h"

const HsInspectedRule hs_inspect_rules[HS_INSPECT_RULES] = {
    { "e4m3, tensor", { HS_E4M3, HS_SCALE_TENSOR, false } },
    { "e4m3, 128x128", { HS_E4M3, HS_SCALE_BLOCK, true } },
    { "mxfp8", { HS_E4M3, HS_SCALE_MX, false } },
    { "nvfp4, 16x16", { HS_E2M1, HS_SCALE_NV, true } },
};

enum { BAND_ROWS = HS_SCALE_BLOCK_ELEMENTS };

static HsStatus look_at_matrix(const HsTensor *tensor, float amax, HsInspectedCodes *codes)
{
    const int64_t rows = tensor->shape[0], depth = tensor->shape[1], band = rows < BAND_ROWS ? rows : BAND_ROWS;
    double *const wide = malloc((size_t)(band * depth) * sizeof *wide);
    float *const values = malloc((size_t)(band * depth) * sizeof *values);
    for (int64_t row = 0; wide && values && row < rows; row += band) {
        const int64_t here = rows - row < band ? rows - row : band;
        hs_safetensors_load(tensor, row * depth, 1, here * depth, wide);
        for (int64_t i = 0; i < here * depth; i++)
            values[i] = (float)wide[i];
        for (int rule = 0; rule < HS_INSPECT_RULES; rule++)
            hs_cast_loss_add(&hs_inspect_rules[rule].rule, values, here, depth, amax, &codes->losses[rule]);
    }
    const HsStatus status =
        wide && values ? HS_OK : hs_fail(HS_ENOMEM, "no memory for %lld rows of a matrix", (long long)band);
    free(values);
    free(wide);
    return status;
}

/* What the pass over the tensors found says whether there is something to cast. */
static bool has_codes(const HsTensor *tensor, const HsInspectedTensor *found)
{
    return tensor->rank == 2 && hs_dtype_info(tensor->dtype)->is_float && found->elements > 0 && found->nonfinite == 0;
}

HsStatus hs_inspect_codes(HsInspection *inspection, const HsInspectedFile *file)
{
    inspection->codes = calloc((size_t)file->file->count + 1, sizeof *inspection->codes);
    if (!inspection->codes)
        return hs_fail(HS_ENOMEM, "no memory to inspect %d tensors", file->file->count);
    for (int i = 0; i < file->file->count; i++) {
        const HsTensor *tensor = &file->file->tensors[i].tensor;
        if (!has_codes(tensor, &file->tensors[i]))
            continue;
        HsInspectedCodes *codes = &inspection->codes[inspection->code_count++];
        codes->name = file->file->tensors[i].name;
        HS_TRY(look_at_matrix(tensor, (float)fmax(fabs(file->tensors[i].min), fabs(file->tensors[i].max)), codes));
    }
    return HS_OK;
}

const char *hs_inspect_cast(const HsCastLoss *loss, char text[HS_INSPECT_TEXT_BYTES])
{
    char zeroed[HS_INSPECT_TEXT_BYTES];
    snprintf(text, HS_INSPECT_TEXT_BYTES, "%.2f%% (%.16s)", 100 * hs_cast_loss_error(loss),
             hs_inspect_share(loss->zeroed, loss->elements, zeroed));
    return text;
}

const char *hs_inspect_share(int64_t part, int64_t whole, char text[HS_INSPECT_TEXT_BYTES])
{
    double percent = whole > 0 ? 100.0 * (double)part / (double)whole : 0;
    if (part == 0)
        snprintf(text, HS_INSPECT_TEXT_BYTES, "0");
    else if (percent < 0.01)
        snprintf(text, HS_INSPECT_TEXT_BYTES, "<0.01%%");
    else
        snprintf(text, HS_INSPECT_TEXT_BYTES, "%.2f%%", percent);
    return text;
}
