/* SPDX-License-Identifier: MIT
 *
 * Adapters in PEFT's format: adapter_model.safetensors next to adapter_config.json (runtime/config/peft.h).
 */
#ifndef HS_RUNTIME_CHECKPOINT_ADAPTER_FILE_H
#define HS_RUNTIME_CHECKPOINT_ADAPTER_FILE_H

#include "runtime/checkpoint/weights.h"

/* folder/adapter_model.safetensors into masters and weights; packed copies are left as they are.  Nothing that the model
 * has may be missing, and nothing may be left over.  errors: HS_EFORMAT, HS_ESHAPE naming file and tensor */
HsStatus hs_adapter_load(const char *folder, const HsModel *model, const HsSpan *spans, int span_count,
                         HsContext *context);

#endif
