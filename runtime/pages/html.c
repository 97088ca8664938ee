/* SPDX-License-Identifier: MIT
 *
 * The frame of a page and what is made of text: escaping, numbers, heat maps.
 *
 * Colours are variables of the style sheet, given twice, for light and dark, so that no chart names a colour itself.
 * A heat map is a table: it can be read aloud, copied and scrolled on a narrow screen.  A cell's colour is one of two
 * hues over the card's background, its opacity at most 0.55: the text's contrast stays above 4.5 to 1 (WCAG 2.1, AA) in
 * both schemes.
 */
#include "runtime/pages/html.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/io/files.h"
#include "runtime/io/storage.h"

static const char style_sheet[] =
    ":root{color-scheme:light dark;--page:#f5f6f8;--card:#fff;--ink:#1a222d;--soft:#566173;--line:#dde2e9;"
    "--cool:20 140 145;--warm:232 104 28;--c0:#2461b5;--c1:#c9501f;--c2:#1b8059;--c3:#8547b8;--c4:#8f6a00;"
    "--c5:#bd2f75;--c6:#3d7690;--c7:#5f6875}\n"
    "@media(prefers-color-scheme:dark){:root{--page:#10141a;--card:#181e26;--ink:#e7ebf1;--soft:#9ca8b8;"
    "--line:#2d3743;--cool:24 138 142;--warm:200 88 30;--c0:#74abff;--c1:#ff9868;--c2:#4fd0a0;--c3:#c6a0ff;"
    "--c4:#e3bd4b;--c5:#ff88c2;--c6:#8ac8e2;--c7:#adb7c4}}\n"
    "*{box-sizing:border-box}"
    "body{margin:0;background:var(--page);color:var(--ink);font:16px/1.55 system-ui,-apple-system,\"Segoe UI\","
    "Roboto,\"Helvetica Neue\",Arial,sans-serif}\n"
    "main{max-width:1000px;margin:0 auto;padding:28px 20px 56px}\n"
    "h1{font-size:1.7rem;line-height:1.25;margin:0 0 4px;overflow-wrap:anywhere}\n"
    "h2{font-size:1.15rem;margin:0 0 4px}p{margin:0 0 14px;max-width:72ch}.soft{color:var(--soft)}\n"
    "section{background:var(--card);border:1px solid var(--line);border-radius:10px;padding:20px 22px;"
    "margin:20px 0 0}\n"
    "dl.facts{display:grid;grid-template-columns:repeat(auto-fit,minmax(150px,1fr));gap:14px 22px;margin:0}"
    ".facts dt{color:var(--soft);font-size:.8rem}.facts dd{margin:0;font-weight:600;overflow-wrap:anywhere}\n"
    "dl.figures{display:grid;grid-template-columns:repeat(auto-fit,minmax(205px,1fr));gap:12px;margin:0 0 18px}"
    ".figures>div{border:1px solid var(--line);border-radius:8px;padding:10px 13px}"
    ".figures dt{color:var(--soft);font-size:.85rem}.figures dd{margin:0;font-size:.82rem;color:var(--soft)}"
    ".figures dd.value{font-size:1.45rem;font-weight:650;color:var(--ink);font-variant-numeric:tabular-nums}\n"
    "figure{margin:0 0 18px}figcaption,caption{font-weight:600;font-size:.92rem;text-align:left;"
    "padding:0 0 6px}\n"
    ".scroll{overflow-x:auto}.scroll+.scroll,.scroll+figure{margin-top:16px}"
    "svg{display:block;width:100%;min-width:560px;height:auto;font-size:12px}\n"
    "table{border-collapse:collapse;font-variant-numeric:tabular-nums;font-size:.9rem}"
    "th,td{padding:7px 11px;text-align:right;white-space:nowrap;border-bottom:1px solid var(--line)}"
    "th{font-weight:600;color:var(--soft)}th[scope=row]{text-align:left;color:var(--ink)}"
    "th span{display:inline-block;max-width:16em;overflow:hidden;text-overflow:ellipsis;vertical-align:bottom}\n"
    "table.heat{border-collapse:separate;border-spacing:3px}.heat th,.heat td{border:0}"
    ".heat td{min-width:74px;border-radius:5px;text-align:center;border:2px solid transparent}"
    ".heat td.own{border-color:var(--ink);font-weight:650}\n"
    "table.texts td,.texts th{text-align:left;vertical-align:top}.texts td{white-space:pre-wrap;min-width:7em;"
    "max-width:24em;overflow-wrap:anywhere;font-family:ui-monospace,SFMono-Regular,Menlo,Consolas,monospace;"
    "font-size:.84rem}\n"
    "text{fill:var(--soft)}text.strong{fill:var(--ink)}.grid{stroke:var(--line);stroke-width:1}"
    ".axis{stroke:var(--soft);stroke-width:1}.mark{stroke:var(--soft);stroke-width:1;stroke-dasharray:3 4}"
    ".whisker{stroke:var(--ink);stroke-width:1.5;fill:none}.curve{fill:none;stroke-width:1.8;"
    "stroke-linejoin:round}.second{stroke-dasharray:6 4}.hit{fill:transparent}\n"
    "ul.legend{display:flex;flex-wrap:wrap;gap:4px 18px;list-style:none;margin:6px 0 0;padding:0;font-size:.85rem}"
    ".legend svg{display:inline-block;width:22px;min-width:0;height:10px;margin-right:6px}\n"
    ".s0{stroke:var(--c0)}.s1{stroke:var(--c1)}.s2{stroke:var(--c2)}.s3{stroke:var(--c3)}.s4{stroke:var(--c4)}"
    ".s5{stroke:var(--c5)}.s6{stroke:var(--c6)}.s7{stroke:var(--c7)}"
    ".f0{fill:var(--c0)}.f1{fill:var(--c1)}.f2{fill:var(--c2)}.f3{fill:var(--c3)}.f4{fill:var(--c4)}"
    ".f5{fill:var(--c5)}.f6{fill:var(--c6)}.f7{fill:var(--c7)}\n"
    "@media(max-width:640px){main{padding:18px 12px 40px}section{padding:15px 14px}"
    "table.heat{border-spacing:2px;font-size:.8rem}.heat th,.heat td{padding:4px 2px}.heat td{min-width:42px}}\n"
    "@media print{body{background:none}section{break-inside:avoid}}\n";

/* ---- files ---- */

typedef struct Page {
    const char *title;
    HsHtmlBody body;
    const void *user;
} Page;

static HsStatus print_page(FILE *stream, const void *user)
{
    const Page *page = user;
    hs_html_begin(stream, page->title);
    HsStatus status = page->body(stream, page->user);
    hs_html_end(stream);
    return status;
}

HsStatus hs_html_write(const char *path, const char *title, HsHtmlBody body, const void *user)
{
    const Page page = { title, body, user };
    return hs_storage_replace_printed(path, print_page, &page);
}

/* ---- text ---- */

void hs_html_begin(FILE *stream, const char *title)
{
    fputs("<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
          "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<title>",
          stream);
    hs_html_text(stream, title);
    fprintf(stream, "</title>\n<style>\n%s</style>\n</head>\n<body>\n<main>\n", style_sheet);
}

void hs_html_end(FILE *stream)
{
    fputs("</main>\n</body>\n</html>\n", stream);
}

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

/* ---- heat map ---- */

#define OPACITY_MOST 0.55

/* 0: the lowest, 1: the highest.  Linear, so that equal differences look equal. */
static double place(double value, double low, double high)
{
    return high > low || high < low ? fmin(fmax((value - low) / (high - low), 0), 1) : 0;
}

/* The cool hue fades to nothing in the middle, from where the warm one grows. */
static void write_cell(FILE *stream, const HsHeatMap *map, int row, int column, double low, double high)
{
    char figure[HS_HTML_FIGURE_BYTES];
    double value = map->values[row * map->columns + column];
    bool own = map->diagonal >= 0 && row - map->diagonal == column;
    fprintf(stream, "<td%s", own ? " class=\"own\"" : "");
    if (isfinite(value)) {
        double t = place(value, low, high), distance = fabs(2 * t - 1);
        fprintf(stream, " style=\"background:rgb(var(--%s) / %.3f)\"", t < 0.5 ? "cool" : "warm",
                OPACITY_MOST * distance);
    }
    fputs(" title=\"", stream);
    hs_html_text(stream, map->row_names[row]);
    fputs(" | ", stream);
    hs_html_text(stream, map->column_names[column]);
    hs_html_figure(value, figure);
    fprintf(stream, ": %s\">%s</td>", figure, figure);
}

void hs_html_heat_map(FILE *stream, const HsHeatMap *map)
{
    double low = map->low, high = map->high;
    if (isnan(low) || isnan(high)) {
        low = INFINITY;
        high = -INFINITY;
        for (int i = 0; i < map->rows * map->columns; i++) {
            if (isfinite(map->values[i])) {
                low = fmin(low, map->values[i]);
                high = fmax(high, map->values[i]);
            }
        }
    }
    fputs("<div class=\"scroll\" tabindex=\"0\" role=\"group\" aria-label=\"", stream);
    hs_html_text(stream, map->title);
    fputs("\">\n<table class=\"heat\">\n<caption>", stream);
    hs_html_text(stream, map->title);
    fputs("</caption>\n<thead><tr><td></td>", stream);
    for (int column = 0; column < map->columns; column++) {
        fputs("<th scope=\"col\"><span>", stream);
        hs_html_text(stream, map->column_names[column]);
        fputs("</span></th>", stream);
    }
    fputs("</tr></thead>\n<tbody>\n", stream);
    for (int row = 0; row < map->rows; row++) {
        fputs("<tr><th scope=\"row\"><span>", stream);
        hs_html_text(stream, map->row_names[row]);
        fputs("</span></th>", stream);
        for (int column = 0; column < map->columns; column++)
            write_cell(stream, map, row, column, low, high);
        fputs("</tr>\n", stream);
    }
    fputs("</tbody>\n</table>\n</div>\n", stream);
}
