/* SPDX-License-Identifier: MIT
 *
 * For tests of synthetic text: a reading point, what was paid for the choices read so far, and the comparison of that
 * sum with what the generator reported.  The parsers that use it know the languages, but none of the generators' code.
 */
#ifndef HS_TESTS_SUPPORT_TEXT_READER_H
#define HS_TESTS_SUPPORT_TEXT_READER_H

#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/data/dataset.h"
#include "runtime/data/synthetic/synthetic.h"

/* The reader: what is left of the text, and the nats of what was read. */
static const char *at;
static double nats;

/* A choice of weight w out of a total. */
static inline void pay(double weight, double total)
{
    nats -= log(weight / total);
}

static inline bool see(const char *text)
{
    return strncmp(at, text, strlen(text)) == 0;
}

static inline bool take(const char *text)
{
    if (!see(text))
        return false;
    at += strlen(text);
    return true;
}

static inline void need(const char *text)
{
    cr_assert(take(text), "expected `%s` at `%.40s`", text, at);
}

/* Synthetic text that ends with a zero byte.  The caller frees. */
static inline char *generate(const char *name, uint64_t seed, int64_t bytes, size_t *length, int64_t *documents,
                             double *told)
{
    char *text = NULL;
    cr_assert_eq(hs_synthetic_generate(name, seed, bytes, &text, length, documents, told), HS_OK);
    cr_assert_geq((int64_t)*length, bytes);
    text = realloc(text, *length + 1);
    cr_assert_not_null(text);
    text[*length] = '\0';
    return text;
}

/* Reads 100 kB of a source, a document at a time, and compares documents and floor. */
static inline void check_floor(const char *name, void (*read_document)(void))
{
    size_t length;
    int64_t documents, read_documents = 0;
    double told;
    char *text = generate(name, 7, 100000, &length, &documents, &told);
    at = text;
    nats = 0;
    while (*at) {
        read_document();
        read_documents++;
    }
    cr_expect_eq((size_t)(at - text), length, "%s: read to the end", name);
    cr_expect_eq(read_documents, documents, "%s: documents", name);
    /* Two sums of the same fewer than 2^18 terms in another order: each within 2^18 epsilon of the exact one. */
    cr_expect(fabs(nats - told) <= 0x1p-33 * told, "%s: decoded %.17g nats, reported %.17g", name, nats, told);
    free(text);
}

#endif
