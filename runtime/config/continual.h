/* SPDX-License-Identifier: MIT
 *
 * The section continual, and those of the strategies, as optim/ understands them.
 */
#ifndef HS_RUNTIME_CONFIG_CONTINUAL_H
#define HS_RUNTIME_CONFIG_CONTINUAL_H

#include "optim/continual/continual.h"
#include "runtime/config/config.h"

/* Settles continual.strategy: auto into the strategies with sections that the user wrote, or none. */
HsStatus hs_config_resolve_strategies(HsConfig *config);
/* Strategy names are borrowed from `config`.  errors: HS_ECONFIG: more strategies than can be combined */
HsStatus hs_config_continual(const HsConfig *config, HsContinualConfig *continual);
/* Sequences of the reservoir: replay.buffer_size, or mer.buffer_size. */
int64_t hs_config_buffer_size(const HsConfig *config);
/* Sequences of an optimizer step: a whole accumulation window, or one batch of it where a strategy splits it. */
int64_t hs_config_rows_per_step(const HsConfig *config);
/* Sequences that go through the model at a time: memory.micro_batch, or as many of batch_size as a virtual rank
 * (distributed.virtual_ranks; 0 counts as 1) can be cut into. */
int64_t hs_config_micro_batch(const HsConfig *config);
/* The largest of them: a micro-batch is one of its divisors. */
int64_t hs_config_micro_batch_most(const HsConfig *config);
/* The list `exclude` in the section of a chosen strategy: parameters that its penalty leaves free; NULL: there is no
 * such list.  section: its name, for messages. */
const HsStringList *hs_config_excluded(const HsConfig *config, const HsContinualConfig *continual,
                                       const char **section);

#endif
