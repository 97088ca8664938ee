/* SPDX-License-Identifier: MIT
 *
 * Sources to tokens: read, encoded and handed out in order, by several threads, a unit of about a megabyte at a time
 * (units.h).  Tokens do not depend on the number of threads.
 */
#ifndef HS_RUNTIME_DATA_SOURCE_ENCODE_H
#define HS_RUNTIME_DATA_SOURCE_ENCODE_H

#include "runtime/data/source/source.h"

/* A document, where it ends, or a whole token file. */
typedef struct HsEncodedDocument {
    int64_t end;          /* tokens of the unit up to its end, the end-of-text token among them */
    int64_t prompt;       /* tokens of a prompt that stands in front of a completion, which may be empty */
    int64_t bytes;        /* of its text, from its beginning on, which may lie in an earlier unit */
    uint64_t hash;        /* of these bytes: equal texts have equal ones */
    uint64_t prompt_hash; /* of the prompt's, where both are something; 0: they are not */
    int source;           /* number in the list */
    double nats;          /* information content when a generator knows it, else NAN */
    bool ends;            /* an end-of-text token belongs behind it, where the tokenizer has one */
    bool is_chat, is_tokens, is_text_file;
    bool masked; /* some of its tokens do not count */
} HsEncodedDocument;

/* What is borrowed is valid during the call. */
typedef struct HsEncodedUnit {
    const HsSource *from;
    int source; /* number in the list */
    const int32_t *tokens;
    int64_t count;
    const uint8_t *mask; /* [count] 1: counts as a target; NULL: all do */
    const HsEncodedDocument *documents;
    int64_t document_count; /* that end in the unit; tokens behind the last belong to one that ends later */
    int64_t bytes;          /* of text */
    int64_t unrendered_contents, quoted_arguments; /* as in HsCorpus */
} HsEncodedUnit;

/* Where encoding may begin again. */
typedef struct HsEncodingPlace {
    HsUnitPlace unit;
    int64_t text_bytes; /* of the text that it lies in: what is known of it up to there */
    uint64_t text_hash;
} HsEncodingPlace;

typedef struct HsEncoding {
    const HsSourceList *sources;
    int first, last;             /* sources [first, last) */
    const HsEncodingPlace *from; /* NULL: from the first source's beginning */
    int64_t most;                /* ends where this many bytes of text are encoded, if it may; 0: no limit */
    HsEncodingPlace *reached;    /* where it ended, unit.source `last` behind all; NULL: not asked for */
    const HsTokenizer *tokenizer;
    /* How a source is read; what generated text depends on is in it. */
    HsSourceOptions (*options)(const void *user, int source);
    bool with_ends; /* the end-of-text token of a document is among its tokens */
    int threads;    /* 0: as many as this process may use */
    HsStatus (*take)(void *user, const HsEncodedUnit *unit);
    /* Shown each part of a text, with some of what follows, by any thread; NULL: not so */
    void (*look)(void *user, int source, const char *text, size_t length);
    void *user;
    struct HsSourceProgress *progress; /* of several encodings; NULL: this one's, if `what` is given */
    const char *what; /* "tokenizing": what a line of progress says where it takes long; NULL: none is printed */
} HsEncoding;

/* Hands every unit to `take`, in order; stops at its first failure.
 * errors: the sources', and the tokenizer's with file and line */
HsStatus hs_sources_encode(const HsEncoding *encoding);

/* The code points of all text, a bit each: [HS_CODE_POINTS / 8] bytes, to which they are added.
 * errors: the sources' */
enum { HS_CODE_POINTS = 0x110000 };
HsStatus hs_sources_characters(const HsEncoding *encoding, uint8_t *present);

#endif
