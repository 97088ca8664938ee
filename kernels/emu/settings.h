/* SPDX-License-Identifier: MIT
 *
 * How the emulator runs: which of the many legal orders of events a GPU could take.  A correct program gives the same
 * results in all of them; a race does not.
 *
 * Environment variable        field          values (the first is the default)
 *   HALFSTEP_EMU_SCHEDULE     schedule       pct | forward | reverse | random
 *   HALFSTEP_EMU_SEED         seed           1, 2, ...: other choices of pct and random, and another order of streams
 *   HALFSTEP_EMU_COPIES       late_copies    late | early
 *   HALFSTEP_EMU_STREAMS      late_streams   late | early
 *   HALFSTEP_EMU_GUARD        guard          on | off: with late streams, only kernels and copies can access
 *                                            device memory: not the host
 *   HALFSTEP_EMU_APPROXIMATE  approximate    exact | above | below | mixed: how ex2.approx and rcp.approx are off, by all
 *                                            that is documented
 *   HALFSTEP_EMU_SUMS         truncated_sums exact | truncate: tensor cores add each product in f32, or as truncated.h says:
 *                                            FP8 operands' with 14 significant bits
 *   HALFSTEP_EMU_THREADS      threads        host threads that blocks are spread over; results never depend on it
 *   HALFSTEP_EMU_SHARED       shared_limit   shared memory of a block in KiB, and so which GPU it is:
 *                                            227 (sm_90), 163 (sm_80), 99 (sm_86, sm_89)
 */
#ifndef HS_KERNELS_EMU_SETTINGS_H
#define HS_KERNELS_EMU_SETTINGS_H

#include <stddef.h>
#include <stdint.h>

namespace hs_emu
{
namespace emulator
{

/* Which thread runs next when one has to wait.  In all of them a thread runs on until it waits. */
enum class Schedule {
    /* Burckhardt et al. 2010, "A randomized scheduler with probabilistic guarantees of finding bugs": warps have random
     * priorities and the highest runs as far as it can, now and then falling to the lowest.  One warp runs far ahead of
     * the others, which is what shows a missing barrier: fair orders keep warps side by side and hide it. */
    PCT,
    FORWARD, /* warps and lanes upwards */
    REVERSE, /* and downwards */
    RANDOM   /* another warp and lane every time */
};

/* Errors of approximate instructions: none, always up, always down, or up and down by the operand's bits. */
enum class Approximate { EXACT, ABOVE, BELOW, MIXED };

struct Settings {
    Schedule schedule = Schedule::PCT;
    uint64_t seed = 1;
    /* cp.async: its destination is spoilt when it is issued, and written when its thread waits for it, from what the
     * source holds then.  Tensor loads likewise, when no thread can continue without one of them; tensor stores and
     * wgmma read shared memory when they are waited for, and the registers of wgmma's sums are spoilt until then.
     * Early: all of it at once. */
    bool late_copies = true;
    /* Streams do nothing until something waits for them.  Early: everything is done when it is issued, as
     * far as it needs no other process. */
    bool late_streams = true;
    bool guard = true;
    Approximate approximate = Approximate::EXACT;
    bool truncated_sums = false;
    int threads = 1;
    size_t shared_limit = 227 * 1024;
};

/* Read from the environment at the first call; tests may change it between launches. */
Settings &settings();

} // namespace emulator
} // namespace hs_emu

#endif
