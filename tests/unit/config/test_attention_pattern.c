/* SPDX-License-Identifier: MIT
 *
 * Attention by layer: what each pattern means, what is refused, and that the text of any kinds means them again.
 */
#include <criterion/criterion.h>
#include <stdlib.h>

#include "runtime/config/attention_pattern.h"

static HsStatus load(HsConfig *config, const char *pattern, const char *layers)
{
    char attention[300], count[40];
    snprintf(attention, sizeof attention, "model.attention=%s", pattern);
    snprintf(count, sizeof count, "model.layers=%s", layers);
    const char *overrides[] = { "model.family=llama", count, attention };
    return hs_config_load(config, NULL, 3, overrides);
}

/* A letter a layer: f full, w window 8, t window 8 with theta 500, n nope, v window 8 without positions, u unscaled, s with a
 * sink, a with added values. */
static char letter_of(HsAttentionKind kind)
{
    cr_assert(kind.window == 0 || kind.window == 8);
    cr_assert(kind.theta == 0 || kind.theta == 500);
    if (kind.sink || kind.values)
        return kind.sink ? 's' : 'a';
    if (kind.unscaled)
        return 'u';
    if (kind.nope)
        return kind.window > 0 ? 'v' : 'n';
    return kind.theta > 0 ? 't' : kind.window > 0 ? 'w' : 'f';
}

static HsAttentionKind kind_of(char letter)
{
    return (HsAttentionKind){ .window = strchr("wtv", letter) ? 8 : 0,
                              .theta = letter == 't' ? 500 : 0,
                              .nope = letter == 'n' || letter == 'v',
                              .unscaled = letter == 'u',
                              .sink = letter == 's',
                              .values = letter == 'a' };
}

Test(attention_pattern, says_what_each_layer_is)
{
    static const struct {
        const char *pattern, *layers, *kinds;
    } cases[] = {
        { "''", "3", "fff" },
        { "[full]", "2", "ff" },
        { "window 8", "3", "www" },
        { "[5x window 8 theta 500, full]", "14", "tttttftttttftt" },
        { "[3x full, nope]", "6", "fffnff" },
        { "[2x window 8, 'full', last full]", "7", "wwfwwff" },
        { "[2x window 8, full, last full]", "8", "wwfwwfwf" },
        { "[last window 8]", "3", "ffw" },
        { "[1024x window 8]", "2", "ww" },
        { "[window 8 nope, full unscaled]", "4", "vuvu" },
        { "['  2x   window   8 ', full]", "4", "wwfw" },
        { "[window 8 sink, values, last full values]", "4", "sasa" },
    };
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        HsConfig config;
        cr_assert_eq(load(&config, cases[c].pattern, cases[c].layers), HS_OK, "%s: %s", cases[c].pattern,
                     hs_error_message());
        for (int64_t layer = 0; layer < config.model.layers; layer++)
            cr_expect_eq(letter_of(hs_attention_kind(&config, layer)), cases[c].kinds[layer], "%s, layer %lld",
                         cases[c].pattern, (long long)layer);
        hs_config_deinit(&config);
    }
}

Test(attention_pattern, refuses_what_it_does_not_understand)
{
    static const char *const patterns[] = {
        "[5x]",
        "[last]",
        "[window]",
        "[window 0]",
        "[window -8]",
        "[window 8.5]",
        "[window 8x]",
        "[window 1e99]",
        "[0x full]",
        "[-1x full]",
        "[1025x full]",
        "[99999999999999999999x full]",
        "[full window 8]",
        "[window 8 full]",
        "[window 8 window 9]",
        "[nope theta 500]",
        "[nope unscaled]",
        "[nope nope]",
        "[sink sink]",
        "[full values values]",
        "[theta 0.5]",
        "[theta nan]",
        "[last full, full]",
        "[last full, last full]",
        "[sliding]",
        "['window 8, full']",
        "[aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa]",
    };
    for (size_t p = 0; p < sizeof patterns / sizeof *patterns; p++) {
        HsConfig config;
        const HsStatus status = load(&config, patterns[p], "4");
        cr_expect_eq(status, HS_ECONFIG, "%s was taken", patterns[p]);
        cr_expect(strstr(hs_error_message(), "model.attention"), "%s", hs_error_message());
        if (status == HS_OK)
            hs_config_deinit(&config);
    }
}

/* Every pattern of one to five layers of five kinds. */
Test(attention_pattern, text_means_the_same_layers)
{
    static const char letters[] = "ftnsa";
    for (int64_t layers = 1, count = 5; layers <= 5; layers++, count *= 5)
        for (int64_t number = 0; number < count; number++) {
            HsAttentionKind kinds[6];
            char *text, layer_text[8], expected[7] = "";
            for (int64_t layer = 0, rest = number; layer < layers; layer++, rest /= 5) {
                expected[layer] = letters[rest % 5];
                kinds[layer] = kind_of(expected[layer]);
            }
            cr_assert_eq(hs_attention_pattern_text(kinds, layers, &text), HS_OK);
            HsConfig config;
            snprintf(layer_text, sizeof layer_text, "%d", (int)layers);
            cr_assert_eq(load(&config, text[0] ? text : "''", layer_text), HS_OK, "%s: %s", text, hs_error_message());
            for (int64_t layer = 0; layer < layers; layer++)
                cr_assert_eq(letter_of(hs_attention_kind(&config, layer)), expected[layer], "%s as %s, layer %lld",
                             expected, text, (long long)layer);
            hs_config_deinit(&config);
            free(text);
        }
}

Test(attention_pattern, text_is_short)
{
    static const struct {
        const char *kinds, *text;
    } cases[] = {
        { "ffff", "" },
        { "w", "[\"window 8\"]" },
        { "wwww", "[\"window 8\"]" },
        { "tttttftttttftttttf", "[\"5x window 8 theta 500\", \"full\"]" },
        { "fffnfffnff", "[\"3x full\", \"nope\"]" },
        { "wwwfwwwfwf", "[\"3x window 8\", \"full\", \"last full\"]" },
        { "ffffww", "[\"4x full\", \"2x window 8\"]" },
    };
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        HsAttentionKind kinds[32];
        const int64_t layers = (int64_t)strlen(cases[c].kinds);
        char *text;
        for (int64_t layer = 0; layer < layers; layer++)
            kinds[layer] = kind_of(cases[c].kinds[layer]);
        cr_assert_eq(hs_attention_pattern_text(kinds, layers, &text), HS_OK);
        cr_expect_str_eq(text, cases[c].text);
        free(text);
    }
}
