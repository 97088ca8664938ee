/* SPDX-License-Identifier: MIT
 *
 * The scheduler: which thread of a cluster's blocks runs next.
 */
#include "kernels/emu/worker.h"

namespace hs_emu
{

__thread uint3 threadIdx;
__thread uint3 blockIdx;
__thread uint3 blockDim;
__thread uint3 gridDim;

namespace emulator
{

__thread Worker *worker;

/* xorshift64* (Vigna 2016): cheap, and good enough to choose. */
uint64_t random_bits(uint64_t &state)
{
    state ^= state >> 12;
    state ^= state << 25;
    state ^= state >> 27;
    return state * 0x2545F4914F6CDD1Du >> 16;
}

int lane_index()
{
    return worker->current->lane;
}

static void fiber_main();

static void set_current(Worker &self, Thread *thread)
{
    self.current = thread;
    threadIdx = thread->index;
    blockIdx = block_of(*thread).index;
}

/* A ready warp by the schedule's rule; NULL: none is. */
static Warp *choose_warp(Worker &self)
{
    const Schedule schedule = self.launch->settings.schedule;
    /* The start of the search: with RANDOM anywhere, so that the first ready one is a random one (nearly). */
    const int first = schedule == Schedule::RANDOM ? (int)(random_bits(self.random) % (unsigned)self.warp_count) : 0;
    Warp *chosen = nullptr;
    for (int i = 0; i < self.warp_count; i++) {
        Warp &warp = self.warps[(first + i) % self.warp_count];
        if (warp.ready == 0)
            continue;
        if (chosen == nullptr || schedule == Schedule::REVERSE ||
            (schedule == Schedule::PCT && warp.priority > chosen->priority))
            chosen = &warp;
        if (schedule == Schedule::FORWARD || schedule == Schedule::RANDOM)
            break;
    }
    return chosen;
}

/* A ready lane: the first one upwards from some lane, around the warp. */
static Thread *choose_lane(Worker &self, Warp &warp)
{
    unsigned first = 0;
    switch (self.launch->settings.schedule) {
    case Schedule::FORWARD:
        break;
    case Schedule::REVERSE:
        return &warp.threads[31 - __builtin_clz(warp.ready)];
    case Schedule::PCT:
        first = (unsigned)warp.first_lane;
        break;
    case Schedule::RANDOM:
        first = (unsigned)(random_bits(self.random) % LANES);
        break;
    }
    const unsigned rotated = warp.ready >> first | warp.ready << ((LANES - first) % LANES);
    return &warp.threads[((unsigned)__builtin_ctz(rotated) + first) % LANES];
}

/* When no thread can run without it: completes any one of the operations under way, as they end in no order. */
static bool perform_deferred(Worker &self)
{
    if (self.deferred.empty())
        return false;
    const size_t index = random_bits(self.random) % self.deferred.size();
    const Deferred next = self.deferred[index];
    self.deferred.erase(self.deferred.begin() + (long)index);
    next.perform();
    return true;
}

/* Stays in the warp while any of its lanes can run. */
static Thread *choose_next(Worker &self)
{
    Warp *warp = self.current->warp;
    if (warp->ready == 0 || self.reschedule || self.launch->settings.schedule == Schedule::RANDOM) {
        do
            warp = choose_warp(self);
        while (warp == nullptr && perform_deferred(self));
        self.reschedule = false;
    }
    return warp == nullptr ? nullptr : choose_lane(self, *warp);
}

/* Continue `thread`: in its own fiber, or, when it has none yet, in an idle one. */
static void resume(Worker &self, Thread *thread)
{
    if (thread->fiber == nullptr) {
        if (self.idle_fibers.empty())
            self.idle_fibers.push_back(fiber_create(fiber_main, self.fiber_count++));
        thread->fiber = self.idle_fibers.back();
        self.idle_fibers.pop_back();
    }
    set_current(self, thread);
    Fiber *from = self.running;
    if (from == thread->fiber)
        return;
    self.running = thread->fiber;
    fiber_switch(from, thread->fiber);
}

/* The kernel before has ended, since no thread can continue without that. */
static bool open_memory(Worker &self)
{
    bool waits = false;
    for (int w = 0; w < self.warp_count; w++)
        for (unsigned rest = ~(self.warps[w].ready | self.warps[w].exited); rest != 0; rest &= rest - 1)
            waits = waits || self.warps[w].threads[__builtin_ctz(rest)].waits_on == &self.closed;
    if (!self.closed || !waits)
        return false;
    self.closed = false;
    memory_show();
    wake(&self.closed);
    return true;
}

/* The thread to continue with; there are some that have not returned. */
static Thread *next_thread(Worker &self)
{
    Thread *next = choose_next(self);
    if (next == nullptr && open_memory(self))
        next = choose_next(self);
    if (next == nullptr)
        fault_deadlock();
    return next;
}

void switch_away()
{
    Worker &self = *worker;
    resume(self, next_thread(self));
}

void wait_on(const void *key, const char *kind, Site site)
{
    Thread &thread = *worker->current;
    thread.waits_for = kind;
    thread.waits_on = key;
    thread.site = site;
    thread.warp->ready &= ~(1u << thread.lane);
    switch_away();
    thread.waits_for = nullptr;
}

void wake(const void *key)
{
    Worker &self = *worker;
    for (int w = 0; w < self.warp_count; w++) {
        Warp &warp = self.warps[w];
        for (unsigned rest = ~(warp.ready | warp.exited); rest != 0; rest &= rest - 1) {
            Thread &thread = warp.threads[__builtin_ctz(rest)];
            if (thread.waits_on == key) {
                thread.waits_on = nullptr;
                warp.ready |= 1u << thread.lane;
            }
        }
    }
    self.reschedule = true; /* any of them may be first */
}

/* Steps between two losses of priority: few enough that short kernels see some, many enough that a warp can run far
 * ahead in between. */
static int steps_to_preemption(Worker &self)
{
    return 1 + (int)(random_bits(self.random) % 192);
}

void preemption_point()
{
    Worker &self = *worker;
    switch (self.launch->settings.schedule) {
    case Schedule::FORWARD:
    case Schedule::REVERSE:
        break;
    case Schedule::PCT:
        if (--self.until_preemption <= 0) {
            self.until_preemption = steps_to_preemption(self);
            self.current->warp->priority = --self.lowest_priority;
            self.reschedule = true;
            switch_away();
        }
        break;
    case Schedule::RANDOM:
        switch_away();
        break;
    }
}

/* A thread has returned: threads that wait only for it continue. */
static void finish_thread(Worker &self)
{
    Thread &thread = *self.current;
    Warp &warp = *thread.warp;
    const unsigned bit = 1u << thread.lane;
    warp.ready &= ~bit;
    warp.exited |= bit;
    thread.fiber = nullptr;
    self.live--;
    block_of(thread).live--;
    if (warp.meeting_count != 0)
        lane_exited(warp);
    barriers_check_exit(block_of(thread));
    tensor_stores_at_exit(thread);
    warpgroup_check_exit(thread);
}

/* A fiber's life: run a thread to its end; then start the next one on the same stack, or lie idle.  Kernels that never
 * wait thus run as a plain loop on one stack. */
static void fiber_main()
{
    fiber_started();
    Worker &self = *worker;
    for (;;) {
        Fiber *mine = self.running;
        (*self.launch->body)();
        finish_thread(self);
        Thread *next = self.live > 0 ? next_thread(self) : nullptr;
        if (next != nullptr && next->fiber == nullptr) {
            next->fiber = mine;
            set_current(self, next);
            continue;
        }
        self.idle_fibers.push_back(mine);
        if (next != nullptr) {
            resume(self, next);
        } else {
            self.running = self.host;
            fiber_switch(mine, self.host);
        }
    }
}

Worker *worker_of_host_thread()
{
    if (worker == nullptr) {
        worker = new Worker();
        fault_watch_thread();
        worker->host = fiber_of_host_thread();
        worker->running = worker->host;
        for (Warp &warp : worker->warps)
            for (int lane = 0; lane < LANES; lane++) {
                warp.threads[lane].lane = lane;
                warp.threads[lane].warp = &warp;
            }
    }
    return worker;
}

/* Random priorities, all different: a shuffled 0 .. warp_count - 1 (Fisher and Yates). */
static void start_schedule(Worker &self, const Launch &launch, uint3 index)
{
    self.random = launch.seed ^ ((uint64_t)index.z << 42 ^ (uint64_t)index.y << 21 ^ index.x) * 0x9E3779B97F4A7C15u;
    if (self.random == 0)
        self.random = 1;
    for (int round = 0; round < 4; round++)
        random_bits(self.random);
    for (int w = 0; w < self.warp_count; w++) {
        const int other = (int)(random_bits(self.random) % (unsigned)(w + 1));
        self.warps[w].priority = self.warps[other].priority;
        self.warps[other].priority = w;
        self.warps[w].first_lane = (int)(random_bits(self.random) % LANES);
    }
    self.lowest_priority = 0;
    self.until_preemption = steps_to_preemption(self);
    self.reschedule = true;
}

static void start_threads(Worker &self, Block &block, dim3 size)
{
    unsigned x = 0, y = 0, z = 0;
    const int slots = (block.warp_count + WARPGROUP - 1) / WARPGROUP * WARPGROUP;
    for (int w = 0; w < slots; w++) {
        Warp &warp = self.warps[block.first_warp + w];
        const int left = block.thread_count - w * LANES;
        const int lanes = left < 0 ? 0 : left < LANES ? left : (int)LANES;
        warp.block = &block;
        warp.ready = lanes == LANES ? 0xffffffffu : (1u << lanes) - 1;
        warp.exited = ~warp.ready;
        warp.meeting_count = 0;
        for (int lane = 0; lane < lanes; lane++) {
            Thread &thread = warp.threads[lane];
            thread.index = uint3{ x, y, z };
            thread.fiber = nullptr;
            thread.waits_for = nullptr;
            thread.waits_on = nullptr;
            copies_start(thread);
            if (++x == size.x) {
                x = 0;
                if (++y == size.y) {
                    y = 0;
                    z++;
                }
            }
        }
    }
}

static void start_block(Worker &self, Block &block, const Launch &launch, uint3 index, int rank)
{
    block.index = uint3{ index.x + (unsigned)rank, index.y, index.z };
    block.rank = rank;
    block.thread_count = block.live = (int)(launch.block.x * launch.block.y * launch.block.z);
    block.warp_count = (block.thread_count + LANES - 1) / LANES;
    const int slots = (block.warp_count + WARPGROUP - 1) / WARPGROUP * WARPGROUP;
    block.first_warp = rank * slots;
    block.barrier = Barrier{};
    for (NamedBarrier &named : block.named)
        named = NamedBarrier{};
    async_proxy_start(block.proxy);
    for (int g = 0; g < slots / WARPGROUP; g++)
        warpgroup_start(self.warpgroups[block.first_warp / WARPGROUP + g]);
    start_threads(self, block, launch.block);
    self.warp_count = block.first_warp + slots;
    self.live += block.live;
}

void check_open(const char *what, Site site)
{
    if (worker->closed)
        fault("%s (%s:%d) before griddepcontrol.wait: the kernel before may still run", what, site.file, site.line);
}

void run_cluster(Worker &self, const Launch &launch, uint3 index, bool closed)
{
    self.launch = &launch;
    self.closed = closed;
    blockDim = uint3{ launch.block.x, launch.block.y, launch.block.z };
    gridDim = uint3{ launch.grid.x, launch.grid.y, launch.grid.z };
    self.block_count = (int)launch.cluster;
    self.live = 0;
    self.cluster_barrier = Barrier{};
    for (int rank = 0; rank < self.block_count; rank++)
        start_block(self, self.blocks[rank], launch, index, rank);
    start_schedule(self, launch, index);
    shared_start(self);
    self.current = &self.warps[0].threads[0];
    resume(self, choose_next(self));
    if (self.closed)
        fault("the kernel was launched to begin before the one before it has ended, and no thread of a block waits for "
              "that");
    if (!self.deferred.empty())
        fault("all threads have returned, and a %s (%s:%d) into their shared memory is still under way",
              self.deferred[0].kind, self.deferred[0].site.file, self.deferred[0].site.line);
    shared_finish(self);
    self.launch = nullptr;
}

} // namespace emulator

void emulated_wait_for_kernel_before(emulator::Site site)
{
    emulator::Worker &self = *emulator::worker;
    if (self.closed)
        emulator::wait_on(&self.closed, "griddepcontrol.wait", site);
}

} // namespace hs_emu
