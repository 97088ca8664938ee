/* SPDX-License-Identifier: MIT
 *
 * See detokenize.h.
 */
#include "kernels/base/array.h"
#include "runtime/data/tokenizer/detokenize.h"

#include <stdio.h>

#include "runtime/data/tokenizer/kind.h"
#include "runtime/data/tokenizer/members.h"

enum { MAX_DEPTH = 8, MAX_STEPS = 32 };

typedef struct Step Step;
/* strings -> out, which is empty.  middle: they do not begin the text. */
typedef HsStatus StepFunction(const Step *step, HsMatcher *matcher, const HsStrings *strings, bool middle,
                              HsStrings *out);

struct Step {
    StepFunction *apply;
    HsPattern *pattern;
    char *content; /* Replace: what comes in; Strip, Metaspace: the character */
    int64_t start, stop;
    bool drops_first; /* Metaspace: the character at the text's start */
};

struct HsDetokenizer {
    Step steps[MAX_STEPS];
    int count;
    int fuse; /* the step that joins all strings; count when there is none */
};

static const char *string_at(const HsStrings *strings, size_t i, size_t *length)
{
    size_t begin = i > 0 ? strings->ends[i - 1] : 0;
    *length = strings->ends[i] - begin;
    return strings->bytes.items ? strings->bytes.items + begin : "";
}

/* Make what was appended to the bytes since the last string one more string. */
static HsStatus end_string(HsStrings *strings)
{
    HS_TRY(hs_array_grow(&strings->ends, sizeof *strings->ends, strings->count + 1, &strings->capacity));
    strings->ends[strings->count++] = strings->bytes.count;
    return HS_OK;
}

HsStatus hs_strings_append(HsStrings *strings, const char *text, size_t length)
{
    HS_TRY(hs_bytes_append(&strings->bytes, text, length));
    return end_string(strings);
}

void hs_strings_deinit(HsStrings *strings)
{
    hs_bytes_deinit(&strings->bytes);
    free(strings->ends);
    *strings = (HsStrings){ 0 };
}

static HsStatus apply_fuse(const Step *step, HsMatcher *matcher, const HsStrings *strings, bool middle, HsStrings *out)
{
    (void)step, (void)matcher, (void)middle;
    return hs_strings_append(out, strings->bytes.items, strings->bytes.count);
}

static HsStatus apply_byte_level(const Step *step, HsMatcher *matcher, const HsStrings *strings, bool middle,
                                 HsStrings *out)
{
    (void)step, (void)matcher, (void)middle;
    for (size_t i = 0; i < strings->count; i++) {
        size_t length;
        const char *text = string_at(strings, i, &length);
        HS_TRY(hs_array_grow(&out->bytes.items, 1, out->bytes.count + length + 1, &out->bytes.capacity));
        long mapped = hs_byte_map_decode(text, length, out->bytes.items + out->bytes.count);
        if (mapped >= 0)
            out->bytes.count += (size_t)mapped;
        else /* literal text, such as an added token's */
            HS_TRY(hs_bytes_append(&out->bytes, text, length));
    }
    return end_string(out);
}

static int hexadecimal(char digit)
{
    static const char digits[] = "0123456789abcdef0123456789ABCDEF";
    const char *found = digit ? strchr(digits, digit) : NULL;
    return found ? (int)((found - digits) % 16) : -1;
}

/* "<0x41>" -> 0x41; -1: another token. */
static int fallback_byte(const char *text, size_t length)
{
    if (length != 6 || memcmp(text, "<0x", 3) != 0 || text[5] != '>')
        return -1;
    int high = hexadecimal(text[3]), low = hexadecimal(text[4]);
    return high < 0 || low < 0 ? -1 : high * 16 + low;
}

static HsStatus apply_byte_fallback(const Step *step, HsMatcher *matcher, const HsStrings *strings, bool middle,
                                    HsStrings *out)
{
    (void)step, (void)matcher, (void)middle;
    for (size_t i = 0; i < strings->count; i++) {
        size_t length;
        const char *text = string_at(strings, i, &length);
        int byte = fallback_byte(text, length);
        if (byte < 0) {
            HS_TRY(hs_strings_append(out, text, length));
            continue;
        }
        char value = (char)byte;
        HS_TRY(hs_bytes_append(&out->bytes, &value, 1));
        const char *next = i + 1 < strings->count ? string_at(strings, i + 1, &length) : "";
        if (i + 1 == strings->count || fallback_byte(next, length) < 0) /* a run of bytes is one string */
            HS_TRY(end_string(out));
    }
    return HS_OK;
}

static HsStatus apply_strip(const Step *step, HsMatcher *matcher, const HsStrings *strings, bool middle, HsStrings *out)
{
    (void)matcher, (void)middle;
    size_t size = strlen(step->content);
    for (size_t i = 0; i < strings->count; i++) {
        size_t length;
        const char *text = string_at(strings, i, &length);
        for (int64_t k = 0; k < step->start && length >= size && memcmp(text, step->content, size) == 0; k++) {
            text += size;
            length -= size;
        }
        for (int64_t k = 0; k < step->stop && length >= size && memcmp(text + length - size, step->content, size) == 0;
             k++)
            length -= size;
        HS_TRY(hs_strings_append(out, text, length));
    }
    return HS_OK;
}

static HsStatus apply_replace(const Step *step, HsMatcher *matcher, const HsStrings *strings, bool middle,
                              HsStrings *out)
{
    (void)middle;
    for (size_t i = 0; i < strings->count; i++) {
        size_t length;
        const char *text = string_at(strings, i, &length);
        HS_TRY(hs_matcher_replace(matcher, step->pattern, text, length, step->content, &out->bytes));
        HS_TRY(end_string(out));
    }
    return HS_OK;
}

/* The character becomes a space; at the text's start it goes, when it was put there. */
static HsStatus apply_metaspace(const Step *step, HsMatcher *matcher, const HsStrings *strings, bool middle,
                                HsStrings *out)
{
    (void)matcher;
    size_t size = strlen(step->content);
    for (size_t i = 0; i < strings->count; i++) {
        size_t length;
        const char *text = string_at(strings, i, &length);
        for (size_t at = 0; at < length;) {
            if (length - at < size || memcmp(text + at, step->content, size) != 0) {
                HS_TRY(hs_bytes_append(&out->bytes, text + at++, 1));
                continue;
            }
            at += size;
            if (i > 0 || middle || !step->drops_first)
                HS_TRY(hs_bytes_append(&out->bytes, " ", 1));
        }
        HS_TRY(end_string(out));
    }
    return HS_OK;
}

static HsStatus run(const HsDetokenizer *detokenizer, HsMatcher *matcher, int steps, bool middle, HsStrings *text)
{
    HsStrings out = { 0 };
    HsStatus status = HS_OK;
    for (int i = 0; i < steps && status == HS_OK; i++) {
        const Step *step = &detokenizer->steps[i];
        out.count = out.bytes.count = 0;
        status = step->apply(step, matcher, text, middle, &out);
        HsStrings swapped = *text;
        *text = out;
        out = swapped;
    }
    if (status == HS_OK) { /* the strings lie one after another: joined, they are one */
        text->count = 0;
        status = end_string(text);
    }
    hs_strings_deinit(&out);
    return status;
}

HsStatus hs_detokenizer_run(const HsDetokenizer *detokenizer, HsMatcher *matcher, HsStrings *text)
{
    return run(detokenizer, matcher, detokenizer->count, false, text);
}

HsStatus hs_detokenizer_run_middle(const HsDetokenizer *detokenizer, HsMatcher *matcher, HsStrings *text)
{
    return run(detokenizer, matcher, detokenizer->fuse, true, text);
}

bool hs_detokenizer_is_joining(const HsDetokenizer *detokenizer)
{
    return detokenizer->count == 0 || (detokenizer->count == 1 && detokenizer->steps[0].apply == apply_byte_level);
}

static HsStatus set_content(const char *where, const char *content, Step *step)
{
    step->content = strdup(content);
    return step->content ? HS_OK : hs_fail(HS_ENOMEM, "%s: out of memory", where);
}

static HsStatus read_byte_level(const char *where, const HsJson *node, Step *step)
{
    static const char *const flags[] = { "add_prefix_space", "trim_offsets", "use_regex" }; /* of no effect there too */
    bool value;
    (void)step;
    for (size_t i = 0; i < sizeof flags / sizeof flags[0]; i++)
        HS_TRY(hs_member_flag(where, node, flags[i], true, &value));
    return HS_OK;
}

static HsStatus read_strip(const char *where, const HsJson *node, Step *step)
{
    const char *content;
    HS_TRY(hs_member_character(where, node, "content", &content));
    HS_TRY(hs_member_count(where, node, "start", &step->start));
    HS_TRY(hs_member_count(where, node, "stop", &step->stop));
    return set_content(where, content, step);
}

static HsStatus read_replace(const char *where, const HsJson *node, Step *step)
{
    const char *content;
    HS_TRY(hs_json_need_string(where, node, "content", &content));
    HS_TRY(set_content(where, content, step));
    return hs_pattern_parse(where, hs_json_get(node, "pattern"), &step->pattern);
}

static HsStatus read_metaspace(const char *where, const HsJson *node, Step *step)
{
    const char *replacement;
    HsPrefix prefix;
    bool split;
    HS_TRY(hs_member_character(where, node, "replacement", &replacement));
    HS_TRY(hs_member_flag(where, node, "split", true, &split)); /* of no effect there too */
    HS_TRY(hs_member_scheme(where, node, &prefix));
    step->drops_first = prefix != HS_PREFIX_NEVER;
    return set_content(where, replacement, step);
}

static const struct {
    const char *type;
    StepFunction *apply;
    HsStatus (*read)(const char *where, const HsJson *node, Step *step); /* NULL: no settings */
    const char *members;
    bool fuses;
} types[] = {
    { "ByteLevel", apply_byte_level, read_byte_level, "type add_prefix_space trim_offsets use_regex ", false },
    { "ByteFallback", apply_byte_fallback, NULL, "type ", false },
    { "Fuse", apply_fuse, NULL, "type ", true },
    { "Strip", apply_strip, read_strip, "type content start stop ", false },
    { "Replace", apply_replace, read_replace, "type pattern content ", false },
    { "Metaspace", apply_metaspace, read_metaspace, "type replacement add_prefix_space prepend_scheme split str_rep ",
      false },
};

static HsStatus add(HsDetokenizer *detokenizer, const char *name, const HsJson *node, int depth);

static HsStatus add_sequence(HsDetokenizer *detokenizer, const char *name, const HsJson *node, int depth)
{
    const HsJson *list;
    char where[256];
    snprintf(where, sizeof where, "%.180s: decoder Sequence", name);
    HS_TRY(hs_members_known(where, node, "type decoders "));
    HS_TRY(hs_member_list(where, node, "decoders", &list));
    if (depth == MAX_DEPTH)
        return hs_fail(HS_EUNSUPPORTED, "%s: more than %d Sequences within each other are not supported", where,
                       MAX_DEPTH);
    for (const HsJson *item = hs_json_first(list); item; item = hs_json_next(item))
        HS_TRY(add(detokenizer, name, item, depth + 1));
    return HS_OK;
}

static HsStatus add(HsDetokenizer *detokenizer, const char *name, const HsJson *node, int depth)
{
    const char *type;
    char where[256];
    bool present;
    snprintf(where, sizeof where, "%.200s: decoder", name);
    HS_TRY(hs_members_present(where, node, &present));
    HS_TRY(hs_members_type(where, node, &type));
    if (strcmp(type, "Sequence") == 0)
        return add_sequence(detokenizer, name, node, depth);
    snprintf(where, sizeof where, "%.180s: decoder %.40s", name, type);
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++) {
        if (strcmp(types[i].type, type) != 0)
            continue;
        if (detokenizer->count == MAX_STEPS)
            return hs_fail(HS_EUNSUPPORTED, "%s: more than %d decoders are not supported", where, MAX_STEPS);
        if (types[i].fuses && detokenizer->fuse > detokenizer->count)
            detokenizer->fuse = detokenizer->count;
        Step *step = &detokenizer->steps[detokenizer->count++];
        step->apply = types[i].apply;
        HS_TRY(hs_members_known(where, node, types[i].members));
        return types[i].read ? types[i].read(where, node, step) : HS_OK;
    }
    return hs_fail(HS_EUNSUPPORTED,
                   "%s is not supported; ByteLevel, ByteFallback, Fuse, Strip, Replace, Metaspace and Sequence are",
                   where);
}

HsStatus hs_detokenizer_create(const char *name, const HsJson *node, bool byte_level, HsDetokenizer **detokenizer)
{
    char where[256];
    bool present;
    *detokenizer = NULL;
    snprintf(where, sizeof where, "%.200s: decoder", name);
    HS_TRY(hs_members_present(where, node, &present));
    *detokenizer = calloc(1, sizeof **detokenizer);
    if (!*detokenizer)
        return hs_fail(HS_ENOMEM, "%s: out of memory", name);
    (*detokenizer)->fuse = MAX_STEPS + 1;
    HsStatus status = HS_OK;
    if (present)
        status = add(*detokenizer, name, node, 0);
    else if (byte_level)
        (*detokenizer)->steps[(*detokenizer)->count++].apply = apply_byte_level;
    if ((*detokenizer)->fuse > (*detokenizer)->count)
        (*detokenizer)->fuse = (*detokenizer)->count;
    if (status != HS_OK) {
        hs_detokenizer_destroy(*detokenizer);
        *detokenizer = NULL;
    }
    return status;
}

void hs_detokenizer_destroy(HsDetokenizer *detokenizer)
{
    if (!detokenizer)
        return;
    for (int i = 0; i < detokenizer->count; i++) {
        hs_pattern_destroy(detokenizer->steps[i].pattern);
        free(detokenizer->steps[i].content);
    }
    free(detokenizer);
}
