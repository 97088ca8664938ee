/* SPDX-License-Identifier: MIT
 *
 * Marks of files from run to run (file_mark.h): a text file, a line a file, the newest last.
 *
 *     CHECKSUM SAMPLES BYTES SECONDS.NANOSECONDS SECONDS.NANOSECONDS PATH
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include "kernels/base/array.h"
#include "runtime/data/source/file_mark.h"
#include "runtime/data/tokenizer/map.h"
#include "runtime/io/files.h"
#include "runtime/io/storage.h"

static const char file_name[] = "files";

/* recent: the file had just been changed when it was read, and is read again by the next process. */
typedef struct Item {
    HsFileMark mark;
    bool recent;
} Item;

struct HsFileMarks {
    char *path; /* NULL: nothing is kept */
    Item *items;
    size_t count, capacity;
    HsMap places; /* real path -> index */
    bool changed;
};

static HsStatus put(HsFileMarks *marks, const char *path, const HsFileMark *mark, bool recent)
{
    int64_t index;
    if (!hs_map_get(&marks->places, path, strlen(path), &index)) {
        HS_TRY(hs_array_grow(&marks->items, sizeof *marks->items, marks->count + 1, &marks->capacity));
        index = (int64_t)marks->count;
        HS_TRY(hs_map_put(&marks->places, path, strlen(path), index));
        marks->count++;
    }
    marks->items[index] = (Item){ *mark, recent };
    return HS_OK;
}

/* A line that is not one of ours is left out: at worst a file is read again. */
static HsStatus read_line(HsFileMarks *marks, char *line)
{
    HsFileMark mark = { .whole = true };
    int at = 0;
    char content[32], change[32];
    if (sscanf(line, "%16" SCNx64 " %16" SCNx64 " %" SCNd64 " %31s %31s %n", &mark.checksum, &mark.samples, &mark.bytes,
               content, change, &at) != 5 ||
        at == 0 || line[at] == '\0')
        return HS_OK;
    snprintf(mark.times, sizeof mark.times, "%s %s", content, change);
    return put(marks, line + at, &mark, false);
}

static HsStatus read_marks(HsFileMarks *marks)
{
    char *text = NULL;
    size_t length;
    if (!marks->path || hs_read_file(marks->path, 0, &text, &length) != HS_OK)
        return HS_OK;
    HsStatus status = HS_OK;
    for (char *line = text, *end; status == HS_OK && (end = strchr(line, '\n')) != NULL; line = end + 1) {
        *end = '\0';
        status = read_line(marks, line);
    }
    free(text);
    return status;
}

HsStatus hs_file_marks_open(const char *folder, HsFileMarks **result)
{
    HsFileMarks *marks = *result = calloc(1, sizeof *marks);
    HsStatus status = marks ? HS_OK : hs_fail(HS_ENOMEM, "no memory to list files");
    if (status == HS_OK && folder)
        status = hs_storage_join(folder, file_name, &marks->path);
    if (status == HS_OK)
        status = read_marks(marks);
    if (status != HS_OK) {
        hs_file_marks_close(marks);
        *result = NULL;
    }
    return status;
}

/* The name by which a file is known, whatever way a path takes to it; a path with a line end has none. */
static char *real_path(const char *path)
{
    char *const real = realpath(path, NULL);
    if (real && strchr(real, '\n')) {
        free(real);
        return NULL;
    }
    return real;
}

static bool find(const HsFileMarks *marks, const char *real, HsFileMark *mark)
{
    int64_t index;
    if (!real || !hs_map_get(&marks->places, real, strlen(real), &index))
        return false;
    *mark = marks->items[index].mark;
    return true;
}

bool hs_file_marks_find(const HsFileMarks *marks, const char *path, HsFileMark *mark)
{
    char *const real = real_path(path);
    const bool there = find(marks, real, mark);
    free(real);
    return there;
}

/* Within a tick of the clock that a file's times are taken from, it may change again and keep them. */
static bool just_changed(const char *path)
{
    const double tick_s = 0.1;
    struct timespec now;
    struct stat about;
    clock_gettime(CLOCK_REALTIME, &now);
    return stat(path, &about) != 0 ||
           (double)(now.tv_sec - about.st_ctim.tv_sec) + 1e-9 * (double)(now.tv_nsec - about.st_ctim.tv_nsec) < tick_s;
}

/* The mark of a file that has the size and times that it had. */
static bool find_current(const HsFileMarks *marks, const char *path, const char *real, HsFileMark *mark)
{
    struct stat about;
    char times[sizeof mark->times];
    if (!find(marks, real, mark) || stat(path, &about) != 0)
        return false;
    hs_file_mark_times(&about, times);
    return about.st_size == mark->bytes && strcmp(times, mark->times) == 0;
}

bool hs_file_marks_are_known(const HsFileMarks *marks, const char *path)
{
    HsFileMark mark;
    char *const real = real_path(path);
    const bool known = find_current(marks, path, real, &mark);
    free(real);
    return known;
}

HsStatus hs_file_marks_get(HsFileMarks *marks, const char *path, HsFileMark *mark)
{
    char *const real = real_path(path);
    HsStatus status = HS_OK;
    if (!find_current(marks, path, real, mark)) {
        status = hs_file_mark(path, true, mark);
        if (status == HS_OK && real)
            status = put(marks, real, mark, just_changed(path));
        marks->changed = marks->changed || status == HS_OK;
    }
    free(real);
    return status;
}

static HsStatus print(FILE *stream, const void *user)
{
    const HsFileMarks *marks = user;
    for (size_t i = 0; i < marks->places.count; i++) {
        size_t length;
        const char *path = hs_map_key(&marks->places, i, &length);
        const Item *item = &marks->items[marks->places.entries[i].value];
        const HsFileMark *mark = &item->mark;
        if (item->recent)
            continue;
        fprintf(stream, "%016" PRIx64 " %016" PRIx64 " %" PRId64 " %s %.*s\n", mark->checksum, mark->samples,
                mark->bytes, mark->times, (int)length, path);
    }
    return HS_OK;
}

void hs_file_marks_save(HsFileMarks *marks)
{
    if (marks->path && marks->changed)
        (void)hs_storage_replace_printed(marks->path, print, marks);
    marks->changed = false;
}

void hs_file_marks_close(HsFileMarks *marks)
{
    if (!marks)
        return;
    free(marks->path);
    free(marks->items);
    hs_map_deinit(&marks->places);
    free(marks);
}
