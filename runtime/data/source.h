/* SPDX-License-Identifier: MIT
 *
 * Where training text comes from, before there are tokens.  Internal to runtime/data, its tests and its fuzzers.
 *
 *   names (files, folders, globs, synthetic:NAME) -> HsSourceList, sorted and flat
 *   each source -> pieces of one HsCorpus:  text pieces lie in `text`, pieces of token files in `tokens`
 *
 * The corpus is read whole before anything is encoded, because a char tokenizer is made from all of it.
 * Invariant: pieces are in order, and a document is a run of pieces of which only the last has ends_document.
 */
#ifndef HS_RUNTIME_DATA_SOURCE_H
#define HS_RUNTIME_DATA_SOURCE_H

#include <math.h>
#include <stdbool.h>

#include "runtime/config.h"
#include "runtime/data/tokenizer.h"

struct HsCorpus;
struct HsSource;
struct HsSourceOptions;

/* One row for each way to read a source: source.c holds the table. */
typedef struct HsSourceKind {
    const char *extension; /* with the dot; NULL: everything else is text */
    bool makes_tokens;     /* the source holds token numbers, not text */
    HsStatus (*parse)(const char *name, const char *bytes, size_t size, const struct HsSourceOptions *options,
                      struct HsCorpus *corpus);
} HsSourceKind;

typedef struct HsSource {
    char *name;               /* path, or synthetic:NAME */
    const HsSourceKind *kind; /* NULL: synthetic */
} HsSource;

typedef struct HsSourceList {
    HsSource *items;
    int count, capacity;
} HsSourceList;

/* Appends what `name` stands for.  Folders are read recursively without dot files; folders and globs are sorted by
 * byte order of the path.  errors: HS_EIO and HS_ECONFIG naming the path */
HsStatus hs_source_list_add(HsSourceList *list, const char *name);
void hs_source_list_deinit(HsSourceList *list);
bool hs_source_list_has_tokens(const HsSourceList *list);
/* The row for a path, by its extension; never NULL. */
const HsSourceKind *hs_source_kind_find(const char *path);

typedef struct HsPiece {
    size_t start, length;
    double nats;  /* information content when a generator knows it, else NAN; of whole documents only */
    int source;   /* which source, for messages */
    int64_t line; /* JSONL; 0: none */
    bool is_tokens;
    bool counted;       /* its tokens are targets */
    bool ends_document; /* an end-of-text token follows, where the tokenizer has one */
} HsPiece;

typedef struct HsCorpus {
    char *text;
    size_t text_length, text_capacity;
    HsTokens tokens;
    HsPiece *pieces;
    int64_t piece_count, piece_capacity;
    int source; /* given to the pieces that are added */
} HsCorpus;

typedef struct HsSourceOptions {
    const char *text_field, *prompt_field, *completion_field; /* JSONL */
    bool raw16;                                               /* token files without a header */
    int64_t vocabulary;                                       /* token files: tokens must be below it */
    uint64_t seed;                                            /* synthetic sources */
    int64_t synthetic_bytes;
} HsSourceOptions;

/* Reads one source and appends its pieces. */
HsStatus hs_source_read(const HsSource *source, const HsSourceOptions *options, HsCorpus *corpus);
HsStatus hs_corpus_add_text(HsCorpus *corpus, const char *text, size_t length, bool counted, bool ends_document,
                            int64_t line, double nats);
/* A piece of the tokens that were appended to corpus->tokens from `first` on. */
HsStatus hs_corpus_add_tokens(HsCorpus *corpus, int64_t first);
void hs_corpus_deinit(HsCorpus *corpus);

/* Parsers of bytes in memory: `name` stands for the file in messages.  errors: HS_EFORMAT with line or byte offset */
HsStatus hs_text_parse(const char *name, const char *bytes, size_t size, const HsSourceOptions *options,
                       HsCorpus *corpus);
HsStatus hs_jsonl_parse(const char *name, const char *bytes, size_t size, const HsSourceOptions *options,
                        HsCorpus *corpus);
HsStatus hs_token_file_parse(const char *name, const char *bytes, size_t size, const HsSourceOptions *options,
                             HsCorpus *corpus);

#endif
