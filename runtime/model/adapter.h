/* SPDX-License-Identifier: MIT
 *
 * Which matrices of a finished table have adapters, and what else stays trainable.
 */
#ifndef HS_RUNTIME_MODEL_ADAPTER_H
#define HS_RUNTIME_MODEL_ADAPTER_H

#include "runtime/model/builder.h"

bool hs_adapter_wanted(const HsConfig *config);
/* Give the linear layers that adapter.targets names their parameters A and B, behind all others, so that a model's own
 * first values do not depend on them.  errors: HS_ECONFIG for a target that names no matrix, with those that there are.
 */
HsStatus hs_model_add_adapters(HsBuilder *builder);

/* A module's name: the parameter's without ".weight". */
void hs_adapter_module(const char *parameter, char *module, size_t size);

#endif
