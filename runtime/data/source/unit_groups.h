/* SPDX-License-Identifier: MIT
 *
 * Row groups of one Parquet file, shared by the units that are made of them.  Private to unit*.c.
 */
#ifndef HS_RUNTIME_DATA_SOURCE_UNIT_GROUPS_H
#define HS_RUNTIME_DATA_SOURCE_UNIT_GROUPS_H

#include "runtime/data/source/source.h"

typedef struct HsUnitGroups HsUnitGroups;

/* Whether the source is read by groups: it is a Parquet file, and not compressed once more. */
bool hs_unit_groups_apply(const HsSource *source);
HsStatus hs_unit_groups_open(const HsSource *source, const HsSourceOptions *options, HsUnitGroups **groups);
int64_t hs_unit_groups_count(const HsUnitGroups *groups);
HsStatus hs_unit_groups_parse(const HsUnitGroups *groups, int64_t group, const HsSourceOptions *options,
                              HsCorpus *corpus);
/* One more user, one fewer: the last closes the file.  NULL: nothing. */
HsUnitGroups *hs_unit_groups_hold(HsUnitGroups *groups);
void hs_unit_groups_release(HsUnitGroups *groups);

#endif
