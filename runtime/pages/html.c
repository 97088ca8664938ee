/* SPDX-License-Identifier: MIT
 *
 * Prints a page: its frame, and the blocks that are made of text; charts are html_*.c's.
 *
 * Colours are variables of the style sheet, given twice, for light and dark, so that no chart names a colour itself.
 * A heat map is a table: it can be read aloud, copied and scrolled on a narrow screen.  A cell's colour is one of two
 * hues over the card's background, its opacity at most 0.55: the text's contrast stays above 4.5 to 1 (WCAG 2.1, AA) in
 * both schemes.
 */
#include "runtime/pages/html.h"

#include <math.h>

#include "runtime/pages/html_chart.h"

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
    "dl.figures:last-child{margin-bottom:0}.scroll+dl.figures{margin-top:18px}\n"
    "table{border-collapse:collapse;font-variant-numeric:tabular-nums;font-size:.9rem}"
    "th,td{padding:7px 11px;text-align:right;white-space:nowrap;border-bottom:1px solid var(--line)}"
    "th{font-weight:600;color:var(--soft)}th[scope=row]{text-align:left;color:var(--ink)}"
    "thead tr:first-child th:first-child{text-align:left}.small{font-size:.82em}"
    "th span{display:inline-block;max-width:16em;overflow:hidden;text-overflow:ellipsis;vertical-align:bottom}\n"
    "table.heat{border-collapse:separate;border-spacing:3px}.heat th,.heat td{border:0}"
    ".heat td{min-width:74px;border-radius:5px;text-align:center;border:2px solid transparent}"
    ".heat td.own{border-color:var(--ink);font-weight:650}\n"
    ".heat th[scope=row]{position:sticky;left:0;background:var(--card)}"
    ".many{font-size:.74rem}.many td{min-width:34px}.many th,.many td{padding:3px 2px}.many thead th span{"
    "writing-mode:vertical-rl;max-width:none;max-height:11em}\n"
    "details{margin-top:14px}summary{cursor:pointer;color:var(--soft);font-weight:600;font-size:.92rem}"
    "details[open]>summary{margin-bottom:12px}\n"
    "table.texts td,.texts th{text-align:left;vertical-align:top}.texts td{white-space:pre-wrap;min-width:7em;"
    "max-width:24em;overflow-wrap:anywhere;font-family:ui-monospace,SFMono-Regular,Menlo,Consolas,monospace;"
    "font-size:.84rem}\n";

static const char chart_style[] =
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
    "table.heat{border-spacing:2px;font-size:.8rem}.heat th,.heat td{padding:4px 2px}.heat td{min-width:42px}"
    ".heat th[scope=row] span{max-width:8em}}\n"
    "@media print{body{background:none}section{break-inside:avoid}}\n";

/* ---- pieces ---- */

static void write_between(FILE *stream, const char *before, const char *text, const char *after)
{
    fputs(before, stream);
    hs_html_text(stream, text);
    fputs(after, stream);
}

/* A table may be wider than the page: a box that scrolls. */
static void begin_table(FILE *stream, const char *label, const char *table)
{
    write_between(stream, "<div class=\"scroll\" tabindex=\"0\" role=\"group\" aria-label=\"", label, "\">\n");
    fputs(table, stream);
}

static void end_table(FILE *stream)
{
    fputs("</tbody>\n</table>\n</div>\n", stream);
}

/* ---- heat map ---- */

#define OPACITY_MOST 0.55
/* More columns are narrow, their names on end, so that thirty tasks are seen at once on a wide screen. */
enum { COLUMNS_MOST = 8 };

/* 0: the lowest, 1: the highest.  Linear, so that equal differences look equal. */
static double place(double value, double low, double high)
{
    return high > low || high < low ? fmin(fmax((value - low) / (high - low), 0), 1) : 0;
}

/* The cool hue fades to nothing in the middle, from where the warm one grows. */
static void write_heat(FILE *stream, const HsHeatMap *map, int row, int column, double low, double high)
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
    fprintf(stream, ": %s\">", figure);
    if (map->columns > COLUMNS_MOST && isfinite(value))
        snprintf(figure, sizeof figure, fabs(value) < 10 ? "%.2f" : "%.1f", value);
    fprintf(stream, "%s</td>", figure);
}

static void write_heat_map(FILE *stream, const HsPageBlock *block)
{
    const HsHeatMap *map = block->chart;
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
    begin_table(stream, map->title,
                map->columns > COLUMNS_MOST ? "<table class=\"heat many\">\n" : "<table class=\"heat\">\n");
    write_between(stream, "<caption>", map->title, "</caption>\n<thead><tr><td></td>");
    for (int column = 0; column < map->columns; column++)
        write_between(stream, "<th scope=\"col\"><span>", map->column_names[column], "</span></th>");
    fputs("</tr></thead>\n<tbody>\n", stream);
    for (int row = 0; row < map->rows; row++) {
        write_between(stream, "<tr><th scope=\"row\"><span title=\"", map->row_names[row], "\">");
        write_between(stream, "", map->row_names[row], "</span></th>");
        for (int column = 0; column < map->columns; column++)
            write_heat(stream, map, row, column, low, high);
        fputs("</tr>\n", stream);
    }
    end_table(stream);
}

/* ---- lists ---- */

static void write_list(FILE *stream, const HsPageBlock *block)
{
    fputs("<ul>\n", stream);
    for (const HsPageItem *item = block->first; item; item = item->next)
        write_between(stream, "<li>", item->text, "</li>\n");
    fputs("</ul>\n", stream);
}

static void write_facts(FILE *stream, const HsPageBlock *block)
{
    fputs("<dl class=\"facts\">\n", stream);
    for (const HsPageItem *item = block->first; item; item = item->next) {
        write_between(stream, "<div><dt>", item->name, "</dt><dd>");
        write_between(stream, "", item->text, "</dd></div>\n");
    }
    fputs("</dl>\n", stream);
}

static void write_figures(FILE *stream, const HsPageBlock *block)
{
    fputs("<dl class=\"figures\">\n", stream);
    for (const HsPageItem *item = block->first; item; item = item->next) {
        write_between(stream, "<div><dt>", item->name, "</dt>");
        if (item->text)
            write_between(stream, "<dd class=\"value\">", item->text, "</dd>");
        if (item->doc)
            write_between(stream, "<dd>", item->doc, "</dd>");
        fputs("</div>\n", stream);
    }
    fputs("</dl>\n", stream);
}

/* ---- tables ---- */

/* Those under a group stand in a second row of titles, which is `second`. */
static const HsPageItem *write_titles(FILE *stream, const HsPageItem *item, bool grouped, bool second)
{
    int under = 0; /* columns of the group that are still to come */
    fputs("<tr>", stream);
    for (; item && (item->kind == HS_PAGE_COLUMN || item->kind == HS_PAGE_COLUMN_GROUP); item = item->next) {
        const bool is_group = item->kind == HS_PAGE_COLUMN_GROUP, is_under = under > 0;
        under = is_group ? item->columns : under - is_under;
        if (is_group && !second)
            fprintf(stream, "<th scope=\"colgroup\" colspan=\"%d\">", item->columns);
        else if (!is_group && is_under == second)
            fprintf(stream, "<th scope=\"col\"%s>", grouped && !second ? " rowspan=\"2\"" : "");
        else
            continue;
        write_between(stream, "", item->text, "</th>");
    }
    fputs("</tr>", stream);
    return item;
}

/* Lines stay lines, and their ends are seen. */
static void write_text_of_lines(FILE *stream, const char *text)
{
    char piece[2] = "";
    for (; *text; text++) {
        if (*text == '\n')
            fputs("<span class=\"soft\">\u21b5</span>", stream);
        piece[0] = *text;
        hs_html_text(stream, piece);
    }
}

static void write_cell(FILE *stream, const HsPageItem *item, bool of_texts)
{
    fputs(item->kind == HS_PAGE_ROW ? "<tr><th scope=\"row\">" : "<td>", stream);
    if (of_texts && item->kind != HS_PAGE_ROW)
        write_text_of_lines(stream, item->text);
    else
        hs_html_text(stream, item->text);
    if (item->behind)
        write_between(stream, " <span class=\"soft\">", item->behind, "</span>");
    if (item->below)
        write_between(stream, "<div class=\"soft small\">", item->below, "</div>");
    fputs(item->kind == HS_PAGE_ROW ? "</th>" : "</td>", stream);
}

static void write_table(FILE *stream, const HsPageBlock *block)
{
    const bool of_texts = block->kind == HS_PAGE_TABLE_OF_TEXTS;
    bool grouped = false, open = false;
    for (const HsPageItem *item = block->first; item; item = item->next)
        grouped = grouped || item->kind == HS_PAGE_COLUMN_GROUP;
    begin_table(stream, block->title, of_texts ? "<table class=\"texts\">\n<thead>" : "<table>\n<thead>");
    const HsPageItem *item = write_titles(stream, block->first, grouped, false);
    if (grouped) {
        fputs("\n", stream);
        write_titles(stream, block->first, true, true);
    }
    fputs("</thead>\n<tbody>\n", stream);
    for (; item; item = item->next) {
        if (open && item->kind == HS_PAGE_ROW)
            fputs("</tr>\n", stream);
        open = true;
        write_cell(stream, item, of_texts);
    }
    fputs(open ? "</tr>\n" : "", stream);
    end_table(stream);
}

/* ---- the page ---- */

static void write_heading(FILE *stream, const HsPageBlock *block)
{
    write_between(stream, "<h1>", block->title, "</h1>\n");
    write_between(stream, "<p class=\"soft\">", block->text, "</p>\n");
}

static void write_section(FILE *stream, const HsPageBlock *block)
{
    fputs("<section>\n", stream);
    if (block->title)
        write_between(stream, "<h2>", block->title, "</h2>\n");
    if (block->text)
        write_between(stream, "<p class=\"soft\">", block->text, "</p>\n");
}

static void write_paragraph(FILE *stream, const HsPageBlock *block)
{
    write_between(stream, "<p>", block->text, "</p>\n");
}

static void write_code(FILE *stream, const HsPageBlock *block)
{
    write_between(stream, "<div class=\"scroll\"><pre>", block->text, "</pre></div>\n");
}

static void write_fold(FILE *stream, const HsPageBlock *block)
{
    write_between(stream, "<details><summary>", block->title, "</summary>\n");
}

#define CHART(kind, print)                                   \
    static void kind(FILE *stream, const HsPageBlock *block) \
    {                                                        \
        print(stream, block->chart);                         \
    }
CHART(write_lines, hs_html_lines)
CHART(write_bars, hs_html_bars)
CHART(write_stacked_bars, hs_html_stacked_bars)
CHART(write_points, hs_html_points)
CHART(write_front, hs_html_front)
CHART(write_exponents, hs_html_exponents)

static void (*const writers[HS_PAGE_BLOCK_KINDS])(FILE *stream, const HsPageBlock *block) = {
    [HS_PAGE_HEADING] = write_heading,
    [HS_PAGE_SECTION] = write_section,
    [HS_PAGE_FOLD] = write_fold,
    [HS_PAGE_PARAGRAPH] = write_paragraph,
    [HS_PAGE_CODE] = write_code,
    [HS_PAGE_LIST] = write_list,
    [HS_PAGE_FACTS] = write_facts,
    [HS_PAGE_FIGURES] = write_figures,
    [HS_PAGE_TABLE] = write_table,
    [HS_PAGE_TABLE_OF_TEXTS] = write_table,
    [HS_PAGE_LINES] = write_lines,
    [HS_PAGE_BARS] = write_bars,
    [HS_PAGE_STACKED_BARS] = write_stacked_bars,
    [HS_PAGE_HEAT_MAP] = write_heat_map,
    [HS_PAGE_POINTS] = write_points,
    [HS_PAGE_FRONT] = write_front,
    [HS_PAGE_EXPONENTS] = write_exponents,
};

void hs_html_page(FILE *stream, const char *title, const HsPageBlock *blocks)
{
    bool open = false, folded = false;
    fputs("<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
          "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n",
          stream);
    write_between(stream, "<title>", title, "</title>\n");
    fprintf(stream, "<style>\n%s%s</style>\n</head>\n<body>\n<main>\n", style_sheet, chart_style);
    for (const HsPageBlock *block = blocks; block; block = block->next) {
        const bool section = block->kind == HS_PAGE_SECTION, fold = block->kind == HS_PAGE_FOLD;
        if (folded && (section || fold))
            fputs("</details>\n", stream);
        if (open && section)
            fputs("</section>\n", stream);
        open = open || section;
        folded = fold || (folded && !section);
        writers[block->kind](stream, block);
    }
    fprintf(stream, "%s%s</main>\n</body>\n</html>\n", folded ? "</details>\n" : "", open ? "</section>\n" : "");
}
