/* SPDX-License-Identifier: MIT
 *
 * The figures of bench/profile: peaks, each group's time and least time, their sums.
 *
 *     limit of an operation = max(flops / peak of the products' format, bytes / peak of the memory)
 *
 * A group's time is the median over the steps of what its parts take of a step.  Sums are sums of such medians.
 */
#ifndef HS_BENCH_PROFILE_FIGURES_H
#define HS_BENCH_PROFILE_FIGURES_H

#include "bench/profile_trace.h"
#include "kernels/ops/backend.h"

enum { PROBES = 2, NOW = 0, BEFORE = 1, SIDES = 2 };

/* The best that was measured, [0] at the start, [1] at the end. */
typedef struct Peaks {
    double flops[PROFILE_FORMATS][2], bytes[2];
} Peaks;

/* Figures of a group, or of several. */
typedef struct Row {
    const ProfileGroup *group;
    double ms[SIDES], calls, flops;
    double limit_ms, products_ms; /* the least time; of it, what the products' peak binds */
} Row;

typedef struct Profile {
    ProfileGroups groups;
    ProfileTrace traces[SIDES];
    Peaks peaks;
    Row *rows;
    Row total;
    bool compared;
    const char *device;
    int threads;
} Profile;

/* --- peaks --- */

static inline bool profile_uses(const ProfileTrace *trace, int format)
{
    for (int p = 0; p < trace->count; p++)
        if (trace->parts[p].format == format)
            return true;
    return false;
}

/* Of the formats that the trace's products have. */
static inline void profile_measure(const HsContext *context, const ProfileTrace *trace, int when, Peaks *peaks)
{
    const HsBackend *backend = context->backend;
    for (int probe = 0; probe < PROBES; probe++) {
        for (int i = 0; backend->peak_flops && i < PROFILE_FORMATS; i++)
            if (profile_uses(trace, i))
                peaks->flops[i][when] =
                    fmax(peaks->flops[i][when],
                         backend->peak_flops(context, profile_formats[i].dtype, profile_formats[i].policy));
        if (backend->peak_bytes)
            peaks->bytes[when] = fmax(peaks->bytes[when], backend->peak_bytes(context, HS_UNCACHED_BYTES));
    }
}

static inline double best(const double peak[2])
{
    return fmax(peak[0], peak[1]);
}

/* --- figures --- */

static inline int compare_doubles(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static inline double median(double *values, int count)
{
    qsort(values, (size_t)count, sizeof *values, compare_doubles);
    return count % 2 ? values[count / 2] : 0.5 * (values[count / 2 - 1] + values[count / 2]);
}

/* Each group's median of what its parts take of a step: sums [groups, steps]. */
static inline HsStatus sum_side(Profile *profile, int side)
{
    const ProfileTrace *trace = &profile->traces[side];
    if (trace->steps == 0)
        return HS_OK;
    const size_t steps = (size_t)trace->steps;
    double *sums = calloc((size_t)profile->groups.count * steps, sizeof *sums);
    if (!sums)
        return hs_fail(HS_ENOMEM, "no memory for %d steps", trace->steps);
    for (int p = 0; p < trace->count; p++)
        sums[(size_t)trace->parts[p].group * steps + (size_t)trace->parts[p].step] += trace->parts[p].ms;
    for (int g = 0; g < profile->groups.count; g++)
        profile->rows[g].ms[side] = median(sums + (size_t)g * steps, trace->steps);
    free(sums);
    return HS_OK;
}

static inline void add_cost(const Profile *profile, const ProfilePart *part, double steps, Row *row)
{
    const double peak = part->format == PROFILE_NONE ? 0.0 : best(profile->peaks.flops[part->format]);
    const double products_ms = peak > 0.0 ? 1e3 * part->flops / peak : 0.0;
    const double bytes_ms = 1e3 * part->bytes / best(profile->peaks.bytes);
    row->calls += 1.0 / steps;
    row->flops += part->flops / steps;
    row->limit_ms += fmax(products_ms, bytes_ms) / steps;
    row->products_ms += products_ms > bytes_ms ? products_ms / steps : 0.0;
}

static inline void add_row(Row *sum, const Row *row)
{
    for (int side = 0; side < SIDES; side++)
        sum->ms[side] += row->ms[side];
    sum->calls += row->calls;
    sum->flops += row->flops;
    sum->limit_ms += row->limit_ms;
    sum->products_ms += row->products_ms;
}

static inline int compare_rows(const void *a, const void *b)
{
    const Row *x = a, *y = b;
    const double mine = fmax(x->ms[NOW], 0.0), other = fmax(y->ms[NOW], 0.0);
    return mine != other ? (mine < other) - (mine > other)
                         : (x->ms[BEFORE] < y->ms[BEFORE]) - (x->ms[BEFORE] > y->ms[BEFORE]);
}

static inline HsStatus profile_figure(Profile *profile)
{
    const ProfileTrace *now = &profile->traces[NOW];
    profile->rows = calloc((size_t)profile->groups.count, sizeof *profile->rows);
    if (!profile->rows)
        return hs_fail(HS_ENOMEM, "no memory for %d rows", profile->groups.count);
    for (int side = 0; side < SIDES; side++)
        HS_TRY(sum_side(profile, side));
    for (int p = 0; p < now->count; p++)
        if (profile->groups.rows[now->parts[p].group].class != CLASS_GAPS)
            add_cost(profile, &now->parts[p], now->steps, &profile->rows[now->parts[p].group]);
    for (int g = 0; g < profile->groups.count; g++) {
        profile->rows[g].group = &profile->groups.rows[g];
        add_row(&profile->total, &profile->rows[g]);
    }
    qsort(profile->rows, (size_t)profile->groups.count, sizeof *profile->rows, compare_rows);
    return HS_OK;
}

static inline const char *bound_of(const Row *row)
{
    if (row->limit_ms <= 0.0)
        return "";
    const double share = row->products_ms / row->limit_ms;
    return share > 0.9 ? "products" : share < 0.1 ? "memory" : "both";
}

static inline void sum_classes(const Profile *profile, Row rows[CLASSES])
{
    memset(rows, 0, CLASSES * sizeof *rows);
    for (int i = 0; i < profile->groups.count; i++)
        add_row(&rows[profile->rows[i].group->class], &profile->rows[i]);
}

/* Milliseconds of the products alone at the peak. */
static inline double products_at_peak_ms(const Profile *profile)
{
    const ProfileTrace *now = &profile->traces[NOW];
    double ms = 0.0;
    for (int p = 0; p < now->count; p++) {
        const ProfilePart *part = &now->parts[p];
        if (part->format != PROFILE_NONE)
            ms += 1e3 * part->flops / best(profile->peaks.flops[part->format]) / now->steps;
    }
    return ms;
}

#endif
