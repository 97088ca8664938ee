/* SPDX-License-Identifier: MIT
 *
 * See tokenizer_folder.h.
 */
#include "runtime/config/tokenizer_folder.h"

#include <stdlib.h>
#include <string.h>

#include "runtime/config/table.h"
#include "runtime/io/files.h"
#include "runtime/io/storage.h"

enum { FILE_MAX_BYTES = 64 << 20, TOKENIZER_MAX_BYTES = 256 << 20 };

const char *const hs_token_roles[] = { "bos_token", "eos_token", "unk_token",  "sep_token",
                                       "pad_token", "cls_token", "mask_token", NULL };
const char *const hs_usual_ends_of_text[] = { "<|endoftext|>", "<|end_of_text|>", "</s>", "<eos>", NULL };

/* What a class says of roles where no file does. */
static const struct {
    const char *name;
    HsTokenizerClass class;
    const char *bos, *eos, *unk, *pad;
} classes[] = {
    { "PreTrainedTokenizerFast", HS_TOKENIZER_AS_WRITTEN, NULL, NULL, NULL, NULL },
    { "PreTrainedTokenizer", HS_TOKENIZER_AS_WRITTEN, NULL, NULL, NULL, NULL },
    { "TokenizersBackend", HS_TOKENIZER_AS_WRITTEN, NULL, NULL, NULL, NULL },
    { "GPT2Tokenizer", HS_TOKENIZER_GPT2, "<|endoftext|>", "<|endoftext|>", "<|endoftext|>", NULL },
    { "LlamaTokenizer", HS_TOKENIZER_LLAMA, "<s>", "</s>", "<unk>", NULL },
    { "Qwen2Tokenizer", HS_TOKENIZER_QWEN2, NULL, "<|endoftext|>", "<|endoftext|>", "<|endoftext|>" },
    { "GemmaTokenizer", HS_TOKENIZER_GEMMA, "<bos>", "<eos>", "<unk>", "<pad>" },
};

/* The class that belongs to a model type. */
static const struct {
    const char *model_type, *class;
} registered[] = {
    { "gpt2", "GPT2Tokenizer" },         { "mistral", "TokenizersBackend" }, { "ministral", "TokenizersBackend" },
    { "olmo2", "TokenizersBackend" },    { "olmo3", "TokenizersBackend" },   { "phi3", "TokenizersBackend" },
    { "granite", "TokenizersBackend" },  { "gemma2", "GemmaTokenizer" },     { "gemma3", "GemmaTokenizer" },
    { "gemma3_text", "GemmaTokenizer" }, { "qwen2", "Qwen2Tokenizer" },      { "qwen3", "Qwen2Tokenizer" },
};

static const char *registered_class(const char *model_type)
{
    for (size_t i = 0; i < sizeof registered / sizeof *registered; i++)
        if (strcmp(registered[i].model_type, model_type) == 0)
            return registered[i].class;
    return NULL;
}

/* Names of older releases end in Fast. */
static bool is_class(const char *name, const char *class)
{
    const size_t length = strlen(class);
    return strncmp(name, class, length) == 0 && (name[length] == '\0' || strcmp(name + length, "Fast") == 0);
}

static HsTokenizerClass class_of(const char *name)
{
    for (size_t i = 0; i < sizeof classes / sizeof *classes; i++)
        if (is_class(name, classes[i].name))
            return classes[i].class;
    return HS_TOKENIZER_OTHER;
}

/* AutoTokenizer's choice.  A byte-level tokenizer.json is taken as it is where Llama's class is named for it; model type
 * qwen2 has one class whatever is named, and those that are registered with the file have that. */
static HsTokenizerClass choose_class(const char *named, const char *model_type, const char *text)
{
    const char *const own = registered_class(model_type);
    const bool qwen2 = strcmp(model_type, "qwen2") == 0;
    const bool file = own && class_of(own) == HS_TOKENIZER_AS_WRITTEN;
    if (named[0] == '\0')
        return own ? class_of(own) : HS_TOKENIZER_AS_WRITTEN;
    if (file || (is_class(named, "LlamaTokenizer") && !qwen2 && strstr(text, "\"ByteLevel\"")))
        return HS_TOKENIZER_AS_WRITTEN;
    return qwen2 ? class_of(own) : class_of(named);
}

/* folder/name, where it is there; the root must be an object. */
static HsStatus read_object(const char *folder, const char *name, char **kept_path, HsJson **root)
{
    char *path = NULL;
    bool there = false;
    HS_TRY(hs_storage_join(folder, name, &path));
    HsStatus status = hs_path_exists(path, &there);
    if (status == HS_OK && there)
        status = hs_json_read_python(path, FILE_MAX_BYTES, root);
    if (status == HS_OK && there && !hs_json_is_object(*root))
        status = hs_fail(HS_EFORMAT, "%s: not a JSON object", path);
    if (kept_path)
        *kept_path = path;
    else
        free(path);
    return status;
}

static void keep_string(const HsJson *node, char *text, size_t size)
{
    if (hs_json_is_string(node))
        snprintf(text, size, "%s", hs_json_string(node));
}

static HsStatus check_options(const HsTokenizerFolder *folder)
{
    if (hs_json_is_true(hs_json_get(folder->config, "split_special_tokens")))
        return hs_fail(HS_EUNSUPPORTED,
                       "%s: split_special_tokens is true, which is not supported: set it to false, as special tokens "
                       "are one token each",
                       folder->config_path);
    /* What the library cannot open at all is no folder to read either. */
    static const char *const sides[] = { "padding_side", "truncation_side" };
    for (int i = 0; i < 2; i++) {
        const HsJson *const side = hs_json_get(folder->config, sides[i]);
        const char *const name = hs_json_string(side);
        if (side && !(name && (strcmp(name, "left") == 0 || strcmp(name, "right") == 0)))
            return hs_fail(HS_EFORMAT, "%s: %s must be left or right", folder->config_path, sides[i]);
    }
    const HsJson *const extras = hs_json_get(folder->config, "extra_special_tokens");
    const HsJson *const longest = hs_json_get(folder->config, "model_max_length");
    if (extras && !hs_json_is_null(extras) && !hs_json_is_array(extras) && !hs_json_is_object(extras))
        return hs_fail(HS_EFORMAT, "%s: extra_special_tokens must be a list of tokens, or an object of named ones",
                       folder->config_path);
    if (longest && !hs_json_is_null(longest) && !hs_json_is_number(longest))
        return hs_fail(HS_EFORMAT, "%s: model_max_length must be a number", folder->config_path);
    if (hs_json_get(folder->config, "fast_tokenizer_files"))
        return hs_fail(HS_EUNSUPPORTED,
                       "%s: fast_tokenizer_files names other files by release, which is not supported: keep "
                       "tokenizer.json alone and remove the key",
                       folder->config_path);
    return HS_OK;
}

HsStatus hs_tokenizer_folder_open(const char *tokenizer_json, const char *text, HsTokenizerFolder *folder)
{
    char *place = NULL;
    HsJson *model = NULL;
    *folder = (HsTokenizerFolder){ .end_id = -1 };
    HS_TRY(hs_storage_folder(tokenizer_json, &place));
    HsStatus status = read_object(place, "tokenizer_config.json", &folder->config_path, &folder->config);
    if (status == HS_OK)
        status = read_object(place, "special_tokens_map.json", NULL, &folder->special);
    if (status == HS_OK)
        status = read_object(place, "added_tokens.json", NULL, &folder->added);
    if (status == HS_OK)
        status = read_object(place, "config.json", NULL, &model);
    if (status == HS_OK)
        status = check_options(folder);
    if (status == HS_OK) {
        const double end = hs_json_number(hs_json_get(model, "eos_token_id"));
        keep_string(hs_json_get(model, "model_type"), folder->model_type, sizeof folder->model_type);
        keep_string(hs_json_get(model, "tokenizer_class"), folder->class_name, sizeof folder->class_name);
        keep_string(hs_json_get(folder->config, "tokenizer_class"), folder->class_name, sizeof folder->class_name);
        folder->class = choose_class(folder->class_name, folder->model_type, text);
        folder->end_id = end >= 0 && end < INT32_MAX ? (int64_t)end : -1;
    }
    hs_json_destroy(model);
    free(place);
    if (status != HS_OK)
        hs_tokenizer_folder_close(folder);
    return status;
}

void hs_tokenizer_folder_close(HsTokenizerFolder *folder)
{
    hs_json_destroy(folder->config);
    hs_json_destroy(folder->special);
    hs_json_destroy(folder->added);
    free(folder->config_path);
    *folder = (HsTokenizerFolder){ .end_id = -1 };
}

static const char *class_role(HsTokenizerClass class, const char *role)
{
    for (size_t i = 0; i < sizeof classes / sizeof *classes; i++)
        if (classes[i].class == class)
            return strcmp(role, "bos_token") == 0   ? classes[i].bos
                   : strcmp(role, "eos_token") == 0 ? classes[i].eos
                   : strcmp(role, "unk_token") == 0 ? classes[i].unk
                   : strcmp(role, "pad_token") == 0 ? classes[i].pad
                                                    : NULL;
    return NULL;
}

const HsJson *hs_tokenizer_folder_role(const HsTokenizerFolder *folder, const char *role, const char **fallback)
{
    const HsJson *const written = hs_json_get(folder->config, role);
    const HsJson *const mapped =
        hs_json_get(folder->config, "added_tokens_decoder") ? NULL : hs_json_get(folder->special, role);
    const HsJson *const token = mapped ? mapped : written;
    *fallback = token ? NULL : class_role(folder->class, role); /* null is said: none */
    return token && !hs_json_is_null(token) ? token : NULL;
}

const char *hs_token_content(const HsJson *token)
{
    return hs_json_string(hs_json_is_object(token) ? hs_json_get(token, "content") : token);
}

/* The folder with tokenizer.json's text, which the caller frees. */
static HsStatus open_with_text(const char *tokenizer_json, HsTokenizerFolder *folder, char **text)
{
    size_t length = 0;
    HS_TRY(hs_read_file(tokenizer_json, TOKENIZER_MAX_BYTES, text, &length));
    const HsStatus status = hs_tokenizer_folder_open(tokenizer_json, *text, folder);
    if (status != HS_OK)
        free(*text);
    return status;
}

HsStatus hs_tokenizer_folder_check(const char *tokenizer_json)
{
    HsTokenizerFolder folder;
    char *text = NULL;
    HsStatus status = HS_OK;
    HS_TRY(open_with_text(tokenizer_json, &folder, &text));
    if (folder.class == HS_TOKENIZER_OTHER)
        status = hs_fail(HS_EUNSUPPORTED,
                         "%s: tokenizer_class is %s, which makes its tokenizer in a way that is not known here; where "
                         "tokenizer.json is right as it stands, set it to PreTrainedTokenizerFast",
                         folder.config_path, folder.class_name);
    hs_tokenizer_folder_close(&folder);
    free(text);
    return status;
}

/* Whether tokenizer.json, without its folder, gives that token the part: the first of the usual names that it has. */
static bool is_usual_end(const char *text, const char *end)
{
    char written[32];
    for (int i = 0; hs_usual_ends_of_text[i]; i++) {
        snprintf(written, sizeof written, "\"%s\"", hs_usual_ends_of_text[i]);
        if (strstr(text, written))
            return strcmp(hs_usual_ends_of_text[i], end) == 0;
    }
    return false;
}

/* The text of a token by its number, among the added ones of tokenizer.json; the caller frees. */
static HsStatus token_with_id(const char *path, const char *text, int64_t id, char **found)
{
    HsJson *root = NULL;
    HS_TRY(hs_json_parse(path, text, strlen(text), &root));
    const HsJson *token = hs_json_first(hs_json_get(root, "added_tokens"));
    while (token && hs_json_number(hs_json_get(token, "id")) != (double)id)
        token = hs_json_next(token);
    const char *const content = hs_token_content(token);
    *found = content ? strdup(content) : NULL;
    const HsStatus status = content && !*found ? hs_fail(HS_ENOMEM, "%s: out of memory", path) : HS_OK;
    hs_json_destroy(root);
    return status;
}

static HsStatus find_end(const char *path, char **end)
{
    HsTokenizerFolder folder;
    char *text = NULL;
    const char *fallback;
    HsStatus status = HS_OK;
    *end = NULL;
    HS_TRY(open_with_text(path, &folder, &text));
    const char *content = hs_token_content(hs_tokenizer_folder_role(&folder, "eos_token", &fallback));
    content = content ? content : fallback;
    if (content && !is_usual_end(text, content)) {
        *end = strdup(content);
        status = *end ? HS_OK : hs_fail(HS_ENOMEM, "%s: out of memory", path);
    } else if (!content && folder.end_id >= 0) {
        status = token_with_id(path, text, folder.end_id, end);
        if (*end && is_usual_end(text, *end)) {
            free(*end);
            *end = NULL;
        }
    }
    hs_tokenizer_folder_close(&folder);
    free(text);
    return status;
}

HsStatus hs_config_adopt_end_of_text(HsConfig *config)
{
    const char *const path = config->tokenizer.path;
    bool there = false;
    char *end = NULL;
    if (!hs_is(config->tokenizer.kind, "bpe") || path[0] == '\0' || config->tokenizer.end_of_text[0] != '\0' ||
        hs_config_is_set(config, "tokenizer.end_of_text"))
        return HS_OK;
    HS_TRY(hs_path_exists(path, &there)); /* what is not there is said where it is needed */
    if (!there)
        return HS_OK;
    HsStatus status = find_end(path, &end);
    if (status == HS_OK && end) {
        const HsYaml scalar = { .kind = HS_YAML_SCALAR, .text = end };
        status = hs_config_value_set(hs_config_key_find("tokenizer", "end_of_text"), path, &scalar, config);
    }
    free(end);
    return status;
}
