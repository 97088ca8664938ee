/* SPDX-License-Identifier: MIT
 *
 * trainer export --checkpoint DIR --format hf|gguf|peft --output DIR|FILE: a trained model as others read it.
 */
#include <argp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/base/log.h"
#include "runtime/commands/arguments.h"
#include "runtime/commands/command.h"
#include "runtime/commands/export_about.h"
#include "runtime/commands/export_adapter.h"
#include "runtime/commands/export_gguf.h"
#include "runtime/config/continual.h"
#include "runtime/config/huggingface.h"
#include "runtime/io/files.h"
#include "runtime/io/storage.h"
#include "runtime/model/adapter.h"

enum { OPTION_FORMAT = 0x500, OPTION_DTYPE, OPTION_SHARD, OPTION_MERGE, OPTION_BASE };

typedef enum Kind { TO_HF, TO_GGUF, TO_PEFT } Kind;

typedef struct Arguments {
    HsCheckpointArgument checkpoint;
    Kind kind;
    bool has_format, merge;
    const char *output, *dtype, *base;
    int64_t shard_bytes;
} Arguments;

static const struct argp_option options[] = {
    HS_CHECKPOINT_OPTIONS,
    { "format", OPTION_FORMAT, "FORMAT", 0,
      "hf: a folder that Hugging Face's transformers loads; gguf: a file for llama.cpp, of the families that it knows; "
      "peft: adapters alone, as PEFT loads them (gguf for an --output that ends in .gguf, else hf)",
      0 },
    { "merge", OPTION_MERGE, NULL, 0, "hf and gguf: add adapters to the matrices that they change", 0 },
    { "base", OPTION_BASE, "NAME", 0, "peft: the base model's name or folder (init_from's of the run)", 0 },
    { "output", 'o', "PATH", 0, "where it goes: a folder that is not there yet, or is empty; of gguf a new file", 0 },
    { "dtype", OPTION_DTYPE, "FORMAT", 0, "of the weights: f32, bf16, f16; of gguf also q8_0 (f32)", 0 },
    { "shard-size", OPTION_SHARD, "SIZE", 0, "hf: largest file of weights, such as 5GB (5GB)", 0 },
    { 0 },
};

/* --dtype's words, with torch's name and ggml's number. */
static const struct Format {
    const char *name, *torch; /* torch NULL: of gguf alone */
    HsDtype dtype;
    HsGgufType gguf;
} formats[] = {
    { "f32", "float32", HS_F32, HS_GGUF_F32 },
    { "bf16", "bfloat16", HS_BF16, HS_GGUF_BF16 },
    { "f16", "float16", HS_F16, HS_GGUF_F16 },
    { "q8_0", NULL, HS_U8, HS_GGUF_Q8_0 },
};

static const struct Format *format_of(const Arguments *arguments)
{
    for (size_t i = 0; i < sizeof formats / sizeof formats[0]; i++)
        if (strcmp(formats[i].name, arguments->dtype) == 0 && (formats[i].torch || arguments->kind == TO_GGUF))
            return &formats[i];
    return NULL;
}

static error_t parse(int key, char *argument, struct argp_state *state)
{
    Arguments *arguments = state->input;
    if (hs_argument_checkpoint(state, key, argument, &arguments->checkpoint)) {
        const size_t length = arguments->output ? strlen(arguments->output) : 0;
        if (key == ARGP_KEY_END && !arguments->has_format && length > 5 &&
            strcmp(arguments->output + length - 5, ".gguf") == 0)
            arguments->kind = TO_GGUF;
        if (key == ARGP_KEY_END && !arguments->output)
            argp_error(state, "--output PATH is missing");
        if (key == ARGP_KEY_END && !format_of(arguments))
            argp_error(state, "--dtype must be f32, bf16%s (got %s)",
                       arguments->kind == TO_GGUF ? ", f16 or q8_0" : " or f16", arguments->dtype);
        return 0;
    }
    switch (key) {
    case OPTION_FORMAT:
        arguments->has_format = true;
        arguments->kind = strcmp(argument, "gguf") == 0 ? TO_GGUF : strcmp(argument, "peft") == 0 ? TO_PEFT : TO_HF;
        if (arguments->kind == TO_HF && strcmp(argument, "hf") != 0)
            argp_error(state, "--format must be hf, gguf or peft (got %s)", argument);
        return 0;
    case OPTION_MERGE:
        arguments->merge = true;
        return 0;
    case OPTION_BASE:
        arguments->base = argument;
        return 0;
    case 'o':
        arguments->output = argument;
        return 0;
    case OPTION_DTYPE:
        arguments->dtype = argument;
        return 0;
    case OPTION_SHARD:
        arguments->shard_bytes = hs_argument_bytes(state, "--shard-size", argument);
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static HsStatus write_json(const char *folder, const char *name, HsJson *root)
{
    char *path = NULL, *text = hs_json_write(root, true);
    hs_json_destroy(root);
    HsStatus status = hs_storage_join(folder, name, &path);
    if (status == HS_OK)
        status = hs_storage_replace_text(path, text);
    free(path);
    free(text);
    return status;
}

static HsStatus write_config(const HsExportSource *source, const HsExportAbout *about, const char *dtype,
                             const char *folder)
{
    const HsPublishedShape shape = { .vocabulary = source->vocabulary,
                                     .mlp_width = hs_export_source_mlp_width(source),
                                     .dtype = dtype,
                                     .qwen_tokenizer = source->qwen_tokenizer };
    HsJson *root = NULL;
    HS_TRY(hs_huggingface_config(&source->config, &shape, &root));
    hs_export_set_tokens(about, root);
    return write_json(folder, "config.json", root);
}

/* All but the weights. */
static HsStatus write_texts(const HsExportSource *source, const char *dtype, const char *folder)
{
    HsExportAbout about;
    char *path = NULL;
    HsStatus status = hs_export_about_init(source, &about);
    if (status == HS_OK)
        status = write_config(source, &about, dtype, folder);
    if (status == HS_OK)
        status = hs_storage_join(folder, "tokenizer.json", &path);
    if (status == HS_OK)
        status = hs_tokenizer_publish(source->tokenizer, path);
    if (status == HS_OK)
        status = write_json(folder, "tokenizer_config.json", hs_export_tokenizer_config(&about));
    if (status == HS_OK)
        status = write_json(folder, "generation_config.json", hs_export_generation_config(&about));
    if (status == HS_OK)
        status = hs_export_write_templates(&about, folder);
    hs_export_about_deinit(&about);
    free(path);
    return status;
}

static int64_t bytes_of(const HsNamedTensor *item)
{
    return hs_tensor_count(&item->tensor) * (int64_t)hs_dtype_bytes(item->stored);
}

static HsStatus write_file(const char *folder, const char *name, const HsNamedTensor *items, int count)
{
    static const char *const metadata[] = { "format", "pt", NULL };
    char *path = NULL;
    HS_TRY(hs_storage_join(folder, name, &path));
    HsStatus status = hs_safetensors_write(path, items, count, metadata, NULL);
    free(path);
    return status;
}

/* How many tensors from the first on go into one file. */
static int shard_length(const HsNamedTensor *items, int count, int64_t most)
{
    int64_t bytes = bytes_of(&items[0]);
    int length = 1;
    while (length < count && bytes + bytes_of(&items[length]) <= most)
        bytes += bytes_of(&items[length++]);
    return length;
}

/* One file, or shards with the index of what lies where. */
static HsStatus write_weights(const HsNamedTensor *items, int count, int64_t most, const char *folder)
{
    int shards = 0;
    int64_t total = 0;
    char name[64];
    for (int first = 0; first < count; first += shard_length(items + first, count - first, most))
        shards++;
    if (shards == 1)
        return write_file(folder, "model.safetensors", items, count);
    HsJson *root = hs_json_object(), *map = hs_json_object(), *metadata = hs_json_object();
    HsStatus status = HS_OK;
    for (int first = 0, shard = 1; first < count && status == HS_OK; shard++) {
        const int length = shard_length(items + first, count - first, most);
        snprintf(name, sizeof name, "model-%05d-of-%05d.safetensors", shard, shards);
        for (int i = first; i < first + length; i++) {
            hs_json_set_string(map, items[i].name, name);
            total += bytes_of(&items[i]);
        }
        status = write_file(folder, name, items + first, length);
        first += length;
    }
    hs_json_set_integer(metadata, "total_size", total);
    hs_json_set(root, "metadata", metadata);
    hs_json_set(root, "weight_map", map);
    if (status == HS_OK)
        return write_json(folder, "model.safetensors.index.json", root);
    hs_json_destroy(root);
    return status;
}

/* Asked before the model is read.  Nothing is overwritten: an earlier model's shards among the new ones would be loaded
 * by nothing and puzzle its readers. */
static HsStatus check_output(const Arguments *arguments)
{
    bool exists;
    if (arguments->kind != TO_GGUF)
        return hs_check_new_folder(arguments->output);
    HS_TRY(hs_path_exists(arguments->output, &exists));
    if (exists)
        return hs_fail(HS_ECONFIG, "%s is there already: name another file, or remove it", arguments->output);
    return hs_check_output(arguments->output);
}

static HsStatus export_folder(const HsExportSource *source, const Arguments *arguments)
{
    const struct Format *format = format_of(arguments);
    HsNamedTensor *items = NULL;
    int count = 0;
    int64_t parameters = 0;
    HsStatus status = hs_export_source_tensors(source, HS_NAMING_PUBLISHED, &items, &count);
    for (int i = 0; i < count; i++) {
        items[i].converted = true;
        items[i].stored = format->dtype;
        parameters += hs_tensor_count(&items[i].tensor);
    }
    if (status == HS_OK)
        status = hs_make_directories(arguments->output);
    if (status == HS_OK)
        status = write_texts(source, format->torch, arguments->output);
    if (status == HS_OK)
        status = write_weights(items, count, arguments->shard_bytes, arguments->output);
    free(items);
    if (status == HS_OK)
        hs_info("%s: %d tensors, %.3f million numbers in %s", arguments->output, count, 1e-6 * (double)parameters,
                format->name);
    return status;
}

static HsStatus write_adapter_config(const HsExportSource *source, const Arguments *arguments)
{
    HsAdapterNames names;
    HsStatus status = hs_adapter_names_init(source, &names);
    const HsPeftNames listed = { .base = arguments->base ? arguments->base : source->config.training.init_from,
                                 .targets = (const char *const *)names.targets,
                                 .target_count = names.target_count,
                                 .saved = (const char *const *)names.saved,
                                 .saved_count = names.saved_count };
    if (status == HS_OK)
        status = write_json(arguments->output, "adapter_config.json", hs_peft_config(&source->config, &listed));
    hs_adapter_names_deinit(&names);
    return status;
}

static HsStatus export_adapters(const HsExportSource *source, const Arguments *arguments)
{
    HsNamedTensor *items = NULL;
    int count = 0;
    int64_t parameters = 0;
    HsStatus status = hs_export_source_adapters(source, &items, &count);
    for (int i = 0; i < count; i++) {
        items[i].converted = true;
        items[i].stored = format_of(arguments)->dtype;
        parameters += hs_tensor_count(&items[i].tensor);
    }
    if (status == HS_OK)
        status = hs_make_directories(arguments->output);
    if (status == HS_OK)
        status = write_adapter_config(source, arguments);
    if (status == HS_OK)
        status = write_file(arguments->output, "adapter_model.safetensors", items, count);
    free(items);
    if (status == HS_OK)
        hs_info("%s: %d tensors of adapters, %.3f million numbers in %s", arguments->output, count,
                1e-6 * (double)parameters, arguments->dtype);
    return status;
}

/* Whether what was asked for is there to be written. */
static HsStatus check_adapters(const HsExportSource *source, const Arguments *arguments)
{
    const bool adapted = hs_adapter_wanted(&source->config);
    if (adapted && arguments->kind != TO_PEFT && !arguments->merge)
        return hs_fail(HS_ECONFIG, "this model has adapters: --merge adds them to its matrices, --format peft writes "
                                   "them alone");
    HsContinualConfig strategies;
    HS_TRY(hs_config_continual(&source->config, &strategies));
    const HsStrategy *renews = hs_continual_new_adapters(&strategies);
    if (arguments->kind == TO_PEFT && renews && source->config.task_count > 1)
        return hs_fail(HS_ECONFIG,
                       "continual.strategy %s has merged the adapters of earlier tasks into the model, which the last "
                       "one's alone does not hold: use --format hf --merge",
                       renews->name);
    if (!adapted && (arguments->kind == TO_PEFT || arguments->merge))
        return hs_fail(HS_ECONFIG, "this model has no adapters: leave %s out",
                       arguments->merge ? "--merge" : "--format peft");
    return HS_OK;
}

const struct argp hs_argp_export = { options, parse, NULL, "A trained model as others read it.", NULL, NULL, NULL };

HsStatus hs_command_export(int argc, char **argv)
{
    Arguments arguments = { .dtype = "f32", .shard_bytes = 5000000000 };
    HsExportSource source = { 0 };
    char *path = NULL;
    HS_TRY(hs_arguments_parse(&hs_argp_export, argc, argv, &arguments));
    HS_TRY(check_output(&arguments));
    HS_TRY(hs_argument_checkpoint_path(&arguments.checkpoint, &path));
    HsStatus status = hs_export_source_init(&source, path);
    if (status == HS_OK)
        status = check_adapters(&source, &arguments);
    if (status == HS_OK)
        status = arguments.kind == TO_PEFT   ? export_adapters(&source, &arguments)
                 : arguments.kind == TO_GGUF ? hs_export_gguf(&source, format_of(&arguments)->gguf, arguments.output)
                                             : export_folder(&source, &arguments);
    hs_export_source_deinit(&source);
    free(path);
    return status;
}
