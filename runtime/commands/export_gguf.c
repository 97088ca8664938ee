/* SPDX-License-Identifier: MIT
 *
 * The model's part of a GGUF: ggml's names for tensors and sizes.  Of some architectures the rows of q and k are put in
 * pairs, because there the rotary embedding turns neighbours; those of the others stay in halves.  Which layers have a
 * window or no positions is no part of a file: each architecture has its rule, which a model must follow.
 */
#include "runtime/commands/export_gguf.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/base/log.h"
#include "runtime/config/attention_pattern.h"
#include "runtime/config/model_types.h"

typedef struct Naming {
    const char *theirs, *ours; /* ours: Hugging Face's, behind "model.layers.N." in blocks */
} Naming;

/* What ggml takes for granted of an architecture. */
typedef struct Architecture {
    const char *name;
    bool pairs;           /* rows of q and k in pairs */
    int full_period;      /* layers have the window but each of this number; 0: none has one */
    bool window_optional; /* or none has one */
    double local_theta;   /* base of the rotary frequencies of layers with a window; 0: the model's */
    int nope_period;      /* each of this number of layers has no positions */
    int windowed_layers;  /* with this number of layers some have a window, which is not written */
    int wide_layers;      /* with this number of layers scores are scaled by the root of width / heads */
    bool factors;         /* of embeddings, scores, branches and logits */
    bool caps;            /* of scores and logits */
} Architecture;

static const Architecture architectures[] = {
    { .name = "llama", .pairs = true },
    { .name = "qwen2" },
    { .name = "qwen3" },
    { .name = "smollm3", .pairs = true, .nope_period = 4 },
    { .name = "olmo2", .full_period = 4, .window_optional = true },
    { .name = "exaone4", .windowed_layers = 64 },
    { .name = "phi3" },
    { .name = "granite", .pairs = true, .factors = true },
    { .name = "gemma2", .full_period = 2, .wide_layers = 46, .caps = true },
    { .name = "gemma3", .full_period = 6, .local_theta = 10000, .wide_layers = 62 },
};

static const Architecture *architecture_of(const HsModelType *type)
{
    for (size_t i = 0; type && type->gguf && i < sizeof architectures / sizeof *architectures; i++)
        if (strcmp(architectures[i].name, type->gguf) == 0)
            return &architectures[i];
    return NULL;
}

static const Naming outside[] = {
    { "token_embd.weight", "model.embed_tokens.weight" },
    { "output_norm.weight", "model.norm.weight" },
    { "output.weight", "lm_head.weight" },
};

static const Naming in_block[] = {
    { "attn_norm.weight", "input_layernorm.weight" },
    { "attn_q.weight", "self_attn.q_proj.weight" },
    { "attn_k.weight", "self_attn.k_proj.weight" },
    { "attn_v.weight", "self_attn.v_proj.weight" },
    { "attn_q.bias", "self_attn.q_proj.bias" },
    { "attn_k.bias", "self_attn.k_proj.bias" },
    { "attn_v.bias", "self_attn.v_proj.bias" },
    { "attn_output.weight", "self_attn.o_proj.weight" },
    { "attn_q_norm.weight", "self_attn.q_norm.weight" },
    { "attn_k_norm.weight", "self_attn.k_norm.weight" },
    { "attn_qkv.weight", "self_attn.qkv_proj.weight" },
    { "ffn_norm.weight", "pre_feedforward_layernorm.weight" },
    { "post_ffw_norm.weight", "post_feedforward_layernorm.weight" },
    { "ffn_up.weight", "mlp.gate_up_proj.weight" },
    { "ffn_gate.weight", "mlp.gate_proj.weight" },
    { "ffn_up.weight", "mlp.up_proj.weight" },
    { "ffn_down.weight", "mlp.down_proj.weight" },
};

/* ggml's name -> name; false where it has none (o_proj's bias, which is zero).  behind: the model has norms behind its
 * branches, one of which has the name that is otherwise that of the norm before the MLP. */
static bool name_of(const char *ours, bool behind, char *name, size_t size)
{
    int block = -1, used = 0;
    if (sscanf(ours, "model.layers.%d.%n", &block, &used) == 1 && used > 0) {
        if (strcmp(ours + used, "post_attention_layernorm.weight") == 0) {
            snprintf(name, size, "blk.%d.%s", block, behind ? "post_attention_norm.weight" : "ffn_norm.weight");
            return true;
        }
        for (size_t i = 0; i < sizeof in_block / sizeof in_block[0]; i++) {
            if (strcmp(in_block[i].ours, ours + used) == 0) {
                snprintf(name, size, "blk.%d.%s", block, in_block[i].theirs);
                return true;
            }
        }
        return false;
    }
    for (size_t i = 0; i < sizeof outside / sizeof outside[0]; i++) {
        if (strcmp(outside[i].ours, ours) == 0) {
            snprintf(name, size, "%s", outside[i].theirs);
            return true;
        }
    }
    return false;
}

typedef struct Writer {
    const HsExportSource *source;
    HsGguf *file;
    const Architecture *architecture;
} Writer;

/* "llama.block_count" */
static const char *key_of(const Writer *writer, const char *suffix, char text[64])
{
    snprintf(text, 64, "%s.%s", writer->architecture->name, suffix);
    return text;
}

static void add_size(const Writer *writer, const char *suffix, int64_t value)
{
    char key[64];
    hs_gguf_add_u32(writer->file, key_of(writer, suffix, key), (uint32_t)value);
}

static void add_real(const Writer *writer, const char *suffix, double value)
{
    char key[64];
    hs_gguf_add_f32(writer->file, key_of(writer, suffix, key), value);
}

static void add_sizes(const Writer *writer, HsGgufType type)
{
    const HsConfig *config = &writer->source->config;
    const HsModel *model = &writer->source->model;
    const int64_t positions = config->model.max_positions;
    /* ggml's numbers of the kinds of files */
    const uint32_t kind = type == HS_GGUF_F32 ? 0 : type == HS_GGUF_F16 ? 1 : type == HS_GGUF_Q8_0 ? 7 : 32;
    hs_gguf_add_text(writer->file, "general.architecture", writer->architecture->name);
    hs_gguf_add_text(writer->file, "general.type", "model");
    hs_gguf_add_u32(writer->file, "general.file_type", kind);
    hs_gguf_add_u32(writer->file, "general.quantization_version", 2);
    add_size(writer, "vocab_size", writer->source->vocabulary);
    add_size(writer, "context_length", positions ? positions : config->training.max_length);
    add_size(writer, "embedding_length", model->width);
    add_size(writer, "block_count", model->layers);
    add_size(writer, "feed_forward_length", hs_export_source_mlp_width(writer->source));
    add_size(writer, "attention.head_count", model->heads);
    add_size(writer, "attention.head_count_kv", model->kv_heads);
    add_size(writer, "attention.key_length", model->head_dim);
    add_size(writer, "attention.value_length", model->head_dim);
    add_real(writer, "attention.layer_norm_rms_epsilon", config->model.norm_epsilon);
    add_size(writer, "rope.dimension_count", model->rotated);
    add_real(writer, "rope.freq_base", config->model.rope_theta);
}

static double score_scale(const HsConfig *config, int64_t head_dim)
{
    return config->model.score_scale > 0 ? config->model.score_scale : 1.0 / sqrt((double)head_dim);
}

/* The window of the layers that have one; 0: none has. */
static int64_t window_of(const HsConfig *config)
{
    int64_t window = 0;
    for (int64_t layer = 0; layer < config->model.layers && window == 0; layer++)
        window = hs_attention_kind(config, layer).window;
    return window;
}

static void add_rules(const Writer *writer)
{
    const HsConfig *config = &writer->source->config;
    const HsModel *model = &writer->source->model;
    const Architecture *architecture = writer->architecture;
    const double factor = config->model.embedding_factor;
    if (architecture->full_period > 0 && window_of(config) > 0)
        add_size(writer, "attention.sliding_window", window_of(config));
    if (architecture->caps) {
        add_real(writer, "attn_logit_softcapping", config->model.score_cap);
        add_real(writer, "final_logit_softcapping", config->model.logit_cap);
    }
    if (!architecture->factors)
        return;
    add_real(writer, "embedding_scale", factor > 0 ? factor : sqrt((double)model->width));
    add_real(writer, "attention.scale", score_scale(config, model->head_dim));
    add_real(writer, "residual_scale", config->model.branch_factor);
    add_real(writer, "logit_scale", 1.0 / config->model.logit_factor);
}

/* llama3's rule is a tensor, longrope's are two (below). */
static void add_rope(const Writer *writer)
{
    const HsConfig *config = &writer->source->config;
    const char *const scaling = config->model.rope_scaling;
    const HsRopeRule longrope = { .scaling = HS_ROPE_LONGROPE,
                                  .factor = config->model.rope_factor,
                                  .original_length = (double)config->model.rope_original_positions,
                                  .attention_factor = config->model.rope_attention_factor };
    char key[64];
    const bool yarn = strcmp(scaling, "yarn") == 0;
    if (strcmp(scaling, "longrope") == 0) {
        add_size(writer, "rope.scaling.original_context_length", config->model.rope_original_positions);
        add_real(writer, "rope.scaling.attn_factor", hs_rope_amplitude(&longrope));
        return;
    }
    if (!yarn && strcmp(scaling, "linear") != 0)
        return;
    hs_gguf_add_text(writer->file, key_of(writer, "rope.scaling.type", key), scaling);
    add_real(writer, "rope.scaling.factor", config->model.rope_factor);
    if (!yarn)
        return;
    add_size(writer, "rope.scaling.original_context_length", config->model.rope_original_positions);
    add_real(writer, "rope.scaling.yarn_beta_fast", config->model.rope_beta_fast);
    add_real(writer, "rope.scaling.yarn_beta_slow", config->model.rope_beta_slow);
}

/* What each pair's frequency is divided by, by llama3's rule (rows 1) or longrope's (2: of long sequences, of short
 * ones); the caller frees the data. */
static HsStatus make_rope_factors(const HsExportSource *source, int rows, float **factors)
{
    const HsConfig *config = &source->config;
    const int64_t pairs = source->model.rotated / 2;
    const HsRopeRule plain = { .theta = config->model.rope_theta };
    const HsRopeRule rule = { .theta = config->model.rope_theta,
                              .scaling = HS_ROPE_LLAMA3,
                              .factor = config->model.rope_factor,
                              .original_length = (double)config->model.rope_original_positions,
                              .low = config->model.rope_low_freq_factor,
                              .high = config->model.rope_high_freq_factor };
    *factors = malloc((size_t)(rows * pairs) * sizeof **factors);
    if (!*factors)
        return hs_fail(HS_ENOMEM, "no memory for the factors of rotary frequencies");
    for (int64_t i = 0; i < pairs && rows == 1; i++)
        (*factors)[i] = (float)(hs_rope_frequency(&plain, source->model.head_dim, i) /
                                hs_rope_frequency(&rule, source->model.head_dim, i));
    for (int64_t i = 0; i < pairs && rows == 2; i++) {
        (*factors)[i] = (float)source->model.rope_divisors[pairs + i];
        (*factors)[pairs + i] = (float)source->model.rope_divisors[i];
    }
    return HS_OK;
}

/* The tensors of those factors -> tensors; returns how many. */
static int list_rope_factors(const HsExportSource *source, int rows, float *factors, HsGgufTensor *tensors)
{
    static const char *const names[2][2] = { { "rope_freqs.weight" },
                                             { "rope_factors_long.weight", "rope_factors_short.weight" } };
    const int64_t pairs = source->model.rotated / 2;
    for (int i = 0; i < rows; i++) {
        tensors[i] = (HsGgufTensor){ .source.tensor = { factors + i * pairs, HS_F32, 1, { pairs, 1, 1, 1 } } };
        snprintf(tensors[i].name, sizeof tensors[i].name, "%s", names[rows - 1][i]);
    }
    return rows;
}

/* Formats: vectors f32; a matrix with rows that are no whole blocks f16. */
static HsGgufType type_of(const HsTensor *source, HsGgufType wanted, int *narrow)
{
    if (source->rank == 1)
        return HS_GGUF_F32;
    if (wanted != HS_GGUF_Q8_0 || source->shape[1] % HS_GGUF_Q8_BLOCK == 0)
        return wanted;
    *narrow += 1;
    return HS_GGUF_F16;
}

static int list_tensors(const Writer *writer, const HsNamedTensor *items, int count, HsGgufType type,
                        HsGgufTensor *tensors)
{
    const bool pairs = writer->architecture->pairs;
    const bool behind = !hs_is(writer->source->config.model.norms, "before");
    int listed = 0, narrow = 0;
    for (int i = 0; i < count; i++) {
        HsGgufTensor *tensor = &tensors[listed];
        if (!name_of(items[i].name, behind, tensor->name, sizeof tensor->name))
            continue;
        tensor->source = items[i];
        tensor->type = type_of(&items[i].tensor, type, &narrow);
        const bool turned = strstr(tensor->name, "attn_q.weight") || strstr(tensor->name, "attn_k.weight");
        tensor->pair_rows = pairs && turned ? writer->source->model.head_dim : 0;
        listed++;
    }
    if (narrow > 0)
        hs_info("%d matrices have rows that are no multiple of %d numbers, and are f16", narrow, HS_GGUF_Q8_BLOCK);
    return listed;
}

/* Whether layers differ as ggml takes it for granted. */
static bool layers_fit(const HsConfig *config, const Architecture *architecture)
{
    const bool windows = window_of(config) > 0;
    if (!windows && architecture->full_period > 0 && !architecture->window_optional)
        return false;
    if (architecture->windowed_layers > 0 && config->model.layers == architecture->windowed_layers)
        return false;
    for (int64_t layer = 0; layer < config->model.layers; layer++) {
        const HsAttentionKind kind = hs_attention_kind(config, layer);
        const bool slides = windows && architecture->full_period > 0 && (layer + 1) % architecture->full_period != 0;
        const bool nope = architecture->nope_period > 0 && (layer + 1) % architecture->nope_period == 0;
        const double local = architecture->local_theta > 0 ? architecture->local_theta : config->model.rope_theta;
        const double theta = kind.theta > 0 ? kind.theta : config->model.rope_theta;
        if ((kind.window > 0) != slides || kind.nope != nope || (slides && theta != local))
            return false;
    }
    return true;
}

static HsStatus check_rules(const HsConfig *config, const HsModel *model, const Architecture *architecture)
{
    const bool wide = architecture->wide_layers > 0 && config->model.layers == architecture->wide_layers;
    const double usual = 1.0 / sqrt(wide ? (double)(model->width / model->heads) : (double)model->head_dim);
    if (!layers_fit(config, architecture))
        return hs_fail(HS_EUNSUPPORTED,
                       "ggml's architecture %s has other layers with a window or without positions than this "
                       "model.attention says: use --format hf",
                       architecture->name);
    if (!architecture->factors && fabs(score_scale(config, model->head_dim) / usual - 1) > 1e-6)
        return hs_fail(HS_EUNSUPPORTED, "ggml's architecture %s has no model.score_scale: use --format hf",
                       architecture->name);
    if ((config->model.score_cap > 0) != architecture->caps || (config->model.logit_cap > 0) != architecture->caps)
        return hs_fail(HS_EUNSUPPORTED,
                       "ggml's architecture %s has %s model.score_cap and model.logit_cap: use --format hf",
                       architecture->name, architecture->caps ? "always both" : "neither");
    if (hs_is(config->model.rope_scaling, "yarn") && config->model.rope_attention_factor > 0)
        return hs_fail(HS_EUNSUPPORTED, "GGUF has no place for model.rope_attention_factor: use --format hf");
    if (hs_is(config->model.rope_scaling, "longrope") && strcmp(architecture->name, "phi3") != 0)
        return hs_fail(HS_EUNSUPPORTED, "ggml's architecture %s has no longrope: use --format hf", architecture->name);
    return HS_OK;
}

static HsStatus check(const HsExportSource *source)
{
    const HsModelType *type = hs_model_type_of(&source->config);
    char missing[256];
    if (!type)
        return hs_fail(HS_EUNSUPPORTED, "ggml has no architecture with %s",
                       hs_model_type_missing(&source->config, missing, sizeof missing));
    if (!architecture_of(type))
        return hs_fail(HS_EUNSUPPORTED, "GGUF is not written for models of type %s: use --format hf%s", type->name,
                       strcmp(type->name, "gpt2") == 0 ? ", or train with model.family: llama" : "");
    return check_rules(&source->config, &source->model, architecture_of(type));
}

HsStatus hs_export_gguf(const HsExportSource *source, HsGgufType type, const char *path)
{
    HsGguf file = { 0 };
    const Writer writer = { source, &file, architecture_of(hs_model_type_of(&source->config)) };
    const char *const scaling = source->config.model.rope_scaling;
    const int factor_rows = hs_is(scaling, "llama3") ? 1 : hs_is(scaling, "longrope") ? 2 : 0;
    HsExportAbout about = { 0 };
    HsNamedTensor *items = NULL;
    HsGgufTensor *tensors = NULL;
    float *factors = NULL;
    int count = 0;
    HS_TRY(check(source));
    HsStatus status = hs_export_source_tensors(source, HS_NAMING_OWN, &items, &count);
    tensors = calloc((size_t)count + 2, sizeof *tensors);
    if (status == HS_OK && !tensors)
        status = hs_fail(HS_ENOMEM, "no memory to list %d tensors", count);
    add_sizes(&writer, type);
    add_rules(&writer);
    add_rope(&writer);
    if (status == HS_OK)
        status = hs_export_about_init(source, &about);
    if (status == HS_OK)
        status = hs_export_gguf_tokenizer(&about, &file);
    if (status == HS_OK && factor_rows > 0)
        status = make_rope_factors(source, factor_rows, &factors);
    if (status == HS_OK) {
        count = list_tensors(&writer, items, count, type, tensors);
        count += list_rope_factors(source, factor_rows, factors, tensors + count);
        status = hs_gguf_write(&file, tensors, count, path);
    }
    if (status == HS_OK)
        hs_info("%s: %d tensors, architecture %s", path, count, writer.architecture->name);
    hs_export_about_deinit(&about);
    hs_gguf_deinit(&file);
    free(factors);
    free(tensors);
    free(items);
    return status;
}
