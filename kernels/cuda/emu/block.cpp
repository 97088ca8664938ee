/* SPDX-License-Identifier: MIT
 *
 * The scheduler: which thread of a block runs next, and the block's barriers.
 */
#include "kernels/cuda/emu/worker.h"

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

/* Stays in the warp while any of its lanes can run. */
static Thread *choose_next(Worker &self)
{
    Warp *warp = self.current->warp;
    if (warp->ready == 0 || self.reschedule || self.launch->settings.schedule == Schedule::RANDOM) {
        warp = choose_warp(self);
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

void switch_away()
{
    Worker &self = *worker;
    Thread *next = choose_next(self);
    if (next == nullptr)
        fault_deadlock();
    resume(self, next);
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

/* A thread has returned: whoever waits only for it goes on. */
static void finish_thread(Worker &self)
{
    Thread &thread = *self.current;
    Warp &warp = *thread.warp;
    const unsigned bit = 1u << thread.lane;
    warp.ready &= ~bit;
    warp.exited |= bit;
    thread.fiber = nullptr;
    self.live--;
    if (warp.meeting_count != 0)
        lane_exited(warp);
    if (self.barrier_arrived != 0)
        fault("this thread returned while others wait at %s (%s:%d)", self.barrier_kind, self.barrier_site.file,
              self.barrier_site.line);
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
        Thread *next = self.live > 0 ? choose_next(self) : nullptr;
        if (next != nullptr && next->fiber == nullptr) {
            next->fiber = mine;
            set_current(self, next);
            continue;
        }
        self.idle_fibers.push_back(mine);
        if (next != nullptr) {
            resume(self, next);
        } else {
            if (self.live > 0)
                fault_deadlock();
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

static void start_threads(Worker &self, dim3 block)
{
    unsigned x = 0, y = 0, z = 0;
    for (int w = 0; w < self.warp_count; w++) {
        Warp &warp = self.warps[w];
        const int lanes = self.thread_count - w * LANES < LANES ? self.thread_count - w * LANES : (int)LANES;
        warp.ready = lanes == LANES ? 0xffffffffu : (1u << lanes) - 1;
        warp.exited = ~warp.ready;
        warp.meeting_count = 0;
        for (int lane = 0; lane < lanes; lane++) {
            Thread &thread = warp.threads[lane];
            thread.index = uint3{ x, y, z };
            thread.fiber = nullptr;
            thread.waits_for = nullptr;
            copies_start(thread);
            if (++x == block.x) {
                x = 0;
                if (++y == block.y) {
                    y = 0;
                    z++;
                }
            }
        }
    }
}

void run_block(Worker &self, const Launch &launch, uint3 index)
{
    self.launch = &launch;
    blockIdx = index;
    blockDim = uint3{ launch.block.x, launch.block.y, launch.block.z };
    gridDim = uint3{ launch.grid.x, launch.grid.y, launch.grid.z };
    self.thread_count = self.live = (int)(launch.block.x * launch.block.y * launch.block.z);
    self.warp_count = (self.thread_count + LANES - 1) / LANES;
    self.barrier_arrived = self.barrier_votes = 0;
    start_threads(self, launch.block);
    start_schedule(self, launch, index);
    shared_start(self);
    self.current = &self.warps[0].threads[0];
    resume(self, choose_next(self));
    shared_finish(self);
    self.launch = nullptr;
}

/* All threads of the block must arrive, at the same place of the source: CUDA demands that its condition be the same
 * for all, and a thread that has returned can arrive no more. */
static int barrier(const char *kind, int predicate, Site site)
{
    Worker &self = *worker;
    Thread &thread = *self.current;
    if (self.live != self.thread_count)
        fault("waits at %s (%s:%d), where threads of the block that have returned never arrive", kind, site.file,
              site.line);
    if (self.barrier_arrived == 0) {
        self.barrier_kind = kind;
        self.barrier_site = site;
    } else if (self.barrier_kind != kind || self.barrier_site.line != site.line) {
        fault("divergent barriers: this thread is at %s (%s:%d), others wait at %s (%s:%d)", kind, site.file, site.line,
              self.barrier_kind, self.barrier_site.file, self.barrier_site.line);
    }
    self.barrier_votes += predicate != 0;
    thread.waits_for = kind;
    thread.site = site;
    if (++self.barrier_arrived == self.thread_count) {
        self.barrier_result = self.barrier_votes;
        self.barrier_arrived = self.barrier_votes = 0;
        for (int w = 0; w < self.warp_count; w++)
            self.warps[w].ready = ~self.warps[w].exited;
        /* Everybody may go on: not necessarily the last to arrive. */
        self.reschedule = true;
        switch_away();
    } else {
        thread.warp->ready &= ~(1u << thread.lane);
        switch_away();
    }
    thread.waits_for = nullptr;
    return self.barrier_result;
}

} // namespace emulator

void __syncthreads(emulator::Site site)
{
    emulator::barrier("__syncthreads", 0, site);
}
int __syncthreads_or(int predicate, emulator::Site site)
{
    return emulator::barrier("__syncthreads_or", predicate, site) != 0;
}
int __syncthreads_and(int predicate, emulator::Site site)
{
    return emulator::barrier("__syncthreads_and", predicate, site) == emulator::worker->thread_count;
}
int __syncthreads_count(int predicate, emulator::Site site)
{
    return emulator::barrier("__syncthreads_count", predicate, site);
}

} // namespace hs_emu
