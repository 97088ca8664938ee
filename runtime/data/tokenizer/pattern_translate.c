/* SPDX-License-Identifier: MIT
 *
 * From Oniguruma's expressions to PCRE2's.
 *
 * Only constructs that both read alike pass: alternatives, groups ( (?: (?i: and looks, classes without classes or
 * intersections inside, the quantifiers, general categories \p{L}, the script \p{Han}, and the escapes below.
 */
#include "runtime/data/tokenizer/pattern.h"

#include <ctype.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define WORD HS_WORD_CLASS "\\x{B2}\\x{B3}\\x{B9}\\x{BC}-\\x{BE}"

typedef struct Translation {
    const char *where;
    const char *at; /* not yet read */
    char *out;      /* not yet written */
    bool in_class;
} Translation;

static HsStatus refuse(const Translation *translation, const char *what, size_t length)
{
    return hs_fail(HS_EUNSUPPORTED, "%s: %.*s in an expression is not supported", translation->where, (int)length,
                   what);
}

static void copy(Translation *translation, size_t length)
{
    memcpy(translation->out, translation->at, length);
    translation->out += length;
    translation->at += length;
}

static void replace(Translation *translation, const char *text, size_t length)
{
    translation->out = stpcpy(translation->out, text);
    translation->at += length;
}

/* A general category, or the script Han: PCRE2's other scripts also count what is used with them. */
static HsStatus translate_property(Translation *translation)
{
    const char *at = translation->at;
    const char *close = at[2] == '{' ? strchr(at, '}') : NULL;
    size_t length = close ? (size_t)(close - at) - 3 : 0;
    if (length == 3 && strncmp(at + 3, "Han", 3) == 0) {
        replace(translation, at[1] == 'p' ? "\\p{sc:Han}" : "\\P{sc:Han}", length + 4);
        return HS_OK;
    }
    bool category =
        (length == 1 || length == 2) && strchr("LMNPSZC", at[3]) && (length == 1 || islower((unsigned char)at[4]));
    if (!category)
        return refuse(translation, at, close ? (size_t)(close - at) + 1 : 2);
    copy(translation, length + 4);
    return HS_OK;
}

/* White space and word characters become properties; Oniguruma's words also hold the superior digits and vulgar
 * fractions of Latin-1. */
static HsStatus translate_escape(Translation *translation)
{
    const char *at = translation->at;
    unsigned char letter = (unsigned char)at[1];
    if (letter == 'p' || letter == 'P')
        return translate_property(translation);
    if (letter == 's' || letter == 'S') {
        replace(translation, letter == 's' ? HS_SPACE : HS_NOT_SPACE, 2);
        return HS_OK;
    }
    if (letter == 'w' || (letter == 'W' && !translation->in_class)) {
        replace(translation, translation->in_class ? WORD : letter == 'w' ? "[" WORD "]" : "[^" WORD "]", 2);
        return HS_OK;
    }
    if (letter == '\0' || letter >= 0x80 || (isalnum(letter) && !strchr("rntfd", letter)))
        return refuse(translation, at, letter == '\0' ? 1 : 2);
    copy(translation, 2);
    return HS_OK;
}

/* After "(?" only groups, looks and case-insensitive groups mean the same to both. */
static HsStatus translate_group(Translation *translation)
{
    static const char *const openings[] = { "(?:", "(?i:", "(?!", "(?=", "(?<!", "(?<=", "(?>" };
    for (size_t i = 0; i < sizeof openings / sizeof openings[0]; i++) {
        size_t length = strlen(openings[i]);
        if (strncmp(translation->at, openings[i], length) == 0) {
            copy(translation, length);
            return HS_OK;
        }
    }
    return refuse(translation, translation->at, 3);
}

static HsStatus translate_one(Translation *translation)
{
    const char *at = translation->at;
    if (*at == '\\')
        return translate_escape(translation);
    if (translation->in_class) {
        if (*at == '[' || strncmp(at, "&&", 2) == 0) /* a class within, an intersection */
            return refuse(translation, at, *at == '[' ? 1 : 2);
        translation->in_class = *at != ']';
        copy(translation, 1);
        return HS_OK;
    }
    if (strncmp(at, "(?", 2) == 0)
        return translate_group(translation);
    /* Verbs; a quantified quantifier, possessive or lazy to one and repeated to the other; an open lower bound. */
    static const char *const ambiguous[] = { "(*", "}+", "}?", "{," };
    for (size_t i = 0; i < sizeof ambiguous / sizeof ambiguous[0]; i++)
        if (strncmp(at, ambiguous[i], 2) == 0)
            return refuse(translation, at, 2);
    if (*at == '[') {
        translation->in_class = true;
        size_t opening = at[1] == '^' ? 2 : 1;
        if (at[opening] == ']')
            return refuse(translation, at, opening + 1);
        copy(translation, opening);
        return HS_OK;
    }
    copy(translation, 1);
    return HS_OK;
}

HsStatus hs_pattern_translate(const char *where, const char *pattern, char **translated)
{
    /* The longest replacement, for two characters. */
    *translated = malloc(strlen(pattern) / 2 * sizeof "[^" WORD "]" + 2);
    if (!*translated)
        return hs_fail(HS_ENOMEM, "%s: out of memory", where);
    Translation translation = { where, pattern, *translated, false };
    HsStatus status = HS_OK;
    while (*translation.at && status == HS_OK)
        status = translate_one(&translation);
    *translation.out = '\0';
    if (status != HS_OK) {
        free(*translated);
        *translated = NULL;
    }
    return status;
}
