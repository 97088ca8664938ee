/* SPDX-License-Identifier: MIT
 *
 * An epoch begins and ends with the parts of two groups that it shares with its neighbours; their ranks, `odd` in
 * number, are taken out at a random place, so that no length is always among them:
 *
 *     ranks     0 ... | odd | ... count - 1         samples   head | group | ... | group | tail
 */
#include "runtime/data/length_groups.h"

#include "kernels/base/rng.h"

/* Groups that are mixed: a fiftieth of all, so that lengths are near and neighbours change from epoch to epoch. */
enum { SHARES = 50, LEAST_MIXED = 2 };

int64_t hs_length_groups_rank(const HsLengthGroups *groups, int64_t index)
{
    const int64_t count = groups->count, group = groups->group, within = index % count;
    const int64_t begun = (index - within) % group, missing = (group - begun) % group;
    const int64_t head = missing < count ? missing : count, whole = (count - head) / group;
    const int64_t odd = count - whole * group;
    const int64_t odd_first = (int64_t)(groups->keys[2] % (uint64_t)(whole + 1)) * group;
    if (within < head || within >= head + whole * group) {
        const int64_t number = within < head ? within : within - whole * group;
        return odd_first + hs_rng_permute(groups->keys[1], number, odd);
    }
    const int64_t place =
        hs_rng_permute(groups->keys[0], (within - head) / group, whole) * group + (within - head) % group;
    const int64_t mixed = (whole / SHARES > LEAST_MIXED ? whole / SHARES : LEAST_MIXED) * group;
    const int64_t first = place / mixed * mixed;
    const int64_t size = whole * group - first < mixed ? whole * group - first : mixed;
    const int64_t rank = first + hs_rng_permute(groups->keys[1] + (uint64_t)first, place - first, size);
    return rank < odd_first ? rank : rank + odd;
}
