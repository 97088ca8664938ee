/* SPDX-License-Identifier: MIT
 *
 * tokenizer.json's `pre_tokenizer` -> stages.  One row of the table per type that is honoured.
 */
#include <stdio.h>

#include "runtime/data/tokenizer/members.h"
#include "runtime/data/tokenizer/pretokenize_stage.h"

enum { MAX_DEPTH = 8 };

typedef struct Loading {
    HsPretokenizer *pretokenizer;
    const char *name;
    char where[256]; /* file and type, as messages begin */
} Loading;

static HsStatus add_stage(Loading *loading, HsStage **stage)
{
    HsPretokenizer *pretokenizer = loading->pretokenizer;
    if (pretokenizer->stage_count == HS_MAX_STAGES)
        return hs_fail(HS_EUNSUPPORTED, "%s: pre_tokenizer: more than %d stages are not supported", loading->name,
                       HS_MAX_STAGES);
    *stage = &pretokenizer->stages[pretokenizer->stage_count++];
    return HS_OK;
}

static HsStatus add_expression(Loading *loading, const char *expression, HsSplitBehavior behavior)
{
    HsStage *stage = NULL;
    HS_TRY(add_stage(loading, &stage));
    stage->behavior = behavior;
    return hs_pattern_create(loading->where, expression, &stage->pattern);
}

static HsStatus read_behavior(const Loading *loading, const HsJson *node, HsSplitBehavior *behavior)
{
    static const char *const names[] = { "Isolated", "Removed", "MergedWithPrevious", "MergedWithNext", "Contiguous" };
    const char *name;
    HS_TRY(hs_json_need_string(loading->where, node, "behavior", &name));
    for (int i = 0; i <= HS_SPLIT_CONTIGUOUS; i++)
        if (strcmp(names[i], name) == 0) {
            *behavior = (HsSplitBehavior)i;
            return HS_OK;
        }
    return hs_fail(HS_EFORMAT,
                   "%s: there is no behavior %.40s; there are Isolated, Removed, MergedWithPrevious, MergedWithNext "
                   "and Contiguous",
                   loading->where, name);
}

static HsStatus add_byte_level(Loading *loading, const HsJson *node)
{
    bool prefix, regex, trim;
    HsStage *stage = NULL;
    HS_TRY(hs_member_flag(loading->where, node, "add_prefix_space", true, &prefix));
    HS_TRY(hs_member_flag(loading->where, node, "use_regex", true, &regex));
    HS_TRY(hs_member_flag(loading->where, node, "trim_offsets", true, &trim)); /* moves offsets only */
    HS_TRY(add_stage(loading, &stage));
    stage->prefix = prefix ? HS_PREFIX_ALWAYS : HS_PREFIX_NEVER;
    stage->space[0] = ' ';
    loading->pretokenizer->byte_level = true;
    if (!regex)
        return HS_OK;
    stage->ascii = hs_ascii_match_gpt2;
    return hs_pattern_create(loading->where, HS_PATTERN_GPT2, &stage->pattern);
}

static HsStatus add_split(Loading *loading, const HsJson *node)
{
    HsStage *stage = NULL;
    HS_TRY(add_stage(loading, &stage));
    HS_TRY(read_behavior(loading, node, &stage->behavior));
    HS_TRY(hs_member_flag(loading->where, node, "invert", false, &stage->invert));
    const char *const expression = hs_json_string(hs_json_get(hs_json_get(node, "pattern"), "Regex"));
    stage->ascii = expression ? hs_ascii_match_find(expression) : NULL;
    return hs_pattern_parse(loading->where, hs_json_get(node, "pattern"), &stage->pattern);
}

static HsStatus add_digits(Loading *loading, const HsJson *node)
{
    bool individual;
    HS_TRY(hs_member_flag(loading->where, node, "individual_digits", false, &individual));
    HS_TRY(add_expression(loading, individual ? "[\\p{N}" HS_NEW_DIGITS "]" : "[\\p{N}" HS_NEW_DIGITS "]+",
                          HS_SPLIT_ISOLATED));
    loading->pretokenizer->stages[loading->pretokenizer->stage_count - 1].one_character = individual;
    return HS_OK;
}

static HsStatus add_punctuation(Loading *loading, const HsJson *node)
{
    HsSplitBehavior behavior = HS_SPLIT_ISOLATED;
    char expression[1024];
    if (hs_json_get(node, "behavior"))
        HS_TRY(read_behavior(loading, node, &behavior));
    /* ASCII's are all of them, also those of category S. */
    snprintf(expression, sizeof expression, "[$+<=>^`|~\\x{166D}\\x{111C9}]|(?![%s])\\p{P}", hs_not_punctuation);
    HS_TRY(add_expression(loading, expression, behavior));
    hs_pattern_match_as_written(loading->pretokenizer->stages[loading->pretokenizer->stage_count - 1].pattern);
    return HS_OK;
}

/* Words, and runs of what is neither word nor space. */
static HsStatus add_whitespace(Loading *loading, const HsJson *node)
{
    (void)node;
    HS_TRY(add_expression(loading, HS_SPACE "+", HS_SPLIT_REMOVED));
    return add_expression(loading, "[" HS_WORD_CLASS "\\x{200C}\\x{200D}]+", HS_SPLIT_ISOLATED);
}

static HsStatus add_whitespace_split(Loading *loading, const HsJson *node)
{
    (void)node;
    return add_expression(loading, HS_SPACE "+", HS_SPLIT_REMOVED);
}

static HsStatus add_delimiter(Loading *loading, const HsJson *node)
{
    const char *delimiter;
    HsStage *stage = NULL;
    HS_TRY(hs_member_character(loading->where, node, "delimiter", &delimiter));
    HS_TRY(add_stage(loading, &stage));
    stage->behavior = HS_SPLIT_REMOVED;
    return hs_pattern_create_literal(loading->where, delimiter, &stage->pattern);
}

static HsStatus add_metaspace(Loading *loading, const HsJson *node)
{
    const char *replacement;
    bool split;
    HsStage *stage = NULL;
    HS_TRY(hs_member_character(loading->where, node, "replacement", &replacement));
    HS_TRY(hs_member_flag(loading->where, node, "split", true, &split));
    HS_TRY(add_stage(loading, &stage));
    HS_TRY(hs_member_scheme(loading->where, node, &stage->prefix));
    snprintf(stage->space, sizeof stage->space, "%s", replacement);
    stage->replace_spaces = true;
    stage->behavior = HS_SPLIT_WITH_NEXT;
    return split ? hs_pattern_create_literal(loading->where, replacement, &stage->pattern) : HS_OK;
}

static const struct {
    const char *type;
    HsStatus (*add)(Loading *loading, const HsJson *node);
    const char *members;
} types[] = {
    { "ByteLevel", add_byte_level, "type add_prefix_space trim_offsets use_regex " },
    { "Split", add_split, "type pattern behavior invert " },
    { "Digits", add_digits, "type individual_digits " },
    { "Punctuation", add_punctuation, "type behavior " },
    { "Whitespace", add_whitespace, "type " },
    { "WhitespaceSplit", add_whitespace_split, "type " },
    { "CharDelimiterSplit", add_delimiter, "type delimiter " },
    /* str_rep: what older files called `replacement`, written next to it. */
    { "Metaspace", add_metaspace, "type replacement add_prefix_space prepend_scheme split str_rep " },
};

static HsStatus add(Loading *loading, const HsJson *node, int depth);

static HsStatus add_sequence(Loading *loading, const HsJson *node, int depth)
{
    const HsJson *list;
    HS_TRY(hs_members_known(loading->where, node, "type pretokenizers "));
    HS_TRY(hs_member_list(loading->where, node, "pretokenizers", &list));
    if (depth == MAX_DEPTH)
        return hs_fail(HS_EUNSUPPORTED, "%s: more than %d Sequences within each other are not supported",
                       loading->where, MAX_DEPTH);
    for (const HsJson *item = hs_json_first(list); item; item = hs_json_next(item))
        HS_TRY(add(loading, item, depth + 1));
    return HS_OK;
}

static HsStatus add(Loading *loading, const HsJson *node, int depth)
{
    const char *type;
    bool present;
    snprintf(loading->where, sizeof loading->where, "%.200s: pre_tokenizer", loading->name);
    HS_TRY(hs_members_present(loading->where, node, &present));
    HS_TRY(hs_members_type(loading->where, node, &type));
    snprintf(loading->where, sizeof loading->where, "%.180s: pre_tokenizer %.40s", loading->name, type);
    /* After ByteLevel the text is no longer text: a further stage would see mapped bytes. */
    if (loading->pretokenizer->byte_level)
        return hs_fail(HS_EUNSUPPORTED, "%s: ByteLevel must come once, and last", loading->where);
    if (strcmp(type, "Sequence") == 0)
        return add_sequence(loading, node, depth);
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++)
        if (strcmp(types[i].type, type) == 0) {
            HS_TRY(hs_members_known(loading->where, node, types[i].members));
            return types[i].add(loading, node);
        }
    return hs_fail(HS_EUNSUPPORTED,
                   "%s is not supported; ByteLevel, Split, Digits, Punctuation, Whitespace, WhitespaceSplit, "
                   "CharDelimiterSplit, Metaspace and Sequence are",
                   loading->where);
}

HsStatus hs_pretokenizer_create(const char *name, const HsJson *node, HsPretokenizer **pretokenizer)
{
    bool present;
    Loading loading = { .name = name };
    *pretokenizer = NULL;
    snprintf(loading.where, sizeof loading.where, "%.200s: pre_tokenizer", name);
    HS_TRY(hs_members_present(loading.where, node, &present));
    *pretokenizer = loading.pretokenizer = calloc(1, sizeof **pretokenizer);
    if (!*pretokenizer)
        return hs_fail(HS_ENOMEM, "%s: out of memory", name);
    HsStatus status = present ? add(&loading, node, 0) : HS_OK;
    if (status != HS_OK) {
        hs_pretokenizer_destroy(*pretokenizer);
        *pretokenizer = NULL;
    }
    return status;
}

HsStatus hs_pretokenizer_create_gpt2(HsPretokenizer **pretokenizer)
{
    HsPretokenizer *made = *pretokenizer = calloc(1, sizeof *made);
    if (!made)
        return hs_fail(HS_ENOMEM, "out of memory while making a pre-tokenizer");
    made->stage_count = 1;
    made->byte_level = true;
    made->stages[0].ascii = hs_ascii_match_gpt2;
    HsStatus status = hs_pattern_create("GPT-2's pre-tokenizer", HS_PATTERN_GPT2, &made->stages[0].pattern);
    if (status != HS_OK) {
        hs_pretokenizer_destroy(made);
        *pretokenizer = NULL;
    }
    return status;
}
