/* SPDX-License-Identifier: MIT
 *
 * Conversations: each template to the byte, each token and each target as transformers has them (tests/chat/make.py wrote
 * what is expected); the forms in which they are written; what is refused.
 */
#include <criterion/criterion.h>

#include "runtime/config/chat_template.h"
#include "runtime/data/source/chat.h"
#include "runtime/io/files.h"
#include "runtime/io/json.h"
#include "tests/support/data_fixture.h"

#define FOLDER "tests/chat/"
enum { CONVERSATIONS = 200, GOLDEN_MAX_BYTES = 4 << 20 };

static const char *const with_turns[] = {
    "gemma",      "gemma2",  "smollm3",    "phi3",         "phi3.5",    "phi4-mini",
    "granite3.0", "granite", "mistral-v3", "mistral-nemo", "ministral", "mistral-v7-tekken",
};

static char *read_golden(const char *name, const char *extension, size_t *length)
{
    char path[256], *text = NULL;
    snprintf(path, sizeof path, FOLDER "%s%s", name, extension);
    cr_assert_eq(hs_read_file(path, GOLDEN_MAX_BYTES, &text, length), HS_OK, "%s", hs_error_message());
    return text;
}

static HsTokenizer *load(const char *name)
{
    char path[256];
    HsTokenizer *tokenizer = NULL;
    snprintf(path, sizeof path, FOLDER "%s.json", name);
    cr_assert_eq(hs_tokenizer_load(path, &tokenizer), HS_OK, "%s", hs_error_message());
    return tokenizer;
}

static HsSourceOptions options_for(const char *made_by, const HsTokenizer *tokenizer)
{
    return (HsSourceOptions){ .text_field = "text",
                              .prompt_field = "prompt",
                              .completion_field = "completion",
                              .chat_template = made_by,
                              .tokenizer_path = "",
                              .tokenizer = tokenizer };
}

/* One conversation of the corpus against its line. */
static void check_one(const char *name, const HsTokenizer *tokenizer, const HsCorpus *corpus, const HsPiece *pieces,
                      int64_t count, const HsJson *line)
{
    const char *const text = hs_json_string(hs_json_get(line, "text"));
    const char *const mask = hs_json_string(hs_json_get(line, "mask"));
    const HsJson *list = hs_json_get(line, "tokens");
    const size_t length = pieces[count - 1].start + pieces[count - 1].length - pieces[0].start;
    HsTokens tokens = { 0 };
    int64_t starts[64];
    cr_assert_leq(count, 64);
    if (text)
        cr_expect(strlen(text) == length && memcmp(text, corpus->text + pieces[0].start, length) == 0,
                  "%s: `%.*s` instead of `%s`", name, (int)length, corpus->text + pieces[0].start, text);
    HsTokenizerSession *session;
    cr_assert_eq(hs_tokenizer_session_create(tokenizer, &session), HS_OK);
    cr_assert_eq(hs_chat_encode(session, corpus->text, pieces, count, &tokens, starts), HS_OK);
    hs_tokenizer_session_destroy(session);
    cr_assert_eq(tokens.count, (int64_t)strlen(mask), "%s: %lld tokens, not %zu, of `%.*s`", name,
                 (long long)tokens.count, strlen(mask), (int)length, corpus->text + pieces[0].start);
    const HsJson *item = hs_json_first(list);
    for (int64_t t = 0, piece = 0; t < tokens.count; t++, item = item ? hs_json_next(item) : NULL) {
        while (piece + 1 < count && starts[piece + 1] <= t)
            piece++;
        if (item)
            cr_expect_eq(tokens.items[t], (int32_t)hs_json_number(item), "%s: token %lld", name, (long long)t);
        cr_expect_eq(pieces[piece].counted, mask[t] == '1', "%s: token %lld of `%.*s`: %d", name, (long long)t,
                     (int)length, corpus->text + pieces[0].start, pieces[piece].counted);
    }
    hs_tokens_deinit(&tokens);
}

static void check_template(const char *golden, const char *made_by, const char *tokenizer_name)
{
    size_t length;
    HsTokenizer *tokenizer = load(tokenizer_name);
    const HsSourceOptions options = options_for(made_by, tokenizer);
    HsCorpus corpus = { 0 };
    char *source = read_golden("conversations", ".jsonl", &length);
    cr_assert_eq(hs_jsonl_parse(&(const HsSourceText)HS_SOURCE_WHOLE("c.jsonl", source, length), &options, &corpus),
                 HS_OK, "%s", hs_error_message());
    free(source);
    char *lines = read_golden(golden, ".jsonl", &length), *line = lines;
    int found = 0;
    for (int64_t i = 0; i < corpus.piece_count; found++) {
        const int64_t count = hs_chat_piece_count(corpus.pieces + i, corpus.piece_count - i);
        char *end = strchr(line, '\n');
        HsJson *root;
        cr_assert_eq(hs_json_parse(golden, line, (size_t)(end - line), &root), HS_OK);
        check_one(golden, tokenizer, &corpus, corpus.pieces + i, count, root);
        hs_json_destroy(root);
        line = end + 1;
        i += count;
    }
    cr_expect_eq(found, CONVERSATIONS);
    free(lines);
    hs_corpus_deinit(&corpus);
    hs_tokenizer_destroy(tokenizer);
}

Test(chat, every_template_agrees_with_transformers)
{
    static const char *const names[] = { "chatml", "qwen2", "qwen2.5", "llama3", "llama3.1", "alpaca" };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        check_template(names[i], names[i], "tokenizer");
}

static HsChatRole role_of(const char *name)
{
    return *name == 's' ? HS_CHAT_SYSTEM : *name == 'u' ? HS_CHAT_USER : HS_CHAT_ASSISTANT;
}

/* What an answer to the messages comes after: to all but the last of them, where that is an answer itself. */
static void check_prompt(const char *made_by, const HsTokenizer *tokenizer, const HsJson *said, const char *prompt)
{
    HsChatMessage messages[16];
    HsChatTokens tokens;
    HsChatText text = { 0 };
    int count = 0;
    hs_chat_tokens_read(tokenizer, &tokens);
    for (const HsJson *m = hs_json_first(hs_json_get(said, "messages")); m; m = hs_json_next(m)) {
        const char *const content = hs_json_string(hs_json_get(m, "content"));
        cr_assert_lt(count, 16);
        messages[count++] = (HsChatMessage){ .role = role_of(hs_json_string(hs_json_get(m, "role"))),
                                             .text = content,
                                             .length = strlen(content) };
    }
    count -= messages[count - 1].role == HS_CHAT_ASSISTANT;
    cr_assert_eq(hs_chat_render(hs_chat_template_get(made_by), &tokens, NULL, messages, count, true, &text), HS_OK,
                 "%s", hs_error_message());
    cr_expect(text.text.count == strlen(prompt) && memcmp(text.text.items, prompt, text.text.count) == 0,
              "%s: `%.*s` instead of `%s`", made_by, (int)text.text.count, text.text.items, prompt);
    hs_chat_text_deinit(&text);
}

/* Lines that have their rows: KIND.NAME.jsonl. */
static void check_rows(const char *kind, const char *made_by, const char *tokenizer_name, int lines_expected)
{
    char golden[64];
    size_t length;
    int found = 0;
    HsTokenizer *tokenizer = load(tokenizer_name);
    const HsSourceOptions options = options_for(made_by, tokenizer);
    snprintf(golden, sizeof golden, "%s.%s", kind, made_by);
    char *lines = read_golden(golden, ".jsonl", &length);
    for (char *line = lines, *end; *line; line = end + 1, found++) {
        HsJson *root;
        HsCorpus corpus = { 0 };
        end = strchr(line, '\n');
        cr_assert_eq(hs_json_parse(golden, line, (size_t)(end - line), &root), HS_OK, "%s", hs_error_message());
        const char *const row = hs_json_string(hs_json_get(root, "row"));
        cr_assert_eq(
            hs_jsonl_parse(&(const HsSourceText)HS_SOURCE_WHOLE("c.jsonl", row, strlen(row)), &options, &corpus), HS_OK,
            "%s: %s", row, hs_error_message());
        check_one(golden, tokenizer, &corpus, corpus.pieces, corpus.piece_count, root);
        const char *const prompt = hs_json_string(hs_json_get(root, "prompt"));
        if (prompt) {
            HsJson *said;
            cr_assert_eq(hs_json_parse(golden, row, strlen(row), &said), HS_OK);
            check_prompt(made_by, tokenizer, said, prompt);
            hs_json_destroy(said);
        }
        hs_json_destroy(root);
        hs_corpus_deinit(&corpus);
    }
    cr_expect_eq(found, lines_expected);
    free(lines);
    hs_tokenizer_destroy(tokenizer);
}

/* Offers of tools, calls and results (tests/chat/make_tools.py). */
Test(chat, tools_agree_with_transformers)
{
    check_rows("tools", "qwen2.5", "tokenizer", 48);
    check_rows("tools", "llama3.1", "tokenizer", 48);
}

/* Templates of which each takes other conversations (tests/chat/make_turns.py). */
Test(chat, templates_with_own_turns_agree_with_transformers)
{
    for (size_t i = 0; i < sizeof with_turns / sizeof *with_turns; i++)
        check_rows("turns", with_turns[i], "special", 40);
}

/* Its normalizer and decoder make other bytes of the text: borders are found by what stands in front of them. */
Test(chat, answers_are_found_where_the_tokenizer_changes_the_text)
{
    check_template("chatml.spaces", "chatml", "spaces");
    check_template("alpaca.spaces", "alpaca", "spaces");
}

/* With the frame of the answer that is to come. */
static void check_prompts(const char *name)
{
    size_t length;
    HsTokenizer *tokenizer = load("tokenizer");
    int found = 0;
    char *talks = read_golden("conversations", ".jsonl", &length), *lines = read_golden(name, ".jsonl", &length);
    for (char *talk = talks, *line = lines, *next; *talk; talk = next, line = strchr(line, '\n') + 1) {
        HsJson *said, *expected;
        next = strchr(talk, '\n') + 1;
        cr_assert_eq(hs_json_parse(name, talk, (size_t)(next - talk), &said), HS_OK);
        cr_assert_eq(hs_json_parse(name, line, (size_t)(strchr(line, '\n') - line), &expected), HS_OK);
        const char *const prompt = hs_json_string(hs_json_get(expected, "prompt"));
        if (prompt) {
            found++;
            check_prompt(name, tokenizer, said, prompt);
        }
        hs_json_destroy(said);
        hs_json_destroy(expected);
    }
    cr_expect_eq(found, CONVERSATIONS / 5);
    free(talks);
    free(lines);
    hs_tokenizer_destroy(tokenizer);
}

Test(chat, the_frame_of_an_answer_agrees_with_transformers)
{
    check_prompts("chatml");
    check_prompts("qwen2.5");
    check_prompts("llama3");
    check_prompts("llama3.1");
    check_prompts("alpaca");
}

static HsStatus parse(const char *line, const char *made_by, bool list, HsCorpus *corpus)
{
    const HsSourceOptions options = options_for(made_by, NULL);
    const HsSourceText text = HS_SOURCE_WHOLE("x.jsonl", line, strlen(line));
    return (list ? hs_json_list_parse : hs_jsonl_parse)(&text, &options, corpus);
}

static void expect_text(const char *line, const char *made_by, bool list, const char *expected)
{
    HsCorpus corpus = { 0 };
    cr_assert_eq(parse(line, made_by, list, &corpus), HS_OK, "%s: %s", line, hs_error_message());
    cr_expect(corpus.text_length == strlen(expected) && memcmp(corpus.text, expected, corpus.text_length) == 0,
              "%s: `%.*s` instead of `%s`", line, (int)corpus.text_length, corpus.text, expected);
    hs_corpus_deinit(&corpus);
}

Test(chat, every_form_is_known_by_its_fields)
{
#define TURN   "<|im_start|>user\nq<|im_end|>\n<|im_start|>assistant\na<|im_end|>\n"
#define SYSTEM "<|im_start|>system\ns<|im_end|>\n"
    expect_text("{\"messages\":[{\"role\":\"user\",\"content\":\"q\"},{\"role\":\"assistant\",\"content\":\"a\"}]}",
                "chatml", false, TURN);
    expect_text("{\"id\":1,\"system\":\"s\",\"conversations\":[{\"from\":\"human\",\"value\":\"q\"},{\"from\":\"gpt\","
                "\"value\":"
                "\"a\"}]}",
                "chatml", false, SYSTEM TURN);
    expect_text(
        "[{\"conversations\":[{\"from\":\"system\",\"value\":\"s\"},{\"role\":\"user\",\"content\":\"q\"},{\"from\":"
        "\"gpt\",\"value\":\"a\"}]}, {\"instruction\":\"q\",\"input\":null,\"output\":\"a\"}]",
        "chatml", true, SYSTEM TURN TURN);
    expect_text("{\"instruction\":\"q\",\"input\":\"i\",\"output\":\"a\"}", "chatml", false,
                "<|im_start|>user\nq\ni<|im_end|>\n<|im_start|>assistant\na<|im_end|>\n");
    expect_text("{\"instruction\":\"q\",\"input\":\"i\",\"output\":\"a\",\"system\":\"s\"}", "alpaca", false,
                "s\n\n### Instruction:\nq\n\n### Input:\ni\n\n### Response:\na\n\n");
    expect_text("{\"messages\":[{\"role\":\"assistant\",\"content\":\"\",\"tool_calls\":[]}]}", "llama3", false,
                "<|begin_of_text|><|start_header_id|>assistant<|end_header_id|>\n\n<|eot_id|>");
}

/* What the loss counts, pieces with a bar behind each. */
static void expect_counted(const char *line, const char *made_by, const char *expected)
{
    HsCorpus corpus = { 0 };
    char found[512] = "";
    cr_assert_eq(parse(line, made_by, false, &corpus), HS_OK, "%s", hs_error_message());
    for (int64_t i = 0; i < corpus.piece_count; i++)
        if (corpus.pieces[i].counted)
            snprintf(found + strlen(found), sizeof found - strlen(found), "%.*s|", (int)corpus.pieces[i].length,
                     corpus.text + corpus.pieces[i].start);
    cr_expect_str_eq(found, expected, "%s", line);
    hs_corpus_deinit(&corpus);
}

/* OpenAI's and Mistral's weight, axolotl's train: what a loss is that leaves an answer out, tests/cli/test_chat.sh. */
Test(chat, marks_of_messages_say_what_counts)
{
#define TALK(FIRST, ASKED, SECOND)                                                                                 \
    "{\"messages\":[{\"role\":\"user\",\"content\":\"hi\"},{\"role\":\"assistant\",\"content\":\"one\"" FIRST "}," \
    "{\"role\":\"user\",\"content\":\"hm\"" ASKED "},{\"role\":\"assistant\",\"content\":\"two\"" SECOND "}]}"
    static const struct {
        const char *line, *counted;
    } cases[] = {
        { TALK("", "", ""), "one<|im_end|>|two<|im_end|>|" },
        { TALK(",\"weight\":0", "", ",\"weight\":1"), "two<|im_end|>|" },
        { TALK(",\"weight\":0.0", ",\"weight\":0", ""), "two<|im_end|>|" },
        { TALK(",\"weight\":null", "", ",\"weight\":0"), "one<|im_end|>|" },
        { TALK(",\"train\":false", "", ",\"train\":true"), "two<|im_end|>|" },
        { TALK(",\"training\":false", ",\"train\":true", ",\"loss\":false"), "hm<|im_end|>|" },
        { TALK(",\"weight\":0", "", ",\"weight\":0"), "" },
        { "{\"conversations\":[{\"from\":\"human\",\"value\":\"q\",\"weight\":0},{\"from\":\"gpt\",\"value\":\"a\","
          "\"weight\":0},{\"from\":\"gpt\",\"value\":\"b\",\"weight\":1.0}]}",
          "b<|im_end|>|" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        expect_counted(cases[i].line, "chatml", cases[i].counted);
}

/* A system message that a template puts into another, or into a header, counts by its mark alone. */
Test(chat, marks_of_system_messages_without_a_frame)
{
#define COUNTED \
    "{\"messages\":[{\"role\":\"system\",\"content\":\"s\",\"train\":true},{\"role\":\"user\",\"content\":\"q\""
#define LAST "},{\"role\":\"assistant\",\"content\":\" a\"}"
    expect_counted(COUNTED LAST "]}", "gemma", "s|a<end_of_turn>|");
    expect_counted(COUNTED ",\"train\":true" LAST "]}", "gemma", "s|q<end_of_turn>|a<end_of_turn>|");
    expect_counted(COUNTED LAST "]}", "mistral-v3", " a</s>|");
    expect_counted(COUNTED LAST "]}", "mistral-nemo", " a</s>|");
    expect_counted(COUNTED LAST ",{\"role\":\"user\",\"content\":\"r\"}]}", "mistral-v3", " a</s>|s|");
    expect_counted("{\"messages\":[{\"role\":\"system\",\"content\":\"s /no_think/system_override\",\"train\":true},"
                   "{\"role\":\"user\",\"content\":\"q\"},{\"role\":\"assistant\",\"content\":\"\\na\"}]}",
                   "smollm3", "s<|im_end|>|a<|im_end|>|");
}

Test(chat, contents_may_be_parts_of_text)
{
    expect_text(
        "{\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"a\"},{\"type\":\"text\",\"text\":"
        "\"b\"}]},{\"role\":\"assistant\",\"name\":\"x\",\"content\":[{\"text\":\"c\"}]}],\"tools\":[]}",
        "chatml", false, "<|im_start|>user\nab<|im_end|>\n<|im_start|>assistant\nc<|im_end|>\n");
    expect_text(
        "{\"system\":\"s\",\"messages\":[{\"role\":\"user\",\"content\":\"a\"},{\"role\":\"assistant\",\"content\":"
        "\"b\"}],\"tools\":\"[]\"}",
        "chatml", false,
        "<|im_start|>system\ns<|im_end|>\n<|im_start|>user\na<|im_end|>\n<|im_start|>assistant\nb<|im_end|>\n");
    /* The last of doubled keys, as Python has it; a number that JSON has not, where it is not looked at. */
    expect_text("{\"score\":NaN,\"messages\":[{\"role\":\"assistant\",\"content\":\"a\",\"content\":\"b\"}]}", "chatml",
                false, "<|im_start|>assistant\nb<|im_end|>\n");
}

typedef struct RefusedLine {
    const char *line, *made_by, *message;
} RefusedLine;

static void expect_refused(const RefusedLine *cases, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        HsCorpus corpus = { 0 };
        const HsStatus status = parse(cases[i].line, cases[i].made_by, false, &corpus);
        cr_expect_neq(status, HS_OK, "%s", cases[i].line);
        cr_expect(status != HS_OK && strstr(hs_error_message(), cases[i].message), "%s: `%s` instead of `%s`",
                  cases[i].line, hs_error_message(), cases[i].message);
        hs_corpus_deinit(&corpus);
    }
}

#define MESSAGES(M) "{\"messages\":[" M "]}"
#define SYSTEM_SAID "{\"role\":\"system\",\"content\":\"s\"}"
#define USER        "{\"role\":\"user\",\"content\":\"q\"}"
#define ANSWER      "{\"role\":\"assistant\",\"content\":\"a\"}"
#define CALLS(C)    "{\"role\":\"assistant\",\"tool_calls\":[" C "]}"
#define CALL        "{\"type\":\"function\",\"function\":{\"name\":\"f\",\"arguments\":{\"x\":1.0}}}"
#define CALLED      "{\"name\": \"f\", \"arguments\": {\"x\": 1.0}}"
#define RESULT      "{\"role\":\"tool\",\"content\":\"r\"}"
#define SHARE(M)    "{\"conversations\":[{\"from\":\"human\",\"value\":\"q\"}," M "]}"

static bool contains(const HsCorpus *corpus, const char *text)
{
    char *const copy = strndup(corpus->text, corpus->text_length);
    const bool found = strstr(copy, text) != NULL;
    free(copy);
    return found;
}

/* ShareGPT's names, as the same conversation in messages has them; a list of tools as a string. */
Test(chat, calls_and_results_of_sharegpt)
{
    HsCorpus messages = { 0 }, share = { 0 };
    static const char tool[] = "{\"name\":\"f\",\"least\":1e2}";
    char line[2000], quoted[2000];
    snprintf(line, sizeof line, "{\"tools\":[%s],\"messages\":[%s,%s,%s,%s]}", tool, USER, CALLS(CALL "," CALL), RESULT,
             ANSWER);
    snprintf(quoted, sizeof quoted,
             "{\"tools\":\"[{\\\"name\\\":\\\"f\\\",\\\"least\\\":1e2}]\",\"conversations\":[{\"from\":\"human\","
             "\"value\":\"q\"},"
             "{\"from\":\"function_call\",\"value\":\"[%s,%s]\"},{\"from\":\"observation\",\"value\":\"r\"},"
             "{\"from\":\"gpt\",\"value\":\"a\"}]}",
             "{\\\"name\\\":\\\"f\\\",\\\"arguments\\\":{\\\"x\\\":1.0}}",
             "{\\\"name\\\":\\\"f\\\",\\\"arguments\\\":{\\\"x\\\":1.0}}");
    cr_assert_eq(parse(line, "qwen2.5", false, &messages), HS_OK, "%s", hs_error_message());
    cr_assert_eq(parse(quoted, "qwen2.5", false, &share), HS_OK, "%s", hs_error_message());
    cr_expect_eq(messages.text_length, share.text_length);
    cr_expect(memcmp(messages.text, share.text, share.text_length) == 0, "%.*s", (int)share.text_length, share.text);
    cr_expect(contains(&share, "\n<tools>\n{\"name\": \"f\", \"least\": 100.0}\n</tools>"));
    cr_expect(contains(&share, "<|im_start|>assistant\n<tool_call>\n" CALLED "\n</tool_call>\n<tool_call>\n" CALLED
                               "\n</tool_call><|im_end|>\n"));
    hs_corpus_deinit(&messages);
    hs_corpus_deinit(&share);
}

/* The text of tools does not, on whichever side of a message it stands; a result does where its mark says so. */
Test(chat, what_counts_next_to_tools)
{
#define MARKED(ROLE, TEXT) "{\"role\":\"" ROLE "\",\"content\":\"" TEXT "\",\"train\":true}"
    expect_counted("{\"tools\":[{}],\"messages\":[" MARKED("system", "s") "," MARKED("user", "q") "," CALLS(
                       CALL) "," RESULT "," MARKED("tool", "t") "," ANSWER "]}",
                   "qwen2.5",
                   "s|<|im_end|>|q<|im_end|>|<tool_call>\n" CALLED
                   "\n</tool_call><|im_end|>|t\n</tool_response><|im_end|>|a<|im_end|>|");
    expect_counted(
        "{\"tools\":[{}],\"messages\":[" MARKED("system", "s") "," MARKED("user", "q") "," CALLS(CALL) "," MARKED(
            "tool", "t") "," ANSWER "]}",
        "llama3.1",
        "Environment: ipython\nCutting Knowledge Date: December 2023\nToday Date: 26 Jul 2024\n\ns<|eot_id|>|"
        "q<|eot_id|>|{\"name\": \"f\", \"parameters\": {\"x\": 1.0}}<|eot_id|>|\"t\"<|eot_id|>|a<|eot_id|>|");
    expect_counted(MESSAGES(USER ",{\"role\":\"assistant\",\"weight\":0,\"tool_calls\":[" CALL "]}," RESULT "," ANSWER),
                   "qwen2.5", "a<|im_end|>|");
}

/* A dict of Python keeps a doubled key's first place and last value. */
Test(chat, doubled_keys_of_json)
{
    HsCorpus corpus = { 0 };
    cr_assert_eq(
        parse("{\"tools\":[{\"a\":1,\"b\":2,\"a\":3}],\"messages\":[" USER "," ANSWER "]}", "qwen2.5", false, &corpus),
        HS_OK);
    cr_expect(contains(&corpus, "<tools>\n{\"a\": 3, \"b\": 2}\n</tools>"), "%.*s", (int)corpus.text_length,
              corpus.text);
    hs_corpus_deinit(&corpus);
}

Test(chat, tools_that_cannot_be_rendered_are_an_error_with_its_place)
{
#define TOOLS(T, M) "{\"tools\":" T ",\"messages\":[" M "]}"
#define KNOWS_NONE  "does not render tools: name qwen2.5 or llama3.1 as tokenizer.chat_template"
    static const RefusedLine cases[] = {
        { TOOLS("[{}]", USER "," ANSWER), "chatml", "x.jsonl:1: `tools`: the template chatml " KNOWS_NONE },
        { MESSAGES(USER "," CALLS(CALL)), "qwen2", "messages[1]: `tool_calls`: the template qwen2 " KNOWS_NONE },
        { MESSAGES(USER "," CALLS("{}")), "llama3", "messages[1]: `tool_calls`: the template llama3 " KNOWS_NONE },
        { MESSAGES(RESULT "," ANSWER), "alpaca", "messages[0]: role `tool`: the template alpaca " KNOWS_NONE },
        { SHARE("{\"from\":\"observation\",\"value\":\"r\"}"), "chatml",
          "conversations[1]: role `observation`: the template chatml " KNOWS_NONE },
        { SHARE("{\"from\":\"function_call\",\"value\":\"{}\"}"), "chatml",
          "conversations[1]: `function_call`: the template chatml " KNOWS_NONE },
        { MESSAGES(USER "," ANSWER ",{\"role\":\"ipython\",\"content\":\"a\"}"), "qwen2.5",
          "messages[2]: the template qwen2.5 has no role `ipython`: write `tool`" },
        { TOOLS("{}", USER "," ANSWER), "qwen2.5", "x.jsonl:1: `tools` must be a list of objects" },
        { TOOLS("[\"f\"]", USER "," ANSWER), "qwen2.5", "x.jsonl:1: tools[0]: must be an object such as" },
        { TOOLS("\"[{\"", USER "," ANSWER), "qwen2.5", "x.jsonl:1: `tools`: byte 2: not JSON" },
        { MESSAGES(USER "," CALLS(CALL "," CALL)), "llama3.1",
          "messages[1]: `tool_calls` has 2 calls: the template llama3.1 renders one a message" },
        { MESSAGES(USER "," CALLS("{\"name\":\"f\",\"arguments\":{}}")), "llama3.1",
          "messages[1]: tool_calls[0]: must be an object such as {\"type\": \"function\", \"function\": " },
        { MESSAGES(USER "," CALLS("{\"function\":null}")), "qwen2.5", "tool_calls[0]: must be an object such as" },
        { MESSAGES(USER "," CALLS("{\"arguments\":{}}")), "qwen2.5", "tool_calls[0]: `name` must be a string" },
        { MESSAGES(USER "," CALLS("{\"name\":\"f\"}")), "qwen2.5", "tool_calls[0]: `arguments` is missing: write {}" },
        { MESSAGES(USER "," CALLS("{\"type\":\"custom\",\"function\":{}}")), "qwen2.5",
          "tool_calls[0]: a call of type `custom` is not supported" },
        { MESSAGES("{\"role\":\"user\",\"content\":\"a\",\"tool_calls\":[" CALL "]}"), "qwen2.5",
          "messages[0]: `tool_calls` of a message that is not the assistant's" },
        { MESSAGES(USER ",{\"role\":\"assistant\",\"tool_calls\":{\"a\":1}}"), "qwen2.5",
          "messages[1]: `tool_calls` must be a list" },
        { MESSAGES(USER ",{\"role\":\"assistant\"}"), "qwen2.5", "messages[1]: `content` is missing" },
        { MESSAGES(USER "," ANSWER ",{\"role\":\"tool\",\"content\":{\"a\":1}}"), "qwen2.5",
          "messages[2]: `content` must be a string" },
        { MESSAGES(USER "," ANSWER ",{\"role\":\"tool\",\"content\":[{\"type\":\"text\",\"text\":\"a\"}]}"), "qwen2.5",
          "messages[2]: `content` must be a string" },
        { MESSAGES(USER "," ANSWER ",{\"role\":\"tool\",\"content\":null}"), "llama3.1",
          "messages[2]: `content` is null" },
        { MESSAGES(USER "," ANSWER ",{\"role\":\"tool\",\"content\":\"r\",\"weight\":1}"), "qwen2.5",
          "messages[2]: `weight` 1 of a message that is not the assistant's" },
        { TOOLS("[]", ANSWER), "llama3.1",
          "x.jsonl:1: message 1: the template llama3.1 puts the tools into the first message, which must be the "
          "user's" },
        { TOOLS("[{}]", "{\"role\":\"system\",\"content\":\"s\"}," CALLS(CALL)), "llama3.1",
          "x.jsonl:1: message 2: the" },
        { SHARE("{\"from\":\"function_call\",\"value\":\"f(x)\"}"), "qwen2.5",
          "conversations[1]: `function_call`: byte 0: not JSON" },
        { SHARE("{\"from\":\"function_call\",\"value\":\"[]\"}"), "qwen2.5",
          "`function_call` is an empty list: leave it out" },
        { SHARE("{\"from\":\"function_call\",\"value\":\"[7]\"}"), "qwen2.5", "`function_call`: must be an object" },
        { "{\"chat_template_kwargs\":{\"date_string\":\"x\"},\"messages\":[" USER "," ANSWER "]}", "llama3.1",
          "x.jsonl:1: `chat_template_kwargs`: templates take no settings here but tools_in_user_message" },
        { "{\"chat_template_kwargs\":{\"tools_in_user_message\":1},\"messages\":[" USER "," ANSWER "]}", "llama3.1",
          "tools_in_user_message must be true or false" },
        { "{\"chat_template_kwargs\":{\"tools_in_user_message\":true},\"messages\":[" USER "," ANSWER "]}", "qwen2.5",
          "the template qwen2.5 has no tools_in_user_message: leave it out" },
    };
    expect_refused(cases, sizeof cases / sizeof *cases);
}

Test(chat, what_cannot_be_rendered_is_an_error_with_its_place)
{
    static const RefusedLine cases[] = {
        { MESSAGES(""), "chatml", "x.jsonl:1: `messages` must be a list of messages that is not empty" },
        { "{\"messages\":\"hello\"}", "chatml", "x.jsonl:1: `messages` must be a list of messages that is not empty" },
        { MESSAGES("7"), "chatml", "x.jsonl:1: messages[0]: must be an object such as {\"role\": \"user\"" },
        { MESSAGES(USER ",{\"role\":\"robot\",\"content\":\"a\"}"), "chatml",
          "x.jsonl:1: messages[1]: `robot` is no role that templates have here" },
        { MESSAGES("{\"content\":\"a\"}"), "chatml", "messages[0]: `role` is missing" },
        { MESSAGES("{\"role\":\"user\"}"), "chatml", "messages[0]: `content` is missing" },
        { MESSAGES("{\"role\":3,\"content\":\"a\"}"), "chatml", "messages[0]: `role` must be a string" },
        { MESSAGES("{\"role\":\"user\",\"content\":null}"), "chatml", "messages[0]: `content` is null: a message" },
        { MESSAGES("{\"role\":\"user\",\"content\":7}"), "chatml", "messages[0]: `content` must be a string" },
        { MESSAGES("{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"a\"},{\"type\":\"image_url\"}]}"),
          "chatml", "x.jsonl:1: messages[0]: content[1]: a part of type `image_url` is not supported: only text is" },
        { MESSAGES("{\"role\":\"user\",\"content\":[\"a\"]}"), "chatml",
          "messages[0]: content[0]: a part of a content" },
        { MESSAGES(USER ",{\"role\":\"assistant\",\"content\":null,\"function_call\":{\"name\":\"f\"}}"), "chatml",
          "messages[1]: `function_call`: is not read: write it as `tool_calls`" },
        { MESSAGES(USER ",{\"role\":\"assistant\",\"content\":\"a\",\"reasoning_content\":\"t\"}"), "chatml",
          "messages[1]: `reasoning_content`: no template here has a place for thoughts" },
        { "{\"messages\":[" USER "," ANSWER "],\"functions\":[{\"name\":\"f\"}]}", "qwen2.5",
          "x.jsonl:1: `functions`: is not read: write it as `tools`" },
        { "{\"messages\":[" USER "," ANSWER "],\"images\":[\"a.png\"]}", "chatml", "x.jsonl:1: `images`: only text" },
        { MESSAGES("{\"role\":\"developer\",\"content\":\"a\"}," ANSWER), "chatml",
          "messages[0]: `developer` is no role" },
        { MESSAGES(USER ",{\"role\":\"assistant\",\"content\":\"a\",\"weight\":0.5}"), "chatml",
          "x.jsonl:1: messages[1]: `weight` is 0.5: a message is counted whole or not at all: 0 or 1" },
        { MESSAGES(USER ",{\"role\":\"assistant\",\"content\":\"a\",\"weight\":\"1\"}"), "chatml",
          "messages[1]: `weight` must be 0 or 1" },
        { MESSAGES(USER ",{\"role\":\"assistant\",\"content\":\"a\",\"train\":\"yes\"}"), "chatml",
          "messages[1]: `train` must be true or false" },
        { MESSAGES(USER ",{\"role\":\"assistant\",\"content\":\"a\",\"train\":false,\"weight\":1}"), "chatml",
          "messages[1]: `weight` and `train` contradict each other: leave one out" },
        { MESSAGES("{\"role\":\"user\",\"content\":\"q\",\"weight\":1}," ANSWER), "chatml",
          "messages[0]: `weight` 1 of a message that is not the assistant's: leave it out, or write `train`: true" },
        { MESSAGES(USER ",{\"role\":\"assistant\",\"content\":\"a\",\"mask\":true}"), "chatml",
          "messages[1]: `mask`: is not read" },
        { MESSAGES(USER ",{\"role\":\"assistant\",\"content\":\"a\",\"train_detail\":[{\"train\":true}]}"), "chatml",
          "messages[1]: `train_detail`: is not read" },
        { "{\"system\":\"s\",\"messages\":[{\"role\":\"system\",\"content\":\"t\"}," USER "," ANSWER "]}", "chatml",
          "x.jsonl:1: has `system`, and messages[0] is a system message, too: leave one of them out" },
        { "{\"prompt\":\"q\",\"chosen\":\"a\",\"rejected\":\"b\"}", "chatml",
          "x.jsonl:1: `chosen` and `rejected`: preferences are not learned from" },
        { "{\"conversations\":[{\"from\":\"human\",\"value\":\"q\"},{\"from\":\"gpt\",\"value\":\"a\"},{\"from\":"
          "\"human\","
          "\"value\":\"q\"}],\"chosen\":{},\"rejected\":{}}",
          "chatml", "x.jsonl:1: `chosen` and `rejected`: preferences are not learned from" },
        { "{\"prompt\":[" USER "],\"completion\":[" ANSWER "]}", "chatml",
          "x.jsonl:1: `prompt` must be a string; write a conversation as one list, `messages`" },
        { MESSAGES(USER), "chatml", "x.jsonl:1: no message is the assistant's" },
        { "{\"conversations\":[{\"from\":\"bing\",\"value\":\"\"}]}", "chatml", "conversations[0]: `bing` is no role" },
        { "{\"conversations\":[{\"value\":\"\"}]}", "chatml", "conversations[0]: `from` is missing" },
        { "{\"instruction\":1,\"output\":\"a\"}", "chatml", "x.jsonl:1: `instruction` must be a string" },
        { "{\"instruction\":\"q\",\"output\":\"a\",\"history\":[[\"q\",\"a\"]]}", "chatml", "`history` is not read" },
        { "{\"instruction\":\"q\"}", "chatml", "x.jsonl:1: has neither `text` nor both" },
        { "{\"text\":\"t\",\"messages\":[" ANSWER "]}", "chatml",
          "x.jsonl:1: has `messages` and also `text`: leave one out" },
        { "{\"prompt\":\"t\",\"completion\":\"c\",\"messages\":[" ANSWER "]}", "chatml", "and also `completion`" },
        { MESSAGES(SYSTEM_SAID "," USER "," ANSWER), "gemma2",
          "x.jsonl:1: message 1: the template gemma2 has no system message: write its text into the user's" },
        { MESSAGES(USER "," SYSTEM_SAID "," ANSWER), "smollm3",
          "x.jsonl:1: message 2: the template smollm3 has no system message but the first" },
        { MESSAGES(USER "," ANSWER), "granite",
          "x.jsonl:1: the template granite is published with a system message of the day on which it is rendered" },
        { MESSAGES(USER "," ANSWER), "mistral-v7-tekken", "begin the conversation with one" },
        { MESSAGES("{\"role\":\"system\",\"content\":\"s\",\"train\":true}"), "gemma",
          "message 1: the template gemma puts the system message into the user's first, and there is none" },
        { MESSAGES(USER "," USER "," ANSWER), "gemma",
          "message 2: the template gemma has user and assistant in turns" },
        { MESSAGES(SYSTEM_SAID "," ANSWER), "mistral-v3", "message 2: the template mistral-v3 has user and assistant" },
        { MESSAGES(USER "," CALLS(CALL)), "smollm3", "`tool_calls`: the template smollm3 " KNOWS_NONE },
        { MESSAGES(ANSWER "," USER), "alpaca",
          "x.jsonl:1: message 1: the template alpaca has user and assistant in turns" },
        { MESSAGES(USER "," ANSWER), "auto",
          "x.jsonl:1: a conversation needs a chat template, and none is next to the tokenizer: name one as "
          "tokenizer.chat_template" },
    };
    expect_refused(cases, sizeof cases / sizeof *cases);
}

Test(chat, a_folder_s_template_is_known_by_its_text)
{
    DataFixture fixture;
    char path[300];
    data_fixture_init(&fixture);
    snprintf(path, sizeof path, "%s/tokenizer.json", fixture.folder);
    cr_expect_str_eq(hs_chat_template_beside(path), "auto");
    /* The shortest program for ChatML, as many folders have it. */
    data_fixture_write_text(&fixture, "tokenizer_config.json",
                            "{\"chat_template\": \"{% for message in messages %}{{'<|im_start|>' + message['role'] + "
                            "'\\n' + message['content'] + '<|im_end|>' + '\\n'}}{% endfor %}{% if "
                            "add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}\"}");
    cr_expect_str_eq(hs_chat_template_beside(path), "chatml");
    /* chat_template.jinja comes before it. */
    data_fixture_write_text(&fixture, "chat_template.jinja", "{{ messages }}");
    cr_expect_str_eq(hs_chat_template_beside(path), "auto");
    cr_expect_eq(hs_chat_template_explain("x.jsonl:1", path), HS_ECONFIG);
    cr_expect(strstr(hs_error_message(), "chat_template.jinja (XXH3 ") != NULL, "%s", hs_error_message());
    data_fixture_deinit(&fixture);
}

static void check_exported(const char *const *names, size_t count)
{
    DataFixture fixture;
    char path[300];
    data_fixture_init(&fixture);
    snprintf(path, sizeof path, "%s/tokenizer.json", fixture.folder);
    for (int begins = 0; begins < 2; begins++)
        for (size_t i = 0; i < count; i++) {
            char *program = hs_chat_program(hs_chat_template_get(names[i]), begins == 1);
            data_fixture_write_text(&fixture, "chat_template.jinja", program);
            cr_expect_str_eq(hs_chat_template_beside(path), names[i], "%s", program);
            free(program);
        }
    data_fixture_deinit(&fixture);
}

/* What an export writes is known again. */
Test(chat, an_exported_template_is_known_by_its_text)
{
    static const char *const names[] = { "chatml", "qwen2", "qwen2.5", "llama3", "llama3.1", "alpaca" };
    check_exported(names, sizeof names / sizeof *names);
    check_exported(with_turns, sizeof with_turns / sizeof *with_turns);
}

enum { LENGTH = 16 };

static void chat_fixture(DataFixture *fixture)
{
    data_fixture_init(fixture);
    fixture->config.training.max_length = LENGTH;
    fixture->config.tokenizer.kind = "bpe";
    fixture->config.tokenizer.path = FOLDER "tokenizer.json";
    fixture->config.tokenizer.chat_template = "chatml";
}

Test(chat, a_dataset_counts_answers_and_cuts_between_conversations)
{
    DataFixture fixture;
    HsDataset dataset;
    size_t length;
    char *talks = read_golden("conversations", ".jsonl", &length);
    chat_fixture(&fixture);
    data_fixture_write(&fixture, "c.jsonl", talks, length);
    data_fixture_train(&fixture, "c.jsonl");
    fixture.task.validation = "30%";
    cr_assert_eq(data_fixture_create(&fixture, &dataset), HS_OK, "%s", hs_error_message());
    cr_expect_eq(dataset.train.documents + dataset.validation.documents, CONVERSATIONS);
    /* Whole conversations on both sides, without a token between them: line for line what is expected. */
    char *lines = read_golden("chatml", ".jsonl", &length);
    int64_t at = 0;
    const HsStreamTokens *stream = &dataset.train;
    for (char *line = lines, *end; *line; line = end + 1) {
        HsJson *root;
        end = strchr(line, '\n');
        cr_assert_eq(hs_json_parse("chatml", line, (size_t)(end - line), &root), HS_OK);
        const char *mask = hs_json_string(hs_json_get(root, "mask"));
        if (at == stream->count && stream == &dataset.train) {
            stream = &dataset.validation;
            at = 0;
        }
        const HsJson *item = hs_json_first(hs_json_get(root, "tokens"));
        for (; item && at < stream->count; item = hs_json_next(item), at++, mask++) {
            cr_expect_eq(stream->tokens[at], (int32_t)hs_json_number(item));
            cr_expect_eq(stream->loss_mask[at], *mask == '1');
        }
        cr_expect(item == NULL, "a conversation is cut in two");
        hs_json_destroy(root);
    }
    cr_expect(stream == &dataset.validation && at == stream->count);
    free(lines);
    free(talks);
    hs_dataset_deinit(&dataset);
    data_fixture_deinit(&fixture);
}

Test(chat, a_tokenizer_without_the_tokens_is_refused_with_the_mend)
{
    DataFixture fixture;
    HsDataset dataset;
    chat_fixture(&fixture);
    fixture.config.tokenizer.kind = "byte";
    fixture.config.tokenizer.path = "";
    data_fixture_write_text(&fixture, "c.jsonl", "{\"messages\":[" USER "," ANSWER "]}\n");
    data_fixture_train(&fixture, "c.jsonl");
    cr_assert_eq(data_fixture_create(&fixture, &dataset), HS_ECONFIG);
    cr_expect(strstr(hs_error_message(),
                     "chatml writes the tokens <|im_start|>, <|im_end|>, which this tokenizer (kind "
                     "byte) does not have") != NULL,
              "%s", hs_error_message());
    cr_expect(strstr(hs_error_message(), "train --special '<|im_start|>' --special '<|im_end|>' SOURCE") != NULL);
    data_fixture_deinit(&fixture);
}
