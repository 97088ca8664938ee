/* SPDX-License-Identifier: MIT
 *
 * A text that is encoded in parts has the tokens that it has whole, wherever the parts end, and however much of what
 * follows is seen.
 */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/base/rng.h"
#include "runtime/data/tokenizer/tokenizer.h"

enum { TEXT_BYTES = 6000 };

static const char *const fragments[] = {
    " word",
    "Word",
    "don't",
    " they'll",
    "123",
    "4567890",
    "  ",
    "   ",
    "\n",
    "\n\n",
    "\r\n",
    "\t",
    " \n  ",
    "...",
    "!?",
    ".\n",
    "e\xCC\x81",
    "\xC3\xA9",
    "\xE6\x97\xA5",
    "\xE6\x9C\xAC\xE8\xAA\x9E\xE3\x80\x82",
    "\xF0\x9F\x98\x80",
    "<|endoftext|>",
    "<|im_start|>",
    "<|end",
    "oftext|>",
    "_",
    "=",
    "x",
    "\xC2\xA0",
    "\xE3\x80\x80",
    "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
};
enum { FRAGMENTS = sizeof fragments / sizeof *fragments };

typedef struct Dice {
    uint64_t seed;
    uint32_t throws;
} Dice;

static uint32_t throw(Dice * dice, uint32_t sides)
{
    const uint32_t counter[4] = { dice->throws++, 0, 0, 7 };
    return hs_philox(dice->seed, counter).word[0] % sides;
}

static size_t make_text(Dice *dice, char *text)
{
    size_t length = 0;
    while (length < TEXT_BYTES) {
        const char *fragment = fragments[throw(dice, FRAGMENTS)];
        memcpy(text + length, fragment, strlen(fragment));
        length += strlen(fragment);
    }
    return length;
}

static size_t at_character(const char *text, size_t length, size_t at)
{
    while (at < length && ((unsigned char)text[at] & 0xC0) == 0x80)
        at++;
    return at < length ? at : length;
}

/* The text in parts of about `size` bytes, of which up to twice as much is seen at first. */
static void encode_in_parts(HsTokenizerSession *session, Dice *dice, const char *text, size_t length, uint32_t size,
                            HsTokens *tokens)
{
    for (size_t at = 0, used; at < length; at += used) {
        size_t least = 1 + throw(dice, size), seen = least + throw(dice, size);
        for (used = 0; used == 0; seen *= 2) {
            const size_t end = at_character(text, length, at + seen < length ? at + seen : length);
            const HsTextPart part = { .text = text + at,
                                      .length = end - at,
                                      .least = least < end - at ? least : end - at,
                                      .first = at == 0,
                                      .last = end == length };
            size_t border;
            cr_assert_eq(hs_tokenizer_session_encode_part(session, &part, tokens, &used), HS_OK, "%s",
                         hs_error_message());
            cr_assert(used <= part.length && (used == 0 || used >= part.least));
            cr_assert(used > 0 || !part.last);
            cr_assert_eq(hs_tokenizer_session_encode_part(session, &part, NULL, &border), HS_OK);
            cr_assert_eq(border, used);
        }
    }
}

static void check(const char *path, bool takes_parts)
{
    static char text[TEXT_BYTES + 256];
    HsTokenizer *tokenizer;
    HsTokenizerSession *session;
    cr_assert_eq(path ? hs_tokenizer_load(path, &tokenizer) : hs_tokenizer_create("byte", NULL, NULL, 0, &tokenizer),
                 HS_OK, "%s", hs_error_message());
    cr_assert_eq(hs_tokenizer_session_create(tokenizer, &session), HS_OK);
    cr_expect_eq(hs_tokenizer_takes_parts(tokenizer), takes_parts, "%s", path);
    for (uint64_t seed = 0; seed < 40; seed++) {
        Dice dice = { seed, 0 };
        HsTokens whole = { 0 }, again = { 0 }, parts = { 0 };
        const size_t length = make_text(&dice, text);
        cr_assert_eq(hs_tokenizer_encode(tokenizer, text, length, &whole), HS_OK, "%s", hs_error_message());
        cr_assert_eq(hs_tokenizer_session_encode(session, text, length, &again), HS_OK);
        if (takes_parts)
            encode_in_parts(session, &dice, text, length, seed % 2 ? 300 : 40, &parts);
        cr_expect(again.count == whole.count && memcmp(again.items, whole.items, (size_t)whole.count * 4) == 0,
                  "%s, seed %d: a session has other tokens", path, (int)seed);
        cr_expect(!takes_parts ||
                      (parts.count == whole.count && memcmp(parts.items, whole.items, (size_t)whole.count * 4) == 0),
                  "%s, seed %d: %lld tokens in parts, %lld whole", path, (int)seed, (long long)parts.count,
                  (long long)whole.count);
        hs_tokens_deinit(&whole);
        hs_tokens_deinit(&again);
        hs_tokens_deinit(&parts);
    }
    hs_tokenizer_session_destroy(session);
    hs_tokenizer_destroy(tokenizer);
}

#define GOLDEN(name) "tests/unit/tokenizer/golden/" name ".json"

Test(parts, have_the_tokens_of_the_whole)
{
    check(NULL, true);
    check("tests/huggingface/models/gpt2/tokenizer.json", true);
    check(GOLDEN("llama3"), true);
    check(GOLDEN("qwen2"), true); /* NFC */
    check(GOLDEN("pythia"), true);
    check(GOLDEN("gemma"), true); /* the next three cut nothing: borders lie where no merge reaches across */
    check(GOLDEN("llama2"), true);
    check(GOLDEN("mistral"), true);
}

/* What looks beyond a border, or has none, is encoded whole. */
Test(parts, are_not_taken_where_they_would_not)
{
    check(GOLDEN("always"), false);
    check(GOLDEN("split-contiguous-False"), false);
    check(GOLDEN("added"), false);
}
