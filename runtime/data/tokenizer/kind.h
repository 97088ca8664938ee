/* SPDX-License-Identifier: MIT
 *
 * A row of the table of tokenizers, and what its files share.  Private to runtime/data/tokenizer*.c.
 */
#ifndef HS_RUNTIME_DATA_TOKENIZER_KIND_H
#define HS_RUNTIME_DATA_TOKENIZER_KIND_H

#include "runtime/data/tokenizer/bytes.h"
#include "runtime/data/tokenizer/tokenizer.h"
#include "runtime/io/json.h"

typedef struct HsTokenizerKind {
    const char *name;
    /* Make `state` from what hs_tokenizer_create was given. */
    HsStatus (*create)(HsTokenizer *tokenizer, const char *path, const char *text, size_t length);
    /* Make `state` from a parsed file; `text` is the file itself. */
    HsStatus (*parse)(HsTokenizer *tokenizer, const char *name, const HsJson *root, const char *text, size_t length);
    HsStatus (*write)(const HsTokenizer *tokenizer, FILE *stream);
    /* offset: of the text in what messages count bytes of */
    HsStatus (*encode)(const HsTokenizer *tokenizer, const char *text, size_t length, size_t offset, HsTokens *tokens);
    /* NULL: the tokens' bytes one after another. */
    HsStatus (*decode)(const HsTokenizer *tokenizer, const int32_t *tokens, int64_t count, HsBytes *text);
    const char *(*bytes)(const HsTokenizer *tokenizer, int32_t token, size_t *length);
    void (*destroy)(HsTokenizer *tokenizer); /* a state half made, or NULL, too */
    /* Of sessions; NULL, all: encode needs no scratch, and a text may be cut between any two characters. */
    HsStatus (*open)(const HsTokenizer *tokenizer, void **scratch);
    void (*close)(void *scratch); /* NULL too */
    HsStatus (*encode_more)(void *scratch, const char *text, size_t length, HsTokens *tokens);
    bool (*takes_parts)(const HsTokenizer *tokenizer);
    HsStatus (*encode_part)(void *scratch, const HsTextPart *part, HsTokens *tokens, size_t *used);
} HsTokenizerKind;

enum { HS_AROUND_MOST = 8 };

struct HsTokenizer {
    const HsTokenizerKind *kind;
    void *state;
    int64_t vocabulary;
    int64_t rows;        /* of the model, where these are fewer; 0: no limit */
    int32_t end_of_text; /* -1: none */
    /* Tokens that stand in front of a whole text, and behind it. */
    struct HsAround {
        int32_t ids[HS_AROUND_MOST];
        int count;
    } around[2];
};

extern const HsTokenizerKind hs_tokenizer_byte, hs_tokenizer_char, hs_tokenizer_bpe;

/* The name of our own small JSON files' first member: {"halfstep_tokenizer": 1, "kind": "char", ...}. */
#define HS_TOKENIZER_MARK "halfstep_tokenizer"

#define HS_END_OF_TEXT "<|endoftext|>"

/* The tokens from `from` on have rows of the model.  errors: HS_EFORMAT */
HsStatus hs_tokenizer_check_rows(const HsTokenizer *tokenizer, const HsTokens *tokens, int64_t from);
/* Appends the tokens' bytes one after another. */
HsStatus hs_tokenizer_join(const HsTokenizer *tokenizer, const int32_t *tokens, int64_t count, HsBytes *text);

/* GPT-2's reversible map from bytes to printable characters, in which tokenizer.json writes its tokens: 33-126, 161-172
 * and 174-255 stand for themselves, the others are 256, 257, ... in byte order. */
uint32_t hs_byte_map_character(unsigned char byte);
/* Mapped text back to bytes[length]; returns how many, or -1 when a character stands for no byte. */
long hs_byte_map_decode(const char *text, size_t length, char *bytes);

#endif
