/* SPDX-License-Identifier: MIT
 *
 * A generator that continues from what it has read, against one that reads everything: the same tokens; ends of text.
 */
#include "tests/support/tiny_model.h"

#include <string.h>

#include "runtime/engine/generate.h"

/* Double throughout: two ways to sum do not change which logit is the largest. */
static const TinySpec spec = { .family = "llama",
                               .mode = "fp64",
                               .layers = 2,
                               .heads = 2,
                               .width = 16,
                               .mlp_width = 12,
                               .vocabulary = 257,
                               .batch = 1,
                               .length = 16 };

static HsTokens tokens_of(const int32_t *items, int64_t count)
{
    HsTokens tokens = { 0 };
    TINY_OK(hs_tokens_reserve(&tokens, count + 1));
    memcpy(tokens.items, items, (size_t)count * sizeof *items);
    tokens.count = count;
    return tokens;
}

typedef struct Pair {
    TinyModel tiny;
    HsTokenizer *tokenizer;
    HsGenerator *kept;
} Pair;

static void pair_create(Pair *pair)
{
    tiny_create(&pair->tiny, spec);
    TINY_OK(hs_tokenizer_create("byte", NULL, NULL, 0, &pair->tokenizer));
    TINY_OK(hs_generator_create(&pair->tiny.model, &pair->tiny.context, pair->tokenizer, 64, &pair->kept));
}

static void pair_destroy(Pair *pair)
{
    hs_generator_destroy(pair->kept);
    hs_tokenizer_destroy(pair->tokenizer);
    tiny_destroy(&pair->tiny);
}

/* What a fresh generator adds is what the kept one adds, which read all but `reused` tokens. */
static HsTokens check(Pair *pair, const HsTokens *prompt, const HsGeneration *wanted, int64_t reused)
{
    HsGenerator *fresh;
    HsTokens expected = { 0 }, found = { 0 };
    TINY_OK(hs_generator_create(&pair->tiny.model, &pair->tiny.context, pair->tokenizer, 0, &fresh));
    TINY_OK(hs_generator_run(fresh, prompt, wanted, NULL, &expected));
    TINY_OK(hs_generator_run(pair->kept, prompt, wanted, NULL, &found));
    cr_expect_eq(hs_generator_reused(fresh), 0);
    cr_expect_eq(hs_generator_reused(pair->kept), reused, "%lld tokens were there",
                 (long long)hs_generator_reused(pair->kept));
    cr_assert_eq(found.count, expected.count);
    for (int64_t i = 0; i < found.count; i++)
        cr_expect_eq(found.items[i], expected.items[i], "token %lld", (long long)i);
    hs_tokens_deinit(&expected);
    hs_generator_destroy(fresh);
    return found;
}

Test(generate, what_was_read_is_not_read_again)
{
    static const int32_t said[] = { 5, 250, 9, 9, 31, 77, 100 };
    const HsGeneration wanted = { .tokens = 6, .sampling = { .temperature = 0, .top_p = 1 } };
    Pair pair;
    pair_create(&pair);
    HsTokens first = tokens_of(said, 5), second = tokens_of(said, 5), third = tokens_of(said, 7);
    HsTokens answer = check(&pair, &first, &wanted, 0);
    /* All that was said, the answer, and more: the last token of the answer was sampled, but never read. */
    TINY_OK(hs_tokens_reserve(&second, answer.count + 3));
    memcpy(second.items + 5, answer.items, (size_t)answer.count * sizeof(int32_t));
    second.count += answer.count;
    for (int i = 0; i < 3; i++)
        second.items[second.count++] = 40 + i;
    hs_tokens_deinit(&answer);
    answer = check(&pair, &second, &wanted, 5 + 6 - 1);
    hs_tokens_deinit(&answer);
    /* Another ending: as far as both begin alike.  The same once more: all but the token that logits come from. */
    answer = check(&pair, &third, &wanted, 5);
    hs_tokens_deinit(&answer);
    answer = check(&pair, &third, &wanted, 6);
    hs_tokens_deinit(&answer);
    hs_tokens_deinit(&first);
    hs_tokens_deinit(&second);
    hs_tokens_deinit(&third);
    pair_destroy(&pair);
}

Test(generate, any_of_the_stops_ends_a_text_and_is_no_part_of_it)
{
    static const int32_t said[] = { 5, 250, 9 };
    HsGeneration wanted = { .tokens = 8, .sampling = { .temperature = 1, .top_p = 1, .seed = 3 } };
    Pair pair;
    HsTokens all = { 0 }, less = { 0 };
    pair_create(&pair);
    HsTokens prompt = tokens_of(said, 3);
    TINY_OK(hs_generator_run(pair.kept, &prompt, &wanted, NULL, &all));
    cr_assert_eq(all.count, 8);
    const int32_t stops[] = { 300, all.items[5] };
    int64_t expected = 0;
    while (all.items[expected] != all.items[5])
        expected++;
    wanted.stops = stops;
    wanted.stop_count = 2;
    TINY_OK(hs_generator_run(pair.kept, &prompt, &wanted, NULL, &less));
    cr_expect_eq(less.count, expected);
    hs_tokens_deinit(&all);
    hs_tokens_deinit(&less);
    hs_tokens_deinit(&prompt);
    pair_destroy(&pair);
}
