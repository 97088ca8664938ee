/* SPDX-License-Identifier: MIT
 *
 * The segment of POSIX shared memory, and sleeping by futex.
 */
#include "tests/nccl/mailbox.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/futex.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

namespace standin
{

void fault(int rank, const char *format, ...)
{
    char text[1024];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    fprintf(stderr, "nccl stand-in: rank %d: %s\n", rank, text);
    fflush(stderr);
    signal(SIGABRT, SIG_DFL);
    abort();
}

static Segment *map_segment(int file)
{
    void *mapping = mmap(nullptr, sizeof(Segment), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    close(file);
    return mapping == MAP_FAILED ? nullptr : static_cast<Segment *>(mapping);
}

Segment *segment_attach(const char *name, int rank, int size)
{
    const int file = shm_open(name, rank == 0 ? O_CREAT | O_EXCL | O_RDWR : O_RDWR, 0600);
    if (file < 0 && rank == 0)
        fault(rank, "%s: %s; a unique id serves one communicator", name, strerror(errno));
    if (file < 0)
        return nullptr;
    struct stat status;
    if (rank == 0 && ftruncate(file, sizeof(Segment)) != 0)
        fault(rank, "%s: %s", name, strerror(errno));
    if (fstat(file, &status) != 0 || (size_t)status.st_size < sizeof(Segment)) {
        close(file);
        return nullptr;
    }
    Segment *segment = map_segment(file);
    if (segment == nullptr)
        fault(rank, "%s: %s", name, strerror(errno));
    if (rank == 0) {
        segment->size = size;
        segment->ready.store(1);
    } else if (segment->ready.load() == 0) {
        munmap(segment, sizeof *segment);
        return nullptr;
    }
    if (segment->size != size)
        fault(rank, "it was given %d ranks, rank 0 %d", size, segment->size);
    for (int other = 0; other < size; other++)
        if (segment->processes[other] == getpid())
            fault(rank, "duplicate GPU: rank %d is of the same device", other);
    segment->processes[rank] = getpid();
    if ((segment->here.fetch_or(1u << rank) >> rank & 1) != 0)
        fault(rank, "another process is rank %d already", rank);
    segment_wake(segment);
    return segment;
}

void segment_forget(const char *name)
{
    shm_unlink(name);
}

void segment_wake(Segment *segment)
{
    segment->changed.fetch_add(1);
    syscall(SYS_futex, &segment->changed, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

void segment_sleep(Segment *segment, uint32_t seen)
{
    const timespec moment = { 0, 20 * 1000 * 1000 };
    syscall(SYS_futex, &segment->changed, FUTEX_WAIT, seen, &moment, nullptr, 0);
}

} // namespace standin
