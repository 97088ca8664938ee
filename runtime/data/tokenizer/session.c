/* SPDX-License-Identifier: MIT
 *
 * Sessions: a tokenizer with one thread's scratch, for many texts and for parts of long ones.
 */
#include <stdlib.h>

#include "runtime/data/tokenizer/kind.h"
#include "runtime/io/utf8.h"

struct HsTokenizerSession {
    const HsTokenizer *tokenizer;
    void *scratch;
};

HsStatus hs_tokenizer_session_create(const HsTokenizer *tokenizer, HsTokenizerSession **session)
{
    HsTokenizerSession *made = *session = calloc(1, sizeof *made);
    if (!made)
        return hs_fail(HS_ENOMEM, "out of memory while tokenizing");
    made->tokenizer = tokenizer;
    HsStatus status = tokenizer->kind->open ? tokenizer->kind->open(tokenizer, &made->scratch) : HS_OK;
    if (status != HS_OK) {
        hs_tokenizer_session_destroy(made);
        *session = NULL;
    }
    return status;
}

void hs_tokenizer_session_destroy(HsTokenizerSession *session)
{
    if (session && session->tokenizer->kind->close)
        session->tokenizer->kind->close(session->scratch);
    free(session);
}

const HsTokenizer *hs_tokenizer_session_of(const HsTokenizerSession *session)
{
    return session->tokenizer;
}

HsStatus hs_tokenizer_session_encode(HsTokenizerSession *session, const char *text, size_t length, HsTokens *tokens)
{
    const HsTokenizer *tokenizer = session->tokenizer;
    const int64_t before = tokens->count;
    HS_TRY(session->scratch ? tokenizer->kind->encode_more(session->scratch, text, length, tokens)
                            : tokenizer->kind->encode(tokenizer, text, length, 0, tokens));
    return hs_tokenizer_check_rows(tokenizer, tokens, before);
}

bool hs_tokenizer_takes_parts(const HsTokenizer *tokenizer)
{
    return !tokenizer->kind->takes_parts || tokenizer->kind->takes_parts(tokenizer);
}

/* Where the first character from `least` on begins: a character that is whole, or a byte that is none. */
static size_t next_character(const HsTextPart *part)
{
    size_t at = part->least < part->length ? part->least : part->length;
    while (at < part->length && ((unsigned char)part->text[at] & 0xC0) == 0x80)
        at++;
    return at < part->length || part->last ? at : 0;
}

HsStatus hs_tokenizer_session_encode_part(HsTokenizerSession *session, const HsTextPart *part, HsTokens *tokens,
                                          size_t *used)
{
    const HsTokenizer *tokenizer = session->tokenizer;
    const int64_t before = tokens ? tokens->count : 0;
    if (session->scratch) {
        HS_TRY(tokenizer->kind->encode_part(session->scratch, part, tokens, used));
        return tokens ? hs_tokenizer_check_rows(tokenizer, tokens, before) : HS_OK;
    }
    *used = next_character(part);
    if (!tokens || *used == 0)
        return HS_OK;
    HS_TRY(tokenizer->kind->encode(tokenizer, part->text, *used, part->offset, tokens));
    return hs_tokenizer_check_rows(tokenizer, tokens, before);
}
