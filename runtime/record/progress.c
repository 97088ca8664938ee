/* SPDX-License-Identifier: MIT
 *
 * The progress bar.  One static pointer names the bar that log hooks clear and redraw: hooks carry no argument.
 */
#include "runtime/record/progress.h"

#include <math.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

#include "kernels/base/clock.h"
#include "kernels/base/log.h"

#define REDRAW_INTERVAL_S 0.1
#define CLEAR_LINE        "\r\033[K"
enum { BAR_CELLS = 10, DEFAULT_COLUMNS = 80, LINE_BYTES = 512 };

static HsProgress *active;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* a loader thread may log while the bar is drawn */

static int terminal_columns(void)
{
    struct winsize size;
    return ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : DEFAULT_COLUMNS;
}

void hs_progress_format_time(double seconds, char *text, size_t size)
{
    long long whole = llround(fmin(fmax(seconds, 0), 1e12));
    if (whole < 60)
        snprintf(text, size, "%llds", whole);
    else if (whole < 3600)
        snprintf(text, size, "%lldm %02llds", whole / 60, whole % 60);
    else if (whole < 86400)
        snprintf(text, size, "%lldh %02lldm", whole / 3600, whole / 60 % 60);
    else
        snprintf(text, size, "%lldd %02lldh", whole / 86400, whole / 3600 % 24);
}

void hs_progress_format_count(double count, char *text, size_t size)
{
    static const char *const units[] = { "", "k", "M", "G", "T" };
    size_t unit = 0;
    /* 999.95 would print as "1000.0": one unit up is where it belongs. */
    while (count >= (unit == 0 ? 999.5 : 999.95) && unit + 1 < sizeof units / sizeof *units) {
        count /= 1000;
        unit++;
    }
    snprintf(text, size, unit == 0 ? "%.0f%s" : "%.1f%s", count, units[unit]);
}

/* Appends one field if it fits whole (a cut number would be a wrong number); after the first that does not, none is. */
__attribute__((format(printf, 4, 5))) static void add(char *text, size_t *used, size_t *room, const char *format, ...)
{
    char field[128];
    va_list arguments;
    va_start(arguments, format);
    int length = vsnprintf(field, sizeof field, format, arguments);
    va_end(arguments);
    if (length < 0 || (size_t)length >= sizeof field || *used + (size_t)length > *room) {
        *room = *used;
        return;
    }
    memcpy(text + *used, field, (size_t)length + 1);
    *used += (size_t)length;
}

void hs_progress_format_bar(const HsProgressView *view, int64_t total_steps, int columns, char *text, size_t size)
{
    size_t room = columns > 1 ? (size_t)columns - 1 : 0, used = 0;
    if (room > size - 1)
        room = size - 1;
    text[0] = '\0';
    double share = total_steps > 0 ? fmin((double)view->step / (double)total_steps, 1.0) : 0;
    char cells[BAR_CELLS + 1], number[32];
    int full = (int)(share * BAR_CELLS);
    for (int i = 0; i < BAR_CELLS; i++)
        cells[i] = i < full ? '=' : i == full ? '>' : ' ';
    cells[BAR_CELLS] = '\0';

    /* Most wanted first: a narrow terminal drops what comes last. */
    add(text, &used, &room, "%lld/%lld", (long long)view->step, (long long)total_steps);
    add(text, &used, &room, " [%s] %3.0f%%", cells, floor(100 * share));
    if (!isnan(view->loss))
        add(text, &used, &room, "  loss %.4f", view->loss);
    if (view->eta_s > 0) {
        hs_progress_format_time(view->eta_s, number, sizeof number);
        add(text, &used, &room, "  ETA %s", number);
    }
    if (view->tokens_per_second > 0) {
        hs_progress_format_count(view->tokens_per_second, number, sizeof number);
        add(text, &used, &room, "  %s tok/s", number);
    }
    if (view->peak_share > 0)
        add(text, &used, &room, "  %.0f%% peak", 100 * view->peak_share);
    if (view->loss_scale > 0 && view->loss_scale != 1)
        add(text, &used, &room, "  scale %g", view->loss_scale);
    if (view->memory_bytes > 0)
        add(text, &used, &room, "  %.0f MiB", (double)view->memory_bytes / (1024.0 * 1024.0));
}

static void draw(const HsProgress *progress)
{
    char text[LINE_BYTES];
    hs_progress_format_bar(&progress->view, progress->total_steps, terminal_columns(), text, sizeof text);
    fprintf(stderr, CLEAR_LINE "%s", text);
    fflush(stderr);
}

static void before_message(void)
{
    pthread_mutex_lock(&lock); /* until after_message */
    if (active && active->drawn_at_s >= 0)
        fputs(CLEAR_LINE, stderr);
}

static void after_message(void)
{
    if (active && active->drawn_at_s >= 0)
        draw(active);
    pthread_mutex_unlock(&lock);
}

HsStatus hs_progress_init(HsProgress *progress, const char *mode, int64_t total_steps)
{
    static const char *const modes[] = { "auto", "bar", "lines", "none" };
    bool known = false;
    for (size_t i = 0; i < sizeof modes / sizeof *modes; i++)
        known = known || strcmp(mode, modes[i]) == 0;
    if (!known)
        return hs_fail(HS_ECONFIG, "logging.progress must be auto, bar, lines or none (got `%s`)", mode);
    *progress = (HsProgress){ .total_steps = total_steps, .drawn_at_s = -1, .view = { .loss = NAN } };
    progress->bar = strcmp(mode, "bar") == 0 || (strcmp(mode, "auto") == 0 && isatty(STDERR_FILENO));
    progress->lines = !progress->bar && strcmp(mode, "none") != 0;
    if (progress->bar) {
        active = progress;
        hs_log_set_hooks(before_message, after_message);
    }
    return HS_OK;
}

void hs_progress_update(HsProgress *progress, const HsProgressView *view)
{
    pthread_mutex_lock(&lock);
    progress->view = *view;
    double now = hs_clock_s();
    bool last = view->step >= progress->total_steps;
    if (progress->bar && (progress->drawn_at_s < 0 || last || now - progress->drawn_at_s >= REDRAW_INTERVAL_S)) {
        progress->drawn_at_s = now;
        draw(progress);
    }
    pthread_mutex_unlock(&lock);
}

void hs_progress_print(HsProgress *progress, const char *line)
{
    pthread_mutex_lock(&lock);
    if (progress->bar) {
        fprintf(stderr, CLEAR_LINE "%s\n", line);
        if (progress->drawn_at_s >= 0)
            draw(progress);
    } else if (progress->lines) {
        printf("%s\n", line);
        fflush(stdout);
        clearerr(stdout); /* a line that cannot be shown is no reason for a run to fail */
    }
    pthread_mutex_unlock(&lock);
}

void hs_progress_deinit(HsProgress *progress)
{
    if (active != progress)
        return;
    hs_log_set_hooks(NULL, NULL);
    pthread_mutex_lock(&lock);
    active = NULL;
    if (progress->drawn_at_s >= 0) { /* the last state stays to be read */
        draw(progress);
        fputs("\n", stderr);
    }
    pthread_mutex_unlock(&lock);
}
