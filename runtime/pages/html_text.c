/* SPDX-License-Identifier: MIT
 *
 * Text and numbers of pages.
 */
#include "runtime/pages/html_text.h"

#include <math.h>

void hs_html_text(FILE *stream, const char *text)
{
    static const char *const escapes[128] = {
        ['&'] = "&amp;", ['<'] = "&lt;", ['>'] = "&gt;", ['"'] = "&quot;", ['\''] = "&#39;"
    };
    for (; *text; text++) {
        unsigned char byte = (unsigned char)*text;
        if (byte < 128 && escapes[byte])
            fputs(escapes[byte], stream);
        else if ((byte < 0x20 && byte != '\t' && byte != '\n') || byte == 0x7f)
            fputs("&#xfffd;", stream);
        else
            fputc(byte, stream);
    }
}

const char *hs_html_figure(double value, char text[HS_HTML_FIGURE_BYTES])
{
    double size = fabs(value);
    if (!isfinite(value))
        snprintf(text, HS_HTML_FIGURE_BYTES, "%s", "\u2013");
    else if ((size > 0 && size < 5e-4) || size >= 1e7)
        snprintf(text, HS_HTML_FIGURE_BYTES, "%.2e", value);
    else
        snprintf(text, HS_HTML_FIGURE_BYTES, "%.*f", size < 100 ? 3 : size < 1000 ? 1 : 0, value);
    return text;
}

const char *hs_html_bytes(double bytes, char text[HS_HTML_FIGURE_BYTES])
{
    static const char *const units[] = { "B", "KiB", "MiB", "GiB", "TiB" };
    size_t unit = 0;
    while (bytes >= 1000 && unit + 1 < sizeof units / sizeof *units) {
        bytes /= 1024;
        unit++;
    }
    if (bytes > 0) /* false for NAN too */
        snprintf(text, HS_HTML_FIGURE_BYTES, unit == 0 ? "%.0f %s" : "%.1f %s", bytes, units[unit]);
    else
        snprintf(text, HS_HTML_FIGURE_BYTES, "%s", "\u2013");
    return text;
}
