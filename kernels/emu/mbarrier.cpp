/* SPDX-License-Identifier: MIT
 *
 * mbarrier (PTX ISA, "Parallel Synchronization and Communication Instructions: mbarrier"): a barrier in eight bytes of
 * shared memory.  A phase is over when all of its arrivals have come and all bytes that were expected have arrived;
 * then the next one begins, with as many arrivals again.
 */
#include "kernels/emu/worker.h"

namespace hs_emu
{
namespace emulator
{

enum { MARK = 1, MOST_COUNT = (1 << 20) - 1 };

struct Mbarrier {
    uint64_t phase : 1;
    uint64_t count : 20;   /* arrivals of a phase */
    uint64_t pending : 20; /* of this one */
    int64_t bytes : 21;    /* expected, less those that have come */
    uint64_t mark : 2;     /* MARK; what was never written has all ones */
};
static_assert(sizeof(Mbarrier) == 8, "an mbarrier has eight bytes");

static Mbarrier *mbarrier_at(char *pointer, const char *what)
{
    Mbarrier *barrier = reinterpret_cast<Mbarrier *>(pointer);
    if (barrier->mark != MARK)
        fault("%s: no mbarrier is here; it was not initialised, or something wrote over it", what);
    return barrier;
}

static void complete_if_due(Mbarrier *barrier)
{
    if (barrier->pending != 0 || barrier->bytes != 0)
        return;
    barrier->phase ^= 1;
    barrier->pending = barrier->count;
    wake(barrier);
}

static void arrive(Mbarrier *barrier, int bytes, const char *what, Site site)
{
    if (barrier->pending == 0)
        fault("%s (%s:%d): more arrivals in a phase than the %d it was initialised for", what, site.file, site.line,
              (int)barrier->count);
    if (barrier->bytes + bytes > MOST_COUNT)
        fault("%s (%s:%d): more than %d bytes are expected in a phase", what, site.file, site.line, MOST_COUNT);
    barrier->bytes += bytes;
    barrier->pending--;
    complete_if_due(barrier);
    preemption_point();
}

void mbarrier_complete(uint32_t address, int64_t bytes, const char *what)
{
    Mbarrier *barrier = mbarrier_at(cluster_pointer(address, 8, 8, what), what);
    if (barrier->bytes - bytes < -MOST_COUNT)
        fault("%s: more bytes have arrived in a phase than were expected", what);
    barrier->bytes -= bytes;
    complete_if_due(barrier);
}

} // namespace emulator

using namespace emulator;

void emulated_mbarrier_init(uint32_t address, int count, Site site)
{
    if (count < 1 || count > MOST_COUNT)
        fault("mbarrier.init (%s:%d): %d arrivals", site.file, site.line, count);
    Mbarrier *barrier = reinterpret_cast<Mbarrier *>(shared_pointer(address, 8, 8, "mbarrier.init"));
    barrier->phase = 0;
    barrier->count = barrier->pending = (uint64_t)count & MOST_COUNT;
    barrier->bytes = 0;
    barrier->mark = MARK;
}

void emulated_mbarrier_arrive(uint32_t address, int bytes, Site site)
{
    const char *what = bytes > 0 ? "mbarrier.arrive.expect_tx" : "mbarrier.arrive";
    arrive(mbarrier_at(shared_pointer(address, 8, 8, what), what), bytes, what, site);
}

void emulated_mbarrier_arrive_remote(uint32_t address, Site site)
{
    const char *what = "mbarrier.arrive.shared::cluster";
    arrive(mbarrier_at(cluster_pointer(address, 8, 8, what), what), 0, what, site);
}

/* Until the phase of this parity is over. */
void emulated_mbarrier_wait(uint32_t address, unsigned parity, Site site)
{
    const char *what = "mbarrier.try_wait";
    const Mbarrier *barrier = mbarrier_at(shared_pointer(address, 8, 8, what), what);
    if (parity > 1)
        fault("%s (%s:%d): a parity of %u", what, site.file, site.line, parity);
    while (barrier->phase == parity)
        wait_on(barrier, what, site);
    preemption_point();
}

} // namespace hs_emu
