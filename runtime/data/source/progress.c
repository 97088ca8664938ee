/* SPDX-License-Identifier: MIT
 *
 * See progress.h.  Bytes are those of the files: of a compressed one its whole size counts once it has been read.
 */
#include "runtime/data/source/progress.h"

#include <omp.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "kernels/base/clock.h"
#include "kernels/base/limits.h"
#include "kernels/base/log.h"

static const double first_s = 5, every_s = 10;

static int64_t bytes_of(const HsSource *source)
{
    struct stat about;
    return source->kind && stat(source->name, &about) == 0 ? (int64_t)about.st_size : 0;
}

void hs_source_progress_begin(HsSourceProgress *progress, const HsSourceList *sources, int first, int last,
                              const char *what)
{
    *progress = (HsSourceProgress){ .what = what, .began_s = hs_clock_s() };
    progress->next_s = progress->began_s + first_s;
    progress->before = what ? calloc((size_t)sources->count + 1, sizeof *progress->before) : NULL;
    if (!progress->before)
        progress->what = NULL;
    for (int i = first; progress->what && i < last; i++) {
        progress->before[i] = progress->total;
        progress->total += bytes_of(&sources->items[i]);
    }
}

static void say(const HsSourceProgress *progress, int64_t done, double now)
{
    const double rate = (double)done / (now - progress->began_s);
    hs_info("%s: %.0f of %.0f MB, %.1f MB/s, %.0f s left", progress->what, (double)done / 1e6,
            (double)progress->total / 1e6, rate / 1e6, rate > 0 ? (double)(progress->total - done) / rate : 0.0);
}

void hs_source_progress_add(HsSourceProgress *progress, const HsUnit *unit)
{
    const double now = progress->what ? hs_clock_s() : 0;
    if (!progress->what || now < progress->next_s)
        return;
    const int64_t size = bytes_of(unit->from), there = (int64_t)(unit->text.offset + unit->least);
    say(progress, progress->before[unit->source] + (there < size ? there : size), now);
    progress->next_s = now + every_s;
    progress->said = true;
}

void hs_source_progress_end(HsSourceProgress *progress)
{
    if (progress->what && progress->said)
        say(progress, progress->total, hs_clock_s());
    free(progress->before);
    *progress = (HsSourceProgress){ 0 };
}

int hs_source_threads(int asked)
{
    HsLimits limits;
    if (asked > 0)
        return asked;
    hs_limits_read("", &limits);
    return hs_limits_threads(&limits, omp_get_num_procs());
}
