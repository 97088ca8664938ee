/* SPDX-License-Identifier: MIT
 *
 * Small models that transformers wrote (tests/huggingface/make.py): logits against its own in float64, within twice the
 * distance that its f32 has from them, and greedy continuations, by the path that generation takes.  Exported, each loads
 * back to the same weights.
 */
#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/commands/command.h"
#include "runtime/commands/loaded_model.h"
#include "runtime/engine/decode.h"
#include "runtime/io/files.h"
#include "tests/support/scratch.h"

#define RUN(call) cr_assert_eq((call), HS_OK, "%s", hs_error_message())
#define MODELS    "tests/huggingface/models"

enum { TOKENS = 48, PROMPT = 12, CONTINUATION = 16 };

static const char *const names[] = { "gpt2",       "gpt2-untied",  "llama",   "llama-tied", "llama3",
                                     "llama-yarn", "llama-linear", "mistral", "qwen2",      "qwen3" };
enum { NAMES = sizeof names / sizeof names[0] };

static const char *const exact[] = { "device=cpu", "precision.mode=fp32", "threads=1" };

static void read_into(const char *path, void *target, size_t size)
{
    char *bytes;
    size_t length;
    RUN(hs_read_file(path, 1 << 24, &bytes, &length));
    cr_assert_eq(length, size, "%s: %zu bytes", path, length);
    memcpy(target, bytes, size);
    free(bytes);
}

typedef struct Expected {
    int32_t tokens[TOKENS], greedy[CONTINUATION];
    double bound;
    float *logits; /* [TOKENS, V] */
} Expected;

static void read_expected(const char *name, int64_t vocabulary, Expected *expected)
{
    char path[256];
    const size_t size = (size_t)(TOKENS * vocabulary) * sizeof(float);
    read_into(MODELS "/tokens.bin", expected->tokens, sizeof expected->tokens);
    expected->logits = malloc(size);
    snprintf(path, sizeof path, MODELS "/%s/expected.bin", name);
    read_into(path, expected->logits, size);
    snprintf(path, sizeof path, MODELS "/%s/bound.txt", name);
    FILE *file = fopen(path, "r");
    cr_assert(file && fscanf(file, "%lf", &expected->bound) == 1);
    for (int i = 0; i < CONTINUATION; i++)
        cr_assert_eq(fscanf(file, "%d", &expected->greedy[i]), 1);
    fclose(file);
}

static int32_t largest(const float *logits, int64_t count)
{
    int32_t best = 0;
    for (int32_t i = 1; i < count; i++)
        best = logits[i] > logits[best] ? i : best;
    return best;
}

static void check_logits(const char *name, HsLoadedModel *loaded, const Expected *expected)
{
    const int64_t vocabulary = loaded->model.vocabulary;
    HsDecoder *decoder;
    RUN(hs_decoder_create(&loaded->model, &loaded->engine.context, 1, TOKENS, &decoder));
    for (int t = 0; t < TOKENS; t++) {
        const float *logits;
        RUN(hs_decoder_feed(decoder, &loaded->engine.context, &expected->tokens[t], 1, &logits));
        for (int64_t v = 0; v < vocabulary; v++) {
            const double theirs = (double)expected->logits[t * vocabulary + v];
            cr_expect(fabs((double)logits[v] - theirs) <= expected->bound + fabs(theirs) * 0x1p-24,
                      "%s: token %d, logit %lld: %.8g, expected %.8g +- %.2g", name, t, (long long)v, (double)logits[v],
                      theirs, expected->bound);
        }
    }
    hs_decoder_reset(decoder);
    const float *logits;
    RUN(hs_decoder_feed(decoder, &loaded->engine.context, expected->tokens, PROMPT, &logits));
    for (int i = 0; i < CONTINUATION; i++) {
        const int32_t token = largest(logits, vocabulary);
        cr_expect_eq(token, expected->greedy[i], "%s: continuation %d is %d, expected %d", name, i, token,
                     expected->greedy[i]);
        RUN(hs_decoder_feed(decoder, &loaded->engine.context, &token, 1, &logits));
    }
    hs_decoder_destroy(decoder);
}

static void check_folder(const char *name, const char *folder)
{
    HsLoadedModel loaded;
    Expected expected;
    RUN(hs_loaded_model_init(&loaded, folder, 3, exact));
    read_expected(name, loaded.model.vocabulary, &expected);
    check_logits(name, &loaded, &expected);
    free(expected.logits);
    hs_loaded_model_deinit(&loaded);
}

Test(huggingface, logits_and_greedy_text_are_those_of_transformers)
{
    for (int i = 0; i < NAMES; i++) {
        char folder[256];
        snprintf(folder, sizeof folder, MODELS "/%s", names[i]);
        check_folder(names[i], folder);
    }
}

Test(huggingface, an_exported_model_is_the_same)
{
    const Scratch scratch = scratch_make();
    for (int i = 0; i < NAMES; i++) {
        char folder[256];
        const char *const made = scratch_path(&scratch, names[i]);
        snprintf(folder, sizeof folder, MODELS "/%s", names[i]);
        char *arguments[] = { "export", "--checkpoint", folder, "--output", (char *)(uintptr_t)made, NULL };
        RUN(hs_command_export(5, arguments));
        check_folder(names[i], made);
    }
    scratch_remove(&scratch);
}
