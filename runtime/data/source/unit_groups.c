/* SPDX-License-Identifier: MIT
 *
 * See unit_groups.h.
 */
#include "runtime/data/source/unit_groups.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/data/source/input.h"
#include "runtime/data/source/parquet.h"
#include "runtime/io/files.h"
#include "runtime/io/storage.h"

struct HsUnitGroups {
    const HsSource *source;
    HsParquet *file;
    HsParquetInput input;
    int descriptor;
    _Atomic int users;
};

static HsStatus read_at(const void *user, int64_t at, size_t size, char *bytes)
{
    const HsUnitGroups *groups = user;
    return hs_storage_read_at(groups->descriptor, groups->source->name, bytes, size, at);
}

bool hs_unit_groups_apply(const HsSource *source)
{
    return source->kind && source->kind->parse == hs_parquet_parse && !hs_packing_of_name(source->name) &&
           strcmp(source->name, HS_SOURCE_INPUT) != 0;
}

/* A small file may be a note that stands for one which was not fetched. */
static HsStatus check_fetched(const HsUnitGroups *groups)
{
    char start[1024];
    const size_t size = (size_t)groups->input.size;
    if (size >= sizeof start)
        return HS_OK;
    HS_TRY(read_at(groups, 0, size, start));
    return hs_check_fetched(groups->source->name, start, size);
}

HsStatus hs_unit_groups_open(const HsSource *source, const HsSourceOptions *options, HsUnitGroups **result)
{
    struct stat about = { 0 };
    HsUnitGroups *groups = *result = calloc(1, sizeof *groups);
    if (!groups)
        return hs_fail(HS_ENOMEM, "no memory to read %s", source->name);
    atomic_init(&groups->users, 1);
    groups->source = source;
    groups->descriptor = open(source->name, O_RDONLY | O_CLOEXEC);
    HsStatus status = HS_OK;
    if (groups->descriptor < 0 || fstat(groups->descriptor, &about) != 0)
        status = hs_fail(HS_EIO, "%s: cannot be opened: %s", source->name, strerror(errno));
    groups->input = (HsParquetInput){ read_at, groups, about.st_size };
    if (status == HS_OK)
        status = check_fetched(groups);
    if (status == HS_OK)
        status = hs_parquet_open(source->name, &groups->input, options, &groups->file);
    if (status != HS_OK) {
        hs_unit_groups_release(groups);
        *result = NULL;
    }
    return status;
}

int64_t hs_unit_groups_count(const HsUnitGroups *groups)
{
    return hs_parquet_groups(groups->file);
}

HsStatus hs_unit_groups_parse(const HsUnitGroups *groups, int64_t group, const HsSourceOptions *options,
                              HsCorpus *corpus)
{
    return hs_parquet_parse_group(groups->file, group, options, corpus);
}

HsUnitGroups *hs_unit_groups_hold(HsUnitGroups *groups)
{
    if (groups)
        atomic_fetch_add(&groups->users, 1);
    return groups;
}

void hs_unit_groups_release(HsUnitGroups *groups)
{
    if (!groups || atomic_fetch_sub(&groups->users, 1) > 1)
        return;
    hs_parquet_close(groups->file);
    if (groups->descriptor >= 0)
        close(groups->descriptor);
    free(groups);
}
