/* SPDX-License-Identifier: MIT
 *
 * Text to tokens and back: byte, character, BPE.  Rows of one table (tokenizer.c), one file each.
 */
#ifndef HS_RUNTIME_DATA_TOKENIZER_TOKENIZER_H
#define HS_RUNTIME_DATA_TOKENIZER_TOKENIZER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "kernels/base/status.h"
#include "runtime/config/config.h"
#include "runtime/io/json.h"

typedef struct HsTokenizer HsTokenizer;

typedef struct HsTokens { /* growable; grows inside encode */
    int32_t *items;
    int64_t count, capacity;
} HsTokens;
/* Room for `more` tokens beyond count.  errors: HS_ENOMEM */
HsStatus hs_tokens_reserve(HsTokens *tokens, int64_t more);
void hs_tokens_deinit(HsTokens *tokens);

/* kind "byte" | "char" | "bpe".  char: `text` is the training text (UTF-8), its sorted code points are the vocabulary.
 * bpe: `path` is a Hugging Face tokenizer.json.  Unused arguments may be NULL. */
HsStatus hs_tokenizer_create(const char *kind, const char *path, const char *text, size_t text_length,
                             HsTokenizer **tokenizer);
/* From a file written by hs_tokenizer_save (any kind). */
HsStatus hs_tokenizer_load(const char *path, HsTokenizer **tokenizer);
HsStatus hs_tokenizer_parse(const char *name, const char *json, size_t length, HsTokenizer **tokenizer);
/* byte and char: our small JSON; bpe: the tokenizer.json it came from, byte for byte. */
HsStatus hs_tokenizer_save(const HsTokenizer *tokenizer, const char *path);
/* As a tokenizer.json of Hugging Face's, with equal ids, whatever the kind: a file, or its tree, which the caller
 * destroys.  errors: HS_EIO, HS_ENOMEM */
HsStatus hs_tokenizer_publish(const HsTokenizer *tokenizer, const char *path);
HsStatus hs_tokenizer_published(const HsTokenizer *tokenizer, HsJson **root);
/* The first way in which such a tree cuts text into pieces: its pre-tokenizer, or the first stage of it; and the
 * expression by which that does; NULL where there is none. */
const HsJson *hs_published_cut(const HsJson *root);
const char *hs_published_expression(const HsJson *root);
/* The expression by which Qwen's tokenizers cut text into pieces. */
#define HS_QWEN_EXPRESSION                                                                     \
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[" \
    "\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
/* Whether it is a tokenizer.json that cuts text into pieces by the expression of Qwen's.  errors: HS_ENOMEM */
HsStatus hs_tokenizer_is_qwen(const HsTokenizer *tokenizer, bool *is_qwen);
/* Of all that its tokens follow from: equal tokenizers have equal ones.  errors: HS_ENOMEM */
HsStatus hs_tokenizer_hash(const HsTokenizer *tokenizer, uint64_t *hash);
void hs_tokenizer_destroy(HsTokenizer *tokenizer);

const char *hs_tokenizer_kind(const HsTokenizer *tokenizer);
int64_t hs_tokenizer_vocabulary(const HsTokenizer *tokenizer);
/* Token put between documents; -1 when none is known (char, and a tokenizer.json that has none of the usual names). */
int32_t hs_tokenizer_end_of_text(const HsTokenizer *tokenizer);
/* Makes the token with this text that one; "" leaves it as it is.  A saved tokenizer does not keep it: the
 * configuration does (tokenizer.end_of_text).  errors: HS_ECONFIG when no token has the text */
HsStatus hs_tokenizer_set_end_of_text(HsTokenizer *tokenizer, const char *text);
/* As a configuration has it: its end of text, and where weights were given (init_from) no more tokens than these have
 * rows: text that makes one beyond them is an error, as many tokenizers have tokens that no text makes.
 * errors: HS_ECONFIG as above */
HsStatus hs_tokenizer_settle(HsTokenizer *tokenizer, const HsConfig *config);

/* Appends.  Without special tokens around the text: a tokenizer.json's post_processor is not applied, as with
 * add_special_tokens=False in the library that writes such files.  The text may hold bytes that are not UTF-8.
 * errors: HS_EFORMAT for a character that has no token (char; bpe without byte_fallback and unk_token), with its byte
 * offset (char); HS_EUNSUPPORTED when an expression of the file takes too long on this text */
HsStatus hs_tokenizer_encode(const HsTokenizer *tokenizer, const char *text, size_t length, HsTokens *tokens);

/* One thread's scratch for many texts: what it has met before it looks up.  The tokenizer outlives it. */
typedef struct HsTokenizerSession HsTokenizerSession;
HsStatus hs_tokenizer_session_create(const HsTokenizer *tokenizer, HsTokenizerSession **session);
void hs_tokenizer_session_destroy(HsTokenizerSession *session);
const HsTokenizer *hs_tokenizer_session_of(const HsTokenizerSession *session);
/* As hs_tokenizer_encode. */
HsStatus hs_tokenizer_session_encode(HsTokenizerSession *session, const char *text, size_t length, HsTokens *tokens);

/* A text that is encoded in parts, so that it need not be in memory whole, and by several threads: each part begins at
 * a border, where no token reaches across, and the tokens of all are those of the text. */
typedef struct HsTextPart {
    const char *text; /* UTF-8, from a border on */
    size_t length;
    size_t least;     /* the part ends at the first border from here on; at least 1 */
    bool first, last; /* begins, ends the text */
    size_t offset;    /* in what messages count bytes of */
} HsTextPart;
/* Whether this tokenizer's texts can be. */
bool hs_tokenizer_takes_parts(const HsTokenizer *tokenizer);
/* Appends the tokens of [0, *used): up to that border, or the text's end.  *used 0: more text has to be seen before
 * there is one.  tokens NULL: the border alone is wanted.  errors: as hs_tokenizer_encode's */
HsStatus hs_tokenizer_session_encode_part(HsTokenizerSession *session, const HsTextPart *part, HsTokens *tokens,
                                          size_t *used);

/* All of a text's tokens -> *text[*length], which the caller frees; special tokens read as they are written, ids that
 * stand for nothing are left out.  For bpe by the file's `decoder`, which may drop a space at the start (detokenize.h).
 * errors: HS_ENOMEM, HS_EUNSUPPORTED as encode's */
HsStatus hs_tokenizer_decode(const HsTokenizer *tokenizer, const int32_t *tokens, int64_t count, char **text,
                             size_t *length);
/* With the special tokens that its file puts around a text (a tokenizer.json's post_processor, as for one sequence with
 * add_special_tokens=True there): Llama's and Mistral's begin with one.  errors: as encode's */
HsStatus hs_tokenizer_encode_whole(const HsTokenizer *tokenizer, const char *text, size_t length, HsTokens *tokens);
/* Those in front alone. */
HsStatus hs_tokenizer_append_begin(const HsTokenizer *tokenizer, HsTokens *tokens);
/* The first of them; -1: there is none. */
int32_t hs_tokenizer_begin_of_text(const HsTokenizer *tokenizer);
/* UTF-8 bytes of one token in the middle of a text: borrowed, may be a partial character. */
const char *hs_tokenizer_bytes(const HsTokenizer *tokenizer, int32_t token, size_t *length);

#endif
