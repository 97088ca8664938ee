/* SPDX-License-Identifier: MIT
 *
 * A printed configuration, as readers of YAML 1.1 see it.  The expressions are those of the types' pages at
 * yaml.org/type (int, float, bool, null, timestamp; decimal and sexagesimal), with the sign and the point that PyYAML's
 * resolver asks of a float.
 */
#include <criterion/criterion.h>
#include <glob.h>
#include <math.h>
#include <regex.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/base/rng.h"
#include "runtime/config/table.h"

static const char yaml_int[] = "^[-+]?(0b[01_]+|0[0-7_]*|[1-9][0-9_]*|0x[0-9a-fA-F_]+|[1-9][0-9_]*(:[0-5]?[0-9])+)$";
static const char yaml_decimal[] = "^[-+]?(0|[1-9][0-9]*)$"; /* neither octal nor of base 60 */
static const char yaml_float[] = "^([-+]?[0-9][0-9_]*\\.[0-9_]*([eE][-+][0-9]+)?|\\.[0-9_]+([eE][-+][0-9]+)?|"
                                 "[-+]?[0-9][0-9_]*(:[0-5]?[0-9])+\\.[0-9_]*|[-+]?\\.(inf|Inf|INF)|\\.(nan|NaN|NAN))$";
static const char yaml_words[] =
    "^(y|Y|yes|Yes|YES|n|N|no|No|NO|true|True|TRUE|false|False|FALSE|on|On|ON|off|Off|OFF|~|null|Null|NULL|=|<<|)$";
static const char yaml_time[] = "^[0-9]{4}-[0-9]{1,2}-[0-9]{1,2}";

static bool matches(const char *expression, const char *text)
{
    regex_t compiled;
    cr_assert_eq(regcomp(&compiled, expression, REG_EXTENDED | REG_NOSUB), 0, "%s", expression);
    bool found = regexec(&compiled, text, 0, NULL, 0) == 0;
    regfree(&compiled);
    return found;
}

/* Plain, and a number of YAML 1.1 with these bits. */
static void expect_number(const char *text, double value, const char *where)
{
    double read = strtod(text, NULL);
    cr_expect(matches(yaml_decimal, text) || matches(yaml_float, text), "%s: %s is no number of YAML 1.1", where, text);
    cr_expect_eq(memcmp(&read, &value, sizeof value), 0, "%s: %s is not %.17g", where, text, value);
}

Test(config_yaml, every_number_is_one_in_yaml_1_1)
{
    static const double values[] = { 0,          -0.0,    1,        -1,         1e-5, 1e-8, 5e-324, 1.5e-7,
                                     0.1,        1e30,    -2e-10,   1e15,       1e16, 1e17, 9.0e15, 3.4e38,
                                     0.5,        2e-4,    1.25e100, 123456.789, 1e6,  12e5, 1e-4,   1e-3,
                                     1.7976e308, 1.0 / 3, 5000.0,   1e-10,      1e22, 1e23 };
    char text[32];
    for (size_t i = 0; i < sizeof values / sizeof *values; i++)
        expect_number(hs_config_real_text(values[i], text), values[i], "a value");
    cr_expect_str_eq(hs_config_real_text(1e-5, text), "1.0e-5");
    cr_expect_str_eq(hs_config_real_text(1e30, text), "1.0e+30");
    cr_expect_str_eq(hs_config_real_text(0.25, text), "0.25");
    for (uint32_t i = 0; i < 2000; i++) { /* any bits that are a finite number */
        const uint32_t counter[4] = { i, 0, 0, 0 };
        HsPhilox bits = hs_philox(11, counter);
        uint64_t pattern = (uint64_t)bits.word[0] << 32 | bits.word[1];
        double value;
        memcpy(&value, &pattern, sizeof value);
        if ((pattern >> 52 & 2047) != 2047)
            expect_number(hs_config_real_text(value, text), value, "random bits");
    }
}

/* What stands behind "key: " for this key. */
static char *printed(const HsConfigKey *key, const void *object)
{
    char *text = NULL;
    size_t length = 0;
    FILE *stream = open_memstream(&text, &length);
    hs_config_value_print(key, object, stream);
    fclose(stream);
    return text;
}

/* What a configuration starts from is the user's; here it is a model of the tests. */
static HsStatus load_shipped(HsConfig *config, const char *path)
{
    static const char *const gpt2 = "init_from=tests/huggingface/models/gpt2";
    static const char *const gemma = "init_from=tests/huggingface/models/gemma3";
    const bool gemmas = strcmp(path, "configs/gemma-270m.yaml") == 0;
    const bool starts = gemmas || strcmp(path, "configs/finetune.yaml") == 0 ||
                        strcmp(path, "configs/lora.yaml") == 0 || strcmp(path, "configs/cl-adapters.yaml") == 0;
    return hs_config_load(config, path, starts, gemmas ? &gemma : &gpt2);
}

Test(config_yaml, every_number_of_every_configuration)
{
    glob_t files;
    cr_assert_eq(glob("configs/*.yaml", 0, NULL, &files), 0);
    cr_assert_geq(files.gl_pathc, 8);
    for (size_t f = 0; f < files.gl_pathc; f++) {
        HsConfig config;
        const char *name = files.gl_pathv[f];
        cr_assert_eq(load_shipped(&config, name), HS_OK, "%s", hs_error_message());
        for (int i = 0; i < hs_config_key_count; i++) {
            const HsConfigKey *key = &hs_config_key_table[i];
            for (int task = 0; task < hs_config_key_places(&config, key); task++) {
                const void *object = hs_config_key_object(&config, key, task);
                const char *field = (const char *)object + key->offset;
                char *text = printed(key, object);
                int64_t integer;
                double real;
                memcpy(&integer, field, sizeof integer);
                memcpy(&real, field, sizeof real);
                if (key->type == HS_KEY_INT || key->type == HS_KEY_BYTES)
                    expect_number(text, (double)integer, key->name);
                else if (key->type == HS_KEY_REAL && isnan(real))
                    cr_expect_str_eq(text, key->choices, "the word that stands instead of a number");
                else if (key->type == HS_KEY_REAL)
                    expect_number(text, real, key->name);
                free(text);
            }
        }
        hs_config_deinit(&config);
    }
    globfree(&files);
}

Test(config_yaml, texts_that_look_like_something_else_are_quoted)
{
    static const char *const texts[] = { "yes",  "No",   "ON",   "off",  "y",          "N",    "true", "False", "null",
                                         "~",    "012",  "0o17", "0x1F", "1_000",      "1:20", "1e-5", "1.5",   "-3",
                                         "+1",   ".5",   ".inf", ".NaN", "2001-12-14", "=",    "<<",   "-",     "?",
                                         "a: b", "a #b", "[x]",  "{x}",  "*a",         "&a",   "!x",   "@x",    "%x",
                                         "`x",   "|",    ">",    "'x'",  "1:20:30.5",  "---",  "..." };
    const HsConfigKey *key = hs_config_key_find("tasks", "name");
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        HsTaskConfig task = { .name = (char *)(uintptr_t)texts[i] };
        char *text = printed(key, &task);
        cr_expect_eq(text[0], '"', "%s is printed as %s", texts[i], text);
        free(text);
    }
    /* And what is plain is a text to every reader: of letters, some digits and signs, of any first letter. */
    static const char *const plain[] = {
        "mine", "e5", "nan", "inf", "yesterday", "nothing", "a-b", "x1.5", "runs/a_b.c"
    };
    for (size_t i = 0; i < sizeof plain / sizeof *plain; i++) {
        HsTaskConfig task = { .name = (char *)(uintptr_t)plain[i] };
        char *text = printed(key, &task);
        cr_expect_str_eq(text, plain[i]);
        cr_expect_not(matches(yaml_int, text) || matches(yaml_float, text) || matches(yaml_words, text) ||
                          matches(yaml_time, text),
                      "%s", text);
        free(text);
    }
}
