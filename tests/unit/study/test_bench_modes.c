/* SPDX-License-Identifier: MIT
 *
 * The language of modes: words, ladders, what replaces what, and what is refused and how.
 */
#include <criterion/criterion.h>

#include <stdlib.h>
#include <string.h>

#include "runtime/config/config.h"
#include "runtime/study/bench_modes.h"

static HsBenchModes modes;

static void parse(const char *list)
{
    cr_assert_eq(hs_bench_modes_parse(list, &modes), HS_OK, "%s: %s", list, hs_error_message());
}

static void refuses(const char *list, const char *text)
{
    cr_expect_eq(hs_bench_modes_parse(list, &modes), HS_ECONFIG, "%s", list);
    cr_expect(strstr(hs_error_message(), text), "%s: %s", list, hs_error_message());
}

/* The mode's overrides, comma separated. */
static const char *overrides_of(int index)
{
    static char text[1024];
    const char *overrides[HS_BENCH_OVERRIDES];
    int count = hs_bench_mode_overrides(&modes.modes[index], overrides);
    size_t used = 0;
    text[0] = '\0';
    for (int i = 0; i < count; i++)
        used += (size_t)snprintf(text + used, sizeof text - used, "%s%s", i > 0 ? "," : "", overrides[i]);
    return text;
}

Test(bench_modes, one_word_each)
{
    parse("fp32,bf16");
    cr_expect_eq(modes.count, 2);
    cr_expect_str_eq(modes.modes[1].label, "bf16");
    cr_expect_str_eq(modes.modes[1].name, "bf16");
    cr_expect_str_eq(overrides_of(0), "precision.mode=fp32");
    cr_expect_str_eq(overrides_of(1), "precision.mode=bf16,use_amp=true");
}

Test(bench_modes, words_and_keys)
{
    parse("bf16+no-masters+accumulate4:optimizer.betas=[0.9, 0.99]:seed=3,fp32");
    cr_expect_eq(modes.count, 2, "a comma within brackets is part of the value");
    cr_expect_str_eq(modes.modes[0].name, "bf16+no-masters+accumulate4:optimizer.betas=[0.9, 0.99]:seed=3");
    cr_expect_str_eq(modes.modes[0].folder, "bf16+no-masters+accumulate4_optimizer.betas=_0.9__0.99__seed=3");
    cr_expect_str_eq(overrides_of(0), "precision.mode=bf16,use_amp=true,precision.master_weights=false,"
                                      "optimizer.betas=[0.9, 0.99],seed=3");
    cr_expect_eq(modes.modes[0].accumulate, 4);
    cr_expect_eq(modes.modes[1].accumulate, 0);
}

Test(bench_modes, a_ladder_accumulates)
{
    parse("fp32,+bf16,+recompute,+accumulate4,+keep,+accumulate2:seed=2");
    static const char *const names[] = {
        "fp32",
        "bf16",
        "bf16+recompute",
        "bf16+recompute+accumulate4",
        "bf16+keep+accumulate4",
        "bf16+keep+accumulate2:seed=2",
    };
    cr_assert_eq(modes.count, 6);
    for (int i = 0; i < 6; i++)
        cr_expect_str_eq(modes.modes[i].name, names[i]);
    cr_expect_str_eq(modes.modes[2].label, "+recompute");
    cr_expect_eq(modes.modes[3].accumulate, 4);
    cr_expect_eq(modes.modes[5].accumulate, 2);
    cr_expect_str_eq(overrides_of(4),
                     "precision.mode=bf16,use_amp=true,memory.recompute=none,use_gradient_checkpointing=false");
}

Test(bench_modes, a_mode_without_a_plus_starts_anew)
{
    parse("bf16+recompute,fp32,+recompute");
    cr_expect_str_eq(modes.modes[1].name, "fp32");
    cr_expect_str_eq(modes.modes[2].name, "fp32+recompute");
}

Test(bench_modes, a_key_replaces_a_word)
{
    parse("bf16,+keep:precision.mode=fp16");
    cr_expect_str_eq(modes.modes[1].name, "keep:precision.mode=fp16");
    cr_expect_str_eq(overrides_of(1), "precision.mode=fp16,memory.recompute=none,use_gradient_checkpointing=false");
}

Test(bench_modes, refusals)
{
    refuses("", "is not a mode");
    refuses("fp32,", "is not a mode");
    refuses("fp32++keep", "is not a mode");
    refuses("bf61", "did you mean bf16?");
    refuses("recompute-mpl", "did you mean recompute-mlp?");
    refuses("quantum", "the words are fp32, tf32, bf16");
    refuses("quantum", "graph, eager, accumulateN");
    refuses("+bf16", "extends the mode before it");
    refuses("fp32+bf16", "set the same key");
    refuses("keep+recompute", "set the same key");
    refuses("accumulate2+accumulate4", "set the same key");
    refuses("fp16:precision.mode=bf16", "set the same key");
    refuses("accumulate", "wants the number");
    refuses("accumulate0", "wants the number");
    refuses("accumulate4x", "wants the number");
    refuses("accumulate99999999999999999999", "wants the number");
    refuses("bf16:seed", "section.key=value");
    refuses("bf16:", "section.key=value");
    refuses("bf16,fp32,+bf16", "bf16 twice");
    char list[4096] = "fp32";
    for (int i = 0; i < HS_BENCH_MODES; i++)
        snprintf(list + strlen(list), sizeof list - strlen(list), ",fp32:seed=%d", i);
    refuses(list, "more than 32");
    char word[400] = "fp32:out_dir=";
    memset(word + 13, 'x', 300);
    refuses(word, "over");
    word[13 + HS_BENCH_PART_BYTES] = '\0';
    refuses(word, "over 95 characters");
}

/* The table against the configuration's own: every override of every word is a key and a value of it. */
Test(bench_modes, every_word_is_configurable)
{
    HsBenchWord word;
    int count_of_words = 0;
    for (; (word = hs_bench_word(count_of_words)).word; count_of_words++) {
        HsConfig config;
        const char *overrides[HS_BENCH_OVERRIDES + 1] = { "precision.mode=bf16" };
        parse(word.word);
        int count = hs_bench_mode_overrides(&modes.modes[0], overrides + 1);
        cr_expect_eq(hs_config_load(&config, NULL, count + 1, overrides), HS_OK, "%s: %s", word.word,
                     hs_error_message());
        hs_config_deinit(&config);
    }
    cr_expect_geq(count_of_words, 21);
}

Test(bench_modes, help_lists_every_word)
{
    char *help = hs_bench_modes_help();
    cr_assert_not_null(help);
    HsBenchWord word;
    for (int i = 0; (word = hs_bench_word(i)).word; i++)
        cr_expect(strstr(help, word.doc), "%s", word.word);
    free(help);
}
