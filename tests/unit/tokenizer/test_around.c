/* SPDX-License-Identifier: MIT
 *
 * The special tokens that a tokenizer.json's post_processor puts around one text, as the `tokenizers` library puts them.
 */
#include <criterion/criterion.h>

#include "runtime/data/tokenizer/tokenizer.h"

#define FILE_OF(POST)                                                                                \
    "{\"added_tokens\":[{\"id\":2,\"content\":\"<s>\",\"special\":true},{\"id\":3,\"content\":"      \
    "\"</s>\",\"special\":true},{\"id\":4,\"content\":\"<t>\",\"special\":true}],\"pre_tokenizer\":" \
    "{\"type\":\"ByteLevel\",\"add_prefix_space\":false},\"post_processor\":" POST                   \
    ",\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"b\":1},\"merges\":[]}}"
#define IDS          "\"special_tokens\":{\"<s>\":{\"id\":\"<s>\",\"ids\":[2],\"tokens\":[\"<s>\"]},\"E\":{\"ids\":[3,4]}}"
#define TEXT         "{\"Sequence\":{\"id\":\"A\",\"type_id\":0}}"
#define TOKEN(T)     "{\"SpecialToken\":{\"id\":\"" T "\",\"type_id\":0}}"
#define MADE(SINGLE) "{\"type\":\"TemplateProcessing\",\"single\":[" SINGLE "],\"pair\":[]," IDS "}"

static HsStatus parse(const char *json, HsTokenizer **tokenizer)
{
    return hs_tokenizer_parse("t.json", json, strlen(json), tokenizer);
}

Test(around, special_tokens_stand_as_the_file_says)
{
    static const struct {
        const char *json, *ids;
        int32_t begin;
    } cases[] = {
        { FILE_OF("null"), "0 1 ", -1 },
        { FILE_OF("{\"type\":\"ByteLevel\"}"), "0 1 ", -1 },
        { FILE_OF(MADE(TEXT)), "0 1 ", -1 },
        { FILE_OF(MADE(TOKEN("<s>") "," TEXT)), "2 0 1 ", 2 },
        { FILE_OF(MADE(TOKEN("<s>") "," TOKEN("E") "," TEXT "," TOKEN("E") "," TOKEN("<s>"))), "2 3 4 0 1 3 4 2 ", 2 },
        { FILE_OF(MADE(TEXT "," TOKEN("E"))), "0 1 3 4 ", -1 },
        { FILE_OF("{\"type\":\"RobertaProcessing\",\"sep\":[\"</s>\",3],\"cls\":[\"<s>\",2]}"), "2 0 1 3 ", 2 },
        /* Llama 3's: offsets first; then what is put on later stands farther out. */
        { FILE_OF("{\"type\":\"Sequence\",\"processors\":[{\"type\":\"ByteLevel\"}," MADE(
              TOKEN("<s>") "," TEXT) "," MADE(TOKEN("E") "," TEXT "," TOKEN("<s>")) "]}"),
          "3 4 2 0 1 2 ", 3 },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        HsTokenizer *tokenizer;
        HsTokens tokens = { 0 };
        char text[128] = "";
        cr_assert_eq(parse(cases[i].json, &tokenizer), HS_OK, "%s: %s", cases[i].json, hs_error_message());
        cr_assert_eq(hs_tokenizer_encode_whole(tokenizer, "ab", 2, &tokens), HS_OK);
        for (int64_t t = 0; t < tokens.count; t++)
            snprintf(text + strlen(text), sizeof text - strlen(text), "%d ", tokens.items[t]);
        cr_expect_str_eq(text, cases[i].ids, "%s", cases[i].json);
        cr_expect_eq(hs_tokenizer_begin_of_text(tokenizer), cases[i].begin);
        hs_tokens_deinit(&tokens);
        hs_tokenizer_destroy(tokenizer);
    }
}

Test(around, what_makes_no_sense_is_refused_by_name)
{
    static const struct {
        const char *json, *message;
    } cases[] = {
        { FILE_OF("{\"type\":\"TemplateProcessing\"}"), "post_processor.single must be a list" },
        { FILE_OF(MADE(TOKEN("<s>"))), "must have one Sequence (it has 0)" },
        { FILE_OF(MADE(TEXT "," TEXT)), "must have one Sequence (it has 2)" },
        { FILE_OF(MADE("{}," TEXT)), "neither a SpecialToken nor a Sequence" },
        { FILE_OF(MADE(TOKEN("<x>") "," TEXT)), "does not say which ids <x> has" },
        { FILE_OF("{\"type\":\"RobertaProcessing\",\"sep\":[\"</s>\",3],\"cls\":[\"<s>\",9]}"),
          "no token of the vocabulary has id 9" },
        { FILE_OF("{\"type\":\"RobertaProcessing\",\"sep\":[\"</s>\",3]}"), "post_processor.cls must be a list" },
        { FILE_OF("{\"type\":\"Sequence\"}"), "post_processor" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        HsTokenizer *tokenizer;
        cr_expect_neq(parse(cases[i].json, &tokenizer), HS_OK, "%s", cases[i].json);
        cr_expect(strstr(hs_error_message(), cases[i].message), "%s: `%s`", cases[i].json, hs_error_message());
        hs_tokenizer_destroy(tokenizer);
    }
}
