/* SPDX-License-Identifier: MIT
 *
 * The cards.
 */
#include "kernels/base/cards.h"

/* At boost clocks, without sparsity.  GeForce cards sum 16-bit products in f32 at half the rate of 16-bit sums; what
 * trains needs f32 sums. */
const HsCard hs_cards[] = {
    { "RTX 4060", 8, 15.1, 15.1, 30.2, 272, 16, 89, 24, 2.46 },
    { "RTX 3060", 12, 12.7, 12.7, 25.5, 360, 32, 86, 28, 1.777 },
    { "RTX 4060 Ti", 16, 22.1, 22.1, 44.1, 288, 16, 89, 34, 2.535 },
    { "RTX 5060 Ti", 16, 23.7, 23.7, 47.4, 448, 32, 120, 36, 2.572 },
    { "RTX 3090", 24, 35.6, 35.6, 71.2, 936, 32, 86, 82, 1.695 },
    { "RTX 4090", 24, 82.6, 82.6, 165.2, 1008, 32, 89, 128, 2.52 },
    { "A100 40GB", 40, 19.5, 156, 312, 1555, 300, 80, 108, 1.41 },
    { "A100 80GB", 80, 19.5, 156, 312, 2039, 300, 80, 108, 1.41 },
    { "H100 SXM", 80, 66.9, 494.7, 989.4, 3350, 450, 90, 132, 1.755 },
    { "H200 SXM", 141, 66.9, 494.7, 989.4, 4800, 450, 90, 132, 1.755 },
};
const int hs_card_count = sizeof hs_cards / sizeof *hs_cards;
