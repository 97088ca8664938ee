/* SPDX-License-Identifier: MIT
 *
 * Domination by pairs: a comparison has some tens of points, so that nothing faster is needed.
 */
#include "runtime/study/compare_front.h"

#include <math.h>

static bool takes_part(const HsFrontPoint *point)
{
    return !point->reference && isfinite(point->learned) && isfinite(point->forgotten);
}

/* By both losses alone: not worse in either, better in one. */
static bool is_better(const HsFrontPoint *a, const HsFrontPoint *b)
{
    return takes_part(a) && takes_part(b) && a->learned <= b->learned && a->forgotten <= b->forgotten &&
           (a->learned < b->learned || a->forgotten < b->forgotten);
}

static bool is_equal(const HsFrontPoint *a, const HsFrontPoint *b)
{
    return takes_part(a) && takes_part(b) && a->learned == b->learned && a->forgotten == b->forgotten;
}

bool hs_front_dominates(const HsFrontPoint *a, const HsFrontPoint *b)
{
    if (a->keeps_text && !b->keeps_text)
        return false;
    return is_better(a, b) || (is_equal(a, b) && !a->keeps_text && b->keeps_text);
}

/* Of two that are better than a third the one with the smaller sum; of equal sums the one that dominates the other,
 * else the earlier. */
static int choose(const HsFrontPoint *points, int chosen, int other)
{
    if (chosen < 0)
        return other;
    const HsFrontPoint *a = &points[chosen], *b = &points[other];
    const double sum = a->learned + a->forgotten, other_sum = b->learned + b->forgotten;
    return other_sum < sum || (other_sum == sum && hs_front_dominates(b, a)) ? other : chosen;
}

void hs_front_find(HsFrontPoint *points, int count)
{
    for (int i = 0; i < count; i++) {
        HsFrontPoint *point = &points[i];
        int better = -1;
        point->dominated_by = -1;
        for (int other = 0; other < count; other++) {
            if (hs_front_dominates(&points[other], point))
                point->dominated_by = choose(points, point->dominated_by, other);
            if (is_better(&points[other], point))
                better = choose(points, better, other);
        }
        const bool free = takes_part(point) && point->dominated_by < 0;
        point->on_front = free && better < 0;
        point->on_front_without_text = free && !point->keeps_text;
        point->with_text = free ? better : -1;
    }
}

int hs_front_order(const HsFrontPoint *points, int count, bool without_text, int *order)
{
    int found = 0;
    for (int i = 0; i < count; i++) {
        if (!(without_text ? points[i].on_front_without_text : points[i].on_front))
            continue;
        int at = found++;
        for (; at > 0 && points[order[at - 1]].forgotten > points[i].forgotten; at--)
            order[at] = order[at - 1];
        order[at] = i;
    }
    return found;
}
