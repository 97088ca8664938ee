/* SPDX-License-Identifier: MIT
 *
 * The arithmetic of wgmma.
 */
#ifndef HS_KERNELS_EMU_WGMMA_H
#define HS_KERNELS_EMU_WGMMA_H

#include <vector>

#include "kernels/emu/device.h"

namespace hs_emu
{
namespace emulator
{

struct WgmmaOperands {
    WarpgroupProduct product;          /* of the first thread */
    std::vector<uint32_t> a_registers; /* [thread][4], or none */
    Site site;
};

/* sums[thread][register] = (or +=) a b, with the operands that shared memory holds now: a warp's 16 rows, the sums of
 * its threads. */
void wgmma_multiply(const WgmmaOperands &operands, int warp, float *sums);

} // namespace emulator
} // namespace hs_emu

#endif
