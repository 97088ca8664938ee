/* SPDX-License-Identifier: MIT
 *
 * Sources to tokens outside of training: the same reading, the same documents, the same encoding, one source in memory
 * at a time.
 */
#ifndef HS_RUNTIME_DATA_SOURCE_ENCODE_H
#define HS_RUNTIME_DATA_SOURCE_ENCODE_H

#include "runtime/data/source/source.h"

/* A document, or the whole of a token file.  Borrowed for the call. */
typedef struct HsEncoded {
    const char *source; /* its name */
    const int32_t *tokens;
    int64_t count; /* without an end-of-text token behind the document */
    int64_t bytes; /* of its text */
    bool ends;     /* an end-of-text token belongs behind it, where the tokenizer has one */
    bool masked;   /* has a prompt: training does not count its tokens */
} HsEncoded;

/* Hands every document to `take`, in order; stops at its first failure.  Memory: about twice the largest source's
 * unpacked bytes, and 4 bytes for each token of the largest document.
 * errors: the sources', and the tokenizer's with file and line */
HsStatus hs_sources_encode(const HsSourceList *sources, const HsSourceOptions *options, const HsTokenizer *tokenizer,
                           HsStatus (*take)(void *user, const HsEncoded *document), void *user);

#endif
