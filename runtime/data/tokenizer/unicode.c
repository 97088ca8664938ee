/* SPDX-License-Identifier: MIT
 *
 * See unicode.h: the only file that includes utf8proc.
 *
 * A text is normalized in segments, which begin and end at characters that no form moves or composes across: ASCII
 * begins one, a young character is one by itself.  Plain runs between them are copied.
 */
#include "kernels/base/array.h"
#include "runtime/data/tokenizer/unicode.h"

#include <utf8proc.h>

enum { MAX_DECOMPOSITION = 32, CLASSES = 256 }; /* the longest, U+FDFA, has 18 */

static const struct {
    utf8proc_option_t options;
    uint32_t plain; /* characters below are starters that the form leaves as they are */
} forms[] = {
    [HS_NFC] = { UTF8PROC_STABLE | UTF8PROC_COMPOSE, 0x300 },
    [HS_NFD] = { UTF8PROC_STABLE | UTF8PROC_DECOMPOSE, 0xC0 },
    [HS_NFKC] = { UTF8PROC_STABLE | UTF8PROC_COMPOSE | UTF8PROC_COMPAT, 0xA0 },
    [HS_NFKD] = { UTF8PROC_STABLE | UTF8PROC_DECOMPOSE | UTF8PROC_COMPAT, 0xA0 },
};

typedef struct Segment {
    utf8proc_int32_t *items, *sorted; /* sorted: room for one run of marks */
    size_t count, capacity, sorted_capacity;
} Segment;

static unsigned class_of(utf8proc_int32_t character)
{
    return (unsigned)utf8proc_get_property(character)->combining_class;
}

/* Stable, by counting: a run of marks may be megabytes long. */
static HsStatus sort_marks(Segment *segment, utf8proc_int32_t *marks, size_t count)
{
    size_t places[CLASSES + 1] = { 0 };
    HS_TRY(hs_array_grow(&segment->sorted, sizeof *segment->sorted, count, &segment->sorted_capacity));
    for (size_t i = 0; i < count; i++)
        places[class_of(marks[i]) + 1]++;
    for (size_t i = 0; i < CLASSES; i++)
        places[i + 1] += places[i];
    for (size_t i = 0; i < count; i++)
        segment->sorted[places[class_of(marks[i])]++] = marks[i];
    memcpy(marks, segment->sorted, count * sizeof *marks);
    return HS_OK;
}

/* UAX #15, D109: marks between two starters in the order of their classes. */
static HsStatus order_marks(Segment *segment)
{
    for (size_t at = 0; at < segment->count;) {
        size_t end = at;
        while (end < segment->count && class_of(segment->items[end]) != 0)
            end++;
        if (end > at + 1)
            HS_TRY(sort_marks(segment, segment->items + at, end - at));
        at = end + 1;
    }
    return HS_OK;
}

static HsStatus normalize_segment(HsUnicodeForm form, Segment *segment, const char *text, size_t length, HsBytes *out)
{
    segment->count = 0;
    for (size_t at = 0; at < length;) {
        uint32_t character = 0;
        int bound = UTF8PROC_BOUNDCLASS_START;
        size_t size = hs_utf8_decode(text + at, length - at, &character);
        at += size > 0 ? size : 1; /* the caller gives UTF-8 */
        HS_TRY(hs_array_grow(&segment->items, sizeof *segment->items, segment->count + MAX_DECOMPOSITION,
                             &segment->capacity));
        utf8proc_ssize_t count = utf8proc_decompose_char((utf8proc_int32_t)character, segment->items + segment->count,
                                                         MAX_DECOMPOSITION, forms[form].options, &bound);
        segment->count += count > 0 ? (size_t)count : 0;
    }
    HS_TRY(order_marks(segment));
    utf8proc_ssize_t count =
        utf8proc_normalize_utf32(segment->items, (utf8proc_ssize_t)segment->count, forms[form].options);
    for (utf8proc_ssize_t i = 0; i < count; i++)
        HS_TRY(hs_bytes_append_character(out, (uint32_t)segment->items[i]));
    return HS_OK;
}

/* Where the first character stands that the form may change; *before: where the one before it does. */
static size_t plain_run(HsUnicodeForm form, const char *text, size_t length, size_t at, size_t *before)
{
    *before = at;
    while (at < length) {
        uint32_t character = 0;
        size_t size = hs_utf8_decode(text + at, length - at, &character);
        bool young = hs_unicode_is_young(character);
        if (character >= forms[form].plain && !young)
            break;
        at += size > 0 ? size : 1;
        *before = young ? at : at - size; /* nothing composes with a young one */
    }
    return at;
}

static size_t segment_end(const char *text, size_t length, size_t at)
{
    while (at < length) {
        uint32_t character = 0;
        size_t size = hs_utf8_decode(text + at, length - at, &character);
        if (character < 0x80 || hs_unicode_is_young(character))
            break;
        at += size > 0 ? size : 1;
    }
    return at;
}

HsStatus hs_unicode_normalize(HsUnicodeForm form, const char *text, size_t length, HsBytes *out)
{
    Segment segment = { 0 };
    HsStatus status = HS_OK;
    for (size_t at = 0; at < length && status == HS_OK;) {
        size_t begin, first = plain_run(form, text, length, at, &begin);
        if (first == length)
            begin = length;
        status = hs_bytes_append(out, text + at, begin - at);
        size_t end = segment_end(text, length, first);
        if (status == HS_OK)
            status = normalize_segment(form, &segment, text + begin, end - begin, out);
        at = end;
    }
    free(segment.items);
    free(segment.sorted);
    return status;
}

int hs_unicode_lower(uint32_t character, uint32_t lower[2])
{
    /* Pairs of Unicode 16 and 17. */
    static const struct {
        uint32_t first, last, step;
        int32_t distance;
    } newer[] = {
        { 0x1C89, 0x1C89, 1, 1 },      { 0xA7CB, 0xA7CB, 1, 0x264 - 0xA7CB },
        { 0xA7CC, 0xA7CE, 2, 1 },      { 0xA7D2, 0xA7D4, 2, 1 },
        { 0xA7DA, 0xA7DA, 1, 1 },      { 0xA7DC, 0xA7DC, 1, 0x19B - 0xA7DC },
        { 0x10D50, 0x10D65, 1, 0x20 }, { 0x16EA0, 0x16EB8, 1, 0x1B },
    };
    for (size_t i = 0; i < sizeof newer / sizeof newer[0] && character >= newer[0].first; i++)
        if (character >= newer[i].first && character <= newer[i].last &&
            (character - newer[i].first) % newer[i].step == 0) {
            lower[0] = (uint32_t)((int32_t)character + newer[i].distance);
            return 1;
        }
    if (character == 0x130) { /* the one character that becomes two in lower case */
        lower[0] = 'i';
        lower[1] = 0x307;
        return 2;
    }
    lower[0] = (uint32_t)utf8proc_tolower((utf8proc_int32_t)character);
    return 1;
}

bool hs_unicode_is_space(uint32_t character)
{
    if (character < 0x80)
        return character == ' ' || (character >= '\t' && character <= '\r');
    return character == 0x85 || character == 0xA0 || character == 0x1680 ||
           (character >= 0x2000 && character <= 0x200A) || character == 0x2028 || character == 0x2029 ||
           character == 0x202F || character == 0x205F || character == 0x3000;
}
