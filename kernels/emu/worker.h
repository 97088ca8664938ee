/* SPDX-License-Identifier: MIT
 *
 * The state of a running block: one Worker per host thread, reused from block to block.
 *
 * Invariant: bit l of warp.ready is set when lane l can run (the running lane's too).  A lane that waits has cleared
 * its bit, and what completes the wait sets it again.
 */
#ifndef HS_KERNELS_EMU_WORKER_H
#define HS_KERNELS_EMU_WORKER_H

#include <functional>
#include <vector>

#include "kernels/emu/device.h"
#include "kernels/emu/fault.h"
#include "kernels/emu/fiber.h"
#include "kernels/emu/memory.h"
#include "kernels/emu/settings.h"

namespace hs_emu
{
namespace emulator
{

enum {
    LANES = 32,
    MAX_THREADS = 1024, /* of a block */
    MAX_BLOCKS = 8,     /* of a cluster: what is portable */
    MAX_WARPS = 64,     /* of a cluster, each block's rounded up to whole warpgroups; a limit of the emulator alone */
    WARPGROUP = 4,      /* warps */
    NAMED_BARRIERS = 16
};

struct Warp;
struct Block;

/* One 4- or 16-byte cp.async; `group` counts the thread's commits. */
struct AsyncCopy {
    char *destination;
    const char *source;
    int bytes, valid;
    long group;
};

/* A bulk store of a tile; `group` counts the thread's commits. */
struct TensorStore {
    std::function<void()> read, write; /* of shared memory, of device memory */
    long group;
    bool was_read;
    Site site;
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
    /* Where it waits, for reports; and for what (wait_on). */
    const char *waits_for;
    const void *waits_on;
    Site site;
    /* Asynchronous copies not yet performed, oldest first. */
    std::vector<AsyncCopy> copies;
    long copy_group;
    /* Tensor stores not yet performed, oldest first. */
    std::vector<TensorStore> stores;
    long store_group;
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
    Block *block;
    Thread threads[LANES];
    unsigned ready, exited; /* lanes that the block does not have count as exited */
    Meeting meetings[LANES];
    int meeting_count;
    int priority;   /* PCT: of the ready warps, the one with the highest runs */
    int first_lane; /* PCT: where the search for a ready lane starts */
};

/* Sums that wgmma has under way: what the registers held when the first product was issued, then the sums. */
struct Flight {
    const float *key; /* the first thread's registers */
    std::vector<float *> registers;
    std::vector<float> values; /* [thread][register] */
    unsigned landed;           /* warps with their sums back in their registers */
};

/* One wgmma; each warp's rows are multiplied by themselves, when that warp waits. */
struct Product {
    std::function<void(int warp)> perform;
    const float *key;
};

/* Four neighbouring warps, and what they do together.  Products and closed groups are numbered from the block's start.
 */
struct Warpgroup {
    const char *kind; /* of the meeting in progress */
    Site site;
    int arrived;
    bool fenced;   /* wgmma.fence since the registers were last the program's */
    int registers; /* setmaxnreg; 0: not set */
    std::vector<Flight> flights;
    std::vector<Product> products; /* from number `first_product` on: not yet performed by all warps */
    size_t first_product;
    std::vector<size_t> groups;  /* for each closed group: products issued by then */
    size_t waited[WARPGROUP];    /* closed groups that each warp has waited for */
    size_t performed[WARPGROUP]; /* products, by each warp */
};

/* __syncthreads and its kin, or a cluster's barrier. */
struct Barrier {
    const char *kind;
    Site site;
    int arrived, votes, result;
};

/* bar.sync with a number. */
struct NamedBarrier {
    int expected, arrived; /* threads; expected 0: none has arrived yet */
    Site site;
};

/* What is known of ordinary writes to shared memory that tensor stores read (async_proxy.cpp). */
struct AsyncProxy {
    struct Fence {
        const Thread *thread;
        long number; /* of the block's fences */
    };
    struct Tile {
        uint32_t address;
        std::vector<char> bytes; /* as the last store from here found them */
        long fences;             /* of the block until then */
    };
    long fences;
    Fence last, last_of_others; /* of threads other than the last one */
    std::vector<Tile> tiles;
};

/* A block of the running cluster; most clusters have one. */
struct Block {
    uint3 index;
    int rank; /* in the cluster */
    int first_warp, warp_count, thread_count;
    int live; /* threads that have not returned */
    Barrier barrier;
    NamedBarrier named[NAMED_BARRIERS];
    AsyncProxy proxy;
    std::vector<std::function<void()>> unwritten; /* tensor stores of threads that have returned */
};

/* What happens by itself, some time after it was asked for: a tensor load. */
struct Deferred {
    std::function<void()> perform;
    const char *kind;
    Site site;
};

/* An array of shared memory of a running block. */
struct SharedArray {
    int block; /* rank */
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
    unsigned cluster;  /* blocks, neighbours in x */
    bool begins_early; /* before the kernel before it has ended */
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
    int block_count, warp_count; /* warps of all blocks, gaps between them included */
    int live;                    /* threads that have not returned */
    bool closed;                 /* device memory: the kernel before this one has not ended yet */
    Block blocks[MAX_BLOCKS];
    Warp warps[MAX_WARPS];
    Warpgroup warpgroups[MAX_WARPS / WARPGROUP];
    Barrier cluster_barrier;
    std::vector<Deferred> deferred;
    Thread *current;

    /* The scheduler's. */
    uint64_t random;
    bool reschedule; /* look at all warps at the next switch, not first at the current one */
    int lowest_priority, until_preemption;

    Fiber *host; /* where the blocks were started */
    Fiber *running;
    std::vector<Fiber *> idle_fibers; /* each ready to run another thread */
    int fiber_count;

    std::vector<SharedArray> shared;
    std::vector<SharedSlot> shared_slots;
    char *shared_window;
    size_t shared_used; /* bytes of the window carved */
    RangeCache device_ranges;
};

/* Of this host thread. */
extern __thread Worker *worker;
Worker *worker_of_host_thread();

/* block.cpp */
/* The blocks of the cluster that begins with block `index`.  closed: they begin while device memory is hidden, and it
 * is shown when none of their threads can continue until the kernel before ends. */
void run_cluster(Worker &self, const Launch &launch, uint3 index, bool closed);
/* Reports what asks for device memory while it is closed. */
void check_open(const char *what, Site site);
/* Continue with another thread; returns when this one was made ready and chosen again. */
void switch_away();
/* Wait until the threads that wait on `key` are woken. */
void wait_on(const void *key, const char *kind, Site site);
void wake(const void *key);
static inline Block &block_of(const Thread &thread)
{
    return *thread.warp->block;
}
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
/* The host address of `bytes` of the running block's shared memory at a 32-bit address, or of any block's of the
 * cluster; reports what is not inside an array. */
char *shared_pointer(uint32_t address, int bytes, int alignment, const char *what);
char *cluster_pointer(uint32_t address, int bytes, int alignment, const char *what);
/* The address in block `rank` of what lies at `address` in the block `from`. */
uint32_t shared_address_in(uint32_t address, int from, int rank, const char *what);

/* copy.cpp */
void copies_start(Thread &thread);

/* barrier.cpp: a thread of the block has returned. */
void barriers_check_exit(const Block &block);

/* mbarrier.cpp: bytes have arrived. */
void mbarrier_complete(uint32_t address, int64_t bytes, const char *what);

/* tensor_copy.cpp */
/* All of them have read shared memory; they are written at the latest when the block ends. */
void tensor_stores_at_exit(Thread &thread);

/* async_proxy.cpp */
void async_proxy_start(AsyncProxy &proxy);
/* `count` bytes of shared memory at `address`, which the thread wants stored. */
void async_proxy_check_store(const Thread &thread, uint32_t address, const char *bytes, int count, Site site);

/* warpgroup.cpp */
void warpgroup_start(Warpgroup &group);
void warpgroup_check_exit(const Thread &thread);
/* Whether products that add to these registers of the current thread are under way. */
bool sums_under_way(const float *registers);

} // namespace emulator
} // namespace hs_emu

#endif
