/* SPDX-License-Identifier: MIT
 *
 * Learning merges: an example worked by hand, a slow and obvious second implementation, and repetition.
 */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "kernels/base/log.h"
#include "kernels/base/rng.h"
#include "runtime/config/config.h"
#include "runtime/data/tokenizer/tokenizer.h"
#include "runtime/data/tokenizer_train.h"
#include "runtime/io/files.h"

enum { MAX_TEXT = 4096, MAX_MERGES = 64, MAX_TOKEN = 64 };

static void make_file(char *path, const char *text, size_t length)
{
    strcpy(path, "/tmp/halfstep-bpe-XXXXXX");
    int descriptor = mkstemp(path);
    cr_assert_geq(descriptor, 0);
    cr_assert_eq(write(descriptor, text, length), (ssize_t)length);
    close(descriptor);
}

/* One file, read as a task's are by default. */
static HsStatus train_from(char *path, int64_t vocabulary, const char *output)
{
    const HsTaskConfig task = { .train = { .count = 1, .items = &path },
                                .format = "auto",
                                .text_field = "text",
                                .prompt_field = "prompt",
                                .completion_field = "completion" };
    return hs_tokenizer_train(&task, vocabulary, NULL, 0, output);
}

/* Train on one text -> the file's content; caller frees. */
static char *train(const char *text, int64_t vocabulary, size_t *length)
{
    char input[64], output[64], *json;
    make_file(input, text, strlen(text));
    make_file(output, "", 0);
    cr_assert_eq(train_from(input, vocabulary, output), HS_OK, "%s", hs_error_message());
    cr_assert_eq(hs_read_file(output, 0, &json, length), HS_OK);
    unlink(input);
    unlink(output);
    return json;
}

/* The merges as they stand in the file, without blanks and line breaks. */
static char *merges_of(const char *json)
{
    const char *start = strstr(json, "\"merges\": [");
    cr_assert_not_null(start);
    char *merges = calloc(strlen(start) + 1, 1);
    cr_assert_not_null(merges);
    size_t used = 0;
    for (const char *c = start + strlen("\"merges\": ["); *c && *c != '}'; c++)
        if (*c != ' ' && *c != '\n')
            merges[used++] = *c;
    merges[used - 1] = '\0'; /* the list's closing bracket */
    return merges;
}

Test(bpe_train, an_example_worked_by_hand)
{
    hs_log_set_level(HS_LOG_ERROR);
    /* aaabdaaabac: "a a" occurs 4 times; then "a b" and "aa a" both twice, and a comes before aa; then "aa ab" twice;
     * then nothing occurs twice. */
    size_t length;
    char *json = train("aaabdaaabac", 300, &length), *merges = merges_of(json);
    cr_expect_str_eq(merges, "[\"a\",\"a\"],[\"a\",\"b\"],[\"aa\",\"ab\"]");
    HsTokenizer *tokenizer;
    cr_assert_eq(hs_tokenizer_parse("trained", json, length, &tokenizer), HS_OK, "%s", hs_error_message());
    cr_expect_eq(hs_tokenizer_vocabulary(tokenizer), 260);
    cr_expect_eq(hs_tokenizer_end_of_text(tokenizer), 259);
    HsTokens tokens = { 0 };
    cr_assert_eq(hs_tokenizer_encode(tokenizer, "aaab<|endoftext|>", 17, &tokens), HS_OK);
    cr_assert_eq(tokens.count, 2);
    cr_expect_eq(tokens.items[0], 258);
    cr_expect_eq(tokens.items[1], 259);
    hs_tokens_deinit(&tokens);
    hs_tokenizer_destroy(tokenizer);
    free(merges);
    free(json);
}

/* Words of lower-case letters: every piece is one word with the space before it. */
static void make_words(uint64_t seed, char *text)
{
    size_t at = 0;
    for (uint64_t draw = 0; at < MAX_TEXT - 16; draw++) {
        HsRng rng = { .seed = seed };
        HsPhilox bits = hs_rng_draw(&rng, draw);
        for (uint32_t i = 0; i <= bits.word[0] % 7; i++)
            text[at++] = (char)('a' + (bits.word[1] >> 2 * i) % 4);
        text[at++] = ' ';
    }
    text[at - 1] = '\0';
}

/* The obvious way: the text as a list of tokens (texts), all pairs counted anew in every round. */
static char *merge_slowly(const char *text, int rounds)
{
    static char tokens[MAX_TEXT][MAX_TOKEN];
    int count = 0;
    char *merges = calloc(MAX_MERGES, 2 * MAX_TOKEN + 8);
    cr_assert_not_null(merges);
    for (const char *c = text; *c; c++)
        snprintf(tokens[count++], MAX_TOKEN, "%c", *c);
    for (int round = 0; round < rounds; round++) {
        int best = -1, best_count = 1;
        for (int i = 0; i + 1 < count; i++) {
            if (tokens[i + 1][0] == ' ') /* a new piece begins there */
                continue;
            int occurs = 0;
            for (int k = 0; k + 1 < count; k++)
                occurs += strcmp(tokens[k], tokens[i]) == 0 && strcmp(tokens[k + 1], tokens[i + 1]) == 0;
            int order = best < 0 ? -1 : strcmp(tokens[i], tokens[best]);
            if (order == 0)
                order = strcmp(tokens[i + 1], tokens[best + 1]);
            if (occurs > best_count || (occurs == best_count && best >= 0 && order < 0)) {
                best = i;
                best_count = occurs;
            }
        }
        if (best < 0)
            break;
        char left[MAX_TOKEN], right[MAX_TOKEN], line[2 * MAX_TOKEN + 16];
        strcpy(left, tokens[best]);
        strcpy(right, tokens[best + 1]);
        /* A space is written as U+0120 by the byte map. */
        snprintf(line, sizeof line, "%s[\"%s%s\",\"%s\"]", round > 0 ? "," : "", left[0] == ' ' ? "\xC4\xA0" : "",
                 left + (left[0] == ' '), right);
        strcat(merges, line);
        int kept = 0;
        for (int i = 0; i < count; kept++) {
            bool here = i + 1 < count && strcmp(tokens[i], left) == 0 && strcmp(tokens[i + 1], right) == 0;
            memmove(tokens[kept], tokens[i], MAX_TOKEN);
            if (here)
                strcat(tokens[kept], right);
            i += here ? 2 : 1;
        }
        count = kept;
    }
    return merges;
}

Test(bpe_train, it_agrees_with_the_obvious_way)
{
    enum { ROUNDS = 12 };
    for (uint64_t seed = 1; seed <= 3; seed++) {
        static char text[MAX_TEXT];
        make_words(seed, text);
        text[700] = '\0'; /* the obvious way is cubic */
        size_t length;
        char *expected = merge_slowly(text, ROUNDS);
        char *json = train(text, 257 + ROUNDS, &length), *merges = merges_of(json);
        cr_expect_str_eq(merges, expected);
        free(merges);
        free(json);
        free(expected);
    }
}

Test(bpe_train, the_same_text_gives_the_same_file)
{
    static char text[MAX_TEXT];
    make_words(7, text);
    size_t a_length, b_length;
    char *a = train(text, 320, &a_length), *b = train(text, 320, &b_length);
    cr_assert_eq(a_length, b_length);
    cr_expect_eq(memcmp(a, b, a_length), 0);
    HsTokenizer *tokenizer;
    cr_assert_eq(hs_tokenizer_parse("trained", a, a_length, &tokenizer), HS_OK, "%s", hs_error_message());
    cr_expect_eq(hs_tokenizer_vocabulary(tokenizer), 320);
    hs_tokenizer_destroy(tokenizer);
    free(a);
    free(b);
}

Test(bpe_train, impossible_requests_are_refused)
{
    char empty[64];
    make_file(empty, "", 0);
    cr_expect_eq(train_from("no/such/file.txt", 100, "/tmp/x.json"), HS_EINVAL);
    cr_expect_eq(train_from("no/such/file.txt", 300, "/tmp/x.json"), HS_EIO);
    cr_expect_eq(train_from(empty, 300, "/tmp/x.json"), HS_ECONFIG);
    cr_expect_str_eq(hs_error_message(), "there is no text to learn from: every file is empty");
    unlink(empty);
}
