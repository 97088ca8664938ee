/* SPDX-License-Identifier: MIT
 *
 * Modes are lists of parts, and every part has a key: the configuration key that it sets (first).  All of the grammar's
 * rules are about keys: a part replaces the inherited one with its key, and contradicts one of the same mode.
 */
#include "runtime/study/bench_modes.h"

#include <ctype.h>
#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/config/table.h"
#include "runtime/io/files.h"

#define ACCUMULATE     "accumulate"
#define ACCUMULATE_KEY "memory.micro_batch"
enum { LIST_BYTES = 512 };

/* Policies contradict use_gradient_checkpointing, which is set with them, so that a mode means the same whatever the file
 * says. */
#define NO_FLAG "use_gradient_checkpointing=false"

static const HsBenchWord own_words[] = {
    { "masters", { "precision.master_weights=true" }, "fp32 masters of 16-bit weights" },
    { "no-masters", { "precision.master_weights=false" }, "none: stochastic rounding into the weights (bf16)" },
    { "wide-gradients", { "precision.gradients=fp32" }, "weight gradients in fp32" },
    { "narrow-gradients", { "precision.gradients=compute" }, "weight gradients in the mode's 16-bit format" },
    { "keep", { "memory.recompute=none", NO_FLAG }, "backward finds every activation kept" },
    { "recompute", { "memory.recompute=block", NO_FLAG }, "backward computes whole blocks again" },
    { "recompute-attention", { "memory.recompute=attention", NO_FLAG }, "only the attention of each block" },
    { "recompute-mlp", { "memory.recompute=mlp", NO_FLAG }, "only the MLP of each block" },
    { "native", { "kernels.matmul=native" }, "this project's matrix products" },
    { "cublaslt", { "kernels.matmul=cublaslt" }, "cuBLASLt's (GPUs)" },
    { "graph", { "kernels.cuda_graph=true" }, "steps recorded once and replayed (GPUs)" },
    { "eager", { "kernels.cuda_graph=false" }, "every kernel of a step launched by itself" },
};
enum { OWN_WORDS = sizeof own_words / sizeof *own_words };

HsBenchWord hs_bench_word(int i)
{
    int modes = 0;
    for (const HsPrecision *mode; (mode = hs_precision_choice(modes)); modes++)
        if (modes == i) {
            HsBenchWord word = { .word = mode->name, .doc = mode->doc };
            memcpy(word.overrides, mode->settings, sizeof word.overrides);
            return word;
        }
    return i - modes < OWN_WORDS ? own_words[i - modes] : (HsBenchWord){ 0 };
}

/* --- parts --- */

/* Its `word` is NULL where there is none. */
static HsBenchWord find_word(const char *text)
{
    HsBenchWord word;
    for (int i = 0; (word = hs_bench_word(i)).word && strcmp(word.word, text) != 0; i++)
        continue;
    return word;
}

/* accumulateN as N; 0 for any other word, and for numbers larger than any batch. */
static int64_t accumulate_of(const char *part)
{
    const size_t length = sizeof ACCUMULATE - 1;
    char *end;
    if (strncmp(part, ACCUMULATE, length) != 0 || !isdigit((unsigned char)part[length]))
        return 0;
    errno = 0;
    long long count = strtoll(part + length, &end, 10);
    return *end == '\0' && errno == 0 && count <= 1048576 ? count : 0;
}

/* What a known part sets, without the value. */
static const char *key_of(const char *part, char key[HS_BENCH_PART_BYTES])
{
    const HsBenchWord word = find_word(part);
    const char *text = word.word ? word.overrides[0] : accumulate_of(part) > 0 ? ACCUMULATE_KEY : part;
    snprintf(key, HS_BENCH_PART_BYTES, "%.*s", (int)strcspn(text, "="), text);
    return key;
}

static bool same_key(const char *a, const char *b)
{
    char first[HS_BENCH_PART_BYTES], second[HS_BENCH_PART_BYTES];
    return strcmp(key_of(a, first), key_of(b, second)) == 0;
}

/* "fp32, tf32, ..." with `separator` between the words. */
static void list_words(const char *separator, char list[LIST_BYTES])
{
    size_t used = 0;
    HsBenchWord word;
    for (int i = 0; (word = hs_bench_word(i)).word && used < LIST_BYTES; i++)
        used += (size_t)snprintf(list + used, LIST_BYTES - used, "%s%s", i > 0 ? separator : "", word.word);
}

static HsStatus unknown_word(const HsBenchMode *mode, const char *word)
{
    char list[LIST_BYTES], near[HS_DOTTED_BYTES];
    if (word[0] == '\0')
        return hs_fail(HS_ECONFIG,
                       "--modes: `%.60s` is not a mode: write words between commas, such as fp32,bf16,+keep",
                       mode->label);
    if (strncmp(word, ACCUMULATE, sizeof ACCUMULATE - 1) == 0)
        return hs_fail(HS_ECONFIG,
                       "--modes: %.60s: " ACCUMULATE " wants the number of micro-batches, as in " ACCUMULATE "4", word);
    list_words("|", list);
    bool suggested = hs_config_choice_suggest(list, word, near);
    list_words(", ", list);
    return hs_fail(HS_ECONFIG, "--modes: there is no word `%.60s`%s%s%s; the words are %s, " ACCUMULATE "N", word,
                   suggested ? "; did you mean " : "", suggested ? near : "", suggested ? "?" : "", list);
}

static HsStatus add_part(HsBenchMode *mode, const char *part, int inherited)
{
    int place = mode->part_count;
    for (int i = mode->part_count - 1; i >= 0; i--) {
        if (!same_key(mode->parts[i], part))
            continue;
        if (i >= inherited)
            return hs_fail(HS_ECONFIG, "--modes: %.60s and %.60s in %.60s set the same key: leave one out",
                           mode->parts[i], part, mode->label);
        place = i;
    }
    if (place == HS_BENCH_PARTS || strlen(part) >= HS_BENCH_PART_BYTES)
        return hs_fail(HS_ECONFIG, "--modes: %.60s has more than %d parts, or one over %d characters", mode->label,
                       HS_BENCH_PARTS, HS_BENCH_PART_BYTES - 1);
    snprintf(mode->parts[place], HS_BENCH_PART_BYTES, "%s", part);
    mode->part_count += place == mode->part_count;
    return HS_OK;
}

/* --- modes --- */

static HsStatus add_words(HsBenchMode *mode, char *words, int inherited)
{
    for (char *word = strsep(&words, "+"); word; word = strsep(&words, "+")) {
        if (!find_word(word).word && accumulate_of(word) == 0)
            return unknown_word(mode, word);
        HS_TRY(add_part(mode, word, inherited));
    }
    return HS_OK;
}

static HsStatus add_overrides(HsBenchMode *mode, char *rest, int inherited)
{
    for (char *part = strsep(&rest, ":"); part; part = strsep(&rest, ":")) {
        if (!strchr(part, '=') || part[0] == '=')
            return hs_fail(HS_ECONFIG, "--modes: `%.60s` in %.60s is not of the form section.key=value", part,
                           mode->label);
        HS_TRY(add_part(mode, part, inherited));
    }
    return HS_OK;
}

/* Words first, then keys, so that the name is a mode that can be written. */
static HsStatus name_mode(HsBenchMode *mode)
{
    size_t used = 0;
    for (int pass = 0; pass < 2; pass++) {
        for (int i = 0; i < mode->part_count && used < sizeof mode->name; i++) {
            const bool key = strchr(mode->parts[i], '=') != NULL;
            if (key == (pass == 1))
                used += (size_t)snprintf(mode->name + used, sizeof mode->name - used, "%s%s",
                                         key        ? ":"
                                         : used > 0 ? "+"
                                                    : "",
                                         mode->parts[i]);
        }
    }
    if (used >= sizeof mode->name)
        return hs_fail(HS_ECONFIG, "--modes: the whole setting of %.60s is over %zu characters", mode->label,
                       sizeof mode->name - 1);
    memcpy(mode->folder, mode->name, sizeof mode->folder);
    for (char *c = mode->folder; *c; c++)
        if (!isalnum((unsigned char)*c) && !strchr("+-._=", *c))
            *c = '_';
    for (int i = 0; i < mode->part_count; i++)
        if (accumulate_of(mode->parts[i]) > 0)
            mode->accumulate = accumulate_of(mode->parts[i]);
    return HS_OK;
}

static HsStatus parse_mode(const char *text, size_t length, const HsBenchMode *before, HsBenchMode *mode)
{
    char copy[HS_BENCH_NAME_BYTES], *rest = copy;
    const bool extends = text[0] == '+';
    if (length >= sizeof copy)
        return hs_fail(HS_ECONFIG, "--modes: %.60s... is over %zu characters", text, sizeof copy - 1);
    if (extends && !before)
        return hs_fail(HS_ECONFIG,
                       "--modes: %.*s extends the mode before it, and there is none: begin with a mode such as fp32",
                       (int)length, text);
    *mode = (HsBenchMode){ 0 };
    if (extends) {
        memcpy(mode->parts, before->parts, sizeof mode->parts);
        mode->part_count = before->part_count;
    }
    snprintf(mode->label, sizeof mode->label, "%.*s", (int)length, text);
    snprintf(copy, sizeof copy, "%s", mode->label + extends);
    const int inherited = mode->part_count;
    char *words = strsep(&rest, ":");
    if (words[0] != '\0' || !rest) /* keys may stand alone: +:seed=3 */
        HS_TRY(add_words(mode, words, inherited));
    HS_TRY(add_overrides(mode, rest, inherited));
    return name_mode(mode);
}

/* Up to the next comma that is not within the brackets of a value. */
static size_t mode_length(const char *text)
{
    size_t length = 0;
    for (int depth = 0; text[length] && (text[length] != ',' || depth > 0); length++)
        depth += (text[length] == '[') - (text[length] == ']');
    return length;
}

HsStatus hs_bench_modes_parse(const char *list, HsBenchModes *modes)
{
    modes->count = 0;
    for (;;) {
        const size_t length = mode_length(list);
        if (modes->count == HS_BENCH_MODES)
            return hs_fail(HS_ECONFIG, "--modes lists more than %d modes", HS_BENCH_MODES);
        HsBenchMode *mode = &modes->modes[modes->count];
        HS_TRY(parse_mode(list, length, modes->count > 0 ? mode - 1 : NULL, mode));
        for (int i = 0; i < modes->count; i++)
            if (strcmp(modes->modes[i].folder, mode->folder) == 0)
                return hs_fail(HS_ECONFIG, "--modes lists %.120s twice (as %.60s and as %.60s)", mode->name,
                               modes->modes[i].label, mode->label);
        modes->count++;
        if (list[length] == '\0')
            return HS_OK;
        list += length + 1;
    }
}

int hs_bench_mode_overrides(const HsBenchMode *mode, const char *overrides[HS_BENCH_OVERRIDES])
{
    int count = 0;
    for (int i = 0; i < mode->part_count; i++) {
        const HsBenchWord word = find_word(mode->parts[i]);
        for (int k = 0; k < HS_BENCH_WORD_OVERRIDES && word.overrides[k]; k++)
            overrides[count++] = word.overrides[k];
        if (!word.word && strchr(mode->parts[i], '='))
            overrides[count++] = mode->parts[i];
    }
    return count;
}

char *hs_bench_modes_help(void)
{
    char *text = NULL;
    size_t size = 0;
    FILE *stream = open_memstream(&text, &size);
    if (!stream)
        return NULL;
    fprintf(stream, "A mode is words joined by +, then optional :section.key=value.  One that begins\n"
                    "with + extends the mode before it: fp32,+bf16,+recompute,+accumulate4 is a\n"
                    "ladder.  The words:\n\n");
    HsBenchWord word;
    for (int i = 0; (word = hs_bench_word(i)).word; i++)
        fprintf(stream, "  %-20s %s\n", word.word, word.doc);
    fprintf(stream, "  %-20s %s\n", ACCUMULATE "N", "the same batch in N times as many micro-batches");
    (void)hs_close_text(stream, &text);
    return text;
}
