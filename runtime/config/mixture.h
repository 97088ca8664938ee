/* SPDX-License-Identifier: MIT
 *
 * What a task says of mixing its sources, as numbers.
 */
#ifndef HS_RUNTIME_CONFIG_MIXTURE_H
#define HS_RUNTIME_CONFIG_MIXTURE_H

#include "runtime/config/config.h"

enum { HS_MIXTURE_MOST = 64 }; /* sources */

/* Whether the entries of its `train` are sources that are mixed, and no text one behind the other. */
bool hs_task_is_mixed(const HsTaskConfig *task);
/* weights[train.count]; false: it has none, and the temperature decides.  What check.c let pass is right. */
bool hs_task_weights(const HsTaskConfig *task, double *weights);
/* Change `index` of weight_changes.  errors: HS_ECONFIG saying what is wrong with its text */
HsStatus hs_task_weight_change(const HsTaskConfig *task, int index, int64_t *step, double *weights);
/* What a source is called. */
const char *hs_task_source_name(const HsTaskConfig *task, int source);
/* Relations between these keys.  errors: HS_ECONFIG without the place; *key: which key is wrong */
HsStatus hs_task_check_mixture(const HsTaskConfig *task, const char **key);

#endif
