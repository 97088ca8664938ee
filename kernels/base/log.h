/* SPDX-License-Identifier: MIT
 *
 * Messages to people: one line each on standard error, level first ("warning: ...").
 * A progress bar may register a hook that clears its line before a message and redraws after it.
 */
#ifndef HS_KERNELS_BASE_LOG_H
#define HS_KERNELS_BASE_LOG_H

#include <stdbool.h>
#include <stddef.h>

typedef enum HsLogLevel { HS_LOG_DEBUG, HS_LOG_INFO, HS_LOG_WARNING, HS_LOG_ERROR } HsLogLevel;

void hs_log_set_level(HsLogLevel least);
bool hs_log_shows(HsLogLevel level);
/* Stands behind the level in every line: "warning: rank 2: ...".  Borrowed; NULL: nothing. */
void hs_log_set_speaker(const char *name);
void hs_log_set_hooks(void (*before)(void), void (*after)(void));
void hs_log(HsLogLevel level, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* What a terminal would obey becomes "?": control characters (ASCII's but tab and newline, and U+0080 to U+009F in
 * UTF-8).  Names come from files of unknown origin.  Every message goes through it. */
void hs_log_clean(char *text, size_t bytes);

#define hs_debug(...) hs_log(HS_LOG_DEBUG, __VA_ARGS__)
#define hs_info(...)  hs_log(HS_LOG_INFO, __VA_ARGS__)
#define hs_warn(...)  hs_log(HS_LOG_WARNING, __VA_ARGS__)
#define hs_error(...) hs_log(HS_LOG_ERROR, __VA_ARGS__)

#endif
