/* SPDX-License-Identifier: MIT
 *
 * Text that has become tokens, in a file of the cache (token_cache.h), or in memory where there is none.
 *
 *     header 1024 bytes | tokens, u16 or u32 | mask, a bit a token, where some do not count | documents, 64 bytes each
 *
 * A file is written under another name and takes its own when it is whole.  Its header says when it was changed last: a
 * file that was changed since is read whole, and used only if its checksum is right.
 */
#ifndef HS_RUNTIME_DATA_SOURCE_TOKEN_PART_H
#define HS_RUNTIME_DATA_SOURCE_TOKEN_PART_H

#include "runtime/data/source/encode.h"

enum { HS_PART_NEEDLES = 16, HS_PART_TITLE = 160 };

typedef struct HsPartKey {
    uint64_t low, high;
} HsPartKey;

/* What a part says of itself. */
typedef struct HsPartAbout {
    HsPartKey key;       /* of all parts of a group */
    int32_t index, last; /* which of them; whether it is the last */
    HsEncodingPlace from,
        next; /* where its text begins, and that of the one behind it; sources count from the group's */
    int64_t tokens, documents;
    int64_t text_bytes;                            /* of which they are made */
    int64_t pairs, chats;                          /* documents: with a prompt and a completion; conversations */
    int64_t known;                                 /* documents whose information content a generator knows */
    int64_t joined;                                /* documents that run together where no token ends them */
    int64_t unrendered_contents, quoted_arguments; /* as in HsCorpus */
    int64_t found_count;                           /* texts of validation that its texts hold: */
    uint64_t found[HS_PART_NEEDLES];
    int32_t width; /* bytes a token */
    int32_t masked;
    char title[HS_PART_TITLE]; /* which sources, for people */
} HsPartAbout;

/* An open part; all zero but for the descriptor, -1: none. */
typedef struct HsTokenPart {
    HsPartAbout about;
    char *path;     /* for messages */
    int descriptor; /* locked: it is in use */
    int64_t tokens_at, mask_at, documents_at, bytes;
} HsTokenPart;

/* The part that has the key, index and beginning of `wanted`.  *there: false where there is no such file, or it is damaged
 * or another; a damaged one is warned of.  verify: its checksum is looked at in any case.  errors: HS_EIO, HS_ENOMEM */
HsStatus hs_token_part_open(const char *path, const HsPartAbout *wanted, bool verify, HsTokenPart *part, bool *there);
/* What a file says of itself, for lists.  false: it is no part. */
bool hs_token_part_look(const char *path, HsPartAbout *about);
void hs_token_part_close(HsTokenPart *part);
/* Documents [first, first + count); `source` counts from the part's first source, `end` from its first token.
 * errors: HS_EIO */
HsStatus hs_token_part_documents(const HsTokenPart *part, int64_t first, int64_t count, HsEncodedDocument *documents);

typedef struct HsPartWriter HsPartWriter;
/* path NULL: in memory.  first_source: what its documents' sources count from.  errors: HS_EIO, HS_ENOMEM */
HsStatus hs_part_writer_create(const char *path, const HsPartAbout *about, int64_t vocabulary, int first_source,
                               HsPartWriter **writer);
HsStatus hs_part_writer_add(HsPartWriter *writer, const HsEncodedUnit *unit);
/* The whole file under its name, open.  ending: its members found, found_count, next and last are taken.  The writer is to
 * be destroyed still. */
HsStatus hs_part_writer_finish(HsPartWriter *writer, const HsPartAbout *ending, HsTokenPart *part);
/* Removes what was not finished. */
void hs_part_writer_destroy(HsPartWriter *writer);

#endif
