/* SPDX-License-Identifier: MIT
 *
 * Pre-tokenizing by PCRE2 (the only file that includes it); see pretokenize.h.
 *
 * tokenizer.json's expressions are written for Oniguruma.  PCRE2 reads most of them alike; what it reads differently is
 * translated (\s) or refused (check_pattern).  Text is checked to be UTF-8 before it comes here.
 */
#include "runtime/data/pretokenize.h"

#include <stdlib.h>
#include <string.h>

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include "runtime/data/pretokenize_pattern.h"
#include "runtime/utf8.h"

enum { MAX_STAGES = 8, JIT_STACK_FIRST = 32 << 10, JIT_STACK_MAX = 8 << 20 };

typedef struct Stage {
    pcre2_code *code;  /* NULL: nothing is cut */
    bool prefix_space; /* put a space before what does not begin with one */
} Stage;

struct HsPretokenizer {
    Stage stages[MAX_STAGES];
    int stage_count;
    pcre2_code *not_nfc; /* matches text that NFC might change; NULL: no normalizer */
};

/* Compile into *code; `what` names the expression in messages. */
static HsStatus compile(const char *name, const char *what, const char *pattern, pcre2_code **code)
{
    int error;
    PCRE2_SIZE offset;
    uint32_t options = PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE; /* ^ and $ are always per line in Oniguruma */
    *code = pcre2_compile((PCRE2_SPTR)pattern, PCRE2_ZERO_TERMINATED, options, &error, &offset, NULL);
    if (!*code) {
        PCRE2_UCHAR message[128];
        pcre2_get_error_message(error, message, sizeof message);
        return hs_fail(HS_EUNSUPPORTED, "%s: %s: %s at character %zu of the expression", name, what,
                       (const char *)message, offset);
    }
    uint32_t matches_empty = 0;
    pcre2_pattern_info(*code, PCRE2_INFO_MATCHEMPTY, &matches_empty);
    if (matches_empty)
        return hs_fail(HS_EUNSUPPORTED, "%s: %s: an expression that can match nothing is not supported", name, what);
    /* Where the machine has no JIT the interpreter gives the same matches, only later. */
    (void)pcre2_jit_compile(*code, PCRE2_JIT_COMPLETE);
    return HS_OK;
}

/* One row per kind of pre-tokenizer that is honoured; `pattern` NULL: the node's own settings decide. */
static HsStatus add_stage(HsPretokenizer *pretokenizer, const char *name, const char *what, const char *pattern,
                          bool prefix_space)
{
    if (pretokenizer->stage_count == MAX_STAGES)
        return hs_fail(HS_EUNSUPPORTED, "%s: pre_tokenizer: more than %d stages are not supported", name, MAX_STAGES);
    Stage *stage = &pretokenizer->stages[pretokenizer->stage_count++];
    stage->prefix_space = prefix_space;
    return pattern ? compile(name, what, pattern, &stage->code) : HS_OK;
}

/* A boolean member, or what Hugging Face takes when it is absent. */
static bool flag(const HsJson *node, const char *key, bool absent)
{
    const HsJson *member = hs_json_get(node, key);
    return member ? hs_json_is_true(member) : absent;
}

static HsStatus add_byte_level(HsPretokenizer *pretokenizer, const char *name, const HsJson *node)
{
    const char *pattern = flag(node, "use_regex", true) ? HS_PATTERN_GPT2 : NULL;
    return add_stage(pretokenizer, name, "ByteLevel", pattern, flag(node, "add_prefix_space", true));
}

static HsStatus add_split(HsPretokenizer *pretokenizer, const char *name, const HsJson *node)
{
    const HsJson *pattern = hs_json_get(node, "pattern");
    const char *regex = hs_json_string(hs_json_get(pattern, "Regex"));
    const char *behavior = hs_json_string(hs_json_get(node, "behavior"));
    if (!regex)
        return hs_fail(HS_EUNSUPPORTED, "%s: pre_tokenizer Split: only a pattern of kind Regex is supported", name);
    /* Isolated keeps matches and gaps as pieces, so that `invert` changes nothing. */
    if (!behavior || strcmp(behavior, "Isolated") != 0)
        return hs_fail(HS_EUNSUPPORTED, "%s: pre_tokenizer Split: behavior %.40s is not supported, only Isolated", name,
                       behavior ? behavior : "(none)");
    char *translated;
    HS_TRY(hs_pattern_translate(name, regex, &translated));
    HsStatus status = add_stage(pretokenizer, name, "pre_tokenizer Split", translated, false);
    free(translated);
    return status;
}

static HsStatus add_digits(HsPretokenizer *pretokenizer, const char *name, const HsJson *node)
{
    return add_stage(pretokenizer, name, "Digits", flag(node, "individual_digits", false) ? "\\p{N}" : "\\p{N}+",
                     false);
}

static const struct {
    const char *type;
    HsStatus (*add)(HsPretokenizer *pretokenizer, const char *name, const HsJson *node);
} pre_tokenizer_types[] = {
    { "ByteLevel", add_byte_level },
    { "Split", add_split },
    { "Digits", add_digits },
};

static HsStatus add_pre_tokenizer(HsPretokenizer *pretokenizer, const char *name, const HsJson *node, bool last)
{
    const char *type = hs_json_string(hs_json_get(node, "type"));
    if (!type)
        return hs_fail(HS_EFORMAT, "%s: pre_tokenizer: member `type` is missing", name);
    bool byte_level = strcmp(type, "ByteLevel") == 0;
    /* After ByteLevel the text is no longer text: a further stage would see mapped bytes. */
    if (byte_level != last)
        return hs_fail(HS_EUNSUPPORTED, "%s: pre_tokenizer %.40s: ByteLevel must come once, and last", name, type);
    for (size_t i = 0; i < sizeof pre_tokenizer_types / sizeof pre_tokenizer_types[0]; i++)
        if (strcmp(pre_tokenizer_types[i].type, type) == 0)
            return pre_tokenizer_types[i].add(pretokenizer, name, node);
    return hs_fail(HS_EUNSUPPORTED,
                   "%s: pre_tokenizer %.40s is not supported; ByteLevel, Split, Digits and Sequence are", name, type);
}

static HsStatus add_pre_tokenizers(HsPretokenizer *pretokenizer, const char *name, const HsJson *node)
{
    const char *type = hs_json_string(hs_json_get(node, "type"));
    if (!type)
        return hs_fail(HS_EUNSUPPORTED, "%s: there is no pre_tokenizer; only byte-level ones are supported", name);
    if (strcmp(type, "Sequence") != 0)
        return add_pre_tokenizer(pretokenizer, name, node, true);
    const HsJson *list = hs_json_get(node, "pretokenizers");
    if (!hs_json_is_array(list) || hs_json_count(list) == 0)
        return hs_fail(HS_EFORMAT, "%s: pre_tokenizer Sequence: member `pretokenizers` must be a list", name);
    for (const HsJson *item = hs_json_first(list); item; item = hs_json_next(item))
        HS_TRY(add_pre_tokenizer(pretokenizer, name, item, hs_json_next(item) == NULL));
    return HS_OK;
}

/* null, or NFC, which is honoured by refusing text that it might change. */
static HsStatus add_normalizer(HsPretokenizer *pretokenizer, const char *name, const HsJson *node)
{
    if (!node || !hs_json_is_object(node))
        return HS_OK;
    const char *type = hs_json_string(hs_json_get(node, "type"));
    if (!type || strcmp(type, "NFC") != 0)
        return hs_fail(HS_EUNSUPPORTED, "%s: normalizer %.40s is not supported, only NFC", name,
                       type ? type : "(none)");
    return compile(name, "NFC", HS_PATTERN_NOT_NFC, &pretokenizer->not_nfc);
}

HsStatus hs_pretokenizer_create(const char *name, const HsJson *normalizer, const HsJson *pre_tokenizer,
                                HsPretokenizer **pretokenizer)
{
    *pretokenizer = calloc(1, sizeof **pretokenizer);
    if (!*pretokenizer)
        return hs_fail(HS_ENOMEM, "%s: out of memory", name);
    HsStatus status = add_normalizer(*pretokenizer, name, normalizer);
    if (status == HS_OK)
        status = add_pre_tokenizers(*pretokenizer, name, pre_tokenizer);
    if (status != HS_OK) {
        hs_pretokenizer_destroy(*pretokenizer);
        *pretokenizer = NULL;
    }
    return status;
}

HsStatus hs_pretokenizer_create_gpt2(HsPretokenizer **pretokenizer)
{
    *pretokenizer = calloc(1, sizeof **pretokenizer);
    if (!*pretokenizer)
        return hs_fail(HS_ENOMEM, "out of memory while making a pre-tokenizer");
    HsStatus status = add_stage(*pretokenizer, "GPT-2", "ByteLevel", HS_PATTERN_GPT2, false);
    if (status != HS_OK) {
        hs_pretokenizer_destroy(*pretokenizer);
        *pretokenizer = NULL;
    }
    return status;
}

void hs_pretokenizer_destroy(HsPretokenizer *pretokenizer)
{
    if (!pretokenizer)
        return;
    for (int i = 0; i < pretokenizer->stage_count; i++)
        pcre2_code_free(pretokenizer->stages[i].code);
    pcre2_code_free(pretokenizer->not_nfc);
    free(pretokenizer);
}

/* What one call of split needs; a thread has its own. */
typedef struct Split {
    const HsPretokenizer *pretokenizer;
    HsPieceFunction *take;
    void *context;
    pcre2_match_data *match[MAX_STAGES + 1]; /* one a stage, the last for not_nfc */
    pcre2_match_context *match_context;
    pcre2_jit_stack *jit_stack;
} Split;

/* Find the first match at or after `from` -> *start, *end; *start = length when there is none. */
static HsStatus find_match(Split *split, int stage, const pcre2_code *code, const char *text, size_t length,
                           size_t from, size_t *start, size_t *end)
{
    int result = pcre2_match(code, (PCRE2_SPTR)text, length, from, PCRE2_NO_UTF_CHECK, split->match[stage],
                             split->match_context);
    if (result == PCRE2_ERROR_NOMATCH) {
        *start = *end = length;
        return HS_OK;
    }
    if (result < 0) {
        PCRE2_UCHAR message[128];
        pcre2_get_error_message(result, message, sizeof message);
        return hs_fail(HS_EUNSUPPORTED, "tokenizer: the pre-tokenizer's expression fails on this text: %s",
                       (const char *)message);
    }
    const PCRE2_SIZE *range = pcre2_get_ovector_pointer(split->match[stage]);
    *start = range[0];
    *end = range[1];
    return HS_OK;
}

static HsStatus run_stage(Split *split, int stage, const char *text, size_t length);

/* The same stage on " " + text. */
static HsStatus run_prefixed(Split *split, int stage, const char *text, size_t length)
{
    char *copy = malloc(length + 1);
    if (!copy)
        return hs_fail(HS_ENOMEM, "out of memory while tokenizing");
    copy[0] = ' ';
    memcpy(copy + 1, text, length);
    HsStatus status = run_stage(split, stage, copy, length + 1);
    free(copy);
    return status;
}

static HsStatus run_stage(Split *split, int stage, const char *text, size_t length)
{
    if (length == 0)
        return HS_OK;
    if (stage == split->pretokenizer->stage_count)
        return split->take(split->context, text, length);
    const Stage *row = &split->pretokenizer->stages[stage];
    if (row->prefix_space && text[0] != ' ')
        return run_prefixed(split, stage, text, length);
    if (!row->code)
        return run_stage(split, stage + 1, text, length);
    for (size_t at = 0; at < length;) {
        size_t start, end;
        HS_TRY(find_match(split, stage, row->code, text, length, at, &start, &end));
        HS_TRY(run_stage(split, stage + 1, text + at, start - at)); /* the gap before the match */
        HS_TRY(run_stage(split, stage + 1, text + start, end - start));
        at = end;
    }
    return HS_OK;
}

static HsStatus check_nfc(Split *split, const char *text, size_t length, size_t offset)
{
    if (!split->pretokenizer->not_nfc)
        return HS_OK;
    size_t start, end;
    HS_TRY(find_match(split, MAX_STAGES, split->pretokenizer->not_nfc, text, length, 0, &start, &end));
    if (start == length)
        return HS_OK;
    uint32_t character = 0;
    hs_utf8_decode(text + start, length - start, &character);
    return hs_fail(HS_EUNSUPPORTED,
                   "byte %zu: the tokenizer's normalizer NFC might change the text at U+%04X; composing characters is "
                   "not supported",
                   offset + start, (unsigned)character);
}

static HsStatus prepare(Split *split)
{
    split->match_context = pcre2_match_context_create(NULL);
    split->jit_stack = pcre2_jit_stack_create(JIT_STACK_FIRST, JIT_STACK_MAX, NULL);
    bool made = split->match_context && split->jit_stack;
    for (int i = 0; i <= MAX_STAGES && made; i++) {
        split->match[i] = pcre2_match_data_create(1, NULL); /* the whole match only */
        made = split->match[i] != NULL;
    }
    if (!made)
        return hs_fail(HS_ENOMEM, "out of memory while tokenizing");
    pcre2_jit_stack_assign(split->match_context, NULL, split->jit_stack);
    return HS_OK;
}

/* Runs of characters go through the stages; runs of other bytes are pieces as they are. */
static HsStatus split_runs(Split *split, const char *text, size_t length)
{
    for (size_t at = 0; at < length;) {
        size_t valid = hs_utf8_valid_prefix(text + at, length - at);
        HS_TRY(check_nfc(split, text + at, valid, at));
        HS_TRY(run_stage(split, 0, text + at, valid));
        at += valid;
        size_t other = 0;
        while (at + other < length && hs_utf8_decode(text + at + other, length - at - other, NULL) == 0)
            other++;
        if (other > 0)
            HS_TRY(split->take(split->context, text + at, other));
        at += other;
    }
    return HS_OK;
}

HsStatus hs_pretokenizer_split(const HsPretokenizer *pretokenizer, const char *text, size_t length,
                               HsPieceFunction *take, void *context)
{
    Split split = { .pretokenizer = pretokenizer, .take = take, .context = context };
    HsStatus status = prepare(&split);
    if (status == HS_OK)
        status = split_runs(&split, text, length);
    for (int i = 0; i <= MAX_STAGES; i++)
        pcre2_match_data_free(split.match[i]);
    pcre2_jit_stack_free(split.jit_stack);
    pcre2_match_context_free(split.match_context);
    return status;
}
