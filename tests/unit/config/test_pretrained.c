/* SPDX-License-Identifier: MIT
 *
 * init_from: what config.json says becomes the model section; what contradicts it, and what it says that cannot be had
 * here, is refused by name.
 */
#include <criterion/criterion.h>

#include "runtime/config/attention_pattern.h"
#include "runtime/config/table.h"
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

/* By transformers' rules: all of Mistral's layers, and of Qwen's those of layer_types, or from max_window_layers on. */
Test(pretrained, windows_become_a_pattern)
{
    static const struct {
        const char *type, *keys;
        int64_t windows[2];
    } cases[] = {
        { "mistral", "\"sliding_window\": 100", { 100, 100 } },
        { "mistral", "\"sliding_window\": 100000", { 100000, 100000 } },
        { "mistral", "\"use_cache\": true", { 4096, 4096 } },
        { "mistral", "\"sliding_window\": null", { 0, 0 } },
        { "llama", "\"sliding_window\": 128", { 0, 0 } },
        { "qwen2", "\"sliding_window\": 64, \"max_window_layers\": 1", { 0, 0 } },
        { "qwen2", "\"use_sliding_window\": true, \"sliding_window\": 64, \"max_window_layers\": 1", { 0, 64 } },
        { "qwen2", "\"use_sliding_window\": true, \"max_window_layers\": 0", { 4096, 4096 } },
        { "qwen3", "\"use_sliding_window\": true, \"sliding_window\": 64", { 0, 0 } },
        { "qwen3", "\"use_sliding_window\": true, \"sliding_window\": null, \"max_window_layers\": 0", { 0, 0 } },
        { "qwen3",
          "\"use_sliding_window\": true, \"sliding_window\": 64, \"max_window_layers\": 0, "
          "\"layer_types\": [\"sliding_attention\", \"full_attention\"]",
          { 64, 0 } },
    };
    const Scratch scratch = scratch_make();
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char keys[1024];
        snprintf(keys, sizeof keys, "%s, \"num_key_value_heads\": 2, %s", base, cases[i].keys);
        HsConfig config = loaded(&scratch, cases[i].type, keys);
        for (int layer = 0; layer < 2; layer++)
            cr_expect_eq(hs_attention_kind(&config, layer).window, cases[i].windows[layer], "case %zu, layer %d", i,
                         layer);
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

static double real_of(const HsConfig *config, const char *name)
{
    const HsConfigKey *key = hs_config_key_find("model", name);
    const void *place = (const char *)config + key->offset;
    return key->type == HS_KEY_BOOL ? *(const bool *)place : *(const double *)place;
}

/* What each type says, and what it means where it does not; by the constructors of transformers 5.24. */
static const struct {
    const char *type, *keys;
    struct {
        const char *key;
        double value;
    } reals[6];
    const char *norms, *activation;
    const char *pattern; /* joined by ", " */
} families[] = {
    { "gemma2",
      "",
      { { "score_cap", 50 },
        { "logit_cap", 30 },
        { "score_scale", 1.0 / 16 },
        { "tie_head", 1 },
        { "norm_offset", 1 },
        { "embedding_factor", 0 } },
      "around",
      "geglu",
      "window 4096, full" },
    { "gemma2",
      ", \"final_logit_softcapping\": null, \"attn_logit_softcapping\": 20.0, \"query_pre_attn_scalar\": 64",
      { { "score_cap", 20 }, { "logit_cap", 0 }, { "score_scale", 0.125 } },
      "around",
      "geglu",
      "window 4096, full" },
    { "gemma3_text",
      ", \"sliding_window\": 64, \"sliding_window_pattern\": 2",
      { { "score_cap", 0 }, { "logit_cap", 0 }, { "qk_norm", 1 }, { "rope_theta", 1e6 } },
      "around",
      "geglu",
      "window 64 theta 10000, full" },
    { "gemma3_text",
      ", \"rope_theta\": 5e5, \"rope_local_base_freq\": 100, \"sliding_window\": 9, "
      "\"rope_scaling\": {\"rope_type\": \"linear\", \"factor\": 8.0}",
      { { "rope_theta", 5e5 }, { "rope_factor", 8 } },
      "around",
      "geglu",
      "window 9 theta 100 unscaled" },
    { "gemma3_text",
      ", \"sliding_window\": 9, \"layer_types\": [\"full_attention\", \"sliding_attention\"], "
      "\"rope_parameters\": {\"full_attention\": {\"rope_theta\": 7e5, \"rope_type\": \"default\"}, "
      "\"sliding_attention\": {\"rope_theta\": 700, \"rope_type\": \"default\"}}",
      { { "rope_theta", 7e5 } },
      "around",
      "geglu",
      "full, window 9 theta 700" },
    { "smollm3", "", { { "rope_theta", 2e6 }, { "tie_head", 1 } }, "before", "auto", "" },
    { "smollm3", ", \"no_rope_layers\": [1, 0, 1]", { { "rope_theta", 2e6 } }, "before", "auto", "full, nope" },
    { "smollm3",
      ", \"no_rope_layer_interval\": 2, \"use_sliding_window\": true, \"sliding_window\": 32",
      { { "rope_theta", 2e6 } },
      "before",
      "auto",
      "full, window 32 nope" },
    { "olmo2",
      ", \"rope_theta\": 500000",
      { { "qk_norm", 1 }, { "rope_theta", 5e5 }, { "norm_epsilon", 1e-5 } },
      "after",
      "auto",
      "" },
    { "olmo3",
      ", \"rope_scaling\": {\"rope_type\": \"yarn\", \"factor\": 8, "
      "\"original_max_position_embeddings\": 16}",
      { { "rope_theta", 5e5 }, { "rope_factor", 8 } },
      "after",
      "auto",
      "window 4096 unscaled" },
    { "exaone4",
      ", \"sliding_window\": 8, \"layer_types\": [\"full_attention\", \"sliding_attention\"]",
      { { "qk_norm", 1 } },
      "after",
      "auto",
      "nope, window 8" },
    { "exaone4", ", \"sliding_window\": null", { { "qk_norm", 1 } }, "after", "auto", "" },
    { "phi3",
      ", \"partial_rotary_factor\": 0.75, \"rope_theta\": 100, \"max_position_embeddings\": 8192",
      { { "rope_share", 0.75 }, { "rope_theta", 100 }, { "fused_projections", 1 } },
      "before",
      "auto",
      "" },
    { "phi3", ", \"sliding_window\": 77", { { "rope_share", 1 } }, "before", "auto", "window 77" },
    { "granite",
      ", \"embedding_multiplier\": 12, \"logits_scaling\": 8, \"residual_multiplier\": 0.22, "
      "\"attention_multiplier\": 0.015625",
      { { "embedding_factor", 12 }, { "logit_factor", 0.125 }, { "branch_factor", 0.22 }, { "score_scale", 0.015625 } },
      "before",
      "auto",
      "" },
    { "granite", "", { { "score_scale", 1 }, { "embedding_factor", 1 } }, "before", "auto", "" },
    { "ministral",
      ", \"sliding_window\": 8, \"layer_types\": [\"sliding_attention\", \"full_attention\"]",
      { { "rope_theta", 1e4 } },
      "before",
      "auto",
      "window 8, full" },
    { "nanochat",
      "",
      { { "norm_weights", 0 },
        { "embedding_norm", 1 },
        { "qk_norm_rotated", 1 },
        { "rope_reversed", 1 },
        { "logit_cap", 15 } },
      "before",
      "relu2",
      "" },
};

Test(pretrained, families_are_rows)
{
    const Scratch scratch = scratch_make();
    for (size_t i = 0; i < sizeof families / sizeof *families; i++) {
        char keys[1024], pattern[128] = "";
        snprintf(keys, sizeof keys, "%s, \"num_key_value_heads\": 2, \"head_dim\": 16%s", base, families[i].keys);
        HsConfig config = loaded(&scratch, families[i].type, keys);
        for (int k = 0; k < 6 && families[i].reals[k].key; k++)
            cr_expect_eq(real_of(&config, families[i].reals[k].key), families[i].reals[k].value, "%zu, %s: %s is %g", i,
                         families[i].type, families[i].reals[k].key, real_of(&config, families[i].reals[k].key));
        cr_expect_str_eq(config.model.norms, families[i].norms, "case %zu", i);
        cr_expect_str_eq(config.model.activation, families[i].activation, "case %zu", i);
        for (int k = 0; k < config.model.attention.count; k++)
            snprintf(pattern + strlen(pattern), sizeof pattern - strlen(pattern), "%s%s", k ? ", " : "",
                     config.model.attention.items[k]);
        cr_expect_str_eq(pattern, families[i].pattern, "%zu, %s: %s", i, families[i].type, pattern);
        hs_config_deinit(&config);
    }
    scratch_remove(&scratch);
}

/* Older files of Phi-3 call the rule su or yarn; of its lengths the top level's counts. */
Test(pretrained, longrope_is_read)
{
    static const char *const names[] = { "longrope", "su", "yarn" };
    const Scratch scratch = scratch_make();
    for (int i = 0; i < 3; i++) {
        char keys[1024];
        snprintf(keys, sizeof keys,
                 "%s, \"rope_scaling\": {\"type\": \"%s\", \"short_factor\": [1, 1.5, 2, 2, 2, 2, 2, 2], "
                 "\"long_factor\": [1, 2, 4, 8, 16, 32, 64, 64]}, \"original_max_position_embeddings\": 32",
                 base, names[i]);
        HsConfig config = loaded(&scratch, "phi3", keys);
        cr_expect_str_eq(config.model.rope_scaling, "longrope");
        cr_expect_eq(config.model.rope_original_positions, 32);
        cr_expect_eq(config.model.rope_factor, 4, "128 / 32");
        cr_expect_eq(config.model.rope_short_divisors.count, 8);
        cr_expect_str_eq(config.model.rope_short_divisors.items[1], "1.5");
        cr_expect_str_eq(config.model.rope_long_divisors.items[7], "64");
        hs_config_deinit(&config);
    }
    scratch_remove(&scratch);
}

/* The text's part is a section. */
Test(pretrained, of_text_and_pictures_the_text_is_read)
{
    const Scratch scratch = scratch_make();
    HsConfig config;
    char text[1024];
    snprintf(
        text, sizeof text,
        "{\"model_type\": \"gemma3\", \"vision_config\": {}, \"text_config\": {\"model_type\": \"gemma3_text\", %s, "
        "\"num_key_value_heads\": 2, \"head_dim\": 16, \"sliding_window\": 8}}",
        base);
    make_folder(&scratch, "gemma3_text", base);
    scratch_write(scratch_path(&scratch, "config.json"), text, strlen(text));
    RUN(load(&scratch, "", &config));
    cr_expect_str_eq(config.model.norms, "around");
    cr_expect_eq(config.model.width, 64);
    hs_config_deinit(&config);
    scratch_remove(&scratch);
}

/* Of what a published model has only what the configuration does not say. */
Test(pretrained, a_shape_by_name)
{
    static const char text[] = "model: {shape: gemma3-270m, layers: 2, vocabulary: 500}\n";
    HsConfig config;
    RUN(hs_config_parse(&config, "c.yaml", text, sizeof text - 1, 0, NULL));
    cr_expect_str_eq(config.model.family, "llama");
    cr_expect_eq(config.model.layers, 2);
    cr_expect_eq(config.model.width, 640);
    cr_expect_eq(config.model.head_dim, 256);
    cr_expect_eq(config.model.vocabulary, 500);
    cr_expect_str_eq(config.model.norms, "around");
    cr_expect_eq(hs_attention_kind(&config, 0).window, 512);
    hs_config_deinit(&config);
    const char *const shape[] = { "model.shape=gpt2-xl", "max_length=64" };
    RUN(hs_config_parse(&config, NULL, NULL, 0, 2, shape));
    cr_expect_str_eq(config.model.family, "gpt2");
    cr_expect_eq(config.model.width, 1600);
    cr_expect(config.model.bias);
    hs_config_deinit(&config);
    const Scratch scratch = scratch_make();
    make_folder(&scratch, "llama", base);
    refuses(&scratch, "model: {shape: gpt2}\n",
            "model.shape: gpt2 is of a model from scratch, and init_from names weights");
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

Test(pretrained, what_cannot_be_had_is_refused_by_name)
{
    static const struct {
        const char *type, *keys, *message;
    } cases[] = {
        { "gemma", "",
          "model_type is \"gemma\", which is not supported (the norms of the first Gemma); the nearest that is: "
          "gemma2" },
        { "qwen3_5_text", "", "not supported (Gated DeltaNet); the nearest that is: qwen3" },
        { "gemma4_text", "", "not supported (embeddings by layer and shared keys); the nearest that is: gemma3_text" },
        { "bloom", "", "model_type is \"bloom\", which is not supported; supported: gpt2, llama, mistral, ministral," },
        { "gemma2", ", \"hidden_activation\": \"silu\"", "supported: gelu_pytorch_tanh" },
        { "gemma3_text", ", \"rope_parameters\": {\"rope_type\": \"linear\", \"factor\": 2}",
          "supported: sections full_attention and sliding_attention" },
        { "gemma3_text", ", \"rope_parameters\": {\"sliding_attention\": {\"rope_type\": \"yarn\"}}",
          "sliding_attention: rope_type is \"yarn\"" },
        { "gemma3_text", ", \"sliding_window\": null", "sliding_window is null" },
        { "smollm3", ", \"no_rope_layers\": [1]", "no_rope_layers must be a list with a number for each" },
        { "phi3", ", \"rope_scaling\": {\"type\": \"linear\", \"factor\": 2}", "supported: default, longrope" },
        { "phi3", ", \"rope_scaling\": {\"type\": \"longrope\", \"short_factor\": [1, 0], \"long_factor\": [1, 1]}",
          "short_factor must be a list of numbers above 0" },
        { "granite", ", \"attention_bias\": true", "attention_bias is true" },
        { "granite", ", \"logits_scaling\": 0", "logits_scaling must be a number above 0 (got 0)" },
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
        { "mistral", ", \"num_key_value_heads\": 2, \"sliding_window\": 8.5",
          "sliding_window is 8.5, which is not supported; supported: a whole number" },
        { "mistral", ", \"layer_types\": [\"sliding_attention\", \"full_attention\"]", "layers of one kind" },
        { "llama", ", \"sliding_window\": 100", "sliding_window is 100, which is not supported" },
        { "qwen2", ", \"layer_types\": [\"sliding_attention\", \"full_attention\"]",
          "full_attention where no window is asked for" },
        { "qwen2", ", \"layer_types\": [\"full_attention\"]", "a kind for each of num_hidden_layers" },
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
