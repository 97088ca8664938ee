/* SPDX-License-Identifier: MIT
 *
 * Normalized text to pieces, before merges within each: tokenizer.json's `pre_tokenizer`.
 *
 *   text -> runs of valid UTF-8 | runs of other bytes -> stage 1 -> stage 2 ... -> pieces
 *
 * A stage may rewrite spaces (Metaspace), put one in front (Metaspace, ByteLevel), and cuts what it is given at the
 * matches of a pattern; its behavior says to which side a match goes, or that it is dropped.
 * Bytes that are not UTF-8 become separate pieces and pass through unchanged.
 * Anything in the file that would be done differently here than there is HS_EUNSUPPORTED by name.
 */
#ifndef HS_RUNTIME_DATA_TOKENIZER_PRETOKENIZE_H
#define HS_RUNTIME_DATA_TOKENIZER_PRETOKENIZE_H

#include "runtime/data/tokenizer/pattern.h"

typedef struct HsPretokenizer HsPretokenizer;

/* From the member of a tokenizer.json; absent or null: no stage, the whole text is a piece.  name: the file. */
HsStatus hs_pretokenizer_create(const char *name, const HsJson *node, HsPretokenizer **pretokenizer);
/* GPT-2's, without a file. */
HsStatus hs_pretokenizer_create_gpt2(HsPretokenizer **pretokenizer);
void hs_pretokenizer_destroy(HsPretokenizer *pretokenizer);

/* Whether the vocabulary is written in the byte map: the last stage is ByteLevel. */
bool hs_pretokenizer_is_byte_level(const HsPretokenizer *pretokenizer);

typedef HsStatus HsPieceFunction(void *context, const char *piece, size_t length);

/* Hand every piece to `take`, in order; stops at its first failure.  at_start: the text is the beginning of what the
 * user gave, nothing was cut off before it.  May be called from several threads, each with its own matcher. */
HsStatus hs_pretokenizer_split(const HsPretokenizer *pretokenizer, HsMatcher *matcher, const char *text, size_t length,
                               bool at_start, HsPieceFunction *take, void *context);

/* Whether a text may be split in parts: its first cuts are by expressions that do not look back, and nothing is put in
 * front of it. */
bool hs_pretokenizer_takes_parts(const HsPretokenizer *pretokenizer);

/* Whether it never cuts, and only puts something in front of a text and in place of its spaces; `spaces`: there may be
 * some, a normalizer has not replaced them. */
bool hs_pretokenizer_only_rewrites(const HsPretokenizer *pretokenizer, bool spaces);
/* What such a one makes of a space; NULL: a space. */
const char *hs_pretokenizer_space(const HsPretokenizer *pretokenizer);

typedef struct HsPartSplit {
    const char *text; /* UTF-8, from a border of its text on */
    size_t length;
    bool at_start;
    bool open;                               /* more follows, and pieces that it could change are held back */
    HsPieceFunction *take;                   /* NULL: borders alone are wanted */
    bool (*stops)(void *context, size_t at); /* whether the border behind the bytes [0, at) is the last one wanted */
    void *context;
} HsPartSplit;
/* As hs_pretokenizer_split up to the first border where `stops` says so, if there is one.  Only where
 * hs_pretokenizer_takes_parts. */
HsStatus hs_pretokenizer_split_part(const HsPretokenizer *pretokenizer, HsMatcher *matcher, const HsPartSplit *part);

#endif
