/* SPDX-License-Identifier: MIT
 *
 * data.group_by_length: samples of an optimizer step that are alike in length (Khomenko et al. 2016, "Accelerating
 * recurrent neural network training using sequence bucketing and multi-GPU data parallelization").
 *
 *     ranks, shortest first   0 1 2 3 | 4 5 6 7 | 8 ...    blocks of some groups, mixed within for each epoch
 *     samples of an epoch     6 4 | 1 3 | 9 8 | 5 7 | ...  groups of a step's samples, in any order
 */
#ifndef HS_RUNTIME_DATA_LENGTH_GROUPS_H
#define HS_RUNTIME_DATA_LENGTH_GROUPS_H

#include <stdint.h>

typedef struct HsLengthGroups {
    int64_t count, group; /* ranks of an epoch; samples of a step */
    uint64_t keys[3];     /* of the epoch: random numbers */
} HsLengthGroups;

/* The rank of sample `index`, 0: the shortest.  Each epoch has each rank once; groups begin at multiples of `group`,
 * whatever epoch they lie in. */
int64_t hs_length_groups_rank(const HsLengthGroups *groups, int64_t index);

#endif
