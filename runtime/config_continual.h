/* SPDX-License-Identifier: MIT
 *
 * The sections continual, replay, l2, ewc, si, mer and agem as optim/ understands them.
 */
#ifndef HS_RUNTIME_CONFIG_CONTINUAL_H
#define HS_RUNTIME_CONFIG_CONTINUAL_H

#include "optim/continual.h"
#include "runtime/config.h"

/* Settles continual.strategy: auto into the strategies whose sections the user wrote, or none. */
HsStatus hs_config_resolve_strategies(HsConfig *config);
/* Strategy names are borrowed from `config`.  errors: HS_ECONFIG: more strategies than can be combined */
HsStatus hs_config_continual(const HsConfig *config, HsContinualConfig *continual);
/* Sequences of the reservoir: replay.buffer_size, or mer.buffer_size. */
int64_t hs_config_buffer_size(const HsConfig *config);
/* Sequences of an optimizer step: a whole accumulation window, or with mer's default group one micro-batch of it. */
int64_t hs_config_rows_per_step(const HsConfig *config);

#endif
