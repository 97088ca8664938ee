/* SPDX-License-Identifier: MIT
 *
 * Token files.  The first byte of the input chooses between files with a header and headerless u16 ones.
 */
#include <assert.h>

#include "runtime/data/source/source.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    if (size == 0)
        return 0;
    HsSourceOptions options = { .raw16 = bytes[0] & 1, .vocabulary = 50257 };
    HsCorpus corpus = { 0 };
    if (hs_token_file_parse(&(const HsSourceText)HS_SOURCE_WHOLE("fuzz", (const char *)bytes + 1, size - 1), &options,
                            &corpus) == HS_OK) {
        assert(corpus.piece_count == (corpus.tokens.count > 0));
        for (int64_t i = 0; i < corpus.tokens.count; i++)
            assert(corpus.tokens.items[i] >= 0 && corpus.tokens.items[i] < options.vocabulary);
    } else {
        assert(corpus.piece_count == 0);
    }
    hs_corpus_deinit(&corpus);
    return 0;
}
