/* SPDX-License-Identifier: MIT
 *
 * The state of a running block: one Worker per host thread, reused from block to block.
 *
 * Invariant: bit l of warp.ready is set when lane l can run (the running lane's too).  Who waits has cleared its bit,
 * and whoever completes what it waits for sets it again.
 */
#ifndef HS_KERNELS_CUDA_EMU_WORKER_H
#define HS_KERNELS_CUDA_EMU_WORKER_H

#include <functional>
#include <vector>

#include "kernels/cuda/emu/device.h"
#include "kernels/cuda/emu/fault.h"
#include "kernels/cuda/emu/fiber.h"
#include "kernels/cuda/emu/memory.h"
#include "kernels/cuda/emu/settings.h"

namespace hs_emu
{
namespace emulator
{

enum { LANES = 32, MAX_WARPS = 32, MAX_THREADS = LANES * MAX_WARPS };

struct Warp;

/* One 4- or 16-byte cp.async; `group` counts the thread's commits. */
struct AsyncCopy {
    char *destination;
    const char *source;
    int bytes, valid;
    long group;
};

struct Thread {
    uint3 index;
    int lane;
    Warp *warp;
    Fiber *fiber; /* NULL: not started, or finished */
    /* What it brings to a collective, and takes from it. */
    uint64_t value, result;
    int source;
    void *operands[3];
    /* Where it waits, for reports. */
    const char *waits_for;
    Site site;
    /* Asynchronous copies not yet performed, oldest first. */
    std::vector<AsyncCopy> copies;
    long copy_group;
};

/* Lanes that wait for the rest of `mask` at one collective; the last one performs it for all. */
struct Meeting {
    const char *kind;
    unsigned mask, arrived;
    Site site;
    void (*perform)(Warp &warp, const Meeting &meeting);
};
typedef void (*Perform)(Warp &warp, const Meeting &meeting);

struct Warp {
    Thread threads[LANES];
    unsigned ready, exited; /* lanes that the block does not have count as exited */
    Meeting meetings[LANES];
    int meeting_count;
    int priority;   /* PCT: of the ready warps, the one with the highest runs */
    int first_lane; /* PCT: where the search for a ready lane starts */
};

/* An array of shared memory of the running block. */
struct SharedArray {
    const void *key;
    const char *name;
    Site site;
    char *data;
    size_t bytes;
    int slot;
};

/* Pages of the shared window between two guard pages. */
struct SharedSlot {
    char *pages;
    size_t bytes;
    bool used;
};

struct Launch {
    const char *name;
    dim3 grid, block;
    size_t shared_bytes;
    const std::function<void()> *body;
    Settings settings;
    uint64_t seed; /* of this launch: the same in every run of the program */
};

/* Ranges of device memory that were found lately; valid while nothing is allocated or freed. */
struct RangeCache {
    struct {
        const char *start, *end;
    } ranges[4];
    int next;
    long generation;
};

struct Worker {
    const Launch *launch;
    int thread_count, warp_count;
    int live; /* threads that have not returned */
    Warp warps[MAX_WARPS];
    Thread *current;

    /* The scheduler's. */
    uint64_t random;
    bool reschedule; /* look at all warps at the next switch, not first at the current one */
    int lowest_priority, until_preemption;

    /* The block's barrier. */
    const char *barrier_kind;
    Site barrier_site;
    int barrier_arrived, barrier_votes, barrier_result;

    Fiber *host; /* where the block was started */
    Fiber *running;
    std::vector<Fiber *> idle_fibers; /* each ready to run another thread */
    int fiber_count;

    std::vector<SharedArray> shared;
    std::vector<SharedSlot> shared_slots;
    char *shared_window;
    size_t shared_used, shared_total; /* bytes of the window carved; bytes the block has declared */
    RangeCache device_ranges;
};

/* Of this host thread. */
extern __thread Worker *worker;
Worker *worker_of_host_thread();

/* block.cpp */
void run_block(Worker &self, const Launch &launch, uint3 index);
/* Go on with another thread; returns when this one was made ready and chosen again. */
void switch_away();
/* A place where another warp may overtake (by chance). */
void preemption_point();

/* collective.cpp.  Wait until every lane of `mask` is here; the last one performs for all. */
void meet(const char *kind, unsigned mask, Site site, Perform perform);
/* A lane of the warp has returned: meetings that waited only for it take place. */
void lane_exited(Warp &warp);

uint64_t random_bits(uint64_t &state);

/* shared.cpp */
void shared_start(Worker &self);
void shared_finish(Worker &self);
/* The host address of `bytes` of shared memory at a 32-bit address; reports what is not inside an array. */
char *shared_pointer(uint32_t address, int bytes, int alignment, const char *what);

/* copy.cpp */
void copies_start(Thread &thread);

} // namespace emulator
} // namespace hs_emu

#endif
