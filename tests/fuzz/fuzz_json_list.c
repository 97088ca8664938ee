/* SPDX-License-Identifier: MIT
 *
 * A JSON list of documents, and the same bytes as lines: what both read is the same text.
 */
#include <assert.h>
#include <string.h>

#include "runtime/data/source/source.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    const HsSourceOptions options = {
        .text_field = "text", .prompt_field = "prompt", .completion_field = "completion", .needs_utf8 = true
    };
    HsCorpus list = { 0 }, lines = { 0 };
    if (hs_json_list_parse(&(const HsSourceText)HS_SOURCE_WHOLE("fuzz", (const char *)bytes, size), &options, &list) ==
            HS_OK &&
        list.piece_count > 0) {
        size_t text = 0;
        for (int64_t i = 0; i < list.piece_count; i++) {
            assert(list.pieces[i].start == text && list.pieces[i].line >= 1);
            text += list.pieces[i].length;
        }
        assert(text == list.text_length);
        assert(list.pieces[list.piece_count - 1].ends_document);
        /* One object in brackets without line ends is also a line, but for the brackets. */
        const char *open = memchr(bytes, '[', size), *close = NULL;
        for (size_t i = size; i > 0 && !close; i--)
            close = bytes[i - 1] == ']' ? (const char *)bytes + i - 1 : NULL;
        assert(open && close && open < close);
        if (hs_jsonl_parse(&(const HsSourceText)HS_SOURCE_WHOLE("fuzz", open + 1, (size_t)(close - open - 1)), &options,
                           &lines) == HS_OK &&
            lines.piece_count > 0 && lines.pieces[lines.piece_count - 1].line == 1) {
            assert(lines.text_length == list.text_length);
            assert(memcmp(lines.text, list.text, list.text_length) == 0);
        }
    }
    hs_corpus_deinit(&list);
    hs_corpus_deinit(&lines);
    return 0;
}
