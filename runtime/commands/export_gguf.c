/* SPDX-License-Identifier: MIT
 *
 * The model's part of a GGUF: ggml's names for tensors and sizes.  Of architecture `llama` the rows of q and k are put in
 * pairs, because there the rotary embedding turns neighbours; those of qwen2 and qwen3 stay in halves.
 */
#include "runtime/commands/export_gguf.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/base/log.h"
#include "runtime/config/model_types.h"

typedef struct Naming {
    const char *theirs, *ours; /* ours: Hugging Face's, behind "model.layers.N." in blocks */
} Naming;

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
    { "ffn_norm.weight", "post_attention_layernorm.weight" },
    { "ffn_gate.weight", "mlp.gate_proj.weight" },
    { "ffn_up.weight", "mlp.up_proj.weight" },
    { "ffn_down.weight", "mlp.down_proj.weight" },
};

/* ggml's name -> name; false where it has none (o_proj's bias, which is zero). */
static bool name_of(const char *ours, char *name, size_t size)
{
    int block = -1, used = 0;
    if (sscanf(ours, "model.layers.%d.%n", &block, &used) == 1 && used > 0) {
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
    const char *architecture;
} Writer;

/* "llama.block_count" */
static const char *key_of(const Writer *writer, const char *suffix, char text[64])
{
    snprintf(text, 64, "%s.%s", writer->architecture, suffix);
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
    hs_gguf_add_text(writer->file, "general.architecture", writer->architecture);
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
    add_size(writer, "rope.dimension_count", model->head_dim);
    add_real(writer, "rope.freq_base", config->model.rope_theta);
}

/* llama3's rule is a tensor (below). */
static void add_rope(const Writer *writer)
{
    const HsConfig *config = &writer->source->config;
    const char *const scaling = config->model.rope_scaling;
    char key[64];
    const bool yarn = strcmp(scaling, "yarn") == 0;
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

/* What llama3's rule divides each pair's frequency by; the caller frees the data. */
static HsStatus make_rope_factors(const HsExportSource *source, HsGgufTensor *tensor)
{
    const HsConfig *config = &source->config;
    const int64_t pairs = source->model.head_dim / 2;
    const HsRopeRule plain = { .theta = config->model.rope_theta };
    const HsRopeRule rule = { .theta = config->model.rope_theta,
                              .scaling = HS_ROPE_LLAMA3,
                              .factor = config->model.rope_factor,
                              .original_length = (double)config->model.rope_original_positions,
                              .low = config->model.rope_low_freq_factor,
                              .high = config->model.rope_high_freq_factor };
    float *factors = malloc((size_t)pairs * sizeof *factors);
    if (!factors)
        return hs_fail(HS_ENOMEM, "no memory for the factors of rotary frequencies");
    for (int64_t i = 0; i < pairs; i++)
        factors[i] = (float)(hs_rope_frequency(&plain, source->model.head_dim, i) /
                             hs_rope_frequency(&rule, source->model.head_dim, i));
    *tensor =
        (HsGgufTensor){ .name = "rope_freqs.weight", .source.tensor = { factors, HS_F32, 1, { pairs, 1, 1, 1 } } };
    return HS_OK;
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
    const bool pairs = strcmp(writer->architecture, "llama") == 0;
    int listed = 0, narrow = 0;
    for (int i = 0; i < count; i++) {
        HsGgufTensor *tensor = &tensors[listed];
        if (!name_of(items[i].name, tensor->name, sizeof tensor->name))
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

static HsStatus check(const HsConfig *config)
{
    const HsModelType *type = hs_model_type_of(config);
    if (type && !type->gguf)
        return hs_fail(HS_EUNSUPPORTED,
                       "GGUF is written for Llama and Qwen models only (model.family is %s): train with model.family: "
                       "llama, or use --format hf",
                       config->model.family);
    if (!type)
        return hs_fail(HS_EUNSUPPORTED,
                       "ggml has no architecture with both model.qkv_bias and model.qk_norm: train with one of them");
    if (hs_is(config->model.rope_scaling, "yarn") && config->model.rope_attention_factor > 0)
        return hs_fail(HS_EUNSUPPORTED, "GGUF has no place for model.rope_attention_factor: use --format hf");
    return HS_OK;
}

HsStatus hs_export_gguf(const HsExportSource *source, HsGgufType type, const char *path)
{
    HsGguf file = { 0 };
    const Writer writer = { source, &file, hs_model_type_of(&source->config)->gguf };
    HsExportAbout about = { 0 };
    HsNamedTensor *items = NULL;
    HsGgufTensor *tensors = NULL, rope = { 0 };
    int count = 0;
    HS_TRY(check(&source->config));
    HsStatus status = hs_export_source_tensors(source, &items, &count);
    tensors = calloc((size_t)count + 1, sizeof *tensors);
    if (status == HS_OK && !tensors)
        status = hs_fail(HS_ENOMEM, "no memory to list %d tensors", count);
    add_sizes(&writer, type);
    add_rope(&writer);
    if (status == HS_OK)
        status = hs_export_about_init(source, &about);
    if (status == HS_OK)
        status = hs_export_gguf_tokenizer(&about, &file);
    if (status == HS_OK && hs_is(source->config.model.rope_scaling, "llama3"))
        status = make_rope_factors(source, &rope);
    if (status == HS_OK) {
        count = list_tensors(&writer, items, count, type, tensors);
        if (rope.source.tensor.data)
            tensors[count++] = rope;
        status = hs_gguf_write(&file, tensors, count, path);
    }
    if (status == HS_OK)
        hs_info("%s: %d tensors, architecture %s", path, count, writer.architecture);
    hs_export_about_deinit(&about);
    hs_gguf_deinit(&file);
    free(rope.source.tensor.data);
    free(tensors);
    free(items);
    return status;
}
