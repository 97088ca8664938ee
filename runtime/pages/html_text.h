/* SPDX-License-Identifier: MIT
 *
 * Text of pages, and numbers for people, which tables in a terminal show alike.
 */
#ifndef HS_RUNTIME_PAGES_HTML_TEXT_H
#define HS_RUNTIME_PAGES_HTML_TEXT_H

#include <stdio.h>

/* A number for people, the same everywhere on a page: 3 decimals, fewer when large; NAN is a dash. */
enum { HS_HTML_FIGURE_BYTES = 32 };
const char *hs_html_figure(double value, char text[HS_HTML_FIGURE_BYTES]);
const char *hs_html_bytes(double bytes, char text[HS_HTML_FIGURE_BYTES]); /* "12.3 MiB"; 0 and NAN are a dash */

/* Text with & < > " and ' escaped; control characters, which no page may hold, become a replacement mark. */
void hs_html_text(FILE *stream, const char *text);

#endif
