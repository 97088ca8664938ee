/* SPDX-License-Identifier: MIT
 *
 * init_from: what config.json says becomes the model section; what contradicts it, and what it says that cannot be had
 * here, is refused by name.
 */
#include <criterion/criterion.h>

#include "runtime/config/config.h"
#include "tests/support/scratch.h"

#define RUN(call) cr_assert_eq((call), HS_OK, "%s", hs_error_message())

static const char base[] = "\"hidden_size\": 64, \"num_hidden_layers\": 2, \"num_attention_heads\": 4, "
                           "\"intermediate_size\": 96, \"vocab_size\": 300, \"max_position_embeddings\": 128";

/* A folder with config.json and a tokenizer.json that is not read here. */
static void make_folder(const Scratch *scratch, const char *type, const char *keys)
{
    char text[2048];
    snprintf(text, sizeof text, "{\"model_type\": \"%s\", %s}", type, keys);
    scratch_write(scratch_path(scratch, "config.json"), text, strlen(text));
    scratch_write(scratch_path(scratch, "tokenizer.json"), "{}", 2);
}

static HsStatus load(const Scratch *scratch, const char *text, HsConfig *config)
{
    char whole[1024];
    const int length = snprintf(whole, sizeof whole, "init_from: %s\n%s", scratch->folder, text);
    return hs_config_parse(config, "c.yaml", whole, (size_t)length, 0, NULL);
}

static HsConfig loaded(const Scratch *scratch, const char *type, const char *keys)
{
    HsConfig config;
    make_folder(scratch, type, keys);
    RUN(load(scratch, "", &config));
    return config;
}

Test(pretrained, a_missing_key_means_what_the_library_takes_it_for)
{
    static const struct {
        const char *type, *keys;
        int64_t kv_heads, head_dim;
        bool tied, qkv_bias, qk_norm;
    } cases[] = {
        { "llama", "", 4, 0, false, false, false },
        { "llama", ", \"num_key_value_heads\": null, \"tie_word_embeddings\": true", 4, 0, true, false, false },
        { "llama", ", \"num_key_value_heads\": 2, \"head_dim\": 32", 2, 32, false, false, false },
        { "llama", ", \"attention_bias\": true", 4, 0, false, true, false },
        { "mistral", ", \"sliding_window\": null, \"num_key_value_heads\": 1", 1, 0, false, false, false },
        { "qwen2", ", \"num_key_value_heads\": 2", 2, 0, false, true, false },
        { "qwen3", ", \"num_key_value_heads\": 2", 2, 128, false, false, true },
    };
    const Scratch scratch = scratch_make();
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char keys[1024];
        snprintf(keys, sizeof keys, "%s%s", base, cases[i].keys);
        HsConfig config = loaded(&scratch, cases[i].type, keys);
        cr_expect_str_eq(config.model.family, "llama");
        cr_expect_eq(config.model.width, 64);
        cr_expect_eq(config.model.layers, 2);
        cr_expect_eq(config.model.mlp_width, 96);
        cr_expect_eq(config.model.vocabulary, 300);
        cr_expect_eq(config.model.kv_heads, cases[i].kv_heads, "case %zu", i);
        cr_expect_eq(config.model.head_dim, cases[i].head_dim, "case %zu", i);
        cr_expect_eq(config.model.tie_head, cases[i].tied, "case %zu", i);
        cr_expect_eq(config.model.qkv_bias, cases[i].qkv_bias, "case %zu", i);
        cr_expect_eq(config.model.qk_norm, cases[i].qk_norm, "case %zu", i);
        cr_expect_eq(config.model.norm_epsilon, 1e-6);
        cr_expect_eq(config.model.rope_theta, 10000);
        cr_expect_eq(config.training.max_length, 128, "what the positions allow");
        cr_expect_str_eq(config.tokenizer.kind, "bpe");
        cr_expect_str_eq(config.tokenizer.path, scratch_path(&scratch, "tokenizer.json"));
        hs_config_deinit(&config);
    }
    HsConfig config = loaded(&scratch, "gpt2",
                             "\"n_embd\": 64, \"n_layer\": 3, \"n_head\": 2, \"n_positions\": 512, "
                             "\"n_inner\": null, \"vocab_size\": 300");
    cr_expect_str_eq(config.model.family, "gpt2");
    cr_expect(config.model.bias && config.model.tie_head);
    cr_expect_eq(config.model.max_positions, 512);
    cr_expect_eq(config.model.norm_epsilon, 1e-5);
    cr_expect_eq(config.training.max_length, 256, "the default");
    hs_config_deinit(&config);
    scratch_remove(&scratch);
}

Test(pretrained, both_spellings_of_scaled_positions_are_read)
{
    static const char *const spellings[] = {
        "\"rope_theta\": 5e5, \"rope_scaling\": {\"type\": \"yarn\", \"factor\": 4, \"beta_fast\": 16}",
        "\"rope_parameters\": {\"rope_theta\": 5e5, \"rope_type\": \"yarn\", \"factor\": 4.0, \"beta_fast\": 16, "
        "\"original_max_position_embeddings\": 128}",
    };
    const Scratch scratch = scratch_make();
    for (int i = 0; i < 2; i++) {
        char keys[1024];
        snprintf(keys, sizeof keys, "%s, %s", base, spellings[i]);
        HsConfig config = loaded(&scratch, "llama", keys);
        cr_expect_str_eq(config.model.rope_scaling, "yarn");
        cr_expect_eq(config.model.rope_theta, 5e5);
        cr_expect_eq(config.model.rope_factor, 4);
        cr_expect_eq(config.model.rope_original_positions, 128,
                     "yarn takes the model's own length where none is given");
        cr_expect_eq(config.model.rope_beta_fast, 16);
        cr_expect_eq(config.model.rope_beta_slow, 1);
        hs_config_deinit(&config);
    }
    scratch_remove(&scratch);
}

static void refuses(const Scratch *scratch, const char *text, const char *wanted)
{
    HsConfig config;
    cr_expect_neq(load(scratch, text, &config), HS_OK, "%s", wanted);
    cr_expect_not_null(strstr(hs_error_message(), wanted), "%s lacks `%s`", hs_error_message(), wanted);
}

Test(pretrained, what_cannot_be_had_is_refused_by_name)
{
    static const struct {
        const char *type, *keys, *message;
    } cases[] = {
        { "gemma", "",
          "model_type is \"gemma\", which is not supported; supported: gpt2, llama, mistral, qwen2, qwen3" },
        { "llama", ", \"hidden_act\": \"gelu\"", "hidden_act is \"gelu\", which is not supported; supported: silu" },
        { "llama", ", \"mlp_bias\": true", "mlp_bias is true" },
        { "qwen3", ", \"num_key_value_heads\": 2, \"attention_bias\": true", "attention_bias is true" },
        { "llama", ", \"rope_scaling\": {\"rope_type\": \"dynamic\", \"factor\": 2}", "rope_type is \"dynamic\"" },
        { "llama", ", \"rope_scaling\": {\"rope_type\": \"llama3\", \"factor\": 2}", "low_freq_factor is missing" },
        { "llama", ", \"rope_parameters\": {\"rope_type\": \"yarn\", \"factor\": 2, \"truncate\": false}",
          "truncate is false" },
        { "llama", ", \"partial_rotary_factor\": 0.5, \"rope_scaling\": {\"rope_type\": \"linear\", \"factor\": 2}",
          "partial_rotary_factor is 0.5" },
        { "llama", ", \"quantization_config\": {\"quant_method\": \"gptq\"}", "quantization_config is" },
        { "llama", ", \"num_local_experts\": 8", "num_local_experts is 8" },
        { "mistral", ", \"num_key_value_heads\": 2, \"sliding_window\": 100",
          "sliding_window is 100, less than max_length" },
        { "qwen2",
          ", \"num_key_value_heads\": 2, \"use_sliding_window\": true, \"sliding_window\": 64, "
          "\"max_window_layers\": 1",
          "sliding_window is 64, less than max_length" },
        { "llama", ", \"layer_types\": [\"full_attention\", \"linear_attention\"]",
          "layer_types is \"linear_attention\"" },
        { "llama", ", \"head_dim\": 512", "head_dim: model.head_dim must be at most 256 (got 512)" },
        { "llama", ", \"rms_norm_eps\": \"small\"", "rms_norm_eps must be a number (got \"small\")" },
    };
    const Scratch scratch = scratch_make();
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char keys[1024];
        snprintf(keys, sizeof keys, "%s%s", base, cases[i].keys);
        make_folder(&scratch, cases[i].type, keys);
        refuses(&scratch, "", cases[i].message);
    }
    make_folder(&scratch, "llama", "\"hidden_size\": null");
    refuses(&scratch, "", "hidden_size is null: give its value, or leave the key out");
    scratch_write(scratch_path(&scratch, "config.json"), "[]", 2);
    refuses(&scratch, "", "not a JSON object");
    scratch_write(scratch_path(&scratch, "config.json"), "{", 1);
    refuses(&scratch, "", "not JSON");
    scratch_remove(&scratch);
}

Test(pretrained, contradictions_point_at_their_line)
{
    const Scratch scratch = scratch_make();
    HsConfig config;
    make_folder(&scratch, "llama", base);
    refuses(&scratch, "model: {width: 128}\n", "c.yaml:2:9: model.width: 128 contradicts ");
    refuses(&scratch, "model: {width: 128}\n", "where hidden_size is 64; leave the key out");
    refuses(&scratch, "model: {family: gpt2}\n", "model.family: gpt2 contradicts");
    refuses(&scratch, "max_length: 16\nmodel: {rope_theta: 5}\n", "c.yaml:3:9: model.rope_theta: 5 contradicts");
    RUN(load(&scratch, "model: {width: 64, dropout: 0.1}\n", &config));
    cr_expect_eq(config.model.dropout, 0.1, "how to train is the run's own");
    hs_config_deinit(&config);
    /* A run's own file has every key, and what it began with may be gone. */
    char *text;
    RUN(load(&scratch, "", &config));
    RUN(hs_config_text(&config, &text));
    hs_config_deinit(&config);
    RUN(hs_config_parse(&config, "again.yaml", text, strlen(text), 0, NULL));
    hs_config_deinit(&config);
    scratch_write(scratch_path(&scratch, "saved.yaml"), text, strlen(text));
    cr_assert_eq(remove(scratch_path(&scratch, "config.json")), 0);
    refuses(&scratch, "", "is neither a Hugging Face folder");
    RUN(hs_config_load_saved(&config, scratch_path(&scratch, "saved.yaml"), 0, NULL));
    cr_expect_eq(config.model.width, 64);
    hs_config_deinit(&config);
    free(text);
    scratch_remove(&scratch);
}

Test(pretrained, a_folder_without_a_tokenizer_needs_one)
{
    const Scratch scratch = scratch_make();
    HsConfig config;
    make_folder(&scratch, "llama", base);
    refuses(&scratch, "tokenizer: {kind: byte}\n", "c.yaml:2:13: tokenizer.kind: byte contradicts");
    cr_assert_eq(remove(scratch_path(&scratch, "tokenizer.json")), 0);
    refuses(&scratch, "", "tokenizer.json is not there: name another");
    RUN(load(&scratch, "tokenizer: {kind: byte}\n", &config));
    cr_expect_str_eq(config.tokenizer.kind, "byte");
    hs_config_deinit(&config);
    scratch_remove(&scratch);
}
