/* SPDX-License-Identifier: MIT
 *
 * See file_mark.h.
 */
#include "runtime/data/source/file_mark.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/io/storage.h"

enum { PLACES = 64, PLACE_BYTES = 4096 };

static HsStatus read_samples(const char *path, int descriptor, HsFileMark *mark)
{
    const int64_t all = (int64_t)PLACES * PLACE_BYTES;
    char *bytes = malloc((size_t)all);
    HsStatus status = bytes ? HS_OK : hs_fail(HS_ENOMEM, "no memory to look at %s", path);
    if (status == HS_OK && mark->bytes <= all)
        status = hs_storage_read_at(descriptor, path, bytes, (size_t)mark->bytes, 0);
    /* The first place is the file's beginning, the last its end. */
    const int64_t room = mark->bytes - PLACE_BYTES;
    for (int64_t i = 0; status == HS_OK && mark->bytes > all && i < PLACES; i++)
        status = hs_storage_read_at(descriptor, path, bytes + i * PLACE_BYTES, PLACE_BYTES,
                                    i * (room / (PLACES - 1)) + (i == PLACES - 1 ? room % (PLACES - 1) : 0));
    if (status == HS_OK)
        mark->samples = hs_storage_hash(bytes, (size_t)(mark->bytes < all ? mark->bytes : all));
    free(bytes);
    return status;
}

void hs_file_mark_times(const struct stat *about, char times[64])
{
    snprintf(times, 64, "%jd.%09ld %jd.%09ld", (intmax_t)about->st_mtim.tv_sec, about->st_mtim.tv_nsec,
             (intmax_t)about->st_ctim.tv_sec, about->st_ctim.tv_nsec);
}

HsStatus hs_file_mark(const char *path, bool whole, HsFileMark *mark)
{
    struct stat about;
    *mark = (HsFileMark){ 0 };
    const int descriptor = open(path, O_RDONLY | O_CLOEXEC);
    if (descriptor < 0 || fstat(descriptor, &about) != 0) {
        const int code = errno;
        if (descriptor >= 0)
            close(descriptor);
        return hs_fail(HS_EIO, "%s: cannot be read: %s", path, strerror(code));
    }
    mark->bytes = about.st_size;
    hs_file_mark_times(&about, mark->times);
    HsStatus status = read_samples(path, descriptor, mark);
    close(descriptor);
    return status == HS_OK && whole ? hs_file_mark_complete(path, mark) : status;
}

HsStatus hs_file_mark_complete(const char *path, HsFileMark *mark)
{
    int64_t bytes;
    if (mark->whole)
        return HS_OK;
    HS_TRY(hs_storage_checksum(path, &mark->checksum, &bytes));
    mark->whole = true;
    return bytes == mark->bytes ? HS_OK
                                : hs_fail(HS_EIO,
                                          "%s: is being written (%" PRId64 " bytes, and %" PRId64
                                          " a moment before): start when it is whole",
                                          path, bytes, mark->bytes);
}
