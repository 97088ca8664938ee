/* SPDX-License-Identifier: MIT
 *
 * What the kernels of the update rules share: the penalty, the proximal step, the path, and what follows a rule.
 */
#ifndef HS_KERNELS_CUDA_UPDATE_UPDATE_RULE_CUH
#define HS_KERNELS_CUDA_UPDATE_UPDATE_RULE_CUH

#include <math.h>

#include "kernels/cuda/toolbox/parameter.cuh"
#include "kernels/ops/update_epilogue.h"
#include "kernels/ops/update_rule.h"

namespace HS_CUDA_NAMESPACE
{

/* HsProtection as kernels see it: absent streams are null. */
struct Protection {
    const float *importance, *anchor, *pull;
    float *path;
    float strength;
    bool proximal;

    Protection() = default;

    explicit Protection(const HsProtection &given)
        : importance(optional_data<float>(given.importance)), anchor(optional_data<float>(given.anchor)),
          pull(optional_data<float>(given.pull)), path(optional_data<float>(given.path)), strength(given.strength),
          proximal(given.proximal)
    {
    }
};

/* Whether there is anything besides plain training. */
static inline bool is_guarded(const HsProtection &given)
{
    return hs_tensor_present(&given.anchor) || hs_tensor_present(&given.path) || hs_tensor_present(&given.pull);
}

/* Whether all streams that rules share can be moved by quads. */
static inline bool update_aligned(const HsUpdateArgs &args)
{
    const HsProtection &given = args.protection;
    return quad_aligned(args.grad) && quad_aligned(args.master) && quad_aligned(args.weight) &&
           quad_aligned(given.importance) && quad_aligned(given.anchor) && quad_aligned(given.pull) &&
           quad_aligned(given.path);
}

/* What follows the rule. */
static inline HsStatus update_follow(HsContext *context, const HsUpdateArgs *update)
{
    return hs_update_epilogue_apart(context, update);
}

/* The protection's quads of one thread. */
struct Guard {
    Pack<float, QUAD> importance, anchor, pull, path;
};

template <bool whole> HS_DEVICE Guard load_guard(const Protection &protection, int64_t i, int left)
{
    Guard guard = {};
#pragma unroll
    for (int j = 0; j < QUAD; j++)
        guard.importance.value[j] = 1.0f; /* absent: 1 */
    if (protection.importance != nullptr)
        guard.importance = load_quad<whole>(protection.importance, i, left);
    if (protection.anchor != nullptr)
        guard.anchor = load_quad<whole>(protection.anchor, i, left);
    if (protection.pull != nullptr)
        guard.pull = load_quad<whole>(protection.pull, i, left);
    if (protection.path != nullptr)
        guard.path = load_quad<whole>(protection.path, i, left);
    return guard;
}

/* Gradient step: g + strength importance (p - anchor) + strength pull.  The products are fused into the sum, which is
 * therefore g to the bit where p is the anchor.  An absent pull is 0. */
HS_DEVICE float with_penalty(const Protection &protection, const Guard &guard, int j, float g, float p)
{
    if (protection.pull != nullptr)
        g = HS_RULE_PULL(fmaf, g, protection.strength, guard.pull.value[j]);
    if (protection.proximal || protection.anchor == nullptr)
        return g;
    return HS_RULE_PENALTY(fmaf, g, protection.strength * guard.importance.value[j], p, guard.anchor.value[j]);
}

/* Proximal step: p - k / (1 + k) (p - anchor), k = rate strength importance, kept below infinity, where the quotient
 * would be NaN. */
HS_DEVICE float after_proximal(const Protection &protection, const Guard &guard, int j, float p, float rate)
{
    if (!protection.proximal || protection.anchor == nullptr)
        return p;
    float k = protection.strength * guard.importance.value[j] * rate;
    k = k > 0x1p126f ? 0x1p126f : k;
    return HS_RULE_PROXIMAL(fmaf, p, k, guard.anchor.value[j]);
}

/* path -= unscaled gradient * (what is stored now - what was) */
template <bool whole>
HS_DEVICE void store_path(const Protection &protection, Guard &guard, int64_t i, int left, const float (&raw)[QUAD],
                          float unscale, const float (&stored)[QUAD], const float (&before)[QUAD])
{
    if (protection.path == nullptr)
        return;
#pragma unroll
    for (int j = 0; j < QUAD; j++)
        guard.path.value[j] = HS_RULE_PATH(fmaf, guard.path.value[j], raw[j] * unscale, stored[j], before[j]);
    store_quad<whole>(protection.path, i, left, guard.path);
}

} // namespace HS_CUDA_NAMESPACE

#endif
