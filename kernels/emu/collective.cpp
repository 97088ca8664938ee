/* SPDX-License-Identifier: MIT
 *
 * What the lanes of a warp do together: shuffles, votes, __syncwarp.
 *
 * Each lane leaves its operands in its Thread and waits; the last of the mask to arrive computes the results of all and
 * wakes them.  Groups of lanes with different masks may meet at the same time.
 */
#include <sched.h>

#include "kernels/emu/worker.h"

namespace hs_emu
{
namespace emulator
{

/* Lanes that have returned, or that the block never had, are waited for no more. */
static bool is_complete(const Warp &warp, const Meeting &meeting)
{
    return (meeting.arrived | (meeting.mask & warp.exited)) == meeting.mask;
}

static void complete(Warp &warp, int index)
{
    const Meeting meeting = warp.meetings[index];
    warp.meetings[index] = warp.meetings[--warp.meeting_count];
    warp.ready |= meeting.arrived;
    warp.first_lane = (int)(random_bits(worker->random) % LANES);
    meeting.perform(warp, meeting);
}

void meet(const char *kind, unsigned mask, Site site, Perform perform)
{
    Thread &thread = *worker->current;
    Warp &warp = *thread.warp;
    const unsigned bit = 1u << thread.lane;
    if ((mask & bit) == 0)
        fault("%s (%s:%d): mask %08x does not name the calling lane %d", kind, site.file, site.line, mask, thread.lane);
    int index = 0;
    while (index < warp.meeting_count && warp.meetings[index].mask != mask)
        index++;
    Meeting &meeting = warp.meetings[index];
    if (index == warp.meeting_count) {
        meeting = Meeting{ kind, mask, 0, site, perform };
        warp.meeting_count++;
    } else if (meeting.kind != kind || !(meeting.site == site)) {
        fault("divergent collectives: lane %d is at %s (%s:%d, in %s), other lanes of mask %08x wait at %s (%s:%d, in "
              "%s)",
              thread.lane, kind, site.file, site.line, site.function, mask, meeting.kind, meeting.site.file,
              meeting.site.line, meeting.site.function);
    }
    thread.waits_for = kind;
    thread.site = site;
    meeting.arrived |= bit;
    if (is_complete(warp, meeting)) {
        complete(warp, index);
        preemption_point();
    } else {
        warp.ready &= ~bit;
        switch_away();
    }
    thread.waits_for = nullptr;
}

void lane_exited(Warp &warp)
{
    for (int index = warp.meeting_count - 1; index >= 0; index--)
        if (is_complete(warp, warp.meetings[index]))
            complete(warp, index);
}

template <typename Body> static void for_each_lane(Warp &warp, unsigned lanes, Body body)
{
    for (unsigned rest = lanes; rest != 0; rest &= rest - 1)
        body(warp.threads[__builtin_ctz(rest)]);
}

static void exchange_all(Warp &warp, const Meeting &meeting)
{
    for_each_lane(warp, meeting.arrived, [&](Thread &thread) {
        if ((meeting.arrived >> thread.source & 1) == 0)
            fault("%s (%s:%d): lane %d reads lane %d, which does not take part", meeting.kind, meeting.site.file,
                  meeting.site.line, thread.lane, thread.source);
        thread.result = warp.threads[thread.source].value;
    });
}

uint64_t exchange(unsigned mask, uint64_t value, int source, Site site)
{
    Thread &thread = *worker->current;
    thread.value = value;
    thread.source = source < 0 ? thread.lane : source;
    meet("__shfl_sync", mask, site, exchange_all);
    return thread.result;
}

static void vote_all(Warp &warp, const Meeting &meeting)
{
    uint64_t votes = 0;
    for_each_lane(warp, meeting.arrived, [&](Thread &thread) { votes |= thread.value << thread.lane; });
    /* In the upper half: the lanes that took part. */
    for_each_lane(warp, meeting.arrived,
                  [&](Thread &thread) { thread.result = votes | (uint64_t)meeting.arrived << 32; });
}

static uint64_t vote(const char *kind, unsigned mask, int predicate, Site site)
{
    Thread &thread = *worker->current;
    thread.value = predicate != 0;
    meet(kind, mask, site, vote_all);
    return thread.result;
}

void atomic_performed()
{
    preemption_point();
}

} // namespace emulator

unsigned __ballot_sync(unsigned mask, int predicate, emulator::Site site)
{
    return (unsigned)emulator::vote("__ballot_sync", mask, predicate, site);
}
int __any_sync(unsigned mask, int predicate, emulator::Site site)
{
    return (unsigned)emulator::vote("__any_sync", mask, predicate, site) != 0;
}
int __all_sync(unsigned mask, int predicate, emulator::Site site)
{
    const uint64_t votes = emulator::vote("__all_sync", mask, predicate, site);
    return (unsigned)votes == (unsigned)(votes >> 32);
}

unsigned emulated_load_acquire(const unsigned *address)
{
    const unsigned value = __atomic_load_n(address, __ATOMIC_ACQUIRE);
    emulator::preemption_point();
    sched_yield();
    return value;
}
void emulated_store_release(unsigned *address, unsigned value)
{
    __atomic_store_n(address, value, __ATOMIC_RELEASE);
    emulator::preemption_point();
}

void __syncwarp(unsigned mask, emulator::Site site)
{
    emulator::meet("__syncwarp", mask, site, [](emulator::Warp &, const emulator::Meeting &) {});
}

} // namespace hs_emu
