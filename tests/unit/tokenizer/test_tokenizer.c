/* SPDX-License-Identifier: MIT
 *
 * Byte, character and BPE tokenizers: round trips, and tokens worked out by hand.
 */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "kernels/base/rng.h"
#include "runtime/data/tokenizer/tokenizer.h"
#include "runtime/io/files.h"
#include "tests/support/tokenizer_json.h"

#define SPLIT(regex)                                                                                      \
    "{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"Split\",\"pattern\":{\"Regex\":\"" regex       \
    "\"},\"behavior\":\"Isolated\",\"invert\":false},{\"type\":\"ByteLevel\",\"add_prefix_space\":false," \
    "\"use_regex\":false}]}"
#define LLAMA3(digits)                                                                     \
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\\\r\\\\n\\\\p{L}\\\\p{N}]?\\\\p{L}+|\\\\p{N}" digits \
    "| ?[^\\\\s\\\\p{L}\\\\p{N}]+[\\\\r\\\\n]*|\\\\s*[\\\\r\\\\n]+|\\\\s+(?!\\\\S)|\\\\s+"
#define HELLO_VOCAB  ",\"he\":256,\"ll\":257,\"hell\":258,\"hello\":259,\"\\u0120w\":260,\"or\":261,\"\\u0120wor\":262"
#define HELLO_MERGES "\"h e\",[\"l\",\"l\"],\"he ll\",\"hell o\",[\"\\u0120\",\"w\"],\"o r\",\"\\u0120w or\""

static HsTokenizer *parse(const char *json)
{
    HsTokenizer *tokenizer;
    cr_assert_eq(hs_tokenizer_parse("t.json", json, strlen(json), &tokenizer), HS_OK, "%s", hs_error_message());
    return tokenizer;
}

static HsTokenizer *make_bpe(const char *vocab, const char *merges, const char *model, const char *pre,
                             const char *root)
{
    char *json = tokenizer_json(vocab, merges, model, pre, root);
    HsTokenizer *tokenizer = parse(json);
    free(json);
    return tokenizer;
}

/* Encode and compare with a list ended by -1. */
static void expect_tokens(const HsTokenizer *tokenizer, const char *text, const int32_t *expected)
{
    HsTokens tokens = { 0 };
    cr_assert_eq(hs_tokenizer_encode(tokenizer, text, strlen(text), &tokens), HS_OK, "%s", hs_error_message());
    int64_t count = 0;
    while (expected[count] >= 0)
        count++;
    cr_expect_eq(tokens.count, count, "%s: %lld tokens, not %lld", text, (long long)tokens.count, (long long)count);
    for (int64_t i = 0; i < count && i < tokens.count; i++)
        cr_expect_eq(tokens.items[i], expected[i], "%s: token %lld is %d, not %d", text, (long long)i, tokens.items[i],
                     expected[i]);
    hs_tokens_deinit(&tokens);
}
#define EXPECT(tokenizer, text, ...) expect_tokens(tokenizer, text, (const int32_t[]){ __VA_ARGS__, -1 })

static void expect_round_trip(const HsTokenizer *tokenizer, const char *text, size_t length)
{
    HsTokens tokens = { 0 };
    cr_assert_eq(hs_tokenizer_encode(tokenizer, text, length, &tokens), HS_OK, "%s", hs_error_message());
    size_t at = 0;
    for (int64_t i = 0; i < tokens.count; i++) {
        size_t size;
        const char *bytes = hs_tokenizer_bytes(tokenizer, tokens.items[i], &size);
        cr_assert(at + size <= length && memcmp(text + at, bytes, size) == 0, "token %lld differs", (long long)i);
        at += size;
    }
    cr_expect_eq(at, length);
    hs_tokens_deinit(&tokens);
}

/* Pseudo-random bytes; with `utf8`, whole characters of all lengths, spaces and line breaks. */
static char *noise(uint64_t seed, size_t length, bool utf8)
{
    static const char *const pieces[] = { "a",
                                          " ",
                                          "he",
                                          "llo",
                                          "\n",
                                          "\r\n",
                                          "7",
                                          "'s",
                                          "\xC3\xA9",
                                          "\xE6\x97\xA5",
                                          "\xF0\x9F\x98\x80",
                                          "\xC2\xA0",
                                          "  ",
                                          "<|a|>",
                                          "\xE1\xA0\x8E",
                                          "." };
    char *text = calloc(length + 8, 1);
    cr_assert_not_null(text);
    for (size_t at = 0, draw = 0; at < length; draw++) {
        HsRng rng = { .seed = seed };
        uint32_t bits = hs_rng_draw(&rng, draw).word[0];
        if (!utf8)
            text[at++] = (char)bits;
        else
            at += strlen(strcpy(text + at, pieces[bits % (sizeof pieces / sizeof pieces[0])]));
    }
    return text;
}

static void expect_noise_round_trips(const HsTokenizer *tokenizer, bool bytes_too)
{
    for (uint64_t seed = 1; seed <= 8; seed++) {
        char *text = noise(seed, 4000, true);
        expect_round_trip(tokenizer, text, strlen(text));
        free(text);
        text = noise(seed, 4000, false);
        if (bytes_too)
            expect_round_trip(tokenizer, text, 4000);
        free(text);
    }
    expect_round_trip(tokenizer, "", 0);
}

/* Save, load, and compare kind, size and every token's bytes. */
static void expect_saves(const HsTokenizer *tokenizer)
{
    char path[] = "/tmp/halfstep-tokenizer-XXXXXX";
    int descriptor = mkstemp(path);
    cr_assert_geq(descriptor, 0);
    close(descriptor);
    HsTokenizer *again;
    cr_assert_eq(hs_tokenizer_save(tokenizer, path), HS_OK);
    cr_assert_eq(hs_tokenizer_load(path, &again), HS_OK, "%s", hs_error_message());
    cr_expect_str_eq(hs_tokenizer_kind(again), hs_tokenizer_kind(tokenizer));
    cr_expect_eq(hs_tokenizer_end_of_text(again), hs_tokenizer_end_of_text(tokenizer));
    cr_assert_eq(hs_tokenizer_vocabulary(again), hs_tokenizer_vocabulary(tokenizer));
    for (int32_t token = 0; token < hs_tokenizer_vocabulary(tokenizer); token++) {
        size_t a_length, b_length;
        const char *a = hs_tokenizer_bytes(tokenizer, token, &a_length);
        const char *b = hs_tokenizer_bytes(again, token, &b_length);
        cr_expect(a_length == b_length && memcmp(a, b, a_length) == 0, "token %d", token);
    }
    hs_tokenizer_destroy(again);
    unlink(path);
}

Test(tokenizer_byte, every_byte_is_its_own_token)
{
    HsTokenizer *tokenizer;
    cr_assert_eq(hs_tokenizer_create("byte", NULL, NULL, 0, &tokenizer), HS_OK);
    cr_expect_eq(hs_tokenizer_vocabulary(tokenizer), 257);
    cr_expect_eq(hs_tokenizer_end_of_text(tokenizer), 256);
    EXPECT(tokenizer, "a\xFF ", 97, 255, 32);
    for (int32_t byte = 0; byte < 256; byte++) {
        size_t length;
        cr_expect_eq((unsigned char)*hs_tokenizer_bytes(tokenizer, byte, &length), byte);
        cr_expect_eq(length, 1);
    }
    size_t length;
    cr_expect_str_eq(hs_tokenizer_bytes(tokenizer, 300, &length), ""); /* a padded row of the embedding */
    expect_noise_round_trips(tokenizer, true);
    expect_saves(tokenizer);
    hs_tokenizer_destroy(tokenizer);
}

Test(tokenizer_char, sorted_code_points_are_the_vocabulary)
{
    static const char text[] = "b\xC3\xA9"
                               "a\n\xF0\x9F\x98\x80"
                               "ab\0";
    HsTokenizer *tokenizer;
    cr_assert_eq(hs_tokenizer_create("char", NULL, text, sizeof text - 1, &tokenizer), HS_OK);
    cr_expect_eq(hs_tokenizer_vocabulary(tokenizer), 6); /* NUL, newline, a, b, e acute, a face */
    cr_expect_eq(hs_tokenizer_end_of_text(tokenizer), -1);
    EXPECT(tokenizer, "ab\n\xC3\xA9\xF0\x9F\x98\x80", 2, 3, 1, 4, 5);
    expect_round_trip(tokenizer, text, sizeof text - 1);
    expect_saves(tokenizer);

    HsTokens tokens = { 0 };
    cr_expect_eq(hs_tokenizer_encode(tokenizer, "abc", 3, &tokens), HS_EFORMAT);
    cr_expect_str_eq(hs_error_message(), "byte 2: character U+0063 'c' is not among the tokenizer's 6 characters");
    cr_expect_eq(hs_tokenizer_encode(tokenizer, "a\xE6\x97\xA5", 4, &tokens), HS_EFORMAT);
    cr_expect_str_eq(hs_error_message(),
                     "byte 1: character U+65E5 '\xE6\x97\xA5' is not among the tokenizer's 6 characters");
    cr_expect_eq(hs_tokenizer_encode(tokenizer, "a\t", 2, &tokens), HS_EFORMAT);
    cr_expect_str_eq(hs_error_message(), "byte 1: character U+0009 is not among the tokenizer's 6 characters");
    cr_expect_eq(hs_tokenizer_encode(tokenizer, "ab\xFF", 3, &tokens), HS_EFORMAT);
    cr_expect_eq(tokens.count, 0); /* a failure leaves nothing behind */
    hs_tokens_deinit(&tokens);
    hs_tokenizer_destroy(tokenizer);
}

Test(tokenizer_char, text_must_be_utf8_and_not_empty)
{
    HsTokenizer *tokenizer;
    cr_expect_eq(hs_tokenizer_create("char", NULL, "a\xC0\x80", 3, &tokenizer), HS_EFORMAT);
    cr_expect_str_eq(hs_error_message(),
                     "byte 1 (0xC0) is not UTF-8; tokenizer.kind: char needs UTF-8 text, byte takes anything");
    cr_expect_null(tokenizer);
    cr_expect_eq(hs_tokenizer_create("char", NULL, "", 0, &tokenizer), HS_EFORMAT);
    cr_expect_eq(hs_tokenizer_create("word", NULL, "", 0, &tokenizer), HS_ECONFIG);
}

Test(tokenizer_bpe, merges_worked_by_hand)
{
    HsTokenizer *tokenizer = make_bpe(HELLO_VOCAB, HELLO_MERGES, "", PRE_GPT2, "");
    cr_expect_eq(hs_tokenizer_vocabulary(tokenizer), 263);
    EXPECT(tokenizer, "hello world", 259, 262, 'l', 'd');
    EXPECT(tokenizer, "hellhe", 258, 256);
    EXPECT(tokenizer, "lll", 257, 'l'); /* of equal pairs the leftmost */
    EXPECT(tokenizer, "hel", 256, 'l');
    EXPECT(tokenizer, "llo", 257, 'o'); /* "hell o" needs the whole left part */
    EXPECT(tokenizer, " wo", 260, 'o');
    EXPECT(tokenizer, "hello\nhello hello", 259, '\n', 259, ' ', 259);
    size_t length;
    cr_expect_eq(memcmp(hs_tokenizer_bytes(tokenizer, 262, &length), " wor", 4), 0);
    cr_expect_eq(length, 4);
    expect_noise_round_trips(tokenizer, true);
    expect_saves(tokenizer);
    hs_tokenizer_destroy(tokenizer);
}

Test(tokenizer_bpe, the_better_rank_goes_first_wherever_it_stands)
{
    HsTokenizer *tokenizer =
        make_bpe(",\"bc\":256,\"ab\":257,\"abc\":258", "\"b c\",\"a b\",\"ab c\"", "", PRE_GPT2, "");
    EXPECT(tokenizer, "abc", 'a', 256); /* b c is taken first, then a b has no b left */
    EXPECT(tokenizer, "abab", 257, 257);
    hs_tokenizer_destroy(tokenizer);
}

Test(tokenizer_bpe, merges_stay_within_pieces)
{
    static const char vocab[] =
        ",\"t'\":256,\"12\":257,\"123\":258,\"1234\":259,\"'S\":260,\"\\u0120\\u0120\":261,\"e\\u0120\":262";
    static const char merges[] = "\"t '\",\"1 2\",\"12 3\",\"123 4\",\"' S\",\"\\u0120 \\u0120\",\"e \\u0120\"";
    HsTokenizer *gpt2 = make_bpe(vocab, merges, "", PRE_GPT2, "");
    HsTokenizer *llama3 = make_bpe(vocab, merges, "", SPLIT(LLAMA3("{1,3}")), "");
    HsTokenizer *qwen2 = make_bpe(vocab, merges, "", SPLIT(LLAMA3("")), "");
    EXPECT(gpt2, "it's", 'i', 't', '\'', 's');
    EXPECT(gpt2, "e e", 'e', ' ', 'e');
    EXPECT(gpt2, "1234", 259);
    EXPECT(llama3, "1234", 258, '4'); /* at most three digits a piece */
    EXPECT(qwen2, "1234", '1', '2', '3', '4');
    EXPECT(gpt2, "a   b", 'a', 261, ' ', 'b'); /* the last space goes with the word */
    EXPECT(llama3, "A'S", 'A', 260);           /* contractions in any case */
    /* U+180E is no white space to the library the expressions are written for: it goes with the other signs. */
    EXPECT(gpt2, "  \xE1\xA0\x8E", ' ', ' ', 0xE1, 0xA0, 0x8E);
    HsTokenizer *const all[] = { gpt2, llama3, qwen2 };
    for (int i = 0; i < 3; i++) {
        expect_noise_round_trips(all[i], true);
        hs_tokenizer_destroy(all[i]);
    }
}

Test(tokenizer_bpe, ignore_merges_takes_a_whole_piece)
{
    HsTokenizer *merging = make_bpe(",\"hey\":256", "", "", PRE_GPT2, "");
    HsTokenizer *ignoring = make_bpe(",\"hey\":256", "", ",\"ignore_merges\":true", PRE_GPT2, "");
    EXPECT(merging, "hey", 'h', 'e', 'y');
    EXPECT(ignoring, "hey", 256);
    EXPECT(ignoring, "heyo", 'h', 'e', 'y', 'o');
    hs_tokenizer_destroy(merging);
    hs_tokenizer_destroy(ignoring);
}

Test(tokenizer_bpe, added_tokens_are_found_first_and_the_longest_wins)
{
    HsTokenizer *tokenizer = make_bpe(HELLO_VOCAB, HELLO_MERGES, "", PRE_GPT2,
                                      ",\"added_tokens\":[{\"id\":263,\"content\":\"<|endoftext|>\",\"special\":true},"
                                      "{\"id\":264,\"content\":\"ell\",\"normalized\":false},"
                                      "{\"id\":265,\"content\":\"ellow\",\"normalized\":false},"
                                      "{\"id\":266,\"content\":\"\\u65e5\",\"normalized\":true}]");
    cr_expect_eq(hs_tokenizer_end_of_text(tokenizer), 263);
    cr_expect_eq(hs_tokenizer_vocabulary(tokenizer), 267);
    EXPECT(tokenizer, "he<|endoftext|>he", 256, 263, 256);
    EXPECT(tokenizer, "<|endoftext|><|endoftext|", 263, '<', '|', 'e', 'n', 'd', 'o', 'f', 't', 'e', 'x', 't', '|');
    EXPECT(tokenizer, "hellow hello", 'h', 265, ' ', 'h', 264, 'o');
    EXPECT(tokenizer, "\xE6\x97\xA5llo", 266, 257, 'o'); /* stands for itself, outside the byte map */
    expect_noise_round_trips(tokenizer, true);
    hs_tokenizer_destroy(tokenizer);
}

Test(tokenizer_bpe, ids_may_have_holes)
{
    HsTokenizer *tokenizer = make_bpe(",\"he\":300", "\"h e\"", "", PRE_GPT2, "");
    size_t length;
    EXPECT(tokenizer, "he", 300);
    cr_expect_eq(hs_tokenizer_vocabulary(tokenizer), 301);
    (void)hs_tokenizer_bytes(tokenizer, 299, &length);
    cr_expect_eq(length, 0);
    hs_tokenizer_destroy(tokenizer);
}

Test(tokenizer_bpe, add_prefix_space_puts_one_before_what_has_none)
{
    HsTokenizer *tokenizer =
        make_bpe(HELLO_VOCAB, HELLO_MERGES, "", "{\"type\":\"ByteLevel\",\"add_prefix_space\":true}",
                 ",\"added_tokens\":[{\"id\":263,\"content\":\"<x>\",\"special\":true}]");
    EXPECT(tokenizer, "wo", 260, 'o');
    EXPECT(tokenizer, " wo", 260, 'o');
    EXPECT(tokenizer, "w<x>w", 260, 263, 260);
    hs_tokenizer_destroy(tokenizer);
}

Test(tokenizer_bpe, nfc_composes)
{
    HsTokenizer *tokenizer = make_bpe("", "", "", PRE_GPT2, ",\"normalizer\":{\"type\":\"NFC\"}");
    expect_round_trip(tokenizer, "caf\xC3\xA9 \xE6\x97\xA5", 9);
    expect_round_trip(tokenizer, "\xE0\xA4\xAE\xE0\xA5\x87\xE0\xA4\x82", 9); /* Devanagari with vowel signs */
    EXPECT(tokenizer, "cafe\xCC\x81", 'c', 'a', 'f', 0xC3, 0xA9);
    EXPECT(tokenizer, "5 \xE2\x84\xAB", '5', ' ', 0xC3, 0x85); /* angstrom sign */
    EXPECT(tokenizer, "e\xFF\xCC\x81", 'e', 0xFF, 0xCC, 0x81); /* not across a byte that is no character */
    hs_tokenizer_destroy(tokenizer);
}

Test(tokenizer_bpe, a_very_long_piece_takes_no_quadratic_time)
{
    enum { LENGTH = 1 << 19 };
    HsTokenizer *tokenizer = make_bpe(",\"aa\":256,\"aaaa\":257", "\"a a\",\"aa aa\"", "", PRE_GPT2, "");
    char *text = malloc(LENGTH);
    cr_assert_not_null(text);
    memset(text, 'a', LENGTH);
    HsTokens tokens = { 0 };
    cr_assert_eq(hs_tokenizer_encode(tokenizer, text, LENGTH, &tokens), HS_OK);
    cr_expect_eq(tokens.count, LENGTH / 4);
    cr_expect_eq(tokens.items[LENGTH / 4 - 1], 257);
    hs_tokens_deinit(&tokens);
    free(text);
    hs_tokenizer_destroy(tokenizer);
}

/* What would take quadratic time if it were done the simple way, each on a megabyte. */
Test(tokenizer_bpe, long_texts_of_one_kind_take_no_quadratic_time)
{
    static const struct {
        const char *normalizer, *pre, *unit;
    } cases[] = {
        { "{\"type\":\"NFC\"}", PRE_GPT2, "\xCC\x81\xCC\xA3" }, /* marks that change places */
        { "null", "{\"type\":\"Metaspace\",\"replacement\":\"_\",\"split\":false}", "ab" },
        { "null", "null", "a " },
        { "null", PRE_GPT2, "    " },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        enum { LENGTH = 1 << 20 };
        char root[256];
        snprintf(root, sizeof root, ",\"normalizer\":%s", cases[i].normalizer);
        HsTokenizer *tokenizer =
            make_bpe(",\"ab\":256,\"<u>\":257", "\"a b\"", ",\"unk_token\":\"<u>\"", cases[i].pre, root);
        char *text = malloc(LENGTH);
        size_t size = strlen(cases[i].unit);
        cr_assert_not_null(text);
        for (size_t at = 0; at + size <= LENGTH; at += size)
            memcpy(text + at, cases[i].unit, size);
        HsTokens tokens = { 0 };
        cr_expect_eq(hs_tokenizer_encode(tokenizer, text, LENGTH, &tokens), HS_OK, "%s", hs_error_message());
        cr_expect_geq(tokens.count, LENGTH / 4);
        hs_tokens_deinit(&tokens);
        free(text);
        hs_tokenizer_destroy(tokenizer);
    }
}

/* Expressions that backtrack: an error that names the place, and soon, also where one match is not slow. */
Test(tokenizer_bpe, slow_expressions_end_in_an_error, .timeout = 120)
{
    static const char *const expressions[] = {
        "(a+)+b",                  /* exponential in one match */
        "(?=a*(?!a))(?=a*(?!a))a", /* each match looks to the end of the text */
        "a*a*a*c",                 /* cubic */
    };
    enum { LENGTH = 1 << 16 };
    char *text = malloc(LENGTH);
    cr_assert_not_null(text);
    memset(text, 'a', LENGTH);
    for (size_t i = 0; i < sizeof expressions / sizeof expressions[0]; i++) {
        char pre[256];
        snprintf(pre, sizeof pre, "{\"type\":\"Split\",\"pattern\":{\"Regex\":\"%s\"},\"behavior\":\"Isolated\"}",
                 expressions[i]);
        HsTokenizer *tokenizer = make_bpe("", "", "", pre, "");
        HsTokens tokens = { 0 };
        cr_expect_eq(hs_tokenizer_encode(tokenizer, text, LENGTH, &tokens), HS_EUNSUPPORTED, "%s", expressions[i]);
        const char *begin = "t.json: pre_tokenizer Split: the expression takes too long on this text";
        cr_expect_eq(strncmp(hs_error_message(), begin, strlen(begin)), 0, "%s", hs_error_message());
        cr_expect_eq(tokens.count, 0);
        hs_tokens_deinit(&tokens);
        hs_tokenizer_destroy(tokenizer);
    }
    free(text);
}

Test(tokenizer_bpe, a_character_without_a_token_is_named)
{
    HsTokenizer *tokenizer = make_bpe("", "", "", "null", "");
    HsTokens tokens = { 0 };
    cr_expect_eq(hs_tokenizer_encode(tokenizer, "a\xE6\x97\xA5", 4, &tokens), HS_EFORMAT);
    cr_expect_str_eq(hs_error_message(),
                     "the tokenizer has no token for character U+65E5 '\xE6\x97\xA5', and neither byte_fallback nor "
                     "unk_token says what to take");
    cr_expect_eq(hs_tokenizer_encode(tokenizer, "a\xFF", 2, &tokens), HS_EFORMAT);
    cr_expect_str_eq(hs_error_message(), "the tokenizer has no token for byte 0xFF, and neither byte_fallback nor "
                                         "unk_token says what to take");
    cr_expect_eq(tokens.count, 0);
    hs_tokens_deinit(&tokens);
    hs_tokenizer_destroy(tokenizer);
}

/* Bytes that are no UTF-8 come back as they were, also through byte_fallback. */
Test(tokenizer_bpe, byte_fallback_keeps_any_bytes)
{
    HsTokenizer *tokenizer;
    cr_assert_eq(hs_tokenizer_load("tests/unit/tokenizer/golden/gemma.json", &tokenizer), HS_OK, "%s",
                 hs_error_message());
    for (uint64_t seed = 1; seed <= 4; seed++) {
        char *text = noise(seed, 4000, false), *again;
        size_t length;
        HsTokens tokens = { 0 };
        for (size_t i = 0; i < 4000; i++)
            text[i] = text[i] == '<' ? '.' : text[i]; /* no added token */
        cr_assert_eq(hs_tokenizer_encode(tokenizer, text, 4000, &tokens), HS_OK, "%s", hs_error_message());
        cr_assert_eq(hs_tokenizer_decode(tokenizer, tokens.items, tokens.count, &again, &length), HS_OK);
        cr_expect(length == 4000 && memcmp(again, text, 4000) == 0, "seed %d", (int)seed);
        expect_round_trip(tokenizer, text, 4000); /* token by token too */
        hs_tokens_deinit(&tokens);
        free(again);
        free(text);
    }
    hs_tokenizer_destroy(tokenizer);
}
