/* SPDX-License-Identifier: MIT
 *
 * See normalize.h.  A normalizer is a list of steps; each reads one string and writes another.
 */
#include "runtime/data/tokenizer/normalize.h"

#include <stdio.h>

#include "runtime/data/tokenizer/members.h"

enum { MAX_DEPTH = 8, MAX_STEPS = 64 };

typedef struct Step Step;
/* Append what text[length], UTF-8, becomes. */
typedef HsStatus StepFunction(const Step *step, HsMatcher *matcher, const char *text, size_t length, HsBytes *out);

struct Step {
    StepFunction *apply;
    HsUnicodeForm form;
    HsPattern *pattern;
    char *content; /* what is prepended, or replaces a match */
    size_t content_length;
};

struct HsNormalizer {
    Step steps[MAX_STEPS];
    int count;
};

static HsStatus apply_form(const Step *step, HsMatcher *matcher, const char *text, size_t length, HsBytes *out)
{
    (void)matcher;
    return hs_unicode_normalize(step->form, text, length, out);
}

static HsStatus apply_lowercase(const Step *step, HsMatcher *matcher, const char *text, size_t length, HsBytes *out)
{
    (void)step, (void)matcher;
    for (size_t at = 0; at < length;) {
        uint32_t character = 0, lower[2];
        at += hs_utf8_decode(text + at, length - at, &character);
        int count = hs_unicode_lower(character, lower);
        for (int i = 0; i < count; i++)
            HS_TRY(hs_bytes_append_character(out, lower[i]));
    }
    return HS_OK;
}

static HsStatus apply_replace(const Step *step, HsMatcher *matcher, const char *text, size_t length, HsBytes *out)
{
    return hs_matcher_replace(matcher, step->pattern, text, length, step->content, out);
}

/* Runs of characters through the step, other bytes as they are. */
static HsStatus apply_to_runs(const Step *step, HsMatcher *matcher, const char *text, size_t length, HsBytes *out)
{
    for (size_t at = 0; at < length;) {
        size_t valid = hs_utf8_valid_prefix(text + at, length - at);
        HS_TRY(step->apply(step, matcher, text + at, valid, out));
        at += valid;
        if (at < length)
            HS_TRY(hs_bytes_append(out, text + at++, 1));
    }
    return HS_OK;
}

/* apply NULL marks a step that is done once for the whole text: Prepend. */
static HsStatus apply_step(const Step *step, HsMatcher *matcher, const char *text, size_t length, bool begins,
                           HsBytes *out)
{
    out->count = 0;
    if (step->apply)
        return apply_to_runs(step, matcher, text, length, out);
    if (length > 0 && begins)
        HS_TRY(hs_bytes_append(out, step->content, step->content_length));
    return hs_bytes_append(out, text, length);
}

HsStatus hs_normalizer_apply(const HsNormalizer *normalizer, HsMatcher *matcher, const char *text, size_t length,
                             bool begins, HsBytes *out)
{
    HsBytes from = { 0 };
    HsStatus status = HS_OK;
    if (normalizer->count == 0) {
        out->count = 0;
        return hs_bytes_append(out, text, length);
    }
    for (int i = 0; i < normalizer->count && status == HS_OK; i++) {
        if (i > 0) { /* what the last step wrote is what this one reads */
            HsBytes swapped = from;
            from = *out;
            *out = swapped;
        }
        status = apply_step(&normalizer->steps[i], matcher, i > 0 ? from.items : text, i > 0 ? from.count : length,
                            begins, out);
    }
    hs_bytes_deinit(&from);
    return status;
}

static HsStatus set_content(const char *where, const HsJson *node, const char *key, Step *step)
{
    const char *content;
    HS_TRY(hs_json_need_string(where, node, key, &content));
    step->content = strdup(content);
    step->content_length = strlen(content);
    return step->content ? HS_OK : hs_fail(HS_ENOMEM, "%s: out of memory", where);
}

static HsStatus add(HsNormalizer *normalizer, const char *name, const HsJson *node, int depth);

static HsStatus add_sequence(HsNormalizer *normalizer, const char *name, const HsJson *node, int depth)
{
    const HsJson *list;
    char where[256];
    snprintf(where, sizeof where, "%.180s: normalizer Sequence", name);
    HS_TRY(hs_members_known(where, node, "type normalizers "));
    HS_TRY(hs_member_list(where, node, "normalizers", &list));
    if (depth == MAX_DEPTH)
        return hs_fail(HS_EUNSUPPORTED, "%s: more than %d Sequences within each other are not supported", where,
                       MAX_DEPTH);
    for (const HsJson *item = hs_json_first(list); item; item = hs_json_next(item))
        HS_TRY(add(normalizer, name, item, depth + 1));
    return HS_OK;
}

static const struct {
    const char *type;
    StepFunction *apply;
    HsUnicodeForm form;
    const char *members;
    const char *content; /* the member that holds it; NULL: none */
} types[] = {
    { "NFC", apply_form, HS_NFC, "type ", NULL },
    { "NFD", apply_form, HS_NFD, "type ", NULL },
    { "NFKC", apply_form, HS_NFKC, "type ", NULL },
    { "NFKD", apply_form, HS_NFKD, "type ", NULL },
    { "Lowercase", apply_lowercase, HS_NFC, "type ", NULL },
    { "Prepend", NULL, HS_NFC, "type prepend ", "prepend" },
    { "Replace", apply_replace, HS_NFC, "type pattern content ", "content" },
};

static HsStatus add(HsNormalizer *normalizer, const char *name, const HsJson *node, int depth)
{
    const char *type;
    char where[256];
    bool present;
    snprintf(where, sizeof where, "%.200s: normalizer", name);
    HS_TRY(hs_members_present(where, node, &present));
    HS_TRY(hs_members_type(where, node, &type));
    if (strcmp(type, "Sequence") == 0)
        return add_sequence(normalizer, name, node, depth);
    snprintf(where, sizeof where, "%.180s: normalizer %.40s", name, type);
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++) {
        if (strcmp(types[i].type, type) != 0)
            continue;
        if (normalizer->count == MAX_STEPS)
            return hs_fail(HS_EUNSUPPORTED, "%s: more than %d normalizers are not supported", where, MAX_STEPS);
        Step *step = &normalizer->steps[normalizer->count++];
        *step = (Step){ .apply = types[i].apply, .form = types[i].form };
        HS_TRY(hs_members_known(where, node, types[i].members));
        if (types[i].content)
            HS_TRY(set_content(where, node, types[i].content, step));
        if (types[i].apply == apply_replace)
            HS_TRY(hs_pattern_parse(where, hs_json_get(node, "pattern"), &step->pattern));
        return HS_OK;
    }
    return hs_fail(HS_EUNSUPPORTED,
                   "%s is not supported; NFC, NFD, NFKC, NFKD, Lowercase, Prepend, Replace and Sequence are", where);
}

HsStatus hs_normalizer_create(const char *name, const HsJson *node, HsNormalizer **normalizer)
{
    char where[256];
    bool present;
    *normalizer = NULL;
    snprintf(where, sizeof where, "%.200s: normalizer", name);
    HS_TRY(hs_members_present(where, node, &present));
    if (!present)
        return HS_OK;
    *normalizer = calloc(1, sizeof **normalizer);
    if (!*normalizer)
        return hs_fail(HS_ENOMEM, "%s: out of memory", name);
    HsStatus status = add(*normalizer, name, node, 0);
    if (status != HS_OK) {
        hs_normalizer_destroy(*normalizer);
        *normalizer = NULL;
    }
    return status;
}

void hs_normalizer_destroy(HsNormalizer *normalizer)
{
    if (!normalizer)
        return;
    for (int i = 0; i < normalizer->count; i++) {
        hs_pattern_destroy(normalizer->steps[i].pattern);
        free(normalizer->steps[i].content);
    }
    free(normalizer);
}

bool hs_normalizer_keeps_lines(const HsNormalizer *normalizer)
{
    for (int i = 0; i < normalizer->count; i++)
        if (normalizer->steps[i].apply != apply_form || normalizer->steps[i].form != HS_NFC)
            return false;
    return true;
}

/* The literal that a step replaces, of one character; NULL: it is no such step. */
static const char *replaced_character(const Step *step)
{
    const char *literal = step->apply == apply_replace ? hs_pattern_literal(step->pattern) : NULL;
    return literal && hs_utf8_decode(literal, strlen(literal), NULL) == strlen(literal) ? literal : NULL;
}

bool hs_normalizer_is_by_character(const HsNormalizer *normalizer)
{
    for (int i = 0; i < normalizer->count; i++) {
        if (normalizer->steps[i].apply && !replaced_character(&normalizer->steps[i]))
            return false;
        for (int later = i + 1; later < normalizer->count; later++) { /* what was put stays */
            const char *literal = replaced_character(&normalizer->steps[later]);
            if (literal && strstr(normalizer->steps[i].content, literal))
                return false;
        }
    }
    return true;
}

const char *hs_normalizer_character(const HsNormalizer *normalizer, const char *character, size_t *length)
{
    for (int i = 0; i < normalizer->count; i++) {
        const char *literal = replaced_character(&normalizer->steps[i]);
        if (!literal || strlen(literal) != *length || memcmp(literal, character, *length) != 0)
            continue;
        *length = normalizer->steps[i].content_length;
        return normalizer->steps[i].content;
    }
    return character;
}
