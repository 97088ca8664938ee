/* SPDX-License-Identifier: MIT
 *
 * Fusion: nodes of a finished table that one kernel serves better together are replaced by one node, or one of them makes
 * more.  The families' tables know nothing of it, nor do schedule, program and executor, which see nodes and slots.
 */
#ifndef HS_RUNTIME_MODEL_FUSE_H
#define HS_RUNTIME_MODEL_FUSE_H

#include "runtime/model/builder.h"

/* After what trains is settled.  errors: HS_ENOMEM */
HsStatus hs_model_fuse(HsBuilder *builder);

/* hs_model_create without it, to compare with: every number has the same bits. */
HsStatus hs_model_create_unfused(const HsConfig *config, const HsPrecision *precision, int64_t vocabulary,
                                 HsModel *model);

#endif
