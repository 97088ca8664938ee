/* SPDX-License-Identifier: MIT
 *
 * Relations between the keys of section model.
 */
#include "runtime/config/attention_pattern.h"
#include "runtime/config/model_types.h"
#include "runtime/config/table.h"

/* Some layer's words are of what one family alone has. */
static bool pattern_is_llamas(const HsConfig *config)
{
    HsAttentionKind kinds[HS_MOST_LAYERS];
    bool found = false;
    for (int64_t layer = 0; hs_attention_kinds(config, kinds) == HS_OK && layer < config->model.layers; layer++)
        found |= kinds[layer].nope || kinds[layer].unscaled || kinds[layer].theta > 0 || kinds[layer].sink ||
                 kinds[layer].values;
    return found;
}

/* Keys that one family reads and the other would pass over in silence: a run must not differ from what its file says. */
static HsStatus check_family(const HsConfig *config)
{
    enum { GPT2 = HS_FAMILY_BIT(gpt2), LLAMA = HS_FAMILY_BIT(llama) };
    const bool gated = hs_is(config->model.activation, "swiglu") || hs_is(config->model.activation, "geglu");
    const struct {
        const char *key;
        unsigned families; /* that read it */
        bool used;
    } rules[] = {
        { "model.kv_heads", LLAMA, config->model.kv_heads != 0 },
        { "model.head_dim", LLAMA, config->model.head_dim != 0 },
        { "model.qkv_bias", LLAMA, config->model.qkv_bias },
        { "model.qk_norm", LLAMA, config->model.qk_norm },
        { "model.norms", LLAMA, !hs_is(config->model.norms, "before") },
        { "model.norm_weights", LLAMA, !config->model.norm_weights },
        { "model.norm_offset", LLAMA, config->model.norm_offset },
        { "model.fused_projections", LLAMA, config->model.fused_projections },
        { "model.embedding_norm", LLAMA, config->model.embedding_norm },
        { "model.smear", LLAMA, config->model.smear != 0 },
        { "model.input_blend", LLAMA, config->model.input_blend },
        { "model.backout", LLAMA, config->model.backout },
        { "model.init", LLAMA, !hs_is(config->model.init, "normal") },
        { "model.activation", LLAMA, gated },
        { "model.branch_factor", LLAMA, config->model.branch_factor != 1 },
        { "model.rope_scaling", LLAMA, !hs_is(config->model.rope_scaling, "none") },
        { "model.rope_share", LLAMA, config->model.rope_share != 1 },
        { "model.rope_reversed", LLAMA, config->model.rope_reversed },
        { "model.attention", LLAMA, pattern_is_llamas(config) },
        { "model.bias", GPT2, config->model.bias },
    };
    char names[128];
    for (size_t i = 0; i < sizeof rules / sizeof rules[0]; i++)
        if (rules[i].used && !hs_family_is_in(config, rules[i].families))
            return hs_config_relation_fail(config, rules[i].key, "model.family", "%s needs model.family %s (it is %s)",
                                           rules[i].key, hs_family_names(rules[i].families, names, sizeof names),
                                           config->model.family);
    return HS_OK;
}

/* Keys that need another one. */
static HsStatus check_norms(const HsConfig *config)
{
    const struct {
        const char *key, *needs;
        bool used, served;
    } rules[] = {
        { "model.qk_norm_span", "model.qk_norm", !hs_is(config->model.qk_norm_span, "head"), config->model.qk_norm },
        { "model.qk_norm_rotated", "model.qk_norm", config->model.qk_norm_rotated, config->model.qk_norm },
    };
    for (size_t i = 0; i < sizeof rules / sizeof rules[0]; i++)
        if (rules[i].used && !rules[i].served)
            return hs_config_relation_fail(config, rules[i].key, rules[i].needs, "%s needs %s: set it, or remove %s",
                                           rules[i].key, rules[i].needs, rules[i].key);
    if (config->model.branch_factor != 1 && !hs_is(config->model.norms, "before"))
        return hs_config_relation_fail(
            config, "model.branch_factor", "model.norms",
            "model.branch_factor needs model.norms: before (it is %s): the weights of a norm "
            "behind a branch are such a factor",
            config->model.norms);
    return HS_OK;
}

/* Gates read the first features of a row. */
static HsStatus check_gates(const HsConfig *config)
{
    const struct {
        const char *key;
        int64_t features;
    } gates[] = { { "model.smear", config->model.smear }, { "model.value_gate", config->model.value_gate } };
    HsAttentionKind kinds[HS_MOST_LAYERS];
    bool values = false;
    for (int64_t layer = 0; hs_attention_kinds(config, kinds) == HS_OK && layer < config->model.layers; layer++)
        values |= kinds[layer].values;
    for (size_t i = 0; i < (values ? 2 : 1); i++)
        if (gates[i].features > config->model.width)
            return hs_config_relation_fail(config, gates[i].key, "model.width",
                                           "%s (%lld features) is more than model.width (%lld)", gates[i].key,
                                           (long long)gates[i].features, (long long)config->model.width);
    return HS_OK;
}

static HsStatus check_attention(const HsConfig *config)
{
    HsAttentionKind kinds[HS_MOST_LAYERS];
    const HsStatus status = hs_attention_kinds(config, kinds);
    return status == HS_OK ? HS_OK : hs_config_relation_fail(config, "model.attention", NULL, "%s", hs_error_message());
}

/* Keys of scaled rotary frequencies: each is read by some of the rules only, which need it. */
static HsStatus check_rope(const HsConfig *config)
{
    const char *const scaling = config->model.rope_scaling;
    const bool llama3 = hs_is(scaling, "llama3"), yarn = hs_is(scaling, "yarn"), longrope = hs_is(scaling, "longrope");
    const struct {
        const char *key, *needs;
        bool set, read;
    } rules[] = {
        { "model.rope_factor", "linear, llama3, yarn or longrope", config->model.rope_factor != 1,
          !hs_is(scaling, "none") },
        { "model.rope_original_positions", "llama3, yarn or longrope", config->model.rope_original_positions != 0,
          llama3 || yarn || longrope },
        { "model.rope_low_freq_factor", "llama3", config->model.rope_low_freq_factor != 1, llama3 },
        { "model.rope_high_freq_factor", "llama3", config->model.rope_high_freq_factor != 4, llama3 },
        { "model.rope_beta_slow", "yarn", config->model.rope_beta_slow != 1, yarn },
        { "model.rope_beta_fast", "yarn", config->model.rope_beta_fast != 32, yarn },
        { "model.rope_attention_factor", "yarn or longrope", config->model.rope_attention_factor != 0,
          yarn || longrope },
        { "model.rope_short_divisors", "longrope", config->model.rope_short_divisors.count > 0, longrope },
        { "model.rope_long_divisors", "longrope", config->model.rope_long_divisors.count > 0, longrope },
    };
    for (size_t i = 0; i < sizeof rules / sizeof rules[0]; i++)
        if (rules[i].set && !rules[i].read)
            return hs_config_relation_fail(config, rules[i].key, "model.rope_scaling",
                                           "%s is read only where model.rope_scaling is %s (it is %s): remove it",
                                           rules[i].key, rules[i].needs, scaling);
    if ((llama3 || yarn || longrope) && config->model.rope_original_positions < (longrope ? 2 : 1))
        return hs_config_relation_fail(
            config, "model.rope_scaling", NULL,
            "model.rope_scaling: %s needs model.rope_original_positions, the length before scaling", scaling);
    const char *const low_key = yarn ? "model.rope_beta_slow" : "model.rope_low_freq_factor";
    const char *const high_key = yarn ? "model.rope_beta_fast" : "model.rope_high_freq_factor";
    const double low = yarn ? config->model.rope_beta_slow : config->model.rope_low_freq_factor;
    const double high = yarn ? config->model.rope_beta_fast : config->model.rope_high_freq_factor;
    char a[32], b[32];
    if ((llama3 || yarn) && low >= high)
        return hs_config_relation_fail(config, low_key, high_key, "%s (%s) must be below %s (%s)", low_key,
                                       hs_config_real_text(low, a), high_key, hs_config_real_text(high, b));
    if (yarn && config->model.rope_theta <= 1)
        return hs_config_relation_fail(config, "model.rope_theta", "model.rope_scaling",
                                       "model.rope_scaling: yarn needs model.rope_theta above 1");
    return HS_OK;
}

HsStatus hs_config_check_model(const HsConfig *config)
{
    HS_TRY(check_family(config));
    HS_TRY(check_norms(config));
    HS_TRY(check_rope(config));
    HS_TRY(check_attention(config));
    HS_TRY(check_gates(config));
    long long heads = config->model.heads, kv_heads = config->model.kv_heads, width = config->model.width;
    long long head_dim = config->model.head_dim ? config->model.head_dim : width / heads;
    if (config->model.head_dim == 0 && width % heads != 0)
        return hs_config_relation_fail(config, "model.width", "model.heads",
                                       "model.width (%lld) must be a multiple of model.heads (%lld)", width, heads);
    if (kv_heads > 0 && heads % kv_heads != 0)
        return hs_config_relation_fail(config, "model.kv_heads", "model.heads",
                                       "model.heads (%lld) must be a multiple of model.kv_heads (%lld)", heads,
                                       kv_heads);
    if (hs_is(config->model.family, "llama") && head_dim % 2 != 0)
        return hs_config_relation_fail(config, "model.head_dim", "model.width",
                                       "rotary positions need an even head size (it is %lld); change model.head_dim or "
                                       "model.width / model.heads",
                                       head_dim);
    long long positions = config->model.max_positions, length = config->training.max_length;
    if (hs_is(config->model.family, "gpt2") && positions > 0 && length > positions)
        return hs_config_relation_fail(config, "max_length", "model.max_positions",
                                       "max_length (%lld) must be at most model.max_positions (%lld)", length,
                                       positions);
    return HS_OK;
}
