/* SPDX-License-Identifier: MIT
 *
 * Small models that transformers wrote (tests/huggingface/make.py): logits against its own in float64, within twice the
 * distance that its f32 has from them, and greedy continuations, by the path that generation takes.  Exported, each loads
 * back to the same weights.  Twenty steps of AdamW on all weights have the losses of PyTorch's (steps.py), within twice the
 * distance that its f32 has from them.
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
#include "runtime/io/json.h"
#include "runtime/train/run.h"
#include "tests/support/scratch.h"

#define RUN(call) cr_assert_eq((call), HS_OK, "%s", hs_error_message())
#define MODELS    "tests/huggingface/models"

enum { TOKENS = 48, PROMPT = 12, CONTINUATION = 16, STEPS = 20 };

static const char *const names[] = { "gpt2",           "gpt2-untied",  "llama",   "llama-tied", "llama3",
                                     "llama-yarn",     "llama-linear", "mistral", "qwen2",      "qwen3",
                                     "mistral-window", "ministral",    "smollm3", "olmo2",      "olmo3",
                                     "phi3",           "granite",      "gemma2",  "gemma3",     "nanochat",
                                     "exaone4" };
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

/* As steps.py trains. */
static const char *const recipe[] = {
    "device=cpu",
    "precision.mode=fp32",
    "threads=1",
    "max_steps=20",
    "max_length=48",
    "batch_size=1",
    "learning_rate=1e-2",
    "weight_decay=0.1",
    "optimizer.kind=adamw",
    "optimizer.betas=[0.9, 0.95]",
    "optimizer.epsilon=1e-8",
    "optimizer.clip_norm=0",
    "schedule.kind=constant",
    "schedule.warmup_steps=0",
    "data.token_file=raw16",
    "checkpoint_freq=0",
    "logging.progress=none",
    "logging.every=1",
    "logging.device_seconds=0",
    "evaluation.every=0",
    "evaluation.batches=1",
    "tasks.0.train=" MODELS "/tokens16.bin",
    "tasks.0.validation=" MODELS "/tokens16.bin",
};
enum { RECIPE = sizeof recipe / sizeof *recipe };

static void train(const char *name, const char *out_dir)
{
    char from[256], out[600];
    const char *overrides[RECIPE + 2];
    HsConfig config;
    HsRun run;
    memcpy(overrides, recipe, sizeof recipe);
    snprintf(from, sizeof from, "init_from=" MODELS "/%s", name);
    snprintf(out, sizeof out, "out_dir=%s", out_dir);
    overrides[RECIPE] = from;
    overrides[RECIPE + 1] = out;
    RUN(hs_config_load(&config, NULL, RECIPE + 2, overrides));
    RUN(hs_run_create(&config, &run, NULL));
    RUN(hs_run_train(&run));
    hs_run_destroy(&run);
    hs_config_deinit(&config);
}

static int read_losses(const char *out_dir, double losses[STEPS])
{
    char path[700];
    size_t size;
    int count = 0;
    snprintf(path, sizeof path, "%s/metrics.jsonl", out_dir);
    char *const text = scratch_read(path, &size);
    for (char *at = text, *end; (end = strchr(at, '\n')) != NULL; at = end + 1) {
        HsJson *json;
        RUN(hs_json_parse("metrics", at, (size_t)(end - at), &json));
        if (strcmp(hs_json_string(hs_json_get(json, "event")), "step") == 0 && count < STEPS)
            losses[count++] = hs_json_number(hs_json_get(json, "loss"));
        hs_json_destroy(json);
    }
    free(text);
    return count;
}

Test(huggingface, twenty_steps_have_the_losses_of_pytorch)
{
    const Scratch scratch = scratch_make();
    for (int i = 0; i < NAMES; i++) {
        char path[256];
        double bound, expected, losses[STEPS];
        const char *const out_dir = scratch_path(&scratch, names[i]);
        train(names[i], out_dir);
        cr_assert_eq(read_losses(out_dir, losses), STEPS);
        snprintf(path, sizeof path, MODELS "/%s/steps.txt", names[i]);
        FILE *file = fopen(path, "r");
        cr_assert(file && fscanf(file, "%lf", &bound) == 1);
        for (int step = 0; step < STEPS; step++) {
            cr_assert_eq(fscanf(file, "%lf", &expected), 1);
            cr_expect(fabs(losses[step] - expected) <= bound, "%s: loss of step %d: %.9g, expected %.9g +- %.2g",
                      names[i], step + 1, losses[step], expected, bound);
        }
        fclose(file);
    }
    scratch_remove(&scratch);
}
