/* SPDX-License-Identifier: MIT
 *
 * ggml's name for how a tokenizer cuts text before it merges (its pre-tokenizers, src/llama-vocab.cpp), and what a GGUF has
 * no words for.  A name stands for a fixed list of expressions, and for whether words that are tokens are taken whole;
 * nothing in front of it can change the text.
 *
 *     gpt-2       GPT-2's expression              qwen2       Qwen's
 *     smollm      single digits, then GPT-2's     smaug-bpe   Llama 3's;  llama-bpe: with words taken whole
 */
#include <string.h>

#include "runtime/commands/export_gguf.h"
#include "runtime/data/tokenizer/kind.h"
#include "runtime/io/utf8.h"

#define GPT2_EXPRESSION "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+"
#define LLAMA3_EXPRESSION                                                                           \
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[" \
    "\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
#define MEND "--format hf writes it as it is"

enum { STAGES_MOST = 8 };

/* The stages of a pre-tokenizer, or of a normalizer, one after another. */
typedef struct Stages {
    const HsJson *items[STAGES_MOST];
    int count; /* may be more than there is room for */
} Stages;

static const char *type_of(const HsJson *node)
{
    const char *const type = hs_json_string(hs_json_get(node, "type"));
    return type ? type : "";
}

static void flatten(const HsJson *node, const char *list, Stages *stages)
{
    if (!node || hs_json_is_null(node))
        return;
    if (strcmp(type_of(node), "Sequence") == 0) {
        for (const HsJson *item = hs_json_first(hs_json_get(node, list)); item; item = hs_json_next(item))
            flatten(item, list, stages);
        return;
    }
    if (stages->count < STAGES_MOST)
        stages->items[stages->count] = node;
    stages->count++;
}

static bool flag(const HsJson *node, const char *key, bool absent)
{
    const HsJson *value = hs_json_get(node, key);
    return value ? hs_json_is_true(value) : absent;
}

static bool is(const HsJson *node, const char *type)
{
    return strcmp(type_of(node), type) == 0;
}

/* The expression of a stage that leaves what it matches as pieces; NULL: another stage.  Each expression here matches
 * every character, so that removing what is between the matches removes nothing. */
static const char *expression_of(const HsJson *stage)
{
    const char *const behavior = hs_json_string(hs_json_get(stage, "behavior"));
    const bool inverted = flag(stage, "invert", false);
    if (!is(stage, "Split") || !behavior)
        return NULL;
    const bool isolates = strcmp(behavior, "Isolated") == 0 || (strcmp(behavior, "Removed") == 0 && inverted);
    return isolates ? hs_json_string(hs_json_get(hs_json_get(stage, "pattern"), "Regex")) : NULL;
}

/* What each name stands for, in the order of the stages: an expression, or single digits, then ByteLevel. */
static const char *name_of(const Stages *stages, bool whole)
{
    static const struct {
        const char *expression, *name, *name_whole;
    } rows[] = {
        { HS_QWEN_EXPRESSION, "qwen2", NULL },
        { LLAMA3_EXPRESSION, "smaug-bpe", "llama-bpe" },
        { GPT2_EXPRESSION, "gpt-2", NULL },
    };
    const HsJson *const first = stages->items[0], *const last = stages->items[stages->count - 1];
    const bool cuts = flag(last, "use_regex", true);
    if (stages->count == 1)
        return cuts && !whole ? "gpt-2" : NULL;
    if (stages->count != 2)
        return NULL;
    if (is(first, "Digits") && flag(first, "individual_digits", false))
        return cuts && !whole ? "smollm" : NULL;
    const char *const expression = expression_of(first);
    for (size_t i = 0; expression && !cuts && i < sizeof rows / sizeof rows[0]; i++)
        if (strcmp(rows[i].expression, expression) == 0)
            return whole ? rows[i].name_whole : rows[i].name;
    return NULL;
}

static HsStatus check_normalizer(const HsJson *root, const char *cut)
{
    Stages stages = { 0 };
    flatten(hs_json_get(root, "normalizer"), "normalizers", &stages);
    for (int i = 0; i < stages.count && i < STAGES_MOST; i++) {
        /* ggml's converter leaves it out as well: text is composed with few exceptions */
        if (is(stages.items[i], "NFC") && strcmp(cut, "qwen2") == 0)
            continue;
        return hs_fail(
            HS_EUNSUPPORTED,
            "tokenizer.json: the normalizer %.40s changes text before it is cut, which a GGUF cannot express, and "
            "programs that read it would not do: " MEND,
            type_of(stages.items[i]));
    }
    return HS_OK;
}

HsStatus hs_gguf_cut(const HsJson *root, const char **name)
{
    const HsJson *model = hs_json_get(root, "model");
    const bool merges = hs_json_count(hs_json_get(model, "merges")) > 0, whole = flag(model, "ignore_merges", false);
    Stages stages = { 0 };
    if (!is(hs_json_get(root, "decoder"), "ByteLevel"))
        return hs_fail(HS_EUNSUPPORTED,
                       "GGUF is written with byte-level tokenizers only (this one's decoder is another "
                       "kind): use --format hf");
    flatten(hs_json_get(root, "pre_tokenizer"), "pretokenizers", &stages);
    const HsJson *last = stages.count > 0 && stages.count <= STAGES_MOST ? stages.items[stages.count - 1] : NULL;
    if (!last || !is(last, "ByteLevel"))
        return hs_fail(HS_EUNSUPPORTED, "ggml has no name for the way in which this tokenizer cuts text (its "
                                        "pre_tokenizer does not end with ByteLevel): " MEND);
    if (flag(last, "add_prefix_space", true))
        return hs_fail(HS_EUNSUPPORTED, "tokenizer.json: ByteLevel's add_prefix_space puts a space in front of a text, "
                                        "which a GGUF cannot express for such tokenizers: " MEND);
    /* Without merges every cut gives the same tokens. */
    *name = !merges && !whole && stages.count == 1 ? "gpt-2" : name_of(&stages, whole);
    if (!*name && whole && name_of(&stages, false))
        return hs_fail(HS_EUNSUPPORTED,
                       "tokenizer.json: ignore_merges leaves words whole that are tokens, which ggml does "
                       "only with Llama 3's expression: " MEND);
    if (!*name)
        return hs_fail(HS_EUNSUPPORTED,
                       "ggml has no name for the way in which this tokenizer cuts text (%d stages, %.40s first): " MEND,
                       stages.count, type_of(stages.items[0]));
    return check_normalizer(root, *name);
}

/* Bytes that are no token: one library leaves characters out, the other bytes. */
static HsStatus check_bytes(const HsJson *vocabulary)
{
    for (int byte = 0; byte < 256; byte++) {
        char text[HS_UTF8_MAX_BYTES + 1];
        text[hs_utf8_encode(hs_byte_map_character((unsigned char)byte), text)] = '\0';
        if (!hs_json_get(vocabulary, text))
            return hs_fail(
                HS_EUNSUPPORTED,
                "tokenizer.json: no token for byte 0x%02X, which programs that read a GGUF would leave out of "
                "texts: " MEND,
                byte);
    }
    return HS_OK;
}

static const char *content_of(const HsJson *token)
{
    const char *const text = hs_json_string(hs_json_get(token, "content"));
    return text ? text : "";
}

static bool is_run_of_one(const char *text)
{
    return strspn(text, (char[]){ text[0], '\0' }) == strlen(text);
}

/* Where an end of `one` begins `other`, a longer token: here the first in the text is taken, by ggml the longest. */
static bool overlap(const char *one, const char *other)
{
    const size_t length = strlen(one);
    if (length == 0 || strlen(other) <= length || is_run_of_one(other))
        return false;
    for (size_t from = 1; from < length; from++)
        if (strncmp(one + from, other, length - from) == 0)
            return true;
    return false;
}

static HsStatus check_added(const HsJson *added)
{
    static const char *const flags[] = { "lstrip", "rstrip", "single_word" };
    for (const HsJson *token = hs_json_first(added); token; token = hs_json_next(token)) {
        for (size_t i = 0; i < sizeof flags / sizeof *flags; i++)
            if (flag(token, flags[i], false))
                return hs_fail(HS_EUNSUPPORTED,
                               "tokenizer.json: added token `%.40s` has %s, which a GGUF cannot express: " MEND,
                               content_of(token), flags[i]);
        for (const HsJson *other = hs_json_first(added); other; other = hs_json_next(other))
            if (overlap(content_of(token), content_of(other)))
                return hs_fail(
                    HS_EUNSUPPORTED,
                    "tokenizer.json: the added tokens `%.40s` and `%.40s` overlap in texts, where ggml takes the "
                    "longer and not the first: " MEND,
                    content_of(token), content_of(other));
    }
    return HS_OK;
}

bool hs_gguf_ends_by_name(const char *text, size_t length)
{
    static const char *const names[] = { "<|eot_id|>", "<|im_end|>", "<|end|>", "<end_of_turn>",  "<|endoftext|>",
                                         "<|eom_id|>", "<EOT>",      "_<EOT>",  "<|end_of_text|>" };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strlen(names[i]) == length && memcmp(names[i], text, length) == 0)
            return true;
    return false;
}

static bool is_added(const HsJson *added, const char *text)
{
    for (const HsJson *token = hs_json_first(added); token; token = hs_json_next(token))
        if (strcmp(content_of(token), text) == 0)
            return true;
    return false;
}

/* Such a text is a token wherever it stands in a text, for llama.cpp. */
static HsStatus check_names(const HsJson *vocabulary, const HsJson *added)
{
    for (const HsJson *entry = hs_json_first(vocabulary); entry; entry = hs_json_next(entry)) {
        const char *const text = hs_json_key(entry);
        if (hs_gguf_ends_by_name(text, strlen(text)) && !is_added(added, text))
            return hs_fail(
                HS_EUNSUPPORTED,
                "tokenizer.json: `%.40s` is a word here and no added token, and llama.cpp takes it for the end of "
                "a text: " MEND,
                text);
    }
    return HS_OK;
}

HsStatus hs_gguf_check_tokens(const HsJson *root)
{
    const HsJson *vocabulary = hs_json_get(hs_json_get(root, "model"), "vocab");
    HS_TRY(check_bytes(vocabulary));
    HS_TRY(check_names(vocabulary, hs_json_get(root, "added_tokens")));
    return check_added(hs_json_get(root, "added_tokens"));
}
