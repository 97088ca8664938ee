/* SPDX-License-Identifier: MIT */
#include "kernels/base/file_memory.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* File systems without nameless files get one with a name, which is taken away at once. */
static int open_nameless(const char *folder)
{
    char path[4096];
    int file = open(folder, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    if (file >= 0 || (errno != EOPNOTSUPP && errno != EISDIR))
        return file;
    if (snprintf(path, sizeof path, "%s/halfstep-XXXXXX", folder) >= (int)sizeof path) {
        errno = ENAMETOOLONG;
        return -1;
    }
    file = mkostemp(path, O_CLOEXEC);
    if (file >= 0)
        unlink(path);
    return file;
}

HsStatus hs_file_memory_map(const char *folder, size_t bytes, void **pointer)
{
    *pointer = NULL;
    const int file = open_nameless(folder);
    if (file < 0)
        return hs_fail(HS_EIO, "no file can be made in %s: %s", folder, strerror(errno));
    /* Without room a later write would end the process by a signal. */
    const int error = posix_fallocate(file, 0, (off_t)bytes);
    void *mapped = error == 0 ? mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0) : MAP_FAILED;
    HsStatus status = HS_OK;
    if (error != 0)
        status = hs_fail(error == ENOSPC ? HS_ENOMEM : HS_EIO, "%.1f MiB in a file of %s: %s",
                         (double)bytes / (1024.0 * 1024.0), folder, strerror(error));
    else if (mapped == MAP_FAILED)
        status = hs_fail(HS_ENOMEM, "a file of %zu bytes in %s cannot be mapped: %s", bytes, folder, strerror(errno));
    else
        *pointer = mapped;
    close(file); /* the mapping keeps it */
    return status;
}

void hs_file_memory_unmap(void *pointer, size_t bytes)
{
    if (pointer)
        munmap(pointer, bytes);
}

/* The pages that the part touches, or those that lie in it as a whole. */
static void advise(const void *pointer, size_t bytes, bool whole, int advice)
{
    const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), first = (uintptr_t)pointer, last = first + bytes;
    const uintptr_t from = (whole ? first + page - 1 : first) / page * page;
    const uintptr_t to = (whole ? last : last + page - 1) / page * page;
    if (to > from)
        (void)madvise((void *)from, to - from, advice); /* advice only */
}

void hs_file_memory_ahead(void *pointer, size_t bytes)
{
    advise(pointer, bytes, false, MADV_WILLNEED);
}

/* Taken from the page table: the process no longer holds the pages; the system writes them when it likes. */
void hs_file_memory_behind(void *pointer, size_t bytes)
{
    advise(pointer, bytes, true, MADV_DONTNEED);
}
