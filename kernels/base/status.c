/* SPDX-License-Identifier: MIT
 *
 * The thread-local message behind HsStatus.  One fixed buffer for each thread: reporting that memory is exhausted must
 * not need memory.  A message that does not fit is cut, never overrun.
 */
#include "kernels/base/status.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { MESSAGE_BYTES = 1024 };

static _Thread_local char message[MESSAGE_BYTES];

static const char *const names[] = {
    [HS_OK] = "HS_OK",
    [HS_EINVAL] = "HS_EINVAL",
    [HS_ESHAPE] = "HS_ESHAPE",
    [HS_EUNSUPPORTED] = "HS_EUNSUPPORTED",
    [HS_EDEVICE] = "HS_EDEVICE",
    [HS_ENOMEM] = "HS_ENOMEM",
    [HS_EIO] = "HS_EIO",
    [HS_EFORMAT] = "HS_EFORMAT",
    [HS_ECONFIG] = "HS_ECONFIG",
    [HS_ENUMERIC] = "HS_ENUMERIC",
    [HS_EINTERRUPTED] = "HS_EINTERRUPTED",
};

HsStatus(hs_fail)(HsStatus code, const char *format, ...)
{
    /* Formatted apart first: an argument may be the old message itself. */
    char text[MESSAGE_BYTES];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    memcpy(message, text, sizeof message);
    return code;
}

HsStatus(hs_error_prefix)(HsStatus code, const char *format, ...)
{
    char text[MESSAGE_BYTES];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    /* Append what still fits. */
    strncat(text, ": ", sizeof text - 1 - strlen(text));
    strncat(text, message, sizeof text - 1 - strlen(text));
    memcpy(message, text, sizeof message);
    return code;
}

const char *hs_error_message(void)
{
    return message;
}

const char *hs_status_name(HsStatus code)
{
    size_t count = sizeof names / sizeof names[0];
    return (size_t)code < count ? names[code] : "unknown status";
}
