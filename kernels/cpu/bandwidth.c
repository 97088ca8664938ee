/* SPDX-License-Identifier: MIT
 *
 * The memory's own peak, against which operations on whole tensors are measured: the best of four loops over buffers
 * that no cache holds, after McCalpin 1995.
 *
 *     read     s += x + y          8 bytes a pair of elements
 *     negate   x = -x, y = -y     16: written where they were read
 *     copy     y = x               8: stores go past the caches, else each line of y would be read before it is written
 *     update   y = y/2 + x/4      12: what an optimizer does
 *
 * Which is fastest depends on the machine.  Where reading and writing have separate paths, negate is, and what only
 * reads cannot pass about half of it.  Bytes are those that really cross the memory's bus.  Takes about 0.3 seconds.
 */
#include <sys/mman.h>

#if defined(__x86_64__)
#include <emmintrin.h>
#endif

#include "kernels/base/clock.h"
#include "kernels/cpu/cpu.h"

/* 256 MiB in two buffers: several times the last-level cache of most machines.  A chunk is a thread's turn. */
enum { MOST_CHUNKS = 512, CHUNK = 1 << 16, LEAST_REPEATS = 5 };

/* Two wide sums, each in one register or several, hide the latency of an addition. */
typedef float Lanes __attribute__((vector_size(64)));

static void read_chunk(float *restrict x, float *restrict y)
{
    enum { WIDTH = sizeof(Lanes) / sizeof(float) };
    const Lanes *first = (const Lanes *)x, *second = (const Lanes *)y;
    Lanes sum = { 0 }, other = { 0 };
    for (int i = 0; i < CHUNK / WIDTH; i++) {
        sum += first[i];
        other += second[i];
    }
    *(Lanes *)y = sum + other; /* or nothing would be read */
}

static void negate_chunk(float *restrict x, float *restrict y)
{
#pragma omp simd
    for (int i = 0; i < CHUNK; i++) {
        x[i] = -x[i];
        y[i] = -y[i];
    }
}

static void copy_chunk(float *restrict x, float *restrict y)
{
#if defined(__x86_64__)
    for (int i = 0; i < CHUNK; i += 4)
        _mm_stream_ps(y + i, _mm_load_ps(x + i));
    _mm_sfence();
#else
#pragma omp simd
    for (int i = 0; i < CHUNK; i++)
        y[i] = x[i];
#endif
}

static void update_chunk(float *restrict x, float *restrict y)
{
#pragma omp simd
    for (int i = 0; i < CHUNK; i++)
        y[i] = 0.5f * y[i] + 0.25f * x[i];
}

static const struct {
    void (*run)(float *restrict x, float *restrict y);
    double bytes; /* a pair of elements */
} loops[] = {
    { read_chunk, 8 },
    { negate_chunk, 16 },
#if defined(__x86_64__)
    { copy_chunk, 8 },
#else
    { copy_chunk, 12 }, /* the line of y is read first */
#endif
    { update_chunk, 12 },
};
enum { LOOP_COUNT = sizeof loops / sizeof *loops };

static double seconds_of(int loop, int threads, int64_t chunks, float *x, float *y)
{
    const double start = hs_clock_s();
#pragma omp parallel for schedule(static) num_threads(threads)
    for (int64_t chunk = 0; chunk < chunks; chunk++)
        loops[loop].run(x + chunk * CHUNK, y + chunk * CHUNK);
    return hs_clock_s() - start;
}

/* Of each buffer; every thread has a turn. */
static int64_t count_chunks(size_t most_bytes, int threads)
{
    const size_t wanted = most_bytes / (2 * CHUNK * sizeof(float)), least = (size_t)threads;
    return (int64_t)(wanted > MOST_CHUNKS ? MOST_CHUNKS : wanted < least ? least : wanted);
}

double hs_cpu_peak_bytes(const HsContext *context, size_t most_bytes)
{
    const int threads = hs_cpu_thread_slots(context);
    const int64_t chunks = count_chunks(most_bytes, threads), floats = chunks * CHUNK;
    const size_t bytes = 2 * (size_t)floats * sizeof(float);
    /* Mapped and given back here: the device's account is of what training holds. */
    float *x = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (x == MAP_FAILED)
        return 0;
    (void)madvise(x, bytes, MADV_HUGEPAGE);
    float *y = x + floats;
    /* Pages that were never written are all the same page of zeros, which a cache holds. */
#pragma omp parallel for schedule(static) num_threads(threads)
    for (int64_t i = 0; i < 2 * floats; i++)
        x[i] = 1.0f;
    double best = 0, total = 0;
    for (int repeat = 0; repeat < LEAST_REPEATS || total < 0.25; repeat++)
        for (int loop = 0; loop < LOOP_COUNT; loop++) {
            const double seconds = seconds_of(loop, threads, chunks, x, y);
            const double rate = loops[loop].bytes * (double)floats / seconds;
            total += seconds;
            best = rate > best ? rate : best;
        }
    munmap(x, bytes);
    return best;
}
