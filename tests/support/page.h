/* SPDX-License-Identifier: MIT
 *
 * A small strict reader of the pages that we write: every tag closed in its order, every attribute quoted, every "<"
 * the begin of a tag, every "&" that of a known escape, nothing fetched from elsewhere and no script.
 */
#ifndef HS_TESTS_SUPPORT_PAGE_H
#define HS_TESTS_SUPPORT_PAGE_H

#include <criterion/criterion.h>
#include <ctype.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

enum { PAGE_DEPTH = 64, PAGE_NAME = 24 };

static inline bool page_is_escape(const char *at)
{
    static const char *const known[] = { "&amp;", "&lt;", "&gt;", "&quot;", "&#39;", "&#xfffd;" };
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        if (strncmp(at, known[i], strlen(known[i])) == 0)
            return true;
    }
    return false;
}

/* Each of the parts is there. */
static inline void page_expect_held(const char *page, const char *const *held, size_t count)
{
    for (size_t i = 0; i < count; i++)
        cr_expect_not_null(strstr(page, held[i]), "%s", held[i]);
}
#define PAGE_EXPECT_HELD(page, held) page_expect_held(page, held, sizeof(held) / sizeof *(held))

/* NULL when well formed, else where it is not. */
static inline const char *page_fault(const char *text)
{
    char open[PAGE_DEPTH][PAGE_NAME];
    int depth = 0;
    static const char doctype[] = "<!DOCTYPE html>";
    const char *at = text;
    if (strncmp(at, doctype, strlen(doctype)) != 0)
        return at;
    for (at += strlen(doctype); *at;) {
        if (*at == '&' && !page_is_escape(at))
            return at;
        if (((unsigned char)*at < 0x20 && *at != '\n' && *at != '\t') || *at == 0x7f)
            return at;
        if (*at != '<') {
            at++;
            continue;
        }
        const char *tag = at++;
        bool closing = *at == '/';
        at += closing;
        char name[PAGE_NAME] = "";
        size_t length = 0;
        while (isalnum((unsigned char)*at) && length + 1 < sizeof name)
            name[length++] = *at++;
        if (length == 0)
            return tag;
        bool empty = strcmp(name, "meta") == 0;
        while (*at && *at != '>') {
            if (*at == '/' && at[1] == '>') {
                empty = true;
                at++;
            } else if (isspace((unsigned char)*at)) {
                at++;
            } else { /* name="value" */
                while (isalnum((unsigned char)*at) || *at == '-')
                    at++;
                if (closing || at[0] != '=' || at[1] != '"')
                    return at;
                for (at += 2; *at && *at != '"'; at++) {
                    if (*at == '<' || *at == '>' || (*at == '&' && !page_is_escape(at)))
                        return at;
                }
                if (!*at++)
                    return tag;
            }
        }
        if (*at++ != '>')
            return tag;
        if (closing) {
            if (depth == 0 || strcmp(open[--depth], name) != 0)
                return tag;
        } else if (!empty) {
            if (depth == PAGE_DEPTH)
                return tag;
            strcpy(open[depth++], name);
        }
    }
    return depth == 0 ? NULL : at;
}

static inline void page_expect_sound(const char *text)
{
    static const char *const foreign[] = { "http://", "https://", " src=", "href=", "url(", "@import", "<script" };
    const char *fault = page_fault(text);
    cr_expect_null(fault, "not well formed at byte %ld: %.80s", fault ? (long)(fault - text) : 0L, fault ? fault : "");
    for (size_t i = 0; i < sizeof foreign / sizeof *foreign; i++)
        cr_expect_null(strstr(text, foreign[i]), "%s", foreign[i]);
    cr_expect_null(strstr(text, "nan"), "%.60s", strstr(text, "nan"));
    cr_expect_null(strstr(text, "inf\""), "%.60s", strstr(text, "inf\""));
}

static inline int page_count(const char *text, const char *part)
{
    int count = 0;
    for (const char *at = strstr(text, part); at; at = strstr(at + 1, part))
        count++;
    return count;
}

#endif
