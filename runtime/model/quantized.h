/* SPDX-License-Identifier: MIT
 *
 * Frozen matrices in four bits under adapters (adapter.base: nf4; Dettmers et al. 2023, "QLoRA").  A parameter's
 * weight keeps its shape and the format that products decode it to, and has no data; HsParam.stored.nf4 has it.
 */
#ifndef HS_RUNTIME_MODEL_QUANTIZED_H
#define HS_RUNTIME_MODEL_QUANTIZED_H

#include "runtime/model/model.h"

/* Every matrix of the blocks that adapters leave as it is: each tensor that files have for it is quantized by itself.
 * errors: HS_ECONFIG naming one with sizes that do not divide */
HsStatus hs_model_quantize_base(HsModel *model);

/* Elements first .. of `to`, one tensor of the matrix, become those of `part`, which lies in host memory.  context: of
 * the device that holds `to`; NULL: host memory. */
HsStatus hs_quantized_place(const HsQuantized *to, int64_t first, const HsQuantized *part, const HsContext *context);
/* The same from values in host memory.  errors: HS_ENOMEM */
HsStatus hs_quantized_set(const HsQuantized *to, int64_t first, int64_t count, const float *values,
                          const HsContext *context);
/* scales [groups][2] of a matrix in host memory; the caller frees. */
HsStatus hs_quantized_scales(const HsQuantized *from, const HsContext *context, float **scales);

/* Where a parameter's weight lies, and how long it is: its four-bit form where it has one. */
size_t hs_param_weight_bytes(const HsParam *param);
void *hs_param_weight_memory(const HsParam *param);

#endif
