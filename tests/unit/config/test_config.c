/* SPDX-License-Identifier: MIT
 *
 * Configurations that load: values, defaults, overrides, printing, differences, the reference.
 */
#include <criterion/criterion.h>
#include <glob.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/config/config.h"

static void load(HsConfig *config, const char *text, int count, const char *const *overrides)
{
    HsStatus status = hs_config_parse(config, text ? "t.yaml" : NULL, text, text ? strlen(text) : 0, count, overrides);
    cr_assert_eq(status, HS_OK, "%s", hs_error_message());
}

/* Print, load what was printed, and compare every key. */
static void expect_prints_back(const HsConfig *config, bool with_docs)
{
    char *text = NULL, differing[512];
    size_t length = 0;
    FILE *stream = open_memstream(&text, &length);
    cr_assert_eq(hs_config_print(config, stream, with_docs), HS_OK);
    fclose(stream);
    HsConfig again;
    cr_assert_eq(hs_config_parse(&again, "printed", text, length, 0, NULL), HS_OK, "%s\n%s", hs_error_message(), text);
    cr_expect_eq(hs_config_differences(config, &again, HS_RESUME_ANY, NULL, differing, sizeof differing), 0, "%s",
                 differing);
    hs_config_deinit(&again);
    free(text);
}

Test(config, the_flat_training_keys_load_as_written)
{
    HsConfig config;
    load(&config,
         "batch_size: 8\n"
         "gradient_accumulation_steps: 4   # effective batch 32\n"
         "max_length: 2048\n"
         "use_amp: true                    # precision picks bf16 where the hardware has it\n"
         "use_gradient_checkpointing: true\n"
         "target_gpu_util: 0.8             # fraction of the device's memory the plan may use\n"
         "checkpoint_freq: 20              # optimizer steps\n"
         "max_epochs: 3\n"
         "learning_rate: 2e-4\n"
         "weight_decay: 0.01\n"
         "ewc:\n"
         "  lambda: 5000.0\n"
         "  normalize: true\n"
         "mer:\n"
         "  buffer_size: 5120\n"
         "  beta: 0.1\n"
         "  gamma: 0.1\n",
         0, NULL);
    cr_expect_eq(config.training.batch_size, 8);
    cr_expect_eq(config.training.gradient_accumulation_steps, 4);
    cr_expect_eq(config.training.max_length, 2048);
    cr_expect(config.training.use_amp);
    cr_expect(config.training.use_gradient_checkpointing);
    cr_expect_str_eq(config.memory.recompute, "block");
    cr_expect_eq(config.training.target_gpu_util, 0.8);
    cr_expect_eq(config.training.checkpoint_freq, 20);
    cr_expect_eq(config.training.max_epochs, 3.0);
    cr_expect_eq(config.training.learning_rate, 2e-4);
    cr_expect_eq(config.training.weight_decay, 0.01);
    cr_expect_eq(config.ewc.lambda, 5000.0);
    cr_expect(config.ewc.normalize);
    cr_expect_eq(config.mer.buffer_size, 5120);
    cr_expect_eq(config.mer.beta, 0.1);
    cr_expect_eq(config.mer.gamma, 0.1);
    expect_prints_back(&config, true);
    hs_config_deinit(&config);
}

Test(config, an_empty_file_gives_the_defaults)
{
    HsConfig defaults, config;
    cr_assert_eq(hs_config_init(&defaults), HS_OK);
    static const char *const texts[] = { "",   "\n\n",    "# nothing\n", "---\n", "\xEF\xBB\xBF# with a mark\n",
                                         "{}", "model:\n" };
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        char differing[256];
        load(&config, texts[i], 0, NULL);
        cr_expect_eq(hs_config_differences(&defaults, &config, HS_RESUME_ANY, NULL, differing, sizeof differing), 0,
                     "%s", differing);
        hs_config_deinit(&config);
    }
    cr_expect_eq(defaults.training.learning_rate, 3e-4);
    cr_expect_eq(defaults.optimizer.betas[0], 0.9);
    cr_expect_eq(defaults.optimizer.betas[1], 0.95);
    cr_expect(defaults.training.use_amp);
    cr_expect(defaults.model.tie_head);
    cr_expect_not(defaults.model.bias);
    cr_expect_str_eq(defaults.model.family, "gpt2");
    cr_expect_str_eq(defaults.tokenizer.path, "");
    cr_assert_eq(defaults.task_count, 1);
    cr_expect_eq(defaults.tasks[0].train.count, 1);
    cr_expect_str_eq(defaults.tasks[0].train.items[0], "synthetic:mixture");
    cr_expect_str_eq(defaults.tasks[0].validation, "10%");
    expect_prints_back(&defaults, false);
    hs_config_deinit(&defaults);
}

Test(config, every_spelling_of_a_number_is_read)
{
    static const struct {
        const char *text;
        double value;
    } cases[] = { { "2e-4", 2e-4 }, { "2E-4", 2e-4 }, { "+.5", 0.5 }, { "1.", 1 }, { "1", 1 },
                  { "1e2", 100 },   { "1.5e+1", 15 }, { "0", 0 },     { "-0", 0 }, { "1e-400", 0 } };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char text[64];
        HsConfig config;
        snprintf(text, sizeof text, "learning_rate: %s\n", cases[i].text);
        load(&config, text, 0, NULL);
        cr_expect_eq(config.training.learning_rate, cases[i].value, "%s", text);
        hs_config_deinit(&config);
    }
}

Test(config, a_name_behind_the_list_appends_a_task)
{
    HsConfig config;
    static const char *const overrides[] = { "tasks.2.name=third", "tasks.2.train=data/c.txt", "tasks.3.name=fourth" };
    load(&config, "tasks: [{name: first, steps: 3}, {name: second}]\n", 3, overrides);
    cr_assert_eq(config.task_count, 4);
    cr_expect_str_eq(config.tasks[0].name, "first");
    cr_expect_eq(config.tasks[0].steps, 3);
    cr_expect_str_eq(config.tasks[2].name, "third");
    cr_expect_str_eq(config.tasks[2].train.items[0], "data/c.txt");
    cr_expect_eq(config.tasks[2].steps, 0);
    cr_expect_str_eq(config.tasks[3].name, "fourth");
    cr_expect_str_eq(config.tasks[3].validation, "10%");
    cr_expect(hs_config_is_set(&config, "tasks.2.train"));
    cr_expect_not(hs_config_is_set(&config, "tasks.3.train"));
    hs_config_deinit(&config);
}

Test(config, overrides_go_over_the_file_and_the_last_wins)
{
    static const char *const overrides[] = {
        "batch_size=2",
        "model.layers=7",
        "optimizer.betas=[0.8, 0.99]",
        "tasks.0.train=[a.txt, \"b c.txt\"]",
        "continual.joint_run=my run \x01\xC2\x80\xC2\x85\xEF\xBF\xBF", /* controls come back from print, too */
        "evaluation.sample_prompt=ROMEO: what's # this, {you}?",
        "out_dir=",
        "batch_size=3",
    };
    HsConfig config;
    load(&config, "batch_size: 1\nmodel: {layers: 2, heads: 2}\n", sizeof overrides / sizeof overrides[0], overrides);
    cr_expect_eq(config.training.batch_size, 3);
    cr_expect_eq(config.model.layers, 7);
    cr_expect_eq(config.model.heads, 2);
    cr_expect_eq(config.optimizer.betas[0], 0.8);
    cr_expect_eq(config.optimizer.betas[1], 0.99);
    cr_assert_eq(config.tasks[0].train.count, 2);
    cr_expect_str_eq(config.tasks[0].train.items[1], "b c.txt");
    cr_expect_str_eq(config.continual.joint_run, "my run \x01\xC2\x80\xC2\x85\xEF\xBF\xBF");
    cr_expect_str_eq(config.evaluation.sample_prompt, "ROMEO: what's # this, {you}?");
    cr_expect_str_eq(config.training.out_dir, "");
    expect_prints_back(&config, true);
    hs_config_deinit(&config);
}

Test(config, plus_signs_join_the_words_of_a_list)
{
    static const char *const overrides[] = { "continual.strategy=l2+er", "tasks.0.train=a+b.txt" };
    HsConfig config;
    load(&config, "continual: {strategy: ewc+mer}\n", 0, NULL);
    cr_assert_eq(config.continual.strategy.count, 2);
    cr_expect_str_eq(config.continual.strategy.items[0], "ewc");
    cr_expect_str_eq(config.continual.strategy.items[1], "mer");
    expect_prints_back(&config, true);
    hs_config_deinit(&config);
    load(&config, "continual: {strategy: [ewc+mer]}\n", 2, overrides);
    cr_assert_eq(config.continual.strategy.count, 2);
    cr_expect_str_eq(config.continual.strategy.items[0], "l2");
    cr_expect_str_eq(config.tasks[0].train.items[0], "a+b.txt"); /* a free text is none */
    hs_config_deinit(&config);
}

Test(config, a_shorter_run_has_every_length_in_proportion)
{
    static const char text[] =
        "max_steps: 100\nmax_epochs: 3\n"
        "schedule: {warmup_steps: 4, decay_steps: 5}\n"
        "tasks: [{name: a, steps: 10}, {name: b, tokens: 1001}, {name: c, epochs: 0.9}, {name: d}]\n";
    static const char *const expected[] = { "max_steps=11",          "max_epochs=0.3333333333333333",
                                            "tasks.0.steps=1",       "tasks.1.tokens=111",
                                            "tasks.2.epochs=0.1",    "schedule.warmup_steps=1",
                                            "schedule.decay_steps=2" };
    HsConfig config, shorter;
    HsStringList overrides;
    load(&config, text, 0, NULL);
    cr_assert_eq(hs_config_shorten(&config, 9, &overrides), HS_OK);
    cr_assert_eq(overrides.count, (int)(sizeof expected / sizeof *expected));
    for (int i = 0; i < overrides.count; i++)
        cr_expect_str_eq(overrides.items[i], expected[i]);
    load(&shorter, text, overrides.count, (const char *const *)overrides.items);
    hs_config_deinit(&shorter);
    hs_string_list_deinit(&overrides);
    cr_assert_eq(hs_config_shorten(&config, 1, &overrides), HS_OK);
    cr_expect_eq(overrides.count, 0);
    hs_config_deinit(&config);
}

Test(config, it_knows_which_keys_were_given)
{
    static const char *const overrides[] = { "tasks.0.name=x" };
    HsConfig config;
    load(&config, "seed: 1337\nmodel: {layers: 4}\n", 1, overrides);
    cr_expect(hs_config_is_set(&config, "seed")); /* even with the default's value */
    cr_expect(hs_config_is_set(&config, "model.layers"));
    cr_expect(hs_config_is_set(&config, "tasks.0.name"));
    cr_expect_not(hs_config_is_set(&config, "model.heads"));
    cr_expect_not(hs_config_is_set(&config, "layers"));
    hs_config_deinit(&config);
}

Test(config, awkward_texts_and_numbers_print_back)
{
    static const char *const texts[] = { "\"\"",        "\"null\"", "\"~\"",         "\"true\"",  "\"10\"",
                                         "\" a \"",     "\"a: b\"", "\"#\"",         "\"a\\nb\"", "\"\\t\\\"\\\\\"",
                                         "\"\\u00e4\"", "\"\\N\"",  "\"\\L\\P\"",    "\"\\e\"",   "\"- a\"",
                                         "'it''s'",     "\"[x]\"",  "\"\\uFEFF x\"", "no",        "\"\\U0001F600\"" };
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        char text[128];
        HsConfig config;
        snprintf(text, sizeof text, "evaluation: {sample_prompt: %s}\nlearning_rate: %.17g\n", texts[i],
                 (double)(i + 1) / 3e5);
        load(&config, text, 0, NULL);
        expect_prints_back(&config, i % 2 == 0);
        hs_config_deinit(&config);
    }
}

Test(config, differences_are_named_and_can_be_ignored)
{
    static const char *const left[] = { "seed=1", "model.layers=2", "logging.every=7", "logging.tensorboard=false" };
    static const char *const ignored[] = { "seed", "logging.", NULL };
    HsConfig a, b;
    char text[256];
    load(&a, NULL, 4, left);
    load(&b, NULL, 0, NULL);
    cr_expect_eq(hs_config_differences(&a, &b, HS_RESUME_ANY, NULL, text, sizeof text), 4);
    cr_expect_str_eq(text, "seed, model.layers, logging.every, logging.tensorboard");
    cr_expect_eq(hs_config_differences(&a, &b, HS_RESUME_ANY, ignored, text, sizeof text), 1);
    cr_expect_str_eq(text, "model.layers");
    char small[8];
    cr_expect_eq(hs_config_differences(&a, &b, HS_RESUME_ANY, NULL, small, sizeof small), 4);
    cr_expect_lt(strlen(small), sizeof small);
    hs_config_deinit(&a);
    hs_config_deinit(&b);
}

/* One key of each class, as a resumed run asks for them. */
Test(config, a_key_says_whether_a_run_may_continue_with_another_value)
{
    static const char *const left[] = { "seed=1", "max_steps=7", "schedule.warmup_steps=3", "logging.every=7" };
    HsConfig a, b;
    char text[256];
    load(&a, NULL, 4, left);
    load(&b, NULL, 0, NULL);
    const struct {
        unsigned classes;
        const char *keys;
    } cases[] = { { HS_RESUME_FIXED, "seed" },
                  { HS_RESUME_LENGTH, "max_steps" },
                  { HS_RESUME_FUTURE, "schedule.warmup_steps" },
                  { HS_RESUME_FREE, "logging.every" },
                  { HS_RESUME_FIXED | HS_RESUME_FUTURE, "seed, schedule.warmup_steps" } };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        hs_config_differences(&a, &b, cases[i].classes, NULL, text, sizeof text);
        cr_expect_str_eq(text, cases[i].keys);
    }
    cr_expect_eq(hs_config_changes(&b, &a, HS_RESUME_FUTURE, text, sizeof text), HS_OK);
    cr_expect_str_eq(text, "schedule.warmup_steps 0 -> 3");
    hs_config_deinit(&a);
    hs_config_deinit(&b);
}

static char *written(HsStatus (*write)(FILE *))
{
    char *text = NULL;
    size_t length = 0;
    FILE *stream = open_memstream(&text, &length);
    cr_assert_eq(write(stream), HS_OK);
    fclose(stream);
    return text;
}

Test(config, reference_and_help_name_every_key)
{
    char *reference = written(hs_config_write_reference), *help = written(hs_config_write_help);
    static const char *const names[] = { "batch_size", "kv_heads", "init_scale", "buffer_size", "synthetic_tokens" };
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        cr_expect_not_null(strstr(reference, names[i]));
        cr_expect_not_null(strstr(help, names[i]));
    }
    cr_expect_not_null(strstr(help, "tasks.0.train"));
    /* The copy in configs/ is what the table says today.  Tests run in the repository's root. */
    FILE *file = fopen("configs/REFERENCE.md", "rb");
    cr_assert_not_null(file);
    size_t length = strlen(reference);
    char *kept = calloc(length + 2, 1);
    cr_assert_not_null(kept);
    cr_expect_eq(fread(kept, 1, length + 1, file), length);
    cr_expect_str_eq(kept, reference);
    fclose(file);
    free(kept);
    free(reference);
    free(help);
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

Test(config, every_shipped_configuration_loads_and_prints_back)
{
    glob_t found;
    cr_assert_eq(glob("configs/*.yaml", 0, NULL, &found), 0);
    cr_expect_geq(found.gl_pathc, 5);
    for (size_t i = 0; i < found.gl_pathc; i++) {
        HsConfig config;
        cr_assert_eq(load_shipped(&config, found.gl_pathv[i]), HS_OK, "%s", hs_error_message());
        expect_prints_back(&config, true);
        hs_config_deinit(&config);
    }
    globfree(&found);
}
