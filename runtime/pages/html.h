/* SPDX-License-Identifier: MIT
 *
 * A page's blocks as page.c collects them and html.c prints them; private to these.
 */
#ifndef HS_RUNTIME_PAGES_HTML_H
#define HS_RUNTIME_PAGES_HTML_H

#include <stdio.h>

#include "runtime/pages/page.h"

typedef enum HsPageBlockKind {
    HS_PAGE_HEADING,
    HS_PAGE_SECTION,
    HS_PAGE_FOLD,
    HS_PAGE_PARAGRAPH,
    HS_PAGE_CODE,
    HS_PAGE_LIST,
    HS_PAGE_FACTS,
    HS_PAGE_FIGURES,
    HS_PAGE_TABLE,
    HS_PAGE_TABLE_OF_TEXTS,
    HS_PAGE_LINES,
    HS_PAGE_BARS,
    HS_PAGE_STACKED_BARS,
    HS_PAGE_HEAT_MAP,
    HS_PAGE_POINTS,
    HS_PAGE_FRONT,
    HS_PAGE_EXPONENTS,
    HS_PAGE_BLOCK_KINDS
} HsPageBlockKind;

/* A fact, a figure, an item of a list; in tables a title, a row's name, a cell. */
typedef enum HsPageItemKind { HS_PAGE_ITEM, HS_PAGE_COLUMN, HS_PAGE_COLUMN_GROUP, HS_PAGE_ROW } HsPageItemKind;

typedef struct HsPageItem {
    struct HsPageItem *next;
    HsPageItemKind kind;
    const char *name, *text, *doc; /* NULL: none */
    const char *behind, *below;    /* softly, of a cell; NULL: none */
    int columns;                   /* of a group */
} HsPageItem;

typedef struct HsPageBlock {
    struct HsPageBlock *next;
    HsPageBlockKind kind;
    const char *title, *text; /* NULL: none */
    HsPageItem *first, *last;
    const void *chart; /* the struct of its kind: HsLineChart, ... */
} HsPageBlock;

/* Doctype, title and style sheet; the blocks; the end. */
void hs_html_page(FILE *stream, const char *title, const HsPageBlock *blocks);

#endif
