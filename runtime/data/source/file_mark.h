/* SPDX-License-Identifier: MIT
 *
 * By what a file of training data is known again, without reading all of it each time.
 *
 *     quick   size, time of its last change, and the bytes of 64 places spread over it
 *     whole   the checksum of all bytes besides
 *
 * What the quick way cannot see: other bytes between those places in a file whose times are the same, which needs the
 * system's clock to be set back, or another system to have written to the disk: the time of the last change (ctime)
 * cannot be set by programs.
 */
#ifndef HS_RUNTIME_DATA_SOURCE_FILE_MARK_H
#define HS_RUNTIME_DATA_SOURCE_FILE_MARK_H

#include <stdbool.h>
#include <stdint.h>

#include "kernels/base/status.h"

typedef struct HsFileMark {
    int64_t bytes;
    char times[64];    /* of its content and of its last change, seconds and nanoseconds */
    uint64_t samples;  /* XXH3-64 of the bytes at those places; of all, where they are at most 256 KiB */
    bool whole;        /* checksum is known */
    uint64_t checksum; /* XXH3-64 of all bytes */
} HsFileMark;

struct stat;
void hs_file_mark_times(const struct stat *about, char times[64]);
/* errors: HS_EIO naming the path, HS_ENOMEM */
HsStatus hs_file_mark(const char *path, bool whole, HsFileMark *mark);
/* Reads all bytes, if their checksum is not known yet. */
HsStatus hs_file_mark_complete(const char *path, HsFileMark *mark);

/* Marks of files, kept from run to run in a folder: of a file with the size and times that it had, all is known. */
typedef struct HsFileMarks HsFileMarks;
/* folder NULL: kept for this process only.  What the folder holds and cannot be read is left out.  errors: HS_ENOMEM */
HsStatus hs_file_marks_open(const char *folder, HsFileMarks **marks);
/* The file's mark with its checksum; only a file that is not known, or another than it was, is read. */
HsStatus hs_file_marks_get(HsFileMarks *marks, const char *path, HsFileMark *mark);
/* Whether that would read nothing. */
bool hs_file_marks_are_known(const HsFileMarks *marks, const char *path);
/* The same of what was got before, without a look at the file. */
bool hs_file_marks_find(const HsFileMarks *marks, const char *path, HsFileMark *mark);
/* Keeps what was read.  Where the folder cannot be written, files are read again next time. */
void hs_file_marks_save(HsFileMarks *marks);
void hs_file_marks_close(HsFileMarks *marks);

#endif
