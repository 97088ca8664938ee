/* SPDX-License-Identifier: MIT
 *
 * Mapping the segment, meeting in it and ending it, see comm_segment.h.
 */
#include "kernels/base/comm_segment.h"

#include <errno.h>
#include <linux/futex.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "kernels/base/clock.h"

static const uint64_t segment_magic = 0x48534d454d303031u + sizeof(HsSegmentMember) * 0x10000u + sizeof(HsCommSegment);

const char *const hs_segment_operations[] = {
    "", "all_reduce", "reduce_scatter", "all_gather", "broadcast", "barrier"
};

uint32_t hs_segment_operation(const char *name)
{
    for (uint32_t i = 1; i < sizeof hs_segment_operations / sizeof *hs_segment_operations; i++)
        if (strcmp(name, hs_segment_operations[i]) == 0)
            return i;
    return 0;
}

/* Of the windows, from the segment's start. */
static size_t windows_offset(int size)
{
    const size_t page = 4096, head = sizeof(HsCommSegment) + (size_t)size * sizeof(HsSegmentMember);
    return (head + page - 1) / page * page;
}

HsStatus hs_comm_shared_make(int size, const HsCommSharedOptions *options, int *descriptor)
{
    *descriptor = -1;
    const size_t window = options->window_bytes > 0 ? options->window_bytes : (size_t)512 << 10;
    if (size < 1 || size > HS_SEGMENT_RANKS_MOST || window % 4096 != 0)
        return hs_fail(HS_EINVAL, "a segment of %d ranks with windows of %zu bytes: 1 to %d, whole pages", size, window,
                       HS_SEGMENT_RANKS_MOST);
    const size_t bytes = windows_offset(size) + (size_t)size * HS_COMM_SHARED_TURNS * window;
    const int fd = memfd_create("halfstep", MFD_CLOEXEC);
    if (fd < 0)
        return hs_fail(HS_EIO, "no shared memory: %s", strerror(errno));
    HsCommSegment *segment = MAP_FAILED;
    if (ftruncate(fd, (off_t)bytes) == 0)
        segment = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (segment == MAP_FAILED) {
        const int error = errno;
        close(fd);
        return hs_fail(HS_ENOMEM, "no shared memory of %zu bytes: %s", bytes, strerror(error));
    }
    /* All else is zero. */
    segment->bytes = bytes;
    segment->size = (uint32_t)size;
    segment->window_bytes = (uint32_t)window;
    for (int r = 0; r < size; r++)
        segment->members[r].step = -1;
    segment->magic = segment_magic;
    munmap(segment, bytes);
    *descriptor = fd;
    return HS_OK;
}

HsStatus hs_segment_map(int descriptor, HsCommSegment **mapped)
{
    struct stat status;
    *mapped = NULL;
    if (fstat(descriptor, &status) != 0)
        return hs_fail(HS_EFORMAT, "descriptor %d: no shared memory: %s", descriptor, strerror(errno));
    const size_t bytes = (size_t)status.st_size;
    if (bytes < sizeof(HsCommSegment))
        return hs_fail(HS_EFORMAT, "descriptor %d holds no ranks' shared memory", descriptor);
    HsCommSegment *segment = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
    if (segment == MAP_FAILED)
        return hs_fail(HS_ENOMEM, "shared memory of %zu bytes cannot be mapped: %s", bytes, strerror(errno));
    if (segment->magic != segment_magic || segment->bytes != bytes) {
        munmap(segment, bytes);
        return hs_fail(HS_EFORMAT,
                       "descriptor %d holds no ranks' shared memory, or another build's: all ranks have to "
                       "run the same program",
                       descriptor);
    }
    *mapped = segment;
    return HS_OK;
}

void hs_segment_unmap(HsCommSegment *segment)
{
    if (segment)
        munmap(segment, segment->bytes);
}

unsigned char *hs_segment_window(const HsCommSegment *segment, int rank, uint64_t turn)
{
    const size_t index = (size_t)rank * HS_COMM_SHARED_TURNS + turn % HS_COMM_SHARED_TURNS;
    return (unsigned char *)segment + windows_offset((int)segment->size) + index * segment->window_bytes;
}

void hs_futex_wait(_Atomic uint32_t *word, uint32_t value, double seconds)
{
    const struct timespec most = { .tv_sec = (time_t)seconds,
                                   .tv_nsec = (long)((seconds - (double)(time_t)seconds) * 1e9) };
    syscall(SYS_futex, word, FUTEX_WAIT, value, &most, NULL, 0);
}

void hs_futex_wake(_Atomic uint32_t *word)
{
    syscall(SYS_futex, word, FUTEX_WAKE, INT32_MAX, NULL, NULL, 0);
}

void hs_segment_describe(const HsCommSegment *segment, int rank, char *text, size_t bytes)
{
    const HsSegmentMember *member = &segment->members[rank];
    const bool joined = atomic_load(&member->joined);
    const HsCommPlace place = {
        .rank = rank,
        .size = (int)segment->size,
        .host = joined ? member->host : NULL,
        .process = atomic_load(&member->process),
        .step = atomic_load(&member->step),
        .operation = hs_segment_operations[atomic_load(&member->operation)],
        .sequence = atomic_load(&member->sequence),
    };
    hs_comm_describe(&place, text, bytes);
}

void hs_segment_abort(HsCommSegment *segment, const char *reason)
{
    uint32_t none = 0;
    if (atomic_compare_exchange_strong(&segment->aborted, &none, 1)) {
        snprintf(segment->reason, sizeof segment->reason, "%s", reason);
        atomic_store(&segment->aborted, 2);
    }
    hs_futex_wake(&segment->meeting);
}

HsStatus hs_segment_fail(const HsCommSegment *segment)
{
    /* The process that writes the reason may die before it is done. */
    const struct timespec nap = { .tv_nsec = 1000000 };
    for (int i = 0; i < 100 && atomic_load(&segment->aborted) != 2; i++)
        nanosleep(&nap, NULL);
    return hs_fail(HS_EDEVICE, "%s",
                   atomic_load(&segment->aborted) == 2 ? segment->reason
                                                       : "another rank failed, and could not say why");
}

/* A rank that has left comes to no meeting; one that came to fewer than this one is waited for. */
static void look_for_absent(HsCommShared *shared, uint32_t meeting, double waited_s)
{
    HsCommSegment *segment = shared->segment;
    const uint64_t own = atomic_load(&segment->members[shared->comm.rank].meetings);
    const bool late = shared->options.timeout_s > 0 && waited_s > shared->options.timeout_s;
    for (int r = 0; r < (int)segment->size; r++) {
        const HsSegmentMember *member = &segment->members[r];
        const bool left = atomic_load(&member->left);
        if (atomic_load(&member->meetings) >= own || atomic_load(&segment->meeting) != meeting || !(left || late))
            continue;
        char described[256], waiting[256], reason[HS_SEGMENT_REASON];
        hs_segment_describe(segment, r, described, sizeof described);
        hs_segment_describe(segment, shared->comm.rank, waiting, sizeof waiting);
        if (left)
            snprintf(reason, sizeof reason, "%s has ended, and %s waits for it", described, waiting);
        else
            snprintf(reason, sizeof reason,
                     "%s is alive and has not come for %.0f s (distributed.timeout) while %s waits", described,
                     waited_s, waiting);
        hs_segment_abort(segment, reason);
        return;
    }
}

/* Tens of microseconds of looking, where every rank has a core: waking up costs more. */
static bool spin(const HsCommShared *shared, uint32_t meeting)
{
    for (int i = 0; shared->spins && i < 2000; i++) {
        if (atomic_load_explicit(&shared->segment->meeting, memory_order_acquire) != meeting)
            return true;
#if defined(__x86_64__)
        __builtin_ia32_pause();
#elif defined(__aarch64__)
        __asm__ volatile("yield");
#endif
    }
    return false;
}

HsStatus hs_segment_meet(HsCommShared *shared)
{
    HsCommSegment *segment = shared->segment;
    const uint32_t meeting = atomic_load(&segment->meeting);
    if (atomic_load(&segment->aborted))
        return hs_segment_fail(segment);
    atomic_fetch_add(&segment->members[shared->comm.rank].meetings, 1);
    if (atomic_fetch_add(&segment->here, 1) + 1 == segment->size) {
        atomic_store(&segment->here, 0);
        atomic_fetch_add(&segment->meeting, 1);
        hs_futex_wake(&segment->meeting);
        return HS_OK;
    }
    if (spin(shared, meeting))
        return HS_OK;
    const double start_s = hs_clock_s();
    /* A wake-up for an abort can pass before the sleep begins: hence the short sleeps. */
    while (atomic_load(&segment->meeting) == meeting) {
        if (atomic_load(&segment->aborted))
            return hs_segment_fail(segment);
        hs_futex_wait(&segment->meeting, meeting, 0.2);
        const double waited_s = hs_clock_s() - start_s;
        if (waited_s >= 0.1)
            look_for_absent(shared, meeting, waited_s);
    }
    return HS_OK;
}

HsStatus hs_comm_shared_reason(int descriptor, char *reason, size_t bytes)
{
    HsCommSegment *segment;
    HS_TRY(hs_segment_map(descriptor, &segment));
    snprintf(reason, bytes, "%s", atomic_load(&segment->aborted) == 2 ? segment->reason : "");
    hs_segment_unmap(segment);
    return HS_OK;
}

HsStatus hs_comm_shared_report(int descriptor, int rank, const char *what)
{
    HsCommSegment *segment;
    char member[256], reason[HS_SEGMENT_REASON];
    HS_TRY(hs_segment_map(descriptor, &segment));
    hs_segment_describe(segment, rank, member, sizeof member);
    snprintf(reason, sizeof reason, "%s %s", member, what);
    hs_segment_abort(segment, reason);
    hs_segment_unmap(segment);
    return HS_OK;
}
