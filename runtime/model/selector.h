/* SPDX-License-Identifier: MIT
 *
 * Which parameters a list of patterns names.  The same language everywhere that parameters are chosen: train.freeze,
 * optimizer.groups and ewc.exclude.  A pattern is
 *
 *   a role     matrix (of linear layers inside the blocks), vector (norm gains and biases), embedding, head
 *   a kind     norm (norm gains), bias
 *   a glob     of parameter names, as in checkpoints: *.mlp.*, transformer.h.[01].*, *.ln_?.weight; `*` spans dots
 *
 * A table that is embedding and head in one (model.tie_head) is named by either word.
 */
#ifndef HS_RUNTIME_MODEL_SELECTOR_H
#define HS_RUNTIME_MODEL_SELECTOR_H

#include "runtime/model/model.h"

const char *hs_param_role_name(HsParamRole role);
bool hs_param_matches(const HsParam *param, const char *pattern);

/* chosen[param_count]: set true for every parameter that a pattern names; others stay as they are.
 * errors: HS_ECONFIG for a pattern that names no parameter, with `key`, the pattern and the nearest names. */
HsStatus hs_params_select(const HsModel *model, const char *key, const HsStringList *patterns, bool *chosen);

#endif
