/* SPDX-License-Identifier: MIT
 *
 * Exact-match accuracy and bits a byte against their definitions: completions that are really generated, token by token
 * through the key/value cache, and bytes counted by hand.  The model is a trained one that knows some of its completions.
 */
#include <criterion/criterion.h>
#include <math.h>

#include "kernels/base/log.h"
#include "runtime/engine/generate.h"
#include "runtime/train/run.h"
#include "tests/support/scratch.h"

static const char base[] = "seed: 7\n"
                           "device: cpu\n"
                           "batch_size: 8\n"
                           "max_length: 32\n"
                           "max_steps: 60\n"
                           "learning_rate: 3e-3\n"
                           "weight_decay: 0\n"
                           "checkpoint_freq: 0\n"
                           "model: {layers: 2, heads: 2, width: 48, dropout: 0}\n"
                           "tokenizer: {kind: byte}\n"
                           "schedule: {warmup_steps: 10}\n"
                           "precision: {mode: fp32}\n"
                           "evaluation: {every: 0, batches: 2, items: 200}\n"
                           "logging: {progress: none, tensorboard: false}\n";

/* A letter's completion is one of two: a model of a hundred steps knows some of them. */
static void write_letters(const char *path)
{
    FILE *file = fopen(path, "w");
    cr_assert_not_null(file);
    for (int line = 0; line < 1000; line++) {
        const int letter = (int)hs_rng_permute((uint64_t)(line / 26), line % 26, 26); /* in ever other orders */
        fprintf(file, "{\"prompt\": \"%c\", \"completion\": \"%c%c\"}\n", 'a' + letter, 'u' + letter * letter % 5,
                letter % 3 ? 'u' : 'v');
    }
    cr_assert_eq(fclose(file), 0);
}

static void create(const Scratch *scratch, const char *const *more, int count, HsConfig *config, HsRun *run)
{
    char out_dir[300], train[300];
    const char *overrides[8] = { out_dir, train };
    write_letters(scratch_path(scratch, "letters.jsonl"));
    snprintf(train, sizeof train, "tasks.0.train=%s", scratch_path(scratch, "letters.jsonl"));
    hs_log_set_level(HS_LOG_WARNING);
    snprintf(out_dir, sizeof out_dir, "out_dir=%s", scratch_path(scratch, "run"));
    memcpy(overrides + 2, more, (size_t)count * sizeof *more);
    scratch_write(scratch_path(scratch, "config.yaml"), base, strlen(base));
    cr_assert_eq(hs_config_load(config, scratch_path(scratch, "config.yaml"), count + 2, overrides), HS_OK, "%s",
                 hs_error_message());
    cr_assert_eq(hs_run_create(config, run, NULL), HS_OK, "%s", hs_error_message());
}

/* The prompt's text is continued greedily; are the tokens that come the completion's? */
static bool generates(HsTraining *training, const HsItemSet *set, const HsItem *item)
{
    const HsTokenizer *tokenizer = training->data.tokenizer;
    const int32_t *tokens = set->tokens.items + item->start;
    char prompt[64];
    size_t used = 0, length;
    for (int64_t i = 0; i < item->prompt; i++) {
        const char *bytes = hs_tokenizer_bytes(tokenizer, tokens[i], &length);
        memcpy(prompt + used, bytes, length);
        used += length;
    }
    const HsGeneration generation = { .prompt = prompt, .prompt_length = used, .tokens = item->completion };
    HsTokens added = { 0 };
    cr_assert_eq(hs_generate_text(&training->model, &training->engine.context, tokenizer, &generation, NULL, &added),
                 HS_OK, "%s", hs_error_message());
    /* It stops at the end-of-text, which is the completion's last token, and does not add it. */
    const bool same = added.count == item->completion - 1 &&
                      memcmp(added.items, tokens + item->prompt, (size_t)added.count * sizeof *tokens) == 0;
    hs_tokens_deinit(&added);
    return same;
}

static void check_generation(const char *family, const char *more)
{
    Scratch scratch = scratch_make();
    HsConfig config;
    HsRun run;
    create(&scratch, (const char *const[]){ family, more }, 2, &config, &run);
    cr_assert_eq(hs_run_train(&run), HS_OK, "%s", hs_error_message());
    const HsDataset *dataset = &run.training.data.tasks[0];
    const HsItemSet *set = &dataset->items[HS_ITEMS_SEEN];
    const HsEvaluator evaluator = hs_training_evaluator(&run.training);
    HsEvaluation evaluation;
    cr_assert_eq(hs_evaluate(&evaluator, dataset, 0, &evaluation), HS_OK, "%s", hs_error_message());
    int64_t right = 0;
    for (int64_t i = 0; i < set->count; i++)
        right += generates(&run.training, set, &set->items[i]);
    printf("%s, %s: %lld of %lld\n", family, more, (long long)right, (long long)set->count);
    cr_expect_eq(evaluation.accuracy[HS_ITEMS_SEEN], (double)right / (double)set->count);
    cr_expect(right > set->count / 10 && right < set->count, "%lld of %lld: a test of a model that knows some",
              (long long)right, (long long)set->count);
    hs_run_destroy(&run);
    hs_config_deinit(&config);
    scratch_remove(&scratch);
}

Test(accuracy, is_that_of_generated_completions)
{
    check_generation("model.family=gpt2", "max_steps=60");
    check_generation("model.family=llama", "max_steps=250");
}

/* Items go many at a time through rows that are as long as they; a long one more brings the program's own shape. */
Test(accuracy, does_not_depend_on_the_shape)
{
    Scratch scratch = scratch_make();
    HsConfig config;
    HsRun run;
    create(&scratch, (const char *const[]){ "max_steps=60" }, 1, &config, &run);
    cr_assert_eq(hs_run_train(&run), HS_OK, "%s", hs_error_message());
    HsDataset *dataset = &run.training.data.tasks[0];
    HsItemSet *set = &dataset->items[HS_ITEMS_SEEN];
    const HsEvaluator evaluator = hs_training_evaluator(&run.training);
    int64_t batch, length;
    double packed, with_one[2];
    hs_evaluator_shape(&evaluator, 7, &batch, &length);
    cr_expect(batch == 16 && length == 16, "%lld of %lld", (long long)batch, (long long)length);
    hs_evaluator_shape(&evaluator, 32, &batch, &length);
    cr_expect(batch == 8 && length == 32, "%lld of %lld", (long long)batch, (long long)length);
    cr_assert_eq(hs_evaluate_items(&evaluator, dataset, set, &packed), HS_OK);
    const int64_t few = set->count;
    HsItem *items = malloc((size_t)(few + 1) * sizeof *items);
    cr_assert_not_null(items);
    memcpy(items, set->items, (size_t)few * sizeof *items);
    cr_assert_eq(hs_tokens_reserve(&set->tokens, 33), HS_OK);
    items[few] = (HsItem){ .start = set->tokens.count, .prompt = 32, .completion = 1 };
    memset(set->tokens.items + set->tokens.count, 0, 33 * sizeof(int32_t));
    HsItemSet more = { .tokens = set->tokens, .items = items, .count = few + 1 };
    for (int i = 0; i < 2; i++) { /* one token is the likeliest: of two completions one is wrong at least */
        more.tokens.items[items[few].start + 32] = i;
        cr_assert_eq(hs_evaluate_items(&evaluator, dataset, &more, &with_one[i]), HS_OK);
    }
    cr_expect_eq(round(fmin(with_one[0], with_one[1]) * (double)(few + 1)), round(packed * (double)few));
    cr_expect(packed > 0 && packed < 1);
    free(items);
    hs_run_destroy(&run);
    hs_config_deinit(&config);
    scratch_remove(&scratch);
}

/* With the byte tokenizer a token is a byte; an end-of-text has none, and is a target all the same. */
Test(accuracy, bits_a_byte)
{
    cr_expect_float_eq(hs_bits_per_byte(1.5, 1), 1.5 / log(2), 1e-15);
    cr_expect_float_eq(hs_bits_per_byte(1.5, 3), 0.5 / log(2), 1e-15);
    Scratch scratch = scratch_make();
    HsConfig config;
    HsRun run;
    create(&scratch,
           (const char *const[]){ "max_steps=1", "tasks.0.train=synthetic:english", "tasks.0.synthetic_tokens=8000" },
           3, &config, &run);
    const HsDataset *dataset = &run.training.data.tasks[0];
    const HsEvaluator evaluator = hs_training_evaluator(&run.training);
    HsEvaluation evaluation;
    cr_assert_eq(hs_evaluate(&evaluator, dataset, 0, &evaluation), HS_OK, "%s", hs_error_message());
    int64_t targets = 0, bytes = 0;
    const int64_t windows = hs_dataset_validation_windows(dataset);
    for (int64_t i = 1; i <= windows * 32; i++, targets++)
        bytes += dataset->validation.tokens[i] < 256;
    cr_expect_lt(bytes, targets);
    cr_expect_eq(evaluation.bytes_per_token, (double)bytes / (double)targets);
    cr_expect(isnan(evaluation.accuracy[0]) && isnan(evaluation.accuracy[1]));
    hs_run_destroy(&run);
    hs_config_deinit(&config);
    /* A stretch without any: nats over ln 2. */
    char plain[129];
    for (int i = 0; i < 128; i++)
        plain[i] = (char)(' ' + i % 90);
    plain[128] = '\0';
    scratch_write(scratch_path(&scratch, "plain.txt"), plain, 128);
    char train[300];
    snprintf(train, sizeof train, "tasks.0.train=%s", scratch_path(&scratch, "plain.txt"));
    create(&scratch, (const char *const[]){ "max_steps=1", train, "tasks.0.validation=50%" }, 3, &config, &run);
    const HsEvaluator other = hs_training_evaluator(&run.training);
    cr_assert_eq(hs_evaluate(&other, &run.training.data.tasks[0], 1, &evaluation), HS_OK, "%s", hs_error_message());
    cr_expect_eq(evaluation.bytes_per_token, 1);
    cr_expect_eq(hs_bits_per_byte(evaluation.loss, evaluation.bytes_per_token), evaluation.loss / M_LN2);
    hs_run_destroy(&run);
    hs_config_deinit(&config);
    scratch_remove(&scratch);
}
