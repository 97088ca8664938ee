/* SPDX-License-Identifier: MIT
 *
 * Messages to people on standard error.  A line is formatted whole and written by one call, so that lines of several
 * threads or processes do not mix within a line.
 */
#include "kernels/base/log.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { LINE_BYTES = 2048 };

static const char *const prefixes[] = {
    [HS_LOG_DEBUG] = "debug: ",
    [HS_LOG_INFO] = "info: ",
    [HS_LOG_WARNING] = "warning: ",
    [HS_LOG_ERROR] = "error: ",
};

static HsLogLevel least_level = HS_LOG_INFO;
static const char *speaker = "";
static void (*before_line)(void);
static void (*after_line)(void);

void hs_log_set_level(HsLogLevel least)
{
    least_level = least;
}

bool hs_log_shows(HsLogLevel level)
{
    return level >= least_level;
}

void hs_log_set_speaker(const char *name)
{
    speaker = name ? name : "";
}

void hs_log_set_hooks(void (*before)(void), void (*after)(void))
{
    before_line = before;
    after_line = after;
}

void hs_log_clean(char *text, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++) {
        const unsigned char here = (unsigned char)text[i];
        const unsigned char next = i + 1 < bytes ? (unsigned char)text[i + 1] : 0;
        if ((here < 0x20 && here != '\n' && here != '\t') || here == 0x7f)
            text[i] = '?';
        else if (here == 0xc2 && next >= 0x80 && next <= 0x9f)
            text[i] = text[i + 1] = '?';
    }
}

void hs_log(HsLogLevel level, const char *format, ...)
{
    if (level < least_level)
        return;
    char line[LINE_BYTES];
    size_t used = (size_t)snprintf(line, sizeof line / 2, "%s%s%s", prefixes[level], speaker, *speaker ? ": " : "");

    /* One byte is kept back for the newline, so that even a cut message ends its line. */
    size_t room = sizeof line - used - 1;
    va_list arguments;
    va_start(arguments, format);
    int written = vsnprintf(line + used, room, format, arguments);
    va_end(arguments);
    if (written > 0)
        used += (size_t)written < room ? (size_t)written : room - 1;
    hs_log_clean(line, used);
    line[used++] = '\n';

    if (before_line)
        before_line();
    /* A message that cannot be shown has nowhere else to go: the result is not looked at on purpose. */
    (void)fwrite(line, 1, used, stderr);
    if (after_line)
        after_line();
}
