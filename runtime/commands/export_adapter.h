/* SPDX-License-Identifier: MIT
 *
 * A run's adapters as a folder that PEFT loads.
 */
#ifndef HS_RUNTIME_COMMANDS_EXPORT_ADAPTER_H
#define HS_RUNTIME_COMMANDS_EXPORT_ADAPTER_H

#include "runtime/commands/export_source.h"
#include "runtime/config/peft.h"

/* adapter_config.json's lists; deinit also after a failure.  The names are those of modules, as short as PEFT's rule for
 * ends of names allows.  errors: HS_EUNSUPPORTED for what is trained and is no whole module */
typedef struct HsAdapterNames {
    char **targets, **saved;
    int target_count, saved_count;
} HsAdapterNames;

HsStatus hs_adapter_names_init(const HsExportSource *source, HsAdapterNames *names);
void hs_adapter_names_deinit(HsAdapterNames *names);

#endif
