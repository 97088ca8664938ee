/* SPDX-License-Identifier: MIT
 *
 * What a tokenizer's class makes itself in place of tokenizer.json's: normalizer, pre-tokenizer, decoder and the model's
 * options, as the classes GPT2Tokenizer, LlamaTokenizer, Qwen2Tokenizer and GemmaTokenizer of transformers 5.24 do.
 */
#include <stdio.h>
#include <string.h>

#include "runtime/data/tokenizer/folder.h"
#include "runtime/data/tokenizer/tokenizer.h"

static HsJson *parse_part(const char *text)
{
    HsJson *part = NULL;
    return hs_json_parse("a class's part", text, strlen(text), &part) == HS_OK ? part : NULL;
}

/* Option of tokenizer_config.json; `absent` where it is not there or null. */
static bool option(const HsTokenizerFolder *folder, const char *key, bool absent)
{
    const HsJson *const node = hs_json_get(folder->config, key);
    return node && !hs_json_is_null(node) ? hs_json_is_true(node) : absent;
}

static void replace_model_options(HsJson *root, bool llama)
{
    HsJson *const model = hs_json_member(root, "model");
    hs_json_replace(model, "dropout", parse_part("null"));
    hs_json_replace(model, "unk_token", parse_part("null"));
    hs_json_replace(model, "continuing_subword_prefix", parse_part(llama ? "null" : "\"\""));
    hs_json_replace(model, "end_of_word_suffix", parse_part(llama ? "null" : "\"\""));
    hs_json_replace(model, "fuse_unk", parse_part(llama ? "true" : "false"));
    hs_json_replace(model, "byte_fallback", parse_part(llama ? "true" : "false"));
    hs_json_replace(model, "ignore_merges", parse_part("false"));
}

static void make_gpt2(const HsTokenizerFolder *folder, HsJson *root)
{
    char text[160];
    snprintf(text, sizeof text,
             "{\"type\":\"ByteLevel\",\"add_prefix_space\":%s,\"trim_offsets\":true,\"use_regex\":true}",
             option(folder, "add_prefix_space", false) ? "true" : "false");
    hs_json_replace(root, "normalizer", parse_part("null"));
    hs_json_replace(root, "pre_tokenizer", parse_part(text));
    hs_json_replace(root, "decoder",
                    parse_part("{\"type\":\"ByteLevel\",\"add_prefix_space\":true,\"trim_offsets\":true,"
                               "\"use_regex\":true}"));
    replace_model_options(root, false);
}

static void make_qwen2(const HsTokenizerFolder *folder, HsJson *root)
{
    HsJson *split = parse_part("{\"type\":\"Split\",\"behavior\":\"Isolated\",\"invert\":false}");
    HsJson *pattern = hs_json_object(), *stages = hs_json_array(), *sequence = hs_json_object();
    make_gpt2(folder, root);
    HsJson *const bytes = hs_json_take(root, "pre_tokenizer");
    hs_json_replace(bytes, "use_regex", parse_part("false"));
    hs_json_set_string(pattern, "Regex", HS_QWEN_EXPRESSION);
    hs_json_set(split, "pattern", pattern);
    hs_json_append(stages, split);
    hs_json_append(stages, bytes);
    hs_json_set_string(sequence, "type", "Sequence");
    hs_json_set(sequence, "pretokenizers", stages);
    hs_json_replace(root, "pre_tokenizer", sequence);
    hs_json_replace(root, "normalizer", parse_part("{\"type\":\"NFC\"}"));
}

/* A space is put in front of the text, with `legacy` in front of each part between special tokens. */
static void make_llama(const HsTokenizerFolder *folder, HsJson *root)
{
    const bool prefix = option(folder, "add_prefix_space", true), legacy = option(folder, "legacy", false);
    char text[192];
    snprintf(text, sizeof text,
             "{\"type\":\"Metaspace\",\"replacement\":\"\xE2\x96\x81\",\"prepend_scheme\":\"%s\",\"split\":false}",
             !prefix  ? "never"
             : legacy ? "always"
                      : "first");
    hs_json_replace(root, "normalizer", parse_part("null"));
    hs_json_replace(root, "pre_tokenizer", parse_part(text));
    hs_json_replace(
        root, "decoder",
        parse_part(prefix ? "{\"type\":\"Sequence\",\"decoders\":[{\"type\":\"Replace\",\"pattern\":{\"String\":"
                            "\"\xE2\x96\x81\"},"
                            "\"content\":\" "
                            "\"},{\"type\":\"ByteFallback\"},{\"type\":\"Fuse\"},{\"type\":\"Strip\",\"content\":\" "
                            "\",\"start\":1,\"stop\":0}]}"
                          : "{\"type\":\"Sequence\",\"decoders\":[{\"type\":\"Replace\",\"pattern\":{\"String\":"
                            "\"\xE2\x96\x81\"},"
                            "\"content\":\" \"},{\"type\":\"ByteFallback\"},{\"type\":\"Fuse\"}]}"));
    replace_model_options(root, true);
}

/* Spaces become U+2581, and nothing is put in front; the class then splits at spaces, of which none is left. */
static void make_gemma(HsJson *root)
{
    hs_json_replace(root, "normalizer",
                    parse_part("{\"type\":\"Replace\",\"pattern\":{\"String\":\" \"},\"content\":\"\xE2\x96\x81\"}"));
    hs_json_replace(root, "pre_tokenizer", parse_part("null"));
    hs_json_replace(root, "decoder",
                    parse_part("{\"type\":\"Sequence\",\"decoders\":[{\"type\":\"Replace\",\"pattern\":{\"String\":"
                               "\"\xE2\x96\x81\"},"
                               "\"content\":\" \"},{\"type\":\"ByteFallback\"},{\"type\":\"Fuse\"}]}"));
    replace_model_options(root, true);
}

bool hs_tokenizer_class_rebuilds(HsTokenizerClass class)
{
    return class == HS_TOKENIZER_GPT2 || class == HS_TOKENIZER_LLAMA || class == HS_TOKENIZER_QWEN2 ||
           class == HS_TOKENIZER_GEMMA;
}

HsStatus hs_tokenizer_class_apply(const HsTokenizerFolder *folder, HsJson *root)
{
    const HsJson *const prefix = hs_json_get(folder->config, "add_prefix_space");
    if (folder->class == HS_TOKENIZER_GPT2 && prefix && hs_json_is_null(prefix))
        return hs_fail(HS_EFORMAT, "%s: add_prefix_space is null: give true or false, or leave the key out",
                       folder->config_path);
    if (folder->class == HS_TOKENIZER_GPT2)
        make_gpt2(folder, root);
    else if (folder->class == HS_TOKENIZER_QWEN2)
        make_qwen2(folder, root);
    else if (folder->class == HS_TOKENIZER_LLAMA)
        make_llama(folder, root);
    else if (folder->class == HS_TOKENIZER_GEMMA)
        make_gemma(root);
    return HS_OK;
}
