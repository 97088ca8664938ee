/* SPDX-License-Identifier: MIT
 *
 * See chat_template.h.  The hash is of the text without one newline at its end, which Jinja takes off too.
 */
#include "runtime/config/chat_template.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/config/table.h"
#include "runtime/io/files.h"
#include "runtime/io/json.h"
#include "runtime/io/storage.h"

enum { TEMPLATE_MAX_BYTES = 64 << 20 };

#define NAMES                                                                                                      \
    "chatml, qwen2, qwen2.5, llama3, llama3.1, alpaca, gemma, gemma2, smollm3, phi3, phi3.5, phi4-mini, granite, " \
    "granite3.0, mistral-v3, mistral-nemo, ministral or mistral-v7-tekken"

/* Published texts, and what they are. */
static const struct {
    uint64_t hash;
    const char *name; /* NULL: known, and not rendered here */
    const char *why;
} known[] = {
    { UINT64_C(0x7b60edb389081320), "alpaca", NULL },
    { UINT64_C(0x0d7556943573451f), "alpaca", NULL },
    { UINT64_C(0x846f9032c2079ea2), "chatml", NULL },
    { UINT64_C(0xda206a9e46a4ac01), "chatml", NULL },
    { UINT64_C(0x4c6e807ee5fe9f4a), "chatml", NULL },
    { UINT64_C(0x0dc424dc4184f4f7), "chatml", NULL },
    { UINT64_C(0xa08fd601bd36ae4d), "chatml", NULL },
    { UINT64_C(0x8fb5d937b1e8f5d0), "chatml", NULL },
    { UINT64_C(0xc9e0155c80737cf2), NULL, "moves and adds thoughts (Qwen3)" },
    { UINT64_C(0xa04f41d813a07b13), "chatml", NULL },
    { UINT64_C(0x866fc8fa50da12fe), "llama3", NULL },
    { UINT64_C(0x6ca7779b7730196a), "llama3.1", NULL },
    { UINT64_C(0xc3d57e38f5ff0756), NULL,
      "is dated with the day on which it is rendered (Llama 3.2), so that no run could be repeated" },
    { UINT64_C(0x9799ad6e2dea0594), "llama3", NULL },
    { UINT64_C(0xc79034a9d5f0ae58), "qwen2", NULL },
    { UINT64_C(0x2469c9508f79506e), "qwen2.5", NULL },
    { UINT64_C(0xd5d943bd0bd9082f), "qwen2", NULL },
    { UINT64_C(0xd9c620dcaf86f38d), "gemma", NULL },
    { UINT64_C(0x2c2e86beabccd2a4), "gemma2", NULL },
    { UINT64_C(0xa7378c92fb95c56c), "smollm3", NULL },
    { UINT64_C(0x82fc89c04c54ba66), "phi3", NULL },
    { UINT64_C(0xcd8aff863abd4554), "phi3.5", NULL },
    { UINT64_C(0x874eeb59684ce46e), NULL, "leaves out system messages (the first Phi-3)" },
    { UINT64_C(0x1c0680782a7c9316), "phi4-mini", NULL },
    { UINT64_C(0xad20145afdf4bf61), "granite3.0", NULL },
    { UINT64_C(0xcfd8ed9072b4cd0f), "granite", NULL },
    { UINT64_C(0xb20bed472a0b8eee), "granite", NULL },
    { UINT64_C(0x4b313ff2b8746170), "granite", NULL },
    { UINT64_C(0x3ecf25733ce105a3), "granite", NULL },
    { UINT64_C(0x40b3d5c4a9c13a19), "mistral-v3", NULL },
    { UINT64_C(0xcae647ce0048756b), "mistral-nemo", NULL },
    { UINT64_C(0xdf21de3e409ecb0c), "ministral", NULL },
    { UINT64_C(0x6a6adf55847af499), "mistral-nemo", NULL },
    { UINT64_C(0x027d8089e930e157), "mistral-v7-tekken", NULL },
    { UINT64_C(0xdf8ea8c96e21d4e6), "mistral-v7-tekken", NULL },
    /* What an export of ours has (runtime/data/source/chat_program.c). */
    { UINT64_C(0xb2855e7bc0c8d324), "alpaca", NULL },
    { UINT64_C(0xfd60a58cb59c4aae), "alpaca", NULL },
    { UINT64_C(0xd9dfe996215b5ff8), "chatml", NULL },
    { UINT64_C(0x2d603647cf430870), "llama3", NULL },
    { UINT64_C(0x4bf25383512dae8d), "llama3.1", NULL },
    { UINT64_C(0x6aad140bda4570fa), "qwen2", NULL },
    { UINT64_C(0x634542227e27be50), "qwen2.5", NULL }, /* of versions that rendered no tools, as llama3.1 above */
    { UINT64_C(0x35c0cd61e786fa05), "qwen2.5", NULL },
    { UINT64_C(0x893b414fbbe89688), "llama3.1", NULL },
    { UINT64_C(0xac9761ac3be2e79c), "gemma", NULL },
    { UINT64_C(0xe6bd8e5d10316b7d), "gemma2", NULL },
    { UINT64_C(0xc16f8f3380d48262), "smollm3", NULL },
    { UINT64_C(0xccbd2e0c81bb4cd7), "phi3", NULL },
    { UINT64_C(0x202a929487451588), "phi3.5", NULL },
    { UINT64_C(0xf4043df0e569510f), "phi4-mini", NULL },
    { UINT64_C(0x623c3cebf2c3a6fd), "granite3.0", NULL },
    { UINT64_C(0x4e30b3964bf9d409), "granite", NULL },
    { UINT64_C(0x1bdc574c6ca0e756), "mistral-v3", NULL },
    { UINT64_C(0xc2ee6befa908d889), "mistral-nemo", NULL },
    { UINT64_C(0x5840177a91369dfc), "ministral", NULL },
    { UINT64_C(0x5fdb8642df5459b6), "mistral-v7-tekken", NULL },
};

typedef struct Found {
    char *path;       /* of the file that has a template; NULL: none */
    const char *name; /* NULL: not known */
    const char *why;  /* of one that is known and not rendered */
    uint64_t hash;
} Found;

static void identify(const char *text, size_t length, Found *found)
{
    length -= length > 0 && text[length - 1] == '\n';
    found->hash = hs_storage_hash(text, length);
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (known[i].hash == found->hash) {
            found->name = known[i].name;
            found->why = known[i].why;
        }
}

const char *hs_chat_template_known(const char *program)
{
    Found found = { 0 };
    identify(program, strlen(program), &found);
    return found.name;
}

/* A string, or the one called default of a list of named ones. */
static const char *template_of(const HsJson *about)
{
    const HsJson *node = hs_json_get(about, "chat_template");
    if (!hs_json_is_array(node))
        return hs_json_string(node);
    for (const HsJson *item = hs_json_first(node); item; item = hs_json_next(item)) {
        const char *const name = hs_json_string(hs_json_get(item, "name"));
        if (name && strcmp(name, "default") == 0)
            return hs_json_string(hs_json_get(item, "template"));
    }
    return NULL;
}

/* folder/name, where it is there and holds a template; found->path is the caller's then. */
static HsStatus look(const char *folder, const char *name, bool is_json, Found *found)
{
    char *path = NULL, *text = NULL;
    size_t length = 0;
    bool there = false;
    HsJson *about = NULL;
    HS_TRY(hs_storage_join(folder, name, &path));
    HsStatus status = hs_path_exists(path, &there);
    if (status == HS_OK && there)
        status = hs_read_file(path, TEMPLATE_MAX_BYTES, &text, &length);
    if (status == HS_OK && there && is_json)
        status = hs_json_parse_python(path, text, length, &about);
    const char *const program = is_json ? template_of(about) : text;
    if (status == HS_OK && program) {
        identify(program, is_json ? strlen(program) : length, found);
        found->path = path;
        path = NULL;
    }
    hs_json_destroy(about);
    free(text);
    free(path);
    return status;
}

/* transformers takes chat_template.jinja before the key. */
static HsStatus find(const char *tokenizer_path, Found *found)
{
    char *folder;
    *found = (Found){ 0 };
    HS_TRY(hs_storage_folder(tokenizer_path, &folder));
    HsStatus status = look(folder, "chat_template.jinja", false, found);
    if (status == HS_OK && !found->path)
        status = look(folder, "tokenizer_config.json", true, found);
    free(folder);
    return status;
}

const char *hs_chat_template_beside(const char *tokenizer_path)
{
    Found found = { 0 };
    const char *name = NULL;
    if (tokenizer_path[0] != '\0' && find(tokenizer_path, &found) == HS_OK)
        name = found.name;
    free(found.path);
    return name ? name : HS_CHAT_TEMPLATE_AUTO;
}

HsStatus hs_chat_template_explain(const char *place, const char *tokenizer_path)
{
    Found found = { 0 };
    HsStatus status = HS_OK;
    if (tokenizer_path[0] != '\0')
        status = find(tokenizer_path, &found);
    if (status != HS_OK)
        return hs_error_prefix(status, "%s: a conversation needs its template", place);
    if (!found.path)
        return hs_fail(HS_ECONFIG,
                       "%s: a conversation needs a chat template, and none is next to the tokenizer: name one as "
                       "tokenizer.chat_template: " NAMES,
                       place);
    if (found.why)
        status = hs_fail(HS_ECONFIG,
                         "%s: a conversation, and %s has a chat template that %s; name another as "
                         "tokenizer.chat_template: " NAMES,
                         place, found.path, found.why);
    else
        status = hs_fail(HS_ECONFIG,
                         "%s: a conversation, and the chat template of %s (XXH3 %016" PRIx64
                         ") is not one that is known; if it renders as one of these does, name that as "
                         "tokenizer.chat_template: " NAMES,
                         place, found.path, found.hash);
    free(found.path);
    return status;
}

HsStatus hs_config_adopt_chat_template(HsConfig *config)
{
    HsYaml *node = NULL;
    if (strcmp(config->tokenizer.chat_template, HS_CHAT_TEMPLATE_AUTO) != 0)
        return HS_OK;
    const char *const name = hs_chat_template_beside(config->tokenizer.path);
    HS_TRY(hs_yaml_parse_value(name, &node));
    HsStatus status = hs_config_value_set(hs_config_key_find("tokenizer", "chat_template"), NULL, node, config);
    hs_yaml_destroy(node);
    return status;
}
