/* SPDX-License-Identifier: MIT
 *
 * Pages: the blocks and the memory that holds what they show, all of which goes at once.
 */
#include "runtime/pages/page.h"

#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/io/storage.h"
#include "runtime/pages/html.h"
#include "runtime/pages/html_text.h"

enum { CHUNK_BYTES = 16384 };

typedef struct Chunk {
    struct Chunk *next;
    size_t used, bytes;
    max_align_t data[];
} Chunk;

struct HsPage {
    const char *title;
    HsPageBlock *first, *last;
    Chunk *chunks; /* the newest first */
    HsStatus status;
};

/* ---- memory ---- */

static Chunk *add_chunk(HsPage *page, size_t bytes)
{
    Chunk *chunk = malloc(sizeof *chunk + bytes);
    if (!chunk) {
        page->status = hs_fail(HS_ENOMEM, "no memory for the page %s", page->title);
        return NULL;
    }
    *chunk = (Chunk){ .next = page->chunks, .bytes = bytes };
    page->chunks = chunk;
    return chunk;
}

void *hs_page_room(HsPage *page, size_t count, size_t bytes)
{
    const size_t unit = sizeof(max_align_t);
    if (page->status != HS_OK)
        return NULL;
    if (bytes > 0 && count > (SIZE_MAX - unit) / bytes) {
        page->status = hs_fail(HS_ENOMEM, "no memory for the page %s", page->title);
        return NULL;
    }
    const size_t wanted = (count * bytes + unit) / unit * unit;
    Chunk *chunk = page->chunks;
    if (!chunk || chunk->bytes - chunk->used < wanted)
        chunk = add_chunk(page, wanted > CHUNK_BYTES ? wanted : CHUNK_BYTES);
    if (!chunk)
        return NULL;
    void *room = (char *)chunk->data + chunk->used;
    chunk->used += wanted;
    return memset(room, 0, wanted);
}

static void *copy_of(HsPage *page, const void *from, size_t count, size_t bytes)
{
    void *room = from ? hs_page_room(page, count, bytes) : NULL;
    return room && count * bytes > 0 ? memcpy(room, from, count * bytes) : room;
}

/* "" where there is no memory. */
static const char *print(HsPage *page, const char *format, va_list arguments)
{
    va_list again;
    va_copy(again, arguments);
    const int length = vsnprintf(NULL, 0, format, arguments);
    char *text = length < 0 ? NULL : hs_page_room(page, (size_t)length + 1, 1);
    if (text)
        vsnprintf(text, (size_t)length + 1, format, again);
    va_end(again);
    return text ? text : "";
}

/* `text` becomes what the function that names this was asked to print. */
#define PRINT(page, text, format)                \
    do {                                         \
        va_list arguments;                       \
        va_start(arguments, format);             \
        (text) = print(page, format, arguments); \
        va_end(arguments);                       \
    } while (0)

const char *hs_page_print(HsPage *page, const char *format, ...)
{
    const char *text;
    PRINT(page, text, format);
    return text;
}

const char *hs_page_words(HsPage *page, const char *name)
{
    char *text = copy_of(page, name, strlen(name) + 1, 1);
    for (char *at = text; at && *at; at++)
        *at = *at == '_' ? ' ' : *at;
    return text ? text : "";
}

/* ---- blocks ---- */

static void add_block(HsPage *page, HsPageBlock block)
{
    HsPageBlock *added = copy_of(page, &block, 1, sizeof block);
    if (!added)
        return;
    *(page->last ? &page->last->next : &page->first) = added;
    page->last = added;
}

/* To the latest block, which is of the kind that has such items. */
static void add_item(HsPage *page, HsPageItem item)
{
    HsPageItem *added = copy_of(page, &item, 1, sizeof item);
    if (!added)
        return;
    *(page->last->last ? &page->last->last->next : &page->last->first) = added;
    page->last->last = added;
}

void hs_page_heading(HsPage *page, const char *title, const char *format, ...)
{
    HsPageBlock block = { .kind = HS_PAGE_HEADING, .title = title };
    PRINT(page, block.text, format);
    add_block(page, block);
}

void hs_page_section(HsPage *page, const char *title, const char *format, ...)
{
    HsPageBlock block = { .kind = HS_PAGE_SECTION, .title = title };
    PRINT(page, block.text, format);
    add_block(page, block);
}

void hs_page_bare_section(HsPage *page, const char *title)
{
    add_block(page, (HsPageBlock){ .kind = HS_PAGE_SECTION, .title = title });
}

void hs_page_fold(HsPage *page, const char *title)
{
    add_block(page, (HsPageBlock){ .kind = HS_PAGE_FOLD, .title = title });
}

void hs_page_paragraph(HsPage *page, const char *format, ...)
{
    HsPageBlock block = { .kind = HS_PAGE_PARAGRAPH };
    PRINT(page, block.text, format);
    add_block(page, block);
}

void hs_page_code(HsPage *page, const char *text)
{
    add_block(page, (HsPageBlock){ .kind = HS_PAGE_CODE, .text = copy_of(page, text, strlen(text) + 1, 1) });
}

void hs_page_list(HsPage *page)
{
    add_block(page, (HsPageBlock){ .kind = HS_PAGE_LIST });
}

void hs_page_item(HsPage *page, const char *format, ...)
{
    HsPageItem item = { .kind = HS_PAGE_ITEM };
    PRINT(page, item.text, format);
    add_item(page, item);
}

void hs_page_facts(HsPage *page)
{
    add_block(page, (HsPageBlock){ .kind = HS_PAGE_FACTS });
}

void hs_page_fact(HsPage *page, const char *name, const char *format, ...)
{
    HsPageItem item = { .kind = HS_PAGE_ITEM, .name = name };
    PRINT(page, item.text, format);
    if (item.text[0])
        add_item(page, item);
}

void hs_page_figures(HsPage *page)
{
    add_block(page, (HsPageBlock){ .kind = HS_PAGE_FIGURES });
}

void hs_page_figure(HsPage *page, const char *name, const char *value, const char *doc)
{
    HsPageItem item = { .kind = HS_PAGE_ITEM, .name = name, .doc = doc };
    if (value)
        item.text = hs_page_print(page, "%s", value);
    add_item(page, item);
}

/* ---- tables ---- */

void hs_page_table(HsPage *page, const char *label)
{
    add_block(page, (HsPageBlock){ .kind = HS_PAGE_TABLE, .title = label });
}

void hs_page_table_of_texts(HsPage *page, const char *label)
{
    add_block(page, (HsPageBlock){ .kind = HS_PAGE_TABLE_OF_TEXTS, .title = label });
}

void hs_page_columns(HsPage *page, const char *const *titles, int count)
{
    for (int i = 0; i < count; i++)
        add_item(page, (HsPageItem){ .kind = HS_PAGE_COLUMN, .text = titles[i] });
}

void hs_page_column_group(HsPage *page, const char *title, int count)
{
    add_item(page, (HsPageItem){ .kind = HS_PAGE_COLUMN_GROUP, .text = title, .columns = count });
}

void hs_page_row(HsPage *page, const char *name)
{
    add_item(page, (HsPageItem){ .kind = HS_PAGE_ROW, .text = name });
}

void hs_page_cell(HsPage *page, const char *format, ...)
{
    HsPageItem item = { .kind = HS_PAGE_ITEM };
    PRINT(page, item.text, format);
    add_item(page, item);
}

void hs_page_real(HsPage *page, const char *format, double value)
{
    char text[64] = "\u2013";
    if (isfinite(value))
        snprintf(text, sizeof text, format, value);
    hs_page_cell(page, "%s", text);
}

void hs_page_behind(HsPage *page, const char *format, ...)
{
    const char *text;
    PRINT(page, text, format);
    if (page->status == HS_OK)
        page->last->last->behind = text;
}

void hs_page_below(HsPage *page, const char *format, ...)
{
    const char *text;
    PRINT(page, text, format);
    if (page->status == HS_OK)
        page->last->last->below = text;
}

void hs_page_mean(HsPage *page, double mean, double spread)
{
    char text[HS_HTML_FIGURE_BYTES];
    hs_page_cell(page, "%s", hs_html_figure(mean, text));
    if (!isnan(spread))
        hs_page_behind(page, "\u00b1 %s", hs_html_figure(spread, text));
}

/* ---- charts ---- */

#define COPY(page, array, count) copy_of(page, array, (size_t)(count), sizeof *(array))

static void add_chart(HsPage *page, HsPageBlockKind kind, const void *chart, size_t bytes)
{
    add_block(page, (HsPageBlock){ .kind = kind, .chart = copy_of(page, chart, 1, bytes) });
}

void hs_page_lines(HsPage *page, const HsLineChart *chart)
{
    HsLineChart own = *chart;
    own.series = COPY(page, chart->series, chart->series_count);
    own.marks = COPY(page, chart->marks, chart->mark_count);
    add_chart(page, HS_PAGE_LINES, &own, sizeof own);
}

void hs_page_bars(HsPage *page, const HsBarChart *chart)
{
    HsBarChart own = *chart;
    own.names = COPY(page, chart->names, chart->count);
    own.values = COPY(page, chart->values, chart->count);
    own.spreads = COPY(page, chart->spreads, chart->count);
    add_chart(page, HS_PAGE_BARS, &own, sizeof own);
}

void hs_page_stacked_bars(HsPage *page, const HsStackedBars *chart)
{
    HsStackedBars own = *chart;
    own.names = COPY(page, chart->names, chart->rows);
    own.parts = COPY(page, chart->parts, chart->part_count);
    own.values = COPY(page, chart->values, chart->rows * chart->part_count);
    add_chart(page, HS_PAGE_STACKED_BARS, &own, sizeof own);
}

void hs_page_heat_map(HsPage *page, const HsHeatMap *map)
{
    HsHeatMap own = *map;
    own.row_names = COPY(page, map->row_names, map->rows);
    own.column_names = COPY(page, map->column_names, map->columns);
    own.values = COPY(page, map->values, map->rows * map->columns);
    add_chart(page, HS_PAGE_HEAT_MAP, &own, sizeof own);
}

void hs_page_points(HsPage *page, const HsPointChart *chart)
{
    HsPointChart own = *chart;
    own.points = COPY(page, chart->points, chart->count);
    add_chart(page, HS_PAGE_POINTS, &own, sizeof own);
}

void hs_page_front(HsPage *page, const HsFrontChart *chart)
{
    HsFrontChart own = *chart;
    own.marks = COPY(page, chart->marks, chart->count);
    own.series = COPY(page, chart->series, chart->series_count);
    for (int i = 0; i < 2; i++)
        own.line[i] = COPY(page, chart->line[i], chart->line_count[i]);
    add_chart(page, HS_PAGE_FRONT, &own, sizeof own);
}

void hs_page_exponents(HsPage *page, const HsExponentChart *chart)
{
    HsExponentChart own = *chart;
    own.series = COPY(page, chart->series, chart->count);
    add_chart(page, HS_PAGE_EXPONENTS, &own, sizeof own);
}

/* ---- the file ---- */

static HsStatus print_page(FILE *stream, const void *user)
{
    const HsPage *page = user;
    hs_html_page(stream, page->title, page->first);
    return HS_OK;
}

static HsStatus fill_page(HsPage *page, const char *title, HsPageFill fill, const void *user)
{
    *page = (HsPage){ .title = title, .status = HS_OK };
    const HsStatus status = fill(page, user);
    return status == HS_OK ? page->status : status;
}

static void free_page(HsPage *page)
{
    while (page->chunks) {
        Chunk *next = page->chunks->next;
        free(page->chunks);
        page->chunks = next;
    }
}

HsStatus hs_page_write(const char *path, const char *title, HsPageFill fill, const void *user)
{
    HsPage page;
    HsStatus status = fill_page(&page, title, fill, user);
    if (status == HS_OK)
        status = hs_storage_replace_printed(path, print_page, &page);
    free_page(&page);
    return status;
}

HsStatus hs_page_print_on(FILE *stream, const char *title, HsPageFill fill, const void *user)
{
    HsPage page;
    HsStatus status = fill_page(&page, title, fill, user);
    if (status == HS_OK)
        status = print_page(stream, &page);
    free_page(&page);
    return status;
}
