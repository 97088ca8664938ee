/* SPDX-License-Identifier: MIT
 *
 * The table of other programs' names: what it points at exists, none of its names is in the way of one that exists, and
 * unknown keys and words lead to it.
 */
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include "runtime/config/aliases.h"
#include "runtime/config/table.h"

/* "precision.mode: fp16" -> precision, mode, "fp16" */
static const HsConfigKey *find(const char *meant, char word[HS_DOTTED_BYTES])
{
    char dotted[HS_DOTTED_BYTES], *dot;
    int task;
    const char *const colon = strstr(meant, ": ");
    snprintf(word, HS_DOTTED_BYTES, "%s", colon ? colon + 2 : "");
    snprintf(dotted, sizeof dotted, "%.*s", colon ? (int)(colon - meant) : (int)strlen(meant), meant);
    if (sscanf(dotted, "tasks.%d.", &task) == 1)
        return hs_config_key_find("tasks", strrchr(dotted, '.') + 1);
    dot = strrchr(dotted, '.');
    if (!dot)
        return hs_config_key_find("training", dotted);
    *dot = '\0';
    return hs_config_key_find(dotted, dot + 1);
}

static bool has_choice(const char *choices, const char *meant)
{
    const size_t length = strcspn(meant, " ");
    for (const char *word = choices; *word; word += strcspn(word, "|"), word += *word == '|')
        if (strcspn(word, "|") == length && strncmp(word, meant, length) == 0)
            return true;
    return false;
}

Test(aliases, what_is_meant_exists)
{
    char word[HS_DOTTED_BYTES];
    for (const HsAlias *row = hs_config_key_aliases; row->meant; row++) {
        const HsConfigKey *key = find(row->meant, word);
        cr_expect(key || hs_config_section_exists(row->meant), "%s", row->meant);
        cr_expect(strlen(row->meant) < HS_DOTTED_BYTES, "%s", row->meant);
        if (key && word[0])
            cr_expect(key->choices && has_choice(key->choices, word), "%s", row->meant);
    }
    for (const HsAlias *row = hs_config_choice_aliases; row->meant; row++) {
        if (!strcmp(row->key, "*") || !strcmp(row->key, "options") || !strcmp(row->key, "commands"))
            continue;
        const HsConfigKey *key = find(row->key, word);
        cr_assert(key != NULL, "%s", row->key);
        cr_expect(has_choice(key->choices, row->meant), "%s has no %s", row->key, row->meant);
    }
}

/* Each name is found under its own row: no two rows have it, and a choice's is not a choice. */
Test(aliases, every_name_leads_to_its_row)
{
    char words[4096], *rest, unused[HS_DOTTED_BYTES];
    for (const HsAlias *row = hs_config_key_aliases; row->meant; row++) {
        snprintf(words, sizeof words, "%s", row->words);
        rest = NULL;
        for (char *word = strtok_r(words, " ", &rest); word; word = strtok_r(NULL, " ", &rest)) {
            cr_expect_str_eq(hs_config_alias_key(word), row->meant, "%s", word);
            cr_expect(!hs_config_key_find("training", word), "%s is a key", word);
        }
    }
    for (const HsAlias *row = hs_config_choice_aliases; row->meant; row++) {
        if (!strcmp(row->key, "*") || !strcmp(row->key, "options") || !strcmp(row->key, "commands"))
            continue;
        const HsConfigKey *key = find(row->key, unused);
        snprintf(words, sizeof words, "%s", row->words);
        rest = NULL;
        for (char *word = strtok_r(words, " ", &rest); word; word = strtok_r(NULL, " ", &rest)) {
            cr_expect_str_eq(hs_config_alias_choice(row->key, key->choices, word), row->meant, "%s: %s", row->key,
                             word);
            cr_expect(!has_choice(key->choices, word), "%s: %s is a choice", row->key, word);
        }
    }
}

Test(aliases, the_message_names_what_was_meant)
{
    static const struct {
        const char *text, *says;
    } cases[] = {
        { "continual: {strategy: der}", "did you mean der++?" },
        { "continual: {strategy: replay}", "did you mean er?" },
        { "continual: {strategy: [ewc, agem]}", "did you mean a-gem?" },
        { "continual: {strategy: synaptic-intelligence}", "did you mean si?" },
        { "continual: {strategy: online-ewc+experience-replay}", "did you mean ewc?" },
        { "continual: {strategy: Finetune}", "did you mean none?" },
        { "optimizer: {kind: adamw_torch}", "did you mean adamw?" },
        { "optimizer: {kind: paged_adamw_8bit}", "did you mean adamw8bit?" },
        { "optimizer: {groups: [{match: head, kind: adam}]}", "did you mean adamw?" },
        { "schedule: {kind: cosine_with_warmup}", "did you mean cosine?" },
        { "precision: {mode: float16}", "did you mean fp16?" },
        { "precision: {mode: e4m3}", "did you mean fp8?" },
        { "precision: {mode: mxfp8}", "did you mean fp8 with precision.fp8.recipe mxfp8?" },
        { "precision: {gradients: f32}", "did you mean fp32?" },
        { "optimizer: {moments: float32}", "did you mean f32?" },
        { "num_train_epochs: 3", "did you mean max_epochs?" },
        { "per_device_train_batch_size: 3", "did you mean batch_size?" },
        { "lr: 3", "did you mean learning_rate?" },
        { "optimizer: {lr: 3}", "did you mean learning_rate?" },
        { "fp16: true", "did you mean precision.mode: fp16?" },
        { "block_size: 128", "did you mean max_length?" },
        { "model: {n_layer: 2}", "did you mean model.layers?" },
        { "lora_r: 8", "did you mean adapter.rank?" },
        { "lora: {r: 8}", "did you mean adapter?" },
        { "warmup-ratio: 0.1", "did you mean schedule.warmup_steps?" },
        /* A slip is still a slip, and a word in the wrong place the word elsewhere. */
        { "learning_rat: 1", "did you mean learning_rate?" },
        { "layers: 2", "did you mean model.layers?" },
        { "optimizer: {kind: adamv}", "did you mean adamw?" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        HsConfig config;
        cr_assert_eq(hs_config_parse(&config, "x.yaml", cases[i].text, strlen(cases[i].text), 0, NULL), HS_ECONFIG,
                     "%s", cases[i].text);
        cr_expect(strstr(hs_error_message(), cases[i].says), "%s: %s", cases[i].text, hs_error_message());
    }
}
