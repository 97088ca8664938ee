/* SPDX-License-Identifier: MIT
 *
 * Calls of ranks side by side, see comm_call.h.
 */
#include "kernels/base/comm_call.h"

#include <stdio.h>
#include <string.h>

#include "kernels/base/hash.h"

HsCommCall hs_comm_call(const char *operation, size_t count, HsDtype dtype, int attribute)
{
    HsCommCall call = { .count = count, .dtype = (int32_t)dtype, .attribute = attribute };
    snprintf(call.operation, sizeof call.operation, "%s", operation);
    return call;
}

HsCommCall hs_comm_call_ranges(const char *operation, const size_t *starts, int size, HsDtype dtype)
{
    HsCommCall call = hs_comm_call(operation, starts[size] - starts[0], dtype, 0);
    uint64_t hash = HS_HASH_START;
    for (int r = 0; r <= size; r++)
        hash = hs_hash_number(hash, starts[r]);
    call.ranges = hash | 1;
    return call;
}

bool hs_comm_same_call(const HsCommCall *a, const HsCommCall *b)
{
    return strcmp(a->operation, b->operation) == 0 && a->count == b->count && a->ranges == b->ranges &&
           a->dtype == b->dtype && a->attribute == b->attribute;
}

static void describe(const HsCommCall *call, char *text, size_t bytes)
{
    const char *type = hs_dtype_name((HsDtype)call->dtype);
    const unsigned long long count = (unsigned long long)call->count;
    if (strcmp(call->operation, "barrier") == 0)
        snprintf(text, bytes, "barrier");
    else if (strcmp(call->operation, "all_reduce") == 0)
        snprintf(text, bytes, "all_reduce of %llu %s (%s)", count, type,
                 call->attribute == HS_COMM_SUM ? "sum" : "max");
    else if (strcmp(call->operation, "broadcast") == 0)
        snprintf(text, bytes, "broadcast of %llu %s from rank %d", count, type, call->attribute);
    else
        snprintf(text, bytes, "%s of %llu %s (ranges %04x)", call->operation, count, type,
                 (unsigned)(call->ranges >> 48));
}

HsStatus hs_comm_fail_calls(const HsCommCall *first, int rank, const HsCommCall *other)
{
    char a[96], b[96];
    describe(first, a, sizeof a);
    describe(other, b, sizeof b);
    return hs_fail(
        HS_EDEVICE,
        "ranks do different things: rank 0 %s, rank %d %s; start all with the same program and configuration", a, rank,
        b);
}
