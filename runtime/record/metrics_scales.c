/* SPDX-License-Identifier: MIT
 *
 * What a step's casts into codes did, for the record of a run in a mode below 16 bits.
 */
#include "runtime/record/metrics_internal.h"

static HsJson *role_json(const HsScalingFigures *figures)
{
    HsJson *role = hs_json_object();
    hs_json_set_string(role, "role", figures->role);
    hs_json_set_real(role, "amax", figures->amax);
    hs_json_set_real(role, "scale_lowest", figures->lowest);
    hs_json_set_real(role, "scale_highest", figures->highest);
    hs_json_set_real(role, "saturated", figures->saturated);
    hs_json_set_real(role, "zeroed", figures->zeroed);
    if (figures->layer[0]) {
        hs_json_set_string(role, "layer", figures->layer);
        hs_json_set_real(role, "layer_lost", figures->layer_lost);
    }
    return role;
}

static HsStatus role_scalars(HsMetrics *metrics, int64_t step, const HsScalingFigures *figures)
{
    const HsMetricsScalar scalars[] = { { "amax", figures->amax },
                                        { "scale", figures->lowest },
                                        { "saturated", figures->saturated },
                                        { "zeroed", figures->zeroed } };
    return hs_metrics_append_scalars(metrics, step, "scales", figures->role, scalars, sizeof scalars / sizeof *scalars);
}

HsJson *hs_metrics_roles_json(const HsScalingFigures *roles, int count)
{
    HsJson *list = hs_json_array();
    for (int i = 0; i < count; i++)
        hs_json_append(list, role_json(&roles[i]));
    return list;
}

HsStatus hs_metrics_scales(HsMetrics *metrics, int64_t step, const HsScalingFigures *roles, int count)
{
    if (count == 0)
        return HS_OK;
    HsJson *line = hs_metrics_event_line("scales", step, -1);
    hs_json_set(line, "roles", hs_metrics_roles_json(roles, count));
    HS_TRY(hs_metrics_append_line(metrics, line));
    for (int i = 0; i < count; i++)
        HS_TRY(role_scalars(metrics, step, &roles[i]));
    return HS_OK;
}
