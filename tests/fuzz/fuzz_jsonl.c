/* SPDX-License-Identifier: MIT
 *
 * JSON Lines of documents, of prompts with completions, and of conversations.
 */
#include <assert.h>

#include "runtime/data/source/source.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    static const char *const templates[] = { "llama3.1", "alpaca", "smollm3", "mistral-v3" };
    const HsSourceOptions options = { .text_field = "text",
                                      .prompt_field = "prompt",
                                      .completion_field = "completion",
                                      .chat_template = templates[size % 4] };
    HsCorpus corpus = { 0 };
    if (hs_jsonl_parse(&(const HsSourceText)HS_SOURCE_WHOLE("fuzz", (const char *)bytes, size), &options, &corpus) ==
        HS_OK) {
        size_t text = 0;
        for (int64_t i = 0; i < corpus.piece_count; i++) {
            assert(corpus.pieces[i].start == text);
            text += corpus.pieces[i].length;
        }
        /* A prompt is always followed by its completion. */
        assert(text == corpus.text_length);
        assert(corpus.piece_count == 0 || corpus.pieces[corpus.piece_count - 1].ends_document);
    }
    hs_corpus_deinit(&corpus);
    return 0;
}
