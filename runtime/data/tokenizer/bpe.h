/* SPDX-License-Identifier: MIT
 *
 * BPE as loaded: what bpe_load.c fills and bpe.c applies.
 *
 * A piece is a row of units, each of which begins as a token: bytes where the vocabulary is written in the byte map
 * (pre-tokenizer ByteLevel), else characters.
 */
#ifndef HS_RUNTIME_DATA_TOKENIZER_BPE_H
#define HS_RUNTIME_DATA_TOKENIZER_BPE_H

#include "runtime/data/tokenizer/detokenize.h"
#include "runtime/data/tokenizer/kind.h"
#include "runtime/data/tokenizer/map.h"
#include "runtime/data/tokenizer/normalize.h"
#include "runtime/data/tokenizer/pretokenize.h"

enum { HS_BPE_JOINT_BITS = 20 };

typedef struct HsBpeToken {
    size_t offset, length;                 /* its bytes in the middle of a text, in the pool */
    size_t written_offset, written_length; /* as the vocabulary writes it */
    bool used;                             /* ids may have holes */
    bool added;
} HsBpeToken;

/* A text that is one token wherever it stands, found before pre-tokenizing. */
typedef struct HsBpeAdded {
    int32_t id;
    bool single_word;    /* not next to a letter or digit */
    bool lstrip, rstrip; /* takes the white space before it, behind it */
} HsBpeAdded;

/* Added tokens by their bytes. */
typedef struct HsBpeTrie {
    struct HsBpeTrieNode {
        unsigned char byte;
        int32_t child, next; /* -1: none */
        int32_t added;       /* the added token that ends here; -1: none */
    } * nodes;
    size_t count, capacity;
    int32_t first[256]; /* node of a first byte; -1: none */
    size_t longest;     /* bytes */
} HsBpeTrie;

typedef struct HsBpe {
    char *source; /* the tokenizer.json, byte for byte */
    size_t source_length;
    HsBpeToken *tokens; /* [vocabulary] */
    size_t token_capacity;
    char *pool; /* bytes of all tokens */
    size_t pool_used, pool_capacity;
    bool byte_level;
    int32_t *unit_tokens;  /* [256 or 0x110000] unit -> its token + 1; 0: none */
    int32_t fallback[256]; /* the token "<0xNN>" of a byte; -1: none, or byte_fallback is off */
    int32_t unknown;       /* -1: none */
    bool fuse_unknown;
    HsMap merges;    /* {left id, right id} -> rank */
    int32_t *merged; /* [rank] the token that the pair becomes */
    size_t merge_count;
    unsigned char *joints; /* a bit for each hashed pair of units that stand side by side in some merged token */
    bool ignore_merges;    /* a whole piece in the vocabulary is that token */
    HsMap whole_pieces;    /* bytes -> id; filled when ignore_merges */
    HsBpeAdded *added;
    size_t added_count, added_capacity;
    HsBpeTrie tries[2];       /* [normalized]: looked for in the text as given, in the normalized text */
    HsPattern *word;          /* one letter, mark, digit ...; NULL: no added token asks for it */
    HsNormalizer *normalizer; /* NULL: none */
    HsPretokenizer *pretokenizer;
    HsDetokenizer *detokenizer;
    HsPatternBudget *budget;
} HsBpe;

/* Fill tokenizer->state from a parsed tokenizer.json. */
HsStatus hs_bpe_parse(HsTokenizer *tokenizer, const char *name, const HsJson *root, const char *text, size_t length);
/* The same of a file, with what the files next to it say of it (folder.h). */
HsStatus hs_bpe_parse_in_folder(HsTokenizer *tokenizer, const char *path, HsJson *root, const char *text,
                                size_t length);
void hs_bpe_destroy(HsTokenizer *tokenizer);

static inline const char *hs_bpe_token_bytes(const HsBpe *bpe, int32_t id, size_t *length)
{
    *length = bpe->tokens[id].length;
    return bpe->pool + bpe->tokens[id].offset;
}

/* The unit at the start of text -> *unit; returns its length in bytes.  A byte that is no UTF-8 is a separate unit,
 * above all characters. */
static inline size_t hs_bpe_unit(const HsBpe *bpe, const char *text, size_t length, uint32_t *unit)
{
    *unit = (unsigned char)*text;
    if (bpe->byte_level || *unit < 0x80)
        return 1;
    size_t size = hs_utf8_decode(text, length, unit);
    if (size == 0)
        *unit = 0x110000 + (uint32_t)(unsigned char)*text;
    return size > 0 ? size : 1;
}

static inline int32_t hs_bpe_unit_token(const HsBpe *bpe, uint32_t unit)
{
    return unit < 0x110000 ? bpe->unit_tokens[unit] - 1 : -1;
}

/* Where the pair's bit is.  Different pairs may share one: then a piece is cut less often, and never wrongly. */
static inline size_t hs_bpe_joint(uint32_t left, uint32_t right)
{
    return ((left * 0x9E3779B1u) ^ (right * 0x85EBCA6Bu)) >> (32 - HS_BPE_JOINT_BITS);
}

/* The model's part of a file. */
typedef struct HsBpeLoading {
    HsTokenizer *tokenizer;
    HsBpe *bpe;
    const char *name;
    HsMap ids;          /* token as written -> id */
    int64_t model_size; /* tokens of model.vocab */
    int32_t last_added; /* the highest id of an added token so far; -1: none */
    HsMatcher *matcher;
} HsBpeLoading;

/* Give an id its text. */
HsStatus hs_bpe_set_token(HsBpeLoading *loading, int32_t id, const char *written, size_t length);
/* An id from JSON: a whole number in range. */
HsStatus hs_bpe_read_id(const HsBpeLoading *loading, const HsJson *node, const char *token, int32_t *id);

/* bpe_added.c: tokenizer.json's added_tokens. */
HsStatus hs_bpe_load_added(HsBpeLoading *loading, const HsJson *list);
/* bpe_around.c: tokenizer.json's post_processor -> tokenizer->around. */
HsStatus hs_bpe_load_around(HsBpeLoading *loading, const HsJson *node);
/* A part of the text: an added token, or (NULL) what lies between two. */
typedef HsStatus HsBpePartFunction(void *context, const HsBpeAdded *added, size_t begin, size_t end);
/* Hand every part to `take`, in order.  normalized: which of the tokens are looked for.  limit: tokens that begin in
 * front of it are, which may end behind it; where none does, the last part ends there. */
HsStatus hs_bpe_cut_added(const HsBpe *bpe, bool normalized, HsMatcher *matcher, const char *text, size_t length,
                          size_t limit, HsBpePartFunction *take, void *context);
/* How far a part of a text is looked at: an added token may begin behind it.  open: the text does not end with it. */
size_t hs_bpe_limit(const HsBpeTrie *trie, const char *text, size_t length, bool open);

#endif
