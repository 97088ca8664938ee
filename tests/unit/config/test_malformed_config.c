/* SPDX-License-Identifier: MIT
 *
 * Wrong configurations and the exact message each gets.
 */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/config/config.h"

typedef struct Case {
    const char *text, *message;
} Case;

static const Case files[] = {
    /* bounds, with line and column of the key */
    { "seed: 1\nmer:\n  buffer_size: -5\n", "t.yaml:3:3: mer.buffer_size must be at least 1 (got -5)" },
    { "batch_size: 0\n", "t.yaml:1:1: batch_size must be at least 1 (got 0)" },
    { "seed: 99999999999999999999999\n",
      "t.yaml:1:1: seed must be at most 9000000000000000 (got 99999999999999999999999)" },
    { "seed: -99999999999999999999999\n", "t.yaml:1:1: seed must be at least 0 (got -99999999999999999999999)" },
    { "learning_rate: -1e-4\n", "t.yaml:1:1: learning_rate must be at least 0 (got -1e-4)" },
    { "model: {dropout: 1.5}\n", "t.yaml:1:9: model.dropout must be at most 0.99 (got 1.5)" },
    { "optimizer:\n  betas: [0.9, 1.5]\n", "t.yaml:2:16: optimizer.betas must be at most 0.9999999 (got 1.5)" },
    /* wrong types */
    { "batch_size: 1.5\n", "t.yaml:1:1: batch_size must be a whole number (got 1.5)" },
    { "batch_size: 1e3\n", "t.yaml:1:1: batch_size must be a whole number (got 1e3)" },
    { "batch_size: 1_000\n", "t.yaml:1:1: batch_size must be a whole number (got 1_000)" },
    { "batch_size: 0x10\n", "t.yaml:1:1: batch_size must be a whole number (got 0x10)" },
    { "batch_size: \"8\"\n", "t.yaml:1:1: batch_size must be a whole number (got the text \"8\")" },
    { "batch_size: [8]\n", "t.yaml:1:1: batch_size must be a whole number (got a list)" },
    { "batch_size: {a: 8}\n", "t.yaml:1:1: batch_size must be a whole number (got a map)" },
    { "batch_size:\n", "t.yaml:1:1: batch_size has no value; give one or remove the key" },
    { "batch_size: ~\n", "t.yaml:1:1: batch_size has no value; give one or remove the key" },
    { "learning_rate: fast\n", "t.yaml:1:1: learning_rate must be a finite number (got fast)" },
    { "learning_rate: .nan\n", "t.yaml:1:1: learning_rate must be a finite number (got .nan)" },
    { "learning_rate: .inf\n", "t.yaml:1:1: learning_rate must be a finite number (got .inf)" },
    { "learning_rate: 1e999\n", "t.yaml:1:1: learning_rate must be a finite number (got 1e999)" },
    { "learning_rate: 1e\n", "t.yaml:1:1: learning_rate must be a finite number (got 1e)" },
    { "learning_rate: .\n", "t.yaml:1:1: learning_rate must be a finite number (got .)" },
    { "use_amp: yes\n", "t.yaml:1:1: use_amp must be true or false (got yes)" },
    { "use_amp: 1\n", "t.yaml:1:1: use_amp must be true or false (got 1)" },
    { "use_amp: \"true\"\n", "t.yaml:1:1: use_amp must be true or false (got the text \"true\")" },
    { "out_dir: [a]\n", "t.yaml:1:1: out_dir must be a text (\"\" for none) (got a list)" },
    { "device: [cpu]\n", "t.yaml:1:1: device must be one word (got a list)" },
    { "optimizer: {betas: 0.9}\n",
      "t.yaml:1:13: optimizer.betas must be a list of two numbers such as [0.9, 0.95] (got 0.9)" },
    { "optimizer: {betas: [0.9]}\n",
      "t.yaml:1:13: optimizer.betas must be a list of two numbers such as [0.9, 0.95] (got a list)" },
    { "optimizer: {betas: [0.9, a]}\n", "t.yaml:1:26: optimizer.betas must be a finite number (got a)" },
    { "tasks: [{train: []}]\n", "t.yaml:1:10: tasks.0.train must be a text or a list of texts (got a list)" },
    { "tasks: [{train: [a, [b]]}]\n", "t.yaml:1:21: tasks.0.train must be a text or a list of texts (got a list)" },
    /* words */
    { "device: gpu\n", "t.yaml:1:1: device must be auto, cpu, cuda, cuda:N, emu or ref (got gpu); did you mean cuda?" },
    { "schedule: {kind: cosinus}\n",
      "t.yaml:1:12: schedule.kind must be constant, linear, cosine or wsd (got cosinus); "
      "did you mean cosine?" },
    { "precision: {mode: int4}\n",
      "t.yaml:1:13: precision.mode must be auto, fp32, tf32, bf16, fp16 or fp8 (got int4)" },
    /* unknown and doubled keys */
    { "bach_size: 8\n", "t.yaml:1:1: unknown key bach_size; did you mean batch_size?" },
    { "mer:\n  bufer_size: 8\n", "t.yaml:2:3: unknown key mer.bufer_size; did you mean mer.buffer_size?" },
    { "layers: 8\n", "t.yaml:1:1: unknown key layers; did you mean model.layers?" },
    { "optimizer: {learning_rate: 1}\n",
      "t.yaml:1:13: unknown key optimizer.learning_rate; did you mean learning_rate?" },
    { "mer.beta: 0.1\n", "t.yaml:1:1: write mer: and, indented under it, beta:" },
    { "zzzzzz: 8\n", "t.yaml:1:1: unknown key zzzzzz; configs/REFERENCE.md lists them all" },
    { "optimiser: {}\n", "t.yaml:1:1: unknown key optimiser; did you mean optimizer?" },
    { "tasks: [{trian: a}]\n", "t.yaml:1:10: unknown key tasks.0.trian; did you mean tasks.0.train?" },
    { "seed: 1\nseed: 2\n", "t.yaml:2:1: seed is given twice; first in line 1" },
    { "mer: {beta: 0.1}\nmer: {gamma: 0.1}\n", "t.yaml:2:1: mer is given twice; first in line 1" },
    { "mer: {beta: 0.1, beta: 0.1}\n", "t.yaml:1:18: mer.beta is given twice; first in line 1" },
    { "training: {seed: 1}\n", "t.yaml:1:1: training is no section: its keys stand at the top level" },
    /* shape of the file */
    { "- a\n- b\n", "t.yaml:1:1: a configuration must be a map of keys (key: value)" },
    { "just text\n", "t.yaml:1:1: a configuration must be a map of keys (key: value)" },
    { "model: gpt2\n", "t.yaml:1:1: model is a section: it holds keys, indented under it (family: ...)" },
    { "tasks: a\n", "t.yaml:1:1: tasks must be a list of tasks, such as - {name: mine, train: data/mine.txt}" },
    { "tasks: []\n", "t.yaml:1:1: tasks must be a list of tasks, such as - {name: mine, train: data/mine.txt}" },
    { "tasks: [a]\n", "t.yaml:1:9: a task must be a map, such as {name: mine, train: data/mine.txt}" },
    { "tasks:\n  - {name: a}\n  - {name: a}\n",
      "t.yaml:3:6: tasks.1.name: tasks.0 is called `a` too; give each task its own name" },
    { "tasks: [{name: a}, {nam: b}]\n", "t.yaml:1:21: unknown key tasks.1.nam; did you mean tasks.0.name?" },
    { "tasks: [{name: a}, {name: b, steps: -1}]\n", "t.yaml:1:30: tasks.1.steps must be at least 0 (got -1)" },
    { "tasks: [{steps: 5, epochs: 2}]\n",
      "t.yaml:1:20: tasks.0.steps and tasks.0.epochs both give the task's length; remove one" },
    { "continual: {strategy: [ewc, l2]}\n", "t.yaml:1:13: continual.strategy: ewc penalizes already: remove l2" },
    /* YAML that is refused, and what is no YAML */
    { "model: &m {layers: 2}\n",
      "t.yaml:1:8: anchors (&name) are not supported; write the value out where it is needed" },
    { "model: *m\n", "t.yaml:1:8: aliases (*name) are not supported; write the value out" },
    { "model: {<<: 1}\n", "t.yaml:1:9: merge keys (<<) are not supported; write the keys out" },
    { "seed: !!int \"1\"\n",
      "t.yaml:1:7: tags (!name) are not supported; remove this one, as the key determines the type" },
    { "seed: 1\n---\nseed: 2\n", "t.yaml:2:1: only one document (---) is read from a file" },
    { "? [a]\n: b\n", "t.yaml:1:3: a key must be a word, not a list or a map" },
    { "out_dir: \"a\\0b\"\n", "t.yaml:1:10: a text must not contain a NUL character" },
    { "\"a\\0b\": 1\n", "t.yaml:1:1: a key must not contain a NUL character" },
    { "a: [[[[[[[[[[1]]]]]]]]]]\n", "t.yaml:1:11: nested too deeply for a configuration" },
    { "model: {layers: 1\n",
      "t.yaml:2:1: not valid YAML: did not find expected ',' or '}' while parsing a flow mapping" },
    { "\tseed: 1\n",
      "t.yaml:1:1: not valid YAML: found character that cannot start any token while scanning for the next token; "
      "indent by blanks, not by tabs" },
    { "tasks: [{exclude: [*.log]}]\n",
      "t.yaml:1:21: not valid YAML: did not find expected alphabetic or numeric character while scanning an alias; a "
      "text that begins with a sign stands in quotes: \"*.log\"" },
    { "a: 1\n  b: 2\n", "t.yaml:2:4: not valid YAML: mapping values are not allowed in this context" },
    { "seed: 1\nout_dir: \xE4\n", "t.yaml:2:10: byte 0xE4 is not UTF-8; save the file as UTF-8" },
    { "out_dir: \xC3\xA4 \xC0\x80\n", "t.yaml:1:12: byte 0xC0 is not UTF-8; save the file as UTF-8" },
    { "\xFF\xFEs\n", "t.yaml:1:1: byte 0xFF is not UTF-8; save the file as UTF-8" },
    /* relations */
    { "learning_rate: 1e-4\nschedule:\n  min_learning_rate: 1e-3\n",
      "t.yaml:3:3: schedule.min_learning_rate (0.001) must be at most learning_rate (0.0001)" },
    { "schedule: {warmup_steps: 10, decay_steps: 10}\n", "t.yaml:1:12: schedule.warmup_steps (10) must be less than "
                                                         "schedule.decay_steps (10), which counts the warm-up in" },
    { "precision: {min_scale: 4, init_scale: 2}\n",
      "t.yaml:1:13: precision.min_scale (4) must be at most precision.init_scale (2)" },
    { "precision: {max_scale: 1024}\n",
      "t.yaml:1:13: precision.init_scale (65536) must be at most precision.max_scale (1024)" },
    { "use_gradient_checkpointing: true\nmemory: {recompute: mlp}\n",
      "t.yaml:2:10: memory.recompute: mlp contradicts use_gradient_checkpointing: true, which means block; remove "
      "one" },
    { "precision: {mode: fp16, master_weights: false}\n",
      "t.yaml:1:25: precision.master_weights: false needs precision.mode bf16 (it is fp16)" },
    { "use_amp: false\nprecision: {master_weights: false}\n",
      "t.yaml:2:13: precision.master_weights: false needs precision.mode bf16 (it is auto with use_amp: false, which "
      "means "
      "fp32)" },
    { "precision: {logits: bf16}\n", "t.yaml:1:13: precision.logits must be f32 or compute (got bf16)" },
    { "precision: {logits: compute}\ncontinual: {strategy: lwf}\n",
      "t.yaml:1:13: precision.logits: compute rounds the logits, and strategy lwf compares them in f32: set "
      "precision.logits: f32" },
    { "precision: {logits: compute}\ncontinual: {strategy: [ewc, der++]}\n",
      "t.yaml:1:13: precision.logits: compute rounds the logits, and strategy der++ compares them in f32: set "
      "precision.logits: f32" },
    { "model: {kv_heads: 2}\n", "t.yaml:1:9: model.kv_heads needs model.family llama (it is gpt2)" },
    { "model: {qk_norm: true}\n", "t.yaml:1:9: model.qk_norm needs model.family llama (it is gpt2)" },
    { "model: {head_dim: 32}\n", "t.yaml:1:9: model.head_dim needs model.family llama (it is gpt2)" },
    { "model: {family: llama, bias: true}\n", "t.yaml:1:24: model.bias needs model.family gpt2 (it is llama)" },
    { "model: {qkv_bias: true}\n", "t.yaml:1:9: model.qkv_bias needs model.family llama (it is gpt2)" },
    { "model: {rope_scaling: linear}\n", "t.yaml:1:9: model.rope_scaling needs model.family llama (it is gpt2)" },
    { "model: {family: llama, rope_factor: 2}\n",
      "t.yaml:1:24: model.rope_factor is read only where model.rope_scaling is "
      "linear, llama3, yarn or longrope (it is none): remove it" },
    { "model: {family: llama, rope_scaling: llama3, rope_factor: 2}\n",
      "t.yaml:1:24: model.rope_scaling: llama3 needs model.rope_original_positions, the length before scaling" },
    { "model: {family: llama, rope_scaling: yarn, rope_factor: 2, rope_original_positions: 64, rope_beta_slow: 32}\n",
      "t.yaml:1:89: model.rope_beta_slow (32) must be below model.rope_beta_fast (32)" },
    { "model: {heads: 3}\n", "t.yaml:1:9: model.width (128) must be a multiple of model.heads (3)" },
    { "model: {family: llama, kv_heads: 3}\n",
      "t.yaml:1:24: model.heads (4) must be a multiple of model.kv_heads (3)" },
    { "model: {family: llama, head_dim: 33}\n", "t.yaml:1:24: rotary positions need an even head size (it is 33); "
                                                "change model.head_dim or model.width / model.heads" },
    { "max_length: 512\nmodel: {max_positions: 256}\n",
      "t.yaml:1:1: max_length (512) must be at most model.max_positions (256)" },
    { "tokenizer: {kind: bpe}\n",
      "t.yaml:1:13: tokenizer.kind: bpe needs tokenizer.path, a Hugging Face tokenizer.json" },
    { "tokenizer: {kind: byte, path: t.json}",
      "t.yaml:1:25: tokenizer.path has no meaning with tokenizer.kind: byte, which reads no file; leave it out, or set "
      "tokenizer.kind: bpe" },
    { "tokenizer: {path: t.json, kind: char}",
      "t.yaml:1:13: tokenizer.path has no meaning with tokenizer.kind: char, which reads no file; leave it out, or set "
      "tokenizer.kind: bpe" },
    { "max_epochs: 0\n", "t.yaml:1:1: max_epochs and max_steps are both 0: nothing would be trained; set one of them" },
    { "tasks: [{validation: 100%}]\n",
      "t.yaml:1:10: tasks.0.validation must be a share from 0% to below 100% (got 100%)" },
    { "optimizer: {kind: sgd, nesterov: true, momentum: 0}\n",
      "t.yaml:1:24: optimizer.nesterov: true needs optimizer.momentum above 0" },
};

static const Case overrides[] = {
    { "mer.buffer_size=-5", "command line: mer.buffer_size must be at least 1 (got -5)" },
    { "seed", "command line: seed is not of the form section.key=value" },
    { "=1", "command line: =1 is not of the form section.key=value" },
    { "seed=", "command line: seed must be a whole number (got the text \"\")" },
    { "sed=1", "command line: unknown key sed; did you mean seed?" },
    { "model.seed=1", "command line: unknown key model.seed; did you mean seed?" },
    { "training.seed=1", "command line: unknown key training.seed; did you mean seed?" },
    { "model={layers: 2}", "command line: model is a section: set its keys one at a time, as model.family=value" },
    { "tasks=[]", "command line: tasks is a section: set its keys one at a time, as tasks.0.key=value" },
    { "tasks.train=a", "command line: name the task by its number, as in tasks.0.train" },
    { "tasks.1.train=a",
      "command line: there is no tasks.1: the configuration lists 1, counting from 0; tasks.1.name=NAME appends one" },
    { "tasks.2.name=a",
      "command line: there is no tasks.2: the configuration lists 1, counting from 0; tasks.1.name=NAME appends one" },
    { "optimizer.betas=[0.9, 0.99",
      "command line: not valid YAML: did not find expected ',' or ']' while parsing a flow "
      "sequence" },
    { "optimizer.betas=[0.9, *a]", "command line: aliases (*name) are not supported; write the value out" },
    { "out_dir=a\xFF", "command line: the value of out_dir is not UTF-8" },
    { "use_amp=no", "command line: use_amp must be true or false (got no)" },
    { "schedule.min_learning_rate=1",
      "command line: schedule.min_learning_rate (1) must be at most learning_rate (0.0003)" },
};

Test(malformed_config, files_are_refused_with_the_place_and_the_mend)
{
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
        HsConfig config;
        HsStatus status = hs_config_parse(&config, "t.yaml", files[i].text, strlen(files[i].text), 0, NULL);
        cr_expect_eq(status, HS_ECONFIG, "accepted: %s", files[i].text);
        cr_expect_str_eq(hs_error_message(), files[i].message);
    }
}

Test(malformed_config, overrides_are_refused_with_the_reason)
{
    for (size_t i = 0; i < sizeof overrides / sizeof overrides[0]; i++) {
        HsConfig config;
        HsStatus status = hs_config_parse(&config, NULL, NULL, 0, 1, &overrides[i].text);
        cr_expect_eq(status, HS_ECONFIG, "accepted: %s", overrides[i].text);
        cr_expect_str_eq(hs_error_message(), overrides[i].message);
    }
}

Test(malformed_config, an_embedded_nul_byte_is_refused)
{
    HsConfig config;
    static const char text[] = "seed: 1\0seed: 2\n";
    cr_expect_eq(hs_config_parse(&config, "t.yaml", text, sizeof text - 1, 0, NULL), HS_ECONFIG);
}

Test(malformed_config, a_huge_file_is_refused)
{
    HsConfig config;
    size_t length = ((size_t)1 << 20) + 1;
    char *text = malloc(length);
    cr_assert_not_null(text);
    memset(text, '\n', length);
    cr_expect_eq(hs_config_parse(&config, "t.yaml", text, length, 0, NULL), HS_ECONFIG);
    cr_expect_str_eq(hs_error_message(),
                     "t.yaml: over 1 MiB, the most that a configuration may have: is this the right file?");
    cr_expect_eq(hs_config_parse(&config, "t.yaml", text, length - 1, 0, NULL), HS_OK);
    hs_config_deinit(&config);
    free(text);
}

Test(malformed_config, a_missing_file_and_a_folder_are_named)
{
    HsConfig config;
    cr_expect_eq(hs_config_load(&config, "no/such/file.yaml", 0, NULL), HS_ECONFIG);
    cr_expect_str_eq(hs_error_message(), "no/such/file.yaml: cannot be opened: No such file or directory");
    cr_expect_eq(hs_config_load(&config, "/", 0, NULL), HS_ECONFIG);
    cr_expect_str_eq(hs_error_message(), "/ is a folder, not a file");
}
